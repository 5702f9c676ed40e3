"""Calls a replay's findings by the entries that explain them.

Precise before broad: an entry explains a difference only by an aspect it names, and an error only by a number it names.
What a probe found on the user's own pair goes before what the catalogue says of versions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migverify.errors import UsageError
from migverify.workload.catalogue.model import (
    CatalogueEntry,
    EntryClass,
    Label,
    LabelState,
    ProbeState,
    Sign,
)
from migverify.workload.catalogue.versions import Versions
from migverify.workload.classify import Classification
from migverify.workload.replay.model import Difference

_LEADING_NUMBER = re.compile(r"\s*(?:error |errno )?(\d+)\b", re.IGNORECASE)
_SUCCESS = re.compile(r"\s*(ok|success)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries, by id."""

    entries: tuple[CatalogueEntry, ...]

    def entry(self, identity: str) -> CatalogueEntry:
        """Return the entry of an id.

        Raises
        ------
        UsageError
            there is none.
        """
        for entry in self.entries:
            if entry.id == identity:
                return entry
        raise UsageError(
            f"the catalogue has no entry {identity!r}", hint="`migverify workload probe --list` shows all of them."
        )

    def label(
        self,
        text: str,
        classification: Classification,
        differences: Sequence[Difference],
        versions: Versions | None = None,
        *,
        probed: Mapping[str, ProbeState] | None = None,
    ) -> Label:
        """Return how a finding is called.

        Parameters
        ----------
        text, classification
            The statement's digest text, and what it does.
        differences
            What differs; each is explained, or not, on its own. The texts of an error begin with its number, or with
            ``ok``.
        versions
            Both sides' servers; without them every version counts.
        probed
            What a probe found here, by entry. An entry that does not hold here explains nothing here.

        Returns
        -------
        Label
            BLOCKER where an entry of that class explains a difference; else KNOWN where every difference is explained;
            else UNKNOWN. A finding without differences is UNKNOWN.
        """
        spoken = [
            entry
            for entry in self.entries
            if _holds_here(entry, versions, probed) and entry.trigger.speaks_of(text, classification)
        ]
        by_difference = [
            [entry for entry in spoken if any(_shows(sign, one) for sign in entry.trigger.signs)] for one in differences
        ]
        found = {entry.id: entry for part in by_difference for entry in part}
        blocks = any(entry.kind is EntryClass.BLOCKER for entry in found.values())
        is_known = bool(by_difference) and all(by_difference)
        state = LabelState.BLOCKER if blocks else LabelState.KNOWN if is_known else LabelState.UNKNOWN
        links = sorted({link for entry in found.values() for link in entry.references})
        return Label(state, tuple(sorted(found)), tuple(links))


def _holds_here(entry: CatalogueEntry, versions: Versions | None, probed: Mapping[str, ProbeState] | None) -> bool:
    state = (probed or {}).get(entry.id)
    if state is ProbeState.HOLDS:
        return True
    if state is ProbeState.DOES_NOT_HOLD:
        return False
    if versions is None:
        return True
    known = entry.versions
    return known.mysql.holds(versions.source.version) and known.tidb.holds(versions.target.version)


def _shows(sign: Sign, difference: Difference) -> bool:
    if sign.aspect != difference.aspect:
        return False
    if sign.values and not (sign.values.search(difference.source) or sign.values.search(difference.target)):
        return False
    if sign.detail and not sign.detail.search(difference.detail):
        return False
    if sign.twice and not _is_twice(difference):
        return False
    if sign.aspect not in ("error", "errno"):
        return True
    if sign.source and _errno(difference.source) not in sign.source:
        return False
    if sign.target and _errno(difference.target) not in sign.target:
        return False
    return sign.message is None or bool(sign.message.search(difference.target if sign.target else difference.source))


def _is_twice(difference: Difference) -> bool:
    if not (difference.source.isdecimal() and difference.target.isdecimal()):
        return False
    return int(difference.target) == 2 * int(difference.source) > 0


def _errno(text: str) -> int | None:
    number = _LEADING_NUMBER.match(text)
    if number:
        return int(number[1])
    return 0 if _SUCCESS.match(text) else None
