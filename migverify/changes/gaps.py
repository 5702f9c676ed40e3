"""Is a transaction missing? The numbers of a stream against each other, and against what servers say was executed.

MySQL numbers the transactions of each UUID and tag without a gap, MariaDB those of each domain. But a server may
itself never have executed a number (a replica that skipped, a group that hands out blocks), and a replica may
log numbers out of order. So a hole is held against the server's own word - the set at the start of each binlog file,
the executed set at the end - wherever there is one: what the server has and the stream lacks is lost; what both lack
never was. MariaDB's word is only how far each domain has come, so there a hole stays a hole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from migverify.changes.gtid import GtidSet, Interval, MariadbPosition, Source, split_gtid, split_mariadb

Executed = GtidSet | MariadbPosition


@dataclass(frozen=True, slots=True)
class Gaps:
    """What the numbers prove, as texts of GTID sets (``domain 0:5-7`` on MariaDB), empty for none.

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
    one on are held against each other.
    """

    base: GtidSet | None = None
    seen: GtidSet = field(default_factory=GtidSet)
    repeated: GtidSet = field(default_factory=GtidSet)
    lost: GtidSet = field(default_factory=GtidSet)
    foreign: GtidSet = field(default_factory=GtidSet)
    _told: GtidSet | None = None
    _prefix: str = ""
    _source: Source = ("", "")
    _run: Interval | None = None

    def start(self, executed: Executed) -> None:
        """Say what was executed before the first transaction."""
        self.base = as_numbers(executed)
        self._told = self.base if isinstance(executed, GtidSet) else None

    def add(self, gtid: str) -> None:
        """Count one transaction, in the order of the stream."""
        prefix, _, number = gtid.rpartition(":")
        if self._run is not None and prefix and prefix == self._prefix and int(number) == self._run[1] + 1:
            self._run = (self._run[0], self._run[1] + 1)  # nearly always: the next one of the same server
            return
        if prefix:
            source, last = split_gtid(gtid)
        else:
            domain, _, last = split_mariadb(gtid)
            source = _domain(domain)
            if self._run is not None and source == self._source and last == self._run[1] + 1:
                self._run = (self._run[0], last)
                return
        self._close_run()
        self._prefix, self._source, self._run = prefix, source, (last, last)

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

    def word(self, executed: Executed, *, exact: bool) -> None:
        """Take a server's word for what was executed up to here.

        Parameters
        ----------
        executed
            The set it states.
        exact
            Whether it speaks of this very place: then what the stream has beyond it is foreign.
        """
        ours = self.executed()
        told = executed if isinstance(executed, GtidSet) else _as_far_as(executed, ours)
        if self.base is None:
            told = _from_first(told, self.seen)
        self.lost |= told - ours
        if exact:
            self.foreign |= self.seen - told
        if isinstance(executed, GtidSet):
            self._told = told

    def gaps(self) -> Gaps:
        """Return what is proved so far."""
        executed = dict((self.executed() | self.lost).sources)
        told = dict(self._told.sources) if self._told is not None else {}
        holes = GtidSet()
        for source, intervals in self.seen.sources:
            first = intervals[0][0] if self.base is None else 1
            # Numbers that the server's own word passes over were never executed there.
            holes |= _missing(source, executed[source], first, intervals[-1][1]) - (
                _missing(source, told[source], 1, told[source][-1][1]) if source in told else GtidSet()
            )
        return Gaps(str(self.lost), str(holes), str(self.repeated), str(self.foreign))


def as_numbers(executed: Executed) -> GtidSet:
    """Return an executed set of either server as intervals of numbers."""
    if isinstance(executed, GtidSet):
        return executed
    whole = ((_domain(domain), ((1, sequence),)) for domain, _, sequence in executed.domains if sequence)
    return GtidSet(tuple(sorted(whole)))


def _domain(number: int) -> Source:
    return f"domain {number}", ""


def _missing(source: Source, intervals: tuple[Interval, ...], first: int, last: int) -> GtidSet:
    if last < first:
        return GtidSet()
    return GtidSet(((source, ((first, last),)),)) - GtidSet(((source, intervals),))


def _as_far_as(position: MariadbPosition, ours: GtidSet) -> GtidSet:
    """Return what a MariaDB position says about our numbers: how far each domain came, nothing about its holes."""
    known = dict(ours.sources)
    told = GtidSet()
    for domain, _, sequence in position.domains:
        source = _domain(domain)
        upto = GtidSet(((source, ((1, sequence),)),)) if sequence else GtidSet()
        own = GtidSet(((source, known[source]),)) if source in known else GtidSet()
        newest = known[source][-1][1] if source in known else 0
        beyond = GtidSet(((source, ((newest + 1, sequence),)),)) if sequence > newest else GtidSet()
        told |= (own - (own - upto)) | beyond
    return told


def _from_first(executed: GtidSet, seen: GtidSet) -> GtidSet:
    """Leave out what may have been executed before a stream whose start nobody knows."""
    firsts = {source: intervals[0][0] for source, intervals in seen.sources}
    kept = GtidSet()
    for source, intervals in executed.sources:
        if source in firsts:
            before = GtidSet(((source, ((1, firsts[source] - 1),)),)) if firsts[source] > 1 else GtidSet()
            kept |= GtidSet(((source, intervals),)) - before
    return kept
