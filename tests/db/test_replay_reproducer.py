"""A difference found, written as a file, and seen again on real servers; gone once it is mended."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.main import run as run_command
from migverify.lab.servers import LabServers
from migverify.model import Endpoint, Side, StoredKind
from migverify.store.open import open_store
from migverify.workload.meaning import Meanings
from migverify.workload.replay.compare import judge
from migverify.workload.replay.model import Asked, Call, Captured, Observation
from migverify.workload.replay.reproducer import read_reproducer
from migverify.workload.replay.store import write_replay
from migverify.workload.replay.tally import Tally
from migverify.workload.replay.verdict import verdict
from migverify.workload.replay.wire import open_wire
from migverify.workload.state import State
from tests.conftest import Databases

pytestmark = pytest.mark.db

TABLE = "CREATE TABLE item (id INT NOT NULL PRIMARY KEY, name VARCHAR(20), bits BIT(4), twice INT AS (id * 2))"


def replayed(pair: LabServers, database: str, store: str, *statements: str) -> str:
    """Ask statements on both sides, judge them, write the run; return its id."""
    tally = Tally()
    meanings = Meanings("mysql", unique_keys={"item": [["id"]]})
    wires = []
    for side, server in ((Side.SOURCE, pair.source), (Side.TARGET, pair.target)):
        wires.append(open_wire(Endpoint(str(side), server.host, server.port, "root"), None, side))
        assert wires[-1].command(b"USE " + database.encode()).ok
    for place, sql in enumerate(statements):
        meaning = meanings.meaning(sql.encode())
        call = Call("s1", place, sql.encode(), meaning.digest, State(database=database), Captured(0), origin="x.log:1")
        source, target = (Asked(wire.run(call), 0, 0, 0) for wire in wires)
        tally.add(judge(Observation(call, (source,), (target,)), meaning))
    for wire in wires:
        wire.close()
    found = verdict(tally)
    with closing(open_store(store)) as opened:
        run = opened.start_run("test", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
        write_replay(opened, run, tally, found)
        opened.finish_run(run, found.verdict, {})
    return run


@pytest.fixture
def place(pair: LabServers, databases: Databases, tmp_path: Path) -> Path:
    databases.both(f"USE `{databases.name}`", TABLE)
    databases.source("INSERT INTO item (id, name, bits) VALUES (1, 'a\nb''', b'101'), (2, NULL, NULL)", "COMMIT")
    databases.target("INSERT INTO item (id, name, bits) VALUES (1, 'a\nb''', b'101'), (2, '', NULL)", "COMMIT")
    config = {
        "source": {"host": pair.source.host, "port": pair.source.port, "user": "root"},
        "target": {"host": pair.target.host, "port": pair.target.port, "user": "root"},
        "tables": {"include": ["*.*"]}, "store": f"sqlite:///{tmp_path}/store.db",
        "workload": {"clone_marker": f"{databases.name}.clone_of_a_drill"},
    }  # fmt: skip
    (tmp_path / "migverify.yaml").write_text(json.dumps(config))
    assert run_command(["workload", "mark-clone", "source", "--name", "t", "--config",
                        str(tmp_path / "migverify.yaml")]) == 0  # fmt: skip
    return tmp_path


class Command:
    """Runs ``workload reproduce`` with the configuration of the test."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys = place, capsys

    def __call__(self, *words: str) -> tuple[int, str]:
        code = run_command(["workload", "reproduce", *words, "--config", str(self.place / "migverify.yaml")])
        told = self.capsys.readouterr()
        return code, told.out or told.err


@pytest.fixture
def command(place: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(place, capsys)


def test_a_finding_is_written_and_seen_again(
    pair: LabServers, databases: Databases, place: Path, command: Command
) -> None:
    data, error = "SELECT id, name FROM item ORDER BY id", "SELECT SQL_CALC_FOUND_ROWS id FROM item LIMIT 1"
    run = replayed(pair, databases.name, f"sqlite:///{place}/store.db", data, error, "SELECT id FROM item")
    code, told = command("--run", run, "--write", str(place / "out"))
    assert code == 0, told
    files = sorted((place / "out").iterdir())
    assert (code, len(files)) == (0, 2), told
    by_text = {read_reproducer(path).call.sql.decode(): path for path in files}
    made = read_reproducer(by_text[data])
    assert made.tables[0].columns == ("id", "name", "bits")
    assert made.tables[0].rows == ((b"1", b"a\nb'", b"\x05"), (b"2", None, None))

    # no scratch database on what may be production
    databases.source("RENAME TABLE clone_of_a_drill TO hidden")
    code, told = command(str(by_text[error]))
    assert code == 2
    assert "not proved to be a rehearsal clone" in told
    databases.source("RENAME TABLE hidden TO clone_of_a_drill")

    # the error hangs on the text: it is there in a database of its own as well
    assert command(str(by_text[error]))[0] == 1
    # the rows were the source's: filled alike, both sides answer alike, so the data differ and not the servers
    code, told = command(str(by_text[data]), "--json")
    assert (code, json.loads(told)["still"]) == (0, "gone")
    code, told = command(str(by_text[data]), "--live")
    assert code == 1, told
    databases.target("UPDATE item SET name = NULL WHERE id = 2", "COMMIT")
    assert command(str(by_text[data]), "--live")[0] == 0
    for server in (databases.source, databases.target):
        assert not server("SHOW DATABASES LIKE 'migverify\\_reproduce'")


def test_what_may_not_be_asked_is_not(pair: LabServers, databases: Databases, place: Path, command: Command) -> None:
    run = replayed(
        pair, databases.name, f"sqlite:///{place}/store.db", "SELECT SQL_CALC_FOUND_ROWS id FROM item LIMIT 1"
    )
    assert command("--run", run, "--write", str(place / "out"))[0] == 0
    (path,) = (place / "out").iterdir()
    body = json.loads(path.read_text())
    for sql, live in (
        (f"UPDATE `{databases.name}`.item SET name = 'x'", False), (f"DELETE FROM {databases.name}.item", False),
        ("UPDATE item SET name = 'x'", True), ("DROP TABLE item", False), ("SELECT * FROM item FOR UPDATE", True),
        ("SELECT 1; DROP TABLE item", False), ("CALL everything()", False),
    ):  # fmt: skip
        body["statement"]["sql"] = sql
        path.write_text(json.dumps(body))
        code, told = command(str(path), *(["--live"] if live else []))
        assert code == 3, (sql, told)
    assert databases.source("SELECT COUNT(*) FROM item WHERE name = 'x'") == [(0,)]
    body["statement"]["sql"] = "SELECT 1"
    path.write_text(json.dumps(body))
    assert command(str(path), "--database", databases.name)[0] == 2
    assert databases.source("SELECT COUNT(*) FROM item") == [(2,)]
    path.write_text("{}")
    code, told = command(str(path))
    assert code == 2
    assert "reproducer.schema.json" in told
