"""A replay from its plan to its tally: workers play, the journal keeps, the fold of the journal is the result."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import MigverifyError, PlanError, ReadError
from migverify.workload.replay.board import Board, Counters
from migverify.workload.replay.engine import EngineOptions, Start
from migverify.workload.replay.journal import UNKNOWN, Journal, Known, judged, known, recover
from migverify.workload.replay.latency import Histogram
from migverify.workload.replay.lock import alone
from migverify.workload.replay.model import Judged, Judgement
from migverify.workload.replay.pace import PaceKind
from migverify.workload.replay.plan import Plan, load_plan
from migverify.workload.replay.shards import shards
from migverify.workload.replay.sides import Sides
from migverify.workload.replay.slo import Measured
from migverify.workload.replay.spool import Spool
from migverify.workload.replay.tally import Tally
from migverify.workload.replay.worker import BOARD, JOURNAL, PLANNED, Share, main, play

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

LEAD = 0.3
"""Seconds between the start of the workers and the first due time: processes take a moment."""
PROGRESS = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a replay stands. ``seconds`` since its beginning, negative while the workers start."""

    plan: Plan
    counters: Counters
    seconds: float
    finished_before: int = 0


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay found. ``unfinished`` says why it did not get to its end, empty when it did.

    ``counters`` and ``seconds`` are of this attempt, ``tally`` of the whole run.
    """

    plan: Plan
    tally: Tally
    counters: Counters
    seconds: float
    attempts: int
    unfinished: tuple[str, ...] = ()
    stopped: str = ""
    open_loop: bool = True

    def measured(self) -> Measured:
        """Return what a service level is judged by."""
        whole = ""
        if self.unfinished:
            whole = self.unfinished[0]
        elif self.attempts > 1:
            whole = "the run was resumed: its rate is that of its last part only"
        elif not self.open_loop:
            whole = "at pace fast, calls are due when they can begin: latency from then says nothing of a load"
        latency = Histogram()
        latency.merge(self.tally.latency("target"))
        return Measured(self.counters.writes, self.counters.reads, self.seconds, latency, whole)


def replay(
    folder: Path,
    sides: Sides,
    options: EngineOptions,
    *,
    jobs: int = 1,
    resume: bool = False,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> ReplayResult:
    """Play the plan in ``folder``, and return what was found.

    Parameters
    ----------
    folder
        The run's: ``plan`` in it was made by ``read_plan``; the journal is kept beside it.
    jobs
        Worker processes; 1 plays in this one.
    resume
        Go on with a journal that is there. Without it, one that is there is refused.

    Raises
    ------
    PlanError
        the folder holds no plan, or a journal although nothing is resumed.
    ReadError
        a worker died.
    KeyboardInterrupt
        never: a stop by Ctrl-C ends in a result with ``stopped``.
    """
    with alone(folder) as lock:
        plan, found, options = prepare(folder, options, resume=resume)
        with Spool(folder / PLANNED) as spool:
            shares = _shares(spool, folder, sides, options, found, found.attempts - 1, jobs)
        before = sum(found.state[index] & 1 for index in range(plan.calls))
        Board.make(folder / BOARD, plan.calls, len(shares))
        began = time.monotonic_ns() + int(LEAD * 1e9 * (len(shares) > 1))
        shares = [replace(share, start=replace(share.start, began=began)) for share in shares]
        board = Board(folder / BOARD)
        try:
            for index in range(plan.calls):
                if found.ended(index):
                    board.set_over(index)

            def progress() -> None:
                seconds = (time.monotonic_ns() - began) / 1e9
                on_progress(Progress(plan, board.total(), seconds, before))

            lock.share()
            _play(shares, board, progress)
            seconds = (time.monotonic_ns() - began) / 1e9
            counters, stopped = board.total(), board.stop_reason()
        finally:
            board.close()
        return finish(folder, plan, counters, seconds, stopped, open_loop=options.pace.kind is not PaceKind.FAST)


def prepare(folder: Path, options: EngineOptions, *, resume: bool) -> tuple[Plan, Known, EngineOptions]:
    """Begin an attempt: write what becomes of calls that were under way; return plan, journal and final options.

    Raises
    ------
    PlanError
        as ``replay``.
    """
    plan = load_plan(folder / PLANNED)
    found = known(folder / JOURNAL, plan.calls)
    if found.attempts and not resume:
        raise PlanError(f"{folder} holds the journal of an earlier replay", hint="Go on with it: --resume.")
    if plan.masked:
        raise PlanError(
            f"the literals of {plan.capture} are masked: its statements cannot be asked",
            hint="Capture without --mask, on a machine that may hold the values.",
        )
    with Spool(folder / PLANNED) as spool:
        _begin(spool, folder, found, found.attempts, plan)
    options = replace(options, compare=replace(options.compare, clock_pinned=options.ask.clock))
    return plan, known(folder / JOURNAL, plan.calls), options


def finish(
    folder: Path, plan: Plan, counters: Counters, seconds: float, stopped: str = "", *, open_loop: bool = True
) -> ReplayResult:
    """Fold the journal of a run into its result."""
    found = known(folder / JOURNAL, plan.calls)
    tally = fold(folder, plan, found)
    unfinished: list[str] = []
    unsure = sum(one.reasons.counts.get(UNKNOWN, 0) for one in tally.digests.values())
    if unsure:  # not a small share of unjudged calls: the sides may hold unlike data since
        unfinished.append(f"{unsure:,} writes or commits were under way when a replay was cut off: {UNKNOWN}")
    missing = plan.calls - tally.count
    if stopped:
        unfinished.append(f"the replay was stopped: {stopped}")
    if missing:
        unknown = sum(1 for state in found.state if state & 2 and not state & 1)
        text = f"{missing:,} of {plan.calls:,} calls have no outcome"
        unfinished.append(text + (f", of which {unknown:,} may have been carried out" if unknown else ""))
    return ReplayResult(plan, tally, counters, max(seconds, 0.0), found.attempts, tuple(unfinished), stopped, open_loop)


def fold(folder: Path, plan: Plan, found: Known | None = None) -> Tally:
    """Return the tally of a run: each call's last end, once, and the texts of its digests."""
    tally = Tally()
    for one in judged(folder / JOURNAL, found or known(folder / JOURNAL, plan.calls)):
        tally.add(one)
    with Spool(folder / PLANNED) as spool:
        for meaning in spool.meanings:
            if meaning.digest in tally.digests:
                tally.describe(meaning.digest, meaning.text, meaning.classification.kind.value)
    return tally


def _begin(spool: Spool, folder: Path, found: Known, attempt: int, plan: Plan) -> None:
    """Write what this attempt does about calls that were under way when the last one ended."""
    journal = Journal(folder / JOURNAL, 0, attempt)
    journal.began({"plan": plan.hash, "pid": os.getpid(), "at": time.time()})
    if attempt:
        recovery = recover(spool, found)
        for first, last in recovery.again:
            journal.again(first, last)
        for index, reason in recovery.unknown:
            call = spool.read(index).call
            journal.ended(
                index,
                Judged(call.session, call.position, call.digest, Judgement.UNJUDGED, reason=reason, written=True),
            )
    journal.close()


def remaining(spool: Spool, found: Known) -> tuple[dict[int, int], Start]:
    """Return sessions with calls that have no end yet and how many, and where the earliest of them stands."""
    left: dict[int, int] = {}
    start: Start | None = None
    for number, session in enumerate(spool.sessions):
        calls = [index for index in range(session.first, session.first + session.count) if not found.ended(index)]
        if not calls:
            continue
        left[number] = len(calls)
        turn = spool.turn(calls[0])
        if start is None or turn.sequence < start.sequence:
            start = Start(0, turn.due, turn.sequence)
    return left, start or Start(0)


def _shares(
    spool: Spool, folder: Path, sides: Sides, options: EngineOptions, found: Known, attempt: int, jobs: int
) -> list[Share]:
    """Deal sessions to workers, so that all have about as many calls to ask."""
    left, start = remaining(spool, found)
    jobs = max(1, min(jobs, len(left), options.connections))
    dealt = shards(spool, jobs, left) if jobs > 1 else [sorted(left)]
    jobs = len(dealt)
    per_worker = [options.connections // jobs + (one < options.connections % jobs) for one in range(jobs)]
    return [
        Share(folder, one + 1, attempt, tuple(dealt[one]), sides.endpoints, sides.secrets,
              replace(options, connections=per_worker[one]), start)
        for one in range(jobs)
    ]  # fmt: skip


def _play(shares: list[Share], board: Board, progress: Callable[[], None]) -> None:
    if len(shares) == 1:
        _play_here(shares[0], board, progress)
    else:
        _play_apart(shares, board, progress)


def _play_here(share: Share, board: Board, progress: Callable[[], None]) -> None:
    """Play in a thread of this process: Ctrl-C and progress stay with the main one."""
    failures: list[BaseException] = []

    def body() -> None:
        try:
            play(share)
        except BaseException as error:  # noqa: BLE001 - raised below, on the caller's thread
            failures.append(error)

    thread = threading.Thread(target=body, name="replay")
    thread.start()
    while thread.is_alive():
        try:
            thread.join(PROGRESS)
            progress()
        except KeyboardInterrupt:
            board.ask_stop("interrupted")
    if failures:
        raise failures[0]


def _play_apart(shares: list[Share], board: Board, progress: Callable[[], None]) -> None:
    context = multiprocessing.get_context("spawn")
    running: list[tuple[BaseProcess, Connection]] = []
    with _deaf():
        for share in shares:
            ours, theirs = context.Pipe(duplex=False)
            process: BaseProcess = context.Process(target=main, args=(share, os.getpid(), theirs), daemon=True)
            process.start()
            theirs.close()
            running.append((process, ours))
    failures: list[MigverifyError] = []
    try:
        while running:
            try:
                ready = wait([pipe for _, pipe in running], PROGRESS)
                progress()
            except KeyboardInterrupt:
                board.ask_stop("interrupted")
                continue
            for over in [one for one in running if one[1] in ready]:
                failure = _ended(*over)
                if failure is not None:
                    failures.append(failure)
                    board.ask_stop(failure.message)
                running.remove(over)
    finally:
        for left, _ in running:
            left.terminate()
    if failures:
        raise failures[0]


@contextmanager
def _deaf() -> Iterator[None]:
    """Ignore Ctrl-C while workers start: they inherit that, and a terminal's signal cannot end one while it loads."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may say so, and only it hears the signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ended(process: BaseProcess, pipe: Connection) -> MigverifyError | None:
    try:
        told: Any = pipe.recv()
    except EOFError:
        process.join()
        return ReadError(
            f"a worker of the replay died with code {process.exitcode}",
            hint="What it had written is kept; go on with --resume.",
        )
    process.join()
    return told if isinstance(told, MigverifyError) else None


def run_facts(result: ReplayResult) -> dict[str, Any]:
    """Return what a store keeps of a run beside its tally."""
    counters = result.counters
    begun = max(counters.begun, 1)
    return {
        "plan": json.loads(json.dumps(result.plan.as_json())),
        "attempts": result.attempts, "seconds": round(result.seconds, 3), "stopped": result.stopped,
        "calls_per_second": round(counters.ended / result.seconds, 1) if result.seconds else 0.0,
        "lag_most_s": counters.lag_most / 1e6, "lag_mean_s": counters.lag_sum / begun / 1e6,
        "waited": counters.waited, "forced": counters.forced, "held": counters.held,
        "reads": counters.reads, "writes": counters.writes,
    }  # fmt: skip
