"""Keep the verdict current: stream -> touched keys -> wait for the target -> read again -> verdict as of a position.

The loop of one thread; the streams are read on threads of their own, rows on the pool's. After one full verification
and every touched key since, "MATCH as of position P" needs no second full read.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from heapq import heappush, heappushpop

from migverify.changes.model import Position
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import EndpointError, MigverifyError, PlanError, ReadError
from migverify.model import Endpoint, KeyText, TableResult
from migverify.store.results import ResultStore
from migverify.tables.diff import PairReader
from migverify.tables.last_status import LAST_STATUS, LastStatus
from migverify.tables.moving_rows import MovingRows
from migverify.tables.run_facts import ProofScope
from migverify.tables.sweep import Sweep
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.watch_check import Checked, CheckMoment, check, transition_text
from migverify.tables.watch_identity import Identities, Watched, hidden_cascades, identities_of, is_table
from migverify.tables.watch_origin import FeedOrigin
from migverify.tables.watch_ranges import RangeReads, Replan
from migverify.tables.watch_status import (
    Base,
    TablesStatus,
    WatchFacts,
    WatchRules,
    is_proved_to,
    status_of,
    table_result,
)
from migverify.tables.watch_versions import PastReads, check_versions
from migverify.watch.applied import applied_ordinals
from migverify.watch.collect import CatchUp, ChangeCollector
from migverify.watch.ledger import STREAM_REASONS, Ledger, LedgerKey, PairCounts
from migverify.watch.loop import Ending, watch
from migverify.watch.old_side import OldSide, OldSideStatus, record_old_side
from migverify.watch.stream import SourceProgress, Stream, StreamFinding, uncovered_text

TICK_SECONDS = 0.1
AT_ONCE = 500
"""Keys of one statement; more at once make a longer statement, not a faster one."""
WITNESSES = 3
SAMPLE_SECONDS = 1.0
WHY = "its text in the changes is not that of the servers (a time zone, a declared type, a FLOAT)"
STATUS_SECONDS = 1.0
SET_BACK_SECONDS = 1.0
"""A wall clock that went back by more was set; a smaller step is waited for."""


def _no_plan(pairs: Sequence[Watched]) -> Sequence[Watched]:
    raise PlanError(f"{pairs[0].pair.id} cannot be planned anew here")


@dataclass(slots=True)
class TablesWatch:
    """The state of one watch. Make it, call ``run``.

    ``streams`` are those of the servers that are written, ``followers`` the servers that apply their changes: the
    target, or the sources where the target is written. ``old_side`` reads what others write on the source then; its
    status where it cannot. ``origin`` asks whether the changes are the target's, where no marker shows it.
    ``new_tables`` lists the target's tables that should have a pair and had none at the start, where the changes need
    not show that they were made: a changefeed may leave them out.
    ``moving`` proves rows that are written all the time, where the written side keeps versions.
    ``blind_spots`` are words for what the streams do not show, ``scope`` is what the configuration has compared.
    """

    pairs: Sequence[Watched]
    streams: Sequence[Stream]
    ledger: Ledger
    store: ResultStore
    run_id: str
    pool: SessionPool
    followers: Sequence[Endpoint]
    target: Endpoint
    rules: Rules
    limits: WatchRules
    base: Mapping[int, Base]
    in_scope: Callable[[str, str], bool]
    slots: int = 4
    on_status: Callable[[TablesStatus], None] = lambda _: None
    replan: Replan = _no_plan
    known: Mapping[int, Identities] = field(default_factory=dict)
    uncovered: Sequence[str] = ()
    sweep: Sweep = field(default_factory=Sweep)
    catch_up: Mapping[int, CatchUp] = field(default_factory=dict)
    past: PastReads | None = None
    old_side: OldSide | OldSideStatus | None = None
    origin: FeedOrigin | None = None
    new_tables: Callable[[Session], Sequence[tuple[str, str]]] | None = None
    moving: MovingRows | None = None
    blind_spots: Sequence[str] = ()
    scope: ProofScope = field(default_factory=ProofScope)
    ranges: RangeReads = field(init=False)
    _changes: ChangeCollector = field(init=False)
    _witnesses: dict[int, list[int]] = field(default_factory=dict)
    _under_way: dict[Future[Checked], list[LedgerKey]] = field(default_factory=dict)
    _taken: set[tuple[int, KeyText]] = field(default_factory=set)
    _troubles: dict[str, str] = field(default_factory=dict)
    _sampled_at: float = 0.0
    _seen: float = 0.0
    _noted: Counter[int] = field(default_factory=Counter)
    _threads: ThreadPoolExecutor = field(init=False)

    def run(self, stop: Callable[[], bool] = lambda: False) -> TablesStatus:
        """Watch until it is drained, its time is over, every stream has failed, or ``stop`` says so.

        Returns
        -------
        TablesStatus
            the last status, ``final``.

        Raises
        ------
        StoreError
            the ledger or the store cannot be written.
        """
        with ExitStack() as stack:
            self._threads = stack.enter_context(ThreadPoolExecutor(self.slots, thread_name_prefix="check"))
            self._begin(stack)
            status = watch(
                self, stop=stop, time_limit=self.limits.time_limit, on_status=self._report,
                status_seconds=STATUS_SECONDS,
            )  # fmt: skip
            self._keep_reasons(status)
            return status

    def _report(self, status: TablesStatus) -> None:
        self._keep_reasons(status)
        self.on_status(status)

    def _keep_reasons(self, status: TablesStatus) -> None:
        """Keep what is known, and why the watch is not sure of itself, for who reads the ledger beside it."""
        self.ledger.keep(STREAM_REASONS, json.dumps(status.reasons, ensure_ascii=False))
        self.ledger.keep(LAST_STATUS, LastStatus.of(status).as_text())

    def due(self, began: float) -> float:
        """Return the seconds until the streams and the target are asked again."""
        return TICK_SECONDS - (time.monotonic() - began)

    def check(self, stop: Callable[[], bool]) -> list[Future[Checked]]:
        """Take what the streams collected, begin to read what is due, and return the batches that were read."""
        del stop
        self._changes.collect()
        self._collect_old_side()
        self._ask_applied()
        self._look()
        self._submit(self._plans)
        if self.moving is not None:
            self.moving.turn(self._plans, self._ready, self._threads)
        if self.origin is not None and self.origin.claim_turn():
            self._threads.submit(self.origin.ask)
        self.ranges.turn(self.pairs, self._applied, self._threads)
        return [future for future in self._under_way if future.done()]

    def ending(self) -> Ending | None:
        """Return whether the watch is drained, or every stream failed."""
        if self.origin is not None and self.origin.is_refuted:
            return Ending.FAILED
        if self._all_failed() or (self._changes.has_lost_changes and not self._under_way):
            return Ending.FAILED
        # What nobody wrote in a binlog may have happened until now.
        return Ending.DONE if self._drained() and self._look(now=True) and self._drained() else None

    @property
    def sources(self) -> list[SourceProgress]:
        """How far each source was read and applied."""
        return self._changes.sources

    @property
    def _plans(self) -> dict[int, PairPlan]:
        return {watched.number: watched.pair for watched in self.pairs}

    def results(self, status: TablesStatus, seconds: float, started_at: str) -> Iterator[TableResult]:
        """Yield what the store keeps of each pair at the end."""
        by_source = {table.source: table for table in status.tables}
        for number, pair in self._plans.items():
            diffs = self.store.count_row_diffs(self.run_id, pair.id)
            base = self.base.get(number, Base())
            yield table_result(by_source[pair.source], pair, base, diffs, seconds, started_at)

    @property
    def _applied(self) -> dict[int, int]:
        return {n: source.applied for n, source in enumerate(self.sources) if source.applied is not None}

    @property
    def _ready(self) -> dict[int, int]:
        """The places up to which keys count: applied, and the stream was read as far, so that all touches are known."""
        return {n: min(ordinal, self.sources[n].ordinal) for n, ordinal in self._applied.items()}

    def _begin(self, stack: ExitStack) -> None:
        self.ledger.reread(time.time())
        self._changes = ChangeCollector(
            self.ledger, self.streams, self.pairs, self.in_scope, self.catch_up, self._take_finding
        )
        stack.callback(self._changes.stop)
        if self.limits.until is not None and self.past is not None:
            self.limits = replace(self.limits, until={0: stack.enter_context(self.past.held())})
        self._read_cascades()
        self._begin_ranges({n: s.ordinal for n, s in enumerate(self.sources) if s.ordinal})
        if isinstance(self.old_side, OldSide):
            self._changes.readers(0)[0].observe = self.old_side.leading.take_item
            stack.callback(self.old_side.stop)
            self.old_side.start()
        self._changes.start()

    def _read_cascades(self) -> None:
        self._changes.set_cascades(
            lambda stream: hidden_cascades(self.pool, stream.endpoint) if stream.changes.hides_cascades else {}
        )

    @property
    def _sources(self) -> list[Endpoint]:
        endpoints = (*(stream.endpoint for stream in self.streams), *self.followers)
        return [endpoint for endpoint in endpoints if endpoint.name != self.target.name]

    def _begin_ranges(self, read: Mapping[int, int]) -> None:
        """Take over what an earlier process found and did not settle."""
        identities: dict[int, Identities] = dict(self.known)
        for number, kind, text in self.ledger.notes():
            if kind == "identity":
                identities[number] = identities_of(json.loads(text))
        self.ranges = RangeReads(
            self.ledger, self.pool, self.target, self._sources, identities, self.sweep, self.replan, self._reader,
            self._use_plan, self.past,
        )  # fmt: skip
        if self.limits.until is not None and self.past is not None:
            self.sweep.begin_final(max(self.limits.until.values()))
        for number in self._plans.keys() - identities.keys():
            self.ledger.note(number, "stale", "the run it starts from did not keep which table this was")
        for number, kind, _ in self.ledger.notes():
            if kind == "stale":
                self.ranges.mark(number, read)

    # -- the stream ----------------------------------------------------------------------------------------------

    def _take_finding(self, finding: StreamFinding, source: int, read: Position) -> None:
        if finding.kind == "uncovered":
            self.ledger.note(-1, finding.kind, finding.text)
            return
        moment = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(finding.at)) if finding.at else "at no known time"
        stale = finding.kind in ("ddl", "truncate")
        waits = {source: finding.ordinal}
        if stale and self.ranges.is_full(finding.pair):
            self.ranges.mark(finding.pair, waits)
            return
        # The place distinguishes two equal statements of one second.
        # Each server numbers its own binlog: one place may be on two shards.
        stream = self.streams[source]
        server = f"{stream.endpoint.name} " if len(self.streams) > 1 else ""
        where = f" at {server}{stream.changes.shown(finding.ordinal, read)}" if stale else ""
        if self.ledger.note(finding.pair, finding.kind, f"{moment}{where}: {finding.text}", stale=stale) and stale:
            self.ranges.mark(finding.pair, waits)

    def _collect_old_side(self) -> None:
        if isinstance(self.old_side, OldSide):
            with suppress(ReadError, EndpointError):  # the target does not answer: what waits is judged later
                record_old_side(self.old_side, self.ledger, self.target.name, lambda: self._head(0), self._noted)

    # -- which tables the names mean ---------------------------------------------------------------------------------

    def _look(self, *, now: bool = False) -> bool:
        """Read which tables the names mean, when it is time to or ``now``; returns whether that is known."""
        try:
            if self.ranges.look(self.pairs, now=now):
                self._look_for_uncovered()
                self._read_cascades()
        except (ReadError, EndpointError) as error:
            self._troubles["identity"] = f"which tables the names mean is not known: {error.message}"
            return False
        self._troubles.pop("identity", None)
        return True

    def _look_for_uncovered(self) -> None:
        """Find the tables in scope that no pair covers, and forget those that are gone, or were none."""
        if self.new_tables is not None:
            with self.pool.session(self.target) as session:
                for name in self.new_tables(session):
                    self.ledger.note(-1, "uncovered", uncovered_text(self.target, name))
        endpoints = {stream.endpoint.name: stream.endpoint for stream in self.streams}
        for pair, kind, text in self.ledger.notes():
            if kind == "uncovered":
                endpoint, *name = json.loads(text)
                if endpoint not in endpoints or not is_table(self.pool, endpoints[endpoint], (name[0], name[1])):
                    self.ledger.unnote(pair, kind, text)

    def _use_plan(self, fresh: Sequence[Watched]) -> None:
        """Read a pair by the definitions of now, from the stream on."""
        names = [stream.endpoint.name for stream in self.streams]
        for watched in fresh:
            for reader in self._changes.readers(names.index(watched.endpoint)):
                reader.replace(watched)
        by_name = {(w.endpoint, w.database, w.table): w for w in fresh}
        self.pairs = [
            by_name.get((w.endpoint, w.database, w.table), w) if w.number == fresh[0].number else w for w in self.pairs
        ]

    # -- reading again -------------------------------------------------------------------------------------------

    def _ask_applied(self) -> None:
        now = time.monotonic()
        try:
            if now - self._sampled_at >= SAMPLE_SECONDS:
                self._sampled_at = now
                for stream in self.streams:
                    if stream.applied.writes:
                        with self.pool.session(stream.endpoint) as session:
                            number = stream.applied.sample(session)
                            stream.applied.expect(number, stream.changes.ordinal(stream.changes.head(session)))
            found = self._applied_by_all()
        except (ReadError, EndpointError) as error:
            self._troubles["applied"] = error.message
            return
        self._troubles.pop("applied", None)
        for number, ordinal in found.items():
            self.sources[number].applied = ordinal

    def _applied_by_all(self) -> dict[int, int]:
        """Return the place of every stream that each of the followers has applied to."""
        applied = {n: s.applied for n, s in enumerate(self.streams)}
        found: dict[int, int] | None = None
        for follower in self.followers:
            with self.pool.session(follower) as session:
                one = applied_ordinals(applied, session)
            found = one if found is None else {n: min(found[n], one[n]) for n in found.keys() & one.keys()}
        return found or {}

    def _submit(self, plans: Mapping[int, PairPlan]) -> None:
        room = 2 * self.slots - len(self._under_way)
        if room <= 0:
            return
        now = time.time()
        if now < self._seen - SET_BACK_SECONDS:
            self.ledger.set_back(self._seen - now)
        self._seen = now
        due = self.ledger.due(self._ready, now, (room + 2 * self.slots) * AT_ONCE)
        by_pair: dict[int, list[LedgerKey]] = {}
        for key in due:
            if (key.pair, key.key) not in self._taken:
                by_pair.setdefault(key.pair, []).append(key)
        doubted = self.ledger.doubted_writes() if due else frozenset[int]()
        if self.origin is not None:
            for pair, keys in by_pair.items():
                self.origin.offer(plans[pair], keys)
        batches = [(p, keys[i : i + AT_ONCE]) for p, keys in by_pair.items() for i in range(0, len(keys), AT_ONCE)]
        for pair, keys in batches[:room]:
            future = self._threads.submit(self._check, plans[pair], keys, doubted)
            self._under_way[future] = keys
            self._taken.update((k.pair, k.key) for k in keys)

    def _check(self, pair: PairPlan, keys: list[LedgerKey], doubted: Set[int]) -> Checked:
        endpoints = {side.endpoint.name for side in pair.sides}
        moment = CheckMoment(
            self._head,
            {n: top[0] for n, top in self._witnesses.items() if len(top) == WITNESSES},
            {n: s.applied.proof for n, s in enumerate(self.streams)},
            self.limits.delay,
            [n for n, s in enumerate(self.streams) if s.endpoint.name in endpoints],
            doubted,
            unseen=self.past is not None,
            final=self.sweep.final or 0,
        )
        if self.past is not None:
            return check_versions(self.past, pair, keys, moment)
        reader = self._reader(pair)
        try:
            return check(reader, keys, moment)
        finally:
            reader.close()

    def _reader(self, pair: PairPlan) -> PairReader:
        return PairReader.open(pair, self.pool, self.rules)

    def _head(self, source: int) -> int:
        stream = self.streams[source]
        with self.pool.session(stream.endpoint) as session:
            return stream.changes.ordinal(stream.changes.head(session))

    def record(self, work: Sequence[Future[Checked]]) -> None:
        """Keep what was read in the ledger, and row diffs whose state changed in the store."""
        now = time.time()
        if self.origin is not None:
            self.origin.record()
        for future in work:
            keys = self._under_way.pop(future)
            self._taken.difference_update((k.pair, k.key) for k in keys)
            try:
                checked = future.result()
            except MigverifyError as error:
                self._troubles["read"] = error.message
                self.ledger.wait(keys, now + self.limits.delay)
                continue
            self._troubles.pop("read", None)
            self._record_batch(checked, now)

    def _record_batch(self, checked: Checked, now: float) -> None:
        recorded = self.ledger.proved(checked.proved) | self.ledger.seen(checked.differing, now)
        for key in checked.present:
            top = self._witnesses.setdefault(key.source, [])
            if len(top) < WITNESSES:
                heappush(top, key.ordinal)
            else:
                heappushpop(top, key.ordinal)
        for missed in {entry.pair: entry for entry in reversed(checked.unfound)}.values():
            self._note_unfound(missed)
        if checked.found:
            self.ledger.touch(dict.fromkeys(checked.found, (1, 0, 0)), {}, now, origin="found")
        # A key written while it was read is judged anew: what this read said of it must not reach the store.
        transitions = [(entry, diff) for entry, diff in checked.transitions if (entry.pair, entry.key) in recorded]
        if transitions:
            self.store.add_row_diffs(self.run_id, [diff for _, diff in transitions])
        for entry, diff in transitions:
            text = transition_text(entry, diff, self.sources[entry.source], now)
            self.store.add_blob(self.run_id, diff.pair, "transition", text.encode())

    def _note_unfound(self, entry: LedgerKey) -> None:
        """Say once of a pair that a key was found on neither side."""
        if not any((of, kind) == (entry.pair, "unfound") for of, kind, _ in self.ledger.notes()):
            shown = ", ".join(map(str, entry.key))
            self.ledger.note(entry.pair, "unfound", f"key {shown} was written and is on neither side: {WHY}")

    # -- where it is ---------------------------------------------------------------------------------------------

    def _all_failed(self) -> bool:
        """Whether nothing more can come; what was read is checked first."""
        if not all(source.failure for source in self.sources):
            return False
        return not self._under_way and not self.ledger.open_before({n: s.ordinal for n, s in enumerate(self.sources)})

    def _drained(self) -> bool:
        until = self.limits.until
        if until is None or self._under_way or self.ranges.stale or self._all_troubles():
            return False
        if (self.past is not None and not self.sweep.is_passed) or (self.origin is not None and self.origin.is_open):
            return False
        applied = self._applied
        if any(self.sources[n].ordinal < last or applied.get(n, -1) < last for n, last in until.items()):
            return False
        if self.limits.is_as_of and self.past is None:
            return is_proved_to(until, self.ledger.since())
        return self.ledger.open_before(until) == 0

    def _all_troubles(self) -> tuple[str, ...]:
        lacking = (source.stream.applied.lacks(source.ordinal) for source in self.sources)
        return (
            *self._troubles.values(), *self._changes.troubles(), *filter(None, [self.ranges.trouble, *lacking])
        )  # fmt: skip

    def _doubts_of_origin(self) -> tuple[str, ...]:
        """Return why the changes may not be the target's: a drain need not wait for rows that nobody may write."""
        return tuple(filter(None, [self.origin.reason()])) if self.origin is not None else ()

    def _not_swept(self) -> Iterator[str]:
        """Yield that no round over the tables has ended, where one runs beside the changes of the streams."""
        if self.past is None and self.sweep.rate and self.sweep.numbers and not self.sweep.rounds:
            yield "no round of the sweep (watch.sweep_rows) has ended yet: rows that no change named were not compared"

    def counts(self) -> dict[int, PairCounts]:
        """Return what is open per pair."""
        return self.ledger.counts(time.time() - self.limits.hot_seconds)

    def status(self, ending: Ending | None = None) -> TablesStatus:
        """Return what is known now; the verdict of the last status counts."""
        if ending not in (None, Ending.DONE):
            self._look(now=True)
        return status_of(WatchFacts(
            self.run_id, self.sources, self.limits, self.pairs, self.base, self.counts(), self.ledger.since(),
            self.ledger.notes(), (*self._all_troubles(), *self._doubts_of_origin()), ending is not None,
            ending is Ending.TIMED_OUT, tuple(self.uncovered), self.ranges.progress(),
            self.sweep if self.past is not None else None,
            self.old_side.status() if isinstance(self.old_side, OldSide) else self.old_side,
            [*self.blind_spots, *self._not_swept()], self.scope,
        ))  # fmt: skip
