"""``python -m bench.binlog_spark``: archived binlogs decoded by Spark on two cores and by one process, same files.

Makes its own files: a MySQL of the lab writes bulk inserts, updates and single-row transactions of a table with 12
mixed columns, and ``changes archive`` keeps them. ``--archive DIR`` keeps the files for the next run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from migverify.changes.archive import archive
from migverify.changes.decode import decoder
from migverify.changes.files import file_ranges
from migverify.changes.manifest import read_manifest
from migverify.changes.model import Rows
from migverify.changes.server import BinlogServer
from migverify.changes.source import read_range
from migverify.changes.storage import Storage
from migverify.model import Endpoint
from migverify_lab import mysql
from migverify_lab.engine import temporary_server
from migverify_lab.session import connect

TABLE = """CREATE TABLE pay (id BIGINT UNSIGNED PRIMARY KEY, account BIGINT, amount DECIMAL(18,4), currency CHAR(3),
  state ENUM('new','settled','failed'), created DATETIME(6), changed TIMESTAMP(6) NULL, note VARCHAR(120) NULL,
  token BINARY(16), tries INT UNSIGNED, rate DOUBLE NULL, flag TINYINT(1)) CHARSET utf8mb4"""
C2 = "-XX:TieredStopAtLevel=4"
"""Spark sessions of migverify start with the quick compiler only; rows that pass the JVM want the good one."""
ROWS = """INSERT INTO pay WITH RECURSIVE n AS (SELECT {first} AS i UNION ALL SELECT i + 1 FROM n WHERE i < {last})
  SELECT i, i * 7919, i / 7, ELT(1 + i % 3, 'EUR', 'JPY', 'USD'), 1 + i % 3,
  TIMESTAMP('2026-01-01') + INTERVAL i * 977 MICROSECOND, TIMESTAMP('2026-02-01') + INTERVAL i MICROSECOND,
  IF(i % 5 = 0, NULL, REPEAT('n', i % 90)), UNHEX(SHA2(i, 256)), i % 9, IF(i % 11 = 0, NULL, i / 3), i % 2 FROM n"""


def main() -> None:
    """Print images per second of each way, and the ratios of each round."""
    parser = argparse.ArgumentParser(prog="python -m bench.binlog_spark", description=__doc__)
    parser.add_argument("--archive", type=Path, help="archive to make once and use again; default: a temporary one")
    parser.add_argument("--files", type=int, default=6, help="how many binlog files to make")
    parser.add_argument("--rows", type=int, default=60_000, help="rows inserted per file; as many images are updates")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slots", type=int, default=2, help="Spark: files at a time")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="migverify-bench-") as scratch:
        folder = given.archive or Path(scratch) / "archive"
        if not (folder / "manifest").is_dir():
            make(folder, Path(scratch) / "mysql", given.files, given.rows)
        compare(str(folder), Path(scratch), given.rounds, given.slots)


def make(folder: Path, place: Path, files: int, rows: int) -> None:
    """Let a MySQL write the files, and archive them."""
    with temporary_server(mysql.ENGINE, place, on_progress=print) as server:
        with connect(server) as session, session.cursor() as cursor:
            for statement in ("CREATE DATABASE bench", "USE bench", TABLE, f"SET cte_max_recursion_depth={rows + 1}"):
                cursor.execute(statement)
            for number in range(files):
                first = number * rows + 1
                cursor.execute(ROWS.format(first=first, last=first + rows - 1))
                cursor.execute(
                    "UPDATE pay SET tries = tries + 1 WHERE id BETWEEN %s AND %s", (first, first + rows // 2)
                )
                for key in range(first, first + rows // 60):
                    cursor.execute("UPDATE pay SET flag = 1 - flag WHERE id = %s", (key,))
                cursor.execute("FLUSH BINARY LOGS")
        started = time.perf_counter()
        manifest = archive(
            Storage(str(folder)), BinlogServer(Endpoint("source", server.host, server.port, server.user), None)
        )
        seconds = time.perf_counter() - started
        size = sum(file.bytes for file in manifest.files)
        print(f"archived {size / 1e6:.0f} MB in {seconds:.1f} s: {size / 1e6 / seconds:.0f} MB/s")


def compare(path: str, scratch: Path, rounds: int, slots: int) -> None:
    """Run every way in turn, several rounds."""
    from migverify.spark.binlog_source import read_archive
    from migverify.spark.changes_output import RUNNER, ArchiveSource, read_changes, write_range
    from migverify.spark.engine import SparkEngine
    from migverify.spark.session import close_session, open_session

    storage = Storage(path)
    ranges = file_ranges(read_manifest(storage))

    def texts() -> int:
        return sum(
            len(decoder(item.table).texts(item.images))
            for wanted in ranges for item in read_range(storage, wanted) if isinstance(item, Rows)
        )  # fmt: skip

    def parquet(output: Path) -> None:
        for wanted in ranges:
            task = {"kind": "archive", "source": {"path": path}, "output": str(output), "range": asdict(wanted)}
            write_range(json.dumps(task), {})

    images = texts()
    size = sum(wanted.end - wanted.start for wanted in ranges)
    print(f"{images:,} row images, {size / 1e6:.0f} MB, {len(ranges)} files, {slots} slots")
    started = time.perf_counter()
    session = open_session("local", "bench", {"spark.driver.extraJavaOptions": C2}, slots)
    opened = time.perf_counter() - started
    engine = SparkEngine(session, {}, slots, RUNNER, owns_session=False)

    def table() -> None:
        read_archive(session, path).write.format("noop").mode("overwrite").save()

    ways: dict[str, Callable[[Path], object]] = {
        "one process, to texts": lambda _: texts(),
        "one process, to Parquet": parquet,
        "Spark, as a table": lambda _: table(),
        "Spark, to Parquet": lambda output: read_changes(engine, ArchiveSource(path), str(output)),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    with closing(engine):
        for number in range(rounds + 1):
            for name, way in ways.items():
                output = scratch / f"output-{number}-{name.replace(' ', '-')}"
                started = time.perf_counter()
                way(output)
                seconds = time.perf_counter() - started
                shutil.rmtree(output, ignore_errors=True)
                if number:  # the first round warms the file cache, the JVM and the workers
                    found[name].append(seconds)
    close_session(session)
    for name, seconds in found.items():
        print(f"{name:26} {images / statistics.median(seconds):>10,.0f} images/s")
    print(f"Spark's session started in {opened:.1f} s; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for one, other in (
        ("Spark, to Parquet", "one process, to Parquet"),
        ("Spark, as a table", "one process, to texts"),
    ):
        by_round = [mine / theirs for mine, theirs in zip(found[other], found[one], strict=True)]
        counted = [mine / (theirs + opened) for mine, theirs in zip(found[other], found[one], strict=True)]
        print(
            f"{one} / {other}: {statistics.median(by_round):.2f}x ({min(by_round):.2f}-{max(by_round):.2f});"
            f" session start counted: {statistics.median(counted):.2f}x"
        )


if __name__ == "__main__":
    main()
