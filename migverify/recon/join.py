"""The join of two relations, described once for both engines: what goes into its statement, and what comes out.

``migverify.sql.recon_join`` makes the statement; DuckDB (``local``) and Spark run it. Aggregates that reach the join in
parts (of several shards or key ranges) are combined in Python before it: sums are exact decimals of any length, which
neither engine has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

from migverify.recon.records import Bytes, KeyRecords, Record, combined, shards_of, texts
from migverify.recon.relation import Combine, JoinFilter, KeyRows, Pairing, Relation, SqlRead
from migverify.sql.packed import pack, unpack
from migverify.sql.recon_join import COLUMNS, WORD, JoinSide, join_sql

if TYPE_CHECKING:
    import pyarrow as pa

Relations = tuple[Relation, Relation | None]
Part = tuple[int, int, bytes, bytes | None, bytes | None, int]
"""One row of ``COLUMNS``."""

SCHEMA = "side tinyint, shard int, k binary, v binary, c binary, n bigint"
"""``side`` 0 is the source, 1 the target; ``shard`` the number of the read on its side; ``k``, ``v`` and ``c`` are the
packed key, compared values and carried values; ``n`` how many rows it represents. A row without ``v`` adds its
``shard`` to a group."""
BATCH_ROWS = 10_000
PAGE = 1000


def statement(relations: Relations, keep: JoinFilter, rows: str) -> str:
    """Return the statement that joins ``rows``, what follows FROM; its rows are for ``pairing`` and ``note``."""
    sides = [
        JoinSide(len(relation.reads), relation.rows, relation.compared, relation.carried)
        for relation in relations if relation is not None
    ]  # fmt: skip
    return join_sql(sides, keep, rows)


def note(row: Mapping[str, Any] | Any) -> bytes | None:
    """Return the note that a row of the join is, or None."""
    return None if row["n0"] or row["n1"] else bytes(row["k"])


def pairing(row: Mapping[str, Any] | Any, relations: Relations) -> Pairing:
    """Return the pairing of a row of the join that has a key."""
    sides = [
        None if relation is None or not row[f"n{side}"] else _held(row, side, relation)
        for side, relation in enumerate(relations)
    ]
    return Pairing(texts(unpack(bytes(row["k"]))), sides[0], sides[1])


def _held(row: Any, side: int, relation: Relation) -> KeyRows:
    carried = bool(relation.carried)
    values = texts(unpack(bytes(row[f"{'w' if carried else 'v'}{side}"])))
    mixed = bool(row[f"m{side}"]) if carried else False
    return KeyRows(
        row[f"n{side}"], values, bool(row[f"u{side}"]), shards_of(relation, _reads(row, side, relation)), mixed
    )


def _reads(row: Any, side: int, relation: Relation) -> Sequence[int]:
    if len(relation.reads) == 1:
        return (0,)
    masks = [row[f"s{side}_{word}"] or 0 for word in range(-(-len(relation.reads) // WORD))]
    return [word * WORD + bit for word, mask in enumerate(masks) for bit in range(WORD) if mask >> bit & 1]


# --- what goes in ----------------------------------------------------------------------------------------


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
    whole = len(relation.reads) == 1 and isinstance(first, SqlRead) and first.grouped and first.cut is None
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
