"""Slow and general logs as columns: ordinary records a block at a time, every other one by the reader of its format.

The borders of records are those that the reader of the format finds, and a record is ordinary when its header has the
usual form, its quotes are closed at the next header, and nothing in it depends on what went before. So what is read
here is what the reader would have read, and where a record is odd, it is asked.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from migverify.spark.capture_bytes import Block, Flags, Ints
from migverify.spark.capture_rows import (
    COMMAND_CODES,
    FIELDS,
    NONE,
    SHORTS,
    Names,
    Rows,
    constant,
    joined,
    rows_of,
    type_of,
)
from migverify.workload.formats.reading import Reading
from migverify.workload.formats.statements import Grammar
from migverify.workload.model import Command, Noise, Record, Rejected
from migverify.workload.quotes import closed
from migverify.workload.state import DEADLOCK, OPENS, SHORT, is_plain, is_plain_text

_SUSPECT = (b"*****", b"<secret>", b" FROM ...")
"""What a text may lack is told by these; the reader of the format decides."""
_LETTER = np.zeros(256, np.bool_)
_LETTER[[*b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"]] = True
_LOWER = np.uint64(0x2020202020202020)
LIGHT = ("session", "time", "server", "command", "offset", "length")
"""What a first pass over a file looks at."""
_DEFAULTS: dict[str, int] = {
    **dict.fromkeys(("start", "end", "clock", "duration", "errno", "rows_sent", "rows_affected", "statement_id"), NONE),
    "last_insert_id": 0, "insert_id": 0, "ids": 0, "edge": 0, "user": -1, "host": -1, "database": -1,
    "command": COMMAND_CODES[Command.QUERY],
}  # fmt: skip


@dataclass(slots=True)
class Found:
    """What the headers of a block say: one row for each but the last, ``ok`` where the record is ordinary."""

    ok: Flags
    text: Ints
    text_end: Ints
    columns: dict[str, NDArray[Any]]
    uses: dict[int, str] = field(default_factory=dict)
    """Rows that name another current database than the one before."""


class Headers(Protocol):
    """Reads the headers of one format, and lets its reader know what it did not read itself."""

    @property
    def grammar(self) -> Grammar:
        """The reader of the format."""
        ...

    @property
    def number(self) -> int:
        """How many records were read."""
        ...

    @property
    def database(self) -> str | None:
        """The current database, as the records so far tell it; None where the format does not."""
        ...

    def fits(self) -> bool:
        """Tell whether the file is of a kind that is read here at all."""
        ...

    def starts(self, data: bytes, at: int) -> Ints:
        """Return where records begin at ``at`` and behind it, as the reader of the format sees it."""
        ...

    def read(self, block: Block, starts: Ints) -> Found:
        """Read the headers."""
        ...

    def catch_up(self, found: Found, first: int, last: int) -> None:
        """Tell the reader of the format what the ordinary records of some rows told."""
        ...

    def stepped(self, found: Found) -> bool:
        """Take note of what the reader of the format read; tells whether more records are odd for that."""
        ...


@dataclass(slots=True)
class Batch:
    """The rows of a block in the order of the file, and its pieces that are none."""

    rows: Rows
    others: list[Noise | Rejected]
    begin: int
    end: int


class LogColumns:
    """Reads one file.

    Parameters
    ----------
    rank
        The file's place among all.
    server
        The server its records come from.
    light
        Only what ``LIGHT`` names of each row, without its text.
    """

    def __init__(
        self, reading: Reading, headers: Headers, names: Names, rank: int, server: str, *, light: bool = False
    ) -> None:
        self._reading, self._headers, self._names, self._rank = reading, headers, names, rank
        self._server, self._light = server, light
        self._records: list[Record] = []
        self._others: list[Noise | Rejected] = []

    def batches(self) -> Iterator[Batch]:
        """Yield the file block by block."""
        reading = self._reading
        while not reading.over:
            begin = reading.place
            rows = self._block()
            if not reading.over:
                self._take(reading.more())
            end = reading.place
            records = rows_of(self._records, self._names, self._rank, is_plain)
            parts = [part for part in (rows, records) if part is not None and len(part)]
            whole = joined(parts) if parts else records
            if len(parts) > 1:
                whole = whole.take(np.argsort(whole.columns["offset"]))
            yield Batch(whole, self._others, begin, end)
            self._records, self._others = [], []

    def _take(self, piece: Any) -> None:
        if isinstance(piece, Record):
            if self._server and not piece.server:
                object.__setattr__(piece, "server", self._server)  # as the road of objects does
            self._records.append(piece)
        elif piece is not None:
            self._others.append(piece)

    def _block(self) -> Rows | None:
        reading, headers = self._reading, self._headers
        starts = headers.starts(reading.window.data, reading.at) if headers.fits() else np.empty(0, np.int64)
        if reading.stop is not None:  # the record that begins at the stop ends the one before it
            starts = starts[: int(np.searchsorted(starts, reading.stop - reading.window.base)) + 1]
        if len(starts) < 2:
            self._steps(-1)
            return None
        block = Block(reading.window.data)
        found = headers.read(block, starts)
        self._check(found, block, starts)
        places = starts.tolist()
        odd = [*np.flatnonzero(~found.ok).tolist(), len(places) - 1]
        last = -1 if reading.window.eof else places[-1]
        runs: list[tuple[int, int, int]] = []
        uses: list[tuple[int, str | None]] = []
        lines: Ints = np.searchsorted(block.breaks, starts)
        first_line = reading.line - int(np.searchsorted(block.breaks, reading.at))
        while True:
            row = bisect_left(places, reading.at)
            if row < len(places) - 1 and places[row] == reading.at:
                stop = odd[bisect_left(odd, row)]
                if stop > row:
                    runs.append((row, stop, headers.number))
                    uses.append((row, headers.database))
                    headers.catch_up(found, row, stop)
                    reading.at, reading.line = places[stop], first_line + int(lines[stop])
                    continue
            if reading.at == last or reading.over:
                break
            piece = reading.step()
            if piece is None:
                break
            self._take(piece)
            if headers.stepped(found):
                odd = [*np.flatnonzero(~found.ok).tolist(), len(places) - 1]
        return self._rows(block, starts, found, runs, uses, first_line + lines) if runs else None

    def _steps(self, last: int) -> None:
        reading = self._reading
        while reading.at != last and not reading.over and (piece := reading.step()) is not None:
            self._take(piece)

    def _check(self, found: Found, block: Block, starts: Ints) -> None:
        """Ordinary are texts that lack nothing and whose quotes are closed at the next header."""
        data = block.data
        found.ok &= np.diff(starts) <= self._reading.limit
        for row in find_suspects(data, starts):
            if row < len(found.ok):
                found.ok[row] = False
        rows = np.flatnonzero(found.ok & ~surely_closed(block, found.text, found.text_end))
        pairs = zip(found.text[rows].tolist(), found.text_end[rows].tolist(), strict=True)
        found.ok[rows] = [closed(data, start, end) for start, end in pairs]

    def _rows(
        self,
        block: Block,
        starts: Ints,
        found: Found,
        runs: list[tuple[int, int, int]],
        uses: list[tuple[int, str | None]],
        lines: Ints,
    ) -> Rows:
        rows = np.concatenate([np.arange(first, last) for first, last, _ in runs])
        kept: Any = slice(runs[0][0], runs[0][1]) if len(runs) == 1 else rows
        counts = [last - first for first, last, _ in runs]
        names = self._names
        shared = {"rank": self._rank, "file": names.place(self._reading.path), "partial": names.place(""),
                  "server": names.place(self._server)}  # fmt: skip
        columns: dict[str, NDArray[Any]] = {}
        for name in LIGHT if self._light else FIELDS:
            made = found.columns.get(name)
            if made is not None:
                columns[name] = made[kept].astype(type_of(name), copy=False)
            elif name in _DEFAULTS or name in shared:
                columns[name] = constant(shared.get(name, _DEFAULTS.get(name, 0)), len(rows), name)
        columns["offset"] = starts[kept] + self._reading.window.base
        columns["length"] = np.diff(starts)[kept]
        if self._light:
            return Rows(columns, pa.nulls(len(rows), pa.binary()))
        columns["line"] = lines[kept]
        begun = np.repeat([number + 1 - first for first, _, number in runs], counts)
        columns["number"] = begun + rows
        named = sorted([*uses, *((row, name) for row, name in found.uses.items())], key=lambda one: one[0])
        if len({name for _, name in named}) == 1:
            columns["database"] = constant(names.place(named[0][1]), len(rows), "database")
        else:
            at = np.searchsorted([row for row, _ in named], rows, "right") - 1
            columns["database"] = np.array([names.place(name) for _, name in named], np.int32)[at]
        text, end = found.text[kept], found.text_end[kept]
        columns["plain"] = plain_of(block, text, end, columns["command"], columns["errno"])
        return Rows(columns, slices(block.data, text, end))


def find_suspects(data: bytes, starts: Ints) -> list[int]:
    """Return the rows that hold what texts have where they lack something."""
    found = []
    for suspect in _SUSPECT:
        at = data.find(suspect)
        while at >= 0:
            row = int(np.searchsorted(starts, at, "right")) - 1
            if row >= 0:
                found.append(row)
            at = data.find(suspect, at + 1)
    return found


def slices(data: bytes, starts: Ints, ends: Ints) -> pa.BinaryArray:
    """Return parts of a text that follow each other, without an object for any of them."""
    offsets = np.empty(2 * len(starts) + 1, np.int32)
    offsets[0:-1:2], offsets[1::2] = starts, ends
    offsets[-1] = ends[-1] if len(ends) else 0
    every = pa.Array.from_buffers(pa.binary(), 2 * len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return every.take(pa.array(np.arange(0, 2 * len(starts), 2)))


def plain_of(block: Block, text: Ints, end: Ints, command: NDArray[Any], errno: Ints) -> NDArray[np.int8]:
    """Tell the texts that change nothing of their session but may begin a transaction, and the short ones."""
    first = _behind_comment(block, text, end)
    words = block.words[first] | _LOWER
    found: Flags = np.zeros(len(text), np.bool_)
    for name in OPENS:
        whole = ~_LETTER[block.bytes[first + len(name)]] & (end - first >= len(name))
        found |= ((words & _number(b"\xff" * len(name))) == _number(name)) & whole
    letter = _LETTER[block.bytes[first]]
    found &= letter  # | _LOWER makes letters of a few signs too
    asked: Flags = ~letter & (end > first)  # behind a comment, space or parenthesis
    for sign in (b"@", b";"):
        asked |= found & _holding(block.places(sign), first, end)
    for row in np.flatnonzero(asked).tolist():
        found[row] = is_plain_text(block.data[text[row] : end[row]])
    found &= (command == COMMAND_CODES[Command.QUERY]) | (command == COMMAND_CODES[Command.EXECUTE])
    plain = found.astype(np.int8)
    length = end - text
    for short, does in SHORT.items():
        rows = np.flatnonzero((length == len(short)) & (command == COMMAND_CODES[Command.QUERY]))
        if len(rows):
            plain[rows[_same_letters(block, text[rows], short)]] = SHORTS.index(does)
    plain[errno == DEADLOCK] = 0
    return plain


def _behind_comment(block: Block, text: Ints, end: Ints) -> Ints:
    """Return where a text goes on behind the comment it begins with and one space, which is where many begin."""
    first = text.copy()
    slash, star, mark = (block.bytes[text + ahead] for ahead in range(3))
    for row in np.flatnonzero((slash == 0x2F) & (star == 0x2A) & (mark != 0x21) & (mark != 0x4D)).tolist():
        close = block.data.find(b"*/", int(text[row]) + 2, int(end[row]))
        if close >= 0:
            first[row] = close + 2 + (block.bytes[close + 2] == 0x20)
    return first


def _same_letters(block: Block, at: Ints, text: bytes) -> Flags:
    """Tell where a text of lower case stands, in whatever case."""
    same: Flags = np.ones(len(at), np.bool_)
    for ahead in range(0, len(text), 8):
        part = text[ahead : ahead + 8]
        letters = bytes(0x20 if 97 <= byte <= 122 else 0 for byte in part)
        words = block.words[at + ahead]
        words = (words | _number(letters)) & _number(b"\xff" * len(part))
        same &= words == _number(part)
    return same


def _number(text: bytes) -> np.uint64:
    return np.uint64(int.from_bytes(text, "little"))


def surely_closed(block: Block, start: Ints, end: Ints) -> Flags:
    """Tell texts with nothing but single quotes, an even number of them: the quotes of the others have to be read."""
    special = [block.places(sign) for sign in (b'"', b"`", b"\\", b"#")]
    special += [block.places(b"-", b"-"), block.places(b"/", b"*")]
    places = np.sort(np.concatenate(special))
    quotes = block.places(b"'")
    count: Ints = np.searchsorted(quotes, end) - np.searchsorted(quotes, start)
    found: Flags = ~_holding(places, start, end) & (count % 2 == 0)
    return found


def _holding(places: Ints, start: Ints, end: Ints) -> Flags:
    """Tell the parts that hold one of some places."""
    if not len(places):
        return np.zeros(len(start), np.bool_)
    first = np.searchsorted(places, start)
    held: Flags = np.logical_and(places[np.minimum(first, len(places) - 1)] < end, first < len(places))
    return held
