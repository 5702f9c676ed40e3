"""Reads an archive again and says whether it still holds what its manifest says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, cast

from migverify.changes.events import MAGIC, file_events
from migverify.changes.file_facts import FileFacts
from migverify.changes.manifest import FileEntry, FileState, Manifest, breaks, read_manifest
from migverify.changes.storage import Storage, Window
from migverify.errors import ChangeError

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class ArchiveCheck:
    """What was read, and what is wrong: one sentence per finding, none where the archive is good.

    ``gtids`` are those that were seen in the files, not those that the manifest claims.
    """

    manifest: Manifest
    events: int
    bytes: int
    gtids: str
    findings: tuple[str, ...]


def check_archive(storage: Storage, say: Callable[[str], None]) -> ArchiveCheck:
    """Read every archived byte: hashes, event checksums, what the manifest says of each file, GTIDs without a gap.

    Raises
    ------
    ChangeError
        there is no archive, or its manifest cannot be read.
    """
    manifest = read_manifest(storage)
    if not manifest.files:
        raise ChangeError(f"there is no archive at {storage.url}.",
                          hint="Make one with `migverify changes archive --to DIR`.")  # fmt: skip
    findings: list[str] = []
    events = size = 0
    for entry in manifest.files:
        try:
            events += _check_file(storage, entry, findings)
        except ChangeError as error:
            findings.append(error.message)
        size += entry.bytes
        say(f"{entry.name}: read")
    known = {entry.name for entry in manifest.files}
    findings += (
        f"{name}: lies in the archive, but the manifest does not know it." for name in storage.names()
        if name not in known and not name.startswith(".")
    )  # fmt: skip
    findings += breaks(manifest)
    return ArchiveCheck(manifest, events, size, manifest.covered(), tuple(findings))


def _check_file(storage: Storage, entry: FileEntry, findings: list[str]) -> int:
    with closing(storage.open(entry.name)) as stream:
        found, longer = _hash(stream, entry.bytes)
        if found != entry.sha256:
            findings.append(f"{entry.name}: its first {entry.bytes} bytes do not have the manifest's SHA-256.")
        if longer and entry.state is FileState.COMPLETE:
            findings.append(f"{entry.name}: is complete with {entry.bytes} bytes, and has more.")
        facts, offset, events = FileFacts(entry.name), len(MAGIC), 0
        for event in file_events(cast("BinaryIO", Window(stream, entry.bytes)), entry.name):
            offset += event.size
            events += 1
            facts.add(event, offset)
    seen = (offset, facts.whole, facts.gtids_before, facts.gtids, facts.anonymous)
    if seen != (entry.bytes, entry.whole, entry.gtids_before, entry.gtids, entry.anonymous):
        findings.append(f"{entry.name}: its events are not those that the manifest describes.")
    return events


def _hash(stream: BinaryIO, size: int) -> tuple[str, bool]:
    """Hash of the first ``size`` bytes, and whether there are more."""
    found = hashlib.sha256()
    window = Window(stream, size)
    while piece := window.read(_PIECE):
        found.update(piece)
    return found.hexdigest(), bool(stream.read(1))
