"""Which reader reads a file: named by the user, or told by the file's first bytes."""

from __future__ import annotations

import gzip
import re
from datetime import UTC, timedelta, timezone, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from migverify.errors import UsageError
from migverify.workload.formats import log_readers
from migverify.workload.formats.pcap import Pcap, PcapText
from migverify.workload.formats.polled import Polled
from migverify.workload.formats.tidb_audit import TidbAudit
from migverify.workload.formats.tiproxy import TiProxy
from migverify.workload.model import Format

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
HEAD_BYTES = 64 << 10
SURE = 0.5
"""A file is taken for the likeliest format from here on; below, the user has to say."""


def readers(port: int, zone: tzinfo = UTC) -> dict[str, Format]:
    """Return every reader by its name; ``zone`` is that of local times in logs."""
    own: tuple[Format, ...] = (Pcap(port), PcapText(port), TiProxy(), TidbAudit(), Polled())
    return {reader.name: reader for reader in (*log_readers(zone), *own)}


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name (``Europe/Berlin``) or its offset (``+08:00``).

    Raises
    ------
    UsageError
        there is no such zone.
    """
    offset = _OFFSET.fullmatch(name)
    if offset is not None and int(offset[2]) < 15 and int(offset[3]) < 60:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UsageError(
            f"there is no time zone {name!r}.", hint="Name one like Europe/Berlin, or an offset like +08:00."
        ) from error


def open_format(name: str, path: Path, port: int, zone: tzinfo = UTC) -> Format:
    """Return the reader of a file; ``name`` is ``auto`` or a format's name.

    Raises
    ------
    UsageError
        no format fits, or two fit alike.
    """
    known = readers(port, zone)
    if name != "auto":
        return known[name]
    head = read_head(path)
    ranked = sorted(((reader.sniff(head), reader.name) for reader in known.values()), reverse=True)
    best, chosen = ranked[0]
    if best < SURE or ranked[1][0] == best:
        hint = f"Name it: --format {'|'.join(known)}."
        if best < SURE:
            raise UsageError(f"{path}: cannot tell its format by its first bytes.", hint=hint)
        raise UsageError(f"{path} looks like {chosen} and like {ranked[1][1]}.", hint=hint)
    return known[chosen]


def read_head(path: Path) -> bytes:
    """Return the first bytes of a file, unpacked where it is gzip."""
    with path.open("rb") as file:
        head = file.read(2)
    if head == b"\x1f\x8b":
        try:
            with gzip.open(path) as packed:
                return packed.read(HEAD_BYTES)
        except (OSError, EOFError) as error:
            raise UsageError(f"{path} is damaged gzip: {error}.", hint="Fetch it again.") from error
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)
