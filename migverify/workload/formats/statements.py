"""Logs whose statements end at the next header: what their readers have in common, and what texts lack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, ClassVar, Protocol

from migverify.workload.lines import Clock, Texts
from migverify.workload.model import Piece
from migverify.workload.quotes import Header, Headers, literals

CUT = "statement cut by the end of the file"
MASKED = "password masked by the server"
LINE_ENDS = "line ends inside a literal were changed with those of the file"
TEXT_LOST = "text of the prepared statement not logged"
NO_RECORD = "bytes that are no record"

_SERVER = rb"[^\n,;'\"`]{0,4096}(?:mysqld|mariadbd)[\w.-]*, Version: [^\n]{0,4096}started with:\r?\n"
BANNER = re.compile(
    _SERVER + rb"(?:(?:Tcp port|TCP Port): [^\n]*\n)?(?:Time +Id +Command +Argument *\r?\n|Time\t[^\n]*\n)?"
)
BANNER_LINE = _SERVER
_MASKED = re.compile(
    rb"(?:\b(?:by|as)|password\s*\(|=)\s*(?:\*{5}(?![*/])|<secret>)|\b(?:by|as)\s*'(?:<secret>|\*{5})'", re.IGNORECASE
)
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


UNTOLD = "\udc80"
"""Stands for the current database where a reading begins in the middle of a file: no name of a log decodes to it."""


@dataclass(frozen=True, slots=True)
class Carry:
    """What the records up to a place of a log say for those behind it.

    ``number`` counts them. ``database`` is the current one. ``time`` is the last time told. ``told`` is, by session,
    what decides how later records of it are read; it is sorted.
    """

    number: int = 0
    database: str | None = None
    time: int | None = None
    told: tuple[tuple[int, Any], ...] = ()

    def behind(self, before: Carry) -> Carry:
        """Return what holds behind a block that was read without knowing what holds ``before`` it, but for ``told``."""
        return Carry(
            before.number + self.number, before.database if self.database == UNTOLD else self.database,
            before.time if self.time is None else self.time, self.told,
        )  # fmt: skip


class LogHeaders:
    """What the headers of slow and general logs share: where the next one is, and where a text ends before it.

    Parameters
    ----------
    following
        Finds the line break before a header, and the header's first byte as the end of the match.
    stop
        What stands behind a text: the line break, with what the server puts before it.
    """

    head: ClassVar[re.Pattern[bytes]]

    def __init__(self, path: str, zone: tzinfo, following: re.Pattern[bytes], stop: bytes) -> None:
        self._path = path
        self._clock = Clock(zone)
        self.texts = Texts()
        self._head: re.Match[bytes] | None = None
        self.number = 0
        self.next = following
        self._stop = stop

    def following(self, data: bytes, start: int, *, eof: bool) -> Header | None:  # noqa: ARG002
        """Return the first header at a place or behind it."""
        # the statement may be empty: the end of its header is the end before the next one then
        found = self.next.search(data, max(0, start - len(self._stop)))
        return None if found is None else Header(found.end(), found.start())

    def text_start(self, data: bytes, header: Header) -> int:
        """Return where the text of the record that a header begins starts."""
        found = self.head.match(data, header.begin) or BANNER.match(data, header.begin)
        return header.begin if found is None else found.end()

    def last_end(self, data: bytes) -> int:
        """Return where the last text of the file ends."""
        return len(data) - len(self._stop) if data.endswith(self._stop) else len(data)


class Grammar(Headers, Protocol):
    """A log's headers, and its records."""

    def begin(self, head: bytes) -> None:
        """Take in the first bytes of the file."""
        ...

    def loose(self, data: bytes, at: int, *, eof: bool) -> int | None:
        """Return where a record or a banner may begin behind bytes that are none; None when none does."""
        ...

    def text_of(self, data: bytes, at: int) -> int | None:
        """Take in the header at an index and return where its text starts; None when none is there."""
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
