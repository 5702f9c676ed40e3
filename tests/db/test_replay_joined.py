"""A pool whose connections are older than the capture: asked, given what is known of its sessions, and judged."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pymysql
import pytest

import tests.unit.capture_packets as capture_packets
from migverify.cli.main import run
from migverify.db.session import open_session
from migverify.errors import LabError
from migverify.model import Endpoint, Side, Verdict
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.keys import read_keys
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.pace import parse_pace
from migverify.workload.replay.plan import ReplayPlan, read_plan
from migverify.workload.replay.run import replay
from migverify.workload.replay.safety import ReplayEndpoints
from migverify.workload.replay.verdict import MatchRequirements, ReplayVerdict, verdict
from migverify.workload.server_sessions import SessionDump, read_sessions
from migverify.workload.statement_files import read_columns
from migverify_lab.mariadb import audit_plugin, provide
from tests.db.binlog_server import SourceServer, binlog_server
from tests.db.test_capture_logs import mariadb_server
from tests.unit.capture_packets import Trace

pytestmark = pytest.mark.db

POOL = 4
ROUNDS = 70
SETUP = (
    "CREATE DATABASE IF NOT EXISTS shop", "DROP TABLE IF EXISTS shop.orders",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, state VARCHAR(10), made TIMESTAMP NOT NULL)",
    "INSERT INTO shop.orders VALUES " + ", ".join(f"({n}, 's{n % 3}', '2026-01-01 00:00:{n:02d}')" for n in range(50)),
)  # fmt: skip


def pool(port: int) -> list[Any]:
    """Open connections that live long; each sets what its driver sets, and one leaves a transaction open."""
    found = []
    for number in range(POOL):
        one = pymysql.connect(
            host="127.0.0.1", port=port, user="root", database="shop", autocommit=True, ssl_disabled=True
        )
        with one.cursor() as cursor:
            cursor.execute("SET time_zone = '+05:00'")
            cursor.execute("SET sql_mode = 'STRICT_TRANS_TABLES'")
            if number == 0:
                cursor.execute("BEGIN")
                cursor.execute("UPDATE orders SET state = 'open' WHERE id = 1")
        found.append(one)
    return found


def load(clients: Sequence[Any]) -> int:
    """Send what a service sends; return how many statements."""
    sent = 0
    for number, one in enumerate(clients):
        with one.cursor() as cursor:
            texts = [f"SELECT id, state FROM orders WHERE id = {(number + n) % 50}" for n in range(ROUNDS)]
            texts += [f"SELECT id, made FROM shop.orders WHERE id = {n}" for n in range(10)]
            if number == 0:
                texts[3:3] = ["UPDATE orders SET state = 's1' WHERE id = 1", "ROLLBACK"]
            for text in texts:
                cursor.execute(text)
                sent += 1
    return sent


def capture_of(files: Sequence[Path], out: Path, capsys: pytest.CaptureFixture[str], *options: str) -> None:
    assert run(["workload", "capture", *map(str, files), "--out", str(out), "--json", *options]) == 0
    capsys.readouterr()


def is_load(sql: bytes) -> bool:
    return b"orders" in sql or sql == b"ROLLBACK"


def judge(
    capture: Path, endpoint: Endpoint, folder: Path, dumps: Sequence[SessionDump] = (), database: str | None = None
) -> tuple[ReplayPlan, ReplayVerdict, dict[str, int]]:
    """Replay the reads of the pool on one server as both sides."""
    with open_session(endpoint, None) as session:
        keys = read_keys(session, ["shop"])

    def read(path: Path, columns: Sequence[str]) -> Iterator[dict[str, list[object]]]:
        for batch in read_columns(path, [*columns, *(() if "sql" in columns else ("sql",))]):
            chosen = [place for place, sql in enumerate(batch["sql"]) if is_load(bytes(sql))]  # type: ignore[call-overload]
            yield {name: [batch[name][place] for place in chosen] for name in columns}

    plan = read_plan(capture, folder, read, keys=keys, dumps=dumps, database=database)
    sides = ReplayEndpoints({Side.SOURCE: endpoint, Side.TARGET: endpoint})
    result = replay(folder, sides, EngineOptions(pace=parse_pace("fast")))
    found = verdict(
        result.tally, requirements=MatchRequirements(out_of_scope=frozenset({"write"})), unfinished=result.unfinished
    )
    states = {state.value: result.tally.state(state) for state in Judgement}
    return plan, found, states


def dumped(config: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> SessionDump:
    capsys.readouterr()  # what was printed before: a server that is fetched may wait for another worker
    assert run(["workload", "sessions", "--config", str(config), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sessions"] >= POOL
    assert out.stat().st_mode & 0o777 == 0o600
    return read_sessions(out)


def prove(
    name: str, files: Callable[[], Sequence[Path]], endpoint: Endpoint, config: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], *options: str, clients: Sequence[Any], settings: bool = True,
) -> None:  # fmt: skip
    """Load, dump, capture, replay: first with nothing given, then with all that is known."""
    sent = load(clients)
    dump = dumped(config, tmp_path / "sessions.json", capsys)
    for one in clients:
        one.close()
    out = tmp_path / "capture"
    capture_of(files(), out, capsys, *options)
    bare, without, _ = judge(out, endpoint, tmp_path / "bare")
    plan, found, states = judge(out, endpoint, tmp_path / "full", [dump], "shop")
    first = 5 if name != "slow" else 0  # an unfinished first transaction, up to its end
    assert plan.calls >= sent
    assert plan.calls - plan.asked <= first + 1
    assert states["different"] == 0
    assert plan.asked > 0.9 * sent
    if settings:
        assert found.verdict is Verdict.MATCH, found.reasons
        assert found.coverage["assumed"] == 0
    else:  # MariaDB shows no settings of other sessions: what hangs on them proves nothing
        assert 0 < found.coverage["assumed"] < plan.asked / 2
    if name == "slow":  # it tells no connects, so what it shows of a session is taken for all of it
        return
    assert without.verdict is Verdict.INCONCLUSIVE
    assert any("--sessions" in reason for reason in [*bare.skips, *without.reasons])


@pytest.fixture(scope="module")
def mysql(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SourceServer]:
    options = ("--general-log-file=general.log", "--slow-query-log-file=slow.log", "--log-output=FILE")
    with binlog_server(tmp_path_factory.mktemp("mysql"), *options, "--long-query-time=0") as server:
        server.run(*SETUP)
        yield server


@pytest.mark.parametrize(("name", "switch"), [("general", "general_log"), ("slow", "slow_query_log")])
def test_a_pool_that_is_older_than_the_log(
    mysql: SourceServer, name: str, switch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clients = pool(mysql.server.port)
    mysql.run(f"SET GLOBAL {switch} = ON")
    try:
        prove(
            name, lambda: [mysql.data / f"{name}.log"], mysql.endpoint, mysql.config(tmp_path), tmp_path, capsys,
            clients=clients,
        )  # fmt: skip
    finally:
        mysql.run(f"SET GLOBAL {switch} = OFF")


def test_a_slow_log_never_has_the_statements_of_connections_older_than_its_threshold(
    mysql: SourceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mysql.run("SET GLOBAL long_query_time = 10")
    clients = pool(mysql.server.port)
    mysql.run("FLUSH SLOW LOGS", "SET GLOBAL long_query_time = 0", "SET GLOBAL slow_query_log = ON")
    try:
        load(clients)
        young = pymysql.connect(host="127.0.0.1", port=mysql.server.port, user="root", database="shop")
        with young.cursor() as cursor:
            cursor.execute("SELECT state FROM orders WHERE id = 7")
        dumped(mysql.config(tmp_path), tmp_path / "sessions.json", capsys)
    finally:
        mysql.run("SET GLOBAL slow_query_log = OFF")
    for one in (*clients, young):
        one.close()
    out = tmp_path / "capture"
    options = ["workload", "capture", str(mysql.data / "slow.log"), "--out", str(out), "--json"]
    assert run(options) == 0
    capsys.readouterr()
    assert (
        run(["workload", "capture", "--quality", str(out), "--sessions", str(tmp_path / "sessions.json"), "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    hidden, known = found["sessions_never_seen"], found["sessions_known"]
    assert POOL <= hidden < known
    assert any("never" in finding and "long_query_time" in finding for finding in found["findings"])


@contextmanager
def recorded(server: int, trace: Trace, recording: threading.Event) -> Iterator[int]:
    """Pass connections on; what goes by while ``recording`` is set is in the trace."""
    lock = threading.Lock()
    listener = socket.create_server(("127.0.0.1", 0))
    sockets: list[socket.socket] = [listener]

    def pump(source: socket.socket, sink: socket.socket, note: Callable[..., None], port: int) -> None:
        while data := source.recv(65536):
            if recording.is_set():
                with lock:
                    note(data, port)
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)

    def serve() -> None:
        for _ in range(POOL):
            client, _ = listener.accept()
            there = socket.create_connection(("127.0.0.1", server))
            sockets.extend((client, there))
            port = there.getsockname()[1]
            threading.Thread(target=pump, args=(client, there, trace.client, port), daemon=True).start()
            threading.Thread(target=pump, args=(there, client, trace.server, port), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        for one in sockets:
            one.close()


def test_packets_that_join_a_pool_midway(
    mysql: SourceServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = mysql.server.port
    monkeypatch.setattr(capture_packets, "CLIENT", ("127.0.0.1", 1))
    monkeypatch.setattr(capture_packets, "SERVER", ("127.0.0.1", port))
    trace, recording = Trace(), threading.Event()
    # the trace's clock is its own: before the dump
    with recorded(port, trace, recording) as proxy:
        clients = pool(proxy)
        recording.set()

        def files() -> list[Path]:
            path = tmp_path / "a.pcap"
            path.write_bytes(trace.pcap())
            return [path]

        prove(
            "packets", files, mysql.endpoint, mysql.config(tmp_path), tmp_path, capsys, "--port", str(port),
            clients=clients,
        )  # fmt: skip


def test_a_pool_that_is_older_than_an_audit_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        plugins = audit_plugin(provide(print), print)
    except LabError as missing:
        if os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
            pytest.skip(str(missing))
        raise
    options = (f"--plugin-dir={plugins}", "--plugin-load-add=server_audit", "--server-audit-logging=OFF")
    with mariadb_server(tmp_path / "server", *options) as (server, port):
        server.run(*SETUP)
        clients = pool(port)
        server.run("SET GLOBAL server_audit_logging = ON")
        config = tmp_path / "migverify.yaml"
        config.write_text(
            f"source: {{url: 'mysql://root@127.0.0.1:{port}'}}\ntarget: {{url: 'tidb://root@127.0.0.1:4000'}}\n"
        )
        endpoint = Endpoint("source", "127.0.0.1", port, "root")
        prove(
            "audit", lambda: sorted(server.data.glob("server_audit.log*")), endpoint, config, tmp_path, capsys,
            clients=clients, settings=False,
        )  # fmt: skip
