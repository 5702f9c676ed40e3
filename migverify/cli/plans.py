"""``migverify guard plans``: which statement of a capture has another plan on the target than in a baseline."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from migverify.cli.console import DEFAULT_CONFIG, AssumeDatabaseOption, ConfigOption, examples
from migverify.cli.guards import (
    AllOption,
    EveryOption,
    GuardOptions,
    JsonOption,
    MetricsFileOption,
    StoreOption,
    WatchOption,
    run_guards,
)
from migverify.cli.watching import MetricsAddressOption
from migverify.cli.workload_plans import ExplainGrantsOption, ReadsOnlyOption, SamplesOption

if TYPE_CHECKING:
    from collections.abc import Mapping

    from migverify.cli.workload_replay_setup import ReplaySetup
    from migverify.guards.plans import DigestDrift, PlanDrifts
    from migverify.model import RunInfo
    from migverify.workload.plans.choose import Chosen
    from migverify.workload.plans.drift import PlanRecord
    from migverify.workload.plans.model import DigestPlans

EPILOG = examples(
    "migverify guard plans --capture captures/peak",
    "migverify guard plans --capture captures/peak --baseline 20260131T120000-abc123",
    "migverify guard plans --capture captures/peak --watch --every 3600",
)


def plans(
    capture: Annotated[Path, typer.Option(metavar="DIR", help="A folder that `workload capture` wrote.")],
    config: ConfigOption = DEFAULT_CONFIG,
    baseline: Annotated[
        str, typer.Option(metavar="RUN", help="Run of `workload plans` to compare with; `last` for the newest.")
    ] = "last",
    samples: SamplesOption = 3,
    reads_only: ReadsOnlyOption = False,
    assume_database: AssumeDatabaseOption = None,
    accept_write_grants: ExplainGrantsOption = False,
    as_json: JsonOption = False,
    passed: AllOption = False,
    watch: WatchOption = False,
    every: EveryOption = 3600.0,
    metrics_port: MetricsAddressOption = None,
    metrics_file: MetricsFileOption = None,
    store: StoreOption = None,
) -> None:
    """Tell which statement's plan on the target changed since a baseline, and what changed beneath it.

    Nothing is executed. Exit 0: each plan is the baseline's, or reads no more, 1: one reads many more rows, 3: it is
    not known of one.
    """
    from migverify.cli.report import open_run_store
    from migverify.cli.workload_replay_setup import capture_reader, set_up
    from migverify.guards.plans import PlansGuard
    from migverify.workload.plans.store import baseline_run, stored_plans
    from migverify.workload.replay.safety import Leave

    setup = set_up(
        config, {}, (), Leave(), reads_only=True, target_only=True, accept_write_grants=accept_write_grants,
        database=assume_database,
    )  # fmt: skip
    next(
        capture_reader()(capture, ["position"]), None
    )  # a folder that holds no capture is reported before a server is asked
    opened = open_run_store(store, config)
    run = baseline_run(opened, baseline)
    records = {} if run is None else {one.digest: one.record for one in stored_plans(opened, run.run_id)}
    reader = CapturePlans(setup, capture, samples, run, records, writes=not reads_only)
    guard = PlansGuard(reader.read, shlex.quote(str(capture)))
    asking = GuardOptions(as_json, watch, every, metrics_port, metrics_file, passed)
    run_guards([guard], opened, asking, {"baseline": None if run is None else run.run_id})


@dataclass(slots=True)
class CapturePlans:
    """Asks the target for the plans of a capture's digests; the capture is read once, however often this is asked."""

    setup: ReplaySetup
    capture: Path
    samples: int
    run: RunInfo | None
    records: Mapping[str, PlanRecord]
    writes: bool = True
    _chosen: list[Chosen] | None = None

    def read(self) -> PlanDrifts:
        """Return how the plans differ from the baseline's; raises EndpointError or ReadError."""
        from migverify.cli.workload_plans import planned_capture
        from migverify.cli.workload_replay_setup import inspected
        from migverify.guards.plans import PlanDrifts
        from migverify.workload.plans.choose import choose
        from migverify.workload.plans.run import PlanOptions, target_records

        version = str(inspected(self.setup)["target"]["version"])
        if self._chosen is None:
            with planned_capture(self.setup, self.capture) as run:
                self._chosen = choose(run, self.samples, writes=self.writes)
        options = PlanOptions(version, seconds=self.setup.workload.query_seconds)
        found = tuple(self._compared(*one) for one in target_records(self._chosen, self.setup.sides, options))
        name, made = "", ""
        if self.run is not None:
            name, made = self.run.run_id, time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.run.started))
        then = next((one.version for one in self.records.values()), "")
        return PlanDrifts(name, made, len(self.records), then, version, found)

    def _compared(self, plans_now: DigestPlans, record: PlanRecord) -> DigestDrift:
        from migverify.guards.plans import DigestDrift
        from migverify.workload.plans.doubts import refused_as_captured, write_remedy
        from migverify.workload.plans.drift import drift, not_compared
        from migverify.workload.plans.judge import PlanLimits

        before = self.records.get(record.digest)
        change = None if before is None else drift(before, record)
        unknown = not_compared(before, plans_now)
        one = DigestDrift(
            record.digest, plans_now.text, plans_now.calls,
            refused_as_captured(plans_now) or "; ".join(sorted(record.shapes)), unknown, todo=write_remedy(unknown),
        )  # fmt: skip
        if change is None:
            return one
        if change.guesses:
            return replace(one, unknown=f"the plan of the baseline could not be judged: {change}", todo="")
        is_worse = PlanLimits().are_passed_by(change)
        return replace(one, change=str(change), is_worse=is_worse, before=change.before, now=change.now)
