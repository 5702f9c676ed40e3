"""What a replayed statement read and wrote, by item, as far as its text and its answer say it for certain.

Items are rows and their integer and text columns. Histories hold no data: see ``ValueCodes`` for what represents a
value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias
from urllib.parse import quote

from migverify.sql.lexer import Token, tokens
from migverify.sql.lexer import TokenKind as Kind
from migverify.workload.anomalies.model import HistoryOperation, OperationKind
from migverify.workload.model import text_of
from migverify.workload.replay.outcomes import SeenAnswer
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
from migverify.workload.replay.value_codes import HASHED, ValueCodes, value_hash
from migverify.workload.state import SessionState

Assigned: TypeAlias = str | int | None
"""What represents a value that a column gets, the number that is added to the one it has, or None: not known."""

_PLAIN = re.compile(rb"(?:[\x20-\x26\x28-\x5b\x5d-\x7e]*[\x21-\x26\x28-\x5b\x5d-\x7e])?\Z")
_PRESENT = "present"
_NULL = "NULL"
_PADS = "PAD_CHAR_TO_FULL_LENGTH"
_NOT_PLAIN = frozenset({b"IGNORE", b"DUPLICATE", b"SELECT"})
_ENDS_SET = frozenset({b"WHERE", b"ORDER", b"LIMIT"})
_NAMES = frozenset({Kind.WORD, Kind.QUOTED, Kind.NAMES})
_LIST = frozenset({b",", b".", b"*"})
_SIGNS = {b"+": 1, b"-": -1}
_STORED_FUNCTION = "stored function possible"


@dataclass(frozen=True, slots=True)
class HistoryReading:
    """How a run's statements are read.

    With ``mask`` neither statements nor keys are shown. ``codes`` are those that the run recorded values by.
    ``increment`` is the server's auto_increment_increment, 0 where it is not known.
    """

    mask: bool
    codes: ValueCodes = HASHED
    increment: int = 0


def operations(
    planned: PlannedCall, seen: SeenAnswer, keys: Keys, reading: HistoryReading
) -> Iterator[HistoryOperation]:
    """Yield what a call that was carried out read and wrote; a write that is not certain has no known value.

    Reads that are not certain are left out: they prove nothing.
    """
    call, found = planned.call, planned.meaning.classification
    database, modes = call.state.database, call.state.modes
    touched = touches(call.sql, planned.meaning, database, keys, modes, writes=found.may_write)
    if not touched:
        return
    table = keys.get(touched[0].table, TableKeys())
    text = _StatementText(call.sql, list(tokens(call.sql, "mysql", modes)), table, reading.codes)
    statement = planned.meaning.text if reading.mask else text_of(call.sql)
    items = _Items(touched, table, seen, statement, reading)
    if found.may_write and any(name not in keys for name in items.tables):
        yield from items.any_row([EVERYTHING])  # it may be a view
    elif found.may_write and text.is_plain_insert and _STORED_FUNCTION not in found.effects:
        yield from _inserts(text, items, call.state, reading.increment)
    elif found.may_write:
        yield from _writes(text, items)
    elif _PADS in (call.state.sql_mode or "").upper():
        return  # its CHAR values are not what was written
    elif found.statements == 1 and items.rows and not found.effects and text.first == b"SELECT":
        yield from _reads(text, items)


class _StatementText:
    """A statement by its tokens."""

    def __init__(self, sql: bytes, found: Sequence[Token], table: TableKeys, codes: ValueCodes) -> None:
        self.sql, self.tokens, self.table, self._codes = sql, found, table, codes
        self.texts = [sql[token.start : token.end] for token in found]
        self.words: list[bytes] = [
            text.upper() if token.kind is Kind.WORD else b"" for token, text in zip(found, self.texts, strict=True)
        ]  # fmt: skip

    @property
    def first(self) -> bytes:
        """The first word."""
        return self.words[0] if self.words else b""

    @property
    def is_plain_insert(self) -> bool:
        """Tell whether it is an INSERT of rows of values that fails where one of them is there already."""
        values = b"VALUES" in self.words or b"VALUE" in self.words
        return self.first == b"INSERT" and values and not _NOT_PLAIN & set(self.words)

    def literal(self, part: Sequence[Token], column: str) -> str | None:
        """Return the value of a literal as a read of the column shows it, None where that is not certain."""
        if len(part) != 1:
            return None
        text, kind = self.sql[part[0].start : part[0].end], part[0].kind
        if kind is Kind.WORD and text.upper() == b"NULL":
            return _NULL
        if column in self.table.integers and kind is Kind.INTEGER:
            return self._codes.of_integer(column, int(text))
        if column in self.table.texts and kind is Kind.STRING and text[:1] in b"'\"" and _PLAIN.match(text[1:-1]):
            return self._codes.of_text(column, text[1:-1])
        return None

    def _added(self, part: Sequence[Token], column: str) -> int | None:
        """Return what ``column + literal`` adds to a column whose values are kept as numbers; None for other texts."""
        if len(part) != 3 or column not in self.table.integers or not self._codes.adds_up(column):
            return None
        name, sign, number = (self.sql[token.start : token.end] for token in part)
        if part[0].kind not in _NAMES or column_name(name) != column or part[2].kind is not Kind.INTEGER:
            return None
        return _SIGNS[sign] * int(number) if sign in _SIGNS else None

    def assigned(self) -> dict[str, Assigned]:
        """Return the columns of an UPDATE's SET list with what they get."""
        values: dict[str, Assigned] = {}
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

    def changes_references(self) -> bool:
        """Tell whether an UPDATE may change what foreign keys of other tables refer to."""
        referenced = self.table.referenced
        return referenced is None or bool(self.table.generated) or not referenced.isdisjoint(self.assigned())

    def _assign(self, part: Sequence[Token], values: dict[str, Assigned]) -> None:
        texts = [self.sql[token.start : token.end] for token in part]
        if b"=" in texts:
            at = texts.index(b"=")
            column = column_name(texts[at - 1])
            added = None if column in values else self._added(part[at + 1 :], column)  # n = 5, n = n + 1: not known
            values[column] = self.literal(part[at + 1 :], column) if added is None else added

    def _inserted(self) -> Iterator[dict[str, Sequence[Token]] | None]:
        """Yield the rows of an INSERT with VALUES: the tokens of each column that it names; None where they differ."""
        place = next(at for at, word in enumerate(self.words) if word in (b"VALUES", b"VALUE"))
        columns = list(self.table.columns)
        if b"(" in self.texts[:place]:
            listed = self.texts[self.texts.index(b"(") + 1 : place - 1]
            columns = [column_name(text) for text in listed if text != b","]
        for row in value_lists(self.texts, self.tokens, place + 1):
            yield dict(zip(columns, row, strict=True)) if row is not None and len(row) == len(columns) else None

    def inserted(self) -> list[dict[str, str | None]]:
        """Return the rows of an INSERT with VALUES, by column, with what represents each value, None: not known."""
        return [
            {
                name: self.literal(row[name], name) if row is not None and name in row else self._default(row, name)
                for name in self.table.columns
            }
            for row in self._inserted()
        ]  # fmt: skip

    def _default(self, row: Mapping[str, Sequence[Token]] | None, column: str) -> str | None:
        if row is None or column not in self.table.defaults:
            return None
        default = self.table.defaults[column]
        if default is None:
            return _NULL
        if column in self.table.integers:
            return self._codes.of_integer(column, int(default)) if re.fullmatch(r"-?\d+", default) else None
        text = default.encode()
        return self._codes.of_text(column, text) if _PLAIN.match(text) else None

    def generates(self, *, zero: bool) -> int:
        """Return how many rows an INSERT makes whose AUTO_INCREMENT values all are the server's, 0 for not certain.

        ``zero`` says that the server replaces a 0 as well.
        """
        if b"LAST_INSERT_ID" in self.words:
            return 0
        rows = list(self._inserted())
        asks = [row is not None and self._asks_for_generated(row.get(self.table.auto, ()), zero=zero) for row in rows]
        return len(rows) if all(asks) else 0

    def _asks_for_generated(self, part: Sequence[Token], *, zero: bool) -> bool:
        texts = [self.sql[token.start : token.end].upper() for token in part]
        return not texts or texts in ([b"NULL"], [b"DEFAULT"]) or (zero and texts == [b"0"])

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
        self, touched: Sequence[Touch], table: TableKeys, seen: SeenAnswer, statement: str, reading: HistoryReading
    ) -> None:
        self.seen, self.table, self._statement, self._reading = seen, table, statement, reading
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

    def write(self, row: RowKey, values: Mapping[str, Assigned]) -> Iterator[HistoryOperation]:
        """Yield writes of columns that are followed."""
        for column in self.columns:
            if column in values:
                value, key = values[column], self._key(row, column)
                if isinstance(value, int):
                    yield replace(self._operation(OperationKind.WRITE, key, None, known=False), delta=value)
                else:
                    yield self._operation(OperationKind.WRITE, key, value, known=value is not None)

    def insert(self, row: RowKey, values: Mapping[str, Assigned]) -> Iterator[HistoryOperation]:
        """Yield that a row is made: only an INSERT that found no row succeeds."""
        yield from self.absent(OperationKind.READ, row, self.columns)
        yield self.row(OperationKind.WRITE, row, present=True)
        yield from self.write(row, values)

    def row_of(self, cells: Sequence[str]) -> RowKey | None:
        """Return the key of a row of an answer, None where the answer does not have it."""
        names, codes = self.seen.columns, self._reading.codes
        if any(column not in names for column in self.table.primary):
            return None
        own = [cells[names.index(column)] for column in self.table.primary]
        for row in self.rows:
            parts = zip(self.table.primary, row[1:], strict=True)
            if own == [codes.of_integer(column, int(part)) for column, part in parts]:
                return row
        return None

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
        name = ",".join(quote(part, safe="") for part in row[1:])
        if self._reading.mask:
            name = value_hash(b",".join(row[1:]))
        parts = [quote(self.name, safe="."), name, quote(column)]
        return "/".join(parts if column else parts[:2])


def _writes(text: _StatementText, items: _Items) -> Iterator[HistoryOperation]:
    word, seen, rows = text.first, items.seen, items.rows
    if word in (b"UPDATE", b"DELETE") and not seen.affected:
        return
    if not rows or seen.warnings:
        yield from items.any_row(items.tables)
        return
    if word != b"UPDATE" or text.changes_references():
        yield from items.any_row(items.others)
    if word == b"UPDATE" and seen.affected == len(rows):
        for row in rows:
            yield from items.write(row, text.assigned())
    elif word == b"DELETE" and seen.affected == len(rows):
        for row in rows:
            yield from items.absent(OperationKind.WRITE, row, items.columns)
    else:
        yield from items.any_row([items.name])


def _inserts(text: _StatementText, items: _Items, state: SessionState, increment: int) -> Iterator[HistoryOperation]:
    """Yield what a plain INSERT made; it changes no row of the tables that foreign keys tie to its own."""
    rows = _generated(text, items, state, increment) or _named(items, state)
    values = text.inserted()
    if items.seen.warnings or len(rows) != len(values) or len(rows) != items.seen.affected:
        yield from items.any_row([items.name])
        return
    for row, by_name in zip(rows, values, strict=True):
        yield from items.insert(row, by_name)


def _generated(text: _StatementText, items: _Items, state: SessionState, increment: int) -> list[RowKey]:
    """Return the keys of rows whose only key column the server has filled; none where they are not certain.

    A server reports the first of them. Those of one INSERT with VALUES follow one another by the increment: MySQL
    takes them at once for all rows under every innodb_autoinc_lock_mode, TiDB from one range.
    """
    if not items.table.auto or items.table.primary != (items.table.auto,) or not items.seen.insert_id:
        return []
    number = text.generates(zero=_replaces_zero(state) is True)
    if number > 1 and (not increment or "auto_increment_" in state.rest.lower()):
        return []
    return [(b"PRIMARY", b"%d" % (items.seen.insert_id + at * increment)) for at in range(number)]


def _named(items: _Items, state: SessionState) -> list[RowKey]:
    """Return the row whose key the statement has; a 0 may stand for a value of the server's."""
    auto = items.table.auto
    if len(items.rows) != 1:
        return []
    parts = dict(zip(items.table.primary, items.rows[0][1:], strict=True))
    return [] if parts.get(auto) == b"0" and _replaces_zero(state) is not False else items.rows


def _replaces_zero(state: SessionState) -> bool | None:
    """Tell whether a 0 in an AUTO_INCREMENT column becomes the next value; None where the mode is not known."""
    return None if state.sql_mode is None else "NO_AUTO_VALUE_ON_ZERO" not in state.sql_mode.upper()


def _reads(text: _StatementText, items: _Items) -> Iterator[HistoryOperation]:
    seen, names = items.seen, items.seen.columns
    if seen.rows is None or not text.selects_columns():
        return
    followed = [(at, name) for at, name in enumerate(names) if name in items.columns]
    missing = dict.fromkeys(items.rows)
    for cells in seen.rows:
        row = items.rows[0] if len(items.rows) == 1 else items.row_of(cells)
        if row is None or row not in missing:
            return
        del missing[row]
        yield from items.read(row, {name: cells[at] for at, name in followed})
    if text.has_only_the_key():
        for row in missing:
            yield from items.absent(OperationKind.READ, row, [name for _, name in followed])
