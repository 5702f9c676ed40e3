"""A small MySQL-to-TiDB applier for rehearsals: the change stream in, batches of whole transactions out.

One thread reads the stream and keeps what is in scope; one turns transactions into batches and has them applied. Under
little load a batch is what came in a twentieth of a second, under much load it grows to ``batch_rows`` changes: the
more the target is behind, the faster it goes. Never a replicator for production: no retries over a lost target, no
conversion of definitions, no filters but the databases.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from migverify.changes.model import Op, Position, Rows, Statement
from migverify.errors import LabError, MigverifyError
from migverify_lab.replicator_faults import FaultDone, Injector
from migverify_lab.replicator_plan import BatchPlan
from migverify_lab.replicator_rules import FaultRule
from migverify_lab.replicator_stream import OpenStream, StreamTransaction, row_changes, transactions
from migverify_lab.replicator_target import TargetWriter, place
from migverify_lab.servers import LabServer

BANNER = """\
********************************************************************************
*  migverify lab replicator: FOR REHEARSALS ONLY.                              *
*  It writes to the target. Never point it at a database that anybody needs.   *
********************************************************************************"""

CHECKPOINT_SECONDS = 0.2
"""How long a position without changes in scope may wait until it is recorded."""
QUEUE_TRANSACTIONS = 2000


@dataclass(frozen=True, slots=True)
class ReplicatorOptions:
    """What to replicate.

    Attributes
    ----------
    since
        Where to begin; None is the checkpoint, and the source's end where there is none.
    batch_rows
        Row changes from which on a batch is full. A transaction is never cut.
    linger
        Seconds that a batch waits for more: few large batches cost the target less than many small ones.
    idle_checkpoints
        Whether a position is recorded without changes, too; else the target rests while the source does.
    """

    target: LabServer
    databases: tuple[str, ...]
    name: str = "lab"
    since: Position | None = None
    batch_rows: int = 2000
    linger: float = 0.05
    faults: tuple[FaultRule, ...] = ()
    seed: int = 1
    idle_checkpoints: bool = True


@dataclass(slots=True)
class ReplicatorStatus:
    """Figures of a running replicator. ``at`` is how far the target is; ``time`` that transaction's commit."""

    at: Position | None = None
    time: float = 0.0
    transactions: int = 0
    changes: int = 0
    batches: int = 0
    stalled: bool = False
    stopped_at: str = ""
    applying: float = field(default=0.0)


class Replicator:
    """Applies a change stream until it is stopped.

    Parameters
    ----------
    open_stream
        Begins the source's stream behind a position.
    head
        Says where the source's binlog ends now, with file and offset: the start where there is no checkpoint.
    on_fault
        Called for each fault that is done, when its batch has been applied.

    Notes
    -----
    ``run`` is for a thread or process of its own; ``start`` makes the thread. ``stop`` may be called from anywhere.
    """

    def __init__(
        self,
        options: ReplicatorOptions,
        open_stream: OpenStream,
        head: Callable[[], Position],
        on_fault: Callable[[FaultDone], None] = lambda _: None,
        on_status: Callable[[ReplicatorStatus], None] = lambda _: None,
    ) -> None:
        self.options = options
        self.status = ReplicatorStatus()
        self.failure: MigverifyError | None = None
        self._open_stream = open_stream
        self._head = head
        self._on_fault = on_fault
        self._on_status = on_status
        self._databases = frozenset(options.databases)
        self._injector = Injector(options.faults, options.seed)
        self._reported = 0
        self._target = TargetWriter(options.target, options.name)
        self._queue: queue.Queue[StreamTransaction | MigverifyError | None] = queue.Queue(QUEUE_TRANSACTIONS)
        self._kept: StreamTransaction | MigverifyError | None = None
        self._stop = threading.Event()
        self._resumed = threading.Event()
        self._moved = threading.Condition()
        self._thread: threading.Thread | None = None
        self._unsaved: StreamTransaction | None = None
        self._saved_at = 0.0

    # --- for those who use it ---------------------------------------------------------------------------------

    @property
    def faults_done(self) -> list[FaultDone]:
        """The faults so far."""
        return list(self._injector.done)

    @property
    def injector(self) -> Injector:
        """What the faults did, and which differences stand."""
        return self._injector

    @property
    def running(self) -> bool:
        """Whether the thread of ``start`` lives."""
        return self._thread is not None and self._thread.is_alive()

    def has_reached(self, at: Position) -> bool:
        """Whether the target has applied everything before a position."""
        return self.status.at is not None and place(self.status.at) >= place(at)

    def start(self) -> None:
        """Run on a thread."""
        self._thread = threading.Thread(target=self._guarded, name="replicator", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Tell it to end after the batch it has; returns when a thread that ``start`` made has ended.

        Raises
        ------
        LabError
            the thread does not end.
        """
        self._stop.set()
        if self._thread is not None:
            self._thread.join(120)
            if self._thread.is_alive():
                raise LabError("the replicator did not stop within 120 s", hint="Look at the target's processes.")

    def resume(self) -> None:
        """End a stall: go on where it stopped."""
        self._resumed.set()

    def stop(self) -> None:
        """End it, and raise what made it end before: a MigverifyError."""
        self.end()
        if self.failure is not None:
            raise self.failure

    def wait_until(self, at: Position, seconds: float = 60.0) -> None:
        """Wait until the target has applied everything before a position of the source.

        Raises
        ------
        LabError
            it did not come so far in time; MigverifyError of the replicator when that has ended.
        """
        limit = time.monotonic() + seconds
        with self._moved:
            while not self.has_reached(at):
                if self.failure is not None:
                    raise self.failure
                if self.status.stopped_at:
                    raise LabError(
                        f"the replicator stopped at {self.status.at} before a DDL", hint="Fault stop-at-ddl."
                    )
                if time.monotonic() > limit:
                    raise LabError(
                        f"the replicator {self.options.name} is at {self.status.at}, not at {at}, after {seconds:g} s",
                        hint="It may be stalled, or the machine too slow.",
                    )
                self._moved.wait(0.2)

    def _guarded(self) -> None:
        try:
            self.run()
        except MigverifyError as error:
            self.failure = error
        except Exception as error:  # noqa: BLE001 - a thread that dies silently would look like a stall
            self.failure = LabError(f"the replicator broke: {error!r}")

    # --- the way of the data ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Apply until ``stop``, the end of the stream, or the fault stop-at-ddl.

        Raises
        ------
        ChangeError
            the stream cannot be read exactly.
        LabError
            the target refuses something.
        """
        self._target.open(self.options.since)
        try:
            if self._target.checkpoint is None:
                # Recorded before anything is read: who is killed before the first batch starts again here.
                begin = self.options.since or self._head()
                self._target.apply(None, begin, 0.0, begin.gtids)
            since = self._target.checkpoint.at if self._target.checkpoint is not None else self._head()
            self._moved_to(since, 0.0)
            self._saved_at = time.monotonic()
            threading.Thread(target=self._read, args=(since,), name="stream", daemon=True).start()
            while not self._stop.is_set() and self._step():
                pass
        finally:
            self._stop.set()
            self._target.close()

    def _read(self, since: Position) -> None:
        """Run on a thread: put the stream's transactions into the queue, None at its end, or what ended it."""
        ending: MigverifyError | None = None
        try:
            for transaction in transactions(self._open_stream(since), self._databases):
                if self._stop.is_set() or not self._put(transaction):
                    return
        except MigverifyError as error:
            ending = error
        except Exception as error:  # noqa: BLE001 - as above: somebody must hear of it
            ending = LabError(f"reading the change stream broke: {error!r}")
        self._put(ending)

    def _put(self, entry: StreamTransaction | MigverifyError | None) -> bool:
        while not self._stop.is_set():
            try:
                self._queue.put(entry, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False

    def _step(self) -> bool:
        """Gather and apply one batch; False at the end of the stream."""
        first = self._next(CHECKPOINT_SECONDS)
        if isinstance(first, StreamTransaction):
            if any(isinstance(event, Statement) for event in first.events):
                return self._apply_statements(first)
            if first.events:
                return self._apply_batch(first)
            self._unsaved = first
        ended = isinstance(first, MigverifyError | _End)
        if self._unsaved is not None and (ended or time.monotonic() - self._saved_at >= CHECKPOINT_SECONDS):
            if self.options.idle_checkpoints:
                self._finish(None, self._unsaved)
            else:
                self._saved(self._unsaved)
        if isinstance(first, MigverifyError):
            raise first
        return first is not _END

    def _next(self, seconds: float) -> StreamTransaction | MigverifyError | _End | None:
        """Return the next transaction, None when none comes in time; the way the stream ended else."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            return kept
        try:
            entry = self._queue.get(timeout=seconds) if seconds else self._queue.get_nowait()
        except queue.Empty:
            return None
        return _END if entry is None else entry

    def _apply_batch(self, first: StreamTransaction) -> bool:
        plan = BatchPlan()
        last = first
        self._take(plan, first)
        more = True
        until = time.monotonic() + self.options.linger
        while plan.changes < self.options.batch_rows and self._injector.stall_seconds is None:
            entry = self._next(max(0.0, until - time.monotonic()))
            if isinstance(entry, _End):
                more = False
                break
            if not isinstance(entry, StreamTransaction) or not self._fits(plan, entry):
                self._kept = entry
                break
            self._take(plan, entry)
            last = entry
        self._finish(plan, last)
        if self._injector.stall_seconds is not None:
            self._stall(self._injector.stall_seconds)
        return more

    def _fits(self, plan: BatchPlan, transaction: StreamTransaction) -> bool:
        """Whether a transaction may go into a batch: no statement, and no table whose layout has changed."""
        for event in transaction.events:
            if isinstance(event, Statement):
                return False
            layout = plan.layout(event.table.name)
            if layout is not None and layout is not event.table and layout != event.table:
                return False
        return True

    def _take(self, plan: BatchPlan, transaction: StreamTransaction) -> None:
        for event in transaction.events:
            if isinstance(event, Rows):
                table = self._target.table(event.table)
                for change in row_changes(event, table, transaction.end):
                    for emitted in self._injector.take(change, transaction.gtid):
                        plan.add(emitted)
        self.status.transactions += 1

    def _apply_statements(self, transaction: StreamTransaction) -> bool:
        """Apply a transaction that holds a DDL or TRUNCATE; in the binlog such a one holds nothing else."""
        for event in transaction.events:
            if isinstance(event, Rows):
                raise LabError(f"rows and a statement in one transaction at {transaction.end}",
                               hint="CREATE TABLE ... SELECT is beyond the lab's replicator.")  # fmt: skip
            if self._injector.stops_at(event, transaction.gtid, f"{event.file}:{event.offset}"):
                self.status.stopped_at = event.sql
                self._tell_faults()
                return False
            self._target.run_statement(event, transaction.end, transaction.time)
            if event.op is Op.TRUNCATE or event.sql.lstrip()[:4].upper() == "DROP":
                self._injector.forget(event.tables)
        self.status.transactions += 1
        self._saved(transaction)
        return True

    def _finish(self, plan: BatchPlan | None, last: StreamTransaction) -> None:
        """Apply a batch, move the checkpoint, tell about it."""
        started = time.monotonic()
        self._target.apply(plan, last.end, last.time, last.end.gtids)
        self.status.applying += time.monotonic() - started
        if plan is not None:
            self.status.batches += 1
            self.status.changes += plan.changes
        self._saved(last)

    def _saved(self, last: StreamTransaction) -> None:
        self._unsaved = None
        self._saved_at = time.monotonic()
        self._moved_to(last.end, last.time)
        self._tell_faults()
        self._on_status(self.status)

    def _moved_to(self, at: Position, moment: float) -> None:
        with self._moved:
            self.status.at, self.status.time = at, moment
            self._moved.notify_all()

    def _tell_faults(self) -> None:
        for fault in self._injector.done[self._reported :]:
            self._on_fault(fault)
        self._reported = len(self._injector.done)

    def _stall(self, seconds: float) -> None:
        """Apply nothing, for a time or until ``resume`` or ``stop``."""
        self.status.stalled = True
        self._injector.stall_seconds = None
        self._resumed.clear()
        until = time.monotonic() + seconds if seconds else float("inf")
        while not self._resumed.is_set() and time.monotonic() < until and not self._stop.wait(0.05):
            pass
        self.status.stalled = False


class _End:
    """The stream has ended by itself."""


_END = _End()
