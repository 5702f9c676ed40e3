"""Which tables are compared, what they are called on the target, and what is special about some of them."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator, model_validator

from migverify.config.fields import Condition, Many, Moment, Pattern, Strict, Tolerance
from migverify.config.patterns import Route, make_route, parse_pattern


class TableSelection(Strict):
    """Which source tables take part."""

    include: Many[Pattern] = Field(
        default_factory=lambda: ("*.*",),
        validate_default=True,
        min_length=1,
        description="Patterns `database.table` of the tables to compare. System databases take part only"
        " when a pattern spells their name out.",
    )
    exclude: Many[Pattern] = Field(default_factory=tuple, description="Patterns of tables to leave out again.")


class RouteRule(Strict):
    """Source tables that have another name on the target."""

    from_: str = Field(validation_alias="from", description="Pattern of source tables.")
    to: str = Field(
        description="`database.table` on the target. The n-th `*` of a part is what the n-th `*` of"
        " that part of `from` matched; `{1}`, `{2}` ... for everything captured, in order.",
    )
    shard: str | None = Field(
        default=None, min_length=1, description="Only for shards of that name; `*` and `?` allowed."
    )

    @field_validator("from_")
    @classmethod
    def _is_pattern(cls, value: str) -> str:
        parse_pattern(value)
        return value

    @model_validator(mode="after")
    def _compiles(self) -> RouteRule:
        _ = self.route
        return self

    @cached_property
    def route(self) -> Route:
        """The route itself, compiled once."""
        return make_route(self.from_, self.to, self.shard)


class WhereConditions(Strict):
    """A condition per side."""

    source: Condition | None = Field(default=None, description="Condition on the source.")
    target: Condition | None = Field(default=None, description="Condition on the target.")


class ImmutableBefore(Strict):
    """Which rows never change."""

    column: str = Field(min_length=1, description="Source column with the date of a row.")
    value: Moment = Field(description="ISO date and time; UTC unless it names an offset. Rows before it never change.")


class _NamesTables(Strict):
    """Which tables an entry applies to; a base of its own, as it is the first key."""

    table: Pattern = Field(description="Pattern of source tables.")


class TableOverride(Strict):
    """What is special about one table pair. Column names are the source's unless stated otherwise."""

    key: Many[str] | None = Field(
        default=None,
        min_length=1,
        description="Columns that identify a row, when the catalog's keys are not the right ones.",
    )
    ignore: Many[str] = Field(default_factory=tuple, description="Columns that are not compared.")
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="Columns with another name on the target, as `source_column: target_column`.",
    )
    where: Annotated[
        WhereConditions,
        BeforeValidator(
            lambda value: {"source": value, "target": value} if isinstance(value, str) else value,
            json_schema_input_type=str | WhereConditions,
        ),
    ] = Field(
        default_factory=WhereConditions,
        description="SQL condition that limits the comparison to some rows: one for both sides, or `source`"
        " and `target` apart.",
    )
    float_tolerance: Annotated[
        dict[str, Tolerance],
        BeforeValidator(
            lambda value: {"*": value} if isinstance(value, int | float) and not isinstance(value, bool) else value,
            json_schema_input_type=Tolerance | dict[str, Tolerance],
        ),
    ] = Field(
        default_factory=dict,
        description="Absolute difference up to which FLOAT and DOUBLE values count as equal: one number, or"
        ' `column: number` with `"*"` for all other columns. Default: exact.',
    )
    immutable_before: ImmutableBefore | None = Field(
        default=None, description="Rows before a date never change: verified once, not again."
    )

    @field_validator("key", "ignore")
    @classmethod
    def _once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value and (len(set(value)) < len(value) or "" in value):
            raise ValueError("a column is empty or named twice")
        return value

    @field_validator("rename")
    @classmethod
    def _one_to_one(cls, value: dict[str, str]) -> dict[str, str]:
        if len(set(value.values())) < len(value):
            raise ValueError("two columns are renamed to the same one")
        return value

    def tolerance(self, column: str) -> float | None:
        """Absolute tolerance of a source column, None for exact comparison."""
        return self.float_tolerance.get(column, self.float_tolerance.get("*"))

    def merged(self, later: TableOverride) -> TableOverride:
        """Return both in one.

        Of ``key``, ``where``, the overall ``float_tolerance`` and ``immutable_before`` the later one counts;
        ``ignore``, ``rename`` and the tolerances of columns add up, the later entry for the same column winning.
        """
        where = WhereConditions(
            source=later.where.source if later.where.source is not None else self.where.source,
            target=later.where.target if later.where.target is not None else self.where.target,
        )
        return TableOverride(
            key=later.key if later.key is not None else self.key,
            ignore=tuple(dict.fromkeys(self.ignore + later.ignore)),
            rename=self.rename | later.rename,
            where=where,
            float_tolerance=self.float_tolerance | later.float_tolerance,
            immutable_before=later.immutable_before or self.immutable_before,
        )


class OverrideRule(TableOverride, _NamesTables):
    """What is special about some tables."""
