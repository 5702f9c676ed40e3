"""What people do to a run: commands as pure functions of (status, actor, arguments) -> events, or one clear refusal.

A command builds its events and lets the fold judge them on a copy, so that no rule is in two places. What needs
two persons is said twice: the first one's word is an approval in the journal, the second one's carries it out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from migverify.errors import ConfigError, JournalError
from migverify.runbook import people
from migverify.runbook.clock import Moment
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.moves import EXECUTOR
from migverify.runbook.fold.run import why_not_end
from migverify.runbook.fold.table import fold
from migverify.runbook.kinds import Repeat, StepKind
from migverify.runbook.record import signatures
from migverify.runbook.record.chain import Draft
from migverify.runbook.state import SIGNED_BY_ALL, RunStatus

__all__ = [
    "OPEN_WORDS", "Actor", "Decision", "Refusal", "abort", "accept", "approve", "begin_by_itself", "call", "decide",
    "done", "drafts_of", "fail", "hold", "note", "promote", "reject", "resume", "retry", "rollback", "rollback_answer",
    "start", "takeover", "to_sign", "waive",
]  # fmt: skip

_K = EventKind
OPEN_WORDS = {
    "REASON": "say why", "WHAT-SHOWS-IT": "say what shows it", "HOW-YOU-KNOW": "say how you know",
    "PERSON": "say who you are", "ANOTHER": "say who you are",
}  # fmt: skip
"""Words of a shown command that the reader replaces, and by what: nothing is written with one of them left in."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a command is not carried out."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts: a person's name or alias, the login it came from, and for approvals a signature of ``to_sign``."""

    name: str
    login: str = ""
    signature: str = ""
    signed_at: float = 0.0


Decision = tuple[Draft, ...] | Refusal


def call(status: RunStatus, actor: Actor, step: str, now: Moment) -> Decision:
    """Call a ready step: the coordinator's voice."""
    return _step(status, actor, step, now, _K.CALLED, people.COORDINATOR)


def drafts_of(decision: Decision) -> tuple[Draft, ...]:
    """Return the events of a decision; none of a refusal."""
    return () if isinstance(decision, Refusal) else decision


def approve(
    status: RunStatus, actor: Actor, step: str, now: Moment, text: str = "", evidence: dict[str, Any] | None = None
) -> Decision:
    """Agree that a step may start: the reviewer, or the decision owner at a point of no return.

    At a decision that is under way it is the DRI's "go"; ``text`` and ``evidence`` say what it rests on.
    """
    one = status.steps.get(step)
    under_way = one is not None and (one.state is StepState.RUNNING or one.rollback is RollbackState.RUNNING)
    if under_way and status.definition(step).kind is StepKind.DECISION:
        return done(status, actor, step, now, text or "go", evidence)
    return _approval(status, actor, "start", step, now, people.REVIEWER)


def start(status: RunStatus, actor: Actor, step: str, now: Moment) -> Decision:
    """Start a called step: its DRI's voice. The executor carries the effect out."""
    return _step(status, actor, step, now, _K.STARTED, people.DRI)


def begin_by_itself(status: RunStatus, executor: str, step: str, now: Moment) -> Decision:
    """Call and start a gate that only reads, inside a write stop: as the executor, announced for both its persons."""
    drafts = [
        Draft(kind, executor, EXECUTOR, step, status.steps[step].attempt, {"by_itself": True})
        for kind in (_K.CALLED, _K.STARTED)
    ]
    return _judged(status, now, drafts)


def note(
    status: RunStatus, actor: Actor, step: str, now: Moment, text: str, evidence: dict[str, Any] | None = None
) -> Decision:
    """Add evidence to a step that is under way."""
    return _step(status, actor, step, now, _K.EVIDENCE, people.DRI, {"text": text, "evidence": evidence or {}})


def done(
    status: RunStatus, actor: Actor, step: str, now: Moment, text: str, evidence: dict[str, Any] | None = None
) -> Decision:
    """Say that a manual step, or the manual rollback of a step, is done, and what shows it."""
    if not text.strip():
        return Refusal(f"{step}: say what shows that it is done", "A step ends with evidence.")
    fields = {"manual": True, "text": text, "evidence": evidence or {}}
    one = status.steps.get(step)
    if one is not None and one.rollback is RollbackState.RUNNING:
        return _step(status, actor, step, now, _K.ROLLBACK_EFFECT, people.DRI, {**fields, "ok": True})
    return _step(status, actor, step, now, _K.EFFECT, people.DRI, fields)


def fail(status: RunStatus, actor: Actor, step: str, now: Moment, reason: str) -> Decision:
    """Say that a manual step, or the manual rollback of a step, did not work; a decision: "no go"."""
    if not reason.strip():
        return Refusal(f"{step}: say why it failed")
    fields: dict[str, Any] = {"manual": True, "reason": reason}
    one = status.steps.get(step)
    if one is not None and one.rollback is RollbackState.RUNNING:
        return _step(status, actor, step, now, _K.ROLLBACK_EFFECT, people.DRI, {**fields, "ok": False})
    return _step(status, actor, step, now, _K.FAILED, people.DRI, fields)


def accept(status: RunStatus, actor: Actor, step: str, now: Moment, seen: str = "") -> Decision:
    """Accept the evidence of a step: its reviewer signs the hash of step and evidence.

    Parameters
    ----------
    seen
        The hash that the reviewer was shown, or its first letters; another one now is a refusal. Empty: not checked.
    """
    if step not in status.steps:
        return Refusal(f"there is no step {step}")
    digest = people.approval_hash(status, step)
    if seen and not digest.startswith(seen):
        return Refusal(f"{step}: the evidence is not what you saw: it is {digest[:12]}", "Look at it again.")
    fields = {"hash": digest, "of": "done"}
    return _step(status, actor, step, now, _K.ACCEPTED, people.REVIEWER, fields, sign="done")


def reject(status: RunStatus, actor: Actor, step: str, now: Moment, reason: str) -> Decision:
    """Reject the evidence of a step, or say as its DRI that a step by hand did not work: it has failed."""
    one = status.steps.get(step)
    if one is not None and one.state is not StepState.AWAITING_REVIEW:
        return fail(status, actor, step, now, reason)
    return _step(status, actor, step, now, _K.REJECTED, people.REVIEWER, {"reason": reason.strip()})


def waive(status: RunStatus, actor: Actor, step: str, now: Moment, reason: str, expires: str = "") -> Decision:
    """Let a failed step pass: two persons, one after the other."""
    if not reason.strip():
        return Refusal(f"{step}: say why it is waived")
    return _two(status, actor, "waive", step, now, _K.WAIVED, {"reason": reason, "expires": expires})


def decide(status: RunStatus, actor: Actor, step: str, now: Moment, reason: str, *, happened: bool) -> Decision:
    """Say whether the effect of a step in doubt happened: two persons who say the same, one after the other."""
    if not reason.strip():
        return Refusal(f"{step}: say how you know")
    answer = "happened" if happened else "did not happen"
    fields = {"happened": happened, "how": "persons", "reason": reason}
    return _two(status, actor, "decide", step, now, _K.RECONCILED, fields, answer)


def retry(status: RunStatus, actor: Actor, step: str, now: Moment, reason: str = "", *, redo: bool = False) -> Decision:
    """Have a failed step tried again: its checks alone when its effect is in place, else from its call on.

    Parameters
    ----------
    redo
        Carry the effect out again although it is in place: only of a step with ``repeat: yes``.
    """
    one = status.steps.get(step)
    if one is None:
        return Refusal(f"there is no step {step}")
    in_place = one.effect_done and one.rollback is not RollbackState.UNDONE_VERIFIED
    repeat = status.definition(step).repeat
    if redo and in_place and repeat is not Repeat.YES:
        return Refusal(
            f"{step} says repeat: {repeat.value}: its effect may not be carried out twice",
            "Without --redo its checks are asked again; or take it back first.",
        )
    to = "verifying" if in_place and not redo else "called"
    if to == "called" and status.state is not RunState.RUNNING:
        return Refusal("the run is held: resume it first")
    role, fields = people.COORDINATOR, {"to": to, "reason": reason}
    return _judged(
        status, now, [Draft(_K.RETRIED, actor.name, role, step, one.attempt + 1, _with_login(actor, fields))]
    )


def hold(status: RunStatus, actor: Actor, now: Moment, reason: str) -> Decision:
    """Hold the run: nothing new is called or started. Anybody may."""
    if not reason.strip():
        return Refusal("say why the run is held")
    return _run(status, actor, now, _K.HELD, {"reason": reason})


def resume(status: RunStatus, actor: Actor, now: Moment, reason: str = "") -> Decision:
    """Go on. While a guard that held the run does not pass, two persons have to say so."""
    bad = [id_ for id_ in status.hold_guards if id_ not in status.guards or status.guards[id_].state != "pass"]
    if bad and status.state is RunState.HELD:
        _, why = people.may_lead(status, actor.name, "resume the run")
        if why:
            return Refusal(why)
        if not reason.strip():
            return Refusal(f"guard {', '.join(bad)} does not pass: say why the run goes on all the same")
        return _two(status, actor, "resume", "", now, _K.RESUMED, {"reason": reason, "despite": bad})
    return _run(status, actor, now, _K.RESUMED, {"reason": reason})


def rollback(
    status: RunStatus, actor: Actor, now: Moment, reason: str, to: str | None = None, then: str | None = None
) -> Decision:
    """Order a rollback: effects are undone from the last to the first, each one verified.

    Parameters
    ----------
    to
        Undo down to this step, which is undone too; None: everything.
    then
        ``rolled back`` (the run ends) or ``hold``; by default the run ends when everything was undone.
    """
    if not reason.strip():
        return Refusal("say why the run is rolled back")
    steps, why = steps_to_undo(status, to)
    if why:
        return Refusal(why)
    fields = {"steps": list(steps), "then": then or ("rolled back" if to is None else "hold"), "reason": reason}
    failed = [id_ for id_ in steps if status.steps[id_].rollback is RollbackState.FAILED]
    if failed:
        answer = rollback_answer(status, to, then)
        return _two(status, actor, "rollback", "", now, _K.ROLLBACK_ORDERED, fields, answer)
    return _run(status, actor, now, _K.ROLLBACK_ORDERED, fields)


def rollback_answer(status: RunStatus, to: str | None = None, then: str | None = None) -> str:
    """Return what an approval of a rollback names (``people.undoing``); empty: nothing can be undone now."""
    steps, why = steps_to_undo(status, to)
    if why or status.rules < SIGNED_BY_ALL:
        return ""
    return people.undoing(status, steps, then or ("rolled back" if to is None else "hold"))


def steps_to_undo(status: RunStatus, to: str | None = None) -> tuple[tuple[str, ...], str]:
    """Return (steps in the order in which they are undone, "") or ((), why it cannot be)."""
    if to is not None and to not in status.steps:
        return (), f"there is no step {to}"
    down_to = status.steps[to].order if to is not None else 0
    if down_to < 0:
        return (), f"{to} has no effect that could be undone"
    later = sorted((one for one in status.steps.values() if one.order >= down_to), key=lambda one: -one.order)
    unknown = [one.id for one in later if one.state is StepState.UNKNOWN]
    if unknown:
        return (), f"nobody knows whether the effect of {', '.join(unknown)} happened: reconcile it first"
    expired = [one.id for one in later if one.rollback is RollbackState.EXPIRED]
    if expired:
        return (), f"the rollback of {', '.join(expired)} has expired ({status.steps[expired[0]].rollback_reason})"
    steps = tuple(one.id for one in later if one.rollback in (RollbackState.ARMED, RollbackState.FAILED))
    return (steps, "") if steps else ((), "there is nothing to undo")


def abort(status: RunStatus, actor: Actor, now: Moment, reason: str) -> Decision:
    """End the run as it is; the state says whether any effect of it is left."""
    if not reason.strip():
        return Refusal("say why the run is aborted")
    state = abort_state(status)
    decision = _run(status, actor, now, _K.RUN_ENDED, {"state": state.value, "reason": reason})
    if isinstance(decision, Refusal) and status.busy and decision.reason == why_not_end(status, state):
        return replace(decision, hint=_ways_out_of_work(status))
    return decision


def _ways_out_of_work(status: RunStatus) -> str:
    """Return what lets a run be aborted whose steps are under way."""
    by_hand = [id_ for id_ in sorted(status.busy) if _waits_for_hands(status, id_)]
    ways = [f"The DRI ends {id_} by `migverify runbook reject {id_} 'REASON'`." for id_ in by_hand[:5]]
    if len(by_hand) < len(status.busy):
        ways.append("`migverify runbook hold 'REASON'` lets nothing new begin: wait until it ends, then abort.")
    if status.order is None and not steps_to_undo(status)[1]:
        ways.append("`migverify runbook rollback 'REASON'` ends it at once, and undoes what was done.")
    return " ".join(ways if not by_hand else [*ways, "Then abort."])


def _waits_for_hands(status: RunStatus, id_: str) -> bool:
    """Whether a person has to say how the step's work or its rollback ends, as the executor will not."""
    one, step = status.steps[id_], status.definition(id_)
    if one.rollback is RollbackState.RUNNING:
        return step.rollback is not None and step.rollback.effect is None and not one.undo_done
    begins = status.state is RunState.RUNNING or one.intent  # in a hold no effect begins
    return one.state is StepState.RUNNING and (step.by_hand or not begins)


def abort_state(status: RunStatus) -> RunState:
    """Return how a run would end that is ended now."""
    if status.past_hard_pnr:
        return RunState.FAILED_PAST_PNR
    calm = replace(status, busy=set())
    return RunState.ABORTED_DIRTY if why_not_end(calm, RunState.ABORTED_CLEAN) else RunState.ABORTED_CLEAN


def takeover(status: RunStatus, actor: Actor, now: Moment, reason: str) -> Decision:
    """Agree that somebody takes the run over from an executor that is gone; the other one runs ``lease.take``."""
    if not reason.strip():
        return Refusal("say why the run is taken over")
    if not status.executor:
        return Refusal("no executor holds the run: it can be run without a takeover")
    return _approval(status, actor, "takeover", "", now, "", reason=reason)


def promote(status: RunStatus, actor: Actor, now: Moment, role: str, reason: str, person: str = "") -> Decision:
    """Give a role to its backup (or back), because who holds it does not answer.

    The coordinator alone may, for somebody else; two persons may, when it is the coordinator who does not answer.

    Parameters
    ----------
    person
        Empty: the declared one who does not hold the role now.
    """
    if not reason.strip():
        return Refusal(f"say why {role} is handed over")
    cast = status.cast
    others = [one for one in cast.declared.get(role, ()) if one not in cast.holders(role)]
    name = (cast.person(person) or person) if person else next(iter(others), "")
    if role in cast.declared and not name:
        return Refusal(f"{role} has no backup", "A role gets one in the runbook's file, before the run.")
    why = people.why_not_promote(status, role, name)
    if why:
        return Refusal(why)
    fields = {"role": role, "person": name, "reason": reason}
    who, not_coordinator = people.may_call(status, actor.name)
    if not_coordinator or who == name:
        return _two(status, actor, "promote", "", now, _K.PROMOTED, fields, people.promotion(role, name))
    return _run(status, actor, now, _K.PROMOTED, fields)


def to_sign(status: RunStatus, actor: str, of: str, step: str, at: float, answer: str = "") -> bytes:
    """Return the bytes that an approval's signature is of; ``at`` is Unix seconds, ``Actor.signed_at``."""
    person = status.cast.person(actor) or actor
    attempt = status.steps[step].attempt if step else 0
    digest = people.binding(status, of, step, answer)
    return signatures.payload(status.run, step, attempt, of, digest, person, at)


# -- how a command becomes events -----------------------------------------------------------------------------------


def _with_login(actor: Actor, fields: dict[str, Any]) -> dict[str, Any]:
    if actor.login:
        fields = {**fields, "login": actor.login}
    if actor.signature:
        fields = {**fields, "signature": actor.signature, "signed_at": actor.signed_at}
    return fields


def _step(
    status: RunStatus, actor: Actor, step: str, now: Moment, kind: EventKind, role: str,
    fields: dict[str, Any] | None = None, *, sign: str = "",
) -> Decision:  # fmt: skip
    if step not in status.steps:
        return Refusal(f"there is no step {step}", "`status` names them.")
    why = _signature_problem(status, actor, sign, step) if sign else ""
    if why:
        return Refusal(why)
    shown = actor if sign else replace(actor, signature="")
    draft = Draft(kind, actor.name, role, step, status.steps[step].attempt, _with_login(shown, fields or {}))
    return _judged(status, now, [draft])


def _run(status: RunStatus, actor: Actor, now: Moment, kind: EventKind, fields: dict[str, Any]) -> Decision:
    return _judged(status, now, [Draft(kind, actor.name, data=_with_login(replace(actor, signature=""), fields))])


def _approval(
    status: RunStatus, actor: Actor, of: str, step: str, now: Moment, role: str, answer: str = "", reason: str = ""
) -> Decision:
    if step and step not in status.steps:
        return Refusal(f"there is no step {step}", "`status` names them.")
    why = _signature_problem(status, actor, of, step, answer)
    if why:
        return Refusal(why)
    fields = {"of": of, "hash": people.binding(status, of, step, answer), "answer": answer, "reason": reason}
    attempt = status.steps[step].attempt if step else 0
    return _judged(status, now, [Draft(_K.APPROVED, actor.name, role, step, attempt, _with_login(actor, fields))])


def _two(
    status: RunStatus, actor: Actor, of: str, step: str, now: Moment, kind: EventKind, fields: dict[str, Any],
    answer: str = "",
) -> Decision:  # fmt: skip
    """Say what needs two persons: an approval when nobody else has said the same, else the thing itself."""
    if step and step not in status.steps:
        return Refusal(f"there is no step {step}", "`status` names them.")
    person = status.cast.person(actor.name)
    if person is None:
        return Refusal(f"{actor.name!r} is none of the runbook's people")
    earlier = people.agreement(status, of, step, person, answer, now)
    if earlier is None:
        return _approval(status, actor, of, step, now, "", answer, str(fields.get("reason", "")))
    why = _signature_problem(status, actor, of, step, answer)
    if why:
        return Refusal(why)
    attempt = status.steps[step].attempt if step else 0
    both = {**fields, "by": [earlier.person, person]}
    return _judged(status, now, [Draft(kind, actor.name, "", step, attempt, _with_login(actor, both))])


def _signature_problem(status: RunStatus, actor: Actor, of: str, step: str, answer: str = "") -> str:
    if not actor.signature:
        return "the runbook wants signed approvals" if status.runbook.policy.signed_approvals else ""
    name = status.cast.person(actor.name)
    person = status.runbook.people.get(name or "")
    if person is None:
        return f"{actor.name!r} is none of the runbook's people"
    try:
        return signatures.verify(
            to_sign(status, actor.name, of, step, actor.signed_at, answer), actor.signature, person
        )
    except ConfigError as error:
        return error.message


def _judged(status: RunStatus, now: Moment, drafts: Sequence[Draft]) -> Decision:
    fields = (value for one in drafts for value in one.data.values() if isinstance(value, str))
    left_open = next((value for value in fields if value in OPEN_WORDS), "")
    if left_open:
        return Refusal(
            f"{left_open} is a word to be replaced: {OPEN_WORDS[left_open]}", "Put your own words in quotes."
        )
    events = [
        Event(
            status.seq + 1 + place, status.head, "0" * 64, status.run, one.step, one.attempt, one.kind, one.actor,
            one.role, now.wall, now.mono, now.boot, status.epoch, status.runbook.sha, one.data,
        )
        for place, one in enumerate(drafts)
    ]  # fmt: skip
    try:
        fold(events, status)
    except JournalError as error:
        words = error.message.partition(f" by {drafts[0].actor or 'nobody'}: ")[2] or error.message
        step = drafts[0].step
        return Refusal(f"{step}: {words}" if step else words)
    return tuple(drafts)
