"""Runs every tool on every case, and keeps what the judge says."""

from __future__ import annotations

import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pymysql

from bench.faults.adapter import Adapter, Endpoint, Pair, Task
from bench.faults.cases import Case
from bench.faults.judge import Ending, Outcome, ReportedDifferences, Rows, judge
from bench.faults.load import connect, loaded, query

SECONDS = 120.0
REASON = 200
"""Characters of a reason that results keep."""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it was run. ``unavailable`` says why it was not; empty where it was."""

    name: str
    version: str
    settings: str
    pair: str
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """One tool on one case."""

    case: str
    tool: str
    outcome: Outcome
    rows: Rows
    seconds: float
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Results:
    """What one run found. ``servers`` is side -> version."""

    servers: dict[str, str]
    tools: tuple[Tool, ...]
    results: tuple[Result, ...]

    def as_json(self) -> str:
        """Return the document that is stored: one result a line, so that changes can be read."""
        lines = ",\n".join("  " + json.dumps(asdict(result), ensure_ascii=False) for result in self.results)
        tools = json.dumps([asdict(tool) for tool in self.tools], indent=1, ensure_ascii=False)
        return f'{{"servers": {json.dumps(self.servers)},\n"tools": {tools},\n"results": [\n{lines}\n]}}\n'

    def over(self, earlier: Results) -> Results:
        """Return these results, with those of an earlier run for tools and cases that were not run now."""
        run = {(result.tool, result.case) for result in self.results}
        named = {tool.name for tool in self.tools}
        tools = (*(tool for tool in earlier.tools if tool.name not in named), *self.tools)
        rest = tuple(result for result in earlier.results if (result.tool, result.case) not in run)
        return Results(self.servers, tools, (*rest, *self.results))


def read_results(path: Path) -> Results:
    """Read a stored document."""
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    results = tuple(
        Result(**{**entry, "outcome": Outcome(entry["outcome"]), "rows": Rows(entry["rows"])})
        for entry in document["results"]
    )
    return Results(document["servers"], tuple(Tool(**entry) for entry in document["tools"]), results)


def run(
    adapters: Sequence[Adapter],
    cases: Sequence[Case],
    source: Endpoint,
    target: Endpoint,
    progress: Progress,
    seconds: float = SECONDS,
) -> Results:
    """Run every tool that is available on every case. The endpoints name the database that is made for each case."""
    tools = tuple(_tool(adapter) for adapter in adapters)
    ready = [adapter for adapter, tool in zip(adapters, tools, strict=True) if not tool.unavailable]
    for tool in tools:
        if tool.unavailable:
            progress(f"{tool.name} is not run: {tool.unavailable}")
    results: list[Result] = []
    for number, case in enumerate(cases, 1):
        fresh = list(_run_case(ready, case, source, target, seconds))
        progress(f"{number}/{len(cases)} {case.name}: " + ", ".join(f"{r.tool} {r.outcome}" for r in fresh))
        results += fresh
    versions = {"source": _version(source), "target": _version(target)}
    return Results(versions, tools, tuple(results))


def _tool(adapter: Adapter) -> Tool:
    reason = adapter.available() or ""
    version = "" if reason else adapter.version()
    return Tool(adapter.name, version, adapter.settings, adapter.pair.value, reason)


def _run_case(
    adapters: Iterable[Adapter], case: Case, source: Endpoint, target: Endpoint, seconds: float
) -> Iterator[Result]:
    copy = replace(source, database=f"{source.database}_target")
    for pair, other in ((Pair.MYSQL_TIDB, target), (Pair.MYSQL_MYSQL, copy)):
        own = [adapter for adapter in adapters if adapter.pair is pair]
        if not own:
            continue
        try:
            with loaded(case, source, other):
                for adapter in own:
                    yield _judge_one(adapter, case, source, other, seconds)
        except pymysql.MySQLError as error:
            if pair is Pair.MYSQL_TIDB:
                raise  # the case itself cannot be made
            reason = f"MySQL cannot hold the target's side: {error}"[:REASON]
            for adapter in own:
                yield Result(case.name, adapter.name, Outcome.NOT_SUPPORTED, Rows.NOT_NAMED, 0.0, reason)


def _judge_one(adapter: Adapter, case: Case, source: Endpoint, target: Endpoint, seconds: float) -> Result:
    with tempfile.TemporaryDirectory(prefix="bench-faults-") as folder:
        task = Task(source, target, case.tables, seconds, Path(folder))
        start = time.perf_counter()
        reported = _report(adapter, task)
        took = round(time.perf_counter() - start, 1)
    judgment = judge(case.expected, reported)
    reason = re.sub(r"\[\d\d:\d\d:\d\d\] ", "", judgment.reason.replace(folder, "FOLDER"))
    for port in {source.port, target.port}:  # as clock and folder of this run only: stored results can be compared
        reason = re.sub(rf"\b{port}\b", "PORT", reason)
    return Result(case.name, adapter.name, judgment.outcome, judgment.rows, took, " ".join(reason.split())[:REASON])


def _report(adapter: Adapter, task: Task) -> ReportedDifferences:
    """Run an adapter; what it raises (output that it cannot read, a refused statement) is a crash of its tool."""
    try:
        return adapter.run(task)
    except Exception as error:  # noqa: BLE001 - adapters are anybody's code, and one must not end the run
        return ReportedDifferences(Ending.CRASHED, detail=f"{type(error).__name__}: {error}")


def _version(side: Endpoint) -> str:
    with connect(side, 60.0, use=False) as connection:
        return str(query(connection, "SELECT VERSION()")[0][0])
