"""What a fresh session is told so that it stands where a captured one stood.

Each setting is a statement of its own, so that one which a server refuses leaves the others in force. What the flavor
is known not to take, and what no statement brings back, is named in ``lost``; a refusal at run time is the engine's
to name likewise. Nothing is dropped silently.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from migverify.model import Flavor
from migverify.sql.quoting import quote_name, quote_text
from migverify.workload.replay.model import Call
from migverify.workload.state import State

UNPINNED = b"SET timestamp=DEFAULT"
"""Lets a session's clock run again, behind a call whose clock was set."""

_TIDB_CHARSETS = frozenset({"utf8", "utf8mb3", "utf8mb4", "ascii", "latin1", "binary", "gbk", "gb18030"})
_TIDB_ISOLATIONS = frozenset({"REPEATABLE-READ", "READ-COMMITTED"})
# They change what the server logs or which data it shows: a replay never sets them.
_NEVER = frozenset({
    "sql_log_bin", "gtid_next", "pseudo_slave_mode", "pseudo_replica_mode", "pseudo_thread_id", "tidb_snapshot",
    "tidb_read_staleness", "tidb_super_read_only", "original_commit_timestamp", "original_server_version",
    "immediate_server_version", "tidb_skip_utf8_check", "server_id",
})  # fmt: skip
_READ_ONLY = frozenset({"transaction_read_only", "tx_read_only"})
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?\Z")
_WORDS = frozenset({"ON", "OFF", "DEFAULT", "TRUE", "FALSE", "NULL"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.$]*\Z")


@dataclass(frozen=True, slots=True)
class Restored:
    """``commands`` in their order; ``lost`` says in fixed words what cannot be brought back on this server."""

    commands: tuple[bytes, ...]
    lost: tuple[str, ...] = ()


@dataclass(slots=True)
class _Made:
    flavor: Flavor
    commands: list[bytes] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def say(self, sql: str) -> None:
        self.commands.append(sql.encode())


def restored(state: State, flavor: Flavor) -> Restored:
    """Return what to say in a fresh session, and what is lost all the same.

    What the capture did not see being set is left to the server's default. A state inside a transaction begins one,
    so that a ROLLBACK that follows has something to undo; that its earlier statements are missing is told as lost.
    """
    made = _Made(flavor)
    if state.database:
        made.say(f"USE {quote_name(state.database)}")
    if state.charset is not None:
        _charset(state.charset, made)
    if state.sql_mode is not None:
        made.say(f"SET SESSION sql_mode={quote_text(state.sql_mode)}")
    if state.time_zone is not None:
        made.say(f"SET SESSION time_zone={quote_text(state.time_zone)}")
        if state.time_zone.upper() == "SYSTEM":
            made.lost.append("time zone SYSTEM: it is each server's own")
    if state.isolation is not None:
        _isolation(state.isolation, made)
    if state.autocommit is not None:
        made.say(f"SET SESSION autocommit={int(state.autocommit)}")
    if state.rest:
        _rest(state.rest, made)
    if state.transaction:
        made.say("BEGIN")
        made.lost.append("open transaction: what it did before is not in this session")
    return Restored(tuple(made.commands), tuple(made.lost))


def commands(state: State, flavor: Flavor) -> list[bytes]:
    """Return the SETs that bring a fresh session into a captured state; ``restored`` also says what is lost."""
    return list(restored(state, flavor).commands)


def clock(call: Call) -> bytes | None:
    """Return ``SET timestamp=...`` for a call whose session had set its clock, None for one that had not.

    The setting stays until ``UNPINNED`` is said.
    """
    if call.clock is None:
        return None
    seconds, micros = divmod(call.clock, 1_000_000)
    return b"SET timestamp=%d.%06d" % (seconds, micros)


def _charset(charset: str, made: _Made) -> None:
    if made.flavor is Flavor.TIDB and charset.lower() not in _TIDB_CHARSETS:
        made.lost.append(f"character set {charset}: TiDB does not know it")
    elif not _NAME.match(charset):
        made.lost.append("character set: not a name")
    else:
        made.say(f"SET NAMES {quote_text(charset)}")


def _isolation(isolation: str, made: _Made) -> None:
    level = isolation.upper().replace(" ", "-")
    if made.flavor is Flavor.TIDB and level not in _TIDB_ISOLATIONS:
        made.lost.append(f"isolation {level}: TiDB refuses it (8048)")
        return
    name = "tx_isolation" if made.flavor is Flavor.MARIADB else "transaction_isolation"
    made.say(f"SET SESSION {name}={quote_text(level)}")


def _rest(rest: str, made: _Made) -> None:
    try:
        told: Any = json.loads(rest)
    except json.JSONDecodeError:
        told = None
    if not isinstance(told, dict):
        made.lost.append("session variables: the capture's record of them cannot be read")
        return
    for name, value in told.get("variables", {}).items():
        _variable(str(name), str(value), made)
    for name, value in told.get("user_variables", {}).items():
        if value is None:
            made.lost.append(f"user variable @{name}: its value was computed")
        else:
            made.say(f"SET @{quote_name(str(name))}={_value(str(value))}")
    made.lost += [f"variable {name}: its value is not in the text" for name in told.get("unresolved", {})]
    made.lost += [f"temporary table {name}" for name in told.get("temporary_tables", [])]
    made.lost += [f"statement prepared by name: {name}" for name in told.get("prepared_names", [])]
    following = told.get("next_transaction", "")
    if following:
        _next_transaction(str(following), made)


def _variable(name: str, value: str, made: _Made) -> None:
    if not _NAME.match(name):
        made.lost.append("variable: not a name")
    elif name in _NEVER:
        made.lost.append(f"variable {name}: a replay never sets it")
    elif name in _READ_ONLY and made.flavor is Flavor.TIDB:
        if value.upper() not in ("0", "OFF", "FALSE"):
            made.lost.append(f"variable {name}: TiDB has no read-only sessions (1235)")
    else:
        made.say(f"SET SESSION {name}={_value(value)}")


def _next_transaction(text: str, made: _Made) -> None:
    words = text.upper().split()
    if words[:1] != ["TRANSACTION"] or not all(word.strip(",").isalpha() for word in words):
        made.lost.append("SET TRANSACTION: its text cannot be read")
    elif made.flavor is Flavor.TIDB and ("ONLY" in words or "SERIALIZABLE" in words or "UNCOMMITTED" in words):
        made.lost.append("SET TRANSACTION: TiDB refuses it (1235, 8048)")
    else:
        made.say("SET " + " ".join(words))


def _value(value: str) -> str:
    return value if _NUMBER.match(value) or value.upper() in _WORDS else quote_text(value)
