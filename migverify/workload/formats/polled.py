"""What ``workload poll`` writes: one JSON object a line, an event of performance_schema or a count of lost ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from migverify.workload.formats.audit import prepared
from migverify.workload.formats.statements import lacks
from migverify.workload.lines import (
    LONGEST,
    TOO_LONG,
    json_of,
    lines,
    make_origin,
    make_record,
    name_of,
    noise,
    rejected,
    seal,
)
from migverify.workload.model import Command, Piece
from migverify.workload.quotes import outside

MARK = "migverify_poll"
TRUNCATED = "text cut by performance_schema_max_sql_text_length"
NO_TEXT = "text not in performance_schema"
NOT_POLLED = "line that is no polled event"
LOST = "events lost between two polls"

_COMMANDS = {
    "statement/com/Quit": Command.QUIT, "statement/com/Init DB": Command.INIT_DB,
    "statement/com/Change user": Command.CHANGE_USER, "statement/com/Reset Connection": Command.RESET_CONNECTION,
    "statement/com/Close stmt": Command.CLOSE_STATEMENT, "statement/com/Prepare": Command.PREPARE,
    "statement/com/Execute": Command.EXECUTE, "statement/com/Query": Command.QUERY,
}  # fmt: skip


class Polled:
    """Reads the file of ``workload poll``."""

    name = "polled"

    def sniff(self, head: bytes) -> float:
        """Tell by the mark of the first line."""
        return 0.99 if head.startswith(b'{"' + MARK.encode() + b'"') else 0.0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield the lines that begin in the range; a line is an event."""
        for offset, line, content in lines(path, start, end, LONGEST):
            if isinstance(content, int):
                yield rejected(path, offset, line, content, TOO_LONG)
            else:
                yield _piece(path, offset, line, content)


def _piece(path: str, offset: int, line: int, content: bytes) -> Piece:
    length = len(content)
    try:
        told = json_of(content)
    except ValueError:
        return rejected(path, offset, line, length, NOT_POLLED)
    if not isinstance(told, dict):
        return rejected(path, offset, line, length, NOT_POLLED)
    if MARK in told:
        return noise(path, offset, line, length, "beginning of a poll")
    if "lost" in told:
        return rejected(path, offset, line, length, LOST)
    if not {"event", "name", "start", "end"} <= told.keys():
        return rejected(path, offset, line, length, NOT_POLLED)
    return _record(path, offset, line, length, told)


def _record(path: str, offset: int, line: int, length: int, told: dict[str, Any]) -> Piece:
    command = _COMMANDS.get(told["name"])
    if command is None:
        command = Command.QUERY if told["name"].startswith("statement/sql/") else Command.OTHER
    sql = (told.get("sql") or "").encode("utf-8", "surrogateescape")
    record = make_record(
        make_origin(path, offset, line, length), command, sql, told.get("session"), name_of(told.get("user")),
        name_of(told.get("host")), name_of(told.get("database")), told["start"], told["end"], told["event"], "",
    )  # fmt: skip
    record.duration = told["end"] - told["start"]
    for name in ("errno", "rows_sent", "rows_affected"):
        setattr(record, name, told.get(name))
    record.details = {
        name: name_of(str(told[name])) or "" for name in ("warnings", "digest", "thread") if told.get(name) is not None
    }  # fmt: skip
    if command is Command.OTHER:
        record.details["command"] = (name_of(told["name"]) or "").rpartition("/")[2].lower()
    elif command in (Command.QUERY, Command.EXECUTE, Command.PREPARE):
        if not sql:
            record.partial = NO_TEXT
        elif told.get("cut"):
            record.partial = TRUNCATED
        else:
            record.partial = lacks(sql)
            if command is not Command.PREPARE and not record.partial and b"?" in outside(sql):
                prepared(record)
    return seal(record)
