r"""Audit logs as CSV: Aurora's Advanced Auditing, the plugin of RDS for MySQL, and MariaDB's ``server_audit``.

::

    1767323045678901,db-1,app,10.0.0.9,8,24,QUERY,shop,'select \'a\'',0       Aurora: microseconds
    20260102 03:04:05,ip-10,app,10.0.0.9,8,24,QUERY,shop,'select 1',0,,         RDS: local time, two fields more
    20260102 03:04:05,host,app,10.0.0.9,8,24,QUERY,shop,'select 1',0            MariaDB: local time

One line is one event, written at its end. Aurora writes four files at a time, and the lines of one connection are in
all of them. So a reader of one file cannot know two things, which ``settled`` finds out from the lines of all files:

- what ran inside another statement (a procedure, function, trigger, or text EXECUTE): such a statement ends before the
  outer one and has a higher or equal query id;
- which texts were cut at ``server_audit_query_log_limit``, which leaves no mark: the length at which texts end.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, tzinfo
from itertools import chain

from migverify.sql.lexer import TokenKind, executed_tokens
from migverify.workload.formats.statements import lacks
from migverify.workload.lines import (
    LONGEST,
    TOO_LONG,
    LogClock,
    Texts,
    lines,
    noise,
    rejected,
)
from migverify.workload.model import Carry, Command, Origin, Piece, Record
from migverify.workload.overflow import Overflow
from migverify.workload.quotes import COMMENTS, LOOKS_CUT, closed, has_parameters

TRUNCATED = "text cut by the audit log"
NO_VALUES = "values of the prepared statement not logged"
NOT_AUDIT = "line that is no audit event"
BAD_TIME = "time that is none"
BAD_ESCAPE = "escape that the format does not have"
INSIDE_OR_RESTART = "ran inside another statement, or the server restarted behind it"
INSIDE = "ran inside another statement"
TOO_NESTED = "may have run inside another statement: too many of this connection did"
_NO_ID = 1 << 62

DEFAULT_LIMIT = 1024
"""``server_audit_query_log_limit`` of MariaDB and RDS: its texts count as cut where none is longer."""

_LINE = re.compile(
    rb"(\d{16}|\d{8} [ \d]\d:\d\d:\d\d),([^,]*),([^,]*),([^,]*),(\d{1,18}),(\d{1,18}),([A-Z_]+),(.*)", re.DOTALL
)
_QUERY = re.compile(rb"([^,]*),'((?:[^'\\]++|\\.)*+)',(\d{0,18})(?:,[^,']*){0,3}$", re.DOTALL)
_OPEN_QUERY = re.compile(rb"([^,]*),'(.*)$", re.DOTALL)
_ESCAPE = re.compile(rb"\\(.?)", re.DOTALL)
ESCAPES = (
    (b"\\n", b"\n"), (b"\\r", b"\r"), (b"\\t", b"\t"), (b'\\"', b'"'), (b"\\b", b"\b"), (b"\\f", b"\f"),
    (b"\\0", b"\0"),
    (b"\\Z", b"\x1a"),
)  # fmt: skip
_TABLES = frozenset({b"READ", b"WRITE", b"CREATE", b"ALTER", b"RENAME", b"DROP"})
LOGINS = {
    b"CONNECT": Command.CONNECT, b"FAILED_CONNECT": Command.FAILED_CONNECT, b"DISCONNECT": Command.QUIT,
    b"CHANGEUSER": Command.CHANGE_USER, b"CHANGE_USER": Command.CHANGE_USER,
}  # fmt: skip
_RUNNING = frozenset({
    1022, 1048, 1062, 1114, 1169, 1172, 1205, 1213, 1216, 1217, 1264, 1292, 1317, 1364, 1365, 1366, 1406, 1451, 1452,
    1526, 1557, 1586, 1690, 1748, 1761, 1762, 1969, 3024, 3572, 3819, 4025,
})  # fmt: skip
"""Errors that a prepare does not give: the statement ran, with values."""
SYNTAX = 1064
LOOKS = 1_000
"""So many texts of one length, none of which looks cut, are as long as they were sent."""
MOST_OUTER = 2_000_000
"""Statements of one connection that others ran inside of: beyond, what ran inside another is not known."""
_CONTAINER = re.compile(COMMENTS + rb"(?:call|execute)\b", re.IGNORECASE)
_SIZE = "size of the text"
"""In the details of a record until it is settled: the length of a text that may be cut."""


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

    def sniff(self, head: bytes) -> float:
        """Tell by whole lines; the first and the last of them may be cut."""
        seen = [bool(_LINE.match(line)) for line in head.splitlines()[:20]]
        if seen and seen[0]:
            return 0.97
        return 0.8 if any(seen[1:]) else 0.0

    def read(self, path: str) -> Iterator[Piece]:
        """Yield the lines; a line is an event."""
        return iter(self.part(path))

    def part(self, path: str, begin: int = 0, stop: int | None = None, carry: Carry | None = None) -> AuditPart:
        """See ``migverify.workload.model.Divisible``; a line end is never inside a text."""
        del carry
        return AuditPart(self, path, begin, stop)


class AuditPart:
    """Lines of a file; ``looks`` are the lengths of their texts, by server."""

    def __init__(self, form: Audit, path: str, begin: int, stop: int | None) -> None:
        self._reader = AuditLines(path, form.zone)
        self._lines = lines(path, form.longest, begin=begin, stop=stop)
        self._first = next(self._lines, None)
        self.begin = self.end = begin if self._first is None else self._first[0]
        self.lines = 0
        self.carry = Carry()
        self.looks = self._reader.looks

    def __iter__(self) -> Iterator[Piece]:
        """Yield the pieces."""
        for offset, line, content in chain(() if self._first is None else (self._first,), self._lines):
            length = content if isinstance(content, int) else len(content)
            self.end, self.lines = offset + length, line
            yield self._reader.piece(offset, line, content)


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

    def add(self, other: Looks) -> None:
        """Add what other texts look like."""
        if abs(self.most - other.most) <= 1:
            self._cut = self._cut or other._cut
        elif other.most > self.most:
            self._cut = other._cut
        self.most = max(self.most, other.most)

    @property
    def cut_at(self) -> int:
        """The length at which texts are cut; 0: they are not."""
        return self.most if self._cut else 0 if self.most > DEFAULT_LIMIT else DEFAULT_LIMIT


def is_cut(sql: bytes) -> bool:
    """Tell whether a text ends in the midst of a literal or of parentheses."""
    if not closed(sql, 0, len(sql)):
        return True
    signs = Counter(sql[token.start : token.end] for token in executed_tokens(sql) if token.kind is TokenKind.OPERATOR)
    return signs[b"("] > signs[b")"]


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

    def __init__(self, path: str, zone: tzinfo) -> None:
        self._path = path
        self._clock = LogClock(zone)
        self.texts = Texts()
        self.looks: dict[str, Looks] = {}

    def piece(self, offset: int, line: int, content: bytes | int) -> Piece:
        """Return the piece of a line; ``content`` is a length where it is too long."""
        if isinstance(content, int):
            return rejected(self._path, offset, line, content, TOO_LONG)
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
        record = Record(
            Origin(self._path, offset, line, length), Command.OTHER, b"", int(session), self.texts[user],
            self.host_of(host), end=end, number=int(query), server=self.texts[server],
        )  # fmt: skip
        if b" " in time:
            record.details = {"time": "whole seconds"}
        rest = rest.rstrip(b"\r\n")
        if operation == b"QUERY":
            if not self._query(record, rest, whole=content.endswith(b"\n")):
                return rejected(self._path, offset, line, length, NOT_AUDIT)
        else:
            self._login(record, operation, rest)
        return record

    def host_of(self, raw: bytes) -> str:
        """Return a host without its port."""
        host, colon, port = raw.partition(b":")  # MariaDB 12 adds the port
        return self.texts[host if colon and port.isdigit() else raw]

    def _query(self, record: Record, rest: bytes, *, whole: bool) -> bool:
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
        size = len(text)
        looks = self.looks.get(record.server)
        if looks is None:
            looks = self.looks[record.server] = Looks()
        looks.take(size, record.errno == SYNTAX, text)
        if not record.partial:
            if not whole:
                record.partial = TRUNCATED
            elif record.errno != SYNTAX and not closed(sql, 0, len(sql)):
                record.partial = LOOKS_CUT
            else:
                record.partial = lacks(sql) or ("" if known else BAD_ESCAPE)
        if size >= looks.most - 1 or DEFAULT_LIMIT - 1 <= size <= DEFAULT_LIMIT:
            record.details = {**record.details, _SIZE: str(size)}
        return True

    def _login(self, record: Record, operation: bytes, rest: bytes) -> None:
        command = LOGINS.get(operation)
        parts = rest.split(b",")
        if command is None:
            record.details = {**record.details, "command": self.texts[operation].lower()}
            return
        record.command = command
        code = parts[2] if len(parts) > 2 else parts[-1]
        if code.isdigit() and len(code) <= 10 and command is not Command.QUIT:
            record.errno = int(code)
        if command in (Command.CONNECT, Command.CHANGE_USER):
            record.database = self.texts[parts[0]]


def settled(records: Iterable[Record], cut_at: Callable[[str], int]) -> Iterator[Record]:
    """Yield records as they are: those that ran inside another statement, with cut texts and executes marked.

    Parameters
    ----------
    records
        Of all files, sorted by server, connection, time and query id (of whole seconds: by file and line).
    cut_at
        The length at which a server's texts are cut; 0: none.
    """
    epoch: _Epoch | None = None
    key: tuple[str, int | None] | None = None
    for record in records:
        if (
            epoch is None or epoch.is_over or (record.server, record.session) != key
            or record.command in (Command.CONNECT, Command.FAILED_CONNECT)
        ):  # fmt: skip
            if epoch is not None:
                yield from epoch.close()
            key = (record.server, record.session)
            epoch = _Epoch(record.command is Command.CONNECT, cut_at(record.server))
        epoch.add(record)
    if epoch is not None:
        yield from epoch.close()


class _Epoch:
    """The records of one connection from its connect on. They are kept, on disk where they are many, until it ends.

    A statement ran inside another if one that ended later has a lower or equal query id.
    """

    def __init__(self, begun: bool, cut_at: int) -> None:
        self._begun, self._cut_at = begun, cut_at
        self.is_over = False
        self._records: Overflow[Record] = Overflow()
        self._tied: list[Record] = []
        self._count = 0
        self._lowest, self._highest = -1, -1
        self._outer: tuple[array[int], array[int], array[int]] = (array("q"), array("q"), array("q"))

    def add(self, record: Record) -> None:
        """Take in a record."""
        if self._tied and record.end != self._tied[0].end:
            self._release()
        self._tied.append(record)
        self.is_over = record.command is Command.QUIT

    def _release(self) -> None:
        """Take in the records of one time, by query id; a CALL or EXECUTE is behind those that it may have run."""
        tied, self._tied = self._tied, []
        if len(tied) > 1 and "time" not in tied[0].details:
            holders = [one for one in tied if one.command is Command.QUERY and _CONTAINER.match(one.sql)]
            if holders:
                others = [one for one in tied if one not in holders]
                at = sum(1 for one in others if one.command is not Command.QUIT)
                # the outermost has the lowest id, and ended last
                tied = [*others[:at], *sorted(holders, key=lambda one: -one.number), *others[at:]]
        for record in tied:
            self._take(record)

    def _take(self, record: Record) -> None:
        if record.command is Command.QUERY:
            number = record.number
            if number <= self._highest:
                places, numbers, certain = self._outer
                if len(places) <= MOST_OUTER:
                    places.append(self._count)
                    numbers.append(number)
                    # where nothing older is known, ids may have begun anew
                    certain.append(self._begun or self._lowest < number)
            self._highest = max(self._highest, number)
            self._lowest = number if self._lowest < 0 else min(self._lowest, number)
        self._records.add(record, len(record.sql))
        self._count += 1

    def close(self) -> Iterator[Record]:
        """Yield the records."""
        self._release()
        places, numbers, certain = self._outer
        if len(places) > MOST_OUTER:
            for record in self._records.drain():
                if record.command is Command.QUERY:
                    record.partial = record.partial or TOO_NESTED
                yield self._finished(record, "")
            return
        # the lowest id from each outer statement on: of all, and of those that are certain
        lowest, surely = array("q", numbers), array("q", numbers)
        least = least_surely = _NO_ID
        for at in range(len(places) - 1, -1, -1):
            least = min(least, numbers[at])
            least_surely = min(least_surely, numbers[at]) if certain[at] else least_surely
            lowest[at], surely[at] = least, least_surely
        at = 0
        for place, record in enumerate(self._records.drain()):
            while at < len(places) and places[at] <= place:
                at += 1
            inside = ""
            if at < len(places) and record.command is Command.QUERY and lowest[at] <= record.number:
                inside = INSIDE if surely[at] <= record.number else INSIDE_OR_RESTART
            yield self._finished(record, inside)

    def _finished(self, record: Record, inside: str) -> Record:
        size = record.details.get(_SIZE)
        if size is not None:
            record.details = {key: one for key, one in record.details.items() if key != _SIZE}
            if self._cut_at and self._cut_at - 1 <= int(size) <= self._cut_at:
                record.partial = TRUNCATED
        if record.command is not Command.QUERY:
            return record
        if inside == INSIDE:
            return replace(record, command=Command.OTHER, details={**record.details, "command": INSIDE})
        if inside:
            return replace(record, partial=record.partial or inside)
        sql = record.sql
        if not record.partial and has_parameters(sql):
            prepared(record)
        return record


def prepared(record: Record) -> None:
    """Take a text with bare ``?`` for what it is: a prepare that failed, or an execute whose values are missing."""
    if record.errno and record.errno not in _RUNNING:
        if record.errno != SYNTAX:
            record.command = Command.PREPARE
        return
    record.command = Command.EXECUTE
    record.partial = NO_VALUES
