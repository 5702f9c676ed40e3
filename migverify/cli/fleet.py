"""``migverify fleet``: many services at once: status, board, verify."""

from __future__ import annotations

import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.commands import add
from migverify.cli.console import JsonOption, examples, say
from migverify.cli.watching import ListenAddress, listen_address, period_seconds
from migverify.errors import ExitCode, StoreError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from migverify.fleet.definition import Fleet, FleetService
    from migverify.fleet.read import ServiceView
    from migverify.report.model import Report
    from migverify.report.render import Format

app = typer.Typer(no_args_is_help=True, help="Many services at once: who may cut over tonight, and why not.")

STATUS_EPILOG = examples(
    "migverify fleet status", "migverify fleet status --wave first",
    "migverify fleet status --json | jq -r '.services[] | [.service, .standing, .sentence] | @tsv'",
)  # fmt: skip
BOARD_EPILOG = examples(
    "migverify fleet board -o fleet.html", "migverify fleet board --listen 127.0.0.1:8770",
    "migverify fleet board --listen 0.0.0.0:8770 --every 1m   # for the wall screen of a trusted network",
)  # fmt: skip
VERIFY_EPILOG = examples(
    "migverify fleet verify", "migverify fleet verify --plan", "migverify fleet verify --wave first --json",
)  # fmt: skip

FleetOption = Annotated[
    Path,
    typer.Option("--fleet", envvar="MIGVERIFY_FLEET", show_envvar=True, metavar="FILE", help="The fleet file."),
]
DEFAULT_FLEET = Path("fleet.yaml")
ServicesOption = Annotated[
    list[str] | None, typer.Option("--service", "-s", metavar="NAME", help="Only this service; repeatable.")
]
WavesOption = Annotated[
    list[str] | None, typer.Option("--wave", "-w", metavar="NAME", help="Only services of this wave; repeatable.")
]


def status(
    fleet: FleetOption = DEFAULT_FLEET,
    service: ServicesOption = None,
    wave: WavesOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say of each service whether it is provably ready to cut over, and why it is not, in one sentence.

    Reads stores, ledgers and journals; no server of the migration is asked. Exit 0: all are ready or cut over, 1: one
    is not ready or a wave does not fit into its window, 3: not known.
    """
    from migverify.report.render import Format, render

    report = _report(fleet, service, wave, Format.TEXT)
    if as_json:
        typer.echo(json.dumps(report.document, ensure_ascii=False))
    else:
        typer.echo(render(report, Format.TEXT, color=sys.stdout.isatty()), nl=False)
    raise typer.Exit(int(report.exit_code))


def board(
    fleet: FleetOption = DEFAULT_FLEET,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the board once: .html, .json, .prom, .xml or .txt."),
    ] = None,
    listen: Annotated[
        ListenAddress | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            parser=listen_address,
            help="Serve it live, with /metrics and /fleet.json.",
        ),
    ] = None,
    every: Annotated[
        float,
        typer.Option(
            "--every",
            metavar="TIME",
            parser=period_seconds,
            help="With --listen: read all anew so often (30s, 2m); a plain number is seconds.",
        ),
    ] = 30.0,
    service: ServicesOption = None,
    wave: WavesOption = None,
) -> None:
    """Show every service on one page that needs nothing from elsewhere: in a file, or live. It can only be read.

    With --out the exit code is that of `fleet status`. With --listen the page is read anew every few seconds until
    Ctrl-C; a fleet file that cannot be read meanwhile is said on the page.
    """
    if (out is None) == (listen is None):
        raise UsageError("name a file with --out, or an address with --listen",
                         hint="migverify fleet board -o fleet.html")  # fmt: skip
    if listen is not None:
        _serve(fleet, listen, every, service, wave)
        return
    from migverify.report.render import Format, format_of, render, write_report

    form = format_of(out)
    if out is not None and form is Format.TEXT and out.suffix.lower() not in ("", ".txt"):
        raise UsageError(f"--out {out}: no form of a board has the suffix {out.suffix}",
                         hint="Name a .html, .json, .prom, .xml or .txt file.")  # fmt: skip
    report = _report(fleet, service, wave, form)
    if out is not None:
        write_report(out, render(report, form), private=False)
        say(f"wrote {out}: {report.word}")
    raise typer.Exit(int(report.exit_code))


def _report(fleet: Path, services: list[str] | None, waves: list[str] | None, form: Format) -> Report:
    """Return the report of a fleet; what shows it in a form is loaded while a second process reads."""
    from migverify.fleet.load import load_fleet
    from migverify.fleet.read import read_fleet

    def load_board() -> None:
        from migverify.report.render import prepare

        import_module("migverify.fleet.board")
        prepare(form)

    loaded, now = load_fleet(fleet, with_wrong=True), time.time()
    is_chosen = chosen(loaded, services, waves)
    views = read_fleet(loaded, now=now, meanwhile=load_board)
    from migverify.fleet.board import fleet_report, state_of

    return fleet_report(state_of(loaded, now, views, is_chosen))


def _serve(
    fleet: Path, address: ListenAddress, every: float, services: list[str] | None, waves: list[str] | None
) -> None:
    from migverify.cli.runbook_page import serve_until_stopped
    from migverify.fleet.live import BoardServer, make_pages
    from migverify.fleet.load import load_fleet

    def wanted(loaded: Fleet) -> Callable[[FleetService], bool] | None:
        return chosen(loaded, services, waves)

    wanted(load_fleet(fleet, with_wrong=True))  # a wrong name is said at once
    with BoardServer(lambda: make_pages(fleet, wanted, every), *address, every) as server:
        server.start()
        try:
            serve_until_stopped(server, "board")
        finally:
            server.stop()


def verify(
    fleet: FleetOption = DEFAULT_FLEET,
    service: ServicesOption = None,
    wave: WavesOption = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what would be done for each service, and do nothing.")
    ] = False,
    now: Annotated[
        bool, typer.Option("--now", help="Work outside of the window of limits.verify too, until it closes next.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Prove the tables of many services: by wave and age of proof, within one budget of connections and one window.

    A proof that is younger than proof_max_age is named and not made again; what was cut off is resumed. Exit 0: every
    service is MATCH, 1: one is MISMATCH, 3: one is not proved, or with --plan cannot be, 130: stopped by Ctrl-C.
    """
    from migverify.cli.fleet_view import ended_line, plan_lines, summary_lines, verify_document, verify_steps
    from migverify.cli.watching import stop_on_signals
    from migverify.fleet.budget import server_names
    from migverify.fleet.load import load_fleet
    from migverify.fleet.read import read_fleet
    from migverify.fleet.verify import FleetVerifier, verify_lock
    from migverify.fleet.verify_plan import VerifyAction, never_begins, plan_verifications
    from migverify.model import judged_document

    loaded = load_fleet(fleet)
    is_chosen = chosen(loaded, service, wave)
    closes = _closes(loaded, now=now or plan)
    with stop_on_signals() as stopped:
        if plan:
            views = read_fleet(loaded, wanted=is_chosen or (lambda _: True))
            _warn(loaded, views)
            tasks = plan_verifications(loaded, views, server_names)
            typer.echo("\n".join(plan_lines(loaded, tasks)))
            is_possible = all(task.action is not VerifyAction.NONE and not never_begins(loaded, task) for task in tasks)
            raise typer.Exit(int(ExitCode.MATCH if is_possible else ExitCode.INCONCLUSIVE))
        with verify_lock(loaded) as lock:
            # Read under the lock: another one may have proved something meanwhile.
            views = read_fleet(loaded, wanted=is_chosen or (lambda _: True))
            _warn(loaded, views)
            tasks = plan_verifications(loaded, views, server_names)
            verifier = FleetVerifier(
                loaded, closes, stopped.is_set, lambda task: say(f"{task.service.name}: {task.action}, {task.why}"),
                lambda ended: None if as_json else typer.echo(ended_line(ended)),
            )  # fmt: skip
            found = verifier.run(tasks, lock)
    steps = tuple(verify_steps(loaded, found))
    if as_json:
        document = verify_document(loaded, found).model_dump(mode="json")
        typer.echo(json.dumps(judged_document(document, steps), ensure_ascii=False))
    else:
        typer.echo("\n".join(summary_lines(found, steps)))
    raise typer.Exit(int(found.exit_code))


def _warn(fleet: Fleet, views: Sequence[ServiceView]) -> None:
    """Say what of the file is probably not meant, such as a limit of connections for a server that no service has."""
    from migverify.fleet.read import fleet_warnings

    for words in fleet_warnings(fleet, views):
        say(f"warning: {fleet.path}: {words}")


def _closes(fleet: Fleet, *, now: bool) -> float | None:
    """Return when the window for verifications closes; None: there is none.

    Raises
    ------
    UsageError
        it is closed now.
    """
    window, moment = fleet.limits.verify, time.time()
    if window is None:
        return None
    closes = window.closes(moment)
    if closes is not None:
        return closes
    if now:
        return window.opens(moment) + window.duration
    opens = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(window.opens(moment)))
    raise StoreError(f"the window of limits.verify is closed: it opens at {opens}",
                     hint="Nothing was begun; --now begins outside of it.")  # fmt: skip


def chosen(fleet: Fleet, services: list[str] | None, waves: list[str] | None) -> Callable[[FleetService], bool] | None:
    """Return whether a service is chosen by its name and its wave; None: all are.

    Raises
    ------
    UsageError
        there is no such service or wave, or no service is of both.
    """
    if not services and not waves:
        return None
    known = {"service": [one.name for one in fleet.services], "wave": [one.name for one in fleet.waves]}
    for kind, names in (("service", services), ("wave", waves)):
        for name in names or []:
            if name not in known[kind]:
                raise UsageError(f"--{kind} {name}: {fleet.path} has none of that name",
                                 hint=f"It has {', '.join(known[kind][:20])}.")  # fmt: skip

    def is_chosen(service: FleetService) -> bool:
        # Where an entry is wrong and names none of the waves, the service may be of any of them.
        is_of_wave = not waves or service.wave in waves or service.wave not in known["wave"]
        return is_of_wave and (not services or service.name in services)

    if not any(map(is_chosen, fleet.services)):
        raise UsageError("no service is of this name and of this wave")
    return is_chosen


add(app, "status", status, STATUS_EPILOG)
add(app, "verify", verify, VERIFY_EPILOG)
add(app, "board", board, BOARD_EPILOG, advanced=("--every",))
