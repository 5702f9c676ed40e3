"""SQL for what goes on at a server now: counters, sessions, transactions, locks, logs. Opens no table of users."""

from __future__ import annotations

from migverify.sql.quoting import quote_text, quote_texts

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

# InnoDB tells the start in the server's own time zone, whatever the session's is.
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

BINLOG_STATUS = ("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
"""The same question in the words of new and of old versions, as the two below."""
REPLICA = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")
REPLICAS = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
LOGS = "SHOW BINARY LOGS"
"""Name and bytes of every log; 1064 on TiDB."""

INNODB_TABLES = "SELECT database_name, table_name, n_rows, clustered_index_size, sum_of_other_index_sizes"


def innodb_statistics(database: str) -> str:
    """Return rows and pages of a database's tables from the persistent statistics: no table is opened."""
    return f"{INNODB_TABLES} FROM mysql.innodb_table_stats WHERE database_name = {quote_text(database)}"


PAGE_BYTES = "SELECT @@GLOBAL.innodb_page_size"
