"""Rules of time: what a time may be, budgets, the write stop, the window, and that the rollback fits it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

from migverify.runbook.definition.findings import LintFinding, finding
from migverify.runbook.definition.lint_ground import Ground
from migverify.runbook.definition.plan import Plan, applies, plan_of, rollback_peak
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Effect, Step

_RUNS = (RunKind.LIVE, RunKind.REHEARSAL)


def time_rules(ground: Ground) -> Iterator[LintFinding]:
    """Yield what is wrong with times; sums are judged only where every single time can be one."""
    found = [*_single(ground), *_of_book(ground)]
    yield from found
    for number, step in enumerate(ground.runbook.steps):
        yield from _order(ground, number, step)
    paired = list(_unpaired(ground))
    yield from paired
    yield from _window(ground)
    if not paired and not ground.network.stuck:
        yield from _inside_write_stop(ground)
    if any(one.rule == "bad-time" for one in found) or ground.network.stuck:
        return
    for kind in _RUNS:
        plan = plan_of(ground.runbook, kind, network=ground.network)
        yield from _sums(ground, plan)


def _bad(seconds: float | None, *, zero: bool = False) -> bool:
    return seconds is not None and not (math.isfinite(seconds) and (seconds > 0 or (zero and seconds == 0)))


def _single(ground: Ground) -> Iterator[LintFinding]:
    for number, step in enumerate(ground.runbook.steps):
        times, back = step.times, step.rollback
        waits = step.effect.arguments.get("seconds") if step.effect and step.kind is StepKind.WAIT else None
        for way, seconds in (
            (("time", "plan"), times.plan), (("time", "max"), times.maximum), (("time", "min"), times.minimum),
            (("do", "timeout"), step.effect.timeout if step.effect and waits is None else None), (("wait",), waits),
            (("rollback", "plan"), back.plan if back else None),
            (("rollback", "do", "timeout"), back.effect.timeout if back and back.effect else None),
        ):  # fmt: skip
            if _bad(seconds):
                yield ground.at("bad-time", number, way, f"{'.'.join(way)} is {_told(seconds)}")
        if _bad(step.on_fail.backoff, zero=True):
            yield ground.at("bad-time", number, ("on_fail",), f"backoff is {_told(step.on_fail.backoff)}")
        if times.plan is None and step.kind is not StepKind.ANNOUNCE:
            yield ground.at("no-plan-time", number, (), "no planned time")
    for step_number, check_way, check in ground.checks():
        if _bad(check.for_seconds, zero=True):
            yield ground.of_check("bad-time", step_number, (*check_way, "for"), f"for is {_told(check.for_seconds)}")


def _of_book(ground: Ground) -> Iterator[LintFinding]:
    book = ground.runbook
    for way, seconds, zero in (
        (("policy", "sign_off_ttl"), book.policy.sign_off_ttl, False),
        (("policy", "unattended_nag"), book.policy.unattended_nag, False),
        (("policy", "readiness", "dr_cases", "max_age"), book.policy.readiness.dr_cases.max_age, False),
        (("budgets", "write_stop"), book.budgets.write_stop, False),
        (("budgets", "decision_by"), book.budgets.decision_by, False),
        (("budgets", "margin"), book.budgets.margin, True),
    ):
        if _bad(seconds, zero=zero):
            yield finding("bad-time", ground.places.at(*way), f"{'.'.join(way)} is {_told(seconds)}")
    for number, guard in enumerate(book.guards):
        if _bad(guard.every):
            where = ground.places.at("guards", number, "every")
            yield finding("bad-time", where, f"guard {guard.id}: every is {_told(guard.every)}")
    ready = book.policy.readiness
    if ready.clean_last > ready.drills_min:
        text = f"{ready.clean_last} clean drills of {ready.drills_min}"
        yield finding("readiness-contradicts", ground.places.at("policy", "readiness", "clean_last"), text)
    if not book.sinks:
        yield finding("no-sink", ground.places.at("phases"), "nobody hears of this run")


def _told(seconds: float | None) -> str:
    return "not a number" if seconds is None or math.isnan(seconds) else f"{seconds:g} s"


def _order(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    times = step.times
    known = [one for one in (times.minimum, times.plan, times.maximum) if one is not None]
    if any(one > other for one, other in pairwise(known)):
        yield ground.at("times-out-of-order", number, ("time",), "its times are not min <= plan <= max")
    if times.maximum is None:
        return
    for way, what, seconds in _limits(step):
        if seconds > times.maximum:
            text = f"{what} of {seconds:g} s, and the step may take {times.maximum:g} s"
            yield ground.at("timeout-over-max", number, way, text)


def _limits(step: Step) -> Iterator[tuple[tuple[str | int, ...], str, float]]:
    """Every time that a step may take by itself, with the way to it."""
    if step.effect is not None:
        way, what, seconds = _limit(step, step.effect)
        yield way, what, seconds
    for one, check in enumerate(step.expect):
        if check.for_seconds:
            yield ("expect", one, "for"), "evidence that has to hold for a time", check.for_seconds


def _limit(step: Step, effect: Effect) -> tuple[tuple[str | int, ...], str, float]:
    seconds = effect.arguments.get("seconds") if step.kind is StepKind.WAIT else None
    if isinstance(seconds, int | float):
        return ("wait",), "a wait", float(seconds)
    return ("do", "timeout"), "a timeout", effect.timeout


def _unpaired(ground: Ground) -> Iterator[LintFinding]:
    """A run has one begin and one end of the write stop, in this order, and a budget; or nothing of it."""
    book = ground.runbook
    marked = [n for n, step in enumerate(book.steps) if step.write_stop]
    if marked and book.budgets.write_stop is None:
        yield ground.at("write-stop-unpaired", marked[0], ("write_stop",), "writes stop, and there is no budget for it")
    if not marked and book.budgets.write_stop is not None:
        where = ground.places.at("budgets", "write_stop")
        yield finding("write-stop-unpaired", where, "there is a budget, and no step begins the write stop")
    seen: set[tuple[int, ...]] = set()
    for environment in book.environments:
        for kind in _RUNS:
            here = tuple(n for n in marked if applies(book.steps[n], environment, kind))
            begins = [n for n in here if book.steps[n].write_stop == "begin"]
            ends = [n for n in here if book.steps[n].write_stop == "end"]
            if not here or here in seen:
                continue
            seen.add(here)
            if len(begins) != 1 or len(ends) != 1:
                text = f"a run has {len(begins)} begins and {len(ends)} ends of the write stop"
                yield ground.at("write-stop-unpaired", here[-1], ("write_stop",), text)
            elif not ground.network.stuck and not ground.is_before(begins[0], ends[0]):
                text = "the write stop need not have begun before it ends here"
                yield ground.at("write-stop-unpaired", ends[0], ("write_stop",), text)


def _inside_write_stop(ground: Ground) -> Iterator[LintFinding]:
    book, budget = ground.runbook, ground.runbook.budgets.write_stop
    begins = [n for n, step in enumerate(book.steps) if step.write_stop == "begin"]
    ends = [n for n, step in enumerate(book.steps) if step.write_stop == "end"]
    if budget is None or not begins:
        return
    last = 0
    for end in ends:
        last |= ground.before[end] | (1 << end)
    for number, step in enumerate(book.steps):
        behind = number in begins or any(ground.is_before(begin, number) for begin in begins)
        if not behind or not last >> number & 1:
            continue
        limits = list(_limits(step))
        if step.times.maximum is not None:
            limits.append((("time", "max"), "a maximum", step.times.maximum))
        for way, what, seconds in limits:
            if seconds > budget:
                text = f"{what} of {seconds:g} s inside the write stop, whose budget is {budget:g} s"
                yield ground.at("over-budget", number, way, text)


def _window(ground: Ground) -> Iterator[LintFinding]:
    book, at = ground.runbook, ground.places.at
    if book.window is None:
        return
    length = book.window.closes - book.window.opens
    if length <= 0:
        yield finding("window-backwards", at("window", "closes"), "the window closes before it opens")
        return
    for way, seconds in (
        (("policy", "sign_off_ttl"), book.policy.sign_off_ttl),
        (("budgets", "decision_by"), book.budgets.decision_by),
    ):
        if seconds is not None and seconds > length:
            text = f"{'.'.join(way)} is {seconds:g} s, and the window is {length:g} s"
            yield finding("limit-over-window", at(*way), text)


def _sums(ground: Ground, plan: Plan) -> Iterator[LintFinding]:
    book, at = ground.runbook, ground.places.at
    budget, stop = book.budgets.write_stop, plan.write_stop
    work = plan.write_stop_work or 0.0
    if budget is not None and work > budget:
        text = f"the write stop is planned to take {work:g} s, and its budget is {budget:g} s"
        yield finding("write-stop-over-plan", at("budgets", "write_stop"), text)
    elif budget is not None and stop is not None and stop > budget:
        text = (
            f"{plan.write_stop_handoffs} hand-offs between people inside the write stop ({plan.handoff:g} s each) and"
            f" {work:g} s of work take {stop:g} s, and its budget is {budget:g} s"
        )
        yield finding("handoffs-over-write-stop", at("budgets", "write_stop"), text)
    if book.window is None or book.window.closes <= book.window.opens:
        return
    length = book.window.closes - book.window.opens
    if plan.total > length:
        text = f"the critical path takes {plan.total:g} s, and the window is {length:g} s"
        yield finding("plan-over-window", at("window"), text)
        return
    moment, back, id_ = rollback_peak(book, plan)
    if id_ and moment + back + book.budgets.margin > length:
        text = (
            f"after {id_}, {moment:g} s into the plan, going back takes {back:g} s with {book.budgets.margin:g} s"
            f" margin, and the window is {length:g} s"
        )
        yield finding("rollback-over-window", at("window"), text)
