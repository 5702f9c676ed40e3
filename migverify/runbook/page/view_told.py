"""What was said in a run: announcements with their delivery, and the journal's events as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migverify.runbook.events import Event, EventKind
from migverify.runbook.page.view_steps import clipped
from migverify.runbook.state import Delivery, DeliveryState, RunStatus

__all__ = ["Announced", "Delivered", "Line", "announced", "lines", "sentence"]

_K = EventKind
_WORST = (DeliveryState.GIVEN_UP, DeliveryState.FAILED, DeliveryState.QUEUED, DeliveryState.SENT)


@dataclass(frozen=True, slots=True)
class Delivered:
    """One sink of an announcement: ``queued``, ``sent``, ``failed`` (is tried again) or ``given up``."""

    sink: str
    state: str
    tries: int
    reason: str


@dataclass(frozen=True, slots=True)
class Announced:
    """An announcement: ``about`` is the number of the event that it tells about.

    ``state`` is the worst of its sinks, ``queued`` counts as worse than ``sent``; ``at``: the last change, Unix time.
    """

    seq: int
    about: int
    step: str
    what: str
    text: str
    state: str
    sinks: tuple[Delivered, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Line:
    """An event in one sentence; ``weight`` is ``bad``, ``good`` or empty."""

    seq: int
    at: float
    step: str
    text: str
    weight: str


def announced(status: RunStatus) -> tuple[Announced, ...]:
    """Return the announcements of a run, the newest first; the journal's heads are among them."""
    of: dict[int, list[Delivery]] = {}
    for one in status.deliveries.values():
        of.setdefault(one.of, []).append(one)
    return tuple(_one(some) for _, some in sorted(of.items(), reverse=True))


def _one(some: list[Delivery]) -> Announced:
    first, states = some[0], {one.state for one in some}
    sinks = tuple(Delivered(one.sink, one.state.value, one.tries, clipped(one.reason, 400)) for one in some)
    worst = next(state for state in _WORST if state in states)
    return Announced(first.of, first.about, first.step, first.what, clipped(first.text), worst.value, sinks,
                     max(one.at.wall for one in some))  # fmt: skip


def lines(events: Sequence[Event], most: int | None = None) -> tuple[Line, ...]:
    """Return the newest events as sentences, the newest first; deliveries that went well are left out."""
    found = []
    for event in reversed(events):
        text = sentence(event)
        if text:
            found.append(Line(event.seq, event.wall, event.step, clipped(text, 400), _weight(event)))
        if most is not None and len(found) == most:
            break
    return tuple(found)


_BAD = frozenset({
    _K.FAILED, _K.TIMED_OUT, _K.INCONCLUSIVE, _K.UNKNOWN, _K.REJECTED, _K.HELD, _K.DELIVERY_FAILED,
    _K.ROLLBACK_ORDERED, _K.WAIVED,
})  # fmt: skip
_GOOD = frozenset({_K.ACCEPTED, _K.ROLLBACK_VERIFIED, _K.RESUMED})


def _weight(event: Event) -> str:
    bad = (
        event.kind in _BAD
        or (event.kind is _K.GUARD and event.data.get("state") != "pass")
        or (event.kind is _K.NOTE and bool(event.data.get("alarm")))
        or (event.kind is _K.ROLLBACK_VERIFIED and not event.data.get("ok"))
        or (event.kind is _K.RUN_ENDED and event.data.get("state") not in ("completed", "rolled back", "dry"))
    )
    return "bad" if bad else "good" if event.kind in _GOOD or event.kind is _K.RUN_ENDED else ""


def sentence(event: Event) -> str:
    """Say an event in one sentence; empty: nothing that a reader needs."""
    said = _SENTENCES.get(event.kind)
    who = event.actor if event.role != "executor" and event.kind is not _K.LEASE else "the executor"
    step, data = event.step, event.data
    if said is not None:
        return said.format(who=who, step=step, reason=data.get("reason", ""))
    return _spoken(event, who, step, data)


_SENTENCES = {
    _K.CALLED: "{who} calls {step}",
    _K.STARTED: "{who} starts {step}",
    _K.INTENT: "the effect of {step} begins",
    _K.ACCEPTED: "{who} accepts {step}",
    _K.REJECTED: "{who} rejects {step}: {reason}",
    _K.FAILED: "{step} failed: {reason}",
    _K.TIMED_OUT: "{step} took too long: {reason}",
    _K.INCONCLUSIVE: "{step} is inconclusive: {reason}",
    _K.UNKNOWN: "nobody knows whether the effect of {step} happened: {reason}",
    _K.HELD: "{who} holds the run: {reason}",
    _K.RESUMED: "{who} resumes the run",
    _K.ROLLBACK_INTENT: "{step} is being taken back",
    _K.DELIVERED: "",
    _K.ANNOUNCED: "",
}


def _spoken(event: Event, who: str, step: str, data: dict[str, Any]) -> str:
    text, reason = str(data.get("text", "")), str(data.get("reason", ""))
    match event.kind:
        case _K.RUN_STARTED:
            return f"{who} starts the run ({data.get('kind', '')}, {data.get('environment', '')})"
        case _K.RUN_ENDED:
            return f"the run ends: {data.get('state', '')}{f' ({reason})' if reason else ''}"
        case _K.LEASE if data.get("released"):
            return "the executor gives the run free"
        case _K.LEASE:
            took = f"takes the run over: {reason}" if reason else "drives the run"
            return f"{data.get('person', '')} {took} (epoch {event.epoch})"
        case _K.APPROVED:
            return f"{who} agrees to {data.get('of', '')}{f' {step}' if step else ''}{f': {reason}' if reason else ''}"
        case _K.EFFECT:
            return f"{who} says that {step} is done: {text}" if data.get("manual") else f"{step}: {text}"
        case _K.EVIDENCE if data.get("complete"):
            return f"all checks of {step} pass"
        case _K.EVIDENCE:
            return f"{step}: dry, nothing was done" if data.get("dry") else f"{who} adds to {step}: {text}"
        case _K.RECONCILED:
            return f"the effect of {step} {'happened' if data.get('happened') else 'did not happen'}, says {who}"
        case _K.RETRIED:
            return f"{step} is tried again, attempt {event.attempt}"
        case _K.WAIVED:
            return f"{step} is waived by {' and '.join(map(str, data.get('by', ())))}: {reason}"
        case _K.GUARD:
            return f"guard {data.get('guard', '')}: {data.get('state', '')}{f', {text}' if text else ''}"
        case _K.PROMOTED:
            return f"{data.get('role', '')} is {data.get('person', '')}'s from now on, says {who}: {reason}"
        case _K.WENT:
            return f"{step} failed; the run goes to {data.get('to', '')}"
        case _K.ROLLBACK_ORDERED:
            return f"{who} orders a rollback of {', '.join(map(str, data.get('steps', ())))}: {reason}"
        case _K.ROLLBACK_EFFECT:
            return f"the rollback of {step} {'is done' if data.get('ok') is not False else 'failed'}: {text or reason}"
        case _K.ROLLBACK_VERIFIED:
            return f"{step} is {'undone, and verified' if data.get('ok') else f'not proved to be undone: {reason}'}"
        case _K.DELIVERY_FAILED if not data.get("given_up") and data.get("tries", 1) != 1:
            return ""  # the first try that failed was told, and the last one is
        case _K.DELIVERY_FAILED:
            given_up = ", given up" if data.get("given_up") else ""
            return f"{data.get('sink', '')} did not take an announcement: {reason}{given_up}"
        case _K.HEAD:
            return f"the journal's hash {str(data.get('sha', ''))[:12]} was told to {', '.join(data.get('sinks', ()))}"
        case _:
            return text or reason or event.kind.value
