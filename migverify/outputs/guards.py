"""Outputs of ``check`` and ``guard``."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from migverify.guards.model import AnswerState
from migverify.outputs.units import (
    JudgedOutput,
    Open,
    RunId,
    Seconds,
    Texts,
    UnixTime,
    UnixTimeOrUnknown,
)


class AnswerOutput(TypedDict):
    """The answer to one question. ``numbers`` are in the unit that their names end with."""

    guard: str
    name: str
    subject: str
    state: AnswerState
    value: str
    threshold: str
    query: str
    why: str
    todo: str
    server_time: UnixTimeOrUnknown
    local_time: UnixTime
    numbers: dict[str, float | None]


class GuardOutput(TypedDict):
    """All answers of one guard. ``unasked``: questions that could not be put, and why."""

    guard: str
    state: AnswerState
    started: UnixTime
    seconds: Seconds
    unasked: Texts
    facts: Open
    answers: list[AnswerOutput]


class GuardsOutput(JudgedOutput):
    """One asking; with ``--watch`` the first turn, which has ``at`` and ``turn``."""

    run: RunId
    guards: list[GuardOutput]
    at: NotRequired[UnixTime]
    turn: NotRequired[int]


class GuardState(TypedDict):
    """The state of one guard in a later turn."""

    guard: str
    state: AnswerState
    unasked: Texts


class ChangedAnswer(TypedDict):
    """An answer that changed; ``before`` null: it is new, ``after`` null: it is gone."""

    guard: str
    subject: str
    name: str
    before: AnswerState | None
    after: AnswerState | None
    answer: AnswerOutput | None


class GuardsTurn(JudgedOutput):
    """A later turn of ``--watch``: the states, and what changed."""

    at: UnixTime
    turn: int
    run: RunId
    guards: list[GuardState]
    changes: list[ChangedAnswer]


GuardsDocument = GuardsOutput | GuardsTurn


class GuardsReportOutput(JudgedOutput):
    """A run of guards from the store."""

    run_id: RunId
    kind: str
    exit_code: int
    reasons: Texts
    command: str
    started: UnixTime
    finished: UnixTimeOrUnknown
    endpoints: dict[str, str]
    guards: list[GuardOutput]


QuestionOutput = TypedDict(
    "QuestionOutput", {"name": str, "of": str, "for": Texts, "wanted": str, "why": str, "todo": str}
)


DefinitionDifferenceOutput = TypedDict(
    "DefinitionDifferenceOutput",
    {
        "path": str, "source": str | None, "target": str | None, "class": str, "message": str,
        "allowed": NotRequired[str],
    },
)  # fmt: skip


class DefinitionComparisonOutput(TypedDict):
    """One table; ``fingerprints`` by ``endpoint/database.table``."""

    table: str
    equal: bool
    differences: list[DefinitionDifferenceOutput]
    fingerprints: dict[str, str]


class SchemaOutput(TypedDict):
    """How the definitions of both sides differ. ``unasked``: why something is not known."""

    equal: bool
    fingerprints: dict[str, str]
    not_seen: dict[str, list[str]]
    tables: list[DefinitionComparisonOutput]
    unasked: NotRequired[Texts]
    to: NotRequired[str]


class SnapshotOutput(TypedDict):
    """Definitions that were kept; fingerprints by endpoint, and by ``endpoint/database.table``."""

    run: RunId
    taken: UnixTime
    fingerprints: dict[str, str]
    tables: dict[str, str]


class IdSpaceOutput(TypedDict):
    """One id space; null where the kind has no such figure or it is not known."""

    endpoint: str
    table: str
    column: str
    kind: str
    layout: Open | None
    confidence: Any
    evidence: Any
    used: int | None
    limit: int | None
    used_ratio: Annotated[float | None, Field(description="Share of the space that is used; null: not known.")]
    exhausts_on: Annotated[str | None, Field(description="When it ends, UTC; null: not known, or never.")]
    days_left: Annotated[float | None, Field(description="Days until then; null: not known, or never.")]
    largest: int | None
    beyond_2_53: bool
    limited_by: Any
    cache: int | None
    workers_used: int | None
    workers_total: int | None
    sequence_peak: int | None
    sequence_total: int | None
    ahead_seconds: Seconds
    verdict: AnswerState
    warning: bool
    reason: str
    query: str
