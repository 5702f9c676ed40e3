"""What the gates answered last about both directions: up to where each is proved, and what a rollback would lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from migverify.runbook.actions.rollback_loss import NAME
from migverify.runbook.clock import Moment
from migverify.runbook.conditions import rollback_rules
from migverify.runbook.events import Event, EventKind
from migverify.runbook.page.view_clock import ClockView, since
from migverify.runbook.state import RunStatus

__all__ = ["DirectionView", "LossView", "directions_of", "loss_of"]

_K = EventKind
OLD_SECONDS = 90.0
"""Seconds after which an answer is old: a guard's unchanged one is written down every 60 s."""
_DIRECTIONS = {"forward": "tables.drained", "hand-over": "rollback.armed", "reverse": "rollback.proved"}
"""What a page calls them -> the check that answers."""


@dataclass(frozen=True, slots=True)
class LossView:
    """The last answer of a ``rollback.loss``.

    ``state`` is that of the check: ``pass``, ``fail`` or ``inconclusive``; then the numbers are lower bounds. ``keys``
    None: no number was given. ``oldest`` are seconds, at the moment of ``clock``: the commit up to which the writes of
    the target were known, or without one the answer. ``old_after`` seconds of that clock the answer is old. ``asked``
    is the guard or the step.
    """

    asked: str
    state: str
    text: str
    keys: int | None
    oldest: float | None
    at_risk: tuple[tuple[str, str], ...]
    as_of: str
    clock: ClockView
    old_after: float


@dataclass(frozen=True, slots=True)
class DirectionView:
    """The last answer about one direction of verification, or about the hand-over between the two, of ``name``.

    ``state`` is that of the check, or ``not asked``; ``as_of`` the place up to which it holds, empty where it names
    none. ``run`` is the watch that answered, ``asked`` the guard or the step. ``clock`` counts from the answer.
    """

    name: str
    asked: str
    state: str
    text: str
    run: str
    as_of: str
    clock: ClockView | None


def directions_of(status: RunStatus, events: Sequence[Event], now: Moment) -> tuple[DirectionView, ...]:
    """Return what was answered last about each direction that the runbook asks about."""
    found = []
    for name, action in _DIRECTIONS.items():
        guards = _guards_asking(status, action)
        if not guards and not _asked_by_steps(status, action):
            continue
        answers = ((event, *answer) for event in reversed(events) for answer in _answers(event, guards.keys(), action))
        last = next(answers, None)
        if last is None:
            found.append(DirectionView(name, "", "not asked", "", "", "", None))
            continue
        event, state, text, facts, asked = last
        clock = since(Moment(event.wall, event.mono, event.boot), now)
        found.append(DirectionView(name, asked, state, text[:400], str(facts.get("run") or ""), _place(facts), clock))
    return tuple(found)


def _place(facts: Mapping[str, Any]) -> str:
    """Return the place of an answer, as people read it: that of a reverse watch, or where a forward watch read to."""
    as_of = facts.get("as_of")
    if isinstance(as_of, Mapping):
        return str(as_of.get("text", ""))
    sources = facts.get("sources")
    if not as_of and isinstance(sources, list | tuple):
        return " ".join(str(one.get("read", "")) for one in sources if isinstance(one, Mapping))
    return str(as_of or "")


def loss_of(status: RunStatus, events: Sequence[Event], now: Moment) -> LossView | None:
    """Return the last answer of a ``rollback.loss``, of a guard or of a step's checks; None: there is none."""
    guards = _guards_asking(status, NAME)
    if not guards and not _asked_by_steps(status, NAME):
        return None
    for event in reversed(events):
        for state, text, facts, asked in _answers(event, guards.keys(), NAME):
            return _made(event, state, text, facts, asked, guards.get(asked) or 0.0, now)
    return None


def _guards_asking(status: RunStatus, action: str) -> dict[str, float | None]:
    """Return the guards that ask an action, with the seconds between two answers."""
    every_guard = (*status.runbook.guards, *rollback_rules(status.runbook))
    return {guard.id: guard.every for guard in every_guard if guard.action == action}


def _asked_by_steps(status: RunStatus, action: str) -> bool:
    return any(check.action == action for step in status.runbook.steps for check in step.expect)


def _answers(event: Event, guards: Any, action: str) -> Iterator[tuple[str, str, Mapping[str, Any], str]]:
    data = event.data
    if event.kind is _K.GUARD and data.get("guard") in guards:
        facts = data.get("loss") or {"as_of": data.get("as_of")}
        yield str(data["state"]), str(data.get("text", "")), facts, str(data["guard"])
        return
    checks = data.get("checks")
    for one in checks if isinstance(checks, list | tuple) else ():
        if isinstance(one, Mapping) and one.get("action") == action:
            yield str(one.get("state")), str(one.get("text", "")), one.get("evidence") or {}, event.step or ""


def _made(
    event: Event, state: str, text: str, facts: Mapping[str, Any], asked: str, every: float, now: Moment
) -> LossView:
    as_of, keys, oldest, at_risk = (facts.get(name) for name in ("as_of", "keys", "oldest_seconds", "at_risk"))
    # A server's clock gave the commit, and this machine's counts on.
    clock, place = since(Moment(event.wall, event.mono, event.boot), now), ""
    if isinstance(as_of, Mapping) and _is_number(as_of.get("time")):
        clock, place = ClockView("up", round(float(as_of["time"]), 1), exact=False), str(as_of.get("text", ""))
    return LossView(
        asked, state, text[:400], int(keys) if _is_number(keys) and keys is not None else None,
        float(oldest) if _is_number(oldest) and oldest is not None else None,
        tuple((str(c), str(v)) for c, v in at_risk.items()) if isinstance(at_risk, Mapping) else (),
        place, clock, OLD_SECONDS + 3 * every,
    )  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
