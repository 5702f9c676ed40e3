"""Key ranges as SQL, with one rule for every bound: lower exclusive, upper inclusive.

A bound may be a prefix of the range key: ``lower=("7",)`` on (a, b) means ``a > 7``, ``upper=("7",)`` means
``a <= 7``. Composite bounds are expanded to OR of ANDs behind a plain bound of the first column, because neither
server turns ``(a, b) > (x, y)`` into an index range.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from migverify.errors import ReadError
from migverify.model import ColumnDef, KeyRange, KeyText
from migverify.sql.canonical import FAMILIES
from migverify.sql.quoting import quote_bytes, quote_text

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?\Z")
_MOMENT = re.compile(r"-?[0-9][0-9 :.-]*\Z")
_NUMBERS = ("integer", "bit", "year", "decimal")
_MOMENTS = ("date", "datetime", "time")

SORTABLE = frozenset({"integer", "bit", "year", "decimal", "date", "datetime", "time", "binary"})
"""Families whose order is the same on both servers, under every collation."""

SAME_ORDER = frozenset({
    "utf8mb4_bin", "utf8mb3_bin", "utf8_bin", "ascii_bin", "utf8mb4_0900_bin", "utf8mb4_general_ci",
    "utf8mb3_general_ci", "utf8_general_ci", "utf8mb4_unicode_ci", "utf8mb4_0900_ai_ci",
})  # fmt: skip
"""Collations that both servers implement; used for ranges only when both columns have the same one."""


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a key on one side.

    ``name`` is quoted, ``text`` the expression of its canonical text, ``family`` the family of the type table, of
    which a key has one for both sides. ``charset`` and ``collation`` are those of a text column.
    """

    name: str
    text: str
    family: str
    nullable: bool
    charset: str = "utf8mb4"
    collation: str = "utf8mb4_bin"

    @property
    def by_code_point(self) -> bool:
        """Whether characters sort by their number, or by weights that both servers read off it in one way."""
        return self.collation.endswith(("_bin", "_general_ci"))


def sorts_equally(source: ColumnDef, target: ColumnDef) -> bool:
    """Whether ranges of the column select the same values on both sides."""
    families = FAMILIES.get(source.data_type), FAMILIES.get(target.data_type)
    if families == ("text", "text"):
        return _collation(source) == _collation(target) and source.collation in SAME_ORDER
    numeric = {"integer", "decimal", "bit", "year"}
    moments = {"date", "datetime"}
    if (source.data_type == "timestamp") is not (target.data_type == "timestamp"):
        # A moment that no TIMESTAMP holds is a bound that TiDB takes in one way with an index and otherwise without.
        return False
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
    if (plain := plain_literal(column.family, text)) is not None:
        return plain
    if column.family == "binary" and text.startswith("0x"):
        return quote_bytes(bytes.fromhex(text[2:]))
    if column.family not in (*_NUMBERS, *_MOMENTS, "binary"):
        return quote_text(text)
    raise ReadError(f"{text!r} is not a value of key column {column.name} ({column.family})")


def plain_literal(family: str | None, text: str) -> str | None:
    """Return the literal of an exact number or a moment; None for any other family, and for a text that is none."""
    if family in _NUMBERS and _NUMBER.match(text):
        return text
    if family in _MOMENTS and _MOMENT.match(text):
        return f"'{text}'"
    return None


def sure_bound(columns: Sequence[KeyColumn], key: KeyText) -> bool:
    """Whether both servers put the key at the same place among all others of its kind.

    Two things are sorted apart. Where spaces pad, ``a<TAB>`` sorts before ``a`` on MySQL and after it on TiDB; and
    the Unicode collations weigh some characters otherwise (Han, U+2028). As a bound such a text would cut one side in
    another order than the other; as a row it is at worst in different ranges, and is read again by its key.
    """
    return all(_sure(c, part or "") for c, part in zip(columns, key, strict=True))


def _sure(column: KeyColumn, text: str) -> bool:
    if column.family != "text":
        return True
    if column.by_code_point:
        return not any(unicodedata.category(char) == "Cc" for char in text)
    return all(" " <= char <= "~" for char in text)


def sure_condition(columns: Sequence[KeyColumn]) -> str:
    """Return the condition that leaves out most rows whose key is not a ``sure_bound``; empty for no text."""
    return " AND ".join(
        f"{c.name} NOT REGEXP '[[:cntrl:]]'" if c.by_code_point else f"{c.name} NOT REGEXP '[^ -~]'"
        for c in columns if c.family == "text"
    )  # fmt: skip


def compared(column: KeyColumn, text: str) -> str:
    """Return what a literal is compared with: the column, so that an index serves, if its character set can hold it.

    MySQL refuses a statement that compares a column with characters its character set lacks (3854), TiDB one on an
    ASCII column (1267). Such a text is compared by code points, as all text range keys of different character sets are.
    """
    if column.family not in ("text", "label", "labels") or fits_charset(column.charset, text):
        return column.name
    return f"CAST({column.name} AS CHAR CHARACTER SET utf8mb4) COLLATE utf8mb4_bin"


def fits_charset(charset: str, text: str) -> bool:
    """Whether a character set holds all characters of a text; False where it is not known."""
    if charset in ("utf8mb4", "binary") or text.isascii():
        return True
    if charset in ("utf8mb3", "utf8"):
        return all(ord(c) <= 0xFFFF for c in text)
    if charset == "latin1":
        return _is_cp1252(text)
    return False


def _is_cp1252(text: str) -> bool:
    try:
        text.encode("cp1252")
    except UnicodeEncodeError:
        return False
    return True


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
    return [(compared(c, part or ""), literal(c, part or "")) for c, part in zip(columns, bound, strict=False)]


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


def key_predicate(columns: Sequence[KeyColumn], key: KeyText) -> str:
    """Return the condition on one key, NULLs included; under a collation it may fit further rows, never fewer."""
    return " AND ".join(
        f"{column.name} IS NULL" if part is None else f"{matched(column, part)} = {literal(column, part)}"
        for column, part in zip(columns, key, strict=True)
    )


def keys_predicate(columns: Sequence[KeyColumn], keys: Sequence[KeyText]) -> str:
    """Return the condition that selects rows by key; may select more (equal under a collation), never fewer.

    The caller compares the keys of the rows that come back, byte by byte.
    """
    rows: dict[tuple[str, ...], list[list[str]]] = {}
    parts = []
    for key in keys:
        if None in key:
            parts.append(f"({key_predicate(columns, key)})")
            continue
        pairs = [(matched(c, part or ""), literal(c, part or "")) for c, part in zip(columns, key, strict=True)]
        rows.setdefault(tuple(name for name, _ in pairs), []).append([value for _, value in pairs])
    for names, values in rows.items():
        if len(names) == 1:
            parts.append(f"{names[0]} IN ({', '.join(value[0] for value in values)})")
        else:
            listed = ", ".join("(" + ", ".join(value) + ")" for value in values)
            parts.append(f"({', '.join(names)}) IN ({listed})")
    return "(" + " OR ".join(parts) + ")" if parts else "1=0"


def matched(column: KeyColumn, text: str) -> str:
    """Return what a literal of a key is looked up in; may equal texts of other bytes, never miss its own."""
    # A FLOAT equals no literal of its own text; bytes of text are those of its UTF-8 form.
    if column.family in ("float", "binary"):
        return column.text
    return compared(column, text)
