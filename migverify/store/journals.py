"""The tables of runs of runbooks: lines of journals, and where each one ends; what they say is not known here.

A journal ends where its row in ``migverify_runbook_runs`` says. Whoever appends locks that row first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, bindparam, event, insert, select, update

from migverify.model import Tls
from migverify.store import schema as t
from migverify.store.database import Connection, Database
from migverify.store.facts import next_number
from migverify.store.open import open_store

PAGE = 500
"""Lines of a journal that are read at once."""
_END = select(t.runbook_runs.c.events, t.runbook_runs.c.head).where(t.runbook_runs.c.run == bindparam("run_id"))
_LINES = (
    select(t.runbook_events.c.line)
    .where(t.runbook_events.c.run == bindparam("run_id"), t.runbook_events.c.seq >= bindparam("start"))
    .order_by(t.runbook_events.c.seq)
    .limit(bindparam("most"))
)
_LINES_BEFORE = _LINES.where(t.runbook_events.c.seq < bindparam("end"))
_STARTS = (
    select(t.runbook_runs.c.run, t.runbook_runs.c.events, t.runbook_runs.c.head, t.runbook_events.c.line)
    .outerjoin(
        t.runbook_events, and_(t.runbook_events.c.run == t.runbook_runs.c.run, t.runbook_events.c.seq == 0)
    )
    .order_by(t.runbook_runs.c.position)
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Where a journal ends: number of events, hash of the last one."""

    events: int
    head: str


@dataclass(frozen=True, slots=True)
class JournalStart:
    """A journal as a listing of all of them shows it: where it ends, and its first line; None: that is not there."""

    end: JournalEnd
    line: bytes | None


def end_of(connection: Connection, run: str, *, locked: bool) -> JournalEnd | None:
    """Return where a run's journal ends, its row locked or not; None: there is no row, and nothing is locked."""
    found = connection.execute(_END.with_for_update() if locked else _END, {"run_id": run}).one_or_none()
    return JournalEnd(int(found.events), str(found.head)) if found is not None else None


def lines_of(
    connection: Connection, run: str, start: int, end: int | None, *, locked: bool, most: int = PAGE
) -> list[bytes]:
    """Return a page of lines from number ``start`` to before ``end``, each with its newline.

    Parameters
    ----------
    locked
        Read what is there now: a plain read in a transaction may be of before its lock was had.
    """
    query = _LINES if end is None else _LINES_BEFORE
    values = {"run_id": run, "start": start, "most": most} | ({} if end is None else {"end": end})
    rows = connection.execute(query.with_for_update() if locked else query, values)
    return [_as_bytes(line) for line in rows.scalars()]


def _as_bytes(line: str) -> bytes:
    return line.encode("utf-8", "surrogatepass") + b"\n"


def add_lines(
    connection: Connection, run: str, start: int, lines: Sequence[bytes], end: JournalEnd, *, first: bool
) -> None:
    """Append lines (each with its newline) from number ``start`` on, under the lock; ``first``: the run begins."""
    values = {"events": end.events, "head": end.head}
    if first:
        position = next_number(connection, t.runbook_runs.c.position)
        connection.execute(insert(t.runbook_runs).values(run=run, position=position, **values))
    rows = [{"run": run, "seq": start + n, "line": line[:-1].decode("ascii")} for n, line in enumerate(lines)]
    connection.execute(insert(t.runbook_events), rows)
    if not first:
        connection.execute(update(t.runbook_runs).where(t.runbook_runs.c.run == run).values(**values))


def run_ids(connection: Connection) -> list[str]:
    """Return the ids of all runs, the one that was started first in front."""
    return [str(run) for run in connection.scalars(select(t.runbook_runs.c.run).order_by(t.runbook_runs.c.position))]


def starts(connection: Connection) -> dict[str, JournalStart]:
    """Return the start of each journal by its run, the one that was started first in front: one statement for all."""
    return {
        str(row.run): JournalStart(
            JournalEnd(int(row.events), str(row.head)), None if row.line is None else _as_bytes(row.line)
        )
        for row in connection.execute(_STARTS)
    }


def newest_run(connection: Connection) -> str | None:
    """Return the id of the run that was started last."""
    query = select(t.runbook_runs.c.run).order_by(t.runbook_runs.c.position.desc()).limit(1)
    return connection.scalar(query)


# -- opening --------------------------------------------------------------------------------------------------------

_SERVER = (
    # A connection that broke without the server's learning of it keeps its row locked, and nobody could take the run
    # over. It sleeps: the server ends it. Whoever waits asks again until then.
    "SET SESSION wait_timeout = 20",
    "SET SESSION innodb_lock_wait_timeout = 5",
)
_PREPARE = {
    "mysql": _SERVER,
    "mariadb": _SERVER,
    # The store lets a power cut take its last commits. An effect whose intent was taken would be done twice.
    "sqlite": ("PRAGMA synchronous=FULL",),
}


def _execute(connection: Any, statements: Sequence[str]) -> None:
    cursor = connection.cursor()
    for statement in statements:
        cursor.execute(statement)
    cursor.close()


def open_database(
    url: str, *, password: str | None, forbidden: Sequence[tuple[str, int]], tls: Tls | None = None
) -> Database:
    """Open a result store for runs; see ``open_store``.

    Raises
    ------
    StoreError
        the store cannot be opened.
    """
    store = open_store(url, password=password, forbidden=forbidden, tls=tls)
    prepare = _PREPARE.get(store.engine.dialect.name, ())
    event.listen(store.engine, "connect", lambda connection, _record: _execute(connection, prepare))
    store.engine.dispose()  # connections that were opened before this
    return store.database
