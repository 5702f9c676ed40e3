"""Rules of people: who acts, who signs, who decides, and that these are not one person."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from migverify.runbook.definition.findings import LintFinding, finding
from migverify.runbook.definition.lint_ground import Ground, kinds_of, places_of
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Step
from migverify.runbook.people import identity_problems

_ALONE = (StepKind.WAIT, StepKind.ANNOUNCE)  # nothing to sign, and nobody's hands are needed


def people_rules(ground: Ground) -> Iterator[LintFinding]:
    """Yield what is wrong with people and roles."""
    yield from _roles(ground)
    for number, step in enumerate(ground.runbook.steps):
        yield from _known(ground, number, step)
        yield from _reviewer(ground, number, step)
        yield from _approval(ground, number, step)
        yield from _decision(ground, number, step)
    yield from _double_booked(ground)


def _roles(ground: Ground) -> Iterator[LintFinding]:
    book, at = ground.runbook, ground.places.at
    names = {name for person in book.people.values() for name in (person.name, *person.aliases)}
    if "coordinator" not in book.roles:
        yield finding("no-coordinator", at("roles"), "no role coordinator")
    for problem in identity_problems(book.people.values()):
        yield finding("same-person-twice", at("people"), problem)
    for role in book.roles.values():
        for key, name in (("person", role.person), ("backup", role.backup)):
            if name is not None and name not in names:
                yield finding(
                    "unknown-person", at("roles", role.name, key), f"role {role.name}: nobody is named {name}"
                )
        if len(set(ground.who[role.name])) < len(ground.who[role.name]):
            text = f"role {role.name}: the backup is the same person"
            yield finding("backup-is-person", at("roles", role.name, "backup"), text)
        if role.name in names:
            text = f"{role.name} is a role and a person"
            yield finding("duplicate-id", at("roles", role.name), text, "Give the role another name.")
    for name in book.policy.reviewer_must_differ_from:
        if name != "dri" and name not in ground.who:
            where = at("policy", "reviewer_must_differ_from")
            yield finding("unknown-person", where, f"reviewer_must_differ_from: there is no {name}")


def _known(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    for key, name in (("dri", step.dri), ("reviewer", step.reviewer)):
        if name is not None and name not in ground.who:
            yield ground.at("unknown-person", number, (key,), f"{key} {name} is no role and no person")
    for name in step.approval.excluded if step.approval else ():
        if name not in ("dri", "reviewer") and name not in ground.who:
            yield ground.at("unknown-person", number, ("approve", "not"), f"{name} is no role and no person")


def _reviewer(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    if step.reviewer is None:
        if step.kind not in _ALONE:
            yield ground.at("no-reviewer", number, (), "nobody signs it")
        return
    signs, does = ground.who.get(step.reviewer), ground.who.get(step.dri)
    if signs and does and (both := sorted({*signs} & {*does})):
        how = "" if signs[0] == does[0] else ", when a backup steps in"
        yield ground.at("reviewer-is-dri", number, ("reviewer",), f"{both[0]} does it and signs it{how}")
    for name in ground.runbook.policy.reviewer_must_differ_from:
        others = ground.who.get(name, ()) if name != "dri" else ()
        if signs and name != step.dri and (both := sorted({*signs} & {*others})):
            yield ground.at("reviewer-excluded", number, ("reviewer",), f"{both[0]} is {name}, and may not sign")


def _approval(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    if step.approval is None:
        return
    out: set[str] = set()
    for name in step.approval.excluded:
        part = {"dri": step.dri, "reviewer": step.reviewer}.get(name, name)
        out.update(ground.who.get(part or "", ()))
    able = set(ground.runbook.people) - out
    if len(able) < step.approval.minimum:
        text = f"{step.approval.minimum} approvals are asked for, and {len(able)} people may give one"
        yield ground.at("approval-impossible", number, ("approve",), text)


def _decision(ground: Ground, number: int, step: Step) -> Iterator[LintFinding]:
    if not step.point_of_no_return and step.kind is not StepKind.DECISION:
        return
    # A rehearsal may go without the one who decides in earnest; a live run may not.
    kinds = kinds_of(step)
    needed = {RunKind.LIVE} if RunKind.LIVE in kinds else kinds
    covered = {
        kind for role in ground.runbook.roles.values() if role.name == "decision_owner" and role.person in ground.who
        for kind in role.only or RunKind
    }  # fmt: skip
    if not needed <= covered:
        way = ("point_of_no_return",) if step.point_of_no_return else ("kind",)
        what = "a point of no return" if step.point_of_no_return else "a decision"
        lacking = ", ".join(sorted(kind.value for kind in needed - covered))
        yield ground.at("no-decision-owner", number, way, f"{what}, and nobody decides in runs of kind {lacking}")


def _double_booked(ground: Ground) -> Iterator[LintFinding]:
    """One person on steps that nothing orders and that one run can have both."""
    if ground.network.stuck:
        return
    steps, masks = ground.runbook.steps, dict[str, int]()
    for n in ground.network.order:  # so that only earlier ones can be before it, and none of them behind it
        step = steps[n]
        if step.dri not in ground.who or step.kind in _ALONE:
            continue
        person = ground.who[step.dri][0]
        free = masks.get(person, 0) & ~ground.before[n]
        meets = (steps[m].id for m in _bits(free) if _meet(ground, steps[m], step))
        others = list(islice(meets, 4))
        if others:
            names = ", ".join(others[:3]) + (" and more" if len(others) > 3 else "")
            yield ground.at("double-booked", n, ("dri",), f"{person} may have to do it at once with {names}")
        masks[person] = masks.get(person, 0) | (1 << n)


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _meet(ground: Ground, one: Step, other: Step) -> bool:
    runs = kinds_of(one) & kinds_of(other)
    return bool(runs) and bool(places_of(one, ground.runbook) & places_of(other, ground.runbook))
