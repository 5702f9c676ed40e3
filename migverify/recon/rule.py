"""A rule as it is written and judged: what all kinds share. Each kind is one model, in ``migverify.recon.kinds``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar, TypeAlias

from pydantic import Field, model_validator

from migverify.config.yaml_text import Steps
from migverify.errors import UsageError
from migverify.recon.build import Built, RuleInputs
from migverify.recon.describe import Describe
from migverify.recon.exceptions import KnownException
from migverify.recon.fields import Duration, Money, Names, PlacedPart, RuleName, SeverityName, WindowPart, duration_text
from migverify.recon.judging import JudgeInputs
from migverify.recon.model import (
    Dataset,
    ParameterValue,
    RuleFinding,
    Severity,
    Window,
)
from migverify.recon.parameters import WINDOW_PARAMETERS, RuleParameter
from migverify.recon.relation import Pairing
from migverify.recon.sides import RuleRefusal, open_side, refuse_same_table

Problems: TypeAlias = Iterator[tuple[Steps, str, str]]
"""Where (below the rule or dataset), what, and what to do."""

_SHARED = frozenset(
    {"name", "kind", "source", "target", "description", "severity", "owner", "money", "window", "settle", "rereads",
     "delay", "key", "compare", "tolerance"}
)  # fmt: skip


class Rule(PlacedPart):
    """What every kind has."""

    asks_all_rows: ClassVar[bool] = False
    """It has windows only where the rule itself says so, not by the defaults of its file."""
    needs_key: ClassVar[bool] = False
    sums_groups: ClassVar[bool] = False
    """Its findings are of groups whose sums change with the window."""
    rereads_keys: ClassVar[bool] = False
    """A finding can be read again by its key."""
    crosses_windows: ClassVar[bool] = False
    """A row's counterpart may be in a neighbor window."""
    accepts_no_rows: ClassVar[bool] = False
    """No rows are an answer."""
    each_read_proves: ClassVar[bool] = False
    """What every read finds is a finding, also where its values change from read to read."""

    name: RuleName = Field(description="Name of the rule, in reports, metrics and exceptions.")
    kind: str = Field(description="What the rule asks; see the kinds below.")
    source: str = Field(min_length=1, description="The dataset that is looked at.")
    description: str = Field(default="", description="One sentence for reports.")
    severity: SeverityName = Field(
        default=Severity.CRITICAL,
        description="`critical`, `major` or `warning`: a warning is reported and makes no mismatch."
        " Else that of `defaults`.",
    )
    owner: str = Field(default="", min_length=1, description="Who answers for findings. Else that of `defaults`.")
    money: Money | None = Field(default=None, description="What is at risk, summed exactly per currency.")
    window: WindowPart | None = Field(
        default=None,
        description="Windows of time: a width such as `1h`, or `every`, `start`, `immutable`; `none` for no windows.",
    )
    settle: Duration | None = Field(
        default=None,
        description="How long the sides may take to agree. Needed where two datasets are compared and one is live.",
    )
    rereads: int = Field(
        default=2,
        ge=0,
        le=100,
        description="How many more times a difference is read before it is a finding. Else that of `defaults`.",
    )
    delay: Duration = Field(default=1.0, description="Time between these reads. Else that of `defaults`.")
    key: Names = Field(default=(), description="Columns that identify a row. Default: those of the dataset.")

    @model_validator(mode="before")
    @classmethod
    def _blank_is_default(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        optional = {name for name, one in cls.model_fields.items() if not one.is_required()}
        return {name: value for name, value in data.items() if value is not None or name not in optional}

    @property
    def datasets(self) -> tuple[str, ...]:
        """Names of the datasets: the source, and the target of a kind that has one."""
        return tuple(name for name in (self.source, getattr(self, "target", None)) if name is not None)

    @property
    def options(self) -> dict[str, Any]:
        """What only this kind has."""
        return {name: getattr(self, name) for name in type(self).model_fields if name not in _SHARED}

    @property
    def refusal(self) -> RuleRefusal:
        """What makes the errors of this rule."""
        return RuleRefusal(self.place, self.name)

    # What a kind says of itself: defaults that suit a kind over the rows of one dataset

    @property
    def cut(self) -> tuple[bool, bool]:
        """Whether windows cut the source and the target."""
        return True, True

    @property
    def money_columns(self) -> Money | None:
        """What is money: as stated, or the summed amount where its currency is a column of the rule."""
        return self.money

    @property
    def finding_limit(self) -> int | None:
        """How many findings are kept; None for all."""
        return None

    @property
    def key_is_row(self) -> bool:
        """Whether the key of a finding is made of the values of a row, as the rule has no key of its own."""
        return False

    def key_sides(self, sides: Sequence[Dataset]) -> Sequence[Dataset]:
        """Return the datasets whose key is the rule's key."""
        return sides

    def with_key(self, sides: Sequence[Dataset]) -> Rule:
        """Return the rule with its key filled in from its datasets."""
        key = self.key or next((side.key for side in self.key_sides(sides) if side.key), ())
        return self.model_copy(update={"key": key})

    def rows_rule(self) -> Rule:
        """Return the rule of the rows behind a group; any other rule is of rows already."""
        return self

    def problems(self, sides: Sequence[Dataset]) -> Problems:
        """Yield what is wrong with the keys of this kind, before any server is asked."""
        return iter(())

    def sentence(self, source: str, target: str) -> str:
        """Return what the rule asks of its datasets."""
        raise NotImplementedError

    def relations(self, inputs: RuleInputs) -> Built:
        """Return what is read.

        Raises ConfigError: the rule does not fit its datasets.
        """
        raise NotImplementedError

    def unmet(self, pairing: Pairing, finding: RuleFinding) -> Iterable[str]:
        """Return what a finding is against, where a rule holds several conditions: a reason each, with its count."""
        return ()

    def judge(self, inputs: JudgeInputs, pairing: Pairing) -> RuleFinding | None:
        """Return what is wrong with a key; None where nothing is.

        It sees one pairing and remembers nothing: findings do not depend on the order of the pairings, on batches, or
        on which engine joined them.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A rules file, or a folder of them. ``digest`` is a hash of everything that decides an outcome."""

    path: str
    rules: tuple[Rule, ...]
    datasets: dict[str, Dataset]
    parameters: dict[str, RuleParameter]
    exceptions: tuple[KnownException, ...]
    digest: str

    def sides(self, rule: Rule) -> list[Dataset]:
        """Return the datasets of a rule that are there, the source first."""
        return [self.datasets[name] for name in rule.datasets if name in self.datasets]


def rule_text(rule: Rule, rules: RuleSet) -> str:
    """Return in a line what a rule asks, of which datasets, and under which conditions."""
    source, target = ([side.described for side in rules.sides(rule)] + [""])[:2]
    parts = [f"{rule.name}: {rule.sentence(source, target)}"]
    tolerance: dict[str, Decimal] = getattr(rule, "tolerance", {})
    if tolerance:
        parts.append("tolerance " + ", ".join(f"{name} {value:f}" for name, value in tolerance.items()))
    if rule.money is not None:
        parts.append(f"money {rule.money.column} in {rule.money.currency}")
    if rule.window is not None:
        parts.append(f"windows of {duration_text(rule.window.every)}")
    if rule.settle is not None and len(rule.datasets) > 1:
        parts.append(f"settle {duration_text(rule.settle)}")
    parts.append(f"{rule.rereads} re-reads" if rule.rereads != 1 else "1 re-read")
    parts.append(rule.severity + (f", owner {rule.owner}" if rule.owner else ""))
    return "; ".join(parts)


def build(
    rule: Rule, rules: RuleSet, window: Window | None, describe: Describe, values: Mapping[str, ParameterValue]
) -> Built:
    """Build the relations of a rule.

    ``describe``: Gives the columns of a part: ``migverify.recon.describe.Describer``. ``values``: All parameters, see
    ``values_for``.

    Raises ConfigError: the rule does not fit its datasets: an unknown column, keys of two types, columns without a
    common text; names file, line and rule.
    """
    refusal = rule.refusal
    for name in rule.datasets:
        if name not in rules.datasets:
            raise refusal.error(f"there is no dataset {name}", f"Known: {', '.join(rules.datasets)}.")
    sides = [
        open_side(rules.datasets[name], refusal, describe, values, window if cut else None)
        for name, cut in zip(rule.datasets, rule.cut, strict=False)
    ]
    if len(sides) > 1:
        refuse_same_table(sides[0], sides[1], refusal)
    return rule.relations(RuleInputs(sides[0], sides[1] if len(sides) > 1 else None, refusal, rule.key, rule.money))


def judging(rule: Rule, built: Built, now: float, *, show: bool, hashed_keys: bool = False) -> JudgeInputs:
    """Return what a rule judges pairings of its relations with.

    ``now``: Unix time of the judgment, for what must not be older than a limit. ``show``: Values may be in messages;
    keys always are, but for ``hashed_keys``.
    """
    tolerances: Mapping[str, Decimal] = getattr(rule, "tolerance", {})
    moment = datetime(1970, 1, 1) + timedelta(seconds=now)
    source, target = built.source, built.target
    return JudgeInputs(
        rule.name, source, target, built.times, rule.money_columns, tolerances, moment, show, hashed_keys
    )


def values_for(
    rules: RuleSet, given: Mapping[str, ParameterValue], window: Window | None = None
) -> dict[str, ParameterValue]:
    """Return all values that SQL needs: defaults, what was given, and the bounds of the window.

    Raises UsageError: a parameter without a default was not given.
    """
    values: dict[str, ParameterValue] = {}
    for name, parameter in rules.parameters.items():
        value = given.get(name, parameter.value)
        if value is None:
            raise UsageError(
                f"{parameter.place}: the parameter {name} has no default and was not given",
                hint=f"Give it: --param {name}=VALUE ({parameter.type}).",
            )
        values[name] = value
    if window is not None:
        values |= dict(zip(WINDOW_PARAMETERS, (window.start, window.end), strict=True))
    return values
