"""Was everything delivered? The rows that the binlog leaves behind against the rows of the target.

The rows are rebuilt from the source's binlog alone, so this judges the replicator without asking it. A key that does
not look right is read again after the settle time, on both sides and in this order: source, target, source. Only where
the source shows before and after what the binlog left, and the target does not, is the key undelivered; where the
source has moved on, the key changed after the range and is not judged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from migverify.changes.delivered import LastImage, LastImages, TableCounts
from migverify.db.pool import SessionPool
from migverify.db.reader import Reader
from migverify.model import ColumnDiff, KeyText, LiveState, Verdict
from migverify.sql.quoting import quote_name
from migverify.tables.diff import rows_at_once, texts_of
from migverify.tables.image_values import image_form, image_literal, same_image, shown_form
from migverify.tables.tasks import PairPlan, ReadColumn, Rules
from migverify.tables.values import column_diff
from migverify.watch.lifecycle import Criteria, Read, advance, read_once

MOST_SHOWN = 1000
CRITERIA = Criteria(still_reads=2)
"""The source must be as the binlog left it before and after the target was read."""
BEHIND = (
    "; nothing changed since the first of them has arrived, so the target may lag: run again when it has applied the"
    " range, or say so with --applied"
)
UNPAIRED = "no table pair covers it: the target lacks it, or the source dropped it meanwhile"
Texts = tuple[str | None, ...]
Held = dict[KeyText, list[Texts]]
"""Key in its one form -> rows as canonical texts of the compared columns."""


class Undelivered(StrEnum):
    """How the target disagrees with what the binlog left."""

    MISSING = "missing"
    STILL_THERE = "still_there"
    DIFFERS = "differs"


@dataclass(frozen=True, slots=True)
class DeliveryDiff:
    """One key that was not delivered. ``at`` names the last transaction that touched it (GTID or place)."""

    pair: str
    key: KeyText
    kind: Undelivered
    columns: tuple[ColumnDiff, ...]
    at: str


@dataclass(slots=True)
class TableDelivery:
    """The keys of one table.

    ``pending`` changed again after the range, ``unlogged`` are unlike their binlog on a source that stood still.
    ``not_covered`` says why nothing of the table was judged, ``left_out`` which columns were not. ``first_bad`` and
    ``last_good`` are transactions by their place in the range: the first that is not on the target, the last that is.
    """

    pair: str
    equal: int = 0
    missing: int = 0
    still_there: int = 0
    differs: int = 0
    pending: int = 0
    unlogged: int = 0
    null_keys: int = 0
    extra_rows: int = 0
    not_covered: str = ""
    changed: bool = True
    left_out: tuple[str, ...] = ()
    first_bad: int = 0
    last_good: int = 0
    diffs: list[DeliveryDiff] = field(default_factory=list)

    @property
    def undelivered(self) -> int:
        """Keys that were not delivered, and rows that a TRUNCATE should have removed."""
        return self.missing + self.still_there + self.differs + self.extra_rows


@dataclass(frozen=True, slots=True)
class Delivery:
    """The answer for a range, and for each table."""

    verdict: Verdict
    reasons: tuple[str, ...]
    tables: tuple[TableDelivery, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """How long the target may take: ``until`` is Unix time, ``applied`` says that it has applied past the range."""

    until: float
    applied: bool = False


def pairs_of(pairs: Sequence[PairPlan], endpoint: str) -> list[PairPlan]:
    """Return the pairs that a source takes part in."""
    return [pair for pair in pairs if any(side.endpoint.name == endpoint for side in pair.sources)]


def followed_keys(pairs: Sequence[PairPlan], endpoint: str) -> dict[tuple[str, str], tuple[str, ...] | None]:
    """Return which tables of a source to follow, and by which columns; None for those whose rows are not judged.

    Those are followed all the same, to know whether the range changed them.
    """
    found: dict[tuple[str, str], tuple[str, ...] | None] = {}
    for pair in pairs:
        keys = None if not_judged(pair) else tuple(column.name for column in key_columns(pair))
        for side in pair.sources:
            if side.endpoint.name == endpoint:
                found[(side.database, side.table)] = keys
    return found


def not_judged(pair: PairPlan) -> str:
    """Say why the rows of a pair cannot be judged from the binlog; empty where they can."""
    if pair.target_side is None or not pair.sources:
        return "the table is on one side only"
    if len(pair.sources) > 1:
        return "several source tables go to one target table: one binlog does not tell all its rows"
    if not pair.target_side.sql.key:
        return "no key tells its rows apart"
    if pair.sources[0].sql.where or pair.target_side.sql.where:
        return "a condition of the configuration decides which rows count"
    if any(column.family == "float" for column in key_columns(pair)):
        return "its key is a floating-point number"
    return ""


def key_columns(pair: PairPlan) -> tuple[ReadColumn, ...]:
    """Return the compared columns that make the pair's key, in key order."""
    by_name = {quote_name(column.name): column for column in pair.columns}
    return tuple(by_name[c.name] for c in pair.sources[0].sql.key)


def judge(
    images: LastImages, pairs: Sequence[PairPlan], secrets: Mapping[str, str], rules: Rules, wait: Wait, *,
    keep_values: bool, source_still: Callable[[], bool], seen: Iterable[str] = (),
    sleep: Callable[[float], None] = time.sleep,
) -> Delivery:  # fmt: skip
    """Compare what a range left with the target.

    Parameters
    ----------
    images
        The range, folded.
    pairs
        The table pairs in scope.
    wait
        How long to wait before a key counts as undelivered.
    keep_values
        Whether values may appear in the answer.
    source_still
        Tells, when asked at the end, whether the source has written nothing since the end of the range.
    seen
        ``database.table`` of all tables in scope that the range wrote; those of no pair are listed as not judged.

    Raises
    ------
    ReadError
        a side cannot be read.
    """
    pool = SessionPool(secrets)
    covered = {f"{side.database}.{side.table}" for pair in pairs for side in pair.sources}
    tables = [TableDelivery(name, not_covered=UNPAIRED) for name in sorted({*seen} - covered)]
    judges: list[_Judge] = []
    try:
        for pair in pairs:
            judges.append(_Judge(pair, images, pool, rules, keep_values=keep_values))
            judges[-1].first_pass()
        if any(one.doubtful for one in judges):
            sleep(max(0.0, wait.until - time.time()))
        for one in judges:
            one.second_pass()
        still = any(one.table.unlogged for one in judges) and source_still()
        tables += [one.finish(still=still) for one in judges]
    finally:
        for one in judges:
            one.close()
        pool.close()
    return conclude(tables, wait)


class _Judge:
    """Judges one pair."""

    def __init__(
        self, pair: PairPlan, images: LastImages, pool: SessionPool, rules: Rules, *, keep_values: bool
    ) -> None:
        self.pair, self.images, self.keep_values = pair, images, keep_values
        self.table = TableDelivery(pair.id)
        self.doubtful = 0
        self.source = self.target = None
        names = [(side.database, side.table) for side in pair.sources]
        self.table.changed = any(images.changed(name) for name in names)
        reason = not_judged(pair) or next((r for r in map(images.void, names) if r), "")
        if reason or not self.table.changed:
            self.table.not_covered = reason
            self.open = False
            return
        self.open = True
        self.name = names[0]
        self.key = key_columns(pair)
        self.places = tuple(pair.columns.index(column) for column in self.key)
        self.size = rows_at_once(pair)
        if pair.target_side is not None:
            self.target = Reader(pair.target_side, pool, rules)
        self.source = Reader(pair.sources[0], pool, rules)

    def close(self) -> None:
        for reader in (self.source, self.target):
            if reader is not None:
                reader.close()

    def first_pass(self) -> None:
        """Compare every key once; what does not fit is marked."""
        if not self.open:
            return
        for batch in self.images.batches(self.name, self.size):
            known = self._with_keys(batch)
            held = self._read(self.target, known)
            doubts = []
            for image in known:
                if self._fits(image, held):
                    self._good(image)
                else:
                    doubts.append(image.key)
            self.images.doubt(self.name, doubts)
            self.doubtful += len(doubts)

    def _good(self, image: LastImage) -> None:
        self.table.equal += 1
        # A key that must be gone may never have been there, so only rows prove that something arrived.
        if image.image is not None:
            self.table.last_good = max(self.table.last_good, image.seq)

    def _with_keys(self, batch: list[LastImage]) -> list[LastImage]:
        """Leave out keys with NULL, which tell no row apart."""
        known = [image for image in batch if None not in image.key]
        self.table.null_keys += len(batch) - len(known)
        return known

    def second_pass(self) -> None:
        """Judge the marked keys."""
        if not self.open or not self.doubtful:
            return
        for batch in self.images.batches(self.name, self.size, doubtful=True):
            before = self._read(self.source, batch)
            target = self._read(self.target, batch)
            rest = []
            for image in batch:
                if self._fits(image, target):
                    self._good(image)
                else:
                    rest.append(image)
            after = self._read(self.source, rest)
            for image in rest:
                self._judge(image, before, target, after)

    def _judge(self, image: LastImage, before: Held, target: Held, after: Held) -> None:
        # The look is whether the source is as the binlog left it: the first read of the key is the binlog itself.
        finding = read_once(look=True)
        for rows in (before, after):
            finding = advance(finding, Read(self._fits(image, rows)), CRITERIA)
        if finding.state is not LiveState.DIVERGED:
            # What is as it was left at neither read, or only before, was written later or never logged.
            if finding.look:
                self.table.pending += 1
            else:
                self.table.unlogged += 1
            return
        self.table.first_bad = min(self.table.first_bad or image.seq, image.seq)
        there = target.get(self._form(image.key), [])
        columns: tuple[ColumnDiff, ...] = ()
        if image.image is None:
            kind = Undelivered.STILL_THERE
            self.table.still_there += 1
        elif not there:
            kind = Undelivered.MISSING
            self.table.missing += 1
        else:
            kind, columns = Undelivered.DIFFERS, tuple(self._differences(image, there[0]))
            self.table.differs += 1
        if len(self.table.diffs) < MOST_SHOWN:
            self.table.diffs.append(DeliveryDiff(self.pair.id, image.key, kind, columns, image.at))

    def finish(self, *, still: bool) -> TableDelivery:
        """Name the keys that fit neither; count rows that a TRUNCATE left."""
        if not still:
            self.table.pending += self.table.unlogged
            self.table.unlogged = 0
        if self.open and self.source is not None and self.target is not None:
            counts = self.images.counts(self.name)
            if counts.emptied:
                self._count_rest(counts)
        return self.table

    def _count_rest(self, counts: TableCounts) -> None:
        """After a TRUNCATE the range tells all rows; the target may hold no others."""
        if self.source is None or self.target is None:
            return
        before, theirs, after = self.source.count(), self.target.count(), self.source.count()
        extra = theirs - self.table.still_there + self.table.missing - counts.here
        if before == after == counts.here and extra > 0:
            self.table.extra_rows = extra
            self.table.first_bad = min(self.table.first_bad or counts.emptied, counts.emptied)

    # --- rows --------------------------------------------------------------------------------------------------

    def _form(self, key: Texts) -> KeyText:
        return tuple(image_form(c, text) for c, text in zip(self.key, key, strict=True))

    def _read(self, reader: Reader | None, images: Sequence[LastImage]) -> Held:
        found: Held = {}
        if reader is None or not images:
            return found
        keys = [tuple(image_literal(c, t) for c, t in zip(self.key, image.key, strict=True)) for image in images]
        for row in reader.rows(keys):
            texts = texts_of(self.pair.columns, row[1:])
            form = tuple(shown_form(c, texts[place]) for c, place in zip(self.key, self.places, strict=True))
            found.setdefault(form, []).append(texts)
        return found

    def _fits(self, image: LastImage, held: Held) -> bool:
        rows = held.get(self._form(image.key), [])
        if image.image is None:
            return not rows
        return len(rows) == 1 and not any(True for _ in self._unlike(image, rows[0]))

    def _unlike(self, image: LastImage, row: Texts) -> Iterator[tuple[ReadColumn, str | None, str | None]]:
        """Yield the columns that are not one value; a column that the image lacks is not judged."""
        if image.image is None or image.layout is None:
            return
        own = {c.name: text for c, text in zip(image.layout.columns, image.image, strict=True)}
        for column, shown in zip(self.pair.columns, row, strict=True):
            if column.name not in own:
                if column.name not in self.table.left_out:
                    self.table.left_out += (column.name,)
                continue
            text = own[column.name]
            if not same_image(column, text, shown):
                yield column, text, shown

    def _differences(self, image: LastImage, row: Texts) -> Iterator[ColumnDiff]:
        for column, text, shown in self._unlike(image, row):
            yield column_diff(column, text, shown, keep=self.keep_values)


def conclude(tables: Sequence[TableDelivery], wait: Wait) -> Delivery:
    """Judge what was counted.

    A table of which nothing arrived that was changed since its first undelivered key may be behind: nothing is proved
    to be lost there until somebody says that the target has applied the range.
    """
    proven: list[str] = []
    doubts: list[str] = []
    for table in tables:
        if table.undelivered:
            lags = not wait.applied and table.first_bad > table.last_good
            (doubts if lags else proven).append(_missing(table) + (BEHIND if lags else ""))
        doubts += [f"{table.pair}: {text}" for text in _doubts(table)]
    if not any(table.changed for table in tables):
        doubts.append("the range changes no table in scope: nothing was judged")
    verdict = Verdict.MISMATCH if proven else Verdict.INCONCLUSIVE if doubts else Verdict.MATCH
    return Delivery(verdict, (*proven, *doubts), tuple(tables))


def _missing(table: TableDelivery) -> str:
    text = (f"{table.pair}: {table.missing} missing, {table.still_there} still there although deleted, "
            f"{table.differs} with other values")  # fmt: skip
    return text + (f", {table.extra_rows} rows that a TRUNCATE should have removed" if table.extra_rows else "")


def _doubts(table: TableDelivery) -> Iterator[str]:
    if table.not_covered and table.changed:
        yield f"changed in the range and not judged: {table.not_covered}"
    if table.pending:
        yield f"{table.pending} keys changed again after the range and are not judged"
    if table.unlogged:
        yield (
            f"{table.unlogged} keys are not on the source as its binlog left them, and the source has written nothing"
            " since: they were changed without a trace in the binlog"
        )
    if table.null_keys:
        yield f"{table.null_keys} keys hold NULL and tell no row apart: not judged"
