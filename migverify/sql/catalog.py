"""What a server's catalog says about its tables: the queries on ``information_schema``.

One query lists the names; then three queries read a batch of tables (TABLES, COLUMNS, STATISTICS), so that
10,000 tables take some hundred queries, and memory holds one batch. Which optional columns the catalog has is
asked of the catalog itself, not derived from a version. ``definitions`` makes TableDef of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from migverify.errors import IncompleteReadError
from migverify.model import Flavor, TableDef
from migverify.sql.definitions import READ, Name, parse_tables, text_of
from migverify.sql.quoting import quote_path, quote_texts
from migverify.sql.server import Queries

Wanted = Callable[[str, str], bool]

SERVER_DATABASES = frozenset({"information_schema", "performance_schema", "metrics_schema", "mysql", "sys"})

COLUMNS_AT_ONCE = 4000  # bounds one batch in memory: about 10 MB of rows
TABLES_AT_ONCE = 500
_FIRST_BATCH = 20  # before the width of the tables is known: 20,000 columns at most

# An optional column is read as NULL where the server's catalog does not have it.
_OPTIONAL = {
    "STATISTICS": {"IS_VISIBLE": "NULL", "IGNORED": "NULL", "EXPRESSION": "NULL"},
    "TABLES": {"TIDB_ROW_ID_SHARDING_INFO": "NULL"},
}
_ESTIMATED = ("TABLE_ROWS", "DATA_LENGTH", "INDEX_LENGTH", "AUTO_INCREMENT")
NO_ESTIMATES = ("", "no estimates")
"""Among the features: the columns for which a server opens every table are not wanted."""


@dataclass(frozen=True, slots=True)
class SkippedObject:
    """Something in the catalog that holds no rows of its own: a view, a sequence ..."""

    database: str
    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class CatalogNames:
    """Names at an endpoint, in code point order: base tables, and what is not one."""

    tables: tuple[Name, ...]
    skipped: tuple[SkippedObject, ...]


def read_names(session: Queries, wanted: Wanted) -> CatalogNames:
    """List what ``wanted(database, name)`` accepts outside of the servers' own databases; one query."""
    tables: list[Name] = []
    skipped: list[SkippedObject] = []
    for database, name, kind in session.query(names_sql()):
        database, name, kind = text_of(database), text_of(name), text_of(kind)
        if not wanted(database, name):
            continue
        if kind.upper() == "BASE TABLE":
            tables.append((database, name))
        else:
            skipped.append(SkippedObject(database, name, kind.lower()))
    return CatalogNames(tuple(sorted(tables)), tuple(sorted(skipped, key=lambda s: (s.database, s.name))))


def read_tables(
    session: Queries, endpoint_name: str, wanted: Wanted | Sequence[Name], *, estimates: bool = True
) -> Iterator[TableDef]:
    """Read table definitions, in code point order of (database, table), a batch at a time.

    Parameters
    ----------
    session
        A session on the endpoint. ``information_schema_stats_expiry`` is set to 0 in it (MySQL), because
        cached statistics may be a day old, the auto-increment counter among them.
    endpoint_name
        Becomes ``TableDef.ref.endpoint``.
    wanted
        Either a predicate on (database, table), or the names themselves (``CatalogNames.tables``). A name of
        which nothing is found is left out: it was dropped meanwhile. On TiDB a name is found in any case, yet
        only the exact spelling is yielded.
    estimates
        False leaves out what a server opens every table for: rows and bytes are 0 then, the counter None.

    Raises
    ------
    PrivilegeError
        The user sees a table but not all its columns.
    IncompleteReadError
        Two parts of the catalog contradict each other twice in a row (DDL goes on).
    """
    names = read_names(session, wanted).tables if callable(wanted) else tuple(sorted(set(wanted)))
    if not names:
        return
    features = _read_features(session) | frozenset(() if estimates else (NO_ESTIMATES,))
    _refuse_hidden_columns(session, names)
    start, size = 0, _FIRST_BATCH
    while start < len(names):
        batch = names[start : start + size]
        start += len(batch)
        tables = _read_batch(session, endpoint_name, features, batch)
        yield from tables
        width = sum(len(table.columns) for table in tables) / max(1, len(tables))
        size = max(1, min(TABLES_AT_ONCE, int(COLUMNS_AT_ONCE / max(1.0, width))))


def read_table(session: Queries, endpoint_name: str, database: str, table: str) -> TableDef | None:
    """Read one table definition, None when there is none of exactly this name."""
    return next(read_tables(session, endpoint_name, [(database, table)]), None)


# --- reading ---------------------------------------------------------------------------------------------


def _read_features(session: Queries) -> frozenset[tuple[str, str]]:
    """Return the (table, column) pairs that this server's catalog has, in upper case; fix its statistics."""
    if session.flavor is Flavor.MYSQL:
        known = session.query("SHOW VARIABLES LIKE 'information_schema_stats_expiry'")
        if known:  # MySQL 5.7 has no such cache
            session.query("SET SESSION information_schema_stats_expiry = 0")
    return frozenset(
        (text_of(table).upper(), text_of(column).upper()) for table, column in session.query(features_sql())
    )


def _read_batch(
    session: Queries, endpoint: str, features: frozenset[tuple[str, str]], names: Sequence[Name]
) -> list[TableDef]:
    try:
        return _read_once(session, endpoint, features, names)
    except IncompleteReadError:
        # The three queries see three moments: a DDL between them is no fault of the catalog. Once more.
        return _read_once(session, endpoint, features, names)


def _read_once(
    session: Queries, endpoint: str, features: frozenset[tuple[str, str]], names: Sequence[Name]
) -> list[TableDef]:
    return parse_tables(
        endpoint,
        session.flavor,
        names,
        session.query(select_sql("TABLES", features, names)),
        session.query(select_sql("COLUMNS", features, names)),
        session.query(select_sql("STATISTICS", features, names)),
    )


def _refuse_hidden_columns(session: Queries, names: Sequence[Name]) -> None:
    """Fail when column grants may hide columns: the catalog lists only what the user may see.

    Both sides read by users with the same column grants would agree on a part of the table and call it all.
    """
    granted = {(text_of(database), text_of(table)) for database, table in session.query(column_grants_sql())}
    for database, table in names:
        if (database, table) in granted:
            session.query(f"SELECT * FROM {quote_path(database, table)} LIMIT 0")  # denied: PrivilegeError


# --- SQL -------------------------------------------------------------------------------------------------


def names_sql() -> str:
    """Return the query for (database, name, type) of everything outside the system databases."""
    # TiDB spells some in upper case.
    spelled = sorted(SERVER_DATABASES | {name.upper() for name in SERVER_DATABASES})
    return (
        "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES"
        f" WHERE TABLE_SCHEMA NOT IN ({quote_texts(spelled)})"
    )


def features_sql() -> str:
    """Return the query for the columns that the catalog's own tables have."""
    return (
        "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS"
        " WHERE TABLE_SCHEMA IN ('information_schema', 'INFORMATION_SCHEMA')"
        " AND TABLE_NAME IN ('TABLES', 'STATISTICS', 'tables', 'statistics')"
    )


def column_grants_sql() -> str:
    """Return the query for (database, table) on which somebody holds a grant for single columns only."""
    return "SELECT DISTINCT TABLE_SCHEMA, TABLE_NAME FROM information_schema.COLUMN_PRIVILEGES"


REFERENCES = (
    "SELECT TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, COLUMN_NAME, REFERENCED_TABLE_SCHEMA, REFERENCED_TABLE_NAME,"
    " REFERENCED_COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE REFERENCED_TABLE_NAME IS NOT NULL"
    " ORDER BY TABLE_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, ORDINAL_POSITION"
)
"""The foreign keys that the user sees, a row a column."""


def access_sql(database: str, table: str) -> str:
    """Return a query that is refused where a grant is missing, and fails otherwise where the table is."""
    return f"SELECT 1 FROM {quote_path(database, table)} LIMIT 0"


def select_sql(view: str, features: frozenset[tuple[str, str]], names: Sequence[Name]) -> str:
    """Return the query on TABLES, COLUMNS or STATISTICS for a batch of tables; it gives a superset of them.

    ``parse_tables`` keeps the requested ones.
    """
    lacking = {n: text for n, text in _OPTIONAL.get(view, {}).items() if (view, n) not in features}
    if view == "TABLES" and NO_ESTIMATES in features:
        lacking |= dict.fromkeys(_ESTIMATED, "NULL")
    columns = (lacking.get(name, name) for name in READ[view])
    return f"SELECT {', '.join(columns)} FROM information_schema.{view} WHERE {names_condition(names)}"


def names_condition(names: Sequence[Name], database: str = "TABLE_SCHEMA", table: str = "TABLE_NAME") -> str:
    """Return the condition on rows of a catalog view for a batch of tables.

    Its two lists select a superset (table ``t`` of every database of the batch): both engines can look names up in
    them, which they cannot for pairs.
    """
    databases, tables = (sorted({name[place] for name in names}) for place in (0, 1))
    return f"{database} IN ({quote_texts(databases)}) AND {table} IN ({quote_texts(tables)})"
