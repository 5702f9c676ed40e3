"""Watches one run from outside, read-only: what a page is made of, and why there is none."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import asdict, dataclass
from typing import Any

from migverify.errors import JournalError, MigverifyError, StoreError, UsageError
from migverify.runbook.clock import Clock, Moment, system_clock
from migverify.runbook.definition.forecast import NO_DRILLS, Drills
from migverify.runbook.history.drills import counts_as_drill, of_this_runbook
from migverify.runbook.history.past import Past, drill_seconds, past_runs
from migverify.runbook.kinds import RunKind
from migverify.runbook.page.view import Pulse, View, as_json, view
from migverify.runbook.record.lease import LIFE, TOLERANCE, Lease, LeaseWatch
from migverify.runbook.record.run_store import LAST, RunStore
from migverify.runbook.state import RunStatus

__all__ = ["PageProblem", "PageState", "Watcher", "drills_of"]


@dataclass(frozen=True, slots=True)
class PageProblem:
    """Why there is nothing to show: ``waiting`` for a run, or ``damaged`` (also: cannot be read)."""

    kind: str
    title: str
    text: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class PageState:
    """What was seen at ``now`` (Unix time): a view, or a problem and no view. ``etag`` tells apart what differs."""

    now: float
    view: View | None
    problem: PageProblem | None
    body: bytes
    etag: str


class Watcher:
    """Watches a run of a room. Threads may share it: a look that is fresh enough is everybody's.

    Parameters
    ----------
    run
        Its id, or ``last``: then always the newest one, also when it starts later.
    fresh
        Seconds for which a look counts. Every look reads the whole journal: what was read before may have been changed.
    """

    def __init__(self, room: RunStore, run: str = LAST, *, clock: Clock = system_clock, fresh: float = 1.0) -> None:
        self._room, self._run_to_show, self._clock, self._fresh = room, run, clock, fresh
        self._lock = threading.Lock()
        self._seen: PageState | None = None
        self._at: Moment | None = None
        self._run, self._drills = "", NO_DRILLS
        self._watch: LeaseWatch | None = None
        self._lease: Lease | None = None
        self._beat = 0.0
        self._known: dict[str, tuple[int, str]] = {}  # of every run the newest event seen: its number and hash

    def look(self) -> PageState:
        """Return what the journal says now. Never raises for a journal: a problem is something to be shown."""
        with self._lock:
            now = self._clock.now()
            if self._seen is None or self._at is None or (now.mono - self._at.mono) / 1e9 >= self._fresh:
                self._seen, self._at = self._look(now), now
            return self._seen

    def now(self) -> float:
        """Return this moment, Unix time."""
        return self._clock.now().wall

    def _look(self, now: Moment) -> PageState:
        shown, problem = None, None
        try:
            shown = self._view(now)
        except JournalError as error:
            problem = PageProblem("damaged", "Journal damaged", error.message, _DAMAGED)
        except UsageError as error:
            problem = PageProblem("waiting", "No run yet", error.message, _WAITING)
        except MigverifyError as error:
            problem = PageProblem("damaged", "Cannot be read", error.message, error.hint)
        document: dict[str, Any] = {"room": self._room.name, "view": None, "problem": None}
        if shown is not None:
            document["view"] = as_json(shown)
            document["view"].pop("now")
        if problem is not None:
            document["problem"] = asdict(problem)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        body = text.encode("utf-8", "backslashreplace")
        return PageState(now.wall, shown, problem, body, f'"{hashlib.sha256(body).hexdigest()[:32]}"')

    def _view(self, now: Moment) -> View:
        record = self._room.open(self._run_to_show)
        status = record.status
        events = [event for event in self._room.events(status.run) if event.seq <= status.seq]
        # A journal that was cut, or written anew, can be whole in itself: only who saw the other one can tell.
        seq, head = self._known.get(status.run, (-1, ""))
        if seq >= 0 and (len(events) <= seq or events[seq].sha != head):
            raise JournalError(
                f"{status.run}: its event {seq}, which was read before, is gone: the journal was cut or changed"
            )
        self._known[status.run] = status.seq, status.head
        if self._watch is None or self._run != status.run:
            self._run, self._watch = status.run, LeaseWatch(record, self._clock)
            self._drills = drills_of(past_runs(self._room, status.runbook.id), status)
        return view(status, events, now, self._drills, pulse=self._pulse(status, self._watch, now))

    def _pulse(self, status: RunStatus, watch: LeaseWatch, now: Moment) -> Pulse | None:
        if status.over or not status.executor:
            return None
        try:
            seen, gone = watch.record.read(), watch.gone(status)
        except StoreError:
            return None  # nobody could look: neither alive nor gone
        lease = seen.lease
        if lease is None or lease.epoch < status.epoch:
            return Pulse(status.last.wall, LIFE + TOLERANCE, gone) if gone else None
        if lease != self._lease:  # else the same beat, and a page that did not change is not sent again
            self._lease, self._beat = lease, now.wall - seen.age
        return Pulse(self._beat, lease.life + TOLERANCE, gone)


_DAMAGED = (
    "Nothing of it is shown, as nothing of it is certain. `migverify runbook report --verify` names what is wrong."
)
_WAITING = "The page shows the run as soon as there is one."


def drills_of(past: Past, status: RunStatus) -> Drills:
    """Return what the drills before a run say about it."""
    earlier = past.before(status.run)
    measured = tuple(drill_seconds(earlier, status.runbook))
    return Drills(_number(past, status), measured)


def _number(past: Past, status: RunStatus) -> str:
    """Say which drill of how many a rehearsal is, ``3/4``; empty for what is no drill of people."""
    if status.kind is not RunKind.REHEARSAL:
        return ""
    earlier = past.before(status.run)
    before = [one for one in earlier if of_this_runbook(one, status.runbook) and counts_as_drill(one)]
    own = next((one for one in past if one.run == status.run), None)
    if own is not None and own.autopilot:
        return ""
    number, required = len(before) + 1, status.runbook.policy.readiness.drills_min
    return f"{number}/{required}" if number <= required else str(number)
