"""``migverify changes audit --pipeline``: audits the pipeline that carries changes from the source to the target."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.changes_carrier_options import CarrierOptions, with_carrier
from migverify.cli.console import JsonOption, examples
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.changes.pipeline import PartitionTraffic, PipelineFinding, PipelineReport, TransactionSizes

_TABLES = 40
EPILOG = examples(
    "migverify changes audit --pipeline --kafka broker:9092 --topic shop --format canal-json --group applier",
    "migverify changes audit --pipeline --file events.json --format debezium --types types.json --json",
)


@with_carrier
def pipeline(
    carrier: CarrierOptions,
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="Consumer group of the applier: what it has applied.")
    ] = "",
    binlog: Annotated[
        list[Path] | None,
        typer.Option("--binlog", metavar="FILE", help="Binlog file of the source, to count what it wrote."),
    ] = None,
    dead_letters: Annotated[
        Path | None, typer.Option("--dead-letters", metavar="FILE", help="Keep what cannot be decoded in this file.")
    ] = None,
    lag: Annotated[float, typer.Option("--lag", metavar="SECONDS", help="Most seconds of lag.")] = 30.0,
    pending: Annotated[
        float, typer.Option("--pending", metavar="SECONDS", help="Most seconds that a change waits.")
    ] = 60.0,
    skew: Annotated[
        float, typer.Option("--skew", metavar="TIMES", help="Most rows of a partition, in means of all.")
    ] = 3.0,
    single_rows: Annotated[
        float, typer.Option("--single-rows", metavar="SHARE", help="Most rows written one by one, 0 to 1.")
    ] = 0.5,
    as_json: JsonOption = False,
) -> None:
    """Audit a change pipeline: lag, skew, batching, order, duplicates, rows in = rows carried = rows applied.

    Reads from the first message that is kept to the last of now and commits no offset. Exits with 0 when every question
    passed, 1 when one failed, 3 when one could not be answered.
    """
    from migverify.changes.carriers.dead_letters import DeadLetterFile
    from migverify.changes.carriers.kafka import committed
    from migverify.changes.pipeline import PipelineLimits, audit, count_binlog, measure

    if group and not carrier.kafka:
        raise UsageError("--group needs --kafka")
    source = carrier.source()
    source.format.parser()  # what is wrong with the options is said before a broker is asked
    # Before the ends of the partitions: a change that is applied meanwhile counts as pending, never the other way.
    applied = committed(source.kafka.resolve(), group, source.topics) if group and source.kafka else None
    messages = source.carrier()
    wrote = count_binlog(binlog) if binlog else None
    facts = measure(messages, applied, wrote, None if dead_letters is None else DeadLetterFile(dead_letters))
    report = audit(facts, PipelineLimits(lag, pending_seconds=pending, skew=skew, single_row_share=single_rows))
    typer.echo(render_json(report) if as_json else render_text(report), nl=False)
    raise typer.Exit(int(report.verdict.exit_code))


def render_json(report: PipelineReport) -> str:
    """Return the report as JSON text of ASCII characters, ending in a newline."""
    from migverify import codec
    from migverify.model import judged_document

    document = codec.encode(report)
    for part, traffic in zip(document["partitions"], report.partitions, strict=True):
        part["rows_per_second"] = traffic.rows_per_second
    return json.dumps(judged_document(document, ()), indent=2, allow_nan=False) + "\n"


def render_text(report: PipelineReport) -> str:
    """Return the report as lines: verdict, questions, tables that differ first, partitions, transaction sizes."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: PipelineReport) -> Iterator[str]:
    from migverify.changes.pipeline import SIZES
    from migverify.changes.positions import tso_time

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


def _finding(finding: PipelineFinding) -> list[str]:
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
