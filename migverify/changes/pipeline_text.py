"""The audit of a pipeline as text for a terminal, and as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from migverify import codec
from migverify.changes.carriers.base import tso_time
from migverify.changes.pipeline import Finding, PipelineReport
from migverify.changes.traffic import SIZES, PartitionTraffic, TransactionSizes

_TABLES = 40


def render_json(report: PipelineReport) -> str:
    """Return the report as JSON text of ASCII characters, ending in a newline."""
    document = codec.encode(report)
    for part, traffic in zip(document["partitions"], report.partitions, strict=True):
        part["rows_per_second"] = traffic.rows_per_second
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def render_text(report: PipelineReport) -> str:
    """Return the report as lines: verdict, questions, tables that differ first, partitions, transaction sizes."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: PipelineReport) -> Iterator[str]:
    yield f"{report.verdict}  pipeline"
    yield ""
    yield from _columns([["", "value", "limit", "", ""], *(_finding(finding) for finding in report.findings)])
    if report.tables:
        yield ""
        differing = sorted(report.tables, key=lambda row: (row.source in (None, row.carried), row.table))
        rows = [[row.table, *map(_number, (row.source, row.carried, row.applied))] for row in differing[:_TABLES]]
        yield from _columns([["table", "source", "carried", "applied"], *rows])
        if len(differing) > _TABLES:
            yield f"and {len(differing) - _TABLES} tables more"
    if report.partitions:
        yield ""
        rows = [_partition(part) for part in report.partitions]
        yield from _columns([["partition", "rows", "rows/s", "end", "applied", "pending"], *rows])
    yield ""
    named = [["transactions", "", "of 1 row", *(f"to {most}" for most in SIZES[1:]), "larger", "largest"]]
    if report.source_sizes is not None:
        named.append(_sizes("source", report.source_sizes))
    named.append(_sizes("carried", report.carried_sizes))
    yield from _columns(named)
    complete_to, voided = report.completeness.complete_to, report.completeness.voided
    yield ""
    moment = "unknown" if complete_to is None else datetime.fromtimestamp(tso_time(complete_to), UTC).isoformat(" ")
    yield f"complete up to {moment}" + ("" if complete_to is None else f" (TSO {complete_to})")
    yield from (f"void: {reason}" for reason in voided)


def _finding(finding: Finding) -> list[str]:
    value, limit = _number(finding.value), _number(finding.limit)
    return [finding.name, value, limit, finding.unit, f"{finding.outcome}  {finding.reason}".rstrip()]


def _partition(part: PartitionTraffic) -> list[str]:
    return [
        f"{part.topic}/{part.partition}",
        *map(_number, (part.rows, part.rows_per_second, part.end, part.applied, part.pending)),
    ]


def _sizes(name: str, sizes: TransactionSizes) -> list[str]:
    return [name, *map(_number, (sizes.count, *sizes.classes, sizes.largest))]


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Align: the first column and texts to the left, numbers to the right."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.ljust(width) if at == 0 or not _is_number(cell) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _is_number(cell: str) -> bool:
    return cell == "-" or cell.replace(".", "", 1).replace("-", "", 1).isdigit()
