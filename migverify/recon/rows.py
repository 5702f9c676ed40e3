"""Rows of a rule on their way into the join: packed batches, parts of groups, and rows that one process puts together.

Keys and values are bytes, None for NULL; a NULL key equals a NULL key. Aggregates that reach the join in parts (of
several shards) are combined in Python before it: sums are exact decimals of any length, which neither engine has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from itertools import groupby, islice
from typing import TYPE_CHECKING

from migverify.codec import encode
from migverify.db.snapshot import ReadSnapshot
from migverify.errors import ReadError
from migverify.recon.relation import Combine, KeyRows, Relation, SqlRead, Texts
from migverify.sql.packed import pack, unpack
from migverify.sql.recon_join import COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

Relations = tuple[Relation, Relation | None]
Bytes = tuple[bytes | None, ...]
Record = tuple[Bytes, Bytes, int, int]
"""Key, values, number of rows it represents, number of the read it comes from."""
Part = tuple[int, int, bytes, bytes | None, bytes | None, int]
"""One row of ``COLUMNS``."""

SCHEMA = "side tinyint, shard int, k binary, v binary, c binary, n bigint"
"""``side`` 0 is the source, 1 the target; ``shard`` the number of the read on its side; ``k``, ``v`` and ``c`` are the
packed key, compared values and carried values; ``n`` how many rows it represents. A row without ``v`` adds its
``shard`` to a group."""
NOTE_SIDE = 2
"""``side`` of a row whose ``k`` is a note, as JSON text; no two notes are equal."""
BATCH_ROWS = 10_000
_EXACT = Context(prec=200)


def combined(how: Combine, one: bytes | None, other: bytes | None) -> bytes | None:
    """Combine the values of two parts of a group, exactly and in any order; NULL adds nothing and loses.

    Raises ReadError: values of rows, which are not combined.
    """
    if one is None or other is None:
        return other if one is None else one
    if how is Combine.SUM:
        return format(_EXACT.add(Decimal(one.decode()), Decimal(other.decode())), "f").encode()
    if how in (Combine.MIN, Combine.MAX):
        better = min if how is Combine.MIN else max
        # Equal numbers may differ in their text: the order of the parts must not decide which one is given.
        return better(one, other, key=lambda text: (Decimal(text.decode()), text))
    if how is Combine.TEXT_MIN:
        return min(one, other)
    if how is Combine.TEXT_MAX:
        return max(one, other)
    raise ReadError("values of rows are not combined")


@dataclass(slots=True)
class KeyRecord:
    """The rows of one key: how many, the least values, whether others differ, and the reads they come from."""

    count: int
    values: Bytes
    reads: set[int]
    differing: bool = False
    mixed: bool = False


@dataclass(slots=True)
class KeyRecords:
    """Rows of one side by key, in memory: for some requested keys, or one batch of changes."""

    relation: Relation
    keys: dict[Bytes, KeyRecord] = field(default_factory=dict)

    def take(self, records: Iterable[Record]) -> KeyRecords:
        """Add rows."""
        add = self._add_row if self.relation.rows else self._add_part
        for key, values, count, read in records:
            known = self.keys.get(key)
            if known is None:
                self.keys[key] = KeyRecord(count, values, {read})
            else:
                known.count += count
                known.reads.add(read)
                add(known, values)
        return self

    def _add_row(self, known: KeyRecord, values: Bytes) -> None:
        compared = self.relation.compared
        known.differing = known.differing or values[:compared] != known.values[:compared]
        known.mixed = known.mixed or values[compared:] != known.values[compared:]
        known.values = min(values, known.values, key=_order)

    def _add_part(self, known: KeyRecord, values: Bytes) -> None:
        known.values = tuple(
            combined(how, one, other)
            for how, one, other in zip(self.relation.combine, known.values, values, strict=True)
        )

    def held(self, key: Bytes) -> KeyRows:
        """Return what the side holds for a key."""
        known = self.keys[key]
        shards = shards_of(self.relation, known.reads)
        return KeyRows(known.count, texts(known.values), known.differing, shards, known.mixed)


def _order(values: Bytes) -> tuple[tuple[bool, bytes], ...]:
    return tuple((value is not None, value or b"") for value in values)


def texts(values: Bytes) -> Texts:
    """Return values as text; bytes that are not UTF-8 become lone surrogates."""
    return tuple(None if value is None else value.decode("utf-8", "surrogateescape") for value in values)


def shards_of(relation: Relation, reads: Iterable[int]) -> tuple[str, ...]:
    """Return the shards of some reads of a relation, by the numbers of the reads."""
    shards = set()
    for number in reads:
        read = relation.reads[number]
        shards.add(getattr(read, "shard", "") or getattr(getattr(read, "part", None), "shard", ""))
    return tuple(sorted(shards - {""}))


# --- batches --------------------------------------------------------------------------------------------


def record_batch(side: int, shard: int, sections: Sequence[Sequence[bytes]], *, counted: bool) -> pa.RecordBatch:
    """Return packed sections of one read as rows of ``SCHEMA``.

    With ``counted`` they are parts of groups: the third section is the packed count of rows.
    """
    import pyarrow as pa

    keys, values, others = sections
    size = len(keys)
    counts = (
        pa.array([int(packed[1:]) for packed in others], pa.int64())
        if counted
        else pa.repeat(pa.scalar(1, pa.int64()), size)
    )
    carried = pa.repeat(pa.scalar(b"", pa.binary()), size) if counted else pa.array(others, pa.binary())
    columns = [
        pa.repeat(pa.scalar(side, pa.int8()), size), pa.repeat(pa.scalar(shard, pa.int32()), size),
        pa.array(keys, pa.binary()), pa.array(values, pa.binary()), carried, counts,
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))


def note_batch(*, snapshot: ReadSnapshot | None = None, agreed: int = 0, piece: int = 0) -> pa.RecordBatch:
    """Return a note of a reader: the snapshot of a change stream, or how many keys of a piece agree."""
    note = {"snapshot": encode(snapshot)} if snapshot is not None else {"agreed": agreed, "piece": piece}
    return record_batch(NOTE_SIDE, 0, [[json.dumps(note).encode()], [b""], [b"=0"]], counted=True)


def sections_of(relation: Relation, records: Iterator[Record]) -> Iterator[list[list[bytes]]]:
    """Yield records as packed sections for ``record_batch``, many at a time."""
    compared = relation.compared
    while some := list(islice(records, BATCH_ROWS)):
        if relation.rows:
            yield [
                [pack(key) for key, *_ in some], [pack(values[:compared]) for _, values, *_ in some],
                [pack(values[compared:]) for _, values, *_ in some],
            ]  # fmt: skip
            continue
        # Each record is a group of one row: a group that all of them share crosses the join once a batch.
        groups = KeyRecords(relation).take(some).keys
        yield [
            [pack(key) for key in groups], [pack(group.values) for group in groups.values()],
            [b"=%d" % group.count for group in groups.values()],
        ]  # fmt: skip


def comes_in_parts(relation: Relation) -> bool:
    """Whether a key of an aggregated relation may have several parts, so that they are combined before the join."""
    first = relation.reads[0]
    whole = len(relation.reads) == 1 and isinstance(first, SqlRead) and first.grouped
    return not relation.rows and not whole


@dataclass(frozen=True, slots=True)
class PartCombiner:
    """Combines the parts of groups; sent to Spark's Python workers as well.

    ``combine`` are the names of ``Combine`` of each side, None for a side whose groups are whole.
    """

    combine: tuple[tuple[str, ...] | None, tuple[str, ...] | None]

    @classmethod
    def of(cls, relations: Relations) -> PartCombiner:
        """Return the one for two relations."""
        source, target = (
            tuple(map(str, relation.combine)) if relation is not None and comes_in_parts(relation) else None
            for relation in relations
        )
        return cls((source, target))

    @property
    def needed(self) -> bool:
        """Whether a side comes in parts."""
        return any(self.combine)

    def rows(self, parts: Iterable[Part]) -> Iterator[Part]:
        """Yield one row per group, then one without values per further read; parts of a key must follow each other."""
        how = [None if names is None else [Combine(name) for name in names] for names in self.combine]
        for (_, side), group in groupby(parts, key=lambda part: (part[2], part[0])):
            combine = how[side] if side < len(how) else None
            if combine is None:
                yield from group
            else:
                yield from _one_group(combine, group)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Combine batches that are sorted by key and side."""
        return batches_of(self.rows(part for batch in batches for part in _parts(batch)))

    def each_batch(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Combine what one batch holds of each group, in any order."""
        for batch in batches:
            yield from batches_of(self.rows(sorted(_parts(batch), key=lambda part: (part[2], part[0]))))


def _parts(batch: pa.RecordBatch) -> Iterator[Part]:
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _one_group(how: Sequence[Combine], parts: Iterable[Part]) -> Iterator[Part]:
    values: Bytes | None = None
    count, shards = 0, set[int]()
    for side, shard, key, packed, _, rows in parts:
        first = (side, key)
        count += rows
        shards.add(shard)
        if packed is None:
            continue
        more = unpack(packed)
        values = more if values is None else tuple(map(combined, how, values, more))
    side, key = first
    least, *others = sorted(shards)
    yield side, least, key, None if values is None else pack(values), b"", count
    for shard in others:
        yield side, shard, key, None, None, 0


def batches_of(rows: Iterator[Part]) -> Iterator[pa.RecordBatch]:
    """Yield rows of ``SCHEMA`` as record batches."""
    import pyarrow as pa

    types = (pa.int8(), pa.int32(), pa.binary(), pa.binary(), pa.binary(), pa.int64())
    while some := list(islice(rows, BATCH_ROWS)):
        columns = [pa.array(column, kind) for column, kind in zip(zip(*some, strict=True), types, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, names=list(COLUMNS))
