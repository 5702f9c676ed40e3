"""How long a runbook of 10,000 steps takes to read, lint, plan and forecast, and what 200 drills take to look at.

``python -m bench.runbook``
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migverify.runbook.actions.builtin import built_in
from migverify.runbook.definition.findings import Places
from migverify.runbook.definition.forecast import Progress, estimates, forecast
from migverify.runbook.definition.lint import lint
from migverify.runbook.definition.load import load_runbook, read_runbook
from migverify.runbook.definition.plan import plan_of
from migverify.runbook.events import EventKind
from migverify.runbook.history.compare import compare_all
from migverify.runbook.history.past import drill_seconds, past_runs
from migverify.runbook.history.readiness import readiness, wanted_runbooks
from migverify.runbook.kinds import RunKind
from migverify.runbook.model import Runbook
from migverify.runbook.record.chain import Draft
from migverify.runbook.record.journal_file import fold_journal, verify_run
from migverify.runbook.record.run_store import RunStore

SINKS = "sinks: {terminal: {kind: stdout}}\n"
HEAD = """\
version: runbook/v1
id: large
title: A large one
kind: cutover
environments: {staging: {}}
people: {alice: {}, bob: {}, carol: {}}
roles: {coordinator: {person: alice}, db1: {person: bob}, db2: {person: carol}}
sinks: {terminal: {kind: stdout}}
phases:
"""

STEP = """\
      - id: s{n}
        kind: command
        title: Step {n}
        instruction: Revoke the account, then end its sessions.
        dri: {dri}
        reviewer: db2
        needs: [{needs}]
        time: {{plan: 20s, max: 1m}}
        do: {{run: "cut part {n}", timeout: 45s}}
        expect:
          - {{check: command.exit, run: "cut part {n} done"}}
        repeat: check
        reconcile: {{check: command.exit, run: "cut part {n} done"}}
        rollback:
          do: {{run: "cut back {n}"}}
          verify: [{{check: command.exit, run: "cut part {n} undone"}}]
          plan: 15s
"""


def text(steps: int, phases: int = 20, lanes: int = 5) -> str:
    """Return a runbook whose phases have lanes side by side, each a chain; one person in all lanes: many findings."""
    parts = [HEAD]
    each = steps // phases
    for phase in range(phases):
        parts.append(f"  - id: p{phase}\n    steps:\n")
        for one in range(each):
            number = phase * each + one
            needs = f"s{number - lanes}" if one >= lanes else ""
            parts.append(STEP.format(n=number, needs=needs, dri="db1"))
    return "".join(parts)


def _timed(name: str, work: Callable[..., Any], *arguments: Any) -> Any:
    begun, used = time.perf_counter(), time.process_time()
    found = work(*arguments)
    print(f"{name:<40} {time.perf_counter() - begun:6.2f} s  (CPU {time.process_time() - used:.2f} s)")
    return found


def _drill(runs: Path, book: Runbook, number: int) -> None:
    """Write a clean drill in one append: nobody reviews its steps."""
    record = RunStore(runs).create(book, RunKind.REHEARSAL, "alice", run=f"drill-{number:03}", schema_fingerprint="f")
    drafts = [Draft(EventKind.LEASE, "x", "executor", data={"epoch": 1, "person": "alice"})]
    told: list[tuple[EventKind, str, str, dict[str, Any]]] = [
        (EventKind.CALLED, "alice", "coordinator", {}), (EventKind.STARTED, "bob", "dri", {}),
        (EventKind.INTENT, "x", "executor", {"action": "command.run", "arguments": {}, "timeout": 45.0}),
        (EventKind.EFFECT, "x", "executor", {"outcome": "ok", "text": "done", "value": 0, "evidence": {}}),
        (EventKind.EVIDENCE, "x", "executor", {"complete": True, "checks": [{"state": "pass"}]}),
    ]  # fmt: skip
    for step in book.steps:
        drafts += [Draft(kind, actor, role, step.id, 1, data) for kind, actor, role, data in told]
    drafts.append(Draft(EventKind.RUN_ENDED, "x", "executor", data={"state": "completed"}))
    record.write(lambda _status, _now: drafts)


def history(drills: int = 200, steps: int = 100) -> None:
    """Print how long journals of many drills take to read, to answer readiness from, and to compare."""
    print(f"{drills} drills of {steps} steps")
    with tempfile.TemporaryDirectory() as folder:
        path, runs = Path(folder) / "drilled.yaml", Path(folder) / "runs"
        path.write_text(text(steps, lanes=1).replace("        reviewer: db2\n", "").replace(SINKS, ""))
        book = load_runbook(path, {}, "staging")
        for number in range(drills):
            _drill(runs, book, number)
        past = _timed("  read and judge all journals", past_runs, RunStore(runs), wanted_runbooks(book))
        events = sum(1 for run in RunStore(runs).ids() for _ in RunStore(runs).open_journal(run).lines())
        print(f"    {events} events, {len(past.runs)} runs, {len(past.damaged)} damaged")
        found = _timed("  readiness", readiness, book, past, time.time(), "f")
        print(f"    {found.verdict}: {', '.join(one.id for one in found.conditions if one.state == 'missing')}")
        _timed("  compare all", compare_all, past)
        _timed("  estimates of the forecast", lambda: estimates(book, drill_seconds(past, book)))


def folded(steps: int = 10_000) -> None:
    """Print how long the journal of a long run takes to fold, and to verify offline."""
    print(f"journal of a run of {steps:,} steps")
    with tempfile.TemporaryDirectory() as folder:
        path, runs = Path(folder) / "long.yaml", Path(folder) / "runs"
        path.write_text(text(steps, lanes=1).replace("        reviewer: db2\n", "").replace(SINKS, ""))
        _drill(runs, load_runbook(path, {}, "staging"), 0)
        journal = runs / "journal.jsonl"
        RunStore(runs).export("last", journal)
        status = _timed("  fold", fold_journal, journal)
        print(f"    {status.seq + 1} events, {journal.stat().st_size >> 20} MB")
        found = _timed("  verify-journal", verify_run, journal)
        print(f"    {len(found)} problems")


def main() -> None:
    """Print the times."""
    history()
    folded()
    actions = {action.name: action for action in built_in()}
    for lanes in (1, 5):
        print(f"10,000 steps in 20 phases, {lanes} lanes")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "large.yaml"
            path.write_text(text(10_000, lanes=lanes))
            reading = _timed("  read and check the file", read_runbook, path, {}, "staging")
        book = reading.runbook
        _timed("  lint", lint, book, Places("large.yaml"), actions)
        found = _timed("  lint, with the texts of the file", lint, book, reading.places, actions)
        print(f"    {len(found)} findings")
        _timed("  plan", plan_of, book)
        _timed("  forecast", forecast, book, RunKind.LIVE, estimates(book, []), Progress(), 0.0)


if __name__ == "__main__":
    main()
