"""What a batch of row changes leaves behind: per table and key the last image, as few statements as possible.

The order of the changes of one key decides what its row is at the end, the order between keys does not. So a batch of
whole transactions comes down to the keys that are gone and the rows that are there: gone ones are deleted first, which
frees their values in unique indexes, then the others are replaced. A table without a key has no such short cut: its
changes stay in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from migverify.changes.model import ColumnMap, Op, Position, TableMap, Texts
from migverify.errors import LabError
from migverify.sql.quoting import quote_name
from migverify_lab.session import text_literal

STATEMENT_ROWS = 500
"""Rows of one statement: more at once make a longer statement, not a faster one."""
STATEMENT_CHARACTERS = 1_000_000

Key = Texts
"""Texts of the key's columns. In a table without a key: of all columns."""


class LiteralForm(Enum):
    """How a text becomes a literal."""

    NUMBER = "number"
    TEXT = "text"
    HEX = "hex"
    JSON = "json"
    FLOAT = "float"
    BIT = "bit"


_FORMS = {
    **dict.fromkeys((1, 2, 3, 8, 9, 13), LiteralForm.NUMBER),  # TINY SHORT LONG LONGLONG INT24 YEAR
    **dict.fromkeys((0, 246, 5, 7, 10, 11, 12, 14, 17, 18, 19), LiteralForm.TEXT),  # DECIMAL DOUBLE and the dates
    **dict.fromkeys((15, 247, 248, 249, 250, 251, 252, 253, 254), LiteralForm.TEXT),  # strings, ENUM, SET
    4: LiteralForm.FLOAT,
    16: LiteralForm.BIT,
    245: LiteralForm.JSON,
}
TEMPORAL = frozenset({7, 12, 17, 18})
"""Type numbers of DATETIME and TIMESTAMP."""
TIMESTAMPS = frozenset({7, 17})
TEXT_TYPES = frozenset({15, 249, 250, 251, 252, 253, 254})
"""Type numbers of character and byte strings."""


def form_of(column: ColumnMap) -> LiteralForm:
    """Return how a column's texts become literals.

    Raises
    ------
    LabError
        the type has no literal that both engines read alike (geometry, vector).
    """
    form = _FORMS.get(column.type_code)
    if form is None:
        raise LabError(
            f"column {column.name}: type number {column.type_code} cannot be replicated by the lab",
            hint="Leave the table out, or use another replicator.",
        )
    return LiteralForm.HEX if form is LiteralForm.TEXT and column.charset == "binary" else form


def literal(form: LiteralForm, text: str | None) -> str:
    """Return a value as SQL under an empty ``sql_mode`` and the character set utf8mb4."""
    if text is None:
        return "NULL"
    if form in (LiteralForm.NUMBER, LiteralForm.BIT):
        return text
    if form is LiteralForm.HEX:
        return text if len(text) > 2 else "x''"
    return text_literal(text)


@dataclass(frozen=True, slots=True)
class TargetTable:
    """A table as the replicator writes it: the source's columns, with what the target's catalog says.

    ``key`` are the places of the unique key's columns, empty without one; ``writable`` those of the columns that are
    not generated.
    """

    map: TableMap
    key: tuple[int, ...]
    writable: tuple[int, ...]
    forms: tuple[LiteralForm, ...]

    @property
    def quoted(self) -> str:
        """Database and table in backticks."""
        return f"{quote_name(self.map.database)}.{quote_name(self.map.table)}"

    def key_of(self, row: Texts) -> Key:
        """Return the texts of the key, or the whole row in a table without one."""
        return tuple([row[place] for place in self.key]) if self.key else row

    def names(self, places: Iterable[int]) -> tuple[str, ...]:
        """Return the columns' names."""
        return tuple(self.map.columns[place].name for place in places)


def target_table(table: TableMap, key: Sequence[str], generated: Iterable[str] = ()) -> TargetTable:
    """Join a layout of the stream with the target's catalog.

    Parameters
    ----------
    key
        Column names of a unique key without NULLs, empty without one.
    generated
        Columns that nobody may write.

    Raises
    ------
    LabError
        the key names a column that the stream does not have, or a type is not supported.
    """
    by_name = {column.name.lower(): number for number, column in enumerate(table.columns)}
    unknown = [name for name in key if name.lower() not in by_name]
    if unknown:
        raise LabError(
            f"{table.name}: the target's key column {unknown[0]} is not in the change stream",
            hint="Give both sides the same definition.",
        )
    without = {name.lower() for name in generated}
    places = tuple(by_name[name.lower()] for name in key)
    forms = tuple(form_of(column) for column in table.columns)
    writable = tuple(n for n, column in enumerate(table.columns) if column.name.lower() not in without)
    return TargetTable(table, places, writable, forms)


@dataclass(frozen=True, slots=True)
class RowChange:
    """One row of one transaction. ``before`` is None for an INSERT, ``after`` for a DELETE."""

    op: Op
    table: TargetTable
    before: Texts | None
    after: Texts | None
    at: Position


def make_change(table: TargetTable, before: Texts | None, after: Texts | None, at: Position) -> RowChange:
    """Return a change whose kind follows from its images."""
    op = Op.INSERT if before is None else Op.DELETE if after is None else Op.UPDATE
    return RowChange(op, table, before, after, at)


@dataclass(slots=True)
class TableNet:
    """What a batch does to one table.

    ``rows`` says per key what is there at the end, None for nothing. ``steps`` are the rows added (True) and taken
    away (False) in a table without a key, in order.
    """

    table: TargetTable
    rows: dict[Key, Texts | None] = field(default_factory=dict)
    steps: list[tuple[bool, Texts]] = field(default_factory=list)

    def gone(self) -> list[Key]:
        """Return keys whose row is to be deleted."""
        return [key for key, row in self.rows.items() if row is None]

    def there(self) -> list[Texts]:
        """Return rows that are to be there."""
        return [row for row in self.rows.values() if row is not None]


class BatchPlan:
    """Collects the changes of a batch, table by table."""

    def __init__(self) -> None:
        self._nets: dict[str, TableNet] = {}
        self.changes = 0

    def layout(self, name: str) -> TableMap | None:
        """Return the layout in which a table was seen in this batch."""
        return self._nets[name].table.map if name in self._nets else None

    def add(self, change: RowChange) -> None:
        """Take one change, after all that came before it."""
        self.changes += 1
        table, before, after = change.table, change.before, change.after
        net = self._nets.setdefault(table.map.name, TableNet(table))
        if not table.key:
            net.steps += [(False, before)] if before is not None else []
            net.steps += [(True, after)] if after is not None else []
            return
        if before is not None and (after is None or table.key_of(after) != table.key_of(before)):
            net.rows[table.key_of(before)] = None
        if after is not None:
            net.rows[table.key_of(after)] = after

    def nets(self) -> list[TableNet]:
        """Return what there is to do, table by table."""
        return list(self._nets.values())

    def texts(self) -> list[str]:
        """Return the SQL of the batch."""
        return [sql for net in self.nets() for sql in statements(net)]


def statements(net: TableNet) -> Iterator[str]:
    """Yield the SQL of one table: deletes, then rows to be there; or the steps of a table without a key."""
    if not net.table.key:
        yield from _steps(net)
        return
    table = net.table
    names = ", ".join(map(quote_name, table.names(table.key)))
    forms = [table.forms[place] for place in table.key]
    one = len(forms) == 1
    keys = (", ".join([literal(form, part) for form, part in zip(forms, key, strict=True)]) for key in net.gone())
    for group in _groups(keys if one else (f"({key})" for key in keys)):
        # Row constructors are not turned into point reads everywhere; for one column there is no need of them.
        yield f"DELETE FROM {table.quoted} WHERE {names if one else f'({names})'} IN ({group})"  # noqa: S608
    yield from _writes("REPLACE", table, net.there())


def _writes(verb: str, table: TargetTable, rows: Iterable[Texts]) -> Iterator[str]:
    head = f"{verb} INTO {table.quoted} ({', '.join(map(quote_name, table.names(table.writable)))}) VALUES "
    forms = [(place, table.forms[place]) for place in table.writable]
    values = (f"({','.join([literal(form, row[place]) for place, form in forms])})" for row in rows)
    for group in _groups(values):
        yield head + group


def _groups(parts: Iterable[str]) -> Iterator[str]:
    """Join parts by commas, so many that a statement stays within its limits."""
    group: list[str] = []
    size = 0
    for part in parts:
        if group and (len(group) == STATEMENT_ROWS or size + len(part) > STATEMENT_CHARACTERS):
            yield ",".join(group)
            group, size = [], 0
        group.append(part)
        size += len(part) + 1
    if group:
        yield ",".join(group)


def _steps(net: TableNet) -> Iterator[str]:
    adding: list[Texts] = []
    for added, row in net.steps:
        if added:
            adding.append(row)
            continue
        yield from _writes("INSERT", net.table, adding)
        adding = []
        yield f"DELETE FROM {net.table.quoted} WHERE {_same_row(net.table, row)} LIMIT 1"  # noqa: S608
    yield from _writes("INSERT", net.table, adding)


def _same_row(table: TargetTable, row: Texts) -> str:
    return " AND ".join(
        _same(quote_name(table.map.columns[place].name), table.map.columns[place], table.forms[place], row[place])
        for place in table.writable
    )


def _same(name: str, column: ColumnMap, form: LiteralForm, text: str | None) -> str:
    """Return the condition that a column holds exactly this value, compared without its collation."""
    if text is None:
        return f"{name} IS NULL"
    if form is LiteralForm.JSON:
        return f"{name} = CAST({literal(form, text)} AS JSON)"
    if form is LiteralForm.FLOAT:
        return f"{name} = CAST({literal(form, text)} AS FLOAT)"
    if form is LiteralForm.BIT:
        return f"{name} + 0 = {text}"
    if form is LiteralForm.TEXT and column.charset:
        data = text.encode("utf-8").hex()
        return f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) = x'{data}'"
    return f"{name} = {literal(form, text)}"
