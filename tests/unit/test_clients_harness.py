"""Jars, harness processes, the proxy and captured sessions: what can be tried without a database."""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from migverify import secrets
from migverify.errors import UsageError
from migverify.model import Verdict
from migverify.secrets import Secret, remember
from migverify.workload.clients import run
from migverify.workload.clients.drivers import drivers, pools
from migverify.workload.clients.jars import checksum, provide
from migverify.workload.clients.model import Cell, Jar, Kind, Scenario, Variant
from migverify.workload.clients.process import HarnessProcess
from migverify.workload.clients.proxy import Mode, Proxy
from migverify.workload.clients.replay import scenario_of
from migverify.workload.clients.run import ClientSide, Tools
from migverify.workload.model import Parameter
from migverify.workload.replay.model import Call
from migverify.workload.replay.safety import Leave
from migverify.workload.state import State

# --- jars


def jar(content: bytes) -> Jar:
    return Jar("org.example", "thing", "1.0", hashlib.sha256(content).hexdigest())


def repository(folder: Path, wanted: Jar, content: bytes) -> str:
    path = folder / "repository" / wanted.path
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return (folder / "repository").as_uri()


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIGVERIFY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(secrets, "_known", set())


def test_a_jar_is_fetched_once(tmp_path: Path) -> None:
    wanted, said = jar(b"bytes"), []
    source = repository(tmp_path, wanted, b"bytes")
    (found,) = provide([wanted, wanted], source, said.append)
    assert found.read_bytes() == b"bytes"
    assert checksum(found) == wanted.sha256
    assert provide([wanted], "file:///nowhere", said.append) == [found]
    assert len(said) == 1


def test_another_file_is_refused_and_not_kept(tmp_path: Path) -> None:
    wanted = jar(b"bytes")
    source = repository(tmp_path, wanted, b"other bytes")
    with pytest.raises(UsageError, match="not the known file"):
        provide([wanted], source, lambda _: None)
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_damaged_jar_in_the_cache_is_replaced(tmp_path: Path) -> None:
    wanted = jar(b"bytes")
    kept = tmp_path / "cache" / "jars" / wanted.file
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"byt")
    provide([wanted], repository(tmp_path, wanted, b"bytes"), lambda _: None)
    assert kept.read_bytes() == b"bytes"


@pytest.mark.parametrize("address", ["file:///nowhere", "ftp://x", "http://127.0.0.1:1/maven"])
def test_offline_says_what_to_do(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        provide([jar(b"")], address, lambda _: None)
    assert "org.example:thing:1.0" in str(caught.value) or "is no http" in str(caught.value)
    assert str(tmp_path / "cache" / "jars") in caught.value.hint or "Maven" in str(caught.value)


# --- processes: a stand-in speaks the protocol

STAND_IN = """
import json, sys, time, os
work = json.load(open(sys.argv[1]))
first = json.loads(sys.stdin.readline())
def emit(line):
    sys.stdout.write(json.dumps(line) + "\\n"); sys.stdout.flush()
emit({"ready": True})
sys.stderr.write("told to nobody: " + first["passwords"]["source"] + "\\n"); sys.stderr.flush()
for text in sys.stdin:
    command = json.loads(text)
    if "run" not in command:
        continue
    n, side = command["run"], command["side"]
    cell = work["cells"][n]
    do = cell["steps"][0]["do"]
    if do == "die":
        sys.exit(7)
    if do == "hang":
        continue
    told = "login as " + first["passwords"][side] if do == "leak" else "x"
    facts = {"error": {"class": "E", "code": 1, "told": told}} if do == "leak" else {"value": do == "differ" and side}
    emit({"cell": n, "side": side, "step": 0, "facts": facts, "ms": 1})
    emit({"cell": n, "side": side, "end": True, "failure": None})
"""


class Nothing:
    def can(self, need: str) -> bool:
        return need == "nothing"

    def begin(self, side: str) -> None: ...

    def do(self, side: str, what: Any) -> dict[str, Any]:
        return {"side": side, "what": what}


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    script = tmp_path / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(run, "_command", lambda _driver, work, _tools: [sys.executable, str(script), str(work)])
    password = remember(Secret("hunter2-#%"))
    side = ClientSide("127.0.0.1:1", "127.0.0.1:2", "app", "scratch", password, "disabled")
    return Tools({"source": side, "target": side}, Nothing())


def cell(do: str) -> Cell:
    scenario = Scenario(do, do, (Kind.JDBC,), ({"do": do},), seconds=1.0)
    return Cell(drivers()["connector-j-9"], pools()["none"], scenario, Variant("default"), "jdbc:x")


def test_a_cell_that_hangs_or_dies_costs_itself_only(tools: Tools) -> None:
    cells = [cell(name) for name in ("same", "hang", "differ", "die", "same")]
    got = run.run_cells(cells, tools, lambda _: None)
    assert [one.verdict.value for one in got] == ["MATCH", "INCONCLUSIVE", "MISMATCH", "INCONCLUSIVE", "MATCH"]
    assert "not done within" in got[1].reason
    assert "ended" in got[3].reason


def test_a_harness_that_does_not_start_is_no_match(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_command", lambda *_: [sys.executable, "-c", "raise SystemExit('broken')"])
    got = run.run_cells([cell("same"), cell("same")], tools, lambda _: None)
    assert {one.verdict for one in got} == {Verdict.INCONCLUSIVE}
    assert "broken" in got[0].reason


def test_a_driver_that_is_not_installed_is_no_match(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    missing = replace(drivers()["pymysql"], entry="no_such_driver")
    got = run.run_cells([replace(cell("open"), driver=missing)], tools, lambda _: None)
    assert got[0].verdict is Verdict.INCONCLUSIVE
    assert got[0].reason.startswith("not installed: no_such_driver")


def test_no_secret_in_a_command_line_a_file_or_what_is_told(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    files: list[str] = []

    class Watching(HarnessProcess):
        def __init__(self, command: Any, passwords: Any, controller: Any) -> None:
            started.append(list(command))
            files.append(Path(command[-1]).read_text())
            super().__init__(command, passwords, controller)

    monkeypatch.setattr(run, "HarnessProcess", Watching)
    got = run.run_cells([cell("leak"), cell("die")], tools, lambda _: None)
    everything = repr(started) + repr(files) + repr(got)
    assert "hunter2" not in everything
    assert "login as ***" in everything
    assert "told to nobody: ***" in got[1].reason


# --- the proxy


@pytest.fixture
def echo() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(client,), daemon=True).start()

    def answer(client: socket.socket) -> None:
        with client:
            while data := client.recv(100):
                heard.append(data)
                client.sendall(data.upper())

    heard: list[bytes] = []
    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def connected(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.partition(":")
    client = socket.create_connection((host, int(port)), timeout=5)
    client.sendall(b"a")
    assert client.recv(10) == b"A"
    return client


def test_the_proxy_cuts_silences_and_loses_answers(echo: int) -> None:
    proxy = Proxy("127.0.0.1", echo)
    try:
        with connected(proxy) as client:
            assert proxy.cut() == 1
            with pytest.raises(ConnectionResetError):
                client.recv(10)
        with connected(proxy) as client:
            proxy.set(Mode.LOSE_ANSWER)
            client.sendall(b"commit")
            with pytest.raises(ConnectionResetError):
                client.recv(10)
        proxy.set(Mode.PASS)
        with connected(proxy) as client:
            proxy.set(Mode.SILENCE)
            client.settimeout(0.3)
            client.sendall(b"b")
            with pytest.raises(TimeoutError):
                client.recv(10)
    finally:
        proxy.close()


# --- captured sessions


def call(sql: str, position: int = 0, session: str = "7", **more: Any) -> Call:
    return Call(session, position, sql.encode(), "", State(database="shop"), start=position, **more)


def test_reads_become_steps() -> None:
    found = scenario_of(
        [
            call("SELECT a FROM t", 3),
            call("SELECT b FROM t WHERE id = ?", 1, parameters=(Parameter("integer", b"5"), Parameter("text", None))),
            call("SELECT NOW()", 2, session="8"),
            call("SELECT COUNT(*) FROM t", 4),
        ],
        Leave(),
        {"server_prepare": "true"},
    )
    steps = [(s["do"], s.get("on") or s.get("as"), s.get("sql")) for s in found.scenario.steps]
    assert steps == [
        ("open", "s0", None), ("set", "s0", None), ("prepared", "s0", "SELECT b FROM t WHERE id = ?"),
        ("open", "s1", None), ("set", "s1", None), ("sql", "s1", "SELECT NOW()"),
        ("sql", "s0", "SELECT a FROM t"), ("sql", "s0", "SELECT COUNT(*) FROM t"),
    ]  # fmt: skip
    by_sql = {s.get("sql"): s for s in found.scenario.steps}
    assert by_sql["SELECT b FROM t WHERE id = ?"]["params"] == [5, None]
    assert by_sql["SELECT a FROM t"]["unordered"]
    assert by_sql["SELECT NOW()"]["ignore"] == ["results"]
    assert "unordered" not in by_sql["SELECT COUNT(*) FROM t"]
    assert (found.database, found.asked, found.uncompared) == ("shop", 4, 1)


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES (1)",
        "DROP TABLE t",
        "SELECT * FROM t FOR UPDATE",
        "CALL p()",
        "SELECT 1 INTO OUTFILE '/x'",
    ],
)
def test_what_is_no_read_is_left_out_by_name(sql: str) -> None:
    found = scenario_of([call("SELECT 1", 1), call(sql, 2)], Leave(), {})
    assert found.asked == 1
    assert sum(found.left_out.values()) == 1
    with pytest.raises(UsageError, match="nothing of these sessions can be asked"):
        scenario_of([call(sql)], Leave(), {})


def test_writes_are_asked_of_proven_clones() -> None:
    found = scenario_of([call("INSERT INTO t VALUES (1)")], Leave(writes=True, locking=True), {})
    assert found.asked == 1


def test_bytes_that_are_no_text_are_left_out() -> None:
    broken = replace(call(""), sql=b"SELECT '\xff'", position=2)
    found = scenario_of([call("SELECT 1", 1), broken], Leave(), {})
    assert list(found.left_out) == ["not UTF-8: a driver of another character set sent it"]


def test_what_a_session_holds_is_json(tmp_path: Path) -> None:
    found = scenario_of([call("SELECT 'é'", 1, parameters=(Parameter("bytes", b"\x00\xff"),))], Leave(), {})
    (tmp_path / "x").write_text(json.dumps([dict(step) for step in found.scenario.steps]))
    assert {"type": "bytes", "value": "00ff"} in found.scenario.steps[-1]["params"]
