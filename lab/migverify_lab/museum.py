"""The type corpus: every type MySQL and TiDB share, with the values at which software breaks (``data/corpus.yaml``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from migverify.sql.quoting import quote_name

Row = tuple[str, ...]

UTF8 = "DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"


@dataclass(frozen=True, slots=True)
class MuseumTable:
    """One table of the museum.

    ``ddl_source`` and ``ddl_target`` are everything after the table's name in CREATE TABLE. ``columns`` are
    the source's names of the columns that are written (generated ones are not), ``rows`` SQL literals in that
    order. ``key`` names the unique key, empty where there is none. ``target_name`` is set where the target
    spells the table's name otherwise.
    """

    name: str
    ddl_source: str
    ddl_target: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    note: str
    key: tuple[str, ...] = ("id",)
    target_name: str | None = None
    wide: bool = False

    def name_on(self, side: str) -> str:
        """Return the table's name on ``source`` or ``target``."""
        return self.target_name or self.name if side == "target" else self.name

    def create_statement(self, side: str, database: str) -> str:
        """Return CREATE TABLE for ``source`` or ``target``."""
        body = self.ddl_target if side == "target" else self.ddl_source
        return f"CREATE TABLE {quote_name(database)}.{quote_name(self.name_on(side))} {body}"

    def insert_statements(self, side: str, database: str, batch: int = 50) -> list[str]:
        """Return INSERT statements of at most ``batch`` rows each; the same literals on both sides."""
        head = f"INSERT INTO {quote_name(database)}.{quote_name(self.name_on(side))}"
        names = ", ".join(quote_name(name) for name in self.columns)
        tuples = [f"({', '.join(row)})" for row in self.rows]
        return [
            f"{head} ({names}) VALUES {', '.join(tuples[start : start + batch])}"
            for start in range(0, len(tuples), batch)
        ]


@dataclass(frozen=True, slots=True)
class Exhibit:
    """One column: its type, SQL literals, and ``target`` where the target's type is another one."""

    name: str
    type: str
    values: Row
    target: str | None = None


def hall(name: str, note: str, *exhibits: Exhibit, nulls: bool = True, options: str = UTF8) -> MuseumTable:
    """Hang exhibits beside each other: key ``id``, row i shows value i of every column, the last row is NULL.

    A column with fewer values than the longest one starts again from its first value.
    """
    length = max(len(exhibit.values) for exhibit in exhibits)
    rows = [(str(i + 1), *(exhibit.values[i % len(exhibit.values)] for exhibit in exhibits)) for i in range(length)]
    if nulls:
        rows.append((str(length + 1), *("NULL" for _ in exhibits)))
    null = "NULL" if nulls else "NOT NULL"

    def ddl(types: list[str]) -> str:
        columns = [f"{quote_name(e.name)} {kind} {null}" for e, kind in zip(exhibits, types, strict=True)]
        return f"(id BIGINT NOT NULL, {', '.join(columns)}, PRIMARY KEY (id)) {options}"

    return MuseumTable(
        name,
        ddl([exhibit.type for exhibit in exhibits]),
        ddl([exhibit.target or exhibit.type for exhibit in exhibits]),
        ("id", *(exhibit.name for exhibit in exhibits)),
        tuple(rows),
        note,
    )


def alike(name: str, note: str, ddl: str, columns: Row, rows: tuple[Row, ...], key: Row) -> MuseumTable:
    """Make a table with one definition for both sides."""
    return MuseumTable(name, ddl, ddl, columns, rows, note, key)


def _keyed(name: str, note: str, kind: str, values: Row, target: str | None = None) -> MuseumTable:
    rows = tuple((value, str(number)) for number, value in enumerate(values))
    source_ddl, target_ddl = (
        f"(k {spelling} NOT NULL, v INT NOT NULL, PRIMARY KEY (k)) {UTF8}" for spelling in (kind, target or kind)
    )
    return MuseumTable(name, source_ddl, target_ddl, ("k", "v"), rows, note, ("k",))


def _named(name: str, names: Row) -> MuseumTable:
    """Make a table whose own name, and the names of whose columns, must be quoted."""
    columns = ", ".join(f"{quote_name(column)} INT NULL" for column in names)
    width = len(names)
    rows = tuple((str(i), *(str(i * width + c) for c in range(width))) for i in range(1, 4))
    return alike(
        name, "a name that must be quoted", f"(`i``d` INT NOT NULL, {columns}, PRIMARY KEY (`i``d`)) {UTF8}",
        ("i`d", *names), rows, ("i`d",),
    )  # fmt: skip


def _wide_table(width: int = 1000) -> MuseumTable:
    kinds = ("INT", "SMALLINT", "DECIMAL(6,2)", "DATE", "VARCHAR(4) CHARACTER SET ascii", "TINYINT UNSIGNED")
    values = ("-7", "300", "12.50", "'2024-02-29'", "'w,x'", "255")
    names = [f"c{n:04d}" for n in range(1, width)]
    columns = ", ".join(f"{name} {kinds[n % len(kinds)]} NULL" for n, name in enumerate(names))
    full = tuple(values[n % len(values)] for n in range(len(names)))
    rows = (("1", *full), ("2", *("NULL" for _ in names)), ("3", *full))
    ddl = f"(id INT NOT NULL, {columns}, PRIMARY KEY (id)) {UTF8}"
    return MuseumTable("wide", ddl, ddl, ("id", *names), rows, f"{width:,} columns", ("id",), None, wide=True)


def _table(entry: Mapping[str, Any]) -> MuseumTable:
    """Make the table of one entry of ``data/corpus.yaml``."""
    name, note = entry["name"], entry["note"]
    if "columns" in entry:
        return hall(name, note, *(
            Exhibit(column["name"], column["type"], tuple(column["values"]), column.get("target"))
            for column in entry["columns"]
        ))  # fmt: skip
    if "key" in entry:
        return _keyed(name, note, entry["key"], tuple(entry["values"]), entry.get("target"))
    source, target = (ddl.replace("{utf8}", UTF8) for ddl in (entry["source"], entry.get("target", entry["source"])))
    return MuseumTable(
        name, source, target, tuple(entry["written"]), tuple(map(tuple, entry["rows"])), note, tuple(entry["unique"]),
        entry.get("target_name"),
    )  # fmt: skip


_CORPUS: dict[str, Any] = yaml.load(
    (files("migverify_lab") / "data" / "corpus.yaml").read_text(encoding="utf-8"),
    Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # noqa: S506 - both are safe
)
TYPE_HALLS, PAIR_HALLS, KEY_HALLS, SHAPE_HALLS = (
    tuple(_table(entry) for entry in _CORPUS[part]) for part in ("types", "pairs", "keys", "shapes")
)
SHAPE_HALLS += tuple(_named(name, tuple(_CORPUS["names"]["columns"])) for name in _CORPUS["names"]["tables"])

TABLES: tuple[MuseumTable, ...] = (*TYPE_HALLS, *PAIR_HALLS, *KEY_HALLS, *SHAPE_HALLS, _wide_table())
"""Every table; those with ``wide`` are left out unless requested."""
