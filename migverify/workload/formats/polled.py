"""What ``workload capture --poll`` writes: one JSON object a line, an event or a count of lost ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from migverify.workload.formats.audit import prepared
from migverify.workload.formats.statements import COMMANDS, lacks
from migverify.workload.lines import (
    TOO_LONG,
    json_of,
    lines,
    name_of,
    noise,
    rejected,
)
from migverify.workload.model import Command, Origin, Piece, Record, text_of
from migverify.workload.quotes import has_parameters

MARK = "migverify_poll"
TRUNCATED = "text cut by performance_schema_max_sql_text_length"
NO_TEXT = "text not in performance_schema"
NOT_POLLED = "line that is no polled event"
LOST = "events lost between two polls"

_COMMANDS = {f"statement/com/{text_of(name)}": one for name, one in COMMANDS.items() if one is not Command.CONNECT}


class Polled:
    """Reads the file of ``workload capture --poll``."""

    name = "polled"

    def sniff(self, head: bytes) -> float:
        """Tell by the mark of the first line."""
        return 0.99 if head.startswith(b'{"' + MARK.encode() + b'"') else 0.0

    def read(self, path: str) -> Iterator[Piece]:
        """Yield the lines; a line is an event."""
        for offset, line, content in lines(path):
            if isinstance(content, int):
                yield rejected(path, offset, line, content, TOO_LONG)
            else:
                yield _piece(path, offset, line, content)


def _piece(path: str, offset: int, line: int, content: bytes) -> Piece:
    length = len(content)
    try:
        event = json_of(content)
    except ValueError:
        return rejected(path, offset, line, length, NOT_POLLED)
    if not isinstance(event, dict):
        return rejected(path, offset, line, length, NOT_POLLED)
    if MARK in event:
        return noise(path, offset, line, length, "beginning of a poll")
    if "lost" in event:
        return rejected(path, offset, line, length, LOST)
    if not {"event", "name", "start", "end"} <= event.keys():
        return rejected(path, offset, line, length, NOT_POLLED)
    return _record(path, offset, line, length, event)


def _record(path: str, offset: int, line: int, length: int, event: dict[str, Any]) -> Piece:
    command = _COMMANDS.get(event["name"])
    if command is None:
        command = Command.QUERY if event["name"].startswith("statement/sql/") else Command.OTHER
    sql = (event.get("sql") or "").encode("utf-8", "surrogateescape")
    record = Record(
        Origin(path, offset, line, length), command, sql, event.get("session"), name_of(event.get("user")),
        name_of(event.get("host")), name_of(event.get("database")), event["start"], event["end"],
        duration=event["end"] - event["start"], errno=event.get("errno"), rows_sent=event.get("rows_sent"),
        rows_affected=event.get("rows_affected"), number=event["event"],
    )  # fmt: skip
    record.details = {
        name: name_of(str(event[name])) or ""
        for name in ("warnings", "digest", "thread") if event.get(name) is not None
    }  # fmt: skip
    if command is Command.OTHER:
        record.details["command"] = (name_of(event["name"]) or "").rpartition("/")[2].lower()
    elif command in (Command.QUERY, Command.EXECUTE, Command.PREPARE):
        if not sql:
            record.partial = NO_TEXT
        elif event.get("cut"):
            record.partial = TRUNCATED
        else:
            record.partial = lacks(sql)
            if command is not Command.PREPARE and not record.partial and has_parameters(sql):
                prepared(record)
    return record
