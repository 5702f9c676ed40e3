"""Files and captures -> conflicts, and the statements around them. Files are read twice, never held.

The first reading finds conflicts; the second keeps statements near them only. Both are bounded, and what was left out
is counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, TypeAlias

from migverify.errors import UsageError
from migverify.workload.conflict import tidblog
from migverify.workload.conflict.keys import TidbKey
from migverify.workload.conflict.message import parse
from migverify.workload.conflict.model import LATEST, SeenStatement, TransactionConflict, tso_time
from migverify.workload.lines import open_log
from migverify.workload.model import text_of
from migverify.workload.replay.model import JudgedCall
from migverify.workload.replay.outcomes import judged
from migverify.workload.replay.runfile import RUN_FILE, RunFile

AROUND = 60_000_000
"""Microseconds before and after a conflict in which statements are kept."""
MOST_STATEMENTS = 200_000
_COLUMNS = (
    "session", "sql", "start", "end", "user", "host", "database", "errno", "autocommit", "in_transaction",
    "source_file", "source_line", "command", "details",
)  # fmt: skip


@dataclass(slots=True)
class ConflictFindings:
    """What the first reading found. ``repeated`` counts further lines of conflicts already known."""

    conflicts: list[TransactionConflict] = field(default_factory=list)
    lines: int = 0
    repeated: int = 0
    left_out: int = 0


@dataclass(slots=True)
class Near:
    """Statements near the conflicts; ``left_out`` were too many."""

    statements: list[SeenStatement] = field(default_factory=list)
    read: int = 0
    left_out: int = 0


@contextmanager
def _lines(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_log(str(path)) as file:
            yield file
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"cannot read {path}: {reason}.", hint="Name a log file of TiDB.") from error


def _is_slow(path: Path) -> bool:
    with _lines(path) as file:
        return tidblog.is_slow_log(file.read(65_536))


def find(files: Sequence[Path], most: int) -> ConflictFindings:
    """Return the conflicts that logs tell of: errors in the order of the files, then the longest waits.

    Parameters
    ----------
    most
        How many to keep; the others are counted.
    """
    found = ConflictFindings()
    errors: dict[tuple[object, ...], TransactionConflict] = {}
    waiting: list[TransactionConflict] = []
    for path in files:
        slow = _is_slow(path)
        with _lines(path) as file:
            counted = _count(file, found)
            if slow:
                for seen in tidblog.slow_statements(counted, path.name):
                    met = tidblog.waiting_reads(seen)
                    if met is not None:
                        waiting.append(met)
                        if len(waiting) > 4 * most:
                            found.left_out += _keep_longest(waiting, most)
            else:
                for conflict in tidblog.log_conflicts(counted, path.name):
                    _merge(errors, conflict, found)
    conflicts = list(errors.values())
    found.left_out += max(len(conflicts) - most, 0)
    conflicts = conflicts[:most]
    room = most - len(conflicts)
    found.left_out += _keep_longest(waiting, room)
    found.conflicts = conflicts + waiting
    return found


def _count(lines: Iterable[bytes], found: ConflictFindings) -> Iterator[bytes]:
    for line in lines:
        found.lines += 1
        yield line


def _keep_longest(waiting: list[TransactionConflict], most: int) -> int:
    left = max(len(waiting) - most, 0)
    waiting.sort(key=lambda one: -(one.waited or 0))
    del waiting[most:]
    return left


def _merge(
    errors: dict[tuple[object, ...], TransactionConflict], conflict: TransactionConflict, found: ConflictFindings
) -> None:
    """Keep one conflict for the several lines TiDB writes of it, with what each of them adds."""
    name = (
        conflict.kind,
        conflict.code,
        conflict.start,
        conflict.other_start,
        conflict.key,
        conflict.start is None and conflict.where,
    )
    known = errors.get(name)
    if known is None:
        errors[name] = conflict
        return
    found.repeated += 1
    errors[name] = replace(
        known, session=known.session or conflict.session, sql=known.sql or conflict.sql,
        user=known.user or conflict.user, at=known.at or conflict.at,
    )  # fmt: skip


def messages(text: str) -> list[TransactionConflict]:
    """Return the conflicts of a text that holds messages: one, or one a line."""
    whole = parse(text)
    found = [one for line in text.splitlines() if (one := tidblog.of_text(line)) is not None]
    if len(found) > 1:
        return found
    return found if found and whole is not None and found[0].start == whole.start else [whole] if whole else found


class Nearness:
    """Tells whether a statement belongs to one of the conflicts, by its transaction or its time."""

    def __init__(self, conflicts: Sequence[TransactionConflict]) -> None:
        self._transactions = {one.start for one in conflicts} | {one.other_start for one in conflicts}
        self._transactions -= {None, LATEST}
        windows = []
        for one in conflicts:
            tsos = (one.start, one.other_start, one.other_commit)
            times = [tso_time(tso) for tso in tsos if tso is not None and tso != LATEST]
            if one.at is not None:
                times.append(one.at)
            if one.seen is not None and one.seen.end is not None:
                times.append(one.seen.end)
            if times:
                windows.append((min(times) - AROUND, max(times) + AROUND))
        self._windows: list[tuple[int, int]] = []
        for low, high in sorted(windows):
            if self._windows and low <= self._windows[-1][1]:
                self._windows[-1] = (self._windows[-1][0], max(self._windows[-1][1], high))
            else:
                self._windows.append((low, high))

    def by_end(self, answered: int, start: int | None) -> bool:
        """Tell whether a statement that was answered then can be near: it began before, nobody knows how long."""
        return start in self._transactions or any(begin <= answered for begin, _ in self._windows)

    def __call__(self, seen: SeenStatement) -> bool:
        """Tell it of one statement."""
        if seen.txn in self._transactions:
            return True
        if seen.begin is None or seen.end is None:
            return False
        return any(begin <= seen.end and seen.begin <= end for begin, end in self._windows)


def statements_near(files: Sequence[Path], captures: Sequence[Path], conflicts: Sequence[TransactionConflict]) -> Near:
    """Return what slow logs and captures show near the conflicts."""
    near = Near()
    is_near = Nearness(conflicts)
    for path in files:
        if _is_slow(path):
            with _lines(path) as file:
                _keep(tidblog.slow_statements(file, path.name, is_near.by_end), is_near, near)
    for folder in captures:
        _keep(_captured(folder), is_near, near)
    return near


def _keep(statements: Iterable[SeenStatement], is_near: Nearness, near: Near) -> None:
    for one in statements:
        near.read += 1
        if is_near(one):
            if len(near.statements) < MOST_STATEMENTS:
                near.statements.append(one)
            else:
                near.left_out += 1


def _captured(folder: Path) -> Iterator[SeenStatement]:
    from migverify.workload.statement_files import read_rows  # late: it needs pyarrow

    for value in read_rows(folder, _COLUMNS):
        if value["command"] in ("query", "execute") and value["sql"]:
            yield _seen(value)


def _seen(value: dict[str, Any]) -> SeenStatement:
    """Return a captured statement. Details of TiDB's own formats name the transaction."""
    details = json.loads(value["details"]) if value["details"] else {}
    folded = {str(name).lower(): text for name, text in details.items()}
    txn = str(folded.get("txn_start_ts") or folded.get("start_ts") or "")
    outside = value["in_transaction"] is False and value["autocommit"] is True
    explicit = True if value["in_transaction"] else False if outside else None
    return SeenStatement(
        f"{value['source_file']}:{value['source_line']}", str(value["session"]), value["start"],
        value["end"] if value["end"] is not None else value["start"], value["sql"],
        value["user"] or "", value["host"] or "", value["database"] or "",
        int(txn) if txn.isdigit() and int(txn) else None,
        None if value["errno"] is None else value["errno"] == 0, value["errno"], explicit=explicit,
    )  # fmt: skip


def replay_conflicts(folder: Path) -> Iterator[TransactionConflict]:
    """Yield the conflicts of a replay's folder, each with the captured statement and session it is of.

    Raises
    ------
    UsageError
        the folder holds no replay.
    PlanError
        its run file is damaged, or of an earlier release.
    """
    if not any((folder / name).exists() for name in (RUN_FILE, "plan")):
        raise UsageError(f"{folder} holds no replay.", hint="Name the folder that `workload replay` wrote.")
    with RunFile(folder) as run:
        for index, one in judged(run):
            found = _conflict(one)
            if found is not None:
                call = run.read(index).call
                yield replace(
                    found, where=f"replay of session {one.session}, position {one.position} ({call.origin})",
                    sql=text_of(call.sql), user=call.user or "",
                )  # fmt: skip


def is_whole(folder: Path) -> bool:
    """Tell whether a replay ended, with an outcome of each call: only then it shows that there is no conflict."""
    with RunFile(folder) as run:
        ended = sum(1 for _ in judged(run))
        return run.fact("plan") is not None and not run.fact("stop") and 0 < run.count == ended


def _conflict(one: JudgedCall) -> TransactionConflict | None:
    # the target's words; they are cut at a few hundred characters, behind the times and the key
    texts = (each.target for each in one.differences if each.aspect == "error")
    return next((found for text in texts if (found := parse(text)) is not None), None)


Query: TypeAlias = Callable[[str], list[tuple[str | None, ...]]]
"""``connect.Session.query``."""

_TABLE = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TIDB_TABLE_ID = {}"
_PARTITION = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.PARTITIONS WHERE TIDB_PARTITION_ID = {}"
_INDEX = (
    "SELECT DISTINCT i.KEY_NAME FROM information_schema.TIDB_INDEXES i JOIN information_schema.TABLES t"
    " ON t.TABLE_SCHEMA = i.TABLE_SCHEMA AND t.TABLE_NAME = i.TABLE_NAME WHERE t.TIDB_TABLE_ID = {} AND i.INDEX_ID = {}"
)


class IdNames:
    """Asks once for each id. A table that was dropped or truncated since has no name any more."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._tables: dict[int, str] = {}
        self._indexes: dict[tuple[int, int], str] = {}

    def table(self, number: int) -> str:
        """Return database.table, ``""`` where no table has the id."""
        if number not in self._tables:
            rows = self._query(_TABLE.format(number)) or self._query(_PARTITION.format(number))
            self._tables[number] = ".".join(part or "" for part in rows[0]) if rows else ""
        return self._tables[number]

    def index(self, table: int, number: int) -> str:
        """Return the index's name, ``""`` where there is none (a partition's index ids are its table's)."""
        key = (table, number)
        if key not in self._indexes:
            rows = self._query(_INDEX.format(table, number))
            self._indexes[key] = rows[0][0] or "" if rows else ""
        return self._indexes[key]

    def name(self, key: TidbKey | None) -> TidbKey | None:
        """Return a key with its names."""
        if key is None or key.table_id is None:
            return key
        index = self.index(key.table_id, key.index_id) if key.index_id is not None else ""
        return key.named(key.table or self.table(key.table_id), index)


def with_names(found: Iterable[TransactionConflict], query: Query | None) -> list[TransactionConflict]:
    """Return conflicts whose keys have names."""
    if query is None:
        return list(found)
    names = IdNames(query)
    return [replace(one, key=names.name(one.key), primary=names.name(one.primary)) for one in found]
