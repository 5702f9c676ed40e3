"""Rules files -> RuleSet, or one ConfigError that says what, where and what to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from migverify.config.problems import FileProblem, read_document, refuse, validate
from migverify.config.yaml_text import Steps
from migverify.errors import ConfigError
from migverify.recon.checks import check_rules
from migverify.recon.datasets import UnfitDatasetError, dataset_of
from migverify.recon.document import RulesDocument, RulesFile
from migverify.recon.fields import Money
from migverify.recon.model import Dataset
from migverify.recon.parameters import RuleParameter
from migverify.recon.rule import Rule, RuleSet


def load_rules(path: Path, endpoints: Collection[str]) -> RuleSet:
    """Read and check rules, without asking any server.

    ``path``: A file, or a folder whose ``*.yaml`` files are one set of rules. Relative paths in them start at the
    folder. ``endpoints``: Names that datasets may give as their endpoint.

    Raises ConfigError: A file is missing, is not YAML, or holds a rule that cannot run; the message names file, line,
    column and rule.
    """
    files = [_read(one) for one in _files(path)]
    problems: list[FileProblem] = []
    datasets: dict[str, Dataset] = {}
    parameters: dict[str, RuleParameter] = {}
    rules: dict[str, Rule] = {}
    homes: dict[tuple[str, str], tuple[RulesFile, Steps]] = {}
    for file in files:
        for kind, name, steps in _named(file):
            if (kind, name) in homes:
                other, its = homes[kind, name]
                text = f"the {kind} {name} is there already, at {other.place(its)}"
                where: Steps = (*steps, "name") if kind == "rule" else steps
                problems.append(file.problem(where, text, "Give it another name."))
                continue
            homes[kind, name] = file, steps
            if kind == "parameter":
                parameters[name] = file.document.parameters[name].at(file.place(steps))
            elif kind == "dataset":
                part = file.document.datasets[name]
                try:
                    datasets[name] = dataset_of(part, name, file.place(steps), file.path.parent)
                except UnfitDatasetError as unfit:
                    problems.append(file.unfit(name, unfit))
            else:
                rules[name] = _rule(file, int(steps[1]))
    exceptions = tuple(
        entry.at(file.place(("exceptions", number)))
        for file in files for number, entry in enumerate(file.document.exceptions)
    )  # fmt: skip
    if problems:  # what follows would speak of parts that could not be read
        refuse(path, problems)
    rule_set = RuleSet(str(path), tuple(rules.values()), datasets, parameters, exceptions, "")
    rule_set, problems = check_rules(rule_set, homes, files, endpoints)
    if problems:
        refuse(path, problems)
    return digest_of(rule_set)


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    if strange := sorted(path.glob("*.yml")):
        raise ConfigError(f"{strange[0]} would not be read", hint="Files of rules end in .yaml: rename it.")
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise ConfigError(f"the folder {path} holds no *.yaml", hint="Run `migverify recon init` to write rules.")
    return found


def _read(path: Path) -> RulesFile:
    text, document = read_document(
        path, "rules file", "Run `migverify recon init` to write one, or name another.", variables=False, exact=True
    )
    if document.data is None:
        raise ConfigError(f"{path}: the file is empty", hint="A rules file begins with `version: recon/v1`.")
    return RulesFile(path, tuple(text.splitlines()), document, validate(path, document, RulesDocument))


def _named(file: RulesFile) -> Iterator[tuple[str, str, Steps]]:
    yield from (("parameter", name, ("parameters", name)) for name in file.document.parameters)
    yield from (("dataset", name, ("datasets", name)) for name in file.document.datasets)
    yield from (("rule", rule.name, ("rules", number)) for number, rule in enumerate(file.document.rules))


def _rule(file: RulesFile, number: int) -> Rule:
    """Return a rule with the defaults of its file; what it names is checked by ``checks``."""
    rule: Rule = file.document.rules[number]
    defaults = file.document.defaults
    window = rule.window
    if "window" not in rule.model_fields_set and not rule.asks_all_rows:
        window = defaults.window
    inherited = {
        name: getattr(defaults, name) for name in ("settle", "severity", "owner", "rereads", "delay")
        if name not in rule.model_fields_set
    }  # fmt: skip
    none = window is None or not window.every
    return rule.at(file.place(("rules", number, "name")), window=None if none else window, **inherited)


_WORDS_ONLY = frozenset({"place", "owner", "description", "reason", "path", "digest"})
_REMOVED = {"coverage": ("reference", "share"), "sequence": ("increasing",)}
"""Options that are gone; digests hold them as not given."""


def digest_of(rules: RuleSet) -> RuleSet:
    """Return the rules with their digest: sha256 as hex over all that decides an outcome.

    Owners, descriptions, reasons, the names of files and the places in them decide nothing and are left out. The path
    of a Parquet or change part is in: it is what is read.
    """
    view = {
        "rules": [_rule_meaning(rule) for rule in rules.rules],
        "datasets": {name: _meaning(dataset) for name, dataset in rules.datasets.items()},
        "parameters": {
            name: {"": "Parameter", "name": name, "type": one.type, "default": _meaning(one.value)}
            for name, one in rules.parameters.items()
        },
        "exceptions": [
            {"": "KnownException", "rule": one.rule, "key": _meaning(one.key), "expires": str(one.expires)}
            for one in rules.exceptions
        ],
    }
    text = json.dumps(view, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return replace(rules, digest=hashlib.sha256(text.encode()).hexdigest())


def _rule_meaning(rule: Rule) -> Any:
    # The names and the order are those of the first release: a digest of unchanged rules never changes.
    names = ("name", "kind", "source", "key", "settle", "severity", "money", "rereads", "delay")
    window = rule.window
    grid = (
        {"": "WindowRule", "seconds": window.every, "start": window.start, "immutable": window.immutable}
        if window
        else None
    )
    options = rule.options | dict.fromkeys(_REMOVED.get(rule.kind, ()))
    return {"": "Rule"} | {name: _meaning(getattr(rule, name)) for name in names} | {
        "options": _meaning(options),
        "target": getattr(rule, "target", None), "compare": _meaning(getattr(rule, "compare", ())),
        "tolerance": _meaning(getattr(rule, "tolerance", {})),
        "window": grid and {name: _meaning(one) for name, one in grid.items()},
    }  # fmt: skip


def _meaning(value: Any) -> Any:
    if isinstance(value, Money):
        return {"": "Money", "column": value.column, "currency": value.currency}
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        names = [f.name for f in fields(value) if f.name not in _WORDS_ONLY or (f.name == "path" and "Part" in kind)]
        return {"": kind} | {name: _meaning(getattr(value, name)) for name in names}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, dict):
        return [[str(key), _meaning(one)] for key, one in value.items()]
    if isinstance(value, tuple | list):
        return [_meaning(one) for one in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)  # Decimal, date, float: their texts tell them apart
