"""Rows that stay bytes until a column is wanted: a watch wants the key only, and most of a message is something else.

Everything around the row of a message is compared with a message of the same table that was decoded whole, byte by
byte; a message that differs in anything but numbers and values is decoded whole again. In valid JSON an unescaped quote
ends a string, so a text like ``"id":"`` is found in the row as a name and its value only. A column that occurs more or
less than once, has an escape or is NULL is decoded exactly, with its whole row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from migverify.changes.carriers.base import Image, UndecodableError
from migverify.changes.model import AfterImages, DecodedTable, Texts
from migverify.errors import ChangeError

SEPARATOR = b"\n"
"""Between the rows of images: no text of a row holds one."""
Convert: TypeAlias = Callable[[bytes], str | None]
"""The text of a value that was cut out of a row; UndecodableError, or None where the row must be decoded whole."""


def is_timestamp(raw: bytes) -> bool:
    """Whether digits are a timestamp of TiDB for sure; where not, the message is decoded whole."""
    return len(raw) < 19 and raw.isdigit()


def is_integer(raw: bytes) -> bool:
    """Whether digits are an integer that a column can hold; others are decoded whole, which refuses them."""
    return len(raw) <= 20 and raw.isdigit()


class ColumnCut(NamedTuple):
    """How a column is found in the text of a row: by its name, up to its value and behind it."""

    name: bytes
    head: bytes
    tail: bytes
    convert: Convert


class LazyTable(DecodedTable):
    """The layout of rows that are texts of JSON objects. Equal to itself only.

    Parameters
    ----------
    cells
        For each column how it is found.
    exact
        Decodes one row whole.
    """

    __slots__ = ("cells", "exact", "keys", "pairs")
    cells: tuple[ColumnCut, ...]
    exact: Callable[[bytes], Image]
    pairs: bool
    keys: Callable[[bytes], list[Texts]]

    @classmethod
    def lazy(
        cls, table: DecodedTable, cells: Mapping[str, ColumnCut], exact: Callable[[bytes], Image], *, pairs: bool
    ) -> LazyTable:  # fmt: skip
        """Return a layout for the rows of a table; ``pairs``: the row before comes in front of each row."""
        made = cls(table.database, table.table, table.columns, table.key)
        ordered = tuple(cells[column.name] for column in table.columns)
        for name, value in (("cells", ordered), ("exact", exact), ("pairs", pairs)):
            object.__setattr__(made, name, value)
        object.__setattr__(made, "keys", made.reader(made.key))
        return made

    def has_keys(self, images: bytes) -> bool:
        """Whether the key can be decoded: what a watch reads must not fail when it is given out."""
        try:
            self.keys(images)
        except ChangeError:
            return False
        return True

    def reader(self, places: tuple[int, ...]) -> Callable[[bytes], list[Texts]]:
        """Return a function that gives the wanted columns of every row."""
        cells = [self.cells[n] for n in places]
        names = [self.columns[n].name for n in places]

        first = cells[0] if len(cells) == 1 else None
        skip = len(first.head) if first is not None else 0

        def read(images: bytes) -> list[Texts]:
            try:
                if first is not None and SEPARATOR not in images and b"\\" not in images:  # what a watch mostly reads
                    start = images.find(first.head) + skip
                    if start >= skip and images.count(first.name) == 1:
                        text = first.convert(images[start : images.find(first.tail, start)])
                        if text is not None:
                            return [(text,)]
                return cut(images)
            except UndecodableError as error:
                raise ChangeError(f"{self.name}: a row cannot be decoded: {error}") from error

        def cut(images: bytes) -> list[Texts]:
            found: list[Texts] = []
            for row in images.split(SEPARATOR):
                if b"\\u" in row:  # a name may be spelled so
                    return whole(images)
                texts = []
                for name, head, tail, convert in cells:
                    start = row.find(head)
                    if start < 0 or row.count(name) != 1:
                        return whole(images)
                    start += len(head)
                    text = convert(row[start : row.find(tail, start)])
                    if text is None:
                        return whole(images)
                    texts.append(text)
                found.append(tuple(texts))
            return found

        def whole(images: bytes) -> list[Texts]:
            rows = [self.exact(row) for row in images.split(SEPARATOR)]
            if self.pairs:  # old values may hold the changed columns only
                rows[::2] = [after | before for before, after in zip(rows[::2], rows[1::2], strict=True)]
            try:
                return [tuple(row[name] for name in names) for row in rows]
            except KeyError as error:
                raise ChangeError(f"{self.name}: a row has no column {error}.") from error

        return read

    __hash__ = object.__hash__
    __eq__ = object.__eq__


class LazyAfterImages(LazyTable, AfterImages):
    """The layout of updated rows without the rows before them."""

    __slots__ = ()
