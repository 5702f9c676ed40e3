"""``migverify workload plans``: which statement of a capture will hurt on the target, before it does."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from migverify.cli.console import (
    DEFAULT_CONFIG,
    AssumeDatabaseOption,
    ConfigOption,
    JsonOption,
    StoreOption,
    command_line,
    completed_report,
    examples,
    say,
)
from migverify.cli.progress import LiveLine
from migverify.errors import EndpointError, ReadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence, Set

    from migverify.cli.workload_replay_setup import ReplaySetup
    from migverify.store.results import ResultStore
    from migverify.workload.plans.clone_change import TrialClone
    from migverify.workload.replay.run import ReplayResult
    from migverify.workload.replay.runfile import RunFile

SamplesOption = Annotated[int, typer.Option(min=1, max=100, help="Calls of each digest that are explained.")]
ReadsOnlyOption = Annotated[
    bool, typer.Option("--reads-only", help="Leave writes out: explaining one takes the right to write.")
]
ExplainGrantsOption = Annotated[bool, typer.Option("--accept-write-grants", help="Explain as a user who may write.")]

EPILOG = examples(
    "migverify workload plans capture",
    "migverify workload plans capture --digest 68e0427 --samples 10 --json",
    "migverify workload plans capture --analyze",
    "migverify workload plans capture --since last",
    "migverify workload plans capture --try",
)


def plans(
    capture: Annotated[Path, typer.Argument(metavar="CAPTURE", help="A folder that `workload capture` wrote.")],
    config: ConfigOption = DEFAULT_CONFIG,
    digest: Annotated[
        list[str] | None, typer.Option(metavar="HEX", help="Only statements whose digest begins so; repeatable.")
    ] = None,
    samples: SamplesOption = 3,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Run the reads on the target (EXPLAIN ANALYZE) to see actual rows.")
    ] = False,
    reads_only: ReadsOnlyOption = False,
    since: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Name what changed since an earlier run of this command; `last` the newest."),
    ] = None,
    try_remedies: Annotated[
        bool, typer.Option("--try", help="Try remedies on the target, a marked rehearsal clone, and undo them.")
    ] = False,
    assume_database: AssumeDatabaseOption = None,
    accept_write_grants: ExplainGrantsOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
) -> None:
    """Ask both sides how they would run each statement of a capture, and judge the plans of the target.

    Nothing is executed, unless --analyze or --try. Exit 1 when a plan of the target will hurt, 0 when every digest was
    judged and none does, 3 when it is not known of one.
    """
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_replay_setup import basis_to_keep, capture_reader, set_up
    from migverify.report.read import read_report
    from migverify.report.render import Format, render
    from migverify.workload.plans.judge import plans_verdict, reasons
    from migverify.workload.plans.run import PlanOptions, record_plans
    from migverify.workload.plans.store import SINCE_RUN, finish_plans, plans_run, start_plans, stored_plans
    from migverify.workload.replay.safety import Leave

    setup = set_up(
        config, {}, (), Leave(), reads_only=True, target_only=False, accept_write_grants=accept_write_grants,
        database=assume_database,
    )  # fmt: skip
    next(
        capture_reader()(capture, ["position"]), None
    )  # a folder that holds no capture is reported before a server is asked
    began, line = time.monotonic(), PlansLine(quiet=as_json and not sys.stderr.isatty())
    with ExitStack() as stack:
        opened = stack.enter_context(closing(open_run_store(store, config)))
        baseline = None if since is None else plans_run(opened, since).run_id
        earlier = {} if baseline is None else {one.digest: one.record for one in stored_plans(opened, baseline)}
        facts = _inspected(setup, may_write=try_remedies)
        clone = open_clone(setup, stack) if try_remedies else None
        choices = {"digests": list(digest or ()), "reads_only": reads_only, "samples": samples, "analyze": analyze,
                   "since": since is not None, SINCE_RUN: baseline}  # fmt: skip
        more = {"choices": choices, **basis_to_keep(setup.config, capture)}
        run_id = start_plans(opened, command_line(), str(capture.resolve()), facts, more)
        options = PlanOptions(
            str(facts["target"]["version"]), samples, writes=not reads_only, analyze=analyze,
            seconds=setup.workload.query_seconds, before=earlier.get, clone=clone,
        )  # fmt: skip
        with planned_capture(setup, capture, digest or ()) as run:
            found = record_plans(run, setup.sides, opened, run_id, options, line)
        line.finish()
        verdict = plans_verdict(found)
        finish_plans(opened, run_id, verdict, tuple(reasons(found)), time.monotonic() - began, digests=len(found))
        data = completed_report(read_report(opened, run_id))
    typer.echo(render(data, Format.JSON if as_json else Format.TEXT, color=sys.stdout.isatty()), nl=False)
    raise typer.Exit(int(data.exit_code))


@contextmanager
def planned_capture(setup: ReplaySetup, capture: Path, digests: Sequence[str] = ()) -> Iterator[RunFile]:
    """Yield a capture's calls as a replay plans them; explaining runs nothing, so that writes and locks are there."""
    from migverify.cli.workload_replay_setup import plan_of
    from migverify.workload.replay.plan import CallSelection
    from migverify.workload.replay.runfile import RunFile
    from migverify.workload.replay.safety import Leave

    with TemporaryDirectory(prefix="migverify-plans-") as name:
        explained = replace(setup, leave=Leave(writes=True, locking=True))
        plan_of(explained, capture, Path(name), CallSelection(digests=tuple(digests)), lambda _: None)
        with RunFile(Path(name)) as run:
            yield run


def _inspected(setup: ReplaySetup, *, may_write: bool) -> dict[str, dict[str, Any]]:
    """Return facts of each side; the user of a target where remedies are tried may write, as it has to be a clone."""
    from migverify.cli.workload_replay_setup import inspected
    from migverify.model import Side
    from migverify.workload.replay.safety import ReplayEndpoints

    facts: dict[str, dict[str, Any]] = {}
    for side, endpoint in setup.sides.endpoints.items():
        accepted = setup.accept_write_grants or (may_write and side is Side.TARGET)
        alone = ReplayEndpoints({side: endpoint}, setup.sides.secrets)
        facts |= inspected(replace(setup, sides=alone, accept_write_grants=accepted))
    return facts


def open_clone(setup: ReplaySetup, stack: ExitStack) -> TrialClone:
    """Return the target as the clone where remedies are tried, with what an earlier run left there undone.

    Raises EndpointError: it is no marked clone.
    """
    from migverify.model import Side
    from migverify.workload.plans.clone_change import TrialClone

    endpoint = setup.sides.endpoints[Side.TARGET]
    secret = setup.sides.secrets.get(endpoint.name)
    clone = stack.enter_context(TrialClone(endpoint, secret, setup.workload.clone_marker))
    clone.recover(say)
    return clone


def plans_of_replay(
    setup: ReplaySetup, store: ResultStore, run_id: str, folder: Path, result: ReplayResult, slower: Set[str],
    wanted: bool | None = None, *, quiet: bool,
) -> None:  # fmt: skip
    """Ask for the plans of a replay's digests, and keep them with its run; why it could not be done is kept as well.

    The verdict of the replay is about answers: it stays as it is. With one side there is nothing to compare.

    Parameters
    ----------
    wanted
        Those of all digests, or of none; None: of those that are ``slower``, and of those with the most busy time.
    """
    if wanted is False or len(setup.sides.endpoints) < 2:
        return
    from migverify.workload.plans.choose import busiest
    from migverify.workload.plans.run import PlanOptions, record_plans
    from migverify.workload.plans.store import note_not_asked
    from migverify.workload.replay.runfile import RunFile

    version = str(store.load_run(run_id).facts["endpoints"]["target"]["version"])
    digests = None if wanted else slower | busiest(result.tally)
    options = PlanOptions(version, writes=setup.leave.writes, digests=digests, seconds=setup.workload.query_seconds)
    line = PlansLine(quiet=quiet)
    try:
        with RunFile(folder) as run:
            record_plans(run, setup.sides, store, run_id, options, line)
        line.finish()
    except (EndpointError, ReadError) as error:
        note_not_asked(store, run_id, error.line)
        say(f"plans were not asked: {error.line}")
    finally:
        line.clear()


class PlansLine(LiveLine):
    """Shows how many digests were explained; the last number is shown in a log too."""

    def __init__(self, *, quiet: bool) -> None:
        super().__init__(quiet=quiet)
        self._unsaid = ""
        self._said = False

    def __call__(self, text: str) -> None:
        """Take one event."""
        self._unsaid = text
        if self._due():
            self._tell(text)
            self._said, self._unsaid = True, ""

    def finish(self) -> None:
        """Say what came last where a log has an earlier number as its last line."""
        if self._said and self._unsaid and not self._live:
            self._tell(self._unsaid)
        self._unsaid = ""
        self.clear()
