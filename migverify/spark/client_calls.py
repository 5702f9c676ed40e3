"""Captured sessions for client libraries: the rows of a few sessions of a capture, as calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.spark.statements import read_columns
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Call, Captured
from migverify.workload.state import State

_COLUMNS = (
    "session", "position", "command", "sql", "database", "start", "end", "clock", "errno", "rows_sent", "rows_affected",
    "parameters", "partial", "autocommit", "in_transaction", "user", "connection",
)  # fmt: skip


def read_calls(capture: Path, sessions: Sequence[str]) -> list[Call]:
    """Return the statements of sessions, by the capture's session id or the server's connection id.

    Raises
    ------
    UsageError
        the folder holds no capture, or none of those sessions.
    """
    wanted = set(sessions)
    found: list[Call] = []
    seen: set[str] = set()
    for batch in read_columns(capture, _COLUMNS):
        rows = (dict(zip(batch, values, strict=True)) for values in zip(*batch.values(), strict=True))
        for row in rows:
            names = {str(row["session"]), str(row["connection"])} & wanted
            if names:
                seen |= names
                found.append(_call(row))
    missing = sorted(wanted - seen)
    if missing:
        raise UsageError(
            f"{capture} has no session {', '.join(missing)}", hint="`session` or `connection` of its rows."
        )
    return found


def _call(row: dict[str, Any]) -> Call:
    parameters = row["parameters"]
    return Call(
        session=str(row["session"]), position=int(row["position"]), sql=bytes(row["sql"]), digest="",
        state=State(database=row["database"], autocommit=row["autocommit"], transaction=bool(row["in_transaction"])),
        captured=Captured(row["errno"], row["rows_sent"], row["rows_affected"]),
        start=row["start"], end=row["end"], clock=row["clock"],
        parameters=None if parameters is None else tuple(Parameter(p["kind"], p["value"]) for p in parameters),
        partial=row["partial"], user=row["user"], command=row["command"],
    )  # fmt: skip
