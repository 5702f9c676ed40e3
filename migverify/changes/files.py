"""Binlog files as transports of ``changes.source``: files in their order, and ranges of archived files.

Files are the server's own or copies (``mysqlbinlog --raw``, ``migverify changes archive``). Each describes its tables
itself (``binlog_row_metadata=FULL``), so nothing else is needed to read it.

A transaction never spans two files, so ranges of different files can be read at the same time by processes that know
nothing of each other. XA is the exception: PREPARE may be in one file and COMMIT in a later one. The manifest names
such transactions, and the range with the commit carries where the rows were prepared; its reader reads those few events
first.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from migverify.changes.buffer import ItemBuffer
from migverify.changes.events import ARTIFICIAL, FIRST_OFFSET, HEADER_BYTES, EventType, RawEvent, file_events
from migverify.changes.gtid import GtidSet, decode_gtids, parse_gtids
from migverify.changes.manifest import Manifest, OpenXa, require_unbroken
from migverify.changes.model import Position
from migverify.changes.places import EventStream
from migverify.changes.positions import before
from migverify.changes.statements import Xid
from migverify.changes.storage import ByteWindow, Storage, open_file
from migverify.changes.transactions import Transport, items
from migverify.errors import ChangeError, PurgedError

Opener = Callable[[str], BinaryIO]


def file_name(path: str) -> str:
    """The binlog's own name: the last part of a path or URL."""
    return path.rstrip("/").rpartition("/")[2]


class BinlogFiles(Transport):
    """Binlog files in their order without a gap, from the one that holds a position on.

    Parameters
    ----------
    paths
        Local paths or fsspec URLs; the last part of each is the binlog's name.
    since
        File and offset, or a GTID set: earlier files are left out. None keeps all.

    Raises
    ------
    ChangeError
        no file is given, one cannot be opened, or the position lies in none of them.
    PurgedError
        the files begin after the position.
    """

    def __init__(
        self, paths: Sequence[str | Path], since: Position | None = None, opener: Opener = open_file
    ) -> None:  # fmt: skip
        self.given = [str(path) for path in paths]
        self._opener = opener
        if not self.given:
            raise ChangeError("no binlog files were given.")
        self.paths = self.given[self._first(since) if since is not None else 0 :]
        self._next = 0

    name = "binlog files"

    @property
    def start(self) -> Position:
        """Where the first event of the first file is."""
        return Position(file_name(self.paths[0]), FIRST_OFFSET)

    def _first(self, since: Position) -> int:
        names = [file_name(path) for path in self.given]
        if since.file:
            if since.file in names:
                return names.index(since.file)
            raise ChangeError(
                f"{since} lies in none of the files {names[0]} to {names[-1]}.",
                hint="Give the file that the position names.",
            )
        wanted = parse_gtids(since.gtids)
        for place in range(len(names) - 1, -1, -1):
            executed = self._set_before(self.given[place])
            if not executed - wanted:
                return place
        raise PurgedError(
            f"the files begin after the transactions {since.gtids[:200]}.", hint="Give earlier binlog files as well."
        )

    def _set_before(self, path: str) -> GtidSet:
        """Return the set that was executed before a file, from the events at its head; empty if it has none."""
        with closing(self._opener(path)) as stream:
            for event in file_events(stream, file_name(path)):
                if event.type == EventType.PREVIOUS_GTIDS:
                    return decode_gtids(event.body)
                if event.type != EventType.FORMAT_DESCRIPTION:
                    break
        return GtidSet()

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each file by its name."""
        sizes = {}
        for path in self.paths:
            with closing(self._opener(path)) as stream:
                sizes[file_name(path)] = stream.seek(0, 2)
        return sizes

    def events(self, offset: int = FIRST_OFFSET) -> Iterator[RawEvent]:
        """Yield the events of all files, in front of each file's the ROTATE that a server would send.

        Called again after an error, it goes on with the file after the one that failed.

        Parameters
        ----------
        offset
            Where to begin in the first file.
        """
        while self._next < len(self.paths):
            path, start = self.paths[self._next], offset if self._next == 0 else FIRST_OFFSET
            self._next += 1
            yield from self._file(path, start)

    def _file(self, path: str, start: int) -> Iterator[RawEvent]:
        body = struct.pack("<Q", start) + file_name(path).encode()
        yield RawEvent(EventType.ROTATE, 0, 0, len(body) + HEADER_BYTES, 0, ARTIFICIAL, body)
        with closing(self._opener(path)) as stream:
            yield from file_events(stream, file_name(path), start)

    @contextmanager
    def opened(self, start: Position | None, *, again: bool) -> Iterator[EventStream]:
        """See Transport."""
        del again
        # Offsets before a position without a set are read too: they give the set, and prove that it lies between
        # transactions.
        if start is not None and start.file and start.gtids:
            yield EventStream(self.events(start.offset), start)
        else:
            yield EventStream(self.events(), self.start, start)

    def files_back(self, at: Position) -> Iterator[tuple[Position, Iterator[RawEvent]]]:
        """See Transport."""
        for path in reversed(self.given):
            head = Position(file_name(path), FIRST_OFFSET)
            if before(head, at):
                yield head, self._file(path, FIRST_OFFSET)


@dataclass(frozen=True, slots=True)
class PreparedXa:
    """Where an XA transaction was prepared: the events from ``start`` to ``end`` of ``file``."""

    file: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileRange:
    """The transactions of ``file`` from offset ``start`` to ``end``, both between two transactions.

    ``xa`` says that the file holds XA transactions; ``prepared`` are those of earlier files that it finishes.
    """

    file: str
    start: int
    end: int
    xa: bool = False
    prepared: tuple[PreparedXa, ...] = ()


def file_ranges(manifest: Manifest, start: Position | None = None, end: Position | None = None) -> list[FileRange]:
    """Cut what lies between two positions into one range per file, in the order of the stream.

    Parameters
    ----------
    start, end
        Places between two transactions (``gtids`` is not used); None is the start or the end of the archive.
    """
    if not manifest.files:
        raise ChangeError("the archive is empty.", hint="Fill it with `migverify changes archive --to DIR`.")
    first = _place(manifest, start) if start else 0
    last = _place(manifest, end) if end else len(manifest.files) - 1
    require_unbroken(manifest.files[first : last + 1], manifest)
    open_xa: dict[str, tuple[str, OpenXa]] = {}
    ranges = []
    for place, entry in enumerate(manifest.files[: last + 1]):
        # One that nobody prepared is left to the reader: an XA ROLLBACK of it is harmless, a COMMIT ends the stream.
        closed = [open_xa.pop(xid) for xid in entry.xa_closed if xid in open_xa]
        open_xa |= {one.xid: (entry.name, one) for one in entry.xa_open}
        if place < first:
            continue
        begin = start.offset if start and entry.name == start.file else FIRST_OFFSET
        stop = end.offset if end and entry.name == end.file else entry.whole
        if stop > entry.whole or begin > entry.whole:
            raise ChangeError(
                f"{entry.name}: the archive holds whole transactions up to {entry.whole},"
                f" and {max(stop, begin)} was requested.",
                hint="The position is of another archive, or this one was replaced by an older copy.",
            )
        if begin < stop:
            prepared = tuple(PreparedXa(file, one.start, one.end) for file, one in closed)
            ranges.append(FileRange(entry.name, begin, stop, entry.xa, prepared))
    return ranges


def _place(manifest: Manifest, position: Position) -> int:
    for place, entry in enumerate(manifest.files):
        if entry.name == position.file:
            return place
    raise ChangeError(
        f"the archive does not hold {position.file}.",
        hint=f"It goes from {manifest.files[0].name} to {manifest.files[-1].name}.",
    )


class ArchivedRange(Transport):
    """One range of an archived file. Its reader needs no other file: the manifest names what was prepared earlier."""

    def __init__(self, storage: Storage, wanted: FileRange) -> None:
        self.name = wanted.file
        self._storage, self._wanted = storage, wanted

    @contextmanager
    def opened(self, start: Position | None, *, again: bool) -> Iterator[EventStream]:
        """See Transport."""
        del start, again
        wanted = self._wanted
        prepared: dict[Xid, ItemBuffer] = {}
        for one in wanted.prepared:
            with self._window(one.file, one.end) as window:
                events = file_events(window, one.file, one.start)
                for _ in items(EventStream(events, Position(one.file, one.start), prepared=prepared)):
                    pass
        with self._window(wanted.file, wanted.end) as window:
            place = Position(wanted.file, wanted.start)
            # A transaction prepared before the range may commit in it.
            whole_file = wanted.xa and wanted.start > FIRST_OFFSET
            first = FIRST_OFFSET if whole_file else wanted.start
            events = file_events(window, wanted.file, first)
            yield EventStream(events, Position(wanted.file, first), place if whole_file else None, prepared=prepared)

    @contextmanager
    def _window(self, file: str, end: int) -> Iterator[BinaryIO]:
        with closing(self._storage.open(file)) as stream:
            window = ByteWindow(stream, end)
            yield cast("BinaryIO", window)
        # A file cut between two transactions reads well, and is short all the same.
        if window.offset != end:
            raise ChangeError(
                f"{file}: ends at {window.offset}, and the manifest has {end} bytes of it.",
                hint="Check the archive with `migverify changes archive --verify`.",
            )
