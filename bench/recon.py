"""``python -m bench.recon``: same rows by key, and aggregates per group, against what one would write by hand.

Makes a table of payments on both servers (``--rows``, default a million) with 1,000 amounts that differ, then runs in
turn: the packed texts alone; migverify on both engines; a full outer join written in PySpark over the same reads;
datacompy (Spark) over them, where it is installed (``pip install datacompy polars``; not in the lock, because its extra
pins an older pyspark). Then sums per group against the servers' own GROUP BY. Memory is the peak of all client
processes together: driver, JVM, workers; the local engine's memory holds the JVM of the others, which waits meanwhile.
Client CPU is this process's alone, without JVM and workers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import psutil

from bench.measure import MEGABYTE, Figures, PeakMemory, ServerClock, interleave, print_table
from bench.setting import Setting, add_arguments, execute, open_setting
from migverify.db.snapshot import open_snapshot
from migverify.model import ColumnDef
from migverify.recon.local import LocalEngine
from migverify.recon.reads import STEP_ROWS, RangeStep, ReadPiece, common_steps, deal, read_step, sql_reads
from migverify.recon.relation import Combine, Cut, JoinFilter, Relation, RuleEngine, SqlRead
from migverify.sql.key_range import KeyColumn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from migverify.spark.recon_engine import SparkReconEngine

DATABASE = "h_bench_recon"
PLANTED = 1000
SLOTS = 4
BLOCK = 100_000
COLUMNS = ("account", "amount", "currency", "state", "created")
TABLE = """CREATE TABLE pay (id BIGINT PRIMARY KEY, account BIGINT NOT NULL, amount DECIMAL(18,4) NOT NULL,
  currency CHAR(3) NOT NULL, state VARCHAR(10) NOT NULL, created DATETIME(6) NOT NULL)"""
DIGIT = "(SELECT 0 n" + "".join(f" UNION ALL SELECT {n}" for n in range(1, 10)) + ")"
NUMBERS = f"(SELECT a.n+10*b.n+100*c.n+1000*d.n+10000*e.n k FROM {DIGIT} a,{DIGIT} b,{DIGIT} c,{DIGIT} d,{DIGIT} e)"
INSERT = """INSERT INTO pay SELECT k+{first}, (k+{first})*7919%50021, (k+{first})*31%9999991/100,
  ELT(1+k%3,'EUR','JPY','USD'), ELT(1+k%4,'new','paid','settled','failed'),
  TIMESTAMP('2026-01-01') + INTERVAL k+{first} SECOND FROM {numbers} n WHERE k+{first} < {rows}"""
KEY = (KeyColumn("`id`", "`id`", "integer", nullable=False),)
TYPES = tuple(ColumnDef(name, 0, "longtext", "longtext", True) for name in COLUMNS)


def main() -> None:
    """Make the tables, run every way in turn, print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.recon", description=__doc__)
    add_arguments(parser)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--keep", action="store_true", help="keep the tables for the next run")
    parser.set_defaults(rounds=3)
    given = parser.parse_args()
    setting = open_setting(given)
    make(setting, given.rows)
    try:
        run(setting, given.rows)
    finally:
        if not given.keep:
            for where in (setting.source, setting.target):
                execute(where, f"DROP DATABASE IF EXISTS {DATABASE}")


def make(setting: Setting, rows: int) -> None:
    """Fill both tables, unless they are there with that many rows; the source gets the differences."""
    for where in (setting.source, setting.target):
        execute(where, f"CREATE DATABASE IF NOT EXISTS {DATABASE}")
        if execute(where, f"SHOW TABLES FROM {DATABASE} LIKE 'pay'"):
            if execute(where, f"SELECT COUNT(*) FROM {DATABASE}.pay")[0][0] == rows:
                continue
            execute(where, f"DROP TABLE {DATABASE}.pay")
        print(f"{where.name}: making {rows:,} rows", flush=True)
        execute(where, f"USE {DATABASE}", TABLE)
        for first in range(0, rows, BLOCK):
            execute(where, f"USE {DATABASE}", INSERT.format(first=first, numbers=NUMBERS, rows=rows))
        if where is setting.source:
            every = max(1, rows // PLANTED)
            execute(where, f"UPDATE {DATABASE}.pay SET amount=amount+0.0001 WHERE id%{every}=7")
        execute(where, f"ANALYZE TABLE {DATABASE}.pay")


def relation(endpoint: str, rows: int, key: tuple[KeyColumn, ...] = KEY) -> Relation:
    """Return the rows of the table on one endpoint."""
    cut = Cut("`id`", 0, rows - 1, nullable=False)
    strings = (False, False, False, True, True, False)
    table = f"`{DATABASE}`.`pay`"
    read = SqlRead(endpoint, table, ("`id`",), COLUMNS, cut=cut, rows=rows, strings=strings, unique=True, lookup=key)
    return Relation("payments", (read,), (replace(TYPES[0], name="id"),), TYPES, (Combine.ROW,) * len(COLUMNS))


def grouped(endpoint: str) -> Relation:
    """Return the sums per account on one endpoint."""
    made = ("account",), ("CAST(SUM(amount) AS DECIMAL(65,4))", "COUNT(*)")
    read = SqlRead(endpoint, f"`{DATABASE}`.`pay`", *made, grouped=True, strings=(False, True, True))
    return Relation("accounts", (read,), TYPES[:1], TYPES[1:3], (Combine.SUM, Combine.SUM))


def run(setting: Setting, rows: int) -> None:
    """Run all ways in turn."""
    from migverify.spark.recon_engine import DRIVER, SparkReconEngine
    from migverify.spark.session import close_session, open_session

    endpoints = {e.name: replace(e, connections=SLOTS) for e in (setting.source, setting.target)}
    session = open_session("local", "bench", DRIVER, SLOTS)
    source, target = (relation(name, rows) for name in endpoints)
    local = LocalEngine(endpoints, {})
    # Without ranges that both sides share, all rows are joined.
    joined = [relation(name, rows, key=()) for name in endpoints]
    with closing(SparkReconEngine(session, endpoints, {}, SLOTS, owns_session=False)) as spark:
        ways: dict[str, Callable[[], int]] = {
            "packed texts alone": lambda: read_texts(local, source, target),
            "migverify local": lambda: join(local, source, target),
            "migverify local, all rows joined": lambda: join(local, *joined),
            "migverify spark": lambda: join(spark, source, target),
            "migverify spark, all rows joined": lambda: join(spark, *joined),
            "PySpark join by hand": lambda: by_hand(spark, source, target),
        }
        if find_spec("datacompy"):
            ways["datacompy"] = lambda: by_datacompy(spark, source, target)
        print(f"\n== {rows:,} rows against {rows:,}, {PLANTED} differences")
        found = interleave({name: figures(setting.clock, way) for name, way in ways.items()}, setting.rounds)
        print_table(
            found, ["packed texts alone", "PySpark join by hand"],
            ["wall s", "server CPU s", "client CPU s", "client MB"],
        )  # fmt: skip
        sums = [grouped(name) for name in endpoints]
        print("\n== sums of 50,021 groups")
        found = interleave({
            "migverify local": figures(setting.clock, lambda: join(local, *sums)),
            "migverify spark": figures(setting.clock, lambda: join(spark, *sums)),
            "GROUP BY of both servers": figures(setting.clock, lambda: group_by(setting)),
        }, setting.rounds)  # fmt: skip
        print_table(found, ["GROUP BY of both servers"], ["wall s", "server CPU s", "client MB"])
    close_session(session)


def join(engine: RuleEngine, source: Relation, target: Relation) -> int:
    """Join with an engine of ours; return how many keys differ."""
    return sum(len(batch) for batch in engine.join(source, target, JoinFilter()))


def read_texts(engine: LocalEngine, source: Relation, target: Relation) -> int:
    """Read the packed texts of both sides and drop them: what no join can be cheaper than; return how many rows."""
    with engine.reading((source, target)) as (reading, _):

        def read_steps(read: SqlRead, steps: Sequence[RangeStep]) -> int:
            with reading.sessions.borrow(read.endpoint) as session:
                return sum(len(part[0]) for step in steps for part in read_step(session, read, 0, step, set()))

        reads = sql_reads((source, target)).values()
        jobs = [partial(read_steps, read, dealt) for dealt in deal(steps_of(source), SLOTS) for read in reads]
        return sum(reading.sessions.run(jobs))


def steps_of(relation: Relation) -> list[RangeStep]:
    """Return ranges of 20,000 rows."""
    (read,) = sql_reads((relation, None)).values()
    bounds = [RangeStep(None, upper, STEP_ROWS) for upper in range(STEP_ROWS, read.rows, STEP_ROWS)]
    return common_steps([[*bounds, RangeStep(rows=STEP_ROWS)]], nullable=False)


@contextmanager
def frames(engine: SparkReconEngine, source: Relation, target: Relation) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Yield the rows of both sides, read as our engine reads them."""
    with ExitStack() as stack:
        opened = {
            name: stack.enter_context(open_snapshot(one, {}, 1, shared=True)) for name, one in engine.endpoints.items()
        }
        dealt = [tuple(steps) for steps in deal(steps_of(source), 3 * SLOTS)]
        sides = []
        for side in (0, 1):
            pieces = [ReadPiece(number, ((side, 0),), steps) for number, steps in enumerate(dealt)]
            frame = engine.read_pieces((source, target), pieces, opened)
            sides.append(frame.selectExpr("cast(k as string) id", "cast(v as string) v"))
        yield sides[0], sides[1]


def by_hand(engine: SparkReconEngine, source: Relation, target: Relation) -> int:
    """Join as one writes it: full outer by key, kept where the values differ."""
    with frames(engine, source, target) as (ours, theirs):
        ours, theirs = ours.alias("a"), theirs.alias("b")
        joined = ours.join(theirs, ours["id"].eqNullSafe(theirs["id"]), "full_outer")
        return len(joined.where("not (a.v <=> b.v)").collect())


def by_datacompy(engine: SparkReconEngine, source: Relation, target: Relation) -> int:
    """Compare with datacompy."""
    from datacompy import SparkSQLCompare  # type: ignore[import-not-found,unused-ignore]

    with frames(engine, source, target) as (ours, theirs):
        compared = SparkSQLCompare(engine.session, ours, theirs, "id")
        return int(compared.all_mismatch().count())


def group_by(setting: Setting) -> int:
    """Let both servers group at the same time, and fetch what they say."""
    text = f"SELECT account,SUM(amount),COUNT(*) FROM {DATABASE}.pay GROUP BY account"
    with ThreadPoolExecutor(2) as threads:
        ours, theirs = threads.map(lambda where: execute(where, text), (setting.source, setting.target))
    return len(set(ours) ^ set(theirs))


def figures(clock: ServerClock, way: Callable[[], int]) -> Callable[[], Figures]:
    """Return a contender: wall, CPU of the servers, and memory of this process and its children together."""

    def once() -> Figures:
        memory = TotalMemory(clock.pids)
        with memory:
            clock.start()
            before = time.process_time()
            count = way()
            used = time.process_time() - before
            taken = clock.stop()
        return replace(taken, client_cpu=used, extra={"client MB": memory.peak_mb}, note=f"{count:,} found")

    return once


class TotalMemory(PeakMemory):
    """Peak of the proportional memory of all processes of the client; shared pages count once.

    The lab's servers are children of this process too, where it started them: ``servers`` do not count.
    """

    def __init__(self, servers: frozenset[int]) -> None:
        super().__init__(list)
        self._servers = servers

    def _watch(self) -> None:
        while not self._over.wait(0.5):
            me = psutil.Process()
            total = 0.0
            for process in (me, *me.children(recursive=True)):
                if process.pid in self._servers:
                    continue
                try:
                    total += process.memory_full_info().pss / MEGABYTE
                except psutil.Error:
                    continue  # it ended between two samples
            self.peak_mb = max(self.peak_mb, total)


if __name__ == "__main__":
    started = time.perf_counter()
    main()
    print(f"\n{time.perf_counter() - started:.0f} s in all")
