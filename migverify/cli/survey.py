"""What ``migverify init`` finds out about the two sides: databases, tables, keys, settings; and what it guesses.

Reading needs a session; everything else here is pure, so that the guesses can be tested without a server.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from migverify.config import is_system_database
from migverify.config.patterns import quote_part
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, LoginError
from migverify.model import Endpoint
from migverify.secrets import resolve_password

_NUMBERED = re.compile(r"(.+?)(_?)(\d+)", re.DOTALL)
_ACCESS_DENIED = 1045
_ENOUGH = 0.5  # share of a source database's tables that a differently named target database must hold

_NAMES = "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA"
_TABLES = "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'"
# A key tells rows apart when it is unique, without NULLs, and made of whole columns.
_KEYED = (
    "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0"
    " GROUP BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME"
    " HAVING SUM(NULLABLE = 'YES') = 0 AND SUM(SUB_PART IS NOT NULL) = 0 AND SUM(COLUMN_NAME IS NULL) = 0"
)
_SETTINGS = (
    ("time_zone", "@@GLOBAL.time_zone"),
    ("system_time_zone", "@@GLOBAL.system_time_zone"),
    ("lower_case_table_names", "@@GLOBAL.lower_case_table_names"),
    ("character_set_server", "@@GLOBAL.character_set_server"),
)


@dataclass(frozen=True, slots=True)
class Survey:
    """One endpoint as it was seen. ``rows`` holds the server's estimate per (database, table)."""

    endpoint: Endpoint
    version: str
    flavor: str
    databases: tuple[str, ...]
    rows: dict[tuple[str, str], int]
    keyed: frozenset[tuple[str, str]]
    settings: dict[str, str]

    def tables(self, database: str) -> list[str]:
        """Names of the base tables of a database, sorted."""
        return sorted(table for owner, table in self.rows if owner == database)


@dataclass(frozen=True, slots=True)
class Guess:
    """A route guessed from names: patterns as the configuration spells them, and why."""

    source: str
    to: str
    reason: str


def survey(endpoint: Endpoint) -> Survey:
    """Connect and look; reads the catalog only.

    Raises
    ------
    EndpointError
        The server cannot be reached or refuses the user.
    """
    password = resolve_password(endpoint)
    try:
        session = open_session(endpoint, password.reveal() or None)
    except EndpointError as error:
        if endpoint.password_env or _refusal(error.__cause__) != _ACCESS_DENIED:
            raise
        raise LoginError(error.message, hint="Name the variable with its password: --password-env NAME.") from error
    with session:
        return _look(endpoint, session)


def _refusal(cause: BaseException | None) -> object:
    return cause.args[0] if cause is not None and cause.args else None


def _look(endpoint: Endpoint, session: Session) -> Survey:
    databases = [name for (name,) in session.query(_NAMES) if name and not is_system_database(name)]
    rows = {
        (database or "", table or ""): int(count or 0)
        for database, table, count in session.query(_TABLES)
        if database and not is_system_database(database)
    }
    keyed = {(database or "", table or "") for database, table in session.query(_KEYED)}
    values = session.query("SELECT " + ", ".join(expression for _, expression in _SETTINGS))[0]
    return Survey(
        endpoint=endpoint,
        version=session.version,
        flavor=str(session.flavor),
        databases=tuple(sorted({*databases, *(owner for owner, _ in rows)})),
        rows=rows,
        keyed=frozenset(keyed & rows.keys()),
        settings={name: value or "" for (name, _), value in zip(_SETTINGS, values, strict=True)},
    )


def guess_routes(
    source: dict[str, list[str]], target: dict[str, list[str]], taken: Collection[str] = ()
) -> list[Guess]:
    """Guess which names changed.

    Parameters
    ----------
    source, target
        Table names per database.
    taken
        Further databases of the source: the target's of the same name is theirs, and no other one's.

    Returns
    -------
    list of Guess
        Most special first, as the first route that matches counts: numbered tables that became one, then
        databases under another name. A name that both sides have is never routed.
    """
    held = {database: frozenset(tables) for database, tables in target.items()}
    mine = source.keys() | set(taken)
    homes = {database: _home(database, tables, held, mine) for database, tables in source.items()}
    guesses: list[Guess] = []
    for database, home in homes.items():
        if home is not None:
            guesses += _numbered_tables(database, source[database], home, held[home])
    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for database, home in homes.items():
        if home is not None and home != database:
            stem = _NUMBERED.fullmatch(database)
            families[(stem[1] + stem[2] if stem else database, home)].append(database)
    for (stem_text, home), members in families.items():
        to = f"{quote_part(home)}.*"
        if len(members) > 1 and not _others(stem_text, mine, members):
            pattern = f"/{_in_regex(stem_text)}[0-9]+/.*"
            guesses.append(Guess(pattern, to, f"{len(members)} numbered databases hold the tables of {home}"))
        else:
            reason = "the target has no database of this name, but these tables"
            guesses += [Guess(f"{quote_part(member)}.*", to, reason) for member in members]
    return guesses


def _others(stem: str, names: Iterable[str], members: Collection[str]) -> list[str]:
    """Return the names that a pattern for numbered members would catch with them: it cannot be used then."""
    return [name for name in names if re.fullmatch(re.escape(stem) + "[0-9]+", name) and name not in members]


def _home(
    database: str, tables: Sequence[str], target: dict[str, frozenset[str]], taken: Collection[str]
) -> str | None:
    """Name the one target database that holds the tables of a source database, None when there are none or several."""
    if database in target:
        return database
    folded = [name for name in target if name.lower() == database.lower() and name not in taken]
    if folded:
        return folded[0] if len(folded) == 1 else None
    owned = {name.lower() for name in taken}  # a target that folds names has the source's `Shop` as `shop`
    wanted = {_stem(table, ()) for table in tables} | set(tables)
    shares: dict[str, float] = {}
    for name, held in target.items():
        if name.lower() not in owned and wanted & held:
            shares[name] = sum(table in held or _stem(table, held) in held for table in tables) / len(tables)
    best = max(shares.values(), default=0.0)
    found = [name for name, share in shares.items() if share == best >= _ENOUGH]
    return found[0] if len(found) == 1 else None


def _stem(table: str, held: Collection[str]) -> str:
    """Table name without its number (``orders_07`` -> ``orders``), or the name itself if ``held`` has it."""
    found = None if table in held else _NUMBERED.fullmatch(table)
    return found[1] if found else table


def _numbered_tables(database: str, tables: Sequence[str], home: str, held: Collection[str]) -> list[Guess]:
    families: dict[tuple[str, str], list[str]] = defaultdict(list)
    for table in tables:
        found = None if table in held else _NUMBERED.fullmatch(table)
        if found and found[1] in held:
            families[(found[1], found[2])].append(table)
    guesses: list[Guess] = []
    for (base, joint), members in families.items():
        to, count = f"{quote_part(home)}.{quote_part(base)}", len(members)
        if count > 1 and not _others(base + joint, tables, members):
            pattern = f"{quote_part(database)}./{_in_regex(base + joint)}[0-9]+/"
            guesses.append(Guess(pattern, to, f"{count} numbered tables, one on the target"))
        elif count > 1:
            reason = f"one of {count} numbered tables, one on the target"
            guesses += [Guess(f"{quote_part(database)}.{quote_part(member)}", to, reason) for member in members]
    return guesses


def _in_regex(name: str) -> str:
    return re.escape(name).replace("/", "\\/")


def notes(sources: Sequence[Survey], target: Survey) -> list[str]:
    """Differences between the servers that change how names or values compare, one sentence each."""
    found = []
    for source in sources:
        who = source.endpoint.name
        for name, why in (
            ("time_zone", "migverify reads with +00:00 on both sides, but applications see other times"),
            ("system_time_zone", "it is what time_zone=SYSTEM means"),
            ("lower_case_table_names", "names that differ in case only meet on one side"),
            ("character_set_server", "tables created without a character set get different ones"),
        ):
            ours, theirs = source.settings[name], target.settings[name]
            same_zone = name.endswith("time_zone") and _zone(ours) == _zone(theirs)
            if ours != theirs and not same_zone:
                found.append(f"{name} is {ours} on {who} and {theirs} on the target: {why}.")
        collisions = _collisions(source.rows)
        if collisions and target.settings["lower_case_table_names"] != "0":
            shown = ", ".join(f"{database}.{table}" for database, table in collisions[:5])
            found.append(f"{who} has tables whose names differ in case only, the target cannot: {shown}.")
    return found


def _zone(name: str) -> str:
    return "UTC" if name in ("UTC", "Etc/UTC", "+00:00", "GMT") else name


def _collisions(names: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    folded: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for database, table in names:
        folded[(database.lower(), table.lower())].append((database, table))
    return sorted(name for group in folded.values() if len(group) > 1 for name in group)
