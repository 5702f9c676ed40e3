"""Archived binlogs into Parquet, each change exactly once.

The output has a folder for each binlog file, and in it one Parquet file for each range of it::

    binlog=binlog.000007/00000000000000000004-00000000000012345678.parquet

A Parquet file appears whole, under a name that says what it holds: the names are the record of what is done. The
ranges of a run are written down before it starts, so that a run after a kill repeats the same ranges, and a task of
the killed run that is still writing ends with the same file under the same name.

The folder of a binlog is the file with the commit; the column ``file`` is the file with the row image, which is
another one where XA prepared it earlier.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from migverify.changes.events import FIRST_OFFSET
from migverify.changes.files import FileRange, PreparedXa, file_ranges
from migverify.changes.manifest import Manifest, read_manifest
from migverify.changes.model import Position
from migverify.changes.source import read_range
from migverify.changes.storage import Storage
from migverify.errors import ChangeError

if TYPE_CHECKING:
    import pyarrow as pa

    from migverify.spark.engine import SparkEngine

STATE = "_migverify.json"
VERSION = 1
RUNNER = "migverify.spark.changes_output:write_range"
_BINLOG = "binlog="
_PIECE = re.compile(r"(.+)/(\d{20})-(\d{20})\.parquet")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What one run read, and up to where in each folder of the output."""

    ranges: int
    changes: int
    reached: Mapping[str, int]


@dataclass(frozen=True)
class ArchiveSource:
    """An archive of binlogs: ``tables`` are patterns of ``database.table``, ``since`` the file of a new output."""

    path: str
    tables: tuple[str, ...] = ()
    since: str = ""

    def manifest(self) -> Manifest:
        """Return the archive's manifest; ChangeError where there is no archive."""
        manifest = read_manifest(Storage(self.path))
        if not manifest.files:
            raise ChangeError(f"there is no archive at {Storage(self.path).url}.",
                              hint="Make one with `migverify changes archive --to DIR`.")  # fmt: skip
        return manifest

    def identity(self, known: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return what the output says of its source; ``known`` is what it says already, None for a new output."""
        files = self.manifest().files
        begin = known["since"]["file"] if known and not self.since else self.since or files[0].name
        since = asdict(Position(begin, FIRST_OFFSET))
        return {"server_uuid": files[0].server_uuid, "tables": list(self.tables), "since": since}

    def first(self, identity: Mapping[str, Any], folder: str) -> int:
        """Return the offset at which the output begins in a folder."""
        return int(identity["since"]["offset"]) if folder == f"{_BINLOG}{identity['since']['file']}" else FIRST_OFFSET

    def ranges(self, identity: Mapping[str, Any], reached: Mapping[str, int]) -> list[FileRange]:
        """Return what is there behind the offsets that the folders of the output have reached."""
        found: list[FileRange] = []
        for wanted in file_ranges(self.manifest(), Position(identity["since"]["file"], identity["since"]["offset"])):
            start = max(wanted.start, reached.get(folder_of(wanted), 0))
            if start < wanted.end:
                found.append(replace(wanted, start=start))
        return found

    def batches(self, wanted: FileRange) -> Iterator[pa.RecordBatch]:
        """Decode one range; what an executor does."""
        from migverify.spark.change_batches import TableFilter, batches

        return batches(read_range(Storage(self.path), wanted), TableFilter(self.tables))


# --- the driver ------------------------------------------------------------------------------------------------------


def read_changes(engine: SparkEngine, source: ArchiveSource, output: str) -> ReadResult:
    """Read what is new in a source into Parquet; every range is one task.

    Parameters
    ----------
    engine
        An engine with the runner :data:`RUNNER`.
    output
        Folder or fsspec URL that the driver and all executors reach; of one archive, with the same tables.

    Raises
    ------
    ChangeError
        Something is missing, damaged or cannot be read exactly, or the output is of another source. What other tasks
        wrote stays and is not read again.
    """
    target = Storage(output)
    with target.lock():
        state = _read_state(target)
        identity = source.identity(state)
        if state is not None:
            _refuse_other(target, state, identity)
        done = _done(target)
        begun = [_decode_range(part) for part in (state or {}).get("begun", ())]
        repeated = [wanted for wanted in begun if (wanted.start, wanted.end) not in done.get(folder_of(wanted), ())]
        reached = _reached(source, identity, done, repeated)
        ranges = [*repeated, *source.ranges(identity, reached)]
        _write_state(target, identity, ranges)
        changes = _run(engine, source, output, ranges)
        _write_state(target, identity, ())
        ends = {folder_of(wanted): wanted.end for wanted in ranges}
        return ReadResult(len(ranges), changes, reached | ends)


def _read_state(target: Storage) -> dict[str, Any] | None:
    data = target.read(STATE)
    if data is None:
        return None
    where = f"{target.url}/{STATE}"
    try:
        content: dict[str, Any] = json.loads(data)
        if content["version"] != VERSION:
            raise ChangeError(f"{where}: version {content['version']}, this program knows {VERSION}.",
                              hint="Use the migverify that wrote it.")  # fmt: skip
        for part in content["begun"]:
            _decode_range(part)
    except (ValueError, KeyError, TypeError) as error:
        raise ChangeError(f"{where}: damaged: {error}.", hint="Read into a new output folder.") from error
    return content


def _write_state(target: Storage, identity: Mapping[str, Any], begun: Sequence[FileRange]) -> None:
    content = {"version": VERSION, **identity, "begun": [asdict(wanted) for wanted in begun]}
    target.write(STATE, json.dumps(content, indent=1).encode())


def _refuse_other(target: Storage, state: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    for name, value in identity.items():
        if state.get(name) != value:
            raise ChangeError(
                f"{target.url} was begun with {name} {json.dumps(state.get(name))}, not {json.dumps(value)}.",
                hint="Use another output folder for another archive, for other tables, or to begin elsewhere.",
            )


def _decode_range(content: Mapping[str, Any]) -> FileRange:
    return FileRange(**{**content, "prepared": tuple(PreparedXa(**part) for part in content["prepared"])})


def folder_of(wanted: FileRange) -> str:
    """Name the folder of a range in the output."""
    return f"{_BINLOG}{wanted.file}"


def piece_name(wanted: FileRange) -> str:
    """Name the Parquet file of a range."""
    return f"{folder_of(wanted)}/{wanted.start:020d}-{wanted.end:020d}.parquet"


def _done(target: Storage) -> dict[str, list[tuple[int, int]]]:
    """Ranges that are written, by folder."""
    found: dict[str, list[tuple[int, int]]] = {}
    for name in target.tree():
        piece = _PIECE.fullmatch(name)
        if piece:
            found.setdefault(piece[1], []).append((int(piece[2]), int(piece[3])))
        elif name.endswith(".parquet"):
            raise ChangeError(f"{target.url}/{name} was not written by this job.", hint="Use an empty output folder.")
    return found


def _reached(
    source: ArchiveSource,
    identity: Mapping[str, Any],
    done: Mapping[str, list[tuple[int, int]]],
    repeated: Sequence[FileRange],
) -> dict[str, int]:
    """Offset up to which each folder is or will be written; refuses pieces that overlap or leave a hole."""
    pieces = {folder: list(written) for folder, written in done.items()}
    for wanted in repeated:
        pieces.setdefault(folder_of(wanted), []).append((wanted.start, wanted.end))
    reached = {}
    for folder, written in pieces.items():
        at = source.first(identity, folder)
        for start, end in sorted(written):
            if start != at:
                raise ChangeError(
                    f"{folder}: the output has changes up to offset {at}, then a piece from {start} on.",
                    hint="Two jobs wrote here, or a file was removed: read into a new output folder.",
                )
            at = end
        reached[folder] = at
    return reached


def _run(engine: SparkEngine, source: ArchiveSource, output: str, ranges: Sequence[FileRange]) -> int:
    given = {"source": asdict(source), "output": output}
    futures = [engine.submit(json.dumps(given | {"range": asdict(wanted)})) for wanted in ranges]
    try:
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        for future in futures:
            future.cancel()
    # The first error in the order of the stream is the one to show: what lies before it is certain.
    answers = [future.result() for future in futures if not future.cancelled()]
    return sum(map(int, answers))


# --- what an executor runs -------------------------------------------------------------------------------------------


def write_range(task: str, secrets: Mapping[str, str]) -> str:
    """Decode one range into its Parquet file and count its rows. Repeating it gives the same file."""
    import pyarrow.parquet as pq

    from migverify.spark.change_batches import SCHEMA

    del secrets
    given, rows = json.loads(task), 0
    wanted, source = _decode_range(given["range"]), ArchiveSource(**given["source"])
    name, target = piece_name(wanted), Storage(given["output"])
    with target.create(name) as file, pq.ParquetWriter(file, SCHEMA, compression="zstd") as writer:
        for batch in source.batches(wanted):
            writer.write_batch(batch)
            rows += batch.num_rows
    return str(rows)
