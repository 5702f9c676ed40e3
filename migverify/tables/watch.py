"""Keep the verdict current: stream -> touched keys -> wait for the target -> read again -> verdict as of a position.

The loop of one thread; the streams are read on threads of their own, rows on the pool's. After one full verification
and every touched key since, "MATCH as of position P" needs no second full read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from heapq import heappush, heappushpop

from migverify.changes.model import Item, Position
from migverify.db.pool import SessionPool
from migverify.db.session import Session
from migverify.errors import EndpointError, MigverifyError, PlanError, ReadError
from migverify.model import Endpoint, KeyText, RowDiff
from migverify.store.base import ResultStore
from migverify.tables.diff import PairReader
from migverify.tables.tasks import PairPlan, Rules
from migverify.tables.touched import Watched, form_of
from migverify.tables.watch_check import Checked, Moment, check
from migverify.tables.watch_identity import Identities, hidden_cascades, identities_of, is_table
from migverify.tables.watch_stale import Replan, StaleTables
from migverify.tables.watch_status import Track, WatchStatus
from migverify.tables.watch_stream import Collected, StreamFinding, StreamReader
from migverify.tables.watch_sweep import MOST_ROWS, Comparison, Sweep, Swept, sweep_range
from migverify.tables.watch_verdict import Base, Facts, WatchRules, shown, status_of, transition_text
from migverify.watch.applied import Applied, Marker, applied_places
from migverify.watch.ledger import Ledger, LedgerKey, PairCounts, place
from migverify.watch.loop import Ending, watch

TICK_SECONDS = 0.1
AT_ONCE = 500
"""Keys of one statement; more at once make a longer statement, not a faster one."""
WITNESSES = 3
MARKER_SECONDS = 1.0
STATUS_SECONDS = 1.0


def _no_plan(pairs: Sequence[Watched]) -> Sequence[Watched]:
    raise PlanError(f"{pairs[0].pair.id} cannot be planned anew here")


@dataclass(frozen=True, slots=True)
class Stream:
    """One source endpoint: how to read its changes, and how to learn what the target applied of them.

    ``open`` begins a stream after a position; None is "from now on". ``head`` says where the source's binlog ends.
    """

    endpoint: Endpoint
    open: Callable[[Position | None], Iterator[Item]]
    head: Callable[[Session], Position]
    applied: Applied
    start: Position | None
    marker_table: tuple[str, str] | None = None


@dataclass(slots=True)
class TablesWatch:
    """The state of one watch. Make it, call ``run``."""

    pairs: Sequence[Watched]
    streams: Sequence[Stream]
    ledger: Ledger
    store: ResultStore
    run_id: str
    pool: SessionPool
    target: Endpoint
    rules: Rules
    limits: WatchRules
    base: Mapping[int, Base]
    in_scope: Callable[[str, str], bool]
    slots: int = 4
    on_status: Callable[[WatchStatus], None] = lambda _: None
    replan: Replan = _no_plan
    known: Mapping[int, Identities] = field(default_factory=dict)
    uncovered: Sequence[str] = ()
    _readers: list[StreamReader] = field(default_factory=list)
    _tracks: dict[int, Track] = field(default_factory=dict)
    _applied: dict[int, int] = field(default_factory=dict)
    _witnesses: dict[int, list[int]] = field(default_factory=dict)
    _failures: dict[int, str] = field(default_factory=dict)
    _under_way: dict[Future[Checked], list[LedgerKey]] = field(default_factory=dict)
    _taken: set[tuple[int, KeyText]] = field(default_factory=set)
    sweep: Sweep = field(default_factory=lambda: Sweep(0, ()))
    _sweeping_pair: int = -1
    _sweeping: Future[Comparison | tuple[Swept, Identities | None]] | None = None
    _troubles: dict[str, str] = field(default_factory=dict)
    _marked_at: float = 0.0
    _stale: StaleTables = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)

    def run(self, stop: Callable[[], bool] = lambda: False) -> WatchStatus:
        """Watch until it is drained, its time is over, every stream has failed, or ``stop`` says so.

        Returns
        -------
        WatchStatus
            the last status, ``final``.

        Raises
        ------
        StoreError
            the ledger or the store cannot be written.
        """
        with ExitStack() as stack:
            self._threads = stack.enter_context(ThreadPoolExecutor(self.slots, thread_name_prefix="check"))
            self._begin(stack)
            return watch(
                self, stop=stop, time_limit=self.limits.time_limit, on_status=self.on_status,
                status_seconds=STATUS_SECONDS,
            )  # fmt: skip

    def due(self, began: float) -> float:
        """Return the seconds until the streams and the target are asked again."""
        return TICK_SECONDS - (time.monotonic() - began)

    def check(self, stop: Callable[[], bool]) -> list[Future[Checked]]:
        """Take what the streams collected, begin to read what is due, and return the batches that were read."""
        del stop
        self._collect()
        self._ask_applied()
        self._look()
        by_number = {w.number: w for w in self.pairs}
        self._submit(by_number)
        self._sweep_on(by_number)
        return [future for future in self._under_way if future.done()]

    def ending(self) -> Ending | None:
        """Return whether the watch is drained, or every stream failed."""
        if self._all_failed():
            return Ending.FAILED
        # What nobody wrote in a binlog may have happened until now.
        return Ending.DONE if self._drained() and self._look(now=True) and self._drained() else None

    def _begin(self, stack: ExitStack) -> None:
        known = self.ledger.progress()
        self.ledger.reread_diverged()
        self._begin_stale({number: place(position) for number, (position, _) in known.items() if position.file})
        for number, stream in enumerate(self.streams):
            position, commits = known.get(number, (stream.start, 0))
            self._tracks[number] = Track(commits)
            if number not in known and position is not None and position.file:
                # Before anything is read: a kill before the first write would leave no place to go on from.
                self.ledger.touch({}, {number: (position, commits)}, time.time())
            elif position is not None and number in known:
                self._tracks[number].last, self._tracks[number].last_seq = position, place(position)
            name = stream.endpoint.name
            tables = {(w.database, w.table): w for w in self.pairs if w.endpoint == name}
            begin = partial(stream.open, position)
            reader = StreamReader(
                number, name, begin, tables, self.in_scope, stream.applied, stream.marker_table, commits
            )
            reader.cascades = hidden_cascades(self.pool, stream.endpoint)
            self._readers.append(reader)
            stack.callback(reader.stop)
            reader.start()

    def _begin_stale(self, read: Mapping[int, int]) -> None:
        """Take over what an earlier process found and did not settle."""
        identities: dict[int, Identities] = dict(self.known)
        for number, kind, text in self.ledger.notes():
            if kind == "identity":
                identities[number] = identities_of(json.loads(text))
        endpoints = [stream.endpoint for stream in self.streams]
        self._stale = StaleTables(
            self.ledger, self.pool, self.target, endpoints, identities, self.replan, self._reader
        )  # fmt: skip
        for number in {w.number for w in self.pairs} - identities.keys():
            self.ledger.note(number, "stale", "the run it starts from did not keep which table this was")
        for number, kind, _ in self.ledger.notes():
            if kind == "stale":
                self._stale.mark(number, read)

    # -- the stream ----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Take what the streams collected into the ledger, keys and positions together."""
        now = time.time()
        for number, reader in enumerate(self._readers):
            taken = reader.take()
            self._note_end(number, taken)
            if taken.position is None:
                continue
            # Before the position moves on: a kill in between must not lose them.
            for finding in taken.findings:
                self._take_finding(finding, number, taken.position)
            seq = place(taken.position)
            track = self._tracks[number]
            track.moved(taken.position, seq, taken.points, taken.heard_at)
            self.streams[number].applied.read_to(seq, now)
            if taken.keys or taken.points:
                self.ledger.touch(taken.keys, {number: (taken.position, track.commits)}, now)

    def _note_end(self, number: int, taken: Collected) -> None:
        if taken.ended and number not in self._failures:
            self._failures[number] = taken.failure.message if taken.failure else "the stream ended"

    def _take_finding(self, finding: StreamFinding, source: int, read: Position) -> None:
        if finding.kind == "uncovered":
            self.ledger.note(-1, finding.kind, finding.text)
            return
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(finding.at))
        stale = finding.kind in ("ddl", "truncate")
        if stale and self._stale.is_full(finding.pair):
            self._stale.mark(finding.pair, {source: finding.seq})
            return
        # The place tells two equal statements of one second apart.
        # Each server numbers its own binlog: one place may be on two shards.
        server = f"{self.streams[source].endpoint.name} " if len(self.streams) > 1 else ""
        where = f" at {server}{shown(finding.seq, read)}" if stale else ""
        if self.ledger.note(finding.pair, finding.kind, f"{moment} UTC{where}: {finding.text}", stale=stale) and stale:
            self._stale.mark(finding.pair, {source: finding.seq})

    def _look(self, *, now: bool = False) -> bool:
        """Read which tables the names mean, when it is time to; returns whether that is known."""
        try:
            if self._stale.look(self.pairs, now=now):
                self._look_for_uncovered()
                for reader, stream in zip(self._readers, self.streams, strict=True):
                    reader.cascades = hidden_cascades(self.pool, stream.endpoint)
        except (ReadError, EndpointError) as error:
            self._troubles["identity"] = f"which tables the names mean is not known: {error.message}"
            return False
        self._troubles.pop("identity", None)
        return True

    def _look_for_uncovered(self) -> None:
        """Forget the tables in scope that no pair covers where they are gone, or were none."""
        endpoints = {stream.endpoint.name: stream.endpoint for stream in self.streams}
        for pair, kind, text in self.ledger.notes():
            if kind == "uncovered":
                endpoint, *name = json.loads(text)
                if endpoint not in endpoints or not is_table(self.pool, endpoints[endpoint], (name[0], name[1])):
                    self.ledger.unnote(pair, kind, text)

    def _sweep_on(self, by_number: Mapping[int, Watched]) -> None:
        """Take what was read in the background, and begin the next: stale tables first, then the slow tour over all."""
        if self._sweeping is not None:
            if not self._sweeping.done():
                return
            future, self._sweeping = self._sweeping, None
            self._take_swept(future)
        step = self._stale.next_step(self.pairs, self._applied)
        self._sweeping_pair = -1
        if step is None and (number := self.sweep.due()) is not None:
            self._sweeping_pair = number
            step = partial(self._sweep_range, by_number[number].pair, self.sweep.lower())
        if step is not None:
            self._sweeping = self._threads.submit(step)

    def _sweep_range(self, pair: PairPlan, lower: KeyText | None) -> tuple[Swept, None]:
        reader = self._reader(pair)
        try:
            return sweep_range(reader, lower, min(MOST_ROWS, self.sweep.rate)), None
        finally:
            reader.close()

    def _take_swept(self, future: Future[Comparison | tuple[Swept, Identities | None]]) -> None:
        number = self._sweeping_pair
        try:
            result = future.result()
        except MigverifyError as error:
            if number < 0:
                self._stale.failed(error)
            else:
                self._troubles["sweep"] = error.message
                self.sweep.failed()
            return
        if isinstance(result, Comparison):
            self._use_plan(result)
        elif number < 0:
            self._stale.took(*result, time.time())
        else:
            self._troubles.pop("sweep", None)
            swept, _ = result
            self.sweep.took(swept)
            # No place: the first read that differs says which places must be applied before it counts.
            watched = next(w for w in self.pairs if w.number == number)
            keys = {(number, form_of(watched.key, d.key)): (1, 0, 0) for d in swept.diffs}
            if keys:
                self.ledger.touch(keys, {}, time.time(), origin="sweep")

    def _use_plan(self, comparison: Comparison) -> None:
        """Read a pair by the definitions of now, from the stream on."""
        self._stale.comparison = comparison
        fresh = {w.endpoint + "/" + w.database + "." + w.table: w for w in comparison.watched}
        for watched in comparison.watched:
            number = next(n for n, s in enumerate(self.streams) if s.endpoint.name == watched.endpoint)
            self._readers[number].replace(watched)
        self.pairs = [
            fresh.get(f"{w.endpoint}/{w.database}.{w.table}", w) if w.number == comparison.number else w
            for w in self.pairs
        ]

    # -- reading again -------------------------------------------------------------------------------------------

    def _ask_applied(self) -> None:
        now = time.monotonic()
        try:
            if now - self._marked_at >= MARKER_SECONDS:
                self._marked_at = now
                for stream in self.streams:
                    if isinstance(stream.applied, Marker):
                        with self.pool.session(stream.endpoint) as session:
                            stream.applied.sample(session)
            with self.pool.session(self.target) as session:
                found = applied_places({n: s.applied for n, s in enumerate(self.streams)}, session)
        except (ReadError, EndpointError) as error:
            self._troubles["applied"] = error.message
            return
        self._troubles.pop("applied", None)
        self._applied.update(found)

    def _submit(self, by_number: Mapping[int, Watched]) -> None:
        room = 2 * self.slots - len(self._under_way)
        if room <= 0:
            return
        # A key counts only if the stream was read as far as the target applied: later touches must be known.
        ready = {n: min(seq, self._tracks[n].last_seq) for n, seq in self._applied.items()}
        due = self.ledger.due(ready, time.time(), (room + 2 * self.slots) * AT_ONCE)
        by_pair: dict[int, list[LedgerKey]] = {}
        for key in due:
            if (key.pair, key.key) not in self._taken:
                by_pair.setdefault(key.pair, []).append(key)
        doubted = self.ledger.doubted_writes() if due else frozenset[int]()
        batches = [(p, keys[i : i + AT_ONCE]) for p, keys in by_pair.items() for i in range(0, len(keys), AT_ONCE)]
        for pair, keys in batches[:room]:
            future = self._threads.submit(self._check, by_number[pair].pair, keys, doubted)
            self._under_way[future] = keys
            self._taken.update((k.pair, k.key) for k in keys)

    def _check(self, pair: PairPlan, keys: list[LedgerKey], doubted: Set[int]) -> Checked:
        endpoints = {side.endpoint.name for side in pair.sources}
        moment = Moment(
            self._head,
            {n: top[0] for n, top in self._witnesses.items() if len(top) == WITNESSES},
            {n: s.applied.proof for n, s in enumerate(self.streams)},
            self.limits.delay,
            [n for n, s in enumerate(self.streams) if s.endpoint.name in endpoints],
            doubted,
        )
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
            return place(stream.head(session))

    def record(self, work: Sequence[Future[Checked]]) -> None:
        """Keep what was read in the ledger, and row diffs whose state changed in the store."""
        by_number = {w.number: w for w in self.pairs}
        now = time.time()
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
            self._record_batch(checked, by_number, now)

    def _record_batch(self, checked: Checked, by_number: Mapping[int, Watched], now: float) -> None:
        stand = self.ledger.proved(checked.proved) | self.ledger.seen(checked.unlike, now)
        for key in checked.present:
            top = self._witnesses.setdefault(key.source, [])
            if len(top) < WITNESSES:
                heappush(top, key.seq)
            else:
                heappushpop(top, key.seq)
        if checked.found:
            self.ledger.touch(dict.fromkeys(checked.found, (1, 0, 0)), {}, now, origin="found")
        # A key written while it was read is judged anew: what this read said of it must not reach the store.
        transitions = [(entry, diff) for entry, diff in checked.transitions if (entry.pair, entry.key) in stand]
        if transitions:
            self.store.add_row_diffs(self.run_id, [diff for _, diff in transitions])
            for entry, diff in transitions:
                self._record_transition(by_number[entry.pair].pair, entry, diff, now)

    def _record_transition(self, pair: PairPlan, entry: LedgerKey, diff: RowDiff, now: float) -> None:
        applied = self._applied.get(entry.source)
        text = transition_text(entry, diff, self._tracks[entry.source].last, applied, now)
        self.store.add_blob(self.run_id, pair.id, "transition", text.encode())

    # -- where it stands -----------------------------------------------------------------------------------------

    def _all_failed(self) -> bool:
        """Whether nothing more can come; what was read is checked first."""
        if len(self._failures) < len(self.streams):
            return False
        return not self._under_way and not self.ledger.open_before({n: t.last_seq for n, t in self._tracks.items()})

    def _drained(self) -> bool:
        until = self.limits.until
        if until is None or self._under_way or self._stale.stale or self._troubles:
            return False
        for number, seq in until.items():
            if self._tracks[number].last_seq < seq or self._applied.get(number, -1) < seq:
                return False
        return self.ledger.open_before(until) == 0

    def counts(self) -> dict[int, PairCounts]:
        """Return what is open per pair."""
        return self.ledger.counts(time.time() - self.limits.hot_seconds)

    def status(self, ending: Ending | None = None) -> WatchStatus:
        """Return what is known now; the verdict of the last status stands."""
        if ending not in (None, Ending.DONE):
            self._look(now=True)
        facts = Facts(
            self.run_id, [s.endpoint.name for s in self.streams], [s.applied for s in self.streams], self._tracks,
            self._applied, self._failures, self.limits, tuple(self._troubles.values()), ending is not None,
            ending is Ending.TIMED_OUT,
            tuple(self.uncovered), self._stale.progress(),
        )  # fmt: skip
        return status_of(facts, self.pairs, self.base, self.counts(), self.ledger.since(), self.ledger.notes())
