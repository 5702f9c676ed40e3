"""What every carrier of changes gives: decoded changes, watermarks, and rejects with their reason.

A carrier delivers at least once, in some order, on several partitions. So a decoded change keeps its position in the
carrier (``MessagePosition``) and its order in the source (``SourceOrder``): ``migverify.changes.carriers.sequence``
compares the two. A message is decoded whole or not at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from migverify.changes.model import Change, Op

Types: TypeAlias = Mapping[str, Mapping[str, str]]
"""Declared column types: ``database.table`` -> column -> COLUMN_TYPE as in information_schema."""
Image: TypeAlias = dict[str, str | None]
"""Column -> text of one row."""
Key: TypeAlias = tuple[tuple[str, str | None], ...]
"""Key columns with their texts."""


class UndecodableError(ValueError):
    """A message, or a value in it, cannot be decoded exactly; the text says why. Parsers turn it into a reject."""


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


@dataclass(frozen=True, slots=True)
class SourceOrder:
    """The place of a change in its source: numbers that grow, comparable within one ``origin`` (a server)."""

    origin: str
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Carried:
    """One decoded change.

    ``index`` counts the changes of one message. ``key`` holds the key columns with their texts, None where the
    message does not name a key. ``whole`` says that the images hold every column (a delete may carry the key only);
    ``snapshot`` that the row was read from the table, not from the log. ``sent`` is the message's time, Unix time, 0.0
    where the carrier has none.
    """

    change: Change
    place: MessagePosition
    index: int
    order: SourceOrder | None
    key: Key | None
    whole: bool = True
    snapshot: bool = False
    sent: float = 0.0


@dataclass(frozen=True, slots=True)
class MessageHead:
    """What all changes of a message share: table, commit time, GTID or TSO, and order in the source.

    ``at`` is file and offset in the source's binlog where the message names them, else the message's own place counts.
    """

    message: CarrierMessage
    table: str
    time: float
    gtid: str
    order: SourceOrder | None
    at: tuple[str, int] | None = None

    @classmethod
    def of_commit(
        cls, message: CarrierMessage, table: str, commit: int, at: tuple[str, int] | None = None
    ) -> MessageHead:
        """Return the head of a message that names a commit timestamp of TiDB."""
        return cls(message, table, tso_time(commit), str(commit), SourceOrder("", (commit,)), at)

    def carried(
        self, op: Op, before: Image | None = None, after: Image | None = None, key: Key | None = None, *,
        index: int = 0, whole: bool = True, sql: str = "", snapshot: bool = False,
    ) -> Carried:  # fmt: skip
        """Return one change of the message."""
        place = self.message.place
        file, position = self.at or (f"{place.topic}/{place.partition}", place.offset)
        change = Change(op, self.table, before, after, self.gtid, file, position, self.time, sql)
        return Carried(change, place, index, self.order, key, whole, snapshot, self.message.time)


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
        """Unix time of the timestamp: TiDB's TSO has milliseconds above its lowest 18 bits."""
        return tso_time(self.complete_to)


@dataclass(frozen=True, slots=True)
class SkippedMessage:
    """A message that is understood and carries no change: a tombstone, a heartbeat."""

    reason: str
    place: MessagePosition


@dataclass(frozen=True, slots=True)
class Reject:
    """A dead letter: a message that cannot be decoded, with the reason. It voids the completeness of the stream."""

    reason: str
    place: MessagePosition
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)


CarriedItem: TypeAlias = Carried | Watermark | SkippedMessage | Reject
"""What a carrier yields."""


class Parser(ABC):
    """Decodes the messages of one format."""

    __slots__ = ()

    @abstractmethod
    def decode(self, message: CarrierMessage) -> Iterator[CarriedItem]:
        """Yield what the message holds; UndecodableError where a part of it cannot be decoded exactly."""

    def parse(self, message: CarrierMessage) -> list[CarriedItem]:
        """Return what the message holds; a message that cannot be decoded is one reject, never an exception."""
        try:
            return list(self.decode(message))
        except UndecodableError as error:
            return [Reject(str(error), message.place, message.key, message.value)]


def tso_time(tso: int) -> float:
    """Return Unix time of a TiDB timestamp."""
    return (tso >> 18) / 1000
