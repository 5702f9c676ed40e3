"""What the gates of a cutover read from real servers. Nothing here judges; nothing here changes data.

Probes are made by the account that the runbook names, never by the one that reads tables for comparison.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace

from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, MigverifyError, ReadError, UsageError
from migverify.model import ColumnDef, Endpoint, Flavor, Side
from migverify.runbook.actions.gate_judges import BarrierRow, NextId, Open, WriteProbe, WriteProbeResult
from migverify.sql import gates as sql
from migverify.sql.grants import check_grants
from migverify.sql.server import CLOCK

__all__ = [
    "AutoColumn", "Door", "auto_columns", "clock", "ddl_statements", "marker_of", "missing_servers", "next_ids",
    "number_at", "opened", "position_text", "probe_writes", "rows_written", "sessions", "transactions", "write_marker",
]  # fmt: skip

_CODE = re.compile(r"\[([0-9]{4})\]")
_READ_ONLY = frozenset({1290, 1836})
"""--read-only and its kin; 1792 is the session's own setting, which an application can change."""
_NOT_ALLOWED = frozenset({1044, 1142, 1143, 1227, 3118, 1130, 8121})
"""The account may not: privilege, lock, host. 1045 is not here: a wrong password says it too."""
_LOGIN = frozenset({1045, 1698})
_DUPLICATE = 1062
_LOGIN_SECONDS = 2.0
_INNODB_CACHE = 0.15
_AUTO_RANDOM = re.compile(r"auto_random\((\d+)(?:,\s*(\d+))?\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Door:
    """Where and as whom: an endpoint (with host, port and user as they are used) and the password."""

    endpoint: Endpoint
    password: str | None

    @property
    def name(self) -> str:
        """Endpoint, host and port, for a reader."""
        return f"{self.endpoint.name} {self.endpoint.host}:{self.endpoint.port}"

    def at(self, address: str) -> Door:
        """Return the same door at another ``host:port``.

        Raises
        ------
        UsageError
            that is no address.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(f"servers: {address!r} is no address", hint="Write host:port.")
        return replace(self, endpoint=replace(self.endpoint, host=host.strip("[]"), port=int(port)))


@contextmanager
def opened(door: Door, *, writes: bool = False) -> Iterator[Session]:
    """Yield a session; ``writes`` leaves out what makes a session of a source read-only.

    Raises
    ------
    EndpointError
        nothing answers, or the account is refused.
    """
    with closing(open_session(door.endpoint, door.password, side=Side.TARGET if writes else None)) as session:
        yield session


def clock(session: Session) -> float | None:
    """Return the server's time, Unix seconds."""
    seconds = session.query(CLOCK)[0][0]
    return None if seconds is None else float(seconds)


# --- probes of writing ---------------------------------------------------------------------------------------


def probe_writes(
    door: Door, tables: Sequence[str], *, login_denied: bool = False, unreachable: bool = False
) -> list[WriteProbe]:
    """Try to write no row to tables, as the application would; what was tried is rolled back.

    Parameters
    ----------
    login_denied
        A refused login counts as refused. Without it does not: a wrong password looks the same.
    unreachable
        No answer at all counts as refused: where writes are stopped in the network.
    """
    try:
        with opened(door, writes=True) as session:
            return [one for table in tables for one in _probe(door, session, table)]
    except EndpointError as error:
        return [WriteProbe(door.name, f"login of {door.endpoint.user}", _login(error, login_denied, unreachable),
                           _words(error))]  # fmt: skip


def _login(error: EndpointError, login_denied: bool, unreachable: bool) -> WriteProbeResult:
    code = _code(error)
    if code in _NOT_ALLOWED or (login_denied and code in _LOGIN):
        return WriteProbeResult.REFUSED
    if unreachable and code is None and "cannot connect" in error.message:
        return WriteProbeResult.REFUSED
    return WriteProbeResult.UNKNOWN


def _probe(door: Door, session: Session, table: str) -> Iterator[WriteProbe]:
    for statement in sql.SHORT_WAITS if session.flavor is not Flavor.TIDB else sql.SHORT_WAITS[1:]:
        session.execute(statement)
    columns = [row[0] or "" for row in session.query(sql.writable_columns(table))]
    for statement in sql.write_probes(table, columns):
        what = f"{statement.split(' ', 1)[0]} {table}"
        try:
            session.execute("START TRANSACTION")
            session.execute(statement)
        except MigverifyError as error:
            code = _code(error)
            refused = (
                WriteProbeResult.REFUSED if code in _READ_ONLY or code in _NOT_ALLOWED else WriteProbeResult.UNKNOWN
            )
            yield WriteProbe(door.name, what, refused, _words(error))
            if not session.alive():
                return
        else:
            yield WriteProbe(door.name, what, WriteProbeResult.ACCEPTED)
        finally:
            with suppress(ReadError, EndpointError):  # a session that is gone has rolled back
                session.execute("ROLLBACK")


def _code(error: MigverifyError) -> int | None:
    found = _CODE.findall(error.message)
    return int(found[-1]) if found else None


def _words(error: MigverifyError) -> str:
    return " ".join(error.message.split("\n")[0].split())[:200]


# --- what is open --------------------------------------------------------------------------------------------


def _need_process(session: Session) -> None:
    if not check_grants(session).allows("PROCESS"):
        raise ReadError(
            f"{session.endpoint.name}: {session.endpoint.user} lacks PROCESS, and sees its own sessions only",
            hint="GRANT PROCESS ON *.* shows sessions of all users.",
        )


def _processes(session: Session) -> list[dict[str, str | None]]:
    _need_process(session)
    tidb = session.flavor is Flavor.TIDB
    rows = session.query_named(sql.TIDB_SESSIONS if tidb else sql.SESSIONS)
    return [row for row in rows if row.get("Id") != str(session.thread_id)]


def sessions(session: Session, door: Door, users: Sequence[str], exempt: Sequence[str]) -> list[Open]:
    """Return sessions of ``users``; where none are named, of everybody but ``exempt`` and the server's own threads.

    Raises
    ------
    ReadError
        the account lacks PROCESS.
    """
    rows = _of(_processes(session), users, exempt)
    until = time.monotonic() + _LOGIN_SECONDS
    # A client that a locked account turns away, again and again, is in the list for the time of its login: what is
    # being logged in counts when it stays, or has become a session.
    while any(row.get("Command") == "Connect" for row in rows) and time.monotonic() < until:
        time.sleep(_LOGIN_SECONDS / 10)
        known = {row.get("Id") for row in rows}
        rows = [row for row in _of(_processes(session), users, exempt)
                if row.get("Id") in known or row.get("Command") != "Connect"]  # fmt: skip
    return [
        Open(door.name, f"{row.get('User')}@{row.get('Host')} {row.get('Command')} ({row.get('Id')})",
             float(row.get("Time") or 0))
        for row in rows
    ]  # fmt: skip


def _of(
    rows: Sequence[dict[str, str | None]], users: Sequence[str], exempt: Sequence[str]
) -> list[dict[str, str | None]]:
    others = (*exempt, "system user", "event_scheduler", "")
    return [row for row in rows
            if ((row.get("User") or "") in users if users else (row.get("User") or "") not in others)]  # fmt: skip


def transactions(session: Session, door: Door, exempt: Sequence[str] = ()) -> list[Open]:
    """Return open transactions that may write, prepared ones of XA among them; not those of sessions of ``exempt``.

    Raises
    ------
    ReadError
        the account lacks PROCESS.
    """
    _need_process(session)
    if session.flavor is Flavor.TIDB:
        rows = session.query(sql.TIDB_TRANSACTIONS)
    else:
        # INNODB_TRX shows what it showed to somebody within the last 0.1 s: asked twice, apart, and both answers count.
        readings = []
        for _ in range(2):
            time.sleep(_INNODB_CACHE)
            readings += session.query(sql.TRANSACTIONS)
        rows = list({row[0]: row for row in readings}.values())
    users = {row.get("Id"): row.get("User") or "" for row in _processes(session)} if exempt and rows else {}
    # A transaction whose session is not in the list (prepared, or ended meanwhile) is nobody's, and counts.
    return [Open(door.name, f"transaction of session {row[0]}, {row[2]} rows changed",
                 None if row[1] is None else max(0.0, float(row[1])))
            for row in rows if users.get(row[0]) not in exempt]  # fmt: skip


def ddl_statements(session: Session, door: Door) -> list[Open]:
    """Return statements of DDL that run now; on TiDB jobs that are not over."""
    if session.flavor is Flavor.TIDB:
        return [Open(door.name, f"job {row[0]}: {(row[1] or '')[:80]}") for row in session.query(sql.TIDB_DDL)]
    return [
        Open(door.name, f"DDL: {(row.get('Info') or '')[:80]}", float(row.get("Time") or 0))
        for row in _processes(session)
        if (row.get("Info") or "").lstrip().split(" ", 1)[0].lower() in sql.DDL_WORDS
    ]


# --- positions and who wrote ---------------------------------------------------------------------------------


def position_text(session: Session) -> str:
    """Return where the log of a source ends: file, offset and executed set."""
    from migverify.changes.server import source_state

    state = source_state(session)
    return f"{state.end.file}:{state.end.offset}" + (f" {state.executed}" if state.executed else "")


def rows_written(session: Session) -> dict[str, int] | None:
    """Return rows that each account's statements changed so far; None where the server does not count all of them."""
    try:
        on, disabled = session.query(sql.WRITTEN_SEEN)[0]
        lost = session.query(sql.WRITTEN_LOST)
        if on != "1" or int(disabled or 0) or not lost or int(lost[0][1] or 0):
            return None
        return {row[0] or "": int(float(row[1] or 0)) for row in session.query(sql.WRITTEN)}
    except ReadError:
        return None


# --- markers -------------------------------------------------------------------------------------------------


def marker_of(session: Session, table: str, name: str) -> tuple[BarrierRow, float] | None:
    """Return a marker and when it was written, Unix seconds of that server; None where there is none."""
    rows = session.query(sql.marker_row(table, name))
    if not rows or rows[0][0] is None or rows[0][1] is None:
        return None
    other = session.query(sql.newest_other(table, name))[0][0]
    return BarrierRow(int(rows[0][0]), None if other is None else int(other)), float(rows[0][1])


def number_at(session: Session, table: str, name: str) -> int | None:
    """Return the number of a marker at one end."""
    rows = session.query(sql.marker_row(table, name))
    return int(rows[0][0]) if rows and rows[0][0] is not None else None


def write_marker(session: Session, table: str, name: str) -> int:
    """Write a marker whose number is above every other one in its table, and return it.

    Raises
    ------
    ReadError
        the server refuses it, or it is not there afterwards.
    """
    from migverify.sql.applied import write_marker_sql

    newest, micros = session.query(sql.newest_of_all(table))[0]
    number = max(int(newest or 0) + 1, int(micros or 0))
    session.execute(write_marker_sql(table, name, number))
    if number_at(session, table, name) != number:
        raise ReadError(f"{table}: marker {name} was written and is not there", hint="Somebody else writes it too.")
    return number


# --- ids -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AutoColumn:
    """A column that the server fills; ``mask`` are the counter's bits of an AUTO_RANDOM one."""

    table: str
    column: str
    mask: int | None = None


def auto_columns(session: Session, is_in_scope: Callable[[str, str], bool]) -> list[AutoColumn]:
    """Return the columns of the tables in scope that the server fills with ids."""
    from migverify.sql.catalog import read_tables

    found = []
    for table in read_tables(session, session.endpoint.name, is_in_scope):
        name = f"{table.ref.database}.{table.ref.table}"
        for column in table.columns:
            if (random := _AUTO_RANDOM.search(column.extra)) is not None:
                found.append(AutoColumn(name, column.name, _mask(random, column)))
            elif "auto_increment" in column.extra.lower():
                found.append(AutoColumn(name, column.name))
    return found


def _mask(random: re.Match[str], column: ColumnDef) -> int:
    shard, width = int(random[1]), int(random[2] or 64)
    return (1 << (width - shard - (0 if column.unsigned else 1))) - 1


def next_ids(door: Door, columns: Sequence[AutoColumn]) -> list[NextId]:
    """Take the next id of each table through one server, and roll it back."""
    with opened(door, writes=True) as session:
        return [_next(door, session, column) for column in columns]


def _next(door: Door, session: Session, column: AutoColumn) -> NextId:
    largest: int | None = None
    try:
        value = session.query(sql.largest_id(column.table, column.column, column.mask))[0][0]
        largest = 0 if value is None else int(value)
        keys, begin, insert, ask, back = sql.id_probe(column.table, session.flavor)
        session.execute(keys)
        session.execute(begin)
        try:
            session.execute(insert)
            given = int(session.query(ask)[0][0] or 0)
        finally:
            session.execute(back)
    except MigverifyError as error:
        if not session.alive():
            raise
        return NextId(door.name, column.table, None, largest, _words(error), _code(error) == _DUPLICATE)
    if given <= 0:
        return NextId(door.name, column.table, None, largest, "no id was given")
    return NextId(door.name, column.table, given & column.mask if column.mask is not None else given, largest)


def missing_servers(session: Session, asked: int) -> list[str]:
    """Return servers of a TiDB cluster beyond those that were asked; elsewhere there are none.

    A cluster knows its servers by addresses of its own, which need not be those that clients use: they are counted.
    """
    if session.flavor is not Flavor.TIDB:
        return []
    known = [row[0] or "" for row in session.query(sql.TIDB_SERVERS)]
    if not known:
        return ["the cluster does not tell its servers"]
    return known if len(known) > asked else []
