"""Pure comparison: two chunk checksums, two row lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from migverify.model import ChunkChecksum


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
