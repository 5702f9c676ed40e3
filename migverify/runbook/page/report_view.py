"""The report of a run of a runbook as sections, test cases and metrics, from what ``run_report`` found."""

from __future__ import annotations

from collections.abc import Iterator

from markupsafe import Markup

from migverify.figures import plural
from migverify.model import Verdict
from migverify.report.model import (
    Block,
    Code,
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
)
from migverify.runbook.history.scores import Score
from migverify.runbook.page.metrics import run_metrics
from migverify.runbook.page.run_report import RunReport, report_as_json
from migverify.runbook.page.view_clock import clock_words, utc_words
from migverify.runbook.page.view_steps import StepView, evidence_lines

__all__ = ["as_report"]

_VERDICTS = {"match": Verdict.MATCH, "mismatch": Verdict.MISMATCH, "inconclusive": Verdict.INCONCLUSIVE}
_TONES = {
    "done": "match", "pass": "match", "sent": "match", "failed": "mismatch", "timed out": "mismatch",
    "fail": "mismatch",
    "inconclusive": "mismatch", "unknown": "mismatch", "given up": "mismatch", "waived": "inconclusive",
    "awaiting review": "inconclusive", "bad": "mismatch", "good": "match",
}  # fmt: skip
_STEP_COLUMNS = (
    TableColumn("State"), TableColumn("Step"), TableColumn("DRI"), TableColumn("Reviewer"),
    TableColumn("Planned and actual"), TableColumn("Began", number=True), TableColumn("Took", number=True),
    TableColumn("Plan", number=True), TableColumn("Rollback"),
)  # fmt: skip


def as_report(report: RunReport) -> Report:
    """Return the report of a run, ready to be rendered."""
    view = report.view
    tone = "mismatch" if view.over and view.state != "dry" else "inconclusive"
    if view.state == "completed" or (view.state == "rolled back" and not view.failures):
        tone = "match"
    elif view.state == "rolled back":
        tone = "inconclusive"
    label = f"{view.label}{', autopilot' if view.autopilot else ''}"
    return Report(
        view.run, f"runbook {label} {view.environment} {view.run}", _VERDICTS[tone], view.title,
        f"{label}: {view.title}", view.state.upper(), tone, reasons=tuple(_reasons(report)), started=view.started,
        seconds=view.clock.at(view.now), tiles=tuple(_tiles(report)), cards=tuple(_cards(report)),
        sections=tuple(_sections(report)), cases=tuple(map(_case, view.steps)),
        metrics=tuple(run_metrics(view, view.now)), document=report_as_json(report),
    )  # fmt: skip


def _reasons(report: RunReport) -> Iterator[str]:
    view = report.view
    yield from view.reasons
    if view.standing:
        yield f"Effects that were not rolled back, or may not be: {', '.join(view.standing)}"
    if view.unverified:
        yield f"No rollback verifies what these did: {', '.join(view.unverified)}"
    if not view.over:
        yield f"The run is not over: this is its state at {utc_words(view.now)}."


def _tiles(report: RunReport) -> Iterator[Tile]:
    view, budget = report.view, report.view.budget
    yield Tile(f"{view.passed} / {view.applicable}", "steps passed")
    planned = clock_words(view.finish.plan - view.started)
    yield Tile(clock_words(view.clock.at(view.now)), f"{'it took' if view.over else 'so far'}, planned {planned}")
    if budget.used is not None:
        tone = "mismatch" if budget.state == "spent" or budget.left_stopped else (
            "match" if budget.state == "over" else "inconclusive"
        )  # fmt: skip
        more = "; nothing shows that they are open again" if budget.left_stopped else ""
        words = f"writes stopped, of {clock_words(budget.limit)}{more}"
        yield Tile(clock_words(budget.used.at(view.now)), words, tone)
    held = f"held, {view.holds} {plural(view.holds, 'time')}"
    yield Tile(clock_words(view.held.at(view.now)), held, "inconclusive" if view.holds else "none")
    failures = len(report.failures)
    yield Tile(str(failures), plural(failures, "failure"), "mismatch" if failures else "none")
    announced = f"undelivered of {len(view.announcements)} announced"
    yield Tile(str(view.undelivered), announced, "mismatch" if view.undelivered else "none")
    given = f"{report.signed} / {report.signed + report.unsigned}"
    yield Tile(given, "approvals signed", "inconclusive" if report.unsigned else "none")
    words, tone = ("verified", "match") if report.verified else ("damaged", "mismatch")
    yield Tile(words, "journal", tone)


def _cards(report: RunReport) -> Iterator[tuple[str, tuple[Fact, ...]]]:
    view = report.view
    window = f"{utc_words(view.finish.opens)} to {utc_words(view.finish.closes, date=False)}: {view.finish.window}"
    yield "run", (
        Fact("run", view.run), Fact("started", utc_words(view.started)), Fact("ended", utc_words(view.ended)),
        Fact("kind", f"{view.kind} in {view.environment}{' (production)' if view.production else ''}"),
        *([Fact("window", window)] if view.finish.closes is not None else []),
    )  # fmt: skip
    yield "runbook", (Fact("id", view.runbook), Fact("sha", view.sha[:24]), Fact("text", view.text_sha[:24]))
    yield (
        "people",
        tuple(Fact(role, f"{person}{f' (backup {backup})' if backup else ''}") for role, person, backup in view.people),
    )


def _sections(report: RunReport) -> Iterator[Section]:
    view, end = report.view, _end(report)
    items = tuple(f"[ ] {one.source}: {one.text}{f' ({one.owner})' if one.owner else ''}" for one in report.items)
    yield Section("Action items", (Lines(items or ("None.",), style="items"),), id="items")
    titles = {"process": "Process: how people worked", "correctness": "Correctness: whether it was right"}
    yield Section("Scores", tuple(_score(titles[name], one) for name, one in report.scores.items()), id="scores")
    note = f"Outlined: planned. Filled: actual. The lane is {clock_words(end)} long, from the start of the run."
    rows = tuple(_step(one, end) for one in view.steps)
    yield Section("Steps", (Table(_STEP_COLUMNS, rows, note=note, style="steps"),), id="steps")
    yield Section("Evidence and approvals", tuple(_evidence(report)), id="evidence")
    holds = tuple(
        f"{clock_words(one.since)} to {'the end' if one.until is None else clock_words(one.until)}, by {one.by}:"
        f" {'; '.join(one.reasons)}"
        for one in report.holds
    )
    yield Section("Holds", (Lines(holds or ("None.",)),), id="holds")
    columns = (*map(TableColumn, ("State", "Guard", "Last answer", "Asks")), TableColumn("Answered", number=True))
    guards = tuple((_state(one.state), one.id, one.text, one.asks, f"{one.asked} of {one.due}") for one in view.guards)
    none = Lines(("The runbook has none.",))
    yield Section("Guards", (Table(columns, guards) if guards else none,), id="guards")
    yield Section("Announcements", (_announcements(report),), id="said")
    yield _journal(report)
    events = tuple(
        (utc_words(one.at, date=False), TableCell(one.text, _TONES.get(one.weight, ""))) for one in reversed(view.log)
    )
    yield Section("What happened", (Table((TableColumn("UTC"), TableColumn("Event")), events, named=-1),), id="log")


def _score(title: str, score: Score) -> Section:
    points = f"{score.points} of 100" if score.points is not None else f"No score: {score.why}"
    lost = tuple(f"-{one.points}: {one.about} ({', '.join(one.pieces)})" for one in score.deductions)
    return Section(title, (Lines((points, *lost)),))


def _state(state: str) -> TableCell:
    return TableCell(state, _TONES.get(state, "none"), badge=True)


def _step(one: StepView, end: float) -> Row:
    notes = [one.title, f"attempt {one.attempt}" if one.attempt > 1 else ""]
    notes.append(pnr_words(one.point_of_no_return) if one.point_of_no_return else "")
    took = TableCell(f"{clock_words(one.took)}{' late' if one.late else ''}", "mismatch" if one.late else "")
    undo = "" if one.undo.state == "none needed" else one.undo.state
    return (
        _state(one.state), TableCell(one.id, notes=tuple(filter(None, notes))),
        one.by or (one.dri_people or ("nobody",))[0], one.reviewer_people[0] if one.reviewer_people else "",
        TableCell(f"planned from {clock_words(one.planned_start)}", svg=lane(one, end)), clock_words(one.actual_start),
        took, clock_words(one.plan), TableCell(undo, notes=tuple(filter(None, (one.undo.reason,)))),
    )  # fmt: skip


def pnr_words(kind: str) -> str:
    """Return the words for a point of no return: what going back from it costs."""
    return "point of no return (data loss)" if kind == "soft" else "point of no return"


def _evidence(report: RunReport) -> Iterator[Block]:
    for one in report.view.steps:
        if one.evidence or one.approvals or one.waiver or one.reason:
            yield Section(one.id, tuple(_pieces(one)), badge=one.state, tone=_TONES.get(one.state, "none"),
                          summary=one.title, folded=True)  # fmt: skip
    again = tuple(f"{one.step}, attempt {one.attempt}: {one.state}, {one.reason}" for one in report.attempts)
    yield Lines(again, "attempts that were repeated")


def _pieces(one: StepView) -> Iterator[Block]:
    yield Lines(tuple(filter(None, (one.reason, one.waiver and f"waived: {one.waiver}"))), style="reasons")
    for piece in one.evidence:
        shown, _, details = "\n".join(evidence_lines(piece)).partition("\n    ")
        yield Lines(tuple(shown.splitlines()))
        if details:
            yield Code(piece.details)
    facts = [Fact("evidence hash", one.evidence_sha)] if one.evidence_sha else []
    for given in one.approvals:
        answer, reason = f" ({given.answer})" if given.answer else "", f": {given.reason}" if given.reason else ""
        signed = "signed" if given.signed else "not signed"
        at = utc_words(given.at, date=False)
        words = f"approved {given.of}{answer} at {at}, {signed}, hash {given.hash[:24]}{reason}"
        facts.append(Fact(given.person, words))
    yield FactList(tuple(facts))


def _announcements(report: RunReport) -> Block:
    rows = tuple(
        (utc_words(one.at, date=False), TableCell(one.text, "mismatch" if one.state in ("failed", "given up") else ""),
         "; ".join(f"{sink.sink}: {sink.state}{f' after {sink.tries}: {sink.reason}' if sink.reason else ''}"
                   for sink in one.sinks))
        for one in reversed(report.view.announcements)
    )  # fmt: skip
    columns = tuple(map(TableColumn, ("UTC", "Text", "Delivery")))
    return Table(columns, rows, named=-1) if rows else Lines(("Nothing was announced.",))


def _journal(report: RunReport) -> Section:
    view, journal = report.view, report.view.journal
    verified = "verified: chain, hashes, signatures and states" if report.verified else "DOES NOT VERIFY"
    published = f"{journal.told} at event {journal.told_seq}" if journal.told_seq is not None else "never"
    facts = (
        Fact("verified", verified), Fact("events", str(journal.seq + 1)), Fact("head", journal.head),
        Fact("published", published),
        Fact("epoch", f"{view.executor.epoch}, taken over {report.takeovers} {plural(report.takeovers, 'time')}"),
        *(Fact("warning", one.text) for one in view.warnings),
    )  # fmt: skip
    return Section("Journal", (Lines(report.problems, style="reasons"), FactList(facts)), id="journal")


def _case(one: StepView) -> JUnitCase:
    tone = _TONES.get(one.state, "")
    verdict = _VERDICTS.get(tone, Verdict.MATCH if one.state in ("dry", "not applicable") else Verdict.INCONCLUSIVE)
    lines = tuple(filter(None, (one.state, one.reason, one.waiver and f"waived: {one.waiver}")))
    return JUnitCase(f"runbook.{one.phase}", one.id, verdict, lines, one.took or 0.0)


def _end(report: RunReport) -> float:
    view = report.view
    return max(view.finish.plan - view.started, view.clock.at(view.now), 1.0)


def lane(step: StepView, end: float) -> Markup:
    """Return planned and actual time of a step as a bar over the length of the run, in seconds."""

    def box(kind: str, first: float, last: float, y: int, height: int) -> Markup:
        x, width = 1000 * first / end, max(3.0, 1000 * (last - first) / end)
        return Markup('<rect class="{}" x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>').format(
            kind, x, y, width, height
        )

    parts = [Markup('<rect class="track" width="1000" height="20"/>')]
    if step.actual_start is not None:
        last = step.actual_finish if step.actual_finish is not None else end
        parts.append(box(f"actual {_TONES.get(step.state, '')}", step.actual_start, last, 4, 12))
    if step.planned_start is not None and step.planned_finish is not None:
        parts.append(box("planned", step.planned_start, step.planned_finish, 2, 16))
    return Markup(
        '<svg class="lane" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))
