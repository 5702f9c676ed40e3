"""Up to which moment the data of a source is complete: its watermark.

Never the greatest time in a table: a row with a later time may be committed before one with an earlier time. A writer
is complete up to its own clock, less the transactions that have written and not committed; a replica up to what it has
applied; a target up to what its replicator has applied; a change stream up to its server's clock, that of a TiDB up to
the watermark of its changefeed; files up to what their maker declared. What is not known is None with a reason, and
holds windows open.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from migverify.changes.manifest import read_manifest
from migverify.changes.positions import shown_timestamp, tso_time
from migverify.changes.server import source_state
from migverify.changes.storage import Storage
from migverify.db.session import Session
from migverify.errors import ChangeError, MigverifyError, PrivilegeError, ReadError
from migverify.model import Flavor
from migverify.sql.server import (
    CLOCK,
    INNODB_READ_ONLY,
    OLDEST_WRITE,
    REPLICA,
    TIDB_OLDEST_WRITE,
)
from migverify.watch.applied import TSO_SHIFT, Applied

LIST_SECONDS = 0.2
"""InnoDB's list of transactions may be a tenth of a second old: one that began since then is not on it."""

MOST_SAMPLES = 10_000


@dataclass(frozen=True, slots=True)
class SourceWatermark:
    """Up to when one source is complete.

    ``at`` is Unix time by the source's own clock: infinite where nothing writes, None where it is not known, and then
    ``reason`` says why. ``proof`` is false for a guess by time. ``offset`` is the source's clock minus the one here in
    seconds, known to within ``error``; None where there is no clock.
    """

    source: str
    at: float | None
    how: str
    reason: str = ""
    proof: bool = True
    offset: float | None = None
    error: float = 0.0


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A server's clock, read once: its Unix time, how far it is ahead of the one here, and how well that is known."""

    now: float
    offset: float
    error: float


def read_clock(session: Session, here: Callable[[], float] = time.time) -> ClockReading:
    """Read a server's clock; the answer was made between asking and hearing it."""
    asked = here()
    text = session.query(CLOCK)[0][0]
    answered = here()
    if text is None:
        raise ReadError(f"{session.endpoint.name}: the server does not tell its time")
    now = float(text)
    return ClockReading(now, now - (asked + answered) / 2, max(0.0, (answered - asked) / 2))


def spread(marks: Mapping[str, SourceWatermark]) -> float:
    """Return the greatest difference of the clocks of some sources in seconds, their uncertainty included."""
    known = [(m.offset, m.error) for m in marks.values() if m.offset is not None]
    if len({m.source for m in marks.values() if m.offset is not None}) < 2:
        return 0.0
    return max(offset + error for offset, error in known) - min(offset - error for offset, error in known)


@dataclass(slots=True)
class AppliedTime:
    """What the target has applied of one source, as a time: that of a sample of the source, or its own."""

    applied: Applied
    _samples: deque[tuple[float, int]] = field(default_factory=deque)
    _reached: float | None = None

    def sample(self, source: Session) -> None:
        """Note the source's time, then a sample: what was committed before that time is older than the sample."""
        now = read_clock(source).now
        self._samples.append((now, self.applied.sample(source)))
        if len(self._samples) > MOST_SAMPLES:
            newest = len(self._samples) - 1
            self._samples = deque(s for n, s in enumerate(self._samples) if n % 2 or n == newest)

    def reached(self, target: Session) -> tuple[float | None, str]:
        """Return the source's time up to which the target has applied, and why not where it is None."""
        number, reason = self.applied.reached(target)
        if number is None:
            return None, reason
        if (moment := self.applied.unix_time(number)) is not None:
            return moment, ""
        while self._samples and self._samples[0][1] <= number:
            self._reached = self._samples.popleft()[0]
        return self._reached, "" if self._reached else reason


def writer_mark(session: Session, name: str) -> SourceWatermark:
    """Return the watermark of a server that takes its own writes, or of a replica.

    Raises ReadError: the server does not answer.
    """
    clock = read_clock(session)
    if session.flavor is Flavor.TIDB:
        return _writer(session, name, clock)
    try:
        replica = session.query_named(REPLICA[session.flavor is Flavor.MARIADB])
    except PrivilegeError as error:
        reason = "whether it is a replica is not known without REPLICATION CLIENT"
        return SourceWatermark(name, None, "replica status", f"{reason}. {error.hint}", True, clock.offset, clock.error)
    if replica:
        return replica_mark(name, clock, replica)
    if session.flavor is Flavor.MYSQL and session.query(INNODB_READ_ONLY)[0][0] != "0":
        reason = "it is read-only and no replica by its own word (an Aurora reader?): read from the writer"
        return SourceWatermark(name, None, "replica status", reason, True, clock.offset, clock.error)
    return _writer(session, name, clock)


def _writer(session: Session, name: str, clock: ClockReading) -> SourceWatermark:
    """Return the clock, or when the oldest transaction began that has written: its rows will have times from then."""
    try:
        reported = session.query(TIDB_OLDEST_WRITE if session.flavor is Flavor.TIDB else OLDEST_WRITE)[0][0]
    except PrivilegeError:
        how = "server clock; open transactions are not seen without PROCESS"
        return SourceWatermark(name, clock.now, how, "", False, clock.offset, clock.error)
    if reported is None:
        at = clock.now if session.flavor is Flavor.TIDB else clock.now - LIST_SECONDS
        return SourceWatermark(name, at, "server clock", "", True, clock.offset, clock.error)
    # The age comes in whole seconds, cut: the transaction may be a second older.
    began = (
        (int(reported) >> TSO_SHIFT) / 1000 if session.flavor is Flavor.TIDB else clock.now - max(0, int(reported)) - 1
    )
    how = "start of the oldest open write"
    return SourceWatermark(name, min(began, clock.now), how, "", True, clock.offset, clock.error)


def replica_mark(name: str, clock: ClockReading, channels: list[dict[str, str | None]]) -> SourceWatermark:
    """Return the watermark of a replica: its clock less the seconds it is behind, over all channels."""
    behind = 0.0
    for row in channels:
        label = row.get("Channel_Name") or row.get("Connection_name") or "replication"
        for word in ("IO", "SQL"):
            running = row.get(f"Replica_{word}_Running", row.get(f"Slave_{word}_Running"))
            if running != "Yes":
                reason = f"{label} is stopped: {word} thread {running}"
                return SourceWatermark(name, None, "seconds behind its source", reason, True, clock.offset, clock.error)
        reported = row.get("Seconds_Behind_Source", row.get("Seconds_Behind_Master"))
        if reported is None:
            reason = f"{label} does not tell how far it is behind"
            return SourceWatermark(name, None, "seconds behind its source", reason, True, clock.offset, clock.error)
        behind = max(behind, float(reported))
    # Whole seconds, cut: it may be a second more.
    at = clock.now - behind - 1
    return SourceWatermark(name, at, "seconds behind its source", "", True, clock.offset, clock.error)


def settled_mark(session: Session, name: str, seconds: float, setting: str = "watch.applied") -> SourceWatermark:
    """Return the guess of a follower of whose replicator nothing is known: its clock less a settle time."""
    clock = read_clock(session)
    how = f"a guess: {seconds:g} s before its clock ({setting}: settle)"
    return SourceWatermark(name, clock.now - seconds, how, "", False, clock.offset, clock.error)


def applied_mark(
    session: Session, name: str, how: str, applied: Mapping[str, AppliedTime], sources: Mapping[str, Session]
) -> SourceWatermark:
    """Return the watermark of a target that a replicator feeds: what it has applied of every source.

    The target is asked first and the sources are noted after, so a note is never newer than what it reports.
    """
    clock = read_clock(session)
    reached: list[float] = []
    missing: list[str] = []
    for source, one in applied.items():
        at, reason = one.reached(session)
        if at is None:
            missing.append(f"{source}: {reason}")
        else:
            reached.append(at)
        one.sample(sources[source])
    if missing or not reached:
        reason = "; ".join(missing) or "no source feeds it"
        return SourceWatermark(name, None, how, reason, True, clock.offset, clock.error)
    return SourceWatermark(name, min(reached), how, "", True, clock.offset, clock.error)


def earlier_mark(one: SourceWatermark, other: SourceWatermark) -> SourceWatermark:
    """Return the watermark of a source that two things hold back: the earlier one, or the one that is not known."""
    if one.at is None or other.at is None:
        return one if one.at is None else other
    first = one if one.at <= other.at else other
    return replace(first, proof=one.proof and other.proof)


def stream_mark(session: Session, name: str) -> SourceWatermark:
    """Return the watermark of the change stream of a server: its clock, read before its binlog's end.

    Whoever reads the binlog up to its end after this has every transaction that was committed before that time.
    """
    clock = read_clock(session)
    try:
        end = source_state(session).end
    except ChangeError as error:
        return SourceWatermark(name, None, "binlog", error.message, True, clock.offset, clock.error)
    return SourceWatermark(name, clock.now, f"server clock, binlog at {end}", "", True, clock.offset, clock.error)


def changefeed_mark(session: Session, name: str, reached: int, failure: str) -> SourceWatermark:
    """Return the watermark of the changefeed of a TiDB: the timestamp up to which it was read, by TiDB's own clock.

    ``reached`` is 0 where no watermark came yet; ``failure`` says why none counts any more.
    """
    clock = read_clock(session)
    how = "watermark of the changefeed"
    if failure or not reached:
        reason = failure or "it has sent no watermark to every partition yet, or is still being read"
        return SourceWatermark(name, None, how, reason, True, clock.offset, clock.error)
    how = f"{how} at {shown_timestamp(reached)}"
    return SourceWatermark(name, tso_time(reached + 1), how, "", True, clock.offset, clock.error)


def archive_mark(path: str) -> SourceWatermark:
    """Return the watermark of archived binlog files: the last event's time, as their manifest has it."""
    try:
        last = read_manifest(Storage(path)).last
    except MigverifyError as error:
        return SourceWatermark(path, None, "archive manifest", error.message)
    if last is None or not last.last_time:
        reason = "the folder has no manifest of an archive: binlog files alone do not say up to when they are complete"
        return SourceWatermark(path, None, "archive manifest", reason)
    # Events of the same second may follow.
    return SourceWatermark(path, float(last.last_time) - 1, "last event of the archive")


def files_mark(path: str) -> SourceWatermark:
    """Return the watermark of Parquet files: a time in ``_WATERMARK`` beside them, else the time of ``_SUCCESS``.

    ``_WATERMARK`` holds one UTC time, such as ``2026-01-31T00:00:00``; rows before it are complete. The time of
    ``_SUCCESS`` is known of local folders only.
    """
    folder = _folder(path)
    how = "_WATERMARK beside the files"
    try:
        reported = Storage(folder).read("_WATERMARK")
    except MigverifyError as error:
        return SourceWatermark(path, None, how, error.message)
    if reported is not None:
        try:
            moment = datetime.fromisoformat(reported.decode("utf-8").strip())
        except ValueError:
            return SourceWatermark(path, None, how, f"{folder}/_WATERMARK holds no time such as 2026-01-31T00:00:00")
        aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return SourceWatermark(path, aware.timestamp(), how)
    success = Path(folder) / "_SUCCESS"
    if "://" not in folder and success.is_file():
        return SourceWatermark(path, success.stat().st_mtime, "time of _SUCCESS", "", False)
    reason = f"there is no {folder}/_WATERMARK with a UTC time; a dataset that nothing writes to is `static: true`"
    return SourceWatermark(path, None, how, reason)


def static_mark(name: str) -> SourceWatermark:
    """Return the watermark of what nothing writes to."""
    return SourceWatermark(name, math.inf, "static")


def _folder(path: str) -> str:
    """Return the folder of files: the path up to its first pattern, or to its file."""
    parts = path.split("/")
    plain = next((n for n, part in enumerate(parts) if any(c in part for c in "*?[{")), len(parts))
    if plain == len(parts) and parts[-1].endswith((".parquet", ".parq")):
        plain -= 1
    return "/".join(parts[:plain]) or "."
