"""Database Activity Streams of Aurora MySQL, decrypted: JSON in any wrapping.

The events may stand one on a line, in arrays, in records with a ``databaseActivityEventList``, indented, or one
behind the other without a break as delivery streams write them. So the file is read as a run of flat objects; what
is around them is the structure of the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from migverify.sql.lexer import first_word
from migverify.workload.formats.audit import BAD_TIME, LOGINS, prepared, unescape
from migverify.workload.formats.statements import lacks
from migverify.workload.lines import (
    LONGEST,
    TOO_LONG,
    LogClock,
    LogWindow,
    Texts,
    json_of,
    name_of,
    noise,
    open_log,
    rejected,
)
from migverify.workload.model import Command, Origin, Piece, Record
from migverify.workload.quotes import CUT_BY_STREAM, closed, has_parameters

ENCRYPTED = "encrypted activity events"
NO_EVENT = "object that is no activity event"
UNKNOWN_SHAPE = "activity event of an unknown shape"
NOT_JSON = "bytes that are no JSON"
CUT_EVENT = "event cut by the end of the file"

_STRING = rb'"(?:[^"\\\n]++|\\[^\n])*+"'
_AROUND = re.compile(rb'(?:[^{"]++|' + _STRING + rb")*+")
_OBJECT = re.compile(rb'\{(?:[^{}"]++|' + _STRING + rb")*+\}")
_OPEN = re.compile(rb'\{(?:[^{}"]++|' + _STRING + rb')*+(?:"(?:[^"\\\n]++|\\[^\n])*+\\?)?\Z')
_HEAD = re.compile(rb'"(?:databaseActivityEventList|databaseActivityEvents|dbProtocol|commandText)"\s*:')
_OF_EVENTS = re.compile(rb'"(?:commandText|logTime|sessionId|exitCode|startTime|serverType|dbProtocol|class)"\s*:')
_READS = frozenset({"select", "show", "with", "table", "values", "desc", "describe", "explain", "check", "analyze"})
_QUOTE = re.compile(rb"(\\*)'")
_SYNTAX = 1064


class ActivityStream:
    """Reads activity events.

    Parameters
    ----------
    limit
        Bytes of the longest event.
    """

    name = "das"

    def __init__(self, limit: int = LONGEST) -> None:
        self._limit = limit

    def sniff(self, head: bytes) -> float:
        """Tell by the names of fields."""
        if _HEAD.search(head) is None:
            return 0.0
        return 0.95 if head.lstrip()[:1] in (b"{", b"[") else 0.6

    def read(self, path: str) -> Iterator[Piece]:
        """Yield pieces."""
        return _pieces(path, self._limit)


def _pieces(path: str, limit: int) -> Iterator[Piece]:
    events = _Events(path)
    with open_log(path) as file:
        window = LogWindow(path, file)
        window.more(0)
        at, line = 0, 1
        while at < len(window.data) or not window.eof:
            found = _next(events, window, at, line, limit)
            if found is None:
                window.more(at)
                at = 0
                continue
            piece, length = found
            yield piece
            line += window.data.count(b"\n", at, at + length)
            at += length


def _next(events: _Events, window: LogWindow, at: int, line: int, limit: int) -> tuple[Piece, int] | None:
    """Return the piece at an index and its length; None when bytes behind the window decide."""
    data, offset, path = window.data, window.base + at, events.path
    over = window.eof or len(data) - at > limit
    end = at
    while True:
        around = _AROUND.match(data, end)
        end = end if around is None else around.end()
        if end == len(data):
            return (_structure(path, data[at:end], offset, line), end - at) if over else None
        if data[end : end + 1] == b'"':  # a text that does not close in its line
            stop = data.find(b"\n", end) + 1
            if not stop and not over:
                return None
            piece: Piece = rejected(path, offset, line, (stop or len(data)) - at, NOT_JSON)
            break
        whole = _OBJECT.match(data, end)
        if whole is not None:
            piece = events.piece(whole[0], offset, line)
            break
        if _OPEN.match(data, end):
            if not over:
                return None
            piece = rejected(path, offset, line, len(data) - at, CUT_EVENT if window.eof else TOO_LONG)
            break
        end += 1  # an object around others
    if end > at:
        return _structure(path, data[at:end], offset, line), end - at
    return piece, piece.origin.length


def _structure(path: str, text: bytes, offset: int, line: int) -> Piece:
    if _OF_EVENTS.search(text):
        return rejected(path, offset, line, len(text), UNKNOWN_SHAPE)
    return noise(path, offset, line, len(text), "structure of the document")


class _Events:
    """Makes pieces of flat objects."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._clock = LogClock()
        self._texts = Texts()

    def piece(self, content: bytes, offset: int, line: int) -> Piece:
        length = len(content)
        try:
            event = json_of(content)
        except ValueError:
            return rejected(self.path, offset, line, length, NOT_JSON)
        if event.get("type") == "heartbeat":
            return noise(self.path, offset, line, length, "heartbeat")
        if isinstance(event.get("databaseActivityEvents"), str):
            return rejected(self.path, offset, line, length, ENCRYPTED)
        if not isinstance(event.get("command"), str):
            return rejected(self.path, offset, line, length, NO_EVENT)
        if event.get("class") == "AUX":
            return noise(self.path, offset, line, length, "auxiliary event")
        return self._record(event, offset, line, length)

    def _record(self, event: dict[str, Any], offset: int, line: int, length: int) -> Piece:
        start = self._time(event.get("startTime"))
        end = self._time(event.get("endTime"))
        logged = self._time(event.get("logTime"))
        if start is None and end is None and logged is None:
            return rejected(self.path, offset, line, length, BAD_TIME)
        record = Record(
            Origin(self.path, offset, line, length), Command.OTHER, b"", _number(event.get("sessionId")),
            name_of(event.get("dbUserName")), name_of(event.get("remoteHost")), name_of(event.get("databaseName")),
            start, end if end is not None else logged, number=_number(event.get("statementId")) or 0,
            server=name_of(event.get("serverHost")) or "",
        )  # fmt: skip
        if start is not None and end is not None:
            record.duration = end - start
        elif end is None:
            record.details = {"time": "when the event was written"}
        record.errno = _number(event.get("exitCode"))
        message = name_of(event.get("errorMessage"))
        if message:
            record.details = {**record.details, "error": message}
        command = (name_of(event["command"]) or "").upper()
        if command == "QUERY":
            self._query(record, event)
        elif (login := LOGINS.get(command.encode())) is not None:
            record.command = login
            if record.command is not Command.CONNECT and record.command is not Command.CHANGE_USER:
                record.database = None
        else:
            record.details = {**record.details, "command": command.lower()}
        return record

    def _query(self, record: Record, event: dict[str, Any]) -> None:
        record.command = Command.QUERY
        text = event.get("commandText")
        if not isinstance(text, str) or not text:
            record.partial = "text not in the event"
            return
        record.sql = sql = plain(text.encode("utf-8", "surrogateescape"))
        record.partial = lacks(sql)
        if record.errno != _SYNTAX and not closed(sql, 0, len(sql)):
            record.partial = record.partial or CUT_BY_STREAM
        rows = _number(event.get("rowCount"))
        if first_word(sql) in _READS:
            record.rows_sent = rows
        else:
            record.rows_affected = rows
        if not record.partial and has_parameters(sql):
            prepared(record)

    def _time(self, value: object) -> int | None:
        return self._clock.iso(value.encode("utf-8", "replace")) if isinstance(value, str) else None


def plain(text: bytes) -> bytes:
    """Return a ``commandText`` as it was sent.

    The stream escapes it once more than JSON does. A text with a quote that is not escaped was not, then; nor was one
    that makes no sense without its backslashes.
    """
    if b"\\" not in text:
        return text
    if any(len(found[1]) % 2 == 0 for found in _QUOTE.finditer(text)):
        return text
    sql, known = unescape(text)
    if not known or (not closed(sql, 0, len(sql)) and closed(text, 0, len(text))):
        return text
    return sql


def _number(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else None
