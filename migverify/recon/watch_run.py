"""A watch of rules from its beginning to its end in the store: where windows begin, how it goes on, how it ends."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from migverify import __version__
from migverify.errors import PlanError, UsageError
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.recon.bodies import DONE, result_of
from migverify.recon.model import ParameterValue, Rule, RuleSet, Window
from migverify.recon.outcome import rule_result
from migverify.recon.steps import Span, plan_body, windowed
from migverify.recon.watch import RulesWatch
from migverify.recon.watch_judge import RuleReads
from migverify.recon.watch_rule import RuleWatch
from migverify.recon.watch_state import WatchLimits
from migverify.recon.watch_status import Patience, ReconStatus
from migverify.recon.windows import moment_of, require_grid, unix_time, window_at
from migverify.store.base import ResultStore, named_run

FACT = "recon_watch"
"""The fact of a run that says it is a watch of rules, with where each rule's windows begin."""


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What is asked for.

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


def watch_rules(
    rules: RuleSet,
    reads: Callable[[str], RuleReads],
    store: ResultStore,
    request: WatchRequest,
    limits: WatchLimits,
    patience: Patience,
    *,
    show: bool = False,
    on_start: Callable[[str], None] = lambda _: None,
    on_status: Callable[[ReconStatus], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> ReconStatus:
    """Watch rules and return the last status; the run is finished in the store with its verdict.

    Parameters
    ----------
    reads
        Makes what reads, for a run id.
    show
        Values of columns may be kept in the store.

    Raises
    ------
    ConfigError
        windows that have no name of their own.
    PlanError
        the watch to go on with had other rules or parameters.
    UsageError
        there is no such watch.
    """
    for rule in rules.rules:
        if rule.window is not None:
            require_grid(rule.window, f"{rule.place}: rule {rule.name}")
    started = time.time()
    plan = {**plan_body(rules, Span(), request.values), "command": "recon watch"}
    digest = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
    run_id, begins = _open(rules, store, request, plan, digest)
    on_start(run_id)
    made = reads(run_id)
    watched = [
        RuleWatch(
            rule, begins[rule.name], made, store, run_id, limits, show=show,
            expiries=tuple(unix_time(e.expires) for e in rules.exceptions if e.rule == rule.name),
        )
        for rule in rules.rules
    ]  # fmt: skip
    watch = RulesWatch(run_id, watched, patience, on_status=on_status)
    try:
        status = watch.run(stop, once=request.once, until=request.until, time_limit=request.time_limit)
    except KeyboardInterrupt:
        store.finish_run(run_id, Verdict.INCONCLUSIVE, {"reasons": ["interrupted; go on with --resume"]})
        raise
    _end(rules, store, status, time.time() - started)
    return status


def _open(
    rules: RuleSet, store: ResultStore, request: WatchRequest, plan: dict[str, Any], digest: str
) -> tuple[str, dict[str, Window | None]]:
    if request.resume is not None:
        info = _earlier(store, request.resume, digest)
        store.resume_run(info.run_id)
        told: Mapping[str, str] = info.facts[FACT]
    else:
        told = {rule.name: _begin(rule, rules, request) for rule in rules.rules}
        facts = {FACT: told, "migverify": __version__, "rules": rules.path, **request.facts}
        return store.start_run(request.command, digest, plan, facts, kind=StoredKind.RULES), _windows(rules, told)
    return info.run_id, _windows(rules, told)


def _earlier(store: ResultStore, name: str, digest: str) -> RunInfo:
    """Return the watch to go on with."""
    info = named_run(store, name, StoredKind.RULES, digest, suits=lambda one: FACT in one.facts)
    if FACT not in info.facts:
        raise UsageError(f"run {info.run_id} is no watch of rules", hint="`--resume last` takes the newest.")
    if info.plan_hash != digest:
        raise PlanError(
            f"watch {info.run_id} had other rules or parameters",
            hint="Put them back as they were, or start a new watch.",
        )
    return info


def _begin(rule: Rule, rules: RuleSet, request: WatchRequest) -> str:
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


def _windows(rules: RuleSet, told: Mapping[str, str]) -> dict[str, Window | None]:
    found: dict[str, Window | None] = {}
    for rule in rules.rules:
        text = told.get(rule.name, "")
        found[rule.name] = window_at(rule.window, datetime.fromisoformat(text)) if rule.window and text else None
    return found


def _end(rules: RuleSet, store: ResultStore, status: ReconStatus, seconds: float) -> None:
    """Record the end: a result for each rule, as a run has it, and the verdict with its reasons."""
    for rule, one in zip(rules.rules, status.rules, strict=True):
        ended = (result_of(body) for body in store.windows(status.run_id, rule.name) if body["state"] == DONE)
        result = rule_result(rule, rules, ended, planned=sum(one.windows.values()))
        verdict = Verdict.worst([result.verdict, one.verdict])
        notes = [f"note: {notice}" for notice in one.notices]
        told = tuple(dict.fromkeys([*one.reasons, *result.reasons, *notes]))
        store.add_table_result(status.run_id, replace(result, verdict=verdict, reasons=told))
    reasons = [*status.reasons, *(f"{one.rule}: {reason}" for one in status.rules for reason in one.reasons)]
    facts = {"seconds": seconds, "reasons": reasons, "watch_through": {r.rule: r.through for r in status.rules}}
    store.finish_run(status.run_id, status.verdict, facts)
