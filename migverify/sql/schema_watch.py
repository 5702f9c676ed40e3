"""What tells cheaply that a definition may have changed, and who sent the statement."""

from __future__ import annotations

from migverify.model import Flavor

# Counters of statements, of all sessions of this server: read from memory, none of them opens a table. An offline or
# replicated DDL counts too, one on another server of a cluster does not, so a full reading comes now and then anyway.
_COUNTERS = (
    "alter_table", "create_table", "drop_table", "rename_table", "create_index", "drop_index", "create_trigger",
    "drop_trigger", "create_db", "drop_db", "alter_db", "truncate", "create_view", "drop_view", "create_procedure",
    "create_function", "drop_procedure", "drop_function", "alter_procedure", "alter_function", "create_event",
    "alter_event", "drop_event", "create_sequence", "alter_sequence", "drop_sequence",
)  # fmt: skip
DDL_COUNTERS = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN (" + ", ".join(f"'Com_{name}'" for name in _COUNTERS) + ", 'Uptime')"
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
