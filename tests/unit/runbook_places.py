"""The places where a run can live, for tests that have to hold in each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import update

from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.record.room import FolderRoom
from migverify.runbook.record.room_db import DbRoom, open_db_room
from migverify.runbook.record.run_record import RunRecord
from migverify.store import schema

VARIABLE = "RUNBOOK_TEST_PLACE"
"""Where the tests' runs live: ``folder``, ``sqlite``, or a store's URL."""


def place(folder: Path, clock: Clock = system_clock) -> FolderRoom | DbRoom:
    """Return the room of tests that have a folder."""
    where = os.environ.get(VARIABLE, "folder")
    if where == "folder":
        return FolderRoom(folder, clock=clock)
    made = open_db_room(f"sqlite:///{folder}/runs.db" if where == "sqlite" else where, clock=clock)
    return DbRoom(made.database, here=folder / "here", clock=clock)


def age_leases(record: RunRecord) -> None:
    """Let a minute pass by the database's clock, as the test's own clock says."""
    journal: Any = record.journal
    if hasattr(journal, "database"):
        column = schema.runbook_leases.c.renewed
        journal.database.write("", lambda c: c.execute(update(schema.runbook_leases).values(renewed=column - 60.0)))


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
