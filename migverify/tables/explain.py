"""What a run would do to the servers, asked of the servers: EXPLAIN of the very statements that would run."""

from __future__ import annotations

import re
from dataclasses import dataclass

from migverify.db.reader import SidePlan
from migverify.db.session import Session
from migverify.errors import ReadError
from migverify.model import Flavor, KeyRange
from migverify.sql.checksum import walk_sql
from migverify.sql.server import explain_sql
from migverify.tables.plan import read_statements
from migverify.tables.tasks import PairPlan

_FUNCTIONS = re.compile(r"\b([a-z0-9_]+)\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SideExplain:
    """How one side would run the checksum of a pair.

    ``access`` is the index or scan; ``pushed`` says whether TiDB aggregates in the storage nodes (None elsewhere);
    ``warnings`` are for the reader.
    """

    endpoint: str
    statement: str
    access: str
    pushed: bool | None
    warnings: tuple[str, ...]


def explain_side(session: Session, pair: PairPlan, side: SidePlan) -> SideExplain:
    """Explain the checksum statement of one side.

    A range in the middle of the key space is explained where there is a range key, because an open range reads the
    whole table and says nothing about the index.
    """
    statement = read_statements(pair, side, _sample_range(session, side))["checksum"]
    try:
        rows = session.query_named(explain_sql(session.flavor, statement))
    except ReadError as error:
        return SideExplain(side.endpoint.name, statement, "unknown", None, (f"EXPLAIN failed: {error.message}",))
    if session.flavor is Flavor.TIDB:
        return _tidb(side, statement, rows, pair)
    return _mysql(side, statement, rows, pair)


def _sample_range(session: Session, side: SidePlan) -> KeyRange:
    """Return a range of a hundred rows at the small end of the key; the whole table when it has fewer."""
    found = session.query(walk_sql(side.sql, KeyRange(), 100)) if side.sql.range_key else []
    families = {column.family for column in side.sql.range_key}
    if not found or "binary" in families:
        return KeyRange()
    return KeyRange(None, tuple(found[0][:1]))


def _tidb(side: SidePlan, statement: str, rows: list[dict[str, str | None]], pair: PairPlan) -> SideExplain:
    tasks = [(str(row.get("id")), str(row.get("task"))) for row in rows]
    pushed = any("Agg" in name and task.startswith("cop") for name, task in tasks)
    access = next((f"{row.get('id')} {row.get('access object')} {row.get('operator info')}" for row in rows
                   if "Scan" in str(row.get("id"))), "unknown")  # fmt: skip
    warnings = []
    if not pushed:
        root = [str(row.get("operator info")) for row in rows if str(row.get("task")) == "root"]
        blocked = sorted({f.lower() for text in root for f in _FUNCTIONS.findall(text)} - {"column", "funcs"})
        left = ", ".join(blocked) or "unknown"
        warnings.append(
            "the checksum is not computed in the storage nodes (no aggregate in cop[tikv]): every row is sent to TiDB"
            f" first; expressions left at the root: {left}"
        )
    if not pair.whole and "FullScan" in access:
        warnings.append("a chunk reads the whole table: no index serves the range")
    return SideExplain(side.endpoint.name, statement, _tidy(access), pushed, tuple(warnings))


def _mysql(side: SidePlan, statement: str, rows: list[dict[str, str | None]], pair: PairPlan) -> SideExplain:
    row = rows[0] if rows else {}
    key, kind = row.get("key"), row.get("type")
    access = f"{kind} on {key}" if key else f"{kind}"
    warnings = []
    if not pair.whole and kind == "ALL" and pair.rows > 1000:
        warnings.append("a chunk reads the whole table: no index serves the range")
    return SideExplain(side.endpoint.name, statement, access, None, tuple(warnings))


def _tidy(text: str) -> str:
    return re.sub(r"[└─├│\s]+", " ", text).strip()
