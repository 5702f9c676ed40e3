"""``migverify lab feed reverse``: TiDB's changes as TiCDC's messages, and MySQL that follows them, with faults."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples, say
from migverify.errors import UsageError
from migverify_lab.cli.options import LabFolder, SourceServer, TargetServer, lab_folder, lab_pair, signal_event

if TYPE_CHECKING:
    from migverify_lab.feed.run import ReverseFeed

app = typer.Typer(
    name="feed",
    no_args_is_help=True,
    help="A feed from TiDB back to MySQL in the formats of TiCDC. For rehearsals only.",
)

POLL_SECONDS = 0.2


@app.command(
    epilog=examples(
        "migverify lab feed reverse --polled shop.orders,ops.canary",
        "migverify lab feed reverse --load pay --rate 1000 --kafka 127.0.0.1:9092 --protocol open-protocol",
        "migverify lab feed reverse --polled shop.orders --out /tmp/feed --fault message-lost:at=3,table=orders",
    )
)
def reverse(
    polled: Annotated[
        str, typer.Option(metavar="TABLES", help="Small tables to carry, whoever writes them: database.table,...")
    ] = "",
    load: Annotated[
        str, typer.Option(metavar="DATABASE", help="Write payments to this database of TiDB, and carry them.")
    ] = "",
    rate: Annotated[
        float, typer.Option(min=0, help="With --load: row changes per second; 0: as fast as it goes.")
    ] = 100.0,
    connections: Annotated[int, typer.Option(min=1, help="With --load: connections.")] = 2,
    per_transaction: Annotated[int, typer.Option(min=1, help="With --load: row changes of a transaction.")] = 20,
    accounts: Annotated[int, typer.Option(min=1, help="With --load: accounts; the tables are made anew.")] = 200,
    protocol: Annotated[str, typer.Option(help="canal-json or open-protocol.")] = "canal-json",
    kafka: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Send to this broker; else messages go to files.")
    ] = "",
    topic: Annotated[str, typer.Option(help="Topic; made where it does not exist.")] = "reverse",
    out: Annotated[
        Path | None,
        typer.Option("--out", "--file", metavar="FOLDER", help="Folder of the files. [default: in the lab's]"),
    ] = None,
    storage: Annotated[
        bool, typer.Option("--storage", help="Write the folder of TiCDC's storage sink; MySQL does not follow.")
    ] = False,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of a new topic, or files.")] = 2,
    dispatch: Annotated[str, typer.Option(help="index-value (by key) or table.")] = "index-value",
    old: Annotated[str, typer.Option(help="Old values of updates: all, changed or off.")] = "all",
    apply: Annotated[bool, typer.Option("--apply/--no-apply", help="Whether MySQL follows.")] = True,
    fault: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="NAME[:ARG]", help="Do something wrong; repeatable. See docs/lab.md."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses rows of the faults, and the load's rows.")] = 1,
    name: Annotated[str, typer.Option(help="Its row in MySQL's checkpoint table.")] = "reverse",
    since: Annotated[
        int, typer.Option(metavar="TSO", help="Where it begins without a checkpoint; 0 is now.", min=0)
    ] = 0,
    idle_checkpoints: Annotated[
        bool,
        typer.Option(
            "--idle-checkpoints/--no-idle-checkpoints", help="Record the position while nothing changes, too."
        ),
    ] = True,
    user: Annotated[str, typer.Option(help="Account that writes to MySQL; made where it does not exist.")] = "feed",
    directory: LabFolder = None,
    source: SourceServer = "",
    target: TargetServer = "",
) -> None:
    """Carry changes from the target back to the source until Ctrl-C.

    Prints each fault that it did as one JSON line, and at the end one line with what differs because of them.
    """
    from migverify_lab.feed.run import feed
    from migverify_lab.replicator import BANNER
    from migverify_lab.session import LabServers
    from migverify_lab.workload import create

    tables = tuple(part.strip() for part in polled.split(",") if part.strip())
    if not tables and not load:
        raise UsageError("nothing to carry", hint="Say --polled DATABASE.TABLE or --load DATABASE.")
    pair = LabServers(*lab_pair(directory, source, target))
    say(BANNER.replace("replicator", "feed      ").replace("the target", "the source"))
    if load:
        create((pair.source, pair.target), load, accounts, seed)
    folder = out or lab_folder(directory) / "feed" / name
    ended = signal_event()
    with feed(
        pair, folder, tables=(f"{load}.*",) if load else (), polled=tables, protocol=protocol, topic=topic,
        out="storage" if storage else "kafka" if kafka else "files", servers=kafka, partitions=partitions,
        dispatch=dispatch, old=old, apply=apply and not storage, faults=tuple(fault or ()), seed=seed, name=name,
        since=since, user=user, idle_checkpoints=idle_checkpoints,
    ) as running:  # fmt: skip
        say(f"{pair.target} -> {f'{kafka} topic {topic}' if kafka else folder}"
            f"{f' -> {pair.source}' if running.applier is not None else ''}, from tso:{running.start}")  # fmt: skip
        if load:
            _write(running, ended, load, rate, connections, per_transaction, accounts, seed)
        _follow(running, ended)
        _tell_ending(running)


def _write(
    running: ReverseFeed, ended: threading.Event, database: str, rate: float, connections: int, per_transaction: int,
    accounts: int, seed: int,
) -> None:  # fmt: skip
    """Let payments be written on threads until the command ends; a load that fails ends it."""
    from migverify.errors import MigverifyError
    from migverify_lab.workload import Workload, WorkloadOptions

    options = WorkloadOptions(running.pair.target, database, rate, 1 << 60, connections, per_transaction, accounts,
                              seed=seed)  # fmt: skip
    load = Workload(options, open_connection=running.connect)

    def write() -> None:
        try:
            load.run()
        except MigverifyError as error:
            running.failure = error

    def stop() -> None:
        ended.wait()
        load.stop()

    thread = threading.Thread(target=write, name="load", daemon=True)
    thread.start()
    threading.Thread(target=stop, daemon=True).start()
    running.writers.append(thread)


def _follow(running: ReverseFeed, ended: threading.Event) -> None:
    """Print faults as they are done until a signal, or what ended the feed."""
    printed = [0, 0, 0]
    while not ended.wait(POLL_SECONDS):
        running.check()
        _tell_faults(running, printed)
    for thread in running.writers:
        thread.join(30)
    running.settle()
    _tell_faults(running, printed)


def _tell_faults(running: ReverseFeed, printed: list[int]) -> None:
    for number, faults in enumerate(running.fault_lists):
        for done in faults[printed[number] :]:
            typer.echo(json.dumps(done.as_dict(), ensure_ascii=False))
        printed[number] = len(faults)


def _tell_ending(running: ReverseFeed) -> None:
    from migverify_lab.replicator_faults import difference_dict

    typer.echo(json.dumps({
        "resolved": running.watermark, "rows": running.emitter.rows,
        "applied": str(running.applier.status.at) if running.applier is not None else "",
        "standing": [difference_dict(difference) for difference in running.standing()],
    }, ensure_ascii=False))  # fmt: skip
