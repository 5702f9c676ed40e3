"""What a page shows of a run: at every point of a run, complete, finite, and still while nothing happens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from migverify.runbook.definition.forecast import Drills, Estimate
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.table import fold
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Budgets, Check, Rollback, Times
from migverify.runbook.page.view import Pulse, View, as_json, view
from migverify.runbook.page.view_clock import ClockView
from migverify.runbook.page.view_steps import TEXT, late_word
from migverify.runbook.record.journal_file import read_events
from migverify.runbook.run import machine
from migverify.runbook.state import ElapsedTime
from tests.unit.runbook_places import saved
from tests.unit.runbook_runs import replace
from tests.unit.runbook_stories import (
    PREPARED,
    MovedClock,
    Story,
    answered,
    cutover,
    in_both_directions,
    in_freeze,
    lost,
    with_loss_guard,
)

_K = EventKind
ALL = (*PREPARED, ("freeze", 15.0), ("drained", 40.0), ("stop-feed", 12.0), ("rebase", 18.0),
       ("go", 22.0), ("open", 11.0), ("weight-10", 118.0),
       ("weight-100", 122.0), ("smoke", 88.0), ("end", 4.0))  # fmt: skip


def events_of(story: Story) -> list[Event]:
    return list(read_events(saved(story.record)))


def seen(story: Story, **options: Any) -> View:
    return view(story.status, events_of(story), story.clock.now(), **options)


def step(shown: View, id_: str) -> Any:
    return next(one for one in shown.steps if one.id == id_)


def told(shown: View) -> str:
    """The JSON of a view without its moment."""
    document = as_json(shown)
    document.pop("now")
    return json.dumps(document, allow_nan=False)


def test_every_prefix_of_a_journal_can_be_shown(tmp_path: Path) -> None:
    story = in_freeze(tmp_path, ago=3000.0)
    story.does(_K.UNKNOWN, "freeze", reason="the executor went").does(_K.HELD, "freeze", reason="nobody knows")
    story.does(_K.RECONCILED, "freeze", happened=True, how="probe", checks=[])
    story.says(machine.resume, "alice").end("freeze", 1.0).play(("drained", 40.0), ("stop-feed", 9.0))
    story.guard("lag", "fail", "9 - more than 5", 9).does(_K.HELD, guard="lag", reason="lag fails")
    story.says(machine.rollback, "alice", "errors")
    for id_ in ("stop-feed", "freeze", "reverse"):
        story.does(_K.ROLLBACK_INTENT, id_, action="command", arguments={}).wait(3)
        story.does(_K.ROLLBACK_EFFECT, id_, ok=True, text="undone")
        checks = [{"action": "command.exit", "state": "pass", "text": "", "value": 0}]
        story.does(_K.ROLLBACK_VERIFIED, id_, ok=True, checks=checks)
    story.does(_K.RUN_ENDED, state="rolled back")
    status, events, states = None, events_of(story), set()
    for count, event in enumerate(events, start=1):
        status = fold([event], status)
        assert status is not None
        shown = view(status, events[:count], story.clock.now())
        assert json.loads(told(shown))["steps"], count
        assert bool(shown.acts) is not shown.over
        states.add(shown.state)
    assert states == {"running", "held", "rolled back"}


def test_nothing_changes_while_nothing_happens(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    first = seen(story)
    story.clock.advance(1.7)
    assert told(seen(story)) == told(first)
    clock = step(first, "freeze").clock
    assert clock.runs == "up"
    assert clock.at(first.now) == pytest.approx(12.0, abs=0.5)
    assert clock.at(first.now + 1.7) == pytest.approx(13.7, abs=0.5)


def test_clocks_count_both_ways() -> None:
    assert ClockView("up", 100.0).at(107.5) == 7.5
    assert ClockView("down", 100.0).at(107.5) == -7.5
    assert ClockView("still", seconds=3.0).at(999.0) == 3.0


def test_who_acts_in_every_state_of_a_step(tmp_path: Path) -> None:
    story = Story(tmp_path).drive()
    assert [(one.person, one.role, one.backup) for one in seen(story).acts] == [("alice", "coordinator", "erin")]
    assert "ack begin" in seen(story).acts[0].tasks[0].command
    story.play(*PREPARED).says(machine.call, "alice", "freeze")
    waits = seen(story).acts[0]
    assert (waits.person, waits.role) == ("carol", "target_dba")
    assert "ack freeze" in waits.tasks[0].command
    assert waits.tasks[0].clock is not None
    story.says(machine.approve, "carol", "freeze")
    starts = seen(story).acts[0]
    assert (starts.person, starts.role, starts.backup) == ("bob", "source_dba", "frank")
    assert "ack freeze" in starts.tasks[0].command
    story.says(machine.start, "bob", "freeze")
    works = seen(story).acts
    assert [one.role for one in works] == ["executor"]
    assert works[0].tasks[0].then is not None
    assert works[0].tasks[0].then.person == "carol"
    story.does(_K.INTENT, "freeze", action="command", arguments={}).end("freeze", 9, review=False)
    reviews = seen(story).acts[0]
    assert (reviews.person, reviews.role) == ("carol", "target_dba")
    assert step(seen(story), "freeze").sign[:12] in reviews.tasks[0].command
    assert not reviews.overdue
    story.wait(121)
    assert seen(story).acts[0].overdue


def test_a_manual_step_is_its_dris(tmp_path: Path) -> None:
    story = Story(tmp_path, ago=2000).drive().play(*ALL[:-2]).begin("smoke")
    act = seen(story).acts[0]
    assert (act.person, act.role) == ("dana", "decision_owner")
    assert "ack smoke" in act.tasks[0].command
    assert "refund" in act.tasks[0].does


def test_a_run_that_nobody_drives_says_so(tmp_path: Path) -> None:
    shown = seen(Story(tmp_path))
    assert shown.executor.state == "nobody"
    assert "Nobody drives" in shown.stale
    assert "run" in shown.acts[0].tasks[0].command


@pytest.mark.parametrize(
    ("age", "gone", "state", "stale"),
    [(3.0, "", "alive", False), (40.0, "", "silent", True), (3.0, "its process has ended", "gone", True)],
)
def test_an_executor_without_a_sign_of_life_makes_the_page_old(
    tmp_path: Path, age: float, gone: str, state: str, stale: bool
) -> None:
    story = in_freeze(tmp_path)
    shown = seen(story, pulse=Pulse(story.clock.now().wall - age, 35.0, gone))
    assert shown.executor.state == state
    assert bool(shown.stale) is stale
    assert gone in shown.stale
    assert shown.executor.clock is not None
    assert shown.executor.clock.at(shown.now) == pytest.approx(age, abs=0.5)
    assert any("gone" in task.does for act in shown.acts for task in act.tasks) is (state == "gone")
    # What only an executor could do is neither counted down nor told as being done, and it is said since when.
    assert (shown.budget.left is None) is (shown.undo.left is None) is (shown.finish.p50 is None) is stale
    assert all(one.forecast_start is None for one in shown.steps) or not stale
    assert (shown.executor.since in shown.stale) is stale
    does = [task.does for act in shown.acts if act.role == "executor" for task in act.tasks]
    assert bool(does) is (state != "gone")
    assert any("carries out" in one or "by itself" in one for one in does) is (state == "alive") or not does
    assert (f"no heartbeat since {shown.executor.since}" in " ".join(does)) is (state == "silent")
    assert "take it over" not in shown.alarm or state == "gone"
    assert shown.undo.until is not None


def test_a_hold_shows_its_reason_and_stops_the_steps_clock(tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 3).begin("drained").wait(7)
    story.guard("lag", "fail", "9 - more than 5", 9).does(_K.HELD, guard="lag", reason="guard lag fails: 9")
    before = seen(story)
    story.wait(60)
    shown = seen(story)
    assert shown.state == "held"
    assert shown.reasons == ("guard lag fails: 9",)
    assert "guard lag fails" in shown.sentence
    assert shown.held.at(shown.now) - before.held.at(before.now) == pytest.approx(60, abs=0.5)
    clock = step(shown, "drained").clock
    assert clock.runs == "still"
    assert clock.seconds == pytest.approx(7, abs=0.5)
    lag = next(one for one in shown.guards if one.id == "lag")
    assert (lag.state, lag.value, lag.holds, lag.armed, lag.stale) == ("fail", "9", True, True, False)
    assert any(task.choice for act in shown.acts for task in act.tasks)


def test_a_guard_whose_answer_is_old_is_no_pass(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    assert not any(one.stale for one in seen(story).guards)
    story.wait(300)
    shown = seen(story)
    assert [one.id for one in shown.guards if one.stale] == ["schema", "lag", "monitors"]
    assert any("guard lag" in one.text and one.level == "bad" for one in shown.warnings)


def test_a_guard_that_was_never_asked_is_not_asked(tmp_path: Path) -> None:
    shown = seen(Story(tmp_path).drive())
    assert {one.state for one in shown.guards} == {"not asked"}


def test_announcements_have_the_state_of_their_worst_sink(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    story.does(_K.ANNOUNCED, of=story.status.seq, what="late", text="freeze is late", sinks=["chat", "log"])
    shown = seen(story)
    assert [one.state for one in shown.announcements] == ["queued", "failed", "sent", "sent"]
    assert shown.undelivered == 1
    failed = shown.announcements[1]
    assert [(one.sink, one.state, one.tries) for one in failed.sinks] == [("chat", "failed", 3), ("log", "sent", 1)]
    assert "503" in failed.sinks[0].reason
    assert any(one.level == "bad" and "not delivered" in one.text for one in shown.warnings)


def test_the_write_stop_counts_down_and_is_spent(tmp_path: Path) -> None:
    story = in_freeze(tmp_path, ago=2000)
    budget = seen(story).budget
    assert (budget.state, budget.limit) == ("running", 300)
    assert budget.left is not None
    assert budget.left.at(seen(story).now) == pytest.approx(288, abs=0.5)
    story.end("freeze", 3).begin("drained").wait(290)
    shown = seen(story)
    assert shown.budget.state == "spent"
    assert shown.budget.left is not None
    assert shown.budget.left.at(shown.now) < 0
    story.end("drained", 1).play(*ALL[7:11])
    over = seen(story).budget
    assert (over.state, over.left) == ("spent", None)
    assert over.used is not None
    assert over.used.runs == "still"


def test_an_end_that_leaves_writes_stopped_does_not_call_them_open(tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 3).says(machine.abort, "alice", "we go home")
    shown = seen(story)
    assert shown.state == "aborted, not all undone"
    assert shown.budget.left_stopped
    assert shown.standing == ("reverse", "freeze")
    assert "freeze" in shown.sentence
    whole = Story(tmp_path, ago=2000).drive().play(*ALL).does(_K.RUN_ENDED, state="completed")
    assert not seen(whole).budget.left_stopped
    assert seen(whole).standing == ()


def test_the_last_moment_for_a_rollback_leaves_time_for_all_that_is_armed(tmp_path: Path) -> None:
    shown = seen(in_freeze(tmp_path))
    closes = shown.finish.closes
    assert closes is not None
    assert shown.undo.armed == ("freeze", "reverse")
    assert shown.undo.needs == 45
    assert shown.undo.until == pytest.approx(closes - 45 - 60, abs=0.1)
    assert step(shown, "freeze").undo.state == "armed"


def test_a_rollback_that_nobody_planned_is_too_late_already(tmp_path: Path) -> None:
    book = cutover(1_800_000_000.0)
    steps = tuple(
        replace(one, rollback=replace(one.rollback, plan=None)) if isinstance(one.rollback, Rollback) else one
        for one in book.steps
    )
    shown = seen(in_freeze(tmp_path, book=replace(book, steps=steps)))
    assert shown.undo.unknown == ("freeze", "reverse")
    assert shown.undo.until is None
    assert shown.undo.left is None
    told(shown)


def test_a_decision_that_was_made_is_not_waited_for(tmp_path: Path) -> None:
    story = Story(tmp_path, ago=2000).drive().play(*ALL[:9])
    assert seen(story).undo.decide_by is not None
    story.play(ALL[9])
    assert seen(story).undo.decide_by is None


def test_the_rung_of_the_point_of_no_return(tmp_path: Path) -> None:
    story = Story(tmp_path, ago=2000).drive().play(*ALL[:10])
    before = seen(story).ladder
    assert (before.rung, before.passed, before.ahead) == (0, (), ("open (soft)",))
    story.play(ALL[10])
    shown = seen(story)
    assert (shown.ladder.rung, shown.ladder.passed) == (1, ("open",))
    assert step(shown, "freeze").undo.state == "expired"
    assert "freeze" in shown.undo.expired


def test_the_forecast_follows_drills_and_lateness(tmp_path: Path) -> None:
    story = in_freeze(tmp_path)
    by_plan = seen(story).finish
    assert by_plan.drills == 0
    assert by_plan.p50 is not None
    slow = [{"weight-10": 600.0}, {"weight-10": 700.0}]
    by_drills = view(story.status, events_of(story), story.clock.now(), Drills("", slow)).finish
    assert by_drills.drills == 2
    assert by_drills.p50 == pytest.approx(by_plan.p50 + 480, abs=6)
    assert by_drills.p90 == pytest.approx(by_plan.p50 + 580, abs=6)
    story.wait(100)
    later = seen(story).finish
    assert later.p50 == pytest.approx(by_plan.p50 + 82, abs=6)  # its review is still to come


def test_steps_know_their_times_and_states(tmp_path: Path) -> None:
    story = Story(tmp_path, ago=2000).drive().play(*ALL).does(_K.RUN_ENDED, state="completed")
    shown = seen(story)
    assert (shown.state, shown.over, shown.passed, shown.applicable) == ("completed", True, 15, 15)
    assert shown.acts == ()
    assert shown.current == ()
    ids, away = step(shown, "ids"), step(shown, "old-away")
    assert (ids.state, ids.late) == ("done", "plan")
    assert ids.took == pytest.approx(71, abs=0.5)
    assert ids.actual_finish - ids.actual_start == pytest.approx(71, abs=0.5)
    assert (away.state, away.planned_start, away.actual_start, away.took) == ("not applicable", None, None, None)
    assert [one.state for one in shown.phases] == ["passed"] * 5
    assert shown.finish.actual == shown.ended
    assert shown.finish.p50 is None


def test_evidence_and_approvals_stand_with_hash_and_signature(tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 3, text="x" * (TEXT + 7))
    freeze = step(seen(story), "freeze")
    assert [one.source for one in freeze.evidence] == ["effect", "checks"]
    assert "7 characters more" in freeze.evidence[0].text
    assert [one.state for one in freeze.evidence[1].checks] == ["pass"]
    assert [(one.person, one.of, one.signed) for one in freeze.approvals] == [
        ("carol", "start", False), ("carol", "done", False),
    ]  # fmt: skip
    assert len(freeze.evidence_sha) == 64
    assert any("not signed" in one.text for one in seen(story).warnings)


def test_two_persons_at_one_login_are_warned_of(tmp_path: Path) -> None:
    story = Story(tmp_path).drive()
    story.says(machine.call, "alice", "begin", login="root@db1").says(machine.start, "alice", "begin", login="root@db1")
    story.says(machine.hold, "carol", "wait", login="root@db1")
    assert any("root@db1" in one.text for one in seen(story).warnings)


def test_a_rollback_under_way_shows_its_order(tmp_path: Path) -> None:
    story = in_freeze(tmp_path).end("freeze", 3).says(machine.rollback, "alice", "errors")
    story.does(_K.ROLLBACK_INTENT, "freeze", action="command", arguments={}).wait(4)
    shown = seen(story)
    assert [(one.step, one.state) for one in shown.undo.order] == [("freeze", "running"), ("reverse", "armed")]
    assert shown.undo.order_reason == "errors"
    assert shown.current == ("freeze",)
    assert step(shown, "freeze").undo.clock.at(shown.now) == pytest.approx(4, abs=0.5)
    assert shown.finish.p50 is None


def test_the_kind_of_the_run_stands_first(tmp_path: Path) -> None:
    assert seen(Story(tmp_path / "a"), drills=Drills("3/4")).label == "REHEARSAL 3/4"
    assert seen(Story(tmp_path / "b", kind=RunKind.LIVE)).label == "LIVE"


def test_a_runbook_without_window_budget_or_guards_has_none(tmp_path: Path) -> None:
    book = cutover(0.0)
    steps = tuple(replace(one, write_stop=None) for one in book.steps)
    bare = replace(book, steps=steps, window=None, budgets=Budgets(), guards=(), sinks={})
    shown = seen(Story(tmp_path, book=bare).drive())
    assert (shown.budget.state, shown.finish.window, shown.guards) == ("none", "none", ())
    assert shown.undo.left is None
    told(shown)


@pytest.mark.parametrize(
    ("times", "drills", "took", "word"),
    [
        (Times(plan=10), None, 10.0, ""),
        (Times(plan=10), None, 10.5, "plan"),
        (Times(plan=10, maximum=20), Estimate(1, 2, 4), 21.0, "max"),
        (Times(), Estimate(0.1, 0.2, 4), 0.9, ""),
        (Times(), Estimate(10, 12, 4), 13.5, "plan"),
        (Times(), None, 1e6, ""),
        (Times(plan=1), None, None, ""),
    ],
)
def test_a_step_is_late_by_its_plan_and_without_one_by_most_drills(
    times: Times, drills: Estimate | None, took: float | None, word: str
) -> None:
    assert late_word(times, drills, None if took is None else ElapsedTime(took, exact=True)) == word


# --- what a rollback would lose --------------------------------------------------------------------------------------


def test_the_loss_of_a_rollback_has_the_age_of_the_commit_that_it_is_as_of(tmp_path: Path) -> None:
    story = with_loss_guard(tmp_path)
    assert seen(story).loss is None
    loss = seen(lost(story, behind=2.0)).loss
    assert loss is not None
    assert (loss.asked, loss.state, loss.keys, loss.oldest) == ("loss", "pass", 12, 34.0)
    assert loss.at_risk == (("EUR", "1250.00"),)
    assert loss.clock.at(story.clock.now().wall) == pytest.approx(2.0, abs=0.2)
    story.wait(200)
    later = seen(story).loss
    assert later is not None
    assert later.clock.at(story.clock.now().wall) == pytest.approx(202.0, abs=0.2)
    assert later.clock.at(story.clock.now().wall) > later.old_after


def test_the_last_answer_about_a_loss_counts_also_one_without_numbers(tmp_path: Path) -> None:
    story = lost(with_loss_guard(tmp_path))
    loss = seen(lost(story, "inconclusive", keys=40)).loss
    assert loss is not None
    assert (loss.state, loss.keys) == ("inconclusive", 40)
    story.guard("loss", "inconclusive", "no answer for 90 s", None)
    loss = seen(story).loss
    assert loss is not None
    assert (loss.state, loss.keys, loss.oldest, loss.at_risk) == ("inconclusive", None, None, ())


def test_a_run_without_such_a_check_shows_no_loss(tmp_path: Path) -> None:
    assert seen(in_freeze(tmp_path)).loss is None


def test_a_step_s_check_of_the_loss_is_shown_too(tmp_path: Path) -> None:
    story = in_freeze(tmp_path, book=losing_step())
    facts = {"keys": 1, "oldest_seconds": 3.0, "at_risk": {}, "as_of": None}
    check = {"action": "rollback.loss", "state": "pass", "text": "1 key would be lost", "value": 1, "evidence": facts}
    story.does(_K.EFFECT, "freeze", outcome="ok", text="exit 0", value=0, effect=True, evidence={})
    others = [one for one in story.status.definition("freeze").expect if one.action != "rollback.loss"]
    checks = [{"action": one.action, "state": "pass", "text": "exit 0", "value": 0} for one in others]
    story.does(_K.EVIDENCE, "freeze", complete=True, checks=[*checks, check])
    loss = seen(story).loss
    assert loss is not None
    assert (loss.asked, loss.keys, loss.as_of) == ("freeze", 1, "")


def test_both_directions_are_shown_as_their_gates_answered_last(tmp_path: Path) -> None:
    story = in_both_directions(tmp_path)
    before = seen(story).directions
    assert [(one.name, one.state, one.clock) for one in before] == [
        ("forward", "not asked", None), ("hand-over", "not asked", None), ("reverse", "not asked", None),
    ]  # fmt: skip
    forward, hand_over, reverse = seen(answered(story, armed="fail", proved="inconclusive")).directions
    assert (forward.state, forward.as_of, forward.run) == ("pass", "binlog.000412:8812", "20261127T010907-3f0a11")
    assert (hand_over.state, hand_over.text, hand_over.asked) == ("fail", "MISMATCH: 2 rows, 0 statements", "freeze")
    assert (reverse.state, reverse.asked) == ("inconclusive", "proof")
    assert hand_over.as_of == reverse.as_of == "tso:462190000000000000 (2026-11-27 01:12:44.310 UTC)"
    assert seen(in_freeze(tmp_path / "other")).directions == ()


def losing_step() -> Any:
    book = cutover(MovedClock(-560.0).now().wall)
    check = Check(action="rollback.loss", arguments={})
    return book.with_each_step(
        lambda one: one.model_copy(update={"expect": (*one.expect, check)}) if one.id == "freeze" else one
    )
