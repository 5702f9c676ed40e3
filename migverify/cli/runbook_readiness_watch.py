"""``migverify runbook readiness --watch``: evaluates readiness again and again, and announces what changes."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, completed, completed_text, examples, say, visible
from migverify.cli.guards import MetricsFileOption
from migverify.cli.runbook_begin import catalogue, decision_of, floor_of, named_environment
from migverify.cli.runbook_history import check_command, definition_now, drill_command
from migverify.cli.runbook_lint import EnvironmentOption, RunbookArgument, SetOption, parse_set
from migverify.cli.runbook_room import DEFAULT_ROOM, HeadsOption, RoomOption, announced_heads, room_of
from migverify.cli.watching import MetricsAddressOption, metrics_page, period_seconds, stop_on_signals
from migverify.errors import ConfigError, ExitCode, MigverifyError, UsageError
from migverify.secrets import scrub_sentence

if TYPE_CHECKING:
    from migverify.guards.schema_model import Snapshot
    from migverify.runbook.announce.sinks import OpenSink
    from migverify.runbook.history.readiness import Condition
    from migverify.runbook.model import Runbook, Sink
    from migverify.runbook.readiness.evaluation import ReadinessEvaluation
    from migverify.runbook.readiness.log import WatchedRunbook
    from migverify.runbook.readiness.standing_reads import StandingLimits
    from migverify.runbook.readiness.watch import ReadinessStatus
    from migverify.runbook.record.run_store import RunStore

__all__ = ["EPILOG", "readiness_watch"]

EPILOG = examples(
    "migverify runbook readiness runbooks/cutover.yaml -e prod --watch --every 15m",
    "migverify runbook readiness runbooks/cutover.yaml -e prod --watch --no-announce      # every condition, once",
    "migverify runbook readiness runbooks/cutover.yaml -e prod --watch --times 1 --json   # by a scheduler of your own",
    "migverify runbook readiness runbooks/cutover.yaml -e prod --watch --metrics-port 9107",
)
_LONGEST_NAME = 100
_PROOF_AGE, _WATCH_LAG = "7d", "5m"
_DEFAULTS = {"--proof-age": _PROOF_AGE, "--watch-lag": _WATCH_LAG, "--runs": DEFAULT_ROOM, "--config": DEFAULT_CONFIG}


def readiness_watch(
    runbook: RunbookArgument,
    set_: SetOption = None,
    environment: EnvironmentOption = None,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Between two evaluations (90s, 15m).")] = "15m",
    times: Annotated[
        int | None, typer.Option("--times", min=1, help="Evaluate so often; default: until Ctrl-C.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option("--log", metavar="FILE", help="What was announced; default: readiness/ in the folder of runs."),
    ] = None,
    no_announce: Annotated[
        bool, typer.Option("--no-announce", help="Evaluate once and show it; nothing is announced or written down.")
    ] = False,
    without: Annotated[
        list[str] | None, typer.Option("--without", metavar="CONDITION", help="Do not ask this; may be given again.")
    ] = None,
    proof_age: Annotated[
        str, typer.Option("--proof-age", metavar="TIME", help="How old the last MATCH of all tables may be.")
    ] = _PROOF_AGE,
    watch_lag: Annotated[
        str, typer.Option("--watch-lag", metavar="TIME", help="How old the oldest open key of the watch may be.")
    ] = _WATCH_LAG,
    grants_for: Annotated[
        list[str] | None,
        typer.Option("--for", metavar="COMMAND", help="Only the grants that this needs, as of `config --grants`."),
    ] = None,
    runs: RoomOption = DEFAULT_ROOM,
    cases: Annotated[
        Path | None,
        typer.Option("--cases", metavar="FOLDER", help="Disaster recovery cases; default: dr/ beside the runbook."),
    ] = None,
    heads: HeadsOption = None,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each evaluation.")] = False,
) -> None:
    """Evaluate readiness again and again; announce by the runbook's sinks when it stops, and by whom or what.

    Each change of a condition is announced once, also over kill -9. What cannot be read is not known, never ready.

    Exit by the last evaluation: 0 ready, 1 not ready, 3 not known; 130 after Ctrl-C.
    """
    from migverify.cli.grants import chosen_commands
    from migverify.runbook.readiness.log import open_log
    from migverify.runbook.readiness.standing_reads import StandingLimits
    from migverify.runbook.readiness.watch import ReadinessStatus, ReadinessWatch
    from migverify.secrets import remember_environment

    remember_environment()
    seconds, given, room = _seconds("--every", every), parse_set(set_ or []), room_of(runs)
    limits = StandingLimits(
        _age("--proof-age", proof_age), _age("--watch-lag", watch_lag), chosen_commands(grants_for or [])
    )
    left_out = _left_out(without or [])
    book, is_read = _watched(runbook, given, environment, cases, room, log)
    name = book.environment
    options = _repeated({
        "--without": without, "--proof-age": proof_age, "--watch-lag": watch_lag, "--for": grants_for, "--runs": runs,
        "--cases": cases, "--heads": heads, "--config": config,
    })  # fmt: skip
    asked = _Questions(
        runbook, given, name, room, cases, heads, config, book, limits, left_out, config.exists(), options, runs
    )
    if no_announce:
        # A watch may be going on, whose log is its own: people look at the conditions because of what it announced.
        alone = ReadinessStatus(1, asked.evaluate(), (), 0, 0)
        _print(alone, asked if as_json else None)
        raise typer.Exit(int(_exit_code(alone, stopped=False)))
    with ExitStack() as stack:
        publish = stack.enter_context(metrics_page(metrics_port, metrics_file))
        kept = stack.enter_context(open_log(log if log is not None else _log_file(room, book)))
        if is_read:
            kept.note_watched(book)
        stopped = stack.enter_context(stop_on_signals())

        def show(status: ReadinessStatus) -> None:
            from migverify.runbook.readiness.metrics import readiness_metrics

            publish(readiness_metrics(status, seconds))
            _print(status, asked if as_json else None)

        before, sinks = kept.given_up, _opened(book.sinks, kept.path, sys.stderr if as_json else None)
        last = ReadinessWatch(
            asked.evaluate, kept, book.sinks, sinks,
            name=f"readiness-{book.service}-{name}", every=seconds, times=times, command=asked.command, on_status=show,
        ).run(stopped.is_set, stopped.wait)  # fmt: skip
        if kept.given_up > before:
            say(f"{kept.given_up - before} announcements could not be delivered and are given up; {kept.path} says why")
    raise typer.Exit(int(_exit_code(last, stopped=stopped.is_set())))


def _opened(sinks: Mapping[str, Sink], log: Path, terminal: TextIO | None) -> list[OpenSink]:
    """Return the sinks that can send; ``terminal`` is where the kind ``stdout`` writes: JSON has no text in it."""
    from migverify.runbook.announce.sinks import open_sink, sink_problems

    found = []
    for sink in sinks.values():
        problems = sink_problems(sink)
        for problem in problems:
            say(f"{problem}; its announcements wait in {log} for a watch that can send them")
        if not problems:
            found.append(open_sink(sink, stdout=terminal))
    return found


def _exit_code(last: ReadinessStatus | None, *, stopped: bool) -> ExitCode:
    if stopped:
        return ExitCode.INTERRUPTED
    if last is not None and last.undelivered:
        say(f"{last.undelivered} announcements are not delivered yet: the next watch sends them")
    codes = {"ready": ExitCode.MATCH, "not ready": ExitCode.MISMATCH}
    return ExitCode.INCONCLUSIVE if last is None else codes.get(last.evaluation.verdict, ExitCode.INCONCLUSIVE)


def _print(status: ReadinessStatus, asked: _Questions | None) -> None:
    """Print an evaluation; as JSON, with the next commands of what was asked."""
    from migverify.runbook.readiness.metrics import change_line, condition_line, heartbeat, status_as_json

    if asked is not None:
        from migverify.runbook.readiness.next_steps import next_steps

        whose = asked.path, asked.given, asked.environment
        drill = drill_command(*whose, asked.runs, asked.cases, asked.config if asked.has_config else None)
        steps = map(completed, next_steps(status.evaluation.bad, drill, check_command(*whose, asked.cases)))
        typer.echo(json.dumps(status_as_json(status, steps), ensure_ascii=False))
    else:
        typer.echo(visible(heartbeat(status), lines=False))
        lines: Iterator[str] = (change_line(one) for one in status.changes)
        if status.number == 1:
            lines = (line for one in status.evaluation.bad for line in condition_line(one))
        for line in lines:
            typer.echo(visible(line, lines=False))
    sys.stdout.flush()


def _age(option: str, text: str) -> float:
    """Return the seconds of an age, with its unit: `7` may be meant as days."""
    if text.strip().replace(".", "", 1).isdigit():
        raise UsageError(f"{option} {text}: the unit is missing", hint="Write 7d, 12h or 5m.")
    return _seconds(option, text)


def _seconds(option: str, text: str) -> float:
    try:
        return period_seconds(text)
    except typer.BadParameter as error:
        raise UsageError(f"{option} {error.message}", hint="Say 1s at least, for example 15m.") from None


def _left_out(names: list[str]) -> frozenset[str]:
    from migverify.runbook.readiness.standing import STANDING

    for name in names:
        if name not in STANDING:
            raise UsageError(f"--without {name}: it cannot be left out", hint=f"These can: {', '.join(STANDING)}.")
    return frozenset(names)


def _watched(
    path: Path, given: Mapping[str, str], environment: str | None, cases: Path | None, room: RunStore, log: Path | None
) -> tuple[WatchedRunbook, bool]:
    """Return the runbook to watch, and whether the log may keep it; one that cannot be read is as the log has it.

    A log keeps nothing that lint refuses: that may be a secret.
    """
    from migverify.runbook.definition.load import load_runbook
    from migverify.runbook.history.readiness import OK
    from migverify.runbook.readiness.log import WatchedRunbook, last_watched

    file = str(path.resolve())
    parameters = hashlib.sha256(json.dumps(given, sort_keys=True).encode()).hexdigest()
    try:
        name = environment if environment is not None else named_environment(path, given, production=True)
        book = load_runbook(path, given, name)
    except MigverifyError:
        logs = [log] if log is not None else sorted(_log_folder(room).glob("*.jsonl")) if room.is_folder else []
        earlier = last_watched(logs, file, environment, parameters)
        if earlier is None:
            raise
        return earlier, False
    watched = WatchedRunbook(book.id, book.service, name, file, parameters, dict(book.sinks))
    return watched, definition_now(book, path, given, name, cases).state == OK


def _repeated(options: Mapping[str, str | Path | list[str] | None]) -> tuple[str, ...]:
    """Return the words of the options that are another value than the default."""
    words: list[str] = []
    for option, value in options.items():
        if value is not None and value != _DEFAULTS.get(option):
            values = value if isinstance(value, list) else [str(value)]
            words += [word for one in values for word in (option, one)]
    return tuple(words)


def _log_folder(room: RunStore) -> Path:
    return room.path / "readiness"


def _log_file(room: RunStore, book: WatchedRunbook) -> Path:
    """Return where a watch keeps what it announced: beside the runs, where those are in a folder of this machine."""
    if not room.is_folder:
        raise UsageError("--log is missing", hint="With runs on a server, name a file of this machine: --log FILE.")
    plain = re.sub(r"[^A-Za-z0-9._-]", "-", f"{book.service}-{book.environment}")[:_LONGEST_NAME]
    # By the hash no two watches share a log: `a-b` in `c` and `a` in `b-c` are one plain name.
    short = hashlib.sha256(json.dumps(book.whose).encode()).hexdigest()[:8]
    return _log_folder(room) / f"{plain}-{short}.jsonl"


class _Definitions:
    """The definitions of both sides at one evaluation: read once, or once why they cannot be."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._found: Snapshot | MigverifyError | None = None

    def read(self) -> Snapshot:
        """Return them; raises MigverifyError."""
        from migverify.runbook.run.schema_now import definitions_now

        if self._found is None:
            try:
                self._found = definitions_now(self._config)
            except MigverifyError as error:
                self._found = error
        if isinstance(self._found, MigverifyError):
            raise self._found
        return self._found

    def fingerprint(self) -> str:
        """Return their hash; empty where they cannot be read: `tables` says why, and nothing is proved about them."""
        from migverify.runbook.run.schema_now import fingerprint_of

        try:
            return fingerprint_of(self.read().fingerprints())
        except MigverifyError:
            return ""


@dataclass(slots=True)
class _Questions:
    """What is asked at every evaluation. The file, the journals, the servers and the store are read anew each time."""

    path: Path
    given: Mapping[str, str]
    environment: str
    room: RunStore
    cases: Path | None
    heads: Path | None
    config: Path
    first: WatchedRunbook
    limits: StandingLimits
    without: frozenset[str]
    has_config: bool
    options: tuple[str, ...] = ()
    runs: str = DEFAULT_ROOM

    @property
    def command(self) -> str:
        """What people type to see every condition, with what this watch was given; without a secret."""
        words = ["migverify", "runbook", "readiness", str(self.path), "--environment", self.environment]
        words += [word for name, value in self.given.items() for word in ("--set", f"{name}={value}")]
        return scrub_sentence(shlex.join([*words, *self.options, "--watch", "--no-announce"]))

    def evaluate(self) -> ReadinessEvaluation:
        """Evaluate now; what cannot be read is a condition that is not known."""
        from migverify.runbook.readiness.evaluation import DECISION, ReadinessEvaluation
        from migverify.runbook.readiness.standing import MEASURED, following

        definitions = _Definitions(self.config)
        found = tuple(self._asked(one) for one in (*self._conditions(definitions), *self._of_servers(definitions)))
        return ReadinessEvaluation(
            time.time(), self.first.id, self.first.service, self.environment, found, MEASURED | {DECISION},
            following(found),
        )  # fmt: skip

    def _asked(self, condition: Condition) -> Condition:
        from migverify.runbook.history.readiness import NOT_ASKED

        if condition.id not in self.without:
            return replace(condition, do=completed_text(condition.do))
        return replace(condition, state=NOT_ASKED, found="left out by --without", reasons=(), do="")

    def _of_servers(self, definitions: _Definitions) -> Iterator[Condition]:
        """Yield the conditions that no journal shows; without a configuration they are not known."""
        from migverify.cli.report import open_run_store
        from migverify.config import load_config
        from migverify.runbook.readiness.standing import STANDING, unknown
        from migverify.runbook.readiness.standing_reads import standing_conditions

        try:
            loaded = load_config(self.config).at_snapshot(None)
        except MigverifyError as error:
            if not self.has_config:  # else `definition` says it, and these keep the state of the last evaluation
                reason = error.headline
                yield from (unknown(id_, reason, error.hint) for id_ in STANDING if id_ != "people")
            return
        store = partial(open_run_store, None, self.config)
        yield from standing_conditions(loaded, store, self.limits, time.time, definitions.read)

    def _conditions(self, definitions: _Definitions) -> Iterator[Condition]:
        from migverify.runbook.definition.load import load_runbook
        from migverify.runbook.readiness.definition import undefined

        try:
            book = load_runbook(self.path, self.given, self.environment)
            conditions = [
                definition_now(book, self.path, self.given, self.environment, self.cases),
                *self._of_journals(book, definitions),
            ]
        except MigverifyError as error:
            do = error.hint or "The other conditions keep the state of the last evaluation until it can be read."
            yield undefined(error.headline, do)
            return
        yield from conditions

    def _of_journals(self, book: Runbook, definitions: _Definitions) -> tuple[Condition, ...]:
        from migverify.runbook.definition.load import case_priorities
        from migverify.runbook.history.past import past_runs
        from migverify.runbook.history.readiness import readiness, wanted_runbooks
        from migverify.runbook.readiness.standing import people

        folder = catalogue(self.cases, self.path.parent)
        priorities = case_priorities(folder) if folder is not None else None
        required = bool(book.policy.readiness.dr_cases.required)
        past = past_runs(self.room, wanted_runbooks(book), cases=required, heads=announced_heads(self.heads))
        known = self.config if self.config.exists() else None
        if known is None and self.has_config:
            # Without it a decision that was required would not be required any more.
            raise ConfigError(f"{self.config} is gone", hint="Put the configuration back.")
        fingerprint = definitions.fingerprint() if known is not None else ""
        found = readiness(book, past, time.time(), fingerprint, priorities, floor_of(known), decision_of(known))
        run = found.drills[-1] if found.drills else ""
        drilled = self.room.open(run).status.runbook if run else None
        acted = next((one.people for one in past if one.run == run), ())
        return (*found.conditions, people(book, drilled, run, acted))
