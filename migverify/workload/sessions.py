"""Records of shuffled and rotated files become sessions: sorted on disk, followed one by one, their edges marked.

Memory stays bounded: records are sorted in runs that spill to files, and only a transaction that may turn out to be
unfinished is held back, on disk when it is long.
"""

from __future__ import annotations

import heapq
import marshal
import pickle  # our own files, written and read by one process
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

from migverify.workload.model import Command, Origin, Parameter, Record
from migverify.workload.state import State, Tracker

RUN_BYTES = 192 << 20
"""How much text and overhead one sorted run may take in memory."""
RECORD_OVERHEAD = 900
"""What a record takes in memory beside its text, measured."""
MOST_RUNS = 64
HELD_BYTES = 32 << 20
_BLOCK = 500

BEGAN_BEFORE = "session began before the capture"
OPEN_AT_END = "transaction open at the end of the capture"
NO_SESSION = "no session id"
PREPARED_BEFORE = "prepared before the capture"

SortKey: TypeAlias = tuple[str, int, int, int, int, int, int]
_Entry: TypeAlias = tuple[SortKey, Record]


@dataclass(frozen=True, slots=True)
class Statement:
    """A record in its session.

    ``session`` is ``server/connection id/nth``: a connection id comes back after a restart and after a quit.
    ``position`` counts the session's records from 0. ``partial`` joins the reasons why the statement cannot be
    replayed or judged as it stands by ``"; "``, empty when there is none.
    """

    record: Record
    session: str
    position: int
    state: State
    partial: str


def sort_time(record: Record) -> int | None:
    """Return the time that orders a record among those of its session: its end, else its start.

    Within a session statements follow each other, so both give one order; the end is the server's own, where a
    start may have been computed from a clock that the client had set.
    """
    return record.start if record.end is None else record.end


class Spool:
    """Sorts records by server, session, time and number, on disk beyond ``run_bytes``.

    Parameters
    ----------
    folder
        Where runs are written; they are removed when read to their end.
    """

    def __init__(self, folder: Path, run_bytes: int = RUN_BYTES) -> None:
        self._folder = folder
        self._run_bytes = run_bytes
        self._held: list[_Entry] = []
        self._bytes = 0
        self._serial = 0
        self._runs: list[Path] = []
        self._made = 0

    def add(self, record: Record, time: int, rank: int) -> None:
        """Take in a record. ``time`` orders it where it has none of its own; ``rank`` is its file's place in time."""
        own = sort_time(record)
        edge = EDGES.get(record.command, 0)
        key = (
            record.server, -1 if record.session is None else record.session, time if own is None else own, edge,
            record.number, rank, self._serial,
        )  # fmt: skip
        self._serial += 1
        self._held.append((key, record))
        self._bytes += len(record.sql) + RECORD_OVERHEAD
        if self._bytes >= self._run_bytes:
            self._spill()

    def records(self) -> Iterator[Record]:
        """Yield all records in order; once."""
        self._held.sort(key=_key)
        parts = [_read_run(path) for path in self._runs]
        for _, record in heapq.merge(*parts, iter(self._held), key=_key):
            yield record
        self._held = []
        for path in self._runs:
            path.unlink()
        self._runs = []

    def _spill(self) -> None:
        self._held.sort(key=_key)
        self._write(iter(self._held))
        self._held = []
        self._bytes = 0
        if len(self._runs) >= MOST_RUNS:  # open files are scarce
            old, self._runs = self._runs, []
            self._write(heapq.merge(*(_read_run(path) for path in old), key=_key))
            for path in old:
                path.unlink()

    def _write(self, entries: Iterator[_Entry]) -> None:
        path = self._folder / f"run-{self._made:05d}"
        self._made += 1
        with path.open("wb") as file:
            block: list[object] = []
            for key, record in entries:
                block.append((key, _pack(record)))
                if len(block) >= _BLOCK:
                    marshal.dump(block, file)
                    block = []
            marshal.dump(block, file)
            marshal.dump(None, file)
        self._runs.append(path)


EDGES = {Command.CONNECT: -1, Command.FAILED_CONNECT: -1, Command.QUIT: 1}
"""Audit logs give connects and disconnects the query id 0: within one second they would stand in the middle."""


def _key(entry: _Entry) -> SortKey:
    return entry[0]


def _read_run(path: Path) -> Iterator[_Entry]:
    with path.open("rb") as file:
        while (block := marshal.load(file)) is not None:  # noqa: S302  (written by _write of this process)
            for key, packed in block:
                yield key, _unpack(packed)


def _pack(record: Record) -> tuple[Any, ...]:
    origin = record.origin
    parameters = None if record.parameters is None else tuple((one.kind, one.value) for one in record.parameters)
    return (
        origin.file, origin.offset, origin.line, origin.length, record.command.value, record.sql, record.session,
        record.user, record.host, record.database, record.start, record.end, record.clock, record.duration,
        record.errno, record.rows_sent, record.rows_affected, record.number, record.statement_id, parameters,
        record.last_insert_id, record.insert_id, record.partial, record.server, record.details,
    )  # fmt: skip


def _unpack(packed: tuple[Any, ...]) -> Record:
    parameters = packed[19]
    typed = None if parameters is None else tuple(Parameter(kind, value) for kind, value in parameters)
    told: list[Any] = [Origin(*packed[:4]), Command(packed[4]), *packed[5:19], typed, *packed[20:]]
    return Record(*told)


def in_sessions(
    records: Iterable[Record],
    *,
    connects: Callable[[str], bool],
    mask: Callable[[bytes], bytes] | None = None,
    folder: Path | None = None,
) -> Iterator[Statement]:
    """Yield sorted records as statements of sessions, each with the state it runs in.

    Parameters
    ----------
    records
        In the order of ``Spool.records``.
    connects
        Does this server's capture tell connects? Where it does, a session without one began before the capture.
    mask
        What becomes of the values of user variables in the state.
    folder
        Where a long open transaction is kept; default: the system's folder for such files.
    """

    def begin(record: Record, nth: int) -> _Session:
        return _Session(record, nth, connects=connects(record.server), mask=mask, folder=folder)

    session: _Session | None = None
    for record in records:
        if session is None or not session.same(record):
            if session is not None:
                yield from session.close()
            session = begin(record, 1)
        elif session.ends_before(record):
            yield from session.close()
            session = begin(record, session.nth + 1)
        yield from session.take(record)
    if session is not None:
        yield from session.close()


class _Session:
    """One session while its records go by."""

    def __init__(
        self,
        first: Record,
        nth: int,
        *,
        connects: bool,
        mask: Callable[[bytes], bytes] | None,
        folder: Path | None,
    ) -> None:
        self.nth = nth
        self._server, self._id = first.server, first.session
        number = "?" if first.session is None else str(first.session)
        self._name = f"{first.server or '-'}/{number}/{nth}"
        self._user = first.user
        self._tracker = Tracker(mask)
        self._position = 0
        self._over = False
        self._failed = False
        self._held = _Held(folder)
        self._reason = ""
        if first.session is None:
            self._reason = NO_SESSION
        elif connects and first.command not in (Command.CONNECT, Command.FAILED_CONNECT):
            self._reason = BEGAN_BEFORE

    def same(self, record: Record) -> bool:
        return record.server == self._server and record.session == self._id

    def ends_before(self, record: Record) -> bool:
        """Tell whether this record begins another session under the same connection id."""
        if self._id is None:
            return False
        if self._failed:
            return record.command is not Command.QUIT
        if self._over or record.command in (Command.CONNECT, Command.FAILED_CONNECT):
            return self._position > 0
        # Formats without connects: another user under the same id is another session, after a restart.
        user = record.user
        return bool(user and self._user and user != self._user and record.command is not Command.CHANGE_USER)

    def take(self, record: Record) -> Iterator[Statement]:
        tracker = self._tracker
        if self._id is None:  # records of unlike sessions: none tells anything about the next
            tracker = Tracker()
        before, before_open = tracker.opened, tracker.transaction
        state = tracker.state(record)
        partial = joined_reasons(record.partial, self._reason, self._prepared_before(record))
        statement = Statement(record, self._name, self._position, state, partial)
        self._position += 1
        self._user = record.user or self._user
        tracker.apply(record)
        if self._id is None:
            yield statement
            return
        self._over = self._over or record.command is Command.QUIT
        self._failed = self._failed or record.command is Command.FAILED_CONNECT
        if not tracker.transaction:
            if before_open:
                yield from self._held.release("")
            yield statement
        else:
            if tracker.opened != before:  # BEGIN in an open transaction commits it
                yield from self._held.release("")
            self._held.add(statement)

    def _prepared_before(self, record: Record) -> str:
        if record.command is not Command.EXECUTE or record.sql or record.partial:
            return ""
        return PREPARED_BEFORE

    def close(self) -> Iterator[Statement]:
        """The capture has no more of this session: what its last transaction did is known only if it quit."""
        yield from self._held.release("" if self._over else OPEN_AT_END)


class _Held:
    """The statements of one open transaction, until it is known how it ended."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._statements: list[Statement] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def add(self, statement: Statement) -> None:
        self._statements.append(statement)
        self._bytes += len(statement.record.sql) + RECORD_OVERHEAD
        if self._bytes >= HELD_BYTES:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  (closed by release)
            pickle.dump(self._statements, self._file)
            self._statements = []
            self._bytes = 0

    def release(self, reason: str) -> Iterator[Statement]:
        if self._file is not None:
            with self._file as file:
                end = file.seek(0, 2)
                file.seek(0)
                while file.tell() < end:
                    yield from _marked(pickle.load(file), reason)  # noqa: S301  (written by add)
            self._file = None
        yield from _marked(self._statements, reason)
        self._statements = []
        self._bytes = 0


def _marked(statements: list[Statement], reason: str) -> Iterator[Statement]:
    if not reason:
        yield from statements
        return
    for statement in statements:
        yield replace(statement, partial=joined_reasons(statement.partial, reason))


def joined_reasons(*reasons: str) -> str:
    """Return reasons as one text, each once."""
    if not any(reasons):
        return ""
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
