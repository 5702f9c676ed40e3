"""Runs in a team's database: the same journal as in a folder, and no event twice or lost when the server misbehaves."""

from __future__ import annotations

import contextlib
import multiprocessing
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, text

from migverify.errors import FencedError, JournalError, StoreError, UsageError
from migverify.runbook.events import Event, EventKind
from migverify.runbook.fold.whole import fold, verify_run
from migverify.runbook.model import RunKind
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.journal import read_events
from migverify.runbook.record.lease import take
from migverify.runbook.record.room import open_room
from migverify.runbook.record.room_db import DbRoom, open_db_room
from migverify.runbook.record.run_record import RunRecord
from migverify.store import schema
from tests.unit import test_runbook_crash as crashes
from tests.unit import test_runbook_lease as leases
from tests.unit import test_runbook_run as runs
from tests.unit.runbook_crash import run_until_killed
from tests.unit.runbook_places import living_in
from tests.unit.runbook_runs import runbook, step

pytestmark = pytest.mark.db


def url_of(databases: Any, side: str) -> str:
    server = getattr(databases.pair, side)
    return f"mysql+pymysql://{server.user}@{server.host}:{server.port}/{databases.name}"


@pytest.fixture(params=["source", "target"])
def url(request: pytest.FixtureRequest, databases: Any) -> str:
    return url_of(databases, request.param)


@pytest.fixture
def room(url: str) -> Iterator[DbRoom]:
    made = open_room(url)
    assert isinstance(made, DbRoom)
    yield made
    made.database.engine.dispose()


def begun(room: DbRoom, run: str = "r1") -> RunRecord:
    return room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)


def say(record: RunRecord, number: int, name: str = "alice") -> list[Event]:
    return record.write(lambda _s, _n: [Draft(EventKind.NOTE, name, data={"n": number})])


def numbers(room: DbRoom, name: str = "alice", run: str = "r1") -> list[int]:
    return [one.data["n"] for one in room.events(run) if one.actor == name and "n" in one.data]


# -- the same as in a folder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        leases.test_a_second_process_waits_until_the_first_is_dead,
        leases.test_of_two_who_take_a_free_run_one_gets_it,
        leases.test_an_executor_that_was_replaced_can_neither_write_nor_act,
        leases.test_a_holder_stops_before_anybody_else_may_begin,
        leases.test_the_thread_renews_and_stops,
        leases.test_a_run_is_driven_to_its_end_while_people_act_elsewhere,
        runs.test_an_effect_runs_only_behind_its_intent_on_the_disk,
        runs.test_a_rollback_undoes_from_the_last_to_the_first_and_verifies,
        runs.test_a_takeover_needs_a_reason_and_two_and_leaves_the_effect_in_doubt,
        runs.test_folds_of_parts_are_the_fold_of_the_whole,
        runs.test_a_spent_write_stop_cancels_the_run_by_itself,
    ],
    ids=lambda case: case.__name__,
)
def test_what_holds_in_a_folder_holds_here(databases: Any, tmp_path: Path, case: Callable[[Path], None]) -> None:
    url = url_of(databases, "source")
    with living_in(url):
        case(tmp_path)
        assert open_db_room(url).verify("last") == []


def test_a_run_on_tidb_is_taken_over_and_rolled_back(databases: Any, tmp_path: Path) -> None:
    with living_in(url_of(databases, "target")):
        runs.test_a_takeover_needs_a_reason_and_two_and_leaves_the_effect_in_doubt(tmp_path)
        assert open_db_room(url_of(databases, "target")).verify("last") == []


def test_runs_are_listed_opened_and_exported(room: DbRoom, tmp_path: Path) -> None:
    for run in ("zebra", "ant"):
        for number in range(3):
            say(begun(room, run) if not number else room.open(run), number)
    assert room.ids() == ["zebra", "ant"]
    with pytest.raises(UsageError, match="there is a run ant"):
        begun(room, "ant")
    with pytest.raises(UsageError, match="there is no run bee"):
        room.open("bee")
    assert room.open("last").status.run == "ant"
    room.export("last", tmp_path / "ant.jsonl")
    assert verify_run(tmp_path / "ant.jsonl") == []
    events = list(read_events(tmp_path / "ant.jsonl"))
    assert events == list(room.events("ant"))
    assert fold(events) == room.open("ant").status
    assert [path.name for path in tmp_path.iterdir()] == ["ant.jsonl"]


def test_an_older_epoch_may_not_write(room: DbRoom) -> None:
    record = begun(room)
    old = take(record, "alice")
    old.end(record)
    take(room.open("r1"), "bob")
    with pytest.raises(FencedError, match=f"epoch {old.epoch} is over"):
        record.write(lambda s, _n: [Draft(EventKind.NOTE, s.executor)], epoch=old.epoch)


def test_a_reader_of_a_long_journal_reads_all_of_it(room: DbRoom) -> None:
    record = begun(room)
    record.write(lambda _s, _n: [Draft(EventKind.NOTE, "alice", data={"n": n, "t": "x" * 2000}) for n in range(1200)])
    assert numbers(room) == list(range(1200))
    assert room.open("r1").status.seq == 1200


def _write_many(url: str, name: str, count: int) -> None:
    record = open_db_room(url).open("r1")
    for number in range(count):
        say(record, number, name)


def test_several_processes_write_to_one_journal(url: str, room: DbRoom) -> None:
    begun(room)
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(url, f"w{n}", 12)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(180)
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert room.verify("r1") == []
    for name in ("w0", "w1", "w2"):
        assert numbers(room, name) == list(range(12))


def _create(url: str, results: Any) -> None:
    try:
        results.put(begun(open_db_room(url)).status.seq)
    except UsageError as error:
        results.put(error.message)


def test_of_two_who_start_one_run_one_does(url: str, room: DbRoom) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    starters = [context.Process(target=_create, args=(url, results)) for _ in range(3)]
    for starter in starters:
        starter.start()
    found = [results.get(timeout=120) for _ in starters]
    for starter in starters:
        starter.join(60)
    assert sorted(found, key=str) == [0, "there is a run r1", "there is a run r1"]
    assert room.verify("r1") == []


# -- damage ---------------------------------------------------------------------------------------------------------

_EVENTS = "migverify_runbook_events"
_DAMAGE = {
    "changed": ((f"UPDATE {_EVENTS} SET line = REPLACE(line, '\"n\":1', '\"n\":7') WHERE seq = 2",), 3),
    "dropped": ((f"DELETE FROM {_EVENTS} WHERE seq = 2",), 3),
    "swapped": (tuple(f"UPDATE {_EVENTS} SET seq = {to} WHERE seq = {of}" for of, to in ((2, 9), (3, 2), (9, 3))), 3),
    "cut off": ((f"DELETE FROM {_EVENTS} WHERE seq >= 3",), 4),
}


@pytest.mark.parametrize("what", _DAMAGE)
def test_damage_is_found_with_its_line(room: DbRoom, what: str) -> None:
    record = begun(room)
    for number in range(4):
        say(record, number)
    statements, line = _DAMAGE[what]
    with room.database.engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    found = room.verify("r1")
    assert [problem.line for problem in found] == [line]
    with pytest.raises(JournalError):
        room.open("r1")
    if what == "cut off":
        with pytest.raises(JournalError, match="is gone"):
            room.open("r1")


def test_a_journal_that_is_rewritten_behind_a_readers_back_is_an_error(room: DbRoom) -> None:
    record, other = begun(room), room.open("r1")
    say(record, 1)
    say(record, 2)
    other.refresh()
    with room.database.engine.begin() as connection:
        connection.execute(text("DELETE FROM migverify_runbook_events WHERE seq = 2"))
        connection.execute(text("UPDATE migverify_runbook_runs SET events = 2"))
    with pytest.raises(JournalError, match="cut off before line 4"):
        other.refresh()
    with pytest.raises(JournalError, match="cut off before line 4"):
        say(record, 3)


# -- a server that misbehaves ---------------------------------------------------------------------------------------


def test_a_connection_killed_before_its_commit_loses_nothing_and_writes_once(room: DbRoom) -> None:
    record, kills = begun(room), [2]

    def kill(connection: Connection) -> None:
        if kills[0]:
            kills[0] -= 1
            number = connection.connection.dbapi_connection.thread_id()  # type: ignore[union-attr]
            with room.database.engine.connect() as other:
                other.execute(text(f"KILL {number}"))

    event.listen(room.database.engine, "commit", kill)
    written = say(record, 1)
    event.remove(room.database.engine, "commit", kill)
    assert kills == [0]
    assert [one.data["n"] for one in written] == [1]
    assert numbers(room) == [1]
    assert room.verify("r1") == []
    say(record, 2)
    assert numbers(room) == [1, 2]


class Proxy:
    """Stands before a server, and loses one COMMIT, or the answer to it.

    ``lose`` is ``request``, ``answer``, or ``silence``: the request, and the server does not learn that its client is
    gone. ``closed``: nobody is let in after that.
    """

    def __init__(self, address: tuple[str, int]) -> None:
        self.address, self.lose, self.close_after, self.closed, self.lost = address, "", False, False, 0
        self._kept: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.closed:
                client.close()
                continue
            server = socket.create_connection(self.address)
            gone = threading.Event()
            for source, sink, asks in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, asks, gone), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, asks: bool, gone: threading.Event) -> None:
        try:
            while data := source.recv(65536):
                if asks and self.lose and data.endswith(b"\x03COMMIT"):
                    self.closed, what, self.lose = self.close_after, self.lose, ""
                    self.lost += 1
                    gone.set()  # from here on no answer reaches the client
                    if what == "answer":
                        sink.sendall(data)
                    elif what == "silence":
                        source.shutdown(socket.SHUT_RDWR)
                        self._kept.append(sink.dup())
                        return
                    else:
                        break
                elif not asks and gone.is_set():
                    break
                else:
                    sink.sendall(data)
        except OSError:
            return  # the other direction closed it
        finally:
            for one in () if self._kept else (source, sink):
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)  # close() alone says nothing while another thread waits for data
                one.close()

    def end(self) -> None:
        for one in (self._listener, *self._kept):
            one.close()


@pytest.fixture
def proxied(databases: Any) -> Iterator[tuple[DbRoom, DbRoom, Proxy]]:
    """Yield a room behind a proxy, the same room without it, and the proxy."""
    server = databases.pair.source
    proxy = Proxy((server.host, server.port))
    direct = open_db_room(url_of(databases, "source"))
    through = open_db_room(f"mysql+pymysql://{server.user}@127.0.0.1:{proxy.port}/{databases.name}?ssl_disabled=true")
    yield through, direct, proxy
    proxy.end()
    for one in (through, direct):
        one.database.engine.dispose()


@pytest.mark.parametrize("what", ["request", "answer", "silence"])
def test_a_commit_or_its_answer_that_is_lost_leaves_the_event_there_once(
    proxied: tuple[DbRoom, DbRoom, Proxy], what: str
) -> None:
    through, direct, proxy = proxied
    record = begun(through)
    decided = []

    def decide(_status: Any, _now: Any) -> list[Draft]:
        decided.append(1)
        return [Draft(EventKind.NOTE, "alice", data={"n": 1}), Draft(EventKind.NOTE, "alice", data={"n": 2})]

    proxy.lose = what
    written = record.write(decide)
    assert proxy.lost == 1
    # What arrived is found by reading back; what did not is decided anew.
    assert len(decided) == (1 if what == "answer" else 2)
    assert [one.data["n"] for one in written] == [1, 2]
    assert numbers(direct) == [1, 2]
    assert direct.verify("r1") == []
    say(record, 3)
    assert record.status == direct.open("r1").status


@pytest.mark.parametrize("what", ["request", "answer"])
def test_when_nobody_can_be_asked_it_is_said_that_nobody_knows(
    proxied: tuple[DbRoom, DbRoom, Proxy], what: str
) -> None:
    through, direct, proxy = proxied
    record = begun(through)
    before = record.status
    proxy.lose, proxy.close_after = what, True
    with pytest.raises(StoreError, match="nobody knows whether it was written"):
        say(record, 1)
    assert record.status == before
    assert numbers(direct) == ([1] if what == "answer" else [])
    proxy.closed = False
    record.refresh()
    assert record.status == direct.open("r1").status
    say(record, 2)
    assert direct.verify("r1") == []


def test_another_writer_between_a_lost_commit_and_the_look_is_seen(proxied: tuple[DbRoom, DbRoom, Proxy]) -> None:
    through, direct, proxy = proxied
    record, other = begun(through), direct.open("r1")

    def decide(_status: Any, _now: Any) -> list[Draft]:
        proxy.lose = "request" if not proxy.lost else ""
        if proxy.lost:
            return [Draft(EventKind.NOTE, "alice", data={"n": 1})]
        threading.Thread(target=say, args=(other, 9, "bob")).start()  # waits for the row until the first one is gone
        return [Draft(EventKind.NOTE, "alice", data={"n": 1})]

    written = record.write(decide)
    assert [one.data["n"] for one in written] == [1]
    assert numbers(direct) == [1]
    assert numbers(direct, "bob") in ([], [9])
    assert direct.verify("r1") == []


def test_a_password_is_in_no_message(databases: Any) -> None:
    server = databases.pair.source
    address = f"{server.host}:{server.port}/{databases.name}"
    with pytest.raises(StoreError) as told:
        open_room(f"mysql+pymysql://nobody:hunter2-of-the-room@{address}")
    assert "hunter2" not in f"{told.value} {told.value.hint}"
    with pytest.raises(StoreError) as told:
        open_room(f"mysql+pymysql://nobody@{address}", password="hunter2-of-the-room")
    assert "hunter2" not in f"{told.value} {told.value.hint}"
    with pytest.raises(StoreError, match="endpoint under test"):
        open_room(url_of(databases, "source"), forbidden=[(server.host, server.port)])
    room = open_db_room(url_of(databases, "source"))
    assert "@" not in room.name


# -- kill -9 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_on_either_side_of_a_commit_doubles_no_effect(databases: Any, step: int) -> None:
    url = url_of(databases, "source")
    memory = Path(tempfile.mkdtemp())
    with living_in(url):
        counts = run_until_killed(memory / "whole")
        some = crashes.points(counts)
        assert len(some) > 50
        empty(url)
        for number, point in enumerate(some[::step]):
            folder = memory / str(number)
            if crashes.killed(folder, point):
                crashes.check_end(folder, point)
            empty(url)
            shutil.rmtree(folder)
    shutil.rmtree(memory)


def empty(url: str) -> None:
    room = open_db_room(url)
    with room.database.engine.begin() as connection:
        for table in schema.RUNBOOK_TABLES:
            connection.execute(table.delete())
    room.database.engine.dispose()


def test_a_row_without_its_events_is_no_run_that_could_be_opened(room: DbRoom) -> None:
    with room.database.engine.begin() as connection:
        values = {"run": "r1", "position": 1, "events": 1, "head": "0" * 64}
        connection.execute(insert(schema.runbook_runs).values(**values))
    with pytest.raises(JournalError, match="line 1 is gone"):
        room.open("r1")
