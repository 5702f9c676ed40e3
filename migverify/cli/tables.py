"""``migverify tables``: plan, verify, diff, status (repair has a file of its own)."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, command_line, examples, say
from migverify.cli.repair import repair
from migverify.cli.watch import watch
from migverify.errors import UsageError

if TYPE_CHECKING:
    from migverify.config import Config
    from migverify.tables.engine import Engine

app = typer.Typer(no_args_is_help=True, help="Compare whole tables: plan, verify, diff, repair.")


class EngineName(StrEnum):
    """Which engine runs the tasks."""

    SPARK = "spark"
    LOCAL = "local"


TablesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tables", "-t", metavar="PATTERN", help="Only source tables that match, as database.table; repeatable."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")]
StoreOption = Annotated[str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")]


@app.command(
    epilog=examples(
        "migverify tables plan", "migverify tables plan --tables 'app.order*'", "migverify tables plan --json"
    )
)
def plan(config: ConfigOption = DEFAULT_CONFIG, tables: TablesOption = None, as_json: JsonOption = False) -> None:
    """Show what would run: pairs, keys, lanes, types, estimates, EXPLAIN of the checksum, and what is not compared."""
    from migverify.cli.plan_view import plan_as_dicts, plan_as_text
    from migverify.tables.prepare import prepared_run

    with prepared_run(config, tables) as (loaded, secrets, prepared):
        if as_json:
            typer.echo(json.dumps(list(plan_as_dicts(prepared, loaded, secrets)), indent=2, ensure_ascii=False))
            return
        for line in plan_as_text(prepared, loaded, secrets):
            typer.echo(line)


@app.command(
    epilog=examples(
        "migverify tables verify", "migverify tables verify --engine spark --json",
        "migverify tables verify --spark-master spark://host:7077", "migverify tables verify --resume last",
        "migverify tables verify --recheck 20260131T120000-0a1b2c",
    )
)  # fmt: skip
def verify(
    config: ConfigOption = DEFAULT_CONFIG,
    engine: Annotated[
        EngineName | None,
        typer.Option(help="Where tasks run; default: local, and Spark where a master is named or under spark-submit."),
    ] = None,
    spark_master: Annotated[
        str | None, typer.Option(metavar="URL", help="Spark master or sc:// URL; default: the configuration's.")
    ] = None,
    tables: TablesOption = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Go on with a run that was cut off; `last` for the newest.")
    ] = None,
    recheck: Annotated[
        str | None, typer.Option(metavar="RUN", help="Verify again only what was not equal in that run.")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Read rows declared immutable too, though an earlier run proved them.")
    ] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    store: StoreOption = None,
) -> None:
    """Prove that source and target hold the same rows; exit 0 MATCH, 1 MISMATCH, 3 INCONCLUSIVE, 130 interrupted."""
    if resume and recheck:
        raise UsageError(
            "--resume and --recheck exclude each other", hint="--resume goes on with a run, --recheck makes a new one."
        )
    from migverify.cli.progress import ProgressLine
    from migverify.cli.report import open_run_store
    from migverify.report.as_json import run_as_dict
    from migverify.report.summary import read_report
    from migverify.report.text import render_text
    from migverify.tables.prepare import prepared_run
    from migverify.tables.run import Request, run_tables

    line = ProgressLine(quiet=quiet or (as_json and not sys.stderr.isatty()))
    with (
        prepared_run(config, tables) as (loaded, secrets, prepared),
        closing(open_run_store(store, config)) as opened,
        closing(_engine(engine, spark_master, loaded, secrets)) as runner,
    ):
        request = Request(command_line(), resume, recheck, full)
        try:
            run_id, _ = run_tables(
                prepared, loaded, secrets, runner, opened, request, line, _silent if quiet else _say_run
            )
        finally:
            line.clear()
        data = read_report(opened, run_id)
    typer.echo(
        json.dumps(run_as_dict(data), ensure_ascii=False) if as_json else render_text(data, color=sys.stdout.isatty()),
        nl=as_json,
    )
    raise typer.Exit(int(data.exit_code))


@app.command(
    epilog=examples("migverify tables diff last", "migverify tables diff last --tables app.orders --limit 1000 --json")
)
def diff(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `last`: the newest of tables.")],
    config: ConfigOption = DEFAULT_CONFIG,
    tables: TablesOption = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many row diffs a table.")] = 100,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    store: StoreOption = None,
) -> None:
    """List the row diffs of a run: key, kind, and which columns differ how."""
    from migverify.cli.diff_view import list_row_diffs
    from migverify.cli.report import open_run_store

    with closing(open_run_store(store, config)) as opened:
        for text in list_row_diffs(opened, run, tables, limit, as_json=as_json):
            typer.echo(text)


@app.command(epilog=examples("migverify tables status last", "migverify tables status last --json"))
def status(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A run id, or `last`: the newest of tables.")] = "last",
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Show how far a run is and what it found so far; reads the store only, so it works while the run goes on."""
    from migverify.cli.diff_view import run_status
    from migverify.cli.report import open_run_store

    with closing(open_run_store(store, config)) as opened:
        found = run_status(opened, run)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False))
        return
    for name, value in found.items():
        typer.echo(f"{name:<14} {value}")


app.command(
    epilog=examples("migverify tables repair last --out fix", "migverify tables repair last --out fix --apply")
)(repair)
app.command(
    epilog=examples(
        "migverify tables watch --since last", "migverify tables watch --since last --json --prometheus 9108",
        "migverify tables watch --resume 20260131T120000-0a1b2c --until-drained --timeout 60",
    )
)(watch)  # fmt: skip


def _engine(name: EngineName | None, master: str | None, config: Config, secrets: dict[str, str]) -> Engine:
    from migverify.spark.settings import is_spark_chosen, named_master

    slots = max(1, min(endpoint.connections for endpoint in config.endpoints))
    if name is EngineName.LOCAL or (name is None and not is_spark_chosen(master, config.spark.master)):
        from migverify.tables.local import LocalEngine

        return LocalEngine(secrets, slots)
    from migverify.spark.engine import SparkEngine
    from migverify.spark.session import open_session

    chosen = named_master(master, config.spark.master)
    session = open_session(chosen, "migverify tables verify", dict(config.spark.conf), slots)
    return SparkEngine(session, secrets, slots)


def _say_run(run_id: str) -> None:
    say(f"run {run_id} (stop it with Ctrl-C; go on with --resume {run_id})")


def _silent(run_id: str) -> None:
    del run_id
