"""Read tables in ranges beside the stream: slowly all of them in rounds, and at once one that may hold other rows.

A write on the target that did not come from replication touches no key of the stream: the *sweep* compares range after
range at a given number of rows a second. A statement that may give a name other rows (RENAME, TRUNCATE, DDL that no
binlog shows) makes a pair *stale*, until one comparison of its whole table began and ended with the same identities on
every side, planned by the definitions of that moment, and nothing more happened meanwhile. What fails is tried again.
Rows that differ become touched keys, and are treated like all others: read again until they are equal, or twice the
same after the target applied what was written.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial

from migverify.db.pool import SessionPool
from migverify.errors import MigverifyError, PlanError, ReadError
from migverify.figures import amount
from migverify.model import Endpoint, KeyRange, KeyText
from migverify.tables.diff import PairReader, locate, same_checksum
from migverify.tables.sweep import MOST_ROWS, Sweep, Swept, TableRounds, rounds_of
from migverify.tables.tasks import PairPlan
from migverify.tables.watch_identity import (
    Identities,
    IdentityWatch,
    Watched,
    changes,
    identities_text,
    read_pairs,
)
from migverify.tables.watch_versions import PastReads
from migverify.watch.ledger import SWEPT, Ledger, PairCounts
from migverify.watch.touched import form_of

MOST_REASONS = 20
"""Statements kept of one stale pair: they may come by the thousand."""
AGAIN_SECONDS = 3.0
"""How long a table waits that could not be compared."""
MOST_DIFFERENT = 50_000
"""A comparison that found this many rows goes on when they are fewer: they are all in the ledger."""

Replan = Callable[[Sequence[Watched]], Sequence[Watched]]


@dataclass(slots=True)
class StaleTable:
    """A pair whose names may mean other rows than those compared, and what must be applied before it is read.

    ``waits`` are places by source number, ``changes`` counts what made it stale, ``due`` is the monotonic time of the
    next attempt, ``failure`` the last one's.
    """

    waits: dict[int, int] = field(default_factory=dict)
    changes: int = 0
    due: float = 0.0
    failure: str = ""


@dataclass(slots=True)
class TableComparison:
    """One comparison of a whole table: how it was planned, and how far it is."""

    number: int
    changes: int
    watched: Sequence[Watched]
    identities: Identities
    rows: int = 0
    different: int = 0
    reached: KeyText | None = None


class RangeReads:
    """The stale pairs and the sweep of one watch: one step at a time on any thread; methods are of the watch's thread.

    Parameters
    ----------
    known
        The identities of each pair when its rows were last compared, or when the watch began.
    replan
        Plans the tables of one pair anew; raises MigverifyError.
    open_reader
        Opens a reader of both sides of a pair.
    planned
        Receives the tables of a pair that are read by new definitions from now on.
    past
        Reads the ranges of the sweep as of moments of the target, where no changefeed shows what is written there.
    """

    def __init__(
        self, ledger: Ledger, pool: SessionPool, target: Endpoint, sources: Sequence[Endpoint],
        known: Mapping[int, Identities], sweep: Sweep, replan: Replan,
        open_reader: Callable[[PairPlan], PairReader], planned: Callable[[Sequence[Watched]], None],
        past: PastReads | None = None,
    ) -> None:  # fmt: skip
        self.ledger, self.pool, self.target, self.sweep = ledger, pool, target, sweep
        self.known = dict(known)
        self.replan, self.open_reader, self.planned, self.past = replan, open_reader, planned, past
        self.stale: dict[int, StaleTable] = {}
        self.comparison: TableComparison | None = None
        self.trouble = ""
        self._identities = IdentityWatch(pool, target, sources)
        self._count_at = 0.0
        self._under_way: tuple[Future[TableComparison | Swept], Watched, TableRounds | None] | None = None
        if past is not None:
            sweep.tables.update({n: rounds_of(text) for n, text in ledger.rounds().items() if n in sweep.numbers})

    def mark(self, number: int, waits: Mapping[int, int]) -> None:
        """Note that the ledger holds a reason why a pair is stale; ``waits`` are places to be applied first."""
        stale = self.stale.setdefault(number, StaleTable())
        stale.changes += 1
        self.sweep.forget(number)
        if self.past is not None:
            self.ledger.keep_round(number, self.sweep.of(number).text())
        for source, ordinal in waits.items():
            stale.waits[source] = max(ordinal, stale.waits.get(source, 0))

    def is_full(self, number: int) -> bool:
        """Whether the ledger holds enough reasons of a stale pair."""
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

    def turn(self, pairs: Sequence[Watched], applied: Mapping[int, int], threads: Executor) -> None:
        """Take what was read, and begin the next: stale tables first, then the sweep."""
        if self._under_way is not None:
            future, watched, rounds = self._under_way
            if not future.done():
                return
            self._under_way = None
            try:
                result = future.result()
            except MigverifyError as error:
                self._failed(watched.number, error, rounds)
            else:
                self._take(result, watched, rounds)
        if self.comparison is not None:
            if not self._too_different(self.comparison):
                step = partial(self._compare, self.comparison)
                self._under_way = threads.submit(step), self.comparison.watched[0], None
                return
        elif (number := self._next_stale(applied)) is not None:
            tables = [w for w in pairs if w.number == number]
            self._under_way = threads.submit(self._plan, self.stale[number].changes, tables), tables[0], None
            return
        if (number := self.sweep.due()) is not None:
            watched = next(w for w in pairs if w.number == number)
            table, rows = self.sweep.of(number), self.sweep.range_rows
            if self.past is None:
                step = partial(self._read, watched.pair, table.reached, rows)
            else:
                step = partial(
                    self._read_past, self.past, watched.pair, table.reached, rows, table.bound, self.sweep.final
                )
            self._under_way = threads.submit(step), watched, table

    def progress(self) -> dict[int, str]:
        """Return in words how far each stale pair is."""
        words = {n: s.failure or "it waits for its comparison" for n, s in self.stale.items()}
        if self.comparison is not None:
            words[self.comparison.number] = f"it is being compared, {amount(self.comparison.rows, 'row')} so far"
        return words

    # -- steps, on any thread ------------------------------------------------------------------------------------

    def _plan(self, changed: int, watched: Sequence[Watched]) -> TableComparison:
        number = watched[0].number
        identities = read_pairs(self.pool, self.target, watched)[number]
        if any(identity.young for identity in identities.values()):
            raise ReadError("it was altered a moment ago")
        fresh = self.replan(watched)
        if [(c.name, c.family) for c in fresh[0].key] != [(c.name, c.family) for c in watched[0].key]:
            raise PlanError(f"{fresh[0].pair.id}: its key changed", hint="Verify it again, and start a new watch.")
        return TableComparison(number, changed, fresh, identities)

    def _compare(self, comparison: TableComparison) -> Swept:
        swept = self._read(comparison.watched[0].pair, comparison.reached, MOST_ROWS)
        if swept.reached is not None:
            return swept
        after = read_pairs(self.pool, self.target, comparison.watched)[comparison.number]
        return Swept(swept.rows, swept.diffs, None, after)

    def _read(self, pair: PairPlan, lower: KeyText | None, rate: int) -> Swept:
        reader = self.open_reader(pair)
        try:
            return sweep_range(reader, lower, rate)
        finally:
            reader.close()

    def _read_past(
        self, past: PastReads, pair: PairPlan, lower: KeyText | None, rows: int, bound: KeyText | None,
        final: int | None,
    ) -> Swept:  # fmt: skip
        """Compare a range as of a moment of the target, in a final pass also with the target as it is now."""
        moment = past.now() if final is None else final
        with closing(past.open(pair, moment)) as reader:
            swept = replace(sweep_range(reader, lower, rows, bound), moment=moment)
        if final is None:
            return swept
        with closing(past.open(pair, past.now())) as reader:
            now = reader.target.checksum(KeyRange(lower, swept.reached))[0]
        return replace(swept, is_older=now != swept.target)

    # -- what they found -----------------------------------------------------------------------------------------

    def _next_stale(self, applied: Mapping[int, int]) -> int | None:
        for number, stale in self.stale.items():
            ready = all(applied.get(source, -1) >= ordinal for source, ordinal in stale.waits.items())
            if ready and time.monotonic() >= stale.due:
                return number
        return None

    def _failed(self, number: int, error: MigverifyError, rounds: TableRounds | None) -> None:
        if rounds is not None:
            self.trouble = error.message
            self.sweep.took(number, rounds, None)
        else:
            self._again(number, AGAIN_SECONDS, f"it could not be compared: {error.message}")

    def _take(self, result: TableComparison | Swept, watched: Watched, rounds: TableRounds | None) -> None:
        if isinstance(result, TableComparison):
            self.comparison = result
            self.planned(result.watched)
            return
        if result.diffs:
            # No place: the first read that differs says which places must be applied before it counts.
            sums = {form_of(watched.key, diff.key): diff.source_checksum for diff in result.diffs}
            self.ledger.touch(
                {(watched.number, key): (1, 0, 0) for key in sums}, {}, time.time(),
                origin="comparison" if rounds is None else SWEPT, source_sums=sums, found=result.moment,
            )  # fmt: skip
        if rounds is not None:
            self.trouble = ""
            self.sweep.took(watched.number, rounds, result)
            if self.past is not None:
                # After the keys: a process that is killed in between reads the range again.
                self.ledger.keep_round(watched.number, self.sweep.of(watched.number).text())
        elif self.comparison is not None:
            self.comparison.rows += result.rows
            self.comparison.different += len(result.diffs)
            self.comparison.reached = result.reached
            if result.identities is not None:
                self._end(self.comparison, result.identities)

    def _end(self, comparison: TableComparison, after: Identities) -> None:
        number = comparison.number
        moved = changes(comparison.identities, after)
        if moved or self.stale[number].changes != comparison.changes:
            self._again(number, 0.0, "it changed again while it was compared" + "".join(f": {t}" for t in moved[:1]))
            return
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        words = f"{amount(comparison.rows, 'row')} compared again at {moment} UTC"
        self.ledger.settle(number, {"identity": identities_text(after), "compared": words})
        self.known[number] = after
        self.comparison = None
        del self.stale[number]

    def _again(self, number: int, seconds: float, why: str) -> None:
        stale = self.stale.pop(number)
        stale.due, stale.failure = time.monotonic() + seconds, why
        self.stale[number] = stale  # behind the others
        self.comparison = None

    def _too_different(self, comparison: TableComparison) -> bool:
        """Whether to wait: rows that differ are few, or the ledger would grow as large as the table."""
        if comparison.different >= MOST_DIFFERENT and time.monotonic() >= self._count_at:
            counts = self.ledger.counts(0.0).get(comparison.number, PairCounts())
            comparison.different = counts.pending + counts.doubt + counts.hot + counts.diverged
            self._count_at = time.monotonic() + AGAIN_SECONDS
        return comparison.different >= MOST_DIFFERENT


def sweepable(pair: PairPlan) -> bool:
    """Whether a table can be read in ranges and its rows by key; the others are not swept."""
    return pair.readable and not pair.whole and bool(pair.sides[0].sql.range_key and pair.sides[0].sql.key)


def sweep_range(reader: PairReader, lower: KeyText | None, rows: int, bound: KeyText | None = None) -> Swept:
    """Compare the next range of a table, of ``rows`` rows or up to a bound; one that cannot be cut in one statement.

    Raises
    ------
    ReadError
        a side did not answer, or rows differ that cannot be read again.
    """
    pair, key_range = reader.pair, KeyRange()
    if sweepable(pair):
        walker = reader.walker
        upper = walker.later(partial(walker.boundary, KeyRange(lower, bound), min(MOST_ROWS, max(1, rows)))).result()
        key_range = KeyRange(lower, bound if upper is None else upper)
    if key_range.upper is None and any(column.nullable for column in reader.target.sql.range_key):
        _refuse_other_nulls(reader)
    source, target = reader.checksums(key_range)
    if source.hashed < source.rows or target.hashed < target.rows:
        raise ReadError(f"{pair.id} {key_range}: a row is too long to hash at once")
    if same_checksum(source, target):
        return Swept(source.rows, (), key_range.upper, target=target)
    diffs = tuple(locate(reader, key_range, (source.rows, target.rows)))
    if diffs and not reader.key:
        raise ReadError(f"{pair.id}: {len(diffs)} rows differ, and the table has no key to read them again by")
    return Swept(source.rows, diffs, key_range.upper, target=target)


def _refuse_other_nulls(reader: PairReader) -> None:
    """Compare the rows in which a key column is NULL, which are in no range; raises ReadError where they differ."""
    source, target = reader.checksums(KeyRange(nulls=True))
    if not same_checksum(source, target) or source.hashed < source.rows:
        raise ReadError(f"{reader.pair.id}: rows with NULL in their key differ, and cannot be read again by it")
