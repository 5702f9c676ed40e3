"""The guard of capacity: how much there is, how fast it grows, and whether the work fits its window."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

from migverify.guards.capacity_facts import CapacityFacts, Requirements, SizePoint
from migverify.guards.capacity_judge import QUESTIONS
from migverify.guards.capacity_read import CapacityReader, CapacityReading
from migverify.guards.model import GuardResult, answered
from migverify.guards.scope import Scope
from migverify.guards.unseen import VisibleTables, unseen
from migverify.store.results import ResultStore

NAME = "capacity"


@dataclass(slots=True)
class CapacityGuard:
    """Asks both sides how much there is and what goes on, and the store how fast earlier runs were.

    Parameters
    ----------
    scope
        Whom to ask; on the target the tables that sources lead to count too.
    store
        Where earlier runs are.
    wanted
        What is to be judged: the window, the engine, the replay.
    history
        What earlier runs of this guard found, by endpoint.
    """

    scope: Scope
    store: ResultStore
    wanted: Requirements = field(default_factory=Requirements)
    history: Mapping[str, Sequence[SizePoint]] = field(default_factory=dict)
    reader: CapacityReader = field(default_factory=CapacityReader)
    name: str = NAME

    def ask(self) -> GuardResult:
        """Read every side and judge."""
        started = time.time()
        every = [CapacityReading(endpoint) for endpoint in self.scope.endpoints]

        @cache
        def led_to() -> Callable[[str, str], bool]:
            for source in every[:-1]:  # the first table that is asked about waits for the sources to be listed
                source.sized.wait()
            return self.scope.led_to(
                (source.endpoint.name, *name)
                for source in every[:-1]
                for name in (source.sizes.tables if source.sizes else ())
            )

        def on_target(database: str, table: str) -> bool:
            return led_to()(database, table) or self.scope.wanted(database, table)

        with ThreadPoolExecutor(len(every)) as pool:
            wanted = [*[self.scope.wanted] * (len(every) - 1), on_target]
            passwords = [self.scope.password(one.endpoint) for one in every]
            list(pool.map(self.reader.read, every, passwords, wanted))
        facts = CapacityFacts(every, self.scope.route, self.store, self.wanted, self.history)
        clocks = {one.endpoint.name: one.server_time for one in every}
        answers = answered(NAME, QUESTIONS, facts, clocks.get)
        unasked = (
            *(f"{one.endpoint.name}: {one.unread}" for one in every if one.unread),
            *(f"{one.endpoint.name}: what its user may see: {one.refused['grants']}"
              for one in every if "grants" in one.refused),
            *unseen(self.scope, [VisibleTables(one.endpoint, list(one.sizes.tables), one.grants)
                                 for one in every if one.sizes is not None and one.grants is not None]),
        )  # fmt: skip
        kept = {"window_seconds": self.wanted.window, "engine": self.wanted.engine}
        return GuardResult(NAME, answers, started, time.time() - started, unasked, kept)
