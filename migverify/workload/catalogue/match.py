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
    LabelQuery,
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
        source_errno: int | None = None,
        target_errno: int | None = None,
        source_message: str = "",
        target_message: str = "",
        probed: Mapping[str, ProbeState] | None = None,
    ) -> Label:
        """Return how a finding is called.

        Parameters
        ----------
        text, classification
            The statement's digest text, and what it does.
        differences
            What differs; each is explained, or not, on its own.
        versions
            Both sides' servers; without them every version counts.
        source_errno, target_errno
            0 is success. Where they are None, they are taken from the texts of the difference of aspect ``error``,
            which then begin with the number, or with ``ok``.
        source_message, target_message
            The servers' words, for generic numbers; the difference's texts where they are empty.
        probed
            What a probe found here, by entry. An entry that does not hold here explains nothing here.

        Returns
        -------
        Label
            BLOCKER where an entry of that class explains a difference; else KNOWN where every difference is explained;
            else UNKNOWN. A finding without differences is UNKNOWN.
        """
        found = LabelQuery(
            text, classification, differences, source_errno, target_errno, source_message, target_message
        )  # fmt: skip
        spoken = [
            entry
            for entry in self.entries
            if _holds_here(entry, versions, probed) and entry.trigger.speaks_of(text, classification)
        ]
        by_difference = tuple(
            tuple(entry.id for entry in spoken if any(_shows(sign, one, found) for sign in entry.trigger.signs))
            for one in differences
        )
        ids = tuple(sorted({identity for part in by_difference for identity in part}))
        unexplained = tuple(number for number, part in enumerate(by_difference) if not part)
        blocks = any(entry.kind is EntryClass.BLOCKER for entry in spoken if entry.id in ids)
        whole = bool(differences) and not unexplained
        state = LabelState.BLOCKER if blocks else LabelState.KNOWN if whole else LabelState.UNKNOWN
        return Label(state, ids, by_difference, unexplained)


def _holds_here(entry: CatalogueEntry, versions: Versions | None, probed: Mapping[str, ProbeState] | None) -> bool:
    state = (probed or {}).get(entry.id)
    if state is ProbeState.HOLDS:
        return True
    if state is ProbeState.DOES_NOT_HOLD:
        return False
    if versions is None:
        return True
    return entry.source.holds(versions.source.version) and entry.target.holds(versions.target.version)


def _shows(sign: Sign, difference: Difference, found: LabelQuery) -> bool:
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
    source = _errno(found.source_errno, difference.source)
    target = _errno(found.target_errno, difference.target)
    if sign.source and source not in sign.source:
        return False
    if sign.target and target not in sign.target:
        return False
    if sign.message is None:
        return True
    words = (found.target_message or difference.target) if sign.target else (found.source_message or difference.source)
    return bool(sign.message.search(words))


def _is_twice(difference: Difference) -> bool:
    if not (difference.source.isdecimal() and difference.target.isdecimal()):
        return False
    return int(difference.target) == 2 * int(difference.source) > 0


def _errno(given: int | None, text: str) -> int | None:
    if given is not None:
        return given
    number = _LEADING_NUMBER.match(text)
    if number:
        return int(number[1])
    return 0 if _SUCCESS.match(text) else None
