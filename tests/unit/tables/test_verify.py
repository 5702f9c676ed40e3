"""The driver: when anything fails, stops or dies, the key space is covered once and no failure becomes MATCH."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import (
    CanceledError,
    EndpointError,
    IncompleteReadError,
    LoginError,
    PrivilegeError,
    ReadError,
    RetryableReadError,
    StoreError,
    TimeLimitError,
)
from migverify.model import DiffKind, KeyRange, LiveState, RowDiff, StoredKind, Verdict
from migverify.tables.pair_run import PairRun
from migverify.tables.tasks import PairPlan, Rules, Task
from migverify.tables.verify import WAITING, Controls, VerifyProgress, verify_tables
from tests.fakes import FakeStore
from tests.toy_tables import (
    RULES,
    DyingStore,
    PowerCutError,
    Rows,
    ToyEngine,
    ToySide,
    differences,
    make_pair,
    random_rows,
    spoil,
)

SEEDS = st.integers(0, 2**32)


def verify(
    engine: ToyEngine, store: FakeStore, run: str, pair: PairPlan, rules: Rules = RULES, **controls: object
) -> Verdict:
    return verify_tables([pair], engine, store, run, rules, Controls(**controls))  # type: ignore[arg-type]


def start(store: FakeStore, pair: PairPlan) -> str:
    return store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.TABLES)


def chunk_proof(store: FakeStore, run: str, pair: PairPlan) -> None:
    """Every key lies in one chunk: the chunks of each span follow each other, and the spans do."""
    spans = store.spans(run, pair.id)
    chunks = list(store.chunks(run, pair.id))
    edge = None
    for number, span in spans:
        own = [c for c in chunks if c.span == number]
        assert [c.number for c in own] == list(range(len(own)))
        if span.nulls:
            assert [c.range for c in own] == [span]
            continue
        assert span.lower == edge
        assert own[0].range.lower == span.lower
        assert own[-1].range.upper == span.upper
        for one, other in itertools.pairwise(own):
            assert one.range.upper == other.range.lower is not None
        edge = span.upper
    assert edge is None


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.booleans(), st.booleans())
def test_every_difference_is_found_and_the_key_space_is_covered_once(seed: int, nullable: bool, spread: bool) -> None:
    rng = random.Random(seed)
    source = random_rows(rng, rng.randrange(0, 120), nullable=nullable)
    target = spoil(rng, source, rng.randrange(0, 6))
    pair = make_pair(len(source), nullable=nullable, spread=spread)
    store, engine = FakeStore(), ToyEngine(ToySide(source), ToySide(target))
    rules = replace(RULES, budget_seconds=rng.choice([0.0, 10.0]), chunk_rows=rng.choice([1, 4, 300]))
    run = start(store, pair)
    verdict = verify(engine, store, run, pair, rules)
    wanted = differences(source, target)
    assert verdict is (Verdict.MISMATCH if wanted else Verdict.MATCH)
    assert {d.key for _, d in store.row_diffs(run, pair.id) if d.state is LiveState.DIVERGED} == wanted
    chunk_proof(store, run, pair)
    if not wanted:
        assert not overlaps(engine.sides[0].ranges)


def overlaps(ranges: list[KeyRange]) -> list[tuple[KeyRange, KeyRange]]:
    spots = Counter((r.lower, r.nulls) for r in ranges)
    return [(r, r) for r in ranges if spots[r.lower, r.nulls] > 1]


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(0, 60), st.booleans())
def test_a_driver_that_dies_at_any_write_resumes_to_the_same_verdict(seed: int, dies_at: int, after: bool) -> None:
    rng = random.Random(seed)
    nullable = rng.random() < 0.5
    source = random_rows(rng, rng.randrange(0, 120), nullable=nullable)
    target = spoil(rng, source, rng.randrange(0, 4))
    pair = make_pair(len(source), nullable=nullable, spread=rng.random() < 0.8)
    rules = replace(RULES, budget_seconds=0.0, live=True)  # without counts, only the chain proves anything
    store = FakeStore()
    run = start(store, pair)
    first = ToyEngine(ToySide(source), ToySide(target))
    try:
        verify(first, DyingStore(store, dies_at, after=after), run, pair, rules)  # type: ignore[arg-type]
    except PowerCutError:
        assert first.canceled
    finished = list(store.chunks(run, pair.id))
    second = ToyEngine(ToySide(source), ToySide(target))
    store.resume_run(run)
    verdict = verify(second, store, run, pair, rules)
    wanted = differences(source, target)
    assert verdict is (Verdict.MISMATCH if wanted else Verdict.MATCH)
    assert {d.key for _, d in store.row_diffs(run, pair.id) if d.state is LiveState.DIVERGED} == wanted
    chunk_proof(store, run, pair)
    begun_again = {r.lower for side in second.sides for r in side.ranges}
    assert not [c for c in finished if not c.range.nulls and c.range.lower is not None and c.range.lower in begun_again]


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_reads_that_fail_at_random_never_make_match_or_a_wrong_row_diff(seed: int) -> None:
    rng = random.Random(seed)
    source = random_rows(rng, rng.randrange(1, 120), nullable=True)
    target = spoil(rng, source, rng.randrange(0, 4))
    pair = make_pair(len(source), nullable=True, spread=rng.random() < 0.8)
    wanted = differences(source, target)
    share = rng.choice([0.02, 0.2, 0.9])
    failing = [True]

    def before(what: str, _: KeyRange | None) -> None:
        if failing[0] and rng.random() < share:
            raise rng.choice([RetryableReadError, TimeLimitError, ReadError, EndpointError, IncompleteReadError])(what)

    sides = ToySide(source, before), ToySide(target, before)
    store = FakeStore()
    run = start(store, pair)
    verdict = verify(ToyEngine(*sides), store, run, pair)
    found = {d.key for _, d in store.row_diffs(run, pair.id) if d.state is LiveState.DIVERGED}
    assert found <= wanted
    result = store.table_results(run)[0]
    if verdict is Verdict.MATCH:
        assert not wanted
    assert (verdict is Verdict.MISMATCH) == bool(found)
    if verdict is Verdict.INCONCLUSIVE:
        assert result.reasons
        assert all(reason.strip() for reason in result.reasons)
    failing[0] = False
    store.resume_run(run)
    if verdict is Verdict.INCONCLUSIVE:  # the servers are well again: what failed is read again
        assert verify(ToyEngine(*sides), store, run, pair) is (Verdict.MISMATCH if wanted else Verdict.MATCH)
        assert {d.key for _, d in store.row_diffs(run, pair.id) if d.state is LiveState.DIVERGED} == wanted


def failing_tasks(kind: str, error: Exception) -> Callable[[Task], None]:
    def before(task: Task) -> None:
        if task.kind == kind:
            raise error

    return before


ERRORS = [
    ReadError("gave up"), RetryableReadError("lost"), TimeLimitError("too slow"), IncompleteReadError("cut"),
    EndpointError("refused"), PrivilegeError("denied"),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", ["count", "edges", "span", "confirm"])
def test_a_task_that_fails_is_inconclusive_with_its_reason(kind: str, error: Exception) -> None:
    source: Rows = dict.fromkeys(range(50), "a")
    target = {**source, 7: "b"} if kind == "confirm" else source
    pair, store = make_pair(50), FakeStore()
    run = start(store, pair)
    engine = ToyEngine(ToySide(source), ToySide(target), before_task=failing_tasks(kind, error))
    assert verify(engine, store, run, pair) is Verdict.INCONCLUSIVE
    reasons = store.table_results(run)[0].reasons
    assert any(str(error) in reason for reason in reasons)
    if kind == "confirm":
        assert "1 rows differed once and were not read again" in reasons


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("what", ["checksum", "list", "walk", "count", "edge", "rows"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_read_that_always_fails_is_inconclusive_with_its_reason(side: int, what: str, error: Exception) -> None:
    def before(read: str, _: KeyRange | None) -> None:
        if read == what:
            raise error

    rows: Rows = dict.fromkeys(range(50), "a")
    tables = [ToySide(dict(rows)), ToySide({**rows, 7: "b"})]
    tables[side].before_read = before
    pair, store = make_pair(50), FakeStore()
    run = start(store, pair)
    verdict = verify(ToyEngine(*tables), store, run, pair)
    if (side, what) == (1, "walk"):
        # The walker is the source; the target is asked only for what lies beyond the source's last row.
        assert verdict in (Verdict.INCONCLUSIVE, Verdict.MISMATCH)
        return
    reasons = store.table_results(run)[0].reasons
    assert any(str(error) in reason for reason in reasons)
    assert verdict is (Verdict.MISMATCH if what == "count" else Verdict.INCONCLUSIVE)


def test_a_dead_target_does_not_fail_every_chunk_one_by_one() -> None:
    def dead(what: str, _: KeyRange | None) -> None:
        raise RetryableReadError(f"{what}: connection refused")

    source: Rows = dict.fromkeys(range(2000), "a")
    pair, store = make_pair(2000), FakeStore()
    run = start(store, pair)
    engine = ToyEngine(ToySide(source), ToySide(source, dead))
    before = {"edge": lambda *_: None}

    def only_reads(what: str, key_range: KeyRange | None) -> None:
        (before.get(what) or dead)(what, key_range)

    engine.sides[1].before_read = only_reads
    assert verify(engine, store, run, pair) is Verdict.INCONCLUSIVE
    assert len(list(store.chunks(run, pair.id))) < 100


def test_counts_that_do_not_add_up_are_inconclusive_unless_writes_are_expected() -> None:
    class Lying(ToySide):
        pass

    rows: Rows = dict.fromkeys(range(50), "a")
    source, target = ToySide(dict(rows)), ToySide(dict(rows))

    def vanish(what: str, _: KeyRange | None) -> None:
        if what == "count":
            source.rows[1000] = "late"

    source.before_read = vanish
    pair, store = make_pair(50), FakeStore()
    for live, wanted in ((False, Verdict.INCONCLUSIVE), (True, Verdict.MATCH)):
        source.rows = dict(rows)
        run = start(store, pair)
        # The count comes before the spans are walked; the row must be gone again when they are.
        engine = ToyEngine(source, target, before_task=lambda t: source.rows.pop(1000, None) if t.kind != "count" else None)  # fmt: skip  # noqa: E501
        assert verify(engine, store, run, pair, replace(RULES, live=live)) is wanted
        if not live:
            assert "50 / 50 rows, the tables 51 / 50" in store.table_results(run)[0].reasons[0]


def test_an_empty_run_proves_nothing() -> None:
    store = FakeStore()
    run = store.start_run("verify", "h", {"pairs": []}, {}, kind=StoredKind.TABLES)
    engine = ToyEngine(ToySide({}), ToySide({}))
    assert verify_tables([], engine, store, run, RULES, Controls()) is Verdict.INCONCLUSIVE


def test_two_empty_tables_match() -> None:
    pair, store = make_pair(0), FakeStore()
    run = start(store, pair)
    assert verify(ToyEngine(ToySide({}), ToySide({})), store, run, pair) is Verdict.MATCH
    chunk_proof(store, run, pair)


def conditional(rows: int = 0, where: str = "1=0", on: tuple[str, ...] = ("source", "target")) -> PairPlan:
    pair = make_pair(rows, spread=False)
    sides = [replace(s, sql=replace(s.sql, where=where if s.endpoint.name in on else "")) for s in pair.sides]
    return replace(pair, sources=(sides[0],), target_side=sides[1], filtered=True)


@pytest.mark.parametrize(
    ("left_out", "on", "expected", "asked"),
    [
        ((True, True), ("source", "target"), "none of about 7 rows on source and target: nothing was compared", 2),
        ((True, False), ("source", "target"), "none of about 7 rows on source: nothing was compared", 2),
        ((False, True), ("target",), "none of about 7 rows on target: nothing was compared", 1),
        ((False, False), ("source", "target"), "", 2),
    ],
)
def test_a_condition_that_leaves_no_row_proves_nothing_unless_the_table_is_empty(
    left_out: tuple[bool, bool], on: tuple[str, ...], expected: str, asked: int
) -> None:
    pair, store = conditional(7, on=on), FakeStore()
    run = start(store, pair)
    engine = ToyEngine(*(ToySide({}, filtered=one) for one in left_out))
    assert verify(engine, store, run, pair) is (Verdict.INCONCLUSIVE if expected else Verdict.MATCH)
    reasons = store.table_results(run)[0].reasons
    assert [reason.removeprefix("the condition of overrides.where leaves ") for reason in reasons] == [expected][
        : bool(expected)
    ]
    assert [task.kind for task in engine.tasks].count("any") == asked


def test_rows_under_a_condition_and_none_beside_proved_immutable_ones_need_no_look_behind_it() -> None:
    store = FakeStore()
    for rows, change in (({1: "a"}, {}), ({}, {"immutable_in": "r0"})):
        pair = replace(conditional(1), **change)  # type: ignore[arg-type]
        run = start(store, pair)
        engine = ToyEngine(ToySide(dict(rows), filtered=True), ToySide(dict(rows), filtered=True))  # type: ignore[arg-type]
        assert verify(engine, store, run, pair) is Verdict.MATCH
        assert "any" not in [task.kind for task in engine.tasks]


def test_a_look_behind_a_condition_that_fails_leaves_the_table_inconclusive() -> None:
    pair, store = conditional(), FakeStore()
    run = start(store, pair)
    engine = ToyEngine(ToySide({}), ToySide({}), before_task=failing_tasks("any", ReadError("gone")))
    assert verify(engine, store, run, pair) is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("change", "wanted", "reason"),
    [
        ({"target_side": None}, Verdict.INCONCLUSIVE, "no column can be compared"),
        ({"target_side": None, "target": ""}, Verdict.MISMATCH, "the table is on the source only"),
        ({"sources": (), "source": ""}, Verdict.MISMATCH, "the table is on the target only"),
    ],
)
def test_a_pair_that_cannot_be_read_is_never_match(change: dict[str, object], wanted: Verdict, reason: str) -> None:
    pair, store = replace(make_pair(5), **change), FakeStore()  # type: ignore[arg-type]
    run = start(store, pair)
    engine = ToyEngine(ToySide({}), ToySide({}))
    assert verify(engine, store, run, pair) is wanted
    assert reason in store.table_results(run)[0].reasons
    assert not engine.tasks


def test_a_full_store_stops_the_run_and_the_engine() -> None:
    rows: Rows = dict.fromkeys(range(50), "a")
    pair, store = make_pair(50), FakeStore()
    run = start(store, pair)
    engine = ToyEngine(ToySide(rows), ToySide(rows))

    def fill(task: Task) -> None:
        store.fail = task.kind == "span"

    engine.before_task = fill
    with pytest.raises(StoreError):
        verify(engine, store, run, pair)
    assert engine.canceled
    store.fail = False
    assert store.load_run(run).verdict is Verdict.INCONCLUSIVE
    store.resume_run(run)
    assert verify(ToyEngine(ToySide(rows), ToySide(rows)), store, run, pair) is Verdict.MATCH


def test_a_canceled_engine_is_an_interruption_and_records_nothing_of_what_was_cut() -> None:
    rows: Rows = dict.fromkeys(range(50), "a")

    def cancel(what: str, _: KeyRange | None) -> None:
        if what == "checksum":
            raise CanceledError("canceled")

    pair, store = make_pair(50), FakeStore()
    run = start(store, pair)
    with pytest.raises(KeyboardInterrupt):
        verify(ToyEngine(ToySide(rows), ToySide(rows, cancel)), store, run, pair)
    assert not list(store.chunks(run, pair.id))
    assert not store.table_results(run)


class _Hanging(ToyEngine):
    """Never answers a span."""

    def submit(self, task: str) -> Future[str]:
        return Future() if '"kind":"span"' in task else super().submit(task)


def test_the_time_limit_of_a_run_holds_although_a_server_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("migverify.tables.verify.GRACE_SECONDS", 0.3)
    rows: Rows = dict.fromkeys(range(50), "a")
    pair, store = make_pair(50), FakeStore()
    run = start(store, pair)
    engine = _Hanging(ToySide(rows), ToySide(rows))
    assert verify(engine, store, run, pair, run_seconds=0.3) is Verdict.INCONCLUSIVE
    assert engine.canceled
    assert "the run's time limit of 0.3 s is over" in store.table_results(run)[0].reasons[0]
    store.resume_run(run)
    assert verify(ToyEngine(ToySide(rows), ToySide(rows)), store, run, pair) is Verdict.MATCH


def test_pairs_that_never_began_keep_a_run_from_match() -> None:
    """The first pair matches just when the time is over; of the second nothing is known."""
    rows: Rows = dict.fromkeys(range(50), "a")
    store, pairs = FakeStore(), [make_pair(50, name=name, spread=False) for name in ("app.a", "app.b")]
    run = store.start_run("verify", "h", {"pairs": []}, {}, kind=StoredKind.TABLES)

    def dawdle(progress: VerifyProgress) -> None:
        if progress.finished is not None and progress.finished.pair == "app.a":
            time.sleep(1.1)

    engine = ToyEngine(ToySide(rows), ToySide(rows), slots=1 - WAITING)  # one task at a time
    controls = Controls(run_seconds=1.0, on_progress=dawdle)
    assert verify_tables(pairs, engine, store, run, RULES, controls) is Verdict.INCONCLUSIVE
    assert [result.verdict for result in store.table_results(run)] == [Verdict.MATCH]
    store.resume_run(run)
    assert verify_tables(pairs, engine, store, run, RULES, Controls()) is Verdict.MATCH


@pytest.mark.parametrize("pairs", [1, 2])
def test_a_pause_before_a_pair_begins_is_no_end_of_the_run(tmp_path: Path, pairs: int) -> None:
    rows: Rows = dict.fromkeys(range(50), "a")
    pause = tmp_path / "pause"
    if pairs == 1:
        pause.touch()
    store = FakeStore()
    reported: list[VerifyProgress] = []

    def watch(progress: VerifyProgress) -> None:
        reported.append(progress)
        if progress.finished is not None and len(store.table_results(run)) < pairs:
            pause.touch()
        elif progress.paused:
            pause.unlink()

    run = store.start_run("verify", "h", {"pairs": []}, {}, kind=StoredKind.TABLES)
    plans = [make_pair(50, name=f"app.t{n}") for n in range(pairs)]
    engine = ToyEngine(ToySide(rows), ToySide(rows))
    controls = Controls(pause_file=pause, on_progress=watch)
    assert verify_tables(plans, engine, store, run, RULES, controls) is Verdict.MATCH
    assert len(store.table_results(run)) == pairs
    assert any(progress.paused for progress in reported)


def test_a_pause_file_holds_tasks_back_until_it_is_gone(tmp_path: Path) -> None:
    rows: Rows = dict.fromkeys(range(50), "a")
    pause = tmp_path / "pause"
    pair, store = make_pair(50), FakeStore()
    engine = ToyEngine(ToySide(rows), ToySide(rows))
    seen: list[int] = []

    def watch(progress: VerifyProgress) -> None:
        if progress.chunks > 2 and not seen:
            pause.touch()
            seen.append(progress.chunks)

    checks = [0]

    class Counted(type(pause)):  # type: ignore[misc]
        def exists(self, **_: object) -> bool:
            held = pause.is_file()
            checks[0] += held
            if checks[0] > 3:
                pause.unlink(missing_ok=True)
            return held

    run = start(store, pair)
    rules = replace(RULES, budget_seconds=0.0)
    assert verify(engine, store, run, pair, rules, pause_file=Counted(pause), on_progress=watch) is Verdict.MATCH
    assert checks[0] > 3


def test_max_row_diffs_stops_a_table_and_leaves_it_resumable() -> None:
    source: Rows = dict.fromkeys(range(400), "a")
    target: Rows = dict.fromkeys(range(400), "b")
    pair, store = make_pair(400), FakeStore()
    run = start(store, pair)
    rules = replace(RULES, budget_seconds=0.0, max_row_diffs=20)
    engine = ToyEngine(ToySide(source), ToySide(target))
    assert verify(engine, store, run, pair, rules) is Verdict.MISMATCH
    result = store.table_results(run)[0]
    assert any("limits.max_row_diffs" in reason for reason in result.reasons)
    assert 20 < result.value_differs < 400


@pytest.mark.parametrize("broken", ["hole", "overlap"])
def test_recorded_spans_that_are_no_cut_of_the_key_prove_nothing(broken: str) -> None:
    rows: Rows = dict.fromkeys(range(50), "a")
    pair, store = make_pair(50), FakeStore()
    run = start(store, pair)
    store.add_span(run, pair.id, 0, KeyRange(None, ("10",)))
    store.add_span(run, pair.id, 1, KeyRange(("20",) if broken == "hole" else ("5",), None))
    engine = ToyEngine(ToySide(rows), ToySide(rows))
    assert verify(engine, store, run, pair, replace(RULES, live=True)) is Verdict.INCONCLUSIVE
    assert "no cut of the key" in store.table_results(run)[0].reasons[0]


def test_the_end_of_an_answer_is_checked_against_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that forgets a part of its range: the chain sees it even where counts prove nothing."""
    from migverify.tables import pair_run

    rows: Rows = dict.fromkeys(range(50), "a")
    pair, store = make_pair(50, spread=False), FakeStore()
    run = start(store, pair)
    take = pair_run.PairRun._take_span
    monkeypatch.setattr(
        pair_run.PairRun, "_take_span", lambda self, task, outcome: take(self, task, replace(outcome, rest=None))
    )
    engine = ToyEngine(ToySide(rows), ToySide(rows))
    verdict = verify(engine, store, run, pair, replace(RULES, live=True, budget_seconds=0.0))
    assert verdict is Verdict.INCONCLUSIVE
    assert "was not read" in store.table_results(run)[0].reasons[0]


@pytest.mark.parametrize(("still_since", "reads", "delay"), [(None, 3, 1.0), ("long ago", 1, 0.0), ("now", 1, 3.0)])
def test_a_source_that_nobody_writes_needs_one_more_read(still_since: str | None, reads: int, delay: float) -> None:
    store = FakeStore()
    run = store.start_run("verify", "none", {}, {}, kind=StoredKind.TABLES)
    rules = replace(RULES, delay_seconds=1.0, rounds=3, still_reads=3)
    since = {None: None, "long ago": time.time() - 60, "now": time.time()}[still_since]
    pair = PairRun(make_pair(4, spread=False), rules, store, run, 1, lambda: since)
    store.add_row_diffs(run, [RowDiff(pair.pair.id, ("1",), DiffKind.VALUE_DIFFERS, LiveState.UNCONFIRMED)])
    pair._count_if_due()
    pair.ready.clear()
    assert not pair.idle()
    (task,) = pair.ready
    assert (task.kind, task.rules.still_reads, task.rules.delay_seconds) == ("confirm", reads, delay)


def test_few_rows_are_read_again_while_spans_are_still_read(monkeypatch: pytest.MonkeyPatch) -> None:
    from migverify.tables import pair_run
    from migverify.tables.tasks import TaskOutcome

    clock = [1000.0]
    monkeypatch.setattr(pair_run.time, "time", lambda: clock[0])
    store = FakeStore()
    run = store.start_run("verify", "none", {}, {}, kind=StoredKind.TABLES)
    pair = PairRun(make_pair(4, spread=False), replace(RULES, delay_seconds=1.0), store, run, 1)
    pair.begin()
    (first,) = pair.ready
    pair.ready.clear()
    found = RowDiff(pair.pair.id, ("1",), DiffKind.VALUE_DIFFERS, LiveState.UNCONFIRMED)
    rest = TaskOutcome("span", pair.pair.id, 0, (), (), KeyRange(("2",)), 1)
    pair.take(first, replace(rest, diffs=(found,)))
    assert [t.kind for t in pair.ready] == ["span"]  # the row was read a moment ago
    clock[0] += 5
    pair.take(pair.ready.popleft(), rest)
    assert [t.kind for t in pair.ready] == ["confirm", "span"]
    clock[0] += 5
    pair.ready.popleft()
    pair.take(pair.ready.popleft(), rest)
    assert [t.kind for t in pair.ready] == ["span"]  # nothing new waits


def test_a_server_that_refuses_the_user_ends_the_run_at_once_with_its_reason() -> None:
    """A changed password fails every read of every table; retries would only lock the account."""
    pairs = [make_pair(name=f"app.t{n}") for n in range(5)]
    asked = [0]

    def refuse(_: Task) -> None:
        asked[0] += 1
        raise LoginError("source: app@host: the server refuses the user: Access denied [1045]", hint="Check it.")

    store = FakeStore()
    run = start(store, pairs[0])
    engine = ToyEngine(ToySide({}), ToySide({}), before_task=refuse)
    assert verify_tables(pairs, engine, store, run, RULES, Controls()) is Verdict.INCONCLUSIVE
    assert engine.canceled
    assert asked[0] <= engine.slots + WAITING
    results = list(store.table_results(run))
    assert results
    assert all("1045" in " ".join(result.reasons) for result in results)
