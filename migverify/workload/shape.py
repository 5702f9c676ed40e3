"""The structure of a statement, read once a digest: its tables, the order of its answer, whether it is determined.

sqlglot reads the text as MySQL's; where it cannot, everything is ``unknown``, and an unknown order or determinism never
makes a difference a failure by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from migverify.sql.lexer import TokenKind, tokens

if TYPE_CHECKING:
    from sqlglot import expressions as exp


class RowOrder(StrEnum):
    """How far the text determines the order of the rows."""

    TOTAL = "total"
    TIES = "ties"  # ordered, and rows with equal keys may come in any order
    NONE = "none"
    ONE_ROW = "one row"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Shape:
    """``tables`` are database-qualified where the text says so; None when it could not be read.

    ``order_by`` are the columns or items ordered by, as text. ``deterministic`` is None when it is not known: it says
    whether the *set* of rows is determined by the data.
    """

    tables: tuple[str, ...] | None = None
    order: RowOrder = RowOrder.UNKNOWN
    order_by: tuple[str, ...] = ()
    limited: bool = False
    deterministic: bool | None = None
    reasons: tuple[str, ...] = ()


def shape(
    sql: bytes, unique_keys: Mapping[str, Sequence[Sequence[str]]] | None = None, volatile: bool = False
) -> Shape:
    """Return the structure of one statement.

    Parameters
    ----------
    unique_keys
        The unique keys of tables over columns that are NOT NULL, by table name without database, all lower case: what
        makes an ORDER BY total. Without them an ORDER BY has ties, unless it covers a grouping.
    volatile
        The statement calls volatile functions (``classify``).
    """
    import sqlglot  # late: it takes a third of a second
    from sqlglot import errors
    from sqlglot import expressions as exp

    try:
        # where it does not understand a command it warns and keeps the text: that is unknown here
        logging.getLogger("sqlglot").setLevel(logging.ERROR)
        trees = sqlglot.parse(_text(sql), dialect="mysql")
    except (errors.SqlglotError, UnicodeDecodeError, RecursionError) as error:
        return Shape(reasons=(f"not readable: {type(error).__name__}",))
    if len(trees) != 1 or trees[0] is None:
        return Shape(reasons=("several statements",))
    tree = trees[0]
    if isinstance(tree, exp.Command) or not isinstance(
        tree, exp.Query | exp.DML | exp.Update | exp.Delete | exp.Insert
    ):
        return Shape(reasons=("not a query",))
    if any(not one.expressions for one in tree.find_all(exp.Select)):
        return Shape(reasons=("a SELECT without items: no server reads it",))
    named = {cte.alias_or_name.lower() for cte in tree.find_all(exp.CTE)}
    tables = tuple(sorted({
        ".".join(part for part in (table.db, table.name) if part)
        for table in tree.find_all(exp.Table) if table.name and (table.db or table.name.lower() not in named)
    }))  # fmt: skip
    if not isinstance(tree, exp.Query):
        limited = tree.args.get("limit") is not None
        return Shape(tables, RowOrder.NONE, limited=limited, deterministic=not (volatile or limited))
    order, keys = _order(tree, {} if unique_keys is None else unique_keys)
    reasons = _undetermined(tree, order)
    if volatile:
        reasons.append("volatile functions")
    limited = tree.args.get("limit") is not None
    return Shape(tables, order, keys, limited, not reasons, tuple(reasons))


def _text(sql: bytes) -> str:
    """Return the statement as text; a literal that is no UTF-8 (a BLOB's bytes) loses bytes that no structure hangs on.

    Names that are no UTF-8 raise UnicodeDecodeError: whose they are is not known.
    """
    try:
        return sql.decode("utf-8")
    except UnicodeDecodeError:
        whole = bytearray(sql)
        for token in tokens(sql):
            if token.kind is TokenKind.STRING:
                whole[token.start : token.end] = sql[token.start : token.end].decode("ascii", "replace").replace(
                    "\ufffd", "?"
                ).encode()  # fmt: skip
        return whole.decode("utf-8")


def _order(tree: exp.Query, unique_keys: Mapping[str, Sequence[Sequence[str]]]) -> tuple[RowOrder, tuple[str, ...]]:
    from sqlglot import expressions as e

    if isinstance(tree, e.Select) and not tree.args.get("group") and tree.expressions and all(
        isinstance(one.unalias(), e.AggFunc) for one in tree.expressions
    ):  # fmt: skip
        return RowOrder.ONE_ROW, ()
    ordering = tree.args.get("order")
    if ordering is None:
        return RowOrder.NONE, ()
    items = [one.this for one in ordering.expressions]
    keys = tuple(one.sql(dialect="mysql") for one in items)
    if not isinstance(tree, e.Select):
        return RowOrder.TIES, keys
    columns = {one.name.lower() for one in items if isinstance(one, e.Column)}
    group = tree.args.get("group")
    if group is not None:
        grouped = {one.sql(dialect="mysql") for one in group.expressions}
        plain = not any(group.args.get(form) for form in ("rollup", "cube", "grouping_sets", "totals"))
        return (RowOrder.TOTAL if plain and grouped and grouped <= set(keys) else RowOrder.TIES), keys
    source = tree.args.get("from_") or tree.args.get("from")
    single = source is not None and isinstance(source.this, e.Table) and not tree.args.get("joins")
    if single and source is not None:
        for key in unique_keys.get(source.this.name.lower(), ()):
            if key and {column.lower() for column in key} <= columns:
                return RowOrder.TOTAL, keys
    return RowOrder.TIES, keys


def _undetermined(tree: exp.Query, order: RowOrder) -> list[str]:
    from sqlglot import expressions as e

    reasons: list[str] = []
    if tree.args.get("limit") is not None and order not in (RowOrder.TOTAL, RowOrder.ONE_ROW):
        reasons.append("LIMIT without a total order")
    for limit in tree.find_all(e.Limit):
        if limit.parent is not tree:
            reasons.append("LIMIT in a subquery")
            break
    for concat in tree.find_all(e.GroupConcat):
        if not concat.find(e.Order):
            reasons.append("GROUP_CONCAT without ORDER BY")
            break
    if tree.find(e.AnyValue):
        reasons.append("ANY_VALUE")
    if tree.find(e.Window):
        reasons.append("window functions may meet ties")
    return reasons
