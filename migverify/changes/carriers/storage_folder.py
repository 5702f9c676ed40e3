"""The folder of TiCDC's storage sink as a carrier (docs.pingcap.com/tidb/stable/ticdc-sink-to-cloud-storage).

The sink writes canal-json lines into ``database/table/version/[partition/][date/]CDC000001.json``, the statements into
schema files beside them, and into ``metadata`` the timestamp below which all of it is complete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import (
    CarriedItem,
    CarrierMessage,
    Heartbeat,
    MessageHead,
    MessagePosition,
    Parser,
    Reject,
    UndecodableError,
    Watermark,
)
from migverify.changes.carriers.files import (
    LONGEST,
    AtEnd,
    FilePlace,
    MessageFiles,
    Rhythm,
    json_lines,
    parsed,
    readable,
)
from migverify.changes.model import Position
from migverify.errors import ChangeError, PurgedError

_DATA_FILE = re.compile(r"CDC(\d+)\.json\Z")
_CREATE_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_SCHEMA_FILE = re.compile(r"schema_(\d+)_\d+\.json\Z")
_MOST_TRIES = 20
"""So often a folder may be found without a file that is being written."""


class StorageFolder:
    """What TiCDC's storage sink wrote into a folder; see ``Carrier``.

    Tables come one after the other, the versions of a table in their order. The timestamp of ``metadata`` is read
    first and given last, so that every change below it is among those given.
    """

    ends: Mapping[tuple[str, int], int] = {}
    partitions: Set[tuple[str, int]] = frozenset()

    def __init__(self, root: Path, parser: Parser) -> None:
        self._root = root
        self._parser = parser

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Return the folder of a data file's table; None for a schema file, which is kept longer than the data.

        Numbers begin anew in the folder of each day, so they do not show that a day was deleted.
        """
        path = Path(topic)
        if not _DATA_FILE.match(path.name):
            return None
        return str(self._root.joinpath(*path.relative_to(self._root).parts[:2])), partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        """Whether a table was made after a position, and its first file is there.

        Its schema files hold the CREATE TABLE and nothing older, and its data files are numbered through from 1 in each
        version: in folders of days the numbers begin anew, and do not show that a day was deleted.
        """
        folder = Path(part[0])
        data = [path.relative_to(folder).parts for path in folder.rglob("CDC*.json")]
        if not reaching or any(len(parts) != 2 for parts in data):  # else in folders of days, or of partitions
            return False
        schemas = [_Schema.of(path) for path in (folder / "meta").glob("schema_*.json")]
        first = min((schema.version for schema in schemas), default=0)
        if first <= since.offset or _Schema(first, creates=True) not in schemas:
            return False
        return min((parts[0] for parts in data), key=int) == str(first)

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield statements, changes and one watermark."""
        del since
        complete_to = self._complete_to()
        for path in self._files():
            if _DATA_FILE.match(path.name):
                yield from MessageFiles([path], self._parser, json_lines).read()
            else:
                yield from self._statement(path)
        yield self._watermark(complete_to)

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Yield what the folder holds and what is added to it.

        The watermark waits while the last line of a file is not whole, or a file is missing that a later one follows.

        Raises
        ------
        PurgedError
            A file is missing before one that is there.
        ChangeError
            A file cannot be read.
        """
        del since
        rhythm, growing, statements = Rhythm(), _GrowingFiles(self._parser), set[Path]()
        tries = 0
        while True:
            quiet = True
            try:
                complete_to = self._complete_to()
                files = list(self._files(growing.done))
                tries = 0
            except ChangeError:  # a listing that is made while files are written may show the later one only
                tries += 1
                if tries > _MOST_TRIES:
                    raise
                yield from rhythm.beats(quiet=True)
                continue
            for path in files:
                is_statement = not _DATA_FILE.match(path.name)
                if is_statement and path in statements:
                    continue
                if is_statement:
                    statements.add(path)
                for item in self._statement(path) if is_statement else growing.read(path):
                    quiet = False
                    yield item
            growing.close(files)
            if not growing.is_cut:
                yield self._watermark(complete_to)
            yield from rhythm.beats(quiet=quiet)

    def _watermark(self, complete_to: int) -> Watermark:
        return Watermark(complete_to, MessagePosition(str(self._root / "metadata"), 0, 0), everywhere=True)

    def _complete_to(self) -> int:
        path = self._root / "metadata"
        try:
            return exact_json.timestamp(_object(path.read_bytes()).get("checkpoint-ts"), "checkpoint-ts")
        except (OSError, UndecodableError) as error:
            raise ChangeError(
                f"{path} gives no checkpoint: {error}", hint="Name the folder of the changefeed's sink URI."
            ) from error

    def _files(self, done: Mapping[Path, int] | None = None) -> Iterator[Path]:
        """Yield schema files and data files in their order; ``done`` has the numbers up to which folders were read."""
        for folder in sorted(path for path in self._tables() if path.is_dir()):
            versions: dict[int, list[Path]] = defaultdict(list)
            for path in (folder / "meta").glob("schema_*.json"):
                if match := _SCHEMA_FILE.match(path.name):
                    versions[int(match[1])].append(path)
            is_table = folder.parent != self._root
            for path in folder.rglob("CDC*.json") if is_table else ():
                version = path.relative_to(folder).parts[0]
                if not version.isdigit():
                    raise ChangeError(f"{path} lies in no table version", hint="Name the folder of the sink URI.")
                versions[int(version)].append(path)
            for _, paths in sorted(versions.items()):
                data = [path for path in paths if _DATA_FILE.match(path.name)]
                yield from (path for path in paths if path not in data)
                _refuse_missing(data, done or {})
                yield from sorted(data)

    def _tables(self) -> Iterator[Path]:
        for database in sorted(path for path in self._root.iterdir() if path.is_dir()):
            yield database  # statements on the database itself
            yield from (path for path in database.iterdir() if path.name != "meta")

    def _statement(self, path: Path) -> Iterator[CarriedItem]:
        """Yield the statement of a schema file.

        Files without one only tell the columns, after a restart of the changefeed.
        """
        place, raw = MessagePosition(str(path), 0, 0), path.read_bytes()
        try:
            body = _object(raw)
            if not body.get("Query"):
                return
            commit = exact_json.timestamp(body.get("TableVersion"), "TableVersion")
            database, table = (exact_json.text(body.get(part), part) for part in ("Schema", "Table"))
            sql = exact_json.text(body.get("Query"), "Query")
        except UndecodableError as error:
            yield Reject(str(error), place, None, raw)
            return
        yield MessageHead.of_commit(CarrierMessage(place, None, None), database, table, commit).statement(sql)


class _Schema(NamedTuple):
    """What a schema file says: the version of its table, and whether its statement made the table then."""

    version: int
    creates: bool

    @classmethod
    def of(cls, path: Path) -> _Schema:
        """Read a file; one that cannot be read is older than anything."""
        try:
            body = _object(path.read_bytes())
            version = exact_json.timestamp(body.get("TableVersion"), "TableVersion")
            return cls(version, bool(_CREATE_TABLE.match(exact_json.text(body.get("Query") or "", "Query"))))
        except (OSError, UndecodableError):
            return cls(-1, creates=False)


class _GrowingFiles:
    """The data files of a folder that may still grow.

    ``done`` has for each folder the number of the last file that is finished: one behind it was begun.
    """

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._open: dict[Path, Iterator[CarriedItem | AtEnd | FilePlace]] = {}
        self._cut: set[Path] = set()
        self.done: dict[Path, int] = {}

    @property
    def is_cut(self) -> bool:
        """Whether the last message of a file is not whole yet."""
        return bool(self._cut)

    def read(self, path: Path) -> Iterator[CarriedItem]:
        """Yield what a file holds that was not given before; ChangeError where it cannot be read to its end."""
        if _number(path) <= self.done.get(path.parent, 0):
            return
        if path not in self._open:
            self._open[path] = parsed(self._parser, path, json_lines(path, True))
        with readable(path):
            for item in self._open[path]:
                if isinstance(item, AtEnd):
                    (self._cut.add if item is AtEnd.CUT else self._cut.discard)(path)
                    return
                if not isinstance(item, FilePlace):
                    yield item
        # The timestamp of ``metadata`` would promise what lies behind.
        raise ChangeError(f"{path} cannot be read behind a line of more than {LONGEST} bytes")

    def close(self, files: Iterable[Path]) -> None:
        """Finish the files that are whole and have another one behind them."""
        last: dict[Path, int] = {}
        for path in files:
            if path in self._open:
                last[path.parent] = max(_number(path), last.get(path.parent, 0))
        for path in [one for one in self._open if _number(one) < last.get(one.parent, 0) and one not in self._cut]:
            del self._open[path]
            self.done[path.parent] = max(_number(path), self.done.get(path.parent, 0))


def _refuse_missing(paths: Sequence[Path], done: Mapping[Path, int]) -> None:
    """Files of a folder are numbered from 1 without a gap; those up to the number in ``done`` were read."""
    numbers: dict[Path, list[int]] = defaultdict(list)
    for path in paths:
        numbers[path.parent].append(_number(path))
    for folder, found in numbers.items():
        first = done.get(folder, 0) + 1
        missing = list(islice(sorted(set(range(first, max(found) + 1)) - set(found)), 5))
        if missing:
            raise PurgedError(
                f"{folder} has no file number {', '.join(map(str, missing))}: the folder is not complete",
                hint="The sink's files were deleted: verify the tables anew, and keep files longer.",
            )


def _number(path: Path) -> int:
    match = _DATA_FILE.match(path.name)
    return int(match[1]) if match else 0


def _object(raw: bytes) -> dict[str, exact_json.Json]:
    return exact_json.mapping(exact_json.load(raw), "the file")
