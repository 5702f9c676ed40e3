"""How a fault gets into a table: choose a row, change it, read it back, and keep it only if it says what it did.

Every attempt is a transaction of its own. A change that the server bends (a truncated string, a rounded float, a
duplicate key) is rolled back and the next row is tried, so what is reported is what the table holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migverify.model import DiffKind, KeyText
from migverify_lab.columns import ColumnFacts, Family, TableFacts, Value, show
from migverify_lab.mutations import Expression, Lost, Mutated

if TYPE_CHECKING:
    from pymysql.connections import Connection

CANDIDATES = 60
"""Rows looked at per column; tables up to this size are looked at whole."""

Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class PlantedRow:
    """One row that differs now.

    ``key`` is the text of the unique key's columns, empty in a table without one. ``columns`` are those that
    changed, empty for a row that was added or deleted. ``before`` and ``after`` hold these columns' values as
    text (None is NULL), or the whole row where it was added or deleted; None where there is no row.
    """

    kind: DiffKind
    key: KeyText
    columns: tuple[str, ...]
    before: Mapping[str, str | None] | None
    after: Mapping[str, str | None] | None


@dataclass(frozen=True, slots=True)
class PlantedFault:
    """A fault in place: the statements that made it, and every row that differs because of it."""

    fault: str
    database: str
    table: str
    seed: int
    statements: tuple[str, ...]
    rows: tuple[PlantedRow, ...]

    @property
    def kind(self) -> DiffKind:
        """Kind of the first row's difference."""
        return self.rows[0].kind

    @property
    def key(self) -> KeyText:
        """Key of the first row."""
        return self.rows[0].key

    @property
    def columns(self) -> tuple[str, ...]:
        """Changed columns of the first row."""
        return self.rows[0].columns

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        rows = [
            {
                "kind": row.kind.value,
                "key": list(row.key),
                "columns": list(row.columns),
                "before": None if row.before is None else dict(row.before),
                "after": None if row.after is None else dict(row.after),
            }
            for row in self.rows
        ]
        return {
            "fault": self.fault,
            "table": f"{self.database}.{self.table}",
            "seed": self.seed,
            "statements": list(self.statements),
            "rows": rows,
        }

    def describe(self, most: int = 5) -> str:
        """Return text for people: what was done to which row, and the SQL."""
        lines = [f"planted {self.fault} in {self.database}.{self.table} on the target (seed {self.seed})"]
        for row in self.rows[:most]:
            key = ", ".join("NULL" if part is None else part for part in row.key) or "no key"
            lines.append(f"  {row.kind.value}  key {key}")
            before, after = row.before or {}, row.after or {}
            for column in row.columns or tuple(before or after):
                old = _side(before, column) if row.before is not None else "no row"
                new = _side(after, column) if row.after is not None else "no row"
                lines.append(f"    {column}: {old} -> {new}")
        if len(self.rows) > most:
            lines.append(f"  and {len(self.rows) - most} more rows")
        lines += [f"  {_short(statement, 400)}" for statement in self.statements]
        return "\n".join(lines)


def _side(values: Mapping[str, str | None], column: str) -> str:
    value = values[column]
    return "NULL" if value is None else _short(repr(value), 80)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class PlantedRows:
    """What one successful attempt did."""

    statements: tuple[str, ...]
    rows: tuple[PlantedRow, ...]


class Planter:
    """One table on the target, a session that may write, and the random numbers of the seed."""

    def __init__(self, connection: Connection, table: TableFacts, rng: random.Random) -> None:
        self.connection = connection
        self.table = table
        self.rng = rng

    # --- reading ----------------------------------------------------------------------------------------------

    def candidates(self, condition: str = "TRUE") -> Iterator[Row]:
        """Yield rows that fulfill an SQL condition, in random order, each at most once."""
        total = int(self._query(f"SELECT COUNT(*) FROM {self.table.quoted} WHERE {condition}")[0][0])  # noqa: S608
        for offset in self.rng.sample(range(total), min(total, CANDIDATES)):
            found = self.read(condition, limit=1, offset=offset)
            if found:
                yield found[0]

    def read(self, condition: str, limit: int | None = None, offset: int = 0) -> list[Row]:
        """Read whole rows in the order of the key, or of all columns where there is none."""
        fields = ", ".join(column.read_sql for column in self.table.columns)
        order = ", ".join(column.quoted for column in self.table.key) or ", ".join(
            column.read_sql for column in self.table.columns
        )
        bound = "" if limit is None else f" LIMIT {limit} OFFSET {offset}"
        answer = self._query(
            f"SELECT {fields} FROM {self.table.quoted} WHERE {condition} ORDER BY {order}{bound}"  # noqa: S608
        )
        return [
            {column.name: column.parse(raw) for column, raw in zip(self.table.columns, values, strict=True)}
            for values in answer
        ]

    def where(self, row: Row) -> str:
        """Return the condition that names exactly this row, or in a table without key its copies."""
        if self.table.key:
            return " AND ".join(f"{column.quoted} = {column.literal(row[column.name])}" for column in self.table.key)
        return " AND ".join(_same(column, row[column.name]) for column in self.table.writable)

    def key_text(self, row: Row) -> KeyText:
        """Return the key of a row as text; empty where the table has none."""
        return tuple(show(row[column.name]) for column in self.table.key)

    def _query(self, statement: str) -> tuple[tuple[Any, ...], ...]:
        with self.connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    # --- writing ----------------------------------------------------------------------------------------------

    def update(self, changes: list[tuple[Row, dict[str, Mutated]]]) -> PlantedRows | None:
        """Change rows, each in its own columns, in one transaction; None when the server did something else."""
        statements = []
        for row, assignments in changes:
            settings = ", ".join(
                f"{column.quoted} = {_assigned(column, assignments[column.name])}"
                for column in self.table.writable
                if column.name in assignments
            )
            statements.append(f"UPDATE {self.table.quoted} SET {settings} WHERE {self.where(row)} LIMIT 1")  # noqa: S608
        if not self._execute(statements):
            return None
        rows: list[PlantedRow] = []
        for row, assignments in changes:
            after = self._read_back(row, assignments)
            if after is None:
                self.connection.rollback()
                return None
            rows += self._difference(row, after)
        self.connection.commit()
        return PlantedRows(tuple(statements), tuple(rows))

    def delete(self, row: Row) -> PlantedRows | None:
        """Delete one row."""
        statement = f"DELETE FROM {self.table.quoted} WHERE {self.where(row)} LIMIT 1"  # noqa: S608
        if not self._execute([statement]):
            return None
        self.connection.commit()
        gone = PlantedRow(DiffKind.MISSING_ON_TARGET, self.key_text(row), (), _shown(row), None)
        return PlantedRows((statement,), (gone,))

    def copy(self, row: Row, key: Row) -> PlantedRows | None:
        """Insert a copy of a row under another key; ``key`` is empty in a table without one."""
        names = ", ".join(column.quoted for column in self.table.writable)
        values = ", ".join(
            column.literal(key[column.name]) if column.name in key else column.quoted for column in self.table.writable
        )
        statement = (
            f"INSERT INTO {self.table.quoted} ({names}) SELECT {values} FROM {self.table.quoted} "  # noqa: S608
            f"WHERE {self.where(row)} LIMIT 1"
        )
        if not self._execute([statement]):
            return None
        new = {**row, **key}
        found = self.read(self.where(new), limit=1) if key else [row]
        if not found or any(found[0][name] != value for name, value in key.items()):
            self.connection.rollback()
            return None
        self.connection.commit()
        more = PlantedRow(DiffKind.MISSING_ON_SOURCE, self.key_text(found[0]), (), None, _shown(found[0]))
        return PlantedRows((statement,), (more,))

    def _execute(self, statements: list[str]) -> bool:
        """Run the statements in a new transaction; each must touch one row. False means it was rolled back."""
        import pymysql

        self.connection.begin()
        try:
            with self.connection.cursor() as cursor:
                touched = [cursor.execute(statement) for statement in statements]
        except (pymysql.err.IntegrityError, pymysql.err.DataError, pymysql.err.OperationalError) as error:
            self.connection.rollback()
            if _is_refusal(error):
                return False
            raise
        if touched != [1] * len(statements):
            self.connection.rollback()
            return False
        return True

    def _read_back(self, row: Row, assignments: dict[str, Mutated]) -> Row | None:
        """Return the row as it is now; None when it is not what was meant."""
        wanted = {**row, **{name: None if isinstance(new, Lost) else new for name, new in assignments.items()}}
        if not self.table.key:
            if any(isinstance(new, Expression) for new in assignments.values()):
                return None  # without a key the row could not be found again
            return wanted if self.read(self.where(wanted), limit=1) else None
        found = self.read(self.where(wanted), limit=1)
        if not found or found[0] == row:
            return None
        for name, new in assignments.items():
            # The server may round a FLOAT; that it changed is enough.
            meant = isinstance(new, Expression | float) or found[0][name] == wanted[name]
            if not meant or found[0][name] == row[name]:
                return None
        return found[0]

    def _difference(self, before: Row, after: Row) -> list[PlantedRow]:
        old_key, new_key = self.key_text(before), self.key_text(after)
        if not self.table.key or old_key != new_key:
            return [
                PlantedRow(DiffKind.MISSING_ON_TARGET, old_key, (), _shown(before), None),
                PlantedRow(DiffKind.MISSING_ON_SOURCE, new_key, (), None, _shown(after)),
            ]
        # Also generated columns and ON UPDATE CURRENT_TIMESTAMP, which follow the change.
        changed = tuple(column.name for column in self.table.columns if before[column.name] != after[column.name])
        return [
            PlantedRow(
                DiffKind.VALUE_DIFFERS,
                old_key,
                changed,
                {name: show(before[name]) for name in changed},
                {name: show(after[name]) for name in changed},
            )
        ]


_REFUSALS = frozenset({1048, 1062, 1264, 1265, 1292, 1366, 1406, 1526, 1690, 3140, 3143, 3819, 1451, 1452})
"""NULL in NOT NULL, duplicate, out of range, too long, no partition, CHECK, foreign key: another row may do."""


def _is_refusal(error: Exception) -> bool:
    return bool(error.args) and error.args[0] in _REFUSALS


def _assigned(column: ColumnFacts, new: Mutated) -> str:
    if isinstance(new, Lost):
        return "NULL"
    return str(new) if isinstance(new, Expression) else column.literal(new)


def _same(column: ColumnFacts, value: Value) -> str:
    """Return the condition that a column holds exactly this value, compared without its collation."""
    if column.family in {Family.STRING, Family.ENUM, Family.SET, Family.BYTES} and value is not None:
        raw = value if isinstance(value, bytes) else str(value).encode()
        return f"{column.read_sql} = '{raw.hex().upper()}'"
    return f"{column.quoted} <=> {column.literal(value)}"


def _shown(row: Row) -> dict[str, str | None]:
    return {name: show(value) for name, value in row.items()}
