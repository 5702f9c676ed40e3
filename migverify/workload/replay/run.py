"""A replay from its plan to its tally: workers replay sessions; the fold of their outcomes is the result."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import MigverifyError, PlanError, ReadError
from migverify.model import Endpoint, Side
from migverify.workload.replay.connections import EngineOptions, killer, openers
from migverify.workload.replay.engine import Engine, Start
from migverify.workload.replay.latency import merged
from migverify.workload.replay.order import components
from migverify.workload.replay.outcomes import (
    UNKNOWN,
    Counters,
    Outcomes,
    alone,
    among_workers,
    begin_attempt,
    begin_seeing,
    judged,
    total,
)
from migverify.workload.replay.pace import PaceKind
from migverify.workload.replay.plan import ReplayPlan, load_plan
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import ReplayEndpoints
from migverify.workload.replay.slo import ReplayMeasurement, covers
from migverify.workload.replay.tally import ReplayTally
from migverify.workload.replay.value_codes import ValueCodes, columns_added_to

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from migverify.config.settings import ServiceLevel

LEAD = 0.3
"""Seconds between the start of the workers and the first due time: processes take a moment."""
PROGRESS = 0.2
_CHECKPOINT = 1.0
_MOST_EDGES = 1_000_000
_SLACK = 1.2
"""How much bigger than its even part a group of conflicting sessions may be."""


@dataclass(frozen=True, slots=True)
class ReplayProgress:
    """How far a replay is. ``seconds`` since its beginning, negative while the workers start."""

    plan: ReplayPlan
    counters: Counters
    seconds: float
    finished_before: int = 0


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay found. ``unfinished`` says why it did not get to its end, empty when it did.

    ``counters`` and ``seconds`` are of this attempt, ``tally`` of the whole run.
    """

    plan: ReplayPlan
    tally: ReplayTally
    counters: Counters
    seconds: float
    attempts: int
    unfinished: tuple[str, ...] = ()
    stopped: str = ""
    open_loop: bool = True

    def measured(self, level: ServiceLevel | None = None) -> ReplayMeasurement:
        """Return what a service level is judged by: all statements, or those that it names."""
        whole = ""
        if self.unfinished:
            whole = self.unfinished[0]
        elif self.attempts > 1:
            whole = "the run was resumed: its rate is that of its last part only"
        elif not self.open_loop:
            whole = "at pace fast, calls are due when they can begin: latency from then says nothing of a load"
        if level is not None and level.statements is not None:
            return self._of_statements(level, whole)
        return ReplayMeasurement(
            self.counters.writes, self.counters.reads, self.seconds, self.tally.latency("target"), whole
        )  # fmt: skip

    def _of_statements(self, level: ServiceLevel, whole: str) -> ReplayMeasurement:
        chosen = [one for one in self.tally.digests.values() if covers(level, one.text)]
        writes = sum(one.written for one in chosen)
        latency = merged(one.latencies["target"] for one in chosen)
        return ReplayMeasurement(writes, latency.count - writes, self.seconds, latency, whole)


@dataclass(frozen=True, slots=True)
class Share:
    """What one worker replays: its sessions are marked in the run file. ``worker`` counts from 1.

    ``endpoints`` by side; the source may be missing. ``secrets`` by name of the endpoint; never shown.
    """

    folder: Path
    worker: int
    endpoints: Mapping[Side, Endpoint]
    secrets: Mapping[str, str]
    options: EngineOptions
    start: Start

    def __repr__(self) -> str:
        return f"Share({self.folder}, worker {self.worker})"


def replay(
    folder: Path,
    sides: ReplayEndpoints,
    options: EngineOptions,
    *,
    jobs: int = 1,
    resume: bool = False,
    on_progress: Callable[[ReplayProgress], None] = lambda _: None,
) -> ReplayResult:
    """Replay the plan in ``folder``, and return what was found.

    Parameters
    ----------
    folder
        The run's: its run file was made by ``read_plan``.
    jobs
        Worker processes; 1 replays in this one.
    resume
        Go on with outcomes that are there. Without it, an earlier attempt is refused.

    Raises PlanError: the folder holds no plan, or an earlier attempt although nothing is resumed; ReadError: a worker
    died; KeyboardInterrupt: never: a stop by Ctrl-C ends in a result with ``stopped``.
    """
    with alone(folder) as lock, RunFile(folder) as run:
        plan = prepare(run, resume=resume)
        if options.record:
            begin_seeing(run)
        before = run.db.execute("SELECT COUNT(body) FROM outcomes").fetchone()[0]
        left, start = remaining(run)
        dealt = partition(run, max(1, min(jobs, len(left), options.connections)), left)
        began = time.monotonic_ns() + int(LEAD * 1e9 * (len(dealt) > 1))
        start = replace(start, began=began)
        shares = [
            Share(folder, worker, sides.endpoints, sides.secrets, replace(options, connections=connections), start)
            for worker, connections in enumerate(_even(options.connections, len(dealt)), 1)
        ]
        assign(run, dealt, start)
        cleaned = 0.0

        def progress() -> None:
            nonlocal cleaned
            now = time.monotonic()
            if now - cleaned > _CHECKPOINT:  # the log of the run file is emptied here, where no call waits for it
                cleaned = now
                run.db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            on_progress(ReplayProgress(plan, total(run), (time.monotonic_ns() - began) / 1e9, before))

        lock.share()
        _play(shares, progress, lambda reason: ask_stop(run, reason))
        seconds = (time.monotonic_ns() - began) / 1e9
        return finish(run, plan, seconds, options)


def _even(number: int, parts: int) -> list[int]:
    return [number // parts + (one < number % parts) for one in range(parts)]


def prepare(run: RunFile, *, resume: bool) -> ReplayPlan:
    """Begin an attempt: decide about calls that were under way; return the plan.

    Raises PlanError: as ``replay``.
    """
    plan = load_plan(run)
    if run.fact("attempts") and not resume:
        raise PlanError(f"{run.folder} holds the outcomes of an earlier replay", hint="Go on with it: --resume.")
    if plan.masked:
        raise PlanError(
            f"the literals of {plan.capture} are masked: its statements cannot be asked",
            hint="Capture without --mask, on a machine that may hold the values.",
        )
    try:
        begin_attempt(run)
    except sqlite3.DatabaseError as error:
        raise PlanError(f"{run.folder} is damaged: {error}", hint="Start a new replay.") from error
    return plan


def ask_stop(run: RunFile, reason: str) -> None:
    """Tell all workers to stop; the first reason is kept."""
    if not run.fact("stop"):
        run.set_fact("stop", reason)


def finish(run: RunFile, plan: ReplayPlan, seconds: float, options: EngineOptions) -> ReplayResult:
    """Fold the outcomes of a run into its result."""
    tally = fold(run)
    stopped = str(run.fact("stop"))
    unfinished: list[str] = []
    unsure = sum(one.reasons.counts.get(UNKNOWN, 0) for one in tally.digests.values())
    if unsure:  # not a small share of unjudged calls: the sides may hold different data since
        unfinished.append(f"{unsure:,} writes or commits were under way when a replay was cut off: {UNKNOWN}")
    missing = plan.calls - tally.count
    if stopped:
        unfinished.append(f"the replay was stopped: {stopped}")
    if missing:
        unknown = run.db.execute("SELECT COUNT(*) FROM outcomes WHERE body IS NULL").fetchone()[0]
        text = f"{missing:,} of {plan.calls:,} calls have no outcome"
        unfinished.append(text + (f", of which {unknown:,} may have been carried out" if unknown else ""))
    return ReplayResult(
        plan, tally, total(run), max(seconds, 0.0), run.fact("attempts"), tuple(unfinished), stopped,
        options.pace.kind is not PaceKind.FAST,
    )  # fmt: skip


def fold(run: RunFile) -> ReplayTally:
    """Return the tally of a run: each call's outcome, once, and the texts of its digests."""
    tally = ReplayTally()
    for _, one in judged(run):
        tally.add(one)
    for meaning in run.meanings:
        if meaning.digest in tally.digests:
            tally.describe(meaning.digest, meaning.text, meaning.classification.kind.value)
    return tally


def remaining(run: RunFile) -> tuple[dict[int, int], Start]:
    """Return sessions with calls that have no outcome yet and how many, and when the earliest of these calls is due."""
    open_calls = "FROM calls LEFT JOIN outcomes ON call = id WHERE body IS NULL"
    left = dict(run.db.execute(f"SELECT session, COUNT(*) {open_calls} GROUP BY session"))
    due, sequence = run.db.execute(f"SELECT due, MIN(sequence) {open_calls}").fetchone()
    return left, Start(0, due or 0, sequence or 0)


def partition(run: RunFile, count: int, left: Mapping[int, int]) -> list[list[int]]:
    """Deal sessions to ``count`` workers; sessions that wait for each other stay together as far as sizes allow.

    Parameters
    ----------
    left
        Sessions that have calls to ask, and how many.

    Returns
    -------
    list of list of int
        Numbers of sessions; a worker without any is left out.
    """
    if count == 1 or not left:
        return [sorted(left)]
    conflicts = """SELECT MIN(a.session, b.session), MAX(a.session, b.session), COUNT(*)
        FROM calls a, json_each(a.waits) w JOIN calls b ON b.id = w.value WHERE a.waits IS NOT NULL
        GROUP BY 1, 2 ORDER BY 3 DESC LIMIT ?"""
    edges = [(one, other) for one, other, _ in run.db.execute(conflicts, (_MOST_EDGES,)) if {one, other} <= left.keys()]
    sizes = [left.get(number, 0) for number in range(max(left) + 1)]
    groups: dict[int, list[int]] = {}
    for number, group in enumerate(components(edges, sizes, max(1, int(sum(sizes) / count * _SLACK)))):
        if number in left:
            groups.setdefault(group, []).append(number)
    dealt: list[list[int]] = [[] for _ in range(count)]
    loads = [0] * count
    for members in sorted(groups.values(), key=lambda one: (-sum(sizes[n] for n in one), one[0])):
        least = loads.index(min(loads))
        dealt[least] += members
        loads[least] += sum(sizes[number] for number in members)
    return [sorted(one) for one in dealt if one]


def assign(run: RunFile, dealt: list[list[int]], start: Start) -> None:
    """Mark each worker's sessions in the run file."""
    counters = json.dumps(asdict(Counters(low=start.sequence)))
    run.change("BEGIN IMMEDIATE")
    run.change("UPDATE sessions SET worker = NULL")
    for worker, numbers in enumerate(dealt, 1):
        run.db.executemany("UPDATE sessions SET worker = ? WHERE number = ?", [(worker, one) for one in numbers])
        run.change("INSERT OR REPLACE INTO workers VALUES (?, ?)", (worker, counters))
    run.change("COMMIT")


def value_codes(run: RunFile, options: EngineOptions) -> ValueCodes:
    """Return what represents values in the histories of a run."""
    return ValueCodes(options.history_key, columns_added_to(meaning.text for meaning in run.meanings))


def play(share: Share, *, parent: int | None = None) -> None:
    """Replay a share to its end or to a stop; the run file holds outcomes, counters and why it stopped.

    Parameters
    ----------
    parent
        The process that must stay alive, None for none: whose parent is gone stops at once.
    """
    with among_workers(share.folder), RunFile(share.folder) as run:

        def stop() -> str:
            if parent is not None and os.getppid() != parent:
                return "the process that started the replay is gone"
            return str(run.fact("stop"))

        outcomes = Outcomes(share.folder, share.worker, value_codes(run, share.options))
        engine = Engine(
            run, run.sessions(share.worker), openers(share.endpoints, share.secrets, share.options), outcomes,
            share.options, share.start, stop=stop, kill=killer(share.endpoints, share.secrets),
        )  # fmt: skip
        try:
            engine.run()
        finally:
            if engine.stopped:
                ask_stop(run, engine.stopped)


def main(share: Share, parent: int, answer: Connection) -> None:
    """Run as a process of its own; what ended it goes back over ``answer``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent decides
    failure: MigverifyError | None = None
    try:
        play(share, parent=parent)
    except MigverifyError as error:
        failure = error
    answer.send(failure)
    answer.close()


def _play(shares: list[Share], progress: Callable[[], None], stop: Callable[[str], None]) -> None:
    if len(shares) == 1:
        _play_here(shares[0], progress, stop)
    else:
        _play_apart(shares, progress, stop)


def _play_here(share: Share, progress: Callable[[], None], stop: Callable[[str], None]) -> None:
    """Replay in a thread of this process: Ctrl-C and progress stay with the main one."""
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
            stop("interrupted")
    if failures:
        raise failures[0]


def _play_apart(shares: list[Share], progress: Callable[[], None], stop: Callable[[str], None]) -> None:
    context = multiprocessing.get_context("spawn")
    running: list[tuple[BaseProcess, Connection]] = []
    with _ignore_sigint():
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
                stop("interrupted")
                continue
            for over in [one for one in running if one[1] in ready]:
                failure = _ended(*over)
                if failure is not None:
                    failures.append(failure)
                    stop(failure.message)
                running.remove(over)
    finally:
        for process, _ in running:
            process.terminate()
    if failures:
        raise failures[0]


@contextmanager
def _ignore_sigint() -> Iterator[None]:
    """Ignore Ctrl-C while workers start: they inherit that, and a terminal's signal cannot end one while it loads."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set this, and only it gets the signal
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _ended(process: BaseProcess, pipe: Connection) -> MigverifyError | None:
    try:
        answer: Any = pipe.recv()
    except EOFError:
        process.join()
        return ReadError(
            f"a worker of the replay died with code {process.exitcode}",
            hint="What it had written is kept; go on with --resume.",
        )
    process.join()
    return answer if isinstance(answer, MigverifyError) else None


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
