"""The journal: chained, on the disk, shared, and honest about what was done to it."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.errors import FencedError, JournalError, StoreError
from migverify.runbook.events import EventKind
from migverify.runbook.fold.whole import verify_run
from migverify.runbook.record.journal import (
    NAME,
    Draft,
    FolderJournal,
    Reader,
    SystemDisk,
    canonical,
    event_line,
    read_events,
    verify_journal,
)
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.run import machine
from migverify.secrets import Secret, remember
from tests.unit.runbook_places import living_in
from tests.unit.runbook_runs import ALICE, Room, draft, runbook, step


def journal(folder: Path, lines: int = 5) -> FolderJournal:
    made = FolderJournal(folder, "r1", "sha")
    for number in range(lines):
        made.append(lambda n=number: [Draft(EventKind.NOTE, "alice", data={"n": n, "text": 'a,"sha":"b'})])  # type: ignore[misc]
    return made


def test_lines_are_chained_canonical_and_read_back(tmp_path: Path) -> None:
    made = journal(tmp_path)
    events = list(read_events(made.path))
    assert [event.seq for event in events] == [0, 1, 2, 3, 4]
    assert [event.previous for event in events[1:]] == [event.sha for event in events[:-1]]
    for line in made.path.read_bytes().splitlines():
        assert canonical(json.loads(line)) == line
    assert verify_journal(made.path) == []


def test_a_torn_tail_at_every_byte_is_tolerated_and_reported(tmp_path: Path) -> None:
    whole = journal(tmp_path / "a", 3).path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    folder = tmp_path / "b"
    folder.mkdir()
    for size in range(ends[0], len(whole)):
        (folder / NAME).write_bytes(whole[:size])
        count = sum(end <= size for end in ends)
        assert len(list(read_events(folder / NAME))) == count
        problems = verify_journal(folder / NAME)
        assert [(one.line, one.fatal) for one in problems] == ([] if size in ends else [(count + 1, False)])


def test_the_writer_behind_a_torn_line_says_what_it_cut(tmp_path: Path) -> None:
    path = journal(tmp_path, 3).path
    path.write_bytes(path.read_bytes()[:-7])
    made = FolderJournal(tmp_path, "r1", "sha")

    def decide() -> list[Draft]:
        assert len(list(made.new())) == 2
        return [Draft(EventKind.NOTE, "bob")]

    written = made.append(decide)
    assert written[0].data["torn_bytes"] > 100
    assert [event.actor for event in written] == ["journal", "bob"]
    assert verify_journal(path) == []


def test_every_flipped_byte_is_found_with_its_line(tmp_path: Path) -> None:
    path = journal(tmp_path, 3).path
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x01
        path.write_bytes(bytes(changed))
        line = whole[:place].count(b"\n") + 1
        problems = verify_journal(path)
        assert problems, place
        assert problems[0].line == line, place


@pytest.mark.parametrize("what", ["drop", "swap", "insert", "twice", "rechain"])
def test_lines_dropped_swapped_or_inserted_are_found(tmp_path: Path, what: str) -> None:
    path = journal(tmp_path, 5).path
    lines = path.read_bytes().splitlines(keepends=True)
    forged = json.loads(lines[2]) | {"actor": "mallory"}
    forged.pop("sha")
    if what == "drop":
        del lines[2]
    elif what == "swap":
        lines[2], lines[3] = lines[3], lines[2]
    elif what == "twice":
        lines.insert(2, lines[1])
    else:
        lines[2:3] = [event_line(forged)[1]] + ([lines[2]] if what == "insert" else [])
    path.write_bytes(b"".join(lines))
    assert verify_journal(path)[0].line == (4 if what in ("rechain", "insert") else 3)


def test_a_cut_behind_a_readers_back_is_an_error(tmp_path: Path) -> None:
    path = journal(tmp_path, 3).path
    reader = Reader(path)
    list(reader.new())
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(JournalError, match="cut off"):
        list(reader.new())


class FullDisk(SystemDisk):
    """Takes some bytes, then is full."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, handle: int, data: bytes) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = data[: self.room]
        self.room -= len(taken)
        return super().write(handle, taken)


@given(st.integers(0, 1500))
@settings(max_examples=40, deadline=None)
def test_a_full_disk_leaves_no_part_of_a_batch(tmp_path_factory: pytest.TempPathFactory, room: int) -> None:
    folder = tmp_path_factory.mktemp("full")
    journal(folder, 2)
    before = (folder / NAME).read_bytes()
    made = FolderJournal(folder, "r1", "sha", disk=FullDisk(room))

    def decide() -> list[Draft]:
        list(made.new())
        return [Draft(EventKind.NOTE, "alice", data={"n": n}) for n in range(4)]

    full = False
    try:
        made.append(decide)
    except StoreError:
        full = True
    assert full == ((folder / NAME).read_bytes() == before)
    assert len((folder / NAME).read_bytes()) <= len(before) + room
    assert verify_journal(folder / NAME) == []


def test_secrets_never_reach_the_file(tmp_path: Path) -> None:
    remember(Secret("hunter2-of-the-journal"))
    room = Room(tmp_path, runbook(step("a")))
    room.say(machine.hold, ALICE, "psst: hunter2-of-the-journal")
    room.record.write(
        lambda _s, _n: [draft(EventKind.NOTE, "alice", text={"hunter2-of-the-journal": ["x hunter2-of-the-journal"]})]
    )
    text = room.record.journal.path.read_text()
    assert "hunter2" not in text
    assert text.count("***") == 3
    assert verify_run(room.record.journal.path) == []


def test_numbers_without_json_are_refused(tmp_path: Path) -> None:
    made = FolderJournal(tmp_path, "r1", "sha")
    with pytest.raises(StoreError, match="has no JSON"):
        made.append(lambda: [Draft(EventKind.NOTE, "alice", data={"value": float("nan")})])
    assert not made.path.exists()


@pytest.fixture(params=["folder", "sqlite"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Room:
    """A run in each place where one can live."""
    with living_in(request.param):
        return Room(tmp_path, runbook(step("a")))


def test_secrets_never_reach_any_place(anywhere: Room, tmp_path: Path) -> None:
    remember(Secret("hunter2-of-any-place"))
    anywhere.say(machine.hold, ALICE, "psst: hunter2-of-any-place")
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path
    assert anywhere.home.verify("r1") == []


@pytest.mark.parametrize(
    ("drafts", "error"),
    [
        ([draft(EventKind.NOTE, "alice", text="x"), draft(EventKind.NOTE, "alice", value=float("nan"))], StoreError),
        ([draft(EventKind.NOTE, "alice", text="x"), draft(EventKind.CALLED, "bob", "a")], JournalError),
    ],
)
def test_a_batch_of_which_one_is_refused_is_not_there_at_all(
    anywhere: Room, drafts: list[Draft], error: type[Exception]
) -> None:
    before = list(anywhere.record.journal.events())
    status = anywhere.status
    with pytest.raises(error):
        anywhere.record.write(lambda _s, _n: drafts)
    assert list(anywhere.record.journal.events()) == before
    assert anywhere.status == status
    anywhere.say(machine.hold, ALICE, "and it can be written to")
    assert anywhere.home.verify("r1") == []


def test_what_one_writes_another_reads_without_a_gap(anywhere: Room) -> None:
    other = anywhere.home.open("r1")
    for number in range(3):
        for record in (anywhere.record, other):
            record.write(lambda _s, _n, n=number: [draft(EventKind.NOTE, "alice", n=n)])  # type: ignore[misc]
    anywhere.record.refresh()
    assert anywhere.record.status == other.status
    assert [event.seq for event in other.journal.events()] == list(range(7))
    assert [event.data.get("n") for event in other.journal.events()][1:] == [0, 0, 1, 1, 2, 2]


def test_a_run_leaves_the_same_journal_in_every_place(tmp_path: Path) -> None:
    exported = []
    for where in ("folder", "sqlite"):
        (tmp_path / where).mkdir()
        with living_in(where):
            room = Room(tmp_path / where, runbook(step("a")))
        room.man()
        room.play("a")
        room.home.export("r1", tmp_path / f"{where}.jsonl")
        exported.append([json.loads(line) for line in (tmp_path / f"{where}.jsonl").read_text().splitlines()])
        assert all(canonical(told) for told in exported[-1])
        assert verify_run(tmp_path / f"{where}.jsonl") == []
    assert [(one["seq"], one["kind"], one["step"]) for one in exported[0]] == [
        (one["seq"], one["kind"], one["step"]) for one in exported[1]
    ]


def test_an_older_epoch_may_not_write(tmp_path: Path) -> None:
    made = FolderJournal(tmp_path, "r1", "sha")
    made.append(lambda: [Draft(EventKind.LEASE, "one", data={"epoch": 1})], epoch=1)
    made.append(lambda: [Draft(EventKind.LEASE, "two", data={"epoch": 2})], epoch=2)
    with pytest.raises(FencedError, match="epoch 1 is over"):
        made.append(lambda: [Draft(EventKind.INTENT, "one")], epoch=1)
    assert made.append(lambda: [Draft(EventKind.NOTE, "two")], epoch=2)[0].epoch == 2
    assert made.append(lambda: [Draft(EventKind.NOTE, "alice")])[0].epoch == 2


def _write_many(folder: Path, name: str, count: int) -> None:
    record = RunRecord.open(folder)
    for number in range(count):
        record.write(lambda _s, _n, n=number: [Draft(EventKind.NOTE, name, data={"n": n})])  # type: ignore[misc]


def test_several_processes_write_to_one_journal(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    # Spawned, as machines are: nothing is shared but the folder.
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(room.record.folder, f"w{n}", 15)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert verify_journal(room.record.journal.path) == []
    events = list(read_events(room.record.journal.path))[1:]
    for name in ("w0", "w1", "w2"):
        assert [event.data["n"] for event in events if event.actor == name] == list(range(15))


def test_a_lock_that_stays_held_is_an_error(tmp_path: Path) -> None:
    import fcntl

    made = FolderJournal(tmp_path, "r1", "sha")
    handle = os.open(tmp_path / "journal.lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    from migverify.runbook.record.locks import locked

    with pytest.raises(StoreError, match="locked by somebody else"), locked(made.folder / "journal.lock", 0.05):
        pass
    os.close(handle)
