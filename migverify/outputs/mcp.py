"""Results of the tools of ``migverify mcp`` that no command prints in this form."""

from __future__ import annotations

from typing import Annotated, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from migverify.model import RowDiff
from migverify.outputs.units import Code, Count, JudgedOutput, RunId, Sql, TableName


class PageOutput(TypedDict):
    """Which part of a list this is. ``total`` null: not counted; ``next_offset`` null: this is the end."""

    offset: Count
    shown: Count
    total: int | None
    next_offset: int | None


class ReportPage(JudgedOutput):
    """A run as ``report --format json`` prints it, of its lists one page; ``kind`` says which schema it follows."""

    run_id: RunId
    exit_code: Code
    kind: NotRequired[Annotated[str, Field(description="Absent: a run of table pairs or rules, schema `run`.")]]
    page: PageOutput


class DiffPage(TypedDict):
    """Confirmed differences as of ``tables diff --json``; values are masked unless the configuration shows them."""

    run_id: RunId
    rows: list[RowDiff]
    page: PageOutput


class StoredStatement(TypedDict):
    """A statement as it was stored."""

    side: str
    purpose: str
    sql: Sql


class ExplainedPart(TypedDict):
    """A table pair or a rule, with the statements that were sent for it."""

    pair: str
    source: TableName
    target: TableName
    statements: list[StoredStatement]


class ExplainPage(TypedDict):
    """What a run sent, as stored."""

    run_id: RunId
    parts: list[ExplainedPart]
    page: PageOutput
