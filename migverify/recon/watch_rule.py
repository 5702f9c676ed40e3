"""One rule of a watch: its windows one after the other, what is open of them, and what became of it.

Each step ends in one transaction of the store, so that a process that is killed anywhere neither loses nor repeats a
window: what was not recorded is done again, and doing it again gives the same record.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby, islice

from migverify.errors import MigverifyError, StoreError
from migverify.model import KeyText
from migverify.recon.bodies import bodies, finding_of, window_text, withdrawn
from migverify.recon.candidates import Spill
from migverify.recon.model import Class, RuleFinding, RuleResult, Window
from migverify.recon.rule import Rule
from migverify.recon.verdict import FindingTally
from migverify.recon.watch_judge import RuleReads, crossings, judge_again, judge_sums
from migverify.recon.watch_state import (
    OPEN_KINDS,
    Sums,
    WatchLimits,
    WindowPhase,
    WindowState,
    gaps_of,
    kept_of,
)
from migverify.recon.watermark import SourceWatermark, spread
from migverify.recon.windows import closing, due, is_immutable, judged_after, reach, settle_of, shifted, unix_time
from migverify.store.results import ResultStore

PAGE = 500
"""Findings of one transaction."""
MOST_SEEN = 100_000
"""Values may not be in the store, so how a finding looked is known to this process alone."""


class LastSeen:
    """Hashes of pending findings, ``MOST_SEEN`` at most; lost with the process. One that is lost costs a read more."""

    def __init__(self) -> None:
        self._hashes: dict[tuple[str, KeyText], int] = {}

    def remember(self, finding: RuleFinding) -> None:
        """Note how a finding looked with its values."""
        place = (window_text(finding.window), finding.key)
        if finding.kind is Class.PENDING or place not in self._hashes:
            if len(self._hashes) >= MOST_SEEN:
                self._hashes.clear()
            self._hashes[place] = _hash(finding)

    def same(self, before: RuleFinding, now: RuleFinding) -> bool:
        """Whether a finding differs as at its last read; False where that is not known, and the next read decides.

        Of what is a mismatch already only the class and the counts matter.
        """
        if before.kind is not Class.PENDING:
            return (before.of, before.counts) == (now.of, now.counts)
        place = (window_text(before.window), before.key)
        known, self._hashes[place] = self._hashes.get(place), _hash(now)
        return known == _hash(now)


def _hash(finding: RuleFinding) -> int:
    return hash((finding.of, finding.deviations, finding.counts, finding.money))


@dataclass(slots=True)
class RuleWatch:
    """The state of one rule; made again from the store by ``restore``.

    ``first`` is the window that the watch begins with, None for a rule without windows; ``following`` the next one to
    be evaluated. ``until`` ends it: later windows are not evaluated. ``windows`` are those that are open, and the last
    few others.
    """

    rule: Rule
    first: Window | None
    reads: RuleReads
    store: ResultStore
    run_id: str
    limits: WatchLimits = field(default_factory=WatchLimits)
    clock: Callable[[], float] = time.time
    until: datetime | None = None
    show: bool = False
    expiries: Sequence[float] = ()
    following: Window | None = None
    sums: Sums = field(default_factory=Sums)
    marks: dict[str, SourceWatermark] = field(default_factory=dict)
    moved: dict[str, tuple[float, float]] = field(default_factory=dict)
    asked: float = 0.0
    errors: dict[str, str] = field(default_factory=dict)
    unsure_since: datetime | None = None
    unsure: tuple[str, ...] = ()
    reopened: int = 0
    seconds: float = 0.0
    blind: bool = False
    windows: dict[str, WindowState] = field(default_factory=dict)
    _seen: LastSeen = field(default_factory=LastSeen)
    _stamp: float = 0.0
    _looked: float = -1e18
    _known_at: float = -1e18
    _pass: tuple[float, int, tuple[str, ...]] | None = None
    _retried: Counter[str] = field(default_factory=Counter)

    # -- beginning -----------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Read from the store what an earlier process did.

        Raises StoreError: the store cannot be read, or something else wrote to this run.
        """
        self.following = self.first
        for body in self.store.windows(self.run_id, self.rule.name):
            state = kept_of(body)
            self._stamp = max(self._stamp, state.stamp)
            self._put(state)

    def _put(self, state: WindowState, earlier: WindowState | None = None) -> None:
        """Count a window in, in place of what was known of it, and drop those that are neither open nor recent."""
        if earlier is not None:
            self.sums.put(earlier, -1)
        self.sums.put(state)
        self.windows[state.name] = state
        window = state.window
        if window is None:
            return
        if state.phase is WindowPhase.UNSURE and not state.unread:
            self.unsure_since = min(self.unsure_since or window.start, window.start)
            self.unsure = state.gaps
        if self.following is not None and window.start >= self.following.start:
            self.following = shifted(window, 1)
        if self.following is not None:
            leaving = shifted(self.following, -max(self.limits.lookback, self.limits.idle) - 1)
            for one in (state, self.windows.get(window_text(leaving))):
                if one is None or one.window is None or one.is_open or one.window.start > leaving.start:
                    continue
                self.windows.pop(one.name, None)

    def _recent(self, count: int) -> list[WindowState]:
        """Return the states of the last windows that were evaluated, the oldest first."""
        if self.following is None or count <= 0:
            return []
        names = (window_text(shifted(self.following, -n)) for n in range(count, 0, -1))
        return [self.windows[name] for name in names if name in self.windows]

    # -- one turn ------------------------------------------------------------------------------------------------

    def turn(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Do what is due of this rule; returns whether a window was evaluated.

        An endpoint that fails is noted in ``errors`` and asked again in the next turn: other rules go on.

        Raises StoreError: the state cannot be recorded.
        """
        progress = self._guarded("watermark", self._ask_marks)
        if not progress or stop():
            return False
        done = [
            self._guarded("evaluation", lambda: self._evaluate_undone(stop)),
            self._guarded("evaluation", lambda: self._evaluate_due(stop)) if "evaluation" not in self.errors else False,
        ]
        # Without a pause between looks, windows that wait come first.
        wait = any(done) and self.limits.recheck == 0
        if not wait and (self._pass is not None or self.clock() - self._looked >= self.limits.recheck):
            self._looked = self.clock()
            self._guarded("lookback", self._look_back)
            self._guarded("re-read", lambda: self.look_again(stop))
        return any(done)

    def _guarded(self, stage: str, step: Callable[[], bool]) -> bool:
        try:
            result = step()
        except StoreError:
            raise
        except MigverifyError as error:
            moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.clock()))
            self.errors[stage] = f"{stage} failed at {moment} UTC: {error.message}"
            return False
        self.errors.pop(stage, None)
        return result

    def _ask_marks(self) -> bool:
        self.asked = now = self.clock()
        self.marks = {mark.source: mark for mark in self.reads.watermarks(self.rule)}
        for name, mark in self.marks.items():
            before = self.moved.get(name)
            if mark.at is not None and (before is None or mark.at > before[0]):
                self.moved[name] = (mark.at, now)
        return True

    @property
    def settle(self) -> float:
        """The settle time, and the measured distance between the clocks of the sources on top of it."""
        return settle_of(self.rule) + spread(self.marks)

    def _marked(self) -> dict[str, float | None]:
        return {name: mark.at for name, mark in self.marks.items()}

    def stamp(self) -> float:
        """Return the time, later than any that was given out before: findings are distinguished by it."""
        self._stamp = max(self.clock(), self._stamp + 1e-6)
        return self._stamp

    # -- evaluation ----------------------------------------------------------------------------------------------

    def _evaluate_undone(self, stop: Callable[[], bool]) -> bool:
        done = False
        for state in [k for k in self.windows.values() if k.is_undone]:
            if stop():
                break
            self._evaluate(state.window)
            done = True
        return done

    def _evaluate_due(self, stop: Callable[[], bool]) -> bool:
        if self.following is None:
            return self._evaluate_whole()
        done = False
        for window in islice(due(self.following, self.settle, self._marked()), self.limits.burst):
            if stop() or (self.until is not None and window.end > self.until):
                break
            self._evaluate(window)
            done = True
        return done

    def _evaluate_whole(self) -> bool:
        state = self.windows.get("")
        if state is not None and self.clock() - state.at < self.limits.whole:
            return False
        self._evaluate(None)
        return True

    def _evaluate(self, window: Window | None) -> None:
        began = self.stamp()
        started = time.monotonic()
        earlier = self.windows.get(window_text(window))
        state = WindowState(window, WindowPhase.EVALUATING, at=began, marks=self._marked())
        state.evaluations = earlier.evaluations if earlier else 0
        # Before the rows are read: what comes during the read is seen by the next look back.
        state.signature = self._signature(window)
        with Spill[RuleFinding]() as spool:
            result = self.reads.evaluate(self.rule, window, spool.add)
            for findings, last in spool.pages(PAGE):
                judged = self._judge(window, [replace(f, window=window, at=began) for f in findings], state)
                state.tally.join(FindingTally.of(judged))
                if last and earlier is None:
                    self._finish(state, result, None, judged, started)
                    return
                self._write(state, judged)
                if earlier is None:  # from here on the store knows of it: a failure leaves it to be evaluated again
                    earlier = replace(state, tally=state.tally.copy())
                    self._put(earlier)
        state.gaps = gaps_of(result)
        state.tally = self._settle_stale(window_text(window), state, began)
        self._finish(state, result, earlier, [], started)

    def _judge(self, window: Window | None, findings: Sequence[RuleFinding], state: WindowState) -> list[RuleFinding]:
        for finding in findings:
            self._seen.remember(finding)
        if window is None or not self.rule.sums_groups:
            return list(findings)
        last = self._decided(window)
        judged, crossed = judge_sums(self.reads, self.rule, window, findings, self.settle, last=last)
        state.cross(crossed)
        return judged

    def _signature(self, window: Window | None) -> str | None:
        if window is None or self.limits.lookback <= 0:
            return None
        found = self.reads.signature(self.rule, window)
        self.blind = found is None
        return found

    def _settle_stale(self, name: str, state: WindowState, began: float) -> FindingTally:
        """Count the findings of a window that was evaluated again; what was not found this time matched late.

        Unless the window was not read in full: then nothing follows from what was not found.
        """
        counted = FindingTally()
        for page in self._pages(name):
            late = []
            for finding in page:
                if finding.at > began:
                    continue
                gone = finding.at < began and finding.kind is not Class.LATE_MATCHED and not state.unread
                if gone:
                    reason = "not found when its window was evaluated again"
                    late.append(replace(finding, kind=Class.LATE_MATCHED, at=self.stamp(), reason=reason))
                counted.add(late[-1] if gone else finding)
            if late:
                self._write(state, late)
        return counted

    def _finish(
        self,
        state: WindowState,
        result: RuleResult,
        earlier: WindowState | None,
        judged: Sequence[RuleFinding],
        started: float,
    ) -> None:
        state.covered, state.snapshots = state.covered + result.covered, result.snapshots
        state.gaps = gaps_of(result)
        state.seconds = self.seconds = time.monotonic() - started
        state.evaluations += 1
        state.settle(self.rule)
        self._write(state, judged)
        self._put(state, earlier)

    def _write(self, state: WindowState, findings: Sequence[RuleFinding], gone: Sequence[RuleFinding] = ()) -> None:
        """Record a window and findings in one transaction, with the newest time that was given out.

        ``gone`` are findings that are none any more.
        """
        state.stamp = self._stamp
        body = state.body(self.rule)
        taken = [withdrawn(one) for one in bodies(gone, show=self.show)]
        self.store.add_window(self.run_id, self.rule.name, body, [*bodies(findings, show=self.show), *taken])

    # -- looking again -------------------------------------------------------------------------------------------

    def _look_back(self) -> bool:
        """Reopen closed windows whose rows are not those that were evaluated, or that were not read in full."""
        for state in [k for k in self.windows.values() if k.unread and not k.is_undone and k.window is not None]:
            # Without a pause between looks the watch is to end: what cannot be read would be read for ever.
            if self.limits.recheck > 0 or self._retried[state.name] < self.rule.rereads:
                self._retried[state.name] += self.limits.recheck == 0
                self._reopen(state, "it was not read in full")
        for state in self._recent(self.limits.lookback):
            if state.window is None or state.is_undone or state.signature is None or self._rests(state):
                continue
            if self.reads.signature(self.rule, state.window) != state.signature:
                self._reopen(state, "rows of the window changed after it was closed")
        return True

    def _rests(self, state: WindowState) -> bool:
        grid = self.rule.window
        return (
            grid is not None and state.window is not None and state.phase is WindowPhase.MATCHED
            and is_immutable(grid, state.window, self.clock())
        )  # fmt: skip

    def _reopen(self, state: WindowState, reason: str) -> None:
        fresh = replace(state, phase=WindowPhase.REOPENED, gaps=(reason,))
        self._write(fresh, [])
        self.reopened += 1
        self._put(fresh, state)

    def look_again(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Read open findings of closed windows again, at most ``limits.keys`` of them; the next call goes on there."""
        if self._pass is None:
            expired = any(self._known_at < expiry <= self.clock() for expiry in self.expiries)
            kinds = (*OPEN_KINDS, str(Class.KNOWN_EXCEPTION)) if expired else OPEN_KINDS
            self._known_at = self.clock()
            self._pass = (self.stamp(), 0, kinds)
        began, after, kinds = self._pass
        read = 0
        while read < self.limits.keys and not stop():
            page = self.store.findings(self.run_id, self.rule.name, kinds=kinds, after=after, limit=PAGE)
            # What this pass recorded comes after everything else: the first of it is the end.
            some = [f for f in (finding_of(body) for _, body in page) if f.at < began]
            for name, group in groupby(sorted(some, key=_by_window), key=_by_window):
                self._look_at(name, list(group))
            read += len(some)
            if len(some) < PAGE:
                self._pass = None
                return True
            after = page[-1][0]
            self._pass = (began, after, kinds)
        return True

    def _look_at(self, name: str, findings: Sequence[RuleFinding]) -> None:
        state = self.windows.get(name)
        if state is None:
            raise StoreError(
                f"rule {self.rule.name}: findings of window {name or '(none)'} have no window in the store"
            )
        if state.is_undone or state.window is None:
            return  # all of it is read again when it is evaluated
        decided = self._decided(state.window)
        again = judge_again(
            self.reads,
            self.rule,
            state.window,
            findings,
            self.settle,
            self.stamp(),
            decided=decided,
            same=self._seen.same,
        )
        if again is None:
            self._reopen(state, "its findings have no key to read by: all of it is read again")
            return
        if not again.changed and not again.crossed:
            return
        before = {f.key: f for f in findings}
        fresh = replace(state, tally=state.tally.copy())
        for finding in again.crossed:
            fresh.tally.add(finding, -1)
        fresh.cross(crossings(again.crossed))
        for finding in again.changed:
            fresh.tally.add(before[finding.key], -1)
            fresh.tally.add(finding)
            self._seen.remember(finding)
        fresh.settle(self.rule)
        self._write(fresh, again.changed, again.crossed)
        self._put(fresh, state)

    def _decided(self, window: Window) -> bool:
        """Whether all windows within reach of one are closed, so that what it carried can be judged."""
        if self.following is not None and self.following.start >= judged_after(window, self.settle):
            return True
        later = shifted(window, reach(window, self.settle))
        return closing(later, self.settle, self._marked()).closed

    def _pages(self, window: str) -> Iterator[list[RuleFinding]]:
        after = 0
        while page := self.store.findings(self.run_id, self.rule.name, after=after, limit=PAGE, window=window):
            after = page[-1][0]
            yield [finding_of(body) for _, body in page]

    # -- what is open --------------------------------------------------------------------------------------------

    @property
    def open_windows(self) -> list[WindowState]:
        """Windows with open findings, or to be evaluated again."""
        return [state for state in self.windows.values() if state.is_open]

    def matched_through(self) -> datetime | None:
        """Return the end of the last window before which every one matched; None before the first."""
        if self.first is None or self.following is None or self.following == self.first:
            return None
        opened = [
            k.window.start for k in self.open_windows if k.window is not None and k.phase is not WindowPhase.MATCHED
        ]
        if self.unsure_since is not None:
            opened.append(self.unsure_since)
        return min([self.following.start, *opened])

    @property
    def waiting(self) -> list[WindowState]:
        """Windows with keys that could be judged and are being read again, or that are to be evaluated again."""
        return [
            k for k in self.open_windows
            if k.is_undone or (k.tally.pending and (k.window is None or self._decided(k.window)))
        ]  # fmt: skip

    @property
    def is_idle(self) -> bool:
        """Whether the last windows held no row at all."""
        last = self._recent(self.limits.idle)
        return bool(last) and len(last) == self.limits.idle and not any(k.rows for k in last)

    def late_by(self, now: float) -> float:
        """Return how many seconds ago the next window could have closed, had every source kept up; 0 for none."""
        if self.following is None or (self.until is not None and self.following.end > self.until):
            return 0.0
        return max(0.0, now - unix_time(self.following.end) - self.settle)


def _by_window(finding: RuleFinding) -> str:
    return window_text(finding.window)
