"""From the chosen calls of a capture to judged plans: they are explained, judged, and remedies are tried."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from migverify.model import Side
from migverify.store.results import ResultStore
from migverify.workload.plans.catalog import condition_columns
from migverify.workload.plans.choose import Chosen, calls_of, choose
from migverify.workload.plans.clone_change import TrialClone
from migverify.workload.plans.drift import PlanRecord, drift, tables_of
from migverify.workload.plans.judge import JudgedPlans, PlanLimits, judge_plans, with_drift
from migverify.workload.plans.model import DigestPlans, QueryPlan
from migverify.workload.plans.read import (
    Explainer,
    explain,
    read_source,
    read_target,
    table_names,
)
from migverify.workload.plans.remedy import with_remedies
from migverify.workload.plans.statistics import Indexes, TargetTables
from migverify.workload.plans.store import add_plans, record_of
from migverify.workload.plans.trial import RemedyTrials
from migverify.workload.replay.model import Call
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import ReplayEndpoints


def _nothing(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How plans are asked.

    Parameters
    ----------
    version
        The target's, for the record.
    samples
        Calls of each digest that are explained.
    writes
        Writes are explained too.
    digests
        Those that are explained; None for all.
    analyze
        Reads are run on the target, to see actual rows.
    seconds
        Time limit of a statement.
    before
        What an earlier run recorded of a digest; a plan that changed since is a finding.
    clone
        The target, proved to be a clone: remedies are tried there, and undone.
    """

    version: str
    samples: int = 3
    writes: bool = True
    digests: Container[str] | None = None
    analyze: bool = False
    seconds: float = 60.0
    limits: PlanLimits | None = None
    before: Callable[[str], PlanRecord | None] = _nothing
    clone: TrialClone | None = None


def record_plans(
    run: RunFile, sides: ReplayEndpoints, store: ResultStore, run_id: str, options: PlanOptions,
    progress: Callable[[str], None] = _nothing,
) -> list[JudgedPlans]:  # fmt: skip
    """Judge the plans of a planned capture's digests, keep them with a run of the store, and return them.

    Raises EndpointError where a side cannot be reached.
    """
    found = []
    chosen = choose(run, options.samples, writes=options.writes, digests=options.digests)
    trials = None
    if options.clone is not None:
        trials = RemedyTrials(options.clone, lambda digest, most: calls_of(run, digest, most), progress)
    for judged, record in judge_digests(chosen, sides, options, progress, trials):
        add_plans(store, run_id, judged, record)
        found.append(judged)
    return found


def judge_digests(
    chosen: Sequence[Chosen], sides: ReplayEndpoints, options: PlanOptions,
    progress: Callable[[str], None] = _nothing, trials: RemedyTrials | None = None,
) -> Iterator[tuple[JudgedPlans, PlanRecord]]:  # fmt: skip
    """Yield the judged plans of digests in their order, and their records.

    Raises EndpointError where a side cannot be reached.
    """
    limits = options.limits
    explainer = Explainer(sides, options.analyze, options.seconds)
    with closing(explainer):
        found = []
        for number, one in enumerate(chosen, 1):
            found.append(explain(one, explainer))
            progress(f"{number:,} of {len(chosen):,} digests explained")
        names = [table_names(one) for one in found]
        used = {name for one in names for name in one.values()}
        source, rows = read_source(sides, used)
        target = replace(read_target(sides, used), source_rows=rows, source_indexes=source)
        for one, plans, known in zip(chosen, found, names, strict=True):
            judged = judge_plans(plans, known, target, limits, condition_columns(plans))
            record = record_of(plans, options.version, tables_of(known, target), judged.guesses)
            earlier = options.before(plans.digest)
            changed = drift(earlier, record) if earlier is not None else None
            if changed is not None:
                judged = with_drift(judged, changed, limits)
            judged = _with_remedies(judged, one.samples, explainer, known, source, target, limits)
            if trials is not None:
                judged = trials.tried(judged, one.samples, explainer, known, source, target, limits or PlanLimits())
            yield judged, record


def target_records(
    chosen: Sequence[Chosen], sides: ReplayEndpoints, options: PlanOptions
) -> Iterator[tuple[DigestPlans, PlanRecord]]:
    """Yield the plans of digests on the target alone, and their records; nothing is judged.

    Raises EndpointError where the target cannot be reached.
    """
    aim = ReplayEndpoints({Side.TARGET: sides.endpoints[Side.TARGET]}, sides.secrets)
    with closing(Explainer(aim, seconds=options.seconds)) as explainer:
        found = [explain(one, explainer) for one in chosen]
    names = [table_names(one) for one in found]
    target = read_target(aim, {name for one in names for name in one.values()})
    for plans, known in zip(found, names, strict=True):
        yield plans, record_of(plans, options.version, tables_of(known, target))


def _with_remedies(
    judged: JudgedPlans, calls: Sequence[Call], explainer: Explainer, names: Mapping[str, tuple[str, str]],
    source: Indexes, target: TargetTables, limits: PlanLimits | None,
) -> JudgedPlans:  # fmt: skip
    def explained(sample: int, text: bytes) -> QueryPlan:
        return explainer.target_plan(calls[sample], text)

    modes = [call.state.modes for call in calls]
    return with_remedies(judged, names, source, target.indexes, explained, modes, limits)
