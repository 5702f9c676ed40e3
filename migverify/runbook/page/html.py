"""The pages that are files: the report of a run and the checklist of a runbook as HTML that holds everything.

Names and values are hostile until escaped: the environment is that of all other reports, which escapes every
expression, and a content security policy admits the page's own style by its hash and nothing else.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from markupsafe import Markup

from migverify.report.html import asset as report_asset
from migverify.report.html import environment, policy
from migverify.runbook.page.checklist import Checklist
from migverify.runbook.page.report_text import clock_words, utc_words
from migverify.runbook.page.run_report import RunReport
from migverify.runbook.page.serve import asset
from migverify.runbook.page.view_steps import StepView

__all__ = ["checklist_html", "report_html", "report_policy"]

_SYMBOLS = {"match": "✓", "mismatch": "✗", "inconclusive": "?"}
_STEPS = {
    "done": "match", "failed": "mismatch", "timed out": "mismatch", "inconclusive": "mismatch", "unknown": "mismatch",
    "waived": "inconclusive", "awaiting review": "inconclusive",
}  # fmt: skip
_SIGNS = {
    "done": "✓", "pass": "✓", "failed": "✗", "fail": "✗", "timed out": "✗", "inconclusive": "?", "unknown": "?",
    "waived": "≈", "running": "▶", "verifying": "▶", "awaiting review": "◆", "dry": "◇",
}  # fmt: skip


def report_html(report: RunReport) -> str:
    """Return the report as one page; it is complete without a script, and prints."""
    view = report.view
    tone = "mismatch" if view.over and view.state != "dry" else "inconclusive"
    if view.state == "completed" or (view.state == "rolled back" and not view.failures):
        tone = "match"
    elif view.state == "rolled back":
        tone = "inconclusive"
    made: str = _template("report.html.j2").render(
        report=report, view=view, tone=tone, symbol=_SYMBOLS[tone], lane=lane, lane_end=_lane_end(report),
        style=Markup(_style()), policy=report_policy(),  # noqa: S704 - our own files, hashed into the policy
    )  # fmt: skip
    return made


def checklist_html(paper: Checklist) -> str:
    """Return the checklist as one page to be printed."""
    made: str = _template("checklist.html.j2").render(
        book=paper.runbook, kind=paper.kind.value, people=paper.people, times=paper.times, guards=paper.guards,
        phases=paper.phases, style=Markup(_style()), policy=report_policy(),  # noqa: S704 - our own files, hashed
    )  # fmt: skip
    return made


def report_policy() -> str:
    """Return the content security policy of the report and the checklist."""
    return policy(_style())


@cache
def _style() -> str:
    return report_asset("page.css") + asset("report.css")


@cache
def _template(name: str) -> Any:
    own = environment().overlay()
    own.filters = {
        **own.filters, "span": clock_words, "utc_words": utc_words, "sign": lambda state: _SIGNS.get(state, "·"),
        "tone": lambda step: _STEPS.get(step.state, "plain"),
    }  # fmt: skip
    return own.from_string(asset(name))


def _lane_end(report: RunReport) -> float:
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
        parts.append(box("actual", step.actual_start, last, 4, 12))
    if step.planned_start is not None and step.planned_finish is not None:
        parts.append(box("planned", step.planned_start, step.planned_finish, 2, 16))
    return Markup(
        '<svg class="lane" viewBox="0 0 1000 20" preserveAspectRatio="none" aria-hidden="true">{}</svg>'
    ).format(Markup("").join(parts))
