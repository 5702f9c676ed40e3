"""Settings of the reverse direction: the target is written, the source follows."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from migverify.config.fields import Many, PathInFolder, Seconds, Strict, TableName, VariableName, ZoneName


class BrokerSettings(Strict):
    """The Kafka topics that a changefeed writes."""

    servers: str = Field(min_length=1, description="Brokers as `host:port,host:port`.")
    topics: Many[str] = Field(min_length=1, description="Topics of the changefeed.")
    security_protocol: str = Field(default="", description="Kafka `security.protocol`, as `SASL_SSL`.")
    sasl_mechanism: str = Field(default="", description="Kafka `sasl.mechanism`.")
    username_env: VariableName | None = Field(default=None, description="Variable that holds the user name.")
    password_env: VariableName | None = Field(default=None, description="Variable that holds the password.")
    ca_file: PathInFolder | None = Field(default=None, description="Certificates of the brokers' authority, PEM.")


class CarrierSettings(Strict):
    """Where the changes of TiDB are read: a changefeed's topics or files."""

    format: Literal["canal-json", "open-protocol", "debezium"] = Field(description="The changefeed's protocol.")
    kafka: BrokerSettings | None = Field(default=None, description="Topics to read; or `files`.")
    files: Many[PathInFolder] = Field(
        default=(), description="Files of messages, or one folder of a storage sink; or `kafka`."
    )
    time_zone: ZoneName = Field(default="", description="Zone of TIMESTAMP texts: the changefeed's `time-zone`.")
    start_ts: int = Field(
        default=0,
        ge=0,
        description="The changefeed's start-ts: it carries all that was committed later. 0 for unknown.",
    )
    types: PathInFolder | None = Field(default=None, description="JSON file of column types; see docs/carriers.md.")
    dead_letters: PathInFolder = Field(
        default=".migverify/dead-letters.jsonl",
        validate_default=True,
        description="File that keeps messages that cannot be decoded.",
    )

    @model_validator(mode="after")
    def _one_place(self) -> CarrierSettings:
        if (self.kafka is None) == (not self.files):
            raise ValueError("a carrier is read from `kafka` or from `files`, one of the two")
        return self


class ReverseSettings(Strict):
    """How `tables watch --reverse` learns what was written on the target, and what the source has applied."""

    carrier: CarrierSettings | None = Field(
        default=None,
        description="The changefeed of the target. Without one, only a sweep tells something. Rules over `changes` of"
        " the target read it too.",
    )
    sweep_minutes: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Without `carrier`: each range of each table is compared again within so many minutes.",
    )
    applied: Literal["settle", "marker"] = Field(
        default="settle",
        description="`settle`: what was read `settle_seconds` ago, where the changefeed has come as much further since,"
        " confirmed by later keys that are equal; `marker`: a"
        " row written on the target and awaited on the source. A changefeed's own checkpoint is no proof.",
    )
    settle_seconds: Seconds = Field(
        default=5.0, description="How long the source may take to apply a change, for `applied: settle`."
    )
    old_side: bool | None = Field(
        default=None,
        description="Whether the source's binlog is read too, so that writes of others than the feed are named: by"
        " default where it can be, with `applied: marker`; else the status says why not. `true` refuses to begin then.",
    )
    resent_seconds: Seconds = Field(
        default=30.0,
        description="How old the changes may be that the feed sends again after a restart, for `old_side`.",
    )
    marker: TableName | None = Field(
        default=None,
        description="Table on the target as `database.table` that the watch may write. The changefeed must carry it,"
        " and it must exist on both sides under this name, with the columns of docs/watch.md.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ReverseSettings:
        if self.applied == "marker" and self.marker is None:
            raise ValueError("`applied: marker` needs `marker`, the name of the table")
        if self.old_side and (self.carrier is None or self.applied != "marker"):
            raise ValueError("`old_side: true` needs `carrier` and `applied: marker`")
        return self
