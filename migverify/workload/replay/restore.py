"""What brings a fresh session into the state of a captured one.

Each setting is a statement of its own, so that one which a server refuses leaves the others in force. What the flavor
is known not to take, and what no statement brings back, is named in ``lost``; a refusal at run time is the engine's
to name likewise. Nothing is dropped silently.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any

from migverify.model import Flavor
from migverify.sql.quoting import quote_name, quote_text
from migverify.workload.replay.safety import read_only_mode
from migverify.workload.state import SessionState

RESET_CLOCK = b"SET timestamp = DEFAULT"
"""Lets a session's clock run again, behind a call whose clock was set."""

_TIDB_ISOLATIONS = frozenset({"REPEATABLE-READ", "READ-COMMITTED"})
_READ_ISOLATIONS = _TIDB_ISOLATIONS | {"READ-UNCOMMITTED"}
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


_PLAIN_MODE = (
    b"SET SESSION sql_mode=REPLACE(REPLACE(REPLACE(@@SESSION.sql_mode,'NO_BACKSLASH_ESCAPES',''),'ANSI_QUOTES',''),"
    b"'ANSI','')"
)
"""Takes out the modes that change how a statement is read: where the capture does not know them, none is assumed."""


def reading(state: SessionState) -> tuple[bytes, ...]:
    """Return what makes a session read statements as they were classified: its character set and its sql_mode.

    A server that refuses one of these must not be asked: it would read another statement.
    """
    names = () if state.charset is None else (f"SET NAMES {quote_text(state.charset)}".encode(),)
    if state.sql_mode is None:
        return (*names, _PLAIN_MODE)
    return (*names, f"SET SESSION sql_mode={quote_text(state.sql_mode)}".encode())


def restored(state: SessionState, flavor: Flavor, *, read_only: bool = False) -> Restored:
    """Return what to say in a fresh session, and what is lost all the same.

    What the capture did not see being set is left to the server's default, but for modes that change how a statement is
    read. A state inside a transaction begins one, so that a ROLLBACK that follows has something to undo; that its
    earlier statements are missing is named as lost. With ``read_only`` nothing is set that lets a session write or
    lock, and it is made read-only before a transaction begins.
    """
    made = _Made(flavor)
    if state.database:
        made.say(f"USE {quote_name(state.database)}")
    made.commands += reading(state)
    if state.time_zone is not None:
        made.say(f"SET SESSION time_zone={quote_text(state.time_zone)}")
        if state.time_zone.upper() == "SYSTEM":
            made.lost.append("time zone SYSTEM: it is each server's own")
    if state.isolation is not None and read_only and state.isolation.upper() not in _READ_ISOLATIONS:
        made.lost.append(f"isolation {state.isolation}: its reads would lock rows")
    elif state.isolation is not None:
        _isolation(state.isolation, made)
    if state.autocommit is not None:
        made.say(f"SET SESSION autocommit={int(state.autocommit)}")
    if state.rest:
        _rest(state, made, read_only=read_only)
    if read_only:
        made.commands += read_only_mode(flavor)[0]
    if state.transaction:
        made.say("BEGIN")
        made.lost.append("open transaction: what it did before is not in this session")
    return Restored(tuple(made.commands), tuple(made.lost))


def set_clock(moment: int) -> bytes:
    """Return what sets a session's clock, in Unix microseconds, until ``RESET_CLOCK``."""
    return b"SET timestamp = %d.%06d" % divmod(moment, 1_000_000)


def _isolation(isolation: str, made: _Made) -> None:
    level = isolation.upper().replace(" ", "-")
    if made.flavor is Flavor.TIDB and level not in _TIDB_ISOLATIONS:
        made.lost.append(f"isolation {level}: TiDB refuses it (8048)")
        return
    name = "tx_isolation" if made.flavor is Flavor.MARIADB else "transaction_isolation"
    made.say(f"SET SESSION {name}={quote_text(level)}")


def _rest(state: SessionState, made: _Made, *, read_only: bool) -> None:
    try:
        rest: Any = state.parts
    except ValueError:
        rest = None
    if not isinstance(rest, dict):
        made.lost.append("session variables: the capture's record of them cannot be read")
        return
    for name, value in rest.get("variables", {}).items():
        if not (read_only and name in _READ_ONLY):
            _variable(str(name), str(value), made)
    for name, value in rest.get("user_variables", {}).items():
        if value is None:
            made.lost.append(f"user variable @{name}: its value was computed")
        elif state.modes.charset and not f"{name}{value}".isascii():
            made.lost.append(f"user variable @{name}: its text is not ASCII, in character set {state.charset}")
        else:
            made.say(f"SET @{quote_name(str(name))}={_value(str(value))}")
    made.lost += [f"variable {name}: its value is not in the text" for name in rest.get("unresolved", {})]
    made.lost += [f"temporary table {name}" for name in rest.get("temporary_tables", [])]
    made.lost += [f"statement prepared by name: {name}" for name in rest.get("prepared_names", [])]
    if rest.get("next_transaction"):
        made.lost.append("SET TRANSACTION for the next transaction alone")


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


def _value(value: str) -> str:
    return value if _NUMBER.match(value) or value.upper() in _WORDS else quote_text(value)


_NOT_SET = ("transaction", "rest")


def standing(state: SessionState) -> SessionState:
    """Return what of a state a connection keeps by itself: all but the transaction and what only names things."""
    return replace(state, transaction=False, rest=json.dumps(_variables(state), sort_keys=True))


def _variables(state: SessionState) -> dict[str, Any]:
    rest = state.parts
    return {name: rest[name] for name in ("variables", "user_variables", "unresolved") if name in rest}


def reachable(before: SessionState, after: SessionState) -> bool:
    """Tell whether SETs alone lead from one state to another: nothing goes back to a default that is not known."""
    for name in SessionState.__dataclass_fields__:
        if name not in _NOT_SET and getattr(before, name) is not None and getattr(after, name) is None:
            return False
    old, new = _variables(before), _variables(after)
    return all(set(old.get(part, {})) <= set(new.get(part, {})) for part in old)
