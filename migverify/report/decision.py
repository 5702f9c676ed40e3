"""A decision as a page: GO, NO-GO or NOT KNOWN, the worst reasons with what to do, and every part with its evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import PurePosixPath
from typing import Any, TypeVar

from migverify.decision.decide import age_text
from migverify.decision.model import (
    Decision,
    DecisionReason,
    EvidenceReason,
    PartDecision,
    PartEvidence,
    ReasonKind,
    Standing,
)
from migverify.exposition import Metric, number
from migverify.figures import amount, plural, utc
from migverify.model import NextStep
from migverify.report.model import (
    Audience,
    Block,
    Code,
    Fact,
    FactList,
    JUnitCase,
    Lines,
    Link,
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
from migverify.secrets import scrub_sentence

WORST = 3
"""Reasons at the top of a page."""
_LISTED = 50
_SENTENCES = {
    Standing.GO: "The service may cut over: every required part has evidence, fresh, of this service, and fine.",
    Standing.NO_GO: "The service must not cut over: runs proved harm.",
    Standing.NOT_KNOWN: "It is not known whether the service may cut over: evidence is missing.",
}
_TITLES = {ReasonKind.HARM: "harm", ReasonKind.DOUBT: "not known", ReasonKind.WAIVED: "waived"}
_PARTS = (
    TableColumn("Decision"),
    TableColumn("Part"),
    TableColumn("Evidence"),
    TableColumn("Age"),
    TableColumn("Worst reason"),
)


def decision_report(decision: Decision, service: str, links: Mapping[str, str] | None = None) -> Report:
    """Return the report of a decision.

    Parameters
    ----------
    service
        What the page is called.
    links
        Files of the runs' own reports, relative to the page, by run.
    """
    links, standing, decision = links or {}, decision.standing, without_secrets(decision)
    counts = {each: [one for one in decision.parts if one.standing is each] for each in Standing}
    waived = sum(len(one.of_kind(ReasonKind.WAIVED)) for one in decision.parts)
    headline = ", ".join(f"{len(some)} {each.value}" for each, some in counts.items() if some)
    return Report(
        "", f"decision for {service}", decision.verdict, _SENTENCES[standing],
        f"{service}, {utc(decision.now)} ({headline})", word=standing.value, tone=tone_of(decision.verdict),
        covered=_covered(decision), reasons=tuple(_worst(decision)), remedies=tuple(_remedies(decision)),
        started=decision.now,
        tiles=(*(Tile(f"{len(some)}", f"{plural(len(some), 'part')} {each.value}",
                      tone_of(each.verdict) if some else "none") for each, some in counts.items()),
               Tile(f"{waived}", "waived", "inconclusive" if waived else "none")),
        cards=(("decision", tuple(_facts(decision))), *_endpoints(decision)),
        sections=(Section("Parts", (Table(_PARTS, tuple(map(_row, decision.parts)), named=1),),
                                               id="parts"),
                  Section("Evidence", tuple(_part(one, links) for one in decision.parts), id="evidence")),
        cases=tuple(map(_case, decision.parts)), metrics=tuple(_metrics(decision)),
        document={"service": service, **decision.as_json()}, private=True,
        next_steps=tuple(_steps(decision)),
    )  # fmt: skip


def without_secrets(decision: Decision) -> Decision:
    """Return the decision with no password in any text: of a URL, or one that this process knows."""

    def reasons(some: tuple[DecisionReason, ...]) -> tuple[DecisionReason, ...]:
        return tuple(replace(one, reason=_clean(one.reason)) for one in some)

    parts = tuple(
        replace(one, evidence=_clean(replace(one.evidence, reasons=())), reasons=reasons(one.reasons))
        for one in decision.parts
    )
    return replace(decision, parts=parts, reasons=reasons(decision.reasons), unread=_redact(decision.unread))


T = TypeVar("T", EvidenceReason, PartEvidence)


def _clean(one: T) -> T:
    texts: dict[str, Any] = {field.name: getattr(one, field.name) for field in fields(one)}
    cleaned: dict[str, Any] = {name: _redact(text) for name, text in texts.items() if type(text) is str}
    return replace(one, **cleaned)


def _redact(text: str) -> str:
    return scrub_sentence(text)


def _covered(decision: Decision) -> str:
    dates = [one.evidence.taken for one in decision.parts if one.evidence.taken is not None]
    oldest = f" The oldest evidence is of {utc(min(dates))}." if dates else ""
    return f"Decided at {utc(decision.now)}. Evidence counts for {age_text(decision.rules.max_age)}.{oldest}"


def _worst(decision: Decision) -> Iterator[str]:
    if decision.unread:
        yield f"what is there now could not be read: {decision.unread}"
    yield from map(_line, decision.reasons[:WORST])


def _remedies(decision: Decision) -> Iterator[str]:
    if decision.unread:
        yield ""
    yield from (one.reason.remedy for one in decision.reasons[:WORST])


def _line(one: DecisionReason) -> str:
    return f"{one.part.words}: {one.reason.text}"


def _facts(decision: Decision) -> Iterator[Fact]:
    required = [one.part.words for one in decision.parts if one.required]
    left = [one.part.words for one in decision.parts if not one.required]
    yield Fact("stale after", age_text(decision.rules.max_age))
    yield Fact("required", ", ".join(required) if left else "all parts")
    if left:
        yield Fact("not required", f"{', '.join(left)} (decision.parts)")
    for pair in decision.rules.clones:
        yield Fact("clones", ", ".join(f"{name} {address}" for name, address in pair.items()))
    if decision.basis is not None:
        yield Fact("definitions", decision.basis.schema[:12])
        yield Fact("capture", decision.basis.capture[:12] or "none")


def _endpoints(decision: Decision) -> Iterator[tuple[str, tuple[Fact, ...]]]:
    basis = decision.basis
    for name, address in () if basis is None else basis.pair.items():
        who = basis.identities.get(name, "") if basis else ""
        yield name, (
            Fact("address", address), Fact("version", basis.versions.get(name, "") if basis else ""),
            Fact("server", who or "not known"),
        )  # fmt: skip


def _row(one: PartDecision) -> Row:
    worst = next((reason for reason in one.reasons if reason.reason.kind is not ReasonKind.WAIVED), None)
    notes = () if one.required else ("not required (decision.parts)",)
    return (
        badge(one.standing.verdict, one.standing.value), TableCell(one.part.words, link=one.part.value, notes=notes),
        one.evidence.run or "none", "" if one.age is None else age_text(one.age),
        "" if worst is None else worst.reason.text,
    )  # fmt: skip


def _part(one: PartDecision, links: Mapping[str, str]) -> Section:
    run = one.evidence.run
    facts = [Fact("run", run or "none")]
    if one.evidence.taken is not None:
        facts.append(Fact("evidence of", utc(one.evidence.taken)))
    if one.age is not None:
        facts.append(Fact("age", age_text(one.age)))
    if one.evidence.covered:
        facts.append(Fact("covered", one.evidence.covered))
    blocks: list[Block] = [FactList(tuple(facts))]
    for run_id in dict.fromkeys([run, *(reason.run for reason in one.reasons)]):
        if run_id and run_id in links:
            blocks.append(Link(f"Report of run {run_id}", str(PurePosixPath(links[run_id]))))
        elif run_id:
            blocks.append(Lines((f"migverify report {run_id} shows the run.",), style="note"))
    for kind in ReasonKind:
        blocks += _reasons(one, kind)
    if one.evidence.again:
        blocks.append(Code(one.evidence.again, "new evidence"))
    title = one.part.words if one.required else f"{one.part.words} (not required)"
    standing = one.standing
    return Section(title, tuple(blocks), one.part.value, standing.value, tone_of(standing.verdict), folded=True)


def _reasons(one: PartDecision, kind: ReasonKind) -> Iterator[Block]:
    found = one.of_kind(kind)
    if not found:
        return
    last, arrow = ("Accepted by", "accepted by ") if kind is ReasonKind.WAIVED else ("What to do", "-> ")
    texts = [(each.reason.text, each.reason.waiver or each.reason.remedy, each.run) for each in found[:_LISTED]]
    rows = tuple(
        (TableCell(text, notes=(f"run {run}",) if run != one.evidence.run else ()),
         TableCell(what, code=bool(what) and kind is not ReasonKind.WAIVED))
        for text, what, run in texts
    )  # fmt: skip
    columns = (TableColumn(_TITLES[kind].capitalize()), TableColumn(last))
    yield Table(columns, rows, total=len(found), named=0, style="reasons", shown=Audience.PAGE)
    lines = [line for text, what, _ in texts for line in (text, *([f"  {arrow}{what}"] if what else []))]
    more = [f"{amount(len(found) - _LISTED, 'more reason')}"] if len(found) > _LISTED else []
    yield Lines((*lines, *more), _TITLES[kind], shown=Audience.TEXT)


def _case(one: PartDecision) -> JUnitCase:
    lines = [
        f"{_TITLES[each.reason.kind]}: {each.reason.text}" + (f" -> {each.reason.remedy}" if each.reason.remedy else "")
        for each in one.reasons
        if each.reason.kind is not ReasonKind.WAIVED
    ]
    # A part that is not required and not known does not fail the suite; the decision says what it comes to.
    forgiven = one.standing is Standing.NOT_KNOWN and not one.required
    standing = Standing.GO if forgiven else one.standing
    name = f"{one.part.words} (not required)" if not one.required else one.part.words
    return JUnitCase("decision", name, standing.verdict, tuple(lines))


def _metrics(decision: Decision) -> Iterator[Metric]:
    samples = [({"decision": each.value}, number(float(each is decision.standing))) for each in Standing]
    yield Metric("migverify_decision", "1 for what the decision is, 0 for the others.", samples)
    yield Metric("migverify_decision_part", "1 for what the part comes to, 0 for the others.", [
        ({"part": one.part.value, "decision": each.value, "required": str(one.required).lower()},
         number(float(each is one.standing)))
        for one in decision.parts for each in Standing
    ])  # fmt: skip
    yield Metric("migverify_decision_evidence_age_seconds", "Age of a part's evidence; NaN without any.",
                 [({"part": one.part.value}, number(one.age)) for one in decision.parts])  # fmt: skip
    yield Metric("migverify_decision_timestamp_seconds", "When it was decided.", [({}, number(decision.now))])


def _steps(decision: Decision) -> Iterator[NextStep]:
    """Yield commands that give what is missing, each once."""
    seen: dict[str, str] = {}
    for one in decision.reasons:
        remedy = one.reason.remedy
        if remedy.startswith("migverify "):
            seen.setdefault(remedy, one.part.words)
    for remedy, words in list(seen.items())[:WORST]:
        yield NextStep(remedy, words)
