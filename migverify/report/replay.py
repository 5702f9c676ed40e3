"""What a report shows of a replay, read from the store and from nothing else.

Statements and values are what the run kept, and are shown on request only: without it a statement is its digest text,
an answer its outcome without the server's words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from migverify.model import RunInfo, Verdict
from migverify.report.model import Fact, ReportOptions
from migverify.report.run_facts import RunFacts, run_facts
from migverify.store.results import ResultStore
from migverify.workload.forecast.model import LoadForecast
from migverify.workload.forecast.store import load_forecast
from migverify.workload.plans.choose import has_plan
from migverify.workload.plans.store import StoredPlans, not_asked, stored_plans
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.render import masked
from migverify.workload.replay.store import count_weights, read_digests, read_trend, read_whole
from migverify.workload.replay.tally import DigestTally, Example

LISTED = 1_000
DETAILED = 100
_WITHHELD = "(withheld; --values shows it)"


@dataclass(frozen=True, slots=True)
class DigestReport:
    """One digest. ``examples`` is empty beyond the number of digests that are detailed."""

    tally: DigestTally
    verdict: Verdict
    weight: str
    reasons: tuple[str, ...]
    findings: tuple[Mapping[str, Any], ...]
    shifts: tuple[Mapping[str, Any], ...]
    examples: tuple[Example, ...]
    new: str = ""  # the day it failed first, where earlier runs are known
    plans: StoredPlans | None = None

    @property
    def text(self) -> str:
        """The normalized statement, or what is shown in its place."""
        return self.tally.text or f"(digest {self.tally.digest}: its text was not kept)"

    @property
    def word(self) -> str:
        """The verdict in one word: SHALLOW where no rows were compared."""
        return "SHALLOW" if self.weight == "shallow" else str(self.verdict)

    @property
    def aspects(self) -> str:
        """The decisive aspects in few words."""
        heavy = [one["aspect"] for one in self.findings if one["weight"] == self.weight]
        return ", ".join(heavy) or "-"


@dataclass(frozen=True, slots=True)
class ReplayFacts:
    """A replay as it was read. ``digests`` are the most severe ones; ``held`` is how many the store holds.

    ``latencies`` count from when a statement was due, ``services`` from when it was sent; ``waits`` tell what
    statements that began late waited for. Runs of earlier versions have neither of the two.
    ``plans`` are those of the digests that were explained, ``plans_unknown`` is why others were not.
    """

    run: RunFacts
    coverage: Mapping[str, Any]
    slo: tuple[Mapping[str, Any], ...]
    weights: Mapping[str, int]
    digests: tuple[DigestReport, ...]
    held: int
    latencies: Mapping[str, Histogram]
    lag: Histogram
    trend: Mapping[str, Any]
    facts: tuple[Fact, ...]
    forecast: LoadForecast | None = None
    services: Mapping[str, Histogram] = field(default_factory=dict)
    waits: tuple[str, ...] = ()
    plans: tuple[StoredPlans, ...] = ()
    plans_unknown: str = ""

    @property
    def with_plan(self) -> int:
        """How many digests have a plan, by their texts; those that are not listed count as such."""
        return sum(has_plan(one.tally.text) for one in self.digests) + self.held - len(self.digests)


def read_replay(store: ResultStore, info: RunInfo, options: ReportOptions, listed: int = LISTED) -> ReplayFacts:
    """Read a replay: its ``listed`` most severe digests, or all of them where ``options`` want the whole.

    Raises StoreError: the store cannot be read.
    """
    results = store.table_results(info.run_id)
    run = run_facts(info, results, len(results))
    whole = read_whole(store, run.run_id)
    weights = count_weights(store, run.run_id)
    trend = read_trend(store, run.run_id)
    new = {one["digest"]: one["since"] for one in trend.get("new", ())}
    stored = stored_plans(store, run.run_id)
    plans = {one.digest: one if options.values else one.withheld() for one in stored}
    digests = tuple(
        replace(
            _digest(one.tally, one.verdict, options, detailed=place < DETAILED, new=new.get(one.tally.digest, "")),
            plans=plans.get(one.tally.digest),
        )
        for place, one in enumerate(read_digests(store, run.run_id, limit=None if options.whole else listed))
    )
    verdict, reasons = _verdict(run, whole)
    facts = () if whole is None else tuple(
        Fact(name, str(whole[name])) for name in ("pace", "captures", "options") if whole.get(name)
    )  # fmt: skip
    latencies = {} if whole is None else {n: Histogram.from_json(body) for n, body in whole["latencies"].items()}
    services = {} if whole is None else {n: Histogram.from_json(b) for n, b in whole.get("services", {}).items()}
    return ReplayFacts(
        services=services, waits=() if whole is None else tuple(map(str, whole.get("waits", ()))),
        run=replace(run, verdict=verdict, reasons=reasons),
        coverage=_coverage(whole), slo=() if whole is None else tuple(whole.get("slo", ())),
        weights=weights, digests=digests, held=sum(weights.values()), latencies=latencies,
        lag=Histogram() if whole is None else Histogram.from_json(whole["lag"]), trend=trend, facts=facts,
        forecast=load_forecast(store, run.run_id),
        plans=tuple(plans.values()), plans_unknown=not_asked(store, run.run_id),
    )  # fmt: skip


def _coverage(whole: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return what was judged, with what the plan assumed of sessions that began before the capture."""
    if whole is None:
        return {}
    plan = whole.get("run", {}).get("plan", {})
    joined = {"joined": plan["joined"], "assumptions": plan["assumed"]} if plan.get("joined") else {}
    return {**whole["coverage"], **joined}


def _verdict(run: RunFacts, whole: Mapping[str, Any] | None) -> tuple[Verdict, tuple[str, ...]]:
    """Take the run's verdict, unless it claims more than the store holds."""
    if whole is None:
        worst = Verdict.MISMATCH if run.verdict is Verdict.MISMATCH else Verdict.INCONCLUSIVE
        return worst, ("the replay did not get to its result", *run.reasons)
    verdict = Verdict(whole["verdict"])
    reasons = tuple(dict.fromkeys([*run.reasons, *whole["reasons"]]))
    if run.verdict is Verdict.MATCH and verdict is not Verdict.MATCH:
        return verdict, (f"the store contradicts itself: the run is MATCH, its replay {verdict}", *reasons)
    return run.verdict, reasons


def _digest(
    tally: DigestTally, verdict: Mapping[str, Any], options: ReportOptions, *, detailed: bool, new: str
) -> DigestReport:
    examples = _examples(tally, verdict["findings"]) if detailed else []
    return DigestReport(
        tally, Verdict(verdict["verdict"]), verdict["weight"], tuple(verdict["reasons"]), tuple(verdict["findings"]),
        tuple(verdict["latency"]), tuple(_shown(one, values=options.values) for one in examples), new,
    )  # fmt: skip


def _examples(tally: DigestTally, findings: Sequence[Mapping[str, Any]]) -> list[Example]:
    """Return one example of each finding, the heaviest first, none twice; of reasons where nothing differs."""
    from migverify.workload.replay.verdict import WEIGHTS

    ordered = sorted(findings, key=lambda one: WEIGHTS.index(one["weight"]))
    names = [one["aspect"] for one in ordered if one["weight"] not in ("metadata", "info")]
    found: dict[tuple[str, int], Example] = {}
    for aspect in names or sorted(tally.examples):
        for example in tally.examples.get(aspect, ())[:1]:
            found.setdefault((example.session, example.position), example)
    return list(found.values())


def _shown(example: Example, *, values: bool) -> Example:
    """Return an example with what a report shows of it: without ``values`` neither the statement nor the answers."""
    sql, source, target = (example.detail(name) for name in ("sql", "source", "target"))
    differences = example.differences
    if not values:
        sql = _WITHHELD if sql else ""
        source, target = _brief(source), _brief(target)
        differences = tuple(masked(one) for one in differences)
    details = {"origin": example.detail("origin"), "user": example.detail("user"), "sql": sql,
               "source": source or "not kept", "target": target or "not kept"}  # fmt: skip
    return replace(example, differences=differences, details=details)


def _brief(answer: str) -> str:
    """Return the outcome of an answer: its first line, without the server's words, which may quote values."""
    first = answer.split("\n", 1)[0]
    if not first:
        return ""
    return first.split(":", 1)[0] if first.startswith(("error", "no answer")) else first
