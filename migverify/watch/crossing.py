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
earlier image, and comes forward again. It may delete a row before it inserts it anew, and bring some tables much later
than others. An image is a digest of some columns, so every finding is a candidate: whether the rows differ is decided
by reading them. Not seen is a write whose image the feed may have sent just then, and one that a second feed carried to
the leading side before the next ``received_before``.

A *doubtful* change is one that nothing explains but that a feed may make on its way to a newer image: a deleted row,
and an image that the key had before. If the feed brings the key before it is known to be past all that was committed by
then, the change was its own; else it is a finding.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from migverify.watch.crossing_model import CrossingCounts, CrossingFinding, CrossingKind, IdRanges, TextProof
from migverify.watch.id_workers import IdWorkers
from migverify.watch.key_changes import KeyChange, Place
from migverify.watch.key_images import KeyImages

LIMIT = 200_000
"""Leading changes that are remembered (about 130 MB), and following changes that may wait."""
ROUNDS = 3
"""How often an image must come back, on both sides and without a new image, before its key goes in circles."""
MOST_FINDINGS = 1_000


@dataclass(slots=True)
class _Transaction:
    """A transaction of the following side; without changes it only says how far that stream was read.

    ``head`` is the leading side's end after it was received; it waits until the leading stream was read up to there.
    """

    changes: Sequence[KeyChange]
    end: int
    head: int | None = None


@dataclass(frozen=True, slots=True)
class _Doubt:
    """A doubtful change, which is decided when the feed sends nothing again up to ``passed``.

    ``is_known``: all leading changes that it may come from were remembered when it was judged. What the feed is past
    later says nothing of it.
    """

    change: KeyChange
    passed: int
    is_known: bool


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
    workers
        What reads the workers of snowflake ids, None for nothing.
    feed_writers
        ``KeyChange.writer`` of the feed. Another known writer of the following side is a finding in any case.
    proves_texts
        Whether a pair's images must have been equal once before a change is found that may be an image which the feed
        has to bring: with a wrong time zone, no image of both sides is equal.
    limit
        How many leading changes are remembered, and how many following changes may wait.
    """

    def __init__(
        self,
        start: int,
        *,
        new_images: Set[int] = frozenset(),
        generators: Mapping[int, Callable[[int], int]] | None = None,
        workers: IdWorkers | None = None,
        feed_writers: Set[str] = frozenset(),
        proves_texts: bool = False,
        limit: int = LIMIT,
    ) -> None:
        self.counts = CrossingCounts()
        self.circles: dict[Place, int] = {}
        """Keys that go in circles, and how many rounds: the first ``MOST_FINDINGS`` of them."""
        self.ignored: set[int] = set()
        """Pairs of which nothing is found: changes of theirs may be missing."""
        self.emptied: set[int] = set()
        """Pairs that the leading side has emptied as a whole: a feed may delete their rows one by one."""
        self.behind: set[int] = set()
        """Pairs of which changes were forgotten before the feed had brought them: it may still do."""
        self._texts = TextProof() if proves_texts else None
        self._doubtful: dict[Place, list[_Doubt]] = {}
        self._first_resumes = -1
        self._early: dict[int, int] = {}
        self._forgotten = start
        self._new_images, self._feed_writers, self._limit = new_images, feed_writers, limit
        self._ranges, self._workers = IdRanges(generators or {}), workers
        self._keys: dict[Place, KeyImages] = {}
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

    @property
    def unequal(self) -> Set[int]:
        """Pairs whose images mostly differ on both sides; they are ignored."""
        return self._texts.unequal if self._texts is not None else frozenset()

    def begin_anew(self) -> None:
        """Judge nothing until the feed is known to be past what was read: it went back further than was stated."""
        self._forgotten = max(self._forgotten, self._read_to)
        self.counts.is_exact = False

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
            key = self._keys[place] = KeyImages()
        if not key.add(change):
            return
        self.counts.leading += 1
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
        ordinal, is_brought = key.forget()
        self._forgotten = max(self._forgotten, ordinal)
        if not is_brought and self._first_resumes < 0:  # where the feed began to be known is not known yet
            self._early[place[0]] = max(ordinal, self._early.get(place[0], ordinal))
        elif not is_brought and self._first_resumes < ordinal:
            self.behind.add(place[0])
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
        if self._workers is not None and is_leading:
            self._workers.lead(change)
        elif self._workers is not None and (worker := self._workers.worker_of_both(change)) is not None:
            self._find(CrossingFinding(CrossingKind.SAME_WORKER, change, ids=(worker, worker)))

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
            if self._first_resumes < 0 <= self._resumes_at:
                self._first_resumes = self._resumes_at
                self.behind |= {pair for pair, ordinal in self._early.items() if self._first_resumes < ordinal}
        if self._read_to < self._resumes_at:
            return  # changes could not wait: what the feed may have sent is not read yet
        settled = {}
        while self._unsettled and self._unsettled[0][0] <= self._resumes_at:
            _, place = self._unsettled.popleft()
            self._settled.append(place)
            settled[place] = self._keys[place]
        for (pair, name), key in settled.items():
            if key.is_there and key.is_stale(self._resumes_at):
                key.is_there = False
                change = KeyChange(pair, name, key.images[key.at].image, key.position, key.time)
                self._find(CrossingFinding(CrossingKind.STALE, change))
        self._decide_doubtful()

    def _decide_doubtful(self) -> None:
        """Find doubtful changes behind which the feed has brought nothing, and brings nothing from before them."""
        while self._doubtful:
            place, doubts = next(iter(self._doubtful.items()))
            if doubts[0].passed > self._resumes_at:
                return
            key = self._keys.get(place)
            if key is not None and key.awaits_row(self._first_resumes):  # its table is later than the marker
                del self._doubtful[place]
                passed = max(self._read_to, self._resumes_at) + 1
                self._doubtful[place] = [replace(doubt, passed=passed) for doubt in doubts]
            else:
                self._end_doubt(place)

    def _end_doubt(self, place: Place) -> None:
        for doubt in self._doubtful.pop(place, ()):
            # A feed that goes back behind a TRUNCATE brings images again that are followed by no other of the key.
            if place[0] in self.emptied or not doubt.is_known:
                self._leave(doubt.change)
            else:
                self._judge_unexplained(doubt.change)

    def _judge(self, change: KeyChange, head: int | None) -> None:
        if self._is_client(change):
            self._find_written(change)
            return
        key = self._keys.get(change.place)
        number = None if key is None else key.explanation(change, self._resumes_at, head)
        if key is not None and number is not None:
            self.counts.explained += len(self._doubtful.pop(change.place, ()))
            if not change.is_late:
                self._apply(change, key, number)
            return
        if key is not None:
            key.is_there = False
        if change.changes_nothing or change.writer in self._feed_writers:
            self.counts.unchanged += 1
        elif head is None or change.is_late:
            self._leave(change)
        elif key is not None and key.may_be_on_its_way(change.image):
            passed = max(head, self._resumes_at + 1)
            doubt = _Doubt(change, passed, self._is_known(change.pair))
            self._doubtful.setdefault(change.place, []).append(doubt)
            self._add_candidate(change.place)
        else:
            self._judge_unexplained(change)

    def _judge_unexplained(self, change: KeyChange) -> None:
        may_be_emptied = change.image is None and change.pair in self.emptied
        if not self._is_known(change.pair) or may_be_emptied or self._may_be_other_text(change):
            self._leave(change)
        else:
            self._find_written(change)

    def _is_known(self, pair: int) -> bool:
        """Whether all is remembered that the feed may send now."""
        return self._forgotten <= self._resumes_at and pair not in self.behind

    def _leave(self, change: KeyChange) -> None:
        """Judge a change not; its row is to be read."""
        self.counts.unjudged += 1
        self.counts.is_exact = False
        self._add_candidate(change.place)

    def _may_be_other_text(self, change: KeyChange) -> bool:
        """Whether it may be an image that the feed has to bring, in another text than the leading side's."""
        key = self._keys.get(change.place)
        if self._texts is None or key is None or not key.may_be_other_text(change.image):
            return False
        if self._texts.differ(change.pair):
            self.ignored.add(change.pair)
        return not self._texts.are_proved(change.pair)

    def _is_client(self, change: KeyChange) -> bool:
        return bool(self._feed_writers and change.writer) and change.writer not in self._feed_writers

    def _apply(self, change: KeyChange, key: KeyImages, number: int) -> None:
        """Note that the following side has an image of the leading side."""
        image = key.images[number]
        self.counts.explained += 1
        self.counts.repeated += number <= key.at
        if self._texts is not None and image.image and image.image == change.image:
            self._texts.equal[change.pair] += 1
        if rounds := key.apply(change, number):
            self.counts.returned += 1
            self._count_round(change, rounds)
        if image.ordinal <= self._resumes_at and key.is_stale(self._resumes_at):
            key.is_there = False
            self._find(CrossingFinding(CrossingKind.STALE, change))

    def _count_round(self, change: KeyChange, rounds: int) -> None:
        """Count an image that the following side had before, where the key had no new one since then."""
        place = change.place
        if rounds < ROUNDS or not (change.pair in self._new_images or self.circles):
            return
        if place in self.circles:
            self.circles[place] = max(self.circles[place], rounds)
        elif len(self.circles) < MOST_FINDINGS:
            self.circles[place] = rounds
            self._find(CrossingFinding(CrossingKind.CIRCLES, change, rounds))

    def _find_written(self, change: KeyChange) -> None:
        place, kind = change.place, CrossingKind.WRITTEN
        key = self._keys.get(place, KeyImages())
        key.is_there = False
        if unsent := key.unsent(change.image, self._resumes_at):
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
