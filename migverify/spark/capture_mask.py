"""Sorted rows become the files of a capture, with literals or without."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from migverify.spark.capture_follow import Follower
from migverify.spark.capture_runs import Runs
from migverify.spark.statements import SCHEMA, StatementFiles
from migverify.workload.capture import EVENTS, CaptureOptions
from migverify.workload.mask import mask_details, mask_parameter, mask_sql, mask_statement, mask_text
from migverify.workload.model import Command, Parameter

_KEPT_TEXTS = 10_000


def masks(options: CaptureOptions) -> bool:
    """Tell whether rows can be masked as the options want it: not at all, or by ``migverify.workload.mask``."""
    return (options.mask, options.text_mask) in ((None, None), (mask_statement, mask_text))


def write_sessions(
    runs: Runs, follower: Follower, folder: Path, *, masked: bool, progress: Callable[[int], None], empty: bool = True
) -> None:
    """Follow sorted rows and write their statements and other commands; ``empty``: a file even without any."""
    folder.mkdir(exist_ok=True)
    statements, events = StatementFiles(folder), StatementFiles(folder / EVENTS)

    def write(asked: pa.Table, others: pa.Table) -> None:
        statements.add_table(mask_table(asked) if masked else asked)
        events.add_table(mask_table(others) if masked else others)

    for rows in runs.slices():
        for asked, others in follower.take(rows):
            write(asked, others)
        progress(follower.counts.statements)
    for asked, others in follower.close():
        write(asked, others)
    counts = follower.counts
    for files, rows_written in ((statements, counts.statements), (events, counts.commands.total() - counts.statements)):
        if empty or rows_written:
            files.close()


def mask_table(table: pa.Table) -> pa.Table:
    """Return statements without the literals of texts, bound values and details; see ``mask_statement``."""
    known: dict[tuple[bytes, str | None, str | None, bool], bytes] = {}

    def text(sql: bytes, mode: str | None, charset: str | None, command: str) -> bytes:
        key = (sql, mode, charset, command == Command.INIT_DB.value)
        found = known.get(key)
        if found is None:
            found = mask_sql(sql, Command(command), mode, charset)
            if len(known) < _KEPT_TEXTS:  # commit and the like; most others come once
                known[key] = found
        return found

    names = ("sql", "sql_mode", "charset", "command")
    made: dict[str, list[object]] = {
        "sql": [text(*told) for told in zip(*(table[name].to_pylist() for name in names), strict=True)],
        "details": [_details(one) for one in table["details"].to_pylist()],
    }
    if table["parameters"].null_count < len(table):
        made["parameters"] = [_bound(one) for one in table["parameters"].to_pylist()]
    for name, values in made.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, SCHEMA.field(name), pa.array(values, SCHEMA.field(name).type))
    return table


def _details(text: str) -> str:
    if not text:
        return ""
    kept = mask_details(json.loads(text))
    return json.dumps(kept, ensure_ascii=False) if kept else ""


def _bound(values: list[dict[str, object]] | None) -> list[dict[str, object]] | None:
    if values is None:
        return None
    found: list[dict[str, object]] = []
    for one in values:
        value = one["value"]
        masked = mask_parameter(Parameter(str(one["kind"]), value if isinstance(value, bytes) else None))
        found.append({"kind": masked.kind, "value": masked.value})
    return found
