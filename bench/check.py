"""How long ``migverify check`` takes over many tables: makes them on both sides, asks, drops them.

python -m bench.check --source 127.0.0.1:3306 --target 127.0.0.1:4000 --tables 1000 --databases 10
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import pymysql

from migverify.config.settings import Config
from migverify.guards.check import CheckGuard
from migverify.guards.scope import Scope

PREFIX = "bench_check_"
TABLE = (
    "CREATE TABLE IF NOT EXISTS {name} (id BIGINT PRIMARY KEY AUTO_INCREMENT, account BIGINT NOT NULL,"
    " amount DECIMAL(18,2) NOT NULL, state VARCHAR(20) COLLATE utf8mb4_bin, made DATETIME(6) NOT NULL, note TEXT"
    " COLLATE utf8mb4_bin, paid DATE, code CHAR(3) COLLATE utf8mb4_bin, KEY (account), UNIQUE KEY (code, account))"
)


def connect(address: str) -> pymysql.connections.Connection:
    """Connect as root without a password."""
    host, _, port = address.rpartition(":")
    return pymysql.connect(host=host, port=int(port), user="root", autocommit=True)


def run(address: str, statements: list[str]) -> None:
    """Run statements one after the other."""
    with connect(address) as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def make(address: str, tables: int, databases: int) -> float:
    """Make the tables, four connections at once; returns the seconds it took."""
    began = time.monotonic()
    names = [f"{PREFIX}{number:02}" for number in range(databases)]
    run(address, [f"CREATE DATABASE IF NOT EXISTS {name}" for name in names])
    each = tables // databases
    work = [[TABLE.format(name=f"{name}.t{number:04}") for number in range(each)] for name in names]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda statements: run(address, statements), work))
    return time.monotonic() - began


def drop(address: str, databases: int) -> None:
    """Drop what was made."""
    run(address, [f"DROP DATABASE IF EXISTS {PREFIX}{number:02}" for number in range(databases)])


def guard(source: str, target: str) -> CheckGuard:
    """Return the guard over the tables of this bench."""
    ends = {"source": {"url": f"mysql://root@{source}"}, "target": {"url": f"tidb://root@{target}"}}
    config = Config.model_validate({**ends, "tables": {"include": [f"{PREFIX}*.*"]}})
    return CheckGuard(Scope(config, {}))


def main() -> None:
    """Make, ask three times, drop."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", default="127.0.0.1:3306")
    parser.add_argument("--target", default="127.0.0.1:4000")
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--databases", type=int, default=10)
    given = parser.parse_args()
    sides = (given.source, given.target)
    try:
        for address in sides:
            print(f"made {given.tables} tables on {address} in {make(address, given.tables, given.databases):.1f} s")
        for _ in range(3):
            result = guard(*sides).ask()
            print(f"check: {result.state.value}, {len(result.answers)} answers in {result.seconds:.2f} s")
    finally:
        for address in sides:
            drop(address, given.databases)


if __name__ == "__main__":
    main()
