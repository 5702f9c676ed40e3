"""From a replay's run file to the history of each side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from migverify.errors import UsageError
from migverify.model import Side
from migverify.workload.anomalies.history import write_lines
from migverify.workload.anomalies.model import Commitment, HistoryOperation, HistoryTransaction, OperationKind
from migverify.workload.anomalies.statements import HistoryReading, operations
from migverify.workload.classify import StatementKind
from migverify.workload.replay.outcomes import SeenAnswer, seen_answers
from migverify.workload.replay.runfile import COMMITS, WRITES, PlannedCall, RunFile
from migverify.workload.replay.touches import Keys
from migverify.workload.replay.value_codes import HASHED, ValueCodes
from migverify.workload.state import DEADLOCK

_ROLLED_BACK = frozenset({DEADLOCK, 8002, 8022, 8028, 8147, 9007})
"""Errors after which a server has rolled the whole transaction back (the catalogue's conflicts)."""
_INTENDED = 2  # see ``RunFile.known``
_OF_ROWS = frozenset({StatementKind.READ, StatementKind.WRITE})
_Seen = tuple[PlannedCall, SeenAnswer | None]


def write_histories(
    run: RunFile, keys: Keys, servers: Mapping[Side, str], identities: Mapping[str, str] | None = None, *, mask: bool,
    codes: ValueCodes = HASHED, increments: Mapping[Side, int] | None = None,
) -> dict[Side, Path]:  # fmt: skip
    """Write the history of each side into the run's folder; return the files.

    ``identities`` say by side which server it was, ``increments`` its auto_increment_increment, where they are known.
    ``codes`` are those that the run recorded values by.

    Raises UsageError: nothing was recorded, or not in one go.
    """
    if run.fact("attempts") > 1:
        raise UsageError(
            "the run was resumed: the times of its transactions are not of one clock.",
            hint="Replay anew for histories.",
        )
    files = {}
    for side, server in servers.items():
        reading = HistoryReading(mask, codes, (increments or {}).get(side, 0))
        files[side] = run.folder / f"history-{side.value}.jsonl"
        with files[side].open("w", encoding="utf-8") as lines:
            write_lines(
                lines, _transactions(run, keys, side, reading), server, run=run.folder.name, side=side.value,
                identity=(identities or {}).get(side.value, ""),
            )  # fmt: skip
    return files


def _transactions(run: RunFile, keys: Keys, side: Side, reading: HistoryReading) -> Iterator[HistoryTransaction]:
    seen = seen_answers(run, side)
    following = next(seen, None)

    def with_answers() -> Iterator[_Seen]:
        nonlocal following
        for planned in run.calls():
            while following is not None and following[0] < planned.index:
                following = next(seen, None)
            yield planned, following[1] if following is not None and following[0] == planned.index else None

    known = run.known()
    for _, calls in groupby(with_answers(), key=lambda each: (each[0].session, each[0].unit)):
        transaction = _Unit(list(calls), keys, known, reading).transaction()
        if transaction is not None:
            yield transaction


class _Unit:
    """The calls of one transaction, or a statement of its own, with one side's answers."""

    def __init__(self, calls: Sequence[_Seen], keys: Keys, known: Sequence[int], reading: HistoryReading) -> None:
        self._calls, self._keys, self._known, self._reading = calls, keys, known, reading
        self._operations: list[HistoryOperation] = []
        self._outcome: Commitment | None = None
        self._rolled_back = False
        self._uncertain = False

    def transaction(self) -> HistoryTransaction | None:
        """Return what happened, None where no rows were requested."""
        answered = [seen for _, seen in self._calls if seen is not None]
        begin = clock = min((seen.begun for seen in answered), default=0)
        for planned, seen in self._calls:
            self._take(planned, seen, clock)
            clock = seen.ended if seen is not None else clock
        asks_rows = any(planned.meaning.classification.kind in _OF_ROWS for planned, seen in self._calls if seen)
        if not asks_rows and not self._operations:
            return None
        commit, end = (answered[-1].begun, answered[-1].ended) if answered else (clock, clock)
        first = self._calls[0][0].call
        level = (first.state.isolation or "").upper().replace("-", " ")
        level = "" if "next_transaction" in first.state.parts else level
        return HistoryTransaction(
            f"{first.session}/{first.position}", first.session, level, self._ended(), begin, commit, end,
            tuple(self._operations),
        )  # fmt: skip

    def _ended(self) -> Commitment:
        planned, seen = self._calls[0]
        state = planned.call.state
        if self._uncertain:
            return Commitment.UNKNOWN
        if self._outcome is not None:
            return self._outcome
        if self._rolled_back:
            return Commitment.ABORTED
        if len(self._calls) == 1 and seen is not None and not state.transaction and state.autocommit is not False:
            return Commitment.ABORTED if seen.errno else Commitment.COMMITTED
        return Commitment.UNKNOWN

    def _take(self, planned: PlannedCall, seen: SeenAnswer | None, clock: int) -> None:
        words = planned.meaning.classification.words
        word = words[0] if words else ""
        if seen is None or seen.lost:
            if seen is not None or self._known[planned.index] == _INTENDED:  # it may have run
                self._uncertain = True
                if planned.flags & (WRITES | COMMITS):
                    self._operations.append(_any_write(clock if seen is None else seen.begun))
            return
        if seen.errno:
            self._rolled_back |= seen.errno in _ROLLED_BACK
            if word == "COMMIT":
                self._outcome = Commitment.ABORTED if seen.errno in _ROLLED_BACK else None
                self._uncertain |= seen.errno not in _ROLLED_BACK
        elif word in ("COMMIT", "ROLLBACK"):
            rolled_back = word == "ROLLBACK" or self._rolled_back
            self._outcome = Commitment.ABORTED if rolled_back else Commitment.COMMITTED
        elif word in ("BEGIN", "START"):
            return  # with it the unit begins
        elif word in ("SAVEPOINT", "RELEASE", "XA", "LOCK", "UNLOCK") or planned.flags & COMMITS:
            self._uncertain = True
            if planned.meaning.classification.may_write:
                self._operations.append(_any_write(seen.begun))
        else:
            made = list(operations(planned, seen, self._keys, self._reading))
            writes = any(each.kind is OperationKind.WRITE for each in made)
            self._uncertain |= self._rolled_back and writes  # it is outside of the transaction now
            self._operations += made
            # the replay rolls back what production's deadlock had rolled back
            self._rolled_back |= planned.call.captured.errno == DEADLOCK and bool(planned.flags & WRITES)


def _any_write(begun: int) -> HistoryOperation:
    return HistoryOperation(OperationKind.WRITE, "*", None, begun, begun, known=False)
