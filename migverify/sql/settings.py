"""SQL of the settings guard: what a server says of itself and of a database's objects. Reads only, and opens no table.

MySQL 5.7 looks a database up only where it is compared to one constant (``IN`` of one value is that to its parser);
``IN`` of several makes it walk through all of them. So statements with ``{databases}`` are run for one after the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from migverify.sql.quoting import quote_name, quote_path, quote_text, quote_texts

VARIABLES = "SHOW GLOBAL VARIABLES"
ZONE_OFFSETS = (
    "SELECT CONVERT_TZ('2026-01-15 12:00:00', '+00:00', @@GLOBAL.time_zone),"
    " CONVERT_TZ('2026-07-15 12:00:00', '+00:00', @@GLOBAL.time_zone)"
)
NAMED_ZONES = "SELECT CONVERT_TZ('2026-07-15 12:00:00', 'UTC', 'Europe/Berlin')"
COLLATIONS = "SELECT COLLATION_NAME FROM information_schema.COLLATIONS"
NEW_COLLATIONS = "SELECT _utf8mb4'a' COLLATE utf8mb4_general_ci = _utf8mb4'A'"
TIDB_STATE = "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM mysql.tidb"
STATISTICS = "SHOW STATS_HEALTHY"
STORES = "SELECT ADDRESS, CAPACITY, AVAILABLE, STORE_STATE_NAME FROM information_schema.TIKV_STORE_STATUS"
CHECKPOINT_TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA = 'dm_meta' AND COLUMN_NAME = 'binlog_gtid'"
)
COLUMNS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, COLLATION_NAME FROM information_schema.COLUMNS"
    " WHERE TABLE_SCHEMA IN ({databases})"
)
INDEXES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, NULLABLE FROM information_schema.STATISTICS"
    " WHERE TABLE_SCHEMA IN ({databases})"
)
TABLES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, TABLE_TYPE FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA IN ({databases})"
)
VIEWS = "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.VIEWS WHERE TABLE_SCHEMA IN ({databases})"
TRIGGERS = (
    "SELECT EVENT_OBJECT_SCHEMA, EVENT_OBJECT_TABLE, TRIGGER_NAME FROM information_schema.TRIGGERS"
    " WHERE EVENT_OBJECT_SCHEMA IN ({databases})"
)
EVENTS = "SELECT EVENT_SCHEMA, EVENT_NAME, STATUS FROM information_schema.EVENTS WHERE EVENT_SCHEMA IN ({databases})"
ROUTINES = (
    "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE FROM information_schema.ROUTINES"
    " WHERE ROUTINE_SCHEMA IN ({databases})"
)
FOREIGN_KEYS = (
    "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.KEY_COLUMN_USAGE"
    " WHERE TABLE_SCHEMA IN ({databases}) AND REFERENCED_TABLE_NAME IS NOT NULL"
)
REFERENTIAL_RULES = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS WHERE CONSTRAINT_SCHEMA IN ({databases})"
)
"""MariaDB and MySQL 5.7 hide rules from a user who may only SELECT, which ``FOREIGN_KEYS`` shows all the same."""
CHECKS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.TABLE_CONSTRAINTS"
    " WHERE TABLE_SCHEMA IN ({databases}) AND CONSTRAINT_TYPE = 'CHECK'"
)
MARIADB_CHECKS = (
    "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME FROM information_schema.CHECK_CONSTRAINTS"
    " WHERE CONSTRAINT_SCHEMA IN ({databases}) AND CHECK_CLAUSE NOT LIKE 'json_valid(%'"
)
"""The same on MariaDB, where every JSON column has one that nobody wrote."""
ENTRY_SIZE = "SHOW CONFIG WHERE TYPE = 'tidb' AND NAME = 'performance.txn-entry-size-limit'"

KEY_KINDS = "SELECT TABLE_SCHEMA, TABLE_NAME, TIDB_PK_TYPE FROM information_schema.TABLES"
"""CLUSTERED or NONCLUSTERED; TiDB knows the column from 5.0 on."""
PARTITIONS = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, PARTITION_METHOD, COUNT(*) FROM information_schema.PARTITIONS"
    " WHERE PARTITION_NAME IS NOT NULL GROUP BY TABLE_SCHEMA, TABLE_NAME, PARTITION_METHOD"
)
LIMITS_VARIABLES = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN"
    " ('tidb_mem_quota_query', 'tidb_gc_life_time', 'tidb_txn_entry_size_limit')"
)
LIMITS_CONFIGURATION = (
    "SHOW CONFIG WHERE NAME IN ('performance.txn-total-size-limit', 'performance.txn-entry-size-limit',"
    " 'performance.stmt-count-limit', 'performance.max-txn-ttl', 'coprocessor.region-split-size')"
)


def regions(database: str, table: str) -> str:
    """Return what lists the regions of a table and of its indexes."""
    return f"SHOW TABLE {quote_path(database, table)} REGIONS"


def sharded_rows(database: str, table: str) -> str:
    """Return what scatters the hidden row ids of a table of TiDB."""
    return f"ALTER TABLE {quote_path(database, table)} SHARD_ROW_ID_BITS = 4"


def auto_random(database: str, table: str, column: str, column_type: str) -> str:
    """Return what scatters the ids that TiDB gives out in a clustered key."""
    wide = "BIGINT UNSIGNED" if "unsigned" in column_type.lower() else "BIGINT"
    change = f"ALTER TABLE {quote_path(database, table)} MODIFY COLUMN {quote_name(column)} {wide} AUTO_RANDOM(5)"
    return f"SET tidb_allow_remove_auto_inc = ON; {change}"


def split_rows(database: str, table: str) -> str:
    """Return what splits a small table of TiDB into regions, for a user to complete."""
    return f"SPLIT TABLE {quote_path(database, table)} BETWEEN (low) AND (high) REGIONS 16"


def cached(database: str, table: str) -> str:
    """Return what lets every TiDB server keep a small table in memory."""
    return f"ALTER TABLE {quote_path(database, table)} CACHE"


def checkpoint_rows(database: str, table: str) -> str:
    """Return the position of DM: source, file, offset, GTIDs and the age of the row in seconds, one row a source."""
    return (
        "SELECT id, binlog_name, binlog_pos, binlog_gtid, TIMESTAMPDIFF(SECOND, update_time, NOW())"
        f" FROM {quote_path(database, table)} WHERE is_global = 1"
    )


def global_variable(name: str) -> str:
    """Return what shows a variable as all sessions begin with it; ``name`` may be a pattern of LIKE."""
    return f"SHOW GLOBAL VARIABLES LIKE {quote_text(name)}"


def session_variable(name: str) -> str:
    """Return a variable as a new session has it."""
    return f"SELECT @@SESSION.{quote_name(name)}"


def shown(statement: str, databases: Sequence[str]) -> str:
    """Return a statement with databases filled in: one to be run, all in scope to be shown to a reader."""
    return statement.replace("{databases}", quote_texts(databases or ("<database>",)))


def longest(database: str, table: str, column: str) -> str:
    """Return a query for a user to run: the longest value of a column, in bytes. It reads the whole table."""
    return f"SELECT MAX(LENGTH({quote_name(column)})) FROM {quote_path(database, table)}"


def version_number(version: str) -> tuple[int, ...]:
    """Return the numbers of a version as a server greets with it; empty when there are none.

    MariaDB before 11 greets with ``5.5.5-`` before its own version.
    """
    found = re.match(r"(?:5\.5\.5-(?=1\d\.))?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(part or 0) for part in found.groups()) if found else ()
