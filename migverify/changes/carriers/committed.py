"""The transactions of TiDB out of a carrier's messages: the items, positions and promises of a binlog.

Messages come at least once, and those of one transaction on several partitions. What was committed below the lowest
watermark of all partitions is complete: it is given out in the order of commit timestamps. A position is the commit
timestamp (``positions.tso_position``); an Idle says that everything before a watermark was given.

A message that does not say what it changed voids completeness, and does not end a carrier that is followed: it is kept
as a dead letter, and given out as a ``Statement`` on the tables that it may have changed, none of them named where any
table may be meant, so that a watch reads them again. When its change was committed is not known, so the statement comes
twice: before the position moves on, so that no reader that stops there has missed it; and at the watermark of its
partition after it, below which its change was committed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from migverify.changes.carriers.base import (
    Carried,
    CarriedRow,
    Carrier,
    Heartbeat,
    MessagePosition,
    Reject,
    SkippedMessage,
    Watermark,
)
from migverify.changes.carriers.dead_letters import DeadLetterFile
from migverify.changes.carriers.known_changes import KnownChanges, quick_mark
from migverify.changes.carriers.lazy import SEPARATOR
from migverify.changes.carriers.sequence import Watermarks
from migverify.changes.model import Begin, Commit, Idle, Item, Op, Position, Rows, Statement
from migverify.changes.positions import time_tso, tso_position, tso_time
from migverify.errors import ChangeError, PurgedError

_T = TypeVar("_T", Rows, Begin, Commit)

MOST_WAITING = 1_000_000
"""Changes that wait for a watermark; beyond, the changefeed sends none."""
MOST_REMEMBERED = 500_000
"""Changes that are recognized when they come again: about 50 MB."""
MARGIN_SECONDS = 60.0
"""How far the clocks of TiDB, of brokers and of this machine may differ."""
VOID = "carrier void: "
"""What the text of a statement begins with that is given for a message without its change."""
_MOST_TOGETHER = 64 << 10
"""Bytes of rows that are given together."""
_MOST_BROKEN = 100
_MOST_UNDECODABLE = 10
"""So many messages at the start may be undecodable before one must be decoded."""


@dataclass(slots=True)
class _Void:
    reject: Reject
    statement: Statement
    closing: int | None = None


class _Voids:
    """The voids whose watermark has not come."""

    def __init__(self, letters: DeadLetterFile | None) -> None:
        self._letters = letters
        self._new: list[_Void] = []
        self._open: list[_Void] = []

    def add(self, reject: Reject) -> None:
        """Keep a message as a dead letter, and its void."""
        if self._letters is not None:
            self._letters.add([reject])
        place = reject.place
        text = f"{VOID}{place}: {reject.reason}"
        statement = Statement(Op.DDL, reject.tables, text, "", f"{place.topic}/{place.partition}", place.offset, 0)
        void = _Void(reject, statement)
        self._new.append(void)
        self._open.append(void)

    def close(self, mark: Watermark, highest: int) -> None:
        """Note that a watermark came behind the messages of its partition, where ``highest`` is promised by now."""
        for void in self._open:
            place = void.reject.place
            same = (place.topic, place.partition) == (mark.place.topic, mark.place.partition)
            if void.closing is None and (mark.everywhere or same):
                void.closing = highest

    def new(self) -> list[Statement]:
        """Return the statements that were not given yet."""
        found, self._new = [void.statement for void in self._new], []
        return found

    def closed(self, complete_to: int) -> list[Statement]:
        """Return the statements whose watermark everything has reached; they are done."""
        done = [void for void in self._open if void.closing is not None and void.closing <= complete_to]
        self._open = [void for void in self._open if void not in done]
        return [void.statement for void in done]


class CommittedChanges:
    """The transactions that a carrier's watermarks complete; see ``ChangeSource``.

    A change that comes after a watermark that excluded it was sent again, or the promise was broken. It is given out
    once more, at the position that was reached: rows that come twice are harmless for a verification. Where the same
    change was not given before, the promise was broken.

    A range is read strictly: what voids its completeness ends it with a ChangeError. A carrier that is followed goes
    on: see the module.

    Parameters
    ----------
    since
        Transactions up to this position are left out.
    letters
        Where undecodable messages are kept: then the carrier is followed, without end. None reads what there is.
    feed_start
        The changefeed's start-ts, where it is known: it carries everything that was committed after it.
    gives_earlier
        Give changes up to ``since`` that are sent again after it, as late ones: the side that follows may hold older
        rows then.
    newest
        Asks TiDB for its present timestamp. A watermark beyond it is that of another cluster.
    """

    def __init__(
        self, carrier: Carrier, since: Position | None = None, most_waiting: int = MOST_WAITING, *,
        letters: DeadLetterFile | None = None, feed_start: int = 0, newest: Callable[[], int] | None = None,
        gives_earlier: bool = False,
    ) -> None:  # fmt: skip
        self._carrier, self._since, self._letters = carrier, since, letters
        self._start = since.offset if since is not None else 0
        self._reached = self._start
        self._place = tso_position(self._start)
        self._most = most_waiting
        self._waiting: defaultdict[int, list[Carried | CarriedRow]] = defaultdict(list)
        self._given = KnownChanges(MOST_REMEMBERED, quick_mark)
        self._marks = Watermarks()
        self._voids = _Voids(letters)
        self._oldest: dict[tuple[str, int], int] = {}
        self._proved = not self._start or 0 < feed_start <= self._start
        self._newest, self._known_newest, self._gives_earlier = newest, 0, gives_earlier
        self._decoded, self._undecodable = False, 0
        self.unfinished = 0
        """Changes that wait for a watermark."""
        self.broken: deque[Reject] = deque(maxlen=_MOST_BROKEN)
        """The broken promises of watermarks, the newest last; whoever reads them may take them out."""

    @property
    def has_watermark(self) -> bool:
        """Whether every partition has given a watermark."""
        return self._marks.complete_to() is not None

    def items(self) -> Iterator[Item]:
        """Yield whole transactions, and an Idle for each watermark that moves on, while following every second.

        Raises
        ------
        ChangeError
            a message cannot be decoded, names no commit timestamp, or no watermark comes. Items given before are
            certain.
        PurgedError
            what was committed after ``since`` is not all there.
        """
        stream = (self._carrier.read if self._letters is None else self._carrier.follow)(self._since)
        waiting, partitions, here, most = self._waiting, self._marks.partitions, ("", -1), self._most
        for item in stream:
            kind = type(item)
            if kind is CarriedRow:
                commit, _, _, _, topic, partition, _ = item  # type: ignore[misc]
                if commit > self._reached and (topic, partition) == here and self._proved and self.unfinished < most:
                    waiting[commit].append(item)  # type: ignore[arg-type]
                    self.unfinished += 1
                    continue
            if kind is Heartbeat:
                if self._reached:
                    yield Idle(tso_position(self._reached), tso_time(self._reached + 1))
                continue
            place = item.place  # type: ignore[union-attr]
            if kind is Carried or kind is CarriedRow:
                commit = _commit_of(item)  # type: ignore[arg-type]
                if commit > self._reached:
                    waiting[commit].append(item)  # type: ignore[arg-type]
                    self.unfinished += 1
                elif commit > self._start:
                    yield from self._again(item, commit)  # type: ignore[arg-type]
                elif self._is_sent_again(place):
                    yield from self._transaction(commit, [item], is_late=True)  # type: ignore[list-item]
                if not self._proved:
                    self._see_timestamp(place, commit)
                if self.unfinished > most:
                    raise ChangeError(
                        f"{place}: {self.unfinished:,} changes wait for a watermark.",
                        hint="Let the changefeed send watermarks to every partition: enable-tidb-extension=true.",
                    )
            if place.topic != here[0] or place.partition != here[1]:
                here = (place.topic, place.partition)
                if kind is not Watermark or not item.everywhere:  # type: ignore[union-attr]
                    partitions.add(here)
            if isinstance(item, Watermark):
                yield from self._watermark(item)
            elif isinstance(item, Reject):
                self._reject(item)
            self._decoded = self._decoded or not isinstance(item, Reject | SkippedMessage)

    def _see_timestamp(self, place: MessagePosition, commit: int) -> None:
        kept_with = self._carrier.kept_with(place.topic, place.partition)
        if kept_with is not None:
            self._oldest[kept_with] = min(commit, self._oldest.get(kept_with, commit))

    def _reject(self, reject: Reject) -> None:
        self._undecodable += 1
        if not self._decoded and reject.looks_like:
            raise ChangeError(
                f"{reject.place}: the messages are {reject.looks_like}: {reject.reason}",
                hint="Name the format of the messages: --format, or reverse.carrier.format.",
            )
        if self._letters is None:
            raise ChangeError(f"{reject.place}: a message cannot be decoded: {reject.reason}")
        if not self._decoded and self._undecodable >= _MOST_UNDECODABLE:
            raise ChangeError(
                f"{reject.place}: none of the first {self._undecodable} messages can be decoded: {reject.reason}",
                hint="Check the format, the column types and the time zone.",
            )
        self._voids.add(reject)

    def _watermark(self, mark: Watermark) -> Iterator[Item]:
        """Give out what a watermark completes."""
        self._check_cluster(mark)
        highest = self._marks.see(mark)
        self._voids.close(mark, highest)
        # What a watermark behind an earlier one may have left out was committed before that one.
        if mark.complete_to < highest and highest > self._start:
            self._break(f"a watermark of {mark.complete_to} comes after one of {highest}: another changefeed or "
                        "cluster fills the topic too, or the changefeed was set back", mark)  # fmt: skip
        if not self._proved and mark.everywhere:  # at the start or before it: all that is behind it is yet to come
            self._proved = mark.complete_to - 1 <= self._start
        elif not self._proved:
            self._see_timestamp(mark.place, mark.complete_to - 1)
        self._marks.partitions |= self._carrier.partitions
        complete_to = self._marks.complete_to()
        if complete_to is None or complete_to <= self._reached + 1:
            return
        self._prove_start(complete_to)
        yield from self._voided(self._voids.new(), self._reached, self._reached)
        yield from self._complete(complete_to)
        yield from self._voided(self._voids.closed(complete_to), self._reached, complete_to - 1)
        self._reached = complete_to - 1
        yield Idle(tso_position(self._reached), tso_time(complete_to))

    def _check_cluster(self, mark: Watermark) -> None:
        if self._newest is None or mark.complete_to <= self._known_newest:
            return
        self._known_newest = self._newest() + time_tso(MARGIN_SECONDS)
        if mark.complete_to > self._known_newest:
            ahead = tso_time(mark.complete_to) - tso_time(self._known_newest) + MARGIN_SECONDS
            raise ChangeError(
                f"{mark.place}: a watermark of {mark.complete_to} is {ahead:.0f} s ahead of the configured TiDB: the "
                "messages are those of another cluster.",
                hint="Name the changefeed's own topic, or the cluster that it reads.",
            )

    def _prove_start(self, complete_to: int) -> None:
        """Refuse a carrier that shows nothing from before the start: what was committed in between was not carried.

        Each partition must show it by itself, as another one may have been kept longer; or that it was added later.
        """
        if self._proved:
            return
        parts = {self._carrier.kept_with(*here) for here in self._marks.partitions}
        firsts = {part: self._oldest.get(part, complete_to - 1) for part in parts if part}
        reaching = {part for part, first in firsts.items() if first <= self._start}
        start = tso_position(self._start)
        late = [
            (firsts[part], f"{part[0]}/{part[1]}") for part in firsts.keys() - reaching
            if not self._carrier.is_added(part, start, reaching)
        ]  # fmt: skip
        if not firsts:
            late.append((complete_to - 1, "a watermark alone"))
        if late:
            first, name = max(late)
            raise PurgedError(
                f"the first timestamp of the messages is {first}, after the position {self._start} ({name}): nothing "
                "shows that what was committed in between was carried.",
                hint="Begin at a later position after a full verification; a watch takes the changefeed's start-ts by "
                "reverse.carrier.start_ts.",
            )
        self._proved = True

    def _break(self, reason: str, item: Watermark | Carried | CarriedRow) -> None:
        """Void what a broken promise may have left out."""
        if self._letters is None:
            raise ChangeError(f"{item.place}: {reason}.")
        tables: tuple[tuple[str, str], ...] = ()
        if isinstance(item, CarriedRow):
            tables = ((item.table.database, item.table.table),)
        elif isinstance(item, Carried):
            event = item.event
            tables = event.tables if isinstance(event, Statement) else ((event.table.database, event.table.table),)
        self.broken.append(Reject(reason, item.place, None, None, tables))
        self._voids.add(self.broken[-1])

    def _again(self, item: Carried | CarriedRow, commit: int) -> Iterator[Item]:
        """Give out a change that comes after it was excluded."""
        known = self._given.has(commit, item)
        yield from self._transaction(commit, [item], is_late=True)
        if not known:
            reason = f"a change committed at {commit} comes after a watermark that excluded it, and did not come before"
            self._break(reason, item)

    def _is_sent_again(self, place: MessagePosition) -> bool:
        """Whether a change from before the start comes behind a watermark of behind it: the sender went back.

        The side that follows may hold the older row again. Whether the change came before is not known.
        """
        promised = self._marks.promised((place.topic, place.partition))
        return self._gives_earlier and promised > self._start

    def _complete(self, complete_to: int) -> Iterator[Item]:
        """Give out the transactions below a timestamp."""
        for commit in sorted(commit for commit in self._waiting if commit < complete_to):
            carried = self._waiting.pop(commit)
            self.unfinished -= len(carried)
            yield from self._transaction(commit, carried)

    def _transaction(
        self, commit: int, carried: list[Carried | CarriedRow], *, is_late: bool = False
    ) -> Iterator[Item]:
        gtid, moment, note = str(commit), tso_time(commit), self._given.note
        if self._place.offset != self._reached:
            self._place = tso_position(self._reached)
        yield _make_begin(gtid, self._place, moment, 0)
        rows: CarriedRow | None = None  # those of one table and operation are given together
        statements = set()
        for one in carried:
            note(commit, one)
            if type(one) is CarriedRow:
                if rows is None:
                    rows = one
                elif one.table is rows.table and one.op is rows.op and len(rows.images) < _MOST_TOGETHER:
                    rows = rows._replace(images=rows.images + SEPARATOR + one.images)
                else:
                    yield _rows_of(rows, moment)
                    rows = one
                continue
            if rows is not None:
                yield _rows_of(rows, moment)
                rows = None
            event = one.event  # type: ignore[union-attr]
            if isinstance(event, Statement):  # TiCDC sends a statement to every partition
                if (event.sql, event.tables) in statements:
                    continue
                statements.add((event.sql, event.tables))
            yield event
        if rows is not None:
            yield _rows_of(rows, moment)
        if commit > self._reached:
            self._reached, self._place = commit, tso_position(commit)
        yield _make_commit(gtid, self._place, moment, is_late)

    def _voided(self, statements: list[Statement], start: int, end: int) -> Iterator[Item]:
        if statements:
            yield Begin("", tso_position(start), tso_time(end))
            yield from statements
            yield Commit("", tso_position(end), tso_time(end))


def _maker(kind: type[_T]) -> Callable[..., _T]:
    """Return a constructor of a frozen dataclass that takes all fields in their order, in half of the time of its own.

    Its own looks up and calls ``object.__setattr__`` for every field: a third of the time that a transaction takes.
    """
    names = [one.name for one in fields(kind)]
    setters = {f"set_{name}": kind.__dict__[name].__set__ for name in names}
    body = "; ".join(f"set_{name}(made, {name})" for name in names)
    scope: dict[str, Any] = {"new": object.__new__, "kind": kind, **setters}
    exec(f"def make({', '.join(names)}):\n    made = new(kind); {body}\n    return made", scope)  # noqa: S102
    make: Callable[..., _T] = scope["make"]
    return make


_make_rows, _make_begin, _make_commit = _maker(Rows), _maker(Begin), _maker(Commit)


def _rows_of(row: CarriedRow, moment: float) -> Rows:
    _, table, op, images, topic, partition, offset = row
    return _make_rows(op, table, images, f"{topic}/{partition}", offset, int(moment))


def _commit_of(item: Carried | CarriedRow) -> int:
    if isinstance(item, CarriedRow):
        return item.commit
    order = item.order
    if order is None or order.server:
        where = "" if order is None else " (its order is a place in the binlog of a server)"
        raise ChangeError(
            f"{item.place}: a change names no commit timestamp of TiDB{where}, so no watermark says when "
            "it is complete.",
            hint="Read a changefeed of TiCDC; canal-json needs enable-tidb-extension=true. Where a connector of "
            "Debezium reads a server's binlog, read that binlog itself.",
        )
    return order.position.offset
