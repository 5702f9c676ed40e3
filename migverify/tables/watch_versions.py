"""Rows of a TiDB whose changes nothing carries: read as of moments, and judged without a change stream.

MySQL follows the target by a feed that cannot be observed, so a row that differs may be on its way. It is

- *proved* when MySQL's row is equal to any version that the target held since the row was last found to differ: a
  round that comes by it states its own moment for the row, and in a final pass no version of before its moment counts;
- *diverged* when both sides stood still for the settle time, in every version that was read in between, and the feed is
  known to have gone on meanwhile: by a marker that was written later, or by three rows written later that are equal;
- in doubt otherwise. A feed without progress is no difference.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from migverify.db.pool import SessionPool
from migverify.db.reader import Reader, SidePlan
from migverify.db.session import Session
from migverify.db.snapshot import NOW, current_timestamp, held_snapshot, next_millisecond, read_as_of
from migverify.errors import ReadError
from migverify.model import Endpoint, KeyText, RowDiff
from migverify.tables.diff import PairReader, rows_at_once
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.watch_check import Checked, CheckMoment, differing_rows, judge, prove
from migverify.watch.applied import TSO_SHIFT
from migverify.watch.ledger import SWEPT, KeyState, LedgerKey
from migverify.watch.touched import form_of

T = TypeVar("T")

VERSIONS = 6
"""Moments of the past in which a row is looked for that differs."""


class PastReader(Reader):
    """Reads a table of TiDB as it was at a moment.

    Its statements have no stamp: TiDB refuses its catalog in a read of the past. That the table was replaced or altered
    is seen by its identity.
    """

    def __init__(self, side: SidePlan, pool: SessionPool, rules: Rules, moment: int) -> None:
        super().__init__(replace(side, columns_number=0), pool, rules)
        self.moment = moment

    def attempt(self, read: Callable[[Session], T]) -> T:
        """Run a read with retries and throttles, as of the moment."""
        return super().attempt(lambda session: read_as_of(session, self.moment, read))


@dataclass(frozen=True, slots=True)
class PastReads:
    """Opens readers of a pair as of moments of the target. ``settle`` is how long MySQL may take to follow, seconds."""

    pool: SessionPool
    target: Endpoint
    password: str | None = field(repr=False)
    rules: Rules
    settle: float

    @contextmanager
    def held(self) -> Iterator[int]:
        """Yield a moment behind all that is committed by now, which garbage collection does not pass meanwhile.

        Raises
        ------
        EndpointError
            the server does not answer.
        """
        with held_snapshot(replace(self.target, snapshot=NOW), self.password):
            yield self.now()

    def now(self) -> int:
        """Return the moment behind all that is committed by now, a TSO of a whole millisecond."""
        with self.pool.session(self.target) as session:
            return next_millisecond(current_timestamp(session))

    def open(self, pair: PairPlan, moment: int) -> PairReader:
        """Return readers of all sides, the target's as of a moment; the caller closes it.

        Raises
        ------
        ReadError
            the table is on one side only.
        """
        if pair.target_side is None or not pair.sources:
            raise ReadError(f"{pair.id}: the table is on one side only, there is nothing to read")
        target = PastReader(pair.target_side, self.pool, self.rules, moment)
        sources = [Reader(side, self.pool, self.rules) for side in pair.sources]
        return PairReader(pair, sources, target, self.rules)


def check_versions(past: PastReads, pair: PairPlan, keys: Sequence[LedgerKey], moment: CheckMoment) -> Checked:
    """Read the rows of some due keys of one pair as of several moments of the target, and judge each.

    Raises
    ------
    ReadError
        a side did not answer, after its retries: nothing of the batch counts.
    """
    result = Checked()
    for start in range(0, len(keys), rows_at_once(pair)):
        _check_some(past, pair, keys[start : start + rows_at_once(pair)], moment, result)
    return result


def _check_some(
    past: PastReads, pair: PairPlan, keys: Sequence[LedgerKey], moment: CheckMoment, result: Checked
) -> None:
    now = past.now()
    with closing(past.open(pair, now)) as reader:
        differing = _differing(reader, [entry.key for entry in keys])
        entries = {entry.key: entry for entry in keys}
        open_keys = {key: diff for key, diff in differing.items() if key in entries}
        moved = _look_back(past, pair, entries, open_keys, now, moment.final)
        proved = [entry for entry in keys if entry.key not in open_keys]
        for entry in proved:
            prove(reader, entry, result)
        result.present += _written_lately(past, pair, proved, moment, now)
        heads = {source: moment.head(source) for source in moment.sources} if open_keys else {}
        for key, diff in open_keys.items():
            # What moved begins anew, as a key that was not read yet.
            entry = replace(entries[key], state=KeyState.PENDING) if key in moved else entries[key]
            judge(reader, entry, diff, heads, moment, result)
        # A collation may find rows of other keys; those that differ are read again under their own key.
        result.found += [(keys[0].pair, key) for key in differing if key not in entries]


def _differing(reader: PairReader, keys: Sequence[KeyText]) -> dict[KeyText, RowDiff]:
    return {form_of(reader.key, diff.key): diff for diff in differing_rows(reader, keys)[0]}


def _look_back(
    past: PastReads, pair: PairPlan, entries: Mapping[KeyText, LedgerKey], open_keys: dict[KeyText, RowDiff], now: int,
    final: int,
) -> set[KeyText]:  # fmt: skip
    """Take out of ``open_keys`` what MySQL holds as the target held it meanwhile, and return the keys that moved.

    A version of before a round or the final pass found the row different proves nothing, and shows that it moved.
    """
    moved: set[KeyText] = set()
    for moment in (past.now(), *_moments(past, entries, open_keys, now)):
        some = [key for key in open_keys if _since(entries[key], now) <= moment]
        if not some:
            continue
        with closing(past.open(pair, moment)) as reader:
            versions = _differing(reader, some)
        for key in some:
            version = versions.get(key)
            if version is None and moment >= max(entries[key].found, final):
                del open_keys[key]
            elif version is None or _look(version) != _look(open_keys[key]):
                moved.add(key)
    return moved & open_keys.keys()


def _since(entry: LedgerKey, now: int) -> int:
    """Return the moment from which on versions are looked at: that of the read which found the row different."""
    is_read = entry.state is not KeyState.PENDING
    return max(entry.heads.values(), default=now) if is_read else now


def _moments(
    past: PastReads, entries: Mapping[KeyText, LedgerKey], open_keys: Mapping[KeyText, RowDiff], now: int
) -> Iterator[int]:
    """Yield moments between the earlier reads and this one: not evenly, against rows that change in step."""
    oldest = min((_since(entries[key], now) for key in open_keys), default=now)
    # Garbage collection keeps some minutes; the versions of interest are as old as the feed is slow.
    first = max(oldest, now - _tso(4 * past.settle))
    yield from spread(first, now, VERSIONS)


def spread(first: int, last: int, most: int) -> Iterator[int]:
    """Yield moments between two: one by chance in each equal part, whole milliseconds after the first."""
    span = (last - first) >> TSO_SHIFT
    steps = min(most, span)
    for number in range(steps):
        yield first + (int(span * (number + random.random()) / steps) << TSO_SHIFT)


def _written_lately(
    past: PastReads, pair: PairPlan, proved: Sequence[LedgerKey], moment: CheckMoment, now: int
) -> Iterator[LedgerKey]:
    """Yield proved keys that MySQL was seen to follow: the feed has carried what was written before them.

    MySQL's row has changed since it was found to differ, to one that the target did not hold the settle time ago, nor
    at moments before that: a row that changed back would be equal without a feed. The place of a key is the moment
    after which it was written.
    """
    if all(moment.proof[source] for source in moment.sources):
        return
    before = now - _tso(past.settle)
    followed = {
        entry.key: entry for entry in proved if entry.origin == SWEPT or entry.state is not KeyState.PENDING
    }  # fmt: skip
    for at in (before, *spread(before - _tso(4 * past.settle), before, VERSIONS)):
        if not followed:
            return
        with closing(past.open(pair, at)) as reader:
            older = _differing(reader, list(followed))
        followed = {
            key: entry for key, entry in followed.items()
            if key in older and older[key].source_checksum != entry.source_sum
        }  # fmt: skip
    yield from (replace(entry, ordinal=before) for entry in followed.values())


def _tso(seconds: float) -> int:
    return int(1000 * seconds) << TSO_SHIFT


def _look(diff: RowDiff) -> tuple[str | None, str | None]:
    return diff.source_checksum, diff.target_checksum
