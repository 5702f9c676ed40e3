"""Which source tables meet which target table.

Names go through the routes of the configuration; a routed name meets the target's table of exactly that name, or
of that name in another case where there is one candidate (TiDB finds names in any case, MySQL on Linux does not).
What finds no partner is yielded too: a table on one side only is a finding, never a silence. A server leaves tables
without a grant out of its catalog, so ``refuse_hidden`` requests each lone table by name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from migverify.db.server_state import server_identity
from migverify.db.session import Session
from migverify.errors import ConfigError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint, SchemaClass, SchemaDifference, TableDef, TableRef
from migverify.sql.catalog import access_sql
from migverify.tables.schema import compare_tables

Name = tuple[str, str]
Included = Callable[[str, str], bool]
Router = Callable[[str, str, str], Name]
Ignored = Callable[[str, str], Collection[str]]
"""(database, table) of a source -> names of the columns that the configuration leaves out."""

_SHARD_KINDS = {"column-missing", "column-extra", "type", "members", "charset"}


@dataclass(frozen=True, slots=True)
class FoundPair:
    """Source tables and the target table they go to.

    ``name`` is the (database, table) on the target: where the sources are routed to, or where the lone target
    table is. ``target`` None means that the target lacks the table; no ``sources`` that only the target has it.
    ``differences`` holds how the sources differ among themselves, so that they cannot add up to one table.
    ``reason`` says why a table stays alone where that is not obvious.
    """

    name: Name
    sources: tuple[TableDef, ...]
    target: TableDef | None
    differences: tuple[SchemaDifference, ...] = ()
    reason: str = ""


def find_pairs(
    sources: Mapping[str, Iterable[TableDef]],
    target: Iterable[TableDef],
    *,
    included: Included,
    route: Router,
    ignored: Ignored = lambda _database, _table: (),
) -> Iterator[FoundPair]:
    """Match source tables with target tables, in code point order of the name on the target.

    Parameters
    ----------
    sources
        Endpoint name (``source`` or ``source.<shard>``) -> its tables. Each may be a stream; all are held.
    target
        The tables of the target.
    included
        Whether a source (database, table) takes part.
    route
        (shard, database, table) of a source -> (database, table) on the target; the shard is ``""`` for
        ``source``.
    ignored
        Columns of a source table in which the sources of one target may differ.

    Notes
    -----
    A lone target table is yielded only where a source table of its name would have been routed to it and
    included: for its own database, and for every source database that has tables routed into its database. So
    databases of other applications on the target stay out as far as the patterns say so.
    """
    groups: dict[Name, list[TableDef]] = defaultdict(list)
    origins: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for endpoint, tables in sources.items():
        shard = shard_of(endpoint)
        for table in tables:
            if included(table.ref.database, table.ref.table):
                name = route(shard, table.ref.database, table.ref.table)
                groups[name].append(table)
                origins[name[0].casefold()].add((shard, table.ref.database))
    shards = sorted({shard_of(endpoint) for endpoint in sources})
    on_target = {(table.ref.database, table.ref.table): table for table in target}
    partners, reasons = _match_names(groups, on_target)
    taken = set(partners.values())
    alone = [
        name
        for name in on_target
        if name not in taken and _expected(name, shards, origins[name[0].casefold()], included, route)
    ]
    for name, table_side in sorted([(n, True) for n in groups] + [(n, False) for n in alone]):
        if not table_side:
            yield FoundPair(name, (), on_target[name], reason=reasons.get(name, ""))
            continue
        members = tuple(sorted(groups[name], key=lambda table: table.ref))
        partner = on_target[partners[name]] if name in partners else None
        yield FoundPair(name, members, partner, tuple(compare_sources(members, ignored)), reasons.get(name, ""))


def shard_of(endpoint: str) -> str:
    """Return the shard in an endpoint's name: ``source.eu`` is ``eu``, ``source`` is ``""``."""
    return endpoint.partition(".")[2]


def compare_sources(
    sources: tuple[TableDef, ...], ignored: Ignored = lambda _database, _table: ()
) -> Iterator[SchemaDifference]:
    """Say how the later sources differ from the first in columns, types, labels and character sets.

    Their checksums are added up and must mean the same columns, so each such difference breaks the comparison.
    """
    for other in sources[1:]:
        first = sources[0]
        left_out = [name for table in (first, other) for name in ignored(table.ref.database, table.ref.table)]
        for found in compare_tables(first, other, ignored=left_out):
            if found.kind not in _SHARD_KINDS or (found.kind == "members" and found.level is SchemaClass.COSMETIC):
                continue
            names = f"{first.ref.endpoint} {first.ref} and {other.ref.endpoint} {other.ref}"
            ours, theirs = (shown or "no such column" for shown in (found.source, found.target))
            message = (
                f"{names} go to one target table, but differ in column {found.where}: {ours} and {theirs};"
                " make them equal, give them different routes or ignore the column"
            )
            yield SchemaDifference(
                "sources-differ", found.where, found.source, found.target, SchemaClass.BREAKS_COMPARISON, message
            )


def _match_names(
    groups: Mapping[Name, list[TableDef]], on_target: Mapping[Name, TableDef]
) -> tuple[dict[Name, Name], dict[Name, str]]:
    """Return routed name -> target name, and for names left alone in an unclear case the reason."""
    partners = {name: name for name in groups if name in on_target}
    waiting: dict[Name, list[Name]] = defaultdict(list)
    free: dict[Name, list[Name]] = defaultdict(list)
    for name in groups:
        if name not in partners:
            waiting[_fold(name)].append(name)
    for name in on_target:
        if name not in partners:
            free[_fold(name)].append(name)
    held = {_fold(name): name for name in partners}
    reasons: dict[Name, str] = {}
    for folded, names in waiting.items():
        candidates = free.get(folded, [])
        if len(names) == len(candidates) == 1:
            partners[names[0]] = candidates[0]
            continue
        if candidates:
            text = f"several tables differ from {_show(names[0])} in case alone, so that none can be chosen"
            reasons.update(dict.fromkeys([*names, *candidates], text))
        elif folded in held:
            text = f"the target has {_show(held[folded])}, which is another source table's partner"
            reasons.update(dict.fromkeys(names, text))
        elif len(names) > 1:
            text = "source tables whose names differ in case alone; TiDB cannot hold both"
            reasons.update(dict.fromkeys(names, text))
    return partners, reasons


def _expected(name: Name, shards: list[str], origins: set[tuple[str, str]], included: Included, route: Router) -> bool:
    """Whether a source table could have been routed to this target table and taken part."""
    database, table = name
    candidates = origins | {(shard, database) for shard in shards}
    return any(included(origin, table) and route(shard, origin, table) == name for shard, origin in candidates)


def _fold(name: Name) -> Name:
    return name[0].casefold(), name[1].casefold()


def _show(name: Name) -> str:
    return ".".join(name)


def refuse_same_tables(path: Path, found: Iterable[FoundPair], sources: Sequence[Session], target: Session) -> None:
    """Refuse to compare a table with itself: it is equal after any migration.

    Two databases of one server may be compared, and a source with a replica of it.

    Raises
    ------
    ConfigError
        a source and the target are the same server, and a pair has one table of it on both sides.
    """
    identity = server_identity(target, target.endpoint)
    same = {s.endpoint.name: s.endpoint for s in sources if server_identity(s, s.endpoint).is_same_server(identity)}
    tables = {
        table.ref: same[table.ref.endpoint]
        for pair in (found if same else ())
        for table in pair.sources
        if table.ref.endpoint in same and pair.target is not None and _name(table) == _name(pair.target)
    }
    if tables:
        words = same_tables_words(next(iter(tables.values())), target.endpoint, list(tables))
        raise ConfigError(f"{path}: {words}", hint=NOT_ITSELF)


NOT_ITSELF = "Correct target.url. To compare two databases of one server, add `routes` that lead to the other one."


def same_tables_words(source: Endpoint, target: Endpoint, tables: Sequence[TableRef]) -> str:
    """Return that two endpoints are one server, and which tables would be compared with themselves."""
    more = f" and {len(tables) - 1:,} more" if len(tables) > 1 else ""
    return (
        f"{source.name} ({source.host}:{source.port}) and target ({target.host}:{target.port}) are the same server, and"
        f" {tables[0]}{more} would be compared with itself: that is equal, and proves nothing"
    )


def _name(table: TableDef) -> Name:
    return table.ref.database, table.ref.table


def refuse_hidden(found: Iterable[FoundPair], sources: Sequence[Session], target: Session) -> None:
    """Ask for every table that only one side shows.

    A lone table of the target is looked for under its own name on every source; a route backwards is not known.

    Raises
    ------
    PrivilegeError
        the user of the other side may not read it; the message names the user, the hint the grant.
    """
    for pair in found:
        if pair.target is None:
            ask_table(target, *pair.name)
        elif not pair.sources:
            for session in sources:
                ask_table(session, pair.target.ref.database, pair.target.ref.table)


def ask_table(session: Session, database: str, table: str) -> None:
    """Ask for a table by name. Raises PrivilegeError where the user may not read it, whether or not it is there."""
    try:
        session.query(access_sql(database, table))
    except (PrivilegeError, RetryableReadError):
        raise  # a killed query says nothing of the table
    except ReadError:
        return  # no such database or table: the catalog is right
