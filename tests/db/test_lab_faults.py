"""Every fault, planted in the museum: exactly the stated rows differ, read by SQL of this test's own."""

from __future__ import annotations

import json

import pytest

from migverify.errors import LabError
from migverify.lab import faults, museum_loader
from migverify.model import DiffKind
from migverify.sql.quoting import quote_name

pytestmark = pytest.mark.db

TYPE_TABLES = (
    "integers decimals floats doubles dates datetimes timestamps times texts_utf8mb4 texts_collated texts_charsets "
    "bytes bits labels jsons"
)

HOMES = {
    "row-deleted": "integers partitioned no_key one_row key_nullable",
    "row-added": "integers decimals key_text key_composite partitioned_by_range no_key key_unsigned key_date",
    "value-changed": f"{TYPE_TABLES} no_key key_nullable generated per%cent",
    "null-for-zero": "integers decimals floats doubles",
    "zero-for-null": "integers decimals floats doubles",
    "empty-for-null": "texts_utf8mb4 texts_charsets bytes no_key",
    "null-for-empty": "texts_utf8mb4 texts_collated texts_charsets bytes",
    "shift-hour": "datetimes timestamps",
    "truncation": "texts_utf8mb4 texts_collated texts_charsets",
    "case": "texts_utf8mb4 texts_collated texts_charsets",
    "trailing-space": "texts_utf8mb4 texts_collated texts_charsets",
    "swapped-columns": "twins semi;colon",
    "swapped-rows": "integers decimals doubles texts_utf8mb4 bytes labels datetimes",
    "duplicate-in-keyless": "no_key key_nullable",
    "latin1-mangled": "texts_utf8mb4 texts_collated texts_charsets",
    "json-int-off-by-one": "jsons",
    "json-key-lost": "jsons",
    "float-ulp": "floats doubles",
    "double-tiny": "doubles",
    "decimal-scale": "decimals",
    "key-off-by-one": "key_above_2_53 key_unsigned",
    "sign-flip": "integers decimals floats doubles",
    "unsigned-wrap": "integers",
    "date-zero": "dates datetimes timestamps",
    "microseconds-lost": "datetimes timestamps times",
    "bit-flip": "bits",
    "blob-byte": "bytes",
    "blob-truncated-nul": "bytes",
    "enum-label": "labels",
    "set-member": "labels",
    "year": "dates",
    "flag-lost-on-100-rows": "flags",
    "all-datetimes-shifted": "flags datetimes timestamps",
    "column-boundary": "texts_utf8mb4",
    "emoji-lost": "texts_utf8mb4 texts_collated",
    "null-row": "integers texts_utf8mb4 generated",
    "time-negative": "times",
}


def test_every_fault_has_a_home():
    assert set(HOMES) == {fault.name for fault in faults.FAULTS}


def _cases():
    return [(fault, table) for fault, tables in HOMES.items() for table in tables.split()]


@pytest.mark.parametrize(("fault", "table"), _cases())
def test_exactly_the_stated_rows_differ(databases, fault, table):
    key = _fill(databases, table)
    assert _differences(databases, table, key) == set()
    for seed in (1, 2):
        _fill(databases, table)
        planted = faults.plant(databases.connections[1], fault, databases.name, table, seed)
        expected = {(row.kind, _key_of(row, key), row.columns) for row in planted.rows}
        assert _differences(databases, table, key) == expected, planted.describe()
        assert {row.kind for row in planted.rows} <= faults.BY_NAME[fault].kinds or not key
        assert planted.describe()
        assert json.loads(json.dumps(planted.as_dict()))["fault"] == fault


def test_the_same_seed_makes_the_same_fault(databases):
    _fill(databases, "integers")
    first = faults.plant(databases.connections[1], "value-changed", databases.name, "integers", 7)
    _fill(databases, "integers")
    again = faults.plant(databases.connections[1], "value-changed", databases.name, "integers", 7)
    assert first == again


def test_a_table_without_a_place_for_the_fault_stays_as_it_is(databases):
    key = _fill(databases, "one_column")
    with pytest.raises(LabError, match="holds nothing for the fault emoji-lost"):
        faults.plant(databases.connections[1], "emoji-lost", databases.name, "one_column", 1)
    assert _differences(databases, "one_column", key) == set()


def test_a_missing_table_is_named(databases):
    with pytest.raises(LabError, match=f"no table {databases.name}.nowhere"):
        faults.plant(databases.connections[1], "row-deleted", databases.name, "nowhere", 1)


# --- the test's own way of looking ----------------------------------------------------------------------------

FLAGS = (
    "CREATE TABLE {name} (id BIGINT NOT NULL PRIMARY KEY, flag TINYINT(1) NOT NULL,"
    " at DATETIME(3) NULL, note VARCHAR(9))"
)


def _fill(databases, table: str) -> tuple[str, ...]:
    if table == "flags":
        rows = ", ".join(
            f"({n}, {n % 2}, '2024-03-{n % 28 + 1:02d} 10:00:00.{n % 1000:03d}', 'n{n % 7}')" for n in range(1, 401)
        )
        name = f"{quote_name(databases.name)}.flags"
        databases.both(f"DROP TABLE IF EXISTS {name}", FLAGS.format(name=name), f"INSERT INTO {name} VALUES {rows}")
        return ("id",)
    (room,) = museum_loader.choose((table,))
    for side, connection in zip(("source", "target"), databases.connections, strict=True):
        museum_loader.hang(connection, side, databases.name, room)
    return room.key


def _key_of(row, key):
    if key:
        return tuple(row.key)
    return None


def _differences(databases, table, key):
    source, target = (_rows(run, databases.name, table, key) for run in (databases.source, databases.target))
    if not key:
        missing = [(DiffKind.MISSING_ON_TARGET, None, ()) for row in _minus(source, target)]
        return set(missing + [(DiffKind.MISSING_ON_SOURCE, None, ()) for row in _minus(target, source)])
    one = {tuple(row[name] for name in key): row for row in source}
    two = {tuple(row[name] for name in key): row for row in target}
    found = {(DiffKind.MISSING_ON_TARGET, k, ()) for k in one.keys() - two.keys()}
    found |= {(DiffKind.MISSING_ON_SOURCE, k, ()) for k in two.keys() - one.keys()}
    for k in one.keys() & two.keys():
        columns = tuple(name for name in one[k] if one[k][name] != two[k][name])
        if columns:
            found.add((DiffKind.VALUE_DIFFERS, k, columns))
    return found


def _minus(rows, others):
    left = [sorted(row.items()) for row in rows]
    for row in others:
        item = sorted(row.items())
        if item in left:
            left.remove(item)
    return left


def _rows(run, database, table, key):
    columns = run(
        "SELECT COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS "
        f"WHERE TABLE_SCHEMA = '{database}' AND TABLE_NAME = '{table}' ORDER BY ORDINAL_POSITION"
    )
    fields = [_text(quote_name(name), kind, name in key) for name, kind in columns]
    answer = run(f"SELECT {', '.join(fields)} FROM {quote_name(database)}.{quote_name(table)}")
    names = [name for name, _ in columns]
    kinds = [kind for _, kind in columns]
    return [{name: _value(value, kind) for name, value, kind in zip(names, row, kinds, strict=True)} for row in answer]


def _text(name, kind, in_key):
    if kind in {"float", "double"}:
        return f"CAST({name} AS DOUBLE)"
    if kind == "json":
        return f"CAST({name} AS CHAR)"
    if kind in {"bit", "blob", "binary", "varbinary", "tinyblob", "mediumblob", "longblob"}:
        return f"CONCAT('0x', LOWER(HEX({name})))"
    if in_key:
        return f"CONCAT({name})"
    if kind in {"char", "varchar", "text", "tinytext", "mediumtext", "longtext", "enum", "set"}:
        return f"HEX(CONVERT({name} USING utf8mb4))"
    return f"CONCAT({name})"


def _value(value, kind):
    if kind == "json" and value is not None:
        return json.dumps(json.loads(value), sort_keys=True)
    return value.decode() if isinstance(value, bytes) else value
