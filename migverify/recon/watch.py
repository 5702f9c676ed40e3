"""Keep the verdict of rules current: windows are evaluated as they close, open findings are read again.

One loop over the rules, one rule at a time: never more connections than one evaluation needs. All state is in the
store, one transaction for each step of a rule (``migverify.recon.watch_rule``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from migverify.recon.watch_rule import RuleWatch
from migverify.recon.watch_status import Patience, ReconStatus, status_of

TICK_SECONDS = 1.0


@dataclass(slots=True)
class Watch:
    """Rules that are watched together. Make it, call ``run``."""

    run_id: str
    rules: Sequence[RuleWatch]
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    tick: float = TICK_SECONDS
    on_status: Callable[[ReconStatus], None] = lambda _: None

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
        for one in self.rules:
            one.restore()
            one.until = until
        deadline = None if time_limit is None else self.clock() + time_limit
        quiet = 0
        while not stop():
            began = self.clock()
            progress = False
            for one in self.rules:
                progress = one.turn(stop) or progress
                if stop():
                    break
            quiet = 0 if progress else quiet + 1
            if once and not progress and (self._decided() or quiet > self._reads):
                return self._end("")
            if until is not None and self._closed(until) and self._decided():
                return self._end("")
            if deadline is not None and self.clock() >= deadline:
                return self._end(f"the time limit of {time_limit:g} s is over")
            self.on_status(self._status())
            # While windows wait to be evaluated there is no reason to pause.
            self.sleep(self._pause(once=once) if not progress else 0.0 if once else self._left(began))
        return self._end("stopped before it was done" if once or until is not None else "")

    @property
    def _reads(self) -> int:
        """Turns without progress after which ``once`` ends: the re-reads that a difference needs."""
        return max((one.rule.rereads for one in self.rules), default=0) + 2

    def _pause(self, *, once: bool) -> float:
        return max((one.rule.delay for one in self.rules), default=self.tick) if once else self.tick

    def _left(self, began: float) -> float:
        behind = any(one.late_by(self.clock()) > 0 for one in self.rules)
        return 0.0 if behind else max(0.0, self.tick - (self.clock() - began))

    def _decided(self) -> bool:
        return not any(one.waiting or one.errors for one in self.rules)

    def _closed(self, until: datetime) -> bool:
        """Whether no window up to that time is left, and nothing on a border waits."""
        return all(
            (one.following is None and one.sums.closed > 0)
            or (one.following is not None and one.following.end > until and not one.sums.tally.pending)
            for one in self.rules
        )

    def _status(self) -> ReconStatus:
        return status_of(self.run_id, self.rules, self.clock(), self.patience)

    def _end(self, reason: str) -> ReconStatus:
        return status_of(self.run_id, self.rules, self.clock(), self.patience, final=True, reason=reason)
