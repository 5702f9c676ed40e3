"""Bucket checksums, computed by the databases, and which rows must be read after them.

Every row of both sides falls into a bucket by the bytes of its key. Buckets with equal counts and equal sums hold the
same rows (the sum of a 60-bit slice of SHA2, see ``migverify.sql.checksum``); only rows of the other buckets are read.
That no key is repeated in an equal bucket follows where one side cannot hold it twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from migverify.model import ChunkChecksum
from migverify.recon.relation import JoinFilter, Relation, SqlRead
from migverify.sql.checksum import parse_checksum

FEWEST, MOST = 16, 1 << 17
ROWS_A_BUCKET = 100
UNKNOWN_ROWS = 400_000
WIDE_ROW = 2000
"""Bytes of a row from which on its hash is cheaper than its text, where text travels packed.

Measured with 10 M rows of 5 columns on each side: bucket checksums take 30 + 99 s of the servers' CPU (MySQL + TiDB),
the packed texts of all rows 17 + 24 s.
"""
LISTED = 4000
"""So many bucket numbers stand in one condition."""


def can_push_down(source: Relation, target: Relation | None, keep: JoinFilter) -> bool:
    """Whether bucket checksums can answer: rows of databases on both sides, nothing wanted but what is unlike."""
    return (
        target is not None
        and not keep.all
        and all(isinstance(read, SqlRead) and read.key for relation in (source, target) for read in relation.reads)
        and source.rows
        and target.rows
        and not any(read.population for relation in (source, target) for read in sql_reads(relation))
        and (once(source) or once(target) or len(source.reads) == 1 or len(target.reads) == 1)
    )


def pays(source: Relation, target: Relation) -> bool:
    """Whether rows are so wide that bucket checksums cost the servers less than packed texts of all rows."""
    return any(read.row_bytes > WIDE_ROW for relation in (source, target) for read in sql_reads(relation))


def chosen(source: Relation, target: Relation | None, keep: JoinFilter, push_down: bool | None) -> bool:
    """Whether bucket checksums are compared first; ``push_down`` None: where rows are wide."""
    if target is None or not can_push_down(source, target, keep):
        return False
    return pays(source, target) if push_down is None else push_down


def sql_reads(relation: Relation | None) -> list[SqlRead]:
    """Return the reads of databases of a relation."""
    return [read for read in relation.reads if isinstance(read, SqlRead)] if relation is not None else []


def once(relation: Relation) -> bool:
    """Whether no key can stand twice: one read under a unique index."""
    reads = sql_reads(relation)
    return len(reads) == len(relation.reads) == 1 and reads[0].unique


def bucket_count(source: Relation, target: Relation) -> int:
    """Return how many buckets suit the larger side's estimated rows."""
    sizes = [
        sum(read.rows if read.rows >= 0 else UNKNOWN_ROWS for read in sql_reads(side)) for side in (source, target)
    ]
    return max(FEWEST, min(MOST, max(sizes) // ROWS_A_BUCKET))


@dataclass(slots=True)
class BucketSums:
    """Sums of one side by bucket; ``lost`` when a row had no checksum, so that nothing follows from them."""

    sums: dict[int, ChunkChecksum]
    lost: bool = False

    @classmethod
    def none(cls) -> BucketSums:
        """Return those of no rows."""
        return cls({})

    def add(self, rows: Sequence[Sequence[bytes | None]]) -> None:
        """Add the answer of one ``bucket_sums_sql``."""
        for row in rows:
            number, *rest = [None if part is None else part.decode("ascii") for part in row]
            found = parse_checksum(rest)
            if number is None or found.hashed < found.rows:
                self.lost = True
                continue
            place = int(number)
            self.sums[place] = self.sums.get(place, ChunkChecksum(0, 0, 0)) + found

    @property
    def rows(self) -> int:
        """Rows of all buckets."""
        return sum(found.rows for found in self.sums.values())


def unlike_buckets(source: BucketSums, target: BucketSums) -> set[int]:
    """Return the buckets whose rows or sums differ."""
    return {b for b in source.sums.keys() | target.sums.keys() if source.sums.get(b) != target.sums.get(b)}
