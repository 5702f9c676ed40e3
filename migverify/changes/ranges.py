"""Archived files as independent pieces of work: one range of one file each.

A transaction never spans two files, so ranges of different files can be read at the same time by processes that know
nothing of each other. XA is the exception: PREPARE may stand in one file and COMMIT in a later one. The manifest
names such transactions, and the range with the commit carries where the rows were prepared; its reader reads those
few events first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, cast

from migverify.changes.events import file_events
from migverify.changes.held import Held
from migverify.changes.manifest import FileEntry, Manifest, OpenXa, require_unbroken
from migverify.changes.model import Item, Position
from migverify.changes.positions import FIRST_OFFSET
from migverify.changes.statements import Xid
from migverify.changes.storage import Storage, Window
from migverify.changes.transactions import items
from migverify.errors import ChangeError


@dataclass(frozen=True, slots=True)
class Prepared:
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
    prepared: tuple[Prepared, ...] = ()


def file_ranges(manifest: Manifest, start: Position | None = None, end: Position | None = None) -> list[FileRange]:
    """Cut what lies between two positions into one range per file, in the order of the stream.

    Parameters
    ----------
    start, end
        Places between two transactions (``gtids`` is not used); None is the start or the end of the archive.

    Raises
    ------
    ChangeError
        the archive is empty, has a break between the two, does not hold one of them, or begins after the PREPARE of
        an XA transaction that commits in the range.
    """
    if not manifest.files:
        raise ChangeError("the archive is empty.", hint="Fill it with `migverify changes archive --to DIR`.")
    first = _place(manifest, start) if start else 0
    last = _place(manifest, end) if end else len(manifest.files) - 1
    files = manifest.files[first : last + 1]
    require_unbroken(files, manifest)
    open_xa = _open_before(manifest.files[:first])
    found = []
    for entry in files:
        begin = start.offset if start and entry.name == start.file else FIRST_OFFSET
        stop = end.offset if end and entry.name == end.file else entry.whole
        if stop > entry.whole or begin > entry.whole:
            raise ChangeError(
                f"{entry.name}: the archive holds whole transactions up to {entry.whole},"
                f" and {max(stop, begin)} was asked for.",
                hint="The position is of another archive, or this one was replaced by an older copy.",
            )
        if begin < stop:
            prepared = _carried(entry, open_xa)
            found.append(FileRange(entry.name, begin, stop, entry.xa, prepared))
        _step(open_xa, entry)
    return found


def _place(manifest: Manifest, position: Position) -> int:
    for place, entry in enumerate(manifest.files):
        if entry.name == position.file:
            return place
    raise ChangeError(
        f"the archive does not hold {position.file}.",
        hint=f"It goes from {manifest.files[0].name} to {manifest.files[-1].name}.",
    )


def _open_before(files: Sequence[FileEntry]) -> dict[str, tuple[str, OpenXa]]:
    found: dict[str, tuple[str, OpenXa]] = {}
    for entry in files:
        _step(found, entry)
    return found


def _step(open_xa: dict[str, tuple[str, OpenXa]], entry: FileEntry) -> None:
    for xid in entry.xa_closed:
        open_xa.pop(xid, None)
    for one in entry.xa_open:
        open_xa[one.xid] = (entry.name, one)


def _carried(entry: FileEntry, open_xa: dict[str, tuple[str, OpenXa]]) -> tuple[Prepared, ...]:
    # One that nobody prepared is left to the reader: an XA ROLLBACK of it is harmless, a COMMIT ends the stream.
    known = [open_xa[xid] for xid in entry.xa_closed if xid in open_xa]
    return tuple(Prepared(file, one.start, one.end) for file, one in known)


def read_range(storage: Storage, wanted: FileRange) -> Iterator[Item]:
    """Yield the items of one range; whatever is wrong ends it with an error, and nothing of it counts then.

    Raises
    ------
    ChangeError
        damaged, cut, or something that cannot be read exactly.
    """
    prepared: dict[Xid, Held] = {}
    for one in wanted.prepared:
        with closing(storage.open(one.file)) as stream:
            window = Window(stream, one.end)
            events = file_events(cast("BinaryIO", window), one.file, one.start)
            for _ in items(events, Position(one.file, one.start), prepared=prepared):
                pass
            _all_there(window, one.file, one.end)
    with closing(storage.open(wanted.file)) as stream:
        window = Window(stream, wanted.end)
        if wanted.xa and wanted.start > FIRST_OFFSET:
            # A transaction prepared before the range may commit in it.
            events = file_events(cast("BinaryIO", window), wanted.file)
            since = Position(wanted.file, wanted.start)
            yield from items(events, Position(wanted.file, FIRST_OFFSET), since=since, prepared=prepared)
        else:
            events = file_events(cast("BinaryIO", window), wanted.file, wanted.start)
            yield from items(events, Position(wanted.file, wanted.start), prepared=prepared)
        _all_there(window, wanted.file, wanted.end)


def _all_there(window: Window, file: str, end: int) -> None:
    """A file cut between two transactions reads well, and is short all the same."""
    if window.offset != end:
        raise ChangeError(
            f"{file}: ends at {window.offset}, and the manifest has {end} bytes of it.",
            hint="Check the archive with `migverify changes archive --verify`.",
        )
