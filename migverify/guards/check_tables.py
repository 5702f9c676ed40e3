"""Questions of the settings guard about what is going to move: tables, their keys and types, and what hangs on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from migverify.errors import PrivilegeError, ReadError, RetryableReadError
from migverify.guards.check_binlog_settings import TRANSACTIONAL
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, listed, passed, unknown, warned
from migverify.model import ColumnDef, Flavor, TableDef
from migverify.sql import settings as sql
from migverify.sql.catalog import access_sql
from migverify.sql.grants import account_text
from migverify.tables.type_change import collation_change

_SPATIAL = frozenset({
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
})  # fmt: skip
_MARIADB_TYPES = frozenset({"uuid", "inet4", "inet6", "xmltype"})
_VECTOR_SINCE = (8, 4)
_ENFORCED_SINCE = (6, 6)
_LARGE = frozenset({"mediumtext", "longtext", "mediumblob", "longblob", "json"})
ENTRY_BYTES = 6 << 20
"""TiDB's default limit of one row."""


def scope(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask what the configuration's tables are here."""
    unmatched = server.unmatched((table.ref.database, table.ref.table) for table in server.tables)
    value = f"{len(server.tables)} tables in {len({t.ref.database for t in server.tables})} databases"
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
    """Ask whether every table is there on the target, and whether one that is not may only be hidden."""
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
    try:
        target.session.query(access_sql(*name))
    except PrivilegeError:
        return True
    except RetryableReadError:
        raise
    except ReadError:  # there is none of this name
        return False
    return True


def keys(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which tables have nothing that tells their rows apart."""
    keyless = [str(table.ref) for table in server.tables if not _told_apart(table)]
    yield _list(keyless, len(server.tables), AnswerState.FAIL)


def _told_apart(table: TableDef) -> bool:
    nullable = {column.name for column in table.columns if column.nullable}
    return any(
        index.primary
        or (index.unique and all(name is not None and name not in nullable for name in index.columns))
        for index in table.indexes
    )  # fmt: skip


def engines(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which tables are not transactional."""
    other = [f"{t.ref} ({t.engine})" for t in server.tables if t.engine and t.engine.lower() not in TRANSACTIONAL]
    yield _list(other, len(server.tables), AnswerState.FAIL)


def types(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask which columns and indexes TiDB cannot have, and say which."""
    if target.flavor is not Flavor.TIDB:
        return
    bad = [f"{t.ref}.{c.name} ({c.data_type})" for t in source.tables for c in t.columns if _unsupported(c, target)]
    yield _list(bad, len(source.tables), AnswerState.FAIL, "columns")
    kinds = [
        f"{t.ref}.{index.name} ({index.kind})"
        for t in source.tables
        for index in t.indexes
        if index.kind.upper() in ("FULLTEXT", "SPATIAL", "RTREE")
    ]
    why = "TiDB refuses SPATIAL and ignores or refuses FULLTEXT: the queries on them fail or become slow."
    yield _list(kinds, len(source.tables), AnswerState.FAIL, "indexes", why)
    hidden = [f"{t.ref}.{c.name}" for t in source.tables for c in t.columns if c.invisible]
    why = "TiDB has no INVISIBLE columns: SELECT * and INSERT without a list mean something else."
    yield _list(hidden, len(source.tables), AnswerState.FAIL, "invisible columns", why)


def _unsupported(column: ColumnDef, target: CheckedServer) -> bool:
    if column.data_type == "vector":
        return bool(target.number) and target.number < _VECTOR_SINCE
    return column.data_type in _SPATIAL or column.data_type in _MARIADB_TYPES


def collations_known(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask which collations of columns the target does not have."""
    known = {(row[0] or "").lower() for row in target.session.query(sql.COLLATIONS)}
    found = _found(target)
    waiting: dict[str, list[str]] = defaultdict(list)
    there: dict[str, list[str]] = defaultdict(list)
    for (database, name), table in _targets(source).items():
        place = there if (database.lower(), name.lower()) in found else waiting
        for column in table.columns:
            collation = _spelled(column.collation, known)
            if collation is not None and collation not in known:
                place[collation].append(f"{table.ref}.{column.name}")
    why = "The tables are there already, with other collations; a replicated ALTER that names these is refused."
    for part, groups, state in (
        ("new tables", waiting, AnswerState.FAIL),
        ("tables that are there", there, AnswerState.WARN),
    ):
        value = "; ".join(f"{collation}: {listed(columns)}" for collation, columns in sorted(groups.items()))
        said = why if state is AnswerState.WARN else ""
        yield CheckResult(state if groups else AnswerState.PASS, value or "all of them are known", part=part, why=said)


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
            place = in_keys if in_key and otherwise else elsewhere
            place[f"{column.collation} became {twin.collation} ({words})"].append(f"{table.ref}.{column.name}")
    for part, groups, state in (
        ("unique keys", in_keys, AnswerState.FAIL),
        ("other columns", elsewhere, AnswerState.WARN),
    ):
        value = "; ".join(f"{change}: {listed(columns)}" for change, columns in sorted(groups.items()))
        count = float(sum(len(columns) for columns in groups.values()))
        yield CheckResult(
            state if groups else AnswerState.PASS, value or "none differs", part=part, numbers={"columns": count}
        )


def names(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Ask which names differ in case alone: a server that does not report case apart has room for one of them."""
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
    if target.flavor is not Flavor.TIDB:
        return
    limit = _entry_bytes(target)
    wide = [
        f"{t.ref} ({', '.join(c.name for c in t.columns if c.data_type in _LARGE)})"
        for t in source.tables
        if any(c.data_type in _LARGE for c in t.columns)
    ]
    value = f"at most {limit} bytes on the target; types that hold more in {len(wide)} of {len(source.tables)} tables"
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
    try:
        rows = target.session.query(sql.ENTRY_SIZE)
    except RetryableReadError:
        raise
    except (PrivilegeError, ReadError):
        return ENTRY_BYTES  # the default: the question stays a warning either way
    found = [int(row[-1] or 0) for row in rows if (row[-1] or "").isdigit()]
    return min(found, default=ENTRY_BYTES)


def foreign_keys(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the foreign keys, and ask whether the target enforces them."""
    ours = _named(source, source.objects(sql.foreign_keys))
    theirs = _named(target, target.objects(sql.foreign_keys))
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
    asked = sql.mariadb_checks if source.flavor is Flavor.MARIADB else sql.checks
    rows = _named(source, source.objects(asked))
    if not rows:
        yield passed("none on the source")
        return
    value = f"{len(rows)} on the source: {listed([f'{d}.{t} ({name})' for d, t, name in rows])}"
    enforced = target.flavor is not Flavor.TIDB or target.variables.get("tidb_enable_check_constraint", "").upper() in (
        "ON", "1",
    )  # fmt: skip
    yield CheckResult(AnswerState.PASS if enforced else AnswerState.FAIL, value)


def triggers(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which triggers stand on the tables in scope."""
    if server.flavor is Flavor.TIDB:
        return
    inside = _named(server, server.objects(sql.triggers))
    refs = [(table.ref.database, table.ref.table) for table in server.tables]
    seen = all(server.grants.allows("TRIGGER", *ref) for ref in refs)
    found = [f"{d}.{name} on {t}" for d, t, name in inside]
    yield _unless_hidden(_list(found, len(server.tables), AnswerState.FAIL), "TRIGGER", server, seen=seen)


def events(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which events the databases in scope have; one that is disabled runs nowhere."""
    if server.flavor is Flavor.TIDB:
        return
    rows = server.objects(sql.events)
    live = [f"{d}.{name}" for d, name, status in rows if status.upper() == "ENABLED"]
    seen = all(server.grants.allows("EVENT", database) for database in server.databases)
    reported = _list(live, len(server.databases), AnswerState.FAIL, among="databases")
    yield _unless_hidden(reported, "EVENT", server, seen=seen)


def routines(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which procedures and functions the databases in scope have."""
    if server.flavor is Flavor.TIDB:
        return
    rows = server.objects(sql.routines)
    old = server.flavor is Flavor.MARIADB or server.number < (8,)
    grants = server.grants
    seen = (
        grants.allows("SHOW_ROUTINE") or grants.allows("SELECT") or (old and grants.allows("SELECT", "mysql", "proc"))
    )
    found = [f"{d}.{name} ({kind.lower()})" for d, name, kind in rows]
    reported = _list(found, len(server.databases), AnswerState.FAIL, among="databases")
    needed = "SELECT ON mysql.proc" if old else "SHOW_ROUTINE ON *.*"
    yield _unless_hidden(reported, needed, server, seen=seen)


def _unless_hidden(reported: CheckResult, needed: str, server: CheckedServer, *, seen: bool) -> CheckResult:
    """Return INCONCLUSIVE in place of "none" where the server hides such objects from the user: it lists no others."""
    if reported.state is not AnswerState.PASS or seen:
        return reported
    where = needed if " ON " in needed else f"{needed} ON <database>.*"
    value = f"none that {server.grants.account} may see, and without {needed} others are hidden"
    return unknown(value, f"GRANT {where} TO {account_text(server.grants.account)};")


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


def _list(
    found: Sequence[str], whole: int, state: AnswerState, part: str = "", why: str = "", among: str = "tables"
) -> CheckResult:
    value = f"{len(found)} in {whole} {among}: {listed(found)}" if found else f"none in {whole} {among}"
    return CheckResult(
        state if found else AnswerState.PASS, value, part=part, why=why, numbers={"found": float(len(found))}
    )
