"""The shape of a rules file, as pydantic models: the only place that knows it.

``load`` turns a checked document into the dataclasses of ``model``; ``rule_parts`` has the rules of each kind.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from migverify.config.fields import NAME, Many, Moment, Strict
from migverify.recon.fields import (
    Duration,
    Names,
    ParameterType,
    RuleName,
    ScalarText,
    Shards,
    Table,
)
from migverify.recon.parameters import WINDOW_PARAMETERS
from migverify.recon.rule_parts import AnyRule, Severity, Window

_RANGE = r"[0-9]+\.\.[0-9]+"
Operation = Literal["insert", "update", "delete"]


class ParameterPart(Strict):
    """A typed parameter."""

    type: ParameterType = Field(description="`integer`, `decimal`, `text`, `date` or `datetime` (UTC).")
    default: ScalarText | None = Field(default=None, description="Its value where none is given.")


class PartPart(Strict):
    """Where rows come from: one of `table`, `sql`, `parquet` and `changes`."""

    endpoint: str | None = Field(
        default=None,
        min_length=1,
        description="Whose rows: `source`, `source.<shard>`, `target`, or a name under `endpoints` in migverify.yaml.",
    )
    table: Table | None = Field(
        default=None, description="All rows of a table, as `database.table`; backticks around a name with a dot."
    )
    where: str | None = Field(
        default=None, min_length=1, description="Condition on the rows of `table`; may hold `:parameters`."
    )
    sql: str | None = Field(
        default=None, min_length=1, description="Rows of one SELECT that only reads; may hold `:parameters`."
    )
    parquet: str | None = Field(
        default=None,
        min_length=1,
        description="Rows of Parquet files: a path or a pattern. A relative one starts at the folder of this file."
        " Needs the Spark engine.",
    )
    changes: Table | None = Field(
        default=None,
        description="Row changes of a table, as `database.table`: from the binlog of `endpoint`, or from `path`.",
    )
    path: str | None = Field(
        default=None,
        min_length=1,
        description="With `changes`: an archive of `changes archive`, or copied binlog files, instead of `endpoint`.",
    )
    operations: Many[Operation] | None = Field(
        default=None, min_length=1, description="With `changes`: only `insert`, `update` or `delete`. Default: all."
    )
    state: bool | None = Field(
        default=None, description="With `changes`: true keeps only the last change of each key. Default: false."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> PartPart:
        given = [name for name in ("table", "sql", "parquet", "changes", "union") if getattr(self, name, None)]
        if len(given) != 1:
            wanted = "`table`, `sql`, `parquet`, `changes`" + (" or `union`" if hasattr(self, "union") else "")
            raise ValueError(f"{' and '.join(f'`{n}`' for n in given) or 'nothing'} is given; give one of {wanted}")
        kind = given[0]
        takes = {"table": {"endpoint", "where"}, "sql": {"endpoint"}, "parquet": set(), "union": set(),
                 "changes": {"endpoint", "path", "operations", "state"}}[kind]  # fmt: skip
        for name in ("endpoint", "where", "path", "operations", "state"):
            if getattr(self, name) is not None and name not in takes:
                raise ValueError(f"`{kind}` takes no `{name}`")
        if kind in ("table", "sql") and self.endpoint is None:
            raise ValueError(f"`endpoint` is missing beside `{kind}`")
        if kind == "changes" and (self.endpoint is None) == (self.path is None):
            raise ValueError("`changes` takes `endpoint` or `path`, one of them")
        return self


class UnionPart(Strict):
    """The same rows from many shards."""

    template: PartPart = Field(
        description="One dataset without `columns` and `key`. `{shard}` and `{n}` (with leading zeros: `{n:02}`) stand"
        " for the shard in `endpoint`, `table`, `changes`, `path` and `parquet`, and in `sql` in names in backticks."
    )
    shards: Shards | None = Field(default=None, description="Names of the shards; `{n}` counts them from 0.")
    range: str | None = Field(
        default=None,
        pattern=_RANGE,
        description="Instead of `shards`: numbers as `0..63`, or `00..63` with leading zeros; both ends count.",
    )

    columns: dict[ScalarText, Annotated[dict[str, str], Field(min_length=1)]] = Field(
        default_factory=dict,
        description="Per shard, or per numbers as `01..03`, columns that have another name or expression there than in"
        " `columns` of the dataset.",
    )

    @model_validator(mode="after")
    def _one_list(self) -> UnionPart:
        if (self.shards is None) == (self.range is None):
            raise ValueError("give `shards` or `range`, one of them")
        return self


class DatasetPart(PartPart):
    """A named set of rows."""

    union: UnionPart | None = Field(default=None, description="The same rows from many shards, as one dataset.")
    columns: Annotated[
        dict[str, str] | None,
        BeforeValidator(
            lambda value: dict.fromkeys(value, "") if isinstance(value, list) and _texts(value) else value,
            json_schema_input_type=list[str] | dict[str, str],
        ),
    ] = Field(
        default=None,
        min_length=1,
        description="Which columns: a list of names, or `name: expression` over the columns of the table (domain"
        " mapping). Default: all, as they are.",
    )
    values: dict[str, dict[str, ScalarText]] = Field(
        default_factory=dict, description="Per column, a text of this side and the text it is compared as."
    )
    key: Names | None = Field(default=None, description="Columns that identify a row, where a rule names none.")
    time: str | None = Field(
        default=None,
        min_length=1,
        description="Column of the time (UTC DATETIME or TIMESTAMP) that windows cut.",
    )
    static: bool = Field(default=False, description="true: nothing writes to it, so no settle time is needed.")


def _texts(value: list[Any]) -> bool:
    return all(isinstance(one, str) for one in value) and len(set(value)) == len(value)


class DefaultsPart(Strict):
    """What rules of this file have where they say nothing."""

    owner: str | None = Field(default=None, min_length=1, description="Who answers for findings.")
    severity: Severity = Field(default="critical", description="`critical`, `major` or `warning`.")
    settle: Duration | None = Field(default=None, description="Settle time.")
    window: Window | None = Field(
        default=None, description="Windows. `unique`, `balance`, `sequence` and `freshness` look at all rows instead."
    )
    rereads: int = Field(default=2, ge=0, le=100, description="Re-reads of a difference.")
    delay: Duration = Field(default=1.0, description="Time between them.")


class ExceptionPart(Strict):
    """A finding that somebody answers for."""

    rule: str = Field(min_length=1, description="Name of the rule.")
    key: Annotated[
        Many[ScalarText | None] | None,
        BeforeValidator(
            lambda value: value if value is None or isinstance(value, list) else [value],
            json_schema_input_type=str | int | list[str | int | None],
        ),
    ] = Field(default=None, min_length=1, description="Key of the finding. Default: every key.")
    owner: str = Field(min_length=1, description="Who answers for it.")
    reason: str = Field(min_length=1, description="Why it is known.")
    expires: Moment = Field(description="Date or time from which it counts no more; UTC.")


class RulesDocument(Strict):
    """Reconciliation rules."""

    version: Literal["recon/v1"] = Field(description="`recon/v1`.")
    defaults: DefaultsPart = Field(default_factory=lambda: DefaultsPart(), description="What rules have by default.")
    parameters: dict[
        str,
        Annotated[
            ParameterPart,
            BeforeValidator(
                lambda value: {"type": value} if isinstance(value, str) else value,
                json_schema_input_type=str | ParameterPart,
            ),
        ],
    ] = Field(default_factory=dict, description="Typed parameters, written `:name` in SQL; `name: type` is enough.")
    datasets: dict[RuleName, DatasetPart] = Field(default_factory=dict, description="Sets of rows, by name.")
    rules: list[AnyRule] = Field(default_factory=list, description="What has to hold.")
    exceptions: list[ExceptionPart] = Field(default_factory=list, description="Findings that are known.")

    @model_validator(mode="after")
    def _names(self) -> RulesDocument:
        for name in self.parameters:
            if not NAME.fullmatch(name):
                raise ValueError("names of parameters hold letters, digits and _")
            if name in WINDOW_PARAMETERS:
                raise ValueError(f"`{name}` is given by the window; do not declare it")
        return self
