"""The transactions of TiDB out of a carrier's messages: the items, positions and promises of a binlog.

Messages come at least once, and those of one transaction on several partitions. What was committed below the lowest
watermark of all partitions is complete: it is given out in the order of commit timestamps. A position is the commit
timestamp (``positions.tso_position``); an Idle says that everything before a watermark was given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from migverify.changes.carriers.base import Carried, Carrier, Reject, Watermark
from migverify.changes.carriers.sequence import Watermarks
from migverify.changes.model import Begin, Commit, Idle, Item, Position, Statement
from migverify.changes.positions import tso_position, tso_time
from migverify.errors import ChangeError

MOST_WAITING = 1_000_000
"""Changes that wait for a watermark; beyond, the changefeed sends none."""


class CommittedChanges:
    """The transactions that a carrier's watermarks complete; see ``ChangeSource``.

    A change that comes after a watermark that excluded it was sent again, or the promise was broken. Nothing tells
    which, so it is given out once more, at the position that was reached: rows that come twice are harmless for a
    verification.

    Parameters
    ----------
    since
        Transactions up to this position are left out.
    """

    def __init__(self, carrier: Carrier, since: Position | None = None, most_waiting: int = MOST_WAITING) -> None:
        self._carrier = carrier
        self._start = since.offset if since is not None else 0
        self._most = most_waiting
        self._waiting: defaultdict[int, list[Carried]] = defaultdict(list)

    def items(self) -> Iterator[Item]:
        """Yield whole transactions, and an Idle for each watermark that moves on.

        Raises
        ------
        ChangeError
            a message cannot be decoded, names no commit timestamp, or no watermark comes. Items given before are
            certain.
        """
        marks = Watermarks(set(self._carrier.ends))
        reached, waiting = self._start, 0
        for item in self._carrier.read():
            if isinstance(item, Reject):
                raise ChangeError(f"{item.place}: a message cannot be decoded: {item.reason}")
            if not isinstance(item, Watermark) or not item.everywhere:
                marks.partitions.add((item.place.topic, item.place.partition))
            if isinstance(item, Carried):
                commit = _commit_of(item)
                self._waiting[commit].append(item)
                waiting += 1
                if commit <= reached:
                    yield from self._complete(commit + 1, reached)
                    waiting -= 1
                elif waiting > self._most:
                    raise ChangeError(
                        f"{item.place}: {waiting:,} changes wait for a watermark.",
                        hint="Let the changefeed send watermarks to every partition: enable-tidb-extension=true.",
                    )
            elif isinstance(item, Watermark):
                marks.see(item)
                complete_to = marks.complete_to()
                if complete_to is not None and complete_to > reached + 1:
                    yield from self._complete(complete_to, reached)
                    reached, waiting = complete_to - 1, sum(map(len, self._waiting.values()))
                    yield Idle(tso_position(reached), tso_time(complete_to))

    def _complete(self, complete_to: int, reached: int) -> Iterator[Item]:
        """Give out the transactions below a timestamp."""
        for commit in sorted(commit for commit in self._waiting if commit < complete_to):
            carried = self._waiting.pop(commit)
            if commit <= self._start:
                continue
            start, reached = tso_position(reached), max(reached, commit)
            yield Begin(str(commit), start, tso_time(commit))
            statements = set()
            for event in (one.event for one in carried):
                if isinstance(event, Statement):  # TiCDC sends a statement to every partition
                    if (event.sql, event.tables) in statements:
                        continue
                    statements.add((event.sql, event.tables))
                yield event
            yield Commit(str(commit), tso_position(reached), tso_time(commit))


def _commit_of(item: Carried) -> int:
    if item.order is None or item.order.server:
        raise ChangeError(
            f"{item.place}: a change names no commit timestamp of TiDB, so no watermark says when it is complete.",
            hint="Read a changefeed of TiCDC; canal-json needs enable-tidb-extension=true.",
        )
    return item.order.position.offset
