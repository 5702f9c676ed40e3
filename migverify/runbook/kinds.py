"""The kinds of runbooks, runs and steps, and what a step says in one word; without a model behind them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class RunbookKind(StrEnum):
    """What a runbook is for."""

    REHEARSAL = "rehearsal"
    CUTOVER = "cutover"
    ROLLBACK = "rollback"
    TRAFFIC = "traffic"
    LOAD = "load"
    DR_CASE = "dr-case"


class RunKind(StrEnum):
    """How a runbook is run. A dry run has no effects, and its steps end DRY, never DONE."""

    DRY = "dry"
    REHEARSAL = "rehearsal"
    LIVE = "live"
    ROLLBACK = "rollback"


class StepKind(StrEnum):
    """What a step is."""

    MANUAL = "manual"
    COMMAND = "command"
    SQL = "sql"
    CHECK = "check"
    GATE = "gate"
    WAIT = "wait"
    ANNOUNCE = "announce"
    TRAFFIC = "traffic"
    DECISION = "decision"
    CHAOS = "chaos"


class Repeat(StrEnum):
    """Idempotency class: whether an effect may be repeated when nobody knows whether it happened."""

    YES = "yes"
    NO = "no"
    CHECK = "check"  # ask the reconcile probe first


class OnFail(StrEnum):
    """What follows a failed step. A skip needs a waiver by two persons."""

    STOP = "stop"
    RETRY = "retry"
    ROLLBACK = "rollback"
    GOTO = "goto"
    SKIP = "skip"


class DataLoss(StrEnum):
    """What a rollback loses."""

    NONE = "none"
    BOUNDED = "bounded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is in the file, for messages: line from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"
