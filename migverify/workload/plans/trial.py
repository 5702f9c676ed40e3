"""Remedies that are tried on a marked clone: made there, measured by EXPLAIN ANALYZE and a short replay, and undone.

Only what reads is run. A better plan of an index that is there is tried by its hint, in a session: nothing is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from migverify.errors import EndpointError, MigverifyError, ReadError, RetryableReadError
from migverify.model import Side
from migverify.workload.classify import classify
from migverify.workload.plans.clone_change import (
    CloneChange,
    TrialClone,
    new_index,
    shown_index,
    taken_statistics,
)
from migverify.workload.plans.judge import JudgedPlans, PlanLimits
from migverify.workload.plans.model import TrialResult
from migverify.workload.plans.read import Explainer
from migverify.workload.plans.remedy import Remedy, RemedyKind, hinted, remedy_of
from migverify.workload.plans.statistics import Indexes, TargetTables, analyze
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.model import Call
from migverify.workload.replay.safety import Leave, refusal

_CALLS = 30
"""Calls of a digest that are replayed before and after a change, at most; those of a capture are taken in turn."""
_SECONDS = 10.0
"""Time after which no more of them are begun."""

Names = Mapping[str, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a digest's calls took: rows read by the one that is explained, latencies of the others in microseconds."""

    rows: float
    latencies: Histogram


@dataclass(slots=True)
class RemedyTrials:
    """Tries remedies on a clone.

    Parameters
    ----------
    calls
        Gives captured calls of a digest, at most so many.
    """

    clone: TrialClone
    calls: Callable[[str, int], Sequence[Call]]
    tell: Callable[[str], None] = field(default=lambda _: None)

    def tried(
        self, judged: JudgedPlans, samples: Sequence[Call], explainer: Explainer, names: Names, source: Indexes,
        target: TargetTables, limits: PlanLimits,
    ) -> JudgedPlans:  # fmt: skip
        """Return what was found about a digest with what its remedies brought on the clone.

        Raises EndpointError: the clone's mark does not hold any more; ReadError: a change could not be undone.
        """
        found, results = list(judged.findings), []
        digest = _Digest(judged, self.calls, explainer, limits)
        for place, finding in enumerate(found):
            sample = judged.plans.samples[finding.sample]
            modes = samples[finding.sample].state.modes
            remedy = remedy_of(finding, names, source, target.indexes, sample.sql, modes)
            if remedy is not None:
                result = self._remedy(digest, remedy, samples[finding.sample])
                found[place] = replace(finding, proved=finding.proved or result.helped)
                results.append(result)
        results += self._statistics(digest, samples, names, target)
        return replace(judged, findings=tuple(found), trials=tuple(results))

    def _statistics(
        self, digest: _Digest, samples: Sequence[Call], names: Names, target: TargetTables
    ) -> Iterator[TrialResult]:
        """Yield what ANALYZE brings for tables that were never analyzed; older statistics could not be put back."""
        tables = sorted(_tables(digest.judged, names))
        known = {name: target.statistics.get(name) for name in tables}
        missing = [taken_statistics(*name) for name, one in known.items() if one is None or one.health is None]
        if missing:
            yield self._measured(digest, "; ".join(one.made for one in missing), samples[0], missing)
        for name, one in known.items():
            if one is not None and one.health is not None and one.missing:
                reason = "TiDB cannot put back the statistics that it has; run it there to see"
                yield TrialResult(analyze(*name), self.clone.mark.name, reason=reason)

    def _remedy(self, digest: _Digest, remedy: Remedy, sample: Call) -> TrialResult:
        match remedy.kind:
            case RemedyKind.BINDING:
                return self._measured(digest, remedy.lasting, sample, (), remedy.hint)
            case RemedyKind.INDEX:
                change = new_index(*remedy.table, remedy.index)
            case RemedyKind.VISIBLE:
                change = shown_index(*remedy.table, remedy.index.name)
        return self._measured(digest, remedy.lasting, sample, () if change is None else (change,))

    def _measured(
        self, digest: _Digest, lasting: str, sample: Call, changes: Sequence[CloneChange], hint: str = ""
    ) -> TrialResult:
        """Measure, make the changes, measure again, undo them; what the clone or a call refuses is the reason."""
        self.tell(f"trying on the clone {self.clone.mark.name}: {lasting}")
        result = TrialResult(lasting, self.clone.mark.name)
        refused = refusal(sample, classify(sample.sql, sample.state.modes), Leave())
        if refused:
            return replace(result, reason=f"only what reads is run: {refused}")
        try:
            before = digest.measure(sample)
        except MigverifyError as error:
            return replace(result, reason=error.line)
        failure, after = "", before
        with ExitStack() as undone:
            try:
                for change in changes:
                    undone.enter_context(self.clone.changed(change))
                after = digest.measure(sample, hint)
            except (EndpointError, RetryableReadError):
                raise  # the clone is none any more, or a change may have been made: the next run undoes it
            except ReadError as error:
                failure = error.line
        if failure:
            return replace(result, reason=failure)
        return replace(
            result, rows=(before.rows, after.rows), calls=(before.latencies.count, after.latencies.count),
            p50=(before.latencies.quantile(0.5), after.latencies.quantile(0.5)),
            helped=after.rows * digest.limits.more <= before.rows,
        )  # fmt: skip


@dataclass(slots=True)
class _Digest:
    judged: JudgedPlans
    calls: Callable[[str, int], Sequence[Call]]
    explainer: Explainer
    limits: PlanLimits
    _reads: list[Call] = field(default_factory=list)

    def measure(self, sample: Call, hint: str = "") -> Measurement:
        """Explain one call while it runs, then replay others; raises ReadError where one is refused."""
        rows = self.explainer.rows_read(_with_hint(sample, hint), bindings=not hint)
        latencies = Histogram()
        until = time.monotonic() + _SECONDS
        reads = self._read_calls() or [sample]
        for place in range(-1, _CALLS):
            call = reads[place % len(reads)]
            micros = self.explainer.run(_with_hint(call, hint), bindings=not hint)
            if place >= 0:  # the first one is planned and loads what the others find
                latencies.add(micros)
            if time.monotonic() > until and latencies.count:
                break
        return Measurement(rows, latencies)

    def _read_calls(self) -> list[Call]:
        """Return the captured calls that only read; looking for them takes a pass over the capture."""
        if not self._reads:
            found = self.calls(self.judged.plans.digest, _CALLS)
            self._reads = [one for one in found if not refusal(one, classify(one.sql, one.state.modes), Leave())]
        return self._reads


def _with_hint(call: Call, hint: str) -> Call:
    if not hint:
        return call
    text = hinted(call.sql, hint, call.state.modes)
    if text is None:
        raise ReadError(f"{call.origin}: no hint can be set in it")
    return replace(call, sql=text)


def _tables(judged: JudgedPlans, names: Names) -> set[tuple[str, str]]:
    """Return the tables that the target's plans read."""
    plans = [one.plans[Side.TARGET].plan for one in judged.plans.samples if Side.TARGET in one.plans]
    aliases = {access.table.lower() for plan in plans if plan is not None for access in plan.accesses}
    return {names[alias] for alias in aliases if alias in names}
