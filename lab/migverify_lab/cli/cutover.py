"""``migverify lab cutover``: the world of a cutover rehearsal, and the verbs that its runbook asks of hooks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples
from migverify.errors import ExitCode
from migverify_lab.cli.options import LabFolder

if TYPE_CHECKING:
    from pathlib import Path

    from migverify_lab.cutover import Rehearsal

app = typer.Typer(
    name="cutover",
    no_args_is_help=True,
    help="The world of a cutover rehearsal: a shop on the pair, its application, a feed each way.",
)

Side = Annotated[str, typer.Argument(help="source or target.", metavar="source|target")]


def _world(directory: Path | None) -> Rehearsal:
    from migverify_lab.cutover import rehearsal

    return rehearsal(directory)


@app.command(epilog=examples("migverify lab cutover prepare", "migverify lab cutover prepare --mistake stale-ids"))
def prepare(
    mistake: Annotated[
        str,
        typer.Option(
            help="keep-sessions, feed-keeps-running, stale-ids, reverse-dead or reverse-drops: a gate has to notice."
        ),
    ] = "",
    directory: LabFolder = None,
) -> None:
    """Make the shop anew on both sides, equal; the application may write on the source only."""
    from migverify_lab.cutover import prepare as make

    found = _world(directory)
    make(found, mistake)
    typer.echo(f"config  {found.config}")


@app.command("app", epilog=examples("migverify lab cutover app start --rate 40", "migverify lab cutover app stop"))
def application(
    what: Annotated[str, typer.Argument(metavar="start|stop", help="start or stop.")],
    clients: Annotated[int, typer.Option(min=1, help="Connections.")] = 3,
    rate: Annotated[float, typer.Option(min=0.1, help="Transactions per second over all clients.")] = 20.0,
    directory: LabFolder = None,
) -> None:
    """Start or stop the application: it writes where `traffic` sends it, and keeps a ledger."""
    from migverify_lab.cutover import application as tell

    typer.echo(tell(_world(directory), what, clients, rate))


@app.command(epilog=examples("migverify lab cutover writes source stop"))
def writes(
    side: Side,
    what: Annotated[str, typer.Argument(metavar="stop|open", help="stop or open.")],
    directory: LabFolder = None,
) -> None:
    """Stop or open the application's writes on a side."""
    from migverify_lab.cutover import writes as tell

    typer.echo(tell(_world(directory), side, what))


@app.command(epilog=examples("migverify lab cutover traffic target"))
def traffic(
    side: Annotated[str, typer.Argument(metavar="source|target|none", help="Where the application writes.")],
    directory: LabFolder = None,
) -> None:
    """Send the application to a side."""
    from migverify_lab.cutover import traffic as tell

    typer.echo(tell(_world(directory), side))


@app.command(epilog=examples("migverify lab cutover feed forward status", "migverify lab cutover feed reverse start"))
def feed(
    way: Annotated[str, typer.Argument(metavar="forward|reverse", help="Which feed.")],
    what: Annotated[str, typer.Argument(metavar="start|stop|status", help="What to do.")],
    scope: Annotated[str, typer.Argument(metavar="all|canary", help="Of the reverse feed: what it carries.")] = "all",
    directory: LabFolder = None,
) -> None:
    """Start or stop a feed, or print its status: running or stopped."""
    from migverify_lab.cutover import feed as tell

    typer.echo(tell(_world(directory), way, what, scope))


@app.command(epilog=examples("migverify lab cutover watch reverse start", "migverify lab cutover watch reverse status"))
def watch(
    way: Annotated[str, typer.Argument(metavar="reverse", help="Which watch.")],
    what: Annotated[str, typer.Argument(metavar="start|resume|stop|status", help="What to do.")],
    directory: LabFolder = None,
) -> None:
    """Start, go on with or stop the watch that follows the target, or print its status: running or stopped."""
    from migverify_lab.cutover_watch import watch as tell

    typer.echo(tell(_world(directory), way, what))


@app.command(epilog=examples("migverify lab cutover ids"))
def ids(directory: LabFolder = None) -> None:
    """Set the target's id counters above what is in its tables."""
    from migverify_lab.cutover import rebase_ids

    typer.echo(rebase_ids(_world(directory)))


@app.command(epilog=examples("migverify lab cutover proof target", "migverify lab cutover proof source --json"))
def proof(side: Side, directory: LabFolder = None) -> None:
    """Hold the data of a side against the application's ledger; exit 0: nothing lost or twice, 1: something is."""
    from migverify_lab.cutover_app import prove

    found = prove(_world(directory), side)
    typer.echo(json.dumps(found.as_dict()))
    if not found.good:
        raise typer.Exit(ExitCode.MISMATCH)


@app.command(
    epilog=examples("migverify lab cutover history prepare", "migverify lab cutover history load 2025-01-01 2025-02-01")
)
def history(
    verb: Annotated[str, typer.Argument(metavar="VERB", help="prepare, backup, backed-up, load, loaded or unload.")],
    start: Annotated[str, typer.Argument(metavar="FROM", help="First day.")] = "",
    end: Annotated[str, typer.Argument(metavar="TO", help="Last day, exclusive.")] = "",
    mistake: Annotated[
        str, typer.Option(help="With prepare: lose-row leaves a row out, and says that it did not.")
    ] = "",
    directory: LabFolder = None,
) -> None:
    """Make months of history, back one up, load it into the target, or take it away again."""
    from migverify_lab.cutover_history import history as tell

    typer.echo(tell(_world(directory), verb, start, end, mistake))


@app.command(epilog=examples("migverify lab cutover mend"))
def mend(directory: LabFolder = None) -> None:
    """Take a planted mistake away; what it did already stays as it is. Start a dead reverse feed again afterwards."""
    from migverify_lab.cutover import mend as tell

    typer.echo(tell(_world(directory)))
