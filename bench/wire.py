"""How many point selects a second one thread asks a real MySQL: by PyMySQL, by one wire, and by 50 of them.

``MIGVERIFY_TEST_SOURCE=host:port`` names the server (root, no password). CPU is that of this process only; the server
takes its own, on the same cores when it runs here.
"""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable

import pymysql

from migverify.db.session import open_session
from migverify.model import Endpoint, Side, Tls
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Call
from migverify.workload.replay.wire import ServerWire, open_wire
from migverify.workload.state import SessionState

DATABASE = "d1_bench_wire"
ROWS = 10_000
SECONDS = 3.0
STATE = SessionState(database=DATABASE)


def endpoint() -> Endpoint:
    host, _, port = os.environ["MIGVERIFY_TEST_SOURCE"].partition(":")
    return Endpoint("target", host, int(port), "root", tls=Tls("disabled"))


def point(number: int) -> Call:
    sql = b"SELECT id, name, amount FROM point WHERE id = %d" % (number * 7919 % ROWS)
    return Call("1", number, sql, "", STATE)


def bound(number: int) -> Call:
    key = Parameter("integer", b"%d" % (number * 7919 % ROWS))
    return Call("1", number, b"SELECT id, name, amount FROM point WHERE id = ?", "", STATE, parameters=(key,))


def measure(name: str, ask: Callable[[int], int]) -> None:
    started, cpu, asked = time.perf_counter(), time.process_time(), 0
    while (elapsed := time.perf_counter() - started) < SECONDS:
        asked += ask(asked)
    used = (time.process_time() - cpu) / asked * 1e6
    print(f"{name:34} {asked / elapsed:9,.0f} statements/s {used:6.1f} us CPU each")


def many(wires: list[ServerWire], *, prepared: bool) -> Callable[[int], int]:
    selector = selectors.DefaultSelector()
    make = bound if prepared else point
    for number, wire in enumerate(wires):
        selector.register(wire.fileno(), selectors.EVENT_READ, wire)
        wire.send(make(number), prepared=prepared)

    def ask(asked: int) -> int:
        done = 0
        for key, _ in selector.select(1.0):
            wire: ServerWire = key.data
            answer = wire.receive()
            if answer is not None:
                if answer.row_count != 1:
                    raise SystemExit(str(answer))
                done += 1
                wire.send(make(asked + done), prepared=prepared)
        return done

    return ask


def one(wire: ServerWire, *, prepared: bool) -> Callable[[int], int]:
    make = bound if prepared else point

    def ask(asked: int) -> int:
        answer = wire.run(make(asked), prepared=prepared)
        if answer.row_count != 1:
            raise SystemExit(str(answer))
        return 1

    return ask


def main() -> None:
    where = endpoint()
    with open_session(where, None) as session:
        session.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        session.execute(f"CREATE DATABASE {DATABASE}")
        session.execute(f"CREATE TABLE {DATABASE}.point (id INT PRIMARY KEY, name VARCHAR(40), amount DECIMAL(12,2))")
        for start in range(0, ROWS, 1000):
            values = ",".join(f"({n},'name of {n}',{n}.25)" for n in range(start, start + 1000))
            session.execute(f"INSERT INTO {DATABASE}.point VALUES {values}")
    peer = pymysql.connect(
        host=where.host, port=where.port, user="root", database=DATABASE, ssl_disabled=True, autocommit=True
    )
    cursor = peer.cursor()

    def by_peer(asked: int) -> int:
        cursor.execute(f"SELECT id, name, amount FROM point WHERE id = {asked * 7919 % ROWS}")
        return len(cursor.fetchall())

    wires = [open_wire(where, None, Side.SOURCE) for _ in range(100)]
    for wire in wires:
        wire.command(b"USE " + DATABASE.encode())
    measure("PyMySQL, 1 connection", by_peer)
    measure("wire, 1 connection, text", one(wires[0], prepared=False))
    measure("wire, 1 connection, prepared", one(wires[0], prepared=True))
    measure("wire, 50 connections, text", many(wires[:50], prepared=False))
    measure("wire, 50 connections, prepared", many(wires[50:], prepared=True))
    for wire in wires:
        wire.close()
    with open_session(where, None) as session:
        session.execute(f"DROP DATABASE {DATABASE}")


if __name__ == "__main__":
    main()
