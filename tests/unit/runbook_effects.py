"""Effects in processes of their own, and executors that are killed while one is under way."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from migverify.runbook.actions.action import Registry
from migverify.runbook.actions.builtin import built_in
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.definition.load import load_runbook
from migverify.runbook.events import EventKind, StepState
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Check, Effect, Rollback, Runbook, Step
from migverify.runbook.record.lease import take
from migverify.runbook.record.process_lock import EffectFiles, _processes
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from migverify.runbook.run.autopilot import PilotedExecutor
from migverify.runbook.run.executor import Executor
from migverify.runbook.state import RunStatus
from tests.unit.runbook_runs import ALICE, BOB, CAROL, replace, runbook, step
from tests.waiting import wait_for


def hook(code: str) -> list[str]:
    """Return a program as an effect has it."""
    return [sys.executable, "-u", "-c", f"import os, subprocess, sys, time\nfrom pathlib import Path\n{code}"]


def is_there(path: Path, *, there: bool = True) -> Check:
    return Check(action="command.exit", arguments={"argv": ["test", *(() if there else ("!",)), "-e", str(path)]})


def hooked(code: str, done: Path, *undo: Path, timeout: float = 60.0, **changes: Any) -> Step:
    """Return a step whose hook ends with making a file; its rollback removes that and others."""
    gone = (done, *undo)
    made = step(
        "a",
        effect=Effect(action="command", arguments={"argv": hook(code)}, timeout=timeout),
        expect=(is_there(done),),
        reconcile=is_there(done),
        rollback=Rollback(
            effect=Effect(action="command", arguments={"argv": ["rm", "-f", *map(str, gone)]}),
            instruction="Remove them.",
            verify=tuple(is_there(path, there=False) for path in gone),
        ),
    )
    return replace(made, **changes)


def files_of(folder: Path, attempt: int = 1) -> EffectFiles:
    return EffectFiles(folder / "runs" / "r1", "a", attempt)


def processes(files: EffectFiles) -> list[int]:
    return [one.pid for one in _processes(files.mark)]


def begin(
    folder: Path, book: Runbook, config: Path | None = None, registry: Callable[[], Registry] = built_in
) -> tuple[RunRecord, Executor]:
    """Begin a run of one step, and start it."""
    record = RunStore(folder / "runs").create(book, RunKind.REHEARSAL, "alice", run="r1")
    executor = Executor(record, registry(), take(record, "alice"), config=config)
    executor.lease.begin()
    executor.recover()
    record.submit(lambda s, n: machine.call(s, ALICE, "a", n))
    record.submit(lambda s, n: machine.start(s, BOB, "a", n))
    return record, executor


def killed_while(
    folder: Path, one: Step, holds: Callable[[], Any], *, config: Path | None = None, all_of_it: bool = False,
    helper_alone: bool = False, registry: Callable[[], Registry] = built_in,
) -> None:  # fmt: skip
    """Run a step in a process that is killed when a condition holds.

    Parameters
    ----------
    all_of_it
        The effect's processes are killed too, as when the machine's memory is full.
    helper_alone
        The process of the effect is killed, and what it started goes on.
    """
    child = os.fork()
    if child == 0:
        try:
            _, executor = begin(folder, runbook(one), config, registry)
            while True:
                executor.tick()
                time.sleep(0.005)
        finally:
            os._exit(1)
    wait_for(holds, "the point of the kill")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if all_of_it or helper_alone:
        for pid in processes(files_of(folder)):
            # It may end by itself between its listing and its end.
            with suppress(FileNotFoundError, ProcessLookupError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
                if all_of_it or b"effect_process" in words:
                    os.kill(pid, signal.SIGKILL)


def taken_over(
    folder: Path, config: Path | None = None, registry: Callable[[], Registry] = built_in
) -> tuple[RunRecord, Executor]:
    record = RunStore(folder / "runs").open("r1")
    record.submit(lambda s, n: machine.takeover(s, CAROL, n, "killed"))
    executor = Executor(record, registry(), take(record, "bob", reason="killed"), config=config)
    executor.lease.begin()
    executor.recover()
    return record, executor


def settled(record: RunRecord, executor: Executor, what: str, holds: Callable[[], Any]) -> None:
    """Tick until a condition holds and nothing is under way."""

    def look() -> bool:
        executor.tick()
        return bool(holds()) and not len(executor.bench)

    try:
        wait_for(look, what)
    except AssertionError as error:
        steps = [(s.id, s.state, s.rollback, s.reason) for s in record.status.steps.values()]
        raise AssertionError(f"{error}: {steps}, {record.status.hold_reasons}") from None


def rolled_back(record: RunRecord, executor: Executor) -> None:
    """Order a rollback, and let it come to its end."""
    record.submit(lambda s, n: machine.rollback(s, ALICE, n, "the end of the test"))
    settled(record, executor, "the end of the rollback", lambda: record.status.over)


def has_intent(folder: Path) -> bool:
    """Tell whether the run has written the intent of its step."""
    store = RunStore(folder / "runs")
    return "r1" in store.ids() and any(event.kind is EventKind.INTENT for event in store.events("r1"))


def state_of(record: RunRecord) -> StepState:
    return record.status.steps["a"].state


def run_unattended(
    path: Path, *, room: Path, environment: str, parameters: Mapping[str, str], config: Path | None = None,
    limit: float = 3600.0, held_by: str = "",
) -> RunStatus:  # fmt: skip
    """Begin a rehearsal of a file on autopilot, and drive it to its end or to where only people can go on.

    ``held_by``: a guard whose hold is the end; the autopilot would wait for it to pass again.
    """
    book = load_runbook(path, parameters, environment)
    begun_by = book.roles["coordinator"].person
    record = RunStore(room).create(book, RunKind.REHEARSAL, begun_by, autopilot=True)
    executor = _UntilHeld(record, full_registry(), take(record, begun_by), config=config, limit=limit)
    executor.held_by = held_by
    return executor.run(executor.stop)


class _UntilHeld(PilotedExecutor):
    held_by = ""

    def tick(self) -> bool:
        moved = super().tick()
        if self.held_by and self.held_by in self.status.hold_guards:
            self.stop.set()
        return moved
