"""Keep the verdict of rules current: windows are evaluated as they close, open findings are read again.

One rule at a time: never more connections than one evaluation needs. All state is in the
store, one transaction for each step of a rule (``migverify.recon.watch_rule``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from migverify.recon.watch_rule import RuleWatch
from migverify.recon.watch_status import Patience, ReconStatus, status_of
from migverify.watch.loop import Ending, watch

TICK_SECONDS = 1.0


@dataclass(slots=True)
class RulesWatch:
    """Rules that are watched together. Make it, call ``run``."""

    run_id: str
    rules: Sequence[RuleWatch]
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    tick: float = TICK_SECONDS
    on_status: Callable[[ReconStatus], None] = lambda _: None
    _once: bool = False
    _until: datetime | None = None
    _time_limit: float | None = None
    _quiet: int = 0

    def run(
        self,
        stop: Callable[[], bool] = lambda: False,
        *,
        once: bool = False,
        until: datetime | None = None,
        time_limit: float | None = None,
    ) -> ReconStatus:
        """Watch until told to stop, or until everything that is asked for is decided.

        Parameters
        ----------
        once
            Evaluate the windows that may close now, read what is open of them again, and end.
        until
            End when every window up to this time is closed and decided.
        time_limit
            Seconds; then the end is INCONCLUSIVE at best. None waits for ever.

        Raises
        ------
        StoreError
            the state cannot be recorded; what was recorded before counts.
        """
        self._once, self._until, self._time_limit = once, until, time_limit
        for one in self.rules:
            one.restore()
            one.until = until
        return watch(
            self, stop=stop, time_limit=time_limit, on_status=self.on_status, clock=self.clock, wait=self.sleep
        )  # fmt: skip

    def check(self, stop: Callable[[], bool]) -> bool:
        """Give each rule its turn; returns whether a window was evaluated."""
        progress = False
        for one in self.rules:
            progress = one.turn(stop) or progress
            if stop():
                break
        return progress

    def record(self, work: bool) -> None:
        """Count the turns without progress: each rule recorded its own windows, one transaction each."""
        self._quiet = 0 if work else self._quiet + 1

    def due(self, began: float) -> float:
        """Return the seconds until the next turn: while windows wait to be evaluated there is no reason to pause."""
        if self._quiet:
            return max((one.rule.delay for one in self.rules), default=self.tick) if self._once else self.tick
        behind = any(one.late_by(self.clock()) > 0 for one in self.rules)
        return 0.0 if self._once or behind else self.tick - (self.clock() - began)

    def ending(self) -> Ending | None:
        """Return DONE when everything that is asked for is decided."""
        if self._once and self._quiet and (self._decided() or self._quiet > self._reads):
            return Ending.DONE
        if self._until is not None and self._closed(self._until) and self._decided():
            return Ending.DONE
        return None

    def status(self, ending: Ending | None = None) -> ReconStatus:
        """Return what is known now; a watch that ends before it was to has a reason."""
        reason = ""
        if ending is Ending.TIMED_OUT:
            reason = f"the time limit of {self._time_limit:g} s is over"
        elif ending is Ending.STOPPED and (self._once or self._until is not None):
            reason = "stopped before it was done"
        return status_of(
            self.run_id, self.rules, self.clock(), self.patience, final=ending is not None, reason=reason
        )  # fmt: skip

    @property
    def _reads(self) -> int:
        """Turns without progress after which ``once`` ends: the re-reads that a difference needs."""
        return max((one.rule.rereads for one in self.rules), default=0) + 2

    def _decided(self) -> bool:
        return not any(one.waiting or one.errors for one in self.rules)

    def _closed(self, until: datetime) -> bool:
        """Whether no window up to that time is left, and nothing on a border waits."""
        return all(
            (one.following is None and one.sums.closed > 0)
            or (one.following is not None and one.following.end > until and not one.sums.tally.pending)
            for one in self.rules
        )
