"""A log that grows and is rotated: its pieces in order, each once, from a position that survives the process.

Within a file the position is its inode, an offset, and the hash of the last piece before it. A log that was renamed is
found by its inode; one that was copied and truncated, or packed since, by that hash. Between files the position is the
marks of the files that are read: the next one is the oldest without such a mark, by any name, its inode and its
time have become. What is in none of the files any more is a gap, which is named.
"""

from __future__ import annotations

import ast
import hashlib
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any

from migverify.errors import ReadError
from migverify.workload.formats.reading import LogFormat, LogReading
from migverify.workload.formats.statements import CUT
from migverify.workload.lines import is_packed, open_log
from migverify.workload.model import UNKNOWN, Carry, Noise, Piece, Record

BLOCK = 1 << 20
LONGEST = 1 << 20
"""Bytes of the longest record: what may be one statement is held until its end is known."""
PATIENCE = 1.0
"""Seconds after which the last record of a log is taken as whole, and one whose end is not certain by what is there."""
ANCHOR = 512
"""Bytes before a position whose hash tells whether a file is the one that was read."""
HEAD = 4096
"""First bytes of a file, unpacked, whose hash tells whether it was read."""
REMEMBERED = 512
"""Rotated files whose marks are kept, and that are looked at: the newest ones."""
PACKED = ".gz"
_DATE_DIGITS = 6


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where the next piece of a log begins; ``carry`` is what the records before say for those behind.

    ``read`` are the marks of rotated files that are read; None before anything was. Without an anchor (at offset 0, or
    behind a banner, with which every file begins) the position is in the oldest file without a mark.
    """

    inode: int = 0
    offset: int = 0
    anchor_length: int = 0
    anchor: str = ""
    carry: Carry | None = None
    read: tuple[str, ...] | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the position as a JSON object."""
        carry = self.carry
        known = None if carry is None else repr((carry.database, carry.time, carry.sessions))
        return {
            "inode": self.inode, "offset": self.offset, "anchor_length": self.anchor_length, "anchor": self.anchor,
            "carry": known, "read": None if self.read is None else list(self.read),
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> LogPosition:
        """Return the position that ``as_json`` described."""
        carry = None if body["carry"] is None else Carry(*ast.literal_eval(body["carry"]))
        read = body.get("read")
        return cls(
            body["inode"], body["offset"], body["anchor_length"], body["anchor"], carry,
            None if read is None else tuple(read),
        )  # fmt: skip


class LogTail:
    """Reads a log and its rotated files.

    Parameters
    ----------
    path
        The log that the server writes. Rotated files lie beside it; their names begin with its name.
    position
        Where to go on; None begins at the start of the log.
    """

    def __init__(
        self, path: Path, form: LogFormat, position: LogPosition | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.path, self._form, self._clock = path, form, clock
        self.position = position or LogPosition()
        self.unread = 0
        self._reading: LogReading | None = None
        self._file: Path | None = None
        self._tail = b""
        self._sizes: deque[tuple[float, int]] = deque()
        self._cut: tuple[int, int] | None = None

    def pieces(self) -> Iterator[Piece | str]:
        """Yield the pieces that are certain by now; a text names a gap. ``settle`` notes how far they were taken."""
        while True:
            found = self._locate()
            if found is None and self.position.anchor_length:
                yield (
                    f"{self.path.name} was truncated or removed before what is behind byte {self.position.offset:,}"
                    " was read, and no rotated file holds it"
                )
                carry = self.position.carry
                self._begin_file(None if carry is None else replace(carry, database=UNKNOWN), self.position.read)
                found = self._locate()
            if found is None:
                return
            file, is_growing = found
            try:
                yield from self._of(file, growing=is_growing)
            except ReadError as error:
                if is_growing or not is_packed(str(file)):
                    raise
                yield f"{file.name} is damaged, what is behind byte {self.settle().offset:,} of it is lost: {error}"
            if is_growing:
                return
            # A log that was copied and truncated goes on as before; one that was opened anew says so by its banner.
            self._begin_file(self.settle().carry, (*(self.position.read or ()), _mark(file, _head(file))))

    def _begin_file(self, carry: Carry | None, read: tuple[str, ...] | None) -> None:
        self.position = LogPosition(carry=carry, read=None if read is None else read[-REMEMBERED:])
        self._reading, self._tail, self._file, self.unread = None, b"", None, 0

    def settle(self) -> LogPosition:
        """Return the position behind the last piece that was taken."""
        reading = self._reading
        if reading is not None and reading.end != self.position.offset:
            self.position = replace(
                self.position, offset=reading.end, anchor_length=len(self._tail),
                anchor=hashlib.sha256(self._tail).hexdigest(), carry=reading.carry,
            )  # fmt: skip
        if self._file is not None:
            self.unread = max(0, _size(self._file) - self.position.offset)
        return self.position

    @property
    def is_quiet(self) -> bool:
        """Whether all is taken but a record whose end is not there."""
        return not self.unread or self._cut == (self.position.inode, self.position.offset)

    @property
    def left_over(self) -> str:
        """Where a record begins whose end is not there; empty where everything is taken."""
        file = self._file or self.path
        return f"{file.name}, byte {self.position.offset:,}" if self.unread else ""

    # --- one file ----------------------------------------------------------------------------------------

    def _of(self, file: Path, *, growing: bool) -> Iterator[Piece]:
        if self._file != file:
            self._file = file
            self._sizes.clear()
        if growing:
            self._note_size(_size(file))
        yield from self._read(file, growing=growing)
        # What was there some time ago is decided as if nothing followed: a quote that is never closed, or the last
        # record, would hold up everything behind it otherwise.
        while growing and self.settle().offset < self._old_size():
            before = self.position.offset
            yield from self._read_one(file)
            if self.settle().offset == before:
                self._cut = (self.position.inode, before)
                return
            yield from self._read(file, growing=growing)

    def _note_size(self, size: int) -> None:
        """Note how long the file is now: a few sizes at most, the oldest of which is old enough."""
        now, sizes = self._clock(), self._sizes
        if sizes and sizes[-1][1] > size:
            sizes.clear()  # it was truncated
        if not sizes or now - sizes[-1][0] >= PATIENCE / 4:
            sizes.append((now, size))
        while len(sizes) > 1 and now - sizes[1][0] >= PATIENCE:
            sizes.popleft()

    def _old_size(self) -> int:
        """Return how many bytes have been there for some time."""
        return self._sizes[0][1] if self._sizes and self._clock() - self._sizes[0][0] >= PATIENCE else 0

    def _open(self, file: Path, *, growing: bool) -> LogReading:
        begin, carry = self.position.offset, self.position.carry
        grammar = self._form.grammar(str(file))
        return LogReading(str(file), grammar, LONGEST, BLOCK, begin=begin, carry=carry, growing=growing)

    def _read(self, file: Path, *, growing: bool) -> Iterator[Piece]:
        self.settle()
        self._reading = reading = self._open(file, growing=growing)
        for piece in reading:
            self._remember(reading, piece)
            yield reading.whole(piece)

    def _remember(self, reading: LogReading, piece: Piece) -> None:
        if isinstance(piece, Noise) and not self._tail and not self.position.anchor_length:
            return  # every file begins with the same banner: it tells no file from others
        length = min(piece.origin.length, ANCHOR)
        self._tail = reading.window.data[max(0, reading.at - length) : reading.at]

    def _read_one(self, file: Path) -> Iterator[Piece]:
        """Yield the next piece as if the log ended where it ends now, unless it breaks off within a line."""
        reading = self._open(file, growing=False)
        piece = next(iter(reading), None)
        is_cut = isinstance(piece, Record) and piece.partial == CUT
        if piece is None or is_cut or not reading.window.data[: reading.at].endswith(b"\n"):
            return
        self._reading = reading
        self._remember(reading, piece)
        yield reading.whole(piece)

    # --- which file --------------------------------------------------------------------------------------

    def _locate(self) -> tuple[Path, bool] | None:
        """Return the file to read, and whether it is still written; None where there is none."""
        rotated = self._rotated()
        if self.position.read is None:
            held = self._held(rotated) if self.position.anchor_length else None
            before = rotated[: rotated.index(held[0])] if held is not None and held[0] in rotated else rotated
            self.position = replace(self.position, read=tuple(_mark(one, _head(one)) for one in before))
        return self._held(rotated) if self.position.anchor_length else self._next(rotated)

    def _held(self, rotated: Sequence[Path]) -> tuple[Path, bool] | None:
        """Return the file that holds the position, and whether it is still written."""
        if _inode(self.path) == self.position.inode and self._is_at(self.path):
            return self.path, True
        for file in rotated:
            if _inode(file) == self.position.inode and self._is_at(file):
                return file, self._is_written(file, rotated)
        for file in (self.path, *rotated):
            if self._is_at(file):
                self.position = replace(self.position, inode=_inode(file))
                return file, file == self.path
        return None

    def _next(self, rotated: Sequence[Path]) -> tuple[Path, bool] | None:
        """Return the oldest file that is not read, and whether it is still written."""
        live, read = _head(self.path) or b"", self.position.read or ()
        waiting = [file for file in rotated if self._is_waiting(file, live, read)]
        if waiting:
            file, is_growing = waiting[0], self._is_written(waiting[0], rotated)
        elif _inode(self.path):
            file, is_growing = self.path, True
        else:
            return None
        if self.position.inode != _inode(file) or _size(file) < self.position.offset:
            self._begin_file(self.position.carry, self.position.read)
            self.position = replace(self.position, inode=_inode(file))
        return file, is_growing

    def _is_written(self, file: Path, rotated: Sequence[Path]) -> bool:
        """Tell whether a renamed file is still written: until the server opens the new one, it writes the old one."""
        if _size(self.path) or is_packed(str(file)):
            return False
        read = self.position.read or ()
        return not any(self._is_waiting(one, b"", read) for one in rotated if one != file)

    @staticmethod
    def _is_waiting(file: Path, live: bytes, read: Sequence[str]) -> bool:
        """Tell whether a rotated file is to be read.

        While a log is copied to be truncated, the copy begins as the log does, which is read then: the copy may lack
        its end still. Once the log is truncated, the copy is waiting, or holds the position. What cannot be read is
        waiting too: it is a gap.
        """
        head = _head(file)
        return (head is None or (bool(head) and not live.startswith(head))) and _mark(file, head) not in read

    def _rotated(self) -> list[Path]:
        """Return the rotated files, the oldest first."""
        beside = [one for one in self.path.parent.glob(f"{escape(self.path.name)}?*") if one.is_file()]
        names = {one.name for one in beside}
        whole = [one for one in beside if not (one.suffix == PACKED and one.stem in names)]
        return sorted(whole, key=_written)[-REMEMBERED:]

    def _is_at(self, file: Path) -> bool:
        """Tell whether a file holds, before the position, what was read there."""
        position = self.position
        try:
            if not is_packed(str(file)) and _size(file) < position.offset:
                return False
            with open_log(str(file)) as opened:
                opened.seek(position.offset - position.anchor_length)
                tail = opened.read(position.anchor_length)
        except (OSError, EOFError, ReadError):
            return False
        return hashlib.sha256(tail).hexdigest() == position.anchor


def _inode(file: Path) -> int:
    try:
        return file.stat().st_ino
    except OSError:
        return 0


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _head(file: Path) -> bytes | None:
    """Return the first bytes of a file, unpacked; None where it cannot be read."""
    try:
        with open_log(str(file)) as opened:
            return opened.read(HEAD)
    except (OSError, EOFError, zlib.error, ReadError):
        return None


def _mark(file: Path, head: bytes | None) -> str:
    """Return what tells a file that is read from others: its first bytes, and its inode where there are none."""
    return hashlib.sha256(head).hexdigest()[:32] if head else f"inode {_inode(file)}"


def _written(file: Path) -> tuple[int, int, str]:
    """Return what files are ordered by: when they were written; of two at the same time ``.2`` is before ``.1``."""
    number = file.name.removesuffix(PACKED).rpartition(".")[2]
    rank = -int(number) if number.isdecimal() and len(number) < _DATE_DIGITS else 0
    try:
        return file.stat().st_mtime_ns, rank, file.name
    except OSError:
        return 0, rank, file.name
