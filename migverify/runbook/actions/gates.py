"""Gates of a cutover as actions: each gives value, threshold, query and both clocks; what cannot be read has no value.

The source is never written by this tool, save where a runbook names the table, the account and the endpoint for it:
``marker.write``. Its account needs SELECT, INSERT and DELETE on that table, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from migverify.db.snapshot import CURRENT_TSO, current_timestamp
from migverify.errors import EndpointError, ReadError, UsageError
from migverify.model import Endpoint, Flavor, Side
from migverify.runbook.actions import gate_judges as gates
from migverify.runbook.actions import gate_reads as reads
from migverify.runbook.actions.action import (
    Action,
    ActionKind,
    ActionResult,
    Argument,
    Bounds,
    Context,
    Outcome,
    Registry,
)
from migverify.runbook.actions.builtin import endpoint_of, run_program
from migverify.runbook.actions.commands import TIMEOUT
from migverify.runbook.actions.gate_judges import GateResult
from migverify.runbook.actions.gate_reads import Door
from migverify.runbook.actions.statements import Account, tracked
from migverify.secrets import resolve_password, resolve_variable
from migverify.sql import gates as sql

__all__ = ["register"]

_RESERVE = 2.0
"""Seconds of the time limit that are kept for an answer in order."""
_APART = 0.5
_ENDING_SECONDS = 3.0
"""So long a transaction may still take to end before it counts as open."""
_NONE = Bounds(minimum=0, maximum=0)


# --- arguments -----------------------------------------------------------------------------------------------


def _endpoint(name: str, about: str) -> Argument:
    return Argument(name, "text", about)


_USER = Argument("user", "text", "The account that probes; default: that of the endpoint.")
_PASSWORD = Argument("password_env", "text", "Environment variable with that account's password; default: none.")
_SERVERS = Argument("servers", "list", "Every server to be asked, as host:port; default: the endpoint's address.")
_AS = (_USER, _PASSWORD, _SERVERS)
_PROBED = Argument("tables", "list", "Tables to be probed, as database.table.", required=True)
_MARKER = Argument("table", "text", "The marker table, as database.table.", required=True)
_NAME = Argument("name", "text", "Name of the marker; default: the run's id.")


def _door(arguments: Mapping[str, Any], context: Context, endpoint: str, *, own: bool = True) -> Door:
    """Return where to go: the endpoint with its own account, or with ``user`` where ``own`` is false."""
    found: Endpoint = replace(endpoint_of({"endpoint": endpoint}, context), query_seconds=max(1.0, context.timeout))
    if own or "user" not in arguments:
        return Door(found, resolve_password(found).reveal() or None)
    name = arguments.get("password_env")
    password = resolve_variable(name, f"password_env of {context.step or 'a gate'}").reveal() if name else None
    return Door(replace(found, user=arguments["user"], password_env=name, password_command=None), password)


def _doors(arguments: Mapping[str, Any], context: Context, endpoint: str) -> list[Door]:
    door = _door(arguments, context, endpoint, own=False)
    return [door.at(one) for one in arguments.get("servers", ())] or [door]


# --- answers -------------------------------------------------------------------------------------------------


def _result(judged: GateResult, query: str, begun: float, servers_clock: float | None) -> ActionResult:
    facts = {**judged.facts, "threshold": judged.threshold, "query": query, "server_time": servers_clock,
             "local_time": begun}  # fmt: skip
    outcome = Outcome.OK if judged.value is not None else Outcome.NO_DATA
    return ActionResult(outcome, judged.text, judged.value, facts)


Gate = Callable[[Mapping[str, Any], Context], ActionResult]


def _readable(gate: Gate) -> Gate:
    """Let what cannot be read be no data, with the reason; what is wrong in the arguments stays a failure."""

    def asked(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        begun = time.time()
        try:
            return gate(arguments, context)
        except UsageError:
            raise
        except (EndpointError, ReadError) as error:
            return ActionResult(Outcome.NO_DATA, " ".join(error.message.split("\n")[0].split()), None,
                                {"local_time": begun, "hint": error.hint})  # fmt: skip

    return asked


def _until(context: Context) -> float:
    return time.monotonic() + max(0.0, context.timeout - _RESERVE)


# --- writes refused or accepted ------------------------------------------------------------------------------


def _writes(endpoint: str, judge: Callable[[Sequence[gates.WriteProbe]], GateResult], *, whole: bool) -> Gate:
    """Return a gate that probes writing; ``whole`` asks for every server of a cluster."""

    def asked(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        begun, name = time.time(), arguments.get("endpoint", endpoint)
        if "user" not in arguments:
            raise UsageError("user is missing: a probe is made as the application's account")
        attempts = []
        for door in _doors(arguments, context, name):
            attempts += reads.probe_writes(
                door, arguments["tables"], login_denied=arguments.get("login_denied", False),
                unreachable=arguments.get("unreachable", False),
            )  # fmt: skip
        # The reader's own account shows that the server lives: one that is down refuses everything.
        with reads.opened(_door(arguments, context, name)) as session:
            clock = reads.clock(session)
            missing = reads.missing_servers(session, len({a.server for a in attempts})) if whole else []
        attempts += [
            gates.WriteProbe(one, "not asked", gates.WriteProbeResult.UNKNOWN, "name it in `servers`")
            for one in missing
        ]
        query = "; ".join(q for t in arguments["tables"] for q in sql.write_probes(t, ()))
        return _result(judge(attempts), query, begun, clock)

    return _readable(asked)


# --- sessions, transactions, positions -----------------------------------------------------------------------


def _sessions(endpoint: str) -> Gate:
    def asked(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        begun = time.time()
        users, exempt = arguments.get("users", ()), arguments.get("exempt", ())
        if not users and not exempt:
            raise UsageError("say whose sessions: `users`, or everybody but `exempt`")
        found, clock = [], None
        for door in _doors(arguments, context, arguments.get("endpoint", endpoint)):
            with reads.opened(door) as session:
                clock, tidb = reads.clock(session), session.flavor is Flavor.TIDB
                found += reads.sessions(session, door, users, exempt)
        what = f"sessions of {', '.join(users)}" if users else f"sessions of others than {', '.join(exempt)}"
        return _result(gates.nothing_open(found, what), sql.TIDB_SESSIONS if tidb else sql.SESSIONS, begun, clock)

    return _readable(asked)


def _transactions(endpoint: str) -> Gate:
    def asked(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        begun, until = time.time(), min(_until(context), time.monotonic() + _ENDING_SECONDS)
        while True:
            found, clock, tidb = _open_transactions(arguments, context, endpoint)
            judged = gates.nothing_open(found, "open transactions and DDL", older_than=arguments.get("older_than", 0.0))
            # Right after a freeze the last transactions and those of the server itself are about to end.
            if not judged.value or time.monotonic() >= until or context.canceled.wait(_APART):
                return _result(judged, sql.TIDB_TRANSACTIONS if tidb else sql.TRANSACTIONS, begun, clock)

    return _readable(asked)


def _open_transactions(
    arguments: Mapping[str, Any], context: Context, endpoint: str
) -> tuple[list[gates.Open], float | None, bool]:
    """Return what is open on any server, the clock of the last one, and whether it is TiDB."""
    found: list[gates.Open] = []
    clock, tidb = None, False
    for door in _doors(arguments, context, arguments.get("endpoint", endpoint)):
        with reads.opened(door) as session:
            clock, tidb = reads.clock(session), session.flavor is Flavor.TIDB
            found += reads.transactions(session, door, arguments.get("exempt", ()))
            # A statement of DDL counts however young: it commits by itself.
            found += [replace(one, age=None) for one in reads.ddl_statements(session, door)]
    return found, clock, tidb


def _position(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    begun = time.time()
    with reads.opened(_door(arguments, context, arguments.get("endpoint", Side.SOURCE.value))) as session:
        found, clock = reads.position_text(session), reads.clock(session)
    # The value is the offset, so that it can be compared with a bound: any place in a log is behind its fourth byte.
    offset = float(found.partition(" ")[0].rpartition(":")[2])
    return _result(GateResult(offset, found, "a position", {"position": found}), "SHOW BINARY LOG STATUS", begun, clock)


def _stable(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    begun, readings = time.time(), int(arguments.get("readings", 3))
    apart = float(arguments.get("apart", 3.0))
    if (readings - 1) * apart > context.timeout - _RESERVE:
        raise UsageError(f"{readings} readings, {apart:g} s apart, do not fit into {context.timeout:g} s")
    with reads.opened(_door(arguments, context, arguments.get("endpoint", Side.SOURCE.value))) as session:
        judged = gates.stable(lambda: reads.position_text(session), context.canceled.wait, readings, apart)
        clock = reads.clock(session)
    return _result(judged, "SHOW BINARY LOG STATUS", begun, clock)


def _quiet(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    begun, seconds = time.time(), float(arguments.get("seconds", 10.0))
    if seconds <= 0 or seconds > context.timeout - _RESERVE:
        raise UsageError(f"{seconds:g} s of looking do not fit into {context.timeout:g} s")
    exempt = arguments.get("exempt", ())
    with reads.opened(_door(arguments, context, arguments.get("endpoint", Side.SOURCE.value))) as session:
        rows = reads.rows_written(session) if exempt else None
        before = reads.position_text(session)
        if context.canceled.wait(seconds):
            return ActionResult(Outcome.CANCELED, "ended while looking")
        after = reads.position_text(session)
        now = reads.rows_written(session) if rows is not None else None
        clock = reads.clock(session)
    changed = None if rows is None or now is None else {user: count - rows.get(user, 0) for user, count in now.items()}
    return _result(gates.quiet(before, after, changed, exempt, seconds), sql.WRITTEN, begun, clock)


# --- markers -------------------------------------------------------------------------------------------------


def _write_marker(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    begun, endpoint = time.time(), arguments["endpoint"]
    if endpoint.partition(".")[0] == Side.SOURCE.value and "user" not in arguments:
        raise UsageError(
            f"marker.write on {endpoint} needs `user`: an account of its own, exempt from the freeze",
            hint="It needs SELECT, INSERT and DELETE on the marker table only.",
        )
    table, name = arguments["table"], arguments.get("name") or context.run
    door = _door(arguments, context, endpoint, own=False)
    with reads.opened(door, writes=True) as session:

        def work(_comment: str) -> ActionResult:
            number, clock = reads.write_marker(session, table, name), reads.clock(session)
            facts = {"table": table, "name": name, "number": number, "server_time": clock, "local_time": begun}
            return ActionResult(Outcome.OK, f"marker {name} {number} in {table} of {endpoint}", str(number), facts)

        return tracked((door.endpoint, door.password), session, context, work)


def _marker_account(arguments: Mapping[str, Any], context: Context) -> Account:
    door = _door(arguments, context, arguments["endpoint"], own=False)
    return door.endpoint, door.password


def _arrives(start: str, end: str) -> Gate:
    def asked(arguments: Mapping[str, Any], context: Context) -> ActionResult:
        begun, until = time.time(), _until(context)
        table, name = arguments["table"], arguments.get("name") or context.run
        there = arguments.get("to_table", table)
        with (
            reads.opened(_door(arguments, context, arguments.get("from", start))) as one,
            reads.opened(_door(arguments, context, arguments.get("to", end))) as other,
        ):
            while True:
                found = reads.marker_of(one, table, name)
                judged = gates.arrived(found[0] if found else None, reads.number_at(other, there, name))
                clock = reads.clock(other)
                if judged.value == "arrived" or time.monotonic() >= until or context.canceled.wait(_APART):
                    return _result(judged, sql.marker_row(there, name), begun, clock)

    return _readable(asked)


def _stopped(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    begun, until = time.time(), _until(context)
    table, name = arguments["table"], arguments.get("name") or context.run
    there, after = arguments.get("to_table", table), float(arguments.get("after", 10.0))
    if after > context.timeout - _RESERVE:
        raise UsageError(f"a canary of {after:g} s does not fit into {context.timeout:g} s")
    with (
        reads.opened(_door(arguments, context, arguments.get("from", "source"))) as one,
        reads.opened(_door(arguments, context, arguments.get("to", "target"))) as other,
    ):
        while True:
            found, clock = reads.marker_of(one, table, name), reads.clock(one)
            canary = gates.Canary(found[0].number, clock - found[1]) if found and clock is not None else None
            seen = reads.number_at(other, there, name)
            early = canary is not None and canary.age < after and (seen is None or seen < canary.number)
            if not early or time.monotonic() >= until or context.canceled.wait(_APART):
                break
    # Asked last: the feed has to be stopped now, not only when the canary was written.
    status = run_program(arguments["argv"], replace(context, timeout=max(1.0, until - time.monotonic())))
    said = status.output.strip() if status.code == 0 else None
    judged = gates.stopped(canary, seen, said, expected=arguments.get("says", "stopped"), after=after)
    return _result(judged, sql.marker_row(there, name), begun, clock)


# --- ids and times -------------------------------------------------------------------------------------------


def _rebased(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    from migverify.config import chosen_patterns, includes, load_config

    begun, endpoint = time.time(), arguments.get("endpoint", Side.TARGET.value)
    if endpoint.partition(".")[0] == Side.SOURCE.value and "user" not in arguments:
        raise UsageError("ids of the source are probed by an account that the runbook names: give `user`")
    patterns = chosen_patterns(arguments.get("tables", ()), "tables")
    door = _door(arguments, context, endpoint)
    config = load_config(context.config) if context.config is not None else None

    def wanted(database: str, table: str) -> bool:
        if patterns:
            return any(one.matches(database, table) for one in patterns)
        return config is not None and includes(config, database, table)

    doors = _doors(arguments, context, endpoint)
    with reads.opened(door) as session:
        columns, clock = reads.auto_columns(session, wanted), reads.clock(session)
        missing = reads.missing_servers(session, len(doors))
    if not columns and arguments.get("may_be_none", False):
        none = GateResult(0, "no table in scope takes ids from the server", "ids above the largest", {"ids": []})
        return _result(none, "", begun, clock)
    found = [one for door in doors for one in reads.next_ids(door, columns)]
    query = "; ".join(sql.id_probe(columns[0].table, Flavor.TIDB)) if columns else ""
    return _result(gates.above(found, missing), query, begun, clock)


def _tso(arguments: Mapping[str, Any], context: Context) -> ActionResult:
    begun = time.time()
    with reads.opened(_door(arguments, context, arguments.get("endpoint", Side.TARGET.value))) as session:
        found = str(current_timestamp(session))
        clock = reads.clock(session)
    return _result(GateResult(found, f"TSO {found}", "a TSO", {"tso": found}), CURRENT_TSO, begun, clock)


# --- the actions ---------------------------------------------------------------------------------------------

_OF = {
    "source": _endpoint("endpoint", "source or source.<shard>; default source."),
    "target": _endpoint("endpoint", "The endpoint; default target."),
}
_REFUSED = (
    Argument("login_denied", "flag", "A refused login counts as refused; without it a wrong password would pass."),
    Argument("unreachable", "flag", "No answer counts as refused: where writes are stopped in the network."),
)
_WHO = (
    Argument("users", "list", "Accounts of the application."),
    Argument("exempt", "list", "Everybody but these counts (replicators, monitoring)."), _SERVERS,
)  # fmt: skip
_WAY = (
    _MARKER, _NAME, Argument("to_table", "text", "The table at the other end; default: the same."),
    _endpoint("from", "Endpoint where it was written."), _endpoint("to", "Endpoint where it has to be."),
)  # fmt: skip


def register(registry: Registry) -> None:
    """Add the gates to a registry."""
    for side, other, freeze in (("source", "target", "source.writes_refused"), ("target", "source", "target.readonly")):
        whole, of = side == Side.TARGET.value, _OF[side]
        probes = (of, *_AS, _PROBED, TIMEOUT)
        _check(registry, freeze, f"Probes of writing to the {side} that are not refused, as the application's account.",
               (*probes, *_REFUSED), _writes(side, gates.refused, whole=whole), _NONE)  # fmt: skip
        _check(registry, f"{side}.writes_accepted", f"Probes of writing to the {side} that are not accepted.",
               probes, _writes(side, gates.accepted, whole=whole), _NONE)  # fmt: skip
        _check(registry, f"{side}.sessions", "Sessions of the application.", (of, *_WHO, TIMEOUT), _sessions(side),
               _NONE)  # fmt: skip
        _check(registry, f"{side}.transactions", "Open transactions that may write, and running DDL.",
               (of, _SERVERS, Argument("older_than", "number", "Count those of so many seconds; default: all."),
                Argument("exempt", "list", "Accounts whose transactions do not count."), TIMEOUT),
               _transactions(side), _NONE)  # fmt: skip
        name = "marker.arrived" if side == "source" else "reverse.canary"
        _check(registry, name, f"Whether the marker written on the {side} is on the {other}: `arrived`.",
               (*_WAY, TIMEOUT), _arrives(side, other), Bounds(equals="arrived"))  # fmt: skip
    of = _OF["source"]
    _check(registry, "changes.position", "Where the log of the source ends, as evidence.", (of, TIMEOUT),
           _readable(_position), Bounds(minimum=4))  # fmt: skip
    _check(registry, "source.position_stable", "How often the log of the source moved between readings.",
           (of, Argument("readings", "number", "How many; default 3."),
            Argument("apart", "number", "Seconds between two; default 3."), TIMEOUT),
           _readable(_stable), _NONE)  # fmt: skip
    _check(registry, "source.quiet", "Rows that others than exempt accounts wrote on the source.",
           (of, Argument("seconds", "number", "How long; default 10."),
            Argument("exempt", "list", "Accounts that may write: the reverse feed, the marker's."), TIMEOUT),
           _readable(_quiet), _NONE)  # fmt: skip
    _check(registry, "feed.stopped", "Whether a feed is stopped, by its status and by a canary: `stopped`.",
           (*_WAY, Argument("argv", "list", "Program that prints the feed's status.", required=True),
            Argument("says", "text", "What it prints when the feed is stopped; default `stopped`."),
            Argument("after", "number", "Seconds in which the canary would have traveled; default 10."), TIMEOUT),
           _readable(_stopped), Bounds(equals="stopped"))  # fmt: skip
    _check(registry, "ids.rebased", "Servers that give ids which are not above the largest of a table.",
           (_OF["target"], *_AS, Argument("tables", "list", "Tables with ids; default: all in scope."),
            Argument("may_be_none", "flag", "No table with such ids passes."), TIMEOUT),
           _readable(_rebased), _NONE)  # fmt: skip
    _check(registry, "tso.record", "The TSO of the target now, as evidence.", (_OF["target"], TIMEOUT),
           _readable(_tso), Bounds(minimum=1))  # fmt: skip
    registry.register(Action(
        "marker.write", ActionKind.EFFECT, "Writes a marker row above every other one in its table.",
        (Argument("endpoint", "text", "Where: source, source.<shard> or target.", required=True), _MARKER, _NAME, _USER,
         _PASSWORD), _write_marker, account=_marker_account))  # fmt: skip


def _check(
    registry: Registry, name: str, about: str, arguments: tuple[Argument, ...], gate: Gate, default: Bounds | None
) -> None:
    registry.register(Action(name, ActionKind.CHECK, about, arguments, gate, default))
