"""The changes of TiDB as a changefeed carries them, for a watch: places are commit timestamps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from migverify.changes.model import Item, Position
from migverify.changes.positions import tso_position, tso_time
from migverify.db.session import Session
from migverify.db.snapshot import current_timestamp


@dataclass(frozen=True, slots=True)
class FollowedCarrier:
    """What a changefeed carries of one TiDB; see ``FollowedSource``. An ordinal is a commit timestamp."""

    carried: Callable[[Position | None], Iterator[Item]]
    hides_cascades: ClassVar[bool] = False

    def open(self, since: Position | None) -> Iterator[Item]:
        """Follow the changefeed from a commit timestamp on."""
        return self.carried(since)

    def head(self, session: Session) -> Position:
        """Return a timestamp that the server gives now."""
        return tso_position(current_timestamp(session))

    def ordinal(self, position: Position) -> int:
        """Return the commit timestamp."""
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        """Return the timestamp and its time."""
        del like
        return shown_timestamp(ordinal)


def shown_timestamp(tso: int) -> str:
    """Return a timestamp of TiDB as people read it: ``tso:430000000000000000 (2021-12-31 23:59:59.123 UTC)``."""
    seconds = tso_time(tso)
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))
    return f"{tso_position(tso)} ({moment}.{(tso >> 18) % 1000:03d} UTC)"
