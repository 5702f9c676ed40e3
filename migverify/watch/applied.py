"""How far the target has applied the source's changes: a checkpoint table, a marker row, or a guess by time.

A place is a number that grows along one source's binlog (``ledger.place``). Proof means: whatever was committed on
the source at or before the place is on the target. Time alone proves nothing; who goes by it needs a witness, a key
written later whose rows are equal.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from migverify.changes.model import Position
from migverify.changes.server import source_state
from migverify.db.session import Session
from migverify.errors import ConfigError, ReadError
from migverify.sql.applied import checkpoint_sql, columns_sql, read_marker_sql, write_marker_sql
from migverify.sql.server import ALLOW_WRITES, REFUSE_WRITES
from migverify.watch.ledger import place


class Applied(Protocol):
    """What the target has applied, for one source endpoint: by its place in the source's binlog."""

    proof: bool
    """Whether the place is a fact of the target, not a guess."""

    def place(self, target: Session) -> int | None:
        """Return the place the target has applied to; None when that is not known yet."""
        ...

    def read_to(self, at: int, now: float) -> None:
        """Hear that the stream was read to a place."""
        ...


class Sampled(Protocol):
    """What the target has applied, by samples of the source: numbers that grow, each newer than what was committed."""

    def sample(self, source: Session) -> int:
        """Take a sample of the source and return its number."""
        ...

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the newest sample that the target has passed, and why there may be none of this process."""
        ...


@dataclass(slots=True)
class SettleTime:
    """Nothing but time: what was read ``seconds`` ago should be applied by now."""

    seconds: float
    proof: bool = False
    _read: deque[tuple[float, int]] = field(default_factory=deque)
    _settled: int | None = None

    def read_to(self, at: int, now: float) -> None:
        """Remember when the stream came to a place."""
        if not self._read or self._read[-1][1] < at:
            self._read.append((now, at))

    def place(self, target: Session) -> int | None:
        """Return the place that was read ``seconds`` ago."""
        del target
        limit = time.time() - self.seconds
        while self._read and self._read[0][0] <= limit:
            self._settled = self._read.popleft()[1]
        return self._settled


@dataclass(slots=True)
class CheckpointTable:
    """A replicator's own record on the target: DM's syncer checkpoint, or any table with file and offset.

    DM writes ``binlog_name``, ``binlog_pos`` and ``is_global`` (its row of ``is_global = 1`` counts); the lab's
    replicator ``file`` and ``offset``. Several rows (several sources in one table) are refused without ``id``.
    """

    table: str
    id: str | None = None
    proof: bool = True
    _sql: str = ""

    def read_to(self, at: int, now: float) -> None:
        """Take no notice: the target says itself where it stands."""

    def sample(self, source: Session) -> int:
        """Return the place where the source's binlog ends: whatever is committed by now lies before it."""
        return place(source_state(source).end)

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the recorded place."""
        at = self.place(target)
        empty = f"checkpoint table {self.table} is empty"
        return at, empty if at is None else "the replicator has not come to where the watch began"

    def place(self, target: Session) -> int | None:
        """Return the recorded place; None while there is no record."""
        if not self._sql:
            self._sql = self._statement(target)
        rows = target.query(self._sql)
        if not rows:
            return None
        if len(rows) > 1:
            raise ConfigError(
                f"checkpoint table {self.table} holds {len(rows)} rows: which one is this source's is not known",
                hint="Name the row by watch.checkpoint_id (DM: the source id; the lab: the replicator's name).",
            )
        file, offset = rows[0]
        return place(Position(dm_file(file), int(offset))) if file and offset is not None else None

    def _statement(self, target: Session) -> str:
        names = {row[0] for row in target.query(columns_sql(self.table))}
        if {"binlog_name", "binlog_pos", "is_global"} <= names:
            columns, key, only_global = ("binlog_name", "binlog_pos"), "id", True
        elif {"file", "offset"} <= names:
            columns, key, only_global = ("file", "offset"), "id" if "id" in names else "name", False
        else:
            raise ConfigError(
                f"checkpoint table {self.table} does not exist on the target, or has neither DM's columns "
                "(binlog_name, binlog_pos, is_global) nor file and offset",
                hint="DM keeps it as dm_meta.<task>_syncer_checkpoint; see watch.checkpoint in docs/configuration.md.",
            )
        return checkpoint_sql(self.table, columns, id_column=key, row=self.id, only_global=only_global)


@dataclass(slots=True)
class Marker:
    """A row that the watch writes on the source and finds again on the target: the only write a source ever sees.

    ``on_source`` and ``on_target`` are the table's names, ``database.table``. Whoever reads the stream tells the place
    of each marker (``passed``) when it comes by.
    """

    on_source: str
    on_target: str
    name: str
    proof: bool = True
    _places: dict[int, int] = field(default_factory=dict)
    _number: int | None = None
    _reached: int | None = None

    def read_to(self, at: int, now: float) -> None:
        """Take no notice: only markers count."""

    def sample(self, source: Session) -> int:
        """Write the next marker and return its number: the session is read-only but for this one statement."""
        if self._number is None:
            # An earlier watch of this name left one.
            self._number = self._newest(source, self.on_source)
        self._number += 1
        source.execute(ALLOW_WRITES)
        try:
            source.execute(write_marker_sql(self.on_source, self.name, self._number))
        finally:
            source.execute(REFUSE_WRITES)
        return self._number

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the number of the newest marker that is on the target."""
        return self._newest(target, self.on_target), f"no marker of this watch is in {self.on_target} yet"

    def _newest(self, session: Session, table: str) -> int:
        rows = session.query(read_marker_sql(table, self.name))
        return int(rows[0][0] or 0) if rows else 0

    def passed(self, number: int, at: int) -> None:
        """Hear at which place of the stream a marker was committed."""
        self._places[number] = at

    def place(self, target: Session) -> int | None:
        """Return the place of the newest marker that is on the target."""
        number = self._newest(target, self.on_target)
        reached = [n for n in self._places if n <= number]
        if reached:
            self._reached = self._places[max(reached)]
            for old in reached:
                del self._places[old]
        return self._reached


def dm_file(name: str) -> str:
    """Return the binlog file as the server names it: DM adds its relay's number, ``bin|000001.000003``."""
    base, bar, rest = name.partition("|")
    return f"{base}.{rest.rpartition('.')[2]}" if bar else name


def applied_places(applied: Mapping[int, Applied], target: Session) -> dict[int, int]:
    """Ask for the place of every source; a source whose place is unknown has none.

    Raises
    ------
    ReadError
        the target does not answer.
    """
    found = {}
    for source, one in applied.items():
        try:
            at = one.place(target)
        except ValueError as error:
            raise ReadError(f"the applied position of source {source} cannot be read: {error}") from error
        if at is not None:
            found[source] = at
    return found
