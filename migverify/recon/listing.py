"""All findings of a run as CSV that reads back exactly and that no spreadsheet computes."""

from __future__ import annotations

import csv
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from migverify.errors import UsageError
from migverify.store.results import ResultStore

COLUMNS = (
    "run_id", "rule", "severity", "owner", "window", "class", "of", "key", "message", "deviations", "money", "currency",
    "also", "rows_source", "rows_target", "reads", "at", "shard", "reason",
)  # fmt: skip
"""``key``, ``deviations`` and ``also`` are JSON, so that NULL, empty text and commas stay apart; ``at`` is UTC."""

PAGE = 1000
_FORMULA = tuple("=+-@\t\r\n'＝＋－＠")  # noqa: RUF001 - the wide forms are formulas to some spreadsheets too


def rows(store: ResultStore, run_id: str) -> Iterator[tuple[str, ...]]:
    """Yield every finding of a run, of all classes, in ``COLUMNS``; a page in memory at a time.

    An amount that is not known is empty text; no other cell means NULL.
    """
    info = store.load_run(run_id)
    results = {result.pair: result.details.get("recon", {}) for result in store.table_results(info.run_id)}
    names = [str(name) for name in info.plan.get("rules", [])] or list(results)
    for rule in names:
        after = 0
        while page := store.findings(info.run_id, rule, after=after, limit=PAGE):
            after = page[-1][0]
            for _, body in page:
                yield _row(info.run_id, rule, results.get(rule, {}), body)


def _row(run_id: str, rule: str, facts: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[str, ...]:
    counts = body.get("counts") or (0, 0)
    at = datetime.fromtimestamp(float(body.get("at") or 0.0), UTC)
    return (
        run_id, rule, str(facts.get("severity", "")), str(facts.get("owner", "")), body["window"], body["kind"],
        body.get("of", ""), _json(body["key"]), body.get("message", ""), _json(body.get("deviations", [])),
        body.get("money") or "", body.get("currency") or "", _json(body.get("also", [])), str(counts[0]),
        str(counts[1]), str(body.get("reads", "")), at.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), body.get("shard", ""),
        body.get("reason", ""),
    )  # fmt: skip


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def safe(cell: str) -> str:
    """Return a cell that no spreadsheet computes: what begins like a formula gets an apostrophe before it.

    Injective: a cell that begins with an apostrophe gets one too, and taking one away gives back what was there.
    """
    return "'" + cell if cell.startswith(_FORMULA) else cell


def unsafe(cell: str) -> str:
    """Return what ``safe`` was given."""
    return cell.removeprefix("'")


def write_csv(store: ResultStore, run_id: str, path: Path) -> int:
    """Write all findings of a run; return how many. The file is whole or not there.

    Raises UsageError: the file cannot be written.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
                count = _write(csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\r\n"), store, run_id)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(
            f"cannot write the findings to {path}: {error.strerror or error}",
            hint="Name a file in a folder that exists and is writable.",
        ) from error
    return count


def _write(writer: Any, store: ResultStore, run_id: str) -> int:
    writer.writerow(COLUMNS)
    count = 0
    for row in rows(store, run_id):
        writer.writerow([safe(cell) for cell in row])
        count += 1
    return count
