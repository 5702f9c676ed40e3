"""What is announced, when, and in which words."""

from __future__ import annotations

import calendar
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.errors import UsageError
from migverify.runbook.actions.action import ActionResult, Outcome
from migverify.runbook.announce.moments import GROUPS, Announcement, fields_of
from migverify.runbook.announce.words import LONGEST, forecast_end, rollback_text, spell
from migverify.runbook.definition.forecast import Drills
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.history.past import past_runs
from migverify.runbook.kinds import OnFail, Repeat, RunKind, StepKind
from migverify.runbook.model import (
    Announcements,
    Applies,
    Budgets,
    Check,
    Effect,
    Failure,
    Rollback,
    RunWindow,
    Sink,
    Times,
)
from migverify.runbook.record.heads import Head, check_heads, head_text, heads_in
from migverify.runbook.record.journal_file import verify_run
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from tests.unit.runbook.test_runbook_fold import DIE, FAULTS, WORDS
from tests.unit.runbook_hooks import told
from tests.unit.runbook_places import rewrite, saved
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, Room, guard_of, is_set, manual, step
from tests.unit.runbook_runs import runbook as plain

SINKS = (
    Sink(name="chat", kind="file", arguments={"path": "/nowhere"}),
    Sink(name="page", kind="file", arguments={"path": "/nowhere"}),
)
FAILED = ActionResult(Outcome.FAILED, "exit code 1")


def runbook(*steps: Any, **changes: Any) -> Any:
    return plain(*steps, **{"sinks": SINKS} | changes)


def said(room: Room, drill: str = "3/4") -> list[Announcement]:
    return [one for _, one in told(saved(room.record), drill)]


def whats(room: Room) -> list[str]:
    return [one.what for one in said(room)]


def the(room: Room, what: str) -> Announcement:
    return [one for one in said(room) if one.what == what][-1]


def body(room: Room, what: str) -> str:
    return the(room, what).text.rpartition(" | ")[0]


def test_a_step_has_two_voices_at_its_start_and_two_at_its_end(tmp_path: Path) -> None:
    room = Room(
        tmp_path, runbook(step("a", times=Times(plan=20, maximum=60)), step("b", times=Times(plan=30), needs=("a",)))
    )
    room.man()
    room.play("a")
    assert whats(room) == ["run started", "called", "started", "done", "accepted"]
    assert the(room, "called").text == f"CALLED a by alice | REHEARSAL 3/4 {room.status.runbook.id} staging"
    assert body(room, "started") == "STARTED a by bob"
    assert body(room, "done") == "DONE a by bob after 0 s; carol reviews it"
    assert body(room, "accepted") == "ACCEPTED a by carol after 0 s"
    assert rollback_text(room.status) == "1 armed"
    assert all(one.sinks == ("chat", "page") for one in said(room))


def test_fields_beside_the_text_say_of_what_it_is(tmp_path: Path) -> None:
    room = Room(
        tmp_path, runbook(step("a", times=Times(plan=20, maximum=60)), step("b", times=Times(plan=30), needs=("a",)))
    )
    executor = room.man()
    room.play("a")
    event = executor.write(EventKind.ANNOUNCED, step="a", of=1, what="called", text="x", sinks=["chat"])
    (one,) = [one for (of, _), one in room.status.deliveries.items() if of == room.status.seq]
    fields = fields_of(room.status, one, Drills("3/4"))
    del event
    assert {name: fields[name] for name in ("service", "run", "step", "state", "group", "environment", "kind")} == {
        "service": room.status.runbook.id, "run": "r1", "step": "a", "state": "called", "group": "step",
        "environment": "staging", "kind": "rehearsal",
    }  # fmt: skip
    assert (fields["dri"], fields["reviewer"], fields["plan"], fields["drill"]) == ("bob", "carol", "20 s", "3/4")
    assert fields["rollback"] == "1 armed"
    assert fields["forecast"].endswith(" UTC")


def test_a_sink_takes_only_the_kinds_that_it_names(tmp_path: Path) -> None:
    sinks = (
        Sink(name="chat", kind="file", arguments={"path": "/nowhere", "only": ["step", "run"]}),
        Sink(name="page", kind="file", arguments={"path": "/nowhere", "only": ["urgent"]}),
    )
    room = Room(tmp_path, runbook(step("a"), sinks=sinks))
    room.world.outcomes["set a"] = [FAILED]
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert {one.what: one.sinks for one in said(room)} == {
        "run started": ("chat",), "called": ("chat",), "started": ("chat",), "failed": ("page",), "held": ("page",),
    }  # fmt: skip


def test_a_text_ends_in_the_kind_of_the_run(tmp_path: Path) -> None:
    for kind, drill, first in ((RunKind.LIVE, "", "LIVE"), (RunKind.REHEARSAL, "", "REHEARSAL"),
                               (RunKind.ROLLBACK, "2/2", "ROLLBACK 2/2")):  # fmt: skip
        room = Room(tmp_path / kind.value, runbook(step("a")), kind)
        room.man()
        room.say(machine.hold, CAROL, "coffee")
        assert {one.text.rpartition(" | ")[2] for one in said(room, drill) if one.what == "held"} == {
            f"{first} {room.status.runbook.id} staging"
        }


def test_a_runbook_without_sinks_has_nothing_to_say(tmp_path: Path) -> None:
    room = Room(tmp_path, plain(step("a")))
    room.man()
    room.play("a")
    assert said(room) == []


def test_a_step_without_reviewer_is_done_and_nobody_accepts_it(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", reviewer=None), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert "accepted" not in whats(room)
    assert body(room, "done").endswith("; nobody reviews it")


@pytest.mark.parametrize(
    ("keys", "missing"),
    [
        (Announcements(start=False), {"called", "started"}),
        (Announcements(end=False), {"done", "accepted"}),
        (Announcements(late=False), {"late"}),
        (Announcements(start=False, end=False, late=False), {"called", "started", "done", "accepted", "late"}),
    ],
)
def test_a_step_says_which_moments_are_announced(tmp_path: Path, keys: Announcements, missing: set[str]) -> None:
    room = Room(tmp_path, runbook(manual("m", announce=keys, times=Times(plan=5))))
    room.man()
    room.say(machine.call, ALICE, "m")
    room.say(machine.start, BOB, "m")
    room.later(6)
    room.settle()
    room.say(machine.done, BOB, "m", "seen")
    room.settle()
    room.say(machine.accept, CAROL, "m")
    room.settle()
    everything = {"run started", "called", "started", "late", "done", "accepted", "head", "run ended"}
    assert set(whats(room)) == everything - missing


def test_a_step_says_to_whom_and_what_is_of_the_run_goes_to_all(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", announce=Announcements(to=("page",)))))
    room.man()
    room.play("a")
    assert {one.sinks for one in said(room) if one.step} == {("page",)}
    assert {one.sinks for one in said(room) if not one.step} == {("chat", "page")}


def test_of_a_sink_that_is_not_there_nothing_is_lost(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", announce=Announcements(to=("pigeon",)))))
    room.man()
    room.say(machine.call, ALICE, "a")
    assert the(room, "called").sinks == ("chat", "page")


@pytest.mark.parametrize(
    ("result", "what"),
    [(FAILED, "failed"), (ActionResult(Outcome.TIMED_OUT, "60 s"), "timed out"),
     (ActionResult(Outcome.NO_DATA, "nothing came"), "inconclusive")],
)  # fmt: skip
def test_what_went_wrong_is_told_whatever_the_step_says(tmp_path: Path, result: ActionResult, what: str) -> None:
    room = Room(tmp_path, runbook(step("a", announce=Announcements(start=False, end=False, late=False))))
    room.world.outcomes["set a"] = [result]
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    assert whats(room) == ["run started", what, "held"]
    assert body(room, what) == f"{what.upper()} a after 0 s: {result.text}"
    whole = f"HELD by the executor: a: {what}: {result.text}; alice or dana may resume it"
    assert body(room, "held").removesuffix("…") == whole[: len(body(room, "held").removesuffix("…"))]
    assert forecast_end(room.status, room.clock.now()).startswith("not before ")


def test_late_says_how_long_it_runs_and_over_its_maximum_it_has_timed_out(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m", times=Times(plan=5, maximum=60)), step("b")))
    room.man()
    room.say(machine.call, ALICE, "m")
    room.say(machine.start, BOB, "m")
    room.later(15)
    room.settle()
    assert body(room, "late") == "LATE: m was planned for 5 s; it has run for 15 s"
    room.later(60)
    room.settle()
    assert body(room, "timed out") == "TIMED OUT m after 75 s: longer than 60 s"


def test_who_is_waited_for_is_named(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", announce=Announcements(start=False, end=False, late=False, to=("page",)))))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.later(185)
    room.settle()
    one = the(room, "waiting")
    assert one.text.startswith("WAITING FOR bob (db-1) to start a, for 3 min 5 s; no backup | ")
    assert one.sinks == ("page",)


def test_rejections_retries_and_waivers_name_who_said_it(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", repeat=Repeat.YES, on_fail=Failure(unbounded=OnFail.SKIP)), step("b")))
    room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.settle()
    room.say(machine.reject, CAROL, "a", "the graph looks wrong")
    assert body(room, "rejected") == "REJECTED a by carol after 0 s: rejected: the graph looks wrong"
    room.settle()
    room.say(machine.resume, ALICE)
    room.say(machine.retry, ALICE, "a", "once more")
    room.settle()
    assert body(room, "retried") == "ATTEMPT 2 of a: its checks are asked again; once more"
    room.say(machine.reject, CAROL, "a", "still wrong")
    room.settle()
    room.say(machine.waive, ALICE, "a", "we can live with it")
    room.say(machine.waive, DANA, "a", "yes")
    assert body(room, "waived") == "WAIVED a by alice and dana: yes"


def test_a_rollback_is_told_from_its_order_to_its_end(tmp_path: Path) -> None:
    def undo(id_: str) -> Rollback:
        return Rollback(
            effect=Effect(action="world.unset", arguments={"name": id_}),
            instruction="",
            verify=(Check(action="world.is_not", arguments={"name": id_}),),
            plan=15.0,
        )

    room = Room(tmp_path, runbook(*(step(id_, rollback=undo(id_)) for id_ in "abc")))
    room.man()
    room.play("a", "b")
    room.say(machine.rollback, DANA, "errors at 2 %", to="b")
    room.settle()
    assert body(room, "rollback ordered") == "ROLLBACK ORDERED by dana: errors at 2 %; b (15 s)"
    assert whats(room)[-4:] == ["rollback ordered", "undo", "undone", "rollback over"]
    room.say(machine.rollback, DANA, "all of it")
    room.settle()
    assert room.status.state is RunState.ROLLED_BACK
    assert whats(room)[-5:] == ["rollback ordered", "undo", "undone", "run ended", "head"]
    assert body(room, "run ended").startswith("RUN ENDED: ROLLED BACK after ")
    assert "2 undone, verified" in rollback_text(room.status)


def test_an_undoing_by_hand_tells_its_dri_what_to_do(tmp_path: Path) -> None:
    room = Room(
        tmp_path,
        runbook(step("a", rollback=Rollback(effect=None, instruction="Unset\nit.", verify=(is_set("x"),))), step("b")),
    )
    room.man()
    room.play("a")
    room.say(machine.rollback, DANA, "back")
    room.settle()
    assert body(room, "undo") == "ROLLBACK BY HAND a: waiting for bob; Unset it."
    room.say(machine.fail, BOB, "a", "it does not go")
    room.settle()
    assert body(room, "undo failed") == "ROLLBACK FAILED a: it does not go"


def test_a_rollback_that_is_not_verified_is_told(tmp_path: Path) -> None:
    undo = Rollback(
        effect=Effect(action="world.unset", arguments={"name": "a"}),
        instruction="",
        verify=(Check(action="world.value", arguments={"name": "nothing"}, maximum=1),),
    )
    room = Room(tmp_path, runbook(step("a", rollback=undo), step("b")))
    room.man()
    room.play("a")
    room.say(machine.rollback, DANA, "back")
    room.settle()
    assert body(room, "undo failed").startswith("ROLLED BACK, NOT VERIFIED: a: world.value")


def test_the_latest_moment_to_decide_is_beside_every_text(tmp_path: Path) -> None:
    undo = Rollback(
        effect=Effect(action="world.unset", arguments={"name": "a"}), instruction="", verify=(is_set("x"),), plan=100.0
    )
    book = runbook(
        step("a", rollback=undo),
        step("b"),
        window=RunWindow(opens=1.8e9 - 10, closes=1.8e9 + 3600),
        budgets=Budgets(margin=60.0),
    )
    room = Room(tmp_path, book)
    room.man()
    room.play("a")
    assert rollback_text(room.status) == "1 armed, decide by 08:57:20 UTC"


def test_a_takeover_and_a_step_in_doubt_are_told(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", reconcile=None)))
    begun, forever = threading.Event(), threading.Event()
    room.world.hook = lambda what, _name: (begun.set(), forever.wait(30)) if what == "before set" else None  # type: ignore[func-returns-value]
    executor = room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    while not begun.is_set():
        executor.tick()
    room.die()
    room.succeed()
    forever.set()
    assert body(room, "takeover") == "TAKEOVER by bob: the executor is gone; agreed by carol and bob"
    assert body(room, "unknown").startswith("UNKNOWN a after ")
    assert "not before" in forecast_end(room.status, room.clock.now())
    for actor in (ALICE, CAROL):
        room.say(machine.decide, actor, "a", "looked", happened=False)
    assert body(room, "decided") == "DECIDED a by alice and carol: the effect did not happen; looked"


def test_a_guard_is_told_when_its_answer_changes(tmp_path: Path) -> None:
    guard = guard_of(
        "lag", Check(action="world.value", arguments={"name": "lag"}, maximum=5), 0.01, armed_in=("*",), on_fail="hold"
    )
    room = Room(tmp_path, runbook(manual("m"), guards=(guard,)))
    room.world.values["lag"] = 1.0
    executor = room.man()
    executor.watching.begin()

    def until(state: str) -> None:
        for _ in range(2000):
            executor.tick()
            known = room.status.guards.get("lag")
            if known is not None and known.state == state:
                return
            threading.Event().wait(0.005)
        raise AssertionError(state)

    until("pass")
    assert "guard pass" not in whats(room)
    room.world.values["lag"] = 9.0
    until("fail")
    room.settle()
    room.world.values["lag"] = None
    until("inconclusive")
    room.world.values["lag"] = 1.0
    until("pass")
    executor.watching.end()
    assert [what for what in whats(room) if what.startswith(("guard", "held"))] == [
        "guard fail", "held", "guard inconclusive", "guard pass",
    ]  # fmt: skip
    assert body(room, "guard fail").startswith("GUARD lag FAILS: read - 9 is above 5")
    assert body(room, "guard inconclusive").startswith("GUARD lag HAS NO DATA: ")


def test_a_role_that_is_handed_over_is_told(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    for actor in (BOB, CAROL):
        room.record.submit(lambda s, n, a=actor: machine.promote(s, a, n, "coordinator", "alice is away"))  # type: ignore[misc]
    assert body(room, "promoted") == "COORDINATOR is now erin, by bob and carol; alice is away"


def test_the_head_of_the_journal_is_told_at_the_end_of_phases_and_of_the_run(tmp_path: Path) -> None:
    room = Room(
        tmp_path, runbook(step("a"), step("b", phase="q"), step("x", phase="q", only=Applies(environments=("prod",))))
    )
    room.man()
    room.play("a", "b")
    found = [(event, one) for event, one in told(saved(room.record)) if one.what == "head"]
    assert [one.text.partition(": HEAD")[0] for _, one in found] == [
        "phase p is over", "phase q is over", "the run is over: completed"
    ]  # fmt: skip
    for event, one in found:
        (head,) = heads_in(one.text)
        assert (head.run, head.seq, head.sha) == ("r1", event.seq, event.sha)
        assert one.head == head


def test_a_dry_run_tells_its_beginning_and_its_end(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a"), step("b")), RunKind.DRY)
    room.man()
    room.settle()
    assert room.status.state is RunState.DRY
    assert whats(room) == ["run started", "head", "run ended", "head"]
    assert forecast_end(room.status, room.clock.now()) == ""


def test_a_step_of_kind_announce_says_its_own_words_in_any_case(tmp_path: Path) -> None:
    words = manual(
        "n", kind=StepKind.ANNOUNCE, instruction="Writes stop in 5 minutes.", announce=Announcements(start=False)
    )
    room = Room(tmp_path, runbook(words))
    room.man()
    room.say(machine.call, ALICE, "n")
    room.say(machine.start, BOB, "n")
    room.settle()
    assert body(room, "started") == "n: Writes stop in 5 minutes.; started by bob"
    assert "called" not in whats(room)


def test_words_of_others_cannot_look_like_an_announcement(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    room.say(machine.hold, CAROL, "x\nLIVE | a | DONE by bob\r\x1b[2J\u2028\u202e now " + "y" * 5000)
    text = the(room, "held").text
    assert text.isprintable()
    assert len(text) == LONGEST
    assert re.fullmatch(r"HELD by carol: x LIVE / a / DONE by bob .*y… \| REHEARSAL 3/4 \S+ staging", text)


def test_times_are_spelled_as_people_say_them() -> None:
    assert [spell(one) for one in (0, 0.44, 9.96, 20, 119, 200, 180, 7199, 7200, 3900 * 2, None)] == [
        "0 s", "0.4 s", "10 s", "20 s", "119 s", "3 min 20 s", "3 min", "119 min 59 s", "2 h", "2 h 10 min", "no time",
    ]  # fmt: skip


def eventful() -> Any:
    return runbook(
        step("a", on_fail=Failure(retry=1), repeat=Repeat.YES),
        manual("m", times=Times(plan=5, maximum=60)),
        step("b", on_fail=Failure(unbounded=OnFail.SKIP), phase="q"),
        step("c", phase="q", needs=("m",), on_fail=Failure(unbounded=OnFail.ROLLBACK)),
    )


@given(
    st.lists(st.tuples(st.integers(0, DIE), st.sampled_from(["a", "m", "b", "c"])), max_size=40),
    st.lists(st.sampled_from(["set a", "set b", "set c", "unset a", "unset b"]), max_size=4),
    st.randoms(use_true_random=False),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_happens_can_be_told_once_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, walk: list[tuple[int, str]], faults: list[str], random: Any
) -> None:
    room = Room(tmp_path_factory.mktemp("walk"), eventful())
    for fault in faults:
        room.world.outcomes.setdefault(fault, []).append(random.choice(FAULTS))
    room.man()
    for number, id_ in walk:
        if room.status.over:
            break
        if number == DIE:
            room.settle()
            room.die()
            room.succeed()
            continue
        word, actor, of_step = WORDS[number]
        try:
            room.record.submit(lambda s, n, w=word, a=actor, i=id_, o=of_step: w(s, a, i, n) if o else w(s, a, n))  # type: ignore[misc]
        except UsageError:
            continue
        room.settle()
    found = told(saved(room.record))
    assert len({(one.of, one.what) for _, one in found}) == len(found)
    for event, one in found:
        assert one.of == event.seq
        assert " | REHEARSAL 3/4 " in one.text
        assert one.text.isprintable()
        assert len(one.text) <= LONGEST or one.what in ("head", "run started")
        assert one.sinks == ("chat", "page")
    # Every start and every bad end of a step is among them.
    seen = {one.of for _, one in found}
    events = [event for event, _ in found]
    assert {event.seq for event in events if event.kind in (EventKind.CALLED, EventKind.FAILED)} <= seen
    if room.status.over:
        assert found[-1][1].what == "head"
    bad = [one for one in room.status.steps.values() if one.state is StepState.FAILED]
    assert all(any(one.step == id_.id for _, one in found) for id_ in bad)


def test_every_kind_of_announcement_is_documented() -> None:
    root = Path(__file__).parents[3]
    source = (root / "migverify" / "runbook" / "announce" / "moments.py").read_text()
    kinds = {kind for kinds in GROUPS.values() for kind in kinds}
    made = set(re.findall(r'_made\(m, "([a-z ]+)"', source))
    assert {"called", "rollback ordered", "promoted"} <= made <= kinds
    page = (root / "docs" / "announcements.md").read_text()
    assert [group for group in GROUPS if f"`{group}`" not in page] == []
    assert [kind for kind in sorted(kinds) if f"`{kind}`" not in page] == []


def test_a_head_that_was_changed_together_with_its_line_is_found(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    executor = room.man()
    executor.write(EventKind.HEAD, of=0, seq=0, sha="f" * 64, what="head", text="x", sinks=["chat"])
    (problem,) = verify_run(saved(room.record))
    assert (problem.line, problem.fatal) == (3, True)
    assert "it names another hash of event 0 than line 1 has" in problem.what
    assert [one.line for one in check_heads(room.record.journal.events())] == [3]


def test_the_forecast_of_an_announcement_has_hand_offs_and_measured_steps(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a", times=Times(plan=60.0)), step("b", needs=("a",), times=Times(plan=60.0))))
    now = room.clock.now()
    ends = {}
    for name, drills in {
        "plan": Drills(), "measured": Drills("2/4", ({"a": 10.0, "b": 10.0},) * 2),
    }.items():  # fmt: skip
        seen = forecast_end(room.status, now, drills)
        ends[name] = calendar.timegm(time.strptime(seen.split()[-2], "%H:%M:%S"))
    assert ends["plan"] - ends["measured"] == 100


@pytest.mark.attack(
    "runbook", "The last run of a store is removed, and with it its line of the store's list",
    "its head was published when it began, and in the text of the run begun after it: it is found missing",
)  # fmt: skip
def test_the_beginning_of_a_run_tells_its_head_and_that_of_the_run_before(tmp_path: Path) -> None:
    home = RunStore(tmp_path)
    texts = []
    for run in ("r1", "r2"):
        record = home.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)
        texts += [one.text for _, one in told(saved(record))]
    first = [next(iter(home.events(run))) for run in ("r1", "r2")]
    assert heads_in(texts[0]) == [Head("r1", 0, first[0].sha)]
    assert heads_in(texts[1]) == [Head("r2", 0, first[1].sha), Head("r1", 0, first[0].sha)]
    rewrite(tmp_path, "r2", b"")
    (tmp_path / "heads").write_text(f"{head_text(Head('r1', 0, first[0].sha))}\n")
    told_outside = heads_in("\n".join(texts))
    assert past_runs(home).damaged == ()
    assert [one.run for one in past_runs(home, heads=told_outside).damaged] == ["r2"]
