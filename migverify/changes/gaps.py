"""Is a transaction missing? The numbers of a stream against each other, and against what servers say was executed.

MySQL numbers the transactions of each UUID and tag without a gap. But a server may itself never have executed a number
(a replica that skipped, a group that hands out blocks), and a replica may log numbers out of order. So a hole is
compared with what the server states - the set at the start of each binlog file, the executed set at the end - wherever
there is one: what the server has and the stream lacks is lost; what both lack never was.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from migverify.changes.gtid import GtidSet, Interval, Source


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the numbers prove, as texts of GTID sets, empty for none.

    ``lost`` are transactions that a server has and the stream lacks, ``holes`` numbers that the stream lacks without a
    server's word about them, ``repeated`` transactions that came again, ``foreign`` ones that the stream has and a
    later word of the server has not.
    """

    lost: str = ""
    holes: str = ""
    repeated: str = ""
    foreign: str = ""

    def __bool__(self) -> bool:
        return bool(self.lost or self.holes or self.repeated or self.foreign)


@dataclass(slots=True)
class Numbers:
    """The transaction numbers of a stream; memory grows with the intervals, not with the transactions.

    ``base`` is what was executed before the stream begins, None where nobody says; then only numbers from the first
    one on are compared.
    """

    base: GtidSet | None = None
    seen: GtidSet = field(default_factory=GtidSet)
    repeated: GtidSet = field(default_factory=GtidSet)
    lost: GtidSet = field(default_factory=GtidSet)
    foreign: GtidSet = field(default_factory=GtidSet)
    _stated: GtidSet | None = None
    _source: Source = ("", "")
    _run: Interval | None = None

    def start(self, executed: GtidSet) -> None:
        """Say what was executed before the first transaction."""
        self.base = self._stated = executed

    def add(self, source: Source, number: int) -> None:
        """Count one transaction, in the order of the stream."""
        if self._run is not None and source == self._source and number == self._run[1] + 1:
            self._run = (self._run[0], number)  # nearly always: the next one of the same server
            return
        self._close_run()
        self._source, self._run = source, (number, number)

    def _close_run(self) -> None:
        if self._run is None:
            return
        run = GtidSet(((self._source, (self._run,)),))
        for known in (self.seen, self.base or GtidSet()):
            again = run - (run - known)
            if again:
                self.repeated |= again
        self.seen |= run
        self._run = None

    def executed(self) -> GtidSet:
        """Return what was executed at this place of the stream, as far as it tells."""
        self._close_run()
        return self.seen if self.base is None else self.base | self.seen

    def word(self, executed: GtidSet, *, exact: bool) -> None:
        """Take a server's word for what was executed up to here.

        Parameters
        ----------
        executed
            The set it states.
        exact
            Whether it speaks of this very place: then what the stream has beyond it is foreign.
        """
        ours = self.executed()
        stated = executed if self.base is not None else _from_first(executed, self.seen)
        self.lost |= stated - ours
        if exact:
            self.foreign |= self.seen - stated
        self._stated = stated

    def gaps(self) -> Gaps:
        """Return what is proved so far."""
        executed = dict((self.executed() | self.lost).sources)
        stated = dict(self._stated.sources) if self._stated is not None else {}
        holes = GtidSet()
        for source, intervals in self.seen.sources:
            first = intervals[0][0] if self.base is None else 1
            lacking = _span(source, first, intervals[-1][1]) - _of(source, executed[source])
            if source in stated:  # numbers that the server's own set passes over were never executed there
                lacking -= _span(source, 1, stated[source][-1][1]) - _of(source, stated[source])
            holes |= lacking
        return Gaps(str(self.lost), str(holes), str(self.repeated), str(self.foreign))


def _span(source: Source, first: int, last: int) -> GtidSet:
    return GtidSet(((source, ((first, last),)),)) if last >= first else GtidSet()


def _of(source: Source, intervals: tuple[Interval, ...]) -> GtidSet:
    return GtidSet(((source, intervals),)) if intervals else GtidSet()


def _from_first(executed: GtidSet, seen: GtidSet) -> GtidSet:
    """Leave out what may have been executed before a stream whose start nobody knows."""
    stated = dict(executed.sources)
    found = GtidSet()
    for source, intervals in seen.sources:
        found |= _of(source, stated.get(source, ())) - _span(source, 1, intervals[0][0] - 1)
    return found
