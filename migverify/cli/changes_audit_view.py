"""An audit and a delivery as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from migverify.changes.audit import Audit
    from migverify.changes.model import Position
    from migverify.tables.delivered import Delivery, TableDelivery

SHOWN = 20


def audit_as_dict(name: str, found: Audit, delivery: Delivery | None) -> dict[str, Any]:
    """Return what ``--json`` prints of one source."""
    result: dict[str, Any] = {
        "source": name, "verdict": found.verdict.value, "reasons": list(found.reasons), "notes": list(found.notes),
        "first": _place(found.first), "last": _place(found.last), "first_time": found.first_time,
        "last_time": found.last_time, "transactions": found.transactions, "without_gtid": found.anonymous,
        "gaps": asdict(found.gaps), "bytes_read": found.bytes_in, "bytes_of_files": found.bytes_of_files,
        "events": {kind: {"events": count, "bytes": size} for kind, (count, size) in found.events.items()},
        "rows_events": found.rows_events, "tables": found.tables,
        "files": [asdict(file) for file in found.files],
        "schema_changes": [asdict(d) | {"op": d.op.value} for d in found.ddl], "schema_change_count": found.ddl_count,
        "largest": None, "heartbeats": found.idle, "idle_until": found.idle_until,
        "blind_spots": list(found.blind_spots),
    }  # fmt: skip
    if found.largest is not None:
        result["largest"] = asdict(found.largest) | {"at": _place(found.largest.at)}
    if delivery is not None:
        result["delivered"] = delivery_as_dict(delivery)
    return result


def delivery_as_dict(delivery: Delivery) -> dict[str, Any]:
    """Return what ``--json`` prints of a delivery."""
    tables = []
    for table in delivery.tables:
        shown = asdict(table) | {"diffs": [asdict(d) | {"kind": d.kind.value} for d in table.diffs]}
        tables.append(shown | {"undelivered": table.undelivered})
    return {"verdict": delivery.verdict.value, "reasons": list(delivery.reasons), "tables": tables}


def _place(position: Position | None) -> dict[str, Any] | None:
    if position is None:
        return None
    return {"file": position.file, "offset": position.offset, "gtids": position.gtids}


def audit_as_text(name: str, found: Audit, delivery: Delivery | None) -> Iterator[str]:
    """Yield the lines for a reader."""
    yield f"{name}: the stream is {_complete(found.verdict.value)}"
    yield from (f"  {reason}" for reason in found.reasons)
    yield f"  range         {found.first or 'nothing'} to {found.last or 'nothing'}"
    if found.transactions:
        yield f"  commits       {_moment(found.first_time)} to {_moment(found.last_time)}"
    sizes = f" of {found.bytes_of_files}" if found.bytes_of_files else ""
    yield f"  read          {found.bytes_in}{sizes} bytes, {len(found.files)} files"
    counted = sum(size for _, size in found.events.values())
    yield f"  in the range  {found.transactions} transactions, {counted} bytes"
    for kind, (count, size) in found.events.items():
        yield f"    {kind:<26} {count:>12} events {size:>15} bytes"
    if found.largest is not None:
        at = found.largest.gtid or found.largest.at
        yield f"  largest       {found.largest.bytes} bytes, {found.largest.rows} rows: {at}"
    if found.idle_until:
        beats = f", {found.idle} heartbeats" if found.idle else ""
        yield f"  idle          the server had no more at {_moment(found.idle_until)}{beats}"
    for table, ops in found.tables.items():
        yield f"  rows          {table}: " + ", ".join(f"{rows} {op}" for op, rows in ops.items())
    for change in found.ddl[:SHOWN]:
        yield f"  schema change {change}"
    if found.ddl_count > SHOWN:
        yield f"  schema change {found.ddl_count - SHOWN} more: see --json"
    yield from (f"  note          {note}" for note in found.notes)
    yield from (f"  blind spot    {spot}" for spot in found.blind_spots)
    if delivery is not None:
        yield from _delivery_as_text(name, delivery)


def _complete(verdict: str) -> str:
    return {"MATCH": "complete", "MISMATCH": "not complete"}.get(verdict, "not proved to be complete")


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M:%SZ") if time else "never"


def _delivery_as_text(name: str, delivery: Delivery) -> Iterator[str]:
    words = {"MATCH": "was delivered", "MISMATCH": "was not delivered"}
    yield f"{name}: the range {words.get(delivery.verdict.value, 'is not proved to be delivered')}"
    yield from (f"  {reason}" for reason in delivery.reasons)
    for table in delivery.tables:
        yield from _table_as_text(table)


def _table_as_text(table: TableDelivery) -> Iterator[str]:
    from migverify.changes.tail import shown

    if table.not_covered:
        yield f"  {table.pair}: not judged: {table.not_covered}"
        return
    if not table.changed:
        yield f"  {table.pair}: not changed in the range"
        return
    counts = {"equal": table.equal, "missing": table.missing, "still there": table.still_there,
              "differ": table.differs, "changed later": table.pending}  # fmt: skip
    yield f"  {table.pair}: " + ", ".join(f"{count} {word}" for word, count in counts.items())
    if table.left_out:
        yield f"    not judged for rows from before they were added: {', '.join(table.left_out)}"
    for diff in table.diffs[:SHOWN]:
        key = ", ".join("NULL" if part is None else part for part in diff.key)
        columns = ", ".join(
            f"{c.column} ({c.kind}{'' if c.masked else f': {shown(c.source)} became {shown(c.target)}'})"
            for c in diff.columns
        )
        yield f"    {diff.kind.value} {key}{': ' if columns else ''}{columns} (last changed by {diff.at})"
    if table.undelivered > min(SHOWN, len(table.diffs)):
        yield f"    {table.undelivered} in all: see --json"
