"""A schema change in the stream, as a finding: who, when, what, on which tables.

A migration verified last week proves nothing for a table that was altered this week, so these are shown at once.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from migverify.changes.model import Op, Statement

UNKNOWN_USER = "unknown"
_SHOWN = 500
_CONNECTION = re.compile(
    r"""(CONNECTION\s*=?\s*)('(?:[^'\\]|''|\\.)*'|"(?:[^"\\]|""|\\.)*")""", re.IGNORECASE | re.DOTALL
)
"""Where a table of another engine (FEDERATED, CONNECT, SPIDER) may hold a password."""


@dataclass(frozen=True, slots=True)
class DdlFinding:
    """One TRUNCATE or DDL statement.

    ``tables`` are ``database.table``, ``database.*`` for a whole database; empty where the statement cannot be read
    that far, and then it may concern any table. ``user`` is ``unknown`` where the source logs no invoker. ``time``
    is Unix time. ``sql`` is the statement; the text of a CONNECTION option is masked, because it may hold a password.
    """

    op: Op
    user: str
    time: int
    tables: tuple[str, ...]
    sql: str
    file: str
    offset: int
    gtid: str = ""

    def __str__(self) -> str:
        when = datetime.fromtimestamp(self.time, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        tables = ", ".join(self.tables) or "any table"
        sql = " ".join(self.sql.split())
        sql = sql if len(sql) <= _SHOWN else f"{sql[:_SHOWN]} ... ({len(sql)} characters)"
        return f"{when} {self.user} on {tables}: {sql}"


def ddl_finding(statement: Statement, gtid: str = "") -> DdlFinding:
    """Return the finding of a statement; ``gtid`` is that of its transaction, empty for an anonymous one."""
    tables = tuple(f"{database}.{table or '*'}" for database, table in statement.tables)
    sql = masked(statement.sql)
    return DdlFinding(
        statement.op, statement.user or UNKNOWN_USER, statement.time, tables, sql, statement.file,
        statement.offset, gtid,
    )  # fmt: skip


def masked(sql: str) -> str:
    """Return a statement without the text of its CONNECTION option, which may hold a password."""
    return _CONNECTION.sub(r"\1'***'", sql)
