"""What a new run takes over from an earlier one: equal chunks, and pairs of which only written rows are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Literal

from migverify.codec import decode
from migverify.config import Config, comparison_digest
from migverify.errors import PlanError
from migverify.model import ChunkResult, ChunkState, KeyRange, RunInfo, StoredKind, TableResult, Verdict
from migverify.sql.identity import TableIdentity
from migverify.store.results import RUNS_SEARCHED, ResultStore, named_run
from migverify.tables.quick import QuickRead
from migverify.tables.run_facts import ALL_TABLES, CHOSEN, carried_from, is_of_endpoints, planned_pairs
from migverify.tables.tasks import PairPlan
from migverify.tables.watch_identity import identities_of
from migverify.tables.watch_status import Base

CHUNKS_AT_ONCE = 1000
MOST_REASONS = 20
IsOwn = Callable[[RunInfo], bool]
"""Whether a run is of the configuration that asks: others may share the store."""
RESTS_ON_NOTHING = (
    "this watch rests on no run: of rows that are not written from now on it says nothing; begin it with --since RUN"
)


@dataclass(frozen=True, slots=True)
class SinceResult:
    """What the keys proved: the verdict of the pairs ``done``, with reasons of the streams.

    ``whole`` says why pairs are to be read whole, by their ids.
    """

    verdict: Verdict | None = None
    reasons: tuple[str, ...] = ()
    done: frozenset[str] = frozenset()
    whole: Mapping[str, str] = field(default_factory=dict)


def any_run(run: RunInfo) -> bool:
    """Whether a run may be ``last`` for who asks without a configuration: any is."""
    del run
    return True


def tables_run(
    store: ResultStore, name: str, digest: str | None = None, *, watch: bool | None = None, is_own: IsOwn = any_run
) -> RunInfo:
    """Return a run of the tables; ``watch`` says whether ``last`` is a watch or a verification, None for either."""

    def suits(run: RunInfo) -> bool:
        return watch is None or bool(run.facts.get("watch")) is watch

    return named_run(store, name, StoredKind.TABLES, digest, suits=suits, is_own=is_own)


def run_of_tables(store: ResultStore, name: str, config: Config | None = None) -> RunInfo:
    """Return a run of the tables, for those who show it: also a quick answer, where its id names it.

    ``last`` is the newest of the servers of the configuration; None: of any.
    """
    if name != "last" and (info := store.load_run(name)).kind is StoredKind.QUICK:
        return info
    if config is None:
        return named_run(store, name, StoredKind.TABLES)
    return tables_run(store, name, comparison_digest(config), is_own=lambda run: is_of_endpoints(run, config))


def run_to_resume(store: ResultStore, name: str, digest: str, is_own: IsOwn = any_run) -> RunInfo:
    """Return a verification or a quick answer to go on with; ``last`` is the newest of both."""
    kinds = (StoredKind.TABLES, StoredKind.QUICK)

    def suits(run: RunInfo) -> bool:
        return run.kind in kinds and not run.facts.get("watch")

    def newest() -> RunInfo | None:
        own = [run for run in store.runs(RUNS_SEARCHED) if suits(run) and is_own(run)]
        return next((run for run in own if run.plan_hash == digest), own[0] if own else None)

    named = store.load_run(name) if name != "last" else newest()
    kind = StoredKind.QUICK if named is not None and named.kind is StoredKind.QUICK else StoredKind.TABLES
    return named_run(store, name, kind, digest, suits=suits, is_own=is_own)


def quick_read(run: RunInfo) -> QuickRead | None:
    """Return what a quick answer reads; None for any other run.

    Raises
    ------
    PlanError
        the run does not say it, or in the words of another release.
    """
    if run.kind is not StoredKind.QUICK:
        return None
    try:
        return decode(QuickRead, run.facts.get("quick"))
    except ValueError as error:
        raise PlanError(f"run {run.run_id}: what it reads is not known: {error}", hint="Start a new run.") from error


def proof_run(
    store: ResultStore, name: str, digest: str, *, watches: Literal["none", "proved", "all"] = "none",
    is_own: IsOwn = any_run,
) -> RunInfo:  # fmt: skip
    """Return a run that another can rest on: a verification, which read whole tables; with ``watches`` also a watch.

    A repair read again only the rows that it wrote, and a watch only those that were written while it ran. What goes on
    where a watch ended (``proved``) would not be known either if that watch is running, or ended otherwise than MATCH:
    ``last`` is none of these. A recheck wants ``all``: it reads what the newest run did not find equal.

    Raises
    ------
    PlanError
        the run of this name is a repair or a watch.
    UsageError
        there is no such run.
    """

    def suits(run: RunInfo) -> bool:
        return not run.facts.get("repairs") and (watches != "none" or not run.facts.get("watch"))

    def proves(run: RunInfo) -> bool:
        return suits(run) and (watches == "all" or not run.facts.get("watch") or run.verdict is Verdict.MATCH)

    info = named_run(store, name, StoredKind.TABLES, digest, suits=proves, is_own=is_own)
    if not suits(info):
        what, before = ("repair", "repairs") if info.facts.get("repairs") else ("watch", "since")
        rest = str(info.facts.get(before) or "")
        raise PlanError(
            f"run {info.run_id} is a {what}: it did not read whole tables, so nothing can rest on it",
            hint=f"Name the verification that it began with, {rest}, or a newer one."
            if rest
            else "Name a verification.",
        )
    return info


def rests_on(run: RunInfo) -> str:
    """Return which run another one rests on, and where it may have proved less than all, what to do about it."""
    kind = "watch" if run.facts.get("watch") else "verification"
    state = f"ended {run.verdict}" if run.finished is not None else "has not ended"
    text = f"it rests on run {run.run_id}, a {kind} that {state}"
    if run.verdict is Verdict.MATCH:
        return text
    return f"{text}: tables that it did not prove stay INCONCLUSIVE; {read_again(run.run_id)}"


def read_again(run_id: str) -> str:
    """Return how the tables are proved that a run did not prove."""
    return f"read them again by migverify tables verify --recheck {run_id}, and begin a watch --since that run"


def refuse_other(run: RunInfo, digest: str, hint: str) -> None:
    """Refuse a run whose configuration compared something else; raises PlanError with what to do about it."""
    if run.plan_hash != digest:
        raise PlanError(
            f"run {run.run_id} compared something else: tables, routes or overrides of the configuration changed",
            hint=hint,
        )


def bases_of(store: ResultStore, runs: Sequence[RunInfo], pairs: Sequence[PairPlan]) -> dict[int, Base]:
    """Return what the newest of the runs says of each pair; a recheck has results of what it read again alone."""
    if not runs:
        return {}
    results: dict[str, Base] = {}
    origins = _Origins(store)
    for run in reversed(_proofs(runs)):
        for result in store.table_results(run.run_id):
            # Of a watch that started alone, only the written rows were compared.
            whole = not run.facts.get("watch") or result.details.get("whole")
            results[result.pair] = origins.base(run.run_id, result) if whole else Base()
    missing = Base(runs[0].run_id, Verdict.INCONCLUSIVE, "it was not verified in that run")
    return {number: results.get(pair.id, missing) for number, pair in enumerate(pairs)}


class _Origins:
    """Finds the run in which a pair was not proved first: a watch that rests on it repeats its reasons."""

    def __init__(self, store: ResultStore) -> None:
        self._store = store
        self._results: dict[str, dict[str, TableResult]] = {}

    def base(self, run_id: str, result: TableResult) -> Base:
        """Return what a run says of a pair, with the reasons of the run that it rests on where that proved less."""
        origin, first = run_id, result
        while first.verdict is Verdict.INCONCLUSIVE and (before := str(first.details.get("since_run") or "")):
            earlier = self._of(before).get(result.pair)
            if earlier is None or earlier.verdict is not Verdict.INCONCLUSIVE:
                break
            origin, first = before, earlier
        rests = "" if origin == run_id else origin
        return Base(run_id, result.verdict, "; ".join(first.reasons), rests)

    def _of(self, run_id: str) -> dict[str, TableResult]:
        if run_id not in self._results:
            self._results[run_id] = {result.pair: result for result in self._store.table_results(run_id)}
        return self._results[run_id]


def newest_plans(runs: Sequence[RunInfo]) -> dict[str, RunInfo]:
    """Return for each pair the first of the runs, newest first, that planned it."""
    return {pair: run for run in reversed(_proofs(runs)) for pair in planned_pairs(run)}


def _proofs(runs: Sequence[RunInfo]) -> list[RunInfo]:
    """Return the first run, and the later ones that are no watch: its MATCH may be that of the written rows alone."""
    return [*runs[:1], *(run for run in runs[1:] if not run.facts.get("watch"))]


def carry_over(store: ResultStore, old: str, new: str, pair: str) -> int:
    """Copy the equal chunks of a pair from run ``old`` to run ``new``; returns how many.

    Each unbroken stretch of equal chunks becomes a finished span of the new run, and everything else a span with
    nothing done. Resuming the new run then reads just the rest.
    """
    number = carried = 0
    chunks = groupby(store.chunks(old, pair), key=lambda chunk: chunk.span)
    done = {span: list(_stretches(part)) for span, part in chunks}
    for span, key_range in store.spans(old, pair):
        for piece, members in _with_rest(key_range, done.get(span, [])):
            store.add_span(new, pair, number, piece)
            for start in range(0, len(members), CHUNKS_AT_ONCE):
                batch = [
                    _renumbered(c, number, start + n) for n, c in enumerate(members[start : start + CHUNKS_AT_ONCE])
                ]
                store.add_chunks(new, batch, [])
                carried += len(batch)
            number += 1
    return carried


def _stretches(chunks: Iterator[ChunkResult]) -> Iterator[list[ChunkResult]]:
    for equal, members in groupby(chunks, key=lambda chunk: chunk.state is ChunkState.EQUAL):
        if equal:
            yield list(members)
        else:
            yield from ([member] for member in members)


def _with_rest(key_range: KeyRange, stretches: list[list[ChunkResult]]) -> Iterator[tuple[KeyRange, list[ChunkResult]]]:
    """Yield (range, equal chunks to carry) for a span; the part that was never reached comes last."""
    end = key_range.lower
    finished = False
    for members in stretches:
        end = members[-1].range.upper
        finished = key_range.nulls or end == key_range.upper
        piece = KeyRange(members[0].range.lower, end, key_range.nulls)
        yield piece, members if members[0].state is ChunkState.EQUAL else []
    if not finished:
        yield KeyRange(end, key_range.upper, key_range.nulls), []


def _renumbered(chunk: ChunkResult, span: int, number: int) -> ChunkResult:
    return ChunkResult(
        chunk.pair, span, number, chunk.range, chunk.state, chunk.source, chunk.target, chunk.started, chunk.seconds,
        chunk.source_seconds, chunk.target_seconds, chunk.attempts, chunk.reason,
    )  # fmt: skip


def pairs_to_recheck(store: ResultStore, run_id: str) -> set[str]:
    """Return the ids of the pairs of a verification or a watch that were not MATCH, those never reached included."""
    equal = {result.pair for result in store.table_results(run_id) if result.verdict is Verdict.MATCH}
    return planned_pairs(store.load_run(run_id)).keys() - equal


def redefined_pairs(
    store: ResultStore, run: RunInfo, layouts: Mapping[str, Mapping[str, str]],
    identities: Mapping[str, Mapping[str, TableIdentity]],
) -> dict[str, str]:  # fmt: skip
    """Return the pairs whose tables are others than a verification, or one that it takes over from, read; with why.

    A table that is in scope now and was not planned then was made since, or the user could not see it: it was not read.
    ``layouts`` and ``identities`` are those of now. A watch follows changes of its tables by itself.
    """
    chain = carried_from(store, run)
    found = dict.fromkeys(_unplanned(chain, layouts), f"run {run.run_id} did not know it: {_UNKNOWN}")
    if run.facts.get("watch"):
        return found
    entries = _planned_by(chain)
    for pair in entries.keys() & layouts.keys():
        read, now = entries[pair], identities.get(pair, {})
        if read.get("layouts") and read["layouts"] != layouts[pair]:
            found[pair] = f"its definition changed since run {run.run_id}"
        elif any(
            name in now and then.is_replaced_by(now[name])
            for name, then in identities_of(read.get("identities") or {}).items()
        ):
            found[pair] = f"it was emptied, swapped, restored or rebuilt since run {run.run_id}"
    return found


_FEW = 3
_UNKNOWN = "made since, or its user could not see it"


def _unplanned(chain: Sequence[RunInfo], names: Iterable[str]) -> list[str]:
    """Return which pairs of now a run of all tables, and those that it takes over from, did not plan to read."""
    if any(one.facts.get("repairs") or one.facts.get(CHOSEN, ALL_TABLES) != ALL_TABLES for one in chain):
        return []
    return sorted(set(names) - _planned_by(chain).keys())


def not_planned(store: ResultStore, run: RunInfo, names: Iterable[str]) -> list[str]:
    """Return the reason why a run that was resumed is no verdict of all tables, if it is none."""
    pairs = _unplanned(carried_from(store, run), names)
    if not pairs:
        return []
    some = ", ".join(pairs[:_FEW]) + (f" and {len(pairs) - _FEW:,} more" if len(pairs) > _FEW else "")
    tables = "1 table is" if len(pairs) == 1 else f"{len(pairs):,} tables are"
    return [
        f"{tables} in scope now that run {run.run_id} did not know when it began ({some}): {_UNKNOWN};"
        f" `migverify tables verify --recheck {run.run_id}` reads what is missing"
    ]


def _planned_by(chain: Sequence[RunInfo]) -> dict[str, Mapping[str, Any]]:
    entries: dict[str, Mapping[str, Any]] = {}
    for one in reversed(chain):
        entries |= planned_pairs(one)
    return entries


def first_reasons(reasons: Mapping[str, str]) -> dict[str, str]:
    """Return why pairs are read whole, of at most a page of them; the rest is counted."""
    if len(reasons) <= MOST_REASONS:
        return dict(reasons)
    return dict(list(reasons.items())[:MOST_REASONS]) | {"other tables": f"{len(reasons) - MOST_REASONS:,}"}
