"""What a watch knows -> its verdict, per table and as a whole. Pure; there is no path to MATCH but the last line."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migverify.changes.model import Position
from migverify.model import NotCovered, RowDiff, TableResult, Verdict
from migverify.tables.outcome import schema_mismatches, uncovered_columns
from migverify.tables.plan import plan_digest
from migverify.tables.touched import Watched
from migverify.tables.watch_status import SourceStatus, TableStatus, Track, WatchStatus
from migverify.watch.applied import Applied
from migverify.watch.ledger import LedgerKey, PairCounts

OFFSET_BITS = 40
SILENT_SECONDS = 60.0
"""A server sends heartbeats; one that was not heard for longer says nothing about what was written."""


@dataclass(frozen=True, slots=True)
class WatchRules:
    """Waits in seconds; ``until`` the place each source must be drained to, None to watch until told to stop."""

    delay: float = 1.0
    hot_seconds: float = 30.0
    until: Mapping[int, int] | None = None
    time_limit: float | None = None


@dataclass(frozen=True, slots=True)
class Base:
    """What was known of a pair before the watch: the run it starts from, or None for a watch that starts alone."""

    run_id: str | None = None
    verdict: Verdict | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """The state of a watch, as its verdict needs it; lists and maps go by source number.

    ``uncovered`` names tables in scope that were not watched from the beginning, and why; ``stale`` says per pair how
    far its comparison is.
    """

    run_id: str
    names: Sequence[str]
    applied_by: Sequence[Applied]
    tracks: Mapping[int, Track]
    applied: Mapping[int, int]
    failures: Mapping[int, str]
    limits: WatchRules
    troubles: tuple[str, ...]
    final: bool
    timed_out: bool
    uncovered: tuple[str, ...] = ()
    stale: Mapping[int, str] = field(default_factory=dict)


def status_of(
    facts: Facts,
    pairs: Sequence[Watched],
    base: Mapping[int, Base],
    counts: Mapping[int, PairCounts],
    since: Mapping[int, Mapping[int, int]],
    notes: Sequence[tuple[int, str, str]],
) -> WatchStatus:
    """Judge every pair and the streams."""
    now = time.time()
    sources = tuple(_source(facts, number, now) for number in range(len(facts.names)))
    stream_gaps = [gap for number, source in enumerate(sources) for gap in _stream_gaps(facts, number, source)]
    stream_gaps += facts.troubles
    if facts.timed_out:
        stream_gaps.append(f"the time limit of {facts.limits.time_limit:g} s is over")
    tables = []
    for number in sorted({w.number for w in pairs}):
        watched = [w for w in pairs if w.number == number]
        own = [(k, t) for p, k, t in notes if p == number]
        tables.append(
            _table(
                facts,
                watched,
                base.get(number, Base()),
                counts.get(number, PairCounts()),
                since.get(number, {}),
                own,
                stream_gaps,
                facts.stale.get(number, ""),
                now,
            )
        )
    gaps = [*stream_gaps, *facts.uncovered, *(_uncovered(k, t) for p, k, t in notes if p < 0)]
    covers = _covers(pairs, tables, base, notes)
    if not covers:
        gaps.append(
            "nothing was compared: there is no verification to start from (--since RUN), and nothing was written"
        )
    verdict = Verdict.worst([t.verdict for t in tables])
    if gaps and verdict is Verdict.MATCH:
        verdict = Verdict.INCONCLUSIVE
    return WatchStatus(
        facts.run_id, now, verdict, tuple(gaps), sources, tuple(tables), (), facts.final, covers
    )  # fmt: skip


def _uncovered(kind: str, text: str) -> str:
    if kind != "uncovered":  # of a ledger of an earlier release
        return f"a statement whose tables are not known: {text}" if kind == "ddl" else text
    endpoint, database, table = json.loads(text)
    return f"{endpoint}: {database}.{table} is in scope, and no table pair covers it: verify the tables again"


def _covers(
    pairs: Sequence[Watched], tables: Sequence[TableStatus], base: Mapping[int, Base],
    notes: Sequence[tuple[int, str, str]],
) -> str:  # fmt: skip
    """Return which rows the verdict is about; empty for none."""
    numbers = {w.number for w in pairs}
    compared = {p for p, kind, _ in notes if kind == "compared"}
    verified = {n for n in numbers if base.get(n, Base()).run_id is not None} - compared
    written = sum(t.keys + t.diverged for t in tables)
    parts = []
    if verified:
        runs = sorted({str(base[n].run_id) for n in verified})
        parts.append(f"all rows of {_tables(len(verified))} (run {', '.join(runs)}, and every key written since)")
    if compared:
        parts.append(f"all rows of {_tables(len(compared))} (compared again by this watch)")
    if (alone := len(numbers - verified - compared)) and written:
        parts.append(f"of {_tables(alone)} only keys written while this watch ran: no verification to start from")
    return "; ".join(parts)


def _tables(number: int) -> str:
    return f"{number:,} {'table' if number == 1 else 'tables'}"


def _source(facts: Facts, number: int, now: float) -> SourceStatus:
    track = facts.tracks[number]
    applied = facts.applied.get(number)
    seconds, transactions = track.lag(applied, now)
    return SourceStatus(
        facts.names[number], str(track.last) if track.last else "", track.last.gtids if track.last else "",
        track.commits, type(facts.applied_by[number]).__name__, seconds, transactions,
        now - track.heard_at if track.heard_at else None, facts.failures.get(number, ""),
    )  # fmt: skip


def _stream_gaps(facts: Facts, number: int, source: SourceStatus) -> list[str]:
    gaps = []
    wanted = (facts.limits.until or {}).get(number)
    there = wanted is not None and facts.tracks[number].last_seq >= wanted
    if source.failure:
        gaps.append(f"{source.name}: the change stream ended at {source.read or 'its start'}: {source.failure}")
    elif source.read_seconds is None and not there:
        gaps.append(f"{source.name}: nothing was read from the change stream yet")
    elif source.read_seconds is not None and source.read_seconds > SILENT_SECONDS:
        gaps.append(f"{source.name}: the change stream has been silent for {source.read_seconds:.0f} s")
    if wanted is not None and not there and not source.failure:
        gaps.append(f"{source.name}: read to {source.read}, not to {shown(wanted, facts.tracks[number].last)} yet")
    applied = facts.applied.get(number)
    if applied is None:
        gaps.append(f"{source.name}: what the target has applied is not known yet")
    elif wanted is not None and applied < wanted:
        like = facts.tracks[number].last
        gaps.append(
            f"{source.name}: the target has applied to {shown(applied, like)}, not to {shown(wanted, like)} yet (lag)"
        )
    return gaps


def _through(facts: Facts, number: int, since: int | None) -> str:
    """Return the place up to which all writes are proved: what was read and applied, before the first open key."""
    track, applied = facts.tracks[number], facts.applied.get(number)
    if track.last is None or applied is None or since == 0:
        return ""
    if since is None and applied >= track.last_seq:
        return str(track.last)
    bound = min(applied, track.last_seq) if since is None else min(applied, track.last_seq, since - 1)
    if since is not None and bound == since - 1:
        return f"before {shown(since, track.last)}"
    return shown(bound, track.last)


def shown(seq: int, like: Position | None) -> str:
    """Return a place as the server writes it; ``like`` is any position of the same binlog."""
    number, offset = seq >> OFFSET_BITS, seq & ((1 << OFFSET_BITS) - 1)
    stem, _, digits = (like.file if like else "binlog.000000").rpartition(".")
    return f"{stem}.{number:0{len(digits)}}:{offset}"


def _table(
    facts: Facts,
    watched: Sequence[Watched],
    base: Base,
    counts: PairCounts,
    since: Mapping[int, int],
    notes: Sequence[tuple[str, str]],
    stream_gaps: Sequence[str],
    comparing: str,
    now: float,
) -> TableStatus:
    pair = watched[0].pair
    compared = any(kind == "compared" for kind, _ in notes)
    whole = compared or base.run_id is not None
    if compared:
        base = Base()  # all rows were read since, by this watch
    gaps = [*uncovered_columns(pair), *_table_gaps(base, counts, notes, comparing)]
    mismatches = schema_mismatches(pair)
    if counts.diverged:
        mismatches.append(f"{counts.diverged:,} {'key is' if counts.diverged == 1 else 'keys are'} diverged")
    if base.verdict is Verdict.MISMATCH and not counts.diverged:
        gaps.append(f"run {base.run_id} found differences; none of them is left now: verify the table again")
    if mismatches:
        verdict = Verdict.MISMATCH
    elif gaps or stream_gaps:
        verdict = Verdict.INCONCLUSIVE
    else:
        verdict = Verdict.MATCH
    through = " ".join(_through(facts, number, since.get(number)) for number in facts.tracks)
    return TableStatus(
        pair.source, pair.target, verdict, through.strip(), counts.pending, counts.doubt, counts.hot, counts.diverged,
        None if counts.oldest is None else max(0.0, now - counts.oldest), counts.proved, counts.images,
        (*mismatches, *gaps), tuple(f"{kind}: {text}" for kind, text in notes if kind not in ("stale", "identity")),
        whole,
    )  # fmt: skip


def _table_gaps(base: Base, counts: PairCounts, notes: Sequence[tuple[str, str]], comparing: str) -> list[str]:
    gaps = []
    if base.run_id is not None and base.verdict is not Verdict.MATCH and base.verdict is not Verdict.MISMATCH:
        gaps.append(f"run {base.run_id} did not prove this table: {base.reason or 'no result'}")
    for kind, text in notes:
        if kind == "stale":
            gaps.append(f"it may hold other rows since it was compared: {text} ({comparing})")
        elif kind == "keyless":
            gaps.append("rows were written, and the table has no key to read them by: verify it again")
    if counts.pending:
        gaps.append(f"{counts.pending:,} written keys are not proved yet")
    if counts.doubt:
        gaps.append(f"{counts.doubt:,} keys differed when they were read last, and are not proved yet")
    if counts.hot:
        gaps.append(f"{counts.hot:,} keys keep changing (hot)")
    return list(dict.fromkeys(gaps))


def table_result(status: TableStatus, watched: Watched, base: Base, diffs: Mapping[tuple[str, str], int],
                 seconds: float, started_at: str) -> TableResult:  # fmt: skip
    """Return what the store keeps of one pair at the end of a watch."""
    pair = watched.pair
    kinds = {kind: n for (kind, state), n in diffs.items() if state == "diverged"}
    alone = NotCovered("rows", f"not written since {started_at}: not read by this watch")
    covered = () if status.whole else (alone,)
    return TableResult(
        pair=pair.id, source=status.source or "(none)", target=status.target or "(none)", verdict=status.verdict,
        reasons=status.reasons, rows_source=None, rows_target=None, chunks=0,
        lanes=tuple(dict.fromkeys(c.lane.value for c in pair.columns)),
        missing_on_target=kinds.get("missing_on_target", 0), missing_on_source=kinds.get("missing_on_source", 0),
        value_differs=kinds.get("value_differs", 0), not_covered=(*pair.not_covered, *covered), schema=pair.schema,
        seconds=seconds, hash_name=pair.hash, blind_spots=pair.blind_spots,
        details={
            "verified_through": status.verified_through, "keys": status.keys, "images": status.images,
            "pending": status.pending, "doubt": status.doubt, "hot": status.hot, "diverged": status.diverged,
            "since_run": base.run_id or "", "plan_digest": plan_digest(pair), "findings": list(status.findings),
            "strategy": "touched keys of the change stream",
        },
    )  # fmt: skip


def transition_text(entry: LedgerKey, diff: RowDiff, read: Position | None, applied: int | None, now: float) -> str:
    """Return the JSON record of a key that became diverged, or equal again."""
    return json.dumps(
        {
            "key": list(entry.key), "state": diff.state.value, "kind": diff.kind.value,
            "touched_at": shown(entry.seq, read) if entry.seq else None,
            "touches": entry.touches, "reads": entry.reads + 1,
            "first_touched": entry.first, "at": now,
            "source_checksum": diff.source_checksum, "target_checksum": diff.target_checksum,
            "stream_read_to": str(read) if read else None, "target_applied": shown(applied, read) if applied else None,
            "origin": entry.origin or "stream",
        }
    )  # fmt: skip
