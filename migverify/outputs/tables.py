"""Outputs of ``tables``, ``status`` and ``config``."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from migverify.model import DiffKind, LiveState, NotCovered, SchemaDifference, Verdict
from migverify.outputs.units import (
    Amount,
    Bytes,
    Code,
    Count,
    JudgedOutput,
    Open,
    Reasons,
    Rows,
    RowsOrUnknown,
    RunId,
    RunIdOrNone,
    Seconds,
    SecondsOrUnknown,
    Sql,
    TableName,
    Texts,
    UnixTime,
    UnixTimeOrUnknown,
    UtcText,
    Value,
)
from migverify.tables.explain import SideExplain


class ClippedValue(TypedDict):
    """The part of a value around its first difference."""

    text: str
    characters_before: Count
    characters_after: Count


class DifferenceExtras(TypedDict):
    """What a line of ``tables diff`` has beside the keys of a row diff."""

    reason: NotRequired[Annotated[str, Field(
        description="What differs in the table and not in one row; `key` is empty then. Absent: it is a row diff."
    )]]  # fmt: skip


class SampledColumn(TypedDict):
    """One column of a differing row; without ``source`` and ``target`` where its values are masked."""

    column: str
    kind: str
    masked: bool
    source: NotRequired[ClippedValue | None]
    target: NotRequired[ClippedValue | None]


class SampledRow(TypedDict):
    """A row diff; in a table without a unique key, ``key`` is the row's checksum, and the counts are of such rows."""

    key: list[Value]
    kind: DiffKind
    state: LiveState
    columns: list[SampledColumn]
    source_count: Count
    target_count: Count
    shard: str


class RowDiffCounts(TypedDict):
    """Rows that differ, exact."""

    missing_on_target: Count
    missing_on_source: Count
    value_differs: Count


class RowDiffSamples(TypedDict):
    """Row diffs that are listed, of those that the store holds."""

    shown: Count
    stored: Count
    rows: list[SampledRow]


class PairReportOutput(TypedDict):
    """One table pair."""

    pair: str
    source: TableName
    target: TableName
    verdict: Verdict
    reasons: Reasons
    rows_source: RowsOrUnknown
    rows_target: RowsOrUnknown
    chunks: Count
    lanes: Texts
    row_diffs: RowDiffCounts
    row_diff_samples: RowDiffSamples
    not_covered: list[NotCovered]
    seconds: SecondsOrUnknown
    schema: list[SchemaDifference]
    blind_spots: Annotated[list[str], Field(description="What the comparison cannot see.")]
    hash: str
    details: Open


MoneyAtRisk = TypedDict("MoneyAtRisk", {"class": str, "currency": str, "amount": Amount})


class FindingSamples(TypedDict):
    """Findings that are listed, of those that the store holds."""

    shown: Count
    stored: Count
    findings: list[Open]


class RuleReportOutput(TypedDict):
    """One rule."""

    rule: str
    verdict: Verdict
    reasons: Reasons
    kind: str
    severity: str
    owner: str
    description: str
    place: str
    source: str
    target: str
    findings: Annotated[dict[str, int], Field(description="Findings by class.")]
    money_at_risk: list[MoneyAtRisk]
    unexplained: Annotated[dict[str, str], Field(description="Exact amounts that nothing explains, by currency.")]
    covered: Annotated[dict[str, int], Field(description="Rows read, by side.")]
    windows: Annotated[dict[str, int | str], Field(description="Windows by state, and texts about them.")]
    anchors: Any
    seconds: Seconds
    finding_samples: FindingSamples


class RunReportOutput(JudgedOutput):
    """A run of table pairs or rules, as ``report --format json`` shows it too."""

    run_id: RunId
    exit_code: Code
    seconds: SecondsOrUnknown
    tables: list[PairReportOutput]
    not_covered: Annotated[
        NotRequired[list[NotCovered]], Field(description="All tables that `tables.exclude` leaves out of the run.")
    ]
    rules: NotRequired[list[RuleReportOutput]]


class PlannedPairOutput(TypedDict):
    """One table pair of a plan; ``explain`` is what each side answers to EXPLAIN of its checksum."""

    id: str
    source: TableName
    target: TableName
    rows: Annotated[int, Field(description="Rows by the server's estimate.")]
    bytes: Annotated[int, Field(description="Bytes by the server's estimate.")]
    key: Texts
    range_key: Texts
    strategy: str
    hash: str
    columns: list[Open]
    schema: list[SchemaDifference]
    not_covered: list[NotCovered]
    blind_spots: Texts
    explain: list[SideExplain]


class RepairScript(TypedDict):
    """A script of SQL."""

    file: str
    sha256: str
    bytes: Bytes
    statements: Count


class RepairedRows(TypedDict):
    """What became of the row diffs of a table."""

    seen: Rows
    statements: Annotated[dict[str, int], Field(description="Statements by kind of row diff.")]
    equal_now: Rows
    changed_since: Annotated[dict[str, int], Field(description="Rows changed since the run, by side.")]
    refused: Annotated[dict[str, int], Field(description="Rows without a statement, by reason.")]


class RepairedTable(TypedDict):
    """The scripts of one table pair; null where there is none."""

    pair: str
    source: TableName
    target: TableName
    plan_digest: str | None
    not_repaired: Annotated[str | None, Field(description="Why no script was written; null: one was.")]
    repair: RepairScript | None
    inverse: RepairScript | None
    rows: RepairedRows
    no_delete: Annotated[str | None, Field(description="Why no row is deleted; null: rows may be.")]
    notes: Texts


class AppliedTable(TypedDict):
    """What executing did to one table."""

    repaired: Rows
    left_alone: Rows
    still_different: Rows
    refused_by_target: dict[str, int]


class AppliedRepair(TypedDict):
    """What ``--apply`` did; the run has read every row again."""

    run: RunId
    verdict: Verdict
    tables: dict[str, AppliedTable]


class RepairOutput(TypedDict):
    """The manifest of a repair; ``applied`` with ``--apply`` alone."""

    format: int
    run: RunId
    plan_digest: str
    written: UtcText
    migverify: str
    earlier: Annotated[str | None, Field(description="Where an earlier repair was moved; null: there was none.")]
    endpoints: dict[str, Open]
    tables: list[RepairedTable]
    applied: NotRequired[AppliedRepair]


class TsoStamp(TypedDict):
    """A moment of TiDB."""

    tso: int
    time: UnixTime
    text: str


class WatchProcess(TypedDict):
    """The process of a watch; null where it is not known."""

    alive: bool
    host: str | None
    pid: int | None
    heartbeat_seconds: SecondsOrUnknown
    progress_seconds: SecondsOrUnknown
    unproved_keys: int | None
    drained: bool
    ended: Any


class LossCountsOutput(TypedDict):
    """Keys whose writes would be lost."""

    keys: Count
    missing_on_source: Count
    value_differs: Count
    missing_on_target: Count
    transactions_at_least: int | None
    oldest: TsoStamp | None
    no_write_known: Count
    order_unknown: Count


class TableLossOutput(LossCountsOutput):
    """Those of one table; ``unknown`` says what of it is not known."""

    source: TableName
    target: TableName
    unknown: Texts


class LostKeyOutput(TypedDict):
    """One key."""

    table: TableName
    key: list[Value]
    kind: str
    first_commit: TsoStamp | None
    last_commit: TsoStamp | None
    origin: str


class LossOutput(JudgedOutput, LossCountsOutput):
    """What a rollback would lose. ``rows_left_out``: keys beyond ``--limit``."""

    run: RunIdOrNone
    complete: bool
    as_of: TsoStamp | None
    read_at: TsoStamp | None
    began: TsoStamp | None
    unread_seconds: SecondsOrUnknown
    max_unread: Seconds
    watch: WatchProcess
    sweep_minutes: Annotated[float | None, Field(description="Minutes of a sweep; null: a changefeed is read.")]
    oldest_seconds: SecondsOrUnknown
    amounts: list[Open]
    amounts_unstated: Texts
    reasons: Reasons
    not_seen: Texts
    tables: list[TableLossOutput]
    tables_watched: Count
    rows: list[LostKeyOutput]
    rows_left_out: int
    sql: list[Open]


class ArmedOutput(JudgedOutput):
    """Whether a rollback is armed."""

    run: RunIdOrNone
    forward: RunIdOrNone
    as_of: TsoStamp | None
    read_at: TsoStamp | None
    began: TsoStamp | None
    unread_seconds: SecondsOrUnknown
    max_unread: Seconds
    watch: WatchProcess
    unread_rows: RowsOrUnknown
    unread_statements: int | None
    reasons: Reasons


class StoredRunOutput(TypedDict):
    """One run of the result store."""

    run_id: RunId
    kind: str
    verdict: Verdict
    state: str
    started: UtcText
    command: str


class WatchSide(TypedDict):
    """The newest watch of a direction; null where it is not known."""

    run: RunId
    state: str
    verdict: Verdict
    reason: str
    as_of: str | None
    status_at: UnixTimeOrUnknown
    status_verdict: Verdict | None
    open_keys: int | None
    oldest_seconds: SecondsOrUnknown
    diverged: int | None
    began: str | None
    through: str | None
    since: RunIdOrNone
    ended: UnixTimeOrUnknown
    sweep_minutes: float | None
    host: str | None
    pid: int | None
    heartbeat_seconds: SecondsOrUnknown


class HandOverOutput(TypedDict):
    """Whether anything is unread between the forward and the reverse watch."""

    verdict: Verdict
    read_at: UnixTimeOrUnknown
    unread_rows: RowsOrUnknown
    unread_statements: int | None
    reasons: Texts


class DirectionsOutput(TypedDict):
    """Both directions of the configuration; null where there is no such watch."""

    forward: WatchSide | None
    reverse: WatchSide | None
    proof: WatchSide | None
    hand_over: HandOverOutput | None


class RunbookRunOutput(TypedDict):
    """One run of a runbook; one that cannot be read has a ``reason`` alone."""

    run_id: str
    state: str
    kind: NotRequired[str]
    environment: NotRequired[str]
    runbook: NotRequired[str]
    driver: NotRequired[str]
    reason: NotRequired[str]


class OneRunOutput(JudgedOutput, StoredRunOutput):
    """One run of another kind than tables."""


class StatusOutput(TypedDict):
    """The newest runs, watches and runbook runs."""

    runs: list[StoredRunOutput]
    directions: Annotated[DirectionsOutput | None, Field(description="null: no configuration, or no watch.")]
    runbooks: list[RunbookRunOutput]


class RunProgressOutput(JudgedOutput):
    """How far one run of tables is."""

    run_id: RunId
    state: str
    tables: str
    rows: Rows
    chunks: Count
    row_diffs: Count
    to_look_at: Annotated[int, Field(description="Candidate rows of tables that are not finished.")]


StatusDocument = StatusOutput | RunProgressOutput | OneRunOutput


class ConfigOutput(TypedDict):
    """What was understood of the configuration, without secrets."""

    path: str
    sources: list[Open]
    target: Open
    endpoints: list[Open]
    store: str
    tables: dict[Literal["include", "exclude"], list[str]]
    routes: list[Open]
    overrides: list[Open]
    limits: Open
    recheck: Open
    watch: Open
    consistency: str
    report: Open
    hash: str
    spark: Open
    workload: Open
    monitors: Open
    comparison_digest: str
    full_digest: str


class LackingOutput(TypedDict):
    """What the user of one endpoint lacks."""

    endpoint: str
    account: str
    missing: Any
    statements: list[Sql]


class GrantsOutput(TypedDict):
    """Grants that are missing, and servers that could not be asked."""

    endpoints: list[LackingOutput]
    errors: Texts
