"""Counters with resets, and the fallback probes: what is asked of servers where Prometheus is blind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.config import SqlProbes
from migverify.errors import EndpointError, PrivilegeError, ReadError
from migverify.guards import fallback as fallback_module
from migverify.guards.counters import (
    QUERIES,
    READS,
    ROWS_READ,
    ROWS_WRITTEN,
    WRITES,
    CounterReading,
    connections,
    rates,
    read_counters,
    was_reset,
)
from migverify.guards.fallback import Fallback
from migverify.guards.model import AnswerState, GuardAnswer
from migverify.model import Endpoint, Flavor
from migverify.sql import server as sql

ALL = "GRANT ALL PRIVILEGES ON *.* TO 'u'@'%'"


def reading(at: float, queries: float, *, began: float = 0.0, server: str = "", **more: float) -> CounterReading:
    return CounterReading(server, at, began, {QUERIES: queries, **more}, "test")


@given(st.integers(0, 10**12), st.integers(0, 10**9), st.floats(0.5, 10_000))
def test_a_rate_is_the_increase_over_the_time(start: int, more: int, seconds: float) -> None:
    found = rates([reading(100.0, start)], [reading(100.0 + seconds, start + more)])
    assert found[QUERIES].value == pytest.approx(more / seconds)
    assert not found[QUERIES].at_least


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_reset_counts_what_is_there_since(before: int, after: int) -> None:
    restarted = rates([reading(0.0, before, began=-500.0)], [reading(10.0, after, began=5.0)])
    assert restarted[QUERIES].value == pytest.approx(after / 10)
    assert restarted[QUERIES].at_least
    assert rates([reading(0.0, before)], [reading(10.0, before - 1)])[QUERIES].at_least


def test_a_restart_that_overtook_is_still_one() -> None:
    # More than before, and yet all of it is new: the uptime tells.
    found = rates([reading(1000.0, 50, began=900.0)], [reading(2000.0, 80, began=1500.0)])
    assert found[QUERIES].value == pytest.approx(0.08)
    assert found[QUERIES].at_least
    # Uptime is told in whole seconds: that alone is no restart.
    assert not was_reset(reading(1000.0, 50, began=900.4), reading(1010.0, 60, began=899.6))


def test_other_servers_or_no_time_tell_nothing() -> None:
    with pytest.raises(ReadError, match="other servers"):
        rates([reading(0.0, 1, server="a")], [reading(1.0, 1, server="b")])
    with pytest.raises(ReadError, match="other servers"):
        rates([], [])
    with pytest.raises(ReadError, match="no time passed"):
        rates([reading(0.0, 1)], [reading(0.0, 2)])


def test_servers_of_a_cluster_add_up() -> None:
    before = [reading(0.0, 10, server="a"), reading(0.0, 100, server="b")]
    after = [reading(10.0, 30, server="a"), reading(10.0, 140, server="b")]
    assert rates(before, after)[QUERIES].value == pytest.approx(6.0)


@dataclass
class Given:
    """A session whose answers are given by the beginning of the statement; an error is raised."""

    flavor: Flavor = Flavor.MYSQL
    replies: dict[str, Any] = field(default_factory=dict)
    endpoint: Endpoint = field(default_factory=lambda: Endpoint("source", "h", 3306, "u"))
    open: bool = True

    def query(self, statement: str) -> list[tuple[str | None, ...]]:
        reply = self._reply(statement)
        assert isinstance(reply, list)
        return reply

    def query_named(self, statement: str) -> list[dict[str, str | None]]:
        reply = self._reply(statement)
        assert isinstance(reply, list)
        return reply

    def _reply(self, statement: str) -> Any:
        longest = max((key for key in self.replies if statement.startswith(key)), key=len, default=None)
        assert longest is not None, statement
        reply = self.replies[longest]
        if isinstance(reply, Exception):
            raise reply
        return reply() if callable(reply) else reply

    def alive(self) -> bool:
        return self.open

    def close(self) -> None:
        """Nothing is open."""


STATUS = [("Uptime", "100"), ("Queries", "1000"), ("Com_select", "600"), ("Com_insert", "20"), ("Com_update", "5"),
          ("Innodb_rows_inserted", "40"), ("Innodb_rows_updated", "5"), ("Innodb_rows_deleted", "1"),
          ("Innodb_rows_read", "9000"), ("Handler_write", "77")]  # fmt: skip


def test_status_counters_of_mysql() -> None:
    (found,) = read_counters(Given(replies={sql.COUNTERS: STATUS}), lambda: 5000.0)
    assert found.values == {QUERIES: 1000, READS: 600, WRITES: 25, ROWS_WRITTEN: 46, ROWS_READ: 9000}
    assert (found.at, found.began) == (5000.0, 4900.0)


def test_handlers_stand_in_for_rows_and_are_named() -> None:
    status = [pair for pair in STATUS if not pair[0].startswith("Innodb")]
    (found,) = read_counters(Given(replies={sql.COUNTERS: status}))
    assert found.values[ROWS_WRITTEN] == 77
    assert "Handler" in found.how


def test_no_counters_is_an_error() -> None:
    with pytest.raises(ReadError, match="reports no counters"):
        read_counters(Given(replies={sql.COUNTERS: []}))


def tidb(rows: Sequence[tuple[str | None, ...]], grants: str = ALL, summary: str = "ON") -> Given:
    return Given(Flavor.TIDB, {
        sql.TIDB_COUNTERS: list(rows), sql.TIDB_SUMMARY: [("tidb_enable_stmt_summary", summary)],
        "SELECT CURRENT_USER()": [("u@%",)], "SHOW GRANTS": [(grants,)], sql.MOST_CONNECTIONS: [("0",)],
        sql.TIDB_CONNECTIONS: [("a:1", "7"), ("b:1", "9")],
    })  # fmt: skip


def test_the_statement_summary_of_tidb() -> None:
    rows = [("a", "600", "Select", "10", "0"), ("a", "600", "Insert", "4", "8.0"), ("a", "600", "Set", "1", "0"),
            ("b", "600", "Select", "1", "0")]  # fmt: skip
    first, second = read_counters(tidb(rows), lambda: 700.0)
    assert first.values[QUERIES] == 15
    assert (first.values[READS], first.values[WRITES], first.values[ROWS_WRITTEN]) == (10, 4, 8)
    assert ROWS_READ not in first.values
    assert (second.server, second.began) == ("b", 600.0)
    # A new window counts from 0.
    again = read_counters(tidb([("a", "2400", "Select", "3", "0"), ("b", "2400", "Select", "1", "0")]), lambda: 2500.0)
    assert rates((first, second), again)[READS].at_least


def test_statements_that_tidb_forgot_leave_the_kinds_unknown() -> None:
    before = read_counters(tidb([("a", "0", "Select", "10", "0"), ("a", "0", "", "5", "0")]), lambda: 0.0)
    after = read_counters(tidb([("a", "0", "Select", "2", "0"), ("a", "0", "", "33", "0")]), lambda: 10.0)
    found = rates(before, after)
    assert found[QUERIES].value == 2.0
    assert not found[QUERIES].at_least
    assert READS not in found


@pytest.mark.parametrize("session", [tidb([], "GRANT SELECT ON *.* TO 'u'@'%'"), tidb([], summary="OFF"), tidb([])])
def test_what_tidb_hides_is_an_error(session: Given) -> None:
    with pytest.raises(ReadError, match=r"PROCESS|OFF|empty"):
        read_counters(session)


def test_connections_of_the_fullest_server() -> None:
    assert connections(tidb([])) == (9, 0)
    with pytest.raises(ReadError, match="PROCESS"):
        connections(tidb([], "GRANT USAGE ON *.* TO 'u'@'%'"))
    mysql = Given(replies={sql.MOST_CONNECTIONS: [("151",)], sql.CONNECTIONS: [("Threads_connected", "12")]})
    assert connections(mysql) == (12, 151)


@pytest.mark.parametrize("rows", [[], [("Threads_connected", None)], [("Threads_connected", "")]])
def test_connections_that_are_not_reported_are_not_none(rows: list[tuple[str | None, ...]]) -> None:
    with pytest.raises(ReadError, match="does not report how many"):
        connections(Given(replies={sql.MOST_CONNECTIONS: [("151",)], sql.CONNECTIONS: rows}))


# --- fallback ----------------------------------------------------------------------------------------------

WELL: dict[str, Any] = {
    sql.CLOCK: [("1795272721.5",)], sql.COUNTERS: STATUS, sql.MOST_CONNECTIONS: [("151",)],
    sql.CONNECTIONS: [("Threads_connected", "12")], sql.OLDEST_TRANSACTION: [("1", "3")], sql.LOCK_WAITS: [("0",)],
    "SHOW REPLICA STATUS": [],
}  # fmt: skip


def probed(
    monkeypatch: pytest.MonkeyPatch, more: Mapping[str, Any] | None = None, *, name: str = "source", open_: bool = True
) -> tuple[dict[str, GuardAnswer], list[str]]:
    endpoint = Endpoint(name, "h", 3306, "u")
    session = Given(replies={**WELL, **(more or {})}, endpoint=endpoint, open=open_)
    monkeypatch.setattr(fallback_module, "open_session", lambda *_: session)
    clock = iter(range(1000, 100_000))
    probe = Fallback([(endpoint, None)], SqlProbes(), now=lambda: float(next(clock)), wait=lambda _: None)
    answers, unasked = probe.ask()
    return {a.name.removesuffix(" (SQL fallback)"): a for a in answers}, unasked


def test_a_server_that_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    found, unasked = probed(monkeypatch)
    assert not unasked
    assert {name: a.state for name, a in found.items()} == dict.fromkeys(
        ("connections", "queries", "long transactions", "lock waits", "replication lag"), AnswerState.PASS
    )
    assert {a.server_time for a in found.values()} == {1_795_272_721.5}


@pytest.mark.parametrize(
    ("name", "more", "state", "words"),
    [
        ("connections", {sql.CONNECTIONS: [("Threads_connected", "150")]}, AnswerState.FAIL, "150 of 151"),
        ("connections", {sql.CONNECTIONS: ReadError("no")}, AnswerState.INCONCLUSIVE, "no"),
        ("long transactions", {sql.OLDEST_TRANSACTION: [("2", "600")]}, AnswerState.FAIL, "600 s"),
        ("long transactions", {sql.OLDEST_TRANSACTION: [("2", None)]}, AnswerState.INCONCLUSIVE, "not reported"),
        ("long transactions", {sql.OLDEST_TRANSACTION: PrivilegeError("PROCESS")}, AnswerState.INCONCLUSIVE, "PROCESS"),
        ("lock waits", {sql.LOCK_WAITS: [("50",)]}, AnswerState.FAIL, "50"),
        ("replication lag", {"SHOW REPLICA STATUS": [{"Seconds_Behind_Source": "99"}]}, AnswerState.FAIL, "99"),
        ("replication lag", {"SHOW REPLICA STATUS": [{"Seconds_Behind_Source": "2"}]}, AnswerState.PASS, "2 s"),
        ("replication lag", {"SHOW REPLICA STATUS": [{"Seconds_Behind_Source": None, "Last_SQL_Error": "dup"}]},
         AnswerState.FAIL, "dup"),
        ("replication lag", {"SHOW REPLICA STATUS": ReadError("1064"), "SHOW SLAVE STATUS": [
            {"Seconds_Behind_Master": "11"}]}, AnswerState.FAIL, "11"),
    ],
)  # fmt: skip
def test_one_thing_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, more: dict[str, Any], state: AnswerState, words: str
) -> None:
    found, _ = probed(monkeypatch, more)
    assert found[name].state is state
    assert words in found[name].value


def test_a_target_without_a_replicator_has_no_known_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = probed(monkeypatch, name="target")
    assert found["replication lag"].state is AnswerState.INCONCLUSIVE


def test_a_server_that_is_gone_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    _, unasked = probed(monkeypatch, {sql.CONNECTIONS: ReadError("lost")}, open_=False)
    assert "lost" in unasked[0]

    def refuse(*_: object) -> None:
        raise EndpointError("source does not answer")

    monkeypatch.setattr(fallback_module, "open_session", refuse)
    answers, unasked = Fallback([(Endpoint("source", "h", 3306, "u"), None)]).ask()
    assert not answers
    assert "does not answer" in unasked[0]


def test_counters_are_compared_with_those_of_the_turn_before(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint("source", "h", 3306, "u")
    queries = iter(["1000", "1010", "1400"])
    session = Given(replies={**WELL, sql.COUNTERS: lambda: [("Queries", next(queries)), *STATUS[:1], *STATUS[2:]]})
    monkeypatch.setattr(fallback_module, "open_session", lambda *_: session)
    waited: list[float] = []
    moment = [1000.0]

    def wait(seconds: float) -> None:
        waited.append(seconds)
        moment[0] += seconds

    probe = Fallback([(endpoint, None)], now=lambda: moment[0], wait=wait)
    first = {a.name: a for a in probe.ask()[0]}["queries (SQL fallback)"]
    assert first.numbers["queries_per_second"] == pytest.approx(10.0)
    moment[0] += 0.0
    probe.forget_old()
    moment[0] += 600.0
    probe.forget_old()
    assert probe.kept  # ten minutes are the limit
    moment[0] += 1.0
    probe.forget_old()
    assert not probe.kept
    assert waited == [1.0]
