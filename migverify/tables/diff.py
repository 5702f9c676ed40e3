"""Mismatch -> smaller ranges -> row diffs.

A chunk that differs is cut until a piece fits ``leaf_rows``; of each piece that still differs both sides send
(key, row checksum) of every row, as one text, and only the differing keys go on. Rows whose EXACT lane agrees and
whose VALUE lane does not are read and compared by value here. What is left is *unconfirmed*: read once, never
reported before ``confirm`` has read it again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from migverify.db.pool import SessionPool
from migverify.db.reader import KeyRow, Reader
from migverify.errors import IncompleteReadError, ReadError, TimeLimitError
from migverify.model import ChunkChecksum, DiffKind, KeyRange, KeyText, Lane, LiveState, RowDiff
from migverify.sql import checksum
from migverify.sql.key_range import KeyColumn
from migverify.tables.tasks import PairPlan, ReadColumn, Rules
from migverify.tables.values import same_value, value_form

T = TypeVar("T")

KEYS_AT_ONCE = 500
SMALLER = 16
WIDE = "w:"


@dataclass(frozen=True, slots=True)
class ListDifference:
    """Elements that one row list holds and the other does not, with multiplicity: [A, A] and [A] differ by one A."""

    source_only: tuple[bytes, ...]
    target_only: tuple[bytes, ...]

    def __bool__(self) -> bool:
        return bool(self.source_only or self.target_only)


def same_checksum(source: ChunkChecksum, target: ChunkChecksum) -> bool:
    """Whether rows, hashed rows and both lanes agree. Lost rows are the caller's business."""
    return source == target


def compare_lists(source: Sequence[bytes], target: Sequence[bytes]) -> ListDifference:
    """Compare two row lists as multisets; the order of elements does not matter."""
    ours, theirs = set(source), set(target)
    if len(ours) == len(source) and len(theirs) == len(target):
        return ListDifference(tuple(sorted(ours - theirs)), tuple(sorted(theirs - ours)))
    # Repeats: a keyless table, shards that overlap, or a target without its unique key.
    counted, other = Counter(source), Counter(target)
    return ListDifference(tuple(sorted((counted - other).elements())), tuple(sorted((other - counted).elements())))


def checksum_of(elements: Sequence[bytes], *, value_lane: bool) -> ChunkChecksum:
    """Add up the row checksums of a row list; gives what the server's sums give for the same rows.

    A row without a checksum in one of its lanes counts as not hashed, as ``migverify.sql.checksum`` has it.
    """
    if value_lane:
        parts = [element.rsplit(b",", 2)[-2:] for element in elements]
        exact, value = [p[0] for p in parts], [p[1] for p in parts]
    else:
        exact, value = [element.rsplit(b",", 1)[-1] for element in elements], []
    lost = max(exact.count(b"?"), value.count(b"?"))
    return ChunkChecksum(
        len(elements),
        len(elements) - lost,
        sum(int(e, 16) for e in exact if e != b"?"),
        sum(int(v, 16) for v in value if v != b"?"),
    )


class PairReader:
    """All sides of one pair, each with its thread; sources of a sharded table are added up."""

    def __init__(self, pair: PairPlan, sources: Sequence[Reader], target: Reader, rules: Rules) -> None:
        self.pair = pair
        self.sources = tuple(sources)
        self.target = target
        self.rules = rules
        self.key: tuple[KeyColumn, ...] = target.sql.key

    @classmethod
    def open(cls, pair: PairPlan, pool: SessionPool, rules: Rules) -> PairReader:
        """Return readers of all sides of a pair; the caller closes it.

        Raises
        ------
        ReadError
            the table is on one side only.
        """
        if pair.target_side is None or not pair.sources:
            raise ReadError(f"{pair.id}: the table is on one side only, there is nothing to read")
        sources = [Reader(side, pool, rules) for side in pair.sources]
        return cls(pair, sources, Reader(pair.target_side, pool, rules), rules)

    @property
    def walker(self) -> Reader:
        """The side whose keys cut the table: the only source, or the target, which holds the rows of all shards."""
        return self.sources[0] if len(self.sources) == 1 else self.target

    @property
    def readers(self) -> tuple[Reader, ...]:
        """Every side, the target last."""
        return (*self.sources, self.target)

    def ask(self, read: Callable[[Reader], T]) -> tuple[list[T], T]:
        """Read every side at the same time; returns the answers of the sources, and the target's."""
        futures = [reader.later(partial(read, reader)) for reader in self.readers]
        *ours, theirs = [future.result() for future in futures]
        return ours, theirs

    def checksums(self, key_range: KeyRange, *, wide: bool = False) -> tuple[ChunkChecksum, ChunkChecksum]:
        """Return source and target checksum of a range, read at the same time."""
        ours, theirs = self.ask(lambda side: side.checksum(key_range, wide=wide)[0])
        return sum(ours, ChunkChecksum(0, 0, 0)), theirs

    def lists(
        self, key_range: KeyRange, *, wide: bool = False, share: tuple[int, int] | None = None
    ) -> tuple[list[bytes], list[bytes]]:
        """Return the row lists of a range, or of one share of its rows, read at the same time."""
        ours, theirs = self.ask(lambda side: side.row_list(key_range, wide=wide, share=share))
        return [element for part in ours for element in part], theirs

    def checksums_in_pieces(self, key_range: KeyRange, rows: int) -> tuple[ChunkChecksum, ChunkChecksum]:
        """Like ``checksums``, in pieces of about ``rows`` rows: for a range that took too long at once."""
        totals = [ChunkChecksum(0, 0, 0), ChunkChecksum(0, 0, 0)]
        for piece in self.walker.cut(key_range, rows):
            for side, found in enumerate(self.checksums(piece)):
                totals[side] += found
        return totals[0], totals[1]

    def lookup(
        self, keys: Sequence[KeyText], *, wide: bool = False
    ) -> tuple[dict[KeyText, list[KeyRow]], dict[KeyText, list[KeyRow]]]:
        """Return the rows of some keys of source and target, read at the same time.

        A key that is absent has no entry; one that several shards hold has a row of each.
        """
        parts, theirs = self.ask(lambda side: side.lookup(keys, self.key, wide=wide))
        ours: dict[KeyText, list[KeyRow]] = {}
        for part in parts:
            for key, rows in part.items():
                ours.setdefault(key, []).extend(rows)
        return ours, theirs

    def close(self) -> None:
        """Release the threads of all sides."""
        for reader in self.readers:
            reader.close()


def locate(reader: PairReader, key_range: KeyRange, rows: tuple[int, int], *, wide: bool = False) -> Iterator[RowDiff]:
    """Yield the unconfirmed row diffs of a range that differs; ``rows`` are its counts on both sides."""
    if max(rows) > reader.rules.leaf_rows and not key_range.nulls and reader.target.sql.range_key:
        # Of about ``leaf_rows`` rows on the side that has more of them.
        walker = reader.target if rows[1] > rows[0] else reader.walker
        for piece in walker.cut(key_range, reader.rules.leaf_rows):
            source, target = reader.checksums(piece, wide=wide)
            if not same_checksum(source, target):
                yield from leaf(reader, piece, max(source.rows, target.rows), wide=wide)
        return
    yield from leaf(reader, key_range, max(rows), wide=wide)


def leaf(reader: PairReader, key_range: KeyRange, rows: int, *, wide: bool = False) -> Iterator[RowDiff]:
    """Yield the row diffs of one range by exchanging its (key, row checksum) lists.

    A range that is too large and cannot be cut (NULL keys, one value of a non-unique key) goes in shares: the rows
    of each share are chosen by a hash, so no list grows with the table.
    """
    shares = -(-rows // reader.rules.leaf_rows)
    try:
        if shares <= 2:
            source, target = reader.lists(key_range, wide=wide)
            yield from list_diffs(reader, compare_lists(source, target), wide=wide)
            return
    except (IncompleteReadError, TimeLimitError):
        pieces = [key_range]
        if not key_range.nulls and reader.target.sql.range_key:
            pieces = list(reader.walker.cut(key_range, max(1, rows // SMALLER)))
        if len(pieces) > 1:
            for piece in pieces:
                yield from leaf(reader, piece, -(-rows // SMALLER), wide=wide)
            return
        if rows < SMALLER:
            raise
        shares = SMALLER
    for number in range(shares):
        source, target = reader.lists(key_range, wide=wide, share=(shares, number))
        yield from list_diffs(reader, compare_lists(source, target), wide=wide)


def list_diffs(reader: PairReader, difference: ListDifference, *, wide: bool = False) -> Iterator[RowDiff]:
    """Turn differing elements into row diffs; pairs them by key, drops those that are equal by value."""
    if not difference:
        return
    if not reader.key:
        yield from _multiset_diffs(reader, difference)
        return
    source, target = by_key(reader, difference.source_only), by_key(reader, difference.target_only)
    doubtful = [k for k in source if k in target and _exact(reader.pair, source[k]) == _exact(reader.pair, target[k])]
    same = set(_same_by_value(reader, doubtful)) if doubtful else set()
    now = time.time()
    for key in [*source, *(k for k in target if k not in source)]:
        if key in same:
            continue
        ours, theirs = source.get(key, []), target.get(key, [])
        yield RowDiff(reader.pair.id, key, kind_of(len(ours), len(theirs)), LiveState.UNCONFIRMED,
                      source_checksum=joined(ours, wide=wide), target_checksum=joined(theirs, wide=wide),
                      source_count=len(ours), target_count=len(theirs), read_at=now)  # fmt: skip


def kind_of(source: int, target: int) -> DiffKind:
    """Return how rows differ of which the sides hold so many."""
    if source == target:
        return DiffKind.VALUE_DIFFERS
    return DiffKind.MISSING_ON_TARGET if source > target else DiffKind.MISSING_ON_SOURCE


def by_key(reader: PairReader, elements: Sequence[bytes]) -> dict[KeyText, list[str]]:
    """Group elements by key; the values are their checksum parts, in order."""
    found: dict[KeyText, list[str]] = {}
    for element in elements:
        key, rest = checksum.split_element(reader.key, element)
        found.setdefault(key, []).append(rest)
    return found


def _exact(pair: PairPlan, checksums: list[str]) -> list[str] | object:
    if not pair.value_lane:
        return object()  # without a VALUE lane an element that differs, differs
    return [c.split(",")[0] for c in checksums]


def joined(checksums: Sequence[str], *, wide: bool) -> str | None:
    """Return the checksums of the rows of one key as one text; None for no row.

    Checksums of the wide frame are marked, so that a second read uses the same frame.
    """
    return (WIDE if wide else "") + ";".join(sorted(checksums)) if checksums else None


def _multiset_diffs(reader: PairReader, difference: ListDifference) -> Iterator[RowDiff]:
    ours = Counter(element.decode("ascii") for element in difference.source_only)
    theirs = Counter(element.decode("ascii") for element in difference.target_only)
    if reader.pair.value_lane:
        ours, theirs = count_rows(reader, sorted({*ours, *theirs}))
    now = time.time()
    for element in sorted({*ours, *theirs}):
        one, other = ours[element], theirs[element]
        if one != other:
            yield RowDiff(reader.pair.id, (element,), kind_of(one, other), LiveState.UNCONFIRMED, source_count=one,
                          target_count=other, source_checksum=element if one else None,
                          target_checksum=element if other else None, read_at=now)  # fmt: skip


def count_rows(
    reader: PairReader, elements: Sequence[str], texts: dict[str, Texts] | None = None
) -> tuple[Counter[str], Counter[str]]:
    """Count the rows of a keyless table by element, on both sides; elements of VALUE columns are by value.

    A row is found by its EXACT checksum, so all rows that share one are counted. ``texts`` receives a row of each.
    """
    exact = [(e,) for e in sorted({element.split(",")[0] for element in elements})]

    def count(side: Reader) -> Counter[str]:
        found: Counter[str] = Counter()
        for batch in batches(exact, rows_at_once(reader.pair)):
            for row in side.rows_by_checksum([key[0] or "" for key in batch]):
                element = _multiset_element(reader.pair, row)
                found[element] += 1
                if texts is not None:
                    texts.setdefault(element, texts_of(reader.pair.columns, row[1:]))
        return found

    ours, theirs = reader.ask(count)
    return sum(ours, Counter()), theirs


def _multiset_element(pair: PairPlan, row: Sequence[bytes | None]) -> str:
    text = (row[0] or b"").decode("ascii")
    if not pair.value_lane:
        return text
    texts = texts_of(pair.columns, row[1:])
    forms = [value_form(c, t) for c, t in zip(pair.columns, texts, strict=True) if c.lane is Lane.VALUE]
    # A hash, as the element becomes the key of a row diff: it must hold no value, and two rows no one text.
    return text.split(",")[0] + "," + hashlib.sha256(json.dumps(forms).encode()).hexdigest()[:15]


def _same_by_value(reader: PairReader, keys: list[KeyText]) -> Iterator[KeyText]:
    """Yield the keys whose VALUE lane is equal by value on both sides."""
    places = [n for n, column in enumerate(reader.pair.columns) if column.lane is Lane.VALUE]
    for batch in batches(keys, rows_at_once(reader.pair)):
        ours, theirs = read_rows(reader, batch)
        for key in batch:
            one, other = ours.get(key, []), theirs.get(key, [])
            if len(one) == len(other) == 1 and all(
                same_value(reader.pair.columns[n], one[0][1][n], other[0][1][n]) for n in places
            ):
                yield key


Texts = tuple[str | None, ...]
RowsByKey = dict[KeyText, list[tuple[str, Texts]]]
"""Key -> its rows, each as (checksums, canonical texts of the compared columns)."""


def read_rows(reader: PairReader, keys: Sequence[KeyText], *, wide: bool = False) -> tuple[RowsByKey, RowsByKey]:
    """Read the rows of some keys on both sides at the same time. A key that is absent has no entry."""
    ours, theirs = reader.lookup(keys, wide=wide)
    return _decoded(reader.pair.columns, ours), _decoded(reader.pair.columns, theirs)


def _decoded(columns: Sequence[ReadColumn], found: Mapping[KeyText, Sequence[KeyRow]]) -> RowsByKey:
    return {key: [(sums, texts_of(columns, row)) for sums, row in rows] for key, rows in found.items()}


def texts_of(columns: Sequence[ReadColumn], row: Sequence[bytes | None]) -> Texts:
    """Decode canonical texts; binary columns become ``0x`` and hex."""
    return tuple(
        None if part is None else "0x" + part.hex() if column.binary else part.decode("utf-8", "surrogateescape")
        for column, part in zip(columns, row, strict=True)
    )


def batches(keys: Sequence[KeyText], size: int) -> Iterator[Sequence[KeyText]]:
    """Yield slices of at most ``size`` keys."""
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def rows_at_once(pair: PairPlan) -> int:
    """How many full rows to ask for at once: bounded in rows and, by the estimated row, in bytes."""
    return max(1, min(KEYS_AT_ONCE, 8_000_000 // pair.row_bytes))
