"""Reads the cases of ``cases.yaml``: plain SQL for both sides, and what differs after it ran.

Sessions that load a case need ``sql_mode = ''``, ``time_zone = '+00:00'`` and utf8mb4: zero dates and instants go in as
they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from bench.faults.judge import Expected, TableDifference

FILE = Path(__file__).with_name("cases.yaml")
EQUAL = "equal"
"""The fault of a case in which nothing differs."""

BATCH = 100


@dataclass(frozen=True)
class Table:
    """One table on both sides.

    ``source`` and ``target`` are all that follows the name in CREATE TABLE. ``rows`` are SQL literals for ``columns``,
    joined by commas; ``target_rows`` is given where the target spells the same values in another way. ``key`` is
    empty in a table without a unique key. Generated columns are not in ``columns``.
    """

    name: str
    note: str
    source: str
    target: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    target_rows: tuple[str, ...]

    def statements(self, side: str) -> Iterator[str]:
        """Yield the statements that make and fill the table on ``source`` or ``target``."""
        body, rows = (self.source, self.rows) if side == "source" else (self.target, self.target_rows)
        name = quote(self.name)
        yield f"CREATE TABLE {name} {body}"
        columns = ", ".join(quote(column) for column in self.columns)
        for start in range(0, len(rows), BATCH):
            yield f"INSERT INTO {name} ({columns}) VALUES ({'), ('.join(rows[start : start + BATCH])})"


@dataclass(frozen=True)
class Case:
    """One pair of databases. ``changes`` run on the target after both sides were filled; they are the fault."""

    name: str
    fault: str
    what: str
    tables: tuple[Table, ...]
    changes: tuple[str, ...]
    differs: Mapping[str, TableDifference]

    @property
    def expected(self) -> Expected:
        """What the judge compares reports with."""
        return Expected(frozenset(table.name for table in self.tables), self.differs)

    def statements(self, side: str) -> Iterator[str]:
        """Yield every statement of one side, in order."""
        for table in self.tables:
            yield from table.statements(side)
        if side == "target":
            yield from self.changes


@dataclass(frozen=True)
class CaseFile:
    """The cases of one file, in its order."""

    document: Mapping[str, Any]

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table by its name."""
        return {name: _table(name, entry) for name, entry in self.document["tables"].items()}

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """Every case; raises ValueError when two have one name."""
        cases = tuple(_case(entry, self.tables) for entry in self.document["cases"])
        if len({case.name for case in cases}) < len(cases):
            raise ValueError("two cases have one name")
        return cases

    def choose(self, names: Sequence[str]) -> tuple[Case, ...]:
        """Return the cases whose name or fault is given; all when none is given. Raises ValueError for others."""
        unknown = set(names) - {word for case in self.cases for word in (case.name, case.fault)}
        if unknown:
            raise ValueError(f"no case or fault is called {', '.join(sorted(unknown))}")
        return tuple(case for case in self.cases if not names or case.name in names or case.fault in names)


def load_cases(path: Path = FILE) -> CaseFile:
    """Read a file of cases."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return CaseFile(yaml.load(path.read_text(encoding="utf-8"), Loader=loader))  # noqa: S506 - both are safe


def _table(name: str, entry: Mapping[str, Any]) -> Table:
    rows = tuple(entry["rows"])
    return Table(
        name, entry["note"], entry["source"], entry.get("target", entry["source"]), tuple(entry["key"]),
        tuple(entry["columns"]), rows, tuple(entry.get("target_rows", rows)),
    )  # fmt: skip


def _case(entry: Mapping[str, Any], tables: Mapping[str, Table]) -> Case:
    differs = {
        name: TableDifference(
            facts["rows"], frozenset(tuple(key) for key in facts["keys"]) if "keys" in facts else None
        )
        for name, facts in entry.get("differs", {}).items()
    }
    return Case(
        entry["name"], entry["fault"], entry["what"], tuple(tables[name] for name in entry["tables"]),
        tuple(entry.get("changes", ())), differs,
    )  # fmt: skip


def quote(name: str) -> str:
    """Return an identifier in backticks."""
    return "`" + name.replace("`", "``") + "`"
