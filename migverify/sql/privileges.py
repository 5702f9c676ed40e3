"""What each command reads on each side, and which privilege that needs: one table for checks, pages and ``GRANT``.

A scope is text as ``GRANT ... ON`` takes it, where databases are patterns: ``_`` and ``%`` in a name match, unless a
backslash is before them. MySQL with ``partial_revokes`` takes every name as it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from migverify.model import Flavor, Side
from migverify.sql.grants import Grants, account_text, like_literal, plain_name
from migverify.sql.quoting import quote_name

DATABASES = "databases"
MARKER = "watch.marker"
REVERSE_MARKER = "reverse.marker"
CHECKPOINT = "watch.checkpoint"
RESOURCE_GROUP = "resource_group"
EVERY_DATABASE = "%"

_SOURCE, _TARGET, _BOTH = frozenset({Side.SOURCE}), frozenset({Side.TARGET}), frozenset(Side)
_MYSQL, _MARIADB, _TIDB = Flavor.MYSQL, Flavor.MARIADB, Flavor.TIDB
_BINLOG = frozenset({_MYSQL, _MARIADB})
_ALL = frozenset(Flavor)
_SHOWS_ROUTINES = (8, 0, 20)
"""MySQL before this has no SHOW_ROUTINE."""

_STREAM = (
    "changes archive",
    "changes audit",
    "changes check",
    "changes tail",
    "guard schema --watch",
    "tables armed",
    "tables watch",
)
_RULES = ("recon check", "recon explain", "recon init", "recon run", "recon watch")
_SCHEMA = ("guard schema", "guard schema --watch", "guard schema --snapshot")
_TABLES = (
    "tables armed", "tables diff", "tables loss", "tables plan", "tables repair", "tables verify", "tables watch",
)  # fmt: skip
_REPLAY = ("workload replay --nightly", "workload replay", "workload reproduce")
_PLANS = ("guard plans", "workload plans")
REPAIR = "tables repair --apply"
CHECK = frozenset({"guard ids", "guard schema", "guard settings"})
"""Guards that `check` asks; `guard monitors` asks no server there."""
_READING = (*_TABLES, REPAIR, *_RULES, *_SCHEMA, *_REPLAY, *_PLANS, "guard capacity", "changes audit",
            "guard settings", "guard hotspots", "guard ids", "init", "workload probe")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Need:
    """Privileges that commands need on a server.

    Parameters
    ----------
    on
        ``*.*``, ``database.*`` or ``database.table`` of a server's own, or ``DATABASES``, ``MARKER``,
        ``REVERSE_MARKER``, ``CHECKPOINT``: what the configuration names; ``RESOURCE_GROUP``: ``*.*`` where it names
        one.
    reads, without
        What they are for, and what happens when they are missing.
    since, before
        Versions of MySQL: from the one, and up to the other, which is not included.
    """

    privileges: tuple[str, ...]
    on: str
    sides: frozenset[Side]
    flavors: frozenset[Flavor]
    commands: tuple[str, ...]
    reads: str
    without: str
    since: tuple[int, ...] = ()
    before: tuple[int, ...] = ()

    def concerns(self, side: Side, flavor: Flavor, version: Sequence[int]) -> bool:
        """Whether a server of this kind, on this side, needs it."""
        if side not in self.sides or flavor not in self.flavors:
            return False
        number = tuple(version)
        return flavor is not _MYSQL or (self.since <= number and (not self.before or number < self.before))


NEEDS = (
    Need(("SELECT",), DATABASES, _BOTH, _ALL,
         _READING,
         "rows and definitions of the tables in scope",
         "exit 2, the message names user and table; a table that may not be read is never reported as missing"),
    Need(("SELECT",), DATABASES, _SOURCE, _BINLOG, ("changes archive", "changes check", "changes tail"),
         "definitions of the tables in scope", "exit 2, the message names user and table"),
    Need(("INSERT", "UPDATE", "DELETE"), DATABASES, _TARGET, _ALL, (REPAIR,),
         "writes the rows that were confirmed to differ", "the repair is refused"),
    Need(("REPLICATION CLIENT",), "*.*", _SOURCE, _BINLOG,
         (*_STREAM, *_RULES[3:], "guard capacity", "guard settings", "tables verify"),
         "the position of the binlog, its files, the lag of a replica (`limits.max_replica_lag`). Grant it **before the"
         " verification that a watch will begin from**: the position is noted when that begins",
         "`changes`, `tables watch`: exit 2. `tables verify`: the report says `unknown` for the position, and a later"
         " `tables watch --since` cannot begin there; with `max_replica_lag` the tables are INCONCLUSIVE"),
    Need(("REPLICATION SLAVE",), "*.*", _SOURCE, _BINLOG, (*_STREAM, "guard settings"),
         "the binlog itself", "exit 2, the message names it; `guard schema --watch` warns and goes on by polling"),
    Need(("PROCESS",), "*.*", _SOURCE, _BINLOG,
         ("guard capacity", "guard settings", "recon watch", "guard schema --watch", "tables verify", "tables watch",
          "workload capture --poll",
          "workload sessions"),
         "ids of InnoDB tables, open transactions, sessions of other users",
         "a TRUNCATE or EXCHANGE PARTITION that no binlog shows is not seen by `tables verify` and `tables watch`"
         " (creation time and columns are compared all the same); a watermark is a guess; sessions are missing"),
    Need(("PROCESS",), "*.*", _TARGET, _ALL,
         ("guard capacity", "guard settings", "guard monitors --sql", "recon watch", "tables verify", "tables watch",
          "workload explain-conflict", "workload sessions"),
         "sessions, transactions and slow statements of all users and nodes; on MySQL ids of tables",
         "TiDB shows a user its own sessions only: these questions are INCONCLUSIVE"),
    Need(("SHOW VIEW",), DATABASES, _BOTH, _ALL, ("guard settings", *_SCHEMA, *_REPLAY, *_PLANS),
         "texts of views, and plans of statements on views",
         "`guard settings` warns; `guard schema` reports them as not seen"),
    Need(("TRIGGER",), DATABASES, _BOTH, _BINLOG,
         ("guard settings", *_SCHEMA, *_REPLAY, "tables loss", "tables repair", REPAIR),
         "triggers: servers list them only to who may make them",
         "`guard settings` is INCONCLUSIVE, `guard schema` reports them as not seen"),
    Need(("EVENT",), DATABASES, _BOTH, _BINLOG, ("guard settings", *_SCHEMA),
         "events: servers list them only to who may make them",
         "`guard settings` is INCONCLUSIVE, `guard schema` reports them as not seen"),
    Need(("SHOW_ROUTINE",), "*.*", _BOTH, frozenset({_MYSQL}), ("guard settings", *_SCHEMA),
         "procedures and functions", "`guard settings` is INCONCLUSIVE, `guard schema` reports them as not seen",
         since=_SHOWS_ROUTINES),
    Need(("SELECT",), "mysql.proc", _BOTH, frozenset({_MYSQL}), ("guard settings", *_SCHEMA),
         "procedures and functions on MySQL 5.7",
         "`guard settings` is INCONCLUSIVE, `guard schema` reports them as not seen",
         before=(8,)),
    Need(("SELECT",), "mysql.proc", _BOTH, frozenset({_MARIADB}), ("guard settings", *_SCHEMA),
         "procedures and functions on MariaDB",
         "`guard settings` is INCONCLUSIVE, `guard schema` reports them as not seen"),
    Need(("REFERENCES",), DATABASES, _BOTH, frozenset({_MARIADB}), ("changes audit", "changes check", "guard settings",
         *_SCHEMA), "rules of foreign keys, which MariaDB hides from who may only read",
         "`changes check` is INCONCLUSIVE, `guard schema` reports them as not seen"),
    Need(("SELECT",), "performance_schema.*", _SOURCE, frozenset({_MYSQL}),
         ("changes audit", "changes check", "guard settings", "guard schema --watch", "workload capture --poll",
          "workload sessions"),
         "settings of open sessions, finished statements, who changed the schema",
         "`changes check` is INCONCLUSIVE for sessions with settings of their own;"
         " `workload capture --poll` is refused"),
    Need(("SELECT",), "mysql.*", _TARGET, frozenset({_TIDB}),
         ("guard settings", "recon run", *_PLANS, "workload replay --mark-clone", *_REPLAY),
         "TiDB's own state: garbage collection, statistics, the id of the cluster",
         "`guard settings` is INCONCLUSIVE for them; a clone cannot be proved"),
    Need(("SELECT", "INSERT", "DELETE"), MARKER, _SOURCE, _ALL, ("tables watch",),
         "the marker row of `watch.applied: marker`: the one write to a source, and only where that is configured",
         "the watch ends, the message names it"),
    Need(("SELECT", "INSERT", "DELETE"), REVERSE_MARKER, _TARGET, _ALL, ("recon watch", "tables watch"),
         "the marker row of `reverse.applied: marker`: the one write of a reverse watch, and only where that is"
         " configured", "the watch ends at its start, the message names it"),
    Need(("SELECT",), REVERSE_MARKER, _SOURCE, _ALL, ("recon watch", "tables watch"),
         "the marker row that came back to the source", "the watch ends at its start, the message names it"),
    Need(("SELECT",), CHECKPOINT, _TARGET, _ALL, ("tables watch",),
         "the replicator's place, for `watch.applied: checkpoint`",
         "the verdict is INCONCLUSIVE, and the reason names the grant"),
    Need(("RESOURCE_GROUP_USER",), RESOURCE_GROUP, _BOTH, frozenset({_TIDB}), _READING,
         "`resource_group` of an endpoint, where it is configured", "exit 2, the message names it"),
)  # fmt: skip


def commands() -> tuple[str, ...]:
    """Return the names of all commands that need a privilege, in the order of the alphabet."""
    return tuple(sorted({"check", *(command for need in NEEDS for command in need.commands)}))


def wanted_for(only: Sequence[str], side: Side, flavor: Flavor, version: Sequence[int] = (99,)) -> tuple[Need, ...]:
    """Return what commands need on a server; ``only`` empty: every command but the one that writes to the target."""
    asked = set(only) or set(commands()) - {REPAIR}
    asked |= CHECK if "check" in asked else set()
    return tuple(n for n in NEEDS if asked & set(n.commands) and n.concerns(side, flavor, version))


def privileges_for(command: str, on: str, side: Side, flavor: Flavor) -> tuple[str, ...]:
    """Return the privileges that one command needs on one kind of scope, without repeats."""
    needs = wanted_for((command,), side, flavor)
    return tuple(dict.fromkeys(word for need in needs if need.on == on for word in need.privileges))


@dataclass(frozen=True, slots=True)
class Scopes:
    """What a configuration names on one endpoint: patterns of databases, and the tables of a watch (None: none)."""

    databases: tuple[str, ...]
    marker: str | None = None
    checkpoint: str | None = None
    resource_group: bool = False
    reverse_marker: str | None = None


def missing(needs: Iterable[Need], grants: Grants, scopes: Scopes) -> dict[str, tuple[str, ...]]:
    """Return the privileges that the user lacks, by the object of ``GRANT ... ON``, in the order of the table."""
    found: dict[str, list[str]] = {}
    for need in needs:
        for database, table in _objects(need, scopes):
            lacking = [
                word for word in need.privileges
                if not (grants.allows(word, database, table) if table else grants.allows_pattern(word, database))
            ]  # fmt: skip
            if lacking:
                place = found.setdefault(object_text(database, table, literal=grants.literal), [])
                place += [word for word in lacking if word not in place]
    return {where: tuple(words) for where, words in found.items()}


def _objects(need: Need, scopes: Scopes) -> Iterator[tuple[str | None, str | None]]:
    if need.on == "*.*" or (need.on == RESOURCE_GROUP and scopes.resource_group):
        yield None, None
    elif need.on == RESOURCE_GROUP:
        return
    elif need.on == DATABASES:
        yield from ((None if name == EVERY_DATABASE else name, None) for name in scopes.databases)
    else:
        configured = {MARKER: scopes.marker, REVERSE_MARKER: scopes.reverse_marker, CHECKPOINT: scopes.checkpoint}
        named = configured.get(need.on, need.on)
        if named is not None:
            database, _, table = named.partition(".")
            yield (like_literal(database), None) if table == "*" else (database, table)


def object_text(database: str | None, table: str | None, *, literal: bool = False) -> str:
    """Return the object of a ``GRANT``; a database without a table is a pattern.

    Parameters
    ----------
    literal
        The server takes names of databases as they are written: a pattern that varies becomes ``*.*`` then.
    """
    if database is None:
        return "*.*"
    if table is not None:
        return f"{quote_name(database)}.{quote_name(table)}"
    if literal:
        name = plain_name(database)
        return "*.*" if name is None else f"{quote_name(name)}.*"
    return f"{quote_name(database)}.*"


def statements(lacking: dict[str, tuple[str, ...]], account: str) -> list[str]:
    """Return the ``GRANT`` statements that an administrator runs, for an account as CURRENT_USER() says it."""
    return [f"GRANT {', '.join(words)} ON {where} TO {account_text(account)};" for where, words in lacking.items()]
