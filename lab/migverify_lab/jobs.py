"""Processes that the lab keeps beside its servers: loads, feeds, and what faults leave running; each until SIGTERM."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

from migverify.errors import UsageError

Job = Callable[[Path, Sequence[str], threading.Event], None]
"""Given the lab's folder, arguments, and what is set when it has to end."""

_JOBS = {
    "bank": "chaos_start:be_bank", "storm": "chaos_statements:be_storm", "report": "chaos_statements:be_report",
    "alter": "chaos_statements:be_alter", "hog": "chaos_statements:be_hog", "readers": "chaos_outside:be_readers",
    "channel": "chaos_channel:be_channel", "shop": "cutover_app:be_shop",
}  # fmt: skip


def command_of(job: str, directory: Path, *arguments: str) -> list[str]:
    """Return the arguments of ``migverify`` that are one of these processes."""
    return ["lab", "job", job, *arguments, "--dir", str(directory)]


def run(directory: Path, name: str, arguments: Sequence[str], ended: threading.Event) -> None:
    """Be one of the processes until it is over.

    Raises
    ------
    UsageError
        there is none of that name.
    """
    if name not in _JOBS:
        raise UsageError(f"no process is called {name!r}", hint="The lab itself runs this command.")
    module, _, function = _JOBS[name].partition(":")
    job: Job = getattr(import_module(f"migverify_lab.{module}"), function)
    job(directory, arguments, ended)
