"""How differences looked when they were read last: values may not stand in the store."""

from __future__ import annotations

from collections import OrderedDict

from migverify.model import KeyText
from migverify.recon.bodies import window_text
from migverify.recon.model import Class, RuleFinding

MOST = 100_000


class LastSeen:
    """Hashes of pending findings, the last ``MOST`` of them; lost with the process."""

    def __init__(self) -> None:
        self._hashes: OrderedDict[tuple[str, KeyText], int] = OrderedDict()

    def remember(self, finding: RuleFinding) -> None:
        """Note how a finding looked with its values."""
        place = (window_text(finding.window), finding.key)
        if finding.kind is Class.PENDING or place not in self._hashes:
            self._hashes[place] = _hash(finding)
            self._hashes.move_to_end(place)
        while len(self._hashes) > MOST:
            self._hashes.popitem(last=False)

    def same(self, before: RuleFinding, now: RuleFinding) -> bool:
        """Whether a finding differs as at its last read. After a restart that is not known, and the next read tells.

        Of what is a mismatch already only the class and the counts matter.
        """
        if before.kind is not Class.PENDING:
            return (before.of, before.counts) == (now.of, now.counts)
        place = (window_text(before.window), before.key)
        known = self._hashes.get(place)
        self._hashes[place] = _hash(now)
        return known == _hash(now)


def _hash(finding: RuleFinding) -> int:
    return hash((finding.of, finding.deviations, finding.counts, finding.money))
