"""A log whose statements end at the next header, read step by step: the grammar of its headers, and its pieces."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import ClassVar

from migverify.sql.lexer import DEFAULT, Modes
from migverify.workload.formats.holes import GLUED, HOLE, damage_at, hole_end, is_glued
from migverify.workload.formats.statements import BANNER, CUT, NO_RECORD
from migverify.workload.lines import BLOCK, LONGEST, TOO_LONG, LogClock, LogWindow, Texts, noise, open_log, rejected
from migverify.workload.model import UNKNOWN, Carry, Command, Piece, Record
from migverify.workload.quotes import Header, Skip, end_of, is_plain
from migverify.workload.state import Tracker

HEADER_BYTES = 64 << 10
"""No header is longer: so many bytes behind a place tell whether one begins there."""
_SETS = re.compile(rb"(?:\s|/\*!\d*|/\*(?!M?!).*?\*/)*+set\b", re.IGNORECASE | re.DOTALL)
_BEGINS_ANEW = frozenset({Command.CONNECT, Command.QUIT, Command.CHANGE_USER, Command.RESET_CONNECTION})


class LogGrammar(ABC):
    """The headers of a slow or general log, and its records.

    Parameters
    ----------
    following
        Finds the line break before a header, and the header's first byte as the end of the match.
    stop
        What ends a text: the line break, with what the server puts before it.

    Attributes
    ----------
    quoting
        SQL mode and character set of the sessions that set such as read quotes in another way than the default ones.
    unclosed, wide
        See ``quotes.Headers``.
    """

    head: ClassVar[re.Pattern[bytes]]
    loose_header: ClassVar[re.Pattern[bytes]]
    """Finds the line break before a record or a banner behind bytes that are none."""
    header_part: ClassVar[re.Pattern[bytes]]
    """Finds what a header leaves when a few of its bytes are gone."""

    def __init__(self, path: str, zone: tzinfo, following: re.Pattern[bytes], stop: bytes) -> None:
        self._path = path
        self._clock = LogClock(zone)
        self.texts = Texts()
        self._head: re.Match[bytes] | None = None
        self.unclosed = self.wide = (b"", 0, 0)
        self.next = following
        self._stop = stop
        self.quoting: dict[int, tuple[str, str]] = {}

    @abstractmethod
    def begin(self, head: bytes) -> None:
        """Take in the first bytes of the file."""

    @abstractmethod
    def text_of(self, data: bytes, at: int) -> int | None:
        """Take in the header at an index and return where its text starts; None when none is there."""

    @abstractmethod
    def has_time(self) -> bool:
        """Tell whether the header taken in last says its time, so that a reading can begin with it."""

    @abstractmethod
    def session(self) -> int | None:
        """Return the session of the header taken in last."""

    @abstractmethod
    def banner(self) -> None:
        """Take in a banner: the server opened the file anew."""

    @abstractmethod
    def forget(self) -> None:
        """Take in that bytes of the log are lost: what they said for the records behind them is not known."""

    @abstractmethod
    def piece(self, data: bytes, offset: int, line: int, length: int, text: int, text_end: int, partial: str) -> Piece:
        """Return the record of the header taken in last."""

    @abstractmethod
    def carry(self) -> Carry:
        """Return what the records so far say for those behind them."""

    @abstractmethod
    def resume(self, carry: Carry) -> None:
        """Continue in the middle of a file, after ``begin``."""

    def following(self, data: bytes, start: int) -> Header | None:
        """Return the first header at a place or behind it."""
        # the statement may be empty: the end of its header is the end before the next one then
        found = self.next.search(data, max(0, start - len(self._stop)))
        return None if found is None else Header(found.end(), found.start())

    def loose(self, data: bytes, at: int) -> int | None:
        """Return where a record or a banner may begin behind bytes that are none; None when none does."""
        found = self.loose_header.search(data, at)
        return None if found is None else found.end()

    def text_start(self, data: bytes, header: Header) -> int:
        """Return where the text of the record that a header begins starts."""
        found = self.head.match(data, header.begin) or BANNER.match(data, header.begin)
        return header.begin if found is None else found.end()

    def modes(self) -> Modes:
        """Return the modes that the session of the header taken in last is known to have set."""
        session = self.session() if self.quoting else None
        return DEFAULT if session is None else Modes.of(*self.quoting.get(session, ("", "")))

    def learn(self, record: Record) -> None:
        """Take in what a record sets of how the quotes of its session's later texts are read."""
        session, sql = record.session, record.sql
        if session is None:
            return
        if self.quoting and record.command in _BEGINS_ANEW:
            self.quoting.pop(session, None)
        elif sql[:1] in b"sS/ \t\r\n" and not record.partial and _SETS.match(sql):
            lower = sql.lower()
            names = b"names" in lower or b"char" in lower
            if record.command is not Command.QUERY or (b"sql_mode" not in lower and not names):
                return
            mode, charset = self.quoting.pop(session, ("", ""))
            tracker = Tracker()
            tracker.apply(record)
            state = tracker.state_in(None)
            mode = (state.sql_mode or "") if b"sql_mode" in lower else mode
            charset = (state.charset or "") if names else charset
            found = Modes.of(mode, charset)
            if found.ansi_quotes or found.no_backslash_escapes or found.charset:
                self.quoting[session] = mode, charset

    def last_end(self, data: bytes) -> int:
        """Return where the last text of the file ends."""
        return len(data) - len(self._stop) if data.endswith(self._stop) else len(data)


class LogReading:
    """A part of a log, its pieces yielded once; see ``migverify.workload.model.Part``.

    Parameters
    ----------
    begin, carry
        Where to begin, and what the records before say; without the latter at the first header behind ``begin``.
    stop
        Where the last piece may begin, exclusive; None reads to the end of the file.
    growing
        The file is still written: the pieces end before the first one that only bytes behind its end decide.

    Attributes
    ----------
    at
        The index in the window's bytes of what is not read yet.
    line
        Its line, from 1 at the first byte of the part.
    """

    def __init__(
        self, path: str, grammar: LogGrammar, limit: int = LONGEST, block: int = BLOCK, *,
        begin: int = 0, stop: int | None = None, carry: Carry | None = None, growing: bool = False,
    ) -> None:  # fmt: skip
        self.path, self.grammar, self.limit, self.stop = path, grammar, limit, stop
        seeks = begin > 0 and carry is None
        begin -= seeks  # the line end before a header is part of its mark
        self._file = open_log(path)
        self.window = LogWindow(path, self._file, HEADER_BYTES if begin else block, growing=growing)
        self._fill()
        grammar.begin(self.window.data[:HEADER_BYTES])
        if carry is not None or seeks:
            grammar.resume(carry or Carry(UNKNOWN))
        if begin:
            self._file.seek(begin)
            self.window = LogWindow(path, self._file, block, growing=growing)
            self.window.base = begin
            self._fill()
        self.at = 0
        self.line = 1
        if seeks:
            self._seek_header()
        self.begin = self.end

    def _fill(self) -> None:
        self.window.more(0)
        while not self.window.dry and len(self.window.data) < HEADER_BYTES:
            self.window.more(0)

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces."""
        with self._file:
            while True:
                yield from self._plain_steps()
                if self._is_over:
                    return
                piece = self._step()
                if piece is None and self.window.dry and not self.window.eof and not self._is_too_long:
                    return
                if piece is None:
                    piece = self._more()
                if piece is not None:
                    yield piece

    @property
    def lines(self) -> int:
        """Line ends in what was read."""
        return self.line - 1

    @property
    def carry(self) -> Carry:
        """What was read says this for what is behind it."""
        return self.grammar.carry()

    @property
    def end(self) -> int:
        """The offset of what is not read yet."""
        return self.window.base + self.at

    def whole(self, piece: Piece) -> Piece:
        """Return the piece that was yielded last, or a reject where a header in it is damaged: it is two records then.

        What the lost header said is not known for the records behind it.
        """
        if not isinstance(piece, Record) or not is_glued(piece.sql, self.grammar.header_part):
            return piece
        self.grammar.forget()
        origin = piece.origin
        return rejected(origin.file, origin.offset, origin.line, origin.length, GLUED)

    @property
    def _is_too_long(self) -> bool:
        return len(self.window.data) - self.at > self.limit + HEADER_BYTES

    @property
    def _is_over(self) -> bool:
        """True when everything is read."""
        return (self.stop is not None and self.end >= self.stop) or (
            self.window.eof and self.at >= len(self.window.data)
        )

    def _seek_header(self) -> None:
        """Go on to the first header that says its time, judged by it alone; the first byte has to be before its line.

        A literal may hold such a header: the part before has to end at it.
        """
        while True:
            window = self.window
            found = self.grammar.loose(window.data, self.at)
            whole = len(window.data) if window.eof else len(window.data) - HEADER_BYTES
            if found is not None and (found < whole or window.eof):
                self.at = found
                if self.stop is not None and self.end >= self.stop:
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

    def _step(self) -> Piece | None:
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

    def _plain_steps(self) -> Iterator[Piece]:
        """Yield the pieces that the window shows in the plain case: a header, a text with all quotes closed, a header.

        The place is behind a piece when it is yielded.
        """
        grammar, limit = self.grammar, self.limit
        text_of, following, make = grammar.text_of, grammar.following, grammar.piece
        data, base, eof = self.window.data, self.window.base, self.window.eof
        # In a file that grows a header that is there in full ends the record before it.
        decided = len(data) if eof or self.window.dry else len(data) - HEADER_BYTES
        if self.stop is not None:
            decided = min(decided, self.stop - base)
        at = self.at
        while at < decided:
            text = text_of(data, at)
            first = None if text is None else following(data, text)
            if text is None or first is None:
                break
            begin, text_end = first
            if (
                text_end <= text or begin - at > limit or (grammar.quoting and grammar.modes() != DEFAULT)
                or data.find(b"\0", at, begin) >= 0 or not is_plain(data, text, text_end)
            ):  # fmt: skip
                break
            piece = make(data, base + at, self.line, begin - at, text, text_end, "")
            self.line += data.count(b"\n", at, begin)
            at = self.at = begin
            yield piece

    def _more(self) -> Piece | None:
        """Read on; returns the piece that is passed when it is longer than a record may be."""
        if not self._is_too_long:
            self.window.more(self.at)
            self.at = 0
            return None
        window = self.window
        growing, window.growing = window.growing, False  # what is there of the record is passed now
        offset, line = self.end, self.line
        reason = HOLE if window.data[self.at] == 0 else TOO_LONG
        if reason == HOLE:
            self.grammar.forget()
        length, breaks = self._skip()
        window.growing, window.eof = growing, window.eof and not growing
        self.line += breaks
        self.at = 0
        return rejected(self.path, offset, line, length, reason)

    def _next(self) -> tuple[Piece, int] | None:
        """Return the piece at the place and its length; None when bytes behind the window decide."""
        grammar, limit, at, line = self.grammar, self.limit, self.at, self.line
        data, eof, offset = self.window.data, self.window.eof, self.end
        if not self.window.dry and len(data) - at < HEADER_BYTES:
            return None
        text = grammar.text_of(data, at)
        if text is None:
            return self._no_record()
        first = grammar.following(data, text)
        end = len(data) if first is None else first.text_end
        damage = damage_at(data, at, text, end, grammar.header_part, whole=eof or first is not None)
        if damage is not None:
            return rejected(self.path, offset, line, damage - at, HOLE), damage - at
        if first is None:
            if not eof:
                return None
            end = max(text, grammar.last_end(data))
            partial = "" if end < len(data) else CUT
            return grammar.piece(data, offset, line, len(data) - at, text, end, partial), len(data) - at
        if first.text_end <= text:
            return grammar.piece(data, offset, line, first.begin - at, text, text, ""), first.begin - at
        found = end_of(data, text, first, grammar, limit, eof=eof, modes=grammar.modes())
        if found is None:
            return None
        length = found.next - at
        if length > limit:
            return rejected(self.path, offset, line, length, TOO_LONG), length
        damage = damage_at(data, at, text, found.text_end, grammar.header_part, whole=True)
        if damage is not None:  # its literal goes on over headers, and over a hole behind them
            return rejected(self.path, offset, line, damage - at, HOLE), damage - at
        partial = found.partial or (CUT if found.next == found.text_end else "")
        return grammar.piece(data, offset, line, length, text, found.text_end, partial), length

    def _no_record(self) -> tuple[Piece, int] | None:
        data, at, offset = self.window.data, self.at, self.end
        eof = self.window.eof
        if data[at] == 0:
            return self._hole()
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
        first = self.grammar.loose(data, at)
        if not eof and (first is None or len(data) - at < HEADER_BYTES):
            return None  # the header may be one whose end is not there yet
        end = len(data) if first is None else first
        hole = data.find(b"\0", at, end)
        length = (end if hole < 0 else hole) - at
        return rejected(self.path, offset, self.line, length, NO_RECORD), length

    def _hole(self) -> tuple[Piece, int] | None:
        """Return the NUL bytes at the place with the rest of the record they cut; None when bytes behind decide."""
        data, at, window, grammar = self.window.data, self.at, self.window, self.grammar
        end = hole_end(data, at)
        if not window.eof and len(data) - end < (1 if window.dry else HEADER_BYTES):
            return None
        # A log that was truncated while it was written goes on with a whole record right behind the hole.
        if not BANNER.match(data, end) and (grammar.text_of(data, end) is None or not grammar.has_time()):
            following = grammar.following(data, end)  # the first header whole: what is before it is of the cut record
            if following is None and not window.eof:
                return None
            end = len(data) if following is None else following.begin
        grammar.forget()
        return rejected(self.path, self.end, self.line, end - at, HOLE), end - at

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


class LogFormat(ABC):
    """A slow or general log.

    Parameters
    ----------
    zone
        The server's, for times that do not tell theirs (MySQL 5.6, MariaDB).
    limit
        Bytes of the longest record.
    """

    name: str

    def __init__(self, zone: tzinfo = UTC, limit: int = LONGEST) -> None:
        self.zone, self.limit = zone, limit

    @abstractmethod
    def grammar(self, path: str) -> LogGrammar:
        """Return what reads the headers of a file."""

    def read(self, path: str) -> Iterator[Piece]:
        """Yield the pieces of a file."""
        return iter(self.part(path))

    def part(self, path: str, begin: int = 0, stop: int | None = None, carry: Carry | None = None) -> LogReading:
        """See ``migverify.workload.model.Divisible``."""
        return LogReading(path, self.grammar(path), self.limit, begin=begin, stop=stop, carry=carry)
