"""The preflight, on recorded answers of servers: each condition can fail, and what is not told is no pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from migverify.errors import ChangeError, PrivilegeError, ReadError, RetryableReadError
from migverify.guards.check import BinlogCheck, preflight
from migverify.guards.check_binlog import RETENTION_CALL
from migverify.guards.check_parts import BINLOG
from migverify.guards.check_read import Cached, CheckedServer, CheckPlan, Platform
from migverify.guards.check_rules import Value
from migverify.guards.model import AnswerState, GuardAnswer
from migverify.model import ColumnDef, Endpoint, Flavor, IndexDef, TableDef, TableRef, Verdict
from migverify.sql.server import BINLOG_OVERRIDES as OVERRIDES
from migverify.sql.settings import FOREIGN_KEYS, REFERENTIAL_RULES, shown

NOW = 1_800_000_000.0

MYSQL_97 = {
    "log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL",
    "binlog_row_value_options": "", "binlog_transaction_compression": "OFF", "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON", "binlog_checksum": "CRC32", "binlog_encryption": "OFF",
    "binlog_rows_query_log_events": "OFF", "server_id": "1", "innodb_read_only": "OFF", "gtid_purged": "",
    "binlog_expire_logs_seconds": "2592000", "binlog_expire_logs_auto_purge": "ON", "log_replica_updates": "ON",
    "max_binlog_cache_size": "18446744073709547520", "basedir": "/usr/", "innodb_native_foreign_keys": "OFF",
}  # fmt: skip
MYSQL_57 = {
    name: value for name, value in MYSQL_97.items()
    if name not in ("binlog_row_metadata", "binlog_row_value_options", "binlog_transaction_compression",
                    "binlog_encryption", "binlog_expire_logs_seconds", "binlog_expire_logs_auto_purge",
                    "log_replica_updates", "innodb_native_foreign_keys")
} | {"expire_logs_days": "10", "log_slave_updates": "ON"}  # fmt: skip
MARIADB = {
    "log_bin": "ON", "binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_metadata": "FULL",
    "log_bin_compress": "OFF", "gtid_strict_mode": "ON", "binlog_checksum": "CRC32", "encrypt_binlog": "OFF",
    "binlog_annotate_row_events": "ON", "server_id": "88", "innodb_read_only": "OFF", "log_slave_updates": "ON",
    "binlog_expire_logs_seconds": "0", "expire_logs_days": "0.000000", "max_binlog_cache_size": "18446744073709547520",
}  # fmt: skip


class Recorded:
    """A session that knows what a server answered; a statement it has no answer for is a syntax error there."""

    def __init__(self, variables: dict[str, str], version: str = "9.7.4", flavor: Flavor = Flavor.MYSQL) -> None:
        self.version = version
        self.flavor = flavor
        self.asked: list[str] = []
        new = version.startswith(("8.4", "9."))
        status = "SHOW BINARY LOG STATUS" if new else "SHOW MASTER STATUS"
        self.answers: dict[str, Any] = {
            "SHOW GLOBAL VARIABLES": list(variables.items()),
            "SHOW GRANTS": [("GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO `m`@`%`",)],
            "SELECT CURRENT_USER()": [("it's@10.0.0.%",)],
            "SELECT UNIX_TIMESTAMP(NOW(6))": [(f"{NOW:.6f}",)],
            "SHOW BINARY LOGS": [{"Log_name": "binlog.000007", "File_size": "1000", "Encrypted": "No"}],
            status: [{"File": "binlog.000007", "Position": "1000", "Binlog_Do_DB": "", "Binlog_Ignore_DB": ""}],
            "SHOW REPLICAS" if new else "SHOW SLAVE HOSTS": [{"Server_Id": "12", "Host": "r1"}],
            "SHOW REPLICA STATUS" if new else "SHOW SLAVE STATUS": [],
            OVERRIDES: [("binlog_format", "ROW", "3"), ("sql_log_bin", "ON", "3")],
            shown(REFERENTIAL_RULES, ("app",)): [],
            shown(FOREIGN_KEYS, ("app",)): [],
        }

    def _answer(self, sql: str) -> Any:
        self.asked.append(sql)
        found = self.answers.get(sql, ReadError("You have an error in your SQL syntax [1064]"))
        if isinstance(found, Exception):
            raise found
        return found

    def alive(self) -> bool:
        return False

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        found: list[tuple[str | None, ...]] = self._answer(sql)
        return found

    def query_named(self, sql: str) -> list[dict[str, str | None]]:
        found: list[dict[str, str | None]] = self._answer(sql)
        return found


def table(name: str = "t", *, key: bool = True, engine: str = "InnoDB", data_type: str = "int") -> TableDef:
    index = (IndexDef("PRIMARY", True, ("id",), (None,)),) if key else ()
    column = ColumnDef("id", 1, data_type, data_type, nullable=False)
    return TableDef(TableRef("source", "app", name), (column,), index, 1, 1, engine=engine)


def server(
    session: Any, tables: tuple[TableDef, ...], begun: Callable[[str], float] | None = None,
    reader_id: int | None = None,
) -> CheckedServer:  # fmt: skip
    endpoint = Endpoint("source", "source.example", 3306, "m")
    found = CheckedServer(
        endpoint, Cached(session), lambda *_: True, lambda _, d, t: (d, t), CheckPlan(reader_id=reader_id),
        now=lambda: NOW, begun=begun,
    )  # fmt: skip
    found.tables = tables
    return found


def check(session: Recorded, *tables: TableDef, reader_id: int | None = None) -> BinlogCheck:
    return preflight(server(session, tables or (table(),), reader_id=reader_id))


def named(found: BinlogCheck, name: str) -> GuardAnswer:
    return next(a for a in found.answers if a.name == name)


@pytest.mark.parametrize(
    ("variables", "version"),
    [(MYSQL_97, "9.7.4"), ({**MYSQL_97, "expire_logs_days": "0", "log_slave_updates": "ON"}, "8.0.36")],
    ids=["mysql-9.7", "mysql-8.0"],
)
def test_a_fit_server_is_a_match(variables: dict[str, str], version: str) -> None:
    found = check(Recorded(variables, version))
    assert [f for f in found.answers if f.state is not AnswerState.PASS] == []
    assert found.verdict is Verdict.MATCH
    assert found.blind_spots


def test_nothing_is_asked_but_to_be_shown() -> None:
    session = Recorded({**MYSQL_97, "aurora_version": "3.08.0"})
    check(session)
    assert session.asked
    assert all(sql.startswith(("SHOW ", "SELECT ", "CALL mysql.rds_show_configuration")) for sql in session.asked)


@pytest.mark.parametrize(
    ("name", "value", "state", "todo"),
    [
        ("log_bin", "OFF", AnswerState.FAIL, "restart"),
        ("binlog_format", "MIXED", AnswerState.FAIL, "SET PERSIST binlog_format = ROW;"),
        ("binlog_row_image", "MINIMAL", AnswerState.FAIL, "SET PERSIST binlog_row_image = FULL;"),
        ("binlog_row_metadata", "MINIMAL", AnswerState.FAIL, "FULL"),
        ("binlog_row_value_options", "PARTIAL_JSON", AnswerState.FAIL, "SET PERSIST binlog_row_value_options = '';"),
        ("binlog_transaction_compression", "ON", AnswerState.WARN, "= OFF;"),
        ("gtid_mode", "ON_PERMISSIVE", AnswerState.WARN, "OFF_PERMISSIVE, ON_PERMISSIVE, ON"),
        ("enforce_gtid_consistency", "WARN", AnswerState.WARN, "= ON;"),
        ("binlog_checksum", "NONE", AnswerState.WARN, "= CRC32;"),
        ("binlog_encryption", "ON", AnswerState.WARN, "= OFF;"),
        ("server_id", "0", AnswerState.FAIL, "= 1;"),
        ("innodb_read_only", "ON", AnswerState.FAIL, "writer"),
        ("binlog_expire_logs_seconds", "3600", AnswerState.WARN, "= 604800;"),
    ],
)
def test_each_setting_can_fail(name: str, value: str, state: AnswerState, todo: str) -> None:
    found = check(Recorded({**MYSQL_97, name: value}))
    finding = named(found, name)
    assert (finding.state, finding.value) == (state, value)
    assert todo in finding.todo
    assert finding.why
    assert found.verdict is (Verdict.INCONCLUSIVE if state is AnswerState.FAIL else Verdict.MATCH)
    assert any(name in reason for reason in found.reasons) is (state is AnswerState.FAIL)


VALUES = [row.ask for row in BINLOG if isinstance(row.ask, Value)]


@pytest.mark.parametrize(
    "setting", [one for one in VALUES if one.absent is AnswerState.INCONCLUSIVE], ids=lambda one: one.names[0]
)
def test_a_variable_the_server_does_not_have_is_no_pass(setting: Any) -> None:
    found = check(Recorded({n: v for n, v in MYSQL_97.items() if n not in setting.names}))
    assert named(found, setting.names[0]).state is AnswerState.INCONCLUSIVE
    assert found.verdict is Verdict.INCONCLUSIVE


def test_mysql_57_is_asked_in_its_own_words_and_lacks_metadata() -> None:
    found = check(Recorded(MYSQL_57, "5.7.44-log"))
    bad = [f.name for f in found.answers if f.state is not AnswerState.PASS]
    assert bad == ["binlog_row_metadata"]
    assert "8.0.1" in named(found, "binlog_row_metadata").value
    assert named(found, "expire_logs_days").value == "10"
    assert named(found, "log_slave_updates").state is AnswerState.PASS


def test_old_and_new_retention_of_mysql_80() -> None:
    variables = {**MYSQL_97, "binlog_expire_logs_seconds": "0", "expire_logs_days": "0"}
    assert named(check(Recorded(variables, "8.0.36")), "expire_logs_days").state is AnswerState.PASS
    kept = check(Recorded({**MYSQL_97, "binlog_expire_logs_auto_purge": "OFF", "binlog_expire_logs_seconds": "60"}))
    assert named(kept, "binlog_expire_logs_auto_purge").state is AnswerState.PASS


def test_persist_is_for_mysql_8_only() -> None:
    old = named(check(Recorded({**MYSQL_57, "binlog_format": "MIXED"}, "5.7.44")), "binlog_format")
    assert old.todo.startswith("SET GLOBAL binlog_format = ROW; and the same in the option file.")


class TestAurora:
    VARIABLES: ClassVar = {**MYSQL_97, "aurora_version": "3.08.0", "binlog_expire_logs_seconds": "60"}

    def session(self, answer: Any) -> Recorded:
        session = Recorded(self.VARIABLES, "8.0.39")
        session.answers[RETENTION_CALL] = answer
        return session

    @pytest.mark.parametrize(
        ("hours", "state"),
        [
            (None, AnswerState.FAIL),
            ("168", AnswerState.PASS),
            ("1", AnswerState.WARN),
            ("soon", AnswerState.INCONCLUSIVE),
        ],
    )
    def test_the_hours_count_and_the_variable_does_not(self, hours: str | None, state: AnswerState) -> None:
        rows = [("source delay", "0", "..."), ("binlog retention hours", hours, "...")]
        found = check(self.session(rows))
        assert found.platform is Platform.AURORA
        assert named(found, "binlog retention hours").state is state
        assert not any(f.name.startswith("binlog_expire") for f in found.answers)

    def test_a_refused_call_is_not_a_pass(self) -> None:
        found = check(self.session(PrivilegeError("execute command denied [1370]\n  SQL: CALL")))
        finding = named(found, "binlog retention hours")
        assert finding.state is AnswerState.INCONCLUSIVE
        assert "GRANT EXECUTE ON PROCEDURE mysql.rds_show_configuration TO 'it''s'@'10.0.0.%';" in finding.todo
        assert found.verdict is Verdict.INCONCLUSIVE

    def test_settings_are_changed_in_the_parameter_group(self) -> None:
        session = Recorded({**self.VARIABLES, "binlog_row_image": "MINIMAL", "log_bin": "OFF"}, "8.0.39")
        session.answers[RETENTION_CALL] = [("binlog retention hours", "168", "")]
        found = check(session)
        assert "DB cluster parameter group" in named(found, "binlog_row_image").todo
        assert "reboot" in named(found, "log_bin").todo

    def test_rds_is_known_by_its_base_directory(self) -> None:
        session = Recorded({**MYSQL_97, "basedir": "/rdsdbbin/mysql-8.4.3.R1/"}, "8.4.3")
        session.answers[RETENTION_CALL] = [("binlog retention hours", None, "")]
        found = check(session)
        assert found.platform is Platform.RDS
        assert named(found, "binlog retention hours").state is AnswerState.FAIL


class TestGrants:
    def test_missing_grants_fail_with_the_statement_to_run(self) -> None:
        session = Recorded(MYSQL_97)
        for sql in ("SHOW BINARY LOG STATUS", "SHOW BINARY LOGS", "SHOW REPLICAS", "SHOW REPLICA STATUS", OVERRIDES):
            session.answers[sql] = PrivilegeError(
                "Access denied; you need (at least one of) the SUPER, REPLICATION CLIENT privilege(s) [1227]\n  SQL: "
                + sql
            )
        found = check(session)
        assert named(found, "REPLICATION SLAVE").todo == "GRANT REPLICATION SLAVE ON *.* TO 'it''s'@'10.0.0.%';"
        assert named(found, "REPLICATION CLIENT").todo == "GRANT REPLICATION CLIENT ON *.* TO 'it''s'@'10.0.0.%';"
        assert named(found, "REPLICATION SLAVE").state is named(found, "REPLICATION CLIENT").state is AnswerState.FAIL
        untold = {f.name for f in found.answers if f.state is AnswerState.INCONCLUSIVE}
        assert untold == {"binary logs", "log_replica_updates"}
        assert named(found, "binary logs").todo == "GRANT REPLICATION CLIENT ON *.* TO 'it''s'@'10.0.0.%';"
        assert named(found, "sessions").state is named(found, "server_id of the reader").state is AnswerState.WARN
        wished = check(session, reader_id=5)
        assert named(wished, "server_id of the reader").state is AnswerState.INCONCLUSIVE

    def test_the_binlog_of_a_mariadb_cannot_be_read(self) -> None:
        found = check(Recorded(MARIADB, "10.11.19-MariaDB", Flavor.MARIADB))
        assert named(found, "log_bin").state is AnswerState.FAIL
        assert found.verdict is Verdict.INCONCLUSIVE

    def test_a_lost_connection_is_an_error_and_no_finding(self) -> None:
        session = Recorded(MYSQL_97)
        session.answers["SHOW BINARY LOGS"] = RetryableReadError("Lost connection [2013]")
        with pytest.raises(RetryableReadError):
            check(session)


class TestServer:
    def test_filters_of_the_log_fail(self) -> None:
        session = Recorded(MYSQL_97)
        session.answers["SHOW BINARY LOG STATUS"] = [{"File": "f", "Position": "4", "Binlog_Ignore_DB": "audit"}]
        assert named(check(session), "binlog filters").value == "binlog_ignore_db audit"
        assert named(check(session), "binlog filters").state is AnswerState.FAIL

    def test_no_log_at_all_fails(self) -> None:
        session = Recorded(MYSQL_97)
        session.answers["SHOW BINARY LOGS"] = []
        assert named(check(session), "binary logs").state is AnswerState.FAIL

    def test_the_age_of_the_oldest_log_is_told_where_it_can_be(self) -> None:
        def refused(name: str) -> float:
            raise ChangeError(f"{name} does not come\nfor a reason")

        told = preflight(server(Recorded(MYSQL_97), (table(),), lambda _: NOW))
        assert named(told, "binary logs").value.startswith("oldest binlog.000007 of 2027-01-15 08:00:00Z, 1 files")
        untold = preflight(server(Recorded(MYSQL_97), (table(),), refused))
        assert "its age is unknown: binlog.000007 does not come)" in named(untold, "binary logs").value

    def test_a_log_beyond_four_gigabytes_warns(self) -> None:
        session = Recorded(MYSQL_97)
        session.answers["SHOW BINARY LOGS"] = [{"Log_name": "binlog.000001", "File_size": str(1 << 32)}]
        assert named(check(session), "transaction size").state is AnswerState.WARN

    def test_a_replica_must_log_what_it_replicates(self) -> None:
        session = Recorded({**MYSQL_97, "log_replica_updates": "OFF"})
        assert named(check(session), "log_replica_updates").state is AnswerState.PASS  # no replica: nothing to log
        session.answers["SHOW REPLICA STATUS"] = [
            {"Replica_SQL_Running": "No", "Replicate_Wild_Ignore_Table": "app.audit%", "Replicate_Do_DB": ""}
        ]
        found = check(session)
        assert named(found, "log_replica_updates").state is AnswerState.FAIL
        assert named(found, "replica").value == "replicate_wild_ignore_table app.audit%; its applier is stopped"

    def test_a_taken_server_id_fails(self) -> None:
        assert named(check(Recorded(MYSQL_97), reader_id=12), "server_id of the reader").state is AnswerState.FAIL
        assert named(check(Recorded(MYSQL_97), reader_id=1), "server_id of the reader").state is AnswerState.FAIL
        assert named(check(Recorded(MYSQL_97), reader_id=13), "server_id of the reader").state is AnswerState.PASS

    def test_sessions_with_values_of_their_own_are_named(self) -> None:
        session = Recorded(MYSQL_97)
        session.answers[OVERRIDES] = [("sql_log_bin", "OFF", "2"), ("binlog_format", "ROW", "9")]
        assert named(check(session), "sessions").value == "2 with sql_log_bin = OFF"
        assert named(check(session), "sessions").state is AnswerState.WARN

    @pytest.mark.parametrize(
        ("offset", "state"), [(0.5, AnswerState.PASS), (-30, AnswerState.WARN), (30, AnswerState.WARN)]
    )
    def test_a_clock_that_is_off_warns(self, offset: float, state: AnswerState) -> None:
        session = Recorded(MYSQL_97)
        session.answers["SELECT UNIX_TIMESTAMP(NOW(6))"] = [(f"{NOW + offset:.6f}",)]
        assert named(check(session), "clock").state is state


def shaped(name: str, *types: tuple[str, str], fsp: int | None = None) -> TableDef:
    """A table of columns ``c0``, ``c1``, ... of these (type, full type)."""
    columns = tuple(
        ColumnDef(f"c{n}", n + 1, base, full, False, fsp=fsp if base != "int" else None)
        for n, (base, full) in enumerate(types)
    )
    return replace(table(name), columns=columns)


class TestTables:
    def test_what_cannot_be_followed_is_listed(self) -> None:
        many = [table(f"k{n}", key=False) for n in range(12)]
        found = check(Recorded(MYSQL_97), *many, table("m", engine="MyISAM"), table("v", data_type="vector"))
        assert named(found, "tables without a primary key").value.startswith("12 in 14 tables: app.k0, ")
        assert named(found, "tables without a primary key").value.endswith("app.k9 and 2 more")
        assert named(found, "tables of other engines").value == "1 in 14 tables: app.m (MyISAM)"
        assert named(found, "VECTOR columns").value == "1 in 14 tables: app.v.id"

    def test_columns_that_the_binlog_tells_otherwise_are_named(self) -> None:
        shown = shaped("a", ("int", "int(6) unsigned zerofill"), ("decimal", "decimal(9,2) zerofill"), ("int", "int"))
        floats = shaped("b", ("float", "float(7,2)"), ("double", "double(9,3) unsigned"), ("float", "float"))
        found = check(Recorded(MYSQL_97), shown, floats)
        first = named(found, "ZEROFILL columns")
        assert first.state is AnswerState.WARN
        assert first.value == (
            "2 in 2 tables: app.a.c0 (int(6) unsigned zerofill), app.a.c1 (decimal(9,2) zerofill)"
        )  # fmt: skip
        second = named(found, "FLOAT(M,D) and DOUBLE(M,D) columns")
        assert (second.state, second.value) == (
            AnswerState.WARN, "2 in 2 tables: app.b.c0 (float(7,2)), app.b.c1 (double(9,3) unsigned)"
        )  # fmt: skip
        assert first.todo
        assert second.todo
        assert found.verdict is Verdict.MATCH  # they can be read; who reads the text is warned

    def test_many_columns_are_counted_to_the_end(self) -> None:
        finding = named(check(Recorded(MYSQL_97), shaped("t", *[("int", "int zerofill")] * 12)), "ZEROFILL columns")
        assert finding.value.startswith("12 in 1 table: app.t.c0 ")
        assert finding.value.endswith(" and 2 more")

    def test_cascades_inside_the_engine_fail(self) -> None:
        variables = {n: v for n, v in MYSQL_97.items() if n != "innodb_native_foreign_keys"}
        session = Recorded(variables, "8.4.3")
        other = ("app", "other", "fk_2", "CASCADE", "CASCADE")
        rules, keys = shown(REFERENTIAL_RULES, ("app",)), shown(FOREIGN_KEYS, ("app",))
        session.answers[rules] = [("app", "t", "fk_1", "CASCADE", "NO ACTION"), other]
        session.answers[keys] = [("app", "t", "fk_1"), ("app", "other", "fk_2")]
        finding = named(check(session), "cascading foreign keys")
        assert (finding.state, finding.value) == (AnswerState.FAIL, "1 in 1 table: app.t (fk_1)")
        session.answers[rules] = [("app", "t", "fk_1", "RESTRICT", "SET NULL"), other]
        assert named(check(session), "cascading foreign keys").state is AnswerState.FAIL
        session.answers[rules] = [("app", "t", "fk_1", "RESTRICT", "NO ACTION"), other]
        assert named(check(session), "cascading foreign keys").state is AnswerState.PASS
        session.answers[rules] = []  # MariaDB, asked by a user who may only SELECT
        finding = named(check(session), "cascading foreign keys")
        assert (finding.state, "GRANT REFERENCES" in finding.todo) == (AnswerState.INCONCLUSIVE, True)

    def test_no_table_is_inconclusive(self) -> None:
        found = preflight(server(Recorded(MYSQL_97), ()))
        assert named(found, "tables").state is AnswerState.INCONCLUSIVE
        assert found.verdict is Verdict.INCONCLUSIVE


def test_tidb_has_no_binlog() -> None:
    found = check(Recorded({}, "8.0.11-TiDB-v8.5.3", Flavor.TIDB))
    assert found.verdict is Verdict.INCONCLUSIVE
    assert "TiCDC" in found.answers[0].todo


def test_no_findings_is_no_match() -> None:
    empty = replace(check(Recorded(MYSQL_97)), answers=())
    assert empty.verdict is Verdict.INCONCLUSIVE
    assert empty.reasons == ("nothing was checked",)
