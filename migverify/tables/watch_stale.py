"""Pairs whose names may mean other rows than those that were compared: noticed, compared as a whole again, settled.

A pair is stale from the statement or the changed identity on until one comparison of its whole table began and ended
with the same identities on every side, planned by the definitions of that moment, and nothing more happened meanwhile.
What fails is tried again: a stale pair is INCONCLUSIVE until then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from migverify.db.pool import SessionPool
from migverify.errors import MigverifyError, PlanError, ReadError
from migverify.model import Endpoint
from migverify.tables.diff import PairReader
from migverify.tables.tasks import PairPlan
from migverify.tables.touched import Watched, form_of
from migverify.tables.watch_identity import Identities, IdentityWatch, changes, identities_text, read_pairs
from migverify.tables.watch_sweep import (
    AGAIN_SECONDS,
    MOST_DIFFERENT,
    MOST_ROWS,
    Comparison,
    Stale,
    Swept,
    sweep_range,
)
from migverify.watch.ledger import Ledger, PairCounts

MOST_REASONS = 20
"""Statements kept of one stale pair."""

Replan = Callable[[Sequence[Watched]], Sequence[Watched]]
Step = Callable[[], "Comparison | tuple[Swept, Identities | None]"]


class StaleTables:
    """The stale pairs of one watch. Methods are called by the watch's thread; steps run on any thread.

    Parameters
    ----------
    known
        The identities of each pair when its rows were last compared, or when the watch began.
    replan
        Plans the tables of one pair anew; raises MigverifyError.
    open_reader
        Opens a reader of both sides of a pair.
    """

    def __init__(
        self, ledger: Ledger, pool: SessionPool, target: Endpoint, sources: Sequence[Endpoint],
        known: Mapping[int, Identities], replan: Replan, open_reader: Callable[[PairPlan], PairReader],
    ) -> None:  # fmt: skip
        self.ledger, self.pool, self.target = ledger, pool, target
        self.known = dict(known)
        self.replan, self.open_reader = replan, open_reader
        self.stale: dict[int, Stale] = {}
        self.comparison: Comparison | None = None
        self._identities = IdentityWatch(pool, target, sources)
        self._count_at = 0.0
        self._planned = -1

    def mark(self, number: int, waits: Mapping[int, int]) -> None:
        """Hear that the ledger holds a reason why a pair is stale; ``waits`` are places to be applied first."""
        stale = self.stale.setdefault(number, Stale())
        stale.changes += 1
        for source, seq in waits.items():
            stale.waits[source] = max(seq, stale.waits.get(source, 0))

    def is_full(self, number: int) -> bool:
        """Whether the ledger holds enough reasons of a stale pair: statements may come by the thousand."""
        return number in self.stale and self.stale[number].changes >= MOST_REASONS

    def look(self, pairs: Sequence[Watched], *, now: bool = False) -> bool:
        """Read identities when it is time to, or ``now``; returns whether they were read.

        Raises
        ------
        ReadError, EndpointError
            a server does not answer.
        """
        found = self._identities.look(pairs, now=now)
        for number, identities in (found or {}).items():
            changed = changes(self.known.get(number, {}), identities)
            if changed and self.comparison is not None and self.comparison.number == number:
                changed = changes(self.comparison.identities, identities)
            for text in changed:
                if self.ledger.note(number, "stale", text):
                    self.ledger.note(number, "changed", text)
                    self.mark(number, {})
        return found is not None

    def next_step(self, pairs: Sequence[Watched], applied: Mapping[int, int]) -> Step | None:
        """Return what to run next; None when no stale pair can be compared now."""
        comparison = self.comparison
        if comparison is not None:
            return None if self._too_different(comparison) else partial(self._advance, comparison)
        for number, stale in self.stale.items():
            ready = all(applied.get(source, -1) >= seq for source, seq in stale.waits.items())
            if ready and time.monotonic() >= stale.due:
                self._planned = number
                return partial(self._plan, number, stale.changes, [w for w in pairs if w.number == number])
        return None

    def failed(self, error: MigverifyError) -> None:
        """Take the error of a step: the pair waits for its next comparison, behind the others."""
        self._again(self._planned, AGAIN_SECONDS, f"it could not be compared: {error.message}")

    def took(self, swept: Swept, after: Identities | None, now: float) -> None:
        """Take a range that was compared; ``after`` are the identities behind the last one."""
        comparison = self.comparison
        if comparison is None:
            return
        comparison.rows += swept.rows
        comparison.different += len(swept.diffs)
        comparison.reached = swept.reached
        if swept.diffs:
            # No place: the first read that differs says which places must be applied before it counts.
            key = comparison.watched[0].key
            keys = {(comparison.number, form_of(key, d.key)): (1, 0, 0) for d in swept.diffs}
            self.ledger.touch(keys, {}, now, origin="comparison")
        if after is not None:
            self._end(comparison, after)

    def progress(self) -> dict[int, str]:
        """Return in words how far each stale pair is."""
        words = {n: s.failure or "it waits for its comparison" for n, s in self.stale.items()}
        if self.comparison is not None:
            words[self.comparison.number] = f"it is being compared, {self.comparison.rows:,} rows so far"
        return words

    def _end(self, comparison: Comparison, after: Identities) -> None:
        self.comparison = None
        number = comparison.number
        moved = changes(comparison.identities, after)
        if moved or self.stale[number].changes != comparison.changes:
            self._again(number, 0.0, "it changed again while it was compared" + "".join(f": {t}" for t in moved[:1]))
            return
        words = (
            f"{comparison.rows:,} rows were compared again at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC"
        )
        self.ledger.settle(number, {"identity": identities_text(after), "compared": words})
        self.known[number] = after
        del self.stale[number]

    def _again(self, number: int, seconds: float, why: str) -> None:
        stale = self.stale.pop(number)
        stale.due, stale.failure = time.monotonic() + seconds, why
        self.stale[number] = stale  # behind the others
        self.comparison = None

    def _too_different(self, comparison: Comparison) -> bool:
        """Whether to wait: rows that differ are few, or the ledger would grow as large as the table."""
        if comparison.different >= MOST_DIFFERENT and time.monotonic() >= self._count_at:
            counts = self.ledger.counts(0.0).get(comparison.number, PairCounts())
            comparison.different = counts.pending + counts.doubt + counts.hot + counts.diverged
            self._count_at = time.monotonic() + AGAIN_SECONDS
        return comparison.different >= MOST_DIFFERENT

    def _plan(self, number: int, changed: int, watched: Sequence[Watched]) -> Comparison:
        identities = read_pairs(self.pool, self.target, watched)[number]
        if any(identity.young for identity in identities.values()):
            raise ReadError("it was altered a moment ago")
        fresh = self.replan(watched)
        if [(c.name, c.family) for c in fresh[0].key] != [(c.name, c.family) for c in watched[0].key]:
            raise PlanError(f"{fresh[0].pair.id}: its key changed", hint="Verify it again, and start a new watch.")
        return Comparison(number, changed, fresh, identities)

    def _advance(self, comparison: Comparison) -> tuple[Swept, Identities | None]:
        reader = self.open_reader(comparison.watched[0].pair)
        try:
            swept = sweep_range(reader, comparison.reached, MOST_ROWS)
        finally:
            reader.close()
        if swept.reached is not None:
            return swept, None
        return swept, read_pairs(self.pool, self.target, comparison.watched)[comparison.number]
