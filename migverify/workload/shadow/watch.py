"""The shadow replay as a watch: each turn reads what is new in the log, asks its reads, and commits what was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from migverify.watch.loop import Ending
from migverify.workload.formats.statements import CUT
from migverify.workload.meaning import Meanings
from migverify.workload.model import Piece, Record, Rejected
from migverify.workload.parts import checked
from migverify.workload.replay.model import JudgedCall
from migverify.workload.replay.runfile import PlannedCall
from migverify.workload.shadow.again import AskedAgain, is_questionable, kept_read
from migverify.workload.shadow.ask import AskedRead, ReadAsker, unasked
from migverify.workload.shadow.book import HourCounts, ShadowBook
from migverify.workload.shadow.budget import RateLimit, TargetGovernor
from migverify.workload.shadow.file import ShadowFile
from migverify.workload.shadow.progress import TargetProgress
from migverify.workload.shadow.reads import HOUR, OWN, LiveSessions, ReadChooser
from migverify.workload.shadow.status import ShadowState, ShadowStatus, status_of

POLL = 0.25
"""Seconds between two looks at a log that shows nothing new."""
MOST_RECORDS = 20_000
"""Records that one turn reads."""
MOST_READS = 2_000
_TURN = 1.0
"""Seconds that the reads of a turn should take; their number follows from it."""
_ASK_PROGRESS = 5.0
_BACKLOG = 30.0
"""Seconds behind the log from which on nothing is MATCH."""
_AWAY = (1.0, 60.0)
"""Seconds until a server that is away is tried again: the first time, and at most."""
_SKEW_OPENED, _SKEW_CLOSED = 600.0, 2.0
"""Seconds by which the source's clock may differ from the one here, before and behind a connection's life."""


class FollowedLog(Protocol):
    """A log that grows: see ``log.LogTail`` and ``objects.ObjectFolder``."""

    unread: int

    def pieces(self) -> Iterator[Piece | str]:
        """Yield what is certain by now, and gaps as texts."""
        ...

    def settle(self) -> Any:
        """Return the position behind what was taken; it has ``as_json``."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether all is taken but what only comes with further bytes."""
        ...

    @property
    def left_over(self) -> str:
        """Where that is which only comes with further bytes: file and place; empty where there is none."""
        ...


class OwnConnections(Protocol):
    """Tells which connections to the source are this replay's: their statements are in the log as well."""

    def refresh(self, now: float) -> None:
        """Note which are closed by now."""
        ...

    def rows(self) -> Iterable[tuple[int, float, float | None]]:
        """Return id, when it was opened, when it was closed."""
        ...


@dataclass(slots=True)
class ShadowTurn:
    """What one turn read and found. ``outcomes`` are decided reads with their hours."""

    outcomes: list[tuple[int, JudgedCall]] = field(default_factory=list)
    hours: dict[int, HourCounts] = field(default_factory=dict)
    pieces: int = 0
    is_at_end: bool = False

    def of(self, hour: int) -> HourCounts:
        """Return what the turn counted of an hour."""
        return self.hours.setdefault(hour, HourCounts())


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """How a shadow replay asks.

    ``max_lag`` is by how many seconds a read may be behind the log and is still asked; None for any. ``once`` ends at
    the end of the log.
    """

    run_id: str
    log: str
    max_lag: float | None = 300.0
    once: bool = False


@dataclass(slots=True)
class ShadowWatch:
    """A shadow replay; see ``migverify.watch.loop.Watchable``."""

    options: ShadowOptions
    log: FollowedLog
    sessions: LiveSessions
    chooser: ReadChooser
    asker: ReadAsker
    again: AskedAgain
    book: ShadowBook
    file: ShadowFile
    progress: TargetProgress
    rate: RateLimit
    governor: TargetGovernor
    own: OwnConnections
    clock: Callable[[], float] = time.time
    away: str = ""
    _away_until: float = 0.0
    _away_pause: float = _AWAY[0]
    _room: int = 64
    _moment: int = 0
    _asked_at: float = 0.0
    _asked_since: tuple[float, int] = (0.0, 0)
    _asked: int = 0
    _newest: int = 0
    _is_over: bool = False
    _is_at_end: bool = False
    _last_rate: float = 0.0

    def restore(self) -> None:
        """Go on with what an earlier process committed."""
        self.sessions.restore(self.file.sessions())
        self.book.load()
        self._newest = max(self.book.kept_hours(), default=0)
        meanings = Meanings("mysql", unique_keys={})
        for number, body in self.file.pending().items():
            meaning = meanings.meaning(body["sql"].encode("latin-1"))
            self.again.restore(kept_read(number, body, meaning), self.clock())

    # --- one turn ----------------------------------------------------------------------------------------

    def due(self, began: float) -> float:
        """Return the seconds until something can be asked."""
        del began
        if not self._is_at_end and not self._is_held:
            return 0.0
        following = self.again.next_due()
        return POLL if following is None else max(0.0, min(POLL, following - self.clock()))

    @property
    def _is_held(self) -> bool:
        return self.governor.is_paused or self.rate.allowance(1) < 1

    def check(self, stop: Callable[[], bool]) -> ShadowTurn:
        """Read the log, and ask."""
        turn, now = ShadowTurn(), self.clock()
        self._ask_progress(now)
        if self.progress.is_busy():
            self.governor.hold()
        room = 0 if self.governor.is_paused else self.rate.allowance(min(self._room, MOST_READS))
        again = [] if self._is_away(now) else self.again.due(now, self.progress.number)[:room]
        fresh = list(self._fresh(turn, room - len(again), now, stop))
        self._ask([*again, *fresh], turn)
        self._is_at_end = turn.is_at_end
        self._is_over = turn.is_at_end and not turn.pieces and not self.again.pending and self.log.is_quiet
        return turn

    def _ask(self, calls: list[PlannedCall], turn: ShadowTurn) -> None:
        began = time.monotonic()
        asked = self.asker.ask(calls, self.governor.allowed)
        if not asked:
            return
        self._tried(self.asker.away)
        took = max(time.monotonic() - began, 0.001)
        self._asked += len(asked)
        self._room = max(4 * self.governor.lanes, min(MOST_READS, int(len(asked) * _TURN / took)))
        self.rate.spend(len(asked))
        services = [one.judged.target_service for one in asked]
        self.governor.note([one for one in services if one is not None])
        now = self.clock()
        for one in asked:
            turn.outcomes += self._outcome(one, now)

    def _outcome(self, asked: AskedRead, now: float) -> Iterator[tuple[int, JudgedCall]]:
        """Yield hour and outcome of a read that is decided."""
        if asked.planned.index in self.again.pending:
            decided = self.again.take(asked, now, self.progress.number)
            if decided is not None:
                yield decided
            return
        hour = self._hour(asked.planned.start)
        if not is_questionable(asked.judged, asked.planned):
            yield hour, asked.judged
            return
        undecided = self.again.add(asked, hour, now)
        if undecided is not None:
            yield hour, undecided

    # --- the log -----------------------------------------------------------------------------------------

    def _fresh(self, turn: ShadowTurn, room: int, now: float, stop: Callable[[], bool]) -> Iterator[PlannedCall]:
        """Yield reads of the log to be asked; those that cannot be are outcomes of the turn."""
        chosen, oldest = 0, self._oldest(now)
        self.own.refresh(now)
        own = OwnSpans(self.own.rows())
        if chosen >= room and not self._moment < oldest:
            return
        for piece in self.log.pieces():
            planned = self._taken(piece, turn, own, now)
            if planned is not None:
                reason = self._why_not(planned, now, oldest, full=chosen >= room)
                if reason:
                    turn.outcomes.append((self._hour(planned.start), unasked(planned, reason)))
                else:
                    chosen += 1
                    yield planned
            is_full = chosen >= room and not self._moment < oldest
            if is_full or turn.pieces >= MOST_RECORDS or stop():
                return
        turn.is_at_end = True

    def _taken(self, piece: Piece | str, turn: ShadowTurn, own: OwnSpans, now: float) -> PlannedCall | None:
        """Take in one piece of the log; return the read that it is."""
        turn.pieces += 1
        micros = int(now * 1_000_000)
        if isinstance(piece, Record):
            piece = Rejected(piece.origin, CUT) if piece.partial == CUT else checked(piece)
        if isinstance(piece, str):
            turn.of(self._hour(micros)).gap(piece)
        elif isinstance(piece, Rejected):
            turn.of(self._hour(self._moment or micros)).unread(piece)
        elif isinstance(piece, Record):
            moment = piece.end if piece.end is not None else piece.start
            self._moment = min(moment, micros) if moment is not None else self._moment
            if own.has(piece, now):
                turn.of(self._hour(self._moment or micros)).left[OWN] += 1
                return None
            planned = self.chooser.choose(self.sessions.place(piece), micros)
            if self.chooser.left:
                turn.of(self._hour(self._moment or micros)).left.update(self.chooser.left)
                self.chooser.left.clear()
            return planned
        return None

    def _why_not(self, planned: PlannedCall, now: float, oldest: int, *, full: bool) -> str:
        """Return why a read is not asked, in fixed words; empty when it is."""
        if planned.skipped:
            return planned.skipped
        if self._is_away(now):
            return self.away
        if planned.end >= oldest and not full:
            return ""
        cause = "the servers are slower than the log"
        if self.governor.is_holding:
            cause = "budget of the target"
        elif self.rate.per_second is not None:
            cause = "rate limit"
        return f"not asked: more than {self.options.max_lag or 0:.0f} s behind the log ({cause})"

    def _oldest(self, now: float) -> int:
        """Return the time of the oldest statement that is asked, Unix microseconds."""
        if self.options.max_lag is None or self.options.once:
            return 0
        return int((now - self.options.max_lag) * 1_000_000)

    def _hour(self, moment: int) -> int:
        return min(moment // HOUR, int(self.clock() * 1_000_000) // HOUR)

    # --- servers that are away ---------------------------------------------------------------------------

    def _is_away(self, now: float) -> bool:
        return bool(self.away) and now < self._away_until

    def _tried(self, away: str) -> None:
        if not away:
            self.away, self._away_pause = "", _AWAY[0]
            return
        self.away, self._away_until = away, self.clock() + self._away_pause
        self._away_pause = min(_AWAY[1], 2 * self._away_pause)

    def _ask_progress(self, now: float) -> None:
        """Ask how far the target is; what differed before this moment needs what the source has by now."""
        pending = self.again.pending.values()
        if not pending and now - self._asked_at < _ASK_PROGRESS:
            return
        if any(one.needs is None for one in pending) or (not pending and self.progress.applied.proof):
            self.again.mark(self.progress.mark())
        self.progress.ask()
        self._asked_at, self.again.unknown = now, self.progress.why

    # --- what is kept ------------------------------------------------------------------------------------

    def record(self, work: ShadowTurn) -> None:
        """Commit what a turn found with the position that it read to."""
        for hour, judged in work.outcomes:
            self.book.add(hour, judged)
        for hour, counts in work.hours.items():
            self.book.counts(hour).add(counts)
        if not work.pieces and not work.outcomes and not self.again.changed:
            return
        newest = max(self._newest, *work.hours, *(hour for hour, _ in work.outcomes), 0)
        # A clock that was ahead once made hours that are to come: they must not make those of now old ones.
        self._newest = min(newest, int(self.clock() * 1_000_000) // HOUR)
        changes = self.book.changes(self._newest)
        changes.facts["position"] = self.log.settle().as_json()
        changes.sessions = list(self.sessions.take_changes())
        changes.pending = dict(self.again.changes())
        self.file.commit(changes)

    def ending(self) -> Ending | None:
        """Return DONE at the end of the log, where the watch is to end there."""
        return Ending.DONE if self.options.once and self._is_over else None

    def status(self, ending: Ending | None = None) -> ShadowStatus:
        """Return what is known now."""
        now = self.clock()
        reasons = [self.away] if self.away else []
        if self.options.once and ending is not None and ending is not Ending.DONE:
            reasons.append(f"the end of the log was not reached: {ending.value}")
        if self.options.once and ending is Ending.DONE and self.log.left_over:
            reasons.append(f"the log breaks off within a record, which was not read: {self.log.left_over}")
        lag = self._lag(now)
        if lag > _BACKLOG:
            reasons.append(f"the reads are {lag:,.0f} s behind the log: what is not read yet proves nothing")
        if self.sessions.forgotten:
            reasons.append(f"{self.sessions.forgotten:,} sessions were forgotten: more than are followed at once")
        state = ShadowState(
            self.options.run_id, self.options.log, now, lag, self.log.unread, self.progress.lag(),
            len(self.again.pending), self._rate(now), 0 if self.governor.is_paused else self.governor.allowed,
            tuple(reasons),
        )  # fmt: skip
        return status_of(self.book, state, final=ending is not None)

    def _lag(self, now: float) -> float:
        """Return how far behind the log the reads are: 0 at its end."""
        return 0.0 if self._is_at_end or not self._moment else max(0.0, now - self._moment / 1e6)

    def _rate(self, now: float) -> float:
        since, count = self._asked_since
        if now - since >= 1.0:
            self._asked_since = (now, self._asked)
            self._last_rate = (self._asked - count) / (now - since) if since else 0.0
        return self._last_rate

    def close(self) -> None:
        """Close all connections."""
        self.asker.close()
        self.progress.close()


class OwnSpans:
    """The replay's own connections to the source, as of one turn."""

    def __init__(self, rows: Iterable[tuple[int, float, float | None]]) -> None:
        self._spans: dict[int, list[tuple[float, float | None]]] = {}
        for thread, opened, closed in rows:
            self._spans.setdefault(thread, []).append((opened, closed))

    def has(self, record: Record, now: float) -> bool:
        """Tell whether a record is of one of them; connection ids are given again after a restart of the server."""
        if record.session is None or record.session not in self._spans:
            return False
        moment = record.end if record.end is not None else record.start
        at = now if moment is None else moment / 1e6
        return any(
            opened - _SKEW_OPENED <= at and (closed is None or at <= closed + _SKEW_CLOSED)
            for opened, closed in self._spans[record.session]
        )
