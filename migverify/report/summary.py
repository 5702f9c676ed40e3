"""Everything a report shows, read from a result store and from nothing else.

``read_report`` is the one door: it pages and streams, so that its memory depends on the caps in
``ReportOptions`` and on the number of table pairs, never on the number of chunks or row diffs. Values are
masked here, so no renderer can leak one.

Facts of a run that are shown in a place of their own: ``engine``, ``seconds``, ``reasons`` (a list of texts:
why the run as a whole has its verdict) and ``endpoints``, a mapping from endpoint name to its facts
(``flavor``, ``version``, ``position`` ...). All others are listed as they are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from migverify.errors import ExitCode
from migverify.model import (
    ChunkState,
    DiffKind,
    KeyText,
    LiveState,
    NotCovered,
    RowDiff,
    RunInfo,
    TableResult,
    Verdict,
)
from migverify.report.coverage import ChunkTally, Coverage, SlowChunk, Timeline
from migverify.report.marks import Clip, clip_pair
from migverify.report.rules import RuleReport, is_rule, read_rule, warning_words
from migverify.secrets import hide_logins
from migverify.store.base import ResultStore

_PAGE = 50
_STATE_ORDER = ((LiveState.DIVERGED,), (LiveState.HOT, LiveState.UNCONFIRMED), (LiveState.CONVERGED,))
EXIT_CODES: Mapping[Verdict, ExitCode] = {
    Verdict.MATCH: ExitCode.MATCH,
    Verdict.MISMATCH: ExitCode.MISMATCH,
    Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """How much a report holds; every cap is stated where it cuts.

    Parameters
    ----------
    values
        Show stored values of differing columns. What the run did not keep stays masked.
    samples
        Row diffs shown per table pair.
    samples_in_all
        Row diffs shown in the whole report, shared evenly by the table pairs that have any (each shows at
        least one).
    value_characters
        Characters shown per value, around the first difference.
    slow_chunks
        Slowest chunks listed per table pair.
    sections
        Table pairs with details: first those that are not MATCH, then the slowest.
    """

    values: bool = False
    samples: int = 200
    samples_in_all: int = 20_000
    value_characters: int = 400
    slow_chunks: int = 5
    sections: int = 300


@dataclass(frozen=True, slots=True)
class ColumnSample:
    """One differing column. ``masked`` True: both values are withheld, ``source`` and ``target`` are None."""

    column: str
    kind: str
    masked: bool
    source: Clip | None
    target: Clip | None


@dataclass(frozen=True, slots=True)
class RowSample:
    """One row diff as a report shows it; ``columns`` may be empty."""

    key: KeyText
    kind: str
    state: str
    columns: tuple[ColumnSample, ...]
    source_count: int
    target_count: int
    shard: str


@dataclass(frozen=True, slots=True)
class SqlText:
    """The exact text of a statement as it was recorded."""

    side: str
    purpose: str
    text: str


@dataclass(frozen=True, slots=True)
class TableDetail:
    """What is shown of one table pair beyond its line in the overview."""

    slow_chunks: tuple[SlowChunk, ...]
    failed_chunks: tuple[SlowChunk, ...]
    samples: tuple[RowSample, ...]
    sql: tuple[SqlText, ...]


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table pair. ``counts``: stored row diffs by (kind, state). ``detail`` None: left out by the cap."""

    result: TableResult
    coverage: Coverage
    counts: tuple[tuple[str, str, int], ...]
    detail: TableDetail | None

    @property
    def row_diffs(self) -> int:
        """Row diffs of the table's result, over all kinds."""
        result = self.result
        return result.missing_on_target + result.missing_on_source + result.value_differs

    @property
    def stored_row_diffs(self) -> int:
        """Row diffs the store holds, in any state (converged ones too)."""
        return sum(count for _, _, count in self.counts)


@dataclass(frozen=True, slots=True)
class Fact:
    """One line of the run's facts; ``value`` is text for people."""

    name: str
    value: str


_LONG_FACTS = frozenset({"session", "max_allowed_packet", "connections"})


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What the run recorded of one endpoint."""

    name: str
    facts: tuple[Fact, ...]

    @property
    def brief(self) -> tuple[Fact, ...]:
        """The facts that fit beside the verdict; the others are long, or of interest to few."""
        return tuple(fact for fact in self.facts if fact.name not in _LONG_FACTS)


@dataclass(frozen=True, slots=True)
class ReportData:
    """One run, ready to be rendered. ``seconds`` None means that the run's end is not known.

    ``reasons`` tell why the run's verdict is what it is where the tables alone do not tell it.
    """

    run_id: str
    verdict: Verdict
    exit_code: ExitCode
    reasons: tuple[str, ...]
    command: str
    started: float
    finished: float | None
    seconds: float | None
    plan_hash: str
    engine: str
    hashes: tuple[str, ...]
    facts: tuple[Fact, ...]
    endpoints: tuple[EndpointFacts, ...]
    tables: tuple[TableReport, ...]
    coverage: Coverage
    timeline: Timeline
    blind_spots: tuple[tuple[str, int], ...]
    not_covered: tuple[tuple[str, NotCovered], ...]
    options: ReportOptions = field(default_factory=ReportOptions)
    rules: tuple[RuleReport, ...] = ()

    @property
    def noun(self) -> str:
        """What the run has a result of: ``rule`` or ``table pair``."""
        return "rule" if self.rules and not self.tables else "table pair"

    @property
    def verdict_counts(self) -> dict[Verdict, int]:
        """Number of table pairs or rules per verdict, zeros included."""
        counts = Counter([*(t.result.verdict for t in self.tables), *(r.result.verdict for r in self.rules)])
        return {verdict: counts[verdict] for verdict in (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)}

    @property
    def warned(self) -> str:
        """Findings of rules that only warn, as words: verdicts and other counts leave them out; empty for none."""
        numbers = [rule.warnings for rule in self.rules if rule.warnings]
        many = f"{len(numbers):,} {'rule' if len(numbers) == 1 else 'rules'}"
        return f"{warning_words(sum(numbers))} in {many}" if numbers else ""

    @property
    def kind_counts(self) -> dict[DiffKind, int]:
        """Row diffs per kind over all table pairs; for the HTML template."""
        return {kind: sum(getattr(t.result, kind.value) for t in self.tables) for kind in DiffKind}

    @property
    def sections(self) -> tuple[TableReport, ...]:
        """Table pairs that carry details, most urgent first."""
        return tuple(sorted((t for t in self.tables if t.detail is not None), key=_urgency))


def read_report(store: ResultStore, run_id: str, options: ReportOptions | None = None) -> ReportData:
    """Read one run.

    Parameters
    ----------
    store
        Where the run is kept; only read.
    run_id
        The run's id, or ``last``.
    options
        Caps, and whether stored values may be shown.

    Raises
    ------
    UsageError
        There is no such run.
    StoreError
        The store cannot be read.
    """
    options = options or ReportOptions()
    info = store.load_run(run_id)
    stored = store.table_results(info.run_id)
    every = _with_pairs_not_run(info, stored)
    verdict, reasons = _verdict(info, every, len(stored))
    planned = frozenset(str(name) for name in _as_list(info.plan.get("rules")))
    results = [result for result in every if not is_rule(result, planned)]
    rules = sorted((result for result in every if is_rule(result, planned)), key=lambda result: result.pair)
    each = min(options.samples, max(1, options.samples_in_all // max(1, len(rules))))
    detailed = {r.pair for r in sorted(results, key=_result_urgency)[: options.sections]}
    share = _samples_per_table(results, options)
    timeline = Timeline.Builder(info.started)
    tables = tuple(
        _table(store, info.run_id, result, options, share if result.pair in detailed else None, timeline)
        for result in results
    )
    return ReportData(
        run_id=info.run_id,
        verdict=verdict,
        exit_code=EXIT_CODES[verdict],
        reasons=reasons,
        command=redact(info.command),
        started=info.started,
        finished=info.finished,
        seconds=_seconds(info),
        plan_hash=info.plan_hash,
        engine=_text(info.facts.get("engine")),
        hashes=tuple(sorted({r.hash_name for r in results if r.hash_name})),
        facts=tuple(_facts(_other_facts(info.facts))),
        endpoints=tuple(_endpoints(info.facts)),
        tables=tables,
        coverage=Coverage.total([table.coverage for table in tables]),
        timeline=timeline.build(),
        blind_spots=tuple(Counter(spot for r in results for spot in r.blind_spots).most_common()),
        not_covered=tuple((r.source, item) for r in results for item in r.not_covered),
        options=options,
        rules=tuple(read_rule(store, info.run_id, result, each, values=options.values) for result in rules),
    )


def _verdict(info: RunInfo, results: Sequence[TableResult], done: int) -> tuple[Verdict, tuple[str, ...]]:
    """Take the stored verdict, unless it claims more than the store holds: then INCONCLUSIVE, and why."""
    reasons = [text for text in _as_list(info.facts.get("reasons")) if text]
    if info.finished is None:
        found = sum(1 for r in results if r.verdict is Verdict.MISMATCH)
        reasons.insert(0, f"the run has no end: it was cut off or still goes on (table pairs with a result: {done})")
        if found:
            reasons.append(f"table pairs that are MISMATCH already: {found}")
        return Verdict.INCONCLUSIVE, tuple(reasons)
    held = Verdict.worst([r.verdict for r in results])
    if info.verdict is Verdict.MATCH and held is not Verdict.MATCH:
        what = "it holds no table results" if not results else f"its table results say {held}"
        return Verdict.INCONCLUSIVE, (f"the store contradicts itself: the run is MATCH, but {what}", *reasons)
    return info.verdict, tuple(reasons)


def _with_pairs_not_run(info: RunInfo, results: Sequence[TableResult]) -> list[TableResult]:
    """Add the planned table pairs that have no result: INCONCLUSIVE, because nothing was compared."""
    known = {result.pair for result in results}
    missing = [
        TableResult(
            pair=pair,
            source=source,
            target=target,
            verdict=Verdict.INCONCLUSIVE,
            reasons=("no result is stored: the run did not get to the end of this table pair",),
            rows_source=None,
            rows_target=None,
            chunks=0,
            lanes=(),
            missing_on_target=0,
            missing_on_source=0,
            value_differs=0,
            not_covered=(NotCovered("the table", "not finished in this run"),),
            schema=(),
            seconds=0.0,
        )
        for pair, source, target in planned_pairs(info.plan)
        if pair not in known
    ]
    return sorted([*results, *missing], key=lambda r: (r.source, r.target, r.pair))


def planned_pairs(plan: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (pair id, source name, target name) of a stored plan; nothing where it lists no pairs."""
    for entry in _as_list(plan.get("pairs")):
        if not isinstance(entry, Mapping):
            continue
        pair = entry.get("pair", entry.get("id"))
        if isinstance(pair, str):
            sources = _as_list(entry.get("source", entry.get("sources")))
            source = sources[0] if sources else None
            yield pair, _table_name(source, pair), _table_name(entry.get("target"), pair)


def _table_name(ref: object, otherwise: str) -> str:
    if isinstance(ref, str):
        return ref
    if isinstance(ref, Mapping) and "database" in ref and "table" in ref:
        return f"{ref['database']}.{ref['table']}"
    return otherwise


def _result_urgency(result: TableResult) -> tuple[int, float, str]:
    order = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)
    return order.index(result.verdict), -result.seconds, result.pair


def _urgency(table: TableReport) -> tuple[int, float, str]:
    return _result_urgency(table.result)


def _samples_per_table(results: Sequence[TableResult], options: ReportOptions) -> int:
    sharing = sum(1 for r in results if r.verdict is not Verdict.MATCH) or 1
    return min(options.samples, max(1, options.samples_in_all // min(sharing, max(options.sections, 1))))


def _table(
    store: ResultStore,
    run_id: str,
    result: TableResult,
    options: ReportOptions,
    samples: int | None,
    timeline: Timeline.Builder,
) -> TableReport:
    tally = ChunkTally(options.slow_chunks)
    for chunk in store.chunks(run_id, result.pair):
        tally.add(chunk)
        timeline.add(chunk)
    stored = store.count_row_diffs(run_id, result.pair, distinct=True)
    counts = sorted((str(k), str(s), n) for (k, s), n in stored.items())
    detail = None
    if samples is not None:
        detail = TableDetail(
            slow_chunks=tally.slowest(),
            failed_chunks=tally.failed(),
            samples=_samples(store, run_id, result.pair, samples, options),
            sql=tuple(SqlText(side, purpose, redact(t)) for side, purpose, t in store.sql(run_id, result.pair)),
        )
    spans = len(store.spans(run_id, result.pair))
    return TableReport(result, tally.coverage(spans), tuple(counts), detail)


def _samples(store: ResultStore, run_id: str, pair: str, limit: int, options: ReportOptions) -> tuple[RowSample, ...]:
    out: list[RowSample] = []
    # Confirmed differences first: rows that converged meanwhile must not push them out of the sample.
    for states in _STATE_ORDER:
        after = 0
        while len(out) < limit:
            # A page may hold long values, so pages are small and each row is cut to its shown form at once.
            page = store.row_diffs(run_id, pair, states=states, after=after, limit=min(_PAGE, limit - len(out)))
            if not page:
                break
            out.extend(_row_sample(diff, options) for _, diff in page)
            after = page[-1][0]
    return tuple(out)


def _row_sample(diff: RowDiff, options: ReportOptions) -> RowSample:
    columns = []
    for column in diff.columns:
        masked = column.masked or not options.values
        source, target = None, None
        if not masked:
            source, target = clip_pair(column.source, column.target, options.value_characters)
        columns.append(ColumnSample(column.column, column.kind, masked, source, target))
    return RowSample(
        diff.key,
        str(diff.kind),
        str(diff.state),
        tuple(columns),
        diff.source_count,
        diff.target_count,
        diff.shard,
    )


def _seconds(info: RunInfo) -> float | None:
    stated = info.facts.get("seconds")
    if isinstance(stated, int | float) and not isinstance(stated, bool):
        return float(stated)  # a resumed run counts its working time, not the pause between
    return None if info.finished is None else info.finished - info.started


_TIME_NAME = re.compile(r"(^|[ ._])(at|time|taken|since|until|started|finished)$")
_FIRST_TIME, _LAST_TIME = 1e9, 1e10
_SECRET_NAME = re.compile(r"^(.*[._-])?(password|passwd|pwd|secret|token)$", re.IGNORECASE)


def redact(text: str) -> str:
    """Withhold a password inside a URL. Nothing should store one; a report is the last door."""
    return hide_logins(text)


def _facts(facts: Mapping[str, Any], prefix: str = "") -> Iterator[Fact]:
    for name, value in facts.items():
        full = f"{prefix}{name}"
        if _SECRET_NAME.match(full):
            yield Fact(full, "(withheld)")
        elif isinstance(value, Mapping) and value:
            yield from _facts(value, f"{full}.")
        elif _TIME_NAME.search(name) and isinstance(value, int | float) and _FIRST_TIME < value < _LAST_TIME:
            yield Fact(full, utc(value))
        else:
            yield Fact(full, redact(_text(value)))


def _other_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is shown in a place of its own; ``endpoints`` only when it has the form for it."""
    shown = {"engine", "seconds", "reasons"} | ({"endpoints"} if _has_endpoints(facts) else set())
    return {name: value for name, value in facts.items() if name not in shown}


def _has_endpoints(facts: Mapping[str, Any]) -> bool:
    return isinstance(facts.get("endpoints"), Mapping)


def _endpoints(facts: Mapping[str, Any]) -> Iterator[EndpointFacts]:
    if _has_endpoints(facts):
        for name, value in facts["endpoints"].items():
            inner = value if isinstance(value, Mapping) else {"version": value}
            yield EndpointFacts(str(name), tuple(_facts(inner)))


def _text(value: object) -> str:
    if value is None or value == "":
        return "not recorded"
    if isinstance(value, list | tuple | dict):
        return ", ".join(_text(item) for item in value) or "none"
    return str(value)


def _as_list(value: object) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def utc(moment: float | None) -> str:
    """Return Unix time as ``2026-01-31 12:00:00 UTC``; None is ``not recorded``."""
    if moment is None:
        return "not recorded"
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def failed_chunks(table: TableReport) -> int:
    """Return how many chunks of the table pair could not be read."""
    return table.coverage.states.get(ChunkState.FAILED, 0)
