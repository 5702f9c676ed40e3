"""Which columns identify rows, and what writes touch beside their own table: read from the source's catalog."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from migverify.db.session import Session
from migverify.model import ColumnDef, IndexDef, TableDef
from migverify.sql.catalog import read_tables
from migverify.sql.quoting import quote_texts
from migverify.workload.replay.touches import Keys, TableKeys


def read_keys(session: Session, databases: Iterable[str]) -> Keys:
    """Return the keys of all tables of these databases, by ``database.table`` in lower case.

    Only keys over whole columns identify rows. Tables with triggers are marked, and those tied by foreign keys.

    Raises ReadError: the catalog cannot be read.
    """
    names = {name.lower() for name in databases}
    if not names:
        return {}
    listed = quote_texts(sorted(names))
    related: defaultdict[str, set[str]] = defaultdict(set)
    referenced: defaultdict[str, set[str]] = defaultdict(set)
    for database, table, to_database, to_table, to_column in session.query(
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,"  # noqa: S608
        " REFERENCED_COLUMN_NAME"
        " FROM information_schema.KEY_COLUMN_USAGE"
        f" WHERE REFERENCED_TABLE_NAME IS NOT NULL AND LOWER(TABLE_SCHEMA) IN ({listed})"
    ):
        child, parent = f"{database}.{table}".lower(), f"{to_database}.{to_table}".lower()
        related[child].add(parent)
        related[parent].add(child)
        referenced[parent].add(str(to_column).lower())
    triggered = {
        f"{database}.{table}".lower()
        for database, table in session.query(
            "SELECT DISTINCT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE FROM information_schema.TRIGGERS"  # noqa: S608
            f" WHERE LOWER(EVENT_OBJECT_SCHEMA) IN ({listed})"
        )
    }
    found: dict[str, TableKeys] = {}
    for table_def in read_tables(session, session.endpoint.name, lambda database, _: database.lower() in names):
        name = str(table_def.ref).lower()
        keys = _keys(table_def, tuple(sorted(related[name])), triggers=name in triggered)
        found[name] = replace(keys, referenced=frozenset(referenced[name]))
    return found


def _keys(table: TableDef, related: tuple[str, ...], *, triggers: bool) -> TableKeys:
    primary: tuple[str, ...] = ()
    unique: dict[str, tuple[str, ...]] = {}
    for index in table.indexes:
        columns = _whole(index)
        if index.name == "PRIMARY":
            primary = columns or ()
        elif index.unique:
            # a key that its text does not show (a prefix, an expression) names no column: no INSERT has a known key
            unique[index.name] = columns or ("",)
    nullable = {column.name.lower() for column in table.columns if column.nullable}
    strict = tuple(key for key in (primary, *unique.values()) if key and key != ("",) and not nullable & set(key))
    columns = tuple(column.name.lower() for column in table.columns)
    clocked = triggers or any(
        "(" in (column.default or "") or "CURRENT_TIMESTAMP" in f"{column.default} {column.extra}".upper()
        or "DEFAULT_GENERATED" in column.extra.upper() or column.generation
        for column in table.columns
    )  # fmt: skip
    integers, texts = (
        frozenset(column.name.lower() for column in table.columns if column.data_type in types)
        for types in (_INTEGERS, _TEXTS)
    )
    zoned = tuple(column.name.lower() for column in table.columns if column.data_type == "timestamp")
    generated = frozenset(column.name.lower() for column in table.columns if column.generation)
    auto = next((column.name.lower() for column in table.columns if "AUTO_INCREMENT" in column.extra.upper()), "")
    defaults = {
        column.name.lower(): column.default
        for column in table.columns if column.name.lower() in integers | texts and _has_literal_default(column)
    }  # fmt: skip
    return TableKeys(
        primary, unique, related, triggers, strict, columns, clocked, integers, texts, zoned, generated, auto, defaults
    )


def _has_literal_default(column: ColumnDef) -> bool:
    """Tell whether a column that an INSERT does not name gets the text of its default, or NULL for none."""
    if column.generation or re.search("DEFAULT_GENERATED|AUTO_", column.extra.upper()):
        return False
    return column.nullable if column.default is None else "(" not in column.default


def shared_keys(keys: Keys, other: Keys) -> Keys:
    """Return ``keys`` without the AUTO_INCREMENT columns and defaults that another server does not have as well."""
    shared = {}
    for name, table in keys.items():
        theirs = other.get(name, TableKeys())
        same = table.defaults.items() & theirs.defaults.items()
        shared[name] = replace(table, auto=table.auto if table.auto == theirs.auto else "", defaults=dict(same))
    return shared


_INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})


def ordering_keys(keys: Keys) -> dict[str, list[tuple[str, ...]]]:
    """Return keys that make an ORDER BY total, by table without database: those that all tables of a name share."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for name, one in keys.items():
        table = name.partition(".")[2]
        found[table] = [key for key in found[table] if key in one.strict] if table in found else list(one.strict)
    return found


def _whole(index: IndexDef) -> tuple[str, ...] | None:
    if not index.unique or any(prefix is not None for prefix in index.prefixes):
        return None
    names = [column for column in index.columns if column is not None]
    return tuple(name.lower() for name in names) if len(names) == len(index.columns) else None


def databases_of(batches: Iterable[dict[str, list[object]]]) -> set[str]:
    """Return the current databases that sessions of a capture had; statements may name others too."""
    return {str(name) for batch in batches for name in batch["database"] if name}
