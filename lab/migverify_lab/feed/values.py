"""Values that both formats write alike: digits of floating point numbers, numbers of labels."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from decimal import Decimal

from migverify.errors import LabError


def single(text: str) -> float:
    """Return the shortest decimal that denotes the FLOAT of a text."""
    value = struct.unpack("<f", struct.pack("<f", float(text)))[0]
    for digits in range(1, 9):
        short = float(f"{value:.{digits - 1}e}")
        if abs(short) <= _LARGEST and struct.unpack("<f", struct.pack("<f", short))[0] == value:
            return short
    return float(f"{value:.8e}")


_LARGEST = 3.4028235677973366e38
"""Above, a number is no FLOAT any more."""


def single_digits(text: str) -> str:
    """Return a FLOAT's digits without exponent, the fewest that read back exactly."""
    return f"{Decimal(repr(single(text))):f}"


def double_digits(text: str) -> str:
    """Return a DOUBLE's digits without exponent, the fewest that read back exactly."""
    return f"{Decimal(repr(float(text))):f}"


def label_number(members: Sequence[str], text: str) -> int:
    """Return the number of an ENUM's label, counted from 1; 0 is the empty text of a label that was refused.

    Raises
    ------
    LabError
        there is no such label.
    """
    if text in members:
        return members.index(text) + 1
    if text:
        raise LabError(f"an ENUM has no label {text!r}", hint="The definition was changed: read the catalog again.")
    return 0


def set_number(members: Sequence[str], text: str) -> int:
    """Return the bits of a SET's labels."""
    return sum(1 << (label_number(members, label) - 1) for label in text.split(",")) if text else 0
