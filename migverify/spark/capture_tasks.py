"""The work of a capture as tasks of Spark: the functions that processes run, on storage that all executors share."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from migverify.errors import MigverifyError, ReadError
from migverify.spark.engine import each_number, explain
from migverify.spark.session import session_on
from migverify.workload.capture import CaptureOptions, CaptureSummary, capture
from migverify.workload.parts import CaptureInput

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SCHEMA = "number int, body binary"
_Argument = TypeVar("_Argument")
_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class _Calls:
    """The function of the tasks."""

    work: Callable[[Any], object]
    arguments: tuple[Any, ...]

    def __call__(self, number: int) -> Iterator[pa.RecordBatch]:
        """Answer one number."""
        import pyarrow as pa

        body = pickle.dumps(self._answer(number))
        yield pa.RecordBatch.from_arrays([pa.array([number], pa.int32()), pa.array([body])], names=["number", "body"])

    def _answer(self, number: int) -> object:
        try:
            return self.work(self.arguments[number])
        except MigverifyError as error:
            return error
        except OSError as error:
            return ReadError(
                f"a task of Spark cannot use {error.filename}: {error.strerror}.",
                hint="Every executor has to see the files and the folder of --out under the paths of the driver, and"
                " its user has to be able to write there.",
            )


class SparkTasks:
    """Tasks of a Spark session; see ``migverify.workload.tasks.Tasks``."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def map(
        self, work: Callable[[_Argument], _Answer], arguments: Sequence[_Argument]
    ) -> Iterator[tuple[int, _Answer]]:
        """See ``Tasks``.

        Raises
        ------
        ConfigError, ReadError
            Spark cannot be had, or a task failed.
        """
        count = len(arguments)
        try:
            rows = each_number(self._session, count, _Calls(work, tuple(arguments)), SCHEMA).collect()
        except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
            raise explain(error, {}) from None
        if len(rows) != count:
            raise ReadError(f"Spark gave back {len(rows):,} of {count:,} answers.", hint="Nothing was written.")
        for row in rows:
            answer = pickle.loads(bytes(row.body))  # noqa: S301  (of our own tasks)
            if isinstance(answer, MigverifyError):
                raise answer
            yield row.number, answer


def capture_on_spark(
    inputs: Sequence[CaptureInput], options: CaptureOptions, master: str | None = None,
    conf: Mapping[str, str] | None = None, *, slots: int = 2, session: SparkSession | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CaptureSummary:  # fmt: skip
    """Capture files on Spark; see ``migverify.workload.capture.capture``.

    Parameters
    ----------
    slots
        How many tasks run at the same time.
    session
        An open session; None opens one on ``master`` and closes it.

    Raises
    ------
    UsageError
        see ``capture``.
    ConfigError, ReadError
        Spark cannot be had, a job failed, or bytes are unaccounted for; nothing is written then.
    """
    with session_on(master, "migverify workload capture", conf or {}, slots, session) as spark:
        return capture(inputs, options, SparkTasks(spark), progress)
