"""Whether a runbook is ready for its night: computed from the journals of its drills, and from nothing else.

Every condition of the policy is answered by itself, with the reason and what to do. ``missing``: the journals show that
it is not met, or do not show that it is. ``unknown``: it is not known, because a journal is damaged, or because
something that is compared with was not given. The verdict is ``ready`` only when nothing is missing or unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from migverify.config.settings import ReadinessFloor
from migverify.decision.model import Decision, Standing
from migverify.runbook.definition.plan import applies
from migverify.runbook.events import RollbackState, RunState
from migverify.runbook.graph import acts
from migverify.runbook.history.drills import (
    BUILT_IN,
    clock_problem,
    counts_as_drill,
    edits_since,
    not_proved_again,
    of_this_runbook,
    raised,
    ran_cleanly,
    rollback_only,
    too_old,
    why_no_rollback_drill,
    why_unclean,
)
from migverify.runbook.history.past import Damaged, Past, PastRun, past_runs
from migverify.runbook.history.readiness_cases import case_reasons, required_cases
from migverify.runbook.kinds import RunbookKind, RunKind, StepKind
from migverify.runbook.model import ReadinessPolicy, Runbook, Step
from migverify.runbook.people import COORDINATOR, DECISION_OWNER, same_name
from migverify.runbook.record.run_store import RunStore

__all__ = [
    "INCONCLUSIVE", "MISSING", "NOT_ASKED", "NOT_READY", "OK", "READY", "UNKNOWN", "Condition", "Readiness", "asker",
    "readiness", "rolls_back", "wanted_runbooks",
]  # fmt: skip

OK, MISSING, UNKNOWN, NOT_ASKED, WEAKER = "ok", "missing", "unknown", "not asked", "weaker"
READY, NOT_READY, INCONCLUSIVE = "ready", "not ready", "inconclusive"
_FEW = 5


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition: ``state`` is ``ok``, ``missing``, ``unknown``, ``not asked`` or ``weaker``; ``reasons`` say why.

    ``weaker`` is only of the policy: something asks for less than the floor. It turns no verdict, and is said first.
    ``wants`` says what is required, ``found`` what the journals show, ``do`` what to do about it.
    """

    id: str
    state: str
    wants: str
    found: str
    reasons: tuple[str, ...] = ()
    do: str = ""

    @property
    def is_missing(self) -> bool:
        """Whether it is known not to be met."""
        return self.state == MISSING


@dataclass(frozen=True, slots=True)
class Readiness:
    """The verdict, ``ready``, ``not ready`` or ``inconclusive``, and every condition it is made of.

    ``drills`` are the runs that were counted, the oldest first, ``not_counted`` other runs of the runbook, and why not;
    ``sha`` is the runbook's that was asked about.
    """

    verdict: str
    runbook: str
    sha: str
    environment: str
    conditions: tuple[Condition, ...]
    drills: tuple[str, ...]
    not_counted: tuple[tuple[str, str], ...]

    @property
    def ready(self) -> bool:
        """Whether the runbook is ready."""
        return self.verdict == READY

    @property
    def unmet(self) -> list[Condition]:
        """The conditions that are not met, or not known to be."""
        return [one for one in self.conditions if one.state in (MISSING, UNKNOWN)]

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it is not, over all conditions."""
        return tuple(f"{one.id}: {why}" for one in self.unmet for why in one.reasons or (one.found,))


@dataclass(frozen=True, slots=True)
class _Ground:
    """What every condition looks at: the drills of the way forward and the last of them, in the order of the chain.

    ``runbook`` has the policy that counts, ``weaker`` says what asks for less. ``fresh`` are the runs of people that
    are not too old: drills of the way forward and of the rollback.
    """

    runbook: Runbook
    floor: ReadinessFloor
    weaker: tuple[str, ...]
    runs: tuple[PastRun, ...]
    fresh: tuple[PastRun, ...]
    drills: tuple[PastRun, ...]
    last: tuple[PastRun, ...]
    fingerprint: str
    cases: Mapping[str, str] | None
    damaged: tuple[Damaged, ...]
    now: float
    decision: Decision | None

    @property
    def rules(self) -> ReadinessPolicy:
        """What drills have to show."""
        return self.runbook.policy.readiness


def wanted_runbooks(runbook: Runbook) -> frozenset[str]:
    """Return the ids of the runbooks whose runs readiness looks at, besides the disaster recovery cases."""
    return frozenset({runbook.id, *runbook.policy.readiness.rollback_runbooks})


def readiness(
    runbook: Runbook, past: Past | Iterable[PastRun], now: float, schema_fingerprint: str = "",
    cases: Mapping[str, str] | None = None, floor: ReadinessFloor = BUILT_IN, decision: Decision | None = None,
) -> Readiness:  # fmt: skip
    """Answer whether the journals show what is required before a live run.

    Parameters
    ----------
    runbook
        The definition as it is now, for the environment of the night.
    past
        What ``history.past_runs`` read, in the order of the chain. Without its damaged journals (a list of runs) none
        is taken to be damaged.
    now
        Unix seconds.
    schema_fingerprint
        Of the pair now; empty: it is not known, which is not the same as equal.
    cases
        Priority of each disaster recovery case by its id, of the catalogue; None: there is none at hand.
    floor
        The least that is required also where the runbook's own policy is weaker: built in, or of ``migverify.yaml``.
    decision
        Whether the service may cut over, by the evidence of now; None: no capture of it is configured.
    """
    damaged = past.damaged if isinstance(past, Past) else ()
    rules, weaker = raised(runbook.policy.readiness, floor)
    policy = runbook.policy.model_copy(update={"readiness": rules})
    asked, runs = runbook.model_copy(update={"policy": policy}), tuple(past)
    why = {one.run: _why_not_counted(one, asked, now, floor) for one in runs if one.runbook == runbook.id}
    drills = tuple(one for one in runs if why.get(one.run) == "")
    fresh = tuple(one for one in runs if not too_old(one, now, floor) and one.chained)
    kept = max(1, rules.clean_last)
    ground = _Ground(
        asked, floor, weaker, runs, fresh, drills, drills[-kept:], schema_fingerprint, cases, damaged, now, decision
    )  # fmt: skip
    found = tuple(_answer(ground) for _answer in _CONDITIONS)
    states = {one.state for one in found}
    verdict = NOT_READY if MISSING in states else INCONCLUSIVE if UNKNOWN in states else READY
    return Readiness(
        verdict, runbook.id, runbook.sha, runbook.environment, found, tuple(one.run for one in drills),
        tuple((run, text) for run, text in why.items() if text),
    )  # fmt: skip


def _why_not_counted(run: PastRun, runbook: Runbook, now: float, floor: ReadinessFloor) -> str:
    if not of_this_runbook(run, runbook):
        other = [f"{name}={value}" for name, value in run.instance.items() if runbook.instance.get(name) != value]
        return f"of another instance ({_some(other) or 'without its parameters'})"
    if run.autopilot:
        return "the autopilot played every role"
    if not counts_as_drill(run):
        return f"a {run.kind.value} run"
    if not run.chained:
        return "begun by an earlier release: nothing shows which run was before it"
    return too_old(run, now, floor) or ("a drill of the rollback" if rollback_only(run) else "")


def asker(
    room: RunStore, now: Callable[[], float], schema_fingerprint: str = "", cases: Mapping[str, str] | None = None,
    floor: ReadinessFloor = BUILT_IN, decision: Callable[[], Decision | None] = lambda: None,
) -> Callable[[Runbook], tuple[bool, tuple[str, ...]]]:  # fmt: skip
    """Return what tells an executor whether a runbook is ready, and why not, from the journals of a room.

    The room is read when it is asked, not before; raises ``StoreError`` then when it cannot be read.
    """

    def ask(runbook: Runbook) -> tuple[bool, tuple[str, ...]]:
        past = past_runs(room, wanted_runbooks(runbook), cases=bool(runbook.policy.readiness.dr_cases.required))
        found = readiness(runbook, past, now(), schema_fingerprint, cases, floor, decision())
        return found.ready, found.reasons

    return ask


def _condition(id_: str, wants: str, found: str, reasons: Iterable[str], do: str, state: str = MISSING) -> Condition:
    why = tuple(reasons)
    return Condition(id_, state, wants, found, why, do) if why else Condition(id_, OK, wants, found)


def _not_asked(id_: str, wants: str) -> Condition:
    return Condition(id_, NOT_ASKED, wants, "the policy does not ask for it")


def _when(run: PastRun) -> str:
    return f"{run.run} ({datetime.fromtimestamp(run.started, UTC):%Y-%m-%d}, {run.environment})"


def _last(count: int) -> str:
    return "the last drill" if count == 1 else f"the last {count} drills"


def _drills(count: int) -> str:
    return "1 drill" if count == 1 else f"{count} drills"


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_FEW]) + (f" and {len(listed) - _FEW} more" if len(listed) > _FEW else "")


def _policy(ground: _Ground) -> Condition:
    wants = "the policy asks for no less than the floor, which no runbook can lower"
    do = "Only `readiness` in migverify.yaml lowers the floor; it is said here."
    return _condition("policy", wants, f"{len(ground.weaker)} weaker", ground.weaker, do, WEAKER)


def _journals(ground: _Ground) -> Condition:
    known = wanted_runbooks(ground.runbook)
    wants = "every run is there in its order, and every journal can be read"
    bad = [one for one in ground.damaged if not one.runbook or one.runbook in known or one.case]
    clocks = [why for one in ground.fresh if one.runbook in known and (why := clock_problem(one, ground.now))]
    do = "`migverify runbook report --verify` names the line; restore what is missing from a copy, or begin another"\
        " folder of runs and hold the drills again."  # fmt: skip
    problems = [*(f"{one.run}: {one.problem}" for one in bad), *clocks]
    return _condition("journals", wants, f"{len(bad)} damaged or missing", problems, do, UNKNOWN)


def _count(ground: _Ground) -> Condition:
    least = ground.rules.drills_min
    wants = f"{_drills(least)} that went through"
    if least <= 0:
        return _not_asked("drills", wants)
    whole = [one for one in ground.drills if one.state is RunState.COMPLETED]
    if len(whole) >= least:
        return _condition("drills", wants, _drills(len(whole)), (), "")
    reasons = [f"{len(whole)} of {_drills(least)} went through"]
    reasons += [f"{_when(one)} {_end(one)}" for one in ground.drills if one not in whole]
    return _condition("drills", wants, _drills(len(whole)), reasons, f"Hold {least - len(whole)} more.")


def _end(run: PastRun) -> str:
    return f"ended {run.state.value}" if run.over else f"is not over ({run.state.value})"


def _clean(ground: _Ground) -> Condition:
    wanted = ground.rules.clean_last
    wants = f"{_last(wanted)} clean, for the steps as they are now"
    if wanted <= 0:
        return _not_asked("clean", wants)
    reasons = [f"there are {len(ground.last)} of {_drills(wanted)}"] if len(ground.last) < wanted else []
    clean = 0
    for place, one in enumerate(ground.last):
        why = [f"{one.run}: {text}" for text in why_unclean(one)]
        void = not_proved_again(one, ground.last[place + 1 :], ground.runbook)
        if void:
            why.append(f"{one.run}: changed since, or behind a change, and not run cleanly again: {_some(void)}")
        clean += not why
        reasons += why
    do = "Hold drills until the last ones are clean; a changed step needs one clean drill after the change."
    return _condition("clean", wants, f"{clean} of {wanted}", reasons, do)


def _steps(ground: _Ground) -> Condition:
    book, policy = ground.runbook, ground.rules
    wants = "every step that acts that night was run cleanly in a drill, or its twin was"
    if policy.drills_min <= 0 and policy.clean_last <= 0:
        return _not_asked("steps", wants)
    void = {one.run: frozenset(edits_since(one, book).voided) for one in ground.drills}
    night = [step for step in book.steps if _tonight(step, book) and acts(step)]
    never = [step.id for step in night if not any(ran_cleanly(one, step.id, void[one.run]) for one in ground.drills)]
    reasons = [f"never run cleanly as they are now: {_some(never)}"] if never else []
    do = "Hold a drill where these steps apply."
    return _condition("steps", wants, f"{len(night) - len(never)} of {len(night)} steps", reasons, do)


def _tonight(step: Step, book: Runbook) -> bool:
    kind = RunKind.ROLLBACK if book.kind is RunbookKind.ROLLBACK else RunKind.LIVE
    return applies(step, book.environment, kind)


def _same_runbook(ground: _Ground) -> Condition:
    wants = "the last drill ran this very runbook"
    if not ground.rules.same_runbook:
        return _not_asked("runbook", wants)
    if not ground.last:
        return _condition("runbook", wants, "there is no drill", ["there is no drill"], "Hold one.")
    one = ground.last[-1]
    edits = edits_since(one, ground.runbook)
    reasons = []
    if edits.changed:
        behind = f" (and behind them {_some(edits.dependents)})" if edits.dependents else ""
        reasons.append(f"changed since {_when(one)}: {_some(edits.changed)}{behind}")
    gone = [id_ for id_ in one.steps if id_ not in {step.id for step in ground.runbook.steps}]
    if gone:
        reasons.append(f"taken out since {_when(one)}: {_some(gone)}")
    if one.sha != ground.runbook.sha and not reasons:
        reasons.append(f"no step changed since {_when(one)}, but policy, budgets, guards, rollback rules or order did")
    found = f"sha {ground.runbook.sha[:12]}, the last drill ran {one.sha[:12]}"
    return _condition("runbook", wants, found, reasons, "Hold a drill of the runbook as it is now.")


def _same_schema(ground: _Ground) -> Condition:
    policy, now = ground.rules, ground.fingerprint
    wants = f"{_last(max(1, policy.clean_last))} ran on the schema of now"
    if not policy.same_schema:
        return _not_asked("schema", wants)
    if not ground.last:
        return _condition("schema", wants, "there is no drill", ["there is no drill"], "Hold one.")
    bad = [
        f"{_when(one)} ran on {one.schema_fingerprint[:16] or 'a schema that its journal does not name'}"
        for one in ground.last
        if not one.schema_fingerprint or (now and one.schema_fingerprint != now)
    ]
    if bad:
        return _condition("schema", wants, f"now {now[:16] or 'not known'}", bad, "Hold drills on the schema of now.")
    if not now:
        do = "Give the fingerprint of now with --schema."
        return _condition("schema", wants, "not known", ["the schema of now is not known"], do, UNKNOWN)
    return _condition("schema", wants, f"all on {now[:16]}", (), "")


def _persons(runbook: Runbook) -> Callable[[str], str]:
    """Return what tells who a name of an earlier cast is now: a person that is known by an alias is that person."""
    known = {same_name(name): one.name for one in runbook.people.values() for name in (*one.aliases, one.name)}
    return lambda name: known.get(same_name(name), same_name(name))


def _full_cast(ground: _Ground) -> Condition:
    wants = "everybody of the night acted in the last drill, each from a login or with a key of their own"
    if not ground.rules.full_cast_last:
        return _not_asked("cast", wants)
    if not ground.last:
        return _condition("cast", wants, "there is no drill", ["there is no drill"], "Hold one.")
    one, who = ground.last[-1], _persons(ground.runbook)
    acted = {(part.role, who(part.person)) for part in one.parts}
    present = {who(name) for name in one.people}
    roles = list(_roles_with_a_part(ground.runbook, one))
    reasons = []
    for name, person in roles:
        if (name, who(person)) not in acted:
            instead = [part.person for part in one.parts if part.role == name]
            there = "acted, but not as such" if who(person) in present else "did nothing"
            reasons.append(f"{name}: {person} {there}" + (f"; {_some(instead)} did it" if instead else ""))
    found = f"{len(roles) - len(reasons)} of {len(roles)} roles in {_when(one)}"
    shared = [f"not a full cast: {why}" for why in _not_distinct(one)]
    do = "Hold a drill with all of them, each from a login of their own or signing with their key."
    return _condition("cast", wants, "not a full cast" if shared else found, [*shared, *reasons], do)


def _not_distinct(drill: PastRun) -> Iterator[str]:
    """Yield where nothing shows that those who acted in a drill were different persons: neither login nor key."""
    for login, some in drill.shared_logins.items():
        if len(set(some) - set(drill.signers)) > 1:
            yield f"{', '.join(some)} acted from one login ({login}) in {drill.run}"
    known = {person for some in drill.logins.values() for person in some} | set(drill.signers)
    unknown = [person for person in drill.people if person not in known]
    if unknown:
        yield f"from which login {', '.join(unknown)} acted in {drill.run} is not known"


def _roles_with_a_part(runbook: Runbook, drill: PastRun) -> Iterator[tuple[str, str]]:
    """Yield (role, person) of those who have something to say in a drill: DRI, reviewer, coordinator, owner."""
    persons = {name: role.person for name, role in runbook.roles.items()}
    only = {name: role.only for name, role in runbook.roles.items()}
    named: dict[str, None] = {COORDINATOR: None}
    for step in runbook.steps:
        if not applies(step, drill.environment, drill.kind):
            continue
        named[step.dri] = None
        if step.reviewer is not None:
            named[step.reviewer] = None
        if step.point_of_no_return or step.kind is StepKind.DECISION:
            named[DECISION_OWNER] = None
    for name in named:
        if name not in persons:  # a step may name a person instead of a role
            if name not in (COORDINATOR, DECISION_OWNER):
                yield name, name
        elif not only[name] or drill.kind in only[name]:
            yield name, persons[name]


def _fresh_eyes(ground: _Ground) -> Condition:
    wants = "somebody played a role in the last drills who had not taken part before"
    if not ground.rules.fresh_eyes_one:
        return _not_asked("eyes", wants)
    who = _persons(ground.runbook)
    seen: set[str] = set()
    fresh: list[str] = []
    last = {one.run for one in ground.last}
    for place, one in enumerate(ground.drills):
        if place and one.run in last:  # in the first drill of all everybody is new
            fresh += sorted({who(part.person) for part in one.parts} - seen)
        seen |= {who(name) for name in one.people}
    reasons = [] if fresh else ["everybody of the last drills had taken part before"]
    do = "Have somebody play a role who has not seen it yet."
    return _condition("eyes", wants, f"new: {_some(fresh) or 'nobody'}", reasons, do)


def _rollbacks(ground: _Ground) -> Condition:
    book, least = ground.runbook, ground.rules.rollback_drills_min
    wants = f"{_drills(least)} of the rollback, and every step's rollback carried out and verified in one"
    if least <= 0:
        return _not_asked("rollback", wants)
    others = ground.rules.rollback_runbooks
    some = [one for one in ground.fresh if of_this_runbook(one, book) or rolls_back(one, book)]
    why = {one.run: why_no_rollback_drill(one, others, book) for one in some}
    good = [one for one in some if not why[one.run]]
    wanted, never = _never_undone(ground, some)
    reasons = [f"{len(good)} of {_drills(least)} of the rollback"] if len(good) < least else []
    tried = [one for one in some if why[one.run] and (one.undone or rolls_back(one, book))]
    reasons += [f"{one.run} does not count: {why[one.run]}" for one in tried] if reasons else []
    reasons += [f"the rollback of {id_} was not carried out and verified in any drill, as it is now" for id_ in never]
    found = f"{_drills(len(good))}; {len(wanted) - len(never)} of {len(wanted)} rollbacks of steps"
    do = "Hold a drill that is rolled back after each of these steps; a rollback by a runbook of its own is named"\
        " under `policy.readiness.rollback_runbooks`."  # fmt: skip
    return _condition("rollback", wants, found, reasons, do)


def _never_undone(ground: _Ground, runs: Iterable[PastRun]) -> tuple[list[str], list[str]]:
    """Return the steps of the night that have a rollback, and those whose last rollback in a drill shows nothing.

    What counts is the step as it is now, or its twin where it does not apply in drills.
    """
    book, last = ground.runbook, dict[str, RollbackState]()
    steps = {step.id: step for step in book.steps}
    for run in runs:
        if run.kind not in (RunKind.DRY, RunKind.LIVE) and not run.autopilot and run.runbook == book.id:
            last.update({
                undo.step: undo.state for undo in run.undone if undo.step in steps and steps[undo.step].sha == undo.sha
            })  # fmt: skip
    wanted = [step for step in book.steps if step.rollback is not None and _tonight(step, book)]
    done = {id_ for id_, state in last.items() if state is RollbackState.UNDONE_VERIFIED}
    never = [step.id for step in wanted if step.id not in done and (step.twin is None or step.twin not in done)]
    return [step.id for step in wanted], never


def rolls_back(run: PastRun, runbook: Runbook) -> bool:
    """Tell whether a run is of a runbook of its own that rolls this one back, and of no other instance of it."""
    same = all(runbook.instance[name] == value for name, value in run.instance.items() if name in runbook.instance)
    return run.runbook in runbook.policy.readiness.rollback_runbooks and same


def _dr_cases(ground: _Ground) -> Condition:
    rule = ground.rules.dr_cases
    days = rule.max_age / 86_400
    wants = f"disaster recovery cases passed in the last {days:g} days: {_some(rule.required)}"
    if not rule.required:
        return _not_asked("cases", "disaster recovery cases passed")
    required, unknown = required_cases(rule.required, ground.cases)
    bad, passed = case_reasons(required, ground.runs, ground.now, days)
    found = f"{len(passed)} of {len(required)} passed"
    do = "Run the cases (`migverify runbook run runbooks/dr/...`), outside production first."
    condition = _condition("cases", wants, found, [*bad, *unknown], do)
    if unknown and not bad:
        condition = replace(condition, state=UNKNOWN, do="Name the folder of the cases with --cases.")
    return condition


def _decision(ground: _Ground) -> Condition:
    wants, decision = "the evidence of now says GO", ground.decision
    if decision is None and not ground.rules.decision:
        return _not_asked("decision", wants)
    do = "`migverify workload decision -o decision.html` shows every reason with what to do about it."
    if decision is None:
        why = "the capture of the service is not configured (decision.capture of migverify.yaml)"
        return _condition("decision", wants, "not known", [why], do, UNKNOWN)
    reasons = [f"{one.part.words}: {one.reason.text}" for one in decision.reasons[:_FEW]]
    if decision.standing is Standing.GO:
        reasons = []
    elif len(decision.reasons) > _FEW or not reasons:
        reasons.append(f"{len(decision.reasons) - len(reasons)} more reasons")
    state = MISSING if decision.standing is Standing.NO_GO else UNKNOWN
    return _condition("decision", wants, decision.standing.value, reasons, do, state)


_CONDITIONS: tuple[Callable[[_Ground], Condition], ...] = (
    _policy, _count, _clean, _steps, _same_runbook, _same_schema, _full_cast, _fresh_eyes, _rollbacks, _dr_cases,
    _decision, _journals,
)  # fmt: skip
