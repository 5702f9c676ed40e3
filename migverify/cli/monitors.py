"""``migverify guard monitors``: does the monitoring see what it must? Asked from outside of it."""

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
from migverify.cli.watching import MetricsAddressOption
from migverify.errors import ConfigError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.guards.monitors import MonitorsGuard

EPILOG = examples(
    "migverify guard monitors",
    "migverify guard monitors --sql --all",
    "migverify guard monitors --watch --every 10 --metrics-port 9105",
)


def monitors(
    config: ConfigOption = DEFAULT_CONFIG,
    sql: Annotated[
        bool, typer.Option("--sql", help="Ask the servers too, and not only where Prometheus is blind.")
    ] = False,
    no_sql: Annotated[bool, typer.Option("--no-sql", help="Never ask the servers: Prometheus alone.")] = False,
    as_json: JsonOption = False,
    passed: AllOption = False,
    watch: WatchOption = False,
    every: EveryOption = 10.0,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Ask Prometheus for every target and value it must know; what is absent, stale, NaN or partial is blind.

    Where something is blind, the servers are asked by SQL. Exit 0: all seen and fine, 1: something is not, 3: blind.
    """
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.errors import UsageError

    if sql and no_sql:
        raise UsageError("--sql and --no-sql exclude each other", hint="Leave one out.")
    loaded = load_config(config)
    guard = make_guard(loaded, sql=sql, no_sql=no_sql)
    facts = {"endpoints": {e.name: {"address": f"{e.host}:{e.port}"} for e in loaded.endpoints}}
    asking = GuardOptions(as_json, watch, every, metrics_port, metrics_file, passed)
    run_guards([guard], open_run_store(store, config), asking, facts)


def make_guard(config: Config, *, sql: bool = False, no_sql: bool = False) -> MonitorsGuard:
    """Return the guard of a configuration.

    Raises
    ------
    ConfigError
        no Prometheus is configured, or a secret is missing.
    """
    from migverify.guards.fallback import Fallback
    from migverify.guards.monitors import MonitorsGuard
    from migverify.guards.prometheus import PrometheusLogin
    from migverify.guards.scope import Scope
    from migverify.secrets import resolve_variable

    settings = config.monitors
    if settings.prometheus is None:
        raise ConfigError(
            f"{config.path}: monitors.prometheus is missing",
            hint="Name it, http://prometheus:9090, and what it must know (docs/monitors.md).",
        )

    def secret(variable: str | None, key: str) -> str | None:
        return None if variable is None else resolve_variable(variable, f"{key} of monitors").reveal()

    login = PrometheusLogin(
        settings.user, secret(settings.password_env, "password_env"), secret(settings.token_env, "token_env"),
        settings.ca,
    )  # fmt: skip
    fallback = None
    if not no_sql:
        scope = Scope.of(config)
        fallback = Fallback([(e, scope.password(e)) for e in scope.endpoints], settings.sql)
    return MonitorsGuard(settings, login, fallback, sql)
