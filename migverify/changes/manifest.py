"""The manifest of an archive: what it holds, which transactions that covers, and where it has gaps.

One JSON object per archived file and one per gap, in the folder ``manifest`` of the archive. Each is replaced whole
and carries the SHA-256 of its own content, so that a torn or edited one is recognized. The order of the
files is the order of their numbers; ``previous`` and ``following`` link them by name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any, TypeVar

from migverify import codec
from migverify.changes.gtid import GtidSet, parse_gtids
from migverify.changes.positions import file_number
from migverify.changes.storage import Storage
from migverify.errors import ChangeError

VERSION = 1
FOLDER = "manifest"
_GAP = "gap-"

_T = TypeVar("_T", "FileEntry", "ArchiveGap")


class FileState(StrEnum):
    """Whether the server may still write to the file."""

    COMPLETE = "complete"
    GROWING = "growing"


@dataclass(frozen=True, slots=True)
class OpenXa:
    """An XA transaction that a file prepares and does not finish; ``start`` and ``end`` are offsets in that file."""

    xid: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One archived binlog file.

    Attributes
    ----------
    bytes, sha256
        Length and hash of the archived bytes. Of a growing file that is what is certain; the file may be longer.
    whole
        Offset of the end of the last whole transaction, at most ``bytes``.
    first_time, last_time
        Unix time of the first and last event; 0 where there is none.
    gtids_before, gtids
        What the server had executed before the file, and what the file adds, as the server writes sets. Both are
        empty where the server writes no GTIDs.
    anonymous
        How many transactions carry no GTID.
    checksum
        ``crc32`` or ``none``.
    in_use_cleared
        The server marks a file it still writes by a 1 in its 22nd byte. The archive holds 0 there, as the finished
        file does; true where the server's copy had the mark, or may have had it, when the bytes were read.
    xa, xa_open, xa_closed
        Whether there are XA transactions; those prepared and not finished in the file; the ids of those finished in
        it and prepared in an earlier one.
    previous, following
        Names of the neighbors; ``following`` is empty while the file grows.
    """

    name: str
    state: FileState
    bytes: int
    sha256: str
    whole: int
    first_time: int
    last_time: int
    gtids_before: str
    gtids: str
    anonymous: int
    server_uuid: str
    server_version: str
    checksum: str
    in_use_cleared: bool
    xa: bool
    xa_open: tuple[OpenXa, ...]
    xa_closed: tuple[str, ...]
    previous: str
    following: str


@dataclass(frozen=True, slots=True)
class ArchiveGap:
    """Bytes that the server deleted before they were archived: after ``bytes`` of ``after``, up to ``resumes``.

    ``found`` is the Unix time of the discovery.
    """

    after: str
    bytes: int
    resumes: str
    found: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole manifest. ``files`` are in the order of the stream."""

    files: tuple[FileEntry, ...] = ()
    gaps: tuple[ArchiveGap, ...] = ()

    @property
    def last(self) -> FileEntry | None:
        """The newest file."""
        return self.files[-1] if self.files else None

    def covered(self) -> str:
        """The GTIDs of all archived transactions, as the server writes sets."""
        total = GtidSet()
        for file in self.files:
            total |= parse_gtids(file.gtids)
        return str(total)


def number(name: str) -> int:
    """Return the number at the end of a binlog's name; ChangeError where it has none."""
    found = file_number(name)
    if found is None:
        raise ChangeError(f"not a name of a binlog: {name!r}", hint="Names look like binlog.000007.")
    return found


def read_manifest(storage: Storage) -> Manifest:
    """Read the manifest; an empty one where there is none."""
    files, gaps = [], []
    for name in storage.names(FOLDER):
        if not name.endswith(".json"):
            continue
        data = storage.read(f"{FOLDER}/{name}")
        if data is None:  # replaced between the listing and here on a place without atomic replacement
            raise ChangeError(f"{storage.url}/{FOLDER}/{name} vanished while it was read.", hint="Try again.")
        where = f"{storage.url}/{FOLDER}/{name}"
        if name.startswith(_GAP):
            gaps.append(decode(ArchiveGap, data, where))
        else:
            files.append(decode(FileEntry, data, where))
    files.sort(key=lambda file: number(file.name))
    gaps.sort(key=lambda gap: number(gap.after))
    return Manifest(tuple(files), tuple(gaps))


def write_entry(storage: Storage, entry: FileEntry) -> None:
    """Add or replace the entry of one file."""
    storage.write(f"{FOLDER}/{entry.name}.json", encode(entry))


def write_gap(storage: Storage, gap: ArchiveGap) -> None:
    """Record a gap."""
    storage.write(f"{FOLDER}/{_GAP}{gap.after}.json", encode(gap))


def encode(entry: FileEntry | ArchiveGap) -> bytes:
    """Return an entry as JSON with its version and the hash of its content."""
    content = {"version": VERSION, "kind": _KINDS[type(entry)], **codec.encode(entry)}
    return json.dumps({**content, "hash": _hash(content)}, indent=1).encode()


def decode(kind: type[_T], data: bytes, where: str) -> _T:
    """Read back what ``encode`` made."""
    try:
        content = codec.parse_json(data)
        if not isinstance(content, dict):
            raise ValueError("it is not a JSON object")
        version = content.get("version")
        if isinstance(version, int) and version > VERSION:
            raise ChangeError(f"{where}: version {version} of the manifest, this program knows {VERSION}.",
                              hint="Use the migverify that wrote it.")  # fmt: skip
        if content.pop("hash", None) != _hash(content):
            raise ValueError("its content does not fit its own hash")
        del content["version"]
        if content.pop("kind", None) != _KINDS[kind]:
            raise ValueError("another kind of entry")
        return codec.decode(kind, content)
    except (ValueError, KeyError) as error:
        raise ChangeError(
            f"{where}: a damaged manifest: {error}.",
            hint="Delete this one file: `migverify changes archive` reads the binlog it names from the server again.",
        ) from error


_KINDS: dict[type, str] = {FileEntry: "file", ArchiveGap: "gap"}


def _hash(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def breaks(manifest: Manifest) -> Iterator[str]:
    """Say where the sequence of files is not one unbroken stream, in sentences.

    Checked: recorded gaps, names that do not link, a growing file that is not the last, and that the server's own set
    before each file is what the archive holds before it plus the file in front.
    """
    for gap in manifest.gaps:
        yield (f"{gap.after}: the server deleted what came after byte {gap.bytes} before it was archived;"
               f" the archive goes on with {gap.resumes}.")  # fmt: skip
    known = {(gap.after, gap.resumes) for gap in manifest.gaps}
    for one, other in pairwise(manifest.files):
        if (one.name, other.name) in known:
            continue
        if one.state is FileState.GROWING:
            yield f"{one.name}: was never finished, although {other.name} came after it."
        elif one.following != other.name or other.previous != one.name:
            yield f"{one.name}: is followed by {one.following}, and the archive has {other.name} next."
        yield from _set_breaks(one, other)


def _set_breaks(one: FileEntry, other: FileEntry) -> Iterator[str]:
    before, added, stated = (parse_gtids(text) for text in (one.gtids_before, one.gtids, other.gtids_before))
    archived = before | added
    lost, surplus = stated - archived, archived - stated
    if lost:
        yield f"{other.name}: the server had executed {lost} before it, and {one.name} does not hold that."
    if surplus:
        yield f"{other.name}: the server does not count {surplus} as executed before it, but {one.name} holds that."


def require_unbroken(files: Sequence[FileEntry], manifest: Manifest) -> None:
    """Refuse files that are not one unbroken stream."""
    names = {file.name for file in files}
    gaps = tuple(gap for gap in manifest.gaps if gap.after in names and gap.resumes in names)
    for reason in breaks(Manifest(tuple(files), gaps)):
        raise ChangeError(f"the archive is not complete: {reason}",
                          hint="Start after the break; what lies before it cannot be continued exactly.")  # fmt: skip
