"""The configuration: frozen pydantic models, one per part of ``migverify.yaml``.

The JSON schema and the reference in docs/configuration.md are made from these models, and the rest of migverify reads
its settings from them. None means no limit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, ValidationInfo, model_validator

from migverify.config.decision import DecisionSettings
from migverify.config.endpoints import EndpointSettings, TlsSettings
from migverify.config.fields import (
    SHARD,
    Many,
    Pace,
    PathInFolder,
    Seconds,
    SparkValue,
    StoreUrl,
    Strict,
    TableName,
    VariableName,
    folder_of,
)
from migverify.config.monitors import MonitorSettings
from migverify.config.patterns import Route
from migverify.config.reverse import ReverseSettings
from migverify.config.tables import OverrideRule, RouteRule, TableSelection
from migverify.config.urls import store_host
from migverify.model import Endpoint, Tls

DEFAULT_STORE = "sqlite:///.migverify/runs.db"
MAX_AGE_DAYS = 30.0
"""How old a drill, and the pass of a disaster recovery case, may be."""


class LoadLimits(Strict):
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
    latency_factor: float | None = Field(
        default=None,
        gt=1,
        le=100,
        allow_inf_nan=False,
        description="`tables verify` uses 1 to `connections` connections: one more while the servers are fast, half as"
        " many when a row takes a server more than this many times as long as at its best. Default: all at once.",
    )
    max_replica_lag: Seconds | None = Field(
        default=None, description="Wait while the source, being a replica, is more seconds behind than this."
    )
    pause_file: PathInFolder | None = Field(default=None, description="Wait while this file exists.")
    run_seconds: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Stop after this time; what is left is INCONCLUSIVE.",
    )
    rule_query_seconds: Seconds = Field(
        default=3600.0,
        description="Time limit of one query of a reconciliation rule in seconds, where the endpoint's own"
        " `query_seconds` is 0; a rule that hits it is INCONCLUSIVE. 0 = none.",
    )
    max_row_diffs: int | None = Field(
        default=None,
        ge=0,
        description="Stop locating row differences of a table after this many; the verdict stays MISMATCH.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> LoadLimits:
        if self.max_chunk_rows < self.chunk_rows:
            raise ValueError("`max_chunk_rows` is below `chunk_rows`")
        return self


class RecheckSettings(Strict):
    """How a row that differed once is read again before it is called a difference."""

    delay: Seconds = Field(default=1.0, description="Seconds between reads.")
    rounds: int = Field(default=3, ge=1, description="How many times.")


class WatchSettings(Strict):
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
    checkpoint_id: Annotated[
        dict[str, str] | None,
        BeforeValidator(
            lambda value: {"": value} if isinstance(value, str) else value,
            json_schema_input_type=str | dict[str, str] | None,
        ),
    ] = Field(default=None, description="Which row of it: its `id` (DM: the source id); for shards, one each by name.")
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
    def _consistent(self) -> WatchSettings:
        if self.applied != "settle" and getattr(self, self.applied) is None:
            raise ValueError(f"`applied: {self.applied}` needs `{self.applied}`, the name of the table")
        return self


class ReportSettings(Strict):
    """What reports may show."""

    values: bool = Field(
        default=False, description="Whether cell values may be kept in the store and shown in reports."
    )


class SparkSettings(Strict):
    """The Spark engine."""

    master: str = Field(default="local[*]", min_length=1, description="Spark master or Spark Connect URL.")
    conf: dict[str, SparkValue] = Field(default_factory=dict, description="Further `spark.*` settings.")


class ServiceLevel(Strict):
    """A service level that a replay is judged by."""

    writes: float = Field(ge=0, allow_inf_nan=False, description="Writes per second that must have been carried out.")
    reads: float = Field(ge=0, allow_inf_nan=False, description="Reads per second that must have been carried out.")
    quantile: float = Field(
        default=0.99, gt=0, lt=1, description="Share of the target's latencies that must be below `seconds`."
    )
    seconds: float = Field(gt=0, allow_inf_nan=False, description="Limit of that latency, from when a call was due.")
    statements: str | None = Field(
        default=None,
        min_length=1,
        description="Judge only statements whose digest text fits this pattern (`*` any text, `?` any character, case"
        " does not matter); `writes` and `reads` then count these alone.",
    )
    headroom: float | None = Field(
        default=None,
        ge=1,
        le=100,
        description="The level must also be met under this multiple of the captured load; `--headroom` wins.",
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> ServiceLevel:
        if not self.writes and not self.reads:
            raise ValueError("`writes` and `reads` are both 0: no load is required")
        return self


class ShadowSettings(Strict):
    """How `workload replay --follow` asks the reads of a log that grows. Options of the command line win."""

    rate: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Reads a second at most; default: no limit."
    )
    connections: int = Field(default=4, ge=1, le=256, description="Connections to each side.")
    target_seconds: Seconds = Field(
        default=0.5,
        description="Ask less while 5 % of the target's answers take longer than this; 0 = never. `limits."
        "max_threads_running` counts as well.",
    )
    query_seconds: float = Field(
        default=10.0, gt=0, allow_inf_nan=False, description="How long an answer is awaited before it is stopped."
    )
    max_lag: Seconds = Field(
        default=300.0,
        description="A read that is more seconds behind the log is not asked, and counted as such; 0 = all are asked.",
    )
    share: float = Field(default=1.0, gt=0, le=1, description="Share of the reads that is asked, chosen by chance.")
    keep_hours: int = Field(
        default=48, ge=2, le=2400, description="Hours that are kept one by one; older ones are summed up."
    )


class WorkloadSettings(Strict):
    """How captured statements are replayed. Options of the command line win."""

    pace: Pace = Field(
        default="real",
        description="`real`, `x2` (twice as fast as captured), `x0.5`, `3000/s` (that many calls a second) or `fast`"
        " (as fast as the servers answer).",
    )
    protocol: Literal["as-captured", "text"] = Field(
        default="as-captured",
        description="Protocol of the statements; `text` asks prepared ones as text.",
    )
    jobs: int = Field(default=1, ge=1, le=256, description="Worker processes.")
    connections: int = Field(
        default=64,
        ge=1,
        le=4096,
        description="Sessions connected at once to each endpoint: each captured session has a connection of its own, so"
        " this replaces the endpoints' `connections`.",
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
        description="Table as `database.table` whose row marks a rehearsal clone: the one permission to replay writes"
        " and to try remedies. `migverify workload replay --mark-clone` writes the row.",
    )
    waivers: PathInFolder | None = Field(
        default=None, description="File of accepted differences, each with owner, reason and expiry."
    )
    folder: PathInFolder = Field(
        default=".migverify/replay",
        validate_default=True,
        description="Where plans and journals of replays are kept; relative to the folder of this file.",
    )
    forecast_seconds: Seconds = Field(
        default=60.0, description="A capture must cover so many seconds before its load is forecast."
    )
    target_parallelism: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="Statements that the target works on at once without slowing down, for the forecast; measured where"
        " it is not set.",
    )
    service_levels: dict[str, ServiceLevel] = Field(
        default_factory=dict, description="Service levels by name, for `--slo`; `payments` is built in."
    )
    shadow: ShadowSettings = Field(
        default_factory=ShadowSettings, description="Reads of a log that grows: `workload replay --follow`."
    )

    @model_validator(mode="after")
    def _names(self) -> WorkloadSettings:
        if any(not SHARD.fullmatch(name) for name in self.service_levels):
            raise ValueError("names of service levels hold letters, digits, _ and -")
        return self


class DrillRules(Strict):
    """What drills of a runbook have to show before a live run."""

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
    decision: bool = Field(
        default=False, description="`workload decision` says GO now; asked too where `decision.capture` is configured."
    )


class ReadinessFloor(DrillRules):
    """The least that drills of any runbook have to show before a live run; a runbook may ask for more, never less."""

    max_age_days: float = Field(default=MAX_AGE_DAYS, gt=0, description="How old a drill may be.")


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where run results go. ``url`` has no password: a variable has it, or a command prints it, or there is none."""

    url: str
    password_env: str | None
    password_command: str | None
    tls: Tls


def store_in_folder(url: str, info: ValidationInfo) -> str:
    """Return a store's URL; a relative SQLite path starts at the folder of the file that names it."""
    scheme, _, rest = url.partition("://")
    name = rest[1:]
    relative = scheme.split("+")[0].lower() == "sqlite" and name and not name.startswith(("/", ":memory:", "file:"))
    return f"{scheme}:///{folder_of(info) / name}" if relative else url


class Config(Strict):
    """Configuration of migverify."""

    single_source: EndpointSettings | None = Field(
        default=None, validation_alias="source", description="Where the data comes from."
    )
    source_shards: dict[str, EndpointSettings] | None = Field(
        default=None,
        validation_alias="sources",
        min_length=1,
        description="Instead of `source`: many shards that move into one target, by name.",
    )
    single_target: EndpointSettings = Field(validation_alias="target", description="Where the data goes.")
    other_endpoints: dict[str, EndpointSettings] = Field(
        default_factory=dict,
        validation_alias="endpoints",
        description="Further endpoints that reconciliation rules read, by name: services beside the migrating pair.",
    )
    store_url: Annotated[StoreUrl, AfterValidator(store_in_folder)] = Field(
        default=DEFAULT_STORE,
        validate_default=True,
        validation_alias="store",
        description="SQLAlchemy URL of the database that keeps run results. A relative SQLite path starts at"
        " the folder of this file. A password in it is refused.",
    )
    store_password_env: VariableName | None = Field(
        default=None, description="Name of the environment variable that holds the store's password."
    )
    store_password_command: str | None = Field(
        default=None,
        min_length=1,
        description="Shell command that prints the store's password, instead of `store_password_env`.",
    )
    store_tls: TlsSettings = Field(
        default_factory=TlsSettings, description="Encryption of the connection to a store on a server."
    )
    tables: TableSelection = Field(default_factory=TableSelection, description="Which tables are compared.")
    route_rules: Many[RouteRule] = Field(
        default_factory=tuple,
        validation_alias="routes",
        description="Tables with another name on the target; the first that matches counts.",
    )
    overrides: Many[OverrideRule] = Field(
        default_factory=tuple,
        description="What is special about some tables; all that match add up, in order.",
    )
    limits: LoadLimits = Field(default_factory=LoadLimits, description="Bounds on load and time.")
    recheck: RecheckSettings = Field(default_factory=RecheckSettings, description="Reading differing rows again.")
    watch: WatchSettings = Field(default_factory=WatchSettings, description="Keeping the verdict current.")
    reverse: ReverseSettings | None = Field(
        default=None, description="Keeping the verdict current while the target is written and the source follows."
    )
    consistency: Literal["auto", "quiescent", "live"] = Field(
        default="auto",
        description="`auto` and `quiescent`: the rows of all chunks must add up to the count of the table, so"
        " writes in between make it INCONCLUSIVE. `live`: writes are expected, and the unbroken chain of ranges alone"
        " proves coverage. Rows that differ are read again in every case.",
    )
    report: ReportSettings = Field(default_factory=ReportSettings, description="Reports.")
    hash: Literal["auto", "sha2", "md5", "sha1"] = Field(
        default="auto",
        description="Hash of the row checksum; `auto` takes the cheapest that both servers compute well.",
    )
    spark: SparkSettings = Field(default_factory=SparkSettings, description="The Spark engine.")
    workload: WorkloadSettings = Field(default_factory=WorkloadSettings, description="Replay of captured statements.")
    monitors: MonitorSettings = Field(default_factory=MonitorSettings, description="What Prometheus must know.")
    decision: DecisionSettings = Field(
        default_factory=DecisionSettings, description="What evidence a service needs before it may cut over."
    )
    readiness: ReadinessFloor = Field(
        default_factory=ReadinessFloor,
        description="What drills must show before a live run, for every runbook; less than the defaults is"
        " said first by `runbook readiness`.",
    )

    @model_validator(mode="after")
    def _one_source(self) -> Config:
        if self.single_source and self.source_shards:
            raise ValueError("both `source` and `sources` are given; keep one")
        if not self.single_source and not self.source_shards:
            raise ValueError("`source` is missing")
        if any(not SHARD.fullmatch(name) for name in self.source_shards or {}):
            raise ValueError("names of shards hold letters, digits, _ and -")
        if self.store_password_env and self.store_password_command:
            raise ValueError("give either `store_password_env` or `store_password_command`")
        if any(not SHARD.fullmatch(name) for name in self.other_endpoints):
            raise ValueError("names of endpoints hold letters, digits, _ and -")
        if taken := sorted({"source", "sources", "target"} & self.other_endpoints.keys()):
            raise ValueError(f"`endpoints` must not name one {taken[0]}: that is an endpoint of the migration")
        return self

    _path: Path = PrivateAttr(default=Path("migverify.yaml"))

    def model_post_init(self, context: Any) -> None:
        """Remember the file it comes from."""
        self._path = (context or {}).get("path", self._path)

    @property
    def path(self) -> Path:
        """The file it comes from."""
        return self._path

    @property
    def sources(self) -> tuple[Endpoint, ...]:
        """One endpoint named ``source``, or one per shard named ``source.<shard>``."""
        if self.single_source is not None:
            return (self.single_source.named("source"),)
        return tuple(part.named(f"source.{name}") for name, part in (self.source_shards or {}).items())

    @property
    def target(self) -> Endpoint:
        """The endpoint that the data moves to."""
        return self.single_target.named("target")

    @property
    def others(self) -> tuple[Endpoint, ...]:
        """Further endpoints of reconciliation rules."""
        return tuple(part.named(name) for name, part in self.other_endpoints.items())

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the migration, sources first, without ``others``."""
        return (*self.sources, self.target)

    @property
    def all_endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint that a reconciliation rule may name: those of the migration, then ``others``."""
        return (*self.endpoints, *self.others)

    @property
    def rule_endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint as reconciliation rules read it: with a time limit of one query."""
        limit = self.limits.rule_query_seconds
        return tuple(e if e.query_seconds else replace(e, query_seconds=limit) for e in self.all_endpoints)

    @property
    def shards(self) -> tuple[str, ...]:
        """Shard names in the order of ``sources``; ``("",)`` for a single source."""
        return tuple(self.source_shards or ("",))

    @property
    def store(self) -> StoreSettings:
        """Where run results go."""
        tls = self.store_tls.for_host(store_host(self.store_url))
        return StoreSettings(self.store_url, self.store_password_env, self.store_password_command, tls)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes, compiled."""
        return tuple(rule.route for rule in self.route_rules)

    def at_snapshot(self, snapshot: str | None) -> Config:
        """Return the configuration with a target that is read as of a snapshot; None reads what is committed now."""
        return self.model_copy(update={"single_target": self.single_target.model_copy(update={"snapshot": snapshot})})
