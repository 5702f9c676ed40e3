"""Messages in files as a carrier: JSON lines, open-protocol batches, the folder of TiCDC's storage sink.

JSON lines hold one message value a line. An open-protocol file holds the version (8 bytes), then key and value of each
event in turn, each after its length. The storage sink (docs.pingcap.com/tidb/stable/ticdc-sink-to-cloud-storage)
writes canal-json lines into ``database/table/version/[partition/][date/]CDC000001.json``, the statements into schema
files beside them, and into ``metadata`` the timestamp below which all of it is complete.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import (
    CarriedItem,
    CarrierMessage,
    MessageHead,
    MessagePosition,
    Parser,
    Reject,
    UndecodableError,
    Watermark,
)
from migverify.changes.carriers.open_protocol import VERSION
from migverify.errors import ChangeError

LONGEST = 256 * 1024 * 1024
"""Most bytes of one message: beyond, the file is damaged or something else."""

_LENGTH = 8
_DATA_FILE = re.compile(r"CDC(\d+)\.json\Z")
_SCHEMA_FILE = re.compile(r"schema_(\d+)_\d+\.json\Z")

Split: TypeAlias = Callable[[Path], Iterator[CarrierMessage | Reject]]
"""Cuts a file into its messages; their offsets count from 0."""


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
    """

    ends: Mapping[tuple[str, int], int] = {}

    def __init__(self, paths: Sequence[Path], parser: Parser, split: Split) -> None:
        self._paths = paths
        self._parser = parser
        self._split = split

    def read(self) -> Iterator[CarriedItem]:
        """Yield what the files hold; ChangeError when one cannot be read."""
        for path in self._paths:
            try:
                for message in self._split(path):
                    yield from [message] if isinstance(message, Reject) else self._parser.parse(message)
            except OSError as error:
                raise ChangeError(f"cannot read {path}: {error.strerror}") from error


class StorageFolder:
    """What TiCDC's storage sink wrote into a folder; see ``Carrier``.

    Tables come one after the other, the versions of a table in their order. The timestamp of ``metadata`` is read
    first and given last, so that every change below it is among those given.
    """

    ends: Mapping[tuple[str, int], int] = {}

    def __init__(self, root: Path, parser: Parser) -> None:
        self._root = root
        self._parser = parser

    def read(self) -> Iterator[CarriedItem]:
        """Yield statements, changes and one watermark."""
        complete_to = self._complete_to()
        for folder in sorted(path for path in self._tables() if path.is_dir()):
            yield from self._table(folder)
        yield Watermark(complete_to, MessagePosition(str(self._root / "metadata"), 0, 0), everywhere=True)

    def _tables(self) -> Iterator[Path]:
        for database in sorted(path for path in self._root.iterdir() if path.is_dir()):
            yield database  # statements on the database itself
            yield from (path for path in database.iterdir() if path.name != "meta")

    def _complete_to(self) -> int:
        path = self._root / "metadata"
        try:
            return exact_json.integer(_object(path.read_bytes()).get("checkpoint-ts"), "checkpoint-ts")
        except (OSError, UndecodableError) as error:
            raise ChangeError(
                f"{path} gives no checkpoint: {error}", hint="Name the folder of the changefeed's sink URI."
            ) from error

    def _table(self, folder: Path) -> Iterator[CarriedItem]:
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
            yield from (self._statement(path) for path in paths if path not in data and _is_ddl(path))
            _refuse_missing(data)
            yield from MessageFiles(sorted(data), self._parser, json_lines).read()

    def _statement(self, path: Path) -> CarriedItem:
        place, raw = MessagePosition(str(path), 0, 0), path.read_bytes()
        try:
            body = _object(raw)
            commit = exact_json.integer(body.get("TableVersion"), "TableVersion")
            database, table = (exact_json.text(body.get(part), part) for part in ("Schema", "Table"))
            sql = exact_json.text(body.get("Query"), "Query")
        except UndecodableError as error:
            return Reject(str(error), place, None, raw)
        return MessageHead.of_commit(CarrierMessage(place, None, None), database, table, commit).statement(sql)


def json_lines(path: Path) -> Iterator[CarrierMessage | Reject]:
    r"""Yield each line that is not empty as a message; lines end in ``\n`` or ``\r\n``."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            place = MessagePosition(str(path), 0, number)
            if len(line) > LONGEST:
                yield Reject(f"a line of more than {LONGEST} bytes", place, None, None)
                return
            if stripped := line.strip():
                yield CarrierMessage(place, None, stripped)
                number += 1


def open_protocol_events(path: Path) -> Iterator[CarrierMessage | Reject]:
    """Yield each event of an open-protocol file as a message of one event; a cut end is a reject."""
    with path.open("rb") as file:
        head = file.read(_LENGTH)
        if int.from_bytes(head, "big") != VERSION or len(head) < _LENGTH:
            yield Reject(
                "the file does not begin with version 1 of the open protocol",
                MessagePosition(str(path), 0, 0),
                None,
                head,
            )
            return
        number = 0
        while prefix := file.read(_LENGTH):
            place = MessagePosition(str(path), 0, number)
            parts: list[bytes] = []
            for length in (prefix, None):
                size = file.read(_LENGTH) if length is None else length
                count = int.from_bytes(size, "big")
                body = file.read(count) if len(size) == _LENGTH and count <= LONGEST else b""
                if len(size) < _LENGTH or len(body) < count:
                    yield Reject("the file is cut inside an event", place, None, b"".join((*parts, size, body)))
                    return
                parts.append(size + body)
            yield CarrierMessage(place, head + parts[0], parts[1])
            number += 1


def _refuse_missing(paths: Sequence[Path]) -> None:
    """Files of a folder are numbered from 1 without a gap."""
    numbers: dict[Path, list[int]] = defaultdict(list)
    for path in paths:
        if match := _DATA_FILE.match(path.name):
            numbers[path.parent].append(int(match[1]))
    for folder, found in numbers.items():
        missing = list(islice(sorted(set(range(1, max(found) + 1)) - set(found)), 5))
        if missing:
            raise ChangeError(f"{folder} has no file number {', '.join(map(str, missing))}: the folder is not complete")


def _is_ddl(path: Path) -> bool:
    """Schema files without a statement only tell the columns, after a restart of the changefeed."""
    try:
        return bool(_object(path.read_bytes()).get("Query"))
    except UndecodableError:
        return True  # becomes a reject


def _object(raw: bytes) -> dict[str, exact_json.Json]:
    return exact_json.mapping(exact_json.load(raw), "the file")
