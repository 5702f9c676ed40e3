"""The second pass over parts of files: rows go to the share of sessions they belong to, and shares become Parquet.

A share is a stretch of the order of all sessions by server and connection id, so the files of the shares, one behind
the other, hold what one process would have written.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from migverify.errors import ReadError
from migverify.spark.capture_follow import Counts, Follower
from migverify.spark.capture_mask import write_sessions
from migverify.spark.capture_parts import Read, SessionKey, ended
from migverify.spark.capture_rows import TEXTS, Names, Rows, batch_of, joined, rows_in
from migverify.spark.capture_runs import RUN_BYTES, Runs
from migverify.spark.capture_sources import open_source
from migverify.spark.capture_times import Times, check
from migverify.spark.statements import StatementFiles
from migverify.workload.capture import (
    EVENTS,
    CaptureSummary,
    FileCount,
    add_up,
    compressed,
    reject,
    unaccounted,
)
from migverify.workload.lines import BLOCK
from migverify.workload.mask import mask_text
from migverify.workload.model import Noise, Rejected

PACKET_BYTES = 1 << 20
HELD_BYTES = 32 << 20
"""Rows of a part that wait to be sent."""
_NAMES = b"names"


@dataclass(slots=True)
class Account:
    """What became of the bytes of a part: its share of its file's figures."""

    rank: int
    nth: int
    begin: int
    count: FileCount
    untimed: int = 0
    noise: Counter[str] = field(default_factory=Counter)
    rejects: list[Rejected] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Gathering:
    """How shares become files. ``connects``: servers that log connects; ``telling``: all do."""

    connects: frozenset[str]
    telling: bool
    masked: bool = False
    run_bytes: int = RUN_BYTES

    def tells(self, server: str) -> bool:
        """Tell whether a server's capture tells connects."""
        return self.telling or server in self.connects


def read_part(
    read: Read, cuts: Sequence[SessionKey], account: Account, block: int = BLOCK
) -> Iterator[tuple[int, bytes]]:
    """Yield the rows of a part in packets, each with the number of its share; the account is filled in.

    Raises
    ------
    ReadError
        bytes are unaccounted for, or the file has changed since the first pass.
    """
    part, entry, names = read.part, read.entry, Names()
    size = part.one.path.stat().st_size
    times = Times(account.count, entry.last, entry.newest)
    held: dict[int, list[Rows]] = {}
    waiting = 0
    place = entry.begin
    with open_source(part.one, part.rank, names, entry, part.stop, block, read.told) as source:
        for batch in source.batches():
            check(part.one, place, batch)
            place = batch.end
            for piece in batch.others:
                if isinstance(piece, Noise):
                    account.count.noise_bytes += piece.origin.length
                    account.noise[piece.what] += 1
                else:
                    account.rejects.append(piece)
            if not len(batch.rows):
                continue
            account.untimed += times.take(batch.rows.columns["time"])
            account.count.records += len(batch.rows)
            for share, rows in _shares(batch.rows, names, cuts):
                held.setdefault(share, []).append(rows)
                waiting += rows.bytes
            if waiting >= HELD_BYTES:
                yield from _packets(held, names)
                held, waiting = {}, 0
    yield from _packets(held, names)
    ended(read, place)
    if part.stop is None and place < size and not compressed(part.one.path):
        raise unaccounted(part.one, place, size)
    account.count.bytes = place - entry.begin


def _shares(rows: Rows, names: Names, cuts: Sequence[SessionKey]) -> Iterator[tuple[int, Rows]]:
    if not cuts:
        yield 0, rows
        return
    server, session = rows.columns["server"], rows.columns["session"]
    found = np.empty(len(rows), np.int64)
    for place in np.unique(server).tolist():
        here = server == place
        numbers, back = np.unique(session[here], return_inverse=True)
        of_each = [bisect_right(cuts, (names.texts[place], number)) for number in numbers.tolist()]
        found[here] = np.array(of_each)[back]
    for share in np.unique(found).tolist():
        yield share, rows.take(np.flatnonzero(found == share))


def _packets(held: dict[int, list[Rows]], names: Names) -> Iterator[tuple[int, bytes]]:
    for share, parts in sorted(held.items()):
        rows = joined(parts)
        each = max(1, len(rows) * PACKET_BYTES // max(1, rows.bytes))
        for start in range(0, len(rows), each):
            yield share, pack(rows.part(start, min(len(rows), start + each)), names)


def pack(rows: Rows, names: Names) -> bytes:
    """Return rows as bytes that tell their names too."""
    used = np.unique(np.concatenate([np.unique(rows.columns[name]) for name in TEXTS]))
    texts = {place: names.texts[place] for place in used.tolist() if place >= 0}
    batch = batch_of(rows).replace_schema_metadata({_NAMES: json.dumps(texts).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def unpack(data: bytes | memoryview, names: Names) -> Rows:
    """Return the rows of ``pack``, with their texts in another list of names."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        texts = {int(place): names.place(text) for place, text in json.loads(reader.schema.metadata[_NAMES]).items()}
        rows = rows_in(reader.read_next_batch())
    places = np.full(max(texts, default=-1) + 2, -1, np.int32)  # the last serves -1
    for place, own in texts.items():
        places[place] = own
    for name in TEXTS:
        rows.columns[name] = places[rows.columns[name]]
    return rows


def gather(packets: Iterable[bytes | memoryview], gathering: Gathering, folder: Path) -> Counts:
    """Write the statements of a share into a folder, in the order of its sessions."""
    names = Names()
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(folder, names, gathering.run_bytes)
    for one in packets:
        runs.add(unpack(one, names))
    follower = Follower(names, gathering.tells, folder, mask_text if gathering.masked else None)
    write_sessions(runs, follower, folder, masked=gathering.masked, progress=lambda _written: None, empty=False)
    return follower.counts


def settle(accounts: Iterable[Account], summary: CaptureSummary, rejects: IO[str]) -> None:
    """Add up the accounts of parts, file by file in order, and note the rejects.

    Raises
    ------
    ReadError
        a part does not begin where the one before it ended.
    """
    for account in sorted(accounts, key=lambda one: (one.rank, one.nth)):
        part = account.count
        if account.rank == len(summary.files):
            summary.files.append(FileCount(part.file, part.format, part.server))
        count = summary.files[account.rank]
        if account.begin != count.bytes:
            raise ReadError(
                f"{part.file}: its parts account for bytes up to {count.bytes:,}, but go on at {account.begin:,}.",
                hint="This is a bug; no statement may vanish, so nothing was written.",
            )
        for piece in account.rejects:
            reject(piece, part, summary, rejects)
        add_up(summary, part)
        for name in ("bytes", "records", "rejected", "rejected_bytes", "noise_bytes", "disordered"):
            setattr(count, name, getattr(count, name) + getattr(part, name))
        count.disorder_s = max(count.disorder_s, part.disorder_s)
        for name, better in (("first", min), ("last", max)):
            told = [one for one in (getattr(count, name), getattr(part, name)) if one is not None]
            setattr(count, name, better(told) if told else None)
        summary.untimed += account.untimed
        summary.noise.update(account.noise)


def put_together(folder: Path, shares: Sequence[Path]) -> None:
    """Move the files of shares, in their order, into the folder of the capture."""
    for inner in ("", EVENTS):
        (folder / inner).mkdir(exist_ok=True)
        number = 0
        for share in shares:
            for path in sorted((share / inner).glob("statements-*.parquet")):
                path.rename(folder / inner / f"statements-{number:05d}.parquet")
                number += 1
        if not number:
            StatementFiles(folder / inner).close()
