"""Who runs: migverify on both engines, the bare scan, sync-diff-inspector, reladiff."""

from __future__ import annotations

import json
import queue
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.faults.adapters.sync_diff_inspector import CONFIG
from bench.measure import Contender, Figures, ServerClock, run_command
from bench.setting import Setting, connect, execute, plan
from migverify.model import Endpoint, KeyRange
from migverify.sql.checksum import SideSql, checksum_sql
from migverify.tables.tasks import PairPlan

PARTS_EACH = 8
"""Ranges of the bare scan per connection: few enough to cost nothing, enough to keep every connection busy."""

RELADIFF_COLUMNS = "l_%"


def migverify(
    setting: Setting, *, engine: str = "local", slots: int = 4, source_database: str | None = None,
    rules: Mapping[str, Any] | None = None,
) -> Contender:  # fmt: skip
    """Return a contender that verifies in a process of its own; the clock runs inside ``verify_tables`` only."""
    asked = json.dumps({
        "source": url(setting.source), "target": url(setting.target), "database": setting.database,
        "table": setting.table, "source_database": source_database, "engine": engine, "slots": slots,
        "rules": dict(rules or {}), "hash": setting.hash,
    })  # fmt: skip

    def run() -> Figures:
        _, text = run_command([sys.executable, "-m", "bench.one_run", asked], setting.clock)
        return Figures(**json.loads(text.splitlines()[-1]))

    return run


def command_line(setting: Setting) -> Contender:
    """Return ``migverify tables verify`` as a whole process: start, plan, run, store, verdict."""

    def run() -> Figures:
        with tempfile.TemporaryDirectory(prefix="bench-cli-") as folder:
            config = Path(folder, "migverify.yaml")
            config.write_text(
                f"source: {{url: '{url(setting.source)}'}}\ntarget: {{url: '{url(setting.target)}'}}\n"
                f"tables: {{include: ['{setting.database}.{setting.table}']}}\n"
            )
            figures, text = run_command(
                [sys.executable, "-m", "migverify", "tables", "verify", "--config", str(config)],
                setting.clock,
                cwd=folder,
            )
        return replace(figures, note="MATCH" if "MATCH" in text and "MISMATCH" not in text else text[-80:])

    return run


def inspector_statements(setting: Setting, connections: int = 4) -> Contender:
    """Return sync-diff-inspector's checksum statements alone: its chunks of 50,000 rows, its threads, nothing else.

    A floor of what the tool takes, for machines where the tool itself cannot be had.
    """
    from bench.expressions import INSPECTOR

    pair = plan(setting)
    parts = max(1, -(-int(str(execute(setting.source, _COUNT.format(setting))[0][0])) // 50_000))

    def run() -> Figures:
        return scan(setting.clock, statements(pair, parts, lambda _: f"COUNT(*) AS CNT,{INSPECTOR}"), connections)

    return run


_COUNT = "SELECT COUNT(*) FROM `{0.database}`.`{0.table}`"


def url(where: Endpoint) -> str:
    """Return the endpoint as a URL; bench users have no password."""
    return f"mysql://{where.user}@{where.host}:{where.port}"


def bare_scan(setting: Setting, connections: int = 4, expression: Callable[[SideSql], str] | None = None) -> Contender:
    """Return a contender that only sends checksum statements: ``connections`` a side, even ranges, no comparison.

    What migverify does beyond this (count, walk, compare, store) is its overhead. ``expression`` replaces the
    selected expressions.
    """
    pair = plan(setting)

    def run() -> Figures:
        return scan(setting.clock, statements(pair, connections * PARTS_EACH, expression), connections)

    return run


def statements(
    pair: PairPlan, parts: int, expression: Callable[[SideSql], str] | None = None
) -> list[tuple[Endpoint, list[str]]]:
    """Return, for each side, the checksum statements of ``parts`` even ranges of the first key column."""
    found = []
    for side in pair.sides:
        column = side.sql.range_key[0].name
        low, high = (
            int(str(v)) for v in execute(side.endpoint, f"SELECT MIN({column}),MAX({column}) FROM {side.sql.table}")[0]
        )
        marks = [(str(low + (high - low) * n // parts),) for n in range(1, parts)]
        ranges = [KeyRange(a, b) for a, b in zip([None, *marks], [*marks, None], strict=True)]
        texts = [checksum_sql(side.sql, r) if expression is None
                 else f"SELECT {expression(side.sql)} FROM {side.sql.table} WHERE {side.sql.condition(r)}"
                 for r in ranges]  # fmt: skip
        found.append((side.endpoint, texts))
    return found


def scan(clock: ServerClock, work: list[tuple[Endpoint, list[str]]], connections: int) -> Figures:
    """Run statements on ``connections`` connections a side, and measure until the last is done."""
    threads = []
    errors: list[BaseException] = []
    for where, texts in work:
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for text in texts:
            waiting.put(text)
        threads += [threading.Thread(target=_drain, args=(where, waiting, errors)) for _ in range(connections)]
    used = time.process_time()
    clock.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    figures = clock.stop()
    if errors:
        raise errors[0]
    return replace(figures, client_cpu=time.process_time() - used)


def _drain(where: Endpoint, waiting: queue.SimpleQueue[str], errors: list[BaseException]) -> None:
    try:
        with connect(where) as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION group_concat_max_len=64000000")
            while True:
                try:
                    text = waiting.get_nowait()
                except queue.Empty:
                    return
                cursor.execute(text)
                cursor.fetchall()
    except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
        errors.append(error)


def sync_diff_inspector(setting: Setting, *, threads: int = 4, source_database: str | None = None) -> Contender:
    """Return sync-diff-inspector as a whole process with its own defaults; repair files on only for differences."""
    if setting.sdi is None:
        raise LookupError("no sync_diff_inspector: name one with --sdi")
    program = setting.sdi
    database = source_database or setting.database

    def run() -> Figures:
        with tempfile.TemporaryDirectory(prefix="bench-sdi-") as folder:
            config = Path(folder, "config.toml")
            config.write_text(CONFIG.format(
                threads=threads, source=setting.source, target=setting.target, database=setting.database,
                source_database=database, table=setting.table, folder=folder,
                fix="true" if source_database else "false",
            ))  # fmt: skip
            command = [program, "--config", str(config)]
            figures, _ = run_command(command, setting.clock, cwd=folder, ok=frozenset({0, 1}))
            summary = Path(folder, "out", "summary.txt").read_text()
        same = "passed" in summary or "equivalent" in summary
        found = " ".join(line.strip() for line in summary.splitlines() if "+" in line and "/-" in line)
        return replace(figures, note=found[:100] if found else "equal" if same else "different")

    return run


def reladiff(setting: Setting, *, threads: int = 4, source_database: str | None = None) -> Contender:
    """Return reladiff as a whole process over all columns; its key is the table's primary key."""
    if setting.reladiff is None:
        raise LookupError("no reladiff: name one with --reladiff")
    program = setting.reladiff
    keys = [column.name.strip("`") for column in plan(setting).sides[0].sql.key]

    def run() -> Figures:
        command = [program, f"{url(setting.source)}/{source_database or setting.database}", setting.table,
                   f"{url(setting.target)}/{setting.database}", setting.table, "--columns", RELADIFF_COLUMNS,
                   "--threads", str(threads), *[part for key in keys for part in ("--key-columns", key)]]  # fmt: skip
        figures, text = run_command(command, setting.clock)
        return replace(figures, extra={"lines": float(text.count("\n"))})

    return run


def available(makers: Mapping[str, Callable[[], Contender]]) -> Iterator[tuple[str, Contender]]:
    """Yield the contenders that can run here, and say which cannot and why."""
    for name, make in makers.items():
        try:
            yield name, make()
        except LookupError as error:
            print(f"  left out: {name}: {error.args[0]}")
