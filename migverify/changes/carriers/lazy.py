"""Rows of which only the key is decoded: a watch wants no more, and most of a message is something else.

A regular expression is made of a message that was decoded whole: names, types and order of the columns are its literal
text, numbers and values are open. A message that it matches holds the same columns of the same table, each once, and
gives its key at once. Any other message is decoded whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from migverify.changes.carriers.base import Image, UndecodableError
from migverify.changes.model import AfterImages, DecodedTable, Texts
from migverify.errors import ChangeError

SEPARATOR = b"\n"
"""Between the rows of images: no text of a row holds one."""
_BEHIND = b"\t"
"""Behind each text of a row's key; its JSON is the last: no text of a key holds one."""
Kind = TypeVar("Kind", bound=Hashable)
Template = TypeVar("Template")
Convert: TypeAlias = Callable[[str], str | None]
"""The text that SELECT gives of a string of a message; UndecodableError where there is none."""
Exact: TypeAlias = Callable[[bytes, Sequence[str]], Image]
"""The texts of some columns of a row's JSON, of those that it has; UndecodableError where one has none."""


def is_timestamp(raw: bytes) -> bool:
    """Whether digits are a timestamp of TiDB for sure; where not, the message is decoded whole."""
    return len(raw) < 19 and raw.isdigit()


TIMESTAMP = rb"(?:0|[1-9][0-9]{0,17})"
"""A number that is a timestamp of TiDB for sure."""
INTEGER = rb"(-?(?:0|[1-9][0-9]{0,19}))"
"""An integer that a column may hold; others are decoded whole, which refuses them."""
PLAIN = rb'"([^"\\\x00-\x1f]*)"'
"""A string without escapes."""
_STRING = rb'"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?"
STRING, VALUE = b"(?:%s|null)" % _STRING, b"(?:%s|%s|null)" % (_STRING, _NUMBER)


FEWEST = 16
"""Messages of one kind before a pattern is made for them, which takes as long as decoding so many."""
_MOST_KINDS = 10_000


class Kinds(dict[Kind, Template]):
    """The patterns by the kind of message, and how many messages of each kind had none that matched."""

    __slots__ = ("_unmatched",)

    def __init__(self) -> None:
        super().__init__()
        self._unmatched: dict[Kind, int] = {}

    def is_frequent(self, kind: Kind) -> bool:
        """Count a message that no pattern matched; return whether a pattern is worth its time, and begin anew then."""
        count = self._unmatched.pop(kind, 0) + 1
        if count >= FEWEST:
            return True
        if len(self._unmatched) >= _MOST_KINDS:
            self._unmatched.clear()
        self._unmatched[kind] = count
        return False

    def learn(self, kind: Kind, template: Template) -> None:
        """Keep a pattern."""
        if len(self) >= _MOST_KINDS:
            self.clear()
        self[kind] = template


class MessageColumn(NamedTuple):
    """How a column is written in a row: what is before its value and behind it, and which values it may have.

    ``key`` is the pattern of the values of a key column that are decoded here, with one group, empty for other columns.
    ``convert`` gives their text, None where the text is the group itself.
    """

    head: bytes
    value: bytes
    tail: bytes = b""
    key: bytes = b""
    convert: Convert | None = None


def quoted(name: str) -> bytes:
    """Return the name of a column as a message spells it."""
    return json.dumps(name, ensure_ascii=False).encode()


def row_pattern(columns: Sequence[MessageColumn]) -> bytes:
    """Return the pattern of a row with these columns: a group for the row, and one for each key column in it."""
    written = (re.escape(one.head) + (one.key or one.value) + re.escape(one.tail) for one in columns)
    return rb"(\{%s\})" % b",".join(written)


def old_row_pattern(columns: Sequence[MessageColumn]) -> bytes:
    """Return the pattern of a row that may lack columns: those that an update did not change."""
    written = (
        rb"(?:%s%s%s(?:,(?=\")|(?=\})))?" % (re.escape(one.head), one.key or one.value, re.escape(one.tail))
        for one in columns
    )
    return rb"(\{%s\})" % b"".join(written)


class LazyTable(DecodedTable):
    """The layout of rows that are their key and a JSON object. Equal to itself only."""

    __slots__ = ("converts", "exact", "pairs")
    converts: tuple[Convert | None, ...]
    exact: Exact
    pairs: bool

    @classmethod
    def lazy(
        cls, table: DecodedTable, converts: Sequence[Convert | None], exact: Exact, *, pairs: bool
    ) -> LazyTable:  # fmt: skip
        """Return a layout for the rows of a table.

        Parameters
        ----------
        converts
            Gives the text of each key column, in the order of the columns.
        exact
            Decodes columns of one row.
        pairs
            The row before comes in front of each row.
        """
        made = cls(table.database, table.table, table.columns, tuple(sorted(table.key)))
        for name, value in (("converts", tuple(converts)), ("exact", exact), ("pairs", pairs)):
            object.__setattr__(made, name, value)
        return made

    def image(self, row: bytes, key: Sequence[bytes]) -> bytes | None:
        """Return a row with the texts of its key; None where one has no text: the whole message is decoded then."""
        try:
            if self.converts == _ITSELF:
                return key[0] + _BEHIND + row
            texts = [
                raw if convert is None else (convert(raw.decode("utf-8")) or "").encode("utf-8")
                for convert, raw in zip(self.converts, key, strict=True)
            ]
        except (UnicodeDecodeError, UndecodableError):
            return None
        return _BEHIND.join((*texts, row))

    def old_image(self, row: bytes, old_key: Sequence[bytes | None], key: Sequence[bytes]) -> bytes | None:
        """Return the row before an update; the parts of its key that it lacks are those of the row after it."""
        return self.image(row, [new if old is None else old for old, new in zip(old_key, key, strict=False)])

    def reader(self, places: tuple[int, ...]) -> Callable[[bytes], list[Texts]]:
        """Return a function that gives the wanted columns of every row."""
        if not set(places) <= set(self.key):
            return self._decoder([self.columns[n].name for n in places])
        parts = [self.key.index(n) for n in places]

        def read_one(images: bytes) -> list[Texts]:
            return [(row[: row.index(_BEHIND)].decode("utf-8"),) for row in images.split(SEPARATOR)]

        def read(images: bytes) -> list[Texts]:
            keys = [row.split(_BEHIND) for row in images.split(SEPARATOR)]
            return [tuple(key[n].decode("utf-8") for n in parts) for key in keys]

        return read_one if parts == [0] else read

    def _decoder(self, names: Sequence[str]) -> Callable[[bytes], list[Texts]]:
        """Return a function that decodes the JSON of rows."""

        def read(images: bytes) -> list[Texts]:
            try:
                rows = [self.exact(row.rpartition(_BEHIND)[2], names) for row in images.split(SEPARATOR)]
            except UndecodableError as error:
                raise ChangeError(f"{self.name}: a row cannot be decoded: {error}") from error
            if self.pairs:  # old values may hold the changed columns only
                rows[::2] = [after | before for before, after in zip(rows[::2], rows[1::2], strict=True)]
            return [tuple(row[name] for name in names) for row in rows]

        return read

    __hash__ = object.__hash__
    __eq__ = object.__eq__


_ITSELF = (None,)


class LazyAfterImages(LazyTable, AfterImages):
    """The layout of updated rows without the rows before them."""

    __slots__ = ()
