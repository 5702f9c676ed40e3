"""Which rows a statement touches: INSERT, REPLACE, UPDATE and DELETE on one table, as the lab's loads write them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from migverify.errors import LabError

_TOKEN = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|[A-Za-z_0-9$.\u0080-\uffff]+|[^\s]""", re.DOTALL
)
_NAME = re.compile(r"`((?:[^`]|``)*)`|([^`.\s]+)")


class Verb(StrEnum):
    """What a statement does."""

    INSERT = "insert"
    REPLACE = "replace"
    UPDATE = "update"
    DELETE = "delete"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class WriteStatement:
    """One statement.

    Attributes
    ----------
    database, table
        What it writes; both empty for ``Verb.OTHER``, the database also where the statement does not name it.
    columns
        The columns of an INSERT, empty where it names none.
    rows
        The values of an INSERT as SQL, row by row.
    where
        The condition of an UPDATE or DELETE, empty for all rows.
    sets
        Column -> expression of an UPDATE.
    may_replace
        Whether an INSERT may change rows that are there.
    """

    verb: Verb
    database: str = ""
    table: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    where: str = ""
    sets: tuple[tuple[str, str], ...] = ()
    may_replace: bool = False


@dataclass(slots=True)
class _Tokens:
    """The tokens of a statement with their places; ``at`` is the next one."""

    sql: str
    spans: list[tuple[int, int]]
    at: int = 0

    def word(self, ahead: int = 0) -> str:
        place = self.at + ahead
        if place >= len(self.spans):
            return ""
        start, end = self.spans[place]
        return self.sql[start:end].upper()

    def skip(self, *words: str) -> bool:
        """Pass the next tokens where they are these."""
        if all(self.word(ahead) == word for ahead, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def text(self, start: int, end: int) -> str:
        """Return the SQL of tokens ``start`` up to, not including, ``end``."""
        return "" if start >= end else self.sql[self.spans[start][0] : self.spans[end - 1][1]]


def parse_write(sql: str) -> WriteStatement:
    """Return what a statement writes; anything but INSERT, REPLACE, UPDATE and DELETE is ``OTHER``.

    Raises
    ------
    LabError
        it writes in a form whose rows cannot be told: INSERT ... SELECT, several tables, LIMIT.
    """
    tokens = _Tokens(sql, [match.span() for match in _TOKEN.finditer(sql.rstrip().rstrip(";"))])
    first = tokens.word()
    if first in ("INSERT", "REPLACE"):
        return _insert(tokens, Verb(first.lower()))
    if first == "UPDATE":
        return _update(tokens)
    return _delete(tokens) if first == "DELETE" else WriteStatement(Verb.OTHER)


def _insert(tokens: _Tokens, verb: Verb) -> WriteStatement:
    tokens.at = 1
    ignores = tokens.skip("IGNORE")
    tokens.skip("INTO")
    database, table = _table(tokens)
    columns: tuple[str, ...] = ()
    if tokens.word() == "(":
        columns = tuple(unquoted(part) for part in _parenthesized(tokens))
    if not (tokens.skip("VALUES") or tokens.skip("VALUE")):
        raise _unclear(tokens.sql)
    rows = []
    while tokens.word() == "(":
        rows.append(tuple(_parenthesized(tokens)))
        tokens.skip(",")
    replaces = tokens.skip("ON", "DUPLICATE", "KEY", "UPDATE") or ignores or verb is Verb.REPLACE
    if tokens.word() and not replaces:
        raise _unclear(tokens.sql)
    return WriteStatement(verb, database, table, columns, tuple(rows), may_replace=replaces)


def _update(tokens: _Tokens) -> WriteStatement:
    tokens.at = 1
    database, table = _table(tokens)
    if not tokens.skip("SET"):
        raise _unclear(tokens.sql)
    begin = tokens.at
    end = _find(tokens, "WHERE")
    sets = []
    for part in _split(tokens, begin, end):
        name, equals, expression = part.partition("=")
        if not equals:
            raise _unclear(tokens.sql)
        sets.append((unquoted(name.strip().rpartition(".")[2]), expression.strip()))
    return WriteStatement(Verb.UPDATE, database, table, where=_where(tokens, end), sets=tuple(sets))


def _delete(tokens: _Tokens) -> WriteStatement:
    tokens.at = 1
    if not tokens.skip("FROM"):
        raise _unclear(tokens.sql)
    database, table = _table(tokens)
    return WriteStatement(Verb.DELETE, database, table, where=_where(tokens, _find(tokens, "WHERE")))


def _where(tokens: _Tokens, at: int) -> str:
    if _find(tokens, "LIMIT") < len(tokens.spans):
        raise _unclear(tokens.sql)
    return tokens.text(at + 1, len(tokens.spans))


def _table(tokens: _Tokens) -> tuple[str, str]:
    parts = [tokens.text(tokens.at, tokens.at + 1)]
    tokens.at += 1
    while tokens.word() == "." or (tokens.word().startswith(".") or parts[-1].endswith(".")):
        parts.append(tokens.text(tokens.at, tokens.at + 1))
        tokens.at += 1
    names = [unquoted(match[0]) for match in _NAME.finditer("".join(parts))]
    if not 1 <= len(names) <= 2:
        raise _unclear(tokens.sql)
    return ("", names[0]) if len(names) == 1 else (names[0], names[1])


def unquoted(name: str) -> str:
    """Return a name without its backticks."""
    name = name.strip()
    return name[1:-1].replace("``", "`") if name.startswith("`") else name


def _parenthesized(tokens: _Tokens) -> list[str]:
    """Return the parts between the parenthesis at ``at`` and its partner, and pass them."""
    begin, depth = tokens.at + 1, 0
    for place in range(tokens.at, len(tokens.spans)):
        start, end = tokens.spans[place]
        character = tokens.sql[start] if end - start == 1 else ""
        depth += (character == "(") - (character == ")")
        if depth == 0:
            tokens.at = place + 1
            return list(_split(tokens, begin, place))
    raise _unclear(tokens.sql)


def _split(tokens: _Tokens, begin: int, end: int) -> Iterator[str]:
    """Yield the SQL between the commas of one level."""
    depth, last = 0, begin
    for place in range(begin, end):
        start, stop = tokens.spans[place]
        if stop - start != 1:
            continue
        character = tokens.sql[start]
        depth += (character == "(") - (character == ")")
        if character == "," and depth == 0:
            yield tokens.text(last, place)
            last = place + 1
    if last < end:
        yield tokens.text(last, end)


def _find(tokens: _Tokens, word: str) -> int:
    """Return the place of a word outside of parentheses, the number of tokens where there is none."""
    depth = 0
    for place in range(tokens.at, len(tokens.spans)):
        start, end = tokens.spans[place]
        text = tokens.sql[start:end]
        depth += (text == "(") - (text == ")")
        if depth == 0 and text.upper() == word:
            return place
    return len(tokens.spans)


def _unclear(sql: str) -> LabError:
    return LabError(
        f"the feed cannot tell which rows {sql[:200]!r} writes",
        hint="Write INSERT ... VALUES, UPDATE or DELETE on one table without LIMIT, or let the table be polled.",
    )


def key_rows(columns: Sequence[str], key: Sequence[str], statement: WriteStatement) -> list[tuple[str, ...]] | None:
    """Return the SQL of the keys of an INSERT's rows; None where the server gives them (AUTO_INCREMENT).

    Parameters
    ----------
    columns
        The table's columns that are written where the statement names none.
    """
    named = {name.lower(): place for place, name in enumerate(statement.columns or columns)}
    places = [named.get(name.lower()) for name in key]
    if any(place is None for place in places):
        return None
    rows = [tuple(row[place] for place in places if place is not None) for row in statement.rows]
    return None if all(part.upper() in ("NULL", "DEFAULT") for row in rows for part in row) else rows
