"""What every carrier of changes gives: changes as the events of a binlog, watermarks, and rejects with their reason.

A carrier delivers at least once, in some order, on several partitions. So a change keeps its position in the carrier
(``MessagePosition``) and its order in the source (``SourceOrder``): ``migverify.changes.carriers.sequence`` compares
the two, and ``migverify.changes.carriers.committed`` makes transactions of them again. A message is decoded whole or
not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple, Protocol, TypeAlias

from migverify.changes.carriers.recognition import recognized
from migverify.changes.model import AfterImages, DecodedTable, Op, Position, Rows, Statement
from migverify.changes.positions import before, file_number, tso_position, tso_time
from migverify.changes.statements import QueryKind, classify

Types: TypeAlias = Mapping[str, Mapping[str, str]]
"""Declared column types: ``database.table`` -> column -> COLUMN_TYPE as in information_schema."""
Image: TypeAlias = dict[str, str | None]
"""Column -> text of one row."""
Key: TypeAlias = tuple[tuple[str, str | None], ...]
"""Key columns with their texts."""


class UndecodableError(ValueError):
    """A message, or a value in it, cannot be decoded exactly; the text says why. Parsers turn it into a reject.

    ``tables`` are the tables that the message changes, where that much of it was decoded; empty is any table.
    """

    tables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class MessagePosition:
    """Where a message is in its carrier. For a file ``topic`` is its path; ``offset`` counts messages from 0."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


@dataclass(frozen=True, slots=True)
class CarrierMessage:
    """One message as it was received. ``time`` is Unix time of the broker or producer, 0.0 when there is none."""

    place: MessagePosition
    key: bytes | None
    value: bytes | None
    time: float = 0.0


class SourceOrder(NamedTuple):
    """The place of a change in its source: a commit timestamp of TiDB, or file and offset in the binlog of a server.

    ``server`` is empty for TiDB: places of two servers do not compare. ``row`` counts the rows at one place.
    """

    position: Position
    server: str = ""
    row: int = 0

    @classmethod
    def in_binlog(cls, file: str, offset: int, server_id: int, row: int) -> SourceOrder | None:
        """Return a place in the binlog of a server; None where the file has no number to order it by."""
        return None if file_number(file) is None else cls(Position(file, offset), f"server {server_id}", row)

    def is_before(self, other: SourceOrder) -> bool:
        """Whether this is known to be earlier."""
        if self.server != other.server:
            return False
        if self.position == other.position:
            return self.row < other.row
        return before(self.position, other.position)


@dataclass(frozen=True, slots=True)
class Carried:
    """One decoded change: its event as a binlog gives it, with GTID (or TSO) and Unix time of the transaction's commit.

    ``order`` is None where the message does not tell it. ``index`` counts the changes of one message. ``key`` holds the
    key columns with their texts, None where the message does not name a key. ``snapshot`` says that the row was read
    from the table, not from the log. ``sent`` is the message's time, Unix time, 0.0 where the carrier has none.
    """

    event: Rows | Statement
    gtid: str
    time: float
    place: MessagePosition
    index: int
    order: SourceOrder | None
    key: Key | None = None
    snapshot: bool = False
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class MessageHead:
    """What all changes of a message share: table, commit time, GTID or TSO, and order in the source."""

    message: CarrierMessage
    database: str
    table: str
    time: float
    gtid: str
    order: SourceOrder | None

    @classmethod
    def of_commit(cls, message: CarrierMessage, database: str, table: str, commit: int) -> MessageHead:
        """Return the head of a message that names a commit timestamp of TiDB."""
        return cls(message, database, table, tso_time(commit), str(commit), SourceOrder(tso_position(commit)))

    @property
    def name(self) -> str:
        """``database.table``."""
        return f"{self.database}.{self.table}"

    @property
    def at(self) -> tuple[str, int]:
        """File and offset of the change: in the source's binlog where the message names them, else its own place."""
        place = self.message.place
        if self.order is not None and self.order.server:
            return self.order.position.file, self.order.position.offset
        return f"{place.topic}/{place.partition}", place.offset

    def rows(
        self, op: Op, image_before: Image | None, image: Image | None, key: Iterable[str] = (), *, index: int = 0,
        snapshot: bool = False,
    ) -> Carried:  # fmt: skip
        """Return one changed row: its images before and after, one of them None for an insert or a delete.

        An update without the row before it is one of ``AfterImages``. ``key`` are the columns that the message names as
        the key.
        """
        images = [one for one in (image_before, image) if one is not None]
        row, key_names = images[-1], tuple(key)
        if any(one.keys() != row.keys() for one in images):
            raise UndecodableError("the row before has other columns than the row after")
        for name in key_names:
            if name not in row:
                raise UndecodableError(f"column {name[:60]!r} of the key is not in the row")
        layout = _after_layout if op is Op.UPDATE and image_before is None else _layout
        table = layout(self.database, self.table, tuple(row), key_names)
        packed = table.packed([tuple(one[name] for name in row) for one in images])
        named = tuple((name, row[name]) for name in key_names) or None
        return self._carried(Rows(op, table, packed, *self.at, int(self.time)), named, index, snapshot=snapshot)

    def statement(self, sql: str, *, truncates: bool = False, index: int = 0, snapshot: bool = False) -> Carried:
        """Return one statement; ``truncates`` where the message says so without a text."""
        read = classify(sql, self.database)
        op = Op.TRUNCATE if truncates or read.kind is QueryKind.TRUNCATE else Op.DDL
        tables = read.tables or (((self.database, self.table),) if self.database else ())
        event = Statement(op, tables, sql, self.database, *self.at, int(self.time))
        return self._carried(event, None, index, snapshot=snapshot)

    def _carried(self, event: Rows | Statement, key: Key | None, index: int, *, snapshot: bool) -> Carried:
        message = self.message
        return Carried(event, self.gtid, self.time, message.place, index, self.order, key, snapshot, message.time)


_layout = lru_cache(maxsize=4096)(DecodedTable.of)
_after_layout = lru_cache(maxsize=4096)(AfterImages.of)


@dataclass(frozen=True, slots=True)
class Watermark:
    """Every change of the partition with a commit timestamp below ``complete_to`` (a TiDB TSO) was sent before it.

    ``everywhere``: every change of all partitions.
    """

    complete_to: int
    place: MessagePosition
    everywhere: bool = False

    @property
    def time(self) -> float:
        """Unix time of the timestamp."""
        return tso_time(self.complete_to)


@dataclass(frozen=True, slots=True)
class SkippedMessage:
    """A message that is understood and carries no change: a tombstone, a heartbeat."""

    reason: str
    place: MessagePosition


@dataclass(frozen=True, slots=True)
class Reject:
    """A dead letter: a message that cannot be decoded, with the reason. It voids the completeness of the stream.

    ``tables`` as in ``UndecodableError``. ``looks_like`` names another format that the message is in, empty for none.
    Messages that are missing are a reject too, without key and value.
    """

    reason: str
    place: MessagePosition
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    tables: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    looks_like: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The reader of a followed carrier is alive. It comes about every second, beside all else."""


class CarriedRow(NamedTuple):
    """One changed row of a commit timestamp whose columns are not decoded: what a watch needs of a ``Carried``."""

    commit: int
    table: DecodedTable
    op: Op
    images: bytes
    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> MessagePosition:
        """Where the message is."""
        return MessagePosition(self.topic, self.partition, self.offset)


CarriedItem: TypeAlias = Carried | CarriedRow | Watermark | SkippedMessage | Reject
"""What the messages of a carrier hold."""


class Carrier(Protocol):
    """Messages that can be read: files, a storage sink, Kafka topics."""

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """The partitions by (topic, partition), and the offset at which each ends now; files have none."""
        ...

    @property
    def partitions(self) -> Set[tuple[str, int]]:
        """The (topic, partition)s that are known by now: each needs a watermark of its own, or one for everything."""
        ...

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Return what a partition's messages are kept and deleted with: the partition, or the folder that it is in.

        None where they say nothing about how far back the others are kept.
        """
        ...

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        """Whether a part (as of ``kept_with``) is known to have begun after a position, and is whole from there on.

        ``reaching`` are the parts that reach back to the position: by them the changefeed ran then.
        """
        ...

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield what the messages hold, in the order of the carrier; ``since`` and errors as ``follow``."""
        ...

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Yield what the messages hold and go on as more come, without end.

        Parameters
        ----------
        since
            Every change behind this position is given, those before it may be left out. None gives all.

        Raises
        ------
        PurgedError
            Messages behind the position are gone.
        ChangeError
            The carrier cannot be read on.
        """
        ...


class Parser(ABC):
    """Decodes the messages of one format; ``name`` is the format's."""

    __slots__ = ()
    name: ClassVar[str] = "another format"

    @abstractmethod
    def decode(self, message: CarrierMessage) -> Iterator[CarriedItem]:
        """Yield what the message holds; UndecodableError where a part of it cannot be decoded exactly."""

    def items(
        self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int, time: float = 0.0
    ) -> Sequence[CarriedItem]:  # fmt: skip
        """Return what a message holds; where only keys are wanted, a row that is not decoded."""
        row = self.row(key, value, topic, partition, offset)
        if row is not None:
            return (row,)
        message = CarrierMessage(MessagePosition(topic, partition, offset), key, value, time)
        found = self.parse(message)
        if len(found) == 1 and isinstance(found[0], Carried) and self.learn(message, found[0]):
            row = self.row(key, value, topic, partition, offset)
        return found if row is None else (row,)

    def row(
        self, key: bytes | None, value: bytes | None, topic: str, partition: int, offset: int
    ) -> CarriedRow | None:  # fmt: skip
        """Return the row of a message that is like one that was learned, else None."""
        del key, value, topic, partition, offset
        return None

    def learn(self, message: CarrierMessage, item: Carried) -> bool:
        """Learn from a message that was decoded whole; return whether messages like it are known now."""
        del message, item
        return False

    def parse(self, message: CarrierMessage) -> list[CarriedItem]:
        """Return what the message holds; a message that cannot be decoded is one reject, never an exception."""
        try:
            return list(self.decode(message))
        except UndecodableError as error:
            return [self.reject(message, error)]

    def reject(self, message: CarrierMessage, error: UndecodableError) -> Reject:
        """Return the dead letter of a message."""
        seen = recognized(message.key, message.value)
        looks_like = seen if seen != self.name else ""
        return Reject(str(error), message.place, message.key, message.value, error.tables, looks_like)
