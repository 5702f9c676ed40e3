"""A log read step by step: where a reader stands in it, and the piece that begins there."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from migverify.workload.formats.statements import BANNER, CUT, NO_RECORD, Carry, Grammar
from migverify.workload.lines import BLOCK, TOO_LONG, Window, is_packed, noise, open_log, rejected
from migverify.workload.model import Piece
from migverify.workload.quotes import Skip, closed, end_of

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

    Attributes
    ----------
    at
        The index in the window's bytes of what is not read yet.
    line
        Its line, from 1.
    """

    def __init__(
        self, path: str, grammar: Grammar, limit: int, block: int = BLOCK, *,
        begin: int = 0, line: int = 1, carry: Carry | None = None, stop: int | None = None,
    ) -> None:  # fmt: skip
        self.path, self.grammar, self.limit, self.stop = path, grammar, limit, stop
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

    def seek_header(self) -> None:
        """Go on to where the first record may begin that begins at this place or behind it, judged by it alone.

        The byte before this place has to be the first of the window: a header at the beginning of a line tells itself.
        """
        while True:
            window = self.window
            found = self.grammar.loose(window.data, self.at, eof=window.eof)
            whole = len(window.data) if window.eof else len(window.data) - HEADER_BYTES
            if found is not None and (found < whole or window.eof):
                self.at = found
                return
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
            if text_end <= text or begin - at > limit or not closed(data, text, text_end):
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
        if first is None:
            if not eof:
                return None
            end = max(text, grammar.last_end(data))
            partial = "" if end < len(data) else CUT
            return grammar.piece(data, offset, line, len(data) - at, text, end, partial), len(data) - at
        if first.text_end <= text:
            return grammar.piece(data, offset, line, first.begin - at, text, text, ""), first.begin - at
        found = end_of(data, text, first, grammar, limit, eof=eof)
        if found is None:
            return None
        length = found.next - at
        if length > limit:
            return rejected(self.path, offset, line, length, TOO_LONG), length
        partial = found.partial or (CUT if found.next == found.text_end else "")
        return grammar.piece(data, offset, line, length, text, found.text_end, partial), length

    def _no_record(self) -> tuple[Piece, int] | None:
        data, eof, at, offset = self.window.data, self.window.eof, self.at, self.place
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
        if first is None and not eof:
            return None
        length = (len(data) if first is None else first) - at
        return rejected(self.path, offset, self.line, length, NO_RECORD), length

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


def splits(path: str) -> bool:
    """Tell whether a file can be read from the middle: packed ones cannot."""
    return not is_packed(path)


def read_statements(
    path: str, grammar: Grammar, limit: int, block: int = BLOCK, *, stop: int | None = None
) -> Iterator[Piece]:
    """Yield the pieces of a log from its first byte on, to the first that begins at ``stop`` or behind it."""
    with Reading(path, grammar, limit, block, stop=stop) as reading:
        while True:
            yield from reading.steps()
            if reading.over:
                return
            piece = reading.step()
            if piece is None:
                piece = reading.more()
            if piece is not None:
                yield piece
