"""Do rules fit their servers and suites?  Whatever can be refused is refused together, before a row is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from migverify.errors import ConfigError, MigverifyError, UsageError
from migverify.recon.build import build
from migverify.recon.describe import Describe
from migverify.recon.expectation_suite import check_suite, read_suite
from migverify.recon.model import Kind, ParameterValue, Rule, RuleSet, Window
from migverify.recon.parameters import values_for
from migverify.recon.sides import open_side
from migverify.recon.windows import window_at

Fits = Callable[[Rule, Window | None], object]
"""Raises ``ConfigError`` or ``UsageError`` where a rule does not fit in a window."""


def check_suites(rules: RuleSet) -> None:
    """Read the expectation suites that rules name; no server is asked.

    Raises
    ------
    ConfigError
        the suites that cannot be read or hold what is not known, all of them.
    """
    _refuse(rules, list(_bad_suites(rules).values()))


def check_fit(rules: RuleSet, given: Mapping[str, ParameterValue], describe: Describe, now: datetime) -> None:
    """Build every rule on what the servers say of its tables, and read every suite; no row is read.

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

    def fits(rule: Rule, window: Window | None) -> None:
        _fit(rule, rules, window, describe, values_for(rules, given, window))

    refuse_unfit(rules, present(rules, now), fits, ask_all=True)


def present(rules: RuleSet, now: datetime) -> Iterator[tuple[Rule, Window | None]]:
    """Yield each rule with the window of a moment (naive UTC), None for a rule without windows."""
    for rule in rules.rules:
        grid = rule.window
        yield rule, None if grid is None else window_at(grid, max(now, grid.start or now))


def refuse_unfit(
    rules: RuleSet, places: Iterable[tuple[Rule, Window | None]], fits: Fits, *, ask_all: bool = False
) -> None:
    """Refuse all rules that do not fit their datasets, or whose suite is bad, in one error.

    Parameters
    ----------
    places
        Rules, each with the window in which it is tried.
    ask_all
        Every server must answer. Else one that does not is no reason here: the evaluation of the rule meets it again,
        and makes it the rule's reason.

    Raises
    ------
    ConfigError
        the rules that do not fit, all of them; each names file, line and rule.
    UsageError
        a parameter has no value.
    MigverifyError
        with ``ask_all``: a server does not answer.
    """
    suites = _bad_suites(rules)
    refused: list[ConfigError | UsageError] = list(suites.values())
    for rule, window in places:
        if rule.name in suites:
            continue
        try:
            fits(rule, window)
        except (ConfigError, UsageError) as error:
            refused.append(error)
        except MigverifyError:
            if ask_all and not refused:
                raise
            if ask_all:
                break  # what is known is told; the server is met again when that is put right
    _refuse(rules, refused)


def _bad_suites(rules: RuleSet) -> dict[str, ConfigError]:
    found = {}
    for rule in rules.rules:
        if rule.kind is Kind.EXPECTATIONS:
            try:
                read_suite(rule)
            except ConfigError as error:
                found[rule.name] = error
    return found


def _fit(
    rule: Rule, rules: RuleSet, window: Window | None, describe: Describe, values: Mapping[str, ParameterValue]
) -> None:
    build(rule, rules, window, describe, values)
    if rule.kind is Kind.EXPECTATIONS:
        dataset = rules.datasets[rule.source]
        side = open_side(dataset, rule, describe, values, window)
        columns = [column.definition for column in side.parts[0].columns.values()]
        check_suite(rule, dataset, columns, read_suite(rule, values))


def _refuse(rules: RuleSet, refused: Sequence[ConfigError | UsageError]) -> None:
    # A parameter without a value is one problem, however many rules use it.
    told = {f"{one.message}{' - ' + one.hint if one.hint else ''}": one for one in refused}
    if len(told) == 1:
        raise next(iter(told.values()))
    if told:
        raise ConfigError(f"{rules.path}: {len(told)} problems, and nothing was run\n" + "\n".join(told))
