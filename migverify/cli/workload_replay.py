"""``migverify workload replay``: ask captured statements on both sides, and judge every answer."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, AssumeDatabaseOption, ConfigOption, completed_report, examples, say
from migverify.cli.progress import LiveLine
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.cli.workload_replay_setup import ReplaySetup
    from migverify.workload.forecast.steps import MeasuredStep
    from migverify.workload.replay.plan import CallSelection, ReplayPlan
    from migverify.workload.replay.run import ReplayProgress

EPILOG = examples(
    "migverify workload replay capture",
    "migverify workload replay capture --pace x2 --noise 0.05 --session prod/17/1 --json",
    "migverify workload replay capture --writes --slo payments --pace 3000/s --jobs 2",
    "migverify workload replay capture --slo checkout --rates 1.3,2 --headroom 1.3",
    "migverify workload replay capture --sessions sessions.json --assume-database shop",
    "migverify workload replay capture --plans",
    "migverify workload replay capture --explain",
    "migverify workload replay capture --resume last",
)


class Protocol(StrEnum):
    """Over which protocol statements are asked."""

    CAPTURED = "as-captured"
    TEXT = "text"


class ReplayEngine(StrEnum):
    """What runs the workers."""

    LOCAL = "local"
    SPARK = "spark"


def replay(
    capture: Annotated[Path, typer.Argument(metavar="CAPTURE", help="A folder that `workload capture` wrote.")],
    config: ConfigOption = DEFAULT_CONFIG,
    pace: Annotated[
        str | None, typer.Option(metavar="PACE", help="real, x2, x0.5, 3000/s or fast; default: the configuration's.")
    ] = None,
    protocol: Annotated[Protocol | None, typer.Option(help="Protocol of the statements.")] = None,
    session: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this session; repeatable.")] = None,
    user: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only sessions of this user; repeatable.")
    ] = None,
    digest: Annotated[
        list[str] | None, typer.Option(metavar="HEX", help="Only statements whose digest begins so; repeatable.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", metavar="TIME", help="From here on (UTC), inclusive.")] = None,
    end: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Up to here (UTC), exclusive.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many calls, the earliest first.")] = None,
    writes: Annotated[
        bool, typer.Option("--writes", help="Ask writes too; every side must be a marked rehearsal clone.")
    ] = False,
    ddl: Annotated[bool, typer.Option("--ddl", help="Ask DDL too, on marked clones.")] = False,
    locking: Annotated[
        bool, typer.Option("--locking", help="Ask locking reads, LOCK TABLES and GET_LOCK too.")
    ] = False,
    anomalies: Annotated[
        bool, typer.Option("--anomalies", help="Record histories of transactions for `workload anomalies`.")
    ] = False,
    reads_only: Annotated[
        bool, typer.Option("--reads-only", help="Judge reads alone: writes are reported as not covered.")
    ] = False,
    target_only: Annotated[
        bool, typer.Option("--target-only", help="Ask the target alone; what the source answered is the capture's.")
    ] = False,
    sessions: Annotated[
        list[Path] | None,
        typer.Option(
            "--sessions", metavar="FILE", help="What `workload sessions` wrote while the capture ran; repeatable."
        ),
    ] = None,
    assume_database: AssumeDatabaseOption = None,
    accept_write_grants: Annotated[
        bool, typer.Option("--accept-write-grants", help="Replay reads as a user who may write.")
    ] = False,
    noise: Annotated[float | None, typer.Option(min=0, max=1, help="Share of reads asked twice on both sides.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes.")] = None,
    connections: Annotated[int | None, typer.Option(min=1, help="Sessions connected at once to each endpoint.")] = None,
    max_lag: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Stop when calls begin later than this.")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Shorten times in which nothing ran to this.")
    ] = None,
    slo: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Judge by this service level; repeatable.")
    ] = None,
    plans: Annotated[
        bool | None,
        typer.Option(
            "--plans/--no-plans",
            help="Judge the plans of all digests, or of none; default: of those that are slower or busy.",
        ),
    ] = None,
    rates: Annotated[
        str | None,
        typer.Option(metavar="1,1.3,2", help="Then ask the target alone at these multiples of the captured load."),
    ] = None,
    headroom: Annotated[
        float | None,
        typer.Option(metavar="MULTIPLE", min=1, max=100, help="Service levels must be met at this load too: 1.3."),
    ] = None,
    engine: Annotated[ReplayEngine, typer.Option(help="What runs the workers.")] = ReplayEngine.LOCAL,
    spark_master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master or sc:// URL; default: the configuration's.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with a run that was cut off; `last` for the newest.")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Show the plan; ask nothing but the catalog.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")
    ] = None,
) -> None:
    """Ask captured statements on source and target, in order and at their pace, and compare all that clients see.

    Reads only, unless --writes or --ddl: then every side must prove to be a rehearsal clone. Exit 0 MATCH, 1 MISMATCH,
    3 INCONCLUSIVE, 130 interrupted (go on with --resume).
    """
    from migverify.cli.workload_replay_setup import capture_reader, set_up
    from migverify.workload.forecast.steps import parse_rates
    from migverify.workload.replay.plan import CallSelection
    from migverify.workload.replay.safety import Leave
    from migverify.workload.server_sessions import read_sessions

    if reads_only and (writes or ddl):
        raise UsageError("--reads-only contradicts --writes and --ddl.", hint="Leave one out.")
    if anomalies and (not writes or target_only or resume or engine is ReplayEngine.SPARK):
        raise UsageError("--anomalies needs --writes, both sides, and one run from its beginning on this machine.",
                         hint="Leave --target-only, --resume and --engine spark out.")  # fmt: skip
    if plans and target_only:
        raise UsageError("--plans compares the plans of both sides.", hint="Leave --target-only out.")
    if headroom is not None and not slo:
        raise UsageError("--headroom needs a service level.", hint="Name it: --slo NAME.")
    multiples = () if rates is None else parse_rates(rates)
    if multiples and (writes or ddl or engine is ReplayEngine.SPARK):
        raise UsageError(
            "--rates asks reads again from this machine; a write can be asked once.",
            hint="Leave --writes, --ddl and --engine spark out, or replay fresh clones at --pace x1.3.",
        )
    selection = CallSelection(
        tuple(session or ()), tuple(user or ()), tuple(digest or ()), _moment(start, "--from"),
        _moment(end, "--until"), limit,
    )  # fmt: skip
    if resume and (selection != CallSelection() or sessions or assume_database is not None):
        raise UsageError("A resumed run asks what it was begun with.", hint="Leave --session, --from, ... out.")
    settings = {
        "pace": pace, "protocol": protocol, "noise": noise, "jobs": jobs, "connections": connections,
        "max_lag": max_lag, "idle_seconds": idle,
    }  # fmt: skip
    setup = set_up(
        config, settings, slo or (), Leave(writes, ddl, locking), reads_only=reads_only, target_only=target_only,
        accept_write_grants=accept_write_grants, dumps=[read_sessions(one) for one in sessions or ()],
        database=assume_database, headroom=headroom,
    )  # fmt: skip
    key = token_bytes() if anomalies else b""
    setup = replace(setup, options=replace(setup.options, record=anomalies, history_key=key))
    next(
        capture_reader()(capture, ["position"]), None
    )  # a folder that holds no capture is reported before a server is asked
    if explain:
        _explain(setup, capture, selection, as_json=as_json)
        return
    line = ReplayLine(quiet=quiet or (as_json and not sys.stderr.isatty()))
    code = _run(
        setup, capture, selection, resume, line, store, engine, spark_master, multiples, plans, as_json=as_json,
        quiet=quiet,
    )  # fmt: skip
    raise typer.Exit(int(code))


def _run(
    setup: ReplaySetup, capture: Path, selection: CallSelection, resume: str | None, line: ReplayLine,
    store: str | None, engine: ReplayEngine, master: str | None, rates: Sequence[float], plans: bool | None, *,
    as_json: bool, quiet: bool,
) -> ExitCode:  # fmt: skip
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_plans import plans_of_replay
    from migverify.cli.workload_replay_setup import begin, carry_on, conclude, histories
    from migverify.report.model import ReportOptions
    from migverify.report.read import read_report
    from migverify.report.render import Format, render
    from migverify.workload.replay.run import replay as play

    with closing(open_run_store(store, setup.config.path)) as opened:
        if resume:
            run_id, folder = carry_on(setup, opened, resume, capture)
        else:
            run_id, folder = begin(setup, opened, capture, selection, line.planned)
        line.clear()
        if not quiet:
            say(f"run {run_id} (stop it with Ctrl-C; go on with --resume {run_id})")
        try:
            if engine is ReplayEngine.SPARK:
                from migverify.spark.replay_engine import replay_on_spark

                result = replay_on_spark(
                    folder, setup.sides, setup.options, master or setup.config.spark.master,
                    dict(setup.config.spark.conf), jobs=setup.workload.jobs, resume=bool(resume),
                )  # fmt: skip
            else:
                jobs = setup.workload.jobs
                result = play(folder, setup.sides, setup.options, jobs=jobs, resume=bool(resume), on_progress=line)
            steps = [] if result.unfinished else _steps(setup, folder, rates, line, quiet=quiet)
        finally:
            line.clear()
        found = conclude(setup, opened, run_id, result, [step.trace for step in steps])
        if not result.stopped:
            plans_of_replay(setup, opened, run_id, folder, result, found.slower, plans, quiet=quiet or as_json)
        if setup.options.record:
            files = " ".join(histories(setup, opened, run_id, folder))
            files += "" if setup.config.path == DEFAULT_CONFIG else f" --config {shlex.quote(str(setup.config.path))}"
            say(f"compare what both sides permitted: migverify workload anomalies {files}")
        data = completed_report(read_report(opened, run_id, ReportOptions(values=setup.config.report.values)))
        if not quiet:
            _say_lag(result.counters.lag_most, result.counters.forced)
    typer.echo(render(data, Format.JSON if as_json else Format.TEXT, color=sys.stdout.isatty()), nl=False)
    interrupted = "interrupted" in (result.stopped, *(step.stopped for step in steps))
    return ExitCode.INTERRUPTED if interrupted else data.exit_code


def _steps(
    setup: ReplaySetup, folder: Path, rates: Sequence[float], line: ReplayLine, *, quiet: bool
) -> list[MeasuredStep]:
    """Return what each load measured."""
    from migverify.workload.forecast.steps import measure

    def on_step(rate: float) -> None:
        line.restart()
        if not quiet:
            say(f"asking the target alone at {rate:g}x the captured load")

    jobs = setup.workload.jobs
    return list(measure(folder, setup.sides, setup.options, rates, jobs=jobs, on_step=on_step, on_progress=line))


def _say_lag(most: int, forced: int) -> None:
    if most > 1_000_000:
        say(f"calls began up to {most / 1e6:.1f} s late: latencies hold that wait")
    if forced:
        say(f"{forced:,} calls no longer waited for one of another session: their order is not proved")


def _explain(setup: ReplaySetup, capture: Path, selection: CallSelection, *, as_json: bool) -> None:
    from tempfile import TemporaryDirectory

    from migverify.cli.workload_replay_setup import plan_of

    with TemporaryDirectory(prefix="migverify-replay-") as folder:
        plan = plan_of(setup, capture, Path(folder), selection, lambda _: None)
    if as_json:
        typer.echo(json.dumps({**plan.as_json(), "folder": None, "pace": str(setup.options.pace)}))
        return
    typer.echo(_plan_text(plan, setup))


def _plan_text(plan: ReplayPlan, setup: ReplaySetup) -> str:
    options = setup.options
    lines = [
        f"plan {plan.hash[:12]} of {plan.capture}",
        f"  {plan.calls:,} calls in {plan.sessions:,} sessions, {plan.digests:,} digests;"
        f" {plan.asked:,} are asked, {plan.calls - plan.asked:,} are not, {plan.not_chosen:,} were not chosen",
        f"  sides: {', '.join(side.value for side in setup.sides.endpoints)}; protocol {setup.workload.protocol};"
        f" pace {options.pace}; {plan.span / 1e6:,.1f} s captured, {plan.idle / 1e6:,.1f} s of them idle and left out",
        *(f"  {count:>10,}  {kind}" for kind, count in plan.kinds.items()),
    ]
    if plan.skips:
        lines.append("  not asked:")
        lines += [f"  {count:>10,}  {reason}" for reason, count in plan.skips.items()]
    if plan.joined:
        lines.append(f"  asked although their session began before the capture: {plan.joined:,}")
        lines += [f"  {count:>10,}  {what}" for what, count in plan.assumed.items()]
    lines.append(
        f"  order: {plan.writes:,} calls may write; {plan.waits:,} wait for another session,"
        f" {plan.racy:,} have no order (racy), {plan.undefined:,} look at rows that a race left undefined"
    )
    if plan.untimed:
        lines.append(f"  {plan.untimed:,} calls have no time: they are due with the one before")
    return "\n".join(lines)


def _moment(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option}: {text!r} is no ISO time", hint="For example 2026-01-31T12:00:00.") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000_000)


class ReplayLine(LiveLine):
    """Shows calls, rate, differences and above all the lag; plain lines in a log."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._ended = 0

    def restart(self) -> None:
        """Forget the calls of the load before."""
        self.clear()
        self._ended = 0

    def planned(self, statements: int) -> None:
        """Show how much of the capture was read."""
        if self._due():
            self._tell(f"planning: {statements:,} statements read")

    def __call__(self, progress: ReplayProgress) -> None:
        """Take one event."""
        since = self._due()
        if not since:
            return
        counters, plan = progress.counters, progress.plan
        rate = (counters.ended - self._ended) / since
        self._ended = counters.ended
        done = progress.finished_before + counters.ended
        self._tell(
            f"{done:,}/{plan.calls:,} calls  {rate:,.0f}/s  lag {counters.lag / 1e6:.1f} s"
            f" (worst {counters.lag_most / 1e6:.1f})  {counters.different:,} different"
            f"  {counters.undecided:,} undecided  {counters.unjudged:,} unjudged  {counters.flying} in flight"
            + (f"  {counters.held:,} waited for a connection" if counters.held else "")
        )
