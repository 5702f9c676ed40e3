"""``migverify recon check``: says what each rule will do, and whether it can."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.recon.model import ParameterValue
    from migverify.recon.rule import RuleSet

EPILOG = examples(
    "migverify recon check",
    "migverify recon check rules/ --offline    # no server is asked",
    "migverify recon check rules/ --param tenant=7",
)

DEFAULT_RULES = Path("recon.yaml")
RulesArgument = Annotated[
    Path, typer.Argument(metavar="[RULES]", help="A rules file, or a folder of them.", show_default=True)
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option("--param", metavar="NAME=VALUE", help="Value of a parameter; may be repeated."),
]


def check(
    rules: RulesArgument = DEFAULT_RULES,
    config: ConfigOption = DEFAULT_CONFIG,
    offline: Annotated[bool, typer.Option("--offline", help="Only read the files; ask no server.")] = False,
    param: ParamOption = None,
) -> None:
    """Read rules, refuse what cannot run, and say in a line what each rule will do. Exit 2: something is wrong."""
    from migverify.config import load_config
    from migverify.recon.checks import expired
    from migverify.recon.load import load_rules
    from migverify.recon.parameters import parse_given
    from migverify.recon.rule import rule_text

    loaded = load_config(config)
    found = load_rules(rules, [endpoint.name for endpoint in loaded.all_endpoints])
    given = parse_given(found.parameters, param or [])
    now = datetime.now(UTC).replace(tzinfo=None)
    if not offline:
        _ask_servers(found, loaded, given, now)
    for rule in found.rules:
        typer.echo(rule_text(rule, found))
    for entry in expired(found, now):
        say(
            f"note: {entry.place}: the exception of {entry.rule} expired on {entry.expires:%Y-%m-%d}; it counts no more"
        )
    asked = "no server was asked" if offline else "the servers know every table and column"
    count = len(found.rules)
    typer.echo(f"{rules}: {count} rule{'' if count == 1 else 's'}, {asked} (digest {found.digest[:12]})")


def _ask_servers(rules: RuleSet, config: Config, given: dict[str, ParameterValue], now: datetime) -> None:
    from migverify.recon.describe import Describer
    from migverify.recon.fit import check_fit
    from migverify.secrets import resolve_password

    used = {getattr(part, "endpoint", "") for dataset in rules.datasets.values() for part in dataset.parts}
    endpoints = {endpoint.name: endpoint for endpoint in config.rule_endpoints if endpoint.name in used}
    secrets = {e.name: resolve_password(e).reveal() for e in endpoints.values() if e.password_env or e.password_command}
    check_fit(rules, given, Describer(endpoints, secrets), now)
