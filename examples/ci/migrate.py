"""Stands for your migration: waits for both servers, fills the source, and copies its rows to the target.

Put your own tool in its place: with this one the pipeline runs as it is written. PyMySQL comes with migverify.
"""

from __future__ import annotations

import os
import time

import pymysql

SECONDS = 300
TABLE = (
    "CREATE TABLE shop.orders (id BIGINT PRIMARY KEY, customer BIGINT NOT NULL, total DECIMAL(12, 2), note VARCHAR(80))"
)


def connect(side: str) -> pymysql.Connection:
    """Return a connection as soon as the server answers; an open port is not enough."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            return pymysql.connect(
                host=os.environ[f"{side}_HOST"], port=int(os.environ[f"{side}_PORT"]), user="root",
                password=os.environ.get(f"{side}_PASSWORD", ""), autocommit=True,
            )  # fmt: skip
        except pymysql.err.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)


def main() -> None:
    """Fill the source with 1,000 orders, and copy them."""
    with connect("SOURCE") as source, connect("TARGET") as target:
        for server in (source, target):
            with server.cursor() as cursor:
                cursor.execute("CREATE DATABASE shop")
                cursor.execute(TABLE)
        rows = [(number, number % 97, f"{number}.{number % 100:02}", f"order {number}") for number in range(1, 1001)]
        insert = "INSERT INTO shop.orders VALUES (%s, %s, %s, %s)"
        with source.cursor() as cursor:
            cursor.executemany(insert, rows)
            cursor.execute("SELECT * FROM shop.orders")
            copied = cursor.fetchall()
        with target.cursor() as cursor:
            cursor.executemany(insert, copied)
    print(f"{len(copied)} orders on both sides")


if __name__ == "__main__":
    main()
