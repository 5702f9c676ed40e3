"""The changes of some sources -> touched keys in a ledger: what a watch follows, and what a second proof rests on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from migverify.changes.model import Position
from migverify.errors import MigverifyError
from migverify.watch.ledger import BY_FILE, NO_PAIR, Ledger
from migverify.watch.stream import SourceProgress, Stream, StreamFinding, StreamReader
from migverify.watch.touched import WatchedTable


@dataclass(frozen=True, slots=True)
class CatchUp:
    """A part of a source's binlog that is read by file and offset beside its stream, to ordinal ``until``.

    A transaction without a GTID follows no set, so a stream that follows a set of GTIDs does not show it.
    """

    begin: Position
    until: int


@dataclass(slots=True)
class _SourceReading:
    """What one thread reads: a source's stream, or by file up to ``until``."""

    number: int
    reader: StreamReader
    until: int | None = None
    failure: MigverifyError | None = None


class ChangeCollector:
    """Reads sources from where the ledger stopped, each on a thread of its own. Used by one thread.

    Parameters
    ----------
    catch_up
        What is read by file as well, by the source's number: no verdict is possible before its end.
    on_finding
        Receives a finding, the number of its source, and the position that was read to. It is called before the
        ledger's position moves on, so that a process that is killed in between loses no finding.
    """

    def __init__(
        self, ledger: Ledger, streams: Sequence[Stream], tables: Sequence[WatchedTable],
        in_scope: Callable[[str, str], bool], catch_up: Mapping[int, CatchUp],
        on_finding: Callable[[StreamFinding, int, Position], None],
    ) -> None:  # fmt: skip
        self._ledger, self._on_finding = ledger, on_finding
        self.sources: list[SourceProgress] = []
        self._readings: list[_SourceReading] = []
        known = ledger.progress()
        for number, stream in enumerate(streams):
            position, commits = known.get(number, (stream.start, 0))
            source = SourceProgress(stream, commits)
            if number not in known and position is not None and position.file:
                # Before anything is read: a kill before the first write would leave no place to go on from.
                ledger.touch({}, {number: (position, commits)}, time.time())
            elif number in known and position is not None:
                source.position, source.ordinal = position, stream.changes.ordinal(position)
            self.sources.append(source)
            own = {(w.database, w.table): w for w in tables if w.endpoint == stream.endpoint.name}
            self._readings.append(
                _SourceReading(number, StreamReader(number, stream, own, in_scope, position, commits))
            )
            if number in catch_up:
                # Markers are the stream's: an older one would take the target back.
                beside, part = replace(stream, marker_table=None), catch_up[number]
                reader = StreamReader(number, beside, own, in_scope, part.begin)
                self._readings.append(_SourceReading(number, reader, part.until))

    def start(self) -> None:
        """Begin to read."""
        for reading in self._readings:
            reading.reader.start()

    def stop(self) -> None:
        """End the threads; does not wait for a server that is silent."""
        for reading in self._readings:
            reading.reader.stop()

    def readers(self, number: int) -> list[StreamReader]:
        """Return what reads a source now."""
        return [reading.reader for reading in self._readings if reading.number == number]

    def set_cascades(self, cascades: Callable[[Stream], Mapping[tuple[str, str], Set[tuple[str, str]]]]) -> None:
        """Ask which tables change with the rows of others, without rows of theirs in the stream."""
        for number, source in enumerate(self.sources):
            found = cascades(source.stream)
            for reader in self.readers(number):
                reader.cascades = found

    def collect(self) -> None:
        """Take what was read into the ledger, keys and positions in one transaction."""
        now = time.time()
        for reading in list(self._readings):
            source, taken = self.sources[reading.number], reading.reader.take()
            reading.failure = taken.failure
            if taken.failure is not None and reading.until is None:
                source.failure = taken.failure.line
            if taken.position is None:
                continue
            for finding in taken.findings:
                self._on_finding(finding, reading.number, taken.position)
            if reading.until is None:
                has_moved = taken.position != source.position
                source.moved(taken)
                source.stream.applied.read_to(source.ordinal, now)
                if taken.keys or has_moved:
                    self._ledger.touch(
                        taken.keys, {reading.number: (taken.position, source.commits)}, now, there=taken.there,
                        firsts=taken.firsts,
                    )  # fmt: skip
                continue
            self._ledger.touch(taken.keys, {}, now, there=taken.there, firsts=taken.firsts)
            if source.stream.changes.ordinal(taken.position) >= reading.until:
                self._ledger.note(NO_PAIR, BY_FILE, source.stream.endpoint.name)
                reading.reader.stop()
                self._readings.remove(reading)

    @property
    def _by_file(self) -> list[_SourceReading]:
        return [reading for reading in self._readings if reading.until is not None]

    @property
    def has_lost_changes(self) -> bool:
        """Whether what is to be read by file cannot be read."""
        return any(reading.failure for reading in self._by_file)

    def troubles(self) -> list[str]:
        """Return what is not read by file yet."""
        return [
            f"{self.sources[r.number].stream.endpoint.name}: the binlog since the run it starts from is read by file as"
            f" well{f': {r.failure.message}; verify the tables again' if r.failure else ''}"
            for r in self._by_file
        ]

    def is_read_to(self, until: Mapping[int, int]) -> bool:
        """Whether every source was read to its place, by file as well.

        Raises
        ------
        MigverifyError
            a reader ended before it came there.
        """
        waiting = [
            r for r in self._readings if r.until is not None or self.sources[r.number].ordinal < until[r.number]
        ]  # fmt: skip
        for reading in waiting:
            if reading.failure is not None:
                raise reading.failure
        return not waiting
