"""A carrier as a watch follows it: the changes of one changefeed behind a commit timestamp."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from migverify.changes.carriers.base import Carrier, MessagePosition, Reject
from migverify.changes.carriers.committed import MARGIN_SECONDS, CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.formats import CarrierSource
from migverify.changes.model import Item, Position, Rows
from migverify.changes.positions import TimestampOrdinals, time_tso, tso_position
from migverify.db.session import Session
from migverify.db.snapshot import current_timestamp


@dataclass(frozen=True, slots=True)
class FollowedCarrier(TimestampOrdinals):
    """The changes that a changefeed carries: a source that ``watch.stream`` follows. An ordinal is a commit timestamp.

    Parameters
    ----------
    source
        Where the messages are, and their format.
    dead_letters
        The file that keeps messages without a change. Marks of followed files are kept beside it.
    reader
        Who reads: marks are kept for each reader, as one that begins anew proves by itself that nothing is gone.
    feed_start, newest
        As for ``CommittedChanges``.
    """

    source: CarrierSource
    dead_letters: Path
    feed_start: int = 0
    newest: Callable[[], int] | None = None
    reader: str = ""

    def open(self, since: Position | None) -> Iterator[Item]:
        """Follow the changes behind a position; None is from now on, less the difference of the clocks."""
        start = since or tso_position(time_tso(time.time() - MARGIN_SECONDS))
        return self.changes(self.carrier(), start, DeadLetterFile(self.dead_letters), gives_earlier=True).items()

    def carrier(self) -> Carrier:
        """Return the messages; files that are followed are marked."""
        name = ".".join(filter(None, [self.dead_letters.name, self.reader, "files.json"]))
        return self.source.carrier(keys_only=True, marks=self.dead_letters.with_name(name))

    def changes(
        self, carrier: Carrier, since: Position | None, letters: DeadLetterFile, *, gives_earlier: bool = False
    ) -> CommittedChanges:
        """Return the changes that messages of this carrier hold behind a position; see ``CommittedChanges``."""
        return CommittedChanges(carrier, since, letters=letters, feed_start=self.feed_start, newest=self.newest,
                                gives_earlier=gives_earlier)  # fmt: skip

    def set_aside(self, event: Rows, reason: str) -> None:
        """Keep rows as a dead letter whose keys are not those of the table, by the first of their messages."""
        topic, _, partition = event.file.rpartition("/")
        place = MessagePosition(topic, int(partition), event.offset)
        DeadLetterFile(self.dead_letters).add([Reject(reason, place, None, event.images)])

    def head(self, session: Session) -> Position:
        """Return the present timestamp of the TiDB that the changefeed reads."""
        return tso_position(current_timestamp(session))
