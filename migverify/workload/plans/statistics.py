"""What TiDB's optimizer knows of the tables: without statistics, or with old ones, a plan says nothing of the next one.

``SHOW STATS_HEALTHY`` is 100 less the share of rows changed since ANALYZE; TiDB goes on using what is old.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from migverify.db.session import Session
from migverify.model import IndexDef
from migverify.sql.quoting import quote_name, quote_text

LEAST_ROWS = 1_000
_CONTRADICTS = 4
"""By which factor the rows of both sides have to differ: the source's are an estimate."""
LEAST_HEALTH = 80
"""Percent; below, the statistics of a table are stale. TiDB analyzes by itself below 50."""


@dataclass(frozen=True, slots=True)
class TableStatistics:
    """``rows`` and ``changed`` as TiDB counts them; ``health`` is None where the table was never analyzed.

    ``updated`` is the time of their last change as TiDB writes it, empty where it is not known.
    """

    rows: int
    changed: int
    health: int | None
    updated: str = ""

    @property
    def is_stale(self) -> bool:
        """Whether many rows changed since they were taken."""
        return self.health is not None and self.health < LEAST_HEALTH

    @property
    def missing(self) -> str:
        """Why a plan over this table cannot be judged, empty where it can."""
        if self.health is None:
            return "was never analyzed"
        if self.is_stale:
            return f"has stale statistics: {self.changed:,} changes since they were taken, {self.rows:,} rows"
        return ""


Indexes = Mapping[tuple[str, str], Mapping[str, IndexDef]]
"""Indexes by database and table, then by name, lower case."""


@dataclass(frozen=True, slots=True)
class TargetTables:
    """What the target's catalog says, by database and table, lower case: statistics and indexes.

    ``source_rows`` are the rows that the source's catalog estimates: statistics that say something else are wrong.
    ``source_indexes`` are the indexes that the source has.
    """

    statistics: Mapping[tuple[str, str], TableStatistics] = field(default_factory=dict)
    indexes: Indexes = field(default_factory=dict)
    source_rows: Mapping[tuple[str, str], int] = field(default_factory=dict)
    source_indexes: Indexes = field(default_factory=dict)


def read_statistics(session: Session, databases: Iterable[str]) -> Mapping[tuple[str, str], TableStatistics]:
    """Return the statistics of TiDB's tables by database and table, lower case; partitions count together.

    Raises ReadError where the user may not see them.
    """
    found: dict[tuple[str, str], TableStatistics] = {}
    for database in sorted({one.lower() for one in databases}):
        where = f"WHERE LOWER(db_name) = {quote_text(database)}"
        health: dict[str, int] = {}
        for row in session.query_named(f"SHOW STATS_HEALTHY {where}"):
            table, percent = str(row["Table_name"]).lower(), int(row["Healthy"] or 0)
            health[table] = min(percent, health.get(table, 100))
        analyzed = _analyzed(session, where)
        for row in session.query_named(f"SHOW STATS_META {where}"):
            table = str(row["Table_name"]).lower()
            before = found.get((database, table), TableStatistics(0, 0, None))
            if row["Partition_name"] == "global":
                continue
            found[database, table] = TableStatistics(
                before.rows + int(row["Row_count"] or 0), before.changed + int(row["Modify_count"] or 0),
                health.get(table) if table in analyzed else None, max(before.updated, str(row["Update_time"] or "")),
            )  # fmt: skip
    return found


def _analyzed(session: Session, where: str) -> frozenset[str]:
    """Return the tables with at least one histogram; a table has a line in STATS_META before anybody analyzed it."""
    return frozenset(str(row["Table_name"]).lower() for row in session.query_named(f"SHOW STATS_HISTOGRAMS {where}"))


def contradiction(known: TableStatistics, source_rows: int | None) -> str:
    """Return that statistics are not of the rows that the table should have, empty where nothing says so."""
    if source_rows is None:
        return ""
    low, high = sorted((max(known.rows, 1), max(source_rows, 1)))
    if high < LEAST_ROWS or high < _CONTRADICTS * low:
        return ""
    return f"has statistics of {known.rows:,} rows, where the source has about {source_rows:,}"


def analyze(database: str, table: str) -> str:
    """Return the statement that takes a table's statistics."""
    return f"ANALYZE TABLE {quote_name(database)}.{quote_name(table)}"
