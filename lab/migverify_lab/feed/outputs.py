"""Where messages go: a Kafka topic, files, or the folder of TiCDC's storage sink."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from migverify.errors import LabError
from migverify_lab.cache import make_directory
from migverify_lab.feed.canal import CanalEncoder
from migverify_lab.feed.model import DdlEvent, EncodedMessage, Event, FeedTable, RowEvent
from migverify_lab.feed.open_protocol import VERSION, OpenEncoder, events_of

FLUSH_SECONDS = 30.0
LONGEST = 16 * 1024 * 1024
"""Most bytes of a message: a row of long texts is one."""
_LENGTHS = frozenset({"char", "varchar", "binary", "varbinary"})

Encoder = CanalEncoder | OpenEncoder


class FeedOutput(Protocol):
    """Takes events in the order in which readers are to find them. ``partitions``: how many keep an order each."""

    partitions: int

    def send(self, partition: int, events: Sequence[Event]) -> None:
        """Write events behind those that the partition has."""
        ...

    def resolve(self, timestamp: int) -> None:
        """Say on every partition that all changes below a timestamp were sent; returns when readers can see it."""
        ...

    def close(self) -> None:
        """Write what is left and close."""
        ...


class KafkaOutput:
    """A topic; made with ``partitions`` where it does not exist.

    Raises
    ------
    LabError
        the broker does not take a message.
    """

    def __init__(self, encoder: Encoder, servers: str, topic: str, partitions: int) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

        settings: dict[str, Any] = {"bootstrap.servers": servers, "log_level": 2}
        admin = AdminClient(settings)
        topics = admin.list_topics(timeout=FLUSH_SECONDS).topics
        if topic not in topics:
            made = NewTopic(topic, partitions, 1, config={"max.message.bytes": str(LONGEST)})
            for future in admin.create_topics([made]).values():
                future.result()
        self.partitions = len(topics[topic].partitions) if topic in topics else partitions
        self._encoder, self._topic = encoder, topic
        self._producer = Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000,
                                   "message.max.bytes": LONGEST})  # fmt: skip
        self._failure = ""

    def send(self, partition: int, events: Sequence[Event]) -> None:
        """Hand messages to the client library, which keeps their order."""
        for message in self._encoder.batch(events):
            self._produce(partition, message)

    def resolve(self, timestamp: int) -> None:
        """Send a watermark to every partition and wait until the broker has all messages."""
        for partition in range(self.partitions):
            self._produce(partition, self._encoder.resolved(timestamp))
        self._flush()

    def close(self) -> None:
        """Wait until the broker has all messages."""
        self._flush()

    def _produce(self, partition: int, message: EncodedMessage) -> None:
        self._producer.produce(self._topic, value=message.value, key=message.key, partition=partition,
                               on_delivery=self._delivered)  # fmt: skip
        self._producer.poll(0)

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failure = str(error)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_SECONDS)
        if left or self._failure:
            raise LabError(f"Kafka does not take messages: {self._failure or f'{left} are left'}",
                           hint="Look at the broker's log.")  # fmt: skip


class FileOutput:
    """One file a partition: JSON lines of canal-json, or events of the open protocol."""

    def __init__(self, encoder: Encoder, folder: Path, partitions: int) -> None:
        self.partitions = partitions
        self._encoder, self._lines = encoder, isinstance(encoder, CanalEncoder)
        self.paths = [path_of(folder, n, lines=self._lines) for n in range(partitions)]
        make_directory(folder)
        self._files: list[IO[bytes]] = [path.open("ab") for path in self.paths]
        for file in self._files:
            if not self._lines and not file.tell():
                file.write(VERSION)

    def send(self, partition: int, events: Sequence[Event]) -> None:
        """Write the events' messages."""
        for message in self._encoder.batch(events):
            self._write(self._files[partition], message)

    def resolve(self, timestamp: int) -> None:
        """Write a watermark into every file."""
        for file in self._files:
            self._write(file, self._encoder.resolved(timestamp))
            file.flush()

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _write(self, file: IO[bytes], message: EncodedMessage) -> None:
        if self._lines:
            file.write((message.value or b"") + b"\n")
            return
        for key, value in events_of(message):
            file.write(key + value)


def path_of(folder: Path, partition: int, *, lines: bool) -> Path:
    """Return the file of a partition."""
    return folder / f"partition-{partition}.{'jsonl' if lines else 'open'}"


class StorageOutput:
    """The folder of TiCDC's storage sink: data files by table and version, schema files, ``metadata``.

    Written from docs.pingcap.com/tidb/stable/ticdc-sink-to-cloud-storage. Always canal-json, date separator ``none``.
    A data file is closed by the next watermark; it is complete when it has its name.
    """

    partitions = 1

    def __init__(self, encoder: CanalEncoder, folder: Path, start: int) -> None:
        self._encoder, self._folder, self._start = encoder, make_directory(folder), start
        self._versions: dict[str, int] = {}
        self._numbers: dict[Path, int] = {}
        self._waiting: dict[Path, list[bytes]] = {}
        self._metadata(start)

    def send(self, partition: int, events: Sequence[Event]) -> None:
        """Collect rows for the next data files; a DDL begins a new version of its table."""
        del partition
        for event in events:
            if isinstance(event, DdlEvent):
                self._write_files()
                self._schema(event.database, event.table, event.commit, event, None)
            else:
                self._rows(event)

    def resolve(self, timestamp: int) -> None:
        """Write the data files, then the timestamp below which they are complete."""
        self._write_files()
        self._metadata(timestamp)

    def close(self) -> None:
        """Write what is left."""
        self._write_files()

    def _rows(self, event: RowEvent) -> None:
        table = event.table
        if table.name not in self._versions:
            self._schema(table.database, table.table, self._start, None, table)
        folder = self._folder / table.database / table.table / str(self._versions[table.name])
        lines = [message.value or b"" for message in self._encoder.batch([event])]
        self._waiting.setdefault(folder, []).extend(lines)

    def _write_files(self) -> None:
        for folder, lines in self._waiting.items():
            number = self._numbers[folder] = self._numbers.get(folder, 0) + 1
            make_directory(folder / "meta")
            name = f"CDC{number:06d}.json"
            _put(folder / name, b"\r\n".join(lines) + b"\r\n")
            _put(folder / "meta" / "CDC.index", f"{name}\n".encode())
        self._waiting.clear()

    def _schema(self, database: str, table: str, version: int, ddl: DdlEvent | None, layout: FeedTable | None) -> None:
        if table:
            self._versions[f"{database}.{table}"] = version
        columns = None if layout is None else [_schema_column(layout, place) for place in range(len(layout.columns))]
        body = {
            "Table": table, "Schema": database, "Version": 1, "TableVersion": version,
            "Query": "" if ddl is None else ddl.sql, "Type": 0 if ddl is None else ddl.kind,
            "TableColumns": columns, "TableColumnsTotal": str(len(columns or ())),
        }  # fmt: skip
        raw = json.dumps(body, ensure_ascii=False).encode("utf-8")
        folder = make_directory(self._folder / database / table / "meta" if table else self._folder / database / "meta")
        _put(folder / f"schema_{version}_{zlib.crc32(raw):010d}.json", raw)

    def _metadata(self, timestamp: int) -> None:
        _put(self._folder / "metadata", json.dumps({"checkpoint-ts": timestamp}).encode("ascii"))


def _schema_column(table: FeedTable, place: int) -> dict[str, str]:
    column = table.columns[place]
    described = {
        "ColumnName": column.name,
        "ColumnType": column.base.upper() + (" UNSIGNED" if column.unsigned else ""),
    }
    numbers = column.type.partition("(")[2].partition(")")[0].split(",") if column.base not in ("enum", "set") else []
    if numbers and numbers[0].strip().isdigit():
        if column.base in _LENGTHS:
            described["ColumnLength"] = numbers[0]
        elif column.base in ("time", "datetime", "timestamp"):
            described["ColumnScale"] = numbers[0]
        else:
            described |= dict(zip(("ColumnPrecision", "ColumnScale"), numbers, strict=False))
    if not column.nullable:
        described["ColumnNullable"] = "false"
    if column.in_key:
        described["ColumnIsPk"] = "true"
    return described


def _put(path: Path, raw: bytes) -> None:
    partial = path.with_name(f".{path.name}.{time.monotonic_ns()}")
    partial.write_bytes(raw)
    partial.replace(path)
