"""SQL of the id guard: counters, true maxima, samples. Each reads the catalog of a table or the ends of an index."""

from __future__ import annotations

from collections.abc import Sequence

from migverify.sql.quoting import quote_name, quote_path, quote_text

CLOCK = "SELECT UNIX_TIMESTAMP(NOW(6)) * 1000000 DIV 1000"
"""The server's clock as Unix milliseconds."""


def next_row_id(database: str, table: str) -> str:
    """Return TiDB's counters of a table."""
    return f"SHOW TABLE {quote_path(database, table)} NEXT_ROW_ID"


def ends(database: str, table: str, column: str) -> str:
    """Return smallest and largest value of an indexed column."""
    name = quote_name(column)
    return f"SELECT MIN({name}), MAX({name}) FROM {quote_path(database, table)}"


def sample(
    database: str, table: str, column: str, time: str | None, starts: Sequence[int], each: int, newest: int
) -> str:
    """Return rows (id, creation time as Unix milliseconds or NULL) behind some starts, and the newest ones.

    Every part is a range of the key with a LIMIT of its own, so that no more than what comes back is read.
    """
    name = quote_name(column)
    moment = "NULL" if time is None else f"ROUND(UNIX_TIMESTAMP({quote_name(time)}) * 1000)"
    path = quote_path(database, table)
    parts = [f"(SELECT {name}, {moment} FROM {path} ORDER BY {name} DESC LIMIT {newest})"]
    parts += [
        f"(SELECT {name}, {moment} FROM {path} WHERE {name} >= {start} ORDER BY {name} LIMIT {each})"
        for start in starts
    ]
    return " UNION ALL ".join(parts)


def text_sample(database: str, table: str, column: str, time: str | None, most: int) -> str:
    """Return rows (text id, creation time as Unix milliseconds or NULL) from both ends of an index on a text column."""
    name = quote_name(column)
    moment = "NULL" if time is None else f"ROUND(UNIX_TIMESTAMP({quote_name(time)}) * 1000)"
    rows = f"SELECT {name}, {moment} FROM {quote_path(database, table)} ORDER BY {name}"
    return f"({rows} DESC LIMIT {most}) UNION ALL ({rows} LIMIT {most})"


def mariadb_sequence(database: str, name: str) -> str:
    """Return a MariaDB sequence's state."""
    columns = "next_not_cached_value, minimum_value, maximum_value, increment, cycle_option"
    return f"SELECT {columns} FROM {quote_path(database, name)}"


def tidb_sequences(database: str) -> str:
    """Return TiDB's sequences of a database."""
    return (
        "SELECT SEQUENCE_NAME, MIN_VALUE, MAX_VALUE, INCREMENT, CYCLE, CACHE_VALUE FROM information_schema.SEQUENCES"
        f" WHERE SEQUENCE_SCHEMA = {quote_text(database)}"
    )
