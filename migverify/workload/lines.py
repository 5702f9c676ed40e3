"""What readers of logs share: a file as a growing window of bytes, times, and records made at little cost.

A window never holds more than one record beyond its block, so that memory stays bounded. It reads blocks instead of
mapping the file: a log that is truncated by its rotation while it is mapped would end the process.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import IO, Any, cast

from migverify.changes.storage import Storage, without_password
from migverify.errors import ReadError
from migverify.workload.model import Noise, Origin, Rejected, text_of

BLOCK = 4 << 20
LONGEST = 64 << 20
"""Bytes of the longest record that is read; a longer one is rejected as a whole."""
TOO_LONG = "record longer than the limit"
GZIP = b"\x1f\x8b"


def is_packed(path: str) -> bool:
    """Tell whether a file is gzip."""
    with open_bytes(path) as file:
        return file.read(2) == GZIP


def open_bytes(path: str) -> IO[bytes]:
    """Open a file of this machine, or an object by its URL (``s3://``, ``gs://`` ...).

    Raises
    ------
    ReadError
        it is a FIFO, a device or a folder: what is read once cannot be read in parts, nor again.
    """
    if "://" not in path:
        return open(path, "rb", opener=_open_regular)
    folder, _, name = path.rpartition("/")
    return Storage(folder).open(name)


def _open_regular(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NONBLOCK)  # of a FIFO, open would wait for a writer
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise not_regular(path)
    return handle


def not_regular(path: str) -> ReadError:
    """Return the error that says a path is no regular file."""
    return ReadError(
        f"{path} is not a regular file, but a folder, a FIFO, a socket or a device.",
        hint="Put the log there, or name another file, and run the same command again.",
    )


def shown_path(path: str) -> str:
    """Return a path as it may be shown: a URL without what may hold a secret."""
    return without_password(path) if "://" in path else path


def size_of(path: str) -> int:
    """Return the bytes of a file or an object."""
    if "://" not in path:
        return os.stat(path).st_size  # noqa: PTH116
    with open_bytes(path) as file:
        return file.seek(0, os.SEEK_END)


def open_log(path: str) -> IO[bytes]:
    """Open a file, unpacked where it is gzip."""
    file = open_bytes(path)
    packed = file.read(2) == GZIP
    file.seek(0)
    return cast(IO[bytes], _Unpacked(file)) if packed else file


class _Unpacked(gzip.GzipFile):
    """A gzip file that closes the file it reads."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._under = file

    def close(self) -> None:
        """Close both."""
        super().close()
        self._under.close()


class LogWindow:
    """The part of a file that is in memory: ``data`` begins at ``base``; ``eof`` says that nothing follows it.

    Of a file that is ``growing`` the end is never known: ``dry`` says that nothing more is in it now.
    """

    def __init__(self, path: str, file: IO[bytes], block: int = BLOCK, *, growing: bool = False) -> None:
        self._path, self._file, self._block = shown_path(path), file, block
        self.data = b""
        self.base = 0
        self.growing = growing
        self.eof = self.dry = False

    def more(self, keep: int) -> None:
        """Drop the bytes before index ``keep`` and read on: as much as is kept, so that growth costs linear time."""
        rest = self.data[keep:]
        self.base += keep
        parts = [rest]
        wanted = max(self._block, len(rest))
        while wanted > 0:
            part = self.read(wanted)
            if not part:
                self.dry, self.eof = True, not self.growing
                break
            parts.append(part)
            wanted -= len(part)
        self.data = b"".join(parts)

    def read(self, size: int) -> bytes:
        """Read bytes behind the window.

        Raises
        ------
        ReadError
            the file is damaged gzip.
        """
        try:
            return self._file.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ReadError(
                f"{self._path}: damaged gzip behind byte {self.base + len(self.data):,} of its content: {error}.",
                hint="Fetch the file again; statements of a half one would look whole.",
            ) from error


class Texts(dict[bytes, str]):
    """Names of users, hosts and databases as texts, each made once."""

    def __missing__(self, raw: bytes) -> str:
        text = text_of(raw)
        if len(self) < 10_000:
            self[raw] = text
        return text


class LogClock:
    """Times of logs as Unix microseconds; seconds are computed once, for thousands of records share them.

    Parameters
    ----------
    zone
        Where the server stood: for times that do not tell their zone.
    """

    def __init__(self, zone: tzinfo = UTC) -> None:
        self._zone = zone
        self._known: dict[bytes, int] = {}
        self._utc: dict[bytes, int] = {}

    def iso(self, raw: bytes) -> int | None:
        """Return ``2026-01-02T03:04:05.678901Z`` (or with an offset, or with ``+00``); None when it is no such time."""
        if raw[26:] == b"Z":
            whole = self._utc.get(raw[:19])
            fraction = raw[20:26]
            if whole is not None and raw[19:20] == b"." and fraction.isdigit() and len(fraction) == 6:
                return whole + int(fraction)
        second, fraction, zone = raw[:19], raw[19:26], raw[26:]
        if len(fraction) != 7 or fraction[:1] != b"." or not fraction[1:].isdigit():
            return self._odd(raw)
        whole = self._known.get(second + zone)
        if whole is None:
            whole = self._second(second, zone)
            if whole is None:
                return None
        if zone == b"Z":
            self._utc = {second: whole}  # the next records share it
        return whole + int(fraction[1:])

    def _odd(self, raw: bytes) -> int | None:
        for zone in (b"Z", raw[-6:], raw[-3:]):
            if raw.endswith(zone) and zone[:1] in (b"Z", b"+", b"-"):
                second, _, fraction = raw[: -len(zone)].partition(b".")
                whole = self._second(second, zone)
                if whole is not None and (not fraction or fraction.isdigit()):
                    return whole + int(fraction[:6].ljust(6, b"0"))
        return None

    def _second(self, second: bytes, zone: bytes) -> int | None:
        if zone not in (b"", b"Z") and zone[:1] not in (b"+", b"-"):
            return None
        try:
            text = (second + zone.replace(b"Z", b"+00:00")).decode("ascii")
            moment = datetime.fromisoformat(text)
        except (ValueError, UnicodeDecodeError):
            return None
        return self._keep(second + zone, moment)

    def compact(self, raw: bytes) -> int | None:
        """Return ``yymmdd hh:mm:ss`` or ``yyyymmdd hh:mm:ss`` of the server's zone; None when it is no such time."""
        known = self._known.get(raw)
        if known is not None:
            return known
        day, _, time = raw.partition(b" ")
        parts = time.strip().split(b":")
        if len(day) not in (6, 8) or not day.isdigit() or len(parts) != 3 or not all(part.isdigit() for part in parts):
            return None
        year = int(day[:-4]) + (2000 if len(day) == 6 else 0)
        try:
            moment = datetime(
                year, int(day[-4:-2]), int(day[-2:]), int(parts[0]), int(parts[1]), int(parts[2]), tzinfo=self._zone
            )
        except ValueError:
            return None
        return self._keep(raw, moment)

    def _keep(self, key: bytes, moment: datetime) -> int:
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=self._zone)
        if len(self._known) > 100_000:
            self._known.clear()
        known = self._known[key] = int(moment.timestamp()) * 1_000_000
        return known


def lines(
    path: str, limit: int = LONGEST, *, begin: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int, bytes | int]]:
    """Yield ``(offset, line, content)`` of the lines that begin in [begin, stop); a line that is too long: its length.

    Lines are numbered from the first of them.
    """
    with open_log(path) as file:
        number, offset = 1, 0
        if begin:
            offset = file.seek(begin - 1)
            part = b""
            while not part.endswith(b"\n"):
                part = file.readline(BLOCK)
                if not part:
                    return
                offset += len(part)
        while stop is None or offset < stop:
            try:
                line = file.readline(limit + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ReadError(f"{shown_path(path)}: damaged gzip: {error}.", hint="Fetch the file again.") from error
            if not line:
                return
            if len(line) <= limit or line.endswith(b"\n"):
                yield offset, number, line
                offset += len(line)
            else:
                length = len(line)
                while line and not line.endswith(b"\n"):
                    line = file.readline(BLOCK)
                    length += len(line)
                yield offset, number, length
                offset += length
            number += 1


_SURROGATE = re.compile(rb"\\u[dD][89a-bA-B]")


def json_of(content: bytes) -> Any:
    """Return the value of a JSON text; bytes that are no UTF-8 become lone surrogates, as ``surrogateescape`` has them.

    Raises
    ------
    ValueError
        it is no JSON, or holds half a character that no bytes stand for.
    """
    value = json.loads(content.decode("utf-8", "surrogateescape"))
    if _SURROGATE.search(content):
        json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogateescape")
    return value


def name_of(value: object) -> str | None:
    """Return a name of a JSON text; bytes in it that are no UTF-8 become escapes."""
    if not isinstance(value, str) or value.isascii():
        return value if isinstance(value, str) else None
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def rejected(path: str, offset: int, line: int, length: int, reason: str) -> Rejected:
    """Return a reject."""
    return Rejected(Origin(path, offset, line, length), reason)


def noise(path: str, offset: int, line: int, length: int, what: str) -> Noise:
    """Return noise."""
    return Noise(Origin(path, offset, line, length), what)
