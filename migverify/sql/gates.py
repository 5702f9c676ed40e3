"""SQL of the gates of a cutover: who is connected, what is in flight, who wrote, and probes that change nothing.

A probe of writing touches no row (``WHERE 1=0``) and is rolled back: it asks whether the server lets an account do it.
A probe of ids inserts one row and rolls it back; the id that it took is lost, as ids are.
"""

from __future__ import annotations

from collections.abc import Sequence

from migverify.model import Flavor
from migverify.sql.applied import qualified
from migverify.sql.quoting import quote_name, quote_text

SESSIONS = "SHOW FULL PROCESSLIST"
TIDB_SESSIONS = (
    "SELECT INSTANCE, ID AS Id, USER AS User, HOST AS Host, COMMAND AS Command, TIME AS Time, INFO AS Info"
    " FROM information_schema.CLUSTER_PROCESSLIST"
)
# trx_started is in the server's own zone.
TRANSACTIONS = (
    "SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, CONVERT_TZ(NOW(), @@session.time_zone, 'SYSTEM')),"
    " trx_rows_modified FROM information_schema.INNODB_TRX"
    " WHERE trx_is_read_only = 0 AND trx_mysql_thread_id <> CONNECTION_ID()"
)
TIDB_TRANSACTIONS = (
    "SELECT SESSION_ID, TIMESTAMPDIFF(SECOND, START_TIME, NOW()), MEM_BUFFER_KEYS"
    " FROM information_schema.CLUSTER_TIDB_TRX WHERE SESSION_ID <> CONNECTION_ID()"
)
SERVER = "SELECT CONCAT(@@hostname, ':', @@port)"
TIDB_DDL = (
    "SELECT JOB_ID, QUERY FROM information_schema.DDL_JOBS"
    " WHERE STATE NOT IN ('synced', 'cancelled', 'rollback done', 'none')"
)
DDL_WORDS = ("alter", "create", "drop", "truncate", "rename", "optimize", "analyze")
TIDB_SERVERS = "SELECT INSTANCE FROM information_schema.CLUSTER_INFO WHERE TYPE = 'tidb'"
_DDL_EVENTS = "^statement/sql/(alter|create|drop|truncate|rename)_?(table|index|db)?$"
WRITTEN = (
    "SELECT USER, SUM(SUM_ROWS_AFFECTED) + SUM(CASE WHEN EVENT_NAME REGEXP "
    f"'{_DDL_EVENTS}' THEN COUNT_STAR ELSE 0 END)"
    " FROM performance_schema.events_statements_summary_by_account_by_event_name"
    " WHERE USER IS NOT NULL GROUP BY USER"
)
"""Rows that each user's statements changed since the server's start, with its DDL statements."""
WRITTEN_SEEN = (
    "SELECT @@performance_schema, (SELECT COUNT(*) FROM performance_schema.setup_instruments"
    " WHERE NAME IN ('statement/sql/insert', 'statement/sql/update', 'statement/sql/delete', 'statement/sql/replace',"
    " 'statement/com/Execute') AND ENABLED = 'NO')"
)
WRITTEN_LOST = "SHOW GLOBAL STATUS LIKE 'Performance_schema_accounts_lost'"
SHORT_WAITS = ("SET SESSION lock_wait_timeout=2", "SET SESSION innodb_lock_wait_timeout=2")


def kill_sql(flavor: Flavor, connection: int, *, query: bool = False) -> str:
    """Return the statement that ends a connection; with ``query`` only what it runs."""
    return f"KILL {'TIDB ' if flavor is Flavor.TIDB else ''}{'QUERY ' if query else ''}{int(connection)}"


def read_limit_sql(flavor: Flavor, seconds: float) -> str:
    """Return the statement that makes the server itself end reads of a session after so many seconds."""
    if flavor is Flavor.MARIADB:
        return f"SET SESSION max_statement_time={seconds:g}"
    return f"SET SESSION max_execution_time={int(seconds * 1000)}"


def writable_columns(table: str) -> str:
    """Return the statement that lists the columns of ``database.table`` that may be given a value."""
    database, _, name = table.partition(".")
    return (
        f"SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA={quote_text(database)}"
        f" AND TABLE_NAME={quote_text(name)} AND GENERATION_EXPRESSION='' ORDER BY ORDINAL_POSITION"
    )


def write_probes(table: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Return an INSERT, an UPDATE and a DELETE of no row at all.

    Parameters
    ----------
    columns
        Those that may be written; none where the account does not even see them: it is refused before they matter.
    """
    name = qualified(table)
    listed = ", ".join(map(quote_name, columns))
    one = quote_name(columns[0]) if columns else "`id`"
    return (
        f"INSERT INTO {name} {f'({listed}) ' if columns else ''}SELECT {listed or '*'} FROM {name} WHERE 1=0",
        f"UPDATE {name} SET {one}={one} WHERE 1=0",
        f"DELETE FROM {name} WHERE 1=0",
    )


def id_probe(table: str, flavor: Flavor) -> tuple[str, ...]:
    """Return what takes the next id of a table in a transaction that is rolled back; the fourth tells it.

    On TiDB the transaction is optimistic: it would look for duplicates in unique keys when it commits, and never does.
    """
    begin = "BEGIN OPTIMISTIC" if flavor is Flavor.TIDB else "START TRANSACTION"
    return (
        "SET SESSION foreign_key_checks=0", begin, f"INSERT INTO {qualified(table)} () VALUES ()",
        "SELECT LAST_INSERT_ID()", "ROLLBACK",
    )  # fmt: skip


def largest_id(table: str, column: str, mask: int | None) -> str:
    """Return the statement for the largest id; with a mask that of the counter's bits, which reads the whole table."""
    name = quote_name(column)
    what = f"MAX({name} & {mask})" if mask is not None else f"MAX({name})"
    return f"SELECT {what} FROM {qualified(table)}"


def marker_row(table: str, name: str) -> str:
    """Return the statement that reads a marker: number, and Unix seconds of writing."""
    return (
        f"SELECT number, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', written) / 1000000 FROM {qualified(table)}"
        f" WHERE name={quote_text(name)}"
    )


def newest_other(table: str, name: str) -> str:
    """Return the statement for the largest number of all other markers."""
    return f"SELECT MAX(number) FROM {qualified(table)} WHERE name<>{quote_text(name)}"


def newest_of_all(table: str) -> str:
    """Return the statement for the largest number of all markers, and the server's time in microseconds."""
    return f"SELECT COALESCE(MAX(number), 0), CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED) FROM {qualified(table)}"
