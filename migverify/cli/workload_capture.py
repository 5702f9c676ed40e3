"""``migverify workload capture``: logs and packets become statements; ``capture-quality``: what they are worth."""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import EngineName, examples, say
from migverify.cli.progress import LiveLine
from migverify.errors import ExitCode, UsageError
from migverify.figures import amount

if TYPE_CHECKING:
    from migverify.workload.capture import CaptureInput, CaptureOptions, CaptureSummary

EPILOG = examples(
    "migverify workload capture slow.log slow.log.1 --out capture",
    "migverify workload capture audit/*.log --format audit --by-folder --out capture --mask",
    "migverify workload capture s3://bucket/logs/slow.log.1 --out capture",
    "migverify workload capture payments.pcap --port 3306 --out capture --json",
    "migverify workload capture logs/* --engine spark --spark-master spark://host:7077 --jobs 16 --out capture",
)
QUALITY_EPILOG = examples(
    "migverify workload capture --quality capture",
    "migverify workload capture --quality capture --json | jq .findings",
)


class FormatName(StrEnum):
    """What ``--format`` takes."""

    AUTO = "auto"
    SLOW = "slow"
    GENERAL = "general"
    AUDIT = "audit"
    DAS = "das"
    PCAP = "pcap"
    POLLED = "polled"


def capture(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE|URL...", help="Files in any order, or fsspec URLs; gzip is fine.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="A folder that is not there yet.")],
    form: Annotated[
        FormatName, typer.Option("--format", help="What the files are; auto: recognized by their first bytes.")
    ] = FormatName.AUTO,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The server's port in packets.")] = 3306,
    time_zone: Annotated[
        str,
        typer.Option(
            metavar="ZONE", help="The server's, for local times in logs: a name (Europe/Berlin) or an offset (+08:00)."
        ),
    ] = "+00:00",
    server: Annotated[
        str, typer.Option(metavar="NAME", help="The server the files come from, where they do not name it.")
    ] = "",
    by_folder: Annotated[
        bool, typer.Option("--by-folder", help="Every folder of files is a server of its own, by the folder's name.")
    ] = False,
    mask: Annotated[
        bool, typer.Option("--mask", help="Replace every string and number in a statement, and its comments.")
    ] = False,
    engine: Annotated[
        EngineName, typer.Option(help="Where files are read: in this process and --jobs others, or by tasks of Spark.")
    ] = EngineName.LOCAL,
    spark_master: Annotated[
        str | None, typer.Option("--spark-master", metavar="URL", help="Where Spark runs; default: on this machine.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Worker processes, or tasks of Spark, at the same time; default: as many as there are cores.",
        ),
    ] = None,
    replace_capture: Annotated[bool, typer.Option("--replace", help="Replace the capture that DIR holds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Read logs, packets or audit files into Parquet: one row for each statement, in its session.

    Every byte ends in a statement, a counted reject or the format's own noise. Exit 3: no statement was found.
    """
    from migverify.workload.capture import CaptureOptions
    from migverify.workload.opening import Opening, zone_of

    if server and by_folder:
        raise UsageError("--server and --by-folder contradict each other.", hint="Choose one.")
    options = CaptureOptions(out, replace=replace_capture)
    if mask:
        from migverify.workload.mask import mask_statement, mask_text

        options = CaptureOptions(out, replace=replace_capture, mask=mask_statement, text_mask=mask_text)
    if spark_master is not None and engine is not EngineName.SPARK:
        raise UsageError("--spark-master needs --engine spark.", hint="Add it.")
    opening = Opening(form.value, port, zone_of(time_zone), server, by_folder=by_folder)
    jobs = jobs or len(os.sched_getaffinity(0))
    summary = _run(opening.inputs(files), options, engine=engine, master=spark_master, jobs=jobs, quiet=as_json)
    if as_json:
        typer.echo(json.dumps(summary.as_json()))
    else:
        _tell(summary)
    if not summary.statements:
        say("no statement was found.")
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))


def _run(
    inputs: list[CaptureInput], options: CaptureOptions, *, engine: EngineName, master: str | None, jobs: int,
    quiet: bool,
) -> CaptureSummary:  # fmt: skip
    from migverify.workload.capture import capture as run
    from migverify.workload.lines import size_of
    from migverify.workload.tasks import Processes

    line = CaptureLine(sum(size_of(str(one.path)) for one in inputs), quiet=quiet)
    try:
        if engine is EngineName.SPARK:
            from migverify.spark.capture_tasks import capture_on_spark

            return capture_on_spark(inputs, options, master, slots=jobs, progress=line)
        with Processes(jobs) as tasks:
            return run(inputs, options, tasks, line)
    finally:
        line.clear()


class CaptureLine(LiveLine):
    """Shows bytes read, then statements written, and the rate: live on a terminal, every so often in a log."""

    def __init__(self, size: int, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._size = size

    def __call__(self, read: int, written: int) -> None:
        """Take what was read and written so far."""
        if not self._due():
            return
        seconds = self._last - self._started
        text = f"{read / 1e6:,.0f} of {self._size / 1e6:,.0f} MB read, {read / 1e6 / seconds:,.0f} MB/s"
        if written:
            text = f"{text}; {amount(written, 'statement')} written"
        self._tell(text)


def _tell(summary: CaptureSummary) -> None:
    from migverify.workload.capture import time_text

    typer.echo(
        f"{summary.out}: {amount(summary.statements, 'statement')} in {amount(summary.sessions, 'session')}"
        f" from {summary.bytes:,} bytes of {len(summary.files)} file{'' if len(summary.files) == 1 else 's'}"
    )
    if summary.first is not None and summary.last is not None:
        typer.echo(f"  from {time_text(summary.first)} to {time_text(summary.last)}")
    typer.echo(f"  rejected: {summary.rejected:,} pieces of the files, {summary.rejected_bytes:,} bytes")
    for reason, count in summary.rejects.most_common():
        typer.echo(f"    {count:>9,}  pieces: {reason}")
    if summary.duplicates:
        typer.echo(f"  in several files, kept once: {summary.duplicates:,} records")
        for file in summary.files:
            if file.duplicates:
                typer.echo(f"    {file.duplicates:>9,}  {file.file}")
    typer.echo(f"  partial: {amount(summary.partial_statements, 'statement')}")
    for reason, count in summary.partial.most_common():
        typer.echo(f"    {count:>9,}  {reason}")


def capture_quality(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A capture.")],
    sessions: Annotated[
        list[Path] | None,
        typer.Option("--sessions", metavar="FILE", help="What `workload sessions` wrote while it ran; repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what a capture is worth: gaps in time, cut and partial statements, rejects, known outcomes, clocks.

    Exit 3: it holds no statement that can be judged.
    """
    from migverify.workload.quality import judge, quality_text
    from migverify.workload.server_sessions import read_sessions

    quality = judge(folder, [read_sessions(one) for one in sessions or ()])
    typer.echo(json.dumps(quality.as_json()) if as_json else quality_text(quality))
    if not quality.usable:
        raise typer.Exit(int(ExitCode.INCONCLUSIVE))
