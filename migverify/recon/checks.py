"""Static refusals: what is wrong with a set of rules before any server is asked.

Each problem names file, line, column and rule. What only a server knows (columns of a table, types of keys) is checked
by ``migverify.recon.build``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias

from migverify.config.problems import FileProblem
from migverify.config.yaml_text import Steps
from migverify.recon.document import RulesFile
from migverify.recon.exceptions import KnownException
from migverify.recon.fields import nearest
from migverify.recon.model import (
    ChangesPart,
    Dataset,
    FilePart,
    QueryPart,
    TablePart,
)
from migverify.recon.parameters import WINDOW_PARAMETERS, parameters_of
from migverify.recon.rule import Problems, Rule, RuleSet

Homes: TypeAlias = Mapping[tuple[str, str], tuple[RulesFile, Steps]]


def check_rules(
    rules: RuleSet, homes: Homes, files: Sequence[RulesFile], endpoints: Collection[str]
) -> tuple[RuleSet, list[FileProblem]]:
    """Return the rules with their keys filled in from the datasets, and everything that is wrong."""
    problems: list[FileProblem] = []
    if not rules.rules:
        problems.append(files[0].problem(("rules",), "there is no rule", "Write one under `rules:`."))
    used: set[str] = set()
    for dataset in rules.datasets.values():
        home, steps = homes["dataset", dataset.name]
        for where, text, hint in _endpoints(dataset, endpoints):
            problems.append(home.problem((*steps, *where), f"dataset {dataset.name}: {text}", hint))
        uses = _uses(dataset)
        used |= uses.keys()
        for name in uses.keys() - rules.parameters.keys() - set(WINDOW_PARAMETERS):
            text = f"dataset {dataset.name}: the parameter :{name} is not declared"
            hint = nearest(name, [*rules.parameters, *WINDOW_PARAMETERS], "parameters")
            problems.append(home.problem((*steps, *uses[name]), text, hint))
    for name in rules.parameters.keys() - used:
        home, steps = homes["parameter", name]
        text = f"no dataset uses the parameter {name}"
        problems.append(home.problem(steps, text, f"Write :{name}, or remove it."))
    checked = []
    for rule in rules.rules:
        home, steps = homes["rule", rule.name]
        rule = rule.with_key(rules.sides(rule))
        checked.append(rule)
        for where, text, hint in _rule(rule, rules):
            problems.append(home.problem((*steps, *where), f"rule {rule.name}: {text}", hint))
    rules = replace(rules, rules=tuple(checked))
    for file, number, entry in _located(files, rules.exceptions):
        for where, text, hint in _exception(entry, rules):
            problems.append(file.problem(("exceptions", number, *where), text, hint))
    return rules, problems


def _located(
    files: Sequence[RulesFile], entries: Sequence[KnownException]
) -> Iterator[tuple[RulesFile, int, KnownException]]:
    places = [(file, number) for file in files for number in range(len(file.document.exceptions))]
    yield from ((file, number, entry) for (file, number), entry in zip(places, entries, strict=True))


def _endpoints(dataset: Dataset, endpoints: Collection[str]) -> Problems:
    union = any(part.shard for part in dataset.parts)
    where: Steps = ("union", "template", "endpoint") if union else ("endpoint",)
    for part in dataset.parts:
        name = "" if isinstance(part, FilePart) else part.endpoint
        if name and name not in endpoints:
            yield where, f"there is no endpoint {name}", nearest(name, endpoints, "endpoints")
            return


def _uses(dataset: Dataset) -> dict[str, Steps]:
    """Parameters that the SQL of a dataset holds, and where."""
    found: dict[str, Steps] = {}
    for part in dataset.parts:
        above: Steps = ("union", "template") if part.shard else ()
        if isinstance(part, TablePart):
            found |= dict.fromkeys(parameters_of(part.where), (*above, "where"))
        elif isinstance(part, QueryPart):
            found |= dict.fromkeys(parameters_of(part.sql), (*above, "sql"))
    for name, expression in dataset.columns:
        found |= dict.fromkeys(parameters_of(expression), ("columns", name))
    return found


def is_live(dataset: Dataset) -> bool:
    """Whether something may be writing to a dataset while it is read: not static, not files, not archived changes."""
    if dataset.static:
        return False
    return any(
        not isinstance(part, FilePart) and not (isinstance(part, ChangesPart) and part.path) for part in dataset.parts
    )


def _rule(rule: Rule, rules: RuleSet) -> Problems:
    options = ("source", "target")
    for option, name in zip(options, rule.datasets, strict=False):
        if name not in rules.datasets:
            yield (option,), f"there is no dataset {name}", nearest(name, rules.datasets, "datasets")
    sides = rules.sides(rule)
    if len(sides) < len(rule.datasets):
        return
    if rule.needs_key and not rule.key:
        yield ("kind",), f"{rule.kind} needs a key", "Write key: [column, ...] here or in the dataset."
    yield from _settle(rule, sides)
    yield from _windows(rule, sides)
    if rule.money is not None and rule.money.constant is not None and not rule.money.constant.strip():
        yield ("money", "currency"), "the currency is empty", "Write a column, or a constant in quotes: \"'JPY'\"."
    yield from rule.problems(sides)


def _settle(rule: Rule, sides: Sequence[Dataset]) -> Problems:
    live = [side.name for side in sides if is_live(side)]
    if len(sides) > 1 and live and rule.settle is None:
        yield (
            ("kind",), f"{' and '.join(dict.fromkeys(live))} may change while it is read, and there is no settle time",
            "Write settle: 30s (how long the sides may take to agree), or static: true in the dataset.",
        )  # fmt: skip


def _windows(rule: Rule, sides: Sequence[Dataset]) -> Problems:
    bound = {side.name: set(WINDOW_PARAMETERS) & _uses(side).keys() for side in sides}
    if rule.window is None:
        for side in sides:
            if names := sorted(bound[side.name]):
                yield (
                    ("kind",),
                    f"dataset {side.name} uses :{names[0]}, and the rule has no window",
                    "Write window: 1h.",
                )
        return
    if rule.window.every != int(rule.window.every) or rule.window.every < 1:
        yield ("window",), "a window is whole seconds, at least 1", ""
    for side in [side for side, cut in zip(sides, rule.cut, strict=False) if cut]:
        changes = all(isinstance(part, ChangesPart) for part in side.parts)
        if side.time is None and not changes and len(bound[side.name]) < len(WINDOW_PARAMETERS):
            yield (
                ("window",), f"windows cannot cut dataset {side.name}: it has no `time`",
                "Name its time column, or use :window_start and :window_end in its SQL, or write window: none.",
            )  # fmt: skip


def _exception(entry: KnownException, rules: RuleSet) -> Problems:
    rule = next((rule for rule in rules.rules if rule.name == entry.rule), None)
    if rule is None:
        names = [one.name for one in rules.rules]
        yield ("rule",), f"there is no rule {entry.rule}", nearest(entry.rule, names, "rules")
    elif entry.key is not None and rule.needs_key and rule.key and len(entry.key) != len(rule.key):
        yield (
            ("key",), f"the key has {len(entry.key)} parts, the rule {rule.name} has {len(rule.key)}",
            f"Write one for each of {', '.join(rule.key)}.",
        )  # fmt: skip


def expired(rules: RuleSet, now: datetime) -> list[KnownException]:
    """Exceptions that count no more at a moment (naive UTC)."""
    return [entry for entry in rules.exceptions if entry.expires <= now]
