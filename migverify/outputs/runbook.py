"""Outputs of ``runbook``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from migverify.model import Verdict
from migverify.outputs.units import (
    Count,
    Open,
    Reasons,
    Seconds,
    Share,
    Steps,
    Texts,
    UnixTime,
    UnixTimeOrUnknown,
    Version,
)
from migverify.runbook.run.preflight import Preflight


class LintedRunbook(TypedDict):
    """The runbook that was read."""

    id: str
    sha: str
    steps: Count


class LintEntry(TypedDict):
    """One finding of the lint."""

    rule: str
    refused: bool
    file: Any
    line: Any
    text: str
    hint: str


class LintOutput(TypedDict):
    """What is wrong with a runbook; ``runbook`` null: it could not be read."""

    runbook: LintedRunbook | None
    refused: Count
    warnings: Count
    findings: list[LintEntry]


class WorstRollback(TypedDict):
    """After which step a rollback takes longest."""

    after: str
    at: Seconds
    seconds: Seconds


class PlanOutput(TypedDict):
    """The plan of a runbook; times are seconds from the start."""

    runbook: str
    sha: str
    environment: str
    kind: str
    worst_rollback: WorstRollback


class RunbookCheckOutput(TypedDict):
    """What is wrong with a runbook, its plan, and with servers: whether it could start now."""

    schema_version: Version
    next_steps: Steps
    lint: LintOutput
    plan: NotRequired[PlanOutput]
    preflight: NotRequired[Preflight]


class DutyOutput(TypedDict):
    """Something that people have to do; ``who``: in words."""

    verb: str
    persons: Texts
    what: str
    command: str
    who: str


class RunbookStatusExtras(TypedDict):
    """Beside the view itself: what people have to do now."""

    schema_version: Version
    next_steps: Steps
    duties: list[DutyOutput]


class DrillOutput(TypedDict):
    """One drill. ``clean`` False: ``unclean`` says why."""

    run: str
    started: UnixTime
    ended: UnixTimeOrUnknown
    environment: str
    state: str
    sha: str
    schema_fingerprint: Any
    clean: bool
    unclean: Texts
    people: Texts
    process: Open
    correctness: Open


class DamagedOutput(TypedDict):
    """A run whose journal cannot be read."""

    run: str
    problem: str


class ReadinessExtras(TypedDict):
    """Beside the conditions: the verdict, and the drills that were counted."""

    schema_version: Version
    next_steps: Steps
    verdict: Literal["ready", "not ready", "inconclusive"]
    reasons: Reasons
    drills: list[DrillOutput]
    damaged: list[DamagedOutput]


class CaseOutput(TypedDict):
    """One case of disaster recovery; ``reason`` empty: it passed."""

    id: str
    passed: bool
    reason: str
    runs: list[Open]


class CasesOutput(TypedDict):
    """Which cases of disaster recovery passed."""

    max_age_days: Annotated[float, Field(description="Days after which a run counts no more.")]
    cases: list[CaseOutput]
    damaged: list[DamagedOutput]


class AnnouncedHead(TypedDict):
    """A head of the journal that was announced."""

    seq: int
    sha: str


class SignerOutput(TypedDict):
    """Whose approvals are signed by which key."""

    person: str
    fingerprint: str


class JournalProblemOutput(TypedDict):
    """What is wrong with a line of a journal."""

    line: int
    what: str
    fatal: bool


class JournalOutput(TypedDict):
    """Whether a journal can be believed."""

    schema_version: Version
    next_steps: Steps
    journal: str
    events: Count
    head: str
    announced: list[AnnouncedHead]
    bad: bool
    verdict: Verdict
    reasons: Reasons
    signers: list[SignerOutput]
    problems: list[JournalProblemOutput]


class TrafficOutput(TypedDict):
    """The share of traffic that instances serve; ``share`` null: they have none in common."""

    schema_version: Version
    next_steps: Steps
    traffic: str
    share: Annotated[Share | None, Field(description="A share, 0 to 1; null: none in common.")]
    verdict: str
    text: str
    instances: Open
    measured: Open


class ReadinessConditionOutput(TypedDict):
    """One condition; ``do`` is what to do about it."""

    id: str
    state: str
    wants: str
    found: str
    reasons: Reasons
    do: str


class ReadinessChangeOutput(TypedDict):
    """One condition that is another one than in the evaluation before; ``before`` empty: it is new."""

    condition: str
    before: str
    after: str
    verdict_before: str
    verdict: str
    reasons: Reasons


class ReadinessWatchOutput(TypedDict):
    """One evaluation; ``undelivered`` announcements no sink has taken yet, ``given_up`` none will."""

    schema_version: Version
    next_steps: Steps
    at: UnixTime
    number: Count
    runbook: str
    service: str
    environment: str
    verdict: str
    conditions: list[ReadinessConditionOutput]
    changes: list[ReadinessChangeOutput]
    undelivered: Count
    given_up: Count
