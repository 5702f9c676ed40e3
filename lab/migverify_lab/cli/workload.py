"""``migverify lab workload``: a payment-like load on the source at a given rate."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples, say
from migverify.errors import ExitCode
from migverify.signals import ENDING, handled
from migverify_lab.cli.options import Json, LabFolder, SourceServer, TargetServer, lab_pair

if TYPE_CHECKING:
    from collections.abc import Callable

    from migverify_lab.workload import WorkloadResult

EPILOG = examples(
    "migverify lab workload --create --rate 2000 --seconds 60",
    "migverify lab workload --rate 5000 --seconds 30 --connections 4 --hot 0.2",
)
STATUS_SECONDS = 5.0
GRACE_SECONDS = 1.0
"""How late the last transaction may be before the load has fallen short of its rate."""


def workload(
    rate: Annotated[
        float, typer.Option(min=0, help="Row changes per second (inserted, updated, deleted); 0: as fast as it goes.")
    ] = 2000.0,
    seconds: Annotated[float, typer.Option(min=0, help="How long; with --rate 0 exactly so long.")] = 60.0,
    changes: Annotated[
        int, typer.Option(min=0, help="End after so many row changes; 0: rate times seconds.", show_default=False)
    ] = 0,
    connections: Annotated[int, typer.Option(min=1, help="Connections, each with accounts of its own.")] = 2,
    per_transaction: Annotated[int, typer.Option("--per-transaction", min=1, help="Row changes of one.")] = 20,
    accounts: Annotated[int, typer.Option(min=1, help="Accounts in all.")] = 2000,
    hot: Annotated[float, typer.Option(min=0, max=1, help="Share of payments that go to a few hot payees.")] = 0.05,
    seed: Annotated[int, typer.Option(help="The same seed on the same tables writes the same rows.")] = 1,
    database: Annotated[str, typer.Option(help="Database of the payment tables.")] = "pay",
    create: Annotated[
        bool, typer.Option("--create", help="Make the tables anew first, on both sides, with the same accounts.")
    ] = False,
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
    as_json: Json = False,
) -> None:
    """Write payments to the source until the time is over or Ctrl-C. Exit 0: at the rate, 3: fell short of it."""
    from migverify_lab.workload import Workload, WorkloadOptions
    from migverify_lab.workload import create as create_tables

    source_server, target_server = lab_pair(directory, source, target)
    planned = changes or int(rate * seconds) or 1 << 60
    options = WorkloadOptions(
        source_server, database, rate, planned, connections, per_transaction, accounts, hot, seed,
        0.0 if changes else seconds + (GRACE_SECONDS if rate else 0.0),
    )  # fmt: skip
    if create:
        create_tables((source_server, target_server), database, accounts, seed)
        say(f"made the payment tables in {database} on {source_server} and {target_server}")
    load = Workload(options, _teller())
    with handled(ENDING, lambda _: load.stop()):
        result = load.run()
    short = rate > 0 and result.changes < planned
    document = {
        "changes": result.changes, "transactions": result.transactions, "seconds": round(result.seconds, 3),
        "rate": round(result.rate, 1), "wanted": rate, "late": round(result.late, 3), "short": short,
    }  # fmt: skip
    if as_json:
        typer.echo(json.dumps(document))
    else:
        typer.echo(f"{result.changes} row changes in {result.transactions} transactions, {result.seconds:.1f} s: "
                   f"{result.rate:.0f}/s of {rate:.0f}/s, at most {result.late:.2f} s late")  # fmt: skip
    if short:
        raise typer.Exit(ExitCode.INCONCLUSIVE)


def _teller() -> Callable[[WorkloadResult], None]:
    last_said = [time.monotonic(), 0.0]

    def tell(result: WorkloadResult) -> None:
        now = time.monotonic()
        if now - last_said[0] >= STATUS_SECONDS:
            say(f"{result.changes} row changes, {(result.changes - last_said[1]) / (now - last_said[0]):.0f}/s")
            last_said[:] = [now, float(result.changes)]

    return tell
