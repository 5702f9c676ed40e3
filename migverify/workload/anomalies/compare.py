"""Both sides' anomalies: what the target permitted and the source did not is a finding."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from migverify.model import Verdict
from migverify.workload.anomalies.chain import UNEXPLAINED
from migverify.workload.anomalies.levels import documented
from migverify.workload.anomalies.model import Anomaly, CheckedHistory, Phenomenon

LEAST_USABLE = 0.8
"""Share of reads of each history that must be usable, for it to say that there is no anomaly."""


class PermittedBy(StrEnum):
    """Which side permitted an anomaly."""

    TARGET = "target only"
    UNSURE = "target; not known of the source"
    BOTH = "both"
    SOURCE = "source only"


@dataclass(frozen=True, slots=True)
class JudgedAnomaly:
    """An anomaly, who permitted it, and what is documented of it for that server and level."""

    permitted: PermittedBy
    anomaly: Anomaly
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"permitted_by": self.permitted.value, "note": self.note} | self.anomaly.as_json()


@dataclass(frozen=True, slots=True)
class AnomalyComparison:
    """What two histories of the same transactions say about the two servers."""

    verdict: Verdict
    reasons: tuple[str, ...]
    anomalies: tuple[JudgedAnomaly, ...]
    source: CheckedHistory
    target: CheckedHistory

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "verdict": self.verdict.value, "exit_code": int(self.verdict.exit_code), "reasons": list(self.reasons),
            "anomalies": [each.as_json() for each in self.anomalies],
            "source": {"server": self.source.server, **self.source.usability.as_json()},
            "target": {"server": self.target.server, **self.target.usability.as_json()},
        }  # fmt: skip


def compare_histories(
    source: CheckedHistory, target: CheckedHistory, least_usable: float = LEAST_USABLE
) -> AnomalyComparison:
    """Compare what both servers permitted.

    An anomaly of the target is one of the source too where the source permitted the same phenomenon among two or more
    of the same transactions: which of several cycles is the shortest may differ.
    """
    on_source, on_target = _by_transaction(source.anomalies), _by_transaction(target.anomalies)
    judged = [
        JudgedAnomaly(
            PermittedBy.BOTH if _is_among(each, on_source) else _alone(each, source), each, documented(target, each)
        )
        for each in target.anomalies
    ]  # fmt: skip
    judged += [
        JudgedAnomaly(PermittedBy.SOURCE, each, documented(source, each))
        for each in source.anomalies if not _is_among(each, on_target)
    ]  # fmt: skip
    order = list(PermittedBy)
    judged.sort(key=lambda each: order.index(each.permitted))
    reasons = [f"{_counted(judged, PermittedBy.TARGET)} on the target that the source did not permit"]
    if any(each.permitted is PermittedBy.TARGET for each in judged):
        return AnomalyComparison(Verdict.MISMATCH, tuple(reasons), tuple(judged), source, target)
    reasons = list(_doubts(judged, source, target, least_usable))
    verdict = Verdict.INCONCLUSIVE if reasons else Verdict.MATCH
    return AnomalyComparison(verdict, tuple(reasons), tuple(judged), source, target)


def _by_transaction(anomalies: Iterable[Anomaly]) -> dict[tuple[Phenomenon, str], set[int]]:
    """Return the numbers of the anomalies that a transaction is in, by phenomenon and transaction."""
    numbers: dict[tuple[Phenomenon, str], set[int]] = {}
    for number, anomaly in enumerate(anomalies):
        for name in anomaly.transactions:
            numbers.setdefault((anomaly.phenomenon, name), set()).add(number)
    return numbers


def _is_among(anomaly: Anomaly, others: Mapping[tuple[Phenomenon, str], set[int]]) -> bool:
    shared: Counter[int] = Counter()
    for name in set(anomaly.transactions):
        shared.update(others.get((anomaly.phenomenon, name), ()))
    return any(number > 1 for number in shared.values())


def _alone(anomaly: Anomaly, source: CheckedHistory) -> PermittedBy:
    """Say whether it is certain that the source did not permit what the target did."""
    names = set(anomaly.transactions)
    known = source.complete and names <= source.names and not names & source.usability.doubtful
    return PermittedBy.TARGET if known else PermittedBy.UNSURE


def _counted(judged: Iterable[JudgedAnomaly], permitted: PermittedBy) -> str:
    number = sum(each.permitted is permitted for each in judged)
    return f"{number:,} {'anomaly' if number == 1 else 'anomalies'}"


def _doubts(judged: list[JudgedAnomaly], source: CheckedHistory, target: CheckedHistory, least: float) -> Iterable[str]:
    if any(each.permitted is PermittedBy.UNSURE for each in judged):
        yield f"{_counted(judged, PermittedBy.UNSURE)} on the target; it is not known whether the source permits it"
    for side, history in (("source", source), ("target", target)):
        usability = history.usability
        if not usability.reads:
            yield f"{side}: no committed transaction read an item that is known"
        elif usability.share < least:
            yield (f"{side}: {usability.usable:,} of {usability.reads:,} reads ({usability.share:.0%}) could be used,"
                   f" {least:.0%} are needed")  # fmt: skip
        unexplained = usability.ambiguous.get(UNEXPLAINED, 0)
        if unexplained:
            yield (f"{side}: {unexplained:,} {'read' if unexplained == 1 else 'reads'} returned a value that does not"
                   " follow from the writes: an increment may be lost")  # fmt: skip
        if not history.complete:
            yield f"{side}: the search for cycles was cut off, the history has too many"
    apart = len(source.names ^ target.names)
    if apart:
        yield f"{apart:,} {'transaction is' if apart == 1 else 'transactions are'} in one of the histories only"
