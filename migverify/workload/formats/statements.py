"""Logs whose statements end at the next header: the loop over their records, and what their texts lack."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol

from migverify.workload.lines import BLOCK, TOO_LONG, Window, noise, open_log, rejected
from migverify.workload.model import Piece
from migverify.workload.quotes import Headers, Skip, end_of

CUT = "statement cut by the end of the file"
MASKED = "password masked by the server"
TEXT_LOST = "text of the prepared statement not logged"
NO_RECORD = "bytes that are no record"

BANNER = re.compile(
    rb"[^\n]*, Version: [^\n]*started with:\n(?:Tcp port: [^\n]*\n)?(?:Time +Id +Command +Argument *\n|Time\t[^\n]*\n)?"
)
BANNER_LINE = rb"[^\n]{0,4096}, Version: [^\n]{0,4096}started with:\n"
_HEADER_BYTES = 64 << 10
_MASKED = re.compile(rb"(?:\b(?:by|as)|password\s*\(|=)\s*(?:\*{5}(?![*/])|<secret>)", re.IGNORECASE)
_FROM_LOST = re.compile(rb"\s*PREPARE\s+\S+\s+FROM \.\.\.$")


def lacks(sql: bytes) -> str:
    """Return why a statement's text is not what the client sent, empty when it is."""
    if (b"*****" in sql or b"<secret>" in sql) and _MASKED.search(sql):
        return MASKED
    if sql.endswith(b" FROM ...") and _FROM_LOST.match(sql):
        return TEXT_LOST
    return ""


class Grammar(Headers, Protocol):
    """A log's headers, and its records."""

    def loose(self, data: bytes, at: int, *, eof: bool) -> int | None:
        """Return where a record or a banner may begin behind bytes that are none; None when none does."""
        ...

    def text_of(self, data: bytes, at: int) -> int | None:
        """Take in the header at an index and return where its text starts; None when none is there."""
        ...

    def banner(self) -> None:
        """Take in a banner: the server opened the file anew."""
        ...

    def piece(
        self, data: bytes, offset: int, line: int, length: int, text: int, text_end: int, partial: str
    ) -> Piece:
        """Return the record of the header taken in last."""
        ...


def read_statements(
    path: str, grammar: Grammar, limit: int, block: int = BLOCK, *, wanted: Callable[[int], bool] = lambda _: True
) -> Iterator[Piece]:
    """Yield the pieces of a log from its first byte on, to the first that is not ``wanted`` any more."""
    with open_log(path) as file:
        window = Window(path, file, block)
        window.more(0)
        line = 1
        at = 0
        while True:
            data = window.data
            if at >= len(data):
                if window.eof:
                    return
                window.more(at)
                at = 0
                continue
            if not wanted(window.base + at):
                return
            found = _next(path, grammar, window, at, line, limit)
            if found is not None:
                piece, length = found
                yield piece
                line += data.count(b"\n", at, at + length)
                at += length
            elif len(data) - at > limit + _HEADER_BYTES:
                offset = window.base + at
                length, breaks = _skip(window, grammar, at)
                yield rejected(path, offset, line, length, TOO_LONG)
                line += breaks
                at = 0
            else:
                window.more(at)
                at = 0


def _next(
    path: str, grammar: Grammar, window: Window, at: int, line: int, limit: int
) -> tuple[Piece, int] | None:
    """Return the piece at an index and its length; None when bytes behind the window decide."""
    data, eof, offset = window.data, window.eof, window.base + at
    if not eof and len(data) - at < _HEADER_BYTES:
        return None
    text = grammar.text_of(data, at)
    if text is None:
        return _no_record(path, grammar, window, at, line)
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
        return rejected(path, offset, line, length, TOO_LONG), length
    partial = found.partial or (CUT if found.next == found.text_end else "")
    return grammar.piece(data, offset, line, length, text, found.text_end, partial), length


def _no_record(path: str, grammar: Grammar, window: Window, at: int, line: int) -> tuple[Piece, int] | None:
    data, eof, offset = window.data, window.eof, window.base + at
    banner = BANNER.match(data, at)
    if banner is not None:
        grammar.banner()
        return noise(path, offset, line, banner.end() - at, "banner"), banner.end() - at
    if data[at : at + 1] in (b"\n", b"\r"):
        end = data.find(b"\n", at) + 1
        if end and not data[at:end].strip():
            return noise(path, offset, line, end - at, "empty line"), end - at
    first = grammar.loose(data, at, eof=eof)
    if first is None and not eof:
        return None
    length = (len(data) if first is None else first) - at
    return rejected(path, offset, line, length, NO_RECORD), length


def _skip(window: Window, grammar: Headers, at: int) -> tuple[int, int]:
    """Go on to the end of a record that is too long; returns its length and its line breaks."""
    skip = Skip()
    begun = window.base + at
    breaks = 0
    while True:
        taken, over = skip.take(window.data[at:] if at else window.data, grammar, eof=window.eof)
        breaks += window.data.count(b"\n", at, at + taken)
        if over:
            window.more(at + taken)
            return window.base - begun, breaks
        window.more(at + taken)
        at = 0
