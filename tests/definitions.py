"""Table definitions for tests, made of short SQL words instead of catalog rows."""

from __future__ import annotations

import re
from typing import Any

from migverify.model import ColumnDef, Flavor, IndexDef, TableDef, TableRef
from migverify.sql.definitions import parse_members

_WIDTHS = {"utf8mb4": 4, "utf8mb3": 3, "gbk": 2}
_TEXT = {"tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1}


def column(name: str, column_type: str = "int", **more: Any) -> ColumnDef:
    """Make a nullable column of a type text, with the figures information_schema has for it."""
    match = re.match(r"(\w+)(?:\((\d+)(?:,\s*(\d+))?\))?", column_type)
    if match is None:
        raise ValueError(column_type)
    kind, first, second = match[1], *(None if part is None else int(part) for part in (match[2], match[3]))
    facts: dict[str, Any] = {"nullable": True, "unsigned": kind not in {"enum", "set"} and "unsigned" in column_type}
    if kind in {"enum", "set"}:
        facts["members"] = parse_members(column_type, Flavor.MYSQL)
        facts["char_length"] = max(map(len, facts["members"]))
    if kind in {"char", "varchar", "enum", "set"} or kind in _TEXT:
        facts |= {"charset": "utf8mb4", "collation": "utf8mb4_bin"}
    if kind in {"char", "varchar", "binary", "varbinary"}:
        facts["char_length"] = first
    if kind in _TEXT:
        facts["char_length"] = facts["octet_length"] = _TEXT[kind]
    if kind in {"decimal", "float", "double", "bit"}:
        facts |= {"precision": first if first is not None else 10, "scale": second or 0}
    if kind in {"datetime", "timestamp", "time"}:
        facts["fsp"] = first or 0
    if "collation" in more and "charset" not in more:
        more["charset"] = str(more["collation"]).partition("_")[0]
    return ColumnDef(**({"name": name, "position": 1, "data_type": kind, "column_type": column_type} | facts | more))


def key(name: str, *columns: str, unique: bool = False, **more: Any) -> IndexDef:
    """Make an index; ``a(10)`` is a prefix of column a, ``(lower(a))`` an expression."""
    names: list[str | None] = []
    prefixes: list[int | None] = []
    expressions: list[str | None] = []
    for text in columns:
        prefix = re.fullmatch(r"(\w+)\((\d+)\)", text)
        names.append(None if text.startswith("(") else prefix[1] if prefix else text)
        prefixes.append(int(prefix[2]) if prefix else None)
        expressions.append(text[1:-1] if text.startswith("(") else None)
    unique = unique or name == "PRIMARY"
    said = tuple(expressions) if any(expressions) else ()
    return IndexDef(name, unique, tuple(names), tuple(prefixes), expressions=said, **more)


def table(*parts: ColumnDef | IndexDef, name: str = "d.t", endpoint: str = "source", **more: Any) -> TableDef:
    """Make a table of columns, numbered in the order given, and keys."""
    database, _, plain = name.partition(".")
    columns = [part for part in parts if isinstance(part, ColumnDef)]
    numbered = tuple(
        ColumnDef(**({slot: getattr(part, slot) for slot in ColumnDef.__slots__} | {"position": number}))
        for number, part in enumerate(columns, 1)
    )
    indexes = tuple(part for part in parts if isinstance(part, IndexDef))
    facts: dict[str, Any] = {"rows": 0, "bytes": 0} | more
    return TableDef(TableRef(endpoint, database, plain), numbered, indexes, **facts)
