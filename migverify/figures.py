"""Numbers, durations and moments as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def amount(number: int, noun: str) -> str:
    """Return ``1 chunk`` or ``2,000 chunks``."""
    return f"{number:,} {plural(number, noun)}"


def plural(number: int, noun: str) -> str:
    """Return the noun as it follows the number."""
    return noun if number == 1 else f"{noun}s"


def count(value: int | None) -> str:
    """Return a row count; None is ``unknown``."""
    return "unknown" if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Return seconds with one decimal; None is ``not known``."""
    return "not known" if value is None else f"{value:,.1f}"


def duration(value: float | None) -> str:
    """Return seconds in the unit one would say: ``3.5 s``, ``33m 20s``, ``2h 05m``."""
    if value is None:
        return "unknown"
    if value < 100:
        return f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    return f"{minutes // 60:,}h {minutes % 60:02}m"


def utc(moment: float | None) -> str:
    """Return Unix time as ``2026-01-31 12:00:00 UTC``; None is ``not recorded``."""
    if moment is None:
        return "not recorded"
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
