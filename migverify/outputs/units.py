"""Kinds of values that many outputs hold: their unit, and what null means, are part of their schemas."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from migverify.errors import ExitCode
from migverify.model import NextStep, Verdict

Seconds = Annotated[float, Field(description="Seconds.")]
SecondsOrUnknown = Annotated[float | None, Field(description="Seconds; null: not known.")]
UnixTime = Annotated[float, Field(description="Unix time, seconds.")]
UnixTimeOrUnknown = Annotated[float | None, Field(description="Unix time, seconds; null: not known.")]
UtcText = Annotated[str, Field(description="A moment in UTC, ISO 8601.")]
RunId = Annotated[str, Field(description="The run's id in the result store, as `migverify report` takes it.")]
RunIdOrNone = Annotated[str | None, Field(description="A run's id in the result store; null or empty: there is none.")]
Rows = Annotated[int, Field(ge=0, description="Rows.")]
RowsOrUnknown = Annotated[int | None, Field(description="Rows; null: not counted.")]
Count = Annotated[int, Field(ge=0)]
Bytes = Annotated[int, Field(description="Bytes.")]
Share = Annotated[float, Field(description="A share, 0 to 1.")]
Amount = Annotated[str, Field(description="An exact decimal as text: a float would round it.")]
TableName = Annotated[str, Field(description="database.table; empty where the side has none.")]
Texts = list[str]
Reasons = Annotated[list[str], Field(description="Why the verdict is not MATCH, the most important first.")]
Sql = Annotated[str, Field(description="A statement of SQL.")]
Value = Annotated[str | None, Field(description="Canonical text of a value; null: NULL, or not kept.")]
Code = Annotated[ExitCode, Field(description="The exit code of the command; see docs/json.md.")]
Open = dict[str, Any]


Steps = Annotated[list[NextStep], Field(description="Commands to run next, in their order; empty: none is needed.")]
Version = Annotated[int, Field(ge=1, description="Version of the published schemas; see docs/json.md.")]


class JudgedOutput(TypedDict):
    """What every output with a verdict has."""

    schema_version: Version
    verdict: Verdict
    next_steps: Steps
