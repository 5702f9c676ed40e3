"""Hashes of a journal that were told to the outside: what shows that somebody rewrote the whole file later.

A chain of hashes shows any edit, unless whoever owns the file chains all of it anew. Then the hashes that stand in a
chat, a mailbox or a log on another machine are not those of the file any more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from migverify.runbook.events import Event, EventKind
from migverify.runbook.record.journal import Problem

__all__ = ["Chain", "Head", "check_heads", "head_text", "heads_in"]

_HEAD = re.compile(r"\bHEAD (\S+) (\d{1,12}) ([0-9a-f]{64})\b")


@dataclass(frozen=True, slots=True)
class Head:
    """The hash of event ``seq`` (from 0) of a run's journal, as it was told."""

    run: str
    seq: int
    sha: str


def head_text(head: Head) -> str:
    """Return a head as it stands in an announcement; ``heads_in`` finds it there."""
    return f"HEAD {head.run} {head.seq} {head.sha}"


def heads_in(text: str) -> list[Head]:
    """Return the heads that stand in a text: a saved channel, a file sink, a mail."""
    return [Head(run, int(seq), sha) for run, seq, sha in _HEAD.findall(text)]


class Chain:
    """Hashes of the events read so far, to hold the journal's own HEAD events against them."""

    def __init__(self) -> None:
        self.shas: list[str] = []
        self.run = ""

    def take(self, event: Event) -> str:
        """Read the next event; returns what is wrong with the head it tells, empty: nothing."""
        why = ""
        if event.kind is EventKind.HEAD:
            seq, sha = event.data.get("seq"), event.data.get("sha")
            if type(seq) is not int or not 0 <= seq < len(self.shas):
                why = f"it tells the hash of event {seq}, which does not stand before it"
            elif sha != self.shas[seq]:
                why = f"it tells another hash of event {seq} than line {seq + 1} has"
        self.shas.append(event.sha)
        self.run = event.run
        return why


def check_heads(events: Iterable[Event], told: Iterable[Head] | None = None) -> list[Problem]:
    """Hold announced heads against a journal's chain, and return what is wrong; empty: nothing.

    Parameters
    ----------
    told
        Heads from outside the journal (``heads_in``); None: only those that the journal itself says it told, which
        whoever rewrites the file may have rewritten, too.
    """
    chain, problems = Chain(), list[Problem]()
    for event in events:
        why = chain.take(event)
        if why:
            problems.append(Problem(event.seq + 1, why))
    if told is None:
        return problems
    heads = list(told)
    own = [head for head in heads if head.run == chain.run]
    if not own:
        problems.append(Problem(0, f"none of the {len(heads)} heads that were told is of run {chain.run}"))
    for head in own:
        if head.seq >= len(chain.shas):
            problems.append(Problem(len(chain.shas), f"event {head.seq} was told to the outside, and is missing"))
        elif chain.shas[head.seq] != head.sha:
            text = (
                f"event {head.seq} was told to the outside as {head.sha[:12]}, and is {chain.shas[head.seq][:12]} now"
            )
            problems.append(Problem(head.seq + 1, text))
    return problems
