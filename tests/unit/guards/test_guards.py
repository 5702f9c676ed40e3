"""Guards: nothing passes by default, what was not asked is inconclusive, changes are told, answers are kept."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from migverify.cli.main import run
from migverify.errors import EndpointError, UsageError
from migverify.exposition import page
from migverify.guards.keep import GuardRecorder, answers, begin, body, earlier, guards_of
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.text import change_line, guard_metrics, result_lines, results_as_json, status_as_json
from migverify.guards.watch import GuardsStatus, GuardsWatch, ask
from migverify.model import Verdict
from migverify.report.model import ReportOptions
from migverify.report.read import read_report
from migverify.report.render import Format, render
from migverify.store.open import open_store


def answer(
    state: AnswerState = AnswerState.PASS, *, name: str = "binlog_format", subject: str = "source", value: str = "ROW"
) -> GuardAnswer:
    todo = "" if state is AnswerState.PASS else "SET GLOBAL binlog_format = ROW"
    return GuardAnswer("check", name, subject, state, value, "ROW", "SELECT @@binlog_format",
        "Rows tell what was written.",
                  todo, 100.0, 0.0, {"days": 1.5})  # fmt: skip


def result(*given: GuardAnswer, unasked: Sequence[str] = ()) -> GuardResult:
    return GuardResult("check", given, 0.0, 0.0, tuple(unasked))


@dataclass
class Given:
    """A guard whose answers are given, one asking after the other; the last one stays."""

    turns: list[GuardResult | Exception]
    name: str = "check"
    asked: int = 0

    def ask(self) -> GuardResult:
        turn = self.turns[min(self.asked, len(self.turns) - 1)]
        self.asked += 1
        if isinstance(turn, Exception):
            raise turn
        return turn


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        ((), Verdict.INCONCLUSIVE),
        ((AnswerState.PASS,), Verdict.MATCH),
        ((AnswerState.PASS, AnswerState.WARN), Verdict.MATCH),
        ((AnswerState.PASS, AnswerState.INCONCLUSIVE), Verdict.INCONCLUSIVE),
        ((AnswerState.FAIL, AnswerState.INCONCLUSIVE, AnswerState.PASS), Verdict.MISMATCH),
    ],
)
def test_the_worst_answer_decides(states: tuple[AnswerState, ...], verdict: Verdict) -> None:
    given = result(*(answer(state, name=f"n{n}") for n, state in enumerate(states)))
    assert given.verdict is verdict
    assert bool(given.reasons) == (verdict is not Verdict.MATCH)


def test_what_was_not_asked_is_no_pass() -> None:
    given = result(answer(), unasked=["target: no answer"])
    assert given.verdict is Verdict.INCONCLUSIVE
    assert given.reasons == ("target: no answer",)


def test_a_guard_that_cannot_be_asked_is_inconclusive_and_others_answer() -> None:
    broken = Given([EndpointError("target: nothing answers", hint="Start it.")], "ids")
    results = ask([broken, Given([result(answer())])])
    assert [r.verdict for r in results] == [Verdict.INCONCLUSIVE, Verdict.MATCH]
    assert results[0].unasked == ("ids could not be asked: target: nothing answers. Start it.",)


def test_a_wrong_configuration_is_an_error() -> None:
    with pytest.raises(UsageError):
        ask([Given([UsageError("no such table")])])


@dataclass
class Clock:
    at: float = 0.0
    waited: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.at += seconds


def run_watch(turns: list[GuardResult | Exception]) -> list[GuardsStatus]:
    clock = Clock()
    seen: list[GuardsStatus] = []
    watch = GuardsWatch([Given(turns)], 30.0, seen.append, now=clock.now, turns=len(turns))
    last = watch.run(wait=clock.wait)
    assert last is seen[-1]
    assert clock.waited == [30.0] * (len(turns) - 1)
    return seen


def test_a_watch_tells_what_changes() -> None:
    seen = run_watch([
        result(answer(), answer(name="gtid_mode", value="ON")),
        result(answer(AnswerState.FAIL, value="MIXED"), answer(name="gtid_mode", value="ON")),
        result(answer(), answer(name="new", value="1")),
    ])  # fmt: skip
    assert [status.verdict for status in seen] == [Verdict.MATCH, Verdict.MISMATCH, Verdict.MATCH]
    assert [change_line(c) for c in seen[0].changes] == []
    assert [change_line(c) for c in seen[1].changes] == ["check: pass -> fail  binlog_format  source: MIXED"]
    assert {change_line(c) for c in seen[2].changes} == {
        "check: fail -> pass  binlog_format  source: ROW", "check: new -> pass  new  source: 1",
        "check: pass -> gone  gtid_mode  source",
    }  # fmt: skip


def test_a_server_that_goes_away_changes_every_answer() -> None:
    seen = run_watch([result(answer()), EndpointError("gone"), result(answer())])
    assert [status.verdict for status in seen] == [Verdict.MATCH, Verdict.INCONCLUSIVE, Verdict.MATCH]
    assert [c.after for c in seen[1].changes] == [None]


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[GuardRecorder]:
    with closing(open_store(f"sqlite:///{tmp_path}/s.db")) as store:
        yield GuardRecorder(store, begin(store, "migverify check", ["check"], {"endpoints": {}}))


def test_the_store_keeps_the_last_of_every_answer(kept: GuardRecorder) -> None:
    first = result(answer(), answer(name="gtid_mode", value="ON"))
    second = result(answer(AnswerState.FAIL, value="MIXED"), unasked=["why"])
    assert len(kept.add(first)) == 2
    assert kept.add(first) == []
    assert [a.value for a in kept.add(second)] == ["MIXED"]
    assert kept.finish([second]) is Verdict.MISMATCH
    store = kept._store
    assert list(answers(store, kept.run_id, "check")) == [second.answers[0]]
    held = body(store, kept.run_id, "check")
    assert held is not None
    assert (held["state"], held["unasked"]) == ("fail", ["why"])
    info = store.load_run(kept.run_id)
    assert guards_of(info) == ["check"]
    assert info.verdict is Verdict.MISMATCH
    assert [run.run_id for run in earlier(store, "check", {})] == [kept.run_id]
    assert list(earlier(store, "ids", {})) == []
    assert list(earlier(store, "check", {"source": "db1:3306"})) == [], "another service may share the store"


def test_many_answers_are_paged(kept: GuardRecorder) -> None:
    many = result(*(answer(name=f"n{n}") for n in range(2500)))
    kept.add(many)
    assert len(list(answers(kept._store, kept.run_id, "check"))) == 2500


def test_lines_name_what_to_do() -> None:
    lines = list(result_lines(result(answer(AnswerState.FAIL, value="MIXED"), answer(name="ok"))))
    assert lines[0].startswith("check: fail (1 fail, 1 pass;")
    assert any("SET GLOBAL binlog_format = ROW" in line for line in lines)
    assert any("SELECT @@binlog_format" in line for line in lines)
    assert not any("ok" in line for line in lines[1:])
    assert any(" ok " in line for line in result_lines(result(answer(name="ok")), passed=True))


def test_json_and_metrics() -> None:
    given = result(answer(AnswerState.WARN))
    document = json.loads(json.dumps(results_as_json([given], "run-1")))
    assert document["verdict"] == "MATCH"
    assert document["guards"][0]["answers"][0]["state"] == "warn"
    text = page(guard_metrics([given], 5.0))
    assert 'migverify_guard_answer{guard="check",name="binlog_format",subject="source"} 2' in text
    assert 'migverify_guard_number{guard="check",name="binlog_format",subject="source",number="days"} 1.5' in text
    assert status_as_json(GuardsStatus(1.0, 2, (given,), ()), "run-1")["changes"] == []


@pytest.mark.parametrize("form", list(Format))
def test_a_run_can_be_shown(kept: GuardRecorder, form: Format) -> None:
    given = result(
        answer(AnswerState.FAIL, value="MIXED <b>"), answer(name="gtid_mode", value="ON"), unasked=["target: gone"]
    )
    kept.add(given)
    kept.finish([given])
    data = read_report(kept._store, kept.run_id, ReportOptions())
    assert (data.verdict, data.exit_code) == (Verdict.MISMATCH, 1)
    text = render(data, form)
    assert "MIXED" in text or form is Format.PROMETHEUS
    assert "<b>MIXED" not in text
    if form is Format.JUNIT:
        assert 'tests="3" failures="1" errors="1"' in text
    if form is Format.JSON:
        assert json.loads(text)["guards"][0]["unasked"] == ["target: gone"]


def test_a_run_that_was_cut_off_is_never_a_pass(kept: GuardRecorder) -> None:
    nothing = read_report(kept._store, kept.run_id, ReportOptions())
    assert nothing.verdict is Verdict.INCONCLUSIVE
    kept.add(result(answer()))
    cut = read_report(kept._store, kept.run_id, ReportOptions())
    assert cut.verdict is Verdict.INCONCLUSIVE
    assert "no end" in cut.reasons[0]
    assert 'errors="1"' in render(cut, Format.JUNIT)
    kept.finish([result(answer())])
    assert read_report(kept._store, kept.run_id, ReportOptions()).verdict is Verdict.MATCH


GUARDS = ("settings", "schema", "ids", "monitors", "capacity", "hotspots", "plans")


@pytest.mark.parametrize("guard", GUARDS)
@pytest.mark.parametrize(("text", "is_period"), [
    ("5", True), ("1.5", True), ("90s", True), ("1h30m", True), ("T", False), ("soon", False), ("500ms", False),
    ("0", False), ("-5s", False), ("nan", False), ("1e3", False), ("2 weeks", False),
])  # fmt: skip
def test_every_guard_reads_periods_in_one_way(
    guard: str, text: str, is_period: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "migverify.yaml")
    needed = ["--capture", "peak"] if guard == "plans" else []
    assert run(["guard", guard, "--watch", f"--every={text}", "--config", missing, *needed]) == 2
    said = capsys.readouterr().err
    assert ("--every" in said) is not is_period
    assert (missing in said.replace("\n", "")) is is_period
