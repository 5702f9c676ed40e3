"""``migverify ids``: how much of every id space is used on both sides, and when it ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples
from migverify.cli.guards import (
    AllOption,
    Asking,
    EveryOption,
    JsonOption,
    MetricsFileOption,
    MetricsPortOption,
    StoreOption,
    WatchOption,
    endpoint_facts,
    run_guards,
)
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.guards.ids import Scope
    from migverify.guards.ids_model import Point
    from migverify.guards.layouts import Layout
    from migverify.store.base import ResultStore

app = typer.Typer()

_EXAMPLES = examples(
    "migverify ids",
    "migverify ids --json --min-days 365 | jq '.[] | select(.verdict != \"pass\")'",
    "migverify ids --layout pay.orders.id=41/10/12:ms:2020-01-01 --javascript",
    "migverify ids --watch --every 3600 --metrics-port 9100",
)


@app.command(epilog=_EXAMPLES)
def ids(
    config: ConfigOption = DEFAULT_CONFIG,
    now: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Judge as of this time (ISO, UTC) and not by the servers' clocks."),
    ] = None,
    min_days: Annotated[float, typer.Option(metavar="DAYS", min=0, help="Fail with fewer days left.")] = 180.0,
    max_used: Annotated[
        float, typer.Option(metavar="SHARE", min=0, max=1, help="Fail with a larger share of a counter used.")
    ] = 0.7,
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
    metrics_port: MetricsPortOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Tell the headroom of every id space on both sides, and when it ends: counters, random ids, snowflakes.

    Earlier runs in the store tell how fast counters grow. Exit 0: enough everywhere, 1: not enough, 3: not known.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config, route
    from migverify.guards.ids import IdsGuard
    from migverify.guards.ids_model import Limits
    from migverify.guards.ids_model import as_json as space_as_json

    loaded = load_config(config)
    limits = Limits(min_days, max_used, javascript)
    moment = None if now is None else _moment(now)
    opened = open_run_store(store, config)
    *sources, target = _scopes(loaded)
    guard = IdsGuard(
        sources, target, lambda endpoint, d, t: route(loaded, endpoint.partition(".")[2], d, t), limits, moment,
        _history(opened), _layouts(layout or []),
    )  # fmt: skip
    facts = endpoint_facts(loaded.endpoints)

    def render(_: object) -> list[dict[str, Any]]:
        return [space_as_json(space, limits, guard.clock) for space in guard.spaces]

    run_guards([guard], opened, Asking(as_json, watch, every, metrics_port, metrics_file, passed, render), facts)


def _scopes(config: Config) -> list[Scope]:
    """Return every endpoint with the tables that take part there, the target last."""
    from migverify.config import includes
    from migverify.guards.ids import Scope
    from migverify.secrets import resolve_password

    return [
        Scope(e, resolve_password(e).reveal() or None, lambda d, t: includes(config, d, t))
        for e in (*config.sources, config.target)
    ]


def _layouts(given: list[str]) -> dict[str, Layout]:
    from migverify.guards.layouts import parse_layout

    found = {}
    for text in given:
        name, sign, layout = text.partition("=")
        if not sign or name.count(".") < 2:
            raise UsageError(f"--layout {text}: this names no column.", hint="Write database.table.column=twitter.")
        found[name] = parse_layout(layout)
    return found


def _history(store: ResultStore) -> dict[str, list[Point]]:
    """Return what earlier runs found used, by subject; the newest 60 of them."""
    from itertools import islice

    from migverify.guards.ids import NAME
    from migverify.guards.ids_model import Point
    from migverify.guards.keep import answers, earlier

    found: dict[str, list[Point]] = {}
    for info in islice(earlier(store, NAME), 60):
        for answer in answers(store, info.run_id, NAME):
            if "used" in answer.numbers:
                found.setdefault(answer.subject, []).append(
                    Point(answer.local_time * 1000, int(answer.numbers["used"]))
                )
    return found


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(f"--now {text}: this is no time.", hint="Write 2026-11-21T12:00:00Z or 2026-11-21.") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000
