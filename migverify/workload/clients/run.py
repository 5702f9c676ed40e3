"""Cells on both sides, driver by driver: one harness process each, every difference seen twice.

A harness that hangs or dies costs its cell, never the others: it is ended, the cell is INCONCLUSIVE, the next cell gets
a new process.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from itertools import groupby
from pathlib import Path

from migverify.errors import UsageError
from migverify.model import Verdict
from migverify.secrets import Secret
from migverify.workload.clients.compare import differences, judge
from migverify.workload.clients.drivers import harness_jars, pools, url
from migverify.workload.clients.jars import Progress, cache_folder, provide
from migverify.workload.clients.model import CellResult, ClientCell, ClientDriver, DriverKind, Observed
from migverify.workload.clients.process import SIDES, HarnessProcess
from migverify.workload.clients.proxy import NetworkController

PYTHON_HARNESS = "python_harness.py"
JAVA = 17
MAIN = "Harness"
COMPILE_SECONDS = 300.0
_HINT = f"Install a JDK of version {JAVA} or newer, and put it on PATH or name it with JAVA_HOME."


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
    java = find_java()
    shared = provide(
        [*harness_jars(), *(jar for pool in pools().values() for jar in pool.jars)], tools.repository, tools.say
    )
    own = provide(driver.jars, tools.repository, tools.say)
    return java_command(java, compiled(java, shared), [*own, *shared], work)


# --- the Java harness: compiled once into the cache, then one JVM for each driver -----------------------


def find_java() -> str:
    """Return the path of ``java``, after asking it for its version.

    Raises
    ------
    UsageError
        there is none, or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    named = Path(home) / "bin" / "java" if home else None
    java = str(named) if named is not None and named.is_file() else shutil.which("java")
    if java is None:
        raise UsageError("no java is on PATH", hint=_HINT)
    said = _run([java, "-version"], 60.0).stderr
    found = re.search(r'version "(\d+)', said)
    if found is None or int(found[1]) < JAVA:
        raise UsageError(f"{java} is too old: {said.splitlines()[0] if said else 'no version'}", hint=_HINT)
    return java


def compiled(java: str, jars: Sequence[Path]) -> Path:
    """Return the folder of the compiled harness; compiled anew when its source, the jars or Java changed.

    Raises
    ------
    UsageError
        this Java has no compiler, or the harness does not compile.
    """
    folder = resources.files("migverify.workload.clients") / "java"
    sources = sorted((one for one in folder.iterdir() if one.name.endswith(".java")), key=lambda one: one.name)
    texts = {one.name: one.read_bytes() for one in sources}
    key = hashlib.sha256(_run([java, "-version"], 60.0).stderr.encode())
    for name, content in texts.items():
        key.update(name.encode() + b"\0" + content + b"\0")
    for jar in jars:
        key.update(jar.name.encode() + b"\0")
    final = cache_folder("clients") / key.hexdigest()[:16]
    if final.is_dir():
        return final
    with tempfile.TemporaryDirectory(prefix=".compile-", dir=final.parent) as text:
        staging = Path(text)
        for name, content in texts.items():
            (staging / name).write_bytes(content)
        classes = staging / "classes"
        path = os.pathsep.join(str(jar) for jar in jars)
        compiler = [java, "-m", "jdk.compiler/com.sun.tools.javac.Main"]
        done = _run(
            [
                *compiler,
                "-nowarn",
                "-encoding",
                "UTF-8",
                "-cp",
                path,
                "-d",
                str(classes),
                *(str(staging / name) for name in texts),
            ],
            COMPILE_SECONDS,
        )
        if done.returncode != 0:
            raise UsageError(f"the harness does not compile: {done.stderr.strip()[:2000]}", hint=_HINT)
        try:
            classes.rename(final)
        except OSError as error:
            if not final.is_dir():  # another process was faster: its classes are the same
                raise UsageError(f"cannot keep the compiled harness in {final}: {error}") from error
    return final


def java_command(java: str, classes: Path, jars: Sequence[Path], work: Path) -> list[str]:
    """Return the command line of a harness; it holds no secret."""
    path = os.pathsep.join(str(one) for one in [classes, *jars])
    quick = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx1g"]
    return [
        java,
        *quick,
        "-Dfile.encoding=UTF-8",
        "-Duser.timezone=UTC",
        "-Duser.language=en",
        "-cp",
        path,
        MAIN,
        str(work),
    ]


def _run(arguments: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603  (a Java that the user installed)
            list(arguments), capture_output=True, timeout=seconds, check=False, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{arguments[0]} did not answer within {seconds:.0f} s") from error
    except OSError as error:
        raise UsageError(f"{arguments[0]} cannot be started: {error}", hint=_HINT) from error
