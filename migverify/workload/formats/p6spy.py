"""Logs of p6spy, which a Java service writes about its JDBC driver.

::

    1767323045678|3|statement|connection 8|jdbc:mysql://db/shop|select ? from t|select 1 from t       SingleLineFormat
    #1767323045678 | took 3ms | statement | connection 8| url jdbc:mysql://db/shop                    MultiLineFormat
    select ? from t
    select 1 from t;

The URL is left out before p6spy 3.7. The time is Unix milliseconds, or ``dateformat``; it is that of the end. A record
has the statement as prepared and with its values. p6spy does not escape a backslash in a value: such a text is partial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from migverify.workload.lines import LONGEST, TOO_LONG, lines, make_origin, make_record, noise, rejected, seal
from migverify.workload.model import Command, Piece

NOT_P6SPY = "line that is no record of p6spy"
BAD_TIME = "time that is none"
UNCLEAR_SPLIT = "cannot tell the prepared text from the text with values: both may hold a |"
UNESCAPED = "a value with a backslash, which p6spy does not escape"
BATCH = "statement of a batch: whether it was executed is not logged"

_SINGLE = re.compile(
    rb"([^|\n]{1,64})\|(\d{1,12})\|([a-z]{1,16})\|(?:connection)? ?(\d{1,18})\|(?:(jdbc:[^|\n]*)\|)?(.*)", re.DOTALL
)
_HEAD = re.compile(
    rb"#([^|\n]{1,64}?) ?\| took (\d{1,12})ms \| ([a-z]{1,16}) \| connection ?(\d{1,18}) ?(?:\| url ([^\n]*))?\r?\n"
)
_STATEMENTS = frozenset({b"statement", b"batch"})
_ENDS = frozenset({b"commit", b"rollback"})
_MOST_SPLITS = 64


class P6spy:
    """Reads logs of p6spy; ``zone`` is that of ``dateformat``, where it names none."""

    name = "p6spy"

    def __init__(self, zone: tzinfo = UTC, longest: int = LONGEST) -> None:
        self.zone, self.longest = zone, longest

    def sniff(self, head: bytes) -> float:
        """Tell by a record at the beginning."""
        return 0.95 if _HEAD.match(head) or _SINGLE.match(head) else 0.0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield the records that begin in the range."""
        for piece in self._pieces(path):
            if end is not None and piece.origin.offset >= end:
                return
            if piece.origin.offset >= start:
                yield piece

    def _pieces(self, path: str) -> Iterator[Piece]:
        held: list[bytes] = []
        begin = first = size = 0
        for offset, number, line in lines(path, 0, None, self.longest):
            is_head = not isinstance(line, int) and (line.startswith(b"#") or _SINGLE.match(line) is not None)
            if held and (is_head or isinstance(line, int) or size > self.longest):
                yield self._multi(path, begin, first, b"".join(held))
                held = []
            if isinstance(line, int):
                yield rejected(path, offset, number, line, TOO_LONG)
            elif held:
                held.append(line)
                size += len(line)
            elif _HEAD.match(line):
                held, begin, first, size = [line], offset, number, len(line)
            else:
                yield self._single(path, offset, number, line)
        if held:
            yield self._multi(path, begin, first, b"".join(held))

    def _single(self, path: str, offset: int, line: int, data: bytes) -> Piece:
        found = _SINGLE.match(data)
        if found is None:
            if not data.strip():
                return noise(path, offset, line, len(data), "empty line")
            return rejected(path, offset, line, len(data), NOT_P6SPY)
        prepared, sql, partial = split(found[6].rstrip(b"\r\n"), b"|")
        return self._record(path, offset, line, data, found, prepared, sql, partial)

    def _multi(self, path: str, offset: int, line: int, data: bytes) -> Piece:
        found = _HEAD.match(data)
        if found is None:
            return rejected(path, offset, line, len(data), NOT_P6SPY)
        text = data[found.end() :].rstrip(b"\r\n").removesuffix(b";")
        prepared, sql, partial = split(text.replace(b"\r\n", b"\n"), b"\n")
        return self._record(path, offset, line, data, found, prepared, sql, partial)

    def _record(
        self, path: str, offset: int, line: int, data: bytes, found: re.Match[bytes], prepared: bytes, sql: bytes,
        partial: str,
    ) -> Piece:  # fmt: skip
        end = self._time(found[1].strip())
        if end is None:
            return rejected(path, offset, line, len(data), BAD_TIME)
        kind, duration = found[3], int(found[2]) * 1000
        command = Command.QUERY if kind in _STATEMENTS or kind in _ENDS else Command.OTHER
        if kind in _ENDS:
            sql, prepared, partial = kind, b"", ""
        elif command is Command.OTHER:
            partial = ""
        elif kind == b"batch":
            partial = BATCH
        elif not partial and b"\\" in sql and prepared != sql:
            partial = UNESCAPED
        record = make_record(
            make_origin(path, offset, line, len(data)), command, sql, int(found[4]), None, None, None,
            end - duration, end, 0, partial,
        )  # fmt: skip
        record.duration = duration
        details = {"command": kind.decode()} if command is Command.OTHER else {}
        if prepared not in (b"", sql):
            details["prepared"] = prepared.decode("utf-8", "backslashreplace")
        record.details = details
        return seal(record)

    def _time(self, raw: bytes) -> int | None:
        if raw.isdigit() and len(raw) <= 15:
            return int(raw) * 1000
        try:
            moment = datetime.fromisoformat(raw.decode("ascii"))
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=self.zone)
            return round(moment.timestamp() * 1_000_000)
        except (ValueError, OverflowError, UnicodeDecodeError):
            return None


def split(text: bytes, separator: bytes) -> tuple[bytes, bytes, str]:
    """Return the prepared text, the text with values, and why they cannot be told apart."""
    half = len(text) // 2
    if text[:half] == text[half + 1 :] and text[half : half + 1] == separator:
        return text[:half], text[half + 1 :], ""
    parts = text.split(separator)
    if len(parts) == 1:
        return b"", text, ""
    fits = []
    for at in range(1, min(len(parts), _MOST_SPLITS)):
        prepared, sql = separator.join(parts[:at]), separator.join(parts[at:])
        if (not prepared and at == 1) or _has_values(prepared, sql):
            fits.append((prepared, sql))
    if len(fits) == 1 and len(parts) <= _MOST_SPLITS:
        return *fits[0], ""
    return b"", fits[0][1] if fits else text, UNCLEAR_SPLIT


def _has_values(prepared: bytes, sql: bytes) -> bool:
    """Tell whether a text may be a prepared one with values in place of its ``?``."""
    first, *others = prepared.split(b"?")
    if not others or not sql.startswith(first) or not sql.endswith(others[-1]):
        return False
    at = len(first)
    for part in others:
        at = sql.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
