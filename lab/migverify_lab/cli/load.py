"""``migverify lab load``: data for the lab's servers, the same on both sides or in agreement by construction."""

from __future__ import annotations

from datetime import date
from typing import Annotated

import typer

from migverify.cli.console import examples
from migverify.errors import UsageError
from migverify_lab.cli.options import LabFolder, Seed, SourceServer, TargetServer, lab_folder, lab_pair, progress

app = typer.Typer(name="load", no_args_is_help=True, help="Fill the servers; tables of the same names are replaced.")

Tables = Annotated[str, typer.Option(help="Only these tables, separated by commas.")]
Last = Annotated[str, typer.Option("--last", metavar="YYYY-MM", help="Newest month. [default: the current one]")]


def _tell(loaded: dict[str, int]) -> None:
    for name, rows in loaded.items():
        typer.echo(f"{name}\t{rows}")


def _chosen(tables: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in tables.split(",") if name.strip())


@app.command("tpch", epilog=examples("migverify lab load tpch --scale 0.01"))
def load_tpch(
    scale: Annotated[float, typer.Option(help="Scale factor: 1 is 6 million lineitem rows.")] = 0.01,
    tables: Tables = "",
    parts: Annotated[int, typer.Option(help="Files per table; 0: as many as keep them small.")] = 0,
    database: Annotated[str, typer.Option(help="Database to fill.")] = "tpch",
    directory: LabFolder = None,
) -> None:
    """TPC-H on both sides, by tpchgen-cli."""
    from migverify_lab import servers, tpch

    folder = lab_folder(directory)
    pair = servers.running_servers(folder)
    _tell(tpch.load(pair, database, scale, _chosen(tables), parts, folder, progress()))


@app.command("museum", epilog=examples("migverify lab load museum"))
def load_museum(
    tables: Tables = "",
    wide: Annotated[bool, typer.Option("--wide", help="Also the table of 1,000 columns.")] = False,
    database: Annotated[str, typer.Option(help="Database to fill.")] = "museum",
    directory: LabFolder = None,
) -> None:
    """The type corpus on both sides: every shared type with its edge values."""
    from migverify_lab import museum_loader, servers

    pair = servers.running_servers(lab_folder(directory))
    _tell(museum_loader.load(pair, database, _chosen(tables), wide, progress()))


@app.command("services", epilog=examples("migverify lab up --services", "migverify lab load services --changes 60000"))
def load_services(
    changes: Annotated[int, typer.Option(min=300, help="Row changes of the payments, over three days.")] = 6000,
    accounts: Annotated[int, typer.Option(min=20, help="Accounts of payers and payees.")] = 200,
    seed: Seed = 1,
    directory: LabFolder = None,
) -> None:
    """Three services in agreement: orders, payments on the pair, the ledger on MariaDB."""
    from migverify_lab import services

    _tell(services.load(services.of_lab(lab_folder(directory)), changes, accounts, seed, progress()))


@app.command("history", epilog=examples("migverify lab load history", "migverify lab load history --shards 8"))
def load_history(
    shards: Annotated[int, typer.Option(min=1, max=64, help="Old tables.")] = 64,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each.")] = 2000,
    months: Annotated[int, typer.Option(min=1, max=120, help="Months they are spread over.")] = 12,
    last: Last = "",
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
) -> None:
    """A re-architecture: history_00, history_01 ... on the source, the one table they became on the target."""
    from migverify_lab import history

    servers = lab_pair(directory, source, target)
    made = history.History(shards=shards, rows=rows, months=months, last=month_of(last))
    _tell(history.load(*servers, made, progress()))


def month_of(text: str) -> date:
    """Return the first day of a month ``YYYY-MM``, of the current one for an empty text."""
    from migverify_lab.history import this_month

    if not text:
        return this_month()
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise UsageError(f"not a month: {text!r}", hint="Write YYYY-MM, such as 2026-11.") from error
