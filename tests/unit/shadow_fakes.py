"""A shadow replay of a log in a folder on servers without sockets of their own, at a time that a test moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from migverify.model import Side
from migverify.watch.applied import Applied
from migverify.workload.formats.general import GeneralLog
from migverify.workload.replay.assumed import SessionFacts
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.shadow.again import AskedAgain
from migverify.workload.shadow.ask import ReadAsker
from migverify.workload.shadow.book import ShadowBook
from migverify.workload.shadow.budget import RateLimit, TargetGovernor
from migverify.workload.shadow.file import ShadowChanges, ShadowFile
from migverify.workload.shadow.log import LogPosition, LogTail
from migverify.workload.shadow.progress import TargetProgress
from migverify.workload.shadow.reads import KnownKeys, LiveSessions, ReadChooser
from migverify.workload.shadow.status import ShadowStatus
from migverify.workload.shadow.watch import ShadowOptions, ShadowWatch
from tests.unit.replay_fakes import FakeServers

START = 1_767_323_045_000_000
"""When the first statement of a log ran, Unix microseconds."""


class Clock:
    """A clock that a test moves."""

    def __init__(self, now: float = START / 1e6) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeApplied(Applied):
    """What the target has applied, as a test says: ``behind`` samples are not on it yet."""

    proof: bool = True
    behind: int = 0
    samples: int = 0

    def sample(self, source: object) -> int:
        del source
        self.samples += 1
        return self.samples

    def reached(self, target: object) -> tuple[int | None, str]:
        del target
        return self.samples - self.behind, ""


class NoOwnConnections:
    """No statement of the log is the replay's own."""

    def refresh(self, now: float) -> None:
        del now

    def rows(self) -> list[tuple[int, float, float | None]]:
        return []


@dataclass
class Shadow:
    """One process of a shadow replay after the other, on one folder."""

    folder: Path
    servers: FakeServers = field(default_factory=FakeServers)
    applied: FakeApplied = field(default_factory=FakeApplied)
    clock: Clock = field(default_factory=Clock)
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.folder / "general.log"

    def write(self, *lines: str, at: int = 0, session: int = 3) -> None:
        """Append statements that ran so many microseconds after the start, and a millisecond after each other."""
        with self.log.open("ab") as file:
            for number, sql in enumerate(lines):
                file.write(general_line(START + at + 1_000 * number, session, "Query", sql))

    def connect(self, session: int = 3, database: str = "d") -> None:
        """Append the beginning of a session."""
        with self.log.open("ab") as file:
            file.write(general_line(START - 1_000, session, "Connect", f"app@web1 on {database} using TCP/IP"))

    def process(self, *, wires: Any = None) -> ShadowWatch:
        """Begin, or go on, as a process does."""
        file = ShadowFile(self.folder / "run", create=True)
        begun, options = file.fact("since"), {"connections": 2, **self.more}
        body = file.fact("position")
        engine = EngineOptions(connections=options["connections"])
        open_wires = wires or dict.fromkeys(Side, self.servers.connect)
        made = ShadowWatch(
            ShadowOptions("run", str(self.log), options.get("max_lag"), once=True),
            LogTail(self.log, GeneralLog(), None if body is None else LogPosition.from_json(body), self.clock),
            LiveSessions(connects=True),
            ReadChooser(SessionFacts(), KnownKeys(lambda _: {}), unseen=False, share=options.get("share", 1.0)),
            ReadAsker(open_wires, engine),
            AskedAgain(delay=1.0, patience=options.get("patience", 30.0), proof=self.applied.proof),
            ShadowBook(file, options.get("keep", 48)), file,
            TargetProgress(self.applied, no_session, no_session, clock=self.clock),
            RateLimit(options.get("rate"), self.clock),
            TargetGovernor(engine.connections, options.get("target_seconds", 0.0), self.clock), NoOwnConnections(),
            clock=self.clock,
        )  # fmt: skip
        if begun is None:
            file.commit(ShadowChanges(facts={"since": 0}))
        else:
            made.restore()
        return made

    def run(self, *, turns: int = 40, step: float = 1.0) -> ShadowStatus:
        """Follow the log to its end, as one process; return the last status."""
        made = self.process()
        try:
            for _ in range(turns):
                made.record(made.check(lambda: False))
                ending = made.ending()
                if ending is not None:
                    return made.status(ending)
                self.clock.now += step
            return made.status()
        finally:
            made.close()
            made.file.close()


class NoSession:
    """A session that is never used."""

    def close(self) -> None:
        pass


def no_session() -> Any:
    """Return a session of no server."""
    return NoSession()


def general_line(moment: int, session: int, command: str, text: str) -> bytes:
    """Return a record of a general log."""
    from tests.unit.log_writers import iso

    return b"%s\t%5d %s\t%s\n" % (iso(moment), session, command.encode(), text.encode())
