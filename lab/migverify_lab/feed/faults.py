"""The faults of the reverse feed: their names, where each acts, and what the carrier's ones do to the messages.

Faults of the applier are those of the replicator (``replicator_faults``), and so is the ledger of what differs. A fault
of the carrier acts on messages before they are sent; what the applier then ends with is kept in a ledger of the same
kind.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from migverify.changes.model import Texts
from migverify.changes.positions import tso_position
from migverify.errors import UsageError
from migverify.model import DiffKind
from migverify_lab.feed.model import DdlEvent, Event, RowEvent
from migverify_lab.replicator_faults import (
    SEEN_KEYS,
    CountedRule,
    FaultDone,
    Injector,
    RowDifference,
)
from migverify_lab.replicator_plan import RowChange, make_change
from migverify_lab.replicator_rules import FaultKind, FaultRule, parse_fault


class FeedFault(StrEnum):
    """What can be switched on.

    Of the carrier: ``message-lost``: a row's message is not sent. ``message-duplicated``: a message is sent twice.
    ``out-of-order``: the former message of a row comes once more behind its next one and behind the watermark.
    ``across-keys``: messages of different rows are sent in the reverse order, before the watermark.
    ``split-partition``: a row's message goes to another partition than the one before. ``ddl-not-carried``: a DDL is
    not sent.

    Of the applier: ``row-not-applied``, ``checkpoint-ahead`` (the checkpoint passes consecutive changes that are not
    applied), ``wrong-time-zone`` (TIMESTAMP is shifted), ``truncated-column`` (half of a text), ``dropped-column`` (the
    old value stays), ``stalled``.

    ``old-side-writer``: a client goes on writing to MySQL.
    """

    MESSAGE_LOST = "message-lost"
    MESSAGE_DUPLICATED = "message-duplicated"
    OUT_OF_ORDER = "out-of-order"
    ACROSS_KEYS = "across-keys"
    SPLIT_PARTITION = "split-partition"
    DDL_NOT_CARRIED = "ddl-not-carried"
    ROW_NOT_APPLIED = "row-not-applied"
    CHECKPOINT_AHEAD = "checkpoint-ahead"
    WRONG_TIME_ZONE = "wrong-time-zone"
    TRUNCATED_COLUMN = "truncated-column"
    DROPPED_COLUMN = "dropped-column"
    STALLED = "stalled"
    OLD_SIDE_WRITER = "old-side-writer"


_APPLIER = {
    FeedFault.ROW_NOT_APPLIED: FaultKind.SKIP, FeedFault.CHECKPOINT_AHEAD: FaultKind.CHECKPOINT_AHEAD,
    FeedFault.WRONG_TIME_ZONE: FaultKind.TIMESTAMP_SHIFTED, FeedFault.TRUNCATED_COLUMN: FaultKind.TRUNCATED_COLUMN,
    FeedFault.DROPPED_COLUMN: FaultKind.DROP_COLUMN, FeedFault.STALLED: FaultKind.STALL,
}  # fmt: skip
_CARRIER = {
    FeedFault.MESSAGE_LOST: FaultKind.SKIP, FeedFault.OUT_OF_ORDER: FaultKind.OUT_OF_ORDER,
    FeedFault.DDL_NOT_CARRIED: FaultKind.STOP_AT_DDL, FeedFault.MESSAGE_DUPLICATED: FaultKind.TWICE,
    FeedFault.ACROSS_KEYS: FaultKind.TWICE, FeedFault.SPLIT_PARTITION: FaultKind.TWICE,
}  # fmt: skip
_HARMLESS = frozenset({FeedFault.MESSAGE_DUPLICATED, FeedFault.ACROSS_KEYS, FeedFault.SPLIT_PARTITION})
"""What an applier that orders by commit timestamp and writes by key survives."""


@dataclass(frozen=True, slots=True)
class FeedRule:
    """One fault as it was requested, with its arguments as a rule of the replicator."""

    fault: FeedFault
    rule: FaultRule

    @property
    def in_applier(self) -> bool:
        """Whether the applier does it."""
        return self.fault in _APPLIER


def parse_feed_fault(text: str) -> FeedRule:
    """Read ``NAME[:ARG[,ARG...]]``; the arguments are those of the replicator's faults, without them ``at=1``.

    Raises
    ------
    UsageError
        no such fault or argument.
    """
    name, _, arguments = text.partition(":")
    try:
        fault = FeedFault(name.strip())
    except ValueError as error:
        names = ", ".join(fault.value for fault in FeedFault)
        raise UsageError(f"the reverse feed has no fault {name!r}", hint=f"Faults: {names}.") from error
    kind = _APPLIER.get(fault) or _CARRIER.get(fault) or FaultKind.SKIP
    if not arguments and fault is not FeedFault.WRONG_TIME_ZONE and fault is not FeedFault.CHECKPOINT_AHEAD:
        arguments = "at=1"
    return FeedRule(fault, parse_fault(f"{kind.value}:{arguments}" if arguments else kind.value))


@dataclass(frozen=True, slots=True)
class SentChange:
    """What is sent for a change: ``shift`` to another partition, ``behind`` the commit of a later one."""

    event: Event
    shift: int = 0
    behind: int = 0

    @property
    def late(self) -> bool:
        """Whether it comes behind the watermark."""
        return self.behind > 0


@dataclass(slots=True)
class CarrierFaults:
    """Faults of the carrier: every change goes through ``deliver`` once, in the order of commits."""

    seed: int = 1
    rules: list[tuple[FeedRule, CountedRule]] = field(default_factory=list)
    ledger: Injector = field(default_factory=lambda: Injector(()))
    faults_done: list[FaultDone] = field(default_factory=list)
    uncarried: set[str] = field(default_factory=set)
    _former: OrderedDict[tuple[str, Texts], RowEvent] = field(default_factory=OrderedDict)

    def switch_on(self, rule: FeedRule) -> None:
        """Do a fault from now on."""
        number = len(self.rules)
        counted = CountedRule(rule.rule, random.Random(f"{self.seed} {number} {rule.fault}"))
        self.rules = [*self.rules, (rule, counted)]

    def switch_off(self, fault: FeedFault) -> None:
        """Do a fault no more."""
        self.rules = [pair for pair in self.rules if pair[0].fault is not fault]

    def deliver(self, events: Sequence[Event]) -> list[SentChange]:
        """Return what is sent for the changes that one watermark completes."""
        sent: list[SentChange] = []
        for event in events:
            sent += self._ddl(event) if isinstance(event, DdlEvent) else self._row(event)
        if self._across_keys(events):
            sent = _across_keys(sent)
        return sent

    def _ddl(self, event: DdlEvent) -> Iterable[SentChange]:
        for rule, counted in self.rules:
            if rule.fault is FeedFault.DDL_NOT_CARRIED and counted.due():
                name = f"{event.database}.{event.table}"
                self.uncarried.add(name)
                self._record(rule.fault, name, "ddl", {}, (), event.commit, event.sql)
                return []
        self.ledger.forget([(event.database, event.table)])
        return [SentChange(event)]

    def _row(self, event: RowEvent) -> list[SentChange]:
        former = self._former.get((event.table.name, event.key))
        self._remember(event)
        change = change_of(event)
        for rule, counted in self.rules:
            deliveries = self._act(rule, counted, event, former)
            if deliveries is not None:
                differences = tuple(self.ledger.track(change, [change] if deliveries else []))
                if not any(item.late for item in deliveries):
                    self._record_row(rule.fault, event, () if rule.fault in _HARMLESS else differences)
                return deliveries
        self.ledger.track(change, [change])
        return [SentChange(event)]

    def sent_late(self, former: RowEvent) -> None:
        """Keep in the ledger that a former message of a row was sent behind all others of it."""
        last = self._former.get((former.table.name, former.key), former)
        change = change_of(last)
        stale = make_change(change.table, last.after, former.after, change.at)
        self._record_row(FeedFault.OUT_OF_ORDER, former, tuple(self.ledger.track(change, [change, stale])))

    def _act(
        self, rule: FeedRule, counted: CountedRule, event: RowEvent, former: RowEvent | None
    ) -> list[SentChange] | None:  # fmt: skip
        """Return what is sent where this rule acts on this change, else None."""
        fault, update = rule.fault, event.before is not None and event.after is not None
        if not rule.rule.covers(event.table.rows.map):
            return None
        if fault is FeedFault.MESSAGE_LOST:
            return [] if counted.due() else None
        if fault is FeedFault.MESSAGE_DUPLICATED:
            return [SentChange(event), SentChange(event)] if counted.due() else None
        if former is None or not update or former.after != event.before:
            return None
        if fault is FeedFault.OUT_OF_ORDER and counted.due():
            return [SentChange(event), SentChange(former, behind=event.commit)]
        return [SentChange(event, shift=1)] if fault is FeedFault.SPLIT_PARTITION and counted.due() else None

    def _across_keys(self, events: Sequence[Event]) -> bool:
        keys = {(event.table.name, event.key) for event in events if isinstance(event, RowEvent)}
        for rule, counted in self.rules:
            if rule.fault is FeedFault.ACROSS_KEYS and len(keys) > 1 and counted.due():
                for event in {event.key: event for event in events if isinstance(event, RowEvent)}.values():
                    self._record_row(rule.fault, event, ())
                return True
        return False

    def _remember(self, event: RowEvent) -> None:
        where = (event.table.name, event.key)
        self._former[where] = event
        self._former.move_to_end(where)
        while len(self._former) > SEEN_KEYS:
            self._former.popitem(last=False)

    def _record_row(self, fault: FeedFault, event: RowEvent, differences: tuple[RowDifference, ...]) -> None:
        table = event.table
        names = [table.columns[place].name for place in table.key]
        op = change_of(event).op
        self._record(fault, table.name, op.value, dict(zip(names, event.key, strict=True)), differences, event.commit)

    def _record(
        self, fault: FeedFault, table: str, op: str, key: dict[str, str | None],
        differences: tuple[RowDifference, ...], commit: int, sql: str = "",
    ) -> None:  # fmt: skip
        columns = tuple(dict.fromkeys(column for item in differences for column in item.columns))
        self.faults_done.append(FaultDone(len(self.faults_done) + 1, fault, table, op, key, columns, differences,
                                          str(tso_position(commit)), str(commit), sql))  # fmt: skip


def change_of(event: RowEvent) -> RowChange:
    """Return a change as the replicator's ledger takes it."""
    return make_change(event.table.rows, event.before, event.after, tso_position(event.commit))


def _across_keys(sent: Sequence[SentChange]) -> list[SentChange]:
    """Reverse the order of rows, not that of the changes of one row; a DDL stays where it is."""
    groups: list[dict[tuple[str, Texts], list[SentChange]]] = [{}]
    ordered: list[SentChange] = []
    for delivery in sent:
        if isinstance(delivery.event, RowEvent):
            groups[-1].setdefault((delivery.event.table.name, delivery.event.key), []).append(delivery)
            continue
        ordered += [item for group in reversed(groups.pop().values()) for item in group] + [delivery]
        groups.append({})
    return ordered + [item for group in reversed(groups.pop().values()) for item in group]


_OTHER_SIDE = {
    DiffKind.MISSING_ON_SOURCE: DiffKind.MISSING_ON_TARGET, DiffKind.MISSING_ON_TARGET: DiffKind.MISSING_ON_SOURCE
}  # fmt: skip


def as_feed(done: FaultDone) -> FaultDone:
    """Return what a fault did by the feed's name of it, its differences as a verification of the pair names them."""
    names = {kind.value: fault for fault, kind in _APPLIER.items()}
    return replace(done, fault=names.get(done.fault.value, done.fault), differences=tuple(as_pair(done.differences)))


def as_pair(differences: Iterable[RowDifference]) -> list[RowDifference]:
    """Return differences of the feed's direction as a verification of the pair names them: MySQL is the source."""
    return [replace(item, kind=_OTHER_SIDE.get(item.kind, item.kind)) for item in differences]
