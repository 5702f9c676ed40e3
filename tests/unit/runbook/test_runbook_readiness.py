"""Readiness: each condition by itself turns the verdict; an edited step voids itself and its dependents, no more."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.config.settings import ReadinessFloor
from migverify.decision.model import (
    Decision,
    DecisionPart,
    DecisionReason,
    EvidenceReason,
    ReasonKind,
    Standing,
)
from migverify.errors import ConfigError
from migverify.runbook.clock import Moment
from migverify.runbook.definition.load import case_priorities, known_cases, load_runbook
from migverify.runbook.events import EventKind
from migverify.runbook.history.drills import edits_since, not_proved_again
from migverify.runbook.history.past import past_runs
from migverify.runbook.history.read import _signers
from migverify.runbook.history.readiness import asker, readiness, wanted_runbooks
from migverify.runbook.history.readiness_cases import coverage
from migverify.runbook.kinds import RunbookKind, RunKind, StepKind
from migverify.runbook.model import Applies, Environment, Failure, Person, Policy, Role, Runbook, Times
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.frozen import runbook_as_json
from migverify.runbook.record.heads import HEADS, Head
from migverify.runbook.record.journal import RunJournal
from migverify.runbook.record.run_record import login
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from migverify.runbook.state import Given
from tests.unit.runbook.test_runbook_history import case_run
from tests.unit.runbook_past import (
    DAY,
    NO_FLOOR,
    NOW,
    SCHEMA,
    START,
    Drill,
    answer,
    asking,
    clean,
    edited,
    only,
    rolled_back,
    small,
    state_of,
    write_past,
)
from tests.unit.runbook_places import data_of, rewrite
from tests.unit.runbook_runs import ALICE, PEOPLE, ROLES, FakeClock, replace, runbook, step

FRESH = (*PEOPLE, Person(name="frank"), Person(name="gina"))
NEW_DRI = (ROLES[0], Role(name="db-1", person="frank"), *ROLES[2:])
"""The cast of the night: frank has taken bob's part over, and was new to it in the last drill."""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    room = tmp_path_factory.mktemp("story")
    old = small(people=FRESH)
    new = small(people=FRESH, roles=NEW_DRI)
    case_run(room, "case", day=1)
    clean(room, old, "d1", day=2)
    clean(room, old, "d2", day=3)
    rolled_back(room, old, "back", day=4)
    clean(room, new, "d3", day=5, dri=FRANK)
    return room


@pytest.fixture
def story(told: Path, tmp_path: Path) -> Path:
    """Return a room that shows all that ``small`` asks for: three drills, a rollback, a case, somebody new."""
    shutil.copytree(told, tmp_path / "runs")
    return tmp_path / "runs"


TWO_PLACES = {"staging": Environment(), "prod": Environment(production=True)}
FRANK = machine.Actor("frank")


def now_book(**changes: Any) -> Runbook:
    return small(**{"people": FRESH, "roles": NEW_DRI} | changes)


def policy(**changes: Any) -> dict[str, Any]:
    return {"policy": asking(small().policy, **changes)}


def test_a_room_that_shows_everything_is_ready(story: Path) -> None:
    found = answer(story, now_book(), decision=decided(Standing.GO))
    assert (found.verdict, found.reasons, found.ready) == ("ready", (), True)
    assert {one.state for one in found.conditions[1:]} == {"ok"}
    assert found.drills == ("d1", "d2", "d3")
    assert [one.id for one in found.conditions] == [
        "policy", "drills", "clean", "steps", "runbook", "schema", "cast", "eyes", "rollback", "cases", "decision",
        "journals",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("standing", "state", "verdict"),
    [(Standing.GO, "ok", "ready"), (Standing.NO_GO, "missing", "not ready"),
     (Standing.NOT_KNOWN, "unknown", "inconclusive")],
)  # fmt: skip
def test_the_decision_is_a_condition(story: Path, standing: Standing, state: str, verdict: str) -> None:
    for asked in ({}, policy(decision=True)):
        found = answer(story, now_book(**asked), decision=decided(standing))
        assert (state_of(found, "decision"), found.verdict) == (state, verdict)
        if state != "ok":
            assert any(why.startswith("decision: plans: a scan") for why in found.reasons)


def test_a_decision_that_is_asked_for_and_not_there_is_not_known(story: Path) -> None:
    assert state_of(answer(story, now_book()), "decision") == "not asked"
    asked = answer(story, now_book(**policy(decision=True)))
    assert (state_of(asked, "decision"), asked.verdict) == ("unknown", "inconclusive")
    floored = answer(story, now_book(), floor=NO_FLOOR.model_copy(update={"decision": True}))
    assert state_of(floored, "decision") == "unknown"


def decided(standing: Standing) -> Decision:
    kinds = {Standing.NO_GO: ReasonKind.HARM, Standing.NOT_KNOWN: ReasonKind.DOUBT}
    reasons = () if standing is Standing.GO else (
        DecisionReason(DecisionPart.PLANS, "run", EvidenceReason(kinds[standing], "a scan")),
    )  # fmt: skip
    return Decision(standing, NOW, (), reasons)


def test_an_empty_room_is_not_ready(tmp_path: Path) -> None:
    found = answer(tmp_path / "none", now_book())
    assert found.verdict == "not ready"
    assert {one.id for one in found.conditions if one.state == "ok"} == {"journals"}
    assert all(one.reasons and one.do for one in found.conditions if one.state == "missing")


def test_a_policy_that_asks_for_nothing_is_met_by_nothing(tmp_path: Path) -> None:
    nothing = policy(
        drills_min=0, clean_last=0, same_runbook=False, same_schema=False, full_cast_last=False,
        fresh_eyes_one=False, rollback_drills_min=0, dr_cases=(),
    )  # fmt: skip
    found = answer(tmp_path, now_book(**nothing))
    assert found.verdict == "ready"
    assert {one.state for one in found.conditions[1:]} == {"not asked", "ok"}


# -- each condition alone -------------------------------------------------------------------------------------------


def unclean(room: Path) -> None:
    drill = Drill(room, now_book(), "d4", day=6)
    drill.of_run(machine.hold, ALICE, "a phone call")
    drill.of_run(machine.resume, ALICE)
    drill.play(dri=FRANK)
    drill.complete()


def with_backup(room: Path) -> None:
    drill = Drill(room, now_book(), "d4", day=6)
    drill.promote()
    drill.play(coordinator=machine.Actor("erin"), dri=FRANK)
    drill.complete()


def old_hands(room: Path) -> None:
    for run in ("d4", "d5"):
        clean(room, now_book(), run, day=6, dri=FRANK)


def case_failed(room: Path) -> None:
    case_run(room, "case-2", stop="data", day=8)


def case_ahead(room: Path) -> None:
    case_run(room, "case-2", day=40)


def case_damaged(room: Path) -> None:
    spoil(room, "case")


def spoil(room: Path, run: str) -> None:
    rewrite(room, run, data_of(room, run).replace(b'"actor":"carol"', b'"actor":"karol"', 1))


ALONE: list[tuple[str, Callable[[Path], None] | None, dict[str, Any], dict[str, Any], str]] = [
    ("drills", None, policy(drills_min=4), {}, "3 of 4 drills went through"),
    ("clean", unclean, policy(fresh_eyes_one=False), {}, "d4: held by alice: a phone call"),
    ("runbook", None, {"sha": "of-another"}, {}, "no step changed"),
    ("schema", None, {}, {"schema_fingerprint": "e" * 64}, "ran on ffffffffffffffff"),
    ("cast", with_backup, {}, {}, "coordinator: alice acted, but not as such; erin did it"),
    ("eyes", old_hands, {}, {}, "everybody of the last drills had taken part before"),
    ("rollback", None, policy(rollback_drills_min=2), {}, "1 of 2 drills of the rollback"),
    ("cases", None, {}, {"now": START + 60 * DAY}, "kill: passed 59 days ago, and 40 are allowed"),
    ("cases", case_ahead, {}, {}, "ended in the future"),
    ("cases", case_failed, {}, {}, "kill: fail in staging (case-2)"),
    ("cases", None, policy(dr_cases=("kill", "freeze")), {"cases": {"kill": "p0", "freeze": "p1"}}, "freeze: never"),
    ("cases", None, policy(dr_cases=("p0",)), {"cases": {"kill": "p0", "freeze": "p0"}}, "freeze: never"),
]


@pytest.mark.parametrize(("id_", "spoil_room", "changes", "asked", "reason"), ALONE)
def test_each_condition_by_itself_turns_the_verdict(
    story: Path, id_: str, spoil_room: Callable[[Path], None] | None, changes: dict[str, Any], asked: dict[str, Any],
    reason: str,
) -> None:  # fmt: skip
    if spoil_room is not None:
        spoil_room(story)
    found = answer(story, now_book(**changes), **asked)
    assert found.verdict == "not ready"
    assert [one.id for one in found.conditions if one.state not in ("ok", "not asked", "weaker")] == [id_]
    assert any(reason in why for why in found.reasons), found.reasons


@pytest.mark.parametrize(
    ("id_", "changes", "asked", "reason"),
    [
        ("schema", {}, {"schema_fingerprint": ""}, "is not known"),
        ("cases", {}, {"cases": {"else": "p0"}}, "kill is not in the catalogue"),
        ("cases", policy(dr_cases=("p0",)), {"cases": None}, "there is no catalogue to look in"),
    ],
)
def test_what_is_not_known_is_no_verdict(
    story: Path, id_: str, changes: dict[str, Any], asked: dict[str, Any], reason: str
) -> None:
    found = answer(story, now_book(**changes), **asked)
    assert found.verdict == "inconclusive"
    assert state_of(found, id_) == "unknown"
    assert reason in found.reasons[0]


@pytest.mark.parametrize("run", ["d1", "case"])
def test_a_damaged_journal_of_what_counts_keeps_the_verdict_open_at_best(story: Path, run: str) -> None:
    spoil(story, run)
    assert state_of(answer(story, now_book()), "journals") == "unknown"
    less = policy(drills_min=2, clean_last=1, rollback_drills_min=0, dr_cases=())
    found = answer(story, now_book(**less))
    assert found.verdict == "inconclusive"
    assert any(why.startswith(f"journals: {run}: ") for why in found.reasons)


def test_a_damaged_journal_of_another_runbook_is_no_matter(story: Path) -> None:
    clean(story, runbook(step("a"), id="else"), "other")
    spoil(story, "other")
    assert answer(story, now_book()).verdict == "ready"


def test_a_journal_whose_first_line_is_damaged_could_be_anyones(story: Path) -> None:
    clean(story, runbook(step("a"), id="else"), "other")
    rewrite(story, "other", b"{" + data_of(story, "other"))
    assert answer(story, now_book()).verdict == "inconclusive"


# -- what counts as a drill -----------------------------------------------------------------------------------------


def test_the_autopilot_dry_runs_and_other_instances_are_no_drills(story: Path) -> None:
    book = now_book()
    clean(story, book, "pilot", day=6, dri=FRANK, autopilot=True)
    dry = Drill(story, book, "dry", day=7, kind=RunKind.DRY)
    for id_ in ("a", "b", "c"):
        dry.told(EventKind.EVIDENCE, id_, dry=True, would=None, problems="", checks=[])
    dry.told(EventKind.RUN_ENDED, state="dry")
    clean(story, replace(book, instance={"service": "pay"}), "pay", day=8, dri=FRANK)
    found = answer(story, book)
    assert (found.verdict, found.drills) == ("ready", ("d1", "d2", "d3"))
    assert found.not_counted == (
        ("back", "a drill of the rollback"), ("pilot", "the autopilot played every role"), ("dry", "a dry run"),
        ("pay", "of another instance (service=pay)"),
    )  # fmt: skip
    assert answer(story, replace(book, instance={"service": "pay"})).drills == ("pay",)


def test_a_drill_that_was_left_open_stands_in_the_way(story: Path) -> None:
    Drill(story, now_book(), "left", day=6).step("a", dri=FRANK)
    found = answer(story, now_book())
    assert any("left: it is not over (running)" in why for why in found.reasons)
    assert not found.ready


def test_a_drill_of_the_rollback_neither_counts_nor_stands_in_the_way(story: Path) -> None:
    drill = Drill(story, now_book(), "back-2", day=6)
    drill.step("a", dri=FRANK)
    drill.roll_back()
    found = answer(story, now_book())
    assert (found.verdict, found.drills) == ("ready", ("d1", "d2", "d3"))


def test_a_drill_that_was_rolled_back_after_trouble_stands_in_the_way(story: Path) -> None:
    drill = Drill(story, now_book(), "d4", day=6)
    drill.step("a", dri=FRANK)
    drill.begin("b", dri=FRANK)
    drill.fail("b")
    drill.roll_back()
    found = answer(story, now_book())
    assert "d4" in found.drills
    assert state_of(found, "clean") == "missing"
    assert state_of(found, "rollback") == "ok"


def test_a_runbook_of_its_own_rolls_back_only_when_the_policy_names_it(story: Path) -> None:
    own = replace(small(people=FRESH), id="way-back", kind=RunbookKind.ROLLBACK)
    clean(story, own, "wb", day=6)
    wants_two = policy(rollback_drills_min=2)
    assert state_of(answer(story, now_book(**wants_two)), "rollback") == "missing"
    named = policy(rollback_drills_min=2, rollback_runbooks=("way-back",))
    assert answer(story, now_book(**named)).verdict == "ready"
    assert wanted_runbooks(now_book(**named)) == {"cut", "way-back"}
    clean(story, replace(own, instance={"service": "pay"}), "wb2", day=7)
    three = policy(rollback_drills_min=3, rollback_runbooks=("way-back",))
    assert answer(story, now_book(**three)).verdict == "ready"


def test_the_way_back_of_another_service_is_not_that_of_this_one(tmp_path: Path) -> None:
    named = policy(rollback_drills_min=1, rollback_runbooks=("way-back",))
    own = replace(small(), id="way-back", kind=RunbookKind.ROLLBACK, instance={"service": "pay", "host": "h"})
    clean(tmp_path, own, "wb")
    alone = tuple(replace(one, rollback=None) for one in small().steps)
    pay, orders = (now_book(**named, instance={"service": name}, steps=alone) for name in ("pay", "orders"))
    assert state_of(answer(tmp_path, pay), "rollback") == "ok"
    assert state_of(answer(tmp_path, orders), "rollback") == "missing"


def test_a_run_of_kind_rollback_counts_when_it_went_backwards(story: Path) -> None:
    two = policy(rollback_drills_min=2)
    clean(story, now_book(), "forwards", day=6, kind=RunKind.ROLLBACK, dri=FRANK)
    assert state_of(answer(story, now_book(**two)), "rollback") == "missing"
    back = now_book(steps=(*small().steps, step("way-back", needs=(), only=Applies(runs=(RunKind.ROLLBACK,)))))
    clean(story, back, "backwards", day=7, kind=RunKind.ROLLBACK, dri=FRANK)
    assert state_of(answer(story, replace(back, **two)), "rollback") == "ok"
    changed = edited(replace(back, **two), "way-back", times=Times(plan=9))
    assert state_of(answer(story, changed), "rollback") == "missing"


def test_in_the_first_drill_of_all_nobody_counts_as_new(tmp_path: Path) -> None:
    clean(tmp_path, small(), "d1")
    assert state_of(answer(tmp_path, small()), "eyes") == "missing"


def test_who_only_held_the_run_is_not_new_to_a_role(story: Path) -> None:
    for run in ("d4", "d5"):
        drill = Drill(story, now_book(), run, day=6)
        drill.of_run(machine.hold, machine.Actor("gina"), "what is this?")
        drill.of_run(machine.resume, ALICE)
        drill.play(dri=FRANK)
        drill.complete()
    assert state_of(answer(story, now_book()), "eyes") == "missing"


def test_a_rollback_of_a_step_that_changed_since_counts_no_more(story: Path) -> None:
    book = edited(now_book(), "a", times=Times(plan=5))
    for day in (6, 7, 8):
        clean(story, book, f"e{day}", day=day, dri=FRANK)
    found = answer(story, replace(book, policy=asking(book.policy, fresh_eyes_one=False)))
    assert [one.id for one in found.conditions if one.state == "missing"] == ["rollback"]
    assert "back does not count: a, undone then, changed since" in found.reasons[1]


# -- edits ----------------------------------------------------------------------------------------------------------


def test_an_edited_step_voids_itself_and_its_dependents_and_a_clean_drill_mends_it(story: Path) -> None:
    book = edited(now_book(), "b", times=Times(plan=5))
    found = answer(story, book)
    assert not found.ready
    assert edits_since(only(story, "d3"), book).voided == ("b",)
    assert "d3: changed since, or behind a change, and not run cleanly again: b" in "\n".join(found.reasons)
    rolled_back(story, book, "back-2", day=6, dri=FRANK)
    clean(story, book, "d4", day=7, dri=FRANK)
    assert answer(story, book).verdict == "ready"


def test_wording_voids_nothing(story: Path) -> None:
    book = now_book()
    words = tuple(replace(one, title="Better", instruction="Clearer.") for one in book.steps)
    assert answer(story, replace(book, title="Better", steps=words, text_sha="new")).verdict == "ready"


def test_a_new_step_is_one_that_changed(story: Path) -> None:
    book = now_book()
    more = replace(book, steps=(*book.steps, step("d", needs=("b",))), sha="more")
    assert edits_since(only(story, "d3"), more).changed == ("d",)
    found = answer(story, more)
    assert state_of(found, "steps") == "missing"
    fewer = replace(book, steps=book.steps[:2], sha="fewer")
    assert "taken out since d3" in "\n".join(answer(story, fewer).reasons)


def test_other_keys_of_the_runbook_count_unless_the_policy_lets_them(story: Path) -> None:
    changed = now_book(sha="with another guard")
    assert [one.id for one in answer(story, changed).conditions if one.state == "missing"] == ["runbook"]
    assert edits_since(only(story, "d3"), changed).others
    assert answer(story, now_book(sha="with another guard", **policy(same_runbook=False))).ready


TEXT = """\
version: runbook/v1
id: tiny
title: A tiny one
kind: cutover
environments: {lab: {}}
people: {alice: {}, bob: {}, carol: {}}
roles: {coordinator: {person: alice}, db1: {person: bob}, db2: {person: carol}}
policy: {readiness: {rollback_runbooks: [way-back]}}
phases:
  - id: one
    steps:
      - {id: a, kind: command, title: A, dri: db1, do: {run: "do a"}, expect: [{check: command.exit, run: "is a"}]}
      - {id: b, kind: command, title: B, dri: db1, needs: [a], do: {run: "do b"},
         expect: [{check: command.exit, run: "is b"}]}
      - {id: c, kind: manual, title: C, instruction: Look., dri: db1, needs: [a]}
      - {id: d, kind: command, title: D, dri: db1, needs: [b], do: {run: "do d"},
         expect: [{check: command.exit, run: "is d"}]}
"""


@pytest.mark.parametrize(
    ("old", "new", "changed", "dependents"),
    [
        ("do a", "do a --all", ("a",), ("b", "c", "d")),
        ("is b", "is not b", ("b",), ("d",)),
        ("title: B", "title: Better", (), ()),
        ("instruction: Look.", "instruction: Look well.", ("c",), ()),
        ("needs: [b]", "needs: [b, c]", ("d",), ()),
    ],
)
def test_a_file_that_is_edited_voids_what_was_edited(
    tmp_path: Path, old: str, new: str, changed: tuple[str, ...], dependents: tuple[str, ...]
) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text(TEXT)
    before = load_runbook(path, {}, "lab")
    write_past(tmp_path / "runs", replace(before, steps=tuple(replace(one, reviewer=None) for one in before.steps
                                                              if one.kind is StepKind.COMMAND)), "r")  # fmt: skip
    past = only(tmp_path / "runs", "r")
    past = replace(past, steps={one.id: past.steps.get(one.id) or replace(past.steps["a"], id=one.id, sha=one.sha)
                                for one in before.steps})  # fmt: skip
    assert before.policy.readiness.rollback_runbooks == ("way-back",)
    path.write_text(TEXT.replace(old, new))
    edits = edits_since(past, load_runbook(path, {}, "lab"))
    assert (edits.changed, edits.dependents, edits.others) == (changed, dependents, False)


@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(
            st.tuples(*[st.sets(st.integers(0, one - 1)) if one else st.just(set[int]()) for one in range(n)]),
            st.sets(st.integers(0, n - 1)), st.sets(st.integers(0, n - 1)), st.sets(st.integers(0, n - 1)),
        )
    )
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_voided_is_what_changed_and_all_that_stands_behind_it(
    template: Any, told: tuple[tuple[set[int], ...], set[int], set[int], set[int]]
) -> None:
    needs, changed, stale, dirty = told
    n = len(needs)
    steps = tuple(step(f"s{one}", needs=tuple(f"s{need}" for need in sorted(needs[one]))) for one in range(n))
    book = replace(runbook(*steps), steps=steps)  # a step without needs waits for nothing

    def behind(some: set[int]) -> set[int]:
        found = set(some)
        for one in range(n):  # needs are of lower numbers
            if needs[one] & found:
                found.add(one)
        return found

    def past(other: set[int], bad: set[int]) -> Any:
        made = {
            f"s{one}": replace(template.steps["a"], id=f"s{one}", sha="old" if one in other else book.steps[one].sha,
                               attempts=2 if one in bad else 1)
            for one in range(n)
        }  # fmt: skip
        return replace(template, steps=made)

    old, later = past(changed, set()), past(stale, dirty)
    edits = edits_since(old, book)
    assert set(edits.changed) == {f"s{one}" for one in changed}
    assert set(edits.voided) == {f"s{one}" for one in behind(changed)}
    assert not set(edits.changed) & set(edits.dependents)
    left = {f"s{one}" for one in behind(changed) & (behind(stale) | dirty)}
    assert set(not_proved_again(old, [later], book)) == left
    assert set(not_proved_again(old, [], book)) == set(edits.voided)
    assert not_proved_again(past(set(), set()), [], book) == ()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Any:
    room = tmp_path_factory.mktemp("template")
    return clean(room, runbook(step("a")), "r").past()


# -- steps that are not for the drill -------------------------------------------------------------------------------


def in_production(twin: str | None) -> Runbook:
    return runbook(
        step("rehearse", only=Applies(environments=("staging",))),
        step("act", only=Applies(environments=("prod",)), twin=twin),
        environments=TWO_PLACES,
        policy=asking(
            small().policy, drills_min=1, clean_last=1, rollback_drills_min=0, dr_cases=(), fresh_eyes_one=False
        ),
    )


def test_a_step_of_production_is_rehearsed_by_its_twin(tmp_path: Path) -> None:
    book = in_production("rehearse")
    clean(tmp_path, book, "d1")
    night = replace(book, environment="prod")
    assert answer(tmp_path, night).verdict == "ready"
    changed = edited(night, "act", on_fail=Failure(retry=3))
    assert state_of(answer(tmp_path, changed), "clean") == "missing"
    clean(tmp_path, replace(changed, environment="staging"), "d2", day=1)
    assert answer(tmp_path, changed).verdict == "ready"


def test_a_step_that_is_taken_out_of_drills_is_not_mended_by_them(tmp_path: Path) -> None:
    few = policy(drills_min=1, clean_last=2, rollback_drills_min=0, dr_cases=(), fresh_eyes_one=False)
    before = runbook(step("a"), step("act"), environments=TWO_PLACES, **few)
    after = edited(before, "act", only=Applies(environments=("prod",)))
    clean(tmp_path, before, "d1")
    clean(tmp_path, after, "d2", day=1)
    found = answer(tmp_path, replace(after, environment="prod"))
    assert not_proved_again(only(tmp_path, "d1"), [only(tmp_path, "d2")], after) == ("act",)
    assert [one.id for one in found.conditions if one.state == "missing"] == ["clean", "steps"]


def test_a_step_of_production_that_nothing_rehearses_is_never_ready(tmp_path: Path) -> None:
    clean(tmp_path, in_production(None), "d1")
    found = answer(tmp_path, replace(in_production(None), environment="prod"))
    assert found.reasons == ("steps: never run cleanly as they are now: act",)


# -- people ---------------------------------------------------------------------------------------------------------


def test_a_role_that_the_drill_does_not_have_is_not_asked_for(tmp_path: Path) -> None:
    owner = (*ROLES[:3], Role(name="decision_owner", person="dana", only=(RunKind.LIVE,)))
    few = policy(drills_min=1, clean_last=1, rollback_drills_min=0, dr_cases=(), fresh_eyes_one=False)
    book = runbook(step("a"), step("go", point_of_no_return="soft"), roles=owner, **few)
    clean(tmp_path, book, "d1")
    assert answer(tmp_path, book).verdict == "ready"


def test_the_cast_is_that_of_the_night(story: Path) -> None:
    gina = (ROLES[0], Role(name="db-1", person="gina"), *ROLES[2:])
    found = answer(story, now_book(roles=gina))
    assert found.reasons == ("cast: db-1: gina did nothing; frank did it",)


# -- disaster recovery cases ----------------------------------------------------------------------------------------


def test_an_invalid_run_of_a_case_never_counts_and_takes_nothing_away(story: Path, tmp_path: Path) -> None:
    case_run(story, "case-2", stop="hit", day=6)
    assert answer(story, now_book()).verdict == "ready"
    room = tmp_path / "alone"
    case_run(room, "case", stop="gone")
    assert "cases: kill: invalid, that the fault is gone: step gone is failed" in "\n".join(
        answer(room, now_book()).reasons
    )


def test_production_comes_after_another_environment(tmp_path: Path) -> None:
    book = now_book()
    case_run(tmp_path, "p1", environment="prod", day=1)
    found = answer(tmp_path, book)
    assert "cases: kill: run in production (prod) before it had passed outside of it" in found.reasons
    case_run(tmp_path, "s1", day=2)
    assert state_of(answer(tmp_path, book), "cases") == "ok"
    case_run(tmp_path, "p2", environment="prod", stop="data", day=3)
    assert state_of(answer(tmp_path, book), "cases") == "missing"
    case_run(tmp_path, "s2", day=4)
    assert state_of(answer(tmp_path, book), "cases") == "missing"  # production has not passed since
    case_run(tmp_path, "p3", environment="prod", day=5)
    assert state_of(answer(tmp_path, book), "cases") == "ok"
    table = coverage(["kill", "freeze"], past_runs(RunStore(tmp_path)), NOW, 90)
    assert {name: one.run for name, one in table["kill"].items()} == {"staging": "s2", "prod": "p3"}
    assert [one.why for one in table["kill"].values()] == ["", ""]
    assert table["freeze"] == {}


def test_a_case_by_the_autopilot_counts(tmp_path: Path) -> None:
    case_run(tmp_path, "case", autopilot=True, day=1)
    assert state_of(answer(tmp_path, now_book()), "cases") == "ok"


def test_priorities_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("id: kill\nkind: dr-case\ncase: {priority: p0}\n")
    assert case_priorities(tmp_path) == {"kill": "p0"}
    assert known_cases(tmp_path) == {"kill", "p0"}
    (tmp_path / "two.yaml").write_text("id: kill\nkind: dr-case\ncase: {priority: p1}\n")
    with pytest.raises(ConfigError, match="another case kill"):
        case_priorities(tmp_path)


# -- for the executor -----------------------------------------------------------------------------------------------


def test_an_executor_asks_the_room(story: Path) -> None:
    ask = asker(RunStore(story), lambda: NOW, SCHEMA, {"kill": "p0"}, NO_FLOOR)
    assert ask(now_book()) == (True, ())
    ready, reasons = ask(now_book(**policy(drills_min=9)))
    assert (ready, "drills: 3 of 9 drills went through" in reasons) == (False, True)
    spoil(story, "d1")
    assert ask(now_book())[0] is False


# -- what a drill cannot be faked with -------------------------------------------------------------------------------

ONE_LOGIN = {
    part: machine.Actor(person, "root@vm")
    for part, person in (("coordinator", "alice"), ("dri", "frank"), ("reviewer", "carol"))
}


@pytest.mark.attack("runbook", "a script types every role of a drill from one login", "not a full cast: not ready")
def test_roles_that_were_played_from_one_login_are_no_full_cast(story: Path) -> None:
    clean(story, now_book(), "d4", day=6, **ONE_LOGIN)
    found = answer(story, now_book())
    assert (found.verdict, state_of(found, "cast")) == ("not ready", "missing")
    assert "cast: not a full cast: alice, carol, frank acted from one login (root@vm) in d4" in found.reasons


@pytest.mark.attack("runbook", "a drill whose events name no login at all", "not a full cast: not ready")
def test_roles_that_were_played_from_nowhere_are_no_full_cast(story: Path) -> None:
    nobody = {"coordinator": "alice", "dri": "frank", "reviewer": "carol"}
    drill = Drill(story, now_book(), "d4", day=6)
    while ready := drill.ready():
        for verb, who in ((machine.call, "coordinator"), (machine.start, "dri")):
            drill.record.submit(lambda s, n, v=verb, w=who: v(s, machine.Actor(nobody[w]), ready[0], n))
        drill.work(ready[0])
        drill.record.submit(lambda s, n: machine.accept(s, machine.Actor("carol"), ready[0], n))
    drill.complete()
    assert any("from which login alice, carol, frank acted" in why or "is not known" in why
               for why in answer(story, now_book()).reasons)  # fmt: skip


@pytest.mark.attack("runbook", "USER and LOGNAME say another person's login", "the login is the operating system's")
def test_a_login_is_not_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = login()
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert login() == before


@pytest.mark.attack("runbook", "a drill undoes one step of many and ends rolled back", "each rollback is required")
def test_one_rollback_is_not_the_rollback_of_every_step(tmp_path: Path) -> None:
    book = small(policy=asking(small().policy, dr_cases=(), fresh_eyes_one=False, drills_min=1, clean_last=1))
    rolled_back(tmp_path, book, "back", day=1, steps=1)
    clean(tmp_path, book, "d1", day=2)
    found = answer(tmp_path, book)
    assert [one.id for one in found.conditions if one.state == "missing"] == ["rollback"]
    assert found.reasons == ("rollback: the rollback of b was not carried out and verified in any drill, as it is now",)
    rolled_back(tmp_path, book, "back-2", day=3)
    assert answer(tmp_path, book).verdict == "ready"


def test_a_rollback_that_failed_when_it_was_drilled_last_counts_no_more(story: Path) -> None:
    drill = Drill(story, now_book(), "back-2", day=6)
    drill.play(dri=FRANK)
    drill.roll_back(verified=False)
    drill.of_run(machine.abort, ALICE, "enough")
    assert any("the rollback of b was not carried out" in why for why in answer(story, now_book()).reasons)


def failed(room: Path, run: str, day: float) -> None:
    drill = Drill(room, now_book(), run, day=day)
    drill.begin("a", dri=FRANK)
    drill.fail("a")
    drill.of_run(machine.abort, ALICE, "it failed")


@pytest.mark.attack("runbook", "the folder of the last drill, which failed, is deleted", "it is named as missing")
def test_a_drill_that_vanished_with_its_folder_is_found_missing(story: Path) -> None:
    failed(story, "bad", day=6)
    rewrite(story, "bad", b"")
    found = answer(story, now_book())
    assert (found.verdict, state_of(found, "journals")) == ("inconclusive", "unknown")
    assert any(why.startswith("journals: bad: it is missing from") for why in found.reasons)
    clean(story, now_book(), "after", day=7, dri=FRANK)
    (story / HEADS).unlink()  # and the folder's list of runs with it: the run begun after it still names it
    found = answer(story, now_book())
    assert found.verdict == "inconclusive"
    assert any("bad: it is missing" in why and "run after, begun after it" in why for why in found.reasons)


@pytest.mark.attack("runbook", "a failed drill is deleted with the list of runs", "announced heads name it")
def test_announced_heads_find_a_run_that_nothing_else_names(story: Path) -> None:
    failed(story, "bad", day=6)
    heads = [Head("bad", 0, next(RunStore(story).events("bad")).sha)]
    rewrite(story, "bad", b"")
    (story / HEADS).unlink()
    assert answer(story, now_book()).verdict == "ready"
    past = past_runs(RunStore(story), heads=heads)
    assert [one.run for one in past.damaged] == ["bad"]
    assert readiness(now_book(), past, NOW, SCHEMA, {"kill": "p0"}, NO_FLOOR).verdict == "inconclusive"


@pytest.mark.attack("runbook", "the end of an earlier run's journal is cut off", "the next run knows its head")
def test_a_journal_that_was_cut_off_after_the_next_run_began_is_damaged(story: Path) -> None:
    rewrite(story, "d2", b"".join(data_of(story, "d2").splitlines(keepends=True)[:-1]))
    found = answer(story, now_book())
    assert found.verdict != "ready"
    assert any("d2: " in why and "it was cut off" in why for why in found.reasons)


@pytest.mark.attack("runbook", "a failed drill on a machine whose clock is 10 days behind", "order is the chain's")
@pytest.mark.parametrize("day", [-4.0, 400.0])
def test_a_failed_drill_with_a_wrong_clock_is_still_the_last_one(story: Path, day: float) -> None:
    failed(story, "bad", day=6 + day)
    found = answer(story, now_book())
    assert found.drills[-1] == "bad"
    assert found.verdict == "not ready"
    assert state_of(found, "clean") == "missing"
    assert state_of(found, "journals") == "unknown"  # a clock is wrong, and nobody knows which


@pytest.mark.attack("runbook", "drills of months ago", "drills older than 30 days do not count")
def test_drills_expire(story: Path) -> None:
    a_month = NO_FLOOR.model_copy(update={"max_age_days": 30.0})
    assert answer(story, now_book(), floor=a_month).verdict == "ready"
    later = {"now": START + 34 * DAY, "cases": {"kill": "p0"}}
    found = answer(story, now_book(**policy(dr_cases=())), floor=a_month, **later)
    assert found.verdict == "not ready"
    assert found.drills == ("d3",)
    assert ("d1", "32 days old, and 30 are allowed") in found.not_counted


@pytest.mark.attack("runbook", "an old drill on a machine whose clock is ahead", "no younger than the run after it")
def test_a_drill_is_no_younger_than_the_run_that_was_begun_after_it(story: Path) -> None:
    clean(story, now_book(), "ahead", day=29, dri=FRANK)
    clean(story, now_book(), "true", day=6, dri=FRANK)
    past = {one.run: one for one in past_runs(RunStore(story))}
    assert past["ahead"].at < START + 7 * DAY
    assert state_of(answer(story, now_book()), "journals") == "unknown"


@pytest.mark.attack("runbook", "a runbook lowers its own policy to one drill", "the floor is outside of the runbook")
def test_a_runbook_cannot_lower_what_is_asked_of_it(tmp_path: Path) -> None:
    nothing = asking(
        Policy(), drills_min=1, clean_last=1, same_schema=False, full_cast_last=False, rollback_drills_min=0
    )
    book = small(policy=nothing)
    clean(tmp_path, book, "d1", day=2)
    assert answer(tmp_path, book).verdict == "ready"
    found = answer(tmp_path, book, floor=ReadinessFloor())
    assert found.verdict == "not ready"
    first = found.conditions[0]
    assert (first.id, first.state) == ("policy", "weaker")
    assert "the runbook asks for less, which does not count: drills_min 1, needed 4" in first.reasons
    assert "drills: 1 of 4 drills went through" in found.reasons


def test_the_configuration_can_lower_the_floor_and_it_is_said_first(tmp_path: Path) -> None:
    clean(tmp_path, small(), "d1", day=2)
    found = answer(tmp_path, small(), floor=ReadinessFloor(drills_min=1, max_age_days=90))
    assert found.conditions[0].reasons[:2] == (
        "migverify.yaml asks for less than what is built in: drills_min 1, built in 4",
        "migverify.yaml asks for less than what is built in: max_age_days 90, built in 30",
    )


@pytest.mark.attack("runbook", "a run without a link to the run before it", "it does not count as a drill")
def test_a_run_that_is_not_chained_does_not_count(story: Path) -> None:
    clock = FakeClock(wall=START + 6 * DAY, boot="old")
    journal = RunJournal(RunStore(story).database, "old", now_book().sha, folder=story / "old", clock=clock)
    told = {"kind": "rehearsal", "runbook": runbook_as_json(now_book()), "environment": "staging", "login": "a@b"}
    journal.append(lambda: [Draft(EventKind.RUN_STARTED, "alice", data=told)] if not list(journal.new()) else [])
    found = answer(story, now_book())
    assert found.drills == ("d1", "d2", "d3")
    assert ("old", "begun by an earlier release: nothing shows which run was before it") in found.not_counted


def test_who_signed_every_approval_of_a_drill_is_known_by_key() -> None:
    def approval(person: str, signed: bool) -> Given:
        return Given(person, "done", "h", Moment(0.0, 0, "b"), 1, signed)

    steps = {
        "a": SimpleNamespace(approvals=(approval("ann", True), approval("bob", True))),
        "b": SimpleNamespace(approvals=(approval("bob", False), approval("eve", True))),
    }
    assert _signers(SimpleNamespace(steps=steps)) == ("ann", "eve")  # type: ignore[arg-type]
