"""An audit as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migverify.changes.audit import StreamAudit
    from migverify.changes.model import Position

SHOWN = 20
_FILE_KEYS = ("name", "events", "bytes", "size", "in_use")


def audit_as_dict(name: str, found: StreamAudit) -> dict[str, Any]:
    """Return what ``--json`` prints of one source."""
    result: dict[str, Any] = {
        "source": name, "verdict": found.verdict.value, "reasons": list(found.reasons), "notes": list(found.notes),
        "first": _place(found.first), "last": _place(found.last), "first_time": found.first_time,
        "last_time": found.last_time, "transactions": found.transactions, "without_gtid": found.accounting.anonymous,
        "gaps": asdict(found.gaps), "bytes_read": found.accounting.bytes_in,
        "bytes_of_files": found.accounting.bytes_of_files,
        "events": {kind: {"events": count, "bytes": size} for kind, (count, size) in found.events.items()},
        "rows_events": found.accounting.rows_events, "tables": dict(sorted(found.tables.items())),
        "files": [{key: getattr(file, key) for key in _FILE_KEYS} for file in found.accounting.files],
        "schema_changes": [asdict(d) | {"op": d.op.value} for d in found.ddl], "schema_change_count": found.ddl_count,
        "largest": None, "heartbeats": found.accounting.heartbeats, "idle_until": found.idle_until,
        "blind_spots": list(found.blind_spots),
    }  # fmt: skip
    if found.largest is not None:
        result["largest"] = asdict(found.largest) | {"at": _place(found.largest.at)}
    return result


def _place(position: Position | None) -> dict[str, Any] | None:
    if position is None:
        return None
    return {"file": position.file, "offset": position.offset, "gtids": position.gtids}


def audit_as_text(name: str, found: StreamAudit) -> Iterator[str]:
    """Yield the lines for a reader."""
    yield f"{name}: the stream is {_complete(found.verdict.value)}"
    yield from (f"  {reason}" for reason in found.reasons)
    yield f"  range         {found.first or 'nothing'} to {found.last or 'nothing'}"
    if found.transactions:
        yield f"  commits       {_moment(found.first_time)} to {_moment(found.last_time)}"
    files = found.accounting
    sizes = f" of {files.bytes_of_files}" if files.bytes_of_files else ""
    yield f"  read          {files.bytes_in}{sizes} bytes, {len(files.files)} files"
    counted = sum(size for _, size in found.events.values())
    yield f"  in the range  {found.transactions} transactions, {counted} bytes"
    for kind, (count, size) in found.events.items():
        yield f"    {kind:<26} {count:>12} events {size:>15} bytes"
    if found.largest is not None:
        at = found.largest.gtid or found.largest.at
        yield f"  largest       {found.largest.bytes} bytes, {found.largest.rows} rows: {at}"
    if found.idle_until:
        beats = f", {found.accounting.heartbeats} heartbeats" if found.accounting.heartbeats else ""
        yield f"  idle          the server had no more at {_moment(found.idle_until)}{beats}"
    for table, ops in sorted(found.tables.items()):
        yield f"  rows          {table}: " + ", ".join(f"{rows} {op}" for op, rows in ops.items())
    for change in found.ddl[:SHOWN]:
        yield f"  schema change {change}"
    if found.ddl_count > SHOWN:
        yield f"  schema change {found.ddl_count - SHOWN} more: see --json"
    yield from (f"  note          {note}" for note in found.notes)
    yield from (f"  blind spot    {spot}" for spot in found.blind_spots)


def _complete(verdict: str) -> str:
    return {"MATCH": "complete", "MISMATCH": "not complete"}.get(verdict, "not proved to be complete")


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if time else "never"
