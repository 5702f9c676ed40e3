"""A run is written by one process at a time: who is alive keeps it, who is gone is followed at once or after a wait."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from migverify.codec import parse_json
from migverify.errors import StoreError, UsageError
from migverify.model import StoredKind, Verdict
from migverify.store import process, run_leases
from migverify.store import schema as t
from migverify.store.leases import read_lease
from migverify.store.open import open_store
from migverify.store.results import ResultStore
from migverify.store.run_leases import LIFE, LeaseHolder, _this_process, writer_of

_CHILD = """
import sys, time
from migverify.model import StoredKind, Verdict
from migverify.store.open import open_store
store = open_store(sys.argv[1])
run = store.start_run("tables watch", "h", {}, {}, kind=StoredKind.TABLES)
if "finish" in sys.argv:
    store.finish_run(run, Verdict.MATCH, {})
print(run, flush=True)
time.sleep(60)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ResultStore]:
    opened = open_store(str(tmp_path / "store.db"))
    yield opened
    opened.close()


@contextmanager
def writing(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run a process that has begun a run and lives; yields it and the run."""
    command = [sys.executable, "-c", _CHILD, str(folder / "store.db"), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child, child.stdout.readline().strip()
        finally:
            child.kill()


def held_by(store: ResultStore, run: str, holder: LeaseHolder | str, age: float = 0.0) -> None:
    """Write the lease of a run."""
    body = holder if isinstance(holder, str) else json.dumps(asdict(holder))
    table = t.runbook_leases
    values = {"body": body, "renewed": table.c.renewed - age}
    store.database.write("", lambda c: c.execute(update(table).where(table.c.run == f"run {run}").values(**values)))


def new_run(store: ResultStore) -> str:
    return store.start_run("tables verify", "h", {}, {}, kind=StoredKind.TABLES)


def test_the_writer_of_a_run_is_alive_until_it_is_killed(store: ResultStore, tmp_path: Path) -> None:
    with writing(tmp_path) as (child, run):
        writer = writer_of(store.database, run)
        assert writer is not None
        assert (str(writer), writer.is_alive) == (f"process {child.pid} on {socket.gethostname()}", True)
        assert writer.heartbeat_seconds < LIFE
        child.kill()
        child.wait()
        writer = writer_of(store.database, run)
        assert writer is not None
        assert not writer.is_alive


@pytest.mark.parametrize(("age", "is_alive"), [(LIFE / 2, True), (LIFE * 2, False)])
def test_a_writer_elsewhere_is_alive_by_its_heartbeat(store: ResultStore, age: float, is_alive: bool) -> None:
    for holder in (replace(_this_process(), host="elsewhere"), "a lease of another release"):
        run = new_run(store)
        held_by(store, run, holder, age)
        writer = writer_of(store.database, run)
        assert writer is not None
        assert writer.is_alive is is_alive


def test_a_run_without_a_lease_has_no_known_writer(store: ResultStore) -> None:
    assert writer_of(store.database, "none") is None


def test_a_run_whose_process_lives_is_not_taken_over_and_after_kill_9_it_is_at_once(
    store: ResultStore, tmp_path: Path
) -> None:
    with writing(tmp_path) as (child, run):
        with pytest.raises(UsageError, match=f"run {run} is written by process {child.pid} on ") as caught:
            store.resume_run("last")
        assert f"kill {child.pid}" in caught.value.hint
        assert not [event for event in events(store, run) if event == "run_resumed"]
        os.kill(child.pid, signal.SIGKILL)
        # Not reaped yet: nothing of it runs any more all the same.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert store.resume_run(run).run_id == run
        store.add_blob(run, "p", "x", b"1")


def events(store: ResultStore, run: str) -> list[str]:
    query = select(t.run_events.c.event).where(t.run_events.c.run_id == run)
    return store.database.read("", lambda connection: list(connection.scalars(query)))


def test_a_run_that_its_living_process_has_finished_is_free(store: ResultStore, tmp_path: Path) -> None:
    with writing(tmp_path, "finish") as (_, run):
        assert store.resume_run(run).run_id == run


def test_a_process_of_another_machine_is_gone_after_its_last_heartbeat_and_a_wait(store: ResultStore) -> None:
    run = new_run(store)
    other = replace(_this_process(), host="other.example", pid=7)
    held_by(store, run, other, LIFE - 20)
    with pytest.raises(UsageError, match=r"written by process 7 on other\.example: its last heartbeat was 4") as caught:
        store.resume_run(run)
    assert "resume in" in caught.value.hint
    held_by(store, run, other, 21)
    assert store.resume_run(run).run_id == run


@pytest.mark.parametrize(
    ("change", "free"),
    [
        ({"process": "{pid} {space} 1"}, True),  # the number was given again
        ({"process": "{none} {space} 1"}, True),
        ({"boot": "another"}, False),  # after a restart, or another machine of this name
        ({"process": "{pid} pid:[1] 1"}, False),  # in another container
        ({"process": ""}, False),
    ],
)
def test_what_is_not_certainly_gone_here_is_waited_for(store: ResultStore, change: dict[str, str], free: bool) -> None:
    run = new_run(store)
    pid, space, _ = process.identity().split(" ")
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    fields = {name: text.format(pid=pid, space=space, none=ended.pid) for name, text in change.items()}
    held_by(store, run, replace(_this_process(), **fields))  # type: ignore[arg-type]
    if not free:
        with pytest.raises(UsageError, match="is written by"):
            store.resume_run(run)
        held_by(store, run, replace(_this_process(), **fields), LIFE)  # type: ignore[arg-type]
    assert store.resume_run(run).run_id == run


def test_a_damaged_lease_is_waited_for_and_a_run_of_an_earlier_release_has_none(store: ResultStore) -> None:
    run = new_run(store)
    held_by(store, run, '{"host": 1')
    with pytest.raises(UsageError, match="written by another process"):
        store.resume_run(run)
    store.database.write("", lambda connection: connection.execute(delete(t.runbook_leases)))
    assert store.resume_run(run).run_id == run


def test_of_two_that_resume_at_once_one_goes_on(store: ResultStore, tmp_path: Path) -> None:
    run = new_run(store)
    held_by(store, run, replace(_this_process(), process="", host="other.example"), LIFE)
    code = (
        "import sys, time\nfrom migverify.errors import UsageError\nfrom migverify.store.open import open_store\n"
        "store = open_store(sys.argv[1])\n"
        "try:\n    store.resume_run('last'); print('resumed', flush=True)\n"
        "except UsageError as error:\n    print(error.message, flush=True)\nsys.stdin.readline()"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "store.db")]
    jobs = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [job.stdout.readline() for job in jobs if job.stdout is not None]
    for job in jobs:
        job.communicate("\n")
    assert said.count("resumed\n") == 1
    assert sum("is written by process" in line for line in said) == 2


def test_heartbeats_renew_the_lease_until_the_run_ends(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_leases, "_BEAT_SECONDS", 0.01)
    writer = open_store(str(tmp_path / "store.db"))
    run = new_run(writer)
    held_by(store, run, _this_process(), LIFE)
    until = threading.Event()
    for _ in range(500):
        if age(store, run) < LIFE / 2:
            break
        until.wait(0.01)
    assert age(store, run) < LIFE / 2
    writer.finish_run(run, Verdict.MATCH, {})
    for _ in range(500):  # a beat that had begun before the end may still come; none after it
        held_by(store, run, _this_process(), LIFE)
        writer._heartbeats.renew()
        if age(store, run) >= LIFE:
            break
    assert age(store, run) >= LIFE
    writer.close()
    assert "heartbeats" not in {thread.name for thread in threading.enumerate()}


def age(store: ResultStore, run: str) -> float:
    row = store.database.read("", lambda connection: read_lease(connection, f"run {run}", locked=False))
    assert row is not None
    return row.age


def test_a_lease_that_was_taken_is_left_to_its_holder(store: ResultStore, tmp_path: Path) -> None:
    """A process that was stopped and goes on does not renew the lease of its successor, and may not write."""
    run = new_run(store)
    successor = open_store(str(tmp_path / "store.db"))
    successor.resume_run(run)
    holder = replace(_this_process(), host="other.example")
    held_by(store, run, holder, 30)
    store._heartbeats.renew()
    assert age(store, run) >= 30
    body = store.database.read("", lambda c: c.scalar(select(t.runbook_leases.c.body)))
    assert parse_json(str(body))["host"] == "other.example"
    with pytest.raises(StoreError, match="was resumed by another process"):
        store.add_blob(run, "p", "x", b"1")
    successor.close()


def test_a_process_whose_namespace_cannot_be_read_is_judged_by_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another account only /proc/PID/stat can be read."""
    parent = os.getppid()
    space = process.identity().split(" ")[1]
    started = process._started(parent)
    here = (socket.gethostname(), process.boot_id())
    assert not process.has_ended(*here, f"{parent} {space} {started}", own_boot=here[1])
    assert process.has_ended(*here, f"{parent} {space} 1", own_boot=here[1])
    # /proc hides it altogether: it may live.
    monkeypatch.setattr(Path, "read_text", lambda *_a, **_k: (_ for _ in ()).throw(PermissionError()))
    assert not process.has_ended(*here, f"{parent} {space} {started}", own_boot=here[1])
