"""``migverify lab history``: 64 old tables and the one table they became."""

from __future__ import annotations

import json
from datetime import date
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples
from migverify.cli.lab_replicator import LabFolder, SourceServer, TargetServer, lab_pair
from migverify.cli.lab_services import teller

if TYPE_CHECKING:
    from migverify.lab.history import History

app = typer.Typer(
    name="history", no_args_is_help=True, help="A re-architecture: many old tables on the source, one on the target."
)

Last = Annotated[str, typer.Option("--last", metavar="YYYY-MM", help="Newest month. [default: the current one]")]


@app.command(epilog=examples("migverify lab history load", "migverify lab history load --shards 8 --rows 500"))
def load(
    shards: Annotated[int, typer.Option(min=1, max=64, help="Old tables.")] = 64,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each.")] = 2000,
    months: Annotated[int, typer.Option(min=1, max=120, help="Months they are spread over.")] = 12,
    last: Last = "",
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
) -> None:
    """Make both sides anew: history_00, history_01 ... on the source, transactions on the target."""
    from migverify.lab import history as room

    source_server, target_server = lab_pair(directory, source, target)
    made = room.History(shards=shards, rows=rows, months=months, last=_month(last))
    for name, count in room.load(source_server, target_server, made, teller()).items():
        typer.echo(f"{name}\t{count}")


@app.command(
    epilog=examples("migverify lab history fault --list", "migverify lab history fault cent-lost --month 2026-03")
)
def fault(
    name: Annotated[str, typer.Argument(help="Name of the fault; see --list.")] = "",
    month: Annotated[str, typer.Option(metavar="YYYY-MM", help="Month of the row. [default: the current one]")] = "",
    seed: Annotated[int, typer.Option(help="Chooses the row; the same seed, the same fault.")] = 1,
    list_all: Annotated[bool, typer.Option("--list", help="List the faults.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
) -> None:
    """Plant one named fault in the new table and print what was done."""
    from migverify.errors import UsageError
    from migverify.lab import history as room

    if list_all:
        for known in room.FAULTS:
            typer.echo(f"{known.name:12}  {known.what}")
        return
    if name not in room.BY_NAME:
        raise UsageError(f"the history has no fault {name!r}", hint="See `migverify lab history fault --list`.")
    chosen = _month(month)
    made: History = room.History(last=chosen)
    planted = room.plant(lab_pair(directory, source, target)[1], made, name, chosen, seed)
    typer.echo(json.dumps(planted.as_dict(), indent=2, ensure_ascii=False) if as_json else planted.describe())


def _month(text: str) -> date:
    from migverify.errors import UsageError
    from migverify.lab.history import this_month

    if not text:
        return this_month()
    try:
        return date.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise UsageError(f"not a month: {text!r}", hint="Write YYYY-MM, such as 2026-11.") from error
