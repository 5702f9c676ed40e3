"""An external hash join: rows of two sides go to files by the hash of their key, and file after file is joined.

Memory holds one partition's keys, however many rows there are: of each key the count, the least values and whether
others were unlike. A partition that is too large is parted again by another hash; one key with most of the rows cannot
be parted, and needs no more memory than any other key.

Keys and values are bytes as the servers sent them, None for NULL; a NULL key equals a NULL key.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from pathlib import Path

from migverify.errors import ReadError
from migverify.recon.relation import Combine, Held, Keep, Pairing, Relation, Texts

Bytes = tuple[bytes | None, ...]
Record = tuple[Bytes, Bytes, int, int]
"""Key, values, how many rows it stands for, number of the read it comes from."""

PARTITIONS = 64
BUFFER_BYTES = 32 << 20
LARGE_BYTES = 96 << 20
DEEPEST = 2
BATCH = 1000
_EXACT = Context(prec=200)


def hash_of(key: Bytes, salt: int = 0) -> int:
    """Return a hash of a key; another one for each salt."""
    return zlib.crc32(b"\0".join([b"\1" if part is None else part for part in key]), salt)


class Spill:
    """Rows of one side in files: ``<partition>.<writer>`` in a folder."""

    def __init__(self, folder: Path, partitions: int = PARTITIONS, salt: int = 0) -> None:
        self.folder = folder
        self.partitions = partitions
        self.salt = salt
        folder.mkdir(parents=True, exist_ok=True)

    def writer(self, name: str) -> SpillWriter:
        """Return a writer of its own name; a second one of that name begins anew."""
        for path in self.folder.glob(f"*.{name}"):
            path.unlink()
        return SpillWriter(self, name)

    def files(self, partition: int) -> list[Path]:
        """Return the files of a partition."""
        return sorted(self.folder.glob(f"{partition}.*"))


class SpillWriter:
    """Writes rows to the files of their partitions, many at a time. For one thread."""

    def __init__(self, spill: Spill, name: str) -> None:
        self._spill, self._name = spill, name
        self._buffers: list[list[Record]] = [[] for _ in range(spill.partitions)]
        self._bytes = 0
        self.rows = 0

    def add(self, key: Bytes, values: Bytes, count: int, read: int) -> None:
        """Take one row, or one group of ``count`` rows."""
        self._buffers[hash_of(key, self._spill.salt) % self._spill.partitions].append((key, values, count, read))
        self.rows += count
        # Python's own size of a row, about.
        self._bytes += 200 + sum(map(len, filter(None, key))) + sum(map(len, filter(None, values)))
        if self._bytes > BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        for partition, rows in enumerate(self._buffers):
            if rows:
                with (self._spill.folder / f"{partition}.{self._name}").open("ab") as file:
                    data = marshal.dumps(rows)
                    file.write(len(data).to_bytes(8, "little") + data)
                rows.clear()
        self._bytes = 0


def read_records(paths: Iterable[Path]) -> Iterator[Record]:
    """Yield the rows of files."""
    for path in paths:
        with path.open("rb") as file:
            while head := file.read(8):
                data = file.read(int.from_bytes(head, "little"))
                yield from marshal.loads(data)  # noqa: S302 - written by this process, in a folder of its own


@dataclass(slots=True)
class Side:
    """What one side holds in a partition, by key: [count, values, unlike, mixed, reads]."""

    combine: tuple[Combine, ...]
    compared: int
    aggregate: bool
    keys: dict[Bytes, list[object]] = field(default_factory=dict)
    rows: int = 0

    @classmethod
    def of(cls, relation: Relation) -> Side:
        """Return an empty one for a relation."""
        return cls(relation.combine, relation.compared, not relation.rows)

    def take(self, records: Iterable[Record]) -> Side:
        """Add rows."""
        keys, add = self.keys, self._aggregate if self.aggregate else self._row
        for key, values, count, read in records:
            self.rows += count
            held = keys.get(key)
            if held is None:
                keys[key] = [count, values, False, False, {read}]
            else:
                add(held, values, count, read)
        return self

    def _row(self, held: list[object], values: Bytes, count: int, read: int) -> None:
        held[0] += count  # type: ignore[operator]
        held[4].add(read)  # type: ignore[attr-defined]
        known: Bytes = held[1]  # type: ignore[assignment]
        if values == known:
            return
        if values[: self.compared] != known[: self.compared]:
            held[2] = True
        if values[self.compared :] != known[self.compared :]:
            held[3] = True
        if _order(values) < _order(known):
            held[1] = values

    def _aggregate(self, held: list[object], values: Bytes, count: int, read: int) -> None:
        held[0] += count  # type: ignore[operator]
        held[4].add(read)  # type: ignore[attr-defined]
        known: Bytes = held[1]  # type: ignore[assignment]
        held[1] = tuple(combined(*three) for three in zip(self.combine, known, values, strict=True))


def _order(values: Bytes) -> tuple[tuple[bool, bytes], ...]:
    return tuple((value is not None, value or b"") for value in values)


def combined(how: Combine, one: bytes | None, other: bytes | None) -> bytes | None:
    """Combine the values of two parts of a group, exactly; NULL adds nothing and loses.

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
        return better(one, other, key=lambda text: Decimal(text.decode()))
    if how is Combine.TEXT_MIN:
        return min(one, other)
    if how is Combine.TEXT_MAX:
        return max(one, other)
    raise ReadError("values of rows are not combined")


@dataclass(slots=True)
class Counts:
    """What a join has seen so far."""

    rows_source: int = 0
    rows_target: int = 0
    keys_source: int = 0
    keys_target: int = 0
    matched: int = 0


def join(
    source: Relation, target: Relation | None, keep: Keep, spills: tuple[Spill, Spill | None], counts: Counts
) -> Iterator[list[Pairing]]:
    """Join what was spilled; yields batches of pairings, and counts."""
    for partition in range(spills[0].partitions):
        theirs = spills[1].files(partition) if spills[1] is not None else []
        yield from _join_files(source, target, keep, (spills[0].files(partition), theirs), counts, 0)


def _join_files(
    source: Relation,
    target: Relation | None,
    keep: Keep,
    files: tuple[list[Path], list[Path]],
    counts: Counts,
    depth: int,
) -> Iterator[list[Pairing]]:
    size = sum(path.stat().st_size for side in files for path in side)
    if size > LARGE_BYTES and depth < DEEPEST:
        parts = min(256, size // (LARGE_BYTES // 2) + 1)
        spills = tuple(_part_again(paths, depth + 1, parts, number) for number, paths in enumerate(files))
        for partition in range(parts):
            yield from _join_files(
                source, target, keep, (spills[0].files(partition), spills[1].files(partition)), counts, depth + 1
            )
        return
    ours = Side.of(source).take(read_records(files[0]))
    theirs = Side.of(target).take(read_records(files[1])) if target is not None else None
    for side in files:
        for path in side:
            path.unlink()
    batch: list[Pairing] = []
    for pairing in pairings(source, target, keep, ours, theirs, counts):
        batch.append(pairing)
        if len(batch) >= BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _part_again(paths: list[Path], depth: int, parts: int, number: int) -> Spill:
    folder = paths[0].parent / f"again-{depth}-{paths[0].name}-{number}" if paths else None
    if folder is None:
        return _Nothing()
    spill = Spill(folder, parts, salt=depth)
    writer = spill.writer("0")
    for record in read_records(paths):
        writer.add(*record)
    writer.flush()
    for path in paths:
        path.unlink()
    return spill


class _Nothing(Spill):
    """A side without rows."""

    def __init__(self) -> None:
        self.partitions = 0

    def files(self, partition: int) -> list[Path]:
        del partition
        return []


def pairings(
    source: Relation, target: Relation | None, keep: Keep, ours: Side, theirs: Side | None, counts: Counts
) -> Iterator[Pairing]:
    """Yield the keys that do not agree, by the rules of ``Keep``."""
    counts.rows_source += ours.rows
    counts.keys_source += len(ours.keys)
    if theirs is None or target is None:
        for key, held in ours.keys.items():
            if keep.all or (keep.repeated and held[0] > 1):  # type: ignore[operator]
                yield Pairing(texts(key), held_of(source, held), None)
            else:
                counts.matched += 1
        return
    counts.rows_target += theirs.rows
    counts.keys_target += len(theirs.keys)
    repeated = (keep.repeated and not ours.aggregate, keep.repeated and not theirs.aggregate)
    compared = ours.compared
    others = theirs.keys
    for key, held in ours.keys.items():
        other = others.pop(key, None)
        if other is None:
            if keep.missing_target or keep.all:
                yield Pairing(texts(key), held_of(source, held), None)
            continue
        alike = held[1][:compared] == other[1][:compared] and not held[2] and not other[2]  # type: ignore[index]
        twice = (repeated[0] and held[0] > 1) or (repeated[1] and other[0] > 1)  # type: ignore[operator]
        counts.matched += alike and not twice
        if (keep.unlike and not alike) or twice or keep.all:
            yield Pairing(texts(key), held_of(source, held), held_of(target, other))
    for key, other in others.items():
        if keep.missing_source or keep.all:
            yield Pairing(texts(key), None, held_of(target, other))


def texts(values: Bytes) -> Texts:
    """Return values as text."""
    return tuple(None if value is None else value.decode("utf-8", "surrogateescape") for value in values)


def held_of(relation: Relation, held: Sequence[object]) -> Held:
    """Return what a side holds for a key."""
    count, values, unlike, mixed, reads = held
    shards = sorted({shard_of(relation, number) for number in reads} - {""})  # type: ignore[attr-defined]
    return Held(count, texts(values), bool(unlike), tuple(shards), bool(mixed))  # type: ignore[arg-type]


def shard_of(relation: Relation, number: int) -> str:
    """Return the shard of a read, empty for none."""
    read = relation.reads[number]
    return getattr(read, "shard", "") or getattr(getattr(read, "part", None), "shard", "")


_shard = shard_of
