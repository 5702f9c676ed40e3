"""``migverify fleet`` on the real pair: two services, one with a planted fault; a budget; kill -9 and resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run as run_command
from tests.conftest import Databases
from tests.waiting import wait_for

pytestmark = pytest.mark.db

TABLE = "CREATE TABLE {name} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, note VARCHAR(20) NOT NULL)"
ROWS = ", ".join(["('x')"] * 500)
SERVICES = ("orders", "users")
BUDGET = 4
"""What one verification with two connections may open to a server: so they run one after the other."""


class RealFleet:
    """Two services of one pair, each with a table of its own."""

    def __init__(self, databases: Databases, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.databases, self.folder, self._capsys = databases, folder, capsys
        pair, name = databases.pair, databases.name
        for service in SERVICES:
            databases.both(TABLE.format(name=service))
            databases.both(f"INSERT INTO {service} (note) VALUES {ROWS}", "COMMIT")
            (folder / f"{service}.json").write_text(json.dumps({
                "source": {"host": pair.source.host, "port": pair.source.port, "user": "root", "connections": 2},
                "target": {"host": pair.target.host, "port": pair.target.port, "user": "root", "connections": 2},
                "tables": {"include": [f"{name}.{service}"]}, "store": f"sqlite:///{folder}/{service}.db",
                "limits": {"chunk_rows": 50, "max_chunk_rows": 50, "pause_file": str(folder / "pause")},
                "recheck": {"delay": 0.1, "rounds": 1},
            }))  # fmt: skip
        servers = [f"{one.host}:{one.port}" for one in (pair.source, pair.target)]
        self.path = folder / "fleet.yaml"
        self.path.write_text(json.dumps({
            "schema_version": 1, "requires": ["proof", "ids"],
            "waves": [{"name": "first", "window": {"start": "2030-01-01T22:00", "duration": "4h"}}],
            "limits": {"connections": dict.fromkeys(servers, BUDGET)},
            "services": [{"name": one, "owner": "us", "wave": "first", "config": f"{one}.json"} for one in SERVICES],
        }))  # fmt: skip

    def run(self, words: str) -> tuple[int, str]:
        self._capsys.readouterr()
        code = run_command([*words.split(), "--fleet", str(self.path)])
        return code, self._capsys.readouterr().out

    def status(self) -> dict[str, Any]:
        found = json.loads(self.run("fleet status --json")[1])
        return {one["service"]: one for one in found["services"]}

    def verified(self, options: str = "") -> dict[str, Any]:
        found = json.loads(self.run(f"fleet verify --json {options}")[1])
        return {one["service"]: one for one in found["services"]}


@pytest.fixture
def fleet(databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> RealFleet:
    return RealFleet(databases, tmp_path, capsys)


class Sampler(threading.Thread):
    """Counts the sessions of a server that are new, while others work; keeps the most."""

    def __init__(self, connection: Any) -> None:
        super().__init__(daemon=True)
        self.connection, self.most, self.done = connection, 0, threading.Event()
        self.before = self.sessions()  # some of them may end meanwhile

    def sessions(self) -> set[int]:
        with self.connection.cursor() as cursor:
            cursor.execute("SELECT id FROM information_schema.processlist WHERE user = 'root'")
            return {int(row[0]) for row in cursor.fetchall()}

    def run(self) -> None:
        while not self.done.wait(0.01):
            self.most = max(self.most, len(self.sessions() - self.before))


def test_two_services_are_proved_within_the_budget_and_the_fault_of_one_is_its_reason_alone(fleet: RealFleet) -> None:
    from migverify_lab.session import connect

    fleet.databases.target("UPDATE users SET note = 'y' WHERE id = 77", "COMMIT")
    assert {one["standing"] for one in fleet.status().values()} == {"NOT KNOWN"}
    samplers = [Sampler(connect(server)) for server in (fleet.databases.pair.source, fleet.databases.pair.target)]
    for sampler in samplers:
        sampler.start()
    code, out = fleet.run("fleet verify")
    for sampler in samplers:
        sampler.done.set()
        sampler.join()
        sampler.connection.close()
    assert all(0 < sampler.most <= BUDGET for sampler in samplers)
    assert code == 1, out
    assert "MISMATCH: 1 of 2 services" in out.splitlines()
    for service in SERVICES:
        assert run_command(["guard", "ids", "--config", str(fleet.folder / f"{service}.json")]) == 0
    found = fleet.status()
    assert (found["orders"]["standing"], found["users"]["standing"]) == ("READY", "NOT READY"), found["orders"]
    assert found["users"]["sentence"].startswith("Proof: 1 table differs in run ")
    assert found["users"]["mismatches"] == 1
    fleet.databases.target("UPDATE users SET note = 'x' WHERE id = 77", "COMMIT")
    again = fleet.verified()
    assert (again["orders"]["action"], again["users"]["action"]) == ("reuse", "recheck")
    assert {one["verdict"] for one in again.values()} == {"MATCH"}
    assert {one["standing"] for one in fleet.status().values()} == {"READY"}


def test_two_names_of_a_server_are_one_budget(fleet: RealFleet) -> None:
    pair = fleet.databases.pair
    config = json.loads((fleet.folder / "users.json").read_text())
    assert {config[side]["host"] for side in ("source", "target")} == {"127.0.0.1"}
    for side in ("source", "target"):
        config[side]["host"] = "localhost"
    (fleet.folder / "users.json").write_text(json.dumps(config))
    code, out = fleet.run("fleet verify --plan")
    assert code == 0, out
    needs = [f"{BUDGET} to 127.0.0.1:{one.port} = localhost:{one.port}" for one in (pair.source, pair.target)]
    assert all(all(line.count(each) == 1 for each in needs) for line in out.splitlines()), out


def test_a_change_on_the_target_alone_is_found_by_a_quick_answer_and_by_a_whole_read(fleet: RealFleet) -> None:
    options = ["--config", str(fleet.folder / "users.json")]
    known = json.loads(fleet.path.read_text())
    fleet.path.write_text(json.dumps({**known, "requires": ["proof"], "proof_max_age": "1ms"}))
    assert fleet.verified("-s users")["users"]["action"] == "whole"

    def rests_on_a_whole_read() -> bool:
        fleet.verified("-s users")
        users = fleet.status()["users"]
        return bool(users["whole_read_age_seconds"] > users["parts"][0]["age_seconds"])

    wait_for(rests_on_a_whole_read, "the table is not young any more, and is not read whole")
    fleet.databases.target("DELETE FROM users WHERE id = 77", "COMMIT")
    # No binlog has the row: a proof of what was written since cannot see it, and says on what it rests.
    found = fleet.verified("-s users")["users"]
    assert found["action"] == "since"
    assert found["reason"].startswith("the last full proof does not count: it is "), (
        "nothing counts for so short a time"
    )
    fleet.path.write_text(json.dumps({**known, "requires": ["proof"]}))
    users = fleet.status()["users"]
    assert users["standing"] == "READY"
    assert users["whole_read_age_seconds"] > users["parts"][0]["age_seconds"]
    assert run_command(["tables", "verify", "--level", "counts", *options]) == 1
    assert fleet.status()["users"]["standing"] == "NOT READY"
    found = fleet.verified("-s users")["users"]
    assert (found["action"], found["verdict"]) == ("whole", "MISMATCH")


def test_a_table_that_was_altered_and_mended_is_proved_by_the_next_one(fleet: RealFleet) -> None:
    """It ended INCONCLUSIVE each time: the recheck was refused, and its run could not be resumed."""
    fleet.databases.target("ALTER TABLE users DROP COLUMN note")
    assert fleet.verified("-s users")["users"]["verdict"] == "MISMATCH"
    fleet.databases.target("ALTER TABLE users ADD COLUMN note VARCHAR(20) NOT NULL DEFAULT 'x'")
    users = fleet.verified("-s users")["users"]
    assert (users["action"], users["verdict"]) == ("recheck", "MATCH"), users
    # One table too many, which is dropped: its recheck would have nothing to read.
    config = json.loads((fleet.folder / "orders.json").read_text())
    config["tables"]["include"].append(f"{fleet.databases.name}.extra*")
    (fleet.folder / "orders.json").write_text(json.dumps(config))
    fleet.databases.both(TABLE.format(name="extra"))
    fleet.databases.target(TABLE.format(name="extra2"))
    assert fleet.verified("-s orders")["orders"]["verdict"] == "MISMATCH"
    fleet.databases.target("DROP TABLE extra2")
    orders = fleet.verified("-s orders")["orders"]
    assert (orders["action"], orders["verdict"]) == ("whole", "MATCH"), orders
    assert f"{fleet.databases.name}.extra2: the table or its configuration changed since run" in orders["reason"]


def children(folder: Path) -> list[int]:
    """Return the processes that verify services of a folder."""
    found = []
    for one in Path("/proc").iterdir():
        if one.name.isdigit():
            try:
                words = (one / "cmdline").read_bytes()
            except OSError:
                continue
            if b"verify_child" in words and str(folder).encode() in words:
                found.append(int(one.name))
    return found


def begun(folder: Path) -> bool:
    """Whether a verification of the first service is in its store."""
    from migverify.store.open import open_store

    if not (folder / "orders.db").exists():
        return False
    with closing(open_store(f"sqlite:///{folder}/orders.db")) as store:
        return bool(store.runs())


def test_after_kill_9_no_child_is_left_and_the_next_one_resumes(fleet: RealFleet) -> None:
    (fleet.folder / "pause").touch()
    command = [sys.executable, "-m", "migverify", "fleet", "verify", "--fleet", str(fleet.path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: begun(fleet.folder), "the first verification begins")
        assert len(children(fleet.folder)) == 1, "the second one waits for connections"
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    wait_for(lambda: not children(fleet.folder), "no child outlives it")
    assert "was cut off" in fleet.status()["orders"]["sentence"]
    (fleet.folder / "pause").unlink()
    found = fleet.verified()
    assert (found["orders"]["action"], found["users"]["action"]) == ("resume", "whole")
    assert {one["verdict"] for one in found.values()} == {"MATCH"}
