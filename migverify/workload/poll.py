"""Poll performance_schema for finished statements: outcomes, rows, warnings and digests, without any log.

It is an oracle rather than a source of statements: texts are cut at ``performance_schema_max_sql_text_length``, values
of prepared statements are missing, and what the ring overwrites between two polls is gone. All of that is counted.
Only SELECTs reach the server.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import IO

from migverify.db.session import Row, Session
from migverify.errors import UsageError
from migverify.model import Flavor
from migverify.workload.formats.polled import MARK

_RING = "events_statements_history_long"
_THREADS = "events_statements_history"
_MARGIN = 2 * 10**12
"""Picoseconds that one poll looks back before the newest event of the last: an event enters the ring after its end."""

_COLUMNS = (
    "THREAD_ID, EVENT_ID, END_EVENT_ID, EVENT_NAME, TIMER_START, TIMER_END, SQL_TEXT, CURRENT_SCHEMA, MYSQL_ERRNO,"
    " WARNINGS, ROWS_AFFECTED, ROWS_SENT, DIGEST, NESTING_EVENT_LEVEL"
)


@dataclass(slots=True)
class PollCount:
    """What a poll saw. ``gaps`` and ``lost_at_most`` are by event ids of a thread, which other events may take too."""

    table: str
    polls: int = 0
    events: int = 0
    nested: int = 0
    overruns: int = 0
    gaps: int = 0
    lost_at_most: int = 0
    cut_texts: int = 0

    def as_json(self) -> dict[str, object]:
        """Return the counts as a JSON object."""
        return asdict(self)


class Poller:
    """Reads new events at each ``poll()`` and writes them as lines.

    Parameters
    ----------
    session
        Of the source; its own statements are left out.
    out
        Where lines go; see ``formats.polled``.

    Raises
    ------
    UsageError
        the server has no such tables, or collects nothing in them.
    """

    def __init__(self, session: Session, out: IO[str]) -> None:
        self._session, self._out = session, out
        if session.flavor is Flavor.TIDB:
            raise UsageError("TiDB has no statement events in performance_schema.", hint="Poll a MySQL source.")
        consumers = _consumers(session)
        self._ring = _RING in consumers
        if not self._ring and _THREADS not in consumers:
            raise UsageError(
                "performance_schema collects no statements: its consumers are off.",
                hint=f"Let an administrator switch {_RING} on in performance_schema.setup_consumers.",
            )
        self.count = PollCount(_RING if self._ring else _THREADS)
        size, text = session.query(
            f"SELECT @@performance_schema_{_RING}_size, @@performance_schema_max_sql_text_length"
        )[0]
        self._size, self._text = int(size or 0), int(text or 0)
        thread = session.query(
            "SELECT THREAD_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = CONNECTION_ID()"
        )
        if not thread:
            raise UsageError(
                "performance_schema does not show this session.", hint="Grant SELECT on performance_schema.*."
            )
        self._own = int(thread[0][0] or 0)
        self._seen: dict[tuple[int, int], int] = {}
        self._ended: dict[int, int] = {}
        self._clients: dict[int, tuple[int | None, str | None, str | None]] = {}
        server = session.query("SELECT @@hostname, @@port")[0]
        self._line({MARK: 1, "server": f"{server[0]}:{server[1]}", "table": self.count.table})
        # what ended before belongs to no poll; a thread that comes later is seen from its first event on
        self._begun = self._newest = self._timer()[0]
        self._threads()
        self._old = max(self._clients, default=0)

    def poll(self) -> int:
        """Write the events that are new; returns how many."""
        timer, clock = self._timer()
        self._threads()
        self._overrun()
        since = max(0, self._newest - _MARGIN)
        rows = self._session.query_bytes(
            # only our own names and numbers
            f"SELECT {_COLUMNS} FROM performance_schema.{self.count.table}"  # noqa: S608
            f" WHERE TIMER_END > {since} AND THREAD_ID <> {self._own}"
        )
        new = 0
        for row in sorted(rows, key=lambda row: (_int(row[0]), _int(row[1]))):
            new += self._take(row, clock - timer // 10**6)
        self._seen = {key: end for key, end in self._seen.items() if end > self._newest - 2 * _MARGIN}
        self.count.polls += 1
        self._out.flush()
        return new

    def _timer(self) -> tuple[int, int]:
        """Return the server's timer in picoseconds and the Unix time in microseconds, of one moment."""
        row = self._session.query(
            "SELECT TIMER_START, CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS UNSIGNED)"  # noqa: S608
            f" FROM performance_schema.events_statements_current WHERE THREAD_ID = {self._own}"
            " ORDER BY EVENT_ID DESC LIMIT 1"
        )
        if not row:
            raise UsageError("performance_schema does not time this session.", hint="Its instruments must be on.")
        return int(row[0][0] or 0), int(row[0][1] or 0)

    def _threads(self) -> None:
        for thread, connection, user, host in self._session.query(
            "SELECT THREAD_ID, PROCESSLIST_ID, PROCESSLIST_USER, PROCESSLIST_HOST"
            " FROM performance_schema.threads WHERE PROCESSLIST_ID IS NOT NULL"
        ):
            self._clients[int(thread or 0)] = (int(connection or 0), user, host)

    def _overrun(self) -> None:
        """Count a ring whose oldest event is newer than the newest of the last poll: what was between is gone."""
        if not self._ring:
            return
        rows, oldest = self._session.query(
            f"SELECT COUNT(*), MIN(TIMER_END) FROM performance_schema.{_RING}"  # noqa: S608
        )[0]
        if int(rows or 0) >= self._size and int(oldest or 0) > self._newest:
            self.count.overruns += 1
            self._line({"lost": "the ring was overwritten between two polls"})

    def _take(self, row: Row, offset: int) -> int:
        thread, event, end = _int(row[0]), _int(row[1]), _int(row[5])
        if (thread, event) in self._seen or end <= self._begun:
            return 0
        self._seen[thread, event] = end
        self._newest = max(self._newest, end)
        if _int(row[13]):
            self.count.nested += 1
            return 0
        self._gap(thread, event, _int(row[2]))
        self.count.events += 1
        text = row[6]
        cut = text is not None and len(text) > self._text - 4  # a cut may fall before a character of four bytes
        self.count.cut_texts += cut
        session, user, host = self._clients.get(thread, (None, None, None))
        self._line({
            "event": event, "thread": thread, "session": session, "user": user, "host": host,
            "name": _text(row[3]), "sql": None if text is None else text.decode("utf-8", "surrogateescape"), "cut": cut,
            "database": _text(row[7]) or "", "start": offset + _int(row[4]) // 10**6, "end": offset + end // 10**6,
            "errno": _int(row[8]), "warnings": _int(row[9]), "rows_affected": _affected(row[10]),
            "rows_sent": _int(row[11]), "digest": _text(row[12]),
        })  # fmt: skip
        return 1

    def _gap(self, thread: int, event: int, last: int) -> None:
        before = self._ended.get(thread, 0 if thread > self._old else None)
        if before is not None and event > before + 1:
            self.count.gaps += 1
            self.count.lost_at_most += event - before - 1
            self._line({"lost": event - before - 1, "thread": thread})
        self._ended[thread] = max(last, event, before or 0)

    def _line(self, event: dict[str, object]) -> None:
        self._out.write(json.dumps(event) + "\n")


def poll_until(poller: Poller, stopped: threading.Event, interval: float, left: Callable[[], float | None]) -> None:
    """Poll every ``interval`` seconds until somebody stops it or no seconds are ``left``, and once more then."""
    while not stopped.is_set():
        poller.poll()
        rest = left()
        if rest is not None and rest <= 0:
            break
        stopped.wait(interval if rest is None else min(interval, rest))
    poller.poll()


def _consumers(session: Session) -> set[str | None]:
    if session.query("SELECT @@performance_schema")[0][0] != "1":
        raise UsageError("performance_schema is off on this server.", hint="It is switched on at the server's start.")
    rows = session.query("SELECT NAME FROM performance_schema.setup_consumers WHERE ENABLED = 'YES'")
    return {row[0] for row in rows}


def _int(value: bytes | None) -> int:
    return 0 if value is None else int(value)


def _affected(value: bytes | None) -> int | None:
    """Return affected rows; the server says -1 in 64 bits where there are none to tell."""
    number = _int(value)
    return None if number >= 2**63 else number


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "backslashreplace")
