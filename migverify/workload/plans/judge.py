"""What hurts about a digest's plans on the target, measured in rows read; and what cannot be known.

Plans differ between servers by design: another order of joins, a small table read whole, a hash join in place of many
lookups. What counts is that the target reads many more rows than the source does, or must fetch rows only to drop them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

from migverify.model import Side, Verdict
from migverify.workload.plans.catalog import lost_index
from migverify.workload.plans.doubts import doubts, refused_as_captured
from migverify.workload.plans.drift import PlanDrift
from migverify.workload.plans.model import (
    DigestPlans,
    Harm,
    PlanFinding,
    QueryPlan,
    SamplePlans,
    TableAccess,
    TrialResult,
)
from migverify.workload.plans.statistics import TargetTables

_ORDER = list(Harm)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """What is too much. A table of ``small`` rows may be read whole; ``more`` times the rows of the source are a loss.

    ``off`` is the factor between estimated and actual rows from which an estimate is wrong. A statement with ``often``
    calls or more should be held by the plan cache.
    """

    small: int = 1_000
    more: float = 10.0
    off: float = 100.0
    often: int = 1_000

    def are_passed_by(self, drift: PlanDrift) -> bool:
        """Whether a changed plan reads many more rows than before."""
        return drift.now > max(self.small, self.more * drift.before)


class PlanState(StrEnum):
    """What is known of a digest's plans."""

    FINE = "fine"
    HURTS = "hurts"
    UNKNOWN = "not known"


VERDICTS = {
    PlanState.HURTS: Verdict.MISMATCH, PlanState.UNKNOWN: Verdict.INCONCLUSIVE, PlanState.FINE: Verdict.MATCH,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class JudgedPlans:
    """What was found out about a digest.

    ``doubts`` are reasons why its plans cannot be judged, each with what to do; findings hold all the same.
    ``changed`` says that its plan is another one than an earlier run saw, which alone is no harm. ``trials`` are what
    remedies brought on a clone. ``guesses`` are those of the doubts that are about statistics of the target.
    ``refused`` says that there is nothing to judge, as production refused the statement already.
    """

    plans: DigestPlans
    findings: tuple[PlanFinding, ...] = ()
    doubts: tuple[str, ...] = ()
    changed: str = ""
    trials: tuple[TrialResult, ...] = ()
    guesses: tuple[str, ...] = ()
    refused: str = ""

    @property
    def state(self) -> PlanState:
        """Fine only where every sample was judged and nothing was found."""
        if self.findings:
            return PlanState.HURTS
        return PlanState.UNKNOWN if self.doubts else PlanState.FINE


class Judged(Protocol):
    """A digest of which it is known whether its plans hurt: as it was judged, or as it is stored."""

    @property
    def state(self) -> PlanState:
        """What is known of its plans."""
        ...

    @property
    def refused(self) -> str:
        """That production refused it already, and both sides do; empty where there is something to judge."""
        ...


def plans_verdict(found: Sequence[Judged]) -> Verdict:
    """Return MATCH only where there are plans and all of them were judged fine."""
    if all(one.refused for one in found):
        return Verdict.INCONCLUSIVE
    return Verdict.worst([VERDICTS[one.state] for one in found])


def reasons(found: Sequence[Judged]) -> Iterator[str]:
    """Yield why the verdict is no MATCH, by counts of digests."""
    if all(one.refused for one in found):
        yield "no statement of the capture has a plan"
    digests = "digest" if len(found) == 1 else "digests"
    for state in (PlanState.HURTS, PlanState.UNKNOWN):
        count = sum(one.state is state for one in found)
        if count:
            yield f"{count:,} of {len(found):,} {digests}: {state}"


def judge_plans(
    plans: DigestPlans, names: Mapping[str, tuple[str, str]], target: TargetTables, limits: PlanLimits | None = None,
    columns: frozenset[str] | None = None,
) -> JudgedPlans:  # fmt: skip
    """Judge the plans of one digest.

    Parameters
    ----------
    names
        Database and table by the name that the statement uses, lower case all.
    columns
        Those of its conditions, lower case; None: not known, then the catalog proves nothing.
    """
    chosen = limits or PlanLimits()
    open_ = list(doubts(plans, names, target, chosen.small))
    unsure = {one.table for one in open_}
    found: dict[tuple[Harm, str], PlanFinding] = {}
    for number, sample in enumerate(plans.samples):
        source, aim = (sample.plans.get(side) for side in (Side.SOURCE, Side.TARGET))
        if source is None or aim is None or source.plan is None or aim.plan is None:
            continue
        for one in _compared(source.plan, aim.plan, names, target, chosen):
            # a plan made of guesses is no finding: with statistics it may be another one
            if one.table not in unsure:
                found.setdefault((one.harm, one.table), replace(one, sample=number))
        for one in _lost_for_certain(source.plan, aim.plan, names, target, chosen, columns):
            if one.table in unsure:
                found.setdefault((one.harm, one.table), replace(one, sample=number))
    for one in (*_varies(plans.samples), *_estimates(plans.samples, chosen)):
        if not unsure:
            found.setdefault((one.harm, one.table), one)
    if plans.calls >= chosen.often:
        found.update(((one.harm, one.table), one) for one in _uncached(plans.samples))
    ordered = tuple(sorted(found.values(), key=lambda one: _ORDER.index(one.harm)))
    return JudgedPlans(
        plans, ordered, tuple(dict.fromkeys(one.reason for one in open_)),
        guesses=tuple(dict.fromkeys(one.reason for one in open_ if one.table)), refused=refused_as_captured(plans),
    )  # fmt: skip


def with_drift(judged: JudgedPlans, drift: PlanDrift, limits: PlanLimits | None = None) -> JudgedPlans:
    """Return what was found with a changed plan named; it is a finding where it reads many more rows than before.

    How many rows a plan read that was made without valid statistics is not known: then it is none.
    """
    chosen = limits or PlanLimits()
    if drift.guesses or not chosen.are_passed_by(drift):
        return replace(judged, changed=str(drift))
    remedy = "Compare both by EXPLAIN ANALYZE; hold the old one by CREATE GLOBAL BINDING if it is better."
    return replace(
        judged, findings=(*judged.findings, PlanFinding(Harm.CHANGED, "", str(drift), remedy)), changed=str(drift)
    )


def _compared(
    source: QueryPlan, aim: QueryPlan, names: Mapping[str, tuple[str, str]], target: TargetTables, limits: PlanLimits
) -> Iterator[PlanFinding]:
    total = source.read
    for before, after in _pairs(source, aim):
        read = after.estimated or 0.0
        most = max(limits.small, total, limits.more * (before.estimated or 0.0))
        if read > most and not before.path.whole:
            yield _lost(before, after, names, target)
    for one in aim.filters:
        if one.read > max(limits.small, total / limits.more):
            yield PlanFinding(
                Harm.PUSHDOWN_LOST, "", f"{one.read:,.0f} rows come to TiDB to be filtered there by {one.condition}",
                "Rewrite the condition by functions that the storage computes, or index what it computes.",
            )  # fmt: skip


def _lost_for_certain(
    source: QueryPlan, aim: QueryPlan, names: Mapping[str, tuple[str, str]], target: TargetTables, limits: PlanLimits,
    columns: frozenset[str] | None,
) -> Iterator[PlanFinding]:  # fmt: skip
    """Yield what holds for any statistics of the target."""
    for before, after in _pairs(source, aim):
        name = names.get(after.table.lower())
        least = max(limits.small, source.read, limits.more * (before.estimated or 0.0))
        finding = None if name is None else lost_index(before, after, name, target, columns, least)
        if finding is not None:
            yield finding


def _pairs(source: QueryPlan, aim: QueryPlan) -> Iterator[tuple[TableAccess, TableAccess]]:
    """Yield the accesses of one table on both sides: those of one name in their order."""
    by_name: dict[str, list[TableAccess]] = defaultdict(list)
    for one in source.accesses:
        by_name[one.table.lower()].append(one)
    for one in aim.accesses:
        before = by_name[one.table.lower()]
        if before:
            yield (before.pop(0) if len(before) > 1 else before[0]), one


def _lost(
    before: TableAccess, after: TableAccess, names: Mapping[str, tuple[str, str]], target: TargetTables
) -> PlanFinding:
    name = names.get(after.table.lower(), ("", after.table))
    indexes = target.indexes.get(name)
    index = None if indexes is None else indexes.get(before.index.lower())
    absent = indexes is not None and bool(before.index) and (index is None or not index.visible)
    reason = f"the target reads {after}, the source {before}"
    if absent:
        remedy = f"Create index {before.index} of {'.'.join(name)} on the target as on the source."
        reason = f"{reason}; index {before.index} is {'not' if index is None else 'invisible'} on the target"
        return PlanFinding(Harm.INDEX_LOST, after.table, reason, remedy, index=before.index)
    harm = Harm.FULL_SCAN if after.path.whole else Harm.INDEX_LOST
    remedy = "Compare the types and collations of what is compared, and the statistics of its columns."
    return PlanFinding(harm, after.table, reason, remedy, index=before.index)


def _varies(samples: Sequence[SamplePlans]) -> Iterator[PlanFinding]:
    shapes: dict[Side, dict[str, str]] = {Side.SOURCE: {}, Side.TARGET: {}}
    for sample in samples:
        for side, answer in sample.plans.items():
            if answer.plan is not None:
                shapes[side].setdefault(answer.plan.shape, sample.origin)
    if len(shapes[Side.TARGET]) > 1 and len(shapes[Side.SOURCE]) == 1:
        places, count = ", ".join(shapes[Side.TARGET].values()), len(shapes[Side.TARGET])
        yield PlanFinding(
            Harm.VARIES, "", f"{count} plans on the target and one on the source, by values: {places}",
            "Hold the better plan by CREATE GLOBAL BINDING, or see whether statistics of the column help.",
        )  # fmt: skip


def _estimates(samples: Sequence[SamplePlans], limits: PlanLimits) -> Iterator[PlanFinding]:
    for sample in samples:
        aim = sample.plans.get(Side.TARGET)
        for one in aim.plan.accesses if aim is not None and aim.plan is not None else ():
            if one.actual is None or one.estimated is None:
                continue
            low, high = sorted((max(one.estimated, 1.0), max(one.actual, 1.0)))
            if high >= limits.small and high >= low * limits.off:
                yield PlanFinding(
                    Harm.ESTIMATE, one.table,
                    f"{one.estimated:,.0f} rows of {one.table} were estimated, {one.actual:,.0f} were read",
                    "Take statistics of the columns in the condition, those of several together by STATS_EXTENDED.",
                )  # fmt: skip


def _uncached(samples: Sequence[SamplePlans]) -> Iterator[PlanFinding]:
    for sample in samples:
        aim = sample.plans.get(Side.TARGET)
        if aim is not None and aim.uncached:
            yield PlanFinding(
                Harm.UNCACHED, "", f"every execution is planned anew: {aim.uncached}",
                "Rewrite what cannot be cached; see what planning costs by the digest's parse and compile time.",
            )  # fmt: skip
            return
