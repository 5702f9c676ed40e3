"""The data check of a disaster recovery case: the ledger against the table, the bank's invariants, the server's own."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from migverify.errors import LabError
from migverify_lab.bank import read_bank
from migverify_lab.chaos import record_of
from migverify_lab.chaos_world import CaseWorkspace
from migverify_lab.ledger import Recovery, compare_with_ledger, recovery, steadiness
from migverify_lab.session import connect
from migverify_lab.workspace import Proof

LEAST_SHARE = 0.3
"""Of its rate, what a load reaches at least while all is well: the machine may be busy."""


@dataclass(frozen=True, slots=True)
class Bars:
    """What a recovery may take, in seconds; None: not asked. ``codes`` are the only errors that clients may see."""

    recovery: float | None = None
    outage: float | None = None
    stall: float | None = None
    codes: tuple[int, ...] | None = None


def steady(world: CaseWorkspace, window: float) -> Proof:
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


def data_check(world: CaseWorkspace) -> Proof:
    """Compare every answer that the load received with what its server holds now; the load has to be off.

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
        rows, invariants, checked = read_bank(connection, server)
    check = compare_with_ledger(attempts, rows)
    problems = [*(["rows contradict the answers of their clients"] if check.wrong else []), *invariants, *checked]
    facts = asdict(check) | {"invariants": invariants, "server": checked, "rows": sum(map(len, rows.values()))}
    world.write("data", facts | {"good": not problems})
    text = f"{check.describe()}; {'; '.join(problems) if problems else _SOUND}"
    return Proof(not problems, text, facts)


_SOUND = "sum of balances, each balance and the server's own check are right"


def measured(world: CaseWorkspace, fault: str, bars: Bars) -> Proof:
    """Hold the measured recovery of a fault against its bars; lost rows are those of the last data check.

    Raises
    ------
    LabError
        the fault was not injected or not removed, or no data check followed.
    """
    known, data = record_of(world, fault), world.read("data")
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
