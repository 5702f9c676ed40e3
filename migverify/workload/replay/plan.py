"""From a capture to a plan: which calls are asked, which are not and why, in which order, when.

The plan is a value with a hash of its own; ``--explain`` shows what the run walks. The calls lie in the run file, the
plan holds counts only, so that millions of statements take no memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from migverify.errors import PlanError, UsageError
from migverify.sql.lexer import Modes, first_word
from migverify.workload.capture import WITHOUT_CONNECTS
from migverify.workload.classify import CLOCK, StatementKind
from migverify.workload.meaning import Meaning, Meanings
from migverify.workload.model import SUMMARY, Command, Parameter
from migverify.workload.replay.arrange import arrange
from migverify.workload.replay.assumed import FOR_DIFFERENCES, NO_DATABASE, SessionFacts, bearing
from migverify.workload.replay.keys import ordering_keys
from migverify.workload.replay.model import Call, Captured
from migverify.workload.replay.order import WINDOW
from migverify.workload.replay.runfile import (
    CLOCKED,
    COMMITS,
    FIRST_OF_UNIT,
    UNTIMED,
    WRITES,
    RunFile,
    RunFileWriter,
)
from migverify.workload.replay.safety import FIRST_TRANSACTION, UNLOCKED, Leave, refusal, unlocked, with_remedy
from migverify.workload.replay.touches import Keys, writes_time
from migverify.workload.server_sessions import SessionDump
from migverify.workload.sessions import BEGAN_BEFORE
from migverify.workload.state import SessionState

COLUMNS = (
    "session", "position", "command", "sql", "database", "user", "start", "end", "clock", "duration_s", "errno",
    "rows_sent", "rows_affected", "last_insert_id", "parameters", "charset", "sql_mode", "time_zone", "autocommit",
    "isolation", "in_transaction", "state", "partial", "source_file", "source_line",
)  # fmt: skip
UNKNOWN_DURATION = 1_000_000
"""Microseconds a statement may have taken whose capture does not tell: it may have overlapped that long."""

NOT_WHOLE = "its transaction is not chosen whole"
FAILED_PREPARE = "a prepare that failed: nothing was executed"
TIME = CLOCK | {"sysdate"}
"""Functions whose answer depends on the session's clock."""
_ENDS = frozenset({"COMMIT", "ROLLBACK", "BEGIN", "START", "XA", "LOCK", "UNLOCK"})
_BEGINS = frozenset({"BEGIN", "START"})


class ColumnReader(Protocol):
    """Reads columns of a capture, batch by batch, sorted by session and position; times are Unix microseconds."""

    def __call__(self, folder: Path, columns: Sequence[str]) -> Iterator[dict[str, list[object]]]:
        """Yield the batches."""
        ...


@dataclass(frozen=True, slots=True)
class CallSelection:
    """Which calls are chosen; empty is all. ``start`` inclusive, ``end`` exclusive, Unix microseconds.

    Times and ``limit`` choose whole transactions, by when they began. ``limit`` is the most calls, the earliest first.
    """

    sessions: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """What a run walks. ``folder`` holds the run file; all else are counts.

    ``kinds`` and ``skips`` count calls; ``writes`` those that may write when asked. ``span`` and ``idle`` are
    microseconds of captured time and how much of it is taken out. ``waits`` counts calls that wait for another
    session's, ``racy`` calls without an order among sessions, ``undefined`` calls on rows that racy writes left.
    ``joined`` counts calls that are asked although their session began before the capture; ``assumed`` says of these
    what was given or assumed of the session, and how many calls that concerns.
    """

    capture: str
    folder: Path
    hash: str
    calls: int
    sessions: int
    asked: int
    not_chosen: int
    kinds: Mapping[str, int] = field(default_factory=dict)
    skips: Mapping[str, int] = field(default_factory=dict)
    writes: int = 0
    digests: int = 0
    span: int = 0
    idle: int = 0
    waits: int = 0
    racy: int = 0
    undefined: int = 0
    untimed: int = 0
    joined: int = 0
    assumed: Mapping[str, int] = field(default_factory=dict)
    masked: bool = False
    first: int | None = None
    last: int | None = None
    choices: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        return {**asdict(self), "folder": str(self.folder)}


def load_plan(run: RunFile) -> ReplayPlan:
    """Return the plan of a run file.

    Raises PlanError: its planning did not come to its end.
    """
    body = run.fact("plan")
    names = {one.name for one in fields(ReplayPlan)}
    if body is None or not names <= set(body):
        raise PlanError(f"{run.folder} holds no whole plan of a replay", hint="Start a new replay.")
    return ReplayPlan(**{**{name: body[name] for name in names}, "folder": run.folder})


def read_plan(
    capture: Path,
    folder: Path,
    reader: ColumnReader,
    *,
    selection: CallSelection | None = None,
    leave: Leave | None = None,
    keys: Keys | None = None,
    dumps: Sequence[SessionDump] = (),
    database: str | None = None,
    idle: int | None = None,
    window: int = WINDOW,
    progress: Callable[[int], None] = lambda _: None,
) -> ReplayPlan:
    """Read a capture and write its plan into the run file of ``folder``, which is made anew.

    Parameters
    ----------
    reader
        ``migverify.workload.statement_files.read_columns``, or one like it.
    leave
        What the run may do beyond reading.
    keys
        Unique keys of the tables, for the order of writes.
    dumps, database
        What is known of sessions that began before the capture; see ``assumed.SessionFacts``.
    idle
        The longest time in microseconds in which nothing runs; longer ones are shortened. None keeps them.

    Raises UsageError: there is no capture, or nothing in it is chosen.
    """
    chosen, allowed = selection or CallSelection(), leave or Leave()
    summary = read_summary(capture)
    named = (str(name) for batch in reader(capture, ["session"]) for name in batch["session"]) if dumps else ()
    servers = {name.partition("/")[0] for name in named}
    facts = SessionFacts(dumps, database, sorted(servers), _moment(summary.get("first")))
    builder = _Builder(RunFileWriter(folder), chosen, allowed, keys or {}, facts)
    builder.unseen = bool(summary.get("formats")) and set(summary["formats"]) <= WITHOUT_CONNECTS
    for batch in reader(capture, COLUMNS):
        builder.take(batch)
        progress(builder.seen)
    with builder.finish() as run:
        if not builder.writer.count:
            raise _nothing_chosen(capture, chosen, builder.seen)
        run.change("BEGIN")
        if chosen.limit is not None:
            builder.not_chosen += _cut(run, chosen.limit)
        choices: dict[str, Any] = {"selection": asdict(chosen), "leave": asdict(allowed), "idle": idle}
        if dumps or database is not None:
            choices["assumed"] = {"database": database, "dumps": [one.as_json()["at"] for one in dumps]}
        plan = replace(
            _counted(run, capture, choices), not_chosen=builder.not_chosen, joined=builder.joined,
            assumed=dict(sorted(builder.assumed.items())), masked=bool(summary.get("masked")), choices=choices,
        )  # fmt: skip
        arranged = arrange(run, keys or {}, idle=idle, window=window, writes=plan.writes > 0)
        plan = replace(plan, **asdict(arranged))
        run.set_fact("plan", plan.as_json())
        run.change("COMMIT")
    return plan


def _counted(run: RunFile, capture: Path, choices: Mapping[str, Any]) -> ReplayPlan:
    """Return the counts of a run file's calls, and the hash of what is walked."""
    digest = hashlib.sha256(json.dumps(choices, sort_keys=True).encode())
    walked = (
        "SELECT name, start, end, skipped, body FROM calls JOIN statements ON call = id"
        " JOIN sessions ON number = session ORDER BY id"
    )
    for row in run.db.execute(walked):
        digest.update(repr(row).encode())
    kinds: Counter[str] = Counter()
    for meaning, count in run.counts("meaning"):
        kinds[meaning.classification.kind.value] += count
    skips = {reason: count for reason, count in run.counts("skipped") if reason}
    digests, writes, untimed, sessions, calls = run.db.execute(
        f"SELECT COUNT(DISTINCT digest), SUM(flags & {WRITES} > 0), SUM(flags & {UNTIMED} > 0),"  # noqa: S608
        " COUNT(DISTINCT session), COUNT(*) FROM calls"
    ).fetchone()
    return ReplayPlan(
        str(capture), run.folder, digest.hexdigest(), calls, sessions, calls - sum(skips.values()), 0,
        dict(kinds.most_common()), skips, writes, digests, untimed=untimed,
    )  # fmt: skip


def _nothing_chosen(capture: Path, selection: CallSelection, seen: int) -> UsageError:
    if not seen:
        return UsageError(f"{capture} holds no statement", hint="Capture again, from a log that has statements.")
    options = {
        "--session": selection.sessions, "--user": selection.users, "--digest": selection.digests,
        "--from": selection.start is not None, "--until": selection.end is not None,
    }  # fmt: skip
    names = [name for name, is_given in options.items() if is_given]
    return UsageError(
        f"nothing of {capture} is chosen: {seen:,} statements were looked at",
        hint=f"Check {' and '.join(names)}." if names else "",
    )


def read_summary(capture: Path) -> dict[str, Any]:
    """Return what a capture says of itself, empty where it says nothing."""
    path = capture / SUMMARY
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _moment(text: str | None) -> int | None:
    return None if text is None else round(datetime.fromisoformat(text).timestamp() * 1_000_000)


class _Builder:
    """Takes batches of a capture, writes the chosen calls of each session."""

    def __init__(
        self, writer: RunFileWriter, selection: CallSelection, leave: Leave, keys: Keys, facts: SessionFacts
    ) -> None:
        self.writer = writer
        self.seen = 0
        self.not_chosen = 0
        self.joined = 0
        self.assumed: Counter[str] = Counter()
        self._selection, self._leave, self._keys, self._facts = selection, leave, keys, facts
        self.unseen = False  # the format never tells a connect: any session may be older than the capture
        self._first_open = False  # a transaction may be open since before the capture
        self._chosen = 0  # calls of the session so far
        self._unfinished: list[range] = []
        self._meanings = Meanings("mysql", unique_keys=ordering_keys(keys))
        self._session = ""
        self._user: str | None = None
        self._first = 0
        self._unit_chosen = True
        self._clock = 0
        self._pending: tuple[Call, Meaning, str, int, int | None, int] | None = None

    def take(self, batch: Mapping[str, Sequence[Any]]) -> None:
        """Take in one batch."""
        columns = [batch[name] for name in COLUMNS]
        for row in zip(*columns, strict=True):
            self.seen += 1
            if row[0] != self._session:
                self._end_session()
                self._session, self._user = row[0], row[5]
                self._unit_chosen = self._first_open = True
            self._row(row)

    def _row(self, row: Sequence[Any]) -> None:
        (
            session, position, command, sql, database, user, start, end, clock, duration, errno, rows_sent,
            rows_affected, last_insert_id, parameters, charset, sql_mode, time_zone, autocommit, isolation,
            in_transaction, rest, partial, file, line,
        ) = row  # fmt: skip
        chosen = self._selection
        if (chosen.sessions and session not in chosen.sessions) or (chosen.users and user not in chosen.users):
            self.not_chosen += 1
            return
        state = SessionState(
            database, charset, sql_mode, time_zone, autocommit, isolation, bool(in_transaction), rest or ""
        )
        joined = self.unseen or BEGAN_BEFORE in (partial or "")
        unknown: frozenset[str] = frozenset()
        given: tuple[str, ...] = ()
        if joined:
            partial = "; ".join(one for one in (partial or "").split("; ") if one != BEGAN_BEFORE)
            state, unknown, given = self._facts.assume(session, state, user)
            if not self.unseen:
                self._first_transaction(sql)
        meaning = self._meanings.meaning(sql, Modes.of(state.sql_mode, state.charset))
        words = meaning.classification.words
        begins = not in_transaction or bool(words and words[0] in _BEGINS)
        if begins:
            moment = end if start is None else start
            self._unit_chosen = (
                (chosen.start is None and chosen.end is None) or moment is None
                or ((chosen.start is None or moment >= chosen.start) and (chosen.end is None or moment < chosen.end))
            )  # fmt: skip
        if not self._unit_chosen or (chosen.digests and not meaning.digest.startswith(chosen.digests)):
            self.not_chosen += 1
            return
        assumed = bearing(unknown, sql, meaning, state, self._keys)
        if "database" in assumed:
            partial = partial or NO_DATABASE
        elif assumed and self.unseen:
            assumed = (*assumed, FOR_DIFFERENCES)
        call = Call(
            session, position, sql, meaning.digest, state,
            Captured(errno, rows_sent, rows_affected, None if duration is None else round(duration * 1e6),
                     last_insert_id),
            start, end, clock,
            None if parameters is None else tuple(Parameter(one["kind"], one["value"]) for one in parameters),
            partial, user, f"{file}:{line}", command, assumed,
        )  # fmt: skip
        self._call(*self._unlocked(call, meaning), begins=begins)
        if joined and self._pending is not None and not self._pending[2]:
            self.joined += 1
            self.assumed.update([*given, *(f"{one} unknown" for one in unknown)])
            self.assumed.update(
                f"{one} assumed, and the answer may depend on it" for one in assumed if one != FOR_DIFFERENCES
            )

    def _first_transaction(self, sql: bytes) -> None:
        """Leave out what comes before a COMMIT without a BEGIN: its transaction began before the capture."""
        if not self._first_open:
            return
        word = first_word(sql)
        if word in ("begin", "start") or (word == "set" and b"autocommit" in sql.lower()):
            self._first_open = False
        elif word in ("commit", "rollback") and not _TO_SAVEPOINT.search(sql):
            self._first_open = False
            self._unfinished.append(range(self._first, self._first + self._chosen))

    def _unlocked(self, call: Call, meaning: Meaning) -> tuple[Call, Meaning]:
        """Return a locking read that may not lock without its locking clause; everything else as it is."""
        if not meaning.classification.locking or self._leave.locking or self._leave.writes or call.partial:
            return call, meaning
        return without_locks(call, meaning, self._meanings, self._leave)

    def _call(self, call: Call, meaning: Meaning, *, begins: bool) -> None:
        skipped = self._why_not(call, meaning)
        found = meaning.classification
        flags = FIRST_OF_UNIT if begins else 0
        flags |= WRITES if not skipped and (found.may_write or found.locking) else 0
        flags |= COMMITS if _ENDS & set(found.words) or found.kind in _COMMITTING else 0
        looks = call.clock is not None or found.volatile & TIME
        if looks or (found.may_write and writes_time(meaning, call.state.database, self._keys)):
            flags |= CLOCKED
        flags |= UNTIMED if call.start is None and call.end is None else 0
        start = call.start
        if start is None:
            start = self._clock if call.end is None else max(self._clock, call.end - UNKNOWN_DURATION)
        start = max(start, self._clock)
        self._write(start)
        self._chosen += 1
        self._clock = start if call.end is None else max(start, call.end)
        self._pending = (call, meaning, skipped, start, call.end, flags)

    def _why_not(self, call: Call, meaning: Meaning) -> str:
        reason = self._refused(call, meaning)
        return with_remedy(reason) if reason else ""

    def _refused(self, call: Call, meaning: Meaning) -> str:
        if call.partial:
            return call.partial
        if call.command == Command.PREPARE.value:
            return FAILED_PREPARE
        if self._selection.digests and call.state.transaction and meaning.classification.may_write:
            return NOT_WHOLE
        return refusal(call, meaning.classification, self._leave)

    def _write(self, following: int | None) -> None:
        """Write the call before this one, now that it is known when the next began."""
        if self._pending is None:
            return
        call, meaning, skipped, start, end, flags = self._pending
        if end is None:
            end = start + UNKNOWN_DURATION if following is None else min(following, start + UNKNOWN_DURATION)
        self.writer.add(call, meaning, skipped, start, max(start, end), flags)
        self._pending = None

    def _end_session(self) -> None:
        self._write(None)
        self.writer.end_session(self._session, self._user)
        self._first = self.writer.count
        self._clock = self._chosen = 0

    def finish(self) -> RunFile:
        """Write what is left, and leave out transactions that began before the capture."""
        self._end_session()
        for calls in self._unfinished:
            self.writer.leave_out(calls, FIRST_TRANSACTION)
        return self.writer.close()


def without_locks(call: Call, meaning: Meaning, meanings: Meanings, leave: Leave) -> tuple[Call, Meaning]:
    """Return a locking read without its locking clause, where what is left may be asked; else as it is."""
    sql = unlocked(call.sql)
    if sql is None:
        return call, meaning
    read = meanings.meaning(sql, Modes.of(call.state.sql_mode, call.state.charset))
    changed = replace(call, sql=sql, note=UNLOCKED)
    if refusal(changed, read.classification, leave):
        return call, meaning
    return changed, replace(read, digest=meaning.digest, text=meaning.text)


_TO_SAVEPOINT = re.compile(rb"\bto\b", re.IGNORECASE)
_COMMITTING = frozenset({StatementKind.DDL, StatementKind.ADMINISTRATIVE, StatementKind.UNKNOWN})


def _cut(run: RunFile, limit: int) -> int:
    """Keep the transactions among the first ``limit`` calls by time; return how many calls were dropped."""
    last = run.db.execute("SELECT start FROM calls ORDER BY start LIMIT 1 OFFSET ?", (limit - 1,)).fetchone()
    if last is None:
        return 0
    chosen = 0
    dropped: list[tuple[int]] = []
    for unit, start, count in run.db.execute(
        "SELECT unit, MIN(start), COUNT(*) FROM calls GROUP BY unit ORDER BY unit"
    ):
        if start <= last[0] and chosen < limit:
            chosen += count
        else:
            dropped.append((unit,))
    before = run.count
    run.db.executemany("DELETE FROM statements WHERE call IN (SELECT id FROM calls WHERE unit = ?)", dropped)
    run.db.executemany("DELETE FROM calls WHERE unit = ?", dropped)
    run.change("DELETE FROM sessions WHERE number NOT IN (SELECT session FROM calls)")
    return before - chosen
