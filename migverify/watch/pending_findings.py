"""Findings that wait for a marker: a feed that began again sends old changes, and then old markers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from migverify.watch.crossing_model import CrossingFinding, CrossingKind

PENDING_SECONDS = 10.0
"""Age from which a finding is given out though no marker came: a feed without new changes sends nothing again."""
_AT_ONCE = (CrossingKind.STALE, CrossingKind.CIRCLES)
"""Kinds that hold no matter what the feed sends again."""


@dataclass(slots=True)
class PendingFindings:
    """Findings until the following side is known to have a newer marker behind them.

    ``confirmed`` counts those that were given out, and what was found with them.
    """

    confirmed: Counter[CrossingKind] = field(default_factory=Counter)
    _pending: list[tuple[CrossingFinding, int, float]] = field(default_factory=list)

    def add(self, findings: Iterable[CrossingFinding], read_to: int, now: float) -> list[CrossingFinding]:
        """Take findings of a stream that was read to an ordinal; returns those that wait for nothing."""
        at_once = []
        for finding in findings:
            if finding.kind in _AT_ONCE:
                at_once.append(finding)
            else:
                is_leading = finding.kind is CrossingKind.ID_RANGES  # its change may be one of the leading side
                self._pending.append((finding, read_to if is_leading else finding.change.position, now))
        return at_once

    def take(self, marker: int, now: float, counts: Counter[CrossingKind]) -> list[CrossingFinding]:
        """Return the findings before a marker, and those that are old. ``counts`` are of everything found."""
        ready = [p for p in self._pending if p[1] <= marker or now - p[2] >= PENDING_SECONDS]
        self._pending = [p for p in self._pending if p not in ready] if ready else self._pending
        self.confirmed.update(finding.kind for finding, _, _ in ready)
        if not self._pending:
            self.confirmed = Counter(counts)  # of too many, not each is given out
        return [finding for finding, _, _ in ready]

    def drop(self, counts: Counter[CrossingKind]) -> None:
        """Forget the findings: the feed sent old changes again. ``counts`` become those of the others."""
        self._pending.clear()
        counts.clear()
        counts.update(self.confirmed)
