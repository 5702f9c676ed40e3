"""One run of table pairs: plan -> read -> compare -> diff -> confirm -> store.

The driver's part only hands out tasks and records answers. At most ``engine.slots`` tasks run and a few wait, pairs
are planned while others run, and nothing here grows with rows, chunks or differences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from migverify.errors import CanceledError, LoginError, MigverifyError, ReadError
from migverify.model import RowDiff, TableResult, Verdict
from migverify.store.results import ResultStore
from migverify.tables.engine import TaskEngine
from migverify.tables.governor import ConnectionGovernor, room
from migverify.tables.pair_run import PairRun
from migverify.tables.part_run import run_class
from migverify.tables.tasks import PairPlan, Rules, Task, outcome_from_text
from migverify.tables.trace import RunTrace

WAITING = 2
GRACE_SECONDS = 15.0
"""How long after ``run_seconds`` running tasks may still finish; then their queries are stopped."""


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """The progress of a run. ``rows`` are source rows read so far, ``rows_total`` the estimate."""

    tables_done: int
    tables_total: int
    rows: int
    rows_total: int
    bytes: int
    chunks: int
    differences: int
    table: str
    paused: bool = False
    finished: TableResult | None = None
    examples: tuple[RowDiff, ...] = ()


@dataclass(frozen=True, slots=True)
class Controls:
    """How a run is watched and stopped. ``run_seconds`` bounds the whole run; a pause file holds new tasks back.

    ``trace`` takes what is read in this process, which ``on_progress`` does not tell from results of an earlier one.
    ``source_still_since`` gives the Unix time since which nobody wrote to any source, None when that is not known.
    ``governor`` says how many tasks may read at once; None: as many as the engine has slots.
    """

    on_progress: Callable[[VerifyProgress], None] = lambda _: None
    trace: RunTrace = field(default_factory=RunTrace)
    pause_file: Path | None = None
    run_seconds: float | None = None
    tables_total: int = 0
    rows_total: int = 0
    source_still_since: Callable[[], float | None] = lambda: None
    governor: ConnectionGovernor | None = None


def verify_tables(
    pairs: Iterable[PairPlan], engine: TaskEngine, store: ResultStore, run_id: str, rules: Rules, controls: Controls
) -> Verdict:
    """Verify table pairs and record every result under ``run_id``.

    Parameters
    ----------
    pairs
        Table pairs; consumed lazily, in order.
    engine, store
        Where tasks run and where results go.
    run_id
        A started or resumed run; pairs that already have a result are not read again.

    Returns
    -------
    Verdict
        The worst of all pairs; INCONCLUSIVE when there was none.

    Raises
    ------
    StoreError
        results cannot be kept; what is in the store stays valid and the run can be resumed.
    KeyboardInterrupt
        passed on after running tasks were canceled.
    """
    done = {result.pair: result for result in store.table_results(run_id)}
    return _Dispatcher(engine, store, run_id, rules, controls).run(pairs, done)


def is_concluded(result: TableResult | None) -> TypeGuard[TableResult]:
    """Whether a run that goes on leaves a pair alone."""
    # What a quick answer found equal is INCONCLUSIVE, and needs no second look.
    return result is not None and (result.verdict is not Verdict.INCONCLUSIVE or bool(result.details.get("answered")))


class _Dispatcher:
    def __init__(self, engine: TaskEngine, store: ResultStore, run_id: str, rules: Rules, controls: Controls) -> None:
        self.engine, self.store, self.run_id, self.rules, self.controls = engine, store, run_id, rules, controls
        self.active: list[PairRun] = []
        self.under_way: dict[Future[str], tuple[PairRun, Task]] = {}
        self.verdicts: list[Verdict] = []
        self.rows = self.bytes = self.chunks = self.differences = 0
        self.all_begun = False
        self.refusal = ""
        self.started = time.monotonic()

    def run(self, pairs: Iterable[PairPlan], done: dict[str, TableResult]) -> Verdict:
        waiting = self._not_done(pairs, done)
        try:
            while True:
                self._submit(waiting)
                if not self.under_way and not self.active and (self.all_begun or self._out_of_time()):
                    break
                self._collect()
            if next(waiting, None) is not None:
                self.verdicts.append(Verdict.INCONCLUSIVE)  # out of time before the last pairs began
        except BaseException:
            # Ctrl-C or a store that is full: stop the servers' work before the error goes on.
            self.engine.cancel()
            raise
        return Verdict.worst(self.verdicts)

    def _not_done(self, pairs: Iterable[PairPlan], done: dict[str, TableResult]) -> Iterator[PairPlan]:
        for pair in pairs:
            result = done.get(pair.id)
            if is_concluded(result):
                self._finished(result)
            else:
                yield pair

    def _submit(self, waiting: Iterator[PairPlan]) -> None:
        """Hand out tasks, those of the oldest pair first; begin the next pair when nothing else is due."""
        while room(self.controls.governor, self.engine.slots, WAITING, self.under_way):
            if self._out_of_time() or self._paused():
                return
            run = next((r for r in self.active if r.ready), None)
            if run is None:
                pair = next(waiting, None)
                if pair is None:
                    self.all_begun = True
                    return
                still = self.controls.source_still_since
                run = run_class(pair)(pair, self.rules, self.store, self.run_id, self.engine.slots, still)
                run.begin()
                self.active.append(run)
                self._retire()
                continue
            task = run.ready.popleft()
            run.busy += 1
            self.under_way[self.engine.submit(task.to_text())] = (run, task)

    def _collect(self) -> None:
        if not self.under_way:
            if self._out_of_time():
                self._give_up()
            else:
                time.sleep(0.2)  # paused
                self._report()
            return
        if self._out_of_time(GRACE_SECONDS):
            self._stop_now()
            return
        finished, _ = wait(self.under_way, timeout=0.5, return_when=FIRST_COMPLETED)
        for future in finished:
            run, task = self.under_way.pop(future)
            run.busy -= 1
            self._record(run, task, future)
        if self.refusal:
            self._stop_now()
            return
        self._retire()
        self._report()

    def _record(self, run: PairRun, task: Task, future: Future[str]) -> None:
        try:
            outcome = outcome_from_text(future.result())
        except CanceledError:
            raise KeyboardInterrupt from None  # somebody stopped the engine; the run stays resumable
        except LoginError as error:
            # Each chunk of each table would end the same, one after the other.
            self.refusal = error.line
            return
        except MigverifyError as error:
            run.failed(task, error if isinstance(error, ReadError) else ReadError(error.message, hint=error.hint))
            return
        if self.controls.governor is not None:
            self.controls.governor.note(outcome, len(self.under_way) + 1)
        run.take(task, outcome)
        self.controls.trace.chunks(outcome.chunks)
        rows = sum(c.source.rows for c in outcome.chunks if c.source is not None)
        self.rows += rows
        self.bytes += rows * run.pair.row_bytes
        self.chunks += len(outcome.chunks)
        if outcome.kind != "confirm":
            self.differences += len(outcome.diffs)

    def _retire(self) -> None:
        for run in [r for r in self.active if r.idle()]:
            self.active.remove(run)
            result = run.result()
            self._keep(result)
            self._finished(result, tuple(run.example()) if result.verdict is Verdict.MISMATCH else ())

    def _keep(self, result: TableResult) -> None:
        self.store.add_table_result(self.run_id, result)
        self.controls.trace.table(result)

    def _finished(self, result: TableResult, examples: tuple[RowDiff, ...] = ()) -> None:
        self.verdicts.append(result.verdict)
        self._report(result, examples)

    def _stop_now(self) -> None:
        self.engine.cancel()
        self.under_way.clear()
        self._give_up()

    def _give_up(self) -> None:
        reason = self.refusal or f"the run's time limit of {self.controls.run_seconds:g} s is over"
        for run in self.active:
            run.failures.append(reason)
            run.ready.clear()
            result = run.result()
            self._keep(result)
            self._finished(result)
        self.active.clear()
        self.verdicts.append(Verdict.INCONCLUSIVE)

    def _out_of_time(self, grace: float = 0.0) -> bool:
        """Whether no new task may begin: the time limit is over, or a server let nobody in any more."""
        limit = self.controls.run_seconds
        return bool(self.refusal) or (limit is not None and time.monotonic() - self.started > limit + grace)

    def _paused(self) -> bool:
        return self.controls.pause_file is not None and self.controls.pause_file.exists()

    def _report(self, finished: TableResult | None = None, examples: tuple[RowDiff, ...] = ()) -> None:
        table = finished.source if finished else self.active[0].pair.source if self.active else ""
        self.controls.on_progress(
            VerifyProgress(
                len(self.verdicts), self.controls.tables_total, self.rows, self.controls.rows_total, self.bytes,
                self.chunks, self.differences, table, self._paused(), finished, examples,
            )
        )  # fmt: skip
