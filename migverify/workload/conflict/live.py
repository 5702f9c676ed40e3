"""Statements around conflicts from the target's own tables: for who cannot read the files of its slow logs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from migverify.workload.conflict.model import LATEST, Conflict, Seen, time_text, tso_time
from migverify.workload.conflict.names import Query

MOST = 20_000
_AROUND = 5_000_000
_LONGEST = 60_000_000
_COLUMNS = (
    "Time", "Txn_start_ts", "User", "Host", "Conn_ID", "Query_time", "DB", "Is_internal", "Succ", "IsExplicitTxn",
    "Prev_stmt", "Write_keys", "Exec_retry_count", "Txn_retry", "Query",
)  # fmt: skip
_SLOW = (
    "SELECT {columns} FROM information_schema.cluster_slow_query WHERE Time BETWEEN '{low}' AND '{high}'"
    " AND Is_internal IN (0, 1) ORDER BY Time LIMIT {most}"
)
_PRESENT = (
    "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = 'INFORMATION_SCHEMA'"
    " AND TABLE_NAME = 'CLUSTER_SLOW_QUERY'"
)


def slow_queries(query: Query, conflicts: Sequence[Conflict]) -> tuple[list[Seen], int]:
    """Return statements of every node's slow log near the conflicts, and in how many spans there were too many.

    Every query has bounds in time: without, the nodes read all their files. Older versions lack some columns; what
    they would tell is not known then.
    """
    present = {(row[0] or "").lower() for row in query(_PRESENT)}
    columns = [one for one in _COLUMNS if one.lower() in present]
    found: dict[tuple[str | None, ...], Seen] = {}
    full = 0
    for low, high in _spans(conflicts):
        text = _SLOW.format(columns=", ".join(columns), low=_stamp(low), high=_stamp(high), most=MOST)
        rows = query(text)
        full += len(rows) == MOST
        for row in rows:
            found[row] = _seen(dict(zip(columns, row, strict=True)))
    return list(found.values()), full


def _spans(conflicts: Sequence[Conflict]) -> list[tuple[int, int]]:
    """Return spans in which statements of the conflicts were answered, joined where they touch."""
    spans = []
    for one in conflicts:
        tsos = (one.start, one.other_start, one.other_commit)
        times = [tso_time(tso) for tso in tsos if tso is not None and tso != LATEST]
        times += [one.at] if one.at is not None else []
        if times:
            spans.append((min(times) - _AROUND, max(times) + _LONGEST))
    joined: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined


def _stamp(moment: int) -> str:
    return time_text(moment).removesuffix("Z")


def _seen(row: dict[str, str | None]) -> Seen:
    def number(name: str) -> int:
        text = row.get(name) or ""
        return int(text) if text.isdigit() else 0

    def truth(name: str) -> bool | None:
        text = row.get(name)
        return None if text is None else text == "1"

    end = _time(row.get("Time") or "")
    took = round(float(row.get("Query_time") or 0) * 1e6)
    sql = (row.get("Query") or "").encode("utf-8", "surrogateescape").removesuffix(b";")
    return Seen(
        f"cluster_slow_query {row.get('Time')}", row.get("Conn_ID") or "",
        None if end is None else end - took, end, sql,
        row.get("User") or "", row.get("Host") or "", row.get("DB") or "", number("Txn_start_ts") or None,
        truth("Succ"), None, truth("Is_internal") is True, truth("IsExplicitTxn"), row.get("Prev_stmt") or "",
        number("Write_keys"), number("Exec_retry_count") + number("Txn_retry"),
    )  # fmt: skip


def _time(text: str) -> int | None:
    from datetime import UTC, datetime

    if not re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", text):
        return None
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1e6)
