"""What was counted, by digest and hour, and the verdict of each: bounded by digests an hour and by hours.

Hours older than those that are kept are summed up, digest by digest, into one that is called earlier.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import PurePath
from typing import Any

from migverify.model import Verdict
from migverify.workload.catalogue.waivers import Waiver
from migverify.workload.model import Rejected
from migverify.workload.replay.model import JudgedCall, Judgement
from migverify.workload.replay.tally import DigestTally, ReplayTally
from migverify.workload.replay.verdict import CatalogueLabels, verdict
from migverify.workload.shadow.file import EARLIER, ShadowChanges, ShadowFile

MOST_DIGESTS = 2_000
"""Digests of one hour that are distinguished; the reads of all others are counted as not asked, under one name."""
OTHERS = "(others)"
MOST_GAPS = 10
_TEXT = 300
_REASONS = 3


@dataclass(frozen=True, slots=True)
class DigestHour:
    """One digest in one hour. ``reasons`` are the first ones why it is not MATCH; counts are reads.

    ``assumed`` answered the same in a session state that was assumed and could change the answer: no proof.
    """

    digest: str
    verdict: Verdict
    weight: str
    reasons: tuple[str, ...]
    text: str
    same: int
    assumed: int
    different: int
    undecided: int
    unasked: int

    @property
    def reads(self) -> int:
        """All reads."""
        return self.same + self.assumed + self.different + self.undecided + self.unasked


@dataclass(slots=True)
class HourCounts:
    """What belongs to an hour and to no digest: records by why they are no question of it, and what was not read.

    ``gaps`` are texts of what is missing in the log, the first ones; ``gap_count`` counts all. ``first_unreadable`` is
    where the first of the unreadable records is, and why it is none; empty in files of earlier versions.
    """

    left: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    gap_count: int = 0
    gaps: list[str] = field(default_factory=list)
    first_unreadable: str = ""

    def unread(self, piece: Rejected) -> None:
        """Note that a record could not be read."""
        origin = piece.origin
        self.unreadable += 1
        self.first_unreadable = self.first_unreadable or (
            f"{PurePath(origin.file).name}, byte {origin.offset:,}: {piece.reason}"
        )

    def gap(self, text: str) -> None:
        """Note that something is missing."""
        self.gap_count += 1
        if len(self.gaps) < MOST_GAPS:
            self.gaps.append(text)

    def add(self, other: HourCounts) -> None:
        """Add another hour's counts."""
        self.left.update(other.left)
        self.unreadable += other.unreadable
        self.gap_count += other.gap_count
        self.gaps = [*self.gaps, *other.gaps][:MOST_GAPS]
        self.first_unreadable = self.first_unreadable or other.first_unreadable

    def as_json(self) -> dict[str, Any]:
        """Return the counts as a JSON object."""
        return {
            "left": dict(self.left), "unreadable": self.unreadable, "gap_count": self.gap_count, "gaps": self.gaps,
            "first_unreadable": self.first_unreadable,
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> HourCounts:
        """Return what ``as_json`` described."""
        return cls(
            Counter(body["left"]), body["unreadable"], body["gap_count"], list(body["gaps"]),
            body.get("first_unreadable", ""),
        )  # fmt: skip


@dataclass(slots=True)
class ShadowBook:
    """The counts of a shadow replay.

    Parameters
    ----------
    keep
        Hours that are kept one by one; with what is older they are summed up.

    Attributes
    ----------
    cells
        By hour, then by digest.
    """

    file: ShadowFile
    keep: int
    labels: CatalogueLabels | None = None
    waivers: Sequence[Waiver] = ()
    cells: dict[int, dict[str, DigestHour]] = field(default_factory=dict)
    hours: dict[int, HourCounts] = field(default_factory=dict)
    _tallies: dict[tuple[int, str], DigestTally] = field(default_factory=dict)
    _changed: set[tuple[int, str]] = field(default_factory=set)
    _changed_hours: set[int] = field(default_factory=set)

    def load(self) -> None:
        """Go on with what an earlier process kept."""
        for hour, digest, body in self.file.cells():
            self.cells.setdefault(hour, {})[digest] = DigestHour(
                **{**body, "verdict": Verdict(body["verdict"]), "reasons": tuple(body["reasons"])}
            )
        self.hours = {hour: HourCounts.from_json(body) for hour, body in self.file.hours().items()}

    def add(self, hour: int, judged: JudgedCall) -> None:
        """Count one read, once."""
        digest = judged.digest
        here = self.cells.setdefault(hour, {})
        if digest not in here and (hour, digest) not in self._tallies and len(here) >= MOST_DIGESTS:
            judged = JudgedCall(
                judged.session, judged.position, OTHERS, Judgement.UNJUDGED,
                reason=f"more than {MOST_DIGESTS:,} digests in one hour",
            )  # fmt: skip
            digest = OTHERS
        self.tally(hour, digest).add(judged)
        self._changed.add((hour, digest))

    def counts(self, hour: int) -> HourCounts:
        """Return an hour's counts, to be changed."""
        self._changed_hours.add(hour)
        return self.hours.setdefault(hour, HourCounts())

    def tally(self, hour: int, digest: str) -> DigestTally:
        """Return the tally of a digest in an hour, an empty one where there is none."""
        found = self._tallies.get((hour, digest))
        if found is None:
            body = self.file.tally(hour, digest)
            found = DigestTally(digest) if body is None else DigestTally.from_json(body)
            self._tallies[hour, digest] = found
        return found

    def changes(self, now_hour: int) -> ShadowChanges:
        """Return what is to be committed, with old hours summed up; forgets tallies of hours that are over."""
        made = ShadowChanges()
        for hour in sorted(one for one in {*self.cells, *self.hours, *(key[0] for key in self._changed)}
                           if EARLIER < one <= now_hour - self.keep):  # fmt: skip
            self._sum_up(hour)
            made.dropped_hours.append(hour)
        for hour, digest in self._changed:
            tally = self._tallies[hour, digest]
            cell = self._judged(tally)
            self.cells.setdefault(hour, {})[digest] = cell
            made.tallies[hour, digest] = (json.dumps(asdict(cell)), json.dumps(tally.as_json()))
        for hour in self._changed_hours:
            made.hours[hour] = json.dumps(self.hours[hour].as_json())
        self._changed.clear()
        self._changed_hours.clear()
        self._tallies = {key: one for key, one in self._tallies.items() if key[0] >= now_hour - 1}
        return made

    def _sum_up(self, hour: int) -> None:
        digests = {*self.cells.pop(hour, {}), *(digest for known, digest in self._changed if known == hour)}
        earlier = self.cells.setdefault(EARLIER, {})
        for digest in sorted(digests):
            name = digest if digest in earlier or len(earlier) < MOST_DIGESTS else OTHERS
            self.tally(EARLIER, name).merge(self.tally(hour, digest))
            self._tallies.pop((hour, digest), None)
            self._changed.discard((hour, digest))
            self._changed.add((EARLIER, name))
        if hour in self.hours:
            self.counts(EARLIER).add(self.hours.pop(hour))
            self._changed_hours.discard(hour)

    def _judged(self, tally: DigestTally) -> DigestHour:
        found = verdict(ReplayTally({tally.digest: tally}), self.labels, self.waivers).digests
        one = found[0]
        states = (Judgement.DIFFERENT, Judgement.INDETERMINATE, Judgement.UNJUDGED)
        return DigestHour(
            tally.digest, one.verdict, one.weight, () if one.verdict is Verdict.MATCH else one.reasons[:_REASONS],
            tally.text[:_TEXT], tally.state(Judgement.SAME) - tally.assumed, tally.assumed,
            *(tally.state(state) for state in states),
        )  # fmt: skip

    def kept_hours(self) -> list[int]:
        """Return the hours that are kept one by one, the newest first."""
        return sorted(({*self.cells, *self.hours} - {EARLIER}), reverse=True)

    def by_digest(self) -> Iterator[tuple[str, list[tuple[int, DigestHour]]]]:
        """Yield each digest of the kept hours with its hours, the newest first."""
        found: dict[str, list[tuple[int, DigestHour]]] = {}
        for hour in self.kept_hours():
            for digest, cell in self.cells.get(hour, {}).items():
                found.setdefault(digest, []).append((hour, cell))
        yield from sorted(found.items())
