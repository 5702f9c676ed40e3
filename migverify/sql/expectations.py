"""SQL of suites of expectations: exact numbers are compared by the server, between a column and an exact literal.

A batch is what follows FROM: the rows of a dataset on one endpoint. A bound number never becomes a DOUBLE, save beside
a column that is one. ``kind`` is an expectation without ``expect_``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

from migverify.model import ColumnDef
from migverify.sql.quoting import decimal_literal, quote_name, quote_text

_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit")
UNIQUE = ("column_values_to_be_unique", "compound_columns_to_be_unique")
MARK, FOUND = "migverify mark", "migverify found"
"""The columns of ``suite_sql`` besides those of the batch."""

# --- rows --------------------------------------------------------------------------------------------------


def batch_of(selects: Sequence[str], copies: Iterable[Sequence[ColumnDef]] = ()) -> str:
    """Return what follows FROM for the rows of some SELECTs on one endpoint.

    ``copies``: Columns of which a row knows how many rows have the same values, NULLs being the same.
    """
    # A SELECT may end in a comment: the parenthesis must not be part of it.
    parts = [f"SELECT * FROM ({select.strip().rstrip(';')}\n) AS `part{n}`" for n, select in enumerate(selects)]
    body = selects[0].strip().rstrip(";") if len(selects) == 1 else "\nUNION ALL\n".join(parts)
    counts = dict.fromkeys(
        f", COUNT(*) OVER (PARTITION BY {_names(columns)}) AS {_copies(columns)}" for columns in copies
    )
    batch = f"({body}\n) AS `batch`"
    return f"(SELECT *{''.join(counts)} FROM {batch}) AS `with copies`" if counts else batch


def _names(columns: Sequence[ColumnDef]) -> str:
    return ", ".join(quote_name(column.name) for column in columns)


def _copies(columns: Sequence[ColumnDef]) -> str:
    return quote_name(f"copies of {', '.join(column.name for column in columns)}")


def considered(kind: str, columns: Sequence[ColumnDef], arguments: Mapping[str, Any]) -> str:
    """Return the condition of the rows that an expectation considers; the others are skipped."""
    ignored = arguments.get("ignore_row_if")
    if kind in ("column_values_to_be_null", "column_values_to_not_be_null") or ignored in ("never", "neither"):
        return "TRUE"
    word = " AND " if ignored in ("any_value_is_missing", "either_value_is_missing") else " OR "
    return "(" + word.join(f"{quote_name(column.name)} IS NOT NULL" for column in columns) + ")"


def bad(kind: str, columns: Sequence[ColumnDef], arguments: Mapping[str, Any]) -> str:
    """Return the condition of the rows that are considered and do not hold; it is never NULL."""
    return f"({considered(kind, columns, arguments)} AND ({_good(kind, columns, arguments)}) IS NOT TRUE)"


def _good(kind: str, columns: Sequence[ColumnDef], arguments: Mapping[str, Any]) -> str:
    values = [value_of(column) for column in columns]
    if kind in UNIQUE:
        return f"{_copies(columns)} = 1"
    if kind.endswith("be_null"):
        return f"{quote_name(columns[0].name)} IS {'NOT ' if '_not_' in kind else ''}NULL"
    if kind.startswith("column_value_lengths"):
        length = "LENGTH" if columns[0].data_type in _BINARY else "CHAR_LENGTH"
        return inside(f"{length}({quote_name(columns[0].name)})", arguments)
    if kind == "column_values_to_be_between":
        return inside(values[0], arguments)
    if kind == "multicolumn_sum_to_equal":
        return f"{' + '.join(values)} = {literal(arguments['sum_total'])}"
    if kind == "column_pair_values_to_be_equal":
        return f"{values[0]} = {values[1]}"
    if kind == "column_pair_values_a_to_be_greater_than_b":
        return f"COALESCE({values[0]} {'>=' if arguments.get('or_equal') else '>'} {values[1]}, TRUE)"
    if "value_set" in arguments:
        return f"{'NOT ' if '_not_' in kind else ''}({one_of(columns[0], arguments['value_set'])})"
    word = "LIKE" if "like" in kind else "REGEXP"
    name = "like_pattern" if "like" in kind else "regex"
    return f"{'NOT ' if '_not_' in kind else ''}({values[0]} {word} {quote_text(arguments[name])})"


def literal(value: Decimal | str) -> str:
    """Return a number or a text as a literal."""
    return decimal_literal(value) if isinstance(value, Decimal) else quote_text(value)


def value_of(column: ColumnDef) -> str:
    """Return the expression of a column's value: numbers without padding, BIT and YEAR as numbers."""
    name = quote_name(column.name)
    as_number = column.data_type in ("bit", "year") or "zerofill" in column.column_type
    return f"({name}+0)" if as_number else name


def one_of(column: ColumnDef, values: Sequence[Decimal | str]) -> str:
    """Return the condition that a column's value is one of some values."""
    return f"{value_of(column)} IN ({', '.join(map(literal, values))})"


def inside(value: str, arguments: Mapping[str, Any], times: str = "") -> str:
    """Return the condition that a value is inside of the bounds that are given, or equals ``value``."""
    bounds = (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<"))
    parts = [
        f"{value} {sign if arguments.get(strict) else sign + '='} {literal(arguments[name])}{times}"
        for name, strict, sign in bounds if arguments.get(name) is not None
    ]  # fmt: skip
    return " AND ".join(parts) or f"{value} = {literal(arguments['value'])}"


# --- numbers of all rows -----------------------------------------------------------------------------------


class AllRowsSql(NamedTuple):
    """Expressions of what is observed over all rows, as text, and of whether the expectation holds: else 0 or NULL."""

    observed: str
    holds: str


def of_constant(observed: str, *, holds: bool) -> AllRowsSql:
    """Return an answer that is known before a row is read."""
    return AllRowsSql(quote_text(observed), "TRUE" if holds else "FALSE")


def of_share(kind: str, columns: Sequence[ColumnDef], arguments: Mapping[str, Any], mostly: Decimal) -> AllRowsSql:
    """Return how many considered rows do not hold, and whether the share of those that do is at least ``mostly``.

    Of no rows, all hold, as in Great Expectations.
    """
    conditions = considered(kind, columns, arguments), bad(kind, columns, arguments)
    rows, less = (f"COALESCE(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END), 0)" for condition in conditions)
    # Multiplied, so that no division rounds.
    return AllRowsSql(f"CONCAT({less}, ' of ', {rows})", f"{rows} - {less} >= {literal(mostly)} * {rows}")


def of_all_rows(kind: str, column: ColumnDef | None, arguments: Mapping[str, Any]) -> AllRowsSql:
    """Return the number that an expectation is about; a mean is compared exactly, as a sum with a multiple."""
    if column is not None and "value_set" in arguments:
        return _of_set(column, arguments["value_set"], equal="equal_set" in kind)
    value = value_of(column) if column is not None else "*"
    divided, divisor = {
        "row_count": ("COUNT(*)", ""), "unique_value_count": (f"COUNT(DISTINCT {value})", ""),
        "sum": (f"SUM({value})", ""), "min": (f"MIN({value})", ""), "max": (f"MAX({value})", ""),
        "mean": (f"SUM({value})", f"COUNT({value})"),
        "proportion_of_unique_values": (f"COUNT(DISTINCT {value})", f"GREATEST(COUNT({value}), 1)"),
        "proportion_of_non_null_values": (f"COUNT({value})", "GREATEST(COUNT(*), 1)"),
    }[re.sub(r"^(column|table)_|_to_(be_between|equal)$", "", kind)]  # fmt: skip
    observed = f"CONCAT({divided}, ' / ', {divisor})" if divisor else f"CAST({divided} AS CHAR)"
    return AllRowsSql(observed, inside(divided, arguments, f" * {divisor}" if divisor else ""))


def _of_set(column: ColumnDef, values: Sequence[Decimal | str], *, equal: bool) -> AllRowsSql:
    # Value by value: which texts are equal is the collation's to say.
    absent = [f"CASE WHEN SUM({one_of(column, [value])}) > 0 THEN NULL ELSE {quote_text(f'no {value}')} END"
              for value in values]  # fmt: skip
    outside = f"SUM(NOT {one_of(column, values)})"
    absent += [f"CASE WHEN {outside} > 0 THEN CONCAT({outside}, ' rows outside the set') END"] if equal else []
    observed = f"CONCAT_WS(', ', {', '.join(absent)})"
    return AllRowsSql(observed, f"{observed} = ''")


# --- a suite -----------------------------------------------------------------------------------------------


def suite_sql(batch: str, columns: Sequence[str], broken: Mapping[int, str], answers: Mapping[str, AllRowsSql]) -> str:
    """Return what follows FROM: a row per row that breaks an expectation, and per answer that does not hold.

    ``broken``: Conditions of rows by number: all rows are read once for them. ``answers``: By mark; once for all of
    them too. A row of the batch has its ``columns``, and in ``FOUND`` the numbers that it breaks (``1,3``); an answer
    has NULLs, its ``MARK``, and in ``FOUND`` what was observed.
    """
    names = [quote_name(name) for name in columns]
    parts = []
    if broken:
        numbers = ", ".join(f"IF({condition}, {number}, NULL)" for number, condition in broken.items())
        parts.append(f"SELECT {', '.join(names)}, NULL AS {quote_name(MARK)}, CONCAT_WS(',', {numbers}) AS"
                     f" {quote_name(FOUND)} FROM {batch} WHERE {' OR '.join(broken.values())}")  # fmt: skip
    if answers:
        asked = ", ".join(
            f"{answer.observed} AS o{n}, {answer.holds} AS h{n}" for n, answer in enumerate(answers.values())
        )
        marks = " UNION ALL ".join(f"SELECT {n} AS n, {quote_text(mark)} AS mark" for n, mark in enumerate(answers))
        observed, holds = (" ".join(f"WHEN {n} THEN {x}{n}" for n in range(len(answers))) for x in "oh")
        nulls = ", ".join(f"NULL AS {name}" for name in names)
        parts.append(f"SELECT {nulls}, mark AS {quote_name(MARK)}, CASE n {observed} END AS {quote_name(FOUND)} FROM"
                     f" (SELECT COUNT(*) AS c, {asked} FROM {batch}) AS s, ({marks}) AS m"
                     f" WHERE (CASE n {holds} END) IS NOT TRUE")  # fmt: skip
    return f"({' UNION ALL '.join(parts)}) AS suite"


def counts(batch: str, answers: int) -> str:
    """Return the statement of how many rows are looked at, and how many keys with those of ``answers``."""
    return f"SELECT COUNT(*), COUNT(*) + {answers} FROM {batch}"
