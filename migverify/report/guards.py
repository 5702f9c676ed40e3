"""The report of a run of guards: the last answer to each question, what fails first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from migverify.figures import duration
from migverify.guards.keep import answers, body, guards_of
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.text import answer_lines, guard_metrics, guard_steps, results_as_json
from migverify.model import RunInfo, Verdict
from migverify.report.model import (
    Audience,
    Block,
    Fact,
    JUnitCase,
    Lines,
    Report,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
    Tile,
    tone_of,
)
from migverify.report.run_facts import run_facts
from migverify.store.results import ResultStore

_SENTENCES = {
    Verdict.MATCH: "Every guard passes.",
    Verdict.MISMATCH: "A guard fails: a setting, schema, id or monitor is not as required.",
    Verdict.INCONCLUSIVE: "A guard has no result: treat it as failing until it has one.",
}
_ORDER = (AnswerState.FAIL, AnswerState.INCONCLUSIVE, AnswerState.WARN, AnswerState.PASS)
_TONES = {
    AnswerState.FAIL: "mismatch", AnswerState.INCONCLUSIVE: "inconclusive", AnswerState.WARN: "inconclusive",
    AnswerState.PASS: "match",
}  # fmt: skip
_VERDICTS = {AnswerState.FAIL: Verdict.MISMATCH, AnswerState.INCONCLUSIVE: Verdict.INCONCLUSIVE}
_COLUMNS = tuple(map(TableColumn, ("State", "Question", "Of", "Value", "Required", "Why, and what to do")))


def read_guard_report(store: ResultStore, info: RunInfo) -> Report:
    """Read a run of guards; one without an end, or with a guard that never answered, is not MATCH.

    Raises
    ------
    StoreError
        The store cannot be read.
    """
    results = tuple(_result(store, info.run_id, guard) for guard in guards_of(info))
    verdict = Verdict.worst([result.verdict for result in results])
    reasons = [reason for result in results for reason in result.reasons]
    cases = [case for result in results for case in _cases(result)]
    if info.finished is None:
        verdict = Verdict.worst([verdict, Verdict.INCONCLUSIVE])
        reasons.insert(0, "the run has no end: it was cut off or still goes on")
        cases.append(JUnitCase("the run", f"run {info.run_id}", Verdict.INCONCLUSIVE, (reasons[0],)))
    facts = run_facts(info, (), 0)
    states = [answer.state for result in results for answer in result.answers]
    counts = [(state, states.count(state)) for state in _ORDER]
    headline = ", ".join(f"{n:,} {state.value}" for state, n in counts if n) or "no answers"
    # Its verdict is that of its answers, not of results in the store: there are none.
    facts = replace(facts, verdict=verdict)
    document = {
        "run_id": info.run_id, "kind": "guards", "verdict": verdict.value, "exit_code": int(facts.exit_code),
        "reasons": reasons,
        "command": facts.command, "started": info.started, "finished": info.finished,
        "endpoints": {endpoint.name: {f.name: f.value for f in endpoint.facts}.get("address", "")
                      for endpoint in facts.endpoints},
        "guards": results_as_json(results, info.run_id)["guards"],
    }  # fmt: skip
    return Report(
        info.run_id, f"guards {info.run_id}", verdict, _SENTENCES[verdict], f"guards {info.run_id} ({headline})",
        tone=tone_of(verdict), reasons=tuple(reasons), started=info.started, seconds=facts.seconds,
        tiles=(*(Tile(f"{n:,}", state.value, _TONES[state] if n else "none") for state, n in counts),
               Tile(duration(facts.seconds), "time")),
        cards=facts.cards(), sections=tuple(_section(result) for result in results),
        cases=tuple(cases), metrics=tuple(guard_metrics(results, info.finished or info.started)), document=document,
        next_steps=guard_steps(verdict, info.run_id),
    )  # fmt: skip


def _result(store: ResultStore, run_id: str, guard: str) -> GuardResult:
    stored = body(store, run_id, guard)
    if stored is None:
        return GuardResult(guard, (), 0.0, 0.0, (f"{guard} was not asked: the run did not get so far",))
    return GuardResult(
        guard, tuple(answers(store, run_id, guard)), float(stored["started"]), float(stored["seconds"]),
        tuple(str(reason) for reason in stored["unasked"]), stored.get("facts") or {},
    )  # fmt: skip


def _section(result: GuardResult) -> Section:
    blocks: list[Block] = []
    if result.answers:
        listed = sorted(result.answers, key=lambda answer: _ORDER.index(answer.state))
        blocks.append(Lines(tuple(answer_lines(listed, passed=True)), shown=Audience.TEXT))
        blocks.append(Table(_COLUMNS, tuple(map(_row, listed)), style="answered", shown=Audience.PAGE))
    blocks.append(Lines(result.unasked, "not asked", style="reasons"))
    title = f"{result.guard}: {result.state.value}"
    return Section(title, tuple(blocks), id=f"guard-{result.guard}", summary=f"{result.seconds:.1f} s")


def _row(answer: GuardAnswer) -> Row:
    why = "" if answer.state is AnswerState.PASS else " ".join(filter(None, (answer.why, answer.todo)))
    asked = Fact("Asked", answer.query) if answer.query else None
    return (
        TableCell(answer.state.value, _TONES[answer.state]), answer.name, answer.subject, answer.value,
        answer.threshold, TableCell(why, folded=asked),
    )  # fmt: skip


def _cases(result: GuardResult) -> Iterator[JUnitCase]:
    for answer in result.answers:
        lines = _lines(answer.value, f"required: {answer.threshold}", answer.why, answer.todo)
        verdict = _VERDICTS.get(answer.state, Verdict.MATCH)
        yield JUnitCase(f"guard.{result.guard}.{answer.name}", answer.subject, verdict, lines)
    for reason in result.unasked:
        yield JUnitCase(f"guard.{result.guard}", "not asked", Verdict.INCONCLUSIVE, (reason,))


def _lines(*lines: str) -> tuple[str, ...]:
    return tuple(filter(None, lines))
