"""``migverify workload nightly``: replay the captures that are new in a folder, and say what began to fail."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, examples, say, say_error
from migverify.errors import ConfigError, ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.cli.workload_replay_setup import Setup
    from migverify.store.base import ResultStore
    from migverify.workload.replay.nightly import Capture, Night
    from migverify.workload.replay.plan import Reader

EPILOG = examples(
    "migverify workload nightly captures",
    "migverify workload nightly captures --json --html nightly.html",
    "migverify workload nightly captures --list",
)


def nightly(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Holds captures, one a night.")],
    config: ConfigOption = DEFAULT_CONFIG,
    pace: Annotated[
        str | None, typer.Option(metavar="PACE", help="real, x2, 3000/s or fast; default: the configuration's.")
    ] = None,
    noise: Annotated[
        float | None, typer.Option(metavar="SHARE", min=0.0, max=1.0, help="Share of reads asked twice a side.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Replay at most this many captures; the oldest first.")
    ] = None,
    target_only: Annotated[
        bool, typer.Option("--target-only", help="Do not ask the source: the capture's outcomes are compared.")
    ] = False,
    accept_write_grants: Annotated[
        bool, typer.Option("--accept-write-grants", help="Go on though a user could write; reads only are asked.")
    ] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the last run's page.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show which captures were replayed; ask nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object to standard output.")] = False,
    store: Annotated[
        str | None, typer.Option(metavar="URL", help="Result store; default: the configuration's.")
    ] = None,
) -> None:
    """Replay the reads of each capture that was not replayed yet, and name the digests that newly fail.

    The store knows which captures were done. Exit: the worst verdict of tonight's runs; 3 when there was nothing new.
    """
    from migverify.cli.report import open_run_store
    from migverify.workload.replay.nightly import captures, nights, pending

    found = captures(folder)
    with closing(open_run_store(store, config)) as opened:
        done = nights(opened, folder)
        waiting = pending(found, done)
        if listed:
            _list(found, done, as_json=as_json)
            return
        if not waiting:
            _nothing_new(folder, done, as_json=as_json)
            raise typer.Exit(int(ExitCode.INCONCLUSIVE))
        setup = _setup(config, pace, noise, target_only=target_only, accept_write_grants=accept_write_grants)
        results, failed = _replay_all(setup, opened, waiting[:limit], done, quiet=as_json)
        if html is not None and results:
            _page(opened, results[-1]["run_id"], html, values=setup.config.report.values)
    left = len(waiting) - len(waiting[:limit])
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "runs": results, "failed": failed, "left": left}))
    elif left:
        say(f"{left} captures are left for the next time")
    raise typer.Exit(int(_code(results, failed)))


def _code(results: list[dict[str, Any]], failed: list[dict[str, str]]) -> ExitCode:
    from migverify.model import Verdict
    from migverify.report.summary import EXIT_CODES

    if any(one["stopped"] for one in results):
        return ExitCode.INTERRUPTED
    verdicts = [Verdict(one["verdict"]) for one in results] + [Verdict.INCONCLUSIVE for _ in failed]
    return EXIT_CODES[Verdict.worst(verdicts)]


def _setup(
    config: Path, pace: str | None, noise: float | None, *, target_only: bool, accept_write_grants: bool
) -> Setup:
    from migverify.cli.workload_replay_setup import Given, set_up
    from migverify.workload.replay.safety import Leave

    given = Given(
        pace=pace, protocol=None, noise=noise, jobs=None, connections=None, max_lag=None, idle=None, slo=(),
        leave=Leave(), reads_only=True, target_only=target_only, accept_write_grants=accept_write_grants,
    )  # fmt: skip
    return set_up(config, given)


def _replay_all(
    setup: Setup, store: ResultStore, waiting: list[Capture], done: list[Night], *, quiet: bool
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    from migverify.workload.replay.nightly import record

    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for capture in waiting:
        say(f"{capture.day}: {capture.path}")
        try:
            run_id, stopped = _replay(setup, store, capture)
        except UsageError as error:  # of this capture: the others may be whole
            say_error(error)
            failed.append({"capture": str(capture.path), "reason": error.message})
            continue
        night, trend = record(store, run_id, capture, done)
        results.append({"run_id": run_id, "day": night.day, "capture": night.capture, "verdict": night.verdict,
                        "stopped": stopped, "trend": trend})  # fmt: skip
        if not quiet:
            _show(store, run_id, values=setup.config.report.values)
        if stopped:
            break
        done = [*done, night]
    return results, failed


def _replay(setup: Setup, store: ResultStore, capture: Capture) -> tuple[str, str]:
    from migverify.cli.workload_replay_setup import begin, conclude
    from migverify.workload.replay.plan import Selection
    from migverify.workload.replay.run import replay

    run_id, folder = begin(setup, store, capture.path, Selection(), _reader(), lambda _: None)
    result = replay(folder, setup.sides, setup.options, jobs=setup.jobs)
    conclude(setup, store, run_id, result)
    return run_id, result.stopped


def _reader() -> Reader:
    try:
        from migverify.spark.statements import read_columns
    except ImportError as error:
        raise ConfigError("Parquet needs the package pyarrow.", hint="Run pip install 'migverify[spark]'.") from error
    return read_columns


def _show(store: ResultStore, run_id: str, *, values: bool) -> None:
    from migverify.report.replay import read_replay_report
    from migverify.report.replay_text import render_text
    from migverify.report.summary import ReportOptions

    data = read_replay_report(store, run_id, ReportOptions(values=values))
    typer.echo(render_text(data, color=sys.stdout.isatty()))


def _page(store: ResultStore, run_id: str, file: Path, *, values: bool) -> None:
    from migverify.report.render import write_report
    from migverify.report.replay import read_replay_report
    from migverify.report.replay_html import render_html
    from migverify.report.summary import ReportOptions

    write_report(file, render_html(read_replay_report(store, run_id, ReportOptions(values=values))), private=True)


def _list(found: list[Capture], done: list[Night], *, as_json: bool) -> None:
    by_capture = {one.capture: one for one in done}
    if as_json:
        rows = [
            {"capture": str(one.path), "day": one.day,
             "run_id": None if (night := by_capture.get(str(one.path))) is None else night.run_id,
             "verdict": None if night is None else night.verdict}
            for one in found
        ]  # fmt: skip
        typer.echo(json.dumps({"captures": rows}))
        return
    for one in found:
        night = by_capture.get(str(one.path))
        told = "not replayed" if night is None else f"{night.verdict}, run {night.run_id}, {len(night.failing)} fail"
        typer.echo(f"{one.day}  {one.path.name}: {told}")


def _nothing_new(folder: Path, done: list[Night], *, as_json: bool) -> None:
    last = done[-1] if done else None
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "runs": [], "failed": [], "left": 0}))
    say(
        f"INCONCLUSIVE: no new capture in {folder}: nothing was verified tonight"
        + (f" (the last one is of {last.day}, {last.verdict})" if last else "")
    )
