"""A log read step by step: where a reader stands in it, and the piece that begins there."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from migverify.workload.formats.statements import BANNER, CUT, NO_RECORD, Grammar
from migverify.workload.lexer import DEFAULT
from migverify.workload.lines import BLOCK, TOO_LONG, Window, noise, open_log, rejected
from migverify.workload.model import UNKNOWN, Carry, Piece
from migverify.workload.quotes import Skip, end_of, is_plain

HEADER_BYTES = 64 << 10
"""No header is longer: so many bytes behind a place tell whether one begins there."""


class Reading:
    """One file being read.

    Parameters
    ----------
    begin, line, carry
        Where to begin, its line, and what the records before say; the first byte of the file by default.
    stop
        Where the last piece may begin, exclusive; None reads to the end of the file.
    growing
        More may be written behind the end of the file, so the end decides nothing.

    Attributes
    ----------
    at
        The index in the window's bytes of what is not read yet.
    line
        Its line, from 1.
    """

    def __init__(
        self, path: str, grammar: Grammar, limit: int, block: int = BLOCK, *,
        begin: int = 0, line: int = 1, carry: Carry | None = None, stop: int | None = None, growing: bool = False,
    ) -> None:  # fmt: skip
        self.path, self.grammar, self.limit, self.stop, self.growing = path, grammar, limit, stop, growing
        self._file = open_log(path)
        self.window = Window(path, self._file, HEADER_BYTES if begin else block)
        self._fill()
        grammar.begin(self.window.data[:HEADER_BYTES])
        if carry is not None:
            grammar.resume(carry)
        if begin:
            self._file.seek(begin)
            self.window = Window(path, self._file, block)
            self.window.base = begin
            self._fill()
        self.at = 0
        self.line = line

    def _fill(self) -> None:
        self.window.more(0)
        while not self.window.eof and len(self.window.data) < HEADER_BYTES:
            self.window.more(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()

    @property
    def place(self) -> int:
        """The offset of what is not read yet."""
        return self.window.base + self.at

    @property
    def over(self) -> bool:
        """True when everything is read."""
        return (self.stop is not None and self.place >= self.stop) or (
            self.window.eof and self.at >= len(self.window.data)
        )

    @property
    def undecided(self) -> bool:
        """True when only bytes that are not written yet can show where the record at the place ends."""
        return self.growing and self.window.eof and len(self.window.data) - self.at <= self.limit + HEADER_BYTES

    def seek_header(self) -> None:
        """Go on to the first header that says its time, judged by it alone; the first byte has to be before its line.

        A literal may hold such a header: the part before has to end at it.
        """
        while True:
            window = self.window
            found = self.grammar.loose(window.data, self.at, eof=window.eof)
            whole = len(window.data) if window.eof else len(window.data) - HEADER_BYTES
            if found is not None and (found < whole or window.eof):
                self.at = found
                if self.stop is not None and self.place >= self.stop:
                    return
                if self.grammar.text_of(window.data, found) is not None and self.grammar.has_time():
                    return
                continue
            if window.eof or (self.stop is not None and window.base + whole >= self.stop):
                self.at = len(window.data) if window.eof else max(self.at, whole)
                return
            self.at = max(self.at, whole)
            window.more(self.at)
            self.at = 0

    def step(self) -> Piece | None:
        """Return the next piece; None when bytes behind the window decide."""
        if self.at >= len(self.window.data):
            return None
        found = self._next()
        if found is None:
            return None
        piece, length = found
        self.line += self.window.data.count(b"\n", self.at, self.at + length)
        self.at += length
        return piece

    def steps(self) -> Iterator[Piece]:
        """Yield the pieces that the window shows in the plain case: a header, a text with all quotes closed, a header.

        The place is behind a piece when it is yielded.
        """
        grammar, limit = self.grammar, self.limit
        text_of, following, make = grammar.text_of, grammar.following, grammar.piece
        data, base, eof = self.window.data, self.window.base, self.window.eof
        decided = len(data) if eof else len(data) - HEADER_BYTES
        if self.stop is not None:
            decided = min(decided, self.stop - base)
        at = self.at
        while at < decided:
            text = text_of(data, at)
            first = None if text is None else following(data, text, eof=eof)
            if text is None or first is None:
                break
            begin, text_end = first
            if (
                text_end <= text or begin - at > limit or (grammar.quoting and grammar.modes() != DEFAULT)
                or not is_plain(data, text, text_end)
            ):  # fmt: skip
                break
            piece = make(data, base + at, self.line, begin - at, text, text_end, "")
            self.line += data.count(b"\n", at, begin)
            at = self.at = begin
            yield piece

    def more(self) -> Piece | None:
        """Read on; returns the piece that is passed when it is longer than a record may be."""
        if len(self.window.data) - self.at <= self.limit + HEADER_BYTES:
            self.window.more(self.at)
            self.at = 0
            return None
        offset, line = self.place, self.line
        length, breaks = self._skip()
        self.line += breaks
        self.at = 0
        return rejected(self.path, offset, line, length, TOO_LONG)

    def _next(self) -> tuple[Piece, int] | None:
        """Return the piece at the place and its length; None when bytes behind the window decide."""
        grammar, limit, at, line = self.grammar, self.limit, self.at, self.line
        data, eof, offset = self.window.data, self.window.eof, self.place
        if not eof and len(data) - at < HEADER_BYTES:
            return None
        text = grammar.text_of(data, at)
        if text is None:
            return self._no_record()
        first = grammar.following(data, text, eof=eof)
        ends = eof and not self.growing
        if first is None:
            if not ends:
                return None
            end = max(text, grammar.last_end(data))
            partial = "" if end < len(data) else CUT
            return grammar.piece(data, offset, line, len(data) - at, text, end, partial), len(data) - at
        if first.text_end <= text:
            return grammar.piece(data, offset, line, first.begin - at, text, text, ""), first.begin - at
        found = end_of(data, text, first, grammar, limit, eof=ends, modes=grammar.modes())
        if found is None:
            return None
        length = found.next - at
        if length > limit:
            return rejected(self.path, offset, line, length, TOO_LONG), length
        partial = found.partial or (CUT if found.next == found.text_end else "")
        return grammar.piece(data, offset, line, length, text, found.text_end, partial), length

    def _no_record(self) -> tuple[Piece, int] | None:
        data, at, offset = self.window.data, self.at, self.place
        eof = self.window.eof and not self.growing
        banner = BANNER.match(data, at)
        if (
            banner is not None
            and not eof
            and len(data) - banner.end() < HEADER_BYTES
            and b"\n" not in data[banner.end() :]
        ):
            return None  # the window ends in the line behind, which may be the banner's as well
        if banner is not None:
            self.grammar.banner()
            return noise(self.path, offset, self.line, banner.end() - at, "banner"), banner.end() - at
        if data[at : at + 1] in (b"\n", b"\r"):
            end = data.find(b"\n", at) + 1
            if end and not data[at:end].strip():
                return noise(self.path, offset, self.line, end - at, "empty line"), end - at
        first = self.grammar.loose(data, at, eof=eof)
        if not eof and (first is None or (self.window.eof and self._is_half(first))):
            return None
        length = (len(data) if first is None else first) - at
        return rejected(self.path, offset, self.line, length, NO_RECORD), length

    def _is_half(self, header: int) -> bool:
        """Tell whether a header is not written to its end: it may be the rest of one that begins before it."""
        data = self.window.data
        return self.grammar.text_of(data, header) is None and BANNER.match(data, header) is None

    def _skip(self) -> tuple[int, int]:
        """Go on to the end of a record that is too long; returns its length and its line breaks."""
        skip, window, at = Skip(), self.window, self.at
        begun = window.base + at
        breaks = 0
        while True:
            taken, over = skip.take(window.data[at:] if at else window.data, self.grammar, eof=window.eof)
            breaks += window.data.count(b"\n", at, at + taken)
            window.more(at + taken)
            if over:
                return window.base - begun, breaks
            at = 0


def read_statements(
    path: str, grammar: Grammar, limit: int, block: int = BLOCK, *, stop: int | None = None
) -> Iterator[Piece]:
    """Yield the pieces of a log from its first byte on, to the first that begins at ``stop`` or behind it."""
    with Reading(path, grammar, limit, block, stop=stop) as reading:
        yield from _pieces(reading)


def _pieces(reading: Reading) -> Iterator[Piece]:
    while True:
        yield from reading.steps()
        if reading.over:
            return
        piece = reading.step()
        if piece is None:
            if reading.undecided:
                return
            piece = reading.more()
        if piece is not None:
            yield piece


class LogPart:
    """A part of a log; see ``migverify.workload.model.Part``."""

    def __init__(
        self, path: str, grammar: Grammar, limit: int, begin: int, stop: int | None, carry: Carry | None, *,
        growing: bool = False,
    ) -> None:  # fmt: skip
        seek = begin > 0 and carry is None
        given = carry or (Carry(UNKNOWN) if begin else None)
        self._reading = Reading(path, grammar, limit, begin=begin - seek, carry=given, stop=stop, growing=growing)
        if seek:  # the line end before a header is part of its mark
            self._reading.seek_header()
            self._reading.line = 1
        self.begin = self._reading.place

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces."""
        with self._reading:
            yield from _pieces(self._reading)

    @property
    def end(self) -> int:
        """Where the part ends, once it is read."""
        return self._reading.place

    @property
    def lines(self) -> int:
        """Line ends in the part."""
        return self._reading.line - 1

    @property
    def carry(self) -> Carry:
        """What the part says for what is behind it."""
        return self._reading.grammar.carry()
