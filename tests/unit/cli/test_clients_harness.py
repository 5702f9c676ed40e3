"""Jars, harness processes and the proxy: what can be tried without a database."""

from __future__ import annotations

import hashlib
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
from migverify.workload.clients.model import ClientCell, DriverKind, Jar, Scenario
from migverify.workload.clients.process import HarnessProcess
from migverify.workload.clients.proxy import Mode, Proxy
from migverify.workload.clients.run import ClientSide, Tools

# --- jars


def jar(content: bytes) -> Jar:
    return Jar(group="org.example", artifact="thing", version="1.0", sha256=hashlib.sha256(content).hexdigest())


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
    do = cell["steps"][0]["name"]
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


def cell(do: str) -> ClientCell:
    steps = ({"do": "open", "name": do},)  # the stand-in acts by the name
    scenario = Scenario(name=do, title=do, kinds=(DriverKind.JDBC,), steps=steps, seconds=1.0)
    return ClientCell(drivers()["connector-j-9"], pools()["none"], scenario, scenario.variants[0], "jdbc:x")


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
    missing = drivers()["pymysql"].model_copy(update={"entry": "no_such_driver"})
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
