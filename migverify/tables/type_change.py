"""What happens to the values of a source column in the type, character set and collation of the target column.

The knowledge is in tables: ranges of numbers, sizes of text, what each character set can hold, and what the move from
one type family to another does. Whether two types can be compared at all is decided by ``migverify.sql.canonical``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from migverify.model import ColumnDef, SchemaClass
from migverify.sql.canonical import FAMILIES, pair_column
from migverify.sql.spelling import INTEGER_BYTES, normal_type

_BREAKS, _LOSES, _COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC


Judged = Iterator[tuple[SchemaClass, str]]

TEXT_BYTES = {
    "tinytext": 2**8 - 1, "text": 2**16 - 1, "mediumtext": 2**24 - 1, "longtext": 2**32 - 1,
    "tinyblob": 2**8 - 1, "blob": 2**16 - 1, "mediumblob": 2**24 - 1, "longblob": 2**32 - 1,
}  # fmt: skip
"""Type limited in bytes -> limit."""

CHARSET_BYTES = {
    "ascii": 1, "latin1": 1, "latin2": 1, "latin5": 1, "latin7": 1, "binary": 1, "cp1250": 1, "cp1251": 1,
    "cp1256": 1, "cp1257": 1, "cp850": 1, "cp852": 1, "cp866": 1, "greek": 1, "hebrew": 1, "koi8r": 1, "koi8u": 1,
    "gbk": 2, "big5": 2, "sjis": 2, "cp932": 2, "euckr": 2, "gb2312": 2, "ucs2": 2, "ujis": 3, "eucjpms": 3,
    "utf8mb3": 3, "utf8": 3, "utf8mb4": 4, "gb18030": 4, "utf16": 4, "utf16le": 4, "utf32": 4,
}  # fmt: skip
"""Character set -> bytes of its longest character."""

BEYOND_BMP = frozenset({"utf8mb4", "gb18030", "utf16", "utf16le", "utf32"})
"""Character sets with characters (emoji, rare ideographs) that utf8mb3 cannot hold."""

MOVES: dict[tuple[str, str], tuple[SchemaClass, str]] = {
    ("char", "varchar"): (_COSMETIC, "VARCHAR keeps trailing spaces, CHAR never returned any"),
    ("varchar", "char"): (_LOSES, "CHAR drops trailing spaces"),
    ("binary", "varbinary"): (_COSMETIC, "VARBINARY does not pad"),
    ("varbinary", "binary"): (_LOSES, "BINARY pads values with zero bytes"),
    ("timestamp", "datetime"): (_LOSES, "DATETIME is a wall clock: it depends on the time zone it was copied in"),
    ("datetime", "timestamp"): (_LOSES, "TIMESTAMP ends in 2038 and depends on the time zone it was copied in"),
    ("date", "datetime"): (_COSMETIC, "every date becomes its midnight"),
    ("date", "timestamp"): (_LOSES, "TIMESTAMP ends in 2038 and depends on the time zone it was copied in"),
    ("datetime", "date"): (_LOSES, "the time of day is dropped"),
    ("timestamp", "date"): (_LOSES, "the time of day is dropped"),
    ("float", "double"): (_COSMETIC, "every FLOAT is a DOUBLE, though printed with more digits"),
    ("double", "float"): (_LOSES, "FLOAT keeps about 7 digits of 15"),
}  # fmt: skip
"""(source type, target type) -> what the move does, where the types are more than wide and narrow."""

FAMILY_MOVES: dict[tuple[str, str], tuple[SchemaClass, str]] = {
    ("label", "text"): (_COSMETIC, "any text is accepted, not only the labels; sorting is by text, not by number"),
    ("labels", "text"): (_COSMETIC, "any text is accepted, not only sets of labels"),
    ("text", "label"): (_LOSES, "only the labels are accepted"),
    ("text", "labels"): (_LOSES, "only sets of labels are accepted"),
    ("json", "text"): (_COSMETIC, "text is not checked to be JSON"),
    ("text", "json"): (_LOSES, "white space, key order and repeated keys are not kept, and text must be valid JSON"),
    ("text", "binary"): (_LOSES, "bytes have no character set, and all different bytes are different values"),
    ("binary", "text"): (_LOSES, "bytes that are no text in the target's character set are refused"),
    ("label", "binary"): (_LOSES, "bytes have no labels and no character set"),
    ("binary", "label"): (_LOSES, "only the labels are accepted"),
    ("integer", "float"): (_LOSES, "a binary fraction keeps about 7 (FLOAT) or 15 (DOUBLE) digits"),
    ("decimal", "float"): (_LOSES, "a binary fraction keeps about 7 (FLOAT) or 15 (DOUBLE) digits"),
    ("float", "integer"): (_LOSES, "fractions and large exponents are cut"),
    ("float", "decimal"): (_LOSES, "large and small exponents are cut"),
}  # fmt: skip
"""(source family, target family) -> what the move does."""


def type_change(source: ColumnDef, target: ColumnDef) -> Judged:
    """Yield what differs between the types of two columns; nothing for equal types in any spelling."""
    joined = pair_column(source, target)
    if isinstance(joined, str):
        yield _BREAKS, f"the column is not compared: {joined}"
    if normal_type(source) == normal_type(target):
        return
    families = FAMILIES.get(source.data_type), FAMILIES.get(target.data_type)
    move = MOVES.get((source.data_type, target.data_type))
    if move is None and families[0] != families[1]:
        move = FAMILY_MOVES.get((str(families[0]), str(families[1])))
    rules = (_narrower_number, _narrower_fraction, _narrower_float, _narrower_text)
    narrower = next((reason for rule in rules if (reason := rule(source, target))), "")
    if narrower:
        yield _LOSES, f"the target is narrower: {narrower}"
    elif move is not None:
        yield move
    elif None in families or (families[0] != families[1] and _numbers(source) is None):
        yield _LOSES, "the types have no order of width that is known here"
    else:
        yield _COSMETIC, "the target holds every value of the source"


def _numbers(column: ColumnDef) -> tuple[Fraction, Fraction, int] | None:
    """Return lowest value, highest value and scale of an exact number type."""
    kind = column.data_type
    if kind in INTEGER_BYTES:
        bits = 8 * INTEGER_BYTES[kind]
        low, high = (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return Fraction(low), Fraction(high), 0
    if kind == "bit":
        return Fraction(0), Fraction(2 ** (column.precision or 1) - 1), 0
    if kind == "year":
        return Fraction(0), Fraction(2155), 0
    if kind in {"decimal", "numeric"}:
        scale = column.scale or 0
        high_decimal = Fraction(10 ** (column.precision or 10) - 1, 10**scale)
        return Fraction(0) if column.unsigned else -high_decimal, high_decimal, scale
    return None


def _narrower_number(source: ColumnDef, target: ColumnDef) -> str:
    ours, theirs = _numbers(source), _numbers(target)
    if ours is None or theirs is None:
        return ""
    if ours[2] > theirs[2]:
        return f"{ours[2]} decimal places are rounded to {theirs[2]}"
    # A whole part of the same digits fits: 99.99 in DECIMAL(4,2) needs no more than 99.999 in DECIMAL(5,3).
    if int(ours[1]) > int(theirs[1]):
        return f"values above {int(theirs[1])} do not fit"
    if int(ours[0]) < int(theirs[0]):
        return f"values below {int(theirs[0])} do not fit"
    return "values below 0 do not fit" if ours[0] < 0 <= theirs[0] else ""


def _narrower_fraction(source: ColumnDef, target: ColumnDef) -> str:
    timed = {"datetime", "timestamp", "time"}
    if source.data_type in timed and target.data_type in timed and (source.fsp or 0) > (target.fsp or 0):
        return f"{source.fsp} digits of a second are rounded to {target.fsp or 0}"
    return ""


def _narrower_float(source: ColumnDef, target: ColumnDef) -> str:
    if FAMILIES.get(source.data_type) != "float" or FAMILIES.get(target.data_type) != "float":
        return ""
    if target.unsigned and not source.unsigned:
        return "values below 0 do not fit"
    declared = "(" in target.column_type
    if declared and ("(" not in source.column_type or _whole_and_scale(source) > _whole_and_scale(target)):
        return f"values are rounded to {target.column_type}"
    if declared and (source.scale or 0) > (target.scale or 0):
        return f"values are rounded to {target.column_type}"
    return ""


def _whole_and_scale(column: ColumnDef) -> int:
    return (column.precision or 0) - (column.scale or 0)


def _narrower_text(source: ColumnDef, target: ColumnDef) -> str:
    sized = {"text", "binary", "label", "labels"}
    ours, theirs = FAMILIES.get(source.data_type), FAMILIES.get(target.data_type)
    if ours not in sized or theirs not in sized or theirs in {"label", "labels"}:
        return ""
    if target.data_type in TEXT_BYTES:
        limit, needed = TEXT_BYTES[target.data_type], _longest_bytes(source, target)
        return f"values above {limit} bytes do not fit" if needed > limit else ""
    room = target.char_length or 0
    needed = _longest_bytes(source, target) if theirs == "binary" else _longest(source)
    unit = "bytes" if theirs == "binary" else "characters"
    return f"values above {room} {unit} do not fit" if needed > room else ""


def _longest(column: ColumnDef) -> int:
    """Most characters a value can have (bytes for binary types)."""
    if column.data_type == "enum":
        return max(map(len, column.members), default=0)
    if column.data_type == "set":
        return sum(map(len, column.members)) + max(0, len(column.members) - 1)
    return TEXT_BYTES.get(column.data_type, column.char_length or 0)


def _longest_bytes(source: ColumnDef, target: ColumnDef) -> int:
    """Most bytes a value of the source can have in the character set of the target."""
    ours = _charset(source.charset or "binary")
    theirs = _charset(target.charset or "binary")
    if source.data_type in TEXT_BYTES:
        # Text limited in bytes: no growth inside Unicode's UTF-8 forms, up to three bytes for one of another set.
        grows = ours not in {"ascii", "binary", "utf8mb3", "utf8mb4"} and theirs in {"utf8mb3", "utf8mb4", "gb18030"}
        return _longest(source) * (3 if grows else 1)
    if "binary" in (ours, theirs):
        return _longest(source) * CHARSET_BYTES.get(ours, 4)
    return _longest(source) * CHARSET_BYTES.get("ascii" if ours == "ascii" else theirs, 4)


def _charset(name: str) -> str:
    return "utf8mb3" if name == "utf8" else name


def holds_charset(source: str, target: str) -> bool:
    """Whether every character of one character set exists in the other."""
    source, target = _charset(source), _charset(target)
    if source in (target, "ascii"):
        return target != "ucs2" or source != "binary"
    if target in BEYOND_BMP:
        return source != "binary"
    return target in {"utf8mb3", "ucs2"} and source not in BEYOND_BMP and source != "binary"


def charset_change(source: ColumnDef, target: ColumnDef) -> Judged:
    """Yield what differs between the character sets of two columns; nothing where one has none."""
    ours, theirs = source.charset, target.charset
    if not ours or not theirs or _charset(ours) == _charset(theirs):
        return
    if holds_charset(ours, theirs):
        yield _COSMETIC, "the target's character set holds every character of the source's"
    else:
        yield _LOSES, "characters that the target's character set lacks are lost or refused"


# --- collations ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equality:
    """What a collation takes as equal: letters of different case, of different accent, texts but for trailing spaces.

    ``weights`` names the table of weights: two collations that agree on the rest still differ on single
    characters when their tables differ (``ß``, supplementary characters, ligatures).
    """

    case: bool
    accent: bool
    pad: bool
    weights: str


_TRAITS = (
    ("case", "letters of different case"), ("accent", "letters of different accent"),
    ("pad", "texts that differ in trailing spaces"),
)  # fmt: skip


def equality(collation: str) -> Equality:
    """Read what a collation takes as equal from its name, by the naming rule of MySQL, MariaDB and TiDB.

    A name of one language (``latin1_swedish_ci``, ``utf8mb4_de_pb_0900_ai_ci``) is a weight table of its own.
    """
    name = re.sub(r"^(utf8mb4|utf8mb3|utf8)_", "", collation.lower())
    words = name.split("_")
    if name == "binary":
        return Equality(case=False, accent=False, pad=False, weights="bytes")
    if words[-1] == "bin":
        return Equality(case=False, accent=False, pad="0900" not in words and "nopad" not in words, weights="bytes")
    case = words[-1] == "ci"
    # Without ai or as in the name, accents go the way of case; the general and Unicode families are such.
    accent = "ai" in words or (case and "as" not in words)
    pad = "0900" not in words and "nopad" not in words and not name.startswith("gb18030_chinese")
    weights = "_".join(word for word in words if word not in {"ci", "cs", "ai", "as", "ks", "nopad"})
    return Equality(case, accent, pad, weights)


def collation_change(source: str, target: str) -> tuple[str, bool]:
    """Say how the target's collation differs from the source's.

    Returns
    -------
    message, behaves_otherwise
        The message says what the target takes as equal that the source does not (looser) and the other way
        round (stricter). ``behaves_otherwise`` is False where the two differ in nothing but their names or in
        the weights of single characters.
    """
    ours, theirs = equality(source), equality(target)
    differing = [(words, getattr(theirs, trait)) for trait, words in _TRAITS
                 if getattr(ours, trait) != getattr(theirs, trait)]  # fmt: skip
    looser = " and ".join(words for words, equates in differing if equates)
    stricter = " and ".join(words for words, equates in differing if not equates)
    parts = [f"the target is looser: it takes {looser} as equal"] if looser else []
    parts += [f"the target is stricter: it tells {stricter} apart"] if stricter else []
    if parts:
        return "; ".join(parts), True
    if ours.weights != theirs.weights:
        return "single characters sort otherwise or are equal to others", False
    return "both take the same texts as equal", False
