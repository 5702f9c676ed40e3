"""Counts by name that stay bounded, and still add up in any order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

NAMES = 40
"""Most users, reasons and other names a digest tells; the rest is counted."""

OTHERS = "(others)"


@dataclass(slots=True)
class Names:
    """Counts by name; beyond the smallest ``NAMES`` names they are summed up as ``(others)``."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, number: int = 1) -> None:
        """Count a name. A name dropped once stays dropped: as many smaller ones are there."""
        self.counts[name] = self.counts.get(name, 0) + number
        named = len(self.counts) - (OTHERS in self.counts)
        if named > NAMES:
            last = max(each for each in self.counts if each != OTHERS)
            self.counts[OTHERS] = self.counts.get(OTHERS, 0) + self.counts.pop(last)

    def merge(self, other: Names) -> None:
        """Add the other's counts."""
        for name, number in other.counts.items():
            self.add(name, number)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(sorted(self.counts.items(), key=lambda item: (-item[1], item[0])))

    def __len__(self) -> int:
        return len(self.counts)
