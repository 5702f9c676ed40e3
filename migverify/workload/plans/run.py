"""From a capture to judged plans: the calls are chosen as a replay chooses them, explained, and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from migverify.db.session import open_session
from migverify.workload.plans.choose import choose
from migverify.workload.plans.drift import PlanRecord, drift, tables_of
from migverify.workload.plans.judge import JudgedPlans, PlanLimits, judge_plans, with_drift
from migverify.workload.plans.model import QueryPlan
from migverify.workload.plans.read import (
    Explainer,
    explain,
    read_source,
    read_target,
    table_names,
)
from migverify.workload.plans.remedy import with_remedies
from migverify.workload.plans.statistics import Indexes, TargetTables
from migverify.workload.plans.store import record_of
from migverify.workload.replay.keys import databases_of, read_keys
from migverify.workload.replay.model import Call
from migverify.workload.replay.plan import CallSelection, ColumnReader, read_plan
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import Leave, ReplayEndpoints


def judge_capture(
    capture: Path, reader: ColumnReader, sides: ReplayEndpoints, selection: CallSelection, *, samples: int,
    version: str, writes: bool = True, database: str | None = None, analyze: bool = False, seconds: float = 60.0,
    limits: PlanLimits | None = None, before: Callable[[str], PlanRecord | None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[JudgedPlans, PlanRecord]]:  # fmt: skip
    """Yield the judged plans of a capture's digests, those that took longest on the source first, and their records.

    Parameters
    ----------
    version
        The target's, for the record.
    writes
        Explain what writes, too; nothing is run.
    before
        What an earlier run recorded of a digest; a plan that changed since is a finding.

    Raises UsageError where the capture cannot be read, EndpointError where a side cannot be reached.
    """
    side, endpoint = next(iter(sides.endpoints.items()))
    databases = databases_of(reader(capture, ["database"])) | ({database} if database else set())
    with open_session(endpoint, sides.secrets.get(endpoint.name), side=side) as session:
        keys = read_keys(session, databases)
    with TemporaryDirectory(prefix="migverify-plans-") as name:
        folder = Path(name)
        leave = Leave(writes=True, locking=True)  # explaining runs nothing
        read_plan(capture, folder, reader, selection=selection, leave=leave, keys=keys, database=database)
        with RunFile(folder) as run:
            chosen = choose(run, samples, writes=writes)
    explainer = Explainer(sides, analyze, seconds)
    with closing(explainer):
        found = []
        for number, one in enumerate(chosen, 1):
            found.append(explain(one, explainer))
            progress(f"{number:,} of {len(chosen):,} digests explained")
        names = [table_names(one) for one in found]
        used = {name[0] for one in names for name in one.values()}
        source, rows = read_source(sides, used)
        target = replace(read_target(sides, used), source_rows=rows)
        for one, plans, known in zip(chosen, found, names, strict=True):
            judged = judge_plans(plans, known, target, limits)
            record = record_of(judged, version, tables_of(known, target))
            earlier = before(plans.digest)
            changed = drift(earlier, record) if earlier is not None else None
            if changed is not None:
                judged = with_drift(judged, changed, limits)
            yield _with_remedies(judged, one.samples, explainer, known, source, target, limits), record


def _with_remedies(
    judged: JudgedPlans, calls: Sequence[Call], explainer: Explainer, names: Mapping[str, tuple[str, str]],
    source: Indexes, target: TargetTables, limits: PlanLimits | None,
) -> JudgedPlans:  # fmt: skip
    def explained(sample: int, text: bytes) -> QueryPlan:
        return explainer.target_plan(calls[sample], text)

    modes = [call.state.modes for call in calls]
    return with_remedies(judged, names, source, target.indexes, explained, modes, limits)
