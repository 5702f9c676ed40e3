"""The run file: one SQLite database with a replay's plan, calls, order, outcomes and progress.

Planning writes the calls, in the order of sessions; any number of processes read them. While the replay runs, each
process commits the outcomes of its own calls. A commit survives ``kill -9`` of every process; a torn end of the
write-ahead log is a commit that never happened. Before a call that may write is sent, its intent is committed: an
outcome without a body. A call with an intent and no outcome may have run or not; it is never sent again.

Statements are JSON, never code: whoever can name a run's folder cannot run anything by it.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from migverify.codec import decode, encode
from migverify.errors import PlanError, StoreError
from migverify.workload.meaning import Meaning
from migverify.workload.model import Parameter
from migverify.workload.private import private, private_folder
from migverify.workload.replay.model import Call, Captured
from migverify.workload.state import SessionState

RUN_FILE = "run.sqlite"
VERSION = 3
_FIRST_RELEASE = ("plan", "journal")
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sessions (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, user TEXT,
    worker INTEGER);
CREATE TABLE calls (
    id INTEGER PRIMARY KEY, session INTEGER NOT NULL, unit INTEGER NOT NULL, start INTEGER NOT NULL,
    end INTEGER NOT NULL, flags INTEGER NOT NULL, meaning INTEGER NOT NULL, digest INTEGER NOT NULL,
    skipped INTEGER NOT NULL, sequence INTEGER NOT NULL DEFAULT 0, due INTEGER NOT NULL DEFAULT 0, racy INTEGER,
    waits TEXT);
CREATE TABLE statements (call INTEGER PRIMARY KEY, body TEXT NOT NULL);
CREATE TABLE outcomes (call INTEGER PRIMARY KEY, body TEXT);
CREATE TABLE workers (number INTEGER PRIMARY KEY, counters TEXT NOT NULL);
"""
_AT_ONCE = 1_000
_PAGE = 32  # calls of one session that are read together
_LONG = 200
_COLUMNS = "id, session, unit, start, end, flags, meaning, digest, skipped, sequence, due, racy, waits"
compact = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode
_STATE = tuple(SessionState.__dataclass_fields__)

WRITES = 1
"""Flag of a call: it may change data when it is asked."""
FIRST_OF_UNIT = 2
"""Flag of a call: a transaction, or a statement of its own, begins here."""
SKIPPED = 4
"""Flag of a call: it is not asked."""
CLOCKED = 8
"""Flag of a call: its answer depends on the session's clock."""
COMMITS = 16
"""Flag of a call: it ends a transaction, or may."""
UNTIMED = 32
"""Flag of a call: the capture has no time of it."""


@dataclass(frozen=True, slots=True)
class SessionSlice:
    """The calls of one session: ids ``first`` to ``last``, some of which may not be chosen."""

    number: int
    name: str
    first: int
    last: int
    user: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedCall:
    """One call with what the plan knows of it.

    ``start`` and ``end`` are Unix microseconds, a neighbor's where the capture has none. ``unit`` is the first call of
    its transaction. ``skipped`` says why it is not asked. ``sequence`` is its place among all calls in captured order,
    ``due`` microseconds after the beginning by the captured clock, ``waits`` the calls whose end it awaits, ``racy``
    the number of a session whose interval overlaps on the same rows.
    """

    index: int
    call: Call
    meaning: Meaning
    skipped: str
    flags: int
    session: int
    unit: int
    start: int
    end: int
    sequence: int = 0
    due: int = 0
    racy: int | None = None
    waits: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Repeated:
    """What repeats in the calls of a plan, by number."""

    states: tuple[SessionState, ...] = ()
    meanings: tuple[Meaning, ...] = ()
    texts: tuple[str | None, ...] = ()


class _Numbers:
    """Numbers for values that repeat."""

    def __init__(self) -> None:
        self.values: dict[Any, int] = {}

    def of(self, value: Any) -> int:
        return self.values.setdefault(value, len(self.values))


class RunFile:
    """The run file of a folder.

    Raises PlanError: there is none, it is damaged, or another version of migverify wrote it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / RUN_FILE
        if not path.exists() and any((folder / name).exists() for name in _FIRST_RELEASE):
            raise PlanError(f"{folder} holds a replay of an earlier release of migverify", hint="Start a new replay.")
        try:
            if not path.is_file():
                raise ValueError("there is no run file")
            self.db = connect(path)
            version = self.fact("version")
            if version != VERSION:
                raise ValueError(f"its version is {version}, not {VERSION}")
            self._repeated = decode(_Repeated, self.fact("repeated"))
        except (OSError, ValueError, TypeError, RecursionError, sqlite3.DatabaseError) as error:
            hint = "Start a new replay."
            raise PlanError(f"{folder} holds no readable plan of a replay: {error}", hint=hint) from error
        self.meanings = self._repeated.meanings
        self._names: dict[int, str] = {}

    # --- the plan ----------------------------------------------------------------------------------------

    def fact(self, name: str) -> Any:
        """Return a JSON value by its name; None where there is none."""
        row = self.db.execute("SELECT body FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else json.loads(row[0])

    def set_fact(self, name: str, value: Any) -> None:
        """Keep a JSON value under a name."""
        self.change("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def change(self, sql: str, parameters: tuple[Any, ...] = ()) -> int:
        """Run one statement that writes; return how many rows it changed."""
        try:
            return self.db.execute(sql, parameters).rowcount
        except sqlite3.Error as error:
            raise not_written(self.folder, error) from error

    @property
    def count(self) -> int:
        """How many calls there are."""
        return int(self.db.execute("SELECT COUNT(*) FROM calls").fetchone()[0])

    def sessions(self, worker: int | None = None) -> list[SessionSlice]:
        """Return the sessions, those of one worker where one is named."""
        where = "" if worker is None else " WHERE worker = ?"
        sql = f"SELECT number, name, first, last, user FROM sessions{where} ORDER BY number"  # noqa: S608
        return [SessionSlice(*row) for row in self.db.execute(sql, () if worker is None else (worker,))]

    def session_name(self, number: int) -> str:
        """Return a session's name by its number."""
        if number not in self._names:
            sql = "SELECT name FROM sessions WHERE number = ?"
            self._names[number] = self.db.execute(sql, (number,)).fetchone()[0]
        return self._names[number]

    def session_of(self, index: int) -> int:
        """Return the number of the session that a call belongs to."""
        return int(self.db.execute("SELECT session FROM calls WHERE id = ?", (index,)).fetchone()[0])

    def read(self, index: int) -> PlannedCall:
        """Return one call."""
        return next(self.calls(index, index))

    def calls(self, first: int = 0, last: int = 1 << 62) -> Iterator[PlannedCall]:
        """Yield the calls from one id to another, in their order; no read is open in between."""
        sql = (
            f"SELECT {_COLUMNS}, body FROM calls JOIN statements ON call = id WHERE id >= ? AND id <= ?"  # noqa: S608
            " ORDER BY id LIMIT ?"
        )
        while rows := self.db.execute(sql, (first, last, _PAGE)).fetchall():
            yield from map(self._planned, rows)
            first = rows[-1][0] + 1

    def _planned(self, row: tuple[Any, ...]) -> PlannedCall:
        index, session, unit, began, ended, flags, meaning, digest, skipped, sequence, due, racy, waits, body = row
        position, sql, state, captured, start, end, clock, parameters, partial, user, origin, command, assumed, note = (
            json.loads(body)
        )
        texts = self._repeated.texts
        typed = None if parameters is None else tuple(Parameter(kind, _bytes(value)) for kind, value in parameters)
        call = Call(
            self.session_name(session), position, sql.encode("latin-1"), texts[digest] or "",
            SessionState(*state) if isinstance(state, list) else self._repeated.states[state],
            Captured(*captured), start, end, clock, typed,
            texts[partial] or "", texts[user], origin, texts[command] or "", tuple(assumed),
            texts[note] or "",
        )  # fmt: skip
        return PlannedCall(
            index, call, self.meanings[meaning], texts[skipped] or "", flags, session, unit, began, ended, sequence,
            due, racy, () if waits is None else tuple(json.loads(waits)),
        )  # fmt: skip

    def counts(self, column: str) -> list[tuple[Any, int]]:
        """Return how many calls have each value of ``meaning`` or ``skipped``, the most frequent first."""
        values: Any = self.meanings if column == "meaning" else self._repeated.texts
        sql = f"SELECT {column}, COUNT(*) FROM calls GROUP BY {column} ORDER BY 2 DESC, 1"  # noqa: S608
        return [(values[number], count) for number, count in self.db.execute(sql)]

    # --- outcomes ----------------------------------------------------------------------------------------

    def known(self) -> bytearray:
        """Return a byte for each id: 0 nothing, 1 ended, 2 intended and not ended."""
        last = self.db.execute("SELECT MAX(id) FROM calls").fetchone()[0]
        found = bytearray((last or 0) + 1)
        for call, ended in self.db.execute("SELECT call, body IS NOT NULL FROM outcomes"):
            found[call] = 1 if ended else 2
        return found

    def ended_among(self, calls: Iterable[int]) -> list[int]:
        """Return which of these calls have ended, in whichever process."""
        marks = json.dumps(list(calls))
        sql = "SELECT call FROM outcomes WHERE call IN (SELECT value FROM json_each(?)) AND body IS NOT NULL"
        return [row[0] for row in self.db.execute(sql, (marks,))]

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class RunFileWriter:
    """Writes the calls of a new run file; ``close`` makes it readable. Nothing reads a file that was not closed."""

    def __init__(self, folder: Path) -> None:
        private_folder(folder, exist_ok=True)  # it holds statements with their values
        for suffix in ("", "-wal", "-shm"):
            (folder / (RUN_FILE + suffix)).unlink(missing_ok=True)
        self._folder, self._path = folder, folder / f"{RUN_FILE}.part"
        self._path.unlink(missing_ok=True)
        open(self._path, "wb", opener=private).close()
        self.db = connect(self._path)
        self.db.execute("PRAGMA journal_mode = OFF")
        self.db.executescript(_SCHEMA)
        self.db.execute("BEGIN")
        self._states, self._meanings, self._texts = _Numbers(), _Numbers(), _Numbers()
        self._texts.of("")
        self._rows: list[tuple[Any, ...]] = []
        self._statements: list[tuple[int, str]] = []
        self.count = self.sessions = self._unit = self._first = 0

    def add(self, call: Call, meaning: Meaning, skipped: str, start: int, end: int, flags: int) -> int:
        """Take in the next call of the session that is being written; return its id."""
        captured, texts = call.captured, self._texts
        parameters = None if call.parameters is None else [(one.kind, _text(one.value)) for one in call.parameters]
        body = compact((
            call.position, _text(call.sql), self._state(call.state),
            (captured.errno, captured.rows_sent, captured.rows_affected, captured.duration, captured.last_insert_id),
            call.start, call.end, call.clock, parameters, texts.of(call.partial), texts.of(call.user), call.origin,
            texts.of(call.command), call.assumed, texts.of(call.note),
        ))  # fmt: skip
        index = self.count
        if flags & FIRST_OF_UNIT or index == self._first:
            self._unit = index
        self._rows.append((
            index, self.sessions, self._unit, start, end, flags | (SKIPPED if skipped else 0),
            self._meanings.of(meaning), texts.of(call.digest), texts.of(skipped),
        ))  # fmt: skip
        self._statements.append((index, body))
        self.count += 1
        if len(self._rows) >= _AT_ONCE:
            self._flush()
        return index

    def _state(self, state: SessionState) -> int | tuple[Any, ...]:
        if len(state.rest) > _LONG:  # user variables and prepared ids may make every state its own
            return tuple(getattr(state, name) for name in _STATE)
        return self._states.of(state)

    def end_session(self, name: str, user: str | None = None) -> None:
        """Close the session that the last calls belong to; one without calls is left out."""
        if self.count > self._first:
            row = (self.sessions, name, self._first, self.count - 1, user)
            self.db.execute("INSERT INTO sessions (number, name, first, last, user) VALUES (?, ?, ?, ?, ?)", row)
            self.sessions += 1
        self._first = self.count

    def leave_out(self, calls: range, reason: str) -> None:
        """Enter that calls are not asked, those that are skipped already for their own reason."""
        self._flush()
        self.db.execute(
            f"UPDATE calls SET skipped = ?, flags = (flags | {SKIPPED}) & ~{WRITES}"  # noqa: S608
            " WHERE id >= ? AND id < ? AND skipped = 0",
            (self._texts.of(reason), calls.start, calls.stop),
        )

    def _flush(self) -> None:
        self.db.executemany(
            "INSERT INTO calls (id, session, unit, start, end, flags, meaning, digest, skipped)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            self._rows,
        )
        self.db.executemany("INSERT INTO statements VALUES (?, ?)", self._statements)
        self._rows.clear()
        self._statements.clear()

    def close(self) -> RunFile:
        """Write what is left, and return the file; it is not a run's until ``plan`` is kept."""
        self._flush()
        self.db.execute("CREATE INDEX units ON calls (unit)")
        repeated = _Repeated(*(tuple(one.values) for one in (self._states, self._meanings, self._texts)))
        facts = {"version": VERSION, "repeated": encode(repeated), "attempts": 0}
        self.db.executemany("INSERT INTO facts VALUES (?, ?)", [(n, json.dumps(body)) for n, body in facts.items()])
        self.db.execute("COMMIT")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.close()
        self._path.rename(self._folder / RUN_FILE)
        return RunFile(self._folder)


def connect(path: Path, timeout: float = 10.0) -> sqlite3.Connection:
    """Open a database in autocommit mode; nothing that its schema may hold is trusted."""
    db = sqlite3.connect(path, timeout=timeout, isolation_level=None)
    db.execute("PRAGMA trusted_schema = OFF")
    db.execute("PRAGMA synchronous = NORMAL")
    db.execute("PRAGMA wal_autocheckpoint = 20000")
    return db


def not_written(folder: Path, error: sqlite3.Error) -> StoreError:
    """Return the error to raise where the run file cannot be written."""
    return StoreError(f"{folder / RUN_FILE} cannot be written: {error}", hint="Is the disk full?")


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else value.encode("latin-1")
