"""The change stream over the network: single-row transactions a second, as events, as items, and decoded.

``python -m bench.stream``: writes to a table of 12 mixed columns on the source, then reads those transactions back.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable

from bench.setting import Setting, add_arguments, open_setting
from migverify.changes.decode import decoder
from migverify.changes.model import Commit, Position, Rows
from migverify.changes.server import BinlogServer, source_state
from migverify.changes.source import read_server
from migverify.db.session import open_session
from migverify.model import Endpoint
from migverify_lab.session import connect

DATABASE = "h_bench_stream"
TRANSACTIONS = 20_000
WRITERS = 4
TABLE = (
    "id BIGINT UNSIGNED PRIMARY KEY, account BIGINT, amount DECIMAL(18,4), currency CHAR(3), "
    "state ENUM('new','settled'), made DATETIME(6), seen TIMESTAMP(6) NULL, note VARCHAR(120), token BINARY(16), "
    "version INT UNSIGNED, rate DOUBLE, open TINYINT(1)"
)


def write(setting: Setting) -> None:
    """Write ``TRANSACTIONS`` rows, each in a transaction of its own."""

    def work(number: int) -> None:
        with connect(setting.source, DATABASE) as connection, connection.cursor() as cursor:
            for row in range(TRANSACTIONS // WRITERS):
                cursor.execute(
                    f"INSERT INTO pay VALUES ({number * TRANSACTIONS + row},{row},{row}.25,'EUR','settled',NOW(6),"
                    f"NOW(6),'payment {row}',x'{row:032x}',{row},1.5,1)"
                )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(setting: Setting) -> None:
    with connect(setting.source) as connection, connection.cursor() as cursor:
        for statement in (
            f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}",
            f"CREATE TABLE {DATABASE}.pay ({TABLE})",
        ):  # fmt: skip
            cursor.execute(statement)
        endpoint = Endpoint("source", setting.source.host, setting.source.port, setting.source.user)
        with open_session(endpoint, None) as session:
            start = source_state(session).end
        write(setting)
        with open_session(endpoint, None) as session:
            end = source_state(session).end
        for name, run in (("events", events), ("items", items), ("decoded", decoded), ("key only", keys)):
            began = time.perf_counter()
            found = run(endpoint, start, end)
            seconds = time.perf_counter() - began
            print(f"{name:<10} {found / seconds:>10,.0f} transactions/s  ({found:,} in {seconds:.2f} s)")
        cursor.execute(f"DROP DATABASE {DATABASE}")


def events(endpoint: Endpoint, start: Position, end: Position) -> int:
    """Cut and checksum only; five events a transaction."""
    del end
    return sum(event.type == 16 for event in BinlogServer(endpoint, None).events(start))


def items(endpoint: Endpoint, start: Position, end: Position) -> int:
    return sum(type(item) is Commit for item in _read(endpoint, start, end))


def decoded(endpoint: Endpoint, start: Position, end: Position) -> int:
    return _decoded(endpoint, start, end, lambda rows: decoder(rows.table))


def keys(endpoint: Endpoint, start: Position, end: Position) -> int:
    return _decoded(endpoint, start, end, lambda rows: decoder(rows.table, ("id",)))


def _decoded(endpoint: Endpoint, start: Position, end: Position, make: Callable[[Rows], object]) -> int:
    return sum(
        len(make(item).texts(item.images))  # type: ignore[attr-defined]
        for item in _read(endpoint, start, end)
        if type(item) is Rows and item.table.database == DATABASE
    )


def _read(endpoint: Endpoint, start: Position, end: Position):  # type: ignore[no-untyped-def]
    # With a set the reader begins at the offset itself; without one it reads the file from its head.
    return read_server(endpoint, None, start, until=end, follow=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(parser)
    main(open_setting(parser.parse_args()))
