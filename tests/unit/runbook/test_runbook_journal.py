"""The journal: chained, on the disk, shared, and honest about what was done to it."""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from migverify.errors import FencedError, JournalError, StoreError
from migverify.runbook.events import EventKind
from migverify.runbook.record.chain import Draft, canonical, event_line
from migverify.runbook.record.journal import RunJournal
from migverify.runbook.record.journal_file import NAME, read_events, verify_journal, verify_run
from migverify.runbook.record.run_store import RunStore
from migverify.runbook.run import machine
from migverify.secrets import Secret, remember
from tests.unit.runbook_places import data_of, living_in, rewrite, saved
from tests.unit.runbook_runs import ALICE, Room, draft, runbook, step


def opened(folder: Path) -> RunJournal:
    return RunJournal(RunStore(folder).database, "r1", "sha", folder=folder)


def journal(folder: Path, lines: int = 5) -> Path:
    """Write a journal, and return it as a file."""
    folder.mkdir(exist_ok=True)
    made = opened(folder)
    for number in range(lines):
        made.append(lambda n=number: note(made, {"n": n, "text": 'a,"sha":"b'}))  # type: ignore[misc]
    path = folder / NAME
    path.write_bytes(b"".join(made.lines()))
    return path


def note(made: RunJournal, *some: dict[str, Any]) -> list[Draft]:
    list(made.new())
    return [Draft(EventKind.NOTE, "alice", data=data) for data in some]


def test_lines_are_chained_canonical_and_read_back(tmp_path: Path) -> None:
    path = journal(tmp_path)
    events = list(read_events(path))
    assert [event.seq for event in events] == [0, 1, 2, 3, 4]
    assert [event.previous for event in events[1:]] == [event.sha for event in events[:-1]]
    for line in path.read_bytes().splitlines():
        assert canonical(json.loads(line)) == line
    assert verify_journal(path) == []


def test_a_torn_tail_at_every_byte_is_tolerated_and_reported(tmp_path: Path) -> None:
    path = journal(tmp_path, 3)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == 10]
    for size in range(ends[0], len(whole)):
        path.write_bytes(whole[:size])
        count = sum(end <= size for end in ends)
        assert len(list(read_events(path))) == count
        problems = verify_journal(path)
        assert [(one.line, one.fatal) for one in problems] == ([] if size in ends else [(count + 1, False)])


def test_every_flipped_byte_is_found_with_its_line(tmp_path: Path) -> None:
    path = journal(tmp_path, 3)
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
    path = journal(tmp_path, 5)
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
    first = journal(tmp_path, 3).read_bytes().splitlines(keepends=True)[0]
    made = opened(tmp_path)
    list(made.new())
    rewrite(tmp_path, "r1", first)
    with pytest.raises(JournalError, match="cut off"):
        list(made.new())


@pytest.mark.parametrize("room", [0, 2, 50])
def test_a_full_disk_leaves_no_part_of_a_batch(tmp_path: Path, room: int) -> None:
    folder = tmp_path / "full"
    journal(folder, 2)
    before = data_of(folder, "r1")
    made = opened(folder)
    with made.database.engine.connect() as connection:
        pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
    event.listen(made.database.engine, "connect", lambda c, _: c.execute(f"PRAGMA max_page_count={pages + room}"))
    made.database.engine.dispose()
    full = False
    try:
        made.append(lambda: note(made, *({"n": n, "text": "x" * 2000} for n in range(9))))
    except StoreError as error:
        full = "full" in error.message
    assert full == (data_of(folder, "r1") == before)
    assert full == (room < 50)
    assert RunStore(folder).open_journal("r1").end() is not None


def test_secrets_never_reach_the_file(tmp_path: Path) -> None:
    remember(Secret("hunter2-of-the-journal"))
    room = Room(tmp_path, runbook(step("a")))
    room.say(machine.hold, ALICE, "psst: hunter2-of-the-journal")
    room.record.write(
        lambda _s, _n: [draft(EventKind.NOTE, "alice", text={"hunter2-of-the-journal": ["x hunter2-of-the-journal"]})]
    )
    text = saved(room.record).read_text()
    assert "hunter2" not in text
    assert text.count("***") == 3
    assert verify_run(saved(room.record)) == []


@pytest.fixture
def anywhere(tmp_path: Path) -> Room:
    """Return a run in a result store, as other machines have it (tests/db: on servers)."""
    with living_in(f"sqlite:///{tmp_path}/store.db"):
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


def test_a_run_is_exported_as_lines_that_verify(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    room.man()
    room.play("a")
    room.home.export("r1", tmp_path / "copy.jsonl")
    assert verify_run(tmp_path / "copy.jsonl") == []
    assert list(read_events(tmp_path / "copy.jsonl")) == list(room.record.journal.events())


def test_an_older_epoch_may_not_write(tmp_path: Path) -> None:
    made = opened(tmp_path)
    made.append(lambda: [Draft(EventKind.LEASE, "one", data={"epoch": 1})], epoch=1)
    made.append(lambda: [Draft(EventKind.LEASE, "two", data={"epoch": 2})], epoch=2)
    with pytest.raises(FencedError, match="epoch 1 is over"):
        made.append(lambda: [Draft(EventKind.INTENT, "one")], epoch=1)
    assert made.append(lambda: [Draft(EventKind.NOTE, "two")], epoch=2)[0].epoch == 2
    assert made.append(lambda: [Draft(EventKind.NOTE, "alice")])[0].epoch == 2


def _write_many(folder: Path, name: str, count: int) -> None:
    record = RunStore(folder).open("r1")
    for number in range(count):
        record.write(lambda _s, _n, n=number: [Draft(EventKind.NOTE, name, data={"n": n})])  # type: ignore[misc]


def test_several_processes_write_to_one_journal(tmp_path: Path) -> None:
    room = Room(tmp_path, runbook(step("a")))
    # Spawned, as machines are: nothing is shared but the folder.
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(tmp_path, f"w{n}", 8)) for n in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert verify_journal(saved(room.record)) == []
    events = list(read_events(saved(room.record)))[1:]
    for name in ("w0", "w1"):
        assert [event.data["n"] for event in events if event.actor == name] == list(range(8))


def test_a_lock_that_stays_held_is_an_error(tmp_path: Path) -> None:
    import fcntl

    handle = os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(handle, fcntl.LOCK_EX)
    from migverify.runbook.record.locks import locked

    with pytest.raises(StoreError, match="locked by somebody else"), locked(tmp_path / "lock", 0.05):
        pass
    os.close(handle)
