"""One run as one JSON object: the contract of ``tables verify --json`` and ``report --format json``."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from migverify.model import NotCovered, SchemaDifference
from migverify.report.marks import Clip
from migverify.report.rules_data import rule_as_dict
from migverify.report.summary import ColumnSample, ReportData, RowSample, TableReport


def run_as_dict(data: ReportData) -> dict[str, Any]:
    """Return the run as plain values.

    The keys of the object are ``run_id, verdict, exit_code, seconds, tables``, and ``rules`` where the run has any.
    ``seconds`` is None when the end of the run is not known; ``rows_source`` and ``rows_target`` are None when not
    counted. The counts in ``row_diffs`` are exact; ``row_diff_samples`` says how many of them are listed.
    """
    rules = {"rules": [rule_as_dict(rule) for rule in data.rules]} if data.rules else {}
    return {
        "run_id": data.run_id,
        "verdict": str(data.verdict),
        "exit_code": int(data.exit_code),
        "seconds": _number(data.seconds),
        "tables": [_table(table) for table in data.tables],
        **rules,
    }


def render_json(data: ReportData) -> str:
    """Return the run as JSON text of ASCII characters, ending in a newline."""
    # ASCII: a control, bidi or lone surrogate character in a name cannot break a terminal or a reader.
    return json.dumps(run_as_dict(data), indent=2, allow_nan=False) + "\n"


def _table(table: TableReport) -> dict[str, Any]:
    result = table.result
    return {
        "pair": result.pair,
        "source": result.source,
        "target": result.target,
        "verdict": str(result.verdict),
        "reasons": list(result.reasons),
        "rows_source": result.rows_source,
        "rows_target": result.rows_target,
        "chunks": result.chunks,
        "lanes": [str(lane) for lane in result.lanes],
        "row_diffs": {
            "missing_on_target": result.missing_on_target,
            "missing_on_source": result.missing_on_source,
            "value_differs": result.value_differs,
        },
        "row_diff_samples": _samples(table),
        "not_covered": [_not_covered(item) for item in result.not_covered],
        "seconds": _number(result.seconds),
        "schema": [_schema(item) for item in result.schema],
        "blind_spots": list(result.blind_spots),
        "hash": result.hash_name,
        "details": _plain(result.details),
    }


def _samples(table: TableReport) -> dict[str, Any]:
    rows = table.detail.samples if table.detail else ()
    return {"shown": len(rows), "stored": table.stored_row_diffs, "rows": [_row(row) for row in rows]}


def _row(row: RowSample) -> dict[str, Any]:
    return {
        "key": list(row.key),
        "kind": row.kind,
        "state": row.state,
        "columns": [_column(column) for column in row.columns],
        "source_count": row.source_count,
        "target_count": row.target_count,
        "shard": row.shard,
    }


def _column(column: ColumnSample) -> dict[str, Any]:
    out: dict[str, Any] = {"column": column.column, "kind": column.kind, "masked": column.masked}
    if not column.masked:
        out["source"] = _clip(column.source)
        out["target"] = _clip(column.target)
    return out


def _clip(clip: Clip | None) -> dict[str, Any] | None:
    if clip is None or clip.text is None:
        return None
    return {"text": clip.text, "characters_before": clip.before, "characters_after": clip.after}


def _not_covered(item: NotCovered) -> dict[str, str]:
    return {"what": item.what, "reason": item.reason}


def _schema(item: SchemaDifference) -> dict[str, Any]:
    return {
        "kind": item.kind,
        "where": item.where,
        "source": item.source,
        "target": item.target,
        "level": str(item.level),
        "message": item.message,
    }


def _number(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3)


def _plain(value: object) -> Any:
    """Return JSON's own types; what JSON has no form for (NaN, Decimal, bytes) becomes its text."""
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(item) for item in items]
    return str(value)
