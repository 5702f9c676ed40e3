"""Suites of Great Expectations, read when rules are loaded; Great Expectations itself is not needed.

What cannot be computed exactly by the server is refused by name. Numbers of a file are read as exact decimals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from migverify.errors import ConfigError, UsageError
from migverify.model import ColumnDef
from migverify.recon.model import ChangesPart, Dataset, FilePart, QueryPart, TablePart
from migverify.sql.canonical import FAMILIES
from migverify.sql.expectations import UNIQUE
from migverify.sql.quoting import decimal_literal


class LooksAt(StrEnum):
    """What answers an expectation."""

    ROWS = "each row"
    ALL = "all rows"
    CATALOG = "the catalog"


class ColumnGroup(StrEnum):
    """What the type of a column means for comparisons."""

    EXACT = "exact numbers"
    FLOAT = "FLOAT, DOUBLE"
    TIME = "dates, times"
    OTHER = "text, bytes, others"


def group_of(column: ColumnDef) -> ColumnGroup:
    """Return the group of a column's type."""
    family = FAMILIES.get(column.data_type, "")
    if family in ("integer", "decimal", "bit", "year"):
        return ColumnGroup.EXACT
    if family == "float":
        return ColumnGroup.FLOAT
    return ColumnGroup.TIME if family in ("date", "datetime", "time") else ColumnGroup.OTHER


@dataclass(frozen=True, slots=True)
class ExpectationType:
    """One type of expectation that runs.

    ``columns`` names the arguments that hold column names, ``needs`` those of which one must be given, ``more`` the
    others. ``groups`` are the types of columns on which it is exact. ``is_alike``: its columns must be of one group, or
    the server would compare them as DOUBLE.
    """

    looks_at: LooksAt
    columns: tuple[str, ...] = ("column",)
    needs: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    groups: frozenset[ColumnGroup] = frozenset(ColumnGroup)
    is_alike: bool = False


_row, _all, _catalog = (partial(ExpectationType, looks_at) for looks_at in LooksAt)
_EXACT, _ORDERED = frozenset({ColumnGroup.EXACT}), frozenset({ColumnGroup.EXACT, ColumnGroup.FLOAT, ColumnGroup.TIME})
_TEXTS = frozenset({ColumnGroup.EXACT, ColumnGroup.TIME, ColumnGroup.OTHER})  # a FLOAT has another text on each server
_EITHER, _STRICT, _IGNORE = ("min_value", "max_value"), ("strict_min", "strict_max"), ("ignore_row_if",)
_PAIR, _LIST, _SET = ("column_A", "column_B"), ("column_list",), ("value_set",)
_BOUNDS = ("min_value", "max_value", "value", "sum_total")
_LISTS = ("value_set", "column_set", "type_list")
_SCALED = 40  # digits of a bound that may be multiplied by a count of 64 bits

TYPES: dict[str, ExpectationType] = {
    "expect_column_values_to_not_be_null": _row(),
    "expect_column_values_to_be_null": _row(),
    "expect_column_values_to_be_between": _row(needs=_EITHER, more=_STRICT, groups=_ORDERED),
    "expect_column_values_to_be_in_set": _row(needs=_SET),
    "expect_column_values_to_not_be_in_set": _row(needs=_SET),
    "expect_column_distinct_values_to_be_in_set": _row(needs=_SET),
    "expect_column_value_lengths_to_be_between": _row(needs=_EITHER, more=_STRICT, groups=_TEXTS),
    "expect_column_value_lengths_to_equal": _row(needs=("value",), groups=_TEXTS),
    "expect_column_values_to_match_regex": _row(needs=("regex",), groups=_TEXTS),
    "expect_column_values_to_not_match_regex": _row(needs=("regex",), groups=_TEXTS),
    "expect_column_values_to_match_like_pattern": _row(needs=("like_pattern",), groups=_TEXTS),
    "expect_column_values_to_not_match_like_pattern": _row(needs=("like_pattern",), groups=_TEXTS),
    "expect_column_pair_values_to_be_equal": _row(_PAIR, more=_IGNORE, is_alike=True),
    "expect_column_pair_values_a_to_be_greater_than_b": _row(_PAIR, more=(*_IGNORE, "or_equal"), is_alike=True),
    "expect_multicolumn_sum_to_equal": _row(_LIST, ("sum_total",), _IGNORE, _EXACT),
    "expect_column_values_to_be_unique": _row(),
    "expect_compound_columns_to_be_unique": _row(_LIST, more=_IGNORE),
    "expect_column_sum_to_be_between": _all(needs=_EITHER, more=_STRICT, groups=_EXACT),
    "expect_column_mean_to_be_between": _all(needs=_EITHER, more=_STRICT, groups=_EXACT),
    "expect_column_min_to_be_between": _all(needs=_EITHER, more=_STRICT, groups=_ORDERED),
    "expect_column_max_to_be_between": _all(needs=_EITHER, more=_STRICT, groups=_ORDERED),
    "expect_column_unique_value_count_to_be_between": _all(needs=_EITHER, more=_STRICT),
    "expect_column_proportion_of_unique_values_to_be_between": _all(needs=_EITHER, more=_STRICT),
    "expect_column_proportion_of_non_null_values_to_be_between": _all(needs=_EITHER, more=_STRICT),
    "expect_column_distinct_values_to_contain_set": _all(needs=_SET),
    "expect_column_distinct_values_to_equal_set": _all(needs=_SET),
    "expect_table_row_count_to_be_between": _all((), _EITHER, _STRICT),
    "expect_table_row_count_to_equal": _all((), ("value",)),
    "expect_column_to_exist": _catalog((), ("column",), ("column_index",)),
    "expect_column_values_to_be_of_type": _catalog(("column",), ("type_",)),
    "expect_column_values_to_be_in_type_list": _catalog(("column",), ("type_list",)),
    "expect_table_columns_to_match_ordered_list": _catalog((), _LIST),
    "expect_table_columns_to_match_set": _catalog((), ("column_set",), ("exact_match",)),
}  # fmt: skip
"""All that runs; what is not here is refused."""

# What a stored suite repeats for each expectation, and what says only how a result is shown or was guessed.
_IGNORED = frozenset({"allow_cross_type_comparisons", "auto", "batch_id", "catch_exceptions", "condition_parser",
                      "expectation_context", "ge_cloud_id", "id", "include_config", "meta",
                      "parse_strings_as_datetimes", "profiler_config", "rendered_content", "result_format",
                      "severity"})  # fmt: skip
_MISSING = ("all_values_are_missing", "any_value_is_missing", "never")
_PAIR_MISSING = ("both_values_are_missing", "either_value_is_missing", "neither")
_UNPORTABLE = re.compile(r"[^\x20-\x7E]|\\[A-Za-z0-9]|\(\?|[*+?}]\+|(?<!\\)\[[^\]]*(?:\[|&&|--|~~)")
_MOMENT = re.compile(r"\d{4}-\d\d?-\d\d?([ T]\d\d?:\d\d(:\d\d(\.\d{1,6})?)?)?|-?\d{1,3}:\d\d(:\d\d(\.\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. ``number`` counts from 1; numbers in ``arguments`` are Decimal after ``exact``.

    ``mostly`` is the least share of considered rows for which it must hold, exactly.
    """

    number: int
    type: str
    arguments: dict[str, Any]
    mostly: Decimal = Decimal(1)
    description: str = ""

    @property
    def known(self) -> ExpectationType:
        """How it is answered."""
        return TYPES[self.type]

    @property
    def kind(self) -> str:
        """The type without ``expect_``, as ``sql.expectations`` takes it."""
        return self.type.removeprefix("expect_")

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that it reads."""
        values = [self.arguments[argument] for argument in self.known.columns]
        return tuple(name for value in values for name in (value if isinstance(value, list) else [value]))

    @property
    def label(self) -> str:
        """Its name in messages and keys: its number, its type and its columns."""
        named = self.columns or ([str(self.arguments["column"])] if "column" in self.arguments else [])
        return f"{self.number}. {self.type}({', '.join(named)})"

    def unmet(self, observed: str | None) -> str:
        """Return in words what was observed where it does not hold, and what was expected."""
        if self.known.looks_at is LooksAt.ROWS:
            return f"{observed} rows do not hold{f', mostly {self.mostly:f}' if self.mostly != 1 else ''}"
        limits = [f"{name} {format(value, 'f') if isinstance(value, Decimal) else value}"
                  for name, value in self.arguments.items() if not name.startswith("column")]  # fmt: skip
        words = observed if self.known.looks_at is LooksAt.CATALOG else f"observed {observed or 'NULL (no rows)'}"
        return f"{words}, expected {', '.join(limits)}" if limits else f"{words}"


def read_suite(suite: object, folder: Path) -> tuple[Expectation, ...]:
    """Read a suite: a list, or the path below ``folder`` of a JSON file (of 0.18 or 1.x).

    Raises ConfigError: the file cannot be read, an expectation is refused, or an argument is missing or not known.
    """
    entries = _entries(suite, folder)
    if not entries:
        _refuse("the suite has no expectation", "An empty suite proves nothing: add one, or remove the rule.")
    return tuple(_expectation(number, entry) for number, entry in enumerate(entries, 1))


def _entries(suite: object, folder: Path) -> list[object]:
    if isinstance(suite, list):
        return suite
    if not suite:
        hint = "Set `suite` to the path of a suite file, or to a list of expectations."
        _refuse("no suite is given", hint)
    path = folder / str(suite)
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, ValueError) as error:
        hint = "Give the path of a suite's JSON file."
        _refuse(f"the suite {path} cannot be read: {error}", hint)
    entries = document.get("expectations") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        _refuse(f"{path} is not a suite of Great Expectations", "It has no list `expectations`.")
    return entries


def _expectation(number: int, entry: object) -> Expectation:
    fields = dict(entry) if isinstance(entry, Mapping) else {}
    kind = fields.pop("type", None) or fields.pop("expectation_type", None)
    if not isinstance(kind, str):
        _refuse(f"expectation {number} has no type", "Write `- {type: expect_..., column: name}`.")
    if kind[:1].isupper():  # the name of a class of Great Expectations 1.x
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
    where = f"expectation {number} ({kind})"
    if kind not in TYPES:
        hint = "docs/expectations.md lists what runs; a condition on rows is a rule of kind no_rows too."
        _refuse(f"expectation {number}: {kind} is refused: it is not known to compute exactly in SQL", hint)
    notes = fields.pop("description", None) or fields.pop("notes", None) or ""
    stored = fields.pop("kwargs", None)
    given = {**fields, **(stored if isinstance(stored, Mapping) else {})}
    # A stored suite spells out what was not given, as null.
    arguments = {name: value for name, value in given.items() if name not in _IGNORED and value is not None}
    if arguments.pop("row_condition", None):
        _refuse(f"{where}: row_condition is refused", "Put the condition into `where` of a dataset.")
    mostly = _share(where, arguments.pop("mostly", 1))
    for argument in TYPES[kind].columns:
        names = arguments.get(argument)
        names = names if isinstance(names, list) else [names]
        if not names or not all(isinstance(name, str) and name for name in names):
            _refuse(f"{where}: {argument} is missing or not a name", "Name a column of the dataset.")
    made = Expectation(number, kind, arguments, mostly, str(notes))
    for text, hint in _problems(made.known, arguments):
        _refuse(f"{made.label}{text}", hint)
    return made


def _problems(known: ExpectationType, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with arguments, and what to do."""
    if known.needs and all(given.get(name) in (None, []) for name in known.needs):
        yield f" has no {' or '.join(known.needs)}", "Without it, it holds always: give it."
    allowed = {*known.columns, *known.needs, *known.more}
    for odd in sorted(set(given) - allowed):
        yield f": the argument {odd} is not known", f"It has {', '.join(sorted(allowed))}."
    for name in _LISTS:
        if not isinstance(given.get(name, []), list):
            yield f": {name} is not a list", "Give a list of values."
    missing = _PAIR_MISSING if known.columns == _PAIR else _MISSING
    if given.get("ignore_row_if", missing[0]) not in missing:
        yield ": ignore_row_if is not known", f"Use one of {', '.join(missing)}."
    for name in ("regex", "like_pattern"):
        if not isinstance(given.get(name, ""), str):
            yield f": {name} is not text", "Write it in quotes."
    regex = str(given.get("regex", ""))
    if _UNPORTABLE.search(regex):
        yield (f": MySQL, MariaDB and TiDB do not read the regex {regex!r} alike",
               r"Use ASCII, [0-9] for \d, and no (?...), , *+ or [:class:]; or a LIKE pattern.")  # fmt: skip
    try:
        re.compile(regex)
    except re.error as error:
        yield f": {regex!r} is not a regex: {error}", "Write it as MySQL and TiDB read it."


def _share(where: str, value: object) -> Decimal:
    try:
        share = Decimal("" if isinstance(value, bool) else str(value))
        decimal_literal(share)
    except (InvalidOperation, UsageError):
        share = Decimal(-1)
    if not 0 <= share <= 1:
        _refuse(f"{where}: mostly {value!r} is not a share between 0 and 1", "Use 0.99, or leave it out for all.")
    return share


# --- with a dataset and its columns -------------------------------------------------------------------------


def refuse_dataset(suite: Iterable[Expectation], dataset: Dataset) -> None:
    """Refuse a dataset that no server can be asked about, or not for all rows at once.

    Raises ConfigError: the dataset has files, changes or mapped values, or is on several endpoints.
    """
    endpoints = {part.endpoint for part in dataset.parts if isinstance(part, TablePart | QueryPart)}
    if any(isinstance(part, FilePart | ChangesPart) for part in dataset.parts):
        hint = "Load the files, or use a rule of kind no_rows, unique, coverage, transitions, sequence or freshness."
        _refuse(f"dataset {dataset.name} is Parquet files or a change stream, and suites run on databases", hint)
    if dataset.values:
        hint = "A suite reads the database: write the mapping as CASE in `columns`."
        _refuse(f"dataset {dataset.name} maps values ({dataset.values[0][0]})", hint)
    for one in suite:
        by_endpoint = one.known.looks_at is not LooksAt.ALL and one.kind not in UNIQUE and one.mostly == 1
        if len(endpoints) > 1 and not by_endpoint:
            hint = "Use a rule of kind same_groups, unique or coverage, or one dataset per endpoint."
            _refuse(f"{one.label} is about all rows, and dataset {dataset.name} is on several endpoints", hint)


def exact(one: Expectation, columns: Mapping[str, ColumnDef], money: str = "") -> Expectation:
    """Return an expectation with exact arguments; ``columns`` are those of a dataset, ``money`` names one of them.

    Raises ConfigError: a column does not exist, or the expectation cannot be computed exactly on its type.
    """
    for name in one.columns:
        if name not in columns:
            _refuse(f"{one.label}: the dataset has no column {name}", f"It has {', '.join(columns)}.")
    read = [columns[name] for name in one.columns]
    groups = {group_of(column) for column in read}
    inexact = not groups <= one.known.groups or (one.known.is_alike and len(groups) > 1)
    if inexact or (money in one.columns and ColumnGroup.FLOAT in groups):
        types = ", ".join(f"{c.name} {c.column_type}" for c in read)
        hint = "Use a rule of kind same_groups or no_rows."
        _refuse(f"{one.label} cannot be computed exactly on {types}", hint)
    is_share = any(word in one.type for word in ("lengths", "count", "proportion"))
    group = ColumnGroup.EXACT if is_share or not read else group_of(read[0])
    arguments = dict(one.arguments)
    for name in (name for name in _BOUNDS if name in arguments):
        arguments[name] = _literal(one, name, arguments[name], group)
    if "value_set" in arguments:
        arguments["value_set"] = [_literal(one, "value_set", value, group) for value in arguments["value_set"]]
    return replace(one, arguments=arguments)


def _literal(one: Expectation, name: str, value: object, group: ColumnGroup) -> Decimal | str:
    where = f"{one.label}: {name} {value!r}"
    if group in (ColumnGroup.TIME, ColumnGroup.OTHER):
        if not isinstance(value, str | date):
            _refuse(f"{where} is not text", "Write it in quotes.")
        if group is ColumnGroup.TIME and not _MOMENT.fullmatch(str(value)):
            _refuse(f"{where} is not a date or time", "Write UTC, as 2026-01-31 12:00:00.000001.")
        return str(value)
    if isinstance(value, float | bool) or not isinstance(value, int | str | Decimal):
        hint = "Write it in quotes, all digits: '9007199254740993.0001'."
        _refuse(f"{where} is not an exact number", hint)
    try:
        number = Decimal(value)
        if len(decimal_literal(number)) > _SCALED and ("mean" in one.type or "proportion" in one.type):
            raise UsageError(f"more than {_SCALED} digits times a count are no DECIMAL")
    except (InvalidOperation, UsageError) as error:
        _refuse(f"{where} is not a number that a DECIMAL holds", f"({error})")
    return number


def in_catalog(one: Expectation, columns: Mapping[str, ColumnDef]) -> tuple[str, bool]:
    """Return what was observed for an expectation about the catalog, and whether it holds."""
    given, names = one.arguments, list(columns)
    if one.columns:
        column = columns[one.columns[0]]
        spelled = {column.data_type.lower(), column.column_type.lower()}
        spelled |= {"int": {"integer"}, "decimal": {"numeric"}}.get(column.data_type, set())
        types = [given["type_"]] if "type_" in given else given["type_list"]
        return f"observed {column.column_type}", any(str(name).lower() in spelled for name in types)
    if "column" in given:
        if given["column"] not in names or "column_index" not in given:
            return f"there is no column {given['column']}", given["column"] in names
        at = names.index(given["column"])
        return f"observed column_index {at}", at == given["column_index"]
    words = f"columns are {', '.join(names)}"
    if "column_list" in given:
        return words, names == given["column_list"]
    more = [name for name in names if name not in given["column_set"]] if given.get("exact_match", True) else []
    return words, not more and all(name in names for name in given["column_set"])


def _refuse(text: str, hint: str) -> NoReturn:
    raise ConfigError(text, hint=hint)
