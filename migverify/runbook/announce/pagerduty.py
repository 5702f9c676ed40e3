"""The sink ``pagerduty``: Events API v2. What went wrong triggers an incident, and what follows resolves the same one.

An event's ``dedup_key`` is made of what the announcement is about (a condition, a step of a run, a guard, the run): the
trigger, a later trigger for another reason, the acknowledgement and the resolution are all of one incident.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from migverify.codec import parse_json
from migverify.errors import ConfigError
from migverify.runbook.announce.http import Poster
from migverify.runbook.announce.message import Message, SinkError
from migverify.runbook.announce.moments import RESOLVING, group_of
from migverify.secrets import Secret

__all__ = ["ENQUEUE", "LIMIT_BYTES", "action_of", "dedup_key", "event_of", "refusal_words", "routing_key", "sender"]

ENQUEUE = "https://events.pagerduty.com/v2/enqueue"
"""Where events go; accounts in the European region have ``https://events.eu.pagerduty.com/v2/enqueue``."""
LIMIT_BYTES = 512 * 1024
_KEY_LENGTH = 32
_DEDUP = 255
_SUMMARY = 1024
_DETAIL = 4096
TRIGGER, ACKNOWLEDGE, RESOLVE = "trigger", "acknowledge", "resolve"
_TAKEN_UP = frozenset({"retried", "undo"})
"""Somebody, or the executor, works at it: the incident is acknowledged."""
_WARNINGS = frozenset({"waiting", "late", "short", "guard inconclusive", "readiness unknown"})
TEST = "test"
"""A message of ``runbook check --announce``: its incident is resolved at once."""
_CRITICAL = frozenset({"undo failed", "unknown", "rollback ordered"})


def action_of(what: str) -> str | None:
    """Return what a kind of announcement does to an incident; None: nothing is sent, PagerDuty is no log."""
    if what in RESOLVING:
        return RESOLVE
    if what in _TAKEN_UP:
        return ACKNOWLEDGE
    return TRIGGER if group_of(what) in ("urgent", "reminder") else None


def dedup_key(message: Message) -> str:
    """Return the key of the incident, at most 255 characters; one that would be longer ends in its hash."""
    topic = message.topic or f"{message.run}/{message.step or 'run'}"
    key = f"migverify/{topic}"
    if len(key) <= _DEDUP:
        return key
    return f"{key[: _DEDUP - 17]}/{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def severity_of(what: str) -> str:
    """Return how much it harms: ``critical``, ``error`` or ``warning``; a test is ``info``."""
    if what == TEST:
        return "info"
    return "critical" if what in _CRITICAL else "warning" if what in _WARNINGS else "error"


def event_of(message: Message, action: str, key: Secret) -> dict[str, Any]:
    """Return the event as the API takes it."""
    event: dict[str, Any] = {
        "routing_key": key.reveal(), "event_action": action, "dedup_key": dedup_key(message),
    }  # fmt: skip
    if action != TRIGGER:
        return event
    fields = message.fields
    event["payload"] = {
        "summary": _cut(message.text, _SUMMARY) or message.what,
        "source": "/".join(one for one in ("migverify", fields.get("service"), fields.get("environment")) if one),
        "severity": severity_of(message.what),
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.000+0000", time.gmtime(message.at)),
        "component": _cut(fields.get("condition") or message.step or "run", _SUMMARY),
        "group": _cut(fields.get("service") or message.run, _SUMMARY),
        "class": message.what,
        "custom_details": {**_details(fields), "announcement": message.id},
    }  # fmt: skip
    event["client"] = "migverify"
    if link := fields.get("link"):
        event["client_url"] = link
        event["links"] = [{"href": link, "text": "Show the run"}]
    return event


def _details(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: _cut(value, _DETAIL) for name, value in fields.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def routing_key(secret: Secret) -> Secret:
    """Return the key of an integration.

    Raises ConfigError: it is none: an integration key has 32 characters.
    """
    text = secret.reveal().strip()
    if len(text) != _KEY_LENGTH or not text.isalnum():
        raise ConfigError("its routing key is no integration key: that has 32 letters and digits")
    return Secret(text)


def refusal_words(body: bytes) -> str:
    """Return why an event was refused, as the API says it."""
    found = parse_json(body)
    if not isinstance(found, Mapping):
        return ""
    errors = found.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else found.get("message") or ""
    return " ".join(str(first).split())[:200]


def sender(key: Secret, poster: Poster) -> Callable[[Message, threading.Event], None]:
    """Return what sends a message as an event; an announcement that does nothing to an incident is not sent."""

    def send(message: Message, _canceled: threading.Event) -> None:
        action = action_of(message.what)
        for one in (TRIGGER, RESOLVE) if message.what == TEST else (action,):
            if one is None:
                return
            body = json.dumps(event_of(message, one, key)).encode("ascii")
            if len(body) > LIMIT_BYTES:
                raise SinkError(f"the event has {len(body)} bytes, and PagerDuty takes {LIMIT_BYTES}", final=True)
            poster.post(message, body)

    return send
