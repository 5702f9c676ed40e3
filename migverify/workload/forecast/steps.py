"""Measures the target alone at other multiples of the captured load: the same plan, asked again, open loop.

Latency counts from when a call was due, so a target that falls behind is seen to (no coordinated omission). Steps ask
reads only: a write can be asked once. Each has a run file of its own beside the replay's.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from migverify.errors import UsageError
from migverify.model import Side
from migverify.workload.forecast.model import CallTrace
from migverify.workload.forecast.trace import read_trace
from migverify.workload.private import private, private_folder
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.pace import Pace
from migverify.workload.replay.run import ReplayProgress, ReplayResult, replay
from migverify.workload.replay.runfile import RUN_FILE, RunFile, connect
from migverify.workload.replay.safety import ReplayEndpoints


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What one load measured, and why it was stopped before its end; empty where it was not."""

    trace: CallTrace
    stopped: str


LEAST_RATE = 0.01
"""A lighter load than that takes a hundred times as long as the capture, and more."""


def parse_rates(text: str) -> tuple[float, ...]:
    """Read multiples of the captured load, as in ``1,1.3,2``, each 0.01 to 100; ascending, each once.

    Raises UsageError: it is no such list.
    """
    try:
        rates = sorted({float(part.removeprefix("x")) for part in text.split(",")})
    except ValueError:
        rates = []
    if not rates or not all(LEAST_RATE <= rate <= 100 for rate in rates):
        raise UsageError(f"--rates: {text!r} is no list of loads", hint="For example 1,1.3,2: as captured, then more.")
    return tuple(rates)


def measure(
    folder: Path, sides: ReplayEndpoints, options: EngineOptions, rates: Sequence[float], *, jobs: int,
    on_step: Callable[[float], None] = lambda _: None, on_progress: Callable[[ReplayProgress], None] = lambda _: None,
) -> Iterator[MeasuredStep]:  # fmt: skip
    """Yield what each load measured, the lightest first; the caller may stop when it has seen enough.

    Parameters
    ----------
    folder
        The replay's, whose plan is asked; it is not changed.
    on_step
        Called with each multiple before it is asked.

    Raises PlanError, ReadError: as ``replay``.
    """
    target = ReplayEndpoints({Side.TARGET: sides.endpoints[Side.TARGET]}, sides.secrets)
    for rate in rates:
        on_step(rate)
        pace = Pace(factor=rate)
        asked = replace(options, pace=pace, noise=0.0, rereads=0, mask=True, record=False, writes=False)
        step = folder / f"rate-{rate:g}"
        _copy_plan(folder, step)
        try:
            result = replay(step, target, asked, jobs=jobs, on_progress=on_progress)
            yield MeasuredStep(trace_of(step, pace, result), result.stopped)
            if result.stopped:
                return
        finally:
            shutil.rmtree(step, ignore_errors=True)


def trace_of(folder: Path, pace: Pace, result: ReplayResult) -> CallTrace:
    """Return what the replay in a folder measured."""
    with RunFile(folder) as run:
        return read_trace(run, pace, result)


def _copy_plan(folder: Path, step: Path) -> None:
    """Write the run file of a step: the plan of ``folder`` without any outcome."""
    shutil.rmtree(step, ignore_errors=True)
    private_folder(step)
    open(step / RUN_FILE, "wb", opener=private).close()
    with closing(connect(folder / RUN_FILE)) as source, closing(sqlite3.connect(step / RUN_FILE)) as copy:
        source.backup(copy)
    with RunFile(step) as run:
        run.change("DELETE FROM outcomes")
        run.change("DELETE FROM workers")
        run.change("DROP TABLE IF EXISTS seen")
        run.set_fact("attempts", 0)
        run.set_fact("stop", "")
