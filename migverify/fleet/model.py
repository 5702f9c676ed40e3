"""The nouns of a fleet: the parts of readiness, the evidence of a service, and what it comes to. Without I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from migverify.figures import amount
from migverify.model import Verdict

if TYPE_CHECKING:
    from migverify.decision.model import Decision, ReasonKind
    from migverify.runbook.history.readiness import Readiness


class FleetPart(StrEnum):
    """What is looked at before a cutover, in the order of harm."""

    PROOF = "proof"
    WATCH = "watch"
    RULES = "rules"
    DECISION = "decision"
    SCHEMA = "schema"
    IDS = "ids"
    DRILLS = "drills"
    PEOPLE = "people"


class ServiceStanding(StrEnum):
    """What a service, or a part of it, comes to; the worst first."""

    NOT_READY = "NOT READY"
    NOT_KNOWN = "NOT KNOWN"
    READY = "READY"
    CUT_OVER = "CUT OVER"

    @property
    def verdict(self) -> Verdict:
        """The verdict with the same exit code."""
        return _VERDICTS[self]


_VERDICTS = {
    ServiceStanding.NOT_READY: Verdict.MISMATCH,
    ServiceStanding.NOT_KNOWN: Verdict.INCONCLUSIVE,
    ServiceStanding.READY: Verdict.MATCH,
    ServiceStanding.CUT_OVER: Verdict.MATCH,
}


@dataclass(frozen=True, slots=True)
class WholeRead:
    """The oldest reading of whole tables on which a proof by ``--since`` rests. ``at`` is its end; None: not known."""

    run: str
    at: float | None


@dataclass(frozen=True, slots=True)
class VerifyEvidence:
    """One verification of tables.

    Parameters
    ----------
    ended
        None: it goes on, or was cut off.
    proved_at
        As of when all its tables are known, Unix seconds: the end of the oldest run that it takes results over from,
        or the begin of a run that was resumed.
    tables, matched
        Table pairs of its plan, and how many of them were MATCH.
    mismatches
        Table pairs that differ.
    strange
        Why it says nothing about this pair and this configuration; empty: it does.
    partial
        Why it is not of all tables; empty: it is.
    chain
        The runs that it takes results over from.
    is_interrupted
        It was asked to stop before its end.
    rests_on
        The oldest whole read of tables that it did not read whole itself (``--since``); None: it read all of them.
    unrefuted
        Earlier runs in which tables differ that it did not read whole since: a change on the target alone is not seen.
    left_out
        What it does not say though it is of all chosen tables: how many are compared in part, how many are excluded.
    """

    run: str
    verdict: Verdict
    began: float
    ended: float | None
    proved_at: float | None
    tables: int
    matched: int
    mismatches: int = 0
    strange: str = ""
    partial: str = ""
    chain: tuple[str, ...] = ()
    is_interrupted: bool = False
    rests_on: WholeRead | None = None
    unrefuted: tuple[str, ...] = ()
    left_out: str = ""

    @property
    def shown_tables(self) -> str:
        """How many tables it is of, and what it leaves out."""
        return ", ".join(filter(None, (amount(self.tables, "table"), self.left_out)))

    @property
    def read(self) -> int:
        """How many of its tables are known to be equal or to differ."""
        return self.matched + self.mismatches

    @property
    def is_full_proof(self) -> bool:
        """Whether it proved all tables of this pair and configuration."""
        whole = 0 < self.tables == self.matched and not self.mismatches
        is_match = self.ended is not None and self.verdict is Verdict.MATCH
        return is_match and whole and not self.strange and not self.partial

    @property
    def can_resume(self) -> bool:
        """Whether it stopped on the way: it was asked to, was killed, or still goes on."""
        return not self.strange and (self.ended is None or self.is_interrupted)


@dataclass(frozen=True, slots=True)
class WatchEvidence:
    """The newest forward watch of tables. ``at`` is when its last status was kept; ``since`` the run it rests on.

    ``lag`` is how many seconds the target is behind; None: not known.
    """

    run: str
    state: str
    verdict: Verdict
    reason: str = ""
    at: float | None = None
    position: str = ""
    lag: float | None = None
    open_keys: int = 0
    diverged: int = 0
    since: str = ""


@dataclass(frozen=True, slots=True)
class AnswersEvidence:
    """The newest answers of rules or of a guard.

    Parameters
    ----------
    taken
        When they were given; None: not known.
    pending
        Why the run that gave them has none yet, or was cut off; empty: they are whole.
    reasons
        What does not pass.
    subjects
        How many rules, id spaces or tables were asked about.
    money
        Money at risk by currency, as exact text.
    days_left
        Least days until an id space ends; None: nothing projects it.
    fingerprint
        Of the definitions on both sides; empty: not kept.
    """

    run: str
    verdict: Verdict
    taken: float | None
    pending: str = ""
    reasons: tuple[str, ...] = ()
    subjects: int = 0
    mismatches: int = 0
    money: Mapping[str, str] = field(default_factory=dict)
    days_left: float | None = None
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class DrillsEvidence:
    """What journals show. ``done`` and ``clean`` count drills, ``last`` is the newest with its schema."""

    readiness: Readiness
    done: int = 0
    clean: int = 0
    last: str = ""
    last_schema: str = ""


@dataclass(frozen=True, slots=True)
class PeopleEvidence:
    """Who is on call, and the persons of each role that the runbook needs that night."""

    on_call: tuple[str, ...]
    roles: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ServiceEvidence:
    """All that is known of a service. ``unread`` says why a part could not be read, ``unread_remedies`` what to do.

    ``verifications`` are the newest first, back to the newest full proof. ``cut_over``: the live run that completed,
    and when; ``cut_over_doubt``: why it may not be the last word. ``closes``: when the window of its wave closes,
    Unix seconds.
    """

    service: str
    now: float
    unread: Mapping[FleetPart, str] = field(default_factory=dict)
    unread_remedies: Mapping[FleetPart, str] = field(default_factory=dict)
    verifications: tuple[VerifyEvidence, ...] = ()
    watch: WatchEvidence | None = None
    rules: AnswersEvidence | None = None
    decision: Decision | None = None
    schema: AnswersEvidence | None = None
    ids: AnswersEvidence | None = None
    drills: DrillsEvidence | None = None
    people: PeopleEvidence | None = None
    cut_over: tuple[str, float] | None = None
    cut_over_doubt: str = ""
    options: str = ""
    closes: float = float("inf")


@dataclass(frozen=True, slots=True)
class ServiceRules:
    """What counts: parts that are required, ages in seconds, the lag in seconds, and how far clocks may differ.

    ``whole_read_max_age`` None: a proof by ``--since`` may rest on a whole read of any age.
    """

    required: frozenset[FleetPart] = frozenset(FleetPart)
    proof_max_age: float = 86_400.0
    evidence_max_age: float = 7 * 86_400.0
    watch_lag: float = 60.0
    skew: float = 120.0
    whole_read_max_age: float | None = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class ServiceReason:
    """Why a service is not ready: ``HARM`` or ``DOUBT``, a sentence without its period, and the command that helps."""

    part: FleetPart
    kind: ReasonKind
    text: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {"part": self.part.value, "kind": self.kind.value, "text": self.text, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class PartState:
    """What a part comes to. ``figure`` is what a board shows; ``run`` and ``age`` (seconds) are of its evidence."""

    part: FleetPart
    standing: ServiceStanding
    required: bool
    figure: str
    run: str = ""
    age: float | None = None
    reasons: tuple[ServiceReason, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "part": self.part.value, "standing": self.standing.value, "required": self.required, "figure": self.figure,
            "run": self.run, "age_seconds": None if self.age is None else round(self.age, 1),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServiceState:
    """What a service comes to. ``reasons`` say why it is not ready, the worst first; empty where it is."""

    service: str
    standing: ServiceStanding
    parts: tuple[PartState, ...]
    reasons: tuple[ServiceReason, ...]
    sentence: str

    def part(self, part: FleetPart) -> PartState:
        """Return the state of a part."""
        return next(one for one in self.parts if one.part is part)
