r"""Audit logs as CSV: Aurora's Advanced Auditing, the plugin of RDS for MySQL, and MariaDB's ``server_audit``.

::

    1767323045678901,db-1,app,10.0.0.9,8,24,QUERY,shop,'select \'a\'',0       Aurora: microseconds
    20260102 03:04:05,ip-10,app,10.0.0.9,8,24,QUERY,shop,'select 1',0,,         RDS: local time, two fields more
    20260102 03:04:05,host,app,10.0.0.9,8,24,QUERY,shop,'select 1',0            MariaDB: local time

One line is one event, written at its end. A text is cut at ``server_audit_query_log_limit`` without a mark, so a first
pass over the file looks for the length at which its texts end. That pass also finds what ran inside another
statement (a procedure, function, trigger, or text EXECUTE): such lines stand before the outer one and have higher or
equal query ids.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from migverify.workload.formats.statements import lacks
from migverify.workload.lines import (
    LONGEST,
    TOO_LONG,
    Clock,
    Texts,
    lines,
    make_origin,
    make_record,
    noise,
    rejected,
    seal,
)
from migverify.workload.model import Command, Piece
from migverify.workload.quotes import closed, outside

TRUNCATED = "text cut by the audit log"
NO_VALUES = "values of the prepared statement not logged"
NOT_AUDIT = "line that is no audit event"
BAD_TIME = "time that is none"
BAD_ESCAPE = "escape that the format does not have"
INSIDE_OR_RESTART = "ran inside another statement, or the server restarted behind it"
INSIDE = "ran inside another statement"

DEFAULT_LIMIT = 1024
"""``server_audit_query_log_limit`` of MariaDB and RDS: its texts are taken for cut where none is longer."""

_LINE = re.compile(
    rb"(\d{16}|\d{8} [ \d]\d:\d\d:\d\d),([^,]*),([^,]*),([^,]*),(\d{1,18}),(\d{1,18}),([A-Z_]+),(.*)", re.DOTALL
)
_QUERY = re.compile(rb"([^,]*),'((?:[^'\\]++|\\.)*+)',(\d*)(?:,[^,']*){0,3}$", re.DOTALL)
_OPEN_QUERY = re.compile(rb"([^,]*),'(.*)$", re.DOTALL)
SCAN = re.compile(
    rb"(?:\d{16}|\d{8} [ \d]\d:\d\d:\d\d),[^,]*,[^,]*,[^,]*,(\d{1,18}),(\d{1,18}),"
    rb"(?:QUERY,[^,]*,'(.*)',(\d*)(?:,[^,']*){0,3}|(CONNECT|DISCONNECT|CHANGEUSER),.*)$",
    re.DOTALL,
)
_ESCAPE = re.compile(rb"\\(.?)", re.DOTALL)
ESCAPES = (
    (b"\\n", b"\n"), (b"\\r", b"\r"), (b"\\t", b"\t"), (b'\\"', b'"'), (b"\\b", b"\b"), (b"\\f", b"\f"),
    (b"\\0", b"\0"),
    (b"\\Z", b"\x1a"),
)  # fmt: skip
_TABLES = frozenset({b"READ", b"WRITE", b"CREATE", b"ALTER", b"RENAME", b"DROP"})
_LOGINS = {
    b"CONNECT": Command.CONNECT, b"FAILED_CONNECT": Command.FAILED_CONNECT, b"DISCONNECT": Command.QUIT,
    b"CHANGEUSER": Command.CHANGE_USER,
}  # fmt: skip
_RUNNING = frozenset({
    1022, 1048, 1062, 1114, 1169, 1172, 1205, 1213, 1216, 1217, 1264, 1292, 1317, 1364, 1365, 1366, 1406, 1451, 1452,
    1526, 1557, 1586, 1690, 1748, 1761, 1762, 1969, 3024, 3572, 3819, 4025,
})  # fmt: skip
"""Errors that a prepare does not give: the statement ran, with values."""
SYNTAX = 1064
LOOKS = 1_000
"""So many texts of one length, none of which looks cut, are as long as they were sent."""
REMEMBERED = 1_000
"""Statements of a connection an outer one is looked for among."""


@dataclass(slots=True)
class AuditSurvey:
    """What a pass over a file tells: the length at which texts are cut, and lines that ran inside another."""

    limit: int = 0
    longest: int = 0
    inside: dict[int, str] = field(default_factory=dict)


class Audit:
    """Reads audit CSV.

    Parameters
    ----------
    zone
        The server's, for local times.
    limit
        ``server_audit_query_log_limit`` of the server, where it is known; 0: found out.
    longest
        Bytes of the longest line.
    """

    name = "audit"

    def __init__(self, zone: tzinfo = UTC, limit: int = 0, longest: int = LONGEST) -> None:
        self.zone, self.limit, self.longest = zone, limit, longest
        self._known: tuple[tuple[str, int, int], AuditSurvey] | None = None

    def sniff(self, head: bytes) -> float:
        """Tell by whole lines; the first and the last of them may be cut."""
        seen = [bool(_LINE.match(line)) for line in head.splitlines()[:20]]
        if seen and seen[0]:
            return 0.97
        return 0.8 if any(seen[1:]) else 0.0

    def read(self, path: str, start: int = 0, end: int | None = None) -> Iterator[Piece]:
        """Yield the lines that begin in the range; a line is an event."""
        reader = AuditLines(path, self.zone, self._survey(path), self.limit)
        for offset, line, content in lines(path, start, end, self.longest):
            if isinstance(content, int):
                yield rejected(path, offset, line, content, TOO_LONG)
            else:
                yield reader.piece(offset, line, content)

    def _survey(self, path: str) -> AuditSurvey:
        stat = Path(path).stat()
        mark = (path, stat.st_size, stat.st_mtime_ns)
        if self._known is None or self._known[0] != mark:
            self._known = (mark, survey_of(path, self.longest))
        return self._known[1]


def survey_of(path: str, longest: int) -> AuditSurvey:
    """Look through a file."""
    found = AuditSurvey()
    looks = Looks()
    sessions: dict[bytes, OpenStatements] = {}
    for offset, _, content in lines(path, 0, None, longest):
        match = None if isinstance(content, int) else SCAN.match(content.rstrip(b"\r\n"))
        if match is None:
            continue
        session, query, text, code, login = match.groups()
        if login:
            sessions[session] = OpenStatements(login != b"DISCONNECT")
            continue
        looks.take(len(text), code == b"1064", text)
        if session not in sessions:
            sessions[session] = OpenStatements(False)
        sessions[session].take(int(query), offset, found.inside)
    found.longest, found.limit = looks.most, looks.limit
    return found


class Looks:
    """Looks for the length at which texts are cut, among the longest."""

    def __init__(self) -> None:
        self.most = 0
        self._cut, self._looks = False, 0

    def take(self, size: int, mistaken: bool, text: bytes) -> None:
        """Take in a text; a client's own mistake looks like a cut."""
        if size < self.most - 1:
            return
        if size > self.most + 1:
            self._cut, self._looks = False, 0
        self.most = max(self.most, size)
        if not self._cut and self._looks < LOOKS and not mistaken:
            self._looks += 1
            self._cut = is_cut(unescape(text)[0])

    @property
    def limit(self) -> int:
        """The length at which texts are cut; 0: they are not."""
        return self.most if self._cut else 0


class OpenStatements:
    """The last statements of one connection, outer ones only, by rising query id."""

    __slots__ = ("_begun", "_ids", "_offsets")

    def __init__(self, begun: bool) -> None:
        self._begun = begun
        self._ids: list[int] = []
        self._offsets: list[int] = []

    @property
    def last(self) -> int:
        """The last query id; -1: none."""
        return self._ids[-1] if self._ids else -1

    def extend(self, queries: list[int], offsets: list[int]) -> None:
        """Take in statements whose ids rise and are above ``last``: none ran inside another."""
        self._ids += queries
        self._offsets += offsets
        over = len(self._ids) // REMEMBERED - 1
        if over > 0:
            del self._ids[: over * REMEMBERED], self._offsets[: over * REMEMBERED]
            self._begun = False

    def take(self, query: int, offset: int, inside: dict[int, str]) -> None:
        """Take in a statement, and note those before it that ran inside it."""
        ids, offsets = self._ids, self._offsets
        if ids and ids[-1] >= query:
            at = bisect_left(ids, query)
            # where nothing older is known, ids may have begun anew
            reason = INSIDE if at or self._begun else INSIDE_OR_RESTART
            for place in offsets[at:]:
                inside[place] = reason
            del ids[at:], offsets[at:]
        ids.append(query)
        offsets.append(offset)
        if len(ids) >= 2 * REMEMBERED:
            del ids[:REMEMBERED], offsets[:REMEMBERED]
            self._begun = False


def is_cut(sql: bytes) -> bool:
    """Tell whether a text ends in the midst of a literal or of parentheses."""
    if not closed(sql, 0, len(sql)):
        return True
    bare = outside(sql)
    return bare.count(b"(") > bare.count(b")")


def unescape(text: bytes) -> tuple[bytes, bool]:
    """Return the text that an audit log escaped, and whether all escapes are the format's."""
    if b"\\" not in text:
        return text, True
    # Between two escaped backslashes every backslash begins an escape, so plain replacing is exact, and fast.
    parts = text.split(b"\\\\")
    for at, part in enumerate(parts):
        if b"\\" in part:
            part = part.replace(b"\\'", b"'")
            if b"\\" in part:
                for escape, sign in ESCAPES:
                    part = part.replace(escape, sign)
                if b"\\" in part:
                    return _odd(text), False
            parts[at] = part
    return b"\\".join(parts), True


def _odd(text: bytes) -> bytes:
    """Return a text with its known escapes resolved and the others kept."""
    known = {**dict(ESCAPES), b"\\\\": b"\\", b"\\'": b"'"}
    return _ESCAPE.sub(lambda match: known.get(match[0], match[0]), text)


class AuditLines:
    """Makes pieces of lines."""

    def __init__(self, path: str, zone: tzinfo, survey: AuditSurvey, limit: int) -> None:
        self._path = path
        self._clock = Clock(zone)
        self.texts = Texts()
        self._inside = survey.inside
        self.cut_at = limit or survey.limit or (0 if survey.longest > DEFAULT_LIMIT else DEFAULT_LIMIT)

    def piece(self, offset: int, line: int, content: bytes) -> Piece:
        """Return the piece of a line."""
        length = len(content)
        match = _LINE.match(content)
        if match is None:
            if not content.strip():
                return noise(self._path, offset, line, length, "empty line")
            return rejected(self._path, offset, line, length, NOT_AUDIT)
        time, server, user, host, session, query, operation, rest = match.groups()
        if operation in _TABLES:
            return noise(self._path, offset, line, length, "event of a table")
        end = self._clock.compact(time) if b" " in time else int(time)
        if end is None:
            return rejected(self._path, offset, line, length, BAD_TIME)
        record = make_record(
            make_origin(self._path, offset, line, length), Command.OTHER, b"", int(session), self.texts[user],
            self.host_of(host), None, None, end, int(query), "",
        )  # fmt: skip
        record.server = self.texts[server]
        if b" " in time:
            record.details = {"time": "whole seconds"}
        rest = rest.rstrip(b"\r\n")
        if operation == b"QUERY":
            if not self._query(record, rest, whole=content.endswith(b"\n")):
                return rejected(self._path, offset, line, length, NOT_AUDIT)
        else:
            self._login(record, operation, rest)
        return seal(record)

    def host_of(self, raw: bytes) -> str:
        """Return a host without its port."""
        host, colon, port = raw.partition(b":")  # MariaDB 12 adds the port
        return self.texts[host if colon and port.isdigit() else raw]

    def _query(self, record: Any, rest: bytes, *, whole: bool) -> bool:
        match = _QUERY.match(rest)
        if match is None:
            match = _OPEN_QUERY.match(rest)
            if match is None:
                return False
            record.partial = TRUNCATED
            record.errno = None
            text = match[2]
        else:
            text = match[2]
            record.errno = int(match[3]) if match[3] else None
        record.database = self.texts[match[1]]
        sql, known = unescape(text)
        record.sql, record.command = sql, Command.QUERY
        if not record.partial:
            record.partial = self._lacks(sql, len(text), record.errno, whole=whole) or ("" if known else BAD_ESCAPE)
        inside = self._inside.get(record.origin.offset)
        if inside == INSIDE:
            record.command = Command.OTHER
            record.details = {**record.details, "command": INSIDE}
        elif inside is not None:
            record.partial = record.partial or inside
        elif not record.partial and b"?" in sql and b"?" in outside(sql):
            prepared(record)
        return True

    def _lacks(self, sql: bytes, size: int, errno: int | None, *, whole: bool) -> str:
        if not whole or self.cut_at - 1 <= size <= self.cut_at:
            return TRUNCATED
        if errno != SYNTAX and not closed(sql, 0, len(sql)):
            return TRUNCATED
        return lacks(sql)

    def _login(self, record: Any, operation: bytes, rest: bytes) -> None:
        command = _LOGINS.get(operation)
        parts = rest.split(b",")
        if command is None:
            record.details = {**record.details, "command": self.texts[operation].lower()}
            return
        record.command = command
        code = parts[2] if len(parts) > 2 else parts[-1]
        if code.isdigit() and command is not Command.QUIT:
            record.errno = int(code)
        if command in (Command.CONNECT, Command.CHANGE_USER):
            record.database = self.texts[parts[0]]


def prepared(record: Any) -> None:
    """Take a text with bare ``?`` for what it is: a prepare that failed, or an execute whose values are missing."""
    if record.errno and record.errno not in _RUNNING:
        if record.errno != SYNTAX:
            record.command = Command.PREPARE
        return
    record.command, record.partial = Command.EXECUTE, NO_VALUES
