"""Shares of a capture's sessions: runs are merged, copies dropped, records put into sessions and statements written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

from migverify.workload.formats.audit import settled
from migverify.workload.formats.statements import CUT
from migverify.workload.model import UNKNOWN, Command, Record
from migverify.workload.private import private_folder
from migverify.workload.runs import (
    CONTENT,
    DATABASE,
    DETAILS,
    NUMBER,
    PARTIAL,
    SQL,
    Run,
    RunEntry,
    SessionKey,
    merged,
    unpack,
)
from migverify.workload.sessions import SessionStatement, in_sessions
from migverify.workload.statement_files import StatementFiles
from migverify.workload.tasks import without_collections

EVENTS = "_events"
_NUMBERED = frozenset({"audit", "das"})
"""Formats whose numbers are ids of the server; those of others are places in the file."""


@dataclass(frozen=True, slots=True)
class ShareTask:
    """The sessions from ``low`` to below ``high``, and what is known of the files they come from.

    ``connects``: servers whose files have connects; None: all log them. ``cut_at``: see ``audit.settled``; None: no
    audit logs. ``overlaps``: pairs of ranks of files without exact times that are of the same time.
    """

    folder: Path
    runs: tuple[Run, ...]
    secret: bytes
    low: SessionKey | None
    high: SessionKey | None
    form: str
    files: int
    connects: frozenset[str] | None
    cut_at: Mapping[str, int] | None
    overlaps: frozenset[tuple[int, int]]
    mask: Callable[[SessionStatement], SessionStatement] | None
    text_mask: Callable[[bytes], bytes] | None


@dataclass(slots=True)
class ShareResult:
    """What was written. ``duplicates`` counts records that another file has too, by the rank of the file left out."""

    statements: int = 0
    sessions: int = 0
    partial_statements: int = 0
    partial: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    duplicates: Counter[int] = field(default_factory=Counter)


@without_collections()
def write_share(task: ShareTask) -> ShareResult:
    """Write the statements of a share into ``task.folder``, other commands under ``_events`` there."""
    result = ShareResult()
    private_folder(task.folder, exist_ok=True)
    entries = merged(task.runs, task.secret, task.low, task.high)
    if task.files > 1:
        entries = unique(entries, task, result.duplicates)
    records: Iterator[Record] = (unpack(one.packed, one.run.line, one.run.database, UNKNOWN) for one in entries)
    if task.cut_at is not None:
        records = settled(records, lambda server: (task.cut_at or {}).get(server, 0))
    connects = task.connects
    statements = in_sessions(
        records, connects=lambda server: connects is None or server in connects, mask=task.text_mask,
        folder=task.folder,
    )  # fmt: skip
    _write(statements, task, result)
    return result


def _write(found: Iterable[SessionStatement], task: ShareTask, result: ShareResult) -> None:
    statements, events = StatementFiles(task.folder), StatementFiles(task.folder / EVENTS)
    session = ""
    mask = task.mask
    for statement in found:
        record = statement.record
        if statement.session != session:
            session = statement.session
            result.sessions += record.command is not Command.FAILED_CONNECT
        result.commands[record.command.value] += 1
        if mask is not None:
            statement = mask(statement)
        if not is_statement(record):
            events.add(statement)
            continue
        statements.add(statement)
        result.statements += 1
        if statement.partial:
            result.partial_statements += 1
            result.partial.update(statement.partial.split("; "))
    statements.close()
    events.close()


def is_statement(record: Record) -> bool:
    """Did the client ask for an answer that can be compared? A failed prepare is one too: its answer is the error."""
    return record.command in (Command.QUERY, Command.EXECUTE) or (
        record.command is Command.PREPARE and bool(record.errno)
    )


def unique(entries: Iterable[RunEntry], task: ShareTask, dropped: Counter[int]) -> Iterator[RunEntry]:
    """Yield sorted entries, those that several files hold once.

    A record is the same if all that the log says of it is. One file may hold it several times: as many are kept as the
    file with the most of them has. Where times are whole seconds, equal records are copies only if the files overlap by
    more than the second in which one was rotated.
    """
    for _, group in groupby(entries, key=_moment):
        same = list(group)
        if len(same) == 1 or len({one.key[5] for one in same}) == 1:
            yield from same
        else:
            yield from _unique_of(same, task, dropped)


def _moment(entry: RunEntry) -> tuple[object, ...]:
    return entry.key[:4]


def _unique_of(same: list[RunEntry], task: ShareTask, dropped: Counter[int]) -> Iterator[RunEntry]:
    counts: dict[tuple[object, ...], Counter[int]] = {}
    numbered = task.form in _NUMBERED
    for entry in same:
        rank, packed = entry.key[5], entry.packed
        identity = (*((packed[NUMBER], packed[DATABASE]) if numbered else ()), *packed[CONTENT:])
        seen = counts.setdefault(identity, Counter())
        seen[rank] += 1
        exact = numbered or "time" not in packed[DETAILS]
        others = [
            count for other, count in seen.items() if other != rank and (exact or (other, rank) in task.overlaps)
        ]  # fmt: skip
        if seen[rank] <= max(others, default=0) or (packed[PARTIAL] == CUT and _is_whole_in(entry, same)):
            dropped[rank] += 1
        else:
            yield entry


def _is_whole_in(cut: RunEntry, same: list[RunEntry]) -> bool:
    """Tell whether another file has the whole of a record that the end of its file cut."""
    packed = cut.packed
    return any(
        other.key[5] != cut.key[5] and other.packed[PARTIAL] != CUT and other.packed[SQL].startswith(packed[SQL])
        and other.packed[CONTENT:SQL] + other.packed[SQL + 1 :] == packed[CONTENT:SQL] + packed[SQL + 1 :]
        for other in same
    )  # fmt: skip
