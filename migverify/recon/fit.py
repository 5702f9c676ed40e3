"""Do rules fit their servers and suites?  Whatever can be refused is refused together, before a row is read."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from migverify.errors import ConfigError
from migverify.recon.build import build
from migverify.recon.describe import Describe
from migverify.recon.expectation_suite import check_suite, read_suite
from migverify.recon.model import Kind, ParameterValue, Rule, RuleSet, Window
from migverify.recon.parameters import values_for
from migverify.recon.sides import open_side
from migverify.recon.windows import window_at


def check_suites(rules: RuleSet) -> None:
    """Read the expectation suites that rules name; no server is asked.

    Raises
    ------
    ConfigError
        the suites that cannot be read or hold what is not known, all of them.
    """
    refused = []
    for rule in rules.rules:
        if rule.kind is Kind.EXPECTATIONS:
            try:
                read_suite(rule)
            except ConfigError as error:
                refused.append(error)
    _refuse(rules, refused)


def check_fit(rules: RuleSet, given: Mapping[str, ParameterValue], describe: Describe, now: datetime) -> None:
    """Build every rule on what the servers say of its tables; no row is read.

    Parameters
    ----------
    given
        Values of parameters, see ``parameters.values_for``.
    now
        A rule with windows is built for the window of this moment (naive UTC).

    Raises
    ------
    ConfigError
        the rules that do not fit, all of them; each names file, line and rule.
    EndpointError
        an endpoint cannot be reached, or a grant is missing.
    """
    refused = []
    for rule in rules.rules:
        grid = rule.window
        window = None if grid is None else window_at(grid, max(now, grid.start or now))
        try:
            _fit(rule, rules, window, describe, values_for(rules, given, window))
        except ConfigError as error:
            refused.append(error)
    _refuse(rules, refused)


def _fit(
    rule: Rule, rules: RuleSet, window: Window | None, describe: Describe, values: Mapping[str, ParameterValue]
) -> None:
    build(rule, rules, window, describe, values)
    if rule.kind is Kind.EXPECTATIONS:
        dataset = rules.datasets[rule.source]
        side = open_side(dataset, rule, describe, values, window)
        columns = [column.definition for column in side.parts[0].columns.values()]
        check_suite(rule, dataset, columns, read_suite(rule, values))


def _refuse(rules: RuleSet, refused: list[ConfigError]) -> None:
    if len(refused) == 1:
        raise refused[0]
    if refused:
        lines = [f"{one.message}{' - ' + one.hint if one.hint else ''}" for one in refused]
        raise ConfigError(f"{rules.path}: {len(refused)} rules cannot run\n" + "\n".join(lines))
