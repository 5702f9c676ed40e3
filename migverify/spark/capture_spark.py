"""Logs read on Spark: a task for each part of a file, a shuffle of rows to their share of sessions, a task for each.

Executors see the files under the same paths as the driver. Rows travel in packets of about a megabyte, so the JVM
sorts and ships few large rows; a share's Parquet comes back to the driver, which puts the capture together.
"""

from __future__ import annotations

import pickle  # what our own tasks send back
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from migverify.errors import MigverifyError, ReadError
from migverify.spark.capture_exchange import Account, Gathering, gather, read_part
from migverify.spark.capture_follow import Counts
from migverify.spark.capture_parallel import ParallelColumns, Progress, new_account
from migverify.spark.capture_parts import PART_BYTES, Ask, Read, SessionKey, Survey, survey
from migverify.spark.engine import explain
from migverify.spark.session import close_session, open_session
from migverify.spark.statements import StatementFiles
from migverify.workload.capture import CaptureInput, CaptureOptions, CaptureSummary, capture
from migverify.workload.lines import BLOCK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

SENT = "share int, rank int, nth int, serial int, body binary"
ANSWERED = "share int, kind string, name string, body binary"
FILE, DONE, FAILED = "file", "done", "failed"
ACCOUNTS = -1
"""The share that accounts of parts go to: they come by the same way as the rows, once for each part."""
_FILE_BYTES = 4 << 20
_ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True)
class SurveyParts:
    """The tasks of a first pass."""

    asks: tuple[Ask, ...]
    block: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Make the surveys whose numbers come in."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                body = _told(partial(survey, self.asks[number], self.block))
                yield _row(ANSWERED, [number, *body])


@dataclass(frozen=True)
class SendParts:
    """The tasks of a second pass: packets of rows, then the account."""

    reads: tuple[Read, ...]
    cuts: tuple[SessionKey, ...]
    block: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the parts whose numbers come in."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._send(self.reads[number])

    def _send(self, read: Read) -> Iterator[pa.RecordBatch]:
        part, serial = read.part, 0
        account: Account | MigverifyError = new_account(read)
        packets = read_part(read, self.cuts, account, self.block) if isinstance(account, Account) else iter(())
        while True:
            try:
                share, packet = next(packets)
            except StopIteration:
                break
            except (MigverifyError, OSError) as error:
                account = _failure(error)
                break
            yield _row(SENT, [share, part.rank, part.nth, serial, packet])
            serial += 1
        yield _row(SENT, [ACCOUNTS, part.rank, part.nth, serial, pickle.dumps(account)])


@dataclass(frozen=True)
class GatherShares:
    """The tasks behind the shuffle: each gets whole shares, in order."""

    gathering: Gathering

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Assemble the shares whose packets come in."""
        rows = _Rows(batches)
        while (share := rows.share) is not None:
            if share == ACCOUNTS:
                for body in rows.packets(share):
                    yield _row(ANSWERED, [ACCOUNTS, DONE, "", bytes(body)])
            else:
                yield from self._gather(share, rows.packets(share))

    def _gather(self, share: int, packets: Iterator[Any]) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryDirectory(prefix="migverify-capture-") as scratch:
            folder = Path(scratch)
            kind, name, body = _told(partial(gather, packets, self.gathering, folder))
            for _ in packets:  # of a share that failed: the next one's are behind them
                pass
            for path in sorted(folder.rglob("*.parquet")) if kind == DONE else ():
                with path.open("rb") as file:
                    while part := file.read(_FILE_BYTES):
                        yield _row(ANSWERED, [share, FILE, str(path.relative_to(folder)), part])
            yield _row(ANSWERED, [share, kind, name, body])


class _Rows:
    """Rows sorted by share, one share at a time."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._rows = (
            (share, body)
            for batch in batches
            for share, body in zip(batch.column(0).to_pylist(), batch.column(4), strict=True)
        )
        self._next = next(self._rows, None)

    @property
    def share(self) -> int | None:
        """The share of the next row; None behind the last."""
        return None if self._next is None else self._next[0]

    def packets(self, share: int) -> Iterator[memoryview]:
        """Yield the bodies of a share's rows."""
        while self._next is not None and self._next[0] == share:
            body = self._next[1]
            self._next = next(self._rows, None)
            yield memoryview(body.as_buffer())


def _told(work: Callable[[], object]) -> list[Any]:
    """Return what a task sends back: its answer, or why there is none."""
    try:
        return [DONE, "", pickle.dumps(work())]
    except (MigverifyError, OSError) as error:
        return [FAILED, "", pickle.dumps(_failure(error))]


def _failure(error: MigverifyError | OSError) -> MigverifyError:
    if isinstance(error, MigverifyError):
        return error
    return ReadError(
        f"a task of Spark cannot read {error.filename}: {error.strerror}.",
        hint="Every executor has to see the files under the paths that the driver was given.",
    )


def _row(schema: str, values: list[Any]) -> pa.RecordBatch:
    import pyarrow as pa

    types = {"int": pa.int32(), "string": pa.string(), "binary": pa.binary()}
    named = [one.strip().split(" ") for one in schema.split(",")]
    arrays = [pa.array([value], types[kind]) for value, (_, kind) in zip(values, named, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in named])


class SparkTasks:
    """Workers that are tasks of a Spark session, at most ``slots`` at the same time."""

    def __init__(self, session: SparkSession, slots: int, block: int = BLOCK) -> None:
        self._session, self._slots, self._block = session, slots, block

    @property
    def shares(self) -> int:
        """How many shares of sessions are assembled."""
        return 2 * self._slots

    def survey(self, asks: Sequence[Ask]) -> list[Survey]:
        """Make surveys, in their order."""
        found: dict[int, Survey] = {}
        with _plainly():
            tasks = self._numbers(len(asks)).mapInArrow(SurveyParts(tuple(asks), self._block), ANSWERED)
            for row in tasks.collect():
                found[row.share] = _opened(row.kind, row.body)
        return [found[number] for number in range(len(asks))]

    def exchange(
        self, reads: Sequence[Read], cuts: Sequence[SessionKey], gathering: Gathering, folder: Path, progress: Progress
    ) -> tuple[list[Account], list[tuple[Path, Counts]]]:
        """Read parts and assemble shares in folders of their own below ``folder``; returns them in order."""
        accounts: list[Account] = []
        shares = [folder / f"share-{number:05d}" for number in range(len(cuts) + 1)]
        counted = dict.fromkeys(shares, Counts())
        files: dict[Path, IO[bytes]] = {}
        for share in shares:
            share.mkdir()
        with _plainly(), _few_rows_at_once(self._session):
            made = self._shuffled(reads, cuts, gathering)
            try:
                made.count()  # all at the same time: what follows takes one after the other
                for row in made.toLocalIterator():
                    if row.kind == FILE:
                        path = shares[row.share] / row.name
                        if path not in files:
                            path.parent.mkdir(exist_ok=True)
                            files[path] = path.open("wb")
                        files[path].write(row.body)
                    elif row.share == ACCOUNTS:
                        accounts.append(_opened(row.kind, row.body))
                    else:
                        counted[shares[row.share]] = _opened(row.kind, row.body)
            finally:
                for file in files.values():
                    file.close()
                made.unpersist()
        progress(sum(one.count.bytes for one in accounts), sum(one.statements for one in counted.values()))
        if len(accounts) != len(reads):
            raise ReadError(
                f"Spark gave back {len(accounts):,} of {len(reads):,} parts.",
                hint="This is a bug; nothing was written.",
            )
        return accounts, [(share, counted[share]) for share in shares]

    def _shuffled(self, reads: Sequence[Read], cuts: Sequence[SessionKey], gathering: Gathering) -> DataFrame:
        from pyspark import StorageLevel

        sent = self._numbers(len(reads)).mapInArrow(SendParts(tuple(reads), tuple(cuts), self._block), SENT)
        count = len(cuts) + 2
        if hasattr(
            sent, "repartitionById"
        ):  # pyspark 4.1; a hash puts several shares into one task, and none in others
            sent = sent.repartitionById(count, sent["share"] - ACCOUNTS)
        else:
            sent = sent.repartition(count, "share")
        shares = sent.sortWithinPartitions("share", "rank", "nth", "serial")
        return shares.mapInArrow(GatherShares(gathering), ANSWERED).persist(StorageLevel.DISK_ONLY)

    def _numbers(self, count: int) -> DataFrame:
        return self._session.range(0, count, 1, max(1, count))


@contextmanager
def _plainly() -> Iterator[None]:
    """Turn what pyspark, py4j and gRPC raise into one line."""
    try:
        yield
    except (MigverifyError, OSError):
        raise
    except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
        raise explain(error, {}) from None


@contextmanager
def _few_rows_at_once(session: SparkSession) -> Iterator[None]:
    """Let few packets be in a worker's memory: their number is what Spark bounds by itself."""
    before = session.conf.get(_ROWS_AT_ONCE)
    session.conf.set(_ROWS_AT_ONCE, "8")
    try:
        yield
    finally:
        if before is not None:
            session.conf.set(_ROWS_AT_ONCE, before)


def _opened(kind: str, body: bytes) -> Any:
    found = pickle.loads(bytes(body))  # noqa: S301  (of our own tasks)
    if kind == FAILED or isinstance(found, MigverifyError):
        raise found
    return found


def capture_on_spark(
    inputs: Sequence[CaptureInput], options: CaptureOptions, master: str | None = None,
    conf: Mapping[str, str] | None = None, *, slots: int = 2, session: SparkSession | None = None,
    progress: Progress | None = None, part_bytes: int = PART_BYTES, block: int = BLOCK,
) -> CaptureSummary:  # fmt: skip
    """Capture files on Spark; see ``migverify.workload.capture.capture``.

    Parameters
    ----------
    slots
        How many tasks run at the same time.
    session
        An open session; None opens one on ``master`` and closes it.
    part_bytes
        Bytes of a file for each task. Packed files, and formats other than the logs of a server, are one task each.

    Raises
    ------
    UsageError
        see ``capture``.
    ConfigError, ReadError
        Spark cannot be had, a job failed, or bytes are unaccounted for; nothing is written then.
    """
    own = None if session is not None else open_session(master, "migverify workload capture", conf or {}, slots)
    spark = session or own
    if spark is None:
        raise ReadError("there is no Spark session")
    try:
        road = ParallelColumns(SparkTasks(spark, slots, block), progress, part_bytes)
        return capture(inputs, options, StatementFiles, road)
    finally:
        if own is not None:
            close_session(own)
