"""The replicator for tests and drills: over the lab's servers on a thread, or as a process of its own to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import migverify
import migverify_lab
from migverify.changes.model import Item, Position
from migverify.changes.server import source_state
from migverify.changes.source import read_server
from migverify.db.session import open_session
from migverify.errors import LabError
from migverify.model import Endpoint, Side
from migverify_lab.replicator import Replicator, ReplicatorOptions
from migverify_lab.replicator_stream import OpenStream
from migverify_lab.replicator_target import place, read_checkpoint
from migverify_lab.servers import LabServer
from migverify_lab.session import connect

HEARTBEAT_SECONDS = 1.0


def source_position(source: LabServer) -> Position:
    """Return where the source's binlog ends now: file, offset and executed set."""
    with open_session(_endpoint(source), None, side=Side.SOURCE) as session:
        state = source_state(session)
    return Position(state.end.file, state.end.offset, state.executed if state.gtids else "")


def source_stream(source: LabServer) -> OpenStream:
    """Return what begins the change stream of a lab server behind a position."""

    def begin(since: Position) -> Iterator[Item]:
        return read_server(_endpoint(source), None, since, follow=True, heartbeat_seconds=HEARTBEAT_SECONDS)

    return begin


def _endpoint(server: LabServer) -> Endpoint:
    return Endpoint("source", server.host, server.port, server.user)


def make_replicator(source: LabServer, options: ReplicatorOptions, **callbacks: Callable[[Any], None]) -> Replicator:
    """Return a replicator of a lab server's changes; ``callbacks`` are ``on_fault`` and ``on_status``."""
    return Replicator(options, source_stream(source), lambda: source_position(source), **callbacks)


@contextmanager
def running_replicator(source: LabServer, options: ReplicatorOptions) -> Iterator[Replicator]:
    """Run a replicator on a thread for a block.

    Raises
    ------
    MigverifyError
        what made the replicator end.
    """
    replicator = make_replicator(source, options)
    replicator.start()
    try:
        yield replicator
    except BaseException:
        replicator.end()
        raise
    replicator.stop()


class ReplicatorProcess:
    """The command ``migverify lab replicator`` as a process.

    Parameters
    ----------
    arguments
        Further arguments of the command, such as ``("--fault", "skip:100")``.
    """

    def __init__(
        self, source: LabServer, target: LabServer, databases: Sequence[str], name: str, arguments: Sequence[str] = ()
    ) -> None:
        self.target = target
        self.name = name
        self.command = [
            sys.executable, "-m", "migverify", "lab", "replicator", "--source", str(source), "--target", str(target),
            "--name", name, "--databases", ",".join(databases), *arguments,
        ]  # fmt: skip
        self.faults_done: list[dict[str, Any]] = []
        self.ending: dict[str, Any] = {}
        self.messages: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start it. A process that was killed goes on at its checkpoint."""
        roots = {str(Path(module.__file__ or "").parents[1]) for module in (migverify, migverify_lab)}
        path = os.pathsep.join(filter(None, (*sorted(roots), os.environ.get("PYTHONPATH", ""))))
        self._process = subprocess.Popen(  # noqa: S603 - our own command
            self.command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        readers = ((self._process.stdout, self._read_line), (self._process.stderr, self.messages.append))
        self._threads = [threading.Thread(target=_read, args=reader, daemon=True) for reader in readers]
        for thread in self._threads:
            thread.start()

    def _read_line(self, line: str) -> None:
        document = json.loads(line)
        if "fault" in document:
            self.faults_done.append(document)
        else:
            self.ending = document

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """End it as a lost machine would: SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as Ctrl-C does; returns its exit code."""
        return self._end(signal.SIGINT)

    def _end(self, number: signal.Signals) -> int:
        if self._process is None:
            raise LabError("the replicator was not started", hint="Call start() first.")
        if self.running:
            self._process.send_signal(number)
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired as error:
            self._process.kill()
            raise LabError("the replicator did not end within 60 s", hint="".join(self.messages[-5:])) from error
        for thread in self._threads:
            thread.join(10)
        return code

    def wait_until(self, at: Position, seconds: float = 60.0) -> None:
        """Wait until its checkpoint has reached a position of the source; see ``wait_applied``."""
        try:
            wait_applied(self.target, self.name, at, seconds, lambda: self.running)
        except LabError as error:
            raise LabError(error.message, hint="".join(self.messages[-8:]).strip() or error.hint) from error


def _read(stream: IO[str], take: Callable[[str], None]) -> None:
    for line in stream:
        take(line)


def wait_applied(
    target: LabServer, name: str, at: Position, seconds: float = 60.0, alive: Callable[[], bool] = lambda: True
) -> None:
    """Wait until a replicator's checkpoint on the target has reached a position.

    Raises
    ------
    LabError
        not in time, or the replicator ended.
    """
    limit = time.monotonic() + seconds
    with connect(target) as connection:
        while True:
            living = alive()
            found = read_checkpoint(connection, name)
            if found is not None and place(found.at) >= place(at):
                return
            here = None if found is None else found.at
            if not living:
                raise LabError(f"the replicator {name} ended at {here}, before {at}", hint="Look at its messages.")
            if time.monotonic() > limit:
                raise LabError(f"the replicator {name} is at {here}, not at {at}, after {seconds:g} s",
                               hint="It may be stalled, or the machine too slow.")  # fmt: skip
            time.sleep(0.1)
