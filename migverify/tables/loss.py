"""What would be lost if the application went back to the source now: writes of the target that it does not hold.

The ledger of the reverse watch knows every key that was written on the target and is not proved on the source. They
are read on both sides now: what differs would be lost. Writes behind the place to which the watch has read are not
known, so every statement is one as of that place.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from migverify.changes.positions import tso_time
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.db.snapshot import current_timestamp
from migverify.errors import EndpointError, ReadError, UsageError
from migverify.model import RunInfo, StoredKind, Verdict
from migverify.secrets import scrub
from migverify.store.results import RUNS_SEARCHED, ResultStore, named_run
from migverify.store.run_leases import RunProcess, writer_of
from migverify.tables.diff import PairReader, Texts, read_rows, rows_at_once
from migverify.tables.lost_keys import LossCounts, LostKeys
from migverify.tables.outcome import verdict_of
from migverify.tables.prepare import PreparedTables, rules_of
from migverify.tables.recheck import IsOwn, any_run, refuse_other
from migverify.tables.run_facts import began_at, planned_pairs
from migverify.tables.sweep import rounds_of
from migverify.tables.tasks import PairPlan
from migverify.tables.watch_check import differing_rows
from migverify.tables.watch_ranges import sweepable
from migverify.tables.watch_status import uncarried
from migverify.watch.ledger import NO_PAIR
from migverify.watch.ledger_read import LedgerState, UnprovedKey, has_read, read_ledger
from migverify.watch.run import DRAIN
from migverify.watch.touched import form_of

KEYS_AT_ONCE = 500
MAX_UNREAD = 10.0
"""Default of how many seconds of writes may be unknown."""
START_REVERSE = "Start one: migverify tables watch --reverse --since RUN"
TARGET_SOURCE = 0
"""Number of the target's stream in the ledger of a reverse watch: it has one."""


class LostRows(Protocol):
    """Receives the rows of lost keys, a batch at a time: canonical texts of the compared columns, by key."""

    def needs(self, pair: PairPlan) -> bool:
        """Whether the rows of a pair are to be read."""
        ...

    def add(self, pair: PairPlan, rows: Sequence[tuple[Sequence[Texts], Sequence[Texts]]]) -> None:
        """Take for each key its rows on the source, and those on the target."""
        ...


@dataclass(frozen=True, slots=True)
class SweepReach:
    """What a watch without a changefeed knows: each range is compared again within so many minutes.

    ``since`` is the oldest moment (TSO) as of which a range was compared last, None before every table was compared.
    """

    minutes: float
    since: int | None


@dataclass(frozen=True, slots=True)
class WatchState:
    """How far the reverse watch is.

    ``began`` and ``read`` are timestamps (TSO) of the target: from where on and up to where its writes are known, None
    while nothing was read. ``now`` is the target's timestamp at the same moment. ``progress_seconds`` is how long ago
    the watch wrote its ledger. ``ended`` says since when it is over, as Unix time. ``sweep`` is given where no
    changefeed shows what is written; then ``read`` is None. ``writer`` is the process of the watch.
    """

    began: int | None
    read: int | None
    now: int
    progress_seconds: float
    unproved: int
    ended: float | None
    sweep: SweepReach | None = None
    writer: RunProcess | None = None

    @property
    def unread_seconds(self) -> float | None:
        """Seconds of writes that are not known yet."""
        return None if self.read is None else max(0.0, tso_time(self.now) - tso_time(self.read))

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended, by its process; its changefeed may be silent."""
        return self.ended is None and self.writer is not None and self.writer.is_alive


@dataclass(frozen=True, slots=True)
class TableLoss:
    """What would be lost of one table. ``unknown`` says why the counts may be too small."""

    number: int
    source: str
    target: str
    counts: LossCounts
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loss:
    """The answer: ``unknown`` are the reasons why the loss may be larger than the counts say."""

    run_id: str
    verdict: Verdict
    watch: WatchState
    counts: LossCounts
    tables: tuple[TableLoss, ...]
    unknown: tuple[str, ...]
    max_unread: float

    @property
    def oldest_seconds(self) -> float | None:
        """Age of the oldest write that would be lost; None where none is known."""
        return None if self.counts.oldest is None else max(0.0, tso_time(self.watch.now) - tso_time(self.counts.oldest))

    @property
    def reasons(self) -> tuple[str, ...]:
        """All reasons why more may be lost, those of tables with their name."""
        return (*self.unknown, *(f"{table.source}: {why}" for table in self.tables for why in table.unknown))


def reverse_run(
    store: ResultStore, name: str, digest: str, ledgers: Path | None = None, is_own: IsOwn = any_run
) -> RunInfo:
    """Return a reverse watch by its run; ``last`` is one of the servers that ask that was begun to run on.

    Of several, ``last`` is the newest that is alive, or else the newest that has read something.

    Parameters
    ----------
    ledgers
        Folder of the watches' ledgers; None where what they have read does not count.

    Raises
    ------
    UsageError
        the store holds no such run, or it is no reverse watch.
    PlanError
        it watched something else.
    """
    name = _last_reverse(store, digest, ledgers, is_own) if name == "last" else name
    run = named_run(store, name, StoredKind.TABLES, digest)
    if not run.facts.get("reverse"):
        raise UsageError(
            f"run {run.run_id} is no reverse watch, so it does not know what was written on the target",
            hint=START_REVERSE,
        )
    refuse_other(run, digest, "Put the configuration back as it was, or start a new reverse watch.")
    return run


def _last_reverse(store: ResultStore, digest: str, ledgers: Path | None, is_own: IsOwn) -> str:
    runs = [
        run for run in store.runs(RUNS_SEARCHED)
        if run.kind is StoredKind.TABLES and run.facts.get("reverse") and not run.facts.get(DRAIN) and is_own(run)
    ]  # fmt: skip
    if not runs:
        raise UsageError(
            "the store holds no reverse watch of these servers that was begun to run on, among its newest"
            f" {RUNS_SEARCHED:,} runs",
            hint=START_REVERSE,
        )
    return best_reverse(store, runs, digest, ledgers).run_id


def best_reverse(store: ResultStore, runs: Sequence[RunInfo], digest: str, ledgers: Path | None) -> RunInfo:
    """Return of some reverse watches, newest first, the newest that is alive, or else that has read something."""

    def rank(run: RunInfo) -> tuple[bool, bool, bool]:
        # A watch that was refused at its start is the newest run, and knows nothing.
        writer = writer_of(store.database, run.run_id) if run.finished is None else None
        is_alive = writer is not None and writer.is_alive
        return run.plan_hash == digest, is_alive, ledgers is None or has_read(ledgers / f"watch-{run.run_id}.db")

    return max(runs, key=rank)


def find_loss(
    prepared: PreparedTables, config: Config, store: ResultStore, run: RunInfo, ledger: Path, pool: SessionPool,
    lost: LostKeys, rows: LostRows | None = None, max_unread: float = MAX_UNREAD,
) -> tuple[Loss, dict[int, PairPlan]]:  # fmt: skip
    """Read the unproved keys of a reverse watch on both sides, and return what would be lost.

    Parameters
    ----------
    ledger
        The watch's ledger; it is only read.
    lost
        Receives the lost keys.
    rows
        Receives their rows.
    max_unread
        Seconds of writes that may be unknown.

    Returns
    -------
    loss, pairs
        The loss, and the plan of each pair by its number in the ledger, where it can be read.

    Raises
    ------
    StoreError
        the ledger cannot be read.
    """
    state = read_ledger(ledger, lost.add_unproved)
    plans = plans_of(prepared, run)
    watch = watch_state(config, store, run, state, pool, lost.count_unproved(), plans)
    with_keys = set(lost.pairs())
    tables = []
    for number, entry in enumerate(planned_pairs(run).values()):
        gaps = table_gaps(number, state)
        gaps += _unwatched(plans.get(number), watch)
        if number in with_keys:
            gaps += _read_pair(number, plans.get(number), config, pool, lost, rows)
        tables.append(
            TableLoss(number, str(entry["source"]), str(entry["target"]), lost.counts(number), tuple(gaps))
        )  # fmt: skip
    unknown = tuple(watch_gaps(run, watch, state, max_unread))
    if not tables:
        unknown += (f"watch {run.run_id} watches no table",)
    counts = lost.counts()
    mismatches = [f"{counts.keys:,}"] if counts.keys else []
    verdict = verdict_of(mismatches, [*unknown, *(why for table in tables for why in table.unknown)])
    return Loss(run.run_id, verdict, watch, counts, tuple(tables), unknown, max_unread), plans


def plans_of(prepared: PreparedTables, run: RunInfo) -> dict[int, PairPlan]:
    """Return the plan of each pair of a watch by its number in the ledger, where it can be read now."""
    by_id = {pair.id: pair for pair in prepared.pairs()}
    ids = [str(entry["id"]) for entry in planned_pairs(run).values()]
    return {number: by_id[pair] for number, pair in enumerate(ids) if pair in by_id}


def watch_state(
    config: Config, store: ResultStore, run: RunInfo, state: LedgerState, pool: SessionPool, unproved: int,
    plans: Mapping[int, PairPlan],
) -> WatchState:  # fmt: skip
    """Return how far a reverse watch is, by its ledger and the clock of the target."""
    with pool.session(config.target) as session:
        now = current_timestamp(session)
    sweep = _sweep_reach(run, state, plans)
    # The ledger of a sweep holds the time of the target, not a place up to which changes were read.
    read = state.read.get(TARGET_SOURCE) if sweep is None else None
    began = began_at(store, run, config.target.name)
    return WatchState(
        began.offset if began is not None else None, read.offset if read is not None else None, now,
        max(0.0, time.time() - state.written), unproved, run.finished, sweep,
        writer_of(store.database, run.run_id),
    )  # fmt: skip


def _sweep_reach(run: RunInfo, state: LedgerState, plans: Mapping[int, PairPlan]) -> SweepReach | None:
    """Return how far the rounds of a watch without a changefeed are; None for a watch with one."""
    if not run.facts.get("sweep"):
        return None
    swept = [number for number, pair in plans.items() if sweepable(pair)]
    moments = [rounds_of(state.rounds[number]).oldest if number in state.rounds else None for number in swept]
    known = [moment for moment in moments if moment is not None]
    return SweepReach(float(run.facts["sweep"]), min(known) if known and len(known) == len(moments) else None)


def _unwatched(pair: PairPlan | None, watch: WatchState) -> Iterator[str]:
    """Yield why the watch does not see what is written to a pair."""
    if watch.sweep is not None:
        if pair is None or not sweepable(pair):
            yield "it is not swept: it has no key by which both sides can be cut alike"
    elif pair is not None and (why := uncarried(pair)):
        yield why


def watch_gaps(run: RunInfo, watch: WatchState, state: LedgerState, max_unread: float) -> Iterator[str]:
    """Yield why a reverse watch does not know every write of the target, but for the last ``max_unread`` seconds."""
    if watch.ended is not None:
        yield f"watch {run.run_id} has ended ({run.verdict}): what was written since is not known"
    elif not watch.is_alive:
        yield (
            f"watch {run.run_id} is not alive: {_why_gone(watch.writer)}; "
            f"go on with: migverify tables watch --reverse --resume {run.run_id}"
        )
    if watch.sweep is not None:
        yield _sweep_gap(watch.sweep, watch.now)
    elif watch.unread_seconds is None:
        yield "nothing was read from the changefeed yet"
    elif watch.unread_seconds > max_unread:
        if watch.is_alive:
            # The watch writes its ledger also when it received nothing: only the place says how old the news are.
            yield (
                f"watch {run.run_id} is alive, and the changefeed has been silent for {watch.unread_seconds:.0f} "
                "seconds or is that far behind"
            )
        yield (
            f"the changefeed was read to {watch.unread_seconds:.0f} seconds ago: what was written since is not known "
            f"(at most {max_unread:g} seconds may be unread)"
        )
    for reason in state.reasons:
        yield f"the watch says: {reason}"
    for number, kind, text in state.notes:
        if number < 0:
            yield _uncovered(text) if kind == "uncovered" else f"{kind}: {text}"


def _why_gone(writer: RunProcess | None) -> str:
    if writer is None:
        return "the store does not know its process"
    return f"{writer} has ended, or sends no heartbeats (the last one {writer.heartbeat_seconds:.0f} seconds ago)"


def _sweep_gap(sweep: SweepReach, now: int) -> str:
    bound = f"without a changefeed only the bound of the sweep is known ({sweep.minutes:g} minutes)"
    if sweep.since is None:
        return f"{bound}, and not every table was compared yet"
    minutes = max(0.0, tso_time(now) - tso_time(sweep.since)) / 60
    return f"{bound}: rows that were written on the target in the last {minutes:.1f} minutes are not seen"


def _uncovered(text: str) -> str:
    endpoint, database, table = json.loads(text)
    return f"{endpoint}: {database}.{table} is written, and no table pair covers it"


def table_gaps(number: int, state: LedgerState) -> list[str]:
    """Return why not every write of a pair is among the keys of the ledger."""
    gaps = []
    for pair, kind, text in state.notes:
        if pair != number or pair == NO_PAIR:
            continue
        if kind == "stale":
            gaps.append(f"it may hold other rows, and is not compared again yet: {text}")
        elif kind == "keyless":
            gaps.append("rows were written, and the table has no key to read them by")
    return list(dict.fromkeys(gaps))


# --- one pair ----------------------------------------------------------------------------------------------------


def _read_pair(
    number: int, pair: PairPlan | None, config: Config, pool: SessionPool, lost: LostKeys, rows: LostRows | None
) -> list[str]:
    """Read the unproved keys of a pair on both sides; returns why not all could be."""
    if pair is None or not pair.readable:
        return ["the table is not on both sides now"]
    taken = rows if rows is not None and rows.needs(pair) else None
    try:
        with closing(PairReader.open(pair, pool, replace(rules_of(config), live=True))) as reader:
            for keys in lost.unproved(number, min(KEYS_AT_ONCE, rows_at_once(pair))):
                _read_keys(reader, number, keys, lost, taken)
    except (ReadError, EndpointError) as error:
        return [f"not all of its keys could be read: {scrub(error.message)}"]
    return []


def _read_keys(
    reader: PairReader, number: int, keys: Sequence[UnprovedKey], lost: LostKeys, rows: LostRows | None
) -> None:
    diffs, _ = differing_rows(reader, [entry.key for entry in keys])
    if not diffs:
        return
    entries: Mapping[tuple[str | None, ...], UnprovedKey] = {entry.key: entry for entry in keys}
    now = time.time()
    found = []
    for diff in diffs:
        form = form_of(reader.key, diff.key)
        # A collation may find rows of other keys.
        found.append((entries.get(form) or UnprovedKey(number, form, 0, 0, now, "found"), diff))
    lost.add_lost(found)
    if rows is not None:
        ours, theirs = read_rows(reader, [diff.key for diff in diffs])
        rows.add(reader.pair, [
            ([texts for _, texts in ours.get(d.key, [])], [texts for _, texts in theirs.get(d.key, [])]) for d in diffs
        ])  # fmt: skip
