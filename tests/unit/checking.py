"""Servers that answer as recorded, for tests of the settings guard: six sources and a TiDB, all of them good."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from migverify.config.settings import Config
from migverify.db.session import Encryption
from migverify.errors import PrivilegeError, ReadError
from migverify.guards.check import CheckGuard
from migverify.guards.check_read import CheckPlan
from migverify.guards.check_rules import CheckQuestion
from migverify.guards.check_table import QUESTIONS
from migverify.guards.model import GuardAnswer, GuardResult
from migverify.guards.scope import Scope
from migverify.model import Endpoint, Flavor
from migverify.sql import settings as sql
from migverify.sql.definitions import READ
from migverify.sql.server import CLOCK, CONNECTIONS, TIDB_CONNECTIONS
from tests.unit.guards.test_preflight import MARIADB, MYSQL_57, MYSQL_97, NOW

BIN = "utf8mb4_bin"
_BOTH = {
    "sql_mode": "STRICT_TRANS_TABLES,NO_ZERO_DATE", "character_set_server": "utf8mb4", "collation_server": BIN,
    "time_zone": "SYSTEM", "system_time_zone": "UTC", "transaction_isolation": "REPEATABLE-READ",
    "max_allowed_packet": "67108864", "auto_increment_increment": "1", "auto_increment_offset": "1",
    "lower_case_table_names": "0", "max_connections": "500", "max_user_connections": "0", "autocommit": "ON",
    "wait_timeout": "28800", "interactive_timeout": "28800", "group_concat_max_len": "1024",
    "foreign_key_checks": "ON", "default_collation_for_utf8mb4": BIN,
}  # fmt: skip
_TIDB = {
    **_BOTH, "lower_case_table_names": "2", "max_connections": "0", "tidb_txn_mode": "pessimistic",
    "tidb_enable_noop_functions": "OFF", "tidb_skip_isolation_level_check": "OFF",
    "tidb_mem_quota_query": "1073741824", "tidb_multi_statement_mode": "OFF", "tidb_super_read_only": "OFF",
    "tidb_restricted_read_only": "OFF", "tidb_constraint_check_in_place": "OFF", "tidb_gc_life_time": "24h0m0s",
    "tidb_gc_enable": "ON", "tidb_enable_foreign_key": "ON", "tidb_enable_check_constraint": "ON",
    "tidb_txn_entry_size_limit": "6291456",
}  # fmt: skip
_SOURCE_GRANTS = (
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT, PROCESS, SHOW_ROUTINE ON *.* TO `m`@`%`",
    "GRANT SELECT ON `mysql`.`proc` TO `m`@`%`",
    "GRANT TRIGGER, EVENT ON `app`.* TO `m`@`%`",
    "GRANT SELECT, SHOW VIEW ON `app`.* TO `m`@`%`",
)  # fmt: skip
_TARGET_GRANTS = (
    "GRANT PROCESS ON *.* TO 'm'@'%'",
    "GRANT SELECT,INSERT,UPDATE,DELETE,SHOW VIEW ON `app`.* TO 'm'@'%'",
)
_NAMES = ("MASTER STATUS", "BINARY LOG STATUS"), ("SLAVE HOSTS", "REPLICAS"), ("SLAVE STATUS", "REPLICA STATUS")


@dataclass(frozen=True)
class Column:
    name: str
    type: str = "bigint"
    nullable: bool = False
    collation: str | None = None
    extra: str = ""


@dataclass(frozen=True)
class Index:
    name: str = "PRIMARY"
    columns: tuple[str, ...] = ("id",)
    unique: bool = True
    kind: str = "BTREE"


@dataclass(frozen=True)
class Table:
    """A table, or a view where ``kind`` says so."""

    name: str
    columns: tuple[Column, ...] = (Column("id"), Column("code", "varchar", collation=BIN))
    indexes: tuple[Index, ...] = (Index(),)
    engine: str = "InnoDB"
    rows: int = 10
    database: str = "app"
    kind: str = "BASE TABLE"


@dataclass
class Fake:
    """A session. ``answers`` holds rows, named rows or an error for the statements that begin so."""

    flavor: Flavor
    version: str
    variables: dict[str, str]
    grants: tuple[str, ...]
    tables: list[Table] = field(default_factory=lambda: [Table("orders"), Table("payments")])
    answers: dict[str, Any] = field(default_factory=dict)
    offset: float = 0.0
    tls: Encryption | None = field(default_factory=lambda: Encryption("TLSv1.3", "AES", NOW + 90 * 86_400))
    asked: list[str] = field(default_factory=list)
    dead: bool = False
    closed: bool = False

    def query(self, sql_text: str) -> list[tuple[str | None, ...]]:
        self.asked.append(sql_text)
        found = self._answer(sql_text)
        return [tuple(row.values()) if isinstance(row, dict) else row for row in found]

    def query_named(self, sql_text: str) -> list[dict[str, str | None]]:
        self.asked.append(sql_text)
        return list(self._answer(sql_text))

    def encryption(self) -> Encryption | None:
        return self.tls

    def alive(self) -> bool:
        return not self.dead

    def close(self) -> None:
        self.closed = True

    def _answer(self, sql_text: str) -> Any:
        starts = [start for start in self.answers if sql_text.startswith(start)]
        found = self.answers[max(starts, key=len)] if starts else self._catalog(sql_text)
        if isinstance(found, Exception):
            raise found
        return found

    def _catalog(self, text: str) -> Any:
        if text == sql.VARIABLES:
            return list(self.variables.items())
        if text == CLOCK:
            return [(f"{NOW + self.offset:.6f}",)]
        if text == "SHOW GRANTS":
            return [(line,) for line in self.grants]
        if "FROM information_schema.TABLES WHERE TABLE_SCHEMA NOT IN" in text:
            return [(t.database, t.name, t.kind) for t in self.tables]
        for view, rows in (("TABLES", self._tables), ("COLUMNS", self._columns), ("STATISTICS", self._indexes)):
            if text.startswith("SELECT TABLE_SCHEMA, TABLE_NAME, ") and f"information_schema.{view} WHERE" in text:
                return [tuple(row[name] for name in READ[view]) for row in rows()]
        if text.startswith("SELECT 1 FROM `"):
            return self._access(text)
        return ReadError(f"You have an error in your SQL syntax [1064]: {text}")

    def _access(self, text: str) -> Any:
        path = text.removeprefix("SELECT 1 FROM ").removesuffix(" LIMIT 0")
        database, _, name = path.replace("`", "").partition(".")
        whole = (path, f"`{database}`.*", "*.*")
        reading = [line for line in self.grants if "SELECT" in line or "ALL PRIVILEGES" in line]
        if not any(f" ON {one} " in line for line in reading for one in whole):
            return PrivilegeError(f"SELECT command denied to user 'm'@'%' for table '{name}' [1142]")
        found = any((t.database.lower(), t.name.lower()) == (database.lower(), name.lower()) for t in self.tables)
        return [] if found else ReadError(f"Table '{database}.{name}' doesn't exist [1146]")

    def _real(self) -> Iterator[Table]:
        return (t for t in self.tables if t.kind == "BASE TABLE")

    def _tables(self) -> Iterator[dict[str, str | None]]:
        for t in self._real():
            yield {
                **dict.fromkeys(READ["TABLES"]), "TABLE_SCHEMA": t.database, "TABLE_NAME": t.name, "ENGINE": t.engine,
                "TABLE_ROWS": str(t.rows), "DATA_LENGTH": "1", "INDEX_LENGTH": "1", "TABLE_COLLATION": BIN,
            }  # fmt: skip

    def _columns(self) -> Iterator[dict[str, str | None]]:
        for t in self._real():
            for position, c in enumerate(t.columns, 1):
                yield {
                    **dict.fromkeys(READ["COLUMNS"]), "TABLE_SCHEMA": t.database, "TABLE_NAME": t.name,
                    "COLUMN_NAME": c.name, "ORDINAL_POSITION": str(position), "DATA_TYPE": c.type,
                    "COLUMN_TYPE": c.type, "IS_NULLABLE": "YES" if c.nullable else "NO", "EXTRA": c.extra,
                    "CHARACTER_SET_NAME": c.collation and c.collation.partition("_")[0], "COLLATION_NAME": c.collation,
                }  # fmt: skip

    def _indexes(self) -> Iterator[dict[str, str | None]]:
        for t in self._real():
            for index in t.indexes:
                for place, name in enumerate(index.columns, 1):
                    yield {
                        **dict.fromkeys(READ["STATISTICS"]), "TABLE_SCHEMA": t.database, "TABLE_NAME": t.name,
                        "INDEX_NAME": index.name, "NON_UNIQUE": "0" if index.unique else "1", "INDEX_TYPE": index.kind,
                        "SEQ_IN_INDEX": str(place), "COLUMN_NAME": name,
                    }  # fmt: skip


def in_app(statement: str) -> str:
    """Return a statement as it is run for the database ``app``."""
    return sql.shown(statement, ("app",))


def _common() -> dict[str, Any]:
    return {
        "SELECT CURRENT_USER()": [("m@%",)], "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS": [],
        "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMN_PRIVILEGES": [],
        "SHOW VARIABLES LIKE": [], sql.ZONE_OFFSETS: [("2026-01-15 12:00:00", "2026-07-15 12:00:00")],
        sql.NAMED_ZONES: [("2026-07-15 14:00:00",)], in_app(sql.TRIGGERS): [], in_app(sql.EVENTS): [],
        in_app(sql.ROUTINES): [], in_app(sql.FOREIGN_KEYS): [], in_app(sql.CHECKS): [],
        in_app(sql.MARIADB_CHECKS): [], in_app(sql.REFERENTIAL_RULES): [],
        sql.COLLATIONS: [(BIN,), ("utf8mb4_0900_ai_ci",)],
    }  # fmt: skip


def source(platform: str = "mysql-8.0") -> Fake:
    """Return a source of a platform, everything in order."""
    version, flavor, own = {
        "mysql-5.7": ("5.7.44-log", Flavor.MYSQL, MYSQL_57), "mysql-8.0": ("8.0.36", Flavor.MYSQL, MYSQL_97),
        "mysql-9.7": ("9.7.4", Flavor.MYSQL, MYSQL_97), "mariadb": ("10.5.9-MariaDB-log", Flavor.MARIADB, MARIADB),
        "rds": ("8.0.36", Flavor.MYSQL, {**MYSQL_97, "basedir": "/rdsdbbin/mysql-8.0.36/"}),
        "aurora": ("8.0.39", Flavor.MYSQL, {**MYSQL_97, "aurora_version": "3.08.0"}),
    }[platform]  # fmt: skip
    variables = {**_BOTH, **own}
    if platform == "mysql-5.7":
        variables["tx_isolation"] = variables.pop("transaction_isolation")
        del variables["default_collation_for_utf8mb4"]
    new = platform == "mysql-9.7"
    log, hosts, replica = (f"SHOW {words[new]}" for words in _NAMES)
    answers = {
        **_common(), CONNECTIONS: [("Threads_connected", "20")], "SELECT VARIABLE_NAME, VARIABLE_VALUE, COUNT": [],
        "SHOW BINARY LOGS": [{"Log_name": "binlog.000007", "File_size": "1000", "Encrypted": "No"}],
        log: [{"File": "binlog.000007", "Position": "1", "Binlog_Do_DB": "", "Binlog_Ignore_DB": ""}],
        hosts: [{"Server_Id": "12", "Host": "r1"}], replica: [],
    }  # fmt: skip
    if platform in ("rds", "aurora"):
        answers["CALL mysql.rds_show_configuration"] = [("binlog retention hours", "168", "")]
    return Fake(flavor, version, variables, _SOURCE_GRANTS, answers=answers)


def target() -> Fake:
    """Return a TiDB, everything in order."""
    statistics = [
        {"Db_name": "app", "Table_name": name, "Partition_name": "", "Healthy": "100"}
        for name in ("orders", "payments")
    ]  # fmt: skip
    answers = {
        **_common(), TIDB_CONNECTIONS: [("tidb-1", "20")], sql.STATISTICS: statistics, sql.CHECKPOINT_TABLES: [],
        sql.NEW_COLLATIONS: [("1",)],
        sql.TIDB_STATE: [("tikv_gc_safe_point", "20270115-07:50:00.000 +0000")],
        sql.STORES: [("tikv-1:20160", "100GiB", "60GiB", "Up")],
        sql.session_variable("tidb_constraint_check_in_place_pessimistic"): [("1",)],
    }  # fmt: skip
    return Fake(Flavor.TIDB, "8.0.11-TiDB-v8.5.3", dict(_TIDB), _TARGET_GRANTS, answers=answers)


PLATFORMS = ("mysql-5.7", "mysql-8.0", "mysql-9.7", "mariadb", "rds", "aurora")


def guard(
    ours: Fake | Exception, theirs: Fake | Exception, *, plan: CheckPlan = CheckPlan(verify_seconds=3600.0),  # noqa: B008
    questions: Sequence[CheckQuestion] = QUESTIONS, tls: str = "verify-identity",
    routes: Sequence[dict[str, str]] = (), snapshot: str | None = None,
) -> CheckGuard:  # fmt: skip
    """Return a guard over two fakes."""
    sides = {"source": ours, "target": theirs}

    def opened(endpoint: Endpoint, _: str | None) -> Fake:
        side = sides[endpoint.name]
        if isinstance(side, Exception):
            raise side
        return side

    ends: dict[str, dict[str, Any]] = {
        name: {"url": f"{kind}://m@{name}.example:3306", "tls": {"mode": tls}}
        for name, kind in (("source", "mysql"), ("target", "tidb"))
    }
    if snapshot is not None:
        ends["target"]["snapshot"] = snapshot
    config = Config.model_validate({**ends, "tables": {"include": ["app.*"]}, "routes": list(routes)})
    return CheckGuard(Scope(config, {}), plan, questions, open=opened, now=lambda: NOW)


def ask(ours: Fake | Exception, theirs: Fake | Exception, **options: Any) -> GuardResult:
    """Ask two fakes."""
    return guard(ours, theirs, **options).ask()


def answer(result: GuardResult, name: str, subject: str = "") -> GuardAnswer:
    """Return the one answer of this name (and subject)."""
    found = [a for a in result.answers if a.name == name and subject in ("", a.subject)]
    assert len(found) == 1, [(a.name, a.subject) for a in result.answers if a.name.startswith(name.split(" ")[0])]
    return found[0]
