"""Who may do what in a run. Pure rules: the same ones refuse a command and call an event in a journal illegal.

A name counts only when the runbook declares it; all names of one person are that one person. Four eyes on one laptop
are only as good as the identities: a run says which approvals were unsigned, and which persons used one login.
"""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections.abc import Iterable, Sequence

from migverify.runbook.cast import Cast
from migverify.runbook.clock import Moment
from migverify.runbook.model import Person, Step
from migverify.runbook.record.chain import canonical
from migverify.runbook.state import Given, RunStatus, StepStatus, between

__all__ = [
    "CLOCK_SKEW",
    "Cast",
    "agreement",
    "approval_hash",
    "binding",
    "doers",
    "fresh",
    "identity_problems",
    "may_accept",
    "may_approve",
    "may_call",
    "may_start",
    "missing_approvals",
    "promotion",
    "same_name",
    "shared_logins",
    "undoing",
    "why_not_promote",
]  # fmt: skip

COORDINATOR, DECISION_OWNER, DRI, REVIEWER = "coordinator", "decision_owner", "dri", "reviewer"
CLOCK_SKEW = 5.0
"""Seconds by which the wall clocks of two machines may differ."""

_INVISIBLE = {"Cf", "Cc", "Zs", "Zl", "Zp", "Mn"}
# Letters of other scripts that are drawn as Latin ones, enough for names that are typed to deceive.
_LOOKS = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u043a\u043c\u0442\u043d\u0432"
    "\u03b1\u03bf\u03c1\u03bd\u03b9\u03ba\u03c5\u03c4\u0131",
    "aeopcyxijsdkmtnbaopvikuti",
)


def same_name(name: str) -> str:
    """Return a name as it is compared: case, width, marks, spaces and look-alike letters do not tell people apart."""
    decomposed = unicodedata.normalize("NFKD", name).casefold()
    kept = "".join(letter for letter in decomposed if unicodedata.category(letter) not in _INVISIBLE)
    return kept.translate(_LOOKS).translate(str.maketrans("", "", "._-"))


def identity_problems(people: Iterable[Person]) -> list[str]:
    """Return where two declared people may be one: by name, alias or key."""
    owners: dict[str, str] = {}
    problems = []
    for person in people:
        signs = {same_name(name) for name in (person.name, *person.aliases)}
        key = " ".join(person.ssh_key.split()[:2])
        for sign in sorted(signs | ({f"key {key}"} if key else set())):
            if not sign:
                problems.append(f"person {person.name!r} has a name without a letter")
            elif owners.setdefault(sign, person.name) != person.name:
                problems.append(f"{owners[sign]} and {person.name} share {'a key' if ' ' in sign else 'a name'}")
    return problems


def binding(status: RunStatus, of: str, step: str = "", answer: str = "") -> str:
    """Return the hash that an approval signs: this run, attempt and purpose, the step's hashes and its evidence.

    So an approval says nothing about another run, attempt, step or evidence, nor about other values of
    parameters. One of a whole run (``takeover``, ``resume``) is bound to the epoch and to the number of holds.
    """
    signed: dict[str, object] = {
        "run": status.run, "runbook": status.runbook.sha, "began": status.began, "of": of, "answer": answer,
    }  # fmt: skip
    if step:
        one, definition = status.steps[step], status.definition(step)
        signed |= {
            "step": step, "attempt": one.attempt, "step_sha": definition.sha, "filled_sha": definition.filled_sha,
            "evidence": one.evidence_sha,
            # Before the start the step moves on by itself; a waiver is of this trouble, not of the next.
            "state": "" if of in ("start", "done") else one.state.value,
        }  # fmt: skip
    else:
        signed |= {"epoch": status.epoch, "holds": status.holds}
    return hashlib.sha256(canonical(signed)).hexdigest()


def undoing(status: RunStatus, steps: Sequence[str], then: str) -> str:
    """Return what two persons agree to when they order a rollback: what is undone of which attempts, and what follows.

    It is in words, with the hash of the steps' definitions and of where each of them is now.
    """
    places = [
        [id_, status.steps[id_].attempt, status.steps[id_].order, status.steps[id_].rollback.value,
         status.definition(id_).sha, status.definition(id_).filled_sha]
        for id_ in steps
    ]  # fmt: skip
    return f"undo {', '.join(steps)}, then {then}: {hashlib.sha256(canonical([places, then])).hexdigest()[:16]}"


def approval_hash(status: RunStatus, step: str, of: str = "done") -> str:
    """Return what the approval before the start (``start``) or of the evidence (``done``) of a step signs."""
    return binding(status, of, step)


def fresh(given: Moment, now: Moment, ttl: float) -> str:
    """Return why an approval given then does not count now; empty: it does."""
    if not math.isfinite(ttl) or ttl <= 0:
        return f"sign_off_ttl is {ttl}: no approval can be fresh"
    if given.boot != now.boot and given.wall - now.wall > CLOCK_SKEW:
        return "it was given in the future"
    if given.boot == now.boot and given.mono > now.mono:
        return "it was given in the future"
    age = between(given, now).seconds
    return f"it is {age:.0f} s old, and lapses after {ttl:.0f} s" if age > ttl else ""


def _known(cast: Cast, actor: str) -> tuple[str, str]:
    person = cast.person(actor)
    if person is None:
        return "", f"{actor!r} is none of the runbook's people"
    return person, ""


def _acts_as(cast: Cast, actor: str, part: str, what: str) -> tuple[str, str]:
    person, why = _known(cast, actor)
    if why:
        return "", why
    holders = cast.holders(part)
    if not holders:
        return "", f"nobody is {part} in this run"
    if person not in holders:
        return "", f"{person} may not {what}: that is for {part} ({', '.join(holders)})"
    return person, ""


def may_call(status: RunStatus, actor: str) -> tuple[str, str]:
    """Return (person, "") when the actor may call steps, else ("", why not)."""
    return _acts_as(status.cast, actor, COORDINATOR, "call a step")


def may_lead(status: RunStatus, actor: str, what: str) -> tuple[str, str]:
    """Like ``may_call`` for what a coordinator or the decision owner decides: resume, rollback, abort."""
    cast = status.cast
    person, why = _known(cast, actor)
    leaders = {*cast.holders(COORDINATOR), *cast.holders(DECISION_OWNER)}
    if why or person in leaders:
        return person, why
    return "", f"{person} may not {what}: that is for coordinator or decision_owner ({', '.join(sorted(leaders))})"


def may_take_part(status: RunStatus, actor: str) -> tuple[str, str]:
    """Like ``may_call`` for what everybody of the runbook may do."""
    return _known(status.cast, actor)


def may_start(status: RunStatus, step: Step, actor: str) -> tuple[str, str]:
    """Like ``may_call``: whether the actor may start the step, as its DRI."""
    cast = status.cast
    part = COORDINATOR if step.dri in cast.absent else step.dri
    return _acts_as(cast, actor, part, f"start or end {step.id}")


def doers(status: RunStatus, step: Step) -> tuple[str, ...]:
    """Return who may act as DRI of a step: where a kind of run has no such role (``only``), the coordinator."""
    return status.cast.holders(COORDINATOR if step.dri in status.cast.absent else step.dri)


def roles_without_anybody(status: RunStatus) -> list[str]:
    """Return the reviewers' roles that steps of this run have, and the run has not."""
    steps = [one for one in status.runbook.steps if one.id not in status.graph.not_applicable]
    return sorted({one.reviewer for one in steps if one.reviewer is not None} & status.cast.absent)


def promotion(role: str, person: str) -> str:
    """Return what two persons agree to when they promote somebody."""
    return f"{role}: {person}"


def why_not_promote(status: RunStatus, role: str, person: str) -> str:
    """Return why a role cannot become a person's; empty: it can."""
    cast = status.cast
    if role not in cast.declared:
        return f"there is no role {role} in this run"
    if person not in cast.declared[role]:
        return f"{person} is neither holder nor backup of {role} ({', '.join(cast.declared[role])})"
    return f"{role} is {person}'s already" if cast.roles[role] == (person,) else ""


def may_accept(status: RunStatus, step: Step, actor: str) -> tuple[str, str]:
    """Like ``may_call``: whether the actor may judge the evidence of a step that ran."""
    cast = status.cast
    if step.reviewer is None:
        return "", f"{step.id} has no reviewer"
    person, why = _acts_as(cast, actor, step.reviewer, f"review {step.id}")
    return (person, why) if why else _another(status, cast, step, person, _excluded(status, step, "done"))


def may_approve(status: RunStatus, step: Step, actor: str) -> tuple[str, str]:
    """Like ``may_call``: whether the actor may agree before the step starts.

    That is its reviewer, or the decision owner at a point of no return, never its DRI.
    """
    cast = status.cast
    owners = cast.holders(DECISION_OWNER) if step.point_of_no_return else ()
    person, why = _known(cast, actor)
    if why:
        return "", why
    if person not in owners:
        if step.reviewer is None:
            return "", f"{step.id} has no reviewer"
        person, why = _acts_as(cast, actor, step.reviewer, f"approve {step.id}")
    return (person, why) if why else _another(status, cast, step, person, _excluded(status, step, "start"))


def _excluded(status: RunStatus, step: Step, of: str) -> tuple[str, ...]:
    own = step.approval.excluded if step.approval is not None else ()
    rule = status.runbook.policy.reviewer_must_differ_from if of == "done" else ()
    return tuple(dict.fromkeys((DRI, *rule, *own)))


def _another(status: RunStatus, cast: Cast, step: Step, person: str, excluded: tuple[str, ...]) -> tuple[str, str]:
    one = status.steps[step.id]
    acted = {DRI: one.hands | {one.dri}, COORDINATOR: {one.called_by}}
    for part in excluded:
        # Who holds the role now, and who held it when it acted: a promotion does not make one person two.
        holders = doers(status, step) if part == DRI else cast.holders(part)
        if person in holders or person in acted.get(part, ()):
            return "", f"{person} is {part} of {step.id}: another person has to agree"
    return person, ""


def missing_approvals(status: RunStatus, step: Step, of: str, now: Moment, starter: str = "") -> str:
    """Return what is missing of the approvals of a step; empty: nothing.

    Parameters
    ----------
    of
        ``start`` or ``done``.
    starter
        Who is about to start it: an approval of the same person does not count.
    """
    needed, owner = needed_approvals(step, of), False
    if of == "start" and step.point_of_no_return and status.cast.holders(DECISION_OWNER):
        needed, owner = max(needed, 1), True
    if not needed:
        return ""
    one = status.steps[step.id]
    counting, stale = _counting(status, one, of, now)
    counting -= {starter}
    if owner and not counting & set(status.cast.holders(DECISION_OWNER)):
        return f"{step.id} is a point of no return: the decision owner has not approved it{stale}"
    if len(counting) < needed:
        return f"{step.id} has {len(counting)} of {needed} approvals{stale}"
    return ""


def needed_approvals(step: Step, of: str) -> int:
    """Return how many must agree before the step may start, or before it is done."""
    if step.approval is not None and step.approval.before in (of, "both"):
        return max(1, step.approval.minimum)
    return 1 if of == "done" and step.reviewer is not None else 0


def _counting(status: RunStatus, one: StepStatus, of: str, now: Moment) -> tuple[set[str], str]:
    policy, want, stale = status.runbook.policy, approval_hash(status, one.id, of), ""
    counting = set()
    for given in one.approvals:
        if given.of != of:
            continue
        why = fresh(given.at, now, policy.sign_off_ttl)
        if not why and given.hash != want:
            why = "it signs another step or other evidence"
        if not why and policy.signed_approvals and not given.signed:
            why = "it is not signed"
        if why:
            stale = f"; {given.person}'s does not count: {why}"
        else:
            counting.add(given.person)
    return counting, stale


def agreement(status: RunStatus, of: str, step: str, actor: str, answer: str, now: Moment) -> Given | None:
    """Return what another person said before, fresh and of the very same thing; None: nobody did."""
    want, policy = binding(status, of, step, answer), status.runbook.policy
    some = status.steps[step].approvals if step else status.agreements
    for given in some:
        same = given.of == of and given.hash == want and given.person != actor
        signed = given.signed or not policy.signed_approvals
        if same and signed and not fresh(given.at, now, policy.sign_off_ttl):
            return given
    return None


def shared_logins(status: RunStatus) -> dict[str, tuple[str, ...]]:
    """Return logins (``user@host``) from which more than one person acted: their four eyes may be two."""
    return {login: tuple(sorted(some)) for login, some in sorted(status.logins.items()) if len(some) > 1}
