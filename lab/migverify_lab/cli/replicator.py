"""``migverify lab replicator``: a small MySQL-to-TiDB applier for rehearsals, with faults to switch on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import examples, say
from migverify.errors import ExitCode, UsageError
from migverify.signals import ENDING, SignalEvent, handled
from migverify_lab.cli.options import LabFolder, SourceServer, TargetServer, lab_pair

if TYPE_CHECKING:
    from migverify.changes.model import Position
    from migverify_lab.replicator import Replicator, ReplicatorStatus
    from migverify_lab.replicator_faults import FaultDone
    from migverify_lab.servers import LabServer

EPILOG = examples(
    "migverify lab replicator --databases pay",
    "migverify lab replicator --databases pay --fault skip:at=500,table=payments",
    "migverify lab replicator --databases pay --since binlog.000003:157 --fault drop-column:every=1000,column=state",
)
STATUS_SECONDS = 5.0
FILE_SECONDS = 1.0


def replicator(
    databases: Annotated[str, typer.Option(help="Databases to replicate, separated by commas.")],
    since: Annotated[
        str, typer.Option(metavar="POSITION", help="Begin here, not at the checkpoint: file:offset, GTID set, or now.")
    ] = "",
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="KIND[:ARG]", help="Do something wrong; repeatable. See docs/lab.md."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses rows and columns of the faults.")] = 1,
    name: Annotated[str, typer.Option(help="Its row in the checkpoint table.")] = "lab",
    checkpoint: Annotated[
        Path | None, typer.Option("--checkpoint", metavar="FILE", help="Write the applied position there too, as JSON.")
    ] = None,
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
) -> None:
    """Apply the source's changes to the target until Ctrl-C. For rehearsals only.

    Prints each fault that it does as one JSON line, and at the end one line with what differs because of them.
    """
    from migverify_lab.replicator import BANNER, ReplicatorOptions
    from migverify_lab.replicator_process import make_replicator, source_position
    from migverify_lab.replicator_rules import parse_fault

    names = tuple(part.strip() for part in databases.split(",") if part.strip())
    if not names:
        raise UsageError("no database to replicate", hint="For example: --databases pay")
    faults = tuple(parse_fault(text) for text in fault or ())
    source_server, target_server = lab_pair(directory, source, target)
    say(BANNER)
    options = ReplicatorOptions(
        target_server, names, name=name, since=_position(since, source_server) if since else None,
        faults=faults, seed=seed,
    )  # fmt: skip
    teller = _Teller(checkpoint)
    running = make_replicator(source_server, options, on_fault=teller.fault, on_status=teller.status)
    say(f"{source_server} -> {target_server}, databases {', '.join(names)}, from "
        f"{options.since or f'the checkpoint of {name!r}, or now at {source_position(source_server)}'}")  # fmt: skip
    _run(running)
    teller.ending(running)
    if running.status.stopped_at:
        say(f"stopped before a DDL: {running.status.stopped_at[:300]}")
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _position(text: str, server: LabServer) -> Position:
    from migverify.changes.positions import parse_position
    from migverify_lab.replicator_process import source_position

    return source_position(server) if text == "now" else parse_position(text)


def _run(running: Replicator) -> None:
    """Run until the stream's end or a signal to end."""
    stopped = SignalEvent()
    with handled(ENDING, lambda _: stopped.set()):
        running.start()
        while running.running and not stopped.wait(0.1):
            pass
        running.stop()


class _Teller:
    """Prints what happens: faults to standard output, figures to standard error, the position to a file."""

    def __init__(self, checkpoint: Path | None) -> None:
        self._file = checkpoint
        self._reported_at = time.monotonic()
        self._written = 0.0
        self._changes = 0

    def fault(self, done: FaultDone) -> None:
        print(json.dumps(done.as_dict(), ensure_ascii=False), flush=True)  # noqa: T201 - one whole line at once

    def status(self, status: ReplicatorStatus) -> None:
        now = time.monotonic()
        if now - self._written >= FILE_SECONDS:
            self._write(status)
            self._written = now
        if now - self._reported_at < STATUS_SECONDS:
            return
        rate = (status.changes - self._changes) / (now - self._reported_at)
        say(f"at {status.at}, {status.changes} row changes, {rate:.0f}/s, {status.batches} batches")
        self._reported_at, self._changes = now, status.changes

    def ending(self, running: Replicator) -> None:
        from migverify_lab.replicator_faults import difference_dict

        status = running.status
        self._write(status)
        typer.echo(json.dumps({
            "applied": str(status.at), "gtids": status.at.gtids if status.at else "",
            "transactions": status.transactions, "changes": status.changes, "batches": status.batches,
            "faults": running.injector.counts(), "healed": running.injector.healed,
            "standing": [difference_dict(found) for found in running.injector.standing()],
        }, ensure_ascii=False))  # fmt: skip

    def _write(self, status: ReplicatorStatus) -> None:
        if self._file is None or status.at is None:
            return
        document: dict[str, Any] = {
            "file": status.at.file, "offset": status.at.offset, "gtids": status.at.gtids, "time": status.time
        }  # fmt: skip
        partial = self._file.with_name(f".{self._file.name}.new")
        partial.write_text(json.dumps(document) + "\n")
        partial.replace(self._file)
