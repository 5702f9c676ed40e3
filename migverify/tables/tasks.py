"""What the driver asks of a worker, and what it answers: frozen values that travel as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from migverify.codec import decode, encode
from migverify.db.reader import SidePlan
from migverify.db.retry import ReadLimits
from migverify.model import (
    ChunkChecksum,
    ChunkResult,
    KeyRange,
    Lane,
    LiveState,
    NotCovered,
    RowDiff,
    SchemaDifference,
)
from migverify.tables.quick import PairPart

Secrets = Mapping[str, str]
"""Endpoint name -> password. Handed to an engine apart from the tasks, so that no task text holds a secret."""

ONE_CHUNK = 1 << 40
"""``Task.rows`` of a span that must stay one chunk: one that failed is read again under its own number."""


@dataclass(frozen=True, slots=True)
class ReadColumn:
    """One compared column as a worker needs it: how to name it, and how to compare two texts of it.

    ``compare`` is ``text`` (equal bytes), ``json``, ``number`` (by value, within ``tolerance``) or ``labels``.
    """

    name: str
    family: str
    lane: Lane
    compare: str
    binary: bool
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class PairPlan:
    """One table pair as planned. ``id`` is unique in the plan: the source's name, or the target's for shards.

    ``whole`` says that the sides do not sort equally (or cannot be cut) and are summed by bucket over the whole
    table. ``not_covered`` lists all that is not compared, ``unproved`` what of it both sides have and nobody
    excluded: it keeps the pair from MATCH. ``rows`` and ``bytes`` are the larger side's estimates; ``row_bytes`` its
    average row. ``immutable`` holds, for rows declared immutable, the
    conditions that leave them out on both sides and the words for them; ``immutable_in`` the run that proved them, when
    they are left out. ``part`` is what a quick answer reads of the pair, None for all of it. ``filtered``: a configured
    condition leaves rows out.
    """

    id: str
    source: str
    target: str
    sources: tuple[SidePlan, ...]
    target_side: SidePlan | None
    columns: tuple[ReadColumn, ...]
    hash: str
    whole: bool
    whole_reason: str
    spread: bool
    rows: int
    bytes: int
    schema: tuple[SchemaDifference, ...]
    not_covered: tuple[NotCovered, ...]
    unproved: tuple[NotCovered, ...]
    blind_spots: tuple[str, ...]
    immutable: tuple[str, str, str] | None = None
    immutable_in: str = ""
    part: PairPart | None = None
    filtered: bool = False

    @property
    def readable(self) -> bool:
        """Whether there is anything to read on both sides."""
        return bool(self.sources) and self.target_side is not None

    @property
    def sides(self) -> tuple[SidePlan, ...]:
        """All sides, the target last."""
        return self.sources if self.target_side is None else (*self.sources, self.target_side)

    @property
    def value_lane(self) -> bool:
        """Whether a column is compared by value."""
        return any(column.lane is Lane.VALUE for column in self.columns)

    @property
    def row_bytes(self) -> int:
        """Estimated bytes of one row, at least 1."""
        return max(1, self.bytes // max(1, self.rows))


def with_stamps(pair: PairPlan, stamps: Sequence[str]) -> PairPlan:
    """Return a pair whose sides, the target last, expect these stamps."""
    sides = tuple(replace(side, stamp=stamp) for side, stamp in zip(pair.sides, stamps, strict=True))
    return replace(pair, sources=sides[:-1], target_side=sides[-1])


def by_key(pair: PairPlan) -> PairPlan:
    """Return the pair for reads by key: a row is read whether or not the part of a quick answer has it on that side."""
    if pair.part is None or not pair.part.conditions or pair.target_side is None:
        return pair
    *sources, target = (
        replace(side, sql=replace(side.sql, where=where))
        for side, where in zip(pair.sides, pair.part.conditions, strict=True)
    )
    return replace(pair, sources=tuple(sources), target_side=target)


def read_now(pair: PairPlan) -> PairPlan:
    """Return a pair whose target is read as it is now: a snapshot holds neither a repair nor what was written since."""
    side = pair.target_side
    if side is None:
        return pair
    return replace(pair, target_side=replace(side, endpoint=replace(side.endpoint, snapshot=None)))


@dataclass(frozen=True, slots=True)
class Rules(ReadLimits):
    """How gently and how long a worker reads; see ``limits`` in docs/configuration.md.

    ``still_reads`` is how many re-reads in a row, ``delay_seconds`` apart, must show the same difference before it
    counts: 1 is enough where nobody writes. ``rounds`` more reads are granted to rows that move. ``governed``: each
    task asks how many statements run on the servers.
    """

    chunk_rows: int = 32768
    chunk_seconds: float = 0.5
    max_chunk_rows: int = 131072
    leaf_rows: int = 131072
    budget_seconds: float = 2.0
    delay_seconds: float = 1.0
    rounds: int = 3
    still_reads: int = 1
    values: bool = False
    live: bool = False
    max_row_diffs: int | None = None
    governed: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """One task. Which fields matter depends on ``kind``.

    ``span``: checksums of ``range`` from chunk ``number`` on, in chunks of ``rows``, until the budget is spent.
    ``count``: rows of side ``side`` (its place in ``pair.sides``). ``any``: 1 where that side has a row,
    under the configured condition or not. ``edges``: smallest and largest first key part over all sides. ``marks``: up
    to ``parts`` keys that cut ``range`` evenly. ``sums``: bucket sums of ``side`` with ``buckets`` buckets.
    ``bucket_rows``: row diffs of the buckets in ``wanted``, from group ``number`` on.
    ``confirm``: read the rows of ``diffs`` again. ``counts``: rows of both sides; where an earlier read had ``counts``,
    again until the difference is stable.
    """

    kind: str
    pair: PairPlan
    rules: Rules
    span: int = 0
    range: KeyRange = KeyRange()  # noqa: RUF009 - frozen, so one instance serves all
    number: int = 0
    rows: int = 0
    dense: bool = False
    side: int = 0
    parts: int = 0
    buckets: int = 0
    wanted: tuple[int, ...] = ()
    diffs: tuple[RowDiff, ...] = ()
    counts: tuple[int, ...] = ()

    def to_text(self) -> str:
        """Return the JSON text of the task."""
        return json.dumps(encode(self), separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """The answer to a task.

    ``rest`` is what is left of a span's range (None: it is done), ``rows`` the chunk size to go on with, ``dense``
    whether the last chunks all differed. ``sums`` are (bucket, rows, exact, value) as texts. ``sql`` lists the
    statements used, as (side, purpose, text). ``stamps`` has the stamp of each side of the pair, ``""`` where the task
    read none. ``counts`` has the rows of the source and the target, ``state`` what they show of the table.
    ``running`` is how many statements run on the (first) source and on the target, None where that is not known.
    """

    kind: str
    pair: str
    span: int = 0
    chunks: tuple[ChunkResult, ...] = ()
    diffs: tuple[RowDiff, ...] = ()
    rest: KeyRange | None = None
    rows: int = 0
    dense: bool = False
    count: int = 0
    keys: tuple[str, ...] = ()
    marks: tuple[tuple[str | None, ...], ...] = ()
    sums: tuple[tuple[int, ChunkChecksum], ...] = ()
    next_group: int | None = None
    failures: tuple[str, ...] = ()
    sql: tuple[tuple[str, str, str], ...] = ()
    seconds: float = 0.0
    stamps: tuple[str, ...] = ()
    counts: tuple[int, ...] = ()
    state: LiveState = LiveState.UNCONFIRMED
    running: tuple[int | None, ...] = ()

    def to_text(self) -> str:
        """Return the JSON text of the answer."""
        return json.dumps(encode(self), separators=(",", ":"))


def task_from_text(text: str) -> Task:
    """Read a task; raises ValueError for text that is none."""
    return decode(Task, json.loads(text))


def outcome_from_text(text: str) -> TaskOutcome:
    """Read an answer; raises ValueError for text that is none."""
    return decode(TaskOutcome, json.loads(text))
