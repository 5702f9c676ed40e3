"""Cells on both sides, driver by driver: one harness process each, every difference seen twice.

A harness that hangs or dies costs its cell, never the others: it is ended, the cell is INCONCLUSIVE, the next cell gets
a new process.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

from migverify.errors import UsageError
from migverify.model import Verdict
from migverify.secrets import Secret
from migverify.workload.clients import java
from migverify.workload.clients.compare import differences, judge
from migverify.workload.clients.drivers import harness_jars, pools, url
from migverify.workload.clients.jars import Progress, provide
from migverify.workload.clients.model import CellResult, ClientCell, ClientDriver, DriverKind, Observed
from migverify.workload.clients.process import SIDES, HarnessProcess
from migverify.workload.clients.proxy import NetworkController

PYTHON_HARNESS = "python_harness.py"


@dataclass(frozen=True, slots=True)
class ClientSide:
    """Where a client connects: ``address`` and ``proxy`` as ``host:port`` (``[::1]:4000``), the scratch database ..."""

    address: str
    proxy: str
    user: str
    database: str
    password: Secret
    tls: str


@dataclass(frozen=True, slots=True)
class Tools:
    """What a run needs beside cells. ``python`` is the interpreter that has the Python drivers."""

    sides: Mapping[str, ClientSide]
    controller: NetworkController
    repository: str | None = None
    python: str = sys.executable
    say: Progress = lambda _line: None


def run_cells(cells: Sequence[ClientCell], tools: Tools, on_result: Callable[[CellResult], None]) -> list[CellResult]:
    """Run cells and return their results in order; ``on_result`` gets each as it comes."""
    results: list[CellResult] = []
    for _, group in groupby(cells, key=lambda cell: cell.driver.name):
        for result in _run_driver(list(group), tools):
            results.append(result)
            on_result(result)
    return results


def _run_driver(cells: Sequence[ClientCell], tools: Tools) -> Iterator[CellResult]:
    driver = cells[0].driver
    with tempfile.TemporaryDirectory(prefix="migverify-clients-") as folder:
        work = Path(folder) / "work.json"
        work.write_text(json.dumps(_work(cells, tools)), encoding="utf-8")  # it holds no secret
        try:
            command = _command(driver, work, tools)
        except UsageError as error:
            yield from (_inconclusive(cell, error.message) for cell in cells)
            return
        process: HarnessProcess | None = None
        try:
            for number, cell in enumerate(cells):
                if process is None or process.broken:
                    if process is not None:
                        process.stop()
                    process = _start(command, tools)
                if process.broken:
                    yield from (_inconclusive(rest, process.broken) for rest in cells[number:])
                    return
                yield _run_cell(process, number, cell)
        finally:
            if process is not None:
                process.stop()


def _start(command: Sequence[str], tools: Tools) -> HarnessProcess:
    return HarnessProcess(command, {name: side.password for name, side in tools.sides.items()}, tools.controller)


def _run_cell(process: HarnessProcess, number: int, cell: ClientCell) -> CellResult:
    begin = time.monotonic()
    first = process.run(number, cell.scenario.seconds)
    source, target = first["source"], first["target"]
    again: tuple[Observed, Observed] | None = None
    if not process.broken and not source.failure and not target.failure and differences(cell, source, target):
        second = process.run(number, cell.scenario.seconds)
        again = second["source"], second["target"]
    return replace(judge(cell, source, target, again), seconds=time.monotonic() - begin)


def _inconclusive(cell: ClientCell, reason: str) -> CellResult:
    return CellResult(
        cell.driver.name, cell.pool.name, cell.scenario.name, cell.variant.name, Verdict.INCONCLUSIVE, reason
    )


def _work(cells: Sequence[ClientCell], tools: Tools) -> dict[str, object]:
    driver = cells[0].driver
    sides = {
        name: {
            "address": side.address, "proxy": side.proxy, "user": side.user, "database": side.database,
            "tls": side.tls, "tls_words": driver.tls.get(side.tls, ""),
        }
        for name, side in ((name, tools.sides[name]) for name in SIDES)
    }  # fmt: skip
    return {
        "driver": driver.entry, "setup_url": url(driver, {}), "sides": sides,
        "cells": [_cell(one) for one in cells],
    }  # fmt: skip


def _cell(cell: ClientCell) -> dict[str, object]:
    scenario = cell.scenario
    return {
        "pool": cell.pool.name, "url": cell.url, "pool_options": dict(cell.variant.pool_options),
        "proxy": "proxy" in scenario.needs, "setup": list(scenario.setup), "cleanup": list(scenario.cleanup),
        "steps": [dict(step) for step in scenario.steps],
    }  # fmt: skip


def _command(driver: ClientDriver, work: Path, tools: Tools) -> list[str]:
    if driver.kind is DriverKind.PYTHON:
        return [tools.python, "-I", str(Path(__file__).with_name(PYTHON_HARNESS)), str(work)]
    found = java.find_java()
    shared = provide(
        [*harness_jars(), *(jar for pool in pools().values() for jar in pool.jars)], tools.repository, tools.say
    )
    own = provide(driver.jars, tools.repository, tools.say)
    return java.command(found, java.compiled(found, shared), [*own, *shared], work)
