"""Watches one run from outside, read-only: what a page is made of, and why there is none."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migverify.errors import JournalError, MigverifyError, StoreError, UsageError
from migverify.runbook.clock import Clock, Moment, system_clock
from migverify.runbook.definition.forecast import Drills
from migverify.runbook.events import Event
from migverify.runbook.fold.whole import fold
from migverify.runbook.history.drills import counts_as_drill, of_this_runbook
from migverify.runbook.history.past import Past, drill_seconds, handoffs_of, past_runs
from migverify.runbook.model import RunKind
from migverify.runbook.page.view import Pulse, View, as_json, view
from migverify.runbook.record.lease import LIFE, TOLERANCE, Lease, Watch, watch_of
from migverify.runbook.record.room import LAST, Room
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.state import RunStatus

__all__ = ["Problem", "Seen", "Watcher", "drills_of"]

AGAIN = 3.0
"""Seconds between two looks for a newer run."""
_LONG = 1.0


@dataclass(frozen=True, slots=True)
class Problem:
    """Why there is nothing to show: ``waiting`` for a run, or ``damaged`` (also: cannot be read)."""

    kind: str
    title: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen at ``now`` (Unix time): a view, or a problem and no view. ``etag`` tells apart what differs."""

    now: float
    room: str
    view: View | None
    problem: Problem | None
    body: bytes
    etag: str


@dataclass
class _Open:
    record: RunRecord
    status: RunStatus
    events: list[Event]
    drills: Drills
    watch: Watch
    lease: Lease | None = None
    beat: float = 0.0


class Watcher:
    """Watches a run of a room. Threads may share it: a look that is fresh enough is everybody's.

    Parameters
    ----------
    run
        Its id, or ``last``: then always the newest one, also when it starts later.
    fresh
        Seconds for which a look counts.
    recheck
        Seconds between two checks of the whole journal: what was read before may have been changed since.
    """

    def __init__(
        self, room: Room, run: str = LAST, *, clock: Clock = system_clock, fresh: float = 0.4, recheck: float = 15.0
    ) -> None:
        self._room, self._wanted, self._clock, self._fresh = room, run, clock, fresh
        self._recheck, self._checked = recheck, time.monotonic()
        self._counts = fresh
        self._lock = threading.Lock()
        self._open: _Open | None = None
        self._seen: Seen | None = None
        self._at: Moment | None = None
        self._looked: Moment | None = None
        self._known: dict[str, tuple[int, str]] = {}  # of every run the newest event seen: its number and hash

    def look(self) -> Seen:
        """Return what stands in the journal now. Never raises for a journal: a problem is something to be shown."""
        with self._lock:
            now = self._clock.now()
            if self._seen is not None and self._at is not None and _apart(self._at, now) < self._counts:
                return self._seen
            begun = time.monotonic()
            self._seen, self._at = self._look(now), now
            # A run of thousands of steps takes long to look at: then what was seen counts for longer.
            took = time.monotonic() - begun
            self._counts = self._fresh if took < _LONG else 3 * took
            return self._seen

    def now(self) -> float:
        """Return this moment, Unix time."""
        return self._clock.now().wall

    def status(self) -> tuple[RunStatus, Sequence[Event], Past, str] | None:
        """Return what a report is made of: the run, its events, earlier runs and which drill it is; None: no run."""
        self.look()
        with self._lock:
            if self._open is None:
                return None
            one = self._open
            return one.status, tuple(one.events), past_runs(self._room, one.status.runbook.id), one.drills.number

    def _look(self, now: Moment) -> Seen:
        try:
            found = self._refresh(now)
        except JournalError as error:
            self._open = None
            return self._problem(now, Problem("damaged", "Journal damaged", error.message, _DAMAGED))
        except UsageError as error:
            self._open = None
            return self._problem(now, Problem("waiting", "No run yet", error.message, _WAITING))
        except MigverifyError as error:
            self._open = None
            return self._problem(now, Problem("damaged", "Cannot be read", error.message, error.hint))
        torn = bool(getattr(getattr(found.record.journal, "_reader", None), "torn", 0))
        shown = view(
            found.status,
            found.events,
            now,
            found.drills.seconds,
            drill=found.drills.number,
            pulse=self._pulse(found, now),
            torn=torn,
            handoff=found.drills.handoff,
        )
        return self._made(now, shown, None)

    def _refresh(self, now: Moment) -> _Open:
        found = self._open
        if found is None or (self._wanted == LAST and self._newer(found, now)):
            found = self._begin()
        self._check(found)
        fresh = [event for event in found.record.journal.new() if event.seq > found.status.seq]
        if fresh:
            status = fold(fresh, found.status)
            found.status = status if status is not None else found.status
            found.events += fresh
        self._open = found
        self._known[found.status.run] = (found.status.seq, found.status.head)
        return found

    def _newer(self, found: _Open, now: Moment) -> bool:
        if self._looked is not None and _apart(self._looked, now) < AGAIN:
            return False
        self._looked = now
        ids = self._room.ids()
        return bool(ids) and ids[-1] != found.status.run

    def _begin(self) -> _Open:
        record = self._room.open(self._wanted)
        status = record.status
        events = [event for event in self._room.events(status.run) if event.seq <= status.seq]
        self._compare(status.run, events)
        drills = drills_of(past_runs(self._room, status.runbook.id), status)
        return _Open(record, status, events, drills, watch_of(record, self._clock))

    def _check(self, found: _Open) -> None:
        begun = time.monotonic()
        if begun - self._checked < self._recheck:
            return
        run, count = found.status.run, 0
        for event in self._room.events(run):
            count += 1
            if event.seq == found.status.seq and event.sha != found.status.head:
                raise JournalError(f"{run}: event {event.seq} is another one than was read before")
        if count <= found.status.seq:
            raise JournalError(f"{run}: {found.status.seq + 1 - count} events that were read before are gone")
        # A long journal is read through less often: a look is not kept waiting for more than a small part of the time.
        self._checked = time.monotonic() + 20 * (time.monotonic() - begun)

    def _compare(self, run: str, events: Sequence[Event]) -> None:
        # A journal that was cut, or written anew, can be whole in itself: only who saw the other one can tell.
        seq, head = self._known.get(run, (-1, ""))
        if seq >= 0 and (len(events) <= seq or events[seq].sha != head):
            raise JournalError(
                f"{run}: its event {seq}, which was read before, is gone: the journal was cut or changed"
            )

    def _pulse(self, found: _Open, now: Moment) -> Pulse | None:
        if found.status.over or not found.status.executor:
            return None
        try:
            seen, gone = found.watch.place.read(), found.watch.gone(found.status)
        except StoreError:
            return None  # nobody could look: neither alive nor gone
        lease = seen.lease
        if lease is None or lease.epoch < found.status.epoch:
            return Pulse(found.status.last.wall, LIFE + TOLERANCE, gone) if gone else None
        if seen.age is not None:
            found.beat = now.wall - seen.age
        elif lease != found.lease:
            # The first look has only the file's time to go by; later ones see the beat move.
            found.beat = now.wall if found.lease is not None else min(now.wall, _written(found))
        found.lease = lease
        return Pulse(found.beat, lease.life + TOLERANCE, gone)

    def _problem(self, now: Moment, problem: Problem) -> Seen:
        return self._made(now, None, problem)

    def _made(self, now: Moment, shown: View | None, problem: Problem | None) -> Seen:
        told: dict[str, Any] | None = None
        if shown is not None:
            told = as_json(shown)
            told.pop("now")
        document = {"room": self._room.name, "view": told, "problem": None if problem is None else _told(problem)}
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(
            "utf-8", "backslashreplace"
        )
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        return Seen(now.wall, self._room.name, shown, problem, body, etag)


_DAMAGED = (
    "Nothing of it is shown, as nothing of it is certain. `migverify runbook verify-journal` names what is wrong."
)
_WAITING = "The page shows the run as soon as there is one."


def _told(problem: Problem) -> dict[str, str]:
    return {"kind": problem.kind, "title": problem.title, "text": problem.text, "hint": problem.hint}


def _apart(first: Moment, then: Moment) -> float:
    return (then.mono - first.mono) / 1e9


def _written(found: _Open) -> float:
    try:
        return (found.record.folder / "lease.json").stat().st_mtime
    except OSError:
        return found.status.last.wall


def drills_of(past: Past, status: RunStatus) -> Drills:
    """Return what the drills before a run say about it."""
    earlier = past.before(status.run)
    measured = tuple(drill_seconds(earlier, status.runbook))
    return Drills(_number(past, status), measured, handoffs_of(earlier, status.runbook))


def _number(past: Past, status: RunStatus) -> str:
    """Say which drill of how many a rehearsal is, ``3/4``; empty for what is no drill of people."""
    if status.kind is not RunKind.REHEARSAL:
        return ""
    earlier = past.before(status.run)
    before = [one for one in earlier if of_this_runbook(one, status.runbook) and counts_as_drill(one)]
    own = next((one for one in past if one.run == status.run), None)
    if own is not None and own.autopilot:
        return ""
    number, wanted = len(before) + 1, status.runbook.policy.drills_minimum
    return f"{number}/{wanted}" if number <= wanted else str(number)
