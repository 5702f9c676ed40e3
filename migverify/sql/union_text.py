"""One canonical text for columns of many tables: the type table, applied to a union of shards on two sides.

The type table joins two columns. Here any number of columns of one name (those of the shards of both sides) get one
text: every two of them must have a row in the table, and all texts are made beside one column that is as wide as the
widest of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

from migverify.model import ColumnDef
from migverify.sql.canonical import FAMILIES, find_rule
from migverify.sql.quoting import MOST_DIGITS, quote_bytes, quote_text

_NUMBERS = ("float", "decimal", "integer", "bit", "year")
_WIDEST = {
    "float": "double", "decimal": "decimal", "integer": "bigint", "bit": "bit", "year": "year",
    "datetime": "datetime", "date": "date", "time": "time", "json": "json", "binary": "longblob", "text": "longtext",
    "label": "enum", "labels": "set",
}  # fmt: skip
_STRENGTH = (*_NUMBERS, "datetime", "date", "time", "json", "binary", "text", "labels", "label")
_LONG = frozenset({"text", "binary", "json", "label", "labels"})
TEXT = ColumnDef("", 0, "longtext", "longtext", True, charset="utf8mb4", collation="utf8mb4_bin")
"""The column of a text that SQL made."""


@dataclass(frozen=True, slots=True)
class Unified:
    """What columns of one name have in common.

    ``widest`` holds every value of each of them. ``compare`` is how two texts may be one value (``text``: never; see
    ``migverify.tables.values``), ``string`` whether a text may hold a comma, ``binary`` whether texts are hex.
    """

    widest: ColumnDef
    family: str
    compare: str
    string: bool
    binary: bool


def unify(columns: Sequence[ColumnDef]) -> Unified | str:
    """Find the common form of some columns; at least one.

    Returns
    -------
    Unified or str
        The form, or the reason why no common text exists.
    """
    kinds = list(dict.fromkeys(replace(c, name="", position=0, default=None, extra="", nullable=True) for c in columns))
    for column in kinds:
        if column.data_type not in FAMILIES:
            return f"no text is known for {column.column_type}"
    families = [FAMILIES[c.data_type] for c in kinds]
    family = next(f for f in _STRENGTH if f in families)
    widest = _widest(kinds, family)
    compares, string = set(), False
    for one, other in [*combinations_with_replacement(kinds, 2), *((c, widest) for c in kinds)]:
        rule = find_rule(one, other)
        if rule is None:
            return f"no common text for {one.column_type} and {other.column_type}"
        compares.add(rule.compare)
        string = string or rule.string
    compares.discard("text")
    if len(compares) > 1:
        return f"no one way to compare {', '.join(sorted({c.column_type for c in kinds}))}"
    binary = "binary" in families
    # Hex holds no comma.
    return Unified(widest, family, compares.pop() if compares else "text", string and not binary, binary)


def _widest(kinds: Sequence[ColumnDef], family: str) -> ColumnDef:
    scale = max(c.scale or 0 for c in kinds)
    whole = max((c.precision or 20) - (c.scale or 0) for c in kinds)
    members = tuple(dict.fromkeys(m for c in kinds for m in c.members))
    fsps = [c.fsp for c in kinds if c.fsp is not None]
    data_type = _WIDEST[family]
    return replace(
        kinds[0], data_type=data_type, column_type=data_type, precision=whole + scale if family == "decimal" else None,
        scale=scale if family == "decimal" else None, fsp=max(fsps, default=None), members=members,
        charset="utf8mb4" if family in ("text", "label", "labels") else None, unsigned=False,
    )  # fmt: skip


def text_sql(sql: str, column: ColumnDef, unified: Unified) -> str:
    """Return the expression of the canonical text of ``sql``, a column or expression of the type ``column``.

    The text is UTF-8 (or of a character set that is part of it); binary values are ``0x`` and lower-case hex.
    """
    rule = find_rule(column, unified.widest)
    if rule is None:
        raise ValueError(f"{column.column_type} was not unified")
    text = rule.build(sql, column, unified.widest)
    return f"CONCAT('0x',LOWER(HEX({text})))" if unified.binary else text


def stated_scale_sql(sql: str, column: ColumnDef) -> str:
    """Return a computed value with the scale that its server announced for it.

    TiDB writes a computed DECIMAL with more digits inside of CONCAT than alone: SUM(a)/2 is 0.25000000, and in a CONCAT
    0.250000000. Without a stated scale one value has two texts.
    """
    if FAMILIES.get(column.data_type) != "decimal":
        return sql
    return f"CAST({sql} AS DECIMAL({MOST_DIGITS},{column.scale or 0}))"


def lost_sql(sql: str, column: ColumnDef, text: str, packet: int) -> str:
    """Return the condition that a value's text is lost, because it is longer than ``max_allowed_packet``.

    A server makes NULL of a text that is too long, which would then read as NULL on both sides. Empty for a column
    whose texts are too short for it, or are no function's answer.
    """
    if text == sql or FAMILIES[column.data_type] not in _LONG:
        return ""
    longest = column.octet_length or (1 << 32)
    # Hex doubles, and a character of one byte may become four.
    return f"({sql} IS NOT NULL AND {text} IS NULL)" if 4 * longest + 2 >= packet else ""


def mapped_sql(text: str, values: Sequence[tuple[str, str]]) -> str:
    """Return the expression in which some canonical texts are replaced by others, compared by their bytes."""
    cases = " ".join(
        f"WHEN CAST({text} AS BINARY)={quote_bytes(one.encode())} THEN {quote_text(other)}" for one, other in values
    )
    return f"CASE {cases} ELSE CAST({text} AS CHAR CHARACTER SET utf8mb4) END" if cases else text


def bytes_sql(text: str) -> str:
    """Return the bytes of a text: what is grouped, ordered and compared without a collation."""
    return f"CAST({text} AS BINARY)"
