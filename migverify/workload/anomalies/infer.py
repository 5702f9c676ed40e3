"""From values to versions, and from versions to dependencies; what is not certain makes none, and is counted.

A read's value names its version when one write alone can have made it: every other write of the item had another
value or was sent after the read was answered, and the value from before the history is known to be another one. All
writes must be in the history, those of unknown value too.

The order of an item's versions is the order of commits: InnoDB and TiDB keep a row's lock until then. One commit comes
before another where it was answered before the other was sent; where both overlap, a transaction that read the one
version and wrote the other has the order, otherwise nothing has.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from migverify.workload.anomalies.chain import ChainRead, ChainWrite, IncrementChain, NotCertainError
from migverify.workload.anomalies.model import (
    AmbiguityCause,
    Commitment,
    Dependency,
    DependencyKind,
    HistoryTransaction,
    OperationKind,
    TransactionHistory,
    Usability,
)
from migverify.workload.anomalies.version_order import BEFORE_ALL, VersionOrder
from migverify.workload.meaning import Meanings

_ABSENT = 4

OPAQUE = "a write of unknown value may have made it"
REPEATED = "several writes have this value"
UNSEEN_INITIAL = "the value from before the history is not known"
SAME_AS_INITIAL = "it is also the value from before the history"
FOREIGN = "the item has values that no write of the history made"
UNKNOWN_OUTCOME = "it is not known whether its writer committed"
UNRECORDED = "the value that was read is not recorded"


class _Write(NamedTuple):
    begin: int
    transaction: int
    value: str | None
    known: bool
    final: bool
    version: int | None
    end: int
    statement: str = ""
    delta: int | None = None

    @property
    def is_opaque(self) -> bool:
        """Whether nothing is known of what it wrote."""
        return not self.known and self.delta is None


class _Opaque(NamedTuple):
    """A write of unknown value: of one item, or of any item of ``table``."""

    begin: int
    transaction: int
    table: str
    statement: str


class _Read(NamedTuple):
    transaction: int
    value: str | None
    known: bool
    end: int
    version: int | None


class DirtyRead(NamedTuple):
    """A committed transaction read what its writer rolled back, or overwrote later."""

    reader: int
    writer: int
    key: str
    aborted: bool


class DependencyArrays:
    """All dependencies, as columns: a million take 13 MB."""

    def __init__(self) -> None:
        self.before, self.after, self.key = array("i"), array("i"), array("i")
        self.kind = bytearray()
        self.keys: list[str] = []

    def add(self, before: int, after: int, kind: DependencyKind, key: int, *, absent: bool = False) -> None:
        """Add one; a transaction does not depend on itself."""
        if before != after:
            self.before.append(before)
            self.after.append(after)
            self.kind.append(kind | _ABSENT if absent else kind)
            self.key.append(key)

    def __len__(self) -> int:
        return len(self.kind)

    def kind_of(self, number: int) -> int:
        """Return the kind of a dependency, as a number."""
        return self.kind[number] & ~_ABSENT

    def __getitem__(self, number: int) -> Dependency:
        return Dependency(
            self.before[number], self.after[number], DependencyKind(self.kind_of(number)), self.keys[self.key[number]],
            bool(self.kind[number] & _ABSENT),
        )  # fmt: skip


@dataclass(slots=True)
class Inferred:
    """What a history says for certain."""

    dependencies: DependencyArrays = field(default_factory=DependencyArrays)
    dirty: list[DirtyRead] = field(default_factory=list)
    usability: Usability = field(default_factory=Usability)


def infer(history: TransactionHistory) -> Inferred:
    """Return the dependencies of a history, the dirty reads, and how much of it could be used."""
    return _Inference(history).run()


class _Inference:
    def __init__(self, history: TransactionHistory) -> None:
        self._history = history
        self._transactions = history.transactions
        self._writes: dict[str, list[_Write]] = {}
        self._reads: dict[str, list[_Read]] = {}
        self._wild: dict[str, list[_Opaque]] = {}  # writes of any item, by table
        self._found = Inferred()
        self._ambiguous: Counter[str] = Counter()
        self._causes: Counter[tuple[str, str]] = Counter()
        self._doubtful: set[int] = set()
        self._usable = self._unordered = 0

    def run(self) -> Inferred:
        reads = writes = opaque = 0
        for number, transaction in enumerate(self._transactions):
            counted = self._collect(number, transaction)
            reads, writes, opaque = reads + counted[0], writes + counted[1], opaque + counted[2]
        for begins in self._wild.values():
            begins.sort()
        for key in sorted(self._writes.keys() | self._reads.keys()):
            self._item(key)
        outcomes = Counter(one.outcome for one in self._transactions)
        names = [one.name for one in self._transactions]
        doubtful = {names[number] for number in self._doubtful}
        doubtful |= {one.name for one in self._transactions if one.outcome is Commitment.UNKNOWN}
        self._found.usability = Usability(
            len(names), outcomes[Commitment.COMMITTED], outcomes[Commitment.ABORTED], outcomes[Commitment.UNKNOWN],
            reads, self._usable, writes, opaque, self._unordered, len(self._found.dependencies),
            dict(self._ambiguous.most_common()), frozenset(doubtful), _by_digest(self._causes),
        )  # fmt: skip
        return self._found

    def _collect(self, number: int, transaction: HistoryTransaction) -> tuple[int, int, int]:
        """Sort a transaction's operations by item; return how many reads, writes and opaque writes it has."""
        own: dict[str, int] = {}  # items it wrote, and where its last write of each is
        reads = writes = opaque = 0
        own_wild: list[str] = []
        committed = transaction.outcome is Commitment.COMMITTED
        for op in transaction.operations:
            if op.kind is OperationKind.WRITE:
                writes += 1
                opaque += not op.known and op.delta is None
                if op.key.endswith("*"):
                    table = op.key.partition("/")[0]
                    self._wild.setdefault(table, []).append(_Opaque(op.begin, number, table, op.statement))
                    own_wild.append(table)
                    continue
                listed = self._writes.setdefault(op.key, [])
                if op.key in own:
                    listed[own[op.key]] = listed[own[op.key]]._replace(final=False)
                own[op.key] = len(listed)
                listed.append(
                    _Write(op.begin, number, op.value, op.known, True, op.version, op.end, op.statement, op.delta)
                )
            elif op.key in own:
                write = self._writes[op.key][own[op.key]]
                if not write.known and op.known:  # it reads what it wrote itself: that was the value
                    self._writes[op.key][own[op.key]] = write._replace(value=op.value, known=True)
            elif not (own_wild and _covered(op.key, own_wild)):
                reads += committed
                self._reads.setdefault(op.key, []).append(_Read(number, op.value, op.known, op.end, op.version))
        return reads, writes, opaque

    def _item(self, key: str) -> None:
        """Add what one item proves."""
        writes, reads = self._writes.get(key, []), self._reads.get(key, [])
        wild = [*self._wild.get(key.partition("/")[0], ()), *self._wild.get("*", ())]
        if not writes and not wild and len({read.value for read in reads}) == 1 and all(read.known for read in reads):
            self._usable += sum(self._committed(read.transaction) for read in reads)  # never written: no dependency
            return
        counted = not wild and _are_counted(writes) and _are_counted(reads)
        item = _Counted(writes) if counted else _ByValue(writes, wild, reads, self._history, key)
        numbers = {id(write): at for at, write in enumerate(writes)}
        resolved: list[tuple[_Read, int]] = []
        for read in reads:
            version = item.resolve(read)
            if not self._committed(read.transaction):
                continue
            if not isinstance(version, str) and version is not None:
                writer = self._transactions[version.transaction]
                if writer.outcome is Commitment.UNKNOWN:
                    version = UNKNOWN_OUTCOME
                elif writer.outcome is Commitment.ABORTED or not version.final:
                    self._usable += 1
                    aborted = writer.outcome is Commitment.ABORTED
                    self._found.dirty.append(DirtyRead(read.transaction, version.transaction, key, aborted))
                    continue
            if isinstance(version, str):
                self._ambiguous[version] += 1
                if version == OPAQUE and isinstance(item, _ByValue):
                    self._causes[item.cause(read)] += 1
                self._doubtful.add(read.transaction)
                continue
            self._usable += 1
            resolved.append((read, BEFORE_ALL if version is None else numbers[id(version)]))
        if writes:
            self._depend(key, writes, resolved, counted=counted)

    def _committed(self, number: int) -> bool:
        return self._transactions[number].outcome is Commitment.COMMITTED

    def _depend(self, key: str, writes: Sequence[_Write], reads: Sequence[tuple[_Read, int]], *, counted: bool) -> None:
        found, number = self._found.dependencies, len(self._found.dependencies.keys)
        found.keys.append(key)
        versions = [at for at, write in enumerate(writes) if write.final and self._committed(write.transaction)]
        order = VersionOrder(
            {at: self._span(writes[at], counted=counted) for at in versions},
            _read_then_written(versions, writes, reads),
        )
        self._unordered += order.unordered
        for at in versions:
            for successor in order.after(at):
                found.add(writes[at].transaction, writes[successor].transaction, DependencyKind.WW, number)
        for read, at in reads:
            if at != BEFORE_ALL:
                found.add(writes[at].transaction, read.transaction, DependencyKind.WR, number)
            for successor in order.after(at):
                found.add(read.transaction, writes[successor].transaction, DependencyKind.RW, number,
                          absent=read.value is None)  # fmt: skip

    def _span(self, write: _Write, *, counted: bool) -> tuple[int, int]:
        """Return between which times a version became the item's: of its commit, or of its count."""
        if counted and write.version is not None:
            return write.version * 2, write.version * 2
        transaction = self._transactions[write.transaction]
        return transaction.commit, transaction.end


def _by_digest(causes: Mapping[tuple[str, str], int]) -> tuple[AmbiguityCause, ...]:
    """Return the statements that make reads ambiguous, those of most reads first; literals do not count."""
    meanings = Meanings()
    counts: Counter[tuple[str, str]] = Counter()
    for (table, statement), reads in causes.items():
        counts[table, meanings.meaning(statement.encode("utf-8", "surrogateescape")).text if statement else ""] += reads
    order = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(AmbiguityCause(table, statement, reads) for (table, statement), reads in order)


def _are_counted(operations: Sequence[_Write] | Sequence[_Read]) -> bool:
    return all(operation.version is not None for operation in operations)


def _covered(key: str, tables: Iterable[str]) -> bool:
    return any(table == "*" or key.startswith(f"{table}/") for table in tables)


def _read_then_written(
    versions: Sequence[int], writes: Sequence[_Write], reads: Sequence[tuple[_Read, int]]
) -> dict[int, set[int]]:
    """Return for a version those that transactions wrote which had read it."""
    written = {writes[at].transaction: at for at in versions}
    made: dict[int, set[int]] = {}
    for read, at in reads:
        if read.transaction in written:
            made.setdefault(at, set()).add(written[read.transaction])
    return made


class _Counted:
    """An item whose versions the application counts."""

    def __init__(self, writes: Sequence[_Write]) -> None:
        self._by_version: dict[int | None, list[_Write]] = {}
        for write in writes:
            self._by_version.setdefault(write.version, []).append(write)

    def resolve(self, read: _Read) -> _Write | str | None:
        """Return the write that made what was read, None for the version before all, a reason for not known."""
        if read.version == 0:
            return None
        writes = self._by_version.get(read.version, [])
        if len(writes) != 1:
            return REPEATED if writes else FOREIGN
        return writes[0]


class _ByValue:
    """An item whose versions only their values tell apart."""

    def __init__(
        self, writes: Sequence[_Write], wild: Sequence[_Opaque], reads: Sequence[_Read], history: TransactionHistory,
        key: str,
    ) -> None:  # fmt: skip
        self._by_value: dict[str | None, list[_Write]] = {}
        self._listed, initial = writes, history.initial
        opaque = list(wild)
        for write in writes:
            if write.known:
                self._by_value.setdefault(write.value, []).append(write)
            else:
                opaque.append(_Opaque(write.begin, write.transaction, key.partition("/")[0], write.statement))
        self._opaque = sorted(opaque)
        for listed in self._by_value.values():
            listed.sort(key=lambda write: write.begin)
        self._initial: set[str | None] = {initial[key]} if key in initial else set()
        self._initial |= {
            read.value for read in reads if read.known and not self._maybe_opaque(read) and not self._writers(read)
        }
        self._chain: IncrementChain | None = None
        if not wild and len(opaque) > 0 and not any(write.is_opaque for write in writes):
            self._chain = _chain(writes, reads, self._initial, history.transactions)

    def _maybe_opaque(self, read: _Read) -> _Opaque | None:
        """Return the first write of unknown value that may have made what was read."""
        for write in self._opaque:
            if write.begin > read.end:
                return None
            if write.transaction != read.transaction:
                return write
        return None

    def cause(self, read: _Read) -> tuple[str, str]:
        """Return table and statement of the write that makes a read ambiguous."""
        write = self._maybe_opaque(read)
        return ("", "") if write is None else (write.table, write.statement)

    def _writers(self, read: _Read) -> list[_Write]:
        """Return the first writes, two at most, that can have made the value: sent before the read was answered."""
        writers: list[_Write] = []
        for write in self._by_value.get(read.value, ()):
            if write.begin > read.end or len(writers) == 2:
                break
            if write.transaction != read.transaction:
                writers.append(write)
        return writers

    def resolve(self, read: _Read) -> _Write | str | None:
        """Return the write that made what was read, None for the version before all, a reason for not known."""
        if not read.known:
            return UNRECORDED
        if self._maybe_opaque(read):
            return OPAQUE if self._chain is None else self._of_chain(self._chain, read)
        if len(self._initial) > 1:
            return FOREIGN
        writers = self._writers(read)
        if not writers:
            return None
        if len(writers) > 1:
            return REPEATED
        if not self._initial:
            return UNSEEN_INITIAL
        return SAME_AS_INITIAL if read.value in self._initial else writers[0]

    def _of_chain(self, chain: IncrementChain, read: _Read) -> _Write | str | None:
        version = chain.resolve(ChainRead(read.transaction, read.value, read.end))
        return self._listed[version] if isinstance(version, int) else version


def _chain(
    writes: Sequence[_Write], reads: Sequence[_Read], initial: Iterable[str | None],
    transactions: Sequence[HistoryTransaction],
) -> IncrementChain | None:  # fmt: skip
    """Return the chain of an item's increments, None where they allow too many values."""
    links = [
        ChainWrite(at, write.transaction, write.begin, write.end, write.value, write.known, write.delta, write.final)
        for at, write in enumerate(writes)
    ]
    known = [ChainRead(read.transaction, read.value, read.end) for read in reads if read.known]
    try:
        return IncrementChain(links, known, initial, transactions)
    except NotCertainError:
        return None
