"""SQL of expectations that migverify computes itself, because Great Expectations would go through a float.

A batch is what stands behind FROM. Sums, least and greatest values leave the server as text of exact decimals, and
comparisons are made by the server between a column and an exact literal: a bound number never becomes a DOUBLE.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from migverify.errors import UsageError
from migverify.model import ColumnDef
from migverify.sql.quoting import quote_name, quote_text

MOST_DIGITS = 65
MOST_SCALE = 30

NUMBERS = frozenset(
    {"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "decimal", "numeric", "bit", "year"}
)
"""Types whose values are exact numbers."""

_AFTER_A_TABLE = {
    *("WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT", "JOIN", "INNER", "CROSS", "LEFT"),
    *("RIGHT", "NATURAL", "STRAIGHT_JOIN", "ON", "USING", "WINDOW", "FOR"),
}


def batch_of(selects: Sequence[str]) -> str:
    """Return what stands behind FROM for the rows of some SELECTs on one endpoint."""
    # A SELECT may end in a comment: the parenthesis must not be part of it.
    parts = [f"SELECT * FROM ({select.strip().rstrip(';')}\n) AS `part{n}`" for n, select in enumerate(selects)]
    body = selects[0].strip().rstrip(";") if len(selects) == 1 else "\nUNION ALL\n".join(parts)
    return f"({body}\n) AS `batch`"


def number_literal(value: Decimal) -> str:
    """Return a number as a literal of type DECIMAL or integer.

    Raises
    ------
    UsageError
        It has more digits than a DECIMAL: the server would read it as a DOUBLE.
    """
    if not value.is_finite():
        raise UsageError(f"{value} is not a number that a column can hold")
    text = format(value, "f")
    whole, _, fraction = text.lstrip("-").partition(".")
    if len(whole.lstrip("0")) + len(fraction) > MOST_DIGITS or len(fraction) > MOST_SCALE:
        raise UsageError(f"{text} has more digits than DECIMAL({MOST_DIGITS},{MOST_SCALE}) holds")
    return text


def literal(value: Decimal | str) -> str:
    """Return a number or a text as a literal."""
    return number_literal(value) if isinstance(value, Decimal) else quote_text(value)


def value_of(column: ColumnDef) -> str:
    """Return the expression of a column's value: numbers without padding, BIT and YEAR as numbers."""
    name = quote_name(column.name)
    as_number = column.data_type in ("bit", "year") or "zerofill" in column.column_type
    return f"({name}+0)" if as_number else name


def aggregates(column: ColumnDef, batch: str) -> str:
    """Return: rows, rows that are not NULL, and as text the sum (numbers only), the least and the greatest value."""
    value = value_of(column)
    total = f"CAST(SUM({value}) AS CHAR)" if column.data_type in NUMBERS else "NULL"
    return (f"SELECT COUNT(*), COUNT({quote_name(column.name)}), {total}, CAST(MIN({value}) AS CHAR),"
            f" CAST(MAX({value}) AS CHAR) FROM {batch}")  # fmt: skip


def extreme(column: ColumnDef, *, least: bool) -> str:
    """Return the expression of a column's least or greatest value."""
    return f"{'MIN' if least else 'MAX'}({value_of(column)})"


def holds(condition: str, batch: str) -> str:
    """Return 1 where a condition on aggregates of the batch holds, else 0."""
    return f"SELECT {condition} FROM {batch}"


def inside(value: str, lower: str | None, upper: str | None, *, strict_lower: bool, strict_upper: bool) -> str:
    """Return the condition that a value lies between two literals; None is open."""
    parts = [f"{value} {'>' if strict_lower else '>='} {lower}"] if lower is not None else []
    parts += [f"{value} {'<' if strict_upper else '<='} {upper}"] if upper is not None else []
    return " AND ".join(parts)


def length_of(column: ColumnDef) -> str:
    """Return the length of a column's text in characters, of its bytes for binary types."""
    binary = "binary" in column.data_type or "blob" in column.data_type
    return f"{'LENGTH' if binary else 'CHAR_LENGTH'}({quote_name(column.name)})"


def one_of(value: str, literals: Sequence[str]) -> str:
    """Return the condition that a value is one of the literals; of none, nothing is."""
    return f"{value} IN ({', '.join(literals)})" if literals else "FALSE"


def sum_is(columns: Sequence[ColumnDef], total: str) -> str:
    """Return the condition that the columns of a row add up; false where one of them is NULL."""
    return f"COALESCE({' + '.join(value_of(column) for column in columns)} = {total}, FALSE)"


def not_null(columns: Sequence[ColumnDef], *, all_of_them: bool) -> str:
    """Return the condition that all, or any, of the columns are not NULL."""
    word = " AND " if all_of_them else " OR "
    return "(" + word.join(f"{quote_name(column.name)} IS NOT NULL" for column in columns) + ")"


def counts(batch: str, considered: str, good: str) -> str:
    """Return: rows, rows considered, and rows considered that are not good."""
    return (f"SELECT COUNT(*), CAST(COALESCE(SUM(CASE WHEN {considered} THEN 1 ELSE 0 END), 0) AS CHAR),"
            f" CAST(COALESCE(SUM(CASE WHEN {considered} AND NOT ({good}) THEN 1 ELSE 0 END), 0) AS CHAR)"
            f" FROM {batch}")  # fmt: skip


_COPIES = "`migverify copies`"
ONE_COPY = f"{_COPIES} = 1"
"""The condition on rows of ``with_copies`` that there is one row of their values."""


def with_copies(batch: str, columns: Sequence[ColumnDef]) -> str:
    """Return the batch with the number of rows that have the same values in these columns; NULLs are the same."""
    names = ", ".join(quote_name(column.name) for column in columns)
    return f"(SELECT *, COUNT(*) OVER (PARTITION BY {names}) AS {_COPIES} FROM {batch}) AS `with copies`"


def bad_rows(batch: str, columns: Sequence[str], considered: str, good: str, limit: int) -> str:
    """Return at most ``limit`` rows that are considered and not good."""
    names = ", ".join(quote_name(name) for name in columns)
    return f"SELECT {names} FROM {batch} WHERE {considered} AND NOT ({good}) LIMIT {limit}"


def distinct_values(column: ColumnDef, batch: str, condition: str, limit: int) -> str:
    """Return at most ``limit`` distinct values that fulfill a condition, as text, with their rows."""
    value = value_of(column)
    return (f"SELECT CAST({value} AS CHAR), COUNT(*) FROM {batch} WHERE {quote_name(column.name)} IS NOT NULL"
            f" AND ({condition}) GROUP BY {value} ORDER BY {value} LIMIT {limit}")  # fmt: skip


def row_count(batch: str) -> str:
    """Return how many rows the batch has."""
    return f"SELECT COUNT(*) FROM {batch}"


def returned(query: str) -> str:
    """Return how many rows a query returns."""
    return f"SELECT COUNT(*) FROM ({query}\n) AS `unexpected`"


def first_returned(query: str, limit: int) -> str:
    """Return at most ``limit`` rows of a query."""
    return f"SELECT * FROM ({query}\n) AS `unexpected` LIMIT {limit}"


def all_rows(batch: str) -> str:
    """Return the SELECT of all rows of the batch."""
    return f"SELECT * FROM {batch}"


def fill(query: str, batch: str) -> str:
    """Return the query with ``{batch}`` replaced; where no alias follows it, it gets ``subselect``, as in GX."""

    def put(found: re.Match[str]) -> str:
        word = found["alias"]
        named = bool(found["as"]) or (word is not None and word.upper() not in _AFTER_A_TABLE)
        return f"({all_rows(batch)}){'' if named else ' AS subselect'}{found['rest']}"

    bare = query.strip().rstrip(";").rstrip()
    pieces = re.split(r"(\{\{|\}\})", bare)  # doubled braces are text
    marked = "".join({"{{": "\0", "}}": "\1"}.get(piece, piece) for piece in pieces)
    filled = re.sub(
        r"\{batch\}(?P<rest>(?:\s+(?P<as>AS\s+)?(?P<alias>\w+|`[^`]+`))?)", put, marked, flags=re.IGNORECASE
    )
    return filled.replace("\0", "{").replace("\1", "}")
