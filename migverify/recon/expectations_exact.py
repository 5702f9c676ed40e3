"""Expectations that migverify computes itself: in the server's exact decimals, compared as decimals and fractions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Protocol

from migverify.errors import IncompleteReadError, MigverifyError, ReadError
from migverify.model import ColumnDef
from migverify.recon.expectation_suite import Expectation, texts
from migverify.recon.expectation_types import Group, How, group_of
from migverify.recon.expectations_gx import Answer
from migverify.sql import expectations as sql

Rows = list[tuple[str | None, ...]]
SHOWN_VALUES = 20

# Out of range, truncated, not a number or time, division by zero, cut: the answer is of other values than the table's.
_ALTERED = frozenset({"1260", "1264", "1265", "1292", "1301", "1365", "1366", "1411", "1525", "1690"})


class Asked(Protocol):
    """The part of a reader that this module needs."""

    def query(self, sql: str) -> Rows:
        """Run one statement; every value is the server's text."""
        ...

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        """Like ``query``, each row as column name -> text."""
        ...

    def warnings(self) -> list[str]:
        """Warnings of the last statement."""
        ...


def answer(
    reader: Asked, batch: str, columns: Sequence[ColumnDef], one: Expectation, *, shown: Sequence[str], limit: int
) -> Answer:
    """Compute one expectation; a read that fails, or that the server warned of, leaves it unanswered."""
    known = {column.name: column for column in columns}
    try:
        return _HOW[one.how](_Quiet(reader), batch, known, one, shown, limit)
    except ReadError as error:
        return Answer(one, None, reason=error.message)
    except MigverifyError as error:
        return Answer(one, None, reason=str(error))


class _Quiet:
    """A reader whose answers count only without a warning: a sum that was clamped comes with one."""

    def __init__(self, reader: Asked) -> None:
        self._reader = reader

    def query(self, statement: str) -> Rows:
        rows = self._reader.query(statement)
        self._check()
        return rows

    def query_named(self, statement: str) -> list[dict[str, str | None]]:
        rows = self._reader.query_named(statement)
        self._check()
        return rows

    def _check(self) -> None:
        for warned in self._reader.warnings():
            if warned.partition(":")[0] in _ALTERED:
                raise IncompleteReadError(f"the server warned that a value is not what it was: {warned}")


def _aggregate(
    reader: _Quiet, batch: str, known: Mapping[str, ColumnDef], one: Expectation, shown: Sequence[str], limit: int
) -> Answer:
    del shown, limit
    column = known[one.columns[0]]
    rows, present, total, least, greatest = reader.query(sql.aggregates(column, batch))[0]
    count = int(present or 0)
    result: dict[str, Any] = {"element_count": int(rows or 0)}
    kind = one.type.removeprefix("expect_column_").removesuffix("_to_be_between")
    if kind in ("min", "max") and group_of(column) is Group.TEMPORAL:
        return _temporal(reader, batch, column, one, least if kind == "min" else greatest, result)
    text = {"sum": total, "mean": total, "min": least, "max": greatest}[kind]
    if text is None:
        return Answer(one, False, {**result, "observed_value": None})
    value, result["observed_value"] = Fraction(Decimal(text)), text
    if kind == "mean":
        value /= count
        with localcontext(prec=80):  # to show; compared is the fraction
            result["observed_value"] = format(Decimal(text) / count, "f")
    return Answer(one, _within(value, one.arguments), result)


def _within(value: Fraction, arguments: Mapping[str, Any]) -> bool:
    lower, upper = arguments.get("min_value"), arguments.get("max_value")
    if lower is not None:
        least = Fraction(lower)
        if value < least or (value == least and arguments.get("strict_min")):
            return False
    if upper is not None:
        most = Fraction(upper)
        if value > most or (value == most and arguments.get("strict_max")):
            return False
    return True


def _temporal(
    reader: _Quiet, batch: str, column: ColumnDef, one: Expectation, text: str | None, result: dict[str, Any]
) -> Answer:
    """Whether a least or greatest time lies between: the server compares, as it reads times like a column does."""
    result["observed_value"] = text
    if text is None:
        return Answer(one, False, result)
    extreme = sql.extreme(column, least="_min_" in one.type)
    told = reader.query(sql.holds(_bounds(extreme, one), batch))
    return Answer(one, told[0][0] == "1", result)


def _bounds(value: str, one: Expectation) -> str:
    lower, upper = one.arguments.get("min_value"), one.arguments.get("max_value")
    return sql.inside(
        value, None if lower is None else sql.literal(lower), None if upper is None else sql.literal(upper),
        strict_lower=bool(one.arguments.get("strict_min")), strict_upper=bool(one.arguments.get("strict_max")),
    )  # fmt: skip


def _rows(
    reader: _Quiet, batch: str, known: Mapping[str, ColumnDef], one: Expectation, shown: Sequence[str], limit: int
) -> Answer:
    columns = [known[name] for name in one.columns]
    good = _condition(columns, one)
    batch = sql.with_copies(batch, columns) if good == sql.ONE_COPY else batch
    how = one.arguments.get("ignore_row_if", "all_values_are_missing")
    considered = "TRUE" if how == "never" else sql.not_null(columns, all_of_them=how == "any_value_is_missing")
    total, looked_at, bad = (int(text or 0) for text in reader.query(sql.counts(batch, considered, good))[0])
    result: dict[str, Any] = {"element_count": total, "unexpected_count": bad, "missing_count": total - looked_at}
    result["unexpected_percent"] = float(Fraction(100 * bad, looked_at)) if looked_at else None
    # As Great Expectations has it: of no rows, all hold. How many there were is part of every report.
    success = looked_at == 0 or Fraction(looked_at - bad, looked_at) >= Fraction(one.mostly)
    if success or not bad:
        return Answer(one, success, result, "", looked_at, bad)
    names = list(dict.fromkeys([*shown, *one.columns]))
    found = reader.query_named(sql.bad_rows(batch, names, considered, good, limit))
    result["partial_unexpected_list"] = [
        row[one.columns[0]] if len(one.columns) == 1 else [row[name] for name in one.columns]
        for row in found[:SHOWN_VALUES]
    ]  # fmt: skip
    return Answer(one, False, result, "", looked_at, bad, _hexed(found, known))


def _hexed(rows: Sequence[dict[str, str | None]], known: Mapping[str, ColumnDef]) -> tuple[dict[str, Any], ...]:
    def shown(name: str, text: str | None) -> str | None:
        column = known.get(name)
        binary = column is not None and ("binary" in column.data_type or "blob" in column.data_type or
                                         column.data_type == "bit")  # fmt: skip
        return "0x" + text.encode("utf-8", "surrogateescape").hex() if binary and text is not None else text

    return tuple({name: shown(name, text) for name, text in row.items()} for row in rows)


def _condition(columns: Sequence[ColumnDef], one: Expectation) -> str:
    """Return the condition under which a row holds."""
    if one.type == "expect_multicolumn_sum_to_equal":
        return sql.sum_is(columns, sql.literal(one.arguments["sum_total"]))
    if one.type == "expect_compound_columns_to_be_unique":
        return sql.ONE_COPY
    column = columns[0]
    if one.type == "expect_column_value_lengths_to_equal":
        return f"{sql.length_of(column)} = {sql.literal(one.arguments['value'])}"
    if one.type == "expect_column_value_lengths_to_be_between":
        return _bounds(sql.length_of(column), one)
    if one.type == "expect_column_values_to_be_between":
        return _bounds(sql.value_of(column), one)
    listed = sql.one_of(sql.value_of(column), [sql.literal(value) for value in one.arguments["value_set"]])
    return f"NOT ({listed})" if "_not_" in one.type else listed


def _distinct(
    reader: _Quiet, batch: str, known: Mapping[str, ColumnDef], one: Expectation, shown: Sequence[str], limit: int
) -> Answer:
    del shown, limit
    column = known[one.columns[0]]
    literals = [sql.literal(value) for value in one.arguments["value_set"]]
    listed = sql.one_of(sql.value_of(column), literals)
    outside: Rows = []
    absent: list[str] = []
    if "contain" not in one.type:
        outside = reader.query(sql.distinct_values(column, batch, f"NOT ({listed})", SHOWN_VALUES))
    if "be_in_set" not in one.type:
        for literal, value in zip(literals, texts(one.arguments["value_set"]), strict=True):
            # One by one: which texts are equal is the collation's to say.
            if not reader.query(sql.distinct_values(column, batch, sql.one_of(sql.value_of(column), [literal]), 1)):
                absent.append(value)
    listed_outside = [str(value) for value, _ in outside]
    told = [f"outside the set: {', '.join(listed_outside)}"] if outside else []
    told += [f"missing: {', '.join(absent)}"] if absent else []
    observed = {"outside": listed_outside, "missing": absent}
    return Answer(
        one, not outside and not absent, {"observed_value": "; ".join(told) or "the set", "details": observed}
    )


def _type(
    reader: _Quiet, batch: str, known: Mapping[str, ColumnDef], one: Expectation, shown: Sequence[str], limit: int
) -> Answer:
    del reader, batch, shown, limit
    column = known[one.columns[0]]
    wanted = [one.arguments["type_"]] if "type_" in one.arguments else list(one.arguments["type_list"])
    spelled = {column.data_type.lower(), column.column_type.lower()}
    spelled |= {"integer"} if column.data_type == "int" else set()
    spelled |= {"numeric"} if column.data_type == "decimal" else set()
    return Answer(one, any(str(name).lower() in spelled for name in wanted), {"observed_value": column.column_type})


def _query(
    reader: _Quiet, batch: str, known: Mapping[str, ColumnDef], one: Expectation, shown: Sequence[str], limit: int
) -> Answer:
    del shown
    query = sql.fill(one.arguments["unexpected_rows_query"], batch)
    count = int(reader.query(sql.returned(query))[0][0] or 0)
    result: dict[str, Any] = {"observed_value": count}
    if not count:
        return Answer(one, True, result, "", None, 0)
    rows = _hexed(reader.query_named(sql.first_returned(query, limit)), known)
    result["details"] = {"unexpected_rows": [dict(row) for row in rows[:SHOWN_VALUES]]}
    return Answer(one, False, result, "", None, count, rows)


_Way = Callable[[_Quiet, str, Mapping[str, ColumnDef], Expectation, Sequence[str], int], Answer]
_HOW: dict[How, _Way] = {
    How.AGGREGATE: _aggregate, How.ROWS: _rows, How.DISTINCT: _distinct, How.TYPE: _type, How.QUERY: _query,
}  # fmt: skip
