"""Money, exactly: texts to decimals and sums of them, never through a float and never rounded."""

from __future__ import annotations

import decimal
from collections.abc import Iterable
from decimal import Decimal

EXACT = decimal.Context(
    prec=2000, Emax=decimal.MAX_EMAX, Emin=decimal.MIN_EMIN,
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)  # fmt: skip
"""A sum that does not fit into 2,000 digits is an error, never a rounded sum."""

_MOST_EXPONENT = 700
"""DECIMAL has 65 digits and a DOUBLE ends at 1e308; 10^12 sums of these stay far below 2,000 digits."""


def amount(text: str | None) -> Decimal | None:
    """Return the number that a canonical text holds; None for NULL, and for text that is no finite number."""
    if text is None:
        return None
    try:
        value = Decimal(text)
    except decimal.InvalidOperation:
        return None
    if not value.is_finite():
        return None
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -_MOST_EXPONENT or value.adjusted() > _MOST_EXPONENT:
        return None
    return value


def distance(one: Decimal, other: Decimal) -> Decimal:
    """Return |one - other|, exactly."""
    return EXACT.subtract(one, other).copy_abs()


def times(value: Decimal, count: int) -> Decimal:
    """Return |value| * count, exactly."""
    return EXACT.multiply(value.copy_abs(), Decimal(count))


def total(values: Iterable[Decimal]) -> Decimal:
    """Return the exact sum; 0 for none."""
    out = Decimal(0)
    for value in values:
        out = EXACT.add(out, value)
    return out


def add_to(sums: dict[str, Decimal], currency: str, value: Decimal) -> None:
    """Add an amount to the sum of its currency, exactly."""
    sums[currency] = EXACT.add(sums.get(currency, Decimal(0)), value)


def plain(value: Decimal) -> str:
    """Return a number as people write it: no exponent, its own scale kept."""
    return format(value, "f")
