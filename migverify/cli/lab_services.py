"""``migverify lab services``: orders, payments and a ledger that must agree, and faults between them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from migverify.cli.console import examples, say
from migverify.cli.lab_replicator import LabFolder

app = typer.Typer(
    name="services",
    no_args_is_help=True,
    help="Three services that must agree: orders on MySQL, payments on the pair, a ledger on MariaDB.",
)


def teller() -> Callable[[str], None]:
    """Return a function that prints a line to standard error with the seconds since now."""
    started = time.monotonic()

    def tell(line: str) -> None:
        say(f"[{time.monotonic() - started:6.1f}s] {line}")

    return tell


@app.command(epilog=examples("migverify lab services up", "migverify lab services up --target mysql"))
def up(
    directory: LabFolder = None,
    target: Annotated[str, typer.Option("--target", help="tidb, or mysql: a second MySQL as a stand-in.")] = "tidb",
) -> None:
    """Bring up the pair and a MariaDB, and write a configuration with all endpoints."""
    from migverify.lab import servers, services

    folder = servers.lab_directory(directory)
    found = services.up(folder, target, teller())
    for endpoint in ("source", "target", "orders", "ledger"):
        server = found.server(endpoint)
        typer.echo(f"{endpoint:7} mysql://root@{server}/   {server.version}")
    if found.target.flavor != "tidb":
        typer.echo("STAND-IN: the target is a second MySQL, not TiDB")
    typer.echo(f"config  {folder / services.FOLDER / 'migverify.yaml'}")


@app.command(epilog=examples("migverify lab services load", "migverify lab services load --changes 60000"))
def load(
    changes: Annotated[int, typer.Option(min=300, help="Row changes of the payments, over three days.")] = 6000,
    accounts: Annotated[int, typer.Option(min=20, help="Accounts of payers and payees.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed writes the same rows.")] = 1,
    directory: LabFolder = None,
) -> None:
    """Make the three services anew, in agreement; prints the rows of each table."""
    from migverify.lab import servers, services, services_load

    found = services.running(servers.lab_directory(directory))
    for name, rows in services_load.load(found, changes, accounts, seed, teller()).items():
        typer.echo(f"{name}\t{rows}")


@app.command(
    epilog=examples("migverify lab services fault --list", "migverify lab services fault rounding",
                    "migverify lab services fault late-event --seconds 5")
)  # fmt: skip
def fault(
    name: Annotated[str, typer.Argument(help="Name of the fault; see --list.")] = "",
    seed: Annotated[int, typer.Option(help="Chooses the row; the same seed, the same fault.")] = 1,
    seconds: Annotated[float, typer.Option(min=0.5, help="late-event: how late it is.")] = 5.0,
    list_all: Annotated[bool, typer.Option("--list", help="List the faults and the rules that see each.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    directory: LabFolder = None,
) -> None:
    """Plant one named fault between the services and print what was done."""
    from migverify.errors import UsageError
    from migverify.lab import servers, services, services_faults

    if list_all:
        for known in services_faults.FAULTS:
            typer.echo(f"{known.name:20}  {known.what}  (seen by {', '.join(known.rules)})")
        return
    if name not in services_faults.BY_NAME:
        raise UsageError(f"the services have no fault {name!r}", hint="See `migverify lab services fault --list`.")
    found = services.running(servers.lab_directory(directory))
    planted = services_faults.plant(found, name, seed, seconds)
    typer.echo(json.dumps(planted.as_dict(), indent=2, ensure_ascii=False) if as_json else planted.describe())


@app.command()
def down(
    directory: LabFolder = None,
    purge: Annotated[bool, typer.Option("--purge", help="Delete the data too.")] = False,
) -> None:
    """Stop the ledger, and the pair where `up` had started it; a second call does nothing."""
    from migverify.lab import servers, services

    folder: Path = servers.lab_directory(directory)
    done = services.down(folder, purge)
    typer.echo("\n".join(done) if done else f"nothing of {folder / services.FOLDER} was running")
