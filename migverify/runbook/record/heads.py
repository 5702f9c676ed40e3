"""Hashes of journals that are known elsewhere: what shows that a journal was rewritten, or that a run was removed.

A chain of hashes shows any edit, unless whoever owns the journal chains all of it anew. Then the hashes that were
announced to a chat, a mailbox or a log on another machine differ from its own. The first event of each run also has
the head of the run begun before it, and a folder of runs has a list of those that were begun (``heads``): a run that
was removed is named by them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from migverify.errors import JournalError, StoreError
from migverify.runbook.events import Event, EventKind
from migverify.runbook.record.chain import JournalProblem
from migverify.runbook.record.locks import open_own

__all__ = [
    "HEADS",
    "PREVIOUS",
    "Head",
    "HeadChecker",
    "check_heads",
    "head_text",
    "heads_in",
    "is_chained",
    "note_begun",
    "previous_of",
    "runs_begun",
]  # fmt: skip

PREVIOUS = "previous"
"""Key of the first event's data: the head of the run begun before it, null for the first run of a store."""
HEADS = "heads"
"""File of a folder of runs: a line ``HEAD run 0 hash`` for each run that was begun in it."""
_HEAD = re.compile(r"\bHEAD (\S+) (\d{1,12}) ([0-9a-f]{64})\b")


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of event ``seq`` (from 0) of a run's journal, as it was announced."""

    run: str
    seq: int
    sha: str


def head_text(head: Head) -> str:
    """Return a head as an announcement has it; ``heads_in`` finds it there."""
    return f"HEAD {head.run} {head.seq} {head.sha}"


def heads_in(text: str) -> list[Head]:
    """Return the heads that a text holds: a saved channel, a file sink, a mail."""
    return [Head(run, int(seq), sha) for run, seq, sha in _HEAD.findall(text)]


class HeadChecker:
    """Hashes of the events read so far, to compare the journal's own HEAD events with."""

    def __init__(self) -> None:
        self.shas: list[str] = []
        self.run = ""

    def take(self, event: Event) -> str:
        """Read the next event; returns what is wrong with the head it names, empty: nothing."""
        why = ""
        if event.kind is EventKind.HEAD:
            seq, sha = event.data.get("seq"), event.data.get("sha")
            if type(seq) is not int or not 0 <= seq < len(self.shas):
                why = f"it names the hash of event {seq}, which does not stand before it"
            elif sha != self.shas[seq]:
                why = f"it names another hash of event {seq} than line {seq + 1} has"
        self.shas.append(event.sha)
        self.run = event.run
        return why


def check_heads(events: Iterable[Event], announced: Iterable[Head] | None = None) -> list[JournalProblem]:
    """Compare announced heads with a journal's chain, and return what is wrong; empty: nothing.

    Parameters
    ----------
    announced
        Heads from outside the journal (``heads_in``); None: only those that the journal itself says it announced, which
        whoever rewrites the file may have rewritten, too.
    """
    chain, problems = HeadChecker(), list[JournalProblem]()
    for event in events:
        why = chain.take(event)
        if why:
            problems.append(JournalProblem(event.seq + 1, why))
    if announced is None:
        return problems
    heads = list(announced)
    own = [head for head in heads if head.run == chain.run]
    if not own:
        problems.append(JournalProblem(0, f"none of the {len(heads)} heads that were announced is of run {chain.run}"))
    for head in own:
        if head.seq >= len(chain.shas):
            problems.append(JournalProblem(len(chain.shas), f"event {head.seq} was announced, and is missing"))
        elif chain.shas[head.seq] != head.sha:
            text = f"event {head.seq} was announced as {head.sha[:12]}, and is {chain.shas[head.seq][:12]} now"
            problems.append(JournalProblem(head.seq + 1, text))
    return problems


# -- runs begun one after the other -----------------------------------------------------------------------------------


def is_chained(first: Event) -> bool:
    """Tell whether a run's first event says which run was begun before it; earlier releases did not write that."""
    return PREVIOUS in first.data


def previous_of(first: Event) -> Head | None:
    """Return the head of the run begun before; None: there was none, or the first event does not say.

    Raises JournalError: what it says is no head.
    """
    before: Any = first.data.get(PREVIOUS)
    if before is None:
        return None
    try:
        run, seq, sha = before["run"], before["seq"], before["sha"]
    except (TypeError, KeyError):
        run, seq, sha = None, None, None
    if not isinstance(run, str) or type(seq) is not int or not isinstance(sha, str):
        raise JournalError(f"line 1: the run begun before {first.run} is not named by a head")
    return Head(run, seq, sha)


def runs_begun(folder: Path) -> list[Head]:
    """Return the first heads of all runs begun in a folder, in their order; empty: it has no list.

    Raises StoreError: the list cannot be read.
    """
    path = folder / HEADS
    if not path.exists() and not path.is_symlink():
        return []
    try:
        with os.fdopen(open_own(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
            return heads_in(file.read())
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def note_begun(folder: Path, first: Event) -> None:
    """Append a run that was begun to the folder's list.

    Raises StoreError: the list cannot be written.
    """
    line = head_text(Head(first.run, first.seq, first.sha)) + "\n"
    try:
        handle = open_own(folder / HEADS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        with os.fdopen(handle, "a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StoreError(f"{folder / HEADS} cannot be written: {error.strerror}") from error
