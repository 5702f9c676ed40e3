"""Plans and forecasts against brute force over every path and every order."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.errors import ConfigError, UsageError
from migverify.runbook.definition.forecast import (
    Estimate,
    Progress,
    estimates,
    forecast,
    quantile,
    rollback_deadline,
)
from migverify.runbook.definition.plan import network_of, plan_of, rollback_peak
from migverify.runbook.kinds import DataLoss, Place, RunbookKind, RunKind, StepKind
from migverify.runbook.model import (
    Budgets,
    Check,
    Effect,
    Environment,
    Person,
    Role,
    Rollback,
    Runbook,
    Step,
    Times,
)
from tests.unit.runbook_runs import phases_of, replace

PEOPLE = ("ann", "ben", "cat")
AT_ONCE = 0.0
"""Nobody is waited for: the arithmetic of planned times alone."""


def step(
    number: int, needs: list[int], plan: float | None, *, dri: str = "ann", back: float | None = None, until: int = -1
) -> Step:
    rollback = None
    if back is not None:
        rollback = Rollback(
            effect=None,
            instruction="by hand",
            verify=(Check(action="x"),),
            plan=back,
            valid_until=f"s{until}" if until >= 0 else None,
            data_loss=DataLoss.NONE,
        )
    return Step(
        id=f"s{number}",
        phase="p",
        kind=StepKind.MANUAL,
        title="",
        instruction="",
        dri=dri,
        reviewer=None,
        effect=None,
        expect=(),
        times=Times(plan=plan),
        sha="",
        place=Place("f", number + 1),
        needs=tuple(f"s{one}" for one in needs),
        rollback=rollback,
    )


def book(steps: list[Step]) -> Runbook:
    return Runbook(
        version="runbook/v1", id="r", title="r", kind=RunbookKind.CUTOVER, environment="lab",
        environments={"lab": Environment()}, people={name: Person(name=name) for name in PEOPLE},
        roles={"dba": Role(name="dba", person="ann", backup="ben")}, phases=phases_of(steps or [step(0, [], None)]),
    )  # fmt: skip


@st.composite
def books(draw: st.DrawFn, most: int = 8) -> Runbook:
    """Any network without circles, in any order of the file, with whole seconds (sums are exact)."""
    count = draw(st.integers(1, most))
    steps = []
    for number in range(count):
        needs = draw(st.lists(st.integers(0, number - 1), unique=True, max_size=3)) if number else []
        back = draw(st.one_of(st.none(), st.integers(1, 50).map(float)))
        until = draw(st.integers(-1, count - 1))
        plan = float(draw(st.integers(0, 60)))
        steps.append(step(number, needs, plan, dri=draw(st.sampled_from(PEOPLE)), back=back, until=until))
    return book(draw(st.permutations(steps)))


def paths(runbook: Runbook) -> list[list[Step]]:
    """Every chain of needs that ends anywhere."""
    found: list[list[Step]] = [[one] for one in runbook.steps]
    grown = found
    while grown:
        grown = [[runbook.step(need), *path] for path in grown for need in path[0].needs]
        found = found + grown
    return found


@given(books())
def test_the_critical_path_is_the_longest_of_all_paths(runbook: Runbook) -> None:
    plan = plan_of(runbook, handoff=AT_ONCE)
    longest = max(sum(one.times.plan or 0 for one in path) for path in paths(runbook))
    assert plan.total == longest
    assert sum(runbook.step(id_).times.plan or 0 for id_ in plan.critical_path) == longest
    assert all(a in runbook.step(b).needs for a, b in itertools.pairwise(plan.critical_path))
    assert {one.id for one in plan.steps if one.critical} >= set(plan.critical_path)


@given(books())
def test_the_order_is_topological_and_keeps_every_step(runbook: Runbook) -> None:
    plan = plan_of(runbook, handoff=AT_ONCE)
    network = network_of(runbook.steps)
    place = {runbook.steps[n].id: rank for rank, n in enumerate(network.order)}
    assert sorted(one.id for one in plan.steps) == sorted(one.id for one in runbook.steps)
    assert all(place[need] < place[one.id] for one in runbook.steps for need in one.needs)
    times = {one.id: one for one in plan.steps}
    assert all(times[need].finish <= times[one.id].start for one in runbook.steps for need in one.needs)


@given(books(), st.data())
def test_slack_is_how_much_later_a_step_may_end(runbook: Runbook, data: st.DataObject) -> None:
    plan = plan_of(runbook, handoff=AT_ONCE)
    one = data.draw(st.sampled_from(plan.steps))

    def longer(by: float) -> float:
        changed = [
            step(int(s.id[1:]), [int(n[1:]) for n in s.needs], (s.times.plan or 0) + (by if s.id == one.id else 0))
            for s in runbook.steps
        ]
        return plan_of(book(changed), handoff=AT_ONCE).total

    assert longer(one.slack) == plan.total
    assert longer(one.slack + 1) == plan.total + 1


@given(books())
def test_the_worst_moment_to_go_back_is_found(runbook: Runbook) -> None:
    plan = plan_of(runbook, handoff=AT_ONCE)
    times = {one.id: one for one in plan.steps}
    worst = 0.0
    for moment in {one.finish for one in plan.steps}:
        back = 0.0
        for one in runbook.steps:
            if one.rollback is None or times[one.id].finish > moment:
                continue
            end = one.rollback.valid_until
            # What expires at this very moment counts still: the worst is asked for.
            if end is None or times[end].start >= moment or times[end].start < times[one.id].finish:
                back += one.rollback.plan or 0
        worst = max(worst, moment + back)
    at, seconds, _ = rollback_peak(runbook, plan)
    assert at + seconds == worst


def test_steps_that_wait_for_each_other_have_no_plan() -> None:
    with pytest.raises(ConfigError, match="wait for each other: s0, s1"):
        plan_of(book([step(0, [1], 1), step(1, [0], 1)]))
    with pytest.raises(UsageError):
        forecast(book([step(0, [1], 1), step(1, [0], 1)]), RunKind.LIVE, {}, Progress(), 0)


def test_a_step_without_time_is_said_and_drills_fill_it() -> None:
    runbook = book([step(0, [], None), step(1, [0], 5.0)])
    assert plan_of(runbook, handoff=AT_ONCE).unknown == ("s0",)
    assert plan_of(runbook, handoff=AT_ONCE).total == 5
    measured = plan_of(runbook, measured={"s0": 7.0, "s1": 100.0}, handoff=AT_ONCE)
    assert measured.unknown == ()
    assert measured.total == 12  # the author's own plan is not overruled
    assert [one.measured for one in measured.steps] == [True, False]


def test_nothing_is_planned_of_nothing() -> None:
    empty = plan_of(book([]).model_copy(update={"phases": ()}), handoff=AT_ONCE)
    assert (empty.total, empty.critical_path, empty.write_stop) == (0.0, (), None)


@given(st.lists(st.integers(0, 100).map(float), min_size=1, max_size=30), st.floats(0.01, 1.0))
def test_a_quantile_is_the_smallest_that_covers_the_share(values: list[float], share: float) -> None:
    found = quantile(values, share)
    covering = [one for one in values if sum(other <= one for other in values) >= share * len(values) - 1e-6]
    assert found == min(covering)


@pytest.mark.parametrize(("values", "share"), [([], 0.5), ([1.0], 0), ([1.0], 1.1), ([-1.0], 0.5), ([math.nan], 0.5)])
def test_a_quantile_of_nonsense_is_refused(values: list[float], share: float) -> None:
    with pytest.raises(UsageError):
        quantile(values, share)


def test_estimates_take_drills_from_two_on() -> None:
    runbook = book([step(0, [], 10.0), step(1, [0], 10.0), step(2, [1], None), step(3, [2], None)])
    drills = [{"s0": 4.0, "s1": 1.0, "s2": 9.0}, {"s0": 6.0}]
    found = estimates(runbook, drills)
    assert found == {"s0": Estimate(4.0, 6.0, 2), "s1": Estimate(10.0, 10.0, 0), "s2": Estimate(9.0, 9.0, 1)}


@given(books(), st.data())
def test_a_forecast_before_the_start_is_the_plan(runbook: Runbook, data: st.DataObject) -> None:
    expected = estimates(runbook, [])
    plan = plan_of(runbook, handoff=AT_ONCE)
    assert forecast(runbook, RunKind.LIVE, expected, Progress(), 0.0, AT_ONCE).finish_p50 == plan.total
    later = float(data.draw(st.integers(0, 500)))
    assert forecast(runbook, RunKind.LIVE, expected, Progress(), later, AT_ONCE).finish_p50 == later + plan.total


@given(books(), st.integers(0, 400))
def test_a_run_that_keeps_its_plan_keeps_its_forecast(runbook: Runbook, now: int) -> None:
    plan = plan_of(runbook, handoff=AT_ONCE)
    done = {one.id: one.finish for one in plan.steps if one.finish <= now}
    under_way = {one.id: one.start for one in plan.steps if one.start <= now < one.finish}
    progress = Progress(done, under_way)
    if now <= plan.total:
        told = forecast(runbook, RunKind.LIVE, estimates(runbook, []), progress, float(now), AT_ONCE)
        assert told.finish_p50 == plan.total
        assert set(told.starts) == {one.id for one in plan.steps} - set(done) - set(under_way)


@given(books(), st.integers(0, 400), st.data())
def test_a_forecast_never_lies_in_the_past_and_p90_not_before_p50(
    runbook: Runbook, now: int, data: st.DataObject
) -> None:
    expected = {
        one.id: Estimate(one.times.plan or 0, (one.times.plan or 0) + data.draw(st.integers(0, 30)), 3)
        for one in runbook.steps
    }
    begun = data.draw(st.sampled_from(runbook.steps))
    told = forecast(runbook, RunKind.LIVE, expected, Progress({}, {begun.id: 0.0}), float(now), AT_ONCE)
    assert now <= told.finish_p50 <= told.finish_p90


def armed(plan: float | None) -> Rollback:
    return Rollback(effect=None, instruction="", verify=(), plan=plan)


@given(st.lists(st.integers(0, 1000), max_size=6), st.integers(0, 100))
def test_the_last_moment_to_decide(plans: list[int], margin: int) -> None:
    closes = 1_770_000_000.0
    told = rollback_deadline(closes, {f"s{n}": armed(float(one)) for n, one in enumerate(plans)}, float(margin))
    now = told.at
    for one in plans:  # undone one after the other, from the last moment on
        now += one
    assert now + margin == closes
    assert told.left(closes) == -(sum(plans) + margin)


def test_a_way_back_without_time_is_too_late_already() -> None:
    told = rollback_deadline(100.0, {"s1": armed(None), "s2": armed(5.0)}, 1.0)
    assert told.unknown == ("s1",)
    assert told.left(0.0) == -math.inf


@pytest.mark.parametrize(
    ("closes", "plan", "margin"), [(math.nan, 1.0, 1.0), (9.0, math.nan, 1.0), (9.0, -1.0, 1.0), (9.0, 1.0, -1.0)]
)
def test_a_deadline_of_nonsense_is_refused(closes: float, plan: float, margin: float) -> None:
    with pytest.raises(UsageError):
        rollback_deadline(closes, {"s": armed(plan)}, margin)


def cutover() -> Runbook:
    """Return a write stop of 20 s of work: begin, a gate that reads, one that writes a marker, end."""
    gate = {"kind": StepKind.GATE, "reviewer": "ben"}
    steps = [
        replace(step(0, [], 5), kind=StepKind.COMMAND, reviewer="ben", write_stop="begin"),
        replace(step(1, [0], 5), **gate),
        replace(step(2, [1], 5), **gate, effect=Effect(action="marker.write")),
        replace(step(3, [2], 5), kind=StepKind.COMMAND, reviewer="ben", write_stop="end"),
    ]
    return replace(book(steps), budgets=Budgets(write_stop=60))


def test_handoffs_between_people_are_part_of_the_plan() -> None:
    plan = plan_of(cutover(), RunKind.LIVE, handoff=7.0)
    # call, start and review of each, but of the gate that reads only its review
    assert [one.handoffs for one in plan.steps] == [3, 1, 3, 3]
    assert plan.total == 20 + 10 * 7
    # from the moment at which the first acts to that at which the last has acted
    assert (plan.write_stop_work, plan.write_stop_handoffs) == (20, 7)
    assert plan.write_stop == 20 + 7 * 7
    assert plan_of(cutover(), RunKind.DRY).total == 20  # nobody says anything in a dry run


def test_a_forecast_has_the_handoffs_that_are_ahead() -> None:
    runbook = cutover()
    expected = estimates(runbook, ())
    whole = forecast(runbook, RunKind.LIVE, expected, Progress(), 0.0)
    assert (whole.finish_p50, whole.finish_p90) == (20 + 100, 20 + 100)
    begun = forecast(runbook, RunKind.LIVE, expected, Progress({"s0": 30.0}, {"s1": 30.0}), 31.0)
    assert begun.finish_p50 == 30 + 5 + 10 + 2 * (5 + 30)
