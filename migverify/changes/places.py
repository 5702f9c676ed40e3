"""The position in a stream of events: file and offset, the executed set, and the proof that nothing is missing.

Three things are proved on the way: every event ends where the next one begins; each file is the one that the file
before it named; and the set at the head of a file holds nothing that was not read.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from migverify.changes.buffer import ItemBuffer
from migverify.changes.events import END_BITS, FIRST_OFFSET, EventType, RawEvent
from migverify.changes.gtid import Executed, GtidSet, decode_gtids, parse_gtids
from migverify.changes.headers import check_layout, read_heartbeat_v2
from migverify.changes.model import Idle, Position
from migverify.changes.positions import next_name
from migverify.changes.statements import Xid
from migverify.errors import ChangeError


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events, and what a reader of transactions must know of them.

    Attributes
    ----------
    events
        From one or more files in their order. Between two files, and at the start of a server's dump, comes an
        artificial ROTATE event that names the file, as servers send it.
    start
        Where the first event after the format description is. Its ``gtids`` are the executed set there; empty
        means unknown: a PREVIOUS_GTIDS event tells then. With an empty ``file`` the first ROTATE says where.
    since
        Leave out what this position covers: what starts before its offset, where it has a file, else the
        transactions of its GTID set. Events left out are not judged, except that XA transactions are kept.
    gaps
        The server leaves out transactions that the reader has; offsets may jump between transactions.
    prepared
        XA transactions prepared so far, for a stream that goes on where another one was cut.
    """

    events: Iterable[RawEvent]
    start: Position
    since: Position | None = None
    gaps: bool = False
    prepared: dict[Xid, ItemBuffer] = field(default_factory=dict)


class PositionTracker:
    """The place in the stream, and the handlers of events that say something about it.

    ``between`` are the offsets of this file that lie between transactions, as far as a start needs them;
    ``end_gtids`` is the executed set after the transaction that is being read.
    """

    def __init__(self, stream: EventStream) -> None:
        start, since = stream.start, stream.since
        self.file, self.offset, self.gaps = start.file, start.offset, stream.gaps
        self.at = start
        self.executed = Executed(parse_gtids(start.gtids)) if start.gtids else None
        self.skip: GtidSet | None = None
        self.skip_to: Position | None = None
        if since is not None and since.file:
            self.skip_to = since
        elif since is not None and since.gtids:
            self.skip = parse_gtids(since.gtids)
            if self.executed is None:
                self.executed = Executed(self.skip)
                self.at = Position(start.file, start.offset, str(self.executed))
        self.between = {start.offset}
        self.open = self.skipping = False
        self.end_gtids = self.at.gtids
        self.next_file = ""
        self.must_prove = False
        self.version = ""

    def placed(self, error: ChangeError) -> ChangeError:
        """The same error with its place in front."""
        if error.message.startswith(f"{self.file}:"):
            return error
        return type(error)(f"{self.file}:{self.offset}: {error.message}", hint=error.hint)

    def jump(self, event: RawEvent) -> int:
        """Follow a jump of the offset between transactions, where the server leaves some out."""
        if self.gaps and not self.open and event.end > self.offset & END_BITS:
            self.at = Position(self.file, event.end - event.size, self.end_gtids)
            return event.end
        raise ChangeError(
            f"{self.file}:{self.offset}: an event of {event.size} bytes says it ends at {event.end}: "
            "events are missing here, or the file is damaged.",
            hint="If you chose this position: it must lie between two transactions.",
        )

    def format_description(self, event: RawEvent) -> Idle | None:
        """A file describes itself."""
        self._nothing_open("a new format description")
        self.version = check_layout(event.body, f"{self.file}:{self.offset}")
        if self.offset == FIRST_OFFSET:  # a reader that starts later gets it all the same
            self.offset += event.size
            self.between.add(self.offset)
        return None

    def rotate(self, event: RawEvent) -> Idle | None:
        """A file ends and names the next one, or a server names the file that it sends."""
        name, offset = event.rotates_to()
        self._nothing_open("a change of the file")
        if not event.is_artificial:
            self.between.add(self.offset)
            self.next_file = name
            return None
        if name == self.file and offset == self.offset:
            return None
        self.check_since(at_end=True)
        if self.file:
            self._follows(name, offset)
        self.file, self.offset, self.next_file, self.between = name, offset, "", {offset}
        self.at = Position(name, offset, self.end_gtids)
        return None

    def _follows(self, name: str, offset: int) -> None:
        """Check that a file is the one after this."""
        expected = self.next_file or next_name(self.file)
        if name != expected or offset != FIRST_OFFSET:
            raise ChangeError(
                f"{self.file}: the next file is {name}, expected was {expected}: events between them are missing.",
                hint="Give every binlog file of the range, in order.",
            )
        # A server that died wrote no end mark; then only the set at the head of the next file proves the rest.
        self.must_prove = not self.next_file

    def stop(self, event: RawEvent) -> Idle | None:
        """The server stopped; the next file has the next number."""
        del event
        self._nothing_open("the server's stop")
        self.between.add(self.offset)
        self.next_file = next_name(self.file)
        return None

    def heartbeat(self, event: RawEvent) -> Idle | None:
        """The server had nothing to send; it must have sent everything up to the place that it names."""
        if self.open:
            return None
        name, position = event.body.decode("utf-8", "replace"), event.end
        if event.type == EventType.HEARTBEAT_V2:
            name, position = read_heartbeat_v2(event.body)
        if name == self.file and position & END_BITS != self.offset & END_BITS:
            if not self.gaps or position < self.offset & END_BITS:
                raise ChangeError(
                    f"the server says that it has sent everything up to {name}:{position}, which did not arrive.",
                    hint="If you chose this position: it must lie between two transactions.",
                )
            self.offset = position
        if self.skip_to is not None:
            self.check_since(at_end=True)
        self.at = Position(self.file, self.offset, self.end_gtids)
        return Idle(self.at, time.time())

    def end(self) -> Idle:
        """The place where the events ended."""
        try:
            self._nothing_open("the end of the stream")
            self.check_since(at_end=True)
        except ChangeError as error:
            raise self.placed(error) from error
        self.at = Position(self.file, self.offset, self.end_gtids)
        return Idle(self.at, time.time())

    def silent(self, event: RawEvent) -> Idle | None:
        """An event that is known to say nothing about rows or places."""
        del event
        if not self.open:
            self.between.add(self.offset)
        return None

    def previous_gtids(self, event: RawEvent) -> Idle | None:
        """The executed set before this file."""
        before = decode_gtids(event.body)
        self.between.add(self.offset)
        if self.executed is None:
            self.executed = Executed(before)
            self.end_gtids = str(before)
            self.at = Position(self.file, self.offset, self.end_gtids)
            return None
        if not before:
            return None
        if lacking := before - self.executed.value():
            raise ChangeError(
                f"{self.file}: transactions {lacking} were written before this file and were not read.",
                hint="Give every binlog file of the range, or start at an earlier position.",
            )
        self.must_prove = False
        return None

    def check_since(self, *, at_end: bool) -> None:
        """Check that the position to start from lies between two transactions."""
        wanted = self.skip_to
        if wanted is None:
            return
        if at_end:
            self.between.add(self.offset)
        if wanted.offset not in self.between or (at_end and self.open):
            beyond = wanted.offset > self.offset
            raise ChangeError(
                f"{wanted} lies {'beyond the end of the file' if beyond else 'inside a transaction'}.",
                hint="Start at a position that a Commit, SHOW BINARY LOG STATUS or a former run named.",
            )
        self.skip_to = None

    def _nothing_open(self, what: str) -> None:
        if self.open and not self.skipping:
            raise ChangeError(f"{what} in the middle of a transaction: its end is missing.")
        self.open = False
