"""Which expectations of Great Expectations may run on which columns, and who computes them: knowledge as a table.

Great Expectations computes sums, means, least and greatest values and comparisons with numbers through floats: beyond
2^53, or beyond 15 digits, two unlike amounts are one. So on exact numbers (DECIMAL, all integers, BIT, YEAR) these are
computed by migverify; what neither can compute exactly is refused by name, before anything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from migverify.model import ColumnDef
from migverify.sql.canonical import FAMILIES
from migverify.sql.expectations import NUMBERS


class How(StrEnum):
    """Who computes an expectation."""

    AGGREGATE = "aggregate"  # ours: sum, mean, least, greatest as exact decimals
    ROWS = "rows"  # ours: a condition on each row, with exact literals
    DISTINCT = "distinct"  # ours: distinct values beside a set of exact literals
    TYPE = "type"  # ours: the catalog's type
    QUERY = "query"  # ours: a query that must return no row
    GX = "great_expectations"
    REFUSED = "refused"


class Group(StrEnum):
    """What the type of a column means for arithmetic."""

    WIDE = "wide"  # DECIMAL and BIGINT: a float cannot hold them
    SMALL = "small"  # integers below 2^53, BIT and YEAR
    FLOAT = "float"
    TEMPORAL = "temporal"
    OTHER = "other"


def group_of(column: ColumnDef) -> Group:
    """Return the group of a column's type."""
    if column.data_type in ("decimal", "numeric", "bigint", "bit"):
        return Group.WIDE
    if column.data_type in NUMBERS:
        return Group.SMALL
    family = FAMILIES.get(column.data_type, "")
    if family == "float":
        return Group.FLOAT
    return Group.TEMPORAL if family in ("date", "datetime", "time") else Group.OTHER


@dataclass(frozen=True, slots=True)
class Known:
    """One type of expectation.

    ``columns`` names the arguments that hold column names. ``how`` says who computes it per group of columns,
    ``default`` for the others. ``alike``: all columns must be of one group, or the server compares them as DOUBLE.
    ``per_row``: it holds for all rows when it holds on each shard. ``arguments`` are those of ours. ``needs``: one of
    these must be given; Great Expectations itself lets an expectation without them pass.
    """

    columns: tuple[str, ...] = ()
    default: How = How.GX
    how: tuple[tuple[Group, How], ...] = ()
    alike: bool = False
    per_row: bool = False
    arguments: frozenset[str] = frozenset()
    needs: tuple[str, ...] = ()

    def of(self, groups: Sequence[Group]) -> How:
        """Return who computes it on columns of these groups; the strictest answer counts."""
        answers = {dict(self.how).get(group, self.default) for group in groups} or {self.default}
        if self.alike and len({_kin(group) for group in groups}) > 1:
            return How.REFUSED
        if How.REFUSED in answers or len(answers) > 1:
            return How.REFUSED
        return answers.pop()


def _kin(group: Group) -> str:
    return "exact" if group in (Group.WIDE, Group.SMALL) else group.value


_BOUNDS = frozenset({"min_value", "max_value", "strict_min", "strict_max"})
_EITHER = ("min_value", "max_value")
_COLUMN = ("column",)
_ADDED_UP = ((Group.WIDE, How.AGGREGATE), (Group.SMALL, How.AGGREGATE), (Group.FLOAT, How.GX))
_ORDERED = ((Group.WIDE, How.AGGREGATE), (Group.SMALL, How.AGGREGATE), (Group.TEMPORAL, How.AGGREGATE))
_BETWEEN = ((Group.WIDE, How.ROWS), (Group.SMALL, How.ROWS), (Group.TEMPORAL, How.ROWS))
_MEMBER = ((Group.WIDE, How.ROWS), (Group.SMALL, How.ROWS))
_NOT_WIDE = ((Group.WIDE, How.REFUSED),)


def _aggregate(how: tuple[tuple[Group, How], ...], default: How) -> Known:
    return Known(_COLUMN, default, how, arguments=_BOUNDS, needs=_EITHER)


def _distinct() -> Known:
    return Known(
        _COLUMN, How.DISTINCT, ((Group.FLOAT, How.GX),), arguments=frozenset({"value_set"}), needs=("value_set",)
    )


def _gx(*columns: str, needs: tuple[str, ...] = (), per_row: bool = False, alike: bool = False) -> Known:
    return Known(columns, per_row=per_row, alike=alike, needs=needs)


def _pattern(needs: str) -> Known:
    return _gx("column", needs=(needs,), per_row=True)


def _estimate(*needs: str) -> Known:
    return Known(_COLUMN, how=_NOT_WIDE, needs=needs)


def _lengths(needs: tuple[str, ...], *arguments: str) -> Known:
    # LENGTH(), which Great Expectations asks for, counts bytes on MySQL.
    return Known(_COLUMN, How.ROWS, per_row=True, arguments=frozenset({*needs, *arguments}), needs=needs)


TYPES: dict[str, Known] = {
    "expect_column_sum_to_be_between": _aggregate(_ADDED_UP, How.REFUSED),
    "expect_column_mean_to_be_between": _aggregate(_ADDED_UP, How.REFUSED),
    "expect_column_min_to_be_between": _aggregate(_ORDERED, How.GX),
    "expect_column_max_to_be_between": _aggregate(_ORDERED, How.GX),
    "expect_column_values_to_be_between": Known(
        _COLUMN, How.GX, _BETWEEN, per_row=True, arguments=_BOUNDS, needs=_EITHER
    ),
    "expect_column_values_to_be_in_set": Known(
        _COLUMN, How.GX, _MEMBER, per_row=True, arguments=frozenset({"value_set"}), needs=("value_set",)
    ),
    "expect_column_values_to_not_be_in_set": Known(
        _COLUMN, How.GX, _MEMBER, per_row=True, arguments=frozenset({"value_set"}), needs=("value_set",)
    ),
    "expect_column_distinct_values_to_be_in_set": _distinct(),
    "expect_column_distinct_values_to_contain_set": _distinct(),
    "expect_column_distinct_values_to_equal_set": _distinct(),
    "expect_column_value_lengths_to_be_between": _lengths(_EITHER, "strict_min", "strict_max"),
    "expect_column_value_lengths_to_equal": _lengths(("value",)),
    "expect_multicolumn_sum_to_equal": Known(
        ("column_list",),
        How.REFUSED,
        ((Group.WIDE, How.ROWS), (Group.SMALL, How.ROWS), (Group.FLOAT, How.GX)),
        per_row=True,
        arguments=frozenset({"sum_total", "ignore_row_if"}),
        needs=("sum_total",),
    ),
    "expect_column_values_to_be_of_type": Known(_COLUMN, How.TYPE, per_row=True, arguments=frozenset({"type_"})),
    "expect_column_values_to_be_in_type_list": Known(
        _COLUMN, How.TYPE, per_row=True, arguments=frozenset({"type_list"})
    ),
    "expect_column_median_to_be_between": _estimate("min_value", "max_value"),
    "expect_column_quantile_values_to_be_between": _estimate("quantile_ranges"),
    "expect_column_stdev_to_be_between": _estimate("min_value", "max_value"),
    "expect_column_value_z_scores_to_be_less_than": _estimate("threshold"),
    "expect_column_kl_divergence_to_be_less_than": _estimate("threshold"),
    "expect_column_most_common_value_to_be_in_set": _estimate("value_set"),
    "expect_column_values_to_not_be_null": _gx("column", per_row=True),
    "expect_column_values_to_be_null": _gx("column", per_row=True),
    "expect_column_values_to_match_regex": _pattern("regex"),
    "expect_column_values_to_match_regex_list": _pattern("regex_list"),
    "expect_column_values_to_not_match_regex": _pattern("regex"),
    "expect_column_values_to_not_match_regex_list": _pattern("regex_list"),
    "expect_column_values_to_match_like_pattern": _pattern("like_pattern"),
    "expect_column_values_to_match_like_pattern_list": _pattern("like_pattern_list"),
    "expect_column_values_to_not_match_like_pattern": _pattern("like_pattern"),
    "expect_column_values_to_not_match_like_pattern_list": _pattern("like_pattern_list"),
    "expect_column_values_to_be_unique": _gx("column"),
    "expect_column_unique_value_count_to_be_between": _gx("column", needs=_EITHER),
    "expect_column_proportion_of_unique_values_to_be_between": _gx("column", needs=_EITHER),
    "expect_column_proportion_of_non_null_values_to_be_between": _gx("column", needs=_EITHER),
    # Great Expectations lists none of these rows on MySQL.
    "expect_compound_columns_to_be_unique": Known(("column_list",), How.ROWS, arguments=frozenset({"ignore_row_if"})),
    "expect_column_pair_values_to_be_equal": _gx("column_A", "column_B", per_row=True, alike=True),
    "expect_column_pair_values_a_to_be_greater_than_b": _gx("column_A", "column_B", per_row=True, alike=True),
    "expect_column_pair_values_to_be_in_set": Known(
        ("column_A", "column_B"), how=_NOT_WIDE, per_row=True, needs=("value_pairs_set",)
    ),
    "expect_select_column_values_to_be_unique_within_record": _gx("column_list", per_row=True, alike=True),
    "expect_column_to_exist": _gx(needs=("column",), per_row=True),
    "expect_table_column_count_to_be_between": _gx(needs=_EITHER, per_row=True),
    "expect_table_column_count_to_equal": _gx(needs=("value",), per_row=True),
    "expect_table_columns_to_match_ordered_list": _gx(needs=("column_list",), per_row=True),
    "expect_table_columns_to_match_set": _gx(needs=("column_set",), per_row=True),
    "expect_table_row_count_to_be_between": _gx(needs=_EITHER),
    "expect_table_row_count_to_equal": _gx(needs=("value",)),
    "unexpected_rows_expectation": Known(default=How.QUERY, arguments=frozenset({"unexpected_rows_query"})),
}
"""All that may run. A type that is not here is refused: nobody has looked at how it computes."""
