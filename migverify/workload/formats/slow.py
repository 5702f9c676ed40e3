"""The slow log of MySQL 5.6 to 9.x, of Percona Server and of MariaDB.

::

    # Time: 2026-01-02T03:04:05.678901Z                           the end; MySQL 5.6 and MariaDB: 260102  3:04:05, local
    # User@Host: app[app] @ web1 [10.0.0.9]  Id:     3
    # Query_time: 0.003464  Lock_time: 0.000324 Rows_sent: 1000  Rows_examined: 2000 [Thread_id: 3 Errno: 0 ...]
    use shop;                                                       when it is not the one of the record before
    SET last_insert_id=7,insert_id=8,timestamp=1767323045;          the second of the start, by the session's clock
    SELECT ...;

``Start:``, ``timestamp=`` and MariaDB's ``# Time:`` follow the session's clock, which a client can set; the
``# Time:`` of MySQL does not. Where it is exact, start and end are computed from it and the duration alone.
"""

from __future__ import annotations

import re
from datetime import tzinfo

from migverify.workload.formats.reading import LogFormat, LogGrammar
from migverify.workload.formats.statements import (
    BANNER,
    BANNER_LINE,
    COMMANDS,
    changed_lines,
    lacks,
    windows_lines,
)
from migverify.workload.model import Carry, Command, Origin, Piece, Record, Rejected
from migverify.workload.quotes import COMMENTS, Header

NO_STATEMENT = "header without a statement"

_FOLLOWS = rb"(?:\# Time: [^\n]*\n)?\# User@Host: [^\n]*\n(?:\#[^\n]*\n){0,2}?\# (?:Thread_id: \d[^\n]*)?Query_time: "
NEXT = re.compile(rb";\n(?=" + _FOLLOWS + rb"|" + BANNER_LINE + rb")")
_NEXT_WINDOWS = re.compile(rb";\r\n(?=" + _FOLLOWS + rb"|" + BANNER_LINE + rb")")
_AT_ONCE = re.compile(_FOLLOWS)
_BEGINS = (b"# Time: ", b"# User@Host: ")
_LOOSE = re.compile(rb"\n(?=" + _FOLLOWS + rb"|" + BANNER_LINE + rb")")
_HEADER_PART = re.compile(rb"\n# (?:Time|User@Host|Query_time): |  Lock_time: ")
_HEAD = re.compile(
    rb"(?:\# Time: ([^\n]*)\n)?\# User@Host: ([^\n]*)\n"
    rb"((?:\#(?! administrator command: | Time: | User@Host: )[^\n]*\n)+)"
    rb"(?:use ([^\n]*);\r?\n)?(?:SET ([a-z_=\d,]*?)timestamp=(\d{1,18})(?:\.(\d{1,6}))?;\r?\n)?"
)
_USER = re.compile(rb"([^\[]{0,512})\[(.{0,512})\] @ ([^\[]{0,512}?) ?\[([^\]]{0,512})\](?: +Id: *(\d{1,20}))?")
_PLAIN = re.compile(
    rb"\# Query_time: (\d{1,9})\.(\d{6})  Lock_time: \S+ +Rows_sent: (\d{1,18}) +Rows_examined: \d+"
    rb"(?: Thread_id: (\d{1,18}) Errno: (\d{1,9}) | |\n|$)"
)
_THREAD = re.compile(rb"\bThread_id: (\d{1,18})(?!\S)")
_KEY = re.compile(rb"(\w+): ([^\s:]*)(?=\s|$)")
_SECONDS = re.compile(rb"(\d{1,9})(?:\.(\d{1,6}))?$")
_ADMIN = re.compile(rb"# administrator command: ([^\n;]*)")
INSERTED = re.compile(rb"last_insert_id=(\d{1,20}),|insert_id=(\d{1,20}),")
_OWN_CLOCK = re.compile(
    COMMENTS + rb"SET\b.*\btimestamp\s*+:?=\s*+(default\b|0\s*+(?:,|$))?", re.IGNORECASE | re.DOTALL
)
_NUMBERS = {
    b"Thread_id": "session", b"Last_errno": "errno", b"Errno": "errno", b"Rows_sent": "rows_sent",
    b"Rows_affected": "rows_affected",
}  # fmt: skip
_SCHEMA = re.compile(rb"\bSchema: (\S*)")
OFF_CLOCK = 2_000_000
"""A session's clock this many microseconds off the true start was set by the client."""
_NOT_LOGGED = "command whose content is not logged"


class SlowLog(LogFormat):
    """Reads slow logs; ``zone`` serves where nothing else tells a time."""

    name = "slow"

    def sniff(self, head: bytes) -> float:
        """Tell by a header in its order, at the beginning of the file or behind a banner."""
        begin = BANNER.match(head)
        if _HEAD.match(head, begin.end() if begin else 0):
            return 0.98
        return 0.7 if _LOOSE.search(head) else 0.0

    def grammar(self, path: str) -> SlowGrammar:
        """See LogFormat."""
        return SlowGrammar(path, self.zone)


class SlowGrammar(LogGrammar):
    """Headers of a slow log, and what one says for those behind it: the database, MariaDB's time, set clocks."""

    head = _HEAD
    loose_header = _LOOSE
    header_part = _HEADER_PART

    def __init__(self, path: str, zone: tzinfo) -> None:
        super().__init__(path, zone, NEXT, b";\n")
        self._users: dict[bytes, tuple[str | None, str | None, int | None]] = {}
        self.database: str | None = None
        self.last: int | None = None
        self.own_clocks: set[int] = set()

    def begin(self, head: bytes) -> None:
        """Take in the first bytes of the file."""
        if windows_lines(head):
            self.next, self._stop = _NEXT_WINDOWS, b";\r\n"

    def carry(self) -> Carry:
        """Return what the records so far say for those behind them."""
        sessions = sorted({*self.own_clocks, *self.quoting})
        known = tuple((one, (one in self.own_clocks, self.quoting.get(one))) for one in sessions)
        return Carry(self.database, self.last, known)

    def resume(self, carry: Carry) -> None:
        """Go on in the middle of a file."""
        self.database, self.last = carry.database, carry.time
        self.own_clocks = {session for session, (own, _) in carry.sessions if own}
        self.quoting = {session: modes for session, (_, modes) in carry.sessions if modes is not None}

    def session(self) -> int | None:
        """See LogGrammar."""
        head = self._head
        if head is None:
            return None
        thread = _THREAD.search(head[3])
        return self.who(head[2])[2] if thread is None else int(thread[1])

    def following(self, data: bytes, start: int) -> Header | None:
        """Return the first header at a place or behind it."""
        if data.startswith(_BEGINS, start) and _AT_ONCE.match(data, start):
            return Header(start, start)  # a header right behind a header
        return super().following(data, start)

    def text_of(self, data: bytes, at: int) -> int | None:
        """Take in a header and return where its text starts."""
        self._head = head = _HEAD.match(data, at)
        return None if head is None else head.end()

    def has_time(self) -> bool:
        """See LogGrammar."""
        return self._head is not None and self._head[1] is not None

    def banner(self) -> None:
        """Forget the database, and the modes of sessions: ids may begin anew."""
        self.database = ""  # a server that opens the file names every database anew
        self.quoting.clear()

    def forget(self) -> None:
        """Forget what lost records may have changed: the database, the time of a record, clocks and modes."""
        self.database = self.last = None
        self.own_clocks.clear()
        self.quoting.clear()

    def piece(self, data: bytes, offset: int, line: int, length: int, text: int, text_end: int, partial: str) -> Piece:
        """Return the record of the header taken in last."""
        origin = Origin(self._path, offset, line, length)
        head = self._head
        if head is None:
            return Rejected(origin, NO_STATEMENT)
        time, who, meta, used, inserted, second, fraction = head.groups()
        if used is not None:
            self._use(used)
        sql = data[text:text_end]
        if not sql:
            return Rejected(origin, NO_STATEMENT)
        known = self._users.get(who)
        user, host, session = self.who(who) if known is None else known
        record = Record(origin, Command.QUERY, sql, session, user, host, self.database, partial=partial)
        plain = _PLAIN.match(meta)
        if plain is not None:
            record.duration = int(plain[1]) * 1_000_000 + int(plain[2])
            record.rows_sent = int(plain[3])
            if plain[4] is not None:
                record.session, record.errno = int(plain[4]), int(plain[5])
        if plain is None or meta.find(b"\n") < len(meta) - 1:
            self._rest(record, meta)
        if inserted:
            for last, own in INSERTED.findall(inserted):
                if last:
                    record.last_insert_id = int(last)
                else:
                    record.insert_id = int(own)
        micros = int(fraction.ljust(6, b"0")) if fraction else 0
        set_second = None if second is None else int(second) * 1_000_000 + micros
        self._time(record, time, set_second, exact=fraction is not None)
        if sql.startswith(b"# administrator command: "):
            self._admin(record, sql)
        elif not partial:
            record.partial = lacks(sql)
            if self.next is _NEXT_WINDOWS and not record.partial:
                record.partial = changed_lines(sql)
        self.learn(record)
        return record

    def _use(self, used: bytes) -> None:
        name = used[1:-1].replace(b"``", b"`") if used[:1] == b"`" and used[-1:] == b"`" else used
        self.database = self.texts[name]

    def who(self, raw: bytes) -> tuple[str | None, str | None, int | None]:
        """Return user, host and connection id of a ``User@Host`` line."""
        found = _USER.match(raw)
        if found is None:
            return None, None, None
        host = found[3].strip() or found[4]
        known = (
            self.texts[found[2] or found[1].strip()], self.texts[host] if host else None,
            None if found[5] is None else int(found[5]),
        )  # fmt: skip
        if len(self._users) < 100_000:
            self._users[raw] = known
        return known

    def _rest(self, made: Record, meta: bytes) -> None:
        """Take in the keys of Percona Server and MariaDB, and odd values."""
        for key, value in _KEY.findall(meta):
            if key in _NUMBERS:
                if value.isdigit() and len(value) <= 18:
                    setattr(made, _NUMBERS[key], int(value))
            elif key == b"Query_time" and made.duration is None:
                seconds = _SECONDS.match(value)
                if seconds is not None:
                    made.duration = int(seconds[1]) * 1_000_000 + int((seconds[2] or b"0").ljust(6, b"0"))
        schema = _SCHEMA.search(meta)
        if schema is not None:
            made.database = self.database = self.texts[schema[1]]

    def _time(self, made: Record, time: bytes | None, second: int | None, *, exact: bool) -> None:
        """Set start, end and clock."""
        duration = made.duration
        if time is not None:
            end = self._clock.iso(time.strip()) if b"T" in time else None
            if end is not None:  # MySQL 5.7 and later: the true end
                made.end = self.last = end
                if duration is not None:
                    made.start = end - duration
                    if second is not None and not -OFF_CLOCK < second - made.start < OFF_CLOCK:
                        made.clock = second
                return
        self._coarse(made, time, second, duration, exact=exact)

    def _coarse(
        self, made: Record, time: bytes | None, second: int | None, duration: int | None, *, exact: bool
    ) -> None:
        """Set times where ``# Time`` is local, whole seconds, or left out: from the second of the start."""
        session = made.session
        own = session in self.own_clocks
        sets = _OWN_CLOCK.match(made.sql) if b"imestamp" in made.sql.lower() else None
        if sets is not None and session is not None:
            own = True
            (self.own_clocks.discard if sets[1] else self.own_clocks.add)(session)
        elif session is not None and made.sql.startswith(b"# administrator command: Quit"):
            self.own_clocks.discard(session)
        if own and second is not None:
            made.clock = second
            made.start = self.last  # of the record before: this one's own is the client's
            made.details = {"time": "of the record before"}
        elif second is None:
            end = None if time is None else self._clock.compact(time.strip())
            made.end = end if end is not None else self.last
            if made.end is not None and duration is not None:
                made.start = made.end - duration
        elif exact:
            made.start = self.last = second
            made.end = None if duration is None else second + duration
        else:
            # An end computed from whole seconds would bring a session out of order; the order of files is true.
            made.start = self.last = second
            made.details = {"time": "whole seconds"}
        if made.end is not None and second is None:
            self.last = made.end

    def _admin(self, made: Record, sql: bytes) -> None:
        found = _ADMIN.match(sql)
        name = b"" if found is None else found[1]
        made.command = COMMANDS.get(name, Command.OTHER)
        made.sql = b""
        if made.command is Command.OTHER:
            made.details = {**made.details, "command": self.texts[name].lower()}
        elif made.command is Command.INIT_DB:
            made.sql = (made.database or "").encode("utf-8", "surrogateescape")
        elif made.command in (Command.PREPARE, Command.EXECUTE):
            made.partial = made.partial or _NOT_LOGGED
