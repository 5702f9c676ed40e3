"""The join of the recon road as DataFrame expressions.

Both sides stand in one frame (``migverify.spark.recon_source.SCHEMA``), so a full outer join by key is one aggregation
by key: one shuffle. Rows of one key are combined before it, so that a key with most of the rows, or a group of all of
them, crosses the network once per task. Packed keys hold no NULL: NULL keys match NULL keys.

Keys that agree are not given back but counted: in the last step they fall into one group, beside the keys that do not.
So one pass gives both pairings and totals, also where Spark ran a task twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - as everyone calls it

from migverify.recon import spill
from migverify.recon.relation import Combine, Held, Keep, Pairing, Relation, Texts
from migverify.sql.packed import pack, unpack

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

WORD = 62
"""Reads that one bit mask holds."""
TOTALS = ("rows0", "rows1", "keys0", "keys1", "matched")


def join_rows(frame: DataFrame, keep: Keep, relations: tuple[Relation, Relation | None]) -> DataFrame:
    """Join rows by key: what ``kept_and_totals`` gives, for ``pairing``."""
    parts: list[Column] = []
    for side, relation in enumerate(relations):
        if relation is not None:
            parts += _held(side, relation)
    held = frame.groupBy("k").agg(*parts)
    if relations[1] is None:
        held = held.withColumn("n1", F.lit(0).cast("long")).withColumn("v1", F.lit(None).cast("binary"))
        kept = F.lit(keep.all) | (F.lit(keep.repeated) & (F.col("n0") > 1)) | _is_note()
        return kept_and_totals(held, kept, ~kept)
    alike = (F.col("n0") > 0) & (F.col("n1") > 0) & (F.col("v0") == F.col("v1")) & ~F.col("u0") & ~F.col("u1")
    alike = F.coalesce(alike, F.lit(False))
    twice = F.lit(keep.repeated) & ((F.col("n0") > 1) | (F.col("n1") > 1))
    return kept_and_totals(held, _kept(keep, alike, twice), alike & ~twice)


def _kept(keep: Keep, alike: Column, twice: Column) -> Column:
    here, there = F.col("n0") > 0, F.col("n1") > 0
    return (
        _is_note()
        | (F.lit(keep.missing_target or keep.all) & ~there)
        | (F.lit(keep.missing_source or keep.all) & ~here)
        | (here & there & ((F.lit(keep.unlike) & ~alike) | twice | F.lit(keep.all)))
    )


def _is_note() -> Column:
    """Whether a key belongs to neither side: it is a note of a reader to the driver (``recon_source.ANCHOR_SIDE``)."""
    return (F.col("n0") == 0) & (F.col("n1") == 0)


def note(key: Any) -> bytes | None:
    """Return the note that a kept key is, or None."""
    return None if key["n0"] or key["n1"] else bytes(key["k"])


def _held(side: int, relation: Relation) -> list[Column]:
    """Count, least values, and whether others were unlike; shards as bits."""
    mine = F.col("side") == side
    values = F.when(mine, F.col("v"))
    parts = [
        F.count(values).alias(f"n{side}"),
        F.coalesce(F.min(values) != F.max(values), F.lit(False)).alias(f"u{side}"),
    ]
    if relation.carried:
        beside = F.when(mine, F.col("c"))
        least = F.min(F.when(mine, F.struct("v", "c")))
        parts += [least["v"].alias(f"v{side}"), least["c"].alias(f"c{side}"),
                  F.coalesce(F.min(beside) != F.max(beside), F.lit(False)).alias(f"m{side}")]  # fmt: skip
    else:
        parts.append(F.min(values).alias(f"v{side}"))
    if len(relation.reads) > 1:
        for word in range(-(-len(relation.reads) // WORD)):
            inside = mine & (F.col("shard") >= word * WORD) & (F.col("shard") < (word + 1) * WORD)
            bit = F.expr(f"shiftleft(1L, shard - {word * WORD})")
            parts.append(F.bit_or(F.when(inside, bit)).alias(f"s{side}_{word}"))
    return parts


def kept_and_totals(held: DataFrame, kept: Column, matched: Column) -> DataFrame:
    """Return a row per kept key, and one for all others, with the ``TOTALS`` that each stands for.

    The key's columns are fields of ``key``, which is NULL in the row of the others.
    """
    key = F.when(kept, F.struct(*held.columns)).alias("key")
    here, there = F.col("n0"), F.col("n1")
    measures = {
        "rows0": here, "rows1": there, "keys0": F.when(here > 0, 1).otherwise(0),
        "keys1": F.when(there > 0, 1).otherwise(0), "matched": F.when(matched, 1).otherwise(0),
    }  # fmt: skip
    listed = held.select(key, *(value.cast("long").alias(name) for name, value in measures.items()))
    return listed.groupBy("key").agg(*(F.sum(name).alias(name) for name in TOTALS))


def pairing(key: Any, relations: tuple[Relation, Relation | None]) -> Pairing:
    """Return the pairing of the ``key`` of a row of ``join_rows`` or ``join_groups``."""
    sides = [
        None
        if relation is None or not key[f"n{side}"]
        else (_row_held if relation.rows else _group_held)(key, side, relation)
        for side, relation in enumerate(relations)
    ]
    return Pairing(_texts(key["k"]), sides[0], sides[1])


def _group_held(key: Any, side: int, relation: Relation) -> Held:
    return Held(key[f"n{side}"], _texts(key[f"v{side}"]), False, _shards(relation, key[f"r{side}"]))


def _row_held(key: Any, side: int, relation: Relation) -> Held:
    values = _texts(key[f"v{side}"])
    mixed = False
    if relation.carried:
        values, mixed = (*values, *_texts(key[f"c{side}"])), key[f"m{side}"]
    return Held(key[f"n{side}"], values, key[f"u{side}"], _shards(relation, _reads_of(key, side, relation)), mixed)


def _reads_of(key: Any, side: int, relation: Relation) -> Sequence[int]:
    if len(relation.reads) == 1:
        return (0,)
    bits = [(word, key[f"s{side}_{word}"] or 0) for word in range(-(-len(relation.reads) // WORD))]
    return [word * WORD + bit for word, mask in bits for bit in range(WORD) if mask >> bit & 1]


def _shards(relation: Relation, numbers: Sequence[int]) -> tuple[str, ...]:
    return tuple(sorted({spill.shard_of(relation, number) for number in numbers} - {""}))


def _texts(packed: Any) -> Texts:
    return spill.texts(unpack(bytes(packed)))


# --- aggregates ------------------------------------------------------------------------------------------


def join_groups(frame: DataFrame, keep: Keep, relations: tuple[Relation, Relation | None]) -> DataFrame:
    """Join by key where a side is aggregates, or both are: what ``kept_and_totals`` gives, for ``pairing``.

    Parts of one group (of several shards, or of several ranges) are combined in Python workers, by the same function as
    the local engine's; groups that came whole from both sides and are equal to the byte are only counted.
    """
    aggregates = tuple(relation is not None and not relation.rows for relation in relations)
    listed: list[Column] = []
    for side, relation in enumerate(relations):
        if relation is not None and relation.rows:
            listed += _held(side, relation)
        else:
            # The third section of a part is the count of its rows.
            count = F.expr(f"case when side = {side} then cast(substring(cast(c as string), 2) as bigint) end")
            listed.append(F.coalesce(F.sum(count), F.lit(0)).alias(f"n{side}"))
    parted = F.col("side").isin([side for side in (0, 1) if aggregates[side]])
    listed.append(F.collect_list(F.when(parted, F.struct("side", "shard", "v"))).alias("parts"))
    held = frame.groupBy("k").agg(*listed)
    whole = F.lit(False)
    if all(aggregates) and not keep.all:
        whole = (F.size("parts") == 2) & F.expr("get(parts, 0).v = get(parts, 1).v")
        whole = whole & F.expr("get(parts, 0).side <> get(parts, 1).side")
    held = held.withColumn("whole", F.coalesce(whole, F.lit(False)))
    held = held.withColumn("parts", F.when(~F.col("whole"), F.col("parts")))
    combining = Combining.of(relations)
    held = held.mapInArrow(combining, combining.schema(held.drop("parts").schema))
    if relations[1] is None:
        kept = F.lit(keep.all) | (F.lit(keep.repeated) & (F.col("n0") > 1)) | _is_note()
        return kept_and_totals(held, kept, ~kept)
    alike = (F.col("n0") > 0) & (F.col("n1") > 0)
    alike = alike & (F.col("p0" if aggregates[0] else "v0") == F.col("p1" if aggregates[1] else "v1"))
    twice = F.lit(False)
    for side in (0, 1):
        if not aggregates[side]:
            alike = alike & ~F.col(f"u{side}")
            twice = twice | (F.lit(keep.repeated) & (F.col(f"n{side}") > 1))
    alike = F.coalesce(F.col("whole") | alike, F.lit(False))
    return kept_and_totals(held, _kept(keep, alike, twice), alike & ~twice)


@dataclass(frozen=True, slots=True)
class Combining:
    """Combines the parts of groups; runs in Python workers.

    ``combine`` are the names of ``Combine`` of each side, None for a side that is no aggregate; ``compared`` is how
    many values count.
    """

    combine: tuple[tuple[str, ...] | None, tuple[str, ...] | None]
    compared: int

    @classmethod
    def of(cls, relations: tuple[Relation, Relation | None]) -> Combining:
        """Return the one for two relations."""
        ours, theirs = (
            tuple(map(str, relation.combine)) if relation is not None and not relation.rows else None
            for relation in relations
        )
        return cls((ours, theirs), relations[0].compared)

    @property
    def sides(self) -> list[int]:
        """The sides that are aggregates."""
        return [side for side in (0, 1) if self.combine[side] is not None]

    def schema(self, known: StructType) -> StructType:
        """Return what comes out: the columns ``known``, and of each side its values, those compared, its reads."""
        from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StructField, StructType

        added = [
            StructField(f"{letter}{side}", ArrayType(IntegerType()) if letter == "r" else BinaryType())
            for side in self.sides for letter in "vpr"
        ]  # fmt: skip
        return StructType([*known.fields, *added])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Replace the column ``parts`` by what the parts make together."""
        import pyarrow as pa

        how = [tuple(Combine(name) for name in names or ()) for names in self.combine]
        for batch in batches:
            names = [name for name in batch.schema.names if name != "parts"]
            columns = [batch.column(name) for name in names]
            parts = batch.column("parts").to_pylist()
            for side in self.sides:
                found = [None if one is None else _combine(how[side], one, side) for one in parts]
                names += [f"v{side}", f"p{side}", f"r{side}"]
                columns += [
                    pa.array([None if one is None else pack(one[0]) for one in found], pa.binary()),
                    pa.array([None if one is None else pack(one[0][: self.compared]) for one in found], pa.binary()),
                    pa.array([None if one is None else one[1] for one in found], pa.list_(pa.int32())),
                ]
            yield pa.RecordBatch.from_arrays(columns, names=names)


@dataclass(frozen=True, slots=True)
class Partial:
    """Combines rows of one key before they cross the network, batch by batch; runs in Python workers.

    For rows that no database aggregated: each is a group of one row. ``combine`` are the names of ``Combine``.
    """

    combine: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn rows of ``recon_source.SCHEMA`` into fewer of the same meaning."""
        import pyarrow as pa

        how = tuple(Combine(name) for name in self.combine)
        for batch in batches:
            groups: dict[bytes, list[Any]] = {}
            for key, packed in zip(batch.column("k").to_pylist(), batch.column("v").to_pylist(), strict=True):
                values = unpack(packed)
                known = groups.get(key)
                if known is None:
                    groups[key] = [values, 1]
                else:
                    known[0] = tuple(spill.combined(*three) for three in zip(how, known[0], values, strict=True))
                    known[1] += 1
            if groups:
                first = batch.slice(0, 1)
                columns = [
                    *(pa.repeat(first.column(name)[0], len(groups)) for name in ("side", "shard")),
                    pa.array(groups, pa.binary()), pa.array([pack(found) for found, _ in groups.values()], pa.binary()),
                    pa.array([b"=%d" % count for _, count in groups.values()], pa.binary()),
                ]  # fmt: skip
                yield pa.RecordBatch.from_arrays(columns, names=["side", "shard", "k", "v", "c"])


def _combine(
    how: tuple[Combine, ...], parts: Sequence[dict[str, Any]], side: int
) -> tuple[spill.Bytes, list[int]] | None:
    values: spill.Bytes | None = None
    reads: set[int] = set()
    for part in parts:
        if part["side"] != side:
            continue
        other = unpack(part["v"])
        reads.add(part["shard"])
        if values is None:
            values = other
        else:
            values = tuple(spill.combined(*three) for three in zip(how, values, other, strict=True))
    return None if values is None else (values, sorted(reads))
