"""Captures without files and servers without sockets of their own, for tests of planning and playing."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from migverify.errors import EndpointError
from migverify.model import Flavor, Side
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.engine import Engine, Start
from migverify.workload.replay.model import Answer, AnswerColumn, Call, JudgedCall
from migverify.workload.replay.outcomes import Outcomes, judged
from migverify.workload.replay.plan import COLUMNS, ReplayPlan, read_plan
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import Leave

START = 1_767_323_045_000_000

Script = Callable[[Side, Call, int], Answer | None]
"""Side, call and how often this text was asked there -> the answer; None loses the connection."""


def row(session: str, position: int, sql: str, at: int, took: int = 10, **more: Any) -> dict[str, object]:
    """One statement as a capture's columns tell it; microseconds after ``START``."""
    return {
        "session": session, "position": position, "command": "query", "sql": sql.encode(), "database": "d",
        "user": "app", "start": START + at, "end": START + at + took, "errno": 0, "partial": "", "state": "",
        "in_transaction": False, "source_file": "f", "source_line": position, **more,
    }  # fmt: skip


def reader(rows: Sequence[dict[str, object]], size: int = 3) -> Callable[..., Iterator[dict[str, list[object]]]]:
    """Return what reads these rows, in small batches."""

    def read(folder: Path, columns: Sequence[str]) -> Iterator[dict[str, list[object]]]:
        del folder
        for first in range(0, len(rows), size):
            yield {name: [one.get(name) for one in rows[first : first + size]] for name in columns}

    return read


def planned(rows: Sequence[dict[str, object]], folder: Path, **more: Any) -> ReplayPlan:
    """Plan rows into the run file of a folder."""
    return read_plan(folder, folder, reader(rows), **more)


def value(text: str) -> Answer:
    """A result of one row."""
    column = AnswerColumn(b"v", b"v", b"t", 3, 63, 11, 0, 0)
    mark = hash(text) & 0xFFFF
    return Answer(columns=(column,), rows=((text.encode(),),), row_count=1, ordered=text.encode(), unordered=mark)


class FakeWire:
    """A wire whose server is a function; its answer is there at once, unless ``wait`` holds it back."""

    def __init__(self, server: FakeServers, side: Side, number: int) -> None:
        self.side, self.flavor, self.closed, self.deadline = side, Flavor.MYSQL, "", None
        self.thread_id, self.version, self.writing = number, "8.0", False
        self._server = server
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._fileno = self._ours.fileno()
        self._answer: Answer | None = None

    def fileno(self) -> int:
        return self._fileno

    def send(self, call: Call, *, prepared: bool = False) -> None:
        self._server.on_send(self, call)
        self._server.prepared += [call.sql.decode()] if prepared else []
        self._server.sent.append((self.side, call.session, call.position, call.sql.decode()))
        self._answer = self._server.answer(self.side, call)
        delay = self._server.delays.get(call.sql.decode(), 0.0)
        if delay:
            threading.Timer(delay, self._theirs.send, [b"!"]).start()
        else:
            self._theirs.send(b"!")

    def receive(self) -> Answer | None:
        try:
            self._ours.recv(1)
        except BlockingIOError:
            return None
        if self._answer is None:
            self.closed = "connection lost"
            self._release()
            return Answer(unanswered="connection lost")
        return self._answer

    def close(self) -> None:
        if not self.closed:
            self.closed = "closed"
            self._release()

    def _release(self) -> None:
        self._server.on_close(self)
        self._server.open.discard(self)
        self._ours.close()
        self._theirs.close()


class FakeServers:
    """Both sides. ``sent`` is everything that was sent, in order; ``most`` the most connections at once of one side."""

    def __init__(self, script: Script | None = None, refuse: Sequence[Side] = ()) -> None:
        self.sent: list[tuple[Side, str, int, str]] = []
        self.open: set[FakeWire] = set()
        self.prepared: list[str] = []
        self.most = self.opened = 0
        self.delays: dict[str, float] = {}
        self._script = script or (lambda _side, _call, _times: value("1"))
        self._refuse = refuse
        self._times: dict[tuple[Side, bytes], int] = {}
        self._lock = threading.Lock()

    def answer(self, side: Side, call: Call) -> Answer | None:
        """Say what a server says."""
        if call.sql.startswith((b"SET ", b"USE ", b"BEGIN", b"COMMIT")) and b"FAIL" not in call.sql:
            return Answer()
        times = self._times[side, call.sql] = self._times.get((side, call.sql), 0) + 1
        return self._script(side, call, times)

    def connect(self, side: Side) -> Any:
        """Open a wire."""
        if side in self._refuse:
            raise EndpointError(f"{side.value} refuses")
        with self._lock:
            self.opened += 1
            wire = FakeWire(self, side, self.opened)
            self.open.add(wire)
            self.most = max(self.most, sum(one.side is side for one in self.open))
            return wire

    def on_send(self, wire: FakeWire, call: Call) -> None:
        """See what is sent, before it is answered."""

    def on_close(self, wire: FakeWire) -> None:
        """See a connection end."""

    def calls(self, side: Side = Side.TARGET) -> list[tuple[str, int]]:
        """Session and position of what was asked, without what the replay says itself."""
        own = ("SET ", "USE ", "SHOW WARNINGS")
        return [
            (session, position) for at, session, position, sql in self.sent if at is side and not sql.startswith(own)
        ]


def engine(
    folder: Path, servers: FakeServers, options: EngineOptions, *, target_only: bool = False
) -> tuple[Engine, list[JudgedCall]]:
    """Replay the plan of a folder on fakes; return the engine and what its run file holds, the first to end first."""
    ended: list[JudgedCall] = []
    with RunFile(folder) as run:
        sides = [Side.TARGET] if target_only else [Side.SOURCE, Side.TARGET]
        made = Engine(
            run, run.sessions(), dict.fromkeys(sides, servers.connect), Outcomes(folder), options,
            Start(time.monotonic_ns()), on_judged=ended.append,
        )  # fmt: skip
        made.run()
        assert not servers.open
        kept = {(one.session, one.position): one for _, one in judged(run)}
        assert len(kept) == len(ended)
        return made, [kept[one.session, one.position] for one in ended]


WRITES = Leave(writes=True)
__all__ = ["COLUMNS", "WRITES", "FakeServers", "engine", "planned", "reader", "row", "value"]
