"""A run of guards as frozen data, and in every form that a report can take."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from migverify.errors import ExitCode
from migverify.guards.keep import answers, body, guards_of
from migverify.guards.metrics import prometheus_text
from migverify.guards.model import GuardResult, State
from migverify.guards.text import result_lines, results_as_json
from migverify.model import RunInfo, Verdict
from migverify.report.html import asset, environment, policy
from migverify.report.junit import document, element, problem
from migverify.report.summary import EXIT_CODES, redact
from migverify.store.base import ResultStore

_SENTENCES = {
    Verdict.MATCH: "Every guard passes.",
    Verdict.MISMATCH: "A guard fails: what it guards is not as it has to be.",
    Verdict.INCONCLUSIVE: "A guard could not tell: treat it as failing until it can.",
}
_SYMBOLS = {Verdict.MATCH: "✓", Verdict.MISMATCH: "✗", Verdict.INCONCLUSIVE: "?"}
_ORDER = (State.FAIL, State.INCONCLUSIVE, State.WARN, State.PASS)
_CSS = {State.FAIL: "mismatch", State.INCONCLUSIVE: "inconclusive", State.WARN: "inconclusive", State.PASS: "match"}
_CELL = {State.FAIL: "bad", State.INCONCLUSIVE: "unknown", State.WARN: "unknown", State.PASS: "t"}


@dataclass(frozen=True, slots=True)
class GuardReport:
    """One run of guards: the last answer to each question. ``seconds`` None: its end is not known."""

    run_id: str
    verdict: Verdict
    exit_code: ExitCode
    reasons: tuple[str, ...]
    command: str
    started: float
    finished: float | None
    seconds: float | None
    endpoints: tuple[tuple[str, str], ...]
    results: tuple[GuardResult, ...]


def read_guard_report(store: ResultStore, info: RunInfo) -> GuardReport:
    """Read a run of guards; one without an end, or with a guard that never answered, is not MATCH.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    results = tuple(_result(store, info.run_id, guard) for guard in guards_of(info))
    held = Verdict.worst([result.verdict for result in results])
    verdict = held
    reasons = [reason for result in results for reason in result.reasons]
    if info.finished is None:
        verdict = Verdict.worst([held, Verdict.INCONCLUSIVE])
        reasons.insert(0, "the run has no end: it was cut off or still goes on")
    named = info.facts.get("endpoints")
    endpoints = tuple(
        (str(name), str(facts.get("address", "")) if isinstance(facts, dict) else str(facts))
        for name, facts in (named.items() if isinstance(named, dict) else ())
    )
    seconds = None if info.finished is None else info.finished - info.started
    return GuardReport(
        info.run_id, verdict, EXIT_CODES[verdict], tuple(reasons), redact(info.command), info.started, info.finished,
        seconds, endpoints, results,
    )  # fmt: skip


def _result(store: ResultStore, run_id: str, guard: str) -> GuardResult:
    told = body(store, run_id, guard)
    if told is None:
        return GuardResult(guard, (), 0.0, 0.0, (f"{guard} was not asked: the run did not get so far",))
    return GuardResult(
        guard, tuple(answers(store, run_id, guard)), float(told["started"]), float(told["seconds"]),
        tuple(str(one) for one in told["unasked"]), told.get("facts") or {},
    )  # fmt: skip


def render_text(data: GuardReport) -> str:
    """Return the report as lines: what is wrong with its reason and its remedy, what passes as well."""
    head = f"{data.verdict}  guards {data.run_id}, {_moment(data.started)}"
    lines = [head, *(f"  reason: {reason}" for reason in data.reasons)]
    for result in data.results:
        lines += ["", *result_lines(result, passed=True)]
    return "\n".join(lines) + "\n"


def render_json(data: GuardReport) -> str:
    """Return one JSON object."""
    document: dict[str, Any] = {
        "run_id": data.run_id, "kind": "guards", "verdict": data.verdict.value, "exit_code": int(data.exit_code),
        "reasons": list(data.reasons), "command": data.command, "started": data.started, "finished": data.finished,
        "endpoints": dict(data.endpoints), "guards": results_as_json(data.results, data.run_id)["guards"],
    }  # fmt: skip
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def render_prometheus(data: GuardReport) -> str:
    """Return gauges; the time of the page is the run's end."""
    return prometheus_text(data.results, data.started if data.finished is None else data.finished)


def render_junit(data: GuardReport) -> str:
    """Return a test case for each answer, and one for what was not asked."""
    cases = list(_cases(data))
    verdicts = [verdict for verdict, _ in cases]
    return document(f"migverify {data.run_id}", [case for _, case in cases], verdicts, data.seconds, (), data.started)


def _cases(data: GuardReport) -> Iterator[tuple[Verdict, str]]:
    verdicts = {State.FAIL: Verdict.MISMATCH, State.INCONCLUSIVE: Verdict.INCONCLUSIVE}
    for result in data.results:
        for answer in result.answers:
            verdict = verdicts.get(answer.state, Verdict.MATCH)
            text = "\n".join(filter(None, (answer.value, f"wanted: {answer.threshold}", answer.why, answer.todo)))
            wrong = "" if verdict is Verdict.MATCH else problem(verdict, text)
            yield verdict, element(f"guard.{result.guard}.{answer.name}", answer.subject, 0.0, wrong)
        for reason in result.unasked:
            told = problem(Verdict.INCONCLUSIVE, reason)
            yield Verdict.INCONCLUSIVE, element(f"guard.{result.guard}", "not asked", 0.0, told)
    if data.finished is None:
        yield Verdict.INCONCLUSIVE, element("the run", f"run {data.run_id}", 0.0,
                                            problem(Verdict.INCONCLUSIVE, data.reasons[0]))  # fmt: skip


def render_html(data: GuardReport) -> str:
    """Return the page: no request leaves it, and it holds no script."""
    style = asset("page.css")
    listed = [
        (result, sorted(result.answers, key=lambda answer: _ORDER.index(answer.state))) for result in data.results
    ]
    return environment().get_template("guards.html.j2").render(
        data=data, listed=listed, style=Markup(style),  # noqa: S704 - our own file, hashed into the policy
        policy=policy(style), sentence=_SENTENCES[data.verdict], symbols=_SYMBOLS, css_of=_CSS, cell_of=_CELL,
        State=State,
        counts=[(state, sum(a.state is state for r in data.results for a in r.answers)) for state in _ORDER],
    )  # fmt: skip


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
