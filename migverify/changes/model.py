"""The nouns of change streams: frozen, typed, without I/O.

A change stream is a sequence of items: a ``Begin``, then ``Rows`` and ``Statement`` in the order of the binlog, then
a ``Commit``; ``Idle`` may come between two transactions. Row images stay bytes until somebody needs their text
(``migverify.changes.decode``), because most readers want the key columns only.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

from migverify.errors import ChangeError

Texts: TypeAlias = tuple[str | None, ...]
"""One row image: per decoded column the text that SELECT gives, ``0x`` and lower-case hex for binary, a number for BIT;
None is NULL."""

Wanted: TypeAlias = Callable[[str, str], bool]
"""Whether a table, by database and name, is in scope."""


class Op(StrEnum):
    """What a change did."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"
    TRUNCATE = "truncate"
    DDL = "ddl"


@dataclass(frozen=True, slots=True)
class Position:
    """A place between two transactions: everything before it was read, nothing after it.

    ``offset`` counts bytes in ``file``. ``gtids`` is the executed set at that place in the server's own text, empty
    where the server writes no GTIDs. For a place in the changes of TiDB see ``positions.tso_position``.
    """

    file: str
    offset: int
    gtids: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """One column as a table map describes it.

    ``type_code`` is the protocol's type number with ENUM, SET and long CHAR distinguished from STRING, ``meta``
    the type's own metadata (length, fraction digits, precision << 8 | scale, bytes of a length). ``charset`` is the
    server's name of the character set, ``binary`` for byte strings, empty for types without one. ``labels`` are the
    ENUM or SET members.
    """

    name: str
    type_code: int
    meta: int
    unsigned: bool
    nullable: bool
    charset: str = ""
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableMap:
    """The layout of a table at one moment of the stream. ``key`` holds the places of the primary key's columns."""

    database: str
    table: str
    columns: tuple[ColumnMap, ...]
    key: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"


class DecodedTable(TableMap):
    """A layout of rows that a carrier sends as texts: ``packed`` makes their ``Rows.images``, ``unpacked`` reads them.

    Of its columns only the names are known.
    """

    __slots__ = ()

    @classmethod
    def of(cls, database: str, table: str, names: tuple[str, ...], key: Iterable[str]) -> DecodedTable:
        """Return the layout of columns by their names, ``key`` among them."""
        columns = tuple(ColumnMap(name, type_code=0, meta=0, unsigned=False, nullable=True) for name in names)
        return cls(database, table, columns, tuple(names.index(name) for name in key))

    @staticmethod
    def packed(images: Sequence[Texts]) -> bytes:
        """Return images as bytes."""
        return json.dumps(images).encode("ascii")

    def reader(self, places: tuple[int, ...]) -> Callable[[bytes], list[Texts]]:
        """Return a function that gives the columns at some places of every image."""
        return lambda images: [tuple(image[n] for n in places) for image in self.unpacked(images)]

    @staticmethod
    def unpacked(images: bytes) -> list[list[str | None]]:
        """Return the images of ``packed``."""
        found: list[list[str | None]] = json.loads(images)
        return found


class AfterImages(DecodedTable):
    """The layout of updated rows that a changefeed without old values sends: one image of each row, the one after it.

    Such a changefeed splits an update of the key into a delete and an insert, so the key is that of the row before too.
    All other values of the row before are not known.
    """

    __slots__ = ()


class UnreadableTable(TableMap):
    """A layout of which only the name and the width are known.

    It holds a type that this version does not know, or the images of its rows lack columns. Whoever leaves it out never
    notices; whoever asks for its columns, and so every reader that has it in scope, gets the ChangeError that says why.
    Equal to itself only.
    """

    __slots__ = ("error", "width")
    error: ChangeError
    width: int

    def __init__(self, database: str, table: str, width: int, error: ChangeError) -> None:
        for name, value in (("database", database), ("table", table), ("width", width), ("error", error)):
            object.__setattr__(self, name, value)

    @property
    def columns(self) -> tuple[ColumnMap, ...]:
        """Raise why they cannot be read."""
        raise ChangeError(self.error.message, hint=self.error.hint)

    @property
    def key(self) -> tuple[int, ...]:
        """Raise why it cannot be read."""
        raise ChangeError(self.error.message, hint=self.error.hint)

    def before(self, end: Position) -> UnreadableTable:
        """Return the same with an error that says where a reader without this transaction begins."""
        places = [str(end), *([end.gtids] if end.gtids else [])]
        hint = f"{self.error.hint or ''} A reader begins behind this transaction at {' or '.join(places)}.".strip()
        return UnreadableTable(self.database, self.table, self.width, ChangeError(self.error.message, hint=hint))

    def __reduce__(self) -> tuple[object, ...]:
        return UnreadableTable, (self.database, self.table, self.width, self.error)

    def __repr__(self) -> str:
        return f"UnreadableTable({self.name!r}, {self.error.message!r})"

    __hash__ = object.__hash__
    __eq__ = object.__eq__


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction starts. ``gtid`` is empty for an anonymous one; ``time`` is Unix time of its commit on the source.

    ``bytes`` is the transaction's length in the binlog where its GTID event says so, else 0.
    """

    gtid: str
    start: Position
    time: float
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Rows:
    """One rows event: full images of rows of one table.

    ``images`` holds the packed images; of an UPDATE, before and after take turns. ``offset`` is the event's end in
    ``file`` (that of the containing event for a compressed transaction), ``time`` the statement's start, Unix time. A
    carrier that does not name the binlog gives its own place.
    """

    op: Op
    table: TableMap
    images: bytes
    file: str
    offset: int
    time: int


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the stream that changes rows or tables without row images: TRUNCATE and DDL.

    ``tables`` are the ``(database, table)`` it names, as far as they are known; empty means unknown. An empty
    table name means the whole database.
    ``user`` is ``user@host`` where the source logs the invoker, else empty. ``thread`` is the connection that sent it.
    """

    op: Op
    tables: tuple[tuple[str, str], ...]
    sql: str
    database: str
    file: str
    offset: int
    time: int
    user: str = ""
    thread: int = 0


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction is complete: from ``end`` on, a reader may resume. ``gtid`` as in its Begin.

    ``is_late``: a carrier sent it again behind ``end``, and who applies it may write its old rows once more.
    """

    gtid: str
    end: Position
    time: float
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing was written up to ``at``: a heartbeat of the server, or the end of a file. ``time`` is Unix time here."""

    at: Position
    time: float


Item: TypeAlias = Begin | Rows | Statement | Commit | Idle
"""What a change stream yields; a Commit and an Idle say up to where it is complete."""


class ChangeSource(Protocol):
    """Committed changes that can be read: a binlog, or what ``carriers.committed`` makes of a carrier's messages."""

    def items(self) -> Iterator[Item]:
        """Yield what there is, in the order of the source; Commit and Idle say up to where it is complete."""
        ...
