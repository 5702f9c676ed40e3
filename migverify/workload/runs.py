"""Records sorted by session and time, in files ("runs") that one worker writes and others read.

A run belongs to one capture: its blocks carry a keyed hash, and nothing is decoded whose hash is not of this capture.
"""

from __future__ import annotations

import heapq
import marshal
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeAlias

from migverify.errors import ReadError
from migverify.workload.model import Command, Origin, Parameter, Record
from migverify.workload.private import private

RUN_BYTES = 256 << 20
"""How much text and overhead is sorted in memory."""
MOST_RUNS = 64
RECORD_OVERHEAD = 900
"""What a record takes in memory beside its text, measured."""
_BLOCK_BYTES = 128 << 10
_INDEX_BYTES = 1 << 20
_HASH_BYTES = 16
_SIZE_BYTES = 8

EDGES = {Command.CONNECT: -1, Command.FAILED_CONNECT: -1, Command.QUIT: 1}
"""Audit logs give connects and disconnects the query id 0: within one second they would stand in the middle."""

SessionKey: TypeAlias = tuple[str, int]
"""Server and connection id; -1 where a record has none."""
SortKey: TypeAlias = tuple[str, int, int, int, int, int, int]
"""Server, connection id, time, edge, number, rank of the file, offset in it."""
Packed: TypeAlias = tuple[Any, ...]
CONTENT = 8
"""From here on the fields of a packed record are what the log says, and not where or in what surroundings it was."""
DATABASE, PARTIAL, DETAILS, NUMBER, SQL = 4, 5, 6, 7, 9
"""Indexes of a packed record."""

_COMMANDS = {one.value: one for one in Command}


class RunEntry(NamedTuple):
    """A record of a run."""

    key: SortKey
    packed: Packed
    run: Run


class RunMark(NamedTuple):
    """A place in a run where blocks begin: its first record's session, and the weight up to the next mark."""

    session: SessionKey
    offset: int
    weight: int


@dataclass(frozen=True, slots=True)
class Run:
    """One file of sorted records.

    ``line`` is added to the lines of its records, and ``database`` is the current database of those that were read
    without knowing it: what only the part of the file before them says.
    """

    path: str
    marks: tuple[RunMark, ...]
    line: int = 0
    database: str | None = None


def sort_time(record: Record) -> int | None:
    """Return the time that orders a record among those of its session: its end, else its start.

    Within a session statements follow each other, so both give one order; the end is the server's own, where a
    start may have been computed from a clock that the client had set.
    """
    return record.start if record.end is None else record.end


class RunWriter:
    """Sorts records and writes them into one file; beyond ``run_bytes`` by way of others beside it."""

    def __init__(self, path: Path, secret: bytes, run_bytes: int = RUN_BYTES) -> None:
        self._path, self._secret, self._run_bytes = path, secret, run_bytes
        self._records: list[tuple[SortKey, Packed]] = []
        self._bytes = 0
        self._spilled: list[Run] = []
        self._made = 0

    def add(self, record: Record, time: int, rank: int) -> None:
        """Take in a record. ``time`` orders it where it has none of its own; ``rank`` is its file's place in time."""
        own = sort_time(record)
        edge, number = EDGES.get(record.command, 0), record.number
        if "time" in record.details:  # of whole seconds: the order of files and lines is that of events, ids are not
            edge = number = 0
        key = (
            record.server, -1 if record.session is None else record.session, time if own is None else own, edge,
            number, rank, record.origin.offset,
        )  # fmt: skip
        self._records.append((key, _pack(record)))
        self._bytes += len(record.sql) + RECORD_OVERHEAD
        if self._bytes >= self._run_bytes:
            self._spilled.append(self._sorted(self._part_path()))
            if len(self._spilled) >= MOST_RUNS:  # open files are scarce
                self._spilled = [self._merge(self._spilled, self._part_path())]

    def close(self) -> Run:
        """Write what is left; returns the run of all records."""
        if not self._spilled:
            return self._sorted(str(self._path))
        return self._merge([*self._spilled, self._sorted(self._part_path())], str(self._path))

    def _part_path(self) -> str:
        self._made += 1
        return f"{self._path}.{self._made}"

    def _merge(self, parts: list[Run], path: str) -> Run:
        run = self._write(path, ((one.key, one.packed) for one in merged(parts, self._secret)))
        for part in parts:
            Path(part.path).unlink()
        return run

    def _sorted(self, path: str) -> Run:
        self._records.sort(key=_key)
        run = self._write(path, self._records)
        self._records, self._bytes = [], 0
        return run

    def _write(self, path: str, records: Iterable[tuple[SortKey, Packed]]) -> Run:
        marks: list[RunMark] = []
        with open(path, "wb", opener=private) as file:
            block: list[object] = []
            size = unmarked = 0
            first: SortKey | None = None
            start = 0
            for key, packed in records:
                if first is None:
                    first, start = key, file.tell()
                block.append((key, packed))
                size += len(packed[SQL]) + RECORD_OVERHEAD
                if size >= _BLOCK_BYTES:
                    self._block(file, block)
                    unmarked += size
                    block, size = [], 0
                    if unmarked >= _INDEX_BYTES:
                        marks.append(RunMark(first[:2], start, unmarked))
                        first, unmarked = None, 0
            if block:
                self._block(file, block)
            if first is not None:
                marks.append(RunMark(first[:2], start, unmarked + size))
        return Run(path, tuple(marks))

    def _block(self, file: IO[bytes], block: list[object]) -> None:
        data = marshal.dumps(block)
        file.write(blake2b(data, key=self._secret, digest_size=_HASH_BYTES).digest())
        file.write(len(data).to_bytes(_SIZE_BYTES, "little"))
        file.write(data)


def merged(
    runs: Iterable[Run], secret: bytes, low: SessionKey | None = None, high: SessionKey | None = None
) -> Iterator[RunEntry]:
    """Yield the records of runs in order, of the sessions from ``low`` to below ``high``."""
    parts = [_read(run, secret, low, high) for run in runs if run.marks]
    return parts[0] if len(parts) == 1 else heapq.merge(*parts, key=_key)


def _key(entry: Any) -> Any:
    return entry[0]


def _read(run: Run, secret: bytes, low: SessionKey | None, high: SessionKey | None) -> Iterator[RunEntry]:
    at = 0 if low is None else max(0, bisect_left(run.marks, low, key=lambda mark: mark.session) - 1)
    with open(run.path, "rb") as file:  # noqa: PTH123
        file.seek(run.marks[at].offset)
        while head := file.read(_HASH_BYTES + _SIZE_BYTES):
            data = file.read(int.from_bytes(head[_HASH_BYTES:], "little"))
            if blake2b(data, key=secret, digest_size=_HASH_BYTES).digest() != head[:_HASH_BYTES]:
                raise ReadError(
                    f"{run.path} was changed while the capture ran.", hint="Capture again, into a folder of your own."
                )
            for key, packed in marshal.loads(data):  # noqa: S302  (written by this capture: the hash says so)
                if low is not None and key[:2] < low:
                    continue
                if high is not None and key[:2] >= high:
                    return
                yield RunEntry(key, packed, run)


def cuts(runs: Iterable[Run], share_bytes: int) -> list[SessionKey]:
    """Return the sessions at which to cut all records into shares of about so many bytes; a session is never cut."""
    marks = sorted((mark.session, mark.weight) for run in runs for mark in run.marks)
    found: list[SessionKey] = []
    size = 0
    for session, weight in marks:
        if size >= share_bytes and session != (found[-1] if found else marks[0][0]):
            found.append(session)
            size = 0
        size += weight
    return found


def _pack(record: Record) -> Packed:
    origin = record.origin
    parameters = None if record.parameters is None else tuple((one.kind, one.value) for one in record.parameters)
    return (
        origin.file, origin.offset, origin.line, origin.length, record.database, record.partial, record.details,
        record.number, record.command.value, record.sql, record.session, record.user, record.host, record.start,
        record.end, record.clock, record.duration, record.errno, record.rows_sent, record.rows_affected,
        record.statement_id, parameters, record.last_insert_id, record.insert_id, record.server,
    )  # fmt: skip


def unpack(packed: Packed, line: int, database: str | None, unknown: str) -> Record:
    """Return a record; see ``Run`` for ``line`` and ``database``, which takes the place of ``unknown``."""
    (
        file, offset, own_line, length, own_database, partial, details, number, command, sql, session, user, host,
        start, end, clock, duration, errno, rows_sent, rows_affected, statement_id, parameters, last_insert_id,
        insert_id, server,
    ) = packed  # fmt: skip
    if own_database == unknown:
        own_database = database
        if command == Command.INIT_DB:  # its text is the database
            sql = (database or "").encode("utf-8", "surrogateescape")
    return Record(
        Origin(file, offset, own_line + line, length), _COMMANDS[command], sql, session, user, host, own_database,
        start, end, clock, duration, errno, rows_sent, rows_affected, number, statement_id,
        None if parameters is None else tuple(Parameter(*one) for one in parameters), last_insert_id, insert_id,
        partial, server, details,
    )  # fmt: skip
