"""The guard of plans: which statement has another plan on the target than in a baseline, and what changed beneath."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from migverify.guards.model import CheckResult, GuardQuestion, GuardResult, answered, failed, passed, unknown, warned

NAME = "plans"
_TEXT = 160
_NEW_BASELINE = "Keep a baseline in which its plan is known: migverify workload plans CAPTURE."


@dataclass(frozen=True, slots=True)
class DigestDrift:
    """What became of the plans of one digest.

    Parameters
    ----------
    digest, text, calls
        The statement, and how often the capture has it.
    plan
        The plans that it has now.
    unknown
        Why that cannot be compared, empty where it can.
    change
        How the plans differ from those of the baseline and since which statistics, schema or version; empty where they
        do not.
    is_worse
        The new plan reads many more rows.
    before, now
        Rows read, as estimated: of the baseline's plans, and of the new ones.
    todo
        What to do where it cannot be compared; empty: what holds for all of these.
    """

    digest: str
    text: str
    calls: int
    plan: str = ""
    unknown: str = ""
    change: str = ""
    is_worse: bool = False
    before: float = 0.0
    now: float = 0.0
    todo: str = ""


@dataclass(frozen=True, slots=True)
class PlanDrifts:
    """The digests of a capture against a baseline: its ``run``, when it was made, and how many digests it holds."""

    run: str
    made: str
    held: int
    version_then: str
    version_now: str
    digests: tuple[DigestDrift, ...] = ()


def baseline(drifts: PlanDrifts) -> Iterator[CheckResult]:
    """Judge whether there is anything to compare with, and whether the version is the same."""
    if not drifts.run:
        yield unknown("no run of `workload plans` is kept")
        return
    value = f"run {drifts.run} of {drifts.made}: {drifts.held:,} digests on {drifts.version_then or 'no known version'}"
    if not drifts.held or not drifts.digests:
        yield unknown(value if drifts.digests else f"{value}; the capture has no statement with a plan")
    elif drifts.version_now != drifts.version_then:
        yield warned(f"{value}; the target is {drifts.version_now} now")
    else:
        yield passed(value)


def plans(drifts: PlanDrifts) -> Iterator[CheckResult]:
    """Judge each digest: another plan is a failure where it reads many more rows, else a warning."""
    for one in sorted(drifts.digests, key=lambda each: (-each.calls, each.digest)):
        text = one.text if len(one.text) <= _TEXT else f"{one.text[:_TEXT]} ..."
        numbers = {"calls": float(one.calls)}
        subject = f"target/{one.digest[:16]}"
        if one.change:
            numbers |= {"rows_before": one.before, "rows_now": one.now}
            make = failed if one.is_worse else warned
            yield make(f"{one.change} [{text}]", subject=subject, numbers=numbers)
        elif one.unknown:
            yield unknown(f"{one.unknown} [{text}]", one.todo or _NEW_BASELINE, subject=subject, numbers=numbers)
        else:
            yield passed(f"{one.plan} [{text}]", subject=subject, numbers=numbers)


QUESTIONS: tuple[GuardQuestion[PlanDrifts], ...] = (
    GuardQuestion(
        "baseline", "plans of an earlier run, of the same version", "SELECT VERSION()",
        "A plan can only be seen to change where it was kept before.",
        "Keep the plans as they are now: migverify workload plans CAPTURE.", baseline, "target",
    ),
    GuardQuestion(
        "plan", "the baseline's, or one that reads no more than ten times the rows", "",
        "A plan that changes between the last drill and the cutover was tried by nobody.",
        "Compare both by EXPLAIN ANALYZE; hold the old one by CREATE GLOBAL BINDING if it is better, else keep the new"
        " one as the baseline: migverify workload plans CAPTURE.", plans,
    ),
)  # fmt: skip


@dataclass(slots=True)
class PlansGuard:
    """Asks the target for the plans of a capture's statements; ``read`` asks, and compares with the baseline."""

    read: Callable[[], PlanDrifts]
    capture: str = "CAPTURE"
    name: str = NAME

    def ask(self) -> GuardResult:
        """Read the plans, and judge; raises EndpointError or ReadError where they cannot be read."""
        started = time.time()
        drifts = self.read()
        answers = tuple(
            replace(one, query=one.query or self._command(one.subject, drifts.run))
            for one in answered(NAME, QUESTIONS, drifts, lambda _: None)
        )
        return GuardResult(NAME, answers, started, time.time() - started)

    def _command(self, subject: str, run: str) -> str:
        return f"migverify workload plans {self.capture} --digest {subject.rpartition('/')[2]} --since {run}"
