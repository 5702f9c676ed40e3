"""``migverify runbook readiness`` and ``compare``: what journals of earlier runs show. Nothing is run or written."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, examples, json_text, say
from migverify.cli.runbook_begin import catalogue, decision_of, fingerprint_now, floor_of, named_environment
from migverify.cli.runbook_lint import EnvironmentOption, RunbookArgument, SetOption, linted, parse_set
from migverify.cli.runbook_room import DEFAULT_ROOM, HeadsOption, RoomOption, announced_heads, room_of
from migverify.errors import ExitCode, MigverifyError, UsageError
from migverify.secrets import scrub_sentence

if TYPE_CHECKING:
    from migverify.decision.model import Decision
    from migverify.model import NextStep
    from migverify.runbook.history.past import Past, PastRun
    from migverify.runbook.history.readiness import Condition, Readiness
    from migverify.runbook.model import Runbook
    from migverify.runbook.record.run_store import RunStore

READINESS_EPILOG = examples(
    "migverify runbook readiness runbooks/cutover.yaml --environment prod",
    "migverify runbook readiness runbooks/cutover.yaml -e prod --set service=orders --runs /srv/runs",
    "migverify runbook readiness runbooks/cutover.yaml -e prod --heads channel.txt   # runs that were announced",
    "migverify runbook readiness runbooks/cutover.yaml -e prod --json | jq '.conditions[] | select(.state != \"ok\")'",
)
COMPARE_EPILOG = examples(
    "migverify runbook report --compare 20260112T190000Z-cutover-1f2e3d last     # the second against the first",
    "migverify runbook report --compare --all --runbook cutover                  # every run, and the curve over them",
    "migverify runbook report --compare --all --json | jq '.points[] | [.run, .process.points, .correctness.points]'",
)


def readiness(
    runbook: RunbookArgument,
    set_: SetOption = None,
    environment: EnvironmentOption = None,
    runs: RoomOption = DEFAULT_ROOM,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", metavar="FOLDER", help="Disaster recovery cases; default: dr/ beside the runbook."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="FINGERPRINT", help="Of the pair now; default: read from its endpoints."),
    ] = None,
    heads: HeadsOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Say whether the drills show what is required before a live run, with the reason of everything missing.

    What is required is the stricter of the runbook's policy and of `readiness` in migverify.yaml.

    Exit 0: ready, 1: not ready, 3: not known (a damaged or missing journal, an unknown schema or catalogue).
    """
    from migverify.cli.runbook_history_view import readiness_lines

    given = parse_set(set_ or [])
    name = environment if environment is not None else named_environment(runbook, given, production=True)
    known = config if config.exists() else None
    fingerprint = schema if schema is not None else fingerprint_now(known)
    places = ReadinessPlaces(runbook, given, name, runs, catalogue(cases, runbook.parent), heads, known)
    found, past = answered(places, fingerprint, decision_of(known))
    if as_json:
        typer.echo(json_text(readiness_json(found, past), steps_of(places, found.conditions), indent=2))
    else:
        typer.echo("\n".join(readiness_lines(found, past, runs)))
    codes = {"ready": ExitCode.MATCH, "not ready": ExitCode.MISMATCH}
    raise typer.Exit(codes.get(found.verdict, ExitCode.INCONCLUSIVE))


@dataclass(frozen=True, slots=True)
class ReadinessPlaces:
    """What readiness is read from: the runbook, the room of its runs, the folder of cases, heads, the configuration."""

    runbook: Path
    given: dict[str, str]
    environment: str
    room: str
    cases: Path | None
    heads: Path | None
    config: Path | None


def answered(places: ReadinessPlaces, fingerprint: str, decision: Decision | None) -> tuple[Readiness, Past]:
    """Return whether a runbook is ready, and the runs that this is read from.

    Parameters
    ----------
    fingerprint
        Of the definitions now; empty: it is not known.
    """
    from migverify.runbook.definition.load import case_priorities, load_runbook
    from migverify.runbook.history.past import past_runs
    from migverify.runbook.history.readiness import readiness as answer
    from migverify.runbook.history.readiness import wanted_runbooks
    from migverify.runbook.readiness.definition import with_definition

    book = load_runbook(places.runbook, places.given, places.environment)
    priorities = case_priorities(places.cases) if places.cases is not None else None
    past = past_runs(
        room_of(places.room), wanted_runbooks(book), cases=bool(book.policy.readiness.dr_cases.required),
        heads=announced_heads(places.heads),
    )  # fmt: skip
    floor = floor_of(places.config)
    definition = definition_now(book, places.runbook, places.given, places.environment, places.cases)
    found = answer(book, past, time.time(), fingerprint, priorities, floor, decision)
    return with_definition(found, definition), past


def definition_now(
    book: Runbook, path: Path, given: Mapping[str, str], environment: str, cases: Path | None
) -> Condition:
    """Return whether a runbook that was read can be run: what lint refuses is not."""
    from migverify.runbook.readiness.definition import defined

    _, findings = linted(path, given, [environment], cases)
    return defined(book.sha, findings, check_command(path, given, environment, cases))


def check_command(path: Path, given: Mapping[str, str], environment: str, cases: Path | None) -> str:
    """Return the command that says what lint refuses, and what to do about it."""
    words = ["migverify", "runbook", "check", str(path), "--offline", "--environment", environment]
    words += [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    words += ["--cases", str(cases)] if cases is not None else []
    return scrub_sentence(shlex.join(words))


def drill_command(
    path: Path, given: Mapping[str, str], environment: str, room: str, cases: Path | None, config: Path | None
) -> str:
    """Return the command that begins a rehearsal, but for who acts: only they know that, and it must be true.

    Rehearsals of a runbook for production are in another environment where it has one. That has a configuration of its
    own, which is not known here: with the one of production the steps would act on production.
    """
    from migverify.runbook.definition.load import read_runbook

    try:
        read = read_runbook(path, given, "").runbook
    except MigverifyError:  # what the file lacks is a condition of its own
        read = None
    others = [] if read is None else [name for name in read.environments if name not in read.production]
    place = environment if not others or environment in others else others[0]
    words = ["migverify", "runbook", "run", str(path), "--kind", "rehearsal", "--environment", place, "--as", "PERSON"]
    words += [word for name, value in given.items() for word in ("--set", f"{name}={value}")]
    words += ["--runs", room] if room != DEFAULT_ROOM else []
    words += ["--cases", str(cases)] if cases is not None and cases != catalogue(None, path.parent) else []
    words += ["--config", str(config)] if config not in (None, DEFAULT_CONFIG) and place == environment else []
    return scrub_sentence(shlex.join(words))


def steps_of(places: ReadinessPlaces, conditions: Iterable[Condition]) -> Iterator[NextStep]:
    """Return the command of each condition that is not met."""
    from migverify.runbook.readiness.next_steps import next_steps

    whose = places.runbook, places.given, places.environment
    drill = drill_command(*whose, places.room, places.cases, places.config)
    return next_steps(conditions, drill, check_command(*whose, places.cases))


def compare(
    runs_: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Ids of runs, or `last`; the first is the base.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Every run of the runbook that had effects.")] = False,
    runbook: Annotated[
        str | None, typer.Option("--runbook", metavar="ID", help="With --all: whose runs; default: the only one's.")
    ] = None,
    runs: RoomOption = DEFAULT_ROOM,
    as_json: JsonOption = False,
) -> None:
    """Put runs side by side: times of steps and their change, failures, holds, retries, scores, the step of risk."""
    from migverify.cli.runbook_history_view import curve_lines, two_lines
    from migverify.runbook.history.compare import compare_all

    some = _runs_to_compare(room_of(runs), runs_ or [], runbook, all_=all_)
    found = compare_all(some)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
        return
    typer.echo("\n".join(two_lines(found) if len(some) == 2 else curve_lines(found)))


def readiness_json(found: Readiness, past: Past) -> dict[str, Any]:
    """Return whether a runbook is ready, as JSON."""
    runs = {one.run: one for one in past}
    drills = [_run_json(runs[id_]) for id_ in found.drills]
    damaged = [asdict(one) for one in past.damaged]
    return asdict(found) | {"reasons": list(found.reasons), "drills": drills, "damaged": damaged}


def _run_json(run: PastRun) -> dict[str, Any]:
    from migverify.runbook.history.drills import why_unclean
    from migverify.runbook.history.scores import correctness_score, process_score

    unclean = why_unclean(run)
    return {
        "run": run.run, "started": run.started, "ended": run.ended, "environment": run.environment,
        "state": run.state.value, "sha": run.sha, "schema_fingerprint": run.schema_fingerprint,
        "clean": not unclean, "unclean": list(unclean), "people": list(run.people),
        "process": asdict(process_score(run)), "correctness": asdict(correctness_score(run)),
    }  # fmt: skip


def _runs_to_compare(room: RunStore, ids: list[str], runbook: str | None, *, all_: bool) -> list[PastRun]:
    from migverify.runbook.history.read import past_run
    from migverify.runbook.kinds import RunKind

    if all_ == bool(ids):
        raise UsageError("name two runs or more, or say --all", hint="`last` names the newest run.")
    if not all_:
        if len(ids) < 2:
            raise UsageError("one run alone is compared with nothing", hint="Name another one, or say --all.")
        return [past_run(room.events(id_)) for id_ in ids]
    past = _all_of_one(room, runbook)
    for one in past.damaged:
        say(f"warning: {one.run} is left out of the table: {one.problem}")
    kept = [one for one in past if one.kind is not RunKind.DRY]
    if not kept and past.damaged:
        raise UsageError("no journal of these runs can be read", hint="See `migverify runbook report --verify`.")
    return kept


def _all_of_one(room: RunStore, runbook: str | None) -> Past:
    from migverify.runbook.history.past import past_runs

    past = past_runs(room, runbook)
    known = list(dict.fromkeys(one.runbook for one in past))
    if runbook is None and len(known) > 1:
        raise UsageError("the room has runs of several runbooks", hint=f"Name one: --runbook {' or '.join(known)}.")
    return past


__all__ = ["COMPARE_EPILOG", "READINESS_EPILOG", "check_command", "compare", "definition_now", "readiness"]
