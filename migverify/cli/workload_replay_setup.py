"""What ``workload replay`` does around the replay itself: options, endpoints, plan, and the run in the store."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.cli.console import command_line
from migverify.errors import ConfigError, PlanError, UsageError
from migverify.model import StoredKind

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.store.base import ResultStore
    from migverify.workload.catalogue.match import Catalogue
    from migverify.workload.catalogue.waivers import Waiver, Waivers
    from migverify.workload.replay.engine import EngineOptions
    from migverify.workload.replay.plan import Plan, Reader, Selection
    from migverify.workload.replay.run import ReplayResult
    from migverify.workload.replay.safety import Leave
    from migverify.workload.replay.sides import Sides
    from migverify.workload.replay.slo import Profile
    from migverify.workload.server_sessions import SessionDump


_WRITING_KINDS = frozenset({"write", "ddl", "administrative", "unknown"})


@dataclass(frozen=True, slots=True)
class Given:
    """What the command line said; None leaves it to the configuration."""

    pace: str | None
    protocol: str | None
    noise: float | None
    jobs: int | None
    connections: int | None
    max_lag: float | None
    idle: float | None
    slo: tuple[str, ...]
    leave: Leave
    reads_only: bool
    target_only: bool
    accept_write_grants: bool
    dumps: tuple[SessionDump, ...] = ()
    database: str | None = None


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything a replay needs that is known without its plan."""

    config: Config
    given: Given
    options: EngineOptions
    sides: Sides
    jobs: int
    idle: int | None
    levels: tuple[Profile, ...]
    catalogue: Catalogue
    waivers: tuple[Waiver, ...]


def set_up(config: Path, given: Given) -> Setup:
    """Load the configuration and join it with the command line.

    Raises
    ------
    ConfigError, UsageError
        the configuration, a pace or the name of a service level is wrong.
    """
    from migverify.config import load_config
    from migverify.model import Side
    from migverify.secrets import resolve_password
    from migverify.workload.catalogue.load import load
    from migverify.workload.catalogue.waivers import load_waivers
    from migverify.workload.replay.asking import AskOptions, Protocol
    from migverify.workload.replay.compare import CompareOptions
    from migverify.workload.replay.engine import EngineOptions
    from migverify.workload.replay.pace import parse_pace
    from migverify.workload.replay.sides import Sides
    from migverify.workload.replay.slo import Profile, profile
    from migverify.workload.replay.wire import Limits

    loaded = load_config(config)
    told = loaded.workload
    known = {name: Profile(name, **level.model_dump()) for name, level in told.service_levels.items()}
    levels = tuple(profile(name, known) for name in given.slo)
    endpoints = {Side.TARGET: loaded.target}
    if not given.target_only:
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
    connections = given.connections or told.connections
    idle = given.idle if given.idle is not None else told.idle_seconds
    options = EngineOptions(
        pace=parse_pace(given.pace or told.pace),
        ask=AskOptions(
            Protocol(given.protocol or told.protocol), told.rereads,
            noise=told.noise if given.noise is None else given.noise,
        ),
        compare=CompareOptions(mask=not loaded.report.values),
        limits=Limits(seconds=told.query_seconds),
        connections=connections, wait_limit=told.wait_seconds,
        max_lag=told.max_lag if given.max_lag is None else given.max_lag,
        found_rows=told.found_rows, writes=given.leave.writes or given.leave.ddl,
    )  # fmt: skip
    return Setup(
        loaded, given, options, Sides(endpoints, secrets), given.jobs or told.jobs,
        None if idle is None else round(idle * 1_000_000), levels, load(),
        () if told.waivers is None else _waivers(load_waivers(Path(told.waivers))),
    )  # fmt: skip


def plan_of(
    setup: Setup, capture: Path, folder: Path, selection: Selection, reader: Reader, progress: Callable[[int], None]
) -> Plan:
    """Read a capture into a plan; the order of writes needs the keys of the tables, which a server is asked for."""
    from migverify.db.session import open_session
    from migverify.workload.replay.keys import databases_of, read_keys, unlike_unique_keys
    from migverify.workload.replay.plan import read_plan

    given = setup.given
    databases = databases_of(reader(capture, ["database"])) | ({given.database} if given.database else set())
    databases |= {one.database for dump in given.dumps for one in dump.sessions if one.database}
    keys = []
    for side, endpoint in setup.sides.endpoints.items():
        with open_session(endpoint, setup.sides.secrets.get(endpoint.name), side=side) as session:
            keys.append(read_keys(session, databases))
    return read_plan(
        capture, folder, reader, selection=selection, leave=given.leave, keys=keys[0], dumps=given.dumps,
        database=given.database, unlike_keys=unlike_unique_keys(keys[0], keys[-1]), idle=setup.idle, progress=progress,
    )  # fmt: skip


def begin(
    setup: Setup, store: ResultStore, capture: Path, selection: Selection, reader: Reader,
    progress: Callable[[int], None],
) -> tuple[str, Path]:  # fmt: skip
    """Check both sides, plan, and begin a run in the store; return its id and folder.

    Raises
    ------
    EndpointError
        a side is not what the run needs (``sides.inspect``).
    """
    from migverify.workload.replay.sides import inspect

    facts = inspect(
        setup.sides, setup.given.leave, setup.config.workload.clone_marker,
        accept_write_grants=setup.given.accept_write_grants,
    )  # fmt: skip
    root = Path(setup.config.workload.folder)
    fresh = root / f"planning-{os.getpid()}-{time.time_ns()}"
    try:
        plan = plan_of(setup, capture, fresh / "plan", selection, reader, progress)
        body = {
            "kind": StoredKind.REPLAY.value, **plan.as_json(), "capture": str(capture.resolve()),
            "sides": [side.value for side in setup.sides.endpoints],
        }  # fmt: skip
        command = command_line()
        run_id = store.start_run(
            command, plan.hash, body, {"endpoints": facts, **_options(setup)}, kind=StoredKind.REPLAY
        )
        folder = root / run_id
        fresh.rename(folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)  # a plan without a run
        raise
    return run_id, folder


def carry_on(setup: Setup, store: ResultStore, run: str, capture: Path) -> tuple[str, Path]:
    """Go on with a run; return its id and folder.

    Raises
    ------
    UsageError, PlanError
        there is no such run, it is of another capture, or it was begun with other rights.
    """
    from migverify.store.base import named_run
    from migverify.workload.replay.plan import load_plan
    from migverify.workload.replay.sides import inspect

    info = named_run(store, run, StoredKind.REPLAY)
    if info.plan["capture"] != str(capture.resolve()):
        raise UsageError(f"run {info.run_id} replays {info.plan['capture']}, not {capture.resolve()}.",
                         hint="Name the capture it was begun with.")  # fmt: skip
    leave = asdict(setup.given.leave)
    if info.plan["choices"]["leave"] != leave:
        raise UsageError(f"run {info.run_id} was begun with other rights: {info.plan['choices']['leave']}.",
                         hint="Say --writes, --ddl and --locking as then.")  # fmt: skip
    if info.plan["sides"] != [side.value for side in setup.sides.endpoints]:
        raise UsageError(f"run {info.run_id} asks {', '.join(info.plan['sides'])}.", hint="Say --target-only as then.")
    folder = Path(setup.config.workload.folder) / info.run_id
    if load_plan(folder / "plan").hash != info.plan_hash:
        raise PlanError(f"{folder} holds another plan than run {info.run_id}", hint="Start a new replay.")
    inspect(
        setup.sides, setup.given.leave, setup.config.workload.clone_marker,
        accept_write_grants=setup.given.accept_write_grants,
    )  # fmt: skip
    store.resume_run(info.run_id)
    return info.run_id, folder


def conclude(setup: Setup, store: ResultStore, run_id: str, result: ReplayResult) -> None:
    """Judge the whole and write it into the store."""
    from migverify.workload.probe_store import probed_here
    from migverify.workload.replay.labels import CatalogueLabels
    from migverify.workload.replay.run import run_facts
    from migverify.workload.replay.slo import judge_level
    from migverify.workload.replay.store import write_replay
    from migverify.workload.replay.verdict import Policy, verdict

    levels = [judge_level(level, result.measured()) for level in setup.levels]
    addresses = {side.value: f"{one.host}:{one.port}" for side, one in setup.sides.endpoints.items()}
    found = verdict(
        result.tally,
        CatalogueLabels(
            setup.catalogue, _versions(store, run_id), probed_here(store, addresses), result.plan.unlike_keys
        ),
        setup.waivers,
        levels,
        policy=Policy(out_of_scope=_WRITING_KINDS if setup.given.reads_only else frozenset()),
        unfinished=result.unfinished,
    )  # fmt: skip
    facts: dict[str, Any] = {
        "slo": [asdict(level) for level in levels], "pace": str(setup.options.pace),
        "captures": [result.plan.capture], "run": run_facts(result),
    }  # fmt: skip
    write_replay(store, run_id, result.tally, found, facts=facts, seconds=result.seconds)
    store.finish_run(run_id, found.verdict, {"seconds": result.seconds, "reasons": list(found.reasons)})


def _options(setup: Setup) -> dict[str, Any]:
    options = setup.options
    return {
        "pace": str(options.pace), "protocol": options.ask.protocol.value, "noise": options.ask.noise,
        "jobs": setup.jobs, "connections": options.connections, "rereads": options.ask.rereads,
    }  # fmt: skip


def _waivers(found: Waivers) -> tuple[Waiver, ...]:
    return (*found.holding, *found.expired)  # the verdict tells of those that have expired


def _versions(store: ResultStore, run_id: str) -> Any:
    from migverify.workload.catalogue.versions import Versions, server

    told = store.load_run(run_id).facts.get("endpoints", {})
    if "source" not in told or "target" not in told:
        return None
    return Versions(server(told["source"]["version"]), server(told["target"]["version"]))
