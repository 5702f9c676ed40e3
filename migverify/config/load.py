"""``migverify.yaml`` -> Config, or one ConfigError that says what, where and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.config.patterns import make_route, parse_pattern
from migverify.config.problems import at, validate
from migverify.config.settings import (
    Config,
    ExpectedJob,
    ExpectedSeries,
    ImmutableBefore,
    Limits,
    MonitorSettings,
    OverrideRule,
    ReadinessFloor,
    Recheck,
    ReportSettings,
    ServiceLevel,
    SparkSettings,
    SqlProbes,
    StoreSettings,
    TableFilter,
    TableOverride,
    WatchSettings,
    WorkloadSettings,
)
from migverify.config.urls import Address, parse_endpoint_url, store_host
from migverify.config.yaml_text import YamlProblem, read_yaml
from migverify.errors import ConfigError
from migverify.model import Endpoint

if TYPE_CHECKING:
    from migverify.config.document import ConfigDocument, EndpointPart, OverridePart, WatchPart, WorkloadPart
    from migverify.config.document_monitors import MonitorsPart

DEFAULT_NAME = "migverify.yaml"


def load_config(path: Path, *, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check a configuration file.

    Parameters
    ----------
    path
        The file. Relative paths in it (an SQLite store, the pause file) start at its folder; TLS files do
        not, because they are opened by whichever machine connects.
    environment
        Variables for ``${NAME}``; the process's own by default.

    Raises
    ------
    ConfigError
        The file is missing, is not YAML, or says something it cannot; the message names file, line and column
        and never shows a value.
    """
    text = _read(path)
    try:
        document = read_yaml(text, environment)
    except YamlProblem as problem:
        raise ConfigError(f"{at(path, problem.place)}: {problem.problem}", hint=problem.hint) from None
    if document.data is None:
        raise ConfigError(f"{path}: the file is empty", hint=f"Run `migverify init --force -o {path}`.")
    from migverify.config.document import ConfigDocument  # pydantic costs a tenth of a second

    return _convert(validate(path, document, ConfigDocument), path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no configuration file {path}",
            hint="Run `migverify init` to write one, or name another with --config.",
        ) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})", hint="Save the file as UTF-8.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or type(error).__name__}") from None


def _convert(document: ConfigDocument, path: Path) -> Config:
    if document.source is not None:
        sources: tuple[Endpoint, ...] = (_endpoint("source", document.source),)
    else:
        sources = tuple(_endpoint(f"source.{name}", part) for name, part in (document.sources or {}).items())
    folder = path.parent
    limits: dict[str, Any] = document.limits.model_dump()
    if limits["pause_file"] is not None:
        limits["pause_file"] = str(folder / limits["pause_file"])
    return Config(
        path=path,
        sources=sources,
        target=_endpoint("target", document.target),
        others=tuple(_endpoint(name, part) for name, part in document.endpoints.items()),
        store=_store(document, folder),
        tables=TableFilter(
            tuple(parse_pattern(text) for text in document.tables.include),
            tuple(parse_pattern(text) for text in document.tables.exclude),
        ),
        routes=tuple(make_route(part.from_, part.to, part.shard) for part in document.routes),
        overrides=tuple(OverrideRule(parse_pattern(part.table), _override(part)) for part in document.overrides),
        limits=Limits(**limits),
        recheck=Recheck(document.recheck.delay, document.recheck.rounds),
        watch=_watch(document.watch),
        consistency=document.consistency,
        report=ReportSettings(document.report.values),
        hash=document.hash,
        spark=SparkSettings(document.spark.master, tuple(document.spark.conf.items())),
        workload=_workload(document.workload, folder),
        monitors=_monitors(document.monitors),
        readiness=ReadinessFloor(**document.readiness.model_dump()),
    )


def _endpoint(name: str, part: EndpointPart) -> Endpoint:
    if part.url is not None:
        address = parse_endpoint_url(part.url)
    else:
        address = Address(part.host or "", part.port or 3306, part.user or "")
    return Endpoint(
        name=name,
        host=address.host,
        port=address.port,
        user=address.user,
        password_env=part.password_env,
        password_command=part.password_command,
        tls=part.tls.settings(address.host),
        connections=part.connections,
        query_seconds=part.query_seconds,
        snapshot=part.snapshot,
        resource_group=part.resource_group,
        low_priority=part.low_priority,
        session=tuple(part.session.items()),
    )


def _watch(part: WatchPart) -> WatchSettings:
    ids = {"": part.checkpoint_id} if isinstance(part.checkpoint_id, str) else part.checkpoint_id or {}
    return WatchSettings(
        part.applied, part.settle_seconds, part.checkpoint, tuple(sorted(ids.items())), part.marker, part.delay,
        part.hot_seconds, part.sweep_rows, part.drain_seconds,
    )  # fmt: skip


def _workload(part: WorkloadPart, folder: Path) -> WorkloadSettings:
    levels = tuple(
        ServiceLevel(name, one.writes, one.reads, one.quantile, one.seconds)
        for name, one in part.service_levels.items()
    )
    return WorkloadSettings(
        part.pace, part.protocol, part.jobs, part.connections, part.noise, part.rereads, part.query_seconds,
        part.wait_seconds, part.idle_seconds, part.max_lag, part.found_rows, part.clone_marker,
        None if part.waivers is None else folder / part.waivers, folder / part.folder, levels,
    )  # fmt: skip


def _monitors(part: MonitorsPart) -> MonitorSettings:
    jobs = tuple(
        ExpectedJob(
            name, one.instances if isinstance(one.instances, int) else len(one.instances),
            () if isinstance(one.instances, int) else tuple(one.instances), one.max_age_seconds or part.max_age_seconds,
        )
        for name, one in part.jobs.items()
    )  # fmt: skip
    series = tuple(
        ExpectedSeries(
            name, one.query, one.series, one.job, one.min, one.max, one.max_age_seconds or part.max_age_seconds,
            tuple(one.age_of),
        )
        for name, one in part.series.items()
    )  # fmt: skip
    return MonitorSettings(
        part.prometheus, part.user, part.password_env, part.token_env, part.ca, part.timeout_seconds,
        part.max_age_seconds, part.max_offset_seconds, part.retention_hours * 3600, part.watchdog, part.heartbeat, jobs,
        series, SqlProbes(**part.sql.model_dump()),
    )  # fmt: skip


def _override(part: OverridePart) -> TableOverride:
    tolerances = dict(part.float_tolerance)
    before = part.immutable_before
    return TableOverride(
        key=None if part.key is None else tuple(part.key),
        ignore=tuple(part.ignore),
        rename=tuple(part.rename.items()),
        where_source=part.where.source,
        where_target=part.where.target,
        float_tolerance=tolerances.pop("*", None),
        column_tolerances=tuple(tolerances.items()),
        immutable_before=None if before is None else ImmutableBefore(before.column, before.value),
    )


def _store(document: ConfigDocument, folder: Path) -> StoreSettings:
    url = _store_url(document.store, folder)
    return StoreSettings(url, document.store_password_env, document.store_tls.settings(store_host(url)))


def _store_url(url: str, folder: Path) -> str:
    scheme, _, rest = url.partition("://")
    name = rest[1:]
    relative = scheme.split("+")[0].lower() == "sqlite" and name and not name.startswith(("/", ":memory:", "file:"))
    return f"{scheme}:///{folder / name}" if relative else url
