"""Logs whose statements end at the next header: what their readers have in common, and what texts lack."""

from __future__ import annotations

import re
from datetime import tzinfo
from typing import ClassVar, Protocol

from migverify.workload.lexer import DEFAULT, Modes
from migverify.workload.lines import Clock, Texts
from migverify.workload.model import Carry, Command, Piece, Record
from migverify.workload.quotes import Header, Headers, literals
from migverify.workload.state import Tracker

CUT = "statement cut by the end of the file"
MASKED = "password masked by the server"
LINE_ENDS = "line ends inside a literal were changed with those of the file"
TEXT_LOST = "text of the prepared statement not logged"
NO_RECORD = "bytes that are no record"

_SERVER = rb"[^\n,;'\"`]{0,512}?(?:mysqld|mariadbd)[\w.-]{0,32}, Version: [^\n]{0,512}started with:\r?\n"
BANNER = re.compile(
    _SERVER + rb"(?:(?:Tcp port|TCP Port): [^\n]*\n)?(?:Time +Id +Command +Argument *\r?\n|Time\t[^\n]*\n)?"
)
BANNER_LINE = _SERVER
_MASKED = re.compile(
    rb"(?:\b(?:by|as)|password\s*\(|=)\s*(?:\*{5}(?![*/])|<secret>)|\b(?:by|as)\s*'(?:<secret>|\*{5})'", re.IGNORECASE
)
_SETS = re.compile(rb"(?:\s|/\*!\d*|/\*(?!M?!).*?\*/)*+set\b", re.IGNORECASE | re.DOTALL)
_BEGINS_ANEW = frozenset({Command.CONNECT, Command.QUIT, Command.CHANGE_USER, Command.RESET_CONNECTION})
_FROM_LOST = re.compile(rb"\s*PREPARE\s+\S+\s+FROM \.\.\.$")


def lacks(sql: bytes) -> str:
    """Return why a statement's text is not what the client sent, empty when it is."""
    if (b"*****" in sql or b"<secret>" in sql) and _MASKED.search(sql):
        return MASKED
    if sql.endswith(b" FROM ...") and _FROM_LOST.match(sql):
        return TEXT_LOST
    return ""


def windows_lines(head: bytes) -> bool:
    """Tell whether the lines of a file end like those of Windows: no server writes them so, but a copy may."""
    breaks = head.count(b"\n")
    return breaks > 1 and head.count(b"\r\n") == breaks


def changed_lines(sql: bytes) -> str:
    """Return why a text of a file with Windows lines is partial: a line end in a literal is data."""
    return LINE_ENDS if b"\r\n" in sql and any(b"\r\n" in part for part in literals(sql)) else ""


class LogHeaders:
    """What the headers of slow and general logs share: where the next one is, and where a text ends before it.

    Parameters
    ----------
    following
        Finds the line break before a header, and the header's first byte as the end of the match.
    stop
        What stands behind a text: the line break, with what the server puts before it.

    Attributes
    ----------
    quoting
        SQL mode and character set of the sessions that set such as read quotes in another way than the default ones.
    """

    head: ClassVar[re.Pattern[bytes]]

    def __init__(self, path: str, zone: tzinfo, following: re.Pattern[bytes], stop: bytes) -> None:
        self._path = path
        self._clock = Clock(zone)
        self.texts = Texts()
        self._head: re.Match[bytes] | None = None
        self.unclosed = (b"", 0, 0)
        self.next = following
        self._stop = stop
        self.quoting: dict[int, tuple[str, str]] = {}

    def following(self, data: bytes, start: int, *, eof: bool) -> Header | None:  # noqa: ARG002
        """Return the first header at a place or behind it."""
        # the statement may be empty: the end of its header is the end before the next one then
        found = self.next.search(data, max(0, start - len(self._stop)))
        return None if found is None else Header(found.end(), found.start())

    def text_start(self, data: bytes, header: Header) -> int:
        """Return where the text of the record that a header begins starts."""
        found = self.head.match(data, header.begin) or BANNER.match(data, header.begin)
        return header.begin if found is None else found.end()

    def session(self) -> int | None:
        """Return the session of the header taken in last."""
        raise NotImplementedError

    def modes(self) -> Modes:
        """See Grammar."""
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


class Grammar(Headers, Protocol):
    """A log's headers, and its records."""

    quoting: dict[int, tuple[str, str]]

    def modes(self) -> Modes:
        """Return the modes that the session of the header taken in last is known to have set."""
        ...

    def begin(self, head: bytes) -> None:
        """Take in the first bytes of the file."""
        ...

    def loose(self, data: bytes, at: int, *, eof: bool) -> int | None:
        """Return where a record or a banner may begin behind bytes that are none; None when none does."""
        ...

    def text_of(self, data: bytes, at: int) -> int | None:
        """Take in the header at an index and return where its text starts; None when none is there."""
        ...

    def has_time(self) -> bool:
        """Tell whether the header taken in last says its time, so that a reading can begin with it."""
        ...

    def banner(self) -> None:
        """Take in a banner: the server opened the file anew."""
        ...

    def piece(self, data: bytes, offset: int, line: int, length: int, text: int, text_end: int, partial: str) -> Piece:
        """Return the record of the header taken in last."""
        ...

    def carry(self) -> Carry:
        """Return what the records so far say for those behind them."""
        ...

    def resume(self, carry: Carry) -> None:
        """Go on in the middle of a file, behind ``begin``."""
        ...
