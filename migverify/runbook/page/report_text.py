"""The report of a run as Markdown, and what its HTML form shares with it: words for times."""

from __future__ import annotations

import time
from collections.abc import Iterator

from migverify.report.marks import visible
from migverify.runbook.history.scores import Score
from migverify.runbook.page.run_report import RunReport, Scores
from migverify.runbook.page.view_steps import StepView

__all__ = ["as_markdown", "cell", "clock_words", "score_words", "utc_words"]

_SIGNS = {
    "done": "✓", "dry": "◇", "failed": "✗", "timed out": "✗", "inconclusive": "?", "unknown": "?", "waived": "≈",
    "not applicable": "-", "pending": "·", "pass": "✓", "fail": "✗", "running": "▶", "verifying": "▶",
    "awaiting review": "◆",
}  # fmt: skip


def clock_words(seconds: float | None) -> str:
    """Spell seconds as ``1:02:03``, or ``2:03`` below an hour; None as a dash. Tenths are cut."""
    if seconds is None:
        return "-"
    whole = int(abs(seconds) + 1e-6)
    hours, minutes = whole // 3600, whole // 60 % 60
    text = f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
    return f"-{text}" if seconds < 0 and whole else text


def utc_words(wall: float | None, *, date: bool = True) -> str:
    """Spell Unix seconds as UTC; None as a dash."""
    if wall is None:
        return "-"
    return time.strftime("%Y-%m-%d %H:%M:%S UTC" if date else "%H:%M:%S", time.gmtime(wall))


def score_words(score: Score) -> str:
    """Spell a score: points of 100, or why there are none."""
    return f"{score.points} of 100" if score.points is not None else f"none: {score.why}"


def cell(text: str) -> str:
    """Return a text fit for a cell of a Markdown table: one line, nothing that ends it or starts HTML."""
    flat = visible(" ".join(text.split()))
    for sign in ("|", "<", "`", "*", "_", "[", "]"):
        flat = flat.replace(sign, "&lt;" if sign == "<" else f"\\{sign}")
    return flat


def as_markdown(report: RunReport) -> str:
    """Return the report as Markdown; it ends with a line break."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: RunReport) -> Iterator[str]:
    seen = report.view
    yield f"# {cell(seen.label)}: {cell(seen.title)}"
    yield ""
    reasons = cell("; ".join(seen.reasons))
    yield f"**{seen.state.upper()}**{f': {reasons}' if reasons else ''}"
    yield ""
    if seen.standing:
        yield f"**Effects that stand, or may stand: {cell(', '.join(seen.standing))}**"
        yield ""
    if seen.unverified:
        yield f"No rollback verifies what these did: {cell(', '.join(seen.unverified))}"
        yield ""
    yield from _facts(report)
    yield from _section("Action items", [
        f"- [ ] {cell(one.text)}{f' ({cell(one.owner)})' if one.owner else ''}" for one in report.items
    ] or ["None."])  # fmt: skip
    if report.scores is not None:
        yield from _section("Scores", list(_scores(report.scores)))
    yield from _section("Steps", list(_steps(report)))
    yield from _section("Evidence and approvals", [line for step in seen.steps for line in _evidence(step)])
    yield from _section("Holds", [
        f"- {clock_words(one.since)} to {'the end' if one.until is None else clock_words(one.until)}, "
        f"by {cell(one.by)}: {cell('; '.join(one.reasons))}" for one in report.holds
    ] or ["None."])  # fmt: skip
    yield from _section("Guards", [
        f"- {cell(one.id)}: {one.state}, {cell(one.text or one.asks)}; answered {one.asked} of {one.due}"
        for one in seen.guards
    ] or ["The runbook has none."])  # fmt: skip
    yield from _section("Announcements", [
        f"- {utc_words(one.at, date=False)} {one.state}: {cell(one.text)}"
        + "".join(f"; {cell(sink.sink)} {sink.state} after {sink.tries} tries: {cell(sink.reason)}"
                  for sink in one.sinks if sink.state != "sent")
        for one in reversed(seen.announcements)
    ] or ["Nothing was announced."])  # fmt: skip
    yield from _section("Journal", list(_journal(report)))
    yield from _section("What happened", [
        f"- {utc_words(one.at, date=False)} {cell(one.text)}" for one in reversed(seen.log)
    ])  # fmt: skip


def _section(title: str, lines: list[str]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield from lines
    yield ""


def _facts(report: RunReport) -> Iterator[str]:
    seen = report.view
    yield "| | |"
    yield "|---|---|"
    yield f"| run | {cell(seen.run)} |"
    yield f"| runbook | {cell(seen.runbook)} {seen.sha[:12]}, text {seen.text_sha[:12]} |"
    yield f"| environment | {cell(seen.environment)}{' (production)' if seen.production else ''} |"
    yield f"| started | {utc_words(seen.started)} |"
    yield f"| ended | {utc_words(seen.ended)} |"
    yield f"| took | {clock_words(seen.clock.at(seen.now))}, planned {clock_words(seen.finish.plan - seen.started)} |"
    yield f"| held | {seen.holds} {'time' if seen.holds == 1 else 'times'}, {clock_words(seen.held.at(seen.now))} |"
    yield f"| steps | {seen.passed} of {seen.applicable} passed |"
    if seen.budget.used is not None:
        yield f"| write stop | {clock_words(seen.budget.used.at(seen.now))} of {clock_words(seen.budget.limit)} |"
    yield f"| approvals | {report.signed} signed, {report.unsigned} not signed |"
    yield ""


def _scores(scores: Scores) -> Iterator[str]:
    for name, score in (("Process", scores.process), ("Correctness", scores.correctness)):
        yield f"- {name}: {score_words(score)}"
        for lost in score.deductions:
            yield f"  - -{lost.points}: {cell(lost.about)} ({cell(', '.join(lost.pieces))})"


def _steps(report: RunReport) -> Iterator[str]:
    yield "| state | step | DRI | reviewer | planned from | began | took | plan | rollback |"
    yield "|---|---|---|---|---:|---:|---:|---:|---|"
    for one in report.view.steps:
        late = " (late)" if one.late else ""
        reviewer = one.reviewer_people[0] if one.reviewer_people else "-"
        again = f", attempt {one.attempt}" if one.attempt > 1 else ""
        yield (
            f"| {_SIGNS.get(one.state, '')} {one.state} | {cell(one.id)}{again} "
            f"| {cell(one.by or (one.dri_people or ('nobody',))[0])} | {cell(reviewer)} "
            f"| {clock_words(one.planned_start)} | {clock_words(one.actual_start)} | {clock_words(one.took)}{late} "
            f"| {clock_words(one.plan)} | {one.undo.state} |"
        )


def _evidence(step: StepView) -> Iterator[str]:
    if not step.evidence and not step.approvals and not step.waiver:
        return
    yield f"- **{cell(step.id)}** {cell(step.title)}"
    for piece in step.evidence:
        if piece.text:
            yield f"  - {piece.source}: {cell(piece.text)}"
        yield from (
            f"  - {_SIGNS.get(one.state, '?')} {one.state}: {cell(one.action)}, {cell(one.text)}"
            for one in piece.checks
        )
    for given in step.approvals:
        signed = "signed" if given.signed else "not signed"
        at = utc_words(given.at, date=False)
        yield f"  - {cell(given.person)} agreed to {given.of} at {at}, {signed}, {given.hash[:12]}"
    if step.waiver:
        yield f"  - waived: {cell(step.waiver)}"


def _journal(report: RunReport) -> Iterator[str]:
    journal = report.view.journal
    told = (
        f"told to the outside at event {journal.told_seq}"
        if journal.told_seq is not None
        else "never told to the outside"
    )
    word = {None: "not checked", True: "verified: chain, hashes, signatures and states", False: "DOES NOT VERIFY"}
    yield f"- {word[report.verified]}"
    yield from (f"- {cell(one)}" for one in report.problems)
    yield f"- events: {journal.seq + 1}, head {journal.head}, {told}"
    yield f"- epoch {report.view.executor.epoch}, taken over {report.takeovers} times"
