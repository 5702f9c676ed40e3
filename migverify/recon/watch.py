"""Keep the verdict of rules current: windows are evaluated as they close, open findings are read again.

One rule at a time: never more connections than one evaluation needs. All state is in the store, one transaction for
each step of a rule (``migverify.recon.watch_rule``).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from migverify import __version__
from migverify.errors import UsageError
from migverify.model import StoredKind, Verdict
from migverify.recon.bodies import DONE, result_of
from migverify.recon.model import WATCH_FACT, ParameterValue, Window
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.steps import EvaluationPeriod, is_of_rules_servers, plan_body, windowed
from migverify.recon.verdict import rule_result
from migverify.recon.watch_judge import RuleReads
from migverify.recon.watch_rule import RuleWatch
from migverify.recon.watch_state import WatchLimits
from migverify.recon.watch_status import Patience, RulesStatus, status_of
from migverify.recon.windows import moment_of, require_grid, unix_time, window_at
from migverify.store.results import ResultStore
from migverify.watch.loop import Ending, watch
from migverify.watch.run import WatchRun

TICK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class RulesWatchRequest:
    """How a watch begins and ends.

    ``since`` is where windows begin that their rule gives no start (UTC); None is now. ``resume`` names a watch to go
    on with, ``last`` the newest of these rules. ``until`` and ``once`` end it; ``time_limit`` in seconds.
    """

    command: str
    since: datetime | None = None
    resume: str | None = None
    once: bool = False
    until: datetime | None = None
    time_limit: float | None = None
    values: Mapping[str, ParameterValue] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RulesWatch:
    """Rules that are watched together. Make it, call ``run``."""

    run_id: str
    rules: Sequence[RuleWatch]
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    tick: float = TICK_SECONDS
    on_status: Callable[[RulesStatus], None] = lambda _: None
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
    ) -> RulesStatus:
        """Watch until it is stopped, or until everything that it was to decide is decided.

        ``once``: Evaluate the windows that may close now, read what is open of them again, and end. ``until``: End when
        every window up to this time is closed and decided. ``time_limit``: Seconds; then the end is INCONCLUSIVE at
        best. None waits for ever.

        Raises StoreError: the state cannot be recorded; what was recorded before counts.
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
        """Return DONE when everything that it was to decide is decided."""
        if self._once and self._quiet and (self._decided() or self._quiet > self._reads):
            return Ending.DONE
        if self._until is not None and self._closed(self._until) and self._decided():
            return Ending.DONE
        return None

    def status(self, ending: Ending | None = None) -> RulesStatus:
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


def watch_rules(
    rules: RuleSet,
    reads: Callable[[str], RuleReads],
    store: ResultStore,
    request: RulesWatchRequest,
    limits: WatchLimits,
    patience: Patience,
    *,
    show: bool = False,
    on_start: Callable[[str], None] = lambda _: None,
    on_status: Callable[[RulesStatus], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> RulesStatus:
    """Watch rules and return the last status; the run is finished in the store with its verdict.

    ``reads``: Makes what reads, for a run id. ``show``: Values of columns may be kept in the store.

    Raises ConfigError: windows that have no name of their own; PlanError: the watch to go on with had other rules or
    parameters; UsageError: there is no such watch.
    """
    for rule in rules.rules:
        if rule.window is not None:
            require_grid(rule.window, f"{rule.place}: rule {rule.name}")
    plan = {**plan_body(rules, EvaluationPeriod(), request.values), "command": "recon watch"}
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    run = WatchRun(
        store, StoredKind.RULES, WATCH_FACT, digest, plan, is_own=lambda one: is_of_rules_servers(one, request.facts)
    )
    if request.resume is not None:
        begins = run.resume(request.resume).facts[WATCH_FACT]
    else:
        begins = {rule.name: _begin(rule, rules, request) for rule in rules.rules}
        run.start(request.command, {WATCH_FACT: begins, "migverify": __version__, "rules": rules.path, **request.facts})
    on_start(run.run_id)
    made = reads(run.run_id)
    watched = [
        RuleWatch(
            rule, _first(rule, begins.get(rule.name, "")), made, store, run.run_id, limits, show=show,
            expiries=tuple(unix_time(e.expires) for e in rules.exceptions if e.rule == rule.name),
        )
        for rule in rules.rules
    ]  # fmt: skip
    watch = RulesWatch(run.run_id, watched, patience, on_status=on_status)
    with run.interruptible():
        status = watch.run(stop, once=request.once, until=request.until, time_limit=request.time_limit)
    _record_end(rules, run, status)
    return status


def _begin(rule: Rule, rules: RuleSet, request: RulesWatchRequest) -> str:
    """Return where the windows of a rule begin as text, empty for a rule without windows."""
    if rule.window is None or not windowed(rule, rules):
        return ""
    moment = request.since or rule.window.start or moment_of(time.time())
    if rule.window.start is not None:
        moment = max(moment, rule.window.start)
    first = window_at(rule.window, moment)
    if first is None:
        raise UsageError(f"rule {rule.name}: no window holds {moment}")
    return first.start.isoformat()


def _first(rule: Rule, start: str) -> Window | None:
    return window_at(rule.window, datetime.fromisoformat(start)) if rule.window and start else None


def _record_end(rules: RuleSet, run: WatchRun, status: RulesStatus) -> None:
    """Record the end: a result for each rule, as a run has it, and the verdict with its reasons."""
    for rule, one in zip(rules.rules, status.rules, strict=True):
        ended = (result_of(body) for body in run.store.windows(run.run_id, rule.name) if body["state"] == DONE)
        result = rule_result(rule, rules, ended, planned=sum(one.windows.values()))
        verdict = Verdict.worst([result.verdict, one.verdict])
        notes = [f"note: {notice}" for notice in one.notices]
        reasons = tuple(dict.fromkeys([*one.reasons, *result.reasons, *notes]))
        run.store.add_table_result(run.run_id, replace(result, verdict=verdict, reasons=reasons))
    of_rules = [f"{one.rule}: {reason}" for one in status.rules for reason in one.reasons]
    through = {one.rule: one.through for one in status.rules}
    run.end(status, {"reasons": [*status.reasons, *of_rules], "watch_through": through})
