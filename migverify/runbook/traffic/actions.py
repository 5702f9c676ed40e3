"""Traffic as actions of runbooks: set a share, put it back, and measure what it did. See docs/traffic.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from migverify.errors import MigverifyError
from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    Argument,
    Bounds,
    Context,
    Outcome,
    Registry,
)
from migverify.runbook.traffic.change import ChangeResult, abort, change, look
from migverify.runbook.traffic.command import CommandDriver
from migverify.runbook.traffic.document import NginxPart, Traffic, load_traffic
from migverify.runbook.traffic.measure import (
    TrafficMeasurement,
    judge_errors,
    judge_instances,
    judge_p99,
    measure,
    stickiness,
    worst_of,
)
from migverify.runbook.traffic.model import Driver, hundredths, percent
from migverify.runbook.traffic.nginx import NginxDriver

__all__ = ["driver_of", "register"]

_FILE = Argument("traffic", "text", "The traffic file (traffic/v1).", required=True)
_SHARE = Argument("share", "number", "Share of the new side in percent.", required=True)
_LEAST = Argument("min_requests", "number", "With fewer requests on the new side nothing is said; default: 100.")
_TIMEOUT = Argument("timeout", "number", "Seconds that the answer may take.")
_YES = Bounds(equals="true")

_Ask = Callable[[Traffic, Driver, Mapping[str, Any], Context], ActionResult]


def driver_of(traffic: Traffic, context: Context) -> Driver:
    """Return the driver of a traffic file, for the programs of one action."""
    if isinstance(traffic.driver, NginxPart):
        return NginxDriver(traffic.driver, context)
    return CommandDriver(traffic.id, traffic.driver, context)


def _with_driver(ask: _Ask) -> Callable[[Mapping[str, Any], Context], ActionResult]:
    """Open the traffic file and its driver for an action; for a check, what cannot be known is no data."""

    def run(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        traffic = load_traffic(Path(arguments["traffic"]))
        return ask(traffic, driver_of(traffic, context), arguments, context)

    return run


def _asking(ask: _Ask) -> Callable[[Mapping[str, Any], Context], ActionResult]:
    opened = _with_driver(ask)

    def run(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        try:
            return opened(arguments, context)
        except MigverifyError as error:
            return ActionResult(Outcome.NO_DATA, error.message)

    return run


# --- effects ---------------------------------------------------------------------------------------------------


def _set(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], context: Context) -> ActionResult:
    if context.timeout < traffic.least_seconds:
        text = f"a change and its reversal may take {traffic.least_seconds:g} s, the timeout is {context.timeout:g} s"
        return ActionResult(Outcome.FAILED, f"nothing was changed: {text}")
    share, expected = hundredths(arguments["share"]), hundredths(arguments["expected"])
    return _changed(change(driver, share, expected, traffic.rungs), share)


def _abort(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], context: Context) -> ActionResult:
    share = hundredths(arguments["share"])
    if share not in (0, *traffic.rungs):
        return ActionResult(Outcome.FAILED, f"nothing was changed: {percent(share)} % is no step of the ladder")
    state = look(driver)
    if state.share is not None and share > state.share:
        text = f"{percent(share)} % is more than the {percent(state.share)} % that is served: that is no rollback"
        return ActionResult(Outcome.FAILED, f"nothing was changed: {text}")
    if context.canceled.is_set():
        return ActionResult(Outcome.CANCELED, "nothing was changed: the step was ended before it began")
    return _changed(abort(driver, share), share)


def _changed(found: ChangeResult, share: int) -> ActionResult:
    outcomes = {"done": Outcome.OK, "refused": Outcome.FAILED, "put back": Outcome.FAILED, "in doubt": Outcome.NO_DATA}
    facts = {"result": found.outcome, "instances": found.state.as_json() if found.state is not None else {}}
    value = share / 100 if found.outcome == "done" else None
    return ActionResult(outcomes[found.outcome], found.text, value, facts)


# --- checks ----------------------------------------------------------------------------------------------------


def _configured(_traffic: Traffic, driver: Driver, _arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    state = look(driver)
    if state.share is None:
        return ActionResult(Outcome.NO_DATA, state.why, None, state.as_json())
    text = f"{percent(state.share)} % is configured and served by {len(state.settings)} instances"
    return ActionResult(Outcome.OK, text, state.share / 100, state.as_json())


def _served(_traffic: Traffic, driver: Driver, _arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    state = look(driver)
    for name, reading in state.served.items():
        if not reading.known:
            return ActionResult(Outcome.NO_DATA, f"{name}: {reading.why}", None, state.as_json())
        if reading.facts.get("draining"):
            text = f"{name}: {reading.facts['draining']} old workers still serve what they began"
            return ActionResult(Outcome.NO_DATA, text, None, state.as_json())
    shares = {reading.share for reading in state.served.values()}
    shown = ", ".join(f"{name} {reading}" for name, reading in state.served.items())
    if len(shares) != 1:
        return ActionResult(Outcome.NO_DATA, f"instances disagree: {shown}", None, state.as_json())
    return ActionResult(Outcome.OK, shown, (shares.pop() or 0) / 100, state.as_json())


def _share(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    found = measure(driver)
    return _judged(*judge_instances(hundredths(arguments["share"]), found, traffic, sticky=driver.sticky), found)


def _sticky(traffic: Traffic, driver: Driver, _arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    found = measure(driver)
    return _judged(*stickiness(found, writes=traffic.writes, predicts=driver.predicts is not None), found)


def _judged(state: str, text: str, found: TrafficMeasurement) -> ActionResult:
    if state == "inconclusive":
        return ActionResult(Outcome.NO_DATA, text, None, found.as_json())
    return ActionResult(Outcome.OK, text, state == "pass", found.as_json())


# --- bake ------------------------------------------------------------------------------------------------------


def _bake(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], context: Context) -> ActionResult:
    """Watch a share for its bake time, and end at the first breach; at its end everything has to be known and good."""
    asked, seconds = hundredths(arguments["share"]), float(arguments["seconds"])
    every = max(0.5, float(arguments.get("every", 5)))
    if context.timeout <= seconds:
        text = f"a bake time of {seconds:g} s does not fit into {context.timeout:g} s: raise `timeout`"
        return ActionResult(Outcome.NO_DATA, text)
    begun = time.monotonic()
    while True:
        looked = time.monotonic()
        state, text, facts = _bake_look(traffic, driver, arguments, asked)
        spent = time.monotonic() - begun
        # A long log takes its time: not more than a fifth of it is spent on reading.
        every = max(every, 4 * (time.monotonic() - looked))
        if state == "fail":
            return ActionResult(
                Outcome.OK, f"after {spent:.0f} s of {seconds:g} s: {text}", value=False, evidence=facts
            )
        if spent >= seconds and (state == "pass" or spent + every >= context.timeout - 1):
            outcome = Outcome.OK if state == "pass" else Outcome.NO_DATA
            shown = f"baked {spent:.0f} s: {text}"
            return ActionResult(outcome, shown, True if state == "pass" else None, facts)
        if context.canceled.wait(min(every, max(0.05, seconds - spent)) if spent < seconds else every):
            return ActionResult(Outcome.CANCELED, f"cut short after {spent:.0f} s of {seconds:g} s: {text}")


def _bake_look(
    traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], asked: int
) -> tuple[str, str, dict[str, Any]]:
    """Return the worst state of share, errors and times, its text, and the counts."""
    try:
        found = measure(driver)
        least = int(arguments.get("min_requests", 100))
        judged = [judge_instances(asked, found, traffic, sticky=driver.sticky)]
        if "max_errors" in arguments:
            judged.append(judge_errors(found, arguments["max_errors"], least))
        if "max_p99" in arguments:
            judged.append(judge_p99(found, arguments["max_p99"], least))
    except MigverifyError as error:
        return "inconclusive", error.message, {}
    return *worst_of(judged), found.as_json()


def register(registry: Registry) -> None:
    """Add the actions of traffic to a registry."""
    effect, check = ActionKind.EFFECT, ActionKind.CHECK
    for action in (
        Action("traffic.set", effect, "Moves the share of the new side by one step of the ladder, on all instances or"
               " on none; refused when another share is found than expected.",
               (_FILE, _SHARE, Argument("expected", "number", "Share that has to be there now.", required=True)),
               _with_driver(_set)),
        Action("traffic.abort", effect, "Puts the share back on every instance, in any state; never raises"
               " it.", (_FILE, _SHARE), _with_driver(_abort)),
        Action("traffic.configured", check, "Share that every instance has written and serves.", (_FILE, _TIMEOUT),
               _asking(_configured)),
        Action("traffic.served", check, "Share that every worker of every instance serves, old workers gone.",
               (_FILE, _TIMEOUT), _asking(_served)),
        Action("traffic.share", check, "Whether the measured share of every instance is the one that was requested.",
               (_FILE, _SHARE, _TIMEOUT), _asking(_share), _YES),
        Action("traffic.sticky", check, "Whether every key had one side, and none moved back.", (_FILE, _TIMEOUT),
               _asking(_sticky), _YES),
        Action("traffic.bake", check, "Whether share, errors and times stay good for a time; ends at the first breach.",
               (_FILE, _SHARE, Argument("seconds", "number", "Bake time.", required=True),
                Argument("every", "number", "Seconds between two looks; default: 5."),
                Argument("max_errors", "number", "Failed requests of the new side, in percent."),
                Argument("max_p99", "number", "p99 of the new side, in ms."), _LEAST, _TIMEOUT),
               _asking(_bake), _YES),
    ):  # fmt: skip
        registry.register(action)
