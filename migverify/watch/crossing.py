"""Changes that the feed did not bring, found from the change streams of both sides, key by key. Pure.

The *leading* side is the one that applications write, the *following* side the one that a feed writes: TiDB and MySQL
after the cutover, the other way before it. A change of the following side is *explained* by a change of the leading
side with the same key and the same image that the feed may have sent. No clock is compared; what may have been sent is
known from two facts about positions:

- ``received_before``: the leading side's end, read after changes of the following side were received. What they come
  from was committed before it, so they are judged when the leading stream was read up to there.
- ``resumes_at``: from a position of the following side on, the feed sends nothing again up to a leading position, not
  even after a restart. So a change is judged only if all leading changes after that position are remembered.

A feed may leave out images in between, send changes again, and begin again at its checkpoint: it may go back to an
earlier image, and comes forward again. An image is a digest of some columns, so every finding is a candidate: whether
the rows differ is decided by reading them. Not seen is a write whose image the feed may have sent just then, and one
that a second feed carried to the leading side before the next ``received_before``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain

from migverify.watch.crossing_model import CrossingCounts, CrossingFinding, CrossingKind, IdRanges
from migverify.watch.key_changes import UNKNOWN, KeyChange, Place

LIMIT = 200_000
"""Leading changes that are remembered (about 130 MB), and following changes that may wait."""
ROUNDS = 3
"""How often an image must come back, on both sides and without a new image, before its key goes in circles."""
RECENT = 64
"""Images of one key among which one that comes back is looked for."""
MOST_FINDINGS = 1_000


@dataclass(slots=True)
class _Image:
    """An image of the leading side. ``is_new``: the key did not have it recently. ``rounds``: how often it returned."""

    ordinal: int
    image: bytes | None
    inserted: bool
    is_new: bool
    is_applied: bool = False
    rounds: int = 0

    def may_be(self, image: bytes | None) -> bool:
        """Whether it is the same image, as far as that is known."""
        return self.image == image or UNKNOWN in (self.image, image)


@dataclass(slots=True)
class _Key:
    """The remembered images of a key in the order of the leading side.

    The feed has brought the one at ``at``, -1 where none is known. ``is_there``: it is the last image of the following
    side, of a commit at ``position`` and ``time``.
    """

    images: list[_Image] = field(default_factory=list)
    at: int = -1
    is_there: bool = False
    position: int = 0
    time: float = 0.0


@dataclass(slots=True)
class _Transaction:
    """A transaction of the following side; without changes it only says how far that stream was read.

    ``head`` is the leading side's end after it was received; it waits until the leading stream was read up to there.
    """

    changes: Sequence[KeyChange]
    end: int
    head: int | None = None


def _ordinal(image: _Image) -> int:
    return image.ordinal


class Crossing:
    """Matches the changes of both sides. Used by one thread; each side's changes come in the order of its stream.

    Parameters
    ----------
    start
        Ordinal at which the leading stream begins: what was committed up to there is not known.
    new_images
        Pairs in which every write makes an image that the row never had: the marker table, tables with a version or
        a time of the last change. Only they prove that changes go in circles; once they do, keys of all pairs count.
    generators
        Per pair whose one key column is an id: the generator of an id. Ids of two generators never meet: workers of a
        snowflake; a counter has one for all.
    feed_writers
        ``KeyChange.writer`` of the feed. Another known writer of the following side is a finding in any case.
    limit
        How many leading changes are remembered, and how many following changes may wait.
    """

    def __init__(
        self,
        start: int,
        *,
        new_images: Set[int] = frozenset(),
        generators: Mapping[int, Callable[[int], int]] | None = None,
        feed_writers: Set[str] = frozenset(),
        limit: int = LIMIT,
    ) -> None:
        self.counts = CrossingCounts()
        self.circles: dict[Place, int] = {}
        """Keys that go in circles, and how many rounds: the first ``MOST_FINDINGS`` of them."""
        self.ignored: set[int] = set()
        """Pairs of which nothing is found: changes of theirs may be missing."""
        self._forgotten = start
        self._new_images, self._feed_writers, self._limit = new_images, feed_writers, limit
        self._ranges = IdRanges(generators or {})
        self._keys: dict[Place, _Key] = {}
        self._unsettled: deque[tuple[int, Place]] = deque()
        self._settled: deque[Place] = deque()
        self._read_to = start
        self._waiting: deque[_Transaction] = deque()
        self._without_head = 0
        self._waiting_changes = 0
        self._resumes: deque[tuple[int, int]] = deque()
        self._resumes_at = -1
        self._written: OrderedDict[Place, KeyChange] = OrderedDict()
        self._findings: list[CrossingFinding] = []
        self._candidates: dict[Place, None] = {}

    def lead(self, changes: Sequence[KeyChange], read_to: int) -> None:
        """Take changes of the leading side; its stream was read up to an ordinal."""
        for change in changes:
            self._remember(change)
        self._read_to = max(self._read_to, read_to)
        self._judge_waiting()

    def follow(self, changes: Sequence[KeyChange], end: int) -> None:
        """Take a transaction of the following side, or none: its stream was read up to ``end``."""
        self._waiting.append(_Transaction(changes, end))
        self._without_head += 1
        self._waiting_changes += max(1, len(changes))
        while self._waiting_changes > self._limit:
            self._judge_transaction(self._waiting.popleft(), None)

    def received_before(self, head: int) -> None:
        """State the end of the leading side, read after everything was received that ``follow`` has taken."""
        for number in range(1, min(self._without_head, len(self._waiting)) + 1):
            self._waiting[-number].head = head
        self._without_head = 0
        self._judge_waiting()

    def resumes_at(self, leading: int, following: int) -> None:
        """State that behind ``following`` the feed sends nothing that was committed up to ``leading``.

        A checkpoint of the feed, then the end of the following side. Of a marker row: its commits on both sides, if the
        feed keeps the order and never begins again before it.
        """
        self._resumes.append((following, leading))

    def take(self) -> list[CrossingFinding]:
        """Return the findings since it was last called; of too many only the first, ``counts`` has all."""
        findings, self._findings = self._findings, []
        return findings

    def take_candidates(self) -> list[Place]:
        """Return keys whose rows should be read though no finding names them, since it was last called.

        Those of changes that could not be judged, and of findings beyond ``MOST_FINDINGS``; ``limit`` of them.
        """
        places, self._candidates = list(self._candidates), {}
        return places

    # -- the leading side ----------------------------------------------------------------------------------------

    def _remember(self, change: KeyChange) -> None:
        place = change.place
        key = self._keys.get(place)
        if key is None:
            key = self._keys[place] = _Key()
        is_known = any(image.image == change.image for image in key.images[-RECENT:])
        if change.is_late and is_known:
            return
        self.counts.leading += 1
        at = bisect_right(key.images, change.position, key=_ordinal)  # what is late comes before others
        key.images.insert(at, _Image(change.position, change.image, change.inserted, not is_known))
        key.at += at <= key.at
        self._unsettled.append((change.position, place))
        if not change.is_late:
            self._collide(change)
            if change.inserted:
                self._compare_ids(change, is_leading=True)
        if len(self._unsettled) + len(self._settled) > self._limit:
            self._forget()

    def _forget(self) -> None:
        """Forget the change that was read first."""
        if self._settled:
            place = self._settled.popleft()
        else:
            _, place = self._unsettled.popleft()
            self.counts.is_exact = False
        key = self._keys[place]
        self._forgotten = max(self._forgotten, key.images.pop(0).ordinal)
        key.is_there = key.is_there and key.at > 0
        key.at = max(-1, key.at - 1)
        if not key.images:
            del self._keys[place]

    def _collide(self, change: KeyChange) -> None:
        """Find a key that a client wrote on the following side before this change of the leading side."""
        written = self._written.pop(change.place, None)
        if written is not None and written.image != change.image:
            both = written.inserted and change.inserted
            self._find(CrossingFinding(CrossingKind.SAME_ID if both else CrossingKind.COLLISION, written))

    def _compare_ids(self, change: KeyChange, *, is_leading: bool) -> None:
        if (ids := self._ranges.add(change, is_leading=is_leading)) is not None:
            self._find(CrossingFinding(CrossingKind.ID_RANGES, change, ids=ids))

    # -- the following side --------------------------------------------------------------------------------------

    def _judge_waiting(self) -> None:
        while self._waiting and (head := self._waiting[0].head) is not None and head <= self._read_to:
            self._judge_transaction(self._waiting.popleft(), head)

    def _judge_transaction(self, transaction: _Transaction, head: int | None) -> None:
        """Judge changes that come from before ``head``; None: they could not wait until that was read."""
        self._move_resumes(transaction.end - 1)
        for change in transaction.changes:
            self.counts.following += 1
            self._judge(change, head)
        self._waiting_changes -= max(1, len(transaction.changes))
        self._move_resumes(transaction.end)

    def _move_resumes(self, read_to: int) -> None:
        while self._resumes and self._resumes[0][0] <= read_to:
            self._resumes_at = max(self._resumes_at, self._resumes.popleft()[1])
        if self._read_to < self._resumes_at:
            return  # changes could not wait: what the feed may have sent is not read yet
        settled = {}
        while self._unsettled and self._unsettled[0][0] <= self._resumes_at:
            _, place = self._unsettled.popleft()
            self._settled.append(place)
            settled[place] = self._keys[place]
        for (pair, name), key in settled.items():
            if key.is_there and self._is_stale(key):
                key.is_there = False
                change = KeyChange(pair, name, key.images[key.at].image, key.position, key.time)
                self._find(CrossingFinding(CrossingKind.STALE, change))

    def _is_stale(self, key: _Key) -> bool:
        """Whether the following side has an image that is older than all that the feed may have left it with."""
        newest = bisect_right(key.images, self._resumes_at, key=_ordinal) - 1
        if newest < 0:
            return False  # forgotten: what came late may be in its place
        # What is there already is not logged when the feed brings it.
        return not any(image.may_be(key.images[key.at].image) for image in key.images[newest:])

    def _judge(self, change: KeyChange, head: int | None) -> None:
        if self._is_client(change):
            self._find_written(change)
            return
        key = self._keys.get(change.place)
        number = None if key is None else self._explanation(key, change.image, head)
        if key is not None and number is not None:
            if not change.is_late:
                self._apply(change, key, number)
            return
        if key is not None:
            key.is_there = False
        if change.changes_nothing or change.writer in self._feed_writers:
            self.counts.unchanged += 1
        elif head is None or change.is_late or self._forgotten > self._resumes_at:
            self.counts.unjudged += 1
            self.counts.is_exact = False
            self._add_candidate(change.place)
        else:
            self._find_written(change)

    def _is_client(self, change: KeyChange) -> bool:
        return bool(self._feed_writers and change.writer) and change.writer not in self._feed_writers

    def _explanation(self, key: _Key, image: bytes | None, head: int | None) -> int | None:
        """Return which image of the key the feed sent: the next one, the same again, or an earlier one again."""
        same = range(max(0, key.at), key.at + 1)
        for number in chain(range(key.at + 1, len(key.images)), same, range(key.at)):
            remembered = key.images[number]
            if remembered.may_be(image) and (number == key.at or self._may_be_sent(remembered, head)):
                return number
        return None

    def _may_be_sent(self, image: _Image, head: int | None) -> bool:
        return self._resumes_at < image.ordinal and (head is None or image.ordinal <= head)

    def _apply(self, change: KeyChange, key: _Key, number: int) -> None:
        """Note that the following side has an image of the leading side."""
        self.counts.explained += 1
        if number <= key.at:
            self.counts.repeated += 1
        if number > key.at:
            key.images[number].is_applied = True
            self._count_round(change, key, number)
        key.at, key.is_there, key.position, key.time = number, True, change.position, change.time

    def _count_round(self, change: KeyChange, key: _Key, number: int) -> None:
        """Count an image that the following side had before, where the key had no new one since then."""
        image = key.images[number]
        if image.image == UNKNOWN:
            return
        for earlier in reversed(key.images[max(0, number - RECENT) : number]):
            if earlier.image == image.image and earlier.is_applied:
                break
            if earlier.is_new:
                return
        else:
            return
        image.rounds = earlier.rounds + 1
        self.counts.returned += 1
        place = change.place
        if image.rounds < ROUNDS or not (change.pair in self._new_images or self.circles):
            return
        if place in self.circles:
            self.circles[place] = max(self.circles[place], image.rounds)
            return
        if len(self.circles) < MOST_FINDINGS:
            self.circles[place] = image.rounds
            self._find(CrossingFinding(CrossingKind.CIRCLES, change, image.rounds))

    def _find_written(self, change: KeyChange) -> None:
        place, kind = change.place, CrossingKind.WRITTEN
        key = self._keys.get(place, _Key())
        key.is_there = False
        unsent = [image for image in key.images[key.at + 1 :]
                  if image.ordinal > self._resumes_at and not image.may_be(change.image)]  # fmt: skip
        if unsent:
            both = change.inserted and any(image.inserted for image in unsent)
            kind = CrossingKind.SAME_ID if both else CrossingKind.COLLISION
        else:
            self._written[place] = change
            self._written.move_to_end(place)
            if len(self._written) > self._limit:
                self._written.popitem(last=False)
                self.counts.is_exact = False
        self._find(CrossingFinding(kind, change))
        if change.inserted:
            self._compare_ids(change, is_leading=False)

    def _find(self, finding: CrossingFinding) -> None:
        if finding.change.pair in self.ignored:
            return
        self.counts.findings[finding.kind] += 1
        if len(self._findings) < MOST_FINDINGS:
            self._findings.append(finding)
        else:
            self._add_candidate(finding.change.place)

    def _add_candidate(self, place: Place) -> None:
        if len(self._candidates) < self._limit:
            self._candidates[place] = None
