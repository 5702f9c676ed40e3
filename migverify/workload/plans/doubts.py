"""Why plans cannot be judged, and where nothing depends on what is missing.

Statistics decide which plan a table gets, except where it is certain without: a lookup of one row by a unique key, and
a table so small that no plan over it is a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from migverify.model import Side
from migverify.workload.plans.model import (
    TRIED,
    AccessPath,
    DigestPlans,
    QueryPlan,
    SamplePlans,
    TableAccess,
)
from migverify.workload.plans.statistics import TargetTables, analyze, contradiction
from migverify.workload.replay.outcome import TRANSIENT, alike, kind_of

_UNDO = "the next migverify workload plans --try undoes it"
_DENIED_WRITE = re.compile(
    r"(?:INSERT|UPDATE|DELETE|REPLACE) command denied|privilege check for '(?:INSERT|UPDATE|DELETE|REPLACE)' fail",
    re.IGNORECASE,
)
_WRITE_REMEDY = (
    "leave writes out by --reads-only, or give a user who may write and --accept-write-grants: nothing is written"
)
_NOT_OF_THE_STATEMENT = TRANSIENT | {"access"}
"""Classes of errors that another moment, or another user, does not get."""


@dataclass(frozen=True, slots=True)
class PlanDoubt:
    """One reason why plans are not known. ``table`` as the statement names it, where its statistics are the reason."""

    table: str
    reason: str


def write_remedy(reason: str) -> str:
    """Return what to do where a server refused to explain a write for want of a privilege, else an empty text."""
    return _WRITE_REMEDY if _DENIED_WRITE.search(reason) else ""


def fails_as_captured(sample: SamplePlans) -> bool:
    """Whether production refused the call for what it is, and each side that was asked refuses it alike."""
    captured = sample.captured_errno
    if not captured or not sample.plans or kind_of(captured) in _NOT_OF_THE_STATEMENT:
        return False
    return all(one.plan is None and one.errno and alike(one.errno, captured) for one in sample.plans.values())


def refused_as_captured(plans: DigestPlans) -> str:
    """Return that no call of a digest has a plan as production refused each of them; empty where one may have one."""
    if plans.skipped or not plans.samples or not all(map(fails_as_captured, plans.samples)):
        return ""
    numbers = ", ".join(sorted({str(sample.captured_errno) for sample in plans.samples}))
    return f"failed in production with error {numbers}, and is refused for the same reason now: nothing to judge"


def doubts(
    plans: DigestPlans, names: Mapping[str, tuple[str, str]], target: TargetTables, small: int
) -> Iterator[PlanDoubt]:
    """Yield why plans of a digest cannot be judged; a table of ``small`` rows may have any plan."""
    if plans.skipped:
        yield PlanDoubt("", plans.skipped)
    elif not plans.samples:
        yield PlanDoubt("", "no call of it can be explained")
    for sample in plans.samples:
        if fails_as_captured(sample):
            continue
        yield from _missing_plans(sample)
        source, aim = (_plan(sample, side) for side in (Side.SOURCE, Side.TARGET))
        for access in () if aim is None else aim.accesses:
            name = names.get(access.table.lower())
            if name is None:
                yield PlanDoubt(access.table, f"which table {access.table} is cannot be known from the statement")
                continue
            if TRIED in target.indexes.get(name, ()):
                reason = f"{'.'.join(name)} has the index {TRIED} of a trial that was cut off: {_UNDO}"
                yield PlanDoubt(access.table, reason)
            why = "" if _is_one_row(source, access) else _of_statistics(access, name, target, small)
            if why:
                yield PlanDoubt(access.table, f"{'.'.join(name)} {why}: {analyze(*name)}")


def _missing_plans(sample: SamplePlans) -> Iterator[PlanDoubt]:
    for side in (Side.SOURCE, Side.TARGET):
        answer = sample.plans.get(side)
        if answer is None or answer.plan is None:
            reason = "not asked" if answer is None else answer.reason
            remedy = write_remedy(reason)
            yield PlanDoubt("", f"no plan of the {side}: {reason}{f'; {remedy}' if remedy else ''}")


def _plan(sample: SamplePlans, side: Side) -> QueryPlan | None:
    answer = sample.plans.get(side)
    return None if answer is None else answer.plan


def _is_one_row(source: QueryPlan | None, access: TableAccess) -> bool:
    """Whether both sides look one row up: TiDB plans a lookup by a whole unique key without statistics."""
    if source is None or access.path is not AccessPath.POINT or not _reads_one(access):
        return False
    same = [one for one in source.accesses if one.table.lower() == access.table.lower()]
    return bool(same) and all(_reads_one(one) and not one.path.whole for one in same)


def _reads_one(access: TableAccess) -> bool:
    return access.estimated is not None and access.estimated <= 1


def _of_statistics(access: TableAccess, name: tuple[str, str], target: TargetTables, small: int) -> str:
    """Return what is wrong with the statistics of a table that a plan reads, empty where nothing is."""
    known, source_rows = target.statistics.get(name), target.source_rows.get(name)
    guessed = f"has statistics {access.statistics}" if access.statistics else ""
    if known is None:
        return "has no statistics"
    is_small = source_rows is not None and max(known.rows, source_rows) <= small
    if known.is_stale and is_small and not guessed:
        return ""  # a few rows that change all the time are always stale, and may be read in any way
    return known.missing or guessed or contradiction(known, source_rows)
