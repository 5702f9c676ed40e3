"""Messages in files as a carrier: JSON lines, open-protocol batches, the folder of TiCDC's storage sink.

JSON lines hold one message value a line. An open-protocol file holds the version (8 bytes), then key and value of each
event in turn, each after its length. The storage sink (docs.pingcap.com/tidb/stable/ticdc-sink-to-cloud-storage)
writes canal-json lines into ``database/table/version/[partition/][date/]CDC000001.json``, the statements into schema
files beside them, and into ``metadata`` the timestamp below which all of it is complete.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeAlias

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
from migverify.changes.carriers.file_marks import FileMarks
from migverify.changes.carriers.recognition import OPEN_PROTOCOL_HEAD, recognized
from migverify.changes.model import Position
from migverify.errors import ChangeError, PurgedError

LONGEST = 256 * 1024 * 1024
"""Most bytes of one message: beyond, the file is damaged or something else."""

_LENGTH = 8
_READ = 1 << 20
"""Bytes that are read of a file at once."""
_DATA_FILE = re.compile(r"CDC(\d+)\.json\Z")
_CREATE_TABLE = re.compile(r"\s*CREATE\s+TABLE\b", re.IGNORECASE)
_PARTITION_FILE = re.compile(r"(|.*[-_.])([0-9]{1,4})(\.[^0-9]*)\Z")
_SHOWN = 10
"""Names of missing files in a message."""
_SCHEMA_FILE = re.compile(r"schema_(\d+)_\d+\.json\Z")

HEARTBEAT_SECONDS = 1.0
_POLL_SECONDS = 0.1
_TURN = 20_000
"""Messages that are read of a file before the next one has its turn."""
_MOST_TRIES = 20
"""So often a folder may be found without a file that is being written."""


class AtEnd(Enum):
    """A file that is followed has no more at present. CUT: its last message is not whole yet."""

    WHOLE = "whole"
    CUT = "cut"


Parts: TypeAlias = tuple[bytes | None, bytes]
"""Key and value of a message."""
Split: TypeAlias = Callable[[Path, bool], Iterator[Parts | Reject | AtEnd]]
"""Cuts a file into its messages; their offsets count from 0. With True it goes on without end."""


class MessageFiles:
    """Messages of files, in the order given; see ``Carrier``.

    Parameters
    ----------
    paths
        The files. A message that is cut or cannot be decoded is a reject.
    parser
        The format of the messages.
    split
        How a file holds messages: ``json_lines`` or ``open_protocol_events``.
    marks
        Where it is kept what the files held: one that lost its end while nobody followed it is refused.
    """

    ends: Mapping[tuple[str, int], int] = {}

    def __init__(self, paths: Sequence[Path], parser: Parser, split: Split, marks: Path | None = None) -> None:
        self._paths = paths
        self._parser = parser
        self._split = split
        self._marks = marks
        self.partitions = {(str(path), 0) for path in paths}

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Return the file."""
        return topic, partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        """Return False: a file does not show that nothing was cut off its beginning."""
        del part, since, reaching
        return False

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield what the files hold; ChangeError when one cannot be read."""
        del since
        for path in self._paths:
            with _readable(path):
                for item in _parsed(self._parser, path, self._split(path, False)):
                    if not isinstance(item, AtEnd):
                        yield item

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Yield what the files hold, in turns, and what is appended to them.

        The whole files are read: nothing in them tells where a position is. All of them must exist.

        Raises
        ------
        ChangeError
            A file cannot be read, or became shorter or another one, or the numbers of the files have a gap.
        """
        del since
        _refuse_missing_partitions(self._paths)
        marks = None if self._marks is None else FileMarks(self._marks)
        try:
            if marks is not None:
                with _readable(self._paths[0]):
                    marks.open(self._paths)
            yield from self._growing(marks)
        finally:
            if marks is not None:
                marks.close()

    def _growing(self, marks: FileMarks | None) -> Iterator[CarriedItem | Heartbeat]:
        growing = [(path, _parsed(self._parser, path, self._split(path, True))) for path in self._paths]
        rhythm = _Rhythm()
        while True:
            quiet = True
            for path, items in growing:
                with _readable(path):
                    for item in islice(items, _TURN):
                        if isinstance(item, AtEnd):
                            break
                        quiet = False
                        yield item
            if marks is not None:
                with _readable(self._paths[0]):
                    marks.save()
            yield from rhythm.beats(quiet=quiet)


def _refuse_missing_partitions(paths: Sequence[Path]) -> None:
    """Refuse files that are numbered as partitions where one between them, or beside them on the disk, is not named.

    Its changes would be left out, and its watermarks not be waited for.
    """
    numbered: defaultdict[tuple[Path, str, str], dict[int, str]] = defaultdict(dict)
    for path in paths:
        if (name := _PARTITION_FILE.match(path.name)) is not None:
            numbered[path.parent, name[1], name[3]][int(name[2])] = name[2]
    for (folder, before, after), named in numbered.items():
        with _readable(folder):
            there = {
                int(name[2]): path.name for path in folder.iterdir()
                if (name := _PARTITION_FILE.match(path.name)) and (name[1], name[3]) == (before, after)
            }  # fmt: skip
        digits = len(next(iter(named.values())))
        between = range(min(named), max(named))
        missing = sorted({*between, *there} - named.keys())
        if missing:
            names = ", ".join(there.get(number, f"{before}{number:0{digits}d}{after}") for number in missing[:_SHOWN])
            more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
            raise ChangeError(
                f"{folder}: partition files are missing: {names}{more}; named are {len(named)} of "
                f"{before}<number>{after}",
                hint="Name every partition file of the changefeed (reverse.carrier.files, --file); files that are none "
                "of its partitions belong into another folder.",
            )


def _parsed(parser: Parser, path: Path, messages: Iterator[Parts | Reject | AtEnd]) -> Iterator[CarriedItem | AtEnd]:
    """Yield what the messages of a file hold."""
    topic, number = str(path), 0
    row, items = parser.row, parser.items
    for message in messages:
        if type(message) is not tuple:
            yield message  # type: ignore[misc]
            continue
        key, value = message
        found = row(key, value, topic, 0, number)
        if found is not None:
            yield found
        else:
            yield from items(key, value, topic, 0, number)
        number += 1


class _Rhythm:
    """Gives a heartbeat every second, and waits where nothing came."""

    def __init__(self) -> None:
        self._beat = 0.0

    def beats(self, *, quiet: bool) -> Iterator[Heartbeat]:
        """Yield the heartbeat that is due, if any."""
        if quiet:
            time.sleep(_POLL_SECONDS)
        if time.monotonic() - self._beat >= HEARTBEAT_SECONDS:
            self._beat = time.monotonic()
            yield Heartbeat()


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ChangeError(f"cannot read {path}: {error.strerror}") from error


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
        rhythm, growing, statements = _Rhythm(), _GrowingFiles(self._parser), set[Path]()
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
        self._open: dict[Path, Iterator[CarriedItem | AtEnd]] = {}
        self._cut: set[Path] = set()
        self.done: dict[Path, int] = {}

    @property
    def is_cut(self) -> bool:
        """Whether the last message of a file is not whole yet."""
        return bool(self._cut)

    def read(self, path: Path) -> Iterator[CarriedItem]:
        """Yield what a file holds that was not given before."""
        if _number(path) <= self.done.get(path.parent, 0):
            return
        if path not in self._open:
            self._open[path] = _parsed(self._parser, path, json_lines(path, True))
        with _readable(path):
            for item in self._open[path]:
                if isinstance(item, AtEnd):
                    (self._cut.add if item is AtEnd.CUT else self._cut.discard)(path)
                    return
                yield item

    def close(self, files: Iterable[Path]) -> None:
        """Finish the files that are whole and have another one behind them."""
        last: dict[Path, int] = {}
        for path in files:
            if path in self._open:
                last[path.parent] = max(_number(path), last.get(path.parent, 0))
        for path in [one for one in self._open if _number(one) < last.get(one.parent, 0) and one not in self._cut]:
            del self._open[path]
            self.done[path.parent] = max(_number(path), self.done.get(path.parent, 0))


def json_lines(path: Path, following: bool) -> Iterator[Parts | Reject | AtEnd]:
    r"""Yield each line that is not empty as a message; lines end in ``\n`` or ``\r\n``."""
    topic, number, rest = str(path), 0, b""
    with path.open("rb") as file:
        while True:
            # As much as there is: a long line is not put together again and again.
            more = file.read(min(max(_READ, len(rest)), LONGEST + 1 - len(rest)))
            if not more and not following:
                if stripped := rest.strip():
                    yield None, stripped
                return
            *lines, rest = (rest + more).split(b"\n")
            if not more and _is_whole(rest):
                lines, rest = [rest], b""
            for line in lines:
                if stripped := line.strip():
                    yield None, stripped
                    number += 1
            if len(rest) > LONGEST:
                yield Reject(f"a line of more than {LONGEST} bytes", MessagePosition(topic, 0, number), None, None)
                return
            if not more and not lines:
                _refuse_another(path, file)
                yield AtEnd.CUT if rest.strip() else AtEnd.WHOLE


def _is_whole(line: bytes) -> bool:
    """Whether a line without its end is a JSON object: no beginning of one is one itself."""
    if not line.rstrip().endswith(b"}"):
        return False
    try:
        return isinstance(exact_json.load(line), dict)
    except UndecodableError:
        return False


def open_protocol_events(path: Path, following: bool) -> Iterator[Parts | Reject | AtEnd]:
    """Yield each event of an open-protocol file as a message of one event; a cut end is a reject, or waited for."""
    topic, number = str(path), 0
    with path.open("rb") as file:
        while len(head := file.read(_LENGTH)) < _LENGTH and following and OPEN_PROTOCOL_HEAD.startswith(head):
            file.seek(0)
            _refuse_another(path, file)
            yield AtEnd.CUT if head else AtEnd.WHOLE
        if head != OPEN_PROTOCOL_HEAD:
            seen = recognized(None, head + file.readline(LONGEST))
            reason = "the file does not begin with version 1 of the open protocol"
            yield Reject(reason, MessagePosition(topic, 0, 0), None, head, looks_like=seen)
            return
        while True:
            start = file.tell() if following else 0
            event = _read_event(file)
            if len(event) == 2:
                yield head + event[0], event[1]
                number += 1
            elif not following or any(len(part) >= _LENGTH and _size(part) > LONGEST for part in event):
                if event:
                    place = MessagePosition(topic, 0, number)
                    yield Reject("the file is cut inside an event", place, None, b"".join(event))
                return
            else:
                file.seek(start)
                _refuse_another(path, file)
                yield AtEnd.CUT if event else AtEnd.WHOLE


def _read_event(file: BinaryIO) -> tuple[bytes, ...]:
    """Return key and value of the next event, each after its length; where the file is cut, all that is left in one."""
    parts: list[bytes] = []
    for _ in range(2):
        prefix = file.read(_LENGTH)
        count = _size(prefix)
        body = file.read(count) if len(prefix) == _LENGTH and count <= LONGEST else b""
        if len(prefix) < _LENGTH or len(body) < count:
            left = b"".join((*parts, prefix, body))
            return (left,) if left else ()
        parts.append(prefix + body)
    return tuple(parts)


def _size(prefix: bytes) -> int:
    return int.from_bytes(prefix[:_LENGTH], "big")


def _refuse_another(path: Path, file: BinaryIO) -> None:
    """Refuse a file that became shorter, or another one under its name: what came between would not be read."""
    now, opened = path.stat(), os.fstat(file.fileno())
    if (now.st_dev, now.st_ino) != (opened.st_dev, opened.st_ino) or opened.st_size < file.tell():
        raise ChangeError(f"{path} became shorter or was replaced while it was read.", hint="Append to one file.")


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
