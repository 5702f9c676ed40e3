"""How far the target has applied the source's changes: a checkpoint table, sync points, a marker, or a guess.

Each is a number that grows with the source's commits. Proof means: all that was committed on the source before the
number was taken is on the target. Time alone proves nothing; it needs a witness, a key written later whose rows are
equal.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from migverify.changes.model import Position
from migverify.changes.server import source_state
from migverify.db.session import Session
from migverify.db.snapshot import current_timestamp
from migverify.errors import ConfigError, ReadError
from migverify.model import Flavor
from migverify.sql.applied import checkpoint_sql, columns_sql, read_marker_sql, syncpoint_sql, write_marker_sql
from migverify.sql.server import ALLOW_WRITES, REFUSE_WRITES
from migverify.watch.ledger import ordinal_of

MOST_EXPECTED = 10_000
"""Markers that a stream has not come to yet, about as many seconds."""
TSO_SHIFT = 18
"""A timestamp of TiDB is milliseconds, then this many bits of a counter."""


class Applied(ABC):
    """What the target has applied of one source endpoint."""

    __slots__ = ()
    proof: bool = True
    """Whether the number is a fact of the target, not a guess."""
    writes: bool = False
    """Whether a sample writes on the source: then the watch takes one now and then."""

    @abstractmethod
    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the newest number that the target has passed, and why there is none."""

    @abstractmethod
    def sample(self, source: Session) -> int:
        """Return a number that is newer than all that is committed on the source by now."""

    def ordinal(self, target: Session) -> int | None:
        """Return the place in the source's stream that the target has applied to; None while that is not known."""
        return self.reached(target)[0]

    def unix_time(self, number: int) -> float | None:
        """Return the source's time of a number, where the number itself says it."""
        del number
        return None

    def read_to(self, ordinal: int, now: float) -> None:  # noqa: B027 - most need not know
        """Note that the stream was read to a place."""

    def passed(self, number: int, ordinal: int) -> None:  # noqa: B027 - most need not know
        """Note at which place of the stream a sample was committed."""

    def expect(self, number: int, ordinal: int) -> None:  # noqa: B027 - most need not know
        """Note that a sample was committed before a place of the stream."""

    def hold(self, ordinal: int) -> None:  # noqa: B027 - a binlog sends nothing again
        """Note that a change was sent again behind a place: what is applied now may be written over with old rows.

        The place counts as applied only when all is that was sent by now.
        """

    def lacks(self, ordinal: int) -> str:
        """Return why a stream that was read to a place cannot be the right one; empty when nothing says so."""
        del ordinal
        return ""


@dataclass(slots=True)
class SettleTime(Applied):
    """Nothing but time: what was read ``seconds`` ago should be applied by now.

    ``has_timestamps``: places are timestamps of the source, and the stream must have come ``seconds`` further as well.
    A feed without new changes shows no later write of a key, so a row may be equal because it changed back meanwhile.
    """

    seconds: float
    proof: bool = False
    has_timestamps: bool = False
    _read: deque[tuple[float, int]] = field(default_factory=deque)
    _settled: int | None = None
    _newest: int = 0
    _held: deque[tuple[float, int, int]] = field(default_factory=deque)

    def read_to(self, ordinal: int, now: float) -> None:
        """Remember when the stream came to a place."""
        self._newest = max(self._newest, ordinal)
        if not self._read or self._read[-1][1] < ordinal:
            self._read.append((now, ordinal))

    def hold(self, ordinal: int) -> None:
        """Begin the settle time anew for a place."""
        self._held.append((time.time(), self._newest, ordinal))

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the place that was read ``seconds`` ago."""
        del target
        limit = time.time() - self.seconds
        while self._read and self._read[0][0] <= limit:
            self._settled = self._read.popleft()[1]
        if self._settled is None:
            return None, "the settle time is not over yet"
        settled, further = self._settled, int(1000 * self.seconds) << TSO_SHIFT
        if self.has_timestamps:
            settled = min(settled, self._newest - further)
        while self._held and self._held[0][0] <= limit and not (
            self.has_timestamps and self._newest < self._held[0][1] + further
        ):  # fmt: skip
            self._held.popleft()
        return (min(settled, self._held[0][2] - 1) if self._held else settled), ""

    def sample(self, source: Session) -> int:
        """Return the place where the source's binlog ends."""
        return ordinal_of(source_state(source).end)


@dataclass(slots=True)
class CheckpointTable(Applied):
    """A replicator's own record on the target: DM's syncer checkpoint, or any table with file and offset.

    DM writes ``binlog_name``, ``binlog_pos`` and ``is_global`` (its row of ``is_global = 1`` counts); the lab's
    replicator ``file`` and ``offset``. Several rows (several sources in one table) are refused without ``id``.
    """

    table: str
    id: str | None = None
    _sql: str = ""

    def sample(self, source: Session) -> int:
        """Return the place where the source's binlog ends: all that is committed by now is before it."""
        return ordinal_of(source_state(source).end)

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the recorded place."""
        if not self._sql:
            self._sql = self._statement(target)
        rows = target.query(self._sql)
        if len(rows) > 1:
            raise ConfigError(
                f"checkpoint table {self.table} holds {len(rows)} rows: which one is this source's is not known",
                hint="Name the row by watch.checkpoint_id (DM: the source id; the lab: the replicator's name).",
            )
        file, offset = rows[0] if rows else (None, None)
        if not file or offset is None:
            return None, f"checkpoint table {self.table} is empty"
        return ordinal_of(Position(dm_file(file), int(offset))), "the replicator has not come to where the watch began"

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
class SyncPoints(Applied):
    """TiCDC's table of sync points, as timestamps of the source: everything up to ``primary_ts`` is on this cluster."""

    table: str

    @staticmethod
    def is_kept_in(target: Session, table: str) -> bool:
        """Whether a checkpoint table is one of sync points."""
        return {"primary_ts", "secondary_ts"} <= {row[0] for row in target.query(columns_sql(table))}

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the newest sync point."""
        rows = target.query(syncpoint_sql(self.table))
        tso = rows[0][0] if rows else None
        return None if tso is None else int(tso), f"{self.table} holds no sync point"

    def sample(self, source: Session) -> int:
        """Return the time of this machine as a timestamp; the sync points say the time themselves."""
        del source
        return int(time.time() * 1000) << TSO_SHIFT

    def unix_time(self, number: int) -> float:
        """Return the time of a sync point."""
        return (number >> TSO_SHIFT) / 1000


@dataclass(slots=True)
class Marker(Applied):
    """A row that the watch writes on the source and finds again on the target: the only write a source ever sees.

    ``on_source`` and ``on_target`` are the table's names, ``database.table``.
    """

    on_source: str
    on_target: str
    name: str
    writes: bool = True
    _ordinals: dict[int, int] = field(default_factory=dict)
    _number: int | None = None
    _reached: int | None = None
    grace: float = 5.0
    """Seconds in which a marker may come behind its place: not every carrier gives each row the place of its commit."""
    _expected: deque[tuple[int, int, float]] = field(default_factory=deque)
    _seen: int = 0
    _arrived: int = 0
    _held: deque[tuple[int | None, int]] = field(default_factory=deque)

    def sample(self, source: Session) -> int:
        """Write the next marker and return its number: the session is read-only but for this one statement."""
        if self._number is None:
            # An earlier watch of this name left one.
            self._number = self.newest(source, self.on_source)
        self._number += 1
        write = write_marker_sql(self.on_source, self.name, self._number)
        if source.flavor is Flavor.TIDB:
            # It has no read-only sessions, and refuses to make one (1235).
            source.execute(write)
            return self._number
        source.execute(ALLOW_WRITES)
        try:
            source.execute(write)
        finally:
            source.execute(REFUSE_WRITES)
        return self._number

    def reached(self, target: Session) -> tuple[int | None, str]:
        """Return the number of the newest marker that is on the target."""
        return self.newest(target, self.on_target), f"no marker of this watch is in {self.on_target} yet"

    def newest(self, session: Session, table: str) -> int:
        """Return the number of the newest marker in a table, 0 for none."""
        rows = session.query(read_marker_sql(table, self.name))
        return int(rows[0][0] or 0) if rows else 0

    def passed(self, number: int, ordinal: int) -> None:
        """Note at which place of the stream a marker was committed.

        A carrier may send it again, at a later place than that of its commit.
        """
        if number > self._arrived:
            self._ordinals.setdefault(number, ordinal)
        self._seen = max(self._seen, number)

    def expect(self, number: int, ordinal: int) -> None:
        """Remember that the stream must show a marker before it comes to a place."""
        if len(self._expected) < MOST_EXPECTED:
            self._expected.append((number, ordinal, time.monotonic()))

    def hold(self, ordinal: int) -> None:
        """Let a place wait for a marker that is written from now on: it is sent behind what was sent again."""
        number = None if self._number is None else self._number + 1
        if not self._held or self._held[-1][0] != number:
            self._held.append((number, ordinal))

    def lacks(self, ordinal: int) -> str:
        """Return that a marker is missing in a stream that was read past it."""
        while self._expected and self._expected[0][0] <= self._seen:
            self._expected.popleft()
        if not self._expected:
            return ""
        number, place, since = self._expected[0]
        if place > ordinal or time.monotonic() - since < self.grace:
            return ""
        return (
            f"the changes were read past marker {number} of {self.on_source} and do not hold it: they are"
            " those of another server, or leave its table out"
        )

    def ordinal(self, target: Session) -> int | None:
        """Return the place of the newest marker that is on the target."""
        number = self.newest(target, self.on_target)
        # A copy: the thread of the stream adds to it.
        reached = [n for n in list(self._ordinals) if n <= number]
        if reached:
            self._arrived = max(self._arrived, *reached)
            self._reached = self._ordinals[max(reached)]
            for old in reached:
                del self._ordinals[old]
        return self._reached if self._reached is None else min(self._reached, self._released(number))

    def _released(self, number: int) -> int:
        """Return the last place before those that wait for a later marker than one that is on the target."""
        while self._held:
            awaited, ordinal = self._held[0]
            if awaited is None and self._number is not None:
                awaited, self._held[0] = self._number + 1, (self._number + 1, ordinal)
            if awaited is None or awaited > number:
                return ordinal - 1
            self._held.popleft()
        return self._reached or 0


@dataclass(slots=True)
class TimedMarker(Marker):
    """A marker on a TiDB whose changes nothing carries: its place is the time at which it was written."""

    def sample(self, source: Session) -> int:
        """Write the next marker: when it is on the other side, all is that was committed before this moment."""
        place = current_timestamp(source)
        number = Marker.sample(self, source)
        self.passed(number, place)
        return number


def dm_file(name: str) -> str:
    """Return the binlog file as the server names it: DM adds its relay's number, ``bin|000001.000003``."""
    base, bar, rest = name.partition("|")
    return f"{base}.{rest.rpartition('.')[2]}" if bar else name


def applied_ordinals(applied: Mapping[int, Applied], follower: Session) -> dict[int, int]:
    """Return the place of every stream that a follower has applied to; one whose place is not known has none.

    Raises
    ------
    ReadError
        the follower does not answer.
    """
    found = {}
    for source, way in applied.items():
        try:
            ordinal = way.ordinal(follower)
        except ValueError as error:
            raise ReadError(f"the applied position of source {source} cannot be read: {error}") from error
        if ordinal is not None:
            found[source] = ordinal
    return found
