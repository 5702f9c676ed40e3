"""Whether a changefeed carries the changes of the configured target: its rows are looked up in the target's past.

Messages name no cluster, timestamps of two clusters are alike, and two clusters may hold equal tables. But where the
target itself committed a change at a timestamp, its row was another one right before. One such row ties the feed to the
target; without any, a verdict would rest on the changes of somebody else. A marker proves the same and more.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace

from migverify.db.pool import SessionPool
from migverify.db.snapshot import next_millisecond
from migverify.errors import MigverifyError
from migverify.model import KeyText
from migverify.sql.checksum import split_element
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.watch_versions import PastReader
from migverify.watch.applied import TSO_SHIFT
from migverify.watch.ledger import NO_PAIR, KeyState, Ledger, LedgerKey
from migverify.watch.touched import form_of

ORIGIN = "origin"
"""Kind of the ledger's note that names the changefeed which is known to be the target's."""
MOST_WAITING = 20
PAUSE_SECONDS = 0.5
_MILLISECOND = 1 << TSO_SHIFT
TRIES = 3
REFUTES = 20
"""So many rows that the target did not have at their commit, and none that it had changed, are those of another one."""
_EXACT = frozenset({"integer", "year", "decimal", "text", "binary"})
"""Families of keys whose text in a message is that of the server in any time zone."""


@dataclass(frozen=True, slots=True)
class _CarriedChange:
    """A change that the feed carried: the key's last one, and whether it left a row."""

    pair: PairPlan
    key: KeyText
    commit: int
    there: bool
    tries: int = 0


@dataclass(slots=True)
class FeedOrigin:
    """Looks up carried changes in the target until one of them is known to be the target's own.

    ``offer``, ``record`` and the questions are for the thread of the watch, ``ask`` for any other.

    Parameters
    ----------
    feed
        Names the changefeed: what is known of it holds for a watch that goes on with the same one.
    """

    pool: SessionPool
    rules: Rules
    feed: str
    ledger: Ledger
    is_proved: bool = False
    _is_kept: bool = False
    _waiting: deque[_CarriedChange] = field(default_factory=lambda: deque(maxlen=MOST_WAITING))
    _under_way: bool = False
    _next: float = 0.0
    _asked: int = 0
    _absent: set[tuple[str, KeyText]] = field(default_factory=set)
    _failure: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.is_proved = self._is_kept = (NO_PAIR, ORIGIN, self.feed) in self.ledger.notes()

    def offer(self, pair: PairPlan, keys: Iterable[LedgerKey]) -> None:
        """Take the newest of some written keys to look up: garbage collection has not passed them."""
        if self.is_proved:
            return
        new = [key for key in keys if key.state is KeyState.PENDING and not key.origin]
        written = sorted(new, key=lambda key: key.ordinal)[-MOST_WAITING:]
        with self._lock:
            known = {(change.key, change.commit) for change in self._waiting}
            self._waiting.extend(
                _CarriedChange(pair, key.key, key.ordinal, key.there)
                for key in written
                if (key.key, key.ordinal) not in known
            )

    def claim_turn(self) -> bool:
        """Return whether there is something to look up now; then one call of ``ask`` must follow."""
        if self.is_proved or self._under_way or not self._waiting or time.monotonic() < self._next:
            return False
        self._under_way = True
        return True

    @property
    def is_open(self) -> bool:
        """Whether something that waits may still prove it."""
        return not self.is_proved and not self.is_refuted and (self._under_way or bool(self._waiting))

    @property
    def is_refuted(self) -> bool:
        """Whether the feed is that of another cluster."""
        return not self.is_proved and len(self._absent) >= REFUTES

    def record(self) -> None:
        """Keep what is proved for a process that goes on with this watch."""
        if self.is_proved and not self._is_kept:
            self.ledger.note(NO_PAIR, ORIGIN, self.feed)
            self._is_kept = True

    def ask(self) -> None:
        """Look up the newest change that waits."""
        with self._lock:
            change = self._waiting.pop()
        try:
            self._look_up(change)
        except MigverifyError as error:
            self._failure = error.message
            with self._lock:
                if change.tries + 1 < TRIES and len(self._waiting) < MOST_WAITING:
                    self._waiting.appendleft(replace(change, tries=change.tries + 1))
        finally:
            self._next = time.monotonic() + PAUSE_SECONDS
            self._under_way = False

    def reason(self) -> str:
        """Return why nothing is known yet of a feed that has carried something; empty otherwise."""
        if self.is_refuted:
            return (
                f"the changefeed is that of another cluster: {len(self._absent):,} of {self._asked:,} rows that it"
                " carried are not what this target held at their commit timestamps, and none was changed there"
            )
        if self.is_proved or not (self._asked or self._failure or self.is_open):
            return ""
        failure = f", the last error: {self._failure}" if self._failure else ""
        return (
            "the changefeed is not known to be that of this target: no row that it carried was seen to change there at"
            f" its commit timestamp ({self._asked:,} rows looked up{failure}); with reverse.applied: marker it is known"
        )

    def _look_up(self, change: _CarriedChange) -> None:
        before = self._elements(change, next_millisecond(change.commit - 1) - _MILLISECOND)
        after = self._elements(change, next_millisecond(change.commit))
        side = change.pair.target_side
        exact = side is not None and {column.family for column in side.sql.key} <= _EXACT
        if exact and bool(after) is not change.there:
            self._absent.add((change.pair.id, change.key))
        self._asked += 1
        self.is_proved = before != after

    def _elements(self, change: _CarriedChange, moment: int) -> set[bytes]:
        """Return the rows of the key as of a moment of the target."""
        side = change.pair.target_side
        if side is None:
            return set()
        with closing(PastReader(side, self.pool, self.rules, moment)) as reader:
            elements = reader.key_list([change.key])
        columns = side.sql.key
        # A collation may find rows of other keys.
        return {one for one in elements if form_of(columns, split_element(columns, one)[0]) == change.key}
