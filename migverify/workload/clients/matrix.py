"""Scenarios x drivers x pools -> cells, and why some of them do not exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from migverify.workload.clients.drivers import missing_option, url
from migverify.workload.clients.model import Cell, Controller, Driver, Kind, Pool, Scenario, Variant


@dataclass(frozen=True, slots=True)
class Left:
    """A combination that was left out; ``possible`` is True where another setup could run it."""

    driver: str
    pool: str
    scenario: str
    variant: str
    reason: str
    possible: bool


def cells(
    drivers: Iterable[Driver], pools: Sequence[Pool], scenarios: Sequence[Scenario], controller: Controller
) -> tuple[list[Cell], list[Left]]:
    """Return the cells to run, driver by driver, and the combinations that were left out with their reasons.

    What has no meaning (a Python driver in HikariCP, a pool in a scenario about values) is left out; what could be run
    with another setup (a server restart on servers that are not ours) is left out as ``possible``, never a MATCH.
    """
    found: list[Cell] = []
    left: list[Left] = []
    for driver in drivers:
        for pool in pools:
            for scenario in scenarios:
                if not _belongs(driver, pool, scenario):
                    continue
                for variant in scenario.variants:
                    reason, possible = _missing(driver, scenario, variant, controller)
                    if reason:
                        left.append(Left(driver.name, pool.name, scenario.name, variant.name, reason, possible))
                    else:
                        found.append(Cell(driver, pool, scenario, variant, url(driver, variant.options)))
    return found, left


def _belongs(driver: Driver, pool: Pool, scenario: Scenario) -> bool:
    if driver.kind not in scenario.kinds or (scenario.drivers and driver.name not in scenario.drivers):
        return False
    if driver.kind is Kind.PYTHON:  # Python's pools are the application's own
        return pool.name == "none" and (not scenario.pools or "none" in scenario.pools)
    return not scenario.pools or pool.name in scenario.pools


def _missing(driver: Driver, scenario: Scenario, variant: Variant, controller: Controller) -> tuple[str, bool]:
    reason = missing_option(driver, variant.options)
    if reason:
        return reason, False
    for need in scenario.needs:
        if not controller.can(need):
            return f"needs {need}: only with --own-servers", True
    return "", False
