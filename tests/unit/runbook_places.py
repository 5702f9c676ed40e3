"""Stores of runs for tests, and journals that are saved, looked at and tampered with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import delete, insert, update

from migverify.codec import parse_json
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.record.run_store import RunStore, open_run_store
from migverify.store import journals, schema
from migverify.store.database import Connection, Database

VARIABLE = "RUNBOOK_TEST_PLACE"
"""Where the tests' runs live: ``folder``, or a store's URL."""
ON_THE_DISK = journals._PREPARE["sqlite"]
# kill -9 loses nothing that was written: tests do not wait for a disk.
journals._PREPARE["sqlite"] = ("PRAGMA synchronous=OFF",)


def place(folder: Path, clock: Clock = system_clock) -> RunStore:
    """Return the store of tests that have a folder."""
    where = os.environ.get(VARIABLE, "folder")
    if where == "folder":
        return RunStore(folder, clock=clock)
    return RunStore(folder / "here", open_run_store(where).database, clock=clock)


def age_leases(record: RunRecord) -> None:
    """Let a minute pass by the database's clock, as the test's own clock says."""
    column = schema.runbook_leases.c.renewed
    record.journal.database.write("", lambda c: c.execute(update(schema.runbook_leases).values(renewed=column - 60.0)))


@contextmanager
def living_in(where: str) -> Iterator[None]:
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = where
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def saved(record: RunRecord) -> Path:
    """Save the journal of a run as a file, as it is now."""
    path = record.folder / "journal.jsonl"
    path.write_bytes(b"".join(record.journal.lines()))
    return path


def data_of(folder: Path, run: str) -> bytes:
    """Return the journal of a run as bytes, a line an event."""
    return b"".join(RunStore(folder).open_journal(run).lines())


def rewrite(folder: Path, run: str, data: bytes, database: Database | None = None) -> None:
    """Put other lines in the place of a journal, as whoever owns the database can; empty: the run is gone."""
    lines = data.splitlines()
    events, runs = schema.runbook_events, schema.runbook_runs

    def work(connection: Connection) -> None:
        connection.execute(delete(events).where(events.c.run == run))
        if not lines:
            connection.execute(delete(runs).where(runs.c.run == run))
            return
        texts = [line.decode("utf-8", "surrogateescape") for line in lines]
        rows = [{"run": run, "seq": seq, "line": text} for seq, text in enumerate(texts)]
        connection.execute(insert(events), rows)
        end = {"events": len(lines), "head": _sha(lines[-1])}
        if not connection.execute(update(runs).where(runs.c.run == run).values(end)).rowcount:
            connection.execute(insert(runs).values(run=run, position=1_000_000, **end))

    (database or RunStore(folder).database).write("", work)


def _sha(line: bytes) -> str:
    try:
        return str(parse_json(line)["sha"])
    except (ValueError, KeyError, TypeError):
        return "0" * 64
