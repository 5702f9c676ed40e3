"""Dead letters: messages that could not be decoded, kept with their reason.

One JSON line a message, appended and flushed to disk; a line is written once per place, so a run that reads a batch
again after a crash adds nothing. The file holds row data: it is readable by its owner only.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from migverify.changes.carriers.base import MessagePosition, Reject
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
        self._places: set[MessagePosition] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists():
                # A last line without its end: the process was killed while it wrote, and writes it again.
                with path.open("r+b") as file:
                    file.truncate(sum(len(line) for line in file if line.endswith(b"\n")))
            self._places.update(reject.place for reject in self.read())
        except OSError as error:
            raise StoreError(f"cannot open the dead letters {path}: {error.strerror}") from error

    def __len__(self) -> int:
        return len(self._places)

    def add(self, rejects: Iterable[Reject]) -> int:
        """Append what is new; returns after it is on disk."""
        fresh = {reject.place: reject for reject in rejects if reject.place not in self._places}
        if not fresh:
            return 0
        if len(self._places) + len(fresh) > self._most:
            first = next(iter(fresh.values()))
            raise ChangeError(
                f"more than {self._most} messages cannot be decoded; at {first.place}: {first.reason}",
                hint="Check the format, the column types and the time zone; then read again from the start.",
            )
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(b"".join(_line(reject) for reject in fresh.values()))
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


def _line(reject: Reject) -> bytes:
    key, value = (None if raw is None else base64.b64encode(raw).decode("ascii") for raw in (reject.key, reject.value))
    document = asdict(reject.place) | {"reason": reject.reason, "key": key, "value": value}
    return json.dumps(document).encode("ascii") + b"\n"


def _reject(document: dict[str, Any]) -> Reject:
    topic, partition, offset, reason = (document[name] for name in ("topic", "partition", "offset", "reason"))
    if not isinstance(topic, str) or not isinstance(partition, int) or not isinstance(offset, int):
        raise TypeError("a place")
    raw = (document["key"], document["value"])
    key, value = (None if text is None else base64.b64decode(text, validate=True) for text in raw)
    return Reject(reason, MessagePosition(topic, partition, offset), key, value)
