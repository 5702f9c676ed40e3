"""The type table: how a value of each type becomes one text that both engines spell equally.

Each row of ``TYPE_TABLE`` joins two type families. Its builders give, per side, an expression whose text is the
same bytes on MySQL and TiDB for equal values and different bytes for different values; ``equates`` says which different
spellings count as one value, ``blind_to`` what cannot be seen. A pair of families that is not in the table is not
compared, and the plan says so: there is no "else cast to char".

Text of rows with ``string=False`` never holds a comma, so the row framing (``migverify.sql.checksum``) needs a
length only for strings. Measured on MySQL 9.7 and TiDB 8.5: ``CONCAT(c)`` agrees for every integer, DECIMAL(65,30),
DATE, DATETIME(6), TIMESTAMP(6) under +00:00, TIME(6), YEAR, CHAR, VARCHAR, ENUM, SET, BINARY and BLOB. It differs for
FLOAT and DOUBLE (6 digits; 301 digits of 1e300), for BIT beside text, and for JSON (order of keys).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from migverify.model import ColumnDef, ColumnPair, Lane
from migverify.sql.quoting import MOST_DIGITS, quote_name

FAMILIES: dict[str, str] = {
    "tinyint": "integer", "smallint": "integer", "mediumint": "integer", "int": "integer", "integer": "integer",
    "bigint": "integer", "decimal": "decimal", "numeric": "decimal", "float": "float", "double": "float",
    "real": "float", "date": "date", "datetime": "datetime", "timestamp": "datetime", "time": "time",
    "year": "year", "char": "text", "varchar": "text", "tinytext": "text", "text": "text", "mediumtext": "text",
    "longtext": "text", "binary": "binary", "varbinary": "binary", "tinyblob": "binary", "blob": "binary",
    "mediumblob": "binary", "longblob": "binary", "enum": "label", "set": "labels", "bit": "bit", "json": "json",
}  # fmt: skip
"""information_schema's DATA_TYPE -> family."""

_UTF8 = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
Build = Callable[[str, ColumnDef, ColumnDef], str]
"""(quoted name, this side's column, the other side's) -> expression."""


def _plain(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del this, other
    return name


def _integer(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del other
    # ZEROFILL pads the text of the column, not of a sum.
    return f"({name}+0)" if "zerofill" in this.column_type else name


def _bit(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del this, other
    return f"CAST({name} AS UNSIGNED)"


def _bit_or_integer(name: str, this: ColumnDef, other: ColumnDef) -> str:
    return (_bit if this.data_type == "bit" else _integer)(name, this, other)


def _year(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del this, other
    return f"({name}+0)"


def _decimal(name: str, this: ColumnDef, other: ColumnDef) -> str:
    digits, scale = _digits(this, other)
    if this.data_type in ("decimal", "numeric") and this.scale == scale and "zerofill" not in this.column_type:
        return name
    return f"CAST({name} AS DECIMAL({digits},{scale}))"


def _digits(one: ColumnDef, other: ColumnDef) -> tuple[int, int]:
    """Return the precision and scale that hold every value of both columns."""
    scale = max(one.scale or 0, other.scale or 0)
    return scale + max((c.precision or 20) - (c.scale or 0) for c in (one, other)), scale


def _datetime(name: str, this: ColumnDef, other: ColumnDef) -> str:
    fsp, wanted = this.fsp or 0, max(this.fsp or 0, other.fsp or 0)
    # Text is padded, not cast: CAST of a zero date is NULL on MySQL and a zero date on TiDB.
    tail = " 00:00:00" if this.data_type == "date" and other.data_type != "date" else ""
    if wanted > fsp:
        tail += ("." if fsp == 0 else "") + "0" * (wanted - fsp)
    return f"CONCAT({name},'{tail}')" if tail else name


def _float(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del this, other
    # JSON text of a double is the shortest that reads back exactly, on both; between 1e15 and 1e17 the engines
    # choose different notations, and DECIMAL text agrees. Adding 0e0 turns -0.0, which TiDB cannot store, into 0.0.
    value = f"({name}+0e0)"
    return (f"IF(ABS({name})>=1e15 AND ABS({name})<1e17,CAST(CAST({name} AS DECIMAL(65,30)) AS CHAR),"
            f"CAST(CAST({value} AS JSON) AS CHAR))")  # fmt: skip


def _text(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del other
    # TiDB keeps latin1 as UTF-8 bytes, MySQL as latin1 bytes: converted, both are UTF-8. TiKV knows no CONVERT.
    return name if this.charset in _UTF8 or this.charset is None else f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"


def _contains(longer: Sequence[str], shorter: Sequence[str]) -> bool:
    """Whether ``shorter`` is left of ``longer`` when some members are struck out."""
    rest = iter(longer)
    return all(member in rest for member in shorter)


def _json(name: str, this: ColumnDef, other: ColumnDef) -> str:
    del other
    return f"CAST({name} AS CHAR)" if this.data_type == "json" else _text(name, this, this)


def _float_text(name: str, this: ColumnDef, other: ColumnDef) -> str:
    return _float(name, this, other) if FAMILIES[this.data_type] == "float" else name


@dataclass(frozen=True, slots=True)
class TypeRule:
    """One row of the type table.

    ``string`` says that the text may hold a comma and is framed by its byte length. ``lane`` VALUE says that
    different texts can be one value, which ``migverify.tables.values`` decides by ``compare``.
    """

    name: str
    source: frozenset[str]
    target: frozenset[str]
    build: Build
    string: bool
    lane: Lane
    equates: str
    blind_to: str
    compare: str = "text"


def _rule(
    name: str, source: str, target: str, build: Build, equates: str, blind_to: str = "nothing known",
    *, string: bool = False, compare: str = "text",
) -> TypeRule:  # fmt: skip
    lane = Lane.EXACT if compare == "text" else Lane.VALUE
    families = frozenset(source.split()), frozenset(target.split())
    return TypeRule(name, *families, build, string or lane is Lane.VALUE, lane, equates, blind_to, compare)


TYPE_TABLE: tuple[TypeRule, ...] = (
    _rule("integer", "integer", "integer", _integer,
          "the same number in any width, signed or unsigned; ZEROFILL padding"),
    _rule("bit", "bit", "bit", _bit, "the same number in any width"),
    _rule("bit and integer", "bit integer", "bit integer", _bit_or_integer, "b'101' and 5"),
    _rule("decimal", "decimal", "decimal", _decimal, "the same number in any precision and scale: 1.5 and 1.50"),
    _rule("decimal and integer", "decimal integer", "decimal integer", _decimal, "7 and 7.00"),
    _rule("decimal, wide", "decimal integer", "decimal integer", _plain,
          "the same number where both together need more than 65 digits: DECIMAL(65,0) and DECIMAL(65,30)",
          compare="number"),
    _rule("float", "float", "float", _float, "-0.0 and 0.0; FLOAT and DOUBLE by the exact binary value",
          "the sign of zero (TiDB stores no -0.0)"),
    _rule("float and exact number", "float decimal integer", "float decimal integer", _float_text,
          "numbers of one value: 0.5 and 0.50; with a tolerance, numbers within it", "the sign of zero",
          compare="number"),
    _rule("date", "date", "date", _plain, "nothing but the same date; zero and partial dates are values of their own"),
    _rule("datetime", "date datetime", "date datetime", _datetime,
          "one moment in any fractional precision; DATE and midnight; TIMESTAMP and its UTC DATETIME"),
    _rule("time", "time", "time", _datetime, "one duration in any fractional precision"),
    _rule("year", "year", "year", _year, "nothing but the same year"),
    _rule("year and integer", "year integer", "year integer", _year, "2026 and YEAR 2026"),
    _rule("enum", "label", "label", _text, "the same label at any place of the definition",
          "a label that is the empty text beside the value 0 of a rejected label", string=True),
    _rule("text", "text label", "text label", _text,
          "the same characters in any character set, CHAR or TEXT, ENUM label or text",
          "trailing spaces of CHAR, which no server returns", string=True),
    _rule("set", "labels text", "labels text", _text,
          "the same labels, where both sides define them in one order; SET and its text", string=True),
    _rule("set, redefined", "labels", "labels", _text, "the same set of labels in any order of definition",
          compare="labels"),
    _rule("bytes", "binary text", "binary text", _text,
          "the same bytes in BINARY, VARBINARY or BLOB; UTF-8 text and its bytes", string=True),
    _rule("json", "json text", "json text", _json,
          "objects with keys in any order; numbers of one value (1, 1.0, 1e0); white space",
          "the sign of zero; repeated keys; JSON's own dates, times and binary values are the texts they show",
          compare="json"),
)  # fmt: skip
"""First row that fits wins. Docs and the report's blind spots are generated from it."""


def find_rule(source: ColumnDef, target: ColumnDef) -> TypeRule | None:
    """Return the row that joins the two columns; None when the table knows none."""
    families = FAMILIES.get(source.data_type), FAMILIES.get(target.data_type)
    if families == ("labels", "labels"):
        ours, theirs = source.members, target.members
        one_order = _contains(ours, theirs) or _contains(theirs, ours)
        return rule_named("set" if one_order else "set, redefined")
    found = next((r for r in TYPE_TABLE if families[0] in r.source and families[1] in r.target), None)
    # No server has more than 65 digits: a cast would clamp silently, and clamped values compare equal.
    if found is not None and found.build is _decimal and _digits(source, target)[0] > MOST_DIGITS:
        return rule_named("decimal, wide")
    return found


def rule_named(name: str) -> TypeRule:
    """Return the row of this name; KeyError when there is none."""
    return _BY_NAME[name]


_BY_NAME = {rule.name: rule for rule in TYPE_TABLE}


def pair_column(source: ColumnDef, target: ColumnDef, tolerance: float | None = None) -> ColumnPair | str:
    """Join two columns by the type table.

    Parameters
    ----------
    source, target
        The columns; their names may differ.
    tolerance
        Largest absolute difference at which two numbers count as equal, for FLOAT and DOUBLE; None is exact.

    Returns
    -------
    ColumnPair or str
        The pair with its two expressions, or the reason why no common text exists.
    """
    rule = find_rule(source, target)
    if rule is None:
        return f"no common text for {source.column_type} and {target.column_type}"
    lane, string = rule.lane, rule.string
    if tolerance is not None and "float" in (FAMILIES[source.data_type], FAMILIES[target.data_type]):
        lane, string = Lane.VALUE, True
    return ColumnPair(
        source, target, rule.name, lane, string,
        rule.build(quote_name(source.name), source, target), rule.build(quote_name(target.name), target, source),
        tolerance if lane is Lane.VALUE else None,
    )  # fmt: skip


def is_binary(column: ColumnDef) -> bool:
    """Whether canonical text of this column is shown as hex."""
    return FAMILIES.get(column.data_type) == "binary"
