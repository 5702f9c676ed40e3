"""Which step waits for which, and how long it all takes: pure, from a definition and durations.

The arithmetic is the critical path method: earliest times forwards, latest times backwards, slack is the difference.
Times are seconds from the start of the run. A step is handed over when it is called, when it is started, with each
approval before its start, and when it is reviewed. Reading gates inside a write stop start by themselves: only their
review is a hand-off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from migverify.errors import ConfigError
from migverify.runbook.graph import Network, network_of, starting_by_themselves
from migverify.runbook.kinds import RunKind, StepKind
from migverify.runbook.model import Runbook, Step
from migverify.runbook.people import COORDINATOR, needed_approvals

HANDOFF_SECONDS = 10.0
"""From one person's word to the next one's."""


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """When a step is planned. ``slack``: how late it may be without a later end; ``measured`` in drills, or planned.

    ``start`` is when it is ready, ``finish`` when it is accepted: ``duration`` and its ``handoffs`` lie in between.
    """

    id: str
    phase: str
    dri: str
    applies: bool
    duration: float
    known: bool
    measured: bool
    start: float
    finish: float
    slack: float
    critical: bool
    handoffs: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned run. ``unknown`` are steps without any time, counted as 0: then all sums are "at least".

    ``steps`` are in topological order, ties by the file's. ``write_stop`` is None where the runbook has none;
    ``write_stop_work`` is it without hand-offs between people, of which each takes ``handoff`` seconds.
    """

    steps: tuple[PlannedStep, ...]
    total: float
    critical_path: tuple[str, ...]
    write_stop: float | None
    unknown: tuple[str, ...]
    handoff: float = HANDOFF_SECONDS
    write_stop_work: float | None = None
    write_stop_handoffs: int = 0


def applies(step: Step, environment: str, kind: RunKind | None = None) -> bool:
    """Tell whether a step is for this environment and kind of run (None: any). A dry run walks through all kinds."""
    for_run = not step.only.runs or kind is None or kind is RunKind.DRY or kind in step.only.runs
    return for_run and (not step.only.environments or environment in step.only.environments)


def ancestors(network: Network) -> list[int]:
    """Return for each step, as bits of an integer, the steps that are certainly finished before it begins."""
    found = [0] * len(network.needs)
    for one in network.order:
        bits = 0
        for need in network.needs[one]:
            bits |= found[need] | (1 << need)
        found[one] = bits
    return found


def plan_of(
    runbook: Runbook, kind: RunKind | None = None, measured: Mapping[str, float] | None = None,
    network: Network | None = None, handoff: float = HANDOFF_SECONDS,
) -> Plan:  # fmt: skip
    """Plan a run in the runbook's environment.

    Parameters
    ----------
    runbook
        The definition.
    kind
        Kind of run; None: every step of the environment.
    measured
        Seconds by step id, from drills: they stand in for ``time.plan`` where the file has none.
    network
        That of ``network_of``, where it is known already.
    handoff
        Seconds that one person waits for another.

    Raises ConfigError: steps wait for each other.
    """
    steps, known = runbook.steps, measured or {}
    network = network or network_of(steps)
    if network.stuck:
        names = ", ".join(steps[one].id for one in network.stuck[:5])
        raise ConfigError(f"{steps[network.stuck[0]].place}: steps wait for each other: {names}")
    counted = [applies(step, runbook.environment, kind) for step in steps]
    given = [_expected(step, known) for step in steps]
    lasts = [(one or 0.0) if counts else 0.0 for one, counts in zip(given, counted, strict=True)]
    before, after = _handoffs(runbook, counted, kind)
    whole = [last + (b + a) * handoff for last, b, a in zip(lasts, before, after, strict=True)]
    start, finish = earliest(network, whole)
    total = max(finish, default=0.0)
    late = latest(network, whole, total)
    planned = tuple(
        PlannedStep(
            steps[n].id, steps[n].phase, steps[n].dri, counted[n], lasts[n], given[n] is not None,
            steps[n].times.plan is None and given[n] is not None, start[n], finish[n], late[n] - finish[n],
            counted[n] and _same(late[n], finish[n]), before[n] + after[n],
        )
        for n in sorted(network.order, key=lambda n: (start[n], n))
    )  # fmt: skip
    stop, work, inside = _write_stop(runbook, network, counted, lasts, before, after, handoff)
    return Plan(
        planned, total, _critical(network, runbook, start, finish, counted), stop,
        tuple(step.id for n, step in enumerate(steps) if counted[n] and given[n] is None), handoff, work, inside,
    )  # fmt: skip


def handoffs_before(step: Step, alone: Collection[str], kind: RunKind | None = None) -> int:
    """Return how many hand-offs a step has before it acts: its call, approvals, and its start by another person.

    ``alone`` are the steps that start by themselves. Nobody says anything in a dry run.
    """
    if kind is RunKind.DRY or step.id in alone:
        return 0
    owner = 1 if step.point_of_no_return else 0
    return 1 + max(owner, needed_approvals(step, "start")) + (step.dri != COORDINATOR)


def handoffs_after(step: Step, kind: RunKind | None = None) -> int:
    """Return how many hand-offs a step has after it acted: its reviews."""
    return 0 if kind is RunKind.DRY else needed_approvals(step, "done")


def _handoffs(runbook: Runbook, counted: list[bool], kind: RunKind | None) -> tuple[list[int], list[int]]:
    steps = [step for step, counts in zip(runbook.steps, counted, strict=True) if counts]
    alone = starting_by_themselves(steps, {step.id: step.needs for step in runbook.steps})
    pairs = list(zip(runbook.steps, counted, strict=True))
    return (
        [handoffs_before(step, alone, kind) if counts else 0 for step, counts in pairs],
        [handoffs_after(step, kind) if counts else 0 for step, counts in pairs],
    )


def _expected(step: Step, measured: Mapping[str, float]) -> float | None:
    if step.times.plan is not None:
        return step.times.plan
    return measured.get(step.id, 0.0 if step.kind is StepKind.ANNOUNCE else None)


def earliest(network: Network, lasts: list[float]) -> tuple[list[float], list[float]]:
    """Return earliest start and finish of each step."""
    start, finish = [0.0] * len(lasts), [0.0] * len(lasts)
    for one in network.order:
        start[one] = max((finish[need] for need in network.needs[one]), default=0.0)
        finish[one] = start[one] + lasts[one]
    return start, finish


def latest(network: Network, lasts: list[float], end: float) -> list[float]:
    """Return the latest finish of each step with which all ends at ``end``."""
    late = [end] * len(lasts)
    for one in reversed(network.order):
        begin = late[one] - lasts[one]
        for need in network.needs[one]:
            late[need] = min(late[need], begin)
    return late


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * max(1.0, abs(one))  # sums in another order differ in the last digits


def _critical(
    network: Network, runbook: Runbook, start: list[float], finish: list[float], counted: list[bool]
) -> tuple[str, ...]:
    """One longest chain, from its first step; of equal ones that of the lowest numbers."""
    if not finish:
        return ()
    one: int | None = min(range(len(finish)), key=lambda n: (-finish[n], n))
    chain = []
    while one is not None:
        if counted[one]:
            chain.append(runbook.steps[one].id)
        before = [need for need in network.needs[one] if finish[need] == start[one]]
        one = min(before) if before else None
    return tuple(reversed(chain))


def _write_stop(
    runbook: Runbook, network: Network, counted: list[bool], lasts: list[float], before: list[int], after: list[int],
    each: float,
) -> tuple[float | None, float | None, int]:  # fmt: skip
    """Return for how long writes stop, without hand-offs, and how many hand-offs are on its longest way.

    It begins when the step that begins it acts, and ends when the one that ends it has acted: what is handed over
    before the first and after the second does not count.
    """
    begins = [n for n, step in enumerate(runbook.steps) if step.write_stop == "begin" and counted[n]]
    ends = [n for n, step in enumerate(runbook.steps) if step.write_stop == "end" and counted[n]]
    if not begins or not ends:
        return None, None, 0

    def longest(seconds: float) -> float:
        whole = [last + (b + a) * seconds for last, b, a in zip(lasts, before, after, strict=True)]
        start, finish = earliest(network, whole)
        return max(finish[n] - after[n] * seconds for n in ends) - min(start[n] + before[n] * seconds for n in begins)

    work = longest(0.0)
    return longest(each), work, round(longest(1.0) - work)


def holders(runbook: Runbook) -> dict[str, tuple[str, ...]]:
    """Return for every role, person and alias who that is: the person, then the backup."""
    names = {name: person.name for person in runbook.people.values() for name in (*person.aliases, person.name)}
    found: dict[str, tuple[str, ...]] = {name: (person,) for name, person in names.items()}
    for role in runbook.roles.values():
        some = [one for one in (role.person, role.backup) if one]
        found[role.name] = tuple(names.get(name, name) for name in some)
    return found


def rollback_peak(runbook: Runbook, plan: Plan) -> tuple[float, float, str]:
    """Return the worst moment of a plan to go back: when, how long everything armed then takes, after which step.

    A rollback is armed when its step ends, and until the step of ``valid_until``, or a hard point of no return, begins.
    The worst moment is that at which the rollback ends latest.
    """
    steps = {step.id: step for step in runbook.steps}
    moments: list[tuple[float, int, str]] = []
    for one in plan.steps:
        if one.applies:
            moments += [(one.finish, 0, one.id), (one.start, 1, one.id)]
    ends: dict[str, list[str]] = {}
    for step in runbook.steps:
        if step.rollback is not None and step.rollback.valid_until:
            ends.setdefault(step.rollback.valid_until, []).append(step.id)
    armed: dict[str, float] = {}
    worst = (0.0, 0.0, "")
    for moment, begins, id_ in sorted(moments, key=lambda m: (m[0], m[1])):
        if begins:
            for gone in list(armed) if steps[id_].point_of_no_return == "hard" else ends.get(id_, ()):
                armed.pop(gone, None)
            continue
        rollback = steps[id_].rollback
        if rollback is not None:
            armed[id_] = rollback.plan or 0.0
        back = sum(armed.values())
        if moment + back > worst[0] + worst[1]:
            worst = (moment, back, id_)
    return worst
