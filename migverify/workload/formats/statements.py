"""Logs whose statements end at the next header: what their readers have in common, and what texts lack."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Protocol

from migverify.workload.model import Piece
from migverify.workload.quotes import Headers, literals

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
