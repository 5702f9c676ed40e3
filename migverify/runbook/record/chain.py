"""The chain of a journal: what a line is, how it is made, and how it is known to be the next one.

The same lines stand in a file and in a database, byte for byte, so one verifier judges both.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from migverify.codec import parse_json
from migverify.errors import FencedError, JournalError
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind
from migverify.secrets import known_secrets, without_secrets

__all__ = ["GENESIS", "ChainEnd", "Draft", "JournalProblem", "Made", "canonical", "event_line", "fence", "line_of"]

GENESIS = "0" * 64
_FIELDS = frozenset(Event.__dataclass_fields__)
_STRUCTURE = frozenset({
    "action", "answer", "by", "hash", "how", "id", "kind", "of", "outcome", "person", "role", "runbook", "sha",
    "signature", "sink", "sinks", "state", "steps", "text_sha", "then", "to", "what",
})  # fmt: skip
_CHECKS = frozenset({"checks", "undone"})
_KINDS = {kind.value: kind for kind in EventKind}
# In the order of canonical JSON, so that a line that is written otherwise is none.
_ORDER = sorted(_FIELDS)
_TYPES = tuple({"wall": float, "data": dict, **dict.fromkeys(("seq", "attempt", "mono", "epoch"), int)}.get(name, str)
               for name in _ORDER)  # fmt: skip
_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False
).encode


def canonical(value: Any) -> bytes:
    """Return canonical JSON: keys sorted, no spaces, ASCII only, no NaN.

    Raises ValueError, TypeError: the value has no such form.
    """
    return _encode(value).encode("ascii")


@dataclass(frozen=True, slots=True)
class Draft:
    """An event before it has a place in the journal. ``attempt`` counts from 1; 0 for events of the run."""

    kind: EventKind
    actor: str
    role: str = ""
    step: str = ""
    attempt: int = 0
    data: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JournalProblem:
    """What is wrong with a journal; ``line`` counts from 1. A torn last line is not ``fatal``: nobody acted on it."""

    line: int
    what: str
    fatal: bool = True

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"


def event_line(event_fields: dict[str, Any]) -> tuple[str, bytes]:
    """Return (sha, line with its newline) of an event's fields without ``sha``."""
    sha = hashlib.sha256(canonical(event_fields)).hexdigest()
    return sha, canonical({**event_fields, "sha": sha}) + b"\n"


@dataclass(frozen=True, slots=True)
class Made:
    """Events that were made and are not written yet, with their lines (each with its newline)."""

    events: list[Event]
    lines: list[bytes]


class ChainEnd:
    """Where a chain ends that is read onward: what the next line has to be chained to.

    Attributes
    ----------
    line, head, epoch, run
        Lines taken so far; the last one's hash and epoch; the run they belong to, None before the first.
    bad
        The line that was refused, from 1; 0: none.
    """

    def __init__(self, run: str | None = None) -> None:
        self.line, self.head, self.epoch, self.run, self.bad = 0, GENESIS, 0, run, 0

    def take(self, raw: bytes, where: str) -> Event:
        """Take the next line, with its newline.

        Raises JournalError: it is damaged, or not chained to the one before; the message begins with ``where`` and its
        number.
        """
        event, why = _parse(raw, self.line, self.head, self.run)
        if event is not None and event.epoch < self.epoch:
            why, event = f"has epoch {event.epoch} after {self.epoch}", None
        if event is None:
            self.bad = self.line + 1
            raise JournalError(
                f"{where}:{self.line + 1}: {why}",
                hint="The journal was changed after it was written; `runbook report --verify` names all that is wrong.",
            )
        self.line += 1
        self.head, self.epoch, self.run = event.sha, event.epoch, event.run
        return event

    def make(self, drafts: Sequence[Draft], run: str, runbook: str, now: Moment) -> Made:
        """Return the events and lines that drafts become behind this place, without taking them.

        Raises JournalError: one of them has no JSON: it would be refused however often it were tried.
        """
        head, epoch, made = self.head, self.epoch, Made([], [])
        for place, draft in enumerate(drafts):
            epoch = int(draft.data["epoch"]) if draft.kind is EventKind.LEASE else epoch
            fields = _fields(draft, self.line + place, head, epoch, now) | {"run": run, "runbook": runbook}
            try:
                head, line = event_line(fields)
            except (TypeError, ValueError) as error:
                what = f"an event {draft.kind.value} of {draft.step or 'the run'}"
                raise JournalError(f"{what} has no JSON: {error}") from None
            made.lines.append(line)
            made.events.append(Event(**{**fields, "sha": head, "kind": draft.kind}))
        return made


def _fields(draft: Draft, seq: int, previous: str, epoch: int, now: Moment) -> dict[str, Any]:
    return {
        "seq": seq, "previous": previous, "step": draft.step, "attempt": draft.attempt, "kind": draft.kind.value,
        "actor": draft.actor, "role": draft.role, "wall": now.wall, "mono": now.mono, "boot": now.boot, "epoch": epoch,
        "data": _scrubbed(draft.data) if known_secrets() else draft.data,
    }  # fmt: skip


def _parse(raw: bytes, seq: int, previous: str, run: str | None) -> tuple[Event | None, str]:
    """Return the event of a line, or None and why it is none."""
    # Quotes inside a JSON text are escaped, so these bytes stand only where the field begins.
    at = raw.rfind(b',"sha":"')
    sha = raw[at + 8 : at + 72].decode("ascii", "replace")
    if at < 0 or raw[at + 72 : at + 73] != b'"':
        return None, "is not an event"
    if hashlib.sha256(raw[:at] + raw[at + 73 : -1]).hexdigest() != sha:
        return None, "its hash is not that of its text"
    try:
        values = parse_json(raw.decode("utf-8", "surrogatepass"))
        if type(values) is not dict or list(values) != _ORDER or values["sha"] != sha:
            return None, "has not the fields of an event"
        if tuple(map(type, values.values())) != _TYPES:
            return None, "has a field of another type"
        values["kind"] = _KINDS[values["kind"]]
        event = Event(**values)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return None, f"is not an event: {error}"
    if event.previous != previous:
        return None, "is not chained to the line before: lines were dropped, swapped or inserted"
    if event.seq != seq:
        return None, f"has number {event.seq} where {seq} was expected"
    if run is not None and event.run != run:
        return None, f"belongs to run {event.run}"
    return event, ""


def line_of(event: Event) -> bytes:
    """Return the line of an event, with its newline."""
    return canonical({name: getattr(event, name) for name in _FIELDS}) + b"\n"


def fence(link: ChainEnd, drafts: Sequence[Draft], epoch: int | None, run: str) -> None:
    """Keep out whoever writes under an epoch that is over; None: a person, who has none.

    Raises FencedError: another executor took the run over.
    """
    begins = bool(drafts) and drafts[0].kind is EventKind.LEASE and drafts[0].data.get("epoch") == epoch
    if epoch is not None and epoch != link.epoch and not begins:
        raise FencedError(
            f"run {run}: epoch {epoch} is over, the run is at {link.epoch}",
            hint="Another executor took the run over; this one has to end.",
        )


def _scrubbed(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of an event without secrets; what the fold reads is the program's own, and stays as it is.

    A password that is also a word of ours would otherwise make the journal unreadable.
    """
    return {key: value if key in _STRUCTURE else _checks(value) if key in _CHECKS else without_secrets(value)
            for key, value in data.items()}  # fmt: skip


def _checks(checks: Any) -> Any:
    if not isinstance(checks, list):
        return without_secrets(checks)
    return [{**without_secrets(one), **{k: one[k] for k in ("state", "action") if k in one}} for one in checks]
