"""``migverify lab``: a real MySQL and a real TiDB on this machine, data for them, and faults to find."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from migverify.cli import (
    lab_chaos,
    lab_cutover,
    lab_history,
    lab_nginx,
    lab_replicator,
    lab_services,
    lab_traffic,
    lab_workload,
)
from migverify.cli.console import examples, say

app = typer.Typer(
    name="lab",
    no_args_is_help=True,
    help="A real MySQL and a real TiDB on this machine, with data and planted faults.",
)

Directory = Annotated[
    Path | None,
    typer.Option(
        "--dir",
        help="Folder of all the lab's state. [default: .migverify-lab]",
        envvar="MIGVERIFY_LAB_DIR",
        show_default=False,
    ),
]
Target = Annotated[str, typer.Option("--target", help="tidb, or mysql: a second MySQL as a stand-in, up in seconds.")]


def _teller() -> Callable[[str], None]:
    """Return a function that prints a line to standard error with the seconds since now."""
    started = time.monotonic()

    def tell(line: str) -> None:
        say(f"[{time.monotonic() - started:6.1f}s] {line}")

    return tell


@app.command(epilog=examples("migverify lab up", "migverify lab up --target mysql --dir /tmp/lab"))
def up(directory: Directory = None, target: Target = "tidb") -> None:
    """Bring the pair up and print where it listens. A pair that runs is left as it is."""
    from migverify.lab import servers

    folder = servers.lab_directory(directory)
    pair = servers.up(folder, target, _teller())
    typer.echo(f"source  mysql://root@{pair.source}/   {pair.source.version}")
    typer.echo(f"target  mysql://root@{pair.target}/   {pair.target.version}")
    if pair.stand_in:
        typer.echo("STAND-IN: the target is a second MySQL, not TiDB")
    typer.echo(f"state   {folder}")


@app.command()
def build(target: Target = "tidb") -> None:
    """Download and build the servers into the cache without starting them."""
    from migverify.lab import servers

    servers.prepare(target, _teller())
    typer.echo("the servers are ready to start")


@app.command()
def down(
    directory: Directory = None,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the data too.")] = False,
) -> None:
    """Stop everything of this lab; a second call does nothing."""
    from migverify.lab import servers, services

    folder = servers.lab_directory(directory)
    done = [*services.down(folder, purge), *servers.down(folder, purge)]
    typer.echo("\n".join(done) if done else f"nothing of {folder} was running")


@app.command()
def status(
    directory: Directory = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what runs and answers now. Exits with 3 unless both sides answer."""
    from dataclasses import asdict

    from migverify.errors import ExitCode
    from migverify.lab import servers

    folder = servers.lab_directory(directory)
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


@app.command(epilog=examples("migverify lab load tpch --scale 0.01", "migverify lab load museum"))
def load(
    what: Annotated[str, typer.Argument(help="tpch or museum.", metavar="tpch|museum")],
    directory: Directory = None,
    scale: Annotated[float, typer.Option(help="TPC-H scale factor: 1 is 6 million lineitem rows.")] = 0.01,
    tables: Annotated[str, typer.Option(help="Only these tables, separated by commas.")] = "",
    parts: Annotated[int, typer.Option(help="Files per TPC-H table; 0: as many as keep them small.")] = 0,
    database: Annotated[str, typer.Option(help="Database to fill. [default: tpch or museum]")] = "",
    wide: Annotated[bool, typer.Option("--wide", help="museum: also the table of 1,000 columns.")] = False,
) -> None:
    """Fill both sides with the same data: TPC-H, or a museum of types; replaces the tables."""
    from migverify.errors import UsageError
    from migverify.lab import museum_loader, servers, tpch

    chosen = tuple(name.strip() for name in tables.split(",") if name.strip())
    folder = servers.lab_directory(directory)
    tell = _teller()
    if what == "tpch":
        pair = servers.running_servers(folder)
        loaded = tpch.load(pair, database or "tpch", scale, chosen, parts, folder, tell)
    elif what == "museum":
        pair = servers.running_servers(folder)
        loaded = museum_loader.load(pair, database or "museum", chosen, wide, tell)
    else:
        raise UsageError(f"nothing to load is called {what!r}", hint="Use `tpch` or `museum`.")
    for name, rows in loaded.items():
        typer.echo(f"{name}\t{rows}")


@app.command(epilog=examples("migverify lab fault --list", "migverify lab fault row-deleted --table tpch.orders"))
def fault(
    name: Annotated[str, typer.Argument(help="Name of the fault; see --list.")] = "",
    table: Annotated[str, typer.Option(help="Where to plant it, as database.table.")] = "",
    seed: Annotated[int, typer.Option(help="Chooses row, column and value; the same seed, the same fault.")] = 1,
    directory: Directory = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the faults and what each needs.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plant one named fault on the target and print what was done."""
    from migverify.errors import UsageError
    from migverify.lab import faults, servers

    if list_all:
        for known in faults.FAULTS:
            typer.echo(f"{known.name:24}  {known.what}  (needs {known.needs})")
        return
    database_name, dot, table_name = table.partition(".")
    if not name or not dot or not table_name:
        raise UsageError(
            "which fault, and where?", hint="For example: migverify lab fault row-deleted --table tpch.orders"
        )
    if name not in faults.BY_NAME:
        raise UsageError(f"no fault is called {name!r}", hint="See `migverify lab fault --list`.")
    pair = servers.running_servers(servers.lab_directory(directory))
    planted = faults.plant_on_target(pair.target, name, database_name, table_name, seed)
    typer.echo(json.dumps(planted.as_dict(), indent=2, ensure_ascii=False) if as_json else planted.describe())


@app.command(
    epilog=examples("migverify lab matrix -o docs/faults.md", "migverify lab matrix --faults case,trailing-space")
)
def matrix(
    directory: Directory = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Write the Markdown page there.")] = None,
    names: Annotated[str, typer.Option("--faults", help="Only these faults, separated by commas.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Plant every fault and ask migverify and other tools' checksums. Exits with 1 when migverify got one wrong."""
    from migverify.errors import ExitCode, UsageError
    from migverify.lab import servers
    from migverify.lab.matrix import run
    from migverify.lab.matrix.page import page

    chosen = [name.strip() for name in names.split(",") if name.strip()]
    if chosen and output is not None:
        raise UsageError("a page of some faults only would look like all of them", hint="Leave out --faults or -o.")
    folder = servers.lab_directory(directory)
    pair = servers.running_servers(folder)
    run.install_md5(pair.source)
    run.install_md5(pair.target)
    found = run.run(pair, folder, _teller(), chosen)
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


app.command(epilog=lab_workload.EPILOG)(lab_workload.workload)
app.command(epilog=lab_traffic.EPILOG)(lab_traffic.traffic)
app.command(epilog=lab_replicator.EPILOG)(lab_replicator.replicator)
app.add_typer(lab_services.app, name="services")
app.add_typer(lab_history.app, name="history")
app.add_typer(lab_chaos.app, name="chaos")
app.add_typer(lab_cutover.app, name="cutover")
app.add_typer(lab_nginx.app, name="nginx")
