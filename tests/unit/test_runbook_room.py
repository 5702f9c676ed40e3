"""Rooms: where runs live, and what is said about those that are not there or damaged."""

from __future__ import annotations

from pathlib import Path

import pytest

from migverify.errors import JournalError, StoreError, UsageError
from migverify.runbook.events import EventKind
from migverify.runbook.model import RunKind
from migverify.runbook.record.journal import NAME, read_events
from migverify.runbook.record.room import FolderRoom, Room, check_id, open_room
from migverify.runbook.record.room_db import DbRoom, open_db_room
from migverify.runbook.record.run_record import new_run_id
from tests.unit.runbook_runs import FakeClock, runbook, step


def test_runs_are_listed_in_the_order_of_their_start(tmp_path: Path) -> None:
    clock = FakeClock()
    room = FolderRoom(tmp_path / "runs", clock=clock)
    assert room.ids() == []
    for run in ("zebra", "ant", "mole"):
        clock.advance(10)
        room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)
    assert room.ids() == ["zebra", "ant", "mole"]
    assert room.open("last").status.run == "mole"
    assert [event.run for event in room.events("last")] == ["mole"]
    assert room.folder("ant") == tmp_path / "runs" / "ant"


def test_a_run_by_no_person_says_so_from_its_first_event(tmp_path: Path) -> None:
    room = open_room(str(tmp_path))
    room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1", autopilot=True)
    room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r2")
    told = [next(room.events(run)) for run in ("r1", "r2")]
    assert [event.kind for event in told] == [EventKind.RUN_STARTED] * 2
    assert [event.data["autopilot"] for event in told] == [True, False]


def test_an_id_is_never_a_path(tmp_path: Path) -> None:
    room = FolderRoom(tmp_path)
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
    room = FolderRoom(tmp_path / "runs")
    for read in (room.open, lambda run: list(room.events(run))):
        with pytest.raises(UsageError, match="there is no run r1"):
            read("r1")
        with pytest.raises(UsageError, match="holds no run"):
            read("last")
    with pytest.raises(UsageError, match="name is empty"):
        open_room("  ")


def test_a_damaged_journal_is_listed_and_refused_when_it_is_opened(tmp_path: Path) -> None:
    room = FolderRoom(tmp_path)
    for run in ("good", "bad"):
        room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)
    path = tmp_path / "bad" / NAME
    path.write_bytes(path.read_bytes().replace(b"rehearsal", b"live", 1))
    assert room.ids() == ["bad", "good"]
    with pytest.raises(JournalError):
        room.open("bad")
    assert room.open("last").status.run == "good"


def test_a_folder_without_one_whole_line_is_no_run(tmp_path: Path) -> None:
    room = FolderRoom(tmp_path)
    room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / NAME).write_bytes((tmp_path / "r1" / NAME).read_bytes()[:-1])
    (tmp_path / "other").mkdir()
    assert room.ids() == ["r1"]
    with pytest.raises(UsageError, match="holds no run"):
        room.open("torn")


# -- in a file of SQLite --------------------------------------------------------------------------------------------


@pytest.fixture
def db(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DbRoom:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = open_room(f"sqlite:///{tmp_path}/runs.db")
    assert isinstance(made, DbRoom)
    return made


def test_a_room_in_a_database_lists_opens_and_refuses_as_a_folder_does(db: DbRoom, tmp_path: Path) -> None:
    rooms: list[Room] = [db, FolderRoom(tmp_path / "runs")]
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


def test_an_export_that_fails_leaves_the_older_file(db: DbRoom, tmp_path: Path) -> None:
    db.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1")
    folder = tmp_path / "not a folder"
    folder.write_text("x")
    with pytest.raises(StoreError, match="cannot be written"):
        db.export("r1", folder / "copy.jsonl")
    assert folder.read_text() == "x"


def test_what_reaches_a_database_is_on_the_disk(db: DbRoom) -> None:
    with db.database.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_a_folder_that_somebody_else_could_have_made_is_refused(db: DbRoom, tmp_path: Path) -> None:
    made = db.folder("r1")
    assert made.stat().st_mode & 0o077 == 0
    own = made.parents[1]
    own.chmod(0o777)
    with pytest.raises(StoreError, match="is not ours alone"):
        db.folder("r1")
    own.rename(tmp_path / "away")
    own.symlink_to(tmp_path / "away")
    with pytest.raises(StoreError, match="is not ours alone"):
        open_db_room(f"sqlite:///{tmp_path}/runs.db").folder("r1")
