"""``python -m bench.decoder``: row images a second in one process, beside mysql-replication and ``mysqlbinlog -v``.

A MySQL of the lab writes two binlog files of a table with 12 mixed columns: one of bulk inserts, one of transactions of
a single row. Every contender then reads the same file in turn, without a server.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.binlog_spark import ROWS, TABLE
from bench.measure import Contender, Figures, interleave, print_table, ratio
from migverify.changes.decode import decoder
from migverify.changes.model import Commit, Rows
from migverify.changes.source import read_files
from migverify_lab import mysql
from migverify_lab.engine import start_server
from migverify_lab.process import stop
from migverify_lab.session import LabServer, connect

DATABASE = "bench"
KEY = ("id",)
GOALS = {"texts of 12 columns": 200_000, "key only": 500_000, "transactions to texts": 25_000}
PEERS = ("mysql-replication", "mysqlbinlog -v")
WRITERS = 4
LATER = 10_000_000
"""First id of the single-row transactions."""


def main(rows: int = 60_000, transactions: int = 10_000, rounds: int = 3) -> None:
    """Print row images and transactions a second of each contender, and the ratios round by round."""
    with (
        tempfile.TemporaryDirectory(prefix="migverify-bench-") as scratch,
        written(Path(scratch), rows, transactions) as files,
    ):
        bulk, single = files
        events = rows_events(bulk)
        print("\n-- row images, from bulk inserts")
        report(
            {
                "texts of 12 columns": timed(lambda: texts(events, None)),
                "key only": timed(lambda: texts(events, KEY)),
                "file to texts": timed(lambda: texts(rows_events(bulk), None)),
                "file to keys": timed(lambda: texts(rows_events(bulk), KEY)),
                **peers(bulk),
            },
            rows, rounds, "images/s",
        )  # fmt: skip
        print("\n-- single-row transactions, from a file")
        report(
            {
                "transactions, not decoded": timed(lambda: commits(single)),
                "transactions to texts": timed(lambda: texts(rows_events(single), None)),
                "transactions to keys": timed(lambda: texts(rows_events(single), KEY)),
                **peers(single),
            },
            transactions, rounds, "transactions/s",
        )  # fmt: skip


@contextmanager
def written(place: Path, rows: int, transactions: int) -> Iterator[tuple[Path, Path]]:
    """Yield the two files; the server is stopped before, so the cores are the contenders' own."""
    started, data = start_server(mysql.ENGINE, place, on_progress=print), place / "data"
    server = started.server
    try:
        with connect(server) as session, session.cursor() as cursor:
            depth = f"SET cte_max_recursion_depth={rows + 1}"
            for statement in (f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", TABLE, depth):
                cursor.execute(statement)
            bulk = _new_file(cursor, data)
            cursor.execute(ROWS.format(first=1, last=rows))
            single = _new_file(cursor, data)
            _write_singly(server, transactions)
            _new_file(cursor, data)
    finally:
        stop(started.process)
    yield bulk, single


def _new_file(cursor: Any, data: Path) -> Path:
    cursor.execute("FLUSH BINARY LOGS")
    cursor.execute("SHOW BINARY LOGS")
    return data / str(cursor.fetchall()[-1][0])


def _write_singly(server: LabServer, transactions: int) -> None:
    def work(first: int, last: int) -> None:
        with connect(server, DATABASE) as connection, connection.cursor() as cursor:
            for key in range(first, last):
                cursor.execute(ROWS.format(first=key, last=key))

    cuts = [LATER + transactions * n // WRITERS for n in range(WRITERS + 1)]
    threads = [threading.Thread(target=work, args=cut) for cut in itertools.pairwise(cuts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rows_events(path: Path) -> list[Rows]:
    return [item for item in read_files([path]) if type(item) is Rows]


def texts(events: Sequence[Rows], columns: Sequence[str] | None) -> int:
    return sum(len(decoder(event.table, columns).texts(event.images)) for event in events)


def commits(path: Path) -> int:
    return sum(type(item) is Commit for item in read_files([path]))


def peers(path: Path) -> dict[str, Contender]:
    """The two others on one file; ``mysqlbinlog`` is left out, with a word, where it is not installed."""
    found = {PEERS[0]: timed(lambda: by_library(path))}
    command = mysql.client_command("mysqlbinlog")
    if command is None:
        print("mysqlbinlog is not installed: left out")
        return found
    arguments = [*command, "--no-defaults", "-v", "--base64-output=DECODE-ROWS", str(path)]
    return {**found, PEERS[1]: timed(lambda: by_mysqlbinlog(arguments))}


def by_mysqlbinlog(command: Sequence[str]) -> int:
    """Return how many images it printed; counting costs a hundredth of what printing costs."""
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return done.stdout.count(b"\n### INSERT INTO ")


class _NoServer:
    """What mysql-replication asks its second connection for while it decodes."""

    charset = "utf8mb4"

    @staticmethod
    def _get_dbms() -> str:
        return "mysql"


def by_library(path: Path) -> int:
    """Decode a file with mysql-replication's own classes, as its reader of a live stream does; return the images."""
    from pymysql.protocol import MysqlPacket
    from pymysqlreplication import event as events
    from pymysqlreplication import row_event
    from pymysqlreplication.packet import BinLogPacketWrapper

    allowed = frozenset(
        (row_event.TableMapEvent, row_event.WriteRowsEvent, events.QueryEvent, events.XidEvent, events.GtidEvent)
    )
    tables: dict[int, Any] = {}
    data, at, images = path.read_bytes(), 4, 0
    while at < len(data):
        size = struct.unpack_from("<I", data, at + 9)[0]
        packet = MysqlPacket(b"\0" + data[at : at + size], "utf8mb4")
        wrapped = BinLogPacketWrapper(
            packet, tables, _NoServer, (9, 7, 0), True, allowed, *(None,) * 4, freeze_schema=False,
            ignore_decode_errors=False, verify_checksum=False, optional_meta_data=True, enable_logging=False,
        )  # fmt: skip
        at += size
        if isinstance(wrapped.event, row_event.TableMapEvent):
            tables[wrapped.event.table_id] = wrapped.event.get_table()
        elif isinstance(wrapped.event, row_event.WriteRowsEvent):
            images += len(wrapped.event.rows)
    return images


def timed(work: Callable[[], int]) -> Contender:
    """Return a contender: wall and CPU seconds of this process and its children, and how many ``work`` counted."""

    def run() -> Figures:
        cpu, began = _cpu(), time.perf_counter()
        count = work()
        return Figures(time.perf_counter() - began, client_cpu=_cpu() - cpu, extra={"count": count})

    return run


def _cpu() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def report(contenders: Mapping[str, Contender], expected: int, rounds: int, unit: str) -> None:
    """Run the contenders in turn and print what they did.

    Raises
    ------
    RuntimeError
        a contender saw another number of rows than were written: its speed means nothing.
    """
    found = interleave(contenders, rounds)
    for name, runs in found.items():
        if {run.extra["count"] for run in runs} != {expected}:
            raise RuntimeError(f"{name} saw {[run.extra['count'] for run in runs]} of {expected} rows")
    others = [name for name in PEERS if name in found]
    print_table(found, others)
    print(f"\n{unit:<34}{'by wall':>12}{'by CPU':>12}{'goal':>12}" + "".join(f"   CPU x {name}" for name in others))
    for name, runs in found.items():
        speeds = [sorted(expected / read for read in reads)[len(runs) // 2]
                  for reads in ([run.wall for run in runs], [run.client_cpu for run in runs])]  # fmt: skip
        line = f"{name:<34}" + "".join(f"{speed:>12,.0f}" for speed in speeds)
        line += f"{GOALS[name]:>12,}" if name in GOALS else f"{'':>12}"
        for other in others:
            line += f"   {ratio(found[other], runs, lambda figures: figures.client_cpu):>{len(other) + 6}}"
        print(line)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.decoder", description=__doc__)
    parser.add_argument("--rows", type=int, default=60_000, help="rows of the bulk inserts")
    parser.add_argument("--transactions", type=int, default=10_000, help="transactions of one row")
    parser.add_argument("--rounds", type=int, default=3)
    main(**vars(parser.parse_args()))
