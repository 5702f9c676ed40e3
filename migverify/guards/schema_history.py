"""Definitions over time, as the store has them, and two snapshots of one's own choice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from migverify.errors import UsageError
from migverify.guards.schema_diff import compare_over_time, compare_sides
from migverify.guards.schema_drift import Drift
from migverify.guards.schema_keep import endpoints_of, sides_of, snapshot_runs
from migverify.guards.schema_model import SideSchema, Snapshot, TableComparison
from migverify.guards.schema_read import Scope
from migverify.store.base import ResultStore


@dataclass(frozen=True, slots=True)
class Moment:
    """What an endpoint, or a table of it, was from a moment on; ``fingerprint`` is empty where the table was not there.

    ``changes`` are those since the moment before.
    """

    at: float
    run_id: str
    endpoint: str
    fingerprint: str
    changes: tuple[TableComparison, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the moment as a JSON object."""
        return {
            "at": self.at, "run": self.run_id, "endpoint": self.endpoint, "fingerprint": self.fingerprint,
            "changes": [one.as_json() for one in self.changes],
        }  # fmt: skip


def moments(store: ResultStore, table: str | None = None) -> Iterator[Moment]:
    """Yield what was kept, by endpoint and time; a reading that is as the one before it is left out.

    Parameters
    ----------
    table
        ``database.table`` on its endpoint; None for everything.
    """
    runs = sorted(snapshot_runs(store), key=lambda info: info.started)
    for endpoint in sorted({name for info in runs for name in endpoints_of(info)}):
        before: SideSchema | None = None
        for info in runs:
            for side in sides_of(store, info.run_id, endpoint) if endpoint in endpoints_of(info) else ():
                found = _moment(info.run_id, before, side, table)
                if found is not None:
                    yield found
                before = side


def _moment(run_id: str, before: SideSchema | None, side: SideSchema, table: str | None) -> Moment | None:
    changes = () if before is None else compare_over_time(before, side)
    told = tuple(one for one in changes if table is None or one.table == table)
    if before is not None and not told:
        return None
    known = side.by_name()
    if table is None:
        return Moment(side.local_time, run_id, side.endpoint, side.fingerprint, told)
    if before is None and table not in known:
        return None
    fingerprint = known[table].fingerprint if table in known else ""
    return Moment(side.local_time, run_id, side.endpoint, fingerprint, told)


def compare_named(scope: Scope, first: Snapshot, second: Snapshot, drift: Drift = Drift()) -> list[TableComparison]:  # noqa: B008 - frozen
    """Compare two snapshots: endpoints that both hold over time, else the sources of one with the target of another.

    Every table is told, the equal ones too; as ``endpoint/database.table`` where several endpoints are compared.

    Raises
    ------
    UsageError
        they hold nothing that can be compared.
    """
    if not all(any(side.tables for side in one.sides) for one in (first, second)):
        raise UsageError("one of the two holds no tables, so that nothing can be compared",
                         hint="`migverify schema snapshot` keeps what is in scope.")  # fmt: skip
    common = [side.endpoint for side in first.sides if second.side(side.endpoint) is not None]
    found: list[TableComparison] = []
    for name in common:
        before, after = first.side(name), second.side(name)
        if before is not None and after is not None:
            told = drift.apply(_over_time(before, after))
            found += [replace(c, table=f"{name}/{c.table}") for c in told] if len(common) > 1 else told
    if common:
        return found
    target = second.side(scope.config.target.name) or first.side(scope.config.target.name)
    names = {endpoint.name for endpoint in scope.config.sources}
    sources = [side for side in (*first.sides, *second.sides) if side.endpoint in names]
    if target is None or not sources:
        raise UsageError("the two hold no endpoint in common, and not a source and a target either",
                         hint="Give a snapshot, `source` or `target`.")  # fmt: skip
    return drift.apply(compare_sides(scope, sources, target))


def _over_time(before: SideSchema, after: SideSchema) -> list[TableComparison]:
    changed = compare_over_time(before, after)
    known = {one.table for one in changed}
    same = [
        TableComparison(table.name, (), {f"before/{table.name}": table.fingerprint})
        for table in after.tables
        if table.name not in known
    ]
    return sorted([*changed, *same], key=lambda one: one.table)
