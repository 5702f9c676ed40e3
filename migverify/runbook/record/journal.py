"""The journal of a run in a store: a chain of lines under a lock of one row, in an SQLite file or on a server.

An append is one transaction: it locks the run's row, reads what is new, decides, and inserts; a torn line cannot be.
What can be lost is the answer to its COMMIT. Then the row is locked again: the lock of the first transaction is gone
only when the server has decided about it, so what the table holds then is what happened. The events are there with
their hashes, or they are not and never will be, and everything is decided anew.

A failover to a replica that had not received a commit loses it as it loses any other; the chain stays whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from migverify.errors import JournalError
from migverify.runbook.clock import Clock, system_clock
from migverify.runbook.events import Event
from migverify.runbook.record.chain import ChainEnd, Draft, Made, fence
from migverify.runbook.record.heads import Head
from migverify.store.database import Connection, Database
from migverify.store.journals import JournalEnd, JournalStart, add_lines, end_of, lines_of, newest_run

__all__ = ["RunJournal"]

T = TypeVar("T")


class RunJournal:
    """The journal of a run; not shared by threads.

    Parameters
    ----------
    run, runbook
        What is in every line: the run's id and the runbook's hash.
    folder
        On this machine, for what effects leave here: locks, files of evidence. Other machines do not see it.
    start
        What a listing of all journals said of this one: it is read as it was then. None: as it is when it is read.
    """

    def __init__(
        self, database: Database, run: str, runbook: str = "", *, folder: Path, clock: Clock = system_clock,
        start: JournalStart | None = None,
    ) -> None:  # fmt: skip
        self.database, self.run, self.runbook, self.folder, self.clock = database, run, runbook, folder, clock
        self._link = ChainEnd(run)
        self._start = start
        self._locked: Connection | None = None

    @property
    def label(self) -> str:
        """The store and the run, for messages; it holds no secret."""
        return f"{self.database.label} {self.run}"

    @property
    def head(self) -> str:
        """Hash of the last event that was read."""
        return self._link.head

    def new(self) -> Iterator[Event]:
        """Yield the events that came since the last call.

        Raises JournalError: a line is damaged, is not chained to the one before, or what was read before has been cut
        off; StoreError: the database cannot be read.
        """
        # The row first: events that come meanwhile are then the next call's, and no loop runs after a busy writer.
        end = self._now() if self._start is None else self._start.end
        if end is None:
            if self._link.line:
                raise JournalError(f"{self.label} is gone")
            return
        if end.events < self._link.line:
            raise JournalError(f"{self.label}: cut off before line {self._link.line + 1}, which was read before")
        while self._link.line < end.events:
            page = self._next(end.events)
            if not page:
                raise JournalError(f"{self.label}: line {self._link.line + 1} is gone")
            for line in page:
                event = self._link.take(line, self.label)
                self.runbook = event.runbook
                yield event
        if end.head != self._link.head:
            raise JournalError(f"{self.label}: line {self._link.line} is not the one that was written last")

    def events(self) -> Iterator[Event]:
        """Yield all events from the first on, also those that ``new`` has yielded."""
        return RunJournal(
            self.database, self.run, self.runbook, folder=self.folder, clock=self.clock, start=self._start
        ).new()

    def first(self) -> Event | None:
        """Return the first event; None: there is none. Raises as ``new``."""
        return next(self.events(), None)

    def lines(self) -> Iterator[bytes]:
        """Yield all lines as they are, each with its newline; nothing is checked."""
        seen, page = 0, [b""]
        while page:
            page = self.database.read(self._about("cannot read"), lambda c, at=seen: self._page(c, at, None))  # type: ignore[misc]
            yield from page
            seen += len(page)

    def end(self) -> JournalEnd | None:
        """Return where the journal ends as the run's row says; None: there is no such run."""
        return self.database.read(self._about("cannot read"), lambda c: end_of(c, self.run, locked=False))

    def run_before(self) -> Head | None:
        """Return the head of the run that was begun last in the store; None: there is none.

        Inside ``decide`` it is read in the transaction of the append, so that no two runs follow the same one.
        """

        def work(connection: Connection) -> Head | None:
            run = newest_run(connection)
            end = end_of(connection, run, locked=self._locked is not None) if run is not None else None
            return Head(run, end.events - 1, end.head) if run is not None and end is not None else None

        return self._ask(work)

    def append(
        self,
        decide: Callable[[], Sequence[Draft]],
        *,
        epoch: int | None = None,
        judge: Callable[[list[Event]], None] | None = None,
    ) -> list[Event]:
        """Lock, have ``decide`` look at what is new and say what to write, write it, and return it.

        ``decide`` has to consume ``new()``. It and ``judge`` may be called several times, when the database undid the
        transaction; the events that are returned are those of the last call, and ``new`` does not yield them again.

        Parameters
        ----------
        epoch
            Under which an executor writes; None: a person, who is not fenced.
        judge
            Sees the events before they are written; what it raises keeps them out.

        Raises FencedError: the journal has a newer epoch; StoreError: the database does not take the events; nothing of
        them is kept, unless the message says it is not known; JournalError: the journal is damaged: nothing is added to
        it.
        """

        def work(connection: Connection) -> Made:
            end = end_of(connection, self.run, locked=True)
            self._locked = connection
            try:
                drafts = decide()
                for event in self.new():
                    raise JournalError(f"{self.label}: event {event.seq} came while the row was locked")
                if end is not None and end != JournalEnd(self._link.line, self._link.head):
                    raise JournalError(f"{self.label}: its last line is not the one that was written last")
            finally:
                self._locked = None
            fence(self._link, drafts, epoch, self.run)
            made = self._link.make(drafts, self.run, self.runbook, self.clock.now())
            if judge is not None and drafts:
                judge(made.events)
            self._insert(connection, made, first=end is None)
            return made

        made = self.database.write(self._about("cannot write"), work, self._arrived)
        return [self._link.take(line, self.label) for line in made.lines]

    def _insert(self, connection: Connection, made: Made, *, first: bool) -> None:
        if made.events:
            last = made.events[-1]
            end = JournalEnd(last.seq + 1, last.sha)
            add_lines(connection, self.run, made.events[0].seq, made.lines, end, first=first)

    def _arrived(self, connection: Connection, made: Made) -> bool:
        if not made.events:
            return True
        end = end_of(connection, self.run, locked=True)
        if end is None or end.events <= made.events[-1].seq:
            return False
        first = made.events[0].seq
        there = self._page(connection, first, first + len(made.lines), locked=True)
        return there == made.lines

    def _page(self, connection: Connection, start: int, end: int | None, *, locked: bool | None = None) -> list[bytes]:
        under_lock = self._locked is not None if locked is None else locked
        return lines_of(connection, self.run, start, end, locked=under_lock)

    def _now(self) -> JournalEnd | None:
        return self._ask(lambda connection: end_of(connection, self.run, locked=self._locked is not None))

    def _next(self, end: int) -> list[bytes]:
        """Return the next lines before number ``end``: the first one where a listing read it, else a page."""
        if self._link.line == 0 and self._start is not None and self._start.line is not None:
            return [self._start.line]
        return self._ask(lambda connection: self._page(connection, self._link.line, end))

    def _ask(self, work: Callable[[Connection], T]) -> T:
        if self._locked is not None:
            return work(self._locked)
        return self.database.read(self._about("cannot read"), work)

    def _about(self, what: str) -> str:
        return f"{what} run {self.run} {'in' if what.endswith('write') else 'from'}"
