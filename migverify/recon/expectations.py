"""Suites of Great Expectations, read and checked before anything runs; Great Expectations itself is not needed.

What cannot be computed exactly by the server is refused by name. Numbers of a file are read as exact decimals.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from migverify.errors import UsageError
from migverify.model import ColumnDef
from migverify.recon.model import Dataset, FilePart, QueryPart, TablePart
from migverify.recon.rule import Rule
from migverify.sql.canonical import FAMILIES
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
    the server would compare them as DOUBLE. ``by_shard``: it holds for all rows when it holds on each shard.
    """

    looks_at: LooksAt
    columns: tuple[str, ...] = ("column",)
    needs: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    groups: frozenset[ColumnGroup] = frozenset(ColumnGroup)
    is_alike: bool = False
    by_shard: bool = False


_row = partial(ExpectationType, LooksAt.ROWS, by_shard=True)
_all = partial(ExpectationType, LooksAt.ALL)
_catalog = partial(ExpectationType, LooksAt.CATALOG, (), by_shard=True)
_EXACT, _ORDERED = frozenset({ColumnGroup.EXACT}), frozenset({ColumnGroup.EXACT, ColumnGroup.FLOAT, ColumnGroup.TIME})
_TEXTS = frozenset({ColumnGroup.EXACT, ColumnGroup.TIME, ColumnGroup.OTHER})  # a FLOAT has another text on each server
_EITHER, _STRICT, _IGNORE = ("min_value", "max_value"), ("strict_min", "strict_max"), ("ignore_row_if",)
_PAIR, _LIST, _SET = ("column_A", "column_B"), ("column_list",), ("value_set",)
_SCALED = 40  # digits of a bound that may be multiplied by a count of 64 bits
_LISTS = ("value_set", "column_set", "type_list")

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
    "expect_column_values_to_be_unique": ExpectationType(LooksAt.ROWS),
    "expect_compound_columns_to_be_unique": ExpectationType(LooksAt.ROWS, _LIST, more=_IGNORE),
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
    "expect_column_to_exist": _catalog(needs=("column",), more=("column_index",)),
    "expect_column_values_to_be_of_type": ExpectationType(LooksAt.CATALOG, needs=("type_",), by_shard=True),
    "expect_column_values_to_be_in_type_list": ExpectationType(LooksAt.CATALOG, needs=("type_list",), by_shard=True),
    "expect_table_columns_to_match_ordered_list": _catalog(needs=("column_list",)),
    "expect_table_columns_to_match_set": _catalog(needs=("column_set",), more=("exact_match",)),
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


@dataclass(frozen=True, slots=True)
class Expectation:
    """One expectation. ``number`` counts from 1; numbers in ``arguments`` are Decimal after ``check_suite``.

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
    def name(self) -> str:
        """Its description in findings, or its label."""
        return self.description or self.label

    @property
    def label(self) -> str:
        """Its name in messages and keys: its number, its type and its columns."""
        named = self.columns or ([str(self.arguments["column"])] if "column" in self.arguments else [])
        return f"{self.number}. {self.type}({', '.join(named)})"


def read_suite(rule: Rule) -> tuple[Expectation, ...]:
    """Read the suite of a rule: inline, or a JSON file (of 0.18 or 1.x) whose path is relative to the rules file.

    Raises ConfigError: The file cannot be read, an expectation is refused, or an argument is missing or not understood.
    """
    entries = _entries(rule)
    if not entries:
        _refuse(rule, "the suite has no expectation", "An empty suite proves nothing: add one, or remove the rule.")
    return tuple(_expectation(rule, number, entry) for number, entry in enumerate(entries, 1))


def _entries(rule: Rule) -> list[object]:
    given = rule.options.get("suite")
    if isinstance(given, list | tuple):
        return list(given)
    if not given:
        _refuse(rule, "no suite is given", "Set `suite` to the path of a suite file, or to a list of expectations.")
    path = Path(rule.place.file).parent / str(given)
    try:
        document = json.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        _refuse(rule, f"the suite {path} cannot be read: {error}", "Give the path of a suite's JSON file.")
    entries = document.get("expectations") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        _refuse(rule, f"{path} is not a suite of Great Expectations", "It has no list `expectations`.")
    return entries


def _expectation(rule: Rule, number: int, entry: object) -> Expectation:
    where = f"expectation {number}"
    fields = dict(entry) if isinstance(entry, Mapping) else {}
    kind = fields.pop("type", None) or fields.pop("expectation_type", None)
    if not isinstance(kind, str):
        _refuse(rule, f"{where} has no type", "Write `- {type: expect_..., column: name}`.")
    if kind[:1].isupper():  # the name of a class of Great Expectations 1.x
        kind = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
    if kind not in TYPES:
        hint = "docs/expectations.md lists what runs; a condition on rows is a rule of kind no_rows too."
        _refuse(rule, f"{where}: {kind} is refused: it is not known to compute exactly in SQL", hint)
    notes = fields.pop("description", None) or fields.pop("notes", None) or ""
    stored = fields.pop("kwargs", None)
    given = {**fields, **(stored if isinstance(stored, Mapping) else {})}
    # A stored suite spells out what was not given, as null.
    arguments = {name: value for name, value in given.items() if name not in _IGNORED and value is not None}
    if arguments.pop("row_condition", None):
        _refuse(rule, f"{where} ({kind}): row_condition is refused", "Put the condition into `where` of a dataset.")
    mostly = _share(rule, f"{where} ({kind})", arguments.pop("mostly", 1))
    made = Expectation(number, kind, arguments, mostly, str(notes))
    _check_arguments(rule, made)
    return made


def _check_arguments(rule: Rule, one: Expectation) -> None:
    known, given = one.known, one.arguments
    for argument in known.columns:
        names = given.get(argument)
        names = names if isinstance(names, list) else [names]
        if not names or not all(isinstance(name, str) and name for name in names):
            _refuse(rule, f"expectation {one.number} ({one.type}): {argument} is missing or not a name",
                    "Name a column of the dataset.")  # fmt: skip
    if known.needs and all(given.get(name) in (None, []) for name in known.needs):
        _refuse(rule, f"{one.label} has no {' or '.join(known.needs)}", "Without it, it holds always: give it.")
    allowed = {*known.columns, *known.needs, *known.more}
    if odd := sorted(set(given) - allowed):
        _refuse(rule, f"{one.label}: the argument {odd[0]} is not known", f"It has {', '.join(sorted(allowed))}.")
    for name in _LISTS:
        if not isinstance(given.get(name, []), list):
            _refuse(rule, f"{one.label}: {name} is not a list", "Give a list of values.")
    missing = _PAIR_MISSING if known.columns == _PAIR else _MISSING
    if given.get("ignore_row_if", missing[0]) not in missing:
        _refuse(rule, f"{one.label}: ignore_row_if is not known", f"Use one of {', '.join(missing)}.")
    for name in ("regex", "like_pattern"):
        if not isinstance(given.get(name, ""), str):
            _refuse(rule, f"{one.label}: {name} is not text", "Write it in quotes.")
    if _UNPORTABLE.search(given.get("regex", "")):
        _refuse(rule, f"{one.label}: MySQL, MariaDB and TiDB do not read the regex {given['regex']!r} alike",
                r"Use ASCII, [0-9] for \d, and no (?...), , *+ or [:class:]; or a LIKE pattern.")  # fmt: skip


def _share(rule: Rule, where: str, value: object) -> Decimal:
    try:
        share = Decimal("" if isinstance(value, bool) else str(value))
    except InvalidOperation:
        share = Decimal(-1)
    if not 0 <= share <= 1:
        _refuse(rule, f"{where}: mostly {value!r} is not a share between 0 and 1", "Use 0.99, or leave it out for all.")
    return share


# --- beside the columns of a dataset ------------------------------------------------------------------------


def check_suite(
    rule: Rule, dataset: Dataset, columns: Sequence[ColumnDef], suite: Sequence[Expectation]
) -> tuple[Expectation, ...]:
    """Return the suite with exact arguments, or refuse by name what cannot be computed exactly on this dataset.

    ``columns``: The columns of the dataset, as its endpoints describe them.

    Raises ConfigError: A column does not exist, or an expectation cannot be computed exactly on this dataset.
    """
    for part in dataset.parts:
        if not isinstance(part, TablePart | QueryPart):
            what, instead = ("Parquet files", "load the files, or use a no_rows, unique or coverage rule")
            if not isinstance(part, FilePart):
                what, instead = ("a change stream", "use a transitions, sequence or freshness rule")
            _refuse(rule, f"dataset {dataset.name} is {what}", f"Suites run on databases: {instead}.")
    if dataset.values:
        _refuse(rule, f"dataset {dataset.name} maps values ({dataset.values[0][0]})",
                "A suite reads the database: write the mapping as CASE in `columns`.")  # fmt: skip
    known = {column.name: column for column in columns}
    for name in shown_columns(rule):
        if name not in known:
            _refuse(rule, f"dataset {dataset.name} has no column {name}", f"It has {', '.join(known)}.")
    many = len({part.endpoint for part in dataset.parts if isinstance(part, TablePart | QueryPart)}) > 1
    return tuple(_checked(rule, dataset, one, known, many=many) for one in suite)


def shown_columns(rule: Rule) -> list[str]:
    """Return the columns of the key and of the money of a rule."""
    money = [rule.money.column] if rule.money else []
    return [*rule.key, *money, *([rule.money.currency] if rule.money and rule.money.constant is None else [])]


def _checked(
    rule: Rule, dataset: Dataset, one: Expectation, known: Mapping[str, ColumnDef], *, many: bool
) -> Expectation:
    for name in one.columns:
        if name not in known:
            _refuse(rule, f"{one.label}: dataset {dataset.name} has no column {name}", f"It has {', '.join(known)}.")
    columns = [known[name] for name in one.columns]
    groups = [group_of(column) for column in columns]
    is_money = rule.money is not None and rule.money.column in one.columns
    inexact = not set(groups) <= one.known.groups or (one.known.is_alike and len(set(groups)) > 1)
    if inexact or (is_money and ColumnGroup.FLOAT in groups):
        types = ", ".join(f"{c.name} {c.column_type}" for c in columns)
        _refuse(rule, f"{one.label} cannot be computed exactly on {types}",
                "Use a rule of kind same_groups or no_rows.")  # fmt: skip
    if many and (not one.known.by_shard or one.mostly != 1):
        _refuse(rule, f"{one.label} is about all rows, and dataset {dataset.name} is on several endpoints",
                "Use a rule of kind same_groups, unique or coverage, or one dataset per endpoint.")  # fmt: skip
    arguments = dict(one.arguments)
    is_number = [group in (ColumnGroup.EXACT, ColumnGroup.FLOAT) for group in groups] or [True]
    is_share = any(word in one.type for word in ("lengths", "count", "proportion"))
    for name in ("min_value", "max_value", "value", "sum_total"):
        if name in arguments:
            arguments[name] = _exact(rule, one, name, arguments[name], number=is_number[0] or is_share)
    if "value_set" in arguments:
        values = arguments["value_set"]
        arguments["value_set"] = [_exact(rule, one, "value_set", value, number=is_number[0]) for value in values]
    return replace(one, arguments=arguments)


def in_catalog(one: Expectation, columns: Mapping[str, ColumnDef]) -> tuple[bool, str]:
    """Return whether an expectation about the catalog holds, and what was observed."""
    given, names = one.arguments, list(columns)
    if one.columns:
        column = columns[one.columns[0]]
        spelled = {column.data_type.lower(), column.column_type.lower()}
        spelled |= {"int": {"integer"}, "decimal": {"numeric"}}.get(column.data_type, set())
        types = [given["type_"]] if "type_" in given else given["type_list"]
        return any(str(name).lower() in spelled for name in types), f"observed {column.column_type}"
    if "column" in given:
        if given["column"] not in names or "column_index" not in given:
            return given["column"] in names, f"there is no column {given['column']}"
        at = names.index(given["column"])
        return at == given["column_index"], f"observed column_index {at}"
    words = f"columns are {', '.join(names)}"
    if "column_list" in given:
        return names == given["column_list"], words
    more = [name for name in names if name not in given["column_set"]] if given.get("exact_match", True) else []
    return not more and all(name in names for name in given["column_set"]), words


def _exact(rule: Rule, one: Expectation, name: str, value: object, *, number: bool) -> Decimal | str:
    if not number:
        if isinstance(value, str | date):
            return str(value)
        _refuse(rule, f"{one.label}: {name} {value!r} is not text", "Write it in quotes.")
    if isinstance(value, float | bool) or not isinstance(value, int | str | Decimal):
        _refuse(rule, f"{one.label}: {name} {value!r} is not an exact number",
                "Write it in quotes, all digits: '9007199254740993.0001'.")  # fmt: skip
    try:
        exact = Decimal(value)
        if len(decimal_literal(exact)) > _SCALED and ("mean" in one.type or "proportion" in one.type):
            raise UsageError(f"more than {_SCALED} digits times a count are no DECIMAL")
    except (InvalidOperation, UsageError) as error:
        _refuse(rule, f"{one.label}: {name} {value!r} is not a number that a DECIMAL holds", f"({error})")
    return exact


def _refuse(rule: Rule, message: str, hint: str) -> NoReturn:
    raise rule.refusal.error(message, hint)
