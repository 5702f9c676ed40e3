"""What is measured against what: the pair of servers, the table, and who else is there to run.

Without ``--source`` and ``--target`` the lab brings up a pair of its own and loads TPC-H lineitem into it, so that no
other work on the servers is counted. CPU of the servers can only be read when they run on this machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pymysql
from pymysql.connections import Connection

from bench.measure import ServerClock
from migverify.config import TableOverride
from migverify.db.session import open_session
from migverify.model import Endpoint, TableDef
from migverify.sql.catalog import read_tables
from migverify.tables.plan import plan_pair
from migverify.tables.tasks import PairPlan
from migverify_lab import servers, tpch

LAB = Path(".migverify-bench")


@dataclass(frozen=True, slots=True)
class Setting:
    """The pair, the table and how often everything is run. ``sdi`` and ``reladiff`` are programs, or None."""

    source: Endpoint
    target: Endpoint
    database: str
    table: str
    rounds: int
    sdi: str | None
    reladiff: str | None
    hash: str

    @property
    def clock(self) -> ServerClock:
        """A clock of the two server processes."""
        return ServerClock(self.source.port, self.target.port)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that every question takes."""
    parser.add_argument("--source", metavar="URL", help="mysql://user:password@host:port; default: a lab of its own")
    parser.add_argument("--target", metavar="URL")
    parser.add_argument("--lab", type=Path, default=LAB, help=f"folder of the bench's own lab (default {LAB})")
    parser.add_argument("--scale", type=float, default=0.3, help="TPC-H scale of the lab's lineitem (default 0.3)")
    parser.add_argument("--database", default="h_bench")
    parser.add_argument("--table", default="lineitem")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hash", default="SHA2")
    parser.add_argument("--sdi", default=os.environ.get("SYNC_DIFF_INSPECTOR") or shutil.which("sync_diff_inspector"))
    parser.add_argument("--reladiff", default=os.environ.get("RELADIFF") or shutil.which("reladiff"))


def open_setting(arguments: argparse.Namespace) -> Setting:
    """Return the setting; brings the lab up and loads it where no servers were named."""
    if arguments.source and arguments.target:
        source, target = endpoint("source", arguments.source), endpoint("target", arguments.target)
    else:
        folder = servers.lab_directory(arguments.lab)
        pair = servers.up(folder, "tidb", print)
        source = Endpoint("source", pair.source.host, pair.source.port, pair.source.user)
        target = Endpoint("target", pair.target.host, pair.target.port, pair.target.user)
        if not _rows(target, arguments.database, arguments.table):
            tpch.load(pair, arguments.database, arguments.scale, (arguments.table,), 0, folder, print)
    return Setting(
        source, target, arguments.database, arguments.table, arguments.rounds, arguments.sdi, arguments.reladiff,
        arguments.hash,
    )  # fmt: skip


def endpoint(name: str, url: str) -> Endpoint:
    """Read ``scheme://user@host:port``. Benchmarks run on servers without secrets: a password is refused."""
    parts = urlsplit(url)
    if parts.password:
        raise SystemExit("bench: use a server whose user has no password")
    return Endpoint(name, parts.hostname or "127.0.0.1", parts.port or 3306, unquote(parts.username or "root"))


def connect(where: Endpoint) -> Connection:  # type: ignore[type-arg]  # the stubs make it generic, the class is not
    """Open a plain autocommit connection, for making data and for bare scans."""
    return pymysql.connect(
        host=where.host, port=where.port, user=where.user, autocommit=True, charset="utf8mb4", read_timeout=3600
    )


def execute(where: Endpoint, *statements: str) -> list[tuple[object, ...]]:
    """Run statements and return the rows of the last."""
    with connect(where) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def _rows(where: Endpoint, database: str, table: str) -> int:
    try:
        return int(str(execute(where, f"SELECT COUNT(*) FROM `{database}`.`{table}`")[0][0]))
    except pymysql.MySQLError:
        return 0


def read_definition(where: Endpoint, database: str, table: str) -> TableDef:
    """Read one table's definition from the catalog."""
    with open_session(where, None) as session:
        return next(iter(read_tables(session, where.name, [(database, table)])))


def plan(setting: Setting, source_database: str | None = None) -> PairPlan:
    """Plan the pair as ``migverify tables verify`` does, with a source of another database where one is named."""
    source = read_definition(setting.source, source_database or setting.database, setting.table)
    target = read_definition(setting.target, setting.database, setting.table)
    endpoints = {"source": setting.source, "target": setting.target}
    return plan_pair([source], target, endpoints, TableOverride(), setting.hash)
