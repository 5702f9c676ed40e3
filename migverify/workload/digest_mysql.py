"""MySQL's normalized text of a statement, and the bytes its digest is the SHA-256 of.

MySQL hashes the numbers of its tokens, not the text: two bytes a token; a name is its token's number, its length and
its bytes. The numbers are not documented; those of ``data/mysql-9.7.json`` were found by trying numbers until the
hash was the server's. A statement with a token whose number is not known has a text, and no digest of the server's
kind.

The server's grammar takes part in three places, which the tokens around show here: NULL is a literal except
behind IS and in definitions of columns, and a bare whole number as an item of ORDER BY or GROUP BY stays as it is.
Texts that the server cannot parse have no digest there; here they have one by the same rules.
"""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import SupportsIndex

from migverify.sql.lexer import DEFAULT, Modes, TokenKind, executed, mysql_runs, pattern

VERSION = 90704
_VALUE, _VALUES = b"? ", b"?, ... "
_ROW, _ROWS = b"(?) ", b"(?) /* , ... */ "
_LONG_ROW, _LONG_ROWS = b"(...) ", b"(...) /* , ... */ "
_IN_LIST = b"IN (...) "
_OPEN, _CLOSE, _COMMA, _DOT, _AT = b"( ", b") ", b", ", b". ", b"@"
_MINUS, _PLUS, _END = b"- ", b"+ ", b"; "
_IN, _BY, _NOT, _IS, _SET, _NULL = b"IN ", b"BY ", b"NOT ", b"IS ", b"SET ", b"NULL "
_CHARSET = b"(_charset) "
_NAME = (1106).to_bytes(2, "little")
_NAME_BEFORE_AT = (1107).to_bytes(2, "little")
_KEPT_NUMBER = (1111).to_bytes(2, "little")
_OWN_NUMBER = frozenset(bytes([one]) for one in b"(),.@+-*/%|&^~:{};")  # characters that are tokens of their own code

_LITERALS = frozenset({_VALUE, _VALUES})
_LISTS_OF_ROWS = {_ROW: (_ROW, _ROWS), _LONG_ROW: (_LONG_ROW, _LONG_ROWS)}
_BEFORE_BY = frozenset({b"ORDER ", b"GROUP ", b"PARTITION "})
_ENDS_BY = frozenset({
    b"LIMIT ", b"HAVING ", b"SEPARATOR ", b"ROWS ", b"RANGE ", b"GROUPS ", b"FOR ", b"LOCK ", b"INTO ", b"UNION ",
    b"EXCEPT ", b"INTERSECT ", b"WINDOW ", b"ORDER ", b"QUALIFY ", b"SELECT ", b"WITH ROLLUP ", b"WITH ", _END,
})  # fmt: skip
_GOES_ON = frozenset({
    b"AND ", b"OR ", b"XOR ", b"IS ", b"IN ", b"LIKE ", b"BETWEEN ", b"NOT ", b"RLIKE ", b"REGEXP ", b"DIV ", b"MOD ",
    b"COLLATE ", b"MEMBER ", b"SOUNDS ",
})  # fmt: skip
_BEFORE_NULL_LITERAL = frozenset({
    b"DEFAULT ", b"THEN ", b"ELSE ", b"RETURN ", b"AS ", _OPEN, _COMMA, b"= ", b":= ", b"<=> ", b"!= ", b"< ", b"> ",
    b"<= ", b">= ", b"+ ", b"- ", b"* ", b"/ ", b"AND ", b"OR ", b"XOR ", b"SELECT ", b"WHEN ", b"CASE ", b"LIKE ",
    b"BETWEEN ", b"|| ", b"&& ", b"WHERE ", b"BY ",
})  # fmt: skip
_DEFINES = frozenset({b"CREATE ", b"ALTER "})
_HINTED = (b"SELECT", b"INSERT", b"REPLACE", b"UPDATE", b"DELETE")
_HINT_TOKEN = re.compile(
    rb"\s+|(?P<name>[A-Za-z_$\x80-\xff][\w$\x80-\xff]*)|(?P<quoted>`(?:[^`]|``)*`)|(?P<text>'[^']*'|\"[^\"]*\")"
    rb"|(?P<number>\d[\w.]*)|(?P<sign>.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What the server calls its tokens: by word, by word before ``(``, in hints, and their numbers by text."""

    words: dict[bytes, bytes]
    functions: dict[bytes, bytes]
    hints: dict[bytes, bytes]
    charsets: frozenset[bytes]
    starts: frozenset[bytes]
    numbers: dict[bytes, bytes]


@lru_cache(maxsize=1)
def vocabulary() -> Vocabulary:
    """Return the tokens of MySQL 9.7, read from the package's data."""
    data = json.loads(resources.files("migverify.workload").joinpath("data/mysql-9.7.json").read_text())

    def texts(part: dict[str, str], mark: bytes = b"") -> dict[bytes, bytes]:
        both = {name.encode(): mark + text.encode() + b" " for name, text in part.items()}
        return both | {name.lower(): text for name, text in both.items()}

    numbers = {}
    for text, number in data["numbers"].items():
        chunk = text.encode() if text == "@" else text.encode() + b" "
        numbers[chunk] = number.to_bytes(2, "little")
    numbers |= {b"\x00" + text.encode() + b" ": n.to_bytes(2, "little") for text, n in data["hint_numbers"].items()}
    return Vocabulary(
        words=texts(data["words"]),
        functions=texts(data["functions"]),
        hints=texts({name: name for name in data["hints"]}, b"\x00"),
        charsets=frozenset(name.encode() for name in data["charsets"]),
        starts=frozenset(text.encode() + b" " for text in data["starts"]),
        numbers=numbers,
    )


class _FullError(Exception):
    """The server's storage of tokens is full: what comes behind does not count."""


class _Bounded(list[bytes]):
    """Tokens up to a number of bytes. Cutting the finished list would not do: the last list may not be reduced yet."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self.room = room

    def append(self, part: bytes) -> None:
        self.room -= size_of(part)
        if self.room < 0:
            raise _FullError
        super().append(part)

    def pop(self, index: SupportsIndex = -1) -> bytes:
        part = super().pop(index)
        self.room += size_of(part)
        return part


def parts(sql: bytes, modes: Modes = DEFAULT, version: int = VERSION, length: int | None = None) -> list[bytes]:
    """Return the reduced tokens of a statement, each as its text with the space behind it; names begin with "`".

    Parameters
    ----------
    length
        Stop where the tokens take more bytes than this.
    """
    out: list[bytes] = [] if length is None else _Bounded(length)
    # the server stops in the midst of its work where its storage is full
    with suppress(_FullError):
        _read(out, executed(sql, mysql_runs(version)), modes)
    while out and out[-1] == _END:
        out.pop()
    return out


def _read(out: list[bytes], text: bytes, modes: Modes) -> None:
    known = vocabulary()
    words, functions, starts = known.words, known.functions, known.starts
    push = out.append
    depth = 0
    lists: list[int] = []  # depths at which the items of a BY are being read
    number: tuple[int, bytes] | None = None  # where a bare number is that may stay
    for match in pattern("mysql", modes).finditer(text):
        kind = match.lastindex
        if kind is None:
            break
        raw = match[kind]
        if number is not None:
            _keep_number(out, number, kind, raw, words)
            number = None
        if kind == 1:  # TokenKind.WORD, the most frequent first: this loop is the cost of a digest
            word = words.get(raw) or words.get(raw.upper())
            if word is None:
                if (found := functions.get(raw.upper())) is not None:
                    after = text[match.end() :].lstrip() if modes.ignore_space else text[match.end() : match.end() + 1]
                    word = found if after[:1] == b"(" else None
                if word is None:
                    if raw[0] == 95 and raw[1:].lower() in known.charsets:
                        push(_CHARSET)
                    else:
                        push(b"`" + raw + b"` ")
                    continue
            if word is _NULL or word == _NULL:
                if _null_is_value(out):
                    _value(out, starts, signed=False)
                else:
                    push(_NULL)
                continue
            if word == b"ROLLUP " and out and out[-1] == b"WITH ":
                out[-1] = word = b"WITH ROLLUP "
            else:
                if word == _NOT and modes.high_not_precedence:
                    word = b"! "
                push(word)
            if word == _BY and len(out) > 1 and out[-2] in _BEFORE_BY:
                lists.append(depth)
            elif lists and lists[-1] == depth and word in _ENDS_BY:
                lists.pop()
        elif kind == 11:  # OPERATOR
            if raw == b"(":
                depth += 1
                push(_OPEN)
            elif raw == b")":
                depth -= 1
                while lists and lists[-1] > depth:
                    lists.pop()
                _close(out)
            elif raw == b"<>":
                push(b"!= ")
            else:
                push(raw + b" ")
        elif kind == 4:  # INTEGER
            if lists and lists[-1] == depth and out[-1] in (_BY, _COMMA) and 0 < int(raw) < 1 << 32:
                number = len(out), raw
            _value(out, starts, signed=True)
        elif kind == 5 or kind == 6:
            _value(out, starts, signed=True)
        elif kind == 3 or kind == 10:
            _value(out, starts, signed=False)
        elif kind == 2:  # NAMES
            for place, name in enumerate(raw.split(b".")):
                if place:
                    push(_DOT)
                if name:
                    push(b"`" + name + b"` ")
        elif kind == 7:  # QUOTED
            quote = raw[:1]
            push(b"`" + raw[1:-1].replace(quote + quote, quote) + b"` ")
        elif kind == 8:
            _variable(out, raw, words)
        elif kind == 9:
            if text[: match.start(9)].rstrip()[-7:].upper().endswith(_HINTED):
                _hint(out, raw[3:-2], known.hints)
        else:
            push(b"`" + raw + b"` ")
    if number is not None:
        _keep_number(out, number, 0, b"", words)


def _value(out: list[bytes], starts: frozenset[bytes], *, signed: bool) -> None:
    if signed:
        while out and (out[-1] == _MINUS or out[-1] == _PLUS) and len(out) > 1 and out[-2] in starts:
            out.pop()
    if len(out) > 1 and out[-1] == _COMMA and out[-2] in _LITERALS:
        out.pop()
        out[-1] = _VALUES
    else:
        out.append(_VALUE)


def _close(out: list[bytes]) -> None:
    if len(out) < 2 or out[-2] != _OPEN or out[-1] not in _LITERALS:
        out.append(_CLOSE)
        return
    row = _ROW if out[-1] == _VALUE else _LONG_ROW
    out.pop()
    out.pop()
    if out and out[-1] == _IN:
        out[-1] = _IN_LIST
    elif len(out) > 1 and out[-1] == _COMMA and out[-2] in _LISTS_OF_ROWS[row]:
        out.pop()
        out[-1] = _LISTS_OF_ROWS[row][1]
    else:
        out.append(row)


def _keep_number(
    out: list[bytes], number: tuple[int, bytes], kind: int, following: bytes, words: dict[bytes, bytes]
) -> None:
    at, raw = number
    if at != len(out) - 1 or out[at] != _VALUE:
        return
    if kind == TokenKind.WORD:
        ends = words.get(following.upper(), b"") not in _GOES_ON
    else:
        ends = kind == 0 or following in (b",", b")", b";")
    if ends:
        out[at] = b"%d " % int(raw)


def _null_is_value(out: list[bytes]) -> bool:
    if not out:
        return True
    last = out[-1]
    if last == _IS or (last == _NOT and len(out) > 1 and out[-2] == _IS):
        return False
    if last == _SET and len(out) > 1 and out[-2] in (b"DELETE ", b"UPDATE "):
        return False
    if len(out) > 1 and (out[-2] == b"PATH " or (last == b"EMPTY " and out[-2] == b"ON ")):
        return False
    return last in _BEFORE_NULL_LITERAL or out[0] not in _DEFINES


def _variable(out: list[bytes], raw: bytes, words: dict[bytes, bytes]) -> None:
    out.append(_AT)
    name = raw[1:]
    if not name.startswith(b"@"):
        if name.startswith(b"`"):
            out.append(b"`" + name[1:-1].replace(b"``", b"`") + b"` ")
        else:
            _value(out, frozenset(), signed=False)
        return
    out.append(_AT)
    name = name[1:].lstrip()
    if name.startswith(b"`"):
        out.append(b"`" + name[1:-1].replace(b"``", b"`") + b"` ")
        return
    for place, part in enumerate(name.split(b".")):
        if place:
            out.append(_DOT)
            out.append(b"`" + part + b"` ")
        elif part:
            out.append(words.get(part.upper()) or b"`" + part + b"` ")


def _hint(out: list[bytes], content: bytes, hints: dict[bytes, bytes]) -> None:
    if not content.strip():
        return
    out.append(b"\x00/*+ ")
    for match in _HINT_TOKEN.finditer(content):
        what = match.lastgroup
        raw = match[0]
        if what in ("name", "quoted"):
            name = raw[1:-1].replace(b"``", b"`") if what == "quoted" else raw
            keyword = hints.get(raw.upper()) if what == "name" else None
            tight = content[match.end() : match.end() + 1] == b"@"
            out.append(keyword or b"`" + name + (b"`" if tight else b"` "))
        elif what in ("number", "text"):
            _value(out, frozenset(), signed=False)
        elif raw == b")":
            _close(out)
        elif what == "sign":
            out.append(_AT if raw == b"@" else b"\x00= " if raw == b"=" else raw + b" ")
    out.append(b"\x00*/ ")


def token_bytes(out: list[bytes]) -> bytes | None:
    """Return the bytes the server hashes; None where the number of a token is not known."""
    return b"".join(found) if None not in (found := [_bytes_of(part) for part in out]) else None  # type: ignore[arg-type]


def _bytes_of(part: bytes) -> bytes | None:
    number = vocabulary().numbers.get(part)
    if number is not None:
        return number
    if part[:1] == b"`":
        name = part[1:-2] if part[-1:] == b" " else part[1:-1]
        number = _NAME if part[-1:] == b" " else _NAME_BEFORE_AT
        return number + len(name).to_bytes(2, "little") + name
    if part[:1].isdigit():
        return _KEPT_NUMBER + int(part).to_bytes(4, "little")
    return part[:1] + b"\0" if part[:1] in _OWN_NUMBER and len(part) <= 2 else None


def size_of(part: bytes) -> int:
    """Return the bytes a token takes of ``max_digest_length``."""
    if part[:1] == b"`":
        return len(part) + (1 if part[-1:] == b" " else 2)
    return 6 if part[:1].isdigit() else 2


def normalized(
    sql: bytes, modes: Modes = DEFAULT, version: int = VERSION, length: int = 1024
) -> tuple[bytes, bytes | None]:
    """Return the digest text, and the bytes the digest is made of (None: a token's number is not known).

    Parameters
    ----------
    length
        The server's ``max_digest_length``: bytes of tokens kept.
    """
    out = parts(sql, modes, version)
    if sum(map(size_of, out)) > length:
        out = parts(sql, modes, version, length)
    return b"".join(out).replace(b"\x00", b"").rstrip(b" "), token_bytes(out)


def server_digest(found: bytes) -> str:
    """Return the hash the server makes of its token bytes."""
    return hashlib.sha256(found).hexdigest()
