"""``migverify guard hotspots``: what will be hot on TiDB that was not on MySQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, AssumeDatabaseOption, ConfigOption, examples
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
from migverify.cli.watching import MetricsAddressOption
from migverify.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migverify.config import Config
    from migverify.guards.hotspots import HotspotsGuard, LoadReader
    from migverify.guards.hotspots_model import HotspotLimits
    from migverify.guards.scope import Scope
    from migverify.load import CaptureLoad
    from migverify.store.results import ResultStore

EPILOG = examples(
    "migverify guard hotspots --capture captures/peak",
    "migverify guard hotspots --capture captures/peak --all",
    "migverify guard hotspots --capture captures/peak --warn-rate 500 --fail-rate 5000",
)


def hotspots(
    config: ConfigOption = DEFAULT_CONFIG,
    capture: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder that `workload capture` wrote: its rates are judged.")
    ] = None,
    warn_rate: Annotated[
        float, typer.Option(metavar="ROWS", min=1, help="Warn from so many writes of one region a second.")
    ] = 1_000.0,
    fail_rate: Annotated[
        float, typer.Option(metavar="ROWS", min=1, help="Fail from so many writes of one region a second.")
    ] = 2_000.0,
    assume_database: AssumeDatabaseOption = None,
    as_json: JsonOption = False,
    passed: AllOption = False,
    watch: WatchOption = False,
    every: EveryOption = 3600.0,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Tell which keys, tables, rows and transactions will be hot on TiDB, with the remedy and what it breaks.

    Exit 0: nothing will be hot, 1: something will, 3: not known of something.
    """
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_replay_setup import basis_to_keep
    from migverify.config import load_config
    from migverify.guards.hotspots_model import HotspotLimits

    if warn_rate >= fail_rate:
        raise UsageError(
            f"--warn-rate {warn_rate:g} is not below --fail-rate {fail_rate:g}",
            hint="Lower the one, or raise the other.",
        )
    loaded, opened = load_config(config), open_run_store(store, config)
    limits = HotspotLimits(warn=warn_rate, fail=fail_rate)
    guard = make_guard(loaded, opened, limits, capture, assume_database)
    asking = GuardOptions(as_json, watch, every, metrics_port, metrics_file, passed)
    kept = {"limits": {"warn_rate": warn_rate, "fail_rate": fail_rate}, **basis_to_keep(loaded, capture)}
    run_guards([guard], opened, asking, {**guard.scope.facts(), **kept})


def make_guard(
    config: Config, store: ResultStore, limits: HotspotLimits, capture: Path | None = None, database: str | None = None
) -> HotspotsGuard:
    """Return the guard of a configuration.

    Raises UsageError: there is no capture in the folder.
    """
    from migverify.cli.ids import make_guard as make_ids_guard
    from migverify.guards.hotspots import HotspotsGuard

    ids = make_ids_guard(config, store)
    return HotspotsGuard(ids, limits, None if capture is None else _load_reader(ids.scope, capture, limits, database))


def _load_reader(scope: Scope, capture: Path, limits: HotspotLimits, database: str | None) -> LoadReader:
    from migverify.cli.workload_replay_setup import capture_reader
    from migverify.db.session import open_session
    from migverify.workload.rates import read_load
    from migverify.workload.replay.keys import databases_of, read_keys
    from migverify.workload.replay.touches import TableKeys

    reader = capture_reader()
    next(reader(capture, ["session"]), None)  # a folder that holds no capture is reported before a server is asked

    def read(columns: Mapping[str, frozenset[str]], row_bytes: Mapping[str, float]) -> CaptureLoad:
        databases = databases_of(reader(capture, ["database"])) | {name.partition(".")[0] for name in columns}
        keys: dict[str, TableKeys] = {}
        for endpoint in scope.config.sources:
            with open_session(endpoint, scope.password(endpoint)) as session:
                keys |= read_keys(session, databases)
        return read_load(
            capture, reader, keys, columns=columns, row_bytes=row_bytes, database=database, stretch=limits.sustained
        )

    return read
