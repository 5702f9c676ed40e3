"""The values of an item that transactions add to: ``SET n = n + 1`` writes what the version before it leads to.

The writes of an item are put in the order in which their rows were locked: a transaction whose write was answered
before another one's commit was sent, came before it. Where no time proves the order, each write gets every value that
some order would give it. A value that may belong to two versions names neither.

The value from before the history is the one that every read agrees with: a read sees a version that was the item's at
some moment between the begin of its transaction and its answer. Where a value does not follow from the writes, they
were not carried out one after another, and nothing is concluded.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from migverify.workload.anomalies.model import Commitment, HistoryTransaction

UNEXPLAINED = "its value does not follow from the writes"
UNPLACED = "several versions may have this value"
UNSURE = "an increment of unknown outcome may be in it"
NO_START = "the value from before its increments is not known"

_NUMBER = re.compile(r"-?\d+\Z")
_MOST_VALUES = 256
"""Values that one write may have, before it is given up."""
_MOST_MIXED = 5
"""Writes whose order is not known, one of which is not an increment, that are tried in every order."""
_FOREVER = 1 << 62
_START_NUMBER = -1


class ChainWrite(NamedTuple):
    """A write of the item: ``value`` where it is known, or what it added, or both. ``number`` is the caller's."""

    number: int
    transaction: int
    begin: int
    end: int
    value: str | None
    known: bool
    delta: int | None
    final: bool


class ChainRead(NamedTuple):
    """A read of the item with a known value."""

    transaction: int
    value: str | None
    end: int


Plain: TypeAlias = int | str | None


class PossibleValue(NamedTuple):
    """A value that a version may have: from the value before the history, ``number`` is added to it, or a value."""

    from_start: bool
    plain: Plain


Possible: TypeAlias = frozenset[PossibleValue]
_START: Possible = frozenset({PossibleValue(True, 0)})


def as_plain(value: str | None) -> Plain:
    """Return a value as a number where it is one."""
    return int(value) if value is not None and _NUMBER.match(value) else value


class NotCertainError(Exception):
    """The values of an item are not certain: too many are possible, or none is."""


@dataclass(slots=True)
class _TransactionWrites:
    """The writes of one transaction, in their order."""

    transaction: HistoryTransaction
    writes: list[ChainWrite] = field(default_factory=list)

    @property
    def locked(self) -> int:
        """When its first write was answered: it holds the row's lock since then at the latest."""
        return self.writes[0].end

    @property
    def added(self) -> int | None:
        """What all of them add together, None where one of them sets a value."""
        if any(write.known for write in self.writes):
            return None
        return sum(write.delta or 0 for write in self.writes)

    def apply(self, before: Possible, values: dict[int, Possible]) -> Possible:
        """Return what is possible behind the writes; add what each of them may have written to ``values``."""
        for write in self.writes:
            before = _written(write, before)
            values[write.number] = _few(values.get(write.number, frozenset()) | before)
        return before


def _written(write: ChainWrite, before: Possible) -> Possible:
    if write.known:
        return frozenset({PossibleValue(False, as_plain(write.value))})
    return _shifted(before, (write.delta or 0,))


def _shifted(before: Possible, deltas: Iterable[int]) -> Possible:
    """Return what is possible where one of these numbers was added."""
    after = set()
    for delta in deltas:
        for from_start, plain in before:
            if isinstance(plain, int):
                after.add(PossibleValue(from_start, plain + delta))
            elif plain is not None:  # NULL + 1 is NULL; a row that is not there is not written
                after.add(PossibleValue(from_start, plain))
    return _few(frozenset(after))


def _few(possible: Possible) -> Possible:
    if not 0 < len(possible) <= _MOST_VALUES:
        raise NotCertainError
    return possible


def _sums(deltas: Counter[int]) -> set[int]:
    """Return what any number of these increments may add together."""
    sums = {0}
    for delta, count in deltas.items():
        if len(sums) * (count + 1) > _MOST_VALUES * _MOST_VALUES:
            raise NotCertainError
        sums = {total + delta * times for total in sums for times in range(count + 1)}
    return sums


def _clusters(groups: Sequence[_TransactionWrites]) -> Iterator[Sequence[_TransactionWrites]]:
    """Cut transactions, in the order of their commits, where all before surely locked the row before all behind."""
    latest = list(accumulate((group.locked for group in groups), max))
    earliest = list(accumulate((group.locked for group in reversed(groups)), min))[::-1]
    begin = 0
    for at in range(1, len(groups)):
        commit, following = groups[at - 1].transaction.commit, groups[at].transaction.commit
        if latest[at - 1] < following and earliest[at] >= commit:
            yield groups[begin:at]
            begin = at
    if groups:
        yield groups[begin:]


class _Periods:
    """When versions can have been the current one, and which values they may have. Begins and ends do not go back."""

    def __init__(self) -> None:
        self._possible: list[Possible] = []
        self._since: list[int] = []
        self._until: list[int] = []

    def add(self, since: int, until: int, possible: Possible) -> None:
        """Add a period behind those before."""
        self._since.append(since)
        self._until.append(max(until, self._until[-1]) if self._until else until)
        self._possible.append(possible)

    def close(self) -> None:
        """Make begins ordered, earlier rather than later."""
        self._since = list(accumulate(reversed(self._since), min))[::-1]

    def between(self, begin: int, end: int) -> Possible | None:
        """Return the values of versions that can have been current at some time, None where they are too many."""
        first, last = bisect_left(self._until, begin), bisect_right(self._since, end)
        if last - first > _MOST_VALUES:
            return None
        return frozenset().union(*self._possible[first:last])


class IncrementChain:
    """Tells which write made a value of one item.

    Parameters
    ----------
    initial
        Values from before the history that are certain by other means.
    transactions
        All of the history; writes and reads name theirs by number.

    Raises NotCertainError: the writes allow too many values.
    """

    def __init__(
        self, writes: Sequence[ChainWrite], reads: Sequence[ChainRead], initial: Iterable[str | None],
        transactions: Sequence[HistoryTransaction],
    ) -> None:  # fmt: skip
        self._writes = {write.number: write for write in writes}
        self._transactions = transactions
        groups: dict[int, _TransactionWrites] = {}
        for write in writes:
            groups.setdefault(write.transaction, _TransactionWrites(transactions[write.transaction])).writes.append(
                write
            )
        by_outcome: dict[Commitment, list[_TransactionWrites]] = {outcome: [] for outcome in Commitment}
        for group in groups.values():
            by_outcome[group.transaction.outcome].append(group)
        self._unsure = min((group.writes[0].begin for group in by_outcome[Commitment.UNKNOWN]), default=_FOREVER)
        self._starts: set[Plain] | None = None  # what the value from before the history may be, None: anything
        self._values: dict[int, Possible] = {}
        self._until: dict[int, int] = {}  # by write, when its version surely was overwritten
        self._periods = _Periods()
        self._follow(by_outcome[Commitment.COMMITTED])
        for group in by_outcome[Commitment.ABORTED]:
            before = self._periods.between(group.writes[0].begin, group.writes[-1].end)
            if before is None:
                raise NotCertainError
            group.apply(before, self._values)
        for value in initial:
            self._narrow({as_plain(value)})
        self._narrow_by_reads(reads)
        self._by_value: dict[Plain, list[ChainWrite]] = {}
        self._index()

    def resolve(self, read: ChainRead) -> int | str | None:
        """Return the number of the write that made what was read, None for the value before all, or a reason."""
        if read.end >= self._unsure:
            return UNSURE
        if self._starts is None or len(self._starts) > 1:
            return NO_START
        if not self._starts:
            return UNEXPLAINED
        value, begin = as_plain(read.value), self._transactions[read.transaction].begin
        writers = self._writers(value, read)
        is_start = value in self._starts
        if len(writers) + is_start != 1:
            return UNPLACED if writers else UNEXPLAINED
        number = writers[0].number if writers else _START_NUMBER
        if self._until.get(number, _FOREVER) < begin:
            return UNEXPLAINED  # it was overwritten before the transaction began
        return number if writers else None

    def _writers(self, value: Plain, read: ChainRead) -> list[ChainWrite]:
        """Return the first writes, two at most, that can have made a value: sent before the read was answered."""
        writers: list[ChainWrite] = []
        for write in self._by_value.get(value, ()):
            if write.begin > read.end or len(writers) > 1:
                break
            if write.transaction != read.transaction:
                writers.append(write)
        return writers

    def _follow(self, groups: Sequence[_TransactionWrites]) -> None:
        """Find what each committed write may have written, and when versions were current."""
        before, since = _START, -_FOREVER
        current = [_START_NUMBER]
        for cluster in _clusters(sorted(groups, key=lambda each: (each.transaction.commit, each.locked))):
            until = max(group.transaction.end for group in cluster)
            self._until.update(dict.fromkeys(current, until))
            self._periods.add(since, until, before)
            after = self._behind(cluster, before)
            since = min(group.writes[0].begin for group in cluster)
            current = [write.number for group in cluster for write in group.writes if write.final]
            if len(cluster) > 1:
                self._periods.add(since, until, frozenset().union(*(self._values[number] for number in current)))
            before = after
        self._periods.add(since, _FOREVER, before)
        self._periods.close()

    def _behind(self, cluster: Sequence[_TransactionWrites], before: Possible) -> Possible:
        """Return what is possible behind transactions whose order is not known."""
        if len(cluster) == 1:
            self._narrow_by_writes(cluster[0], before)
            return cluster[0].apply(before, self._values)
        added = Counter(group.added for group in cluster if group.added is not None)
        if added.total() < len(cluster):
            return self._in_any_order(cluster, before)
        for delta in added:
            others = _shifted(before, _sums(added - Counter({delta: 1})))
            for group in cluster:
                if group.added == delta:
                    group.apply(others, self._values)
        return _shifted(before, (sum(delta * count for delta, count in added.items()),))

    def _in_any_order(self, cluster: Sequence[_TransactionWrites], before: Possible) -> Possible:
        if len(cluster) > _MOST_MIXED:
            raise NotCertainError
        behind: dict[int, Possible] = {0: before}  # by the set of those that were carried out, as bits
        for done in range(1 << len(cluster)):
            for at, group in enumerate(cluster):
                if not done >> at & 1:
                    after = group.apply(behind[done], self._values)
                    both = done | 1 << at
                    behind[both] = _few(behind.get(both, frozenset()) | after)
        return behind[(1 << len(cluster)) - 1]

    def _narrow(self, starts: set[Plain]) -> None:
        self._starts = starts if self._starts is None else self._starts & starts

    def _narrow_to(self, value: Plain, possible: Possible) -> None:
        """Use that a value is one of those that were possible."""
        if PossibleValue(False, value) in possible:
            return
        if isinstance(value, int):
            self._narrow({value - plain for from_start, plain in possible if from_start and isinstance(plain, int)})
        else:
            self._narrow({value} if PossibleValue(True, 0) in possible else set())

    def _narrow_by_writes(self, group: _TransactionWrites, before: Possible) -> None:
        """Use what a transaction read back of its own increments."""
        for write in group.writes:
            value = as_plain(write.value)
            if write.known and write.delta is not None and isinstance(value, int) and group.locked < self._unsure:
                self._narrow_to(value - write.delta, before)
            before = _written(write, before)

    def _narrow_by_reads(self, reads: Sequence[ChainRead]) -> None:
        passing = sorted(
            (write.begin, self._transactions[write.transaction].end)
            for write in self._writes.values()
            if not write.final or self._transactions[write.transaction].outcome is not Commitment.COMMITTED
        )
        begins = [begin for begin, _ in passing]
        ends = list(accumulate((end for _, end in passing), max))
        for read in reads:
            begin = self._transactions[read.transaction].begin
            earlier = bisect_right(begins, read.end)
            if read.end >= self._unsure or (earlier and ends[earlier - 1] >= begin):
                continue  # it may have seen what was no version
            possible = self._periods.between(begin, read.end)
            if possible is not None:
                self._narrow_to(as_plain(read.value), possible)

    def _index(self) -> None:
        """Sort the writes by the values that they may have written."""
        if self._starts is None or len(self._starts) != 1:
            return
        (start,) = self._starts
        for number, possible in sorted(self._values.items(), key=lambda each: self._writes[each[0]].begin):
            values = set()
            for from_start, plain in possible:
                if not from_start:
                    values.add(plain)
                elif isinstance(start, int) and isinstance(plain, int):
                    values.add(start + plain)
                elif start is not None:
                    values.add(start)  # NULL + 1 is NULL
            for value in values:
                self._by_value.setdefault(value, []).append(self._writes[number])
