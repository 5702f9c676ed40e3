"""The outbox: announced before it is sent, sent in order, at least once over kill -9, and never in the run's way."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify import secrets
from migverify.errors import JournalError, StoreError, UsageError
from migverify.runbook.announce import lanes, outbox
from migverify.runbook.announce import moments as announce
from migverify.runbook.announce.lanes import TRIES
from migverify.runbook.announce.outbox import deliver_rest
from migverify.runbook.announce.sinks import SinkError
from migverify.runbook.definition.forecast import Drills
from migverify.runbook.events import EventKind, RunState, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.model import Sink
from migverify.runbook.record import journal
from migverify.runbook.record.heads import Head, check_heads, heads_in
from migverify.runbook.record.journal_file import read_events
from migverify.runbook.record.lease import take
from migverify.runbook.record.run_store import FILE, RunStore
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.runbook.state import DeliveryState, RunStatus
from migverify.store import journals
from tests.unit.runbook_hooks import KEY, Loud, Scripted, free_port, hook, told
from tests.unit.runbook_places import place, saved
from tests.unit.runbook_runs import ALICE, BOB, CAROL, DANA, FakeClock, Room, World, draft, here, manual, runbook, step

DOWN = SinkError("status 503")
NO = SinkError("status 404", final=True)


@pytest.fixture(autouse=True)
def _quick_and_verified(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(lanes, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(secrets, "_known", set())  # what these tests hide must not be hidden in others
    yield
    for file in tmp_path.rglob(FILE):
        store = RunStore(file.parent)
        assert [store.verify(run) for run in store.ids()] == [[]] * len(store.ids())


def scripted(*names: str) -> tuple[Sink, ...]:
    return tuple(Sink(name=name, kind="file", arguments={"path": "/nowhere"}) for name in names)


def of(room: Room, kind: EventKind) -> list[Any]:
    return [event for event in room.record.journal.events() if event.kind is kind]


def states(room: Room, sink: str = "chat") -> list[str]:
    return [one.state.value for (_, name), one in sorted(room.status.deliveries.items()) if name == sink]


def test_everything_that_is_said_stands_in_the_journal_before_and_after_it_is_sent(tmp_path: Path) -> None:
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    chat = Scripted("chat")
    seen = []
    chat.answers = [lambda: seen.append(saved(room.record).read_text().splitlines()[-1])]
    room.sinks = (chat,)
    room.man()
    room.deliver()
    assert '"kind":"announced"' in seen[0]
    room.play("a")
    room.deliver()
    assert room.status.state is RunState.COMPLETED
    whats = [message.what for message in chat.got]
    assert whats == ["run started", "called", "started", "done", "accepted", "head", "run ended", "head"]
    assert set(states(room)) == {"sent"}
    announced = [event.seq for event in read_events(saved(room.record)) if "sinks" in event.data]
    assert [event.data["of"] for event in of(room, EventKind.DELIVERED)] == announced
    assert [message.id for message in chat.got] == [f"r1/{seq}" for seq in announced]


def test_no_secret_of_a_sink_stands_in_anything_that_the_run_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook(500, 404) as there:
        monkeypatch.setenv("CHAT_URL", there.url)
        monkeypatch.setenv("PAGE_KEY", "correct-horse-battery")
        page = {"argv": ["sh", "-c", 'echo "$PAGE_KEY $(cat)" >&2; exit 4'], "secrets": ["PAGE_KEY"]}
        sinks = (
            Sink(name="chat", kind="webhook", arguments={"url_env": "CHAT_URL"}),
            Sink(name="page", kind="command", arguments=page),
            Sink(name="log", kind="file", arguments={"path": str(tmp_path / "log")}),
        )
        room = Loud(tmp_path, runbook(step("a"), sinks=sinks))
        room.man()
        room.say(machine.hold, CAROL, f"look at {there.url}, the key is correct-horse-battery")
        room.deliver(lambda status: [one for one in status.deliveries.values() if one.sink == "page" and one.tries > 3])
        secret = [there.url, KEY, "abcdefghijklmnopqrstuvwx", "correct-horse-battery"]
    reasons = {event.data["reason"] for event in of(room, EventKind.DELIVERY_FAILED)}
    assert any(reason.startswith("exit code 4: *** ") for reason in reasons)
    left = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / "log" in left
    for path in left:
        data = path.read_bytes()
        assert not [one for one in secret if one.encode() in data], path
    assert not [one for one in secret if one in "".join(there.got) + "".join(there.refused)]
    assert not [one for one in secret if one in repr(room.executor.__dict__) + repr(room.status)]


def test_a_webhook_that_is_down_slow_or_refuses_gets_everything_once_it_is_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, release = free_port(), threading.Event()
    monkeypatch.setenv("CHAT_URL", f"http://127.0.0.1:{port}/services/{KEY}")
    sink = Sink(name="chat", kind="webhook", arguments={"url_env": "CHAT_URL", "timeout": 0.3})
    room = Loud(tmp_path, runbook(step("a"), sinks=(sink,)))
    room.man()
    room.deliver(lambda status: any(one.tries == 2 for one in status.deliveries.values()))
    with hook(500, 429, lambda: release.wait(20) and 500, 503, port=port) as there:
        room.deliver(lambda status: status.deliveries[min(status.deliveries)].tries >= 5)
        release.set()
        room.play("a")
        room.deliver()
        assert set(states(room)) == {"sent"}
        texts = [one.text for _, one in sorted(room.status.deliveries.items())]
        assert there.got == texts  # each once, and in their order
    reasons = {event.data["reason"] for event in of(room, EventKind.DELIVERY_FAILED)}
    assert reasons == {"Connection refused", "status 500", "status 429", "no answer in time", "status 503"}
    first = room.status.deliveries[min(room.status.deliveries)]
    assert first.tries == 1 + len(of(room, EventKind.DELIVERY_FAILED))


def test_a_webhook_that_says_no_is_given_up_at_once_and_shown_red(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with hook(404) as there:
        monkeypatch.setenv("CHAT_URL", there.url)
        room = Loud(
            tmp_path, runbook(step("a"), sinks=(Sink(name="chat", kind="webhook", arguments={"url_env": "CHAT_URL"}),))
        )
        room.man()
        room.say(machine.hold, CAROL, f"it says {there.url} and {KEY}")
        room.deliver()
        assert states(room) == ["given up", "sent"]  # both are of the run: they keep their order
        assert KEY not in "".join(there.got)
    # Somebody else's words are in the journal as they said them; what the outbox wrote holds nothing of it.
    own = [event for event in read_events(saved(room.record)) if event.role == "executor"]
    assert own
    assert not [event for event in own if KEY in str(event.data) or there.url in str(event.data)]


def test_after_ten_tries_it_is_given_up_and_the_next_one_has_its_turn(tmp_path: Path) -> None:
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    chat = Scripted("chat", *[DOWN] * TRIES)
    room.sinks = (chat,)
    room.man()
    room.say(machine.call, ALICE, "a")
    room.deliver()
    assert states(room) == ["given up", "sent"]
    assert [event.data["tries"] for event in of(room, EventKind.DELIVERY_FAILED)] == list(range(1, TRIES + 1))
    assert [message.what for message in chat.tried] == ["run started"] * TRIES + ["called"]


def test_the_pause_between_tries_doubles_up_to_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "FIRST_WAIT", 1.0)
    now = [1000.0]
    monkeypatch.setattr(lanes.time, "monotonic", lambda: now[0])
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    chat = Scripted("chat", *[DOWN] * TRIES)
    room.sinks = (chat,)
    executor = room.man()
    pauses, last = [], now[0]
    while len(chat.tried) < TRIES:
        known = len(chat.tried)
        executor.outbox.tick()
        if len(chat.tried) > known:
            pauses.append(now[0] - last)
            last = now[0]
            trying = executor.outbox._lanes._by_sink["chat"].trying
            assert trying is not None
            trying.thread.join()
            executor.outbox.tick()
        now[0] += 0.5
    assert pauses[1:] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]


def test_one_sink_that_is_down_does_not_keep_another_one_waiting(tmp_path: Path) -> None:
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat", "log")))
    chat, log = Scripted("chat", *[SinkError("status 503", wait=50.0)] * 99), Scripted("log")
    room.sinks = (chat, log)
    room.man()
    room.play("a")
    room.deliver(lambda _: states(room, "log").count("sent") == 8)
    assert states(room) == ["failed"] + ["queued"] * 7


def test_a_sink_that_never_comes_back_delays_nothing_and_gets_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "GRACE", 0.01)
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat", "log")))
    forever = threading.Event()
    chat = Scripted("chat", *[lambda: forever.wait() and None] * 99, timeout=0.01)
    log = Scripted("log")
    room.sinks = (chat, log)
    executor = room.man()
    room.play("a")
    room.deliver(lambda status: status.deliveries[min(status.deliveries)].state is DeliveryState.GIVEN_UP)
    assert room.status.state is RunState.COMPLETED
    assert set(states(room, "log")) == {"sent"}
    assert len(chat.tried) == 1
    reasons = [event.data["reason"] for event in of(room, EventKind.DELIVERY_FAILED)]
    assert reasons[0] == "no answer within 0.02 s"
    assert set(reasons[1:TRIES]) == {"an earlier try never came back"}
    executor.outbox.end(0.05)
    forever.set()


def people_play(folder: Path, room: Room, *ids: str) -> None:
    """Have people of another terminal play the steps of a run that an executor drives."""
    record = place(folder, room.clock).open("r1")
    for id_ in ids:
        record.submit(lambda s, n, i=id_: machine.call(s, ALICE, i, n))  # type: ignore[misc]
        record.submit(lambda s, n, i=id_: machine.start(s, BOB, i, n))  # type: ignore[misc]
        for _ in range(4000):
            record.refresh()
            if record.status.steps[id_].state is StepState.AWAITING_REVIEW:
                break
            time.sleep(0.005)
        record.submit(lambda s, n, i=id_: machine.accept(s, CAROL, i, n))  # type: ignore[misc]


def test_the_executor_announces_by_itself_to_the_end(tmp_path: Path) -> None:
    log = tmp_path / "log"
    room = Room(
        tmp_path,
        runbook(
            step("a"), manual("m", phase="q"), sinks=(Sink(name="log", kind="file", arguments={"path": str(log)}),)
        ),
    )
    executor = Executor(
        room.record, room.world.registry(), take(room.record, "alice"), pause=0.005, drills=Drills("3/4"), carry=here
    )
    thread = threading.Thread(target=executor.run, daemon=True)
    thread.start()
    record = place(tmp_path, room.clock).open("r1")
    people_play(tmp_path, room, "a")
    for word in (machine.call, machine.start):
        actor = ALICE if word is machine.call else BOB
        record.submit(lambda s, n, w=word, a=actor: w(s, a, "m", n))  # type: ignore[misc]
    record.submit(lambda s, n: machine.done(s, BOB, "m", n, "seen"))
    while record.refresh().steps["m"].state is not StepState.AWAITING_REVIEW:  # type: ignore[union-attr]
        time.sleep(0.005)
    record.submit(lambda s, n: machine.accept(s, CAROL, "m", n))
    thread.join(30)
    lines = log.read_text().splitlines()
    assert all(" | REHEARSAL 3/4 " in line for line in lines)
    assert [line.split("] ")[1].split()[0] for line in lines if ": HEAD " not in line] == [
        "RUN", "CALLED", "STARTED", "DONE", "ACCEPTED", "CALLED", "STARTED", "DONE", "ACCEPTED", "RUN",
    ]  # fmt: skip
    heads = heads_in(log.read_text())
    assert len(heads) == 4
    assert check_heads(read_events(saved(record)), heads) == []


# -- crashes --------------------------------------------------------------------------------------------------------


class Fatal:
    """Kills this process at that append with some words in it: before its lines, before its commit, or after."""

    def __init__(self, words: bytes, number: int, when: str) -> None:
        self.words, self.number, self.when = words, number, when

    def install(self, home: RunStore) -> None:
        dialect: Any = home.database.engine.dialect
        commit, add = dialect.do_commit, journal.add_lines

        def add_lines(connection: Any, run: str, start: int, lines: Any, *more: Any, **named: Any) -> None:
            hit = any(self.words in line for line in lines)
            self.number -= hit
            if hit and self.number < 0 and self.when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            add(connection, run, start, lines, *more, **named)
            if hit and self.number < 0 and self.when == "half":
                os.kill(os.getpid(), signal.SIGKILL)

        def do_commit(connection: Any) -> None:
            commit(connection)
            if self.number < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        journal.add_lines, dialect.do_commit = add_lines, do_commit


def noisy(folder: Path) -> Any:
    return runbook(
        step("a"), step("b", phase="q"), sinks=(Sink(name="log", kind="file", arguments={"path": str(folder / "log")}),)
    )


def crash(folder: Path, words: bytes, number: int, when: str) -> bool:
    """Run in a child until it is killed; returns whether it was."""
    child = os.fork()
    if child == 0:
        try:
            room = Loud(folder, noisy(folder))
            Fatal(words, number, when).install(room.home)
            room.man()
            for id_ in "ab":
                for word, actor in ((machine.call, ALICE), (machine.start, BOB), (machine.accept, CAROL)):
                    room.deliver()
                    room.say(word, actor, id_)
                    room.settle()
            room.deliver()
        except BaseException:  # noqa: BLE001 - nothing of this process may go on in the tests
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def reopened(folder: Path) -> Loud:
    """Return the room of a run whose process was killed."""
    last = list(place(folder).events("r1"))[-1]
    room = Loud.__new__(Loud)
    room.clock = FakeClock(wall=last.wall + 1, mono=last.mono + 10**9, boot=last.boot)
    room.home = place(folder, room.clock)
    room.record = room.home.open("r1")
    room.world, room.watch, room.sinks = World(), None, None
    room.world.flags = {"a", "b"}
    return room


def take_over(room: Any) -> None:
    """Have another person bring the run to its end."""
    status = room.status
    if status.executor:
        room.say(machine.takeover, CAROL, "killed")
    room.lease = take(room.record, "bob", reason="killed")
    room.executor = Executor(room.record, room.world.registry(), room.lease, drills=Drills("3/4"), carry=here)
    room.executor.recover()
    for id_ in "ab":
        for _ in range(20):
            room.settle()
            one = room.status.steps[id_]
            if one.state is StepState.UNKNOWN:
                for actor in (ALICE, CAROL):
                    room.say(machine.decide, actor, id_, "looked", happened=True)
                room.world.flags.add(id_)
            elif one.state is StepState.READY:
                room.say(machine.call, ALICE, id_)
            elif one.state is StepState.CALLED:
                room.say(machine.start, BOB, id_)
            elif one.state is StepState.AWAITING_REVIEW:
                room.say(machine.accept, CAROL, id_)
            elif one.state in (StepState.FAILED, StepState.INCONCLUSIVE):
                room.say(machine.retry, ALICE, id_)
            if room.status.state is RunState.HELD:
                room.say(machine.resume, ALICE)
            if room.status.over or one.state is StepState.DONE:
                break
    room.deliver()


POINTS = [
    *((b'"kind":"announced"', number) for number in range(7)), (b'"kind":"head"', 0), (b'"kind":"head"', 1),
    *((b'"kind":"delivered"', number) for number in (0, 1, 4, 8, 11)),
]  # fmt: skip
# Before the commit of a line and within it are one state for the next executor: every point has one of them.
KILLS = [(*point, ("before", "half")[number % 2]) for number, point in enumerate(POINTS)]
KILLS += [(*point, "after") for point in POINTS[::3]]


@pytest.mark.parametrize(("words", "number", "when"), KILLS)
def test_nothing_announced_is_lost_over_a_kill(tmp_path: Path, words: bytes, number: int, when: str) -> None:
    assert crash(tmp_path, words, number, when)
    room = reopened(tmp_path)
    if room.record.status.over:
        deliver_rest(room.record, "dana", limit=20)
    else:
        take_over(room)
    status = room.record.status
    assert status.state is RunState.COMPLETED
    assert all(one.state is DeliveryState.SENT for one in status.deliveries.values())
    events = list(read_events(saved(room.record)))
    due = {(one.of, one.what) for _, one in told(saved(room.record))}
    said = Counter((event.data["of"], event.data["what"]) for event in events if "sinks" in event.data)
    assert set(said) == due
    assert set(said.values()) == {1}  # announced once each, whoever did
    lines = (tmp_path / "log").read_text().splitlines()
    ids = [int(line.split("/")[1].split("]")[0]) for line in lines]
    announced = [event.seq for event in events if "sinks" in event.data]
    assert set(ids) == set(announced)  # at least once
    assert ids == sorted(ids)  # in their order, also over the crash
    assert len(ids) - len(announced) <= 1  # what was sent and not yet written down comes twice, and nothing else


def test_an_executor_that_was_fenced_sends_no_more(tmp_path: Path) -> None:
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    old = Scripted("chat")
    room.sinks = (old,)
    first = room.man()
    room.deliver()
    room.die()
    new = Scripted("chat")
    room.sinks = (new,)
    room.succeed()
    room.deliver()
    room.say(machine.call, ALICE, "a")
    for _ in range(5):
        first.outbox.tick()
    first.outbox.end(0.1)
    room.deliver()
    assert [message.what for message in old.got] == ["run started"]
    assert [message.what for message in new.got] == ["takeover", "called"]


def test_what_is_left_when_the_run_is_over_is_delivered_by_any_of_its_people(tmp_path: Path) -> None:
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    chat = Scripted("chat", SinkError("status 503", wait=60.0))
    room.sinks = (chat,)
    room.man()
    room.deliver(lambda status: any(one.tries for one in status.deliveries.values()))
    with pytest.raises(UsageError, match="is not over"):
        deliver_rest(room.record, "dana", sinks=(chat,))
    room.say(machine.abort, DANA, "enough")
    with pytest.raises(UsageError, match="none of the runbook's people"):
        deliver_rest(room.record, "mallory", sinks=(chat,))
    status = deliver_rest(room.record, "dana", sinks=(chat,))
    assert [message.what for message in chat.got] == ["run started", "run ended", "head"]
    assert {one.state for one in status.deliveries.values()} == {DeliveryState.SENT}
    again = deliver_rest(room.record, "dana", sinks=(chat,))
    assert len(chat.got) == 3
    assert again.seq == status.seq


# -- what goes wrong in the outbox itself ---------------------------------------------------------------------------


def test_an_announcement_that_cannot_be_made_is_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = announce.announcements

    def bad(before: Any, event: Any, after: Any, drill: str = "") -> Any:
        if event.kind is EventKind.STARTED:
            raise ZeroDivisionError("no words")
        return good(before, event, after, Drills(drill))

    monkeypatch.setattr(outbox, "announcements", bad)
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    chat = Scripted("chat")
    room.sinks = (chat,)
    room.man()
    room.play("a")
    room.deliver()
    assert room.status.state is RunState.COMPLETED
    assert [message.what for message in chat.got] == ["run started", "called", "done", "accepted", "head", "run ended",
                                                      "head"]  # fmt: skip
    (problem,) = room.status.outbox_problems
    assert problem.endswith("(started) cannot be announced: ZeroDivisionError: no words")


class Full:
    """A disk that is full for lines with some words in them, so many times."""

    def __init__(self) -> None:
        self.words, self.times = b"-", 0

    def add_lines(self, connection: Any, run: str, start: int, lines: Any, *more: Any, **named: Any) -> None:
        if self.times and any(self.words in line for line in lines):
            self.times -= 1
            raise StoreError("No space left on device")
        journals.add_lines(connection, run, start, lines, *more, **named)


@pytest.mark.parametrize("words", [b'"kind":"announced"', b'"kind":"delivered"'])
def test_what_the_disk_does_not_take_is_announced_and_delivered_later(
    tmp_path: Path, words: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Full()
    monkeypatch.setattr("migverify.runbook.record.journal.add_lines", disk.add_lines)
    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    chat = Scripted("chat")
    room.sinks = (chat,)
    room.man()
    disk.words, disk.times = words, 3
    room.play("a")
    room.deliver(lambda status: disk.times == 0 and bool(status.deliveries))
    room.deliver()
    assert [message.what for message in chat.got] == [
        "run started", "called", "started", "done", "accepted", "head", "run ended", "head",
    ]  # fmt: skip
    assert any("No space left on device" in problem for problem in room.status.outbox_problems)


def test_a_sink_with_a_fault_of_its_own_is_a_failed_try_without_its_words(tmp_path: Path) -> None:
    def fault() -> None:
        raise KeyError("hunter2")

    room = Loud(tmp_path, runbook(step("a"), sinks=scripted("chat")))
    room.sinks = (Scripted("chat", fault),)
    room.man()
    room.deliver()
    assert states(room) == ["sent"]
    assert [event.data["reason"] for event in of(room, EventKind.DELIVERY_FAILED)] == ["KeyError in the sink"]


# -- the fold -------------------------------------------------------------------------------------------------------

BOTH = ["chat", "log"]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("announce"), st.integers(-1, 2), st.sampled_from(["called", "late", "head"]),
                      st.sampled_from([["chat"], ["log"], BOTH, BOTH, ["mail"], []])),
            st.tuples(st.sampled_from(["sent", "failed", "given up"]), st.integers(0, 2), st.sampled_from(BOTH),
                      st.sampled_from([1, 1, 1, 2])),
        ),
        max_size=40,
    ),
    st.randoms(use_true_random=False),
)  # fmt: skip
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_prefix_of_a_journal_has_a_whole_outbox(
    tmp_path_factory: pytest.TempPathFactory, said: list[Any], random: Any
) -> None:
    room = Room(tmp_path_factory.mktemp("fold"), runbook(manual("m"), sinks=scripted(*BOTH)))
    keeper = take(room.record, "alice")
    for word in said:
        events = list(read_events(saved(room.record)))
        made = _draft(word, events, keeper.executor)
        try:
            room.record.write(lambda _s, _n, d=made: [d], epoch=keeper.epoch)  # type: ignore[misc]
        except JournalError:
            assert list(read_events(saved(room.record))) == events  # refused whole
    events = list(read_events(saved(room.record)))
    for count in range(1, len(events) + 1):
        status = fold(events[:count])
        assert status is not None
        assert_accounted(status, events[:count])
    cut = random.randint(1, len(events))
    assert fold(events[cut:], fold(events[:cut])) == fold(events) == room.status


def _draft(word: Any, events: list[Any], executor: str) -> Any:
    if word[0] == "announce":
        forward, what, sinks = word[1:]
        about = max([event.data["of"] for event in events if "sinks" in event.data], default=0) + forward
        told = {"of": about, "what": what, "text": "something", "sinks": sinks}
        if what == "head":
            sha = events[about].sha if 0 <= about < len(events) else "0" * 64
            return draft(EventKind.HEAD, executor, role="executor", **told, seq=about, sha=sha)
        return draft(EventKind.ANNOUNCED, executor, role="executor", **told)
    announced = [event.seq for event in events if "sinks" in event.data] or [0]
    key = {"of": announced[word[1] % len(announced)], "sink": word[2]}
    if word[0] == "sent":
        return draft(EventKind.DELIVERED, executor, role="executor", **key)
    tries = sum(event.kind is EventKind.DELIVERY_FAILED and key.items() <= event.data.items() for event in events)
    failed = {"tries": tries + word[3], "reason": "status 503", "given_up": word[0] == "given up"}
    return draft(EventKind.DELIVERY_FAILED, executor, role="executor", **key, **failed)


def assert_accounted(status: RunStatus, events: list[Any]) -> None:
    """Every announcement is on its way to, or has come to its end at, every one of its sinks; and nothing else is."""
    due = {(event.seq, sink) for event in events for sink in event.data.get("sinks", ())}
    assert set(status.deliveries) == due
    counts = Counter(one.state for one in status.deliveries.values())
    assert sum(counts[state] for state in DeliveryState) == len(due)
    sent = [(event.data["of"], event.data["sink"]) for event in events if event.kind is EventKind.DELIVERED]
    assert len(set(sent)) == len(sent) == counts[DeliveryState.SENT]
    for key, one in status.deliveries.items():
        failed = [event.data for event in events if event.kind is EventKind.DELIVERY_FAILED
                  and (event.data["of"], event.data["sink"]) == key]  # fmt: skip
        assert one.tries == len(failed) + (key in sent)
        expected = (
            DeliveryState.SENT if key in sent
            else DeliveryState.QUEUED if not failed
            else DeliveryState.GIVEN_UP if failed[-1]["given_up"] else DeliveryState.FAILED
        )  # fmt: skip
        assert one.state is expected


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        (EventKind.ANNOUNCED, {"of": 1, "what": "late", "text": "x", "sinks": ["mail"]}, "there is no sink mail"),
        (EventKind.ANNOUNCED, {"of": 1, "what": "late", "text": "x", "sinks": []}, "to whom"),
        (EventKind.ANNOUNCED, {"of": 1, "what": "late", "text": "x", "sinks": ["chat", "chat"]}, "to whom"),
        (EventKind.ANNOUNCED, {"of": 99, "what": "late", "text": "x", "sinks": ["chat"]}, "tells about event 99"),
        (EventKind.ANNOUNCED, {"of": True, "what": "late", "text": "x", "sinks": ["chat"]}, "tells about event"),
        (EventKind.ANNOUNCED, {"of": 1, "what": "", "text": "x", "sinks": ["chat"]}, "what it tells"),
        (EventKind.ANNOUNCED, {"of": 1, "what": "late", "text": "", "sinks": ["chat"]}, "no text"),
        (EventKind.ANNOUNCED, {"of": 0, "what": "called", "text": "x", "sinks": ["chat"]}, "after 1"),
        (EventKind.ANNOUNCED, {"of": 1, "what": "called", "text": "x", "sinks": ["chat"]}, "announced before"),
        (EventKind.HEAD, {"of": 2, "what": "head", "text": "x", "sinks": ["chat"], "seq": 2, "sha": "f" * 64},
         "the hash of event 2 is another one"),
        (EventKind.HEAD, {"of": 1, "what": "called", "text": "x", "sinks": ["chat"], "seq": 1, "sha": "f" * 64},
         "does not say that it tells a head"),
        (EventKind.DELIVERED, {"of": 1, "sink": "chat"}, "announced nothing to chat"),
        (EventKind.DELIVERED, {"of": 2, "sink": "log"}, "announced nothing to log"),
        (EventKind.DELIVERY_FAILED, {"of": 2, "sink": "chat", "tries": 2, "reason": "x", "given_up": False}, "try 2"),
        (EventKind.DELIVERY_FAILED, {"of": 2, "sink": "chat", "tries": 1, "reason": "", "given_up": False}, "reason"),
        (EventKind.DELIVERY_FAILED, {"of": 2, "sink": "chat", "tries": 1, "reason": "x", "given_up": 1}, "given up"),
        (EventKind.DELIVERED, {"sink": "chat"}, "cannot be read"),
    ],
)  # fmt: skip
def test_a_line_about_announcements_that_cannot_be_is_refused(
    tmp_path: Path, kind: EventKind, data: dict[str, Any], words: str
) -> None:
    room = Room(tmp_path, runbook(manual("m"), sinks=scripted(*BOTH)))
    keeper = take(room.record, "alice")
    first = draft(EventKind.ANNOUNCED, keeper.executor, role="executor", of=1, what="called", text="x", sinks=["chat"])
    room.record.write(lambda _s, _n: [first], epoch=keeper.epoch)
    made = draft(kind, keeper.executor, role="executor", **data)
    with pytest.raises(JournalError, match=words):
        room.record.write(lambda _s, _n: [made], epoch=keeper.epoch)
    stranger = draft(EventKind.DELIVERED, "mallory", of=2, sink="chat")
    with pytest.raises(JournalError, match="the executor is"):
        room.record.write(lambda _s, _n: [stranger], epoch=keeper.epoch)


def test_what_was_sent_or_given_up_stays_so(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(manual("m"), sinks=scripted("chat")))
    keeper = take(room.record, "alice")

    def write(kind: EventKind, **data: Any) -> None:
        made = draft(kind, keeper.executor, role="executor", **data)
        room.record.write(lambda _s, _n: [made], epoch=keeper.epoch)

    for what in ("called", "late"):
        write(EventKind.ANNOUNCED, of=1, what=what, text="x", sinks=["chat"])
    write(EventKind.DELIVERED, of=2, sink="chat")
    write(EventKind.DELIVERY_FAILED, of=3, sink="chat", tries=1, reason="status 404", given_up=True)
    for seq, state in ((2, "sent"), (3, "given up")):
        for kind, more in ((EventKind.DELIVERED, {}), (EventKind.DELIVERY_FAILED,
                                                       {"tries": 2, "reason": "x", "given_up": False})):  # fmt: skip
            with pytest.raises(JournalError, match=f"is {state}"):
                write(kind, of=seq, sink="chat", **more)


# -- heads ----------------------------------------------------------------------------------------------------------


def test_a_file_that_was_written_anew_does_not_fit_the_heads_that_were_told(tmp_path: Path) -> None:
    texts = []
    for name, reason in (("one", "coffee"), ("two", "tea")):  # the same run, but for one word
        room = Loud(tmp_path / name, runbook(step("a"), sinks=scripted("chat")))
        chat = Scripted("chat")
        room.sinks = (chat,)
        room.man()
        room.say(machine.hold, CAROL, reason)
        room.say(machine.resume, ALICE)
        room.play("a")
        room.deliver()
        texts.append("\n".join(message.text for message in chat.got))
    start, *heads = heads_in(texts[0])
    assert (start.seq, len(heads)) == (0, 2)
    honest, forged = (saved(RunStore(tmp_path / name).open("r1")) for name in ("one", "two"))
    assert check_heads(read_events(honest), heads) == []
    assert check_heads(read_events(honest)) == check_heads(read_events(forged)) == []  # each one fits itself
    problems = check_heads(read_events(forged), heads)
    assert [problem.line for problem in problems] == [heads[0].seq + 1, heads[1].seq + 1]
    assert "was announced" in problems[0].what
    cut = list(read_events(honest))[: heads[0].seq]
    assert all("is missing" in problem.what for problem in check_heads(cut, heads))
    assert "none of the 1 heads" in check_heads(read_events(honest), [Head("r2", 1, "0" * 64)])[0].what
    assert check_heads(read_events(honest), [])[0].fatal
