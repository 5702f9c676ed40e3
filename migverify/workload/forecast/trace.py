"""Reads what a replay measured of each call from its run file.

A call may begin when it is due and the call before it in its session has its answer from the target. What it begins
later than that is the replay's own delay: its processes, its connections, or a source that is slower than the target;
so is the time in which the replay stood still while it waited for an answer.
Where that is long, the target was asked under another load than intended, and nothing is known of it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass

from migverify.workload.forecast.model import CallTrace
from migverify.workload.replay.pace import Pace, PaceKind
from migverify.workload.replay.run import ReplayResult
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.timing import asked_calls

_LOADING = frozenset({"read", "write", "ddl", "administrative", "unknown"})
_MOST_MISSING = 0.01
"""Share of calls that may be missing from a load that still counts as the captured one."""


@dataclass(frozen=True, slots=True)
class _TimedCall:
    """One answer of the target; times are microseconds."""

    digest: str
    arrival: int
    begin: int
    service: int
    latency: int
    own: int
    alone: int
    failed: bool


def read_trace(run: RunFile, pace: Pace, result: ReplayResult) -> CallTrace:
    """Return the calls of a replay that got to its end, with why they prove nothing, if they do not.

    Raises PlanError: the run file is damaged.
    """
    columns: tuple[array[int], ...] = tuple(array("q") for _ in range(7))
    places: dict[str, int] = {}
    failed = 0
    for call in _timed_calls(run, pace):
        place = places.setdefault(call.digest, len(places))
        row = (call.arrival, call.begin, call.service, call.latency, place, call.own, call.alone)
        for column, value in zip(columns, row, strict=True):
            column.append(value)
        failed += call.failed
    order = sorted(range(len(columns[1])), key=columns[1].__getitem__)
    arrivals, begins, services, latencies, digests, own, alone = (
        array("q", (column[at] for at in order)) for column in columns
    )  # fmt: skip
    multiple = pace.factor if pace.kind is PaceKind.TIMED else None
    problems = tuple(_problems(run, result, pace, len(begins), failed))
    return CallTrace(
        multiple, arrivals, begins, services, latencies, digests, own, tuple(places), problems, alone
    )  # fmt: skip


def _timed_calls(run: RunFile, pace: Pace) -> Iterator[_TimedCall]:
    """Yield the calls that the target answered, session by session.

    A call that had to wait for one of another session has no delay of the replay's own before it begins.
    """
    session, free, free_alone = -1, 0, 0
    for call in asked_calls(run, pace):
        judged, intended, begin, waits = call.outcome, call.intended, call.begin, call.waits
        if call.session != session:
            session, free, free_alone = call.session, 0, 0
        if judged.target_service is None or judged.target_latency is None:
            continue
        stalled = min(int(judged.details.get("stalled", "0")), judged.target_service)
        own = (0 if waits else max(0, begin - max(intended, free))) + stalled
        free = begin + judged.target_service
        free_alone = (begin if waits else max(intended, free_alone)) + judged.target_service - stalled
        alone = min(free_alone - intended, judged.target_latency) if pace.open_loop else judged.target_latency
        failed = judged.details.get("target_errno", "0") != "0" and not judged.captured_error
        yield _TimedCall(
            judged.digest, max(0, call.arrival), begin, judged.target_service, judged.target_latency, own, alone, failed
        )


def _problems(run: RunFile, result: ReplayResult, pace: Pace, calls: int, failed: int) -> Iterator[str]:
    """Yield why the calls of a replay do not show the captured load."""
    plan = result.plan
    if pace.kind is not PaceKind.TIMED:
        yield f"at pace {pace} the target was not asked at the captured pace: replay with --pace real"
    if result.unfinished:
        yield f"{result.unfinished[0]}: replay to the end"
    elif result.attempts > 1:
        yield "the run was resumed, so its load stood still in between: replay without a stop"
    if plan.untimed > _MOST_MISSING * plan.calls:
        yield f"{plan.untimed:,} of {plan.calls:,} calls have no time in the capture: capture with times"
    selection = plan.choices.get("selection", {})
    if any(selection.get(name) for name in ("sessions", "users", "digests")):
        yield "only some sessions, users or digests were asked: replay without --session, --user and --digest"
    skipped, loading = _unasked(run)
    if skipped > _MOST_MISSING * loading:
        yield (
            f"{skipped:,} of {loading:,} captured statements were not asked, so the load was lighter than captured:"
            " replay with --writes on marked clones, or capture what is missing"
        )
    if failed > _MOST_MISSING * calls:
        yield f"the target refused {failed:,} of {calls:,} calls, and an error is no work: fix these first"


def _unasked(run: RunFile) -> tuple[int, int]:
    """Return how many statements that load a server were not asked, and how many there are."""
    loading = [place for place, meaning in enumerate(run.meanings) if meaning.classification.kind.value in _LOADING]
    marks = ",".join("?" * len(loading))
    row = run.db.execute(
        f"SELECT COALESCE(SUM(skipped <> 0), 0), COUNT(*) FROM calls WHERE meaning IN ({marks})",  # noqa: S608
        loading,
    ).fetchone()
    return int(row[0]), int(row[1])
