"""``migverify runbook status`` and ``runbook report --verify``: where a run is, and whether its journal holds."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import examples, json_text, raw_stream, say, visible
from migverify.cli.runbook_room import (
    DEFAULT_ROOM,
    HeadsOption,
    RoomOption,
    RunOption,
    announced_heads,
    find_run,
    known_keys,
    room_of,
    suffix_of,
)
from migverify.errors import ExitCode, UsageError
from migverify.model import NextStep
from migverify.runbook.page.view_clock import clock_words, utc_words

if TYPE_CHECKING:
    from migverify.runbook.events import Event
    from migverify.runbook.model import Person
    from migverify.runbook.page.view import View
    from migverify.runbook.page.view_steps import StepView
    from migverify.runbook.record.chain import JournalProblem
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.record.run_store import RunStore
    from migverify.runbook.run.pending import PendingAction

__all__ = ["STATUS_EPILOG", "VERIFY_EPILOG", "status", "verify_journal"]

STATUS_EPILOG = examples(
    "migverify runbook status",
    "migverify runbook status --watch                       # again whenever something moves",
    "migverify runbook status --step freeze                 # its evidence, for the reviewer",
    "migverify runbook status --run last --wait 600; echo $?",
    "migverify runbook status --json | jq '.duties[] | .persons[0], .command'",
)
VERIFY_EPILOG = examples(
    "migverify runbook report --verify last",
    "migverify runbook report --verify runs/20261121T171552Z-small-b19cc1/journal.jsonl",
    "migverify runbook report --verify last --heads channel.txt    # heads that were announced to the outside",
    "migverify runbook report --verify last --heads channel.txt --keys team.keys",
)
_LOOK = 0.5
_LOUD = ("failed", "timed out", "inconclusive", "unknown")


def status(
    run: RunOption = None,
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="One step with its evidence, as a reviewer has to see.")
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again whenever something moved.")] = False,
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait for the end; the exit code is its.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object; with --watch one a move.")] = False,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Show the state of a run: steps, times, who does what next, guards, holds, what can be rolled back and until when.

    Exit 0 in any state; with --wait as `runbook run`: 0 completed, 3 not over, 90 to 93 other ends.
    """
    from migverify.runbook.run.ending import exit_of

    room = room_of(runs)
    record = find_run(room, run, over_too=True)
    screen = _Screen(room, runs, record, step, named=run is not None, as_json=as_json, again=watch)
    if wait is not None:
        _wait(record, wait)
    screen.show()
    while watch and not record.status.over:
        time.sleep(_LOOK)
        before = record.status.seq
        record.refresh()
        if record.status.seq != before or (screen.live and not as_json):
            screen.show()
    if wait is not None:
        raise typer.Exit(int(exit_of(record.status.state)))


def _wait(record: RunRecord, seconds: float) -> None:
    until = time.monotonic() + seconds
    while not record.status.over and time.monotonic() < until:
        time.sleep(min(_LOOK, max(0.0, until - time.monotonic())))
        record.refresh()


class _Screen:
    """Shows a run, once or again and again; on a terminal in place."""

    def __init__(
        self, room: RunStore, text: str, record: RunRecord, step: str | None, *, named: bool, as_json: bool, again: bool
    ) -> None:
        from migverify.runbook.page.watch_run import Watcher

        self._record, self._step, self._json = record, step, as_json
        self._watcher = Watcher(room, record.status.run, fresh=0.0)
        self._suffix = suffix_of(text, record.status.run if named else None)
        self.live = again and sys.stdout.isatty()
        if step is not None and step not in record.status.steps:
            raise UsageError(f"there is no step {step}", hint=f"Steps: {', '.join(record.status.steps)}.")

    def show(self) -> None:
        """Print it."""
        from migverify.errors import JournalError
        from migverify.runbook.record.signatures import fingerprint
        from migverify.runbook.run.pending import pending_actions

        found = self._watcher.look()
        self._record.refresh()
        status = self._record.status
        if found.view is None:
            problem = found.problem
            raise JournalError(problem.text if problem else "the run cannot be read")
        seen = found.view
        gone = seen.executor.why if seen.executor.state == "gone" else ""
        todo = pending_actions(status, self._record.now(), self._suffix, gone=gone)
        if self._json:
            typer.echo(_json_line(seen, todo, self._step))
        else:
            lines = [*(_step_lines(seen, self._step) if self._step is not None else _lines(seen, todo))]
            lines += [f"approvals of {one.name} are signed by {fingerprint(one.ssh_key)}"
                      for one in status.runbook.people.values() if one.ssh_key]  # fmt: skip
            if self.live:
                raw_stream(sys.stdout).write("\x1b[H\x1b[2J")
            typer.echo("\n".join(_on_one_line(line) for line in lines))
        sys.stdout.flush()


def _on_one_line(line: str) -> str:
    """Return a line whose text cannot pass for more than one; a heading begins with an empty line of its own."""
    heading = line.startswith("\n")
    return ("\n" if heading else "") + visible(line[heading:], lines=False)


def _json_line(seen: View, todo: tuple[PendingAction, ...], step: str | None) -> str:
    document = _as_json(seen, todo, step)
    if step is not None:
        return json.dumps(document, ensure_ascii=False)
    return json_text(document, (NextStep(one.command, f"{one.who}: {one.what}") for one in todo if one.command))


def _as_json(seen: View, todo: tuple[PendingAction, ...], step: str | None) -> dict[str, Any]:
    from dataclasses import asdict

    from migverify.runbook.page.view import as_json

    document = as_json(seen)
    if step is not None:
        found: dict[str, Any] = next(one for one in document["steps"] if one["id"] == step)
        return found
    return {**document, "duties": [{**asdict(action), "who": action.who} for action in todo]}


# -- as text ----------------------------------------------------------------------------------------------------------


def _lines(seen: View, todo: tuple[PendingAction, ...]) -> Iterator[str]:
    yield from _head(seen)
    yield ""
    yield from _steps(seen)
    if todo:
        yield "\nnow"
        for action in todo:
            yield f"  {'or ' if action.choice else ''}{action.who}: {action.what}"
            if action.command:
                yield f"      {action.command}"
            if action.promote:
                yield f"      no answer? {action.promote}"
    for guard in seen.guards:
        if guard.armed or guard.state not in ("pass", "not asked"):
            yield _guard_line(seen, guard)
    for warned in seen.warnings:
        yield f"{'warning' if warned.level == 'warn' else 'BAD'}: {warned.text}"


def _head(seen: View) -> Iterator[str]:
    place = f"{seen.environment}{' (PRODUCTION)' if seen.production else ''}"
    pilot = ", on autopilot" if seen.autopilot else ""
    yield f"{seen.label} of {seen.runbook} in {place}: {seen.state.upper()}{pilot}   run {seen.run}"
    for reason in seen.reasons:
        yield f"  {reason}"
    took = clock_words(seen.clock.at(seen.now))
    held = f", held {clock_words(seen.held.at(seen.now))} in {seen.holds} holds" if seen.holds else ""
    ends = ""
    if seen.finish.p50 is not None and seen.finish.p90 is not None:
        least = "not before " if seen.finish.unknown else ""
        ends = f"; ends {least}{_time(seen.finish.p50)} to {_time(seen.finish.p90)}, planned {_time(seen.finish.plan)}"
    yield f"  began {_time(seen.started)}, {took} {'in all' if seen.over else 'ago'}{held}{ends}"
    if seen.standing:
        yield f"  EFFECTS THAT WERE NOT ROLLED BACK, OR MAY NOT BE: {', '.join(seen.standing)}"
    if seen.unverified:
        yield f"  no rollback verifies what these did: {', '.join(seen.unverified)}"
    if seen.over:
        return
    driver = seen.executor
    yield f"  phase {seen.phase}; driven by {driver.person or 'nobody'}" + (
        f", {driver.state.upper()}{f': {driver.why}' if driver.why else ''}, last heartbeat at {driver.since}"
        if driver.state in ("gone", "silent")
        else ""
    )
    if seen.alarm:
        yield f"  {seen.alarm.upper()}"
    yield from _limits(seen)


def _limits(seen: View) -> Iterator[str]:
    budget = seen.budget
    if budget.used is not None:
        limit = f" of {clock_words(budget.limit)}" if budget.limit is not None else ""
        spent = " SPENT" if budget.state == "spent" else ""
        verb = "are" if budget.state in ("running", "spent") else "were"
        yield f"  writes {verb} stopped: {clock_words(budget.used.at(seen.now))}{limit}{spent}"
    if seen.undo.decide_by is not None:
        left = seen.undo.decide_by.at(seen.now)
        yield f"  decision within {clock_words(left)}" if left >= 0 else f"  decision LATE by {clock_words(-left)}"
    if seen.undo.armed:
        until = f", at the latest {_time(seen.undo.until)}" if seen.undo.until is not None else ""
        yield f"  can be rolled back: {', '.join(seen.undo.armed)} in {clock_words(seen.undo.needs)}{until}"
    elif seen.undo.why_not:
        yield f"  no rollback now: {seen.undo.why_not}"
    if seen.ladder.rung:
        loss = "" if seen.ladder.rung > 1 else " (data loss)"
        yield f"  passed the point of no return{loss}: {', '.join(seen.ladder.passed)}"


def _time(wall: float) -> str:
    return f"{utc_words(wall, date=False)}Z"


def _steps(seen: View) -> Iterator[str]:
    wide = max((len(one.id) for one in seen.steps), default=4)
    yield f"  {'step':<{wide}}  {'state':<15}  {'time/plan':>13}  {'who':<17}  {'rollback'}"
    for one in seen.steps:
        columns = f"{_state(one):<15}  {_times(one, seen.now):>13}  {_who(one):<17}  {_undo(one)}"
        yield f"  {one.id:<{wide}}  {columns}".rstrip()


def _state(one: StepView) -> str:
    return (one.state.upper() if one.state in _LOUD else one.state) + (f" ({one.attempt})" if one.attempt > 1 else "")


def _times(one: StepView, now: float) -> str:
    took = one.took if one.clock is None else one.clock.at(now)
    plan = clock_words(one.plan) if one.plan is not None else "?"
    if one.state == "not applicable":
        return "-"
    return f"{clock_words(took) if took is not None else '-'}{'!' if one.late else ''} / {plan}"


def _who(one: StepView) -> str:
    dri = one.by or (one.dri_people[0] if one.dri_people else one.dri)
    return f"{dri} / {one.reviewer_people[0] if one.reviewer_people else '-'}"


def _undo(one: StepView) -> str:
    if one.undo.state == "none needed":
        return ""
    return f"{one.undo.state}{f' ({one.undo.reason})' if one.undo.reason else ''}"


def _guard_line(seen: View, guard: Any) -> str:
    age = f" {clock_words(guard.clock.at(seen.now))} ago" if guard.clock is not None else ""
    holds = ", HOLDS THE RUN" if guard.holds else ""
    state = guard.state if guard.state == "pass" else guard.state.upper()
    return f"guard {guard.id}: {state}{age}{holds}{f': {guard.text}' if guard.text else ''}"


def _step_lines(seen: View, step: str) -> Iterator[str]:
    """Yield what a reviewer has to see of a step: what was to be done, what shows it, and the hash to accept."""
    from migverify.runbook.page.view_steps import evidence_lines

    one = next(found for found in seen.steps if found.id == step)
    yield f"{one.id}: {one.title}   {_state(one)}, {_times(one, seen.now)}"
    if one.reason:
        yield f"  {one.reason}"
    for line in one.instruction.strip().splitlines():
        yield f"  | {line}"
    for expected in one.expects:
        yield f"  expects {expected}"
    for number, piece in enumerate(one.evidence, start=1):
        for place, line in enumerate(evidence_lines(piece)):
            yield f"  {f'{number}.' if not place else '':<3} {line}"
    for given in one.approvals:
        how = "signed" if given.signed else "not signed"
        yield f"  {given.person} said {given.of}{f' ({given.answer})' if given.answer else ''}, {how}"
    if one.waiver:
        yield f"  waived: {one.waiver}"
    if one.missing:
        yield f"  {one.missing}"
    if one.sign:
        yield f"  hash of step and evidence: {one.sign}"


def verify_journal(
    run: Annotated[str, typer.Argument(metavar="RUN|FILE", help="A run's id, `last`, or a journal file.")] = "last",
    heads: HeadsOption = None,
    keys: Annotated[
        Path | None,
        typer.Option("--keys", metavar="FILE", help="Public keys known from elsewhere, a line `PERSON KEY` each."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Check a journal offline: hashes, chain, signatures, announced heads, and that all of it can have happened.

    Exit 0: it can be believed, 1: it was changed, and the first bad line is named; 3: its run is not over, so that its
    end may have been cut off.
    """
    document = _verified(run, runs, heads, keys)
    if as_json:
        typer.echo(json_text(document))
    else:
        for problem in document["problems"]:
            typer.echo(f"{'' if problem['fatal'] else 'warning: '}line {problem['line']}: {problem['what']}")
        typer.echo(f"{document['journal']}: {document['events']} events, head {document['head'] or 'not known'}")
        for head in document["announced"]:
            typer.echo(f"  head of event {head['seq']} was announced: {head['sha'][:16]}")
        if not document["announced"]:
            say("note: no head was announced: whoever owns the journal could have written all of it anew")
        for signer in document["signers"]:
            typer.echo(f"  approvals of {signer['person']} are signed by {signer['fingerprint']}")
        if document["signers"] and keys is None:
            say("note: the keys are the journal's own: hold them against a file of your own with --keys")
        for reason in document["reasons"]:
            typer.echo(f"  {reason}")
        typer.echo(document["verdict"])
    raise typer.Exit(int(ExitCode[document["verdict"]]))


def _verified(run: str, runs: str, heads: Path | None, keys: Path | None) -> dict[str, Any]:
    from migverify.errors import JournalError
    from migverify.runbook.events import EventKind
    from migverify.runbook.record.chain import JournalProblem
    from migverify.runbook.record.heads import check_heads
    from migverify.runbook.record.signatures import check_keys, fingerprint

    outside = announced_heads(heads) or None
    name, problems, read = _journal(run, runs)
    events: list[Event] = []
    announced: list[dict[str, Any]] = []
    book: tuple[Person, ...] = ()
    try:
        events.extend(read())
        problems += check_heads(events, outside)
        book = _people_of(events)
        if keys is not None:
            problems += [JournalProblem(1, why) for why in check_keys(book, known_keys(keys))]
        announced = [{"seq": int(e.data["seq"]), "sha": str(e.data["sha"])} for e in events if e.kind is EventKind.HEAD]
    except JournalError as error:
        if not any(one.fatal for one in problems):
            raise  # nothing was said about it yet
        say(f"note: it was read as far as it goes: {error.message}")
    reasons = []
    if not any(one.kind is EventKind.RUN_ENDED for one in events):
        reasons.append(f"its run is not over at event {len(events) - 1}: it goes on, or the journal's end was cut off")
    bad = any(one.fatal for one in problems)
    return {
        "journal": name, "events": len(events), "head": events[-1].sha if events else "", "announced": announced,
        "bad": bad, "verdict": "MISMATCH" if bad else "INCONCLUSIVE" if reasons else "MATCH", "reasons": reasons,
        "signers": [{"person": p.name, "fingerprint": fingerprint(p.ssh_key)} for p in book if p.ssh_key],
        "problems": [{"line": one.line, "what": one.what, "fatal": one.fatal} for one in problems],
    }  # fmt: skip


def _people_of(events: list[Event]) -> tuple[Person, ...]:
    from migverify.runbook.record.frozen import runbook_from_json

    return tuple(runbook_from_json(events[0].data["runbook"]).people.values()) if events else ()


def _journal(run: str, runs: str) -> tuple[str, list[JournalProblem], Callable[[], Iterator[Event]]]:
    """Return a journal's name, what is wrong with it, and how it is read: of a file, or of a run in a room."""
    from migverify.runbook.record.journal_file import NAME, read_events, verify_run

    named = Path(run)
    path = named if named.is_file() else named / NAME
    if path.is_file():
        return str(path), verify_run(path), lambda: read_events(path)
    room = room_of(runs)
    return f"{run} in {room.name}", room.verify(run), lambda: room.events(run)
