"""The shape of a statement's plan on each side: which indexes are used, which tables are read whole.

Recorded and shown, never judged: plans differ between servers by design. A table that only the target reads whole is
flagged, because it is how a statement that answers alike becomes slow.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from migverify.workload.replay.model import Answer, Difference, Severity

_TABLE = re.compile(r"table:([^,\s]+)")
_INDEX = re.compile(r"index:([^(,\s]+)")
_TIDB_FULL = ("TableFullScan", "IndexFullScan")


@dataclass(frozen=True, slots=True)
class PlanShape:
    """``whole`` are tables read whole (an index read from end to end counts), ``indexes`` are ``table.index``."""

    whole: frozenset[str] = frozenset()
    indexes: frozenset[str] = frozenset()

    def __str__(self) -> str:
        parts = []
        if self.indexes:
            parts.append("indexes " + ", ".join(sorted(self.indexes)))
        if self.whole:
            parts.append("reads whole " + ", ".join(sorted(self.whole)))
        return "; ".join(parts) or "no index, no table read whole"


def plan_of(answer: Answer) -> PlanShape | None:
    """Return the shape of the answer to ``EXPLAIN SELECT``; None where it is none of MySQL's or TiDB's tables."""
    if not answer.ok or answer.rows is None:
        return None
    names = [column.name.decode("utf-8", "replace").lower() for column in answer.columns]
    rows = [
        dict(zip(names, ((cell or b"").decode("utf-8", "replace") for cell in row), strict=True)) for row in answer.rows
    ]
    if {"select_type", "type", "key"} <= set(names):
        return _mysql(rows)
    if {"id", "access object"} <= set(names):
        return _tidb(rows)
    return None


def _mysql(rows: list[dict[str, str]]) -> PlanShape:
    real = [row for row in rows if row["table"] and not row["table"].startswith("<")]
    return PlanShape(
        frozenset(row["table"] for row in real if row["type"] in ("ALL", "index")),
        frozenset(f"{row['table']}.{row['key']}" for row in real if row["key"]),
    )


def _tidb(rows: list[dict[str, str]]) -> PlanShape:
    whole, indexes = set(), set()
    for row in rows:
        table, index = _TABLE.search(row["access object"]), _INDEX.search(row["access object"])
        name = table[1] if table else "?"
        if any(word in row["id"] for word in _TIDB_FULL):
            whole.add(name)
        if index:
            indexes.add(f"{name}.{index[1]}")
        elif "TableRangeScan" in row["id"] or "Point_Get" in row["id"] or "Batch_Point_Get" in row["id"]:
            indexes.add(f"{name}.PRIMARY")
    return PlanShape(frozenset(whole), frozenset(indexes))


def explained(
    sql: bytes, source: Callable[[bytes], Answer], target: Callable[[bytes], Answer]
) -> tuple[PlanShape, PlanShape] | None:
    """Ask both sides for the plan of a SELECT; None where one of them does not tell it."""
    first, second = _ask(sql, source), _ask(sql, target)
    return None if first is None or second is None else (first, second)


def _ask(sql: bytes, ask: Callable[[bytes], Answer]) -> PlanShape | None:
    # the default format is a server's variable; TiDB's table has no name that old versions of both know
    return plan_of(ask(b"EXPLAIN FORMAT=TRADITIONAL " + sql)) or plan_of(ask(b"EXPLAIN " + sql))


def compare_plans(source: PlanShape, target: PlanShape) -> Difference | None:
    """Return how the plans differ, for information; None where they do not."""
    if source == target:
        return None
    worse = sorted(target.whole - source.whole)
    detail = f"only the target reads whole: {', '.join(worse)}" if worse else ""
    return Difference("plan", Severity.INFO, str(source), str(target), detail=detail)
