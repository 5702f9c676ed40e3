"""Rounds over whole tables: which range is due next, how fast, and when each part of a table was compared last.

Without a changefeed these rounds are all that is known of the rows. Each range is read as of a moment of the target,
and each part of a table keeps the moment since which all its rows were compared: the oldest of them is the bound that
the status states. A round ends its ranges where parts of the round before it end, so that what was compared anew and
what was not never mix.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from migverify.changes.positions import shown_timestamp, tso_time
from migverify.errors import ConfigError
from migverify.figures import amount
from migverify.model import ChunkChecksum, KeyText, RowDiff
from migverify.tables.watch_identity import Identities

MOST_ROWS = 32_768
LEAST_ROWS = 1_000
"""Rows of a range of a round within so many minutes: small ranges cost a statement each."""
MOST_PARTS = 64
"""About how many parts of a table are distinguished."""
MARGIN = 1.25
"""A round is planned to take less than the time that is allowed: tables grow, and servers wait."""
BURST_SECONDS = 5.0
"""What was missed for this long is made up for."""


@dataclass(frozen=True, slots=True)
class SweptPart:
    """The keys of a table up to ``upper`` (None: all the rest): compared as of ``moment``, a TSO, or later."""

    upper: KeyText | None
    moment: int


@dataclass(slots=True)
class TableRounds:
    """The rounds over one table.

    ``done`` are the parts of this round and ``left`` those of earlier ones that it has not come by; ``moment`` is that
    of the part under way. ``complete``: the parts cover the whole table. ``ended`` counts rounds, also those that an
    error cut off.
    """

    done: list[SweptPart] = field(default_factory=list)
    left: list[SweptPart] = field(default_factory=list)
    reached: KeyText | None = None
    moment: int | None = None
    rows: int = 0
    part_rows: int = 0
    last_rows: int = 0
    complete: bool = False
    ended: int = 0

    @property
    def bound(self) -> KeyText | None:
        """Where the next range must end at the latest."""
        return self.left[0].upper if self.left else None

    @property
    def oldest(self) -> int | None:
        """The moment since which every row of the table was compared; None before the first whole round."""
        moments = [part.moment for part in (*self.done, *self.left)] + ([] if self.moment is None else [self.moment])
        return min(moments) if moments and self.complete else None

    def took(self, upper: KeyText | None, rows: int, moment: int) -> bool:
        """Go on after a range that was compared as of ``moment``; returns whether it was the last of the table."""
        self.moment = moment if self.moment is None else min(self.moment, moment)
        self.rows += rows
        self.part_rows += rows
        self.reached = upper
        if self.left and self.left[0].upper == upper:
            self.left.pop(0)
        if upper is None or self.part_rows >= max(LEAST_ROWS, self.last_rows // MOST_PARTS):
            self._end_part(upper)
        if upper is not None:
            return False
        self.left, self.done, self.complete = self.done, [], True
        self.last_rows, self.rows = self.rows, 0
        self.ended += 1
        return True

    def restart(self) -> None:
        """Begin the round anew: what it compared counts."""
        if self.reached is not None:
            self._end_part(self.reached)
        self.left, self.done = _fewer([*self.done, *self.left]), []
        self.reached, self.rows = None, 0

    def _end_part(self, upper: KeyText | None) -> None:
        if self.moment is not None:
            self.done = _fewer([*self.done, SweptPart(upper, self.moment)])
        self.moment, self.part_rows = None, 0

    def text(self) -> str:
        """Return the state as the ledger keeps it."""
        parts = [[[part.upper, part.moment] for part in parts] for parts in (self.done, self.left)]
        return json.dumps([*parts, self.reached, self.moment, self.rows, self.part_rows, self.last_rows,
                           self.complete, self.ended])  # fmt: skip


def _fewer(parts: list[SweptPart]) -> list[SweptPart]:
    """Return the parts, two made one where they are too many: memory must not grow with the table."""
    if len(parts) <= 4 * MOST_PARTS:
        return parts
    pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
    return [SweptPart(some[-1].upper, min(part.moment for part in some)) for some in pairs]


def rounds_of(text: str) -> TableRounds:
    """Return the state from the form that the ledger keeps."""
    done, left, reached, *rest = json.loads(text)
    parts = [
        [SweptPart(None if upper is None else tuple(upper), moment) for upper, moment in some] for some in (done, left)
    ]
    return TableRounds(parts[0], parts[1], None if reached is None else tuple(reached), *rest)


@dataclass(frozen=True, slots=True)
class Swept:
    """One range: its rows on the source, the rows that differ, and where the next range begins (None: the end).

    ``identities`` are those after the last range of a comparison. ``target`` is the checksum on the target, and
    ``is_older`` says that it has changed since ``moment``, as of which it was read.
    """

    rows: int
    diffs: tuple[RowDiff, ...]
    reached: KeyText | None
    identities: Identities | None = None
    target: ChunkChecksum | None = None
    moment: int = 0
    is_older: bool = False


@dataclass(slots=True)
class Sweep:
    """The tour over all tables. ``rate`` is rows a second at most (0 for no sweep), ``rows`` counts those read.

    ``minutes`` is the time in which each range is to be read again, None for a tour at ``rate``; ``estimates`` are the
    rows of each table then. A *final pass* reads each table once more as of one moment (``final``), as fast as the
    limits allow; ``pending`` are the tables that it has not read, ``written`` those that changed since its moment.
    """

    rate: int = 0
    numbers: Sequence[int] = ()
    minutes: float | None = None
    estimates: Mapping[int, int] = field(default_factory=dict)
    rows: int = 0
    final: int | None = None
    pending: set[int] = field(default_factory=set)
    written: set[int] = field(default_factory=set)
    tables: dict[int, TableRounds] = field(default_factory=dict)
    _number: int | None = None
    _due: float = field(default_factory=time.monotonic)

    @property
    def rounds(self) -> int:
        """How many tours over all tables have ended."""
        return min((self.of(number).ended for number in self.numbers), default=0)

    @property
    def pace(self) -> float:
        """Rows a second; 0.0 for as fast as the limits allow."""
        if self.minutes is None or self.final is not None:
            return float(self.rate)
        needed = rows_a_second(sum(self.of(number).last_rows for number in self.numbers), self.minutes)
        return min(needed, self.rate) if self.rate else needed

    @property
    def range_rows(self) -> int:
        """Rows of the next range."""
        if self.minutes is None:
            return min(MOST_ROWS, self.rate)
        return MOST_ROWS if self.final is not None else min(MOST_ROWS, max(LEAST_ROWS, int(self.pace)))

    @property
    def is_passed(self) -> bool:
        """Whether the final pass has read every table."""
        return self.final is not None and not self.pending

    def of(self, number: int) -> TableRounds:
        """Return the rounds over a table."""
        return self.tables.setdefault(number, TableRounds(last_rows=self.estimates.get(number, 0)))

    def begin_final(self, moment: int) -> None:
        """Read each table once more as of a moment."""
        self.final, self.pending, self.written = moment, set(self.numbers), set()
        for number in self.numbers:
            self.of(number).restart()

    def forget(self, number: int) -> None:
        """Begin anew with a table that may hold other rows."""
        if number in self.tables:
            before = self.tables[number]
            self.tables[number] = TableRounds(last_rows=before.last_rows, ended=before.ended)
            if self.final is not None:
                self.pending.add(number)

    def due(self) -> int | None:
        """Return the number of the pair whose next range is due; None when nothing is."""
        if not (self.rate or self.minutes) or not self.numbers or self.is_passed or time.monotonic() < self._due:
            return None
        if self._number is None:
            some = self.pending or self.numbers
            self._number = min((n for n in self.numbers if n in some), key=lambda number: self.of(number).ended)
        return self._number

    def took(self, number: int, table: TableRounds, swept: Swept | None) -> None:
        """Go on after a range; None leaves a table that could not be read for the next round."""
        now = time.monotonic()
        if swept is None:
            table.restart()
            table.ended += 1
            self._number, self._due = None, now + 1.0
            return
        self.rows += swept.rows
        begun = now if self.minutes is None else max(self._due, now - BURST_SECONDS)
        self._due = begun + (max(swept.rows, 1) / self.pace if self.pace else 0.0)
        if swept.is_older:
            self.written.add(number)
        is_end = table.took(swept.reached, swept.rows, swept.moment)
        if is_end or table is not self.of(number):
            self._number = None
        if is_end and table is self.of(number):
            self.pending.discard(number)

    def oldest(self) -> int | None:
        """Return the moment since which every row of every table was compared; None before that is so."""
        moments = [self.of(number).oldest for number in self.numbers]
        known = [moment for moment in moments if moment is not None]
        return min(known) if known and len(known) == len(moments) else None


def rows_a_second(rows: int, minutes: float) -> float:
    """Return how fast rows must be read for a round within so many minutes."""
    return max(1.0, MARGIN * rows / (60.0 * minutes))


def timed_sweep(estimates: Mapping[int, int], minutes: float, limit: int) -> Sweep:
    """Return a sweep that reads every range again within so many minutes; ``limit`` is rows a second, 0 for none.

    Raises
    ------
    ConfigError
        that needs more rows a second than the limit.
    """
    rows = sum(estimates.values())
    needed = rows_a_second(rows, minutes)
    if limit and needed > limit:
        raise ConfigError(
            f"about {rows:,} rows every {minutes:g} minutes are {needed:,.0f} rows a second, and watch.sweep_rows"
            f" allows {limit:,}",
            hint=f"Allow more, watch fewer tables (--tables), or --sweep {MARGIN * rows / limit / 60:,.0f}.",
        )
    return Sweep(limit, tuple(estimates), minutes, dict(estimates))


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """What the rounds have shown by now.

    Every row was equal at some moment since ``equal_since`` (Unix time), ``age_seconds`` ago, but for the keys that are
    open or diverged; None before the first round over all tables has ended. ``bound_seconds`` is what was requested,
    ``final_as_of`` the moment of a final pass that has read all tables, as text.
    """

    bound_seconds: float
    rows_a_second: float
    rounds: int
    rows: int
    equal_since: float | None
    age_seconds: float | None
    final_as_of: str = ""

    def text(self, *, has_others: bool) -> str:
        """Return it in words; ``has_others`` says that keys are open or diverged, for which it does not hold."""
        if self.equal_since is None or self.age_seconds is None:
            since = "not every table was compared yet"
        else:
            moment = time.strftime("%H:%M:%S", time.gmtime(self.equal_since))
            rows = "every other row" if has_others else "every row"
            since = f"{rows} was equal at some moment since {moment} UTC, {_minutes(self.age_seconds)} ago"
        return (
            f"{since} (bound {_minutes(self.bound_seconds)}, {self.rows_a_second:,.0f} rows a second,"
            f" {self.rounds:,} rounds)"
        )


def sweep_status(sweep: Sweep, now: float) -> SweepStatus:
    """Return what the rounds have shown by ``now``."""
    oldest = sweep.oldest()
    since = None if oldest is None else tso_time(oldest)
    return SweepStatus(
        60.0 * (sweep.minutes or 0.0), sweep.pace, sweep.rounds, sweep.rows, since,
        None if since is None else max(0.0, now - since),
        shown_timestamp(sweep.final) if sweep.final is not None and sweep.is_passed else "",
    )  # fmt: skip


def sweep_gaps(sweep: Sweep, status: SweepStatus) -> list[str]:
    """Return why the rounds prove nothing as of a moment; none after a final pass."""
    if sweep.is_passed:
        return []
    if sweep.final is not None:
        return [f"the final pass has not read {len(sweep.pending):,} of {amount(len(sweep.numbers), 'table')} yet"]
    if status.age_seconds is None:
        return ["no changefeed: a round over all tables has not ended yet"]
    gaps = [
        f"no changefeed: what was written on the target in the last {_minutes(status.age_seconds)} may not be compared"
        " yet, and rows that changed and changed back between two reads are not seen"
    ]
    if status.age_seconds > status.bound_seconds:
        gaps.append(
            f"the bound of {_minutes(status.bound_seconds)} is not held: servers or limits do not allow to read"
            f" {status.rows_a_second:,.0f} rows a second"
        )
    return gaps


def sweep_blind_spots(status: SweepStatus) -> list[str]:
    """Return what the rounds can never see."""
    if status.final_as_of:
        after = f"what was written on the target after {status.final_as_of}"
    else:
        after = "what was written on the target since its range was read last"
    return [f"not seen without a changefeed: {after}; rows that changed and changed back between two reads; tables that"
            " were made since the watch began"]  # fmt: skip


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.1f} minutes"
