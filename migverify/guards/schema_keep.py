"""Snapshots in the result store, and the runs that a change made stale.

A run of the schema guard keeps each side whole, under the endpoint's name, whenever it is not what it was before. A
run of `tables` keeps the fingerprint of each table's layout in its plan; that of another command keeps none, and is
judged by the snapshot that was the newest when it began.
"""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from migverify.codec import decode, encode
from migverify.errors import StoreError, UsageError
from migverify.guards.keep import earlier, guards_of
from migverify.guards.model import AnswerState, GuardAnswer, GuardResult
from migverify.guards.schema_diff import compare_over_time, compare_sides
from migverify.guards.schema_drift import Drift
from migverify.guards.schema_model import COMMAND, FORM, NAME, DefinitionComparison, SideSchema, Snapshot
from migverify.guards.scope import Scope
from migverify.model import RunInfo, StoredKind
from migverify.store.results import ResultStore

BLOB = "schema"
NEWEST = 500
"""How many runs of any kind are looked through."""


def keep_side(store: ResultStore, run_id: str, side: SideSchema) -> None:
    """Append what an endpoint holds to a run."""
    text = json.dumps({"form": FORM, "side": encode(side)}, ensure_ascii=False, separators=(",", ":"))
    # 1,000 tables are 5 MB of text, of which most repeats.
    store.add_blob(run_id, side.endpoint, BLOB, zlib.compress(text.encode("utf-8", "surrogateescape")))


def sides_of(store: ResultStore, run_id: str, endpoint: str) -> Iterator[SideSchema]:
    """Yield what a run kept of an endpoint, in order.

    Raises
    ------
    StoreError
        another version wrote it.
    """
    for content in store.blobs(run_id, endpoint, BLOB):
        try:
            body = json.loads(zlib.decompress(content).decode("utf-8", "surrogateescape"))
            if body.get("form") != FORM:
                raise ValueError(f"its form is {body.get('form')}, not {FORM}")
            yield decode(SideSchema, body["side"])
        except (ValueError, KeyError, zlib.error) as error:
            raise StoreError(
                f"run {run_id}: the schema of {endpoint} cannot be read: {error}",
                hint="Another version of migverify wrote it: read it with that one.",
            ) from error


def endpoints_of(info: RunInfo) -> list[str]:
    """Return the endpoints whose definitions a run of the schema guard keeps."""
    return [str(name) for name in info.facts.get("endpoints", {})]


def load_snapshot(store: ResultStore, run: str) -> Snapshot:
    """Return the last definitions that a run kept.

    Raises
    ------
    UsageError
        it kept none.
    """
    found = _last(store, store.load_run(run))
    if found is None:
        raise UsageError(f"run {run} keeps no definitions", hint="`migverify guard schema --snapshot` keeps some.")
    return found


def newest_snapshot(store: ResultStore, servers: Mapping[str, str], *, taken: bool = True) -> Snapshot | None:
    """Return the newest definitions of these servers; ``taken`` only those of ``guard schema --snapshot``."""
    for info in earlier(store, NAME, servers):
        if not taken or info.plan.get("snapshot"):
            found = _last(store, info)
            if found is not None:
                return found
    return None


def _last(store: ResultStore, info: RunInfo) -> Snapshot | None:
    sides = []
    for endpoint in endpoints_of(info):
        side = None
        for side in sides_of(store, info.run_id, endpoint):  # noqa: B007 - the last one counts
            pass
        if side is not None:
            sides.append(side)
    return Snapshot(info.started, tuple(sides), info.run_id) if sides else None


def kept_result(snapshot: Snapshot) -> GuardResult:
    """Return what a run that keeps a snapshot says: it judges nothing, so nothing passes."""
    why = "Later changes are compared with what is kept here."
    answers = tuple(
        GuardAnswer(NAME, "snapshot", side.endpoint, AnswerState.INCONCLUSIVE,
               f"{len(side.tables)} tables kept ({side.fingerprint[:12]}); nothing was compared", "", COMMAND, why, "",
               side.server_time, side.local_time)
        for side in snapshot.sides
    )  # fmt: skip
    return GuardResult(NAME, answers, snapshot.taken, max(0.0, time.time() - snapshot.taken))


@dataclass(frozen=True, slots=True)
class Stale:
    """A run that a change made stale. ``recorded`` is False where a snapshot taken before it says so."""

    run_id: str
    command: str
    started: float
    recorded: bool

    def __str__(self) -> str:
        how = "" if self.recorded else ", by the snapshot before it"
        return f"{self.run_id} ({' '.join(self.command.split())[:80]}{how})"


@dataclass(frozen=True, slots=True)
class _KnownRun:
    """What is known of a run: fingerprints by ``endpoint/database.table``, None where it recorded none."""

    info: RunInfo
    layouts: Mapping[str, str] | None


class EarlierRuns:
    """The runs of a store that tell whether data agrees, read once."""

    def __init__(self, store: ResultStore, leave_out: str = "") -> None:
        self._runs: list[_KnownRun] = []
        self._snapshots: list[tuple[float, dict[str, str]]] = []
        for info in store.runs(NEWEST):
            if info.run_id == leave_out:
                continue
            whole = store.load_run(info.run_id)
            if NAME in guards_of(whole):
                self._snapshots += _times(store, whole)
            elif info.kind is not StoredKind.GUARDS:
                self._runs.append(_KnownRun(whole, layouts_of(whole.plan)))
        self._snapshots.sort(key=lambda one: -one[0])

    def stale(self, endpoint: str, table: str, layout: str | None) -> list[Stale]:
        """Return the runs that knew a table with another layout than it has now; None where it is gone."""
        name = f"{endpoint}/{table}"
        found = []
        for known in self._runs:
            before = None if known.layouts is None else known.layouts.get(name)
            recorded = known.layouts is not None
            if not recorded:
                before = self._at(known.info.started, name)
            if before is not None and before != layout:
                found.append(Stale(known.info.run_id, known.info.command, known.info.started, recorded))
        return found

    def _at(self, moment: float, name: str) -> str | None:
        held = next((tables for taken, tables in self._snapshots if taken <= moment), None)
        return None if held is None else held.get(name)


def layouts_of(plan: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the fingerprints that a run of `tables` recorded in its plan; None where it recorded none."""
    pairs = plan.get("pairs")
    if not isinstance(pairs, list):
        return None
    recorded = [pair["layouts"] for pair in pairs if isinstance(pair, dict) and isinstance(pair.get("layouts"), dict)]
    if not recorded:
        return None
    return {str(name): str(layout) for layouts in recorded for name, layout in layouts.items()}


def _times(store: ResultStore, info: RunInfo) -> Iterator[tuple[float, dict[str, str]]]:
    """Yield when an endpoint's definitions were read, and the layouts, over all endpoints of the run."""
    held: dict[str, str] = {}
    sides = [side for endpoint in endpoints_of(info) for side in sides_of(store, info.run_id, endpoint)]
    for side in sorted(sides, key=lambda one: one.local_time):
        for name in [name for name in held if name.startswith(f"{side.endpoint}/")]:
            del held[name]
        held |= {f"{side.endpoint}/{table.name}": table.layout for table in side.tables}
        yield side.local_time, dict(held)


def compare_named(
    scope: Scope,
    first: Snapshot,
    second: Snapshot,
    drift: Drift = Drift(),  # noqa: B008 - frozen
) -> list[DefinitionComparison]:
    """Compare two snapshots: endpoints that both hold over time, else the sources of one with the target of another.

    Every table is listed, the equal ones too; as ``endpoint/database.table`` where several endpoints are compared.

    Raises
    ------
    UsageError
        they hold nothing that can be compared.
    """
    if not all(any(side.tables for side in one.sides) for one in (first, second)):
        raise UsageError("one of the two holds no tables, so that nothing can be compared",
                         hint="`migverify guard schema --snapshot` keeps what is in scope.")  # fmt: skip
    common = [side.endpoint for side in first.sides if second.side(side.endpoint) is not None]
    found: list[DefinitionComparison] = []
    for name in common:
        before, after = first.side(name), second.side(name)
        if before is not None and after is not None:
            reported = drift.apply(_over_time(before, after))
            found += [replace(c, table=f"{name}/{c.table}") for c in reported] if len(common) > 1 else reported
    if common:
        return found
    target = second.side(scope.config.target.name) or first.side(scope.config.target.name)
    names = {endpoint.name for endpoint in scope.config.sources}
    sources = [side for side in (*first.sides, *second.sides) if side.endpoint in names]
    if target is None or not sources:
        raise UsageError("the two hold no endpoint in common, and not a source and a target either",
                         hint="Give a snapshot, `source` or `target`.")  # fmt: skip
    return drift.apply(compare_sides(scope, sources, target))


def _over_time(before: SideSchema, after: SideSchema) -> list[DefinitionComparison]:
    changed = compare_over_time(before, after)
    known = {one.table for one in changed}
    same = [
        DefinitionComparison(table.name, (), {f"before/{table.name}": table.fingerprint})
        for table in after.tables
        if table.name not in known
    ]
    return sorted([*changed, *same], key=lambda one: one.table)
