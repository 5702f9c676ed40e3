"""SQL of suites of expectations: exact numbers are compared by the server, between a column and an exact literal.

A batch is what follows FROM. A bound number never becomes a DOUBLE, save beside a column that is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from migverify.model import ColumnDef
from migverify.sql.quoting import decimal_literal, quote_name, quote_text

_BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "bit")


def batch_of(selects: Sequence[str]) -> str:
    """Return what follows FROM for the rows of some SELECTs on one endpoint."""
    # A SELECT may end in a comment: the parenthesis must not be part of it.
    parts = [f"SELECT * FROM ({select.strip().rstrip(';')}\n) AS `part{n}`" for n, select in enumerate(selects)]
    body = selects[0].strip().rstrip(";") if len(selects) == 1 else "\nUNION ALL\n".join(parts)
    return f"({body}\n) AS `batch`"


def literal(value: Decimal | str) -> str:
    """Return a number or a text as a literal."""
    return decimal_literal(value) if isinstance(value, Decimal) else quote_text(value)


def is_binary(column: ColumnDef) -> bool:
    """Whether values of a column are bytes."""
    return column.data_type in _BINARY


def value_of(column: ColumnDef) -> str:
    """Return the expression of a column's value: numbers without padding, BIT and YEAR as numbers."""
    name = quote_name(column.name)
    as_number = column.data_type in ("bit", "year") or "zerofill" in column.column_type
    return f"({name}+0)" if as_number else name


# --- all rows ----------------------------------------------------------------------------------------------


def of_all_rows(kind: str, column: ColumnDef | None, batch: str, arguments: Mapping[str, Any]) -> str:
    """Return the statement of what is observed over all rows, as text, and whether it holds (1, 0 or NULL).

    ``kind`` is the expectation without ``expect_``. The server compares exactly: a mean as a sum with so many times its
    bounds.
    """
    value = value_of(column) if column is not None else "*"
    if column is not None and "value_set" in arguments:
        observed, holds = _of_set(column, arguments["value_set"], equal="equal_set" in kind)
    else:
        what = re.sub(r"^(column|table)_|_to_(be_between|equal)$", "", kind)
        divided, divisor = {
            "row_count": ("COUNT(*)", ""), "unique_value_count": (f"COUNT(DISTINCT {value})", ""),
            "sum": (f"SUM({value})", ""), "min": (f"MIN({value})", ""), "max": (f"MAX({value})", ""),
            "mean": (f"SUM({value})", f"COUNT({value})"),
            "proportion_of_unique_values": (f"COUNT(DISTINCT {value})", f"GREATEST(COUNT({value}), 1)"),
            "proportion_of_non_null_values": (f"COUNT({value})", "GREATEST(COUNT(*), 1)"),
        }[what]  # fmt: skip
        holds = inside(divided, arguments, f" * {divisor}" if divisor else "")
        observed = f"CONCAT({divided}, ' / ', {divisor})" if divisor else divided
    return f"SELECT CAST({observed} AS CHAR), {holds} FROM {batch}"


def _of_set(column: ColumnDef, values: Sequence[Decimal | str], *, equal: bool) -> tuple[str, str]:
    # Value by value: which texts are equal is the collation's to say.
    absent = [f"CASE WHEN SUM({one_of(column, [value])}) > 0 THEN NULL ELSE {quote_text(f'no {value}')} END"
              for value in values]  # fmt: skip
    outside = f"SUM(NOT {one_of(column, values)})"
    absent += [f"CASE WHEN {outside} > 0 THEN CONCAT({outside}, ' rows outside the set') END"] if equal else []
    observed = f"CONCAT_WS(', ', {', '.join(absent)})"
    return observed, f"{observed} = ''"


def inside(value: str, arguments: Mapping[str, Any], times: str = "") -> str:
    """Return the condition that a value is inside of the bounds that are given, or equals ``value``."""
    bounds = (("min_value", "strict_min", ">"), ("max_value", "strict_max", "<"))
    parts = [
        f"{value} {sign if arguments.get(strict) else sign + '='} {literal(arguments[name])}{times}"
        for name, strict, sign in bounds if arguments.get(name) is not None
    ]  # fmt: skip
    return " AND ".join(parts) or f"{value} = {literal(arguments['value'])}"


# --- conditions on rows ------------------------------------------------------------------------------------

UNIQUE = ("column_values_to_be_unique", "compound_columns_to_be_unique")
_COPIES = "`migverify copies`"


def with_copies(batch: str, columns: Sequence[ColumnDef]) -> str:
    """Return the batch with the number of rows that have the same values in these columns; NULLs are the same."""
    names = ", ".join(quote_name(column.name) for column in columns)
    return f"(SELECT *, COUNT(*) OVER (PARTITION BY {names}) AS {_COPIES} FROM {batch}) AS `with copies`"


def considered(kind: str, columns: Sequence[ColumnDef], ignored: str | None) -> str:
    """Return the condition of the rows that an expectation considers; the others are skipped."""
    if kind in ("column_values_to_be_null", "column_values_to_not_be_null") or ignored in ("never", "neither"):
        return "TRUE"
    word = " AND " if ignored in ("any_value_is_missing", "either_value_is_missing") else " OR "
    return "(" + word.join(f"{quote_name(column.name)} IS NOT NULL" for column in columns) + ")"


def good(kind: str, columns: Sequence[ColumnDef], arguments: Mapping[str, Any]) -> str:
    """Return the condition under which a considered row holds; ``kind`` is the expectation without ``expect_``."""
    values = [value_of(column) for column in columns]
    if kind in UNIQUE:
        return f"{_COPIES} = 1"
    if kind.endswith("be_null"):
        return f"{quote_name(columns[0].name)} IS {'NOT ' if '_not_' in kind else ''}NULL"
    if kind.startswith("column_value_lengths"):
        length = "LENGTH" if is_binary(columns[0]) else "CHAR_LENGTH"
        return inside(f"{length}({quote_name(columns[0].name)})", arguments)
    if kind == "column_values_to_be_between":
        return inside(values[0], arguments)
    if kind == "multicolumn_sum_to_equal":
        return f"COALESCE({' + '.join(values)} = {literal(arguments['sum_total'])}, FALSE)"
    if kind == "column_pair_values_to_be_equal":
        return f"COALESCE({values[0]} = {values[1]}, FALSE)"
    if kind == "column_pair_values_a_to_be_greater_than_b":
        return f"COALESCE({values[0]} {'>=' if arguments.get('or_equal') else '>'} {values[1]}, TRUE)"
    if "value_set" in arguments:
        return f"{'NOT ' if '_not_' in kind else ''}({one_of(columns[0], arguments['value_set'])})"
    word = "LIKE" if "like" in kind else "REGEXP"
    name = "like_pattern" if "like" in kind else "regex"
    return f"{'NOT ' if '_not_' in kind else ''}({values[0]} {word} {quote_text(arguments[name])})"


def one_of(column: ColumnDef, values: Sequence[Decimal | str]) -> str:
    """Return the condition that a column's value is one of some values."""
    return f"{value_of(column)} IN ({', '.join(map(literal, values))})"


def counts(batch: str, counted: str, holds: str) -> str:
    """Return: rows, rows considered, and rows considered that do not hold."""
    return (f"SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN {counted} THEN 1 ELSE 0 END), 0) AS CHAR),"
            f" CAST(COALESCE(SUM(CASE WHEN {counted} AND NOT ({holds}) THEN 1 ELSE 0 END), 0) AS CHAR)"
            f" FROM {batch}")  # fmt: skip


def bad_rows(batch: str, columns: Sequence[str], counted: str, holds: str, limit: int) -> str:
    """Return at most ``limit`` rows that are considered and do not hold."""
    names = ", ".join(quote_name(name) for name in columns)
    return f"SELECT {names} FROM {batch} WHERE {counted} AND NOT ({holds}) LIMIT {limit}"


def row_count(batch: str) -> str:
    """Return how many rows the batch has."""
    return f"SELECT COUNT(*) FROM {batch}"
