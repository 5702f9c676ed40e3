"""What Prometheus is expected to know: the keys under ``monitors``. Times are seconds."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, model_validator

from migverify.config.fields import HttpUrl, Many, Seconds, Strict, VariableName

Bound = Annotated[float, Field(allow_inf_nan=False)]


class ExpectedJob(Strict):
    """What a job scrapes."""

    instances: Annotated[
        int | Many[str],
        Field(description="How many instances there are, or their `instance` labels: `[tidb1:10080, tidb2:10080]`."),
    ]
    max_age_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Instead of the `max_age_seconds` of `monitors`."
    )

    @model_validator(mode="after")
    def _some(self) -> ExpectedJob:
        if isinstance(self.instances, int):
            if self.instances < 1:
                raise ValueError("`instances` is at least 1")
        elif not self.instances or len(set(self.instances)) < len(self.instances) or "" in self.instances:
            raise ValueError("`instances` names none, an empty one, or one twice")
        return self

    @property
    def count(self) -> int:
        """How many instances there must be."""
        return self.instances if isinstance(self.instances, int) else len(self.instances)

    @property
    def labels(self) -> tuple[str, ...]:
        """Their ``instance`` labels; empty where only their number is known."""
        return () if isinstance(self.instances, int) else self.instances


class ExpectedSeries(Strict):
    """A value that somebody relies on."""

    query: str = Field(min_length=1, description="PromQL that gives the value: an instant vector or a scalar.")
    series: int = Field(default=1, ge=1, description="It gives at least so many series; fewer is blind.")
    job: str | None = Field(
        default=None, min_length=1, description="A name under `jobs`: each of its instances gives at least one series."
    )
    min: Bound | None = Field(default=None, description="A lower value fails.")
    max: Bound | None = Field(default=None, description="A higher value fails.")
    max_age_seconds: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="Instead of the `max_age_seconds` of `monitors`."
    )
    age_of: Many[str] = Field(
        default_factory=tuple,
        description="Selectors of the series whose age counts. Default: those in `query`; needed where it has `offset`"
        " or `@`.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> ExpectedSeries:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError("`min` is above `max`")
        return self


class SqlProbes(Strict):
    """Bounds of the values that are asked of the servers themselves where Prometheus is blind."""

    max_lag_seconds: Seconds = Field(default=10.0, description="Replication lag.")
    max_connections_share: float = Field(
        default=0.8, gt=0, le=1, description="Share of the connections that a server allows."
    )
    max_transaction_seconds: Seconds = Field(default=60.0, description="Age of the oldest open transaction.")
    max_lock_waits: int = Field(default=10, ge=0, description="Transactions that wait for a lock.")


class MonitorSettings(Strict):
    """What the monitoring is expected to know, for `migverify guard monitors`."""

    prometheus: HttpUrl | None = Field(
        default=None, description="`http://prometheus:9090`, as seen from here. A password in it is refused."
    )
    user: str | None = Field(default=None, min_length=1, description="User for HTTP basic authentication.")
    password_env: VariableName | None = Field(
        default=None, description="Name of the environment variable that holds this user's password."
    )
    token_env: VariableName | None = Field(
        default=None, description="Name of the environment variable that holds a bearer token, instead of `user`."
    )
    ca: str | None = Field(default=None, min_length=1, description="PEM file of the certificate authority, for https.")
    timeout_seconds: float = Field(
        default=3.0, gt=0, allow_inf_nan=False, description="How long an answer of Prometheus may take."
    )
    max_age_seconds: float = Field(
        default=60.0,
        gt=0,
        allow_inf_nan=False,
        description="Samples, scrapes and evaluations older than this are stale.",
    )
    max_offset_seconds: float = Field(
        default=2.0, gt=0, allow_inf_nan=False, description="How far Prometheus' clock may be from the one here."
    )
    retention_hours: float = Field(
        default=24.0, ge=0, allow_inf_nan=False, description="How long samples must be kept: the run, and looking back."
    )
    watchdog: str | None = Field(
        default=None, min_length=1, description="Name of an alert that always fires (`expr: vector(1)`)."
    )
    heartbeat: str | None = Field(
        default=None,
        min_length=1,
        description="PromQL of a series whose value is the Unix time at which it was last written, for example"
        " `max(migverify_guard_time_seconds)` of this command's own metrics page.",
    )
    jobs: dict[
        str,
        Annotated[
            ExpectedJob,
            BeforeValidator(
                lambda value: {"instances": value} if isinstance(value, int | list) else value,
                json_schema_input_type=int | list[str] | ExpectedJob,
            ),
        ],
    ] = Field(
        default_factory=dict,
        description="Jobs that must be scraped, by their `job` label: a number of instances, a list of them, or more.",
    )
    series: dict[str, ExpectedSeries] = Field(
        default_factory=dict, description="Values that must be known, by a name of your own."
    )
    sql: SqlProbes = Field(
        default_factory=SqlProbes, description="What the servers are asked where Prometheus is blind."
    )

    @model_validator(mode="after")
    def _consistent(self) -> MonitorSettings:
        if self.user and self.token_env:
            raise ValueError("give either `user` or `token_env`")
        if bool(self.user) != bool(self.password_env):
            raise ValueError("`user` and `password_env` belong together")
        unknown = sorted({part.job for part in self.series.values() if part.job} - self.jobs.keys())
        if unknown:
            raise ValueError(f"`job: {unknown[0]}` of a series is not under `jobs`")
        return self

    def max_age_of(self, part: ExpectedJob | ExpectedSeries) -> float:
        """Return how old samples of a job or a series may be, in seconds."""
        return part.max_age_seconds or self.max_age_seconds
