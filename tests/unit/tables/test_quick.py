"""Quick answers: what is drawn, what is concluded, and that no path leads from a part of a table to MATCH."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.cli.diff_view import run_status
from migverify.codec import decode, encode
from migverify.errors import ExitCode, PlanError, UsageError
from migverify.guards.capacity_speed import is_verification, last_verified, verifications
from migverify.model import KeyRange, LiveState, StoredKind, TableResult, Verdict
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.runbook.actions import commands
from migverify.store.open import open_store
from migverify.tables.armed import forward_run
from migverify.tables.outcome import conclude_counts
from migverify.tables.prepare import PreparedTables
from migverify.tables.quick import (
    MOST_RANGES,
    Level,
    PairPart,
    QuickRead,
    parse_interval,
    parse_share,
    sampled_slices,
    unseen_by,
)
from migverify.tables.recheck import proof_run, quick_read, run_of_tables, run_to_resume, tables_run
from migverify.tables.run import proved_runs
from migverify.tables.tasks import PairPlan
from migverify.tables.verify import Controls, verify_tables
from tests.fakes import FakeStore
from tests.toy_tables import RULES, DyingStore, PowerCutError, ToyEngine, ToySide, make_pair

ROWS = dict.fromkeys(range(1, 1001), "v")
COUNTS = QuickRead(Level.COUNTS)
KEYS = QuickRead(Level.KEYS)
SAMPLE = QuickRead(share="10%", seed=3)


def part_of(read: QuickRead, rows: int = 1000) -> PairPlan:
    return replace(make_pair(rows), part=PairPart(read, unseen_by(read, "id")))


def answer(pair: PairPlan, engine: ToyEngine, store: FakeStore | None = None) -> TableResult:
    store = store or FakeStore()
    run = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.QUICK)
    verify_tables([pair], engine, store, run, RULES, Controls())
    return store.table_results(run)[0]


# --- what is drawn -------------------------------------------------------------------------------------------


@given(st.integers(1, 2**64), st.floats(0.000001, 0.999), st.integers(0, 2**32), st.text(max_size=9))
def test_slices_are_disjoint_in_order_and_their_share_is_near_the_asked_one(
    size: int, share: float, seed: int, name: str
) -> None:
    slices = list(sampled_slices(size, share, seed, name))
    assert slices == list(sampled_slices(size, share, seed, name))
    assert 1 <= len(slices) <= MOST_RANGES
    assert all(first < last for first, last in slices)
    bounds = [0, *(bound for pair in slices for bound in pair), size]
    assert bounds == sorted(bounds)
    drawn = sum(last - first for first, last in slices)
    assert abs(drawn - size * share) <= max(1, size * 1e-12)


def test_another_seed_and_another_table_draw_other_slices_and_every_place_has_its_chance() -> None:
    first = list(sampled_slices(10_000, 0.01, 1, "app.t"))
    assert first != list(sampled_slices(10_000, 0.01, 2, "app.t"))
    assert first != list(sampled_slices(10_000, 0.01, 1, "app.u"))
    drawn = [0] * 50
    for seed in range(2_000):
        for low, high in sampled_slices(50, 0.1, seed, "app.t"):
            for place in range(low, high):
                drawn[place] += 1
    assert all(100 < n < 320 for n in drawn)  # 200 expected


@given(st.integers(1, 9999), st.sampled_from("smhdw"))
def test_an_interval_is_its_seconds(number: int, unit: str) -> None:
    seconds = number * {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[unit]
    if seconds <= 3650 * 86400:
        assert parse_interval(f"{number}{unit}") == seconds
    else:
        with pytest.raises(UsageError):
            parse_interval(f"{number}{unit}")


@pytest.mark.parametrize("text", ["", "2", "h", "0h", "-2h", "1.5h", "2h ", "2 h", "2y", "٢h", "1' OR 1=1"])
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_interval(text)


@pytest.mark.parametrize("text", ["", "1", "0%", "100%", "200%", "-1%", "1 %", "nan%", "1e-3%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_share(text)
    assert parse_share("0.1%") == pytest.approx(0.001)


# --- what is concluded ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", LiveState)
@pytest.mark.parametrize("failures", [(), ("gone",)])
@pytest.mark.parametrize("counts", [(), (5, 5), (5, 4)])
def test_counts_are_never_a_match(state: LiveState, failures: tuple[str, ...], counts: tuple[int, ...]) -> None:
    result = conclude_counts(part_of(COUNTS), counts, state, failures, 1.0)
    assert result.verdict is not Verdict.MATCH
    assert (result.verdict is Verdict.MISMATCH) is (bool(counts) and state is LiveState.DIVERGED)


def test_equal_counts_say_so_and_what_they_cannot_show() -> None:
    result = answer(part_of(COUNTS), ToyEngine(ToySide(dict(ROWS)), ToySide({n + 5: "w" for n in ROWS})))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reasons == (
        "counts are equal: 1,000 rows on each side",
        "counts cannot show rows with other values, or as many other rows in the place of some",
    )
    assert result.details["answered"] is True
    # or a report would name nothing that it does not cover
    assert [(gap.what, gap.reason) for gap in result.not_covered] == [
        ("what --level counts leaves out", result.reasons[1])
    ]
    assert result.blind_spots == (result.reasons[1],)


def test_counts_that_stay_different_are_a_mismatch() -> None:
    result = answer(part_of(COUNTS), ToyEngine(ToySide(dict(ROWS)), ToySide({1: "v"})))
    assert result.verdict is Verdict.MISMATCH
    assert result.reasons[0] == "counts differ: 1,000 / 1 rows (source / target)"


def lagging(rows: dict[int | None, str], first: int) -> tuple[ToySide, Callable[[], None]]:
    """A target that has the first rows only, until it is let go."""
    side = ToySide({key: value for key, value in rows.items() if key is not None and key <= first})

    def catch_up() -> None:
        side.rows = dict(rows)

    return side, catch_up


def test_a_difference_that_was_read_once_is_no_mismatch() -> None:
    target, catch_up = lagging(dict(ROWS), 990)
    reads: list[str] = []

    def before(what: str, _range: KeyRange | None) -> None:
        reads.append(what)
        if len(reads) == 2:
            catch_up()

    target.before_read = before
    result = answer(part_of(COUNTS), ToyEngine(ToySide(dict(ROWS)), target))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reasons[0] == "counts are equal: 1,000 rows on each side"


def test_counts_that_keep_moving_are_hot() -> None:
    source = ToySide(dict(ROWS))

    def grow(what: str, _range: KeyRange | None) -> None:
        if what == "count":
            source.rows = {**source.rows, len(source.rows) + 1: "new"}

    source.before_read = grow
    result = answer(part_of(COUNTS), ToyEngine(source, ToySide(dict(ROWS))))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "kept changing" in result.reasons[0]
    assert result.details["answered"] is False


def test_a_sample_finds_a_fault_inside_of_its_ranges_and_not_one_outside() -> None:
    source = ToySide(dict(ROWS))
    clean = answer(part_of(SAMPLE), ToyEngine(source, ToySide(dict(ROWS))))
    read = list(source.ranges)
    seen = {key for key_range in read for key in source.within(key_range)}
    assert 90 <= len(seen) <= 110
    assert clean.verdict is Verdict.INCONCLUSIVE
    assert clean.reasons[0].startswith("rows are equal in the sample: 100 rows read on the source")
    inside, outside = min(seen), min(ROWS.keys() - seen)
    for key, verdict in ((inside, Verdict.MISMATCH), (outside, Verdict.INCONCLUSIVE)):
        target = ToySide({**ROWS, key: "other"})
        assert answer(part_of(SAMPLE), ToyEngine(ToySide(dict(ROWS)), target)).verdict is verdict


def test_keys_of_few_values_are_drawn_by_a_walk() -> None:
    rows = {n * 1000: "v" for n in range(1, 41)}
    pair = part_of(QuickRead(share="25%", seed=1), 1_000_000)  # 40,000 values for a million rows, as it seems
    engine = ToyEngine(ToySide(dict(rows)), ToySide(dict(rows)))
    result = answer(pair, engine)
    assert [task.kind for task in engine.tasks[:2]] == ["edges", "marks"]
    assert result.verdict is Verdict.INCONCLUSIVE


def test_an_empty_table_is_sampled_without_a_range() -> None:
    result = answer(part_of(SAMPLE), ToyEngine(ToySide({}), ToySide({})))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.details["ranges"] == []


@settings(max_examples=40)
@given(st.integers(0, 30), st.booleans())
def test_a_sample_that_is_killed_goes_on_with_its_ranges(dies_at: int, after: bool) -> None:
    store, pair = FakeStore(), part_of(SAMPLE)
    run = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.QUICK)
    source, target = ToySide(dict(ROWS)), ToySide(dict.fromkeys(ROWS, "other"))
    dying = DyingStore(store, dies_at, after=after)
    try:
        verify_tables([pair], ToyEngine(source, target), dying, run, RULES, Controls())  # type: ignore[arg-type]
    except PowerCutError:
        # More rows came meanwhile: the ranges of a new sample would be others.
        source.rows, target.rows = ({**side.rows, 90_000: "new"} for side in (source, target))
        verify_tables([pair], ToyEngine(source, target), store, run, RULES, Controls())
    result = store.table_results(run)[-1]
    ranges = decode(tuple[KeyRange, ...], json.loads(next(store.blobs(run, pair.id, "sample"))))
    assert [key_range for _, key_range in store.spans(run, pair.id)] == list(ranges)
    assert result.verdict is Verdict.MISMATCH
    read = {key for key_range in ranges for key in source.within(key_range)}
    assert result.value_differs == len(read - {90_000})
    assert not any(reason.startswith("not read") for reason in result.reasons)


def test_a_resumed_run_reads_no_table_again_that_was_answered() -> None:
    store, pair = FakeStore(), part_of(COUNTS)
    run = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, {}, kind=StoredKind.QUICK)
    engine = ToyEngine(ToySide(dict(ROWS)), ToySide(dict(ROWS)))
    for _ in range(2):
        verify_tables([pair], engine, store, run, RULES, Controls())
    assert [task.kind for task in engine.tasks] == ["counts"]


def test_a_pair_that_cannot_be_read_in_this_way_says_so() -> None:
    pair = part_of(SAMPLE)
    assert pair.part is not None
    refused = replace(pair, part=replace(pair.part, refused="no key that both sides sort alike"))
    engine = ToyEngine(ToySide(dict(ROWS)), ToySide(dict(ROWS)))
    result = answer(refused, engine)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reasons[0] == "not read: no key that both sides sort alike"
    assert engine.tasks == []


# --- who may use it ------------------------------------------------------------------------------------------


def test_no_run_rests_on_a_quick_answer(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    facts = {"quick": {"level": "counts", "share": "", "seed": 0, "column": "", "interval": "", "moment": ""}}
    run = store.start_run("verify", "h", {"pairs": [{"id": "app.t"}]}, facts, kind=StoredKind.QUICK)
    store.finish_run(run, Verdict.INCONCLUSIVE, {})
    for name in (run, "last"):
        with pytest.raises(UsageError, match="quick answer" if name != "last" else "no such run"):
            proof_run(store, name, "h")
        with pytest.raises(UsageError):
            proof_run(store, name, "h", watches="all")
        with pytest.raises(UsageError):
            tables_run(store, name, "h")
    assert run_to_resume(store, "last", "h").run_id == run
    assert run_of_tables(store, run).run_id == run
    assert quick_read(store.load_run(run)) == COUNTS
    store.close()


def test_a_quick_answer_that_does_not_say_what_it_reads_is_not_gone_on_with(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    run = store.start_run("verify", "h", {"pairs": []}, {"quick": {"level": "more"}}, kind=StoredKind.QUICK)
    with pytest.raises(PlanError):
        quick_read(store.load_run(run))
    store.close()


def test_no_figure_and_no_proof_of_another_command_comes_from_a_quick_answer(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    facts = {"engine": "local", "slots": 2, "seconds": 1.0, "quick": {"level": "keys"}}
    run = store.start_run("verify", "h", {"pairs": [{"id": "app.t"}]}, facts, kind=StoredKind.QUICK)
    # Even a result that claims MATCH, with all that a proof of immutable rows has.
    claim = answer(part_of(QuickRead(Level.KEYS)), ToyEngine(ToySide(dict(ROWS)), ToySide(dict(ROWS))))
    details = {"plan_digest": "d", "stamps": ["1", "2"], "immutable_in": ""}
    store.add_table_result(run, replace(claim, verdict=Verdict.MATCH, details=details))
    store.finish_run(run, Verdict.MATCH, {"seconds": 1.0})
    assert proved_runs(store, PreparedTables((), 0, "", {}, "h", (), 0.0, lambda: iter(())), "") == {}
    assert last_verified(store) is None
    assert verifications(store, "local", {"app.t"}) == []
    assert not is_verification(store.load_run(run))
    for ask in (lambda: forward_run(store, run, "h"), lambda: forward_run(store, "last", "h")):
        with pytest.raises(UsageError):
            ask()
    store.close()


def test_a_gate_does_not_open_by_a_quick_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"run_id": "r", "verdict": "INCONCLUSIVE", "reasons": [], "tables": [{
        "pair": "app.t", "verdict": "INCONCLUSIVE", "reasons": ["counts are equal"], "rows_source": 1, "rows_target": 1,
    }]}  # fmt: skip
    monkeypatch.setattr(commands, "call", lambda *_: commands.Called(3, commands.Outcome.OK, document, ""))
    for read in (commands._tables, commands._verdict):
        done = commands._asked(["tables", "verify", "--level", "counts"], "tables verify", read, None)  # type: ignore[arg-type]
        assert done.outcome is commands.Outcome.NO_DATA
        assert done.value is None


def test_the_report_says_in_every_form_what_was_read(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    facts = {"quick": encode(COUNTS)}
    run = store.start_run("verify", "h", {"pairs": [{"id": "app.t", "source": "app.t", "target": "app.t"}]}, facts,
                          kind=StoredKind.QUICK)  # fmt: skip
    engine = ToyEngine(ToySide(dict(ROWS)), ToySide(dict(ROWS)))
    verify_tables([part_of(COUNTS)], engine, store, run, RULES, Controls())
    store.finish_run(run, Verdict.INCONCLUSIVE, {"reasons": ["--level counts reads a part of each table"]})
    report = read_report(store, run)
    assert report.exit_code is ExitCode.INCONCLUSIVE
    assert report.document["quick"]["level"] == "counts"
    assert report.covered == "Covered: the counts of 1 table pair; no row was read."
    assert [step.command for step in report.next_steps] == ["migverify tables verify"]
    for form in (Format.TEXT, Format.JSON, Format.HTML, Format.JUNIT):
        shown = render(report, form)
        assert "counts are equal: 1,000 rows on each side" in shown
        assert "counts cannot show" in shown
        assert "nothing is recorded as not covered" not in shown
        assert "none recorded" not in shown
    assert run_status(store, run)["rows"] == 1000
    store.close()


def test_a_sample_names_once_a_table_what_it_cannot_show_and_counts_the_rows_that_it_read() -> None:
    store = FakeStore()
    pair, facts = part_of(SAMPLE), {"quick": encode(SAMPLE)}
    run = store.start_run("verify", "h", {"pairs": [{"id": pair.id}]}, facts, kind=StoredKind.QUICK)
    verify_tables([pair], ToyEngine(ToySide(dict(ROWS)), ToySide(dict(ROWS))), store, run, RULES, Controls())
    store.finish_run(run, Verdict.INCONCLUSIVE, {"reasons": []})
    (result,) = store.table_results(run)
    assert (result.rows_source, result.rows_target) == (100, 100)
    text = render(read_report(store, run), Format.TEXT)
    assert "unknown" not in text.partition("Details")[0]
    details = text.partition("Details")[2].partition("Coverage")[0]
    unseen = "a sample cannot show differences outside of its key ranges"
    assert details.count(unseen) == 1
    assert text.partition("Coverage")[2].count(unseen) == 1, "among what is not covered, and not as a blind spot too"


def test_keys_of_a_table_without_a_key_have_no_empty_list() -> None:
    assert unseen_by(KEYS, "") == "keys cannot show other values in the columns outside of the key"
    assert unseen_by(KEYS, "id").endswith("outside of the key (id)")
