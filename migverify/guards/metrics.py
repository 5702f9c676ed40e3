"""The answers of guards in the Prometheus text format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migverify.exposition import VERDICTS, Metric, number, page
from migverify.guards.model import Answer, GuardResult, State

_STATES = {State.PASS: "0", State.FAIL: "1", State.WARN: "2", State.INCONCLUSIVE: "3"}


def prometheus_text(results: Sequence[GuardResult], at: float) -> str:
    """Return gauges: states as 0 pass, 1 fail, 2 warn, 3 inconclusive; numbers by name."""
    return page(_metrics(results, at))


def _metrics(results: Sequence[GuardResult], at: float) -> Iterator[Metric]:
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
    yield Metric("migverify_guard_asked_timestamp_seconds", "Unix time of the last asking: alert when it stands still.",
                 [({"guard": r.guard}, f"{r.started:.3f}") for r in results])  # fmt: skip
    yield Metric("migverify_guard_time_seconds", "Unix time of this page.", [({}, f"{at:.3f}")])


def _labels(answer: Answer) -> dict[str, str]:
    return {"guard": answer.guard, "name": answer.name, "subject": answer.subject}
