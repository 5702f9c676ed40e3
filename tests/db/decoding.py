"""Servers whose binlog files are decoded and compared with what they say themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import FIELD_TYPE

from migverify.changes.decode import decoder
from migverify.changes.model import Op, Rows, TableMap, Texts
from migverify.changes.source import read_files
from migverify_lab import mariadb
from migverify_lab.engine import temporary_server
from tests.db.binlog_server import binlog_server

STRINGS = {
    FIELD_TYPE.VARCHAR, 242, FIELD_TYPE.TINY_BLOB, FIELD_TYPE.MEDIUM_BLOB, FIELD_TYPE.LONG_BLOB,
    FIELD_TYPE.BLOB, FIELD_TYPE.VAR_STRING, FIELD_TYPE.STRING, FIELD_TYPE.GEOMETRY,
}  # fmt: skip
BINARY_COLLATION = 63


def _text(value: bytes | None, field: Any) -> str | None:
    if value is None:
        return None
    if field.type_code == FIELD_TYPE.BIT:
        return str(int.from_bytes(value, "big"))
    binary = field.charsetnr == BINARY_COLLATION and field.type_code in STRINGS
    return "0x" + value.hex() if binary else value.decode("utf-8")


@dataclass
class DecodedServer:
    """A server of its own: what it selects, and what its files hold, decoded."""

    flavor: str
    session: pymysql.connections.Connection
    data: Path

    def run(self, *statements: str) -> list[tuple[bytes | None, ...]]:
        with self.session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def select(self, query: str) -> list[Texts]:
        """Rows as text: 0x and hex where the server says that a string is binary, a number for BIT."""
        with self.session.cursor() as cursor:
            cursor.execute(query)
            rows = cursor.fetchall()
            fields = cursor._result.fields
        return [tuple(_text(value, field) for value, field in zip(row, fields, strict=True)) for row in rows]

    def new_file(self) -> Path:
        """Begin a new binlog file."""
        name = self.run("FLUSH BINARY LOGS", "SHOW BINARY LOGS")[-1][0] or b""
        return self.data / name.decode()

    def changes(self, path: Path) -> list[Rows]:
        """Rows events of one file, which is ended first."""
        self.run("FLUSH BINARY LOGS")
        return [item for item in read_files([path]) if isinstance(item, Rows)]


def images(found: Sequence[Rows], op: Op) -> list[Texts]:
    return [texts for event in found if event.op is op for texts in decoder(event.table).texts(event.images)]


def layout(found: Sequence[Rows]) -> TableMap:
    return found[0].table


@contextmanager
def decoded_mysql(folder: Path) -> Iterator[DecodedServer]:
    with binlog_server(folder) as server, _session(server.server.port) as session:
        yield DecodedServer("mysql", session, server.data)


@contextmanager
def decoded_mariadb(folder: Path, *options: str) -> Iterator[DecodedServer]:
    if mariadb.find() is None and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("no mariadbd on PATH or in the cache")
    with temporary_server(mariadb.ENGINE, folder, *options) as server, _session(server.port) as session:
        yield DecodedServer("mariadb", session, folder / "data")


@contextmanager
def _session(port: int) -> Iterator[pymysql.connections.Connection]:
    """A session without conversions: every value is the bytes that came."""
    session = pymysql.connect(
        host="127.0.0.1", port=port, user="root", autocommit=True, charset="utf8mb4", use_unicode=False,
        conv=dict(pymysql.converters.encoders), read_timeout=60, init_command="SET time_zone='+00:00'",
    )  # fmt: skip
    with session:
        with session.cursor() as cursor:
            cursor.execute("SET sql_mode='ALLOW_INVALID_DATES'")
            cursor.execute("CREATE DATABASE d CHARACTER SET utf8mb4")
            cursor.execute("USE d")
        yield session
