"""A replay in the store and in every form of the report; nightly trends; the statement that an example keeps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.cli.main import run as run_command
from migverify.errors import StoreError, UsageError
from migverify.model import StoredKind, Verdict
from migverify.report.model import Report, ReportOptions
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.report.replay import ReplayFacts, read_replay
from migverify.report.replay_view import WEIGHT_WORDS, replay_report
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.workload.model import Parameter
from migverify.workload.plans.drift import PlanRecord
from migverify.workload.plans.judge import JudgedPlans
from migverify.workload.plans.model import DigestPlans, Harm, PlanFinding
from migverify.workload.plans.store import add_plans, note_not_asked
from migverify.workload.replay.model import Answer, Call, Captured, Judgement, Observation
from migverify.workload.replay.nightly import Capture, Night, captures, nights, pending, record, trend
from migverify.workload.replay.render import example
from migverify.workload.replay.reproduction import call_of
from migverify.workload.replay.store import RULE, read_digests, write_replay
from migverify.workload.replay.tally import Example, ReplayTally
from migverify.workload.replay.verdict import WEIGHTS, MatchRequirements, verdict
from migverify.workload.state import SessionState
from tests.unit.replaying import INT, TEXT, answer, column, failed, judged

SECRET = "ann@example.org"
HOSTILE = "<script>alert(1)</script>\u202e"


def tally_of(*, mask: bool = False, bad: bool = True) -> ReplayTally:
    columns = [column("id", INT), column("name", TEXT)]
    tally = ReplayTally()
    fine = answer(columns, [(b"1", SECRET.encode())])
    for _ in range(20):
        tally.add(judged("SELECT id, name FROM t WHERE id = 1", fine, fine, mask=mask))
    if bad:
        other = answer(columns, [(b"1", HOSTILE.encode())])
        tally.add(judged(f"SELECT id, name FROM t WHERE name = '{SECRET}'", fine, other, mask=mask))
        error = failed(8108, f"Unsupported {SECRET}")
        tally.add(judged("CALL settle('x')", Answer(affected=1), error, mask=mask, captured=Captured(0)))
    return tally


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    with closing(open_store(f"sqlite:///{tmp_path}/store.db")) as opened:
        yield opened


def written(store: ResultStore, tally: ReplayTally, *, capture: str = "", command: str = "workload replay c") -> str:
    found = verdict(tally, requirements=MatchRequirements(digests_share=0, judged_share=0))
    run = store.start_run(
        command,
        "h",
        {"kind": "replay", "capture": capture},
        {"endpoints": {"source": {"version": "9.7"}}},
        kind=StoredKind.REPLAY,
    )
    level = {"name": "payments", "met": True, "reasons": []}
    write_replay(store, run, tally, found, facts={"slo": [level], "pace": "x2"}, seconds=2.5)
    store.finish_run(run, found.verdict, {"seconds": 2.5, "reasons": list(found.reasons)})
    return run


def report(store: ResultStore, run: str, *, values: bool = False) -> Report:
    return read_report(store, run, ReportOptions(values=values))


def facts(store: ResultStore, run: str, listed: int = 1_000) -> ReplayFacts:
    return read_replay(store, store.load_run(run), ReportOptions(), listed)


def test_a_replay_comes_back_whole(store: ResultStore) -> None:
    tally = tally_of()
    run = written(store, tally)
    found = {one.tally.digest: one.tally.as_json() for one in read_digests(store, run)}
    assert found == {digest: one.as_json() for digest, one in tally.digests.items()}
    data = report(store, run)
    assert (data.verdict, data.exit_code) == (Verdict.MISMATCH, 1)
    assert [one["weight"] for one in data.document["digests"]] == ["blocker", "blocker", "none"]
    assert data.document["weights"]["blocker"] == 2
    assert data.private
    assert store.runs()[0].verdict is Verdict.MISMATCH


def test_a_replay_that_has_no_result_is_inconclusive(store: ResultStore) -> None:
    run = store.start_run("workload replay c", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
    data = report(store, run)
    assert data.verdict is Verdict.INCONCLUSIVE
    assert any("did not get to its result" in reason for reason in data.reasons)
    for form in Format:
        assert render(data, form)


def test_a_run_cannot_claim_more_than_its_replay(store: ResultStore) -> None:
    tally = tally_of()
    run = store.start_run("workload replay c", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
    write_replay(store, run, tally, verdict(tally))
    store.finish_run(run, Verdict.MATCH, {})
    data = report(store, run)
    assert data.verdict is Verdict.INCONCLUSIVE
    assert any("contradicts" in reason for reason in data.reasons)


def test_values_are_withheld_unless_requested(store: ResultStore) -> None:
    run, masked = written(store, tally_of()), written(store, tally_of(mask=True))
    withheld, shown, never = report(store, run), report(store, run, values=True), report(store, masked, values=True)
    for form in Format:
        assert SECRET not in render(withheld, form), form
        assert (SECRET in render(shown, form)) == (form is not Format.PROMETHEUS), form
        assert SECRET not in render(never, form), form


def fine() -> Answer:
    return answer([column("id", INT)], [(b"1",)])


def slower() -> ReplayTally:
    tally = ReplayTally()
    for _ in range(200):
        one = judged("SELECT id FROM t WHERE code = 5", fine(), fine())
        tally.add(replace(one, source_latency=3_000_000, target_latency=3_000_000, source_service=1_000,
                          target_service=90_000))  # fmt: skip
    return tally


def test_slower_for_certain_is_judged_by_what_each_side_took(store: ResultStore) -> None:
    """From the due time both take the same: the source's next call waits for the target's answer, too."""
    run = written(store, slower())
    data = report(store, run)
    text = render(data, Format.TEXT)
    assert "p50 by 8" in text
    assert "service time, source  " in text
    assert "service p99" in text
    (digest,) = data.document["digests"]
    assert digest["latency_quantiles"]["source"]["p50"]["value"] >= 3_000_000
    assert digest["service_quantiles"]["source"]["p50"]["value"] <= 1_024
    assert data.document["service_time"]["target"]["p50"] >= 90_000
    equal = ReplayTally()
    for one in (judged("SELECT id FROM t WHERE code = 5", fine(), fine()) for _ in range(200)):
        equal.add(replace(one, source_latency=1_000, target_latency=90_000, source_service=900, target_service=900))
    assert not verdict(equal).slower


def test_a_run_of_an_earlier_version_has_no_service_times(store: ResultStore) -> None:
    tally = slower()
    run = store.start_run("workload replay c", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
    found = verdict(tally)
    write_replay(store, run, tally, found, facts={"services": {}})
    data = report(store, run)
    assert "service_time" not in data.document
    assert "waits" not in data.document
    for form in Format:
        assert render(data, form)


def test_a_digest_that_is_slower_shows_its_plans_beside(store: ResultStore) -> None:
    """What is found in a plan is no part of the verdict, and holds no value of the capture."""
    run = written(store, slower())
    (digest,) = (one.tally.digest for one in read_digests(store, run))
    before = report(store, run)
    assert "plans" not in before.document["digests"][0]
    scan = PlanFinding(Harm.FULL_SCAN, "t", "the target reads whole table t", "ALTER TABLE t ADD INDEX c (code)")
    lost = PlanFinding(Harm.PUSHDOWN_LOST, "", f"9 rows come to TiDB to be filtered there by f({SECRET})")
    plans = DigestPlans(digest, "SELECT", "shop", ("t",), 200, 1.0)
    doubt = f"no plan of the source: 1064 near {SECRET}"
    add_plans(store, run, JudgedPlans(plans, (scan, lost), (doubt,)), PlanRecord(digest, "8.5.0"))
    note_not_asked(store, run, "target: gone away")
    data, shown = report(store, run), report(store, run, values=True)
    assert (data.verdict, data.exit_code) == (before.verdict, before.exit_code)
    text = render(data, Format.TEXT)
    assert "p50 by" in text
    assert "plan: full scan: the target reads whole table t; pushdown lost: 9 rows come to TiDB" in text
    assert "no plan of the source: 1064" in text
    assert "ALTER TABLE t ADD INDEX c (code)" in render(data, Format.HTML)
    assert "target: gone away" in text
    assert json.loads(render(data, Format.JSON))["digests"][0]["plans"]["findings"][0]["harm"] == "full scan"
    for form in (Format.TEXT, Format.JSON, Format.HTML):
        assert SECRET not in render(data, form)
        assert SECRET in render(shown, form)


def test_a_report_says_how_many_digests_were_explained(store: ResultStore) -> None:
    """That none hurts is said of those that were explained alone."""
    tally = slower()
    tally.add(judged("SELECT id FROM u", fine(), fine()))
    tally.add(judged("SET NAMES utf8mb4", answer([], []), answer([], [])))
    run = written(store, tally)
    slow, other = (next(one.tally.digest for one in read_digests(store, run) if f"FROM `{table}`" in one.tally.text)
                   for table in ("t", "u"))  # fmt: skip

    def keep(digest: str, *found: PlanFinding) -> str:
        plans = DigestPlans(digest, "SELECT", "shop", ("t",), 200, 1.0)
        add_plans(store, run, JudgedPlans(plans, found), PlanRecord(digest, "8.5.0"))
        return render(report(store, run), Format.TEXT)

    text = keep(slow)
    assert "1 of 2 digests were explained; none of these hurts. All: --plans" in text
    assert "No plan hurts or changed" not in text
    scan = PlanFinding(Harm.FULL_SCAN, "u", "the target reads whole table u")
    text = keep(other, scan)
    assert "2 of 2 digests were explained; 1 of these hurt." in text
    assert "All: --plans" not in text


def test_each_form_says_the_verdict_and_names_the_digests(store: ResultStore) -> None:
    data = report(store, written(store, tally_of()), values=True)
    text = render(data, Format.TEXT)
    assert text.startswith("MISMATCH")
    assert "error 8108" in text
    body = json.loads(render(data, Format.JSON))
    assert (body["verdict"], body["exit_code"], len(body["digests"])) == ("MISMATCH", 1, 3)
    assert body["digests"][0]["examples"][0]["target"]
    suite = Xml.fromstring(render(data, Format.JUNIT))  # noqa: S314 - our own
    cases = suite.findall(".//testcase")
    assert len(cases) == 5
    assert [case.get("name") for case in cases][1] == "service level payments"
    assert len(suite.findall(".//failure")) == 3
    prometheus = render(data, Format.PROMETHEUS)
    assert 'migverify_run_verdict{verdict="MISMATCH"} 1' in prometheus
    assert 'migverify_replay_statements{state="different"} 2' in prometheus


def test_the_page_escapes_what_it_shows_and_asks_nobody(store: ResultStore) -> None:
    page = render(report(store, written(store, tally_of()), values=True), Format.HTML)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "script-src &#39;none&#39;" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "Both answers" in page
    assert 'class="latency"' in page


def test_the_command_shows_a_replay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with closing(open_store(url)) as opened:
        run = written(opened, tally_of(bad=False))
    assert run_command(["report", run, "--store", url]) == 0
    assert capsys.readouterr().out.startswith("MATCH")


def test_many_digests_come_page_by_page(store: ResultStore) -> None:
    tally = tally_of()
    fine = judged("SELECT id FROM t", answer([column("id", INT)], [(b"1",)]), answer([column("id", INT)], [(b"1",)]))
    for place in range(520):
        tally.of(f"{place:064x}").add(fine)
    run = written(store, tally)
    assert sum(store.count_findings(run, RULE).values()) == 523
    assert [one.verdict["weight"] for one in read_digests(store, run, limit=3)] == ["blocker", "blocker", "none"]
    assert len(list(read_digests(store, run))) == 523
    data = facts(store, run, listed=10)
    assert (len(data.digests), data.held) == (10, 523)
    assert "513 more" in render(replay_report(data), Format.TEXT)
    assert len(read_report(store, run, ReportOptions(whole=True)).document["digests"]) == 523


def test_a_damaged_digest_is_an_error(store: ResultStore) -> None:
    run = written(store, tally_of())
    store.add_window(run, RULE, {"window": "", "state": "writing"},
                     [{"key": ["x"], "window": "", "kind": "blocker", "tally": {}, "verdict": {}}])  # fmt: skip
    with pytest.raises(StoreError, match="cannot be read"):
        list(read_digests(store, run))


def night(day: str, *failing: str) -> Night:
    return Night(f"run-{day}", f"/c/{day}", day, "MATCH", 10, {one: (f"SELECT {one}", "value") for one in failing})


def test_a_trend_names_what_is_new_and_since_when() -> None:
    first = trend([], night("01", "a"))
    assert [one["since"] for one in first["new"]] == ["01"]
    assert first["first"]
    earlier = [night("01", "a"), night("02", "a", "b"), night("03", "b")]
    found = trend(earlier, night("04", "a", "b", "c"))
    assert {one["digest"]: one["since"] for one in found["failing"]} == {"a": "04", "b": "02", "c": "04"}
    assert [one["digest"] for one in found["new"]] == ["a", "c"]
    assert [one["digest"] for one in trend(earlier, night("04"))["gone"]] == ["b"]
    assert [one["failing"] for one in found["runs"]] == [1, 2, 1, 3]


def summary(place: Path, first: str | None) -> None:
    place.mkdir(parents=True)
    (place / "_summary.json").write_text(json.dumps({"first": first}))


def test_what_was_replayed_is_known_from_the_store(store: ResultStore, tmp_path: Path) -> None:
    folder = tmp_path / "captures"
    summary(folder / "b", "2026-01-01T00:00:00+00:00")
    summary(folder / "a", "2026-01-02T00:00:00+00:00")
    found = captures(folder)
    assert [one.day for one in found] == ["2026-01-01", "2026-01-02"]
    assert pending(found, nights(store, folder)) == found
    run = written(store, tally_of(), capture=str(found[0].path))
    store.start_run(
        "workload replay", "h", {"kind": "replay", "capture": str(found[1].path)}, {}, kind=StoredKind.REPLAY
    )  # cut off
    now, told = record(store, run, found[0], nights(store, folder))
    done = nights(store, folder)
    assert [one.run_id for one in done] == [run]
    assert (now.day, len(told["new"]), done[0].day) == ("2026-01-01", 2, "2026-01-01")
    assert pending(found, done) == found[1:]
    page = render(report(store, run), Format.HTML)
    assert "NEW since 2026-01-01" in page


def test_a_folder_without_captures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no folder"):
        captures(tmp_path / "none")
    with pytest.raises(UsageError, match="no capture"):
        captures(tmp_path)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "_summary.json").write_text("{")
    with pytest.raises(UsageError, match="cannot be read"):
        captures(tmp_path)
    assert Capture(tmp_path, "x").day == "x"


CELLS = st.one_of(st.none(), st.binary(max_size=8))


@given(
    st.binary(min_size=1, max_size=20),
    st.none() | st.lists(st.builds(Parameter, st.sampled_from(["text", "bytes"]), CELLS), max_size=3).map(tuple),
    st.none() | st.integers(0, 2**50), st.sampled_from(["query", "execute"]),
)  # fmt: skip
@settings(max_examples=30)
def test_an_example_keeps_the_statement_that_can_be_asked_again(
    sql: bytes, parameters: tuple[Parameter, ...] | None, clock: int | None, command: str
) -> None:
    state = SessionState(database="d", sql_mode="ANSI", autocommit=False, rest='{"variables": {"a": "1"}}')
    call = Call("s1", 1, sql, "abc", state, clock=clock, parameters=parameters, command=command)
    kept = example(Observation(call), mask=False)
    made = Example("s1", 1, Judgement.DIFFERENT, "", (), kept)
    assert call_of("abc", made) == call
    assert "statement" not in example(Observation(call), mask=True)


def test_weights_are_what_the_report_knows() -> None:
    assert set(WEIGHT_WORDS) == set(WEIGHTS)


@pytest.mark.parametrize(("assumptions", "line"), [
    ({}, "3 statements of sessions that began before the capture were asked"),
    ({"database: given": 2},
     "3 statements of sessions that began before the capture were asked: 2 with database: given"),
])  # fmt: skip
def test_a_list_of_assumptions_is_announced_only_where_there_is_one(
    store: ResultStore, assumptions: dict[str, int], line: str
) -> None:
    data = facts(store, written(store, tally_of(bad=False)))
    made = replace(data, coverage={**data.coverage, "joined": 3, "assumptions": assumptions})
    lines = render(replay_report(made), Format.TEXT).splitlines()
    assert [text for text in lines if text.strip().removeprefix("joined").strip() == line]
