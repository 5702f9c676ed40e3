"""The settings guard on recorded servers: each question can pass and can fail, and what is not told is no pass."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from migverify.cli.main import run
from migverify.config.settings import Config
from migverify.db.session import Encryption
from migverify.errors import EndpointError, PrivilegeError, ReadError, RetryableReadError, TimeLimitError
from migverify.guards import check_basics, check_feeds
from migverify.guards.check_read import CheckPlan
from migverify.guards.check_rules import CheckQuestion, Of, Value, Work
from migverify.guards.check_table import QUESTIONS, chosen
from migverify.guards.model import AnswerState
from migverify.guards.scope import Scope
from migverify.model import Verdict
from migverify.sql import settings as sql
from migverify.sql.catalog import column_grants_sql
from migverify.sql.server import CLOCK, CONNECTIONS, TIDB_CONNECTIONS
from tests.pages import parts_table, questions_table
from tests.unit.checking import BIN, PLATFORMS, Column, Fake, Index, Table, answer, ask, guard, in_app, source, target
from tests.unit.guards.test_preflight import NOW

FAIL, WARN, PASS, OPEN = AnswerState.FAIL, AnswerState.WARN, AnswerState.PASS, AnswerState.INCONCLUSIVE
Change = Callable[[Fake, Fake], Any]


def ours(**variables: str) -> Change:
    return lambda s, _: s.variables.update(variables)


def theirs(**variables: str) -> Change:
    return lambda _, t: t.variables.update(variables)


def says(side: int, statement: str, told: Any) -> Change:
    return lambda *sides: sides[side].answers.update({statement: told})


def tables(*given: Table, both: bool = True) -> Change:
    def change(s: Fake, t: Fake) -> None:
        s.tables = [*given]
        if both:
            t.tables = [*given]

    return change


def held(side: int, *lines: str) -> Change:
    return lambda *sides: setattr(sides[side], "grants", lines)


def text_table(collation: str, *, unique: bool = True) -> Table:
    index = Index("code", ("code",), unique)
    return Table("orders", (Column("id"), Column("code", "varchar", collation=collation)), (Index(), index))


def split(ours_: Table, theirs_: Table) -> Change:
    def change(s: Fake, t: Fake) -> None:
        s.tables, t.tables = [ours_], [theirs_]

    return change


def version(side: int, text: str) -> Change:
    return lambda *sides: setattr(sides[side], "version", text)


DM = sql.checkpoint_rows("dm_meta", "move_syncer_checkpoint")
DM_TABLE = says(1, sql.CHECKPOINT_TABLES, [("dm_meta", "move_syncer_checkpoint")])


PESSIMISTIC = sql.session_variable("tidb_constraint_check_in_place_pessimistic")
FOREIGN_KEYS = in_app(sql.FOREIGN_KEYS)


def healthy(number: str) -> list[dict[str, str]]:
    return [{"Db_name": "APP", "Table_name": name, "Healthy": number} for name in ("orders", "payments")]


def dm(age: str | None) -> Change:
    def change(s: Fake, t: Fake) -> None:
        DM_TABLE(s, t)
        t.answers[DM] = [("mysql-01", "binlog.000007", "12", "a:1-9", age)]

    return change


def both(*changes: Change) -> Change:
    def change(s: Fake, t: Fake) -> None:
        for one in changes:
            one(s, t)

    return change


@pytest.mark.parametrize("platform", PLATFORMS)
def test_servers_in_order_pass(platform: str) -> None:
    result = ask(source(platform), target())
    bad = {a.name for a in result.answers if a.state in (FAIL, OPEN)}
    known = {"mysql-5.7": {"binlog binlog_row_metadata"}, "mariadb": {"binlog log_bin"}}
    assert bad == known.get(platform, set())
    assert result.verdict is (Verdict.MISMATCH if bad else Verdict.MATCH)
    names = [(a.name, a.subject) for a in result.answers]
    assert len(names) == len(set(names)), "name and subject must tell answers apart over time"
    for found in result.answers:
        assert all((found.query, found.threshold, found.why, found.value))
        assert "{" not in found.query
        assert (found.todo == "") == (found.state is PASS), found.name
        assert found.local_time == NOW


def test_every_question_answers_and_is_answered_for() -> None:
    result = ask(source(), target(), plan=CheckPlan(3600.0, ("http://127.0.0.1:1",)))
    told = {a.name.split(" ")[0] for a in result.answers}
    assert told == {question.name for question in QUESTIONS}


PLANTED: list[tuple[str, Change, AnswerState, str]] = [
    ("tls", lambda _, t: setattr(t, "tls", None), FAIL, "in clear over the network"),
    ("tls", lambda _, t: setattr(t, "tls", Encryption("TLSv1.1", "AES", None)), FAIL, "TLSv1.1"),
    ("tls", lambda _, t: setattr(t, "tls", Encryption("TLSv1.3", "AES", NOW + 13 * 86_400)), FAIL, "13 days"),
    ("version", version(0, "5.5.62"), WARN, "before 5.6"),
    ("version", version(0, "8.0.29"), WARN, "withdrawn"),
    ("version", version(0, "8.0.30"), PASS, "8.0.30"),
    ("version", version(0, "10.4.34-MariaDB"), PASS, "10.4"),  # the flavor stays MySQL's: only the number counts
    ("version", version(1, "5.7.25-TiDB-v6.1.7"), WARN, "before 6.5"),
    ("version", version(1, "8.0.11-TiDB-v6.5.0"), PASS, "v6.5.0"),
    ("version", version(1, "8.0.11-TiDB-nightly"), OPEN, "no number"),
    ("replicator", version(0, "8.4.3"), WARN, "experiment"),
    ("replicator", version(0, "8.2.0"), WARN, "not tested"),
    ("grants-tables", held(0, "GRANT SELECT ON `app`.`orders` TO `m`@`%`"), FAIL, "not app.payments"),
    ("grants-changes", held(0, "GRANT REPLICATION SLAVE ON *.* TO `m`@`%`"), FAIL, "REPLICATION CLIENT"),
    ("grants-workload", held(0, "GRANT SELECT ON `app`.* TO `m`@`%`"), WARN, "without PROCESS"),
    ("grants-workload", held(0, "GRANT SELECT ON `app`.`orders` TO `m`@`%`"), FAIL, "payments"),
    ("grants-repair", held(1, "GRANT SELECT ON `app`.* TO 'm'@'%'"), WARN, "0 of 2"),
    ("grants-excess", held(0, "GRANT SELECT, UPDATE ON `app`.* TO `m`@`%`"), FAIL, "UPDATE on `app`.*"),
    ("grants-excess", held(0, "GRANT SELECT, TRIGGER, EVENT ON `app`.* TO `m`@`%`"), PASS, "TRIGGER on `app`.*"),
    ("grants-excess", held(0, "GRANT SELECT, TRIGGER, ALTER ON `app`.* TO `m`@`%`"), FAIL, "write: ALTER on `app`.*"),
    ("grants-excess", held(0, "GRANT SUPER ON *.* TO `m`@`%`"), FAIL, "SUPER"),
    ("grants-excess", held(1, "GRANT ALL PRIVILEGES ON *.* TO 'm'@'%' WITH GRANT OPTION"), WARN, "GRANT OPTION"),
    ("sql-mode", theirs(sql_mode="NO_ZERO_DATE"), FAIL, "only the source: STRICT_TRANS_TABLES"),
    ("sql-mode", theirs(sql_mode="no_zero_date,STRICT_TRANS_TABLES,NO_AUTO_CREATE_USER"), PASS, "NO_ZERO_DATE"),
    ("charset collation_server", ours(collation_server="utf8mb4_0900_ai_ci"), WARN, "stricter"),
    ("charset character_set_server", ours(character_set_server="latin1"), WARN, "latin1"),
    ("collations unique keys", split(text_table("utf8mb4_0900_ai_ci"), text_table(BIN)), FAIL, "app.orders.code"),
    ("collations unique keys", split(text_table("utf8mb3_bin"), text_table("utf8_bin")), PASS, "none"),
    ("collations other columns", split(text_table("utf8mb4_0900_ai_ci", unique=False), text_table(BIN)), WARN, "code"),
    ("collations-known new tables", tables(text_table("latin1_swedish_ci"), both=False), PASS, "known"),
    ("collations-known tables that are there", tables(text_table("latin1_swedish_ci")), WARN, "latin1_swedish_ci"),
    (
        "collations-known new tables",
        both(tables(text_table("sjis_japanese_ci")), lambda _, t: t.tables.clear()),
        FAIL,
        "sjis",
    ),
    ("time-zone", says(1, sql.ZONE_OFFSETS, [("2026-01-15 13:00:00", "2026-07-15 14:00:00")]), FAIL, "SYSTEM"),
    ("time-zone", says(0, sql.ZONE_OFFSETS, [(None, None)]), OPEN, "cannot convert"),
    ("named-zones", says(0, sql.NAMED_ZONES, [(None,)]), FAIL, "source knows none"),
    ("max-allowed-packet", theirs(max_allowed_packet="1048576"), FAIL, "target 1048576"),
    ("max-allowed-packet", theirs(max_allowed_packet="134217728"), PASS, "134217728"),
    ("max-allowed-packet", theirs(max_allowed_packet=""), OPEN, "no number"),
    ("row-size", tables(Table("docs", (Column("id"), Column("body", "longtext", collation=BIN)))), WARN, "docs (body)"),
    ("isolation", ours(transaction_isolation="SERIALIZABLE"), FAIL, "SERIALIZABLE"),
    ("isolation", theirs(transaction_isolation="READ-COMMITTED"), FAIL, "READ-COMMITTED"),
    ("other-settings autocommit", theirs(autocommit="OFF"), FAIL, "OFF"),
    ("other-settings autocommit", theirs(autocommit="1"), PASS, "1"),
    ("other-settings wait_timeout", theirs(wait_timeout="600"), WARN, "600"),
    ("other-settings group_concat_max_len", ours(group_concat_max_len="1048576"), FAIL, "1048576"),
    ("auto-increment", ours(auto_increment_increment="2"), FAIL, "2 and 1"),
    ("scope", tables(), FAIL, "app.*"),
    ("tables-present", lambda _, t: t.tables.pop(), FAIL, "app.payments"),
    ("tables-present", lambda _, t: setattr(t, "tables", [Table("ORDERS"), Table("PAYMENTS")]), PASS, "2 of 2"),
    ("keys", tables(Table("log", indexes=())), FAIL, "app.log"),
    ("keys", tables(Table("log", indexes=(Index("u", ("id",)),))), PASS, "none"),
    ("keys", tables(Table("log", (Column("id", nullable=True),), (Index("u", ("id",)),))), FAIL, "app.log"),
    ("engines", tables(Table("old", engine="MyISAM")), FAIL, "app.old (MyISAM)"),
    ("types columns", tables(Table("places", (Column("id"), Column("at", "point")))), FAIL, "app.places.at (point)"),
    (
        "types columns",
        both(version(1, "8.0.11-TiDB-v8.1.0"), tables(Table("v", (Column("id"), Column("e", "vector"))))),
        FAIL,
        "vector",
    ),
    ("types columns", tables(Table("v", (Column("id"), Column("e", "vector")))), PASS, "none"),
    (
        "types indexes",
        tables(Table("t", indexes=(Index(), Index("f", ("code",), False, "FULLTEXT")))),
        FAIL,
        "FULLTEXT",
    ),
    ("types invisible columns", tables(Table("t", (Column("id"), Column("h", extra="INVISIBLE")))), FAIL, "app.t.h"),
    ("names", tables(Table("Orders"), Table("orders")), FAIL, "app.Orders and app.orders"),
    ("names", ours(lower_case_table_names="1"), WARN, "source 1, target 2"),
    ("foreign-keys", says(0, FOREIGN_KEYS, [("app", "orders", "fk_1")]), FAIL, "missing: app.orders (fk_1)"),
    ("foreign-keys", says(0, FOREIGN_KEYS, [("app", "elsewhere", "fk_1")]), PASS, "none"),
    (
        "foreign-keys",
        both(says(0, FOREIGN_KEYS, [("app", "orders", "a")]), says(1, FOREIGN_KEYS, [("app", "orders", "b")])),
        PASS,
        "1 of them",
    ),
    (
        "foreign-keys",
        both(
            says(0, FOREIGN_KEYS, [("app", "orders", "a")]),
            says(1, FOREIGN_KEYS, [("app", "orders", "b")]),
            theirs(foreign_key_checks="OFF"),
        ),
        FAIL,
        "not enforced",
    ),
    (
        "checks",
        both(says(0, in_app(sql.CHECKS), [("app", "orders", "positive")]), theirs(tidb_enable_check_constraint="OFF")),
        FAIL,
        "positive",
    ),
    ("checks", says(0, in_app(sql.CHECKS), [("app", "orders", "positive")]), PASS, "positive"),
    ("triggers", says(0, in_app(sql.TRIGGERS), [("app", "orders", "stamp")]), FAIL, "app.stamp on orders"),
    (
        "events",
        says(0, in_app(sql.EVENTS), [("app", "purge", "ENABLED"), ("app", "old", "DISABLED")]),
        FAIL,
        "1 in 1 database: app.purge",
    ),
    ("events", says(0, in_app(sql.EVENTS), [("app", "old", "DISABLED")]), PASS, "none"),
    ("routines", says(0, in_app(sql.ROUTINES), [("app", "pay", "PROCEDURE")]), FAIL, "app.pay (procedure)"),
    ("views", lambda s, _: s.tables.append(Table("open_orders", kind="VIEW")), FAIL, "app.open_orders"),
    ("tidb-variables tidb_txn_mode", theirs(tidb_txn_mode="optimistic"), FAIL, "optimistic"),
    ("tidb-variables tidb_txn_mode", theirs(tidb_txn_mode=""), FAIL, "''"),
    ("tidb-variables tidb_enable_noop_functions", theirs(tidb_enable_noop_functions="ON"), FAIL, "ON"),
    ("tidb-variables tidb_skip_isolation_level_check", theirs(tidb_skip_isolation_level_check="ON"), FAIL, "ON"),
    ("tidb-variables tidb_mem_quota_query", theirs(tidb_mem_quota_query="1000"), WARN, "1000"),
    ("tidb-variables tidb_mem_quota_query", theirs(tidb_mem_quota_query="-1"), PASS, "-1"),
    ("tidb-variables tidb_multi_statement_mode", theirs(tidb_multi_statement_mode="WARN"), WARN, "WARN"),
    ("tidb-variables tidb_super_read_only", theirs(tidb_super_read_only="ON"), FAIL, "ON"),
    ("tidb-variables tidb_restricted_read_only", theirs(tidb_restricted_read_only="ON"), FAIL, "ON"),
    ("tidb-variables tidb_constraint_check_in_place", theirs(tidb_txn_mode="optimistic"), WARN, "OFF"),
    ("tidb-variables tidb_constraint_check_in_place_pessimistic", says(1, PESSIMISTIC, [("0",)]), WARN, "OFF"),
    ("new-collations", says(1, sql.NEW_COLLATIONS, [("0",)]), FAIL, "bytes"),
    ("new-collations", says(1, sql.NEW_COLLATIONS, [(None,)]), OPEN, "None"),
    ("gc-life-time", theirs(tidb_gc_life_time="10m0s"), FAIL, "verification takes 1 h"),
    ("gc-life-time", theirs(tidb_gc_life_time="soon"), OPEN, "no duration"),
    ("gc-life-time", theirs(tidb_gc_enable="OFF"), WARN, "off"),
    ("gc-safe-point", says(1, sql.TIDB_STATE, [("tikv_gc_safe_point", "20270110-07:50:00.000 +0000")]), WARN, "120"),
    ("gc-safe-point", says(1, sql.TIDB_STATE, [("tikv_gc_safe_point", "never")]), OPEN, "no time"),
    ("gc-safe-point", says(1, sql.TIDB_STATE, []), WARN, "none"),
    ("statistics", says(1, sql.STATISTICS, []), FAIL, "2 tables without"),
    ("statistics", says(1, sql.STATISTICS, healthy("49")), FAIL, "2 stale"),
    ("statistics", says(1, sql.STATISTICS, healthy("79")), WARN, "2 below"),
    ("statistics", both(says(1, sql.STATISTICS, []), tables(Table("orders", rows=0))), PASS, "0 tables with rows"),
    ("disk", says(1, sql.STORES, [("kv-1", "100GiB", "10GiB", "Up")]), FAIL, "10GiB of 100GiB"),
    ("disk", says(1, sql.STORES, [("kv-1", "1TiB", "500GiB", "Disconnected")]), FAIL, "Disconnected"),
    ("disk", says(1, sql.STORES, [("kv-1", "all", "much", "Up")]), OPEN, "much of all"),
    ("disk", says(1, sql.STORES, []), OPEN, "no store"),
    ("dm", dm("7"), PASS, "7 s ago"),
    ("dm", dm("301"), WARN, "301 s ago"),
    ("dm", dm(None), OPEN, "not reported"),
]


@pytest.mark.parametrize(("name", "change", "state", "words"), PLANTED, ids=lambda v: v if isinstance(v, str) else "")
def test_what_was_planted_is_found(name: str, change: Change, state: AnswerState, words: str) -> None:
    s, t = source(), target()
    change(s, t)
    result = ask(s, t)
    found = [a for a in result.answers if a.name == name and words in a.value]
    assert [a.state for a in found] in ([state], [state, state]), [
        (a.state, a.value) for a in result.answers if a.name == name
    ]
    assert all((a.todo == "") == (state is PASS) for a in found)


def test_a_refusal_concerns_the_part_that_it_refuses() -> None:
    s = source()
    s.answers["SHOW BINARY LOGS"] = PrivilegeError(
        "Access denied; you need (at least one of) the SUPER, REPLICATION CLIENT privilege(s) [1227]"
    )
    parts = {a.name: a for a in ask(s, target()).answers if a.name.startswith("binlog ")}
    assert {name for name, a in parts.items() if a.state is OPEN} == {"binlog binary logs"}
    assert parts["binlog binary logs"].todo == "GRANT REPLICATION CLIENT ON *.* TO 'm'@'%';"
    assert parts["binlog gtid_mode"].state is PASS


def test_what_is_no_number_is_not_compared() -> None:
    s, t = source(), target()
    t.variables["wait_timeout"] = "a while"
    found = answer(ask(s, t), "other-settings wait_timeout")
    assert (found.state, "is no number" in found.value) == (OPEN, True)


def test_a_new_check_is_a_row() -> None:
    row = CheckQuestion(
        "back-log", "100 or more", "", "A burst of connections is refused.", "Raise back_log.",
        Value(("back_log",), right=lambda value: PASS if int(value) >= 100 else FAIL), of=Of.SOURCE,
    )  # fmt: skip
    s = source()
    s.variables["back_log"] = "50"
    (found,) = guard(s, target(), questions=[row]).ask().answers
    assert (found.name, found.subject, found.state, found.value) == ("back-log", "source", FAIL, "50")
    assert (found.todo, found.query) == ("Raise back_log.", "SHOW GLOBAL VARIABLES LIKE 'back_log'")


UNREAD: list[tuple[int, str, str]] = [
    (0, "SHOW GRANTS", "grants-tables"), (0, "SHOW GRANTS", "grants-excess"), (0, "SHOW GRANTS", "grants-changes"),
    (0, "SHOW GRANTS", "grants-workload"), (1, "SHOW GRANTS", "grants-repair"),
    (0, sql.VARIABLES, "sql-mode"), (1, sql.VARIABLES, "isolation"), (0, sql.VARIABLES, "max-allowed-packet"),
    (0, sql.VARIABLES, "auto-increment"), (0, sql.VARIABLES, "charset"), (0, sql.VARIABLES, "other-settings"),
    (0, sql.VARIABLES, "binlog"), (0, sql.VARIABLES, "names"), (1, sql.VARIABLES, "tidb-variables"),
    (1, sql.VARIABLES, "gc-life-time"), (0, sql.VARIABLES, "connections"), (0, CONNECTIONS, "connections"),
    (0, sql.ZONE_OFFSETS, "time-zone"), (1, sql.NAMED_ZONES, "named-zones"), (1, sql.NEW_COLLATIONS, "new-collations"),
    (1, sql.TIDB_STATE, "gc-safe-point"), (1, sql.STATISTICS, "statistics"), (1, sql.STORES, "disk"),
    (1, sql.CHECKPOINT_TABLES, "dm"), (1, sql.COLLATIONS, "collations-known"),
    (0, in_app(sql.TRIGGERS), "triggers"), (0, in_app(sql.EVENTS), "events"), (0, in_app(sql.ROUTINES), "routines"),
    (0, in_app(sql.FOREIGN_KEYS), "foreign-keys"), (0, in_app(sql.CHECKS), "checks"),
    *((0, column_grants_sql(), name) for name in ("scope", "keys", "engines", "types", "collations", "row-size")),
    (0, column_grants_sql(), "tables-present"), (1, "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE", "views"),
]  # fmt: skip


@pytest.mark.parametrize(("side", "statement", "name"), UNREAD)
def test_what_is_not_told_is_inconclusive(side: int, statement: str, name: str) -> None:
    sides = source(), target()
    sides[side].answers[statement] = PrivilegeError("x: command denied [1142]\n  SQL: secret", hint="GRANT it")
    found = [a for a in ask(*sides).answers if a.name.split(" ")[0] == name and "denied" in a.value]
    assert found
    assert {a.state for a in found} == {OPEN}
    assert all("SQL:" not in a.value for a in found)


def test_every_question_that_asks_the_server_can_be_left_without_an_answer() -> None:
    known = {"reachable", "tls", "version", "replicator", "clock", "ticdc"}  # from the greeting, the socket, HTTP
    assert {name for _, _, name in UNREAD} | known == {question.name for question in QUESTIONS}


@pytest.mark.parametrize("side", [0, 1])
def test_a_server_that_does_not_answer_is_one_inconclusive(side: int) -> None:
    sides: list[Fake | Exception] = [source(), target()]
    sides[side] = EndpointError("nothing answers", hint="Start it.")
    result = ask(*sides)
    name = ("source", "target")[side]
    silent = [a for a in result.answers if name in a.subject]
    assert [(a.name, a.state, a.todo) for a in silent] == [("reachable", OPEN, "Start it.")]
    assert {a.subject.split("/")[0] for a in result.answers} == {"source", "target"}
    assert len(result.answers) > 15
    assert result.verdict is Verdict.INCONCLUSIVE
    other = sides[1 - side]
    assert isinstance(other, Fake)
    assert other.closed


@pytest.mark.parametrize("statement", [CLOCK, in_app(sql.EVENTS), sql.STATISTICS, sql.ZONE_OFFSETS])
def test_a_connection_that_is_lost_ends_the_asking_once(statement: str) -> None:
    s, t = source(), target()
    side = t if statement in (sql.STATISTICS, sql.ZONE_OFFSETS) else s
    side.answers[statement] = RetryableReadError("gone away [2013]")
    side.dead = True
    result = ask(s, t)
    lost = [a for a in result.answers if "gone away" in a.value]
    assert [(a.name, a.state) for a in lost] == [("reachable", OPEN)]
    assert (s.closed, t.closed) == (True, True)


def test_a_time_limit_concerns_one_question_only() -> None:
    s, t = source(), target()
    s.answers[in_app(sql.EVENTS)] = TimeLimitError("too long [3024]")
    result = ask(s, t)
    assert [(a.name, a.state) for a in result.answers if a.state is OPEN] == [("events", OPEN)]


def test_nothing_is_written_and_no_statement_is_asked_twice() -> None:
    for platform in PLATFORMS:
        s, t = source(platform), target()
        ask(s, t)
        for fake in (s, t):
            assert all(
                one.startswith(("SELECT ", "SHOW ", "CALL mysql.rds_show_configuration"))
                or one == "SET SESSION information_schema_stats_expiry = 0"
                for one in fake.asked
            )
            several = {one for one in fake.asked if fake.asked.count(one) > 1}
            assert several <= {CLOCK}


def test_every_statement_over_the_catalog_names_a_database() -> None:
    s, t = source("mysql-5.7"), target()
    ask(s, t)
    free = ("information_schema.COLUMN_PRIVILEGES", "information_schema.CLUSTER_PROCESSLIST",
            "information_schema.COLLATIONS",
            "information_schema.TIKV_STORE_STATUS", "performance_schema.")  # fmt: skip
    for one in (*s.asked, *t.asked):
        if "information_schema." in one and not any(name in one for name in free):
            assert "SCHEMA = '" in one or "SCHEMA IN (" in one or "SCHEMA NOT IN (" in one, one
            assert ("DATA_LENGTH" not in one and "TABLE_ROWS" not in one) or "TABLE_NAME IN (" in one


@pytest.mark.parametrize(
    ("offset", "state"), [(0.0, PASS), (-1.9, PASS), (2.5, FAIL), (-3600.0, FAIL)],
)  # fmt: skip
def test_clocks_of_servers_and_of_this_machine(offset: float, state: AnswerState) -> None:
    s, t = source(), target()
    t.offset = offset
    result = ask(s, t)
    assert answer(result, "clock", "target").state is state
    assert answer(result, "clock", "source -> target").state is state
    assert answer(result, "clock", "source").state is PASS
    told = answer(result, "clock", "target")
    assert told.server_time == pytest.approx(NOW + offset)
    assert told.numbers["offset_seconds"] == pytest.approx(offset)


def test_a_round_trip_that_is_too_slow_tells_no_clock() -> None:
    found = check_basics._offset(1.0, 3.0, "of this machine")
    assert found.state is OPEN
    assert check_basics._offset(9.0, 3.0, "of this machine").state is FAIL


@pytest.mark.parametrize(
    ("used", "limit", "own", "state"),
    [("20", "500", "0", PASS), ("400", "500", "0", WARN), ("497", "500", "0", FAIL), ("9", "500", "10", FAIL),
     ("9000", "0", "0", PASS), (None, "500", "0", OPEN)],
)  # fmt: skip
def test_room_for_connections(used: str | None, limit: str, own: str, state: AnswerState) -> None:
    s, t = source(), target()
    s.variables |= {"max_connections": limit, "max_user_connections": own}
    s.answers[CONNECTIONS] = [("Threads_connected", used)]
    assert answer(ask(s, t), "connections", "source").state is state


def test_the_fullest_server_of_a_tidb_cluster_counts() -> None:
    t = target()
    t.variables["max_connections"] = "100"
    t.answers[TIDB_CONNECTIONS] = [("tidb-1", "3"), ("tidb-2", "99")]
    found = answer(ask(source(), t), "connections", "target")
    assert (found.state, found.value) == (FAIL, f"99 used of 100, {int(found.numbers['wanted'])} wanted")


def test_tidb_tells_its_sessions_to_who_may_see_them() -> None:
    s, t = source(), target()
    t.variables["max_connections"] = "100"
    assert answer(ask(s, t), "connections", "target").state is PASS
    t = target()
    t.variables["max_connections"], t.grants = "100", t.grants[1:]
    found = answer(ask(source(), t), "connections", "target")
    assert (found.state, found.todo) == (OPEN, "GRANT PROCESS ON *.* TO 'm'@'%';")


def test_stores_of_an_embedded_tidb_are_not_asked_for() -> None:
    t = target()
    t.answers[sql.STORES] = ReadError("target: pd http client unavailable [1105]")
    assert not [a for a in ask(source(), t).answers if a.name == "disk"]


@pytest.mark.parametrize(("told", "state"), [(None, FAIL), ("NULL", FAIL), ("12", WARN), ("168", PASS), ("x", OPEN)])
@pytest.mark.parametrize("platform", ["aurora", "rds"])
def test_retention_of_managed_servers(platform: str, told: str | None, state: AnswerState) -> None:
    s = source(platform)
    s.answers["CALL mysql.rds_show_configuration"] = [("binlog retention hours", told, "")]
    assert answer(ask(s, target()), "binlog binlog retention hours").state is state


def test_a_source_without_tls_in_a_trusted_network_is_said_so() -> None:
    s, t = source(), target()
    s.tls = t.tls = None
    result = ask(s, t, tls="disabled")
    assert {a.state for a in result.answers if a.name == "tls"} == {WARN}
    s, t = source(), target()
    assert {a.state for a in ask(s, t, tls="required").answers if a.name == "tls"} == {WARN}


def test_the_marker_of_a_watch_may_be_written() -> None:
    s, t = source(), target()
    s.grants = (*s.grants, "GRANT SELECT, INSERT, DELETE ON `ops`.`marker` TO `m`@`%`")
    assert answer(ask(s, t), "grants-excess", "source").state is FAIL
    plan = CheckPlan(3600.0, marker="ops.marker")
    assert answer(ask(source_like(s), target(), plan=plan), "grants-excess", "source").state is PASS


def test_a_user_that_only_reads_hides_what_it_may_not_see() -> None:
    s = source()
    s.grants = ("GRANT SELECT ON `app`.* TO `m`@`%`",)
    result = ask(s, target())
    assert answer(result, "grants-excess", "source").state is PASS
    hidden = {name: answer(result, name) for name in ("triggers", "events", "routines")}
    assert {a.state for a in hidden.values()} == {OPEN}, "an empty list of what is hidden is no `none`"
    assert hidden["triggers"].todo == "GRANT TRIGGER ON <database>.* TO 'm'@'%';"
    s.answers[in_app(sql.TRIGGERS)] = [("app", "orders", "stamp")]
    s = replace(s, asked=[])
    assert answer(ask(s, target()), "triggers").state is FAIL


def source_like(fake: Fake) -> Fake:
    other = source()
    other.grants = fake.grants
    return other


def test_a_snapshot_without_a_safe_point_fails() -> None:
    t = target()
    t.answers[sql.TIDB_STATE] = []
    assert answer(ask(source(), t, snapshot="2027-01-15 07:00:00"), "gc-safe-point").state is FAIL


def test_gc_without_a_planned_time() -> None:
    s, t = source(), target()
    assert answer(ask(s, t, plan=CheckPlan()), "gc-life-time").state is PASS
    t = target()
    t.variables["tidb_gc_life_time"] = "10m0s"
    assert answer(ask(source(), t, plan=CheckPlan()), "gc-life-time").state is WARN


def test_a_checkpoint_that_is_configured_and_missing_fails() -> None:
    plan = CheckPlan(3600.0, checkpoint="dm_meta.move_syncer_checkpoint")
    assert answer(ask(source(), target(), plan=plan), "dm").state is FAIL


def test_routes_lead_to_the_target() -> None:
    s, t = source(), target()
    t.tables = [
        Table("orders", database="moved"),
        Table("payments", database="moved"),
        Table("foreign", indexes=(), database="app"),
    ]
    for statement in (sql.FOREIGN_KEYS, sql.CHECKS):
        t.answers[sql.shown(statement, ("moved",))] = []
    t.grants = ("GRANT SELECT,INSERT,UPDATE,DELETE,PROCESS ON *.* TO 'm'@'%'",)
    result = ask(s, t, routes=[{"from": "app.*", "to": "moved.*"}])
    assert answer(result, "tables-present").state is PASS
    assert answer(result, "keys", "target").value == "none in 2 tables", "only what the sources lead to is in scope"


class TestTicdc:
    FEED: dict[str, Any] = {"id": "back", "namespace": "default", "state": "normal", "error": None}  # noqa: RUF012

    def feeds(self, monkeypatch: pytest.MonkeyPatch, told: Any) -> Any:
        def answers(url: str) -> Any:
            assert url == "http://cdc:8300/api/v2/changefeeds"
            if isinstance(told, Exception):
                raise told
            return told

        monkeypatch.setattr(check_feeds, "_changefeeds", answers)
        result = ask(source(), target(), plan=CheckPlan(3600.0, ("http://cdc:8300/",)))
        return [a for a in result.answers if a.name == "ticdc"]

    @pytest.mark.parametrize(
        ("change", "state"),
        [({}, PASS), ({"checkpoint_tso": int((NOW - 400) * 1000) << 18}, FAIL), ({"state": "failed"}, FAIL),
         ({"state": "warning", "error": {"message": "sink"}}, FAIL), ({"state": "unheard"}, OPEN),
         ({"state": None}, OPEN), ({"checkpoint_tso": None}, OPEN)],
    )  # fmt: skip
    def test_each_feed_is_judged(
        self, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], state: AnswerState
    ) -> None:
        feed = {**self.FEED, "checkpoint_tso": int((NOW - 2) * 1000) << 18, **change}
        (found,) = self.feeds(monkeypatch, [feed])
        assert found.state is state
        assert found.subject == "http://cdc:8300//default/back"

    def test_no_feed_and_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.feeds(monkeypatch, [])[0].state is WARN
        assert self.feeds(monkeypatch, OSError("refused"))[0].state is OPEN

    def test_a_real_answer_over_http(self) -> None:
        feed = {**self.FEED, "checkpoint_tso": int((NOW - 2) * 1000) << 18}

        class Api(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps({"total": 1, "items": [feed]}).encode()
                self.send_response(200 if self.path == "/api/v2/changefeeds" else 404)
                self.end_headers()
                self.wfile.write(body if self.path == "/api/v2/changefeeds" else b"no")

            def log_message(self, *_: object) -> None:
                pass

        with HTTPServer(("127.0.0.1", 0), Api) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            base = f"http://127.0.0.1:{server.server_address[1]}"
            result = ask(source(), target(), plan=CheckPlan(3600.0, (base, base + "/old")))
            server.shutdown()
        assert [a.state for a in result.answers if a.name == "ticdc"] == [PASS, OPEN]

    def test_it_is_not_asked_where_no_address_is_given(self) -> None:
        assert not [a for a in ask(source(), target()).answers if a.name == "ticdc"]


def test_no_password_shows() -> None:
    one = guard(source(), target())
    one.scope = replace(one.scope, secrets={"source": "hidden-word"})
    result = one.ask()
    assert "hidden-word" not in repr(one) + repr(result)


def test_questions_can_be_chosen() -> None:
    assert [q.name for q in chosen(["clock"])[0]] == ["clock"]
    assert "clock" not in {q.name for q in chosen((), ["clock"])[0]}
    assert chosen(["clok"])[1] == ["clok"]
    tables_only = {q.name for q in chosen((), (), [Work.TABLES])[0]}
    assert {"grants-tables", "clock"} <= tables_only
    assert not {"triggers", "binlog", "statistics"} & tables_only
    for work in Work:
        assert chosen((), (), [work])[0]
    result = guard(source(), target(), questions=chosen(["clock"])[0]).ask()
    assert [a.name for a in result.answers] == ["clock"] * 3


def test_further_endpoints_are_asked_what_needs_no_scope() -> None:
    one = guard(source(), target())
    further = source()
    inner = one.open
    tls = {"mode": "verify-identity"}
    ends = {name: {"url": f"mysql://m@{name}.example", "tls": tls} for name in ("source", "target", "ledger")}
    others = {"endpoints": {"ledger": ends.pop("ledger")}, "tables": {"include": ["app.*"]}}
    config = Config.model_validate({**ends, **others})
    one.scope = Scope(config, {"ledger": ""})
    one.open = lambda endpoint, password: further if endpoint.name == "ledger" else inner(endpoint, password)
    told = {a.name for a in one.ask().answers if a.subject == "ledger"}
    assert told == {"reachable", "tls", "version", "clock", "connections"}


def test_the_page_lists_every_question() -> None:
    page = Path(__file__).parents[3] / "docs" / "check.md"
    tables = {"questions": questions_table(), "binlog": parts_table("binlog")}
    tables |= {"settings": parts_table("other-settings"), "variables": parts_table("tidb-variables")}
    for mark, table in tables.items():
        text = page.read_text()
        begin, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
        before, _, rest = text.partition(begin)
        block, _, after = rest.partition(end)
        if os.environ.get("REGEN") == "1":
            page.write_text(before + begin + table + end + after)
            continue
        assert block == table, "run the tests once with REGEN=1 and look at the change"


class TestCommand:
    @pytest.fixture
    def config(self, tmp_path: Path) -> str:
        path = tmp_path / "migverify.yaml"
        path.write_text(
            "source: {url: 'mysql://m@127.0.0.1:1'}\ntarget: {url: 'tidb://m@127.0.0.1:1'}\n"
            "tables: {include: ['app.*']}\nstore: 'sqlite:///s.db'\n"
        )
        return str(path)

    def test_list_asks_nobody(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(["guard", "settings", "--list"]) == 0
        listed = capsys.readouterr().out
        assert all(question.name in listed for question in QUESTIONS)
        assert run(["guard", "settings", "--list", "--json", "--for", "tables"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert {one["name"] for one in told} == {q.name for q in chosen((), (), [Work.TABLES])[0]}

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [(["--only", "clok"], "no question is named clok"), (["--for", "tabels"], "no such work"),
         (["--only", "triggers", "--for", "tables"], "no question is left"), (["--ticdc", "cdc:8300"], "no address"),
         (["--ticdc", "http://u:hidden@cdc:8300"], "no user, password"),
         (["--metrics-port", "0"], "belongs to --watch")],
    )  # fmt: skip
    def test_what_does_not_exist_is_refused(
        self,
        arguments: list[str],
        words: str,
        config: str,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.chdir(Path(config).parent)
        assert run(["guard", "settings", "--config", config, *arguments]) == 2
        told = capsys.readouterr()
        assert words in told.err
        assert "hidden" not in told.err + told.out

    def test_servers_that_are_not_there(
        self, config: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(Path(config).parent)
        assert run(["guard", "settings", "--config", config, "--json"]) == 3
        told = json.loads(capsys.readouterr().out)
        assert told["verdict"] == "INCONCLUSIVE"
        assert [(a["name"], a["state"]) for a in told["guards"][0]["answers"]] == [("reachable", "inconclusive")] * 2
