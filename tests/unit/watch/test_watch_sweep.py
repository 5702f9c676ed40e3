"""Rounds over a TiDB whose changes nothing shows: no false difference, every lost row found, and a bound that holds."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.model import Idle, Item, Position
from migverify.changes.positions import tso_position
from migverify.config import Config, load_config
from migverify.errors import ConfigError, EndpointError, ReadError, UsageError
from migverify.exposition import page
from migverify.model import DiffKind, Flavor, KeyText, LiveState, RowDiff, RunInfo, StoredKind, Verdict
from migverify.sql.identity import TableIdentity
from migverify.tables import watch_check, watch_identity, watch_ranges, watch_versions
from migverify.tables.diff import PairReader
from migverify.tables.sweep import LEAST_ROWS, MOST_PARTS, Sweep, Swept, TableRounds, rounds_of, timed_sweep
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_check import CheckMoment
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_ranges import sweep_range
from migverify.tables.watch_run import TablesWatchRequest, sweep_minutes
from migverify.tables.watch_status import TablesStatus, WatchRules
from migverify.tables.watch_streams import clock_stream
from migverify.tables.watch_versions import check_versions
from migverify.watch import applied, clock
from migverify.watch.applied import Applied, Marker, SettleTime, TimedMarker
from migverify.watch.ledger import KeyState, Ledger, PairCounts
from migverify.watch.status import final_text, status_metrics
from migverify.watch.stream import Stream
from tests.fakes import FakeStore
from tests.toy_tables import RULES, ToyReader, ToySide, make_pair
from tests.waiting import PATIENCE

SETTLE = 0.25
RANGE = 25


def tso_now() -> int:
    return int(time.time() * 1000 * (1 << 18))


@dataclass
class Tidb:
    """A TiDB with the versions of its rows, and a MySQL that has each write ``delay`` seconds later, or never.

    MySQL's rows are computed when they are read, so a slow machine makes no feed slower than it is said to be.
    """

    rng: random.Random
    hides_cascades: ClassVar[bool] = False
    writes: dict[str, list[tuple[int, float, int | None]]] = field(default_factory=dict)
    """By key: commit, moment at which MySQL has it (inf for never), value."""
    delay: float = 0.8 * SETTLE
    stalled_at: float | None = None
    moved: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def write(self, key: str, value: int | None, *, lost: bool = False) -> None:
        with self.lock:
            late = float("inf") if lost else time.time() + self.rng.random() * self.delay
            before = [at for _, at, _ in self.writes.get(key, []) if at != float("inf")]
            if not lost and before:
                late = max(late, before[-1])  # the feed keeps the order of one key
            self.writes.setdefault(key, []).append((tso_now(), late, value))

    def target(self, key: str, moment: int) -> int | None:
        values = [value for commit, _, value in self.writes.get(key, []) if commit <= moment]
        return values[-1] if values else None

    def source(self, key: str, now: float) -> int | None:
        now = now if self.stalled_at is None else min(now, self.stalled_at)
        values = [value for _, at, value in self.writes.get(key, []) if at <= now]
        return values[-1] if values else None

    def diffs(self, keys: Sequence[str], moment: int) -> list[RowDiff]:
        with self.lock:
            now = time.time()
            found = [(key, self.source(key, now), self.target(key, moment)) for key in keys]
        return [diff_of(key, ours, theirs) for key, ours, theirs in found if ours != theirs]

    def wrong(self) -> set[str]:
        now, moment = time.time() + 1000, tso_now()
        return {key for key in self.writes if self.source(key, now) != self.target(key, moment)}

    def sweep(self, reader: Any, lower: KeyText | None, rows: int, bound: KeyText | None = None) -> Swept:
        del rows
        with self.lock:
            keys = sorted(k for k in self.writes if lower is None or k > (lower[0] or ""))
        if bound is not None:
            keys = [k for k in keys if k <= (bound[0] or "")]
        some = keys[:RANGE]
        end = (some[-1],) if len(keys) > RANGE else bound
        return Swept(len(some), tuple(self.diffs(some, reader.moment)), end)

    # -- the target as the watch reads it

    def now(self) -> int:
        return ((tso_now() >> 18) + 1) << 18

    def open(self, pair: Any, moment: Any = None) -> Any:
        if isinstance(pair, Position) or pair is None:
            return self.clock()
        while moment > tso_now():
            time.sleep(0.001)
        target = SimpleNamespace(checksum=lambda _: (None if self.moved == 0 else object(), 0.0))
        key = pair.target_side.sql.key
        return SimpleNamespace(pair=pair, moment=moment, key=key, target=target, close=lambda: None)

    def clock(self) -> Iterator[Item]:
        while True:
            yield Idle(self.head(None), time.time())
            time.sleep(0.01)

    def head(self, session: object) -> Position:
        del session
        return tso_position(self.now())

    def ordinal(self, position: Position) -> int:
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        del like
        return f"tso:{ordinal}"


def diff_of(key: str, ours: int | None, theirs: int | None) -> RowDiff:
    kind = (DiffKind.MISSING_ON_TARGET if theirs is None else DiffKind.MISSING_ON_SOURCE if ours is None
            else DiffKind.VALUE_DIFFERS)  # fmt: skip
    return RowDiff("app.t", (key,), kind, LiveState.UNCONFIRMED, source_checksum=None if ours is None else str(ours),
                   target_checksum=None if theirs is None else str(theirs))  # fmt: skip


class Pool:
    @contextmanager
    def session(self, endpoint: object, probe: str = "") -> Iterator[Any]:
        del endpoint, probe
        yield SimpleNamespace()


@dataclass
class Proof(Applied):
    """A marker that MySQL has as soon as it has everything of before."""

    world: Tidb

    def reached(self, target: object) -> tuple[int | None, str]:
        del target
        return tso_now() - (int(self.world.delay * 1000) << 18), ""

    def sample(self, source: object) -> int:
        raise NotImplementedError


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def make(world: Tidb, *, proof: Applied | None = None, sweep: Sweep | None = None, **options: Any) -> TablesWatch:
        def differing(reader: Any, keys: Sequence[KeyText]) -> tuple[list[RowDiff], set[KeyText]]:
            if world.rng.random() < 0.3:
                time.sleep(0.002)
            return world.diffs([k[0] or "" for k in keys], reader.moment), set()

        def read_pairs(pool: object, target: object, pairs: Sequence[Watched]) -> dict[int, dict[str, TableIdentity]]:
            del pool, target
            return {w.number: identity for w in pairs}

        identity = {"target/app.t": TableIdentity("BASE TABLE", (("", "1"),), "2026", "c")}
        monkeypatch.setattr(watch_versions, "differing_rows", differing)
        monkeypatch.setattr(watch_check, "_with_columns", lambda _, diff: replace(diff, state=LiveState.DIVERGED))
        for module in (watch_identity, watch_ranges):
            monkeypatch.setattr(module, "read_pairs", read_pairs)
        monkeypatch.setattr(watch_identity.IdentityWatch, "_count", lambda *_: {})
        monkeypatch.setattr(watch_ranges, "sweep_range", world.sweep)
        pair = make_pair()
        assert pair.target_side is not None
        end = pair.target_side.endpoint
        watched = Watched(0, end.name, "app", "t", ("id",), pair.target_side.sql.key, pair=pair)
        stream = Stream(end, world, proof or SettleTime(SETTLE), None)  # type: ignore[arg-type]
        store = FakeStore()
        run = store.start_run("watch", "h", {"pairs": []}, {}, kind=StoredKind.TABLES)
        past = SimpleNamespace(now=world.now, open=world.open, settle=SETTLE, held=lambda: nullcontext(world.now()))
        return TablesWatch(
            [watched], [stream], Ledger(options.pop("ledger", tmp_path / "w.db")), store, run, Pool(),  # type: ignore[arg-type]
            [pair.sources[0].endpoint], end, RULES, options.pop("limits", WatchRules(0.02, reverse=True)),
            {}, lambda *_: False, slots=2, known={0: identity}, sweep=sweep or Sweep(0, [0], 0.0005, {0: 100}),
            past=past, **options,
        )  # fmt: skip

    return make


def run_until(watch: TablesWatch, right: Callable[[], bool], seconds: float = PATIENCE) -> TablesStatus:
    deadline = time.monotonic() + seconds
    return watch.run(lambda: time.monotonic() > deadline or right())


def counts(watch: TablesWatch) -> PairCounts:
    return watch.ledger.counts(0).get(0, PairCounts())


@contextmanager
def load(world: Tidb, keys: int = 60, pause: float = 0.003) -> Iterator[None]:
    """Write hidden from the watch: few hot rows, many others, rows that change back, rows that come and go."""
    stopped = threading.Event()

    def run() -> None:
        n = 0
        while not stopped.wait(pause):
            n += 1
            chance = world.rng.random()
            if chance < 0.3:
                world.write(str(1000 + world.rng.randrange(3)), n)
            elif chance < 0.4:
                world.write("1100", n % 2)
            else:
                world.write(str(2000 + world.rng.randrange(keys)), None if world.rng.random() < 0.1 else n)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


def filled(seed: int, keys: int = 60) -> Tidb:
    world = Tidb(random.Random(seed))
    for n in range(keys):
        world.write(str(2000 + n), n)
    for n in range(40):
        world.write(str(3000 + n), n)
    for values in world.writes.values():
        values[:] = [(commit - (1000 << 18), 0.0, value) for commit, _, value in values]
    return world


def drain(watch: TablesWatch, world: Tidb, seconds: float = PATIENCE) -> TablesStatus:
    watch.limits = replace(watch.limits, until={0: world.now()}, time_limit=seconds)
    return watch.run()


@pytest.mark.parametrize("seed", range(3))
def test_rows_on_their_way_are_no_difference_and_lost_rows_are_found(made: Any, seed: int) -> None:
    world = filled(seed)
    watch = made(world)
    lost = {"3003", "3017", "4001"} if seed else set()
    with load(world):
        status = run_until(watch, lambda: watch.sweep.rounds >= 3)
        assert (counts(watch).diverged, status.verdict) == (0, Verdict.INCONCLUSIVE)
        watch.ledger.close()
        again = made(world, ledger=watch.ledger.path)
        for key in lost:
            world.write(key, 99, lost=True)
        rounds = watch.sweep.rounds + 6
        status = run_until(again, lambda: again.sweep.rounds >= rounds and counts(again).diverged >= len(lost))
    diverged = {d.key[0] for _, d in again.store.row_diffs(again.run_id, "app.t") if d.state is LiveState.DIVERGED}
    assert diverged == lost
    assert status.verdict is (Verdict.MISMATCH if lost else Verdict.INCONCLUSIVE)
    if lost:
        assert status.headline().startswith("rollback MISMATCH; every other row was equal at some moment since ")
    again.ledger.close()
    last = made(world, ledger=watch.ledger.path, sweep=Sweep(0, [0], 0.0005, {0: 100}))
    status = drain(last, world)
    assert status.verdict is (Verdict.MISMATCH if lost else Verdict.MATCH), final_text(status)
    assert status.tables[0].diverged == len(lost) == len(world.wrong())


def test_a_feed_that_stands_still_is_no_difference(made: Any) -> None:
    world = filled(1)
    watch = made(world)
    with load(world):
        run_until(watch, lambda: watch.sweep.rounds >= 2)
        watch.ledger.close()
        world.stalled_at = time.time()
        again = made(world, ledger=watch.ledger.path)
        status = run_until(again, lambda: counts(again).doubt > 20, seconds=PATIENCE)
        status = run_until(again, lambda: False, seconds=6 * SETTLE)
    assert (status.tables[0].diverged, status.verdict) == (0, Verdict.INCONCLUSIVE)
    status = drain(again, world, seconds=6 * SETTLE)
    assert (status.tables[0].diverged, status.verdict) == (0, Verdict.INCONCLUSIVE)


@pytest.mark.parametrize("has_marker", [False, True])
def test_a_version_of_before_a_final_pass_does_not_prove_a_row_that_it_finds(made: Any, has_marker: bool) -> None:
    """MySQL has what the target held when the row was found to differ; what was written since is lost."""
    world = filled(1)
    watch = made(world)
    run_until(watch, lambda: watch.sweep.rounds >= 1)
    world.write("3001", 98, lost=True)
    run_until(watch, lambda: counts(watch).doubt == 1)
    watch.ledger.close()
    commit, _, value = world.writes["3001"][-1]
    world.writes["3001"][-1] = (commit, time.time(), value)
    world.write("3001", 99, lost=True)
    assert world.wrong() == {"3001"}
    again = made(world, ledger=watch.ledger.path, proof=Proof(world) if has_marker else None)
    status = drain(again, world, seconds=PATIENCE if has_marker else 6 * SETTLE)
    assert status.verdict is (Verdict.MISMATCH if has_marker else Verdict.INCONCLUSIVE), final_text(status)
    assert (status.tables[0].diverged, status.tables[0].doubt) == ((1, 0) if has_marker else (0, 1))


def test_a_version_of_before_a_row_was_found_to_differ_does_not_prove_it(made: Any) -> None:
    """The round that found it states its own moment for the row, and the version is older."""
    world = filled(1)
    watch = made(world)
    pair = watch._plans[0]
    world.write("3001", 98)
    first = world.now()
    time.sleep(0.01)
    world.write("3001", 99, lost=True)
    again = world.now()
    world.writes["3001"][-2] = (world.writes["3001"][-2][0], 0.0, 98)
    watch.ledger.touch({(0, ("3001",)): (1, 0, 0)}, {}, 1.0, origin="sweep", found=first)
    (entry,) = watch.ledger.due({0: first}, 2.0, 9)
    watch.ledger.seen([(entry, KeyState.DOUBT, "0", "98", {0: first}, 0.0)], 2.0)
    moment = CheckMoment(lambda _: world.now(), {}, {0: False}, 0.02, [0], unseen=True)
    (entry,) = watch.ledger.due({0: first}, 3.0, 9)
    assert check_versions(watch.past, pair, [entry], moment).proved == [entry]
    assert check_versions(watch.past, pair, [entry], replace(moment, final=again)).proved == []
    watch.ledger.touch({(0, ("3001",)): (1, 0, 0)}, {}, 4.0, origin="sweep", found=again)
    assert watch.ledger.proved([entry]) == set(), "it was found to differ while it was read"
    (entry,) = watch.ledger.due({0: first}, 5.0, 9)
    checked = check_versions(watch.past, pair, [entry], moment)
    assert checked.proved == []
    assert [state for _, state, *_ in checked.differing] == [KeyState.DOUBT]


def test_each_round_that_finds_a_row_different_keeps_its_moment(made: Any) -> None:
    """The status states it for all rows of the range: what the target held before must not prove the row."""
    world = filled(1)
    world.write("3001", 98, lost=True)
    watch = made(world)
    run_until(watch, lambda: counts(watch).doubt == 1 and watch.sweep.rounds >= 3)
    oldest = watch.sweep.oldest()
    assert oldest is not None
    (entry,) = watch.ledger.due({0: world.now()}, time.time() + 1000, 9)
    assert (entry.key, entry.found >= oldest) == (("3001",), True)


def test_in_a_write_stop_time_alone_does_not_tell_a_lost_row_and_a_marker_does(made: Any, tmp_path: Path) -> None:
    world = filled(1)
    world.write("3001", 99, lost=True)
    status = drain(made(world), world, seconds=5 * SETTLE)
    assert (status.tables[0].diverged, status.verdict) == (0, Verdict.INCONCLUSIVE)
    status = drain(made(world, proof=Proof(world), ledger=tmp_path / "marker.db"), world)
    assert (status.tables[0].diverged, status.verdict) == (1, Verdict.MISMATCH)


def test_a_final_pass_is_match_as_of_its_moment(made: Any) -> None:
    world = filled(1)
    watch = made(world)
    status = drain(watch, world)
    assert status.verdict is Verdict.MATCH, final_text(status)
    assert status.headline().startswith("rollback MATCH as of tso:")
    assert "not seen without a changefeed: what was written on the target after tso:" in final_text(status)
    assert status.tables[0].whole


def test_a_final_pass_while_rows_are_written_is_no_match(made: Any) -> None:
    world = filled(1)
    world.moved = 1
    status = drain(made(world), world)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "writes are not stopped" in " ".join(status.tables[0].reasons)


def test_the_status_states_the_bound(made: Any) -> None:
    world = filled(1)
    watch = made(world, sweep=Sweep(0, [0], 5.0, {0: 1_000_000}))
    status = run_until(watch, lambda: watch.sweep.rounds >= 1)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert status.sweep is not None
    assert status.sweep.age_seconds is not None
    assert (status.sweep.bound_seconds, status.sweep.rounds) == (300.0, 1)
    assert "rollback INCONCLUSIVE; every row was equal at some moment since " in status.headline()
    assert any(reason.startswith("no changefeed: what was written on the target in") for reason in status.reasons)
    text = page(status_metrics(status))
    age = text.partition('migverify_watch_table_equal_age_seconds{table="app.t"} ')[2].partition("\n")[0]
    assert 0 <= float(age) < PATIENCE
    assert "migverify_watch_sweep_bound_seconds 300" in text


def test_a_bound_that_is_not_held_is_said(made: Any) -> None:
    world = filled(1)
    watch = made(world, sweep=Sweep(1, [0], 0.001, {0: 100}))
    watch.sweep.rate = 0
    status = run_until(watch, lambda: watch.sweep.rounds >= 1)
    watch.sweep.minutes = 1e-9
    status = watch.status()
    assert any("is not held" in reason for reason in status.reasons)


def test_a_range_that_cannot_be_read_holds_the_bound_back(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = filled(1)
    watch = made(world)

    def fail(*_: object) -> Swept:
        raise ReadError("source: connection lost")

    monkeypatch.setattr(watch_ranges, "sweep_range", fail)
    status = drain(watch, world, seconds=0.5)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert status.sweep is not None
    assert (status.sweep.equal_since, status.sweep.final_as_of) == (None, "")
    assert "connection lost" in " ".join(status.reasons)


# -- rounds over one table


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.sampled_from(["range"] * 8 + ["restart", "reload"]), st.integers(1, 2500)),
        min_size=1, max_size=120,
    ),
    st.integers(0, 4000),
)  # fmt: skip
def test_no_key_was_compared_before_the_stated_moment(steps: list[tuple[str, int]], expected: int) -> None:
    """Whatever the ranges are, and where errors and kills cut a round off."""
    last = 9999
    compared: dict[int, int] = {}
    table = TableRounds(last_rows=expected)
    for moment, (what, width) in enumerate(steps, 1):
        if what == "restart":
            table.restart()
        elif what == "reload":
            table = rounds_of(table.text())
        else:
            lower = -1 if table.reached is None else int(table.reached[0] or 0)
            bound = last + 1 if table.bound is None else int(table.bound[0] or 0)
            upper = min(lower + width, bound)
            end = None if upper > last else (str(upper),)
            compared |= dict.fromkeys(range(lower + 1, upper + 1), moment)
            is_end = table.took(end, width, moment)
            assert is_end is (end is None)
        if table.oldest is not None:
            assert min(compared.get(key, 0) for key in range(last + 1)) >= table.oldest
            assert table.oldest > 0


def test_the_parts_of_a_table_do_not_grow_with_it() -> None:
    table = TableRounds()
    for n in range(10_000):
        table.took((str(n),), LEAST_ROWS, n)
    assert len(table.done) <= 4 * MOST_PARTS
    table.took(None, 1, 10_000)
    assert table.oldest == 0
    assert len(table.text()) < 20_000


def test_the_oldest_part_grows_young_as_the_next_round_goes_on() -> None:
    table = TableRounds()
    for n in range(10):
        table.took((str(n),) if n < 9 else None, LEAST_ROWS, n + 1)
    assert table.oldest == 1
    table.took(("0",), LEAST_ROWS, 11)
    table.took(("1",), LEAST_ROWS, 12)
    assert table.oldest == 3


def test_a_table_with_other_rows_begins_anew() -> None:
    sweep = Sweep(0, [0, 1], 1.0, {0: 10, 1: 10})
    sweep.begin_final(5)
    for number in (0, 1):
        assert sweep.due() == number
        sweep.took(number, sweep.of(number), Swept(10, (), None, moment=5))
        sweep._due = 0.0
    assert sweep.is_passed
    sweep.forget(1)
    assert (sweep.is_passed, sweep.due(), sweep.oldest()) == (False, 1, None)


def test_a_range_that_was_read_before_a_table_was_swapped_does_not_count() -> None:
    sweep = Sweep(0, [0], 1.0, {0: 10})
    before = sweep.of(0)
    sweep.forget(0)
    sweep.took(0, before, Swept(10, (), None, moment=5))
    assert sweep.oldest() is None


@given(st.integers(1, 10**9), st.floats(0.1, 10_000))
def test_the_pace_is_what_the_minutes_need(rows: int, minutes: float) -> None:
    sweep = timed_sweep({0: rows}, minutes, 0)
    assert sweep.pace * 60 * minutes >= rows
    limit = int(sweep.pace)
    if limit and sweep.pace > limit:
        with pytest.raises(ConfigError, match=r"watch\.sweep_rows allows"):
            timed_sweep({0: rows}, minutes, limit)


def test_rows_with_null_in_their_key_are_compared_too() -> None:
    """They are in no range, so a round over ranges alone would say nothing of them."""
    pair = make_pair(nullable=True)
    assert pair.target_side is not None
    ours, theirs = ToySide({1: "a", 2: "b", None: "x"}), ToySide({1: "a", 2: "b", None: "x"})
    reader = PairReader(
        pair, [ToyReader(pair.sources[0], ours, RULES)], ToyReader(pair.target_side, theirs, RULES), RULES
    )
    assert sweep_range(reader, None, 1).reached == ("1",)
    assert sweep_range(reader, ("1",), 5).reached is None
    theirs.rows[None] = "y"
    assert sweep_range(reader, None, 1).reached == ("1",)
    with pytest.raises(ReadError, match="NULL in their key"):
        sweep_range(reader, ("1",), 5)


@given(st.sets(st.integers(0, 200), min_size=1), st.integers(1, 50), st.integers(1, 200))
def test_a_range_ends_at_the_bound_of_the_round_before(keys: set[int], rows: int, bound: int) -> None:
    pair = make_pair()
    assert pair.target_side is not None
    side = ToySide(dict.fromkeys(keys, "a"))
    reader = PairReader(
        pair, [ToyReader(pair.sources[0], side, RULES)], ToyReader(pair.target_side, side, RULES), RULES
    )
    lower: KeyText | None = None
    while lower != (str(bound),):
        swept = sweep_range(reader, lower, rows, (str(bound),))
        assert swept.reached is not None
        assert (-1 if lower is None else int(lower[0] or 0)) < int(swept.reached[0] or 0) <= bound
        lower = swept.reached


# -- how it begins

PLAIN = 'source: {url: "mysql://app@db1"}\ntarget: {url: "tidb://root@tidb"}\ntables: {include: ["app.*"]}\n'
CARRIER = "reverse: {carrier: {format: canal-json, files: [sink.json]}, sweep_minutes: 3}\n"


def config_of(folder: Path, more: str = "") -> Config:
    path = folder / "migverify.yaml"
    path.write_text(PLAIN + more, encoding="utf-8")
    return load_config(path)


def resumed(**facts: Any) -> RunInfo:
    return RunInfo("r1", "watch", 0.0, None, Verdict.INCONCLUSIVE, "h", {}, facts)


@pytest.mark.parametrize(
    ("more", "option", "began", "minutes"),
    [
        ("", 5.0, None, 5.0),
        ("reverse: {sweep_minutes: 3}\n", None, None, 3.0),
        ("reverse: {sweep_minutes: 3}\n", 5.0, None, 5.0),
        ("", None, resumed(sweep=7.0), 7.0),
        ("", None, None, None),
        (CARRIER, None, None, None),
    ],
)
def test_the_minutes_are_those_of_the_option_the_configuration_or_the_watch(
    tmp_path: Path, more: str, option: float | None, began: RunInfo | None, minutes: float | None
) -> None:
    request = TablesWatchRequest("c", reverse=True, sweep=option)
    assert sweep_minutes(config_of(tmp_path, more), request, began) == minutes


@pytest.mark.parametrize(
    ("more", "reverse", "option", "began", "words"),
    [
        ("", False, 5.0, None, "--sweep is for the reverse direction"),
        (CARRIER, True, 5.0, None, "for a target without one"),
        (CARRIER, True, None, resumed(sweep=7.0), "began in rounds over the tables"),
        ("", True, 5.0, resumed(), "began with the changes of a stream"),
    ],
)
def test_a_sweep_where_changes_are_read_is_refused(
    tmp_path: Path, more: str, reverse: bool, option: float | None, began: RunInfo | None, words: str
) -> None:
    """The ledger of a sweep holds a time, not a place up to which changes were read: the two must not mix."""
    request = TablesWatchRequest("c", reverse=reverse, sweep=option)
    with pytest.raises(UsageError, match=words):
        sweep_minutes(config_of(tmp_path, more), request, began)


def test_a_marker_on_a_clock_has_the_place_at_which_it_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, "reverse: {applied: marker, marker: ops.m}\n")
    marker = clock_stream(config, {}, "run").applied
    assert isinstance(marker, TimedMarker)
    monkeypatch.setattr(applied, "current_timestamp", lambda _: 4711)
    monkeypatch.setattr(Marker, "sample", lambda *_: 3)
    monkeypatch.setattr(Marker, "newest", lambda *_: 2)
    marker.sample(SimpleNamespace())  # type: ignore[arg-type]
    assert marker.ordinal(SimpleNamespace()) is None  # type: ignore[arg-type]
    monkeypatch.setattr(Marker, "newest", lambda *_: 3)
    assert marker.ordinal(SimpleNamespace()) == 4711  # type: ignore[arg-type]


def test_the_time_of_a_server_that_does_not_answer_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is silent, and asked again: a watch whose clock ended could not go on."""
    asked = iter([ReadError("lost"), 5 << 18, EndpointError("refused"), 9 << 18])

    def current(_: object) -> int:
        answer = next(asked)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(clock, "CLOCK_SECONDS", 0.0)
    monkeypatch.setattr(clock, "current_timestamp", current)
    monkeypatch.setattr(clock, "open_session", lambda *_: nullcontext(SimpleNamespace()))
    items = clock.CommitClock(make_pair().sources[0].endpoint, None).open(None)
    places = [item.at for item in (next(items), next(items)) if isinstance(item, Idle)]
    assert places == [tso_position(6 << 18), tso_position(10 << 18)]


def test_the_ledger_keeps_rounds_and_what_mysql_held(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "w.db")
    ledger.keep_round(0, "a")
    ledger.keep_round(0, "b")
    assert ledger.rounds() == {0: "b"}
    keys = {(0, (key,)): (1, 0, 0) for key in ("1", "2")}
    ledger.touch(keys, {}, 1.0, origin="sweep", source_sums={("1",): "x", ("2",): None})
    ledger.touch(keys, {}, 2.0, origin="sweep", source_sums={("1",): "y"})
    assert {entry.key[0]: entry.source_sum for entry in ledger.due({0: 1}, 3.0, 10)} == {"1": "y", "2": None}


@pytest.mark.parametrize("flavor", [Flavor.TIDB, Flavor.MYSQL])
def test_a_marker_is_written_where_sessions_cannot_be_read_only(flavor: Flavor) -> None:
    """TiDB refuses SET SESSION TRANSACTION READ ONLY with 1235: the sample failed, and nothing was ever applied."""
    executed: list[str] = []

    def execute(sql: str) -> None:
        if "READ ONLY" in sql and flavor is Flavor.TIDB:
            raise ReadError("1235: function READ ONLY has only noop implementation in tidb now")
        executed.append(sql.split()[0])

    session = SimpleNamespace(flavor=flavor, execute=execute, query=lambda _: [])
    assert Marker("ops.m", "ops.m", "w").sample(session) == 1  # type: ignore[arg-type]
    assert executed == (["REPLACE"] if flavor is Flavor.TIDB else ["SET", "REPLACE", "SET"])
