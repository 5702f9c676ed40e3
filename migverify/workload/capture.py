"""Files of a log, a packet trace or an audit stream become one set of statements, each in its session.

The way of the data: pieces of files (every byte is a record, a counted reject or noise of the format) -> sorted
records -> sessions -> batches of a sink. The output appears whole or not at all.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Protocol

from migverify.errors import ReadError, UsageError
from migverify.workload.model import Command, Format, Noise, Record, Rejected
from migverify.workload.sessions import RUN_BYTES, Spool, Statement, in_sessions, sort_time

SUMMARY = "_summary.json"
REJECTS = "_rejects.jsonl"
EVENTS = "_events"
VERSION = 1
GZIP = b"\x1f\x8b"

WITHOUT_CONNECTS = frozenset({"slow", "polled"})
"""Formats that never tell a connect: a session without one says nothing there."""

DISORDER = 1_000_000
"""Microseconds a record may stand behind its elders before the file counts as out of order there."""
_EDGE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class CaptureInput:
    """One file and how to read it. ``server`` names the server where the file does not."""

    path: Path
    format: Format
    server: str = ""


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How to capture. ``mask`` replaces the literals of a statement; ``text_mask`` those of user variables.

    ``run_bytes`` bounds what is sorted in memory; None: what suits the road.
    """

    out: Path
    replace: bool = False
    mask: Callable[[Statement], Statement] | None = None
    text_mask: Callable[[bytes], bytes] | None = None
    run_bytes: int | None = None


@dataclass(slots=True)
class FileCount:
    """What one file held. ``disordered`` counts records more than a second older than one before them."""

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


@dataclass(slots=True)
class CaptureSummary:
    """What a capture read and made. ``statements`` counts what the clients asked to be executed: text and prepared."""

    out: str
    masked: bool
    bytes: int = 0
    records: int = 0
    statements: int = 0
    rejected: int = 0
    rejected_bytes: int = 0
    noise_bytes: int = 0
    rejects: Counter[str] = field(default_factory=Counter)
    noise: Counter[str] = field(default_factory=Counter)
    sessions: int = 0
    partial_statements: int = 0
    partial: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    first: int | None = None
    last: int | None = None
    untimed: int = 0
    files: list[FileCount] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """Return the summary as a JSON object; times are UTC text."""
        # asdict() would copy a Counter into one of its items
        told: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        told |= {name: dict(part.most_common()) for name, part in told.items() if isinstance(part, Counter)}
        told["files"] = [asdict(count) for count in self.files]
        told["version"] = VERSION
        told["formats"] = sorted({count.format for count in self.files})
        told["servers"] = sorted({count.server for count in self.files})
        for part in (told, *told["files"]):
            for name in ("first", "last"):
                part[name] = None if part[name] is None else time_text(part[name])
        return told


class StatementSink(Protocol):
    """Takes statements in order and writes them."""

    def add(self, statement: Statement) -> None:
        """Take in one statement."""
        ...

    def close(self) -> None:
        """Write what is left."""
        ...


class ColumnRoad(Protocol):
    """Another way of the data, for formats that it can read a block at a time; what comes out is the same."""

    def takes(self, inputs: Sequence[CaptureInput], options: CaptureOptions) -> bool:
        """Tell whether it reads these files in this way."""
        ...

    def run(
        self,
        inputs: Sequence[CaptureInput],
        folder: Path,
        options: CaptureOptions,
        summary: CaptureSummary,
        rejects: IO[str],
    ) -> None:
        """Write the statements of files, which stand in the order of their times, and the summary's figures."""
        ...


def time_text(moment: int) -> str:
    """Return Unix microseconds as ISO text in UTC."""
    whole, micros = divmod(moment, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def is_statement(record: Record) -> bool:
    """Did the client ask for an answer that can be compared? A failed prepare is one too: its answer is the error."""
    return record.command in (Command.QUERY, Command.EXECUTE) or (
        record.command is Command.PREPARE and bool(record.errno)
    )


def capture(
    inputs: Sequence[CaptureInput],
    options: CaptureOptions,
    sink: Callable[[Path], StatementSink],
    columns: ColumnRoad | None = None,
) -> CaptureSummary:
    """Read files into ``options.out``: statements in the sink's files there, other commands under ``_events``.

    Parameters
    ----------
    sink
        Opens a sink that writes into a folder.
    columns
        Reads the formats that it takes.

    Raises
    ------
    UsageError
        the output is there already, two inputs are one file, or formats of unlike kinds are mixed.
    ReadError
        bytes of a file are unaccounted for; nothing is written then.
    """
    _refuse_doubles(inputs)
    with _whole_folder(options.out, replace=options.replace) as folder:
        summary = CaptureSummary(str(options.out), options.mask is not None)
        with (folder / REJECTS).open("w") as rejects:
            ordered = _in_time(inputs)
            if columns is not None and columns.takes(ordered, options):
                columns.run(ordered, folder, options, summary, rejects)
            else:
                _by_records(ordered, folder, options, sink, summary, rejects)
        text = json.dumps(summary.as_json(), indent=1)
        (folder / SUMMARY).write_text(text + "\n")
    return summary


def _by_records(
    inputs: Sequence[CaptureInput],
    folder: Path,
    options: CaptureOptions,
    sink: Callable[[Path], StatementSink],
    summary: CaptureSummary,
    rejects: IO[str],
) -> None:
    spool = Spool(folder, options.run_bytes or RUN_BYTES)
    connects: set[str] = set()
    for rank, one in enumerate(inputs):
        count = FileCount(str(one.path), one.format.name, one.server)
        summary.files.append(count)
        _read_file(one, rank, spool, count, summary, rejects, connects)
    telling = tells_connects(inputs)
    found = in_sessions(
        spool.records(),
        connects=lambda server: telling or server in connects,
        mask=options.text_mask,
        folder=folder,
    )
    _write(found, folder, options, sink, summary)


def tells_connects(inputs: Sequence[CaptureInput]) -> bool:
    """Tell whether a format among those of some files logs every connect."""
    return any(one.format.name not in WITHOUT_CONNECTS for one in inputs)


def _write(
    found: Iterator[Statement],
    folder: Path,
    options: CaptureOptions,
    sink: Callable[[Path], StatementSink],
    summary: CaptureSummary,
) -> None:
    statements, events = sink(folder), sink(folder / EVENTS)
    session = ""
    for statement in found:
        record = statement.record
        if statement.session != session:
            session = statement.session
            summary.sessions += record.command is not Command.FAILED_CONNECT
        summary.commands[record.command.value] += 1
        if options.mask is not None:
            statement = options.mask(statement)
        if not is_statement(record):
            events.add(statement)
            continue
        statements.add(statement)
        summary.statements += 1
        if statement.partial:
            summary.partial_statements += 1
            summary.partial.update(statement.partial.split("; "))
    statements.close()
    events.close()


def _read_file(
    one: CaptureInput,
    rank: int,
    spool: Spool,
    count: FileCount,
    summary: CaptureSummary,
    rejects: IO[str],
    connects: set[str],
) -> None:
    expected = 0
    size = one.path.stat().st_size
    clock = -1
    newest = -1
    for piece in one.format.read(str(one.path)):
        origin = piece.origin
        if origin.offset != expected:
            raise unaccounted(one, expected, origin.offset)
        expected += origin.length
        if isinstance(piece, Record):
            record = piece if piece.server or not one.server else _with_server(piece, one.server)
            own = sort_time(record)
            if own is None:
                summary.untimed += 1
            else:
                clock = own
                _note_time(count, own)
                if own > newest:
                    newest = own
                elif newest - own > DISORDER:
                    count.disordered += 1
                    count.disorder_s = max(count.disorder_s, (newest - own) / 1e6)
            if record.command is Command.CONNECT:
                connects.add(record.server)
            count.records += 1
            spool.add(record, clock, rank)
        elif isinstance(piece, Noise):
            count.noise_bytes += origin.length
            summary.noise[piece.what] += 1
        else:
            reject(piece, count, summary, rejects)
    if expected < size and not compressed(one.path):  # what was written while we read belongs to the next capture
        raise unaccounted(one, expected, size)
    count.bytes = expected
    add_up(summary, count)


def _with_server(record: Record, server: str) -> Record:
    # dataclasses.replace costs more than parsing the record did
    object.__setattr__(record, "server", server)
    return record


def _note_time(count: FileCount, moment: int) -> None:
    if count.first is None or moment < count.first:
        count.first = moment
    if count.last is None or moment > count.last:
        count.last = moment


def reject(piece: Rejected, count: FileCount, summary: CaptureSummary, rejects: IO[str]) -> None:
    """Count a reject and note where it stands."""
    count.rejected += 1
    count.rejected_bytes += piece.origin.length
    summary.rejects[piece.reason] += 1
    rejects.write(json.dumps({"reason": piece.reason, **asdict(piece.origin)}) + "\n")


def add_up(summary: CaptureSummary, count: FileCount) -> None:
    """Add a file's figures to the summary's."""
    for name in ("bytes", "records", "rejected", "rejected_bytes", "noise_bytes"):
        setattr(summary, name, getattr(summary, name) + getattr(count, name))
    if count.first is not None and count.last is not None:
        summary.first = count.first if summary.first is None else min(summary.first, count.first)
        summary.last = count.last if summary.last is None else max(summary.last, count.last)


def unaccounted(one: CaptureInput, expected: int, found: int) -> ReadError:
    """Return the error for a reader that lost bytes, or made them up."""
    return ReadError(
        f"{one.path}: the {one.format.name} reader accounts for bytes up to {expected:,}, but goes on at {found:,}.",
        hint="This is a bug of the reader; no statement may vanish, so nothing was written.",
    )


def compressed(path: Path) -> bool:
    """Tell whether the file is gzip."""
    with path.open("rb") as file:
        return file.read(2) == GZIP


def _in_time(inputs: Sequence[CaptureInput]) -> list[CaptureInput]:
    """Return files by the time of their first record, so that equal times keep the order of rotation."""

    def first(one: CaptureInput) -> tuple[int, str]:
        for piece in one.format.read(str(one.path)):
            if isinstance(piece, Record) and (moment := sort_time(piece)) is not None:
                return moment, str(one.path)
        return -1, str(one.path)

    return list(inputs) if len(inputs) < 2 else sorted(inputs, key=first)


def _refuse_doubles(inputs: Sequence[CaptureInput]) -> None:
    if not inputs:
        raise UsageError("no file to capture.", hint="Name one or more files.")
    seen: dict[tuple[int, bytes], Path] = {}
    for one in inputs:
        mark = _content_mark(one.path)
        if mark in seen and mark[0]:
            raise UsageError(
                f"{one.path} holds the same bytes as {seen[mark]}: every statement would be counted twice.",
                hint="Name each file once.",
            )
        seen[mark] = one.path
    kinds = {one.format.name for one in inputs}
    if len(kinds) > 1:
        raise UsageError(
            f"the files are of unlike formats: {', '.join(sorted(kinds))}.",
            hint="Two logs of one server hold its statements twice: capture one format at a time.",
        )


def _content_mark(path: Path) -> tuple[int, bytes]:
    """Tell one file from another by size, beginning and end."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        digest = hashlib.sha256(file.read(_EDGE_BYTES))
        file.seek(max(0, size - _EDGE_BYTES))
        digest.update(file.read(_EDGE_BYTES))
    return size, digest.digest()


@contextmanager
def _whole_folder(out: Path, *, replace: bool) -> Iterator[Path]:
    """Give a folder to write into; it becomes ``out`` when all went well, and vanishes when not."""
    out = Path(os.path.abspath(out))  # noqa: PTH100  (resolve() would follow a link that is to be replaced)
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file.", hint="Name a folder that is not there yet.")
    if out.is_dir() and any(out.iterdir()) and not (replace and (out / SUMMARY).exists()):
        holds = "a capture already" if (out / SUMMARY).exists() else "files that are no capture"
        hint = "Name another folder, or add --replace." if (out / SUMMARY).exists() else "Name another folder."
        raise UsageError(f"{out} holds {holds}.", hint=hint)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.parent / f".{out.name}.partial"
    with _alone(out.parent / f".{out.name}.lock", out):
        shutil.rmtree(folder, ignore_errors=True)  # of a capture that was killed
        folder.mkdir()
        try:
            yield folder
            _flush(folder)
            _put(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _put(folder: Path, out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        old = out.parent / f".{out.name}.old"
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
        folder.rename(out)
        shutil.rmtree(old)
    else:
        folder.rename(out)  # onto an empty folder too


def _flush(folder: Path) -> None:
    """Bring the files to the disk before the folder gets its name: a power cut must not leave half a capture."""
    for path in [folder, *folder.rglob("*")]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextmanager
def _alone(lock: Path, out: Path) -> Iterator[None]:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another capture writes to {out} now.", hint="Wait for it to end.") from error
        try:
            # Between open and lock the one before us may have removed its file: ours would guard nothing.
            if not lock.exists() or lock.stat().st_ino != os.fstat(file.fileno()).st_ino:
                raise UsageError(f"another capture wrote to {out} a moment ago.", hint="Look at it, then try again.")
            yield
        finally:
            lock.unlink(missing_ok=True)
