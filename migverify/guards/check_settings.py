"""Questions of the settings guard about variables: pairs that must agree, and TiDB's own. Knowledge as data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from migverify.errors import ReadError, RetryableReadError
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, passed, unknown, warned
from migverify.model import Flavor
from migverify.sql import settings as sql
from migverify.tables.type_change import collation_change

GIB = 1 << 30
_ISOLATION = ("transaction_isolation", "tx_isolation")
_SUPPORTED_ISOLATION = frozenset({"REPEATABLE-READ", "READ-COMMITTED"})
# Words that say nothing of how a statement behaves on the other server.
_EMPTY_MODES = frozenset({"NO_AUTO_CREATE_USER", ""})
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def sql_mode(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the modes as sets, without words that mean nothing here."""
    ours, theirs = (_modes(server.variable("sql_mode")) for server in (source, target))
    only_source, only_target = sorted(ours - theirs), sorted(theirs - ours)
    if not only_source and not only_target:
        yield passed(",".join(sorted(ours)) or "empty on both")
        return
    value = f"only the source: {', '.join(only_source) or 'none'}; only the target: {', '.join(only_target) or 'none'}"
    yield failed(value, f"On the target: SET GLOBAL sql_mode = '{source.variable('sql_mode')}';")


def _modes(text: str) -> frozenset[str]:
    return frozenset(word.strip().upper() for word in text.split(",")) - _EMPTY_MODES


def charset(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare what a new table, and a text in a statement, gets where nothing is said."""
    for name in ("character_set_server", "collation_server", "default_collation_for_utf8mb4"):
        query = f"SHOW GLOBAL VARIABLES LIKE '{name}'"
        if name not in source.variables and name.startswith("default_"):
            continue  # MySQL before 8.0, MariaDB: utf8mb4 has one default there
        ours, theirs = source.variable(name), target.variable(name)
        value = f"{name}: source {ours}, target {theirs}"
        if ours == theirs:
            yield passed(value, part=name, query=query)
            continue
        words, otherwise = collation_change(ours, theirs) if "collation" in name else ("other characters", True)
        todo = "Spell CHARACTER SET and COLLATE out in every CREATE TABLE and connection, or make them equal."
        yield CheckResult(
            AnswerState.WARN if otherwise else AnswerState.PASS, f"{value}: {words}", todo, part=name, query=query
        )


def isolation(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the isolation that transactions begin with."""
    ours, theirs = _isolation(source), _isolation(target)
    value = f"source {ours}, target {theirs}"
    if ours not in _SUPPORTED_ISOLATION and target.flavor is Flavor.TIDB:
        todo = "Let the application live with REPEATABLE-READ or READ-COMMITTED; TiDB answers others with error 8048."
        yield failed(value, todo)
        return
    yield CheckResult(AnswerState.PASS if ours == theirs else AnswerState.FAIL, value)


def _isolation(server: CheckedServer) -> str:
    name = next((name for name in _ISOLATION if name in server.variables), _ISOLATION[0])
    return server.variable(name).upper()


def packet(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare the largest statements and rows that the servers take."""
    ours, theirs = _number(source, "max_allowed_packet"), _number(target, "max_allowed_packet")
    numbers = {"source_bytes": float(ours), "target_bytes": float(theirs)}
    value = f"source {ours}, target {theirs}"
    todo = f"On the target: SET GLOBAL max_allowed_packet = {ours};"
    yield CheckResult(AnswerState.PASS if theirs >= ours else AnswerState.FAIL, value, todo, numbers=numbers)


def _number(server: CheckedServer, name: str) -> int:
    value = server.variable(name)
    if not value.lstrip("-").isdigit():
        raise ReadError(f"{server.name}: {name} is {value or repr('')}, no number")
    return int(value)


def auto_increment(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare step and offset of generated ids."""
    names = ("auto_increment_increment", "auto_increment_offset")
    ours, theirs = (tuple(_number(server, name) for name in names) for server in (source, target))
    value = f"step and offset: source {ours[0]} and {ours[1]}, target {theirs[0]} and {theirs[1]}"
    todo = "Set both alike; with several writers give the sides offsets that never meet."
    yield CheckResult(AnswerState.PASS if ours == theirs else AnswerState.FAIL, value, todo)


@dataclass(frozen=True, slots=True)
class _PairedVariable:
    name: str
    agree: Callable[[str, str], bool]
    wanted: str
    state: AnswerState
    why: str


def _equal(source: str, target: str) -> bool:
    return _switch(source) == _switch(target)


def _switch(value: str) -> str:
    return {"1": "ON", "0": "OFF"}.get(value, value.upper())


def _as_long(source: str, target: str) -> bool:
    return source.isdigit() and target.isdigit() and int(target) >= int(source)


_PAIRS = (
    _PairedVariable("autocommit", _equal, "equal", AnswerState.FAIL,
          "A statement alone is committed on one side and waits on the other."),
    _PairedVariable("wait_timeout", _as_long, "the target's at least the source's", AnswerState.WARN,
          "A shorter one cuts idle connections that the pools still believe in."),
    _PairedVariable("interactive_timeout", _as_long, "the target's at least the source's", AnswerState.WARN,
          "A shorter one cuts idle connections that the pools still believe in."),
    _PairedVariable("innodb_lock_wait_timeout", _as_long, "the target's at least the source's", AnswerState.WARN,
          "A shorter one ends transactions that used to wait for a lock."),
    _PairedVariable("group_concat_max_len", _as_long, "the target's at least the source's", AnswerState.FAIL,
          "A shorter one cuts results of GROUP_CONCAT off, with no more than a warning."),
    _PairedVariable("explicit_defaults_for_timestamp", _equal, "equal", AnswerState.FAIL,
          "Where it is off, NULL written into a TIMESTAMP becomes the current time, and columns get defaults."),
    _PairedVariable("div_precision_increment", _equal, "equal", AnswerState.FAIL,
        "Quotients get another number of digits."),
    _PairedVariable("default_week_format", _equal, "equal", AnswerState.FAIL, "WEEK() counts otherwise."),
    _PairedVariable("sql_require_primary_key", _equal, "equal", AnswerState.WARN,
        "CREATE TABLE is refused on one side only."),
    _PairedVariable("init_connect", _equal, "equal", AnswerState.WARN, "Sessions begin with other settings."),
)  # fmt: skip


def other_settings(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare further variables of which both servers tell; what one lacks has no say there."""
    for pair in _PAIRS:
        if pair.name not in source.variables or pair.name not in target.variables:
            continue
        ours, theirs = source.variables[pair.name], target.variables[pair.name]
        fine = pair.agree(ours, theirs)
        yield CheckResult(
            AnswerState.PASS if fine else pair.state, f"source {ours or repr('')}, target {theirs or repr('')}",
            f"On the target: SET GLOBAL {pair.name} = {_literal(ours)};", pair.name, pair.wanted,
            f"SHOW GLOBAL VARIABLES LIKE '{pair.name}'", pair.why,
        )  # fmt: skip


def _literal(value: str) -> str:
    return value if value.isdigit() or value.upper() in ("ON", "OFF") else "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True, slots=True)
class _Own:
    """A variable of TiDB. ``judge`` gets the value in upper case; ``since`` the first version that has it.

    ``session`` says that it has no global value: a new session gets it from the server's configuration.
    """

    name: str
    wanted: str
    judge: Callable[[str], AnswerState]
    why: str
    todo: str
    since: tuple[int, ...] = (0,)
    session: bool = False


def _one_of(*good: str, other: AnswerState = AnswerState.FAIL) -> Callable[[str], AnswerState]:
    return lambda value: AnswerState.PASS if value in good else other


def _memory(value: str) -> AnswerState:
    if not value.lstrip("-").isdigit():
        return AnswerState.INCONCLUSIVE
    return AnswerState.PASS if int(value) < 0 or int(value) >= GIB else AnswerState.WARN


TIDB_VARIABLES = (
    _Own("tidb_txn_mode", "pessimistic", _one_of("PESSIMISTIC"),
         "Optimistic transactions do not wait for locks: conflicts come at COMMIT as error 9007, which no"
         " application of MySQL expects.", "SET GLOBAL tidb_txn_mode = 'pessimistic';"),
    _Own("tidb_enable_noop_functions", "OFF", _one_of("OFF", "0"),
         "ON accepts READ ONLY transactions, LOCK IN SHARE MODE and others, and does nothing.",
         "SET GLOBAL tidb_enable_noop_functions = OFF; and let the application do without."),
    _Own("tidb_skip_isolation_level_check", "OFF", _one_of("OFF", "0"),
         "ON accepts SERIALIZABLE and READ UNCOMMITTED, and gives snapshot isolation.",
         "SET GLOBAL tidb_skip_isolation_level_check = OFF;"),
    _Own("tidb_mem_quota_query", "1 GiB or more", _memory,
         "A statement that needs more is ended: reports that ran on the source fail.",
         "SET GLOBAL tidb_mem_quota_query = 1073741824;"),
    _Own("tidb_constraint_check_in_place_pessimistic", "ON", _one_of("ON", "1", other=AnswerState.WARN),
         "OFF tells a duplicate key at COMMIT, and not at the statement.",
         "Set pessimistic-txn.constraint-check-in-place-pessimistic = true in TiDB's configuration.", (6, 4), True),
    _Own("tidb_multi_statement_mode", "OFF", _one_of("OFF", "0", other=AnswerState.WARN),
         "ON runs several statements in one text, also for clients that never requested that: what an injection needs.",
         "SET GLOBAL tidb_multi_statement_mode = OFF;"),
    _Own("tidb_super_read_only", "OFF", _one_of("OFF", "0"),
         "ON refuses every write with error 1836: replication stops, and so does the application.",
         "SET GLOBAL tidb_super_read_only = OFF; unless that is meant (rollback)."),
    _Own("tidb_restricted_read_only", "OFF", _one_of("OFF", "0"),
         "ON turns tidb_super_read_only on, and that stays on when it is turned off.",
         "SET GLOBAL tidb_restricted_read_only = OFF; then tidb_super_read_only as well."),
)  # fmt: skip


def tidb_variables(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the variables that decide how TiDB behaves."""
    if server.flavor is not Flavor.TIDB:
        return
    for own in TIDB_VARIABLES:
        value = _own_value(server, own)
        query = _own_query(own)
        if value is None:
            old = server.number and server.number < own.since
            state = AnswerState.PASS if old else AnswerState.INCONCLUSIVE
            said = "this version has no such variable" if old else "the server does not report"
            yield CheckResult(state, said, "Look with a user who may see it.", own.name, own.wanted, query, own.why)
            continue
        yield CheckResult(own.judge(value.upper()), value or "''", own.todo, own.name, own.wanted, query, own.why)
    yield _optimistic_checks(server)


def _own_query(own: _Own) -> str:
    return sql.session_variable(own.name) if own.session else f"SHOW GLOBAL VARIABLES LIKE '{own.name}'"


def _own_value(server: CheckedServer, own: _Own) -> str | None:
    if not own.session:
        return server.variables.get(own.name)
    try:
        value = server.session.query(_own_query(own))[0][0]
    except RetryableReadError:
        raise
    except ReadError:  # this version does not know it, or it was never reported: the caller knows which
        return None
    return {"1": "ON", "0": "OFF"}.get(value or "", value)


def _optimistic_checks(server: CheckedServer) -> CheckResult:
    """Judge the check of optimistic transactions, which counts only where transactions are optimistic."""
    name = "tidb_constraint_check_in_place"
    query = f"SHOW GLOBAL VARIABLES LIKE '{name}'"
    why = "In optimistic transactions OFF tells a duplicate key at COMMIT, and not at the statement."
    todo = f"SET GLOBAL {name} = ON; or use pessimistic transactions."
    value = server.variables.get(name, "").upper()
    if not value:
        return unknown("the server does not report", todo, name, "ON", query, why)
    if value in ("ON", "1") or server.variables.get("tidb_txn_mode", "").lower() == "pessimistic":
        said = value if value in ("ON", "1") else f"{value}; transactions are pessimistic"
        return passed(said, "", name, "ON", query, why)
    return warned(value, todo, name, "ON", query, why)


def new_collations(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge whether TiDB compares texts by their collation at all; fixed when a cluster is made."""
    if server.flavor is not Flavor.TIDB:
        return
    reported = server.session.query(sql.NEW_COLLATIONS)[0][0]
    if reported not in ("0", "1"):
        raise ReadError(f"{server.name}: the server compares two letters and says {reported!r}")
    yield CheckResult(
        AnswerState.PASS if reported == "1" else AnswerState.FAIL,
        "they count" if reported == "1" else "it compares bytes",
    )


def duration(text: str) -> float | None:
    """Return a duration as TiDB writes it (``10m0s``) in seconds; None for another text."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)
