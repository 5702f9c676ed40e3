"""Capacity: projections from given runs, and what is judged against the window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.cli.main import run as run_command
from migverify.guards import capacity_judge as judge
from migverify.guards.capacity_facts import CapacityFacts, Requirements, SizePoint
from migverify.guards.capacity_read import CapacityReading, Logs, Sizes, TableSize, bytes_of
from migverify.guards.capacity_speed import (
    MeasuredRun,
    TableSpeed,
    last_replay,
    last_verified,
    measure,
    project,
    repair_pace,
    verifications,
    watch_pace,
)
from migverify.guards.counters import QUERIES, READS, ROWS_READ, ROWS_WRITTEN, WRITES, Rate
from migverify.guards.model import AnswerState, CheckResult
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    ChunkState,
    Endpoint,
    Flavor,
    KeyRange,
    StoredKind,
    TableResult,
    Verdict,
)
from migverify.store.open import open_store
from migverify.store.results import ResultStore


def run(
    rows: Mapping[str, int], seconds: float, *, slots: int = 4, busy: float | None = None, **more: Any
) -> MeasuredRun:
    """A verification in which all rows took alike."""
    total, all_busy = sum(rows.values()), seconds * slots if busy is None else busy
    tables = {name: TableSpeed(count, all_busy * count / max(1, total)) for name, count in rows.items()}
    return replace(MeasuredRun("r1", "local", slots, seconds, tables), **more)


# --- projections -------------------------------------------------------------------------------------------


@given(st.integers(1, 10**9), st.integers(1, 10**9), st.floats(0.1, 10**5))
def test_twice_the_rows_take_twice_as_long(first: int, second: int, seconds: float) -> None:
    then = run({"a": first, "b": second}, seconds)
    now = {"a": TableSize(2 * first, 0), "b": TableSize(2 * second, 0)}
    found = project([then], now, 4)
    assert found is not None
    assert found.numbers["expected_seconds"] == pytest.approx(2 * seconds)
    assert 0 < found.low < 2 * seconds < found.high


def test_more_runs_narrow_the_interval_and_more_slots_lower_it() -> None:
    now = {"a": TableSize(1_000_000, 10**8)}
    one, two = project([run({"a": 1_000_000}, 1000.0)], now, 4), project([run({"a": 1_000_000}, 1000.0)] * 3, now, 4)
    assert one is not None
    assert two is not None
    assert one.low < two.low < two.high < one.high
    wider = project([run({"a": 1_000_000}, 1000.0)] * 3, now, 8)
    assert wider is not None
    assert wider.low == pytest.approx(two.low / 2)
    assert wider.high == pytest.approx(two.high)  # the servers may be at their end already
    fewer = project([run({"a": 1_000_000}, 1000.0)] * 3, now, 2)
    assert fewer is not None
    assert fewer.low == pytest.approx(two.low * 2)


def test_tables_that_no_run_has_read_widen_it() -> None:
    now = {"a": TableSize(1_000_000, 10**8), "b": TableSize(1_000_000, 10**8)}
    found = project([run({"a": 1_000_000}, 1000.0)], now, 4)
    known = project([run({"a": 1_000_000, "b": 1_000_000}, 2000.0)], now, 4)
    assert found is not None
    assert known is not None
    assert found.numbers["expected_seconds"] == pytest.approx(2000.0)
    assert found.high > known.high
    assert "50% of the rows were in no such run" in found.why


def test_a_small_run_is_rough_and_an_empty_table_takes_time() -> None:
    now = {"a": TableSize(1_000_000, 10**8)}
    rough = project([run({"a": 10_000}, 5.0)], now, 4)
    assert rough is not None
    assert rough.numbers["expected_seconds"] == pytest.approx(500.0)
    assert rough.high / rough.low > 3.9
    tables = {f"t{n}": TableSpeed(0, 0.04) for n in range(999)} | {"a": TableSpeed(1, 0.04)}
    empty = MeasuredRun("r", "local", 4, 10.0, tables)
    found = project([empty], {name: TableSize(0, 0) for name in empty.tables}, 4)
    assert found is not None
    assert found.numbers["expected_seconds"] == pytest.approx(10.0, rel=0.01)
    assert found.numbers["unmeasured_share"] == 0.0
    assert project([], now, 4) is None


# --- what the store tells ----------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path / 'runs.db'}")) as opened:
        yield opened


def table(pair: str, rows: int, *, differing: int = 0, **details: Any) -> TableResult:
    verdict = Verdict.MISMATCH if differing else Verdict.MATCH
    return TableResult(pair, pair, pair, verdict, (), rows, rows, 1, ("exact",), 0, 0, differing, (), (), 1.0,
                       details=details)  # fmt: skip


def keep(store: ResultStore, results: Sequence[TableResult], seconds: float = 1.0, **facts: Any) -> str:
    kind = StoredKind(facts.pop("kind", "tables"))
    run_id = store.start_run("c", "p", {}, {"engine": "local", "slots": 4, **facts}, kind=kind)
    for result in results:
        store.add_span(run_id, result.pair, 0, KeyRange())
        both = ChunkChecksum(result.rows_source or 0, result.rows_source or 0, 1)
        store.add_chunks(run_id, [
            ChunkResult(result.pair, 0, 0, KeyRange(), ChunkState.EQUAL, both, both, 0.0, 2.0, 0.5, 1.5)
        ], [])  # fmt: skip
        store.add_table_result(run_id, result)
    store.finish_run(run_id, Verdict.MATCH, {"seconds": seconds})
    return run_id


def test_a_run_is_measured_as_it_was(store: ResultStore) -> None:
    run_id = keep(store, [table("d.a", 1000), table("d.b", 10)])
    found = measure(store, store.load_run(run_id))
    assert found is not None
    assert found.tables == {"d.a": TableSpeed(1000, 2.0), "d.b": TableSpeed(10, 2.0)}
    assert found.parallel == 4.0


def test_only_whole_verifications_count(store: ResultStore) -> None:
    keep(store, [table("d.a", 1000)], watch=True)
    keep(store, [table("d.a", 1000)], repairs="r")
    keep(store, [table("d.a", 1000)], rechecks="r")
    keep(store, [table("d.a", 1000)], engine="spark")
    keep(store, [table("other.t", 1000)])
    keep(store, [table("d.a", 1000)], seconds=10_000.0)  # its seconds are not those between start and end: resumed
    store.start_run("c", "p", {}, {"engine": "local", "slots": 4}, kind=StoredKind.TABLES)  # under way
    assert verifications(store, "local", {"d.a"}) == []
    wanted = keep(store, [table("d.a", 1000)])
    assert [one.run_id for one in verifications(store, "local", {"d.a"})] == [wanted]


def test_paces(store: ResultStore) -> None:
    assert (watch_pace(store), repair_pace(store), last_verified(store), last_replay(store)) == (None,) * 4
    slow = keep(store, [table("d.a", 0, keys=100)], seconds=10.0, watch=True)
    fast = keep(store, [table("d.a", 0, keys=900)], seconds=10.0, watch=True)
    assert slow != fast
    pace = watch_pace(store)
    assert pace is not None
    assert (pace.run_id, pace.per_second) == (fast, 90.0)
    keep(store, [table("d.a", 0, repaired=50)], seconds=10.0, repairs="r")
    repaired = repair_pace(store)
    assert repaired is not None
    assert repaired.per_second == 5.0
    counted = keep(store, [table("d.a", 7, differing=3)])
    told = last_verified(store)
    assert told is not None
    assert (told.run_id, told.source, told.differing) == (counted, {"d.a": 7}, 3)
    replayed = keep(store, [], seconds=60.0, pace="real", kind="replay")
    assert last_replay(store) == (replayed, 60.0)


# --- judges ------------------------------------------------------------------------------------------------


def rates(written: float = 0.0, *, at_least: bool = False) -> dict[str, Rate]:
    values = {QUERIES: 9.0, READS: 5.0, WRITES: 1.0, ROWS_READ: 50.0, ROWS_WRITTEN: written}
    return {name: Rate(value, 5.0, at_least) for name, value in values.items()}


def have(name: str, **more: Any) -> CapacityReading:
    found = CapacityReading(Endpoint(name, "h", 3306, "u"), Flavor.MYSQL, 1000.0 * 86_400)
    found.sizes = Sizes({("d", "a"): TableSize(1000, 1 << 30)}, "by the catalog", "SELECT 1")
    found.rates, found.counted_by, found.connections = rates(), "status counters", (10, 151)
    found.logs, found.log_rate = Logs(2, 5 << 30, 999.0 * 86_400), 100.0
    for key, value in more.items():
        setattr(found, key, value)
    return found


def facts(
    store: ResultStore, *, source: CapacityReading | None = None, target: CapacityReading | None = None,
    wanted: Requirements | None = None, history: Mapping[str, Sequence[SizePoint]] | None = None,
) -> CapacityFacts:  # fmt: skip
    sides = [source or have("source"), target or have("target")]
    return CapacityFacts(sides, lambda _, d, t: (d, t), store, wanted or Requirements(), history or {})


def one(told: Iterator[CheckResult]) -> CheckResult:
    return next(iter(told))


@pytest.mark.parametrize(
    ("question", "what"),
    [(judge.sizes, "sizes"), (judge.traffic, "rates"), (judge.binlog, "logs"), (judge.connections, "connections"),
     (judge.room, "sizes"), (judge.growth, "sizes"), (judge.time_of("verify"), "sizes"),
     (judge.time_of("catch-up"), "rates")],
)  # fmt: skip
def test_what_is_not_known_is_inconclusive(store: ResultStore, question: Any, what: str) -> None:
    keep(store, [table("d.a", 1000)])
    without = have("source", **{what: None})
    without.refused[what] = "Access denied"
    assert one(question(facts(store, source=without))).state is AnswerState.INCONCLUSIVE


def test_counters_that_were_reset_are_inconclusive(store: ResultStore) -> None:
    reset = have("source", rates=rates(5.0, at_least=True))
    assert one(judge.traffic(facts(store, source=reset))).state is AnswerState.INCONCLUSIVE
    assert one(judge.time_of("catch-up")(facts(store, source=reset))).state is AnswerState.INCONCLUSIVE
    kinds = have("source", rates={QUERIES: Rate(5.0, 1.0, at_least=False)})
    assert one(judge.traffic(facts(store, source=kinds))).state is AnswerState.INCONCLUSIVE
    assert one(judge.binlog(facts(store, source=have("source", log_rate=-5.0)))).state is AnswerState.INCONCLUSIVE


def test_growth(store: ResultStore) -> None:
    first = one(judge.growth(facts(store)))
    assert first.state is AnswerState.WARN
    history = {
        "source": [SizePoint((1000.0 - n) * 86_400, 1000 - 10 * n, (1 << 30) - n * (1 << 20)) for n in (4, 3, 2, 1)]
    }
    found = one(judge.growth(facts(store, history=history)))
    assert found.state is AnswerState.PASS
    assert found.numbers["rows_per_day"] == pytest.approx(10.0)
    assert found.numbers["bytes_later"] == pytest.approx((1 << 30) + 30 * (1 << 20))


def test_binlog_volume(store: ResultStore) -> None:
    found = one(judge.binlog(facts(store)))
    assert found.state is AnswerState.PASS
    assert found.numbers["bytes_per_day"] == pytest.approx(5 << 30)
    unknown = have("source", logs=Logs(1, 5, None))
    assert one(judge.binlog(facts(store, source=unknown))).state is AnswerState.WARN


@pytest.mark.parametrize(("used", "state"), [(10, AnswerState.PASS), (145, AnswerState.PASS), (146, AnswerState.FAIL)])
def test_connections(store: ResultStore, used: int, state: AnswerState) -> None:
    assert one(judge.connections(facts(store, source=have("source", connections=(used, 151))))).state is state


@pytest.mark.parametrize(
    ("free", "state"), [(None, AnswerState.INCONCLUSIVE), (3 << 30, AnswerState.FAIL), (4 << 30, AnswerState.PASS)]
)
def test_room(store: ResultStore, free: int | None, state: AnswerState) -> None:
    target = have("target", sizes=Sizes({}, "", ""))
    assert one(judge.room(facts(store, target=target, wanted=Requirements(target_free=free)))).state is state


def test_catch_up(store: ResultStore) -> None:
    keep(store, [table("d.a", 1000)])
    assert one(judge.time_of("catch-up")(facts(store))).value.startswith("nothing to catch up")
    busy = have("source", rates=rates(50.0))
    assert "no watch" in one(judge.time_of("catch-up")(facts(store, source=busy))).value
    keep(store, [table("d.a", 0, keys=40)], watch=True)
    assert (
        one(judge.time_of("catch-up")(facts(store, source=busy))).state is AnswerState.INCONCLUSIVE
    )  # slower than it is written
    keep(store, [table("d.a", 0, keys=100)], watch=True)
    found = one(judge.time_of("catch-up")(facts(store, source=busy)))
    assert found.state is AnswerState.PASS
    span = facts(store, source=busy).verification
    assert span is not None
    assert found.numbers["high_seconds"] == pytest.approx(span.high)  # 50 more a second than are written


def test_repair(store: ResultStore) -> None:
    assert one(judge.time_of("repair")(facts(store))).state is AnswerState.INCONCLUSIVE
    keep(store, [table("d.a", 1000)])
    assert one(judge.time_of("repair")(facts(store))).state is AnswerState.PASS
    keep(store, [table("d.a", 1000, differing=500)])
    assert one(judge.time_of("repair")(facts(store))).state is AnswerState.INCONCLUSIVE
    keep(store, [table("d.a", 0, repaired=50)], seconds=10.0, repairs="r")
    keep(store, [table("d.a", 1000, differing=500)])
    assert one(judge.time_of("repair")(facts(store))).numbers["high_seconds"] == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("limit", "state"), [(0.1, AnswerState.FAIL), (3.0, AnswerState.INCONCLUSIVE), (3600.0, AnswerState.PASS)]
)  # fmt: skip
def test_the_window(store: ResultStore, limit: float, state: AnswerState) -> None:
    keep(store, [table("d.a", 1000)])
    assert one(judge.window(facts(store, wanted=Requirements(window=limit)))).state is state


def test_the_window_with_something_unknown(store: ResultStore) -> None:
    told = one(judge.window(facts(store, wanted=Requirements(window=3600.0))))
    assert (told.state, "verify, catch-up, repair" in told.value) == (AnswerState.INCONCLUSIVE, True)
    keep(store, [table("d.a", 1000)])
    assert (
        one(judge.window(facts(store, wanted=Requirements(window=3600.0, replays=True)))).state
        is AnswerState.INCONCLUSIVE
    )
    # However long the rest takes, the replay alone is too long.
    long = Requirements(window=3600.0, replays=True, replay=7200.0)
    assert one(judge.window(facts(store, source=have("source", rates=None), wanted=long))).state is AnswerState.FAIL
    assert list(judge.window(facts(store))) == []


def test_shards_that_lead_to_one_table_are_one_pair(store: ResultStore) -> None:
    shards = [have("source.a"), have("source.b"), have("target")]
    found = CapacityFacts(shards, lambda *_: ("d", "all"), store, Requirements(), {})
    assert found.pairs == {"d.all": TableSize(2000, 2 << 30)}


# --- words -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [("500G", 500 << 30), ("1.5TiB", int(1.5 * 2**40)), ("51.2GiB", int(51.2 * 2**30)), ("12", 12), ("3 MB", 3 << 20),
     ("5k", 5 << 10), ("", None), ("G", None), ("1.2.3G", None), (".", None), ("-5G", None)],
)  # fmt: skip
def test_sizes_as_people_write_them(text: str, number: int | None) -> None:
    assert bytes_of(text) == number


def test_times_of_options_are_read_as_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whole and mixed units: ``1h30m`` was refused here alone."""
    config = tmp_path / "none.yaml"
    for option in ("--window", "--replay-time"):
        assert run_command(["guard", "capacity", option, "1h30m", "--config", str(config)]) == 2
        assert "there is no configuration file" in capsys.readouterr().err
        assert run_command(["guard", "capacity", option, "0h", "--config", str(config)]) == 2
        assert "is too short: at least 1s" in " ".join(capsys.readouterr().err.split())
