"""A second process reads the stores of a fleet: it finds what one process would, and without it nothing is READY."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest

from migverify.errors import StoreError, UsageError
from migverify.fleet import read
from migverify.fleet.definition import FleetService
from migverify.fleet.load import load_fleet
from migverify.fleet.model import ServiceEvidence, ServiceStanding
from migverify.fleet.read import STORED, ServiceView, read_fleet
from migverify.fleet.second_process import beside
from migverify_lab.fleet import MadeFleet


@pytest.fixture(autouse=True)
def processors(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def give(count: int) -> None:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))

    give(2)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # those of the test runner do no harm here
    return give


def _who(pieces: Iterable[int]) -> dict[int, int]:
    return dict.fromkeys(pieces, os.getpid())


def test_work_is_done_in_another_process() -> None:
    with beside(1, _who) as answer:
        _wait_for_child()
        (other,) = answer()
    assert other != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def _wait_for_child() -> None:
    """Give the second process the time to take what is there: it stops at the end of its answer, which nobody reads."""
    time.sleep(0.5)


@pytest.mark.parametrize("count", [0, 1, 7, 2_000, 4_321])
def test_each_piece_is_done_once_by_one_of_the_two(count: int) -> None:
    def work(pieces: Iterable[int]) -> dict[int, tuple[int, int]]:
        done = {}
        for piece in pieces:
            assert piece not in done
            done[piece] = piece * piece, os.getpid()
            time.sleep(0 if count > 10 else 0.05)
        return done

    with beside(count, work) as answer:
        found = answer()
    assert [square for square, _ in found] == [number * number for number in range(count)]
    if count == 7:
        assert len({process for _, process in found}) == 2, "the first one helped"


def test_work_is_done_here_where_there_is_one_processor_or_another_thread(
    processors: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threading, "active_count", lambda: len(threading.enumerate()))
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        with beside(2, _who) as answer:
            assert answer() == [os.getpid()] * 2
    finally:
        ended.set()
        thread.join()
    processors(1)
    with beside(2, _who) as answer:
        assert answer() == [os.getpid()] * 2


def test_an_error_of_the_work_is_raised() -> None:
    def fail(pieces: Iterable[int]) -> dict[int, int]:
        for _ in pieces:
            raise UsageError("no such thing", hint="look")
        return {}

    with beside(1, fail) as answer, pytest.raises(UsageError, match="no such thing"):
        answer()


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def _interrupted() -> NoReturn:
    raise KeyboardInterrupt


@pytest.mark.parametrize("taken", [0, 1, 3])
@pytest.mark.parametrize("end", [_die, _interrupted, lambda: lambda: None], ids=["killed", "interrupted", "no pickle"])
def test_no_answer_is_an_error(end: Callable[[], object], taken: int) -> None:
    """Also where this process did all that the other one had not taken, and where that one had taken nothing."""
    first = os.getpid()

    def work(pieces: Iterable[int]) -> dict[int, Any]:
        done: dict[int, Any] = {}
        for piece in pieces:
            done[piece] = end() if os.getpid() != first and len(done) >= taken else piece
        if os.getpid() != first:
            done[-1] = end()
        return done

    with beside(3, work) as answer:
        _wait_for_child()
        with pytest.raises(StoreError, match="ended without an answer"):
            answer()


def test_the_second_process_ends_with_the_first_ones_work() -> None:
    reading, writing = os.pipe()

    def hang(_: Iterable[int]) -> dict[int, int]:
        os.close(reading)
        threading.Event().wait()  # `writing` is open for as long as this process is there
        return {}

    def interrupted() -> None:
        with beside(1, hang):
            os.close(writing)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.read(reading, 1) == b""
    os.close(reading)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def _standings(views: list[ServiceView]) -> dict[str, ServiceStanding]:
    return {view.service.name: view.state.standing for view in views}


def test_services_whose_stores_nobody_read_are_not_known(ready: MadeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = load_fleet(ready.write())
    ready.close()  # with the thread that sends heartbeats
    assert set(_standings(read_fleet(fleet)).values()) == {ServiceStanding.READY}
    first = os.getpid()
    whole = read._FleetReader._stored

    def dies(self: read._FleetReader, service: FleetService, *, is_alone: bool) -> ServiceEvidence:
        return _die() if os.getpid() != first else whole(self, service, is_alone=is_alone)

    monkeypatch.setattr(read._FleetReader, "_stored", dies)
    views = read_fleet(fleet)
    assert set(_standings(views).values()) == {ServiceStanding.NOT_KNOWN}
    for view in views:
        assert view.evidence.unread.keys() == set(STORED)
        assert view.journals is not None
        assert "ended without an answer" in view.state.sentence


def _gone() -> None:
    Path("orders/runs.db").unlink()


def _no_database() -> None:
    Path("orders/runs.db").write_bytes(b"not a database" * 100)


def _newer() -> None:
    with closing(sqlite3.connect("orders/runs.db")) as db, db:
        db.execute("UPDATE migverify_store SET value = '99' WHERE name = 'schema_version'")


def _damaged_plan() -> None:
    with closing(sqlite3.connect("orders/runs.db")) as db, db:
        db.execute("UPDATE migverify_plan_parts SET content = x'00'")


def _no_events() -> None:
    with closing(sqlite3.connect("drills/runs.db")) as db, db:
        db.execute("DELETE FROM migverify_runbook_events WHERE seq = 0 AND run LIKE 'orders%'")


def _changed_event() -> None:
    with closing(sqlite3.connect("drills/runs.db")) as db, db:
        db.execute(
            "UPDATE migverify_runbook_events SET line = replace(line, 'a', 'b') WHERE seq = 3 AND run LIKE 'orders%'"
        )


def _no_configuration() -> None:
    Path("orders/migverify.yaml").write_text("source: {url: 'mysql://app:secret@x'}\n", encoding="utf-8")


def _no_runbook() -> None:
    Path("cutover.yaml").write_text("id: [", encoding="utf-8")


@pytest.mark.parametrize("spoil", [
    _gone, _no_database, _newer, _damaged_plan, _no_events, _changed_event, _no_configuration, _no_runbook,
])  # fmt: skip
def test_both_ways_find_the_same(
    ready: MadeFleet, processors: Callable[[int], None], monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[], None],
) -> None:  # fmt: skip
    begun = list[int]()
    fork = os.fork

    def counted() -> int:
        begun.append(1)
        return fork()

    monkeypatch.setattr(os, "fork", counted)
    ready.verify("users", ["users.t1"])
    path = ready.write()
    ready.close()
    spoil()
    fleet = load_fleet(path)
    now = path.stat().st_mtime
    both = read_fleet(fleet, now=now)
    assert begun == [1]
    processors(1)
    alone = read_fleet(fleet, now=now)
    assert begun == [1]
    assert [(view.evidence, view.state, view.journals) for view in both] == [
        (view.evidence, view.state, view.journals) for view in alone
    ]
    standings = _standings(both)
    assert standings["orders"] is not ServiceStanding.READY
    assert standings["users"] is ServiceStanding.NOT_READY
