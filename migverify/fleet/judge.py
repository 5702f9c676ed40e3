"""Evidence -> state of a service. There is one way to READY: every required part has evidence, fresh, whole and fine.

Pure. What is missing, unreadable, going on, cut off, too old or of the future is not known; proved harm of any part,
required or not, is NOT READY.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from migverify.config.problems import FileProblem
from migverify.decision.decide import age_text
from migverify.decision.model import ReasonKind, Standing
from migverify.figures import amount
from migverify.fleet.model import (
    AnswersEvidence,
    FleetPart,
    PartState,
    ServiceEvidence,
    ServiceReason,
    ServiceRules,
    ServiceStanding,
    ServiceState,
    VerifyEvidence,
    WholeRead,
)
from migverify.model import Verdict

_WINDOW_CLOSED = "the window of its wave closed"
HARM, DOUBT = ReasonKind.HARM, ReasonKind.DOUBT
WATCH_SECONDS = 60.0
"""A watch keeps its status every second; one that is older says nothing of now."""


@dataclass(slots=True)
class _PartFinding:
    """What a part's judge found: what the board shows of it, and every reason against it."""

    figure: str = ""
    run: str = ""
    taken: float | None = None
    reasons: list[tuple[ReasonKind, str, str]] = field(default_factory=list)

    def harm(self, text: str, remedy: str = "") -> None:
        self.reasons.append((HARM, text, remedy))

    def doubt(self, text: str, remedy: str = "") -> None:
        self.reasons.append((DOUBT, text, remedy))


def judge(evidence: ServiceEvidence, rules: ServiceRules | None = None) -> ServiceState:
    """Return what a service comes to, and in one sentence why it is not ready.

    Reasons are in the order of harm: what is proved before what is not known, then by part.
    """
    rules = rules or ServiceRules()
    parts = tuple(_part(part, evidence, rules) for part in FleetPart)
    counted = [
        reason
        for kind in (HARM, DOUBT)
        for part in parts
        for reason in part.reasons
        if reason.kind is kind and (kind is HARM or part.required)
    ]
    if not rules.required:
        counted.append(ServiceReason(FleetPart.PROOF, DOUBT, "nothing is required, so nothing is proved"))
    if evidence.cut_over_doubt:
        counted.insert(0, ServiceReason(FleetPart.DRILLS, DOUBT, evidence.cut_over_doubt))
    if evidence.cut_over is not None:
        run, _ = evidence.cut_over
        return ServiceState(evidence.service, ServiceStanding.CUT_OVER, parts, (), f"The cutover is done (run {run}).")
    standing = _whole(parts, rules, counted)
    sentence = _ready(evidence) if standing is ServiceStanding.READY else _sentence(counted, rules)
    return ServiceState(evidence.service, standing, parts, tuple(counted), sentence)


def wrong_entry(
    service: str, file: str, problems: Sequence[FileProblem], required: frozenset[FleetPart]
) -> ServiceState:
    """Return what a service comes to whose entry in the fleet file is wrong: nothing of it is judged.

    The reasons are of the proof, the first part: published JSON knows no other than these parts.
    """
    texts = [f"{one.words}, line {one.order[0]}" for one in problems]
    reasons = tuple(
        ServiceReason(FleetPart.PROOF, HARM, f"its entry is wrong: {text}", one.hint or f"Correct it in {file}.")
        for text, one in zip(texts, problems, strict=True)
    )
    parts = tuple(PartState(part, ServiceStanding.NOT_KNOWN, part in required, "not known") for part in FleetPart)
    sentence = f"its entry in {file} is wrong: {'; '.join(texts)}."
    return ServiceState(service, ServiceStanding.NOT_READY, parts, reasons, sentence)


def _whole(parts: tuple[PartState, ...], rules: ServiceRules, reasons: list[ServiceReason]) -> ServiceStanding:
    if any(reason.kind is HARM for reason in reasons):
        return ServiceStanding.NOT_READY
    required = [part for part in parts if part.part in rules.required]
    whole = bool(required) and len(required) == len(rules.required)
    fine = whole and not reasons and all(part.standing is ServiceStanding.READY for part in required)
    return ServiceStanding.READY if fine else ServiceStanding.NOT_KNOWN


def _ready(evidence: ServiceEvidence) -> str:
    proof = newest_proof(evidence)
    notes = []
    if proof is not None and proof.rests_on is not None:
        read = whole_read_words(proof.rests_on, evidence.now)
        notes.append(f"the proof read what the source wrote since, and rests on a {read}")
    if proof is not None and proof.left_out:
        notes.append(f"the proof is of {proof.shown_tables}")
    return f"{'; '.join(('Every required part is proved', *notes))}."


def whole_read_words(read: WholeRead, now: float) -> str:
    """Return how old the oldest whole read is that a proof by ``--since`` rests on."""
    return "whole read of unknown age" if read.at is None else f"whole read {age_text(now - read.at)} old"


def _sentence(reasons: list[ServiceReason], rules: ServiceRules) -> str:
    first = reasons[0] if reasons else ServiceReason(FleetPart.PROOF, DOUBT, "nothing is proved")
    more = f" (and {len(reasons) - 1:,} more)" if len(reasons) > 1 else ""
    return f"{reason_words(first, required=first.part in rules.required)}{more}."


def reason_words(reason: ServiceReason, *, required: bool) -> str:
    """Return a reason with its part, and why it counts where that part is not required."""
    if reason.text.startswith(_WINDOW_CLOSED):
        return f"Window: {reason.text}"  # published with the part people, which is of the night
    is_extra = reason.kind is HARM and not required
    why = "; this part is not required, and what it shows to be wrong counts" if is_extra else ""
    return f"{reason.part.value.capitalize()}: {reason.text}{why}"


def _part(part: FleetPart, evidence: ServiceEvidence, rules: ServiceRules) -> PartState:
    found = _PartFinding("not known")
    if part in evidence.unread:
        found.doubt(evidence.unread[part], evidence.unread_remedies.get(part, ""))
    else:
        found = _JUDGES[part](evidence, rules)
    if part is FleetPart.PEOPLE:
        _note_end_of_window(found, evidence)
    kinds = {kind for kind, _, _ in found.reasons}
    standing = (
        ServiceStanding.NOT_READY if HARM in kinds
        else ServiceStanding.NOT_KNOWN if DOUBT in kinds
        else ServiceStanding.READY
    )  # fmt: skip
    reasons = tuple(ServiceReason(part, kind, text, remedy) for kind, text, remedy in found.reasons)
    age = None if found.taken is None or not math.isfinite(found.taken) else evidence.now - found.taken
    return PartState(part, standing, part in rules.required, found.figure, found.run, age, reasons)


def _untimely(taken: float | None, evidence: ServiceEvidence, most: float, skew: float) -> Iterator[str]:
    """Yield why evidence is too old, or of a time that cannot be."""
    if taken is None or not math.isfinite(taken):
        yield "it is not known of when it is"
        return
    age = evidence.now - taken
    if age < -skew:
        yield f"it is {age_text(-age)} ahead of now: a clock is wrong"
    elif not age <= most:
        is_close = most < 60 or age_text(age) == age_text(most)  # "0 min old, and 0 min are allowed" says nothing
        words = age_or_seconds if is_close else age_text
        yield f"it is {words(age)} old, and {words(most)} are allowed"


def newest_proof(evidence: ServiceEvidence) -> VerifyEvidence | None:
    """Return the newest full proof: ended, MATCH, of this pair, this configuration and all of its tables."""
    return next((one for one in evidence.verifications if one.is_full_proof), None)


def _proof(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    again = f"migverify tables verify{evidence.options}"
    proof, found = newest_proof(evidence), _PartFinding("none")
    for one in evidence.verifications:
        # A run of all tables replaces what those before it found to differ; a recheck does not count a table again.
        if one is proof or _newer(one, found, evidence, rules):
            break
    if proof is None:
        newest = evidence.verifications[0] if evidence.verifications else None
        found.run = found.run or (newest.run if newest is not None else "")
        if not any(_differs(one) and not one.partial for one in evidence.verifications):
            found.doubt(_no_proof(newest), again)
        return found
    for run in proof.unrefuted:
        found.harm(f"tables differ in run {run}, and proof {proof.run} did not read them whole since", again)
    if not found.run:
        found.figure, found.run, found.taken = f"MATCH, {proof.shown_tables}", proof.run, proof.proved_at
    # A change on the target alone is in no binlog: where tables differ, --since helps nothing.
    since = again if found.reasons else f"migverify tables verify --since {proof.run}{evidence.options}"
    for text in _untimely(proof.proved_at, evidence, rules.proof_max_age, rules.skew):
        found.doubt(f"the last full proof does not count: {text}", since)
    if proof.rests_on is not None and rules.whole_read_max_age is not None:
        for text in _untimely(proof.rests_on.at, evidence, rules.whole_read_max_age, rules.skew):
            found.doubt(f"the last whole read, run {proof.rests_on.run}, does not count: {text}", again)
    return found


def _differs(one: VerifyEvidence) -> bool:
    return not one.strange and bool(one.mismatches or one.verdict is Verdict.MISMATCH)


def _newer(one: VerifyEvidence, found: _PartFinding, evidence: ServiceEvidence, rules: ServiceRules) -> bool:
    """Note what a verification newer than the proof shows; return whether it says of all tables which differ."""
    again = f"migverify tables verify{evidence.options}"
    if one.strange:
        return False
    if _differs(one):
        count = max(1, one.mismatches)
        tables = "1 table differs" if count == 1 else f"{count:,} tables differ"
        if not found.run:
            found.figure, found.run, found.taken = "MISMATCH", one.run, one.ended
        found.harm(f"{tables} in run {one.run}", f"migverify tables diff {one.run}{evidence.options}")
        return not one.partial and one.ended is not None
    if one.can_resume:
        how = "was interrupted" if one.is_interrupted else "goes on, or was cut off"
        is_young = evidence.now - one.began <= rules.proof_max_age  # resumed, it is as old as its begin
        found.doubt(f"verification {one.run} {how}", f"{again} --resume {one.run}" if is_young else again)
    elif one.verdict is Verdict.INCONCLUSIVE and not one.partial:
        left = one.tables - one.matched
        found.doubt(f"verification {one.run} left {left:,} of {amount(one.tables, 'table')} INCONCLUSIVE",
                    f"{again} --recheck {one.run}")  # fmt: skip
    return False


def _no_proof(newest: VerifyEvidence | None) -> str:
    if newest is None:
        return "the store holds no verification of this pair"
    if newest.strange:
        return f"there is no full proof: run {newest.run} does not count, as {newest.strange}"
    if newest.partial:
        return f"there is no full proof: run {newest.run} does not count, as {newest.partial}"
    if newest.verdict is Verdict.MATCH and newest.ended is not None:
        return f"there is no full proof: run {newest.run} has {newest.matched:,} of {amount(newest.tables, 'table')}"
    return "there is no full proof of the tables"


def _watch(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    watch, found = evidence.watch, _PartFinding("none")
    begin = f"migverify tables watch --since last{evidence.options}"
    if watch is None:
        found.doubt("the store holds no watch of this pair", begin)
        return found
    found.figure, found.run, found.taken = f"{watch.verdict.value}, {watch.state}", watch.run, watch.at
    if watch.state == "not alive" and watch.verdict is Verdict.INCONCLUSIVE:
        found.figure = watch.state
    if watch.diverged or watch.verdict is Verdict.MISMATCH:
        count = max(1, watch.diverged)
        keys = "1 key differs for good" if count == 1 else f"{count:,} keys differ for good"
        found.harm(f"{keys} in watch {watch.run}", f"migverify tables diff {watch.run}{evidence.options}")
    if watch.state != "alive":
        again = f"migverify tables watch --resume {watch.run}{evidence.options}"
        found.doubt(f"watch {watch.run} does not run ({watch.state})", begin if watch.state == "ended" else again)
        return found
    for text in _untimely(watch.at, evidence, WATCH_SECONDS, rules.skew):
        found.doubt(f"the status of watch {watch.run} does not count: {text}")
    if watch.verdict is Verdict.INCONCLUSIVE:
        found.doubt(f"watch {watch.run} is INCONCLUSIVE: {watch.reason or 'it names no reason'}")
    if watch.lag is None or not watch.lag <= rules.watch_lag:
        behind = "an unknown time" if watch.lag is None or math.isnan(watch.lag) else age_or_seconds(watch.lag)
        found.doubt(f"the target is {behind} behind, and {age_or_seconds(rules.watch_lag)} are allowed")
    return found


def age_or_seconds(seconds: float) -> str:
    """Return a time in seconds where it is short, else in minutes, hours or days."""
    return f"{seconds:.1f} s".replace(".0 s", " s") if seconds < 120 else age_text(seconds)


def _answers(
    what: str, answers: AnswersEvidence | None, again: str, evidence: ServiceEvidence, rules: ServiceRules
) -> _PartFinding:
    """Judge answers of rules or of a guard."""
    found = _PartFinding("none")
    if answers is None:
        found.doubt(f"the store holds no answers about {what}", again)
        return found
    found.figure, found.run, found.taken = answers.verdict.value, answers.run, answers.taken
    first = answers.reasons[0] if answers.reasons else f"run {answers.run} names no reason"
    if answers.mismatches or answers.verdict is Verdict.MISMATCH:
        found.harm(first, f"migverify report {answers.run}{evidence.options}")
    elif answers.verdict is Verdict.INCONCLUSIVE:
        found.doubt(f"run {answers.run} is INCONCLUSIVE: {first}", again)
    elif not answers.subjects:
        found.doubt(f"run {answers.run} asked about nothing", again)
    if answers.pending:
        found.doubt(answers.pending, again)
    for text in _untimely(answers.taken, evidence, rules.evidence_max_age, rules.skew):
        found.doubt(f"run {answers.run} does not count: {text}", again)
    return found


def _rules(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    again = f"migverify recon run RULES{evidence.options}"
    found, answers = _answers("rules", evidence.rules, again, evidence, rules), evidence.rules
    if answers is not None and (risk := {unit: text for unit, text in answers.money.items() if _is_money(text)}):
        shown = ", ".join(f"{text} {unit}".strip() for unit, text in sorted(risk.items()))
        found.figure = f"{answers.verdict.value}, {shown} at risk"
        if answers.verdict is Verdict.MATCH:
            found.harm(f"{shown} is at risk in run {answers.run}")
    return found


def _is_money(text: str) -> bool:
    return bool(text.strip("-0.")) if text else False


def _decision(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    del rules
    decision, found = evidence.decision, _PartFinding("none")
    again = f"migverify workload decision{evidence.options}"
    if decision is None:
        found.doubt("nothing is decided: the configuration names no capture (decision.capture)", again)
        return found
    found.figure = decision.standing.value
    taken = [part.evidence.taken for part in decision.parts if part.required and part.evidence.taken is not None]
    found.taken = min(taken, default=None)
    first = decision.reasons[0] if decision.reasons else None
    why = f"{first.part.words}: {first.reason.text}" if first is not None else "it names no reason"
    text = f"{decision.standing.value}: {why}"
    remedy = first.reason.remedy if first is not None and first.reason.remedy else again
    if decision.standing is Standing.NO_GO:
        found.harm(text, remedy)
    elif decision.standing is not Standing.GO or decision.reasons:
        found.doubt(text, remedy)
    return found


def _schema(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    again = f"migverify guard schema{evidence.options}"
    found = _answers("definitions", evidence.schema, again, evidence, rules)
    now, drills = evidence.schema, evidence.drills
    if now is None:
        return found
    if not now.fingerprint:
        found.doubt(f"run {now.run} does not say which definitions it saw", again)
    elif drills is None or not drills.last:
        found.doubt("there is no drill to compare the definitions with", "Hold a drill.")
    elif not drills.last_schema:
        found.doubt(f"drill {drills.last} does not say on which definitions it ran", "Hold a drill.")
    elif drills.last_schema != now.fingerprint:
        found.figure = "changed since the last drill"
        found.harm(f"definitions changed since drill {drills.last}", "Hold a drill on the definitions of now.")
    return found


def _ids(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    found = _answers("id spaces", evidence.ids, f"migverify guard ids{evidence.options}", evidence, rules)
    ids = evidence.ids
    if ids is not None and ids.days_left is not None:
        found.figure = f"{ids.days_left:,.0f} days left"
        if not ids.days_left > 0:
            found.harm(f"an id space has ended (run {ids.run})")
    elif ids is not None and ids.verdict is Verdict.MATCH:
        found.figure = "no end known"
    return found


def _drills(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    drills, found = evidence.drills, _PartFinding("none")
    if drills is None:
        found.doubt("no runbook is named, so no drill is known", "Name its runbook in the fleet file.")
        return found
    found.figure, found.run = f"{drills.clean:,} of {drills.done:,} clean", drills.last
    unmet = drills.readiness.unmet
    # Where the decision is required as a part of its own, what is against it is said there.
    is_open = evidence.decision is not None and evidence.decision.standing is not Standing.GO
    is_said = is_open and FleetPart.DECISION in rules.required
    # A runbook that is named for its forecast alone: a drill that nobody held shows nothing to be wrong.
    is_held = bool(drills.done or drills.readiness.not_counted)
    counts = is_held or FleetPart.DRILLS in rules.required
    for one in unmet:
        if one.id == "decision" and is_said:
            continue
        why = one.reasons[0] if one.reasons else one.found
        note = found.harm if one.is_missing and counts else found.doubt
        note(why if one.id == FleetPart.DRILLS else f"{one.id}: {why}", one.do)
    if not drills.readiness.ready and not unmet:
        found.doubt("the runbook is not ready, and names no reason")
    return found


def _people(evidence: ServiceEvidence, rules: ServiceRules) -> _PartFinding:
    del rules
    people, found = evidence.people, _PartFinding("none")
    if people is None:
        found.doubt("no runbook is named, so it is not known who is needed", "Name its runbook in the fleet file.")
        return found
    found.figure = ", ".join(people.on_call) or "nobody"
    if not people.on_call:
        found.doubt("the fleet file names nobody on call", "Name people under on_call in the fleet file.")
        return found
    if not people.roles:
        found.doubt("the runbook names nobody")
    there = {name.casefold() for name in people.on_call}
    missing = [f"{persons[0]} ({role})" for role, persons in people.roles.items()
               if persons and not there & {one.casefold() for one in persons}]  # fmt: skip
    if missing:
        who = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        found.harm(f"not on call: {who}", "Name them, or whoever steps in, under on_call in the fleet file.")
    return found


def _note_end_of_window(found: _PartFinding, evidence: ServiceEvidence) -> None:
    """Note that the night is over: whoever was on call, and all that was proved, was so for it."""
    over = evidence.now - evidence.closes
    if over >= 0:
        found.harm(f"{_WINDOW_CLOSED} {age_text(over)} ago, and it is not cut over",
                   "Give the wave another window, or the service another wave, in the fleet file.")  # fmt: skip


_JUDGES: dict[FleetPart, Callable[[ServiceEvidence, ServiceRules], _PartFinding]] = {
    FleetPart.PROOF: _proof,
    FleetPart.WATCH: _watch,
    FleetPart.RULES: _rules,
    FleetPart.DECISION: _decision,
    FleetPart.SCHEMA: _schema,
    FleetPart.IDS: _ids,
    FleetPart.DRILLS: _drills,
    FleetPart.PEOPLE: _people,
}
