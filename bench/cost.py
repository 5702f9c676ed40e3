"""Unit costs of proofs and watches, found at a small size and checked against larger ones: whole processes.

``python -m bench.cost`` needs a lab with TPC-H (all eight tables) in three databases of scale 0.3, 1 and 3, which it
loads where they are missing. Prices are found from single tables of the smallest; the larger two are only predicted.
CPU of the servers hardly moves when something else uses the machine, so these figures hold on a busy one too.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from bench.contenders import url
from bench.cost_model import Cost, Shape, Units, fit, write_units
from bench.measure import Figures, ServerClock, run_command
from bench.setting import LAB, connect, execute
from migverify.model import Endpoint
from migverify_lab import servers, tpch

SCALES = {"h03": 0.3, "h1": 1.0, "h3": 3.0}
LINEITEM_ROWS = 5_990_000
"""Rows of lineitem at scale 1, rounded down: the figure varies a little from scale to scale."""
SMALL = "cost_small"
SMALL_TABLES = 300
IDLE_SECONDS = 10.0
SHARES = (0.001, 0.01)


@dataclass(frozen=True, slots=True)
class Lab:
    """The pair, and what both servers use each second while nobody asks them anything."""

    source: Endpoint
    target: Endpoint
    idle: Cost

    @property
    def clock(self) -> ServerClock:
        """A clock of the two server processes."""
        return ServerClock(self.source.port, self.target.port)


@dataclass(frozen=True, slots=True)
class Measured:
    """One run: its cost without what idle servers use, wall seconds, bytes to and from the source, memory in MB."""

    cost: Cost
    wall: float
    network: float
    memory: float


def open_lab(folder: Path, databases: Sequence[str]) -> Lab:
    """Bring up the pair and load what is missing."""
    directory = servers.lab_directory(folder)
    pair = servers.up(directory, "tidb", print)
    source, target = (Endpoint(name, one.host, one.port, one.user)
                      for name, one in (("source", pair.source), ("target", pair.target)))  # fmt: skip
    for database in databases:
        if not _is_loaded((source, target), database):
            tpch.load(pair, database, SCALES[database], (), 0, directory, print)
    if len(_tables(source, SMALL)) < SMALL_TABLES or len(_tables(target, SMALL)) < SMALL_TABLES:
        _make_small((source, target))
    clock = ServerClock(source.port, target.port)
    clock.start()
    time.sleep(IDLE_SECONDS)
    idle = clock.stop()
    return Lab(source, target, Cost(idle.source_cpu / idle.wall, idle.target_cpu / idle.wall))


def _is_loaded(endpoints: Sequence[Endpoint], database: str) -> bool:
    """Whether the largest table has its rows on both sides: a load that was cut off leaves tables without them."""
    least = SCALES[database] * LINEITEM_ROWS
    return all(
        "lineitem" in _tables(endpoint, database)
        and int(str(execute(endpoint, f"SELECT COUNT(*) FROM `{database}`.lineitem")[0][0])) >= least
        for endpoint in endpoints
    )


def _make_small(endpoints: Sequence[Endpoint]) -> None:
    rows = ",".join(f"({n},'row {n}')" for n in range(10))
    for endpoint in endpoints:
        with connect(endpoint) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE IF EXISTS {SMALL}")
            cursor.execute(f"CREATE DATABASE {SMALL}")
            for number in range(SMALL_TABLES):
                cursor.execute(f"CREATE TABLE {SMALL}.t{number} (id BIGINT PRIMARY KEY, word VARCHAR(20) NOT NULL)")
                cursor.execute(f"INSERT INTO {SMALL}.t{number} VALUES {rows}")


def _tables(endpoint: Endpoint, database: str) -> list[str]:
    return [str(row[0]) for row in execute(
        endpoint, f"SELECT table_name FROM information_schema.tables WHERE table_schema='{database}'")]  # fmt: skip


def shape_of(lab: Lab, database: str, table: str) -> Shape:
    """Return what a proof of the table reads; bytes are those of the text of its values, from a sample of rows."""
    columns = [str(row[0]) for row in execute(
        lab.source, "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema='{database}' AND table_name='{table}'")]  # fmt: skip
    length = "+".join(f"LENGTH(`{column}`)" for column in columns)
    rows = int(str(execute(lab.source, f"SELECT COUNT(*) FROM `{database}`.`{table}`")[0][0]))
    sample = execute(lab.source, f"SELECT AVG({length}) FROM (SELECT * FROM `{database}`.`{table}` LIMIT 10000) some")
    return Shape(1, rows * len(columns), rows * float(str(sample[0][0] or 0)))


@contextmanager
def configuration(lab: Lab, include: str) -> Iterator[Path]:
    """Yield a configuration of the tables that a pattern names, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="bench-cost-") as folder:
        path = Path(folder, "migverify.yaml")
        path.write_text(yaml.safe_dump({
            "source": {"url": url(lab.source)}, "target": {"url": url(lab.target)}, "store": "sqlite:///runs.db",
            "tables": {"include": [include]},
        }))  # fmt: skip
        yield path


def measure(lab: Lab, config: Path, *options: str) -> Measured:
    """Run ``tables verify`` once, as a whole process."""
    clock, before = lab.clock, _network(lab.source)
    figures, _ = run_command(
        [sys.executable, "-m", "migverify", "tables", "verify", "-c", str(config), "--quiet", *options],
        clock, cwd=str(config.parent),
    )  # fmt: skip
    return Measured(_cost(figures, lab.idle), figures.wall, _network(lab.source) - before, figures.driver_mb)


def _cost(figures: Figures, idle: Cost) -> Cost:
    return Cost(
        max(figures.source_cpu - idle.source * figures.wall, 0.0),
        max(figures.target_cpu - idle.target * figures.wall, 0.0),
        figures.client_cpu,
    )


def _network(source: Endpoint) -> float:
    rows = execute(source, "SHOW GLOBAL STATUS WHERE variable_name IN ('Bytes_received', 'Bytes_sent')")
    return float(sum(int(str(value)) for _, value in rows))


def median(runs: Sequence[Measured]) -> Measured:
    """Return the run whose figures are each the median."""

    def middle(read: Callable[[Measured], float]) -> float:
        return statistics.median(read(run) for run in runs)

    return Measured(
        Cost(middle(lambda r: r.cost.source), middle(lambda r: r.cost.target), middle(lambda r: r.cost.client)),
        middle(lambda r: r.wall), middle(lambda r: r.network), middle(lambda r: r.memory),
    )  # fmt: skip


def proof(lab: Lab, include: str, rounds: int) -> Measured:
    """Return the median of some full proofs."""
    with configuration(lab, include) as config:
        found = median([measure(lab, config) for _ in range(rounds)])
    print(f"  {include:<24} source {found.cost.source:7.2f}  target {found.cost.target:7.2f}  client "
          f"{found.cost.client:6.2f}  wall {found.wall:7.1f}  {found.network / 1e3:8.0f} kB  {found.memory:4.0f} MB",
          flush=True)  # fmt: skip
    return found


def prices(lab: Lab, rounds: int) -> tuple[Units, float]:
    """Return the unit costs of a full proof, from single tables of the smallest database; and memory of one table."""
    names = sorted(_tables(lab.source, "h03"))
    single = {name: proof(lab, f"h03.{name}", rounds) for name in names}
    small = proof(lab, f"{SMALL}.*", rounds)
    one = proof(lab, f"{SMALL}.t0", rounds)
    shapes = {name: shape_of(lab, "h03", name) for name in names}
    # A command that reads one table of ten rows is all start; what 299 more cost is the price of a table.
    table = Cost(*(max(b - a, 0.0) / (SMALL_TABLES - 1) for a, b in zip(_parts(one.cost), _parts(small.cost),
                                                                        strict=True)))  # fmt: skip
    start = Cost(*(max(a - b, 0.0) for a, b in zip(_parts(one.cost), _parts(table), strict=True)))
    large = [name for name in names if shapes[name].values > 100_000]
    found = {}
    for side in ("source", "target", "client"):
        fixed = getattr(start, side) + getattr(table, side)
        rest = {name: getattr(single[name].cost, side) - fixed for name in large}
        kept = [name for name in large if rest[name] > 0]
        found[side] = fit([replace(shapes[name], tables=0) for name in kept], [rest[name] for name in kept])
    network_table = (small.network - one.network) / (SMALL_TABLES - 1)
    biggest = max(names, key=lambda name: shapes[name].values)
    units = Units(
        start=start, table=table,
        value=Cost(*(found[side][1] for side in found)), byte=Cost(*(found[side][2] for side in found)),
        key=Cost(), change=Cost(), network_table=network_table,
        network_chunk=single[biggest].network - network_table, chunk_values=shapes[biggest].values,
    )  # fmt: skip
    return units, (small.memory - one.memory) / (SMALL_TABLES - 1)


def _parts(cost: Cost) -> tuple[float, float, float]:
    return cost.source, cost.target, cost.client


def key_price(lab: Lab, rounds: int) -> Cost:
    """Return what one written row costs a second proof, from the slope between two shares of lineitem."""
    with configuration(lab, "h03.lineitem") as config:
        measure(lab, config)
        keys = execute(lab.source, "SELECT l_orderkey, l_linenumber FROM h03.lineitem")
        means = []
        for share in SHARES:
            runs = []
            for _ in range(rounds):
                _write(lab, random.sample(keys, int(len(keys) * share)))
                runs.append(measure(lab, config, "--since", "last"))
            means.append((len(keys) * share, median(runs)))
            print(f"  since, {share:.1%} written: {means[-1][1].cost}", flush=True)
    (few, low), (many, high) = means
    return Cost(*(max(b - a, 0.0) / (many - few) for a, b in zip(_parts(low.cost), _parts(high.cost), strict=True)))


def _write(lab: Lab, keys: Sequence[tuple[object, ...]]) -> None:
    statement = "UPDATE h03.lineitem SET l_tax = l_tax + 0.01 WHERE l_orderkey=%s AND l_linenumber=%s"
    for where in (lab.source, lab.target):
        with connect(where) as connection, connection.cursor() as cursor:
            connection.autocommit(False)
            for begin in range(0, len(keys), 500):
                for key in keys[begin : begin + 500]:
                    cursor.execute(statement, key)
                connection.commit()


def check(lab: Lab, units: Units, databases: Sequence[str], rounds: int) -> None:
    """Print prediction, measurement and their ratio for every database; only the smallest gave prices."""
    print("\npredicted / measured")
    for database in databases:
        shape = _sum(shape_of(lab, database, table) for table in _tables(lab.source, database))
        wanted, got = units.proof(shape), proof(lab, f"{database}.*", rounds)
        ratios = "  ".join(f"{side} {getattr(wanted, side):.1f}/{getattr(got.cost, side):.1f} = "
                           f"{getattr(wanted, side) / getattr(got.cost, side):.2f}"
                           for side in ("source", "target", "client"))  # fmt: skip
        print(f"  {database}: {shape.bytes / 1e9:.2f} GB, {shape.values / 1e6:.0f} million values: {ratios}; network "
              f"{units.network(shape) / got.network:.2f}", flush=True)  # fmt: skip


def _sum(shapes: Iterator[Shape]) -> Shape:
    total = Shape(0, 0, 0)
    for shape in shapes:
        total += shape
    return total


def main(folder: Path, databases: Sequence[str], rounds: int, change: Mapping[str, float]) -> None:
    """Find prices, check them, record them."""
    lab = open_lab(folder, databases)
    print(f"idle a second: {lab.idle}")
    units, memory = prices(lab, rounds)
    units = replace(units, key=key_price(lab, rounds), change=Cost(**change))
    print(f"memory of one table: {memory * 1000:.1f} kB")
    check(lab, units, databases, max(1, rounds - 1))
    write_units(units, "CPU seconds and bytes, measured by python -m bench.cost")
    print(units)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", type=Path, default=LAB)
    parser.add_argument("--databases", nargs="+", choices=SCALES, default=list(SCALES), help="h03 gives the prices")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--change", default="source=0,target=0,client=0",
                        help="CPU seconds of one row change of a watch, from python -m bench watch")  # fmt: skip
    arguments = parser.parse_args()
    pairs = (part.split("=") for part in arguments.change.split(","))
    main(arguments.lab, arguments.databases, arguments.rounds, {name: float(value) for name, value in pairs})
