"""Verification while rows change: no write on its way is called a difference, and planted ones are found."""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from migverify.db.session import open_session
from migverify.db.snapshot import check_snapshot
from migverify.errors import EndpointError
from migverify.model import Endpoint, Verdict
from migverify_lab.servers import LabServers
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.verifying import Ending, fill, verify, write_config

pytestmark = pytest.mark.db

ROWS = 20_000
PLANTED = {5, 9_999, 19_000}  # the writer leaves them alone
LIVE = {"consistency": "live", "recheck": {"delay": 0.8, "rounds": 3}}


class Traffic:
    """Writes on the source; a toy replicator applies them on the target in order, ``lag`` seconds later."""

    def __init__(self, databases: Databases, lag: tuple[float, float], busy: range) -> None:
        self._databases, self._lag, self._busy = databases, lag, busy
        self._stop = threading.Event()
        self._changes: queue.Queue[tuple[float, str] | None] = queue.Queue()
        self.written = 0
        self.slowest = 0.0
        self._threads = [threading.Thread(target=self._write), threading.Thread(target=self._replicate)]

    def _write(self) -> None:
        rng = random.Random(4)
        with connect(self._databases.pair.source, self._databases.name) as connection, connection.cursor() as cursor:
            while not self._stop.is_set():
                number = rng.choice(self._busy)
                if number in PLANTED:
                    continue
                self.written += 1
                kind = rng.random()
                if kind < 0.7:
                    change = f"UPDATE t SET v='write {self.written}' WHERE id={number}"
                elif kind < 0.85:
                    change = f"REPLACE INTO t VALUES ({number}, 'again {self.written}', 1)"
                else:
                    change = f"DELETE FROM t WHERE id={number}"
                cursor.execute(change)
                self._changes.put((time.monotonic() + rng.uniform(*self._lag), change))
                time.sleep(0.005)
        self._changes.put(None)

    def _replicate(self) -> None:
        with connect(self._databases.pair.target, self._databases.name) as connection, connection.cursor() as cursor:
            while (entry := self._changes.get()) is not None:
                due, change = entry
                time.sleep(max(0.0, due - time.monotonic()))
                cursor.execute(change)
                self.slowest = max(self.slowest, time.monotonic() - due)

    @contextmanager
    def running(self) -> Iterator[Traffic]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


@pytest.fixture
def table(databases: Databases) -> Databases:
    fill(databases.pair, databases.name, ROWS)
    return databases


def plant(databases: Databases) -> None:
    databases.target(f"UPDATE t SET v='planted' WHERE id IN ({','.join(map(str, PLANTED))})")


def diverged(end: Ending) -> set[int]:
    return {int(key[0] or "") for _, key in end.diffs}


@pytest.mark.parametrize("planted", [True, False])
def test_writes_on_their_way_are_no_differences_and_planted_ones_are_found(
    table: Databases, tmp_path: Path, planted: bool
) -> None:
    if planted:
        plant(table)
    # `delay * rounds` bounds the lag that a run bears: a busy machine adds seconds to those of the toy replicator.
    patient = {**LIVE, "recheck": {"delay": 2.0, "rounds": 4}}
    config = write_config(tmp_path, table.pair, table.name, **patient)
    with Traffic(table, (0.5, 1.7), range(1, ROWS)).running() as traffic:
        time.sleep(2.0)  # the target is behind from the first read on
        end = verify(config)
    assert traffic.written > 100
    assert diverged(end) == (PLANTED if planted else set()), f"the replicator was {traffic.slowest:.1f} s late"
    details = end.results[f"{table.name}.t"].details
    assert details["converged"] > 0
    if planted:
        assert end.verdict is Verdict.MISMATCH
    else:
        # A row written at every read would be hot; the counts, taken at other moments, prove nothing and are not asked.
        assert end.verdict is (Verdict.INCONCLUSIVE if details["hot"] else Verdict.MATCH), end.reasons


def test_rows_that_change_all_the_time_are_hot(table: Databases, tmp_path: Path) -> None:
    config = write_config(tmp_path, table.pair, table.name, **LIVE)
    stop = threading.Event()

    def change() -> None:
        number = 0
        with connect(table.pair.source, table.name) as one, connect(table.pair.target, table.name) as other:
            while not stop.is_set():
                number += 1
                # Never equal, never at rest: neither converged nor diverged can be the answer.
                for connection, side in ((one, "source"), (other, "target")):
                    with connection.cursor() as cursor:
                        cursor.execute(f"UPDATE t SET v='{side} {number}' WHERE id<=4")

    writer = threading.Thread(target=change)
    writer.start()
    try:
        time.sleep(0.5)
        end = verify(config)
    finally:
        stop.set()
        writer.join()
    assert end.verdict is Verdict.INCONCLUSIVE
    assert not end.diffs
    assert re.search(r"rows kept changing while they were read \(hot\)", end.reasons)


@pytest.mark.parametrize("consistency", ["auto", "quiescent"])
def test_writes_that_nobody_announced_are_inconclusive_and_said(
    table: Databases, tmp_path: Path, consistency: str
) -> None:
    config = write_config(
        tmp_path, table.pair, table.name, consistency=consistency, recheck={"delay": 2.0, "rounds": 3}
    )
    stop = threading.Event()

    def insert() -> None:
        number = 0
        with connect(table.pair.source, table.name) as one, connect(table.pair.target, table.name) as other:
            while not stop.is_set():
                number -= 1  # into the first chunk: whatever is written after it was read is not in the chunks' rows
                for connection in (one, other):
                    with connection.cursor() as cursor:
                        cursor.execute(f"INSERT INTO t VALUES ({number}, 'new', 1)")

    writer = threading.Thread(target=insert)
    writer.start()
    try:
        end = verify(config)
    finally:
        stop.set()
        writer.join()
    assert not end.diffs
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "rows were written meanwhile" in end.reasons or "hot" in end.reasons


# --- a snapshot of the target ----------------------------------------------------------------------------------------


def endpoint(pair: LabServers, snapshot: str | None = None) -> Endpoint:
    return Endpoint("target", pair.target.host, pair.target.port, "root", snapshot=snapshot)


@pytest.fixture
def snapshot_pair(pair: LabServers) -> LabServers:
    if pair.target.flavor != "tidb":
        pytest.skip("only TiDB reads as of a time")
    return pair


@pytest.mark.parametrize("form", ["tso", "datetime"])
def test_a_change_after_the_snapshot_is_not_seen(
    snapshot_pair: LabServers, table: Databases, tmp_path: Path, form: str
) -> None:
    time.sleep(1.1)
    if form == "tso":
        moment = table.target("BEGIN", "SELECT TIDB_CURRENT_TSO()")[0][0]
        table.target("COMMIT")
    else:
        moment = table.target("SELECT DATE_FORMAT(UTC_TIMESTAMP(3), '%Y-%m-%d %H:%i:%s.%f')")[0][0]
        time.sleep(0.05)
    plant(table)
    config = write_config(tmp_path, snapshot_pair, table.name, target={"snapshot": str(moment)})
    assert verify(config).verdict is Verdict.MATCH
    assert diverged(verify(write_config(tmp_path, snapshot_pair, table.name))) == PLANTED


def test_a_snapshot_that_is_not_in_force_is_refused(snapshot_pair: LabServers, databases: Databases) -> None:
    databases.target("CREATE TABLE empty (id INT PRIMARY KEY)")
    moment = str(databases.target("BEGIN", "SELECT TIDB_CURRENT_TSO()")[0][0])
    databases.target("COMMIT")
    probe = f"SELECT 1 FROM `{databases.name}`.`empty` LIMIT 1"
    with open_session(endpoint(snapshot_pair, moment), None) as session:
        check_snapshot(session, probe)
        # What a server without a GC safe point does: the variable stays as asked, and reads are current.
        session.execute("SET SESSION tidb_snapshot=''")
        with pytest.raises(EndpointError, match="not in force"):
            check_snapshot(session, probe)
    with open_session(endpoint(snapshot_pair, moment), None) as session:
        later = replace(session.endpoint, snapshot=str(int(moment) + (1000 << 18)))
        session.endpoint = later
        with pytest.raises(EndpointError, match="not in force"):
            check_snapshot(session, probe)


def test_a_server_that_refuses_the_snapshot_is_an_error_of_the_endpoint(snapshot_pair: LabServers) -> None:
    with (
        pytest.raises(EndpointError, match="GC safe point") as caught,
        open_session(endpoint(snapshot_pair, "2001-01-01 00:00:00"), None),
    ):
        pass
    assert "snapshot" in caught.value.hint


def test_a_snapshot_of_a_mysql_server_is_refused(pair: LabServers) -> None:
    source = Endpoint("source", pair.source.host, pair.source.port, "root", snapshot="2026-01-01 00:00:00")
    with pytest.raises(EndpointError, match="the server is mysql"), open_session(source, None):
        pass
