"""A replay on Spark: one task for each part of the sessions, each replaying with the engine of a local run.

Sessions that wait for each other are in one part as far as sizes allow; a call that should come after one of another
part is racy. The run file goes to the executors. Each task gives back the outcomes of its own copy, which the driver
commits to the run's: the tally is the same fold as a local run's.

A task that is lost may have written. So before a part begins, the driver commits the intent of every write in it; and a
task that Spark starts a second time asks nothing.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from migverify.errors import MigverifyError
from migverify.model import Endpoint, Side
from migverify.spark.engine import each_number, explain
from migverify.spark.session import is_connect, session_on
from migverify.workload.replay.connections import EngineOptions
from migverify.workload.replay.engine import Start
from migverify.workload.replay.outcomes import Outcomes, alone, total
from migverify.workload.replay.run import (
    ReplayResult,
    Share,
    ask_stop,
    assign,
    finish,
    partition,
    play,
    prepare,
    remaining,
)
from migverify.workload.replay.runfile import COMMITS, RUN_FILE, WRITES, RunFile
from migverify.workload.replay.safety import ReplayEndpoints

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA = "part int, kind string, call long, body string"
OUTCOME, COUNTED, FAILED = "outcome", "counted", "failed"
LEAD = 3.0
"""Seconds until the first call is due: executors take a moment."""
_AT_ONCE = 5_000
_COPY = "migverify-replay-{}.sqlite"


@dataclass(frozen=True)
class PlayParts:
    """The function of the tasks; holds endpoints and passwords, and travels from the driver's memory to theirs.

    ``file`` is the name of the run file's copy there. ``began`` is Unix time in nanoseconds: executors share no other
    clock.
    """

    file: str
    parts: int
    endpoints: Mapping[Side, Endpoint]
    secrets: Mapping[str, str]
    options: EngineOptions
    start: Start
    began: int

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Replay the part of a number, counted from 0, and give back its outcomes."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        for kind, rows in self._play(number, again=again):
            calls, bodies = [row[0] for row in rows], [row[1] for row in rows]
            yield pa.RecordBatch.from_arrays(
                [pa.array([number] * len(rows), pa.int32()), pa.array([kind] * len(rows)), pa.array(calls, pa.int64()),
                 pa.array(bodies, pa.string())],
                names=["part", "kind", "call", "body"],
            )  # fmt: skip

    def _play(self, number: int, *, again: bool) -> Iterator[tuple[str, list[tuple[int, str]]]]:
        if again:  # the first attempt may have asked, and written, any of it
            yield FAILED, [(0, f"part {number}: its task was lost; a second one asks nothing")]
            return
        from pyspark import SparkFiles

        with tempfile.TemporaryDirectory(prefix="migverify-replay-") as scratch:
            folder = Path(scratch)
            shutil.copyfile(SparkFiles.get(self.file), folder / RUN_FILE)
            with RunFile(folder) as run:  # what is here already is the driver's
                run.change("DELETE FROM workers")
                before = {row[0] for row in run.db.execute("SELECT call FROM outcomes WHERE body IS NOT NULL")}
            began = time.monotonic_ns() + self.began - time.time_ns()
            options = replace(self.options, connections=max(1, self.options.connections // self.parts), apart=True)
            start = replace(self.start, began=began)
            failure = ""
            try:
                play(Share(folder, number + 1, self.endpoints, self.secrets, options, start))
            except MigverifyError as error:
                failure = error.message
            with RunFile(folder) as run:
                failure = failure or str(run.fact("stop"))
                yield COUNTED, [(0, json.dumps(asdict(total(run))))]
                rows = run.db.execute("SELECT call, body FROM outcomes WHERE body IS NOT NULL ORDER BY call")
                while some := rows.fetchmany(_AT_ONCE):
                    yield OUTCOME, [(call, body) for call, body in some if call not in before]
            if failure:
                yield FAILED, [(0, failure)]


def replay_on_spark(
    folder: Path, sides: ReplayEndpoints, options: EngineOptions, master: str | None, conf: Mapping[str, str], *,
    jobs: int, resume: bool = False, session: SparkSession | None = None,
) -> ReplayResult:  # fmt: skip
    """Replay the plan in ``folder`` on Spark; see ``migverify.workload.replay.run.replay``.

    Parameters
    ----------
    jobs
        Parts, which are replayed at the same time: as many task slots must be there, or calls are late.
    session
        An open session; None opens one on ``master`` and closes it.

    Raises PlanError: the folder holds no plan, or an earlier attempt although nothing is resumed; ConfigError,
    ReadError: spark cannot be had, or a job failed; what parts gave back is kept.
    """
    with alone(folder), RunFile(folder) as run:
        plan = prepare(run, resume=resume)
        left, start = remaining(run)
        dealt = partition(run, max(1, min(jobs, options.connections, len(left))), left)
        dealt = [numbers for numbers in dealt if numbers]
        assign(run, dealt, start)
        copy = folder / _COPY.format(time.time_ns())
        with session_on(master, "migverify workload replay", conf, max(1, len(dealt)), session) as spark:
            try:
                _ship(spark, run, copy)
                if plan.writes:
                    intend(run)
                began = time.time_ns() + int(LEAD * 1e9)
                task = PlayParts(copy.name, len(dealt), sides.endpoints, sides.secrets, options, start, began)
                if dealt:
                    _collect(spark, task, run, sides.secrets)
            finally:
                copy.unlink(missing_ok=True)
        return finish(run, plan, (time.time_ns() - began) / 1e9, options)


def intend(run: RunFile) -> None:
    """Commit an intent for every call that may write, and for commits: what gave nothing back may be committed."""
    run.change(
        f"INSERT OR IGNORE INTO outcomes SELECT id, NULL FROM calls WHERE flags & {WRITES | COMMITS}"  # noqa: S608
    )


def _ship(session: SparkSession, run: RunFile, copy: Path) -> None:
    """Send a copy of the run file to the executors, by its name."""
    copy.touch(mode=0o600)
    run.change("VACUUM INTO ?", (str(copy),))
    if is_connect(session):
        session.addArtifacts(str(copy), file=True)
    else:
        session.sparkContext.addFile(str(copy))


def _collect(session: SparkSession, task: PlayParts, run: RunFile, secrets: Mapping[str, str]) -> None:
    """Run the job and commit what comes back, part by part."""
    played = each_number(session, task.parts, task, SCHEMA).persist()
    outcomes = {number: Outcomes(run.folder, number + 1) for number in range(task.parts)}
    try:
        # All parts at once: toLocalIterator alone runs a job for each, and no more than one ahead.
        played.count()
        for row in played.toLocalIterator():
            if row.kind == OUTCOME:
                outcomes[row.part].take([(row.call, row.body)])
                if len(outcomes[row.part].ends) >= _AT_ONCE:
                    outcomes[row.part].flush()
            elif row.kind == COUNTED:
                outcomes[row.part].counters = row.body
            else:
                ask_stop(run, row.body)
    except MigverifyError:
        raise
    except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
        raise explain(error, secrets) from None
    finally:
        played.unpersist()
        for each in outcomes.values():
            each.close()
