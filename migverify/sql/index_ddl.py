"""Statements that make an index as another server has it, show it, hide it and drop it."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.model import IndexDef
from migverify.sql.quoting import quote_name, quote_path, quote_text
from migverify.sql.spelling import unescaped

_ORDERED = frozenset({"BTREE", "HASH"})
"""Kinds of indexes whose parts are columns and expressions; others have syntax of their own."""


def add_index(database: str, table: str, index: IndexDef, name: str = "") -> str | None:
    """Return the statement that makes an index as it is defined; None for a full-text, spatial or vector index.

    Parameters
    ----------
    name
        Another name for it; a primary key is made as a unique index then.
    """
    if index.kind not in _ORDERED or not index.columns:
        return None
    parts = ", ".join(_parts(index))
    if index.primary and not name:
        return f"ALTER TABLE {quote_path(database, table)} ADD PRIMARY KEY ({parts})"
    kind = "UNIQUE INDEX" if index.unique else "INDEX"
    hidden = "" if index.visible else " INVISIBLE"
    return f"ALTER TABLE {quote_path(database, table)} ADD {kind} {quote_name(name or index.name)} ({parts}){hidden}"


def _parts(index: IndexDef) -> Iterator[str]:
    nothing = (None,) * len(index.columns)
    descending = index.descending or (False,) * len(index.columns)
    for column, prefix, expression, downwards in zip(
        index.columns, index.prefixes, index.expressions or nothing, descending, strict=True
    ):
        part = f"({unescaped(expression or '')})" if column is None else quote_name(column)
        length = "" if prefix is None else f"({prefix})"
        yield f"{part}{length}{' DESC' if downwards else ''}"


def set_visible(database: str, table: str, name: str, *, visible: bool) -> str:
    """Return the statement that shows an index to the optimizer, or hides it."""
    word = "VISIBLE" if visible else "INVISIBLE"
    return f"ALTER TABLE {quote_path(database, table)} ALTER INDEX {quote_name(name)} {word}"


def drop_index(database: str, table: str, name: str) -> str:
    """Return the statement that drops an index."""
    return f"ALTER TABLE {quote_path(database, table)} DROP INDEX {quote_name(name)}"


def has_index(database: str, table: str, name: str) -> str:
    """Return the statement that gives a row for each part of an index, none where there is no such index."""
    return (
        f"SELECT 1 FROM information_schema.STATISTICS WHERE LOWER(TABLE_SCHEMA) = LOWER({quote_text(database)})"
        f" AND LOWER(TABLE_NAME) = LOWER({quote_text(table)}) AND INDEX_NAME = {quote_text(name)}"
    )


def running_jobs(database: str, table: str) -> str:
    """Return the statement that lists TiDB's DDL jobs on a table that have not ended."""
    return (
        "SELECT JOB_ID FROM information_schema.DDL_JOBS WHERE STATE NOT IN ('synced', 'cancelled', 'rollback done',"
        f" 'none') AND LOWER(DB_NAME) = LOWER({quote_text(database)})"
        f" AND LOWER(TABLE_NAME) = LOWER({quote_text(table)})"
    )
