"""The options that name the messages of a carrier: one set for every command that reads them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.changes.carriers.formats import CarrierFormat, CarrierSource

ADVANCED = ("--security", "--sasl-mechanism", "--username-env", "--password-env", "--ca-file", "--binary", "--flavor")
"""Those that are rarely used."""


@dataclass(frozen=True, slots=True)
class CarrierOptions:
    """Where the messages are, their format, and what they leave open."""

    format_: Annotated[
        str, typer.Option("--format", metavar="NAME", help="Encoding of the messages; a wrong name lists all.")
    ]
    kafka: Annotated[str, typer.Option("--kafka", metavar="HOST:PORT,...", help="Brokers to read from.")] = ""
    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="NAME", help="Topic to read; may be repeated.")
    ] = None
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", metavar="PATH", help="File of messages, or folder of TiCDC's storage sink."),
    ] = None
    types: Annotated[Path | None, typer.Option("--types", metavar="FILE", help="JSON file of column types.")] = None
    time_zone: Annotated[
        str, typer.Option("--time-zone", metavar="ZONE", help="Zone of TIMESTAMP texts, as the changefeed's.")
    ] = ""
    binary: Annotated[str, typer.Option("--binary", metavar="MODE", help="Debezium's binary.handling.mode.")] = "bytes"
    flavor: Annotated[
        str, typer.Option("--flavor", metavar="NAME", help="Of canal-json: the server that was written to.")
    ] = "tidb"
    security: Annotated[
        str, typer.Option("--security", metavar="PROTOCOL", help="Kafka security.protocol, as SASL_SSL.")
    ] = ""
    mechanism: Annotated[str, typer.Option("--sasl-mechanism", metavar="NAME", help="Kafka sasl.mechanism.")] = ""
    username_env: Annotated[
        str, typer.Option("--username-env", metavar="NAME", help="Variable that holds the user name.")
    ] = ""
    password_env: Annotated[
        str, typer.Option("--password-env", metavar="NAME", help="Variable that holds the password.")
    ] = ""
    ca_file: Annotated[
        str, typer.Option("--ca-file", metavar="FILE", help="Certificate authorities of the brokers.")
    ] = ""

    def source(self) -> CarrierSource:
        """Return what they name; UsageError where they do not fit each other."""
        from migverify.changes.carriers.formats import CarrierSource
        from migverify.changes.carriers.kafka import KafkaLogin

        if bool(self.kafka) is bool(self.file) or bool(self.kafka) is not bool(self.topic):
            raise UsageError("give --kafka with --topic, or --file")
        messages = self.messages()
        if not self.kafka:
            return CarrierSource(messages, files=tuple(self.file or ()))
        login = KafkaLogin(
            self.kafka, self.security, self.mechanism, self.username_env, self.password_env, self.ca_file
        )  # fmt: skip
        return CarrierSource(messages, login, tuple(self.topic or ()))

    def messages(self) -> CarrierFormat:
        """Return the format."""
        from migverify.changes.carriers.formats import CarrierFormat, read_types
        from migverify.model import Flavor

        if self.flavor not in list(Flavor):
            raise UsageError(f"there is no flavor {self.flavor!r}", hint=f"Flavors are {', '.join(Flavor)}.")
        declared = {} if self.types is None else read_types(self.types)
        return CarrierFormat(self.format_, declared, self.time_zone, self.binary, Flavor(self.flavor))


def with_carrier(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of ``CarrierOptions`` in place of its first parameter, ``carrier``."""
    own = inspect.signature(command, eval_str=True)
    hints = get_type_hints(CarrierOptions, include_extras=True)
    names = [one.name for one in fields(CarrierOptions)]
    shared = [
        part.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, part in inspect.signature(CarrierOptions).parameters.items()
    ]
    rest = [part.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, part in own.parameters.items()][1:]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        command(CarrierOptions(**{name: given.pop(name) for name in names}), **given)

    run.__signature__ = inspect.Signature([*shared, *rest])  # type: ignore[attr-defined]
    run.__annotations__ = {part.name: part.annotation for part in (*shared, *rest)}
    del run.__wrapped__
    return run
