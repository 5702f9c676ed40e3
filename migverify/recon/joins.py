"""Cartesian joins, found before a server has to: tables of a SELECT that no condition links.

Tables are points, conditions that name columns of two of them are lines; a SELECT whose points do not hang together
multiplies rows. Columns without a table's name may belong to any table: a condition with such a column is counted as
one line between points not yet linked, so it is never the reason of a refusal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from migverify.sql.tokens import SqlProblem

if TYPE_CHECKING:
    from sqlglot import exp


def check_joins(root: exp.Expr) -> None:
    """Refuse a SELECT, at any depth, that joins tables without a condition.

    Tables of one row (a constant, an aggregate without GROUP BY, LIMIT 1) multiply nothing and need no condition.

    Raises
    ------
    SqlProblem
        names the two tables that no condition links.
    """
    from sqlglot import exp

    for select in root.find_all(exp.Select):
        _check(select)


class _Tables:
    """The tables of one SELECT, and which of them hang together."""

    def __init__(self) -> None:
        self.group: dict[str, str] = {}
        self.wild = 0

    def find(self, name: str) -> str:
        while self.group[name] != name:
            name = self.group[name]
        return name

    def link(self, names: list[str]) -> None:
        for name in names[1:]:
            self.group[self.find(names[0])] = self.find(name)

    @property
    def parts(self) -> list[str]:
        return list(dict.fromkeys(map(self.find, self.group)))


def _check(select: exp.Select) -> None:
    tables = _Tables()
    sources: list[exp.Expr] = []
    conditions: list[exp.Expr] = []
    start = select.args.get("from_")
    if start is None:
        return
    _collect(start.this, tables, sources, conditions)
    for join in select.args.get("joins") or []:
        _join(join, tables, sources, conditions)
    if len(tables.group) < 2:
        return
    if where := select.args.get("where"):
        conditions.append(where.this)
    for condition in conditions:
        for part in _conjuncts(condition):
            _link(part, select, tables)
    for source in sources:
        if not _is_table(source):  # LATERAL, JSON_TABLE: what it reads of its neighbors links it to them
            _link(source, select, tables, own=_name(source))
    single = {_name(source) for source in sources if _one_row(source, select)}
    left = [part for part in tables.parts if not _members(tables, part) <= single]
    if len(left) - 1 > tables.wild:
        first, second = (min(_members(tables, part)) for part in left[:2])
        raise SqlProblem(
            f"no condition links {first} and {second}: every row of one meets every row of the other",
            hint="Join with ON and columns of both, written table.column.",
        )


def _collect(source: exp.Expr, tables: _Tables, sources: list[exp.Expr], conditions: list[exp.Expr]) -> str:
    """Add a table, or the tables of a join in parentheses; return the name of the first."""
    from sqlglot import exp

    if isinstance(source, exp.Subquery) and isinstance(source.this, exp.Table | exp.Subquery) and not source.alias:
        first = _collect(source.this, tables, sources, conditions)
    else:
        first = _name(source)
        if first in tables.group:  # twice the same name is the server's error; here it must not hide a table
            first = f"{first}#{len(sources)}"
        tables.group[first] = first
        sources.append(source)
    for join in source.args.get("joins") or []:
        _join(join, tables, sources, conditions)
    return first


def _join(
    join: exp.Join, tables: _Tables, sources: list[exp.Expr], conditions: list[exp.Expr]
) -> None:  # fmt: skip
    before = list(tables.group)
    added = _collect(join.this, tables, sources, conditions)
    if join.method == "NATURAL":
        raise SqlProblem(
            "a NATURAL JOIN links by whatever columns happen to share a name", hint="Name them: USING (column)."
        )
    if join.args.get("using") and before:
        tables.link([before[-1], added])
    if condition := join.args.get("on"):
        conditions.append(condition)


def _link(part: exp.Expr, select: exp.Select, tables: _Tables, *, own: str | None = None) -> None:
    """Link the tables that a condition names; with ``own``, a source to the tables that it reads."""
    from sqlglot import exp

    named: list[str] = []
    bare = 0
    for column in part.find_all(exp.Column):
        if column.table:
            if column.table.lower() in tables.group:
                named.append(column.table.lower())
        elif own is not None or column.parent_select is select:
            bare += 1
    if own is not None and own in tables.group:
        named.insert(0, own)
    named = list(dict.fromkeys(named))
    tables.link(named)
    if own is None:
        tables.wild += len(named) < 2 <= len(named) + bare
    else:
        tables.wild += len(named) < 2 and bare > 0 and not isinstance(part, exp.Subquery)


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    from sqlglot import exp

    inner = condition.unnest()
    if isinstance(inner, exp.And):
        yield from _conjuncts(inner.this)
        yield from _conjuncts(inner.expression)
    else:
        yield inner


def _is_table(source: exp.Expr) -> bool:
    from sqlglot import exp

    return isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)


def _name(source: exp.Expr) -> str:
    return str(source.alias_or_name).lower()


def _members(tables: _Tables, part: str) -> set[str]:
    return {name for name in tables.group if tables.find(name) == part}


def _one_row(source: exp.Expr, select: exp.Select) -> bool:
    """Whether a source multiplies nothing: no table in it, or one row by its form."""
    from sqlglot import exp

    if isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier):
        if source.name.lower() == "dual":
            return True
        query = _cte(source.name.lower(), select) if not source.db else None
    else:
        query = source
    if query is None:
        return False
    if isinstance(query, exp.Lateral):
        query = query.this
    query = query.unnest() if isinstance(query, exp.Subquery) else query
    if not isinstance(query, exp.Query | exp.Values):
        return False
    if next(query.find_all(exp.Table), None) is None:
        return True
    limit = query.args.get("limit")
    if limit is not None and str(getattr(limit, "expression", "")) == "1":
        return True
    return (
        isinstance(query, exp.Select)
        and not query.args.get("group")
        and bool(query.expressions)
        and any(True for item in query.expressions for _ in item.find_all(exp.AggFunc))
        and not any(True for item in query.expressions for _ in item.find_all(exp.Window))
    )


def _cte(name: str, select: exp.Select) -> exp.Expr | None:
    from sqlglot import exp

    node: exp.Expr | None = select
    while node is not None:
        clause = node.args.get("with_")
        for entry in clause.expressions if isinstance(clause, exp.With) else []:
            if entry.alias.lower() == name:
                found: exp.Expr = entry.this
                return found
        node = node.parent
    return None
