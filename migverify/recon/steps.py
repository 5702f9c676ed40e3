"""What a run does, as a list of values: ``recon explain`` shows it, ``recon run`` walks it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from migverify.errors import UsageError
from migverify.model import RunInfo
from migverify.recon.model import ParameterValue, QueryPart, TablePart, Window
from migverify.recon.rule import Rule, RuleSet
from migverify.recon.windows import EPOCH, around, is_immutable, moment_of, reach, window_at, windows_from
from migverify.tables.run_facts import endpoint_addresses

MOST_WINDOWS = 100_000


@dataclass(frozen=True, slots=True)
class RuleStep:
    """One rule in one window (None: all rows)."""

    rule: Rule
    window: Window | None


@dataclass(frozen=True, slots=True)
class EvaluationPeriod:
    """From when to when (UTC) windowed rules are evaluated; None is open."""

    start: datetime | None = None
    end: datetime | None = None


def chosen(rules: RuleSet, names: Sequence[str]) -> RuleSet:
    """Return the rule set with these rules only, all for none; ``UsageError`` for a name that is not there."""
    known = [rule.name for rule in rules.rules]
    for name in names:
        if name not in known:
            raise UsageError(f"{rules.path} has no rule {name!r}", hint=f"Its rules are: {', '.join(known) or 'none'}.")
    return replace(rules, rules=tuple(rule for rule in rules.rules if rule.name in names)) if names else rules


def steps_of(rules: RuleSet, span: EvaluationPeriod, now: float) -> Iterator[RuleStep]:
    """Yield what is to be done, rule by rule, windows in their order.

    A rule without windows is one step over all rows. A windowed one is cut by its grid inside the span; a window counts
    when its end and the settle time are past. Without a start of the span or of the grid, everything before the first
    border that is not settled is one window: nothing earlier is left out.

    Raises UsageError: the span is empty, has more windows than a run may have, or holds no closed window.
    """
    if span.start is not None and span.end is not None and span.start >= span.end:
        raise UsageError("--from is not before --to", hint="Both are UTC: --from 2026-01-31 --to 2026-02-01.")
    for rule in rules.rules:
        if rule.window is None or not windowed(rule, rules):
            yield RuleStep(rule, None)
        else:
            yield from (RuleStep(rule, window) for window in _windows(rule, span, now))


def windowed(rule: Rule, rules: RuleSet) -> bool:
    """Whether windows cut the rows of a rule: it has windows, and a dataset with a time or the window's parameters."""
    names = rule.datasets
    return rule.window is not None and any(
        rules.datasets[name].time is not None or _bound(rules, name) for name in names if name in rules.datasets
    )


def _bound(rules: RuleSet, name: str) -> bool:
    texts = [p.sql if isinstance(p, QueryPart) else p.where for p in rules.datasets[name].parts
             if isinstance(p, QueryPart | TablePart)]  # fmt: skip
    return any(":window_" in text for text in texts)


def _windows(rule: Rule, span: EvaluationPeriod, now: float) -> Iterator[Window]:
    grid = rule.window
    if grid is None:
        return
    settled = moment_of(now) - timedelta(seconds=rule.settle or 0.0)
    end = settled if span.end is None else min(span.end, settled)
    start = span.start or grid.start
    if start is None:
        last = window_at(grid, end)
        if last is not None and last.start > EPOCH:
            yield Window(EPOCH, last.start)
        return
    first = window_at(grid, start)
    if first is None:
        first = window_at(grid, grid.start or EPOCH)
    if first is None:
        return
    for number, window in enumerate(windows_from(first)):
        if window.end > end:
            return
        if number >= MOST_WINDOWS:
            raise UsageError(
                f"{rule.place}: rule {rule.name} has more than {MOST_WINDOWS:,} windows from {start} to {end}",
                hint="Give a later --from, or wider windows.",
            )
        yield window


def widened(step: RuleStep, rules: RuleSet) -> Window | None:
    """Return the span in which keys of a window are looked for again; None where the window itself is right.

    Two services stamp one event with two times. A row whose counterpart lies in a neighbor window, within the settle
    time, has matched across the border. Sums are of their own window.
    """
    rule = step.rule
    if step.window is None or not rule.crosses_windows or not rule.settle:
        return None
    names = rule.datasets
    if any(_bound(rules, name) for name in names):
        return None
    steps = reach(step.window, rule.settle)
    return around(step.window, steps, steps)


def rests(step: RuleStep, now: float) -> bool:
    """Whether rows of the step's window do not change any more: once it matched, it is not read again."""
    return step.window is not None and step.rule.window is not None and is_immutable(step.rule.window, step.window, now)


def plan_body(rules: RuleSet, span: EvaluationPeriod, values: Mapping[str, ParameterValue]) -> dict[str, object]:
    """Return the plan as the store keeps it: what decides an outcome, so that another one cannot be resumed."""
    return {
        "rules": [rule.name for rule in rules.rules], "file": rules.path, "digest": rules.digest,
        "from": span.start.isoformat() if span.start else None, "to": span.end.isoformat() if span.end else None,
        "parameters": {name: str(value) for name, value in sorted(values.items())},
        "pairs": [
            {"id": rule.name, "source": rule.source, "target": rule.datasets[-1]} for rule in rules.rules
        ],
    }  # fmt: skip


def is_of_rules_servers(run: RunInfo, facts: Mapping[str, Any]) -> bool:
    """Whether a run of rules read the servers that the facts of another one name; ``--rule`` may leave out some.

    Services, and staging and production, have the same rules and share a store.
    """
    then, now = endpoint_addresses(run.facts), endpoint_addresses(facts)
    return (bool(then) or not now) and all(then[name] == now[name] for name in then.keys() & now.keys())
