"""Reads MySQL's EXPLAIN FORMAT=JSON, version 1: what 5.7, 8.0 and Aurora give, and later versions on request.

The document nests a query block's parts (``nested_loop``, ``ordering_operation``, ``grouping_operation``, subqueries)
around objects called ``table``; they come in the order of execution, so that one walk finds all of them. Keys as
described in MySQL 8.0's reference manual, "EXPLAIN Output Format".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from migverify.errors import ReadError
from migverify.workload.plans.model import AccessPath, QueryPlan, TableAccess

VERSION_1 = b"SET SESSION explain_json_format_version=1"
"""Asks 8.3 and later for the format read here; older servers do not know the variable (1193)."""

_PATHS = {
    "system": AccessPath.POINT, "const": AccessPath.POINT, "eq_ref": AccessPath.POINT,
    "unique_subquery": AccessPath.POINT, "ref": AccessPath.LOOKUP, "ref_or_null": AccessPath.LOOKUP,
    "fulltext": AccessPath.LOOKUP, "index_subquery": AccessPath.LOOKUP, "range": AccessPath.RANGE,
    "index_merge": AccessPath.MERGE, "index": AccessPath.INDEX_SCAN, "ALL": AccessPath.FULL_SCAN,
}  # fmt: skip


@dataclass(slots=True)
class _BlockWalk:
    accesses: list[TableAccess] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    sorts: int = 0
    temporary: bool = False
    rows: float | None = None

    def take(self, part: Any, outer: float = 1.0) -> None:
        """Walk one part; ``outer`` is how often what is in it is run."""
        if isinstance(part, list):
            for one in part:
                self.take(one, outer)
            return
        if not isinstance(part, Mapping):
            return
        self.sorts += part.get("using_filesort") is True
        self.temporary = self.temporary or part.get("using_temporary_table") is True
        for name, inside in part.items():
            if name == "nested_loop" and isinstance(inside, list):
                self._loop(inside, outer)
            elif name == "table" and isinstance(inside, Mapping):
                self._table(inside, outer)
            else:
                self.take(inside, outer)

    def _loop(self, tables: list[Any], outer: float) -> None:
        times = outer
        for number, one in enumerate(tables):
            table = one.get("table") if isinstance(one, Mapping) else None
            if not isinstance(table, Mapping):
                self.take(one, times)
                continue
            buffered = table.get("using_join_buffer")
            if number:
                self.joins.append(str(buffered).lower() if buffered else "nested loop")
            self._table(table, outer if buffered else times)
            times = outer * (_number(table.get("rows_produced_per_join")) or 1.0)

    def _table(self, table: Mapping[str, Any], times: float) -> None:
        name, kind = str(table.get("table_name", "")), table.get("access_type")
        if isinstance(kind, str) and name and not name.startswith("<"):
            path = _PATHS.get(kind)
            if path is None:
                raise ReadError(f"the plan reads {name} by {kind!r}, which is not known here")
            scan = _number(table.get("rows_examined_per_scan"))
            index = "" if path is AccessPath.FULL_SCAN else str(table.get("key", ""))
            self.accesses.append(
                TableAccess(
                    name, path, index, None if scan is None else scan * times, size=scan if path.whole else None
                )
            )
            self.rows = _number(table.get("rows_produced_per_join"))
        self.take({key: value for key, value in table.items() if isinstance(value, Mapping | list)}, times)


def read_plan(text: str) -> QueryPlan:
    """Return the plan of an answer to EXPLAIN FORMAT=JSON.

    Raises ReadError: it is no such document, or one of version 2.
    """
    document = _document(text)
    walk = _BlockWalk()
    walk.take(document["query_block"])
    return QueryPlan(tuple(walk.accesses), tuple(walk.joins), walk.sorts, walk.temporary, walk.rows)


def _document(text: str) -> Mapping[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(f"the source's plan is no JSON: {error}") from None
    if not isinstance(document, Mapping) or "query_block" not in document:
        known = ", ".join(_keys(document)) or type(document).__name__
        raise ReadError(
            f"the source's plan has no query_block ({known})",
            hint="It is MySQL's JSON format 1 that is read: SET explain_json_format_version=1.",
        )
    return document


def _keys(document: Any) -> Iterator[str]:
    if isinstance(document, Mapping):
        yield from sorted(map(str, document))[:5]


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
