"""What a journal says of a run: every fact from events, through the real rules; damage is never skipped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.runbook.definition.forecast import estimates
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.history.drills import rollback_only, why_no_rollback_drill, why_unclean
from migverify.runbook.history.past import Damaged, _bounds, drill_seconds, past_runs
from migverify.runbook.history.read import past_run
from migverify.runbook.history.scores import CORRECTNESS, PROCESS, correctness_score, process_score
from migverify.runbook.kinds import RunbookKind, RunKind, StepKind
from migverify.runbook.model import CASE_PARTS, Applies, Budgets, Case, Failure, Runbook, Sink, Times
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from tests.unit.runbook_past import SCHEMA, Drill, clean, edited, only, rolled_back
from tests.unit.runbook_places import data_of, rewrite
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, ERIN, guard_of, is_set, manual, replace, runbook, step

TERMINAL = Sink(name="terminal", kind="stdout")


def first_event(wall: float) -> Event:
    return Event(0, "", "", "r", "", 0, EventKind.RUN_STARTED, "alice", "coordinator", wall, 0, "boot", 0, "")


def book(**changes: Any) -> Runbook:
    """Return a runbook with all that can go wrong: guard, sink, write stop."""
    told: dict[str, Any] = {
        "guards": (guard_of("g", is_set("x"), 5.0, armed_in=("*",), on_fail="hold"),), "sinks": (TERMINAL,),
        "budgets": Budgets(write_stop=60.0),
    }  # fmt: skip
    return runbook(step("a", write_stop="begin"), step("b", write_stop="end"), **told | changes)


def test_a_run_in_which_nothing_goes_wrong_is_clean(tmp_path: Path) -> None:
    past = clean(tmp_path, book(), "r").past()
    assert why_unclean(past) == ()
    assert (past.state, past.over, past.autopilot, past.kind) == (RunState.COMPLETED, True, False, RunKind.REHEARSAL)
    assert (past.run, past.runbook, past.sha, past.text_sha) == ("r", "cut", "sha-of-runbook", "sha-of-text")
    assert past.schema_fingerprint == SCHEMA
    assert past.people == ("alice", "bob", "carol")
    assert [(part.role, part.person, part.backup) for part in past.parts] == [
        ("coordinator", "alice", False), ("db-1", "bob", False), ("db-2", "carol", False),
    ]  # fmt: skip
    assert [round(one.seconds or 0) for one in past.steps.values()] == [10, 10]
    assert all(one.exact and one.clean and one.sha for one in past.steps.values())
    assert 20 < past.write_stop < 21
    assert past.ended is not None
    assert 20 < past.seconds < 21
    assert (past.unsigned, past.signed, past.takeovers, past.retries) == (2, 0, 0, 0)


def a_bad_end(kind: EventKind) -> Callable[[Drill], None]:
    def spoil(drill: Drill) -> None:
        drill.begin("a")
        drill.told(EventKind.INTENT, "a", action="world.set", arguments={}, timeout=60.0)
        if kind is EventKind.UNKNOWN:
            drill.fail("a", kind)
            drill.told(EventKind.RECONCILED, "a", happened=False, how="probe")
        else:
            drill.told(EventKind.EFFECT, "a", outcome="ok", text="set", value=True, evidence={}, effect=True)
            drill.fail("a", kind)

    return spoil


def waived(drill: Drill) -> None:
    drill.begin("a")
    drill.fail("a")
    drill.say(machine.waive, ALICE, "a", "it is well known")
    drill.say(machine.waive, DANA, "a", "it is well known")


def held(drill: Drill) -> None:
    drill.of_run(machine.hold, BOB, "lunch, as planned")
    drill.of_run(machine.resume, ALICE)


def held_by_guard(drill: Drill) -> None:
    drill.guard("g", 1, 1, "fail")
    drill.told(EventKind.HELD, guard="g", reason="guard g fails")
    drill.guard("g", 1, 1)
    drill.of_run(machine.resume, ALICE)


TROUBLES: list[tuple[Callable[[Drill], Any], str]] = [
    (a_bad_end(EventKind.FAILED), "a was failed"), (a_bad_end(EventKind.TIMED_OUT), "a was timed out"),
    (a_bad_end(EventKind.INCONCLUSIVE), "a was inconclusive"), (waived, "a was waived: it is well known"),
    (held, "held by bob: lunch, as planned"), (held_by_guard, "held by g: guard g fails"),
    (lambda d: d.announce(how="queued"), "'note' to terminal was not delivered (queued)"),
    (lambda d: d.announce(how="failed"), "was not delivered (failed: 503)"),
    (lambda d: d.announce(how="given up"), "was not delivered (given up: 503)"),
    (lambda d: d.guard("g", 0, 20), "guard g answered 100 of 120 questions, and 95% are wanted"),
    (lambda d: d.step("a", 70), "writes were stopped for 80 s of 60 s"),
    (lambda d: d.told(EventKind.NOTE, alarm="announcements", text="no template"), "an announcement was not delivered"),
]  # fmt: skip


@pytest.mark.parametrize(("spoil", "reason"), TROUBLES)
def test_each_trouble_by_itself_makes_a_run_unclean(
    tmp_path: Path, spoil: Callable[[Drill], None], reason: str
) -> None:
    drill = Drill(tmp_path, book(), "r")
    spoil(drill)
    if drill.status.steps["a"].state in (StepState.FAILED, StepState.TIMED_OUT, StepState.INCONCLUSIVE):
        drill.again("a")
    drill.play()
    drill.guard("g")
    drill.announce()
    drill.complete()
    why = why_unclean(drill.past())
    assert any(reason in one for one in why), why
    expected = {"a was waived": 2}.get(reason.partition(":")[0], 2 if reason.startswith("a was") else 1)
    assert len(why) == expected, why  # a step that failed was tried again or waived as well


def test_an_unknown_effect_makes_a_run_unclean_even_when_its_probe_decided(tmp_path: Path) -> None:
    drill = Drill(tmp_path, book(), "r")
    a_bad_end(EventKind.UNKNOWN)(drill)
    drill.again("a")
    drill.play()
    drill.guard("g")
    drill.announce()
    drill.complete()
    assert why_unclean(drill.past()) == ("a was unknown", "1 retries (a)")


def test_a_run_that_did_not_go_through_is_unclean(tmp_path: Path) -> None:
    drill = Drill(tmp_path, runbook(step("a"), step("b")), "open")
    drill.step("a")
    assert why_unclean(drill.past()) == ("it is not over (running)",)
    drill.of_run(machine.abort, ALICE, "enough")
    assert why_unclean(drill.past()) == ("it ended aborted, not all undone",)


def test_a_guard_that_was_never_asked_and_sinks_that_heard_nothing_are_told(tmp_path: Path) -> None:
    drill = Drill(tmp_path, book(), "r")
    drill.play()
    drill.complete()
    assert why_unclean(drill.past()) == (
        "nothing was announced although the runbook has sinks",
        "guard g answered none of its questions, and 95% are wanted",
    )


def test_a_guard_of_a_phase_that_nobody_began_is_not_missed(tmp_path: Path) -> None:
    some = runbook(
        step("a"), step("b", phase="q", only=Applies(environments=("prod",))),
        guards=(guard_of("late", is_set("x"), 5.0, armed_in=("q",), on_fail="hold"),),
    )  # fmt: skip
    assert clean_without_guards(tmp_path, some).guards == ()


def clean_without_guards(room: Path, some: Runbook) -> Any:
    drill = Drill(room, some, "r")
    drill.play()
    drill.complete()
    return drill.past()


def test_who_played_which_part_and_whether_it_was_the_backup(tmp_path: Path) -> None:
    drill = Drill(tmp_path, runbook(step("a"), manual("m")), "r")
    drill.step("a")
    drill.promote()
    drill.play(coordinator=ERIN)
    drill.complete()
    past = drill.past()
    assert {(part.role, part.person, part.backup) for part in past.parts} == {
        ("coordinator", "alice", False), ("coordinator", "erin", True), ("db-1", "bob", False), ("db-2", "carol", False)
    }  # fmt: skip
    assert past.people == ("alice", "bob", "carol", "erin")


def test_a_rollback_that_was_ordered_is_a_planned_hold_and_its_steps_are_told(tmp_path: Path) -> None:
    past = rolled_back(tmp_path, book(), "r", steps=1).past()
    assert past.state is RunState.ROLLED_BACK
    assert [(one.planned, one.by) for one in past.holds] == [(True, "dana")]
    assert [(one.step, one.state) for one in past.undone] == [("a", RollbackState.UNDONE_VERIFIED)]
    assert past.undone[0].seconds is not None
    assert 2 <= past.undone[0].seconds < 3
    assert rollback_only(past)
    assert why_no_rollback_drill(past, (), book()) == ""
    changed = edited(book(), "a", times=Times(plan=3))
    assert why_no_rollback_drill(past, (), changed) == "a, undone then, changed since"
    assert why_no_rollback_drill(past, (), edited(book(), "b", times=Times(plan=3))) == ""


def test_a_rollback_that_was_not_verified_is_none(tmp_path: Path) -> None:
    drill = Drill(tmp_path, runbook(step("a")), "r")
    drill.begin("a")
    drill.work("a")
    drill.roll_back(verified=False)
    drill.of_run(machine.abort, ALICE, "by hand")
    past = drill.past()
    assert why_no_rollback_drill(past, ()) == "the rollback of a ended undone, not verified"
    lost = correctness_score(past).deductions
    assert {one.rule for one in lost} >= {"rollbacks", "dirty"}


def test_what_a_spent_budget_takes_back_by_itself_is_a_drill_of_the_rollback(tmp_path: Path) -> None:
    drill = Drill(tmp_path, runbook(step("a"), step("b")), "r")
    drill.step("a")
    drill.cancel()
    past = drill.past()
    assert past.state is RunState.ABORTED_CLEAN
    assert why_no_rollback_drill(past, ()) == ""
    assert [one.planned for one in past.holds] == [False]
    assert not rollback_only(past)


@pytest.mark.parametrize("autopilot", [False, True])
def test_an_autopilot_says_so(tmp_path: Path, autopilot: bool) -> None:
    past = clean(tmp_path, runbook(step("a")), "r", autopilot=autopilot).past()
    assert past.autopilot is autopilot
    assert (process_score(past).points is None) is autopilot
    assert why_no_rollback_drill(rolled_back(tmp_path, runbook(step("a")), "s", autopilot=True).past(), ()) != ""


# -- journals that cannot be read -----------------------------------------------------------------------------------


def test_a_damaged_journal_is_listed_with_its_problem(tmp_path: Path) -> None:
    for run in ("r1", "r2", "r3"):
        clean(tmp_path, runbook(step("a")), run)
    rewrite(tmp_path, "r2", data_of(tmp_path, "r2").replace(b'"actor":"bob"', b'"actor":"rob"', 1))
    rewrite(tmp_path, "r3", data_of(tmp_path, "r3")[1:])
    past = past_runs(RunStore(tmp_path), "cut")
    assert [one.run for one in past] == ["r1"]
    assert {one.run: one.runbook for one in past.damaged} == {"r2": "cut", "r3": ""}
    assert "its hash is not that of its text" in {one.run: one.problem for one in past.damaged}["r2"]
    assert past_runs(RunStore(tmp_path), "other").damaged == tuple(one for one in past.damaged if one.run == "r3")


def test_a_journal_that_says_what_cannot_have_happened_is_damaged(tmp_path: Path) -> None:
    from migverify.runbook.record.chain import Draft

    Drill(tmp_path, runbook(step("a")), "r")
    journal = RunStore(tmp_path).open_journal("r")

    def lie() -> list[Draft]:
        list(journal.new())
        return [Draft(EventKind.RUN_ENDED, "executor-1", "executor", data={"state": "completed"})]

    journal.append(lie)
    (damaged,) = past_runs(RunStore(tmp_path)).damaged
    assert "steps are not done" in damaged.problem


def test_a_journal_under_the_id_of_another_run_is_damaged(tmp_path: Path) -> None:
    clean(tmp_path, runbook(step("a")), "r1")
    clean(tmp_path, runbook(step("a")), "r9")
    rewrite(tmp_path, "r9", data_of(tmp_path, "r1"))
    (damaged,) = past_runs(RunStore(tmp_path)).damaged
    assert damaged.run == "r9"
    assert "belongs to run r1" in damaged.problem


@given(st.lists(st.none() | st.floats(0, 1e9), max_size=8))
def test_each_run_knows_when_the_runs_around_it_began(walls: list[float | None]) -> None:
    runs = [Damaged("r", "", "gone") if wall is None else first_event(wall) for wall in walls]
    assert _bounds(runs) == [
        (max((w for w in walls[:n] if w is not None), default=None),
         min((w for w in walls[n + 1 :] if w is not None), default=None))
        for n in range(len(walls))
    ]  # fmt: skip


def test_other_runbooks_are_left_out_and_cases_are_kept_when_asked_for(tmp_path: Path) -> None:
    clean(tmp_path, runbook(step("a")), "r1")
    clean(tmp_path, runbook(step("a"), id="else"), "r2")
    case_run(tmp_path, "r3")
    room = RunStore(tmp_path)
    assert [one.run for one in past_runs(room, "cut")] == ["r1"]
    assert [one.run for one in past_runs(room, ["else"], cases=True)] == ["r2", "r3"]
    assert len(past_runs(room)) == 3


def test_an_empty_journal_is_no_run() -> None:
    from migverify.errors import JournalError

    with pytest.raises(JournalError):
        past_run([])


# -- times for the forecast -----------------------------------------------------------------------------------------


def test_times_of_drills_feed_the_forecast(tmp_path: Path) -> None:
    some = runbook(step("a", times=Times(plan=99)), manual("m"), step("b"))
    for day, seconds in enumerate((10, 20, 30)):
        drill = Drill(tmp_path, some, f"r{day}", day=day)
        drill.play(seconds)
        drill.complete()
    failed = Drill(tmp_path, some, "r3", day=3)
    failed.begin("a")
    failed.fail("a")
    clean(tmp_path, some, "pilot", day=4, autopilot=True)
    past = past_runs(RunStore(tmp_path))
    fed = drill_seconds(past, some)
    assert [round(one["a"]) for one in fed] == [10, 20, 30, 10]
    assert [sorted(one) for one in fed][-1] == ["a", "b"]  # nobody's hands did the manual step
    assert round(estimates(some, fed[:3])["a"].p50) == 20
    assert sorted(drill_seconds(past, edited(some, "b", on_fail=Failure(retry=2)))[0]) == ["a", "m"]
    assert drill_seconds(past, replace(some, id="else")) == []
    assert drill_seconds(past, replace(some, instance={"service": "pay"})) == []


# -- scores ---------------------------------------------------------------------------------------------------------


def test_scores_start_at_a_hundred_and_list_every_deduction(tmp_path: Path) -> None:
    past = clean(tmp_path, book(), "r").past()
    assert correctness_score(past).points == 100
    (unsigned,) = process_score(past).deductions
    assert (unsigned.rule, unsigned.pieces, process_score(past).points) == ("unsigned", ("2 of 2 approvals",), 95)


@pytest.mark.parametrize(
    ("spoil", "process", "correctness"),
    [
        (a_bad_end(EventKind.FAILED), {"retries"}, {"failures"}), (waived, set(), {"failures", "waived"}),
        (held, {"holds"}, set()), (held_by_guard, {"holds"}, {"guards"}),
        (lambda d: d.announce(how="failed"), {"undelivered"}, set()),
        (lambda d: d.guard("g", 0, 20, "inconclusive"), set(), {"blind"}),
        (lambda d: d.step("a", 70), {"late"}, {"write_stop"}),
        (lambda d: d.told(EventKind.NOTE, "a", alarm="waiting", text="x"), {"nags"}, set()),
        (lambda d: d.told(EventKind.NOTE, "a", alarm="short", text="x"), set(), {"short"}),
        (lambda d: d.promote(), {"backups"}, set()),
    ],
)  # fmt: skip
def test_each_trouble_costs_points_of_its_own_score(
    tmp_path: Path, spoil: Callable[[Drill], Any], process: set[str], correctness: set[str]
) -> None:
    some = replace(book(), steps=(replace(book().steps[0], times=Times(plan=60)), book().steps[1]))
    drill = Drill(tmp_path, some, "r")
    spoil(drill)
    if drill.status.steps["a"].state is StepState.FAILED:
        drill.again("a")
    drill.play(coordinator=ERIN if drill.status.promotions else ALICE)
    drill.guard("g")
    drill.announce()
    drill.complete()
    past = drill.past()
    assert {one.rule for one in process_score(past).deductions} - {"unsigned"} == process
    assert {one.rule for one in correctness_score(past).deductions} == correctness
    for score, rules in ((process_score(past), PROCESS), (correctness_score(past), CORRECTNESS)):
        lost = sum(one.points for one in score.deductions)
        assert score.points == 100 - lost
        assert all(one.points == min(rules[one.rule].cap, rules[one.rule].points * len(one.pieces))
                   for one in score.deductions)  # fmt: skip


def test_points_grow_with_the_pieces_up_to_the_cap_and_not_below_zero(tmp_path: Path) -> None:
    past = clean(tmp_path, book(), "r").past()

    def scored(count: int, **changes: Any) -> tuple[int | None, int]:
        a = replace(past.steps["a"], bad=(StepState.FAILED,) * count, attempts=count + 1)
        score = correctness_score(replace(past, steps={**past.steps, "a": a}, **changes))
        return score.points, sum(one.points for one in score.deductions)

    assert [scored(count) for count in (0, 1, 3, 4, 9)] == [(100, 0), (90, 10), (70, 30), (60, 40), (60, 40)]
    assert scored(9, state=RunState.ABORTED_DIRTY, write_stop=999.0) == (0, 115)


def test_the_page_has_the_formula() -> None:
    page = (Path(__file__).parents[3] / "docs" / "readiness.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split("|") for line in page.partition("| Process |")[2].splitlines()[2:]]
    table = [[cell.strip() for cell in row] for row in rows if len(row) == 7]
    left = sorted((int(row[1]), int(row[2])) for row in table if row[1])
    right = sorted((int(row[5]), int(row[6])) for row in table if row[5])
    assert left == sorted((rule.points, rule.cap) for rule in PROCESS.values())
    assert right == sorted((rule.points, rule.cap) for rule in CORRECTNESS.values())


def test_a_dry_run_has_no_score(tmp_path: Path) -> None:
    drill = Drill(tmp_path, runbook(step("a")), "r", kind=RunKind.DRY)
    drill.told(EventKind.EVIDENCE, "a", dry=True, would=None, problems="", checks=[])
    drill.told(EventKind.RUN_ENDED, state="dry")
    past = drill.past()
    assert (process_score(past).points, correctness_score(past).points) == (None, None)
    assert why_unclean(past) == ("it ended dry",)


# -- disaster recovery cases ----------------------------------------------------------------------------------------

EFFECTS = ("inject", "remove")


def case_book(id_: str = "kill", environment: str = "staging", **changes: Any) -> Runbook:
    steps = [
        step(part, rollback=None, needs=(CASE_PARTS[n - 1],) if n else ())
        if part in EFFECTS
        else step(part, kind=StepKind.CHECK, effect=None, rollback=None, needs=(CASE_PARTS[n - 1],) if n else (),
                  times=Times(plan=30))
        for n, part in enumerate(CASE_PARTS)
    ]  # fmt: skip
    case = Case(
        priority="p0",
        tier="L",
        expectation="writes stop for a moment",
        bar="no row is lost",
        steps={part: part for part in CASE_PARTS},
    )
    told: dict[str, Any] = {
        "id": id_, "kind": RunbookKind.DR_CASE, "case": case, "environment": environment, "production": ("prod",),
    }  # fmt: skip
    return runbook(*steps, **told | changes)


def case_run(room: Path, run: str = "case", stop: str = "", again: str = "", slow: str = "", **more: Any) -> Drill:
    """Run a case; it ends at ``stop``, which fails, or tries ``again`` once more, or is ``slow``."""
    some = more.pop("book", None) or case_book(more.pop("id_", "kill"), more.pop("environment", "staging"))
    drill = Drill(room, some, run, **more)
    for id_ in CASE_PARTS:
        if id_ in (stop, again):
            drill.begin(id_)
            if id_ in EFFECTS:
                drill.fail(id_)
            else:
                drill.told(EventKind.EFFECT, id_, effect=False, outcome="ok", text="to be looked at")
                drill.fail(id_)
            if id_ == stop:
                drill.of_run(machine.abort, ALICE, "it does not work")
                return drill
            drill.again(id_)
        else:
            drill.step(id_, 60 if id_ == slow else 10)
    drill.complete()
    return drill


@pytest.mark.parametrize("part", CASE_PARTS)
def test_a_case_that_stops_is_invalid_before_the_fault_is_proved_gone_and_failed_behind_it(
    tmp_path: Path, part: str
) -> None:
    case = case_run(tmp_path, stop=part).past().case
    assert case is not None
    assert case.grade == ("fail" if part in ("steady_again", "data") else "invalid")
    assert not case.passed
    assert any(f"step {part} is failed" in why for why in case.reasons)


def test_a_case_that_goes_through_passes_with_its_recovery_time(tmp_path: Path) -> None:
    case = case_run(tmp_path).past().case
    assert case is not None
    assert (case.grade, case.reasons, case.passed, case.tier) == ("pass", (), True, "L")
    assert case.recovery is not None
    assert 50 <= case.recovery < 51


@pytest.mark.parametrize(
    ("how", "reason"),
    [({"again": "steady_again"}, "needed 2 attempts"), ({"slow": "data"}, "60 s of 30 s"), ({"slow": "gone"}, "60 s")],
)
def test_a_case_that_recovers_late_says_so(tmp_path: Path, how: dict[str, str], reason: str) -> None:
    case = case_run(tmp_path, **how).past().case
    assert case is not None
    assert case.grade == "pass-with-late-recovery"
    assert reason in case.reasons[0]


def test_a_proof_that_was_waived_proves_nothing(tmp_path: Path) -> None:
    for part, grade in (("hit", "invalid"), ("gone", "invalid"), ("data", "fail")):
        drill = Drill(tmp_path, case_book(), part)
        for id_ in CASE_PARTS:
            if id_ != part:
                drill.step(id_)
                continue
            drill.begin(id_)
            drill.fail(id_)
            drill.say(machine.waive, ALICE, id_, "it was seen")
            drill.say(machine.waive, DANA, id_, "it was seen")
        drill.complete()
        case = only(tmp_path, part).case
        assert case is not None
        assert case.grade == grade


def test_a_fault_that_was_removed_before_it_was_proved_to_hit_is_invalid(tmp_path: Path) -> None:
    some = case_book()
    loose = [replace(one, needs=("inject",)) if one.id == "remove" else one for one in some.steps]
    drill = Drill(tmp_path, replace(some, steps=tuple(loose)), "r")
    for id_ in ("steady", "inject", "remove", "hit", "gone", "steady_again", "data"):
        drill.step(id_)
    drill.complete()
    case = drill.past().case
    assert case is not None
    assert (case.grade, case.reasons) == (
        "invalid", ("the removal of the fault: step remove began before step hit was shown",)
    )  # fmt: skip


@pytest.mark.parametrize("part", ["hit", "data"])
def test_a_case_that_names_no_step_for_a_part_is_never_passed(tmp_path: Path, part: str) -> None:
    some = case_book()
    assert some.case is not None
    steps = {name: id_ for name, id_ in some.case.steps.items() if name != part}
    case = case_run(tmp_path, book=replace(some, case=replace(some.case, steps=steps))).past().case
    assert case is not None
    assert not case.passed


def test_a_case_that_is_not_over_or_dry_has_no_grade(tmp_path: Path) -> None:
    drill = Drill(tmp_path, case_book(), "r")
    drill.step("steady")
    assert drill.past().case is None
    assert clean(tmp_path, runbook(step("a")), "s").past().case is None


# -- whatever is said -----------------------------------------------------------------------------------------------

WORDS: list[Callable[[Drill, str], Any]] = [
    lambda d, i: d.step(i),
    lambda d, i: d.step(i),
    lambda d, i: d.step(i),
    lambda d, i: d.step(i, 90, ERIN),
    lambda d, i: d.begin(i),
    lambda d, i: d.work(i),
    lambda d, i: d.fail(i),
    lambda d, i: d.again(i),
    lambda d, i: d.fail(i, EventKind.TIMED_OUT),
    lambda d, i: d.fail(i, EventKind.INCONCLUSIVE),
    lambda d, i: d.say(machine.reject, CAROL, i, "no"),
    lambda d, i: d.say(machine.waive, ALICE, i, "ok"),
    lambda d, i: d.say(machine.waive, BOB, i, "ok"),
    lambda d, _: d.of_run(machine.hold, BOB, "wait"),
    lambda d, _: d.of_run(machine.resume, ALICE),
    lambda d, _: d.guard("g"),
    lambda d, _: d.guard("g", 0, 9, "fail"),
    lambda d, _: d.announce(),
    lambda d, _: d.announce(how="failed"),
    lambda d, _: d.complete(),
    lambda d, _: d.roll_back(),
    lambda d, _: d.cancel(),
    lambda d, _: d.play(),
    lambda d, _: d.of_run(machine.abort, ALICE, "enough"),
]


CLEANLY = [(22, "a"), (15, "a"), (17, "a"), (19, "a")]


@given(st.lists(st.tuples(st.integers(0, len(WORDS) - 1), st.sampled_from(["a", "b"])), max_size=25))
@example(CLEANLY)
@example([(4, "a"), (5, "a"), (20, "a")])  # taken back before it was reviewed
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happened_the_past_is_that_of_the_journal(
    tmp_path_factory: pytest.TempPathFactory, said: list[tuple[int, str]]
) -> None:
    from migverify.errors import JournalError

    room = tmp_path_factory.mktemp("walk")
    drill = Drill(room, book(), "r")
    for number, id_ in [*said, *(CLEANLY if len(said) % 2 else [])]:
        try:
            WORDS[number](drill, id_)
        except (UsageError, JournalError):
            drill.record.refresh()
    status, past = drill.status, drill.past()
    unreviewed = [(one.id, one.state) for one in status.steps.values() if "taken back before" in one.reason]
    assert sorted(past.failures) == sorted([*status.failed_ever, *unreviewed])
    assert (past.state, past.over, past.retries) == (status.state, status.over, status.retries)
    assert len(past.holds) == status.holds
    assert sum(one.seconds is None for one in past.holds) == (status.held_since is not None)
    assert abs(sum(one.seconds or 0 for one in past.holds if one.seconds) - status.held.seconds) < 0.01
    unclean = why_unclean(past)
    good = (
        status.state is RunState.COMPLETED and not status.failed_ever and not status.retries
        and all(one.state is StepState.DONE for one in status.steps.values())
        and not past.unplanned_holds and not past.undelivered and bool(status.deliveries)
        and status.guards.get("g") is not None and status.guards["g"].asked >= 0.95 * status.guards["g"].due
        and past.write_stop <= 60
    )  # fmt: skip
    assert good is not bool(unclean)
    for score in (process_score(past), correctness_score(past)):
        assert score.points is not None
        assert 0 <= score.points <= 100
    if not unclean:
        assert correctness_score(past).points == 100 or past.guards[0].failed
