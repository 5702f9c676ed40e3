"""A checked document -> the frozen nouns of ``model``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from migverify.config.yaml_text import Steps
from migverify.runbook.definition.findings import Places
from migverify.runbook.definition.hashing import runbook_sha, script_shas, step_sha
from migverify.runbook.model import (
    Announcements,
    Approval,
    Budgets,
    Case,
    Check,
    DataLoss,
    Effect,
    Guard,
    OnFail,
    Person,
    Policy,
    Repeat,
    Role,
    Rollback,
    Runbook,
    RunbookKind,
    RunKind,
    RunWindow,
    Sink,
    Step,
    StepKind,
    Times,
)

if TYPE_CHECKING:
    from migverify.runbook.definition.document import CheckPart, DoPart, FailPart, GuardPart, RunbookDocument, StepPart

_WAIT_SLACK = 60.0  # seconds that the effect of a wait may take beyond the wait itself


def build(
    model: RunbookDocument, filled: Mapping[str, Any], hashed: Mapping[str, Any], texts: Mapping[str, str],
    environment: str, file_sha: str, places: Places,
) -> tuple[Runbook, tuple[Steps, ...]]:  # fmt: skip
    """Return the runbook, and the way to each of its steps in the file.

    ``filled`` and ``hashed`` are the data with all parameters, and without those that differ by environment.
    """
    needs = effective_needs(model)
    steps: list[Step] = []
    ways: list[Steps] = []
    for one, phase in enumerate(model.phases):
        for two, part in enumerate(phase.steps):
            way: Steps = ("phases", one, "steps", two)
            raw, kept = filled["phases"][one]["steps"][two], hashed["phases"][one]["steps"][two]
            waits = needs[len(steps)]
            scripts = script_shas(raw)
            sha = step_sha(kept, phase.id, waits, scripts)
            full = sha if kept is raw else step_sha(raw, phase.id, waits, scripts)
            steps.append(replace(_step(part, phase.id, waits, (sha, full), places, way), scripts=scripts))
            ways.append(way)
    runbook = Runbook(
        id=model.id, title=model.title, kind=RunbookKind(model.kind),
        sha=runbook_sha(hashed, [(step.id, step.sha) for step in steps], _asking(filled)),
        text_sha=file_sha, environment=environment,
        people=tuple(Person(n, tuple(p.aliases), p.contact, p.ssh_key) for n, p in model.people.items()),
        roles=tuple(Role(n, p.person, p.backup, _runs(p.only)) for n, p in model.roles.items()),
        policy=_policy(model), steps=tuple(steps),
        guards=tuple(_guard(part, places, number) for number, part in enumerate(model.guards)),
        phases=tuple(phase.id for phase in model.phases),
        budgets=Budgets(model.budgets.write_stop, model.budgets.decision_by, model.budgets.margin),
        window=RunWindow(model.window.opens, model.window.closes) if model.window else None,
        sinks=tuple(Sink(n, p.kind, dict(p.model_extra or {})) for n, p in model.sinks.items()),
        rollback_when=tuple(_check(p, places, ("rollback_when", n)) for n, p in enumerate(model.rollback_when)),
        parameters=dict(texts), environments=tuple(model.environments),
        production=tuple(name for name, part in model.environments.items() if part.production), case=_case(model),
    )  # fmt: skip
    return runbook, tuple(ways)


def _asking(filled: Mapping[str, Any]) -> tuple[str, ...]:
    return script_shas([filled.get("guards"), filled.get("rollback_when")])


def effective_needs(model: RunbookDocument) -> list[tuple[str, ...]]:
    """Return what each step waits for: where it names nothing, the step before in its phase.

    The first step of a phase, and one with ``needs: []``, wait for the last ones of the phase before: those that no
    other step of that phase waits for. All steps that begin a phase share one tuple, however many ends there are.
    """
    found: list[tuple[str, ...]] = []
    ends: tuple[str, ...] = ()
    for phase in model.phases:
        inner: set[str] = set()
        before: str | None = None
        for part in phase.steps:
            if part.needs:
                waits = tuple(dict.fromkeys(part.needs))
            elif part.needs is None and before is not None:
                waits = (before,)
            elif ends or before is None:
                waits = ends
            else:
                waits = (before,)  # the first phase has none before it, and empty needs are read as "the step before"
            inner.update(waits)
            found.append(waits)
            before = part.id
        ends = tuple(part.id for part in phase.steps if part.id not in inner)
    return found


def _step(
    part: StepPart, phase: str, needs: tuple[str, ...], shas: tuple[str, str], places: Places, way: Steps
) -> Step:
    on_fail, fail = _fail(part.on_fail)
    effect = _effect(part.do, places, (*way, "do"))
    if part.wait is not None and effect is None:
        effect = Effect("wait", {"seconds": part.wait}, part.wait + _WAIT_SLACK, places.at(*way, "wait"))
    return Step(
        id=part.id, phase=phase, kind=StepKind(part.kind), title=part.title or part.id, instruction=part.instruction,
        dri=part.dri, reviewer=part.reviewer, effect=effect,
        expect=tuple(_check(one, places, (*way, "expect", n)) for n, one in enumerate(part.expect)),
        times=Times(part.time.plan, part.time.max, part.time.min), sha=shas[0], place=places.at(*way, "id"),
        approval=Approval(part.approve.min, tuple(part.approve.not_), part.approve.before) if part.approve else None,
        needs=needs, only_runs=_runs(part.only.runs), only_environments=tuple(part.only.env),
        repeat=Repeat(part.repeat),
        reconcile=None if part.reconcile is None else _check(part.reconcile, places, (*way, "reconcile")),
        on_fail=on_fail,
        retries=0 if fail is None else (fail.at_most if fail.goto is not None else fail.retry or 0),
        backoff=0.0 if fail is None else fail.backoff, goto=None if fail is None else fail.goto,
        rollback=_rollback(part, places, way),
        announce=Announcements(part.announce.start, part.announce.end, part.announce.late, tuple(part.announce.to)),
        point_of_no_return=part.point_of_no_return or "", requires=tuple(part.requires),
        write_stop=part.write_stop or "", twin=part.twin, filled_sha=shas[1], attest=part.attest or "",
    )  # fmt: skip


def _fail(value: str | FailPart) -> tuple[OnFail, FailPart | None]:
    if isinstance(value, str):
        return OnFail(value), None
    return (OnFail.GOTO if value.goto is not None else OnFail.RETRY), value


def _check(part: CheckPart, places: Places, way: Steps) -> Check:
    arguments = dict(part.model_extra or {})
    return Check(part.check, arguments, part.min, part.max, part.equals, part.for_, places.at(*way, "check"))


def _guard(part: GuardPart, places: Places, number: int) -> Guard:
    way: Steps = ("guards", number)
    check = _check(part, places, way)
    return Guard(part.id, check, part.every, tuple(part.armed_in), part.on_fail, part.on_no_data, places.at(*way, "id"))


def _effect(part: DoPart | None, places: Places, way: Steps) -> Effect | None:
    if part is None:
        return None
    return Effect(part.action, dict(part.model_extra or {}), part.timeout, places.at(*way))


def _rollback(part: StepPart, places: Places, way: Steps) -> Rollback | None:
    if part.rollback is None:
        return None
    one, way = part.rollback, (*way, "rollback")
    verify = tuple(_check(check, places, (*way, "verify", n)) for n, check in enumerate(one.verify))
    return Rollback(
        _effect(one.do, places, (*way, "do")), one.instruction, verify, one.plan, one.valid_until,
        DataLoss(one.data_loss), one.measured_by,
    )  # fmt: skip


def _policy(model: RunbookDocument) -> Policy:
    part, ready = model.policy, model.policy.readiness
    return Policy(
        tuple(part.reviewer_must_differ_from), part.sign_off_ttl, part.unattended_nag, part.signed_approvals,
        ready.drills_min, ready.clean_last, ready.same_runbook, ready.same_schema, ready.full_cast_last,
        ready.fresh_eyes_one, ready.rollback_drills_min, tuple(ready.dr_cases.required),
        ready.dr_cases.max_age / 86_400, tuple(ready.rollback_runbooks),
    )  # fmt: skip


def _case(model: RunbookDocument) -> Case | None:
    part = model.case
    return Case(part.priority, part.tier, part.expectation, part.bar, dict(part.steps)) if part else None


def _runs(names: list[Any]) -> tuple[RunKind, ...]:
    return tuple(RunKind(name) for name in names)
