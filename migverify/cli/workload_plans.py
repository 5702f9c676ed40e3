"""``migverify workload plans``: which statement of a capture will hurt on the target, before it does."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, StoreOption, command_line, examples
from migverify.cli.progress import LiveLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from migverify.workload.plans.judge import JudgedPlans

EPILOG = examples(
    "migverify workload plans capture",
    "migverify workload plans capture --digest 68e0427 --samples 10 --json",
    "migverify workload plans capture --analyze",
    "migverify workload plans capture --since last",
)
_MOST_SHOWN = 20


def plans(
    capture: Annotated[Path, typer.Argument(metavar="CAPTURE", help="A folder that `workload capture` wrote.")],
    config: ConfigOption = DEFAULT_CONFIG,
    digest: Annotated[
        list[str] | None, typer.Option(metavar="HEX", help="Only statements whose digest begins so; repeatable.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, max=100, help="Calls of each digest that are explained.")] = 3,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the reads on the target (EXPLAIN ANALYZE) to see actual rows.")
    ] = False,
    reads_only: Annotated[
        bool, typer.Option("--reads-only", help="Leave writes out: explaining one takes the right to write.")
    ] = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Name what changed since an earlier run of this command; `last` the newest."),
    ] = None,
    assume_database: Annotated[
        str | None,
        typer.Option("--assume-database", metavar="NAME", help="Database of sessions whose database is not known."),
    ] = None,
    accept_write_grants: Annotated[
        bool, typer.Option("--accept-write-grants", help="Explain as a user who may write.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Ask both sides how they would run each statement of a capture, and judge the plans of the target.

    Nothing is executed, unless --analyze. Exit 1 when a plan of the target will hurt, 0 when every digest was judged
    and none does, 3 when it is not known of one.
    """
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_replay_setup import capture_reader, inspected, set_up
    from migverify.workload.plans.judge import plans_verdict, reasons
    from migverify.workload.plans.run import judge_capture
    from migverify.workload.plans.store import add_plans, finish_plans, plans_run, recorded, start_plans
    from migverify.workload.replay.plan import CallSelection
    from migverify.workload.replay.safety import Leave

    setup = set_up(
        config, {}, (), Leave(), reads_only=True, target_only=False, accept_write_grants=accept_write_grants,
        database=assume_database,
    )  # fmt: skip
    reader = capture_reader()
    next(reader(capture, ["position"]), None)  # a folder that holds no capture is reported before a server is asked
    began, line = time.monotonic(), PlansLine(quiet=as_json and not sys.stderr.isatty())
    with closing(open_run_store(store, config)) as opened:
        earlier = plans_run(opened, since).run_id if since is not None else None
        facts = inspected(setup)
        run_id = start_plans(opened, command_line(), str(capture.resolve()), facts)
        found = []
        for judged, record in judge_capture(
            capture, reader, setup.sides, CallSelection(digests=tuple(digest or ())), samples=samples,
            writes=not reads_only,
            version=str(facts["target"]["version"]), database=assume_database, analyze=analyze,
            seconds=setup.workload.query_seconds, progress=line,
            before=lambda digest: None if earlier is None else recorded(opened, earlier, digest),
        ):  # fmt: skip
            add_plans(opened, run_id, judged, record)
            found.append(judged)
        line.clear()
        verdict = plans_verdict(found)
        finish_plans(opened, run_id, verdict, tuple(reasons(found)), time.monotonic() - began)
    typer.echo(json.dumps(_document(run_id, found)) if as_json else "\n".join(_text(run_id, found)))
    raise typer.Exit(int(verdict.exit_code))


def _document(run_id: str, found: Sequence[JudgedPlans]) -> dict[str, object]:
    from migverify.workload.plans.judge import plans_verdict, reasons

    return {
        "run": run_id, "verdict": plans_verdict(found).value, "reasons": list(reasons(found)),
        "digests": [
            {
                "digest": one.plans.digest, "text": one.plans.text, "calls": one.plans.calls,
                "seconds": one.plans.seconds, "state": one.state.value,
                "findings": [finding.as_json() for finding in one.findings], "doubts": list(one.doubts),
                "changed": one.changed,
                "plans": dict(_plans(one)),
            }
            for one in found
        ],
    }  # fmt: skip


def _plans(judged: JudgedPlans) -> Iterator[tuple[str, str]]:
    """Yield the first plan of each side as text."""
    from migverify.model import Side

    for side in (Side.SOURCE, Side.TARGET):
        plans = (sample.plans[side].plan for sample in judged.plans.samples if side in sample.plans)
        first = next((plan for plan in plans if plan is not None), None)
        if first is not None:
            yield side.value, str(first)


def _text(run_id: str, found: Sequence[JudgedPlans]) -> Iterator[str]:
    from migverify.report.marks import visible
    from migverify.workload.plans.judge import PlanState, plans_verdict, reasons
    from migverify.workload.plans.model import Harm

    bad = [one for state in (PlanState.HURTS, PlanState.UNKNOWN) for one in found if one.state is state]
    for one in bad[:_MOST_SHOWN]:
        yield f"{one.state}: {one.plans.digest[:16]}, {one.plans.calls:,} calls: {visible(one.plans.text)}"
        for finding in one.findings:
            yield f"  {finding.harm}: {visible(finding.reason)}"
            if finding.remedy:
                yield f"    {visible(finding.remedy)}"
        if one.changed and not any(finding.harm is Harm.CHANGED for finding in one.findings):
            yield f"  changed: {visible(one.changed)}"
        for doubt in one.doubts:
            yield f"  not known: {visible(doubt)}"
        for side, plan in _plans(one):
            yield f"  {side}: {visible(plan)}"
    for one in found:
        if one.changed and one.state is PlanState.FINE:
            yield f"changed, and fine: {one.plans.digest[:16]}: {visible(one.plans.text)}\n  {visible(one.changed)}"
    if len(bad) > _MOST_SHOWN:
        yield f"{len(bad) - _MOST_SHOWN:,} more digests that hurt or are not known: --json shows all"
    yield f"{plans_verdict(found)}: run {run_id}: {'; '.join(reasons(found)) or 'every digest was judged, none hurts'}"


class PlansLine(LiveLine):
    """Shows how many digests were explained."""

    def __call__(self, text: str) -> None:
        """Take one event."""
        if self._due():
            self._tell(text)
