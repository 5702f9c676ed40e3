"""A report shows what the store holds and nothing else: verdicts, caps, masks, coverage."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import ExitCode, StoreError, UsageError
from migverify.figures import utc
from migverify.model import ChunkState, ColumnDiff, DiffKind, LiveState, StoredKind, Verdict
from migverify.report.coverage import ChunkTimeline
from migverify.report.marks import Clip
from migverify.report.model import Compared, FactList, Report, ReportOptions, Section
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.report.tables import TablePairReport, planned_pairs, read_pairs
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from tests.fakes import FakeStore
from tests.report_runs import (
    START,
    chunk,
    empty_run,
    large_run,
    match_run,
    mismatch_run,
    result,
    row_diff,
    start,
    unfinished_run,
)


def pairs_of(store: ResultStore, run: str, options: ReportOptions | None = None) -> list[TablePairReport]:
    results = sorted(store.table_results(run), key=lambda result: result.source)
    return read_pairs(store, run, results, options or ReportOptions(), ChunkTimeline(START))


def section(report: Report, id_: str) -> Section:
    return next(one for one in report.sections if one.id == id_)


def facts(report: Report) -> dict[str, str]:
    listed = [fact for _, some in report.cards for fact in some]
    blocks = [block for block in section(report, "facts").blocks if isinstance(block, FactList)]
    return {fact.name: fact.value for fact in (*listed, *(fact for block in blocks for fact in block.facts))}


def test_a_match_run_shows_what_the_store_holds() -> None:
    store = FakeStore()
    data = read_report(store, match_run(store))
    assert (data.verdict, data.exit_code, data.reasons) == (Verdict.MATCH, ExitCode.MATCH, ())
    assert (data.seconds, facts(data)["engine"], facts(data)["hash"]) == (3.5, "spark local[*]", "sha2-256/60")
    assert [table["source"] for table in data.document["tables"]] == ["shop.customers", "shop.orders"]
    assert data.covered == "Covered: 2,000 rows read from the source, 2,000 from the target, in 8 chunks."
    assert [name for name, _ in data.cards] == ["run", "source", "target"]
    text = render(data, Format.TEXT)
    assert "A collision of a 60-bit sum has a chance of about 2^-60. (2 table pairs)" in text
    assert "8 chunks (8 equal)" in text
    assert [why for why, _ in pairs_of(store, data.run_id)[0].sql] == ["source: checksum", "target: checksum"]


def test_views_are_named_as_not_compared() -> None:
    store = FakeStore()
    views = [f"source.{shard}: view shop.v{n}" for shard in "ab" for n in range(5)]
    data = read_report(store, start(store, facts={"skipped": views}))
    assert data.covered.endswith(
        " Without rows, and not compared: view shop.v0, view shop.v1, view shop.v2 and 2 more"
        " (`migverify guard schema` does)."
    )


def test_reading_writes_nothing() -> None:
    store = FakeStore()
    run = mismatch_run(store)
    store.calls.clear()
    read_report(store, run)
    reads = {"load_run", "table_results", "chunks", "spans", "row_diffs", "count_row_diffs", "sql"}
    assert set(store.calls) <= reads


def test_last_names_the_newest_run() -> None:
    store = FakeStore()
    match_run(store)
    newest = mismatch_run(store)
    assert read_report(store, "last").run_id == newest


def test_a_run_without_an_end_is_inconclusive_with_a_reason_and_its_missing_tables() -> None:
    store = FakeStore()
    data = read_report(store, unfinished_run(store))
    assert (data.verdict, data.exit_code, data.seconds) == (Verdict.INCONCLUSIVE, ExitCode.INCONCLUSIVE, None)
    assert data.reasons == ("the run has no end: it was cut off or still goes on (table pairs with a result: 1)",)
    tables = data.document["tables"]
    assert [(table["source"], table["verdict"]) for table in tables] == [
        ("shop.a", Verdict.MATCH),
        ("shop.b", Verdict.INCONCLUSIVE),
        ("shop.c", Verdict.INCONCLUSIVE),
    ]
    assert tables[2]["rows_source"] is None
    assert tables[2]["reasons"]
    assert tables[1]["chunks"] == 0
    assert "250 rows read from the source, 250 from the target, in 1 chunk" in data.covered


def test_an_unfinished_run_names_the_mismatches_it_found() -> None:
    store = FakeStore()
    run = start(store)
    store.add_table_result(run, result("a", Verdict.MISMATCH, value_differs=1))
    data = read_report(store, run)
    assert data.verdict is Verdict.INCONCLUSIVE
    assert data.reasons[1] == "table pairs that are MISMATCH already: 1"


def test_a_resumed_run_is_inconclusive_again() -> None:
    store = FakeStore()
    run = match_run(store)
    store.resume_run(run)
    assert read_report(store, run).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("held", [Verdict.MISMATCH, Verdict.INCONCLUSIVE, None])
def test_a_match_that_the_tables_do_not_bear_out_is_not_shown(held: Verdict | None) -> None:
    store = FakeStore()
    run = start(store)
    if held is not None:
        store.add_table_result(run, result("a", held))
        store.add_table_result(run, result("b"))
    store.finish_run(run, Verdict.MATCH, {})
    data = read_report(store, run)
    assert (data.verdict, data.exit_code) == (Verdict.INCONCLUSIVE, ExitCode.INCONCLUSIVE)
    assert "contradicts itself" in data.reasons[0]


def test_a_match_with_a_planned_pair_that_has_no_result_is_not_shown() -> None:
    store = FakeStore()
    run = start(store, {"pairs": [{"id": "a", "source": "s.a"}, {"id": "b", "source": "s.b"}]})
    store.add_table_result(run, result("a"))
    store.finish_run(run, Verdict.MATCH, {})
    assert read_report(store, run).verdict is Verdict.INCONCLUSIVE


def test_the_stored_verdict_is_not_computed_anew() -> None:
    store = FakeStore()
    run = start(store)
    store.add_table_result(run, result("a"))
    store.finish_run(run, Verdict.MISMATCH, {"reasons": ["a table exists on one side only"]})
    data = read_report(store, run)
    assert (data.verdict, data.reasons) == (Verdict.MISMATCH, ("a table exists on one side only",))


def test_no_run_and_no_store_are_errors() -> None:
    store = FakeStore()
    with pytest.raises(UsageError):
        read_report(store, "last")
    run = match_run(store)
    store.fail = True
    with pytest.raises(StoreError):
        read_report(store, run)


def test_planned_pairs_of_several_forms() -> None:
    plan = {
        "pairs": [
            {"pair": "p1", "source": "a.b", "target": "c.d"},
            {"id": "p2", "source": {"database": "a", "table": "x"}, "target": {"database": "c", "table": "y"}},
            {"id": "p3", "sources": [{"endpoint": "source.eu", "database": "a", "table": "z"}]},
            "not a pair",
        ]
    }
    assert list(planned_pairs(plan)) == [("p1", "a.b", "c.d"), ("p2", "a.x", "c.y"), ("p3", "a.z", "p3")]
    assert list(planned_pairs({})) == []


def columns_of(pairs: list[TablePairReport]) -> list[Compared]:
    return [column for table in pairs for item in table.samples for column in item.columns]


def values_of(pairs: list[TablePairReport]) -> list[str]:
    sides = [side for column in columns_of(pairs) for side in (column.source, column.target)]
    return [side.text for side in sides if isinstance(side, Clip) and side.text is not None]


def test_values_are_masked_unless_asked_for() -> None:
    store = FakeStore()
    run = mismatch_run(store)
    masked = pairs_of(store, run)
    assert values_of(masked) == []
    assert {(column.source, column.target) for column in columns_of(masked)} == {("masked", "masked")}
    assert all(set(column) == {"column", "kind", "masked"} for table in masked for row in table.rows
               for column in row["columns"])  # fmt: skip
    shown = pairs_of(store, run, ReportOptions(values=True))
    assert "ann@example.org" in values_of(shown)
    secret = next(column for column in columns_of(shown) if column.column == "secret")
    assert (secret.source, secret.target) == ("masked", "masked")


def test_long_values_are_cut_around_the_difference() -> None:
    store = FakeStore()
    pairs = pairs_of(store, mismatch_run(store), ReportOptions(values=True, value_characters=40))
    assert max(map(len, values_of(pairs))) <= 40
    body = next(column for column in columns_of(pairs) if column.column == "body").source
    assert isinstance(body, Clip)
    assert (body.before + len(body.text or "") + body.after) == 8001
    assert "1" in (body.text or "")


def test_samples_are_capped_with_exact_totals_and_confirmed_ones_first() -> None:
    store = FakeStore()
    run = start(store)
    converged = [row_diff("a", n, DiffKind.VALUE_DIFFERS, state=LiveState.CONVERGED) for n in range(300)]
    diverged = [row_diff("a", 1000 + n, DiffKind.MISSING_ON_TARGET) for n in range(70)]
    store.add_row_diffs(run, [*converged, *diverged])
    store.add_table_result(run, result("a", Verdict.MISMATCH, missing_on_target=70))
    store.finish_run(run, Verdict.MISMATCH, {})
    table = pairs_of(store, run, ReportOptions(samples=100))[0]
    assert [row["state"] for row in table.rows] == ["diverged"] * 70 + ["converged"] * 30
    assert [item.notes[0] for item in table.samples] == ["diverged"] * 70 + ["converged"] * 30
    assert table.stored == 370
    assert table.counts == (
        ("missing_on_target", "diverged", 70),
        ("value_differs", "converged", 300),
    )


def test_the_cap_over_all_tables_is_shared() -> None:
    store = FakeStore()
    run = large_run(store, 400)
    pairs = pairs_of(store, run, ReportOptions(samples_in_all=45))
    shown = [len(table.samples) for table in pairs if table.row_diffs]
    assert len(shown) == 10
    assert set(shown) == {3}


def test_sections_hold_the_urgent_and_the_slow() -> None:
    store = FakeStore()
    data = read_report(store, large_run(store, 200), ReportOptions(sections=10))
    details = [block for block in section(data, "details").blocks if isinstance(block, Section)]
    verdicts = [detail.badge for detail in details]
    assert verdicts == [Verdict.MISMATCH] * 5 + [Verdict.INCONCLUSIVE] * 2 + [Verdict.MATCH] * 3
    matches = [table for table in data.document["tables"] if table["verdict"] == "MATCH"]
    assert details[7].title == max(matches, key=lambda table: table["seconds"])["source"]
    assert len(data.document["tables"]) == 200


def test_slow_and_failed_chunks() -> None:
    store = FakeStore()
    run = start(store)
    states = [ChunkState.FAILED if n % 3 == 0 else ChunkState.EQUAL for n in range(12)]
    chunks = [chunk("a", n, state, seconds=(n * 7) % 12, source=None) for n, state in enumerate(states)]
    store.add_chunks(run, chunks, [])
    store.add_table_result(run, result("a"))
    table = pairs_of(store, run, ReportOptions(slow_chunks=3))[0]
    assert [one.seconds for one in table.slow.slowest] == [11, 10, 9]
    assert [one.number for one in table.slow.failed] == [0, 3, 6]
    assert table.coverage.states == {ChunkState.FAILED: 4, ChunkState.EQUAL: 8}
    assert (table.coverage.rows_source, table.coverage.rows_target) == (0, 3000)


def test_secrets_do_not_pass() -> None:
    store = FakeStore()
    facts = {
        "store": "mysql+pymysql://app:p@:/%#'w0rd@db1:3306/results",
        "nested": {"db_password": "hunter2", "token": "t0ken"},
        "endpoints": {"source": {"url": "mysql://u:s3cr3t@h/", "password": "hunter2"}},
    }
    run = store.start_run("verify --store mysql://a:b0b@h/x", "p", {}, facts, kind=StoredKind.TABLES)
    store.add_table_result(run, result("a"))
    store.add_sql(run, "a", "source", "x", "-- mysql://u:s3cr3t@h/")
    data = read_report(store, run)
    text = repr(data) + "".join(render(data, form) for form in Format)
    for secret in ("w0rd", "hunter2", "t0ken", "s3cr3t", "b0b"):
        assert secret not in text
    assert "(withheld)" in text
    assert "***@db1:3306/results" in text


def test_missing_facts_are_named_as_missing() -> None:
    store = FakeStore()
    run = store.start_run("verify", "p", {}, {"version": None}, kind=StoredKind.TABLES)
    data = read_report(store, run)
    assert facts(data)["version"] == "not recorded"
    assert utc(None) == "not recorded"


@given(st.lists(st.tuples(st.floats(-5, 1e6), st.floats(0, 100), st.floats(0, 100)), max_size=60))
def test_a_timeline_keeps_every_chunk_while_they_are_few(reads: list[tuple[float, float, float]]) -> None:
    line = ChunkTimeline(START)
    for at, source, target in reads:
        line.add(chunk("a", 0, started=START + at, source_seconds=source, target_seconds=target))
    assert (line.chunks, len(line.points), line.binned) == (len(reads), len(reads), False)


def test_a_long_timeline_stays_small_and_keeps_the_slowest_read() -> None:
    line = ChunkTimeline(START)
    for n in range(30_000):
        slow = 99.0 if n == 20_001 else 1.0
        line.add(chunk("a", n, started=START + n / 3, source_seconds=slow, target_seconds=0.5))
    assert line.binned
    assert line.chunks == 30_000
    assert 100 <= len(line.points) <= 250
    assert max(p.source for p in line.points) == 99.0
    at = next(p.at for p in line.points if p.source == 99.0)
    assert abs(at - 20_001 / 3) < 100


def test_a_superseded_row_diff_counts_once() -> None:
    store = FakeStore()
    run = start(store)
    store.add_row_diffs(run, [row_diff("a", 1, DiffKind.VALUE_DIFFERS, ColumnDiff("c", "x", "y", "value"))])
    store.add_row_diffs(run, [row_diff("a", 1, DiffKind.MISSING_ON_TARGET)])
    store.add_table_result(run, result("a", Verdict.MISMATCH, missing_on_target=1))
    assert pairs_of(store, run)[0].counts == (("missing_on_target", "diverged", 1),)


def test_the_sql_store_gives_the_same_report_as_the_fake(tmp_path: Path) -> None:
    with closing(open_store(str(tmp_path / "runs.db"))) as store:
        for fill in (match_run, mismatch_run, unfinished_run, empty_run):
            fake = FakeStore()
            expected = read_report(fake, fill(fake), ReportOptions(values=True))
            got = read_report(store, fill(store), ReportOptions(values=True))
            # Ids and the clock are the store's own.
            assert got.document | {"run_id": "", "seconds": 0} == expected.document | {"run_id": "", "seconds": 0}
            assert got.sections[:-2] == expected.sections[:-2]
            assert (got.tiles[:-1], got.cases, got.covered) == (expected.tiles[:-1], expected.cases, expected.covered)


def test_coverage_is_what_the_store_sums_up() -> None:
    store = FakeStore()
    run = mismatch_run(store)
    for table in pairs_of(store, run):
        cover = table.coverage
        totals = {
            "chunks": cover.chunks,
            **{str(state): cover.states.get(state, 0) for state in ChunkState},
            "rows_source": cover.rows_source,
            "rows_target": cover.rows_target,
            "unread_source": cover.unread_source,
            "unread_target": cover.unread_target,
        }
        assert totals == store.chunk_totals(run, table.result.pair)
