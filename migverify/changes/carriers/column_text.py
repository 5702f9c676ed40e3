"""Values of carriers to the text that SELECT gives: the session's time zone is UTC, binary is ``0x`` and hex.

Golden values in the tests come from SELECT on MySQL 9.7 and TiDB 8.5. A DOUBLE is the shortest digits that read back
exactly, without exponent from 1e-15 up to below 1e15, on MySQL up to 1e16 where there is a fraction. A FLOAT has 6
digits on MySQL; on TiDB it has the shortest exact ones where it is written without exponent, else 6.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

from migverify.changes.carriers import exact_json
from migverify.changes.carriers.base import UndecodableError
from migverify.config import zones
from migverify.errors import ConfigError
from migverify.model import Flavor
from migverify.sql.definitions import parse_members

INTEGERS = frozenset({"tinyint", "smallint", "mediumint", "int", "integer", "bigint", "bool", "boolean"})
TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
BINARIES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
DECIMALS = frozenset({"decimal", "numeric"})
FLOATS = frozenset({"float", "double", "real"})
VECTORS = frozenset({"vector", "tidbvectorfloat32"})
MICROSECONDS = 1_000_000

_WORDS = re.compile(r"\b(unsigned|zerofill|signed)\b", re.IGNORECASE)
_TYPE = re.compile(r"\s*([A-Za-z]\w*)\s*(?:\(([\d, ]*)\))?\s*\Z")
_INTEGER = re.compile(r"-?0{0,235}[0-9]{1,20}\Z")  # ZEROFILL pads to 255 digits at most
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_DECIMAL = re.compile(r"-?\d+(\.\d+)?\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")
_DATETIME = re.compile(r"(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})(\.\d{1,6})?\Z")
_TIME = re.compile(r"-?\d{2,3}:\d{2}:\d{2}(\.\d{1,6})?\Z")
_MOST_BYTES = 128  # a DECIMAL has 65 digits, in 28 bytes
_MOST_SCALE = 255
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A parsed COLUMN_TYPE: ``decimal(10,2) unsigned`` is base decimal, length 10, scale 2, unsigned.

    For DATETIME, TIMESTAMP and TIME ``length`` counts the fraction's digits; None where the text does not say.
    """

    base: str
    length: int | None = None
    scale: int | None = None
    unsigned: bool = False
    zerofill: bool = False
    labels: tuple[str, ...] = ()


@lru_cache(maxsize=4096)
def parse_type(column_type: str, flavor: Flavor = Flavor.MYSQL) -> ColumnType:
    """Return the parts of a COLUMN_TYPE; raises UndecodableError when it is none.

    >>> parse_type("bigint(20) unsigned")
    ColumnType(base='bigint', length=20, scale=None, unsigned=True, zerofill=False, labels=())
    """
    base = column_type.strip().lower().partition("(")[0].strip()
    if base in ("enum", "set"):
        try:
            return ColumnType(base, labels=() if "(" not in column_type else parse_members(column_type, flavor))
        except ValueError as error:
            raise UndecodableError(str(error)) from error
    words = {word.lower() for word in _WORDS.findall(column_type)}
    match = _TYPE.match(_WORDS.sub("", column_type))
    if match is None:
        raise UndecodableError(f"column type {column_type[:60]!r} is not understood")
    numbers = [int(part) for part in (match[2] or "").split(",") if _NUMBER.match(part.strip())]
    length, scale = (*numbers, None, None)[:2]
    return ColumnType(match[1].lower(), length, scale, bool(words & {"unsigned", "zerofill"}), "zerofill" in words)


def value_text(
    value: str | int | bytes, kind: ColumnType, what: str, flavor: Flavor, zone: tzinfo | None = None
) -> str:
    """Return the text of one value by the type of its column.

    Parameters
    ----------
    value
        Bytes of a binary column; the number of an ENUM, SET or BIT; of all others the number, or the carrier's text.
    what
        The column in messages.
    zone
        Zone of the TIMESTAMP texts; None refuses them.
    """
    if isinstance(value, bytes):
        return hex_text(value, kind)
    spell = _TYPES.get(kind.base)
    if spell is None or (isinstance(value, int) and kind.base not in _NUMBERED):
        raise UndecodableError(f"the type of {what}, {kind.base[:40]!r}, is not known")
    return spell(value, kind, what, flavor, zone)


def integer_text(value: str | int, kind: ColumnType) -> str:
    """Return an integer's text; ZEROFILL pads it as SELECT does."""
    text = str(value)
    if not _INTEGER.match(text):
        raise UndecodableError(f"{text[:40]!r} is no {kind.base}")
    if not kind.zerofill:
        return text
    if kind.length is None:
        raise UndecodableError("the width of a ZEROFILL column is not in the message: state its type")
    return text.zfill(kind.length)


def decimal_text(value: str) -> str:
    """Check a DECIMAL's text and return it."""
    if not _DECIMAL.match(value):
        raise UndecodableError(f"{value[:40]!r} is no decimal number")
    return value


def unscaled_text(raw: bytes, scale: int) -> str:
    """Return the text of a decimal given as big-endian two's complement integer and number of fraction digits."""
    if len(raw) > _MOST_BYTES or abs(scale) > _MOST_SCALE:
        raise UndecodableError(f"a decimal of {len(raw)} bytes with scale {scale}: no server stores it")
    number = int.from_bytes(raw, "big", signed=True)
    digits = str(abs(number)).zfill(scale + 1)
    sign = "-" if number < 0 else ""
    return sign + (f"{digits[:-scale]}.{digits[-scale:]}" if scale > 0 else digits + "0" * -scale)


def double_text(value: float, flavor: Flavor, kind: ColumnType | None = None) -> str:
    """Return a DOUBLE's text: the shortest digits that read back exactly; those of DOUBLE(m,d) are fixed."""
    if kind is not None and kind.scale is not None and math.isfinite(value):
        return f"{value:.{kind.scale}f}"
    return _digits_text(repr(value), value, flavor)


def float_text(value: float, flavor: Flavor, kind: ColumnType | None = None) -> str:
    """Return a FLOAT's text: 6 significant digits; on TiDB, where no exponent is written, the shortest exact ones."""
    if kind is not None and kind.scale is not None:
        return double_text(value, flavor, kind)
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", value))
    except OverflowError as error:
        raise UndecodableError(f"{value!r} is no FLOAT") from error
    if flavor is Flavor.TIDB and 1e-15 <= abs(single) < 1e15:
        for digits in range(5, 9):
            text = f"{single:.{digits}e}"
            if struct.unpack("<f", struct.pack("<f", float(text)))[0] == single:
                return _digits_text(text, single, flavor)
    return _digits_text(f"{single:.5e}", single, flavor)


def _digits_text(written: str, value: float, flavor: Flavor) -> str:
    """Write decimal digits, with an exponent from 1e15 on and below 1e-15; MySQL writes none where a fraction is."""
    if not math.isfinite(value):
        raise UndecodableError(f"{value!r} is no number a server stores")
    mantissa, _, exponent = written.lstrip("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = int(exponent or 0) + len(whole) - (len(whole + fraction) - len(digits))
    digits = digits.rstrip("0")
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if not digits:
        return sign + "0"
    large = point > 15 and (flavor is Flavor.TIDB or len(digits) <= point)
    if large or point < -14:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    whole, fraction = digits[:point].ljust(point, "0"), digits[point:]
    return f"{sign}{whole}.{fraction}" if fraction else sign + whole


def number_of(written: str, what: str) -> float:
    """Return the DOUBLE that a decimal text denotes."""
    try:
        return float(written)
    except ValueError as error:
        raise UndecodableError(f"{what} is no number") from error


def hex_text(raw: bytes, kind: ColumnType | None = None) -> str:
    """Return ``0x`` and lower-case hex. BINARY(n) is filled up with zero bytes, as every server returns it."""
    if kind is not None and kind.base == "binary" and kind.length is not None:
        raw = raw.ljust(kind.length, b"\0")
    return "0x" + raw.hex()


def bit_text(value: int, kind: ColumnType, what: str) -> str:
    """Return a BIT(n) as ``CAST(b AS UNSIGNED)`` gives it; the width must be known, so that it can be seen to fit."""
    if kind.length is None:
        raise UndecodableError(f"the width of {what} (BIT) is not in the message: state the column's type")
    if not 0 <= value < 1 << kind.length:
        raise UndecodableError(f"{what} does not fit BIT({kind.length})")
    return str(value)


def enum_text(index: int, kind: ColumnType, what: str) -> str:
    """Return the label of an ENUM's index; 0 is the empty text of a rejected label."""
    if index == 0:
        return ""
    if not kind.labels:
        raise UndecodableError(f"the labels of {what} (ENUM) are not in the message: state the column's type")
    if not 0 < index <= len(kind.labels):
        raise UndecodableError(f"{what} has no label {index}")
    return kind.labels[index - 1]


def set_text(mask: int, kind: ColumnType, what: str) -> str:
    """Return the labels of a SET's bits in the order of its definition."""
    if mask == 0:
        return ""
    if not kind.labels:
        raise UndecodableError(f"the labels of {what} (SET) are not in the message: state the column's type")
    if not 0 <= mask < 1 << len(kind.labels):
        raise UndecodableError(f"{what} has bits without a label")
    return ",".join(label for place, label in enumerate(kind.labels) if mask >> place & 1)


def year_text(value: str | int) -> str:
    """Return a YEAR as four digits."""
    text = str(value)
    if not text.isdigit() or len(text) > 4:
        raise UndecodableError(f"{text[:40]!r} is no YEAR")
    return text.zfill(4)


def check_temporal(value: str, kind: ColumnType) -> str:
    """Check that the text is a DATE, DATETIME or TIME as SELECT prints it, and return it."""
    pattern = {"date": _DATE, "time": _TIME}.get(kind.base, _DATETIME)
    if not pattern.match(value):
        raise UndecodableError(f"{value[:40]!r} is no {kind.base.upper()}")
    return value


def days_text(days: int) -> str:
    """Return the DATE of a number of days after 1970-01-01."""
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError) as error:
        raise UndecodableError(f"{days} days after 1970-01-01 is no date") from error


def datetime_text(microseconds: int, digits: int) -> str:
    """Return the DATETIME of microseconds after 1970-01-01 00:00:00, with ``digits`` fraction digits."""
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError as error:
        raise UndecodableError(f"{microseconds} microseconds after 1970-01-01 is no moment") from error
    return f"{moment:%H:%M:%S}".join((f"{moment.date().isoformat()} ", fraction_text(moment.microsecond, digits)))


def time_text(microseconds: int, digits: int) -> str:
    """Return the TIME of a number of microseconds, which may be negative."""
    seconds, fraction = divmod(abs(microseconds), MICROSECONDS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    sign = "-" if microseconds < 0 else ""
    return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction_text(fraction, digits)}"


def fraction_text(microsecond: int, digits: int) -> str:
    """Return ``.`` and the fraction, nothing for 0 digits; digits that do not fit are never cut off."""
    written = f"{microsecond:06d}"
    if written[digits:].strip("0"):
        raise UndecodableError(f"a fraction of {microsecond} microseconds does not fit {digits} digits")
    return f".{written[:digits]}" if digits else ""


def fraction_of(text: str) -> int:
    """Return the microseconds of up to nine fraction digits; digits below a microsecond must be zero."""
    padded = text.ljust(9, "0")
    if not padded.isdigit() or len(padded) > 9 or padded[6:] != "000":
        raise UndecodableError(f"{text[:20]!r} is no fraction of whole microseconds")
    return int(padded[:6])


def json_text(written: str, flavor: Flavor) -> str:
    """Return JSON in MySQL's spelling, a space after each comma and colon; TiCDC sends TiDB's own text, kept as it is.

    The servers escape different characters (TiDB U+2028, as Go does), so one's text is not the other's.
    """
    value = exact_json.load(written)
    return written if flavor is Flavor.TIDB else exact_json.spell(value, _json_number)


def _json_number(written: str) -> str:
    """Java writes a double as ``1.0E20``, MySQL as ``1e20``; with neither fraction nor exponent as ``100.0``."""
    if "e" not in written.lower():
        return written
    text = double_text(number_of(written, "a number"), Flavor.MYSQL)
    return text if "." in text or "e" in text else f"{text}.0"


@lru_cache(maxsize=64)
def find_zone(name: str) -> tzinfo:
    """Return a time zone: ``UTC``, ``+09:00`` or a name like ``Asia/Tokyo``; raises ConfigError for anything else."""
    try:
        return zones.find_zone(name)
    except ValueError as error:
        raise ConfigError(str(error), hint=zones.ZONE_HINT) from error


def utc_text(local: str, zone: tzinfo | None, what: str) -> str:
    """Return a TIMESTAMP's text under UTC, from its text in the carrier's time zone."""
    if zone is None:
        raise UndecodableError(f"{what} is a TIMESTAMP: state the time zone of the changefeed")
    match = _DATETIME.match(local)
    if match is None:
        raise UndecodableError(f"{local[:40]!r} is no TIMESTAMP")
    if local.startswith("0000-00-00"):
        return local  # the zero value has no time zone
    try:
        wall = datetime.fromisoformat(match[1]).replace(tzinfo=zone)
    except ValueError as error:
        raise UndecodableError(f"{local[:40]!r} is no TIMESTAMP") from error
    if wall.utcoffset() != wall.replace(fold=1).utcoffset():
        raise UndecodableError(f"{what} is {local} in a zone that changes its clocks in that hour: two moments fit")
    return f"{wall.astimezone(UTC):%Y-%m-%d %H:%M:%S}{match[2] or ''}"


def _labels(value: str | int, kind: ColumnType, what: str, *_: object) -> str:
    if isinstance(value, str):
        return value
    return (enum_text if kind.base == "enum" else set_text)(value, kind, what)


_BIT = ColumnType("bit")
_NUMBERED = INTEGERS | {"year", "enum", "set", "bit"}
_TYPES: dict[str, Callable[..., str]] = {
    **dict.fromkeys(INTEGERS, lambda value, kind, *_: integer_text(value, kind)),
    **dict.fromkeys(TEXTS | VECTORS, lambda value, *_: value),
    **dict.fromkeys(DECIMALS, lambda value, *_: decimal_text(value)),
    **dict.fromkeys(("date", "datetime", "time"), lambda value, kind, *_: check_temporal(value, kind)),
    **dict.fromkeys(("enum", "set"), _labels),
    "float": lambda value, kind, what, flavor, _: float_text(number_of(value, what), flavor, kind),
    **dict.fromkeys(
        ("double", "real"), lambda value, kind, what, flavor, _: double_text(number_of(value, what), flavor, kind)
    ),
    "year": lambda value, *_: year_text(value),
    "bit": lambda value, kind, what, *_: bit_text(int(integer_text(value, _BIT)), kind, what),
    "timestamp": lambda value, _kind, what, _flavor, zone: utc_text(value, zone, what),
    "json": lambda value, _kind, _what, flavor, _zone: json_text(value, flavor),
}
"""Data type -> how a value of it becomes text. A carrier has a table of its encodings that leads to such values."""
