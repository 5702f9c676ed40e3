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
from typing import Any

import pytest

from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap
from migverify.errors import ChangeError, MigverifyError, ReadError
from migverify.model import DiffKind, Endpoint, KeyText, LiveState, RowDiff, Verdict
from migverify.tables import watch_check, watch_stream
from migverify.tables.ledger import Ledger, PairCounts, place
from migverify.tables.touched import Watched
from migverify.tables.watch import Stream, Watch
from migverify.tables.watch_status import WatchStatus, prometheus_text
from migverify.tables.watch_verdict import Base, WatchRules, table_result
from tests.fakes import FakeStore
from tests.toy_tables import RULES, make_pair

T = TableMap("app", "t", ())


@dataclass
class World:
    """A source, its binlog, and a target that a replicator fills up to ``applied``."""

    rng: random.Random
    source: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    log: list[tuple[str, int | None]] = field(default_factory=list)  # transaction n (from 1) wrote key -> value
    applied: int = 0
    closed: bool = False
    skip: set[int] = field(default_factory=set)
    lock: threading.RLock = field(default_factory=threading.RLock)

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

    def head(self, session: object) -> Position:
        del session
        return self.position(len(self.log))

    def position(self, n: int) -> Position:
        return Position("b.000001", 100 * n)

    def stream(self, since: Position | None) -> Iterator[Item]:
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
class Counted:
    """The exact applied position, as a checkpoint table gives it."""

    world: World
    proof: bool = True

    def place(self, target: object) -> int | None:
        del target
        return place(self.world.position(self.world.applied))

    def read_to(self, at: int, now: float) -> None:
        del at, now


class ToyPool:
    @contextmanager
    def session(self, endpoint: Endpoint, probe: str = "") -> Iterator[Any]:
        del endpoint, probe
        yield SimpleNamespace()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def make(world: World, applied: Any = None, **options: Any) -> Watch:
        def unlike(
            reader: Any, keys: Sequence[KeyText], *, presence: bool = False
        ) -> tuple[list[RowDiff], set[KeyText]]:
            del reader, presence
            ours = {k: world.source.get(k[0] or "") for k in keys}
            if world.rng.random() < 0.3:
                time.sleep(0.002)  # the two sides are not read at one moment
            theirs = {k: world.target.get(k[0] or "") for k in keys}
            found = [diff_of(k, ours[k], theirs[k]) for k in keys if ours[k] != theirs[k]]
            return found, {k for k, v in ours.items() if v is not None}

        monkeypatch.setattr(watch_check, "unlike_rows", unlike)
        monkeypatch.setattr(watch_check, "_with_columns", lambda _, diff: replace(diff, state=LiveState.DIVERGED))
        monkeypatch.setattr(watch_stream, "touched_keys", lambda _, event: iter([(event.images.decode(),)]))
        pair = make_pair()
        watched = Watched(0, pair, "source", "app", "t", ("id",), pair.sources[0].sql.key)
        stream = Stream(
            pair.sources[0].endpoint, world.stream, world.head, applied or Counted(world), Position("b.000001", 0)
        )  # fmt: skip
        store = FakeStore()
        run = store.start_run("watch", "h", {"pairs": []}, {})
        limits = options.pop("limits", WatchRules(0.02, 30.0, None, 10.0))
        return Watch(
            [watched], [stream], Ledger(options.pop("ledger", tmp_path / "w.db")), store, run, ToyPool(),  # type: ignore[arg-type]
            pair.sources[0].endpoint, RULES, limits, options.pop("base", {}), in_app, slots=2, **options,
        )  # fmt: skip

    return make


def diff_of(key: KeyText, ours: int | None, theirs: int | None) -> RowDiff:
    kind = (DiffKind.MISSING_ON_TARGET if theirs is None else DiffKind.MISSING_ON_SOURCE if ours is None
            else DiffKind.VALUE_DIFFERS)  # fmt: skip
    return RowDiff("app.t", key, kind, LiveState.UNCONFIRMED, source_checksum=None if ours is None else str(ours),
                   target_checksum=None if theirs is None else str(theirs))  # fmt: skip


def run_until(watch: Watch, right: Callable[[], bool], seconds: float = 30.0) -> WatchStatus:
    """Run until something is so; on a slow machine that takes a while, and the assertions say what is missing."""
    deadline = time.monotonic() + seconds
    return watch.run(lambda: time.monotonic() > deadline or right())


def noted(watch: Watch) -> set[str]:
    return {kind for _, kind, _ in watch.ledger.notes()}


def proved(watch: Watch) -> int:
    return watch.ledger.counts(0).get(0, PairCounts()).proved


def in_app(database: str, table: str) -> bool:
    del table
    return database == "app"


def drain(watch: Watch, world: World, seconds: float = 10.0) -> WatchStatus:
    until = {0: place(world.position(len(world.log)))}
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


@pytest.mark.parametrize("seed", range(8))
def test_under_load_nothing_diverges_and_every_skipped_change_that_lasts_does(made: Any, seed: int) -> None:
    rng = random.Random(seed)
    world = World(rng)
    if seed % 2:
        world.skip = set(rng.sample(range(1, 400), 6))
    watch = made(world)
    writer = load(world, 400, 60, 0.0005, lag=40)
    stopped = threading.Event()
    result: list[WatchStatus] = []
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
    assert 30 <= (status.sources[0].lag_transactions or 0) < 30 + watch_stream.POINT_COMMITS


def test_time_alone_is_no_proof_of_a_difference(made: Any) -> None:
    from migverify.tables.applied import SettleTime

    world = World(random.Random(1))
    for n in range(20):
        world.write(str(n), n)
    stalled = drain(made(world, SettleTime(0.05)), world, seconds=0.6)
    assert (stalled.verdict, stalled.tables[0].diverged) == (Verdict.INCONCLUSIVE, 0)


def test_with_a_witness_time_is_enough(made: Any, tmp_path: Path) -> None:
    from migverify.tables.applied import SettleTime

    world = World(random.Random(1), skip={3})
    for n in range(20):
        world.write(str(n), n)
    world.apply(20)
    status = drain(made(world, SettleTime(0.05), ledger=tmp_path / "settle.db"), world, seconds=5)
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
    deadline = time.monotonic() + 10
    status = again.run(lambda: time.monotonic() > deadline or again.ledger.counts(0)[0].diverged == 0)
    assert status.tables[0].diverged == 0
    states = [json.loads(b)["state"] for b in watch.store.blobs(watch.run_id, "app.t", "transition")]
    assert states == ["diverged", "converged"]


class Broken(World):
    """A world whose stream breaks after its last transaction."""

    error: MigverifyError = ChangeError("an event of type 99 at b.000001:400 is not known")

    def stream(self, since: Position | None) -> Iterator[Item]:
        for item in super().stream(since):
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

    def stream(self, since: Position | None) -> Iterator[Item]:
        said = False
        for item in super().stream(since):
            if isinstance(item, Idle) and not said:
                said = True
                at = self.position(len(self.log))
                yield Begin("g:99", at, time.time())
                yield self.statement
                yield Commit("g:99", at, time.time())
            yield item


def test_a_schema_change_is_a_finding_and_the_table_is_stale(made: Any) -> None:
    world = Speaking(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    status = run_until(watch, lambda: "stale" in noted(watch))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "ALTER TABLE t ADD x INT by dba@host" in status.tables[0].findings[0]
    assert "changed by a statement" in status.tables[0].reasons[0]


def test_a_schema_change_that_leaves_the_comparison_as_it_was_is_only_told(made: Any) -> None:
    world = Speaking(random.Random(1))
    world.statement = Statement(Op.DDL, (("app", "t"),), "CREATE INDEX i ON t (v)", "app", "b.000001", 500, 0)
    world.write("1", 1)
    world.apply(1)
    watch = made(world, replan=lambda watched: watched)
    status = run_until(watch, lambda: noted(watch) == {"ddl"} and proved(watch) == 1)
    assert (status.verdict, len(status.tables[0].findings)) == (Verdict.MATCH, 1)


def test_a_table_without_a_pair_that_is_written_is_no_match(made: Any) -> None:
    world = World(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world)
    watch.pairs = [Watched(0, watch.pairs[0].pair, "source", "app", "other", ("id",), watch.pairs[0].key)]
    status = run_until(watch, lambda: "unwatched" in noted(watch))
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "app.t is written, and no table pair covers it" in status.reasons[0]


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
    result = table_result(status.tables[0], watch.pairs[0], base, {}, 1.0, "b:1")
    assert result.verdict is verdict
    assert bool(result.not_covered) is (base.run_id is None)


def test_a_side_that_cannot_be_read_is_no_match(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(random.Random(1))
    world.write("1", 1)
    world.apply(1)
    watch = made(world)

    def fail(*_: object, **__: object) -> None:
        raise ReadError("target: connection lost")

    monkeypatch.setattr(watch_check, "unlike_rows", fail)
    status = drain(watch, world, seconds=0.5)
    assert status.verdict is Verdict.INCONCLUSIVE
    assert "connection lost" in " ".join(status.reasons)


def test_prometheus_text_says_what_the_status_says(made: Any) -> None:
    world = World(random.Random(1), skip={1})
    world.write("1", 1)
    world.apply(1)
    text = prometheus_text(drain(made(world), world))
    assert "migverify_watch_verdict 1\n" in text
    assert 'migverify_watch_table_diverged{table="app.t"} 1' in text
    assert 'migverify_watch_lag_seconds{source="source"} 0' in text


def test_the_sweep_finds_a_write_on_the_target_that_no_change_explains(
    made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from migverify.tables import watch as watch_module
    from migverify.tables.watch_sweep import Sweep, Swept

    world = World(random.Random(1))
    for n in range(10):
        world.write(str(n), n)
    world.apply(10)
    world.target["7"] = 99

    def swept(reader: object, lower: KeyText | None, rate: int) -> Swept:
        del reader, rate
        first = int(lower[0] or 0) if lower else 0
        diffs = [
            diff_of((str(n),), world.source.get(str(n)), world.target.get(str(n)))
            for n in range(first, first + 5)
            if world.source.get(str(n)) != world.target.get(str(n))
        ]
        return Swept(5, tuple(diffs), (str(first + 5),) if first < 5 else None)

    monkeypatch.setattr(watch_module, "sweep_range", swept)
    watch = made(world)
    watch.streams = [replace(watch.streams[0], start=world.position(10))]  # everything was written before the watch
    watch.sweep = Sweep(1000, [0])
    deadline = time.monotonic() + 10
    status = watch.run(lambda: time.monotonic() > deadline or watch.ledger.counts(0).get(0, PairCounts()).diverged == 1)
    assert (status.verdict, status.tables[0].diverged) == (Verdict.MISMATCH, 1)
    (record,) = [json.loads(b) for b in watch.store.blobs(watch.run_id, "app.t", "transition")]
    assert (record["key"], record["origin"]) == (["7"], "sweep")
    assert watch.sweep.rows >= 10


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
    judge = watch_check._judge

    def judge_late(reader: Any, entry: Any, diff: RowDiff, head: int, moment: Any, result: Any) -> None:
        judge(reader, entry, diff, head, moment, result)
        if result.transitions and len(world.log) == 1:
            world.write("1", None)
            world.apply(2)
            deadline = time.monotonic() + 5
            while watch._tracks[0].last_seq < place(world.position(2)) and time.monotonic() < deadline:
                time.sleep(0.01)

    monkeypatch.setattr(watch_check, "_judge", judge_late)
    deadline = time.monotonic() + 10
    status = watch.run(lambda: time.monotonic() > deadline or (len(world.log) == 2 and not _open(watch)))
    assert len(world.log) == 2
    assert status.tables[0].diverged == 0
    states = [d.state for _, d in watch.store.row_diffs(watch.run_id, "app.t")]
    assert LiveState.DIVERGED not in states


def _open(watch: Watch) -> int:
    counts = watch.ledger.counts(0).get(0, PairCounts())
    return counts.pending + counts.doubt + counts.hot + counts.diverged
