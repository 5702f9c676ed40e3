"""Evidence -> decision. There is one way to GO: every required part has evidence, fresh, of this service, and fine."""

from __future__ import annotations

import math
from collections.abc import Iterator

from migverify.decision.differences import differences
from migverify.decision.model import (
    HARM_ORDER,
    Decision,
    DecisionEvidence,
    DecisionPart,
    DecisionReason,
    DecisionRules,
    EvidenceReason,
    PartDecision,
    PartEvidence,
    ReasonKind,
    Standing,
)

_KINDS = (ReasonKind.HARM, ReasonKind.DOUBT, ReasonKind.WAIVED)
_DAY, _HOUR = 86_400.0, 3_600.0


def decide(evidence: DecisionEvidence, rules: DecisionRules | None = None) -> Decision:
    """Return the decision. Proven harm of any part is NO-GO; anything that is not known of a required part, NOT KNOWN.

    Reasons are ordered by kind (harm, then what is not known), by the harm that their part does, by their weight and
    by their text, so that the same evidence in any order gives the same page.
    """
    rules = rules or DecisionRules()
    by_part = {one.part: one for one in evidence.parts}
    parts = tuple(_part(by_part.get(part, PartEvidence(part)), evidence, rules) for part in HARM_ORDER)
    standing = _whole(parts, rules)
    counted = [
        reason
        for kind in (ReasonKind.HARM, ReasonKind.DOUBT)
        for part in parts
        for reason in part.of_kind(kind)
        if kind is ReasonKind.HARM or part.required
    ]
    if not rules.required:
        counted.append(_nothing_required())
    return Decision(standing, evidence.now, parts, tuple(counted), evidence.basis, rules, evidence.unread)


def _whole(parts: tuple[PartDecision, ...], rules: DecisionRules) -> Standing:
    if any(part.standing is Standing.NO_GO for part in parts):
        return Standing.NO_GO
    required = [part for part in parts if part.required]
    fine = required and len(required) == len(rules.required) and all(one.standing is Standing.GO for one in required)
    return Standing.GO if fine else Standing.NOT_KNOWN


def _nothing_required() -> DecisionReason:
    text = "no part is required, so nothing is proved"
    return DecisionReason(
        DecisionPart.ANSWERS, "", EvidenceReason(ReasonKind.DOUBT, text, "name parts in decision.parts")
    )


def _part(found: PartEvidence, evidence: DecisionEvidence, rules: DecisionRules) -> PartDecision:
    age = None if found.taken is None else evidence.now - found.taken
    other = tuple(_another(found, evidence, rules))
    doubts = (*other, *_untimely(found, evidence.now, rules))
    own = tuple(one for one in found.reasons if not other or one.kind is ReasonKind.DOUBT or _of_another(one, found))
    if other and len(own) < len(found.reasons):
        text = f"what that run found ({len(found.reasons) - len(own):,}) is not counted: it is not of this service now"
        doubts = (*doubts, EvidenceReason(ReasonKind.DOUBT, text, found.again, weight=-1.0))
    reasons = [DecisionReason(found.part, one.run or found.run, one) for one in (*own, *doubts)]
    reasons.sort(key=_order)
    kinds = {one.reason.kind for one in reasons}
    standing = (
        Standing.NO_GO if ReasonKind.HARM in kinds
        else Standing.NOT_KNOWN if ReasonKind.DOUBT in kinds
        else Standing.GO
    )  # fmt: skip
    return PartDecision(found.part, standing, found.part in rules.required, found, age, tuple(reasons))


def _of_another(reason: EvidenceReason, found: PartEvidence) -> bool:
    """Whether another run than the part's showed it; what that one rests on was compared when it was read."""
    return reason.run not in ("", found.run)


def _order(one: DecisionReason) -> tuple[int, float, str, str, str]:
    reason = one.reason
    weight = 0.0 if math.isnan(reason.weight) else reason.weight
    return _KINDS.index(reason.kind), -weight, reason.text, reason.remedy, one.run


def _another(found: PartEvidence, evidence: DecisionEvidence, rules: DecisionRules) -> Iterator[EvidenceReason]:
    """Yield why the evidence is not of this service as it is now."""

    def doubt(text: str) -> EvidenceReason:
        return EvidenceReason(ReasonKind.DOUBT, text, found.again, weight=math.inf)

    if not found.run:
        yield doubt("there is no evidence")
        return
    if evidence.basis is None:
        yield doubt(f"what is there now could not be read: {evidence.unread or 'no reason given'}")
        return
    if found.basis is None:
        yield doubt("the run does not say on which servers, definitions, configuration and capture it rests")
        return
    found_differences = differences(
        found.basis, evidence.basis, rules.clones, found.part, needs_capture=found.needs_capture
    )  # fmt: skip
    yield from map(doubt, found_differences)


def _untimely(found: PartEvidence, now: float, rules: DecisionRules) -> Iterator[EvidenceReason]:
    """Yield why the evidence is too old, or of a time that cannot be."""
    if not found.run:
        return
    doubt = ReasonKind.DOUBT
    if found.taken is None or not math.isfinite(found.taken):
        yield EvidenceReason(doubt, "it is not known of when the evidence is", found.again)
        return
    age = now - found.taken
    if age < -rules.skew:
        text = f"the evidence is {age_text(-age)} ahead of now: a clock is wrong"
        yield EvidenceReason(doubt, text, "set the clock of this machine, or of the one that made the evidence")
    elif found.began is not None and found.began > found.taken + rules.skew:
        yield EvidenceReason(doubt, "the run ended before it began: a clock is wrong", found.again)
    elif not age <= rules.max_age:
        yield EvidenceReason(doubt, f"the evidence is {age_text(age)} old, {age_text(rules.max_age)} are allowed",
                             found.again)  # fmt: skip


def age_text(seconds: float) -> str:
    """Return a time in days, hours or minutes."""
    if seconds >= 2 * _DAY:
        return f"{seconds / _DAY:.1f} days".replace(".0 ", " ")
    if seconds >= 2 * _HOUR:
        return f"{seconds / _HOUR:.1f} h".replace(".0 ", " ")
    return f"{max(0.0, seconds) / 60:.0f} min"
