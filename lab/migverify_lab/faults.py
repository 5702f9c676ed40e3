"""The faults of migrations, by name: what goes wrong when rows move from one database to another.

``FAULTS`` is the table; ``plant`` puts one of them into a table on the target. The same seed on the same data
makes the same fault.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from migverify.errors import LabError, UsageError
from migverify.model import DiffKind
from migverify_lab import mutations as m
from migverify_lab.columns import ColumnFacts, Family, TableFacts, Value, read_table
from migverify_lab.planting import PlantedFault, PlantedRows, Planter, Row
from migverify_lab.session import SESSION, connect

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from migverify_lab.servers import LabServer

MANY_ROWS = 100
MOST_ROWS = 100_000

Mutation = Callable[[Value, ColumnFacts, random.Random], m.Mutated]
Accepts = Callable[[ColumnFacts], bool]


@dataclass(frozen=True, slots=True)
class TableFault:
    """One kind of fault.

    ``what`` says in one sentence what happens, ``needs`` what the table must hold. ``attempt`` tries to plant it
    and returns None where the table holds nothing for it. ``kinds`` are the differences it makes in a table with a
    unique key; without one, every change is one row missing and one row too many.
    """

    name: str
    what: str
    needs: str
    kinds: frozenset[DiffKind]
    attempt: Callable[[Planter], PlantedRows | None]


# --- faults of one value --------------------------------------------------------------------------------------


def _one_value(mutation: Mutation, accepts: Accepts, condition: str) -> Callable[[Planter], PlantedRows | None]:
    """Change one value of one row. ``condition`` is SQL with ``{c}`` for the column: it only narrows the search."""

    def attempt(planter: Planter) -> PlantedRows | None:
        columns = [column for column in planter.table.plain if accepts(column)]
        planter.rng.shuffle(columns)
        for column in columns:
            for row in planter.candidates(condition.replace("{c}", column.quoted)):
                new = mutation(row[column.name], column, planter.rng)
                if new is None:
                    continue
                outcome = planter.update([(row, {column.name: new})])
                if outcome is not None:
                    return outcome
        return None

    return attempt


def _of(*families: Family) -> Accepts:
    return lambda column: column.family in families


def _value_fault(
    name: str, what: str, needs: str, mutation: Mutation, accepts: Accepts, condition: str = "{c} IS NOT NULL"
) -> TableFault:
    return TableFault(name, what, needs, frozenset({DiffKind.VALUE_DIFFERS}), _one_value(mutation, accepts, condition))


def _any(_: ColumnFacts) -> bool:
    return True


def _unsigned(column: ColumnFacts) -> bool:
    return column.family is Family.INT and column.unsigned


def _signed_number(column: ColumnFacts) -> bool:
    return column.family in m.NUMBERS and not column.unsigned


def _fraction(column: ColumnFacts) -> bool:
    return column.family in {Family.DATETIME, Family.TIME} and column.fsp > 0


def _no_char(column: ColumnFacts) -> bool:
    return column.family is Family.STRING and column.data_type != "char"


def _utf8(column: ColumnFacts) -> bool:
    return column.family is Family.STRING and column.charset in {"utf8mb4", "utf8mb3", "utf8"}


_STRING = _of(Family.STRING)
_BYTES = _of(Family.BYTES)
_STRING_OR_BYTES = _of(Family.STRING, Family.BYTES)
_NOT_ASCII = "LENGTH(CONVERT({c} USING utf8mb4)) > CHAR_LENGTH({c})"

# --- faults of rows -------------------------------------------------------------------------------------------


def _delete_row(planter: Planter) -> PlantedRows | None:
    for row in planter.candidates():
        outcome = planter.delete(row)
        if outcome is not None:
            return outcome
    return None


def _add_row(planter: Planter) -> PlantedRows | None:
    for row in planter.candidates():
        if not planter.table.key:
            return planter.copy(row, {})
        for key in new_keys(planter.table, row, planter.rng):
            outcome = planter.copy(row, key)
            if outcome is not None:
                return outcome
    return None


def new_keys(table: TableFacts, row: Row, rng: random.Random) -> list[Row]:
    """Return keys near that of a row, which may be free: one column of the key changed, or grown."""
    found: list[Row] = []
    for column in table.key:
        value = row[column.name]
        for _ in range(8):
            new = m.value_changed(value, column, rng)
            if new is not None and not isinstance(new, m.Lost | m.Expression):
                found.append({column.name: new})
        if isinstance(value, int) and column.family is Family.INT:
            low, high = m.int_range(column)
            steps = [rng.randrange(2, 1_000_000_000) for _ in range(8)]
            found += [{column.name: value + step} for step in steps if low <= value + step <= high]
        if isinstance(value, str) and column.family is Family.STRING and len(value) + 4 <= column.length:
            found.append({column.name: f"{value}{rng.randrange(1000, 10000)}"})
    return found


def _duplicate(planter: Planter) -> PlantedRows | None:
    if planter.table.key:
        return None
    for row in planter.candidates():
        return planter.copy(row, {})
    return None


def _swap_columns(planter: Planter) -> PlantedRows | None:
    plain = planter.table.plain
    pairs = [
        (a, b)
        for number, a in enumerate(plain)
        for b in plain[number + 1 :]
        if (a.column_type, a.charset) == (b.column_type, b.charset) and a.family is not Family.JSON
    ]
    planter.rng.shuffle(pairs)
    for a, b in pairs[:200]:
        for row in planter.candidates(f"NOT ({a.read_sql} <=> {b.read_sql})"):
            outcome = planter.update([(row, {a.name: _given(row[b.name]), b.name: _given(row[a.name])})])
            if outcome is not None:
                return outcome
    return None


def _swap_rows(planter: Planter) -> PlantedRows | None:
    if not planter.table.key:
        return None
    columns = [column for column in planter.table.plain if column.family is not Family.JSON]
    planter.rng.shuffle(columns)
    for column in columns:
        for first in planter.candidates():
            one = first[column.name]
            # The collation may call different texts equal here, which only costs candidates.
            for second in planter.candidates(f"NOT ({column.quoted} <=> {column.literal(one)})"):
                two = second[column.name]
                outcome = planter.update([(first, {column.name: _given(two)}), (second, {column.name: _given(one)})])
                if outcome is not None:
                    return outcome
                break  # the server refused this value; another row may do
    return None


def _given(value: Value) -> m.Mutated:
    return m.LOST if value is None else value


def _move_boundary(planter: Planter) -> PlantedRows | None:
    """Move what follows a comma into the next column: text joined by commas stays the same."""
    columns = planter.table.columns
    pairs = [(a, b) for a, b in pairwise(columns) if _movable(a) and _movable(b)]
    planter.rng.shuffle(pairs)
    for a, b in pairs:
        for row in planter.candidates(f"LOCATE(',', {a.quoted}) > 0 AND {b.quoted} IS NOT NULL"):
            one, two = row[a.name], row[b.name]
            if not isinstance(one, str) or not isinstance(two, str) or "," not in one:
                continue
            head, _, rest = one.rpartition(",")
            outcome = planter.update([(row, {a.name: head, b.name: f"{rest},{two}"})])
            if outcome is not None:
                return outcome
    return None


def _movable(column: ColumnFacts) -> bool:
    return column.family is Family.STRING and not column.generated and not column.in_key


def _null_row(planter: Planter) -> PlantedRows | None:
    nullable = [column for column in planter.table.plain if column.nullable]
    if not nullable:
        return None
    held = " OR ".join(f"{column.quoted} IS NOT NULL" for column in nullable)
    for row in planter.candidates(f"({held})"):
        losing: dict[str, m.Mutated] = {c.name: m.LOST for c in nullable if row[c.name] is not None}
        outcome = planter.update([(row, losing)])
        if outcome is not None:
            return outcome
    return None


def _key_off_by_one(planter: Planter) -> PlantedRows | None:
    keys = [column for column in planter.table.key if column.family is Family.INT and not column.generated]
    for column in keys:
        for row in planter.candidates(f"{column.quoted} > {2**53} OR {column.quoted} < {-(2**53)}"):
            value = row[column.name]
            if not isinstance(value, int):
                continue
            low, high = m.int_range(column)
            near = [value + step for step in (1, -1) if low <= value + step <= high]
            # Only a neighbor that a double cannot tell from the old key is this fault.
            for new in [key for key in near if float(key) == float(value)]:
                outcome = planter.update([(row, {column.name: new})])
                if outcome is not None:
                    return outcome
    return None


def _flag_lost(planter: Planter) -> PlantedRows | None:
    """Change one value that 100 rows share: an even number of equal changes cancels in an XOR of CRC32."""
    columns = [
        c for c in planter.table.plain if c.family is Family.INT or (c.family is Family.STRING and c.length == 1)
    ]
    planter.rng.shuffle(columns)
    for column in columns if planter.table.key else []:
        held: dict[Value, list[Row]] = {}
        for row in planter.read(f"{column.quoted} IS NOT NULL", limit=MOST_ROWS):
            held.setdefault(row[column.name], []).append(row)
        values = [value for value, rows in held.items() if value and len(rows) >= MANY_ROWS]
        planter.rng.shuffle(values)
        for value in values:
            new: m.Mutated = 0 if isinstance(value, int) else m.value_changed(value, column, planter.rng)
            chosen = planter.rng.sample(held[value], MANY_ROWS)
            outcome = planter.update([(row, {column.name: new}) for row in chosen])
            if outcome is not None:
                return outcome
    return None


def _shift_all(planter: Planter) -> PlantedRows | None:
    """Move every instant of one column by an hour; zero and partial dates stay."""
    columns = [column for column in planter.table.plain if column.family is Family.DATETIME]
    planter.rng.shuffle(columns)
    for column in columns if planter.table.key else []:
        rows = planter.read(f"{column.quoted} IS NOT NULL", limit=MOST_ROWS + 1)
        if len(rows) > MOST_ROWS:
            raise LabError(
                f"{planter.table.quoted} has more than {MOST_ROWS:,} rows", hint="Plant this fault in a smaller table."
            )
        last = "2038-01-19 02:14:07" if column.data_type == "timestamp" else "9999-12-31 22"
        changes: list[tuple[Row, dict[str, m.Mutated]]] = []
        for row in rows:
            value = row[column.name]
            new = m.shift_hour(value, column, planter.rng)
            if new is not None and isinstance(value, str) and value < last:
                changes.append((row, {column.name: new}))
        outcome = planter.update(changes) if changes else None
        if outcome is not None:
            return outcome
    return None


_MISSING = frozenset({DiffKind.MISSING_ON_TARGET})
_EXTRA = frozenset({DiffKind.MISSING_ON_SOURCE})
_DIFFERS = frozenset({DiffKind.VALUE_DIFFERS})

FAULTS: tuple[TableFault, ...] = (
    TableFault("row-deleted", "a row is missing on the target", "a row", _MISSING, _delete_row),
    TableFault("row-added", "a row is on the target only", "a row", _EXTRA, _add_row),
    _value_fault("value-changed", "one value is another one of its type", "a column outside the key",
        m.value_changed, _any),
    _value_fault("null-for-zero", "0 became NULL", "a nullable number that is 0", m.null_for_zero,
                 lambda c: c.family in m.NUMBERS and c.nullable, "{c} = 0"),
    _value_fault("zero-for-null", "NULL became 0", "a number that is NULL", m.zero_for_null,
                 _of(*m.NUMBERS), "{c} IS NULL"),
    _value_fault("empty-for-null", "NULL became the empty string", "a string that is NULL", m.empty_for_null,
                 _STRING_OR_BYTES, "{c} IS NULL"),
    _value_fault("null-for-empty", "the empty string became NULL", "a nullable string that is empty",
        m.null_for_empty,
                 lambda c: _STRING_OR_BYTES(c) and c.nullable, "LENGTH({c}) = 0"),
    _value_fault("shift-hour", "an instant moved by one hour", "a DATETIME or TIMESTAMP", m.shift_hour,
                 _of(Family.DATETIME)),
    _value_fault("truncation", "a string lost its end", "a string of two characters", m.truncation, _STRING,
                 "CHAR_LENGTH({c}) > 1"),
    _value_fault("case", "one letter changed its case", "a string with an ASCII letter", m.case_flipped,
        _STRING,
                 "LENGTH({c}) > 0"),
    _value_fault("trailing-space", "a space was added at the end", "a VARCHAR or TEXT", m.trailing_space,
        _no_char),
    TableFault("swapped-columns", "two columns of one row changed places", "two columns of one type", _DIFFERS,
        _swap_columns),
    TableFault("swapped-rows", "two rows exchanged the values of a column", "two rows that differ in a column",
        _DIFFERS, _swap_rows),
    TableFault("duplicate-in-keyless", "a row was written twice", "a table without a unique key", _EXTRA,
        _duplicate),
    _value_fault("latin1-mangled", "UTF-8 was read as latin1", "a utf8 string beyond ASCII", m.latin1_mangled,
        _utf8, _NOT_ASCII),
    _value_fault("json-int-off-by-one", "an integer above 2^53 in JSON is off by one",
        "JSON with such an integer",
                 m.json_int_off_by_one, _of(Family.JSON)),
    _value_fault("json-key-lost", "a JSON object lost a key", "a JSON object", m.json_key_lost,
        _of(Family.JSON)),
    _value_fault("float-ulp", "a float is the next one its type can hold", "a FLOAT or DOUBLE that is not 0",
        m.float_ulp,
                 _of(Family.FLOAT, Family.DOUBLE), "{c} <> 0"),
    _value_fault("double-tiny", "a double changed by one part in 10^9", "a DOUBLE that is not 0",
        m.double_tiny,
                 _of(Family.DOUBLE), "{c} <> 0"),
    _value_fault("decimal-scale", "the last digit of a decimal is off by one", "a DECIMAL", m.decimal_scale,
        _of(Family.DECIMAL)),
    TableFault("key-off-by-one", "a key above 2^53 is off by one", "an integer key above 2^53",
          frozenset({DiffKind.MISSING_ON_TARGET, DiffKind.MISSING_ON_SOURCE}), _key_off_by_one),
    _value_fault("sign-flip", "a number changed its sign", "a signed number that is not 0", m.sign_flip,
        _signed_number, "{c} <> 0"),
    _value_fault("unsigned-wrap", "an unsigned integer was cut to the signed maximum",
        "an unsigned integer in its upper half",
                 m.unsigned_wrap, _unsigned),
    _value_fault("date-zero", "a date became the zero date", "a DATE or DATETIME", m.date_zero,
        _of(Family.DATE, Family.DATETIME)),
    _value_fault("microseconds-lost", "the fraction of a second was dropped", "a time with a fraction",
        m.microseconds_lost,
                 _fraction, "MICROSECOND({c}) <> 0"),
    _value_fault("bit-flip", "one bit changed", "a BIT", m.bit_flip, _of(Family.BIT)),
    _value_fault("blob-byte", "one byte changed", "a binary string that is not empty", m.blob_byte, _BYTES,
        "LENGTH({c}) > 0"),
    _value_fault("blob-truncated-nul", "a binary string ends at its first NUL",
        "a binary string with a NUL inside",
                 m.blob_truncated_nul, _BYTES, "LENGTH({c}) > 0"),
    _value_fault("enum-label", "an ENUM has another label", "an ENUM", m.enum_label, _of(Family.ENUM)),
    _value_fault("set-member", "a SET gained or lost a member", "a SET", m.set_member, _of(Family.SET)),
    _value_fault("year", "a YEAR is off by one", "a YEAR", m.year_off, _of(Family.YEAR)),
    TableFault("flag-lost-on-100-rows", "100 rows lost the same flag, which cancels in an XOR of CRC32",
          "an integer or CHAR(1) with one value on 100 rows", _DIFFERS, _flag_lost),
    TableFault("all-datetimes-shifted", "every instant of a column moved by one hour", "a DATETIME or TIMESTAMP",
        _DIFFERS, _shift_all),
    TableFault("column-boundary", "text moved over a comma into the next column: ('a,b','c') is ('a','b,c')",
          "two strings side by side, a comma in the first", _DIFFERS, _move_boundary),
    _value_fault("emoji-lost", "characters beyond the basic plane became ?", "a string with an emoji",
        m.emoji_lost, _STRING,
                 _NOT_ASCII),
    TableFault("null-row", "every nullable column of a row is NULL", "a row with a nullable value", _DIFFERS,
        _null_row),
    _value_fault("time-negative", "a TIME changed its sign", "a TIME that is not 0", m.time_negative,
        _of(Family.TIME)),
)  # fmt: skip

BY_NAME = {fault.name: fault for fault in FAULTS}


def plant(connection: Connection, fault_name: str, database: str, table: str, seed: int = 1) -> PlantedFault:
    """Plant one fault in a table, and return exactly what differs now.

    Parameters
    ----------
    connection
        A session on the target that may write; its sql_mode and time zone are set to those of the lab.
    fault_name
        A name of ``FAULTS``.
    database, table
        Where to plant it.
    seed
        Chooses column, row and value.

    Raises
    ------
    UsageError
        When there is no fault of that name.
    LabError
        When there is no such table, or it holds nothing for this fault. Nothing was changed then.
    """
    fault = BY_NAME.get(fault_name)
    if fault is None:
        raise UsageError(f"no fault is called {fault_name!r}", hint="See `migverify lab fault --list`.")
    with connection.cursor() as cursor:
        for statement in SESSION:
            cursor.execute(statement)
    facts = read_table(connection, database, table)
    unfindable = {Family.FLOAT, Family.DOUBLE, Family.JSON}
    if not facts.key and any(column.family in unfindable for column in facts.columns):
        raise LabError(
            f"{database}.{table} has no unique key and a FLOAT, DOUBLE or JSON column: a row cannot be named",
            hint="Plant the fault in another table.",
        )
    outcome = fault.attempt(Planter(connection, facts, random.Random(f"{fault_name}/{table}/{seed}")))
    if outcome is None:
        raise LabError(f"{database}.{table} holds nothing for the fault {fault_name}", hint=f"It needs {fault.needs}.")
    return PlantedFault(fault_name, database, table, seed, outcome.statements, outcome.rows)


def plant_on_target(target: LabServer, fault_name: str, database: str, table: str, seed: int = 1) -> PlantedFault:
    """Connect to a server of the lab and plant one fault there; raises as ``plant`` does."""
    with connect(target) as connection:
        return plant(connection, fault_name, database, table, seed)
