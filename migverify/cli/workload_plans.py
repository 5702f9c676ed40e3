"""``migverify workload plans``: which statement of a capture will hurt on the target, before it does."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, ConfigOption, JsonOption, examples
from migverify.cli.progress import LiveLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from migverify.workload.plans.judge import JudgedPlans

EPILOG = examples(
    "migverify workload plans capture",
    "migverify workload plans capture --digest 68e0427 --samples 10 --json",
    "migverify workload plans capture --analyze",
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
    assume_database: Annotated[
        str | None,
        typer.Option("--assume-database", metavar="NAME", help="Database of sessions whose database is not known."),
    ] = None,
    accept_write_grants: Annotated[
        bool, typer.Option("--accept-write-grants", help="Explain as a user who may write.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Ask both sides how they would run each statement of a capture, and judge the plans of the target.

    Nothing is executed, unless --analyze. Exit 1 when a plan of the target will hurt, 0 when every digest was judged
    and none does, 3 when it is not known of one.
    """
    from migverify.cli.workload_replay_setup import capture_reader, inspected, set_up
    from migverify.workload.plans.judge import plans_verdict
    from migverify.workload.plans.run import judge_capture
    from migverify.workload.replay.plan import CallSelection
    from migverify.workload.replay.safety import Leave

    setup = set_up(
        config, {}, (), Leave(), reads_only=True, target_only=False, accept_write_grants=accept_write_grants,
        database=assume_database,
    )  # fmt: skip
    inspected(setup)
    line = PlansLine(quiet=as_json and not sys.stderr.isatty())
    found = list(
        judge_capture(
            capture, capture_reader(), setup.sides, CallSelection(digests=tuple(digest or ())), samples=samples,
            database=assume_database, analyze=analyze, seconds=setup.workload.query_seconds, progress=line,
        )
    )  # fmt: skip
    line.clear()
    typer.echo(json.dumps(_document(found)) if as_json else "\n".join(_text(found)))
    raise typer.Exit(int(plans_verdict(found).exit_code))


def _document(found: Sequence[JudgedPlans]) -> dict[str, object]:
    from migverify.workload.plans.judge import plans_verdict

    return {
        "verdict": plans_verdict(found).value,
        "digests": [
            {
                "digest": one.plans.digest, "text": one.plans.text, "calls": one.plans.calls,
                "seconds": one.plans.seconds, "state": one.state.value,
                "findings": [finding.as_json() for finding in one.findings], "doubts": list(one.doubts),
            }
            for one in found
        ],
    }  # fmt: skip


def _text(found: Sequence[JudgedPlans]) -> Iterator[str]:
    from migverify.model import Side
    from migverify.report.marks import visible
    from migverify.workload.plans.judge import PlanState, plans_verdict

    counts = {state: sum(one.state is state for one in found) for state in PlanState}
    for one in [one for one in found if one.state is not PlanState.FINE][:_MOST_SHOWN]:
        yield f"{one.state}: {one.plans.digest[:16]}, {one.plans.calls:,} calls: {visible(one.plans.text)}"
        for finding in one.findings:
            yield f"  {finding.harm}: {visible(finding.reason)}"
            if finding.remedy:
                yield f"    {visible(finding.remedy)}"
        for doubt in one.doubts:
            yield f"  not known: {visible(doubt)}"
        for side in (Side.SOURCE, Side.TARGET):
            plan = next((s.plans[side].plan for s in one.plans.samples if side in s.plans), None)
            if plan is not None:
                yield f"  {side}: {visible(str(plan))}"
    yield f"{plans_verdict(found)}: {len(found):,} digests: " + ", ".join(
        f"{count:,} {state}" for state, count in counts.items()
    )


class PlansLine(LiveLine):
    """Shows how many digests were explained."""

    def __call__(self, text: str) -> None:
        """Take one event."""
        if self._due():
            self._tell(text)
