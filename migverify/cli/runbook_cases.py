"""``migverify runbook readiness --dr``: which disaster recovery cases passed, and where."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import JsonOption, examples
from migverify.cli.runbook_history_view import table
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption, room_of
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.runbook.definition.load import CaseFile
    from migverify.runbook.history.past import Past
    from migverify.runbook.history.readiness_cases import Covered

EPILOG = examples(
    "migverify runbook readiness --dr runbooks/dr                    # the catalogue, and where each case passed",
    "migverify runbook readiness --dr runbooks/dr --environment staging --require p0 --max-age 90",
    "migverify runbook readiness --dr runbooks/dr --json | jq '.cases[] | select(.reason != \"\") | [.id, .reason]'",
)
MAX_AGE_DAYS = 30.0
_DAY = 86_400.0
_RED = 20


@dataclass(frozen=True, slots=True)
class _Row:
    """A case, its runs by environment, and why it does not count as passed; empty when it does."""

    file: CaseFile
    runs: Mapping[str, Covered]
    reason: str


def cases(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the cases are.")] = Path("runbooks/dr"),
    environment: Annotated[
        str | None,
        typer.Option("--environment", "-e", metavar="NAME", help="Passes of this one alone; default: as `readiness`."),
    ] = None,
    require: Annotated[
        list[str] | None, typer.Option("--require", metavar="CASE", help="A case or p0, p1, p2; default: every case.")
    ] = None,
    max_age: Annotated[
        float, typer.Option("--max-age", metavar="DAYS", min=0, help="How old a pass may be.")
    ] = MAX_AGE_DAYS,
    runs: RoomOption = DEFAULT_ROOM,
    as_json: JsonOption = False,
) -> None:
    """Show which disaster recovery cases passed lately, by environment; an invalid run never counts.

    Exit 0: every required case did, 1: one did not, 3: a journal is damaged, so it is not known.
    """
    from migverify.runbook.definition.load import case_files
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.history.readiness_cases import PRIORITIES, required_cases

    files = case_files(folder)
    wanted, unknown = required_cases(require or PRIORITIES, {id_: one.priority for id_, one in files.items()})
    if require and unknown:
        raise UsageError(f"--require: {unknown[0]}", hint=f"Cases are in {folder}; priorities are p0, p1 and p2.")
    past = past_runs(room_of(runs), (), cases=True)
    now = time.time()
    rows = _rows([files[id_] for id_ in wanted], past, environment, now, max_age)
    if as_json:
        typer.echo(json.dumps(_as_json(rows, past, max_age), indent=2, ensure_ascii=False))
    else:
        typer.echo("\n".join(_lines(rows, past, environment, now, max_age)))
    if any(row.reason for row in rows):
        raise typer.Exit(ExitCode.MISMATCH)
    raise typer.Exit(ExitCode.INCONCLUSIVE if past.damaged or not rows else ExitCode.MATCH)


def _rows(
    files: Sequence[CaseFile], past: Past, environment: str | None, now: float, max_age: float
) -> tuple[_Row, ...]:
    from migverify.runbook.history.readiness_cases import coverage, why_not

    ids = [one.id for one in files]
    found, reasons = coverage(ids, past, now, max_age), why_not(ids, past, now, max_age)
    rows = []
    for one in files:
        runs = found[one.id]
        if environment is None:
            reason = reasons[one.id]
        elif environment in runs:
            reason = _why(runs[environment])
        else:
            reason = f"never run to its end in {environment}"
        rows.append(_Row(one, runs, reason))
    return tuple(rows)


def _why(run: Covered) -> str:
    return f"{run.grade} ({run.run}): {run.why}" if run.why else ""


def _passed(rows: Sequence[_Row]) -> str:
    parts = []
    for priority in dict.fromkeys(sorted(row.file.priority for row in rows)):
        some = [row for row in rows if row.file.priority == priority]
        parts.append(f"{priority} {sum(not row.reason for row in some)} of {len(some)}")
    return ", ".join(parts)


def _lines(
    rows: Sequence[_Row], past: Past, environment: str | None, now: float, max_age: float
) -> Iterator[str]:  # fmt: skip
    names = sorted({name for row in rows for name in row.runs} | ({environment} if environment is not None else set()))
    head = ["case", "priority", "tier", *names, "counts"]
    cells = [
        [
            row.file.id, row.file.priority, row.file.tier,
            *(_cell(row.runs.get(name), now) for name in names), "no" if row.reason else "yes",
        ]
        for row in rows
    ]  # fmt: skip
    yield from table([head, *cells], len(head))
    yield ""
    good, where = sum(not row.reason for row in rows), f" in {environment}" if environment is not None else ""
    yield f"{good} of {len(rows)} cases passed{where} within {max_age:g} days ({_passed(rows) or 'there is none'})"
    red = [row for row in rows if row.reason and row.runs]
    for row in red[:_RED]:
        yield f"  {row.file.id}: {row.reason}"
    if len(red) > _RED:
        yield f"  and {len(red) - _RED} more: see --json"
    for one in past.damaged:
        yield f"not counted: {one.run} ({one.problem})"


def _cell(run: Covered | None, now: float) -> str:
    if run is None:
        return "-"
    days = max(0.0, now - run.ended) / _DAY
    return f"{run.grade if not run.why else run.grade.upper()}, {days:.0f} d"


def _as_json(rows: Sequence[_Row], past: Past, max_age: float) -> dict[str, Any]:
    return {
        "max_age_days": max_age,
        "cases": [
            {**asdict(row.file), "passed": not row.reason, "reason": row.reason,
             "runs": [asdict(one) for _, one in sorted(row.runs.items())]}
            for row in rows
        ],
        "damaged": [asdict(one) for one in past.damaged],
    }  # fmt: skip
