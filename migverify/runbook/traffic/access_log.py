r"""Reads the access log that shows where requests went: from a moment on, over rotations, in bounded memory.

The format is ours (``FORMAT``), tab-separated, so that a line is read by splitting it and nothing of a request can look
like a separator: nginx writes every byte below 32, above 126, ``"`` and ``\`` as ``\xHH``.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from migverify.errors import ReadError
from migverify.runbook.traffic.tally import KeySample, TrafficTally

__all__ = ["FORMAT", "LogLine", "SplitSides", "count", "parse_line", "read_tally"]

TAG = "mv1"
FORMAT = rf"{TAG}\t$msec\t{{generation}}\t{{side}}\t$status\t$request_time\t$upstream_addr\t{{key}}"
"""Format of ``log_format``; the fields in braces are filled in by the driver. ``$msec`` is the end of the request."""
_FIELDS = 8
_BLOCK = 1 << 20
_LONGEST = 1 << 16
"""Of a line, bytes; a longer one is damaged."""
_SLACK = 120.0
"""Seconds: nginx writes a line at its end and may keep it in a buffer, so lines are only nearly in order of time."""
_TRIES = 5
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


def _open_all(path: Path, since: float) -> list[BinaryIO]:
    """Open the log and its rotated files that have lines since a moment, oldest first, and all of one moment."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ReadError(f"{path} is no file")
    for _ in range(_TRIES):
        opened: list[BinaryIO] = [one.open("rb") for one in _files_since(path, since)]
        with suppress(FileNotFoundError):  # between two names of a rotation
            if {_id(os.fstat(one.fileno())) for one in opened} == {
                _id(one.stat()) for one in _files_since(path, since)
            }:
                return opened
        for one in opened:
            one.close()
    raise ReadError(f"{path} is rotated while it is opened")


def _id(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _rotated(path: Path) -> list[Path]:
    names = re.compile(rf"{re.escape(path.name)}[.-][0-9][0-9A-Za-z_.-]*|{re.escape(path.name)}\.old")
    return [one for one in path.parent.iterdir() if names.fullmatch(one.name) and one.is_file()]


def _files_since(path: Path, since: float) -> list[Path]:
    plain = [(one.stat().st_mtime, one) for one in _rotated(path) if not one.name.endswith(_PACKED)]
    return [*(one for at, one in sorted(plain) if at >= since - _SLACK), path]


def _packed_since(path: Path, since: float) -> bool:
    # Packing keeps the time of the last line.
    return any(one.stat().st_mtime >= since for one in _rotated(path) if one.name.endswith(_PACKED))


def _lines(file: BinaryIO, since: float) -> Iterator[bytes]:
    """Yield the complete lines of a file from a moment on; damaged ones are empty, a last one without end waits."""
    file.seek(_place(file, since))
    rest, skipping = b"", False
    while block := file.read(_BLOCK):
        parts = (rest + block).split(b"\n")
        rest = parts.pop()
        for one in parts:
            yield b"" if skipping or len(one) > _LONGEST else one
            skipping = False
        if len(rest) > _LONGEST:
            rest, skipping = b"", True


def _place(file: BinaryIO, since: float) -> int:
    """Return the beginning of a line before which nothing ended since a moment, by bisection."""
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
    file.seek(offset)
    for one in file.read(_BLOCK // 4).split(b"\n")[1:-1]:
        found = parse_line(one)
        if found is not None:
            return found.end
    return None


@dataclass(frozen=True, slots=True)
class SplitSides:
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
    lines: Iterator[bytes], into: dict[str, TrafficTally], sides: SplitSides, since: float,
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


def _count_one(
    line: LogLine, tally: TrafficTally, sides: SplitSides, foreseen: Callable[[bytes, str], bool] | None
) -> None:
    new = line.side == sides.new
    side = tally.new if new else tally.old
    tally.lines += 1
    side.add(line.status, line.seconds)
    tally.astray += sides.astray(line, new=new)
    if foreseen is not None and foreseen(line.key, line.generation) != new:
        tally.unforeseen += 1
    if line.key and tally.keys is not None:
        tally.keys.add(line.key, new=new, begin=line.end - line.seconds, end=line.end)
    else:
        tally.keyless += not line.key


def read_tally(
    path: Path, generations: Sequence[str], since: float, sides: SplitSides,
    foreseen: Callable[[bytes, str], bool] | None = None,
) -> dict[str, TrafficTally]:  # fmt: skip
    """Count the requests of a log that ended since a moment (Unix time), for each generation.

    Raises
    ------
    ReadError
        the log cannot be read.
    """
    found = {name: TrafficTally(keys=KeySample()) for name in generations}
    try:
        files = _open_all(path, since)
        with ExitStack() as stack:
            for file in files:
                stack.callback(file.close)
            for file in files:
                count(_lines(file, since - _SLACK), found, sides, since, foreseen)
                if os.fstat(file.fileno()).st_size < file.tell():
                    _lose(found, f"{path} was cut while it was read")
        if _packed_since(path, since):
            _lose(found, f"a rotated file of {path} was packed since then")
    except OSError as error:
        raise ReadError(f"{path} cannot be read: {error.strerror}") from None
    return found


def _lose(found: dict[str, TrafficTally], why: str) -> None:
    for tally in found.values():
        tally.lost = tally.lost or why
