"""Which digest has another plan on the target than it had, and what changed beneath it since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from migverify.model import Side
from migverify.workload.plans.doubts import fails_as_captured
from migverify.workload.plans.model import DigestPlans
from migverify.workload.plans.statistics import TableStatistics, TargetTables

_GREW = 2.0
"""By which factor a table's rows have to change before they count as a cause."""


@dataclass(frozen=True, slots=True)
class TableRecord:
    """What a plan rested on: the table's statistics, and the names of its indexes.

    ``updated`` is when the statistics changed last, as TiDB writes it; empty in runs that did not keep it.
    """

    rows: int | None
    changed: int | None
    health: int | None
    indexes: tuple[str, ...]
    updated: str = ""

    @classmethod
    def of(cls, statistics: TableStatistics | None, indexes: Iterable[str]) -> TableRecord:
        """Return the record of one table."""
        if statistics is None:
            return cls(None, None, None, tuple(sorted(indexes)))
        names = tuple(sorted(indexes))
        return cls(statistics.rows, statistics.changed, statistics.health, names, statistics.updated)


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A digest's plans on the target as one run saw them.

    ``shapes`` are the rows that each plan was estimated to read, by its shape; ``tables`` what the plans rest on, by
    database and table. ``guesses`` are why the plans could not be judged: absent or stale statistics.
    """

    digest: str
    version: str
    shapes: Mapping[str, float] = field(default_factory=dict)
    tables: Mapping[str, TableRecord] = field(default_factory=dict)
    guesses: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {**asdict(self), "guesses": list(self.guesses)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> PlanRecord:
        """Return what ``as_json`` gave."""
        tables = {
            str(name): TableRecord(
                one["rows"], one["changed"], one["health"], tuple(one["indexes"]), str(one.get("updated", ""))
            )
            for name, one in body["tables"].items()
        }
        shapes = {str(shape): float(rows) for shape, rows in body["shapes"].items()}
        guesses = tuple(map(str, body.get("guesses", ())))
        return cls(str(body["digest"]), str(body["version"]), shapes, tables, guesses)


def tables_of(names: Mapping[str, tuple[str, str]], target: TargetTables) -> dict[str, TableRecord]:
    """Return the records of the tables that a statement names."""
    return {
        ".".join(name): TableRecord.of(target.statistics.get(name), target.indexes.get(name, ()))
        for name in set(names.values())
    }


@dataclass(frozen=True, slots=True)
class PlanDrift:
    """Plans that an earlier run did not see, and what changed beneath since. ``before`` and ``now`` are rows read.

    ``guesses`` are why the earlier plans could not be judged, so that ``before`` is no measure.
    """

    gone: tuple[str, ...]
    new: tuple[str, ...]
    before: float
    now: float
    causes: tuple[str, ...]
    guesses: tuple[str, ...] = ()

    def __str__(self) -> str:
        since = "; ".join(self.causes) or "nothing that is recorded changed beneath it"
        guessed = "".join(f"; then, {one.partition(': ')[0]}" for one in self.guesses)
        return (
            f"{' or '.join(self.gone) or 'other plans'} became {' or '.join(self.new)}, about {self.before:,.0f} rows"
            f" became {self.now:,.0f}; since then: {since}{guessed}"
        )


def drift(before: PlanRecord, after: PlanRecord) -> PlanDrift | None:
    """Return how the target's plans differ from those of an earlier run; None where each was seen then.

    A plan that is only missing now is no drift: fewer calls may have been explained.
    """
    old, new = before.shapes, after.shapes
    if not old or not new or set(new) <= set(old):
        return None
    made = tuple(sorted(set(new) - set(old)))
    return PlanDrift(
        tuple(sorted(set(old) - set(new))), made, max(old.values()), max(new[one] for one in made),
        tuple(_causes(before, after)), before.guesses,
    )  # fmt: skip


def not_compared(before: PlanRecord | None, after: DigestPlans) -> str:
    """Return why plans on the target cannot be compared with those of an earlier run, empty where they can."""
    if after.skipped or not after.samples:
        return after.skipped or "no call of it can be explained"
    answers = [sample.plans.get(Side.TARGET) for sample in after.samples if not fails_as_captured(sample)]
    if not answers:
        return ""
    refused = next((one for one in answers if one is None or one.plan is None), None)
    if refused is not None:
        return f"no plan of the target: {refused.reason}"
    if before is None:
        return "the baseline has no plan of it"
    return "" if before.shapes else "the baseline's plan is not known"


def _causes(before: PlanRecord, after: PlanRecord) -> Iterator[str]:
    if before.version != after.version:
        yield f"version {before.version} became {after.version}"
    for name, now in sorted(after.tables.items()):
        then = before.tables.get(name)
        if then is None:
            continue
        gone, made = set(then.indexes) - set(now.indexes), set(now.indexes) - set(then.indexes)
        if gone:
            yield f"{name} lost index {', '.join(sorted(gone))}"
        if made:
            yield f"{name} has a new index {', '.join(sorted(made))}"
        yield from _statistics(name, then, now)


def _statistics(name: str, then: TableRecord, now: TableRecord) -> Iterator[str]:
    if then.health is None and now.health is not None:
        yield f"{name} was analyzed"
    elif then.health is not None and now.health is None:
        yield f"{name} lost its statistics"
    if then.rows is not None and now.rows is not None:
        low, high = sorted((max(then.rows, 1), max(now.rows, 1)))
        if high >= _GREW * low:
            yield f"{name} went from {then.rows:,} to {now.rows:,} rows"
        elif (then.changed, then.rows) != (now.changed, now.rows) or _was_updated(then, now):
            times = f"; {then.updated} and {now.updated}" if _was_updated(then, now) else ""
            yield f"statistics of {name} were updated ({then.rows:,} rows then, {now.rows:,} now{times})"


def _was_updated(then: TableRecord, now: TableRecord) -> bool:
    return bool(then.updated and now.updated) and then.updated != now.updated
