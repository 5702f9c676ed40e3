"""What a rollback would lose, as the last answer of a ``rollback.loss`` said: beside the moment to decide about one."""

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

__all__ = ["LossView", "loss_of"]

_K = EventKind
OLD_SECONDS = 90.0
"""Seconds after which an answer is old: a guard's unchanged one is written down every 60 s."""


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


def loss_of(status: RunStatus, events: Sequence[Event], now: Moment) -> LossView | None:
    """Return the last answer of a ``rollback.loss``, of a guard or of a step's checks; None: there is none."""
    every_guard = (*status.runbook.guards, *rollback_rules(status.runbook))
    guards = {guard.id: guard.every for guard in every_guard if guard.action == NAME}
    if not guards and not _asked_by_steps(status):
        return None
    for event in reversed(events):
        for state, text, facts, asked in _answers(event, guards.keys()):
            return _made(event, state, text, facts, asked, guards.get(asked) or 0.0, now)
    return None


def _asked_by_steps(status: RunStatus) -> bool:
    return any(check.action == NAME for step in status.runbook.steps for check in step.expect)


def _answers(event: Event, guards: Any) -> Iterator[tuple[str, str, Mapping[str, Any], str]]:
    data = event.data
    if event.kind is _K.GUARD and data.get("guard") in guards:
        yield str(data["state"]), str(data.get("text", "")), data.get("loss") or {}, str(data["guard"])
        return
    checks = data.get("checks")
    for one in checks if isinstance(checks, list | tuple) else ():
        if isinstance(one, Mapping) and one.get("action") == NAME:
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
