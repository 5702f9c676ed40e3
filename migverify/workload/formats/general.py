"""The general log: what was asked, when it began, and nothing of how it ended.

::

    2026-01-02T03:04:05.678901Z<tab>    3 Query<tab>SELECT ...        MySQL 5.7 and later, or with an offset
    260102  3:04:05<tab>    3 Query<tab>SELECT ...                    MySQL 5.6 and MariaDB: local, whole seconds
    <tab><tab>    3 Query<tab>SELECT ...                              and left out while the second lasts

A text ``PREPARE`` or ``EXECUTE`` is logged as the client sent it, and once more as what the server made of it. The
second is kept as another command, so that nothing runs twice; where the server keeps the text of a ``PREPARE`` to
itself (MySQL 9), the second restores it.
"""

from __future__ import annotations

import re
from datetime import tzinfo

from migverify.workload.formats.reading import LogFormat, LogGrammar
from migverify.workload.formats.statements import (
    BANNER,
    BANNER_LINE,
    COMMANDS,
    TEXT_LOST,
    changed_lines,
    lacks,
    windows_lines,
)
from migverify.workload.model import Carry, Command, Noise, Origin, Piece, Record, Rejected
from migverify.workload.quotes import COMMENTS

BAD_TIME = "time that is none"
RESTORED = "text of the prepared statement restored, with backslashes that the SQL mode may read otherwise"

_OTHERS = (
    b"Sleep", b"Field List", b"Create DB", b"Drop DB", b"Refresh", b"Shutdown", b"Statistics", b"Processlist",
    b"Connect Out", b"Kill", b"Debug", b"Ping", b"Time", b"Delayed insert", b"Binlog Dump GTID", b"Binlog Dump",
    b"Table Dump", b"Register Slave", b"Register Replica", b"Long Data", b"Reset stmt", b"Reset connection",
    b"Set option", b"Fetch", b"Daemon", b"Error", b"Clone", b"clone", b"Slave_worker", b"Slave_IO", b"Slave_SQL",
    b"Bulk_execute", b"Unimpl get tid", b"Subscribe to query attributes",
)  # fmt: skip
_TIME = rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(?:Z|[+-]\d\d:\d\d))\t|(\d{6} [ \d]\d:\d\d:\d\d)\t|\t\t"
_NAMES = rb"|".join(re.escape(name) for name in sorted((*COMMANDS, *_OTHERS), key=len, reverse=True))
_HEAD = re.compile(rb"(?:" + _TIME + rb") *(\d{1,18}) (" + _NAMES + rb")(?:\t|(?=\r?\n|\Z))")
_LINE = (
    rb"(?:\d{4}-\d\d-\d\dT[\d:.]{15}(?:Z|[+-]\d\d:\d\d)\t|\d{6} [ \d]\d:\d\d:\d\d\t|\t\t) *\d{1,18} (?:"
    + _NAMES
    + rb")[\t\r\n]"
)
_HEADER_PART = re.compile(rb"\n\d{4}-\d\d-\d\dT\d\d:|\n\d{6} [ \d]\d:|\d (?:" + _NAMES + rb")\t")
NEXT = re.compile(rb"\n(?=" + _LINE + rb"|" + BANNER_LINE + rb")")
_NEXT_WINDOWS = re.compile(rb"\r\n(?=" + _LINE + rb"|" + BANNER_LINE + rb")")
_TIMED = re.compile(rb"^(\d{6} [ \d]\d:\d\d:\d\d)\t *\d{1,18} (?:" + _NAMES + rb")[\t\r\n]", re.MULTILINE)
_LOGIN = re.compile(
    rb"(.{0,256})@([^\s@]{0,256})(?: as (?:anonymous|.{0,64}?))? on(?: (.{0,256}?))?(?: using (\S.{0,64}))?$", re.DOTALL
)
_DENIED = re.compile(rb"Access denied for user '(.*?)'@'(.*?)'", re.DOTALL)
TEXT_PREPARED = re.compile(COMMENTS + rb"(prepare|execute)\s++(\S++)", re.IGNORECASE)


class GeneralLog(LogFormat):
    """Reads general logs."""

    name = "general"

    def sniff(self, head: bytes) -> float:
        """Tell by a record at the beginning of the file or behind a banner."""
        begin = BANNER.match(head)
        if _HEAD.match(head, begin.end() if begin else 0):
            return 0.96
        return 0.6 if NEXT.search(head) and b"# User@Host: " not in head else 0.0

    def grammar(self, path: str) -> GeneralGrammar:
        """See LogFormat."""
        return GeneralGrammar(path, self.zone)


class GeneralGrammar(LogGrammar):
    """Headers of a general log; the time of the last one that has it, and sessions with an echo to come."""

    head = _HEAD
    loose_header = NEXT
    header_part = _HEADER_PART

    def __init__(self, path: str, zone: tzinfo) -> None:
        super().__init__(path, zone, NEXT, b"\n")
        self.time: int | None = None
        self.echoes: dict[int, tuple[bytes, bytes, bool]] = {}

    def begin(self, head: bytes) -> None:
        """Take in the first bytes of the file."""
        if windows_lines(head):
            self.next, self._stop = _NEXT_WINDOWS, b"\r\n"
        timed = _TIMED.search(head)
        first = None if timed is None else self._clock.compact(timed[1])
        if first is not None:  # a new file of MariaDB leaves out the second that began in the old one
            self.time = first - 1_000_000

    def carry(self) -> Carry:
        """Return what the records so far say for those behind them."""
        sessions = sorted({*self.echoes, *self.quoting})
        return Carry(None, self.time, tuple((one, (self.echoes.get(one), self.quoting.get(one))) for one in sessions))

    def resume(self, carry: Carry) -> None:
        """Go on in the middle of a file."""
        self.time = carry.time
        self.echoes = {session: echo for session, (echo, _) in carry.sessions if echo is not None}
        self.quoting = {session: modes for session, (_, modes) in carry.sessions if modes is not None}

    def session(self) -> int | None:
        """See LogGrammar."""
        return None if self._head is None else int(self._head[3])

    def text_of(self, data: bytes, at: int) -> int | None:
        """Take in a header and return where its text starts."""
        self._head = head = _HEAD.match(data, at)
        return None if head is None else head.end()

    def has_time(self) -> bool:
        """See LogGrammar."""
        return self._head is not None and (self._head[1] or self._head[2]) is not None

    def banner(self) -> None:
        """A banner changes nothing: connection ids go on where the log was rotated, and connects tell restarts."""

    def forget(self) -> None:
        """Forget what lost records may have changed: the time, modes, and echoes to come."""
        self.time = None
        self.echoes.clear()
        self.quoting.clear()

    def piece(self, data: bytes, offset: int, line: int, length: int, text: int, text_end: int, partial: str) -> Piece:
        """Return the record of the header taken in last."""
        origin = Origin(self._path, offset, line, length)
        head = self._head
        if head is None:
            return Rejected(origin, BAD_TIME)
        iso, compact, number, name = head.groups()
        if iso is not None or compact is not None:
            time = self._clock.iso(iso) if iso is not None else self._clock.compact(compact)
            if time is None:
                return Rejected(origin, BAD_TIME)
            self.time = time
        session = int(number)
        if session == 0 and name in (b"Execute", b"Query", b"Prepare"):
            return Noise(origin, "statement of the server itself")
        sql = data[text:text_end]
        command = COMMANDS.get(name, Command.OTHER)
        record = Record(origin, command, sql, session, None, None, None, self.time, partial=partial)
        if iso is None:
            record.details = {"time": "whole seconds"}
        if command is Command.QUERY:
            if self.echoes:
                self.echoes.pop(session, None)
            if not partial:
                record.partial = lacks(sql)
                if self.next is _NEXT_WINDOWS and not record.partial:
                    record.partial = changed_lines(sql)
            if sql[:1] in b"pPeE/ \n\t" and (prepared := TEXT_PREPARED.match(sql)):
                self.echoes[session] = (prepared[1].lower(), prepared[2], record.partial == TEXT_LOST)
        else:
            self._other(record, session, command, name)
        self.learn(record)
        return record

    def _other(self, record: Record, session: int, command: Command, name: bytes) -> None:
        echo = self.echoes.pop(session, None) if self.echoes else None
        if command in (Command.PREPARE, Command.EXECUTE):
            if echo is not None:
                self._echo(record, session, *echo)
            elif not record.partial:
                record.partial = lacks(record.sql)
        elif command in (Command.CONNECT, Command.CHANGE_USER):
            self._login(record)
        elif command is Command.OTHER:
            record.details = {**record.details, "command": self.texts[name].lower()}

    def _echo(self, record: Record, session: int, asked: bytes, name: bytes, lost: bool) -> None:
        if record.command is Command.PREPARE and asked == b"prepare" and lost:
            text = record.sql
            record.sql = b"PREPARE " + name + b" FROM '" + text.replace(b"\\", b"\\\\").replace(b"'", b"''") + b"'"
            record.command = Command.QUERY
            record.details = {**record.details, "restored": "prepare"}
            if not record.partial:
                record.partial = RESTORED if b"\\" in text else lacks(text)
            return
        if record.command is Command.PREPARE and asked == b"execute":
            self.echoes[session] = (asked, b"", False)  # EXECUTE IMMEDIATE, or other types: the execute follows
        record.details = {**record.details, "command": f"echo of a text {asked.decode()}"}
        record.command = Command.OTHER

    def _login(self, record: Record) -> None:
        text = record.sql
        denied = _DENIED.match(text)
        if denied is not None:
            record.command = Command.FAILED_CONNECT
            record.user, record.host, record.errno = self.texts[denied[1]], self.texts[denied[2]], 1045
            record.sql = b""
            return
        login = _LOGIN.match(text)
        if login is None:
            return
        record.user, record.host, record.database = (self.texts[part or b""] for part in login.group(1, 2, 3))
        if login[4]:
            record.details = {**record.details, "transport": self.texts[login[4]]}
        record.sql = b""
