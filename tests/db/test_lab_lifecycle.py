"""The lab's own servers: idempotent, safe in parallel, and nothing left running. Starts servers of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from typer.testing import CliRunner

from migverify.errors import LabError
from migverify_lab import compose, mariadb, mysql, servers, tidb
from migverify_lab.cli.lab import app
from migverify_lab.engine import processes
from migverify_lab.process import identify, is_alive
from migverify_lab.session import connect

pytestmark = pytest.mark.db


@pytest.fixture
def lab(tmp_path, monkeypatch):
    monkeypatch.setattr(compose, "engine_answers", lambda: False)
    required = os.environ.get("MIGVERIFY_REQUIRE_DB", "") not in {"", "0"}
    if not required and (mysql.find() is None or tidb.find() is None):
        pytest.skip("MySQL or TiDB not in the cache: run `migverify lab build` once")
    folder = tmp_path / "lab"
    yield folder
    servers.down(folder, purge=True)
    assert _processes(folder) == []


def _processes(folder):
    found = []
    for side in ("source", "target"):
        found += processes(folder / side, (mysql.ENGINE, tidb.ENGINE))
    return found


def _pid(folder, side):
    return json.loads((folder / "state.json").read_text())["servers"][side]["process"]["pid"]


def _run(server, *statements):
    with connect(server) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall()


def test_up_twice_is_one_pair_and_down_twice_is_no_error(lab):
    told = []
    first = servers.up(lab, "mysql", told.append)
    assert first.stand_in
    assert servers.up(lab, "mysql", told.append) == first
    assert len(_processes(lab)) == 2
    assert any("running already" in line for line in told)
    assert servers.running_servers(lab) == first
    assert len(servers.down(lab)) == 2
    assert _processes(lab) == []
    assert servers.down(lab) == []
    assert [entry.running for entry in servers.status(lab)] == [False, False]


def test_up_in_parallel_starts_one_pair(lab):
    program = (
        "import sys; from pathlib import Path; from migverify_lab import compose, servers\n"
        "compose.engine_answers = lambda: False\n"
        "print(servers.up(Path(sys.argv[1]), 'mysql'))"
    )
    command = [sys.executable, "-c", program, str(lab)]
    with ThreadPoolExecutor(3) as pool:
        runs = list(pool.map(lambda _: subprocess.run(command, capture_output=True, text=True, check=True), range(3)))
    assert len({run.stdout for run in runs}) == 1
    assert len(_processes(lab)) == 2


def test_servers_outlive_the_process_that_started_them_and_a_lost_record(lab):
    pair = servers.up(lab, "mysql")
    _run(pair.source, "CREATE DATABASE kept")
    (lab / "state.json").unlink()  # as after kill -9 between start and record
    assert "without a record" in servers.status(lab)[0].note
    again = servers.up(lab, "mysql")
    assert len(_processes(lab)) == 2
    assert ("kept",) in _run(again.source, "SHOW DATABASES")
    (lab / "state.json").unlink()
    assert len(servers.down(lab)) == 2
    assert _processes(lab) == []


def test_a_killed_server_is_started_again_with_its_data(lab):
    pair = servers.up(lab, "mysql")
    _run(pair.source, "CREATE DATABASE kept")
    killed = identify(_pid(lab, "source"))
    os.kill(_pid(lab, "source"), signal.SIGKILL)
    while is_alive(killed):  # a process that is killed takes a moment to give its memory back
        time.sleep(0.05)
    os.kill(_pid(lab, "target"), signal.SIGSTOP)
    source, target = servers.status(lab)
    assert (source.running, source.note) == (False, "the process has ended")
    assert not target.running
    os.kill(_pid(lab, "target"), signal.SIGCONT)
    again = servers.up(lab, "mysql")
    assert again.target == pair.target
    assert ("kept",) in _run(again.source, "SHOW DATABASES")
    os.kill(_pid(lab, "target"), signal.SIGSTOP)  # down must end a stopped server too
    assert len(servers.down(lab)) == 2


def test_down_never_ends_a_stranger(lab):
    lab.mkdir()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        process = identify(stranger.pid)
        record = {
            "server": {
                "host": "127.0.0.1",
                "port": 1,
                "user": "root",
                "flavor": "mysql",
                "version": "",
                "status_port": None,
            },
            "process": {"pid": stranger.pid, "ticks": process.ticks - 1, "boot": process.boot},
            "started": 0.0,
        }
        state = {"format": 1, "backend": "binaries", "servers": {"source": record}}
        (lab / "state.json").write_text(json.dumps(state))
        assert servers.down(lab) == []
        assert is_alive(process)
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "record lost"])
def test_down_leaves_no_ledger(lab, lost):
    if mariadb.find() is None and os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"}:
        pytest.skip("MariaDB is neither on PATH nor in the cache")
    pair = servers.up(lab, "mysql", ledger=True)
    assert servers.running_servers(lab, ledger=True) == pair
    assert [entry.side for entry in servers.status(lab)] == ["source", "target", "ledger"]
    if lost:
        (lab / "state.json").unlink()
    assert [line.split(" (")[0] for line in servers.down(lab)] == [
        "ledger stopped", "target stopped", "source stopped",
    ]  # fmt: skip
    assert processes(lab / "ledger", (mariadb.ENGINE,)) == []
    assert "data of the ledger deleted" in servers.down(lab, purge=True)


def test_a_port_that_somebody_took_is_not_used(lab):
    pair = servers.up(lab, "mysql")
    state = (lab / "state.json").read_text()
    servers.down(lab)
    (lab / "state.json").write_text(state)  # a record of ended servers, as after a restart of the machine
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", pair.source.port))
        taken.listen()
        again = servers.up(lab, "mysql")
        assert again.source.port != pair.source.port
        assert again.target.port == pair.target.port


def test_a_server_that_does_not_start_shows_its_log(lab):
    servers.up(lab, "mysql")
    servers.down(lab)
    (lab / "source" / "data" / "ibdata1").write_bytes(b"garbage")
    with pytest.raises(LabError, match="ended while starting") as caught:
        servers.up(lab, "mysql")
    assert "ibdata1" in caught.value.message
    assert "--purge" in caught.value.hint
    assert _processes(lab) == []


def test_the_commands_on_a_stand_in(lab, monkeypatch):
    monkeypatch.setenv("MIGVERIFY_LAB_DIR", str(lab))

    def run(*arguments):
        answer = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
        assert answer.exit_code == 0, answer.output
        return answer.stdout

    assert "STAND-IN" in run("up", "--target", "mysql")
    assert json.loads(run("status", "--json"))["up"] is True
    assert "integers\t11" in run("load", "museum")
    assert run("load", "tpch", "--scale", "0.001", "--tables", "nation,region") == "region\t5\nnation\t25\n"
    planted = json.loads(run("fault", "row-deleted", "--table", "tpch.nation", "--json"))
    assert planted["rows"][0]["kind"] == "missing_on_target"
    pair = servers.running_servers(lab)
    assert _run(pair.target, "SELECT COUNT(*) FROM tpch.nation") == ((24,),)
    assert _run(pair.source, "SELECT COUNT(*) FROM tpch.nation") == ((25,),)
    assert "deleted" in run("down", "--purge")


def test_tidb_keeps_its_data_and_another_target_is_refused(lab):
    pair = servers.up(lab, "tidb")
    assert not pair.stand_in
    _run(pair.target, "CREATE DATABASE kept")
    with pytest.raises(LabError, match="has a tidb target"):
        servers.up(lab, "mysql")
    servers.down(lab)
    with pytest.raises(LabError, match="holds the data of a tidb target"):
        servers.up(lab, "mysql")
    again = servers.up(lab, "tidb")
    assert ("kept",) in _run(again.target, "SHOW DATABASES")
    assert _run(again.target, "SET SESSION tidb_snapshot = NOW()", "SELECT 1") == ((1,),)
    assert servers.down(lab, purge=True)
    assert sorted(path.name for path in lab.iterdir()) == ["lock"]
