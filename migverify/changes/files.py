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
        Binlog files in their order, without a gap; local paths or fsspec URLs. The last part of each is the
        binlog's name.
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
    names = [str(path) for path in paths]
    if not names:
        raise ChangeError("no binlog files were given.")
    first, start = _first(names, since, opener)
    events = _events(names[first:], start.offset, opener)
    # Offsets before a position without a set are read too: they tell the set, and that it lies between transactions.
    left_out = None if since is not None and since.file and since.gtids else since

    def look_back(xid: Xid, at: Position) -> Held | None:
        for path in reversed(names):
            head = Position(file_name(path), FIRST_OFFSET)
            if before(head, at):
                stop = at if head.file == at.file else None
                found = prepared_before(_events([path], FIRST_OFFSET, opener), head, stop)
                if xid in found:
                    return found[xid]
        return None

    yield from until_position(whole(items(events, start, since=left_out, look_back=look_back)), until, since)


def _first(names: list[str], since: Position | None, opener: Opener) -> tuple[int, Position]:
    """Which file to begin with, and where in it."""
    if since is None:
        return 0, Position(file_name(names[0]), 4)
    if since.file:
        for place, name in enumerate(names):
            if file_name(name) == since.file:
                return place, (since if since.gtids else Position(since.file, 4))
        raise ChangeError(
            f"{since} lies in none of the files {file_name(names[0])} to {file_name(names[-1])}.",
            hint="Give the file that the position names.",
        )
    wanted = parse_gtids(since.gtids)
    for place in range(len(names) - 1, -1, -1):
        had = set_before(names[place], opener)
        if not had or not wanted.missing(had):  # type: ignore[arg-type]
            return place, Position(file_name(names[place]), 4)
    raise PurgedError(
        f"the files begin after the transactions {since.gtids[:200]}.", hint="Give earlier binlog files as well."
    )


def set_before(name: str, opener: Opener = open_file) -> GtidSet | MariadbPosition:
    """Return the set that was executed before a file, from the events at its head; empty if it has none."""
    with closing(opener(name)) as stream:
        for event in file_events(stream, file_name(name)):
            if event.type == EventType.PREVIOUS_GTIDS:
                return decode_gtids(event.body)
            if event.type == EventType.MARIADB_GTID_LIST:
                return decode_gtid_list(event.body)
            if event.type in (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION):
                continue
            break
    return GtidSet()


def _events(names: list[str], start: int, opener: Opener) -> Iterator[RawEvent]:
    """Events of all files; in front of each stands the ROTATE that a server would send."""
    for place, path in enumerate(names):
        name, offset = file_name(path), start if place == 0 else 4
        body = struct.pack("<Q", offset) + name.encode()
        yield RawEvent(EventType.ROTATE, 0, 0, len(body) + HEADER_BYTES, 0, ARTIFICIAL, body)
        with closing(opener(path)) as stream:
            yield from file_events(stream, name, offset)
