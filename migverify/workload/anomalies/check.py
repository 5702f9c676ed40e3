"""From a history to named anomalies, each with its transactions and statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from migverify.workload.anomalies.graph import MOST_STEPS, find_cycles
from migverify.workload.anomalies.infer import DirtyRead, infer
from migverify.workload.anomalies.model import (
    Anomaly,
    AnomalyName,
    CheckedHistory,
    Cycle,
    Dependency,
    DependencyKind,
    HistoryTransaction,
    Phenomenon,
    TransactionHistory,
)

_VERBS = {
    DependencyKind.WW: "{after} overwrote what {before} had written to {key}",
    DependencyKind.WR: "{after} read what {before} had written to {key}",
    DependencyKind.RW: "{before} had read {key} before what {after} wrote to it",
}


def check_history(history: TransactionHistory, most_steps: int = MOST_STEPS) -> CheckedHistory:
    """Return the anomalies of a history, each once, the strictest phenomenon first."""
    inferred = infer(history)
    search = find_cycles(len(history.transactions), inferred.dependencies, most_steps)
    found: dict[object, Anomaly] = {}
    for anomaly in _anomalies(history.transactions, inferred.dirty, search.cycles):
        found.setdefault(anomaly.identity, anomaly)
    order = list(Phenomenon)
    anomalies = sorted(found.values(), key=lambda each: order.index(each.phenomenon))
    names = frozenset(transaction.name for transaction in history.transactions)
    return CheckedHistory(history.server, tuple(anomalies), inferred.usability, names, search.complete)


def _anomalies(
    transactions: Sequence[HistoryTransaction], dirty: Sequence[DirtyRead], cycles: Sequence[tuple[Phenomenon, Cycle]]
) -> Iterator[Anomaly]:
    for read in dirty:
        reader, writer = transactions[read.reader], transactions[read.writer]
        phenomenon, name, what = (
            (Phenomenon.G1A, AnomalyName.ABORTED_READ, "rolled back")
            if read.aborted else (Phenomenon.G1B, AnomalyName.INTERMEDIATE_READ, "overwrote before its commit")
        )  # fmt: skip
        step = f"{reader.name} read of {read.key} what {writer.name} {what}"
        yield _anomaly(phenomenon, name, (writer, reader), (read.key,), (step,))
    for phenomenon, cycle in cycles:
        members = [transactions[dependency.before] for dependency in cycle]
        steps = tuple(
            _VERBS[each.kind].format(
                before=transactions[each.before].name, after=transactions[each.after].name, key=each.key
            ) + f" ({each.kind})"
            for each in cycle
        )  # fmt: skip
        yield _anomaly(*_named(phenomenon, cycle), members, {each.key for each in cycle}, steps)


def _named(phenomenon: Phenomenon, cycle: Cycle) -> tuple[Phenomenon, AnomalyName]:
    if phenomenon is Phenomenon.G0:
        return phenomenon, AnomalyName.DIRTY_WRITE
    if phenomenon is Phenomenon.G1C:
        return phenomenon, AnomalyName.CIRCULAR
    if _is_lost_update(cycle):
        # both wrote what both had read: whichever committed first, the other one overwrote it unseen
        return Phenomenon.G_SINGLE, AnomalyName.LOST_UPDATE
    if any(each.absent for each in cycle):
        return phenomenon, AnomalyName.PHANTOM
    if phenomenon is Phenomenon.G_SINGLE:
        same = len({each.key for each in cycle}) == 1
        return phenomenon, AnomalyName.NON_REPEATABLE if same else AnomalyName.READ_SKEW
    antis = [each.kind is DependencyKind.RW for each in cycle]
    adjacent = any(first and second for first, second in zip(antis, [*antis[1:], antis[0]], strict=True))
    return phenomenon, AnomalyName.WRITE_SKEW if adjacent else AnomalyName.LONG_FORK


def _is_lost_update(cycle: Cycle) -> bool:
    """Tell whether a transaction overwrote an item without having seen the last update of it (P4)."""
    if len({each.key for each in cycle}) > 1:
        return False
    kinds = [each.kind for each in cycle]
    return kinds == [DependencyKind.RW] * 2 or (kinds[0] is DependencyKind.RW and _only_writes(cycle[1:]))


def _only_writes(dependencies: Sequence[Dependency]) -> bool:
    return all(each.kind is DependencyKind.WW for each in dependencies)


def _anomaly(
    phenomenon: Phenomenon, name: AnomalyName, members: Sequence[HistoryTransaction], keys: Sequence[str] | set[str],
    steps: tuple[str, ...],
) -> Anomaly:  # fmt: skip
    """Return an anomaly with the statements of its transactions on the items that it is about."""
    statements: dict[tuple[str, str], None] = {}
    for transaction in members:
        for operation in transaction.operations:
            if operation.key in keys and operation.statement:
                statements[transaction.name, operation.statement] = None
    return Anomaly(
        phenomenon, name, tuple(transaction.name for transaction in members),
        tuple(sorted({transaction.isolation for transaction in members})), steps, tuple(statements),
    )  # fmt: skip
