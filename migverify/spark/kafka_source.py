"""Changes in Kafka as a Python data source of Spark: batch and streaming, one Spark partition per topic partition.

A row of the result is what a message held: a change, a watermark, a message without a change, or a reject with its raw
bytes; every message gives at least one row, so that offsets can be counted. Offsets are the query's own (assigned and
sought, no consumer group): ``{topic: {partition: offset}}`` in Spark's checkpoint. Needs pyspark 4.2 and, on every
executor, confluent-kafka.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from migverify.changes.carriers.base import Carried, CarriedItem, Message, Parser, Reject, Skipped, Watermark
from migverify.changes.carriers.formats import Format, check_types
from migverify.changes.carriers.kafka import LOSS_HINT, Login, Offsets, Resolved, bounds, connect, fetch
from migverify.errors import ChangeError, ConfigError, PurgedError
from migverify.model import Flavor

if TYPE_CHECKING:
    import pyarrow
    from confluent_kafka import Consumer
    from pyspark.sql.types import StructType

NAME = "migverify-kafka"

SCHEMA = """
    topic STRING, partition INT, offset BIGINT, item INT, message_time DOUBLE, kind STRING,
    op STRING, table STRING, before MAP<STRING, STRING>, after MAP<STRING, STRING>, gtid STRING, file STRING,
    position BIGINT, time DOUBLE, sql STRING, key MAP<STRING, STRING>, origin STRING, place ARRAY<BIGINT>,
    whole BOOLEAN, snapshot BOOLEAN, complete_to BIGINT, reason STRING, raw_key BINARY, raw_value BINARY
"""

BATCH_ROWS = 2048
DEFAULT_LIMIT = 100_000
_OPTIONS = frozenset({
    "servers", "topics", "format", "starting", "max_messages", "types", "time_zone", "binary", "flavor",
    "security_protocol", "sasl_mechanism", "username_env", "password_env", "ca_file", "certificate_file", "key_file",
    "key_password_env",
})  # fmt: skip
_SECRETS = ("password", "secret", "sasl.password", "sasl_password")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the source, checked. Spark shows options in plans and logs: none of them holds a secret."""

    login: Login
    topics: tuple[str, ...]
    format: Format
    starting: str
    max_messages: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Settings:
        """Return the settings of a source's options; ConfigError for one that is missing, unknown or a secret."""
        given = {name.lower(): text for name, text in options.items()}
        if found := [name for name in given if name in _SECRETS]:
            raise ConfigError(f"option {found[0]} of {NAME} would show in Spark's plans", hint="Use password_env=NAME.")
        if unknown := sorted(set(given) - _OPTIONS - {"path"}):
            raise ConfigError(f"{NAME} has no option {unknown[0]}", hint=f"It has {', '.join(sorted(_OPTIONS))}.")
        for name in ("servers", "topics", "format"):
            if not given.get(name):
                raise ConfigError(f"{NAME} needs the option {name}")
        try:
            types = check_types(json.loads(given.get("types") or "{}"), "option types")
            limit = int(given.get("max_messages", DEFAULT_LIMIT))
            flavor = Flavor(given.get("flavor", Flavor.TIDB))
        except ValueError as error:
            raise ConfigError(f"an option of {NAME} is wrong: {error}") from error
        if limit < 1:
            raise ConfigError(f"max_messages of {NAME} is {limit}", hint="It is 1 or more.")
        login = Login(**{name: given[name] for name in Login.__dataclass_fields__ if name in given})
        zone, binary = given.get("time_zone", ""), given.get("binary", "bytes")
        format_ = Format(given["format"], types, zone, binary, flavor)
        format_.parser()  # wrong options fail here, not in a worker
        topics = tuple(part.strip() for part in given["topics"].split(",") if part.strip())
        return cls(login, topics, format_, given.get("starting", "earliest"), limit)


class KafkaChanges(DataSource):
    """The data source: ``spark.dataSource.register(KafkaChanges)``, then ``format("migverify-kafka")``."""

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return NAME

    def schema(self) -> str:
        """Return the columns."""
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the batch reader: from ``starting`` to the ends of now."""
        del schema
        return _BatchReader(Settings.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - the name is Spark's
        """Return the stream reader."""
        del schema
        return _StreamReader(Settings.of(self.options))


class _Range(InputPartition):
    """The offsets of one topic partition that one task reads; ``end`` is not included."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        super().__init__(f"{topic}/{partition}")
        self.topic, self.partition, self.start, self.end = topic, partition, start, end


class _Reading:
    """What both readers share: the login with its secrets, sent to workers in the pickled reader only."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._login: Resolved = settings.login.resolve()
        self._consumer: Consumer | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_consumer": None}

    def read(self, partition: Any) -> Iterator[pyarrow.RecordBatch]:
        if not isinstance(partition, _Range):  # where there are none Spark asks for one read all the same
            return
        parser = self._settings.format.parser()
        messages = fetch(self._login, partition.topic, partition.partition, partition.start, partition.end)
        yield from _batches(messages, parser)

    def bounds(self) -> dict[tuple[str, int], tuple[int, int]]:
        if self._consumer is None:
            self._consumer = connect(self._login)
        return bounds(self._login, self._consumer, self._settings.topics)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def first(self) -> Offsets:
        """Return where a new query starts, by the option ``starting``."""
        found = self.bounds()
        starting = self._settings.starting
        if starting in ("earliest", "latest"):
            return _nested({here: pair[starting == "latest"] for here, pair in found.items()})
        try:
            given = json.loads(starting)
            flat = {(topic, int(number)): int(at) for topic, parts in given.items() for number, at in parts.items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"starting of {NAME} is not understood", hint='Give earliest, latest, or {"topic": {"0": 17}}.'
            ) from error
        if missing := sorted(set(found) - set(flat)):
            raise ConfigError(f"starting of {NAME} has no offset of {missing[0][0]}/{missing[0][1]}")
        return _nested(flat)


class _BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        start, ends = _flat(self.first()), self.bounds()
        self.close()
        check_loss(start, ends)
        return _ranges(start, {here: high for here, (_, high) in ends.items()})


class _StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of at most ``max_messages`` offsets, shared among the partitions by what each has left."""

    _target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802 - the names of these methods are Spark's
        return self.first()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._settings.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = _nested({here: high for here, (_, high) in self.bounds().items()})

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        known, found = _flat(start), self.bounds()
        check_loss(known, found)
        highs = {here: high for here, (_, high) in found.items()}
        if self._target is not None:
            target = _flat(self._target)
            highs = {here: max(min(high, target.get(here, 0)), known.get(here, 0)) for here, high in highs.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if most is None and not isinstance(limit, ReadAllAvailable):
            raise ConfigError(f"{NAME} does not know the read limit {type(limit).__name__}")
        return _nested(share(known, highs, most))

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        return _nested({here: high for here, (_, high) in self.bounds().items()})

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        return _ranges(_flat(start), _flat(end))

    def stop(self) -> None:
        self.close()


def check_loss(wanted: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], tuple[int, int]]) -> None:
    """Refuse to go on where offsets are gone.

    A partition that is new since the offsets were written is read from 0.

    Raises
    ------
    PurgedError
        The broker has deleted messages that were not read.
    ChangeError
        A partition is gone or ends before the wanted offset: the topic was made anew.
    """
    for (topic, partition), offset in wanted.items():
        if (topic, partition) not in found:
            raise ChangeError(f"Kafka has no partition {topic}/{partition} any more, and it was read to {offset}")
    for (topic, partition), (low, high) in found.items():
        offset = wanted.get((topic, partition), 0)
        if offset < low:
            raise PurgedError(f"Kafka has deleted offsets {offset} to {low - 1} of {topic}/{partition}", hint=LOSS_HINT)
        if offset > high:
            raise ChangeError(f"{topic}/{partition} ends at {high} and was read to {offset}: was the topic made anew?")


def share(
    start: Mapping[tuple[str, int], int], ends: Mapping[tuple[str, int], int], most: int | None
) -> dict[tuple[str, int], int]:
    """Return the next end per partition: ``most`` offsets in all, dealt out in proportion to what each has left.

    Every partition that has something left gets on by 1 at least, so that none starves; the total may exceed
    ``most`` by as many.
    """
    left = {here: high - start.get(here, 0) for here, high in ends.items()}
    total = sum(left.values())
    if most is None or total <= most:
        return dict(ends)
    return {here: start.get(here, 0) + min(count, max(1, count * most // total)) if count else start.get(here, 0)
            for here, count in left.items()}  # fmt: skip


def _ranges(start: Mapping[tuple[str, int], int], end: Mapping[tuple[str, int], int]) -> list[InputPartition]:
    return [
        _Range(*here, start.get(here, 0), until) for here, until in sorted(end.items()) if until > start.get(here, 0)
    ]


def _nested(flat: Mapping[tuple[str, int], int]) -> Offsets:
    nested: Offsets = {}
    for (topic, partition), offset in sorted(flat.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def _flat(nested: Offsets) -> dict[tuple[str, int], int]:
    return {(topic, int(number)): offset for topic, parts in nested.items() for number, offset in parts.items()}


def _batches(messages: Iterator[Message], parser: Parser) -> Iterator[pyarrow.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    for message in messages:
        items = parser.parse(message) or [Skipped("an empty batch", message.place)]
        rows += [_row(message, number, item) for number, item in enumerate(items)]
        if len(rows) >= BATCH_ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)


def _row(message: Message, number: int, item: CarriedItem) -> tuple[Any, ...]:
    place = message.place
    head = (place.topic, place.partition, place.offset, number, message.time)
    if isinstance(item, Carried):
        change, order = item.change, item.order
        return (
            *head, "change", str(change.op), change.table, _pairs(change.before), _pairs(change.after), change.gtid,
            change.file, change.position, change.time, change.sql, item.key, order and order.origin,
            order and order.at, item.whole, item.snapshot, None, None, None, None,
        )  # fmt: skip
    if isinstance(item, Watermark):
        return (*head, "watermark", *(None,) * 14, item.complete_to, None, None, None)
    kind, key, value = ("reject", item.key, item.value) if isinstance(item, Reject) else ("skipped", None, None)
    return (*head, kind, *(None,) * 15, item.reason, key, value)


def _pairs(image: dict[str, str | None] | None) -> list[tuple[str, str | None]] | None:
    return None if image is None else list(image.items())


def _batch(rows: list[tuple[Any, ...]]) -> pyarrow.RecordBatch:
    import pyarrow

    schema = _arrow_schema()
    columns = zip(*rows, strict=True)
    arrays = [pyarrow.array(column, part.type) for column, part in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _arrow_schema() -> pyarrow.Schema:
    import pyarrow

    text, long = pyarrow.string(), pyarrow.int64()
    kinds = {
        "STRING": text, "INT": pyarrow.int32(), "BIGINT": long, "DOUBLE": pyarrow.float64(),
        "BOOLEAN": pyarrow.bool_(), "BINARY": pyarrow.binary(), "MAP<STRING, STRING>": pyarrow.map_(text, text),
        "ARRAY<BIGINT>": pyarrow.list_(long),
    }  # fmt: skip
    parts = SCHEMA.replace("<STRING, STRING>", "<>").split(",")
    named = (part.replace("<>", "<STRING, STRING>").strip().split(" ", 1) for part in parts)
    return pyarrow.schema([(name, kinds[kind]) for name, kind in named])
