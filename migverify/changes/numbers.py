"""DECIMAL of row images -> text.

Source of the format: MySQL's ``strings/decimal.cc`` (``bin2decimal``). Nine digits take four bytes, a leading or
trailing rest of them fewer; the first bit is the sign, set for positive, and a negative number has all bits turned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from migverify.errors import ChangeError

_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a group of so many digits."""
_GROUP = 9
MOST_DIGITS = 65


def decimal_bytes(precision: int, scale: int) -> int:
    """Return how many bytes a DECIMAL(precision, scale) takes."""
    whole, part = divmod(precision - scale, _GROUP), divmod(scale, _GROUP)
    return whole[0] * 4 + _BYTES[whole[1]] + part[0] * 4 + _BYTES[part[1]]


@lru_cache(maxsize=512)
def decimal_reader(precision: int, scale: int) -> Callable[[bytes], str]:
    """Return what reads a DECIMAL(precision, scale).

    Raises
    ------
    ChangeError
        no server has such a type.
    """
    if not 0 < precision <= MOST_DIGITS or scale > precision:
        raise ChangeError(f"DECIMAL({precision},{scale}) is no type of a server.")
    size = decimal_bytes(precision, scale)
    high, full = 1 << (8 * size - 1), (1 << 8 * size) - 1
    groups = _groups(precision, scale)
    shape = f"%s%d.%0{scale}d" if scale else "%s%d"

    def read(data: bytes) -> str:
        value = int.from_bytes(data, "big")
        if value & high:
            value ^= high
            sign = ""
        else:
            value = (value ^ high) ^ full
            sign = "-"
        whole = part = 0
        for shift, mask, ten, fraction in groups:
            if fraction:
                part = part * ten + ((value >> shift) & mask)
            else:
                whole = whole * ten + ((value >> shift) & mask)
        return shape % ((sign, whole, part) if scale else (sign, whole))

    return read


def _groups(precision: int, scale: int) -> tuple[tuple[int, int, int, bool], ...]:
    """Return (shift, mask, power of ten, whether of the fraction) of each group of digits, highest first."""
    digits = [((precision - scale) % _GROUP, False)] + [(_GROUP, False)] * ((precision - scale) // _GROUP)
    digits += [(_GROUP, True)] * (scale // _GROUP) + [(scale % _GROUP, True)]
    left = 8 * decimal_bytes(precision, scale)
    found = []
    for count, fraction in digits:
        bits = 8 * _BYTES[count]
        if bits:
            left -= bits
            found.append((left, (1 << bits) - 1, 10**count, fraction))
    return tuple(found)
