"""The nouns of a decision: its parts, what evidence rests on, reasons in the order of harm, and the decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from migverify.model import Verdict

BASIS = "basis"
"""Fact of a run: what its evidence rests on."""


class DecisionPart(StrEnum):
    """What is looked at before a cutover, in the order of harm: docs/decision.md argues it."""

    ANSWERS = "answers"
    ANOMALIES = "anomalies"
    LATENCY = "latency"
    PLANS = "plans"
    HOTSPOTS = "hotspots"
    CONFLICTS = "conflicts"
    CLIENTS = "clients"

    @property
    def words(self) -> str:
        """What people read."""
        return _WORDS.get(self, self.value)


_WORDS = {DecisionPart.LATENCY: "latency forecast", DecisionPart.HOTSPOTS: "hot spots"}
HARM_ORDER = tuple(DecisionPart)
"""From the worst to the least."""


class Standing(StrEnum):
    """What a part, or the whole, comes to; the worst first."""

    NO_GO = "NO-GO"
    NOT_KNOWN = "NOT KNOWN"
    GO = "GO"

    @property
    def verdict(self) -> Verdict:
        """The verdict with the same exit code."""
        return _VERDICTS[self]


_VERDICTS = {
    Standing.NO_GO: Verdict.MISMATCH,
    Standing.NOT_KNOWN: Verdict.INCONCLUSIVE,
    Standing.GO: Verdict.MATCH,
}


class ReasonKind(StrEnum):
    """What a reason is: harm that a run proved, something not known, or harm that somebody accepted."""

    HARM = "harm"
    DOUBT = "not known"
    WAIVED = "waived"


@dataclass(frozen=True, slots=True)
class Basis:
    """What evidence rests on; evidence of another one says nothing about the service.

    Parameters
    ----------
    pair
        ``host:port`` by the name of the endpoint: sources and target.
    versions
        The servers' versions by the name of the endpoint.
    schema
        Hash of the definitions on both sides.
    configuration
        Hash of what the configuration says about tables, routes, sessions and service levels.
    capture
        Identity of the capture; empty for evidence that rests on none.
    identities
        Which server answered, by the name of the endpoint; without one where the server does not tell, and in
        evidence of earlier releases.
    tables
        What ``schema`` is made of, to name what changed: by ``endpoint database.table`` short hashes of its columns
        and indexes, and under the empty name that of the whole table.
    settings
        What ``configuration`` is made of, to name what changed; secrets are masked.
    """

    pair: Mapping[str, str]
    versions: Mapping[str, str]
    schema: str
    configuration: str
    capture: str = ""
    identities: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object: what a run keeps under ``basis`` among its facts."""
        return {
            "pair": dict(self.pair), "versions": dict(self.versions), "schema": self.schema,
            "configuration": self.configuration, "capture": self.capture, "identities": dict(self.identities),
            "tables": {name: dict(parts) for name, parts in self.tables.items()}, "settings": dict(self.settings),
        }  # fmt: skip

    def shown(self) -> dict[str, Any]:
        """Return ``as_json`` without what only names a change: hashes of columns and indexes, and settings."""
        return {name: body for name, body in self.as_json().items() if name not in ("tables", "settings")}

    @classmethod
    def from_json(cls, body: object) -> Basis | None:
        """Return what ``as_json`` gave; None where it is not whole: it proves nothing then."""
        if not isinstance(body, Mapping):
            return None
        pair, versions = body.get("pair"), body.get("versions")
        texts = [body.get(name) for name in ("schema", "configuration", "capture")]
        if not isinstance(pair, Mapping) or not isinstance(versions, Mapping):
            return None
        if not all(isinstance(text, str) for text in texts) or not texts[0] or not texts[1]:
            return None
        schema, configuration, capture = map(str, texts)
        tables = body.get("tables")
        return cls(
            _texts(pair), _texts(versions), schema, configuration, capture, _texts(body.get("identities")),
            {str(name): _texts(parts) for name, parts in tables.items()} if isinstance(tables, Mapping) else {},
            _texts(body.get("settings")),
        )  # fmt: skip


def basis_of(facts: Mapping[str, Any]) -> Basis | None:
    """Return the basis among the facts of a run; None where there is none."""
    return Basis.from_json(facts.get(BASIS))


def _texts(body: object) -> dict[str, str]:
    return {str(name): str(text) for name, text in body.items()} if isinstance(body, Mapping) else {}


@dataclass(frozen=True, slots=True)
class EvidenceReason:
    """One reason of a part.

    Parameters
    ----------
    remedy
        The command or SQL that mends it, or that gives what is not known.
    weight
        Orders the reasons of a part: calls, seconds, rows; the greatest first.
    waiver
        Who accepted it, until when and why; for ``WAIVED`` alone.
    run
        The run that showed it, where it is another one than the part's.
    """

    kind: ReasonKind
    text: str
    remedy: str = ""
    weight: float = 0.0
    waiver: str = ""
    run: str = ""


@dataclass(frozen=True, slots=True)
class PartEvidence:
    """What the run store holds about a part.

    Parameters
    ----------
    run
        The run that it comes from; empty where there is none.
    taken
        When what it saw was over, Unix seconds; None where that is not known.
    began
        When the run began.
    basis
        What the run rests on; None where it does not say so.
    needs_capture
        Whether the part is about a capture.
    reasons
        What it found, and what it left open. Without harm and doubt, everything that was looked at is fine.
    covered
        What it looked at, in words.
    again
        The command that gives new evidence.
    """

    part: DecisionPart
    run: str = ""
    taken: float | None = None
    began: float | None = None
    basis: Basis | None = None
    needs_capture: bool = True
    reasons: tuple[EvidenceReason, ...] = ()
    covered: str = ""
    again: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRules:
    """What counts as evidence.

    Parameters
    ----------
    required
        Parts without which there is no GO. Harm of the others counts all the same.
    max_age
        Seconds after which evidence is stale.
    clones
        Further pairs, addresses by endpoint: rehearsal clones, whose evidence counts.
    skew
        Seconds by which clocks may differ before evidence is taken to be of the future.
    """

    required: frozenset[DecisionPart] = frozenset(DecisionPart)
    max_age: float = 7 * 86_400.0
    clones: tuple[Mapping[str, str], ...] = ()
    skew: float = 120.0


@dataclass(frozen=True, slots=True)
class DecisionEvidence:
    """All that a decision is made of. ``basis``: what is there now; None: it could not be read, and ``unread`` why."""

    now: float
    basis: Basis | None
    parts: tuple[PartEvidence, ...]
    unread: str = ""


@dataclass(frozen=True, slots=True)
class DecisionReason:
    """A reason of the whole: its part, and the run it comes from."""

    part: DecisionPart
    run: str
    reason: EvidenceReason

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        one = self.reason
        return {
            "part": self.part.value, "kind": one.kind.value, "text": one.text, "remedy": one.remedy, "run": self.run,
            **({"waiver": one.waiver} if one.waiver else {}),
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PartDecision:
    """What a part comes to. ``age`` is that of its evidence in seconds, None where there is none."""

    part: DecisionPart
    standing: Standing
    required: bool
    evidence: PartEvidence
    age: float | None
    reasons: tuple[DecisionReason, ...]

    def of_kind(self, kind: ReasonKind) -> tuple[DecisionReason, ...]:
        """Return its reasons of one kind."""
        return tuple(one for one in self.reasons if one.reason.kind is kind)

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "part": self.part.value, "decision": self.standing.value, "required": self.required,
            "run": self.evidence.run, "taken": self.evidence.taken,
            "age_seconds": None if self.age is None else round(self.age, 1), "covered": self.evidence.covered,
            "again": self.evidence.again, "reasons": [one.as_json() for one in self.reasons],
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether the service may cut over. ``reasons``: why not, the worst first; empty with GO.

    ``unread``: why it is not known what is there now.
    """

    standing: Standing
    now: float
    parts: tuple[PartDecision, ...]
    reasons: tuple[DecisionReason, ...] = ()
    basis: Basis | None = None
    rules: DecisionRules = field(default_factory=DecisionRules)
    unread: str = ""

    @property
    def verdict(self) -> Verdict:
        """The verdict with the same exit code."""
        return self.standing.verdict

    def as_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "kind": "decision", "decision": self.standing.value, "verdict": self.verdict.value,
            "exit_code": int(self.verdict.exit_code), "at": self.now, "max_age_seconds": self.rules.max_age,
            "required": [part.value for part in DecisionPart if part in self.rules.required],
            "basis": None if self.basis is None else self.basis.shown(), "unread": self.unread,
            "reasons": [f"{one.part.words}: {one.reason.text}" for one in self.reasons],
            "why": [one.as_json() for one in self.reasons], "parts": [one.as_json() for one in self.parts],
        }  # fmt: skip
