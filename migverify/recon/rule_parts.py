"""What a rule of each kind holds in a rules file, as pydantic models; part of ``document``.

The fields of a kind that its base does not have become ``Rule.options`` under the same names, as they are.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from migverify.config.fields import Many, Moment, Strict
from migverify.recon.fields import Duration, Measures, Names, RuleName, ScalarText, Share, Tolerances


class WindowPart(Strict):
    """How time is cut."""

    every: Duration = Field(description="Width of a window: whole seconds, for example `5m`, `1h`, `1d`.")
    start: Moment | None = Field(default=None, description="Where the first window begins; UTC unless it says so.")
    immutable: Duration | None = Field(
        default=None, description="A window that matched is not read again when its end is older than this."
    )


_WINDOW = BeforeValidator(
    lambda value: {"every": "0" if value == "none" else value} if isinstance(value, str) else value,
    json_schema_input_type=str | WindowPart,
)
Window = Annotated[WindowPart, _WINDOW]
Severity = Literal["critical", "major", "warning"]


class MoneyPart(Strict):
    """Which column is money."""

    column: str = Field(min_length=1, description="Column of the amount.")
    currency: str = Field(min_length=1, description="Column of its currency, or a constant in quotes: `\"'JPY'\"`.")


class RulePart(Strict):
    """What every kind has."""

    name: RuleName = Field(description="Name of the rule, in reports, metrics and exceptions.")
    kind: str = Field(description="What the rule asks; see the kinds below.")
    source: str = Field(min_length=1, description="The dataset that is looked at.")
    description: str = Field(default="", description="One sentence for reports.")
    severity: Severity | None = Field(
        default=None, description="`critical`, `major` or `warning`: a warning is reported and makes no mismatch."
    )
    owner: str | None = Field(default=None, min_length=1, description="Who answers for findings.")
    money: MoneyPart | None = Field(default=None, description="What is at risk, summed exactly per currency.")
    window: Window | None = Field(
        default=None,
        description="Windows of time: a width such as `1h`, or `every`, `start`, `immutable`; `none` for no windows.",
    )
    settle: Duration | None = Field(
        default=None,
        description="How long the sides may take to agree. Needed where two datasets are compared and one is live.",
    )
    rereads: int | None = Field(
        default=None, ge=0, le=100, description="How many more times a difference is read before it is a finding."
    )
    delay: Duration | None = Field(default=None, description="Time between these reads.")
    key: Names | None = Field(default=None, description="Columns that identify a row. Default: those of the dataset.")


_TARGET = Field(min_length=1, description="The dataset that `source` is compared with.")
_COMPARE = Field(default=None, description="Columns that are compared. Default: all that both sides have.")
_TOLERANCE: Any = Field(
    default_factory=dict, description="Per column or measure, the largest difference that counts as equal; exact."
)
_GROUPS = Field(description="Columns of a group.")
_NO_GROUPS = Field(default=None, description="Columns of a group. Default: all rows are one.")
_CURRENCY = Field(default=None, min_length=1, description="Column of the currency; amounts are summed for each.")


class SameRowsRule(RulePart):
    """Every key is on both sides, with equal values."""

    kind: Literal["same_rows"] = Field(description="What the rule asks; see the kinds below.")
    target: str = _TARGET
    compare: Names | None = _COMPARE
    tolerance: Tolerances = _TOLERANCE
    duplicates: Literal["allow", "report"] = Field(
        default="report", description="Whether a key that a side holds more than once is a finding."
    )


class SameGroupsRule(RulePart):
    """Every group has equal aggregates on both sides."""

    kind: Literal["same_groups"] = Field(description="What the rule asks; see the kinds below.")
    target: str = _TARGET
    groups: Names = _GROUPS
    measures: Measures = Field(
        min_length=1, description="`count`, `count(x)`, `sum(x)`, `min(x)`, `max(x)`, `checksum(a, b)`."
    )
    compare: Names | None = Field(default=None, description="Columns compared in rows of unlike groups.")
    tolerance: Tolerances = _TOLERANCE
    drill: bool | None = Field(
        default=None, description="Whether rows of unlike groups are compared by key. Default: where there is a key."
    )


class ZeroSumRule(RulePart):
    """The amounts of each group sum to zero."""

    kind: Literal["zero_sum"] = Field(description="What the rule asks; see the kinds below.")
    groups: Names = _GROUPS
    amount: str = Field(min_length=1, description="Column that is summed.")
    currency: str | None = _CURRENCY
    tolerance: Tolerances = _TOLERANCE


class BalanceRule(RulePart):
    """Each balance is the sum of its entries."""

    kind: Literal["balance"] = Field(description="What the rule asks; see the kinds below.")
    target: str = Field(min_length=1, description="The dataset of the entries.")
    balance: str = Field(min_length=1, description="Column of the balance.")
    entries_key: Names = Field(description="Columns of an entry that name its balance, in the order of `key`.")
    amount: str = Field(min_length=1, description="Column of an entry that is summed.")
    currency: str | None = _CURRENCY
    tolerance: Tolerances = _TOLERANCE


class TransitionsRule(RulePart):
    """Every change of state is allowed."""

    kind: Literal["transitions"] = Field(description="What the rule asks; see the kinds below.")
    column: str = Field(min_length=1, description="Column of the state.")
    allowed: dict[str, Many[ScalarText]] = Field(
        min_length=1, description="From each state, the states that may follow."
    )
    initial: Annotated[Many[ScalarText] | None, Field(min_length=1)] = Field(
        default=None, description="States in which a row may begin. Default: any."
    )
    final: Annotated[Many[ScalarText] | None, Field(min_length=1)] = Field(
        default=None, description="States that nothing may follow."
    )
    order: str | None = Field(
        default=None, min_length=1, description="Column by which the rows of a history table follow each other."
    )


class OrphansRule(RulePart):
    """Every child has its parent."""

    kind: Literal["orphans"] = Field(description="What the rule asks; see the kinds below.")
    target: str = Field(min_length=1, description="The dataset of the children.")
    reference: Names = Field(description="Columns of a child that name its parent, in the order of `key`.")
    both: bool = Field(default=False, description="true: a parent without a child is a finding too.")
    optional: bool = Field(default=False, description="true: a child without a reference (NULL) is fine.")


class UniqueRule(RulePart):
    """A key occurs once, over all shards."""

    kind: Literal["unique"] = Field(description="What the rule asks; see the kinds below.")
    ignore_null: bool = Field(default=True, description="true: keys with a NULL may repeat, as in a unique index.")


class SequenceRule(RulePart):
    """Numbers rise without a gap."""

    kind: Literal["sequence"] = Field(description="What the rule asks; see the kinds below.")
    column: str = Field(min_length=1, description="Column of the number.")
    groups: Names | None = _NO_GROUPS
    gaps: Literal["report", "allow"] = Field(default="report", description="Whether a gap is a finding.")
    start: int | None = Field(default=None, description="The number that each group has to begin with.")
    increasing: str | None = Field(
        default=None, min_length=1, description="Column (a time) that may not fall while the number rises."
    )


class FreshnessRule(RulePart):
    """The newest row is not too old."""

    kind: Literal["freshness"] = Field(description="What the rule asks; see the kinds below.")
    limit: Duration = Field(description="How old the newest row may be, as a duration.")
    column: str | None = Field(
        default=None, min_length=1, description="Column of the time. Default: that of the dataset."
    )
    groups: Names | None = _NO_GROUPS


class CoverageRule(RulePart):
    """Enough rows hold a value, or a reference that exists."""

    kind: Literal["coverage"] = Field(description="What the rule asks; see the kinds below.")
    columns: dict[str, Share] = Field(
        default_factory=dict, description="Per column, the least share of rows that are not NULL, from 0 to 1."
    )
    groups: Names | None = _NO_GROUPS
    target: str | None = Field(default=None, min_length=1, description="The dataset that `reference` looks into.")
    reference: Names | None = Field(default=None, description="Columns of `source` that name a key of `target`.")
    share: Share | None = Field(default=None, description="Least share of references that exist, from 0 to 1.")

    @model_validator(mode="after")
    def _something(self) -> CoverageRule:
        if not self.columns and self.target is None:
            raise ValueError("nothing is asked: give `columns`, or `target` and `reference`")
        if (self.target is None) != (self.reference is None):
            raise ValueError("`target` and `reference` belong together")
        if self.share is not None and self.target is None:
            raise ValueError("`share` needs `target` and `reference`")
        return self


class NoRowsRule(RulePart):
    """The dataset is empty."""

    kind: Literal["no_rows"] = Field(description="What the rule asks; see the kinds below.")
    show: Names | None = Field(default=None, description="Columns of a row that a finding shows. Default: all.")
    limit: int = Field(default=1000, ge=1, description="How many rows are kept as findings; all are counted.")


class ExpectationsRule(RulePart):
    """A Great Expectations suite holds."""

    kind: Literal["expectations"] = Field(description="What the rule asks; see the kinds below.")
    suite: str | list[dict[str, Any]] = Field(
        description="Path of a suite (JSON) from the folder of this file, or a list of expectations."
    )
    result_format: Literal["BOOLEAN_ONLY", "BASIC", "SUMMARY", "COMPLETE"] | None = Field(
        default=None, description="How much of each result is kept. Default: `SUMMARY`."
    )
    limit: int | None = Field(default=None, ge=1, description="How many unexpected rows of each are kept.")


AnyRule = Annotated[
    SameRowsRule | SameGroupsRule | ZeroSumRule | BalanceRule | TransitionsRule | OrphansRule | UniqueRule
    | SequenceRule | FreshnessRule | CoverageRule | NoRowsRule | ExpectationsRule,
    Field(discriminator="kind"),
]  # fmt: skip
