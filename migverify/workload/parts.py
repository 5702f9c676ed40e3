"""Files of a capture in parts, each read into a run by one worker; what proves that the parts are the files.

A part of a log begins at the first header in it that says its time. A literal may hold such a header, and a quote may
be left open before it: a part counts only if it began where the part before ended, and nothing that the part before
says decides how its records are read. Else it is read again from there, with what the part before says.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from migverify.errors import ReadError
from migverify.workload.formats.audit import Looks
from migverify.workload.lines import is_packed, rejected, shown_path
from migverify.workload.model import (
    UNKNOWN,
    CaptureFormat,
    Carry,
    Command,
    Divisible,
    Noise,
    Part,
    Piece,
    Record,
    Rejected,
)
from migverify.workload.private import private
from migverify.workload.runs import RUN_BYTES, Run, RunWriter, sort_time
from migverify.workload.tasks import Tasks, without_collections

PART_BYTES = 32 << 20
_MOST_PARTS = 256
DISORDER = 1_000_000
"""Microseconds a record may be older than an earlier one before the file counts as out of order there."""
_LAST_TIME = 253_402_300_800_000_000
"""The year 10000 in microseconds: no server writes such a time."""
_INT32, _INT64, _UINT64 = 1 << 31, 1 << 63, 1 << 64
OUT_OF_RANGE = "number or time that no server writes"


@dataclass(frozen=True, slots=True)
class CaptureInput:
    """One file and how to read it.

    ``path`` is a file or a URL. ``server`` names the server where the file does not.
    """

    path: Path | str
    format: CaptureFormat
    server: str = ""

    @property
    def shown(self) -> str:
        """The file as its rows name it."""
        return shown_path(str(self.path))


@dataclass(slots=True)
class FileCount:
    """What one file held.

    ``disordered`` counts records more than a second older than one before them, in the same part of a large file.
    ``duplicates`` counts records that another file of the capture holds too.
    """

    file: str
    format: str
    server: str
    bytes: int = 0
    records: int = 0
    rejected: int = 0
    rejected_bytes: int = 0
    noise_bytes: int = 0
    disordered: int = 0
    disorder_s: float = 0.0
    first: int | None = None
    last: int | None = None
    duplicates: int = 0

    def add(self, other: FileCount) -> None:
        """Add what another part of the file held."""
        for name in ("bytes", "records", "rejected", "rejected_bytes", "noise_bytes", "disordered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.disorder_s = max(self.disorder_s, other.disorder_s)
        for moment in (other.first, other.last):
            if moment is not None:
                self.note(moment)

    def note(self, moment: int) -> None:
        """Take in the time of a record."""
        if self.first is None or moment < self.first:
            self.first = moment
        if self.last is None or moment > self.last:
            self.last = moment


@dataclass(frozen=True, slots=True)
class FileSpan:
    """Bytes of a file, by the offsets at which records of it begin.

    ``carry``: see ``Divisible.part``. ``clock`` is the time of the last record before that has one.
    """

    one: CaptureInput
    rank: int
    begin: int = 0
    stop: int | None = None
    carry: Carry | None = None
    clock: int = -1


@dataclass(frozen=True, slots=True)
class ReadTask:
    """Segments that one worker reads into one run."""

    segments: tuple[FileSpan, ...]
    path: Path
    secret: bytes
    run_bytes: int = RUN_BYTES


@dataclass(slots=True)
class SegmentResult:
    """What a worker read of a segment; ``needs_clock``: its first record has no time."""

    segment: FileSpan
    count: FileCount
    begin: int = 0
    end: int = 0
    lines: int = 0
    carry: Carry = field(default_factory=Carry)
    untimed: int = 0
    clock: int = -1
    needs_clock: bool = False
    is_coarse: bool = False
    rejects: Counter[str] = field(default_factory=Counter)
    noise: Counter[str] = field(default_factory=Counter)
    connects: set[str] = field(default_factory=set)
    looks: dict[str, Looks] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run, and what it is made of; its rejects are JSON lines in the file ``rejects``, without ``run.line``."""

    task: ReadTask
    run: Run
    segments: tuple[SegmentResult, ...]

    @property
    def rejects(self) -> Path:
        """The file of rejects."""
        return rejects_of(self.task.path)

    @property
    def rank(self) -> int:
        """The rank of the first file."""
        return self.segments[0].segment.rank


def rejects_of(run: Path) -> Path:
    """Return the file of the rejects beside a run."""
    return run.with_suffix(".rejects")


def read_tasks(
    inputs: Sequence[CaptureInput], sizes: Sequence[int], folder: Path, secret: bytes, part_bytes: int, run_bytes: int
) -> list[ReadTask]:
    """Return the tasks that read files, large ones in parts and small ones together; they are in the order of time."""
    part_bytes = max(part_bytes, sum(sizes) // _MOST_PARTS)
    groups: list[list[FileSpan]] = []
    gathered = part_bytes + 1
    for rank, (one, size) in enumerate(zip(inputs, sizes, strict=True)):
        if isinstance(one.format, Divisible) and size > part_bytes and not is_packed(str(one.path)):
            count = -(-size // part_bytes)
            edges = [number * part_bytes for number in range(count)]
            groups += [
                [FileSpan(one, rank, begin, stop)] for begin, stop in zip(edges, [*edges[1:], None], strict=True)
            ]  # fmt: skip
            gathered = part_bytes + 1
        elif gathered + size > part_bytes:
            groups.append([FileSpan(one, rank)])
            gathered = size
        else:
            groups[-1].append(FileSpan(one, rank))
            gathered += size
    return [
        ReadTask(tuple(group), folder / f"run-{number:05d}", secret, run_bytes) for number, group in enumerate(groups)
    ]


@without_collections()
def read_part(task: ReadTask) -> RunResult:
    """Read the segments of a task into its run.

    Raises
    ------
    ReadError
        bytes of a file are unaccounted for, or it cannot be read.
    """
    writer = RunWriter(task.path, task.secret, task.run_bytes)
    results = []
    with open(rejects_of(task.path), "w", opener=private) as file:
        for segment in task.segments:
            result = SegmentResult(
                segment, FileCount(segment.one.shown, segment.one.format.name, segment.one.server)
            )  # fmt: skip
            for piece in _read(result, writer):
                reject = {"reason": piece.reason, **asdict(piece.origin), "file": segment.one.shown}
                file.write(json.dumps(reject) + "\n")
            results.append(result)
    return RunResult(task, writer.close(), tuple(results))


def _read(result: SegmentResult, writer: RunWriter) -> Iterator[Rejected]:
    segment, count = result.segment, result.count
    one, server, rank = segment.one, segment.one.server, segment.rank
    path, shown = str(one.path), one.shown
    part = _part(segment)
    result.begin = 0 if isinstance(part, Iterator) else part.begin
    expected = result.begin
    newest = -1
    clock = segment.clock
    for piece in part:
        origin = piece.origin
        if origin.offset != expected:
            raise unaccounted(one, expected, origin.offset)
        expected += origin.length
        if isinstance(piece, Record):
            piece = checked(piece)
        if isinstance(piece, Record):
            if server and not piece.server:
                piece.server = server
            if shown != path:
                origin.file = shown
            own = sort_time(piece)
            if own is None:
                result.untimed += 1
                result.needs_clock = result.needs_clock or clock < 0
            else:
                clock = own
                if own > newest:
                    newest = own
                elif newest - own > DISORDER:
                    count.disordered += 1
                    count.disorder_s = max(count.disorder_s, (newest - own) / 1e6)
                if count.first is None or own < count.first:
                    count.first = own
            if piece.command is Command.CONNECT:
                result.connects.add(piece.server)
            if piece.details and "time" in piece.details:
                result.is_coarse = True
            count.records += 1
            writer.add(piece, clock, rank)
        elif isinstance(piece, Noise):
            count.noise_bytes += origin.length
            result.noise[piece.what] += 1
        else:
            count.rejected += 1
            count.rejected_bytes += origin.length
            result.rejects[piece.reason] += 1
            yield piece
    count.last = newest if newest >= 0 else None
    result.clock = clock
    count.bytes = expected - result.begin
    result.end = expected
    if not isinstance(part, Iterator):
        result.lines, result.carry, result.looks = part.lines, part.carry, getattr(part, "looks", {})


def _part(segment: FileSpan) -> Part | Iterator[Piece]:
    one, path = segment.one, str(segment.one.path)
    if isinstance(one.format, Divisible):
        return one.format.part(path, segment.begin, segment.stop, segment.carry)
    return one.format.read(path)


def checked(record: Record) -> Record | Rejected:
    """Return a record, or a reject where a number of it is none that a server writes."""
    end, start, clock = record.end, record.start, record.clock
    if (
        (end is None or 0 <= end < _LAST_TIME)
        and (start is None or 0 <= start < _LAST_TIME)
        and (clock is None or 0 <= clock < _LAST_TIME)
        and (record.duration is None or 0 <= record.duration < _LAST_TIME)
        and (record.errno is None or 0 <= record.errno < _INT32)
        # below 0 is the reader's own number of a connection that packets joined midway
        and (record.session is None or -_INT64 <= record.session < _INT64)
        and 0 <= record.number < _INT64
        and (record.rows_sent is None or 0 <= record.rows_sent < _INT64)
        and (record.rows_affected is None or 0 <= record.rows_affected < _INT64)
        and (record.last_insert_id is None or 0 <= record.last_insert_id < _UINT64)
        and (record.insert_id is None or 0 <= record.insert_id < _UINT64)
    ):
        return record
    origin = record.origin
    return rejected(origin.file, origin.offset, origin.line, origin.length, OUT_OF_RANGE)


def proven(results: Iterable[RunResult], tasks: Tasks) -> list[RunResult]:
    """Return results whose parts follow each other without a gap, reading those again that do not."""
    files: dict[int, list[RunResult]] = {}
    for result in results:
        files.setdefault(result.rank, []).append(result)
    chains = {rank: _Chain(sorted(parts, key=lambda one: one.segments[0].segment.begin))
              for rank, parts in sorted(files.items())}  # fmt: skip
    while again := [task for chain in chains.values() if (task := chain.next_task()) is not None]:
        for _, result in tasks.map(read_part, again):
            chains[result.rank].take(result)
    return [result for chain in chains.values() for result in chain.results]


class _Chain:
    """The parts of one file, from the first on as far as they are proven."""

    def __init__(self, parts: list[RunResult]) -> None:
        self._left = parts[::-1]
        self._end = self._line = 0
        self._carry = Carry()
        self._clock = -1
        self.results: list[RunResult] = []

    def next_task(self) -> ReadTask | None:
        """Go on; returns the task that reads the next part again, where it has to be."""
        while self._left:
            result = self._left.pop()
            first = result.segments[0]
            segment = first.segment
            if segment.begin == 0:
                self.take(result)
            elif segment.stop is not None and self._end >= segment.stop:
                continue  # the last record of the part before goes on beyond it
            elif first.begin == self._end and not self._carry.sessions and (not first.needs_clock or self._clock < 0):
                self.take(result)
            else:
                true = replace(segment, begin=self._end, carry=self._carry, clock=self._clock)
                return replace(result.task, segments=(true,))
        return None

    def take(self, result: RunResult) -> None:
        """Take in a part that is proven."""
        last = result.segments[-1]
        carry = last.carry
        if carry.database == UNKNOWN:
            carry = replace(carry, database=self._carry.database)
        if carry.time is None:  # it holds no record with a time
            carry = replace(carry, time=self._carry.time)
        run = replace(result.run, line=self._line, database=self._carry.database)
        self.results.append(replace(result, run=run))
        self._end, self._line, self._carry = last.end, self._line + last.lines, carry
        self._clock = max(self._clock, last.clock) if last.clock < 0 else last.clock


def check_sizes(inputs: Sequence[CaptureInput], sizes: Sequence[int], results: Sequence[RunResult]) -> None:
    """Check that files were read to where their ends were; what is written meanwhile belongs to the next capture.

    Raises
    ------
    ReadError
        bytes are unaccounted for, or a file was truncated.
    """
    ends = {one.segment.rank: one.end for result in results for one in result.segments}
    for rank, (one, size) in enumerate(zip(inputs, sizes, strict=True)):
        if ends[rank] < size and not is_packed(str(one.path)):
            raise unaccounted(one, ends[rank], size)


def unaccounted(one: CaptureInput, expected: int, begin: int) -> ReadError:
    """Return the error for a reader that lost bytes, or made them up."""
    return ReadError(
        f"{one.shown}: the {one.format.name} reader accounts for bytes up to {expected:,}, but goes on at {begin:,}.",
        hint="The file was changed while it was read, or this is a bug of the reader. Nothing was written.",
    )
