"""Asks the catalogue of known differences what it knows of a digest's findings."""

from __future__ import annotations

from collections.abc import Mapping

from migverify.workload.catalogue.match import Catalogue
from migverify.workload.catalogue.model import LabelState, ProbeState
from migverify.workload.catalogue.versions import Versions
from migverify.workload.classify import classify
from migverify.workload.replay.render import WITHHELD
from migverify.workload.replay.tally import DigestTally
from migverify.workload.replay.verdict import AspectLabel


class CatalogueLabels:
    """Labels an aspect of a digest by the examples that show it; one entry that blocks makes it a blocker.

    Parameters
    ----------
    versions
        Both sides' servers; without them every version counts.
    probed
        What a probe found on this pair, by entry.
    """

    def __init__(
        self, catalogue: Catalogue, versions: Versions | None = None, probed: Mapping[str, ProbeState] | None = None
    ) -> None:
        self._catalogue = catalogue
        self._versions = versions
        self._probed = probed

    def label(self, tally: DigestTally, aspect: str) -> AspectLabel:
        """Return what is known of an aspect; ``known`` only where every kept example of it is explained."""
        states, ids = set(), set()
        for example in tally.examples.get(aspect, ()):
            differences = [one for one in example.differences if one.aspect == aspect]
            sql = example.detail("sql")
            does = classify((tally.text if sql in ("", WITHHELD) else sql).encode())
            found = self._catalogue.label(tally.text, does, differences, self._versions, probed=self._probed)
            states.add(found.state)
            ids |= set(found.ids)
        known = states == {LabelState.KNOWN}
        state = "blocker" if LabelState.BLOCKER in states else "known" if known else "unknown"
        links = sorted({link for one in ids for link in self._catalogue.entry(one).references})
        return AspectLabel(state, tuple(sorted(ids)), tuple(links))
