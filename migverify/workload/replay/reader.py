"""Bytes from a server -> whole answers. Without I/O: it takes what came, in pieces of any size.

The fast way is an answer that comes in one piece: its rows are cut out of that piece without a copy of any packet. A
packet of which a part is missing waits for the rest as a list of pieces, joined once, so that one row of many
megabytes costs no more than its bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from migverify.workload.binary import (
    MAX_PACKET,
    MORE_RESULTS,
    NULL_LENGTH,
    Decoder,
    ProtocolError,
    decoder,
    number,
    row,
    text,
)
from migverify.workload.model import text_of
from migverify.workload.replay.model import Answer, AnswerColumn, Cell

_OK, _EOF, _ERR, _LOCAL_FILE = 0x00, 0xFE, 0xFF, 0xFB
GONE = frozenset({1053, 1152, 1159, 1160, 1161, 1927, 4031})
"""The server ends the connection with these errors; they are no answer to a statement."""
_LAYOUTS_KEPT = 4096
_UNSIGNED = 0x20
_COLUMN = struct.Struct("<HIBHB")

_Layout: TypeAlias = tuple[tuple[AnswerColumn, ...], tuple[Decoder, ...]]


@dataclass(frozen=True, slots=True)
class Limits:
    """What one wire holds at most; 0 of ``seconds`` is no limit.

    ``rows`` and ``bytes`` are kept of one call's answer (all its results), beyond them rows are None and checksums go
    on; ``seconds`` the client waits for an answer; ``statements`` stay prepared on one connection; ``results`` of one
    call are kept, a call with more is unanswered.
    """

    rows: int = 10_000
    bytes: int = 8 << 20
    seconds: float = 0.0
    statements: int = 256
    results: int = 1_000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A prepared statement: the server's number for it, and how many values it takes."""

    number: int
    parameters: int


class RowSums:
    """Takes rows one by one. Cells are framed by their length and NULL has a mark: no two rows frame to the same bytes.

    ``ordered`` is the SHA-256 of the rows' SHA-256s in their order; ``unordered`` the sum of the first 128 bits of
    each as an integer, which two rows that cancel cannot reach as they can with XOR.
    """

    __slots__ = ("_chain", "unordered")

    def __init__(self, rows: Iterable[Sequence[Cell]] = ()) -> None:
        self._chain = hashlib.sha256()
        self.unordered = 0
        for cells in rows:
            self.add(cells)

    def add(self, cells: Sequence[Cell]) -> None:
        """Take in the next row."""
        framed = b"".join([b"N" if cell is None else b"%d:%b" % (len(cell), cell) for cell in cells])
        digest = hashlib.sha256(framed).digest()
        self._chain.update(digest)
        self.unordered += int.from_bytes(digest[:16], "big")

    @property
    def ordered(self) -> bytes:
        """The checksum of the sequence so far."""
        return self._chain.digest()


class AnswerReader:
    """Reads one answer after the other of one connection.

    ``begin`` says what was sent; then ``feed`` takes bytes and returns True once the answer is whole: ``answer`` of a
    statement, ``prepared`` of a PREPARE that was taken. ``wants_refusal`` is set when the server requested a local
    file: it waits for an empty packet with the number before ``sequence``. ``farewell`` is what the server said behind
    an answer: no other will come.

    Raises ProtocolError: by ``feed``: bytes that the protocol does not know here. The connection must be closed.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.answer: Answer | None = None
        self.prepared: Prepared | None = None
        self.wants_refusal = False
        self.sequence = 0
        self.farewell = ""
        self._layouts: dict[tuple[bytes, ...], _Layout] = {}
        self._pieces: list[bytes] = []
        self._held = 0
        self._need = 0
        self._parts: list[bytes] = []
        self._binary = False
        self._results: list[Answer] = []
        self._handle: Callable[[bytes, int, int], bool] = self._unasked
        self._refused = False
        self._kept_rows = 0
        self._kept_bytes = 0
        self._columns: tuple[AnswerColumn, ...] = ()
        self._decoders: tuple[Decoder, ...] = ()
        self._definitions: list[bytes] = []
        self._wanted = 0
        self._rows: list[tuple[Cell, ...]] = []
        self._count = 0
        self._sums: RowSums | None = None

    def begin(self, *, binary: bool = False) -> None:
        """Expect the answer of a statement that was sent as one packet; of several, ``sequence`` is how many."""
        self._begin()
        self._binary = binary
        self._handle = self._head

    def begin_prepare(self) -> None:
        """Expect the answer of a PREPARE."""
        self._begin()
        self._binary = True
        self._handle = self._prepare_head

    def _begin(self) -> None:
        self.answer = None
        self.prepared = None
        self.sequence = 1
        self._results = []
        self._refused = False
        self._kept_rows = self._kept_bytes = 0

    @property
    def wanted_bytes(self) -> int:
        """How many bytes are missing until the packet under way is whole; 0 where its length is not known yet."""
        return max(0, self._need - self._held)

    def feed(self, data: bytes) -> bool:
        """Take in bytes; True when the answer is whole."""
        if self._pieces:
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._need:
                return False
            data = b"".join(self._pieces)
            self._pieces.clear()
        try:
            return self._walk(data)
        except (IndexError, struct.error) as error:
            raise ProtocolError(f"a packet that ends too early: {error}") from error

    def _walk(self, data: bytes) -> bool:
        at = 0
        size = len(data)
        while True:
            if size - at < 4:
                need = 4
                break
            length = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            end = at + 4 + length
            if end > size:
                need = 4 + length
                break
            if data[at + 3] != self.sequence:
                self._out_of_order(data, at, end)
            self.sequence = (self.sequence + 1) & 255
            start = at + 4
            at = end
            if length == MAX_PACKET:
                self._parts.append(data[start:end])
                continue
            if self._parts:
                whole = b"".join((*self._parts, data[start:end]))
                self._parts.clear()
                done = self._handle(whole, 0, len(whole))
            else:
                done = self._handle(data, start, end)
            if done:
                self._handle = self._unasked
                self._held = self._need = 0
                if at != size:
                    self.farewell = self._said_unasked(data[at:])
                return True
        if at < size:
            self._pieces.append(data[at:])
        self._held = size - at
        self._need = need
        return False

    @staticmethod
    def _said_unasked(rest: bytes) -> str:
        """Read what follows an answer: a server that ends the connection may say so right behind it."""
        if len(rest) > 7 and rest[4] == _ERR:
            return failed(rest, 4, len(rest)).message
        return "bytes behind the end of an answer"

    def _out_of_order(self, data: bytes, at: int, end: int) -> None:
        if data[at + 3] == 0 and end - at > 6 and data[at + 4] == _ERR:  # said unasked, on the way out
            raise ProtocolError(failed(data, at + 4, end).message)
        raise ProtocolError(f"packet {data[at + 3]} where {self.sequence} was due")

    def _unasked(self, data: bytes, start: int, end: int) -> bool:
        if data[start] == _ERR:
            raise ProtocolError(failed(data, start, end).message)
        raise ProtocolError("an answer without a request")

    # --- what a packet is, by the state of the answer ---------------------------------------------------

    def _head(self, data: bytes, start: int, end: int) -> bool:
        first = data[start]
        if first == _OK:
            made = ended(data, start, end, prepared=self._binary)
            return self._result(made, made.status)
        if first == _ERR:
            return self._error(data, start, end)
        if first == _LOCAL_FILE:
            self.wants_refusal = self._refused = True
            self.sequence = (self.sequence + 1) & 255
            return False
        self._wanted, at = number(data, start)
        if at != end or not self._wanted:
            raise ProtocolError("an answer that begins with neither OK, ERR nor a number of columns")
        self._definitions = []
        self._handle = self._definition
        return False

    def _definition(self, data: bytes, start: int, end: int) -> bool:
        definitions = self._definitions
        if len(definitions) < self._wanted:
            if data[start] == _ERR:
                return self._error(data, start, end)
            definitions.append(data[start:end])
            return False
        if data[start] != _EOF:
            return self._error(data, start, end)
        key = tuple(definitions)
        layout = self._layouts.get(key)
        if layout is None:
            columns = tuple(column(one) for one in key)
            layout = columns, tuple(map(_decoder, columns))
            if len(self._layouts) >= _LAYOUTS_KEPT:
                self._layouts.clear()
            self._layouts[key] = layout
        self._columns, self._decoders = layout
        self._rows = []
        self._count = 0
        self._sums = None
        self._handle = self._binary_row if self._binary else self._text_row
        return False

    def _text_row(self, data: bytes, start: int, end: int) -> bool:
        first = data[start]
        if first >= _EOF and (first == _ERR or end - start < 9):
            return self._last(data, start, end)
        cells: list[Cell] = []
        at = start
        for _ in self._columns:
            length = data[at]
            at += 1
            if length < 251:
                stop = at + length
            elif length == 251:
                cells.append(None)
                continue
            else:
                length, at = number(data, at - 1)
                stop = at + length
            cells.append(data[at:stop])
            at = stop
        if at != end:
            raise ProtocolError("a row of another length than its packet")
        self._keep(tuple(cells), end - start)
        return False

    def _binary_row(self, data: bytes, start: int, end: int) -> bool:
        if data[start]:
            return self._last(data, start, end)
        cells, at = row(data, start, self._decoders)
        if at != end:
            raise ProtocolError("a row of another length than its packet")
        self._keep(cells, end - start)
        return False

    def _keep(self, cells: tuple[Cell, ...], size: int) -> None:
        self._count += 1
        if self._sums is not None:
            self._sums.add(cells)
            return
        self._rows.append(cells)
        self._kept_rows += 1
        self._kept_bytes += size
        if self._kept_rows > self.limits.rows or self._kept_bytes > self.limits.bytes:
            self._sums = RowSums(self._rows)
            self._rows = []

    def _last(self, data: bytes, start: int, end: int) -> bool:
        if data[start] != _EOF or end - start < 5:
            return self._error(data, start, end)
        warnings, status = struct.unpack_from("<HH", data, start + 1)
        rows, self._rows = tuple(self._rows), []
        sums = self._sums
        made = Answer(
            columns=self._columns, rows=rows if sums is None else None, row_count=self._count,
            ordered=b"" if sums is None else sums.ordered, unordered=0 if sums is None else sums.unordered,
            warnings=warnings, status=status, prepared=self._binary,
        )  # fmt: skip
        return self._result(made, status)

    def _error(self, data: bytes, start: int, end: int) -> bool:
        self._rows = []
        if data[start] != _ERR or end - start < 3:
            raise ProtocolError(f"a packet that begins with {data[start]}")
        made = failed(data, start, end, prepared=self._binary)
        if made.errno in GONE:
            raise ProtocolError(f"{made.message} [{made.errno}]")
        return self._result(made, 0)

    def _result(self, made: Answer, status: int) -> bool:
        if status & MORE_RESULTS:
            if len(self._results) < self.limits.results:
                self._results.append(made)
            self._handle = self._head
            return False
        if len(self._results) >= self.limits.results:
            self.answer = Answer(unanswered=f"more than {self.limits.results} results of one call")
        elif self._refused:
            self.answer = Answer(unanswered="the server requested a local file; it was refused")
        elif self._results:
            self.answer = replace(self._results[0], more=(*self._results[1:], made))
        else:
            self.answer = made
        self._results = []
        return True

    # --- PREPARE -----------------------------------------------------------------------------------------

    def _prepare_head(self, data: bytes, start: int, end: int) -> bool:
        if data[start] != _OK:
            return self._error(data, start, end)
        number, columns, parameters = struct.unpack_from("<IHH", data, start + 1)
        self.prepared = Prepared(number, parameters)
        self._wanted = columns + parameters + (columns > 0) + (parameters > 0)
        self._handle = self._skip
        return not self._wanted

    def _skip(self, data: bytes, start: int, end: int) -> bool:
        if data[start] == _ERR:
            self.prepared = None
            return self._error(data, start, end)
        self._wanted -= 1
        return not self._wanted


# --- packets that are no rows --------------------------------------------------------------------------


def ended(data: bytes, start: int, end: int, *, prepared: bool) -> Answer:
    """Read an OK packet."""
    affected, at = number(data, start + 1)
    insert_id, at = number(data, at)
    status, warnings = struct.unpack_from("<HH", data, at)
    rest = data[at + 4 : end]
    if rest and rest[0] < NULL_LENGTH and rest[0] == len(rest) - 1:
        rest = rest[1:]
    return Answer(
        affected=affected, insert_id=insert_id, status=status, warnings=warnings, info=text_of(rest), prepared=prepared
    )


def failed(data: bytes, start: int, end: int, *, prepared: bool = False) -> Answer:
    """Read an ERR packet."""
    errno = data[start + 1] | data[start + 2] << 8
    rest = data[start + 3 : end]
    if rest[:1] == b"#":
        return Answer(errno=errno, sqlstate=text_of(rest[1:6]), message=text_of(rest[6:]), prepared=prepared)
    return Answer(errno=errno, message=text_of(rest), prepared=prepared)


def column(payload: bytes) -> AnswerColumn:
    """Read the definition of a column of an answer."""
    at = 0
    parts: list[bytes] = []
    for _ in range(6):  # catalog, database, table, table as stored, name, name as stored
        part, at = text(payload, at)
        parts.append(part)
    if at + 11 > len(payload):
        raise ProtocolError("a column definition that ends too early")
    charset, length, kind, flags, decimals = _COLUMN.unpack_from(payload, at + 1)
    return AnswerColumn(parts[4], parts[5], parts[2], kind, charset, length, flags, decimals)


def _decoder(column: AnswerColumn) -> Decoder:
    return decoder(column.type_code, unsigned=bool(column.flags & _UNSIGNED), digits=column.decimals)
