"""``migverify check``: everything that can be known before work begins, asked once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.commands import add
from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, StoreOption, examples
from migverify.cli.guards import AllOption, GuardOptions, MetricsFileOption, run_guards
from migverify.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from migverify.config import Config
    from migverify.guards.model import StandingGuard
    from migverify.store.results import ResultStore

app = typer.Typer()

_EPILOG = examples(
    "migverify check",
    "migverify check --skip ids --all",
    "migverify check --json | jq '.guards[].answers[] | select(.state != \"pass\")'",
    "migverify guard settings --only clock       # one guard in detail",
)
_GUARDS = ("settings", "schema", "ids", "monitors")


def check(
    config: ConfigOption = DEFAULT_CONFIG,
    skip: Annotated[
        list[str] | None, typer.Option("--skip", metavar="GUARD", help="Not this guard; may be given again.")
    ] = None,
    passed: AllOption = False,
    metrics_file: MetricsFileOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Ask both sides for everything that can be known before work begins; writes nothing on them.

    Asks the guards settings, schema and ids, and monitors where a Prometheus is configured. `migverify guard` asks one
    of them in detail, capacity, which needs a time window, and hotspots and plans, which need a capture.

    Exit 0: nothing fails, 1: something does, 3: something could not be known. Warnings do not fail.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config

    for name in skip or ():
        if name not in _GUARDS:
            raise UsageError(f"--skip {name}: there is no such guard", hint=f"One of {', '.join(_GUARDS)}.")
    loaded = load_config(config)
    opened = open_run_store(store, config)
    run: list[str] = []
    guards = list(_guards(loaded, config, opened, run, set(skip or ())))
    if not guards:
        opened.close()
        raise UsageError("no guard is left to be asked", hint="Loosen --skip.")
    asking = GuardOptions(as_json, metrics_file=metrics_file, passed=passed)
    facts = {"endpoints": {e.name: {"address": f"{e.host}:{e.port}"} for e in loaded.all_endpoints}}
    run_guards(guards, opened, asking, facts, run.append)


def _guards(config: Config, path: Path, store: ResultStore, run: list[str], skip: set[str]) -> Iterator[StandingGuard]:
    from migverify.cli import check as settings
    from migverify.cli import ids, monitors, schema

    if "settings" not in skip:
        yield settings.make_guard(config, settings.all_questions(), config.limits.run_seconds, [])
    if "schema" not in skip:
        yield schema.make_guard(path, store, run)
    if "ids" not in skip:
        yield ids.make_guard(config, store)
    if "monitors" not in skip and config.monitors.prometheus is not None:
        yield monitors.make_guard(config)


add(app, "check", check, _EPILOG)
