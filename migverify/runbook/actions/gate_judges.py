"""What the gates of a cutover conclude from what they read. Pure: readings come in, a value comes out.

Each function answers with a value that is compared with bounds. What was not read, or was read in part, has no value:
a gate that does not know holds the run. The functions are the same whether servers or a simulation were read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Any

from migverify.figures import amount

__all__ = [
    "BarrierRow",
    "Canary",
    "GateResult",
    "NextId",
    "Open",
    "WriteProbe",
    "WriteProbeResult",
    "above",
    "accepted",
    "arrived",
    "nothing_open",
    "quiet",
    "refused",
    "stable",
    "stopped",
]  # fmt: skip

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class GateResult:
    """What a gate concludes: ``value`` None is no data. ``threshold`` says in words what passes."""

    value: float | str | None
    text: str
    threshold: str
    facts: dict[str, Any] = field(default_factory=dict)


class WriteProbeResult(StrEnum):
    """What a server did with a probe of writing. Unreachable, a lock, an unknown error: UNKNOWN."""

    REFUSED = "refused"
    ACCEPTED = "accepted"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class WriteProbe:
    """One probe of writing at one server."""

    server: str
    what: str
    result: WriteProbeResult
    words: str = ""


def refused(attempts: Sequence[WriteProbe]) -> GateResult:
    """Return how many probes were *not* refused; one that is accepted counts, one that is unknown leaves no value."""
    return _attempts(attempts, WriteProbeResult.REFUSED, WriteProbeResult.ACCEPTED)


def accepted(attempts: Sequence[WriteProbe]) -> GateResult:
    """Return how many probes were *not* accepted."""
    return _attempts(attempts, WriteProbeResult.ACCEPTED, WriteProbeResult.REFUSED)


def _attempts(attempts: Sequence[WriteProbe], expected: WriteProbeResult, bad: WriteProbeResult) -> GateResult:
    facts = {"attempts": [{"server": a.server, "what": a.what, "told": a.result.value, "words": a.words}
                          for a in attempts]}  # fmt: skip
    threshold = f"every probe of writing is {expected.value} at every server"
    wrong = [a for a in attempts if a.result is bad]
    unknown = [a for a in attempts if a.result is WriteProbeResult.UNKNOWN]
    if not attempts:
        return GateResult(None, "nothing was probed", threshold, facts)
    if wrong:
        return GateResult(len(wrong), f"{len(wrong)} of {len(attempts)} {bad.value}: {_shown(wrong)}", threshold, facts)
    if unknown:
        text = f"{len(unknown)} of {len(attempts)} without an answer: {_shown(unknown)}"
        return GateResult(None, text, threshold, facts)
    servers = sorted({a.server for a in attempts})
    return GateResult(0, f"{len(attempts)} probes {expected.value} at {', '.join(servers)}", threshold, facts)


def _shown(attempts: Sequence[WriteProbe]) -> str:
    shown = [f"{a.server}: {a.what}{f' ({a.words})' if a.words else ''}" for a in attempts[:_SHOWN]]
    return "; ".join(shown) + (" ..." if len(attempts) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Open:
    """Something that is open: a session, a transaction (``age`` in seconds), a statement of DDL."""

    server: str
    what: str
    age: float | None = None


def nothing_open(found: Sequence[Open], what: str, *, older_than: float = 0.0) -> GateResult:
    """Return how many are open, of those that are at least ``older_than`` seconds old. An unknown age counts as old."""
    counted = [one for one in found if one.age is None or one.age >= older_than]
    threshold = f"no {what}" + (f" of {older_than:g} s or more" if older_than else "")
    facts = {"open": [{"server": o.server, "what": o.what, "age": o.age} for o in counted[:50]], "in_all": len(found)}
    names = "; ".join(f"{o.server}: {o.what}" for o in counted[:_SHOWN])
    return GateResult(len(counted), f"{len(counted)} {what}{f': {names}' if names else ''}", threshold, facts)


def stable(
    read: Callable[[], str | None], pause: Callable[[float], bool], readings: int = 3, apart: float = 3.0
) -> GateResult:
    """Read a position several times; return how often it moved.

    Parameters
    ----------
    read
        The position as a text; None where it cannot be read.
    pause
        Waits so many seconds; True when nobody waits for the answer any more.
    """
    threshold = f"the same in {readings} readings, {apart:g} s apart"
    if readings < 2:
        return GateResult(None, "one reading does not show that it rests", threshold)
    seen: list[str] = []
    for number in range(readings):
        if number and pause(apart):
            return GateResult(None, f"ended after {number} readings", threshold, {"positions": seen})
        found = read()
        if not found:
            return GateResult(None, f"reading {number + 1} has no position", threshold, {"positions": seen})
        seen.append(found)
    moved = sum(1 for one, two in pairwise(seen) if one != two)
    text = f"rests at {seen[-1]}" if not moved else f"moved {moved} times, from {seen[0]} to {seen[-1]}"
    return GateResult(moved, text, threshold, {"positions": seen, "position": None if moved else seen[-1]})


@dataclass(frozen=True, slots=True)
class BarrierRow:
    """A barrier where it was written: its number, and the largest of any other row (heartbeats) there."""

    number: int
    earlier: int | None = None


def arrived(marker: BarrierRow | None, seen: int | None) -> GateResult:
    """Tell whether a barrier is there: ``arrived`` or ``missing``.

    It counts only when it is strictly newer than every heartbeat: one of the same age may come from before the last
    write. And only the very number that was written counts, not one of an earlier attempt.
    """
    threshold = "the number that was written, above every other one"
    facts: dict[str, Any] = {"seen": seen}
    if marker is None:
        return GateResult(None, "no marker was written", threshold, facts)
    facts |= {"number": marker.number, "earlier": marker.earlier}
    if marker.earlier is not None and marker.earlier >= marker.number:
        return GateResult("stale", f"marker {marker.number} is not above {marker.earlier}", threshold, facts)
    if seen != marker.number:
        return GateResult("missing", f"marker {marker.number} is not there, but {seen or 'none'}", threshold, facts)
    return GateResult("arrived", f"marker {marker.number} is there", threshold, facts)


@dataclass(frozen=True, slots=True)
class Canary:
    """A row that must not travel: its number, and how many seconds ago it was written."""

    number: int
    age: float


def stopped(canary: Canary | None, seen: int | None, status: str | None, *, expected: str, after: float) -> GateResult:
    """Tell whether a feed is stopped: ``stopped`` or ``running``.

    Both have to say so: its own status, and a row that did not travel in a time in which it would have. One alone
    is no proof: a status can be of another feed, and a row can be late.
    """
    threshold = f"status {expected!r}, and a row that is {after:g} s old has not traveled"
    facts: dict[str, Any] = {"status": status, "seen": seen}
    if canary is None:
        return GateResult(None, "no canary was written", threshold, facts)
    facts |= {"number": canary.number, "age": canary.age}
    if seen is not None and seen >= canary.number:
        return GateResult("running", f"canary {canary.number} traveled, and the status says {status}", threshold, facts)
    if status is None:
        return GateResult(None, "the status is not known", threshold, facts)
    if status != expected:
        return GateResult("running", f"the status is {status!r}", threshold, facts)
    if canary.age < after:
        return GateResult(None, f"the canary is {canary.age:.1f} s old, {after:g} s are wanted", threshold, facts)
    return GateResult("stopped", f"status {status!r}; canary {canary.number} has not traveled in {canary.age:.1f} s",
                      threshold, facts)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NextId:
    """The id that a server gave for a table; None: it did not, for ``words``. ``taken``: it is in the table already."""

    server: str
    table: str
    given: int | None
    largest: int | None
    words: str = ""
    taken: bool = False


def above(found: Sequence[NextId], missing: Sequence[str] = ()) -> GateResult:
    """Return how many servers give an id for a table that is not above its largest one.

    Parameters
    ----------
    missing
        Servers of the cluster that were not asked: each of them keeps ids of its own.
    """
    threshold = "every server gives ids above the largest of every table"
    facts = {"ids": [{"server": n.server, "table": n.table, "given": n.given, "largest": n.largest, "words": n.words}
                     for n in found], "not_asked": list(missing)}  # fmt: skip
    if not found:
        return GateResult(None, "no table with ids was asked", threshold, facts)
    low = [n for n in found if n.taken or (n.given is not None and n.given <= (n.largest or 0))]
    if low:
        names = "; ".join(f"{n.server} gives {n.given or n.words} for {n.table}, which has {n.largest}"
                         for n in low[:_SHOWN])  # fmt: skip
        return GateResult(len(low), names, threshold, facts)
    unknown = [n for n in found if n.given is None]
    if unknown:
        names = "; ".join(f"{n.server}: {n.table}: {n.words}" for n in unknown[:_SHOWN])
        return GateResult(None, f"not known: {names}", threshold, facts)
    if missing:
        return GateResult(None, f"servers that were not asked: {', '.join(missing)}", threshold, facts)
    tables = {n.table for n in found}
    return GateResult(
        0,
        f"{amount(len(tables), 'table')} through {amount(len({n.server for n in found}), 'server')}",
        threshold,
        facts,
    )


def quiet(
    before: str | None,
    after: str | None,
    changed: Mapping[str, int] | None,
    exempt: Sequence[str],
    seconds: float,
) -> GateResult:
    """Return how many rows others than exempt accounts changed in a time.

    Parameters
    ----------
    before, after
        The position of the log at both ends.
    changed
        Rows by account; None: not known. A log that moved although no account wrote is not understood, so no value.
    """
    threshold = f"nothing was written for {seconds:g} s" + (f", save by {', '.join(exempt)}" if exempt else "")
    facts: dict[str, Any] = {"before": before, "after": after, "changed": None if changed is None else dict(changed)}
    if not before or not after:
        return GateResult(None, "the position is not known", threshold, facts)
    if before == after:
        return GateResult(0, f"the log rests at {after}", threshold, facts)
    if not exempt:
        return GateResult(1, f"the log moved from {before} to {after}", threshold, facts)
    if changed is None:
        return GateResult(None, f"the log moved from {before} to {after}, and who wrote is not known", threshold, facts)
    others = {user: rows for user, rows in changed.items() if rows and user not in exempt}
    if others:
        accounts = ", ".join(f"{user}: {rows}" for user, rows in sorted(others.items()))
        return GateResult(sum(others.values()), f"rows written by {accounts}", threshold, facts)
    if not any(rows for user, rows in changed.items() if user in exempt):
        return GateResult(None, "the log moved, and no account wrote", threshold, facts)
    return GateResult(0, "all rows were written by exempt accounts", threshold, facts)
