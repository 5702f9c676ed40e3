"""Sorted rows become statements in their sessions: what can change a session is followed, the rest is filled in.

The rules are those of ``migverify.workload.sessions`` and its ``Tracker``, asked for every row that may change
something. Between two of those, whole stretches of rows share a state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from migverify.spark.capture_output import Held, Marks, table_of_rows, with_reason
from migverify.spark.capture_rows import COMMAND_CODES, NONE, SHORTS, Names, Rows, record_of
from migverify.workload.capture import CaptureSummary
from migverify.workload.model import Command
from migverify.workload.sessions import (
    BEGAN_BEFORE,
    NO_SESSION,
    OPEN_AT_END,
)
from migverify.workload.state import State, Tracker

_QUERY, _EXECUTE, _PREPARE = (COMMAND_CODES[one] for one in (Command.QUERY, Command.EXECUTE, Command.PREPARE))
_CONNECT, _FAILED = COMMAND_CODES[Command.CONNECT], COMMAND_CODES[Command.FAILED_CONNECT]
_QUIT, _CHANGE_USER = COMMAND_CODES[Command.QUIT], COMMAND_CODES[Command.CHANGE_USER]
_FEW = 500


@dataclass(slots=True)
class Counts:
    """What was found, for the summary."""

    sessions: int = 0
    statements: int = 0
    partial_statements: int = 0
    commands: Counter[str] = field(default_factory=Counter)
    partial: Counter[str] = field(default_factory=Counter)

    def add_to(self, summary: CaptureSummary) -> None:
        """Add the figures to a summary's."""
        summary.sessions += self.sessions
        summary.statements += self.statements
        summary.partial_statements += self.partial_statements
        summary.partial.update(self.partial)
        summary.commands.update(self.commands)


class _Session:
    """One session while its rows go by."""

    __slots__ = ("ended", "failed", "name", "nth", "number", "over", "reason", "rows", "server", "tracker", "user")

    def __init__(self, server: int, name: str, number: int, nth: int, user: int, reason: str, tracker: Tracker) -> None:
        self.server, self.number, self.nth, self.user, self.reason = server, number, nth, user, reason
        self.name = f"{name or '-'}/{'?' if number < 0 else number}/{nth}"
        self.tracker = tracker
        self.rows = 0
        self.over = self.failed = self.ended = False


class Follower:
    """Follows the sessions of sorted rows.

    Parameters
    ----------
    connects
        Does this server's capture tell connects?
    folder
        Where a long open transaction is kept.
    mask
        What becomes of the values of user variables in the state.
    """

    def __init__(
        self, names: Names, connects: Callable[[str], bool], folder: Path, mask: Callable[[bytes], bytes] | None = None
    ) -> None:
        self._names, self._connects, self._mask = names, connects, mask
        self.counts = Counts()
        self._session: _Session | None = None
        self._states: list[State] = []
        self._codes: dict[State, int] = {}
        self._identities: dict[int, int] = {}
        self._alive: list[State] = []
        self._telling = False
        self._opened = -1
        """The row with which the open transaction began; below 0: in a slice before."""
        self._held = Held(folder)

    def take(self, rows: Rows) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield statements and other commands, in order, as far as it is known how their transactions end."""
        if not len(rows):
            return
        marks = self._follow(rows)
        table = table_of_rows(rows, marks, self._names, self._states)
        # a session may go through any number of them
        self._states, self._codes, self._identities, self._alive = [], {}, {}, []
        session = self._session
        open_still = session is not None and session.number >= 0 and session.tracker.transaction
        settled = max(0, self._opened) if open_still else len(rows)
        if not open_still or self._opened >= 0:  # what was open when the slice began is over
            yield from self._release(self._held.reason)
        self._opened = -1
        if settled:
            yield self._split(table.slice(0, settled))
        if settled < len(rows):
            self._held.add(table.slice(settled))

    def close(self) -> Iterator[tuple[pa.Table, pa.Table]]:
        """Yield what was held back: no more rows follow."""
        session = self._session
        still = session is not None and session.number >= 0 and session.tracker.transaction and not session.over
        yield from self._release(OPEN_AT_END if still else self._held.reason)

    def _release(self, reason: str) -> Iterator[tuple[pa.Table, pa.Table]]:
        for table in self._held.release():
            yield self._split(with_reason(table, reason) if reason else table)

    def _follow(self, rows: Rows) -> Marks:
        marks = Marks()
        columns = rows.columns
        server, number, user = columns["server"], columns["session"], columns["user"]
        database, command, errno = columns["database"], columns["command"], columns["errno"]
        plain = columns["plain"]
        changes = plain != 1
        for column in (server, number, user, database):
            changes[1:] |= column[1:] != column[:-1]
        changes |= number < 0
        changes[0] = True
        self._telling = any("in_transaction" in self._names.texts[one] for one in np.unique(columns["details"]))
        events = np.flatnonzero(changes).tolist()
        events.append(len(rows))
        told = [column[events[:-1]].tolist() for column in (server, number, user, database, command, errno, plain)]
        offsets = np.frombuffer(rows.sql.buffers()[1], np.int32)[rows.sql.offset :]
        whole = rows.sql.buffers()[2]
        data = memoryview(b"" if whole is None else whole)
        starts, ends = offsets[events[:-1]].tolist(), offsets[np.array(events[:-1]) + 1].tolist()
        facts = [*zip(*told, starts, ends, strict=True)]
        texts, named = self._names.texts, bool((database >= 0).any())
        at = 0
        session = self._session
        if session is not None:
            marks.sessions.append((0, session.name, session.rows, session.reason))
        code = -1
        for turn, stop in enumerate(events):
            while at < stop:  # plain rows
                current = None if not named or database[at] < 0 else texts[database[at]]
                if session is None or session.ended or not session.tracker.stays_in(current):
                    place = (int(offsets[at]), int(offsets[at + 1]))
                    fact = (*(int(one[at]) for one in (server, number, user, database, command, errno, plain)), *place)
                    session, new = self._event(rows, at, fact, marks, data)
                    step = at + 1
                else:
                    tracker = session.tracker
                    new = self._code(tracker.state_in(None))
                    step = stop
                    if not tracker.steady:
                        step = at + 1
                        if errno[at] <= 0:  # not failed, or not told
                            tracker.open_transaction()
                            self._opened = at
                    session.rows += step - at
                if new != code:
                    code = new
                    marks.states.append((at, code))
                at = step
            if turn == len(facts):
                break
            session, new = self._event(rows, at, facts[turn], marks, data)
            if new != code:
                code = new
                marks.states.append((at, code))
            at += 1
        return marks

    def _event(
        self, rows: Rows, at: int, fact: tuple[int, ...], marks: Marks, data: memoryview
    ) -> tuple[_Session, int]:
        server, number, user, database, command, errno, plain, start, end = fact
        session = self._session
        if (
            session is not None and number == session.number >= 0 and server == session.server and command == _QUERY
            and (user < 0 or user == session.user) and not session.ended and not self._telling
        ):  # fmt: skip
            tracker = session.tracker
            before, before_open = tracker.opened, tracker.transaction
            state = self._code(tracker.state_in(None if database < 0 else self._names.texts[database]))
            session.rows += 1
            short = SHORTS[plain]
            if short is not None:
                tracker.apply_short(short, failed=errno > 0)
            else:
                tracker.apply_text(bytes(data[start:end]), None if errno == NONE else errno)
            if tracker.transaction and (tracker.opened != before or not before_open):
                self._opened = at
            return session, state
        sql = bytes(data[start:end])
        if session is None or server != session.server or number != session.number:
            session = self._begin(at, fact, 1, marks)
        elif self._ends_before(session, user, command):
            session = self._begin(at, fact, session.nth + 1, marks)
        tracker = session.tracker if number >= 0 else Tracker()
        before, before_open = tracker.opened, tracker.transaction
        state = self._code(tracker.state_in(self._names.text(database)))
        session.rows += 1
        if user >= 0 and self._names.texts[user]:
            session.user = user
        details = self._names.texts[rows.columns["details"][at]]
        if command in (_QUERY, _EXECUTE) and "in_transaction" not in details:
            if command == _EXECUTE and not sql and not self._names.texts[rows.columns["partial"][at]]:
                marks.unprepared.append(at)
            tracker.apply_text(sql, None if errno == NONE else errno)
        else:
            tracker.apply(record_of(rows, at, self._names, sql))
        if number < 0:
            return session, state
        session.over = session.over or command == _QUIT
        session.failed = session.failed or command == _FAILED
        session.ended = session.over or session.failed
        if tracker.transaction and (tracker.opened != before or not before_open):
            self._opened = at
        return session, state

    def _begin(self, at: int, fact: tuple[int, ...], nth: int, marks: Marks) -> _Session:
        self._end(at, marks)
        server, number, user, _, command, *_ = fact
        name = self._names.texts[server]
        reason = ""
        if number < 0:
            reason = NO_SESSION
        elif command not in (_CONNECT, _FAILED) and self._connects(name):
            reason = BEGAN_BEFORE
        session = self._session = _Session(server, name, number, nth, user, reason, Tracker(self._mask))
        self.counts.sessions += command != _FAILED
        marks.sessions.append((at, session.name, 0, reason))
        return session

    def _end(self, at: int, marks: Marks) -> None:
        session = self._session
        if session is None or session.number < 0 or not session.tracker.transaction or session.over:
            return
        marks.open.append((max(0, self._opened), at))
        if self._opened < 0:
            self._held.reason = OPEN_AT_END

    def _ends_before(self, session: _Session, user: int, command: int) -> bool:
        if session.number < 0:
            return False
        if session.failed:
            return command != _QUIT
        if session.over or command in (_CONNECT, _FAILED):
            return session.rows > 0
        known = session.user >= 0 and bool(self._names.texts[session.user])
        return (
            known and user >= 0 and bool(self._names.texts[user]) and user != session.user and (command != _CHANGE_USER)
        )

    def _code(self, state: State) -> int:
        known = self._identities.get(id(state))
        if known is not None:
            return known
        code = self._codes.setdefault(state, len(self._states))
        if code == len(self._states):
            self._states.append(state)
        self._identities[id(state)] = code
        self._alive.append(state)  # an id is told once more when its object is gone
        return code

    def _split(self, table: pa.Table) -> tuple[pa.Table, pa.Table]:
        command, errno = table["command"], table["errno"]
        failed = pc.fill_null(pc.not_equal(errno, 0), False)
        asked = pc.or_(
            pc.is_in(command, pa.array([Command.QUERY.value, Command.EXECUTE.value])),
            pc.and_(pc.equal(command, Command.PREPARE.value), failed),
        )
        counts = self.counts
        for one in pc.value_counts(command).to_pylist():
            counts.commands[one["values"]] += one["counts"]
        others = np.flatnonzero(~asked.to_numpy())
        if not len(others):
            statements, events = table, table.slice(0, 0)
        elif len(others) > _FEW:
            statements, events = table.filter(asked), table.filter(pc.invert(asked))
        else:  # what stands between them is not copied
            bounds = zip([-1, *others.tolist()], [*others.tolist(), len(table)], strict=True)
            statements = pa.concat_tables(
                [table.slice(0, 0), *(table.slice(a + 1, b - a - 1) for a, b in bounds if b > a + 1)]
            )
            events = table.take(pa.array(others))
        counts.statements += len(statements)
        for one in pc.value_counts(statements["partial"]).to_pylist():
            if one["values"]:
                counts.partial_statements += one["counts"]
                for reason in one["values"].split("; "):
                    counts.partial[reason] += one["counts"]
        return statements, events
