"""The settings of a source that decide whether its binlog can be read exactly: knowledge as data.

Each row names a variable in all spellings that servers use (the newest first), what it must say, what it means where
the server has no such variable, and why anybody should care. Source of the names: the reference manuals of MySQL 5.7
to 9.7 and of MariaDB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from migverify.guards.model import State
from migverify.model import Flavor


class Platform(StrEnum):
    """Who runs the server: decides where a setting is changed and who purges binlogs."""

    OWN = "own"
    RDS = "rds"
    AURORA = "aurora"


MYSQL = frozenset({Flavor.MYSQL})
MARIADB = frozenset({Flavor.MARIADB})
BOTH = MYSQL | MARIADB
DAY = 86_400
OFFSET_BYTES = 1 << 32
"""Event positions have 32 bits: beyond 4 GiB in one file they start again at 0."""
TRANSACTIONAL = frozenset({"innodb", "ndbcluster", "ndb", "rocksdb", "tokudb", "myrocks"})


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable.

    ``good`` holds the values that pass, in upper case; ``judge``, where given, decides instead. ``other`` is the state
    of any other value, ``absent`` that of a server which lacks the variable. ``dynamic`` says that no restart is
    needed, ``session`` that any session may set a value of its own.
    """

    names: tuple[str, ...]
    wanted: str
    good: frozenset[str]
    why: str
    other: State = State.FAIL
    absent: State = State.INCONCLUSIVE
    absent_means: str = "the server has no such variable"
    flavors: frozenset[Flavor] = BOTH
    dynamic: bool = True
    session: bool = False
    judge: Callable[[str], State] | None = None
    todo: str = ""

    def state(self, value: str) -> State:
        """Judge a value as the server spells it."""
        if self.judge is not None:
            return self.judge(value)
        return State.PASS if value.upper() in self.good else self.other


def _values(*texts: str) -> frozenset[str]:
    return frozenset(texts)


def _number(value: str) -> int | None:
    return int(value) if value.isdigit() else None


def _server_id(value: str) -> State:
    return State.PASS if _number(value) else State.FAIL


def _seconds_kept(value: str) -> State:
    seconds = _number(value)
    if seconds is None:
        return State.INCONCLUSIVE
    return State.PASS if seconds == 0 or seconds >= DAY else State.WARN


def _days_kept(value: str) -> State:
    try:
        days = float(value)  # MariaDB 10.6 and later give fractions of a day
    except ValueError:
        return State.INCONCLUSIVE
    return State.PASS if days == 0 or days >= 1 else State.WARN


SETTINGS: tuple[Setting, ...] = (
    Setting(
        ("log_bin",), "ON", _values("ON", "1"), "Without a binary log nothing tells what is written.", dynamic=False,
    ),
    Setting(
        ("binlog_format",), "ROW", _values("ROW"),
        "STATEMENT and MIXED log texts whose effect on rows cannot be told from the log.", session=True,
    ),
    Setting(
        ("binlog_row_image",), "FULL", _values("FULL"),
        "Other images leave out columns: a row can then not be rebuilt from the log.", session=True,
    ),
    Setting(
        ("binlog_row_metadata",), "FULL", _values("FULL"),
        "Only FULL tells names, signs, character sets, ENUM labels and the primary key; without them -1 and"
        " 18446744073709551615 are the same bytes.",
        absent=State.FAIL, absent_means="the server cannot write it (MySQL before 8.0.1, MariaDB before 10.5)",
        todo="Read from a replica of MySQL 8.0 or MariaDB 10.5 or later that has it set to FULL, or upgrade.",
    ),
    Setting(
        ("binlog_row_value_options",), "'' (PARTIAL_JSON is read)", _values(""),
        "PARTIAL_JSON logs changes of JSON values: they are applied to the before image, other readers may not.",
        other=State.WARN, flavors=MYSQL, absent=State.PASS, session=True,
    ),
    Setting(
        ("binlog_transaction_compression",), "OFF (ON is read)", _values("OFF", "0"),
        "Compressed transactions are unpacked; readers without that skip them silently, and unpacking costs time.",
        other=State.WARN, absent=State.PASS, flavors=MYSQL, session=True,
    ),
    Setting(
        ("log_bin_compress",), "OFF (ON is read)", _values("OFF", "0"),
        "MariaDB's compressed events are unpacked; many other readers skip them silently.",
        other=State.WARN, absent=State.PASS, flavors=MARIADB,
    ),
    Setting(
        ("gtid_mode",), "ON", _values("ON"),
        "GTIDs prove that no transaction is missing and survive a failover; without them a place is a file and an"
        " offset of one server only.",
        other=State.WARN, absent=State.WARN, flavors=MYSQL,
        todo="Step by step, waiting on all replicas: OFF_PERMISSIVE, ON_PERMISSIVE, ON.",
    ),
    Setting(
        ("enforce_gtid_consistency",), "ON", _values("ON", "1"),
        "Statements that cannot be logged as one transaction are refused instead of logged without a GTID.",
        other=State.WARN, absent=State.WARN, flavors=MYSQL,
    ),
    Setting(
        ("gtid_strict_mode",), "ON", _values("ON", "1"),
        "Without it sequence numbers may go back or repeat, and a gap proves nothing.",
        other=State.WARN, absent=State.WARN, flavors=MARIADB,
    ),
    Setting(
        ("binlog_checksum",), "CRC32", _values("CRC32"),
        "Without checksums a damaged byte inside a value cannot be noticed.", other=State.WARN,
    ),
    Setting(
        ("binlog_encryption", "encrypt_binlog"), "OFF (ON can be read from the server)", _values("OFF", "0"),
        "The server sends encrypted binlogs in clear, but copied files cannot be read: archive over the network.",
        other=State.WARN, absent=State.PASS,
    ),
    Setting(
        ("binlog_annotate_row_events", "binlog_rows_query_log_events"), "ON or OFF", _values("ON", "OFF", "0", "1"),
        "ON adds the statement to each change: useful evidence, and it holds values in clear.", absent=State.PASS,
    ),
    Setting(
        ("server_id",), "1 or more", _values(), "A server with id 0 refuses every binlog reader.", judge=_server_id,
    ),
    Setting(
        ("innodb_read_only",), "OFF", _values("OFF", "0"),
        "A reader instance of Aurora writes no binlog.", absent=State.PASS, dynamic=False,
        todo="Use the cluster (writer) endpoint.",
    ),
)  # fmt: skip

RETENTION: tuple[Setting, ...] = (
    Setting(
        ("binlog_expire_logs_seconds",), "0 (never) or a day at least", _values(),
        "A log that is purged before it was read ends the proof: everything must be verified again.",
        judge=_seconds_kept,
    ),
    Setting(
        ("expire_logs_days",), "0 (never) or a day at least", _values(),
        "A log that is purged before it was read ends the proof: everything must be verified again.",
        judge=_days_kept,
    ),
)  # fmt: skip
"""Who keeps binlogs how long, on a server that is not Aurora or RDS: the first variable that the server has counts."""

REPLICA_UPDATES = Setting(
    ("log_replica_updates", "log_slave_updates"), "ON", _values("ON", "1"),
    "A replica without it logs nothing of what it replicates: its binlog is nearly empty and looks complete.",
    dynamic=False,
)  # fmt: skip


def remedy(setting: Setting, name: str, version: tuple[int, ...], flavor: Flavor, platform: Platform) -> str:
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
