"""The nouns of a run: events of its journal, and the states that their fold gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class StepState(StrEnum):
    """The state of a step. NOT_APPLICABLE and DRY are recorded, and are never "done"."""

    PENDING = "pending"
    NOT_APPLICABLE = "not applicable"
    READY = "ready"
    CALLED = "called"
    RUNNING = "running"
    VERIFYING = "verifying"
    AWAITING_REVIEW = "awaiting review"
    DONE = "done"
    DRY = "dry"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    INCONCLUSIVE = "inconclusive"
    UNKNOWN = "unknown"  # the executor went while the effect was under way: never run again by itself
    WAIVED = "waived"


class RollbackState(StrEnum):
    """What of a step can still be taken back."""

    NONE_NEEDED = "none needed"
    ARMED = "armed"
    EXPIRED = "expired"
    RUNNING = "running"
    UNDONE_VERIFIED = "undone, verified"
    UNDONE_UNVERIFIED = "undone, not verified"
    FAILED = "failed"


class RunState(StrEnum):
    """The state of a run; every end has an exit code of its own."""

    READY_CHECKED = "ready checked"
    RUNNING = "running"
    HELD = "held"
    COMPLETED = "completed"
    ABORTED_CLEAN = "aborted, all undone and verified"
    ABORTED_DIRTY = "aborted, not all undone"
    ROLLED_BACK = "rolled back"
    FAILED_PAST_PNR = "failed past the point of no return"
    DRY = "dry"  # a dry run that went through: never "completed"


class EventKind(StrEnum):
    """What an event says. ``INTENT`` precedes an effect, ``EFFECT`` after it."""

    RUN_STARTED = "run started"
    RUN_ENDED = "run ended"
    LEASE = "lease"  # an executor took the run, or took it over
    CALLED = "called"
    APPROVED = "approved"
    STARTED = "started"
    INTENT = "intent"
    EFFECT = "effect"
    EVIDENCE = "evidence"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    INCONCLUSIVE = "inconclusive"
    UNKNOWN = "unknown"
    RECONCILED = "reconciled"
    RETRIED = "retried"
    WAIVED = "waived"
    HELD = "held"
    RESUMED = "resumed"
    GUARD = "guard"
    PROMOTED = "promoted"  # a role is its backup's from now on, or its first holder's again
    WENT = "went to"  # on_fail: goto; the failed step stays failed
    ROLLBACK_ORDERED = "rollback ordered"
    ROLLBACK_INTENT = "rollback intent"
    ROLLBACK_EFFECT = "rollback effect"
    ROLLBACK_VERIFIED = "rollback verified"
    ANNOUNCED = "announced"
    DELIVERED = "delivered"
    DELIVERY_FAILED = "delivery failed"
    HEAD = "head"  # the journal's hash was announced
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the journal.

    ``seq`` counts from 0 without a gap; ``previous`` and ``sha`` chain the lines (``sha`` of the canonical JSON of all
    other fields). ``wall`` is Unix time, ``mono`` nanoseconds of the monotonic clock, comparable within one ``boot``.
    ``epoch`` is the lease's: an executor with an older one may not write.
    """

    seq: int
    previous: str
    sha: str
    run: str
    step: str
    attempt: int
    kind: EventKind
    actor: str
    role: str
    wall: float
    mono: int
    boot: str
    epoch: int
    runbook: str
    data: dict[str, Any] = field(default_factory=dict)
