"""The rows of the table of questions that are parts of a question: conditions of the binlog, variables, types.

A part names one condition; what it leaves empty is its question's (``check_table``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from migverify.guards import check_basics as basics
from migverify.guards import check_binlog as binlog
from migverify.guards import check_tables as tables
from migverify.guards.check_rules import Agree, CheckQuestion, NoneOf, Of, Value, at_least
from migverify.guards.model import AnswerState, CheckResult, failed
from migverify.model import Flavor
from migverify.sql import settings as sql
from migverify.sql.server import BINLOG_OVERRIDES, BINLOG_STATUS, CLOCK, LOGS, REPLICA, REPLICAS

MYSQL, MARIADB, TIDB = (frozenset({flavor}) for flavor in (Flavor.MYSQL, Flavor.MARIADB, Flavor.TIDB))
_PASS, _WARN, _FAIL = AnswerState.PASS, AnswerState.WARN, AnswerState.FAIL


def _set(*values: str) -> frozenset[str]:
    return frozenset(values)


_OFF, _ON = _set("OFF", "0"), _set("ON", "1")


# --- the source's binlog ----------------------------------------------------------------------------------------


def _variable(wanted: str, why: str, value: Value, todo: str = "") -> CheckQuestion:
    """Return the row of a variable of a source."""
    return CheckQuestion(value.names[0], wanted, "", why, todo, value)


def _positive(value: str) -> AnswerState:
    return _PASS if value.isdigit() and int(value) else _FAIL


def _none(flavor: str) -> Callable[[object], Iterator[CheckResult]]:
    """Return what refuses a server that has no binlog of MySQL."""
    return lambda _: iter([failed(flavor)])


BINLOG: tuple[CheckQuestion, ...] = (
    CheckQuestion(
        "log_bin", "MySQL", "SELECT VERSION()", "TiDB has no binlog in MySQL's protocol.",
        "Read TiDB through TiCDC and Kafka.", _none("TiDB"), kinds=TIDB, alone=True,
    ),
    CheckQuestion(
        "log_bin", "MySQL", "SELECT VERSION()", "Only MySQL's binlog can be read.",
        "Verify whole tables; changes cannot be followed.", _none("MariaDB"), kinds=MARIADB,
    ),
    _variable(
        "ON", "Without a binary log there is no record of what is written.",
        Value(("log_bin",), _ON, set_to="ON", dynamic=False),
    ),
    _variable(
        "ROW", "STATEMENT and MIXED log texts whose effect on rows cannot be derived from the log.",
        Value(("binlog_format",), _set("ROW"), set_to="ROW", by_session=True),
    ),
    _variable(
        "FULL", "Other images leave out columns: a row can then not be rebuilt from the log.",
        Value(("binlog_row_image",), _set("FULL"), set_to="FULL", by_session=True),
    ),
    _variable(
        "FULL",
        "Only FULL records names, signs, character sets, ENUM labels and the primary key; without them -1 and"
        " 18446744073709551615 are the same bytes.",
        Value(("binlog_row_metadata",), _set("FULL"), absent=_FAIL,
              absent_means="the server cannot write it (MySQL before 8.0.1)"),
        "Read from a replica of MySQL 8.0 or later that has it set to FULL, or upgrade.",
    ),
    _variable(
        "''", "PARTIAL_JSON logs parts of JSON values instead of rows: the rows of such an update cannot be read.",
        Value(("binlog_row_value_options",), _set(""), absent=_PASS, set_to="''", by_session=True),
    ),
    _variable(
        "OFF (ON is read)",
        "Compressed transactions are unpacked; readers without that skip them silently, and unpacking costs time.",
        Value(("binlog_transaction_compression",), _OFF, other=_WARN, absent=_PASS, set_to="OFF", by_session=True),
    ),
    _variable(
        "ON",
        "GTIDs prove that no transaction is missing and survive a failover; without them a position is a file and"
        " an offset of one server only.",
        Value(("gtid_mode",), _set("ON"), other=_WARN, absent=_WARN),
        "Step by step, waiting on all replicas: OFF_PERMISSIVE, ON_PERMISSIVE, ON.",
    ),
    _variable(
        "ON", "Statements that cannot be logged as one transaction are refused instead of logged without a GTID.",
        Value(("enforce_gtid_consistency",), _ON, other=_WARN, absent=_WARN, set_to="ON"),
    ),
    _variable(
        "CRC32", "Without checksums a damaged byte inside a value cannot be noticed.",
        Value(("binlog_checksum",), _set("CRC32"), other=_WARN, set_to="CRC32"),
    ),
    _variable(
        "OFF (ON can be read from the server)",
        "The server sends encrypted binlogs in clear, but copied files cannot be read: archive over the network.",
        Value(("binlog_encryption", "encrypt_binlog"), _OFF, other=_WARN, absent=_PASS, set_to="OFF"),
    ),
    _variable(
        "ON or OFF", "ON adds the statement to each change: useful evidence, and it holds values in clear.",
        Value(("binlog_annotate_row_events", "binlog_rows_query_log_events"), _ON | _OFF, absent=_PASS, set_to="ON"),
    ),
    _variable(
        "1 or more", "A server with id 0 refuses every binlog reader.",
        Value(("server_id",), right=_positive, set_to="1"),
    ),
    _variable(
        "OFF", "A reader instance of Aurora writes no binlog.", Value(("innodb_read_only",), _OFF, absent=_PASS),
        "Use the cluster (writer) endpoint.",
    ),
    CheckQuestion(
        "binlog_expire_logs_seconds", "0 (never) or a day at least", sql.global_variable("binlog_expire_logs_seconds"),
        "A log that is purged before it was read ends the proof: everything must be verified again.",
        ask=binlog.retention,
    ),
    CheckQuestion(
        "REPLICATION SLAVE", "granted", REPLICAS[0], "The server sends its binlog to nobody without it.", alone=True,
        ask=partial(binlog.granted, grant="REPLICATION SLAVE", statements=REPLICAS),
    ),
    CheckQuestion(
        "REPLICATION CLIENT", "granted", BINLOG_STATUS[0],
        "Without it the list of logs and the current position stay unknown.", alone=True,
        ask=partial(binlog.granted, grant="REPLICATION CLIENT", statements=BINLOG_STATUS),
    ),
    CheckQuestion(
        "binary logs", "at least one", LOGS, "What is older than the first log can be verified by reading tables only.",
        "Turn log_bin on.", binlog.logs,
    ),
    CheckQuestion(
        "log_replica_updates", "ON where the source is a replica", REPLICA[0],
        "A replica without it logs nothing of what it replicates: its binlog is nearly empty and looks complete.",
        ask=binlog.replica,
    ),
    CheckQuestion(
        "sessions", "none with values of their own", BINLOG_OVERRIDES,
        "These settings can be set by a session for itself; a session keeps its value while the global one changes.",
        "Find them in performance_schema.variables_by_thread, and let them reconnect.", binlog.sessions,
    ),
    CheckQuestion(
        "server_id of the reader", "used by nobody", REPLICAS[0],
        "Two readers of one server_id end each other's stream.", ask=binlog.reader_id,
    ),
    CheckQuestion(
        "clock", f"within {basics.CLOCK_SECONDS:g} s of this machine", CLOCK,
        "Lag and settle times compare the source's commit times with this machine's clock.",
        "Let both hosts follow the same time source.", binlog.clock, alone=True,
    ),
    CheckQuestion(
        "tables", "at least one", sql.TABLES, "Nothing would be covered.",
        "Look at tables.include of the configuration.", binlog.tables, alone=True,
    ),
    CheckQuestion(
        "tables without a primary key", "none", sql.INDEXES,
        "Rows that cannot be distinguished cannot be followed: these tables are compared whole.",
        "Add a primary key, or plan a full comparison of these at the end.",
        NoneOf(tables.without_primary_key, _WARN), alone=True,
    ),
    CheckQuestion(
        "tables of other engines", "none", sql.TABLES,
        "Their writes are not undone with the transaction, and half a statement is in no log after a crash.",
        "ALTER TABLE ... ENGINE = InnoDB.", NoneOf(tables.of_other_engines, _WARN), alone=True,
    ),
    CheckQuestion(
        "VECTOR columns", "none", sql.COLUMNS,
        "Floats in bytes: they can be compared by nothing but their bytes, and other readers fail on them.",
        "Compare them apart, or leave the columns out.",
        NoneOf(tables.columns_that(lambda column: column.data_type == "vector"), _WARN),
    ),
    CheckQuestion(
        "ZEROFILL columns", "none", sql.COLUMNS,
        "The stream gives `42` where SELECT prints `000042`: a binlog does not record ZEROFILL.",
        "Compare them as numbers, as `tables`, `changes audit` and `tables watch` do; pad where you read the stream.",
        NoneOf(tables.columns_that(lambda c: "zerofill" in c.column_type.lower(), lambda c: c.column_type), _WARN),
    ),
    CheckQuestion(
        "FLOAT(M,D) and DOUBLE(M,D) columns", "none", sql.COLUMNS,
        "SELECT rounds them to D digits; the stream gives the value, as the binlog does not record M and D.",
        "Compare them as numbers, as `tables`, `changes audit` and `tables watch` do; or use DECIMAL.",
        NoneOf(tables.columns_that(tables.rounded, lambda column: column.column_type), _WARN),
    ),
    CheckQuestion(
        "cascading foreign keys", "none, or carried out above the engine", sql.REFERENTIAL_RULES,
        "ON DELETE CASCADE and its like change child rows inside InnoDB: those changes are in no binlog.",
        "Verify the child tables by reading them whole; changes of theirs cannot be followed.", binlog.cascades,
    ),
)  # fmt: skip
"""The question ``binlog`` row by row; ``changes check`` puts all of them, those that are ``alone`` too."""

# --- variables --------------------------------------------------------------------------------------------------

_LONG = "the target's at least the source's"


def _agree(wanted: str, why: str, pair: Agree) -> CheckQuestion:
    """Return the row of a variable of both sides; it is left out where one side lacks it."""
    return CheckQuestion(pair.name, wanted, "", why, of=Of.PAIR, pair=pair)


_IDLE = "A shorter one cuts idle connections that the pools still believe in."
OTHER_SETTINGS = (
    _agree("equal", "A statement alone is committed on one side and waits on the other.", Agree("autocommit")),
    _agree(_LONG, _IDLE, Agree("wait_timeout", at_least, _WARN)),
    _agree(_LONG, _IDLE, Agree("interactive_timeout", at_least, _WARN)),
    _agree(_LONG, "A shorter one ends transactions that used to wait for a lock.",
           Agree("innodb_lock_wait_timeout", at_least, _WARN)),
    _agree(_LONG, "A shorter one cuts results of GROUP_CONCAT off, with no more than a warning.",
           Agree("group_concat_max_len", at_least)),
    _agree("equal",
           "Where it is off, NULL written into a TIMESTAMP becomes the current time, and columns get defaults.",
           Agree("explicit_defaults_for_timestamp")),
    _agree("equal", "Quotients get another number of digits.", Agree("div_precision_increment")),
    _agree("equal", "WEEK() counts otherwise.", Agree("default_week_format")),
    _agree("equal", "CREATE TABLE is refused on one side only.", Agree("sql_require_primary_key", other=_WARN)),
    _agree("equal", "Sessions begin with other settings.", Agree("init_connect", other=_WARN)),
)  # fmt: skip


def _of_tidb(
    name: str, wanted: str, good: frozenset[str], why: str, todo: str, *, other: AnswerState = _FAIL,
    right: Callable[[str], AnswerState] | None = None, since: tuple[int, ...] = (), new_session: bool = False,
) -> CheckQuestion:  # fmt: skip
    """Return the row of a variable of TiDB."""
    value = Value(
        (name,), good, right, other, absent_means=basics.UNREPORTED, absent_todo="Look with a user who may see it.",
        since=since, new_session=new_session,
    )  # fmt: skip
    return CheckQuestion(name, wanted, "", why, todo, value)


def _memory(value: str) -> AnswerState:
    if not value.lstrip("-").isdigit():
        return AnswerState.INCONCLUSIVE
    return _PASS if int(value) < 0 or int(value) >= 1 << 30 else _WARN


TIDB_VARIABLES = (
    _of_tidb("tidb_txn_mode", "pessimistic", _set("PESSIMISTIC"),
             "Optimistic transactions do not wait for locks: conflicts come at COMMIT as error 9007, which no"
             " application of MySQL expects.", "SET GLOBAL tidb_txn_mode = 'pessimistic';"),
    _of_tidb("tidb_enable_noop_functions", "OFF", _OFF,
             "ON accepts READ ONLY transactions, LOCK IN SHARE MODE and others, and does nothing.",
             "SET GLOBAL tidb_enable_noop_functions = OFF; and let the application do without."),
    _of_tidb("tidb_skip_isolation_level_check", "OFF", _OFF,
             "ON accepts SERIALIZABLE and READ UNCOMMITTED, and gives snapshot isolation.",
             "SET GLOBAL tidb_skip_isolation_level_check = OFF;"),
    _of_tidb("tidb_mem_quota_query", "1 GiB or more", _set(),
             "A statement that needs more is ended: reports that ran on the source fail.",
             "SET GLOBAL tidb_mem_quota_query = 1073741824;", right=_memory),
    _of_tidb("tidb_constraint_check_in_place_pessimistic", "ON", _ON,
             "OFF reports a duplicate key at COMMIT, and not at the statement.",
             "Set pessimistic-txn.constraint-check-in-place-pessimistic = true in TiDB's configuration.",
             other=_WARN, since=(6, 4), new_session=True),
    _of_tidb("tidb_multi_statement_mode", "OFF", _OFF,
             "ON runs several statements in one text, also for clients that never requested that: what an injection"
             " needs.", "SET GLOBAL tidb_multi_statement_mode = OFF;", other=_WARN),
    _of_tidb("tidb_super_read_only", "OFF", _OFF,
             "ON refuses every write with error 1836: replication stops, and so does the application.",
             "SET GLOBAL tidb_super_read_only = OFF; unless that is meant (rollback)."),
    _of_tidb("tidb_restricted_read_only", "OFF", _OFF,
             "ON turns tidb_super_read_only on, and that stays on when it is turned off.",
             "SET GLOBAL tidb_restricted_read_only = OFF; then tidb_super_read_only as well."),
    CheckQuestion("tidb_constraint_check_in_place", "ON", sql.global_variable("tidb_constraint_check_in_place"),
                  "In optimistic transactions OFF reports a duplicate key at COMMIT, and not at the statement.",
                  "SET GLOBAL tidb_constraint_check_in_place = ON; or use pessimistic transactions.",
                  basics.optimistic_checks),
)  # fmt: skip

# --- types ------------------------------------------------------------------------------------------------------

TYPES = (
    CheckQuestion("columns", pair=NoneOf(tables.columns_that(tables.unsupported, lambda column: column.data_type))),
    CheckQuestion(
        "indexes", why="TiDB refuses SPATIAL and ignores or refuses FULLTEXT: the queries on them fail or become slow.",
        pair=NoneOf(tables.indexes_unsupported),
    ),
    CheckQuestion(
        "invisible columns",
        why="TiDB has no INVISIBLE columns: SELECT * and INSERT without a list mean something else.",
        pair=NoneOf(tables.columns_that(lambda column, _: column.invisible)),
    ),
)  # fmt: skip
