"""Runs in a team's database: the same journal as in a folder, and no event twice or lost when the server misbehaves."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert, text

import tests.unit.runbook.test_runbook_crash as crashes
import tests.unit.runbook.test_runbook_lease as leases
import tests.unit.runbook.test_runbook_run as runs
import tests.unit.runbook_effects as effects
from migverify.db.session import Session, open_session
from migverify.errors import FencedError, JournalError, StoreError, UsageError
from migverify.model import Endpoint, Tls
from migverify.runbook.actions import statements
from migverify.runbook.actions.action import ActionResult, Context, Outcome
from migverify.runbook.actions.builtin import built_in
from migverify.runbook.actions.statements import end_statements, tracked
from migverify.runbook.events import Event, EventKind, RollbackState, RunState, StepState
from migverify.runbook.fold.table import fold
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Check, Effect, Rollback, Step
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.journal_file import read_events, verify_run
from migverify.runbook.record.lease import take
from migverify.runbook.record.run_record import RunRecord
from migverify.runbook.record.run_store import RunStore, open_run_store
from migverify.runbook.run import machine
from migverify.runbook.run.executor import Executor
from migverify.store import schema
from tests.unit.runbook_crash import run_until_killed
from tests.unit.runbook_places import living_in
from tests.unit.runbook_runs import ALICE, DANA, replace, runbook, step
from tests.waiting import wait_for

pytestmark = pytest.mark.db


def url_of(databases: Any, side: str) -> str:
    server = getattr(databases.pair, side)
    return f"mysql+pymysql://{server.user}@{server.host}:{server.port}/{databases.name}"


@pytest.fixture(params=["source", "target"])
def url(request: pytest.FixtureRequest, databases: Any) -> str:
    return url_of(databases, request.param)


@pytest.fixture
def room(url: str) -> Iterator[RunStore]:
    made = open_run_store(url)
    assert isinstance(made, RunStore)
    yield made
    made.database.engine.dispose()


def begun(room: RunStore, run: str = "r1") -> RunRecord:
    return room.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run=run)


def say(record: RunRecord, number: int, name: str = "alice") -> list[Event]:
    return record.write(lambda _s, _n: [Draft(EventKind.NOTE, name, data={"n": number})])


def numbers(room: RunStore, name: str = "alice", run: str = "r1") -> list[int]:
    return [one.data["n"] for one in room.events(run) if one.actor == name and "n" in one.data]


# -- the same as in a folder ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "case",
    [
        leases.test_a_second_process_waits_until_the_first_is_dead,
        leases.test_of_two_who_take_a_free_run_one_gets_it,
        leases.test_an_executor_that_was_replaced_can_neither_write_nor_act,
        leases.test_a_run_is_driven_to_its_end_while_people_act_elsewhere,
        runs.test_a_rollback_undoes_from_the_last_to_the_first_and_verifies,
        runs.test_a_takeover_needs_a_reason_and_two_and_leaves_the_effect_in_doubt,
        runs.test_a_spent_write_stop_cancels_the_run_by_itself,
    ],
    ids=lambda case: case.__name__,
)
def test_what_holds_in_a_folder_holds_here(databases: Any, tmp_path: Path, case: Callable[[Path], None]) -> None:
    url = url_of(databases, "source")
    with living_in(url):
        case(tmp_path)
        assert open_run_store(url).verify("last") == []


def test_a_run_on_tidb_is_taken_over_and_rolled_back(databases: Any, tmp_path: Path) -> None:
    with living_in(url_of(databases, "target")):
        runs.test_a_takeover_needs_a_reason_and_two_and_leaves_the_effect_in_doubt(tmp_path)
        assert open_run_store(url_of(databases, "target")).verify("last") == []


def test_runs_are_listed_opened_and_exported(room: RunStore, tmp_path: Path) -> None:
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


def test_an_older_epoch_may_not_write(room: RunStore) -> None:
    record = begun(room)
    old = take(record, "alice")
    old.end(record)
    take(room.open("r1"), "bob")
    with pytest.raises(FencedError, match=f"epoch {old.epoch} is over"):
        record.write(lambda s, _n: [Draft(EventKind.NOTE, s.executor)], epoch=old.epoch)


def test_a_reader_of_a_long_journal_reads_all_of_it(room: RunStore) -> None:
    record = begun(room)
    record.write(lambda _s, _n: [Draft(EventKind.NOTE, "alice", data={"n": n, "t": "x" * 2000}) for n in range(1200)])
    assert numbers(room) == list(range(1200))
    assert room.open("r1").status.seq == 1200


def _write_many(url: str, name: str, count: int) -> None:
    record = open_run_store(url).open("r1")
    for number in range(count):
        say(record, number, name)


def test_several_processes_write_to_one_journal(url: str, room: RunStore) -> None:
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
        results.put(begun(open_run_store(url)).status.seq)
    except UsageError as error:
        results.put(error.message)


def test_of_two_who_start_one_run_one_does(url: str, room: RunStore) -> None:
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
def test_damage_is_found_with_its_line(room: RunStore, what: str) -> None:
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


def test_a_journal_that_is_rewritten_behind_a_readers_back_is_an_error(room: RunStore) -> None:
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


def test_a_connection_killed_before_its_commit_loses_nothing_and_writes_once(room: RunStore) -> None:
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
        self._clients: list[socket.socket] = []
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
            self._clients.append(client)
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

    def cut(self) -> None:
        """Cut the client off; the server does not learn of it."""
        for one in self._clients:
            one.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        for one in (self._listener, *self._kept):
            one.close()


@pytest.fixture
def proxied(databases: Any) -> Iterator[tuple[RunStore, RunStore, Proxy]]:
    """Yield a room behind a proxy, the same room without it, and the proxy."""
    server = databases.pair.source
    proxy = Proxy((server.host, server.port))
    direct = open_run_store(url_of(databases, "source"))
    through = open_run_store(f"mysql+pymysql://{server.user}@127.0.0.1:{proxy.port}/{databases.name}?ssl_disabled=true")
    yield through, direct, proxy
    proxy.end()
    for one in (through, direct):
        one.database.engine.dispose()


@pytest.mark.parametrize("what", ["request", "answer", "silence"])
def test_a_commit_or_its_answer_that_is_lost_leaves_the_event_there_once(
    proxied: tuple[RunStore, RunStore, Proxy], what: str
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
    proxied: tuple[RunStore, RunStore, Proxy], what: str
) -> None:
    through, direct, proxy = proxied
    record = begun(through)
    before = record.status
    proxy.lose, proxy.close_after = what, True
    with pytest.raises(StoreError, match="it is not known whether it was written"):
        say(record, 1)
    assert record.status == before
    assert numbers(direct) == ([1] if what == "answer" else [])
    proxy.closed = False
    record.refresh()
    assert record.status == direct.open("r1").status
    say(record, 2)
    assert direct.verify("r1") == []


def test_another_writer_between_a_lost_commit_and_the_look_is_seen(proxied: tuple[RunStore, RunStore, Proxy]) -> None:
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
    with pytest.raises(UsageError, match="MIGVERIFY_RUNS_PASSWORD") as refused:
        open_run_store(f"mysql+pymysql://nobody:hunter2-of-the-room@{address}")
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"
    with pytest.raises(StoreError) as told:
        open_run_store(f"mysql+pymysql://nobody@{address}", password="hunter2-of-the-room")
    assert "hunter2" not in f"{told.value} {told.value.hint}"
    with pytest.raises(StoreError, match="endpoint under test"):
        open_run_store(url_of(databases, "source"), forbidden=[(server.host, server.port)])
    room = open_run_store(url_of(databases, "source"))
    assert "@" not in room.name


# -- kill -9 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_on_either_side_of_a_commit_doubles_no_effect(databases: Any, step: int) -> None:
    url = url_of(databases, "source")
    memory = Path(tempfile.mkdtemp())
    with living_in(url):
        counts = run_until_killed(memory / "whole")
        some = crashes.points(counts)
        assert len(some) > 25
        empty(url)
        for number, point in enumerate(some[::step]):
            folder = memory / str(number)
            if crashes.killed(folder, point):
                crashes.check_end(folder, point)
            empty(url)
            shutil.rmtree(folder)
    shutil.rmtree(memory)


def empty(url: str) -> None:
    room = open_run_store(url)
    with room.database.engine.begin() as connection:
        for table in (schema.runbook_runs, schema.runbook_events, schema.runbook_leases):
            connection.execute(table.delete())
    room.database.engine.dispose()


# -- statements that outlive their executor -------------------------------------------------------------------------


def sql_step(name: str, sql: str, undo: str) -> Step:
    """Return a step whose effect is one statement, which makes v of row 1 another; its rollback makes it 0."""

    def value(what: str) -> Check:
        return Check(
            action="sql.value",
            arguments={"endpoint": "target", "sql": f"SELECT v FROM {name}.t WHERE id = 1"},
            equals=what,
        )

    return step(
        "a",
        effect=Effect(action="sql", arguments={"endpoint": "target", "sql": sql}, timeout=40.0),
        expect=(value("1"),),
        reconcile=value("1"),
        rollback=Rollback(
            effect=Effect(action="sql", arguments={"endpoint": "target", "sql": undo}),
            instruction="Set it to 0.",
            verify=(value("0"),),
        ),
    )


@pytest.fixture(params=["source", "target"])
def world(request: pytest.FixtureRequest, databases: Any, tmp_path: Path) -> Iterator[tuple[Any, str, Path]]:
    """Yield a session on a server, the database with a table on it, and a configuration that has it as target."""
    server = getattr(databases.pair, request.param)
    other = databases.pair.source
    config = tmp_path / "migverify.yaml"
    config.write_text(
        f"source: {{host: {other.host}, port: {other.port}, user: {other.user}}}\n"
        f"target: {{host: {server.host}, port: {server.port}, user: {server.user}}}\n"
        f"tables: {{include: ['{databases.name}.*']}}\n"
    )
    with open_session(Endpoint("target", server.host, server.port, server.user), None) as session:
        session.execute(f"CREATE TABLE {databases.name}.t (id INT PRIMARY KEY, v INT)")
        session.execute(f"INSERT INTO {databases.name}.t VALUES (1, 0)")
        yield session, databases.name, config


@contextlib.contextmanager
def locked_row(session: Session, name: str) -> Iterator[None]:
    """Hold the lock of row 1: a statement that changes it waits."""
    session.execute("BEGIN")
    session.execute(f"UPDATE {name}.t SET v = 0 WHERE id = 1")
    try:
        yield
    finally:
        session.execute("ROLLBACK")


def sends(session: Session, name: str, words: str) -> bool:
    """Tell whether a statement on this test's database runs: others' tests send the same to the same servers."""
    own = f"information_schema.PROCESSLIST WHERE ID <> CONNECTION_ID() AND INFO LIKE '%{name}.t %{words}%'"
    return session.query(f"SELECT COUNT(*) FROM {own}")[0][0] != "0"


def ends_as_it_says(record: RunRecord, executor: Executor, session: Session, name: str) -> None:
    """Let a run that was taken over come to rest, and roll it back or end it: the row is what it was."""

    def quiet() -> bool:
        status = record.status
        held = status.held_since is not None or effects.state_of(record) in QUIET
        return status.over or (held and status.order is None)

    effects.settled(record, executor, "rest", quiet)
    assert not sends(session, name, "SLEEP(5)")
    if not record.status.over:
        if record.status.steps["a"].rollback in (RollbackState.ARMED, RollbackState.FAILED):
            for actor in (ALICE, DANA)[: 1 if record.status.steps["a"].rollback is RollbackState.ARMED else 2]:
                record.submit(lambda s, n, a=actor: machine.rollback(s, a, n, "the end"))  # type: ignore[misc]
        else:
            record.submit(lambda s, n: machine.abort(s, ALICE, n, "the end"))
        effects.settled(record, executor, "the end", lambda: record.status.over)
    assert record.status.state in (RunState.ROLLED_BACK, RunState.ABORTED_CLEAN)
    assert not sends(session, name, "SLEEP(5)")
    assert session.query(f"SELECT v FROM {name}.t") == [("0",)]


@pytest.mark.parametrize("killed", ["the executor", "the executor and its helper"])
@pytest.mark.parametrize("point", ["intent", "helper", "connection", "commit"])
@pytest.mark.attack(
    "runbook", "A process that carries a statement out is killed at its intent, its start, its connection, its commit",
    "the statement happens once or not at all, and the run says which; after its end the row is what it was",
)  # fmt: skip
def test_a_process_killed_around_a_statement_ends_as_it_says(
    world: tuple[Session, str, Path], tmp_path: Path, point: str, killed: str
) -> None:
    session, name, config = world
    files = effects.files_of(tmp_path)
    value = f"SELECT v FROM {name}.t"
    reached: dict[str, Callable[[], Any]] = {
        "intent": lambda: effects.has_intent(tmp_path),
        "helper": lambda: effects.processes(files),
        "connection": lambda: files.record.exists() and "statement" in files.record.read_text(),
        "commit": lambda: session.query(value) == [("1",)],
    }
    # Once only: a statement that is carried out twice would leave 2.
    one = sql_step(name, f"UPDATE {name}.t SET v = v + 1 WHERE id = 1", f"UPDATE {name}.t SET v = 0 WHERE id = 1")
    helper = killed != "the executor"
    # The record of the connection is gone when the statement is done: it waits for the row until the kill.
    with locked_row(session, name) if point == "connection" else contextlib.nullcontext():
        effects.killed_while(tmp_path, one, reached[point], config=config, all_of_it=helper)
    record, executor = effects.taken_over(tmp_path, config)
    effects.settled(record, executor, "rest", lambda: effects.state_of(record) in QUIET)
    assert session.query(value) == [("1" if effects.state_of(record) is StepState.AWAITING_REVIEW else "0",)]
    ends_as_it_says(record, executor, session, name)


@pytest.mark.parametrize("killed", ["the executor", "the executor and its helper"])
@pytest.mark.parametrize("part", ["effect", "undoing"])
@pytest.mark.attack(
    "runbook", "Executor and helper are killed while the server runs the statement of an effect, or of its rollback",
    "nothing is asked before the server has ended it; what the run says at its end is so, and stays so",
)  # fmt: skip
def test_a_statement_that_outlives_its_executor_is_over_before_anything_is_concluded(
    world: tuple[Session, str, Path], tmp_path: Path, killed: str, part: str
) -> None:
    session, name, config = world
    slow = f"UPDATE {name}.t SET v = %d WHERE id = 1 AND SLEEP(5) = 0"
    quick = f"UPDATE {name}.t SET v = %d WHERE id = 1"
    helper = killed != "the executor"
    effect, undo = (slow % 1, quick % 0) if part == "effect" else (quick % 1, slow % 0)
    one = sql_step(name, effect, undo)
    if part == "effect":
        effects.killed_while(tmp_path, one, lambda: sends(session, name, "SLEEP(5)"), config=config, all_of_it=helper)
    else:
        undoing_killed(tmp_path, one, lambda: sends(session, name, "SLEEP(5)"), config, helper=helper)
    assert helper or sends(session, name, "SLEEP(5)")
    record, executor = effects.taken_over(tmp_path, config)
    ends_as_it_says(record, executor, session, name)


QUIET = frozenset({StepState.AWAITING_REVIEW, StepState.FAILED})


def undoing_killed(folder: Path, one: Step, holds: Callable[[], bool], config: Path, *, helper: bool) -> None:
    """Kill a run while the rollback of its step is under way."""
    child = os.fork()
    if child == 0:
        try:
            record, executor = effects.begin(folder, runbook(one), config)
            effects.settled(record, executor, "review", lambda: effects.state_of(record) is StepState.AWAITING_REVIEW)
            effects.rolled_back(record, executor)
        finally:
            os._exit(1)
    wait_for(holds, "the statement of the undoing")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if helper:
        for pid in effects.processes(effects.files_of(folder, 1_000_001)):
            os.kill(pid, signal.SIGKILL)


def test_a_statement_is_ended_at_its_time_limit_and_known_to_be(world: tuple[Session, str, Path]) -> None:
    session, name, config = world
    sql = f"UPDATE {name}.t SET v = 7 WHERE id = 1 AND SLEEP(60) = 0"
    context = Context("r1", "a", 1, 1, 1.0, threading.Event(), config=config)
    result = built_in().run("sql", {"endpoint": "target", "sql": sql}, context)
    assert result.outcome is not Outcome.UNKNOWN
    assert not sends(session, name, "SLEEP(60)")
    assert session.query(f"SELECT v FROM {name}.t") == [("0",)]


def test_a_statement_whose_connection_is_cut_is_in_doubt_and_ended(world: tuple[Session, str, Path]) -> None:
    session, name, config = world
    proxy = Proxy((session.endpoint.host, session.endpoint.port))
    through = replace(session.endpoint, port=proxy.port, tls=Tls(mode="disabled"))
    done: list[ActionResult] = []

    def run() -> None:
        with open_session(through, None) as cut:
            sql = f"UPDATE {name}.t SET v = 7 WHERE id = 1 AND SLEEP(20) = 0"
            context = Context("r1", "a", 1, 1, 60.0, threading.Event(), config=config)
            send = lambda mark: ActionResult(Outcome.OK, "", cut.execute(f"{mark}{sql}"))  # noqa: E731
            done.append(tracked((session.endpoint, None), cut, context, send))

    thread = threading.Thread(target=run)
    thread.start()
    wait_for(lambda: sends(session, name, "SLEEP(20)"), "the statement")
    proxy.cut()
    thread.join(60)
    assert done[0].outcome is Outcome.UNKNOWN
    assert "does not run it any more" in done[0].text
    assert not sends(session, name, "SLEEP(20)")
    assert session.query(f"SELECT v FROM {name}.t") == [("0",)]
    proxy.end()


def test_a_reused_connection_number_is_not_taken_for_the_statement(world: tuple[Session, str, Path]) -> None:
    session, _, _ = world
    account = (session.endpoint, None)
    with open_session(*account) as innocent:
        own = statements._statement(innocent, "migverify x")
        other = replace(own, client="10.9.9.9:4711")
        assert end_statements(account, [other]) == ""
        assert innocent.alive()
        assert end_statements(account, [own]) == ""
        assert not innocent.alive()


def test_a_row_without_its_events_is_no_run_that_could_be_opened(room: RunStore) -> None:
    with room.database.engine.begin() as connection:
        values = {"run": "r1", "position": 1, "events": 1, "head": "0" * 64}
        connection.execute(insert(schema.runbook_runs).values(**values))
    with pytest.raises(JournalError, match="line 1 is gone"):
        room.open("r1")
