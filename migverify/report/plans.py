"""Plans as sections, test cases, metrics and JSON, from what a run of ``workload plans`` stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from migverify.exposition import Metric, number
from migverify.figures import amount, plural, utc
from migverify.model import NextStep, RunInfo, Verdict
from migverify.report.model import (
    Block,
    Fact,
    FactList,
    JUnitCase,
    Lines,
    Report,
    Row,
    Section,
    Table,
    TableCell,
    TableColumn,
    Tile,
    badge,
    tone_of,
)
from migverify.report.run_facts import run_facts
from migverify.store.results import ResultStore
from migverify.workload.plans.judge import VERDICTS, PlanState, plans_verdict, reasons
from migverify.workload.plans.store import StoredPlans, stored_plans

_ORDER = (PlanState.HURTS, PlanState.UNKNOWN, PlanState.FINE)
_SENTENCES = {
    Verdict.MATCH: "No statement of the capture will hurt on the target by its plan.",
    Verdict.MISMATCH: "Statements of the capture will hurt on the target.",
    Verdict.INCONCLUSIVE: "Of some statements it is not known whether they will hurt on the target.",
}
_COLUMNS = (
    TableColumn("Verdict"), TableColumn("Found"), TableColumn("Statement"), TableColumn("Calls", number=True),
    TableColumn("Seconds on the source", number=True),
)  # fmt: skip
_TEXT_ROWS = 20


def plans_report(store: ResultStore, info: RunInfo) -> Report:
    """Return the report of a run of plans; one without an end, or without a digest, is never MATCH."""
    digests = sorted(
        stored_plans(store, info.run_id), key=lambda one: (_ORDER.index(one.state), -(one.seconds or 0.0), -one.calls)
    )
    counts = {state: sum(one.state is state for one in digests) for state in _ORDER}
    # Its verdict is that of its digests, not of results in the store: there are none.
    run = run_facts(info, (), 0)
    found, why = plans_verdict(digests), list(reasons(digests))
    if info.finished is None:
        found = Verdict.INCONCLUSIVE if found is Verdict.MATCH else found
        why.insert(0, "the run has no end: it was cut off or still goes on")
    run = replace(run, verdict=found, reasons=tuple(why))
    return Report(
        run.run_id, f"plans {run.run_id}", found, _SENTENCES[found],
        f"plans {run.run_id}, {utc(run.started)}", tone=tone_of(found),
        covered=f"Covered: {amount(len(digests), 'digest')} of {info.plan.get('plans', 'a capture')}.",
        reasons=run.reasons, started=run.started, seconds=run.seconds,
        tiles=tuple(Tile(f"{n:,}", f"{plural(n, 'digest')}: {state}", tone_of(VERDICTS[state]) if n else "none")
                    for state, n in counts.items()),
        cards=run.cards(), sections=(*_sections(digests), run.section()),
        cases=tuple(map(_case, digests)) or (JUnitCase("plans", f"run {run.run_id}", found, run.reasons),),
        metrics=(*run.metrics({}), Metric("migverify_run_plans", "Digests by what their plans are.",
                                          [({"state": state.value}, number(n)) for state, n in counts.items()])),
        document={
            "run_id": run.run_id, "kind": "plans", "verdict": found.value, "exit_code": int(found.exit_code),
            "reasons": list(run.reasons),
            "digests": [plans_as_json(one) for one in digests],
        },
        private=True,
        next_steps=(NextStep(f"migverify report {run.run_id} -o plans.html", "the whole report as a page"),),
    )  # fmt: skip


def _sections(digests: list[StoredPlans]) -> Iterator[Section]:
    yield Section("Digests", (
        Table(_COLUMNS, tuple(map(_row, digests)), note="" if digests else "No digests are stored.", named=2,
              style="digests", text_rows=_TEXT_ROWS),
    ), id="digests")  # fmt: skip
    yield plans_section(digests)


def plans_section(digests: Sequence[StoredPlans], of: int | None = None) -> Section:
    """Return what is known of the plans that hurt, changed or cannot be judged.

    Parameters
    ----------
    of
        How many digests have a plan, where some may not be explained; None: all were.
    """
    shown = [one for one in digests if one.state is not PlanState.FINE or one.changed]
    complete = () if shown else ("No plan hurts or changed.",)
    notes = complete if of is None else (_explained(digests, of),)
    return Section("Plans", (*(Lines((note,), style="note") for note in notes), *map(_detail, shown)), id="plans")


def _explained(digests: Sequence[StoredPlans], of: int) -> str:
    """Return how many digests were explained, what was found, and how to have the others."""
    counts = {state: sum(one.state is state for one in digests) for state in _ORDER}
    bad = {PlanState.HURTS: "of these hurt", PlanState.UNKNOWN: "of these not known"}
    found = ", ".join(f"{counts[state]:,} {words}" for state, words in bad.items() if counts[state])
    more = " All: --plans" if len(digests) < of else ""
    return (
        f"{len(digests):,} of {max(of, len(digests)):,} digests were explained; {found or 'none of these hurts'}.{more}"
    )


def plans_as_json(one: StoredPlans) -> dict[str, Any]:
    """Return a digest's plans as a JSON object, without what only later runs compare with."""
    return {name: value for name, value in one.as_json().items() if name != "record"}


def plan_in_words(one: StoredPlans) -> str:
    """Return what hurts about a digest's plans, or that nothing does, in a line."""
    found = [f"{finding.harm}: {finding.reason}" for finding in one.findings]
    if one.refused:
        return one.refused
    return "; ".join([*found, *(f"not known: {doubt}" for doubt in one.doubts)]) or "reads no more than the source's"


def _row(one: StoredPlans) -> Row:
    found = ", ".join(finding.harm for finding in one.findings) or (
        "changed" if one.changed else "refused" if one.refused else ""
    )
    return (
        badge(VERDICTS[one.state], one.state.value), found, TableCell(one.text, code=True, link=_anchor(one)),
        f"{one.calls:,}", "" if one.seconds is None else f"{one.seconds:,.3f}",
    )  # fmt: skip


def _anchor(one: StoredPlans) -> str:
    return f"p{one.digest}" if one.state is not PlanState.FINE or one.changed else ""


def _detail(one: StoredPlans) -> Section:
    lines = [line for finding in one.findings for line in
             (f"{finding.harm}: {finding.reason}", *filter(None, (finding.remedy,)))]  # fmt: skip
    lines += [f"not known: {doubt}" for doubt in one.doubts]
    lines += [line for trial in one.trials for line in (str(trial), f"  {trial.remedy}")]
    lines += [f"changed: {one.changed}"] if one.changed else []
    plans = tuple(Fact(side, text) for side, text in one.plans.items())
    blocks: list[Block] = [Lines((f"digest {one.digest[:16]}, {amount(one.calls, 'call')}",), style="note"),
                           Lines(tuple(lines)), *([FactList(plans)] if plans else [])]  # fmt: skip
    verdict = VERDICTS[one.state]
    return Section(one.text, tuple(blocks), _anchor(one), one.state.value, tone_of(verdict), folded=True)


def _case(one: StoredPlans) -> JUnitCase:
    lines = (*(f"{finding.harm}: {finding.reason}" for finding in one.findings), *one.doubts)
    return JUnitCase("plans", f"{one.digest[:16]} {one.text[:120]}", VERDICTS[one.state], lines)
