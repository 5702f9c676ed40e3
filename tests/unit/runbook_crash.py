"""A run that is killed at a stated point, and people who bring it to its end whatever state they find it in.

The point stands in RUNBOOK_TEST_CRASH: ``<when>:<number>``. ``when`` is ``commit`` or ``committed`` (either side
of the end of that transaction), ``before`` or ``after`` (that effect, or undoing of one). Numbers count from 0.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument, Context, Outcome, Registry
from migverify.runbook.events import RollbackState, RunState, StepState
from migverify.runbook.kinds import RunKind
from migverify.runbook.record.lease import RunLease, take
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from tests.unit.runbook_places import place
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, here, runbook, step

VARIABLE = "RUNBOOK_TEST_CRASH"


class Killer:
    """Kills this process at the point that the environment names; counts the points either way."""

    def __init__(self) -> None:
        when, _, number = os.environ.get(VARIABLE, "").partition(":")
        self.when, self.number = when, int(number or -1)
        self.counts = dict.fromkeys(("commit", "committed", "before", "after"), 0)

    def here(self, when: str) -> bool:
        self.counts[when] += 1
        return self.when == when and self.counts[when] - 1 == self.number

    @staticmethod
    def kill() -> None:
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)


def die_at_commits(room: RunStore, killer: Killer) -> None:
    """Put a killer on both sides of the end of every transaction."""
    dialect: Any = room.database.engine.dialect
    really = dialect.do_commit

    def commit(connection: Any) -> None:
        if killer.here("commit"):
            killer.kill()
        really(connection)
        if killer.here("committed"):
            killer.kill()

    dialect.do_commit = commit


class Outside:
    """A world on the disk: flags are files, and every effect is a line of a log."""

    def __init__(self, folder: Path, killer: Killer) -> None:
        self.folder, self.killer = folder, killer
        folder.mkdir(parents=True, exist_ok=True)

    def is_set(self, name: str) -> bool:
        return (self.folder / name).exists()

    def log(self) -> list[str]:
        path = self.folder / "effects.log"
        return path.read_text().splitlines() if path.exists() else []

    def _do(self, what: str, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
        name = arguments["name"]
        if self.killer.here("before"):
            self.killer.kill()
        with (self.folder / "effects.log").open("a") as file:
            file.write(f"{what} {name}\n")
        if what == "set":
            (self.folder / name).touch()
        else:
            (self.folder / name).unlink(missing_ok=True)
        if self.killer.here("after"):
            self.killer.kill()
        return ActionResult(Outcome.OK, what, value=True)

    def registry(self) -> Registry:
        name = (Argument("name", "text", "A flag.", required=True),)
        return Registry([
            Action("world.set", ActionKind.EFFECT, "", name, lambda a, c: self._do("set", a, c)),
            Action("world.unset", ActionKind.EFFECT, "", name, lambda a, c: self._do("unset", a, c)),
            Action("world.is", ActionKind.CHECK, "", name,
                   lambda a, _c: ActionResult(Outcome.OK, "", self.is_set(a["name"]))),
            Action("world.is_not", ActionKind.CHECK, "", name,
                   lambda a, _c: ActionResult(Outcome.OK, "", not self.is_set(a["name"]))),
        ])  # fmt: skip


def book() -> Any:
    # `a` has a probe, `b` is decided by two persons; `c` is never started.
    return runbook(step("a"), step("b", reconcile=None), step("c"))


def created(folder: Path, killer: Killer) -> RunRecord:
    home = place(folder / "runs")
    die_at_commits(home, killer)
    return home.create(book(), RunKind.REHEARSAL, "alice", run="r1")


def opened(folder: Path, killer: Killer) -> RunRecord:
    home = place(folder / "runs")
    die_at_commits(home, killer)
    return home.open("r1")


def begin(folder: Path, killer: Killer) -> tuple[RunRecord, Executor, RunLease]:
    record = created(folder, killer)
    keeper = take(record, "alice")
    executor = Executor(record, Outside(folder / "world", killer).registry(), keeper, carry=here)
    executor.recover()
    return record, executor, keeper


def people_act(record: RunRecord, outside: Outside) -> bool:
    """Have somebody do the next thing that people have to do; returns whether there was one."""
    status = record.status
    if status.order is not None or status.over:
        return False
    if status.steps["b"].state is StepState.DONE:
        failed = [one for one in status.steps.values() if one.rollback is RollbackState.FAILED]
        for actor in (DANA, ALICE) if failed else (DANA,):
            record.submit(lambda s, n, a=actor: machine.rollback(s, a, n, "the end of the test"))  # type: ignore[misc]
        return True
    for id_ in ("a", "b"):
        one = status.steps[id_]
        if one.state is StepState.UNKNOWN and one.handled:
            for actor in (ALICE, CAROL):
                happened = outside.is_set(id_)
                record.submit(lambda s, n, a=actor, h=happened, i=id_: machine.decide(s, a, i, n, "looked", happened=h))  # type: ignore[misc]
            return True
        if one.state in (StepState.FAILED, StepState.TIMED_OUT, StepState.INCONCLUSIVE) and one.handled:
            if status.state is RunState.HELD:
                record.submit(lambda s, n: machine.resume(s, ALICE, n))
            record.submit(lambda s, n, i=id_: machine.retry(s, ALICE, i, n))  # type: ignore[misc]
            return True
        if status.state is RunState.HELD and not any(s.state is StepState.UNKNOWN for s in status.steps.values()):
            record.submit(lambda s, n: machine.resume(s, ALICE, n))
            return True
        said = {StepState.READY: (machine.call, ALICE), StepState.CALLED: (machine.start, BOB),
                StepState.AWAITING_REVIEW: (machine.accept, CAROL)}.get(one.state)  # fmt: skip
        if said is not None:
            record.submit(lambda s, n, i=id_, w=said: w[0](s, w[1], i, n))  # type: ignore[misc, operator]
            return True
    return False


def to_the_end(record: RunRecord, executor: Executor, outside: Outside) -> None:
    until = time.monotonic() + 60
    while not record.status.over:
        if time.monotonic() > until:
            raise AssertionError(f"stuck: {[(s.id, s.state, s.rollback) for s in record.status.steps.values()]}")
        moved = executor.tick()
        if not moved and not len(executor.bench) and not people_act(record, outside):
            time.sleep(0.001)


def run_until_killed(folder: Path) -> dict[str, int]:
    """Run it all; returns how often each point was passed when nothing killed it."""
    killer = Killer()
    record, executor, keeper = begin(folder, killer)
    to_the_end(record, executor, Outside(folder / "world", killer))
    keeper.end()
    return killer.counts


def take_over(folder: Path, killer: Killer | None = None) -> tuple[RunRecord, Executor]:
    """Open what a dead process left, take it over, and say which effects nobody knows about."""
    killer = killer or Killer()
    record = opened(folder, killer)
    if record.status.executor:
        record.submit(lambda s, n: machine.takeover(s, CAROL, n, "killed"))
    keeper = take(record, "bob", reason="killed")
    executor = Executor(record, Outside(folder / "world", killer).registry(), keeper, carry=here)
    executor.recover()
    return record, executor


def go_on_until_killed(folder: Path) -> dict[str, int]:
    """Take over what a dead process left, and bring it to its end; returns how often each point was passed."""
    killer = Killer()
    record, executor = take_over(folder, killer)
    to_the_end(record, executor, Outside(folder / "world", killer))
    executor.lease.end()
    return killer.counts
