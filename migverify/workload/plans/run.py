"""From a capture to judged plans: the calls are chosen as a replay chooses them, explained, and judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from migverify.db.session import open_session
from migverify.workload.plans.judge import JudgedPlans, PlanLimits, judge_plans
from migverify.workload.plans.read import choose, explain_all, read_target, table_names
from migverify.workload.replay.keys import databases_of, read_keys
from migverify.workload.replay.plan import CallSelection, ColumnReader, read_plan
from migverify.workload.replay.runfile import RunFile
from migverify.workload.replay.safety import Leave, ReplayEndpoints

EVERY_KIND = Leave(writes=True, ddl=False, locking=True)
"""EXPLAIN runs nothing: writes and locking reads have plans as well."""


def judge_capture(
    capture: Path, reader: ColumnReader, sides: ReplayEndpoints, selection: CallSelection, *, samples: int,
    database: str | None = None, analyze: bool = False, seconds: float = 60.0, limits: PlanLimits | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[JudgedPlans]:  # fmt: skip
    """Yield the judged plans of a capture's digests, those that took longest on the source first.

    Raises UsageError where the capture cannot be read, EndpointError where a side cannot be reached.
    """
    side, endpoint = next(iter(sides.endpoints.items()))
    databases = databases_of(reader(capture, ["database"])) | ({database} if database else set())
    with open_session(endpoint, sides.secrets.get(endpoint.name), side=side) as session:
        keys = read_keys(session, databases)
    with TemporaryDirectory(prefix="migverify-plans-") as name:
        folder = Path(name)
        read_plan(capture, folder, reader, selection=selection, leave=EVERY_KIND, keys=keys, database=database)
        with RunFile(folder) as run:
            chosen = choose(run, samples)
            found = []
            for number, one in enumerate(explain_all(chosen, sides, analyze=analyze, seconds=seconds), 1):
                found.append(one)
                progress(f"{number:,} of {len(chosen):,} digests explained")
    names = [table_names(one) for one in found]
    used = {name[0] for one in names for name in one.values()}
    target = read_target(sides, used)
    for plans, known in zip(found, names, strict=True):
        yield judge_plans(plans, known, target, limits)
