"""What a replayed statement read and wrote, by item, as far as its text and its answer say it for certain.

Items are rows and their integer and text columns. A value is a hash of its text: histories hold no data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from urllib.parse import quote

from migverify.sql.lexer import Token, tokens
from migverify.sql.lexer import TokenKind as Kind
from migverify.workload.anomalies.model import HistoryOperation, OperationKind
from migverify.workload.model import text_of
from migverify.workload.replay.outcomes import SeenAnswer, value_hash
from migverify.workload.replay.runfile import PlannedCall
from migverify.workload.replay.touches import (
    EVERYTHING,
    Keys,
    RowKey,
    TableKeys,
    Touch,
    column_name,
    conjuncts,
    touches,
    value_lists,
)

_PLAIN = re.compile(rb"(?:[\x20-\x26\x28-\x5b\x5d-\x7e]*[\x21-\x26\x28-\x5b\x5d-\x7e])?\Z")
_PRESENT = "present"
_NULL = "NULL"
_PADS = "PAD_CHAR_TO_FULL_LENGTH"
_NOT_PLAIN = frozenset({b"IGNORE", b"DUPLICATE", b"SELECT"})
_ENDS_SET = frozenset({b"WHERE", b"ORDER", b"LIMIT"})
_NAMES = frozenset({Kind.WORD, Kind.QUOTED, Kind.NAMES})
_LIST = frozenset({b",", b".", b"*"})


def operations(planned: PlannedCall, seen: SeenAnswer, keys: Keys, *, mask: bool) -> Iterator[HistoryOperation]:
    """Yield what a call that was carried out read and wrote; a write that is not certain has no known value.

    Reads that are not certain are left out: they prove nothing. With ``mask`` neither statements nor keys are shown.
    """
    call, found = planned.call, planned.meaning.classification
    database, modes = call.state.database, call.state.modes
    touched = touches(call.sql, planned.meaning, database, keys, modes, writes=found.may_write)
    if not touched:
        return
    table = keys.get(touched[0].table, TableKeys())
    text = _StatementText(call.sql, list(tokens(call.sql, "mysql", modes)), table)
    statement = planned.meaning.text if mask else text_of(call.sql)
    items = _Items(touched, table, seen, statement, mask=mask)
    if found.may_write and any(name not in keys for name in items.tables):
        yield from items.any_row([EVERYTHING])  # it may be a view
    elif found.may_write:
        yield from _writes(text, items)
    elif _PADS in (call.state.sql_mode or "").upper():
        return  # its CHAR values are not what was written
    elif found.statements == 1 and items.rows and not found.effects and text.first == b"SELECT":
        yield from _reads(text, items)


class _StatementText:
    """A statement by its tokens."""

    def __init__(self, sql: bytes, found: Sequence[Token], table: TableKeys) -> None:
        self.sql, self.tokens, self.table = sql, found, table
        self.texts = [sql[token.start : token.end] for token in found]
        self.words: list[bytes] = [
            text.upper() if token.kind is Kind.WORD else b"" for token, text in zip(found, self.texts, strict=True)
        ]  # fmt: skip

    @property
    def first(self) -> bytes:
        """The first word."""
        return self.words[0] if self.words else b""

    def literal(self, part: Sequence[Token], column: str) -> str | None:
        """Return the value of a literal as a read of the column shows it, None where that is not certain."""
        if len(part) != 1:
            return None
        text, kind = self.sql[part[0].start : part[0].end], part[0].kind
        if kind is Kind.WORD and text.upper() == b"NULL":
            return _NULL
        if column in self.table.integers and kind is Kind.INTEGER:
            return value_hash(b"%d" % int(text))
        if column in self.table.texts and kind is Kind.STRING and text[:1] in b"'\"" and _PLAIN.match(text[1:-1]):
            return value_hash(text[1:-1])
        return None

    def assigned(self) -> dict[str, str | None]:
        """Return the columns of an UPDATE's SET list with their values, None where the text does not show one."""
        values: dict[str, str | None] = {}
        part: list[Token] = []
        depth = 0
        start = self.words.index(b"SET") + 1
        for token, word in zip(self.tokens[start:], self.words[start:], strict=True):
            text = self.sql[token.start : token.end]
            depth += (text == b"(") - (text == b")")
            if depth == 0 and word in _ENDS_SET:
                break
            if depth == 0 and text == b",":
                self._assign(part, values)
                part = []
            else:
                part.append(token)
        self._assign(part, values)
        return values

    def _assign(self, part: Sequence[Token], values: dict[str, str | None]) -> None:
        texts = [self.sql[token.start : token.end] for token in part]
        if b"=" in texts:
            at = texts.index(b"=")
            column = column_name(texts[at - 1])
            values[column] = self.literal(part[at + 1 :], column)

    def inserted(self) -> list[dict[str, str | None]]:
        """Return the rows of an INSERT with VALUES, by column; a default is a value that is not known."""
        place = next(at for at, word in enumerate(self.words) if word in (b"VALUES", b"VALUE"))
        columns = list(self.table.columns)
        if b"(" in self.texts[:place]:
            listed = self.texts[self.texts.index(b"(") + 1 : place - 1]
            columns = [column_name(text) for text in listed if text != b","]
        rows = []
        for row in value_lists(self.texts, self.tokens, place + 1):
            by_name = dict(zip(columns, row or (), strict=False))
            rows.append({name: self.literal(by_name.get(name, ()), name) for name in self.table.columns})
        return rows

    def selects_columns(self) -> bool:
        """Tell whether the SELECT list is of columns only: nothing in it is computed."""
        end = self.words.index(b"FROM") if b"FROM" in self.words else 0
        return end > 1 and all(
            token.kind in _NAMES or text in _LIST
            for token, text in zip(self.tokens[1:end], self.texts[1:end], strict=True)
        )

    def has_only_the_key(self) -> bool:
        """Tell whether the condition is the primary key's: no row then means that there is none."""
        if b"WHERE" not in self.words or {b"LIMIT", b"HAVING", b"GROUP", b"SKIP"} & set(self.words):
            return False
        parts = conjuncts(self.sql, self.tokens, self.words, self.words.index(b"WHERE") + 1)
        return len(parts) == len(self.table.primary)


class _Items:
    """The rows a call touches, and operations on them."""

    def __init__(
        self, touched: Sequence[Touch], table: TableKeys, seen: SeenAnswer, statement: str, *, mask: bool
    ) -> None:
        self.seen, self.table, self._statement, self._mask = seen, table, statement, mask
        self.tables = sorted({touch.table for touch in touched})
        self.name = touched[0].table
        # two texts of one spelling may be two rows under some collation: only integers name a row for certain
        certain = table.integers.issuperset(table.primary)
        self.rows = [touch.key for touch in touched if certain and touch.key and touch.key[0] == b"PRIMARY"]
        self.others = [touch.table for touch in touched if touch.table != self.name]
        self.columns = [
            name for name in table.columns
            if name in table.integers | table.texts and name not in table.generated and name not in table.primary
        ]  # fmt: skip

    def _operation(self, kind: OperationKind, key: str, value: str | None, *, known: bool = True) -> HistoryOperation:
        return HistoryOperation(kind, key, value, self.seen.begun, self.seen.ended, known, None, self._statement)

    def any_row(self, tables: Sequence[str]) -> Iterator[HistoryOperation]:
        """Yield writes that may have changed anything in some tables."""
        for name in tables:
            key = "*" if name == EVERYTHING else f"{quote(name, safe='.')}/*"
            yield self._operation(OperationKind.WRITE, key, None, known=False)

    def write(self, row: RowKey, values: Mapping[str, str | None]) -> Iterator[HistoryOperation]:
        """Yield writes of columns that are followed; None is a value that is not known."""
        for column in self.columns:
            if column in values:
                value = values[column]
                yield self._operation(OperationKind.WRITE, self._key(row, column), value, known=value is not None)

    def row(self, kind: OperationKind, row: RowKey, *, present: bool) -> HistoryOperation:
        """Return that a row is read, made or deleted."""
        return self._operation(kind, self._key(row), _PRESENT if present else None)

    def absent(self, kind: OperationKind, row: RowKey, columns: Sequence[str]) -> Iterator[HistoryOperation]:
        """Yield that a row is not there, or is deleted, with some of its columns."""
        yield self.row(kind, row, present=False)
        for column in columns:
            yield self._operation(kind, self._key(row, column), None)

    def read(self, row: RowKey, values: Mapping[str, str]) -> Iterator[HistoryOperation]:
        """Yield reads of a row's columns."""
        yield self.row(OperationKind.READ, row, present=True)
        for column, value in values.items():
            yield self._operation(OperationKind.READ, self._key(row, column), value)

    def _key(self, row: RowKey, column: str = "") -> str:
        name = value_hash(b",".join(row[1:])) if self._mask else ",".join(quote(part, safe="") for part in row[1:])
        parts = [quote(self.name, safe="."), name, quote(column)]
        return "/".join(parts if column else parts[:2])


def _writes(text: _StatementText, items: _Items) -> Iterator[HistoryOperation]:
    word, seen, rows = text.first, items.seen, items.rows
    if word in (b"UPDATE", b"DELETE") and not seen.affected:
        return
    if not rows or seen.warnings:
        yield from items.any_row(items.tables)
        return
    yield from items.any_row(items.others)
    if word == b"UPDATE" and seen.affected == len(rows):
        for row in rows:
            yield from items.write(row, text.assigned())
    elif word == b"DELETE" and seen.affected == len(rows):
        for row in rows:
            yield from items.absent(OperationKind.WRITE, row, items.columns)
    elif word == b"INSERT" and len(rows) == 1 and not _NOT_PLAIN & set(text.words):
        # only an INSERT that found no row succeeds
        yield from items.absent(OperationKind.READ, rows[0], items.columns)
        yield items.row(OperationKind.WRITE, rows[0], present=True)
        yield from items.write(rows[0], text.inserted()[0])
    else:
        yield from items.any_row([items.name])


def _reads(text: _StatementText, items: _Items) -> Iterator[HistoryOperation]:
    seen, names = items.seen, items.seen.columns
    if seen.rows is None or not text.selects_columns():
        return
    followed = [(at, name) for at, name in enumerate(names) if name in items.columns]
    missing = dict.fromkeys(items.rows)
    for cells in seen.rows:
        row = items.rows[0] if len(items.rows) == 1 else _row_of(cells, names, items)
        if row is None or row not in missing:
            return
        del missing[row]
        yield from items.read(row, {name: cells[at] for at, name in followed})
    if text.has_only_the_key():
        for row in missing:
            yield from items.absent(OperationKind.READ, row, [name for _, name in followed])


def _row_of(cells: Sequence[str], names: Sequence[str], items: _Items) -> RowKey | None:
    """Return the key of a row of an answer, None where the answer does not have it."""
    if any(column not in names for column in items.table.primary):
        return None
    own = tuple(cells[names.index(column)] for column in items.table.primary)
    return next((row for row in items.rows if own == tuple(map(value_hash, row[1:]))), None)
