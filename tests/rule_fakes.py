"""Fakes for tests of rules: datasets in memory, a clock that sleeps forward, an engine that joins them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, get_args

from migverify.db.snapshot import ReadSnapshot
from migverify.model import ColumnDef, KeyText, Lane
from migverify.recon.build import Built
from migverify.recon.evaluate import Conditions
from migverify.recon.exceptions import KnownException
from migverify.recon.kinds import AnyRule
from migverify.recon.model import Dataset, RuleFinding, RulePlace, TablePart
from migverify.recon.relation import Combine, JoinFilter, KeyRows, Pairing, Relation, Texts, Totals
from migverify.recon.rule import Rule, RuleSet
from migverify.tables.tasks import ReadColumn

PLACE = RulePlace("rules.yaml", 7)
START = 1_800_000_000.0
Rows = Mapping[KeyText, KeyRows]


KINDS: dict[str, type[Rule]] = {
    get_args(model.model_fields["kind"].annotation)[0]: model for model in get_args(get_args(AnyRule)[0])
}


def rule_of(kind: str, source: str = "orders", target: str | None = None, name: str = "r", **fields: Any) -> Rule:
    """A rule of a kind, at line 7 of a file."""
    place = fields.pop("place", PLACE)
    more = {} if target is None else {"target": target}
    return KINDS[kind](name=name, kind=kind, source=source, **more, **fields).at(place)


def changed(rule: Rule, **fields: Any) -> Rule:
    """A rule with other values of some fields."""
    return rule.model_copy(update=fields)


def excused(rule: str, key: KeyText | None, owner: str, reason: str, expires: datetime) -> KnownException:
    """An exception of a rule."""
    return KnownException(rule=rule, key=key, owner=owner, reason=reason, expires=expires).at(PLACE)


def column(name: str, kind: str = "decimal") -> ColumnDef:
    """A column of a type that is told by its name."""
    return ColumnDef(name, 1, kind, kind, True)


def held(*values: str | None, count: int = 1, differing: bool = False, shards: tuple[str, ...] = ()) -> KeyRows:
    """What one side holds for a key."""
    return KeyRows(count, values, differing, shards)


def relation(
    dataset: str, key: Sequence[ColumnDef], values: Sequence[ColumnDef], carried: int = 0, how: Combine = Combine.ROW
) -> Relation:
    """A relation without reads; the engine of tests knows rows by the dataset's name."""
    return Relation(dataset, (), tuple(key), tuple(values), (how,) * len(values), carried)


def built(
    source: Relation,
    target: Relation | None,
    keep: JoinFilter | None = None,
    times: tuple[str | None, str | None] = (None, None),
) -> Built:
    """What a rule reads."""
    columns = tuple(ReadColumn(c.name, "decimal", Lane.EXACT, "text", False) for c in source.values)
    return Built(source, target, keep or JoinFilter(), columns, times)


def rule_set(rule: Rule, *exceptions: KnownException, static: bool = False) -> RuleSet:
    """A rule with its datasets, each a table of its name."""
    names = rule.datasets
    datasets = {n: Dataset(n, (TablePart(n, "shop", n),), PLACE, static=static) for n in names}
    return RuleSet("rules.yaml", (rule,), datasets, {}, exceptions, "digest")


@dataclass
class Clock:
    """Time that passes by sleeping only."""

    at: float = START
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += seconds
        self.slept.append(seconds)

    def conditions(self, **more: Any) -> Conditions:
        return Conditions(show=more.pop("show", True), now=self.now, sleep=self.sleep, **more)


class FakeJoined:
    def __init__(self, pairings: list[Pairing], totals: Totals, size: int) -> None:
        self._pairings, self._totals, self._size, self._read = pairings, totals, size, False

    def __iter__(self) -> Iterator[Sequence[Pairing]]:
        for start in range(0, len(self._pairings), self._size):
            yield self._pairings[start : start + self._size]
        self._read = True

    @property
    def totals(self) -> Totals:
        if not self._read:
            raise RuntimeError("read the pairings first")
        return self._totals

    @property
    def snapshots(self) -> tuple[ReadSnapshot, ...]:
        return (ReadSnapshot("source", "mysql", "consistent snapshot", "binlog.000001:4", "", True, START),)


class FakeEngine:
    """Joins the datasets of ``moments``; each sleep of the clock goes on to the next moment, the last one stays."""

    name = "fake"

    def __init__(self, clock: Clock, *moments: Mapping[str, Rows], size: int = 3) -> None:
        self._clock, self._moments, self._size = clock, moments, size
        self.fail: Exception | None = None
        self.fail_lookup: Exception | None = None
        self.lookups: list[int] = []
        self.answers: dict[str, list[Texts]] = {}

    @property
    def world(self) -> Mapping[str, Rows]:
        return self._moments[min(len(self._clock.slept), len(self._moments) - 1)]

    def join(self, source: Relation, target: Relation | None, keep: JoinFilter) -> FakeJoined:
        if self.fail is not None:
            raise self.fail
        ours = self.world[source.dataset]
        theirs = self.world[target.dataset] if target is not None else {}
        found, matched = [], 0
        for key in [*ours, *(k for k in theirs if k not in ours)]:
            pairing = Pairing(key, ours.get(key), theirs.get(key))
            if _kept(pairing, source, target, keep):
                found.append(pairing)
            else:
                matched += 1
        totals = Totals(_rows(ours), _rows(theirs), len(ours), len(theirs), matched)
        return FakeJoined(found, totals, self._size)

    def lookup(self, relation: Relation, keys: Sequence[KeyText]) -> dict[KeyText, KeyRows]:
        if self.fail_lookup is not None:
            raise self.fail_lookup
        self.lookups.append(len(keys))
        return {key: self.world[relation.dataset][key] for key in keys if key in self.world[relation.dataset]}

    def query(self, endpoint: str, sql: str, limit: int) -> tuple[tuple[str, ...], list[Texts]]:
        del endpoint
        return ("n",), self.answers.get(sql, [])[:limit]

    def close(self) -> None:
        pass


def _rows(rows: Rows) -> int:
    return sum(one.count for one in rows.values())


def _kept(pairing: Pairing, source: Relation, target: Relation | None, keep: JoinFilter) -> bool:
    one, other = pairing.source, pairing.target
    if target is None:
        return keep.all or (one is not None and one.count > 1)
    if one is None or other is None:
        return keep.missing_source if one is None else keep.missing_target
    width = source.compared
    repeated = keep.repeated and source.rows and max(one.count, other.count) > 1
    return repeated or (
        keep.differing and (one.values[:width] != other.values[:width] or one.differing or other.differing)
    )


class Basket(list[RuleFinding]):
    """A sink that keeps everything, and how it came."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []

    def __call__(self, findings: Sequence[RuleFinding]) -> None:
        self.batches.append(len(findings))
        self.extend(findings)

    @property
    def by_key(self) -> dict[KeyText, RuleFinding]:
        return {finding.key: finding for finding in self}
