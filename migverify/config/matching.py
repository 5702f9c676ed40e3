"""What the configuration says about one table: whether it takes part, where it goes, its overrides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from migverify.config.patterns import Route, TablePattern, database_like, filled
from migverify.sql.catalog import SERVER_DATABASES
from migverify.sql.grants import like_literal

if TYPE_CHECKING:
    from migverify.config.settings import Config
    from migverify.config.tables import TableOverride
    from migverify.model import Endpoint

SYSTEM_DATABASES = SERVER_DATABASES | {
    "inspection_schema", "lightning_task_info", "lightning_metadata", "dm_meta", "tidb_cdc"
}  # fmt: skip
"""Databases of the servers and of TiDB's migration tools; lower case."""


def is_system_database(database: str) -> bool:
    """Whether a database belongs to a server or to a migration tool; TiDB spells some in upper case."""
    return database.lower() in SYSTEM_DATABASES


def includes(config: Config, database: str, table: str) -> bool:
    """Whether a source table takes part."""
    return not is_excluded(config, database, table) and is_in_scope(config, database, table)


def is_excluded(config: Config, database: str, table: str) -> bool:
    """Whether ``exclude`` leaves a source table out."""
    return any(pattern.matches(database, table) for pattern in config.tables.exclude)


def is_in_scope(config: Config, database: str, table: str) -> bool:
    """Whether ``include`` covers a source table, excluded or not.

    A system database takes part only where an ``include`` pattern spells its name out: ``*.*`` never means
    the grant tables.
    """
    system = is_system_database(database)
    return any(
        pattern.matches(database, table) and (not system or pattern.database.literal == database)
        for pattern in config.tables.include
    )


def unmatched_includes(config: Config, tables: Iterable[tuple[str, str]]) -> list[TablePattern]:
    """``include`` patterns that cover none of the (database, table) names: misspelled, most likely."""
    waiting = list(config.tables.include)
    for database, table in tables:
        waiting = [pattern for pattern in waiting if not pattern.matches(database, table)]
        if not waiting:
            break
    return waiting


def unmatched_excludes(config: Config, tables: Iterable[tuple[str, str]]) -> list[TablePattern]:
    """``exclude`` patterns that spell out one table, and none of the (database, table) names: misspelled, most likely.

    One with a wildcard may fit nothing today (``app.tmp_*``).
    """
    names = set(tables)
    return [
        pattern
        for pattern in config.tables.exclude
        if (database := pattern.database.literal) is not None
        and (table := pattern.table.literal) is not None
        and (database, table) not in names
        and not is_system_database(database)
    ]


def route(config: Config, shard: str, database: str, table: str) -> tuple[str, str]:
    """Return the (database, table) on the target of a source table; the first route that matches wins.

    ``shard`` is ``""`` for a single source. Without a matching route the name stays as it is.
    """
    for candidate in config.routes:
        name = candidate.apply(shard, database, table)
        if name is not None:
            return name
    return database, table


def database_patterns(config: Config, *, target: bool) -> tuple[str, ...]:
    """Return the databases in scope of the sources or of the target as patterns of ``GRANT``; ``%`` is every database.

    No server is asked, so that a user who may not see a database yet gets it all the same. Where the name on the target
    depends on names of tables, or a regular expression chooses, it is every database.
    """
    found: list[str] = []
    for pattern in config.tables.include:
        found += _target_databases(config, pattern) if target else [database_like(pattern)]
    return ("%",) if "%" in found else tuple(dict.fromkeys(found))


def _target_databases(config: Config, pattern: TablePattern) -> list[str]:
    database, table = pattern.database.literal, pattern.table.literal
    found: list[str] = []
    for candidate in config.routes:
        of = candidate.pattern
        if pattern.whole is None and of.whole is None:
            if database is not None and not of.database.regex.fullmatch(database):
                continue
            if table is not None and not of.table.regex.fullmatch(table):
                continue
        found.append(_routed(candidate, database))
        everything = table is not None or of.table.regex.pattern == "(.*)"
        if database is not None and of.whole is None and everything and candidate.shard is None:
            return found  # nothing is left that would keep its name
    return [*found, database_like(pattern)]


def _routed(candidate: Route, database: str | None) -> str:
    """Return where a route leads to, as far as that is known without the names of tables."""
    needed = max((piece for piece in candidate.database if isinstance(piece, int)), default=0)
    of = candidate.pattern
    match = None if database is None or of.whole is not None else of.database.regex.fullmatch(database)
    captured = () if match is None else match.groups(default="")
    return like_literal(filled(candidate.database, captured)) if needed <= len(captured) else "%"


def shard_of(endpoint: Endpoint) -> str:
    """Shard name of a source endpoint, ``""`` for a single source and for the target."""
    return endpoint.name.partition(".")[2]


def override_for(config: Config, database: str, table: str) -> TableOverride:
    """Merge every override whose pattern matches the source table, in the order of the file."""
    from migverify.config.tables import TableOverride  # pydantic costs a tenth of a second

    override = TableOverride()
    for rule in config.overrides:
        if rule.table.matches(database, table):
            override = override.merged(rule)
    return override
