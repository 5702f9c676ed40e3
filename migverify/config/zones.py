"""Time zones by name or offset, as settings and options name them."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

ZONE_HINT = "Give UTC, an offset like +09:00, or a name like Asia/Tokyo."
_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})\Z")


def find_zone(name: str) -> tzinfo:
    """Return a time zone: ``UTC``, ``+09:00`` or a name like ``Asia/Tokyo``; raises ValueError for anything else."""
    offset = _OFFSET.match(name)
    if offset is not None and int(offset[2]) < 15 and int(offset[3]) < 60:
        minutes = 60 * int(offset[2]) + int(offset[3])
        return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"there is no time zone {name[:80]!r}") from error
