"""What became of each call, committed while the replay runs; what a resumed run does with calls that were cut off."""

from __future__ import annotations

import fcntl
import json
import sqlite3
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from migverify.errors import PlanError, StoreError
from migverify.model import Side
from migverify.workload.replay.model import Difference, DifferenceSeverity, JudgedCall, Judgement, TimedAnswer
from migverify.workload.replay.runfile import COMMITS, RUN_FILE, WRITES, RunFile, compact, connect, not_written
from migverify.workload.replay.value_codes import HASHED, ValueCodes

UNKNOWN = "unknown whether it ran"
LOCK = "lock"
PATIENCE = 15.0
"""Seconds that workers of a killed replay get to end: longer than calls under way may take after a stop."""
_MOST_SEEN = 64
_INTEGER_TYPES = frozenset({1, 2, 3, 8, 9})
"""The protocol's numbers of TINYINT, SMALLINT, INT, BIGINT and MEDIUMINT."""
_STATES = {state.value: state for state in Judgement}


@dataclass(slots=True)
class Counters:
    """Counters of one worker, or their sum. Times are microseconds.

    ``low`` is the sequence of its earliest call that is not over. ``lag`` is how late the worst call is that is due and
    has not begun; ``lag_most`` the worst so far; ``lag_sum`` over all calls begun. ``forced`` counts calls that no
    longer waited for another session, ``held`` those that waited for a connection.
    """

    low: int = 0
    begun: int = 0
    ended: int = 0
    different: int = 0
    undecided: int = 0
    unjudged: int = 0
    reads: int = 0
    writes: int = 0
    flying: int = 0
    lag: int = 0
    lag_most: int = 0
    lag_sum: int = 0
    waited: int = 0
    forced: int = 0
    held: int = 0
    connections: int = 0
    source_asked: int = 0
    target_asked: int = 0
    finished: int = 0

    def add(self, other: Counters) -> None:
        """Add another worker's counters; of lags the worst counts, and the earliest call that is not over."""
        for each in fields(self):
            ours, theirs = getattr(self, each.name), getattr(other, each.name)
            if each.name in ("lag", "lag_most"):
                setattr(self, each.name, max(ours, theirs))
            else:
                setattr(self, each.name, ours + theirs)


def workers(run: RunFile, *, but: int = -1) -> list[Counters]:
    """Return the counters of each worker but one."""
    rows = run.db.execute("SELECT counters FROM workers WHERE number <> ?", (but,))
    return [Counters(**json.loads(row[0])) for row in rows]


def total(run: RunFile) -> Counters:
    """Return the sums over all workers."""
    found = Counters()
    for one in workers(run):
        found.add(one)
    return found


class Outcomes:
    """Collects intents and outcomes of one process, and commits them together. Not shared by threads.

    ``codes`` stand for values in what calls saw.

    Raises StoreError: by ``flush``: the file cannot be written; what was committed before stays.
    """

    def __init__(self, folder: Path, worker: int = 0, codes: ValueCodes = HASHED) -> None:
        self._folder, self.worker, self._codes = folder, worker, codes
        self._db = connect(folder / RUN_FILE, timeout=0)
        self.intents: list[tuple[int]] = []
        self.ends: list[tuple[int, str]] = []
        self.seen: list[tuple[int, str]] = []
        self.counters = ""

    def intend(self, index: int) -> None:
        """Note that a call which may write is about to be sent; it may be sent once ``flush`` was True."""
        self.intents.append((index,))

    def end(self, index: int, judged: JudgedCall) -> None:
        """Note a call's outcome."""
        self.ends.append((index, pack(judged)))

    def see(self, index: int, answers: Mapping[Side, TimedAnswer]) -> None:
        """Note what a call saw on each side, for histories (``begin_seeing``)."""
        body = {side.value: _seen(timed, self._codes) for side, timed in answers.items()}
        self.seen.append((index, compact(body)))

    def take(self, rows: Iterable[tuple[int, str]]) -> None:
        """Note outcomes that another machine packed."""
        self.ends.extend(rows)

    def flush(self) -> bool:
        """Commit everything noted; False while another process commits: then call again a moment later."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR IGNORE INTO outcomes VALUES (?, NULL)", self.intents)
            self._db.executemany("INSERT OR REPLACE INTO outcomes VALUES (?, ?)", self.ends)
            if self.seen:
                self._db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", self.seen)
            if self.counters:
                self._db.execute("INSERT OR REPLACE INTO workers VALUES (?, ?)", (self.worker, self.counters))
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                return False
            raise not_written(self._folder, error) from error
        self.intents.clear()
        self.ends.clear()
        self.seen.clear()
        self.counters = ""
        return True

    def close(self) -> None:
        """Commit what is noted, waiting for other processes, and close."""
        self._db.execute("PRAGMA busy_timeout = 10000")
        try:
            if not self.flush():
                raise StoreError(f"{self._folder / RUN_FILE} stays locked", hint="Is another process writing it?")
        finally:
            self._db.close()


@dataclass(frozen=True, slots=True)
class SeenAnswer:
    """What a history needs of one side's answer. ``rows`` are hashes of cells, None where they are not kept.

    ``lost`` says that there was no answer. ``columns`` are the original names, in lower case. Times are monotonic
    nanoseconds. ``insert_id`` is the first AUTO_INCREMENT value that the server reports, 0 for none.
    """

    begun: int
    ended: int
    lost: bool
    errno: int
    affected: int
    warnings: int
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] | None = None
    insert_id: int = 0


def begin_seeing(run: RunFile) -> None:
    """Make room for what calls see."""
    run.change("CREATE TABLE IF NOT EXISTS seen (call INTEGER PRIMARY KEY, body TEXT NOT NULL)")


def _seen(timed: TimedAnswer, codes: ValueCodes) -> list[Any]:
    answer = timed.answer
    kept: list[Any] = [
        timed.begun,
        timed.ended,
        bool(answer.unanswered),
        answer.errno,
        answer.affected,
        answer.warnings,
    ]
    if answer.columns and answer.rows is not None and len(answer.rows) <= _MOST_SEEN:
        names = [column.original.decode("utf-8", "replace").lower() for column in answer.columns]
        whole = [column.type_code in _INTEGER_TYPES for column in answer.columns]
        kept.append(names)
        kept.append([
            [codes.of_integer(name, int(cell)) if number and cell is not None else codes.of_text(name, cell)
             for cell, number, name in zip(row, whole, names, strict=True)]
            for row in answer.rows
        ])  # fmt: skip
    elif answer.insert_id and not answer.columns:
        kept.append(answer.insert_id)
    return kept


def seen_answers(run: RunFile, side: Side) -> Iterator[tuple[int, SeenAnswer]]:
    """Yield what calls saw on a side, by call.

    Raises PlanError: the run did not record it.
    """
    try:
        rows = run.db.execute("SELECT call, body FROM seen ORDER BY call")
    except sqlite3.DatabaseError as error:
        raise PlanError(f"{run.folder} has no histories: {error}", hint="Replay with --anomalies.") from error
    for call, body in rows:
        kept = json.loads(body).get(side.value)
        if kept is not None:
            begun, ended, lost, errno, affected, warnings, *more = kept
            insert_id = more.pop() if len(more) == 1 else 0  # behind the fields of all: an id, or columns and rows
            columns, cells = more or ((), None)
            hashes = None if cells is None else tuple(map(tuple, cells))
            yield call, SeenAnswer(begun, ended, lost, errno, affected, warnings, tuple(columns), hashes, insert_id)


def pack(one: JudgedCall) -> str:
    """Return an outcome as text with a checksum of its own."""
    packed: list[Any] = [
        one.session, one.position, one.digest, one.state.value, one.source_latency, one.target_latency,
        one.source_service, one.target_service, one.lag, one.repeats, one.captured_error + 2 * one.written,
    ]  # fmt: skip
    if one.differences or one.reason or one.noisy or one.details:
        differences = [
            [each.aspect, each.severity.value, each.source, each.target, each.column, each.detail]
            for each in one.differences
        ]
        packed += [one.reason, one.noisy, differences, one.details]
    text = compact(packed)
    return f"{zlib.crc32(text.encode()):08x}{text}"


def unpack(body: str, what: str) -> JudgedCall:
    """Return the outcome of a packed text; raises PlanError where the text was changed."""
    try:
        if int(body[:8], 16) != zlib.crc32(body[8:].encode()):
            raise ValueError("its checksum is wrong")
        row = json.loads(body[8:])
        reason, noisy, differences, details = row[11:15] if len(row) > 11 else ("", "", [], {})
        return JudgedCall(
            row[0], row[1], row[2], _STATES[row[3]],
            tuple(Difference(one[0], DifferenceSeverity(one[1]), *one[2:]) for one in differences),
            reason, noisy, row[4], row[5], row[6], row[7], row[8], bool(row[10] & 1), bool(row[10] & 2), row[9],
            details,
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise PlanError(
            f"{what} is damaged: {error}", hint="The file was changed after it was written; start anew."
        ) from error


def judged(run: RunFile) -> Iterator[tuple[int, JudgedCall]]:
    """Yield each call that has an outcome, and the outcome.

    Raises PlanError: an outcome is damaged: not by a crash, which only ever loses the last ones.
    """
    try:
        for call, body in run.db.execute("SELECT call, body FROM outcomes WHERE body IS NOT NULL ORDER BY call"):
            yield call, unpack(body, f"{run.folder}: the outcome of call {call}")
    except sqlite3.DatabaseError as error:
        raise PlanError(f"{run.folder} is damaged: {error}", hint="Start a new replay.") from error


@dataclass(frozen=True, slots=True)
class CallState:
    """What is known of one call of a transaction that was cut off."""

    index: int
    flags: int
    intended: bool
    ended: bool


def recover(unit: Sequence[CallState]) -> tuple[list[int], list[int]]:
    """Decide about a transaction that was cut off.

    Returns
    -------
    tuple
        Calls that are asked again, because the transaction was surely rolled back; and calls that may have run, which
        are never asked again.
    """
    touched = [one for one in unit if one.intended or one.ended]
    if not touched or all(one.ended for one in unit):
        return [], []
    open_end = [one.index for one in unit if one.intended and not one.ended]
    if len(unit) == 1:
        return [], open_end  # autocommit: it may have been carried out
    if not any(one.flags & COMMITS for one in touched[1:]):
        return [one.index for one in touched], []  # its connection is gone, and with it what it did
    # behind a commit that is or may be done nothing is repeated; the rest goes on from there
    return [], open_end if any(one.flags & WRITES for one in touched) else []


def begin_attempt(run: RunFile) -> int:
    """Begin an attempt: in one commit, decide about calls that were under way; return how many attempts there were.

    Outcomes of transactions that were surely rolled back are deleted: these calls are asked again. A call that may have
    run is unjudged for ever.
    """
    cut_off = """SELECT id, unit, flags, call IS NOT NULL, body IS NOT NULL FROM calls LEFT JOIN outcomes ON call = id
        WHERE unit IN (SELECT unit FROM calls LEFT JOIN outcomes ON call = id GROUP BY unit
                       HAVING COUNT(call) > 0 AND COUNT(body) < COUNT(*)) ORDER BY id"""
    attempts = int(run.fact("attempts"))
    again: list[int] = []
    unknown: list[int] = []
    units: dict[int, list[CallState]] = {}
    for index, unit, flags, known, ended in run.db.execute(cut_off) if attempts else ():
        units.setdefault(unit, []).append(CallState(index, flags, bool(known), bool(ended)))
    for calls in units.values():
        repeated, open_end = recover(calls)
        again += repeated
        unknown += open_end
    run.change("BEGIN IMMEDIATE")
    run.db.executemany("DELETE FROM outcomes WHERE call = ?", [(one,) for one in again])
    for index in unknown:
        call = run.read(index).call
        one = JudgedCall(call.session, call.position, call.digest, Judgement.UNJUDGED, reason=UNKNOWN, written=True)
        run.change("INSERT OR REPLACE INTO outcomes VALUES (?, ?)", (index, pack(one)))
    run.change("DELETE FROM workers")
    run.set_fact("attempts", attempts + 1)
    run.set_fact("stop", "")
    run.change("COMMIT")
    return attempts


@contextmanager
def alone(folder: Path, patience: float = PATIENCE) -> Iterator[RunLock]:
    """Hold a run's lock; nobody else plays it. It ends with the process that holds it, however that ends.

    Raises PlanError: another replay, or a worker of one that was killed, still plays it.
    """
    with (folder / LOCK).open("a") as file:
        until = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise PlanError(
                        f"{folder} is being played by another replay", hint="Wait for it, or stop it with Ctrl-C."
                    ) from None
                time.sleep(0.05)
        yield RunLock(file.fileno())


class RunLock:
    """The lock of a run, held alone until ``share``."""

    def __init__(self, number: int) -> None:
        self._number = number

    def share(self) -> None:
        """Let workers in; others stay out."""
        fcntl.flock(self._number, fcntl.LOCK_SH)


@contextmanager
def among_workers(folder: Path) -> Iterator[None]:
    """Hold a run's lock beside the other workers."""
    with (folder / LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield
