"""What the commands of recon share: rules, endpoints, passwords and the engine, opened and closed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import EngineName
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.model import Endpoint
    from migverify.recon.build import Built
    from migverify.recon.changefeed import Changefeed
    from migverify.recon.describe import Describer
    from migverify.recon.model import ParameterValue, Window
    from migverify.recon.relation import RuleEngine
    from migverify.recon.rule import Rule, RuleSet
    from migverify.recon.steps import EvaluationPeriod


RuleOption = Annotated[
    list[str] | None, typer.Option("--rule", "-r", metavar="NAME", help="Only this rule; repeatable.")
]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="First moment of the windows (UTC), inclusive.")
]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="TIME", help="Last moment of the windows (UTC), exclusive; default: now.")
]
EngineOption = Annotated[
    EngineName | None,
    typer.Option(
        help="Where rows are joined; default: local, and Spark where a dataset is Parquet, a master is named, or under"
        " spark-submit."
    ),
]


@dataclass(frozen=True, slots=True)
class ReconSetup:
    """A loaded configuration and the chosen rules, with what reads their datasets."""

    config: Config
    rules: RuleSet
    values: Mapping[str, ParameterValue]
    span: EvaluationPeriod
    endpoints: Mapping[str, Endpoint]
    secrets: Mapping[str, str]
    describe: Describer
    engine: EngineName
    engine_reason: str
    feeds: Mapping[str, Changefeed]

    def build(self, rule: Rule, window: Window | None) -> Built:
        """Build the relations of a rule in a window."""
        from migverify.recon.rule import build, values_for

        return build(rule, self.rules, window, self.describe, values_for(self.rules, self.values, window))


def set_up(
    config: Path, rules: Path, names: list[str] | None, params: list[str] | None, start: str | None, end: str | None,
    engine: EngineName | None, master: str | None = None, *, start_option: str = "--from",
) -> ReconSetup:  # fmt: skip
    """Load and check everything that needs no server; ``start_option`` is what a command calls ``start``.

    Raises ConfigError, UsageError: the configuration, a rule, a parameter, a time or a name is wrong.
    """
    from migverify.config import load_config
    from migverify.recon.changefeed import Changefeed
    from migverify.recon.describe import Describer
    from migverify.recon.load import load_rules
    from migverify.recon.parameters import parse_given
    from migverify.recon.rule import values_for
    from migverify.recon.steps import EvaluationPeriod, chosen
    from migverify.secrets import resolve_password

    loaded = load_config(config)
    found = chosen(load_rules(rules, [endpoint.name for endpoint in loaded.all_endpoints]), names or [])
    given = parse_given(found.parameters, params or [])
    values_for(found, given)  # a parameter that is missing is said now, not in the middle of a run
    used = _used(found)
    endpoints = {e.name: e for e in loaded.rule_endpoints if e.name in used}
    secrets = {e.name: resolve_password(e).reveal() for e in endpoints.values() if e.password_env or e.password_command}
    name, reason = _choose(found, engine, master, loaded.spark.master)
    span = EvaluationPeriod(_moment(start, start_option), _moment(end, "--to"))
    feed = Changefeed.of(loaded, secrets.get(loaded.target.name)) if changed_tables(found, loaded.target.name) else None
    if feed is not None and name is EngineName.SPARK:
        raise UsageError(
            f"rules over the changes of {loaded.target.name} are read from its changefeed, which Spark does not read",
            hint="Run them alone with --rule and --engine local.",
        )
    feeds = {} if feed is None else {loaded.target.name: feed}
    return ReconSetup(
        loaded, found, given, span, endpoints, secrets, Describer(endpoints, secrets), name, reason, feeds
    )  # fmt: skip


def _used(rules: RuleSet) -> set[str]:
    names = {name for rule in rules.rules for name in rule.datasets}
    parts = [part for name in names for part in rules.datasets[name].parts]
    return {getattr(part, "endpoint", "") for part in parts}


def changed_tables(rules: RuleSet, endpoint: str) -> list[tuple[str, str]]:
    """Return database and table of what the rules read as changes of an endpoint."""
    from migverify.recon.model import ChangesPart

    parts = [part for rule in rules.rules for name in rule.datasets for part in rules.datasets[name].parts]
    named = [(p.database, p.table) for p in parts if isinstance(p, ChangesPart) and p.endpoint == endpoint]
    return list(dict.fromkeys(named))


def _choose(rules: RuleSet, chosen: EngineName | None, master: str | None, configured: str) -> tuple[EngineName, str]:
    from migverify.recon.model import FilePart
    from migverify.spark.settings import is_spark_chosen

    if chosen is not None:
        return chosen, "requested by --engine"
    names = [name for rule in rules.rules for name in rule.datasets]
    files = [name for name in names if any(isinstance(part, FilePart) for part in rules.datasets[name].parts)]
    if files:
        return EngineName.SPARK, f"dataset {files[0]} is Parquet"
    if is_spark_chosen(master, configured):
        return EngineName.SPARK, "a Spark master is named"
    return EngineName.LOCAL, "every dataset is in a database or a change stream"


def _moment(text: str | None, option: str) -> datetime | None:
    from migverify.recon.fields import parse_moment

    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError as error:
        raise UsageError(
            f"{option} {text!r}: {error}", hint="Write UTC, as 2026-01-31 or 2026-01-31T12:00:00."
        ) from None


@contextmanager
def opened_engine(setup: ReconSetup, master: str | None) -> Iterator[RuleEngine]:
    """Yield the engine of a run; what it holds is released afterwards."""
    engine = _spark(setup, master) if setup.engine is EngineName.SPARK else _local(setup)
    try:
        yield engine
    finally:
        engine.close()


def _local(setup: ReconSetup) -> RuleEngine:
    from migverify.recon.local import LocalEngine

    return LocalEngine(setup.endpoints, setup.secrets, feeds=setup.feeds)


def _spark(setup: ReconSetup, master: str | None) -> RuleEngine:
    from migverify.spark.recon_engine import open_engine
    from migverify.spark.settings import named_master

    chosen = named_master(master, setup.config.spark.master)
    return open_engine(chosen, dict(setup.config.spark.conf), setup.endpoints, setup.secrets, "migverify recon run")
