"""Whether a capture shows the load: where it does not, its rates are bounds from below, and nothing of it may pass."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.guards.capacity_judge import shown_seconds
from migverify.guards.hotspots_model import HotspotLimits
from migverify.guards.hotspots_read import HotspotFacts
from migverify.guards.model import AnswerState, CheckResult, unknown
from migverify.load import MOST_REJECTED, CaptureLoad


def capture(facts: HotspotFacts) -> Iterator[CheckResult]:
    """Judge whether the capture shows the load."""
    load = facts.load
    if load is None:
        yield unknown("no capture: rates, small tables, keys and transactions are not known", "Give --capture DIR.")
        return
    span = shown_seconds(load.seconds) + (" or less" if load.seconds <= 1 else "")
    value, todo, state = [f"{load.statements:,} statements in {span}"], [], AnswerState.PASS
    for part, reason, remedy in _findings(load, facts.limits):
        value.append(reason)
        todo += [remedy] if remedy else []
        state = part if state is not AnswerState.INCONCLUSIVE else state
    yield CheckResult(state, "; ".join(value), " ".join(todo), numbers={
        "statements": float(load.statements), "seconds": load.seconds, "rejected_share": load.rejected_share,
        "elsewhere": float(load.elsewhere.count),
    })  # fmt: skip


def _findings(load: CaptureLoad, limits: HotspotLimits) -> Iterator[tuple[AnswerState, str, str]]:
    """Yield what keeps the capture from showing the load, those that make it INCONCLUSIVE first, with the remedy."""
    doubt = AnswerState.INCONCLUSIVE
    if load.rejected_share > MOST_REJECTED:
        yield (doubt, f"{load.rejected_share:.2%} of its bytes could not be read, {MOST_REJECTED:.0%} may be",
               "`migverify workload capture --quality DIR` names what was rejected and why. Capture again, by the right"
               " --format and from whole files.")  # fmt: skip
    if not load.statements:
        yield (doubt, "it holds no statement",
               "Capture again, from a log of the busiest hour that has statements.")  # fmt: skip
    elif load.statements < limits.least_statements or load.seconds < limits.sustained:
        yield (doubt, f"rates need {limits.sustained:.0f} s and {limits.least_statements} statements at least",
               "Capture a longer time, best the busiest hour.")  # fmt: skip
    if load.elsewhere.peak >= limits.warn:
        yield doubt, f"up to {load.elsewhere.peak:,.0f} rows/s are written to tables that no text tells", ""
    if load.masked:
        yield doubt, "its literals are masked: keys are not known", ""
    if "slow" in load.formats:
        yield AnswerState.WARN, "a slow log holds only what took longer than long_query_time", ""
