"""Which workers of a snowflake gave out the ids that each side inserted: one worker on both sides may repeat an id."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.watch.key_changes import KeyChange

SAMPLES = 500
"""Ids of the leading side by which a layout is inferred, the newest of each pair."""

AGAIN = 20
"""Inserts of the leading side after which the layout is inferred again."""

WorkerOf: TypeAlias = Callable[[int], int]
InferWorkers: TypeAlias = Callable[[Sequence[int]], WorkerOf | None]
"""Ids -> what gives the worker of an id, None where they have no known layout."""


@dataclass(slots=True)
class IdWorkers:
    """The ids that the leading side inserted lately, per pair of ``pairs``: their one key column is an integer."""

    infer: InferWorkers
    pairs: Set[int]
    _ids: dict[int, deque[int]] = field(default_factory=dict)
    _inferred: dict[int, tuple[int, WorkerOf | None]] = field(default_factory=dict)
    _inserts: Counter[int] = field(default_factory=Counter)
    _met: set[tuple[int, int]] = field(default_factory=set)

    def lead(self, change: KeyChange) -> None:
        """Take an insert of the leading side."""
        if change.pair in self.pairs and change.key[0] is not None:
            self._ids.setdefault(change.pair, deque(maxlen=SAMPLES)).append(int(change.key[0]))
            self._inserts[change.pair] += 1

    def worker_of_both(self, change: KeyChange) -> int | None:
        """Return the worker of an insert of a client, if it gives out ids on the leading side too; each once."""
        ids = self._ids.get(change.pair)
        if not ids or change.key[0] is None or (worker_of := self._layout(change.pair, ids)) is None:
            return None
        worker = worker_of(int(change.key[0]))
        if (change.pair, worker) in self._met or worker not in {worker_of(number) for number in ids}:
            return None
        self._met.add((change.pair, worker))
        return worker

    def _layout(self, pair: int, ids: Sequence[int]) -> WorkerOf | None:
        """Return what was inferred of about these ids: a client may insert many rows."""
        number = self._inserts[pair] // AGAIN
        if self._inferred.get(pair, (-1, None))[0] != number:
            self._inferred[pair] = number, self.infer(list(ids))
        return self._inferred[pair][1]
