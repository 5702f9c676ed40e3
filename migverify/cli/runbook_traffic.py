"""``migverify runbook traffic``: look at a share of traffic, begin, change it and put it back by hand."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import examples, json_text, say
from migverify.errors import ExitCode, MigverifyError, UsageError

if TYPE_CHECKING:
    from migverify.runbook.actions.action import Context
    from migverify.runbook.traffic.change import ChangeResult

app = typer.Typer(
    name="traffic", no_args_is_help=True, help="Shares of traffic between the old and the new side: show, set, abort."
)

TrafficFile = Annotated[Path, typer.Argument(metavar="TRAFFIC", help="The traffic file (traffic/v1).")]
ShareOption = Annotated[float, typer.Option("--share", metavar="PERCENT", help="Share of the new side.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
_EXITS = {"done": ExitCode.MATCH, "refused": ExitCode.MISMATCH, "put back": ExitCode.MISMATCH}


def _context() -> Context:
    from migverify.runbook.actions.action import Context

    return Context("", "", 0, 0, 600.0, threading.Event())


@app.command(epilog=examples("migverify runbook traffic init pay.traffic.yaml"))
def init(traffic: TrafficFile) -> None:
    """Write the first setting of every instance, at 0 %, and print what its configuration needs."""
    from migverify.runbook.traffic.actions import driver_of
    from migverify.runbook.traffic.change import begin
    from migverify.runbook.traffic.document import NginxPart, load_traffic
    from migverify.runbook.traffic.nginx import snippets

    loaded = load_traffic(traffic)
    begin(driver_of(loaded, _context()))
    part = loaded.driver
    if not isinstance(part, NginxPart):
        say("every instance is configured for 0 %; apply it with traffic abort --share 0")
        return
    for one in part.instances:
        typer.echo(f"# --- {one.name}\n{snippets(part, one)}")


@app.command(
    epilog=examples(
        "migverify runbook traffic show pay.traffic.yaml", "migverify runbook traffic show pay.traffic.yaml --json"
    )
)
def show(traffic: TrafficFile, as_json: JsonOption = False) -> None:
    """Show what every instance has written, what it serves, and what was measured since the change.

    Exit 0: all instances serve one share, and it is what was measured; 1: it is not; 3: that cannot be said.
    """
    from migverify.runbook.traffic.actions import driver_of
    from migverify.runbook.traffic.change import look
    from migverify.runbook.traffic.document import load_traffic
    from migverify.runbook.traffic.measure import judge_instances, measure
    from migverify.runbook.traffic.model import percent

    loaded = load_traffic(traffic)
    driver = driver_of(loaded, _context())
    state = look(driver)
    verdict, text, counts = "inconclusive", state.why, {}
    if state.share is not None:
        try:
            found = measure(driver)
            verdict, text = judge_instances(state.share, found, loaded, sticky=driver.sticky)
            counts = found.as_json()
        except MigverifyError as error:
            text = error.message
    share = None if state.share is None else state.share / 100
    if as_json:
        content = {"traffic": loaded.id, "share": share, "verdict": verdict, "text": text, "instances": state.as_json(),
                "measured": counts}  # fmt: skip
        typer.echo(json_text(content, indent=2))
    else:
        for name in state.written:
            typer.echo(f"{name}: configured {state.written[name]}, served {state.served[name]}")
        said = "no common share" if state.share is None else f"{percent(state.share)} %"
        typer.echo(f"{loaded.id}: {said}; {verdict}: {text}")
    code = {"pass": ExitCode.MATCH, "fail": ExitCode.MISMATCH}.get(verdict, ExitCode.INCONCLUSIVE)
    if code is not ExitCode.MATCH:
        raise typer.Exit(code)


@app.command("set", epilog=examples("migverify runbook traffic set pay.traffic.yaml --share 5 --expected 1"))
def set_(
    traffic: TrafficFile,
    share: ShareOption,
    expected: Annotated[float, typer.Option("--expected", metavar="PERCENT", help="Share that has to be there now.")],
) -> None:
    """Move the share by one step of the ladder, on all instances or on none.

    Exit 0: every instance serves it; 1: refused, or put back as it was; 3: in doubt, look at every instance.
    """
    from migverify.runbook.traffic.actions import driver_of
    from migverify.runbook.traffic.change import change
    from migverify.runbook.traffic.document import load_traffic
    from migverify.runbook.traffic.model import hundredths

    loaded = load_traffic(traffic)
    _tell(change(driver_of(loaded, _context()), hundredths(share), hundredths(expected), loaded.rungs))


@app.command("abort", epilog=examples("migverify runbook traffic abort pay.traffic.yaml --share 0"))
def abort_(traffic: TrafficFile, share: ShareOption) -> None:
    """Put the share back on every instance, in any state.

    Exit 0: every instance serves it; 3: in doubt, look at every instance.
    """
    from migverify.runbook.traffic.actions import driver_of
    from migverify.runbook.traffic.change import abort, look
    from migverify.runbook.traffic.document import load_traffic
    from migverify.runbook.traffic.model import hundredths

    loaded = load_traffic(traffic)
    driver = driver_of(loaded, _context())
    now = look(driver).share
    if now is not None and hundredths(share) > now:
        raise UsageError(f"{share:g} % is more than the {now / 100:g} % that is served", hint="Use traffic set.")
    _tell(abort(driver, hundredths(share)))


def _tell(found: ChangeResult) -> None:
    typer.echo(f"{found.outcome}: {found.text}")
    code = _EXITS.get(found.outcome, ExitCode.INCONCLUSIVE)
    if code is not ExitCode.MATCH:
        raise typer.Exit(code)
