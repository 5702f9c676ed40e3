"""What a fault does to one value: pure functions of value, column and random numbers.

Each returns the new value, or None where this value cannot carry the fault; ``Lost`` means NULL as the new
value. A mutation never returns the value it was given.
"""

from __future__ import annotations

import json
import math
import random
import re
import struct
from datetime import datetime, timedelta
from decimal import Context, Decimal
from typing import Final

from migverify_lab.columns import INT_BITS, ColumnFacts, Family, Value


class Lost:
    """NULL as a new value, apart from None, which means that nothing can be done."""


class Expression(str):
    """A new value that the server computes: SQL over the column."""

    __slots__ = ()


LOST: Final = Lost()

Mutated = Value | Lost | Expression

NUMBERS = frozenset({Family.INT, Family.DECIMAL, Family.FLOAT, Family.DOUBLE})
_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?')
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_ ]*")
EXACT_IN_DOUBLE: Final = 2**53
_EXACT = Context(prec=70)  # DECIMAL has 65 digits, the default context 28


def int_range(column: ColumnFacts) -> tuple[int, int]:
    """Return the least and the greatest value of an integer column."""
    bits = INT_BITS[column.data_type]
    return (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


# --- any type -------------------------------------------------------------------------------------------------


def value_changed(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """Another value of the same type, close by."""
    if isinstance(value, int) and column.family is Family.INT:
        low, high = int_range(column)
        near = [value + step for step in (1, -1) if low <= value + step <= high]
        return rng.choice(near)
    if isinstance(value, Decimal):
        return decimal_scale(value, column, rng)
    if isinstance(value, float):
        return value + 1.0 if value + 1.0 != value else -value
    if isinstance(value, int):
        return bit_flip(value, column, rng) if column.family is Family.BIT else year_off(value, column, rng)
    if isinstance(value, bytes):
        return blob_byte(value, column, rng)
    if isinstance(value, str):
        return _text_changed(value, column, rng)
    return None


def _text_changed(value: str, column: ColumnFacts, rng: random.Random) -> Mutated:
    if column.family is Family.ENUM:
        return enum_label(value, column, rng)
    if column.family is Family.SET:
        return set_member(value, column, rng)
    if column.family is Family.JSON:
        return Expression(f"JSON_ARRAY({column.quoted}, 'changed')")
    if column.family is Family.STRING:
        if not value:
            return "x" if column.length >= 1 else None
        at = rng.randrange(len(value))
        return value[:at] + ("x" if value[at] != "x" else "y") + value[at + 1 :]
    moment = _instant(value)
    if moment is not None and moment.year < 9999 and column.family is not Family.TIME:
        return _instant_text(moment + timedelta(days=1), column)
    return time_negative(value, column, rng) if column.family is Family.TIME else None


# --- NULL and its neighbors -----------------------------------------------------------------------------------


def null_for_zero(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """0 becomes NULL."""
    return LOST if column.nullable and isinstance(value, int | float | Decimal) and value == 0 else None


def zero_for_null(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """NULL becomes 0."""
    if value is not None:
        return None
    if column.family is Family.DECIMAL:
        return Decimal(0)
    return 0 if column.family is Family.INT else 0.0


def empty_for_null(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """NULL becomes the empty string."""
    if value is not None:
        return None
    return column.stored(b"" if column.family is Family.BYTES else "")


def null_for_empty(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """The empty string becomes NULL."""
    return LOST if column.nullable and isinstance(value, str | bytes) and not value else None


# --- numbers --------------------------------------------------------------------------------------------------


def sign_flip(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """A number changes its sign."""
    if not isinstance(value, int | float | Decimal) or value == 0 or column.unsigned:
        return None
    if isinstance(value, int):
        low, high = int_range(column)
        return -value if low <= -value <= high else None
    # Unary minus would round a Decimal to the context's 28 digits.
    return value.copy_negate() if isinstance(value, Decimal) else -value


def unsigned_wrap(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """An unsigned integer above the signed maximum is cut down to it."""
    if not column.unsigned or not isinstance(value, int):
        return None
    most = 2 ** (INT_BITS[column.data_type] - 1) - 1
    return most if value > most else None


def decimal_scale(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """The last digit after the point is one more or one less."""
    if not isinstance(value, Decimal):
        return None
    step = Decimal(1).scaleb(-column.scale)
    most = Decimal((0, (9,) * column.precision, -column.scale))
    least = Decimal(0) if column.unsigned else most.copy_negate()
    near = [new for new in (_EXACT.add(value, step), _EXACT.subtract(value, step)) if least <= new <= most]
    return rng.choice(near) if near else None


def float_ulp(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """The next number the type can hold, up or down."""
    if not isinstance(value, float) or value == 0 or not math.isfinite(value):
        return None
    toward = rng.choice((math.inf, -math.inf))
    new = _next_single(value, toward) if column.family is Family.FLOAT else math.nextafter(value, toward)
    # Zero is left out: TiDB has no -0.0, and a subnormal may be read as zero by either engine.
    return new if math.isfinite(new) and new not in {0.0, value} else None


def _next_single(value: float, toward: float) -> float:
    """Return the neighbor of a single-precision number; its bit pattern is counted like an integer."""
    (bits,) = struct.unpack(">i", struct.pack(">f", value))
    away_from_zero = (toward > 0) == (value > 0)
    (new,) = struct.unpack(">f", struct.pack(">i", bits + (1 if away_from_zero else -1)))
    return float(new)


def double_tiny(value: Value, _: ColumnFacts, __: random.Random) -> Mutated:
    """A double changes by one part in 10^9."""
    if not isinstance(value, float) or not math.isfinite(value):
        return None
    new = value + abs(value) * 1e-9
    return new if math.isfinite(new) and new != value else None


# --- text -----------------------------------------------------------------------------------------------------


def truncation(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """A string loses its end."""
    if not isinstance(value, str) or len(value) < 2:
        return None
    new = column.stored(value[: rng.randrange(1, len(value))])
    return new if new != value else None


def case_flipped(value: Value, _: ColumnFacts, rng: random.Random) -> Mutated:
    """One ASCII letter changes its case."""
    if not isinstance(value, str):
        return None
    letters = [at for at, letter in enumerate(value) if letter.isascii() and letter.isalpha()]
    if not letters:
        return None
    at = rng.choice(letters)
    return value[:at] + value[at].swapcase() + value[at + 1 :]


def trailing_space(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """A space is added at the end; CHAR cannot hold one."""
    if not isinstance(value, str) or column.data_type == "char" or len(value) >= column.length:
        return None
    return value + " "


def latin1_mangled(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """UTF-8 bytes were read as latin1: ``é`` becomes ``Ã©``."""
    if not isinstance(value, str) or value.isascii():
        return None
    # MySQL's latin1 is Windows-1252; the five bytes that has no character for stay control characters.
    new = "".join(
        bytes([byte]).decode("cp1252") if byte not in {0x81, 0x8D, 0x8F, 0x90, 0x9D} else chr(byte)
        for byte in value.encode()
    )
    return new if len(new) <= column.length else None


def emoji_lost(value: Value, _: ColumnFacts, __: random.Random) -> Mutated:
    """Characters beyond the basic plane become question marks, as in utf8mb3."""
    if not isinstance(value, str) or all(ord(letter) <= 0xFFFF for letter in value):
        return None
    return "".join("?" if ord(letter) > 0xFFFF else letter for letter in value)


def enum_label(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """Another label of the ENUM."""
    others = [member for member in column.members if member != value]
    return rng.choice(others) if isinstance(value, str) and others else None


def set_member(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """One member of the SET is added or taken away."""
    if not isinstance(value, str) or not column.members:
        return None
    held = set(value.split(",")) if value else set()
    held ^= {rng.choice(column.members)}
    return ",".join(member for member in column.members if member in held)


# --- bytes and bits -------------------------------------------------------------------------------------------


def blob_byte(value: Value, _: ColumnFacts, rng: random.Random) -> Mutated:
    """One byte changes."""
    if not isinstance(value, bytes) or not value:
        return None
    at = rng.randrange(len(value))
    return value[:at] + bytes([value[at] ^ rng.randrange(1, 256)]) + value[at + 1 :]


def blob_truncated_nul(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """A binary string ends at its first NUL, as in C."""
    if not isinstance(value, bytes) or b"\0" not in value:
        return None
    new = column.stored(value[: value.index(b"\0")])
    return new if new != value else None


def bit_flip(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """One bit of a BIT column changes."""
    return value ^ (1 << rng.randrange(column.length)) if isinstance(value, int) and column.length else None


# --- dates and times ------------------------------------------------------------------------------------------


def _instant(value: Value) -> datetime | None:
    """Read a date or datetime; None for zero and partial dates and anything else."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def _instant_text(moment: datetime, column: ColumnFacts) -> str:
    if column.family is Family.DATE:
        return moment.date().isoformat()
    text = moment.isoformat(sep=" ", timespec="microseconds")
    return text[: 20 + column.fsp] if column.fsp else text[:19]


def shift_hour(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """An instant moves by one hour, as with a wrong time zone."""
    moment = _instant(value)
    if moment is None or moment > datetime(9999, 12, 31, 22):
        return None
    return _instant_text(moment + timedelta(hours=1), column)


def date_zero(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """A date becomes the zero date."""
    if not isinstance(value, str):
        return None
    zero = "0000-00-00" + ("" if column.family is Family.DATE else " 00:00:00")
    zero += "." + "0" * column.fsp if column.fsp else ""
    return zero if value != zero else None


def microseconds_lost(value: Value, column: ColumnFacts, _: random.Random) -> Mutated:
    """The fraction of a second becomes zero."""
    if not isinstance(value, str) or not column.fsp:
        return None
    whole, _point, fraction = value.partition(".")
    new = f"{whole}.{'0' * column.fsp}"
    # A negative time below one second would become -00:00:00, which is stored without its sign.
    return None if not fraction.strip("0") or re.fullmatch(r"-0+:00:00", whole) else new


def time_negative(value: Value, _: ColumnFacts, __: random.Random) -> Mutated:
    """A TIME changes its sign."""
    if not isinstance(value, str) or not value.strip("-0:."):
        return None
    return value.removeprefix("-") if value.startswith("-") else f"-{value}"


def year_off(value: Value, _: ColumnFacts, rng: random.Random) -> Mutated:
    """A YEAR is one more or one less; year 0 is the zero year and becomes 2000."""
    if not isinstance(value, int):
        return None
    if value == 0:
        return 2000
    return rng.choice([year for year in (value - 1, value + 1) if 1901 <= year <= 2155])


# --- JSON -----------------------------------------------------------------------------------------------------


def json_int_off_by_one(value: Value, _: ColumnFacts, rng: random.Random) -> Mutated:
    """An integer beyond 2^53 inside a JSON document changes by one, which no double can tell."""
    if not isinstance(value, str):
        return None
    places = [match for match in _JSON_TOKEN.finditer(value) if _is_big(match[0])]
    if not places:
        return None
    place = rng.choice(places)
    old = int(place[0])
    near = [new for new in (old + 1, old - 1) if -(2**63) <= new < 2**64 and abs(new) > EXACT_IN_DOUBLE]
    # Preferred: a neighbor that is the same number once both are doubles.
    hidden = [new for new in near if float(new) == float(old)]
    return value[: place.start()] + str(rng.choice(hidden or near)) + value[place.end() :]


def _is_big(token: str) -> bool:
    return re.fullmatch(r"-?\d+", token) is not None and abs(int(token)) > EXACT_IN_DOUBLE


def json_key_lost(value: Value, column: ColumnFacts, rng: random.Random) -> Mutated:
    """A JSON object loses one of its keys."""
    if not isinstance(value, str) or not value.startswith("{"):
        return None
    keys = sorted(key for key in json.loads(value) if _PLAIN_KEY.fullmatch(key))
    return Expression(f"JSON_REMOVE({column.quoted}, '$.\"{rng.choice(keys)}\"')") if keys else None
