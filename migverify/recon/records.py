"""Rows of a relation as the servers sent them, and what is known of each key: counts, least values, combined groups.

Keys and values are bytes, None for NULL; a NULL key equals a NULL key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Context, Decimal

from migverify.errors import ReadError
from migverify.recon.relation import Combine, KeyRows, Relation, Texts

Bytes = tuple[bytes | None, ...]
Record = tuple[Bytes, Bytes, int, int]
"""Key, values, number of rows it represents, number of the read it comes from."""
_EXACT = Context(prec=200)


def combined(how: Combine, one: bytes | None, other: bytes | None) -> bytes | None:
    """Combine the values of two parts of a group, exactly and in any order; NULL adds nothing and loses.

    Raises
    ------
    ReadError
        values of rows, which are not combined.
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
    unlike: bool = False
    mixed: bool = False


@dataclass(slots=True)
class KeyRecords:
    """Rows of one side by key, in memory: for some keys that were asked for, or one batch of changes."""

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
        known.unlike = known.unlike or values[:compared] != known.values[:compared]
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
        return KeyRows(known.count, texts(known.values), known.unlike, shards, known.mixed)


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
