"""How long a runbook of 10,000 steps takes to read, to lint, to plan and to forecast: ``python -m bench.runbook``."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from migverify.runbook.actions_builtin import built_in
from migverify.runbook.findings import Places
from migverify.runbook.forecast import Progress, estimates, forecast
from migverify.runbook.lint import lint
from migverify.runbook.load import read_runbook
from migverify.runbook.model import RunKind
from migverify.runbook.plan import plan_of

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


def main() -> None:
    """Print the times."""
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
