"""Which records of a log are reads that are asked, in the state of their session; the others are counted by why not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from migverify.sql.catalog import SERVER_DATABASES
from migverify.sql.lexer import Modes
from migverify.workload.classify import StatementKind
from migverify.workload.meaning import Meaning, Meanings
from migverify.workload.model import UNKNOWN, Command, Record
from migverify.workload.replay.assumed import FOR_DIFFERENCES, NO_DATABASE, SessionFacts, bearing
from migverify.workload.replay.keys import ordering_keys
from migverify.workload.replay.model import Call, Captured
from migverify.workload.replay.plan import TIME, without_locks
from migverify.workload.replay.runfile import CLOCKED, FIRST_OF_UNIT, PlannedCall
from migverify.workload.replay.safety import Leave, refusal, with_remedy
from migverify.workload.replay.session import sampled
from migverify.workload.replay.touches import Keys, qualified
from migverify.workload.sessions import BEGAN_BEFORE, CapturedSession, SessionStatement
from migverify.workload.state import SessionState

MOST_SESSIONS = 20_000
"""Sessions that are followed at once; the one without a statement for the longest time is forgotten."""
HOUR = 3_600_000_000
BEFORE = "before the start"
OWN = "of this replay itself"
NOT_CHOSEN = "not chosen by --share"
OF_SERVER = "of what a server tells of itself"
_TEMPORARY = "reads a temporary table of its session"
_READS = Leave()

SessionKey = tuple[str, int]


@dataclass(slots=True)
class LiveSessions:
    """The sessions of a log while it is read: each is followed from statement to statement.

    ``changed`` are sessions whose state is another one since ``take_changes``; None where a session is over.
    """

    connects: bool
    sessions: dict[SessionKey, CapturedSession] = field(default_factory=dict)
    forgotten: int = 0
    _kept: dict[SessionKey, str] = field(default_factory=dict)
    _touched: set[SessionKey] = field(default_factory=set)

    def place(self, record: Record) -> SessionStatement:
        """Return a record as a statement of its session."""
        if record.database == UNKNOWN:
            record.database = None
        if record.session is None:
            return CapturedSession(record, 1, connects=self.connects).place(record)
        key = (record.server, record.session)
        found = self.sessions.pop(key, None)
        if found is None or found.ends_before(record):
            nth = 1 if found is None else found.nth + 1
            found = CapturedSession(record, nth, connects=self.connects)
        statement = found.place(record)
        self._touched.add(key)
        if not found.is_over:
            self.sessions[key] = found
        if len(self.sessions) > MOST_SESSIONS:
            oldest = next(iter(self.sessions))
            del self.sessions[oldest]
            self._touched.add(oldest)
            self.forgotten += 1
        return statement

    def take_changes(self) -> Iterator[tuple[SessionKey, str | None]]:
        """Yield what a later process must know of sessions that are not as they were at the last call."""
        touched, self._touched = self._touched, set()
        for key in touched:
            session = self.sessions.get(key)
            if session is None:
                if self._kept.pop(key, None) is not None:
                    yield key, None
                continue
            body = session.as_json()
            known = json.dumps({**body, "position": 0}, sort_keys=True)
            if self._kept.get(key) != known:
                self._kept[key] = known
                yield key, json.dumps(body)

    def restore(self, kept: Iterable[tuple[SessionKey, str]]) -> None:
        """Go on with sessions that an earlier process kept."""
        for key, body in kept:
            known: Mapping[str, Any] = json.loads(body)
            self.sessions[key] = CapturedSession.from_json(known)
            self._kept[key] = json.dumps({**known, "position": 0}, sort_keys=True)


@dataclass(slots=True)
class KnownKeys:
    """Keys of the tables of databases that statements name, read once an hour from the source."""

    read: Callable[[str], Keys]
    keys: dict[str, Any] = field(default_factory=dict)
    _databases: set[str] = field(default_factory=set)
    _hour: int = 0

    def learn(self, databases: Iterable[str], hour: int) -> bool:
        """Read the keys of databases that are not known; tell whether any were read."""
        if hour != self._hour:
            self._databases, self._hour = set(), hour
        new = {one.lower() for one in databases if one} - self._databases
        for database in sorted(new):
            self._databases.add(database)
            self.keys.update(self.read(database))
        return bool(new)


def _is_of_server(meaning: Meaning) -> bool:
    """Whether a read asks what a server tells of itself, as monitoring does all the time: two servers differ there."""
    words = meaning.classification.words
    tables = meaning.shape.tables or ()
    of_system = any(table.partition(".")[0].lower() in SERVER_DATABASES for table in tables if "." in table)
    return of_system or (bool(words) and words[0].upper() == "SHOW")


@dataclass(slots=True)
class ReadChooser:
    """Makes calls of the reads of a log.

    Parameters
    ----------
    unseen
        The log never tells a connect: the settings of every session are assumed.
    since
        Unix microseconds: statements that ended before are not asked. None asks all.
    share
        The share of all reads that is asked, by session and place.

    Attributes
    ----------
    left
        How many records were not asked, by why not. They belong to no verdict.
    """

    facts: SessionFacts
    keys: KnownKeys
    unseen: bool
    since: int | None = None
    share: float = 1.0
    left: Counter[str] = field(default_factory=Counter)
    _meanings: Meanings = field(default_factory=lambda: Meanings("mysql", unique_keys={}))

    def choose(self, statement: SessionStatement, now: int) -> PlannedCall | None:
        """Return a read to be asked, with ``skipped`` where it cannot be; None for what is no read, or not chosen."""
        record = statement.record
        if record.command not in (Command.QUERY, Command.EXECUTE):
            return None
        moment = record.end if record.end is not None else record.start
        if self.since is not None and (moment is None or moment < self.since):
            self.left[BEFORE] += 1
            return None
        call, meaning = self._call(statement, (moment or now) // HOUR)
        kind = meaning.classification.kind
        if kind is not StatementKind.READ:
            self.left[kind.value] += 1
            return None
        if _is_of_server(meaning):
            self.left[OF_SERVER] += 1
            return None
        reason = self._refused(call, meaning)
        if reason.startswith("locking read"):
            self.left["locking read"] += 1
            return None
        if self.share < 1 and not sampled(call, self.share):
            self.left[NOT_CHOSEN] += 1
            return None
        looks = call.clock is not None or meaning.classification.volatile & TIME
        flags = FIRST_OF_UNIT | (CLOCKED if looks else 0)
        start = call.start if call.start is not None else moment or now
        return PlannedCall(
            0, call, meaning, with_remedy(reason) if reason else "", flags, 0, 0, start, max(start, moment or start)
        )  # fmt: skip

    def _call(self, statement: SessionStatement, hour: int) -> tuple[Call, Meaning]:
        record, state, partial = statement.record, statement.state, statement.partial
        unknown: frozenset[str] = frozenset()
        if self.unseen or BEGAN_BEFORE in partial:
            partial = "; ".join(one for one in partial.split("; ") if one not in ("", BEGAN_BEFORE))
            state, unknown, _ = self.facts.assume(statement.session, state, record.user)
        modes = Modes.of(state.sql_mode, state.charset)
        meaning = self._meanings.meaning(record.sql, modes)
        if self.keys.learn(_databases(meaning, state), hour):
            self._meanings = Meanings("mysql", unique_keys=ordering_keys(self.keys.keys))
            meaning = self._meanings.meaning(record.sql, modes)
        assumed = bearing(unknown, record.sql, meaning, state, self.keys.keys)
        if "database" in assumed:
            partial = partial or NO_DATABASE
        elif assumed and self.unseen:
            assumed = (*assumed, FOR_DIFFERENCES)
        origin = record.origin
        call = Call(
            statement.session, origin.offset, record.sql, meaning.digest, _alone(state),
            Captured(record.errno, record.rows_sent, record.rows_affected, record.duration, record.last_insert_id),
            record.start, record.end, record.clock, record.parameters, partial, record.user,
            f"{origin.file}@{origin.offset}", record.command.value, assumed,
        )  # fmt: skip
        return (call, meaning) if partial else without_locks(call, meaning, self._meanings, _READS)

    def _refused(self, call: Call, meaning: Meaning) -> str:
        if call.partial:
            return call.partial
        temporary = set(call.state.parts.get("temporary_tables", ()))
        tables = meaning.shape.tables
        if temporary and (tables is None or any(name.rpartition(".")[2] in _bare(temporary) for name in tables)):
            return _TEMPORARY
        return refusal(call, meaning.classification, _READS)


def _databases(meaning: Meaning, state: SessionState) -> set[str]:
    if meaning.classification.kind is not StatementKind.READ:
        return set()
    names = [qualified(name, state.database) for name in meaning.shape.tables or ()]
    return {name.partition(".")[0] for name in names if name}


def _bare(names: Iterable[str]) -> set[str]:
    return {name.rpartition(".")[2].lower() for name in names}


def _alone(state: SessionState) -> SessionState:
    """Return the state in which a read is asked by itself: outside of a transaction, whose snapshot would grow old."""
    return replace(state, transaction=False, autocommit=True, isolation=None)
