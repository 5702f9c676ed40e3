"""Reads TiDB's EXPLAIN FORMAT='tidb_json': operators with their estimates, what they read, and the operators below.

Names of operators and of their parts as in TiDB's documentation, "TiDB Query Execution Plan Overview" and "EXPLAIN".
``actRows`` and ``executeInfo`` are there for EXPLAIN ANALYZE alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from migverify.errors import ReadError
from migverify.workload.plans.model import AccessPath, QueryPlan, RootFilter, TableAccess

NO_EVALUATION = b"SET SESSION tidb_opt_enable_non_eval_scalar_subquery=ON"
"""Without it EXPLAIN runs subqueries that give one value; older servers do not know the variable (1193)."""

NO_BINDINGS = b"SET SESSION tidb_use_plan_baselines=OFF"

_TABLE = re.compile(r"table:((?:[^,\\]|\\.)+)")
_INDEX = re.compile(r"index:([^(,]+)")
_STATISTICS = re.compile(r"stats:(pseudo|partial\[[^\]]*\])")
_SUFFIX = re.compile(r"_\d+(?:\((?:Build|Probe)\))?\Z|\((?:Build|Probe)\)\Z")
_PATHS = {
    "Point_Get": AccessPath.POINT, "Batch_Point_Get": AccessPath.POINT, "TableRangeScan": AccessPath.RANGE,
    "IndexRangeScan": AccessPath.RANGE, "TableFullScan": AccessPath.FULL_SCAN, "IndexFullScan": AccessPath.INDEX_SCAN,
}  # fmt: skip
_JOINS = {
    "HashJoin": "hash join", "MergeJoin": "merge join", "IndexJoin": "index join", "IndexHashJoin": "index join",
    "IndexMergeJoin": "index join", "Apply": "nested loop", "CARTESIAN": "cartesian join",
}  # fmt: skip
_SORTS = frozenset({"Sort", "TopN"})
_READERS = frozenset({"TableReader", "IndexReader", "IndexLookUp", "IndexMerge", "Point_Get", "Batch_Point_Get"})
_PUSHED = frozenset({"Selection", "TopN", "Limit", "HashAgg", "StreamAgg", "Projection"})


@dataclass(slots=True)
class _OperatorWalk:
    accesses: list[TableAccess] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    filters: list[RootFilter] = field(default_factory=list)
    pushed: list[str] = field(default_factory=list)
    sorts: int = 0

    def take(self, operator: Mapping[str, Any], merging: bool = False) -> None:
        """Walk an operator and those below it; ``merging``: below an IndexMerge."""
        name = kind_of(operator)
        below = _below(operator)
        if name in _JOINS:
            cartesian = str(operator.get("operatorInfo", "")).startswith("CARTESIAN")
            self.joins.append("cartesian join" if cartesian else _JOINS[name])
        root = operator.get("taskType") == "root"
        if name in _SORTS and root:
            self.sorts += 1
        if not root and name in _PUSHED:
            self.pushed.append(name)
        if name == "Selection" and root and any(kind_of(one) in _READERS for one in below):
            read, kept = _rows(below[0]), _rows(operator)
            if read is not None and kept is not None:
                self.filters.append(RootFilter(str(operator.get("operatorInfo", "")), read, kept))
        if name in _PATHS:
            self._access(name, operator, merging=merging)
        for one in below:
            self.take(one, merging or name == "IndexMerge")

    def _access(self, name: str, operator: Mapping[str, Any], *, merging: bool) -> None:
        seen, info = str(operator.get("accessObject", "")), str(operator.get("operatorInfo", ""))
        table, index = _TABLE.search(seen), _INDEX.search(seen)
        if table is None:
            raise ReadError(f"the target's plan has a {name} without a table: {seen!r}")
        path = AccessPath.MERGE if merging else _PATHS[name]
        if path is AccessPath.RANGE and _equal(info):
            path = AccessPath.LOOKUP
        found = _STATISTICS.search(info)
        rows = _rows(operator)
        self.accesses.append(
            TableAccess(
                table[1], path, index[1] if index else "" if path is AccessPath.FULL_SCAN else "PRIMARY",
                rows, _number(operator.get("actRows")), size=rows if path.whole else None,
                statistics=found[1] if found else "",
            )
        )  # fmt: skip


def kind_of(operator: Mapping[str, Any]) -> str:
    """Return an operator's name without its number and side: ``IndexLookUp`` of ``IndexLookUp_49(Probe)``."""
    return _SUFFIX.sub("", str(operator.get("id", "")))


def _below(operator: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    below = operator.get("subOperators")
    return [one for one in below if isinstance(one, Mapping)] if isinstance(below, list) else []


def _equal(info: str) -> bool:
    """Tell whether each range is one value, or given by the rows of another table."""
    if "range: decided by" in info:
        return True
    ranges = re.findall(r"[\[(]([^\[\]()]*)[\])]", info.partition("range:")[2].partition(", keep order")[0])
    return bool(ranges) and all(len(set(_halves(one))) == 1 for one in ranges)


def _halves(text: str) -> tuple[str, str]:
    """Split ``1 5,1 9`` in the middle; a text of odd parts has two different halves."""
    parts = text.split(",")
    middle = len(parts) // 2
    return ",".join(parts[:middle]), ",".join(parts[middle:]) if len(parts) % 2 == 0 else text + "?"


def read_plan(text: str) -> QueryPlan:
    """Return the plan of an answer to EXPLAIN [ANALYZE] FORMAT='tidb_json'.

    Raises ReadError: it is no such document.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReadError(f"the target's plan is no JSON: {error}") from None
    if not isinstance(document, list) or not document or not all(isinstance(one, Mapping) for one in document):
        raise ReadError("the target's plan is no list of operators")
    walk = _OperatorWalk()
    for one in document:
        walk.take(one)
    rows, actual = _rows(document[0]), _number(document[0].get("actRows"))
    return QueryPlan(
        tuple(walk.accesses), tuple(walk.joins), walk.sorts, False, rows, actual, tuple(walk.filters),
        tuple(walk.pushed),
    )  # fmt: skip


def _rows(operator: Mapping[str, Any]) -> float | None:
    return _number(operator.get("estRows"))


def _number(value: Any) -> float | None:
    """Return a count that is written as text; None for N/A."""
    try:
        return None if value is None or value == "N/A" else float(value)
    except (TypeError, ValueError):
        raise ReadError(f"the target's plan has {value!r} for a number of rows") from None
