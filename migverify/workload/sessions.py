"""Sorted records become sessions: followed one by one, their edges marked.

Memory is bounded: only a transaction that may turn out to be unfinished is held back, on disk when it is long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from migverify.sql.lexer import DEFAULT, TokenKind, tokens
from migverify.workload.formats.statements import TEXT_LOST
from migverify.workload.model import Command, Origin, Record, text_of
from migverify.workload.overflow import Overflow
from migverify.workload.quotes import COMMENTS, LOOKS
from migverify.workload.state import SessionState, Tracker

BEGAN_BEFORE = "session began before the capture"
OPEN_AT_END = "transaction open at the end of the capture"
NO_SESSION = "no session id"
PREPARED_BEFORE = "prepared before the capture"
_USES_PREPARED = re.compile(
    COMMENTS + rb"(prepare|execute|(?:deallocate|drop)\s++prepare)\s++(`[^`]*+`|[^\s;]++)", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class SessionStatement:
    """A record in its session.

    ``session`` is ``server/connection id/nth``: a connection id comes back after a restart and after a quit.
    ``position`` counts the session's records from 0. ``partial`` joins the reasons why the statement cannot be
    replayed or judged as it is by ``"; "``, empty when there is none.
    """

    record: Record
    session: str
    position: int
    state: SessionState
    partial: str


def in_sessions(
    records: Iterable[Record],
    *,
    connects: Callable[[str], bool],
    mask: Callable[[bytes], bytes] | None = None,
    folder: Path | None = None,
) -> Iterator[SessionStatement]:
    """Yield sorted records as statements of sessions, each with the state it runs in.

    Parameters
    ----------
    records
        In the order of ``migverify.workload.runs.merged``.
    connects
        Does this server's capture tell connects? Where it does, a session without one began before the capture.
    mask
        What becomes of the values of user variables in the state.
    folder
        Where a long open transaction is kept; default: the system's folder for such files.
    """

    def begin(record: Record, nth: int) -> CapturedSession:
        return CapturedSession(record, nth, connects=connects(record.server), mask=mask, folder=folder)

    session: CapturedSession | None = None
    for record in _without_restored(records):
        if session is None or not session.same(record):
            if session is not None:
                yield from session.close()
            session = begin(record, 1)
        elif session.ends_before(record):
            yield from session.close()
            session = begin(record, session.nth + 1)
        yield from session.take(record)
    if session is not None:
        yield from session.close()


def _without_restored(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records; a PREPARE without its text becomes a command where the next record of the session restores it."""
    held: Record | None = None
    for record in records:
        if held is not None:
            same = (held.server, held.session) == (record.server, record.session)
            if same and record.details.get("restored") == "prepare":
                held.command, held.partial = Command.OTHER, ""
                held.details = {**held.details, "command": "prepare that the next record restores"}
            yield held
            held = None
        if record.partial == TEXT_LOST:
            held = record
        else:
            yield record
    if held is not None:
        yield held


class CapturedSession:
    """One session while its records go by.

    ``take`` holds the statements of a transaction back until it is known how it ended; ``place`` does not, for a log
    that is read while it grows. A session is followed by one of them.
    """

    def __init__(
        self,
        first: Record,
        nth: int,
        *,
        connects: bool,
        mask: Callable[[bytes], bytes] | None = None,
        folder: Path | None = None,
    ) -> None:
        self.nth = nth
        self._server, self._id = first.server, first.session
        number = "?" if first.session is None else str(first.session)
        self._name = f"{first.server or '-'}/{number}/{nth}"
        self._user = first.user
        self._tracker = Tracker(mask)
        self._position = 0
        self._over = False
        self._failed = False
        self._lost: set[str] = set()
        """Names of prepared statements whose text the log does not hold."""
        self._open: Overflow[SessionStatement] = Overflow(folder)
        """The statements of an open transaction, until it is known how it ended."""
        self._reason = ""
        if first.session is None:
            self._reason = NO_SESSION
        elif connects and first.command not in (Command.CONNECT, Command.FAILED_CONNECT):
            self._reason = BEGAN_BEFORE

    def same(self, record: Record) -> bool:
        """Tell whether a record bears this session's connection id."""
        return record.server == self._server and record.session == self._id

    def ends_before(self, record: Record) -> bool:
        """Tell whether this record begins another session under the same connection id."""
        if self._id is None:
            return False
        if self._failed:
            return record.command is not Command.QUIT
        if self._over or record.command in (Command.CONNECT, Command.FAILED_CONNECT):
            return self._position > 0
        # Formats without connects: another user under the same id is another session, after a restart.
        user = record.user
        return bool(user and self._user and user != self._user and record.command is not Command.CHANGE_USER)

    @property
    def is_over(self) -> bool:
        """Whether no statement of the session can follow."""
        return self._over or self._failed

    def place(self, record: Record) -> SessionStatement:
        """Return a record as a statement of the session, with the state it runs in, and take in what it changes."""
        tracker = self._tracker
        if self._id is None:  # records of different sessions: none says anything about the next
            tracker = Tracker()
        state = tracker.state(record)
        self._user = record.user or self._user
        if record.user is None and self._id is not None and self._user is not None:
            record.user = self._user  # a general log names it where the session connects only
        partial = joined_reasons(
            _lacking(record, state), self._reason, self._prepared_before(record), self._text_lost(record)
        )
        statement = SessionStatement(record, self._name, self._position, state, partial)
        self._position += 1
        tracker.apply(record)
        self._known_again(record)
        if self._id is not None:
            self._over = self._over or record.command is Command.QUIT
            self._failed = self._failed or record.command is Command.FAILED_CONNECT
        return statement

    def take(self, record: Record) -> Iterator[SessionStatement]:
        """Yield statements whose transaction is decided by a record, and take it in."""
        tracker = self._tracker
        before, before_open = tracker.opened, tracker.transaction
        statement = self.place(record)
        if self._id is None:
            yield statement
        elif not tracker.transaction:
            if before_open:
                yield from self._open.drain()
            yield statement
        else:
            if tracker.opened != before:  # BEGIN in an open transaction commits it
                yield from self._open.drain()
            self._open.add(statement, len(statement.record.sql))

    def as_json(self) -> dict[str, Any]:
        """Return what a later process needs to ``place`` the records that follow."""
        state = self._tracker.state_in(None)
        return {
            "nth": self.nth, "server": self._server, "id": self._id, "user": self._user, "position": self._position,
            "over": self._over, "failed": self._failed, "reason": self._reason, "state": state.as_json(),
            "transaction": state.transaction,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> CapturedSession:
        """Return the session that ``as_json`` described."""
        first = Record(Origin("", 0, 0, 0), Command.OTHER, b"", body["id"], body["user"], server=body["server"])
        made = cls(first, body["nth"], connects=False)
        state = SessionState.from_json(body["state"])
        made._tracker = Tracker.of(replace(state, transaction=body["transaction"]))
        made._position, made._over, made._failed = body["position"], body["over"], body["failed"]
        made._reason = body["reason"]
        return made

    def _known_again(self, record: Record) -> None:
        """A reset gives every setting its default, a change of user the database too: what was before is no matter."""
        if self._reason != BEGAN_BEFORE or record.errno:
            return
        database = self._tracker.state_in(None).database
        if record.command is Command.CHANGE_USER or (
            record.command is Command.RESET_CONNECTION and database is not None
        ):
            self._reason = ""

    def _prepared_before(self, record: Record) -> str:
        if record.command is not Command.EXECUTE or record.sql or record.partial:
            return ""
        return PREPARED_BEFORE

    def _text_lost(self, record: Record) -> str:
        """Return why a statement that uses a name fails wherever it is asked: no text tells what was prepared."""
        if record.command is not Command.QUERY:
            return ""
        found = _USES_PREPARED.match(record.sql)
        if found is None:
            return ""
        word, name = found[1].split()[0].lower(), text_of(found[2].strip(b"`")).lower()
        if record.partial == TEXT_LOST:
            self._lost.add(name)
            return ""
        lost = name in self._lost
        if word != b"execute":
            self._lost.discard(name)
        return TEXT_LOST if lost and word != b"prepare" else ""

    def close(self) -> Iterator[SessionStatement]:
        """The capture has no more of this session: what its last transaction did is known only if it quit."""
        for statement in self._open.drain():
            if not self._over:
                statement = replace(statement, partial=joined_reasons(statement.partial, OPEN_AT_END))
            yield statement


def _lacking(record: Record, state: SessionState) -> str:
    """Return why a record is partial; a text that only a default session leaves open is whole in one that closes it.

    One with a bare ``?`` stays partial: no reader knows yet what it is.
    """
    if record.partial not in LOOKS or state.modes == DEFAULT:
        return record.partial
    found = tokens(record.sql, "mysql", state.modes)
    return record.partial if any(token.kind in (TokenKind.OPEN, TokenKind.PARAMETER) for token in found) else ""


def joined_reasons(*reasons: str) -> str:
    """Return reasons as one text, each once."""
    if not any(reasons):
        return ""
    return "; ".join(dict.fromkeys(reason for reason in reasons if reason))
