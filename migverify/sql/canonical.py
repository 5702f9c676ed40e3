"""The type table: how a value of each type becomes one text that both engines spell alike.

Each row of ``TYPE_TABLE`` joins two type families. Its builders give, per side, an expression whose text is the
same bytes on MySQL and TiDB for equal values and unlike bytes for unlike values; ``equates`` says which unlike
spellings count as one value, ``blind_to`` what cannot be seen. A pair of families that is not in the table is not
compared, and the plan says so: there is no "else cast to char".

Text of rows with ``string=False`` never holds a comma, so the row framing (``migverify.sql.checksum``) needs a
length only for strings. Measured on MySQL 9.7 and TiDB 8.5: ``CONCAT(c)`` agrees for every integer, DECIMAL(65,30),
DATE, DATETIME(6), TIMESTAMP(6) under +00:00, TIME(6), YEAR, CHAR, VARCHAR, ENUM, SET, BINARY and BLOB. It differs for
FLOAT and DOUBLE (6 digits; 301 digits of 1e300), for BIT beside text, and for JSON (order of keys).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from migverify.model import ColumnDef, ColumnPair, Lane, Side
from migverify.sql.quoting import quote_name

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
Build = Callable[[str, ColumnDef, ColumnDef], str | None]
"""(quoted name, this side's column, the other side's) -> expression, or None where no common text exists."""


def _plain(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del this, other
    return name


def _integer(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del other
    # ZEROFILL pads the text of the column, not of a sum.
    return f"({name}+0)" if "zerofill" in this.column_type else name


def _bit(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del this, other
    return f"CAST({name} AS UNSIGNED)"


def _year(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del this, other
    return f"({name}+0)"


def _decimal(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    scale = max(this.scale or 0, other.scale or 0)
    if this.data_type in ("decimal", "numeric") and this.scale == scale and "zerofill" not in this.column_type:
        return name
    whole = max((c.precision or 20) - (c.scale or 0) for c in (this, other))
    # A wider cast would clamp silently, and clamped values compare equal.
    return f"CAST({name} AS DECIMAL({min(whole + scale, 65)},{scale}))" if whole + scale <= 65 else None


def _datetime(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    fsp, wanted = this.fsp or 0, max(this.fsp or 0, other.fsp or 0)
    # Text is padded, not cast: CAST of a zero date is NULL on MySQL and a zero date on TiDB.
    tail = " 00:00:00" if this.data_type == "date" and other.data_type != "date" else ""
    if wanted > fsp:
        tail += ("." if fsp == 0 else "") + "0" * (wanted - fsp)
    return f"CONCAT({name},'{tail}')" if tail else name


def _float(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del this, other
    # JSON text of a double is the shortest that reads back exactly, on both; between 1e15 and 1e17 the engines
    # choose unlike notations, and DECIMAL text agrees. Adding 0e0 turns -0.0, which TiDB cannot store, into 0.0.
    value = f"({name}+0e0)"
    return (f"IF(ABS({name})>=1e15 AND ABS({name})<1e17,CAST(CAST({name} AS DECIMAL(65,30)) AS CHAR),"
            f"CAST(CAST({value} AS JSON) AS CHAR))")  # fmt: skip


def _text(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del other
    # TiDB keeps latin1 as UTF-8 bytes, MySQL as latin1 bytes: converted, both are UTF-8.
    return name if this.charset in _UTF8 or this.charset is None else f"CONVERT({name} USING utf8mb4)"


def _labels(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    if this.data_type == other.data_type == "set" and this.members != other.members:
        if set(this.members) != set(other.members):
            return None
        return f"CAST({name} AS CHAR)"
    return _text(name, this, other)


def _json(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    del other
    return f"CAST({name} AS CHAR)" if this.data_type == "json" else _text(name, this, this)


def _float_text(name: str, this: ColumnDef, other: ColumnDef) -> str | None:
    return _float(name, this, other) if FAMILIES[this.data_type] == "float" else name


@dataclass(frozen=True, slots=True)
class TypeRule:
    """One row of the type table.

    ``string`` says that the text may hold a comma and is framed by its byte length. ``lane`` VALUE says that
    unlike texts can be one value, which ``migverify.tables.values`` decides.
    """

    name: str
    source: frozenset[str]
    target: frozenset[str]
    build: Build
    string: bool
    lane: Lane
    equates: str
    blind_to: str


def _rule(
    name: str, source: str, target: str, build: Build, equates: str, blind_to: str = "nothing known",
    *, string: bool = False, lane: Lane = Lane.EXACT,
) -> TypeRule:  # fmt: skip
    return TypeRule(name, frozenset(source.split()), frozenset(target.split()), build, string, lane, equates, blind_to)


TYPE_TABLE: tuple[TypeRule, ...] = (
    _rule("integer", "integer", "integer", _integer, "the same number in any width, signed or unsigned; ZEROFILL padding"),
    _rule("bit", "bit", "bit", _bit, "the same number in any width"),
    _rule("bit and integer", "bit integer", "bit integer", lambda n, t, o: (_bit if t.data_type == "bit" else _integer)(n, t, o),
          "b'101' and 5"),
    _rule("decimal", "decimal", "decimal", _decimal, "the same number in any precision and scale: 1.5 and 1.50"),
    _rule("decimal and integer", "decimal integer", "decimal integer", _decimal, "7 and 7.00"),
    _rule("float", "float", "float", _float, "-0.0 and 0.0; FLOAT and DOUBLE by the exact binary value",
          "the sign of zero (TiDB stores no -0.0)"),
    _rule("float and exact number", "float decimal integer", "float decimal integer", _float_text,
          "numbers of one value: 0.5 and 0.50; with a tolerance, numbers within it", "the sign of zero",
          string=True, lane=Lane.VALUE),
    _rule("date", "date", "date", _plain, "nothing but the same date; zero and partial dates are values of their own"),
    _rule("datetime", "date datetime", "date datetime", _datetime,
          "one moment in any fractional precision; DATE and midnight; TIMESTAMP and its UTC DATETIME"),
    _rule("time", "time", "time", _datetime, "one duration in any fractional precision"),
    _rule("year", "year", "year", _year, "nothing but the same year"),
    _rule("year and integer", "year integer", "year integer", _year, "2026 and YEAR 2026"),
    _rule("text", "text label", "text label", _text, "the same characters in any character set, CHAR or TEXT, ENUM label or text",
          "trailing spaces of CHAR, which no server returns", string=True),
    _rule("set", "labels text", "labels text", _labels, "the same labels in one order of definition", string=True),
    _rule("set, redefined", "labels", "labels", _labels, "the same set of labels in any order of definition",
          string=True, lane=Lane.VALUE),
    _rule("bytes", "binary text", "binary text", _text, "the same bytes in BINARY, VARBINARY or BLOB; UTF-8 text and its bytes",
          string=True),
    _rule("json", "json text", "json text", _json,
          "objects with keys in any order; numbers of one value (1, 1.0, 1e0); white space", "the sign of zero; repeated keys",
          string=True, lane=Lane.VALUE),
)  # fmt: skip
"""First row that fits wins. Docs and the report's blind spots are generated from it."""


def find_rule(source: ColumnDef, target: ColumnDef) -> TypeRule | None:
    """Return the row that joins the two columns; None when the table knows none."""
    families = FAMILIES.get(source.data_type), FAMILIES.get(target.data_type)
    if None in families:
        return None
    if families == ("labels", "labels"):
        wanted = "set" if source.members == target.members else "set, redefined"
        return next(r for r in TYPE_TABLE if r.name == wanted)
    return next((r for r in TYPE_TABLE if families[0] in r.source and families[1] in r.target), None)


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
    sql = {}
    for side, this, other in ((Side.SOURCE, source, target), (Side.TARGET, target, source)):
        text = rule.build(quote_name(this.name), this, other)
        if text is None:
            return f"{source.column_type} and {target.column_type} have no common exact text"
        sql[side] = text
    lane, string = rule.lane, rule.string
    if tolerance is not None and "float" in (FAMILIES[source.data_type], FAMILIES[target.data_type]):
        lane, string = Lane.VALUE, True
    return ColumnPair(source, target, rule.name, lane, string, sql[Side.SOURCE], sql[Side.TARGET],
                      tolerance if lane is Lane.VALUE else None)  # fmt: skip


def is_binary(column: ColumnDef) -> bool:
    """Whether canonical text of this column is shown as hex."""
    return FAMILIES.get(column.data_type) == "binary"
