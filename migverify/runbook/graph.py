"""What a step waits for in one kind of run: pure, computed once when the run starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from migverify.errors import JournalError
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Runbook, Step

__all__ = ["ACTING", "Graph", "Network", "acts", "graph_of", "network_of", "reached", "starting_by_themselves"]

ACTING = (StepKind.COMMAND, StepKind.SQL, StepKind.TRAFFIC, StepKind.CHAOS)
"""Kinds of steps that change something by themselves."""


@dataclass(frozen=True, slots=True)
class Network:
    """Steps by their number in the runbook.

    ``needs`` leaves out ids that are no step. ``order`` is topological, and has every step that no circle holds back;
    ``stuck`` are the others.
    """

    needs: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    stuck: tuple[int, ...]
    number: Mapping[str, int]


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


def network_of(steps: Iterable[Step]) -> Network:
    """Return who waits for whom. Of two steps with one id the first is meant."""
    listed = list(steps)
    number: dict[str, int] = {}
    for one, step in enumerate(listed):
        number.setdefault(step.id, one)
    needs = tuple(tuple(dict.fromkeys(number[id_] for id_ in step.needs if id_ in number)) for step in listed)
    behind: list[list[int]] = [[] for _ in listed]
    waiting = [len(some) for some in needs]
    for one, some in enumerate(needs):
        for need in some:
            behind[need].append(one)
    order = [one for one, count in enumerate(waiting) if not count]
    for one in order:  # grows while it is walked
        for next_ in behind[one]:
            waiting[next_] -= 1
            if not waiting[next_]:
                order.append(next_)
    stuck = tuple(one for one, count in enumerate(waiting) if count)
    return Network(needs, tuple(order), stuck, number)


def graph_of(runbook: Runbook, kind: RunKind) -> Graph:
    """Return what each step waits for.

    Raises JournalError: a need names no step, or steps wait for each other.
    """
    steps = {step.id: step for step in runbook.steps}
    if len(steps) != len(runbook.steps):
        raise JournalError("two steps have one id")
    for step in runbook.steps:
        for need in step.needs:
            if need not in steps:
                raise JournalError(f"step {step.id} needs {need}, which is no step")
    network = network_of(runbook.steps)
    if network.stuck:
        stuck = sorted(runbook.steps[one].id for one in network.stuck)
        raise JournalError(f"steps wait for each other: {', '.join(stuck[:5])}")
    away = {step.id: why for step in runbook.steps if (why := _why_not(step, kind, runbook.environment))}
    needs: dict[str, tuple[str, ...]] = {}
    for step in (runbook.steps[one] for one in network.order):
        found: dict[str, None] = {}
        for need in step.needs:
            found.update(dict.fromkeys(needs[need] if need in away else (need,)))
        needs[step.id] = tuple(found)
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
    after = reached([step.id for step in steps if step.write_stop == "begin"], behind)
    before = reached([step.id for step in steps if step.write_stop == "end"], needs)
    return frozenset(step.id for step in steps if step.id in after and step.id in before and _only_reads(step))


def _only_reads(step: Step) -> bool:
    asked_before = step.approval is not None and step.approval.before != "done"
    reads = step.kind in (StepKind.GATE, StepKind.CHECK) and step.effect is None
    return reads and not asked_before and not step.point_of_no_return and not step.write_stop


def reached(first: Iterable[str], way: Mapping[str, Sequence[str]]) -> set[str]:
    """Return everything that some ids lead to, over any number of links."""
    found, left = set[str](), list(first)
    while left:
        for id_ in way.get(left.pop(), ()):
            if id_ not in found:
                found.add(id_)
                left.append(id_)
    return found


def _why_not(step: Step, kind: RunKind, environment: str) -> str:
    if step.only.runs and kind not in step.only.runs and kind is not RunKind.DRY:
        return f"not for a run of kind {kind.value}"
    if step.only.environments and environment not in step.only.environments:
        return f"not for environment {environment}"
    return ""


def _expiring(runbook: Runbook) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for step in runbook.steps:
        if step.rollback is not None and step.rollback.valid_until:
            # The file says `step:<id>`; the definition may have kept the word before the colon.
            found.setdefault(step.rollback.valid_until.removeprefix("step:"), []).append(step.id)
    return {id_: tuple(some) for id_, some in found.items()}
