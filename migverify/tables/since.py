"""A second proof whose cost follows the changes: only rows that the binlog names since an earlier run are read again.

``tables verify --since RUN`` rests on the earlier run for every row that was not written since RUN began. The source's
binlog is read from RUN's position to where it ends now, each key it names goes into a ledger (a file, so memory does
not grow with their number), and the watch reads these keys on both sides until they are equal or differ for certain.
Pairs for which that is no proof are read whole: RUN did not prove them, their definition or identity changed, the
binlog has a gap, rows without a key were written, or so many rows that reading the table costs less.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from migverify.changes.model import Position
from migverify.changes.server import refuse_incomplete
from migverify.config import Config
from migverify.db.pool import SessionPool
from migverify.errors import ChangeError, PrivilegeError, UsageError
from migverify.model import Endpoint, NotCovered, RunInfo, TableResult, Verdict
from migverify.store.results import ResultStore
from migverify.tables.prepare import PreparedTables, rules_of
from migverify.tables.recheck import SinceResult, first_reasons
from migverify.tables.run_facts import carried_from, planned_pairs, position_of_run
from migverify.tables.tasks import PairPlan, Secrets, read_now
from migverify.tables.verify import Controls, VerifyProgress
from migverify.tables.watch import TablesWatch
from migverify.tables.watch_begin import place_of_run
from migverify.tables.watch_identity import changes, hidden_cascades, identities_of
from migverify.tables.watch_run import replanned
from migverify.tables.watch_status import Base, TablesStatus, WatchRules
from migverify.tables.watch_streams import stream_of, watched_pairs
from migverify.watch.applied import SettleTime
from migverify.watch.collect import CatchUp, ChangeCollector
from migverify.watch.ledger import BY_FILE, Ledger
from migverify.watch.stream import Stream, StreamFinding

WHOLE = "whole"
"""Kind of the ledger's notes that say why a pair is read whole."""
DENSE_SHARE = 0.05
"""From this share of written rows on a table is read whole: a lookup by key costs about twenty rows of a chunk."""
MOST_OF_SMALL = 1000
"""So many keys are read one by one in any case: the estimate of a table's rows may be far off."""
POLL_SECONDS = 0.05
UNWRITTEN = "unwritten rows"
OUTSIDE = (
    "rows that the source's binlog does not show as written since run {run}: they rest on that run, so a change on the"
    " target that no write of the source explains, and a write with sql_log_bin=0, are not seen"
)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier runs proved: the one that was named first, then those whose equal chunks it carried over.

    ``results`` are the newest per pair, with the run that holds them, and ``entries`` what that run kept of its plan.
    """

    runs: tuple[RunInfo, ...]
    results: Mapping[str, tuple[RunInfo, TableResult]]
    entries: Mapping[str, Mapping[str, object]]

    @classmethod
    def read(cls, store: ResultStore, run_id: str) -> Earlier:
        """Read the results of a run, and of the runs that it is a recheck of."""
        runs = carried_from(store, store.load_run(run_id))
        results: dict[str, tuple[RunInfo, TableResult]] = {}
        entries: dict[str, Mapping[str, object]] = {}
        for run in reversed(runs):
            planned = planned_pairs(run)
            for result in store.table_results(run.run_id):
                results[result.pair] = run, result
                entries[result.pair] = planned.get(result.pair, {})
        return cls(tuple(runs), results, entries)


def verify_since(
    prepared: PreparedTables,
    config: Config,
    secrets: Secrets,
    store: ResultStore,
    run_id: str,
    since: str,
    folder: Path,
    controls: Controls,
) -> SinceResult:
    """Prove the pairs that need only their written keys read again, and record their results under ``run_id``.

    Parameters
    ----------
    since
        The run that the proof rests on; its plan must be of the same configuration.
    folder
        Where the ledger is kept: a run that was killed goes on from it.
    controls
        Progress and the time limit of the run; a pause file is not looked at while keys are read.

    Returns
    -------
    SinceResult
        Pairs that are not in ``done`` must be read whole; why is in the ledger and on the terminal.

    Raises
    ------
    EndpointError, StoreError
        a server cannot be reached, or the ledger cannot be written.
    KeyboardInterrupt
        passed on; the run can be resumed.
    """
    pairs = [read_now(pair) for pair in prepared.pairs()]
    earlier = Earlier.read(store, since)
    with (
        closing(SessionPool(secrets)) as pool,
        closing(Ledger(folder / f"since-{run_id}.db")) as ledger,
    ):
        work = _Since(prepared, config, secrets, store, run_id, earlier, pairs, pool, ledger, controls)
        return work.run()


def _no_other(database: str, table: str) -> bool:
    """Whether a table that no pair covers is in scope: what this run is about was found when it began."""
    del database, table
    return False


def _unproved(prepared: PreparedTables, pair: PairPlan, earlier: Earlier) -> str:
    """Return why the earlier proof of a pair cannot be built on; empty where it can."""
    name = earlier.runs[0].run_id
    if pair.id not in earlier.results:
        return f"run {name} has no result of it"
    run, result = earlier.results[pair.id]
    if result.verdict is not Verdict.MATCH:
        return f"it was {result.verdict} in run {run.run_id}"
    if not pair.readable:
        return "it is not on both sides now"
    entry = earlier.entries[pair.id]
    layouts, identities = entry.get("layouts"), entry.get("identities")
    if not layouts or not isinstance(identities, dict) or not identities:
        return f"run {run.run_id} did not keep which tables it read"
    if layouts != prepared.layouts.get(pair.id):
        return f"its definition is not that of run {run.run_id}"
    known = identities_of(identities)
    if young := [name for name, identity in known.items() if identity.young]:
        return f"{young[0]} was altered just before run {run.run_id} read it: a change after that need not show"
    moved = changes(known, prepared.identities.get(pair.id, {}))
    return "; ".join(moved[:1])


class _Since:
    """The state of one such run; lives as long as ``verify_since``."""

    def __init__(
        self, prepared: PreparedTables, config: Config, secrets: Secrets, store: ResultStore, run_id: str,
        earlier: Earlier, pairs: Sequence[PairPlan], pool: SessionPool, ledger: Ledger, controls: Controls,
    ) -> None:  # fmt: skip
        self.prepared, self.config, self.secrets, self.store, self.run_id = prepared, config, secrets, store, run_id
        self.earlier, self.pairs, self.pool, self.ledger, self.controls = earlier, pairs, pool, ledger, controls
        self.watched = watched_pairs(config, pairs)
        self.started = time.monotonic()
        self.concluded: set[str] = set()

    def run(self) -> SinceResult:
        for number, pair in enumerate(self.pairs):
            if reason := _unproved(self.prepared, pair, self.earlier):
                self.ledger.note(number, WHOLE, reason)
        # A run that goes on leaves alone what it concluded; the driver of whole tables counts these results.
        results = self.store.table_results(self.run_id)
        self.concluded = {result.pair for result in results if result.verdict is not Verdict.INCONCLUSIVE}
        streams: list[Stream] = []
        try:
            streams = [self._stream(endpoint) for endpoint in self.config.sources]
        except UsageError as error:
            self.ledger.note(-1, WHOLE, error.message)
        by_keys, until = self._by_keys(), dict[int, int]()
        if by_keys:
            until = self._read_binlogs(streams, by_keys)
            by_keys = self._by_keys()
        for number in set(range(len(self.pairs))) - by_keys:
            self.ledger.forget(number)
        if not by_keys:
            return SinceResult(whole=self._whole())
        status = self._read_keys(streams, until, by_keys)
        done = frozenset(self.pairs[n].id for n in by_keys)
        return SinceResult(status.verdict, status.reasons, done, self._whole())

    def _stream(self, endpoint: Endpoint) -> Stream:
        start = position_of_run(self.earlier.runs, endpoint.name)
        stream = stream_of(self.config, self.secrets, endpoint, start, self.run_id)
        if not isinstance(stream.applied, SettleTime):
            return stream
        # As in every verification: the target applies a change within the time of the re-reads (docs/live.md). A
        # watch asks for a witness besides, a key written later, and here nothing may be written later.
        rules = rules_of(self.config)
        seconds = max(stream.applied.seconds, rules.delay_seconds * rules.still_reads)
        return replace(stream, applied=SettleTime(seconds, proof=True))

    def _whole(self) -> dict[str, str]:
        """Return why pairs are read whole: of each the first reason, and of all at most a page."""
        reasons: dict[str, str] = {}
        for number, kind, text in self.ledger.notes():
            if kind == WHOLE:
                reasons.setdefault(self.pairs[number].id if number >= 0 else "all tables", text)
        return first_reasons(reasons)

    def _by_keys(self) -> set[int]:
        """Return the numbers of the pairs that need only their written keys read."""
        whole = {number for number, kind, _ in self.ledger.notes() if kind == WHOLE}
        if -1 in whole:
            return set()
        return {w.number for w in self.watched if self.pairs[w.number].id not in self.concluded} - whole

    # -- the binlog ----------------------------------------------------------------------------------------------

    def _read_binlogs(self, streams: Sequence[Stream], by_keys: set[int]) -> dict[int, int]:
        """Collect the written keys up to where each source's binlog ends now; returns these places.

        A binlog that does not show every write since the run is a gap: every pair is read whole then.
        """
        until: dict[int, int] = {}
        catch_up: dict[int, CatchUp] = {}
        read_by_file = {text for _, kind, text in self.ledger.notes() if kind == BY_FILE}
        try:
            for number, stream in enumerate(streams):
                name = stream.endpoint.name
                with self.pool.session(stream.endpoint) as session:
                    until[number] = stream.changes.ordinal(stream.changes.head(session))
                    refuse_incomplete(session, {w.database for w in self.watched if w.endpoint == name})
                    at = place_of_run(self.earlier.runs[-1], session, self.secrets.get(name))
                # A transaction may be written before the run's place and committed after it: what follows a set of
                # GTIDs is read as well as what follows the place.
                if stream.start is not None and stream.start.gtids and name not in read_by_file:
                    catch_up[number] = CatchUp(at, until[number])
            self._collect(streams, by_keys, catch_up, until)
        except (ChangeError, PrivilegeError) as error:
            self.ledger.note(-1, WHOLE, f"the changes since run {self._run} cannot be read: {error.message}")
        self._note_dense()
        return until

    def _collect(
        self, streams: Sequence[Stream], by_keys: set[int], catch_up: Mapping[int, CatchUp], until: Mapping[int, int]
    ) -> None:
        def found(finding: StreamFinding, source: int, read: Position) -> None:
            del source, read
            self.ledger.note(finding.pair, WHOLE, finding.text)

        tables = [w for w in self.watched if w.number in by_keys]
        changes = ChangeCollector(self.ledger, streams, tables, _no_other, catch_up, found)
        try:
            changes.set_cascades(lambda stream: hidden_cascades(self.pool, stream.endpoint, always=True))
            changes.start()
            while not changes.is_read_to(until):
                time.sleep(POLL_SECONDS)
                changes.collect()
                places = (f"{s.stream.endpoint.name}, at {s.position}" for s in changes.sources)
                text = f"reading the binlog of {'; '.join(places)}"
                self.controls.on_progress(VerifyProgress(0, self.controls.tables_total, 0, 0, 0, 0, 0, text))
        finally:
            changes.stop()

    def _note_dense(self) -> None:
        for number, count in self.ledger.counts(0.0).items():
            pair, written = self.pairs[number], count.pending + count.hot
            if written > max(MOST_OF_SMALL, DENSE_SHARE * pair.rows):
                self.ledger.note(number, WHOLE, f"{written:,} of about {pair.rows:,} rows were written")

    @property
    def _run(self) -> str:
        return self.earlier.runs[0].run_id

    # -- the keys ------------------------------------------------------------------------------------------------

    def _read_keys(self, streams: Sequence[Stream], until: Mapping[int, int], by_keys: set[int]) -> TablesStatus:
        """Read the written keys on both sides until each is equal or differs for certain; records the results."""
        config = self.config
        limit = config.watch.drain_seconds
        if self.controls.run_seconds is not None:
            limit = min(limit, max(0.0, self.controls.run_seconds - (time.monotonic() - self.started)))
        target = replace(config.target, snapshot=None)
        watch = TablesWatch(
            [w for w in self.watched if w.number in by_keys], streams, self.ledger, self.store, self.run_id, self.pool,
            [target], target, replace(rules_of(config), live=True),
            WatchRules(config.watch.delay, config.watch.hot_seconds, dict(until), limit),
            {n: Base(self.earlier.results[self.pairs[n].id][0].run_id, Verdict.MATCH) for n in by_keys},
            _no_other,
            slots=max(1, min(e.connections for e in config.endpoints) - 1),
            replan=partial(replanned, config, self.secrets),
            known={n: identities_of(self._identities(n)) for n in by_keys},
        )  # fmt: skip
        status = watch.run()
        for result in watch.results(status, time.monotonic() - self.started, ""):
            self.store.add_table_result(self.run_id, self._rests_on(result))
            self.controls.trace.table(result)
        return status

    def _identities(self, number: int) -> Mapping[str, object]:
        identities = self.earlier.entries[self.pairs[number].id]["identities"]
        return identities if isinstance(identities, dict) else {}

    def _rests_on(self, result: TableResult) -> TableResult:
        """Add which rows rest on which run, and what that leaves unseen; nothing where all rows were read after all."""
        if any(finding.startswith("compared: ") for finding in result.details["findings"]):
            return result
        run, before = self.earlier.results[result.pair]
        base = before.details.get("rests_on") or {
            "run": run.run_id, "ranges": before.chunks, "positions": dict(self._positions(run))
        }  # fmt: skip
        where = ", ".join(f"{name} at {position}" for name, position in base["positions"].items())
        read = sum(int(result.details[name]) for name in ("keys", "pending", "doubt", "hot", "diverged"))
        again = f"{read:,} {'key was' if read == 1 else 'keys were'} read again by this run"
        others = "" if base["run"] == run.run_id else f", those written before run {run.run_id} in the runs between"
        text = (
            f"{base['ranges']:,} {'range rests' if base['ranges'] == 1 else 'ranges rest'} on run {base['run']}"
            f" ({where}), but for rows written since: {again}{others}"
        )
        gaps = (*(gap for gap in before.not_covered if gap.what != UNWRITTEN), NotCovered(UNWRITTEN, text))
        spots = (*result.blind_spots, *before.blind_spots, OUTSIDE.format(run=base["run"]))
        return replace(
            result, not_covered=tuple(dict.fromkeys(gaps)), blind_spots=tuple(dict.fromkeys(spots)),
            details={**result.details, "rests_on": base, "strategy": "rows written since an earlier run"},
        )  # fmt: skip

    def _positions(self, run: RunInfo) -> Iterator[tuple[str, str]]:
        for endpoint in self.config.sources:
            yield endpoint.name, str(run.facts.get("endpoints", {}).get(endpoint.name, {}).get("position", ""))
