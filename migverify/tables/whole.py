"""Whole-table comparison by bucket, for sides that cannot be cut equally.

Keys under different collations sort differently, so no range holds the same rows on both sides; and a table without any
index cannot be cut at all. Each side then sums its whole table by bucket (CRC32 of the key bytes, or of the row),
and only rows of differing buckets are exchanged. Rows are matched by bytes, wherever a side sorts them.
The exchange goes through files on the worker's disk, one per group of buckets: an external hash join, bounded by
the largest group.
"""

from __future__ import annotations

import tempfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from migverify.db.reader import Reader
from migverify.errors import ReadError
from migverify.model import ChunkChecksum, RowDiff
from migverify.sql import checksum
from migverify.tables.diff import PairReader, compare_lists, list_diffs
from migverify.tables.tasks import Task, TaskOutcome

GROUPS = 64
DIFFS_AT_ONCE = 50_000


def bucket_rows(reader: PairReader, task: Task) -> TaskOutcome:
    """Find the row diffs of the buckets in ``task.wanted``, from group ``task.number`` on.

    Returns at most about ``DIFFS_AT_ONCE`` row diffs; ``next_group`` says where to go on, None when all are found.
    """
    with tempfile.TemporaryDirectory(prefix="migverify-") as folder:
        source_folder, target_folder = Path(folder, "source"), Path(folder, "target")
        jobs = [(r, source_folder, n) for n, r in enumerate(reader.sources)] + [(reader.target, target_folder, 0)]
        for future in [r.later(partial(_spool, r, _condition(r, task), path, n)) for r, path, n in jobs]:
            future.result()
        found: list[RowDiff] = []
        for group in range(task.number, GROUPS):
            source, target = _load(source_folder, group), _load(target_folder, group)
            found += list_diffs(reader, compare_lists(source, target))
            if len(found) >= DIFFS_AT_ONCE and group + 1 < GROUPS:
                return TaskOutcome("bucket_rows", task.pair.id, diffs=tuple(found), next_group=group + 1)
    if not found and task.number == 0 and _still_differ(reader, task):
        raise ReadError(f"{task.pair.id}: the checksums differ, and no row that does was found")
    return TaskOutcome("bucket_rows", task.pair.id, diffs=tuple(found))


def _still_differ(reader: PairReader, task: Task) -> bool:
    """Sum again: the rows became equal between the reads, or the locating missed something.

    The VALUE lane does not count, since different texts may be one value.
    """
    ours, theirs = reader.ask(lambda side: side.bucket_sums(task.buckets))
    source, target = ([(b, replace(c, value=0)) for b, c in part] for part in (add_sums(ours), theirs))
    return bool(differing(source, target))


def differing(source: Sequence[tuple[int, ChunkChecksum]], target: Sequence[tuple[int, ChunkChecksum]]) -> list[int]:
    """Return the numbers of the buckets whose rows or sums differ."""
    ours, theirs = dict(add_sums([source])), dict(add_sums([target]))
    return sorted(b for b in ours.keys() | theirs.keys() if ours.get(b) != theirs.get(b))


def add_sums(parts: Sequence[Sequence[tuple[int, ChunkChecksum]]]) -> list[tuple[int, ChunkChecksum]]:
    """Add up the bucket sums of several shards."""
    total: dict[int, ChunkChecksum] = {}
    for part in parts:
        for number, found in part:
            total[number] = total.get(number, ChunkChecksum(0, 0, 0)) + found
    return sorted(total.items(), key=lambda item: item[0])


def _condition(side: Reader, task: Task) -> str:
    if len(task.wanted) * 2 > task.buckets:
        return ""  # most buckets differ: a list of them would only slow the scan
    return f"{checksum.bucket(side.sql, task.buckets)} IN ({','.join(map(str, task.wanted))})"


def _spool(side: Reader, condition: str, folder: Path, number: int) -> None:
    """Stream the elements of one side into one file per group; a retry begins with empty files."""

    def take(elements: Iterator[bytes]) -> None:
        folder.mkdir(exist_ok=True)
        files = [(folder / f"{group}.{number}").open("wb") for group in range(GROUPS)]
        try:
            for element in elements:
                files[_group(element, len(side.sql.key))].write(element + b"\n")
        finally:
            for file in files:
                file.close()

    side.stream(condition, take)


def _group(element: bytes, key_parts: int) -> int:
    # Rows of one key must meet in one group, also when their checksums differ.
    identity = b",".join(element.split(b",")[:key_parts]) if key_parts else element
    return zlib.crc32(identity) % GROUPS


def _load(folder: Path, group: int) -> list[bytes]:
    elements: list[bytes] = []
    for path in sorted(folder.glob(f"{group}.*")):
        elements += path.read_bytes().split(b"\n")[:-1]
    return elements
