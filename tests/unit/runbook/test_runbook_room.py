"""Rooms: where runs live, and what is said about those that are not there or damaged."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.runbook_room import announced_heads
from migverify.errors import JournalError, StoreError, UsageError
from migverify.runbook.events import EventKind
from migverify.runbook.kinds import RunKind
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.journal_file import NAME, read_events
from migverify.runbook.record.run_record import new_run_id
from migverify.runbook.record.run_store import FILE, RunStore, check_id, open_run_store
from migverify.store import journals
from tests.unit.runbook_places import ON_THE_DISK, data_of, rewrite
from tests.unit.runbook_runs import FakeClock, replace, runbook, step


def test_runs_are_listed_in_the_order_of_their_start(tmp_path: Path) -> None:
    clock = FakeClock()
    room = RunStore(tmp_path / "runs", clock=clock)
    assert room.ids() == []
    for run in ("zebra", "ant", "mole"):
        clock.advance(10)
        room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)
    assert room.ids() == ["zebra", "ant", "mole"]
    assert room.open("last").status.run == "mole"
    assert [event.run for event in room.events("last")] == ["mole"]
    assert room.folder("ant") == tmp_path / "runs" / "ant"


def test_a_run_by_no_person_says_so_from_its_first_event(tmp_path: Path) -> None:
    room = open_run_store(str(tmp_path))
    room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
    room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r2")
    told = [next(room.events(run)) for run in ("r1", "r2")]
    assert [event.kind for event in told] == [EventKind.RUN_STARTED] * 2
    assert [event.data["autopilot"] for event in told] == [True, False]


def test_the_first_event_is_read_without_the_lines_behind_it(tmp_path: Path) -> None:
    clock = FakeClock()
    room = RunStore(tmp_path, clock=clock)
    room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r").write(
        lambda _status, _now: [Draft(EventKind.NOTE, "alice", "coordinator", data={"text": "x"})]
    )
    first, second = data_of(tmp_path, "r").splitlines(keepends=True)
    rewrite(tmp_path, "r", first + second.replace(b'"x"', b'"y"'))
    journal = room.listed("r", room.starts()["r"])
    event = journal.first()
    assert event is not None
    assert event.kind is EventKind.RUN_STARTED
    with pytest.raises(JournalError, match="its hash is not that of its text"):
        list(journal.events())
    assert room.starts().keys() == {"r"}


def test_a_listed_journal_is_read_as_it_was_when_it_was_listed(tmp_path: Path) -> None:
    room = RunStore(tmp_path, clock=FakeClock())
    record = room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r")
    listed = room.listed("r", room.starts()["r"])
    record.write(lambda _status, _now: [Draft(EventKind.NOTE, "alice", "coordinator", data={"text": "x"})])
    assert [event.kind for event in listed.events()] == [EventKind.RUN_STARTED]
    anew = room.listed("r", room.starts()["r"])
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute("DELETE FROM migverify_runbook_events WHERE seq = 1")
    with pytest.raises(JournalError, match="line 2 is gone"):
        list(anew.events())
    with closing(sqlite3.connect(tmp_path / FILE)) as db, db:
        db.execute("DELETE FROM migverify_runbook_events")
    with pytest.raises(JournalError, match="line 1 is gone"):
        room.listed("r", room.starts()["r"]).first()


def test_one_reading_is_of_one_moment(tmp_path: Path) -> None:
    room, other = RunStore(tmp_path), RunStore(tmp_path)
    with room.one_reading():
        assert room.ids() == []
    other.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1")
    with room.one_reading():
        assert room.ids() == ["r1"]
        other.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r2")
        assert room.ids() == ["r1"]
    assert room.ids() == ["r1", "r2"]


def test_an_id_is_never_a_path(tmp_path: Path) -> None:
    room = RunStore(tmp_path)
    for bad in ("", ".", "..", "../other", "a/b", "last", "a b", "a\n", "é", "x" * 121, "-r"):
        with pytest.raises(UsageError):
            room.folder(bad)
        with pytest.raises(UsageError):
            room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=bad)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("book", ["cut", "épée/../x", "x" * 500, ""])
def test_an_id_that_is_made_can_be_opened(book: str) -> None:
    assert check_id(new_run_id(book, 1.8e9))


def test_what_is_not_there_is_one_clear_refusal(tmp_path: Path) -> None:
    room = RunStore(tmp_path / "runs")
    for read in (room.open, lambda run: list(room.events(run))):
        with pytest.raises(UsageError, match="there is no run r1"):
            read("r1")
        with pytest.raises(UsageError, match="holds no run"):
            read("last")
    with pytest.raises(UsageError, match="store of runs is empty"):
        open_run_store("  ")


def test_a_damaged_journal_is_listed_and_refused_when_it_is_opened(tmp_path: Path) -> None:
    room = RunStore(tmp_path)
    for run in ("good", "bad"):
        room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)
    rewrite(tmp_path, "bad", data_of(tmp_path, "bad").replace(b"rehearsal", b"live", 1))
    assert room.ids() == ["good", "bad"]
    with pytest.raises(JournalError):
        room.open("bad")
    assert room.open("good").status.run == "good"


def test_runs_of_an_earlier_release_are_refused_with_one_message(tmp_path: Path) -> None:
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / NAME).write_text("{}\n")
    room = RunStore(tmp_path)
    for read in (room.ids, lambda: room.open("last"), lambda: room.events("r1"),
                 lambda: room.create(runbook(step("a")), RunKind.REHEARSAL, "alice")):  # fmt: skip
        with pytest.raises(UsageError, match=r"holds runs of an earlier release \(r1/journal.jsonl"):
            read()
    assert [path.name for path in tmp_path.iterdir()] == ["r1"]


def test_nothing_is_made_by_a_look(tmp_path: Path) -> None:
    room = RunStore(tmp_path / "runs")
    assert (room.ids(), room.begun()) == ([], [])
    assert not list(tmp_path.iterdir())


# -- in a file of SQLite --------------------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunStore:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = open_run_store(f"sqlite:///{tmp_path}/runs.db")
    assert isinstance(made, RunStore)
    return made


def test_a_room_in_a_database_lists_opens_and_refuses_as_a_folder_does(db: RunStore, tmp_path: Path) -> None:
    rooms = [db, RunStore(tmp_path / "runs")]
    for room in rooms:
        with pytest.raises(UsageError, match="holds no run"):
            room.open("last")
        for run in ("zebra", "ant"):
            room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)
        with pytest.raises(UsageError, match="there is a run ant"):
            room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="ant")
        assert room.ids() == ["zebra", "ant"]
        assert room.open("last").status.run == "ant"
        assert [event.run for event in room.events("last")] == ["ant"]
        assert room.verify("zebra") == []
        with pytest.raises(UsageError, match="there is no run bee"):
            room.open("bee")
        with pytest.raises(UsageError, match="is not an id"):
            room.open("../ant")
        room.export("ant", tmp_path / "copy.jsonl")
        assert list(read_events(tmp_path / "copy.jsonl")) == list(room.events("ant"))


def test_an_export_that_fails_leaves_the_older_file(db: RunStore, tmp_path: Path) -> None:
    db.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1")
    folder = tmp_path / "not a folder"
    folder.write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        db.export("r1", folder / "copy.jsonl")
    assert folder.read_text() == "x"


def test_what_reaches_a_database_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(journals._PREPARE, "sqlite", ON_THE_DISK)
    db = RunStore(tmp_path)
    with db.database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_a_folder_that_somebody_else_could_have_made_is_refused(db: RunStore, tmp_path: Path) -> None:
    made = db.folder("r1")
    assert made.stat().st_mode & 0o077 == 0
    own = made.parents[1]
    own.chmod(0o777)
    with pytest.raises(StoreError, match="is not ours alone"):
        db.folder("r1")
    own.rename(tmp_path / "away")
    own.symlink_to(tmp_path / "away")
    with pytest.raises(StoreError, match="is not ours alone"):
        open_run_store(f"sqlite:///{tmp_path}/runs.db").folder("r1")


def test_a_run_names_its_service_and_fits_a_markers_column() -> None:
    book = replace(
        runbook(step("a")), values={"service": "pay", "barrier": "ops_forward.barrier"}, instance={"barrier": "x.y"}
    )
    assert book.service == f"{book.id}-pay"
    assert replace(book, values={}).service == book.id
    assert len(new_run_id("s" * 100)) <= 64


def test_heads_of_a_pipe_or_a_device_are_refused(tmp_path: Path) -> None:
    """A device has no end, and a pipe is empty when a watch of readiness reads it again."""
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/zero"), tmp_path / "pipe", tmp_path):
        with pytest.raises(UsageError, match="not a regular file"):
            announced_heads(path)
