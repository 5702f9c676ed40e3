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

ReadBytes = Callable[[bytes], str]


def fraction_bytes(digits: int) -> int:
    """Return how many bytes a fraction takes."""
    return (digits + 1) // 2


def _fraction(digits: int) -> tuple[str, int]:
    """Return the format of a stored fraction, and by what it is divided: an odd number of digits has a zero more."""
    return (f".%0{digits}d" if digits else ""), 10 if digits % 2 else 1


def _day_text(bits: int) -> str:
    months = bits >> 5
    return f"{months // 13:04d}-{months % 13:02d}-{bits & 31:02d}"


def datetime2_reader(digits: int) -> ReadBytes:
    """Return what reads DATETIME(digits): 5 bytes and the fraction."""
    bits = 8 * fraction_bytes(digits)
    mask, (form, divisor) = (1 << bits) - 1, _fraction(digits)
    shape = "%s %02d:%02d:%02d" + form
    days: dict[int, str] = {}

    def read(data: bytes) -> str:
        whole = int.from_bytes(data, "big")
        value = whole >> bits
        ymd = (value >> 17) & 0x3FFFFF
        day = days.get(ymd)
        if day is None:
            if len(days) > MOST_DATES:
                days.clear()
            day = days[ymd] = _day_text(ymd)
        if not digits:
            return shape % (day, (value >> 12) & 31, (value >> 6) & 63, value & 63)
        return shape % (day, (value >> 12) & 31, (value >> 6) & 63, value & 63, (whole & mask) // divisor)

    return read


def timestamp2_reader(digits: int) -> ReadBytes:
    """Return what reads TIMESTAMP(digits): 4 bytes and the fraction; 0 is the zero moment, not 1970."""
    bits = 8 * fraction_bytes(digits)
    mask, (form, divisor) = (1 << bits) - 1, _fraction(digits)
    shape = "%s %02d:%02d:%02d" + form
    days: dict[int, str] = {}

    def read(data: bytes) -> str:
        whole = int.from_bytes(data, "big")
        seconds, part = whole >> bits, (whole & mask) // divisor
        number, rest = divmod(seconds, _DAY)
        day = days.get(number)
        if day is None:
            if len(days) > MOST_DATES:
                days.clear()
            day = days[number] = (date(1970, 1, 1) + timedelta(days=number)).isoformat()
        if not whole:
            day = "0000-00-00"
        hours, rest = divmod(rest, 3600)
        values = (day, hours, rest // 60, rest % 60)
        return shape % ((*values, part) if digits else values)

    return read


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
    value = int.from_bytes(data, "little")
    return f"{value >> 9:04d}-{(value >> 5) & 15:02d}-{value & 31:02d}"


def year_text(value: int) -> str:
    """Return a YEAR: years since 1900, 0 for 0000."""
    return str(1900 + value) if value else "0000"


def old_datetime_text(value: int) -> str:
    """Return a DATETIME of servers before 5.6.4: the digits YYYYMMDDhhmmss as a number."""
    day, time = divmod(value, 1_000_000)
    return (
        f"{day // 10000:04d}-{day // 100 % 100:02d}-{day % 100:02d} "
        f"{time // 10000:02d}:{time // 100 % 100:02d}:{time % 100:02d}"
    )


def old_time_text(data: bytes) -> str:
    """Return a TIME of servers before 5.6.4: the digits hhmmss as a signed number of 3 bytes."""
    value = int.from_bytes(data, "little", signed=True)
    size = abs(value)
    return f"{'-' if value < 0 else ''}{size // 10000:02d}:{size // 100 % 100:02d}:{size % 100:02d}"


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
