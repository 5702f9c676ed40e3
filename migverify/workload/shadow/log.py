"""A log that grows and is rotated: its pieces in order, each once, from a position that survives the process.

The position is a file by its inode, an offset, and the hash of the last piece before it. A log that was renamed is
found by its inode; one that was copied and truncated, or packed since, by that hash. What is in none of the files any
more is a gap, which is named.
"""

from __future__ import annotations

import ast
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migverify.errors import ReadError
from migverify.workload.formats.reading import LogFormat, LogReading
from migverify.workload.formats.statements import CUT
from migverify.workload.lines import is_packed, open_log
from migverify.workload.model import UNKNOWN, Carry, Piece, Record

BLOCK = 1 << 20
LONGEST = 1 << 20
"""Bytes of the longest record: what may be one statement is held until its end is known."""
PATIENCE = 1.0
"""Seconds after which the last record of a log is taken as whole, and one whose end is not certain by what is there."""
ANCHOR = 512
"""Bytes before a position whose hash tells whether a file is the one that was read."""
PACKED = ".gz"


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where the next piece of a log begins; ``carry`` is what the records before say for those behind."""

    inode: int = 0
    offset: int = 0
    anchor_length: int = 0
    anchor: str = ""
    carry: Carry | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the position as a JSON object."""
        carry = self.carry
        known = None if carry is None else repr((carry.database, carry.time, carry.sessions))
        return {
            "inode": self.inode, "offset": self.offset, "anchor_length": self.anchor_length, "anchor": self.anchor,
            "carry": known,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> LogPosition:
        """Return the position that ``as_json`` described."""
        carry = None if body["carry"] is None else Carry(*ast.literal_eval(body["carry"]))
        return cls(body["inode"], body["offset"], body["anchor_length"], body["anchor"], carry)


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
        self._stuck: tuple[tuple[int, int], float] | None = None

    def pieces(self) -> Iterator[Piece | str]:
        """Yield the pieces that are certain by now; a text names a gap. ``settle`` notes how far they were taken."""
        while True:
            found = self._locate()
            if found is None:
                yield (
                    f"{self.path.name} was truncated or removed before what is behind byte {self.position.offset:,}"
                    " was read, and no rotated file holds it"
                )
                carry = self.position.carry
                found = self._first(None if carry is None else replace(carry, database=UNKNOWN))
                if found is None:
                    return
            file, is_last = found
            yield from self._of(file, growing=is_last)
            if is_last:
                return
            following = self._after(file)
            self.settle()
            if following is None:
                return
            # A log that was copied and truncated goes on as before; one that was opened anew says so by its banner.
            self._go_to(LogPosition(_inode(following), carry=self.position.carry))

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

    def _go_to(self, position: LogPosition) -> None:
        self.position, self._reading, self._tail = position, None, b""

    @property
    def is_quiet(self) -> bool:
        """Whether all is taken but a record whose end is not there."""
        return not self.unread or (self._stuck is not None and self._clock() - self._stuck[1] >= PATIENCE)

    # --- one file ----------------------------------------------------------------------------------------

    def _of(self, file: Path, *, growing: bool) -> Iterator[Piece]:
        self._file = file
        yield from self._read(file, growing=growing)
        if growing and self._is_stuck():
            yield from self._read_one(file)

    def _open(self, file: Path, *, growing: bool) -> LogReading:
        begin, carry = self.position.offset, self.position.carry
        grammar = self._form.grammar(str(file))
        return LogReading(str(file), grammar, LONGEST, BLOCK, begin=begin, carry=carry, growing=growing)

    def _read(self, file: Path, *, growing: bool) -> Iterator[Piece]:
        self.settle()
        self._reading = reading = self._open(file, growing=growing)
        for piece in reading:
            self._remember(reading, piece)
            yield piece

    def _remember(self, reading: LogReading, piece: Piece) -> None:
        length = min(piece.origin.length, ANCHOR)
        self._tail = reading.window.data[max(0, reading.at - length) : reading.at]

    def _is_stuck(self) -> bool:
        """Tell whether nothing could be decided for a while although something is there."""
        position = self.settle()
        here = (position.inode, position.offset)
        if not self.unread:
            self._stuck = None
        elif self._stuck is None or self._stuck[0] != here:
            self._stuck = (here, self._clock())
        return self.unread > 0 and self._stuck is not None and self._clock() - self._stuck[1] >= PATIENCE

    def _read_one(self, file: Path) -> Iterator[Piece]:
        """Yield the next piece as if the log ended where it ends now, unless it breaks off within a line."""
        reading = self._open(file, growing=False)
        piece = next(iter(reading), None)
        is_cut = isinstance(piece, Record) and piece.partial == CUT
        if piece is None or is_cut or not reading.window.data[: reading.at].endswith(b"\n"):
            return
        self._reading = reading
        self._remember(reading, piece)
        yield piece

    # --- which file --------------------------------------------------------------------------------------

    def _locate(self) -> tuple[Path, bool] | None:
        """Return the file that holds the position, and whether it is the one that is still written."""
        if not self.position.inode and not self.position.offset:
            return self._first()
        if _inode(self.path) == self.position.inode and self._is_at(self.path):
            return self.path, True
        rotated = self._rotated()
        for file in rotated:
            if _inode(file) == self.position.inode and self._is_at(file):
                return file, not _size(self.path)  # until the server opens the new one, it writes the old one
        for file in (self.path, *rotated):
            if self.position.offset and self.position.anchor_length and self._is_at(file):
                self.position = replace(self.position, inode=_inode(file))
                return file, file == self.path
        return None

    def _first(self, carry: Carry | None = None) -> tuple[Path, bool] | None:
        inode = _inode(self.path)
        if not inode:
            return None
        self._go_to(LogPosition(inode, carry=carry))
        return self.path, True

    def _after(self, file: Path) -> Path | None:
        """Return the file that was written behind one that is no longer written."""
        behind = self._rotated()
        if file in behind:
            for one in behind[behind.index(file) + 1 :]:
                if not self._is_at(one):  # a copy of what was read just now
                    return one
        return self.path if _inode(self.path) else None

    def _rotated(self) -> list[Path]:
        """Return the rotated files, the oldest first."""
        beside = [one for one in self.path.parent.glob(f"{self.path.name}?*") if one.is_file()]
        names = {one.name for one in beside}
        whole = [one for one in beside if not (one.suffix == PACKED and one.stem in names)]
        return sorted(whole, key=_written)

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
        return not position.anchor_length or hashlib.sha256(tail).hexdigest() == position.anchor


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


def _written(file: Path) -> tuple[int, str]:
    try:
        return file.stat().st_mtime_ns, file.name
    except OSError:
        return 0, file.name
