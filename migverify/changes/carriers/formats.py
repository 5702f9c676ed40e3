"""The formats by name: how their parsers are made from plain options, and how files hold their messages.

A new carrier is a module with a parser, and a row of ``_FORMATS``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from pathlib import Path
from typing import NamedTuple

from migverify.changes.carriers.base import Carrier, Parser, Types, UndecodableError
from migverify.changes.carriers.canal_json import CanalJson
from migverify.changes.carriers.column_text import find_zone, parse_type
from migverify.changes.carriers.debezium import Debezium
from migverify.changes.carriers.debezium_text import BINARY_MODES
from migverify.changes.carriers.files import MessageFiles, Split, json_lines, open_protocol_events
from migverify.changes.carriers.kafka import KafkaLogin
from migverify.changes.carriers.open_protocol import OpenProtocol
from migverify.changes.carriers.storage_folder import StorageFolder
from migverify.changes.carriers.topics import KafkaTopics
from migverify.errors import ConfigError, UsageError
from migverify.model import Flavor


@dataclass(frozen=True, slots=True)
class CarrierFormat:
    """A format and what its messages leave open."""

    name: str
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    time_zone: str = ""
    binary: str = "bytes"
    flavor: Flavor = Flavor.TIDB
    keys_only: bool = False

    def parser(self) -> Parser:
        """Return a new parser.

        Raises
        ------
        UsageError
            There is no such format or binary mode.
        ConfigError
            The time zone or a column type is not understood.
        """
        zone = find_zone(self.time_zone) if self.time_zone else None
        for table, columns in self.types.items():
            for column, column_type in columns.items():
                try:
                    parse_type(column_type, self.flavor)
                except UndecodableError as error:
                    raise ConfigError(f"the type of {table}.{column}: {error}") from error
        form = _FORMATS.get(self.name)
        if form is None:
            raise UsageError(f"there is no format {self.name!r}", hint=f"Formats are {', '.join(_FORMATS)}.")
        if self.binary not in BINARY_MODES:
            modes = ", ".join(sorted(BINARY_MODES))
            raise UsageError(f"there is no binary handling {self.binary!r}", hint=f"It is one of {modes}.")
        return form.make(self, zone)

    def files(self, paths: Sequence[Path], marks: Path | None = None) -> Carrier:
        """Return the messages of files, or of one folder of TiCDC's storage sink; errors as ``parser``.

        ``marks`` as for ``MessageFiles``; the sink writes each file of its folder once.

        Raises
        ------
        UsageError
            A folder is named beside something else, or the format is not canal-json.
        """
        parser = self.parser()
        if not any(path.is_dir() for path in paths):
            return MessageFiles(paths, parser, _FORMATS[self.name].split, marks)
        if len(paths) > 1 or self.name != "canal-json":
            raise UsageError("a folder of TiCDC's storage sink is read alone, as canal-json")
        return StorageFolder(paths[0], parser)


@dataclass(frozen=True, slots=True)
class CarrierSource:
    """Where the messages of a carrier are: topics of Kafka, or files; and their format."""

    format: CarrierFormat
    kafka: KafkaLogin | None = None
    topics: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def carrier(self, *, keys_only: bool = False, marks: Path | None = None) -> Carrier:
        """Return the messages; errors as ``CarrierFormat`` and ``KafkaTopics``.

        ``keys_only`` leaves columns undecoded until a reader wants their texts. ``marks`` as for ``MessageFiles``.
        """
        form = replace(self.format, keys_only=keys_only)
        if self.kafka is not None:
            parser = form.parser()
            return KafkaTopics(self.kafka.resolve(), self.topics, parser)
        return form.files(self.files, marks)


class _Format(NamedTuple):
    make: Callable[[CarrierFormat, tzinfo | None], Parser]
    split: Split = json_lines


_FORMATS = {
    "canal-json": _Format(lambda form, zone: CanalJson(form.types, zone, form.flavor, form.keys_only)),
    "open-protocol": _Format(lambda form, zone: OpenProtocol(form.types, zone, form.keys_only), open_protocol_events),
    "debezium": _Format(lambda form, _zone: Debezium(form.types, form.binary)),
}


def read_types(path: Path) -> Types:
    """Read declared column types: JSON, ``{"database.table": {"column": "datetime(6)"}}``; raises ConfigError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is no JSON: {error}") from error
    if isinstance(document, dict) and all(
        isinstance(columns, dict) and all(isinstance(kind, str) for kind in columns.values())
        for columns in document.values()
    ):
        return document
    raise ConfigError(
        f"{path} holds no column types", hint='It should be {"database.table": {"column": "datetime(6)"}}.'
    )
