"""The watch over two tables in memory and a replicator that lags and lies: no false divergence, no fault missed."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.changes.model import Begin, ColumnMap, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap
from migverify.errors import ChangeError, EndpointError, MigverifyError, PlanError, ReadError
from migverify.exposition import page
from migverify.model import DiffKind, Endpoint, KeyText, LiveState, RowDiff, StoredKind, Verdict
from migverify.sql.identity import TableIdentity
from migverify.store.open import open_store
from migverify.tables import watch as watch_module
from migverify.tables import watch_check, watch_identity, watch_ranges
from migverify.tables.run_facts import ProofScope
from migverify.tables.sweep import Sweep, Swept
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_begin import record_converged
from migverify.tables.watch_identity import Watched
from migverify.tables.watch_status import Base, TablesStatus, WatchFacts, WatchRules, status_of, table_result
from migverify.watch import stream as stream_module
from migverify.watch.applied import Applied, SettleTime
from migverify.watch.collect import CatchUp
from migverify.watch.ledger import KeyState, Ledger, PairCounts, ordinal_of, shown
from migverify.watch.status import json_line, lines, status_metrics
from migverify.watch.stream import Stream
from migverify.watch.touched import form_of
from tests.fakes import FakeStore
from tests.toy_tables import RULES, make_pair
from tests.waiting import PATIENCE

T = TableMap("app", "t", (ColumnMap("id", 3, 0, unsigned=False, nullable=False),))


@dataclass
class World:
    """A source, its binlog, and a target that a replicator fills up to ``applied``."""

    rng: random.Random
    hides_cascades: ClassVar[bool] = True
    source: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, int | None]] = field(default_factory=list)  # transaction n (from 1) wrote key -> value
    applied: int = 0
    closed: bool = False
    skip: set[int] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)
    tables: dict[str, str] = field(default_factory=lambda: {"source/app.t": "1", "target/app.t": "2"})
    """Which table a name means: its id."""
    scope: set[str] = field(default_factory=set)
    """Tables in scope that no pair covers."""
    cascades: dict[tuple[str, str], set[tuple[str, str]]] = field(default_factory=dict)

    def write(self, key: str, value: int | None) -> None:
        with self.lock:
            self.log.append((key, value))
            _set(self.source, key, value)

    def apply(self, upto: int) -> None:
        with self.lock:
            while self.applied < min(upto, len(self.log)):
                self.applied += 1
                if self.applied not in self.skip:
                    _set(self.target, *self.log[self.applied - 1])

    def identities(self) -> dict[str, TableIdentity]:
        return {name: TableIdentity("BASE TABLE", (("", n),), "2026", "c") for name, n in self.tables.items()}

    def sweep(self, reader: object, lower: KeyText | None, rate: int) -> Swept:
        """Compare five rows; both sides are read at one moment."""
        del reader, rate
        with self.lock:
            keys = sorted(k for k in self.source.keys() | self.target.keys() if lower is None or k > (lower[0] or ""))
            diffs = [diff_of((k,), self.source.get(k), self.target.get(k)) for k in keys[:5]
                     if self.source.get(k) != self.target.get(k)]  # fmt: skip
        return Swept(len(keys[:5]), tuple(diffs), (keys[4],) if len(keys) > 5 else None)

    def head(self, session: object) -> Position:
        del session
        return self.position(len(self.log))

    def ordinal(self, position: Position) -> int:
        return ordinal_of(position)

    def shown(self, ordinal: int, like: Position | None) -> str:
        return shown(ordinal, like)

    def position(self, n: int) -> Position:
        return Position("b.000001", 100 * n)

    def open(self, since: Position | None) -> Iterator[Item]:
        n = since.offset // 100 if since else 0
        while True:
            with self.lock:
                new = self.log[n:]
            for key, _ in new:
                n += 1
                yield Begin(f"g:{n}", self.position(n - 1), time.time())
                yield Rows(Op.UPDATE, T, key.encode(), "b.000001", 100 * n, 0)
                yield Commit(f"g:{n}", self.position(n), time.time())
            yield Idle(self.position(n), time.time())
            if self.closed and n == len(self.log):
                time.sleep(0.005)
            time.sleep(0.002)


def _set(rows: dict[str, int], key: str, value: int | None) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


@dataclass
class Counted(Applied):
    """The exact applied position, as a checkpoint table gives it."""

    world: World

    def reached(self, target: object) -> tuple[int | None, str]:
        del target
        return ordinal_of(self.world.position(self.world.applied)), ""

    def sample(self, source: object) -> int:
        raise NotImplementedError


class ToyPool:
    @contextmanager
    def session(self, endpoint: Endpoint, probe: str = "") -> Iterator[Any]:
        del endpoint, probe
        yield SimpleNamespace()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def make(world: World, applied: Any = None, **options: Any) -> TablesWatch:
        def differing(
            reader: Any, keys: Sequence[KeyText], *, presence: bool = False
        ) -> tuple[list[RowDiff], set[KeyText]]:
            del reader, presence
            ours = {k: world.source.get(k[0] or "") for k in keys}
            if world.rng.random() < 0.3:
                time.sleep(0.002)  # the two sides are not read at one moment
            theirs = {k: world.target.get(k[0] or "") for k in keys}
            found = [diff_of(k, ours[k], theirs[k]) for k in keys if ours[k] != theirs[k]]
            return found, {k for k, v in ours.items() if v is not None}

        monkeypatch.setattr(watch_check, "differing_rows", differing)
        monkeypatch.setattr(watch_check, "_with_columns", lambda _, diff: replace(diff, state=LiveState.DIVERGED))

        def read_pairs(pool: object, target: object, pairs: Sequence[Watched]) -> dict[int, dict[str, TableIdentity]]:
            del pool, target
            return {w.number: world.identities() for w in pairs}

        for module in (watch_identity, watch_ranges):
            monkeypatch.setattr(module, "read_pairs", read_pairs)
        monkeypatch.setattr(watch_identity, "LOOK_SECONDS", 0.05)
        monkeypatch.setattr(watch_identity.IdentityWatch, "_count", lambda *_: {"ddl": str(world.tables)})
        monkeypatch.setattr(watch_module, "is_table", lambda *args: args[-1][1] in world.scope)
        monkeypatch.setattr(watch_module, "hidden_cascades", lambda *_: world.cascades)
        monkeypatch.setattr(watch_ranges, "sweep_range", world.sweep)
        monkeypatch.setattr(watch_ranges, "AGAIN_SECONDS", 0.05)
        monkeypatch.setattr(stream_module, "touched_keys", lambda _, event: iter([(event.images.decode(),)]))
        pair = make_pair()
        watched = Watched(0, "source", "app", "t", ("id",), pair.sources[0].sql.key, pair=pair)
        stream = Stream(pair.sources[0].endpoint, world, applied or Counted(world), Position("b.000001", 0))
        store = FakeStore()
        run = store.start_run("watch", "h", {"pairs": []}, {}, kind=StoredKind.TABLES)
        limits = options.pop("limits", WatchRules(0.02, 30.0, None, 10.0))
        return TablesWatch(
            [watched], [stream], Ledger(options.pop("ledger", tmp_path / "w.db")), store, run, ToyPool(),  # type: ignore[arg-type]
            [pair.sources[0].endpoint], pair.sources[0].endpoint, RULES, limits, options.pop("base", {}), in_app,
            slots=2,
            known=options.pop("known", {0: world.identities()}), replan=options.pop("replan", lambda watched: watched),
            **options,
        )  # fmt: skip

    return make


def diff_of(key: KeyText, ours: int | None, theirs: int | None) -> RowDiff:
    kind = (DiffKind.MISSING_ON_TARGET if theirs is None else DiffKind.MISSING_ON_SOURCE if ours is None
            else DiffKind.VALUE_DIFFERS)  # fmt: skip
    return RowDiff("app.t", key, kind, LiveState.UNCONFIRMED, source_checksum=None if ours is None else str(ours),
                   target_checksum=None if theirs is None else str(theirs))  # fmt: skip


def run_until(watch: TablesWatch, right: Callable[[], bool], seconds: float = PATIENCE) -> TablesStatus:
    """Run until something is so; on a slow machine that takes a while, and the assertions say what is missing."""
    deadline = time.monotonic() + seconds
    return watch.run(lambda: time.monotonic() > deadline or right())


def noted(watch: TablesWatch) -> set[str]:
    return {kind for _, kind, _ in watch.ledger.notes()}


def proved(watch: TablesWatch) -> int:
    return watch.ledger.counts(0).get(0, PairCounts()).proved


def in_app(database: str, table: str) -> bool:
    del table
    return database == "app"


def drain(watch: TablesWatch, world: World, seconds: float = PATIENCE) -> TablesStatus:
    until = {0: ordinal_of(world.position(len(world.log)))}
    watch.limits = WatchRules(watch.limits.delay, watch.limits.hot_seconds, until, seconds)
    return watch.run()


def load(world: World, writes: int, keys: int, pause: float, *, lag: int) -> threading.Thread:
    """Write and replicate on a thread; the replicator is up to ``lag`` transactions behind while writes go on."""

    def run() -> None:
        for n in range(writes):
            key = str(world.rng.randrange(3) if world.rng.random() < 0.3 else world.rng.randrange(keys))
            world.write(key, None if world.rng.random() < 0.1 else n)
            world.apply(len(world.log) - world.rng.randrange(lag + 1))
            time.sleep(pause)
        world.apply(len(world.log))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.mark.parametrize("seed", range(4))
def test_under_load_nothing_diverges_and_every_skipped_change_that_lasts_does(made: Any, seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    if seed % 2:
        world.skip = set(rng.sample(range(1, 400), 6))
    watch = made(world)
    writer = load(world, 400, 60, 0.0005, lag=40)
    stopped = threading.Event()
    result: list[TablesStatus] = []
    runner = threading.Thread(target=lambda: result.append(watch.run(stopped.is_set)))
    runner.start()
    writer.join()
    stopped.set()
    runner.join()
    # Go on from the ledger as a new process would, and drain.
    wrong = {k for k in world.source.keys() | world.target.keys() if world.source.get(k) != world.target.get(k)}
    watch.ledger.close()
    again = made(world, ledger=watch.ledger.path)
    again.store, again.run_id = watch.store, watch.run_id
    status = drain(again, world)
    diverged = {d.key[0] for _, d in watch.store.row_diffs(watch.run_id, "app.t") if d.state is LiveState.DIVERGED}
    assert diverged == wrong
    assert status.verdict is (Verdict.MISMATCH if wrong else Verdict.MATCH), status
    assert status.tables[0].diverged == len(wrong)
    assert status.tables[0].images == 400


def test_a_stalled_replicator_is_lag_and_never_a_difference(made: Any) -> None:
    world = World(random.Random(1))
    for n in range(50):
        world.write(str(n), n)
    world.apply(20)
    status = drain(made(world), world, seconds=0.5)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "lag" in " ".join(status.reasons)
    assert status.tables[0].diverged == 0
    assert 30 <= (status.sources[0].lag_transactions or 0) < 30 + stream_module.POINT_COMMITS


def test_time_alone_is_no_proof_of_a_difference(made: Any) -> None:
    world = World(random.Random(1))
    for n in range(20):
        world.write(str(n), n)
    stalled = drain(made(world, SettleTime(0.05)), world, seconds=0.6)
    assert (stalled.verdict, stalled.tables[0].diverged) == (Verdict.INCONCLUSIVE, 0)


def test_with_a_witness_time_is_enough(made: Any, tmp_path: Path) -> None:
    world = World(random.Random(1), skip={3})
    for n in range(20):
        world.write(str(n), n)
    world.apply(20)
    status = drain(made(world, SettleTime(0.05), ledger=tmp_path / "settle.db"), world)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)


def test_a_row_repaired_later_is_equal_again(made: Any) -> None:
    world = World(random.Random(1), skip={2})
    for n in range(4):
        world.write(str(n), n)
    world.apply(4)
    watch = made(world)
    assert drain(watch, world).verdict is Verdict.MISMATCH
    world.target["1"] = 1
    watch.ledger.close()
    again = made(world, ledger=watch.ledger.path)
    again.store, again.run_id = watch.store, watch.run_id
    world.write("9", 9)
    world.apply(5)
    deadline = time.monotonic() + PATIENCE
    status = again.run(lambda: time.monotonic() > deadline or again.ledger.counts(0)[0].diverged == 0)
    assert status.tables[0].diverged == 0
    states = [json.loads(b)["state"] for b in watch.store.blobs(watch.run_id, "app.t", "transition")]
    assert states == ["diverged", "converged"]


def test_a_row_repaired_while_no_watch_ran_is_read_again_before_the_drain_ends(made: Any) -> None:
    world = World(random.Random(1), skip={2})
    for n in range(4):
        world.write(str(n), n)
    world.apply(4)
    watch = made(world)
    assert drain(watch, world).verdict is Verdict.MISMATCH
    watch.ledger.wait(watch.ledger._keys("diverged=1", []), time.time() + 3600)
    watch.ledger.close()
    again = made(world, ledger=watch.ledger.path)
    assert drain(again, world).tables[0].diverged == 1, "it still differs"
    again.ledger.wait(again.ledger._keys("diverged=1", []), time.time() + 3600)
    again.ledger.close()
    world.target["1"] = 1
    status = drain(made(world, ledger=watch.ledger.path), world)
    assert status.verdict is Verdict.MATCH, status


def test_a_diverged_key_that_stands_still_does_not_hold_a_drain_open(made: Any) -> None:
    """A new process has no key yet whose rows are equal, and inside a write stop none will come: no witness."""
    world = World(random.Random(1), skip={3})
    for n in range(20):
        world.write(str(n), n)
    world.apply(20)
    watch = made(world, SettleTime(0.05))
    assert drain(watch, world).verdict is Verdict.MISMATCH
    watch.ledger.close()
    again = made(world, SettleTime(0.05), ledger=watch.ledger.path)
    began = time.monotonic()
    status = drain(again, world, seconds=60.0)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    assert not any("time limit" in reason for reason in status.reasons)
    assert time.monotonic() - began < 30.0
    # The process that proved it may have been killed between its ledger and its store: the next one records it as well.
    assert [diff.key for _, diff in again.store.row_diffs(again.run_id, "app.t")] == [("2",)]
    again.ledger.close()
    world.target["2"] = 2  # repaired while no watch ran
    assert drain(made(world, SettleTime(0.05), ledger=watch.ledger.path), world).verdict is Verdict.MATCH


class Broken(World):
    """A world whose stream breaks after its last transaction."""

    error: MigverifyError = ChangeError("an event of type 99 at b.000001:400 is not known")

    def open(self, since: Position | None) -> Iterator[Item]:
        for item in super().open(since):
            if isinstance(item, Idle):
                raise self.error
            yield item


def test_a_broken_stream_voids_the_verdict_after_what_is_certain(made: Any) -> None:
    world = Broken(random.Random(1))
    for n in range(4):
        world.write(str(n), n)
    world.apply(4)
    status = made(world).run()
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "type 99" in status.reasons[0]
    assert status.tables[0].keys == 4  # what was read was still proved


class Speaking(World):
    """A world that says a statement after its writes."""

    statement = Statement(Op.DDL, (("app", "t"),), "ALTER TABLE t ADD x INT", "app", "b.000001", 500, 0, "dba@host")

    def open(self, since: Position | None) -> Iterator[Item]:
        said = False
        for item in super().open(since):
            if isinstance(item, Idle) and not said:
                said = True
                at = self.position(len(self.log))
                yield Begin("g:99", at, time.time())
                yield self.statement
                yield Commit("g:99", at, time.time())
            yield item


def no_plan(watched: Sequence[Watched]) -> Sequence[Watched]:
    del watched
    raise PlanError("app.t is gone")


def test_a_schema_change_is_a_finding_and_the_table_is_stale(made: Any) -> None:
    world = Speaking(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world, replan=no_plan)
    status = run_until(watch, lambda: "stale" in noted(watch))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "ALTER TABLE t ADD x INT by dba@host" in status.tables[0].findings[0]
    assert "it may hold other rows since it was compared" in status.tables[0].reasons[0]


def test_after_a_schema_change_the_whole_table_is_compared_again(made: Any) -> None:
    world = Speaking(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    status = run_until(watch, lambda: noted(watch) == {"ddl", "identity", "compared"} and proved(watch) == 1)
    assert status.verdict is Verdict.MATCH
    assert status.covers == "all rows of 1 table (compared again by this watch)"
    assert "compared: 1 row compared again at" in " ".join(status.tables[0].findings)


@dataclass
class Swapping(World):
    """A world in which other rows come under the name; the source's binlog tells that by one statement."""

    swaps: dict[str, dict[str, int]] = field(default_factory=dict)

    def swap_source(self, rows: dict[str, int]) -> None:
        with self.lock:
            name = f"RENAME {len(self.swaps)}"
            self.swaps[name] = dict(rows)
            self.source.clear()
            self.source.update(rows)
            self.tables = {**self.tables, "source/app.t": str(100 + len(self.log))}
            self.log.append((name, None))

    def swap_target(self, rows: dict[str, int]) -> None:
        with self.lock:
            self.target.clear()
            self.target.update(rows)
            self.tables = {**self.tables, "target/app.t": self.tables["target/app.t"] + "0"}

    def apply(self, upto: int) -> None:
        with self.lock:
            while self.applied < min(upto, len(self.log)):
                self.applied += 1
                key, value = self.log[self.applied - 1]
                if self.applied in self.skip:
                    continue
                if key in self.swaps:
                    self.swap_target(self.swaps[key])
                else:
                    _set(self.target, key, value)

    def open(self, since: Position | None) -> Iterator[Item]:
        for item in super().open(since):
            if isinstance(item, Rows) and item.images.decode() in self.swaps:
                sql = "RENAME TABLE t TO t_old, t2 TO t"
                tables = (("app", "t"), ("app", "t_old"), ("app", "t2"))
                yield Statement(Op.DDL, tables, sql, "app", "b.000001", item.offset, 0)
            else:
                yield item


def rows_of(world: World) -> Verdict:
    return Verdict.MATCH if world.source == world.target else Verdict.MISMATCH


@pytest.mark.attack("watch", "a table is swapped on the source and every row differs, inside the write stop",
                    "the whole table is compared again: MISMATCH")  # fmt: skip
@pytest.mark.parametrize("replicated", [True, False])
def test_a_table_swapped_on_the_source_is_compared_as_a_whole(made: Any, replicated: bool) -> None:
    world = Swapping(random.Random(1), {str(n): n for n in range(12)}, {str(n): n for n in range(12)})
    if not replicated:
        world.skip = {1}
    world.swap_source({str(n): n + 1 for n in range(12)})
    world.apply(1)
    watch = made(world, base={0: Base("r1", Verdict.MATCH)})
    status = drain(watch, world)
    assert status.verdict is (Verdict.MATCH if replicated else Verdict.MISMATCH), status
    assert status.tables[0].diverged == (0 if replicated else 12)
    assert not [k for k in noted(watch) if k in ("stale", "uncovered")], "t_old is no table of this server"


@pytest.mark.attack("watch", "a table is swapped on the target: no binlog of the source shows it",
                    "its identity changed, the whole table is compared again: MISMATCH")  # fmt: skip
@pytest.mark.parametrize("late", [False, True], ids=["before the drain", "while it drains"])
def test_a_table_swapped_on_the_target_is_compared_as_a_whole(
    made: Any, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    world = Swapping(random.Random(1), {"1": 1, "2": 2}, {"1": 1, "2": 2})
    watch = made(world, base={0: Base("r1", Verdict.MATCH)})
    swap = lambda: world.swap_target({"1": 1, "2": 3})  # noqa: E731
    if late:  # at the first moment at which everything else is done
        calls = iter([swap])
        look = watch_ranges.RangeReads.look

        def look_late(stale: Any, pairs: Any, *, now: bool = False) -> bool:
            if now:
                next(calls, lambda: None)()
            return look(stale, pairs, now=now)

        monkeypatch.setattr(watch_ranges.RangeReads, "look", look_late)
    else:
        swap()
    status = drain(watch, world)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    assert "target/app.t: the table has id 20, was 2" in " ".join(status.tables[0].findings)


def test_a_table_swapped_while_it_is_compared_is_compared_once_more(made: Any) -> None:
    world = Swapping(random.Random(1), {str(n): n for n in range(20)}, {str(n): n for n in range(20)})
    ranges: list[str] = []
    sweep = world.sweep

    def swept(reader: object, lower: KeyText | None, rate: int) -> Swept:
        found = sweep(reader, lower, rate)
        ranges.append(str(lower))
        if len(ranges) == 3:  # the first ranges were read of the table that was there before
            world.swap_target({**world.source, "0": 77})
        return found

    world.sweep = swept  # type: ignore[method-assign]
    watch = made(world, known={}, base={0: Base("r1", Verdict.MATCH)})
    status = drain(watch, world)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    assert ranges.count("None") == 2


def test_a_comparison_that_fails_is_tried_again(made: Any) -> None:
    world = Swapping(random.Random(1), {"1": 1}, {"1": 1})
    world.swap_source({"1": 2})
    world.apply(1)
    fails = iter([ReadError("Lost connection"), EndpointError("nothing answers"), PlanError("app.t is gone")])
    sweep_fails = iter([ReadError("Lost connection during query")])

    def replan(watched: Sequence[Watched]) -> Sequence[Watched]:
        for error in fails:
            raise error
        return watched

    sweep = world.sweep

    def swept(*arguments: Any) -> Swept:
        for error in sweep_fails:
            raise error
        return sweep(*arguments)

    world.sweep = swept  # type: ignore[method-assign]
    status = drain(made(world, replan=replan, base={0: Base("r1", Verdict.MATCH)}), world)
    assert status.verdict is Verdict.MATCH, status
    assert next(fails, None) is next(sweep_fails, None) is None


def test_statements_by_the_thousand_are_counted_and_not_all_kept(made: Any) -> None:
    world = Swapping(random.Random(1), {"1": 1}, {"1": 1})
    for _ in range(60):
        world.swap_source({"1": 2})
    world.apply(60)
    watch = made(world, replan=no_plan, base={0: Base("r1", Verdict.MATCH)})
    run_until(watch, lambda: 0 in watch.ranges.stale and watch.ranges.stale[0].changes >= 60)
    assert sum(kind == "stale" for _, kind, _ in watch.ledger.notes()) <= watch_ranges.MOST_REASONS
    watch.ledger.close()
    status = drain(made(world, ledger=watch.ledger.path, base={0: Base("r1", Verdict.MATCH)}), world)
    assert status.verdict is Verdict.MATCH


@pytest.mark.attack("watch", "ON DELETE CASCADE inside InnoDB removes child rows without a row in the binlog",
                    "a change of the parent makes the child stale: its whole table is compared again")  # fmt: skip
def test_rows_that_a_foreign_key_changes_in_no_binlog_are_compared(made: Any) -> None:
    world = World(random.Random(1), {"1": 1, "2": 1}, {"1": 1, "2": 1}, cascades={("app", "t"): {("app", "t")}})
    world.write("1", None)
    world.apply(1)
    del world.source["2"]  # its parent was row 1
    status = drain(made(world, base={0: Base("r1", Verdict.MATCH)}), world)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    assert "rows of app.t were changed, and what its foreign keys do here is in no binlog" in str(status)


def test_what_a_killed_watch_found_is_compared_by_the_next(made: Any) -> None:
    world = Swapping(random.Random(1), {"1": 1}, {"1": 1})
    world.swap_source({"1": 2})
    world.skip = {1}
    world.apply(1)
    first = made(world, replan=no_plan, base={0: Base("r1", Verdict.MATCH)})
    run_until(first, lambda: "stale" in noted(first))
    first.ledger.close()
    status = drain(made(world, ledger=first.ledger.path, base={0: Base("r1", Verdict.MATCH)}), world)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)


def test_a_run_that_did_not_keep_identities_proves_nothing_of_the_table_now(made: Any) -> None:
    world = Swapping(random.Random(1), {"1": 1}, {"1": 2})
    status = drain(made(world, known={}, base={0: Base("r1", Verdict.MATCH)}), world)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)


def test_identities_that_cannot_be_read_are_no_match(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(random.Random(1), {"1": 1}, {"1": 1})
    watch = made(world, base={0: Base("r1", Verdict.MATCH)})

    def fail(*_: object) -> None:
        raise ReadError("target: connection lost")

    monkeypatch.setattr(watch_identity, "read_pairs", fail)
    status = drain(watch, world, seconds=0.5)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "which tables the names mean is not known: target: connection lost" in status.reasons


def test_a_watch_that_compared_nothing_says_so(made: Any) -> None:
    world = World(random.Random(1), {"1": 1}, {"1": 2})
    status = drain(made(world), world)
    assert (status.verdict, status.covers) == (Verdict.INCONCLUSIVE, "")
    assert "nothing was compared: this watch rests on no run (begin it with --since RUN)" in status.reasons[0]
    assert list(lines(status))[1] == f"  {status.reasons[0]}", "the lines while it goes on say it too"
    world.write("2", 2)
    world.apply(1)
    watch = made(world)
    status = drain(watch, world)
    assert (status.verdict, status.tables[0].whole) == (Verdict.MATCH, False)
    assert status.covers == "of 1 table only keys written while this watch ran: no verification to start from"


def test_what_the_configuration_leaves_out_is_said_beside_the_verdict(made: Any) -> None:
    watch = made(World(random.Random(1)), base={0: Base("r1", Verdict.MATCH)})
    facts = WatchFacts("r", [], WatchRules(), watch.pairs, watch.base, {0: PairCounts(proved=5)}, {}, [])
    status = status_of(facts)
    assert status.headline().startswith("MATCH; 5 keys proved")
    status = status_of(replace(facts, scope=ProofScope(4, 2, ("where",), ("app.x",))))
    words = "4 tables, 2 of them in part (where), 1 excluded"
    assert status.headline().startswith(f"MATCH; {words}; 5 keys proved")
    assert json.loads(json_line(status))["left_out"] == words
    assert status.covers == "all that the configuration compares of 1 table (run r1, and every key written since)"
    text = page(status_metrics(status))
    assert 'migverify_watch_left_out_tables{why="in part"} 2' in text
    assert 'migverify_watch_left_out_tables{why="excluded"} 1' in text


@pytest.mark.parametrize("state", ["pending", "doubt", "hot"])
def test_keys_that_are_not_proved_are_never_match(made: Any, state: str) -> None:
    """Also while the watch goes on, and nobody asked for a drain."""
    counts = PairCounts(**{state: 2}, proved=5)
    watch = made(World(random.Random(1)), base={0: Base("r1", Verdict.MATCH)})
    facts = WatchFacts("r", [], WatchRules(), watch.pairs, watch.base, {0: counts}, {}, [])
    status = status_of(facts)
    assert status.verdict is Verdict.INCONCLUSIVE


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(["write", "apply", "swap source", "swap target", "target row", "swap back", "wait"]),
             min_size=1, max_size=14),
    st.integers(0, 2**32),
)  # fmt: skip
def test_no_history_of_swaps_and_writes_ends_in_a_false_verdict(
    made: Any, tmp_path_factory: pytest.TempPathFactory, steps: list[str], seed: int
) -> None:
    """The truth is taken afterwards. Rows of the target alone are the sweep's business: without it they stay unseen."""
    rng = random.Random(seed)
    rows = {str(n): n for n in range(9)}
    world = Swapping(rng, dict(rows), dict(rows), skip=set(rng.sample(range(1, 12), 2)))
    path = tmp_path_factory.mktemp("history") / "w.db"
    watch = made(world, ledger=path, base={0: Base("r1", Verdict.MATCH)}, sweep=Sweep(100_000, [0]))
    first = world.tables
    stopped = threading.Event()
    runner = threading.Thread(target=lambda: watch.run(stopped.is_set))
    runner.start()
    for n, step in enumerate(steps):
        if step == "write":
            world.write(str(rng.randrange(12)), None if rng.random() < 0.2 else 100 + n)
        elif step == "apply":
            world.apply(len(world.log))
        elif step == "swap source":
            world.swap_source({str(k): k + rng.randrange(2) for k in range(rng.randrange(9))})
        elif step == "swap target":
            world.swap_target({str(k): k + rng.randrange(2) for k in range(rng.randrange(9))})
        elif step == "target row":
            world.target[str(rng.randrange(9))] = 7
        elif step == "swap back":
            world.tables = first
        else:
            time.sleep(0.06)
    world.apply(len(world.log))
    stopped.set()
    runner.join()
    watch.ledger.close()
    again = made(world, ledger=path, base=watch.base, sweep=Sweep(100_000, [0]))
    again.store, again.run_id = watch.store, watch.run_id

    def settled() -> bool:
        counts = again.counts().get(0, PairCounts())
        still = not again.ranges.stale and counts.pending + counts.doubt + counts.hot == 0
        return (
            still and again.sweep.rounds > 2 and again.sources[0].ordinal == ordinal_of(world.position(len(world.log)))
        )

    status = run_until(again, settled)
    assert status.verdict is rows_of(world), (status, world.source, world.target)
    again.ledger.close()


def test_a_table_without_a_pair_that_is_written_is_no_match(made: Any) -> None:
    world = World(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    watch.pairs = [replace(watch.pairs[0], table="other")]
    world.scope = {"t"}
    status = run_until(watch, lambda: "uncovered" in noted(watch))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "source: app.t is in scope, and no table pair covers it: verify the tables again" in status.reasons
    world.scope = set()  # it is dropped
    watch._look(now=True)
    assert noted(watch) == set()


@pytest.mark.parametrize(
    ("base", "verdict"),
    [
        (Base(), Verdict.MATCH),
        (Base("r1", Verdict.MATCH), Verdict.MATCH),
        (Base("r1", Verdict.INCONCLUSIVE, "hot"), Verdict.INCONCLUSIVE),
        (Base("r1", Verdict.MISMATCH), Verdict.INCONCLUSIVE),
    ],
)
def test_the_verdict_stands_on_the_run_it_starts_from(made: Any, base: Base, verdict: Verdict) -> None:
    world = World(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world, base={0: base})
    status = drain(watch, world)
    assert status.verdict is verdict
    result = table_result(status.tables[0], watch.pairs[0].pair, base, {}, 1.0, "b:1")
    assert result.verdict is verdict
    assert bool(result.not_covered) is (base.run_id is None)


def test_a_side_that_cannot_be_read_is_no_match(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world)

    def fail(*_: object, **__: object) -> None:
        raise ReadError("target: connection lost")

    monkeypatch.setattr(watch_check, "differing_rows", fail)
    status = drain(watch, world, seconds=0.5)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "connection lost" in " ".join(status.reasons)


def test_the_gauges_say_what_the_status_says(made: Any) -> None:
    world = World(random.Random(1), skip={1})
    world.write("1", 1)
    world.apply(1)
    text = page(status_metrics(drain(made(world), world)))
    assert "migverify_watch_verdict 1\n" in text
    assert 'migverify_watch_table_diverged{table="app.t"} 1' in text
    assert 'migverify_watch_lag_seconds{source="source"} 0' in text


@pytest.mark.parametrize("proof", [True, False], ids=["checkpoint", "settle"])
def test_the_sweep_finds_a_write_on_the_target_that_no_change_explains(made: Any, proof: bool) -> None:
    """Also where only time says what is applied and nobody writes: no later write can be a witness."""
    world = World(random.Random(1))
    for n in range(10):
        world.write(str(n), n)
    world.apply(10)
    world.target["7"] = 99
    watch = made(world, None if proof else SettleTime(0.05))
    watch.streams = [replace(watch.streams[0], start=world.position(10))]  # everything was written before the watch
    watch.sweep = Sweep(1000, [0])
    status = run_until(watch, lambda: watch.ledger.counts(0).get(0, PairCounts()).diverged == 1)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    (record,) = [json.loads(b) for b in watch.store.blobs(watch.run_id, "app.t", "transition")]
    assert (record["key"], record["origin"]) == (["7"], "sweep")
    assert watch.sweep.rows >= 10


def test_a_sweep_finding_waits_while_written_keys_are_in_doubt(made: Any) -> None:
    """A replicator that stands still leaves rows behind that the sweep sees, too: that is lag."""
    world = World(random.Random(1))
    for n in range(10):
        world.write(str(n), n)
    world.apply(9)  # and no further
    watch = made(world, SettleTime(0.05))
    watch.streams = [replace(watch.streams[0], start=world.position(10))]
    watch.sweep = Sweep(1000, [0])
    world.write("20", 1)
    status = drain(watch, world, seconds=1.0)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.INCONCLUSIVE, 0)


def test_a_statement_about_a_whole_database_concerns_all_its_tables(made: Any) -> None:
    world = Speaking(random.Random(1))
    world.statement = Statement(Op.DDL, (("app", ""),), "DROP DATABASE app", "app", "b.000001", 500, 0)
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    status = run_until(watch, lambda: "stale" in noted(watch))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "DROP DATABASE app" in status.tables[0].findings[0]


def test_a_password_in_a_statement_is_not_told(made: Any) -> None:
    world = Speaking(random.Random(1))
    sql = "CREATE TABLE f (a INT) ENGINE=FEDERATED CONNECTION='mysql://u:hunter2@h/d/t'"
    world.statement = Statement(Op.DDL, (("app", "t"),), sql, "app", "b.000001", 500, 0)
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    status = run_until(watch, lambda: "stale" in noted(watch))
    assert "FEDERATED" in str(status)
    assert "hunter2" not in str(status)


def test_what_was_read_of_a_key_that_was_written_meanwhile_is_not_recorded(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is judged diverged at the moment in which it is deleted on both sides: it must not stay in the store."""
    world = World(random.Random(1), skip={1})
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    judge = watch_check.judge

    def judge_late(reader: Any, entry: Any, diff: RowDiff, head: int, moment: Any, result: Any) -> None:
        judge(reader, entry, diff, head, moment, result)
        if result.transitions and len(world.log) == 1:
            world.write("1", None)
            world.apply(2)
            deadline = time.monotonic() + PATIENCE
            while watch.sources[0].ordinal < ordinal_of(world.position(2)) and time.monotonic() < deadline:
                time.sleep(0.01)

    monkeypatch.setattr(watch_check, "judge", judge_late)
    deadline = time.monotonic() + PATIENCE
    status = watch.run(lambda: time.monotonic() > deadline or (len(world.log) == 2 and not _open(watch)))
    assert len(world.log) == 2
    assert status.tables[0].diverged == 0
    states = [d.state for _, d in watch.store.row_diffs(watch.run_id, "app.t")]
    assert LiveState.DIVERGED not in states


def _open(watch: TablesWatch) -> int:
    counts = watch.ledger.counts(0).get(0, PairCounts())
    return counts.pending + counts.doubt + counts.hot + counts.diverged


@pytest.fixture
def sharded(made: Any) -> Any:
    """Two sources with binlogs of their own, one target; the rows of both are one table."""

    def make(first: World, second: World, **options: Any) -> TablesWatch:
        watch: TablesWatch = made(first, base={0: Base("r1", Verdict.MATCH)}, **options)
        (one,) = watch.pairs
        side, (stream,) = one.pair.sources[0], watch.streams
        sides = [replace(side, endpoint=replace(side.endpoint, name=f"source.{name}")) for name in "ab"]
        pair = replace(one.pair, sources=tuple(sides))
        watch.pairs = [replace(one, pair=pair, endpoint=s.endpoint.name) for s in sides]
        watch.streams = [
            replace(stream, endpoint=s.endpoint, changes=w, applied=Counted(w))
            for s, w in zip(sides, (first, second), strict=True)
        ]
        return watch

    return make


def two_shards() -> tuple[Swapping, Swapping]:
    """Both hold the same dictionaries: a key is on one shard only."""
    first = Swapping(random.Random(1))
    return first, Swapping(random.Random(1), first.source, first.target, tables=first.tables)


def drain_shards(watch: TablesWatch, worlds: Sequence[World], seconds: float = PATIENCE) -> TablesStatus:
    until = {n: ordinal_of(w.position(len(w.log))) for n, w in enumerate(worlds)}
    watch.limits = WatchRules(watch.limits.delay, watch.limits.hot_seconds, until, seconds)
    return watch.run()


@pytest.mark.attack("watch", "one shard is truncated while a write of another shard, whose binlog is shorter, is not "
                    "on the target yet", "the key of the other shard is kept: lag, then its verdict")  # fmt: skip
def test_a_truncate_of_one_shard_says_nothing_of_the_keys_of_another(sharded: Any) -> None:
    first, second = worlds = two_shards()
    second.skip = {1}
    second.write("7", 7)
    second.apply(1)  # and it is lost
    for n in range(5):
        first.write(str(100 + n), n)
    first.swap_source({"7": 7})  # what is left is the other shard's row
    first.skip = {6}
    first.apply(len(first.log))
    for key in list(first.target):
        del first.target[key]
    status = drain_shards(sharded(first, second), worlds)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)


def test_a_statement_of_one_shard_waits_for_the_position_of_that_shard(sharded: Any) -> None:
    first, second = worlds = two_shards()
    for n in range(50):
        second.write(str(100 + n), n)
    second.apply(50)
    first.swap_source(dict(second.source))  # at a small place, and not applied
    watch = sharded(first, second)
    until = ordinal_of(second.position(50))
    status = run_until(
        watch, lambda: "stale" in noted(watch) and watch.sources[1].applied == until and proved(watch) == 50
    )
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "it waits for its comparison" in " ".join(status.tables[0].reasons)
    assert watch.ranges.stale[0].waits == {0: ordinal_of(first.position(1))}
    watch.ledger.close()
    again = sharded(first, second, ledger=watch.ledger.path)
    first.apply(1)
    status = drain_shards(again, worlds)
    assert status.verdict is Verdict.MATCH, status


def test_one_statement_at_one_place_of_two_shards_waits_for_both(sharded: Any) -> None:
    """The binlogs of two servers count apart, and DDL goes to all shards: place, second and text may be the same."""
    first, second = worlds = two_shards()
    first.swap_source({"1": 1})
    second.swap_source({"1": 1, "2": 2})
    watch = sharded(first, second)
    places = {n: ordinal_of(w.position(1)) for n, w in enumerate(worlds)}
    assert places[0] == places[1]
    status = run_until(watch, lambda: bool(watch.ranges.stale) and watch.ranges.stale[0].waits == places)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert watch.ranges.stale[0].waits == places
    statements = [text for text in status.tables[0].findings if "RENAME" in text]
    assert [any(f"source.{name} b.000001:100" in text for text in statements) for name in "ab"] == [True, True]
    watch.ledger.close()
    first.apply(1)
    between = sharded(first, second, ledger=watch.ledger.path)
    status = drain_shards(between, worlds, seconds=0.5)
    assert status.verdict is Verdict.INCONCLUSIVE, "the other shard's statement is not on the target yet"
    assert "it waits for its comparison" in " ".join(status.tables[0].reasons)
    between.ledger.close()
    second.apply(1)
    again = sharded(first, second, ledger=watch.ledger.path)
    assert drain_shards(again, worlds).verdict is Verdict.MATCH


def test_a_sweep_of_a_sharded_table_waits_for_every_shard(sharded: Any) -> None:
    first, second = worlds = two_shards()
    first.write("1", 1)
    second.write("2", 2)
    first.apply(1)
    second.apply(1)
    first.target["2"] = 3
    watch = sharded(first, second, sweep=Sweep(100_000, [0]))
    watch.streams = [replace(s, start=w.position(1)) for s, w in zip(watch.streams, worlds, strict=True)]
    status = run_until(watch, lambda: watch.ledger.counts(0).get(0, PairCounts()).diverged == 1)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    (key,) = watch.ledger._keys("diverged=1", [])
    assert key.heads == {0: ordinal_of(first.position(1)), 1: ordinal_of(second.position(1))}


def test_a_key_proved_before_a_kill_is_no_row_diff_of_the_watch_that_goes_on(tmp_path: Path) -> None:
    """The ledger forgot it, and the process was killed before the store knew."""
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    ledger = Ledger(tmp_path / "ledger.db")
    try:
        run = store.start_run("watch", "digest", {}, {}, kind=StoredKind.TABLES)
        pair = make_pair()
        watched = Watched(0, "source", "app", "t", ("id",), pair.sources[0].sql.key, pair=pair)
        found = [RowDiff(pair.id, (key,), DiffKind.VALUE_DIFFERS, LiveState.DIVERGED) for key in ("1", "2")]
        store.add_row_diffs(run, found)
        forms = [form_of(watched.key, diff.key) for diff in found]
        ledger.touch({(0, key): (1, 100, 0) for key in forms}, {}, 0.0)
        keys = ledger.due({0: 100}, 1.0, 10)
        ledger.seen([(key, KeyState.DIVERGED, "a", "b", {}, 0.0) for key in keys], 1.0)
        ledger.proved([key for key in keys if key.key == forms[0]])
        for _ in range(2):
            record_converged([watched], ledger, store, run)
            assert [diff.key for _, diff in store.row_diffs(run, pair.id, states=["diverged"])] == [("2",)]
        assert [diff.key for _, diff in store.row_diffs(run, pair.id, states=["converged"])] == [("1",)]
    finally:
        ledger.close()
        store.close()


def by_file(made: Any, until: int, time_limit: float) -> TablesWatch:
    """Return a watch whose stream begins after two writes, the first of which the target did not apply."""
    world = World(random.Random(1))
    world.skip |= {1}
    world.write("1", 5)
    world.write("2", 6)
    world.apply(2)
    begin, end = world.position(0), ordinal_of(world.position(2))
    limits = WatchRules(0.02, 30.0, {0: end}, time_limit)
    made_watch: TablesWatch = made(
        world, limits=limits, catch_up={0: CatchUp(begin, ordinal_of(world.position(until)))}
    )
    made_watch.streams = [replace(made_watch.streams[0], start=world.position(2))]
    made_watch.ledger.touch({}, {0: (world.position(2), 2)}, 0.0)
    return made_watch


def test_what_follows_no_set_of_gtids_is_found_by_file(made: Any) -> None:
    status = by_file(made, until=2, time_limit=10.0).run()
    assert status.verdict is Verdict.MISMATCH
    assert status.tables[0].diverged == 1


def test_a_binlog_that_is_not_read_by_file_to_its_end_is_no_match(made: Any) -> None:
    watch = by_file(made, until=9, time_limit=1.0)
    watch.streams[0].changes.skip.clear()  # type: ignore[attr-defined]
    watch.streams[0].changes.target["1"] = 5  # type: ignore[attr-defined]
    status = watch.run()
    assert status.verdict is Verdict.INCONCLUSIVE
    assert any("read by file as well" in reason for reason in status.reasons)


@dataclass
class TimedWorld(World):
    """Places are timestamps, and the feed has carried ``carried`` writes, and all up to ``watermark``."""

    carried: int = 0
    watermark: int = 0
    commits: list[int] = field(default_factory=list)

    def open(self, since: Position | None) -> Iterator[Item]:
        del since
        n = 0
        while True:
            with self.lock:
                new, watermark = self.log[n : self.carried], self.watermark
            for key, _ in new:
                yield Begin("", Position("tso", self.commits[n]), time.time())
                yield Rows(Op.UPDATE, T, key.encode(), "tso", self.commits[n], 0)
                yield Commit("", Position("tso", self.commits[n]), time.time())
                n += 1
            if watermark:
                yield Idle(Position("tso", watermark), time.time())
            time.sleep(0.002)

    def ordinal(self, position: Position) -> int:
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        del like
        return str(ordinal)


def test_a_row_that_changed_back_while_the_feed_stood_still_is_not_proved(made: Any) -> None:
    """A, B, A on the written side. The feed has carried B and stands still; the following side has never had B.

    Both sides hold A, and B may still come: nothing is proved as of B's commit, nor as of anything later.
    """
    second, settle = 1000 << 18, 0.1
    world = TimedWorld(random.Random(1), source={"k": 1}, target={"k": 1})
    start = 1_764_000_000 * second
    world.commits = [start + second, start + 5 * second]
    world.write("k", 2)
    world.write("k", 1)
    world.carried, world.watermark = 1, world.commits[0] + 1
    watch = made(
        world, SettleTime(settle, has_timestamps=True), base={0: Base("r0", Verdict.MATCH)},
        limits=WatchRules(0.02, 30.0, None, 10.0, reverse=True, is_as_of=True),
    )  # fmt: skip
    statuses: list[TablesStatus] = []
    watch.on_status = statuses.append
    status = run_until(watch, lambda: False, seconds=8 * settle)
    assert (proved(watch), status.verdict, status.tables[0].pending) == (0, Verdict.INCONCLUSIVE, 1)
    world.apply(1)  # B comes late
    watch.limits = replace(watch.limits, until={0: world.commits[1]}, time_limit=8 * settle)
    status = watch.run()
    assert (proved(watch), status.verdict) == (0, Verdict.INCONCLUSIVE)
    for one in (*statuses, status):
        assert int(one.as_of.split()[-1]) <= world.commits[0] if one.as_of else one.verdict is not Verdict.MATCH
    world.apply(2)
    world.carried, world.watermark = 2, world.commits[1] + second
    watch.limits = replace(watch.limits, time_limit=PATIENCE)
    status = watch.run()
    assert (status.verdict, proved(watch)) == (Verdict.MATCH, 1), status
    assert world.commits[1] <= int(status.as_of) < world.watermark


@pytest.mark.parametrize(("is_as_of", "verdict"), [(True, Verdict.MATCH), (False, Verdict.INCONCLUSIVE)])
def test_a_drain_to_a_named_place_does_not_judge_what_is_written_behind_it(
    made: Any, is_as_of: bool, verdict: Verdict
) -> None:
    """One to the end of the binlog does: who stopped the writes wants to know of a writer that goes on."""
    world = World(random.Random(1))
    world.write("1", 5)
    place = ordinal_of(world.position(1))
    world.write("2", 6)
    world.apply(1)
    watch = made(
        world, base={0: Base("r0", Verdict.MATCH)},
        limits=WatchRules(0.02, 30.0, {0: place}, 10.0, is_as_of=is_as_of),
    )  # fmt: skip
    status = watch.run()
    assert (status.verdict, proved(watch), status.tables[0].pending) == (verdict, 1, 1), status


def test_a_drain_to_a_named_place_waits_for_a_key_that_was_written_before_and_behind_it(made: Any) -> None:
    world = World(random.Random(1))
    world.write("1", 5)
    place = ordinal_of(world.position(1))
    world.write("1", 6)
    world.apply(1)
    watch = made(
        world, base={0: Base("r0", Verdict.MATCH)}, limits=WatchRules(0.02, 30.0, {0: place}, 0.5, is_as_of=True)
    )
    assert watch.run().verdict is Verdict.INCONCLUSIVE
    world.apply(2)
    watch.limits = replace(watch.limits, time_limit=PATIENCE)
    assert watch.run().verdict is Verdict.MATCH


def test_a_watch_that_ends_before_a_round_of_its_sweep_says_so(made: Any) -> None:
    world = World(random.Random(1))
    world.write("1", 5)
    world.apply(1)
    sweep = Sweep(1, [0])
    sweep._due = time.monotonic() + 1e6
    status = drain(made(world, base={0: Base("r0", Verdict.MATCH)}, sweep=sweep), world)
    assert any("no round of the sweep" in finding for finding in status.findings)


def test_a_table_that_was_made_later_and_that_the_feed_leaves_out_is_named(made: Any) -> None:
    """No row and no statement of it comes: the catalog of the written side shows it, until it is gone again."""
    world = World(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    made_later = [("app", "later")]
    watch = made(world, new_tables=lambda _: made_later)
    world.scope.add("later")
    status = run_until(watch, lambda: "uncovered" in noted(watch))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert any("app.later is in scope, and no table pair covers it" in reason for reason in status.reasons)
    made_later.clear()
    world.scope.clear()
    watch._look(now=True)
    assert noted(watch) == set()
