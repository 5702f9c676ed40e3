"""Rows of TiDB that are written all the time, proved on the side that follows as of moments between their writes.

A read of both sides never finds such a row equal: the follower has an earlier version. But TiDB keeps versions. The
follower's row is read once, then the row of TiDB as of moments from the place that the follower has applied by then:
where it is equal to one of them, everything that was written of it up to that moment has arrived. What was written
later stays open. Rows that are on neither side are not proved so: their key may be spelled wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import closing
from dataclasses import dataclass

from migverify.errors import MigverifyError, ReadError
from migverify.model import KeyText
from migverify.sql import checksum
from migverify.tables.diff import PairReader, rows_at_once
from migverify.tables.tasks import PairPlan
from migverify.tables.watch_identity import SHARE
from migverify.tables.watch_versions import PastReads, spread
from migverify.watch.applied import TSO_SHIFT
from migverify.watch.ledger import Ledger
from migverify.watch.ledger_moving import MovingKey
from migverify.watch.touched import form_of

MOMENTS = 24
"""Versions that are looked at: where the follower is some seconds behind, one every tenth of a second."""
YOUNG_SECONDS = 2.0
"""A row that was proved or first written so lately is left to the read of its last write."""
EVERY_SECONDS = 1.0
MOST = 400
"""Keys that are looked at together."""
UNREADABLE = "versions"
"""Kind of the note that says why versions cannot be read."""

Proved = list[tuple[MovingKey, int, float]]


@dataclass(slots=True)
class MovingRows:
    """Looks at hot rows, one look at a time. Used by the thread of the watch."""

    past: PastReads
    ledger: Ledger
    _look: Future[Proved] | None = None
    _next: float = 0.0
    _has_noted: bool = False

    def turn(self, plans: Mapping[int, PairPlan], ready: Mapping[int, int], threads: Executor) -> None:
        """Keep what the last look proved, and begin the next one when it is time.

        ``ready`` are the places that were read and applied, by source; only one source is written.
        """
        if self._look is not None:
            if not self._look.done():
                return
            look, self._look = self._look, None
            self._keep(look, next(iter(plans)))
        begun = time.monotonic()
        if 0 not in ready or begun < self._next:
            return
        keys = self.ledger.moving(0, ready[0], time.time() - YOUNG_SECONDS, MOST)
        # A ledger may hold millions.
        self._next = begun + max(EVERY_SECONDS, SHARE * (time.monotonic() - begun))
        some = [key for key in keys if key.pair in plans]
        if some:
            self._look = threads.submit(self._prove, {p: plans[p] for p in {k.pair for k in some}}, some, ready[0])

    def _keep(self, look: Future[Proved], pair: int) -> None:
        try:
            self.ledger.proved_to(look.result())
        except MigverifyError as error:
            # The rows stay open. TiDB may not keep versions for as long as the follower is behind.
            if not self._has_noted:
                self._has_noted = True
                self.ledger.note(
                    pair, UNREADABLE, f"rows that keep changing cannot be read as of moments: {error.message}"
                )

    def _prove(self, plans: Mapping[int, PairPlan], keys: Sequence[MovingKey], applied: int) -> Proved:
        found: Proved = []
        for number, pair in plans.items():
            own = [key for key in keys if key.pair == number]
            for start in range(0, len(own), rows_at_once(pair)):
                found += proved_between(self.past, pair, own[start : start + rows_at_once(pair)], applied)
        return found


def proved_between(past: PastReads, pair: PairPlan, keys: Sequence[MovingKey], applied: int) -> Proved:
    """Return the keys whose row on the followers is one that the target held after a place, with that moment.

    Parameters
    ----------
    applied
        The place that the followers have applied, asked before this call: a version from before it proves nothing.

    Raises
    ------
    ReadError
        a side did not answer, or a moment lies behind garbage collection.
    """
    with closing(past.open(pair, past.now())) as reader:
        texts = [key.key for key in keys]
        ours = _by_key(reader, [element for side in reader.sources for element in side.key_list(texts)])
    end, at = past.now(), time.time()
    # A row without a checksum is equal to none.
    waiting = {key.key: key for key in keys if not any(b"?" in element for element in ours.get(key.key, [b"?"]))}
    found: Proved = []
    for moment in _moments(applied, end):
        if not waiting:
            break
        try:
            with closing(past.open(pair, moment)) as reader:
                theirs = _by_key(reader, reader.target.key_list(list(waiting)))
        except ReadError:
            if not found:
                raise
            break  # an older moment lies behind garbage collection: what the later ones proved is proved
        equal = [text for text in waiting if theirs.get(text) == ours[text]]
        found += [(waiting.pop(text), moment, at - ((end - moment) >> TSO_SHIFT) / 1000) for text in equal]
    return found


def _by_key(reader: PairReader, elements: Sequence[bytes]) -> dict[KeyText, list[bytes]]:
    """Return row checksums by key: several rows of a key where a collation, or shards that overlap, give them."""
    found: dict[KeyText, list[bytes]] = {}
    for element in sorted(elements):
        found.setdefault(form_of(reader.key, checksum.split_element(reader.key, element)[0]), []).append(element)
    return found


def _moments(first: int, last: int) -> Iterator[int]:
    """Yield moments from a place on, the last one too: not evenly, against rows that change in step; late ones first.

    A follower is mostly a little behind, so the version that it has is more often one of the last.
    """
    begin = ((first >> TSO_SHIFT) + 1) << TSO_SHIFT
    if last >= first:
        yield last
    yield from reversed(list(spread(begin, last, MOMENTS)))
