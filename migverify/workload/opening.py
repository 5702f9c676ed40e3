"""Which reader reads a file: named by the user, or recognized by the file's first bytes."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path

from migverify.config import zones
from migverify.errors import ChangeError, UsageError
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.das import ActivityStream
from migverify.workload.formats.general import GeneralLog
from migverify.workload.formats.pcap import Pcap
from migverify.workload.formats.polled import Polled
from migverify.workload.formats.slow import SlowLog
from migverify.workload.formats.statements import BANNER as BANNERS
from migverify.workload.lines import open_log, shown_path, size_of
from migverify.workload.model import CaptureFormat
from migverify.workload.parts import CaptureInput

HEAD_BYTES = 64 << 10
SURE = 0.5
"""From this likelihood on a file is read as the likeliest format; below, the user has to name it."""


def readers(port: int, zone: tzinfo = UTC) -> dict[str, CaptureFormat]:
    """Return every reader by its name; ``zone`` is that of local times in logs."""
    known: tuple[CaptureFormat, ...] = (
        SlowLog(zone), GeneralLog(zone), Audit(zone), ActivityStream(), Pcap(port), Polled(),
    )  # fmt: skip
    return {reader.name: reader for reader in known}


def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name (``Europe/Berlin``) or its offset (``+08:00``).

    Raises
    ------
    UsageError
        there is no such zone.
    """
    try:
        return zones.find_zone(name)
    except ValueError as error:
        raise UsageError(f"{error}.", hint=zones.ZONE_HINT) from error


def open_format(name: str, path: str, port: int, zone: tzinfo = UTC) -> CaptureFormat:
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


def open_formats(name: str, paths: Sequence[str], port: int, zone: tzinfo = UTC) -> list[CaptureFormat]:
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


def is_there(path: str) -> bool:
    """Tell whether a file or an object exists."""
    if "://" not in path:
        return Path(path).is_file()
    try:
        size_of(path)
    except ChangeError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return False
        raise
    return True


@dataclass(frozen=True, slots=True)
class Opening:
    """How the files of a capture are read; see the options of the command."""

    form: str
    port: int
    zone: tzinfo
    server: str
    by_folder: bool

    def server_of(self, path: str) -> str:
        """Return the server that a file is of."""
        if not self.by_folder:
            return self.server
        return path.split("/")[-2] if "://" in path else Path(path).resolve().parent.name

    def inputs(self, files: Sequence[str]) -> list[CaptureInput]:
        """Return the inputs of a capture.

        Raises
        ------
        UsageError
            a file is not there, or its format is not known.
        """
        missing = [shown_path(path) for path in files if not is_there(path)]
        if missing:
            raise UsageError(f"no such file: {', '.join(missing)}.", hint="Name files; folders are not searched.")
        formats = open_formats(self.form, files, self.port, self.zone)
        return [CaptureInput(path, form, self.server_of(path)) for path, form in zip(files, formats, strict=True)]
