"""Questions of the settings guard about what is going to move: tables, their keys and types, and what hangs on them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from migverify.db.server_state import server_identity
from migverify.errors import PrivilegeError
from migverify.figures import amount
from migverify.guards.check_read import CheckedServer, Refusal
from migverify.guards.model import AnswerState, CheckResult, failed, listed, passed, warned
from migverify.model import ColumnDef, Flavor, TableDef
from migverify.sql import settings as sql
from migverify.sql.catalog import access_sql
from migverify.tables.pairs import NOT_ITSELF, same_tables_words
from migverify.tables.type_change import collation_change

_SPATIAL = frozenset({
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
})  # fmt: skip
_MARIADB_TYPES = frozenset({"uuid", "inet4", "inet6", "xmltype"})
_TRANSACTIONAL = frozenset({"innodb", "ndbcluster", "ndb", "rocksdb", "tokudb", "myrocks"})
_DIGITS = re.compile(r"(?:float|double|real)\(\d+,\d+\)", re.IGNORECASE)
_VECTOR_SINCE = (8, 4)
_ENFORCED_SINCE = (6, 6)
_LARGE = frozenset({"mediumtext", "longtext", "mediumblob", "longblob", "json"})
ENTRY_BYTES = 6 << 20
"""TiDB's default limit of one row."""


def scope(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask what the configuration's tables are here."""
    unmatched = server.unmatched((table.ref.database, table.ref.table) for table in server.tables)
    databases = {table.ref.database for table in server.tables}
    value = f"{amount(len(server.tables), 'table')} in {amount(len(databases), 'database')}"
    if not server.tables or unmatched:
        missing = f"; nothing matches {listed(unmatched)}" if unmatched else ""
        yield failed(value + missing, numbers={"tables": float(len(server.tables))})
        return
    yield passed(value, numbers={"tables": float(len(server.tables))})


def _targets(source: CheckedServer) -> dict[tuple[str, str], TableDef]:
    return {source.route(source.name, t.ref.database, t.ref.table): t for t in source.tables}


def _found(target: CheckedServer) -> dict[tuple[str, str], TableDef]:
    """Return the target's tables by name without case, as TiDB finds them."""
    return {(t.ref.database.lower(), t.ref.table.lower()): t for t in target.tables}


def present(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether every table is there on the target, as another one, and whether a missing one may only be hidden."""
    itself = [table.ref for name, table in _targets(source).items() if name == (table.ref.database, table.ref.table)]
    one, other = (server_identity(server.session, server.endpoint) for server in (source, target))
    if itself and one.is_same_server(other):
        yield failed(same_tables_words(source.endpoint, target.endpoint, itself), NOT_ITSELF)
        return
    found = _found(target)
    missing = [name for name in _targets(source) if (name[0].lower(), name[1].lower()) not in found]
    hidden = [name for name in missing if _hidden(target, name)]
    whole = len(source.tables)
    if not missing:
        yield CheckResult(AnswerState.PASS if whole else AnswerState.INCONCLUSIVE, f"{whole} of {whole} are there")
        return
    value = f"{len(missing)} of {whole} are not there: {listed(['.'.join(name) for name in missing])}"
    if hidden:
        todo = f"{target.grants.account} may not read {len(hidden)} of them: GRANT SELECT on their databases."
        yield failed(value, todo)
        return
    yield failed(value)


def _hidden(target: CheckedServer, name: tuple[str, str]) -> bool:
    return isinstance(target.attempt(lambda: target.session.query(access_sql(*name))), PrivilegeError)


def without_key(server: CheckedServer) -> list[str]:
    """Name the tables that have nothing to tell their rows apart by."""
    return [str(table.ref) for table in server.tables if not _told_apart(table)]


def _told_apart(table: TableDef) -> bool:
    nullable = {column.name for column in table.columns if column.nullable}
    return any(
        index.primary
        or (index.unique and all(name is not None and name not in nullable for name in index.columns))
        for index in table.indexes
    )  # fmt: skip


def without_primary_key(server: CheckedServer) -> list[str]:
    """Name the tables without a primary key."""
    return [str(table.ref) for table in server.tables if not any(index.primary for index in table.indexes)]


def of_other_engines(server: CheckedServer) -> list[str]:
    """Name the tables that are not transactional, with their engines."""
    return [f"{t.ref} ({t.engine})" for t in server.tables if t.engine and t.engine.lower() not in _TRANSACTIONAL]


def columns_that(
    condition: Callable[..., bool], shown: Callable[[ColumnDef], str] = lambda _: ""
) -> Callable[..., list[str]]:
    """Return what names the first server's columns for which ``condition(column, *other servers)`` holds.

    ``shown`` is what a reader sees of each beside its name.
    """

    def named(server: CheckedServer, *others: CheckedServer) -> list[str]:
        return [
            f"{table.ref}.{column.name}" + (f" ({text})" if (text := shown(column)) else "")
            for table in server.tables for column in table.columns if condition(column, *others)
        ]  # fmt: skip

    return named


def unsupported(column: ColumnDef, target: CheckedServer) -> bool:
    """Whether a TiDB has no such type."""
    if column.data_type == "vector":
        return bool(target.number) and target.number < _VECTOR_SINCE
    return column.data_type in _SPATIAL or column.data_type in _MARIADB_TYPES


def rounded(column: ColumnDef) -> bool:
    """Whether SELECT rounds a column's values to the digits of FLOAT(M,D) or DOUBLE(M,D)."""
    return _DIGITS.search(column.column_type) is not None


def indexes_unsupported(source: CheckedServer, _: CheckedServer) -> list[str]:
    """Name the indexes that TiDB refuses or ignores."""
    return [
        f"{table.ref}.{index.name} ({index.kind})"
        for table in source.tables for index in table.indexes
        if index.kind.upper() in ("FULLTEXT", "SPATIAL", "RTREE")
    ]  # fmt: skip


def collations_known(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask which collations of columns the target does not have."""
    known = {(row[0] or "").lower() for row in target.session.query(sql.COLLATIONS)}
    found = _found(target)
    waiting: dict[str, list[str]] = defaultdict(list)
    there: dict[str, list[str]] = defaultdict(list)
    for (database, name), table in _targets(source).items():
        group = there if (database.lower(), name.lower()) in found else waiting
        for column in table.columns:
            collation = _spelled(column.collation, known)
            if collation is not None and collation not in known:
                group[collation].append(f"{table.ref}.{column.name}")
    why = "The tables are there already, with other collations; a replicated ALTER that names these is refused."
    none = "all of them are known"
    yield _grouped("new tables", waiting, AnswerState.FAIL, none)
    yield replace(_grouped("tables that are there", there, AnswerState.WARN, none), why=why)


def _grouped(part: str, groups: dict[str, list[str]], state: AnswerState, none: str) -> CheckResult:
    """Return the result of columns by what is wrong with them."""
    value = "; ".join(f"{words}: {listed(columns)}" for words, columns in sorted(groups.items()))
    count = float(sum(len(columns) for columns in groups.values()))
    return CheckResult(
        state if groups else AnswerState.PASS, value or none, part=part, numbers={"columns": count}
    )  # fmt: skip


def _spelled(collation: str | None, known: set[str]) -> str | None:
    """Return a collation as the target spells it: ``utf8_`` and ``utf8mb3_`` are one."""
    if collation is None:
        return None
    name = collation.lower()
    other = (
        name.replace("utf8mb3_", "utf8_", 1) if name.startswith("utf8mb3_") else name.replace("utf8_", "utf8mb3_", 1)
    )
    return other if name not in known and other in known else name


def collations(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the collations of columns: what a key takes as equal decides which rows it refuses."""
    found, known = _found(target), set[str]()
    in_keys: dict[str, list[str]] = defaultdict(list)
    elsewhere: dict[str, list[str]] = defaultdict(list)
    for (database, name), table in _targets(source).items():
        other = found.get((database.lower(), name.lower()))
        if other is None:
            continue
        theirs = {column.name.lower(): column for column in other.columns}
        for column in table.columns:
            twin = theirs.get(column.name.lower())
            if twin is None or column.collation is None or twin.collation is None:
                continue
            ours = _spelled(column.collation, known | {twin.collation.lower()})
            if ours == twin.collation.lower():
                continue
            words, otherwise = collation_change(column.collation, twin.collation)
            in_key = any(index.unique and column.name in index.columns for index in table.indexes)
            group = in_keys if in_key and otherwise else elsewhere
            group[f"{column.collation} became {twin.collation} ({words})"].append(f"{table.ref}.{column.name}")
    yield _grouped("unique keys", in_keys, AnswerState.FAIL, "none differs")
    yield _grouped("other columns", elsewhere, AnswerState.WARN, "none differs")


def names(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask which names differ in case alone: a server that ignores case can hold one of them only."""
    key = "lower_case_table_names"
    ours, theirs = source.variable(key), target.variable(key)
    groups: dict[tuple[str, str], list[str]] = defaultdict(list)
    for database, name in _targets(source):
        groups[database.lower(), name.lower()].append(f"{database}.{name}")
    clashes = [" and ".join(sorted(group)) for group in groups.values() if len(group) > 1]
    value = f"source {ours}, target {theirs}"
    if clashes:
        yield failed(f"{value}; one name on the target: {listed(sorted(clashes))}")
        return
    # 0 against 2 is how MySQL on Linux and TiDB are: fine while no two names meet. 1 on one side changes the names.
    folded = ours != theirs and "1" in (ours, theirs)
    todo = "Spell names in lower case everywhere: one side stores them so."
    yield CheckResult(AnswerState.WARN if folded else AnswerState.PASS, value, todo)


def row_size(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether rows may be larger than what TiDB stores as one."""
    limit = _entry_bytes(target)
    wide = [
        f"{t.ref} ({', '.join(c.name for c in t.columns if c.data_type in _LARGE)})"
        for t in source.tables
        if any(c.data_type in _LARGE for c in t.columns)
    ]
    tables = amount(len(source.tables), "table")
    value = f"at most {limit} bytes on the target; types that hold more in {len(wide)} of {tables}"
    packet = int(target.variables.get("max_allowed_packet", "0") or 0)
    worst = min(limit, packet) if packet else limit
    if not wide:
        yield passed(value, numbers={"limit_bytes": float(limit)})
        return
    first = next(t for t in source.tables if any(c.data_type in _LARGE for c in t.columns))
    column = next(c.name for c in first.columns if c.data_type in _LARGE)
    look = sql.longest(first.ref.database, first.ref.table, column)
    todo = f"Look when there is time, as it reads the table: {look} must stay below {worst}. Raise both limits if not."
    yield warned(f"{value}: {listed(wide)}", todo, numbers={"limit_bytes": float(limit)})


def _entry_bytes(target: CheckedServer) -> int:
    """Return TiDB's limit of a row: the variable counts (7.6), 0 means the configuration, which may not be shown."""
    reported = target.variables.get("tidb_txn_entry_size_limit", "0")
    if reported.isdigit() and int(reported):
        return int(reported)
    rows = target.attempt(lambda: target.session.query(sql.ENTRY_SIZE))
    if isinstance(rows, Refusal):
        return ENTRY_BYTES  # the default: the question stays a warning either way
    found = [int(row[-1] or 0) for row in rows if (row[-1] or "").isdigit()]
    return min(found, default=ENTRY_BYTES)


def foreign_keys(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the foreign keys, and ask whether the target enforces them."""
    ours = _named(source, source.objects(sql.FOREIGN_KEYS))
    theirs = _named(target, target.objects(sql.FOREIGN_KEYS))
    moved = {
        (*source.route(source.name, database, table), name): f"{database}.{table} ({name})"
        for database, table, name in ours
    }
    if not moved:
        yield passed(f"none on the source, {len(theirs)} on the target")
        return
    counts: dict[tuple[str, str], int] = defaultdict(int)
    for database, table, _ in theirs:
        counts[database.lower(), table.lower()] += 1
    wanted: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (database, table, _), shown in moved.items():
        wanted[database.lower(), table.lower()].append(shown)
    # Names are the server's own where none was given: keys are counted by table.
    lost = [shown for key, all_shown in wanted.items() for shown in all_shown[counts[key] :]]
    value = f"{len(moved)} on the source, {len(moved) - len(lost)} of them on the target"
    if lost:
        yield failed(f"{value}; missing: {listed(sorted(lost))}")
        return
    off = [name for name in ("foreign_key_checks", "tidb_enable_foreign_key")
           if target.variables.get(name, "ON").upper() in ("OFF", "0")]  # fmt: skip
    if target.flavor is Flavor.TIDB and target.number and target.number < _ENFORCED_SINCE:
        off.append("TiDB before 6.6 does not enforce them")
    if off:
        yield failed(
            f"{value}; not enforced: {', '.join(off)}",
            "SET GLOBAL foreign_key_checks = ON; SET GLOBAL tidb_enable_foreign_key = ON;",
        )
        return
    yield passed(value)


def _named(server: CheckedServer, rows: Sequence[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    inside = {(table.ref.database, table.ref.table) for table in server.tables}
    return [row for row in rows if (row[0], row[1]) in inside]


def checks(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether the target enforces CHECK constraints that the source has."""
    asked = sql.MARIADB_CHECKS if source.flavor is Flavor.MARIADB else sql.CHECKS
    rows = _named(source, source.objects(asked))
    if not rows:
        yield passed("none on the source")
        return
    value = f"{len(rows)} on the source: {listed([f'{d}.{t} ({name})' for d, t, name in rows])}"
    enforced = target.flavor is not Flavor.TIDB or target.variables.get("tidb_enable_check_constraint", "").upper() in (
        "ON", "1",
    )  # fmt: skip
    yield CheckResult(AnswerState.PASS if enforced else AnswerState.FAIL, value)


def triggers(server: CheckedServer) -> list[str]:
    """Name the triggers on the tables in scope."""
    return [f"{d}.{name} on {table}" for d, table, name in _named(server, server.objects(sql.TRIGGERS))]


def unseen_triggers(server: CheckedServer) -> str:
    """Return the privilege without which triggers are hidden; empty where the user has it."""
    refs = [(table.ref.database, table.ref.table) for table in server.tables]
    return "" if all(server.grants.allows("TRIGGER", *ref) for ref in refs) else "TRIGGER"


def events(server: CheckedServer) -> list[str]:
    """Name the events of the databases in scope; one that is disabled runs nowhere."""
    return [f"{d}.{name}" for d, name, status in server.objects(sql.EVENTS) if status.upper() == "ENABLED"]


def unseen_events(server: CheckedServer) -> str:
    """Return the privilege without which events are hidden; empty where the user has it."""
    return "" if all(server.grants.allows("EVENT", database) for database in server.databases) else "EVENT"


def routines(server: CheckedServer) -> list[str]:
    """Name the procedures and functions of the databases in scope."""
    return [f"{d}.{name} ({kind.lower()})" for d, name, kind in server.objects(sql.ROUTINES)]


def unseen_routines(server: CheckedServer) -> str:
    """Return the privilege without which routines are hidden; empty where the user has it."""
    grants, old = server.grants, server.flavor is Flavor.MARIADB or server.number < (8,)
    if grants.allows("SHOW_ROUTINE") or grants.allows("SELECT") or (old and grants.allows("SELECT", "mysql", "proc")):
        return ""
    return "SELECT ON mysql.proc" if old else "SHOW_ROUTINE ON *.*"


def views(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the views by name."""
    there = {(one.database.lower(), one.name.lower()) for one in target.skipped if one.kind == "view"}
    ours = [one for one in source.skipped if one.kind == "view"]
    missing = []
    for one in ours:
        database, name = source.route(source.name, one.database, one.name)
        if (database.lower(), name.lower()) not in there:
            missing.append(f"{one.database}.{one.name}")
    value = f"{len(ours)} on the source, {len(ours) - len(missing)} of them on the target"
    if missing:
        yield failed(f"{value}; missing: {listed(missing)}")
        return
    yield passed(value)
