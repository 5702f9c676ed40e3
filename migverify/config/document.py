"""The shape of ``migverify.yaml``, as pydantic models: the only place that knows it.

The JSON schema and the reference in docs/configuration.md are made from these models. Nothing here reaches
the rest of migverify: ``load`` turns a checked document into the frozen dataclasses of ``settings``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from migverify.config.document_monitors import MonitorsPart
from migverify.config.fields import (
    NAME,
    SHARD,
    Condition,
    EndpointUrl,
    Moment,
    Pace,
    Pattern,
    Seconds,
    SessionValue,
    Snapshot,
    SparkValue,
    StoreUrl,
    TableName,
    Tolerance,
    VariableName,
)
from migverify.config.patterns import make_route
from migverify.config.strict import Strict as Strict
from migverify.model import READS_NOW, Tls, default_tls_mode


class TlsPart(Strict):
    """Encryption of the connection to an endpoint."""

    mode: Literal["disabled", "preferred", "required", "verify-ca", "verify-identity"] | None = Field(
        default=None,
        description="`disabled`, `preferred` (encrypt when the server offers it), `required` (encrypt, do"
        " not check the certificate), `verify-ca` or `verify-identity`. Default: `verify-identity`; for a host on"
        " this machine (`localhost`, 127.0.0.1, ::1) without `ca` and `cert`: `preferred`.",
    )
    ca: str | None = Field(default=None, description="PEM file of the certificate authority. Default: the system's.")
    cert: str | None = Field(default=None, description="PEM file of the client certificate.")
    key: str | None = Field(default=None, description="PEM file of the client's private key.")
    allow_cleartext_password: bool = Field(
        default=False,
        description="Send the password itself where the server asks for it and its certificate is not verified, or"
        " asks by `mysql_clear_password` (LDAP, PAM, IAM).",
    )

    @model_validator(mode="after")
    def _consistent(self) -> TlsPart:
        if self.ca and self.mode in ("disabled", "preferred", "required"):
            raise ValueError(f"mode {self.mode} does not check a certificate, so `ca` would do nothing; use verify-ca")
        if self.cert and self.mode in ("disabled", "preferred"):
            raise ValueError(f"mode {self.mode} does not send a client certificate; use required or verify-identity")
        if self.key and not self.cert:
            raise ValueError("`key` needs `cert`")
        return self

    def settings(self, host: str) -> Tls:
        """Return the encryption of a connection to ``host``, defaults filled in."""
        mode = self.mode or default_tls_mode(host, verifies=bool(self.ca or self.cert))
        return Tls(mode, self.ca, self.cert, self.key, self.allow_cleartext_password)


class EndpointPart(Strict):
    """How to reach one server: either `url`, or `host`, `port` and `user`."""

    url: EndpointUrl | None = Field(
        default=None,
        description="`mysql://user@host:3306` or `tidb://user@host:4000`; special characters"
        " percent-encoded. A password in it is refused.",
    )
    host: str | None = Field(default=None, min_length=1, description="Host name or address, instead of `url`.")
    port: int | None = Field(default=None, ge=1, le=65535, description="Port, with `host`. Default: 3306.")
    user: str | None = Field(default=None, min_length=1, description="User name, with `host`.")
    password_env: VariableName | None = Field(
        default=None, description="Name of the environment variable that holds the password."
    )
    password_command: str | None = Field(
        default=None,
        min_length=1,
        description="Shell command that prints the password, instead of `password_env`.",
    )
    tls: TlsPart = Field(default_factory=lambda: TlsPart(), description="Encryption.")
    connections: int = Field(
        default=4, ge=1, le=1024, description="The most connections one run opens to this endpoint."
    )
    query_seconds: Seconds = Field(default=0.0, description="Time limit of one query in seconds; 0 = none.")
    snapshot: Snapshot | None = Field(
        default=None,
        description="TiDB: read as of this time or TSO (`tidb_snapshot`); `now` takes one and holds it for the run.",
    )
    resource_group: str | None = Field(default=None, min_length=1, description="TiDB: resource group of the sessions.")
    low_priority: bool = Field(default=True, description="TiDB: let other queries go first.")
    session: dict[str, SessionValue] = Field(
        default_factory=dict, description="Further session variables to set, as `name: value`."
    )

    @model_validator(mode="after")
    def _consistent(self) -> EndpointPart:
        if self.url and (self.host or self.port or self.user):
            raise ValueError("give either `url`, or `host`, `port` and `user`")
        if not self.url and not self.host:
            raise ValueError("`url` is missing, for example mysql://user@host:3306")
        if not self.url and not self.user:
            raise ValueError("`user` is missing")
        if self.password_env and self.password_command:
            raise ValueError("give either `password_env` or `password_command`")
        return self

    @field_validator("session")
    @classmethod
    def _session_names(cls, value: dict[str, str]) -> dict[str, str]:
        if any(not NAME.fullmatch(name) for name in value):
            raise ValueError("names of session variables hold letters, digits and _")
        if pinned := sorted(_PINNED & {name.lower() for name in value}):
            raise ValueError(f"{', '.join(pinned)}: pinned, as sessions read what is committed now (see `snapshot`)")
        return value


_PINNED = {*READS_NOW, "transaction_isolation", "tx_isolation", "autocommit"}


class TablesPart(Strict):
    """Which source tables take part."""

    include: list[Pattern] = Field(
        default_factory=lambda: ["*.*"],
        min_length=1,
        description="Patterns `database.table` of the tables to compare. System databases take part only"
        " when a pattern spells their name out.",
    )
    exclude: list[Pattern] = Field(default_factory=list, description="Patterns of tables to leave out again.")


class RoutePart(Strict):
    """Source tables that have another name on the target."""

    from_: Pattern = Field(alias="from", description="Pattern of source tables.")
    to: str = Field(
        description="`database.table` on the target. The n-th `*` of a part stands for what the n-th `*` of"
        " that part of `from` matched; `{1}`, `{2}` ... for everything captured, in order.",
    )
    shard: str | None = Field(
        default=None, min_length=1, description="Only for shards of that name; `*` and `?` allowed."
    )

    @model_validator(mode="after")
    def _compiles(self) -> RoutePart:
        make_route(self.from_, self.to, self.shard)
        return self


class WherePart(Strict):
    """A condition per side."""

    source: Condition | None = Field(default=None, description="Condition on the source.")
    target: Condition | None = Field(default=None, description="Condition on the target.")


class ImmutablePart(Strict):
    """Which rows never change."""

    column: str = Field(min_length=1, description="Source column with the date of a row.")
    value: Moment = Field(description="ISO date and time; UTC unless it names an offset. Rows before it never change.")


class OverridePart(Strict):
    """What is special about some tables."""

    table: Pattern = Field(description="Pattern of source tables.")
    key: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Columns that identify a row, when the catalog's keys are not the right ones.",
    )
    ignore: list[str] = Field(default_factory=list, description="Columns that are not compared.")
    rename: dict[str, str] = Field(
        default_factory=dict,
        description="Columns with another name on the target, as `source_column: target_column`.",
    )
    where: Annotated[
        WherePart,
        BeforeValidator(
            lambda value: {"source": value, "target": value} if isinstance(value, str) else value,
            json_schema_input_type=str | WherePart,
        ),
    ] = Field(
        default_factory=lambda: WherePart(),
        description="SQL condition that limits the comparison to some rows: one for both sides, or `source`"
        " and `target` apart.",
    )
    float_tolerance: Annotated[
        dict[str, Tolerance],
        BeforeValidator(
            lambda value: {"*": value} if isinstance(value, int | float) and not isinstance(value, bool) else value,
            json_schema_input_type=Tolerance | dict[str, Tolerance],
        ),
    ] = Field(
        default_factory=dict,
        description="Absolute difference up to which FLOAT and DOUBLE values count as equal: one number, or"
        ' `column: number` with `"*"` for all other columns. Default: exact.',
    )
    immutable_before: ImmutablePart | None = Field(
        default=None, description="Rows before a date never change: verified once, not again."
    )

    @field_validator("key", "ignore")
    @classmethod
    def _once(cls, value: list[str] | None) -> list[str] | None:
        if value and (len(set(value)) < len(value) or "" in value):
            raise ValueError("a column is empty or named twice")
        return value

    @field_validator("rename")
    @classmethod
    def _one_to_one(cls, value: dict[str, str]) -> dict[str, str]:
        if len(set(value.values())) < len(value):
            raise ValueError("two columns are renamed to the same one")
        return value


class LimitsPart(Strict):
    """Bounds on the load a run puts on the servers, and on the run itself."""

    chunk_rows: int = Field(
        default=32_768, ge=1, description="Rows of the first chunks; later ones follow `chunk_seconds`."
    )
    chunk_seconds: float = Field(
        default=0.5,
        gt=0,
        allow_inf_nan=False,
        description="Seconds one query on a chunk should take; chunks grow or shrink.",
    )
    max_chunk_rows: int = Field(default=131_072, ge=1, description="Chunks never hold more rows than this.")
    retries: int = Field(
        default=3, ge=0, description="How often a failed read is tried again before its chunk is given up."
    )
    retry_seconds: Seconds = Field(
        default=1.0, description="Wait before the first retry in seconds; it doubles each time."
    )
    max_threads_running: int | None = Field(
        default=None,
        ge=1,
        description="Wait while a server's `Threads_running` is above this (TiDB: statements on its busiest server).",
    )
    max_replica_lag: Seconds | None = Field(
        default=None, description="Wait while the source, being a replica, is more seconds behind than this."
    )
    pause_file: str | None = Field(default=None, min_length=1, description="Wait while this file exists.")
    run_seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Stop after this time; what is left is INCONCLUSIVE.",
    )
    max_row_diffs: int | None = Field(
        default=None,
        ge=0,
        description="Stop locating row differences of a table after this many; the verdict stays MISMATCH.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> LimitsPart:
        if self.max_chunk_rows < self.chunk_rows:
            raise ValueError("`max_chunk_rows` is below `chunk_rows`")
        return self


class RecheckPart(Strict):
    """How a row that differed once is read again before it is called a difference."""

    delay: Seconds = Field(default=1.0, description="Seconds between reads.")
    rounds: int = Field(default=3, ge=1, description="How many times.")


class WatchPart(Strict):
    """How `tables watch` learns what the target has applied, and how long it waits."""

    applied: Literal["settle", "checkpoint", "marker"] = Field(
        default="settle",
        description="`settle`: what was read `settle_seconds` ago, confirmed by later keys that are equal;"
        " `checkpoint`: a replicator's table on the target; `marker`: a row written on the source and awaited on the"
        " target.",
    )
    settle_seconds: Seconds = Field(
        default=3.0, description="How long the target may take to apply a change, for `applied: settle`."
    )
    checkpoint: TableName | None = Field(
        default=None,
        description="Table on the target as `database.table`: DM's `<task>_syncer_checkpoint`, or one with the columns"
        " `file` and `offset`.",
    )
    checkpoint_id: str | dict[str, str] | None = Field(
        default=None, description="Which row of it: its `id` (DM: the source id); for shards, one each by name."
    )
    marker: TableName | None = Field(
        default=None,
        description="Table on the source as `database.table` that the watch may write: the one permission to write"
        " there. It must exist on both sides, with the columns of docs/watch.md.",
    )
    delay: Seconds = Field(default=1.0, description="Seconds between the two reads that must show the same difference.")
    hot_seconds: Seconds = Field(
        default=30.0, description="A key that keeps changing for longer than this is called hot."
    )
    sweep_rows: int = Field(
        default=0,
        ge=0,
        description="Rows a second that are read again in rounds over all tables, to find writes on the target that no"
        " change of the source explains; 0 for none.",
    )
    drain_seconds: float = Field(
        default=300.0, gt=0, allow_inf_nan=False, description="Time limit of `--until-drained`; then INCONCLUSIVE."
    )

    @model_validator(mode="after")
    def _consistent(self) -> WatchPart:
        if self.applied != "settle" and getattr(self, self.applied) is None:
            raise ValueError(f"`applied: {self.applied}` needs `{self.applied}`, the name of the table")
        return self


class ReportPart(Strict):
    """What reports may show."""

    values: bool = Field(
        default=False, description="Whether cell values may be kept in the store and shown in reports."
    )


class SparkPart(Strict):
    """The Spark engine."""

    master: str = Field(default="local[*]", min_length=1, description="Spark master or Spark Connect URL.")
    conf: dict[str, SparkValue] = Field(default_factory=dict, description="Further `spark.*` settings.")


class ServiceLevelPart(Strict):
    """A service level that a replay is judged by."""

    writes: float = Field(ge=0, allow_inf_nan=False, description="Writes per second that must have been carried out.")
    reads: float = Field(ge=0, allow_inf_nan=False, description="Reads per second that must have been carried out.")
    quantile: float = Field(
        default=0.99, gt=0, lt=1, description="Share of the target's latencies that must be below `seconds`."
    )
    seconds: float = Field(gt=0, allow_inf_nan=False, description="Limit of that latency, from when a call was due.")

    @model_validator(mode="after")
    def _asks_for_something(self) -> ServiceLevelPart:
        if not self.writes and not self.reads:
            raise ValueError("`writes` and `reads` are both 0: no load is asked for")
        return self


class WorkloadPart(Strict):
    """How captured statements are replayed. Options of the command line win."""

    pace: Pace = Field(
        default="real",
        description="`real`, `x2` (twice as fast as captured), `x0.5`, `3000/s` (that many calls a second) or `fast`"
        " (as fast as the servers answer).",
    )
    protocol: Literal["as-captured", "text", "prepared", "both"] = Field(
        default="as-captured",
        description="Protocol of the statements; `both` asks each read over text and prepared, and compares both.",
    )
    jobs: int = Field(default=1, ge=1, le=256, description="Worker processes.")
    connections: int = Field(
        default=64,
        ge=1,
        le=4096,
        description="Sessions connected at once to each endpoint: each captured session has a connection of its own, so"
        " this stands in place of the endpoints' `connections`.",
    )
    noise: float = Field(
        default=0.0, ge=0, le=1, description="Share of reads that are asked twice on both sides, for the noise rate."
    )
    rereads: int = Field(default=3, ge=0, le=20, description="How often a read that differs is asked again.")
    query_seconds: Seconds = Field(
        default=60.0, description="How long a call's answer is awaited before it is stopped; 0 = for ever."
    )
    wait_seconds: Seconds = Field(
        default=10.0, description="How long a call waits for one of another session that it must come after."
    )
    idle_seconds: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="Shorten captured times in which nothing ran to this."
    )
    max_lag: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Stop when calls begin more seconds late than this."
    )
    found_rows: bool = Field(
        default=True, description="Count rows found instead of rows changed by an UPDATE, as Connector/J does."
    )
    clone_marker: TableName | None = Field(
        default=None,
        description="Table as `database.table` whose row marks a rehearsal clone: the one permission to replay writes."
        " `migverify workload mark-clone` writes the row.",
    )
    waivers: str | None = Field(
        default=None, min_length=1, description="File of accepted differences, each with owner, reason and expiry."
    )
    folder: str = Field(
        default=".migverify/replay",
        min_length=1,
        description="Where plans and journals of replays are kept; relative to the folder of this file.",
    )
    service_levels: dict[str, ServiceLevelPart] = Field(
        default_factory=dict, description="Service levels by name, for `--slo`; `payments` is built in."
    )

    @model_validator(mode="after")
    def _names(self) -> WorkloadPart:
        if any(not SHARD.fullmatch(name) for name in self.service_levels):
            raise ValueError("names of service levels hold letters, digits, _ and -")
        return self


class ReadinessPart(Strict):
    """The least that drills of any runbook have to show before a live run; a runbook may ask for more, never less."""

    drills_min: int = Field(default=4, ge=0, description="How many drills.")
    clean_last: int = Field(default=2, ge=0, description="How many of the last ones without error.")
    same_runbook: bool = Field(default=True, description="The last one ran this very runbook.")
    same_schema: bool = Field(default=True, description="They ran on this very schema fingerprint.")
    full_cast_last: bool = Field(
        default=True, description="In the last one everybody acted, each from a login or with a key of their own."
    )
    rollback_drills_min: int = Field(
        default=1, ge=0, description="How many drills of the rollback; above 0 every rollback of a step, too."
    )
    max_age_days: float = Field(default=30.0, gt=0, description="How old a drill may be.")


class ConfigDocument(Strict):
    """Configuration of migverify."""

    source: EndpointPart | None = Field(default=None, description="Where the data comes from.")
    sources: dict[str, EndpointPart] | None = Field(
        default=None,
        min_length=1,
        description="Instead of `source`: many shards that move into one target, by name.",
    )
    target: EndpointPart = Field(description="Where the data goes.")
    endpoints: dict[str, EndpointPart] = Field(
        default_factory=dict,
        description="Further endpoints that reconciliation rules read, by name: services beside the migrating pair.",
    )
    store: StoreUrl = Field(
        default="sqlite:///.migverify/runs.db",
        description="SQLAlchemy URL of the database that keeps run results. A relative SQLite path starts at"
        " the folder of this file. A password in it is refused.",
    )
    store_password_env: VariableName | None = Field(
        default=None, description="Name of the environment variable that holds the store's password."
    )
    store_tls: TlsPart = Field(
        default_factory=lambda: TlsPart(), description="Encryption of the connection to a store on a server."
    )
    tables: TablesPart = Field(default_factory=TablesPart, description="Which tables are compared.")
    routes: list[RoutePart] = Field(
        default_factory=list,
        description="Tables with another name on the target; the first that matches counts.",
    )
    overrides: list[OverridePart] = Field(
        default_factory=list,
        description="What is special about some tables; all that match add up, in order.",
    )
    limits: LimitsPart = Field(default_factory=lambda: LimitsPart(), description="Bounds on load and time.")
    recheck: RecheckPart = Field(default_factory=lambda: RecheckPart(), description="Reading differing rows again.")
    watch: WatchPart = Field(default_factory=lambda: WatchPart(), description="Keeping the verdict current.")
    consistency: Literal["auto", "quiescent", "live"] = Field(
        default="auto",
        description="`auto` and `quiescent`: the rows of all chunks must add up to the count of the table, so"
        " writes in between make it INCONCLUSIVE. `live`: writes are expected, and the unbroken chain of ranges alone"
        " proves coverage. Rows that differ are read again in every case.",
    )
    report: ReportPart = Field(default_factory=lambda: ReportPart(), description="Reports.")
    hash: Literal["auto", "sha2", "md5", "sha1"] = Field(
        default="auto",
        description="Hash of the row checksum; `auto` takes the cheapest that both servers compute well.",
    )
    spark: SparkPart = Field(default_factory=lambda: SparkPart(), description="The Spark engine.")
    workload: WorkloadPart = Field(default_factory=lambda: WorkloadPart(), description="Replay of captured statements.")
    monitors: MonitorsPart = Field(default_factory=lambda: MonitorsPart(), description="What Prometheus must know.")
    readiness: ReadinessPart = Field(
        default_factory=lambda: ReadinessPart(),
        description="What drills must show before a live run, whatever the runbook asks for; less than the defaults is"
        " said first by `runbook readiness`.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> ConfigDocument:
        if self.source and self.sources:
            raise ValueError("both `source` and `sources` are given; keep one")
        if not self.source and not self.sources:
            raise ValueError("`source` is missing")
        if any(not SHARD.fullmatch(name) for name in self.sources or {}):
            raise ValueError("names of shards hold letters, digits, _ and -")
        if any(not SHARD.fullmatch(name) for name in self.endpoints):
            raise ValueError("names of endpoints hold letters, digits, _ and -")
        if taken := sorted({"source", "sources", "target"} & self.endpoints.keys()):
            raise ValueError(f"`endpoints` must not name one {taken[0]}: that is an endpoint of the migration")
        return self
