"""Bytes of a statement -> tokens, by the rules of MySQL or TiDB: the one tokenizer. Any bytes are read, none decoded.

One compiled expression a dialect and mode does the work. Digests run it directly, for speed; ``tokens`` yields what it
finds as named tuples. Offsets are those of the text as written, also inside comments that servers execute.

The two servers differ in a few places: TiDB reads ``.5`` behind a name as a number and MySQL as a name; MySQL takes
``0X1F`` for a name; TiDB knows no ``ANSI_QUOTES`` where it makes digests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

Dialect: TypeAlias = Literal["mysql", "tidb"]


class TokenKind(IntEnum):
    """What a token is. The numbers up to ``OPEN`` are those of the groups in the expression."""

    WORD = 1  # an unquoted name or keyword
    NAMES = 2  # names joined by dots: none of them is a keyword
    STRING = 3  # '...' "..." N'...'
    INTEGER = 4
    NUMBER = 5  # 1.5, 1e5, 0x1F, x'1F'
    BITS = 6  # b'01', 0b01
    QUOTED = 7  # `...`, and "..." under ANSI_QUOTES
    VARIABLE = 8  # @name, @'name', @@name, @@session.name
    HINT = 9  # /*+ ... */
    PARAMETER = 10  # ?
    OPERATOR = 11
    OPEN = 12  # a string, quoted name or comment without an end: takes all the rest
    SPACE = 13  # these three of ``migverify.sql.tokens`` alone
    COMMENT = 14
    NAMED = 15  # :name


class Token(NamedTuple):
    """One token: kind and byte offsets, ``sql[start:end]`` is its text."""

    kind: TokenKind
    start: int
    end: int


WIDE: Mapping[str, bytes] = {
    "gbk": rb"[\x81-\xfe][\x40-\x7e\x80-\xfe]",
    "gb18030": rb"[\x81-\xfe](?:[\x30-\x39][\x81-\xfe][\x30-\x39]|[\x40-\x7e\x80-\xfe])",
    "big5": rb"[\xa1-\xf9][\x40-\x7e\xa1-\xfe]",
    "sjis": rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
    "cp932": rb"[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc]",
}
"""One character of more than a byte, in each character set where its last byte may be a backslash or a backtick."""


@dataclass(frozen=True, slots=True)
class Modes:
    """What changes how a statement is read: modes of ``sql_mode``, and the client's character set.

    ``charset`` is named only where a character's second byte may be a backslash or a backtick (GBK, Shift-JIS ...).
    """

    ansi_quotes: bool = False
    no_backslash_escapes: bool = False
    ignore_space: bool = False
    pipes_as_concat: bool = False
    high_not_precedence: bool = False
    charset: str = ""

    @classmethod
    def of(cls, sql_mode: str | None, charset: str | None = None) -> Modes:
        """Return the modes that a ``sql_mode`` text (names with commas) sets; ANSI means three of them."""
        return _modes(sql_mode or "", charset or "")


@lru_cache(maxsize=1024)
def _modes(sql_mode: str, charset: str) -> Modes:
    names = {name.strip().upper() for name in sql_mode.split(",")}
    ansi = "ANSI" in names
    wide = charset.lower()
    return Modes(
        ansi_quotes=ansi or "ANSI_QUOTES" in names,
        no_backslash_escapes="NO_BACKSLASH_ESCAPES" in names,
        ignore_space=ansi or "IGNORE_SPACE" in names,
        pipes_as_concat=ansi or "PIPES_AS_CONCAT" in names,
        high_not_precedence="HIGH_NOT_PRECEDENCE" in names,
        charset=wide if wide in WIDE else "",
    )


DEFAULT = Modes()

_PART = rb"[\w$\x80-\xff]"  # of a name
_FIRST = rb"[A-Za-z_$\x80-\xff]"
_BACKTICKS = rb"`(?:[^`]|``)*+`"
_LINE = rb"\#[^\n]*+"


@lru_cache(maxsize=64)
def pattern(dialect: Dialect = "mysql", modes: Modes = DEFAULT) -> re.Pattern[bytes]:
    """Return the expression that finds one token behind space and comments; its groups are the ``TokenKind`` numbers.

    A match without a group is the end of the text. Comments that a server executes must be opened before
    (``executed``), and characters of several bytes be made plain (``narrowed``).
    """
    single, double = (_string(quote, modes) for quote in (b"'", b'"'))
    strings, quoted = single, _BACKTICKS
    if modes.ansi_quotes:
        quoted += rb'|"(?:[^"]|"")*+"'
    else:
        strings += b"|" + double
    if dialect == "mysql":
        space = rb"[ \t\n\v\f\r]"
        dash = rb"--(?=[\x00-\x20\x7f]|\Z)[^\n]*+"
        number = rb"0x[0-9a-fA-F]++(?!" + _PART + rb")"
        bits = rb"0b[01]++(?!" + _PART + rb")"
        digits_name = b"(?!" + number + b"|" + bits + rb")\d++(?![eE][+\-]?\d)" + _PART + rb"++"
        names = rb"(?:" + _FIRST + _PART + rb"*+|" + digits_name + rb")(?:\." + _PART + rb"++)++|" + digits_name
        names += rb"|\." + _FIRST + _PART + rb"*+(?:\." + _PART + rb"++)*+"
        user = rb"@@(?:[ \t\n\v\f\r]*+(?:" + _PART + rb"++|`(?:[^`]|``)*+`))?(?:\." + _PART + rb"++)*+"
        user += rb"|@(?:[A-Za-z0-9._$\x80-\xff]++|" + single + rb'|"(?:[^"]|"")*+"|' + _BACKTICKS + rb")?+"
        national = rb"[nN]" + single + b"|"
    else:
        space = rb"[ \t\n\v\f\r\x85\xa0]"
        dash = rb"--(?=[ \t\n\v\f\r\x85\xa0]|\Z)[^\n]*+"
        number = rb"0[xX][0-9a-fA-F]++(?!" + _PART + rb")"
        bits = rb"0b[01]++(?!" + _PART + rb")"
        digits_name = b"(?!" + number + b"|" + bits + rb")\d++(?![eE][+\-]?\d)" + _PART + rb"++"
        names = _FIRST + _PART + rb"*+(?:(?:\." + _FIRST + _PART + rb"*+)++|(?=\.))|" + digits_name
        some = rb"[\w$.\x80-\xff]++"
        any_name = some + b"|" + single + b"|" + double + b"|" + _BACKTICKS
        user = rb"@@(?:(?:[gG][lL][oO][bB][aA][lL]|[sS][eE][sS][sS][iI][oO][nN]|[lL][oO][cC][aA][lL])\.)?+(?:"
        user += any_name + rb")?+|@(?:" + any_name + rb")?+"
        national = b""
    number += rb"|[xX]'[0-9a-fA-F]*+'|\d++[eE][+\-]?\d++|(?:\d++\.\d*+|\.\d++)(?:[eE][+\-]?\d++)?+"
    skipped = rb"(?:" + space + rb"++|" + _LINE + b"|" + dash + rb"|/\*(?!\+).*?\*/)*+"
    word = rb"(?![xXbB]'|[nN]')" if dialect == "mysql" else rb"(?![xXbB]')"
    alternatives = [
        word + _FIRST + _PART + rb"*+(?!\." + (_PART if dialect == "mysql" else b"") + b")",
        word + b"(?:" + names + b")",
        national + strings,
        rb"\d++(?![\w$.\x80-\xff])",
        number,
        rb"[bB]'[01]*+'|" + bits,
        quoted,
        user,
        rb"/\*\+.*?\*/",
        rb"\?",
        rb"<=>|->>|->|<<|>>|<>|<=|>=|!=|:=|&&|\|\||"
        + (rb"&\^|\\N|" if dialect == "tidb" else b"")
        + rb"/(?!\*)|[^'\"`/\s]",
        rb".++",
    ]
    text = b"|".join(b"(" + one + b")" for one in alternatives) + rb"|\Z"
    return re.compile(skipped + b"(?:" + text + b")", re.DOTALL)


def _string(quote: bytes, modes: Modes) -> bytes:
    if modes.no_backslash_escapes:
        return quote + rb"(?:[^" + quote + rb"]|" + quote + quote + rb")*+" + quote
    return quote + rb"(?:[^" + quote + rb"\\]++|\\.|" + quote + quote + rb")*+" + quote


def tokens(sql: bytes, dialect: Dialect = "mysql", modes: Modes = DEFAULT) -> Iterator[Token]:
    """Yield the tokens of a statement in order, without space and comments.

    Nothing is left out: between two tokens stand space and comments only. ``TokenKind.OPEN`` can only come last.
    """
    for match in pattern(dialect, modes).finditer(narrowed(sql, modes)):
        kind = match.lastindex
        if kind is None:
            return
        yield Token(TokenKind(kind), match.start(kind), match.end(kind))


def executed_tokens(sql: bytes) -> list[Token]:
    """Return the tokens of a statement, those of executable comments (``/*!40101 ... */``) too."""
    return list(tokens(executed(sql, lambda opening: len(opening[0]))))


_FINE = re.compile(rb"[0-9A-Za-z_$\x80-\xff]++|.", re.DOTALL)


def fine_tokens(sql: bytes, modes: Modes = DEFAULT) -> Iterator[Token]:
    """Yield the tokens of a statement, cut as finely as can be: strings and quoted names whole, all else single.

    A name with its database is three tokens, a number a WORD (of three, with a point), every other sign an OPERATOR.
    """
    expression, at = pattern("mysql", modes), 0
    while (found := expression.match(sql, at)) is not None and found.lastindex is not None:
        kind = TokenKind(found.lastindex)
        begin, at = found.span(kind)
        if kind is not TokenKind.OPEN and sql[begin] not in b"'\"`/" and (run := _FINE.match(sql, begin, at)):
            at = run.end()
            kind = TokenKind.OPERATOR if at == begin + 1 and not _NAME_BYTE.match(sql, begin) else TokenKind.WORD
        yield Token(kind, begin, at)


_NAME_BYTE = re.compile(rb"[0-9A-Za-z_$\x80-\xff]")


FIRST_WORD = re.compile(
    rb"(?:\s++|/\*M?!\d*|/\*(?!M?!).*?(?:\*/|\Z)|--(?=\s)[^\n]*+|\#[^\n]*+|\()*+([A-Za-z]+)", re.DOTALL
)


def first_word(sql: bytes) -> str:
    """Return the first word of a statement in lower case, behind comments and parentheses; ``""``: there is none."""
    match = FIRST_WORD.match(sql)
    return match[1].decode().lower() if match else ""


def narrowed(sql: bytes, modes: Modes) -> bytes:
    """Return a text in which no sign is a part of a character: of the same length, so offsets stay.

    In GBK, Shift-JIS and their like the second byte of a character may be that of a backslash, a backtick or another
    sign. Behind a backslash that escapes, the server takes one byte, and so do we.
    """
    if not modes.charset or sql.isascii():
        return sql
    whole, escaping, plain = _characters(modes)

    def made_plain(match: re.Match[bytes]) -> bytes:
        kind = match.lastgroup
        if kind == "comment":
            return match[0]
        if kind == "character":
            return _plain_character(match)
        return (escaping if kind == "text" else plain).sub(_plain_character, match[0])

    return whole.sub(made_plain, sql)


def _plain_character(match: re.Match[bytes]) -> bytes:
    raw = match[0]
    return raw if raw[0] < 0x80 or raw[-1:].isalnum() else b"\x80" * len(raw)


@lru_cache(maxsize=64)
def _characters(modes: Modes) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """Return what finds literals, names, comments and characters; and characters in a literal, and in a name."""
    character = WIDE[modes.charset]
    escape = b"" if modes.no_backslash_escapes else rb"|\\."

    def quoted(quote: bytes, escape: bytes) -> bytes:
        body = rb"[^" + quote + rb"\\\x80-\xff]++|" + character + escape + b"|" + quote * 2 + rb"|[\\\x80-\xff]"
        return quote + b"(?:" + body + b")*+(?:" + quote + rb"|\Z)"

    texts = quoted(b"'", escape) + (b"" if modes.ansi_quotes else b"|" + quoted(b'"', escape))
    names = quoted(b"`", b"") + (b"|" + quoted(b'"', b"") if modes.ansi_quotes else b"")
    comments = rb"/\*(?!M?!|T!).*?(?:\*/|\Z)|--(?=[\x00-\x20\x7f]|\Z)[^\n]*+|\#[^\n]*+"
    parts = ((b"comment", comments), (b"text", texts), (b"name", names), (b"character", character))
    whole = b"|".join(b"(?P<" + name + b">" + part + b")" for name, part in parts)
    return tuple(re.compile(one, re.DOTALL) for one in (whole, character + escape, character))  # type: ignore[return-value]


_EXECUTABLE = re.compile(rb"/\*(?:M?!|T!)")


@lru_cache(maxsize=64)
def _piece(modes: Modes) -> re.Pattern[bytes]:
    single, double = (_string(quote, modes)[:-1] + b"(?:" + quote + rb"|\Z)" for quote in (b"'", b'"'))
    if modes.ansi_quotes:
        double = rb'"[^"]*+"?+'
    return re.compile(
        rb"(?P<kept>" + single + b"|" + double + rb"|`[^`]*+`?+|\#[^\n]*+|--(?=[\x00-\x20\x7f]|\Z)[^\n]*+)"
        rb"|(?P<open>/\*(?:(?P<maker>M?)!(?P<version>\d{5,6})?|T!(?P<features>\[[\w$,]++\])?))"
        rb"|(?P<comment>/\*.*?(?:\*/|\Z))|(?P<close>\*/)",
        re.DOTALL,
    )


_REST = re.compile(rb"(?:[^*/]|/(?!\*)|\*(?!/)|/\*.*?\*/)*+(?:\*/)?", re.DOTALL)
_SPACE_FOR = re.compile(rb"[^\n]")
_TIDB_FEATURES = frozenset({
    b"auto_rand", b"auto_id_cache", b"auto_rand_base", b"clustered_index", b"force_inc", b"placement", b"ttl",
    b"global_index", b"pre_split", b"affinity", b"split_region",
})  # fmt: skip


def has_executable_comment(sql: bytes) -> bool:
    """Tell whether the text holds ``/*!``, ``/*M!`` or ``/*T!``, be it inside a string: this is the cheap question."""
    return _EXECUTABLE.search(sql) is not None


def executed(sql: bytes, runs: Callable[[re.Match[bytes]], int | None], modes: Modes = DEFAULT) -> bytes:
    """Return the text with executable comments opened: of the same length, so offsets stay.

    Characters of several bytes come back as ``narrowed`` makes them.

    Parameters
    ----------
    runs
        Receives the opening of a comment (groups ``maker``, ``version``, ``features``). Returns the bytes the opening
        takes when its content runs, 0 when it is a plain comment, None when the content is to be dropped
        (with comments nested in it).
    """
    sql = narrowed(sql, modes)
    if not has_executable_comment(sql):
        return sql
    parts: list[bytes] = []
    at = 0
    inside = False
    piece = _piece(modes)
    while match := piece.search(sql, at):
        parts.append(sql[at : match.start()])
        end = match.end()
        if match.lastgroup == "kept" or (match["comment"] is not None and not match["open"]):
            parts.append(match[0])
        elif match["close"] is not None:
            parts.append(b"  " if inside else b"*/")
            inside = False
        else:
            taken = runs(match)
            if taken:
                end = match.start() + taken
                parts.append(b" " * taken)
                inside = True
            else:
                rest = _REST if taken is None else _PLAIN_REST
                found = rest.match(sql, match.end())
                end = found.end() if found else len(sql)
                parts.append(_SPACE_FOR.sub(b" ", sql[match.start() : end]))
        at = end
    parts.append(sql[at:])
    return b"".join(parts)


_PLAIN_REST = re.compile(rb".*?(?:\*/|\Z)", re.DOTALL)


def mysql_runs(version: int) -> Callable[[re.Match[bytes]], int | None]:
    """Return what a MySQL of this version (90704 is 9.7.4) does with an executable comment."""

    def runs(match: re.Match[bytes]) -> int | None:
        if match["maker"] or match[0].startswith(b"/*T"):
            return 0
        wanted = match["version"]
        return len(match[0]) if wanted is None or int(wanted) <= version else None

    return runs


def tidb_runs(match: re.Match[bytes]) -> int | None:
    """TiDB runs ``/*!`` of any version (five digits are one, a sixth is text) and ``/*T![feature]`` it knows."""
    if match["maker"]:
        return 0
    if match[0].startswith(b"/*T"):
        features = match["features"]
        known = features is None or set(features[1:-1].split(b",")) <= _TIDB_FEATURES
        return len(match[0]) if known else 0
    return 8 if match["version"] else 3


class Quoting(NamedTuple):
    r"""Expressions for texts as one SQL mode and character set read them.

    ``closed`` matches up to the first quote or comment that does not close; ``valid`` stops at a backslash outside of
    quotes as well, which no statement has but in ``\N``. ``opened`` match what a sign opens.
    """

    closed: re.Pattern[bytes]
    valid: re.Pattern[bytes]
    opened: dict[bytes, re.Pattern[bytes]]


@lru_cache(maxsize=64)
def quoting(modes: Modes) -> Quoting:
    """Return the expressions of a mode: it decides where a backslash escapes, and which bytes are one character."""
    wide = WIDE[modes.charset] if modes.charset else b""
    escapes = {b"'": not modes.no_backslash_escapes, b'"': not (modes.no_backslash_escapes or modes.ansi_quotes)}
    inside = {b"`": rb"(?:" + wide + rb"|[^`])*+" if wide else rb"[^`]*+"}
    for quote, escaped in escapes.items():
        plain = rb"[^" + quote + rb"\\]"
        body = wide + b"|" + plain if wide else plain + b"++"
        inside[quote] = rb"(?:" + body + rb"|\\.)*+" if escaped else rb"[^" + quote + rb"]*+"
    quoted = {quote: quote + body + quote for quote, body in inside.items()}
    comment = rb"/\*(?:[^*]++|\*(?!/))*+\*/"
    rest = b"|".join(quoted.values()) + (
        rb"|\#[^\n]*+|--(?=[\x00-\x20]|\Z)[^\n]*+|/\*(?!M?!)(?:[^*]++|\*(?!/))*+\*/|/(?!\*(?!M?!))|-(?!-(?:[\x00-\x20]|\Z))"
    )
    other = rb"(?:" + wide + rb"|[^'\"`\#/%s-])" if wide else rb"[^'\"`\#/%s-]++"
    closed, valid = (
        re.compile(rb"(?:" + other.replace(b"%s", without) + rb"|" + also + rest + rb")*+", re.DOTALL)
        for without, also in ((b"", b""), (rb"\\", rb"\\N|"))
    )
    opened = {quote: re.compile(text, re.DOTALL) for quote, text in (*quoted.items(), (b"/", comment))}
    return Quoting(closed, valid, opened)
