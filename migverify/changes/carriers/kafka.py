"""Reads Kafka partitions from offsets of our own: no consumer group, so no rebalance and no committed offset to trust.

A wanted offset that the broker no longer has is a loss and an error, never a jump (``auto.offset.reset=error``, and the
partition's first offset is read wherever the first message is not the wanted one). Offsets that hold no message
(transaction markers, compaction) are passed; ``migverify.changes.carriers.sequence`` counts them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from migverify.changes.carriers.base import CarrierMessage, MessagePosition
from migverify.errors import (
    ChangeError,
    ConfigError,
    EndpointError,
    LoginError,
    PurgedError,
    UnreachableError,
    wheel_hint,
)
from migverify.secrets import resolve_variable, scrub

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.1  # a batch waits that long for its last message
_BATCH = 500

_UNANSWERED_HINT = (
    "Check the servers (the broker runs, and can be reached from here under this name) and the security settings: "
    "those of reverse.carrier.kafka, or --kafka and its options."
)
_PLAIN = {"servers": "bootstrap.servers", "security_protocol": "security.protocol",
          "sasl_mechanism": "sasl.mechanism", "ca_file": "ssl.ca.location"}  # fmt: skip
_FROM_ENVIRONMENT = {"username_env": "sasl.username", "password_env": "sasl.password"}


@dataclass(frozen=True, slots=True)
class KafkaLogin:
    """How to reach the brokers. Secrets are names of environment variables; ``resolve`` reads them."""

    servers: str
    security_protocol: str = ""
    sasl_mechanism: str = ""
    username_env: str = ""
    password_env: str = ""
    ca_file: str = ""

    def resolve(self) -> KafkaSettings:
        """Return all settings, secrets out of their variables; ConfigError when one is not set."""
        found = {name: getattr(self, part) for part, name in _PLAIN.items() if getattr(self, part)}
        secrets = {
            name: resolve_variable(variable, f"Kafka {name}").reveal()
            for part, name in _FROM_ENVIRONMENT.items()
            if (variable := getattr(self, part))
        }
        return KafkaSettings(self.servers, found | secrets)


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Settings of the client library; what they hold shows in no ``repr``."""

    servers: str
    settings: dict[str, str] = field(repr=False)


class BrokerErrors:
    """What the client library said last of each broker that it could not use: its own errors name none of them."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def __call__(self, error: KafkaError) -> None:
        """Take an error of the library: ``host:port/id: reason (after ...)``."""
        broker, _, reason = error.str().partition(": ")
        if reason:
            self._last[broker.rpartition("/")[0] or broker] = reason.partition(" (after ")[0]

    def text(self) -> str:
        """Return the brokers with their reasons; empty where nothing was said."""
        return "; ".join(f"{broker}: {reason}" for broker, reason in sorted(self._last.items()))


def connect(login: KafkaSettings, *, aborted: bool = False, errors: BrokerErrors | None = None) -> Consumer:
    """Return a consumer that belongs to no group's offsets; ConfigError without the package or for wrong settings.

    ``aborted`` gives messages of aborted transactions too. ``errors`` takes what the brokers said when it is polled.
    """
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise ConfigError("reading Kafka needs the package confluent-kafka", hint=f"{wheel_hint('kafka')}.") from error
    settings: dict[str, Any] = {
        **login.settings,
        "group.id": "migverify",  # the library wants a name; nothing is subscribed or committed under it
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted" if aborted else "read_committed",
        "allow.auto.create.topics": False,
        "queued.max.messages.kbytes": 16384,
        "log_level": 2,
        **({"error_cb": errors} if errors is not None else {}),
    }
    try:
        return Consumer(settings)
    except (KafkaException, ValueError, TypeError) as error:
        raise ConfigError(scrub(f"the Kafka client refuses its settings: {error}")) from None


def bounds(login: KafkaSettings, topics: Sequence[str]) -> dict[tuple[str, int], tuple[int, int]]:
    """Return (topic, partition) -> (first offset, offset after the last message that can be read).

    Raises
    ------
    EndpointError
        The brokers do not answer.
    ChangeError
        A topic does not exist.
    """
    from confluent_kafka import KafkaException, TopicPartition

    found, errors, topic = {}, BrokerErrors(), ""
    with closing(connect(login, errors=errors)) as consumer:
        try:
            for topic in topics:
                described = consumer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic]
                if described.error is not None or not described.partitions:
                    reason = "it has no partitions" if described.error is None else described.error.str()
                    raise ChangeError(f"Kafka topic {topic}: {reason}")
                for partition in described.partitions:
                    here = TopicPartition(topic, partition)
                    found[topic, partition] = consumer.get_watermark_offsets(here, timeout=ANSWER_SECONDS)
        except KafkaException as error:
            raise no_answer(login, topic, error.args[0], consumer, errors) from None
    return found


def is_compacted(login: KafkaSettings, topic: str) -> bool:
    """Whether the brokers remove messages of a topic that later ones replace; False where they do not tell."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]

    asked = ConfigResource(ResourceType.TOPIC, topic)
    try:
        found = AdminClient({**login.settings, "log_level": 2}).describe_configs([asked])[asked].result(ANSWER_SECONDS)
    except (KafkaException, TimeoutError):  # without the right to ask, a gap stays unexplained
        return False
    policy = found.get("cleanup.policy")
    return policy is not None and "compact" in str(policy.value)


def no_answer(
    login: KafkaSettings, topics: str, cause: KafkaError, consumer: Consumer, errors: BrokerErrors
) -> EndpointError:
    """Return the error of brokers that do not answer about topics: which broker, and why."""
    consumer.poll(0)  # lets the library say what it knows of each broker
    return unanswered(f"Kafka {login.servers} does not answer (topic {topics})", cause, errors.text())


def unanswered(what: str, cause: KafkaError, of_brokers: str = "") -> EndpointError:
    """Return the error of brokers that do not answer, or refuse the login; ``of_brokers`` says more than the cause."""
    from confluent_kafka import KafkaError

    refused = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
               KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED}  # fmt: skip
    kind = LoginError if cause.code() in refused else UnreachableError
    return kind(scrub(f"{what}: {of_brokers or cause.str()}"), hint=_UNANSWERED_HINT)


def committed(
    login: KafkaSettings, group: str, topics: Sequence[str]
) -> dict[tuple[str, int], int | None] | None:  # fmt: skip
    """Return what another consumer group has committed: the next offset per partition, None where it has nothing.

    A group that has committed nothing at all may be a wrong name: then nothing is known, and None is the answer.
    """
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    starting = (
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    )
    wanted = [TopicPartition(*here) for here in sorted(bounds(login, topics))]
    consumer = Consumer({**login.settings, "group.id": group, "enable.auto.commit": False, "log_level": 2})
    deadline = time.monotonic() + ANSWER_SECONDS
    try:
        while True:
            try:
                answer = consumer.committed(wanted, timeout=ANSWER_SECONDS)
                break
            except KafkaException as error:
                cause = error.args[0]
                if cause.code() not in starting or time.monotonic() > deadline:
                    raise unanswered(f"Kafka {login.servers} gives no offsets of group {group}", cause) from None
                time.sleep(0.5)
    finally:
        consumer.close()
    offsets = {(part.topic, part.partition): None if part.offset < 0 else part.offset for part in answer}
    return None if all(offset is None for offset in offsets.values()) else offsets


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The messages of a topic partition from offset ``start`` up to, not including, ``end``."""

    topic: str
    partition: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition} from {self.start} to {self.end}"


def fetch(login: KafkaSettings, wanted: OffsetRange, seconds: float = ANSWER_SECONDS) -> Iterator[CarrierMessage]:
    """Yield the messages of a range.

    Raises
    ------
    PurgedError
        The broker has deleted messages of it.
    ChangeError
        The partition ends before the range does, or gives no message for ``seconds``.
    """
    if wanted.start >= wanted.end:
        return
    with closing(connect(login)) as consumer:
        from confluent_kafka import TopicPartition

        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
        yield from _until(consumer, wanted, seconds)


def _until(consumer: Consumer, wanted: OffsetRange, seconds: float) -> Iterator[CarrierMessage]:
    from confluent_kafka import KafkaError

    following, last = wanted.start, time.monotonic()
    while following < wanted.end:
        found: list[Any] = consumer.consume(_BATCH, timeout=_POLL_SECONDS)
        if found:
            last = time.monotonic()
        elif time.monotonic() - last > seconds:
            raise ChangeError(f"Kafka gave nothing for {seconds:.0f} s: {wanted}, at {following}")
        for received in found:
            error = received.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                following = max(following, received.offset())  # behind the markers of transactions too
                if following < wanted.end:
                    raise ChangeError(f"the partition ends at {following}: {wanted}; was the topic made anew?")
                break
            if error is not None:
                _raise(error, wanted, following)
            if following == wanted.start and received.offset() > wanted.start:
                _refuse_loss(consumer, wanted, received.offset())
            if received.offset() >= wanted.end:
                return
            yield _message(received)
            following = received.offset() + 1


def _raise(error: Any, wanted: OffsetRange, following: int) -> None:
    from confluent_kafka import KafkaError

    if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        raise PurgedError(f"Kafka has no message at {following}: {wanted}: {error.str()}", hint=LOSS_HINT)
    if not error.fatal() and error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
        return  # the library connects again; without an answer the time limit ends it
    raise ChangeError(scrub(f"Kafka: {error.str()}: {wanted}"))


LOSS_HINT = "Messages were deleted before they were read: verify the tables anew, and keep messages longer."


def _refuse_loss(consumer: Consumer, wanted: OffsetRange, first: int) -> None:
    """The first message is behind the wanted offset: fine after compaction or markers, a loss after retention."""
    from confluent_kafka import TopicPartition

    low, _ = consumer.get_watermark_offsets(TopicPartition(wanted.topic, wanted.partition), timeout=ANSWER_SECONDS)
    if low > wanted.start:
        raise PurgedError(
            f"Kafka has deleted offsets {wanted.start} to {low - 1} of {wanted} (first: {first})", hint=LOSS_HINT
        )


def _message(received: Any) -> CarrierMessage:
    kind, milliseconds = received.timestamp()
    place = MessagePosition(received.topic(), received.partition(), received.offset())
    return CarrierMessage(place, received.key(), received.value(), milliseconds / 1000 if kind else 0.0)
