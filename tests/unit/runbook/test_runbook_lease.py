"""One executor at a time, on one machine and on several."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from migverify.errors import FencedError, UsageError
from migverify.runbook.events import EventKind
from migverify.runbook.kinds import RunKind
from migverify.runbook.record.lease import LIFE, TOLERANCE, LeaseWatch, SeenLease, lease_of, take
from migverify.runbook.record.process_lock import EffectFiles, at_work, process_lock
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.store import schema
from tests.unit.runbook_places import age_leases, place
from tests.unit.runbook_runs import ALICE, BOB, CAROL, FakeClock, Room, draft, here, runbook, step
from tests.waiting import PATIENCE, wait_for


def _hold(folder: Path, ready: Any) -> None:
    keeper = take(place(folder).open("r1"), "alice")
    keeper.begin()
    ready.set()
    time.sleep(600)


def test_a_second_process_waits_until_the_first_is_dead(tmp_path: Path) -> None:
    Room(tmp_path, runbook(step("a")))
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    holder = context.Process(target=_hold, args=(tmp_path, ready))
    holder.start()
    assert ready.wait(60)
    record = place(tmp_path).open("r1")
    record.submit(lambda s, n: machine.takeover(s, CAROL, n, "it hangs"))
    with pytest.raises(UsageError, match="holds the run and may live"):
        take(record, "bob", reason="it hangs")
    assert holder.pid is not None
    os.kill(holder.pid, signal.SIGKILL)
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked how
    keeper = take(record, "bob", reason="it hangs")
    assert keeper.epoch == 2
    holder.join(30)
    last = list(record.journal.events())[-1]
    assert last.data["by"] == ["carol", "bob"]
    assert "has ended" in last.data["gone"]


def _race(folder: Path, results: Any, both_asked: Any) -> None:
    try:
        results.put(take(place(folder).open("r1"), "alice").epoch)
    except UsageError:
        results.put("refused")
    both_asked.wait(60)  # so that nobody takes it for dead meanwhile


def test_of_two_who_take_a_free_run_one_gets_it(tmp_path: Path) -> None:
    Room(tmp_path, runbook(step("a")))
    context = multiprocessing.get_context("spawn")
    results, both_asked = context.Queue(), context.Event()
    racers = [context.Process(target=_race, args=(tmp_path, results, both_asked)) for _ in range(2)]
    for racer in racers:
        racer.start()
    found = [results.get(timeout=60) for _ in racers]
    both_asked.set()
    for racer in racers:
        racer.join(60)
    assert sorted(map(str, found)) == ["1", "refused"]


def test_a_run_without_a_lease_is_watched_by_the_own_clock(tmp_path: Path) -> None:
    """Its holder died between the journal and the lease, on another machine."""
    room = Room(tmp_path, runbook(step("a")))
    told = {"epoch": 1, "person": "alice", "host": "elsewhere", "boot": "other", "process": "1 x 2"}
    room.record.write(lambda _s, _n: [draft(EventKind.LEASE, "executor-1", role="executor", **told)])
    elsewhere = FakeClock(wall=room.clock.wall - 86400, mono=7, boot="other-2")  # a day behind
    watch = LeaseWatch(room.record, elsewhere)
    assert watch.gone(room.status) == ""
    elsewhere.advance(LIFE + TOLERANCE - 1)
    assert watch.gone(room.status) == ""
    elsewhere.advance(2)
    assert "has not renewed its lease" in watch.gone(room.status)


def test_the_clock_of_the_database_says_how_old_a_lease_is_and_an_own_look_confirms_it(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    elsewhere = FakeClock(wall=room.clock.wall - 86400, mono=7, boot="other")
    watch = LeaseWatch(room.record, elsewhere)
    assert watch.gone(room.status) == ""
    elsewhere.advance(999)  # the own clock alone says nothing
    assert watch.gone(room.status) == ""
    assert room.lease is not None
    room.lease.renew()
    age_leases(room.record)  # nor does the database's: it may have been set
    assert watch.gone(room.status) == ""
    elsewhere.advance(LIFE / 2 + TOLERANCE - 1)
    assert watch.gone(room.status) == ""
    elsewhere.advance(2)
    assert "has not renewed its lease for 6" in watch.gone(room.status)
    room.lease.renew()
    assert watch.gone(room.status) == ""


def test_a_watch_of_another_run_proves_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    other = room.home.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r2")
    watch = LeaseWatch(other, room.clock)  # a run in which no lease ever was
    room.clock.advance(9999)
    assert watch.gone(room.status)
    room.say(machine.takeover, CAROL, "gone")
    with pytest.raises(UsageError, match="is not this run's"):
        take(room.record, "bob", reason="gone", watch=watch)


def test_a_holder_stops_before_anybody_else_may_begin(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    executor = room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    room.clock.advance(LIFE + 0.5)  # it could not renew: the folder did not answer
    with pytest.raises(FencedError, match="could not be renewed"):
        executor.tick()
    assert room.world.done == []


def test_an_executor_that_was_replaced_can_neither_write_nor_act(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    old = room.man()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    old_lease = room.lease
    room.die()
    new = room.succeed()
    # Its clock stood still (a suspended machine), so that only the journal and the lease file can stop it.
    assert old_lease is not None
    old_lease._renewed = room.clock.now()
    with pytest.raises(FencedError):
        old.write(EventKind.INTENT, "a", action="world.set")
    with pytest.raises(FencedError):
        old_lease.renew()
    with pytest.raises(FencedError):
        old.tick()
    new.tick()
    room.settle()
    assert room.world.done == [("set", "a")]


def test_nobody_writes_as_the_executor(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    from migverify.errors import JournalError

    with pytest.raises(JournalError, match="the executor is"):
        room.record.write(
            lambda _s, _n: [draft(EventKind.GUARD, "executor-1", guard="x", state="pass", asked=1, due=1)]
        )


def test_an_unreadable_lease_is_none(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    assert lease_of(room.record).read() == SeenLease(None)
    room.man()
    room.record.journal.database.write(
        "", lambda c: c.execute(update(schema.runbook_leases).values(body='{"epoch": 1'))
    )  # fmt: skip
    assert lease_of(room.record).read().lease is None


def test_a_program_that_outlives_its_executor_keeps_the_process_lock(tmp_path: Path) -> None:
    files = EffectFiles(tmp_path, "a", 1)
    with process_lock(files) as handle:
        program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(handle,))
        assert at_work(files)
    assert f"process {program.pid}" in at_work(files)[0]
    assert not at_work(EffectFiles(tmp_path, "a", 2))
    with pytest.raises(FencedError, match="still runs"), process_lock(files):
        pass
    program.communicate(b"\n")
    assert not at_work(files)


def test_the_thread_renews_and_stops(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    keeper = take(room.record, "alice", life=0.08)
    keeper.begin()
    lease = lease_of(room.record)
    wait_for(lambda: (now := lease.read().lease) is not None and now.beat >= 3, "the third renewal")
    keeper.end(room.record)
    assert room.status.executor == ""


def test_a_run_is_driven_to_its_end_while_people_act_elsewhere(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    record = place(tmp_path, room.clock).open("r1")
    executor = Executor(record, room.world.registry(), take(record, "alice"), pause=0.01, carry=here)
    driver = threading.Thread(target=executor.run, daemon=True)
    driver.start()
    room.say(machine.call, ALICE, "a")
    room.say(machine.start, BOB, "a")
    wait_for(lambda: room.state("a").value == "awaiting review", "the step awaits its review")
    room.say(machine.accept, CAROL, "a")
    driver.join(PATIENCE)
    assert not driver.is_alive()
    assert room.status.state.value == "completed"
