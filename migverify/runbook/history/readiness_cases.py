"""Which disaster recovery cases a policy asks for, and which of them passed lately enough. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from migverify.runbook.history.past import PastRun
from migverify.runbook.people import CLOCK_SKEW

__all__ = ["PRIORITIES", "Covered", "case_reasons", "coverage", "required_cases", "why_not"]

PRIORITIES = ("p0", "p1", "p2")
_DAY = 86_400.0


def required_cases(asked: Sequence[str], cases: Mapping[str, str] | None) -> tuple[list[str], list[str]]:
    """Return (ids of cases that are required, why it is not known which). A priority names all cases of it."""
    ids: dict[str, None] = {}
    unknown = []
    for one in asked:
        if one not in PRIORITIES:
            ids[one] = None
            if cases is not None and one not in cases:
                unknown.append(f"{one} is not in the catalogue")
        elif cases is None:
            unknown.append(f"which cases are {one} is not known: there is no catalogue to look in")
        else:
            some = [id_ for id_, priority in sorted(cases.items()) if priority == one]
            ids.update(dict.fromkeys(some))
            if not some:
                unknown.append(f"the catalogue has no case of priority {one}")
    return list(ids), unknown


def case_reasons(
    required: Sequence[str], runs: Iterable[PastRun], now: float, max_age_days: float
) -> tuple[list[str], list[str]]:
    """Return (why cases do not count as passed, the cases that do).

    Runs are in the order of their chain. The last run of a case that is not invalid decides, in production and outside
    of it apart: one that failed there takes an earlier pass away. A pass in production counts only behind one outside
    of production.
    """
    reasons = why_not(required, runs, now, max_age_days)
    bad = [f"{id_}: {why}" for id_, why in reasons.items() if why]
    return bad, [id_ for id_, why in reasons.items() if not why]


def why_not(required: Sequence[str], runs: Iterable[PastRun], now: float, max_age_days: float) -> dict[str, str]:
    """Return for each case why it does not count as passed, by the rules of ``case_reasons``; empty when it does."""
    by_case = _by_case(runs)
    return {id_: _why_not(by_case.get(id_, []), now, max_age_days) for id_ in required}


def _by_case(runs: Iterable[PastRun]) -> dict[str, list[PastRun]]:
    found: dict[str, list[PastRun]] = {}
    for run in runs:
        if run.case is not None:
            found.setdefault(run.runbook, []).append(run)
    return found


def _why_not(runs: list[PastRun], now: float, max_age_days: float) -> str:
    graded = [one for one in runs if one.ended is not None]
    valid = [one for one in graded if one.case is not None and one.case.grade != "invalid"]
    if not valid:
        newest = graded[-1].case if graded else None
        return f"invalid, {newest.reasons[0]}" if newest is not None else "never run to its end"
    counting = [one for one in valid if not _passed(one) or not one.production or _staged(one, valid)]
    if not counting:
        return f"run in production ({valid[-1].environment}) before it had passed outside of it"
    for production in (False, True):
        last = next((one for one in reversed(counting) if one.production is production), None)
        if last is not None and last.case is not None and not last.case.passed:
            return f"{last.case.grade} in {last.environment} ({last.run}): {'; '.join(last.case.reasons[:2])}"
    return _too_old(counting[-1], now, max_age_days)


def _staged(run: PastRun, valid: Iterable[PastRun]) -> bool:
    before = itertools.takewhile(lambda one: one is not run, valid)
    return any(_passed(one) and not one.production and one.over for one in before)


def _passed(run: PastRun) -> bool:
    return run.case is not None and run.case.passed


@dataclass(frozen=True, slots=True)
class Covered:
    """The run that counts for a case in one environment; ``why`` it is no pass of late, empty when it is one."""

    environment: str
    production: bool
    run: str
    ended: float
    grade: str
    recovery: float | None
    why: str


def coverage(
    cases: Iterable[str], runs: Iterable[PastRun], now: float, max_age_days: float
) -> dict[str, dict[str, Covered]]:
    """Return by case and environment the last run that is not invalid, or the last invalid one where all are.

    A case without an entry for an environment was never run to its end there.
    """
    by_case = _by_case(runs)
    return {id_: _by_environment(by_case.get(id_, []), now, max_age_days) for id_ in cases}


def _by_environment(runs: list[PastRun], now: float, max_age_days: float) -> dict[str, Covered]:
    graded = [(one, one.case) for one in runs if one.case is not None and one.ended is not None]
    found = {}
    for run, case in sorted(graded, key=lambda one: one[1].grade != "invalid"):
        if not case.passed:
            why = "; ".join(case.reasons[:2])
        elif run.production and not _staged(run, runs):
            why = "before it had passed outside of production"
        else:
            why = _too_old(run, now, max_age_days)
        found[run.environment] = Covered(
            run.environment, run.production, run.run, run.ended or 0.0, case.grade, case.recovery, why
        )
    return found


def _too_old(run: PastRun, now: float, max_age_days: float) -> str:
    age = (now - run.at) / _DAY
    if age < -CLOCK_SKEW / _DAY:
        return f"{run.run} ended in the future"
    return "" if age <= max_age_days else f"passed {age:.0f} days ago, and {max_age_days:g} are allowed"
