"""Outputs of ``changes`` and of ``recon explain``."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from migverify.guards.model import AnswerState
from migverify.model import Verdict
from migverify.outputs.units import Bytes, Count, JudgedOutput, Reasons, Sql, Texts, UnixTime, UnixTimeOrUnknown


class CheckFinding(TypedDict):
    """The answer to one question about the binlog."""

    name: str
    state: AnswerState
    value: str
    wanted: str
    query: str
    why: str
    todo: str


class CheckedSource(TypedDict):
    """One source."""

    source: str
    version: str
    platform: str
    verdict: Verdict
    reasons: Reasons
    findings: list[CheckFinding]
    blind_spots: Texts


class ChangesCheckOutput(JudgedOutput):
    """Whether the binlog of each source can be read."""

    sources: list[CheckedSource]


class PlaceOutput(TypedDict):
    """A place in the binlog."""

    file: str
    offset: int
    gtids: str


class EventCount(TypedDict):
    """Events of one kind."""

    events: Count
    bytes: Bytes


class SchemaChangeOutput(TypedDict):
    """A statement that changed a definition."""

    op: str
    user: str
    time: UnixTime
    tables: Texts
    sql: Sql
    file: str
    offset: int
    gtid: str


class AuditedFile(TypedDict):
    """One binlog file. ``size``: on the server; null: not known."""

    name: str
    events: Count
    bytes: Bytes
    size: int | None
    in_use: bool


class GapsOutput(TypedDict):
    """Sets of GTIDs; empty: none."""

    lost: str
    holes: str
    repeated: str
    foreign: str


class LargestTransaction(TypedDict):
    """The largest transaction."""

    gtid: str
    bytes: Bytes
    rows: Count
    at: PlaceOutput | None


class AuditedSource(TypedDict):
    """The stream of one source. ``tables``: rows by table and operation."""

    source: str
    verdict: Verdict
    reasons: Reasons
    notes: Texts
    first: PlaceOutput | None
    last: PlaceOutput | None
    first_time: UnixTimeOrUnknown
    last_time: UnixTimeOrUnknown
    transactions: Count
    without_gtid: Count
    gaps: GapsOutput
    bytes_read: Bytes
    bytes_of_files: int | None
    events: dict[str, EventCount]
    rows_events: Count
    tables: dict[str, dict[str, int]]
    files: list[AuditedFile]
    schema_changes: list[SchemaChangeOutput]
    schema_change_count: Count
    largest: LargestTransaction | None
    heartbeats: Count
    idle_until: UnixTimeOrUnknown
    blind_spots: Texts


class ChangesAuditOutput(JudgedOutput):
    """Whether the stream of each source is complete."""

    sources: list[AuditedSource]


class CarrierAuditOutput(JudgedOutput):
    """Whether a changefeed is complete. Places are TSOs; null: none."""

    reasons: Reasons
    complete_to: int | None
    first: int | None
    last: int | None
    transactions: Count
    unfinished: Annotated[int, Field(description="Changes newer than the last watermark.")]
    tables: dict[str, dict[str, int]]
    schema_changes: list[SchemaChangeOutput]


class ArchivedFile(TypedDict):
    """One file of an archive."""

    name: str
    state: str
    bytes: Bytes
    sha256: str


class ArchiveGapOutput(TypedDict):
    """Nothing is archived between ``after``:``bytes`` and ``resumes``."""

    after: Any
    bytes: Any
    resumes: Any


class ArchiveOutput(TypedDict):
    """What an archive covers; ``events`` and ``findings`` with ``--verify`` alone."""

    files: list[ArchivedFile]
    gaps: list[ArchiveGapOutput]
    bytes: Bytes
    first_time: UnixTimeOrUnknown
    last_time: UnixTimeOrUnknown
    gtids: str
    events: NotRequired[Count]
    findings: NotRequired[Texts]


class ExplainedRead(TypedDict):
    """A statement that a rule would send."""

    dataset: str
    endpoint: str
    shard: Any
    sql: Sql


class ExplainedRule(TypedDict):
    """What one rule would do. Texts of windows are empty where none is closed yet."""

    rule: str
    place: str
    what: str
    kind: str
    severity: str
    owner: str
    windows: Count
    first: str
    last: str
    rereads: Any
    delay: Any
    settle: Any
    reads: list[ExplainedRead]
    looked_for_in: str


class ReconExplainOutput(TypedDict):
    """What ``recon run`` would do."""

    rules: list[ExplainedRule]
    engine: str
    engine_reason: str


class PipelineExtras(JudgedOutput):
    """Beside the report itself: each of ``partitions`` has ``rows_per_second`` too."""
