"""What a source says when it is asked: rights, logs, replicas, sessions (for ``migverify.changes.preflight``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol, TypeVar

from migverify.changes.preflight_settings import OFFSET_BYTES, REPLICA_UPDATES, Platform, Setting, State, remedy
from migverify.errors import MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Flavor
from migverify.sql.grants import account_text

T = TypeVar("T")
Refusal = ReadError | PrivilegeError
Named = list[dict[str, str]]

OVERRIDES = (
    "SELECT VARIABLE_NAME, VARIABLE_VALUE, COUNT(*) FROM performance_schema.variables_by_thread"
    " WHERE VARIABLE_NAME IN ('binlog_format', 'binlog_row_image', 'binlog_row_value_options',"
    " 'binlog_transaction_compression', 'sql_log_bin') GROUP BY VARIABLE_NAME, VARIABLE_VALUE"
)
_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
_REPLICAS = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
_REPLICATION = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
_OTHER_WORDS = {"REPLICATION SLAVE": "REPLICATION REPLICA", "REPLICATION CLIENT": "BINLOG MONITOR"}
_RIGHTS = (
    ("REPLICATION SLAVE", _REPLICAS, "The server sends its binlog to nobody without it."),
    ("REPLICATION CLIENT", _STATUS, "Without it the list of logs and the current position stay unknown."),
)
_GOOD = {
    "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": "", "sql_log_bin": "ON",
    "binlog_transaction_compression": "OFF",
}  # fmt: skip


class Server(Protocol):
    """The part of a session that the questions need."""

    @property
    def flavor(self) -> Flavor:
        """What kind of server answers."""
        ...

    @property
    def version(self) -> str:
        """Its own words for its version."""
        ...

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """Run one statement; every value is the server's text."""
        ...

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        """Run one statement; rows as column name -> text."""
        ...


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question.

    ``query`` is a statement that shows ``value`` again. ``todo`` is empty when there is nothing to do.
    """

    name: str
    state: State
    value: str
    wanted: str
    query: str
    why: str
    todo: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What the questions share: the session, all global variables, who runs the server, its version's numbers.

    ``begun`` returns the Unix time at which a log of this name was begun; None where nobody can ask.
    """

    session: Server
    variables: dict[str, str]
    platform: Platform
    number: tuple[int, ...]
    begun: Callable[[str], float] | None = None


def answer(ask: Callable[[], T]) -> T | Refusal:
    """Return what ``ask`` returns, or the server's refusal as a value; a lost connection still raises."""
    try:
        return ask()
    except RetryableReadError:
        raise
    except (ReadError, PrivilegeError) as error:
        return error


def untold(known: Known, name: str, wanted: str, query: str, why: str, refusal: Refusal) -> Finding:
    """Return the finding of a question that the server did not answer, with the grant where it names one."""
    needed = re.search(r"at least one of\) the (.+?) privilege", refusal.message)
    todo = refusal.hint
    if needed is not None:
        todo = f"GRANT {needed[1].split(',')[-1].strip()} ON *.* TO {account(known.session)};"
    return Finding(name, State.INCONCLUSIVE, first_line(refusal), wanted, query, why, todo)


def first_line(refusal: Refusal) -> str:
    """Return the server's words without the statement below them."""
    return refusal.message.split("\n")[0]


def judged(known: Known, setting: Setting) -> Finding:
    """Judge one variable by its row of the settings."""
    name = next((n for n in setting.names if n in known.variables), "")
    shown = name or setting.names[0]
    query = f"SHOW GLOBAL VARIABLES LIKE '{shown}'"
    if not name:
        todo = "" if setting.absent is State.PASS else setting.todo
        return Finding(shown, setting.absent, setting.absent_means, setting.wanted, query, setting.why, todo)
    value = known.variables[name]
    state = setting.state(value)
    todo = "" if state is State.PASS else remedy(setting, name, known.number, known.session.flavor, known.platform)
    return Finding(name, state, value or "''", setting.wanted, query, setting.why, todo)


def account(session: Server) -> str:
    """Return the account that the session runs as, quoted for GRANT."""
    return account_text(session.query("SELECT CURRENT_USER()")[0][0] or "")


def rights(known: Known) -> Iterator[Finding]:
    """Ask for the two grants of a reader.

    A right is proved by using it: SHOW GRANTS does not say what comes through roles that are not active. MariaDB's
    statements want other rights than the stream itself, so there the grants are read.
    """
    listed = " ".join(row[0] or "" for row in known.session.query("SHOW GRANTS")).upper()
    for grant, statements, why in _RIGHTS:
        todo = f"GRANT {grant} ON *.* TO {account(known.session)};"
        if known.session.flavor is Flavor.MARIADB:
            held = any(word in listed for word in (grant, _OTHER_WORDS[grant], "ALL PRIVILEGES ON *.*"))
            refused: object = None if held else PrivilegeError("missing")
            query = "SHOW GRANTS"
        else:
            refused = answer(lambda words=statements: _ask(known.session, words))  # type: ignore[misc]
            query = statements[0]
        if isinstance(refused, PrivilegeError):
            yield Finding(grant, State.FAIL, "missing", "granted", query, why, todo)
        elif isinstance(refused, ReadError):
            yield untold(known, grant, "granted", query, why, refused)
        else:
            yield Finding(grant, State.PASS, "granted", "granted", query, why)


def logs(known: Known) -> Iterator[Finding]:
    """Ask which logs there are, how large, and what is kept out of them."""
    query, why = "SHOW BINARY LOGS", "What is older than the first log can be verified by reading tables only."
    rows = answer(lambda: _ask(known.session, (query,))[0])
    status = answer(lambda: _ask(known.session, _STATUS)[0])
    for refusal in (rows, status):
        if isinstance(refusal, Refusal):
            yield untold(known, "binary logs", "at least one", query, why, refusal)
            return
    if isinstance(rows, Refusal) or isinstance(status, Refusal):
        return  # said above; for the type checker
    if not rows:
        yield Finding("binary logs", State.FAIL, "none", "at least one", query, why, "Turn log_bin on.")
        return
    sizes = [int(row["file_size"]) for row in rows if row.get("file_size", "").isdigit()]
    purged = known.variables.get("gtid_purged", "").replace("\n", "")
    value = f"oldest {rows[0].get('log_name')}{_begun(known, rows[0])}, {len(rows)} files, {sum(sizes)} bytes"
    value += f", purged {purged if len(purged) <= 120 else purged[:117] + '...'}" if purged else ""
    yield Finding("binary logs", State.PASS, value, "at least one", query, why)
    yield _transaction_size(known, max(sizes, default=0))
    filters = [f"{name} {row[name]}" for row in status for name in ("binlog_do_db", "binlog_ignore_db")
               if row.get(name)]  # fmt: skip
    yield Finding(
        "binlog filters", State.FAIL if filters else State.PASS, "; ".join(filters) or "none", "none", _STATUS[0],
        "A filter keeps databases out of the log, and nothing in the log says so.",
        "Remove binlog-do-db and binlog-ignore-db from the option file; restart." if filters else "",
    )  # fmt: skip


def _begun(known: Known, row: dict[str, str]) -> str:
    if known.begun is None:
        return ""
    try:
        moment = datetime.fromtimestamp(known.begun(row.get("log_name", "")), UTC)
    except MigverifyError as error:  # without the grant the stream does not come; that is said by its own finding
        return f" (its age is unknown: {error.message.splitlines()[0]})"
    return f" of {moment:%Y-%m-%d %H:%M:%SZ}"


def _transaction_size(known: Known, largest_file: int) -> Finding:
    limit = known.variables.get("max_binlog_cache_size", "") or "unknown"
    far = largest_file >= OFFSET_BYTES
    return Finding(
        "transaction size", State.WARN if far else State.PASS,
        f"largest log {largest_file} bytes, max_binlog_cache_size {limit}", "no log above 4 GiB", "SHOW BINARY LOGS",
        "Offsets in events have 32 bits, and a transaction is never split: a large one makes a large file.",
        "Resume by GTIDs only, and keep bulk changes in smaller transactions." if far else "",
    )  # fmt: skip


def replica(known: Known) -> Iterator[Finding]:
    """Ask whether the source is a replica itself, and then whether its log holds what it replicates."""
    wanted, query = "ON where the source is a replica", _REPLICATION[0]
    name = next((n for n in REPLICA_UPDATES.names if n in known.variables), REPLICA_UPDATES.names[0])
    rows = answer(lambda: _ask(known.session, _REPLICATION)[0])
    if isinstance(rows, Refusal):
        yield untold(known, name, wanted, query, REPLICA_UPDATES.why, rows)
        return
    if not rows:
        yield Finding(name, State.PASS, "the source is no replica", wanted, query, REPLICA_UPDATES.why)
        return
    yield judged(known, REPLICA_UPDATES)
    told = {"replicate_ignore_server_ids", "replicate_rewrite_db"}
    bad = [f"{key} {row[key]}" for row in rows for key in row
           if key.startswith("replicate_") and row[key] and key not in told]  # fmt: skip
    if any(row.get(key) == "No" for row in rows for key in ("replica_sql_running", "slave_sql_running")):
        bad.append("its applier is stopped")
    yield Finding(
        "replica", State.WARN if bad else State.PASS, "; ".join(bad) or "runs without filters", "runs without filters",
        query, "The binlog of a replica holds what the replica applied, and no more.",
        "Read from the primary, or verify the filtered tables apart." if bad else "",
    )  # fmt: skip


def server_ids(known: Known, reader_id: int | None) -> Iterator[Finding]:
    """Ask which server ids are taken; a reader needs one of its own."""
    name, wanted, query = "server_id of the reader", "used by nobody", _REPLICAS[0]
    why = "Two readers of one server_id end each other's stream."
    rows = answer(lambda: _ask(known.session, _REPLICAS)[0])
    if isinstance(rows, Refusal):
        found = untold(known, name, wanted, query, why, rows)
        # Without a wish for one, the reader takes a number at random out of two thousand million.
        yield found if reader_id is not None else replace(found, state=State.WARN)
        return
    taken = {row.get("server_id", "") for row in rows} | {known.variables.get("server_id", "")}
    listed = ", ".join(sorted(taken - {""}, key=lambda t: (len(t), t)))
    if reader_id is not None and str(reader_id) in taken:
        yield Finding(name, State.FAIL, f"{reader_id} is taken", wanted, query, why,
                      f"Choose another; taken are {listed}.")  # fmt: skip
        return
    free = f"{reader_id} is free" if reader_id is not None else "chosen when reading"
    yield Finding(name, State.PASS, f"{free}; taken: {listed}", wanted, query, why)


def sessions(known: Known) -> Iterator[Finding]:
    """Ask which sessions have values of their own now."""
    name, wanted = "sessions", "none with values of their own"
    why = "These settings can be set by a session for itself; a session keeps its value while the global one changes."
    rows = answer(lambda: known.session.query(OVERRIDES))
    if isinstance(rows, Refusal):
        # Not INCONCLUSIVE: sessions of the next minute are no better known; it is a blind spot either way.
        todo = "Nothing here tells; ask the owners of long-lived sessions."
        if isinstance(rows, PrivilegeError):
            todo = f"GRANT SELECT ON performance_schema.* TO {account(known.session)}; to see them."
        yield Finding(name, State.WARN, first_line(rows), wanted, OVERRIDES, why, todo)
        return
    bad = [f"{count} with {variable} = {value or repr('')}" for variable, value, count in rows
           if (value or "").upper() != _GOOD.get(variable or "", "")]  # fmt: skip
    todo = "Find them in performance_schema.variables_by_thread, and let them reconnect." if bad else ""
    yield Finding(name, State.WARN if bad else State.PASS, "; ".join(bad) or "none", wanted, OVERRIDES, why, todo)


def _ask(session: Server, statements: Sequence[str]) -> tuple[Named, str]:
    """Run the first statement that the server knows; column names in lower case. Returns rows and the statement."""
    for statement in statements[:-1]:
        rows = answer(lambda words=statement: session.query_named(words))  # type: ignore[misc]
        if isinstance(rows, PrivilegeError):
            raise rows
        if not isinstance(rows, ReadError):
            return _lower(rows), statement
        # Servers know either the new words or the old ones: the last statement's refusal counts.
    return _lower(session.query_named(statements[-1])), statements[-1]


def _lower(rows: list[dict[str, str | None]]) -> Named:
    return [{name.lower(): value or "" for name, value in row.items()} for row in rows]
