"""Applies a carrier's messages to MySQL: the lab's replicator, fed by migverify's decoders instead of a binlog.

Messages are read from the first on, put into the order of commit timestamps by their watermarks, and written by key
with REPLACE and DELETE, so that what comes twice does no harm. The checkpoint is a commit timestamp in the
replicator's table on MySQL, written in the transaction of the rows.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import CarriedItem, CarrierMessage, MessagePosition, Parser
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.committed import VOID, CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.exact_json import Json
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.model import ColumnMap, DecodedTable, Item, Op, Position, Rows, Statement, Texts
from migverify.changes.positions import tso_position
from migverify.errors import LabError
from migverify.sql.quoting import quote_name, quote_text
from migverify_lab.feed.catalog import Catalog
from migverify_lab.feed.model import CODES, FeedColumn
from migverify_lab.feed.open_protocol import VERSION
from migverify_lab.feed.outputs import path_of
from migverify_lab.replicator import Replicator, ReplicatorOptions
from migverify_lab.replicator_stream import OpenStream
from migverify_lab.replicator_target import CHECKPOINTS
from migverify_lab.session import LabServer, connect, execute, query

if TYPE_CHECKING:
    from confluent_kafka import Consumer

GRANTS = "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX, REFERENCES"
POLL_SECONDS = 0.05
_LENGTH = 8


def feed_user(server: LabServer, user: str, databases: Sequence[str]) -> LabServer:
    """Return MySQL as the applier's user, which is made where it does not exist, with what it needs on databases."""
    names = (*databases, CHECKPOINTS.partition(".")[0])
    grants = [f"GRANT {GRANTS} ON {quote_name(database)}.* TO {quote_name(user)}" for database in names]
    with connect(server) as connection:
        execute(connection, f"CREATE USER IF NOT EXISTS {quote_name(user)}", *grants)
    return replace(server, user=user)


# --- reading ------------------------------------------------------------------------------------------------------


class _DeclaredTypes(Mapping[str, Mapping[str, str]]):
    """The types of TiDB's columns by the catalog; FLOAT as DOUBLE, so that no digit is lost on the way to MySQL."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def __getitem__(self, name: str) -> Mapping[str, str]:
        try:
            types = self._catalog.table(*name.split(".", 1)).types
        except LabError:
            raise KeyError(name) from None
        return {column: "double" if kind.lower().startswith("float") else kind for column, kind in types.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog.types())

    def __len__(self) -> int:
        return len(self._catalog.types())


class _ExactOpenProtocol(OpenProtocol):
    """Reads FLOAT as DOUBLE: the text that SELECT gives of a large or small FLOAT has six digits."""

    __slots__ = ()

    def _text(self, column: dict[str, Json], what: str, declared: str | None) -> str | None:
        is_float = exact_json.integer(column.get("t"), "t") == CODES["float"]
        exact = column | {"t": exact_json.Number(str(CODES["double"]))} if is_float else column
        return super()._text(exact, what, declared)


def parser_of(protocol: str, catalog: Catalog) -> Parser:
    """Return the decoder of the feed's messages, whose TIMESTAMPs are in UTC."""
    types = _DeclaredTypes(catalog)
    return CanalJson(types, UTC) if protocol == "canal-json" else _ExactOpenProtocol(types, UTC)


class _ReadFromTheStart(ABC):
    """A ``Carrier`` that is read from its first message on until it is ended, followed or not."""

    __slots__ = ()

    @property
    @abstractmethod
    def ends(self) -> Mapping[tuple[str, int], int]:
        """The partitions, or files; what grows has no end."""

    @abstractmethod
    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield what the messages hold as they come."""

    @property
    def partitions(self) -> Set[tuple[str, int]]:
        """The partitions, or files."""
        return set(self.ends)

    def kept_with(self, topic: str, partition: int) -> tuple[str, int]:
        """Return the partition, or file."""
        return topic, partition

    def is_added(self, part: tuple[str, int], since: Position, reaching: Set[tuple[str, int]]) -> bool:
        """Return False: all is read from the start."""
        del part, since, reaching
        return False

    def follow(self, since: Position | None) -> Iterator[CarriedItem]:
        """Yield what the messages hold as they come."""
        return self.read(since)


@dataclass(slots=True)
class FollowedTopic(_ReadFromTheStart):
    """A topic from its first message on, until ``ended``; a ``Carrier``."""

    servers: str
    topic: str
    parser: Parser
    ended: threading.Event

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """The partitions; a topic that grows has no end."""
        from migverify.changes.carriers.kafka import KafkaLogin, bounds

        return dict.fromkeys(bounds(KafkaLogin(self.servers).resolve(), [self.topic]), 0)

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield what the messages hold as they come, from the first one on."""
        del since
        from confluent_kafka import TopicPartition

        from migverify.changes.carriers.kafka import KafkaLogin
        from migverify.changes.carriers.kafka import connect as connect_kafka

        with closing(connect_kafka(KafkaLogin(self.servers).resolve())) as consumer:
            consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in self.ends])
            while not self.ended.is_set():
                yield from self._received(consumer)

    def _received(self, consumer: Consumer) -> Iterator[CarriedItem]:
        from confluent_kafka import KafkaError

        for message in consumer.consume(500, timeout=POLL_SECONDS):
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF or error.retriable():
                    continue
                raise LabError(f"Kafka: {error.str()}", hint="Look at the broker's log.")
            place = MessagePosition(str(message.topic()), int(message.partition() or 0), int(message.offset() or 0))
            yield from self.parser.parse(CarrierMessage(place, message.key(), message.value()))


@dataclass(slots=True)
class FollowedFiles(_ReadFromTheStart):
    """The files of a feed from their beginnings on, until ``ended``; a ``Carrier``."""

    folder: Path
    count: int
    lines: bool
    parser: Parser
    ended: threading.Event

    @property
    def ends(self) -> Mapping[tuple[str, int], int]:
        """The files; what grows has no end."""
        return {(str(path_of(self.folder, n, lines=self.lines)), 0): 0 for n in range(self.count)}

    def read(self, since: Position | None = None) -> Iterator[CarriedItem]:
        """Yield what the files hold as they grow, from their beginnings on."""
        del since
        places = {Path(name): (0 if self.lines else _LENGTH, 0) for name, _ in self.ends}
        while not self.ended.is_set():
            idle = True
            for path, (at, number) in places.items():
                for message, end in self._messages(path, at, number):
                    places[path] = (end, message.place.offset + 1)
                    idle = False
                    yield from self.parser.parse(message)
            if idle:
                self.ended.wait(POLL_SECONDS)

    def _messages(self, path: Path, at: int, number: int) -> Iterator[tuple[CarrierMessage, int]]:
        """Yield the whole messages behind a place of a file, each with its end."""
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(at)
            raw = file.read()
        used = 0
        while (end := _end_of_line(raw, used) if self.lines else _end_of_event(raw, used)) is not None:
            place = MessagePosition(str(path), 0, number)
            body = raw[used:end]
            used, number = end, number + 1
            if self.lines:
                yield CarrierMessage(place, None, body.strip()), at + used
                continue
            middle = _LENGTH + int.from_bytes(body[:_LENGTH], "big")
            yield CarrierMessage(place, VERSION + body[:middle], body[middle:]), at + used


def _end_of_line(raw: bytes, start: int) -> int | None:
    end = raw.find(b"\n", start)
    return None if end < 0 else end + 1


def _end_of_event(raw: bytes, start: int) -> int | None:
    for _ in range(2):  # key, then value
        if start + _LENGTH > len(raw):
            return None
        start += _LENGTH + int.from_bytes(raw[start : start + _LENGTH], "big")
    return start if start <= len(raw) else None


# --- from decoded texts to what the replicator writes ---------------------------------------------------------------


@dataclass(slots=True)
class TypedRows:
    """Gives rows that are texts the types of MySQL's columns, which say how a value is written.

    Columns that a row lacks (a delete that names its key alone) are NULL. ``is_uncarried`` says of which tables a DDL
    was not carried: their rows go on without the columns that MySQL does not have.
    """

    server: LabServer
    catalog: Catalog
    is_uncarried: Callable[[str], bool] = lambda _: False
    _columns: dict[str, dict[str, ColumnMap]] = field(default_factory=dict)
    _tables: dict[tuple[str, tuple[str, ...]], DecodedTable] = field(default_factory=dict)

    def items(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items of a stream, rows with their types."""
        for item in items:
            if isinstance(item, Statement):
                if item.sql.startswith(VOID):
                    continue
                self._columns.clear()
                self._tables.clear()
                self.catalog.forget()
            yield self._typed(item) if isinstance(item, Rows) else item

    def _typed(self, rows: Rows) -> Rows:
        names = tuple(column.name for column in rows.table.columns)
        known = self._known(rows.table.database, rows.table.table)
        chosen = names
        if rows.op is Op.DELETE and len(names) < len(known):
            chosen = tuple(known)
        if self.is_uncarried(rows.table.name):
            chosen = tuple(name for name in chosen if name in known)
        table = self._tables.get((rows.table.name, chosen))
        if table is None:
            columns = tuple(known.get(name, ColumnMap(name, CODES["text"], 0, False, True)) for name in chosen)
            table = DecodedTable(rows.table.database, rows.table.table, columns)
            self._tables[rows.table.name, chosen] = table
        images = rows.images
        if chosen != names:
            places = [names.index(name) if name in names else None for name in chosen]
            images = DecodedTable.packed([_picked(image, places) for image in DecodedTable.unpacked(images)])
        return replace(rows, table=table, images=images)

    def _known(self, database: str, table: str) -> dict[str, ColumnMap]:
        name = f"{database}.{table}"
        if name not in self._columns:
            self._columns[name] = self._read(database, table)
        return self._columns[name]

    def _read(self, database: str, table: str) -> dict[str, ColumnMap]:
        with connect(self.server) as connection:
            rows = query(
                connection,
                "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS"  # noqa: S608
                f" WHERE TABLE_SCHEMA = {quote_text(database)} AND TABLE_NAME = {quote_text(table)}"
                " AND EXTRA NOT LIKE '%VIRTUAL%' ORDER BY ORDINAL_POSITION",
            )
        return {str(name): FeedColumn(str(name), str(base).lower(), str(kind), charset=str(charset or "")).map
                for name, base, kind, charset in rows}  # fmt: skip


def _picked(image: Sequence[str | None], places: Sequence[int | None]) -> Texts:
    return tuple(None if place is None else image[place] for place in places)


def make_applier(
    options: ReplicatorOptions, follow: Callable[[], FollowedTopic | FollowedFiles], typed: TypedRows, start: int,
    letters: Path,
) -> Replicator:  # fmt: skip
    """Return the replicator that applies a carrier's messages behind its checkpoint, first behind ``start``.

    Like real ones it applies what comes too late, and does not notice what does not come: ``letters`` keeps messages
    that cannot be decoded.
    """

    def begin(since: Position) -> Iterator[Item]:
        dead = DeadLetterFile(letters)
        return typed.items(CommittedChanges(follow(), since, feed_start=start, letters=dead).items())

    open_stream: OpenStream = begin
    return Replicator(options, open_stream, lambda: tso_position(start))
