"""The changes of one side, from the thread that reads its stream to the loop that matches both sides."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from migverify.changes.decode import decoder
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.errors import MigverifyError
from migverify.watch.key_changes import KeyChange, KeyChangeReader

MOST_CHANGES = 20_000
"""Changes that wait for the loop; the thread waits while there are more."""


@dataclass(frozen=True, slots=True)
class MarkerCommit:
    """A marker row in a stream: its number, the ordinal of its commit and the time of that, by the side's own clock."""

    number: int
    ordinal: int
    time: float


@dataclass(frozen=True, slots=True)
class MarkerRows:
    """The marker table as a stream names it, and the name of the watch's own row."""

    table: tuple[str, str]
    name: str

    def numbers(self, event: Rows) -> Iterator[int]:
        """Yield the numbers that an event writes to the own row."""
        if (event.table.database, event.table.table) == self.table:
            for name, number in decoder(event.table, ("name", "number")).texts(event.images):
                if name == self.name:
                    yield int(number or 0)


@dataclass(slots=True)
class TakenChanges:
    """What was read since it was last taken.

    ``transactions`` are (changes, ordinal up to which the stream was read). ``redefined`` are statements after which a
    table may have other columns, or may have lost changes: (tables, words); no table means any. ``emptied`` are the
    tables of TRUNCATE. ``at`` is the place of the last item. ``failure``: nothing more comes.
    """

    transactions: list[tuple[list[KeyChange], int]] = field(default_factory=list)
    markers: list[MarkerCommit] = field(default_factory=list)
    redefined: list[tuple[tuple[tuple[str, str], ...], str]] = field(default_factory=list)
    emptied: list[tuple[tuple[str, str], ...]] = field(default_factory=list)
    at: Position | None = None
    failure: str = ""


class SideChanges:
    """Collects the changes of one side until the loop takes them. ``take_item`` is for the thread of the stream."""

    def __init__(self, reader: KeyChangeReader, marker: MarkerRows) -> None:
        self._reader, self._marker = reader, marker
        self._number = 0
        self._box = TakenChanges()
        self._waiting = 0
        self._lock = threading.Condition()
        self._stopped = False

    def take_item(self, item: Item) -> None:
        """Collect an item; waits while the loop is behind. An item that cannot be read ends the collecting."""
        if self._stopped or self._box.failure:
            return
        try:
            self._collect(item)
        except MigverifyError as error:
            self.fail(error.message)
        except (ValueError, ArithmeticError) as error:  # a text that its column's type does not allow
            self.fail(f"a change cannot be read: {error!r}")

    def fail(self, reason: str) -> None:
        """Note that nothing more comes."""
        with self._lock:
            self._box.failure = self._box.failure or reason

    def stop(self) -> None:
        """Collect nothing more, and let the thread go on."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()

    def take(self) -> TakenChanges:
        """Return what was collected and begin anew."""
        with self._lock:
            taken = self._box
            self._box, self._waiting = TakenChanges(at=taken.at, failure=taken.failure), 0
            self._lock.notify_all()
            return taken

    def _collect(self, item: Item) -> None:
        if isinstance(item, Begin):
            self._number = 0
        elif isinstance(item, Rows):
            self._number = max(self._marker.numbers(item), default=self._number)
        elif isinstance(item, Statement):
            with self._lock:
                if item.op is Op.TRUNCATE:
                    self._box.emptied.append(item.tables)
                else:
                    self._box.redefined.append((item.tables, item.sql[:200]))
        committed = self._reader.take(item)
        if committed is None:
            return
        with self._lock:
            while self._waiting > MOST_CHANGES and not self._stopped:
                self._lock.wait(0.5)
            self._add(*committed)
            if isinstance(item, Commit):
                self._add_marker(item, committed[1])
                self._box.at = item.end
            elif isinstance(item, Idle):
                self._box.at = item.at

    def _add(self, changes: list[KeyChange], ordinal: int) -> None:
        transactions = self._box.transactions
        if not changes and transactions and not transactions[-1][0]:
            transactions.pop()
        transactions.append((changes, ordinal))
        self._waiting += len(changes)

    def _add_marker(self, item: Commit, end: int) -> None:
        if self._number:
            # What a carrier gives late was committed earlier than the place that it is given at.
            own = int(item.gtid) if item.gtid.isdigit() else end
            self._box.markers.append(MarkerCommit(self._number, min(own, end), item.time))
            self._number = 0


@dataclass(slots=True)
class MarkerPairs:
    """Markers of both sides -> places behind which the feed sends nothing again.

    It is assumed that a feed that begins again sends at most the changes of the last ``seconds`` again. So behind the
    first place of the following side with a marker, nothing comes that was committed ``seconds`` before that marker.
    Only the leading side's times are compared. ``went_back``: a marker came again that showed the assumption to be
    wrong; ``seconds`` are more then. ``newest`` is the place of the following side with the newest marker, -1 for none.
    """

    seconds: float
    went_back: bool = False
    newest: int = -1
    _led: list[MarkerCommit] = field(default_factory=list)
    _followed: list[MarkerCommit] = field(default_factory=list)
    _last_led: int = 0
    _last_followed: int = 0
    _settled: int = 0

    def lead(self, markers: Iterable[MarkerCommit]) -> None:
        """Take markers of the leading side; one that comes again counts where it came first."""
        for marker in markers:
            if marker.number > self._last_led:
                self._last_led = marker.number
                self._led.append(marker)

    def follow(self, markers: Iterable[MarkerCommit]) -> None:
        """Take markers of the following side."""
        for marker in markers:
            if marker.number > self._last_followed:
                self._last_followed, self.newest = marker.number, marker.ordinal
                self._followed.append(marker)
            elif marker.number <= self._settled:
                self.went_back = True
                # About one is written a second.
                self.seconds = max(self.seconds, 2.0 * (self._last_followed - marker.number))

    def take(self, resumes_at: Callable[[int, int], None]) -> None:
        """Give out pairs of (leading ordinal, following ordinal), each once and in order."""
        while self._followed and self._last_led >= self._followed[0].number:
            followed = self._followed.pop(0)
            same = next((marker for marker in self._led if marker.number == followed.number), None)
            if same is None:
                continue  # committed before the leading stream began
            settled = [m for m in self._led if m.number < same.number and m.time <= same.time - self.seconds]
            if settled:
                resumes_at(max(marker.ordinal for marker in settled), followed.ordinal)
                self._settled = settled[-1].number
                self._led = [marker for marker in self._led if marker.number > self._settled]
