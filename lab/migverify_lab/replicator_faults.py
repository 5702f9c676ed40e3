"""Faults of a replicator, to switch on: what each does to the stream of row changes, and what then differs.

A fault changes what is applied, never what is read. For every key that was touched by a fault the difference between
source and target is kept up to date, so that at any moment ``standing`` is exactly what a verification must find: a
later change of the row may heal it.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from migverify.changes.model import Op, Statement, Texts
from migverify.model import DiffKind
from migverify_lab.replicator_plan import TEMPORAL, TEXT_TYPES, TIMESTAMPS, Key, RowChange, TargetTable, make_change
from migverify_lab.replicator_rules import FaultKind, FaultRule

SEEN_KEYS = 50_000
"""Keys of which the replicator remembers that it has seen a change; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class RowDifference:
    """One row that is not the same on both sides. ``columns`` are empty where it is on one side only."""

    table: str
    key: Key
    kind: DiffKind
    columns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FaultDone:
    """One fault that was done. ``key`` maps column to text, all columns in a table without a key."""

    number: int
    fault: StrEnum
    table: str
    op: str
    key: Mapping[str, str | None]
    columns: tuple[str, ...]
    differences: tuple[RowDifference, ...]
    place: str
    gtid: str
    sql: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "fault": self.fault.value, "number": self.number, "table": self.table, "op": self.op,
            "key": dict(self.key), "columns": list(self.columns),
            "differences": [difference_dict(found) for found in self.differences],
            "position": self.place, "gtid": self.gtid, **({"sql": self.sql} if self.sql else {}),
        }  # fmt: skip


def difference_dict(found: RowDifference) -> dict[str, Any]:
    """Return plain values for JSON."""
    return {"table": found.table, "key": list(found.key), "kind": found.kind.value, "columns": list(found.columns)}


@dataclass(slots=True)
class CountedRule:
    """A rule with its counters."""

    rule: FaultRule
    rng: random.Random
    phase: int = 0
    counted: int = 0
    done: int = 0

    def __post_init__(self) -> None:
        self.phase = self.rng.randrange(self.rule.every) if self.rule.every else 0

    def due(self) -> bool:
        """Count one change the rule can act on; tell whether it is the one."""
        rule = self.rule
        if rule.most and self.done >= rule.most:
            return False
        self.counted += 1
        hit = self.counted == rule.at if rule.at else (self.counted - 1) % rule.every == self.phase
        self.done += hit
        return hit


@dataclass(slots=True)
class _Astray:
    """A key whose target row is not its source row (None: no row), and how they differ."""

    table: TargetTable
    source: Texts | None
    target: Texts | None

    def difference(self) -> RowDifference:
        key = self.table.key_of(self.source or self.target or ())
        if self.target is None:
            return RowDifference(self.table.map.name, key, DiffKind.MISSING_ON_TARGET)
        if self.source is None:
            return RowDifference(self.table.map.name, key, DiffKind.MISSING_ON_SOURCE)
        return RowDifference(self.table.map.name, key, DiffKind.VALUE_DIFFERS,
                             self.table.names(changed(self.source, self.target)))  # fmt: skip


def changed(before: Texts, after: Texts) -> tuple[int, ...]:
    """Return the places at which two rows differ."""
    return tuple(place for place, (old, new) in enumerate(zip(before, after, strict=True)) if old != new)


@dataclass(slots=True)
class Injector:
    """Applies the rules to the stream. Each change goes through ``take`` once, in order.

    ``done`` lists the faults, ``healed`` counts differences that later changes undid. ``stall_seconds`` is None until
    a stall is due, then its length (0: forever).
    """

    rules: Sequence[FaultRule]
    seed: int = 1
    done: list[FaultDone] = field(default_factory=list)
    healed: int = 0
    stall_seconds: float | None = None
    _rules: list[CountedRule] = field(default_factory=list)
    _astray: dict[tuple[str, Key], _Astray] = field(default_factory=dict)
    _copies: dict[tuple[str, Texts], int] = field(default_factory=dict)
    _seen: OrderedDict[tuple[str, Key], None] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        for rule in self.rules:
            self.switch_on(rule)

    def switch_on(self, rule: FaultRule) -> None:
        """Do a fault from the next change on."""
        counted = CountedRule(rule, random.Random(f"{self.seed} {len(self._rules)} {rule.kind}"))
        self._rules = [*self._rules, counted]

    def switch_off(self, kind: FaultKind) -> None:
        """Do a fault no more; what it did stays."""
        self._rules = [rule for rule in self._rules if rule.rule.kind is not kind]

    def standing(self) -> list[RowDifference]:
        """Return what differs now because of the faults, sorted; what a verification must find, and nothing else."""
        found = [astray.difference() for astray in self._astray.values()]
        for (table, row), more in self._copies.items():
            found += [RowDifference(table, row, DiffKind.MISSING_ON_SOURCE)] * more
        return sorted(found, key=lambda one: (one.table, [part or "" for part in one.key], one.kind))

    def counts(self) -> dict[str, int]:
        """Return how often each kind was done."""
        kinds = [fault.fault.value for fault in self.done]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}

    def take(self, change: RowChange, gtid: str = "") -> list[RowChange]:
        """Return what is to be applied in place of a change."""
        if not self._rules:
            if self._astray:  # a later change of the row may heal what a fault did that is off by now
                self.track(change, [change])
            return [change]
        emitted, by = [change], None
        for rule in self._rules:
            acted = self._act(rule, change)
            if acted is not None:
                emitted, by = acted, rule
                break
        differences = self.track(change, emitted)
        if by is not None:
            self._record(by.rule.kind, change, emitted, differences, gtid)
        self._remember(change)
        return emitted

    def stops_at(self, statement: Statement, gtid: str = "", place: str = "") -> bool:
        """Whether the replicator ends before this statement."""
        for rule in self._rules:
            if rule.rule.kind is FaultKind.STOP_AT_DDL and statement.op is Op.DDL and rule.due():
                tables = ", ".join(".".join(filter(None, name)) for name in statement.tables)
                self.done.append(FaultDone(len(self.done) + 1, rule.rule.kind, tables, statement.op.value, {}, (), (),
                                           place, gtid, statement.sql))  # fmt: skip
                return True
        return False

    def forget(self, tables: Iterable[tuple[str, str]]) -> None:
        """Hear that tables were emptied, dropped or changed: what differed in them is not known to differ any more."""
        names = set(tables)

        def gone(name: str) -> bool:
            database, _, table = name.partition(".")
            return (database, table) in names or (database, "") in names

        for where in [where for where in self._astray if gone(where[0])]:
            del self._astray[where]
            self.healed += 1
        for copy in [copy for copy in self._copies if gone(copy[0])]:
            self.healed += self._copies.pop(copy)

    # --- what each fault does ---------------------------------------------------------------------------------

    def _act(self, rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        """Return what is applied where this rule acts on this change, else None."""
        if not rule.rule.covers(change.table.map):
            return None
        kind = rule.rule.kind
        if kind is FaultKind.STALL:
            if rule.due():
                self.stall_seconds = rule.rule.seconds
                self._record(kind, change, [change], [], "")
            return None
        if kind is FaultKind.STOP_AT_DDL:
            return None
        possible = _POSSIBLE[kind](self, rule, change)
        return possible if possible is not None and rule.due() else None

    def _skip(self, _rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        return [] if change.before != change.after and change.table.key else None

    def _twice(self, _rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        if not change.table.key:
            return [change, change] if change.op is Op.INSERT else None
        if not self._was_seen(change) or not _keeps_key(change) or change.before == change.after:
            return None
        # What the row's former change left is the image before this one.
        return [change, make_change(change.table, change.after, change.before, change.at)]

    def _out_of_order(self, _rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        update = change.op is Op.UPDATE and bool(change.table.key) and _keeps_key(change)
        if not update or not self._was_seen(change) or change.before == change.after:
            return None
        return [change, make_change(change.table, change.after, change.before, change.at)]

    def _drop_column(self, rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        table, before, after = change.table, change.before, change.after
        if before is None or after is None or not table.key or not _keeps_key(change):
            return None
        wanted = rule.rule.column
        places = [place for place in changed(before, after) if place in table.writable
                  and wanted in ("", table.map.columns[place].name)]  # fmt: skip
        if not places:
            return None
        # Of the row's own content, so that the choice does not depend on how many rows came before.
        place = random.Random(f"{self.seed} {table.key_of(after)}").choice(places)
        return [make_change(table, before, (*after[:place], before[place], *after[place + 1 :]), change.at)]

    def _wrong_time_zone(self, rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        table, after = change.table, change.after
        if after is None or not table.key:
            return None
        row = list(after)
        types = TIMESTAMPS if rule.rule.kind is FaultKind.TIMESTAMP_SHIFTED else TEMPORAL
        for place in table.writable:
            column, text = table.map.columns[place], after[place]
            if column.type_code in types and place not in table.key and text is not None:
                row[place] = shifted(text, rule.rule.shift)
        return None if tuple(row) == after else [make_change(table, change.before, tuple(row), change.at)]

    def _truncated(self, rule: CountedRule, change: RowChange) -> list[RowChange] | None:
        table, after = change.table, change.after
        if after is None or not table.key:
            return None
        for place in table.writable:
            column, text = table.map.columns[place], after[place]
            is_text = bool(column.charset) and column.type_code in TEXT_TYPES and column.charset != "binary"
            if is_text and place not in table.key and text is not None and len(text) > 1 \
                    and rule.rule.column in ("", column.name):  # fmt: skip
                cut = (*after[:place], text[: len(text) // 2], *after[place + 1 :])
                return [make_change(table, change.before, cut, change.at)]
        return None

    # --- what then differs ------------------------------------------------------------------------------------

    def track(self, change: RowChange, emitted: Sequence[RowChange]) -> list[RowDifference]:
        """Keep the differences of the change's keys up to date; returns those that stand now."""
        table, name = change.table, change.table.map.name
        if not table.key:
            return self._track_copies(change, emitted)
        keys = {table.key_of(image) for image in (change.before, change.after) if image is not None}
        if len(emitted) == 1 and emitted[0] is change and not any((name, key) in self._astray for key in keys):
            return []
        target: dict[Key, Texts | None] = {}
        for key in keys:
            astray = self._astray.get((name, key))
            was = change.before if change.before is not None and table.key_of(change.before) == key else None
            target[key] = was if astray is None else astray.target
        for one in emitted:
            if one.before is not None:
                target[table.key_of(one.before)] = None
            if one.after is not None:
                target[table.key_of(one.after)] = one.after
        found = []
        for key, row in target.items():
            source = change.after if change.after is not None and table.key_of(change.after) == key else None
            if source == row:
                self.healed += self._astray.pop((name, key), None) is not None
            else:
                self._astray[name, key] = _Astray(table, source, row)
                found.append(self._astray[name, key].difference())
        return found

    def _track_copies(self, change: RowChange, emitted: Sequence[RowChange]) -> list[RowDifference]:
        if change.after is None or len(emitted) == 1:
            return []
        copy = (change.table.map.name, change.after)
        self._copies[copy] = self._copies.get(copy, 0) + len(emitted) - 1
        return [RowDifference(*copy, DiffKind.MISSING_ON_SOURCE)]

    def _record(
        self,
        kind: FaultKind,
        change: RowChange,
        emitted: Sequence[RowChange],
        found: Sequence[RowDifference],
        gtid: str,
    ) -> None:
        del emitted
        table = change.table
        image = change.after if change.after is not None else change.before
        places = table.key or tuple(range(len(table.map.columns)))
        key = dict(zip(table.names(places), table.key_of(image or ()), strict=True))
        columns = tuple(dict.fromkeys(column for one in found for column in one.columns))
        self.done.append(FaultDone(len(self.done) + 1, kind, table.map.name, change.op.value, key, columns,
                                   tuple(found), str(change.at), gtid))  # fmt: skip

    def _remember(self, change: RowChange) -> None:
        if change.table.key:
            for image in (change.before, change.after):
                if image is not None:
                    where = (change.table.map.name, change.table.key_of(image))
                    self._seen[where] = None
                    self._seen.move_to_end(where)
            while len(self._seen) > SEEN_KEYS:
                self._seen.popitem(last=False)

    def _was_seen(self, change: RowChange) -> bool:
        image = change.before
        return image is not None and (change.table.map.name, change.table.key_of(image)) in self._seen


_POSSIBLE = {
    FaultKind.SKIP: Injector._skip,
    FaultKind.TWICE: Injector._twice,
    FaultKind.OUT_OF_ORDER: Injector._out_of_order,
    FaultKind.DROP_COLUMN: Injector._drop_column,
    FaultKind.WRONG_TIME_ZONE: Injector._wrong_time_zone,
    FaultKind.CHECKPOINT_AHEAD: Injector._skip,
    FaultKind.TIMESTAMP_SHIFTED: Injector._wrong_time_zone,
    FaultKind.TRUNCATED_COLUMN: Injector._truncated,
}


def _keeps_key(change: RowChange) -> bool:
    table, before, after = change.table, change.before, change.after
    return before is not None and (after is None or table.key_of(before) == table.key_of(after))


def shifted(text: str, seconds: int) -> str:
    """Return a DATETIME text some seconds later; zero, partial and out-of-range ones stay as they are."""
    head, dot, fraction = text.partition(".")
    try:
        moved = datetime.strptime(head, "%Y-%m-%d %H:%M:%S") + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        return text
    return f"{moved:%Y-%m-%d %H:%M:%S}{dot}{fraction}" if 1971 <= moved.year < 2038 else text
