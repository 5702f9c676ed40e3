"""Traffic files of TiProxy in its native form: a few header lines, then the payload of one command.

::

    # Time: 2024-08-28T18:51:20.477067+08:00
    # Conn_ID: 100
    # Cmd_type: Execute          (left out for a query)
    # Success: false             (left out when it succeeded)
    # Captured_ps_id: 4          (not in older files)
    # Prepared_stmt: "..."       (not in older files)
    # Payload_len: 8
    select 1
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import IO

from migverify.workload.formats import protocol
from migverify.workload.formats.conversation import PREPARED_BEFORE, VALUES_UNKNOWN
from migverify.workload.formats.go_text import unquote
from migverify.workload.formats.protocol import CutError, Prepared
from migverify.workload.lines import open_log
from migverify.workload.model import Command, Noise, Origin, Parameter, Piece, Record, Rejected
from migverify.workload.tokens import tokens

BAD_HEADER = "header line that TiProxy does not write"
CUT_COMMAND = "command cut short"

_LONGEST_LINE = 64 << 20
_LONGEST_PAYLOAD = 1 << 31
_KEY = re.compile(rb"# ([A-Za-z_]+): ?(.*)", re.DOTALL)
_HEAD = re.compile(rb"# Time: \d{4}-\d\d-\d\dT[^\n]+\n# Conn_ID: \d+\n")
_TYPES = {
    "Quit": protocol.COM_QUIT, "Init DB": protocol.COM_INIT_DB, "Query": protocol.COM_QUERY,
    "Prepare": protocol.COM_PREPARE, "Execute": protocol.COM_EXECUTE, "Close stmt": protocol.COM_CLOSE,
    "Long Data": protocol.COM_LONG_DATA, "Change user": protocol.COM_CHANGE_USER,
    "Reset connect": protocol.COM_RESET_CONNECTION, "Reset stmt": protocol.COM_RESET_STATEMENT,
    "Reset Connection": protocol.COM_RESET_CONNECTION, "ResetConnect": protocol.COM_RESET_CONNECTION,
}  # fmt: skip


class TiProxy:
    """Reads native traffic files, gzip or not; the ``meta`` file beside them is noise."""

    name = "tiproxy"

    def sniff(self, head: bytes) -> float:
        """Tell by the first two header lines."""
        return 0.98 if _HEAD.match(head) else 0.0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield pieces; prepared statements hold beyond a range, so every range reads the file from its beginning."""
        with open_log(path) as file:
            for piece in _read(path, file):
                if end is not None and piece.origin.offset >= end:
                    return
                if piece.origin.offset >= start:
                    yield piece


def _read(path: str, file: IO[bytes]) -> Iterator[Piece]:
    prepared: dict[tuple[int, int], Prepared] = {}
    attributes: dict[int, bool] = {}
    offset, line_number, number = 0, 1, 0
    head: dict[str, bytes] = {}
    begun, begun_line = 0, 1
    while line := file.readline(_LONGEST_LINE):
        here, here_line = offset, line_number
        offset += len(line)
        line_number += line.count(b"\n")
        match = _KEY.match(line.rstrip(b"\r\n"))
        key = match[1].decode() if match else ""
        if not match or (key == "Time" and head):
            if head:  # a header that ends without its payload
                yield Rejected(Origin(path, begun, begun_line, here - begun), CUT_COMMAND)
                head = {}
            if not match:
                told = Origin(path, here, here_line, len(line))
                yield Noise(told, "meta data") if line.lstrip()[:1] == b"{" else Rejected(told, BAD_HEADER)
                continue
        if not head:
            begun, begun_line = here, here_line
        head[key] = match[2] if match else b""
        if key != "Payload_len":
            continue
        size = int(match[2]) if match and match[2].isdigit() else -1
        if not 0 <= size < _LONGEST_PAYLOAD:
            yield Rejected(Origin(path, begun, begun_line, offset - begun), BAD_HEADER)
            head = {}
            continue
        payload = file.read(size)
        tail = file.readline(1) if len(payload) == size else b""
        offset += len(payload) + len(tail)
        line_number += payload.count(b"\n") + tail.count(b"\n")
        origin = Origin(path, begun, begun_line, offset - begun)
        number += 1
        if len(payload) < size or tail not in (b"\n", b""):
            yield Rejected(origin, CUT_COMMAND)
        else:
            yield _piece(origin, head, payload, number, prepared, attributes)
        head = {}
    if head:
        yield Rejected(Origin(path, begun, begun_line, offset - begun), CUT_COMMAND)


def _piece(
    origin: Origin,
    head: dict[str, bytes],
    payload: bytes,
    number: int,
    prepared: dict[tuple[int, int], Prepared],
    attributes: dict[int, bool],
) -> Piece:
    """Return the record of a command. ``attributes``: which connections are known to send query attributes, or not."""
    told = {key: value.decode("utf-8", "backslashreplace") for key, value in head.items()}
    kind = told.get("Cmd_type", "Query")
    code = _TYPES.get(kind)
    try:
        moment = _time(told["Time"])
        session = int(told["Conn_ID"])
        text = unquote(head.get("Prepared_stmt", b""))
        ps_id = int(told["Captured_ps_id"]) if "Captured_ps_id" in told else None
    except (KeyError, ValueError):
        return Rejected(origin, BAD_HEADER)
    failed = {"failed": "1"} if told.get("Success") == "false" else {}
    command = Command.OTHER if code is None else protocol.COMMANDS.get(code, Command.OTHER)
    body = bytes([code or 0]) + payload
    sql, partial = b"", ""
    parameters: tuple[Parameter, ...] | None = None
    user: str | None = None
    database: str | None = None
    try:
        match code:
            case protocol.COM_QUERY:
                sql, attributes[session] = protocol.query_text(body, attributes.get(session))
            case protocol.COM_INIT_DB:
                sql = payload
            case protocol.COM_PREPARE:
                sql = payload
                if ps_id is not None:
                    prepared[session, ps_id] = Prepared(payload, placeholders(payload))
            case protocol.COM_LONG_DATA:
                reader = protocol.Reader(payload)
                statement = prepared.get((session, reader.integer(4)))
                place = reader.integer(2)
                if statement is not None:
                    statement.long_data[place] = statement.long_data.get(place, b"") + payload[reader.at :]
                return Noise(origin, "packets of a command")
            case protocol.COM_EXECUTE:
                ps_id = protocol.Reader(payload).integer(4) if ps_id is None else ps_id
                if text and (session, ps_id) not in prepared:
                    prepared[session, ps_id] = Prepared(text, placeholders(text))
                sql, parameters, partial = _execute(prepared.get((session, ps_id)), body, session, attributes)
            case protocol.COM_RESET_STATEMENT:
                statement = prepared.get((session, protocol.Reader(payload).integer(4) if ps_id is None else ps_id))
                if statement is not None:
                    statement.long_data = {}
                failed = {**failed, "command": kind.lower()}
            case protocol.COM_CLOSE:
                ps_id = protocol.Reader(payload).integer(4)
                prepared.pop((session, ps_id), None)
            case protocol.COM_CHANGE_USER:
                login = protocol.change_user(body, None)
                user, database = login.user, login.database
            case _:
                failed = {**failed, "command": kind.lower()}
    except CutError:
        return Rejected(origin, CUT_COMMAND)
    return Record(
        origin, command, sql, session=session, user=user, database=database, start=moment, number=number,
        statement_id=ps_id, parameters=parameters, partial=partial, details=failed,
        errno=None if failed.get("failed") else 0,
    )  # fmt: skip


def _execute(
    statement: Prepared | None, body: bytes, session: int, attributes: dict[int, bool]
) -> tuple[bytes, tuple[Parameter, ...] | None, str]:
    if statement is None:
        return b"", None, PREPARED_BEFORE
    try:
        found = statement.execute(body, attributes.get(session))
    except CutError:
        return statement.sql, None, VALUES_UNKNOWN
    if found.attributes is not None:
        attributes[session] = found.attributes
    return statement.sql, found.parameters, ""


def placeholders(sql: bytes) -> int:
    """How many parameters a statement has: its question marks outside of texts."""
    return sum(token.raw == b"?" for token in tokens(sql))


_SECOND = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|[+-]\d\d:\d\d)$")


def _time(text: str) -> int:
    """Return a time in RFC 3339 with up to nine digits as Unix microseconds."""
    match = _SECOND.match(text)
    if match is None:
        raise ValueError(text)
    whole = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00"))
    return int(whole.timestamp()) * 1_000_000 + int((match[2] or "0")[:6].ljust(6, "0"))
