"""The settings of a source that decide whether its binlog can be read exactly: knowledge as data.

Each row names a variable in all spellings that servers use (the newest first), what it must say, what it means where
the server has no such variable, and why anybody should care. Source of the names: the reference manuals of MySQL 5.7
to 9.7 and of MariaDB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from migverify.guards.model import AnswerState
from migverify.model import Flavor


class Platform(StrEnum):
    """Who runs the server: decides where a setting is changed and who purges binlogs."""

    OWN = "own"
    RDS = "rds"
    AURORA = "aurora"


DAY = 86_400
OFFSET_BYTES = 1 << 32
"""Event positions have 32 bits: beyond 4 GiB in one file they start again at 0."""
TRANSACTIONAL = frozenset({"innodb", "ndbcluster", "ndb", "rocksdb", "tokudb", "myrocks"})


@dataclass(frozen=True, slots=True)
class BinlogSetting:
    """One variable.

    ``good`` holds the values that pass, in upper case; ``judge``, where given, decides instead. ``other`` is the state
    of any other value, ``absent`` that of a server which lacks the variable. ``dynamic`` says that no restart is
    needed, ``session`` that any session may set a value of its own.
    """

    names: tuple[str, ...]
    wanted: str
    good: frozenset[str]
    why: str
    other: AnswerState = AnswerState.FAIL
    absent: AnswerState = AnswerState.INCONCLUSIVE
    absent_means: str = "the server has no such variable"
    dynamic: bool = True
    session: bool = False
    judge: Callable[[str], AnswerState] | None = None
    todo: str = ""

    def state(self, value: str) -> AnswerState:
        """Judge a value as the server spells it."""
        if self.judge is not None:
            return self.judge(value)
        return AnswerState.PASS if value.upper() in self.good else self.other


def _values(*texts: str) -> frozenset[str]:
    return frozenset(texts)


def _number(value: str) -> int | None:
    return int(value) if value.isdigit() else None


def _server_id(value: str) -> AnswerState:
    return AnswerState.PASS if _number(value) else AnswerState.FAIL


def _seconds_kept(value: str) -> AnswerState:
    seconds = _number(value)
    if seconds is None:
        return AnswerState.INCONCLUSIVE
    return AnswerState.PASS if seconds == 0 or seconds >= DAY else AnswerState.WARN


def _days_kept(value: str) -> AnswerState:
    try:
        days = float(value)
    except ValueError:
        return AnswerState.INCONCLUSIVE
    return AnswerState.PASS if days == 0 or days >= 1 else AnswerState.WARN


SETTINGS: tuple[BinlogSetting, ...] = (
    BinlogSetting(
        ("log_bin",), "ON", _values("ON", "1"), "Without a binary log nothing tells what is written.", dynamic=False,
    ),
    BinlogSetting(
        ("binlog_format",), "ROW", _values("ROW"),
        "STATEMENT and MIXED log texts whose effect on rows cannot be derived from the log.", session=True,
    ),
    BinlogSetting(
        ("binlog_row_image",), "FULL", _values("FULL"),
        "Other images leave out columns: a row can then not be rebuilt from the log.", session=True,
    ),
    BinlogSetting(
        ("binlog_row_metadata",), "FULL", _values("FULL"),
        "Only FULL tells names, signs, character sets, ENUM labels and the primary key; without them -1 and"
        " 18446744073709551615 are the same bytes.",
        absent=AnswerState.FAIL, absent_means="the server cannot write it (MySQL before 8.0.1)",
        todo="Read from a replica of MySQL 8.0 or later that has it set to FULL, or upgrade.",
    ),
    BinlogSetting(
        ("binlog_row_value_options",), "''", _values(""),
        "PARTIAL_JSON logs parts of JSON values instead of rows: the rows of such an update cannot be read.",
        absent=AnswerState.PASS, session=True,
    ),
    BinlogSetting(
        ("binlog_transaction_compression",), "OFF (ON is read)", _values("OFF", "0"),
        "Compressed transactions are unpacked; readers without that skip them silently, and unpacking costs time.",
        other=AnswerState.WARN, absent=AnswerState.PASS, session=True,
    ),
    BinlogSetting(
        ("gtid_mode",), "ON", _values("ON"),
        "GTIDs prove that no transaction is missing and survive a failover; without them a place is a file and an"
        " offset of one server only.",
        other=AnswerState.WARN, absent=AnswerState.WARN,
        todo="Step by step, waiting on all replicas: OFF_PERMISSIVE, ON_PERMISSIVE, ON.",
    ),
    BinlogSetting(
        ("enforce_gtid_consistency",), "ON", _values("ON", "1"),
        "Statements that cannot be logged as one transaction are refused instead of logged without a GTID.",
        other=AnswerState.WARN, absent=AnswerState.WARN,
    ),
    BinlogSetting(
        ("binlog_checksum",), "CRC32", _values("CRC32"),
        "Without checksums a damaged byte inside a value cannot be noticed.", other=AnswerState.WARN,
    ),
    BinlogSetting(
        ("binlog_encryption", "encrypt_binlog"), "OFF (ON can be read from the server)", _values("OFF", "0"),
        "The server sends encrypted binlogs in clear, but copied files cannot be read: archive over the network.",
        other=AnswerState.WARN, absent=AnswerState.PASS,
    ),
    BinlogSetting(
        ("binlog_annotate_row_events", "binlog_rows_query_log_events"), "ON or OFF", _values("ON", "OFF", "0", "1"),
        "ON adds the statement to each change: useful evidence, and it holds values in clear.", absent=AnswerState.PASS,
    ),
    BinlogSetting(
        ("server_id",), "1 or more", _values(), "A server with id 0 refuses every binlog reader.", judge=_server_id,
    ),
    BinlogSetting(
        ("innodb_read_only",), "OFF", _values("OFF", "0"),
        "A reader instance of Aurora writes no binlog.", absent=AnswerState.PASS, dynamic=False,
        todo="Use the cluster (writer) endpoint.",
    ),
)  # fmt: skip

RETENTION: tuple[BinlogSetting, ...] = (
    BinlogSetting(
        ("binlog_expire_logs_seconds",), "0 (never) or a day at least", _values(),
        "A log that is purged before it was read ends the proof: everything must be verified again.",
        judge=_seconds_kept,
    ),
    BinlogSetting(
        ("expire_logs_days",), "0 (never) or a day at least", _values(),
        "A log that is purged before it was read ends the proof: everything must be verified again.",
        judge=_days_kept,
    ),
)  # fmt: skip
"""Who keeps binlogs how long, on a server that is not Aurora or RDS: the first variable that the server has counts."""

REPLICA_UPDATES = BinlogSetting(
    ("log_replica_updates", "log_slave_updates"), "ON", _values("ON", "1"),
    "A replica without it logs nothing of what it replicates: its binlog is nearly empty and looks complete.",
    dynamic=False,
)  # fmt: skip


def remedy(setting: BinlogSetting, name: str, version: tuple[int, ...], flavor: Flavor, platform: Platform) -> str:
    """Return what to do so that a setting passes, as this server wants it done."""
    if setting.todo:
        return setting.todo
    value = setting.wanted.split(" ")[0]
    if platform is not Platform.OWN:
        group = "DB cluster parameter group" if platform is Platform.AURORA else "DB parameter group"
        if name == "log_bin":
            how = "binlog_format = ROW there turns the log on" if platform is Platform.AURORA else "turn backups on"
            return f"In the {group}: {how}, then reboot."
        return f"Set {name} = {value} in the {group}" + ("." if setting.dynamic else ", then reboot.")
    if setting.judge is not None:
        value = str(7 * DAY) if name == "binlog_expire_logs_seconds" else "7" if name == "expire_logs_days" else "1"
    if not setting.dynamic:
        return f"Put {name.replace('_', '-')} into the option file and restart the server."
    if flavor is Flavor.MYSQL and version >= (8,):
        text = f"SET PERSIST {name} = {value};"
    else:
        text = f"SET GLOBAL {name} = {value}; and the same in the option file."
    return text + (" Open sessions keep their old value: let the pools reconnect." if setting.session else "")
