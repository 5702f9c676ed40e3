"""What belongs to a table beside its columns and keys, and what belongs to a database beside its tables.

Foreign keys, CHECK constraints, triggers and partitions; views, routines, events and sequences. One query each reads a
batch of tables. A MySQL before 8.0 and a MariaDB answer these views by opening tables, unless database and table are
constants of the condition: they are asked table by table (``one_by_one``), so that nothing else is opened.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from migverify.model import Flavor, TableDef
from migverify.sql.catalog import TABLES_AT_ONCE, SkippedObject, Wanted, names_condition
from migverify.sql.definitions import Name, Row, text_of
from migverify.sql.quoting import quote_path, quote_text, quote_texts
from migverify.sql.server import Queries


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key; ``references`` is (database, table). Rules as the catalog spells them, in upper case."""

    name: str
    columns: tuple[str, ...]
    references: tuple[str, str]
    referenced: tuple[str, ...]
    on_delete: str
    on_update: str


@dataclass(frozen=True, slots=True)
class CheckConstraint:
    """A CHECK constraint."""

    name: str
    clause: str
    enforced: bool = True


@dataclass(frozen=True, slots=True)
class TriggerDef:
    """A trigger: ``timing`` BEFORE or AFTER, ``event`` INSERT, UPDATE or DELETE, ``order`` among its like."""

    name: str
    timing: str
    event: str
    order: int
    statement: str


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: ``bound`` is what the catalog describes it by (a bound, a list of values), empty for HASH."""

    name: str
    bound: str
    comment: str = ""


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is partitioned; of subpartitions their method, expression and count for each partition."""

    method: str
    expression: str
    partitions: tuple[Partition, ...]
    sub_method: str = ""
    sub_expression: str = ""
    sub_count: int = 0


@dataclass(frozen=True, slots=True)
class Parts:
    """What belongs to a table beside columns and keys.

    ``attributes`` are TiDB's own, by the name of their feature: ``ttl``, ``auto_id_cache``, ``placement``,
    ``clustered_index`` where it is NONCLUSTERED.
    """

    foreign_keys: tuple[ForeignKey, ...] = ()
    checks: tuple[CheckConstraint, ...] = ()
    triggers: tuple[TriggerDef, ...] = ()
    partitioning: Partitioning | None = None
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DatabaseObject:
    """A view, procedure, function, event or sequence. ``text`` is its definition as the server shows it."""

    kind: str
    database: str
    name: str
    text: str


def asks_one_by_one(flavor: Flavor, version: str) -> bool:
    """Whether the server opens tables for these questions; then each must name its table."""
    major = re.match(r"\d+", version)
    return flavor is Flavor.MARIADB or (flavor is Flavor.MYSQL and (major is None or int(major[0]) < 8))


def read_parts(session: Queries, tables: Sequence[TableDef], *, one_by_one: bool) -> dict[Name, Parts]:
    """Read the parts of tables.

    Raises
    ------
    ReadError
        the server refuses a question.
    """
    names = [(table.ref.database, table.ref.table) for table in tables]
    # Table by table only those that may have any: a partitioned table says so there.
    partitioned = [n for t, n in zip(tables, names, strict=True) if t.partitioned] if one_by_one else names

    def rows_of(sql: str, of: Sequence[Name], database: str, table: str) -> dict[Name, list[Row]]:
        rows: dict[Name, list[Row]] = defaultdict(list)
        for where in _conditions(of, one_by_one, database, table):
            for row in session.query(sql.format(where=where)):
                rows[text_of(row[0]), text_of(row[1])].append(row[2:])
        return rows

    keys = rows_of(_FOREIGN_KEYS, names, "K.TABLE_SCHEMA", "K.TABLE_NAME")
    triggers = rows_of(_TRIGGERS, names, "EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE")
    partitions = rows_of(_PARTITIONS, partitioned, "TABLE_SCHEMA", "TABLE_NAME")
    view, sql, database = _CHECKS[session.flavor]
    checks = rows_of(sql, names, database, "T.TABLE_NAME") if session.query(_VIEW.format(quote_text(view))) else {}
    return {
        name: Parts(
            tuple(_foreign_keys(keys.get(name, []))),
            tuple(CheckConstraint(text_of(row[0]), text_of(row[1]), row[2] != "NO") for row in checks.get(name, [])),
            tuple(_trigger(row) for row in triggers.get(name, [])),
            _partitioning(partitions.get(name, [])),
            _attributes(session, name) if session.flavor is Flavor.TIDB else (),
        )
        for name in names
    }


def _conditions(names: Sequence[Name], one_by_one: bool, database: str, table: str) -> Iterator[str]:
    if one_by_one:
        yield from (f"{database} = {quote_text(d)} AND {table} = {quote_text(t)}" for d, t in names)
        return
    for start in range(0, len(names), TABLES_AT_ONCE):
        yield names_condition(names[start : start + TABLES_AT_ONCE], database, table)


# --- SQL -------------------------------------------------------------------------------------------------

# The two views have no index of one another: joined on three columns that both engines can look up.
_FOREIGN_KEYS = (
    "SELECT K.TABLE_SCHEMA, K.TABLE_NAME, K.CONSTRAINT_NAME, K.ORDINAL_POSITION, K.COLUMN_NAME,"
    " K.REFERENCED_TABLE_SCHEMA, K.REFERENCED_TABLE_NAME, K.REFERENCED_COLUMN_NAME, R.DELETE_RULE, R.UPDATE_RULE"
    " FROM information_schema.KEY_COLUMN_USAGE K JOIN information_schema.REFERENTIAL_CONSTRAINTS R"
    " ON R.CONSTRAINT_SCHEMA = K.CONSTRAINT_SCHEMA AND R.TABLE_NAME = K.TABLE_NAME"
    " AND R.CONSTRAINT_NAME = K.CONSTRAINT_NAME WHERE K.REFERENCED_TABLE_NAME IS NOT NULL AND {where}"
)
_TRIGGERS = (
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME, ACTION_TIMING, EVENT_MANIPULATION, ACTION_ORDER,"
    " ACTION_STATEMENT FROM information_schema.TRIGGERS WHERE {where}"
)
_PARTITIONS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, PARTITION_METHOD, PARTITION_EXPRESSION, PARTITION_ORDINAL_POSITION,"
    " PARTITION_NAME, PARTITION_DESCRIPTION, PARTITION_COMMENT, SUBPARTITION_METHOD, SUBPARTITION_EXPRESSION,"
    " SUBPARTITION_NAME FROM information_schema.PARTITIONS WHERE PARTITION_NAME IS NOT NULL AND {where}"
)
_VIEW = (
    "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA IN"
    " ('information_schema', 'INFORMATION_SCHEMA') AND TABLE_NAME = {}"
)
_CHECKS = {
    Flavor.MYSQL: (
        "CHECK_CONSTRAINTS",  # MySQL 5.7 has none
        "SELECT T.TABLE_SCHEMA, T.TABLE_NAME, C.CONSTRAINT_NAME, C.CHECK_CLAUSE, T.ENFORCED"
        " FROM information_schema.TABLE_CONSTRAINTS T JOIN information_schema.CHECK_CONSTRAINTS C"
        " ON C.CONSTRAINT_SCHEMA = T.CONSTRAINT_SCHEMA AND C.CONSTRAINT_NAME = T.CONSTRAINT_NAME"
        " WHERE T.CONSTRAINT_TYPE = 'CHECK' AND {where}",
        "T.TABLE_SCHEMA",
    ),
    **{
        flavor: (
            view,
            "SELECT T.CONSTRAINT_SCHEMA, T.TABLE_NAME, T.CONSTRAINT_NAME, T.CHECK_CLAUSE, 'YES'"
            f" FROM information_schema.{view} T WHERE {{where}}",
            "T.CONSTRAINT_SCHEMA",
        )
        for flavor, view in ((Flavor.MARIADB, "CHECK_CONSTRAINTS"), (Flavor.TIDB, "TIDB_CHECK_CONSTRAINTS"))
    },
}
"""Where CHECK constraints are: a view that the server may lack, the statement, its column of the database."""
_OBJECTS = (
    ("view", "SELECT TABLE_SCHEMA, TABLE_NAME, VIEW_DEFINITION FROM information_schema.VIEWS"),
    ("", "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, CONCAT_WS('', IFNULL(DTD_IDENTIFIER, ''), ' ', ROUTINE_DEFINITION),"
         " ROUTINE_TYPE FROM information_schema.ROUTINES"),
    ("event", "SELECT EVENT_SCHEMA, EVENT_NAME, CONCAT_WS(' ', INTERVAL_VALUE, INTERVAL_FIELD, EXECUTE_AT, STATUS,"
              " EVENT_DEFINITION) FROM information_schema.EVENTS"),
)  # fmt: skip
_COLUMN = {"view": "TABLE_SCHEMA", "": "ROUTINE_SCHEMA", "event": "EVENT_SCHEMA"}


def read_objects(
    session: Queries, databases: Sequence[str], wanted: Wanted, others: Sequence[SkippedObject]
) -> list[DatabaseObject]:
    """Read views, routines, events and sequences of databases that ``wanted(database, name)`` accepts.

    Parameters
    ----------
    others
        What ``read_names`` found that is no table; the texts of views are read where there are any.
    """
    if not databases:
        return []
    found = [DatabaseObject(o.kind, o.database, o.name, "") for o in others if o.kind != "view"]
    for kind, sql in _OBJECTS:
        if kind == "view" and not any(other.kind == "view" for other in others):
            continue
        word = " AND " if " WHERE " in sql else " WHERE "
        for row in session.query(f"{sql}{word}{_COLUMN[kind]} IN ({quote_texts(sorted(databases))})"):
            database, name = text_of(row[0]), text_of(row[1])
            if wanted(database, name):
                kind_name = kind or text_of(row[3]).lower()
                found.append(DatabaseObject(kind_name, database, name, " ".join((row[2] or "").split())))
    return sorted(found, key=lambda one: (one.database, one.kind, one.name))


# --- rows ------------------------------------------------------------------------------------------------


_STRING_OR_ATTRIBUTE = re.compile(
    r"""'(?:[^'\\]|''|\\.)*'|`(?:[^`]|``)*`|/\*T!(?:\[(?P<feature>[\w,]*)\])?\s*(?P<text>.*?)\s*\*/""", re.DOTALL
)
# TiDB's catalog does not show it.
_ZEROFILL = re.compile(r"^\s+`((?:[^`]|``)+)` \w+(?:\([^)]*\))? unsigned zerofill\b", re.MULTILINE)
# Counters, and what the catalog's own views tell: both are read elsewhere or are no definition.
_NO_ATTRIBUTES = frozenset({"auto_rand", "auto_rand_base", "auto_inc", "tidb_row_id", "shard_row_id_bits"})


def _attributes(session: Queries, name: Name) -> tuple[tuple[str, str], ...]:
    """Read TiDB's own attributes of a table, which only SHOW CREATE TABLE shows, in comments that MySQL skips."""
    rows = session.query(f"SHOW CREATE TABLE {quote_path(*name)}")
    return attributes_of(text_of(rows[0][1]))


def attributes_of(statement: str) -> tuple[tuple[str, str], ...]:
    """Return TiDB's attributes in a CREATE TABLE statement: (feature, text), sorted."""
    found: dict[str, list[str]] = defaultdict(list)
    for comment in _STRING_OR_ATTRIBUTE.finditer(statement):
        text = comment["text"]
        feature = comment["feature"] or (text or "").partition("=")[0].strip().lower()
        if text is None or feature in _NO_ATTRIBUTES or text == "CLUSTERED":
            continue
        found[feature].append(" ".join(text.split()))
    filled = sorted(name.replace("``", "`") for name in _ZEROFILL.findall(statement))
    if filled:
        found["zerofill"] = filled
    return tuple(sorted((feature, " ".join(texts)) for feature, texts in found.items()))


def _foreign_keys(rows: Sequence[Row]) -> Iterator[ForeignKey]:
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[text_of(row[0])].append(row)
    for name in sorted(by_name):
        parts = sorted(by_name[name], key=lambda row: int(text_of(row[1])))
        first = parts[0]
        yield ForeignKey(
            name, tuple(text_of(row[2]) for row in parts), (text_of(first[3]), text_of(first[4])),
            tuple(text_of(row[5]) for row in parts), text_of(first[6]).upper(), text_of(first[7]).upper(),
        )  # fmt: skip


def _trigger(row: Row) -> TriggerDef:
    name, timing, event, order, statement = (text_of(value) for value in row)
    return TriggerDef(name, timing.upper(), event.upper(), int(order), statement)


def _partitioning(rows: Sequence[Row]) -> Partitioning | None:
    if not rows:
        return None
    ordered = sorted(rows, key=lambda row: (int(text_of(row[2])), row[8] or ""))
    first = ordered[0]
    found: Mapping[str, Partition] = {
        text_of(row[3]): Partition(text_of(row[3]), row[4] or "", row[5] or "") for row in ordered
    }
    subs = sum(1 for row in ordered if row[3] == first[3] and row[8] is not None)
    return Partitioning(text_of(first[0]).upper(), first[1] or "", tuple(found.values()), (first[6] or "").upper(),
                        first[7] or "", subs)  # fmt: skip
