"""The guard of hotspots: what will be hot on TiDB that was not on MySQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field

from migverify.db.session import open_session
from migverify.errors import EndpointError, ReadError
from migverify.guards.capacity_read import Sizes, read_sizes
from migverify.guards.hotspots_judge import QUESTIONS
from migverify.guards.hotspots_model import HotspotLimits
from migverify.guards.hotspots_read import HotspotFacts, HotspotReading, count_regions, read_target
from migverify.guards.ids import WITHOUT_IDS, IdsGuard
from migverify.guards.model import GuardResult, answered
from migverify.guards.scope import Scope
from migverify.load import CaptureLoad, TableLoad
from migverify.model import Endpoint

NAME = "hotspots"

LoadReader = Callable[[Mapping[str, frozenset[str]], Mapping[str, float]], CaptureLoad]
"""(columns whose order matters, length of a row), by source table in lower case -> what the capture asks for."""


@dataclass(slots=True)
class HotspotsGuard:
    """Asks the target where its keys go, and a capture or the counters of the sources how fast.

    Parameters
    ----------
    ids
        The guard of ids: its scope is this one's, it tells what gives out ids, what is hidden, and how counters grow.
    read_load
        Reads the capture, None where there is none. It is read once, however often this is asked.
    """

    ids: IdsGuard
    limits: HotspotLimits = field(default_factory=HotspotLimits)
    read_load: LoadReader | None = None
    load: CaptureLoad | None = None
    name: str = NAME

    @property
    def scope(self) -> Scope:
        """Where to look."""
        return self.ids.scope

    def ask(self) -> GuardResult:
        """Read every side, then the capture, and judge."""
        started = time.time()
        ids = self.ids.ask()
        unasked = [words for words in ids.unasked if not words.endswith(WITHOUT_IDS)]  # their rows may be hot, too
        sizes: dict[str, Sizes] = {}
        for endpoint in self.scope.config.sources:
            try:
                sizes[endpoint.name] = self._sizes(endpoint)
            except (EndpointError, ReadError) as error:
                unasked.append(f"{endpoint.name}: {' '.join(error.line.split())}")
        target = HotspotReading(self.scope.config.target)
        facts = HotspotFacts(self.scope, target, sizes, self.ids.spaces, self.ids.clock, self.load, self.limits)
        led_to = self.scope.led_to((endpoint, *name) for endpoint, one in sizes.items() for name in one.tables)
        password = self.scope.password(target.endpoint)
        read_target(target, password, lambda d, t: led_to(d, t) or self.scope.wanted(d, t))
        if target.unread:
            return GuardResult(
                NAME, (), started, time.time() - started, tuple(dict.fromkeys([*unasked, target.unread]))
            )
        if not facts.sources:
            unasked.append("no table in scope was seen on a source")
        if self.load is None and self.read_load is not None and len(sizes) == len(self.scope.config.sources):
            try:
                self.load = facts.load = self.read_load(*_wanted(facts))
            except (EndpointError, ReadError) as error:
                unasked.append(f"capture: {error.line}")
        if facts.load is not None:
            count_regions(target, password, [name for name, one in facts.loads.items() if self._is_busy(one)])
            known = {f"{d}.{t}".lower() for names in facts.sources.values() for _, d, t in names}
            unasked += [f"capture: {name} is in scope and was not seen on a source"
                        for name, one in sorted(facts.load.tables.items()) if name not in known and self._is_busy(one)
                        and self.scope.wanted(*name.split(".", 1))]  # fmt: skip
        answers = answered(NAME, QUESTIONS, facts, lambda subject: target.server_time if subject != "capture" else None)
        return GuardResult(NAME, answers, started, time.time() - started, tuple(unasked))

    def _is_busy(self, load: TableLoad) -> bool:
        writes = load.inserts + load.upserts + load.changes
        return load.reads.peak >= self.limits.reads or writes.peak >= self.limits.warn

    def _sizes(self, endpoint: Endpoint) -> Sizes:
        with closing(open_session(endpoint, self.scope.password(endpoint))) as session:
            return read_sizes(session, endpoint.name, self.scope.wanted)


def _wanted(facts: HotspotFacts) -> tuple[dict[str, frozenset[str]], dict[str, float]]:
    """Return, by source table, the columns that decide where inserts go, and the length of a row."""
    columns: dict[str, frozenset[str]] = {}
    row_bytes: dict[str, float] = {}
    for target, sources in facts.sources.items():
        table = facts.target.tables.get(target)
        for endpoint, database, name in sources:
            size = facts.sizes[endpoint].tables[database, name]
            row_bytes[f"{database}.{name}".lower()] = size.bytes / size.rows if size.rows else 0.0
            if table is not None:
                first = {index.columns[0].lower() for index in table.indexes if index.columns[0] is not None}
                columns[f"{database}.{name}".lower()] = frozenset(first)
    return columns, row_bytes
