"""Questions of the settings guard about the servers themselves: connection, version, settings, clock, capacity."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.db.server_state import connections_used
from migverify.errors import PrivilegeError, ReadError
from migverify.guards.capacity_read import bytes_of
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, offset_state, passed, unknown, warned
from migverify.model import Flavor, is_loopback
from migverify.sql import settings as sql
from migverify.sql.server import CONNECTIONS, TIDB_CONNECTIONS
from migverify.tables.type_change import collation_change

CERTIFICATE_DAYS = 14
CLOCK_SECONDS = 2.0
FULL = 0.8
DISK_LEFT = 0.2
_ISOLATION = ("transaction_isolation", "tx_isolation")
_SUPPORTED_ISOLATION = frozenset({"REPEATABLE-READ", "READ-COMMITTED"})
# Words that say nothing of how a statement behaves on the other server.
_EMPTY_MODES = frozenset({"NO_AUTO_CREATE_USER", ""})
UNREPORTED = "the server does not report it"
_NO_STORES = "pd http client unavailable"
"""How TiDB on embedded storage refuses a question about stores: it has none."""

_EVER = (1_000,)
# (flavor, first, first that is fine again, what is wrong); source: the release notes of each.
_BAD_VERSIONS = (
    (Flavor.MYSQL, (0,), (5, 6), "before 5.6 there are no GTIDs, no fractions of seconds and no row metadata"),
    (Flavor.MYSQL, (8, 0, 0), (8, 0, 11), "8.0 before 8.0.11 was no release for production"),
    (Flavor.MYSQL, (8, 0, 29), (8, 0, 30), "8.0.29 was withdrawn: ALTER TABLE with ALGORITHM=INSTANT damages tables"),
    (Flavor.MYSQL, (8, 0, 38), (8, 0, 39), "8.0.38 was withdrawn: it does not start again with many tables"),
    (Flavor.MYSQL, (8, 4, 1), (8, 4, 2), "8.4.1 was withdrawn: it does not start again with many tables"),
    (Flavor.MYSQL, (9, 0, 0), (9, 0, 1), "9.0.0 was withdrawn: it does not start again with many tables"),
    (Flavor.MARIADB, (0,), (10, 5), "before 10.5 the binlog does not describe its rows in full"),
    (Flavor.TIDB, (0,), (6, 5), "before 6.5 TiDB lacks much of what is compared here, and is not maintained"),
)
# The same for sources of DM; source: DM's catalog of compatible servers.
_UNKNOWN_TO_DM = (
    (Flavor.MYSQL, (0,), (5, 6), "not tested with DM"),
    (Flavor.MYSQL, (8, 1), (8, 4), "not tested with DM"),
    (Flavor.MYSQL, (8, 4), (9,), "DM reads 8.4 since 8.5.6, as an experiment; earlier ones cannot"),
    (Flavor.MYSQL, (9,), _EVER, "not tested with DM"),
    (Flavor.MARIADB, (0,), (10, 1, 2), "incompatible with DM"),
    (Flavor.MARIADB, (10, 5, 11), _EVER, "not tested with DM"),
)
Versions = tuple[tuple[Flavor, tuple[int, ...], tuple[int, ...], str], ...]


def reachable(server: CheckedServer) -> Iterator[CheckResult]:
    """Say how the server answered."""
    value = f"{server.session.version} in {server.seconds * 1000:.0f} ms as {server.endpoint.user}"
    yield passed(value, numbers={"connect_seconds": server.seconds})


def encryption(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge what was negotiated, and how long the certificate lasts where it was verified."""
    found = server.session.session.encryption()
    mode = server.endpoint.tls.mode
    if found is None:
        local = is_loopback(server.endpoint.host)
        where = "in clear on this machine" if local else "in clear over the network"
        # The connection exists, so a mode that insists on TLS cannot be in force here.
        bad = AnswerState.WARN if mode == "disabled" else AnswerState.FAIL
        yield CheckResult(AnswerState.PASS if local else bad, f"{where} (tls.mode {mode})")
        return
    value, numbers = f"{found.version}, {found.cipher} (tls.mode {mode})", {}
    state, todo = AnswerState.PASS, ""
    if found.version in ("SSLv3", "TLSv1", "TLSv1.1"):
        state, todo = AnswerState.FAIL, "Let the server offer TLSv1.2 or TLSv1.3 (tls_version)."
    elif mode not in ("verify-ca", "verify-identity") and not is_loopback(server.endpoint.host):
        value += "; the certificate is not verified: anybody between could have made it"
        state, todo = AnswerState.WARN, "Set tls.mode to verify-identity and tls.ca to the authority's certificate."
    if found.expires is not None:
        days = (found.expires - server.now()) / 86_400
        numbers["certificate_days_left"] = days
        value += f"; the certificate ends in {days:.0f} days"
        if days < CERTIFICATE_DAYS:
            state, todo = AnswerState.FAIL, "Renew the server's certificate before the work begins."
    yield CheckResult(state, value, todo, numbers=numbers)


def version(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the version by what is known of it."""
    reported = server.session.version
    if server.number and (bad := _named(_BAD_VERSIONS, server)):
        yield warned(f"{reported}: {bad}")
    elif server.number and server.name == "target" and server.flavor is not Flavor.TIDB:
        yield warned(f"{reported}: the target is not TiDB", "Check target.url; questions of TiDB are not asked.")
    else:
        yield passed(reported) if server.number else unknown(f"{reported}: no number in it", _BY_HAND)


_BY_HAND = "Compare it with docs/check.md by hand."


def replicator(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge whether DM is known to read this source."""
    reported = server.session.version
    if server.flavor is Flavor.TIDB:
        yield failed("TiDB is no source of DM", "Move changes by TiCDC.")
    elif not server.number:
        yield unknown(f"{reported}: no number in it")
    elif words := _named(_UNKNOWN_TO_DM, server):
        todo = "Rehearse with this very version, or replicate from a replica of MySQL 5.7 or 8.0."
        yield warned(f"{reported}: {words}", todo)
    else:
        yield passed(reported)


def _named(versions: Versions, server: CheckedServer) -> str:
    """Return what a table of versions knows about a server's version; empty where it has no row."""
    number = server.number
    return "; ".join(
        words for flavor, first, fine, words in versions
        if flavor is server.flavor and first <= number and number[: len(fine)] < fine
    )  # fmt: skip


# --- settings --------------------------------------------------------------------------------------------------


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
    """Compare the character set and collation of new tables and literals that name none."""
    for name in ("character_set_server", "collation_server", "default_collation_for_utf8mb4"):
        query = sql.global_variable(name)
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


def auto_increment(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare step and offset of generated ids."""
    names = ("auto_increment_increment", "auto_increment_offset")
    ours, theirs = (tuple(_number(server, name) for name in names) for server in (source, target))
    value = f"step and offset: source {ours[0]} and {ours[1]}, target {theirs[0]} and {theirs[1]}"
    todo = "Set both to the same values; with several writers give each side an offset of its own."
    yield CheckResult(AnswerState.PASS if ours == theirs else AnswerState.FAIL, value, todo)


def _number(server: CheckedServer, name: str) -> int:
    value = server.variable(name)
    if not value.lstrip("-").isdigit():
        raise ReadError(f"{server.name}: {name} is {value or repr('')}, no number")
    return int(value)


def optimistic_checks(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the check of optimistic transactions, which counts only where transactions are optimistic."""
    value = server.variables.get("tidb_constraint_check_in_place", "").upper()
    if not value:
        yield unknown(UNREPORTED)
    elif value in ("ON", "1"):
        yield passed(value)
    elif server.variables.get("tidb_txn_mode", "").lower() == "pessimistic":
        yield passed(f"{value}; transactions are pessimistic")
    else:
        yield warned(value)


def new_collations(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge whether TiDB compares texts by their collation at all; fixed when a cluster is made."""
    reported = server.session.query(sql.NEW_COLLATIONS)[0][0]
    if reported not in ("0", "1"):
        raise ReadError(f"{server.name}: the comparison of two letters returned {reported!r}")
    yield CheckResult(
        AnswerState.PASS if reported == "1" else AnswerState.FAIL,
        "they count" if reported == "1" else "it compares bytes",
    )


# --- clock and room --------------------------------------------------------------------------------------------


def clock(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the server's clock against this machine's."""
    yield _offset(server.clock.offset, server.clock.uncertainty, "of this machine")


def clock_pair(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Judge the clocks of both servers against each other."""
    offset = target.clock.offset - source.clock.offset
    yield _offset(offset, source.clock.uncertainty + target.clock.uncertainty, "of the source")


def _offset(offset: float, uncertainty: float, whose: str) -> CheckResult:
    value = f"{offset:+.3f} s {whose}, known within {uncertainty:.3f} s"
    numbers = {"offset_seconds": offset, "uncertainty_seconds": uncertainty}
    state = offset_state(offset, uncertainty, CLOCK_SECONDS)
    slow = "The round trip is too slow to judge the clock: run the check from a host closer to the servers."
    return CheckResult(state, value, slow if state is AnswerState.INCONCLUSIVE else "", numbers=numbers)


def time_zone(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare what the zones of two servers mean, in winter and in summer, not how they are called."""
    zones, names = [], []
    for server in (source, target):
        row = server.session.query(sql.ZONE_OFFSETS)[0]
        names.append(f"{server.variable('time_zone')} ({server.variables.get('system_time_zone', 'not reported')})")
        zones.append(row)
    value = f"source {names[0]}, target {names[1]}"
    if None in zones[0] or None in zones[1]:
        yield unknown(
            f"{value}: the server cannot convert by its own zone",
            "Load the zones: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql",
        )
        return
    same = zones[0] == zones[1]
    yield CheckResult(AnswerState.PASS if same else AnswerState.FAIL, value)


def named_zones(source: CheckedServer, target: CheckedServer) -> Iterator[CheckResult]:
    """Compare whether both servers know zones by name."""
    known = [server.session.query(sql.NAMED_ZONES)[0][0] is not None for server in (source, target)]
    value = f"source {_known(known[0])}, target {_known(known[1])}"
    yield CheckResult(
        AnswerState.PASS if all(known) else AnswerState.WARN if not any(known) else AnswerState.FAIL, value
    )


def _known(loaded: bool) -> str:
    return "knows them" if loaded else "knows none"


def connections(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge whether the configured connections are still free."""
    wanted = server.endpoint.connections
    limits = [server.variable(name) for name in ("max_connections", "max_user_connections")]
    limit = min((int(value) for value in limits if value.isdigit() and int(value)), default=0)
    query = CONNECTIONS
    if server.flavor is Flavor.TIDB:
        query = TIDB_CONNECTIONS
        if limit and not server.grants.allows("PROCESS"):
            raise PrivilegeError(f"{server.name}: without PROCESS a user sees its own connections only",
                                 hint=f"GRANT PROCESS ON *.* TO {server.account};")  # fmt: skip
    used = connections_used(server.session)
    numbers = {"used": float(used), "limit": float(limit), "wanted": float(wanted)}
    if not limit:
        yield passed(f"{used} used, no limit, {wanted} wanted", query=query, numbers=numbers)
        return
    value = f"{used} used of {limit}, {wanted} wanted"
    short = used + wanted > limit
    state = AnswerState.FAIL if short else AnswerState.WARN if used + wanted > FULL * limit else AnswerState.PASS
    yield CheckResult(state, value, query=query, numbers=numbers)


def disk(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the free space of TiKV's stores; other servers do not report theirs."""
    try:
        rows = server.session.query(sql.STORES)
    except ReadError as error:
        if _NO_STORES in error.message:
            return
        raise
    if not rows:
        yield unknown("no store is listed", "Ask PD: pd-ctl store")
    for address, capacity, available, state in rows:
        whole, left = bytes_of(capacity or ""), bytes_of(available or "")
        where = f"{server.name}/{address}"
        if whole is None or left is None or not whole:
            yield unknown(f"{available} of {capacity}", "Ask PD: pd-ctl store", subject=where)
            continue
        bad = left / whole < DISK_LEFT or (state or "").lower() not in ("up", "")
        value = f"{available} of {capacity} left, {state}"
        yield CheckResult(
            AnswerState.FAIL if bad else AnswerState.PASS, value, subject=where, numbers={"free_ratio": left / whole}
        )
