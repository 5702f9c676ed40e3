"""Outputs of ``workload``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from migverify.decision.model import DecisionPart, ReasonKind, Standing
from migverify.model import Verdict
from migverify.outputs.units import (
    Bytes,
    Code,
    Count,
    JudgedOutput,
    Open,
    Reasons,
    RunId,
    RunIdOrNone,
    Seconds,
    SecondsOrUnknown,
    Share,
    Sql,
    Texts,
    UnixTime,
    UnixTimeOrUnknown,
    UtcText,
)


class CapturedFile(TypedDict):
    """One file that was read. Times are UTC text; null: none is known."""

    file: str
    format: str
    server: str
    bytes: Bytes
    records: Count
    rejected: Count
    rejected_bytes: Bytes
    noise_bytes: Bytes
    disordered: Count
    disorder_s: Seconds
    first: UtcText | None
    last: UtcText | None
    duplicates: Count


class PollOutput(TypedDict):
    """What a poll saw."""

    table: str
    polls: Count
    events: Count
    nested: Count
    overruns: Count
    gaps: Count
    lost_at_most: Count
    cut_texts: Count


class CaptureOutput(TypedDict):
    """What a capture read and made; ``poll`` with ``--poll`` alone. Counts by name where it is an object."""

    out: str
    masked: bool
    bytes: Bytes
    records: Count
    statements: Count
    rejected: Count
    rejected_bytes: Bytes
    noise_bytes: Bytes
    duplicates: Count
    rejects: dict[str, int]
    noise: dict[str, int]
    sessions: Count
    partial_statements: Count
    partial: dict[str, int]
    commands: dict[str, int]
    first: UtcText | None
    last: UtcText | None
    untimed: Count
    files: list[CapturedFile]
    version: int
    formats: Texts
    servers: Texts
    poll: NotRequired[PollOutput]


class QualityExtras(TypedDict):
    """Beside the judgment itself: whether a statement can be replayed and judged."""

    usable: bool


class SessionsOutput(TypedDict):
    """The dump of sessions that was written."""

    out: str
    server: str
    at: Any
    sessions: Count
    with_settings: Count


class ReplayOutput(JudgedOutput):
    """A replay: answers, latency, digests. Quantiles are microseconds; ``seconds`` null: no end is known."""

    run_id: RunId
    kind: Literal["replay"]
    exit_code: Code
    reasons: Reasons
    seconds: SecondsOrUnknown
    coverage: Open
    service_levels: list[Open]
    weights: dict[str, int]
    latency: dict[str, Open]
    lag: Open
    forecast: NotRequired[Open]
    trend: Open
    digests_shown: Count
    digests_held: Count
    digests: list[Open]
    hours: NotRequired[list[Open]]


class PlannedReplay(TypedDict):
    """What ``--dry-run`` says of a replay; counts of calls, times of the capture in microseconds."""

    capture: str
    folder: None
    pace: str
    hash: str
    calls: Count
    sessions: Count
    asked: Count
    not_chosen: Count
    kinds: dict[str, int]
    skips: dict[str, int]
    writes: Count
    digests: Count
    span: int
    idle: int
    waits: Count
    racy: Count
    undefined: Count
    untimed: Count
    joined: Count
    assumed: dict[str, int]
    masked: bool
    first: int | None
    last: int | None
    choices: Open


ReplayDocument = ReplayOutput | PlannedReplay


class NightRun(TypedDict):
    """The replay of one capture."""

    run_id: RunId
    day: str
    capture: str
    verdict: Verdict
    stopped: Annotated[str, Field(description="Why the replay stopped before its end; empty: it did not.")]
    trend: Open


class FailedCapture(TypedDict):
    """A capture that could not be replayed, and why."""

    capture: str
    reason: str


class NightlyOutput(TypedDict):
    """Captures that were replayed, that failed, and how many are left."""

    folder: str
    runs: list[NightRun]
    failed: list[FailedCapture]
    left: Count


class CloneOutput(TypedDict):
    """The mark of a rehearsal clone."""

    endpoint: str
    name: str
    marker: str
    server: str
    marked_at: Any
    expires_at: Any


class ShadowReportOutput(JudgedOutput):
    """A shadow replay from the store."""

    run_id: RunId
    kind: Literal["shadow"]
    exit_code: Code
    reasons: Reasons
    at: UnixTime
    log: str
    counts: dict[str, int]
    digests: list[Open]
    hours: list[Open]


ProbeResultOutput = TypedDict(
    "ProbeResultOutput",
    {
        "id": str, "title": str, "class": str, "state": str, "reason": str, "seen_on": Any, "target_only": bool,
        "source": list[dict[str, str]], "target": list[dict[str, str]], "seconds": Seconds,
    },
)  # fmt: skip
ProbeEntryOutput = TypedDict("ProbeEntryOutput", {"id": str, "class": str, "title": str, "needs": str | None})


class ProbeOutput(JudgedOutput):
    """Which known differences hold on the pair. ``source_not_asked``: why not; empty: it was."""

    run: RunIdOrNone
    reasons: Reasons
    source_not_asked: str
    results: list[ProbeResultOutput]


ProbeDocument = ProbeOutput | list[ProbeEntryOutput]


class WaiverOutput(TypedDict):
    """One waiver; ``holds`` False: it has expired."""

    entry: Any
    digest: Any
    owner: str
    reason: str
    expires: Annotated[str, Field(description="A day, ISO 8601.")]
    where: str
    holds: bool


class PlansOutput(JudgedOutput):
    """Plans of both sides by digest."""

    run_id: RunId
    kind: Literal["plans"]
    exit_code: Code
    reasons: Reasons
    digests: list[Open]


class DecisionReasonOutput(TypedDict):
    """Why the decision is no GO; ``waiver`` where somebody accepted it."""

    part: DecisionPart
    kind: ReasonKind
    text: str
    remedy: str
    run: RunIdOrNone
    waiver: NotRequired[str]


class PartDecisionOutput(TypedDict):
    """One part of the decision, with its evidence."""

    part: DecisionPart
    decision: Standing
    required: bool
    run: RunIdOrNone
    taken: UnixTimeOrUnknown
    age_seconds: SecondsOrUnknown
    covered: str
    again: Annotated[str, Field(description="The command that gives new evidence.")]
    reasons: list[DecisionReasonOutput]


class BasisOutput(TypedDict):
    """What evidence rests on."""

    pair: dict[str, str]
    versions: dict[str, str]
    schema: str
    configuration: str
    capture: str


class DecisionOutput(JudgedOutput):
    """Whether the service may cut over: GO is MATCH, NO-GO is MISMATCH, NOT KNOWN is INCONCLUSIVE."""

    service: str
    kind: Literal["decision"]
    decision: Standing
    exit_code: Code
    at: UnixTime
    max_age_seconds: Seconds
    required: list[DecisionPart]
    basis: Annotated[BasisOutput | None, Field(description="What is there now; null: it could not be read.")]
    unread: str
    reasons: Reasons
    why: list[DecisionReasonOutput]
    parts: list[PartDecisionOutput]


class AnomalyStatement(TypedDict):
    """A statement of a transaction."""

    transaction: str
    statement: str


class AnomalyOutput(TypedDict):
    """One anomaly, and which server permitted it."""

    permitted_by: str
    note: str
    phenomenon: str
    name: str
    transactions: Texts
    isolation: list[str | None]
    steps: Texts
    statements: list[AnomalyStatement]


class HistoryOutput(TypedDict):
    """How much of a history could be used."""

    server: str
    transactions: Count
    committed: Count
    aborted: Count
    unknown: Count
    reads: Count
    usable: Count
    writes: Count
    opaque: Count
    unordered: Count
    dependencies: Count
    share: Share
    ambiguous: dict[str, int]


class AnomaliesOutput(JudgedOutput):
    """What concurrent transactions were permitted; ``run_id`` where a store keeps it."""

    exit_code: Code
    reasons: Reasons
    anomalies: list[AnomalyOutput]
    source: HistoryOutput
    target: HistoryOutput
    run_id: NotRequired[RunId]


class AnomaliesReportOutput(JudgedOutput):
    """A run of anomalies from the store; without ``source`` and ``target`` where the store lacks them."""

    run_id: RunId
    kind: Literal["anomalies"]
    exit_code: Code
    reasons: Reasons
    anomalies: list[Open]
    source: NotRequired[Open]
    target: NotRequired[Open]


class ReproducedOutput(TypedDict):
    """A digest that differed, asked again. ``answers_then`` are those that the run kept."""

    digest: str
    text: Sql
    still: str
    reason: str
    differences: list[Open]
    answers: list[Any]
    answers_then: list[Any]
    plans: list[Any]


class ExplainedConflict(TypedDict):
    """One conflict; null: the message or the logs do not tell it."""

    kind: str
    code: int | None
    where: str | None
    reason: str | None
    key: Open | None
    primary: Open | None
    ours: Open | None
    other: Open | None
    overlap: Open | None
    waited_ms: Annotated[float | None, Field(description="Milliseconds; null: not known.")]
    backoffs: list[Any]
    story: Texts
    cause: str
    candidates: list[Open]


class ConflictsOutput(TypedDict):
    """Conflicts that were explained; ``run_id`` where a store keeps them."""

    run_id: NotRequired[RunId]
    conflicts: list[ExplainedConflict]
    lines: Count
    repeated: Count
    left_out: Count
    statements_near: Count
    statements_read: Count
    statements_left_out: Count


class ConflictsReportOutput(JudgedOutput):
    """A run of explained conflicts from the store."""

    run_id: RunId
    kind: Literal["conflicts"]
    exit_code: Code
    reasons: Reasons
    replay: RunIdOrNone
    left_out: Count
    conflicts: list[Open]


class ClientCellOutput(TypedDict):
    """One scenario with one driver and pool."""

    driver: str
    pool: str | None
    scenario: str
    variant: str
    verdict: Verdict
    reason: str
    unsteady: Any
    refused: Any
    seconds: Seconds
    differences: list[Open]


class ClientLeftOut(TypedDict):
    """What did not run, and why."""

    driver: str
    pool: str | None
    scenario: str
    variant: str
    reason: str
    possible: bool


class ClientsOutput(JudgedOutput):
    """What client libraries see on both sides."""

    run: RunIdOrNone
    facts: Open
    cells: list[ClientCellOutput]
    left_out: list[ClientLeftOut]


class ClientsListing(TypedDict):
    """With ``--list``: drivers, pools and scenarios by name."""

    drivers: dict[str, Open]
    pools: dict[str, str]
    scenarios: dict[str, Open]


ClientsDocument = ClientsOutput | ClientsListing
