"""A list that goes to a nameless file of this process where it grows too long for memory."""

from __future__ import annotations

import pickle  # a file without a name, written and read by one process
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Generic, TypeVar

HELD_BYTES = 32 << 20
_OVERHEAD = 900

_Item = TypeVar("_Item")


class Overflow(Generic[_Item]):
    """Items in the order in which they were added; the file is in ``folder``, default: the system's."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._items: list[_Item] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def add(self, item: _Item, size: int) -> None:
        """Take in an item of about ``size`` bytes beside its overhead."""
        self._items.append(item)
        self._bytes += size + _OVERHEAD
        if self._bytes >= HELD_BYTES:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115  (closed by drain)
            pickle.dump(self._items, self._file)
            self._items, self._bytes = [], 0

    def drain(self) -> Iterator[_Item]:
        """Yield the items, and hold none any more."""
        if self._file is not None:
            with self._file as file:
                end = file.seek(0, 2)
                file.seek(0)
                while file.tell() < end:
                    yield from pickle.load(file)  # noqa: S301  (written by add)
            self._file = None
        items, self._items, self._bytes = self._items, [], 0
        yield from items
