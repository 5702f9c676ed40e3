"""Answers of guards as text, as JSON and in the Prometheus text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from migverify.exposition import VERDICTS, Metric, number
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult, worst
from migverify.guards.watch import AnswerChange, GuardsStatus
from migverify.model import NextStep, Verdict

_ORDER = (AnswerState.FAIL, AnswerState.INCONCLUSIVE, AnswerState.WARN, AnswerState.PASS)


def result_lines(result: GuardResult, *, passed: bool = False) -> Iterator[str]:
    """Yield the lines of one guard, the failures first. ``passed`` lists what passes too."""
    yield headline(result)
    yield from answer_lines(result.answers, passed=passed)
    yield from unasked_lines(result)


def unasked_lines(result: GuardResult) -> Iterator[str]:
    """Yield a line for everything that was not asked."""
    for reason in result.unasked:
        yield f"  {AnswerState.INCONCLUSIVE.value:<12} {reason}"


def headline(result: GuardResult) -> str:
    """Return the state of a guard and how many of its answers have which."""
    counts = Counter(answer.state for answer in result.answers)
    reported = ", ".join(f"{counts[state]} {state.value}" for state in _ORDER if counts[state]) or "no answers"
    return f"{result.guard}: {result.state.value} ({reported}; {result.seconds:.1f} s)"


def answer_lines(answers: Sequence[GuardAnswer], *, passed: bool = False) -> Iterator[str]:
    """Yield the lines of answers, the failures first. ``passed`` lists what passes too."""
    width = max((len(a.name) for a in answers if passed or a.state is not AnswerState.PASS), default=0)
    for state in _ORDER:
        for answer in answers:
            if answer.state is state and (passed or state is not AnswerState.PASS):
                yield from _answer(answer, width)


def _answer(answer: GuardAnswer, width: int) -> Iterator[str]:
    yield f"  {answer.state.value:<12} {answer.name:<{width}}  {answer.subject}: {answer.value}"
    if answer.state is AnswerState.PASS:
        return
    for word, text in (("wanted", answer.threshold), ("why", answer.why), ("do", answer.todo), ("asked", answer.query)):
        if text:
            first, *rest = text.splitlines()
            yield f"               {word:<7} {first}"
            yield from (f"                       {line}" for line in rest)


def change_line(change: AnswerChange) -> str:
    """Return one line for a change."""
    before = "new" if change.before is None else change.before.value
    after = "gone" if change.after is None else change.after.value
    value = "" if change.answer is None else f": {change.answer.value}"
    return f"{change.guard}: {before} -> {after}  {change.name}  {change.subject}{value}"


def results_as_json(results: Sequence[GuardResult], run_id: str) -> dict[str, Any]:
    """Return what ``--json`` prints of one asking."""
    return {
        "run": run_id, "verdict": worst(results).value,
        "guards": [
            {
                "guard": r.guard, "state": r.state.value, "started": r.started, "seconds": round(r.seconds, 3),
                "unasked": list(r.unasked), "facts": dict(r.facts), "answers": [a.as_json() for a in r.answers],
            }
            for r in results
        ],
    }  # fmt: skip


def status_as_json(status: GuardsStatus, run_id: str) -> dict[str, Any]:
    """Return one line of ``--watch --json``: verdict, states and what changed; the first turn has every answer."""
    if status.turn == 1:
        return {"at": status.at, "turn": 1, **results_as_json(status.results, run_id)}
    return {
        "at": status.at, "turn": status.turn, "run": run_id, "verdict": status.verdict.value,
        "guards": [{"guard": r.guard, "state": r.state.value, "unasked": list(r.unasked)} for r in status.results],
        "changes": [
            {
                "guard": c.guard, "subject": c.subject, "name": c.name,
                "before": None if c.before is None else c.before.value,
                "after": None if c.after is None else c.after.value,
                "answer": None if c.answer is None else c.answer.as_json(),
            }
            for c in status.changes
        ],
    }  # fmt: skip


def guard_steps(verdict: Verdict, run_id: str) -> tuple[NextStep, ...]:
    """Return the command that a run of guards with this verdict asks for."""
    if verdict is Verdict.MATCH:
        return ()
    return (NextStep(f"migverify report {run_id} -o guards.html", "every answer, why it matters and what to do"),)


_STATES = {AnswerState.PASS: "0", AnswerState.FAIL: "1", AnswerState.WARN: "2", AnswerState.INCONCLUSIVE: "3"}


def guard_metrics(results: Sequence[GuardResult], at: float) -> Iterator[Metric]:
    """Yield gauges: states as 0 pass, 1 fail, 2 warn, 3 inconclusive; numbers by name. ``at``: time of the page."""
    answers = [answer for result in results for answer in result.answers]
    yield Metric("migverify_guard_verdict", "0 pass, 1 fail, 3 inconclusive.",
                 [({"guard": r.guard}, VERDICTS[r.verdict]) for r in results])  # fmt: skip
    yield Metric("migverify_guard_answer", "0 pass, 1 fail, 2 warn, 3 inconclusive.",
                 [(_labels(a), _STATES[a.state]) for a in answers])  # fmt: skip
    yield Metric("migverify_guard_number", "A number that an answer rests on.", [
        ({**_labels(a), "number": name}, number(value)) for a in answers for name, value in a.numbers.items()
    ])  # fmt: skip
    yield Metric("migverify_guard_unasked", "Questions that could not be put.",
                 [({"guard": r.guard}, str(len(r.unasked))) for r in results])  # fmt: skip
    yield Metric("migverify_guard_seconds", "How long the asking took.",
                 [({"guard": r.guard}, number(round(r.seconds, 3))) for r in results])  # fmt: skip
    yield Metric("migverify_guard_asked_timestamp_seconds", "Unix time of the last asking: alert when it is old.",
                 [({"guard": r.guard}, f"{r.started:.3f}") for r in results])  # fmt: skip
    yield Metric("migverify_guard_time_seconds", "Unix time of this page.", [({}, f"{at:.3f}")])


def _labels(answer: GuardAnswer) -> dict[str, str]:
    return {"guard": answer.guard, "name": answer.name, "subject": answer.subject}
