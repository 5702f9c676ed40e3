"""Static refusals: what is wrong with a set of rules before any server is asked.

Each problem names file, line, column and rule. What only a server knows (columns of a table, types of keys) is checked
by ``migverify.recon.build``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from migverify.config.problems import Problem
from migverify.config.yaml_text import Steps
from migverify.errors import ConfigError
from migverify.recon.expectation_suite import suite_parameters
from migverify.recon.load import RulesFile, nearest
from migverify.recon.model import (
    ChangesPart,
    Dataset,
    FilePart,
    Kind,
    KnownException,
    QueryPart,
    Rule,
    RuleSet,
    TablePart,
)
from migverify.recon.parameters import WINDOW_PARAMETERS, parameters_of
from migverify.recon.statements import selected_columns

Homes: TypeAlias = Mapping[tuple[str, str], tuple[RulesFile, Steps]]
Found: TypeAlias = Iterator[tuple[Steps, str, str]]
"""Where (below the rule or dataset), what, and what to do."""

_NEED_KEY = frozenset({Kind.SAME_ROWS, Kind.BALANCE, Kind.TRANSITIONS, Kind.ORPHANS, Kind.UNIQUE})
_CHANGE_COLUMNS = ("_op", "_time", "_gtid", "_file", "_position")


def check_rules(
    rules: RuleSet, homes: Homes, files: Sequence[RulesFile], endpoints: Collection[str]
) -> tuple[RuleSet, list[Problem]]:
    """Return the rules with their keys filled in from the datasets, and everything that is wrong."""
    problems: list[Problem] = []
    if not rules.rules:
        problems.append(files[0].problem(("rules",), "there is no rule", "Write one under `rules:`."))
    used: set[str] = set()
    for dataset in rules.datasets.values():
        home, steps = homes["dataset", dataset.name]
        for where, text, hint in (*_endpoints(dataset, endpoints), *_dataset_columns(dataset)):
            problems.append(home.problem((*steps, *where), f"dataset {dataset.name}: {text}", hint))
        uses = _uses(dataset)
        used |= uses.keys()
        for name in uses.keys() - rules.parameters.keys() - set(WINDOW_PARAMETERS):
            text = f"dataset {dataset.name}: the parameter :{name} is not declared"
            hint = nearest(name, [*rules.parameters, *WINDOW_PARAMETERS], "parameters")
            problems.append(home.problem((*steps, *uses[name]), text, hint))
    for rule in rules.rules:
        home, steps = homes["rule", rule.name]
        names = _suite_uses(rule, rules)
        used |= names
        for name in sorted(names - rules.parameters.keys() - set(WINDOW_PARAMETERS)):
            text = f"rule {rule.name}: the parameter {name} of the suite is not declared"
            hint = nearest(name, [*rules.parameters, *WINDOW_PARAMETERS], "parameters")
            problems.append(home.problem((*steps, "suite"), text, hint))
    for name in rules.parameters.keys() - used:
        home, steps = homes["parameter", name]
        text = f"no dataset and no suite uses the parameter {name}"
        problems.append(home.problem(steps, text, f"Write :{name}, or remove it."))
    checked = []
    for rule in rules.rules:
        home, steps = homes["rule", rule.name]
        rule = _with_key(rule, rules.datasets)
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


def _endpoints(dataset: Dataset, endpoints: Collection[str]) -> Found:
    union = any(part.shard for part in dataset.parts)
    where: Steps = ("union", "template", "endpoint") if union else ("endpoint",)
    for part in dataset.parts:
        name = "" if isinstance(part, FilePart) else part.endpoint
        if name and name not in endpoints:
            yield where, f"there is no endpoint {name}", nearest(name, endpoints, "endpoints")
            return


def _dataset_columns(dataset: Dataset) -> Found:
    known = known_columns(dataset)
    times = (dataset.time,) if dataset.time else ()
    mapped = tuple(name for name, _ in dataset.values)
    for option, names in (("key", dataset.key), ("time", times), ("values", mapped)):
        for name in names:
            if problem := _unknown(name, known):
                below = (option, name) if option == "values" else (option,)
                yield below, f"{option}: it has no column {name}", problem


def _unknown(name: str, known: tuple[str, ...] | None) -> str | None:
    """Advice for a column that is not there; None where it is, or where nobody knows yet."""
    return None if known is None or name in known or name.startswith("_before.") else nearest(name, known, "columns")


def known_columns(dataset: Dataset) -> tuple[str, ...] | None:
    """Columns of a dataset that are known without a server; None where they are not."""
    changes = all(isinstance(part, ChangesPart) for part in dataset.parts)
    if dataset.columns:
        # The time may be a column of the table that the mapping leaves out.
        more = ((dataset.time,) if dataset.time else ()) + (_CHANGE_COLUMNS if changes else ())
        return tuple(dict.fromkeys([name for name, _ in dataset.columns] + list(more)))
    found = {selected_columns(part.sql) if isinstance(part, QueryPart) else None for part in dataset.parts}
    return found.pop() if len(found) == 1 else None


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
    for _, columns in dataset.by_shard:
        for _, expression in columns:
            found |= {one: found.get(one, ("union", "columns")) for one in parameters_of(expression)}
    return found


def _suite_uses(rule: Rule, rules: RuleSet) -> frozenset[str]:
    """Parameters that the suite of a rule holds; all, where it cannot be read: then that is the problem, told later."""
    if rule.kind is not Kind.EXPECTATIONS:
        return frozenset()
    try:
        return suite_parameters(rule)
    except ConfigError:
        return frozenset(rules.parameters)


def is_live(dataset: Dataset) -> bool:
    """Whether something may be writing to a dataset while it is read: not static, not files, not archived changes."""
    if dataset.static:
        return False
    return any(
        not isinstance(part, FilePart) and not (isinstance(part, ChangesPart) and part.path) for part in dataset.parts
    )


def _with_key(rule: Rule, datasets: Mapping[str, Dataset]) -> Rule:
    sides = [datasets[name] for name in (rule.source, rule.target) if name is not None and name in datasets]
    own = sides[:1] if rule.kind in (Kind.BALANCE, Kind.ORPHANS) else sides[-1:] if _looks_up(rule) else sides
    key = rule.key or next((side.key for side in own if side.key), ())
    if rule.kind is Kind.SAME_GROUPS and rule.options.get("drill") is None:
        rule = replace(rule, options={**rule.options, "drill": bool(key)})
    return replace(rule, key=key)


def _looks_up(rule: Rule) -> bool:
    return rule.kind is Kind.COVERAGE and rule.target is not None


def _rule(rule: Rule, rules: RuleSet) -> Found:
    sides = []
    for option, name in (("source", rule.source), ("target", rule.target)):
        if name is not None and name not in rules.datasets:
            yield (option,), f"there is no dataset {name}", nearest(name, rules.datasets, "datasets")
        elif name is not None:
            sides.append(rules.datasets[name])
    if len(sides) != 1 + (rule.target is not None):
        return
    yield from _key(rule, sides)
    yield from _settle(rule, sides)
    yield from _windows(rule, sides)
    for use in _column_uses(rule, sides):
        if advice := _unknown(use.column, known_columns(use.dataset)):
            yield (use.option,), f"{use.option}: dataset {use.dataset.name} has no column {use.column}", advice
    yield from _tolerances(rule)
    yield from _money(rule, sides)
    yield from _kind(rule, sides)


def _key(rule: Rule, sides: Sequence[Dataset]) -> Found:
    looked_up = rule.kind in _NEED_KEY or _looks_up(rule) or rule.options.get("drill") is True
    if looked_up and not rule.key:
        yield ("kind",), f"{rule.kind} needs a key", "Write key: [column, ...] here or in the dataset."
    for option in ("reference", "entries_key"):
        columns = rule.options.get(option)
        if columns and rule.key and len(columns) != len(rule.key):
            yield (
                (option,), f"{option} has {len(columns)} columns, the key has {len(rule.key)}",
                f"The key is {', '.join(rule.key)}; name one column for each.",
            )  # fmt: skip
    keys = [side.key for side in sides if side.key]
    if rule.kind in (Kind.SAME_ROWS, Kind.SAME_GROUPS) and rule.key in keys and len(set(keys)) > 1:
        names = " and ".join(f"{side.name} by {', '.join(side.key)}" for side in sides)
        yield (
            ("target",),
            f"the datasets have unlike keys: {names}",
            "Write the key that both have: key: [column, ...].",
        )


def _settle(rule: Rule, sides: Sequence[Dataset]) -> Found:
    live = [side.name for side in sides if is_live(side)]
    if len(sides) > 1 and live and rule.settle is None:
        yield (
            ("kind",), f"{' and '.join(dict.fromkeys(live))} may change while it is read, and there is no settle time",
            "Write settle: 30s (how long the sides may take to agree), or static: true in the dataset.",
        )  # fmt: skip


def _windows(rule: Rule, sides: Sequence[Dataset]) -> Found:
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
    if rule.window.seconds != int(rule.window.seconds) or rule.window.seconds < 1:
        yield ("window",), "a window is whole seconds, at least 1", ""
    if rule.kind is Kind.FRESHNESS:
        yield ("window",), "freshness looks at the newest row of all, so windows say nothing", "Remove `window`."
        return
    for side in [side for side, cut in zip(sides, rule.cut, strict=False) if cut]:
        changes = all(isinstance(part, ChangesPart) for part in side.parts)
        if side.time is None and not changes and len(bound[side.name]) < len(WINDOW_PARAMETERS):
            yield (
                ("window",), f"windows cannot cut dataset {side.name}: it has no `time`",
                "Name its time column, or use :window_start and :window_end in its SQL, or write window: none.",
            )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Use:
    option: str
    column: str
    dataset: Dataset


def _column_uses(rule: Rule, sides: Sequence[Dataset]) -> Iterator[_Use]:
    """Every column that a rule names, with the dataset that has to have it."""
    source, target = sides[0], sides[-1]
    options = rule.options
    key_sides = {Kind.BALANCE: [source], Kind.ORPHANS: [source]}.get(rule.kind, [target] if _looks_up(rule) else sides)
    yield from (_Use("key", name, side) for name in rule.key for side in key_sides)
    yield from (_Use("compare", name, side) for name in rule.compare for side in sides)
    group_sides = sides if rule.kind is Kind.SAME_GROUPS else [source]
    yield from (_Use("groups", name, side) for name in options.get("groups", ()) for side in group_sides)
    for measure in options.get("measures", ()):
        names = (measure.column or "").split(",") if measure.column else []
        yield from (_Use("measures", name, side) for name in names for side in sides)
    homes = {"amount": target, "currency": target, "reference": target, "entries_key": target}
    if rule.kind is Kind.COVERAGE:
        homes["reference"] = source
    for option in (
        "amount",
        "currency",
        "balance",
        "column",
        "order",
        "increasing",
        "reference",
        "entries_key",
        "show",
    ):
        value = options.get(option)
        for name in () if value is None else (value,) if isinstance(value, str) else value:
            yield _Use(option, name, homes.get(option, source))
    if rule.kind is Kind.COVERAGE:
        yield from (_Use("columns", name, source) for name in options["columns"])


def _tolerances(rule: Rule) -> Found:
    if rule.kind is Kind.SAME_ROWS:
        compared, hint = (rule.compare or None), "Add it to `compare`, or remove the tolerance."
        if compared is None and any(name in rule.key for name, _ in rule.tolerance):
            compared, hint = tuple(n for n, _ in rule.tolerance if n not in rule.key), "Keys are compared exactly."
    elif rule.kind is Kind.SAME_GROUPS:
        compared = (*map(str, rule.options["measures"]), *rule.compare)
        hint = f"Compared are {', '.join(compared)}."
    elif rule.kind is Kind.ZERO_SUM:
        compared, hint = (rule.options["amount"], f"sum({rule.options['amount']})"), "Only the amount has one."
    elif rule.kind is Kind.BALANCE:
        compared, hint = (rule.options["balance"],), "Only the balance has one."
    else:
        return
    for name, _ in rule.tolerance:
        if compared is not None and name not in compared:
            yield ("tolerance", name), f"a tolerance for {name}, which is not compared", hint


def _money(rule: Rule, sides: Sequence[Dataset]) -> Found:
    if rule.money is None:
        return
    known = [known_columns(side) for side in sides]
    wanted = [("column", rule.money.column)]
    if rule.money.constant is None:
        wanted.append(("currency", rule.money.currency))
    elif not rule.money.constant.strip():
        yield ("money", "currency"), "the currency is empty", "Write a column, or a constant in quotes: \"'JPY'\"."
    for option, name in wanted:
        if all(one is not None and name not in one for one in known):
            columns = dict.fromkeys(column for one in known for column in one or ())
            yield (
                ("money", option),
                f"money: no dataset of the rule has a column {name}",
                nearest(name, columns, "columns"),
            )


def _kind(rule: Rule, sides: Sequence[Dataset]) -> Found:
    options = rule.options
    if rule.kind is Kind.FRESHNESS and options["column"] is None and sides[0].time is None:
        yield ("kind",), "freshness needs the column of the time", "Write column: name, or `time` in the dataset."
    if rule.kind is Kind.TRANSITIONS:
        changes = all(isinstance(part, ChangesPart) for part in sides[0].parts)
        if not changes and options["order"] is None:
            yield ("kind",), "transitions in a history table need an order", "Write order: the column that sorts a key."
        if changes and options["order"] is not None:
            yield ("order",), "changes have an order of their own", "Remove `order`."
        if changes and any(isinstance(part, ChangesPart) and part.state for part in sides[0].parts):
            yield ("source",), f"dataset {sides[0].name} keeps only the last change of a key", "Remove `state: true`."
        yield from _states(rule)
    if rule.target is not None and rule.target == rule.source:
        yield ("target",), f"the rule compares {rule.source} with itself", "Name another dataset."


def _states(rule: Rule) -> Found:
    allowed: Mapping[str, tuple[str, ...]] = rule.options["allowed"]
    known = {*allowed, *(state for states in allowed.values() for state in states)}
    for option in ("initial", "final"):
        for state in rule.options[option] or ():
            if state not in known:
                yield (option,), f"{option}: the state {state} is not in `allowed`", nearest(state, known, "states")
    for state in rule.options["final"] or ():
        if allowed.get(state):
            yield ("final",), f"{state} is final, and `allowed` lets {', '.join(allowed[state])} follow", ""


def _exception(entry: KnownException, rules: RuleSet) -> Found:
    rule = next((rule for rule in rules.rules if rule.name == entry.rule), None)
    if rule is None:
        names = [one.name for one in rules.rules]
        yield ("rule",), f"there is no rule {entry.rule}", nearest(entry.rule, names, "rules")
    elif entry.key is not None and rule.kind in _NEED_KEY and rule.key and len(entry.key) != len(rule.key):
        yield (
            ("key",), f"the key has {len(entry.key)} parts, the rule {rule.name} has {len(rule.key)}",
            f"Write one for each of {', '.join(rule.key)}.",
        )  # fmt: skip


def expired(rules: RuleSet, now: datetime) -> list[KnownException]:
    """Exceptions that count no more at a moment (naive UTC)."""
    return [entry for entry in rules.exceptions if entry.expires <= now]
