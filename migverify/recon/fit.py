"""Do rules fit their servers?  Everything that can be refused is refused together, before a row is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime

from migverify.errors import ConfigError, MigverifyError, UsageError
from migverify.recon.describe import Describe
from migverify.recon.model import ParameterValue, Window
from migverify.recon.rule import Rule, RuleSet, build, values_for
from migverify.recon.windows import window_at

Fits = Callable[[Rule, Window | None], object]
"""Raises ``ConfigError`` or ``UsageError`` where a rule does not fit in a window."""


def check_fit(rules: RuleSet, given: Mapping[str, ParameterValue], describe: Describe, now: datetime) -> None:
    """Build every rule on what the servers say of its tables; no row is read.

    A rule with windows is built for the window of ``now`` (naive UTC). Raises as ``refuse_unfit``, and EndpointError
    where a server cannot be reached.
    """

    def fits(rule: Rule, window: Window | None) -> object:
        return build(rule, rules, window, describe, values_for(rules, given, window))

    refuse_unfit(rules, present(rules, now), fits, ask_all=True)


def present(rules: RuleSet, now: datetime) -> Iterator[tuple[Rule, Window | None]]:
    """Yield each rule with the window of a moment (naive UTC), None for a rule without windows."""
    for rule in rules.rules:
        grid = rule.window
        yield rule, None if grid is None else window_at(grid, max(now, grid.start or now))


def refuse_unfit(
    rules: RuleSet, places: Iterable[tuple[Rule, Window | None]], fits: Fits, *, ask_all: bool = False
) -> None:
    """Refuse all rules that do not fit their datasets in one ConfigError or UsageError.

    ``places``: Rules, each with the window in which it is tried. ``ask_all``: Every server must answer. Else one that
    does not is no reason here: the evaluation of the rule meets it again, and makes it the rule's reason.
    """
    # A parameter without a value is one problem, however many rules use it.
    problems: dict[str, ConfigError | UsageError] = {}
    for rule, window in places:
        try:
            fits(rule, window)
        except (ConfigError, UsageError) as error:
            problems[f"{error.message}{' - ' + error.hint if error.hint else ''}"] = error
        except MigverifyError:
            if ask_all and not problems:
                raise
            if ask_all:
                break  # what is wrong already is reported first
    if len(problems) == 1:
        raise next(iter(problems.values()))
    if problems:
        raise ConfigError(f"{rules.path}: {len(problems)} problems, and nothing was run\n" + "\n".join(problems))
