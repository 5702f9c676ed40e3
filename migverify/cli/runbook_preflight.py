"""``migverify runbook preflight``: everything that can be known before a run, asked now. Nothing begins."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say
from migverify.cli.runbook_begin import catalogue, fingerprint_now, floor_of, kind_of, read_for
from migverify.cli.runbook_lint import EnvironmentOption, JsonOption, RunbookArgument, SetOption, parse_set
from migverify.cli.runbook_room import DEFAULT_ROOM, RoomOption, room_of
from migverify.errors import ExitCode, MigverifyError

if TYPE_CHECKING:
    from migverify.runbook.model import Runbook, RunKind
    from migverify.runbook.record.room import Room
    from migverify.runbook.run.preflight import Item, Preflight

__all__ = ["EPILOG", "preflight"]

EPILOG = examples(
    "migverify runbook preflight cutover.yaml -e staging --set service=orders",
    "migverify runbook preflight cutover.yaml -e production --kind live --announce",
    "migverify runbook preflight cutover.yaml -e production --kind live --json | jq -r '.items[] | .state'",
)
_CODES = {"MATCH": ExitCode.MATCH, "MISMATCH": ExitCode.MISMATCH}


def preflight(
    runbook: RunbookArgument,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Kind of run: dry, rehearsal, live, rollback.")
    ] = "rehearsal",
    environment: EnvironmentOption = None,
    set_: SetOption = None,
    announce: Annotated[bool, typer.Option("--announce", help="Send a test message to every sink.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also ask checks behind steps that act: they need an answer, not a pass.")
    ] = False,
    passed: Annotated[bool, typer.Option("--passed", help="List what passed, too.")] = False,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", metavar="FOLDER", help="Disaster recovery cases; default: dr/ beside the runbook."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Ask before a run what would stop it: lint, people, programs, variables, guards, checks, sinks, window, readiness.

    Exit 0: nothing found, 1: something would stop it, 3: something could not be known.
    """
    from migverify.runbook.actions.registry import full_registry
    from migverify.runbook.run.preflight import Preflight, verdict_of_items
    from migverify.runbook.run.preflight import as_json as json_of

    registry, room, wanted = full_registry(), room_of(runs), kind_of(kind)
    book, findings = read_for(runbook, parse_set(set_ or []), environment, registry, cases, runs)
    known = config if config.exists() else None
    folder = catalogue(cases, runbook.parent)
    from migverify.runbook.run import preflight as ask
    from migverify.runbook.run.working import seconds_for

    items = [*ask.linted(findings), *_looked_at(book, wanted, room, announce=announce)]
    questions = list(ask.questions_of(book, wanted, everything=everything))
    if questions:
        longest = max(seconds_for(question.check) for question in questions)
        say(f"asking {len(questions)} checks, each for at most {longest:.0f} s")
    items += ask.asked(questions, registry, known)
    items += _ready(book, wanted, room, known, folder)
    found = Preflight(verdict_of_items(items), tuple(items))
    if as_json:
        typer.echo(json.dumps({"runbook": book.id, "sha": book.sha, "environment": book.environment, "kind": kind,
                               **json_of(found)}, ensure_ascii=False))  # fmt: skip
    else:
        typer.echo("\n".join(_lines(book, found, kind, passed=passed)))
    raise typer.Exit(int(_CODES.get(found.verdict, ExitCode.INCONCLUSIVE)))


def _looked_at(book: Runbook, kind: RunKind, room: Room, *, announce: bool) -> Iterator[Item]:
    from migverify.runbook.run import preflight as ask

    now = time.time()
    yield from ask.people_of(book, kind)
    yield from _earlier(book, room)
    yield from ask.programs_of(book, kind)
    yield from ask.variables_of(book, kind)
    yield from ask.sinks_of(book.sinks, book.id, now, announce=announce)
    yield from ask.window_of(book, kind, now)


def _earlier(book: Runbook, room: Room) -> Iterator[Item]:
    """Yield what the room says: whether it can be read, runs that are not over, the last run's logins."""
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.record.room import FolderRoom
    from migverify.runbook.run.preflight import Item, runs_of
    from migverify.runbook.run.preflight import room_of as kept_in

    if isinstance(room, FolderRoom):
        yield kept_in(room.path)
    try:
        past = past_runs(room, book.id)
        last = room.open(past.runs[-1].run).status if past.runs else None
    except MigverifyError as error:
        yield Item("room", room.name, "inconclusive", error.message, error.hint)
        return
    yield Item("room", room.name, "pass", f"{len(past)} earlier runs of this runbook")
    yield from (Item("room", one.run, "warn", f"cannot be read: {one.problem}") for one in past.damaged)
    yield from runs_of([one.run for one in past if not one.over], last)


def _ready(book: Runbook, kind: RunKind, room: Room, config: Path | None, folder: Path | None) -> Iterator[Item]:
    """Yield the conditions of a live run."""
    from migverify.runbook.definition.load import case_priorities
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.history.readiness import readiness, wanted_runbooks
    from migverify.runbook.model import RunKind
    from migverify.runbook.run.preflight import Item, readiness_of

    if kind is not RunKind.LIVE:
        return
    try:
        past = past_runs(room, wanted_runbooks(book), cases=bool(book.policy.dr_cases))
        priorities = case_priorities(folder) if folder is not None else None
        found = readiness(book, past, time.time(), fingerprint_now(config), priorities, floor_of(config))
    except MigverifyError as error:
        yield Item("readiness", book.id, "inconclusive", error.message, error.hint)
        return
    yield from readiness_of(found)


_SHOWN = {"pass": "ok", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


def _lines(book: Runbook, found: Preflight, kind: str, *, passed: bool) -> Iterator[str]:
    yield f"{kind.upper()} of {book.id} in {book.environment}, runbook {book.sha[:12]}"
    parts = dict.fromkeys(item.part for item in found.items)
    for part in parts:
        some = [item for item in found.items if item.part == part]
        good = sum(item.state == "pass" for item in some)
        yield f"{part}: {good} of {len(some)} pass"
        for item in some:
            if passed or item.state not in ("pass", "skipped"):
                yield f"  {_SHOWN.get(item.state, item.state):<12} {item.name}: {item.text}"
                if item.hint and item.state in ("fail", "inconclusive"):
                    yield f"  {'':<12} {item.hint}"
    counts = ", ".join(
        f"{count} {state}" for state in ("fail", "inconclusive", "warn", "pass")
        if (count := sum(item.state == state for item in found.items))
    )  # fmt: skip
    yield f"{found.verdict}: {counts}"
