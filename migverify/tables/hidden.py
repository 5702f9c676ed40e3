"""What a user cannot see: a catalog lists the tables that its reader has a grant on, and no others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set

from migverify.config import TablePattern
from migverify.config.patterns import database_like
from migverify.db.session import Session
from migverify.model import Endpoint
from migverify.sql.grants import Grants, check_grants
from migverify.sql.quoting import quote_name
from migverify.tables.run_facts import UNSEEN

__all__ = ["hidden_from", "matched", "open_ended", "partly_seen", "spelled_out", "unseen_databases"]


def open_ended(patterns: Iterable[TablePattern]) -> list[TablePattern]:
    """Return the patterns that do not spell out their tables."""
    return [pattern for pattern in patterns if pattern.table.literal is None]


def spelled_out(patterns: Iterable[TablePattern]) -> set[tuple[str, str]]:
    """Return the (database, table) names that patterns spell out."""
    names = ((pattern.database.literal, pattern.table.literal) for pattern in patterns)
    return {(database, table) for database, table in names if database is not None and table is not None}


def matched(patterns: Iterable[TablePattern], names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the (database, table) names that a pattern matches."""
    patterns = list(patterns)
    return [name for name in names if any(pattern.matches(*name) for pattern in patterns)]


def hidden_from(
    session: Session,
    databases: Set[str],
    patterns: Sequence[TablePattern] = (),
    absent: Set[tuple[str, str]] = frozenset(),
) -> Iterator[str]:
    """Yield why a user may not see all: tables of databases, databases of patterns, tables that its server lacks."""
    if databases or patterns or absent:
        endpoint, grants = session.endpoint, check_grants(session)
        yield from partly_seen(endpoint, grants, databases, "compared")
        yield from unseen_databases(endpoint, grants, patterns, "compared")
        yield from _unseen_tables(endpoint, grants, absent, "compared")


def partly_seen(endpoint: Endpoint, grants: Grants, databases: Iterable[str], lost: str) -> Iterator[str]:
    """Yield a reason for each database whose tables a user may not all see.

    Where both users see the same part of a database, the rest would be left out without a word. ``lost`` says what
    tables that cannot be seen are not (``compared``).
    """
    for database in sorted(databases):
        if not grants.allows("SELECT", database):
            yield (
                f"{endpoint.name}: {endpoint.user} may read a part of database {database} only, and"
                f" {UNSEEN} {lost}: GRANT SELECT ON {quote_name(database)}.*, or name the tables in tables.include"
            )


def unseen_databases(endpoint: Endpoint, grants: Grants, patterns: Iterable[TablePattern], lost: str) -> Iterator[str]:
    """Yield a reason where patterns speak of databases that a user may not see at all: no catalog shows one."""
    wide = {one.text: database_like(one) for one in patterns if one.database.literal is None and not _is_printed(one)}
    unseen = [text for text, like in wide.items() if not grants.allows_pattern("SELECT", None if like == "%" else like)]
    if unseen:
        yield (
            f"{endpoint.name}: {endpoint.user} may not read every database that {', '.join(unseen)} speaks of, and"
            f" {UNSEEN} {lost}: GRANT SELECT ON *.*, or name the databases in tables.include"
        )


def _is_printed(pattern: TablePattern) -> bool:
    """Whether it is a name with dots as reports print it, whose database is not known."""
    return pattern.whole is not None and not pattern.text.startswith("/")


def _unseen_tables(endpoint: Endpoint, grants: Grants, names: Iterable[tuple[str, str]], lost: str) -> Iterator[str]:
    """Yield a reason for each table that an endpoint does not show, and whose user would not see it there."""
    for database, table in sorted(names):
        if not grants.allows("SELECT", database, table):
            yield (
                f"{endpoint.name}: {endpoint.user} may not read {database}.{table}, and {UNSEEN} {lost}:"
                f" GRANT SELECT ON {quote_name(database)}.{quote_name(table)}"
            )
