"""Killed at any point and resumed: no write is carried out twice, nothing is missed, reads count as in one run."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.model import Side
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.engine import Engine, Start
from migverify.workload.replay.model import Call, Judgement
from migverify.workload.replay.outcomes import Outcomes
from migverify.workload.replay.pace import Pace, PaceKind
from migverify.workload.replay.run import fold, prepare
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.touches import TableKeys
from tests.unit.replay_fakes import WRITES, FakeServers, FakeWire, planned, row

OPTIONS = EngineOptions(pace=Pace(PaceKind.FAST), rereads=0, connections=3, writes=True, grace=0.0)


class KilledError(BaseException):
    """The process is gone."""


class Databases(FakeServers):
    """Both sides, which carry writes out: in a transaction at its COMMIT, others at once."""

    def __init__(self) -> None:
        super().__init__()
        self.done: Counter[tuple[Side, str]] = Counter()
        self._open: dict[FakeWire, list[str]] = {}
        self.left = -1
        self.after = False
        self.outcomes: Outcomes | None = None

    def on_send(self, wire: FakeWire, call: Call) -> None:
        """Carry a statement out, or die in front of it or behind it."""
        dies = self.left == 0
        self.left -= 1
        if not dies or self.after:
            self._carry_out(wire, call.sql.decode())
        if dies:
            if self.outcomes is not None:  # what the process had not committed is gone
                self.outcomes.intents.clear()
                self.outcomes.ends.clear()
            raise KilledError

    def _carry_out(self, wire: FakeWire, sql: str) -> None:
        if sql == "BEGIN":
            self._open[wire] = []
        elif sql == "COMMIT":
            self.done.update((wire.side, one) for one in self._open.pop(wire, []))
        elif sql.startswith("UPDATE"):
            if wire in self._open:
                self._open[wire].append(sql)
            else:
                self.done[wire.side, sql] += 1

    def on_close(self, wire: FakeWire) -> None:
        """Roll back."""
        self._open.pop(wire, None)


def rows() -> list[dict[str, object]]:
    found = []
    for session in range(3):
        texts = [
            "SELECT 1", "BEGIN", "UPDATE t SET v = {n} WHERE id = 1", "SELECT v FROM t WHERE id = {s}",
            "UPDATE t SET v = {n} WHERE id = {s}", "COMMIT", "UPDATE t SET v = {n} WHERE id = {s}", "SELECT 2",
        ]  # fmt: skip
        for position, sql in enumerate(texts):
            text = sql.format(n=session * 10 + position, s=session + 5)
            at = session * 35 + position * 100
            found.append(row(f"s{session}", position, text, at, in_transaction=2 <= position <= 5))
    return found


def play(folder: Path, servers: Databases, *, resume: bool) -> None:
    with RunFile(folder) as run:
        prepare(run, resume=resume)
        servers.outcomes = Outcomes(folder)
        sides = {Side.SOURCE: servers.connect, Side.TARGET: servers.connect}
        Engine(run, run.sessions(), sides, servers.outcomes, OPTIONS, Start(time.monotonic_ns())).run()


@settings(max_examples=12)
@given(first=st.integers(0, 60), second=st.integers(0, 60), after=st.booleans())
def test_killed_anywhere_nothing_runs_twice(
    tmp_path_factory: pytest.TempPathFactory, first: int, second: int, after: bool
) -> None:
    folder = tmp_path_factory.mktemp("crash")
    plan = planned(
        rows(), folder, leave=WRITES, keys={"d.t": TableKeys(("id",), integers=frozenset({"id"}), clocked=False)}
    )
    servers = Databases()
    servers.after = after
    kills = 0
    for left in (first, second, -1):
        servers.left = left
        try:
            play(folder, servers, resume=kills > 0)
            break
        except KilledError:
            kills += 1
    with RunFile(folder) as run:
        tally = fold(run)
    assert tally.count == plan.calls  # each call has one end, and only one
    assert all(times == 1 for times in servers.done.values()), servers.done
    unjudged = tally.state(Judgement.UNJUDGED)
    # a write or a commit that was under way in each of the sessions, at each kill; nothing else
    assert unjudged <= 3 * kills
    assert tally.state(Judgement.SAME) == plan.calls - unjudged
    reads = [one for one in tally.digests.values() if one.kind == "read"]
    assert sum(one.state(Judgement.SAME) for one in reads) == sum(one.count for one in reads) == 9
    if not unjudged:
        assert len(servers.done) == 2 * 9  # every write, on both sides
