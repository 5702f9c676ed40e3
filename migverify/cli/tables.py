"""``migverify tables``: plan, verify, diff, repair, watch and loss."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.commands import add
from migverify.cli.console import (
    DEFAULT_CONFIG,
    ConfigOption,
    EngineName,
    JsonOption,
    MasterOption,
    QuietOption,
    ResumeOption,
    StoreOption,
    TablesOption,
    command_line,
    completed,
    completed_report,
    examples,
    say,
    visible,
)
from migverify.cli.tables_loss import ARMED_EPILOG, armed, loss
from migverify.cli.tables_loss import EPILOG as LOSS_EPILOG
from migverify.cli.tables_quick import LevelOption, SampleOption, SeedOption, UpdatedSinceOption, quick_options
from migverify.cli.tables_schedule import ScheduleOption, keep_verifying, parse_schedule
from migverify.cli.watching import MetricsAddressOption, watch_output
from migverify.errors import ExitCode, UsageError
from migverify.tables.quick import Level

if TYPE_CHECKING:
    from migverify.changes.model import Position
    from migverify.config import Config
    from migverify.store.results import ResultStore
    from migverify.tables.engine import TaskEngine
    from migverify.tables.repair import Repair
    from migverify.tables.run import VerifyRequest

app = typer.Typer(no_args_is_help=True, help="Compare whole tables: plan, verify, diff, repair.")

PLAN_EPILOG = examples(
    "migverify tables plan", "migverify tables plan --tables 'app.order*'", "migverify tables plan --json"
)
VERIFY_EPILOG = examples(
    "migverify tables verify", "migverify tables verify --engine spark --json",
    "migverify tables verify --spark-master spark://host:7077", "migverify tables verify --resume last",
    "migverify tables verify --recheck 20260131T120000-0a1b2c", "migverify tables verify --since last",
    "migverify tables verify --level counts", "migverify tables verify --sample 1% --seed 7",
    "migverify tables verify --updated-since updated_at 2h", "migverify tables verify --schedule '0 2 * * *'",
)  # fmt: skip
DIFF_EPILOG = examples(
    "migverify tables diff last", "migverify tables diff last --tables app.orders --limit 1000 --json"
)
REPAIR_EPILOG = examples("migverify tables repair last --out fix", "migverify tables repair last --out fix --apply")
WATCH_EPILOG = examples(
    "migverify tables watch --since last", "migverify tables watch --since last --json --prometheus 9108",
    "migverify tables watch --resume 20260131T120000-0a1b2c --until-drained --timeout 60",
    "migverify tables watch --reverse --since last", "migverify tables watch --reverse --sweep 5",
)  # fmt: skip


def plan(config: ConfigOption = DEFAULT_CONFIG, tables: TablesOption = None, as_json: JsonOption = False) -> None:
    """Show what would run: pairs, keys, lanes, types, estimates, EXPLAIN of the checksum, and what is not compared."""
    from migverify.cli.plan_view import plan_as_dicts, plan_as_text
    from migverify.tables.prepare import prepared_run

    with prepared_run(config, tables) as (loaded, secrets, prepared):
        if as_json:
            typer.echo(json.dumps(list(plan_as_dicts(prepared, loaded, secrets)), indent=2, ensure_ascii=False))
            return
        for line in plan_as_text(prepared, loaded, secrets):
            typer.echo(visible(line, lines=False))


def verify(
    config: ConfigOption = DEFAULT_CONFIG,
    engine: Annotated[
        EngineName | None,
        typer.Option(help="Where tasks run; default: local, and Spark where a master is named or under spark-submit."),
    ] = None,
    spark_master: MasterOption = None,
    tables: TablesOption = None,
    resume: ResumeOption = None,
    recheck: Annotated[
        str | None, typer.Option(metavar="RUN", help="Verify again only what was not equal in that run.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            help="Rest on that run: read again only rows that the binlog shows as written since; all without a `last`.",
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read rows declared immutable too, though an earlier run proved them.")
    ] = False,
    level: LevelOption = Level.ROWS,
    sample: SampleOption = None,
    seed: SeedOption = None,
    updated_since: UpdatedSinceOption = None,
    schedule: ScheduleOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    store: StoreOption = None,
) -> None:
    """Prove that source and target hold the same rows; exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE, 130 interrupted.

    With --level counts or keys, --sample or --updated-since it reads a part only: exit 1 where that part differs, and 3
    where it is equal, as the rest is not known. With --schedule the exit code is that of the last run.
    """
    if sum(map(bool, (resume, recheck, since))) > 1:
        raise UsageError(
            "--resume, --recheck and --since exclude each other",
            hint="--resume goes on with a run, --recheck and --since make a new one.",
        )
    quick = quick_options(level, sample, seed, updated_since)
    if quick is not None and (resume or recheck or since or full):
        raise UsageError(
            f"{quick.words} makes a new run that reads a part of each table",
            hint="Leave out --resume (it knows what its run reads), --recheck, --since and --full.",
        )
    from migverify.tables.run import VerifyRequest

    request = VerifyRequest(command_line(), resume, recheck, since, full, quick)

    def once() -> ExitCode:
        return _verify_once(config, tables, engine, spark_master, request, store, as_json=as_json, quiet=quiet)

    if schedule is None:
        raise typer.Exit(int(once()))
    if resume or recheck:
        raise UsageError(
            "--schedule begins a new run each time: leave out --resume and --recheck",
            hint="Go on with a run that was cut off by a command of its own.",
        )
    raise typer.Exit(int(keep_verifying(parse_schedule(schedule), once)))


def _verify_once(
    config: Path, tables: list[str] | None, engine: EngineName | None, master: str | None, request: VerifyRequest,
    store: str | None, *, as_json: bool, quiet: bool,
) -> ExitCode:  # fmt: skip
    from migverify.cli.progress import ProgressLine
    from migverify.cli.report import open_run_store
    from migverify.report.model import ReportOptions
    from migverify.report.read import read_report
    from migverify.report.render import Format, render
    from migverify.tables.prepare import prepared_run
    from migverify.tables.run import run_tables
    from migverify.telemetry import sent_metrics

    line = ProgressLine(quiet=quiet or (as_json and not sys.stderr.isatty()))
    with (
        prepared_run(config, tables) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
        closing(_engine(engine, master, loaded, secrets)) as runner,
    ):
        if request.quick is not None:
            for pair in prepared.parts(request.quick):
                if pair.part is not None and pair.part.scan:
                    say(visible(f"warning: {pair.id}: {pair.part.scan}", lines=False))
        begun = partial(_say_run, opened, quiet=quiet)
        try:
            run_id, _ = run_tables(prepared, loaded, secrets, runner, opened, request, line, begun)
        finally:
            line.clear()
        data = completed_report(read_report(opened, run_id, ReportOptions(values=loaded.report.values)))
    with sent_metrics() as send:
        send(data.metrics)
    typer.echo(
        json.dumps(data.json_document, ensure_ascii=False)
        if as_json
        else render(data, Format.TEXT, color=sys.stdout.isatty()),
        nl=as_json,
    )
    return data.exit_code


def diff(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `last`: the newest of tables.")],
    config: ConfigOption = DEFAULT_CONFIG,
    tables: TablesOption = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many row diffs a table.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    store: StoreOption = None,
) -> None:
    """List what differs in a run: tables and columns that a side lacks, then rows by key, kind and columns.

    The exit code is 0 for any list: the verdict is that of the run (`tables verify`, `report`). A run without a
    confirmed difference says so on standard error.
    """
    from migverify.cli.diff_view import list_row_diffs, nothing_to_list
    from migverify.cli.report import open_run_store
    from migverify.config import load_config
    from migverify.tables.recheck import run_of_tables

    with closing(open_run_store(store, config)) as opened:
        run = run_of_tables(opened, run, load_config(config) if config.exists() else None).run_id
        is_empty = True
        for text in list_row_diffs(opened, run, tables, limit, as_json=as_json):
            typer.echo(visible(text, lines=False))
            is_empty = False
        if is_empty:
            why, step = nothing_to_list(opened, run, tables)
            say(why)
            if step is not None:
                say(f"  {completed(step).command}  # {step.reason}")


def _engine(name: EngineName | None, master: str | None, config: Config, secrets: dict[str, str]) -> TaskEngine:
    from migverify.spark.settings import is_spark_chosen, named_master

    slots = max(1, min(endpoint.connections for endpoint in config.endpoints))
    if name is EngineName.LOCAL or (name is None and not is_spark_chosen(master, config.spark.master)):
        from migverify.tables.engine import LocalTaskEngine

        return LocalTaskEngine(secrets, slots)
    from migverify.spark.engine import SparkEngine
    from migverify.spark.session import open_session

    chosen = named_master(master, config.spark.master)
    session = open_session(chosen, "migverify tables verify", dict(config.spark.conf), slots)
    return SparkEngine(session, secrets, slots)


def _say_run(store: ResultStore, run_id: str, *, quiet: bool) -> None:
    from migverify.tables.run_facts import READ_WHOLE

    if not quiet:
        say(f"run {run_id} (stop it with Ctrl-C; go on with --resume {run_id})")
    # No progress, so `--quiet` keeps it: the run takes much longer than the one that was requested.
    for pair, why in (store.load_run(run_id).facts.get(READ_WHOLE) or {}).items():
        say(visible(f"{pair}: {why}: it is read whole", lines=False))


def repair(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `last`: the newest of tables.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for the scripts and the manifest.")],
    apply: Annotated[
        bool, typer.Option("--apply", help="Execute the scripts on the target, then read every row again.")
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    tables: TablesOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Write SQL that repairs the confirmed row diffs of a run, and its inverse; with --apply, execute it.

    Exit codes: 0 every row has its statement (--apply: every row is equal now), 1 rows still differ after --apply,
    3 some rows or tables got no statement (--apply: or could not be judged).
    """
    from migverify.cli.report import open_run_store
    from migverify.tables.prepare import prepared_run
    from migverify.tables.repair import run_repair

    with (
        prepared_run(config, tables, current=True) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
    ):
        echo = say if as_json else typer.echo
        done = run_repair(
            prepared, loaded, secrets, opened, run, out, apply=apply, say=lambda text: echo(visible(text, lines=False))
        )
    if done.earlier:
        say(f"the files of an earlier repair are in {done.earlier}: to undo all, apply the newest inverse first")
    if as_json:
        typer.echo(json.dumps(_as_dict(done), ensure_ascii=False))
    elif not done.tables:
        typer.echo(f"run {done.of} has no confirmed row diffs to repair")
    elif apply:
        typer.echo(f"{done.verdict}: run {done.run_id}; files in {out}")
    else:
        typer.echo(f"files in {out}; nothing was executed (--apply does)")
    if apply:
        raise typer.Exit(int(done.verdict.exit_code))
    raise typer.Exit(int(ExitCode.MATCH if done.is_complete else ExitCode.INCONCLUSIVE))


def _as_dict(done: Repair) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads((done.folder / "manifest.json").read_text(encoding="utf-8"))
    if done.run_id is not None:
        manifest["applied"] = {
            "run": done.run_id, "verdict": done.verdict.value,
            "tables": {
                t.pair.id: {"repaired": t.repaired, "left_alone": t.left_alone, "still_different": t.different,
                            "refused_by_target": dict(t.applied.refused)}
                for t in done.tables
            },
        }  # fmt: skip
    return manifest


def watch(
    config: ConfigOption = DEFAULT_CONFIG,
    tables: TablesOption = None,
    since: Annotated[
        str | None, typer.Option(metavar="RUN", help="The full verification to keep current; `last` for the newest.")
    ] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with a watch that was stopped or killed.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="POSITION",
            help="Where to begin: file:offset, a GTID set, a TSO. Default: the run's, or now.",
        ),
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="The target is written, and the source follows: is a rollback safe?")
    ] = False,
    sweep: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            min=0.01,
            help="With --reverse, without a changefeed: compare each range of each table again within MINUTES.",
        ),
    ] = None,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End when everything written up to --at-position is proved.")
    ] = False,
    at_position: Annotated[
        str | None,
        typer.Option(metavar="POSITION", help="Where to drain to: file:offset, or a TSO. Default: the end now."),
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0, help="Time limit of --until-drained, then INCONCLUSIVE.")
    ] = None,
    prometheus: MetricsAddressOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a second; the last has `final`.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No screen and no lines.")] = False,
    store: StoreOption = None,
) -> None:
    """Keep the verdict current while writes go on: every written key is read again once the target applied it.

    Exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE; Ctrl-C ends with what is known, exit 130.
    """
    from migverify.cli.report import open_run_store
    from migverify.guards.ids_snowflake import infer_workers
    from migverify.tables.prepare import prepared_run
    from migverify.tables.watch_run import TablesWatchRequest, watch_tables
    from migverify.watch.ledger import ledger_folder

    if since and resume:
        raise UsageError("--since and --resume exclude each other", hint="--resume knows what its watch started from.")
    if (at_position or timeout is not None) and not until_drained:
        raise UsageError("--at-position and --timeout belong to --until-drained")
    command = command_line()
    with (
        prepared_run(config, tables, current=True) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
        watch_output(as_json=as_json, quiet=quiet, metrics=prometheus) as output,
    ):
        limit = timeout if timeout is not None else loaded.watch.drain_seconds
        request = TablesWatchRequest(
            command, since, resume, _position(start), (_position(at_position) or "now") if until_drained else None,
            limit if until_drained else None, reverse, sweep, infer_workers,
        )  # fmt: skip
        status = watch_tables(
            prepared, loaded, secrets, opened, request, ledger_folder(loaded),
            on_start=output.begin, on_base=say, on_status=output.show, stop=output.stopped.is_set,
        )  # fmt: skip
        output.show(status)
    output.end(status)


def _position(text: str | None) -> Position | None:
    if text is None or text == "now":
        return None
    from migverify.changes.positions import parse_position

    return parse_position(text)


add(app, "plan", plan, PLAN_EPILOG)
add(
    app,
    "verify",
    verify,
    VERIFY_EPILOG,
    advanced=(
        "--spark-master",
        "--full",
        "--seed",
        "--recheck",
        "--schedule",
    ),
)
add(app, "diff", diff, DIFF_EPILOG)
add(app, "repair", repair, REPAIR_EPILOG)
add(app, "watch", watch, WATCH_EPILOG, advanced=("--start", "--at-position"))
add(app, "loss", loss, LOSS_EPILOG)
add(app, "armed", armed, ARMED_EPILOG)
