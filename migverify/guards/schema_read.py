"""Reads what is defined at the endpoints: tables with all their parts, views, routines, events.

Nothing here opens tables or counts rows on the server where a catalog can answer without it; a reading of 1,000 tables
takes some ten queries on MySQL 8 and TiDB. Sources are read side by side, then the target.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from migverify.config import is_system_database, override_for, route
from migverify.db.session import Session, open_session
from migverify.guards.schema_model import SideSchema, Snapshot, TableSchema
from migverify.guards.scope import Scope
from migverify.sql.catalog import Wanted, read_names, read_tables
from migverify.sql.fingerprint import Renamed, layout_fingerprint, table_fingerprint, whole_fingerprint
from migverify.sql.grants import check_grants, hidden_parts
from migverify.sql.parts import DatabaseObject, asks_one_by_one, read_objects, read_parts
from migverify.sql.server import CLOCK, DATABASES
from migverify.tables.pairs import FoundPair, find_pairs, refuse_hidden
from migverify.tables.prepare import position


def read_snapshot(scope: Scope, opened: Callable[[Session], None] = lambda _: None) -> Snapshot:
    """Read every endpoint; ``opened`` is called with each session before anything is asked over it.

    Raises
    ------
    EndpointError
        a server does not answer, or lacks a grant: also where only one side shows a table that the other may hide.
    """
    taken = time.time()
    with _sessions(scope, opened) as (sources, target):
        with ThreadPoolExecutor(max(1, len(sources))) as pool:
            read = list(pool.map(lambda s: read_side(s, scope.wanted, scope.renamed(s.endpoint.name)), sources))
        databases = target_databases(scope, read)
        theirs = read_side(target, lambda d, _: d.casefold() in databases, scope.renamed(target.endpoint.name))
        pairs = pairs_of(scope, read, theirs)
        refuse_hidden(pairs, sources, target)
    return Snapshot(taken, (*read, _in_scope(scope, read, theirs, pairs)))


@contextmanager
def _sessions(scope: Scope, opened: Callable[[Session], None]) -> Iterator[tuple[list[Session], Session]]:
    with ExitStack() as stack:
        *sources, target = (
            stack.enter_context(open_session(endpoint, scope.password(endpoint)))
            for endpoint in (*scope.config.sources, scope.config.target)
        )
        for session in (*sources, target):
            opened(session)
        yield sources, target


def read_side(session: Session, wanted: Wanted, renamed: Renamed) -> SideSchema:
    """Read what is defined at one endpoint.

    Parameters
    ----------
    renamed
        Name there -> name on the target.
    """
    endpoint = session.endpoint
    at = position(session)
    ((reported,),) = session.query(CLOCK)
    listed = read_names(session, wanted)
    # TiDB finds names in any case, and a name may be dropped meanwhile: what was read counts, not what was asked.
    tables = list(read_tables(session, endpoint.name, listed.tables, estimates=False))
    one_by_one = asks_one_by_one(session.flavor, session.version)
    parts = read_parts(session, tables, one_by_one=one_by_one) if tables else {}
    found = []
    for table in tables:
        name = (table.ref.database, table.ref.table)
        found.append(
            TableSchema(table, parts[name], renamed(*name), table_fingerprint(table, parts[name], renamed),
                        layout_fingerprint(table))
        )  # fmt: skip
    databases = sorted({row[0] or "" for row in session.query(DATABASES)})
    objects = read_objects(session, [d for d in databases if not is_system_database(d)], wanted, listed.skipped)
    return SideSchema(
        endpoint.name, f"{endpoint.host}:{endpoint.port}", session.flavor.value, session.version, float(reported or 0),
        time.time(), at, tuple(found), tuple(objects), whole_of(found, objects, renamed),
        hidden_parts(session.flavor, check_grants(session)),
    )  # fmt: skip


def whole_of(tables: Iterable[TableSchema], objects: Iterable[DatabaseObject], renamed: Renamed) -> str:
    """Return the fingerprint of an endpoint, under the names of the target."""
    named = defaultdict(list)
    for table in tables:
        named[".".join(table.target)].append(table.fingerprint)
    moved = [replace(o, database=renamed(o.database, o.name)[0], name=renamed(o.database, o.name)[1]) for o in objects]
    return whole_fingerprint(named, moved)


def pairs_of(scope: Scope, sources: Sequence[SideSchema], target: SideSchema) -> list[FoundPair]:
    """Return which tables meet."""
    config = scope.config
    return list(
        find_pairs(
            {s.endpoint: [t.table for t in s.tables] for s in sources}, [t.table for t in target.tables],
            included=scope.wanted, route=lambda shard, d, t: route(config, shard, d, t),
            ignored=lambda d, t: override_for(config, d, t).ignore,
        )
    )  # fmt: skip


def target_databases(scope: Scope, sources: Sequence[SideSchema]) -> set[str]:
    """Return the databases of the target, folded, that sources lead to or that the configuration spells out."""
    found = {table.target[0].casefold() for side in sources for table in side.tables}
    for side in sources:
        rename = scope.renamed(side.endpoint)
        found |= {rename(one.database, one.name)[0].casefold() for one in side.objects}
    literal = (pattern.database.literal for pattern in scope.config.tables.include)
    return found | {name.casefold() for name in literal if name is not None}


def _in_scope(
    scope: Scope, sources: Sequence[SideSchema], target: SideSchema, pairs: Sequence[FoundPair]
) -> SideSchema:
    """Leave out of the target what no source leads to or could: what belongs to other applications there."""
    kept = {str(pair.target.ref) for pair in pairs if pair.target is not None}
    led = {scope.renamed(s.endpoint)(o.database, o.name) for s in sources for o in s.objects}
    tables = tuple(table for table in target.tables if table.name in kept)
    objects = tuple(
        o for o in target.objects if (o.database, o.name) in led or scope.wanted(o.database, o.name)
    )  # fmt: skip
    whole = whole_of(tables, objects, scope.renamed(target.endpoint))
    return replace(target, tables=tables, objects=objects, fingerprint=whole)
