"""Sinks for tests: a real HTTP server that answers as it is told, and runs driven with their outbox."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from migverify.runbook.announce import moments as announce
from migverify.runbook.announce.moments import Announcement
from migverify.runbook.announce.sinks import Message, SinkError
from migverify.runbook.definition.forecast import Drills
from migverify.runbook.events import Event
from migverify.runbook.fold.table import fold
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.journal_file import read_events
from migverify.runbook.record.lease import take
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.runbook.state import RunStatus
from tests.unit.runbook_runs import Room, here

KEY = "T0123456/B0123456/abcdefghijklmnopqrstuvwx"
"""What is secret of a webhook's URL."""


class Hook:
    """A webhook on this machine. ``answers`` are used up one by one, then it says 200."""

    def __init__(self, *answers: int | Callable[[], int], headers: dict[str, str] | None = None, port: int = 0) -> None:
        self.answers, self.headers = list(answers), headers or {}
        self.got: list[str] = []
        self.refused: list[str] = []
        self.requests: list[Any] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                text = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"]
                hook.requests.append((self.path, dict(self.headers)))
                answer = hook.answers.pop(0) if hook.answers else 200
                status = answer if isinstance(answer, int) else answer()
                (hook.got if status == 200 else hook.refused).append(text)
                self.send_response(status)
                for name, value in hook.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(f"said to {self.path}".encode())

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: Any) -> None:
                """A client that went away is part of the tests."""

        self.server = Server(("127.0.0.1", port), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True, kwargs={"poll_interval": 0.01}).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/services/{KEY}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@contextmanager
def hook(*answers: int | Callable[[], int], **more: Any) -> Iterator[Hook]:
    made = Hook(*answers, **more)
    try:
        yield made
    finally:
        made.close()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Scripted:
    """A sink that does what it is told: an exception is raised, a function is called; then all is taken."""

    def __init__(self, name: str, *answers: SinkError | Callable[[], None], timeout: float = 10.0) -> None:
        self.name, self.timeout = name, timeout
        self.answers = list(answers)
        self.got: list[Message] = []
        self.tried: list[Message] = []

    def send(self, message: Message, canceled: threading.Event) -> None:  # noqa: ARG002 - the protocol's
        self.tried.append(message)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, SinkError):
            raise answer
        if answer is not None:
            answer()
        self.got.append(message)


class Loud(Room):
    """A room whose executor announces, tick by tick, in the test's own thread."""

    def __init__(self, folder: Path, book: Runbook, kind: RunKind = RunKind.REHEARSAL, **more: Any) -> None:
        super().__init__(folder, book, kind, **more)
        self.sinks: tuple[Any, ...] | None = None

    def man(self, person: str = "alice", reason: str = "", drill: str = "3/4") -> Executor:
        self.lease = take(self.record, person, reason=reason, watch=self.watch)
        self.executor = Executor(self.record, self.world.registry(), self.lease, drills=Drills(drill), carry=here)
        if self.sinks is not None:
            self.executor.outbox = type(self.executor.outbox)(self.record, self.lease, self.sinks, drills=Drills(drill))
        self.executor.recover()
        return self.executor

    def deliver(self, until: Callable[[RunStatus], bool] | None = None, seconds: float = 20.0) -> None:
        """Tick the outbox until everything has been sent or given up, or as said."""
        assert self.executor is not None
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.executor.outbox.tick()
            if (until or settled)(self.status):
                return
            time.sleep(0.002)
        raise AssertionError(f"not delivered: {self.status.deliveries}")


def settled(status: RunStatus) -> bool:
    return all(one.state.value in ("sent", "given up") for one in status.deliveries.values())


def told(path: Path, drill: str = "3/4") -> list[tuple[Event, Announcement]]:
    """Return what the events of a journal give to say."""
    found: list[tuple[Event, Announcement]] = []
    before = None
    for event in read_events(path):
        after = fold([event], before)
        assert after is not None
        found += [(event, one) for one in announce.announcements(before, event, after, Drills(drill))]
        before = after
    return found


def step_through(room: Room, id_: str) -> None:
    """Call, start, end and accept a step, with an outbox tick between any two words."""
    from tests.unit.runbook_runs import ALICE, BOB, CAROL

    room.say(machine.call, ALICE, id_)
    room.say(machine.start, BOB, id_)
    room.settle()
    room.say(machine.accept, CAROL, id_)
    room.settle()
