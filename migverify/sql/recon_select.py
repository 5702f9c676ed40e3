"""The rows of one part of a dataset as a whole SELECT, for whoever takes statements and not relations."""

from __future__ import annotations

from collections.abc import Sequence

from migverify.sql.quoting import quote_name


def select_sql(table: str, columns: Sequence[tuple[str, str]], where: str = "") -> str:
    """Return the SELECT of (name, expression) columns; ``table`` stands behind FROM as it is."""
    listed = ", ".join(f"{expression} AS {quote_name(name)}" for name, expression in columns)
    return f"SELECT {listed} FROM {table}" + (f" WHERE {where}" if where else "")


def sum_of_counts_sql(statements: Sequence[str]) -> str:
    """Return the statement of the sum of several counts, each a SELECT of one number that is never NULL."""
    return "SELECT " + "+".join(f"({statement})" for statement in statements)
