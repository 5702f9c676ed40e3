"""Change items from binlog files, without a server.

Files are the server's own or copies (``mysqlbinlog --raw``, ``migverify changes archive``). Each describes its tables
itself (``binlog_row_metadata=FULL``), so nothing else is needed to read it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from migverify.changes.events import ARTIFICIAL, HEADER_BYTES, EventType, RawEvent, file_events
from migverify.changes.gtid import GtidSet, MariadbPosition, decode_gtid_list, decode_gtids, parse_gtids
from migverify.changes.held import Held, whole
from migverify.changes.model import Item, Position
from migverify.changes.positions import FIRST_OFFSET, before, until_position
from migverify.changes.statements import Xid
from migverify.changes.transactions import items, prepared_before
from migverify.errors import ChangeError, PurgedError

Opener = Callable[[str], BinaryIO]


def open_file(path: str) -> BinaryIO:
    """Open a local file, or with ``://`` in its name one of any file system that fsspec knows."""
    try:
        if "://" in path:
            import fsspec

            found: BinaryIO = fsspec.open(path, "rb").open()
            return found
        return Path(path).open("rb")
    except OSError as error:
        raise ChangeError(f"{path}: cannot be read: {error.strerror or error}") from error


def file_name(path: str) -> str:
    """The binlog's own name: the last part of a path or URL."""
    return path.rstrip("/").rpartition("/")[2]


class BinlogFiles:
    """Binlog files in their order, from the one that holds a position on.

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
            if not executed or not wanted.missing(executed):  # type: ignore[arg-type]
                return place
        raise PurgedError(
            f"the files begin after the transactions {since.gtids[:200]}.", hint="Give earlier binlog files as well."
        )

    def _set_before(self, path: str) -> GtidSet | MariadbPosition:
        """Return the set that was executed before a file, from the events at its head; empty if it has none."""
        with closing(self._opener(path)) as stream:
            for event in file_events(stream, file_name(path)):
                if event.type == EventType.PREVIOUS_GTIDS:
                    return decode_gtids(event.body)
                if event.type == EventType.MARIADB_GTID_LIST:
                    return decode_gtid_list(event.body)
                if event.type not in (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION):
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

    def look_back(self, xid: Xid, at: Position) -> Held | None:
        """Return the rows of an XA transaction that was prepared before a place, None where no file has it."""
        for path in reversed(self.given):
            head = Position(file_name(path), FIRST_OFFSET)
            if before(head, at):
                stop = at if head.file == at.file else None
                found = prepared_before(self._file(path, FIRST_OFFSET), head, stop)
                if xid in found:
                    return found[xid]
        return None


def read_files(
    paths: Sequence[str | Path],
    since: Position | None = None,
    until: Position | None = None,
    *,
    opener: Opener = open_file,
) -> Iterator[Item]:
    """Yield the transactions of binlog files, whole ones only, and an Idle at their end.

    Parameters
    ----------
    paths
        Binlog files in their order, without a gap; as for ``BinlogFiles``.
    since
        Start here: file and offset of one of the files, or (with an empty file) a GTID set. None is the start of the
        first file. A position with both starts at file and offset and takes its set as the executed one there.
    until
        Stop after the last transaction that starts before this position, or once its GTID set was read.

    Raises
    ------
    ChangeError
        a file is damaged or cut, files are missing between two of them, a position lies inside a transaction or
        beyond the end, or the stream holds something that cannot be read exactly. Items given before are certain.
    PurgedError
        the files begin after ``since``.
    """
    files = BinlogFiles(paths, since, opener)
    start, left_out = files.start, since
    # Offsets before a position without a set are read too: they tell the set, and that it lies between transactions.
    if since is not None and since.file and since.gtids:
        start, left_out = since, None
    stream = items(files.events(start.offset), start, since=left_out, look_back=files.look_back)
    yield from until_position(whole(stream), until, since)
