"""Dates and times of row images -> the text that SELECT gives with session time zone +00:00.

Source of the formats: MySQL's ``mysys/my_time.cc`` (``my_datetime_packed_from_binary`` and its like). DATETIME2 is a
40-bit number - sign, year * 13 + month (17 bits), day (5), hour (5), minute (6), second (6) - big-endian, and a
fraction of (digits + 1) // 2 bytes; TIME2 is one signed number of 24 bits and its fraction, so that a negative one
counts down through the fraction; TIMESTAMP2 is seconds since 1970 and a fraction. Zero and partial dates keep their
zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta

MOST_DATES = 20_000
"""Dates whose text is remembered; the table begins anew when it is full."""
_DAY = 86_400
_MICRO = 24
"""Bits below the seconds of a packed 64-bit moment."""
_MINUTES = tuple(f" {n >> 6:02d}:{n & 63:02d}:" for n in range(32 << 6))
"""Hour << 6 | minute -> text, as DATETIME packs them."""
_MINUTES_OF_DAY = tuple(f" {n // 60:02d}:{n % 60:02d}:" for n in range(_DAY // 60))
_SECONDS = tuple(f"{n:02d}" for n in range(64))

ReadBytes = Callable[[bytes], str]
ReadNumber = Callable[[int], str]


class _Remembered(dict[int, str]):
    """Number -> text; made at the first use, bounded."""

    def __init__(self, make: Callable[[int], str]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> str:
        if len(self) >= MOST_DATES:
            self.clear()
        text = self[key] = self._make(key)
        return text


def fraction_bytes(digits: int) -> int:
    """Return how many bytes a fraction takes."""
    return (digits + 1) // 2


def _fraction(digits: int) -> tuple[str, int]:
    """Return the format of a stored fraction, and by what it is divided: an odd number of digits has a zero more."""
    return (f".%0{digits}d" if digits else ""), 10 if digits % 2 else 1


def _day_text(bits: int) -> str:
    months = bits >> 5
    return f"{months // 13:04d}-{months % 13:02d}-{bits & 31:02d}"


_DATETIME_DAYS = _Remembered(lambda bits: _day_text(bits & 0x3FFFFF))
_TIMESTAMP_DAYS = _Remembered(lambda number: (date(1970, 1, 1) + timedelta(days=number)).isoformat())
_DATES = _Remembered(lambda value: f"{value >> 9:04d}-{(value >> 5) & 15:02d}-{value & 31:02d}")


def datetime2_reader(digits: int) -> ReadNumber:
    """Return what reads DATETIME(digits): a big-endian number of 5 bytes and the fraction."""
    bits = 8 * fraction_bytes(digits)
    mask, (form, divisor) = (1 << bits) - 1, _fraction(digits)
    days, minutes, seconds = _DATETIME_DAYS, _MINUTES, _SECONDS
    day_bits, minute_bits = bits + 17, bits + 6

    def whole(value: int) -> str:
        return days[value >> 17] + minutes[value >> 6 & 2047] + seconds[value & 63]

    def with_fraction(value: int) -> str:
        text = days[value >> day_bits] + minutes[value >> minute_bits & 2047] + seconds[value >> bits & 63]
        return text + form % ((value & mask) // divisor)

    return with_fraction if digits else whole


def timestamp2_reader(digits: int) -> ReadNumber:
    """Return what reads TIMESTAMP(digits): a big-endian number of 4 bytes of seconds, and the fraction.

    0 is the zero moment, not 1970.
    """
    bits = 8 * fraction_bytes(digits)
    mask, (form, divisor) = (1 << bits) - 1, _fraction(digits)
    days, minutes, seconds = _TIMESTAMP_DAYS, _MINUTES_OF_DAY, _SECONDS
    zero = "0000-00-00 00:00:00" + (form % 0 if digits else "")

    def whole(value: int) -> str:
        if not value:
            return zero
        rest = value % _DAY
        return days[value // _DAY] + minutes[rest // 60] + seconds[rest % 60]

    def with_fraction(value: int) -> str:
        if not value:
            return zero
        second = value >> bits
        rest = second % _DAY
        text = days[second // _DAY] + minutes[rest // 60] + seconds[rest % 60]
        return text + form % ((value & mask) // divisor)

    return with_fraction if digits else whole


def time2_reader(digits: int) -> ReadBytes:
    """Return what reads TIME(digits): 3 bytes and the fraction, one number with its zero in the middle."""
    bits = 8 * fraction_bytes(digits)
    mask, (form, divisor) = (1 << bits) - 1, _fraction(digits)
    shape = "%s%02d:%02d:%02d" + form
    zero = 0x800000 << bits

    def read(data: bytes) -> str:
        signed = int.from_bytes(data, "big") - zero
        whole = abs(signed)
        value = whole >> bits
        values = ("-" if signed < 0 else "", (value >> 12) & 0x3FF, (value >> 6) & 63, value & 63)
        return shape % ((*values, (whole & mask) // divisor) if digits else values)

    return read


def date_text(data: bytes) -> str:
    """Return a DATE: 3 bytes little-endian, year << 9 | month << 5 | day."""
    return _DATES[data[0] | data[1] << 8 | data[2] << 16]


def year_text(value: int) -> str:
    """Return a YEAR: years since 1900, 0 for 0000."""
    return str(1900 + value) if value else "0000"


def packed_datetime(value: int) -> str:
    """Return a moment packed into 64 bits, as JSON holds it; always six digits of fraction."""
    whole = value >> _MICRO
    return (
        f"{_day_text((whole >> 17) & 0x3FFFFF)} {(whole >> 12) & 31:02d}:{(whole >> 6) & 63:02d}:{whole & 63:02d}"
        f".{value & 0xFFFFFF:06d}"
    )


def packed_date(value: int) -> str:
    """Return the date of a packed moment."""
    return _day_text((value >> (_MICRO + 17)) & 0x3FFFFF)


def packed_time(value: int) -> str:
    """Return a time packed into 64 bits, as JSON holds it; negative below zero."""
    size = abs(value)
    whole = size >> _MICRO
    sign = "-" if value < 0 else ""
    clock = f"{(whole >> 12) & 0x3FF:02d}:{(whole >> 6) & 63:02d}:{whole & 63:02d}"
    return f"{sign}{clock}.{size & 0xFFFFFF:06d}"
