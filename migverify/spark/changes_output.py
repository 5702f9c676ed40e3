"""Archived changes into Parquet, each exactly once.

The output is a folder per binlog file and in it one Parquet file per range that was read::

    binlog=binlog.000007/00000000000000000004-00000000000012345678.parquet

The folder is the file with the commit; the column ``file`` is the file with the row image, which is another one where
XA prepared it earlier.

A Parquet file appears whole, under a name that says what it holds: the names are the record of what is done. The
ranges of a run are written down before it starts, so that a run after a kill repeats the same ranges, and a task of
the dead run that is still writing ends with the same file under the same name.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from migverify.changes.manifest import Manifest, read_manifest
from migverify.changes.model import Position
from migverify.changes.positions import FIRST_OFFSET
from migverify.changes.ranges import FileRange, Prepared, file_ranges, read_range
from migverify.changes.storage import Storage, open_storage
from migverify.errors import ChangeError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migverify.spark.engine import SparkEngine

LOG = logging.getLogger(__name__)

STATE = "_migverify.json"
VERSION = 1
RUNNER = "migverify.spark.changes_output:write_range"
_PIECE = re.compile(r"binlog=([^/]+)/(\d{20})-(\d{20})\.parquet")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one run read. ``since`` and ``until`` are the places between which it read."""

    ranges: int
    changes: int
    since: Position
    until: Position


@dataclass(frozen=True, slots=True)
class _State:
    """What the output folder says of itself: whose changes, which tables, from where, and the ranges begun."""

    server_uuid: str
    tables: tuple[str, ...]
    since: Position
    begun: tuple[FileRange, ...]


def read_changes(
    engine: SparkEngine, archive: str, output: str, *, tables: Sequence[str] = (), since: str = ""
) -> Reading:
    """Read what is new in an archive into Parquet; every range is one task.

    Parameters
    ----------
    engine
        An engine with the runner :data:`RUNNER`.
    archive, output
        Folders or fsspec URLs that the driver and all executors reach.
    tables
        Patterns of ``database.table``; the same for all runs into one output. None means every table.
    since
        Binlog file to begin with; counts for a new output only. Default: the archive's first.

    Raises
    ------
    ChangeError
        A file is missing, damaged or cannot be read exactly, or the output is of another archive. What other tasks
        wrote stays and is not read again.
    """
    source, target = open_storage(archive), open_storage(output)
    with target.lock():
        manifest = read_manifest(source)
        state = _state(target, manifest, tuple(tables), since, archive)
        done = _done(target)
        repeated = [one for one in state.begun if not _is_done(one, done)]
        reached = _reached(done, repeated, state.since)
        fresh = [one for one in file_ranges(manifest, state.since) if one.end > reached.get(one.file, 0)]
        fresh = [_from(one, reached.get(one.file, one.start)) for one in fresh]
        ranges = [*repeated, *fresh]
        _write_state(target, _State(state.server_uuid, state.tables, state.since, tuple(ranges)))
        changes = _run(engine, archive, output, ranges, state.tables)
        last = manifest.files[-1]
        first = ranges[0] if ranges else FileRange(last.name, last.whole, last.whole)
        return Reading(len(ranges), changes, Position(first.file, first.start), Position(last.name, last.whole))


def _state(target: Storage, manifest: Manifest, tables: tuple[str, ...], since: str, archive: str) -> _State:
    if not manifest.files:
        raise ChangeError(f"there is no archive at {open_storage(archive).url}.",
                          hint="Make one with `migverify changes archive --to DIR`.")  # fmt: skip
    uuid = manifest.files[0].server_uuid
    data = target.read(STATE)
    if data is None:
        return _State(uuid, tables, Position(since or manifest.files[0].name, FIRST_OFFSET), ())
    known = _decode_state(data, f"{target.url}/{STATE}")
    if (known.server_uuid, known.tables) != (uuid, tables):
        raise ChangeError(
            f"{target.url} holds changes of server {known.server_uuid or 'unknown'}, tables {known.tables or 'all'}.",
            hint="Use another output folder for another archive or other tables.",
        )
    if since and since != known.since.file:
        raise ChangeError(f"{target.url} begins with {known.since.file}, not {since}.",
                          hint="Use another output folder to begin elsewhere.")  # fmt: skip
    return known


def _decode_state(data: bytes, where: str) -> _State:
    try:
        content: dict[str, Any] = json.loads(data)
        if content["version"] != VERSION:
            raise ChangeError(f"{where}: version {content['version']}, this program knows {VERSION}.",
                              hint="Use the migverify that wrote it.")  # fmt: skip
        since = Position(content["since"]["file"], content["since"]["offset"])
        begun = tuple(_decode_range(one) for one in content["begun"])
        return _State(content["server_uuid"], tuple(content["tables"]), since, begun)
    except (ValueError, KeyError, TypeError) as error:
        raise ChangeError(f"{where}: damaged: {error}.", hint="Read into a new output folder.") from error


def _decode_range(content: Mapping[str, Any]) -> FileRange:
    prepared = tuple(Prepared(**one) for one in content["prepared"])
    return FileRange(content["file"], content["start"], content["end"], content["xa"], prepared)


def _write_state(target: Storage, state: _State) -> None:
    target.write(STATE, json.dumps({"version": VERSION, **asdict(state)}, indent=1).encode())


def piece_name(wanted: FileRange) -> str:
    """Name of the Parquet file of a range."""
    return f"binlog={wanted.file}/{wanted.start:020d}-{wanted.end:020d}.parquet"


def _done(target: Storage) -> dict[str, list[tuple[int, int]]]:
    """Ranges that are written, per file in order; those of one file follow each other without a gap."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name in target.tree():
        piece = _PIECE.fullmatch(name)
        if piece:
            found.setdefault(piece[1], []).append((int(piece[2]), int(piece[3])))
        elif name.endswith(".parquet"):
            raise ChangeError(f"{target.url}/{name} was not written by this job.", hint="Use an empty output folder.")
    return found


def _is_done(wanted: FileRange, done: Mapping[str, list[tuple[int, int]]]) -> bool:
    return (wanted.start, wanted.end) in done.get(wanted.file, ())


def _reached(
    done: Mapping[str, list[tuple[int, int]]], repeated: Sequence[FileRange], since: Position
) -> dict[str, int]:
    """Offset up to which each file is or will be written; refuses pieces that overlap or leave a hole."""
    pieces: dict[str, list[tuple[int, int]]] = {file: list(found) for file, found in done.items()}
    for one in repeated:
        pieces.setdefault(one.file, []).append((one.start, one.end))
    reached = {}
    for file, found in pieces.items():
        at = since.offset if file == since.file else FIRST_OFFSET
        for start, end in sorted(found):
            if start != at:
                raise ChangeError(
                    f"binlog={file}: the output has changes up to offset {at}, then a piece from {start} on.",
                    hint="Two jobs wrote here, or a file was removed: read into a new output folder.",
                )
            at = end
        reached[file] = at
    return reached


def _from(wanted: FileRange, start: int) -> FileRange:
    return FileRange(wanted.file, max(start, wanted.start), wanted.end, wanted.xa, wanted.prepared)


def _run(engine: SparkEngine, archive: str, output: str, ranges: Sequence[FileRange], tables: Sequence[str]) -> int:
    tasks = [
        json.dumps({"archive": archive, "output": output, "range": asdict(one), "tables": list(tables)})
        for one in ranges
    ]  # fmt: skip
    futures = [engine.submit(task) for task in tasks]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        for future in futures:
            future.cancel()
    # The first error in the order of the stream is the one to show: what lies before it is certain.
    return sum(json.loads(future.result())["changes"] for future in futures if not future.cancelled())


def write_range(task: str, secrets: Mapping[str, str]) -> str:
    """Decode one range into its Parquet file; what an executor runs. Repeating it gives the same file."""
    del secrets
    import pyarrow.parquet as pq

    from migverify.spark.change_batches import SCHEMA, TableFilter, batches

    given = json.loads(task)
    wanted = _decode_range(given["range"])
    changes = 0
    items = read_range(open_storage(given["archive"]), wanted)
    with (
        open_storage(given["output"]).create(piece_name(wanted)) as file,
        pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer,
    ):
        for batch in batches(items, TableFilter(given["tables"])):
            writer.write_batch(batch)
            changes += batch.num_rows
    return json.dumps({"changes": changes})
