"""Options that several commands of the lab share, and the servers that they name."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import say
from migverify.errors import UsageError
from migverify.signals import ENDING, SignalEvent

if TYPE_CHECKING:
    from migverify_lab.session import LabServer

LabFolder = Annotated[
    Path | None,
    typer.Option("--dir", help="Folder of the lab's state. [default: .migverify-lab]", envvar="MIGVERIFY_LAB_DIR",
                 show_default=False),
]  # fmt: skip
SourceServer = Annotated[
    str, typer.Option("--source", metavar="HOST:PORT", help="Source instead of the lab's; user root, no password.")
]
TargetServer = Annotated[
    str, typer.Option("--target", metavar="HOST:PORT", help="Target instead of the lab's; user root, no password.")
]
TargetKind = Annotated[str, typer.Option("--target", help="tidb, or mysql: a second MySQL as a stand-in.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Seed = Annotated[int, typer.Option(help="The same seed on the same data gives the same result.")]
Dud = Annotated[
    str,
    typer.Option("--dud", metavar="inject|remove|none", help="Of these two commands, the one that does nothing and says"
                 " it did: a case has to notice."),
]  # fmt: skip


def lab_folder(chosen: Path | None) -> Path:
    """Return the lab's folder."""
    from migverify_lab import servers

    return servers.lab_directory(chosen)


def lab_pair(directory: Path | None, source: str, target: str) -> tuple[LabServer, LabServer]:
    """Return the servers that were named, or those of the running lab."""
    from migverify_lab import servers

    if source and target:
        return servers.named_server(source), servers.named_server(target)
    pair = servers.running_servers(servers.lab_directory(directory))
    return (
        servers.named_server(source) if source else pair.source,
        servers.named_server(target) if target else pair.target,
    )


def is_dud(dud: str, what: str) -> bool:
    """Return whether a command has to do nothing; raises UsageError for another word."""
    if dud not in ("none", "inject", "remove"):
        raise UsageError(f"--dud {dud}", hint="It is inject, remove or none.")
    return dud == what


def progress() -> Callable[[str], None]:
    """Return a function that prints a line to standard error with the seconds since now."""
    started = time.monotonic()

    def tell(line: str) -> None:
        say(f"[{time.monotonic() - started:6.1f}s] {line}")

    return tell


def signal_event() -> SignalEvent:
    """Return an event that SIGINT and SIGTERM set."""
    ended = SignalEvent()
    for number in ENDING:
        signal.signal(number, lambda *_: ended.set())
    return ended
