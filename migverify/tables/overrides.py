"""Whether the tables are there that ``overrides`` and ``exclude`` name: what is misspelled would do nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from migverify.config import Config, TablePattern, override_for
from migverify.config.problems import FileProblem, problem_at, read_document, refuse
from migverify.errors import ConfigError
from migverify.model import TableDef
from migverify.tables.pairs import FoundPair

if TYPE_CHECKING:
    from migverify.config.tables import OverrideRule
    from migverify.config.yaml_text import Steps

__all__ = ["refuse_unfit_excludes", "refuse_unfit_overrides"]

_SHOWN = 20
_Problem = tuple["Steps", str, str]
"""Where in the file, what is wrong, and a hint."""


def refuse_unfit_excludes(config: Config, unfit: Collection[TablePattern]) -> None:
    """Refuse patterns of ``tables.exclude`` that spell out a table which is on no side.

    Raises
    ------
    ConfigError
        names file and line.
    """
    hint = "Names are database.table as on the source, also in case; correct the pattern or remove the entry."
    problems: list[_Problem] = [
        (("tables", "exclude", number), f"tables.exclude: there is no table {pattern.text}", hint)
        for number, pattern in enumerate(config.tables.exclude)
        if pattern in unfit
    ]
    if problems:
        _refuse_at(config, problems)


def refuse_unfit_overrides(config: Config, found: Sequence[FoundPair], known: Iterable[tuple[str, str]]) -> None:
    """Refuse a pattern of ``overrides`` that fits no table, and a column that no table of its pattern has.

    Parameters
    ----------
    found
        The pairs of this run, which may be a part of what the configuration includes.
    known
        The (database, table) of every source table that the configuration includes.

    Raises
    ------
    ConfigError
        names file and line.
    """
    names = {*known, *(name for pair in found for name in _names(pair))}
    problems: list[_Problem] = []
    for number, rule in enumerate(config.overrides):
        matching = {name for name in names if rule.table.matches(*name)}
        pairs = [pair for pair in found if any(name in matching for name in _names(pair))]
        steps = ("overrides", number)
        if not matching:
            hint = "Names are database.table as on the source; correct the pattern or remove the entry."
            problems.append(((*steps, "table"), f"overrides: no table fits {rule.table.text}", hint))
        elif matching <= {name for pair in pairs for name in _names(pair)}:
            # Only then: a table that this run leaves out (--tables) may be the one with the column.
            problems += _unknown_columns(steps, rule, pairs)
    problems += _unknown_keys(config, found)
    if problems:
        _refuse_at(config, problems)


def _names(pair: FoundPair) -> list[tuple[str, str]]:
    tables = pair.sources or ((pair.target,) if pair.target is not None else ())
    return [(table.ref.database, table.ref.table) for table in tables]


def _unknown_columns(steps: Steps, rule: OverrideRule, pairs: Sequence[FoundPair]) -> Iterator[_Problem]:
    """Yield the columns of an entry that no table has. Each table of a pattern need not have them."""
    sources = [table for pair in pairs for table in (pair.sources or (pair.target,)) if table is not None]
    targets = [pair.target for pair in pairs if pair.target is not None]
    exact = _columns(sources)
    any_case = {name.casefold() for name in exact}
    either_side = any_case | {name.casefold() for name in _columns(targets)}
    before = rule.immutable_before
    named: list[tuple[Steps, str, bool]] = [
        *((("ignore", n), name, name.casefold() in either_side) for n, name in enumerate(rule.ignore)),
        *((("rename", name), name, name.casefold() in any_case) for name in rule.rename),
        *((("float_tolerance", name), name, name in {*exact, "*"}) for name in rule.float_tolerance),
        *([(("immutable_before", "column"), before.column, before.column in exact)] if before is not None else []),
    ]
    for inner, name, there in named:
        if not there:
            text = f"overrides: {inner[0]} of {rule.table.text} names {name}: no such column"
            yield (*steps, *inner), text, _hint(list(exact))


def _columns(tables: Iterable[TableDef]) -> dict[str, None]:
    return dict.fromkeys(column.name for table in tables for column in table.columns)


def _unknown_keys(config: Config, found: Sequence[FoundPair]) -> Iterator[_Problem]:
    """Yield the keys of which a table lacks a column: there each table needs all of them."""
    for table in (table for pair in found for table in pair.sources):
        key = override_for(config, table.ref.database, table.ref.table).key or ()
        columns = _columns([table])
        missing = [name for name in key if name not in columns]
        if missing:
            matching = [n for n, rule in enumerate(config.overrides) if rule.key is not None and _fits(rule, table)]
            text = f"overrides: the key of {table.ref} names {', '.join(missing)}: no such column"
            yield ("overrides", matching[-1], "key"), text, _hint(list(columns))


def _fits(rule: OverrideRule, table: TableDef) -> bool:
    return rule.table.matches(table.ref.database, table.ref.table)


def _hint(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - _SHOWN} more" if len(columns) > _SHOWN else ""
    return f"There are {', '.join(columns[:_SHOWN])}{more}."


def _refuse_at(config: Config, problems: Iterable[_Problem]) -> None:
    made: list[FileProblem] = []
    try:
        _, document = read_document(config.path, "configuration file", "", variables=False)
    except ConfigError:
        document = None  # it is gone or was changed since it was read
    for steps, text, hint in problems:
        place = None if document is None else document.place(steps)
        made.append(problem_at(config.path, place, text, hint))
    refuse(config.path, made)
