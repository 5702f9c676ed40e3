"""Questions of the settings guard about the endpoints themselves: connection, version, clock, room."""

from __future__ import annotations

from collections.abc import Iterator

from migverify.errors import PrivilegeError, ReadError
from migverify.guards.check_read import CheckedServer
from migverify.guards.model import AnswerState, CheckResult, failed, passed, unknown, warned
from migverify.model import Flavor, is_loopback
from migverify.sql import settings as sql
from migverify.sql.grants import account_text

CERTIFICATE_DAYS = 14
CLOCK_SECONDS = 2.0
FULL = 0.8
DISK_LEFT = 0.2
_NO_STORES = "pd http client unavailable"
"""What TiDB on embedded storage says where it has no stores to tell of."""

# (flavor, first, first that is fine again, what is wrong); source: the release notes of each.
_BAD_VERSIONS: tuple[tuple[Flavor, tuple[int, ...], tuple[int, ...], str], ...] = (
    (Flavor.MYSQL, (0,), (5, 6), "before 5.6 there are no GTIDs, no fractions of seconds and no row metadata"),
    (Flavor.MYSQL, (8, 0, 0), (8, 0, 11), "8.0 before 8.0.11 was no release for production"),
    (Flavor.MYSQL, (8, 0, 29), (8, 0, 30), "8.0.29 was withdrawn: ALTER TABLE with ALGORITHM=INSTANT damages tables"),
    (Flavor.MYSQL, (8, 0, 38), (8, 0, 39), "8.0.38 was withdrawn: it does not start again with many tables"),
    (Flavor.MYSQL, (8, 4, 1), (8, 4, 2), "8.4.1 was withdrawn: it does not start again with many tables"),
    (Flavor.MYSQL, (9, 0, 0), (9, 0, 1), "9.0.0 was withdrawn: it does not start again with many tables"),
    (Flavor.MARIADB, (0,), (10, 5), "before 10.5 the binlog does not describe its rows in full"),
    (Flavor.TIDB, (0,), (6, 5), "before 6.5 TiDB lacks much of what is compared here, and is not maintained"),
)


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
    number, said = server.number, server.session.version
    if not number:
        yield unknown(f"{said}: no number in it", "Compare it with docs/check.md by hand.")
        return
    bad = [why for flavor, first, fine, why in _BAD_VERSIONS
           if flavor is server.flavor and first <= number and number[: len(fine)] < fine]  # fmt: skip
    if bad:
        yield warned(f"{said}: {'; '.join(bad)}")
        return
    if not server.is_source and server.name == "target" and server.flavor is not Flavor.TIDB:
        yield warned(f"{said}: the target is not TiDB", "Check target.url; questions of TiDB are not asked.")
        return
    yield passed(said)


def replicator(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge whether DM is known to read this source; source of the ranges: DM's catalog of compatible servers."""
    number, flavor = server.number, server.flavor
    if flavor is Flavor.TIDB:
        yield failed("TiDB is no source of DM", "Move changes by TiCDC.")
        return
    if not number:
        yield unknown(f"{server.session.version}: no number in it")
        return
    words = ""
    if flavor is Flavor.MARIADB:
        words = "incompatible with DM" if number < (10, 1, 2) else "not tested with DM" if number > (10, 5, 10) else ""
    elif number < (5, 6) or (8, 1) <= number < (8, 4) or number >= (9,):
        words = "not tested with DM"
    elif (8, 4) <= number < (9,):
        words = "DM reads 8.4 since 8.5.6, as an experiment; earlier ones cannot"
    if words:
        todo = "Rehearse with this very version, or replicate from a replica of MySQL 5.7 or 8.0."
        yield warned(f"{server.session.version}: {words}", todo)
        return
    yield passed(server.session.version)


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
    if abs(offset) - uncertainty > CLOCK_SECONDS:
        return failed(value, numbers=numbers)
    if abs(offset) + uncertainty > CLOCK_SECONDS:
        todo = "The round trip is too slow to tell: ask from nearer to the servers."
        return unknown(value, todo, numbers=numbers)
    return passed(value, numbers=numbers)


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
    limits = {name: server.variable(name) for name in ("max_connections", "max_user_connections")}
    limit = min((int(value) for value in limits.values() if value.isdigit() and int(value)), default=0)
    query = sql.CONNECTED
    if server.flavor is Flavor.TIDB:
        if limit and not server.grants.allows("PROCESS"):
            raise PrivilegeError(f"{server.name}: without PROCESS a user sees its own connections only",
                                 hint=f"GRANT PROCESS ON *.* TO {account_text(server.grants.account)};")  # fmt: skip
        query = sql.TIDB_CONNECTED
    used = _connected(server, query)
    numbers = {"used": float(used), "limit": float(limit), "wanted": float(wanted)}
    if not limit:
        yield passed(f"{used} used, no limit, {wanted} wanted", query=query, numbers=numbers)
        return
    value = f"{used} used of {limit}, {wanted} wanted"
    short = used + wanted > limit
    state = AnswerState.FAIL if short else AnswerState.WARN if used + wanted > FULL * limit else AnswerState.PASS
    yield CheckResult(state, value, query=query, numbers=numbers)


def _connected(server: CheckedServer, query: str) -> int:
    rows = server.session.query(query)
    reported = rows[0][-1] if rows else None
    if reported is None or not reported.isdigit():
        raise ReadError(f"{server.name}: the server does not report how many connections it has")
    return int(reported)


def disk(server: CheckedServer) -> Iterator[CheckResult]:
    """Judge the room of TiKV's stores; other servers do not report theirs."""
    if server.flavor is not Flavor.TIDB:
        return
    try:
        rows = server.session.query(sql.STORES)
    except ReadError as error:
        if _NO_STORES in error.message:
            return
        raise
    if not rows:
        yield unknown("no store is listed", "Ask PD: pd-ctl store")
    for address, capacity, available, state in rows:
        whole, left = _bytes(capacity), _bytes(available)
        where = f"{server.name}/{address}"
        if whole is None or left is None or not whole:
            yield unknown(f"{available} of {capacity}", "Ask PD: pd-ctl store", subject=where)
            continue
        bad = left / whole < DISK_LEFT or (state or "").lower() not in ("up", "")
        value = f"{available} of {capacity} left, {state}"
        yield CheckResult(
            AnswerState.FAIL if bad else AnswerState.PASS, value, subject=where, numbers={"free_ratio": left / whole}
        )


def _bytes(text: str | None) -> float | None:
    units = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40, "PIB": 2**50}
    digits = (text or "").strip().rstrip("BKMGTPEiIb")
    unit = (text or "").strip()[len(digits) :].upper()
    try:
        return float(digits) * units[unit]
    except (ValueError, KeyError):
        return None
