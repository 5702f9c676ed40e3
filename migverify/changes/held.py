"""Items that wait for the end of their transaction, in memory up to a few MB and in an unnamed file beyond.

Two kinds of waiting use it: a transaction whose commit has not been read yet, and a prepared XA transaction whose
XA COMMIT may come hours later.
"""

from __future__ import annotations

import pickle
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement, TableMap, UnreadableTable
from migverify.errors import ChangeError

MEMORY_BYTES = 4 << 20
_RECORD = struct.Struct("<BIIQII")  # kind, table, file, offset, time, bytes that follow
_OPS = tuple(Op)
_STATEMENT = 255


class Held:
    """A first-in-first-out list of Rows and Statement with bounded memory."""

    def __init__(self, memory_bytes: int = MEMORY_BYTES) -> None:
        self._limit = memory_bytes
        self._items: list[Rows | Statement] = []
        self._bytes = 0
        self._file: IO[bytes] | None = None
        self._tables: dict[TableMap, int] = {}
        self._names: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._items) or self._file is not None

    def add(self, item: Rows | Statement) -> None:
        """Append one item."""
        self._items.append(item)
        self._bytes += 200 + (len(item.images) if type(item) is Rows else len(item.sql))  # type: ignore[union-attr]
        if self._bytes > self._limit:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="migverify-")  # noqa: SIM115  (closed by clear)
        for item in self._items:
            name = self._names.setdefault(item.file, len(self._names))
            if isinstance(item, Rows):
                table = self._tables.setdefault(item.table, len(self._tables))
                kind, data = _OPS.index(item.op), item.images
            else:
                table, kind, data = 0, _STATEMENT, pickle.dumps(item)
            self._file.write(_RECORD.pack(kind, table, name, item.offset, item.time, len(data)))
            self._file.write(data)
        self._items.clear()
        self._bytes = 0

    def __iter__(self) -> Iterator[Rows | Statement]:
        """Give the items in their order; once only for those in the file, as nobody needs them twice."""
        if self._file is not None:
            self._file.seek(0)
            tables, names = list(self._tables), list(self._names)
            while head := self._file.read(_RECORD.size):
                kind, table, name, offset, time, size = _RECORD.unpack(head)
                data = self._file.read(size)
                if len(data) != size:
                    raise ChangeError("a temporary file was cut: its disk is full or failed.", hint="See TMPDIR.")
                if kind == _STATEMENT:
                    yield pickle.loads(data)  # noqa: S301  (written by this process to a file without a name)
                else:
                    yield Rows(_OPS[kind], tables[table], data, names[name], offset, time)
            self._file.seek(0, 2)
        yield from self._items

    def clear(self) -> None:
        """Forget everything and give back the disk space."""
        if self._items:
            self._items = []
        self._bytes = 0
        if self._file is not None:
            self._file.close()
            self._file = None
            self._tables.clear()
            self._names.clear()


def whole(stream: Iterator[Item], memory_bytes: int = MEMORY_BYTES) -> Iterator[Item]:
    """Give out a transaction only when its commit has been read; what is unfinished when the stream ends is dropped.

    A second ``Begin`` without a ``Commit`` between replaces the unfinished transaction: its reader lost the
    connection and reads it anew.
    """
    begin: Begin | None = None
    body = Held(memory_bytes)
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


def _before(body: Held, end: Position) -> Iterator[Rows | Statement]:
    """Give the items of a transaction; rows that cannot be read say where the next transaction begins."""
    for item in body:
        if type(item) is Rows and type(item.table) is UnreadableTable:
            yield replace(item, table=item.table.before(end))
        else:
            yield item
