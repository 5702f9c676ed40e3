"""Rules files -> RuleSet, or one ConfigError that says what, where and what to do."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.config.problems import Problem, problem_at, read_document, refuse, validate
from migverify.config.yaml_text import Place as YamlPlace
from migverify.config.yaml_text import Steps, YamlDocument
from migverify.errors import ConfigError
from migverify.recon.model import Dataset, KnownException, Parameter, Place, Rule, RuleSet
from migverify.recon.parameters import parse_moment, parse_value

if TYPE_CHECKING:
    from migverify.recon.document import RulesDocument


@dataclass(frozen=True, slots=True)
class RulesFile:
    """One file: what it says, and where each key stands."""

    path: Path
    lines: tuple[str, ...]
    yaml: YamlDocument
    document: RulesDocument

    def place(self, steps: Steps) -> Place:
        """Return file and line of a key."""
        found = self.yaml.place(steps)
        return Place(str(self.path), found.line if found else 1)

    def problem(self, steps: Steps, text: str, hint: str = "") -> Problem:
        """Return a problem of a key, or of the nearest key above it that the file has."""
        return problem_at(self.path, self.yaml.place(steps), text, hint)

    def problem_in(self, steps: Steps, offset_line: int, text: str, hint: str = "") -> Problem:
        """Return a problem some lines into the text of a key (0 is its first line)."""
        place = self.yaml.values.get(steps)
        if place is None:
            return self.problem(steps, text, hint)
        mark = self.lines[place.line - 1][place.column - 1 : place.column]
        if mark != "|":  # a folded or quoted text has lines of its own: name where it begins
            return problem_at(self.path, place, text, hint)
        line = place.line + 1 + offset_line
        width = len(self.lines[line - 1]) - len(self.lines[line - 1].lstrip()) if line <= len(self.lines) else 0
        return problem_at(self.path, YamlPlace(line, width + 1), text, hint)


def load_rules(path: Path, endpoints: Collection[str]) -> RuleSet:
    """Read and check rules, without asking any server.

    Parameters
    ----------
    path
        A file, or a folder whose ``*.yaml`` files are one set of rules. Relative paths in them start at the folder.
    endpoints
        Names that datasets may give as their endpoint.

    Raises
    ------
    ConfigError
        A file is missing, is not YAML, or holds a rule that cannot run; the message names file, line, column and rule.
    """
    from migverify.recon.checks import check_rules
    from migverify.recon.convert import dataset_of, rule_of

    files = [_read(one) for one in _files(path)]
    problems: list[Problem] = []
    datasets: dict[str, Dataset] = {}
    parameters: dict[str, Parameter] = {}
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
                parameters[name] = _parameter(file, name, problems)
            elif kind == "dataset":
                if (found := dataset_of(file, name, problems)) is not None:
                    datasets[name] = found
            else:
                rules[name] = rule_of(file, steps)
    exceptions = tuple(_exceptions(files))
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
    from migverify.recon.document import RulesDocument  # pydantic costs a tenth of a second

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


def _parameter(file: RulesFile, name: str, problems: list[Problem]) -> Parameter:
    part, steps = file.document.parameters[name], ("parameters", name)
    default: Any = None
    if part.default is not None:
        try:
            default = parse_value(part.type, part.default)
        except ValueError as error:
            problems.append(file.problem((*steps, "default"), f"parameter {name}: {error}"))
    return Parameter(name, part.type, default, file.place(steps))


def _exceptions(files: list[RulesFile]) -> Iterator[KnownException]:
    for file in files:
        for number, part in enumerate(file.document.exceptions):
            place = file.place(("exceptions", number))
            yield KnownException(part.rule, part.key, part.owner, part.reason, parse_moment(part.expires), place)


def nearest(name: str, known: Collection[str], noun: str) -> str:
    """Advice for an unknown name: the one that was meant, or what there is."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]}?"
    listed = ", ".join(sorted(known)[:12])
    return f"Known {noun}: {listed}." if listed else f"There are no {noun}."


_WORDS_ONLY = frozenset({"place", "owner", "description", "reason", "path", "digest"})
_LATER = frozenset({"by_shard"})
"""Options that came later: where they say nothing, rules keep the digest that earlier runs have in the store."""


def digest_of(rules: RuleSet) -> RuleSet:
    """Return the rules with their digest: sha256 as hex over all that decides an outcome.

    Owners, descriptions, reasons, the names of files and the places in them decide nothing and are left out. The path
    of a Parquet or change part is in: it is what is read.
    """
    view = {
        "rules": [_meaning(rule) for rule in rules.rules],
        "datasets": {name: _meaning(dataset) for name, dataset in rules.datasets.items()},
        "parameters": {name: _meaning(parameter) for name, parameter in rules.parameters.items()},
        "exceptions": [_meaning(entry) for entry in rules.exceptions],
    }
    text = json.dumps(view, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return replace(rules, digest=hashlib.sha256(text.encode()).hexdigest())


def _meaning(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        names = [f.name for f in fields(value) if f.name not in _WORDS_ONLY or (f.name == "path" and "Part" in kind)]
        names = [name for name in names if name not in _LATER or getattr(value, name)]
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
