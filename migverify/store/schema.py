"""The tables of a result store, version 2.

A store of version 1 may lack tables that were added later, kinds of runs and windows of findings: ``open.py`` adds
them. Every table is append-only but four: ``migverify_row_diff_heads`` and ``migverify_finding_heads`` are indexes,
kept in the same transaction, that point from a key to the last row diff or finding written for it. They hold nothing
that the row diffs and findings do not say. ``migverify_runbook_runs`` points to the last event of a run's journal in
the same way; ``migverify_runbook_leases`` says which executor drives a run of a runbook, and which
process writes any other run.

Per-pair rows carry a ``scope``, a small integer for (run, pair), because names of tables are too long for the keys
of some databases. Numbers that order rows are counted by the writer inside its transaction, never by the database:
the auto-increment of a cluster does not follow the order of commits, and a reader that pages by it misses rows.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.types import TypeEngine

from migverify.store.codec import NAME_LENGTH

SCHEMA_VERSION = 2
"""Written into a new store, and into one of version 1 after it was migrated. A store of a higher version is refused."""

PREFIX = "migverify_"
IN_LIST = 500
"""Most values in one IN (...): some databases bound the number of parameters."""

metadata = MetaData()

_LONG_TEXT: TypeEngine[str] = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_LONG_BYTES: TypeEngine[bytes] = LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
_DIGEST: TypeEngine[bytes] = LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
# SQLite numbers rows by itself only for a column declared INTEGER.
_SERIAL: TypeEngine[int] = BigInteger().with_variant(Integer(), "sqlite")


def _table(name: str, *parts: Column[Any] | UniqueConstraint, clustered: bool = True) -> Table:
    # utf8mb4_bin: ids and names compare by bytes on every server. Clustered: rows lie in the order of their key.
    options = {"engine": "InnoDB", "charset": "utf8mb4", "collate": "utf8mb4_bin"}
    server: dict[str, Any] = {
        f"{dialect}_{name}": value for dialect in ("mysql", "mariadb") for name, value in options.items()
    }
    return Table(PREFIX + name, metadata, *parts, sqlite_with_rowid=not clustered, **server)


def _key(name: str, kind: TypeEngine[Any]) -> Column[Any]:
    return Column(name, kind, primary_key=True, autoincrement=False)


def _run_id() -> Column[Any]:
    return _key("run_id", String(32))


def _scope() -> Column[Any]:
    return _key("scope", BigInteger())


store_info = _table("store", _key("name", String(64)), Column("value", String(255), nullable=False))

runs = _table(
    "runs",
    _run_id(),
    Column("position", BigInteger, nullable=False),  # counts runs in the order of their start
    Column("command", _LONG_TEXT, nullable=False),
    Column("plan_hash", String(128), nullable=False),
    Column("started", Double, nullable=False),
    Column("facts", _LONG_TEXT, nullable=False),
    UniqueConstraint("position"),
)

plan_parts = _table("plan_parts", _run_id(), _key("part", Integer()), Column("content", _LONG_BYTES, nullable=False))

run_kinds = _table("run_kinds", _run_id(), Column("kind", String(16), nullable=False))

run_events = _table(
    "run_events",
    _run_id(),
    _key("number", Integer()),
    Column("event", String(16), nullable=False),  # run_started, run_resumed, run_finished
    Column("at", Double, nullable=False),
    Column("writer", String(255), nullable=False),  # host, process and a random mark of who writes from here on
    Column("verdict", String(16)),
    Column("facts", _LONG_TEXT, nullable=False),
)

scopes = _table(
    "scopes",
    Column("scope", _SERIAL, primary_key=True, autoincrement=True),
    Column("run_id", String(32), nullable=False),
    Column("pair_hash", _DIGEST, nullable=False),
    Column("pair", _LONG_TEXT, nullable=False),
    UniqueConstraint("run_id", "pair_hash"),
    clustered=False,
)

spans = _table("spans", _scope(), _key("span", BigInteger()), Column("key_range", _LONG_TEXT, nullable=False))

chunks = _table(
    "chunks",
    _scope(),
    _key("span", BigInteger()),
    _key("number", BigInteger()),
    _key("seq", BigInteger()),  # the attempt of the highest seq counts
    Column("key_range", _LONG_TEXT, nullable=False),
    Column("state", String(16), nullable=False),
    Column("source_rows", BigInteger),
    Column("source_hashed", BigInteger),
    Column("source_exact", String(64)),  # decimal text: sums pass 2^63 after a dozen rows
    Column("source_value", String(64)),
    Column("target_rows", BigInteger),
    Column("target_hashed", BigInteger),
    Column("target_exact", String(64)),
    Column("target_value", String(64)),
    Column("started", Double, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("source_seconds", Double, nullable=False),
    Column("target_seconds", Double, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("reason", _LONG_TEXT, nullable=False),
    UniqueConstraint("scope", "seq"),
)

row_diffs = _table(
    "row_diffs",
    _scope(),
    _key("number", BigInteger()),
    Column("key_hash", _DIGEST, nullable=False),
    Column("row_key", _LONG_TEXT, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    Column("column_diffs", _LONG_TEXT, nullable=False),
    Column("source_checksum", _LONG_TEXT),
    Column("target_checksum", _LONG_TEXT),
    Column("source_count", BigInteger, nullable=False),
    Column("target_count", BigInteger, nullable=False),
    Column("shard", _LONG_TEXT, nullable=False),
    Column("read_at", Double, nullable=False),
)

row_diff_heads = _table(
    "row_diff_heads",
    _scope(),
    _key("key_hash", _DIGEST),
    Column("number", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    Column("state", String(16), nullable=False),
    # Serves both a page (state known, numbers in order) and the counts (nothing else is read).
    UniqueConstraint("scope", "state", "number", "kind"),
)

table_results = _table(
    "table_results",
    _scope(),
    _key("number", BigInteger()),
    Column("at", Double, nullable=False),
    Column("verdict", String(16), nullable=False),
    Column("body", _LONG_TEXT, nullable=False),
)

sql_texts = _table(
    "sql_texts",
    _scope(),
    _key("side", String(NAME_LENGTH)),
    _key("purpose", String(NAME_LENGTH)),
    Column("number", BigInteger, nullable=False),
    Column("sql_text", _LONG_TEXT, nullable=False),
)

blobs = _table(
    "blobs",
    _scope(),
    _key("name", String(NAME_LENGTH)),
    _key("number", BigInteger()),
    _key("part", Integer()),
    Column("content", _LONG_BYTES, nullable=False),
)

rule_windows = _table(
    "rule_windows",
    _scope(),
    _key("number", BigInteger()),  # the body of the highest number counts
    Column("window_text", String(NAME_LENGTH), nullable=False),
    Column("state", String(32), nullable=False),
    Column("body", _LONG_TEXT, nullable=False),
    UniqueConstraint("scope", "window_text", "number"),
)

findings = _table(
    "findings",
    _scope(),
    _key("number", BigInteger()),
    Column("key_hash", _DIGEST, nullable=False),  # of window and key
    Column("kind", String(32), nullable=False),
    Column("body", _LONG_TEXT, nullable=False),
)

finding_heads = _table(
    "finding_heads",
    _scope(),
    _key("key_hash", _DIGEST),
    Column("number", BigInteger, nullable=False),
    Column("kind", String(32), nullable=False),
    UniqueConstraint("scope", "kind", "number"),
    UniqueConstraint("scope", "number"),
)

finding_windows = _table(
    "finding_windows",
    _scope(),
    _key("window_hash", _DIGEST),
    _key("number", BigInteger()),  # of the finding
    UniqueConstraint("scope", "number"),
)

runbook_runs = _table(
    "runbook_runs",
    _key("run", String(120)),
    Column("position", BigInteger, nullable=False),  # counts runs in the order of their start
    # Where the journal ends: whoever appends locks this row first, and a journal that was cut off shows.
    Column("events", BigInteger, nullable=False),
    Column("head", String(64), nullable=False),
    UniqueConstraint("position"),
)

runbook_events = _table(
    "runbook_events",
    _key("run", String(120)),
    _key("seq", BigInteger()),
    Column("line", _LONG_TEXT, nullable=False),
)

runbook_leases = _table(
    "runbook_leases",
    _key("run", String(120)),
    Column("epoch", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("renewed", Double, nullable=False),  # Unix time of the database's own clock
    Column("body", _LONG_TEXT, nullable=False),
)
