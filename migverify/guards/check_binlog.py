"""Can this source's binlog be read exactly? Every condition as a question to the server, before anything relies on it.

Nothing is written, nothing is changed. A condition that the server does not report is INCONCLUSIVE, never a pass. What
no question to the server can settle is listed as a blind spot.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from migverify.db.server_state import BinaryLog, binary_logs, binlog_status, first_known, replica_ids, replica_status
from migverify.errors import MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.guards.check_basics import CLOCK_SECONDS
from migverify.guards.check_binlog_settings import (
    DAY,
    OFFSET_BYTES,
    REPLICA_UPDATES,
    RETENTION,
    SETTINGS,
    TRANSACTIONAL,
    BinlogSetting,
    Platform,
    remedy,
)
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, GuardAnswer, listed
from migverify.model import Flavor, TableDef, Verdict
from migverify.sql.grants import account_text
from migverify.sql.server import ACCOUNT, BINLOG_OVERRIDES, BINLOG_STATUS, CLOCK, LOGS, REPLICA, REPLICAS
from migverify.sql.settings import foreign_keys, referential_rules

T = TypeVar("T")
Refusal = ReadError | PrivilegeError

NAME = "changes"
CASCADING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
RETENTION_CALL = "CALL mysql.rds_show_configuration"
_GRANTS = (
    ("REPLICATION SLAVE", REPLICAS, "The server sends its binlog to nobody without it."),
    ("REPLICATION CLIENT", BINLOG_STATUS, "Without it the list of logs and the current position stay unknown."),
)
_GOOD = {
    "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": "", "sql_log_bin": "ON",
    "binlog_transaction_compression": "OFF",
}  # fmt: skip

BLIND_SPOTS = (
    "A session that may (SUPER or SESSION_VARIABLES_ADMIN) can SET sql_log_bin = 0: what it writes is in no binlog.",
    "Sessions can set binlog_format, binlog_row_image and binlog_row_value_options for themselves after this check;"
    " the reader refuses such events when they come.",
    "A reader that did not register as a replica (mysqlbinlog, some tools) is not in the list of replicas; two readers"
    " of one server_id end each other's stream.",
)


@dataclass(frozen=True, slots=True)
class BinlogCheck:
    """All answers of one source. ``endpoint`` is its name in the configuration."""

    endpoint: str
    version: str
    platform: Platform
    answers: tuple[GuardAnswer, ...]
    blind_spots: tuple[str, ...] = BLIND_SPOTS

    @property
    def verdict(self) -> Verdict:
        """MATCH when nothing failed and everything was reported, else INCONCLUSIVE: no data was compared."""
        bad = {AnswerState.FAIL, AnswerState.INCONCLUSIVE}
        fit = bool(self.answers) and not any(answer.state in bad for answer in self.answers)
        return Verdict.MATCH if fit else Verdict.INCONCLUSIVE

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is not MATCH."""
        if not self.answers:
            return ("nothing was checked",)
        words = {AnswerState.FAIL: "", AnswerState.INCONCLUSIVE: " is not known"}
        return tuple(f"{a.name}{words[a.state]}: {a.value}" for a in self.answers if a.state in words)


def preflight(server: CheckedServer, reader_id: int | None = None) -> BinlogCheck:
    """Ask a source everything that decides whether its binlog can be read exactly.

    Parameters
    ----------
    server
        The source, in a session of the reading user, so that missing grants show.
    reader_id
        ``server_id`` that the reader is going to use; None when it is not known yet.

    Raises
    ------
    RetryableReadError
        the connection was lost while asking.
    """
    if server.flavor is Flavor.TIDB:
        reported = [_result("log_bin", AnswerState.FAIL, "TiDB", "MySQL", "SELECT VERSION()",
                      "TiDB has no binlog in MySQL's protocol.", "Read TiDB through TiCDC and Kafka.")]  # fmt: skip
        platform = Platform.OWN
    else:
        reported = list(binlog(server, reader_id, alone=True))
        platform = server.platform
    answers = tuple(
        GuardAnswer(NAME, one.part, server.name, one.state, one.value, one.threshold, one.query, one.why, one.todo)
        for one in reported
    )
    blind_spots = () if server.flavor is Flavor.TIDB else BLIND_SPOTS
    return BinlogCheck(server.name, server.session.version, platform, answers, blind_spots)


def binlog(server: CheckedServer, reader_id: int | None = None, *, alone: bool = False) -> Iterator[CheckResult]:
    """Judge settings, logs, replicas, sessions, columns and foreign keys of a source.

    With ``alone``, grants, clock and keys too: the guard of settings has questions of its own for these.
    """
    if server.flavor is Flavor.TIDB:
        return
    if server.flavor is Flavor.MARIADB:
        yield _result("log_bin", AnswerState.FAIL, "MariaDB", "MySQL", "SELECT VERSION()",
                    "Only MySQL's binlog can be read.", "Verify whole tables; changes cannot be followed.")  # fmt: skip
        return
    for setting in SETTINGS:
        yield _setting(server, setting)
    yield _retention(server)
    if alone:
        yield from _grants(server)
    yield from _logs(server)
    yield from _replica(server)
    yield _sessions(server)
    yield _server_id(server, reader_id)
    if alone:
        yield _clock(server)
        yield from _unfollowed(server)
    if server.tables:
        yield from columns(server.tables)
        yield _cascades(server, {(t.ref.database, t.ref.table) for t in server.tables})


def _result(
    name: str, state: AnswerState, value: str, wanted: str, query: str, why: str, todo: str = ""
) -> CheckResult:
    return CheckResult(state, value, "" if state is AnswerState.PASS else todo, name, wanted, query, why)


def _answer(ask: Callable[[], T]) -> T | Refusal:
    """Return what ``ask`` returns, or the server's refusal as a value; a lost connection still raises."""
    try:
        return ask()
    except RetryableReadError:
        raise
    except (ReadError, PrivilegeError) as error:
        return error


def _refused(server: CheckedServer, name: str, wanted: str, query: str, why: str, refusal: Refusal) -> CheckResult:
    """Return what a question gives that the server did not answer, with the grant where it names one."""
    needed = re.search(r"at least one of\) the (.+?) privilege", refusal.message)
    todo = refusal.hint
    if needed is not None:
        todo = f"GRANT {needed[1].split(',')[-1].strip()} ON *.* TO {_account(server)};"
    return _result(name, AnswerState.INCONCLUSIVE, _first_line(refusal), wanted, query, why, todo)


def _first_line(refusal: MigverifyError) -> str:
    """Return the server's words without the statement below them."""
    return refusal.message.split("\n")[0]


def _account(server: CheckedServer) -> str:
    return account_text(server.session.query(ACCOUNT)[0][0] or "")


# --- settings -------------------------------------------------------------------------------------------------------


def _setting(server: CheckedServer, setting: BinlogSetting) -> CheckResult:
    """Judge one variable by its row of the settings."""
    name = next((n for n in setting.names if n in server.variables), "")
    shown = name or setting.names[0]
    query = f"SHOW GLOBAL VARIABLES LIKE '{shown}'"
    if not name:
        return _result(shown, setting.absent, setting.absent_means, setting.wanted, query, setting.why, setting.todo)
    value = server.variables[name]
    todo = remedy(setting, name, server.number, server.flavor, server.platform)
    return _result(name, setting.state(value), value or "''", setting.wanted, query, setting.why, todo)


def _retention(server: CheckedServer) -> CheckResult:
    if server.platform is not Platform.OWN:
        return _rds_retention(server)
    auto = "binlog_expire_logs_auto_purge"
    if server.variables.get(auto, "ON").upper() in ("OFF", "0"):
        return _result(auto, AnswerState.PASS, "OFF", "OFF, or long retention", f"SHOW GLOBAL VARIABLES LIKE '{auto}'",
                     "Nothing is purged by itself; watch the disk.")  # fmt: skip
    # MySQL 8.0 has both variables and lets the old one count only where the new one is 0.
    seconds, days = RETENTION
    has_seconds = seconds.names[0] in server.variables
    old_counts = server.variables.get(seconds.names[0]) == "0" and days.names[0] in server.variables
    return _setting(server, seconds if has_seconds and not old_counts else days)


def _rds_retention(server: CheckedServer) -> CheckResult:
    name, wanted = "binlog retention hours", "24 or more"
    why = ("NULL means that a log is removed as soon as the service does not need it, often within minutes, read or"
           " not; binlog_expire_logs_seconds does not count here.")  # fmt: skip
    todo = "CALL mysql.rds_set_configuration('binlog retention hours', 168);"
    rows = _answer(lambda: server.session.query(RETENTION_CALL))
    if isinstance(rows, Refusal):
        state, value = AnswerState.INCONCLUSIVE, _first_line(rows)
        todo = f"GRANT EXECUTE ON PROCEDURE mysql.rds_show_configuration TO {_account(server)};"
    else:
        value = {row[0]: row[1] or "NULL" for row in rows if len(row) > 1}.get(name, "not listed")
        if value.upper() == "NULL":
            state, value = AnswerState.FAIL, "NULL"
        elif not value.isdigit():
            state = AnswerState.INCONCLUSIVE
        else:
            state = AnswerState.WARN if int(value) * 3600 < DAY else AnswerState.PASS
    return _result(name, state, value, wanted, RETENTION_CALL, why, todo)


# --- grants, logs, replicas, sessions, clock ------------------------------------------------------------------------


def _grants(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask for the two grants of a reader.

    A grant is proved by using it: SHOW GRANTS does not name what comes through roles that are not active.
    """
    for grant, statements, why in _GRANTS:
        query, todo = statements[0], f"GRANT {grant} ON *.* TO {_account(server)};"
        refused: object = _answer(lambda words=statements: first_known(server.session, words))  # type: ignore[misc]
        if isinstance(refused, PrivilegeError):
            yield _result(grant, AnswerState.FAIL, "missing", "granted", query, why, todo)
        elif isinstance(refused, ReadError):
            yield _refused(server, grant, "granted", query, why, refused)
        else:
            yield _result(grant, AnswerState.PASS, "granted", "granted", query, why)


def _logs(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which logs there are, how large, and what is left out of them."""
    query, why = LOGS, "What is older than the first log can be verified by reading tables only."
    files = _answer(lambda: binary_logs(server.session))
    status = _answer(lambda: binlog_status(server.session))
    if isinstance(files, Refusal):
        yield _refused(server, "binary logs", "at least one", query, why, files)
        return
    if isinstance(status, Refusal):
        yield _refused(server, "binary logs", "at least one", query, why, status)
        return
    if not files:
        yield _result("binary logs", AnswerState.FAIL, "none", "at least one", query, why, "Turn log_bin on.")
        return
    sizes = [log.size for log in files]
    purged = server.variables.get("gtid_purged", "").replace("\n", "")
    value = f"oldest {files[0].name}{_age(server, files[0])}, {len(files)} files, {sum(sizes)} bytes"
    value += f", purged {purged if len(purged) <= 120 else purged[:117] + '...'}" if purged else ""
    yield _result("binary logs", AnswerState.PASS, value, "at least one", query, why)
    largest, limit = max(sizes, default=0), server.variables.get("max_binlog_cache_size", "") or "unknown"
    yield _result(
        "transaction size", AnswerState.WARN if largest >= OFFSET_BYTES else AnswerState.PASS,
        f"largest log {largest} bytes, max_binlog_cache_size {limit}", "no log above 4 GiB", query,
        "Offsets in events have 32 bits, and a transaction is never split: a large one makes a large file.",
        "Resume by GTIDs only, and keep bulk changes in smaller transactions.",
    )  # fmt: skip
    filters = [f"{name} {value}" for name, value in (status.filters if status is not None else {}).items()]
    yield _result(
        "binlog filters", AnswerState.FAIL if filters else AnswerState.PASS, "; ".join(filters) or "none", "none",
        BINLOG_STATUS[0],
        "A filter keeps databases out of the log, and nothing in the log says so.",
        "Remove binlog-do-db and binlog-ignore-db from the option file; restart.",
    )  # fmt: skip


def _age(server: CheckedServer, log: BinaryLog) -> str:
    if server.begun is None:
        return ""
    try:
        moment = datetime.fromtimestamp(server.begun(log.name), UTC)
    except MigverifyError as error:  # without the grant the stream does not come; that has a question of its own
        return f" (its age is unknown: {_first_line(error)})"
    return f" of {moment:%Y-%m-%d %H:%M:%SZ}"


def _replica(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether the source is a replica itself, and then whether its log holds what it replicates."""
    wanted, query = "ON where the source is a replica", REPLICA[0]
    name = next((n for n in REPLICA_UPDATES.names if n in server.variables), REPLICA_UPDATES.names[0])
    channels = _answer(lambda: replica_status(server.session)[1])
    if isinstance(channels, Refusal):
        yield _refused(server, name, wanted, query, REPLICA_UPDATES.why, channels)
        return
    if not channels:
        yield _result(name, AnswerState.PASS, "the source is no replica", wanted, query, REPLICA_UPDATES.why)
        return
    yield _setting(server, REPLICA_UPDATES)
    harmless = {"replicate_ignore_server_ids", "replicate_rewrite_db"}
    bad = [f"{key} {value}" for channel in channels for key, value in channel.columns.items()
           if key.startswith("replicate_") and value and key not in harmless]  # fmt: skip
    if not all(channel.applier_runs for channel in channels):
        bad.append("its applier is stopped")
    yield _result(
        "replica", AnswerState.WARN if bad else AnswerState.PASS, "; ".join(bad) or "runs without filters",
        "runs without filters",
        query, "The binlog of a replica holds what the replica applied, and no more.",
        "Read from the primary, or verify the filtered tables apart.",
    )  # fmt: skip


def _server_id(server: CheckedServer, reader_id: int | None) -> CheckResult:
    """Ask which server ids are taken; a reader needs one of its own."""
    name, wanted, query = "server_id of the reader", "used by nobody", REPLICAS[0]
    why = "Two readers of one server_id end each other's stream."
    readers = _answer(lambda: replica_ids(server.session)[1])
    if isinstance(readers, Refusal):
        reported = _refused(server, name, wanted, query, why, readers)
        # Without a requested one, the reader takes a number at random out of two thousand million.
        state = reported.state if reader_id is not None else AnswerState.WARN
        return _result(name, state, reported.value, wanted, query, why, reported.todo)
    taken = readers | {server.variables.get("server_id", "")}
    numbers = ", ".join(sorted(taken - {""}, key=lambda t: (len(t), t)))
    if reader_id is not None and str(reader_id) in taken:
        return _result(name, AnswerState.FAIL, f"{reader_id} is taken", wanted, query, why,
                     f"Choose another; taken are {numbers}.")  # fmt: skip
    free = f"{reader_id} is free" if reader_id is not None else "chosen when reading"
    return _result(name, AnswerState.PASS, f"{free}; taken: {numbers}", wanted, query, why)


def _sessions(server: CheckedServer) -> CheckResult:
    """Ask which sessions have values of their own now."""
    name, wanted = "sessions", "none with values of their own"
    why = "These settings can be set by a session for itself; a session keeps its value while the global one changes."
    rows = _answer(lambda: server.session.query(BINLOG_OVERRIDES))
    if isinstance(rows, Refusal):
        # Not INCONCLUSIVE: sessions of the next minute are no better known; it is a blind spot either way.
        todo = "Nothing here tells; ask the owners of long-lived sessions."
        if isinstance(rows, PrivilegeError):
            todo = f"GRANT SELECT ON performance_schema.* TO {_account(server)}; to see them."
        return _result(name, AnswerState.WARN, _first_line(rows), wanted, BINLOG_OVERRIDES, why, todo)
    bad = [f"{count} with {variable} = {value or repr('')}" for variable, value, count in rows
           if (value or "").upper() != _GOOD.get(variable or "", "")]  # fmt: skip
    todo = "Find them in performance_schema.variables_by_thread, and let them reconnect."
    return _result(
        name,
        AnswerState.WARN if bad else AnswerState.PASS,
        "; ".join(bad) or "none",
        wanted,
        BINLOG_OVERRIDES,
        why,
        todo,
    )


def _clock(server: CheckedServer) -> CheckResult:
    clock = server.clock
    state = AnswerState.PASS if abs(clock.offset) <= CLOCK_SECONDS + clock.uncertainty else AnswerState.WARN
    return _result("clock", state, f"{clock.offset:+.1f} s", f"within {CLOCK_SECONDS:g} s of this machine", CLOCK,
                 "Lag and settle times compare the source's commit times with this machine's clock.",
                 "Let both hosts follow the same time source.")  # fmt: skip


# --- tables ---------------------------------------------------------------------------------------------------------


def _unfollowed(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which tables cannot be followed row by row."""
    query, tables = "SHOW CREATE TABLE", server.tables
    if not tables:
        yield _result("tables", AnswerState.INCONCLUSIVE, "none in scope", "at least one", "information_schema.TABLES",
                    "Nothing would be covered.", "Look at tables.include of the configuration.")  # fmt: skip
        return
    keyless = [str(t.ref) for t in tables if not any(i.primary for i in t.indexes)]
    yield _list("tables without a primary key", keyless, f"{len(tables)}", query,
                "Rows that cannot be distinguished cannot be followed: these tables are compared whole.",
                "Add a primary key, or plan a full comparison of these at the end.")  # fmt: skip
    unsafe = [f"{t.ref} ({t.engine})" for t in tables if t.engine and t.engine.lower() not in TRANSACTIONAL]
    yield _list("tables of other engines", unsafe, f"{len(tables)}", query,
                "Their writes are not undone with the transaction, and half a statement is in no log after a crash.",
                "ALTER TABLE ... ENGINE = InnoDB.")  # fmt: skip


def _list(
    name: str, found: Sequence[str], among: str, query: str, why: str, todo: str, state: AnswerState = AnswerState.WARN
) -> CheckResult:
    none = "none" if among.endswith("tables") else f"none in {among}"
    value = f"{len(found)} in {among}: {listed(found)}" if found else none
    return _result(name, state if found else AnswerState.PASS, value, "none", query, why, todo)


_DIGITS = re.compile(r"(?:float|double|real)\(\d+,\d+\)", re.IGNORECASE)


def columns(tables: Sequence[TableDef]) -> Iterator[CheckResult]:
    """Ask which columns of the tables in scope have another text in the binlog than SELECT prints, or none at all.

    A table map names types and sizes, not how a value is displayed: ZEROFILL and the digits of FLOAT(M,D) are in the
    catalog only.
    """
    among, query = f"{len(tables)} tables", "information_schema.COLUMNS"
    every = [(f"{t.ref}.{c.name}", c) for t in tables for c in t.columns]
    yield _list("VECTOR columns", [name for name, c in every if c.data_type == "vector"], f"{len(tables)}",
                "SHOW CREATE TABLE",
                "Floats in bytes: they can be compared by nothing but their bytes, and other readers fail on them.",
                "Compare them apart, or leave the columns out.")  # fmt: skip
    yield _list("ZEROFILL columns",
                [f"{name} ({c.column_type})" for name, c in every if "zerofill" in c.column_type.lower()], among, query,
                "The stream gives `42` where SELECT prints `000042`: a binlog does not say ZEROFILL.",
                "Compare them as numbers, as `tables`, `changes audit` and `tables watch` do; pad where you read the"
                " stream.")  # fmt: skip
    yield _list("FLOAT(M,D) and DOUBLE(M,D) columns",
                [f"{name} ({c.column_type})" for name, c in every if _DIGITS.search(c.column_type)], among, query,
                "SELECT rounds them to D digits; the stream gives the value, as the binlog does not say M and D.",
                "Compare them as numbers, as `tables`, `changes audit` and `tables watch` do; or use DECIMAL.",
                )  # fmt: skip


def _cascades(server: CheckedServer, scope: set[tuple[str, str]]) -> CheckResult:
    """Foreign keys that InnoDB itself carries out change child rows without a trace in the binlog."""
    name, wanted = "cascading foreign keys", "none, or carried out above the engine"
    why = "ON DELETE CASCADE and its like change child rows inside InnoDB: those changes are in no binlog."
    native = "innodb_native_foreign_keys"
    if server.variables.get(native, "").upper() in ("OFF", "0"):
        return _result(name, AnswerState.PASS, f"{native} is OFF: cascades are logged", wanted,
                     f"SHOW GLOBAL VARIABLES LIKE '{native}'", why)  # fmt: skip
    cascading: list[str] = []
    hidden: list[str] = []
    databases = sorted({database for database, _ in scope})
    for database in databases:
        rules = _answer(lambda database=database: _rules(server, database))  # type: ignore[misc]
        if isinstance(rules, Refusal):
            return _refused(server, name, wanted, referential_rules(database), why, rules)
        for (table, key), acts in rules.items():
            if (database, table) in scope and (acts is None or acts & CASCADING):
                (hidden if acts is None else cascading).append(f"{database}.{table} ({key})")
    query = "; ".join(referential_rules(database) for database in databases)
    if hidden and not cascading:
        # An empty list of what a user may not see is no proof that there is nothing.
        grant = f"GRANT REFERENCES ON <database>.* TO {_account(server)}; shows them."
        value = f"the rules of {len(hidden)} keys are hidden from this user: {listed(hidden)}"
        return _result(name, AnswerState.INCONCLUSIVE, value, wanted, query, why, grant)
    value = f"{len(cascading)} in {len(scope)}: {listed(cascading)}" if cascading else f"none in {len(scope)}"
    return _result(name, AnswerState.FAIL if cascading else AnswerState.PASS, value, wanted, query, why,
                 "Verify the child tables by reading them whole; changes of theirs cannot be followed.")  # fmt: skip


def _rules(server: CheckedServer, database: str) -> dict[tuple[str, str], frozenset[str] | None]:
    """Return what each foreign key (table, name) does to child rows; None where the server hides that from the user."""
    rules: dict[tuple[str, str], frozenset[str] | None] = {
        (table or "", key or ""): None for table, key in server.session.query(foreign_keys(database))
    }
    for table, key, *acts in server.session.query(referential_rules(database)):
        rules[table or "", key or ""] = frozenset((act or "").upper() for act in acts)
    return rules
