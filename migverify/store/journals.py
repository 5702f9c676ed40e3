"""The tables of runs of runbooks: lines of journals, and where each one ends; what they say is not known here.

A journal ends where its row in ``migverify_runbook_runs`` says. Whoever appends locks that row first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event, insert, select, update

from migverify.model import Tls
from migverify.store import schema as t
from migverify.store.database import Connection, Database
from migverify.store.facts import next_number
from migverify.store.open import open_store

_PAGE = 500


@dataclass(frozen=True, slots=True)
class JournalEnd:
    """Where a journal ends: number of events, hash of the last one."""

    events: int
    head: str


def end_of(connection: Connection, run: str, *, locked: bool) -> JournalEnd | None:
    """Return where a run's journal ends, its row locked or not; None: there is no row, and nothing is locked."""
    query = select(t.runbook_runs.c.events, t.runbook_runs.c.head).where(t.runbook_runs.c.run == run)
    found = connection.execute(query.with_for_update() if locked else query).one_or_none()
    return JournalEnd(int(found.events), str(found.head)) if found is not None else None


def lines_of(connection: Connection, run: str, start: int, end: int | None, *, locked: bool) -> list[bytes]:
    """Return a page of lines from number ``start`` to before ``end``, each with its newline.

    Parameters
    ----------
    locked
        Read what is there now: a plain read in a transaction may be of before its lock was had.
    """
    table = t.runbook_events
    query = select(table.c.line).where(table.c.run == run, table.c.seq >= start)
    if end is not None:
        query = query.where(table.c.seq < end)
    query = query.order_by(table.c.seq).limit(_PAGE)
    rows = connection.execute(query.with_for_update() if locked else query)
    return [row.line.encode("utf-8", "surrogatepass") + b"\n" for row in rows]


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
