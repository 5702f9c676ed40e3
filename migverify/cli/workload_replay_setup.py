"""What ``workload replay`` does around the replay itself: options, endpoints, plan, and the run in the store."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.cli.console import command_line
from migverify.errors import ConfigError, PlanError, UsageError, wheel_hint
from migverify.model import Side, StoredKind

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.config.settings import ServiceLevel, WorkloadSettings
    from migverify.db.session import Session
    from migverify.store.results import ResultStore
    from migverify.workload.catalogue.waivers import Waiver
    from migverify.workload.forecast.model import CallTrace, LoadForecast
    from migverify.workload.replay.connections import EngineOptions
    from migverify.workload.replay.plan import CallSelection, ColumnReader, ReplayPlan
    from migverify.workload.replay.run import ReplayResult
    from migverify.workload.replay.safety import Leave, ReplayEndpoints
    from migverify.workload.replay.touches import Keys
    from migverify.workload.replay.verdict import ReplayVerdict
    from migverify.workload.server_sessions import SessionDump


_WRITING_KINDS = frozenset({"write", "ddl", "administrative", "unknown"})


@dataclass(frozen=True, slots=True)
class ReplaySetup:
    """Everything a replay needs that is known without its plan; ``workload`` holds the command line's options too."""

    config: Config
    workload: WorkloadSettings
    leave: Leave
    options: EngineOptions
    sides: ReplayEndpoints
    levels: Mapping[str, ServiceLevel]  # with the command line's headroom
    waivers: Sequence[Waiver]
    reads_only: bool
    accept_write_grants: bool
    dumps: Sequence[SessionDump]
    database: str | None


def set_up(
    config: Path, settings: Mapping[str, Any], levels: Sequence[str], leave: Leave, *, reads_only: bool,
    target_only: bool, accept_write_grants: bool, dumps: Sequence[SessionDump] = (), database: str | None = None,
    headroom: float | None = None,
) -> ReplaySetup:  # fmt: skip
    """Load the configuration and join it with the command line; a setting that is None is the configuration's.

    Raises ConfigError or UsageError where the configuration, a pace or the name of a service level is wrong.
    """
    from migverify.config import load_config
    from migverify.secrets import resolve_password
    from migverify.workload.catalogue.waivers import load_waivers
    from migverify.workload.replay.connections import EngineOptions
    from migverify.workload.replay.pace import parse_pace
    from migverify.workload.replay.safety import ReplayEndpoints
    from migverify.workload.replay.slo import level, with_headroom
    from migverify.workload.replay.wire import Limits

    loaded = load_config(config)
    workload = loaded.workload.model_copy(update={name: one for name, one in settings.items() if one is not None})
    endpoints = {Side.TARGET: loaded.target}
    if not target_only:
        if len(loaded.sources) != 1:
            raise ConfigError(
                f"{config} names {len(loaded.sources)} sources; a replay asks one",
                hint="Write a configuration with one `source` for this capture, or replay with --target-only.",
            )
        endpoints = {Side.SOURCE: loaded.sources[0], **endpoints}
    secrets = {
        one.name: resolve_password(one).reveal()
        for one in endpoints.values() if one.password_env or one.password_command
    }  # fmt: skip
    options = EngineOptions(
        pace=parse_pace(workload.pace), text=workload.protocol == "text", rereads=workload.rereads,
        noise=workload.noise, mask=not loaded.report.values, limits=Limits(seconds=workload.query_seconds),
        connections=workload.connections, wait_limit=workload.wait_seconds, max_lag=workload.max_lag,
        found_rows=workload.found_rows, writes=leave.writes or leave.ddl,
    )  # fmt: skip
    waivers = None if workload.waivers is None else load_waivers(Path(workload.waivers))
    return ReplaySetup(
        loaded, workload, leave, options, ReplayEndpoints(endpoints, secrets),
        {name: with_headroom(level(name, workload.service_levels), headroom) for name in levels},
        () if waivers is None else (*waivers.holding, *waivers.expired),  # the verdict reports those that have expired
        reads_only, accept_write_grants, dumps, database,
    )  # fmt: skip


def capture_reader() -> ColumnReader:
    """Return what reads a capture's files."""
    try:
        from migverify.workload.statement_files import read_columns
    except ImportError as error:
        raise UsageError("Parquet needs the package pyarrow.", hint=f"{wheel_hint('spark')}.") from error
    return read_columns


def plan_of(
    setup: ReplaySetup, capture: Path, folder: Path, selection: CallSelection, progress: Callable[[int], None]
) -> ReplayPlan:
    """Read a capture into a plan; the order of writes needs the keys of the tables, which are read from a server."""
    from migverify.workload.replay.plan import read_plan

    reader, keys = capture_reader(), _keys(setup, capture)
    idle = setup.workload.idle_seconds
    return read_plan(
        capture, folder, reader, selection=selection, leave=setup.leave, keys=keys, dumps=setup.dumps,
        database=setup.database, idle=None if idle is None else round(idle * 1_000_000), progress=progress,
    )  # fmt: skip


def _keys(setup: ReplaySetup, capture: Path, side: Side | None = None) -> Keys:
    """Return the keys of the tables in a capture's databases, from the first side where none is named."""
    from migverify.db.session import open_session
    from migverify.workload.replay.keys import databases_of, read_keys

    databases = databases_of(capture_reader()(capture, ["database"])) | ({setup.database} if setup.database else set())
    databases |= {one.database for dump in setup.dumps for one in dump.sessions if one.database}
    side = next(iter(setup.sides.endpoints)) if side is None else side
    endpoint = setup.sides.endpoints[side]
    with open_session(endpoint, setup.sides.secrets.get(endpoint.name), side=side) as session:
        return read_keys(session, databases)


def _increments(setup: ReplaySetup) -> dict[Side, int]:
    """Return the distance of each server's AUTO_INCREMENT values."""
    from migverify.db.session import open_session

    increments = {}
    for side, endpoint in setup.sides.endpoints.items():
        with open_session(endpoint, setup.sides.secrets.get(endpoint.name), side=side) as session:
            increments[side] = int(session.query("SELECT @@GLOBAL.auto_increment_increment")[0][0] or 0)
    return increments


def histories(setup: ReplaySetup, store: ResultStore, run_id: str, folder: Path) -> list[str]:
    """Write the histories of a run's transactions; return the files, the source's first."""
    from migverify.decision.model import basis_of
    from migverify.workload.anomalies.record import write_histories
    from migverify.workload.catalogue.versions import server
    from migverify.workload.replay.keys import shared_keys
    from migverify.workload.replay.run import value_codes
    from migverify.workload.replay.runfile import RunFile

    info = store.load_run(run_id)
    facts, basis = info.facts["endpoints"], basis_of(info.facts)
    servers = {side: server(facts[side.value]["version"]) for side in (Side.SOURCE, Side.TARGET)}
    identities = {
        side.value: basis.identities.get(one.name, "") for side, one in setup.sides.endpoints.items() if basis
    }  # fmt: skip
    texts = {side: f"{one.flavor.value} {one.text}" for side, one in servers.items()}
    capture = Path(info.plan["capture"])
    keys = shared_keys(_keys(setup, capture, Side.SOURCE), _keys(setup, capture, Side.TARGET))
    with RunFile(folder) as run:
        files = write_histories(
            run, keys, texts, identities, mask=setup.options.mask, codes=value_codes(run, setup.options),
            increments=_increments(setup),
        )  # fmt: skip
    return [str(files[side]) for side in texts]


def begin(
    setup: ReplaySetup, store: ResultStore, capture: Path, selection: CallSelection, progress: Callable[[int], None]
) -> tuple[str, Path]:
    """Check both sides (``inspected``), plan, and begin a run in the store; return its id and folder."""
    facts = inspected(setup)
    root = Path(setup.workload.folder)
    fresh = root / f"planning-{os.getpid()}-{time.time_ns()}"
    try:
        plan = plan_of(setup, capture, fresh, selection, progress)
        body = {
            "kind": StoredKind.REPLAY.value, **plan.as_json(), "capture": str(capture.resolve()),
            "sides": [side.value for side in setup.sides.endpoints],
        }  # fmt: skip
        command = command_line()
        run_facts = {"endpoints": facts, **_options(setup), **basis_to_keep(setup.config, capture)}
        run_id = store.start_run(command, plan.hash, body, run_facts, kind=StoredKind.REPLAY)
        folder = root / run_id
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)  # a plan without a run
        raise
    return run_id, folder


def basis_to_keep(
    config: Config, capture: Path | None, opened: Callable[[Session], None] = lambda _: None
) -> dict[str, Any]:
    """Return what a run keeps of the servers, definitions, configuration and capture that it rests on.

    Where they cannot be read the run goes on without, which is said: it is no evidence for a decision.
    """
    from migverify.cli.console import say
    from migverify.decision.basis import basis_facts

    facts, problem = basis_facts(config, capture, opened)
    if problem:
        say(f"note: {problem}")
    return facts


def carry_on(setup: ReplaySetup, store: ResultStore, run: str, capture: Path) -> tuple[str, Path]:
    """Go on with a run; return its id and folder.

    Raises UsageError or PlanError where there is no such run, or it was begun with another capture or other rights.
    """
    from migverify.store.results import named_run
    from migverify.tables.run_facts import refuse_other_servers
    from migverify.workload.replay.plan import load_plan
    from migverify.workload.replay.runfile import RunFile

    info = named_run(store, run, StoredKind.REPLAY)
    if info.plan["capture"] != str(capture.resolve()):
        raise UsageError(f"run {info.run_id} replays {info.plan['capture']}, not {capture.resolve()}.",
                         hint="Name the capture it was begun with.")  # fmt: skip
    leave = {name: one for name, one in info.plan["choices"]["leave"].items() if one}
    if leave != {name: one for name, one in asdict(setup.leave).items() if one}:
        raise UsageError(f"run {info.run_id} was begun with other rights: {', '.join(leave) or 'reads only'}.",
                         hint="Give --writes, --ddl and --locking as then.")  # fmt: skip
    if info.plan["sides"] != [side.value for side in setup.sides.endpoints]:
        raise UsageError(f"run {info.run_id} asks {', '.join(info.plan['sides'])}.", hint="Give --target-only as then.")
    addresses = {side.value: {"address": f"{one.host}:{one.port}"} for side, one in setup.sides.endpoints.items()}
    refuse_other_servers(info, addresses)
    folder = Path(setup.workload.folder) / info.run_id
    with RunFile(folder) as file:
        plan = load_plan(file)
    if plan.hash != info.plan_hash:
        raise PlanError(f"{folder} holds another plan than run {info.run_id}", hint="Start a new replay.")
    inspected(setup)
    store.resume_run(info.run_id)
    return info.run_id, folder


def inspected(setup: ReplaySetup, opened: Callable[[Session], None] = lambda _: None) -> dict[str, dict[str, Any]]:
    """Return facts of each side; raises EndpointError where one is not what the run needs."""
    from migverify.workload.replay.safety import inspect

    marker, accepted = setup.workload.clone_marker, setup.accept_write_grants
    return inspect(setup.sides, setup.leave, marker, accept_write_grants=accepted, opened=opened)


def conclude(
    setup: ReplaySetup, store: ResultStore, run_id: str, result: ReplayResult, steps: Sequence[CallTrace] = ()
) -> ReplayVerdict:
    """Judge the whole, write it into the store with the forecast of its load, and return it.

    ``steps`` are further loads.
    """
    from migverify.workload.catalogue.load import load
    from migverify.workload.forecast.levels import judge_headroom, latency_alone, latency_without_pause
    from migverify.workload.forecast.steps import trace_of
    from migverify.workload.forecast.store import write_forecast
    from migverify.workload.probe_store import probed_here
    from migverify.workload.replay.run import run_facts
    from migverify.workload.replay.runfile import RunFile
    from migverify.workload.replay.slo import judge_level
    from migverify.workload.replay.store import write_replay
    from migverify.workload.replay.verdict import CatalogueLabels, MatchRequirements, verdict
    from migverify.workload.replay.waits import LEAST_LAG, waits

    trace = trace_of(result.plan.folder, setup.options.pace, result)
    forecast = _forecast(setup, result, [trace, *steps])
    texts = {digest: one.text for digest, one in result.tally.digests.items()}
    levels = [
        judge_level(
            name,
            level,
            replace(
                result.measured(level),
                alone=latency_alone(trace, level, texts),
                steady=latency_without_pause(trace, level, texts),
            ),
        )
        for name, level in setup.levels.items()
    ]
    levels += judge_headroom(forecast)
    addresses = {side.value: f"{one.host}:{one.port}" for side, one in setup.sides.endpoints.items()}
    found = verdict(
        result.tally, CatalogueLabels(load(), _versions(store, run_id), probed_here(store, addresses)),
        setup.waivers, levels,
        requirements=MatchRequirements(out_of_scope=_WRITING_KINDS if setup.reads_only else frozenset()),
        unfinished=result.unfinished,
    )  # fmt: skip
    facts: dict[str, Any] = {
        "slo": [asdict(level) for level in levels], "pace": str(setup.options.pace),
        "captures": [result.plan.capture], "run": run_facts(result),
    }  # fmt: skip
    if result.open_loop and result.attempts == 1 and result.counters.lag_most >= LEAST_LAG:
        with RunFile(result.plan.folder) as run:
            facts["waits"] = waits(run, setup.options.pace)
    write_forecast(store, run_id, forecast)
    write_replay(store, run_id, result.tally, found, facts=facts, seconds=result.seconds)
    store.finish_run(run_id, found.verdict, {"seconds": result.seconds, "reasons": list(found.reasons)})
    return found


def _forecast(setup: ReplaySetup, result: ReplayResult, traces: Sequence[CallTrace]) -> LoadForecast:
    from migverify.workload.forecast.make import ForecastOptions, forecast

    plan, workload = result.plan, setup.workload
    options = ForecastOptions(setup.levels, workload.forecast_seconds, workload.target_parallelism)
    texts = {digest: one.text for digest, one in result.tally.digests.items()}
    return forecast(traces, (plan.span - plan.idle) / 1e6, texts, options)


def _options(setup: ReplaySetup) -> dict[str, Any]:
    workload = setup.workload
    return {
        "pace": str(setup.options.pace), "protocol": str(workload.protocol), "noise": workload.noise,
        "jobs": workload.jobs, "connections": workload.connections, "rereads": workload.rereads,
    }  # fmt: skip


def _versions(store: ResultStore, run_id: str) -> Any:
    from migverify.workload.catalogue.versions import Versions, server

    facts = store.load_run(run_id).facts.get("endpoints", {})
    if "source" not in facts or "target" not in facts:
        return None
    return Versions(server(facts["source"]["version"]), server(facts["target"]["version"]))
