"""Two streams, and a feed that is late, merges, repeats and begins again: what it brings is no finding, the rest is."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from migverify.guards.ids_snowflake import infer_workers
from migverify.guards.layouts import TWITTER
from migverify.model import KeyText
from migverify.watch.crossing import ROUNDS, Crossing
from migverify.watch.crossing_model import CrossingFinding, CrossingKind, sentence
from migverify.watch.id_workers import IdWorkers
from migverify.watch.key_changes import UNKNOWN, KeyChange, merged

PAIR = 7
ON_FOLLOWING = (CrossingKind.WRITTEN, CrossingKind.COLLISION, CrossingKind.SAME_ID)
PROPERTY = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


@dataclass
class Sent:
    """One image of a key that the feed has to bring."""

    ordinal: int
    image: bytes | None


@dataclass
class World:
    """An application on the leading side, a feed, and readers of both streams that are late as they like."""

    rng: random.Random
    crossing: Crossing
    repeats_images: bool = True
    deletes: bool = True
    keys: Sequence[str] = ("1", "2", "3")
    leading: dict[str, bytes] = field(default_factory=dict)
    following: dict[str, bytes] = field(default_factory=dict)
    leading_log: list[tuple[int, list[KeyChange]]] = field(default_factory=list)
    following_log: list[tuple[int, list[KeyChange]]] = field(default_factory=list)
    queues: dict[str, list[Sent]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    now: int = 0
    end: int = 0
    checkpoint: int = 0
    leading_read: int = 0
    following_read: int = 0
    fresh: int = 0
    clients: list[KeyChange] = field(default_factory=list)
    findings: list[CrossingFinding] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.crossing.resumes_at(0, 0)

    # -- what happens ---------------------------------------------------------------------------------------------

    def new_image(self) -> bytes:
        self.fresh += 1
        return b"new %d" % self.fresh

    def application(self) -> None:
        """One transaction on the leading side; a write that changes nothing is not logged."""
        self.now += self.rng.randint(1, 5)
        changes = []
        for key in self.rng.sample(self.keys, self.rng.randint(1, len(self.keys))):
            image: bytes | None = self.new_image()
            if self.repeats_images and self.rng.random() < 0.7:
                image = self.rng.choice([b"a", b"b", None])
            elif self.deletes and self.rng.random() < 0.15:
                image = None
            changes += self.lead(key, image)
        if changes:
            self.leading_log.append((self.now, changes))

    def lead(self, key: str, image: bytes | None) -> list[KeyChange]:
        before = self.leading.get(key)
        if before == image:
            return []
        set_row(self.leading, key, image)
        self.queues.setdefault(key, []).append(Sent(self.now, image))
        return [KeyChange(PAIR, (key,), image, self.now, before=before, inserted=before is None)]

    def unsent(self) -> list[str]:
        return [key for key, queue in self.queues.items() if self.sent.get(key, 0) < len(queue)]

    def feed(self) -> None:
        """The feed brings some keys in one transaction, each in its order; it may leave out images."""
        waiting = self.unsent()
        changes: list[KeyChange] = []
        for key in self.rng.sample(waiting, min(len(waiting), self.rng.randint(1, 2))):
            at, queue = self.sent.get(key, 0), self.queues[key]
            number = self.rng.randint(at, len(queue) - 1) if self.rng.random() < 0.4 else at
            self.sent[key] = number + 1
            changes += self.apply(key, queue[number].image)
        self.commit(changes)

    def repeat(self) -> None:
        """The feed sends the last change of a key again, which its checkpoint has not passed."""
        brought = [
            k for k, number in self.sent.items() if number and self.queues[k][number - 1].ordinal > self.checkpoint
        ]
        if brought:
            key = self.rng.choice(brought)
            self.commit(self.apply(key, self.queues[key][self.sent[key] - 1].image))

    def restart(self) -> None:
        """The feed begins again at its checkpoint."""
        for key, queue in self.queues.items():
            first = next((n for n, one in enumerate(queue) if one.ordinal > self.checkpoint), len(queue))
            self.sent[key] = min(self.sent.get(key, 0), first)

    def save(self) -> None:
        """The feed keeps a checkpoint, and the watch learns it, then the end of the following side."""
        waiting = [self.queues[key][self.sent.get(key, 0)].ordinal - 1 for key in self.unsent()]
        self.checkpoint = max(self.checkpoint, min(waiting, default=self.now))
        self.crossing.resumes_at(self.checkpoint, self.end)

    def apply(self, key: str, image: bytes | None) -> list[KeyChange]:
        before = self.following.get(key)
        # UPDATE does not log what changes nothing, REPLACE does.
        if before == image and (image is None or self.rng.random() < 0.5):
            return []
        set_row(self.following, key, image)
        return [KeyChange(PAIR, (key,), image, self.end + 1, before=before, inserted=before is None)]

    def commit(self, changes: list[KeyChange]) -> None:
        if changes:
            self.end += 1
            self.following_log.append((self.end, changes))

    def client(self, key: str, image: bytes | None) -> KeyChange:
        """A client writes on the following side."""
        before = self.following.get(key)
        set_row(self.following, key, image)
        change = KeyChange(PAIR, (key,), image, self.end + 1, before=before, inserted=before is None)
        self.commit([change])
        self.clients.append(change)
        return change

    # -- what is read ---------------------------------------------------------------------------------------------

    def read_leading(self) -> None:
        if self.leading_read < len(self.leading_log):
            ordinal, changes = self.leading_log[self.leading_read]
            self.leading_read += 1
            self.crossing.lead(changes, ordinal)
        else:
            self.crossing.lead([], self.now)

    def read_following(self) -> None:
        if self.following_read < len(self.following_log):
            end, changes = self.following_log[self.following_read]
            self.following_read += 1
            self.crossing.follow(changes, end)
        else:
            self.crossing.follow([], self.end)

    def look_at_head(self) -> None:
        self.crossing.received_before(self.now)

    def run(self, actions: Sequence[str]) -> None:
        for name in actions:
            getattr(self, name)()
            self.findings += self.crossing.take()

    def drain(self) -> None:
        """Everything is sent and read, and the leading side goes on elsewhere, so that a later checkpoint is kept."""
        while self.unsent():
            self.feed()
        self.now += 1
        self.save()
        self.read_all()

    def read_all(self) -> None:
        for _ in range(len(self.following_log) + 1):
            self.read_following()
        self.look_at_head()
        for _ in range(len(self.leading_log) + 1):
            self.read_leading()
        self.findings += self.crossing.take()

    def some_client(self) -> None:
        self.client(self.rng.choice(self.keys), self.new_image())


def set_row(rows: dict[str, bytes], key: str, image: bytes | None) -> None:
    if image is None:
        rows.pop(key, None)
    else:
        rows[key] = image


WEIGHTS = {
    "application": 6, "feed": 8, "repeat": 1, "restart": 1, "save": 2, "read_leading": 8, "read_following": 8,
    "look_at_head": 4,
}  # fmt: skip
ACTIONS = [name for name, weight in WEIGHTS.items() for _ in range(weight)]
rngs = st.integers(0, 1 << 32).map(random.Random)
healthy = st.lists(st.sampled_from(ACTIONS), max_size=150)
with_clients = st.lists(st.sampled_from([*ACTIONS, "some_client"]), max_size=150)


@PROPERTY
@given(rngs, healthy, st.booleans())
def test_what_a_healthy_feed_does_is_no_finding_under_any_schedule(
    rng: random.Random, actions: list[str], repeats_images: bool
) -> None:
    new_images = frozenset() if repeats_images else {PAIR}
    world = World(rng, Crossing(0, new_images=new_images), repeats_images)
    world.run(actions)
    world.drain()
    counts = world.crossing.counts
    assert world.findings == []
    assert (counts.unjudged, counts.is_exact) == (0, True)
    assert counts.following == sum(len(changes) for _, changes in world.following_log)
    assert counts.leading == sum(len(changes) for _, changes in world.leading_log)
    assert counts.explained + counts.unchanged == counts.following


@PROPERTY
@given(rngs, healthy, st.integers(1, 12), st.sampled_from([0, 3]))
@example(random.Random(178), ["application", *["feed"] * 5, "read_leading", "application"], 3, 3)
def test_what_is_forgotten_makes_no_finding(rng: random.Random, actions: list[str], limit: int, start: int) -> None:
    world = World(rng, Crossing(start, limit=limit))
    world.run(actions)
    world.drain()
    assert world.findings == []


@PROPERTY
@given(rngs, with_clients)
def test_every_client_that_writes_on_the_following_side_is_found(rng: random.Random, actions: list[str]) -> None:
    world = World(rng, Crossing(0))
    world.run(actions)
    world.drain()
    planted = {(change.key, change.image) for change in world.clients}
    assert {(f.change.key, f.change.image) for f in world.findings if f.kind in ON_FOLLOWING} == planted
    assert world.crossing.counts.is_exact
    untouched = {(key,) for key in world.keys if key not in world.queues}
    assert not [f for f in world.findings if f.kind is not CrossingKind.WRITTEN and f.change.key in untouched]


@PROPERTY
@given(rngs, with_clients, st.integers(1, 12))
def test_with_little_memory_nothing_but_clients_is_found(rng: random.Random, actions: list[str], limit: int) -> None:
    world = World(rng, Crossing(0, limit=limit))
    world.run(actions)
    world.drain()
    planted = {(change.key, change.image) for change in world.clients}
    written = {(f.change.key, f.change.image) for f in world.findings if f.kind in ON_FOLLOWING}
    assert written <= planted
    assert written == planted or not world.crossing.counts.is_exact


@PROPERTY
@given(rngs, healthy, healthy)
def test_a_client_that_writes_an_earlier_image_is_found_where_the_sides_stay_different(
    rng: random.Random, before: list[str], after: list[str]
) -> None:
    world = World(rng, Crossing(0))
    world.run(before)
    key = rng.choice(world.keys)
    images = [sent.image for sent in world.queues.get(key, [])] or [b"a"]
    world.client(key, rng.choice(images))
    world.run(after)
    world.drain()
    different = {(k,) for k in world.keys if world.leading.get(k) != world.following.get(k)}
    assert different <= {finding.change.key for finding in world.findings}
    assert {finding.change.key for finding in world.findings} <= {(key,)}


@PROPERTY
@given(rngs, healthy, healthy, st.booleans())
def test_a_key_that_both_sides_changed_collides(
    rng: random.Random, before: list[str], after: list[str], is_read_before: bool
) -> None:
    world = World(rng, Crossing(0), repeats_images=False, deletes=False)
    world.run(before)
    key = rng.choice(world.keys)
    change = world.client(key, world.new_image())
    if is_read_before:
        world.read_all()
    world.now += 1
    world.leading_log.append((world.now, world.lead(key, world.new_image())))
    world.run(after)
    world.drain()
    kinds = {finding.kind for finding in world.findings if finding.change == change}
    assert kinds & {CrossingKind.COLLISION, CrossingKind.SAME_ID}
    assert {finding.change for finding in world.findings} == {change}


# -- a feed that takes every liberty ------------------------------------------------------------------------------


@dataclass
class LiberalWorld(World):
    """A feed that also deletes before it inserts, goes back further than it said, and brings some keys late."""

    slow: str = "3"
    is_emptied: bool = False
    brought: int = 0
    """Images of the slow key that were brought once: those that a restart sends again hold the checkpoint."""

    def restart(self) -> None:
        self.brought = max(self.brought, self.sent.get(self.slow, 0))
        super().restart()

    def apply(self, key: str, image: bytes | None) -> list[KeyChange]:
        """REPLACE, or DELETE and INSERT in one transaction or in two."""
        way = self.rng.randint(0, 3)
        if image is None or key not in self.following or way > 1:
            return super().apply(key, image)
        deleted = self.written(key, None)
        if way:
            self.commit([deleted])
            return [self.written(key, image)]
        return merged([deleted, self.written(key, image)])

    def written(self, key: str, image: bytes | None) -> KeyChange:
        before = self.following.get(key)
        set_row(self.following, key, image)
        return KeyChange(PAIR, (key,), image, self.end + 1, before=before, inserted=before is None)

    def save(self) -> None:
        """The marker passed, and says nothing of a key that is brought later for the first time."""
        rest = [key for key in self.unsent() if key != self.slow or self.sent.get(key, 0) < self.brought]
        waiting = [self.queues[key][self.sent.get(key, 0)].ordinal - 1 for key in rest]
        self.checkpoint = max(self.checkpoint, min(waiting, default=self.now))
        self.crossing.resumes_at(self.checkpoint, self.end)

    def feed(self) -> None:
        """One that may leave out the slow key's turn, and brings several transactions as one."""
        if self.rng.random() < 0.3 and (waiting := [k for k in self.unsent() if k != self.slow]):
            key = self.rng.choice(waiting)
            at = self.sent.get(key, 0)
            changes: list[KeyChange] = []
            for sent in self.queues[key][at:]:
                changes += World.apply(self, key, sent.image)
            self.sent[key] = len(self.queues[key])
            self.commit(merged(changes))
            return
        super().feed()

    def go_back(self) -> None:
        """One partition is read again from before the checkpoint, up to where it was."""
        key = self.rng.choice(self.keys)
        brought = self.queues.get(key, [])[: self.sent.get(key, 0)]
        for sent in brought[self.rng.randint(0, len(brought)) :]:
            self.commit(self.apply(key, sent.image))

    def change_key(self) -> None:
        """A row gets another key, which the leading side shows as a deleted row and a new one."""
        old = self.rng.choice(self.keys)
        new = self.rng.choice([key for key in self.keys if key != old])
        if old in self.leading and new not in self.leading:
            self.now += 1
            image = self.leading[old]
            self.leading_log.append((self.now, self.lead(old, None) + self.lead(new, image)))

    def send_twice(self) -> None:
        """The changefeed sends a transaction of the leading side again, at its own place or late."""
        if self.leading_read:
            ordinal, changes = self.leading_log[self.rng.randrange(self.leading_read)]
            is_late = self.rng.random() < 0.5
            again = [replace(change, is_late=is_late) for change in changes]
            self.crossing.lead(again, ordinal)

    def empty(self) -> None:
        """TRUNCATE on the leading side, which the feed carries out row by row."""
        self.is_emptied = True
        self.crossing.emptied.add(PAIR)
        self.leading.clear()
        self.commit([self.written(key, None) for key in list(self.following)])
        for key in self.queues:
            self.sent[key] = len(self.queues[key])


LIBERTIES = {"go_back": 4, "change_key": 4, "send_twice": 3}
LIBERAL = [*ACTIONS, *(name for name, weight in LIBERTIES.items() for _ in range(weight))]
liberal = st.lists(st.sampled_from(LIBERAL), min_size=50, max_size=150)


def named(findings: Iterable[CrossingFinding]) -> list[CrossingFinding]:
    """Return the findings that a status names: of a stale row only the row is read."""
    return [finding for finding in findings if finding.kind is not CrossingKind.STALE]


@PROPERTY
@given(rngs, st.lists(st.sampled_from([*LIBERAL, "empty"]), min_size=50, max_size=150), st.booleans(), st.booleans())
def test_whatever_liberty_a_feed_takes_nothing_is_named(
    rng: random.Random, actions: list[str], repeats_images: bool, proves_texts: bool
) -> None:
    new_images = frozenset() if repeats_images else {PAIR}
    # Where a late table's rows return to earlier values, which of two equal images was brought is not known.
    slow = "" if repeats_images else "3"
    crossing = Crossing(0, new_images=new_images, proves_texts=proves_texts)
    world = LiberalWorld(rng, crossing, repeats_images, slow=slow)
    world.run(actions)
    world.drain()
    assert named(world.findings) == []
    assert world.crossing.counts.unjudged == 0 or world.is_emptied


@PROPERTY
@given(rngs, liberal, st.integers(1, 12), st.booleans())
def test_with_little_memory_no_liberty_is_named(
    rng: random.Random, actions: list[str], limit: int, deletes: bool
) -> None:
    """What goes back further than was said is not remembered then, and only the marker would show it.

    Nor is it known which of two deletes of a late table's row was brought, as a feed may delete before it inserts.
    """
    left_out = ("go_back",) if deletes else ("go_back", "change_key")
    slow = "" if deletes else "3"
    world = LiberalWorld(rng, Crossing(0, limit=limit), repeats_images=False, deletes=deletes, slow=slow)
    world.run([name for name in actions if name not in left_out])
    world.drain()
    assert named(world.findings) == []


def test_what_was_forgotten_before_the_first_checkpoint_may_still_be_brought() -> None:
    crossing = Crossing(0, limit=1)
    crossing.resumes_at(0, 0)
    crossing.resumes_at(7, 1)
    crossing.lead([KeyChange(PAIR, ("3",), b"a", 7, inserted=True)], 7)
    crossing.lead([KeyChange(PAIR, ("3",), b"b", 11, before=b"a")], 11)
    crossing.follow([KeyChange(PAIR, ("3",), b"a", 2, inserted=True)], 2)
    crossing.received_before(11)
    assert crossing.take() == []
    assert crossing.counts.unjudged == 1


@PROPERTY
@given(rngs, liberal, liberal)
def test_one_client_among_all_liberties_is_found_with_its_key(
    rng: random.Random, before: list[str], after: list[str]
) -> None:
    world = LiberalWorld(rng, Crossing(0), repeats_images=False)
    world.run(before)
    change = world.client(rng.choice(world.keys), world.new_image())
    world.run(after)
    world.drain()
    found = named(world.findings)
    assert {finding.change for finding in found} == {change}
    assert found[0].kind in ON_FOLLOWING


@PROPERTY
@given(rngs, st.lists(st.sampled_from(LIBERAL), max_size=150), healthy)
def test_a_client_that_deletes_a_row_is_found_where_the_feed_does_not_write_it_again(
    rng: random.Random, before: list[str], after: list[str]
) -> None:
    world = LiberalWorld(rng, Crossing(0), repeats_images=False)
    world.leading["0"] = world.following["0"] = b"old"
    world.keys = ("0", "1", "2", "3")
    world.run(before)
    world.drain()
    rows = [key for key in world.keys if key in world.following]
    if not rows:
        return
    key = rng.choice(rows)
    change = world.client(key, None)
    world.keys = [other for other in world.keys if other != key]
    world.run(after)
    world.now += 1
    world.drain()
    # A deleted row that the feed left out of its turn explains it: then the row is stale, and read.
    assert change in {finding.change for finding in world.findings}
    assert {finding.change for finding in named(world.findings)} <= {change}


# -- changes that go in circles ---------------------------------------------------------------------------------


@dataclass
class Circle:
    """A feed in each direction, over rows that every write of the application makes new."""

    rng: random.Random
    crossing: Crossing
    pair: int = PAIR
    now: int = 0
    end: int = 0
    rows: list[bytes] = field(default_factory=lambda: [b"", b""])
    ways: list[list[bytes]] = field(default_factory=lambda: [[], []])
    applied: int = 0

    def write(self, side: int, image: bytes) -> None:
        if self.rows[side] == image:
            return
        before, self.rows[side] = self.rows[side], image
        self.ways[side].append(image)
        if side == 0:
            self.now += 1
            self.crossing.lead([KeyChange(self.pair, ("1",), image, self.now)], self.now)
        else:
            self.end += 1
            self.applied += 1
            self.crossing.follow([KeyChange(self.pair, ("1",), image, self.end, before=before)], self.end)
            self.crossing.received_before(self.now)

    def turn(self) -> None:
        side = self.rng.choice([n for n in (0, 1) if self.ways[n]])
        self.write(1 - side, self.ways[side].pop(0))


@PROPERTY
@given(st.randoms(use_true_random=False), st.integers(2, 4))
def test_rows_that_go_in_circles_are_found_with_their_rounds(rng: random.Random, images: int) -> None:
    crossing = Crossing(0, new_images={PAIR})
    circle = Circle(rng, crossing)
    for number in range(images):
        circle.write(0, b"image %d" % number)
    while circle.applied < images * (ROUNDS + 4):
        circle.turn()
    findings = [finding for finding in crossing.take() if finding.kind is CrossingKind.CIRCLES]
    assert [(f.change.key, f.rounds) for f in findings] == [(("1",), ROUNDS)]
    rounds = crossing.circles[PAIR, ("1",)]
    assert ROUNDS <= rounds <= circle.applied // images


def test_values_that_the_application_sets_to_and_fro_are_counted_only() -> None:
    crossing = Crossing(0)
    circle = Circle(random.Random(0), crossing)
    for number in range(40):
        circle.write(0, b"on" if number % 2 else b"off")
        circle.write(1, b"on" if number % 2 else b"off")
    assert crossing.take() == []
    assert crossing.counts.returned > 10


def test_once_a_circle_is_proved_every_key_that_goes_round_counts() -> None:
    crossing = Crossing(0, new_images={PAIR})
    for pair in (8, PAIR, 8):
        circle = Circle(random.Random(0), crossing, pair, crossing.counts.leading, crossing.counts.following)
        for number in range(12):
            circle.write(0, b"%d" % (number % 2))
            circle.write(1, b"%d" % (number % 2))
    pairs = [f.change.pair for f in crossing.take() if f.kind is CrossingKind.CIRCLES]
    assert pairs == [PAIR, 8]


# -- ids -----------------------------------------------------------------------------------------------------------


def changes(images: Iterable[tuple[str, bytes | None]], position: int, *, inserted: bool = False) -> list[KeyChange]:
    return [KeyChange(PAIR, (key,), image, position, inserted=inserted) for key, image in images]


def judged(crossing: Crossing) -> list[CrossingFinding]:
    """Read the leading side up to its end, and return the findings."""
    crossing.received_before(1_000_000)
    crossing.lead([], 1_000_000)
    return crossing.take()


@pytest.fixture
def crossing() -> Crossing:
    made = Crossing(0, generators={PAIR: lambda number: number % 2})
    made.resumes_at(0, 0)
    return made


@pytest.mark.parametrize("leading_is_first", [True, False])
def test_an_id_that_both_sides_gave_out_is_found(crossing: Crossing, leading_is_first: bool) -> None:
    ours, theirs = changes([("5", b"x")], 10, inserted=True), changes([("5", b"y")], 10, inserted=True)
    if leading_is_first:
        crossing.lead(ours, 10)
        crossing.follow(theirs, 10)
        crossing.received_before(10)
    else:
        crossing.follow(theirs, 10)
        crossing.received_before(9)
        crossing.lead(ours, 10)
    findings = crossing.take()
    kinds = [finding.kind for finding in findings]
    assert kinds.count(CrossingKind.SAME_ID) == 1
    assert [f.ids for f in findings if f.kind is CrossingKind.ID_RANGES] == [(5, 5)]


def test_ids_of_one_range_are_found_by_generator(crossing: Crossing) -> None:
    crossing.lead(changes([(str(n), b"x") for n in (10, 30)], 10, inserted=True), 10)
    crossing.follow(changes([("21", b"y"), ("41", b"y")], 20, inserted=True), 20)
    assert {f.kind for f in judged(crossing)} == {CrossingKind.WRITTEN}  # odd and even ids have two generators
    crossing.follow(changes([("20", b"y"), ("28", b"y")], 21, inserted=True), 21)
    assert [(f.change.key, f.ids) for f in judged(crossing) if f.kind is CrossingKind.ID_RANGES] == [
        (("20",), (20, 20))
    ]


def test_what_the_feed_inserts_is_no_range_of_the_following_side(crossing: Crossing) -> None:
    inserts = changes([(str(n), b"x") for n in range(50)], 10, inserted=True)
    crossing.lead(inserts, 10)
    crossing.follow(inserts, 10)
    assert judged(crossing) == []


def test_snowflake_ids_of_one_worker_on_both_sides_are_found_once() -> None:
    made = Crossing(0, workers=IdWorkers(infer_workers, {PAIR}))
    made.resumes_at(0, 0)
    moment = round(time.time() * 1000)
    ours = [TWITTER.make(moment - 997 * n, n % 3, 0) for n in range(30)]
    theirs = [TWITTER.make(moment - 1000 * n, worker, 1) for n, worker in enumerate((7, 2, 2, 1), start=1)]
    made.lead(changes([(str(number), b"x") for number in ours], 10, inserted=True), 10)
    made.follow(changes([(str(number), b"y") for number in theirs], 20, inserted=True), 20)
    found = [finding for finding in judged(made) if finding.kind is CrossingKind.SAME_WORKER]
    assert [(f.change.key, f.ids) for f in found] == [((str(theirs[1]),), (2, 2)), ((str(theirs[3]),), (1, 1))]
    assert "ids of worker 2, which may give out the same id" in sentence(found[0], "t", "s", "here")


def test_ids_without_a_known_layout_have_no_workers() -> None:
    made = Crossing(0, workers=IdWorkers(infer_workers, {PAIR}))
    made.resumes_at(0, 0)
    made.lead(changes([(str(number), b"x") for number in range(1, 90)], 10, inserted=True), 10)
    made.follow(changes([("500", b"y")], 20, inserted=True), 20)
    assert [finding.kind for finding in judged(made)] == [CrossingKind.WRITTEN]


# -- what is not known -----------------------------------------------------------------------------------------------


def test_nothing_is_judged_before_the_feed_is_past_the_start() -> None:
    crossing = Crossing(100)
    crossing.follow(changes([("1", b"x")], 5), 5)
    assert judged(crossing) == []
    assert (crossing.counts.unjudged, crossing.counts.is_exact) == (1, False)
    crossing.resumes_at(100, 6)
    crossing.follow(changes([("1", b"y")], 6), 6)
    crossing.follow(changes([("1", b"z")], 7), 7)
    assert [f.change.image for f in judged(crossing)] == [b"z"]


def test_a_doubtful_change_from_before_the_start_is_not_found_by_a_later_checkpoint() -> None:
    """A row is deleted before the start, inserted and deleted after it: the feed brings the first and no other."""
    crossing = Crossing(3)
    crossing.lead(changes([("1", b"x")], 4, inserted=True), 4)
    crossing.follow(changes([("1", None)], 1), 1)
    crossing.received_before(4)
    crossing.lead(changes([("1", None)], 5), 5)
    crossing.resumes_at(5, 1)
    crossing.follow([], 1)
    assert judged(crossing) == []
    assert (crossing.counts.unjudged, crossing.counts.is_exact) == (1, False)
    assert crossing.take_candidates() == [(PAIR, ("1",))]


def test_a_doubtful_change_from_before_the_start_is_explained_by_what_the_feed_brings() -> None:
    crossing = Crossing(3)
    crossing.lead(changes([("1", b"x")], 4, inserted=True), 4)
    crossing.follow(changes([("1", None)], 1), 1)
    crossing.received_before(4)
    crossing.follow(changes([("1", b"x")], 2, inserted=True), 2)
    crossing.resumes_at(4, 2)
    assert judged(crossing) == []
    assert (crossing.counts.explained, crossing.counts.unjudged, crossing.counts.is_exact) == (2, 0, True)


def test_a_change_waits_until_the_leading_side_is_read(crossing: Crossing) -> None:
    crossing.follow(changes([("1", b"x")], 5), 5)
    crossing.lead([], 50)
    assert crossing.counts.following == 0
    crossing.received_before(60)
    crossing.lead([], 59)
    assert crossing.counts.following == 0
    crossing.lead(changes([("1", b"x")], 60), 60)
    assert crossing.take() == []
    assert crossing.counts.explained == 1


def test_a_change_is_not_explained_by_what_was_committed_after_it(crossing: Crossing) -> None:
    crossing.follow(changes([("1", b"x")], 5), 5)
    crossing.received_before(60)
    crossing.lead(changes([("1", b"x")], 61), 61)
    assert [f.kind for f in crossing.take()] == [CrossingKind.WRITTEN]


def bring(crossing: Crossing, images: Sequence[bytes], brought: Sequence[bytes]) -> None:
    """Change a key on the leading side from 1 on, and let the feed bring some of that, also from 1 on."""
    for number, image in enumerate(images, start=1):
        crossing.lead(changes([("1", image)], number), number)
    for number, image in enumerate(brought, start=1):
        crossing.follow(changes([("1", image)], number), number)
    crossing.received_before(len(images))


def test_an_image_that_the_feed_sends_no_more_explains_nothing(crossing: Crossing) -> None:
    bring(crossing, [b"a", b"b"], [b"a", b"b"])
    crossing.resumes_at(2, 2)
    crossing.follow([], 2)
    crossing.follow(changes([("1", b"a")], 3), 3)
    assert judged(crossing) == []  # a feed that goes back further than it said comes forward again
    assert crossing.take_candidates() == [(PAIR, ("1",))]
    crossing.resumes_at(1_000_000, 4)
    crossing.follow([], 4)
    assert [(f.kind, f.change.position) for f in judged(crossing)] == [(CrossingKind.WRITTEN, 3)]


def test_a_side_that_stays_at_an_earlier_image_is_stale(crossing: Crossing) -> None:
    bring(crossing, [b"a", b"b"], [b"a", b"b", b"a"])
    assert crossing.take() == []
    crossing.resumes_at(2, 3)
    crossing.follow([], 3)
    assert [(f.kind, f.change.position) for f in judged(crossing)] == [(CrossingKind.STALE, 3)]
    assert judged(crossing) == []


def test_what_was_there_when_the_feed_brought_it_is_neither_stale_nor_a_collision(crossing: Crossing) -> None:
    bring(crossing, [b"a", b"b", b"a"], [b"a"])
    crossing.resumes_at(3, 1)
    crossing.follow([], 1)
    assert judged(crossing) == []
    crossing.follow(changes([("1", b"x")], 2), 2)
    assert [f.kind for f in judged(crossing)] == [CrossingKind.WRITTEN]


def test_nothing_is_stale_before_the_leading_side_is_read_as_far_as_the_feed_sent() -> None:
    crossing = Crossing(0, limit=3)
    crossing.resumes_at(0, 0)
    bring(crossing, [b"b", b"c"], [b"b", b"c", b"b"])
    crossing.resumes_at(3, 3)
    for _ in range(5):
        crossing.follow([], 3)  # what cannot wait is judged early
    crossing.lead(changes([("1", b"b")], 3), 3)
    assert judged(crossing) == []


def test_a_write_that_changes_nothing_is_no_finding(crossing: Crossing) -> None:
    crossing.follow([KeyChange(PAIR, ("1",), b"x", 1, before=b"x")], 1)
    assert judged(crossing) == []
    assert crossing.counts.unchanged == 1


def test_an_image_that_returns_after_new_ones_goes_in_no_circle() -> None:
    crossing = Crossing(0, new_images={PAIR})
    images = [b"same" if number % 2 else b"new %d" % number for number in range(40)]
    bring(crossing, images, images)
    assert judged(crossing) == []
    assert crossing.counts.returned == 0


def test_changes_that_cannot_wait_longer_are_not_judged() -> None:
    crossing = Crossing(0, limit=3)
    crossing.resumes_at(0, 0)
    for number in range(8):
        crossing.follow(changes([(str(number), b"x")], number + 1), number + 1)
    assert (crossing.counts.unjudged, crossing.take()) == (5, [])


def test_a_known_writer_decides_where_it_is_known() -> None:
    crossing = Crossing(0, feed_writers={"feed"})
    crossing.resumes_at(0, 0)
    crossing.lead(changes([("1", b"x")], 1), 1)
    for number, writer in enumerate(("feed", "other", "")):
        image = b"unseen" if writer == "feed" else b"x"
        crossing.follow([KeyChange(PAIR, ("1",), image, number, writer=writer)], number)
    assert [f.change.writer for f in judged(crossing)] == ["other"]


def test_a_row_whose_image_is_not_known_is_explained_by_any_change_of_its_key(crossing: Crossing) -> None:
    crossing.lead(changes([("1", UNKNOWN), ("2", b"x")], 1), 1)
    crossing.follow(changes([("1", b"x"), ("2", UNKNOWN), ("3", UNKNOWN)], 1), 1)
    assert [f.change.key for f in judged(crossing)] == [("3",)]


def test_what_a_carrier_sends_again_is_no_change_and_no_finding(crossing: Crossing) -> None:
    def late(key: KeyText, image: bytes) -> KeyChange:
        return KeyChange(PAIR, key, image, 1, is_late=True)

    crossing.lead(changes([("1", b"x")], 1), 1)
    crossing.lead([late(("1",), b"x"), late(("2",), b"y")], 2)
    assert crossing.counts.leading == 2
    crossing.follow([*changes([("1", b"x"), ("2", b"y")], 1), late(("3",), b"z")], 1)
    assert judged(crossing) == []
    assert (crossing.counts.explained, crossing.counts.unjudged) == (2, 1)


def test_keys_that_could_not_be_judged_are_named_once() -> None:
    crossing = Crossing(5)
    crossing.follow(changes([("1", b"x"), ("1", b"y"), ("2", b"z")], 1), 1)
    assert judged(crossing) == []
    assert crossing.take_candidates() == [(PAIR, ("1",)), (PAIR, ("2",))]
    assert crossing.take_candidates() == []


def test_findings_are_bounded_and_counted(crossing: Crossing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.watch.crossing.MOST_FINDINGS", 3)
    crossing.follow(changes([(str(n), b"x") for n in range(5)], 1), 1)
    assert len(judged(crossing)) == 3
    assert crossing.counts.findings[CrossingKind.WRITTEN] == 5
    assert crossing.take_candidates() == [(PAIR, ("3",)), (PAIR, ("4",))]


def test_a_finding_names_key_place_and_time() -> None:
    change = KeyChange(PAIR, ("5", None), b"x", 10, time=1_800_000_000.0)
    for kind in CrossingKind:
        text = sentence(CrossingFinding(kind, change, 3, (1, 2)), "target", "source", "binlog.000002:10")
        assert "key 5, NULL" in text
        assert "binlog.000002:10" in text
    text = sentence(CrossingFinding(CrossingKind.WRITTEN, change), "target", "source", "binlog.000002:10")
    assert text == (
        "key 5, NULL was written on source at binlog.000002:10 (2027-01-15 08:00:00 UTC), and target has no such "
        "change: another than the feed writes on source, or the feed alters values"
    )
