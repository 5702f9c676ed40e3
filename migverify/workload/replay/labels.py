"""Asks the catalogue of known differences what it knows of a digest's findings."""

from __future__ import annotations

from collections.abc import Mapping

from migverify.workload.catalogue.match import Catalogue
from migverify.workload.catalogue.model import LabelState, ProbeState
from migverify.workload.catalogue.versions import Versions
from migverify.workload.classify import classify
from migverify.workload.replay.outcome import kind_of
from migverify.workload.replay.render import WITHHELD
from migverify.workload.replay.tally import DigestTally
from migverify.workload.replay.verdict import AspectLabel
from migverify.workload.shape import shape


def _by_keys(tally: DigestTally, aspect: str) -> bool:
    """Tell whether a difference may be that of a unique key: a duplicate on one side, or a count of rows."""
    if aspect in ("affected-rows", "changed-rows"):
        return True
    numbers = [
        example.detail(f"{side}_errno") for example in tally.examples.get(aspect, ()) for side in ("source", "target")
    ]
    return aspect == "error" and any(number and kind_of(int(number)) == "duplicate-key" for number in numbers)


class CatalogueLabels:
    """Labels an aspect of a digest by the examples that show it; one entry that blocks makes it a blocker.

    Parameters
    ----------
    versions
        Both sides' servers; without them every version counts.
    probed
        What a probe found on this pair, by entry.
    unique_keys
        How the unique keys of both schemas differ, by ``database.table`` (``keys.unlike_unique_keys``). An error or a
        count of such a table has that cause, whatever the catalogue knows of the servers.
    """

    def __init__(
        self, catalogue: Catalogue, versions: Versions | None = None, probed: Mapping[str, ProbeState] | None = None,
        unique_keys: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._catalogue = catalogue
        self._versions = versions
        self._probed = probed
        self._unique_keys = unique_keys or {}

    def label(self, tally: DigestTally, aspect: str) -> AspectLabel:
        """Return what is known of an aspect; ``known`` only where every kept example of it is explained."""
        cause = self._of_keys(tally) if _by_keys(tally, aspect) else ""
        if cause:
            return AspectLabel("blocker", (cause,))
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

    def _of_keys(self, tally: DigestTally) -> str:
        """Return how the unique keys of a table differ that the digest writes; empty where they do not."""
        if not self._unique_keys or tally.kind != "write":
            return ""
        texts = [example.detail("sql") for kept in tally.examples.values() for example in kept]
        sql = next((text for text in texts if text not in ("", WITHHELD)), tally.text)
        databases = [name for name, _ in tally.databases]
        for table in shape(sql.encode()).tables or ():
            names = [table.lower()] if "." in table else [f"{one}.{table}".lower() for one in databases]
            found = [self._unique_keys[name] for name in names if name in self._unique_keys]
            if found:
                return found[0]
        return ""
