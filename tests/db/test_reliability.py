"""Killed, interrupted, cut off, restarted, locked out: the same verdict in the end, or INCONCLUSIVE with a reason."""

from __future__ import annotations

import itertools
import os
import random
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

from migverify.config import load_config
from migverify.db.session import Session
from migverify.errors import EndpointError
from migverify.model import KeyRange, Verdict
from migverify.store.open import open_store
from migverify.tables.prepare import PreparedTables, prepare
from migverify.tables.verify import VerifyProgress
from migverify_lab import servers
from migverify_lab.servers import LabServer, LabServers
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.verifying import begin, execute, fill, run_command, verify, write_config
from tests.waiting import wait_for

pytestmark = pytest.mark.db

PLANTED = {3, 77_777, 150_001, 199_990}
RANGE = re.compile(r"FROM `[^`]+`\.`t` WHERE (?:`id` > (\d+))?(?: AND )?(?:`id` <= (\d+))?")


@pytest.fixture(scope="module", name="large")
def large_table(own: tuple[LabServers, Path]) -> str:
    """A table of 200,000 rows with four planted differences."""
    pair, _ = own
    for server in (pair.source, pair.target):
        execute(server, "CREATE DATABASE large CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")
    fill(pair, "large", 200_000)
    execute(pair.target, f"UPDATE t SET v='planted' WHERE id IN ({','.join(map(str, PLANTED))})", database="large")
    return "large"


def keys(found: set[tuple[str, tuple[str | None, ...]]]) -> set[int]:
    return {int(key[0] or "") for _, key in found}


def pid_of(folder: Path, side: str) -> int | None:
    return next(status.pid for status in servers.status(folder) if status.side == side)


def stop(folder: Path, side: str, how: signal.Signals = signal.SIGKILL) -> int:
    """Send a server a signal; returns its process id."""
    pid = pid_of(folder, side)
    assert pid is not None
    os.kill(pid, how)
    return pid


def gone(folder: Path, side: str, pid: int) -> bool:
    """Whether nothing is left of a killed server, not even a zombie: MySQL refuses to start beside its lock's owner."""
    return pid_of(folder, side) is None and not Path(f"/proc/{pid}").exists()


# --- kill -9 and Ctrl-C ----------------------------------------------------------------------------------------------


@contextmanager
def statement_log(server: LabServer) -> Iterator[Any]:
    """Let MySQL log every statement; yields a function that returns the ranges read since the last call."""
    execute(server, "SET GLOBAL log_output='TABLE'", "TRUNCATE mysql.general_log", "SET GLOBAL general_log=ON")

    def ranges_read() -> list[tuple[float, float]]:
        rows = execute(server, "SELECT argument FROM mysql.general_log WHERE argument LIKE 'SELECT COUNT(*),%WHERE%'")
        execute(server, "TRUNCATE mysql.general_log")
        found = []
        for (text,) in rows:
            match = RANGE.search(text.decode())
            assert match, text
            found.append((float(match[1] or "-inf"), float(match[2] or "inf")))
        return found

    try:
        yield ranges_read
    finally:
        execute(server, "SET GLOBAL general_log=OFF")


def bounds(key_range: KeyRange) -> tuple[float, float]:
    low = float("-inf") if key_range.lower is None else float(key_range.lower[0] or "")
    return low, float("inf") if key_range.upper is None else float(key_range.upper[0] or "")


def finished_chunks(folder: Path, run_id: str, database: str) -> list[tuple[float, float]]:
    with closing(open_store(f"sqlite:///{folder / 'runs.db'}")) as store:
        return [bounds(chunk.range) for chunk in store.chunks(run_id, f"{database}.t")]


def read_twice(
    finished: list[tuple[float, float]], read: list[tuple[float, float]]
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return [(f, r) for r in read for f in finished if max(f[0], r[0]) < min(f[1], r[1])]


def check_ending(code: int, answer: dict[str, Any], folder: Path, database: str) -> None:
    assert (code, answer["verdict"]) == (1, "MISMATCH")
    (table,) = answer["tables"]
    assert table["row_diffs"] == {"missing_on_target": 0, "missing_on_source": 0, "value_differs": len(PLANTED)}
    assert (table["rows_source"], table["rows_target"]) == (200_000, 200_000)
    with closing(open_store(f"sqlite:///{folder / 'runs.db'}")) as store:
        run_id = answer["run_id"]
        assert {int(d.key[0] or "") for _, d in store.row_diffs(run_id, f"{database}.t")} == PLANTED
        chunks = sorted(bounds(chunk.range) for chunk in store.chunks(run_id, f"{database}.t"))
        assert (chunks[0][0], chunks[-1][1]) == (float("-inf"), float("inf"))
        assert all(one[1] == other[0] for one, other in itertools.pairwise(chunks))


def kill_and_resume(own: tuple[LabServers, Path], large: str, folder: Path, kills: int, seed: int) -> None:
    pair, _ = own
    rng = random.Random(seed)
    config = write_config(folder, pair, large)
    killed = 0
    with statement_log(pair.source) as ranges_read:
        while killed < kills:
            process = begin(config)
            while True:
                found = re.search(r"run (\S+) ", process.first_line)  # type: ignore[attr-defined]
                assert found, process.communicate()
                run_id = found[1]
                time.sleep(rng.uniform(0.0, 2.5))
                ended = process.poll() is not None
                if not ended:
                    os.killpg(process.pid, signal.SIGKILL)
                    killed += 1
                process.communicate()
                ranges_read()
                finished = finished_chunks(folder, run_id, large)
                if ended or killed >= kills:
                    break
                process = begin(config, "--resume", run_id)
                process_started = finished
                time.sleep(0.3)
                assert not read_twice(process_started, ranges_read())
            code, answer, messages = run_command(config, "--resume", run_id)
            assert answer, messages
            assert not read_twice(finished, ranges_read())
            check_ending(code, answer, folder, large)


def test_a_driver_killed_at_any_moment_resumes_to_the_same_verdict(
    own: tuple[LabServers, Path], large: str, tmp_path: Path
) -> None:
    undisturbed = tmp_path / "undisturbed"
    undisturbed.mkdir()
    code, answer, _ = run_command(write_config(undisturbed, own[0], large))
    check_ending(code, answer, undisturbed, large)
    kill_and_resume(own, large, tmp_path, kills=3, seed=1)


def statements_running(server: LabServer) -> list[str]:
    # MySQL's PROCESSLIST fails while any client sends a text that utf8mb3 does not have.
    asked = "SELECT INFO FROM information_schema.PROCESSLIST WHERE INFO IS NOT NULL"
    if server.flavor != "tidb":
        asked = "SELECT PROCESSLIST_INFO FROM performance_schema.threads WHERE PROCESSLIST_INFO IS NOT NULL"
    rows = execute(server, asked)
    return [str(row[0]) for row in rows if "PROCESSLIST" not in str(row[0]) and "`t`" in str(row[0])]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_queries_says_how_to_go_on_and_can_be_resumed(
    own: tuple[LabServers, Path], large: str, tmp_path: Path, number: signal.Signals
) -> None:
    pair, _ = own
    config = write_config(tmp_path, pair, large, limits={"chunk_rows": 50_000, "max_chunk_rows": 50_000})
    process = begin(config)
    time.sleep(0.3)
    os.kill(process.pid, number)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    run_id = re.search(r"--resume (\S+?)\)", process.first_line)  # type: ignore[attr-defined]
    assert run_id
    assert "interrupted" in messages
    assert "Traceback" not in messages
    for server in (pair.source, pair.target):
        eventually(lambda server=server: not statements_running(server))
    code, answer, _ = run_command(config, "--resume", run_id[1])
    check_ending(code, answer, tmp_path, large)


def eventually(condition: Any) -> None:
    wait_for(condition, "what the test waits for", every=0.1)


# --- servers that go away --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_server_that_is_killed_and_restarted_is_waited_for(
    own: tuple[LabServers, Path], large: str, tmp_path: Path, side: str
) -> None:
    pair, folder = own
    config = write_config(tmp_path, pair, large, limits={"retries": 6, "retry_seconds": 0.5})
    done: list[threading.Thread] = []

    def restart(pid: int) -> None:
        eventually(lambda: gone(folder, side, pid))
        servers.up(folder)

    def kill_once(progress: VerifyProgress) -> None:
        if progress.chunks and not done:
            done.append(threading.Thread(target=restart, args=(stop(folder, side),)))
            done[0].start()

    end = verify(config, on_progress=kill_once)
    assert done
    done[0].join()
    assert end.verdict is Verdict.MISMATCH
    assert keys(end.diffs) == PLANTED


@pytest.mark.parametrize("side", ["target"])
def test_a_server_that_stays_away_is_inconclusive_and_the_run_resumable(
    own: tuple[LabServers, Path], large: str, tmp_path: Path, side: str
) -> None:
    pair, folder = own
    config = write_config(tmp_path, pair, large, limits={"retries": 1})
    killed: list[int] = []

    def kill_once(progress: VerifyProgress) -> None:
        if progress.chunks and not killed:
            killed.append(stop(folder, side))

    try:
        end = verify(config, on_progress=kill_once)
        assert killed
        assert end.verdict is Verdict.INCONCLUSIVE
        assert "gave up after 2 attempts" in end.reasons
        assert side in end.reasons
        assert keys(end.diffs) <= PLANTED
    finally:
        eventually(lambda: gone(folder, side, killed[0]))
        servers.up(folder)
    again = verify(config, resume=end.run_id)
    assert again.verdict is Verdict.MISMATCH
    assert keys(again.diffs) == PLANTED


def test_a_server_that_hangs_ends_with_the_time_limit_of_the_run(
    own: tuple[LabServers, Path], large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migverify.tables.verify.GRACE_SECONDS", 0.5)
    monkeypatch.setattr("migverify.db.session.CONNECT_SECONDS", 2.0)
    pair, folder = own
    config = write_config(tmp_path, pair, large, limits={"run_seconds": 3})
    stopped: list[int] = []

    def stop_once(progress: VerifyProgress) -> None:
        if progress.chunks and not stopped:
            stopped.append(stop(folder, "target", signal.SIGSTOP))

    try:
        end = verify(config, on_progress=stop_once)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    assert stopped
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "the run's time limit of 3 s is over" in end.reasons
    write_config(tmp_path, pair, large)
    again = verify(config, resume=end.run_id)
    assert again.verdict is Verdict.MISMATCH
    assert keys(again.diffs) == PLANTED


class CuttingProxy:
    """Passes TCP on to a server; connections are cut after ``limit`` bytes of answers, ``cuts`` times in all."""

    def __init__(self, server: LabServer, limit: int, cuts: int) -> None:
        self.server, self.limit, self.left = server, limit, cuts
        self.done = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection((self.server.host, self.server.port))
            threading.Thread(target=self._pass, args=(client, upstream, None), daemon=True).start()
            threading.Thread(target=self._pass, args=(upstream, client, self.limit), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        try:
            while data := source.recv(65536):
                if limit is not None and self.left > 0 and passed + len(data) > limit:
                    sink.sendall(data[: max(0, limit - passed)])  # in the middle of a packet
                    with self._lock:
                        self.left -= 1
                        self.done += 1
                    break
                passed += len(data)
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                end.close()

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def small(databases: Databases) -> Databases:
    """5,000 rows; three differ, one of them is missing on each side."""
    fill(databases.pair, databases.name, 5000)
    databases.target("UPDATE t SET v='planted' WHERE id=1234", "DELETE FROM t WHERE id=4321")
    databases.source("DELETE FROM t WHERE id=17")
    return databases


SMALL = {17, 1234, 4321}


@pytest.mark.parametrize(("side", "limit"), [("source", 700), ("target", 3000), ("source", 20_000)])
def test_connections_cut_in_the_middle_of_an_answer_are_retried(
    small: Databases, tmp_path: Path, side: str, limit: int
) -> None:
    server = getattr(small.pair, side)
    # One cut at a time is within the retries; the proxy stands in front of the run only, not of the catalog.
    with closing(CuttingProxy(server, limit, cuts=0)) as proxy:
        ends = {side: {"url": f"{'tidb' if server.flavor == 'tidb' else 'mysql'}://root@127.0.0.1:{proxy.port}",
                       "tls": {"mode": "disabled"}}}  # fmt: skip
        config = write_config(tmp_path, small.pair, small.name, limits={"retries": 6}, **ends)

        def cut(_: str) -> None:
            proxy.left = 4

        end = verify(config, on_start=cut)
        if limit < 20_000:
            assert proxy.done
        assert end.verdict is Verdict.MISMATCH
        assert keys(end.diffs) == SMALL


def test_connections_that_are_always_cut_are_inconclusive(small: Databases, tmp_path: Path) -> None:
    with closing(CuttingProxy(small.pair.target, 1500, cuts=0)) as proxy:
        target = {"url": f"tidb://root@127.0.0.1:{proxy.port}", "tls": {"mode": "disabled"}}
        config = write_config(tmp_path, small.pair, small.name, target=target, limits={"retries": 1})

        def cut(_: str) -> None:
            proxy.left = 10**9

        end = verify(config, on_start=cut)
    assert keys(end.diffs) <= SMALL
    assert end.verdict is not Verdict.MATCH
    assert "Lost connection" in end.reasons or "gave up" in end.reasons


# --- locks, limits, administrators -----------------------------------------------------------------------------------


def test_a_table_that_is_locked_is_inconclusive(small: Databases, tmp_path: Path) -> None:
    config = write_config(
        tmp_path, small.pair, small.name, source={"session": {"lock_wait_timeout": 1}}, limits={"retries": 1}
    )

    def lock(_: str) -> None:
        small.source("LOCK TABLES t WRITE")

    end = verify(config, on_start=lock)
    small.source("UNLOCK TABLES")
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "Lock wait timeout exceeded" in end.reasons
    again = verify(config, resume=end.run_id)
    assert keys(again.diffs) == SMALL


def test_chunks_that_are_too_slow_for_the_limit_are_cut_smaller(
    own: tuple[LabServers, Path], large: str, tmp_path: Path
) -> None:
    config = write_config(
        tmp_path, own[0], large, source={"query_seconds": 0.15}, target={"query_seconds": 0.3},
        limits={"chunk_rows": 200_000, "max_chunk_rows": 200_000},
    )  # fmt: skip
    end = verify(config)
    assert keys(end.diffs) <= PLANTED
    assert end.verdict is not Verdict.MATCH
    assert end.results["large.t"].chunks > 1


@pytest.mark.parametrize(("kills", "wanted"), [(5, Verdict.MISMATCH), (10**9, None)])
def test_queries_that_an_administrator_kills_are_retried(
    small: Databases, tmp_path: Path, kills: int, wanted: Verdict | None
) -> None:
    config = write_config(tmp_path, small.pair, small.name, limits={"retries": 6 if wanted else 1})
    ended = threading.Event()
    left = [kills]

    def kill(server: LabServer, word: str) -> None:
        with connect(server) as connection, connection.cursor() as cursor:
            while not ended.is_set() and left[0] > 0:
                cursor.execute("SELECT ID FROM information_schema.PROCESSLIST WHERE INFO LIKE 'SELECT COUNT(*),%'")
                for (number,) in cursor.fetchall():
                    left[0] -= 1
                    try:
                        cursor.execute(f"KILL {word} {number}")
                    except pymysql.err.MySQLError as error:
                        if error.args[0] != ER.NO_SUCH_THREAD:  # else it ended by itself
                            raise

    threads = [threading.Thread(target=kill, args=(small.pair.source, "QUERY")),
               threading.Thread(target=kill, args=(small.pair.target, "TIDB QUERY"))]  # fmt: skip
    for thread in threads:
        thread.start()
    try:
        end = verify(config)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert keys(end.diffs) <= SMALL
    assert end.verdict is not Verdict.MATCH
    if wanted:
        assert end.verdict is wanted
        assert keys(end.diffs) == SMALL


@pytest.mark.attack(
    "tables", "an administrator kills the connection at any statement of the reading of the catalogs",
    "the reading begins again: the same plan, and the same facts of the servers",
)  # fmt: skip
@pytest.mark.parametrize("side", ["source", pytest.param("target", marks=pytest.mark.soak)])
def test_a_connection_killed_while_the_catalogs_are_read_begins_again(
    small: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    config = load_config(write_config(tmp_path, small.pair, small.name, limits={"retries": 1, "retry_seconds": 0}))
    server = getattr(small.pair, side)
    left = [0]

    def kill_before(read: Any) -> Any:
        def call(session: Session, sql: str) -> Any:
            if session.endpoint.name == side:
                left[0] -= 1
                if left[0] == 0:
                    execute(server, f"KILL {'TIDB ' if server.flavor == 'tidb' else ''}{session.thread_id}")
                    there = f"SELECT 1 FROM information_schema.PROCESSLIST WHERE ID={session.thread_id}"
                    eventually(lambda: not execute(server, there))
            return read(session, sql)

        return call

    def ids_of(plan: PreparedTables) -> list[Any]:
        return [(name, one.ids, one.columns) for sides in plan.identities.values() for name, one in sides.items()]

    undisturbed = prepare(config, {})
    monkeypatch.setattr(Session, "query_bytes", kill_before(Session.query_bytes))
    monkeypatch.setattr(Session, "query_named", kill_before(Session.query_named))
    statements = 0
    while left[0] <= 0:
        statements += 1
        left[0] = statements
        again = prepare(config, {})
        assert again.names == undisturbed.names, statements
        assert again.layouts == undisturbed.layouts, statements
        assert ids_of(again) == ids_of(undisturbed), statements
        assert (again.hash, again.digest, again.skipped) == (undisturbed.hash, undisturbed.digest, undisturbed.skipped)
        for fact in ("identity", "flavor", "version", "layout"):
            assert again.facts[side][fact] == undisturbed.facts[side][fact], statements
    assert statements > 5


def test_no_connection_left_is_told_and_retried(own: tuple[LabServers, Path], large: str, tmp_path: Path) -> None:
    pair, _ = own
    execute(
        pair.source, "DROP USER IF EXISTS few", "CREATE USER few WITH MAX_USER_CONNECTIONS 2",
        f"GRANT SELECT ON {large}.* TO few",
    )  # fmt: skip
    url = f"mysql://few@127.0.0.1:{pair.source.port}"
    config = write_config(tmp_path, pair, large, source={"url": url}, limits={"retries": 1})
    few = LabServer("127.0.0.1", pair.source.port, "few", "mysql", "")
    held: list[Any] = []

    def hold(_: str) -> None:
        held.extend(connect(few) for _ in range(2))

    try:
        end = verify(config, on_start=hold)
        assert end.verdict is Verdict.INCONCLUSIVE
        assert "no connection is left" in end.reasons
        with pytest.raises(EndpointError, match="no connection is left") as caught:
            verify(config)
        assert "MAX_USER_CONNECTIONS" in caught.value.hint
    finally:
        for connection in held:
            connection.close()
    again = verify(config, resume=end.run_id)
    assert keys(again.diffs) == PLANTED


@pytest.mark.parametrize("side", ["source", "target"])
def test_no_statement_outlives_the_time_limit_of_the_run(
    small: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Without `query_seconds` too: the server is asked to end what runs, and does not go on for nobody."""
    monkeypatch.setattr("migverify.tables.verify.GRACE_SECONDS", 0.5)
    server = getattr(small.pair, side)
    seen: list[int] = []
    slow = [{"table": f"{small.name}.t", "where": {"source": "1=1", "target": "1=1", side: "SLEEP(0.5)=0"}}]
    config = write_config(tmp_path, small.pair, small.name, limits={"run_seconds": 2}, overrides=slow)
    end = verify(config, on_progress=lambda _: seen.append(len(statements_running(server))))
    assert max(seen) > 0
    assert end.verdict is Verdict.INCONCLUSIVE
    assert "the run's time limit of 2 s is over" in end.reasons
    eventually(lambda: not statements_running(server))


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_statement_over_its_time_limit_is_ended_by_the_server(small: Databases, tmp_path: Path, side: str) -> None:
    """The server itself ends it, and nothing is left running when the verdict is there."""
    server = getattr(small.pair, side)
    slow = [{"table": f"{small.name}.t", "where": {"source": "1=1", "target": "1=1", side: "SLEEP(0.05)=0"}}]
    config = write_config(tmp_path, small.pair, small.name, overrides=slow, **{side: {"query_seconds": 0.3}})
    assert verify(config).verdict is not Verdict.MATCH
    eventually(lambda: not statements_running(server))


# --- throttles -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_busy_server_is_waited_for(
    small: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    monkeypatch.setattr("migverify.tables.verify.GRACE_SECONDS", 0.5)
    config = write_config(tmp_path, small.pair, small.name, limits={"max_threads_running": 1, "run_seconds": 2})
    ended = threading.Event()

    def sleep() -> None:
        with connect(getattr(small.pair, side)) as connection, connection.cursor() as cursor:
            while not ended.is_set():
                cursor.execute("SELECT SLEEP(0.5)")

    sleepers = [threading.Thread(target=sleep) for _ in range(2)]
    for sleeper in sleepers:
        sleeper.start()
    time.sleep(0.2)
    try:
        end = verify(config)
    finally:
        ended.set()
        for sleeper in sleepers:
            sleeper.join()
    assert end.verdict is Verdict.INCONCLUSIVE
    assert not any(result.chunks for result in end.results.values())
    write_config(tmp_path, small.pair, small.name, limits={"max_threads_running": 1000})
    assert keys(verify(config, resume=end.run_id).diffs) == SMALL


def test_a_replica_that_is_behind_is_waited_for(
    own: tuple[LabServers, Path], large: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("migverify.tables.verify.GRACE_SECONDS", 0.5)
    pair, _ = own
    config = write_config(tmp_path, pair, large, limits={"max_replica_lag": 5, "run_seconds": 2})
    # A replica that does not replicate: how far it is behind is unknown.
    execute(pair.source, "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT=1, SOURCE_USER='x'")
    try:
        end = verify(config)
    finally:
        execute(pair.source, "RESET REPLICA ALL")
    assert end.verdict is Verdict.INCONCLUSIVE
    assert not any(result.chunks for result in end.results.values())
    write_config(tmp_path, pair, large, limits={"max_replica_lag": 5})
    assert keys(verify(config, resume=end.run_id).diffs) == PLANTED


def test_a_pause_file_holds_the_run(small: Databases, tmp_path: Path) -> None:
    pause = tmp_path / "pause"
    config = write_config(tmp_path, small.pair, small.name, limits={"pause_file": "pause"})
    pause.touch()
    seen: list[int] = []

    def go_on() -> None:
        time.sleep(1.0)
        seen.append(len(statements_running(small.pair.source)))
        pause.unlink()

    thread = threading.Thread(target=go_on)
    thread.start()
    end = verify(config)
    thread.join()
    assert seen == [0]
    assert not pause.exists()
    assert keys(end.diffs) == SMALL, end


# --- the store -------------------------------------------------------------------------------------------------------


def test_a_full_disk_loses_nothing(own: tuple[LabServers, Path], large: str, tmp_path: Path) -> None:
    config = write_config(tmp_path, own[0], large)
    limit = 400_000

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    code, answer, messages = run_command(config, preexec_fn=small_files)
    assert code == 3, messages
    assert not answer
    assert re.search(r"error: .*runs\.db", messages)
    assert "Traceback" not in messages
    assert "internal error" not in messages
    run_id = re.search(r"--resume (\S+?)\)", messages)
    assert run_id
    kept = finished_chunks(tmp_path, run_id[1], large)
    with statement_log(own[0].source) as ranges_read:
        code, answer, messages = run_command(config, "--resume", run_id[1])
        assert not read_twice(kept, ranges_read())
    check_ending(code, answer, tmp_path, large)


def test_a_store_that_cannot_be_written_any_more_is_an_error_and_resumable(
    own: tuple[LabServers, Path], large: str, tmp_path: Path
) -> None:
    config = write_config(tmp_path, own[0], large, store="sqlite:///runs.db?timeout=1")
    process = begin(config)
    time.sleep(0.2)
    with closing(sqlite3.connect(tmp_path / "runs.db", isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")
        _, messages = process.communicate(timeout=120)
        other.execute("ROLLBACK")
    assert process.returncode == 3, messages
    assert "runs.db" in messages
    assert "Traceback" not in messages
    run_id = re.search(r"--resume (\S+?)\)", process.first_line)  # type: ignore[attr-defined]
    assert run_id
    code, answer, _ = run_command(config, "--resume", run_id[1])
    check_ending(code, answer, tmp_path, large)


def test_the_process_of_a_run_leaves_no_child_behind(small: Databases, tmp_path: Path) -> None:
    config = write_config(tmp_path, small.pair, small.name)
    process = begin(config)
    process.communicate(timeout=60)
    found = subprocess.run(["pgrep", "-g", str(process.pid)], capture_output=True, text=True, check=False)
    assert not found.stdout.strip()


def test_a_snapshot_without_a_safe_point_is_refused(own: tuple[LabServers, Path], large: str, tmp_path: Path) -> None:
    """Embedded storage has no safe point: SET fails, the variable shows the value, and reads are current."""
    pair, _ = own
    where = "FROM mysql.tidb WHERE VARIABLE_NAME='tikv_gc_safe_point'"
    kept = execute(pair.target, f"SELECT VARIABLE_VALUE {where}")[0][0]
    config = write_config(tmp_path, pair, large, target={"snapshot": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())})
    try:
        execute(pair.target, f"DELETE {where}")
        code, _, messages = run_command(config)
    finally:
        execute(pair.target, f"INSERT IGNORE INTO mysql.tidb VALUES ('tikv_gc_safe_point', '{kept}', '')")
    assert code == 2
    assert "tikv_gc_safe_point" in messages
