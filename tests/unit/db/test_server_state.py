"""What a server reports of itself, in the words of old and of new versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from migverify.db import server_state as state
from migverify.db.server_state import ServerIdentity, server_identity
from migverify.errors import MigverifyError, PrivilegeError, ReadError, RetryableReadError
from migverify.model import Endpoint, Flavor
from migverify.sql.server import CLUSTER, IDENTITY, NODE

SYNTAX = ReadError("You have an error in your SQL syntax [1064]")
END = {"File": "binlog.000007", "Position": "1000", "Executed_Gtid_Set": "a:1-5,\nb:1"}


@dataclass
class Answers:
    """A session that knows the statements it was given an answer for."""

    replies: Mapping[str, Any]
    flavor: Flavor = Flavor.MYSQL
    version: str = "9.7.4"
    asked: list[str] = field(default_factory=list)
    endpoint: Endpoint = Endpoint("source", "db1", 3306, "u")  # noqa: RUF009 - frozen, so one instance serves all

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        self.asked.append(sql)
        reply = self.replies.get(sql, SYNTAX)
        if isinstance(reply, Exception):
            raise reply
        return list(reply)

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        return self.query(sql)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("flavor", "statement", "asked"),
    [
        (Flavor.MYSQL, "SHOW BINARY LOG STATUS", 1),
        (Flavor.MYSQL, "SHOW MASTER STATUS", 2),
        (Flavor.MARIADB, "SHOW MASTER STATUS", 1),
        (Flavor.TIDB, "SHOW MASTER STATUS", 1),
    ],
)
def test_the_end_of_the_binlog_in_the_words_of_each_version(flavor: Flavor, statement: str, asked: int) -> None:
    session = Answers({statement: [END]}, flavor)
    status = state.binlog_status(session)
    assert status == state.BinlogStatus("binlog.000007", 1000, "a:1-5,b:1", {})
    assert len(session.asked) == asked


def test_a_server_without_a_binlog_has_no_end() -> None:
    assert state.binlog_status(Answers({"SHOW BINARY LOG STATUS": []})) is None


@pytest.mark.parametrize("error", [PrivilegeError("denied"), RetryableReadError("lost")])
def test_a_missing_grant_or_a_lost_connection_is_not_an_old_version(error: MigverifyError) -> None:
    session = Answers({"SHOW BINARY LOG STATUS": error, "SHOW MASTER STATUS": [END]})
    with pytest.raises(type(error)):
        state.binlog_status(session)
    assert session.asked == ["SHOW BINARY LOG STATUS"]


def test_the_refusal_of_the_last_words_counts() -> None:
    with pytest.raises(ReadError, match="access"):
        state.binlog_status(Answers({"SHOW MASTER STATUS": ReadError("no access")}))


@pytest.mark.parametrize(
    ("statement", "row", "behind", "error", "runs"),
    [
        ("SHOW REPLICA STATUS", {"Seconds_Behind_Source": "0", "Replica_SQL_Running": "Yes"}, 0.0, "", True),
        ("SHOW SLAVE STATUS", {"Seconds_Behind_Master": "11", "Slave_SQL_Running": "No"}, 11.0, "", False),
        ("SHOW REPLICA STATUS", {"Seconds_Behind_Source": None, "Last_SQL_Error": "dup"}, None, "dup", True),
        ("SHOW REPLICA STATUS", {"Last_SQL_Error": "", "Last_IO_Error": "gone"}, None, "gone", True),
    ],
)
def test_a_replica(statement: str, row: dict[str, str | None], behind: float | None, error: str, runs: bool) -> None:
    asked, (channel,) = state.replica_status(Answers({statement: [row]}))
    assert asked == statement
    assert (channel.seconds_behind, channel.last_error, channel.applier_runs) == (behind, error, runs)


def test_binary_logs_and_ids_of_readers() -> None:
    logs = [
        {"Log_name": "binlog.000001", "File_size": "700", "Encrypted": "Yes"},
        {"Log_name": "binlog.000002", "File_size": "5"},
    ]
    session = Answers({"SHOW BINARY LOGS": logs, "SHOW SLAVE HOSTS": [{"Server_id": "12"}, {"Server_id": "13"}]})
    assert state.binary_logs(session) == [
        state.BinaryLog("binlog.000001", 700, encrypted=True), state.BinaryLog("binlog.000002", 5)
    ]  # fmt: skip
    assert state.replica_ids(session) == ("SHOW SLAVE HOSTS", {"12", "13"})


def identity(replies: Mapping[str, Any], flavor: Flavor = Flavor.TIDB, host: str = "db1") -> ServerIdentity:
    return server_identity(Answers(replies, flavor), Endpoint("source", host, 4000, "u"))


ONE, TWO = [("vm", "4000", "/data/one")], [("vm", "4000", "/data/two")]


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (identity({IDENTITY: ONE}, Flavor.MYSQL), identity({IDENTITY: ONE}, Flavor.MYSQL, "db1.internal"), True),
        (identity({IDENTITY: ONE}, Flavor.MYSQL), identity({IDENTITY: TWO}, Flavor.MYSQL, "replica"), False),
        (identity({IDENTITY: ONE}, Flavor.MYSQL), identity({IDENTITY: TWO}, Flavor.MYSQL), False),
        (identity({}), identity({}), True),
        (identity({}), identity({}, host="db2"), False),
        (identity({NODE: ONE, CLUSTER: [("72",)]}), identity({NODE: TWO, CLUSTER: [("72",)]}, host="db2"), True),
        (identity({NODE: ONE, CLUSTER: [("72",)]}), identity({NODE: ONE, CLUSTER: [("73",)]}, host="db2"), False),
        (identity({NODE: ONE, CLUSTER: [("1",)]}), identity({NODE: TWO, CLUSTER: [("1",)]}, host="db2"), False),
        (identity({NODE: ONE, CLUSTER: [("1",)]}), identity({NODE: ONE, CLUSTER: [("1",)]}, host="db2"), True),
        (identity({NODE: ONE, CLUSTER: [("72",)]}), identity({NODE: ONE}, host="db2"), True),
        (identity({NODE: ONE}, Flavor.MARIADB), identity({NODE: ONE}, Flavor.MARIADB, "db2"), True),
    ],
    ids=["two names", "a replica", "one address of a proxy", "one address", "nothing known", "two nodes of a cluster",
         "two clusters",
         "two embedded stores", "one embedded store", "one user may not read the cluster", "MariaDB"],
)  # fmt: skip
def test_servers_are_told_apart_by_what_they_report_and_not_by_their_names(
    first: ServerIdentity, second: ServerIdentity, same: bool
) -> None:
    assert first.is_same_server(second) is second.is_same_server(first) is same


def test_a_lost_connection_is_not_a_server_without_an_identity() -> None:
    with pytest.raises(RetryableReadError):
        identity({NODE: RetryableReadError("lost"), CLUSTER: []})
