"""``workload reproduce`` on real servers: what differed in a replay is asked again, if it reads."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.main import run as run_command
from migverify.model import Endpoint, Side, StoredKind
from migverify.store.open import open_store
from migverify.workload.meaning import Meanings
from migverify.workload.replay.compare import judge
from migverify.workload.replay.model import Call, Captured, Observation, TimedAnswer
from migverify.workload.replay.store import write_replay
from migverify.workload.replay.tally import ReplayTally
from migverify.workload.replay.verdict import verdict
from migverify.workload.replay.wire import open_wire
from migverify.workload.state import SessionState
from migverify_lab.servers import LabServers
from tests.conftest import Databases

pytestmark = pytest.mark.db

TABLE = "CREATE TABLE item (id INT NOT NULL PRIMARY KEY, name VARCHAR(20))"


def replayed(pair: LabServers, database: str, store: str, *statements: str) -> str:
    """Ask statements on both sides, judge them, write the run; return its id."""
    tally = ReplayTally()
    meanings = Meanings("mysql", unique_keys={"item": [["id"]]})
    wires = []
    for side, server in ((Side.SOURCE, pair.source), (Side.TARGET, pair.target)):
        wires.append(open_wire(Endpoint(str(side), server.host, server.port, "root"), None, side))
        assert wires[-1].command(b"USE " + database.encode()).ok
    for place, sql in enumerate(statements):
        meaning = meanings.meaning(sql.encode())
        call = Call(
            "s1", place, sql.encode(), meaning.digest, SessionState(database=database), Captured(0), origin="x.log:1"
        )
        source, target = (TimedAnswer(wire.run(call), 0, 0, 0) for wire in wires)
        tally.add(judge(Observation(call, (source,), (target,)), meaning))
    for wire in wires:
        wire.close()
    found = verdict(tally)
    with closing(open_store(store)) as opened:
        run = opened.start_run("test", "h", {"kind": "replay"}, {}, kind=StoredKind.REPLAY)
        write_replay(opened, run, tally, found)
        opened.finish_run(run, found.verdict, {})
    return run


def test_a_finding_is_seen_again_until_it_is_gone(
    pair: LabServers, databases: Databases, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    databases.both(f"USE `{databases.name}`", TABLE)
    databases.source("INSERT INTO item VALUES (1, 'a'), (2, NULL)", "COMMIT")
    databases.target("INSERT INTO item VALUES (1, 'a'), (2, '')", "COMMIT")
    store = f"sqlite:///{tmp_path}/store.db"
    (tmp_path / "migverify.yaml").write_text(json.dumps({
        "source": {"host": pair.source.host, "port": pair.source.port, "user": "root"},
        "target": {"host": pair.target.host, "port": pair.target.port, "user": "root"},
        "tables": {"include": ["*.*"]}, "store": store,
    }))  # fmt: skip
    data, write = "SELECT id, name FROM item ORDER BY id", "UPDATE item SET name = 'x' WHERE name = ''"
    locking = "SELECT id, name FROM item ORDER BY id FOR UPDATE"
    run = replayed(pair, databases.name, store, data, write, locking, "SELECT id FROM item")
    databases.target("UPDATE item SET name = '' WHERE id = 2", "COMMIT")

    def again(*words: str) -> tuple[int, dict[str, dict[str, object]]]:
        capsys.readouterr()
        config = str(tmp_path / "migverify.yaml")
        code = run_command(["workload", "reproduce", "--run", run, "--config", config, "--json", *words])
        return code, {one["text"]: one for one in json.loads(capsys.readouterr().out)}

    code, found = again()
    assert (code, len(found)) == (1, 3), found
    (read,) = (one for text, one in found.items() if text.startswith("SELECT") and "UPDATE" not in text)
    assert (read["still"], len(read["answers"]), len(read["plans"])) == ("still different", 2, 2)  # type: ignore[arg-type]
    assert read["answers"] == read["answers_then"]
    assert [one["still"] for one in found.values() if "UPDATE" in str(one["text"])] == ["cannot be told"] * 2
    assert databases.target("SELECT COUNT(*) FROM item WHERE name = 'x'") == [(0,)]
    databases.target("UPDATE item SET name = NULL WHERE id = 2", "COMMIT")
    assert again("--digest", str(read["digest"])[:16])[0] == 0
    assert again()[0] == 3  # the others cannot be asked
    assert run_command(["workload", "reproduce", "--run", run, "--digest", "ffff", "--config",
                        str(tmp_path / "migverify.yaml")]) == 2  # fmt: skip
