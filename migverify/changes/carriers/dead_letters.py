"""Dead letters: messages that could not be decoded, kept with their reason.

One JSON line a message, appended and flushed to disk; a line is written once per place, so a run that reads a batch
again after a crash adds nothing. The file holds row data: it is readable by its owner only.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from migverify.changes.carriers.base import Place, Reject
from migverify.errors import ChangeError, StoreError

MOST = 100_000
"""Dead letters that a file takes. More of them mean a wrong format or wrong types, not bad messages."""


class DeadLetterFile:
    """Dead letters in one file of JSON lines.

    Raises
    ------
    StoreError
        The file cannot be read or written, or holds something else.
    """

    def __init__(self, path: Path, most: int = MOST) -> None:
        self._path = path
        self._most = most
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._cut_torn_line()
            self._places = {reject.place for reject in self.read()}
        except OSError as error:
            raise StoreError(f"cannot open the dead letters {path}: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._places)

    def add(self, rejects: Iterable[Reject]) -> int:
        """Append what is new; returns after it is on disk.

        Raises
        ------
        ChangeError
            The file holds ``most`` dead letters.
        """
        fresh = {reject.place: reject for reject in rejects if reject.place not in self._places}
        if not fresh:
            return 0
        if len(self._places) + len(fresh) > self._most:
            first = next(iter(fresh.values()))
            raise ChangeError(
                f"more than {self._most} messages cannot be decoded; at {first.place}: {first.reason}",
                hint="Check the format, the column types and the time zone; then read again from the start.",
            )
        lines = b"".join(_line(reject) for reject in fresh.values())
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"cannot write the dead letters {self._path}: {error.strerror}") from error
        self._places.update(fresh)
        return len(fresh)

    def read(self) -> Iterator[Reject]:
        """Yield the dead letters of the file; nothing when there is no file."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield _reject(json.loads(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise StoreError(f"line {number} of {self._path} is no dead letter") from error

    def _cut_torn_line(self) -> None:
        """Remove a last line without its end: the process was killed while it wrote, and writes it again."""
        if not self._path.exists():
            return
        with self._path.open("r+b") as file:
            end = size = file.seek(0, os.SEEK_END)
            while end:
                start = max(0, end - 65536)
                file.seek(start)
                newline = file.read(end - start).rfind(b"\n")
                if newline >= 0:
                    end = start + newline + 1
                    break
                end = start
            if end != size:
                file.truncate(end)


def _line(reject: Reject) -> bytes:
    place = reject.place
    document = {
        "topic": place.topic,
        "partition": place.partition,
        "offset": place.offset,
        "reason": reject.reason,
        "key": _encoded(reject.key),
        "value": _encoded(reject.value),
    }
    return json.dumps(document).encode("ascii") + b"\n"


def _reject(document: Mapping[str, object]) -> Reject:
    topic, partition, offset, reason = (document[name] for name in ("topic", "partition", "offset", "reason"))
    if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(offset, int):
        raise TypeError("a place")
    return Reject(str(reason), Place(topic, partition, offset), _decoded(document["key"]), _decoded(document["value"]))


def _encoded(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode("ascii")


def _decoded(text: object) -> bytes | None:
    return None if text is None else base64.b64decode(str(text), validate=True)
