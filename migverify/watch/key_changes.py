"""Rows of a change stream -> changes of keys with a digest of the image, in one form for a binlog and for a carrier.

Digests of both sides are compared, so only columns take part whose texts are one on both sides, see ``digest_text``.
What differs in other columns alone is not seen: FLOAT, DOUBLE, JSON and generated columns, columns of two families, of
two scales or of two precisions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TypeAlias

from migverify.changes.decode import decoder
from migverify.changes.model import AfterImages, Begin, Commit, Idle, Item, Op, Position, Rows, Texts
from migverify.model import KeyText
from migverify.watch.touched import WatchedTable, form_of, key_form

UNKNOWN = b""
"""The image of a row that lacks columns of the digest: it may be any."""

DIGEST_FAMILIES = frozenset(
    {"integer", "bit", "year", "decimal", "date", "datetime", "time", "text", "label", "labels", "binary"}
)
"""Families whose values have one text in a binlog and in a carrier."""

Place: TypeAlias = tuple[int, KeyText]
"""Number of the table pair, and the key in its one form."""


@dataclass(frozen=True, slots=True)
class KeyChange:
    """A key's change on one side.

    ``image`` is the digest of the row after it, None where the row is gone, ``UNKNOWN`` where columns are missing.
    ``before`` is that of the row before, None also where that is not known. ``inserted``: the row is known to be new.
    ``position`` is the ordinal of the commit on this side, ``time`` its Unix time, which is shown and never compared.
    ``is_late``: it came after the carrier's promise that nothing before it was left, so it was probably sent again.
    ``writer`` is the connection, account or server that wrote it, empty where the stream does not name it.
    """

    pair: int
    key: KeyText
    image: bytes | None
    position: int = 0
    time: float = 0.0
    before: bytes | None = None
    inserted: bool = False
    is_late: bool = False
    writer: str = ""

    @property
    def place(self) -> Place:
        """What identifies the row on both sides."""
        return self.pair, self.key

    @property
    def changes_nothing(self) -> bool:
        """Whether it is known that the row is as it was before."""
        return bool(self.before) and self.before == self.image


@dataclass(frozen=True, slots=True)
class DigestedTable:
    """A table of one side, and the columns of the digest: (name, family), in the same order on both sides.

    A column has the same family on both sides, which is one of ``DIGEST_FAMILIES``.
    """

    watched: WatchedTable
    columns: tuple[tuple[str, str], ...]


def digest_text(family: str, text: str) -> str:
    """Return a text that is one for equal values, whichever stream shows it; a few unequal values share one."""
    if family in ("text", "label", "labels"):
        return text.rstrip(" ")  # of a CHAR a stream may show the padding
    if family == "binary":
        return text.rstrip("0")  # the same of a BINARY, in hex
    if family == "integer" and "." in text:
        family = "decimal"
    form = key_form(family, text)
    return form.removesuffix(" 00:00:00") if family in ("date", "datetime") else form


def digest_of(columns: Sequence[tuple[str, str]], texts: Texts) -> bytes:
    """Return the digest of one row image."""
    forms = [
        None if text is None else digest_text(family, text) for (_, family), text in zip(columns, texts, strict=True)
    ]
    return blake2b(repr(forms).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def key_changes(table: DigestedTable, event: Rows, *, has_old_values: bool = True) -> Iterator[KeyChange]:
    """Yield the changes of one rows event, without their place; a changed key is a row that is gone and a new one.

    Parameters
    ----------
    has_old_values
        Whether the stream sends updates as such: a changefeed without old values sends them as inserts.

    Raises
    ------
    ChangeError
        the images cannot be decoded, or have no column of the key.
    """
    watched, number = table.watched, table.watched.number
    names = {column.name for column in event.table.columns}
    is_whole = all(name in names for name, _ in table.columns)
    columns = table.columns if is_whole else ()
    width = len(watched.names)
    texts = decoder(event.table, (*watched.names, *(name for name, _ in columns))).texts(event.images)
    rows = [
        (form_of(watched.key, row[:width]), digest_of(columns, row[width:]) if is_whole else UNKNOWN) for row in texts
    ]
    if event.op is Op.INSERT:
        yield from (KeyChange(number, key, image, inserted=has_old_values) for key, image in rows)
    elif event.op is Op.DELETE:
        yield from (KeyChange(number, key, None, before=image) for key, image in rows)
    elif isinstance(event.table, AfterImages):
        yield from (KeyChange(number, key, image) for key, image in rows)
    else:
        for (key, before), (new_key, image) in zip(rows[::2], rows[1::2], strict=True):
            if key == new_key:
                yield KeyChange(number, key, image, before=before)
            else:
                yield KeyChange(number, key, None, before=before)
                yield KeyChange(number, new_key, image, inserted=True)


@dataclass(slots=True)
class KeyChangeReader:
    """Makes of the items of one side's stream its committed transactions.

    Parameters
    ----------
    tables
        (database, table) -> table, as the stream names them.
    ordinal
        The ordinal of a position, see ``FollowedSource``.
    merges
        Whether a transaction's changes of one key become one: of the following side, where a row that is deleted and
        inserted again was replaced. The leading side's are all kept, since the feed may send each.
    """

    tables: Mapping[tuple[str, str], DigestedTable]
    ordinal: Callable[[Position], int]
    merges: bool
    has_old_values: bool = True
    _open: list[KeyChange] = field(default_factory=list)

    def take(self, item: Item) -> tuple[list[KeyChange], int] | None:
        """Take the next item; return the changes of a transaction that ended, and up to where the stream was read."""
        if isinstance(item, Begin):
            self._open.clear()  # a transaction that was cut off begins again after a reconnect
        elif isinstance(item, Rows):
            table = self.tables.get((item.table.database, item.table.table))
            if table is not None:
                self._open += key_changes(table, item, has_old_values=self.has_old_values)
        elif isinstance(item, Commit):
            end = self.ordinal(item.end)
            return self._committed(item, end), end
        elif isinstance(item, Idle):
            return [], self.ordinal(item.at)
        return None

    def _committed(self, item: Commit, end: int) -> list[KeyChange]:
        # A carrier gives what comes late at the position that was reached: its own commit timestamp is earlier.
        own = int(item.gtid) if item.gtid.isdigit() else end
        changes, self._open = self._open, []
        return [
            replace(change, position=own, time=item.time, is_late=own < end)
            for change in (merged(changes) if self.merges else changes)
        ]


def merged(changes: Sequence[KeyChange]) -> list[KeyChange]:
    """Return one change for each key of a transaction; of a row that was new and is gone again there is none."""
    firsts: dict[Place, KeyChange] = {}
    for change in changes:
        firsts.setdefault(change.place, change)
    lasts = {change.place: change for change in changes}
    return [
        replace(last, before=first.before, inserted=first.inserted)
        for first, last in ((firsts[place], last) for place, last in lasts.items())
        if last.image is not None or not first.inserted
    ]
