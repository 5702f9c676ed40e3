"""``migverify lab``: a real MySQL and a real TiDB on this machine, data for them, and faults to find."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from migverify.cli.console import examples
from migverify.errors import ExitCode, UsageError
from migverify_lab.cli import chaos, cutover, feed, load, nginx, replicator, traffic, workload
from migverify_lab.cli.options import (
    Json,
    LabFolder,
    Seed,
    SourceServer,
    TargetKind,
    TargetServer,
    lab_folder,
    lab_pair,
    progress,
    signal_event,
)

app = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="A real MySQL and a real TiDB on this machine, with data and planted faults.",
)


@app.command(epilog=examples("migverify lab up", "migverify lab up --target mysql", "migverify lab up --services"))
def up(
    directory: LabFolder = None,
    target: TargetKind = "tidb",
    with_services: Annotated[
        bool, typer.Option("--services", help="Bring up the ledger's MariaDB, too, and write a configuration.")
    ] = False,
) -> None:
    """Bring the pair up and print where it listens. What runs is left as it is."""
    from migverify_lab import servers, services

    folder = lab_folder(directory)
    pair = servers.up(folder, target, progress(), ledger=with_services)
    for name, server in (("source", pair.source), ("target", pair.target), ("ledger", pair.ledger)):
        if server is not None:
            scheme = "tidb" if "TiDB" in server.version else "mysql"
            typer.echo(f"{name}  {scheme}://root@{server}/   {server.version}")
    if pair.stand_in:
        typer.echo("STAND-IN: the target is a second MySQL, not TiDB")
    typer.echo(f"state   {folder}")
    if with_services:
        services.of_lab(folder)
        typer.echo(f"config  {services.config_path(folder)}")


@app.command()
def build(target: TargetKind = "tidb") -> None:
    """Download and build the servers into the cache without starting them."""
    from migverify_lab import servers

    servers.prepare(target, progress())
    typer.echo("the servers are ready to start")


@app.command()
def down(
    directory: LabFolder = None,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the data too.")] = False,
) -> None:
    """Stop everything of this lab, also what cases and rehearsals left running; a second call does nothing."""
    from migverify_lab import chaos_start, cutover, servers
    from migverify_lab.chaos_world import CaseWorkspace
    from migverify_lab.workspace import Workspace

    folder = lab_folder(directory)
    rehearsal = Workspace(folder / cutover.FOLDER)
    done = [f"{name} ended" for name in rehearsal.jobs() if rehearsal.stop_job(name)]
    if (folder / "chaos").is_dir():
        done += chaos_start.down(CaseWorkspace(folder))
    done += servers.down(folder, purge)
    typer.echo("\n".join(done) if done else f"nothing of {folder} was running")


@app.command()
def status(directory: LabFolder = None, as_json: Json = False) -> None:
    """Tell what runs and answers now. Exits with 3 unless all servers answer."""
    from dataclasses import asdict

    from migverify_lab import servers

    folder = lab_folder(directory)
    entries = servers.status(folder)
    complete = all(entry.running for entry in entries)
    if as_json:
        document = {"directory": str(folder), "up": complete, "servers": [asdict(entry) for entry in entries]}
        typer.echo(json.dumps(document, indent=2))
    else:
        for entry in entries:
            where = "-" if entry.server is None else f"{entry.server.flavor} {entry.server.version} on {entry.server}"
            mark = "up  " if entry.running else "down"
            typer.echo(f"{entry.side:6}  {mark}  {where}  pid {entry.pid or '-'}  {entry.note}")
    if not complete:
        raise typer.Exit(ExitCode.INCONCLUSIVE)


@app.command(
    epilog=examples("migverify lab fault --list", "migverify lab fault row-deleted --table tpch.orders",
                    "migverify lab fault rounding", "migverify lab fault cent-lost --month 2026-03")
)  # fmt: skip
def fault(
    name: Annotated[str, typer.Argument(help="Name of the fault; see --list.")] = "",
    table: Annotated[str, typer.Option(help="Faults of tables: where to plant it, as database.table.")] = "",
    seconds: Annotated[float, typer.Option(min=0.5, help="late-event: how late it is.")] = 5.0,
    month: Annotated[str, typer.Option(metavar="YYYY-MM", help="Faults of the history. [default: now]")] = "",
    seed: Seed = 1,
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
    list_all: Annotated[bool, typer.Option("--list", help="List the faults, and what each needs or is for.")] = False,
    as_json: Json = False,
) -> None:
    """Plant one named fault and print what was done: in a table, between the services, or in the history."""
    from migverify_lab import faults, history, servers, services, services_faults

    if list_all:
        _list_faults()
        return
    if name in {known.name for known in services_faults.FAULTS}:
        planted = services_faults.plant(services.of_lab(lab_folder(directory)), name, seed, seconds)
        document, text = planted.as_dict(), planted.describe()
    elif name in {known.name for known in history.FAULTS}:
        chosen = load.month_of(month)
        server = lab_pair(directory, source, target)[1]
        planted = history.plant(server, history.History(last=chosen), name, chosen, seed)
        document, text = planted.as_dict(), planted.describe()
    else:
        database_name, _, table_name = table.partition(".")
        if name and name not in faults.BY_NAME:
            raise UsageError(f"no fault is called {name!r}", hint="See `migverify lab fault --list`.")
        if not name or not table_name:
            raise UsageError(
                "which fault, and where?", hint="For example: migverify lab fault row-deleted --table tpch.orders"
            )
        pair = servers.running_servers(lab_folder(directory))
        changed = faults.plant_on_target(pair.target, name, database_name, table_name, seed)
        document, text = changed.as_dict(), changed.describe()
    typer.echo(json.dumps(document, indent=2, ensure_ascii=False) if as_json else text)


def _list_faults() -> None:
    from migverify_lab import faults, history, services_faults

    for known in faults.FAULTS:
        typer.echo(f"{known.name:24}  {known.what}  (needs {known.needs})")
    scenarios = [(one.name, one.what, one.rules) for one in services_faults.FAULTS]
    scenarios += [(one.name, one.what, one.rules) for one in history.FAULTS]
    for name, what, rules in scenarios:
        typer.echo(f"{name:24}  {what}  (seen by {', '.join(rules)})")


@app.command(
    epilog=examples("migverify lab matrix -o docs/faults.md", "migverify lab matrix --faults case,trailing-space")
)
def matrix(
    directory: LabFolder = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the Markdown page there.")] = None,
    names: Annotated[str, typer.Option("--faults", help="Only these faults, separated by commas.")] = "",
    as_json: Json = False,
) -> None:
    """Plant every fault and ask migverify and other tools' checksums. Exits with 1 when migverify got one wrong."""
    from migverify_lab import servers
    from migverify_lab.matrix import run
    from migverify_lab.matrix.page import page

    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if chosen and output is not None:
        raise UsageError("a page of some faults only would look like all of them", hint="Leave out --faults or -o.")
    folder = lab_folder(directory)
    pair = servers.running_servers(folder)
    run.install_md5(pair.source)
    run.install_md5(pair.target)
    found = run.run(pair, folder, progress(), chosen)
    if output is not None:
        output.write_text(page(found), encoding="utf-8")
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2, ensure_ascii=False))
    elif output is None:
        typer.echo(page(found), nl=False)
    for problem in found.problems:
        typer.echo(f"WRONG  {problem}", err=True)
    if found.problems:
        raise typer.Exit(ExitCode.MISMATCH)


@app.command(hidden=True)
def job(
    name: Annotated[str, typer.Argument()],
    arguments: Annotated[list[str] | None, typer.Argument()] = None,
    directory: LabFolder = None,
) -> None:
    """Be a process that the lab keeps beside its servers, until SIGTERM."""
    from migverify_lab import jobs

    jobs.run(lab_folder(directory), name, arguments or [], signal_event())


app.add_typer(load.app, name="load")
app.command(epilog=workload.EPILOG)(workload.workload)
app.command(epilog=traffic.EPILOG)(traffic.traffic)
app.command(epilog=replicator.EPILOG)(replicator.replicator)
app.add_typer(feed.app, name="feed")
app.add_typer(chaos.app, name="chaos")
app.add_typer(cutover.app, name="cutover")
app.add_typer(nginx.app, name="nginx")
