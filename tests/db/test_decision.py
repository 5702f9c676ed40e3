"""``workload decision`` on the real pair: a service whose parts are all fine, then harm that is planted in each."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from migverify.cli.main import run as run_command
from migverify.db.session import open_session
from migverify.decision import read_replays
from migverify.decision.basis import server_text
from migverify.decision.joins import JoinedEvidence
from migverify.model import Endpoint
from migverify.runbook.actions.action import Context, ask
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.model import Check
from tests.conftest import Databases
from tests.db.late_statistics import analyzed, counted_late
from tests.db.test_anomalies import HEAD, SKEW
from tests.db.test_plans import DIGITS

pytestmark = pytest.mark.db

ORDERS = "CREATE TABLE orders (id BIGINT NOT NULL PRIMARY KEY, code VARCHAR(20) NOT NULL, KEY by_code (code))"
ACCOUNTS = "CREATE TABLE accounts (id INT NOT NULL PRIMARY KEY, balance INT NOT NULL)"
FILL = (
    f"INSERT INTO orders SELECT a.d + 10*b.d + 100*c.d + 1000*e.d, CONCAT('k', a.d + 10*b.d + 100*c.d + 1000*e.d)"
    f" FROM {DIGITS} a, {DIGITS} b, {DIGITS} c, {DIGITS} e"
)
READ = "SELECT id, code FROM orders WHERE code = 'k7'"
SCENARIO = {
    "title": "A value", "kinds": ["python"],
    "steps": [{"do": "open"}, {"do": "sql", "sql": "SELECT 1"}, {"do": "close"}],
}  # fmt: skip


class Service:
    """A service with its configuration and its capture; commands run in this process."""

    def __init__(self, databases: Databases, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.databases, self.folder, self._capsys = databases, folder, capsys
        self.config, self.capture = str(folder / "migverify.yaml"), str(folder / "peak")
        pair, name = databases.pair, databases.name
        (folder / "migverify.yaml").write_text(json.dumps({
            "source": {"host": pair.source.host, "port": pair.source.port, "user": "root"},
            "target": {"host": pair.target.host, "port": pair.target.port, "user": "root"},
            "tables": {"include": [f"{name}.*"]}, "store": f"sqlite:///{folder}/store.db",
            "workload": {"folder": str(folder / "replays"), "clone_marker": f"{name}.clones"},
            "decision": {"capture": self.capture, "clients": ["pymysql/none"], "scenarios": ["one-value"]},
        }))  # fmt: skip
        (folder / "scenarios").mkdir()
        (folder / "scenarios" / "one-value.json").write_text(json.dumps(SCENARIO))

    def run(self, words: str, *more: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run_command([*words.split(), *more, "--config", self.config])
        return (code, *self._capsys.readouterr())

    def ok(self, words: str, *more: str) -> str:
        code, out, err = self.run(words, *more)
        if code == 3 and counted_late(self.databases, out):
            code, out, err = self.run(words, *more)
        assert code == 0, f"{words}: {out}\n{err}"
        return out + err

    def replay(self) -> tuple[Path, Path]:
        """Replay with writes, from the accounts of the capture's beginning; return both histories."""
        self.databases.both("REPLACE INTO accounts VALUES (1, 0), (2, 0)", "COMMIT")
        _, _, err = self.run("workload replay", self.capture, "--writes", "--anomalies")
        source, target = err.partition("workload anomalies ")[2].split()[:2]
        return Path(source), Path(target)

    def decide(self) -> tuple[int, dict[str, Any]]:
        code, out, err = self.run("workload decision", "--json")
        assert out, err
        return code, json.loads(out)

    def gather(self) -> tuple[Path, Path]:
        """Give every part its evidence."""
        source, target = self.replay()
        self.ok("workload anomalies", str(source), str(target))
        self.ok("workload explain-conflict", "--replay", str(source.parent))  # there is none
        self.ok("workload plans", self.capture, "--accept-write-grants")
        self.ok("guard hotspots", "--capture", self.capture)
        self.clients()
        return source, target

    def clients(self) -> None:
        words = "workload clients --driver pymysql --pool none --scenario one-value --source-is-scratch --quiet"
        scratch = f"{self.databases.name}_clients"
        self.ok(words, "--scenarios", str(self.folder / "scenarios"), "--database", scratch)


@pytest.fixture
def service(databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Service:
    """Two tables with statistics on both sides, marked as clones, and a capture of reads and writes."""
    made = Service(databases, tmp_path, capsys)
    databases.both(f"USE `{databases.name}`", ORDERS, ACCOUNTS, FILL, "REPLACE INTO accounts VALUES (1, 0), (2, 0)",
                   "COMMIT")  # fmt: skip
    databases.source("ANALYZE TABLE orders, accounts")
    analyzed(databases, "orders", "accounts")
    lines = [
        f"2026-01-02T03:04:00.{session:06d}Z\t    {session} Connect\troot@h on {databases.name} using TCP/IP"
        for session in (1, 2, 3)
    ]
    asked = (*SKEW, *[(3, READ)] * 100)  # rates need 100 statements in 10 seconds
    lines += [f"2026-01-02T03:04:{at // 10:02d}.{at % 10 * 100_000:06d}Z\t    {session} Query\t{sql}"
              for at, (session, sql) in enumerate(asked, 1)]  # fmt: skip
    (tmp_path / "general.log").write_text(HEAD + "\n".join(lines) + "\n")
    assert run_command(["workload", "capture", str(tmp_path / "general.log"), "--out", made.capture]) == 0
    for side in ("source", "target"):
        made.ok("workload replay --mark-clone", side, "--name", "drill")
    return made


@pytest.fixture
def forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every replay has a forecast that holds: it is made of minutes of load, which no test has."""
    joined = JoinedEvidence("", None, None, None, (), "p99 holds")
    monkeypatch.setattr(read_replays, "latency_forecast", lambda *_: joined)


def parts(found: dict[str, Any]) -> dict[str, str]:
    return {one["part"]: one["decision"] for one in found["parts"]}


@pytest.mark.usefixtures("forecast")
def test_a_fine_service_is_go_and_what_is_planted_is_no_go(service: Service) -> None:
    databases = service.databases
    source, target = service.gather()
    code, found = service.decide()
    assert (code, found["decision"], set(parts(found).values())) == (0, "GO", {"GO"}), found["why"]

    # An index that the target lacks: plans say so, and everything else is of definitions that are gone.
    databases.target("ALTER TABLE orders DROP INDEX by_code")
    analyzed(databases, "orders", "accounts")
    assert service.run("workload plans", service.capture, "--accept-write-grants")[0] == 1
    code, found = service.decide()
    assert (code, found["decision"], found["why"][0]["part"]) == (1, "NO-GO", "plans")
    assert "ADD INDEX" in found["why"][0]["remedy"], found["why"][0]
    others = {name: decision for name, decision in parts(found).items() if name != "plans"}
    assert set(others.values()) == {"NOT KNOWN"}
    databases.target("ALTER TABLE orders ADD INDEX by_code (code)")
    analyzed(databases, "orders", "accounts")
    code, found = service.decide()
    assert (code, found["why"][0]["part"]) == (3, "plans"), "the plans are of other definitions"
    service.ok("workload plans", service.capture, "--accept-write-grants")
    assert service.decide()[1]["decision"] == "GO", "and the evidence of before is of these definitions again"

    # A lost update on the target alone: the second session overwrites what the first one wrote.
    target.write_text(lost_update(target.read_text()))
    assert service.run("workload anomalies", str(source), str(target))[0] == 1
    code, found = service.decide()
    assert (code, found["decision"], found["why"][0]["part"]) == (1, "NO-GO", "anomalies")
    assert "lost update" in found["why"][0]["text"]

    # An answer that differs is worse than that.
    databases.target("UPDATE orders SET id = 70007 WHERE code = 'k7'", "COMMIT")
    service.replay()
    code, found = service.decide()
    assert (code, [one["part"] for one in found["why"]][:2]) == (1, ["answers", "anomalies"])
    assert "workload reproduce" in found["why"][0]["remedy"]
    context = Context("r", "s", 1, 1, 120.0, threading.Event(), config=Path(service.config))
    answer = ask(full_registry(), Check(action="decision.go", arguments={}), context)
    assert (answer.state, answer.value) == ("fail", "MISMATCH"), answer
    page = service.folder / "orders.html"
    assert service.run("workload decision", "-o", str(page))[0] == 1
    linked = [path.stem for path in (service.folder / "orders.runs").glob("*.html")]
    assert found["why"][0]["run"] in linked
    assert all(f"./orders.runs/{run}.html" in page.read_text() for run in linked)

    # Without a replay nothing is known of answers, nor of what rests on one.
    remove(service, "replay")
    code, found = service.decide()
    assert (code, found["decision"], found["why"][0]["part"]) == (3, "NOT KNOWN", "answers")
    assert found["why"][0]["text"] == "there is no evidence"
    assert {name for name, decision in parts(found).items() if decision == "NOT KNOWN"} == {
        "answers", "anomalies", "latency", "conflicts",
    }  # fmt: skip


def test_a_server_says_which_it_is_to_an_account_that_reads_one_table_of_the_system(databases: Databases) -> None:
    user, found = f"who{databases.name[-8:]}", {}
    databases.target(f"CREATE USER '{user}'@'%' IDENTIFIED BY ''", f"GRANT SELECT ON mysql.tidb TO '{user}'@'%'")
    try:
        for side, name in (("source", "root"), ("target", "root"), ("account", user)):
            server = databases.pair.source if side == "source" else databases.pair.target
            with open_session(Endpoint(side, server.host, server.port, name), None) as session:
                found[side] = server_text(session)
    finally:
        databases.target(f"DROP USER '{user}'@'%'")
    assert found["source"]
    assert ", made 20" in found["target"], "an embedded TiDB's cluster id is that of any other"
    assert found["account"] == found["target"]


def lost_update(history: str) -> str:
    """Return a history in which both transactions write the item that both had read."""
    head, *lines = history.splitlines()
    bodies = [json.loads(line) for line in lines]
    writers = [one for one in bodies if any(each["kind"] == "write" for each in one["operations"])]
    first, second = ([each for each in one["operations"] if each["kind"] == "write"] for one in writers[:2])
    second[0]["key"] = first[0]["key"]
    return "\n".join([head, *map(json.dumps, bodies)]) + "\n"


def remove(service: Service, kind: str) -> None:
    """Take the runs of a kind out of the store, as if they had never been."""
    engine = create_engine(f"sqlite:///{service.folder}/store.db")
    with engine.begin() as connection:
        gone = f"SELECT run_id FROM migverify_run_kinds WHERE kind = '{kind}'"
        for table in ("migverify_runs", "migverify_run_events", "migverify_plan_parts"):
            connection.execute(text(f"DELETE FROM {table} WHERE run_id IN ({gone})"))
        connection.execute(text(f"DELETE FROM migverify_run_kinds WHERE kind = '{kind}'"))
    engine.dispose()
