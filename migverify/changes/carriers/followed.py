"""A carrier as a watch follows it: the changes of one changefeed behind a commit timestamp."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from migverify.changes.carriers.base import Carrier
from migverify.changes.carriers.committed import MARGIN_SECONDS, CommittedChanges
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.formats import CarrierSource
from migverify.changes.model import Item, Position
from migverify.changes.positions import shown_timestamp, time_tso, tso_position
from migverify.db.session import Session
from migverify.db.snapshot import current_timestamp


@dataclass(frozen=True, slots=True)
class FollowedCarrier:
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
    hides_cascades: ClassVar[bool] = False
    """TiDB writes what a foreign key changes as rows of their own, and a changefeed carries them."""

    def open(self, since: Position | None) -> Iterator[Item]:
        """Follow the changes behind a position; None is from now on, less the difference of the clocks."""
        start = since or tso_position(time_tso(time.time() - MARGIN_SECONDS))
        return self.changes(self.carrier(), start, DeadLetterFile(self.dead_letters)).items()

    def carrier(self) -> Carrier:
        """Return the messages; files that are followed are marked."""
        name = ".".join(filter(None, [self.dead_letters.name, self.reader, "files.json"]))
        return self.source.carrier(keys_only=True, marks=self.dead_letters.with_name(name))

    def changes(self, carrier: Carrier, since: Position | None, letters: DeadLetterFile) -> CommittedChanges:
        """Return the changes that messages of this carrier hold behind a position."""
        return CommittedChanges(carrier, since, letters=letters, feed_start=self.feed_start, newest=self.newest)

    def head(self, session: Session) -> Position:
        """Return the present timestamp of the TiDB that the changefeed reads."""
        return tso_position(current_timestamp(session))

    def ordinal(self, position: Position) -> int:
        """Return the commit timestamp."""
        return position.offset

    def shown(self, ordinal: int, like: Position | None) -> str:
        """Return ``tso:`` and the timestamp, and its time."""
        del like
        return shown_timestamp(ordinal)
