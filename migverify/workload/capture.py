"""Files of a log, a packet trace or an audit stream become one set of statements, each in its session.

The way of the data: parts of files (every byte is a record, a counted reject or noise of the format) -> sorted runs ->
shares of sessions -> Parquet files. The output appears whole or not at all, and does not depend on how many workers
there are.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.workload.formats.audit import Audit, Looks
from migverify.workload.lines import size_of
from migverify.workload.model import SUMMARY, Record
from migverify.workload.parts import (
    PART_BYTES,
    FileCount,
    RunResult,
    SegmentResult,
    check_sizes,
    proven,
    read_part,
    read_tasks,
)
from migverify.workload.parts import (
    CaptureInput as CaptureInput,
)
from migverify.workload.private import private, private_folder, write_private
from migverify.workload.runs import RUN_BYTES, cuts, sort_time
from migverify.workload.sessions import SessionStatement
from migverify.workload.shares import EVENTS, ShareResult, ShareTask, write_share
from migverify.workload.tasks import Processes, Tasks

REJECTS = "_rejects.jsonl"
VERSION = 1

WITHOUT_CONNECTS = frozenset({"slow", "polled"})
"""Formats that never log a connect: a session without one says nothing there."""

SHARE_BYTES = 256 << 20
_MOST_SHARES = 256
_RUNS = "runs"


@dataclass(frozen=True, slots=True)
class CaptureOptions:
    """How to capture. ``mask`` replaces the literals of a statement; ``text_mask`` those of user variables.

    ``part_bytes``, ``run_bytes`` and ``share_bytes``: how much of a file, of its records and of sessions a task takes.
    What is written does not depend on them, but for the borders of files.
    """

    out: Path
    replace: bool = False
    mask: Callable[[SessionStatement], SessionStatement] | None = None
    text_mask: Callable[[bytes], bytes] | None = None
    part_bytes: int = PART_BYTES
    run_bytes: int = RUN_BYTES
    share_bytes: int = SHARE_BYTES


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
    duplicates: int = 0
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
        content: dict[str, Any] = {one.name: getattr(self, one.name) for one in fields(self)}
        content |= {name: dict(part.most_common()) for name, part in content.items() if isinstance(part, Counter)}
        content["files"] = [asdict(count) for count in self.files]
        content["version"] = VERSION
        content["formats"] = sorted({count.format for count in self.files})
        content["servers"] = sorted({count.server for count in self.files})
        for part in (content, *content["files"]):
            for name in ("first", "last"):
                part[name] = None if part[name] is None else time_text(part[name])
        return content

    def take_file(self, count: FileCount) -> None:
        """Add what a file held."""
        for name in ("bytes", "records", "rejected", "rejected_bytes", "noise_bytes"):
            setattr(self, name, getattr(self, name) + getattr(count, name))
        if count.first is not None and count.last is not None:
            self.first = count.first if self.first is None else min(self.first, count.first)
            self.last = count.last if self.last is None else max(self.last, count.last)

    def take_share(self, share: ShareResult) -> None:
        """Add what a share of the sessions held."""
        self.statements += share.statements
        self.sessions += share.sessions
        self.partial_statements += share.partial_statements
        self.partial += share.partial
        self.commands += share.commands
        for rank, count in share.duplicates.items():
            self.files[rank].duplicates += count
            self.duplicates += count


def time_text(moment: int) -> str:
    """Return Unix microseconds as ISO text in UTC."""
    whole, micros = divmod(moment, 1_000_000)
    return f"{datetime.fromtimestamp(whole, UTC):%Y-%m-%dT%H:%M:%S}.{micros:06d}Z"


def capture(
    inputs: Sequence[CaptureInput],
    options: CaptureOptions,
    tasks: Tasks | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CaptureSummary:
    """Read files into ``options.out``: statements as Parquet there, other commands under ``_events``.

    Parameters
    ----------
    tasks
        Where the work is done; default: in this process.
    progress
        Takes the bytes read and the statements written so far.

    Raises
    ------
    UsageError
        the output is there already, or formats of different kinds are mixed.
    ReadError
        bytes of a file are unaccounted for, or it cannot be read; nothing is written then.
    """
    _check_formats(inputs)
    tasks = tasks or Processes(1)
    show = progress or (lambda _read, _written: None)
    secret = os.urandom(32)
    with _whole_folder(options.out, replace=options.replace) as folder:
        summary = CaptureSummary(str(options.out), options.mask is not None)
        ordered = _in_time(inputs)
        runs = folder / _RUNS
        private_folder(runs)
        results = _read(ordered, options, runs, secret, tasks, lambda read: show(read, 0))
        _take_files(summary, ordered, results, folder / REJECTS)
        work = _share_tasks(ordered, options, folder, secret, results)
        shares: dict[int, ShareResult] = {}
        for number, share in tasks.map(write_share, work):
            shares[number] = share
            show(summary.bytes, sum(one.statements for one in shares.values()))
        for number in range(len(work)):
            summary.take_share(shares[number])
        _put_together(folder, [one.folder for one in work])
        shutil.rmtree(runs)
        text = json.dumps(summary.as_json(), indent=1)
        write_private(folder / SUMMARY, f"{text}\n".encode())
    return summary


def _read(
    inputs: Sequence[CaptureInput], options: CaptureOptions, runs: Path, secret: bytes, tasks: Tasks,
    show: Callable[[int], None],
) -> list[RunResult]:  # fmt: skip
    """Read files into runs, in the order of files and parts."""
    read = 0
    results = []
    sizes = [size_of(str(one.path)) for one in inputs]
    work = read_tasks(inputs, sizes, runs, secret, options.part_bytes, options.run_bytes)
    for _, result in tasks.map(read_part, work):
        results.append(result)
        read += sum(segment.count.bytes for segment in result.segments)
        show(read)
    results = proven(results, tasks)
    check_sizes(inputs, sizes, results)
    return results


def _take_files(
    summary: CaptureSummary, inputs: Sequence[CaptureInput], results: Sequence[RunResult], rejects: Path
) -> None:
    summary.files = [FileCount(one.shown, one.format.name, one.server) for one in inputs]
    with open(rejects, "w", opener=private) as file:
        for result in results:
            for one in result.segments:
                summary.files[one.segment.rank].add(one.count)
                summary.untimed += one.untimed
                summary.rejects += one.rejects
                summary.noise += one.noise
            for text in result.rejects.open():
                content = json.loads(text)
                file.write(json.dumps({**content, "line": content["line"] + result.run.line}) + "\n")
    for count in summary.files:
        summary.take_file(count)


def _share_tasks(
    inputs: Sequence[CaptureInput], options: CaptureOptions, folder: Path,
    secret: bytes, results: Sequence[RunResult],
) -> list[ShareTask]:  # fmt: skip
    runs = tuple(result.run for result in results)
    weight = sum(mark.weight for run in runs for mark in run.marks)
    borders = cuts(runs, max(options.share_bytes, weight // _MOST_SHARES))
    segments = [segment for result in results for segment in result.segments]
    connects = None
    if all(one.format.name in WITHOUT_CONNECTS for one in inputs):
        connects = frozenset(server for segment in segments for server in segment.connects)
    return [
        ShareTask(
            folder / f"share-{number:05d}", runs, secret, low, high, inputs[0].format.name, len(inputs), connects,
            _cut_at(inputs, segments), _overlaps(segments), options.mask, options.text_mask,
        )
        for number, (low, high) in enumerate(zip([None, *borders], [*borders, None], strict=True))
    ]  # fmt: skip


def _cut_at(inputs: Sequence[CaptureInput], segments: Sequence[SegmentResult]) -> dict[str, int] | None:
    """Return the lengths at which the texts of audit logs are cut, by server; None where no file is one."""
    form = inputs[0].format
    if not isinstance(form, Audit):
        return None
    looks: dict[str, Looks] = {}
    for segment in segments:
        for server, one in segment.looks.items():
            looks.setdefault(server or segment.segment.one.server, Looks()).add(one)
    return {server: form.limit or one.cut_at for server, one in looks.items()}


def _overlaps(segments: Sequence[SegmentResult]) -> frozenset[tuple[int, int]]:
    """Return the pairs of files without exact times that are of the same time, for more than a second."""
    spans: dict[int, FileCount] = {}
    for one in segments:
        if one.is_coarse:
            spans.setdefault(one.segment.rank, FileCount("", "", "")).add(one.count)
    found: set[tuple[int, int]] = set()
    current: list[tuple[int, int]] = []
    for rank, span in sorted(spans.items(), key=lambda item: item[1].first or 0):
        if span.first is not None and span.last is not None:
            begin, end = span.first, span.last
            current = [(last, other) for last, other in current if last > begin]
            for last, other in current:
                # equal spans of one second each are those of a file and its copy, or of two that are very short
                if min(last, end) > begin:
                    found |= {(rank, other), (other, rank)}
            current.append((end, rank))
    return frozenset(found)


def _put_together(folder: Path, shares: Sequence[Path]) -> None:
    """Move the files of shares into one folder, numbered in the order of sessions."""
    for name in ("", EVENTS):
        private_folder(folder / name, exist_ok=True)
        files = [path for share in shares for path in sorted((share / name).glob("*.parquet"))]
        for number, path in enumerate(files):
            path.rename(folder / name / f"statements-{number:05d}.parquet")
    for share in shares:
        shutil.rmtree(share)


def _in_time(inputs: Sequence[CaptureInput]) -> list[CaptureInput]:
    """Return files by the time of their first record, so that equal times keep the order of rotation."""

    def first(one: CaptureInput) -> tuple[int, str]:
        for piece in one.format.read(str(one.path)):
            if isinstance(piece, Record) and (moment := sort_time(piece)) is not None:
                return moment, one.shown
        return -1, one.shown

    return list(inputs) if len(inputs) < 2 else sorted(inputs, key=first)


def _check_formats(inputs: Sequence[CaptureInput]) -> None:
    if not inputs:
        raise UsageError("no file to capture.", hint="Name one or more files.")
    kinds = {one.format.name for one in inputs}
    if len(kinds) > 1:
        raise UsageError(
            f"the files are of different formats: {', '.join(sorted(kinds))}.",
            hint="Two logs of one server hold its statements twice: capture one format at a time.",
        )


@contextmanager
def _whole_folder(out: Path, *, replace: bool) -> Iterator[Path]:
    """Give a folder to write into; it becomes ``out`` when all went well, and vanishes when not."""
    out = Path(os.path.abspath(out))  # noqa: PTH100  (resolve() would follow a link that is to be replaced)
    check_out(out, replace=replace)
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.parent / f".{out.name}.partial"
    with _alone(out.parent / f".{out.name}.lock", out):
        shutil.rmtree(folder, ignore_errors=True)  # of a capture that was killed
        private_folder(folder)
        try:
            yield folder
            _flush(folder)
            _put(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def check_out(out: Path, *, replace: bool) -> None:
    """Check that a capture can be written to a folder.

    Raises
    ------
    UsageError
        it holds what must not be replaced.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file.", hint="Name a folder that is not there yet.")
    if out.is_dir() and any(out.iterdir()) and not (replace and (out / SUMMARY).exists()):
        holds = "a capture already" if (out / SUMMARY).exists() else "files that are no capture"
        hint = "Name another folder, or add --replace." if (out / SUMMARY).exists() else "Name another folder."
        raise UsageError(f"{out} holds {holds}.", hint=hint)


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
