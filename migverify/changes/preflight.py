"""Is this source's binlog fit to be read? Every condition, asked of the server, before anything relies on it.

Nothing is written, nothing is changed. A condition the server does not tell is INCONCLUSIVE, never a pass. What no
question to the server can settle is listed as a blind spot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from migverify.changes import preflight_server as ask
from migverify.changes.preflight_columns import columns
from migverify.changes.preflight_server import Finding, Known, Refusal, Server, answer, judged, untold
from migverify.changes.preflight_settings import DAY, RETENTION, SETTINGS, Platform, State
from migverify.model import Flavor, TableDef, Verdict
from migverify.sql.settings import foreign_keys, referential_rules

CLOCK_SECONDS = 2.0
SHOWN = 10
TRANSACTIONAL = frozenset({"innodb", "ndbcluster", "ndb", "rocksdb", "tokudb", "myrocks"})
CASCADING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
RETENTION_CALL = "CALL mysql.rds_show_configuration"

BLIND_SPOTS = (
    "A session that may (SUPER or SESSION_VARIABLES_ADMIN) can SET sql_log_bin = 0: what it writes is in no binlog.",
    "Sessions can set binlog_format, binlog_row_image and binlog_row_value_options for themselves after this check;"
    " the reader refuses such events when they come.",
    "A reader that did not register as a replica (mysqlbinlog, some tools) is not in the list of replicas; two readers"
    " of one server_id end each other's stream.",
)


@dataclass(frozen=True, slots=True)
class Preflight:
    """All answers of one source. ``endpoint`` is its name in the configuration."""

    endpoint: str
    version: str
    platform: Platform
    findings: tuple[Finding, ...]
    blind_spots: tuple[str, ...] = BLIND_SPOTS

    @property
    def verdict(self) -> Verdict:
        """MATCH when nothing failed and everything was told, else INCONCLUSIVE: no data was compared."""
        bad = {State.FAIL, State.INCONCLUSIVE}
        fit = bool(self.findings) and not any(f.state in bad for f in self.findings)
        return Verdict.MATCH if fit else Verdict.INCONCLUSIVE

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is not MATCH."""
        if not self.findings:
            return ("nothing was checked",)
        words = {State.FAIL: "", State.INCONCLUSIVE: " could not be told"}
        return tuple(f"{f.name}{words[f.state]}: {f.value}" for f in self.findings if f.state in words)


def preflight(
    session: Server, endpoint: str, tables: Sequence[TableDef], *, now: Callable[[], float],
    reader_id: int | None = None, begun: Callable[[str], float] | None = None,
) -> Preflight:  # fmt: skip
    """Ask a source everything that decides whether its binlog can be read exactly.

    Parameters
    ----------
    session
        A session as the reading user, so that missing grants show.
    endpoint
        Name of the source in messages.
    tables
        Definitions of the tables in scope.
    now
        Clock of this machine, Unix time in seconds.
    reader_id
        ``server_id`` that the reader is going to use; None when it is not known yet.
    begun
        Returns the Unix time at which a log of this name was begun, or raises; None leaves the age out.

    Raises
    ------
    RetryableReadError
        the connection was lost while asking.
    """
    if session.flavor is Flavor.TIDB:
        found = Finding("log_bin", State.FAIL, "TiDB", "MySQL or MariaDB", "SELECT VERSION()",
                        "TiDB has no binlog in MySQL's protocol.", "Read TiDB through TiCDC and Kafka.")  # fmt: skip
        return Preflight(endpoint, session.version, Platform.OWN, (found,), ())
    rows = session.query("SHOW GLOBAL VARIABLES")
    variables = {(name or "").lower(): value or "" for name, value in rows}
    known = Known(session, variables, platform_of(variables), version_number(session.version), begun)
    findings: list[Finding] = []
    for questions in (_settings, _retention, ask.rights, ask.logs, ask.replica, ask.sessions):
        findings += questions(known)
    findings += ask.server_ids(known, reader_id)
    findings.append(_clock(session, now))
    findings += _tables(known, tables)
    return Preflight(endpoint, session.version, known.platform, tuple(findings))


def platform_of(variables: dict[str, str]) -> Platform:
    """Say who runs a server, by its global variables."""
    if "aurora_version" in variables:
        return Platform.AURORA
    return Platform.RDS if variables.get("basedir", "").startswith("/rdsdbbin/") else Platform.OWN


def version_number(version: str) -> tuple[int, ...]:
    """Return the numbers of a version as a server greets with it; empty when there are none.

    MariaDB before 11 greets with ``5.5.5-`` before its own version.
    """
    found = re.match(r"(?:5\.5\.5-(?=1\d\.))?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()


def _settings(known: Known) -> Iterator[Finding]:
    for setting in SETTINGS:
        if known.session.flavor in setting.flavors:
            yield judged(known, setting)


def _retention(known: Known) -> Iterator[Finding]:
    if known.platform is not Platform.OWN:
        yield _rds_retention(known)
        return
    auto = "binlog_expire_logs_auto_purge"
    if known.variables.get(auto, "ON").upper() in ("OFF", "0"):
        yield Finding(auto, State.PASS, "OFF", "OFF, or long retention", f"SHOW GLOBAL VARIABLES LIKE '{auto}'",
                      "Nothing is purged by itself; watch the disk.")  # fmt: skip
        return
    # MySQL 8.0 has both variables and lets the old one count only where the new one is 0.
    seconds, days = RETENTION
    has_seconds = seconds.names[0] in known.variables
    old_counts = known.variables.get(seconds.names[0]) == "0" and days.names[0] in known.variables
    yield judged(known, seconds if has_seconds and not old_counts else days)


def _rds_retention(known: Known) -> Finding:
    name, wanted = "binlog retention hours", "24 or more"
    why = ("NULL means that a log is removed as soon as the service does not need it, often within minutes, read or"
           " not; binlog_expire_logs_seconds does not count here.")  # fmt: skip
    todo = "CALL mysql.rds_set_configuration('binlog retention hours', 168);"
    rows = answer(lambda: known.session.query(RETENTION_CALL))
    if isinstance(rows, Refusal):
        grant = f"GRANT EXECUTE ON PROCEDURE mysql.rds_show_configuration TO {ask.account(known.session)};"
        return Finding(name, State.INCONCLUSIVE, ask.first_line(rows), wanted, RETENTION_CALL, why, grant)
    listed = {row[0]: row[1] for row in rows if len(row) > 1}
    if name not in listed:
        return Finding(name, State.INCONCLUSIVE, "not listed", wanted, RETENTION_CALL, why, todo)
    value = listed[name]
    if value is None or value.upper() == "NULL":
        return Finding(name, State.FAIL, "NULL", wanted, RETENTION_CALL, why, todo)
    if not value.isdigit():
        return Finding(name, State.INCONCLUSIVE, value, wanted, RETENTION_CALL, why, todo)
    short = int(value) * 3600 < DAY
    return Finding(name, State.WARN if short else State.PASS, value, wanted, RETENTION_CALL, why, todo if short else "")


def _clock(session: Server, now: Callable[[], float]) -> Finding:
    query, wanted = "SELECT UNIX_TIMESTAMP(NOW(6))", f"within {CLOCK_SECONDS:g} s of this machine"
    why = "Lag and settle times compare the source's commit times with this machine's clock."
    before = now()
    server = float(session.query(query)[0][0] or "nan")
    after = now()
    offset = server - (before + after) / 2
    # Half of the round trip is what the comparison itself cannot know.
    far = not abs(offset) <= CLOCK_SECONDS + (after - before) / 2
    return Finding("clock", State.WARN if far else State.PASS, f"{offset:+.1f} s", wanted, query, why,
                   "Let both hosts follow the same time source." if far else "")  # fmt: skip


def _tables(known: Known, tables: Sequence[TableDef]) -> Iterator[Finding]:
    query = "SHOW CREATE TABLE"
    if not tables:
        yield Finding("tables", State.INCONCLUSIVE, "none in scope", "at least one", "information_schema.TABLES",
                      "Nothing would be covered.", "Look at tables.include of the configuration.")  # fmt: skip
        return
    keyless = [str(t.ref) for t in tables if not any(i.primary for i in t.indexes)]
    yield _listed("tables without a primary key", keyless, len(tables), query,
                  "Rows that cannot be told apart cannot be followed: these tables are compared whole.",
                  "Add a primary key, or plan a full comparison of these at the end.")  # fmt: skip
    unsafe = [f"{t.ref} ({t.engine})" for t in tables if t.engine and t.engine.lower() not in TRANSACTIONAL]
    yield _listed("tables of other engines", unsafe, len(tables), query,
                  "Their writes are not undone with the transaction, and half a statement is in no log after a crash.",
                  "ALTER TABLE ... ENGINE = InnoDB.")  # fmt: skip
    vectors = [f"{t.ref}.{c.name}" for t in tables for c in t.columns if c.data_type == "vector"]
    yield _listed("VECTOR columns", vectors, len(tables), query,
                  "Floats in bytes: they can be compared by nothing but their bytes, and other readers fail on them.",
                  "Compare them apart, or leave the columns out.")  # fmt: skip
    yield from columns(tables, known.session.flavor)
    yield _cascades(known, {(t.ref.database, t.ref.table) for t in tables})


def _listed(name: str, found: Sequence[str], tables: int, query: str, why: str, todo: str) -> Finding:
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    value = f"{len(found)} in {tables}: {', '.join(found[:SHOWN])}{more}" if found else f"none in {tables}"
    return Finding(name, State.WARN if found else State.PASS, value, "none", query, why, todo if found else "")


def _cascades(known: Known, scope: set[tuple[str, str]]) -> Finding:
    """Foreign keys that InnoDB itself carries out change child rows without a trace in the binlog."""
    name, wanted = "cascading foreign keys", "none, or carried out above the engine"
    why = "ON DELETE CASCADE and its like change child rows inside InnoDB: those changes are in no binlog."
    todo = "Verify the child tables by reading them whole; changes of theirs cannot be followed."
    native = "innodb_native_foreign_keys"
    if known.variables.get(native, "").upper() in ("OFF", "0"):
        return Finding(name, State.PASS, f"{native} is OFF: cascades are logged", wanted,
                       f"SHOW GLOBAL VARIABLES LIKE '{native}'", why)  # fmt: skip
    found: list[str] = []
    hidden: list[str] = []
    databases = sorted({database for database, _ in scope})
    for database in databases:
        told = answer(lambda database=database: _rules(known.session, database))  # type: ignore[misc]
        if isinstance(told, Refusal):
            return untold(known, name, wanted, referential_rules(database), why, told)
        for (table, key), acts in told.items():
            if (database, table) in scope and (acts is None or acts & CASCADING):
                (hidden if acts is None else found).append(f"{database}.{table} ({key})")
    query = "; ".join(referential_rules(database) for database in databases)
    if hidden and not found:
        # An empty list of what a user may not see is no proof that there is nothing.
        grant = f"GRANT REFERENCES ON <database>.* TO {ask.account(known.session)}; shows them."
        value = f"the rules of {len(hidden)} keys are hidden from this user: {', '.join(hidden[:SHOWN])}"
        return Finding(name, State.INCONCLUSIVE, value, wanted, query, why, grant)
    listed = _listed(name, found, len(scope), query, why, todo)
    return replace(listed, wanted=wanted, state=State.FAIL if found else State.PASS)


def _rules(session: Server, database: str) -> dict[tuple[str, str], frozenset[str] | None]:
    """Return what each foreign key (table, name) does to child rows; None where the server hides that from the user."""
    rules: dict[tuple[str, str], frozenset[str] | None] = {
        (table or "", key or ""): None for table, key in session.query(foreign_keys(database))
    }
    for table, key, *acts in session.query(referential_rules(database)):
        rules[table or "", key or ""] = frozenset((act or "").upper() for act in acts)
    return rules
