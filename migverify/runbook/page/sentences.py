"""The announcements of a run with their delivery, and the events of its journal as sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from migverify.runbook.events import Event, EventKind
from migverify.runbook.page.view_steps import action_words, clipped
from migverify.runbook.state import Delivery, DeliveryState, RunStatus

__all__ = ["Announced", "Delivered", "Line", "announced", "lines", "sentence", "weight_of"]

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
            found.append(Line(event.seq, event.wall, event.step, clipped(text, 400), weight_of(event)))
        if most is not None and len(found) == most:
            break
    return tuple(found)


_BAD = frozenset({
    _K.FAILED, _K.TIMED_OUT, _K.INCONCLUSIVE, _K.UNKNOWN, _K.REJECTED, _K.HELD, _K.DELIVERY_FAILED,
    _K.ROLLBACK_ORDERED, _K.WAIVED,
})  # fmt: skip
_GOOD = frozenset({_K.ACCEPTED, _K.ROLLBACK_VERIFIED, _K.RESUMED})


def weight_of(event: Event) -> str:
    """Return ``bad``, ``good`` or empty: how an event is marked."""
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
    words = _SENTENCES.get(event.kind)
    who = event.actor if event.role != "executor" and event.kind is not _K.LEASE else "the executor"
    step, data = event.step, event.data
    if words is not None:
        return words.format(who=who, step=step, reason=data.get("reason") or "no reason was given")
    return _spoken(event, who, step, data)


_SENTENCES = {
    _K.CALLED: "{who} calls {step}",
    _K.STARTED: "{who} starts {step}",
    _K.ACCEPTED: "{who} accepts {step}",
    _K.REJECTED: "{who} rejects {step}: {reason}",
    _K.FAILED: "{step} failed: {reason}",
    _K.TIMED_OUT: "{step} took too long: {reason}",
    _K.INCONCLUSIVE: "{step} is inconclusive: {reason}",
    _K.UNKNOWN: "it is not known whether the effect of {step} happened: {reason}",
    _K.HELD: "{who} holds the run: {reason}",
    _K.DELIVERED: "",
    _K.ANNOUNCED: "",
}


def _spoken(event: Event, who: str, step: str, data: dict[str, Any]) -> str:
    text, reason = str(data.get("text", "")), str(data.get("reason", ""))
    because = f": {reason}" if reason else ""
    both = " and ".join(map(str, data.get("by", ())))
    match event.kind:
        case _K.RUN_STARTED:
            return f"{who} starts the run ({data.get('kind', '')}, {data.get('environment', '')})"
        case _K.RUN_ENDED:
            return f"the run ends: {data.get('state', '')}{f' ({reason})' if reason else ''}"
        case _K.LEASE if data.get("released"):
            return "the executor releases the run"
        case _K.LEASE:
            took = f"takes the run over{because}" if reason else "drives the run"
            return f"{data.get('person', '')} {took} (on {data.get('host', '')}, epoch {event.epoch})"
        case _K.APPROVED:
            answer = f" ({data['answer']})" if data.get("answer") else ""
            signed = ", signed" if data.get("signature") else ""
            more = "" if data.get("of") in ("start", "done") else "; a second person has to say the same"
            return f"{who} approves {data.get('of', '')}{f' {step}' if step else ''}{answer}{because}{signed}{more}"
        case _K.INTENT:
            return f"the effect of {step} begins: {_effect(data)}"
        case _K.EFFECT if data.get("effect") is False:
            return ""
        case _K.EFFECT:
            return f"{who} reports {step} done: {text}" if data.get("manual") else f"{step}: {text}"
        case _K.EVIDENCE if data.get("complete"):
            return f"all checks of {step} pass"
        case _K.EVIDENCE:
            return f"{step}: dry, {_dry(data)}" if data.get("dry") else f"{who} adds to {step}: {text}"
        case _K.RECONCILED:
            by = "its probe" if data.get("how") == "probe" else both or who
            return f"the effect of {step} {'happened' if data.get('happened') else 'did not happen'}, by {by}{because}"
        case _K.RETRIED:
            return f"{step} is tried again, attempt {event.attempt}{because}"
        case _K.WAIVED:
            return f"{step} is waived by {both}{because}"
        case _K.RESUMED:
            return f"{both or who} resumes the run{because}"
        case _K.GUARD:
            return f"guard {data.get('guard', '')}: {data.get('state', '')}{f', {text}' if text else ''}"
        case _K.PROMOTED:
            return f"{data.get('role', '')} is now {data.get('person', '')}, by {both or who}{because}"
        case _K.WENT:
            return f"{step} failed; the run goes to {data.get('to', '')}"
        case _K.ROLLBACK_ORDERED:
            return f"{who} orders a rollback of {', '.join(map(str, data.get('steps', ())))}{because}"
        case _K.ROLLBACK_INTENT:
            return f"{step} is being rolled back{' by hand' if data.get('manual') else f': {_effect(data)}'}"
        case _K.ROLLBACK_EFFECT:
            return f"the rollback of {step} {'is done' if data.get('ok') is not False else 'failed'}: {text or reason}"
        case _K.ROLLBACK_VERIFIED:
            return f"{step} is {'rolled back, verified' if data.get('ok') else f'rolled back, not verified{because}'}"
        case _K.DELIVERY_FAILED if not data.get("given_up") and data.get("tries", 1) != 1:
            return ""  # the first try that failed was reported, and the last one is
        case _K.DELIVERY_FAILED:
            given_up = ", given up" if data.get("given_up") else ""
            return f"{data.get('sink', '')} did not take an announcement{because}{given_up}"
        case _K.HEAD:
            sinks = ", ".join(data.get("sinks", ()))
            return f"the journal's hash {str(data.get('sha', ''))[:12]} was published to {sinks}"
        case _K.NOTE if data.get("alarm") == "waiting":
            return f"waiting for {text}"
        case _:
            return text or reason or event.kind.value


def _effect(data: dict[str, Any]) -> str:
    return action_words(str(data.get("action", "")), data.get("arguments") or {})


def _dry(data: dict[str, Any]) -> str:
    checks = data.get("checks", ())
    bad = sum(one.get("state") != "pass" for one in checks)
    words = [f"would do {_effect(data['would'])}"] if data.get("would") else []
    words += [str(data["problems"])] if data.get("problems") else []
    words += [f"{bad} of {len(checks)} checks would not pass now"] if checks else []
    return "; ".join(words) or "nothing was done"
