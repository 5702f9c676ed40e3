"""TPC-H tables on both sides, from the same files of ``tpchgen-cli``.

A table is made in parts; a part is generated, loaded into both sides at once and deleted, so the disk holds a
few parts and never the whole table. Column types and primary keys are those of the TPC-H specification, with
DECIMAL(15,2) for its decimals.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import yaml

from migverify.errors import LabError, UsageError
from migverify.sql.quoting import quote_name
from migverify_lab.cache import Progress, make_directory
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect

PARTS_AT_ONCE = 4
PART_MEGABYTES = 30.0


@dataclass(frozen=True, slots=True)
class TpchTable:
    """One table: its definition without the name, and how big its file is at scale 1.

    ``fixed`` tables have the same few rows at every scale and come in one part.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    key: tuple[str, ...]
    megabytes: float
    fixed: bool = False

    def ddl(self, database: str) -> str:
        """Return the CREATE TABLE statement: every column NOT NULL."""
        lines = [f"  {name} {kind} NOT NULL" for name, kind in self.columns]
        lines.append(f"  PRIMARY KEY ({', '.join(self.key)})")
        body = ",\n".join(lines)
        options = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"
        return f"CREATE TABLE {quote_name(database)}.{self.name} (\n{body}\n) {options}"

    def parts(self, scale: float) -> int:
        """Return into how many files of about ``PART_MEGABYTES`` this table is cut at that scale."""
        return 1 if self.fixed else max(1, math.ceil(self.megabytes * scale / PART_MEGABYTES))


def _tables() -> tuple[TpchTable, ...]:
    text = (files("migverify_lab") / "data" / "tpch.yaml").read_text(encoding="utf-8")
    return tuple(
        TpchTable(name, tuple(one["columns"].items()), tuple(one["key"]), one["megabytes"], one.get("fixed", False))
        for name, one in yaml.safe_load(text).items()
    )


TABLES = _tables()


def load(
    servers: LabServers,
    database: str,
    scale: float,
    tables: tuple[str, ...],
    parts: int,
    directory: Path,
    on_progress: Progress,
) -> dict[str, int]:
    """Make TPC-H tables and load them into both sides; tables of these names are replaced.

    Parameters
    ----------
    servers
        The pair.
    database
        Made on both sides unless it exists.
    scale
        TPC-H scale factor, above 0; 1 is 6,001,215 rows of lineitem.
    tables
        Names; empty means all eight.
    parts
        Files per table, or 0 to choose by size.
    directory
        Where the files lie for as long as they are needed.

    Returns
    -------
    dict
        Rows per table, the same on both sides.

    Raises
    ------
    UsageError
        For a scale that is not positive or too small for partsupp, or a table TPC-H does not have.
    LabError
        When ``tpchgen-cli`` is missing or fails, when a row did not go in as it was written, or when the two
        sides end with different counts.
    """
    if not scale > 0 or math.isinf(scale):
        raise UsageError(f"the scale must be a number above 0, not {scale}", hint="Use for example --scale 0.01.")
    chosen = choose(tables)
    if any(table.name == "partsupp" for table in chosen) and not partsupp_is_unique(scale):
        raise UsageError(
            f"at scale {scale} TPC-H's own formula gives partsupp duplicate keys",
            hint="Use 0.01, or 0.025 and more, or leave partsupp out with --tables.",
        )
    program = generator()
    sides = (servers.source, servers.target)
    with ThreadPoolExecutor(len(sides)) as pool:
        for future in [pool.submit(_create, side, database, chosen) for side in sides]:
            future.result()
    started = time.monotonic()
    make_directory(directory)
    with tempfile.TemporaryDirectory(prefix="tpch-", dir=directory) as folder:
        _PartLoad(sides, database, scale, program, Path(folder), on_progress).run(chosen, parts)
    rows: dict[str, int] = {}
    for table in chosen:
        counts = [_finish(side, database, table) for side in sides]
        if counts[0] != counts[1]:
            raise LabError(
                f"{database}.{table.name}: {counts[0]} rows on the source, {counts[1]} on the target",
                hint="Load it again; if it stays, look at the servers' logs.",
            )
        rows[table.name] = counts[0]
    on_progress(f"{sum(rows.values()):,} rows on each side in {time.monotonic() - started:.1f} s")
    return rows


def choose(names: tuple[str, ...]) -> tuple[TpchTable, ...]:
    """Return the tables of these names in the specification's order; all for an empty tuple."""
    known = {table.name for table in TABLES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UsageError(f"TPC-H has no table {', '.join(unknown)}", hint=f"It has {', '.join(sorted(known))}.")
    return tuple(table for table in TABLES if not names or table.name in names)


def partsupp_is_unique(scale: float) -> bool:
    """Tell whether (ps_partkey, ps_suppkey) is unique at that scale.

    Clause 4.2.3 of the TPC-H specification gives part p the four suppliers
    ``(p + i * (S / 4 + (p - 1) / S)) mod S + 1`` of S; for small S two of them may be the same one.
    """
    suppliers, parts = int(10_000 * scale), int(200_000 * scale)
    if suppliers < 1:
        return False
    steps = range(suppliers // 4, suppliers // 4 + (parts - 1) // suppliers + 1)
    return not any(step * i % suppliers == 0 for step in steps for i in (1, 2, 3))


def generator() -> Path:
    """Return the program ``tpchgen-cli``: beside this Python, or on PATH; raises LabError."""
    beside = Path(sys.executable).with_name("tpchgen-cli")
    found = beside if beside.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise LabError("tpchgen-cli is not installed", hint="Run `pip install tpchgen-cli`.")
    return Path(found)


def _create(server: LabServer, database: str, tables: tuple[TpchTable, ...]) -> None:
    quoted = quote_name(database)
    with connect(server) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {quoted} CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
        for table in tables:
            cursor.execute(f"DROP TABLE IF EXISTS {quoted}.{table.name}")
            cursor.execute(table.ddl(database))


def _finish(server: LabServer, database: str, table: TpchTable) -> int:
    name = f"{quote_name(database)}.{table.name}"
    with connect(server, seconds=3600.0) as connection, connection.cursor() as cursor:
        cursor.execute(f"ANALYZE TABLE {name}")
        cursor.execute(f"SELECT COUNT(*) FROM {name}")  # noqa: S608
        row = cursor.fetchone()
    if row is None:
        raise LabError(f"{server} did not count {name}", hint="See the server's log.")
    return int(row[0])


@dataclass(frozen=True, slots=True)
class _PartLoad:
    """Parts are made, loaded into both sides and deleted, a few at a time."""

    sides: tuple[LabServer, LabServer]
    database: str
    scale: float
    program: Path
    folder: Path
    on_progress: Progress

    def run(self, tables: tuple[TpchTable, ...], parts: int) -> None:
        """Load all parts of tables; ``parts`` is their number for each, 0: as many as keep them small."""
        counts = [(table, table.parts(self.scale) if parts < 1 or table.fixed else parts) for table in tables]
        with ThreadPoolExecutor(PARTS_AT_ONCE) as pool:
            futures = [
                pool.submit(self._part, table, part, count) for table, count in counts for part in range(1, count + 1)
            ]
            try:
                for future in futures:
                    future.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _part(self, table: TpchTable, part: int, count: int) -> None:
        place = self.folder / f"{table.name}-{part}"
        try:
            path = self._generate(place, table, part, count)
            if path is not None:  # the generator has fewer rows than parts, and leaves this one out
                rows = [self._load(side, table, path) for side in self.sides]
                self.on_progress(f"{table.name} {part}/{count}: {rows[0]:,} rows on each side")
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def _generate(self, place: Path, table: TpchTable, part: int, count: int) -> Path | None:
        command = [
            str(self.program), "tbl", "-s", str(self.scale), "-o", str(place), "--tables", table.name,
            "--parts", str(count), "--part", str(part),
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            raise LabError(f"{' '.join(command)}\n{done.stderr.strip()}", hint="Check disk space.")
        found = sorted(place.rglob("*.tbl"))
        if not found and part == 1:
            raise LabError(f"tpchgen-cli made no {table.name}", hint="Check its version: 4 is supported.")
        return found[0] if found else None

    def _load(self, side: LabServer, table: TpchTable, path: Path) -> int:
        columns = ", ".join(name for name, _ in table.columns)
        file = str(path).replace("\\", "\\\\").replace("'", "''")
        statement = (
            f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {quote_name(self.database)}.{table.name} "
            # Every line ends with a separator: the empty field after it goes into a variable.
            f"CHARACTER SET utf8mb4 FIELDS TERMINATED BY '|' ESCAPED BY '' ({columns}, @end)"
        )
        with connect(side, seconds=3600.0) as connection, connection.cursor() as cursor:
            rows = int(cursor.execute(statement))
            cursor.execute("SHOW WARNINGS")
            warnings = cursor.fetchall()
        if warnings:
            raise LabError(f"{table.name} on {side}: {warnings[0][2]}", hint="Load it into an empty database.")
        return rows
