"""What the hotspots guard reads of the target's catalog and settings, and what it knows by table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise

from migverify.config import is_system_database
from migverify.db.session import Session, open_session
from migverify.errors import EndpointError, ReadError
from migverify.guards.capacity_read import CapacityReading, Sizes, bytes_of
from migverify.guards.hotspots_model import HotspotLimits, InsertRange, insert_ranges
from migverify.guards.ids_model import IdKind, IdReading, IdSpace
from migverify.guards.scope import Scope
from migverify.load import CaptureLoad, TableLoad
from migverify.model import Flavor, TableDef
from migverify.sql import server
from migverify.sql import settings as sql
from migverify.sql.catalog import Wanted, read_tables

REGION_BYTES = "coprocessor.region-split-size"
DEFAULTS = {
    "performance.txn-total-size-limit": 100 << 20, "performance.txn-entry-size-limit": 6 << 20,
    "performance.stmt-count-limit": 5_000, "performance.max-txn-ttl": 3_600_000,
    "tidb_mem_quota_query": 1 << 30, "tidb_gc_life_time": 600, REGION_BYTES: 96 << 20,
}  # fmt: skip
"""TiDB's documented defaults; a region is 256 MiB from 8.4 on. ``max-txn-ttl`` in milliseconds, the others' in bytes
or seconds."""
_SPANS = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass(slots=True)
class HotspotReading(CapacityReading):
    """What was read of the target, by table in lower case; ``settings`` are its limits, as far as they are shown."""

    version: str = ""
    tables: dict[str, TableDef] = field(default_factory=dict)
    clustered: dict[str, bool] = field(default_factory=dict)
    partitions: dict[str, tuple[str, int]] = field(default_factory=dict)
    regions: dict[str, int] = field(default_factory=dict)
    settings: dict[str, int] = field(default_factory=dict)


def read_target(found: HotspotReading, password: str | None, wanted: Wanted) -> None:
    """Fill in what the target reports of the wanted tables, and of its limits."""
    try:
        with closing(open_session(found.endpoint, password)) as session:
            found.flavor, found.version = session.flavor, session.version
            if session.flavor is not Flavor.TIDB:
                found.unread = f"{found.endpoint.name} is {session.flavor.value}: hot regions are TiDB's"
                return
            ((clock,),) = session.query(server.CLOCK)
            found.server_time = None if clock is None else float(clock)
            found.tables = {str(t.ref).lower(): t for t in read_tables(session, found.endpoint.name, wanted)}
            for database, table, kind in session.query(sql.KEY_KINDS):
                found.clustered[f"{database}.{table}".lower()] = not (kind or "NON").startswith("NON")
            for database, table, method, count in session.query(sql.PARTITIONS):
                found.partitions[f"{database}.{table}".lower()] = (str(method).upper(), int(count or 0))
            found.settings = found.attempt("variables", lambda: _variables(session)) or {}
            found.settings |= found.attempt("configuration", lambda: _configuration(session)) or {}
    except (EndpointError, ReadError) as error:
        found.unread = error.line


def count_regions(found: HotspotReading, password: str | None, tables: Iterable[str]) -> None:
    """Fill in the number of regions of some tables, one statement a table; 1 is assumed where that is not known."""
    names = [name for name in tables if name in found.tables]
    if not names:
        return
    try:
        with closing(open_session(found.endpoint, password)) as session:
            for name in names:
                statement = sql.regions(found.tables[name].ref.database, found.tables[name].ref.table)
                rows = found.attempt(f"regions {name}", partial(session.query, statement))
                found.regions[name] = len(rows or ()) or 1
    except (EndpointError, ReadError) as error:
        found.refused["regions"] = error.line


def _variables(session: Session) -> dict[str, int]:
    found = {str(name): str(value) for name, value in session.query(sql.LIMITS_VARIABLES)}
    settings = {name: int(value) for name, value in found.items() if value.lstrip("-").isdigit()}
    spans = _SPANS.findall(found.get("tidb_gc_life_time", ""))
    if spans:
        settings["tidb_gc_life_time"] = round(sum(float(number) * _SECONDS[unit] for number, unit in spans))
    return settings


def _configuration(session: Session) -> dict[str, int]:
    """Return the smallest value of each setting among all servers of its kind."""
    settings: dict[str, int] = {}
    for *_, name, text in session.query(sql.LIMITS_CONFIGURATION):
        value = bytes_of(text or "")
        if name is not None and value is not None:
            settings[name] = min(value, settings.get(name, value))
    return settings


@dataclass(frozen=True, slots=True)
class Growth:
    """How an AUTO_INCREMENT counter of the source grew: ids a second, None with one reading, and ids in all."""

    rate: float | None
    used: int | None

    def most(self, factor: float) -> float | None:
        """Return what the peak can be: ``factor`` times the mean, or all ids that there ever were within a minute."""
        bounds = [self.rate * factor] if self.rate is not None else []
        return min([*bounds, self.used / 60] if self.used is not None else bounds, default=None)


@dataclass
class HotspotFacts:
    """Everything the questions share. Tables are the target's, ``database.table`` in lower case."""

    scope: Scope
    target: HotspotReading
    sizes: Mapping[str, Sizes]
    spaces: Sequence[IdSpace]
    now: float
    load: CaptureLoad | None
    limits: HotspotLimits

    @cached_property
    def sources(self) -> dict[str, list[tuple[str, str, str]]]:
        """Source tables (endpoint, database, table) by the target's table that they lead to."""
        found: dict[str, list[tuple[str, str, str]]] = {}
        for endpoint, sizes in self.sizes.items():
            for database, table in sizes.tables:
                target = ".".join(self.scope.route(endpoint, database, table)).lower()
                found.setdefault(target, []).append((endpoint, database, table))
        return found

    @cached_property
    def loads(self) -> dict[str, TableLoad]:
        """What the capture asks of each table; shards add up."""
        found: dict[str, TableLoad] = {}
        for target, sources in self.sources.items():
            for name in {f"{database}.{table}".lower() for _, database, table in sources}:
                one = self.load.tables.get(name) if self.load is not None else None
                if one is not None:
                    two = found.get(target, TableLoad())
                    found[target] = TableLoad(
                        one.reads + two.reads, one.inserts + two.inserts, one.changes + two.changes,
                        one.upserts + two.upserts, one.uncounted + two.uncounted, {**two.ascending, **one.ascending},
                    )  # fmt: skip
        return found

    @cached_property
    def out_of_scope(self) -> list[tuple[str, int]]:
        """Source tables that the capture writes and nothing judges, and by how many statements; the most first.

        System databases are not migrated: they are no part of the load.
        """
        known = {f"{database}.{table}".lower() for names in self.sources.values() for _, database, table in names}
        written = [
            (name, one.written) for name, one in (self.load.tables.items() if self.load is not None else ())
            if one.written and name not in known and not self.scope.wanted(*name.split(".", 1))
            and not is_system_database(name.partition(".")[0])
        ]  # fmt: skip
        return sorted(written, key=lambda one: (-one[1], one[0]))

    def bytes_of(self, table: str) -> int:
        """Return the estimated size of a table: the larger side's, as the target may not be full yet."""
        there = self.target.tables[table].bytes if table in self.target.tables else 0
        return max(there, sum(self.sizes[e].tables[d, t].bytes for e, d, t in self.sources.get(table, ())))

    @cached_property
    def kinds(self) -> dict[str, dict[str, IdKind]]:
        """What gives out the ids of a column, on either side, by table and column in lower case."""
        found: dict[str, dict[str, IdKind]] = {}
        for space in self.spaces:
            if space.column and not space.doubts:
                found.setdefault(self._target_of(space), {})[space.column.lower()] = space.kind
        return found

    @cached_property
    def growth(self) -> dict[str, Growth]:
        """How the counters of the sources grew, by earlier runs of the ids guard; shards add up."""
        found: dict[str, Growth] = {}
        for space in self.spaces:
            if (
                space.kind is not IdKind.AUTO_INCREMENT
                or space.endpoint == self.target.endpoint.name
                or space.used is None
            ):
                continue
            name, rate = self._target_of(space), _rate([*space.history, IdReading(self.now, space.used)])
            before = found.get(name, Growth(0.0, 0))
            both = None if rate is None or before.rate is None else rate + before.rate
            found[name] = Growth(both, space.used + (before.used or 0))
        return found

    def _target_of(self, space: IdSpace) -> str:
        database, _, table = space.table.partition(".")
        return ".".join(self.scope.renamed(space.endpoint)(database, table)).lower()

    def ranges(self, name: str) -> list[InsertRange]:
        """Return where inserts into a table go."""
        method, count = self.target.partitions.get(name, ("", 1))
        masked = self.load is None or self.load.masked
        return list(insert_ranges(
            self.target.tables[name], clustered=self.target.clustered.get(name, False),
            partitions=count if method in ("HASH", "KEY") else 1, kinds=self.kinds.get(name, {}),
            ascending={} if masked else self.loads.get(name, TableLoad()).ascending,
        ))  # fmt: skip


def _rate(points: Sequence[IdReading]) -> float | None:
    """Return the fastest growth between two readings a minute or more apart, a second; None with one reading."""
    ordered = sorted(points, key=lambda point: point.time)
    rates = [
        (after.used - before.used) / (after.time - before.time) * 1000
        for before, after in pairwise(ordered) if after.time - before.time >= 60_000 and after.used >= before.used
    ]  # fmt: skip
    return max(rates, default=None)
