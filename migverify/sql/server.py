"""SQL for what a server is and what goes on there now: clock, counters, sessions, locks, logs. Opens no user table."""

from __future__ import annotations

from typing import Protocol

from migverify.model import Flavor
from migverify.sql.quoting import quote_text, quote_texts


class ServerQuery(Protocol):
    """The part of a session that runs one statement at a server of a known kind."""

    @property
    def flavor(self) -> Flavor:
        """What kind of server answers."""
        ...

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        """Run one statement; every value is the server's text."""
        ...


class Queries(ServerQuery, Protocol):
    """The part of a session that asks a server about itself."""

    @property
    def version(self) -> str:
        """Its own words for its version."""
        ...

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        """Run one statement; rows as column name -> text."""
        ...


CLOCK = "SELECT UNIX_TIMESTAMP(NOW(6))"
UTC_NOW = "SELECT UTC_TIMESTAMP(6)"
PACKET = "SELECT @@max_allowed_packet"
IDENTITY = "SELECT @@hostname, @@port, @@server_uuid"
"""Two connections to one MySQL get the same answer, and no other MySQL gives it."""
NODE = "SELECT @@hostname, @@port, @@datadir"
"""The same of a server that has no id of its own: MariaDB, and TiDB, whose ``server_uuid`` is all zeros."""
CLUSTER = "SELECT VARIABLE_VALUE FROM mysql.tidb WHERE VARIABLE_NAME = 'cluster_id'"
EMBEDDED_CLUSTER = "1"
"""The cluster id of every TiDB on embedded storage."""
ACCOUNT = "SELECT CURRENT_USER()"
GRANTS = "SHOW GRANTS"
DATABASES = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"
PURGED = "SELECT @@GLOBAL.gtid_purged"
INNODB_READ_ONLY = "SELECT @@innodb_read_only"
TIDB_PROBE = "SELECT COUNT(*) FROM mysql.tidb"
"""Reads a table that every TiDB has, so that a snapshot can be checked."""
ALLOW_WRITES = "SET SESSION TRANSACTION READ WRITE"
REFUSE_WRITES = "SET SESSION TRANSACTION READ ONLY"

WRITING = (
    "Com_insert", "Com_insert_select", "Com_update", "Com_update_multi", "Com_delete", "Com_delete_multi",
    "Com_replace", "Com_replace_select", "Com_load",
)  # fmt: skip
"""Counters of statements that write rows; a prepared one counts here too when it is executed."""

ROWS_WRITTEN = ("Innodb_rows_inserted", "Innodb_rows_updated", "Innodb_rows_deleted")
ROWS_READ = ("Innodb_rows_read",)
HANDLER_WRITTEN = ("Handler_write", "Handler_update", "Handler_delete")
HANDLER_READ = (
    "Handler_read_first", "Handler_read_key", "Handler_read_last", "Handler_read_next", "Handler_read_prev",
    "Handler_read_rnd", "Handler_read_rnd_next",
)  # fmt: skip
_COUNTED = (
    "Uptime", "Queries", "Com_select", *WRITING, *ROWS_WRITTEN, *ROWS_READ, *HANDLER_WRITTEN, *HANDLER_READ
)  # fmt: skip
COUNTERS = f"SHOW GLOBAL STATUS WHERE Variable_name IN ({quote_texts(_COUNTED)})"

# One window of the summary a server: what ran before it began is in no counter. Statements of users only.
TIDB_COUNTERS = (
    "SELECT INSTANCE, UNIX_TIMESTAMP(SUMMARY_BEGIN_TIME), STMT_TYPE, SUM(EXEC_COUNT),"
    " SUM(EXEC_COUNT * AVG_AFFECTED_ROWS)"
    " FROM information_schema.CLUSTER_STATEMENTS_SUMMARY GROUP BY INSTANCE, SUMMARY_BEGIN_TIME, STMT_TYPE"
)
TIDB_SUMMARY = "SHOW GLOBAL VARIABLES WHERE Variable_name = 'tidb_enable_stmt_summary'"

CONNECTIONS = "SHOW GLOBAL STATUS WHERE Variable_name = 'Threads_connected'"
TIDB_CONNECTIONS = "SELECT INSTANCE, COUNT(*) FROM information_schema.CLUSTER_PROCESSLIST GROUP BY INSTANCE"
RUNNING = "SHOW GLOBAL STATUS LIKE 'Threads_running'"
# TiDB has no such counter, and its storage works for all of its servers: the busiest of them counts.
TIDB_RUNNING = (
    "SELECT 'Threads_running', MAX(n) FROM (SELECT COUNT(*) AS n FROM information_schema.CLUSTER_PROCESSLIST"
    " WHERE COMMAND <> 'Sleep' GROUP BY INSTANCE) AS busy"
)
MOST_CONNECTIONS = "SELECT @@GLOBAL.max_connections"

# InnoDB tells the start in the server's own time zone, not in the session's.
OLDEST_TRANSACTION = (
    "SELECT COUNT(*), TIMESTAMPDIFF(SECOND, MIN(trx_started), CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM'))"
    " FROM information_schema.INNODB_TRX"
)
TIDB_OLDEST_TRANSACTION = (
    "SELECT COUNT(*), TIMESTAMPDIFF(SECOND, MIN(START_TIME), NOW()) FROM information_schema.CLUSTER_TIDB_TRX"
    " WHERE SESSION_ID <> CONNECTION_ID()"
)
LOCK_WAITS = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'"
TIDB_LOCK_WAITS = "SELECT COUNT(*) FROM information_schema.CLUSTER_TIDB_TRX WHERE STATE = 'LockWaiting'"

# Which writing transactions are open. InnoDB tells the start in the server's own time zone, not in the session's.
OLDEST_WRITE = (
    "SELECT TIMESTAMPDIFF(SECOND, MIN(trx_started), CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')) "
    "FROM information_schema.INNODB_TRX WHERE trx_rows_modified > 0"
)
TIDB_OLDEST_WRITE = "SELECT MIN(ID) FROM information_schema.CLUSTER_TIDB_TRX WHERE MEM_BUFFER_KEYS > 0"

BINLOG_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
"""The same question in the words of new and of old versions, as the two below."""
REPLICA = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
REPLICAS = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
BINLOG_OVERRIDES = (
    "SELECT VARIABLE_NAME, VARIABLE_VALUE, COUNT(*) FROM performance_schema.variables_by_thread"
    " WHERE VARIABLE_NAME IN ('binlog_format', 'binlog_row_image', 'binlog_row_value_options',"
    " 'binlog_transaction_compression', 'sql_log_bin') GROUP BY VARIABLE_NAME, VARIABLE_VALUE"
)
"""Settings of the binlog that open sessions have of their own."""
LOGS = "SHOW BINARY LOGS"
"""Name and bytes of every log; 1064 on TiDB."""

INNODB_TABLES = (
    "SELECT database_name, table_name, n_rows, clustered_index_size, sum_of_other_index_sizes"
    " FROM mysql.innodb_table_stats"
)
TABLE_SIZE = (
    "SELECT TABLE_ROWS, DATA_LENGTH + INDEX_LENGTH FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA = ... AND TABLE_NAME = ..."
)
"""What a reader runs to see the size of a table again."""


def innodb_statistics(database: str) -> str:
    """Return rows and pages of a database's tables from the persistent statistics: no table is opened."""
    return f"{INNODB_TABLES} WHERE database_name = {quote_text(database)}"


PAGE_BYTES = "SELECT @@GLOBAL.innodb_page_size"


def explain_sql(flavor: Flavor, statement: str) -> str:
    """Return the statement that shows the plan of another one as a table."""
    return f"EXPLAIN {'FORMAT=TRADITIONAL ' if flavor is Flavor.MYSQL else ''}{statement}"


# --- what tells cheaply that a definition may have changed, and who sent the statement ---------------------------

# Counters of statements, of all sessions of this server: read from memory, none of them opens a table. An offline or
# replicated DDL counts too, one on another server of a cluster does not, so a full reading comes now and then anyway.
_DDL_STATEMENTS = (
    "alter_table", "create_table", "drop_table", "rename_table", "create_index", "drop_index", "create_trigger",
    "drop_trigger", "create_db", "drop_db", "alter_db", "truncate", "create_view", "drop_view", "create_procedure",
    "create_function", "drop_procedure", "drop_function", "alter_procedure", "alter_function", "create_event",
    "alter_event", "drop_event", "create_sequence", "alter_sequence", "drop_sequence",
)  # fmt: skip
DDL_COUNTERS = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ("
    + ", ".join(f"'Com_{name}'" for name in _DDL_STATEMENTS)
    + ", 'Uptime')"
)
"""Counters of DDL, and how long the server runs: a restart or a failover sets them back."""
TIDB_VERSION = "SHOW STATUS LIKE 'ddl_schema_version'"
"""One number that every DDL of the cluster raises."""

LOGS_CASCADES = "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'"
"""OFF where the server carries out foreign keys above the engine, so that the binlog has every row (MySQL 9.6)."""
CASCADES = (
    "SELECT UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME, CONSTRAINT_SCHEMA, TABLE_NAME"
    " FROM information_schema.REFERENTIAL_CONSTRAINTS"
    " WHERE DELETE_RULE NOT IN ('RESTRICT', 'NO ACTION') OR UPDATE_RULE NOT IN ('RESTRICT', 'NO ACTION')"
)
"""Parent and child of every foreign key that changes rows of the child."""
CASCADE_RULES = CASCADES.replace(" FROM ", ", CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE FROM ")
"""The same, with the name and what is done on DELETE and on UPDATE."""
ENFORCES_KEYS = "SHOW GLOBAL VARIABLES LIKE 'tidb_enable_foreign_key'"
"""OFF where TiDB keeps foreign keys as text only."""

# Not information_schema.DDL_JOBS: it reads the whole history, seconds for 30,000 jobs.
TIDB_JOBS = "ADMIN SHOW DDL JOBS 50"
TIDB_JOB_QUERIES = "ADMIN SHOW DDL JOB QUERIES LIMIT 50"
TIDB_STATEMENTS = (
    "SELECT SAMPLE_USER, QUERY_SAMPLE_TEXT FROM information_schema.STATEMENTS_SUMMARY"
    " WHERE STMT_TYPE LIKE 'Alter%' OR STMT_TYPE LIKE 'Create%' OR STMT_TYPE LIKE 'Drop%' OR STMT_TYPE LIKE 'Rename%'"
    " OR STMT_TYPE LIKE 'Truncate%'"
)


def account_of_thread(flavor: Flavor, thread: int) -> str:
    """Return the query for (user, host) of one session."""
    if flavor is Flavor.MYSQL:
        return (
            "SELECT PROCESSLIST_USER, PROCESSLIST_HOST FROM performance_schema.threads"
            f" WHERE PROCESSLIST_ID = {int(thread)}"
        )
    return f"SELECT USER, HOST FROM information_schema.PROCESSLIST WHERE ID = {int(thread)}"
