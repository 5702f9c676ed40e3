"""What a user cannot see: a catalog lists the tables that its reader has a grant on, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from migverify.config import TablePattern
from migverify.model import Endpoint
from migverify.sql.grants import Grants
from migverify.sql.quoting import quote_name

__all__ = ["matched", "open_ended", "partly_seen"]


def open_ended(patterns: Iterable[TablePattern]) -> list[TablePattern]:
    """Return the patterns that do not spell out their tables."""
    return [pattern for pattern in patterns if pattern.table.literal is None]


def matched(patterns: Iterable[TablePattern], names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the (database, table) names that a pattern matches."""
    patterns = list(patterns)
    return [name for name in names if any(pattern.matches(*name) for pattern in patterns)]


def partly_seen(endpoint: Endpoint, grants: Grants, databases: Iterable[str], lost: str) -> Iterator[str]:
    """Yield a reason for each database whose tables a user may not all see.

    Where both users see the same part of a database, the rest would be left out without a word. ``lost`` says what
    tables that cannot be seen are not (``compared``).
    """
    for database in sorted(databases):
        if not grants.allows("SELECT", database):
            yield (
                f"{endpoint.name}: {endpoint.user} may read a part of database {database} only, and"
                f" tables that it cannot see are not {lost}: GRANT SELECT ON {quote_name(database)}.*, or name the"
                " tables in tables.include"
            )
