"""How a run begins: its runbook read and linted, its people known, and nothing of another run mixed in."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.cli.console import say
from migverify.cli.runbook_room import open_runs
from migverify.errors import MigverifyError, UsageError

if TYPE_CHECKING:
    from migverify.config.settings import ReadinessFloor
    from migverify.decision.model import Decision
    from migverify.runbook.actions.action import Registry
    from migverify.runbook.kinds import RunKind
    from migverify.runbook.model import Runbook
    from migverify.runbook.record.run_record import RunRecord
    from migverify.runbook.record.run_store import RunStore

__all__ = ["begin", "catalogue", "decision_of", "fingerprint_now", "floor_of", "kind_of", "loaded_runbook",
           "named_environment", "refuse_other"]  # fmt: skip


def kind_of(text: str) -> RunKind:
    """Return a kind of run by its name.

    Raises UsageError: there is none of that name.
    """
    from migverify.runbook.kinds import RunKind

    if text not in list(RunKind):
        raise UsageError(f"--kind {text}: there is no such run", hint=f"Give one of {', '.join(RunKind)}.")
    return RunKind(text)


def loaded_runbook(
    path: Path, given: Mapping[str, str], environment: str | None, registry: Registry, cases: Path | None
) -> Runbook:
    """Read a runbook and lint it: what ``lint`` refuses is not run.

    Raises ConfigError or UsageError when it cannot be read, its environment is not named, or it is refused.
    """
    from migverify.runbook.definition.lint import lint_file
    from migverify.runbook.definition.load import known_cases, load_runbook

    environment = named_environment(path, given) if environment is None else environment
    book = load_runbook(path, given, environment)
    folder = catalogue(cases, path.parent)
    known = known_cases(folder) if folder is not None else None
    _, findings = lint_file(path, given, environment, registry.by_name(), known)
    refused = [one for one in findings if one.refused]
    for one in refused:
        say(f"{one.place}: {one.text} [{one.rule}]")
    if refused:
        raise UsageError(
            f"{path}: lint refuses it in {len(refused)} places",
            hint=f"`migverify runbook check {path} --offline --environment {book.environment}` says what to do.",
        )
    return book


def named_environment(path: Path, given: Mapping[str, str], *, production: bool = False) -> str:
    """Return the only environment of a runbook, or with ``production`` the only one that counts as that."""
    from migverify.runbook.definition.load import read_runbook

    read = read_runbook(path, given, "").runbook
    known = ("",) if read is None else (read.production if production else ()) or tuple(read.environments)
    if len(known) > 1:
        raise UsageError("--environment is missing", hint=f"The runbook has: {', '.join(known)}.")
    return known[0]


def catalogue(cases: Path | None, beside: Path) -> Path | None:
    """Return the folder of disaster recovery cases; None: there is none at hand."""
    return cases if cases is not None else beside / "dr" if (beside / "dr").is_dir() else None


def begin(
    book: Runbook, kind: RunKind, person: str, room: RunStore, config: Path | None, *, autopilot: bool
) -> RunRecord:
    """Begin a run.

    Raises UsageError: nobody of that name is in the runbook, or it may not be left to the autopilot.
    """
    from migverify.runbook.cast import make_cast
    from migverify.runbook.run.autopilot import refuse_unfit

    if autopilot:
        refuse_unfit(book, kind)
    name = make_cast(book, kind).person(person)
    if name is None:
        known = ", ".join(book.people)
        raise UsageError(f"{person!r} is none of the runbook's people", hint=f"They are {known}, as it is written.")
    for other in open_runs(room)[0]:
        if other.status.runbook.id == book.id:
            say(f"warning: run {other.status.run} of this runbook is not over; every command has to say --run now")
    return room.create(book, kind, name, schema_fingerprint=fingerprint_now(config), autopilot=autopilot)


def fingerprint_now(config: Path | None) -> str:
    """Return the hash of the definitions on both sides; empty where it cannot be known, and nothing is proved then."""
    from migverify.runbook.run.schema_now import schema_fingerprint

    if config is None:
        return ""
    try:
        return schema_fingerprint(config)
    except MigverifyError as error:
        say(f"note: the definitions could not be read, so nothing is proved about a schema: {error.message}")
        return ""


def floor_of(config: Path | None) -> ReadinessFloor:
    """Return the least that drills have to show: of the configuration, or what is built in."""
    from migverify.config import load_config
    from migverify.config.settings import ReadinessFloor

    return load_config(config).readiness if config is not None else ReadinessFloor()


def decision_of(config: Path | None) -> Decision | None:
    """Return whether the service may cut over; None: the configuration names no capture of it.

    What cannot be read is a decision too: NOT KNOWN.
    """
    from contextlib import closing

    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.decision.decide import decide
    from migverify.decision.model import DecisionEvidence
    from migverify.decision.run import decide_now, rules_of

    if config is None:
        return None
    loaded = load_config(config)
    if loaded.decision.capture is None:
        return None
    try:
        with closing(open_run_store(None, config)) as store:
            return decide_now(loaded, store)
    except MigverifyError as error:
        return decide(DecisionEvidence(time.time(), None, (), error.message), rules_of(loaded))


def refuse_other(
    room: RunStore,
    record: RunRecord,
    runbook: Path | None,
    set_: list[str] | None,
    environment: str | None,
    *,
    autopilot: bool,
) -> None:
    """Refuse to go on with a run as if it were another one.

    Raises UsageError: the run is over, or what is requested is fixed since it began.
    """
    if record.status.over:
        raise UsageError(
            f"run {record.status.run} is over: {record.status.state.value}", hint="`runbook status` shows how it went."
        )
    if runbook is not None or set_ or environment is not None:
        raise UsageError(
            f"run {record.status.run} goes on with the runbook that it began with",
            hint="Leave RUNBOOK, --set and --environment out; an edited runbook needs a run of its own.",
        )
    if autopilot and not next(iter(room.events(record.status.run))).data.get("autopilot"):
        raise UsageError(
            f"run {record.status.run} was begun by people, and is not left to the autopilot",
            hint="Begin a run of its own with --autopilot.",
        )
