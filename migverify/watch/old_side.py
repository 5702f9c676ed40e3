"""What others than the feed write on the source while the target is written: found from both change streams."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.changes.model import Position
from migverify.errors import MigverifyError
from migverify.watch.crossing import Crossing
from migverify.watch.crossing_model import CrossingFinding, CrossingKind, sentence
from migverify.watch.key_changes import KeyChange, Place
from migverify.watch.ledger import Ledger
from migverify.watch.pending_findings import PendingFindings
from migverify.watch.side_changes import MarkerPairs, SideChanges, TakenChanges
from migverify.watch.stream import FollowedSource

LIMIT = 100_000
"""Changes of the target that are remembered, and changes of the source that may wait."""
Name: TypeAlias = tuple[str, str]
"""Database and table."""

MOST_NOTES = 100
"""Findings that are named for one pair; all are counted."""
OLD_SIDE = "old side"
"""Origin of keys that others than the feed wrote on the source, or may have written."""
HEAD_SECONDS = 0.5
"""How often the target is asked for its time while changes of the source wait to be judged."""


@dataclass(frozen=True, slots=True)
class OldSideStatus:
    """What is known of writes on the source. Counts are of this process.

    ``read`` is the place on the source, empty before the first. ``written`` counts findings by kind. ``at_least``:
    there may be more, as some changes could not be judged or remembered. ``circles`` are keys that go in circles,
    ``left_out`` the tables that are not judged and why. ``not_seen`` says why nothing is seen, or nothing more.
    """

    source: str
    read: str = ""
    changes: int = 0
    explained: int = 0
    unjudged: int = 0
    written: Mapping[str, int] = field(default_factory=dict)
    circles: int = 0
    at_least: bool = False
    left_out: tuple[str, ...] = ()
    not_seen: str = ""

    @property
    def total(self) -> int:
        """How many changes of others were found."""
        return sum(self.written.values())

    @property
    def findings(self) -> str:
        """How many changes of others were found, in words."""
        return "1 finding" if self.total == 1 else f"{self.total:,} findings"

    def lines(self) -> list[str]:
        """Return what the last lines of a status say."""
        found = []
        if self.total:
            kinds = ", ".join(f"{kind} {count:,}" for kind, count in self.written.items())
            least = "at least " if self.at_least else ""
            found.append(f"written on {self.source} by another than the feed: {least}{self.findings} ({kinds})")
        if self.circles:
            keys = "1 key goes" if self.circles == 1 else f"{self.circles:,} keys go"
            found.append(f"{keys} in circles: what the feed brings to {self.source} is carried back")
        if self.not_seen:
            since = f" after {self.read}" if self.read else ""
            found.append(f"writes of others on {self.source}{since} are not seen: {self.not_seen}")
        elif not self.read:
            found.append(f"{self.source} was not read yet: whether another than the feed writes there is not known")
        elif not self.total and not self.circles:
            rest = ", and not all changes could be judged" if self.at_least else ""
            found.append(f"{self.source} was read to {self.read}: no write of another than the feed is known{rest}")
        if self.unjudged:
            found.append(
                f"{self.unjudged:,} changes on {self.source} could not be judged; their rows were read on both sides"
            )
        return [*found, *(f"writes of others are not judged in {text}" for text in self.left_out)]


class OldSide:
    """Matches the changes of the target with those of the source.

    The loop's thread calls ``collect``. The target's stream hands its items to ``leading.take_item``; the source's is
    read here, on a thread of its own.

    Parameters
    ----------
    begin
        Where reading the source begins.
    names
        Number of a pair -> its table on the source, and on the target.
    resent_seconds
        As for ``MarkerPairs``.
    skipped
        Words for tables that cannot be judged.
    """

    def __init__(
        self, source: str, leading: SideChanges, following: SideChanges, stream: FollowedSource, begin: Position,
        crossing: Crossing, *, names: Mapping[int, tuple[Name, Name]], resent_seconds: float,
        skipped: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.source, self.leading, self._following = source, leading, following
        self._stream, self._begin, self._crossing = stream, begin, crossing
        self._names = names
        self._pairs = MarkerPairs(resent_seconds)
        self._pending = PendingFindings()
        self._left_out = list(skipped)
        self._failure = ""
        self._at: Position | None = None
        self._has_new = False
        self._asked_at = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read, name="old-side", daemon=True)

    def start(self) -> None:
        """Begin to read the source."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; does not wait for a server that is silent."""
        self._ended.set()
        self.leading.stop()
        self._following.stop()

    def _read(self) -> None:
        reason = "its change stream ended"
        try:
            for item in self._stream.open(self._begin):
                if self._ended.is_set():
                    return
                self._following.take_item(item)
        except MigverifyError as error:
            reason = error.message
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would look like a silent source
            reason = f"its change stream broke: {error!r}"
        self._following.fail(reason)

    def collect(self, head: Callable[[], int]) -> tuple[list[CrossingFinding], list[Place]]:
        """Match what was read; returns the findings, and keys whose rows should be read.

        A finding is given out when a newer marker shows that the feed did not go back; its row is read before.
        ``head`` asks the target for its time now. An error of it passes on; nothing is lost then.
        """
        if self._failure:
            return self._confirmed([]), []
        followed = self._following.take()
        self._take_redefined(followed, 0)
        self._pairs.follow(followed.markers)
        if self._pairs.went_back:
            self._pairs.went_back = False
            self._pending.drop(self._crossing.counts.findings)
            self._crossing.begin_anew()
        for changes, end in followed.transactions:
            self._crossing.follow(self._judged(changes), end)
        self._at = followed.at or self._at
        self._has_new = self._has_new or bool(followed.transactions)
        self._pairs.take(self._crossing.resumes_at)  # before anything is judged
        try:
            self._ask(head)
        finally:
            self._lead()
        self._failure = followed.failure or self._failure
        if self._failure:
            self.stop()
        findings = self._crossing.take()
        places = dict.fromkeys(finding.change.place for finding in findings)
        places |= dict.fromkeys(self._crossing.take_candidates())
        return self._confirmed(findings), list(places)

    def _confirmed(self, findings: list[CrossingFinding]) -> list[CrossingFinding]:
        now, read_to = time.monotonic(), self._stream.ordinal(self._at) if self._at is not None else 0
        at_once = self._pending.add(findings, read_to, now)
        return [*at_once, *self._pending.take(self._pairs.newest, now, self._crossing.counts.findings)]

    def _ask(self, head: Callable[[], int]) -> None:
        # Everything was received that was followed, and nothing is led that was not requested.
        now = time.monotonic()
        if self._has_new and now - self._asked_at >= HEAD_SECONDS:
            self._asked_at = now
            self._crossing.received_before(head())
            self._has_new = False

    def _lead(self) -> None:
        led = self.leading.take()
        self._take_redefined(led, 1)
        self._pairs.lead(led.markers)
        self._pairs.take(self._crossing.resumes_at)
        for changes, end in led.transactions:
            self._crossing.lead(self._judged(changes), end)
        self._failure = self._failure or led.failure

    def _judged(self, changes: list[KeyChange]) -> list[KeyChange]:
        ignored = self._crossing.ignored
        return [change for change in changes if change.pair not in ignored] if ignored else changes

    def _take_redefined(self, taken: TakenChanges, side: int) -> None:
        """Judge a table no more after a statement: images of both sides may have other columns for a while."""
        for tables, words in taken.redefined:
            for number, names in self._names.items():
                if number not in self._crossing.ignored and _concerns(tables, names[side]):
                    self._crossing.ignored.add(number)
                    where = "the target" if side else self.source
                    self._left_out.append(f"{'.'.join(names[0])} since a statement on {where}: {words}")
        if side:
            self._crossing.emptied |= {number for number, names in self._names.items()
                                       if any(_concerns(tables, names[side]) for tables in taken.emptied)}  # fmt: skip

    def _not_judged(self) -> list[str]:
        """Return words for the tables whose changes are not or not all judged."""
        crossing = self._crossing
        return [
            *self._left_out,
            *(f"{self._named(pair)}: its values in the changefeed are not those of the binlog (a time zone, a type)"
              for pair in sorted(crossing.unequal)),
            *(f"{self._named(pair)}: it is so much later than the marker that not all of its changes are remembered"
              for pair in sorted(crossing.behind - crossing.ignored)),
        ]  # fmt: skip

    def _named(self, pair: int) -> str:
        return ".".join(self._names[pair][0])

    def status(self) -> OldSideStatus:
        """Return what is known now."""
        counts = self._crossing.counts
        kinds = {k.value: n for k, n in sorted(self._pending.confirmed.items()) if n and k not in (
            CrossingKind.STALE, CrossingKind.CIRCLES)}  # fmt: skip
        read = self._stream.shown(self._stream.ordinal(self._at), self._at) if self._at is not None else ""
        return OldSideStatus(
            self.source, read, counts.following, counts.explained, counts.unjudged, kinds,
            len(self._crossing.circles), not counts.is_exact or bool(self._crossing.ignored), tuple(self._not_judged()),
            self._failure,
        )  # fmt: skip

    def shown(self, finding: CrossingFinding) -> str:
        """Return the place of a finding on the source."""
        return self._stream.shown(finding.change.position, self._at)


def _concerns(tables: Iterable[Name], name: Name) -> bool:
    """Whether a statement that names these tables is about one; without any name it is about every table."""
    folded = {(database.casefold(), table.casefold()) for database, table in tables}
    database, table = name[0].casefold(), name[1].casefold()
    return not folded or bool({(database, table), (database, "")} & folded)


def record_old_side(side: OldSide, ledger: Ledger, target: str, head: Callable[[], int], noted: Counter[int]) -> None:
    """Match what was read, keep the findings in the ledger, and have their rows read on both sides.

    ``noted`` counts by pair what was noted by this process.

    Raises
    ------
    MigverifyError
        ``head`` did; nothing is lost.
    """
    findings, places = side.collect(head)
    for finding in findings:
        pair = finding.change.pair
        if finding.kind is not CrossingKind.STALE and noted[pair] < MOST_NOTES:
            text = sentence(finding, target, side.source, side.shown(finding))
            noted[pair] += ledger.note(pair, finding.kind.value, text)
    if places:
        ledger.touch(dict.fromkeys(places, (1, 0, 0)), {}, time.time(), origin=OLD_SIDE)
