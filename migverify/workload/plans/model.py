"""A query plan reduced to what decides how long a statement takes: how tables are read, and what comes above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from migverify.model import Side

TRIED = "migverify_trial"
"""The name of an index that is tried on a clone: no other is ever dropped."""


class AccessPath(StrEnum):
    """How the rows of one table are found."""

    POINT = "unique lookup"
    LOOKUP = "index lookup"  # by equal values, or by the rows of another table
    RANGE = "index range"
    MERGE = "index merge"
    INDEX_SCAN = "whole index"
    FULL_SCAN = "whole table"

    @property
    def whole(self) -> bool:
        """Whether every row, or every entry of an index, is read."""
        return self in (AccessPath.INDEX_SCAN, AccessPath.FULL_SCAN)


@dataclass(frozen=True, slots=True)
class TableAccess:
    """One table as a plan reads it.

    Parameters
    ----------
    table
        As the statement names it: its alias where it has one.
    index
        Empty where the table itself is read whole; ``PRIMARY`` for the primary key.
    estimated, actual
        Rows read in all, over all rows of the tables before it; None where the server does not tell.
    size
        Rows of the table as the server's statistics know them; None where the plan does not tell.
    statistics
        What the server says is missing of the table's statistics, empty where nothing is.
    """

    table: str
    path: AccessPath
    index: str = ""
    estimated: float | None = None
    actual: float | None = None
    size: float | None = None
    statistics: str = ""

    @property
    def how(self) -> str:
        """The access in words, without numbers."""
        return f"{self.path} {self.index} of {self.table}" if self.index else f"{self.path} {self.table}"

    def __str__(self) -> str:
        rows = [] if self.estimated is None else [f"about {self.estimated:,.0f} rows"]
        rows += [] if self.actual is None else [f"{self.actual:,.0f} read"]
        return f"{self.how} ({', '.join(rows)})" if rows else self.how


@dataclass(frozen=True, slots=True)
class RootFilter:
    """A condition that TiDB checks itself, row by row, as the storage cannot: ``read`` rows come, ``kept`` are left."""

    condition: str
    read: float
    kept: float


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One plan. ``accesses`` are in the order of the plan, ``joins`` the kinds of join from the top down.

    ``rows`` are what the statement is estimated to give, ``actual`` what it gave (EXPLAIN ANALYZE).
    """

    accesses: tuple[TableAccess, ...] = ()
    joins: tuple[str, ...] = ()
    sorts: int = 0
    temporary: bool = False
    rows: float | None = None
    actual: float | None = None
    filters: tuple[RootFilter, ...] = ()
    pushed: tuple[str, ...] = ()

    @property
    def read(self) -> float:
        """Rows read in all, as estimated."""
        return sum(one.estimated or 0.0 for one in self.accesses)

    @property
    def shape(self) -> str:
        """What makes two plans the same plan: accesses, joins and sorts, without numbers."""
        return self._told([one.how for one in self.accesses])

    def __str__(self) -> str:
        return self._told([str(one) for one in self.accesses])

    def _told(self, parts: list[str]) -> str:
        above = [*self.joins, *(["sort" if self.sorts == 1 else f"{self.sorts} sorts"] if self.sorts else [])]
        return ", ".join([*parts, *above, *(["temporary table"] if self.temporary else [])]) or "no table"


@dataclass(frozen=True, slots=True)
class PlanAnswer:
    """What one side answered to EXPLAIN: a plan, or the reason why there is none.

    ``uncached`` is why TiDB's plan cache does not hold the prepared statement, empty where it does, or it is none.
    ``errno`` is the number of the error by which the server refused, 0 where it did not.
    """

    plan: QueryPlan | None = None
    reason: str = ""
    uncached: str = ""
    errno: int = 0


@dataclass(frozen=True, slots=True)
class SamplePlans:
    """Both sides' plans of one call of a digest.

    ``origin`` is where the capture has it, ``captured_errno`` the error that it got there: 0 for none, None where that
    is not known.
    """

    origin: str
    sql: bytes
    plans: Mapping[Side, PlanAnswer] = field(default_factory=dict)
    captured_errno: int | None = None


@dataclass(frozen=True, slots=True)
class DigestPlans:
    """The plans of a digest's samples. ``calls`` of the capture, ``seconds`` they took on the source, if known."""

    digest: str
    text: str
    database: str
    tables: tuple[str, ...]
    calls: int
    seconds: float | None
    samples: tuple[SamplePlans, ...] = ()
    skipped: str = ""


class Harm(StrEnum):
    """Kinds of findings, in the order of harm."""

    FULL_SCAN = "full scan"
    INDEX_LOST = "index lost"
    PUSHDOWN_LOST = "pushdown lost"
    CHANGED = "plan changed"
    VARIES = "plan varies"
    ESTIMATE = "estimate off"
    UNCACHED = "plan not cached"


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a remedy brought on a marked clone, or the reason why that is not known. Pairs are before and after.

    ``rows`` were read by one call (EXPLAIN ANALYZE), ``p50`` is the median latency of ``calls`` that were replayed, in
    microseconds. ``helped``: a fraction of the rows was read.
    """

    remedy: str
    clone: str
    rows: tuple[float, float] | None = None
    p50: tuple[int | None, int | None] = (None, None)
    calls: tuple[int, int] = (0, 0)
    helped: bool = False
    reason: str = ""

    def __str__(self) -> str:
        if self.rows is None:
            return f"not tried on clone {self.clone}: {self.reason}"
        before, after = ("-" if one is None else f"{one / 1000:,.1f} ms" for one in self.p50)
        return (
            f"tried on clone {self.clone}: rows {self.rows[0]:,.0f} -> {self.rows[1]:,.0f}, p50 {before} -> {after}"
            f" in {self.calls[0]:,} and {self.calls[1]:,} calls{'' if self.helped else '; it does not help'}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "remedy": self.remedy, "clone": self.clone, "rows": None if self.rows is None else list(self.rows),
            "p50_microseconds": list(self.p50), "calls": list(self.calls), "helped": self.helped,
            "reason": self.reason,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TrialResult:
        """Return what ``as_json`` gave."""
        rows, (before, after), (first, second) = body["rows"], body["p50_microseconds"], body["calls"]
        return cls(
            str(body["remedy"]), str(body["clone"]), None if rows is None else (float(rows[0]), float(rows[1])),
            (before, after), (int(first), int(second)), bool(body["helped"]), str(body["reason"]),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlanFinding:
    """What will hurt about a digest on the target.

    ``remedy`` is a statement or a next step; ``proved``: it was tried, and the target read a fraction of the rows.
    ``index`` is the one that the source uses, ``sample`` the number of the sample that shows it. ``from_catalog``: it
    holds for any statistics of the target.
    """

    harm: Harm
    table: str
    reason: str
    remedy: str = ""
    proved: bool = False
    index: str = ""
    sample: int = 0
    from_catalog: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "harm": self.harm.value, "table": self.table, "reason": self.reason, "remedy": self.remedy,
            "proved": self.proved, "index": self.index,
        }  # fmt: skip
