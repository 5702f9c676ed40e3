"""How fast earlier runs were, and how long the next one will take: projections with an interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from migverify.errors import StoreError
from migverify.guards.capacity_read import TableSize
from migverify.model import RunInfo, StoredKind
from migverify.store.results import ResultStore

RUNS = 5
LOOKED_AT = 300
CHUNKS = 2000
"""So many chunks of a table tell how long its rows take to read; the others are taken to be alike."""

_ONE_RUN = (0.5, 1.5)
_SEVERAL = (0.6, 1.25)
_ROUGH = (0.4, 2.0)
_BEFORE = {"local": 3.0, "spark": 30.0}
_BEFORE_TABLE = 0.01
"""Seconds before the first read, at most: catalogs, plans, a session of Spark. No run tells them."""

_SMALL_RUN = 0.05
"""A run that read a smaller share of the rows than this says little."""


@dataclass(frozen=True, slots=True)
class TableSpeed:
    """What one table took: rows read on the larger side, and seconds of all its reads together."""

    rows: int
    busy: float


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One verification as it was: ``seconds`` of wall time, ``slots`` tasks at once, what each table took."""

    run_id: str
    engine: str
    slots: int
    seconds: float
    tables: Mapping[str, TableSpeed]

    @property
    def rows(self) -> int:
        """Rows of all tables."""
        return sum(one.rows for one in self.tables.values())

    @property
    def busy(self) -> float:
        """Seconds of all reads together."""
        return sum(one.busy for one in self.tables.values())

    @property
    def parallel(self) -> float:
        """How many reads went on at once, on the average."""
        return self.busy / self.seconds if self.seconds > 0 and self.busy > 0 else 1.0


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """Seconds between which something will take; ``why`` says what it rests on."""

    low: float
    high: float
    why: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: TimeSpan) -> TimeSpan:
        return TimeSpan(self.low + other.low, self.high + other.high, "")


def measure(store: ResultStore, info: RunInfo) -> MeasuredRun | None:
    """Return what a run of ``tables verify`` tells of its speed; None where it tells nothing.

    Raises
    ------
    StoreError
        the store cannot be read.
    """
    facts = info.facts
    seconds, slots = facts.get("seconds"), facts.get("slots")
    if not isinstance(seconds, int | float) or not isinstance(slots, int) or info.finished is None or seconds <= 0:
        return None
    # A run that was resumed tells the seconds of its last process only.
    if abs(info.finished - info.started - seconds) > max(5.0, 0.1 * seconds):
        return None
    tables: dict[str, TableSpeed] = {}
    for result in store.table_results(info.run_id):
        totals = store.chunk_totals(info.run_id, result.pair)
        rows = max(totals["rows_source"], totals["rows_target"])
        seen, busy = 0, 0.0
        for chunk in islice(store.chunks(info.run_id, result.pair), CHUNKS):
            seen += max(chunk.source.rows if chunk.source else 0, chunk.target.rows if chunk.target else 0)
            busy += chunk.seconds
        if totals["chunks"] == 0:
            rows, busy = max(result.rows_source or 0, result.rows_target or 0), result.seconds
        factor = rows / seen if seen else 1.0
        tables[result.pair] = TableSpeed(rows, busy * factor)
    if not any(one.rows for one in tables.values()):
        return None
    return MeasuredRun(info.run_id, str(facts.get("engine")), slots, float(seconds), tables)


def is_verification(info: RunInfo) -> bool:
    """Whether a run read whole tables: no watch, no repair, no recheck of parts, no proof that rests on another."""
    facts = info.facts
    return info.kind is StoredKind.TABLES and not any(
        facts.get(name) for name in ("watch", "repairs", "rechecks", "since_run")
    )


def verifications(store: ResultStore, engine: str, pairs: set[str]) -> list[MeasuredRun]:
    """Return the newest verifications by an engine that read some of these tables, the newest first."""
    return list(islice(_verifications(store, engine, pairs), RUNS))


def _verifications(store: ResultStore, engine: str, pairs: set[str]) -> Iterator[MeasuredRun]:
    for info in store.runs(LOOKED_AT):
        if not is_verification(info) or info.facts.get("engine") != engine:
            continue
        found = measure(store, info)
        if found is not None and pairs & found.tables.keys():
            yield found


def project(
    runs: Sequence[MeasuredRun], now: Mapping[str, TableSize], slots: int, engine: str = "local"
) -> TimeSpan | None:
    """Return how long a verification of these tables will take; None where no run tells.

    Every table takes as long a row as it did; all together run as much at once as they did. Tables that no run has read
    are taken to be as slow a byte as the others, and widen the interval.

    Parameters
    ----------
    runs
        Earlier verifications, the newest first.
    now
        Sizes by pair, the most that they may be: estimates of servers are often a third off.
    slots
        Tasks that will run at once.
    engine
        The one that will verify.
    """
    if not runs:
        return None
    fastest = min(_wall(run, now, slots)[0] for run in runs)
    slowest = max(_wall(run, now, slots)[1] for run in runs)
    newest = runs[0]
    rough = newest.rows < _SMALL_RUN * sum(size.rows for size in now.values())
    low, high = _ROUGH if rough else _ONE_RUN if len(runs) == 1 else _SEVERAL
    unknown = _unmeasured(newest, now)
    numbers = {
        "rows_per_second": newest.rows / newest.seconds, "runs": float(len(runs)), "measured_rows": float(newest.rows),
        "unmeasured_share": unknown, "expected_seconds": _wall(newest, now, slots)[1],
    }  # fmt: skip
    what = f"{len(runs)} runs" if len(runs) > 1 else "one run"
    what += f" ({newest.run_id}, {newest.seconds:.0f} s on {newest.engine})"
    why = f"{what}, {newest.rows / newest.seconds:,.0f} rows/s with {newest.slots} connections"
    if unknown > 0.01:
        why += f"; {unknown:.0%} of the rows were in no such run"
    slower = high * (1 + unknown)
    before = _BEFORE[engine] + _BEFORE_TABLE * len(now)
    return TimeSpan(fastest * low, slowest * slower + before, why, numbers)


def _unmeasured(run: MeasuredRun, now: Mapping[str, TableSize]) -> float:
    """Return the share of what there is now that a run has not read; an empty table weighs as much as a row."""
    weights = {name: size.rows + 1 for name, size in now.items()}
    total = sum(weights.values())
    return sum(weight for name, weight in weights.items() if name not in run.tables) / total if total else 0.0


def _wall(run: MeasuredRun, now: Mapping[str, TableSize], slots: int) -> tuple[float, float]:
    """Return the wall time with as many more reads at once as there are slots, and with no more than there were."""
    bytes_read = sum(
        one.rows * now[name].bytes / now[name].rows for name, one in run.tables.items()
        if name in now and now[name].rows and now[name].bytes
    )  # fmt: skip
    per_byte = sum(one.busy for name, one in run.tables.items() if name in now) / bytes_read if bytes_read else 0.0
    per_row = run.busy / run.rows if run.rows else 0.0
    busy = 0.0
    for name, size in now.items():
        one = run.tables.get(name)
        # A part of a table says how long a row takes; an empty table takes time too.
        if one is not None and one.rows:
            busy += max(one.busy * size.rows / one.rows, one.busy)
        elif one is not None:
            busy += one.busy + size.rows * per_row
        else:
            busy += size.bytes * per_byte if per_byte else size.rows * per_row
    more = max(1.0, slots / run.slots)
    fewer = min(1.0, slots / run.slots)
    return busy / (run.parallel * more * fewer), busy / (run.parallel * fewer)


# --- other kinds of runs -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunPace:
    """Rows or keys a second that a run showed: it may be able to more, for it also waited."""

    run_id: str
    per_second: float


def watch_pace(store: ResultStore) -> RunPace | None:
    """Return the best pace of the newest watches: keys that were read again, a second."""
    found = [_pace(store, info, "keys") for info in store.runs(LOOKED_AT) if info.facts.get("watch")][:RUNS]
    return max((pace for pace in found if pace is not None), key=lambda pace: pace.per_second, default=None)


def repair_pace(store: ResultStore) -> RunPace | None:
    """Return the pace of the newest repair that wrote rows."""
    for info in store.runs(LOOKED_AT):
        if info.facts.get("repairs"):
            pace = _pace(store, info, "repaired")
            if pace is not None:
                return pace
    return None


def _pace(store: ResultStore, info: RunInfo, counted: str) -> RunPace | None:
    seconds = info.facts.get("seconds")
    if not isinstance(seconds, int | float) or seconds <= 0:
        return None
    total = 0
    for result in store.table_results(info.run_id):
        number = result.details.get(counted, 0)
        if not isinstance(number, int):
            raise StoreError(f"run {info.run_id}: {counted} of {result.pair} is {number!r}, no count")
        total += number
    return RunPace(info.run_id, total / seconds) if total else None


@dataclass(frozen=True, slots=True)
class Verified:
    """What the newest whole verification counted: rows a table on both sides, and rows that differ."""

    run_id: str
    at: float
    source: Mapping[str, int]
    target: Mapping[str, int]
    differing: int


def last_verified(store: ResultStore) -> Verified | None:
    """Return what the newest verification counted; None where there was none."""
    for info in store.runs(LOOKED_AT):
        if not is_verification(info) or info.finished is None:
            continue
        results = store.table_results(info.run_id)
        differing = sum(r.missing_on_target + r.missing_on_source + r.value_differs for r in results)
        return Verified(
            info.run_id, info.finished, {r.pair: r.rows_source for r in results if r.rows_source is not None},
            {r.pair: r.rows_target for r in results if r.rows_target is not None}, differing,
        )  # fmt: skip
    return None


def last_replay(store: ResultStore) -> tuple[str, float] | None:
    """Return the newest finished replay and its seconds; None where there was none."""
    for info in store.runs(LOOKED_AT):
        seconds = info.facts.get("seconds")
        if info.kind is not StoredKind.REPLAY or "pace" not in info.facts or info.finished is None:
            continue
        if isinstance(seconds, int | float):
            return info.run_id, float(seconds)
    return None
