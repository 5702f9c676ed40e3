"""Which rows a statement touches, as far as its text tells: tables, and keys where literals name them.

Only what cannot be wrong is returned: a key that is not certain becomes "the whole table", a table that is not certain
"everything". Two keys that differ here are two rows under every collation; two that are not may still be. A key
is certain only as its column's type has it: a DATE, an ENUM or a DECIMAL has many spellings.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.sql.lexer import DEFAULT, Modes, Token, tokens
from migverify.sql.lexer import TokenKind as Kind
from migverify.workload.meaning import Meaning

RowKey: TypeAlias = tuple[bytes, ...]
"""Texts of a unique key's values, folded, behind the key's name."""

EVERYTHING = "*"
MOST_KEYS = 64


@dataclass(frozen=True, slots=True)
class Touch:
    """Rows of one table. ``table`` is ``EVERYTHING`` where it is not known, ``key`` None for the whole table."""

    table: str
    key: RowKey | None
    writes: bool


@dataclass(frozen=True, slots=True)
class TableKeys:
    """What is known of one table: its primary key, then its other unique keys; columns in lower case.

    ``strict`` are those of its keys, the primary one too, whose columns all are NOT NULL: they make an order total.
    ``related`` are tables tied to it by foreign keys: a write here reads or changes rows there. ``triggers`` says that
    its writes do what their text does not tell. ``columns`` are all in their order, for an INSERT that names none.
    ``clocked``: a write may put the session's time into a column by itself (a default, ON UPDATE, a trigger).
    ``integers`` and ``texts`` are the columns of those types; a key over others names no row for certain.
    ``zoned`` are its TIMESTAMP columns, whose text depends on the session's time zone; None where they are not known.
    ``generated`` columns change with others. ``auto`` is the AUTO_INCREMENT column, empty for none. ``defaults`` are
    literals that integer and text columns get which an INSERT does not name, None for NULL. ``referenced`` are the
    columns that foreign keys refer to: no other one changes rows of related tables. None where they are not known.
    """

    primary: tuple[str, ...] = ()
    unique: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    related: tuple[str, ...] = ()
    triggers: bool = False
    strict: tuple[tuple[str, ...], ...] = ()
    columns: tuple[str, ...] = ()
    clocked: bool = True
    integers: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    zoned: tuple[str, ...] | None = None
    generated: frozenset[str] = frozenset()
    auto: str = ""
    defaults: Mapping[str, str | None] = field(default_factory=dict)
    referenced: frozenset[str] | None = None


Keys: TypeAlias = Mapping[str, TableKeys]
"""By ``database.table``, lower case."""

_INTEGER = re.compile(rb"[+-]?0*(\d+)\Z")
_PLAIN = re.compile(rb"[A-Za-z_][\x21-\x26\x28-\x5b\x5d-\x7e]*(?: [\x21-\x26\x28-\x5b\x5d-\x7e]+)*\Z")
_ENDS = frozenset({b"ORDER", b"LIMIT", b"FOR", b"LOCK", b"GROUP", b"HAVING", b"INTO", b"WINDOW", b"PROCEDURE"})
_TELLS_NOTHING = frozenset({b"OR", b"||", b"XOR", b"SELECT", b"UNION", b"JOIN", b"VALUES", b"ROW"})


def touches(
    sql: bytes, meaning: Meaning, database: str | None, keys: Keys, modes: Modes = DEFAULT, *, writes: bool
) -> tuple[Touch, ...]:
    """Return what a statement touches; empty where it touches no rows.

    Parameters
    ----------
    database
        The session's current database, None where it is not known.
    writes
        May the statement write as it is asked (``Classification.may_write``, or a locking read)?
    """
    found = meaning.shape.tables
    if found is None:
        return (Touch(EVERYTHING, None, writes),)
    names = [qualified(name, database) for name in found]
    if not names:
        return (Touch(EVERYTHING, None, True),) if writes else ()
    if any(name is None for name in names):
        return (Touch(EVERYTHING, None, writes),)
    tables = [name for name in names if name is not None]
    known = [keys.get(name, TableKeys()) for name in tables]
    if writes and any(one.triggers for one in known):
        return (Touch(EVERYTHING, None, True),)
    if len(tables) == 1 and known[0].primary and meaning.classification.statements == 1:
        rows = _rows(sql, known[0], modes)
        if rows is not None and len(rows) <= MOST_KEYS:
            touched = [Touch(tables[0], row, writes) for row in sorted(rows)]
        else:
            touched = [Touch(tables[0], None, writes)]
    else:
        touched = [Touch(name, None, writes) for name in tables]
    if writes:  # foreign keys: what the row refers to is read, what refers to it may be changed
        related = {name for one in known for name in one.related} - set(tables)
        touched += [Touch(name, None, True) for name in sorted(related)]
    return tuple(touched)


def writes_time(meaning: Meaning, database: str | None, keys: Keys) -> bool:
    """Tell whether a write may depend on the session's clock though its text does not."""
    found = meaning.shape.tables
    if not found:
        return True
    names = [qualified(name, database) for name in found]
    return any(name is None or keys.get(name, TableKeys()).clocked for name in names)


def qualified(name: str, database: str | None) -> str | None:
    """Return ``database.table`` in lower case; None where the database is not known."""
    if "." in name:
        return name.lower()
    return f"{database}.{name}".lower() if database else None


def _rows(sql: bytes, table: TableKeys, modes: Modes) -> set[RowKey] | None:
    """Return the keys of the rows a one-table statement can touch, None where its text does not bound them."""
    found = list(tokens(sql, "mysql", modes))
    if not found:
        return None
    words = [sql[token.start : token.end].upper() if token.kind is Kind.WORD else b"" for token in found]
    first = words[0]
    if first in (b"INSERT", b"REPLACE"):
        return _inserted(sql, found, words, table)
    if first not in (b"SELECT", b"UPDATE", b"DELETE") or b"WHERE" not in words:
        return None
    if words.count(b"SELECT") > (first == b"SELECT") or _TELLS_NOTHING & set(words[1:]):
        return None
    where = words.index(b"WHERE")
    if first == b"UPDATE" and _assigns(sql, found, words, where, table):
        return None
    return _where(sql, found, words, where + 1, table)


def _where(
    sql: bytes, found: Sequence[Token], words: Sequence[bytes], start: int, table: TableKeys
) -> set[RowKey] | None:
    primary = table.primary
    values: dict[str, list[bytes]] = {}
    for part in conjuncts(sql, found, words, start):
        if part is None:
            return None
        equal = _equality(sql, part, table)
        if equal is not None and equal[0] in primary:
            values[equal[0]] = equal[1]
    if any(column not in values for column in primary):
        return None
    rows: set[RowKey] = {(b"PRIMARY",)}
    for column in primary:
        rows = {(*row, value) for row in rows for value in values[column]}
        if len(rows) > MOST_KEYS:
            return None
    return rows


def conjuncts(sql: bytes, found: Sequence[Token], words: Sequence[bytes], start: int) -> list[list[Token] | None]:
    """Cut the condition at its outermost ANDs; None for one that is open at its end or holds an OR."""
    parts: list[list[Token] | None] = []
    part: list[Token] = []
    depth = between = 0
    for token, word in zip(found[start:], words[start:], strict=True):
        text = sql[token.start : token.end]
        if token.kind is Kind.OPEN or text in (b"||", b";"):
            return [None]
        depth += (text == b"(") - (text == b")")
        if depth == 0 and word in _ENDS:
            break
        if depth == 0 and word == b"BETWEEN":
            between += 1
        if depth == 0 and (word == b"AND" or text == b"&&"):
            if between:  # the AND of BETWEEN
                between -= 1
            else:
                parts.append(part)
                part = []
                continue
        part.append(token)
    parts.append(part)
    return parts if depth == 0 else [None]


def _equality(sql: bytes, part: Sequence[Token], table: TableKeys) -> tuple[str, list[bytes]] | None:
    """Return column and values of ``column = literal`` or ``column IN (literals)``."""
    texts = [sql[token.start : token.end] for token in part]
    while len(texts) > 2 and texts[0] == b"(" and texts[-1] == b")" and b")" not in texts[1:-1]:
        part, texts = part[1:-1], texts[1:-1]
    if len(part) < 3 or part[0].kind not in (Kind.WORD, Kind.NAMES, Kind.QUOTED):
        return None
    at = 0
    while len(part) > at + 2 and texts[at + 1] == b"." and part[at + 2].kind in (Kind.WORD, Kind.QUOTED):
        at += 2
    column = column_name(texts[at])
    rest = list(part[at + 1 :])
    if len(rest) == 2 and texts[at + 1] in (b"=", b"<=>"):
        value = _value(sql, rest[1], column, table)
        return None if value is None else (column, [value])
    if len(rest) >= 4 and texts[at + 1].upper() == b"IN" and texts[at + 2] == b"(" and texts[-1] == b")":
        listed = rest[2:-1]
        if len(listed) % 2 == 0 or any(sql[one.start : one.end] != b"," for one in listed[1::2]):
            return None
        values = [_value(sql, one, column, table) for one in listed[::2]]
        known = [one for one in values if one is not None]
        return (column, known) if len(known) == len(values) else None
    return None


def column_name(text: bytes) -> str:
    """Return a column's name, in lower case, without quotes and without its table."""
    return text.rpartition(b".")[2].strip(b'`"').decode("utf-8", "replace").lower()


def _value(sql: bytes, token: Token, column: str, table: TableKeys) -> bytes | None:
    """Return a literal such that equal rows give equal texts, None where that is not certain."""
    text = sql[token.start : token.end]
    if column in table.integers and token.kind is Kind.INTEGER:
        return _INTEGER.sub(rb"\1", text)
    if token.kind is not Kind.STRING or text[:1] not in b"'\"":
        return None
    inner = text[1:-1]
    if column in table.integers:
        number = _INTEGER.match(inner)
        return number[1] if number and not inner.startswith(b"-") else None
    if column not in table.texts:  # a number beside a text finds every row that begins with it
        return None
    # letters first and ASCII only: no collation or conversion makes two of them equal that casefolding does not
    return inner.lower() if _PLAIN.match(inner) else None


def _assigns(sql: bytes, found: Sequence[Token], words: Sequence[bytes], where: int, table: TableKeys) -> bool:
    """Tell whether the SET list may change a column of a unique key."""
    if b"SET" not in words[:where]:
        return True
    columns = {name for key in (table.primary, *table.unique.values()) for name in key}
    for token in found[words.index(b"SET") + 1 : where]:
        if token.kind in (Kind.WORD, Kind.QUOTED, Kind.NAMES) and column_name(sql[token.start : token.end]) in columns:
            return True  # also where it is only read: rather too much than too little
    return False


def _inserted(sql: bytes, found: Sequence[Token], words: Sequence[bytes], table: TableKeys) -> set[RowKey] | None:
    """Return all unique keys' values of ``INSERT INTO t (columns) VALUES (...), (...)``."""
    texts = [sql[token.start : token.end] for token in found]
    place = next((i for i, word in enumerate(words) if word in (b"VALUES", b"VALUE")), None)
    if place is None or b"SELECT" in words or b"SET" in words[:place]:
        return None
    if table.unique and (words[0] == b"REPLACE" or b"DUPLICATE" in words):
        return None  # it may change a row that another of the unique keys finds
    if b"DUPLICATE" in words:
        update = words.index(b"DUPLICATE")
        if {column_name(text) for text in texts[update:]} & set(table.primary):
            return None
    columns = list(table.columns)
    if texts[place - 1] == b")" and b"(" in texts[:place]:
        columns = [column_name(text) for text in texts[texts.index(b"(") + 1 : place - 1] if text != b","]
    keys = {"PRIMARY": table.primary, **table.unique}
    if any(column not in columns for key in keys.values() for column in key):
        return None  # generated or default values
    rows: set[RowKey] = set()
    for values in value_lists(texts, found, place + 1):
        if values is None or len(values) != len(columns):
            return None
        by_name = dict(zip(columns, values, strict=True))
        for name, key in keys.items():
            parts = [_single(sql, by_name[column], column, table) for column in key]
            if any(one is None for one in parts):
                return None
            rows.add((name.encode(), *(one for one in parts if one is not None)))
    return rows or None


def _single(sql: bytes, parts: Sequence[Token], column: str, table: TableKeys) -> bytes | None:
    return _value(sql, parts[0], column, table) if len(parts) == 1 else None


def value_lists(texts: Sequence[bytes], found: Sequence[Token], start: int) -> list[list[list[Token]] | None]:
    """Cut ``(a, b), (c, d)`` into rows of values, each a list of tokens; ``[None]`` where it is something else."""
    rows: list[list[list[Token]] | None] = []
    at = start
    while at < len(texts) and texts[at] == b"(":
        row: list[list[Token]] = [[]]
        depth = 1
        at += 1
        while at < len(texts) and depth:
            depth += (texts[at] == b"(") - (texts[at] == b")")
            if depth == 1 and texts[at] == b",":
                row.append([])
            elif depth:
                row[-1].append(found[at])
            at += 1
        if depth:
            return [None]
        rows.append(row)
        if at < len(texts) and texts[at] == b",":
            at += 1
    return rows or [None]
