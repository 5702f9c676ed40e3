"""A suite of expectations, read and checked before anything runs; Great Expectations itself is not needed for that.

Numbers of a suite file are read as exact decimals, never as floats. A float of a rules file has lost its digits
already, so beside a column of exact numbers it is refused: in quotes it is exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from string import Formatter
from typing import Any, NoReturn

from migverify.errors import ConfigError, MigverifyError
from migverify.model import ColumnDef
from migverify.recon.expectation_types import TYPES, Group, How, group_of
from migverify.recon.model import Dataset, FilePart, ParameterValue, QueryPart, Rule, TablePart
from migverify.sql.expectations import number_literal

RESULT_FORMATS = ("BOOLEAN_ONLY", "BASIC", "SUMMARY", "COMPLETE")
DEFAULT_LIMIT = 1000
PARAMETER = "$PARAMETER"
# What a stored suite repeats for each expectation, and what only tells how a result looks.
_IGNORED = frozenset({"batch_id", "catch_exceptions", "condition_parser", "include_config", "meta", "result_format"})
_NUMBERS = ("min_value", "max_value", "value", "sum_total")
_IGNORE_ROW_IF = ("all_values_are_missing", "any_value_is_missing", "never")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. ``number`` counts from 1. Numbers in ``arguments`` of ours are Decimal.

    ``mostly`` is the least share of rows for which it must hold, exactly.
    """

    number: int
    type: str
    arguments: dict[str, Any]
    mostly: Decimal = Decimal(1)
    description: str = ""
    how: How = How.GX

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns it speaks of."""
        found: list[str] = []
        for argument in TYPES[self.type].columns:
            value = self.arguments[argument]
            found += value if isinstance(value, list) else [value]
        return tuple(found)

    @property
    def label(self) -> str:
        """How messages and keys call it: its number, its type and its columns."""
        named = self.columns or ([str(self.arguments["column"])] if "column" in self.arguments else [])
        return f"{self.number}. {self.type}({', '.join(named)})"


@dataclass(frozen=True, slots=True)
class Suite:
    """The expectations of one rule. ``limit`` bounds the rows that are kept of each."""

    name: str
    expectations: tuple[Expectation, ...]
    result_format: str = "SUMMARY"
    limit: int = DEFAULT_LIMIT


def read_suite(rule: Rule, values: Mapping[str, ParameterValue] | None = None) -> Suite:
    """Read the suite of a rule: inline, or a JSON file whose path is relative to the rules file.

    Parameters
    ----------
    values
        Parameters: they replace ``{"$PARAMETER": "name"}``. None leaves these as they are, for a check.

    Raises
    ------
    ConfigError
        The file cannot be read, an expectation is not known, or an argument is missing or not understood.
    """
    name, entries = _entries(rule)
    if not entries:
        _refuse(rule, "the suite has no expectation", "An empty suite proves nothing: add one, or remove the rule.")
    result_format = rule.options.get("result_format") or "SUMMARY"
    if result_format not in RESULT_FORMATS:
        _refuse(rule, f"result_format {result_format!r} is not known", f"Use one of {', '.join(RESULT_FORMATS)}.")
    limit = rule.options.get("limit")
    limit = DEFAULT_LIMIT if limit is None else limit
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        _refuse(rule, f"limit {limit!r} is not a whole number above 0", "It bounds the rows kept of each expectation.")
    found = tuple(_expectation(rule, n, entry, values) for n, entry in enumerate(entries, 1))
    return Suite(name, found, result_format, limit)


def suite_parameters(rule: Rule) -> frozenset[str]:
    """Return the names of the parameters that the suite of a rule uses, as ``{"$PARAMETER": "name"}``.

    Raises
    ------
    ConfigError
        The suite cannot be read.
    """
    found: set[str] = set()
    left: list[object] = list(_entries(rule)[1])
    while left:
        one = left.pop()
        if isinstance(one, Mapping):
            name = one.get(PARAMETER)
            found |= {name} if isinstance(name, str) else set()
            left += one.values()
        elif isinstance(one, list | tuple):
            left += one
    return frozenset(found)


def _entries(rule: Rule) -> tuple[str, list[object]]:
    given = rule.options.get("suite")
    if isinstance(given, str) and given:
        return _read_file(rule, Path(rule.place.file).parent / given)
    if not isinstance(given, list | tuple):
        _refuse(rule, "no suite is given", "Set `suite` to the path of a suite file, or to a list of expectations.")
    return rule.name, list(given)


def check_suite(rule: Rule, dataset: Dataset, columns: Sequence[ColumnDef], suite: Suite) -> Suite:
    """Decide who computes each expectation, or refuse it by name.

    Parameters
    ----------
    columns
        The columns of the dataset, as its endpoints describe them.

    Raises
    ------
    ConfigError
        A column does not exist, or an expectation cannot be computed exactly on this dataset.
    """
    _check_dataset(rule, dataset)
    known = {column.name: column for column in columns}
    missing = [name for name in _needed(rule) if name not in known]
    if missing:
        _refuse(rule, f"dataset {dataset.name} has no column {missing[0]}", f"It has {', '.join(known)}.")
    many = len({part.endpoint for part in dataset.parts if isinstance(part, TablePart | QueryPart)}) > 1
    decided = tuple(_decide(rule, dataset, one, known, many=many) for one in suite.expectations)
    return replace(suite, expectations=decided)


def _needed(rule: Rule) -> list[str]:
    money = [rule.money.column] if rule.money else []
    if rule.money and rule.money.constant is None:
        money.append(rule.money.currency)
    return [*rule.key, *money]


def _check_dataset(rule: Rule, dataset: Dataset) -> None:
    for part in dataset.parts:
        if isinstance(part, FilePart):
            _refuse(rule, f"dataset {dataset.name} is Parquet files ({part.path})",
                    "Suites run on databases: load the files, or use a no_rows, unique or coverage rule.")  # fmt: skip
        if not isinstance(part, TablePart | QueryPart):
            _refuse(rule, f"dataset {dataset.name} is a change stream",
                    "Suites run on databases: use a transitions, sequence or freshness rule.")  # fmt: skip
    if dataset.values:
        _refuse(rule, f"dataset {dataset.name} maps values ({dataset.values[0][0]})",
                "A suite reads the database: write the mapping as CASE in `columns`.")  # fmt: skip


def _decide(
    rule: Rule, dataset: Dataset, one: Expectation, known: Mapping[str, ColumnDef], *, many: bool
) -> Expectation:
    for name in one.columns:
        if name not in known:
            _refuse(rule, f"{one.label}: dataset {dataset.name} has no column {name}", f"It has {', '.join(known)}.")
    kind = TYPES[one.type]
    columns = [known[name] for name in one.columns]
    groups = [group_of(column) for column in columns]
    how = kind.of(groups)
    money = rule.money.column if rule.money else None
    inexact = how is How.GX and Group.FLOAT in groups and money in one.columns
    if how is How.REFUSED or inexact:
        types = ", ".join(f"{c.name} {c.column_type}" for c in columns)
        _refuse(rule, f"{one.label} cannot be computed exactly on {types}",
                "Use an unexpected_rows_expectation, or a rule of kind same_groups or no_rows.")  # fmt: skip
    if many and (not kind.per_row or one.mostly != 1):
        _refuse(rule, f"{one.label} speaks of all rows, and dataset {dataset.name} lies on several endpoints",
                "Use a rule of kind same_groups, unique or coverage, or one dataset per endpoint.")  # fmt: skip
    if how in (How.GX, How.QUERY):
        return replace(one, how=how)
    odd = sorted(set(one.arguments) - kind.arguments - set(kind.columns))
    if odd:
        _refuse(rule, f"{one.label}: the argument {odd[0]} is not known",
                f"It has {', '.join(sorted(kind.arguments))}.")  # fmt: skip
    number = bool({Group.WIDE, Group.SMALL} & set(groups)) or "lengths" in one.type
    return replace(one, how=how, arguments=_exact_arguments(rule, one, number=number))


def _exact_arguments(rule: Rule, one: Expectation, *, number: bool) -> dict[str, Any]:
    """Return the arguments with numbers as Decimal, and bounds of times as texts that a server reads."""
    result = dict(one.arguments)
    for name in _NUMBERS:
        if result.get(name) is not None:
            result[name] = _exact(rule, one, name, result[name], number=number)
    if "value_set" in TYPES[one.type].arguments:
        given = result.get("value_set")
        if not isinstance(given, list) or not given:
            _refuse(rule, f"{one.label} has no value_set", "Give a list of values.")
        result["value_set"] = [_exact(rule, one, "value_set", value, number=number) for value in given]
    if result.get("ignore_row_if", _IGNORE_ROW_IF[0]) not in _IGNORE_ROW_IF:
        _refuse(rule, f"{one.label}: ignore_row_if is not known", f"Use one of {', '.join(_IGNORE_ROW_IF)}.")
    _check_types_asked(rule, one)
    return result


def _check_types_asked(rule: Rule, one: Expectation) -> None:
    if one.type == "expect_column_values_to_be_of_type" and not isinstance(one.arguments.get("type_"), str):
        _refuse(rule, f"{one.label} has no type_", "Give a type of SQL, such as DECIMAL.")
    listed = one.arguments.get("type_list")
    if one.type == "expect_column_values_to_be_in_type_list" and not (isinstance(listed, list) and listed):
        _refuse(rule, f"{one.label} has no type_list", "Give a list of types of SQL.")


def _exact(rule: Rule, one: Expectation, name: str, value: object, *, number: bool) -> Decimal | str:
    if not number:
        if isinstance(value, str):
            return value
        if isinstance(value, date | datetime):
            return str(value)
        _refuse(rule, f"{one.label}: {name} {value!r} is not text", "Write it in quotes.")
    if isinstance(value, float | bool) or not isinstance(value, int | str | Decimal):
        _refuse(rule, f"{one.label}: {name} {value!r} is not an exact number",
                "Write it in quotes, all digits: '9007199254740993.0001'.")  # fmt: skip
    try:
        exact = Decimal(value)
        number_literal(exact)
    except (InvalidOperation, MigverifyError) as error:
        _refuse(rule, f"{one.label}: {name} {value!r} is not a number that a DECIMAL holds", f"({error})")
    return exact


def _expectation(rule: Rule, number: int, entry: object, values: Mapping[str, ParameterValue] | None) -> Expectation:
    where = f"expectation {number}"
    if not isinstance(entry, Mapping):
        _refuse(rule, f"{where} is not a mapping", "Write `- {type: expect_..., column: name}`.")
    fields = dict(entry)
    kind = fields.pop("type", None) or fields.pop("expectation_type", None)
    if not isinstance(kind, str):
        _refuse(rule, f"{where} has no type", "Write `- {type: expect_..., column: name}`.")
    kind = _snake(kind)
    if kind not in TYPES:
        _refuse(rule, f"{where}: {kind} is refused: it is not known to compute exactly in SQL",
                "docs/expectations.md lists what may run; or use an unexpected_rows_expectation.")  # fmt: skip
    notes = fields.pop("description", None) or fields.pop("notes", None) or ""
    stored = fields.pop("kwargs", None)
    for ignored in ("id", "severity", "rendered_content", *_IGNORED):
        fields.pop(ignored, None)
    arguments = {k: v for k, v in (*fields.items(), *dict(stored or {}).items()) if k not in _IGNORED}
    # A stored suite spells out what was not given.
    arguments = {name: _bound(rule, where, value, values) for name, value in arguments.items() if value is not None}
    if arguments.pop("row_condition", None):
        _refuse(rule, f"{where} ({kind}): row_condition is refused", "Put the condition into `where` of a dataset.")
    mostly = _share(rule, f"{where} ({kind})", arguments.pop("mostly", 1))
    found = Expectation(number, kind, arguments, mostly, str(notes))
    _check_columns(rule, found)
    needs = TYPES[kind].needs
    if needs and not any(arguments.get(name) not in (None, []) for name in needs):
        _refuse(rule, f"{found.label} has no {' or '.join(needs)}", "Without it, it holds always: give it.")
    if kind == "unexpected_rows_expectation":
        _check_query(rule, found)
    return found


def _check_columns(rule: Rule, one: Expectation) -> None:
    for argument in TYPES[one.type].columns:
        value = one.arguments.get(argument)
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(name, str) and name for name in names):
            _refuse(rule, f"expectation {one.number} ({one.type}): {argument} is missing or not a name",
                    "Name a column of the dataset.")  # fmt: skip


def _check_query(rule: Rule, one: Expectation) -> None:
    query = one.arguments.get("unexpected_rows_query")
    if not isinstance(query, str) or not query.strip():
        _refuse(rule, f"{one.label} has no unexpected_rows_query", "Write a SELECT of the rows that must not be.")
    try:
        fields = {field for _, field, _, _ in Formatter().parse(query) if field is not None}
    except ValueError as error:
        _refuse(rule, f"{one.label}: {error}", "Double a brace that is meant as a brace: {{ and }}.")
    if fields != {"batch"}:
        odd = sorted(fields - {"batch"})
        what = f"{{{odd[0]}}} is not known" if odd else "{batch} is missing"
        _refuse(rule, f"{one.label}: {what}", "{batch} stands for the dataset; double other braces.")


def _bound(rule: Rule, where: str, value: Any, values: Mapping[str, ParameterValue] | None) -> Any:
    if not (isinstance(value, Mapping) and PARAMETER in value):
        return value
    if values is None:
        return value
    name = value[PARAMETER]
    if name not in values:
        _refuse(rule, f"{where}: the parameter {name} has no value", "Add it to `parameters`, or give it when running.")
    return values[name]


def _share(rule: Rule, where: str, value: object) -> Decimal:
    text = str(value) if isinstance(value, int | float | Decimal | str) and not isinstance(value, bool) else ""
    try:
        share = Decimal(text)
    except InvalidOperation:
        share = Decimal(-1)
    if not 0 <= share <= 1:
        _refuse(rule, f"{where}: mostly {value!r} is not a share between 0 and 1", "Use 0.99, or leave it out for all.")
    return share


def _snake(name: str) -> str:
    """Return ``expect_column_to_exist`` for ``ExpectColumnToExist``."""
    if not name[:1].isupper():
        return name
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def _read_file(rule: Rule, path: Path) -> tuple[str, list[object]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        _refuse(rule, f"the suite {path} cannot be read: {error}", "Give the path of a suite's JSON file.")
    entries = document.get("expectations") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        _refuse(rule, f"{path} is not a suite of Great Expectations", "It has no list `expectations`.")
    return str(document.get("name") or document.get("expectation_suite_name") or path.stem), entries


def _refuse(rule: Rule, message: str, hint: str) -> NoReturn:
    raise ConfigError(f"{rule.place}: rule {rule.name}: {message}", hint=hint)


def texts(values: Iterable[Decimal | str]) -> list[str]:
    """Return numbers and texts as texts, numbers without an exponent."""
    return [format(value, "f") if isinstance(value, Decimal) else value for value in values]
