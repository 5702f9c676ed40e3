"""What a watch of tables knows -> its status and verdict, per table and as a whole.

Pure; the only path to MATCH is ``outcome.verdict_of``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from migverify.changes.positions import parse_position, shown_timestamp, tso_time
from migverify.exposition import VERDICTS, Metric
from migverify.exposition import number as sample_value
from migverify.figures import amount
from migverify.model import NextStep, NotCovered, TableResult, Verdict
from migverify.tables.outcome import pair_result, schema_mismatches, uncovered_columns, verdict_of
from migverify.tables.plan import plan_digest
from migverify.tables.run_facts import ProofScope
from migverify.tables.sweep import Sweep, SweepStatus, sweep_blind_spots, sweep_gaps, sweep_status
from migverify.tables.tasks import PairPlan
from migverify.tables.watch_identity import Watched
from migverify.watch.ledger import NO_PAIR, OTHER_SERVER, PairCounts
from migverify.watch.old_side import OldSideStatus
from migverify.watch.status import WatchStatus, gauges
from migverify.watch.stream import SourceProgress

_NAMES = 5
"""Tables that a sentence names."""
SILENT_SECONDS = 60.0
"""A server sends heartbeats; one that was silent for longer says nothing about what was written."""


@dataclass(frozen=True, slots=True)
class WatchRules:
    """Waits in seconds; ``until`` the place each source must be drained to, None to watch until stopped.

    ``is_as_of``: the verdict at the end is one as of that place, no matter what is written behind it.
    """

    delay: float = 1.0
    hot_seconds: float = 30.0
    until: Mapping[int, int] | None = None
    time_limit: float | None = None
    reverse: bool = False
    is_as_of: bool = False

    @property
    def follower(self) -> str:
        """Which side applies what the other one writes."""
        return "source" if self.reverse else "target"


@dataclass(frozen=True, slots=True)
class Base:
    """What was known of a pair before the watch: the run it starts from, or None for a watch that starts alone.

    ``rests_on`` is the earlier run whose ``reason`` it is, empty where it is that run's own.
    """

    run_id: str | None = None
    verdict: Verdict | None = None
    reason: str = ""
    rests_on: str = ""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """One source's stream. Lag is what the target has not applied of what was read; None while unknown.

    ``read_seconds`` is how long ago the server last sent something, None before the first time.
    """

    name: str
    read: str
    gtids: str
    commits: int
    applied_by: str
    lag_seconds: float | None
    lag_transactions: int | None
    read_seconds: float | None
    failure: str = ""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table pair. ``verified_through`` is the place up to which every written key was proved, empty for none.

    ``keys`` counts proofs, ``images`` row images of the stream. ``whole`` says that all its rows were compared, by the
    run that the watch starts from or by the watch. ``equal_age_seconds``: where a sweep is all that there is, how long
    ago some range was compared last. ``as_of_verdict`` is the verdict but for keys that are open.
    """

    source: str
    target: str
    verdict: Verdict
    verified_through: str
    pending: int
    doubt: int
    hot: int
    diverged: int
    oldest_seconds: float | None
    keys: int
    images: int
    reasons: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    whole: bool = False
    equal_age_seconds: float | None = None
    as_of_verdict: Verdict = Verdict.INCONCLUSIVE

    @property
    def name(self) -> str:
        """The source's table, or the target's where the source has none."""
        return self.source or self.target

    @property
    def rank(self) -> tuple[int, int]:
        """Diverged keys, then open ones."""
        return self.diverged, self.pending + self.doubt + self.hot

    def cells(self) -> dict[str, str]:
        """Return what a table shows of it, by column."""
        oldest = "" if self.oldest_seconds is None else f"{self.oldest_seconds:.0f} s"
        counts = {name: f"{getattr(self, name):,}" for name in ("keys", "pending", "doubt", "hot", "diverged")}
        age = {} if self.equal_age_seconds is None else {"equal within": f"{self.equal_age_seconds:.0f} s"}
        return {"verified through": self.verified_through, **age, **counts, "oldest": oldest}

    def notes(self) -> Iterator[str]:
        """Yield what was found in the stream beside rows."""
        yield from self.findings


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesStatus(WatchStatus):
    """The status of a watch of tables. ``covers`` says which rows the verdict is about.

    ``reverse``: the target is written, and the source follows. ``as_of`` is the place up to which every written key of
    every table is proved, empty while there is none; ``as_of_verdict`` is the verdict as of there, INCONCLUSIVE where
    that is longer ago than ``watch.hot_seconds``. ``sweep``: what is known without a changefeed. ``old_side``: what
    is known of writes on the source that the feed did not make, None where that is not asked. ``left_out`` says, and
    ``in_part`` and ``excluded`` count, which tables the configuration has compared in part or leaves out.
    """

    prefix: ClassVar[str] = "migverify_watch"
    sources: tuple[SourceStatus, ...]
    tables: tuple[TableStatus, ...]
    findings: tuple[str, ...] = ()
    covers: str = ""
    reverse: bool = False
    as_of: str = ""
    as_of_verdict: Verdict = Verdict.INCONCLUSIVE
    sweep: SweepStatus | None = None
    old_side: OldSideStatus | None = None
    left_out: str = ""
    in_part: int = 0
    excluded: int = 0

    @property
    def parts(self) -> Sequence[TableStatus]:
        """The table pairs."""
        return self.tables

    def headline(self) -> str:
        """Return the state of the watch in one line."""
        opened = sum(t.pending + t.doubt + t.hot for t in self.tables)
        left_out = [self.left_out] if self.left_out else []
        if self.sweep is not None and not self.as_of:
            diverged = sum(t.diverged for t in self.tables)
            shown = self.sweep.text(has_others=bool(opened or diverged))
            said = [f"rollback {self.verdict.value}", *left_out, shown]
            return "; ".join([*said, f"{amount(opened, 'key')} open, {diverged:,} diverged"])
        said = [self._rollback(opened) if self.reverse else self.verdict.value, *left_out]
        for source in self.sources:
            lag = "lag unknown" if source.lag_seconds is None else (
                f"lag {source.lag_seconds:.1f} s / {source.lag_transactions:,} transactions")  # fmt: skip
            said.append(f"{source.name} read to {source.read or '?'}, {lag}")
        if self.old_side is not None and self.old_side.total:
            said.append(f"{self.old_side.findings} of writes on {self.old_side.source}")
        proved, diverged = sum(t.keys for t in self.tables), sum(t.diverged for t in self.tables)
        return "; ".join([*said, f"{amount(proved, 'key')} proved, {opened:,} open, {diverged:,} diverged"])

    def _rollback(self, opened: int) -> str:
        ages = [table.oldest_seconds for table in self.tables if table.oldest_seconds is not None]
        oldest = f", oldest {max(ages):.0f} seconds" if ages else ""
        # While it runs, keys are open behind the place; at its end they count.
        verdict = self.verdict if self.final else self.as_of_verdict
        return f"rollback {verdict.value} as of {self.as_of or 'no place yet'}, {amount(opened, 'key')} open{oldest}"

    @property
    def as_of_time(self) -> float | None:
        """Unix time of ``as_of`` where it is a timestamp of TiDB; a place in a binlog has none."""
        if not (self.reverse and self.as_of):
            return None
        return _time_of(self.as_of)

    def covered(self) -> str:
        """Return which rows the verdict is about."""
        return self.covers

    def next_steps(self) -> Iterator[NextStep]:
        """Yield the command that shows the diverged rows."""
        if any(t.diverged for t in self.tables):
            yield NextStep(f"migverify tables diff {self.run_id}", "lists the diverged rows")

    def closing(self) -> Iterator[str]:
        """Yield what restricts the verdict, and the command that shows the diverged rows."""
        yield from self.findings
        if self.old_side is not None:
            yield from self.old_side.lines()
        # Not `super()`: slots make the class anew, and it would mean the first one.
        yield from WatchStatus.closing(self)

    def metrics(self) -> Iterator[Metric]:
        """Yield the gauges of streams and tables."""
        direction = {"direction": "reverse" if self.reverse else "forward", "run": self.run_id}
        yield Metric(f"{self.prefix}_info", "1; which direction this is, and its run.", [(direction, "1")])
        yield Metric(f"{self.prefix}_left_out_tables", "Tables that a verdict is not about, or is in part.",
                     [({"why": "in part"}, f"{self.in_part}"), ({"why": "excluded"}, f"{self.excluded}")])  # fmt: skip
        yield Metric(f"{self.prefix}_as_of_seconds", "Unix time up to which a rollback is proved; NaN: none, forward.",
                     [({}, sample_value(self.as_of_time))])  # fmt: skip
        yield Metric(f"{self.prefix}_as_of_verdict", "The verdict as of the place up to which all is proved.",
                     [({}, VERDICTS[self.as_of_verdict])])  # fmt: skip
        yield from gauges(self.prefix, "source", self.sources, (
            ("lag_seconds", "lag_seconds", "How far the target is behind what was read, by time."),
            ("lag_transactions", "lag_transactions", "How far the target is behind what was read, by transactions."),
            ("heard_seconds", "read_seconds", "How long ago the source last sent something."),
            ("commits", "commits", "Transactions that were read."),
        ))  # fmt: skip
        yield from gauges(f"{self.prefix}_table", "table", self.tables, (
            ("pending", "pending", "Keys that wait for their proof."),
            ("doubt", "doubt", "Keys that differed once and are read again."),
            ("hot", "hot", "Keys whose row keeps changing."),
            ("diverged", "diverged", "Keys that differ for good."),
            ("keys", "keys", "Proofs of keys."),
            ("images", "images", "Row images of the stream."),
            ("oldest_seconds", "oldest_seconds", "Age of the oldest key without a proof."),
        ))  # fmt: skip
        if self.sweep is not None:
            yield from gauges(f"{self.prefix}_table", "table", self.tables, (
                ("equal_age_seconds", "equal_age_seconds", "How long ago some range was compared last."),
            ))  # fmt: skip
            bound = f"{self.sweep.bound_seconds:g}"
            yield Metric(f"{self.prefix}_sweep_bound_seconds", "How old that may become.", [({}, bound)])
        if self.old_side is not None:
            yield Metric(f"{self.prefix}_old_side_findings", "Writes on the source that the feed did not make.",
                         [({"kind": kind}, f"{count}") for kind, count in self.old_side.written.items()])  # fmt: skip
        yield Metric(f"{self.prefix}_table_verdict", "Verdict of the table: 0 match, 1 mismatch, 3 inconclusive.",
                     [({"table": t.name}, VERDICTS[t.verdict]) for t in self.tables])  # fmt: skip


@dataclass(frozen=True, slots=True)
class WatchFacts:
    """The state of a watch, as its verdict needs it; maps go by the number of a source, or of a pair.

    ``since`` are the first places without a proof, ``notes`` those of the ledger. ``uncovered`` names tables in scope
    that were not watched from the beginning, and why; ``stale`` says per pair how far its comparison is. ``sweep`` is
    given where no changefeed shows what is written. ``blind_spots`` are words for what the streams do not show.
    ``scope`` is what the configuration has compared.
    """

    run_id: str
    sources: Sequence[SourceProgress]
    limits: WatchRules
    pairs: Sequence[Watched]
    base: Mapping[int, Base]
    counts: Mapping[int, PairCounts]
    since: Mapping[int, Mapping[int, int]]
    notes: Sequence[tuple[int, str, str]]
    troubles: tuple[str, ...] = ()
    final: bool = False
    timed_out: bool = False
    uncovered: tuple[str, ...] = ()
    stale: Mapping[int, str] = field(default_factory=dict)
    sweep: Sweep | None = None
    old_side: OldSideStatus | None = None
    blind_spots: Sequence[str] = ()
    scope: ProofScope = field(default_factory=ProofScope)

    @property
    def is_passed(self) -> bool:
        """Whether a final pass has compared all tables."""
        return self.sweep is not None and self.sweep.is_passed

    @property
    def is_drained_under_load(self) -> bool:
        """Whether the last status is one as of the place to drain to: writes may go on behind it."""
        limits = self.limits
        if not (self.final and limits.is_as_of and limits.until is not None and self.sweep is None):
            return False
        return is_proved_to(limits.until, self.since)


def is_proved_to(until: Mapping[int, int], since: Mapping[int, Mapping[int, int]]) -> bool:
    """Whether every key without a proof was first written behind the places to drain to."""
    return all(place > until[number] for opened in since.values() for number, place in opened.items())


def status_of(facts: WatchFacts) -> TablesStatus:
    """Judge every pair and the streams."""
    now = time.time()
    sources = tuple(_source(progress, now) for progress in facts.sources)
    until = facts.limits.until or {}
    stream_gaps = [
        gap for number, (progress, source) in enumerate(zip(facts.sources, sources, strict=True))
        for gap in _stream_gaps(progress, source, until.get(number), facts.limits.follower)
    ]  # fmt: skip
    if facts.limits.reverse and facts.sweep is None:
        stream_gaps += _standing(facts.sources, until)
    stream_gaps += facts.troubles
    sweep = None if facts.sweep is None else sweep_status(facts.sweep, now)
    if facts.sweep is not None and sweep is not None:
        stream_gaps += sweep_gaps(facts.sweep, sweep)
    if facts.timed_out:
        stream_gaps.append(f"the time limit of {facts.limits.time_limit:g} s is over")
    tables = tuple(_table(facts, pair, number, stream_gaps, now) for number, pair in _pairs(facts).items())
    gaps = [*stream_gaps, *facts.uncovered, *(_uncovered(k, t) for p, k, t in facts.notes if p < 0)]
    covers = _covers(facts, tables)
    if not covers:
        gaps.append(
            "nothing was compared: this watch rests on no run (begin it with --since RUN), and nothing was written"
        )
    if facts.limits.reverse and sweep is None and not any(s.stream.applied.writes for s in facts.sources):
        gaps += _unwitnessed(tables)
    as_of = _as_of(facts)
    return TablesStatus(
        run_id=facts.run_id, at=now, verdict=_worst([t.verdict for t in tables], gaps), reasons=tuple(gaps),
        sources=sources if sweep is None else (), tables=tables, sweep=sweep,
        final=facts.final, covers=covers, reverse=facts.limits.reverse, as_of=as_of,
        as_of_verdict=_worst([t.as_of_verdict for t in tables], [*gaps, *_old(facts, tables, sources, as_of)]),
        findings=(
            *(text for n, kind, text in facts.notes if (n, kind) == (NO_PAIR, OTHER_SERVER)),
            *(() if sweep is None else sweep_blind_spots(sweep)),
            *facts.blind_spots,
            *(_not_carried(tables) if facts.limits.reverse and sweep is None else ()),
        ),
        old_side=facts.old_side, left_out=facts.scope.left_out, in_part=facts.scope.in_part,
        excluded=len(facts.scope.excluded),
    )  # fmt: skip


def _time_of(as_of: str) -> float:
    return tso_time(parse_position(as_of.partition(" ")[0]).offset)


def _worst(verdicts: list[Verdict], gaps: Sequence[str]) -> Verdict:
    verdict = Verdict.worst(verdicts)
    return Verdict.INCONCLUSIVE if gaps and verdict is Verdict.MATCH else verdict


def _old(
    facts: WatchFacts, tables: Sequence[TableStatus], sources: Sequence[SourceStatus], as_of: str
) -> Iterator[str]:
    """Yield why the place up to which all is proved says nothing about now: there is none, or it is too old."""
    if not as_of:
        yield "no place is known up to which all written keys are proved"
    ages = [table.oldest_seconds for table in tables] + [source.lag_seconds for source in sources]
    if as_of and facts.limits.reverse and facts.sweep is None:  # a changefeed without progress shows no later write
        ages.append(time.time() - _time_of(as_of))
    if max((age for age in ages if age is not None), default=0.0) > facts.limits.hot_seconds:
        yield f"what was written more than {facts.limits.hot_seconds:g} s ago is not proved"


def _unwitnessed(tables: Sequence[TableStatus]) -> list[str]:
    """Return that nothing shows the changefeed to be that of this target: one of another cluster moves on as well."""
    if any(table.images for table in tables):
        return []
    return ["the changefeed carried no row of these tables yet: whether it is that of this target is not known"]


def _not_carried(tables: Sequence[TableStatus]) -> Iterator[str]:
    """Yield which tables no message came of: a changefeed with a filter looks like one of tables that nobody writes."""
    names = sorted(table.target for table in tables if not table.images)
    if names:
        shown = ", ".join(names[:_NAMES]) + (f" and {len(names) - _NAMES} more" if len(names) > _NAMES else "")
        yield (
            f"the changefeed carried no row of {shown}: where its filter leaves a table out, what is written there "
            "is not seen (watch.sweep_rows finds it)"
        )


def _pairs(facts: WatchFacts) -> dict[int, PairPlan]:
    return {w.number: w.pair for w in sorted(facts.pairs, key=lambda w: w.number)}


def _uncovered(kind: str, text: str) -> str:
    if kind != "uncovered":  # of a ledger of an earlier release
        return f"a statement whose tables are not known: {text}" if kind == "ddl" else text
    endpoint, database, table = json.loads(text)
    return f"{endpoint}: {database}.{table} is in scope, and no table pair covers it: verify the tables again"


def _covers(facts: WatchFacts, tables: Sequence[TableStatus]) -> str:
    """Return which rows the verdict is about; empty for none."""
    numbers = _pairs(facts).keys()
    compared = {p for p, kind, _ in facts.notes if kind == "compared"}
    began = {n: facts.base[n].run_id for n in numbers - compared if n in facts.base}
    verified = {n: run for n, run in began.items() if run is not None}
    rows, parts = "all that the configuration compares" if facts.scope.in_part else "all rows", []
    if facts.sweep is not None:
        swept = [n for n in numbers if facts.sweep.of(n).complete]
        return f"{rows} of {amount(len(swept), 'table')}, each as of a moment of its own" if swept else ""
    if verified:
        runs = ", ".join(sorted(set(verified.values())))
        parts.append(f"{rows} of {amount(len(verified), 'table')} (run {runs}, and every key written since)")
    if compared:
        parts.append(f"{rows} of {amount(len(compared), 'table')} (compared again by this watch)")
    if (alone := len(numbers - verified.keys() - compared)) and sum(t.keys + t.diverged for t in tables):
        parts.append(
            f"of {amount(alone, 'table')} only keys written while this watch ran: no verification to start from"
        )
    return "; ".join(parts)


def _source(progress: SourceProgress, now: float) -> SourceStatus:
    position = progress.position
    seconds, transactions = progress.lag(now)
    return SourceStatus(
        progress.stream.endpoint.name, str(position) if position else "", position.gtids if position else "",
        progress.commits, type(progress.stream.applied).__name__, seconds, transactions,
        now - progress.received_at if progress.received_at else None, progress.failure,
    )  # fmt: skip


def _stream_gaps(progress: SourceProgress, source: SourceStatus, until: int | None, follower: str) -> list[str]:
    gaps = []
    name, applied = source.name, progress.applied
    there = until is not None and progress.ordinal >= until
    if source.failure:
        gaps.append(f"{name}: the change stream ended at {source.read or 'its start'}: {source.failure}")
    elif source.read_seconds is None and not there:
        gaps.append(f"{name}: nothing was read from the change stream yet")
    elif source.read_seconds is not None and source.read_seconds > SILENT_SECONDS:
        gaps.append(f"{name}: the change stream has been silent for {source.read_seconds:.0f} s")
    if until is not None and not there and not source.failure:
        gaps.append(f"{name}: read to {source.read or 'no place'} yet, not to {progress.shown(until)}")
    if applied is None:
        gaps.append(f"{name}: what the {follower} has applied is not known yet")
    elif until is not None and applied < until:
        gaps.append(
            f"{name}: the {follower} has applied to {progress.shown(applied)}, not to {progress.shown(until)} yet (lag)"
        )
    return gaps


def _standing(sources: Sequence[SourceProgress], until: Mapping[int, int]) -> Iterator[str]:
    """Yield which changefeed has a watermark that does not move: it moves on also while nothing is written."""
    for number, progress in enumerate(sources):
        seconds = time.monotonic() - progress.moved_at
        is_there = number in until and progress.ordinal >= until[number]
        if seconds > SILENT_SECONDS and not is_there and not progress.failure:
            yield (
                f"{progress.stream.endpoint.name}: the changefeed's watermark has stood at"
                f" {progress.shown(progress.ordinal)} for {seconds:.0f} s: what was written since is not known"
            )


def _as_of(facts: WatchFacts) -> str:
    """Return the place up to which all writes of all tables are proved; empty where one has none."""
    if facts.sweep is not None:
        is_proved = facts.is_passed and not facts.since
        return shown_timestamp(facts.sweep.final) if is_proved and facts.sweep.final is not None else ""
    places = []
    for number, progress in enumerate(facts.sources):
        opened = [since[number] for since in facts.since.values() if number in since]
        places.append(_through(progress, min(opened, default=None), reverse=facts.limits.reverse))
    return " ".join(places) if all(places) else ""


def _through(progress: SourceProgress, since: int | None, *, reverse: bool) -> str:
    """Return the place up to which all writes are proved: what was read and applied, before the first open key.

    Every number before the timestamp of an open key is a timestamp; in a binlog only some offsets are places.
    """
    applied = progress.applied
    if progress.position is None or applied is None or since == 0:
        return ""
    if since is None and applied >= progress.ordinal:
        return progress.shown(progress.ordinal)
    bound = min(applied, progress.ordinal)
    if since is not None and bound >= since - 1:
        return progress.shown(since - 1) if reverse else f"before {progress.shown(since)}"
    return progress.shown(bound)


def _table(facts: WatchFacts, pair: PairPlan, number: int, stream_gaps: Sequence[str], now: float) -> TableStatus:
    base, counts = facts.base.get(number, Base()), facts.counts.get(number, PairCounts())
    notes = [(kind, text) for of, kind, text in facts.notes if of == number]
    comparing = facts.stale.get(number, "")
    compared = facts.is_passed or any(kind == "compared" for kind, _ in notes)
    whole = compared or base.run_id is not None
    if compared:
        base = Base()  # all rows were read since, by this watch
    gaps = [*uncovered_columns(pair), *_table_gaps(base, notes, comparing)]
    opened = [] if facts.is_drained_under_load else _open_keys(counts)
    more = []
    if facts.sweep is not None and number in facts.sweep.written:
        more.append(
            f"rows were written on the target after {shown_timestamp(facts.sweep.final or 0)}: writes are not stopped"
        )
    if facts.limits.reverse and facts.sweep is None:
        more += filter(None, [uncarried(pair)])
    mismatches = schema_mismatches(pair, reverse=facts.limits.reverse)
    if counts.diverged:
        mismatches.append(f"{counts.diverged:,} {'key is' if counts.diverged == 1 else 'keys are'} diverged")
    if base.verdict is Verdict.MISMATCH and not counts.diverged:
        more.append(f"run {base.run_id} found differences; none of them is left now: verify the table again")
    as_of_verdict = verdict_of(mismatches, [*gaps, *more, *stream_gaps])
    since = facts.since.get(number, {})
    through = " ".join(
        _through(progress, since.get(n), reverse=facts.limits.reverse) for n, progress in enumerate(facts.sources)
    )
    age = None
    if facts.sweep is not None:
        oldest = facts.sweep.of(number).oldest if number in facts.sweep.numbers else None
        age = None if oldest is None else max(0.0, now - tso_time(oldest))
        through = _as_of(facts)
    return TableStatus(
        pair.source, pair.target, verdict_of(mismatches, [*gaps, *opened, *more, *stream_gaps]), through.strip(),
        counts.pending, counts.doubt, counts.hot, counts.diverged,
        None if counts.oldest is None else max(0.0, now - counts.oldest), counts.proved, counts.images,
        (*mismatches, *gaps, *opened, *more),
        tuple(f"{kind}: {text}" for kind, text in notes if kind not in ("stale", "identity")), whole, age,
        as_of_verdict,
    )  # fmt: skip


def _table_gaps(base: Base, notes: Sequence[tuple[str, str]], comparing: str) -> list[str]:
    gaps = []
    if base.run_id is not None and base.verdict is not Verdict.MATCH and base.verdict is not Verdict.MISMATCH:
        rests = f", as it rests on run {base.rests_on}" if base.rests_on else ""
        gaps.append(
            f"run {base.run_id} did not prove this table{rests}: {base.reason or 'no result'} "
            f"(migverify tables verify --recheck {base.run_id} reads it again)"
        )
    for kind, text in notes:
        if kind == "stale":
            gaps.append(f"it may hold other rows since it was compared: {text} ({comparing})")
        elif kind == "keyless":
            gaps.append("rows were written, and the table has no key to read them by: verify it again")
    return list(dict.fromkeys(gaps))


def uncarried(pair: PairPlan) -> str:
    """Return why no changefeed carries the rows of a table, empty where it may."""
    side = pair.target_side
    if side is None or (side.sql.key and not any(column.nullable for column in side.sql.key)):
        return ""
    return "a changefeed carries no table without a primary key or a NOT NULL unique key: its writes are not seen"


def _open_keys(counts: PairCounts) -> list[str]:
    gaps = []
    if counts.pending:
        gaps.append(f"{counts.pending:,} written keys are not proved yet")
    if counts.doubt:
        gaps.append(f"{counts.doubt:,} keys differed when they were read last, and are not proved yet")
    if counts.hot:
        gaps.append(f"{counts.hot:,} keys keep changing (hot)")
    return gaps


def table_result(status: TableStatus, pair: PairPlan, base: Base, diffs: Mapping[tuple[str, str], int],
                 seconds: float, started_at: str) -> TableResult:  # fmt: skip
    """Return what the store keeps of one pair at the end of a watch."""
    is_swept = status.equal_age_seconds is not None
    alone = NotCovered(
        "rows", "what was written since they were read" if is_swept
        else f"not written since {started_at}: not read by this watch",
    )  # fmt: skip
    details = {
        "verified_through": status.verified_through, "keys": status.keys, "images": status.images,
        "pending": status.pending, "doubt": status.doubt, "hot": status.hot, "diverged": status.diverged,
        "since_run": base.run_id or "", "plan_digest": plan_digest(pair), "findings": list(status.findings),
        "strategy": "rounds over all rows" if is_swept else "touched keys of the change stream", "whole": status.whole,
    }  # fmt: skip
    return pair_result(
        pair, status.verdict, status.reasons, diffs, seconds, details, not_covered=() if status.whole else (alone,)
    )
