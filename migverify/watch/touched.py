"""Row images of the change stream -> keys that must be read again.

Only the key columns of an image are decoded. A key is kept in one form per value (``key_form``), so that the text of
the binlog and the text of a row list name the same row.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import cycle, repeat

from migverify.changes.decode import decoder
from migverify.changes.model import AfterImages, DecodedTable, Op, Rows, Texts
from migverify.errors import ChangeError
from migverify.model import KeyText
from migverify.sql.key_range import KeyColumn

DATE_LENGTH = len("2026-01-31")
_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True)
class WatchedTable:
    """One table of a pair in the stream of one source endpoint.

    ``number`` is the pair's number in the ledger. ``names`` are the source's key columns as the stream names them,
    empty for a table without a key. ``immutable`` is (column, first mutable value as text) or None.
    """

    number: int
    endpoint: str
    database: str
    table: str
    names: tuple[str, ...]
    key: tuple[KeyColumn, ...]
    immutable: tuple[str, str] | None = None


def key_form(family: str, text: str) -> str:
    """Return the one text of a key value: numbers without padding or trailing zeros, moments without a zero fraction.

    Takes the binlog's text (BIT as ``0x`` and hex) and that of a row list. Raises ValueError or ArithmeticError for a
    text that is no value of the family.
    """
    if family in ("integer", "year"):
        if not _INTEGER.fullmatch(text):  # what int() takes beyond that is no number of a server
            raise ValueError(text)
        return str(int(text))
    if family == "bit":
        return str(int(text, 16) if text.startswith("0x") else int(text))
    if family == "decimal":
        number = f"{Decimal(text):f}"
        whole = number.rstrip("0").rstrip(".") if "." in number else number
        return "0" if whole in ("-0", "") else whole
    if family in ("date", "datetime", "time") and "." in text:
        return text.rstrip("0").rstrip(".")
    if family == "float":
        return repr(float(text))
    return text


def form_of(key: Sequence[KeyColumn], texts: Texts) -> KeyText:
    """Return the key of one row in its one form; NULL parts stay None."""
    return tuple(None if t is None else key_form(c.family, t) for c, t in zip(key, texts, strict=True))


def touched_keys(watched: WatchedTable, event: Rows) -> Iterator[KeyText]:
    """Yield the key of every image of an event; an UPDATE gives those before and after it.

    Raises
    ------
    ChangeError
        the images cannot be decoded, a key column is gone from the table, or holds what its type cannot hold.
    """
    texts = decoder(event.table, watched.names).texts(event.images)
    if all(c.family == "integer" for c in watched.key) and not isinstance(event.table, DecodedTable):
        yield from texts  # an integer of the binlog has one form already
        return
    for image in texts:
        try:
            yield form_of(watched.key, image)
        except (ValueError, ArithmeticError) as error:
            types = ", ".join(column.family for column in watched.key)
            raise ChangeError(f"{event.table.name}: {image!r:.200} is no key of the types {types}") from error


def immutable_changes(watched: WatchedTable, event: Rows) -> list[KeyText]:
    """Return the keys of images that lie in the range declared immutable."""
    if watched.immutable is None:
        return []
    column, bound = watched.immutable
    found = []
    for image in decoder(event.table, (*watched.names, column)).texts(event.images):
        value = image[-1]
        # ISO texts of DATETIME and TIMESTAMP sort like the moments; a DATE is the beginning of its day.
        if value is not None and (value if len(value) > DATE_LENGTH else f"{value} 00:00:00") < bound:
            found.append(form_of(watched.key, image[:-1]))
    return found


def leaves_rows(event: Rows) -> Iterator[bool]:
    """Yield for each image of an event, without end, whether it is that of a row after the change."""
    if event.op is Op.UPDATE and not isinstance(event.table, AfterImages):
        return cycle((False, True))
    return repeat(event.op is not Op.DELETE)


@dataclass(slots=True)
class Touches:
    """Keys touched since the last flush: (pair number, key) -> (count, ordinal of the last commit, source number).

    ``open`` holds those of transactions that have not ended: they count from the commit on, with its place. ``there``
    are those whose last change left a row; ``firsts`` has the place of the first change where that is not the last one:
    of keys of several transactions, and of those that were sent again, which is before that of the transaction.
    """

    done: dict[tuple[int, KeyText], tuple[int, int, int]] = field(default_factory=dict)
    open: dict[tuple[int, KeyText], tuple[int, bool]] = field(default_factory=dict)
    there: set[tuple[int, KeyText]] = field(default_factory=set)
    firsts: dict[tuple[int, KeyText], int] = field(default_factory=dict)

    def add(self, number: int, keys: Iterator[KeyText], leaves: Iterable[bool]) -> None:
        """Count keys of the transaction under way; ``leaves`` says of each image whether it is that of a row now."""
        opened = self.open
        for key, left in zip(keys, leaves, strict=False):
            place = (number, key)
            before = opened.get(place)
            opened[place] = (1 if before is None else before[0] + 1, left)

    def commit(self, ordinal: int, source: int, late: int | None = None) -> None:
        """Count the keys of the transaction: it ended. ``late`` is its own place where it was sent again behind it."""
        for place, (count, left) in self.open.items():
            if left:
                self.there.add(place)
            else:
                self.there.discard(place)
            before = self.done.get(place)
            if before is not None or late is not None:
                known = [ordinal if late is None else late, *([before[1]] if before is not None else [])]
                self.firsts[place] = min(self.firsts.get(place, known[0]), *known)
            self.done[place] = (count + (before[0] if before else 0), ordinal, source)
        self.open.clear()

    def forget(self) -> None:
        """Drop the keys of the transaction: it did not end, the stream was cut and begins it again."""
        self.open.clear()
