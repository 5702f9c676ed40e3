"""Messages in files as a carrier: JSON lines, open-protocol batches.

JSON lines hold one message value a line. An open-protocol file holds the version (8 bytes), then key and value of each
event in turn, each after its length.
"""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TypeAlias

from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import (
    Carried,
    CarriedItem,
    CarriedRow,
    Heartbeat,
    MessagePosition,
    Parser,
    Reject,
    UndecodableError,
    Watermark,
)
from migverify.changes.carriers.file_marks import FileMarks, Restart
from migverify.changes.carriers.recognition import OPEN_PROTOCOL_HEAD, recognized
from migverify.changes.model import Position
from migverify.errors import ChangeError

LONGEST = 256 * 1024 * 1024
"""Most bytes of one message: beyond, the file is damaged or something else."""

_LENGTH = 8
_READ = 1 << 20
"""Bytes that are read of a file at once."""
_PARTITION_FILE = re.compile(r"(|.*[-_.])([0-9]{1,4})(\.[^0-9]*)\Z")
_SHOWN = 10
"""Names of missing files in a message."""

HEARTBEAT_SECONDS = 1.0
_POLL_SECONDS = 0.1
_TURN = 20_000
"""Messages that are read of a file before the next one has its turn."""


class AtEnd(Enum):
    """A file that is followed has no more at present. CUT: its last message is not whole yet."""

    WHOLE = "whole"
    CUT = "cut"


Parts: TypeAlias = tuple[bytes | None, bytes]
"""Key and value of a message."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where a message begins in a file that is followed: the byte, and the messages before it."""

    byte: int = 0
    number: int = 0


BEGINNING = FilePlace()


Split: TypeAlias = Callable[[Path, bool, FilePlace], Iterator[Parts | Reject | AtEnd | FilePlace]]
"""Cuts a file into its messages from a place on. With True it goes on without end, and says places now and then."""


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
            with readable(path):
                for item in parsed(self._parser, path, self._split(path, False, BEGINNING)):
                    if not isinstance(item, AtEnd | FilePlace):
                        yield item

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Yield what the files hold, in turns, and what is appended to them.

        A file without marks is read whole: nothing in it tells where a position is; else from the last place that has
        all that is behind the position after it. All files must exist.

        Raises
        ------
        ChangeError
            A file cannot be read, or became shorter or another one, or the numbers of the files have a gap.
        """
        _refuse_missing_partitions(self._paths)
        marks = None if self._marks is None else FileMarks(self._marks)
        try:
            if marks is not None:
                with readable(self._paths[0]):
                    marks.open(self._paths)
            yield from self._growing(marks, since.offset if since is not None else 0)
        finally:
            if marks is not None:
                marks.close()

    def _growing(self, marks: FileMarks | None, since: int) -> Iterator[CarriedItem | Heartbeat]:
        growing = [self._open(path, None if marks is None else marks.restart(path, since)) for path in self._paths]
        # What was promised before the places where reading begins, by which the files reach back to the position.
        yield from (mark for file in growing if (mark := file.promise()) is not None)
        rhythm = Rhythm()
        while True:
            quiet = True
            for file in growing:
                with readable(file.path):
                    for item in islice(file.items, _TURN):
                        kind = type(item)
                        if kind is AtEnd:
                            break
                        if kind is FilePlace:
                            if marks is not None and not file.is_void:
                                marks.note(file.path, file.restart(item, since))  # type: ignore[arg-type]
                            continue
                        quiet = False
                        if kind is CarriedRow:
                            if item[0] > file.highest:  # type: ignore[index]
                                file.highest = item[0]  # type: ignore[index]
                        else:
                            file.see(item)  # type: ignore[arg-type]
                        yield item  # type: ignore[misc]
            if marks is not None:
                with readable(self._paths[0]):
                    marks.save()
            yield from rhythm.beats(quiet=quiet)

    def _open(self, path: Path, restart: Restart | None) -> _Growing:
        place = BEGINNING if restart is None else FilePlace(restart.byte, restart.number)
        items = parsed(self._parser, path, self._split(path, True, place), place.number)
        if restart is None:
            return _Growing(path, items, place)
        return _Growing(path, items, place, restart.highest, restart.promised)


@dataclass(slots=True)
class _Growing:
    """A file that is followed, and what its messages have said so far."""

    path: Path
    items: Iterator[CarriedItem | AtEnd | FilePlace]
    begun: FilePlace
    highest: int = 0
    """The highest commit timestamp of a change."""
    promised: int = 0
    """The highest watermark."""
    is_void: bool = False
    """Whether no higher watermark came behind a message without its change."""
    had_voids: bool = False
    """Whether there was such a message since reading began."""

    def promise(self) -> Watermark | None:
        """Return the watermark that was given before the place where reading began."""
        if not self.promised:
            return None
        return Watermark(self.promised, MessagePosition(str(self.path), 0, self.begun.number))

    def see(self, item: CarriedItem) -> None:
        """Take what is no row that is not decoded."""
        if isinstance(item, Watermark):
            self.is_void = self.is_void and item.complete_to <= self.promised
            self.promised = max(self.promised, item.complete_to)
        elif isinstance(item, Reject):
            self.is_void = self.had_voids = True
        elif isinstance(item, Carried) and item.order is not None:
            self.highest = max(self.highest, item.order.position.offset)

    def restart(self, place: FilePlace, since: int) -> Restart:
        """Return a place in the file with what lies before it; ``since`` is the position where reading began."""
        behind = since if self.had_voids else 0
        return Restart(place.byte, place.number, self.highest, self.promised, behind=behind)


def _refuse_missing_partitions(paths: Sequence[Path]) -> None:
    """Refuse files that are numbered as partitions where one between them, or beside them on the disk, is not named.

    Its changes would be left out, and its watermarks not be waited for.
    """
    numbered: defaultdict[tuple[Path, str, str], dict[int, str]] = defaultdict(dict)
    for path in paths:
        if (name := _PARTITION_FILE.match(path.name)) is not None:
            numbered[path.parent, name[1], name[3]][int(name[2])] = name[2]
    for (folder, before, after), named in numbered.items():
        with readable(folder):
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


def parsed(
    parser: Parser, path: Path, messages: Iterator[Parts | Reject | AtEnd | FilePlace], number: int = 0
) -> Iterator[CarriedItem | AtEnd | FilePlace]:
    """Yield what the messages of a file hold; ``number`` is that of the first one."""
    topic = str(path)
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


class Rhythm:
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
def readable(path: Path) -> Iterator[None]:
    """Make an OSError a ChangeError that names the file."""
    try:
        yield
    except OSError as error:
        raise ChangeError(f"cannot read {path}: {error.strerror}") from error


def json_lines(
    path: Path, following: bool, start: FilePlace = BEGINNING
) -> Iterator[Parts | Reject | AtEnd | FilePlace]:
    r"""Yield each line that is not empty as a message; lines end in ``\n`` or ``\r\n``."""
    topic, number, rest = str(path), start.number, b""
    with path.open("rb") as file:
        file.seek(start.byte)
        while True:
            if following:
                yield FilePlace(file.tell() - len(rest), number)
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


def open_protocol_events(
    path: Path, following: bool, begin: FilePlace = BEGINNING
) -> Iterator[Parts | Reject | AtEnd | FilePlace]:
    """Yield each event of an open-protocol file as a message of one event; a cut end is a reject, or waited for."""
    topic, number, said = str(path), begin.number, 0
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
        file.seek(max(begin.byte, _LENGTH))
        while True:
            start = file.tell() if following else 0
            if start - said >= _READ:
                said = start
                yield FilePlace(start, number)
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
