"""The seam between the tables road and what runs its tasks.

A task and its answer are JSON text. An engine runs ``migverify.tables.work.run_task`` on each task, somewhere:
in a thread here (``local``), or in a Python worker of a Spark executor (``spark``). Because both run that one
function on that one text, they give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Protocol

Secrets = Mapping[str, str]
"""Endpoint name -> password. Handed to an engine apart from the tasks, so that no task text holds a secret."""


class Engine(Protocol):
    """Runs tasks. At most ``slots`` at a time are worth submitting; more wait inside the engine."""

    name: str
    slots: int

    def submit(self, task: str) -> Future[str]:
        """Run one task; the future gives its JSON answer or raises a ``MigverifyError``."""
        ...

    def cancel(self) -> None:
        """Stop what runs as soon as the servers allow; futures end with an error. Returns at once."""
        ...

    def close(self) -> None:
        """Release threads, connections and sessions; waits for what runs."""
        ...
