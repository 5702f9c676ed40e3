"""Items that wait for the end of their transaction, in memory up to a few MB and in an unnamed file beyond.

Two kinds of waiting use it: a transaction whose commit has not been read yet, and a prepared XA transaction whose
XA COMMIT may come hours later.
"""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from migverify.changes.model import Begin, Commit, Idle, Item, Position, Rows, Statement, UnreadableTable
from migverify.errors import ChangeError

MEMORY_BYTES = 4 << 20


class ItemBuffer:
    """A first-in-first-out list of Rows and Statement with bounded memory."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limit = memory_bytes
        self._items: list[Rows | Statement] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None

    def __bool__(self) -> bool:
        return bool(self._items) or self._file is not None

    def add(self, item: Rows | Statement) -> None:
        """Append one item."""
        self._items.append(item)
        self._bytes += 200 + (len(item.images) if type(item) is Rows else len(item.sql))  # type: ignore[union-attr]
        if self._bytes > self._limit:
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="migverify-")  # noqa: SIM115  (closed by clear)
            pickle.dump(self._items, self._file, pickle.HIGHEST_PROTOCOL)
            self._items, self._bytes = [], 0

    def __iter__(self) -> Iterator[Rows | Statement]:
        """Give the items in their order."""
        if self._file is not None:
            end = self._file.tell()
            self._file.seek(0)
            while self._file.tell() < end:
                try:
                    yield from pickle.load(self._file)  # noqa: S301  (written by this process to a file without a name)
                except (EOFError, pickle.UnpicklingError) as error:
                    raise ChangeError(
                        "a temporary file was cut: its disk is full or failed.", hint="See TMPDIR."
                    ) from error
        yield from self._items

    def clear(self) -> None:
        """Forget everything and give back the disk space."""
        self._items, self._bytes = [], 0
        if self._file is not None:
            self._file.close()
            self._file = None


def whole(stream: Iterator[Item], memory_bytes: int = MEMORY_BYTES) -> Iterator[Item]:
    """Give out a transaction only when its commit has been read; what is unfinished when the stream ends is dropped.

    A second ``Begin`` without a ``Commit`` between replaces the unfinished transaction: its reader lost the
    connection and reads it anew.
    """
    begin: Begin | None = None
    body = ItemBuffer(memory_bytes)
    try:
        for item in stream:
            kind = type(item)
            if kind is Rows or kind is Statement:
                body.add(item)  # type: ignore[arg-type]
            elif kind is Begin:
                begin = item  # type: ignore[assignment]
                body.clear()
            elif kind is Commit:
                if begin is not None:
                    yield begin
                yield from _before(body, item.end)  # type: ignore[union-attr]
                yield item
                begin = None
                body.clear()
            elif isinstance(item, Idle):
                yield item
    finally:
        body.clear()


def _before(body: ItemBuffer, end: Position) -> Iterator[Rows | Statement]:
    """Give the items of a transaction; rows that cannot be read say where the next transaction begins."""
    for item in body:
        if type(item) is Rows and type(item.table) is UnreadableTable:
            yield replace(item, table=item.table.before(end))
        else:
            yield item
