"""A folder that processes of the lab share: documents, processes that were started and are found again, one lock.

Every command is a process of its own and knows only what is in this folder and what it sees of servers and processes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from migverify.errors import LabError
from migverify_lab.cache import file_lock, make_directory
from migverify_lab.process import ProcessId, is_alive, spawn, stop, tail

POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Proof:
    """What was seen: ``good`` is None where it could not be seen, which proves nothing."""

    good: bool | None
    text: str
    facts: dict[str, Any] = field(default_factory=dict)

    def and_also(self, other: Proof) -> Proof:
        """Return the other proof with what this one saw before it."""
        return Proof(other.good, f"{self.text}; {other.text}", self.facts | other.facts)


class Workspace:
    """A shared folder; made when it is first used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()

    @property
    def folder(self) -> Path:
        """The folder."""
        return make_directory(self._folder)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workspace) and other._folder == self._folder

    def __hash__(self) -> int:
        return hash(self._folder)

    # --- documents ----------------------------------------------------------------------------------------------

    def read(self, name: str) -> dict[str, Any] | None:
        """Return a document of the folder; None where there is none."""
        path = self._folder / f"{name}.json"
        try:
            found: dict[str, Any] = json.loads(path.read_text())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise LabError(f"{path} is damaged: {error}", hint="Remove it.") from None
        return found

    def write(self, name: str, document: Mapping[str, Any]) -> None:
        """Keep a document; a reader sees the old or the new one, never half of it."""
        path = self.folder / f"{name}.json"
        make_directory(path.parent)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        partial.replace(path)

    def lock(self) -> Any:
        """Return the lock that one command at a time holds while it changes something."""
        return file_lock(self.folder / "lock", seconds=300.0)

    # --- processes ----------------------------------------------------------------------------------------------

    def start_job(self, name: str, arguments: Sequence[str], *, command: Sequence[str] = ()) -> ProcessId:
        """Start a process that stays: ``migverify`` with arguments, or a command.

        Raises
        ------
        LabError
            one of that name runs, or it ends at once.
        """
        if self.job(name) is not None:
            raise LabError(f"{name} runs already", hint="Stop it first.")
        folder = make_directory(self.folder / "jobs")
        process = spawn([*(command or (sys.executable, "-m", "migverify")), *arguments], folder / f"{name}.log", folder)
        self.write(f"jobs/{name}", asdict(process))
        return process

    def job(self, name: str) -> ProcessId | None:
        """Return a process that was started, as long as it lives."""
        found = self.read(f"jobs/{name}")
        process = ProcessId(**found) if found else None
        return process if process is not None and is_alive(process) else None

    def stop_job(self, name: str, seconds: float = 20.0) -> bool:
        """End a process that was started; returns whether it ran."""
        process = self.job(name)
        return process is not None and stop(process, seconds)

    def job_log(self, name: str) -> str:
        """Return the end of what a process said."""
        return tail(self._folder / "jobs" / f"{name}.log")

    def jobs(self) -> list[str]:
        """Return the names of the processes that live."""
        names = sorted(path.stem for path in (self._folder / "jobs").glob("*.json"))
        return [name for name in names if self.job(name) is not None]


def until(look: Callable[[], Proof], seconds: float) -> Proof:
    """Look until it is good, or the time is over; the last look is the answer. A server's error proves nothing."""
    import pymysql

    deadline = time.monotonic() + seconds
    while True:
        try:
            found = look()
        except (LabError, OSError, pymysql.err.MySQLError) as error:
            found = Proof(None, f"could not be seen: {error}".replace("\n", " "))
        if found.good or time.monotonic() >= deadline:
            return found
        time.sleep(POLL_SECONDS)


def signal_all(processes: Sequence[ProcessId], number: signal.Signals) -> int:
    """Send a signal to exactly these processes; returns how many were there."""
    sent = 0
    for process in processes:
        if is_alive(process):
            os.kill(process.pid, number)
            sent += 1
    return sent


def is_gone(process: ProcessId, seconds: float) -> bool:
    """Wait until a process has ended; False where it has not in time."""
    deadline = time.monotonic() + seconds
    while is_alive(process):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
    return True
