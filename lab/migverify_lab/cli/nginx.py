"""``migverify lab nginx``: real nginx in front of an old and a new side, with writes, faults and ledgers."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples, say
from migverify.errors import ExitCode, LabError
from migverify_lab.cli.options import Dud, is_dud

if TYPE_CHECKING:
    from migverify_lab.nginx import NginxFleet

app = typer.Typer(
    name="nginx", no_args_is_help=True, help="nginx in front of an old and a new side: load, faults, ledgers."
)

Folder = Annotated[Path, typer.Option("--dir", metavar="FOLDER", help="Folder of the instances and ledgers.")]
DEFAULT = Path("migverify-nginx")


def _open(folder: Path) -> NginxFleet:
    from migverify_lab.nginx import NginxFleet

    return NginxFleet(folder)


@app.command(epilog=examples("migverify lab nginx up --instances 2", "migverify lab nginx up --ladder 10,50,100"))
def up(
    directory: Folder = DEFAULT,
    instances: Annotated[int, typer.Option(min=1, max=8, help="How many nginx share the traffic.")] = 2,
    carries: Annotated[str, typer.Option(help="reads or writes.")] = "writes",
    ladder: Annotated[str, typer.Option(help="Shares in percent, with commas.")] = "1,5,25,50,100",
    tolerance: Annotated[float | None, typer.Option(help="Points of percent; default: by the share.")] = None,
) -> None:
    """Make instances with a traffic file at a share of 0 %, and start them; those of a folder are started again."""
    from migverify_lab.nginx import make, provide

    if (directory / "world.json").exists():
        world = _open(directory)
        world.start()
    else:
        world = make(directory, instances, provide(say))
        more = f"ladder: [{ladder}]" + (f"\ntolerance: {tolerance:g}" if tolerance is not None else "")
        world.traffic.write_text(world.traffic_text(carries=carries, more=more))
        _begin(world.traffic)
        world.start()
    for one in world.instances:
        typer.echo(f"{one.name}  http://127.0.0.1:{one.port}/  status http://127.0.0.1:{one.status}/traffic")
    typer.echo(f"traffic file {world.traffic}")


def _begin(traffic: Path) -> None:
    from migverify.runbook.actions.action import Context
    from migverify.runbook.traffic.actions import driver_of
    from migverify.runbook.traffic.change import begin
    from migverify.runbook.traffic.document import load_traffic

    context = Context("", "", 0, 0, 60.0, threading.Event())
    begin(driver_of(load_traffic(traffic), context))


@app.command(epilog=examples("migverify lab nginx down"))
def down(directory: Folder = DEFAULT) -> None:
    """Stop load, instances and sides; files stay."""
    _open(directory).stop()


@app.command(epilog=examples("migverify lab nginx load start --rate 300", "migverify lab nginx load stop"))
def load(
    what: Annotated[str, typer.Argument(help="start, stop or wait.")],
    directory: Folder = DEFAULT,
    rate: Annotated[float, typer.Option(min=1, help="Writes a second.")] = 300,
    keys: Annotated[int, typer.Option(min=1, help="Different keys.")] = 20_000,
    seconds: Annotated[
        float, typer.Option(help="With `wait`: until the load has made progress, at most so long.")
    ] = 10,
) -> None:
    """Send writes with keys through all instances, until stopped; `wait` until some more were acknowledged."""
    world = _open(directory)
    if what == "start":
        world.start_load(rate=rate, keys=keys)
    elif what == "stop":
        world.stop_job("load")
    elif what == "wait":
        _wait_for_load(world, seconds)
    else:
        raise LabError(f"load {what}: there is no such command", hint="One of start, stop, wait.")


def _wait_for_load(world: NginxFleet, seconds: float) -> None:
    from migverify_lab.nginx_load import LEDGER

    ledger = world.folder / LEDGER
    size = ledger.stat().st_size if ledger.exists() else 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if ledger.exists() and ledger.stat().st_size > size + 4000:
            return
        time.sleep(0.1)
    raise LabError(f"within {seconds:g} s no more writes were acknowledged")


@app.command(epilog=examples("migverify lab nginx balance"))
def balance(directory: Folder = DEFAULT) -> None:
    """Hold the ledgers against each other: every acknowledged write exactly once, on the side that said so.

    Exit 0: so it is, 1: it is not, 3: there was nothing to look at.
    """
    from migverify_lab.nginx_load import balance as check

    found = check(directory)
    typer.echo(json.dumps(found.as_dict()))
    if not found.acked:
        raise typer.Exit(ExitCode.INCONCLUSIVE)
    if not found.good:
        raise typer.Exit(ExitCode.MISMATCH)


@app.command(epilog=examples("migverify lab nginx crash --share 5 --expected 1 --at 2"))
def crash(
    share: Annotated[float, typer.Option(help="Share that is being set.")],
    expected: Annotated[float, typer.Option(help="Share that is there.")],
    directory: Folder = DEFAULT,
    at: Annotated[int, typer.Option(min=1, help="The writer is killed at its reload of this number.")] = 1,
    dud: Dud = "none",
) -> None:
    """Have a writer of the share killed with SIGKILL between writing a file and its reload.

    Exit 0: it was killed there, 1: it was not.
    """
    world = _open(directory)
    if is_dud(dud, "inject"):
        return
    counter, copy = world.folder / "reloads", world.folder / "crash.yaml"
    counter.write_text("0")
    text = world.traffic.read_text()
    for one in world.instances:
        reload_ = one.argv("-s", "reload")
        deadly = (
            f"n=$(($(cat {counter}) + 1)); echo $n > {counter}; [ $n -ge {at} ] && kill -9 $PPID && exit 1;"
            f" exec {shlex.join(reload_)}"
        )
        text = text.replace(json.dumps(reload_), json.dumps(["sh", "-c", deadly]))
    copy.write_text(text)
    argv = [sys.executable, "-m", "migverify", "runbook", "traffic", "set", str(copy), "--share", f"{share:g}",
            "--expected", f"{expected:g}"]  # fmt: skip
    done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603
    typer.echo(f"the writer ended with {done.returncode}{f': {done.stderr.strip()[-300:]}' if done.stderr else ''}")
    if done.returncode != -9:
        raise typer.Exit(ExitCode.MISMATCH)
