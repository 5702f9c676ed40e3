"""The time of a TiDB whose changes nothing carries, for a watch: places are timestamps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from migverify.changes.model import Idle, Item, Position
from migverify.changes.positions import TimestampOrdinals, tso_position
from migverify.db.session import Session, open_session
from migverify.db.snapshot import current_timestamp, next_millisecond
from migverify.errors import EndpointError, ReadError
from migverify.model import Endpoint

CLOCK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class CommitClock(TimestampOrdinals):
    """The time of a TiDB whose changes nothing carries; see ``FollowedSource``. It shows no row and no statement."""

    endpoint: Endpoint
    password: str | None = field(repr=False)

    def open(self, since: Position | None) -> Iterator[Item]:
        """Yield the time of the server again and again; while it does not answer, nothing."""
        del since
        while True:
            try:
                with open_session(self.endpoint, self.password) as session:
                    while True:
                        yield Idle(self.head(session), time.time())
                        time.sleep(CLOCK_SECONDS)
            except (ReadError, EndpointError):
                time.sleep(CLOCK_SECONDS)

    def head(self, session: Session) -> Position:
        """Return a whole millisecond that is later than all that is committed by now."""
        return tso_position(next_millisecond(current_timestamp(session)))
