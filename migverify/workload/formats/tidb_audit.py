"""TiDB's audit log: of the plugin and of the extension, one bracketed line for each event.

The plugin tells the end of a statement and its cost; statements appear once as COMPLETED (and once as STARTING, which
is noise). The extension tells one time, and its values of prepared statements have no types.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from migverify.workload.formats.go_text import unescape, unquote
from migverify.workload.formats.tiproxy import placeholders
from migverify.workload.lines import open_log
from migverify.workload.model import Command, Noise, Origin, Parameter, Piece, Record, Rejected

NOT_AUDIT = "line that is no audit event"
CUT_LINE = "line cut short"
NO_CONNECTION = "event without a connection id"
UNTYPED = "values of the prepared statement without types"
NO_VALUES = "values of the prepared statement not logged"

_LONGEST_LINE = 256 << 20
_FIELD = re.compile(rb'\[([A-Za-z_]+)=((?:"(?:[^"\\]|\\.)*+"|[^\]"])*+)\]')
_START = re.compile(rb"\[(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+ [+-]\d\d:\d\d)\]")
_WHOLE = re.compile(rb'(?:\[(?:"(?:[^"\\]|\\.)*+"|[^\]"])*+\]\s*+)++$')
_ITEM = re.compile(rb'"((?:[^"\\]|\\.)*+)"|([^,\[\]]+)')
_KINDS = {
    b"KindInt64": "integer", b"KindUint64": "unsigned", b"KindFloat32": "float", b"KindFloat64": "double",
    b"KindMysqlDecimal": "decimal", b"KindString": "text", b"KindBytes": "bytes", b"KindBinaryLiteral": "bytes",
    b"KindMysqlTime": "datetime", b"KindMysqlDuration": "time", b"KindMysqlJSON": "text", b"KindMysqlBit": "bytes",
    b"KindMysqlSet": "text", b"KindMysqlEnum": "text",
}  # fmt: skip
_COMMANDS = {
    "query": Command.QUERY, "execute": Command.EXECUTE, "prepare": Command.PREPARE, "init db": Command.INIT_DB,
    "close stmt": Command.CLOSE_STATEMENT, "quit": Command.QUIT, "change user": Command.CHANGE_USER,
    "reset connection": Command.RESET_CONNECTION,
}  # fmt: skip


class TidbAudit:
    """Reads audit logs of TiDB, gzip or not."""

    name = "tidb-audit"

    def sniff(self, head: bytes) -> float:
        """Tell by the brackets of the first line."""
        line = head.partition(b"\n")[0]
        known = b"[CONNECTION_ID=" in line and (b"[EVENT_CLASS=" in line or b"[EVENT=" in line)
        return 0.99 if known and _START.match(line) else 0.0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield the lines that begin in the range; a line is an event."""
        with open_log(path) as file:
            offset, number = 0, 0
            if start:
                file.seek(start - 1)
                offset = start - 1 + len(file.readline(_LONGEST_LINE))
            while (end is None or offset < end) and (line := file.readline(_LONGEST_LINE)):
                number += 1
                yield _piece(Origin(path, offset, number, len(line)), line)
                offset += len(line)


def _piece(origin: Origin, line: bytes) -> Piece:
    begun = _START.match(line)
    if begun is None:
        return Noise(origin, "empty line") if not line.strip() else Rejected(origin, NOT_AUDIT)
    if not _WHOLE.match(line):
        return Rejected(origin, CUT_LINE)
    told = {match[1].decode(): match[2] for match in _FIELD.finditer(line)}
    if not told.get("CONNECTION_ID", b"").isdigit():
        return Rejected(origin, NO_CONNECTION)
    try:
        return _plugin(origin, told) if "EVENT_CLASS" in told else _extension(origin, told, begun[1])
    except (ValueError, OverflowError):
        return Rejected(origin, NOT_AUDIT)


def _plugin(origin: Origin, told: dict[str, bytes]) -> Piece:
    kind = told["EVENT_CLASS"]
    event = told.get("EVENT")
    if kind not in (b"GENERAL", b"TABLE_ACCESS", b"CONNECTION"):
        return Noise(origin, "event of another class")
    if kind != b"CONNECTION" and event is not None and event != b"COMPLETED":
        return Noise(origin, "event before the end")
    if kind == b"TABLE_ACCESS" and event is None:  # older plugins log the statement again as GENERAL
        return Noise(origin, "event of a table")
    end = _time(told.get("TIMESTAMP", b""))
    cost = round(float(told.get("COST_TIME") or 0))
    status = told.get("STATUS_CODE", b"")
    errno = int(status) if status.isdigit() else None
    if kind == b"CONNECTION":
        sort = told.get("EVENT_SUBCLASS", b"")
        command = {b"Connected": Command.CONNECT, b"Disconnect": Command.QUIT, b"ChangeUser": Command.CHANGE_USER,
                   b"Reject": Command.FAILED_CONNECT}.get(sort, Command.OTHER)  # fmt: skip
        database: str | None = _words(told.get("DATABASES", b"")) if command is not Command.QUIT else None
        return _record(origin, told, command, b"", end, 0, errno, database)
    command = _COMMANDS.get(_words(told.get("COMMAND", b"")).lower(), Command.OTHER)
    text = unquote(told.get("SQL_TEXT", b""))
    database = _words(told["CURRENT_DB"]) if "CURRENT_DB" in told else None
    if command is Command.INIT_DB:
        text = text.partition(b" ")[2].strip(b" `;") if text[:4].lower() == b"use " else text
        return _record(origin, told, command, text, end, cost, errno, None)
    return _record(origin, told, command, text, end, cost, errno, database)


def _extension(origin: Origin, told: dict[str, bytes], begun: bytes) -> Piece:
    events = _words(told.get("EVENT", b"")).strip("[]").split(",")
    end = _time(begun)
    failed = told.get("STATUS_CODE") == b"0"
    errno = None if failed else 0
    if "CONNECTION" in events:
        command = Command.CONNECT if "CONNECT" in events else Command.QUIT if "DISCONNECT" in events else Command.OTHER
        command = Command.FAILED_CONNECT if failed and command is Command.CONNECT else command
        database = _words(told.get("CURRENT_DB", b"")) if command is Command.CONNECT else None
        return _record(origin, told, command, b"", end, None, errno, database)
    if "QUERY" not in events:
        return Noise(origin, "event of another class")
    command = Command.EXECUTE if "EXECUTE" in events else Command.QUERY
    database = _words(told["CURRENT_DB"]) if "CURRENT_DB" in told else None
    return _record(origin, told, command, unquote(told.get("SQL_TEXT", b"")), end, None, errno, database)


def _record(
    origin: Origin,
    told: dict[str, bytes],
    command: Command,
    sql: bytes,
    end: int,
    cost: int | None,
    errno: int | None,
    database: str | None,
) -> Record:
    parameters, partial = _values(told, sql) if command is Command.EXECUTE else (None, "")
    affected = told.get("AFFECTED_ROWS") or told.get("ROWS") or b""
    number = told.get("PREPARED_STMT_ID", b"")
    host = _words(told.get("CLIENT_IP", b"")) or None
    server = f"{_words(told.get('HOST_IP', b''))}:{_words(told.get('HOST_PORT', b''))}".strip(":")
    return Record(
        origin, command, sql, session=int(told["CONNECTION_ID"]), user=_words(told.get("USER", b"")) or None,
        host=host, database=database, start=None if cost is None else end - cost, end=end, duration=cost, errno=errno,
        rows_affected=int(affected) if affected.isdigit() else None,
        statement_id=int(number) if number.isdigit() else None, parameters=parameters, partial=partial,
        server=server, details={"failed": "1"} if errno is None else {},
    )  # fmt: skip


def _values(told: dict[str, bytes], sql: bytes) -> tuple[tuple[Parameter, ...] | None, str]:
    wanted = placeholders(sql)
    if "EXECUTE_PARAMS" not in told:
        return ((), "") if not wanted else (None, NO_VALUES)
    text = unquote(told["EXECUTE_PARAMS"]).strip()
    if text[:1] == b"[" and text[-1:] == b"]":
        text = text[1:-1]
    items = [match[1] if match[1] is not None else match[2] for match in _ITEM.finditer(text)]
    if len(items) != wanted:
        return None, NO_VALUES
    if all(item.partition(b" ")[0] in (*_KINDS, b"KindNull") for item in items):
        return tuple(_value(unescape(item)) for item in items), ""
    return tuple(Parameter("text", item) for item in items), UNTYPED


def _value(item: bytes) -> Parameter:
    kind, _, value = item.partition(b" ")
    if kind == b"KindNull":
        return Parameter("null", None)
    name = _KINDS[kind]
    if kind in (b"KindString", b"KindBytes"):
        value = unescape(value)
    if name == "datetime" and len(value) == 10:
        name = "date"
    return Parameter(name, value)


def _words(raw: bytes) -> str:
    """A field as text; the brackets of a list of one are not part of it."""
    text = unquote(raw).decode("utf-8", "backslashreplace")
    return text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text


def _time(text: bytes) -> int:
    """Return ``2025/09/06 17:03:53.720 +08:00`` as Unix microseconds."""
    day, clock, zone = text.decode("ascii").split(" ")
    whole, _, part = clock.partition(".")
    moment = datetime.fromisoformat(f"{day.replace('/', '-')}T{whole}{zone}")
    return int(moment.timestamp()) * 1_000_000 + int(part[:6].ljust(6, "0") or 0)
