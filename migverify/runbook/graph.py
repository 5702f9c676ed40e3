"""What a step waits for in one kind of run: pure, computed once when the run starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from migverify.errors import JournalError
from migverify.runbook.model import Runbook, RunKind, Step, StepKind

__all__ = ["ACTING", "Graph", "acts", "graph_of", "starting_by_themselves"]

ACTING = (StepKind.COMMAND, StepKind.SQL, StepKind.TRAFFIC, StepKind.CHAOS)
"""Kinds of steps that change something by themselves."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps of a run and what they wait for.

    Parameters
    ----------
    needs
        Applicable steps that must have passed before a step is ready: a need that does not apply is replaced by its
        own needs, so that order is kept across it.
    dependents
        The same, the other way round.
    not_applicable
        Steps that are not for this kind of run or environment, and why.
    expires
        Step -> the steps whose rollback is no longer valid once it has begun.
    hard
        Steps that are a hard point of no return.
    self_starting
        Gates and checks that only read, inside the write stop: the executor calls and starts them.
    """

    steps: dict[str, Step]
    needs: dict[str, tuple[str, ...]]
    dependents: dict[str, tuple[str, ...]]
    not_applicable: dict[str, str]
    expires: dict[str, tuple[str, ...]]
    hard: tuple[str, ...]
    self_starting: frozenset[str] = frozenset()


def acts(step: Step) -> bool:
    """Tell whether a step changes something, by itself or by the effect it has."""
    return step.kind in ACTING or (step.kind is StepKind.MANUAL and step.effect is not None)


def graph_of(runbook: Runbook, kind: RunKind) -> Graph:
    """Return what each step waits for.

    A step without ``needs`` waits for the step before in its phase; the first of a phase for all steps of the phase
    before that nothing else in that phase waits for.

    Raises
    ------
    JournalError
        a need names no step, or steps wait for each other.
    """
    steps = {step.id: step for step in runbook.steps}
    if len(steps) != len(runbook.steps):
        raise JournalError("two steps have one id")
    declared = _declared(runbook)
    away = {step.id: why for step in runbook.steps if (why := _why_not(step, kind, runbook.environment))}
    needs: dict[str, tuple[str, ...]] = {}
    for id_ in _in_order(steps, declared):
        found: dict[str, None] = {}
        for need in declared[id_]:
            found.update(dict.fromkeys(needs[need] if need in away else (need,)))
        needs[id_] = tuple(found)
    dependents: dict[str, list[str]] = {id_: [] for id_ in steps}
    for id_, some in needs.items():
        for need in some if id_ not in away else ():
            dependents[need].append(id_)
    return Graph(
        steps, needs, {id_: tuple(some) for id_, some in dependents.items()}, away, _expiring(runbook),
        tuple(step.id for step in runbook.steps if step.point_of_no_return == "hard"),
        starting_by_themselves([step for step in runbook.steps if step.id not in away], needs),
    )  # fmt: skip


def starting_by_themselves(steps: Sequence[Step], needs: Mapping[str, Sequence[str]]) -> frozenset[str]:
    """Return the gates and checks that only read and lie between the begin and the end of the write stop.

    Parameters
    ----------
    steps
        Those that apply.
    needs
        What each step waits for, by its id.
    """
    behind: dict[str, list[str]] = {}
    for id_, some in needs.items():
        for need in some:
            behind.setdefault(need, []).append(id_)
    after = _reached([step.id for step in steps if step.write_stop == "begin"], behind)
    before = _reached([step.id for step in steps if step.write_stop == "end"], needs)
    return frozenset(step.id for step in steps if step.id in after and step.id in before and _only_reads(step))


def _only_reads(step: Step) -> bool:
    asked_before = step.approval is not None and step.approval.before != "done"
    reads = step.kind in (StepKind.GATE, StepKind.CHECK) and step.effect is None
    return reads and not asked_before and not step.point_of_no_return and not step.write_stop


def _reached(first: Sequence[str], way: Mapping[str, Sequence[str]]) -> set[str]:
    found, left = set[str](), list(first)
    while left:
        for id_ in way.get(left.pop(), ()):
            if id_ not in found:
                found.add(id_)
                left.append(id_)
    return found


def _why_not(step: Step, kind: RunKind, environment: str) -> str:
    if step.only_runs and kind not in step.only_runs and kind is not RunKind.DRY:
        return f"not for a run of kind {kind.value}"
    if step.only_environments and environment not in step.only_environments:
        return f"not for environment {environment}"
    return ""


def _declared(runbook: Runbook) -> dict[str, tuple[str, ...]]:
    known = {step.id for step in runbook.steps}
    declared: dict[str, tuple[str, ...]] = {}
    phase, before = "", ""
    ends: tuple[str, ...] = ()
    members: list[str] = []
    for step in runbook.steps:
        if step.phase != phase:
            inner = {need for id_ in members for need in declared[id_]}
            ends = tuple(id_ for id_ in members if id_ not in inner)
            phase, before, members = step.phase, "", []
        for need in step.needs:
            if need not in known:
                raise JournalError(f"step {step.id} needs {need}, which is no step")
        declared[step.id] = step.needs or ((before,) if before else ends)
        before = step.id
        members.append(step.id)
    return declared


def _in_order(steps: dict[str, Step], declared: dict[str, tuple[str, ...]]) -> list[str]:
    waiting = {id_: len(set(some)) for id_, some in declared.items()}
    behind: dict[str, list[str]] = {id_: [] for id_ in steps}
    for id_, some in declared.items():
        for need in dict.fromkeys(some):
            behind[need].append(id_)
    free = [id_ for id_ in steps if not waiting[id_]]
    order = []
    while free:
        order.append(free.pop())
        for id_ in behind[order[-1]]:
            waiting[id_] -= 1
            if not waiting[id_]:
                free.append(id_)
    if len(order) != len(steps):
        stuck = sorted(id_ for id_, count in waiting.items() if count)
        raise JournalError(f"steps wait for each other: {', '.join(stuck[:5])}")
    return order


def _expiring(runbook: Runbook) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for step in runbook.steps:
        if step.rollback is not None and step.rollback.valid_until:
            # The file says `step:<id>`; the definition may have kept the word before the colon.
            found.setdefault(step.rollback.valid_until.removeprefix("step:"), []).append(step.id)
    return {id_: tuple(some) for id_, some in found.items()}
