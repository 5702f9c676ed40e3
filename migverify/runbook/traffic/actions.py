"""Traffic as actions of runbooks: set a share, put it back, and measure what it did. See docs/traffic.md."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from migverify.errors import MigverifyError, TrafficError
from migverify.runbook.actions.action import Action, ActionKind, ActionResult, Argument, Context, Outcome, Registry
from migverify.runbook.model import Check
from migverify.runbook.traffic.change import Change, abort, change, look
from migverify.runbook.traffic.load import Traffic, load_traffic
from migverify.runbook.traffic.measure import (
    Measured,
    errors_of,
    judge_instances,
    latency_of,
    measure,
    stickiness,
)
from migverify.runbook.traffic.model import Driver, hundredths, percent

__all__ = ["register"]

_FILE = Argument("traffic", "text", "The traffic file (traffic/v1).", required=True)
_SHARE = Argument("share", "number", "Share of the new side in percent.", required=True)
_SIDE = Argument("side", "text", "`old` or `new`; default: new.")
_LAST = Argument("last", "number", "Only the last so many seconds; default: since the change.")
_LEAST = Argument("min_requests", "number", "With fewer requests on the side nothing is said; default: 100.")
_TIMEOUT = Argument("timeout", "number", "Seconds that the answer may take.")
_MIN_REQUESTS = 100
_YES = Check("", equals="true")

_Ask = Callable[[Traffic, Driver, Mapping[str, Any], Context], ActionResult]


def _with_driver(ask: _Ask) -> Callable[[Mapping[str, Any], Context], ActionResult]:
    """Open the traffic file and its driver for an action; for a check, what cannot be known is no data."""

    def run(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        traffic = load_traffic(Path(arguments["traffic"]))
        with traffic.driver(context) as driver:
            return ask(traffic, driver, arguments, context)

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
        text = f"a change and its way back may take {traffic.least_seconds:g} s, the timeout is {context.timeout:g} s"
        return ActionResult(Outcome.FAILED, f"nothing was changed: {text}")
    share, expected = hundredths(arguments["share"]), hundredths(arguments["expected"])
    return _changed(change(driver, share, expected, traffic.ladder), share)


def _abort(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], context: Context) -> ActionResult:
    share = hundredths(arguments["share"])
    if share not in (0, *traffic.ladder):
        return ActionResult(Outcome.FAILED, f"nothing was changed: {percent(share)} % is no step of the ladder")
    state = look(driver)
    if state.share is not None and share > state.share:
        text = f"{percent(share)} % is more than the {percent(state.share)} % that is served: that is no way back"
        return ActionResult(Outcome.FAILED, f"nothing was changed: {text}")
    if context.canceled.is_set():
        return ActionResult(Outcome.CANCELED, "nothing was changed: the step was ended before it began")
    return _changed(abort(driver, share), share)


def _changed(found: Change, share: int) -> ActionResult:
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
    told = ", ".join(f"{name} {reading}" for name, reading in state.served.items())
    if len(shares) != 1:
        return ActionResult(Outcome.NO_DATA, f"instances disagree: {told}", None, state.as_json())
    return ActionResult(Outcome.OK, told, (shares.pop() or 0) / 100, state.as_json())


def _measured(driver: Driver, arguments: Mapping[str, Any]) -> Measured:
    return measure(driver, last=arguments.get("last"))


def _share(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    asked, found = hundredths(arguments["share"]), _measured(driver, arguments)
    return _judged(*judge_instances(asked, found, traffic, sticky=driver.sticky), found)


def _sticky(traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    found = _measured(driver, arguments)
    return _judged(*stickiness(found, writes=traffic.writes, predicts=driver.predicts is not None), found)


def _judged(state: str, text: str, found: Measured) -> ActionResult:
    if state == "inconclusive":
        return ActionResult(Outcome.NO_DATA, text, None, found.as_json())
    return ActionResult(Outcome.OK, text, state == "pass", found.as_json())


def _side(arguments: Mapping[str, Any]) -> str:
    side = str(arguments.get("side", "new"))
    if side not in ("old", "new"):
        raise TrafficError(f"side: {side} is neither old nor new")
    return side


def _errors(_traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    found = _measured(driver, arguments)
    value, text = errors_of(found, _side(arguments), _least(arguments))
    return ActionResult(Outcome.OK if value is not None else Outcome.NO_DATA, text, value, found.as_json())


def _latency(_traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], _context: Context) -> ActionResult:
    quantile = float(arguments.get("quantile", 99))
    if not 0 < quantile < 100:
        raise TrafficError(f"quantile: {quantile:g} is not between 0 and 100")
    found = _measured(driver, arguments)
    value, text = latency_of(found, _side(arguments), quantile, _least(arguments))
    return ActionResult(Outcome.OK if value is not None else Outcome.NO_DATA, text, value, found.as_json())


def _least(arguments: Mapping[str, Any]) -> int:
    return int(arguments.get("min_requests", _MIN_REQUESTS))


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
            told = f"baked {spent:.0f} s: {text}"
            return ActionResult(outcome, told, True if state == "pass" else None, facts)
        if context.canceled.wait(min(every, max(0.05, seconds - spent)) if spent < seconds else every):
            return ActionResult(Outcome.CANCELED, f"cut short after {spent:.0f} s of {seconds:g} s: {text}")


def _bake_look(
    traffic: Traffic, driver: Driver, arguments: Mapping[str, Any], asked: int
) -> tuple[str, str, dict[str, Any]]:
    """Return the worst state of share, errors and times, its text, and the counts."""
    try:
        found = _measured(driver, arguments)
        told = [judge_instances(asked, found, traffic, sticky=driver.sticky)]
        side = _side(arguments)
        if "max_errors" in arguments:
            told.append(_bounded(errors_of(found, side, _least(arguments)), arguments["max_errors"], "%"))
        if "max_p99" in arguments:
            told.append(_bounded(latency_of(found, side, 99.0, _least(arguments)), arguments["max_p99"], "ms"))
    except MigverifyError as error:
        return "inconclusive", error.message, {}
    worst = next((one for one in ("fail", "inconclusive") if any(state == one for state, _ in told)), "pass")
    return worst, "; ".join(text for state, text in told if state == worst), found.as_json()


def _bounded(found: tuple[float | None, str], most: float, unit: str) -> tuple[str, str]:
    value, text = found
    if value is None:
        return "inconclusive", text
    return ("fail", f"{text}, above {most:g} {unit}") if value > most else ("pass", text)


def register(registry: Registry) -> None:
    """Add the actions of traffic to a registry."""
    effect, check = ActionKind.EFFECT, ActionKind.CHECK
    window = (_LAST, _TIMEOUT)
    for action in (
        Action("traffic.set", effect, "Moves the share of the new side by one step of the ladder, on all instances or"
               " on none; refused when another share is found than expected.",
               (_FILE, _SHARE, Argument("expected", "number", "Share that has to be there now.", required=True)),
               _with_driver(_set)),
        Action("traffic.abort", effect, "Puts the share back on every instance, whatever is found there; never raises"
               " it.", (_FILE, _SHARE), _with_driver(_abort)),
        Action("traffic.configured", check, "Share that every instance has written and serves.", (_FILE, _TIMEOUT),
               _asking(_configured)),
        Action("traffic.served", check, "Share that every worker of every instance serves, old workers gone.",
               (_FILE, _TIMEOUT), _asking(_served)),
        Action("traffic.share", check, "Whether the measured share of every instance is the one that was asked for.",
               (_FILE, _SHARE, *window), _asking(_share), _YES),
        Action("traffic.errors", check, "Failed requests of a side, in percent.", (_FILE, _SIDE, _LEAST, *window),
               _asking(_errors)),
        Action("traffic.latency", check, "A quantile of the times of a side, in ms.",
               (_FILE, _SIDE, Argument("quantile", "number", "In percent; default: 99."), _LEAST, *window),
               _asking(_latency)),
        Action("traffic.sticky", check, "Whether every key had one side, and none moved back.", (_FILE, *window),
               _asking(_sticky), _YES),
        Action("traffic.bake", check, "Whether share, errors and times stay good for a time; ends at the first breach.",
               (_FILE, _SHARE, Argument("seconds", "number", "Bake time.", required=True),
                Argument("every", "number", "Seconds between two looks; default: 5."),
                Argument("max_errors", "number", "Failed requests of the side, in percent."),
                Argument("max_p99", "number", "p99 of the side, in ms."), _SIDE, _LEAST, *window),
               _asking(_bake), _YES),
    ):  # fmt: skip
        registry.register(action)
