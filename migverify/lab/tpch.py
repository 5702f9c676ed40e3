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
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError, UsageError
from migverify.lab.cache import Progress, make_directory
from migverify.lab.servers import LabServer, LabServers
from migverify.lab.session import connect
from migverify.sql.quoting import quote_name

CONNECTIONS_PER_SIDE = 2
PARTS_ON_DISK = 4
PART_MEGABYTES = 30.0
PROGRESS_SECONDS = 5.0


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


def _columns(text: str) -> tuple[tuple[str, str], ...]:
    pairs = (line.split(None, 1) for line in text.strip().splitlines())
    return tuple((name, kind) for name, kind in pairs)


TABLES: tuple[TpchTable, ...] = (
    TpchTable(
        "region",
        _columns("""
            r_regionkey BIGINT
            r_name CHAR(25)
            r_comment VARCHAR(152)"""),
        ("r_regionkey",),
        0.001,
        fixed=True,
    ),
    TpchTable(
        "nation",
        _columns("""
            n_nationkey BIGINT
            n_name CHAR(25)
            n_regionkey BIGINT
            n_comment VARCHAR(152)"""),
        ("n_nationkey",),
        0.002,
        fixed=True,
    ),
    TpchTable(
        "supplier",
        _columns("""
            s_suppkey BIGINT
            s_name CHAR(25)
            s_address VARCHAR(40)
            s_nationkey BIGINT
            s_phone CHAR(15)
            s_acctbal DECIMAL(15,2)
            s_comment VARCHAR(101)"""),
        ("s_suppkey",),
        1.4,
    ),
    TpchTable(
        "customer",
        _columns("""
            c_custkey BIGINT
            c_name VARCHAR(25)
            c_address VARCHAR(40)
            c_nationkey BIGINT
            c_phone CHAR(15)
            c_acctbal DECIMAL(15,2)
            c_mktsegment CHAR(10)
            c_comment VARCHAR(117)"""),
        ("c_custkey",),
        24.0,
    ),
    TpchTable(
        "part",
        _columns("""
            p_partkey BIGINT
            p_name VARCHAR(55)
            p_mfgr CHAR(25)
            p_brand CHAR(10)
            p_type VARCHAR(25)
            p_size INT
            p_container CHAR(10)
            p_retailprice DECIMAL(15,2)
            p_comment VARCHAR(23)"""),
        ("p_partkey",),
        24.0,
    ),
    TpchTable(
        "partsupp",
        _columns("""
            ps_partkey BIGINT
            ps_suppkey BIGINT
            ps_availqty INT
            ps_supplycost DECIMAL(15,2)
            ps_comment VARCHAR(199)"""),
        ("ps_partkey", "ps_suppkey"),
        115.0,
    ),
    TpchTable(
        "orders",
        _columns("""
            o_orderkey BIGINT
            o_custkey BIGINT
            o_orderstatus CHAR(1)
            o_totalprice DECIMAL(15,2)
            o_orderdate DATE
            o_orderpriority CHAR(15)
            o_clerk CHAR(15)
            o_shippriority INT
            o_comment VARCHAR(79)"""),
        ("o_orderkey",),
        165.0,
    ),
    TpchTable(
        "lineitem",
        _columns("""
            l_orderkey BIGINT
            l_partkey BIGINT
            l_suppkey BIGINT
            l_linenumber INT
            l_quantity DECIMAL(15,2)
            l_extendedprice DECIMAL(15,2)
            l_discount DECIMAL(15,2)
            l_tax DECIMAL(15,2)
            l_returnflag CHAR(1)
            l_linestatus CHAR(1)
            l_shipdate DATE
            l_commitdate DATE
            l_receiptdate DATE
            l_shipinstruct CHAR(25)
            l_shipmode CHAR(10)
            l_comment VARCHAR(44)"""),
        ("l_orderkey", "l_linenumber"),
        740.0,
    ),
)


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
        sides end with unlike counts.
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
        _Loading(sides, database, scale, parts, program, Path(folder), on_progress).run(chosen)
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


class _Loading:
    """Generation runs ahead of loading by a few parts; both sides load at the same time."""

    def __init__(
        self,
        sides: tuple[LabServer, LabServer],
        database: str,
        scale: float,
        parts: int,
        program: Path,
        folder: Path,
        on_progress: Progress,
    ) -> None:
        self.sides = sides
        self.database = database
        self.scale = scale
        self.parts = parts
        self.program = program
        self.folder = folder
        self.on_progress = on_progress
        self.slots = threading.Semaphore(PARTS_ON_DISK)
        self.lock = threading.Lock()
        self.loaded = [0, 0]
        self.spoken = time.monotonic()

    def run(self, tables: tuple[TpchTable, ...]) -> None:
        pools = [ThreadPoolExecutor(CONNECTIONS_PER_SIDE) for _ in self.sides]
        futures: list[Future[None]] = []
        try:
            for table in tables:
                count = table.parts(self.scale) if self.parts < 1 or table.fixed else self.parts
                for part in range(1, count + 1):
                    self.slots.acquire()
                    failed = next((f for f in futures if f.done() and f.exception()), None)
                    if failed is not None:
                        failed.result()
                    path = self._generate(table, part, count)
                    if path is None:
                        self.slots.release()
                        continue
                    remaining = [len(self.sides)]
                    futures += [
                        pool.submit(self._load, number, table, path, remaining) for number, pool in enumerate(pools)
                    ]
            for future in futures:
                future.result()
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    def _generate(self, table: TpchTable, part: int, count: int) -> Path | None:
        """Make one part; None when the generator has fewer rows than parts and leaves this one out."""
        place = self.folder / f"{table.name}-{part}"
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

    def _load(self, side: int, table: TpchTable, path: Path, remaining: list[int]) -> None:
        try:
            columns = ", ".join(name for name, _ in table.columns)
            file = str(path).replace("\\", "\\\\").replace("'", "''")
            statement = (
                f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE {quote_name(self.database)}.{table.name} "
                # Every line ends with a separator: the empty field after it goes into a variable.
                f"CHARACTER SET utf8mb4 FIELDS TERMINATED BY '|' ESCAPED BY '' ({columns}, @end)"
            )
            with connect(self.sides[side], seconds=3600.0) as connection, connection.cursor() as cursor:
                rows = cursor.execute(statement)
                cursor.execute("SHOW WARNINGS")
                warnings = cursor.fetchall()
            if warnings:
                raise LabError(
                    f"{table.name} on {self.sides[side]}: {warnings[0][2]}",
                    hint="Load it into an empty database.",
                )
            self._tell(side, table, rows)
        finally:
            with self.lock:
                remaining[0] -= 1
                last = remaining[0] == 0
            if last:
                shutil.rmtree(path.parent if path.parent != self.folder else path, ignore_errors=True)
                self.slots.release()

    def _tell(self, side: int, table: TpchTable, rows: int) -> None:
        with self.lock:
            self.loaded[side] += rows
            now = time.monotonic()
            if now - self.spoken < PROGRESS_SECONDS:
                return
            self.spoken = now
            source, target = self.loaded
        self.on_progress(f"{table.name}: {source:,} rows on the source, {target:,} on the target so far")
