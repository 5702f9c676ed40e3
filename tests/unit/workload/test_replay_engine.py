"""The engine on servers that are functions: order, connections, what is asked again, what a lost connection costs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.model import Side
from migverify.workload.anomalies.history import read_history
from migverify.workload.anomalies.model import Commitment
from migverify.workload.anomalies.record import write_histories
from migverify.workload.replay import session as session_module
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.model import Answer, Call, Judgement
from migverify.workload.replay.outcomes import begin_seeing
from migverify.workload.replay.pace import Pace, PaceKind, parse_pace
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.session import LOST
from migverify.workload.replay.touches import TableKeys
from migverify.workload.replay.value_codes import value_hash
from tests.unit.replay_fakes import WRITES, FakeServers, engine, planned, row, value

FAST = EngineOptions(pace=Pace(PaceKind.FAST), connections=4, grace=1.0)
KEYS = {"d.t": TableKeys(("id",), integers=frozenset({"id"}))}


def test_both_sides_are_asked_in_order(tmp_path: Path) -> None:
    planned([row("a", n, f"SELECT v FROM t WHERE id = {n}", 100 * n) for n in range(5)], tmp_path)
    servers = FakeServers()
    made, found = engine(tmp_path, servers, FAST)
    assert servers.calls(Side.SOURCE) == servers.calls(Side.TARGET) == [("a", n) for n in range(5)]
    assert [one.state for one in found] == [Judgement.SAME] * 5
    assert servers.opened == 2
    assert (made.counters.ended, made.counters.flying, made.counters.connections) == (5, 0, 0)


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, object]]:
    found = []
    for session in range(draw(st.integers(2, 4))):
        clock = draw(st.integers(0, 40))
        for position in range(draw(st.integers(1, 5))):
            key, took = draw(st.integers(1, 2)), draw(st.integers(0, 20))
            sql = draw(st.sampled_from(["SELECT v FROM t WHERE id = {}", "UPDATE t SET v = 1 WHERE id = {}"]))
            found.append(row(f"s{session}", position, sql.format(key), clock, took))
            clock += took + draw(st.integers(0, 30))
    return found


@settings(max_examples=10)
@given(made=rows(), connections=st.integers(1, 3), window=st.integers(1, 10))
def test_every_wait_of_the_plan_is_kept(
    tmp_path_factory: pytest.TempPathFactory, made: list[dict[str, object]], connections: int, window: int
) -> None:
    folder = tmp_path_factory.mktemp("engine")
    planned(made, folder, leave=WRITES, keys=KEYS)
    servers = FakeServers()
    options = replace(FAST, connections=connections, window=window, writes=True)
    played, found = engine(folder, servers, options)
    assert played.counters.forced == 0
    assert len(found) == len(made)
    assert servers.most <= connections
    order = {each: place for place, each in enumerate(servers.calls())}
    with RunFile(folder) as run:
        for planned_call in run.calls():
            call = planned_call.call
            for other in planned_call.waits:
                before = run.read(other).call
                assert order[before.session, before.position] < order[call.session, call.position]


def test_a_read_that_differs_once_is_asked_again(tmp_path: Path) -> None:
    planned([row("a", 0, "SELECT v FROM t", 0)], tmp_path)

    def moving(side: Side, call: Call, times: int) -> Answer:
        del call
        return value("old" if side is Side.TARGET and times == 1 else "new")

    servers = FakeServers(moving)
    _, (found,) = engine(tmp_path, servers, FAST)
    assert found.state is not Judgement.DIFFERENT
    assert found.repeats > 1


def test_a_read_that_keeps_differing_is_different(tmp_path: Path) -> None:
    planned([row("a", 0, "SELECT v FROM t", 0), row("a", 1, "UPDATE t SET v = 2", 100)], tmp_path, leave=WRITES)
    servers = FakeServers(lambda side, _call, _times: value(side.value))
    _, found = engine(tmp_path, servers, replace(FAST, writes=True))
    assert [one.state for one in found] == [Judgement.DIFFERENT, Judgement.DIFFERENT]
    assert found[0].repeats == 2
    assert servers.calls() == [("a", 0), ("a", 0), ("a", 1)]  # a write is never asked again
    assert [one.written for one in found] == [False, True]


def test_noise_asks_a_share_twice(tmp_path: Path) -> None:
    planned([row("a", n, f"SELECT {n}", n) for n in range(40)], tmp_path)
    servers = FakeServers()
    _, found = engine(tmp_path, servers, replace(FAST, noise=0.5))
    twice = [one.position for one in found if one.repeats == 2]
    assert 5 < len(twice) < 35
    assert all(one.details.get("sampled") == "1" for one in found if one.repeats == 2)
    assert len(servers.calls()) == 40 + len(twice)


def test_a_lost_connection_costs_its_transaction(tmp_path: Path) -> None:
    texts = ["BEGIN", "UPDATE t SET v = 1", "SELECT v FROM t", "COMMIT", "SELECT 5"]
    planned(
        [row("a", n, sql, 100 * n, in_transaction=0 < n < 4) for n, sql in enumerate(texts)], tmp_path, leave=WRITES
    )

    def losing(side: Side, call: Call, times: int) -> Answer | None:
        del times
        return None if side is Side.TARGET and call.sql.startswith(b"UPDATE") else value("1")

    servers = FakeServers(losing)
    _, found = engine(tmp_path, servers, replace(FAST, writes=True))
    assert [one.state for one in found] == [
        Judgement.SAME, Judgement.UNJUDGED, Judgement.UNJUDGED, Judgement.UNJUDGED, Judgement.SAME,
    ]  # fmt: skip
    assert LOST in found[2].reason
    assert servers.calls() == [("a", 0), ("a", 1), ("a", 4)]  # nothing of it runs outside its transaction


def test_a_session_gets_its_state_back(tmp_path: Path) -> None:
    planned([row("a", 3, "SELECT 1", 0, sql_mode="ANSI", time_zone="+09:00")], tmp_path)
    servers = FakeServers()
    engine(tmp_path, servers, FAST)
    said = [sql for side, _, _, sql in servers.sent if side is Side.TARGET]
    assert said == [
        "USE `d`", "SET SESSION sql_mode='ANSI'", "SET SESSION time_zone='+09:00'",
        "SET SESSION TRANSACTION READ ONLY", "SELECT 1",
    ]  # fmt: skip


def test_a_state_that_is_refused_leaves_the_call_unjudged(tmp_path: Path) -> None:
    planned([row("a", 0, "SELECT 1", 0, sql_mode="FAIL")], tmp_path)
    servers = FakeServers(
        lambda _side, call, _times: Answer(errno=1231, message="no") if b"FAIL" in call.sql else value("1")
    )
    _, (found,) = engine(tmp_path, servers, FAST)
    assert found.state is Judgement.UNJUDGED
    assert "state could not be set" in found.reason


@pytest.mark.parametrize("lost", [False, True])
def test_a_write_is_asked_on_neither_side_when_one_refuses_the_state(tmp_path: Path, lost: bool) -> None:
    planned([row("a", 0, "UPDATE t SET v = 1", 0, sql_mode="FAIL")], tmp_path, leave=WRITES)

    def script(side: Side, call: Call, times: int) -> Answer | None:
        del times
        if b"FAIL" in call.sql and side is Side.TARGET:
            return None if lost else Answer(errno=1231, message="no")
        return value("1")

    servers = FakeServers(script)
    _, (found,) = engine(tmp_path, servers, replace(FAST, writes=True))
    assert (found.state, found.written) == (Judgement.UNJUDGED, False)
    assert not [sql for _, _, _, sql in servers.sent if sql.startswith("UPDATE")]


def test_the_captured_clock_is_set_where_a_call_looks_at_it(tmp_path: Path) -> None:
    planned([row("a", 0, "SELECT NOW()", 5), row("a", 1, "SELECT 1", 100)], tmp_path)
    servers = FakeServers()
    engine(tmp_path, servers, FAST)
    said = [
        sql for side, _, _, sql in servers.sent if side is Side.TARGET and not sql.startswith(("USE", "SET SESSION"))
    ]
    assert said == ["SET timestamp = 1767323045.000005", "SELECT NOW()", "SELECT 1"]


@pytest.mark.parametrize(("clocked", "said"), [(True, 2), (False, 1)])
def test_writes_get_the_captured_clock_where_a_table_looks_at_it(tmp_path: Path, clocked: bool, said: int) -> None:
    keys = {"d.t": TableKeys(("id",), integers=frozenset({"id"}), clocked=clocked)}
    planned([row("a", 0, "UPDATE t SET v = 1 WHERE id = 1", 5)], tmp_path, leave=WRITES, keys=keys)
    servers = FakeServers()
    engine(tmp_path, servers, replace(FAST, writes=True))
    sent = [sql for side, _, _, sql in servers.sent if side is Side.TARGET]
    assert sum("USE" not in sql and "sql_mode" not in sql for sql in sent) == said


def test_an_endpoint_that_refuses_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_OPEN_PAUSE", 0.001)
    planned([row("a", 0, "SELECT 1", 0)], tmp_path)
    made, found = engine(tmp_path, FakeServers(refuse=[Side.TARGET]), FAST)
    assert "target refuses" in made.stopped
    assert found == []


def test_a_slow_answer_makes_the_next_calls_late(tmp_path: Path) -> None:
    planned([row("a", n, f"SELECT {n}", 1000 * n) for n in range(4)], tmp_path)
    servers = FakeServers()
    servers.delays["SELECT 0"] = 0.1
    made, found = engine(tmp_path, servers, replace(FAST, pace=parse_pace("real")))
    assert [one.position for one in found] == [0, 1, 2, 3]
    assert found[1].lag > 50_000  # open loop: it was due while the first was under way
    assert found[1].target_latency is not None
    assert found[1].target_latency >= found[1].lag
    assert made.counters.lag_most >= found[1].lag


def test_a_player_that_stands_still_says_so_of_the_calls_under_way(tmp_path: Path) -> None:
    """The answers were there; nobody took them in. A server that is slow is no stall."""
    planned([row("a", n, f"SELECT {n}", 1000 * n) for n in range(3)], tmp_path)

    def standing_still(side: Side, call: Call, _times: int) -> Answer:
        if side is Side.TARGET and call.sql == b"SELECT 1":
            time.sleep(0.5)  # in the event loop
        return value("1")

    servers = FakeServers(standing_still)
    servers.delays["SELECT 2"] = 0.5
    _, found = engine(tmp_path, servers, replace(FAST, pace=parse_pace("real")))
    assert int(found[1].details["stalled"]) > 300_000
    assert found[1].target_service is not None
    assert int(found[1].details["stalled"]) <= found[1].target_service
    assert int(found[2].details.get("stalled", "0")) < 400_000


def test_too_much_lag_stops_the_run(tmp_path: Path) -> None:
    planned([row("a", n, f"SELECT {n}", 1000 * n) for n in range(50)], tmp_path)
    servers = FakeServers()
    servers.delays["SELECT 0"] = 0.5
    made, found = engine(tmp_path, servers, replace(FAST, pace=parse_pace("real"), max_lag=0.1))
    assert "late" in made.stopped
    assert len(found) < 50


def test_a_wait_ends_at_its_limit_and_is_told(tmp_path: Path) -> None:
    """A session that cannot go on must not hold up those behind it for ever."""
    planned(
        [row("a", 0, "UPDATE t SET v = 1 WHERE id = 1", 0), row("b", 0, "SELECT v FROM t WHERE id = 1", 100)],
        tmp_path, leave=WRITES, keys=KEYS,
    )  # fmt: skip
    servers = FakeServers()
    servers.delays["UPDATE t SET v = 1 WHERE id = 1"] = 0.6
    made, found = engine(tmp_path, servers, replace(FAST, writes=True, wait_limit=0.1))
    assert made.counters.forced == 1
    assert servers.calls() == [("a", 0), ("b", 0)]
    forced = next(one for one in found if one.session == "b")
    assert forced.details["forced"] == "1"


def test_sessions_beyond_the_connections_wait_and_that_is_counted(tmp_path: Path) -> None:
    made_rows = [row(f"s{s}", n, f"SELECT {n}", 20_000 * n + s) for s in range(6) for n in range(3)]
    planned(made_rows, tmp_path)
    servers = FakeServers()
    made, found = engine(tmp_path, servers, replace(FAST, pace=parse_pace("real"), connections=2))
    assert len(found) == 18
    assert servers.most <= 2
    assert made.counters.lag_most > 0


def test_the_target_alone(tmp_path: Path) -> None:
    planned([row("a", 0, "SELECT 1", 0)], tmp_path)
    servers = FakeServers()
    made, (found,) = engine(tmp_path, servers, FAST, target_only=True)
    assert {side for side, *_ in servers.sent} == {Side.TARGET}
    assert found.source_latency is None
    assert (made.counters.source_asked, made.counters.target_asked) == (0, 1)


def test_what_follows_from_an_id_that_only_one_side_generated_carries_its_cause(tmp_path: Path) -> None:
    def script(side: Side, call: Call, times: int) -> Answer:
        del times
        if call.sql.startswith(b"INSERT"):
            return Answer(affected=1, insert_id=17 if side is Side.SOURCE else 30_001)
        return value("1" if side is Side.SOURCE else "2")

    texts = ["INSERT INTO t (v) VALUES (1)", "SELECT v FROM t WHERE id = 17", "SELECT v FROM t WHERE id = 18"]
    planned([row("a", n, sql, 100 * n) for n, sql in enumerate(texts)], tmp_path, leave=WRITES)
    _, found = engine(tmp_path, FakeServers(script), EngineOptions(pace=parse_pace("fast"), writes=True))
    insert, follows, other = sorted(found, key=lambda one: one.position)
    assert insert.state is Judgement.SAME
    assert (follows.state, follows.reason) == (
        Judgement.INDETERMINATE, "follows from generated ids that differ: statement 0",
    )  # fmt: skip
    assert other.state is Judgement.DIFFERENT


@pytest.mark.parametrize(("errno", "ends"), [(1205, False), (1213, True)])
def test_a_captured_lock_wait_or_deadlock_waits_for_a_second_at_most(tmp_path: Path, errno: int, ends: bool) -> None:
    rows = [
        row("a", 0, "BEGIN", 0), row("a", 1, "UPDATE t SET v = 1 WHERE id = 1", 100, in_transaction=True),
        row("a", 2, "UPDATE t SET v = 1 WHERE id = 2", 200, errno=errno, in_transaction=True),
        row("a", 3, "UPDATE t SET v = 1 WHERE id = 3", 300, in_transaction=errno == 1205),
    ]  # fmt: skip
    planned(rows, tmp_path, leave=WRITES)
    servers = FakeServers(lambda _side, _call, _times: Answer(affected=1))
    engine(tmp_path, servers, EngineOptions(pace=parse_pace("fast"), writes=True))
    for side in (Side.SOURCE, Side.TARGET):
        said = [sql for at, _, position, sql in servers.sent if at is side and position >= 2]
        said = [sql for sql in said if "timestamp" not in sql]
        limit = "SET SESSION innodb_lock_wait_timeout = "
        middle = ["ROLLBACK"] if ends else []
        assert said == [f"{limit}1", rows[2]["sql"].decode(), *middle, f"{limit}DEFAULT", rows[3]["sql"].decode()]  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", [False, True])
def test_a_prepared_statement_is_prepared_again_unless_texts_are_sent(tmp_path: Path, text: bool) -> None:
    planned([row("a", 0, "SELECT 1", 0, command="execute"), row("a", 1, "SELECT 2", 9)], tmp_path)
    servers = FakeServers()
    engine(tmp_path, servers, replace(FAST, text=text))
    assert servers.prepared == ([] if text else ["SELECT 1", "SELECT 1"])


def test_what_calls_saw_first_is_recorded_for_histories(tmp_path: Path) -> None:
    texts = ["BEGIN", "SELECT v FROM t WHERE id = 1", "UPDATE t SET v = 2 WHERE id = 1", "COMMIT"]
    keys = {"d.t": TableKeys(("id",), columns=("id", "v"), integers=frozenset({"id", "v"}))}
    planned(
        [row("a", n, sql, 100 * n, in_transaction=n > 0) for n, sql in enumerate(texts)], tmp_path, leave=WRITES,
        keys=keys,
    )  # fmt: skip

    def counting(side: Side, call: Call, times: int) -> Answer:
        if call.sql.startswith(b"SELECT"):
            return value("1" if side is Side.SOURCE else str(times))  # asked again, the target says otherwise
        return Answer(affected=int(call.sql.startswith(b"UPDATE")))

    with RunFile(tmp_path) as run:
        run.set_fact("attempts", 1)
        begin_seeing(run)
    engine(tmp_path, FakeServers(counting), replace(FAST, writes=True, record=True))
    with RunFile(tmp_path) as run:
        files = write_histories(run, keys, dict.fromkeys(Side, "mysql 9.7"), mask=False)
    for side in Side:
        (transaction,) = read_history(files[side]).transactions
        assert (transaction.name, transaction.outcome) == ("a/0", Commitment.COMMITTED)
        assert transaction.begin <= transaction.commit <= transaction.end
        assert [(one.key, one.value) for one in transaction.operations] == [
            ("d.t/1", "present"), ("d.t/1/v", value_hash(b"1")), ("d.t/1/v", value_hash(b"2"))
        ]  # fmt: skip
