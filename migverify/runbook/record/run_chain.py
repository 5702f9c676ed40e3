"""The chain of the runs of one store: the first event of each run carries the head of the run begun before it.

Order is that of the chain, never that of clocks. A run whose folder was removed leaves a gap: the run begun after it
names it, and so does the folder's own list of runs (``heads``), to which every run is appended when it begins.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from migverify.errors import JournalError, StoreError
from migverify.runbook.events import Event
from migverify.runbook.record.heads import Head, head_text, heads_in
from migverify.runbook.record.journal import NAME, Reader

__all__ = [
    "HEADS",
    "PREVIOUS",
    "first_events",
    "in_order",
    "is_chained",
    "last_head",
    "note_begun",
    "previous_of",
    "runs_begun",
]

PREVIOUS = "previous"
"""Key of the first event's data: the head of the run begun before it, null for the first run of a store."""
HEADS = "heads"
"""File of a folder of runs: a line ``HEAD run 0 hash`` for each run that was begun in it."""


def is_chained(first: Event) -> bool:
    """Tell whether a run's first event says which run was begun before it; earlier releases did not write that."""
    return PREVIOUS in first.data


def previous_of(first: Event) -> Head | None:
    """Return the head of the run begun before; None: there was none, or the first event does not say.

    Raises
    ------
    JournalError
        what it says is no head.
    """
    told: Any = first.data.get(PREVIOUS)
    if told is None:
        return None
    try:
        run, seq, sha = told["run"], told["seq"], told["sha"]
    except (TypeError, KeyError):
        run, seq, sha = None, None, None
    if not isinstance(run, str) or type(seq) is not int or not isinstance(sha, str):
        raise JournalError(f"line 1: the run begun before {first.run} is not named by a head")
    return Head(run, seq, sha)


def in_order(firsts: Mapping[str, Event]) -> list[str]:
    """Return runs in the order in which they were begun: each after the run that its first event names.

    The clock decides only between runs of which neither follows the other.
    """
    after: dict[str, list[str]] = {}
    free: list[tuple[float, str]] = []
    for run, first in firsts.items():
        before = _named(first)
        if before in firsts and before != run:
            after.setdefault(before, []).append(run)
        else:
            free.append((first.wall, run))
    heapq.heapify(free)
    order = []
    while free:
        _, run = heapq.heappop(free)
        order.append(run)
        for one in after.get(run, ()):
            heapq.heappush(free, (firsts[one].wall, one))
    # Runs that name each other in a circle come last: none of them can have been first.
    return [*order, *sorted(firsts.keys() - set(order))]


def _named(first: Event) -> str:
    try:
        before = previous_of(first)
    except JournalError:
        return ""
    return before.run if before is not None else ""


def runs_begun(folder: Path) -> list[Head]:
    """Return the first heads of all runs begun in a folder, in their order; empty: it has no list.

    Raises
    ------
    StoreError
        the list cannot be read.
    """
    try:
        return heads_in((folder / HEADS).read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{folder / HEADS} cannot be read: {error.strerror}") from error


def first_events(folder: Path) -> dict[str, Event | None]:
    """Return the first event of each run of a folder; None: it is damaged. Without an acknowledged line it is no run.

    Raises
    ------
    StoreError
        the folder cannot be read.
    """
    try:
        journals = sorted(folder.glob(f"*/{NAME}")) if folder.exists() else []
    except OSError as error:
        raise StoreError(f"{folder} cannot be read: {error.strerror}") from error
    found: dict[str, Event | None] = {}
    for journal in journals:
        try:
            first = next(Reader(journal).new(), None)
        except JournalError:
            found[journal.parent.name] = None  # it is listed, so that whoever opens it learns what is wrong
        else:
            if first is not None:
                found[journal.parent.name] = first
    return found


def last_head(folder: Path) -> Head | None:
    """Return the head, as it is now, of the run begun last in a folder; None: it has no run.

    A run that is gone, and was begun last by the folder's list, stays named by its first head.
    """
    firsts, begun = {run: one for run, one in first_events(folder).items() if one is not None}, runs_begun(folder)
    if begun and begun[-1].run not in firsts:
        return begun[-1]
    order = in_order(firsts)
    head = None
    with suppress(JournalError):  # as far as it can be read
        for event in Reader(folder / order[-1] / NAME).new() if order else ():
            head = Head(order[-1], event.seq, event.sha)
    return head


def note_begun(folder: Path, first: Event) -> None:
    """Append a run that was begun to the folder's list.

    Raises
    ------
    StoreError
        the list cannot be written.
    """
    line = head_text(Head(first.run, first.seq, first.sha)) + "\n"
    try:
        with (folder / HEADS).open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{folder / HEADS} cannot be written: {error.strerror}") from error
