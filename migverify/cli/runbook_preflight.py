"""Preflight of ``migverify runbook check``: everything that can be known before a run, asked now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.cli.console import say
from migverify.cli.runbook_begin import decision_of, fingerprint_now, floor_of
from migverify.cli.runbook_room import room_of
from migverify.errors import MigverifyError

if TYPE_CHECKING:
    from migverify.runbook.definition.findings import LintFinding
    from migverify.runbook.kinds import RunKind
    from migverify.runbook.model import Runbook
    from migverify.runbook.record.run_store import RunStore
    from migverify.runbook.run.preflight import Item, Preflight

__all__ = ["asked_before", "preflight_lines"]


def asked_before(
    book: Runbook, findings: Sequence[LintFinding], kind: RunKind, runs: str, config: Path | None,
    folder: Path | None, *, announce: bool, everything: bool,
) -> Preflight:  # fmt: skip
    """Ask before a run what would stop it: people, programs, variables, guards, checks, sinks, window, readiness.

    Parameters
    ----------
    config, folder
        The configuration and the folder of disaster recovery cases, where there are any.
    announce
        Send a test message to every sink.
    everything
        Ask checks of steps that act, too: they need an answer, not a pass.
    """
    from migverify.runbook.actions.registry import full_registry
    from migverify.runbook.run import preflight as ask
    from migverify.runbook.run.preflight import Preflight, verdict_of_items
    from migverify.runbook.run.working import seconds_for

    room = room_of(runs)
    items = [*ask.linted(findings), *_looked_at(book, kind, room, announce=announce)]
    questions = list(ask.questions_of(book, kind, everything=everything))
    if questions:
        longest = max(seconds_for(question.check) for question in questions)
        say(f"asking {len(questions)} checks, each for at most {longest:.0f} s")
    items += ask.asked(questions, full_registry(), config)
    items += _ready(book, kind, room, config, folder)
    return Preflight(verdict_of_items(items), tuple(items))


def _looked_at(book: Runbook, kind: RunKind, room: RunStore, *, announce: bool) -> Iterator[Item]:
    from migverify.runbook.run import preflight as ask

    now = time.time()
    yield from ask.people_of(book, kind)
    yield from _earlier(book, room)
    yield from ask.programs_of(book, kind)
    yield from ask.variables_of(book, kind)
    yield from ask.sinks_of(book.sinks.values(), book.id, now, announce=announce)
    yield from ask.window_of(book, kind, now)


def _earlier(book: Runbook, room: RunStore) -> Iterator[Item]:
    """Yield what the room says: whether it can be read, runs that are not over, the last run's logins."""
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.run.preflight import Item, runs_of
    from migverify.runbook.run.preflight import room_of as kept_in

    if room.is_folder:
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


def _ready(book: Runbook, kind: RunKind, room: RunStore, config: Path | None, folder: Path | None) -> Iterator[Item]:
    """Yield the conditions of a live run."""
    from migverify.runbook.definition.load import case_priorities
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.history.readiness import readiness, wanted_runbooks
    from migverify.runbook.kinds import RunKind
    from migverify.runbook.run.preflight import Item, readiness_of

    if kind is not RunKind.LIVE:
        return
    try:
        past = past_runs(room, wanted_runbooks(book), cases=bool(book.policy.readiness.dr_cases.required))
        priorities = case_priorities(folder) if folder is not None else None
        floor, decision = floor_of(config), decision_of(config)
        found = readiness(book, past, time.time(), fingerprint_now(config), priorities, floor, decision)
    except MigverifyError as error:
        yield Item("readiness", book.id, "inconclusive", error.message, error.hint)
        return
    yield from readiness_of(found)


_SHOWN = {"pass": "ok", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


def preflight_lines(book: Runbook, found: Preflight, kind: str, *, passed: bool) -> Iterator[str]:
    """Yield what was found, by part; what passed only where that is requested."""
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
    word = {"MATCH": "GO", "MISMATCH": "NO-GO"}.get(found.verdict, "NO-GO (inconclusive)")
    yield f"{word}: {counts}"
