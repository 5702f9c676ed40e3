r"""Reads the access log that shows where requests went: from a moment or a place on, over rotations, in bounded memory.

The format is ours (``FORMAT``), tab-separated, so that a line is read by splitting it and nothing of a request can look
like a separator: nginx writes every byte below 32, above 126, ``"`` and ``\`` as ``\xHH``.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from migverify.errors import ReadError
from migverify.runbook.traffic.tally import KeySample, Tally

__all__ = ["FORMAT", "Follower", "LogLine", "Mark", "Sides", "count", "mark", "parse_line", "read_tally"]

TAG = "mv1"
FORMAT = rf"{TAG}\t$msec\t{{generation}}\t{{side}}\t$status\t$request_time\t$upstream_addr\t{{key}}"
"""Format of ``log_format``; the fields in braces are filled in by the driver. ``$msec`` is the end of the request."""
_FIELDS = 8
_BLOCK = 1 << 20
_LONGEST = 1 << 16
"""Of a line, bytes; a longer one is damaged."""
_SLACK = 120.0
"""Seconds: nginx writes a line at its end and may keep it in a buffer, so lines are only nearly in order of time."""
_MOST_FILES = 64
_ESCAPED = re.compile(rb"\\x([0-9A-Fa-f]{2})")
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_DIGITS = re.compile(rb"[0-9]{1,12}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class LogLine:
    """One request.

    Parameters
    ----------
    end, seconds
        Unix time of its end, and how long it took.
    side
        What the split decided.
    status
        Of the answer; 0 where there was none.
    addresses
        Servers that it was passed to, in order; empty: to none.
    key
        Bytes as they are in the request; empty: it had none.
    """

    end: float
    seconds: float
    generation: str
    side: str
    status: int
    addresses: tuple[str, ...]
    key: bytes


def parse_line(line: bytes) -> LogLine | None:
    """Read one line without its end; None: it is none of this format, or damaged."""
    fields = line.split(b"\t")
    if len(fields) != _FIELDS or fields[0] != b"mv1":
        return None
    _, end, generation, side, status, seconds, addresses, key = fields
    if not _DIGITS.fullmatch(end) or not _DIGITS.fullmatch(seconds) or not re.fullmatch(rb"[0-9]{3}|-", status):
        return None
    if not line.isascii():  # nginx escapes every byte that is none: something else wrote this
        return None
    parts = [one for one in re.split(rb", | : ", addresses) if one not in (b"-", b"")]
    return LogLine(
        float(end), float(seconds), generation.decode("ascii"), side.decode("ascii"),
        0 if status == b"-" else int(status), tuple(one.decode("ascii") for one in parts), _unescape(key),
    )  # fmt: skip


def _unescape(text: bytes) -> bytes:
    # The key's variable is a map, so it is never missing: a request without a key has an empty one, and `-` is a key.
    return _ESCAPED.sub(lambda found: bytes([int(found[1], 16)]), text) if b"\\" in text else text


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a log: the file, which keeps its number when it is renamed, and how many bytes of it were read."""

    device: int
    inode: int
    offset: int


def mark(path: Path) -> Mark:
    """Return the end of a log as it is now; lines of requests that end from here on are behind it.

    Raises
    ------
    ReadError
        there is no such file.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror}") from None
    return Mark(found.st_dev, found.st_ino, found.st_size)


class _File:
    """One file that is read as it grows; ``lost`` says what is missing of it."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset, self.lost = path, offset, ""
        self.handle: BinaryIO = path.open("rb")
        found = os.fstat(self.handle.fileno())
        self.id = (found.st_dev, found.st_ino)
        if found.st_size < offset:
            self.lost, self.offset = f"{path} was cut", 0
        self._rest, self._skipping = b"", False

    def lines(self) -> Iterator[bytes]:
        """Yield complete lines that are new; what has no end yet waits for the next time. Damaged ones are empty."""
        if os.fstat(self.handle.fileno()).st_size < self.offset:
            self.lost = f"{self.path} was cut while it was read"
            self.offset, self._rest, self._skipping = 0, b"", False
        self.handle.seek(self.offset)
        while block := self.handle.read(_BLOCK):
            self.offset += len(block)
            parts = (self._rest + block).split(b"\n")
            self._rest = parts.pop()
            for one in parts:
                yield b"" if self._skipping or len(one) > _LONGEST else one
                self._skipping = False
            if len(self._rest) > _LONGEST:
                self._rest, self._skipping = b"", True


class Follower:
    """Reads the lines of a log from a moment or a mark on, again and again; close it at the end.

    A rotated file stays open until the end: nginx goes on writing to it until it is told to open the new one.

    Parameters
    ----------
    since
        A ``Mark``, or Unix time: lines that ended before are passed over by the reader, not by this class.

    Raises
    ------
    ReadError
        the log is not there or cannot be read, or the file of the mark is gone.
    """

    def __init__(self, path: Path, since: Mark | float) -> None:
        self._path, self._files, self.lost = path, list[_File](), ""
        try:
            self._open(since)
        except OSError as error:
            self.close()
            raise ReadError(f"{path} cannot be read: {error.strerror}") from None

    def _open(self, since: Mark | float) -> None:
        if not stat.S_ISREG(self._path.stat().st_mode):
            raise ReadError(f"{self._path} is no file")
        files = _generations_of(self._path)
        if isinstance(since, Mark):
            ids = [(found.st_dev, found.st_ino) for found in (one.stat() for one in files)]
            if (since.device, since.inode) not in ids:
                raise ReadError(f"{self._path}: the file that was read from is gone", hint="Keep rotated logs plain.")
            first = ids.index((since.device, since.inode))
            self._files = [_File(one, since.offset if n == 0 else 0) for n, one in enumerate(files[first:])]
        else:
            wanted = [one for one in files if one == self._path or one.stat().st_mtime >= since - _SLACK]
            self._files = [_File(one, _place(one, since - _SLACK)) for one in wanted]
            if _packed_since(self._path, since):
                self.lost = f"a rotated file of {self._path} was packed since then"

    def lines(self) -> Iterator[bytes]:
        """Yield complete lines that are new since the last call.

        Raises
        ------
        ReadError
            a file cannot be read any more.
        """
        try:
            self._look_for_new()
            for file in self._files:
                yield from file.lines()
                self.lost = self.lost or file.lost
        except OSError as error:
            raise ReadError(f"{self._path} cannot be read: {error.strerror}") from None

    def _look_for_new(self) -> None:
        known = {file.id for file in self._files}
        with suppress(FileNotFoundError):  # between two names of a rotation: the next time finds it
            fresh = [one for one in _generations_of(self._path) if _id(one) not in known]
            oldest = min((os.fstat(file.handle.fileno()).st_mtime for file in self._files), default=0.0)
            self._files += [_File(one) for one in fresh if one == self._path or one.stat().st_mtime > oldest]
        if len(self._files) > _MOST_FILES:
            self.lost = f"{self._path} was rotated more than {_MOST_FILES} times"
            self._files.pop(0).handle.close()

    def close(self) -> None:
        """Give the files back."""
        for file in self._files:
            file.handle.close()
        self._files = []

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _id(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _rotated(path: Path) -> list[Path]:
    names = re.compile(rf"{re.escape(path.name)}[.-][0-9][0-9A-Za-z_.-]*|{re.escape(path.name)}\.old")
    return [one for one in path.parent.iterdir() if names.fullmatch(one.name) and one.is_file()]


def _generations_of(path: Path) -> list[Path]:
    """Return the log with its rotated files that are not packed, oldest first."""
    older = sorted(
        (one for one in _rotated(path) if not one.name.endswith(_PACKED)), key=lambda one: one.stat().st_mtime
    )
    return [*older, path]


def _packed_since(path: Path, since: float) -> bool:
    """Tell whether a packed file has lines since a moment: packing keeps the time of the last one."""
    return any(one.stat().st_mtime >= since for one in _rotated(path) if one.name.endswith(_PACKED))


def _place(path: Path, since: float) -> int:
    """Return the beginning of a line before which nothing ended since a moment, by bisection."""
    with path.open("rb") as file:
        low, high = 0, os.fstat(file.fileno()).st_size
        while high - low > _BLOCK:
            middle = (low + high) // 2
            found = _time_after(file, middle)
            if found is None or found >= since:
                high = middle
            else:
                low = middle
        file.seek(low)
        return low if low == 0 else low + len(file.readline(_LONGEST))


def _time_after(file: BinaryIO, offset: int) -> float | None:
    """Return the time of the first readable line behind an offset; None: none within a block."""
    file.seek(offset)
    for one in file.read(_BLOCK // 4).split(b"\n")[1:-1]:
        found = parse_line(one)
        if found is not None:
            return found.end
    return None


@dataclass(frozen=True, slots=True)
class Sides:
    """How a line's side is known: the values of the split's variable, and the addresses of each side's servers."""

    old: str
    new: str
    old_addresses: frozenset[str] = frozenset()
    new_addresses: frozenset[str] = frozenset()

    def astray(self, line: LogLine, *, new: bool) -> bool:
        """Tell whether a request reached a server that is not of its side."""
        its = self.new_addresses if new else self.old_addresses
        return any(address not in its for address in line.addresses) if its else False


def count(
    lines: Iterator[bytes], into: dict[str, Tally], sides: Sides, since: float,
    foreseen: Callable[[bytes, str], bool] | None,
) -> None:  # fmt: skip
    """Count lines into the tally of their generation; lines of other generations, or that ended before, are not.

    Parameters
    ----------
    into
        Generation -> tally; damaged lines count in all of them, for nobody knows whose they were.
    foreseen
        Tells by key and generation whether the request belongs on the new side; None: that is not known.
    """
    for raw in lines:
        line = parse_line(raw)
        if line is None:
            for tally in into.values():
                tally.damaged += 1
            continue
        tally_ = into.get(line.generation)
        if tally_ is None or line.end < since:
            continue
        if line.side in (sides.old, sides.new):
            _count_one(line, tally_, sides, foreseen)
        else:
            tally_.damaged += 1


def _count_one(line: LogLine, tally: Tally, sides: Sides, foreseen: Callable[[bytes, str], bool] | None) -> None:
    new = line.side == sides.new
    side = tally.new if new else tally.old
    tally.lines += 1
    tally.first, tally.last = min(tally.first, line.end), max(tally.last, line.end)
    side.add(line.status, line.seconds)
    tally.astray += sides.astray(line, new=new)
    if foreseen is not None and foreseen(line.key, line.generation) != new:
        tally.unforeseen += 1
    if line.key and tally.keys is not None:
        tally.keys.add(line.key, new=new, begin=line.end - line.seconds, end=line.end)
    else:
        tally.keyless += not line.key


def read_tally(
    path: Path, generations: Sequence[str], since: Mark | float, sides: Sides,
    foreseen: Callable[[bytes, str], bool] | None = None,
) -> dict[str, Tally]:  # fmt: skip
    """Count the requests of a log once, for each generation.

    Raises
    ------
    ReadError
        the log cannot be read.
    """
    found = {name: Tally(keys=KeySample()) for name in generations}
    with Follower(path, since) as log:
        count(log.lines(), found, sides, -math.inf if isinstance(since, Mark) else since, foreseen)
        for tally in found.values():
            tally.lost = log.lost
    return found
