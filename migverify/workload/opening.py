"""Which reader reads a file: named by the user, or told by the file's first bytes."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from migverify.errors import UsageError
from migverify.workload.formats import log_readers
from migverify.workload.formats.p6spy import P6spy
from migverify.workload.formats.pcap import Pcap, PcapText
from migverify.workload.formats.polled import Polled
from migverify.workload.formats.statements import BANNER as BANNERS
from migverify.workload.formats.tidb_audit import TidbAudit
from migverify.workload.formats.tiproxy import TiProxy
from migverify.workload.lines import open_log, shown_path
from migverify.workload.model import Format

_OFFSET = re.compile(r"([+-])(\d\d):(\d\d)")
HEAD_BYTES = 64 << 10
SURE = 0.5
"""A file is taken for the likeliest format from here on; below, the user has to say."""


def readers(port: int, zone: tzinfo = UTC) -> dict[str, Format]:
    """Return every reader by its name; ``zone`` is that of local times in logs."""
    own: tuple[Format, ...] = (Pcap(port), PcapText(port), TiProxy(), TidbAudit(), Polled(), P6spy(zone))
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


def open_format(name: str, path: str, port: int, zone: tzinfo = UTC) -> Format:
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
            raise UsageError(f"{shown_path(path)}: cannot tell its format by its first bytes.", hint=hint)
        raise UsageError(f"{shown_path(path)} looks like {chosen} and like {ranked[1][1]}.", hint=hint)
    return known[chosen]


def open_formats(name: str, paths: Sequence[str], port: int, zone: tzinfo = UTC) -> list[Format]:
    """Return the readers of files; one that holds no record (a rotated log) is of the format of the others.

    Raises
    ------
    UsageError
        see ``open_format``.
    """
    empty = {path for path in paths if name == "auto" and not BANNERS.sub(b"", read_head(path)).strip()}
    formats = {path: open_format(name, path, port, zone) for path in paths if path not in empty}
    other = next(iter(formats.values()), readers(port, zone)["slow" if name == "auto" else name])
    return [formats.get(path, other) for path in paths]


def read_head(path: str) -> bytes:
    """Return the first bytes of a file or an object, unpacked where it is gzip."""
    with open_log(path) as file:
        try:
            return file.read(HEAD_BYTES)
        except (gzip.BadGzipFile, zlib.error, EOFError) as error:
            raise UsageError(f"{shown_path(path)} is damaged gzip: {error}.", hint="Fetch it again.") from error
