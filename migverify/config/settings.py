"""The configuration as the rest of migverify sees it: frozen, complete, without secrets or pydantic."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from migverify.config.patterns import Route, TablePattern
from migverify.model import Endpoint, Tls


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where run results go. ``url`` is a SQLAlchemy URL without a password; ``password_env`` names one."""

    url: str
    password_env: str | None = None
    tls: Tls = Tls()  # noqa: RUF009 - frozen


@dataclass(frozen=True, slots=True)
class TableFilter:
    """Which source tables take part: those matched by ``include`` and not by ``exclude``."""

    include: tuple[TablePattern, ...]
    exclude: tuple[TablePattern, ...] = ()


@dataclass(frozen=True, slots=True)
class ImmutableBefore:
    """Rows whose ``column`` lies before ``value`` never change.

    ``value`` is the text of a UTC date-time as a server writes it (``2026-01-31 00:00:00``); the bound is
    exclusive. NULL is not before anything.
    """

    column: str
    value: str


@dataclass(frozen=True, slots=True)
class TableOverride:
    """What the configuration says about one table pair. Column names are the source's unless said otherwise.

    ``key`` None means the key is chosen from the catalog. ``rename`` holds (source column, target column).
    ``where_source`` and ``where_target`` are SQL conditions that stand in parentheses, None for all rows.
    """

    key: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    where_source: str | None = None
    where_target: str | None = None
    float_tolerance: float | None = None
    column_tolerances: tuple[tuple[str, float], ...] = ()
    immutable_before: ImmutableBefore | None = None

    def tolerance(self, column: str) -> float | None:
        """Absolute tolerance of a source column, None for exact comparison."""
        return dict(self.column_tolerances).get(column, self.float_tolerance)

    def target_column(self, column: str) -> str:
        """Name of the target column that belongs to a source column."""
        return dict(self.rename).get(column, column)


@dataclass(frozen=True, slots=True)
class OverrideRule:
    """One entry of ``overrides``: the tables it speaks of, and what it says."""

    tables: TablePattern
    override: TableOverride


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on the load a run puts on the servers, and on the run itself. None = no bound.

    Rows are counts; ``*_seconds`` and ``max_replica_lag`` are seconds; ``max_threads_running`` is the
    server's status variable of that name.
    """

    chunk_rows: int = 32_768
    chunk_seconds: float = 0.5
    max_chunk_rows: int = 131_072
    retries: int = 3
    retry_seconds: float = 1.0
    max_threads_running: int | None = None
    max_replica_lag: float | None = None
    pause_file: str | None = None
    run_seconds: float | None = None
    max_row_diffs: int | None = None


@dataclass(frozen=True, slots=True)
class Recheck:
    """How a row that differed once is read again: ``rounds`` times, ``delay`` seconds apart."""

    delay: float = 1.0
    rounds: int = 3


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """How a watch learns what the target has applied, and how long it waits (seconds).

    ``applied`` is ``settle``, ``checkpoint`` or ``marker``; ``checkpoint`` and ``marker`` are ``database.table``.
    ``checkpoint_ids`` maps a shard's name (``""`` for a single source) to the id of its row.
    """

    applied: str = "settle"
    settle_seconds: float = 3.0
    checkpoint: str | None = None
    checkpoint_ids: tuple[tuple[str, str], ...] = ()
    marker: str | None = None
    delay: float = 1.0
    hot_seconds: float = 30.0
    sweep_rows: int = 0
    drain_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """``values``: whether cell values may be kept in the store and shown in reports."""

    values: bool = False


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The Spark master and extra ``spark.*`` settings as (name, value)."""

    master: str = "local[*]"
    conf: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """A service level of a replay: calls per second, and the limit in seconds of a quantile of the latencies."""

    name: str
    writes: float
    reads: float
    quantile: float
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """How captured statements are replayed; times are seconds."""

    pace: str = "real"
    protocol: str = "as-captured"
    jobs: int = 1
    connections: int = 64
    noise: float = 0.0
    rereads: int = 3
    query_seconds: float = 60.0
    wait_seconds: float = 10.0
    idle_seconds: float | None = None
    max_lag: float | None = None
    found_rows: bool = True
    clone_marker: str | None = None
    waivers: Path | None = None
    folder: Path = Path(".migverify/replay")
    service_levels: tuple[ServiceLevel, ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedJob:
    """A job of Prometheus: ``count`` instances, or those named. ``max_age``: seconds."""

    name: str
    count: int
    instances: tuple[str, ...]
    max_age: float


@dataclass(frozen=True, slots=True)
class ExpectedSeries:
    """A value that Prometheus must know: PromQL, how many series, bounds, and how old samples may be (seconds)."""

    name: str
    query: str
    series: int = 1
    job: str | None = None
    min: float | None = None
    max: float | None = None
    max_age: float = 60.0
    age_of: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SqlProbes:
    """Bounds of what the servers are asked where Prometheus is blind: seconds, a share, a count."""

    max_lag_seconds: float = 10.0
    max_connections_share: float = 0.8
    max_transaction_seconds: float = 60.0
    max_lock_waits: int = 10


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """What the monitoring is expected to know. Times are seconds; ``password_env`` and ``token_env`` name secrets."""

    prometheus: str | None = None
    user: str | None = None
    password_env: str | None = None
    token_env: str | None = None
    ca: str | None = None
    timeout: float = 3.0
    max_age: float = 60.0
    max_offset: float = 2.0
    retention: float = 86_400.0
    watchdog: str | None = None
    heartbeat: str | None = None
    jobs: tuple[ExpectedJob, ...] = ()
    series: tuple[ExpectedSeries, ...] = ()
    sql: SqlProbes = SqlProbes()


@dataclass(frozen=True, slots=True)
class ReadinessFloor:
    """The least that drills of any runbook have to show before a live run; the defaults are built in."""

    drills_min: int = 4
    clean_last: int = 2
    same_runbook: bool = True
    same_schema: bool = True
    full_cast_last: bool = True
    rollback_drills_min: int = 1
    max_age_days: float = 30.0


@dataclass(frozen=True, slots=True)
class Config:
    """A whole ``migverify.yaml``.

    ``path`` is the file it came from. ``sources`` holds one endpoint named ``source``, or one per shard named
    ``source.<shard>``; ``others`` are further endpoints of reconciliation rules. ``consistency`` is ``auto``,
    ``quiescent`` or ``live``; ``hash`` is ``auto``, ``sha2``, ``md5`` or ``sha1``.
    """

    path: Path
    sources: tuple[Endpoint, ...]
    target: Endpoint
    store: StoreSettings
    tables: TableFilter
    routes: tuple[Route, ...] = ()
    overrides: tuple[OverrideRule, ...] = ()
    limits: Limits = Limits()
    recheck: Recheck = Recheck()
    watch: WatchSettings = WatchSettings()
    consistency: str = "auto"
    report: ReportSettings = ReportSettings()
    hash: str = "auto"
    spark: SparkSettings = SparkSettings()
    others: tuple[Endpoint, ...] = ()
    workload: WorkloadSettings = WorkloadSettings()
    monitors: MonitorSettings = MonitorSettings()
    readiness: ReadinessFloor = ReadinessFloor()

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of the migration, sources first, without ``others``."""
        return (*self.sources, self.target)

    @property
    def all_endpoints(self) -> tuple[Endpoint, ...]:
        """Every endpoint that a reconciliation rule may name: those of the migration, then ``others``."""
        return (*self.endpoints, *self.others)

    @property
    def shards(self) -> tuple[str, ...]:
        """Shard names in the order of ``sources``; ``("",)`` for a single source."""
        return tuple(shard_of(endpoint) for endpoint in self.sources)


def shard_of(endpoint: Endpoint) -> str:
    """Shard name of a source endpoint, ``""`` for a single source and for the target."""
    return endpoint.name.partition(".")[2]
