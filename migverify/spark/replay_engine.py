"""A replay on Spark: one task for each shard of sessions, each playing with the worker of the local engine.

Sessions that wait for each other are in one shard as far as sizes allow; a call that should come after one of another
shard is racy. The plan goes to the executors as a file. Each task keeps a journal of its own and gives back its lines,
which the driver appends to the run's: the tally is the same fold as a local run's.

A task that is lost may have written. So before a shard begins, the driver writes the intent of every write in it; and a
task that Spark starts a second time plays nothing.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from migverify.errors import MigverifyError, ReadError
from migverify.model import Endpoint, Side
from migverify.spark.engine import explain
from migverify.spark.session import close_session, is_connect, open_session
from migverify.workload.private import private, write_private
from migverify.workload.replay.board import Board, Counters
from migverify.workload.replay.engine import EngineOptions, Start
from migverify.workload.replay.journal import Journal
from migverify.workload.replay.lock import alone
from migverify.workload.replay.pace import PaceKind
from migverify.workload.replay.run import ReplayResult, finish, prepare, remaining
from migverify.workload.replay.shards import shards
from migverify.workload.replay.sides import Sides
from migverify.workload.replay.spool import COMMITS, WRITES, Spool
from migverify.workload.replay.worker import BOARD, JOURNAL, PLANNED, Share, play

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA = "shard int, kind string, body binary"
LINES, COUNTED, FAILED = "lines", "counted", "failed"
LEAD = 3.0
"""Seconds until the first call is due: executors take a moment."""
_LINES_AT_ONCE = 1 << 20
_PLAN = "migverify-replay-{}.tar"


@dataclass(frozen=True, slots=True)
class Shard:
    """What one task plays. ``began`` is Unix time in nanoseconds: executors share no other clock."""

    number: int
    sessions: tuple[int, ...]
    connections: int


@dataclass(frozen=True)
class PlayShards:
    """The function of the tasks; holds endpoints and passwords, and travels from the driver's memory to theirs."""

    plan: str
    attempt: int
    shards: tuple[Shard, ...]
    endpoints: Mapping[Side, Endpoint]
    secrets: Mapping[str, str]
    options: EngineOptions
    start: Start
    began: int

    def __repr__(self) -> str:
        return f"PlayShards({len(self.shards)} shards)"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Play the shards whose numbers come in, and give back the lines of their journals."""
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        again = context is not None and context.attemptNumber() > 0
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for kind, body in self._play(self.shards[number], again=again):
                    yield pa.RecordBatch.from_arrays(
                        [pa.array([number], pa.int32()), pa.array([kind]), pa.array([body], pa.binary())],
                        names=["shard", "kind", "body"],
                    )

    def _play(self, shard: Shard, *, again: bool) -> Iterator[tuple[str, bytes]]:
        from pyspark import SparkFiles

        if again:  # the first attempt may have asked, and written, any of it
            yield FAILED, f"shard {shard.number}: its task was lost; a second one plays nothing".encode()
            return
        with tempfile.TemporaryDirectory(prefix="migverify-replay-") as scratch:
            folder = Path(scratch)
            with tarfile.open(SparkFiles.get(self.plan)) as archive:
                archive.extractall(folder, filter="data")
            Board.make(folder / BOARD, (folder / "state.bin").stat().st_size, 1)
            began = time.monotonic_ns() + self.began - time.time_ns()
            share = Share(
                folder, 1, self.attempt, shard.sessions, self.endpoints, self.secrets,
                replace(self.options, connections=shard.connections, apart=True), replace(self.start, began=began),
            )  # fmt: skip
            try:
                counters, stopped = play(share, ended=(folder / "state.bin").read_bytes())
            except MigverifyError as error:
                yield FAILED, error.message.encode()
            else:
                yield COUNTED, json.dumps(asdict(counters)).encode()
                if stopped:
                    yield FAILED, stopped.encode()
            for path in sorted((folder / JOURNAL).glob("*.journal")):
                yield from ((LINES, part) for part in _parts(path))


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while lines := file.readlines(_LINES_AT_ONCE):
            yield b"".join(lines)


def replay_on_spark(
    folder: Path, sides: Sides, options: EngineOptions, master: str | None, conf: Mapping[str, str], *, jobs: int,
    resume: bool = False, session: SparkSession | None = None,
) -> ReplayResult:  # fmt: skip
    """Play the plan in ``folder`` on Spark; see ``migverify.workload.replay.run.replay``.

    Parameters
    ----------
    jobs
        Shards, which are played at the same time: as many task slots must be there, or calls are late.
    session
        An open session; None opens one on ``master`` and closes it.

    Raises
    ------
    PlanError
        the folder holds no plan, or a journal although nothing is resumed.
    ConfigError, ReadError
        Spark cannot be had, or a job failed; what shards gave back is kept.
    """
    with alone(folder):
        plan, found, options = prepare(folder, options, resume=resume)
        attempt = found.attempts - 1
        with Spool(folder / PLANNED) as spool:
            left, start = remaining(spool, found)
            count = max(1, min(jobs, options.connections, len(left)))
            dealt = shards(spool, count, left)
            parts = tuple(
                Shard(number, tuple(sessions), max(1, options.connections // max(1, len(dealt))))
                for number, sessions in enumerate(dealt)
            )
            if plan.writes:
                _intend(spool, folder, attempt, parts, found.ended)
        own = (
            None if session is not None else open_session(master, "migverify workload replay", conf, max(1, len(parts)))
        )
        spark = session or own
        if spark is None:
            raise ReadError("there is no Spark session")
        began = time.time_ns() + int(LEAD * 1e9)
        try:
            name = _ship(spark, folder, bytes(one & 1 for one in found.state))
            task = PlayShards(name, attempt, parts, sides.endpoints, sides.secrets, options, start, began)
            counters, stopped = _collect(spark, task, folder, attempt, sides.secrets)
        finally:
            for sent in folder.glob(_PLAN.format("*")):
                sent.unlink()
            if own is not None:
                close_session(own)
        seconds = (time.time_ns() - began) / 1e9
        return finish(folder, plan, counters, seconds, stopped, open_loop=options.pace.kind is not PaceKind.FAST)


def _intend(spool: Spool, folder: Path, attempt: int, parts: tuple[Shard, ...], ended: Any) -> None:
    journal = Journal(folder / JOURNAL, 0, attempt)
    for part in parts:
        for number in part.sessions:
            session = spool.sessions[number]
            for index in range(session.first, session.first + session.count):
                # commits too: a transaction of which nothing came back may be committed
                if spool.place(index).flags & (WRITES | COMMITS) and not ended(index):
                    journal.intent(index, flush=False)
    journal.close()


def _ship(session: SparkSession, folder: Path, state: bytes) -> str:
    """Send plan and state to the executors, and return the file's name there."""
    name = _PLAN.format(time.time_ns())
    path = folder / name
    write_private(folder / "state.bin", state)
    with open(path, "wb", opener=private) as file, tarfile.open(fileobj=file, mode="w") as archive:
        archive.add(folder / PLANNED, PLANNED)
        archive.add(folder / "state.bin", "state.bin")
    if is_connect(session):
        session.addArtifacts(str(path), file=True)
    else:
        session.sparkContext.addFile(str(path))
    return name


def _collect(
    session: SparkSession, task: PlayShards, folder: Path, attempt: int, secrets: Mapping[str, str]
) -> tuple[Counters, str]:
    """Run the job and append what comes back to the run's journal, shard by shard."""
    journals: dict[int, Journal] = {}
    total = Counters()
    stopped = ""
    count = len(task.shards)
    if not count:
        return total, stopped
    played = session.range(0, count, 1, count).mapInArrow(task, SCHEMA).persist()
    try:
        # All shards at once: toLocalIterator alone runs a job for each, and no more than one ahead.
        played.count()
        for row in played.toLocalIterator():
            if row.kind == LINES:
                journal = journals.setdefault(row.shard, Journal(folder / JOURNAL, row.shard + 1, attempt))
                journal.take(bytes(row.body))
                journal.flush()
            elif row.kind == COUNTED:
                _add(total, json.loads(bytes(row.body)))
            else:
                stopped = stopped or bytes(row.body).decode()
    except MigverifyError:
        raise
    except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
        raise explain(error, secrets) from None
    finally:
        played.unpersist()
        for journal in journals.values():
            journal.close()
    return total, stopped


def _add(total: Counters, body: Mapping[str, int]) -> None:
    for name, value in body.items():
        worst = name in ("lag", "lag_most")
        setattr(total, name, max(getattr(total, name), value) if worst else getattr(total, name) + value)
