"""Questions about a source's binlog: can it be read exactly? The conditions that are more than one variable's value.

Nothing is written, nothing is changed. What no question to the server can settle is listed as a blind spot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from migverify.db.server_state import BinaryLog, binary_logs, binlog_status, first_known, replica_ids, replica_status
from migverify.errors import MigverifyError, PrivilegeError
from migverify.figures import amount
from migverify.guards.check_basics import CLOCK_SECONDS
from migverify.guards.check_read import CheckedServer, Platform, Refusal
from migverify.guards.check_rules import Value, refusal_remedy
from migverify.guards.model import AnswerState, CheckResult, failed, first_line, listed, passed, unknown, warned
from migverify.sql.server import BINLOG_OVERRIDES, BINLOG_STATUS
from migverify.sql.settings import FOREIGN_KEYS, REFERENTIAL_RULES, global_variable, shown

DAY = 86_400
OFFSET_BYTES = 1 << 32
"""Event positions have 32 bits: beyond 4 GiB in one file they start again at 0."""
RETENTION_CALL = "CALL mysql.rds_show_configuration"
_CASCADING = frozenset({"CASCADE", "SET NULL", "SET DEFAULT"})
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


# --- retention --------------------------------------------------------------------------------------------------


def _kept(days: float) -> AnswerState:
    """Pass 0, which is for ever, and a day or more."""
    return AnswerState.PASS if days == 0 or days >= 1 else AnswerState.WARN


def _by_seconds(value: str) -> AnswerState:
    return _kept(int(value) / DAY) if value.isdigit() else AnswerState.INCONCLUSIVE


def _by_days(value: str) -> AnswerState:
    try:
        return _kept(float(value))
    except ValueError:
        return AnswerState.INCONCLUSIVE


_SECONDS = Value(("binlog_expire_logs_seconds",), right=_by_seconds, set_to=str(7 * DAY))
_DAYS = Value(("expire_logs_days",), right=_by_days, set_to="7")


def retention(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge how long binlogs are kept, by what counts on this platform and version."""
    if server.platform is not Platform.OWN:
        yield _managed_retention(server)
        return
    auto = "binlog_expire_logs_auto_purge"
    if server.variables.get(auto, "ON").upper() in ("OFF", "0"):
        yield passed("OFF", "", auto, "OFF, or long retention", global_variable(auto),
                     "Nothing is purged by itself; watch the disk.")  # fmt: skip
        return
    # MySQL 8.0 has both variables and lets the old one count only where the new one is 0.
    seconds = server.variables.get(_SECONDS.names[0])
    old_counts = seconds is None or (seconds == "0" and _DAYS.names[0] in server.variables)
    variable = _DAYS if old_counts else _SECONDS
    yield from (replace(result, part=variable.names[0]) for result in variable(server))


def _managed_retention(server: CheckedServer) -> CheckResult:
    name = "binlog retention hours"
    why = ("NULL means that a log is removed as soon as the service does not need it, often within minutes, read or"
           " not; binlog_expire_logs_seconds does not count here.")  # fmt: skip
    todo = "CALL mysql.rds_set_configuration('binlog retention hours', 168);"
    rows = server.attempt(lambda: server.session.query(RETENTION_CALL))
    if isinstance(rows, Refusal):
        state, value = AnswerState.INCONCLUSIVE, first_line(rows)
        todo = f"GRANT EXECUTE ON PROCEDURE mysql.rds_show_configuration TO {server.account};"
    else:
        value = {row[0]: row[1] or "NULL" for row in rows if len(row) > 1}.get(name, "not listed")
        if value.upper() == "NULL":
            state, value = AnswerState.FAIL, "NULL"
        elif not value.isdigit():
            state = AnswerState.INCONCLUSIVE
        else:
            state = AnswerState.WARN if int(value) * 3600 < DAY else AnswerState.PASS
    return CheckResult(state, value, todo, name, "24 or more", RETENTION_CALL, why)


# --- grants, logs, replicas, sessions, clock --------------------------------------------------------------------


def granted(server: CheckedServer, grant: str, statements: Sequence[str]) -> Iterator[CheckResult]:
    """Prove a grant by using it: SHOW GRANTS does not name what comes through roles that are not active."""
    try:
        first_known(server.session, statements)
    except PrivilegeError:
        yield failed("missing", f"GRANT {grant} ON *.* TO {server.account};")
        return
    yield passed("granted")


def logs(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which logs there are, how large, and what is left out of them."""
    files, status = binary_logs(server.session), binlog_status(server.session)
    if not files:
        yield failed("none")
        return
    sizes = [log.size for log in files]
    purged = server.variables.get("gtid_purged", "").replace("\n", "")
    value = f"oldest {files[0].name}{_age(server, files[0])}, {len(files)} files, {sum(sizes)} bytes"
    value += f", purged {purged if len(purged) <= 120 else purged[:117] + '...'}" if purged else ""
    yield passed(value)
    largest, limit = max(sizes, default=0), server.variables.get("max_binlog_cache_size", "") or "unknown"
    yield CheckResult(
        AnswerState.WARN if largest >= OFFSET_BYTES else AnswerState.PASS,
        f"largest log {largest} bytes, max_binlog_cache_size {limit}",
        "Resume by GTIDs only, and keep bulk changes in smaller transactions.", "transaction size",
        "no log above 4 GiB",
        why="Offsets in events have 32 bits, and a transaction is never split: a large one makes a large file.",
    )  # fmt: skip
    filters = [f"{name} {value}" for name, value in (status.filters if status is not None else {}).items()]
    yield CheckResult(
        AnswerState.FAIL if filters else AnswerState.PASS, "; ".join(filters) or "none",
        "Remove binlog-do-db and binlog-ignore-db from the option file; restart.", "binlog filters", "none",
        BINLOG_STATUS[0], "A filter keeps databases out of the log, and the log does not record that.",
    )  # fmt: skip


def _age(server: CheckedServer, log: BinaryLog) -> str:
    if server.begun is None:
        return ""
    try:
        moment = datetime.fromtimestamp(server.begun(log.name), UTC)
    except MigverifyError as error:  # without the grant the stream does not come; that has a question of its own
        return f" (its age is unknown: {first_line(error)})"
    return f" of {moment:%Y-%m-%d %H:%M:%SZ}"


REPLICA_UPDATES = Value(
    ("log_replica_updates", "log_slave_updates"), frozenset({"ON", "1"}), set_to="ON", dynamic=False
)


def replica(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask whether the source is a replica itself, and then whether its log holds what it replicates."""
    statement, channels = replica_status(server.session)
    if not channels:
        name = next((n for n in REPLICA_UPDATES.names if n in server.variables), REPLICA_UPDATES.names[0])
        yield passed("the source is no replica", "", name)
        return
    yield from REPLICA_UPDATES(server)
    harmless = {"replicate_ignore_server_ids", "replicate_rewrite_db"}
    bad = [f"{key} {value}" for channel in channels for key, value in channel.columns.items()
           if key.startswith("replicate_") and value and key not in harmless]  # fmt: skip
    if not all(channel.applier_runs for channel in channels):
        bad.append("its applier is stopped")
    yield CheckResult(
        AnswerState.WARN if bad else AnswerState.PASS, "; ".join(bad) or "runs without filters",
        "Read from the primary, or verify the filtered tables apart.", "replica", "runs without filters", statement,
        "The binlog of a replica holds what the replica applied, and no more.",
    )  # fmt: skip


def reader_id(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which server ids are taken; a reader needs one of its own."""
    readers, chosen = server.attempt(lambda: replica_ids(server.session)[1]), server.plan.reader_id
    if isinstance(readers, Refusal):
        if chosen is not None:
            raise readers
        # Without a requested one, the reader takes a number at random out of two thousand million.
        yield warned(first_line(readers), refusal_remedy(readers, server))
        return
    taken = readers | {server.variables.get("server_id", "")}
    numbers = ", ".join(sorted(taken - {""}, key=lambda t: (len(t), t)))
    if chosen is not None and str(chosen) in taken:
        yield failed(f"{chosen} is taken", f"Choose another; taken are {numbers}.")
        return
    free = f"{chosen} is free" if chosen is not None else "chosen when reading"
    yield passed(f"{free}; taken: {numbers}")


def sessions(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask which sessions have values of their own now."""
    rows = server.attempt(lambda: server.session.query(BINLOG_OVERRIDES))
    if isinstance(rows, Refusal):
        # Not INCONCLUSIVE: sessions of the next minute are no better known; it is a blind spot either way.
        todo = "The server does not report it; ask the owners of long-lived sessions."
        if isinstance(rows, PrivilegeError):
            todo = f"GRANT SELECT ON performance_schema.* TO {server.account}; to see them."
        yield warned(first_line(rows), todo)
        return
    bad = [f"{count} with {variable} = {value or repr('')}" for variable, value, count in rows
           if (value or "").upper() != _GOOD.get(variable or "", "")]  # fmt: skip
    yield CheckResult(AnswerState.WARN if bad else AnswerState.PASS, "; ".join(bad) or "none")


def clock(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the source's clock against this machine's."""
    offset, uncertainty = server.clock.offset, server.clock.uncertainty
    state = AnswerState.PASS if abs(offset) <= CLOCK_SECONDS + uncertainty else AnswerState.WARN
    yield CheckResult(state, f"{offset:+.1f} s")


# --- tables -----------------------------------------------------------------------------------------------------


def tables(server: CheckedServer) -> Iterator[CheckResult]:
    """Refuse an empty scope: nothing would be covered."""
    if not server.tables:
        yield unknown("none in scope")


def cascades(server: CheckedServer) -> Iterator[CheckResult]:
    """Ask for foreign keys that InnoDB itself carries out: they change child rows without a trace in the binlog."""
    native = "innodb_native_foreign_keys"
    if server.variables.get(native, "").upper() in ("OFF", "0"):
        yield passed(f"{native} is OFF: cascades are logged", query=global_variable(native))
        return
    scope = {(t.ref.database, t.ref.table) for t in server.tables}
    rules = {
        (database, *key): acts
        for database in sorted({database for database, _ in scope})
        for key, acts in _rules(server, database).items()
        if (database, key[0]) in scope
    }
    hidden = [f"{d}.{t} ({key})" for (d, t, key), acts in rules.items() if acts is None]
    cascading = [f"{d}.{t} ({key})" for (d, t, key), acts in rules.items() if acts and acts & _CASCADING]
    if hidden and not cascading:
        # An empty list of what a user may not see is no proof that there is nothing.
        grant = f"GRANT REFERENCES ON <database>.* TO {server.account}; shows them."
        yield unknown(f"the rules of {len(hidden)} keys are hidden from this user: {listed(hidden)}", grant)
        return
    among = f"in {amount(len(scope), 'table')}"
    value = f"{len(cascading)} {among}: {listed(cascading)}" if cascading else f"none {among}"
    yield CheckResult(AnswerState.FAIL if cascading else AnswerState.PASS, value)


def _rules(server: CheckedServer, database: str) -> dict[tuple[str, str], frozenset[str] | None]:
    """Return what each foreign key (table, name) does to child rows; None where the server hides that from the user."""
    rules: dict[tuple[str, str], frozenset[str] | None] = {
        (table or "", key or ""): None for _, table, key in server.session.query(shown(FOREIGN_KEYS, (database,)))
    }
    for _, table, key, *acts in server.session.query(shown(REFERENTIAL_RULES, (database,))):
        rules[table or "", key or ""] = frozenset((act or "").upper() for act in acts)
    return rules
