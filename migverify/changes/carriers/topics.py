"""Kafka topics as a carrier: read once to their ends, or followed without end from the message time of a position on.

A change that was committed after a position was sent after it: its message is not older than the position, less the
difference of the clocks. So a partition is read from the first message of that time on, and a few before it, whose
timestamps prove that the changefeed ran by then.

A watermark is handed on only after the partitions were listed once more: a changefeed writes a change to a new
partition before it sends the watermark beyond it, so no partition is overlooked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence, Set
from contextlib import closing
from typing import TYPE_CHECKING, Any

from migverify.changes.carriers.base import CarriedItem, Heartbeat, MessagePosition, Parser, Reject, Watermark
from migverify.changes.carriers.committed import MARGIN_SECONDS
from migverify.changes.carriers.kafka import (
    ANSWER_SECONDS,
    LOSS_HINT,
    BrokerErrors,
    KafkaSettings,
    OffsetRange,
    bounds,
    connect,
    fetch,
    is_compacted,
    no_answer,
)
from migverify.changes.model import Position
from migverify.changes.positions import tso_time
from migverify.changes.source import RECONNECT_SECONDS, reconnecting
from migverify.errors import ChangeError, EndpointError, LoginError, PurgedError, RetryableReadError
from migverify.secrets import scrub

if TYPE_CHECKING:
    from confluent_kafka import Consumer

HEARTBEAT_SECONDS = 1.0
_POLL_SECONDS = 0.1
_BATCH = 2000
_MOST_ITEMS = 50_000
_EARLIER = 10
"""Messages that are read before the first one of the wanted time."""
_Partition = tuple[str, int]


class KafkaTopics:
    """Topics, read from the first message that the brokers have to their present ends, or followed; see ``Carrier``."""

    def __init__(self, login: KafkaSettings, topics: Sequence[str], parser: Parser) -> None:
        self._login, self._topics = login, topics
        self._parser = parser
        self.bounds = bounds(login, topics)
        self.ends = {here: high for here, (_, high) in self.bounds.items()}
        self.partitions = set(self.bounds)

    def kept_with(self, topic: str, partition: int) -> tuple[str, int] | None:
        """Return the partition."""
        return topic, partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        """Whether nothing of a partition was ever deleted, and its topic was not made anew: another partition is older.

        Then all that was ever written to it is read, whenever it was added.
        """
        del since
        if not any(topic == part[0] for topic, _ in reaching):
            return False
        low, _ = self.bounds.get(part, (0, 0))  # one that was found later is read from its first offset, or refused
        return low == 0 and not is_compacted(self._login, part[0])

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield one partition after the other; PurgedError as ``follow``."""
        starts = {here: low for here, (low, _) in self.bounds.items()}
        if since is not None:
            with closing(connect(self._login)) as consumer:
                starts = {here: first_offset(consumer, here, since) for here in starts}
        for (topic, partition), (_, high) in sorted(self.bounds.items()):
            low = starts[topic, partition]
            for message in fetch(self._login, OffsetRange(topic, partition, low, high)):
                yield from self._parser.parse(message)

    def follow(self, since: Position | None) -> Iterator[CarriedItem | Heartbeat]:
        """Yield all partitions as messages come, those that are added later too.

        Raises
        ------
        PurgedError
            The brokers have deleted messages that may be behind the position, or that were not read yet.
        ChangeError
            A topic is gone, or the brokers do not answer for five minutes.
        """
        reader = TopicReader(self._login, self._topics, self._parser, self.partitions, since)
        yield from reconnecting(reader.read, f"Kafka {self._login.servers}", RECONNECT_SECONDS, lambda: reader.place)


class TopicReader:
    """Reads topics from a position; after a lost connection ``read`` goes on where it stopped.

    Parameters
    ----------
    partitions
        The partitions that are known; those that appear later are added.
    """

    def __init__(
        self, login: KafkaSettings, topics: Sequence[str], parser: Parser, partitions: set[_Partition],
        since: Position | None,
    ) -> None:  # fmt: skip
        self._login, self._topics, self._parser = login, topics, parser
        self._partitions, self._since = partitions, since
        self._next: dict[_Partition, int] = {}
        self._compacted: dict[str, bool] = {}
        self._held: list[CarriedItem] = []
        self._asked = self._beat = 0.0

    @property
    def place(self) -> str:
        """The next offset of each partition."""
        return ", ".join(f"{topic}/{partition}@{offset}" for (topic, partition), offset in sorted(self._next.items()))

    def read(self) -> Iterator[CarriedItem | Heartbeat]:
        """Yield what comes; RetryableReadError when the brokers do not answer."""
        from confluent_kafka import KafkaException

        errors = BrokerErrors()
        with closing(connect(self._login, errors=errors)) as consumer:
            try:
                yield from self._read(consumer)
            except KafkaException as error:
                found = no_answer(self._login, ", ".join(self._topics), error.args[0], consumer, errors)
                raise self._failure(found) from None

    def _read(self, consumer: Consumer) -> Iterator[CarriedItem | Heartbeat]:
        self._assign(consumer)
        while True:
            for received in consumer.consume(_BATCH, timeout=_POLL_SECONDS):
                self._held += self._items(received)
            now = time.monotonic()
            if now - self._asked >= HEARTBEAT_SECONDS / 4 or len(self._held) > _MOST_ITEMS:
                self._find_partitions(consumer)
                yield from self._released()
                if now - self._beat >= HEARTBEAT_SECONDS:
                    self._beat = now
                    yield Heartbeat()
            elif not any(isinstance(item, Watermark) for item in self._held):
                yield from self._released()

    def _released(self) -> list[CarriedItem]:
        items, self._held = self._held, []
        return items

    def _failure(self, error: EndpointError) -> Exception:
        return error if isinstance(error, LoginError) else RetryableReadError(error.message, hint=error.hint)

    def _assign(self, consumer: Consumer) -> None:
        from confluent_kafka import TopicPartition

        self._find_partitions(consumer, assign=False)
        consumer.assign([TopicPartition(*here, offset) for here, offset in self._next.items()])

    def _find_partitions(self, consumer: Consumer, *, assign: bool = True) -> None:
        """Read partitions that are not known yet from their first message on."""
        from confluent_kafka import TopicPartition

        self._asked = time.monotonic()
        first = not self._next
        for topic in self._topics:
            described = consumer.list_topics(topic, timeout=ANSWER_SECONDS / 3).topics[topic]
            if described.error is not None:
                if described.error.retriable():
                    raise RetryableReadError(f"Kafka topic {topic}: {described.error.str()}")
                raise ChangeError(scrub(f"Kafka topic {topic}: {described.error.str()}"))
            for partition in described.partitions:
                here = (topic, partition)
                if here not in self._next:
                    # A partition that was not there before is read whole: what it has lost cannot be older.
                    self._next[here] = self._start_of(consumer, here, first=first)
                    self._partitions.add(here)
                    if assign:
                        consumer.incremental_assign([TopicPartition(*here, self._next[here])])

    def _start_of(self, consumer: Consumer, here: _Partition, *, first: bool) -> int:
        from confluent_kafka import TopicPartition

        if first and self._since is not None:
            return first_offset(consumer, here, self._since)
        low, _ = consumer.get_watermark_offsets(TopicPartition(*here), timeout=ANSWER_SECONDS)
        if low and not first:
            raise PurgedError(f"Kafka has deleted messages of the new partition {here[0]}/{here[1]}", hint=LOSS_HINT)
        return int(low)

    def _items(self, received: Any) -> list[CarriedItem]:
        from confluent_kafka import KafkaError

        error = received.error()
        here = (received.topic(), received.partition())
        if error is None:
            expected, offset = self._next.get(here, received.offset()), received.offset()
            missing = self._missing(here, expected, offset) if offset > expected else []
            self._next[here] = offset + 1
            kind, milliseconds = received.timestamp()
            sent = milliseconds / 1000 if kind else 0.0
            return [*missing, *self._parser.items(received.key(), received.value(), *here, offset, sent)]
        if error.code() == KafkaError._PARTITION_EOF:
            self._next[here] = max(self._next.get(here, 0), received.offset())  # behind markers of transactions too
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise PurgedError(
                f"Kafka has no message at {self._next.get(here)} of {here[0]}/{here[1]}: {error.str()}", hint=LOSS_HINT
            )
        elif error.code() not in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE):
            kind = RetryableReadError if error.retriable() and not error.fatal() else ChangeError
            raise kind(scrub(f"Kafka {here[0]}/{here[1]}: {error.str()}"))
        return []

    def _missing(self, here: _Partition, expected: int, offset: int) -> list[CarriedItem]:
        """Return a reject for offsets that were passed over, where nothing explains it.

        A single offset is the marker that ends a transaction; a compacted topic has any gaps; rows of transactions that
        were aborted lie before their marker, and are read once more to see them.
        """
        if offset == expected + 1:
            return []
        if here[0] not in self._compacted:
            self._compacted[here[0]] = is_compacted(self._login, here[0])
        if self._compacted[here[0]] or self._only_markers(here, expected, offset):
            return []
        place = MessagePosition(*here, expected)
        return [Reject(f"the offsets {expected} to {offset - 1} are missing", place, None, None)]

    def _only_markers(self, here: _Partition, expected: int, offset: int) -> bool:
        """Tell whether single offsets are missing only when rows of aborted transactions are read too."""
        from confluent_kafka import TopicPartition

        last, deadline = expected - 1, time.monotonic() + ANSWER_SECONDS
        with closing(connect(self._login, aborted=True)) as consumer:
            consumer.assign([TopicPartition(*here, expected)])
            while last < offset and time.monotonic() < deadline:
                for received in consumer.consume(_BATCH, timeout=_POLL_SECONDS):
                    there = received.offset()
                    if received.error() is not None or there is None or there - last > 2:
                        return False
                    last = there
                    if last >= offset:
                        return True
        return False


def first_offset(consumer: Consumer, here: _Partition, since: Position) -> int:
    """Return an offset before every message of a partition that was sent after a position.

    Raises
    ------
    PurgedError
        Messages that may be behind the position were deleted.
    """
    from confluent_kafka import TopicPartition

    low, high = consumer.get_watermark_offsets(TopicPartition(*here), timeout=ANSWER_SECONDS)
    wanted = tso_time(since.offset) - MARGIN_SECONDS
    asked = [TopicPartition(*here, max(0, int(wanted * 1000)))]
    (found,) = consumer.offsets_for_times(asked, timeout=ANSWER_SECONDS)
    if found.error is not None:
        raise RetryableReadError(f"Kafka {here[0]}/{here[1]}: {found.error.str()}")
    offset = high if found.offset < 0 else found.offset
    if offset <= low and low > 0:
        raise PurgedError(
            f"Kafka has deleted offsets 0 to {low - 1} of {here[0]}/{here[1]}, and none of those that are left is "
            f"{MARGIN_SECONDS:.0f} s older than the position {since}: changes behind it may be gone.",
            hint=LOSS_HINT,
        )
    return int(max(low, offset - _EARLIER))
