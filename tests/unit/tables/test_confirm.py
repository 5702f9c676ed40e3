"""Second reads: what may be called a difference while rows change, in a world with a clock of its own."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.model import DiffKind, KeyRange, LiveState, RowDiff, StoredKind, Verdict
from migverify.tables import confirm as confirm_module
from migverify.tables import diff as diff_module
from migverify.tables.confirm import confirm
from migverify.tables.diff import PairReader
from migverify.tables.tasks import Rules
from migverify.tables.verify import Controls, verify_tables
from tests.fakes import FakeStore
from tests.toy_tables import RULES, Rows, ToyEngine, ToyReader, ToySide, make_pair

LIVE = replace(RULES, delay_seconds=1.0, rounds=3, still_reads=3, live=True)


class World:
    """Source and target with a replicator between them; time passes only when somebody waits or reads."""

    def __init__(self, source: Rows, target: Rows) -> None:
        self.now = 1_000_000.0
        self.source = ToySide(source, self.reading)
        self.target = ToySide(target, self.reading)
        self._events: list[tuple[float, int, ToySide, int, str | None]] = []
        self._order = itertools.count()

    def write(self, at: float, key: int, value: str | None, lag: float) -> None:
        """Write a value (None: delete) on the source at a time, and on the target ``lag`` later."""
        for side, when in ((self.source, at), (self.target, at + lag)):
            heapq.heappush(self._events, (when, next(self._order), side, key, value))

    def reading(self, _what: str, _range: KeyRange | None) -> None:
        self.wait(0.01)

    def wait(self, seconds: float) -> None:
        self.now += max(0.0, seconds)
        while self._events and self._events[0][0] <= self.now:
            _, _, side, key, value = heapq.heappop(self._events)
            if value is None:
                side.rows.pop(key, None)
            else:
                side.rows[key] = value


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield from _patched(monkeypatch, World({}, {}))


def _patched(monkeypatch: pytest.MonkeyPatch, world: World) -> Iterator[World]:
    clock = SimpleNamespace(time=lambda: world.now, monotonic=lambda: world.now)
    monkeypatch.setattr(confirm_module, "time", clock)
    monkeypatch.setattr(diff_module, "time", clock)
    monkeypatch.setattr(ToyReader, "pause", lambda _self, seconds: world.wait(seconds))
    yield world


def reader(world: World, rules: Rules = LIVE) -> PairReader:
    pair = make_pair()
    sides = [ToyReader(s, t, rules) for s, t in zip(pair.sides, (world.source, world.target), strict=True)]
    return PairReader(pair, sides[:1], sides[1], rules)


def candidates(world: World, rules: Rules = LIVE) -> list[RowDiff]:
    return list(diff_module.leaf(reader(world, rules), KeyRange(), 1))


def states(world: World, rules: Rules = LIVE) -> dict[str | None, LiveState]:
    found = candidates(world, rules)
    assert all(diff.state is LiveState.UNCONFIRMED for diff in found)
    return {diff.key[0]: diff.state for diff in confirm(reader(world, rules), found)}


def test_a_row_that_stands_still_on_both_sides_is_diverged(world: World) -> None:
    world.source.rows, world.target.rows = {1: "a", 2: "b"}, {1: "a", 2: "c", 3: "d"}
    assert states(world) == {"2": LiveState.DIVERGED, "3": LiveState.DIVERGED}


def test_a_row_that_the_target_catches_up_with_is_converged(world: World) -> None:
    world.source.rows, world.target.rows = {1: "a"}, {1: "a"}
    world.write(world.now, 1, "b", lag=2.5)
    assert states(world) == {"1": LiveState.CONVERGED}


def test_the_last_round_is_no_proof_for_a_target_that_still_moves(world: World) -> None:
    """The source does not change any more, but the target is two changes behind: not yet a difference."""
    world.source.rows, world.target.rows = {1: "v0"}, {1: "v0"}
    for n in range(9):
        world.write(world.now + 1.1 * n, 1, f"v{n + 1}", lag=2.9)
    assert states(world)["1"] is not LiveState.DIVERGED


def test_a_row_that_never_rests_is_hot(world: World) -> None:
    world.source.rows, world.target.rows = {1: "v0"}, {1: "v0"}
    for n in range(200):
        world.write(world.now + 0.3 * n, 1, f"v{n + 1}", lag=1.0)
    assert states(world) == {"1": LiveState.HOT}


@pytest.mark.parametrize(("lag", "wanted"), [(2.9, LiveState.CONVERGED), (60.0, LiveState.DIVERGED)])
def test_the_promise_holds_for_lags_up_to_the_settle_time_only(world: World, lag: float, wanted: LiveState) -> None:
    """docs/live.md: delay * rounds (here 3 s) must be more than the target lags."""
    world.source.rows, world.target.rows = {1: "a"}, {1: "a"}
    world.write(world.now, 1, "b", lag=lag)
    assert states(world) == {"1": wanted}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_writes_in_flight_are_never_diverged_and_planted_faults_always_are(seed: int) -> None:
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as monkeypatch:
        rows: Rows = dict.fromkeys(range(60), "start")
        world = World(dict(rows), dict(rows))
        next(_patched(monkeypatch, world))
        planted = {(str(n),) for n in range(50, 60) if rng.random() < 0.5}
        for (key,) in planted:
            world.target.rows[int(key)] = "planted"
        values = itertools.count()
        applied = world.now
        for at in sorted(world.now + rng.uniform(0.0, 15.0) for _ in range(rng.randrange(0, 400))):
            # Applied in order, with a lag below delay * rounds; and every write is a new value.
            applied = max(applied, at + rng.choice([0.5, 2.0, 2.8]))
            value = None if rng.random() < 0.1 else f"w{next(values)}"
            world.write(at, rng.randrange(50), value, lag=applied - at)
        store, pair = FakeStore(), make_pair(60, spread=rng.random() < 0.5)
        run = store.start_run("verify", "h", {"pairs": []}, {}, kind=StoredKind.TABLES)
        engine = ToyEngine(world.source, world.target)
        verdict = verify_tables([pair], engine, store, run, LIVE, Controls())
        diverged = {d.key for _, d in store.row_diffs(run, pair.id, states=["diverged"])}
        assert diverged == planted
        assert (verdict is Verdict.MISMATCH) == bool(planted)


def test_where_nobody_writes_one_more_read_decides(world: World) -> None:
    world.source.rows, world.target.rows = {1: "a"}, {1: "b"}
    started = world.now
    assert states(world, replace(LIVE, still_reads=1, rounds=1)) == {"1": LiveState.DIVERGED}
    assert world.now - started < 2.0


def keyless(world: World, rules: Rules = LIVE) -> PairReader:
    pair = make_pair()
    sides = [replace(s, sql=replace(s.sql, key=(), range_key=())) for s in pair.sides]
    pair = replace(pair, sources=(sides[0],), target_side=sides[1])
    readers = [ToyReader(s, t, rules) for s, t in zip(sides, (world.source, world.target), strict=True)]
    return PairReader(pair, readers[:1], readers[1], rules)


def multiset(key: str, source: int, target: int) -> RowDiff:
    kind = DiffKind.MISSING_ON_TARGET if source > target else DiffKind.MISSING_ON_SOURCE
    return RowDiff("app.t", (key,), kind, LiveState.UNCONFIRMED, source_count=source, target_count=target)


def test_rows_without_a_key_diverge_when_their_surplus_stands_still(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([({"a": 3, "b": 1, "c": 2}, {"a": 1, "b": 1, "c": n}) for n in (0, 1, 0, 1, 0, 1)])
    monkeypatch.setattr(confirm_module, "count_rows", lambda _reader, _elements, _texts: next(counts))
    # The first read saw only the surplus: 2 more of "a", although the source holds 3.
    first = [multiset("a", 2, 0), multiset("b", 1, 0), multiset("c", 2, 0)]
    found = {diff.key[0]: diff for diff in confirm(keyless(world), first)}
    assert {key: diff.state for key, diff in found.items()} == {
        "a": LiveState.DIVERGED,
        "b": LiveState.CONVERGED,
        "c": LiveState.HOT,
    }
    assert (found["a"].source_count, found["a"].target_count) == (3, 1)
