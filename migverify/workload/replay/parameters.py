"""Literals of a captured statement become parameters again, where its meaning cannot change; and back.

Logs show an executed prepared statement with its values inlined. To ask it as its client did, literals become ``?``
again. Which of them had been one is not known, so every literal is taken that a parameter can stand for, and each of
these stays as it is:

- all in a select list (a literal names its column there and gives its type), in ORDER BY, GROUP BY, PARTITION BY and
  window definitions (ordinals, and expressions that must equal those of the list), in FROM;
- arguments that must be or do better as literals: fractions of seconds, lengths of types, JSON paths, ROUND, ...;
- strings behind an introducer, ``DATE``, ``->``, ``ESCAPE``, ``SEPARATOR``, or another string (they are joined);
  strings that are aliases, ``N'..'``, strings with a COLLATE, strings that are no UTF-8;
- ``b'01'``, and ``x'..'`` except where more than 8 bytes are stored: they are numbers where numbers are expected;
- strings one computes with, which are integers as literals of MySQL and floats as its parameters, or otherwise;
- lists that mix numbers and strings, NULL, hints, all in DDL, SET, SHOW and what no driver prepares.

One difference is left, and a finding of its own (text against prepared) where a workload has it: MySQL gives a
parameter the type of the DATE, DATETIME, TIMESTAMP, TIME or YEAR column it is compared with, so that a number or a
string that is no such value fails as a literal (1525) or compares otherwise, and matches nothing as a parameter. It
also keeps the types that a prepared statement was first executed with; the wire prepares once a set of types.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from migverify.workload.lexer import DEFAULT, Kind, Modes, has_executable_comment, pattern, tokens
from migverify.workload.model import Parameter

MOST = 65_535
"""More parameters than this no server takes."""

_PREPARABLE = frozenset({"SELECT", "INSERT", "REPLACE", "UPDATE", "DELETE", "WITH", "CALL", "DO", "TABLE"})
_CLAUSES = {
    "SELECT": "list", "FROM": "from", "WHERE": "where", "GROUP": "by", "ORDER": "by", "PARTITION": "by",
    "WINDOW": "by", "HAVING": "having", "LIMIT": "limit", "SET": "set", "VALUES": "values", "VALUE": "values",
    "ON": "on", "UNION": "", "EXCEPT": "", "INTERSECT": "", "FOR": "", "INTO": "", "USING": "", "JOIN": "from",
}  # fmt: skip
_STANDS = frozenset({"where", "having", "limit", "set", "values", "on", "call"})
_AS_THEY_ARE = frozenset({
    "ROUND", "TRUNCATE", "FORMAT", "JSON_TABLE", "JSON_VALUE", "NTILE", "LAG", "LEAD", "NTH_VALUE", "NOW",
    "CURRENT_TIMESTAMP", "CURTIME", "CURRENT_TIME", "UTC_TIMESTAMP", "UTC_TIME", "SYSDATE", "LOCALTIME",
    "LOCALTIMESTAMP", "STR_TO_DATE", "RAND", "CHAR", "BINARY", "VARBINARY", "NCHAR", "VARCHAR", "DECIMAL", "DEC",
    "NUMERIC", "DATETIME", "TIME", "FLOAT", "DOUBLE", "BIT", "WEIGHT_STRING", "GROUP_CONCAT", "OVER", "TIMESTAMP",
    "GROUPING", "ANY_VALUE", "MATCH",
})  # fmt: skip
_COMPARISONS = frozenset({b"=", b"<=>", b"<>", b"!=", b"<", b">", b"<=", b">="})
_ARITHMETIC = frozenset({b"+", b"-", b"*", b"/", b"%", b"|", b"&", b"^", b"<<", b">>", b"~"})
_DIVIDES = frozenset({"DIV", "MOD"})
_OPERATORS = _COMPARISONS | {b"+", b"-", b"*", b"/", b"%", b"(", b",", b"|", b"&", b"^", b"<<", b">>", b"&&", b"||",
                             b"!", b"~"}  # fmt: skip
_WORDS = frozenset({
    "WHERE", "AND", "OR", "XOR", "NOT", "LIKE", "RLIKE", "REGEXP", "BETWEEN", "DIV", "MOD", "THEN", "ELSE", "WHEN",
    "CASE", "LIMIT", "OFFSET", "INTERVAL", "ON", "HAVING", "VALUES", "VALUE", "DO",
})  # fmt: skip
_TIED_BEHIND = frozenset({"COLLATE", "PRECEDING", "FOLLOWING"})
_LITERALS = frozenset({Kind.STRING, Kind.INTEGER, Kind.NUMBER, Kind.BITS})
_SHORTEST_BYTES = 8  # hex literals up to here are numbers where a number is expected
_ESCAPED = {b"0": b"\0", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"Z": b"\x1a", b"%": b"\\%", b"_": b"\\_"}
_ESCAPE = re.compile(rb"\\(.)", re.DOTALL)
_EXACT = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)\Z")
_REAL = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?\Z")


class ParameterError(ValueError):
    """Values do not fit the parameters of a statement."""


@dataclass(slots=True)
class _Level:
    """Where the text stands inside one pair of parentheses."""

    clause: str
    kept: bool  # literals stay as they are


def parameterize(sql: bytes, modes: Modes = DEFAULT) -> tuple[bytes, tuple[Parameter, ...]] | None:
    """Return a statement with ``?`` and the typed values that stood there.

    Without values, the statement can be prepared as it stands. None is a text that is not prepared: no query, DML or
    CALL, several statements, a ``?`` of its own, an executable comment, a quote without an end, too many values,
    characters of GBK, Shift-JIS and their like.
    """
    if has_executable_comment(sql) or (modes.charset and not sql.isascii()):
        return None
    walk = _Walk(sql, modes)
    kinds = walk.kinds
    if walk.first() not in _PREPARABLE or b";" in walk.raws or Kind.OPEN in kinds or Kind.PARAMETER in kinds:
        return None
    made = walk.walk()
    if len(made) > MOST:
        return None
    parts: list[bytes] = []
    at = 0
    for start, end, _ in made:
        parts += (sql[at:start], b"?")
        at = end
    parts.append(sql[at:])
    return b"".join(parts), tuple(parameter for _, _, parameter in made)


class _Walk:
    """The tokens of one statement, side by side in lists, and the literals found in them."""

    def __init__(self, sql: bytes, modes: Modes) -> None:
        self.modes = modes
        self.made: list[tuple[int, int, Parameter]] = []
        self.raws: list[bytes] = []
        self.kinds: list[int] = []
        self.words: list[str] = []  # in upper case; empty for what is no word
        self.starts: list[int] = []
        self.ends: list[int] = []
        for match in pattern("mysql", modes).finditer(sql):  # as ``lexer.tokens``, without an object a token
            kind = match.lastindex
            if kind is None:
                break
            if kind == Kind.HINT:
                continue
            raw = match[kind]
            self.raws.append(raw)
            self.kinds.append(kind)
            self.words.append(raw.decode("latin-1").upper() if kind == Kind.WORD else "")
            self.starts.append(match.start(kind))
            self.ends.append(match.end(kind))
        while self.raws and self.raws[-1] == b";":
            for one in (self.raws, self.kinds, self.words, self.starts, self.ends):
                one.pop()

    def first(self) -> str:
        """Return the word that tells what the statement is: behind opening parentheses."""
        at = 0
        while self._raw(at) == b"(":
            at += 1
        return self._word_at(at)

    def walk(self) -> list[tuple[int, int, Parameter]]:
        """Return start, end and value of each literal that can be a parameter, in their order."""
        level = _Level("", kept=False)
        levels = [level]
        for at, (raw, kind) in enumerate(zip(self.raws, self.kinds, strict=True)):
            if kind == Kind.WORD:
                self._word(at, self.words[at], level)
            elif raw == b"(":
                level = self._opened(at, level)
                levels.append(level)
            elif raw == b")":
                if len(levels) > 1:
                    levels.pop()
                    level = levels[-1]
            elif kind in _LITERALS and not level.kept and level.clause in _STANDS:
                self._literal(at, kind, raw, level)
        return self.made

    def _word(self, at: int, word: str, level: _Level) -> None:
        if word in _CLAUSES and not self._called(at, word):
            if word == "FOR" and level.clause == "from":
                return  # USE INDEX FOR JOIN
            if word == "SELECT" or not (level.clause == "by" and word == "ON"):
                level.clause = _CLAUSES[word]
        elif (word in ("CALL", "DO")) and at == 0:
            level.clause = "call"
        elif word == "UPDATE" and self._word_at(at - 1) == "KEY":
            level.clause = "set"

    def _called(self, at: int, word: str) -> bool:
        """Tell a function VALUES(column) and a name from a clause; only some of the words are either."""
        return word in ("VALUES", "VALUE") and self._raw(at - 1) in _OPERATORS and self._raw(at - 1) != b"("

    def _opened(self, at: int, level: _Level) -> _Level:
        name = self._word_at(at - 1)
        subquery = self._word_at(at + 1) in ("SELECT", "WITH") or self._raw(at + 1) == b"("
        kept = level.kept or level.clause in ("list", "by") or name in _AS_THEY_ARE
        if (level.clause == "from" and not subquery) or (name == "IN" and not subquery and self._mixes(at + 1)):
            kept = True
        return _Level(level.clause, kept)

    def _literal(self, at: int, kind: int, raw: bytes, level: _Level) -> None:
        start = self.starts[at]
        before, word = self._raw(at - 1), self._word_at(at - 1)
        minus = before == b"-" and self.kinds[at] != Kind.STRING and self._begins(at - 2)
        if minus:
            start = self.starts[at - 1]
            before, word = self._raw(at - 2), self._word_at(at - 2)
        if not (word in _WORDS or (before in _OPERATORS and not word)) or self._word_at(at + 1) in _TIED_BEHIND:
            return
        if level.clause == "having" and before not in _COMPARISONS:
            return
        if kind == Kind.STRING and (Kind.STRING in (self._kind(at + 1), self._kind(at - 1)) or raw[1:2] == b"$"):
            return  # joined to its neighbor; or it may be the path into a JSON document
        if level.clause == "limit" and (kind != Kind.INTEGER or minus):
            return
        if kind == Kind.STRING and self._computes(at):
            return
        if kind == Kind.NUMBER and raw[:2].lower() in (b"0x", b"x'") and not self._stored(at, level):
            return
        parameter = _parameter(kind, raw, self.modes, minus=minus)
        if parameter is not None:
            self.made.append((start, self.ends[at], parameter))

    def _mixes(self, at: int) -> bool:
        """Tell whether a list that begins here holds both texts and numbers."""
        texts = numbers = False
        for kind, raw in zip(self.kinds[at:], self.raws[at:], strict=True):
            if raw == b")":
                break
            texts = texts or kind == Kind.STRING
            numbers = numbers or kind in (Kind.INTEGER, Kind.NUMBER, Kind.BITS)
        return texts and numbers

    def _computes(self, at: int) -> bool:
        """Tell whether the literal is an operand of arithmetic, as far as its neighbors tell."""
        before, after = self._raw(at - 1), self._raw(at + 1)
        return before in _ARITHMETIC or after in _ARITHMETIC or self._word_at(at + 1) in _DIVIDES

    def _stored(self, at: int, level: _Level) -> bool:
        """Tell whether the literal is a whole value that is stored: of VALUES, or of an assignment."""
        if level.clause not in ("values", "set") or self._raw(at - 1) not in (b"(", b",", b"="):
            return False
        return self._raw(at + 1) in (b")", b",", b"") or self._word_at(at + 1) in ("WHERE", "ON", "ORDER", "LIMIT")

    def _begins(self, at: int) -> bool:
        """Tell whether an expression begins behind this token, so that a minus there is a sign."""
        return self._word_at(at) in _WORDS or (self._kind(at) == Kind.OPERATOR and self._raw(at) in _OPERATORS)

    def _raw(self, at: int) -> bytes:
        return self.raws[at] if 0 <= at < len(self.raws) else b""

    def _kind(self, at: int) -> int:
        return self.kinds[at] if 0 <= at < len(self.kinds) else 0

    def _word_at(self, at: int) -> str:
        return self.words[at] if 0 <= at < len(self.words) else ""


def _parameter(kind: int, raw: bytes, modes: Modes, *, minus: bool) -> Parameter | None:
    sign = b"-" if minus else b""
    if kind == Kind.INTEGER:
        value = int(sign + raw) if len(raw) <= 20 else None
        if value is not None and -(1 << 63) <= value < 1 << 63:
            return Parameter("integer", sign + raw)
        if value is not None and 0 <= value < 1 << 64:
            return Parameter("unsigned", raw)
        return Parameter("decimal", sign + raw)
    if kind == Kind.NUMBER:
        if raw[:1] in b"xX" or raw[:2] in (b"0x", b"0X"):
            digits = raw[2:].rstrip(b"'")
            long = len(digits) > 2 * _SHORTEST_BYTES and not len(digits) % 2 and not minus
            return Parameter("bytes", bytes.fromhex(digits.decode())) if long else None
        return Parameter("double" if b"e" in raw.lower() else "decimal", sign + raw)
    if kind != Kind.STRING or raw[:1] not in b"'\"":
        return None
    value_bytes = unquoted(raw, modes)
    try:
        value_bytes.decode()
    except UnicodeDecodeError:
        return None
    return Parameter("text", value_bytes)


def unquoted(raw: bytes, modes: Modes = DEFAULT) -> bytes:
    r"""Return what a string literal stands for; ``\%`` and ``\_`` keep their backslash, as on the servers."""
    quote = raw[:1]
    body = raw[1:-1]
    if modes.no_backslash_escapes or b"\\" not in body:
        return body.replace(quote + quote, quote)
    parts = re.split(rb"(\\.)", body, flags=re.DOTALL)  # a quote behind a backslash is not one of a pair
    plain: Callable[[bytes], bytes] = lambda part: part.replace(quote + quote, quote)  # noqa: E731
    return b"".join(
        _ESCAPE.sub(lambda found: _ESCAPED.get(found[1], found[1]), part) if number % 2 else plain(part)
        for number, part in enumerate(parts)
    )


def quoted(value: bytes, modes: Modes = DEFAULT) -> bytes:
    """Return a string literal that stands for these bytes."""
    if modes.charset and not value.isascii():  # a character of it may hold the byte of a backslash
        return b"_" + modes.charset.encode() + b" x'" + value.hex().encode() + b"'"
    if not modes.no_backslash_escapes:
        value = value.replace(b"\\", b"\\\\").replace(b"\0", b"\\0")
    return b"'" + value.replace(b"'", b"''") + b"'"


def inlined(sql: bytes, parameters: tuple[Parameter, ...], modes: Modes = DEFAULT) -> bytes:
    """Return a statement with its values as literals, as a driver that prepares on its own side writes them.

    Raises
    ------
    ParameterError
        there are more or fewer values than ``?``.
    """
    places = [token for token in tokens(sql, "mysql", modes) if token.kind == Kind.PARAMETER]
    if len(places) != len(parameters):
        raise ParameterError(f"{len(parameters)} values for {len(places)} parameters")
    parts: list[bytes] = []
    at = 0
    for place, parameter in zip(places, parameters, strict=True):
        parts += (sql[at : place.start], literal(parameter, modes))
        at = place.end
    parts.append(sql[at:])
    return b"".join(parts)


def literal(parameter: Parameter, modes: Modes = DEFAULT) -> bytes:
    """Return the literal of a value; a number's text that is no number becomes a string."""
    value = parameter.value
    if value is None:
        return b"NULL"
    match parameter.kind:
        case "integer" | "unsigned" | "decimal" if _EXACT.match(value):
            return value
        case "double" | "float" if _REAL.match(value):
            return value if b"e" in value.lower() else value + b"e0"
        case "bytes":
            return b"x'" + value.hex().encode() + b"'"
        case _:
            return quoted(value, modes)
