"""The arrows of announcements: told to whom, delivered or not. Any prefix of a journal gives a whole outbox.

For every sink that an event names there is one delivery, from that line on and for good: queued, then sent, failed or
given up. Nothing takes one away.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.arrow_rules import by_executor
from migverify.runbook.fold.transitions import need
from migverify.runbook.state import Delivery, DeliveryState, RunStatus

__all__ = ["ANNOUNCE_ARROWS", "HEAD", "OPEN", "OUTBOX_ALARM"]

HEAD = "head"
"""What a HEAD event tells: the journal's hash at an event."""
OUTBOX_ALARM = "announcements"
"""The alarm of a note that says what could not be announced at all."""
OPEN = frozenset({DeliveryState.QUEUED, DeliveryState.FAILED})
"""What is tried again."""


def _announced(status: RunStatus, event: Event, at: Moment) -> None:
    data = event.data
    about, what = data["of"], data["what"]
    need(event.kind is not EventKind.HEAD or what == HEAD, "it does not say that it tells a head")
    need(type(about) is int and 0 <= about < event.seq, f"it tells about event {about}")
    need(isinstance(what, str) and bool(what), "it does not say what it tells")
    need(isinstance(data["text"], str) and bool(data["text"]), "it has no text")
    _by_outbox(status, event)
    last, told = status.announced
    need(about >= last, f"it tells about event {about} after {last}")
    need(about > last or what not in told, f"{what} of event {about} was told before")
    sinks = data["sinks"]
    known = {sink.name for sink in status.runbook.sinks}
    need(isinstance(sinks, list) and bool(sinks) and len(set(sinks)) == len(sinks), "it does not say to whom")
    need(known.issuperset(sinks), f"there is no sink {', '.join(str(one) for one in sinks if one not in known)}")
    status.announced = (about, (told if about == last else frozenset()) | {what})
    for sink in sinks:
        status.deliveries[event.seq, sink] = Delivery(
            event.seq, sink, what, data["text"], DeliveryState.QUEUED, 0, "", at, about, event.step
        )


def _head(status: RunStatus, event: Event, at: Moment) -> None:
    seq, sha = event.data["seq"], event.data["sha"]
    need(type(seq) is int and 0 <= seq < event.seq, f"it tells the hash of event {seq}")
    need(isinstance(sha, str) and len(sha) == 64, "it tells no hash")
    need(seq != event.seq - 1 or sha == event.previous, f"the hash of event {seq} is another one")
    need(event.data["of"] == seq, "it tells about another event than that of the hash")
    _announced(status, event, at)


def _open_delivery(status: RunStatus, event: Event) -> Delivery:
    _by_outbox(status, event)
    key = (event.data["of"], event.data["sink"])
    need(key in status.deliveries, f"event {key[0]} announced nothing to {key[1]}")
    one = status.deliveries[key]
    need(one.state in OPEN, f"the delivery of event {one.of} to {one.sink} is {one.state.value}")
    return one


def _delivered(status: RunStatus, event: Event, at: Moment) -> None:
    one = _open_delivery(status, event)
    status.deliveries[one.of, one.sink] = replace(one, state=DeliveryState.SENT, tries=one.tries + 1, reason="", at=at)


def _failed(status: RunStatus, event: Event, at: Moment) -> None:
    one = _open_delivery(status, event)
    tries, given_up, reason = event.data["tries"], event.data["given_up"], event.data["reason"]
    need(tries == one.tries + 1, f"try {tries} after {one.tries}")
    need(isinstance(given_up, bool), "it does not say whether it is given up")
    need(isinstance(reason, str) and bool(reason), "there is no reason")
    state = DeliveryState.GIVEN_UP if given_up else DeliveryState.FAILED
    status.deliveries[one.of, one.sink] = replace(one, state=state, tries=tries, reason=reason, at=at)


def _by_outbox(status: RunStatus, event: Event) -> None:
    # Nobody can take the lease of a run that is over: what its executor left is delivered by any of its people.
    if status.over and event.role != "executor":
        person = status.cast.person(event.actor)
        need(person is not None, f"{event.actor!r} is none of the runbook's people")
        return
    by_executor(status, event)


ANNOUNCE_ARROWS: dict[EventKind, Callable[[RunStatus, Event, Moment], None]] = {
    EventKind.ANNOUNCED: _announced, EventKind.HEAD: _head, EventKind.DELIVERED: _delivered,
    EventKind.DELIVERY_FAILED: _failed,
}  # fmt: skip
