"""Whether a capture shows the load: where it does not, its rates are bounds from below, and nothing of it may pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migverify.config import is_system_database
from migverify.guards.capacity_judge import shown_seconds
from migverify.guards.hotspots_model import HotspotLimits
from migverify.guards.hotspots_read import HotspotFacts
from migverify.guards.model import AnswerState, CheckResult, listed, unknown
from migverify.load import MOST_REJECTED, CaptureLoad

MOST_OUTSIDE = 0.5
"""Share of the statements that write that may be to tables out of scope: beyond it, the capture is of another load."""
_MOST_NAMED = 5


def capture(facts: HotspotFacts) -> Iterator[CheckResult]:
    """Judge whether the capture shows the load."""
    load = facts.load
    if load is None:
        yield unknown("no capture: rates, small tables, keys and transactions are not known", "Give --capture DIR.")
        return
    span = shown_seconds(load.seconds) + (" or less" if load.seconds <= 1 else "")
    value, todo, state = [f"{load.statements:,} statements in {span}"], [], AnswerState.PASS
    outside = sum(count for _, count in facts.out_of_scope)
    for part, reason, remedy in (*_findings(load, facts.limits), *_outside(load, facts.out_of_scope)):
        value.append(reason)
        todo += [remedy] if remedy else []
        state = part if state is not AnswerState.INCONCLUSIVE else state  # one that is INCONCLUSIVE decides
    yield CheckResult(state, "; ".join(value), " ".join(todo), numbers={
        "statements": float(load.statements), "seconds": load.seconds, "rejected_share": load.rejected_share,
        "elsewhere": float(outside + load.unnamed), "out_of_scope": float(outside),
    })  # fmt: skip


def _findings(load: CaptureLoad, limits: HotspotLimits) -> Iterator[tuple[AnswerState, str, str]]:
    """Yield what keeps the capture from showing the load, and the remedy."""
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


def _outside(load: CaptureLoad, tables: Sequence[tuple[str, int]]) -> Iterator[tuple[AnswerState, str, str]]:
    """Yield that statements write to tables that nothing judges: INCONCLUSIVE where most of them do."""
    outside = sum(count for _, count in tables)
    if not outside:
        return
    written = sum(one.written for name, one in load.tables.items() if not is_system_database(name.partition(".")[0]))
    names = listed([f"{name} ({count:,})" for name, count in tables], _MOST_NAMED)
    yield (
        AnswerState.INCONCLUSIVE if outside > written * MOST_OUTSIDE else AnswerState.WARN,
        f"{outside:,} of {written:,} statements that write ({outside / written:.0%}) are outside of tables.include:"
        f" {names}",
        "Where one of these tables is migrated, add it to tables.include; else capture the migrated databases only.",
    )
