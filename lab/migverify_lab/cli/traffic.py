"""``migverify lab traffic``: sessions of a payment service on the source, kept by the server's own log."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from migverify.cli.console import examples, say
from migverify.errors import UsageError
from migverify_lab.cli.options import Json, LabFolder, SourceServer, TargetServer, lab_pair

EPILOG = examples(
    "migverify lab traffic --log slow --out slow.log --plant",
    "migverify lab traffic --restore",
)


def traffic(
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The log to write, a file that is not there yet.")
    ] = None,
    log: Annotated[str, typer.Option(help="slow or general.")] = "slow",
    sessions: Annotated[int, typer.Option(min=1, help="Connections, all at once.")] = 12,
    statements: Annotated[int, typer.Option(min=1, help="Statements of each.")] = 60,
    accounts: Annotated[int, typer.Option(min=20, help="Accounts in all.")] = 2000,
    seed: Annotated[int, typer.Option(help="The same seed asks the same.")] = 1,
    database: Annotated[str, typer.Option(help="Database of the payment tables.")] = "pay",
    plant: Annotated[
        bool, typer.Option("--plant", help="Let some sessions ask what TiDB refuses or answers otherwise.")
    ] = False,
    restore: Annotated[
        bool,
        typer.Option("--restore", help="Only make both sides' tables anew, as before the traffic."),
    ] = False,
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
    as_json: Json = False,
) -> None:
    """Make the payment tables anew on both sides, then let clients of a service work on the source and log it."""
    from migverify.sql.quoting import quote_name
    from migverify_lab import traffic
    from migverify_lab.traffic_scripts import scripts

    if log not in list(traffic.Log):
        raise UsageError(f"--log {log}: no such log.", hint=f"One of {', '.join(traffic.Log)}.")
    made = scripts(quote_name(database), sessions, statements, accounts, seed, plant=plant)
    pair = lab_pair(directory, source, target)
    traffic.prepare(pair, database, accounts, seed)
    say(f"made the payment tables in {database} on {pair[0]} and {pair[1]}")
    if restore:
        return
    with traffic.logged(pair[0], traffic.Log(log), out) if out is not None else nullcontext():
        result = traffic.run(pair[0], made)
    if as_json:
        document = {"sessions": result.sessions, "statements": result.statements,
                    "seconds": round(result.seconds, 3), "errors": dict(sorted(result.errors.items()))}  # fmt: skip
        typer.echo(json.dumps(document))
        return
    refused = ", ".join(f"{number} x {count}" for number, count in sorted(result.errors.items())) or "none"
    typer.echo(f"{result.statements} statements in {result.sessions} sessions, {result.seconds:.1f} s;"
               f" refused by the source: {refused}")  # fmt: skip
    if out is not None:
        typer.echo(f"{out}: {out.stat().st_size:,} bytes of {log} log")
