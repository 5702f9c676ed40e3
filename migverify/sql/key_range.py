"""Key ranges as SQL, with one rule for every bound: lower exclusive, upper inclusive.

A bound may be a prefix of the range key: ``lower=("7",)`` on (a, b) means ``a > 7``, ``upper=("7",)`` means
``a <= 7``. Composite bounds are expanded to OR of ANDs behind a plain bound of the first column, because neither
server turns ``(a, b) > (x, y)`` into an index range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from migverify.errors import ReadError
from migverify.model import ColumnDef, KeyRange, KeyText
from migverify.sql.canonical import FAMILIES
from migverify.sql.quoting import quote_bytes, quote_text

_NUMBER = re.compile(r"-?\d+(\.\d+)?\Z")
_MOMENT = re.compile(r"-?[0-9][0-9 :.-]*\Z")

SORTABLE = frozenset({"integer", "bit", "year", "decimal", "date", "datetime", "time", "binary"})
"""Families whose order is the same on both servers, whatever the collation."""

SAME_ORDER = frozenset({
    "utf8mb4_bin", "utf8mb3_bin", "utf8_bin", "ascii_bin", "utf8mb4_0900_bin", "utf8mb4_general_ci",
    "utf8mb3_general_ci", "utf8_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci",
})  # fmt: skip
"""Collations that both servers implement; used for ranges only when both columns have the same one."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a key on one side.

    ``name`` is quoted, ``text`` the expression of its canonical text, ``family`` the family of the type table.
    """

    name: str
    text: str
    family: str
    nullable: bool


def sorts_alike(source: ColumnDef, target: ColumnDef) -> bool:
    """Whether ranges of the column select the same values on both sides."""
    families = FAMILIES.get(source.data_type), FAMILIES.get(target.data_type)
    if families == ("text", "text"):
        return _collation(source) == _collation(target) and source.collation in SAME_ORDER
    numeric = {"integer", "decimal", "bit", "year"}
    moments = {"date", "datetime"}
    return families[0] in SORTABLE and (
        families[0] == families[1] or set(families) <= numeric or set(families) <= moments
    )


def _collation(column: ColumnDef) -> str:
    # The three-byte charset was renamed; its code-point order is that of utf8mb4_bin.
    name = column.collation or ""
    binary = {"utf8_bin", "utf8mb3_bin", "ascii_bin"}
    return "utf8mb4_bin" if name in binary else name.replace("utf8mb3_", "utf8_")


def literal(column: KeyColumn, text: str) -> str:
    """Return the SQL literal of one key value.

    Raises
    ------
    ReadError
        the text is not what the column's family can hold; nothing unchecked gets into a statement.
    """
    if column.family in ("integer", "bit", "year", "decimal"):
        if _NUMBER.match(text):
            return text
    elif column.family in ("date", "datetime", "time"):
        if _MOMENT.match(text):
            return f"'{text}'"
    elif column.family == "binary":
        if text.startswith("0x"):
            return quote_bytes(bytes.fromhex(text[2:]))
    else:
        return quote_text(text)
    raise ReadError(f"{text!r} is not a value of key column {column.name} ({column.family})")


def predicate(columns: Sequence[KeyColumn], key_range: KeyRange) -> str:
    """Return the condition that selects the range; ``1=1`` for the whole table.

    Rows in which a range-key column is NULL are in no range but the NULL range.
    """
    nullable = [c.name for c in columns if c.nullable]
    if key_range.nulls:
        return "(" + " OR ".join(f"{name} IS NULL" for name in nullable) + ")" if nullable else "1=0"
    parts = [f"{name} IS NOT NULL" for name in nullable]
    if key_range.lower is not None:
        parts.append(_beyond(columns, key_range.lower))
    if key_range.upper is not None:
        parts.append(_up_to(columns, key_range.upper))
    return " AND ".join(parts) or "1=1"


def _values(columns: Sequence[KeyColumn], bound: KeyText) -> list[tuple[str, str]]:
    if not bound or len(bound) > len(columns) or any(part is None for part in bound):
        raise ReadError(f"bound {bound!r} does not fit the range key {', '.join(c.name for c in columns)}")
    return [(c.name, literal(c, part or "")) for c, part in zip(columns, bound, strict=False)]


def _beyond(columns: Sequence[KeyColumn], bound: KeyText) -> str:
    values = _values(columns, bound)
    if len(values) == 1:
        return f"{values[0][0]} > {values[0][1]}"
    return f"{values[0][0]} >= {values[0][1]} AND ({_steps(values, '>', '')})"


def _up_to(columns: Sequence[KeyColumn], bound: KeyText) -> str:
    values = _values(columns, bound)
    if len(values) == 1:
        return f"{values[0][0]} <= {values[0][1]}"
    return f"{values[0][0]} <= {values[0][1]} AND ({_steps(values, '<', '=')})"


def _steps(values: list[tuple[str, str]], sign: str, last: str) -> str:
    steps = []
    for place, (name, value) in enumerate(values):
        equal = [f"{n} = {v}" for n, v in values[:place]]
        end = last if place == len(values) - 1 else ""
        steps.append("(" + " AND ".join([*equal, f"{name} {sign}{end} {value}"]) + ")")
    return " OR ".join(steps)


def keys_predicate(columns: Sequence[KeyColumn], keys: Sequence[KeyText]) -> str:
    """Return the condition that selects rows by key; may select more (equal under a collation), never fewer.

    The caller compares the keys of the rows that come back, byte by byte.
    """
    left = [c.text if c.family == "float" else c.name for c in columns]
    exact = [k for k in keys if None not in k]
    rows = [[literal(c, part or "") for c, part in zip(columns, key, strict=True)] for key in exact]
    parts = []
    if rows and len(columns) == 1:
        parts.append(f"{left[0]} IN ({', '.join(row[0] for row in rows)})")
    elif rows:
        listed = ", ".join("(" + ", ".join(row) + ")" for row in rows)
        parts.append(f"({', '.join(left)}) IN ({listed})")
    for key in (k for k in keys if None in k):
        each = [f"{name} IS NULL" if part is None else f"{name} = {literal(c, part)}"
                for c, name, part in zip(columns, left, key, strict=True)]  # fmt: skip
        parts.append("(" + " AND ".join(each) + ")")
    return "(" + " OR ".join(parts) + ")" if parts else "1=0"
