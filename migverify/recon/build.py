"""A rule and a window -> relations: what an engine reads and joins, and what the kind then judges.

Each kind says which columns are the key, which are values and how values of one key are combined. Value columns have
the names that the kinds look for: a column's own, or a measure's (``sum(amount)``). Columns that are only read along
(money, currency, the time of a row) come last and make no rows unlike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from migverify.recon.describe import Describe
from migverify.recon.model import Dataset, Kind, ParameterValue, Rule, RuleSet, Window
from migverify.recon.shape import Built, Check, RuleInputs, Shown
from migverify.recon.shapes_groups import balance, coverage, drilled, freshness, same_groups, zero_sum
from migverify.recon.shapes_order import sequence, transitions
from migverify.recon.shapes_rows import no_rows, orphans, same_rows, unique
from migverify.recon.sides import Refusal, open_side
from migverify.recon.volume import VOLUME, volume

__all__ = ["Built", "Check", "Shown", "build", "drilled"]


def build(
    rule: Rule,
    rules: RuleSet,
    window: Window | None,
    describe: Describe,
    values: Mapping[str, ParameterValue],
) -> Built:
    """Build the relations of a rule.

    Parameters
    ----------
    describe
        Tells the columns of a part: ``migverify.recon.describe.Describer``.
    values
        All parameters, see ``migverify.recon.parameters.values_for``.

    Raises
    ------
    ConfigError
        the rule does not fit its datasets: an unknown column, keys of unlike types, columns without a common text;
        names file, line and rule.
    """
    refusal = Refusal(rule)
    source = open_side(_dataset(rules, rule.source, refusal), rule, describe, values, window if rule.cut[0] else None)
    target = None
    if rule.target is not None:
        cut = window if rule.cut[1] else None
        target = open_side(_dataset(rules, rule.target, refusal), rule, describe, values, cut)
    scene = RuleInputs(rule, source, target, refusal, window)
    return volume(scene) if rule.options.get(VOLUME) else _KINDS[rule.kind](scene)


def _dataset(rules: RuleSet, name: str, refusal: Refusal) -> Dataset:
    found = rules.datasets.get(name)
    if found is None:
        raise refusal.error(f"there is no dataset {name}", f"Known: {', '.join(rules.datasets)}.")
    return found


_KINDS: dict[Kind, Callable[[RuleInputs], Built]] = {
    Kind.SAME_ROWS: same_rows, Kind.SAME_GROUPS: same_groups, Kind.ZERO_SUM: zero_sum, Kind.BALANCE: balance,
    Kind.TRANSITIONS: transitions, Kind.ORPHANS: orphans, Kind.UNIQUE: unique, Kind.SEQUENCE: sequence,
    Kind.FRESHNESS: freshness, Kind.COVERAGE: coverage, Kind.NO_ROWS: no_rows, Kind.EXPECTATIONS: no_rows,
}  # fmt: skip
