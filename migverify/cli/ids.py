"""``migverify guard ids``: how much of every id space is used on both sides, and when it ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

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
from migverify.cli.watching import MetricsAddressOption
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.guards.ids import IdsGuard
    from migverify.guards.ids_model import IdLimits, IdReading
    from migverify.guards.layouts import Layout
    from migverify.guards.scope import Scope
    from migverify.store.results import ResultStore

MIN_DAYS, MAX_USED = 180.0, 0.7
EPILOG = examples(
    "migverify guard ids",
    "migverify guard ids --json --min-days 365 | jq '.[] | select(.verdict != \"pass\")'",
    "migverify guard ids --layout pay.orders.id=41/10/12:ms:2020-01-01 --javascript",
    "migverify guard ids --watch --every 3600 --metrics-port 9100",
)


def ids(
    config: ConfigOption = DEFAULT_CONFIG,
    now: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Judge as of this time (ISO, UTC) and not by the servers' clocks."),
    ] = None,
    min_days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="Fail with fewer days left.")] = MIN_DAYS,
    max_used: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="Fail with a larger share of a counter used.")
    ] = MAX_USED,
    javascript: Annotated[
        bool, typer.Option("--javascript", help="Fail on ids beyond 2^53, which a JavaScript number rounds.")
    ] = False,
    layout: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE.COLUMN=LAYOUT", help="The layout of a column's ids: a name, or bits:unit:epoch."),
    ] = None,
    as_json: JsonOption = False,
    passed: AllOption = False,
    watch: WatchOption = False,
    every: EveryOption = 3600.0,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Tell the headroom of every id space on both sides, and when it ends: counters, random ids, snowflakes.

    Earlier runs in the store tell how fast counters grow. Exit 0: enough everywhere, 1: not enough, 3: not known.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.guards.ids_model import IdLimits
    from migverify.guards.ids_model import as_json as space_as_json

    limits = IdLimits(min_days, max_used, javascript)
    opened = open_run_store(store, config)
    guard = make_guard(
        load_config(config), opened, limits, None if now is None else _moment(now), _layouts(layout or [])
    )

    def render(_: object) -> list[dict[str, Any]]:
        return [space_as_json(space, limits, guard.clock) for space in guard.spaces]

    asking = GuardOptions(as_json, watch, every, metrics_port, metrics_file, passed, render)
    run_guards([guard], opened, asking, guard.scope.facts())


def make_guard(
    config: Config, store: ResultStore, limits: IdLimits | None = None, moment: float | None = None,
    layouts: dict[str, Layout] | None = None,
) -> IdsGuard:  # fmt: skip
    """Return the guard of a configuration; ``moment`` in milliseconds replaces the clocks of the servers."""
    from migverify.guards.ids import IdsGuard
    from migverify.guards.ids_model import IdLimits
    from migverify.guards.scope import Scope

    limits, scope = limits or IdLimits(MIN_DAYS, MAX_USED), Scope.of(config)
    return IdsGuard(scope, limits, moment, _history(store, scope), layouts or {})


def _layouts(given: list[str]) -> dict[str, Layout]:
    from migverify.guards.layouts import parse_layout

    found = {}
    for text in given:
        name, sign, layout = text.partition("=")
        if not sign or name.count(".") < 2:
            raise UsageError(f"--layout {text}: this names no column.", hint="Write database.table.column=twitter.")
        found[name] = parse_layout(layout)
    return found


def _history(store: ResultStore, scope: Scope) -> dict[str, list[IdReading]]:
    """Return what earlier runs found used, by subject."""
    from migverify.guards.ids_model import NAME, IdReading
    from migverify.guards.keep import history

    found: dict[str, list[IdReading]] = {}
    for answer in history(store, NAME, scope.servers):
        if "used" in answer.numbers:
            found.setdefault(answer.subject, []).append(
                IdReading(answer.local_time * 1000, int(answer.numbers["used"]))
            )
    return found


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--now {text}: this is no time.", hint="Write 2026-11-21T12:00:00Z or 2026-11-21.") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
