"""The nouns of the catalogue: entries, what shows them, the probes that find out where they hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from migverify.model import Flavor
from migverify.workload.catalogue.expected import Expectations
from migverify.workload.catalogue.versions import Range
from migverify.workload.classify import Classification
from migverify.workload.replay.model import Difference


class EntryClass(StrEnum):
    """What a difference does to an application."""

    BLOCKER = "blocker"  # a statement that works on the source fails on the target
    RETRYABLE = "retryable"  # fails on the target now and then; the same again may succeed
    DATA_VISIBLE = "data-visible"  # other values, counts or ids
    METADATA = "metadata"  # other types, lengths, flags, warnings, messages
    SILENT = "silent"  # no error, and not what the statement asked for
    ORDERING = "ordering"  # the same rows in another order
    CLIENT = "client"  # shows in drivers and pools


class Needs(StrEnum):
    """What a probe needs."""

    NONE = "none"  # reads, or only changes its own session
    SCRATCH = "scratch"  # tables in the scratch database
    SESSIONS = "sessions"  # the same, with two sessions at once
    ACCOUNT = "account"  # creates a user


ASPECTS = (
    "error", "errno", "sqlstate", "message", "unanswered", "results", "rows", "row-count", "order", "value", "null",
    "float", "form", "decimal-scale", "json", "json-form", "json-text", "temporal", "temporal-fraction", "columns",
    "type", "length", "decimals", "flags", "charset", "affected-rows", "changed-rows", "did-not-recur", "insert-id",
    "info", "warnings", "status", "latency", "plan",
    "eviction", "batch-counts", "read-only",
)  # fmt: skip
"""What a ``Difference`` may be about, the last three of drivers and pools; another one is refused in an entry."""


@dataclass(frozen=True, slots=True)
class Sign:
    """One way in which an entry shows: an aspect, and for errors the numbers of both sides (0 is success).

    ``source`` and ``target`` empty means: not asked about. ``message`` must be found in the target's words, or in the
    source's where the target is not named. ``values`` must be found in one of the difference's two texts, ``detail`` in
    its detail. ``twice``: the target's number is twice the source's.
    """

    aspect: str
    source: frozenset[int] = frozenset()
    target: frozenset[int] = frozenset()
    message: re.Pattern[str] | None = None
    values: re.Pattern[str] | None = None
    detail: re.Pattern[str] | None = None
    twice: bool = False


@dataclass(frozen=True, slots=True)
class Trigger:
    """Which statements an entry speaks of; all that is given must hold.

    ``text`` is searched in the digest text, ``without`` must not be found in it. ``kinds`` are kinds of a
    ``Classification``, ``effects`` and ``volatile`` need one of theirs.
    """

    signs: tuple[Sign, ...]
    text: re.Pattern[str] | None = None
    without: re.Pattern[str] | None = None
    kinds: frozenset[str] = frozenset()
    effects: frozenset[str] = frozenset()
    volatile: frozenset[str] = frozenset()
    locking: bool | None = None

    def speaks_of(self, text: str, classification: Classification) -> bool:
        """Tell whether a statement is one of those."""
        if self.text is not None and not self.text.search(text):
            return False
        if self.without is not None and self.without.search(text):
            return False
        if self.kinds and classification.kind.value not in self.kinds:
            return False
        if self.effects and not self.effects & classification.effects:
            return False
        if self.volatile and not self.volatile & classification.volatile:
            return False
        return self.locking is None or self.locking == classification.locking


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of a probe.

    ``session`` is 1 or more. ``asked``: its answer is what the probe is about; the others must succeed. ``waits`` are
    the seconds after which a step that has not ended is left waiting while the next one runs. ``only`` is the flavor
    that it is for, None for all.
    """

    sql: str
    session: int = 1
    asked: bool = False
    waits: float | None = None
    only: Flavor | None = None


@dataclass(frozen=True, slots=True)
class Probe:
    """Statements that find out whether an entry holds. ``noted`` is what else a reader must know of it."""

    needs: Needs
    setup: tuple[str, ...]
    steps: tuple[Step, ...]
    teardown: tuple[str, ...]
    expect: tuple[Expectations, ...]
    noted: str = ""

    @property
    def asked(self) -> tuple[Step, ...]:
        """Return the steps whose answers are compared."""
        return tuple(step for step in self.steps if step.asked)


@dataclass(frozen=True, slots=True)
class Entry:
    """One known difference.

    ``source`` and ``target`` are the versions it is known for, ``where`` is its file and line, ``seen_on`` names the
    servers on which the expected answers were seen.
    """

    id: str
    title: str
    kind: EntryClass
    explanation: str
    remedy: str
    references: tuple[str, ...]
    trigger: Trigger
    source: Range
    target: Range
    probe: Probe | None
    no_probe: str
    where: str
    seen_on: str = ""


class ProbeState(StrEnum):
    """What a probe found on the user's pair."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does not hold"  # both sides answer alike here
    CHANGED = "changed"  # a side answers otherwise than either expectation
    NOT_RUN = "not run"


class LabelState(StrEnum):
    """What a finding of a replay is called."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    BLOCKER = "blocker"


@dataclass(frozen=True, slots=True)
class Label:
    """How the catalogue calls a finding.

    ``ids`` explain at least one of its differences; ``by_difference`` has the ids per difference, in their order;
    ``unexplained`` are the indexes of those that no entry explains (empty does not mean harmless: see ``state``).
    """

    state: LabelState
    ids: tuple[str, ...]
    by_difference: tuple[tuple[str, ...], ...]
    unexplained: tuple[int, ...]

    @property
    def whole(self) -> bool:
        """Whether every difference is explained."""
        return not self.unexplained


@dataclass(frozen=True, slots=True)
class LabelQuery:
    """What a label is asked for.

    ``text`` is the statement's digest text. Errnos are 0 for success and None where a side was not asked or did not
    answer; then no error is explained by an entry that names a number on that side.
    """

    text: str
    classification: Classification
    differences: Sequence[Difference]
    source_errno: int | None = None
    target_errno: int | None = None
    source_message: str = ""
    target_message: str = ""
