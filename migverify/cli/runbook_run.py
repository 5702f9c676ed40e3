"""``migverify runbook run``: begin a run or go on with one, and drive it from this terminal to its end."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say
from migverify.cli.runbook_begin import (
    begin,
    catalogue,
    decision_of,
    fingerprint_now,
    floor_of,
    kind_of,
    loaded_runbook,
    refuse_other,
)
from migverify.cli.runbook_lint import EnvironmentOption, SetOption, parse_set
from migverify.cli.runbook_room import (
    DEFAULT_ROOM,
    AsOption,
    RoomOption,
    find_run,
    open_runs,
    person_of,
    room_of,
    suffix_of,
    who_acts,
)
from migverify.errors import FencedError, UsageError
from migverify.signals import ENDING, SignalEvent, handled, say_at_once

if TYPE_CHECKING:
    from migverify.runbook.actions.action import Registry
    from migverify.runbook.record.lease import RunLease
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.record.run_store import RunStore
    from migverify.runbook.run.executor import Executor
    from migverify.runbook.state import RunStatus

__all__ = ["EPILOG", "run"]

EPILOG = examples(
    "migverify runbook run cutover.yaml -e staging --set service=orders --as alice",
    "migverify runbook run cutover.yaml -e staging --kind dry --as alice        # nothing is done, all is asked",
    "migverify runbook run cutover.yaml -e staging --as alice --autopilot       # without people, to try it",
    "migverify runbook run cutover.yaml -e production --kind live --as alice",
    "migverify runbook run --run last --as alice                                # go on after Ctrl-C",
    "migverify runbook run --run last --as bob --reason 'the laptop of alice is gone'",
)
_LOOK = 0.5


@dataclass(frozen=True, slots=True)
class _RunLocation:
    room: RunStore
    text: str


@dataclass(frozen=True, slots=True)
class _Context:
    """What the executor has to know besides the run: ``cases`` is the folder of disaster recovery cases, if any."""

    room: RunStore
    config: Path | None
    cases: Path | None


def run(
    runbook: Annotated[
        Path | None, typer.Argument(metavar="RUNBOOK", help="The runbook; not needed with --run.")
    ] = None,
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Kind of run: dry, rehearsal, live, rollback.")
    ] = "rehearsal",
    environment: EnvironmentOption = None,
    set_: SetOption = None,
    as_: AsOption = None,
    run_: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="Go on with this run: its id, or `last`.")
    ] = None,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why the run is taken over from an executor that is gone.")
    ] = "",
    autopilot: Annotated[
        bool, typer.Option("--autopilot", help="Play every role, to try the runbook; never live or in production.")
    ] = False,
    limit: Annotated[
        float, typer.Option("--limit", metavar="SECONDS", min=1, help="With --autopilot: hold the run after this long.")
    ] = 3600.0,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", metavar="FOLDER", help="Disaster recovery cases; default: dr/ beside the runbook."),
    ] = None,
    config: ConfigOption = DEFAULT_CONFIG,
    runs: RoomOption = DEFAULT_ROOM,
) -> None:
    """Begin a run, or go on with one, and drive it: carries out what people start, and says what moves.

    Exit 0: completed; 3: held, not over, or dry; 90 rolled back; 91 aborted, all undone; 92 aborted, not all undone;
    93 failed past the point of no return; 2 refused; 130 interrupted, the run is free for the next executor.
    """
    from migverify.runbook.actions.registry import full_registry

    person, room, registry = who_acts(as_), room_of(runs), full_registry()
    known = config if config.exists() else None
    if run_ is None:
        if runbook is None:
            raise UsageError("RUNBOOK is missing", hint="Name the file; or go on with a run: --run last.")
        book = loaded_runbook(runbook, parse_set(set_ or []), environment, registry, cases)
        record = begin(book, kind_of(kind), person, room, known, autopilot=autopilot)
        cases = catalogue(cases, runbook.parent)
    else:
        record = find_run(room, run_)
        if _undelivered(record.status):
            raise typer.Exit(_delivered(record, person_of(record.status, person)))
        refuse_other(room, record, runbook, set_, environment, autopilot=autopilot)
    lease = _taken(record, person_of(record.status, person), reason, runs)
    context = _Context(room, known, cases)
    executor = _executor(record, registry, lease, context, limit if autopilot else None)
    status, interrupted = _driven(executor, _RunLocation(room, runs))
    raise typer.Exit(_say_end(status, person, suffix_of(runs, status.run), interrupted=interrupted))


def _undelivered(status: RunStatus) -> int:
    """Return how many announcements of a run that is over can still be delivered."""
    from migverify.runbook.fold.run import OPEN

    return sum(one.state in OPEN for one in status.deliveries.values()) if status.over else 0


def _delivered(record: RunRecord, person: str) -> int:
    """Deliver what the executor of a run that is over has left; returns the exit code of the run."""
    from migverify.runbook.announce.outbox import deliver_rest
    from migverify.runbook.run.ending import exit_of

    say(f"the run is over; {_undelivered(record.status)} announcements are delivered now")
    status = deliver_rest(record, person)
    left = _undelivered(status)
    text = f"{left} announcements are still left" if left else "every announcement has been tried to its end"
    typer.echo(f"{status.state.value}: run {status.run}; {text}")
    return int(exit_of(status.state))


def _taken(record: RunRecord, person: str, reason: str, text: str) -> RunLease:
    """Take the lease; from an executor that is gone only when that is certain, and another person agreed."""
    from migverify.runbook.record.lease import LeaseWatch, take
    from migverify.runbook.run.machine import OPEN_WORDS
    from migverify.runbook.run.pending import command_line

    if not record.status.executor:
        return take(record, person)
    if reason in OPEN_WORDS:
        raise UsageError(f"--reason {reason} is a word to be replaced: {OPEN_WORDS[reason]}")
    watch, left = LeaseWatch(record), float("inf")
    while not watch.gone(record.status):
        if watch.seconds_left() > left:
            raise UsageError(
                f"{record.status.executor} ({record.status.executor_by}) drives the run, and lives",
                hint="Stop it with Ctrl-C there; then the run is free.",
            )
        if left == float("inf"):
            who = record.status.executor_by
            say(f"{who} drives the run; it counts as gone after {watch.seconds_left():.0f} s without a beat")
        left = watch.seconds_left()
        time.sleep(_LOOK)
        record.refresh()
        if not record.status.executor:
            return take(record, person)
    suffix = suffix_of(text, record.status.run)
    agree = command_line("handover", "--takeover", "REASON", "--as", "ANOTHER", suffix=suffix)
    try:
        return take(record, person, reason=reason, watch=watch)
    except UsageError as error:
        hint = "Say it with --reason." if not reason.strip() else f"Another person than {person} types: {agree}"
        raise UsageError(error.message, hint=hint) from None


def _executor(
    record: RunRecord, registry: Registry, lease: RunLease, context: _Context, limit: float | None
) -> Executor:
    """Return what drives the run; with a limit, the autopilot."""
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.page.watch_run import drills_of
    from migverify.runbook.run.autopilot import PilotedExecutor
    from migverify.runbook.run.executor import Executor

    status = record.status
    drills = drills_of(past_runs(context.room, status.runbook.id), status)
    if limit is not None:
        drills = replace(drills, number="")  # the autopilot holds no drill
    more: dict[str, Any] = {"config": context.config, "drills": drills, "readiness": _readiness(status, context)}
    if limit is not None:
        return PilotedExecutor(record, registry, lease, limit=limit, **more)
    return Executor(record, registry, lease, **more)


def _readiness(status: RunStatus, context: _Context) -> Any:
    """Return what tells the executor of a live run whether its drills allow it; other runs are not asked."""
    from migverify.runbook.definition.load import case_priorities
    from migverify.runbook.history.readiness import asker
    from migverify.runbook.kinds import RunKind

    if status.kind is not RunKind.LIVE:
        return None
    cases = case_priorities(context.cases) if context.cases is not None else None
    fingerprint, floor = fingerprint_now(context.config), floor_of(context.config)
    return asker(context.room, time.time, fingerprint, cases, floor, lambda: decision_of(context.config))


def _driven(executor: Executor, place: _RunLocation) -> tuple[RunStatus, bool]:
    """Drive the run in this thread, while another prints what moves; returns its state, and whether it was stopped.

    Raises
    ------
    FencedError
        another executor took the run over.
    """
    from migverify.cli.runbook_follow import Follower
    from migverify.runbook.run.autopilot import PilotedExecutor

    status = executor.status
    others = [one for one in open_runs(place.room)[0] if one.status.run != status.run]
    suffix = suffix_of(place.text, status.run if others else None)
    typer.echo(
        f"{status.kind.value.upper()} of {status.runbook.id} in {status.runbook.environment}: run {status.run}"
        f" ({place.room.name}), runbook {status.runbook.sha[:12]}"
    )
    follower = Follower(place.room.open(status.run), typer.echo, suffix)
    stop = executor.stop if isinstance(executor, PilotedExecutor) else SignalEvent()
    interrupted = SignalEvent()
    follower.begin()
    try:
        with _stop_on_signals(stop, interrupted, executor):
            status = executor.run(stop)
    except FencedError as error:
        raise FencedError(error.message, hint="This terminal drives nothing any more; programs go on.") from None
    finally:
        follower.end()
        if follower.problem is not None:
            say(f"note: what moved was not printed here to the end: {follower.problem}")
    return status, interrupted.is_set()


@contextmanager
def _stop_on_signals(stop: threading.Event, interrupted: threading.Event, executor: Executor) -> Iterator[None]:
    """Let the first Ctrl-C, TERM or hang-up give the run free in order; a second one leaves at once."""

    def handle(number: int) -> None:
        if interrupted.is_set():
            raise KeyboardInterrupt
        interrupted.set()
        stop.set()
        busy = ", ".join(sorted(executor.status.busy))
        waits = f"when {busy} is over" if busy and len(executor.bench) else "now"
        if number != signal.SIGHUP:  # after a hang-up nobody reads it, and the terminal takes no more
            say_at_once(f"stopping: the run is given free {waits} (Ctrl-C again leaves at once, with effects in doubt)")

    # Under nohup a hang-up is ignored, and stays so.
    hang_up = () if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else (signal.SIGHUP,)
    with handled((*ENDING, *hang_up), handle):
        try:
            yield
        except KeyboardInterrupt:
            _left_at_once(executor)
            raise


def _left_at_once(executor: Executor) -> None:
    executor.record.refresh()
    run_ = executor.status.run
    if not executor.status.executor:
        say(f"left at once: the run is free; go on with `migverify runbook run --run {run_} --as PERSON`")
        return
    say("left at once: what was under way goes on, and nobody watches it")
    say(f"  To go on, one says `migverify runbook handover --takeover 'REASON' --as PERSON --run {run_}`;")
    say(f"  then another person: `migverify runbook run --run {run_} --reason 'REASON' --as ANOTHER`.")


def _say_end(status: RunStatus, person: str, suffix: str, *, interrupted: bool) -> int:
    """Say which state the run is in, and return the exit code."""
    from migverify.runbook.people import shared_logins
    from migverify.runbook.run.ending import RunExit, exit_of
    from migverify.runbook.run.pending import command_line

    for login, some in shared_logins(status).items():
        say(f"warning: {', '.join(some)} acted as {login}: four-eyes was not enforced")
    if status.over:
        typer.echo(f"{status.state.value}: run {status.run}")
        if left := _undelivered(status):
            say(f"warning: {left} announcements were not delivered; to try again:")
            say(f"  {command_line('run', '--run', status.run, person=person, suffix=suffix)}")
        return int(exit_of(status.state))
    reasons = f": {'; '.join(status.hold_reasons)}" if status.hold_reasons and status.held_since is not None else ""
    typer.echo(f"{status.state.value}{reasons}: run {status.run} is not over, and nobody drives it")
    typer.echo(f"  To go on: {command_line('run', person=person, suffix=suffix)}")
    return int(RunExit.INTERRUPTED if interrupted else exit_of(status.state))
