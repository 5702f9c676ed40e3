"""``migverify guard capacity``: how much there is, how fast it grows, and whether the work fits its window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples
from migverify.cli.guards import (
    AllOption,
    EveryOption,
    GuardOptions,
    JsonOption,
    MetricsFileOption,
    StoreOption,
    WatchOption,
    run_guards,
)
from migverify.cli.watching import MetricsAddressOption, period_seconds
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.guards.capacity import CapacityGuard
    from migverify.guards.capacity_facts import Requirements, SizePoint
    from migverify.guards.scope import Scope
    from migverify.store.results import ResultStore

EPILOG = examples(
    "migverify guard capacity --all",
    "migverify guard capacity --window 4h --engine local",
    "migverify guard capacity --window 6h --replay-time 1h --target-free 800G",
    "migverify guard capacity --watch --every 3600 --metrics-port 9106",
)


def capacity(
    config: ConfigOption = DEFAULT_CONFIG,
    window: Annotated[
        float | None,
        typer.Option(
            metavar="TIME", parser=period_seconds, help="All the work has to fit in this: 4h, 90m. Without: only shown."
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="ENGINE", help="The engine that will verify, spark or local; default: as `tables verify`."
        ),
    ] = None,
    sample: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="Time between two readings of the counters.")
    ] = 5.0,
    replay: Annotated[bool, typer.Option("--replay", help="A replay is part of the work.")] = False,
    replay_time: Annotated[
        float | None,
        typer.Option(
            metavar="TIME", parser=period_seconds, help="The replay takes so long; default: as the last one did."
        ),
    ] = None,
    target_free: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Free room on the target: 500G; default: what TiKV tells.")
    ] = None,
    replicas: Annotated[int, typer.Option(min=1, help="How often the target keeps each row.")] = 3,
    days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="How far growth is projected.")] = 30.0,
    as_json: JsonOption = False,
    passed: AllOption = False,
    watch: WatchOption = False,
    every: EveryOption = 3600.0,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Tell rows, bytes, traffic and growth, how long the work will take, and whether that fits the window.

    Exit 0: it fits, 1: it does not, 3: that is not known.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.guards.capacity_facts import Requirements
    from migverify.guards.capacity_read import bytes_of
    from migverify.spark.settings import is_spark_chosen

    if engine not in ("spark", "local", None):
        raise UsageError(f"--engine {engine}: there is no such engine", hint="Say spark or local.")
    free = None if target_free is None else bytes_of(target_free)
    if target_free is not None and free is None:
        raise UsageError(f"--target-free {target_free}: this is no size", hint="Say 500G or 1.5T.")
    loaded = load_config(config)
    engine = engine or ("spark" if is_spark_chosen(None, loaded.spark.master) else "local")
    wanted = Requirements(
        window, engine, slots_of(loaded), replay_time, replay or replay_time is not None, free, replicas, days,
        loaded.workload.connections or slots_of(loaded),
    )  # fmt: skip
    opened = open_run_store(store, config)
    guard = make_guard(loaded, opened, wanted, sample=sample)
    run_guards(
        [guard], opened, GuardOptions(as_json, watch, every, metrics_port, metrics_file, passed), guard.scope.facts()
    )


def slots_of(config: Config) -> int:
    """Return how many tasks `tables verify` runs at once."""
    return max(1, min(endpoint.connections for endpoint in config.endpoints))


def make_guard(config: Config, store: ResultStore, wanted: Requirements, *, sample: float = 5.0) -> CapacityGuard:
    """Return the guard of a configuration; ``sample`` is the time between two readings of counters, seconds."""
    from migverify.changes.server import log_begun
    from migverify.guards.capacity import CapacityGuard
    from migverify.guards.capacity_read import CapacityReader
    from migverify.guards.scope import Scope

    scope = Scope.of(config)
    return CapacityGuard(scope, store, wanted, _history(store, scope), CapacityReader(log_begun, sample))


def _history(store: ResultStore, scope: Scope) -> dict[str, list[SizePoint]]:
    """Return what earlier runs found, by endpoint, the oldest first."""
    from migverify.guards.capacity import NAME
    from migverify.guards.capacity_facts import SizePoint
    from migverify.guards.keep import history

    found: dict[str, list[SizePoint]] = {}
    for answer in history(store, NAME, scope.servers):
        if answer.name == "size" and "bytes" in answer.numbers and answer.server_time is not None:
            point = SizePoint(answer.server_time, answer.numbers["rows_estimated"], answer.numbers["bytes"])
            found.setdefault(answer.subject, []).insert(0, point)
    return found
