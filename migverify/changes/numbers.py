"""Numbers of row images -> text.

Source of the format of DECIMAL: MySQL's ``strings/decimal.cc`` (``bin2decimal``). Nine digits take four bytes,
a leading or trailing rest of them fewer; the first bit is the sign, set for positive, and a negative number has all
bits turned.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from migverify.changes.carriers import column_text
from migverify.errors import ChangeError
from migverify.model import Flavor

_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
"""Bytes of a group of so many digits."""
_GROUP = 9
MOST_DIGITS = 65
MOST_JSON_DIGITS = 81
"""A JSON document keeps whole groups of the digits before the point: a DECIMAL(65,6) is one of 63 + 6 digits there."""


def decimal_bytes(precision: int, scale: int) -> int:
    """Return how many bytes a DECIMAL(precision, scale) takes."""
    whole, part = divmod(precision - scale, _GROUP), divmod(scale, _GROUP)
    return whole[0] * 4 + _BYTES[whole[1]] + part[0] * 4 + _BYTES[part[1]]


@lru_cache(maxsize=512)
def decimal_reader(precision: int, scale: int, most: int = MOST_DIGITS) -> Callable[[bytes], str]:
    """Return what reads a DECIMAL(precision, scale)."""
    if not 0 < precision <= most or scale > precision:
        raise ChangeError(f"DECIMAL({precision},{scale}) is no type of a server.")
    size = decimal_bytes(precision, scale)
    high, full = 1 << (8 * size - 1), (1 << 8 * size) - 1
    groups = _groups(precision, scale)
    shape = f"%d.%0{scale}d" if scale else "%d"
    split = _split(groups, bool(scale))
    from_bytes, low = int.from_bytes, full ^ high

    def read(data: bytes) -> str:
        value = from_bytes(data, "big")
        if value & high:
            return shape % split(value ^ high)
        return "-" + shape % split(value ^ low)

    return read


_Groups = tuple[tuple[int, int, int, bool], ...]
_Split = Callable[[int], "int | tuple[int, int]"]


def _split(groups: _Groups, fraction: bool) -> _Split:
    """Return what cuts a number into its digits before and behind the point; usual shapes have a short way."""
    if len(groups) == 1:
        return lambda value: (0, value) if fraction else value
    end, billion = groups[-1][1], 10**_GROUP
    if len(groups) == 2 and fraction and not groups[0][3]:
        first = groups[0][0]
        return lambda value: (value >> first, value & end)
    if len(groups) == 2 and not fraction:
        first = groups[0][0]
        return lambda value: (value >> first) * billion + (value & end)
    if len(groups) == 3 and fraction and not groups[1][3]:
        first, second = groups[0][0], groups[1][0]
        return lambda value: ((value >> first) * billion + (value >> second & 0xFFFFFFFF), value & end)
    return lambda value: _sums(groups, value, fraction)


def _sums(groups: _Groups, value: int, fraction: bool) -> int | tuple[int, int]:
    whole = part = 0
    for shift, mask, ten, behind in groups:
        if behind:
            part = part * ten + ((value >> shift) & mask)
        else:
            whole = whole * ten + ((value >> shift) & mask)
    return (whole, part) if fraction else whole


def _groups(precision: int, scale: int) -> _Groups:
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


_MOST_PLAIN = 1e15
"""From here on MySQL writes whole numbers with an exponent; Python from 1e16 on."""


def double_text(value: float) -> str:
    """Return the text of a DOUBLE: the shortest digits that read back exactly; ``1e15``, ``-0``.

    Of DOUBLE(M,D) SELECT gives D digits behind the point, but no table map holds M
    and D, so the text here is that of a DOUBLE: compare as numbers, never as texts.
    """
    text = repr(value)
    if text[-2:] == ".0":
        if -_MOST_PLAIN < value < _MOST_PLAIN:
            return text[:-2]
    elif "e" not in text and "n" not in text:
        return text
    return column_text.double_text(_finite(value), Flavor.MYSQL)


def float_text(value: float) -> str:
    """Return the text of a FLOAT, whose four bytes were read as this number: six digits.

    Six digits do not tell every FLOAT from the next one. Of FLOAT(M,D) SELECT gives D
    digits behind the point, which may be more or fewer than these; no table map holds M and D. So who compares takes
    the exact value of the other side and writes it with six digits too.
    """
    text = f"{value:.6g}"
    if "e" not in text and "n" not in text:
        return text
    return column_text.float_text(_finite(value), Flavor.MYSQL)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a floating-point number that no server stores")
    return value
