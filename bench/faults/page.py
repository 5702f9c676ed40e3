"""docs/faults-benchmark.md from stored results and ``page.md``: the same results give the same bytes."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from bench.faults.cases import EQUAL, Case
from bench.faults.judge import RIGHT, Outcome, Rows
from bench.faults.run import Result, Results, Tool

TEMPLATE = Path(__file__).with_name("page.md")
EXAMPLE = Path(__file__).with_name("adapters") / "reladiff.py"
UNJUDGED = frozenset({Outcome.ERROR, Outcome.NO_VERDICT, Outcome.NOT_SUPPORTED})


def page(results: Results, cases: Sequence[Case]) -> str:
    """Return the Markdown text of the page."""
    faults = [case for case in cases if case.fault != EQUAL]
    equal = [case for case in cases if case.fault == EQUAL]
    return TEMPLATE.read_text(encoding="utf-8").format(
        faults=len(faults), equal=len(equal), **results.servers,
        score="\n".join(_score(results, {case.name for case in equal})),
        tools="\n".join(_tools(results.tools)),
        fault_matrix="\n".join(matrix(results, faults)),
        equal_matrix="\n".join(matrix(results, equal)),
        reasons="\n".join(_reasons(results)),
        example=EXAMPLE.read_text(encoding="utf-8").strip(),
    )  # fmt: skip


def matrix(results: Results, cases: Sequence[Case]) -> list[str]:
    """Return a table of Markdown: a case a line, a tool a column."""
    tools = _ran(results)
    cells = {(result.case, result.tool): result for result in results.results}
    lines = _head("case", "what differs", *tools)
    for case in cases:
        row = [_cell(cells.get((case.name, tool))) for tool in tools]
        lines.append(_row((f"`{case.name}`", case.what, *row)))
    return lines


def _cell(result: Result | None) -> str:
    if result is None:
        return "not run"
    if result.outcome is Outcome.FOUND:
        return {Rows.EXACT: "found, rows exact", Rows.WRONG: "found, rows wrong", Rows.NOT_NAMED: "found"}[result.rows]
    return result.outcome.value if result.outcome is Outcome.EQUAL else f"*{result.outcome.value}*"


def _score(results: Results, equal: set[str]) -> list[str]:
    lines = _head("tool", "right", "faults", "of these, rows exact", "equal pairs", "median seconds")
    for tool in _ran(results):
        own = [result for result in results.results if result.tool == tool]
        faults = [result for result in own if result.case not in equal]
        right = sum(result.outcome in RIGHT for result in own)
        exact = sum(result.rows is Rows.EXACT for result in faults)
        seconds = statistics.median(result.seconds for result in own)
        pairs = _counts(result for result in own if result.case in equal)
        lines.append(_row((tool, f"{right} of {len(own)}", _counts(faults), str(exact), pairs, f"{seconds:.1f}")))
    return lines


def _counts(results: Iterable[Result]) -> str:
    counted = Counter(result.outcome for result in results)
    return ", ".join(f"{outcome.value} {counted[outcome]}" for outcome in Outcome if counted[outcome])


def _tools(tools: Sequence[Tool]) -> list[str]:
    lines = _head("tool", "version", "servers", "settings", "run here")
    for tool in tools:
        ran = f"no: {tool.unavailable}" if tool.unavailable else "yes"
        lines.append(_row((tool.name, tool.version, tool.pair, tool.settings, ran)))
    return lines


def _reasons(results: Results) -> list[str]:
    first: dict[tuple[str, Outcome], Result] = {}
    for result in results.results:
        if result.outcome in UNJUDGED:
            first.setdefault((result.tool, result.outcome), result)
    lines = _head("tool", "outcome", "case", "reason")
    for (tool, outcome), result in first.items():
        reason = result.reason.replace("`", "'") or "none given"
        lines.append(_row((tool, outcome.value, f"`{result.case}`", f"`{reason}`")))
    return lines


def _ran(results: Results) -> list[str]:
    """Return the names of tools that have results, in the order of the tools."""
    ran = {result.tool for result in results.results}
    return [tool.name for tool in results.tools if tool.name in ran]


def _head(*cells: str) -> list[str]:
    return [_row(cells), "|" + "---|" * len(cells)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
