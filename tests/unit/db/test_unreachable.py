"""A server that cannot be reached ends every command that needs it with exit code 3 and one message."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest
import yaml

from migverify.changes.carriers import kafka, topics
from migverify.cli.main import run
from migverify.db.failures import connect_failure
from migverify.db.session import open_session
from migverify.errors import ExitCode, LoginError, MigverifyError, UnreachableError
from migverify.model import Endpoint, Tls
from migverify.store.open import open_store
from tests.pages import command_lines

CONNECTING = {
    "init": "init --source mysql://root@{at} --target tidb://root@{at} -o new.yaml",
    "tables plan": "tables plan", "tables verify": "tables verify",
    "tables diff": "tables diff last --store {store}", "status": "status last --store {store}",
    "tables repair": "tables repair last --out r.sql", "tables watch": "tables watch",
    "tables loss": "tables loss", "tables armed": "tables armed",
    "changes tail": "changes tail", "changes check": "changes check", "changes audit": "changes audit",
    "changes tail --carrier": "changes tail --format canal-json --kafka {at} --topic t",
    "changes audit --carrier": "changes audit --format canal-json --kafka {at} --topic t",
    "changes audit --pipeline": "changes audit --pipeline --format canal-json --kafka {at} --topic t",
    "changes archive": "changes archive --to archive",
    "recon init": "recon init -o new.yaml", "recon check": "recon check", "recon run": "recon run",
    "recon explain": "recon explain", "recon watch": "recon watch --once",
    "workload explain-conflict": "workload explain-conflict {conflict} -c migverify.yaml",
    "workload capture --poll": "workload capture --poll --out polled",
    "workload sessions": "workload sessions --out s.json",
    "workload plans": "workload plans captures/one", "workload decision": "workload decision captures/one",
    "workload replay": "workload replay captures/one",
    "workload replay --nightly": "workload replay --nightly captures",
    "workload replay --follow": "workload replay --follow general.log --once",
    "workload probe": "workload probe", "workload reproduce": "workload reproduce --run last --store {store}",
    "workload replay --mark-clone": "workload replay --mark-clone target --name drill",
    "workload clients": "workload clients",
    "check": "check", "guard settings": "guard settings", "guard ids": "guard ids", "guard schema": "guard schema",
    "guard schema --snapshot": "guard schema --snapshot", "guard schema --watch": "guard schema --baseline last",
    "guard monitors": "guard monitors --sql", "guard capacity": "guard capacity",
    "guard hotspots": "guard hotspots", "guard plans": "guard plans --capture captures/one",
    "report": "report last --store {store}",
}  # fmt: skip
"""Command -> arguments with which it asks a server, a store or a broker."""

FILES_ONLY = {
    "config", "config --schema", "config --keys", "config --waivers", "workload capture", "workload capture --quality",
    "workload digest", "workload anomalies", "runbook readiness --dr", "runbook traffic init", "mcp",
}  # fmt: skip

BY_A_RUNBOOK = {
    f"runbook {name}" for name in (
        "check", "readiness", "readiness --watch", "run", "status", "ack", "ack --note", "approve", "reject", "retry",
        "waive", "waive --happened", "handover", "handover --takeover", "hold", "resume", "rollback", "abort", "serve",
        "report",
        "report --compare", "report --export", "report --verify", "traffic set", "traffic abort",
        "traffic show",
    )
}  # fmt: skip
"""Servers are asked by the gates and actions of a runbook, which judge silence themselves."""

BY_A_FLEET = {
    "fleet status": "fleet status", "fleet board": "fleet board -o board.txt", "fleet verify": "fleet verify",
}  # fmt: skip
"""A server or store that is away is the reason of its service."""

LOG = """\
/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:
Tcp port: 3306  Unix socket: /tmp/mysql.sock
Time                 Id Command    Argument
2026-01-01T00:00:00.000000Z\t    8 Connect\tapp@localhost on app using TCP/IP
2026-01-01T00:00:00.100000Z\t    8 Query\tSELECT 1
2026-01-01T00:00:00.200000Z\t    8 Quit\t
"""
CONFLICT = (
    "Write conflict, txnStartTS=470606899199344640, conflictStartTS=470606899199606784,"
    " conflictCommitTS=470606899199868928, key={tableID=143, handle=1} primary={tableID=143, handle=1}"
    " [try again later]"
)


def test_every_command_is_known_to_connect_or_not() -> None:
    assert set(command_lines()) == {*CONNECTING, *FILES_ONLY, *BY_A_RUNBOOK, *BY_A_FLEET}


@pytest.mark.parametrize("command", BY_A_FLEET)
def test_of_a_fleet_it_is_exit_code_3_and_the_reason_of_its_service(
    folder: Path, port: int, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    store = {}
    if command != "fleet verify":  # the endpoints lie elsewhere, or the store would be refused for lying on one
        store = {"store": f"mysql+pymysql://u@127.0.0.1:{port}/x"}
        (folder / "migverify.yaml").write_text(
            "source: {url: 'mysql://root@db:1'}\ntarget: {url: 'tidb://root@db:2'}\n"
        )
    (folder / "fleet.yaml").write_text(yaml.safe_dump({
        "schema_version": 1, "waves": [{"name": "w", "window": {"start": "2030-01-01T00:00", "duration": "1h"}}],
        "services": [{"name": "orders", "owner": "us", "wave": "w", "config": "migverify.yaml", **store}],
    }))  # fmt: skip
    assert run(BY_A_FLEET[command].split()) == ExitCode.INCONCLUSIVE
    out, err = capfd.readouterr()
    said = out + ((folder / "board.txt").read_text() if command == "fleet board" else "")
    assert "orders" in said
    assert "connect" in said
    assert "Traceback" not in err


@pytest.fixture
def port() -> Iterator[int]:
    """A port that nothing listens on, and that nobody else gets meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def folder(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    config = {
        "source": {"url": f"mysql://root@127.0.0.1:{port}"}, "target": {"url": f"tidb://root@127.0.0.1:{port}"},
        "limits": {"retries": 0, "retry_seconds": 0.05}, "workload": {"clone_marker": "m.clones"},
        "monitors": {"prometheus": f"http://127.0.0.1:{port}", "jobs": {"tidb": 1}},
    }  # fmt: skip
    (tmp_path / "migverify.yaml").write_text(yaml.safe_dump(config))
    sides = {side: {"endpoint": end, "table": "d.t", "key": "id", "time": "created"}
             for side, end in (("a", "source"), ("b", "target"))}  # fmt: skip
    rule = {"name": "both", "kind": "same_rows", "source": "a", "target": "b", "compare": "amount", "window": "1h"}
    rules = {"version": "recon/v1", "defaults": {"owner": "pay", "settle": "30s"}, "datasets": sides, "rules": [rule]}
    (tmp_path / "recon.yaml").write_text(yaml.safe_dump(rules))
    (tmp_path / "general.log").write_text(LOG)
    (tmp_path / "captures").mkdir()
    assert run(["workload", "capture", "general.log", "--out", "captures/one"]) == 0
    capfd.readouterr()
    return tmp_path


TWINS = {
    "tables plan",
    "tables diff",
    "report",
    "recon init",
    "recon explain",
    "workload replay --nightly",
    "workload replay --mark-clone",
    "guard schema --snapshot",
    "guard schema --watch",
}
"""Commands that reach their server in the way of another one."""


@pytest.mark.parametrize("command", [pytest.param(c, marks=pytest.mark.soak) if c in TWINS else c for c in CONNECTING])
def test_a_closed_port_is_exit_code_3_and_one_message(
    folder: Path, port: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for module in (kafka, topics):  # a broker is given time to answer, 30 s
        monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    at = f"127.0.0.1:{port}"
    known = {"{at}": at, "{store}": f"mysql+pymysql://u@{at}/x", "{conflict}": CONFLICT}
    words = CONNECTING[command].split()
    if "{store}" in words:  # the endpoints lie elsewhere, or the store would be refused for lying on one
        config = yaml.safe_load((folder / "migverify.yaml").read_text())
        config["source"], config["target"] = {"url": "mysql://root@db:1"}, {"url": "tidb://root@db:2"}
        (folder / "migverify.yaml").write_text(yaml.safe_dump(config))
    for name, text in known.items():
        words = [text if word == name else word.replace(name, text) for word in words]
    code = run(words)
    output, messages = capfd.readouterr()
    said = output + messages
    assert code == ExitCode.INCONCLUSIVE, said
    assert at in said
    assert "Traceback" not in said
    remedies = ("Check host", "Check the servers", "Check its host", "Check monitors.prometheus")
    assert any(remedy in said for remedy in remedies), said


CHOOSING = (
    "tables plan", "tables verify", "tables watch", "tables repair last --out repair", "changes tail", "changes audit",
    "changes tail --format canal-json --kafka {at} --topic t",
    "changes audit --format canal-json --kafka {at} --topic t",
)  # fmt: skip
"""Commands that take patterns of tables, beside `tables diff`, which looks for its run first."""


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("command", CHOOSING)
def test_a_pattern_that_is_none_is_a_usage_error_before_any_server_is_asked(
    port: int, capfd: pytest.CaptureFixture[str], command: str
) -> None:
    words = command.replace("{at}", f"127.0.0.1:{port}").split()
    for pattern in ("nodot", "`shop.eu.items"):
        assert run([*words, "--tables", pattern]) == ExitCode.USAGE
        said = "".join(capfd.readouterr())
        assert f"--tables {pattern}: " in said
        assert "'`shop.eu`.items'" in said
        assert "bug" not in said


def endpoint(port: int, host: str = "127.0.0.1", tls: Tls | None = None) -> Endpoint:
    return Endpoint("source", host, port, "root", tls=tls or Tls())


def answering(answer: bytes) -> Iterator[int]:
    """A server that says one thing to everybody, and reads what comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    taken, _ = listening.accept()
                except OSError:
                    return
                with taken:
                    taken.sendall(answer)
                    taken.settimeout(5)
                    if answer:
                        taken.recv(4096)

        threading.Thread(target=serve, daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def greeting(capabilities: int) -> bytes:
    low, high = capabilities & 0xFFFF, capabilities >> 16
    body = b"\x0a8.0.36\0" + (7).to_bytes(4, "little") + b"abcdefgh\0" + low.to_bytes(2, "little") + b"\xff\x02\0"
    body += high.to_bytes(2, "little") + b"\x15" + b"\0" * 10 + b"ijklmnopqrst\0" + b"mysql_native_password\0"
    return len(body).to_bytes(3, "little") + b"\0" + body


WITHOUT_TLS = greeting(0x0008A201 | 0x00080000)
WITH_TLS = greeting(0x0008AA01 | 0x00080000)


def refusal(code: int, text: bytes) -> bytes:
    body = b"\xff" + code.to_bytes(2, "little") + b"#HY000" + text
    return len(body).to_bytes(3, "little") + b"\0" + body


TOO_MANY = refusal(1040, b"Too many connections")
BLOCKED = refusal(1130, b"Host is not allowed to connect to this MySQL server")


def opened_by_all(end: Endpoint) -> Iterator[Callable[[], object]]:
    yield lambda: open_session(end, None)
    url = f"mysql+pymysql://u@{end.host}:{end.port}/x"
    yield lambda: open_store(url, tls=end.tls)


@pytest.mark.parametrize(
    ("answer", "mode", "words"),
    [
        (b"", "preferred", "cannot connect"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "preferred", "cannot connect"),
        (WITHOUT_TLS, "required", "TLS"),
        (WITH_TLS, "required", "TLS"),
        (TOO_MANY, "preferred", "no connection is left"),
    ],
    ids=["hangs up", "another protocol", "no TLS", "TLS breaks off", "full"],
)
def test_a_server_with_which_no_session_can_be_made_is_unreachable(answer: bytes, mode: str, words: str) -> None:
    for port in answering(answer):
        end = endpoint(port, tls=Tls(mode))
        with pytest.raises(UnreachableError, match=words) as caught:
            open_session(end, None)
        assert f"root@127.0.0.1:{port}" in caught.value.message
        assert caught.value.hint
        for attempt in opened_by_all(end):
            with pytest.raises(MigverifyError) as other:
                attempt()
            assert other.value.exit_code == ExitCode.INCONCLUSIVE


def test_a_name_that_no_host_has_is_unreachable() -> None:
    for attempt in opened_by_all(endpoint(3306, "db.invalid")):
        with pytest.raises(MigverifyError, match=r"db\.invalid") as caught:
            attempt()
        assert caught.value.exit_code == ExitCode.INCONCLUSIVE


def test_a_refused_login_is_a_wrong_configuration() -> None:
    for port in answering(BLOCKED):
        for attempt in opened_by_all(endpoint(port)):
            with pytest.raises(MigverifyError, match="Host is not allowed") as caught:
                attempt()
            assert caught.value.exit_code == ExitCode.USAGE


@pytest.mark.parametrize("code", [1045, 1698, 1130, 1049, 3118, 1862, 3159])
def test_every_refusal_of_a_login_is_a_login_error(code: int) -> None:
    error = connect_failure(endpoint(1), pymysql.err.OperationalError(code, "no"))
    assert isinstance(error, LoginError)
    assert error.exit_code == ExitCode.USAGE
