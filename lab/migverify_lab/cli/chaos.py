"""``migverify lab chaos``: faults for disaster recovery cases, injected, proved, removed and proved to be gone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples
from migverify.errors import ExitCode, UsageError
from migverify_lab.cli.options import Dud, Json, LabFolder, is_dud, lab_folder

if TYPE_CHECKING:
    from migverify_lab.chaos_world import CaseWorkspace
    from migverify_lab.workspace import Proof

app = typer.Typer(
    name="chaos",
    no_args_is_help=True,
    help="Faults for disaster recovery cases: inject, prove that it hit, remove, prove that it is gone.",
)

FaultName = Annotated[str, typer.Argument(help="Name of the fault; see `list`.")]
Given = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting; repeatable.")]
Within = Annotated[float, typer.Option("--within", metavar="SECONDS", min=0, help="Look again until then.")]


def _world(directory: Path | None) -> CaseWorkspace:
    from migverify_lab.chaos_world import CaseWorkspace

    return CaseWorkspace(lab_folder(directory))


def _given(texts: list[str] | None) -> dict[str, str]:
    found = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"not a setting: {text!r}", hint="Write --set name=value.")
        found[name] = value
    return found


def _tell(proof: Proof, as_json: bool) -> None:
    """Print what was seen; exit 0 good, 1 not good, 3 not to be seen."""
    word = {True: "yes", False: "no", None: "not to be seen"}[proof.good]
    typer.echo(json.dumps(asdict(proof), ensure_ascii=False) if as_json else f"{word}: {proof.text}")
    if not proof.good:
        raise typer.Exit(ExitCode.INCONCLUSIVE if proof.good is None else ExitCode.MISMATCH)


@app.command("list")
def list_faults() -> None:
    """List the faults and their settings."""
    from migverify_lab import chaos

    for fault in chaos.catalog().values():
        settings = " ".join(f"{name}={value}" for name, value in fault.settings.items())
        typer.echo(f"{fault.name:26} {fault.about}{f'  [{settings}]' if settings else ''}")


@app.command(epilog=examples("migverify lab chaos start", "migverify lab chaos start --side target",
                             "migverify lab chaos start --replicate"))  # fmt: skip
def start(
    side: Annotated[str, typer.Option(help="Whose clients: source, target, or another server of the case.")] = "source",
    replicate: Annotated[
        bool, typer.Option("--replicate", help="The lab's replicator carries it to the target.")
    ] = False,
    ids: Annotated[
        str, typer.Option(help="Who makes ids: server, int (a narrow column), snowflake, naive.")
    ] = "server",
    rate: Annotated[float, typer.Option(min=1, help="Transactions per second.")] = 80.0,
    clients: Annotated[int, typer.Option(min=1, max=64, help="Clients.")] = 4,
    beside: Annotated[
        str, typer.Option("--with", help="What the case needs beside the pair, separated by commas.")
    ] = "",
    directory: LabFolder = None,
) -> None:
    """Bring the pair up, make the bank anew, and begin a load with a ledger of the answers its clients receive."""
    from migverify_lab import chaos_start

    found = chaos_start.start(_world(directory), side=side, ids=ids, rate=rate, clients=clients, replicate=replicate,
                              beside=tuple(part for part in beside.split(",") if part))  # fmt: skip
    typer.echo(found)


@app.command()
def stop(
    no_drain: Annotated[bool, typer.Option("--no-drain", help="Do not wait for the replicator.")] = False,
    directory: LabFolder = None,
) -> None:
    """End the load, let the replicator come to its end, and end everything a case started beside the servers."""
    from migverify_lab import chaos_start

    for line in chaos_start.stop(_world(directory), drain=not no_drain):
        typer.echo(line)


@app.command()
def stopped(directory: LabFolder = None) -> None:
    """Tell whether nothing of a case runs beside the servers; exits with 1 where something does."""
    from migverify_lab.workspace import Proof

    left = _world(directory).jobs()
    _tell(Proof(not left, f"{', '.join(left)} runs" if left else "nothing runs beside the servers"), as_json=False)


@app.command()
def steady(
    within: Within = 0.0,
    window: Annotated[float, typer.Option(min=0.5, help="Seconds that have to be without a failure.")] = 1.5,
    directory: LabFolder = None,
    as_json: Json = False,
) -> None:
    """Tell whether the load reaches its rate without a failure, and the replicator follows."""
    from migverify_lab import chaos_start
    from migverify_lab.workspace import until

    world = _world(directory)
    _tell(until(lambda: chaos_start.steady(world, window), within), as_json)


@app.command(
    epilog=examples(
        "migverify lab chaos inject mysql-killed", "migverify lab chaos inject server-frozen --set side=target"
    )
)
def inject(name: FaultName, settings: Given = None, dud: Dud = "none", directory: LabFolder = None) -> None:
    """Inject a fault."""
    from migverify_lab import chaos

    fault = chaos.find(name)
    done = chaos.inject(fault.opens(lab_folder(directory)), fault, fault.settings_with(_given(settings)),
                        dud=is_dud(dud, "inject"))  # fmt: skip
    typer.echo(json.dumps(done, ensure_ascii=False))


@app.command(epilog=examples("migverify lab chaos hit mysql-killed --within 10"))
def hit(
    name: FaultName, settings: Given = None, within: Within = 0.0, directory: LabFolder = None, as_json: Json = False
) -> None:
    """Prove from outside that a fault hit; exits with 1 where it did not."""
    from migverify_lab import chaos

    fault = chaos.find(name)
    found = chaos.hit(fault.opens(lab_folder(directory)), fault, fault.settings_with(_given(settings)), within)
    _tell(found, as_json)


@app.command()
def remove(name: FaultName, settings: Given = None, dud: Dud = "none", directory: LabFolder = None) -> None:
    """Remove a fault; what is not there is no error."""
    from migverify_lab import chaos

    fault = chaos.find(name)
    done = chaos.remove(fault.opens(lab_folder(directory)), fault, fault.settings_with(_given(settings)),
                        dud=is_dud(dud, "remove"))  # fmt: skip
    typer.echo(json.dumps(done, ensure_ascii=False))


@app.command()
def gone(
    name: FaultName, settings: Given = None, within: Within = 0.0, directory: LabFolder = None, as_json: Json = False
) -> None:
    """Prove from outside that a fault is gone; exits with 1 where it is not."""
    from migverify_lab import chaos

    fault = chaos.find(name)
    found = chaos.gone(fault.opens(lab_folder(directory)), fault, fault.settings_with(_given(settings)), within)
    _tell(found, as_json)


@app.command()
def record(
    name: FaultName,
    removed: Annotated[bool, typer.Option("--removed", help="Is its removal written down?")] = False,
    directory: LabFolder = None,
    as_json: Json = False,
) -> None:
    """Say what the injector recorded about a fault: that it was called, which proves nothing."""
    from migverify_lab import chaos
    from migverify_lab.workspace import Proof

    known = chaos.record_of(chaos.find(name).opens(lab_folder(directory)), name)
    good = known.get("removed" if removed else "injected") is not None
    _tell(Proof(good, f"{name} was {'' if good else 'not '}{'removed' if removed else 'injected'}", known), as_json)


@app.command()
def data(directory: LabFolder = None, as_json: Json = False) -> None:
    """Check the data: every acknowledged row exactly once, the bank's sum, the server's own check."""
    from migverify_lab import chaos_data

    _tell(chaos_data.data_check(_world(directory)), as_json)


@app.command()
def ids(
    blocked: Annotated[bool, typer.Option("--blocked", help="Expect the gate to block, and say so.")] = False,
    directory: LabFolder = None,
    as_json: Json = False,
) -> None:
    """Ask the gate of id headroom (`migverify guard ids`) about the bank; exits with 1 where it blocks."""
    from migverify_lab import chaos_start

    _tell(chaos_start.ids_gate(_world(directory), blocked=blocked), as_json)


@app.command()
def compare(directory: LabFolder = None, as_json: Json = False) -> None:
    """Compare all rows of the bank on source and target with `migverify tables verify`; both have to be quiet."""
    from migverify_lab import chaos_start

    _tell(chaos_start.compare(_world(directory)), as_json)


@app.command(epilog=examples("migverify lab chaos recovery mysql-killed --recovery 10 --stall 15"))
def recovery(
    name: FaultName,
    from_remove: Annotated[float | None, typer.Option("--recovery", help="Bar: seconds from the removal.")] = None,
    outage: Annotated[float | None, typer.Option("--outage", help="Bar: seconds from the fault.")] = None,
    stall: Annotated[float | None, typer.Option("--stall", help="Bar: longest time without a write, seconds.")] = None,
    codes: Annotated[
        str | None, typer.Option("--codes", help="The only error codes that clients may see, by commas; `none`.")
    ] = None,
    directory: LabFolder = None,
    as_json: Json = False,
) -> None:
    """Hold measured RTO and RPO against their bars; exits with 1 where one is over."""
    from migverify_lab import chaos, chaos_data

    allowed = None if codes is None else tuple(int(code) for code in codes.split(",") if code not in ("", "none"))
    bars = chaos_data.Bars(from_remove, outage, stall, allowed)
    _tell(chaos_data.measured(_world(directory), chaos.find(name).name, bars), as_json)
