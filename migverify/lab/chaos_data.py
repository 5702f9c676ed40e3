"""The data check of a disaster recovery case: the ledger against the table, the bank's invariants, the server's own."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from migverify.errors import LabError
from migverify.lab.chaos_ledger import Recovery, hold_against, recovery, steadiness
from migverify.lab.chaos_load import ACCOUNTS, BEGINNING, DATABASE
from migverify.lab.chaos_world import Proof, World
from migverify.lab.session import connect

if TYPE_CHECKING:
    from pymysql.connections import Connection

    from migverify.lab.servers import LabServer

LEAST_SHARE = 0.3
"""Of its rate, what a load reaches at least while all is well: the machine may be busy."""


@dataclass(frozen=True, slots=True)
class Bars:
    """What a recovery may take, in seconds; None: not asked. ``codes`` are the only errors that clients may see."""

    recovery: float | None = None
    outage: float | None = None
    stall: float | None = None
    codes: tuple[int, ...] | None = None


def steady(world: World, window: float) -> Proof:
    """Tell whether the load is on, reaches its rate and saw no failure in the last ``window`` seconds."""
    asked = world.read("load")
    if asked is None or world.job("load") is None:
        return Proof(False, "no load is on", {"log": world.job_log("load")})
    now = time.monotonic()
    if now - asked["started"] < window:
        return Proof(None, f"the load is on for {now - asked['started']:.1f} s only")
    found = steadiness(world.attempts(), now, window)
    enough = found.rate >= LEAST_SHARE * asked["rate"]
    text = (f"{found.rate:.0f} of {asked['rate']:g} transactions/s acknowledged, {found.failed} failed, the slowest"
            f" {found.slowest * 1000:.0f} ms, in {window:g} s")  # fmt: skip
    return Proof(enough and not found.failed, text, asdict(found))


def data_check(world: World) -> Proof:
    """Hold everything that the load was told against what its server holds now; the load has to be off.

    Raises
    ------
    LabError
        the load is on, or the server does not answer.
    """
    asked = world.read("load")
    if asked is None or world.job("load") is not None:
        raise LabError("the data check needs a load that was on and is off", hint="Run `migverify lab chaos stop`.")
    server = world.server(asked["side"])
    attempts = world.attempts()
    if not any(one.end == "A" for one in attempts):
        return Proof(None, "no write was ever acknowledged: there is nothing to check")
    with connect(server, seconds=120.0) as connection:
        rows, invariants = _snapshot(connection)
        checked = _server_check(connection, server)
    held = hold_against(attempts, rows)
    problems = [*(["rows are not as their clients were told"] if held.wrong else []), *invariants, *checked]
    facts = asdict(held) | {"invariants": invariants, "server": checked, "rows": sum(rows.values())}
    world.write("data", facts | {"good": not problems})
    text = f"{held.describe()}; {'; '.join(problems) if problems else _SOUND}"
    return Proof(not problems, text, facts)


_SOUND = "sum of balances, each balance and the server's own check are right"


def _snapshot(connection: Connection) -> tuple[dict[int, int], list[str]]:
    """Return rows by token and broken invariants, of one moment."""
    found: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        cursor.execute(f"SELECT token, COUNT(*) FROM {DATABASE}.entries GROUP BY token")  # noqa: S608
        rows = {int(token): int(number) for token, number in cursor.fetchall()}
        cursor.execute(f"SELECT COUNT(*), SUM(balance) FROM {DATABASE}.accounts")  # noqa: S608
        count, total = next(iter(cursor.fetchall()))
        if (int(count), int(total)) != (ACCOUNTS, ACCOUNTS * BEGINNING):
            found.append(f"{count} accounts hold {total} in all, not {ACCOUNTS * BEGINNING}")
        cursor.execute(_BALANCES)
        wrong = cursor.fetchall()
        cursor.execute("COMMIT")
    if wrong:
        found.append(f"{len(wrong)} balances are not the sum of their entries, such as of account {wrong[0][0]}")
    return rows, found


_BALANCES = f"""
SELECT a.id, a.balance FROM {DATABASE}.accounts a
LEFT JOIN (SELECT payer AS id, SUM(amount) AS paid FROM {DATABASE}.entries GROUP BY payer) p ON p.id = a.id
LEFT JOIN (SELECT payee AS id, SUM(amount) AS got FROM {DATABASE}.entries GROUP BY payee) g ON g.id = a.id
WHERE a.balance <> {BEGINNING} - COALESCE(p.paid, 0) + COALESCE(g.got, 0)
"""  # noqa: S608 - constants of this module


def _server_check(connection: Connection, server: LabServer) -> list[str]:
    """Ask the server whether tables and indexes agree; returns what it finds wrong."""
    import pymysql

    tables = (f"{DATABASE}.accounts", f"{DATABASE}.entries")
    with connection.cursor() as cursor:
        if server.flavor != "tidb":
            cursor.execute(f"CHECK TABLE {', '.join(tables)}")
            return [f"CHECK TABLE {row[0]}: {row[3]}" for row in cursor.fetchall()
                    if row[2] == "error" or (row[2] == "status" and row[3] != "OK")]  # fmt: skip
        found = []
        for table in tables:  # one at a time: TiDB refuses two in one statement
            try:
                cursor.execute(f"ADMIN CHECK TABLE {table}")
            except pymysql.err.MySQLError as error:
                found.append(f"ADMIN CHECK TABLE {table}: {error}")
    return found


def measured(world: World, fault: str, bars: Bars) -> Proof:
    """Hold the measured recovery of a fault against its bars; lost rows are those of the last data check.

    Raises
    ------
    LabError
        the fault was not injected or not removed, or no data check followed.
    """
    known, data = world.fault(fault), world.read("data")
    if known.get("removed") is None or data is None:
        raise LabError(f"{fault} was not removed, or no data check followed", hint="Run them first.")
    asked = world.read("load") or {}
    found = recovery(world.attempts(), known["injected"], known["removed"], asked.get("stopped", time.monotonic()))
    over = _over(found, bars)
    rpo = len(data["lost"])
    if rpo:
        over.append(f"{rpo} acknowledged rows are lost")
    text = (f"RTO {_seconds(found.from_remove)} from the removal, {_seconds(found.from_inject)} from the fault;"
            f" longest stall {found.stall:.1f} s; {found.failed} attempts failed, codes"
            f" {', '.join(map(str, found.codes)) or 'none'}; RPO {rpo} rows")  # fmt: skip
    facts: dict[str, Any] = asdict(found) | {"rpo_rows": rpo, "bars": asdict(bars)}
    world.write(f"faults/{fault}", known | {"measured": facts})
    return Proof(not over, f"{text}{'; over the bar: ' + ', '.join(over) if over else ''}", facts)


def _over(found: Recovery, bars: Bars) -> list[str]:
    over = []
    for what, value, bar in (("from the removal", found.from_remove, bars.recovery),
                             ("from the fault", found.from_inject, bars.outage),
                             ("stall", found.stall, bars.stall)):  # fmt: skip
        if bar is not None and (value is None or value > bar):
            over.append(f"{_seconds(value)} {what}, at most {bar:g} s")
    if bars.codes is not None and set(found.codes) - set(bars.codes):
        strange = ", ".join(map(str, sorted(set(found.codes) - set(bars.codes))))
        over.append(f"codes {strange} were not foretold")
    return over


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"
