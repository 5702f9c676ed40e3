"""The tables road on real servers, in this process or as a command, for the tests of its reliability."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from migverify.config import load_config
from migverify.model import RowDiff, TableResult, Verdict
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.tables.engine import LocalTaskEngine
from migverify.tables.prepare import prepare
from migverify.tables.quick import QuickRead
from migverify.tables.run import VerifyRequest, run_tables
from migverify.tables.verify import VerifyProgress
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect


def write_config(
    folder: Path, pair: LabServers, database: str, *, source: dict[str, Any] | None = None,
    target: dict[str, Any] | None = None, limits: dict[str, Any] | None = None, **other: Any,
) -> Path:  # fmt: skip
    """Write a configuration with small chunks and short waits; returns its path."""
    sides = {}
    for side, server, more in (("source", pair.source, source), ("target", pair.target, target)):
        scheme = "tidb" if server.flavor == "tidb" else "mysql"
        url = f"{scheme}://{server.user}@{server.host}:{server.port}"
        sides[side] = {"url": url, "connections": 2, **(more or {})}
    document = {
        **sides,
        "store": "sqlite:///runs.db",
        "tables": {"include": [f"{database}.*"]},
        "limits": {"chunk_rows": 500, "max_chunk_rows": 500, "retries": 2, "retry_seconds": 0.1, **(limits or {})},
        "recheck": {"delay": 0.2, "rounds": 1},
        "consistency": "quiescent",
        **other,
    }
    path = folder / "migverify.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


@dataclass
class Ending:
    """How a run ended. ``diffs`` are the confirmed row diffs as (table, key)."""

    run_id: str
    verdict: Verdict
    results: dict[str, TableResult]
    diffs: set[tuple[str, tuple[str | None, ...]]]

    @property
    def reasons(self) -> str:
        return "; ".join(reason for result in self.results.values() for reason in result.reasons)


def verify(
    config: Path, *, resume: str | None = None, recheck: str | None = None, since: str | None = None,
    on_start: Callable[[str], None] = lambda _: None, on_progress: Callable[[VerifyProgress], None] = lambda _: None,
    slots: int = 2, quick: QuickRead | None = None,
) -> Ending:  # fmt: skip
    """Run the local engine in this process."""
    loaded = load_config(config)
    store = open_store(f"sqlite:///{config.parent / 'runs.db'}")
    engine = LocalTaskEngine({}, slots)
    try:
        prepared = prepare(loaded, {})
        run_id, verdict = run_tables(
            prepared, loaded, {}, engine, store, VerifyRequest("verify", resume, recheck, since, quick=quick),
            on_progress, on_start,
        )  # fmt: skip
        return ending(store, run_id, verdict)
    finally:
        engine.close()
        store.close()


def ending(store: ResultStore, run_id: str, verdict: Verdict) -> Ending:
    results = {result.pair: result for result in store.table_results(run_id)}
    diffs = {
        (name, diff.key) for name in results for diff in all_diffs(store, run_id, name) if diff.state == "diverged"
    }
    return Ending(run_id, verdict, results, diffs)


def all_diffs(store: ResultStore, run_id: str, pair: str) -> list[RowDiff]:
    found: list[RowDiff] = []
    after = 0
    while page := store.row_diffs(run_id, pair, after=after):
        found += [diff for _, diff in page]
        after = page[-1][0]
    return found


def command(config: Path, *arguments: str) -> list[str]:
    return [
        sys.executable, "-m", "migverify", "tables", "verify", "--engine", "local", "--json", "--config", str(config),
        *arguments,
    ]  # fmt: skip


def begin(config: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    """Start the command; returns when it says its run id or ends."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **options.pop("env", {})}
    process = subprocess.Popen(
        command(config, *arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True, **options,
    )  # fmt: skip
    assert process.stderr is not None
    process.first_line = _first_line(process.stderr.fileno())  # type: ignore[attr-defined]
    return process


def _first_line(messages: int) -> str:
    """One line and no byte more: ``communicate`` reads past what a text reader has taken ahead, and would lose it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(messages, 1)):
        line += byte
    return line.decode()


def run_command(config: Path, *arguments: str, **options: Any) -> tuple[int, dict[str, Any], str]:
    """Run the command to its end; returns exit code, the JSON object it printed, and its messages."""
    process = begin(config, *arguments, **options)
    output, messages = process.communicate(timeout=300)
    messages = process.first_line + messages  # type: ignore[attr-defined]
    return process.returncode, json.loads(output) if output.strip() else {}, messages


def execute(server: LabServer, *statements: str, database: str | None = None) -> list[tuple[Any, ...]]:
    """Run statements as the administrator; returns the rows of the last one."""
    with connect(server, database) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def fill(pair: LabServers, database: str, rows: int, table: str = "t") -> None:
    """Make a table of ``rows`` rows on both sides, keys 1 to ``rows``."""
    for server in (pair.source, pair.target):
        with connect(server, database) as connection, connection.cursor() as cursor:
            cursor.execute(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v VARCHAR(60) NOT NULL, n INT)")
            cursor.execute(f"INSERT INTO {table} WITH RECURSIVE r AS (SELECT 1 n UNION ALL SELECT n+1 FROM r"
                           " WHERE n<1000) SELECT n, CONCAT('value ', n), n FROM r")  # fmt: skip
            have = 1000
            while have < rows:
                more = min(have, rows - have)
                cursor.execute(f"INSERT INTO {table} SELECT id+{have}, CONCAT('value ', id+{have}), n FROM {table}"
                               f" WHERE id<={more}")  # fmt: skip
                have += more
            cursor.execute(f"DELETE FROM {table} WHERE id > {rows}")
            cursor.execute(f"ANALYZE TABLE {table}")
