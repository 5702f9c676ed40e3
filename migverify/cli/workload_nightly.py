"""``migverify workload replay --nightly``: replay the captures that are new in a folder, and say what began to fail."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, StoreOption, examples, say, say_error
from migverify.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from migverify.cli.workload_replay_setup import ReplaySetup
    from migverify.store.results import ResultStore
    from migverify.workload.replay.nightly import Capture, Night

EPILOG = examples(
    "migverify workload replay --nightly captures",
    "migverify workload replay --nightly captures --json",
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
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Replay the reads of each capture that was not replayed yet, and name the digests that newly fail.

    The store knows which captures were done. Exit: the worst verdict of tonight's runs; 3 when there was nothing new.
    """
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_replay_setup import set_up
    from migverify.model import Verdict
    from migverify.workload.replay.nightly import captures, nights, pending
    from migverify.workload.replay.safety import Leave

    found = captures(folder)
    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    with closing(open_run_store(store, config)) as opened:
        done = nights(opened, folder)
        waiting = pending(found, done)
        if waiting:
            setup = set_up(
                config, {"pace": pace, "noise": noise}, (), Leave(), reads_only=True, target_only=target_only,
                accept_write_grants=accept_write_grants,
            )  # fmt: skip
            results, failed = _replay_all(setup, opened, waiting[:limit], done, quiet=as_json)
    left = len(waiting) - len(waiting[:limit])
    if as_json:
        typer.echo(json.dumps({"folder": str(folder), "runs": results, "failed": failed, "left": left}))
    if not waiting:
        last = f" (the last one is of {done[-1].day}, {done[-1].verdict})" if done else ""
        say(f"INCONCLUSIVE: no new capture in {folder}: nothing was verified tonight{last}")
    elif left and not as_json:
        say(f"{left} captures are left for the next time")
    if any(one["stopped"] for one in results):
        raise typer.Exit(int(ExitCode.INTERRUPTED))
    verdicts = [Verdict(one["verdict"]) for one in results] + [Verdict.INCONCLUSIVE for _ in failed]
    raise typer.Exit(int(Verdict.worst(verdicts or [Verdict.INCONCLUSIVE]).exit_code))


def _replay_all(
    setup: ReplaySetup, store: ResultStore, waiting: list[Capture], done: list[Night], *, quiet: bool
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    from migverify.cli.workload_plans import plans_of_replay
    from migverify.cli.workload_replay_setup import begin, conclude
    from migverify.report.model import ReportOptions
    from migverify.report.read import read_report
    from migverify.report.render import Format, render
    from migverify.workload.replay.nightly import record
    from migverify.workload.replay.plan import CallSelection
    from migverify.workload.replay.run import replay

    results: list[dict[str, Any]] = []
    failed: list[dict[str, str]] = []
    for capture in waiting:
        say(f"{capture.day}: {capture.path}")
        try:
            run_id, folder = begin(setup, store, capture.path, CallSelection(), lambda _: None)
            result = replay(folder, setup.sides, setup.options, jobs=setup.workload.jobs)
            verdict = conclude(setup, store, run_id, result)
            if not result.stopped:
                plans_of_replay(setup, store, run_id, folder, result, verdict.slower, quiet=True)
        except UsageError as error:  # of this capture: the others may be whole
            say_error(error)
            failed.append({"capture": str(capture.path), "reason": error.message})
            continue
        night, trend = record(store, run_id, capture, done)
        results.append({"run_id": run_id, "day": night.day, "capture": night.capture, "verdict": night.verdict,
                        "stopped": result.stopped, "trend": trend})  # fmt: skip
        if not quiet:
            data = read_report(store, run_id, ReportOptions(values=setup.config.report.values))
            typer.echo(render(data, Format.TEXT, color=sys.stdout.isatty()))
        if result.stopped:
            break
        done = [*done, night]
    return results, failed
