"""What a shadow replay knows at one moment, and the verdict of that moment.

MATCH only when reads were asked and answered the same on both sides, nearly all of them, over all hours that are kept,
with nothing missing in the log and no difference still open. Everything else has a reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar

from migverify.exposition import VERDICTS, Metric, number
from migverify.model import NextStep, Verdict
from migverify.watch.status import WatchStatus
from migverify.workload.replay.verdict import INDETERMINATE_SHARE, MatchRequirements
from migverify.workload.shadow.book import DigestHour, HourCounts, ShadowBook
from migverify.workload.shadow.file import EARLIER

LISTED = 50
"""Digests that a status lists, the worst first; how many are left out is said."""
_SHOWN = 60
_SECONDS = 3600
_WORST = (Verdict.MISMATCH, Verdict.INCONCLUSIVE, Verdict.MATCH)
_REVIEWED = frozenset({"review", "noise", "shallow"})
_ENOUGH = MatchRequirements()


@dataclass(frozen=True, slots=True)
class DigestStatus:
    """One digest over the hours that are kept. ``mismatch_hours`` are those in which it differed, UTC, the last first.

    ``reasons`` say why the verdict is not MATCH; each is one of an hour, the newest first.
    """

    digest: str
    text: str
    verdict: Verdict
    reads: int
    same: int
    different: int
    undecided: int
    unasked: int
    mismatch_hours: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The digest, cut: as in reports."""
        return self.digest[:16]

    @property
    def rank(self) -> tuple[int, int]:
        """Reads that differ, then reads that are not decided."""
        return self.different if self.verdict is Verdict.MISMATCH else 0, self.undecided + self.unasked

    def cells(self) -> dict[str, str]:
        """Return what a table shows of it, by column."""
        counts = {name: f"{getattr(self, name):,}" for name in ("reads", "different", "undecided", "unasked")}
        return {"statement": self.text[:_SHOWN], **counts}

    def notes(self) -> Iterator[str]:
        """Yield its statement."""
        if self.verdict is not Verdict.MATCH:
            yield self.text


@dataclass(frozen=True, slots=True)
class HourStatus:
    """One hour, by when its statements ran. ``digests`` counts digests by verdict, ``reads`` reads by outcome.

    ``left`` counts records of the log that are no question of the verdict, by why not. ``reasons`` say what is missing.
    """

    hour: str
    verdict: Verdict
    digests: Mapping[str, int]
    reads: Mapping[str, int]
    left: Mapping[str, int]
    unreadable: int
    gaps: int
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowStatus(WatchStatus):
    """The status of a shadow replay.

    ``lag`` is how many seconds the reads are behind the log, ``unread`` the bytes (of a folder: objects) that are not
    read yet. ``replication_lag`` is by how many seconds the target is behind the source, None where it is not known.
    ``pending`` differences are asked again. ``rate`` is reads a second since the last status, ``lanes`` the connections
    to each side that are used. ``counts`` are of this process and those before it: reads by outcome over the kept
    hours, and ``converged`` that differed at first. ``digests`` are the worst, ``digests_left`` more have no line here.
    """

    prefix: ClassVar[str] = "migverify_shadow"
    log: str
    lag: float
    unread: int
    replication_lag: float | None
    pending: int
    rate: float
    lanes: int
    counts: Mapping[str, int]
    digests_by_verdict: Mapping[str, int]
    digests: tuple[DigestStatus, ...]
    digests_left: int
    hours: tuple[HourStatus, ...]
    earlier: Mapping[str, int]

    @property
    def parts(self) -> Sequence[DigestStatus]:
        """The digests."""
        return self.digests

    def headline(self) -> str:
        """Return the state in one line."""
        counts = self.counts
        behind = "" if self.replication_lag is None else f", the target {self.replication_lag:.1f} s behind the source"
        return (
            f"{self.verdict.value}; {counts['reads']:,} reads in {len(self.hours):,} hours: {counts['same']:,} same,"
            f" {counts['different']:,} different, {counts['undecided']:,} undecided, {counts['unasked']:,} not asked,"
            f" {self.pending:,} asked again; {self.lag:.1f} s behind the log{behind}; {self.rate:,.0f}/s"
        )

    def next_steps(self) -> Iterator[NextStep]:
        """Yield the command that shows more."""
        yield NextStep(f"migverify report {self.run_id}", "shows the digests and examples")

    def metrics(self) -> Iterator[Metric]:
        """Yield the gauges."""
        prefix = self.prefix
        yield Metric(f"{prefix}_lag_seconds", "How far the reads are behind the log.", [({}, number(self.lag))])
        yield Metric(
            f"{prefix}_replication_lag_seconds", "How far the target is behind the source; NaN: unknown.",
            [({}, number(self.replication_lag))],
        )  # fmt: skip
        yield Metric(f"{prefix}_unread", "Bytes of the log, or objects, not read yet.", [({}, number(self.unread))])
        yield Metric(f"{prefix}_pending", "Differences that are asked again.", [({}, number(self.pending))])
        yield Metric(f"{prefix}_lanes", "Connections to each side in use.", [({}, number(self.lanes))])
        yield Metric(f"{prefix}_rate", "Reads a second.", [({}, number(round(self.rate, 3)))])
        yield Metric(
            f"{prefix}_reads", "Reads of the kept hours, by outcome.",
            [({"outcome": name}, number(count)) for name, count in self.counts.items() if name != "reads"],
        )  # fmt: skip
        yield Metric(
            f"{prefix}_digests", "Digests of the kept hours, by verdict.",
            [({"verdict": name}, number(count)) for name, count in self.digests_by_verdict.items()],
        )  # fmt: skip
        yield Metric(
            f"{prefix}_hour_verdict", "Verdict of an hour: 0 match, 1 mismatch, 3 inconclusive.",
            [({"hour": hour.hour}, VERDICTS[hour.verdict]) for hour in self.hours],
        )  # fmt: skip
        listed = [one for one in self.digests if one.verdict is not Verdict.MATCH]
        yield Metric(
            f"{prefix}_digest_verdict", f"Verdict of a digest that is not MATCH, of the worst {LISTED}.",
            [({"digest": one.name}, VERDICTS[one.verdict]) for one in listed],
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShadowState:
    """What a process knows beside the counts; see ``ShadowStatus``. ``reasons`` keep the verdict from MATCH."""

    run_id: str
    log: str
    at: float
    lag: float = 0.0
    unread: int = 0
    replication_lag: float | None = None
    pending: int = 0
    rate: float = 0.0
    lanes: int = 0
    reasons: tuple[str, ...] = ()


def status_of(book: ShadowBook, state: ShadowState, *, final: bool = False) -> ShadowStatus:
    """Return the status at one moment."""
    every = [_digest(digest, hours) for digest, hours in book.by_digest()]
    every.sort(key=lambda one: (_WORST.index(one.verdict), *(-count for count in one.rank), one.digest))
    counts = {
        name: sum(getattr(one, name) for one in every) for name in ("reads", "same", "different", "undecided")
    }  # fmt: skip
    counts["unasked"] = sum(one.unasked for one in every)
    by_verdict = Counter(one.verdict for one in every)
    hours = tuple(_hour(book, hour) for hour in book.kept_hours())
    gaps = list(_gaps(every, hours, counts, state))
    verdict = Verdict.MISMATCH if by_verdict[Verdict.MISMATCH] else Verdict.INCONCLUSIVE if gaps else Verdict.MATCH
    return ShadowStatus(
        run_id=state.run_id, at=state.at, verdict=verdict, reasons=tuple(gaps), final=final, log=state.log,
        lag=round(state.lag, 3), unread=state.unread, replication_lag=state.replication_lag, pending=state.pending,
        rate=round(state.rate, 3), lanes=state.lanes, counts=counts,
        digests_by_verdict={one.value: by_verdict[one] for one in _WORST}, digests=tuple(every[:LISTED]),
        digests_left=max(0, len(every) - LISTED), hours=hours, earlier=_earlier(book),
    )  # fmt: skip


def _digest(digest: str, hours: Sequence[tuple[int, DigestHour]]) -> DigestStatus:
    same, assumed, different, undecided, unasked = (
        sum(getattr(cell, name) for _, cell in hours)
        for name in ("same", "assumed", "different", "undecided", "unasked")
    )
    reads = same + assumed + different + undecided + unasked
    wrong = tuple(hour_text(hour) for hour, cell in hours if cell.verdict is Verdict.MISMATCH)
    reviewed = any(cell.weight in _REVIEWED for _, cell in hours)
    is_enough = (
        same > 0 and not reviewed and unasked + assumed <= (1 - _ENOUGH.judged_share) * reads
        and undecided <= INDETERMINATE_SHARE * reads
    )  # fmt: skip
    verdict = Verdict.MISMATCH if wrong else Verdict.MATCH if is_enough else Verdict.INCONCLUSIVE
    reasons = tuple(dict.fromkeys(
        f"{hour_text(hour)} {'; '.join(cell.reasons)}" for hour, cell in hours
        if cell.reasons and cell.verdict in (verdict, Verdict.INCONCLUSIVE)
    ))  # fmt: skip
    return DigestStatus(
        digest, hours[0][1].text, verdict, reads, same, different, undecided, unasked + assumed, wrong,
        () if verdict is Verdict.MATCH else reasons[:3],
    )  # fmt: skip


def _hour(book: ShadowBook, hour: int) -> HourStatus:
    cells = list(book.cells.get(hour, {}).values())
    counts = book.hours.get(hour, HourCounts())
    found = Counter(cell.verdict for cell in cells)
    reasons = [] if cells else ["no read was asked"]
    if counts.gap_count:
        reasons.append(f"{counts.gap_count:,} gaps in the log, the first: {counts.gaps[0]}")
    if counts.unreadable:
        first = f", the first: {counts.first_unreadable}" if counts.first_unreadable else ""
        reasons.append(f"{counts.unreadable:,} records of the log could not be read{first}")
    if found[Verdict.INCONCLUSIVE]:
        reasons.append(f"{found[Verdict.INCONCLUSIVE]:,} digests are not decided")
    verdict = Verdict.MISMATCH if found[Verdict.MISMATCH] else Verdict.INCONCLUSIVE if reasons else Verdict.MATCH
    reads = {name: sum(getattr(cell, name) for cell in cells)
             for name in ("same", "assumed", "different", "undecided", "unasked")}  # fmt: skip
    return HourStatus(
        hour_text(hour), verdict, {one.value: found[one] for one in _WORST}, reads,
        dict(sorted(counts.left.items())), counts.unreadable, counts.gap_count, tuple(reasons),
    )  # fmt: skip


def _gaps(
    digests: Sequence[DigestStatus], hours: Sequence[HourStatus], counts: Mapping[str, int], state: ShadowState
) -> Iterator[str]:
    yield from state.reasons
    reads, open_digests = counts["reads"], [one for one in digests if one.verdict is Verdict.INCONCLUSIVE]
    if not counts["same"] and not counts["different"]:
        yield "no read was asked and answered"
    if open_digests:
        yield f"{len(open_digests):,} of {len(digests):,} digests are not decided"
    if counts["unasked"] > (1 - _ENOUGH.judged_share) * reads:
        yield f"{counts['unasked']:,} of {reads:,} reads were not asked, or proved nothing"
    if state.pending:
        yield f"{state.pending:,} reads differ and are asked again"
    for words, sign, found in (
        ("gaps in the log", "gaps in the log", [hour for hour in hours if hour.gaps]),
        ("records that could not be read", "could not be read", [hour for hour in hours if hour.unreadable]),
    ):
        if found:
            first = next(reason for reason in found[0].reasons if sign in reason)
            yield f"{words} in {len(found):,} hours, the last {found[0].hour}: {first}"


def _earlier(book: ShadowBook) -> dict[str, int]:
    """Return the counts of the hours that are summed up."""
    cells = list(book.cells.get(EARLIER, {}).values())
    found = Counter(cell.verdict for cell in cells)
    return {
        "digests": len(cells), "reads": sum(cell.reads for cell in cells),
        "mismatch_digests": found[Verdict.MISMATCH], "different": sum(cell.different for cell in cells),
    }  # fmt: skip


def hour_text(hour: int) -> str:
    """Return an hour as text, UTC."""
    return f"{datetime.fromtimestamp(hour * _SECONDS, UTC):%Y-%m-%dT%H}Z"
