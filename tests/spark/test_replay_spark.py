"""A replay on Spark comes to the tally of a local one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.db.session import open_session
from migverify.model import Endpoint, Side
from migverify.spark.replay_engine import PlayParts, intend, replay_on_spark
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.engine import Start
from migverify.workload.replay.keys import read_keys
from migverify.workload.replay.model import Judgement
from migverify.workload.replay.outcomes import UNKNOWN, begin_attempt, judged
from migverify.workload.replay.pace import parse_pace
from migverify.workload.replay.plan import read_plan
from migverify.workload.replay.run import partition, prepare, remaining, replay
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import Leave, ReplayEndpoints
from migverify.workload.replay.touches import TableKeys
from migverify.workload.statement_files import read_columns
from tests.replay_load import Line, captured, payments, setup

if TYPE_CHECKING:
    from tests.conftest import Databases

pytestmark = pytest.mark.spark

SESSIONS = 6


def sides(databases: Databases) -> ReplayEndpoints:
    pair = databases.pair
    return ReplayEndpoints({
        Side.SOURCE: Endpoint("source", pair.source.host, pair.source.port, "root", connections=6),
        Side.TARGET: Endpoint("target", pair.target.host, pair.target.port, "root", connections=6),
    })  # fmt: skip


def load(databases: Databases) -> None:
    for connection in databases.connections:
        with connection.cursor() as cursor:
            for statement in setup(databases.name, SESSIONS):
                cursor.execute(statement)
        connection.commit()


def counts(tally: Any) -> dict[str, Any]:
    return {
        digest: ({state: one.state(state) for state in Judgement}, sorted(one.aspects))
        for digest, one in tally.digests.items()
    }


@pytest.mark.db
@pytest.mark.parametrize("writes", [False, True])
def test_spark_and_local_come_to_one_tally(databases: Databases, sessions: Any, tmp_path: Path, writes: bool) -> None:
    lines = [
        *payments(databases.name, SESSIONS, 4),
        *(Line(90 + n, n, "SELECT SQL_CALC_FOUND_ROWS 1 LIMIT 1") for n in range(3)),
    ]
    capture = captured(lines, databases.name, tmp_path)
    load(databases)
    with open_session(sides(databases).endpoints[Side.SOURCE], None) as session:
        keys = read_keys(session, [databases.name])
    tallies = []
    for name in ("local", "spark"):
        load(databases)
        folder = tmp_path / name
        made = read_plan(capture, folder, read_columns, leave=Leave(writes=writes), keys=keys)
        options = EngineOptions(pace=parse_pace("fast"), connections=6, writes=writes)
        if name == "local":
            result = replay(folder, sides(databases), options)
        else:
            result = replay_on_spark(folder, sides(databases), options, None, {}, jobs=3, session=sessions.get())
        assert result.unfinished == ()
        assert result.tally.count == made.calls == len(lines)
        assert result.counters.ended == made.calls
        tallies.append(counts(result.tally))
    assert tallies[0] == tallies[1]
    assert any(states[Judgement.DIFFERENT] for states, _ in tallies[0].values())


def test_conflicting_sessions_share_a_part(tmp_path: Path) -> None:
    texts = ["UPDATE d.t SET v = v + 1 WHERE id = {}", "SELECT v FROM d.t WHERE id = {}"]
    lines = [
        Line(session, 1000 * number + 10 * session, texts[number % 2].format(session // 2))
        for session in range(1, 9) for number in range(6)
    ]  # fmt: skip
    capture = captured(lines, "d", tmp_path)
    keys = {"d.t": TableKeys(("id",), integers=frozenset({"id"}))}
    read_plan(capture, tmp_path, read_columns, leave=Leave(writes=True), keys=keys)
    with RunFile(tmp_path) as run:
        dealt = partition(run, 4, remaining(run)[0])
        names = [{int(run.session_name(number).split("/")[1]) // 2 for number in part} for part in dealt]
    assert sum(len(part) for part in dealt) == 8
    assert all(not (one & other) for one in names for other in names if one is not other)


def test_a_second_attempt_of_a_task_plays_nothing() -> None:
    task = PlayParts("none.sqlite", 1, {}, {}, EngineOptions(), Start(0), 0)
    assert [kind for kind, _ in task._play(0, again=True)] == ["failed"]


def test_writes_of_a_lost_part_are_never_run_again(tmp_path: Path) -> None:
    lines = [Line(1, n * 1000, sql) for n, sql in enumerate(["BEGIN", "DELETE FROM d.t", "COMMIT", "SELECT 1"])]
    capture = captured(lines, "d", tmp_path)
    read_plan(capture, tmp_path / "run", read_columns, leave=Leave(writes=True))
    with RunFile(tmp_path / "run") as run:
        prepare(run, resume=False)
        intend(run)
        begin_attempt(run)
        found = dict(judged(run))
    assert found.keys() >= {1, 2}
    assert {one.reason for one in found.values()} == {UNKNOWN}
