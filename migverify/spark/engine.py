"""Runs tasks on Spark: one task, one job, one partition.

A job per task rather than one job for all, because the driver then has each answer as soon as it is there: it
can store it, show it, and make the next task out of it, while the plan stays lazy. Spark repeats a task whose
worker or executor died. A job costs about 20 ms, and up to ``slots`` of them run at a time.

Classic sessions run an RDD of one element, Spark Connect a plain (not Arrow) UDF over a range of one row. Both
need neither pyarrow nor pandas in the Python worker, which keeps it below 60 MB. The task and the secrets are
part of the pickled function, the one thing that Spark shows in no plan, setting, log or page.

An exception that leaves a Python worker comes back as a Java stack trace, and Spark would repeat the task three
more times. So errors are answers: :class:`TaskCall` puts the runner's text, or what went wrong, into one text, and
:func:`open_answer` turns it back on the driver. An executor holds the bare wheel: this module imports no package at
its top but migverify.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from migverify import errors
from migverify.errors import ConfigError, MigverifyError, ReadError, RetryableReadError, UsageError
from migverify.secrets import Secret, scrub
from migverify.spark.session import close_session, is_connect

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

LOG = logging.getLogger(__name__)

RunTask = Callable[[str, Mapping[str, str]], str]
"""Runs one task: (task text, endpoint name -> password) -> answer text."""

RUN_TASK = "migverify.tables.engine:run_task"
"""The runner of ``tables verify``, by name: a worker imports it, the driver never pickles it."""

_ANSWER, _ERROR = "=", "!"
_CANCEL_SECONDS = 0.2
_LIMIT = 300
_SHIP = "Ship migverify and PyMySQL to the executors: see docs/spark.md."


# --- what a Python worker does ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaskCall:
    """One task on its way to a Python worker; called there, once, with the only row of its partition.

    ``secrets`` is in no ``repr``: pyspark shows the function in plans and messages, never its pickled bytes.
    """

    runner: str | RunTask
    task: str = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)

    def __call__(self, _row: object = None) -> str:
        """Return the answer or the error as one text, for :func:`open_answer`. Raises nothing on purpose."""
        try:
            runner: RunTask
            if isinstance(self.runner, str):
                module, _, name = self.runner.partition(":")
                runner = getattr(import_module(module), name)
            else:
                runner = self.runner
            answer = runner(self.task, self.secrets)
            if not isinstance(answer, str):
                raise ReadError(f"the task runner answered with {type(answer).__name__}, not with text")
        except Exception as error:  # noqa: BLE001 - every error becomes the task's answer; the driver raises it
            return error_answer(error, self.secrets)
        return _ANSWER + answer


def error_answer(error: Exception, secrets: Mapping[str, str]) -> str:
    """Return what went wrong as one line of text, without secrets, for :func:`open_answer`."""
    kind, message, hint = ReadError.__name__, f"{type(error).__name__}: {error}", ""
    if isinstance(error, MigverifyError):
        kind, message, hint = type(error).__name__, error.message, error.hint
    elif isinstance(error, ImportError):
        kind, message, hint = ConfigError.__name__, f"a Spark executor cannot run tasks: {error}", _SHIP
    return _ERROR + json.dumps({"error": kind, "message": hide(message, secrets), "hint": hide(hint, secrets)})


def open_answer(text: str) -> str:
    """Return the runner's answer out of what a worker sent.

    Raises
    ------
    MigverifyError
        What the runner raised, of the same class, with its message and hint.
    ReadError
        What the runner raised was no ``MigverifyError``, or the text is not a worker's.
    """
    if text.startswith(_ANSWER):
        return text[1:]
    if not text.startswith(_ERROR):
        raise ReadError(f"a Spark worker sent {len(text)} characters that are neither answer nor error")
    raised = json.loads(text[1:])
    kind = getattr(errors, raised["error"], None)
    if not (isinstance(kind, type) and issubclass(kind, MigverifyError)):
        kind = ReadError
    raise kind(raised["message"], hint=raised["hint"])


def hide(text: str, secrets: Mapping[str, str]) -> str:
    """Return the text without any of the secrets, in whichever spelling."""
    return scrub(text, [Secret(secret) for secret in secrets.values()])


# --- the driver ------------------------------------------------------------------------------------------------------


class Jobs:
    """The jobs of one engine on a session: those of threads that were marked, and no others, are canceled.

    Tags of a session exist on Spark Connect only before Spark 4; a classic session uses those of its context.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session: Any = session
        self._is_connect = is_connect(session)
        self._tag = f"migverify-{uuid.uuid4().hex}"

    def run(self, call: TaskCall) -> str:
        """Run one task as a job."""
        answers: list[str]
        if self._is_connect:
            from pyspark.sql.functions import udf

            function = udf(call, "string", useArrow=False).asNondeterministic()
            frame = self._session.range(0, 1, 1, 1).select(function("id").alias("answer"))
            answers = [row.answer for row in frame.collect()]
        else:  # the task travels in the function: parallelize would write it to a temporary file
            answers = self._session.sparkContext.parallelize(range(1), 1).map(call).collect()
        if len(answers) != 1:
            raise ReadError(f"Spark gave {len(answers)} answers to one task")
        return answers[0]

    def mark_thread(self) -> None:
        """Let the jobs that this thread starts from now on be canceled."""
        if self._is_connect:
            self._session.addTag(self._tag)
            return
        context = self._session.sparkContext
        context.addJobTag(self._tag)
        context.setInterruptOnCancel(True)
        context.setLocalProperty("spark.job.description", "migverify")

    def cancel(self) -> None:
        """Cancel what runs."""
        try:
            if self._is_connect:
                self._session.interruptTag(self._tag)
            else:
                self._session.sparkContext.cancelJobsWithTag(self._tag)
        except Exception as error:  # noqa: BLE001 - a session that is gone runs no jobs
            LOG.debug("cannot cancel Spark jobs: %s", type(error).__name__)


class SparkEngine:
    """The engine that runs tasks of tables on a Spark session; see ``migverify.tables.engine.Engine``.

    Parameters
    ----------
    session
        What ``open_session`` gave, or any other session of pyspark 3.5 or newer.
    secrets
        Endpoint name -> password. Sent to the workers inside the pickled function, and kept out of messages.
    slots
        How many jobs run at a time, at least 1; more tasks wait in the engine.
    runner
        The function that a worker calls, or its name as ``module:function``. It must be importable there.
    owns_session
        Whether ``close`` closes the session too.
    """

    name = "spark"

    def __init__(
        self,
        session: SparkSession,
        secrets: Mapping[str, str],
        slots: int,
        runner: str | RunTask = RUN_TASK,
        *,
        owns_session: bool = True,
    ) -> None:
        if slots < 1:
            raise UsageError(f"a Spark engine needs at least 1 slot, not {slots}")
        self.slots = slots
        self._session = session
        self._secrets = dict(secrets)
        self._runner = runner
        self._owns_session = owns_session
        self._jobs = Jobs(session)
        self._canceled = threading.Event()
        self._lock = threading.Lock()
        self._running = 0
        self._canceler: threading.Thread | None = None
        self._closed = False
        self._pool = ThreadPoolExecutor(slots, "migverify-spark", initializer=self._jobs.mark_thread)

    def submit(self, task: str) -> Future[str]:
        """Run one task; the future gives its answer or raises a ``MigverifyError``.

        Raises
        ------
        ReadError
            The engine is closed.
        """
        with self._lock:
            if self._closed:
                raise ReadError("the Spark engine is closed and takes no more tasks")
            return self._pool.submit(self._run, task)

    def cancel(self) -> None:
        """Stop running jobs, and refuse the waiting ones; returns at once. Workers are killed after 2 seconds."""
        self._canceled.set()
        with self._lock:
            if self._canceler is None:
                self._canceler = threading.Thread(target=self._cancel_jobs, name="migverify-spark-cancel", daemon=True)
                self._canceler.start()

    def close(self) -> None:
        """Wait for what runs, then release threads and, where it owns it, the session. May be called twice."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._pool.shutdown(wait=True)
        if self._canceler is not None:
            self._canceler.join()
        if self._owns_session:
            close_session(self._session, at_once=self._canceled.is_set())

    def _run(self, task: str) -> str:
        with self._lock:
            self._running += 1
        try:
            if self._canceled.is_set():
                raise ReadError("canceled before it started")
            return open_answer(self._jobs.run(TaskCall(self._runner, task, self._secrets)))
        except MigverifyError:
            raise
        except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
            if self._canceled.is_set():
                raise ReadError("canceled while it ran") from None
            raise explain(error, self._secrets) from None
        finally:
            with self._lock:
                self._running -= 1

    def _cancel_jobs(self) -> None:
        """Cancel until nothing runs: a job may start between the flag's test and the first cancel."""
        while True:
            with self._lock:
                if self._running == 0:
                    return
            self._jobs.cancel()
            time.sleep(_CANCEL_SECONDS)


def explain(error: Exception, secrets: Mapping[str, str]) -> MigverifyError:
    """Say in one line what Spark says in a page of Java."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    if java is not None:
        try:
            text = java.getMessage() or java.toString()
        except Exception as gone:  # noqa: BLE001 - the JVM that holds the message has ended
            text = type(gone).__name__
    missing = re.search(r"ModuleNotFoundError: (No module named '[^']+')", text)
    if missing:
        return ConfigError(f"a Spark executor cannot run tasks: {missing.group(1)}", hint=_SHIP)
    line = hide(next((x.strip() for x in text.splitlines() if x.strip()), type(error).__name__), secrets)[:_LIMIT]
    if "stage failure" in line or "Python worker" in line:
        return RetryableReadError(f"Spark lost the task: {line}", hint="Look at the executor's log and memory limit.")
    return ReadError(f"Spark could not run the task: {line}")


# --- frames of numbers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EachNumber:
    """The function of ``mapInArrow``: does the work of each number that comes in. ``work`` may hold secrets."""

    work: Callable[[int], Iterator[pa.RecordBatch]]

    def __repr__(self) -> str:
        return f"EachNumber({type(self.work).__name__})"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield what the work gives for the numbers of a partition."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.work(number)


def each_number(
    session: SparkSession, count: int, work: Callable[[int], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Return the frame of what ``work`` gives for the numbers below ``count``, one partition each; needs pyarrow."""
    return session.range(0, count, 1, max(1, count)).mapInArrow(EachNumber(work), schema)
