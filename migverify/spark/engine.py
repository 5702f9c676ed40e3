"""Runs tasks on Spark: one task, one job, one partition.

A job per task rather than one job for all, because the driver then has each answer as soon as it is there: it
can store it, show it, and make the next task out of it, while the plan stays lazy. Spark repeats a task whose
worker or executor died. A job costs about 20 ms, and up to ``slots`` of them run at a time.

Classic sessions run an RDD of one element, Spark Connect a plain (not Arrow) UDF over a range of one row. Both
need neither pyarrow nor pandas in the Python worker, which keeps it below 60 MB. The task and the secrets are
part of the pickled function, the one thing that Spark shows in no plan, setting, log or page.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from migverify.errors import ConfigError, MigverifyError, ReadError, RetryableReadError, UsageError
from migverify.spark.session import close_session, is_connect
from migverify.spark.worker import RUN_TASK, RunTask, TaskCall, hide, open_answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

_CANCEL_SECONDS = 0.2
_LIMIT = 300


class SparkEngine:
    """The engine of the tables road on a Spark session; see ``migverify.tables.engine.Engine``.

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
        self._jobs = jobs_of(session)
        self._canceled = threading.Event()
        self._lock = threading.Lock()
        self._running = 0
        self._canceler: threading.Thread | None = None
        self._closed = False
        self._pool = ThreadPoolExecutor(slots, "migverify-spark", initializer=self._jobs.mark_thread)
        # Starts the first Python worker while the driver still plans.
        self._warm = threading.Thread(target=self._warm_up, name="migverify-spark-warm", daemon=True)
        self._warm.start()

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
        while self._warm.is_alive():  # on a cluster without a free core it would wait for one
            self._try_cancel()
            self._warm.join(_CANCEL_SECONDS)
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
            self._try_cancel()
            time.sleep(_CANCEL_SECONDS)

    def _try_cancel(self) -> None:
        try:
            self._jobs.cancel()
        except Exception as error:  # noqa: BLE001 - a session that is gone runs no jobs
            LOG.debug("cannot cancel Spark jobs: %s", type(error).__name__)

    def _warm_up(self) -> None:
        try:
            self._jobs.mark_thread()
            self._jobs.run(TaskCall("migverify.spark.engine:_nothing", "", {}))
        except Exception as error:  # noqa: BLE001 - the first task meets the same error and reports it
            LOG.debug("cannot warm up Spark: %s", type(error).__name__)


def _nothing(_task: str, _secrets: Mapping[str, str]) -> str:
    return ""


class Jobs(Protocol):
    """The jobs of one engine on a session: those of threads that were marked, and no others, are canceled."""

    def run(self, call: TaskCall) -> str:
        """Run one task as a job."""
        ...

    def mark_thread(self) -> None:
        """Let the jobs that this thread starts from now on be canceled."""
        ...

    def cancel(self) -> None:
        """Cancel what runs."""
        ...


def jobs_of(session: SparkSession) -> Jobs:
    """Return the jobs of an engine on a session: tags of a session exist on Spark Connect only before Spark 4."""
    return _ConnectJobs(session) if is_connect(session) else _ClassicJobs(session)


class _ClassicJobs:
    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._tag = f"migverify-{uuid.uuid4().hex}"

    def run(self, call: TaskCall) -> str:
        # The task travels in the function: parallelize would write it to a temporary file.
        answers: list[str] = self._context.parallelize(range(1), 1).map(call).collect()
        return _only(answers)

    def mark_thread(self) -> None:
        self._context.addJobTag(self._tag)
        self._context.setInterruptOnCancel(True)
        self._context.setLocalProperty("spark.job.description", "migverify")

    def cancel(self) -> None:
        self._context.cancelJobsWithTag(self._tag)


class _ConnectJobs:
    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._tag = f"migverify-{uuid.uuid4().hex}"

    def run(self, call: TaskCall) -> str:
        from pyspark.sql.functions import udf

        function = udf(call, "string", useArrow=False).asNondeterministic()
        frame = self._session.range(0, 1, 1, 1).select(function("id").alias("answer"))
        return _only([row.answer for row in frame.collect()])

    def mark_thread(self) -> None:
        self._session.addTag(self._tag)

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)


def _only(answers: list[str]) -> str:
    if len(answers) != 1:
        raise ReadError(f"Spark gave {len(answers)} answers to one task")
    return answers[0]


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
        return ConfigError(
            f"a Spark executor cannot run tasks: {missing.group(1)}",
            hint="Ship migverify and PyMySQL to the executors: see docs/spark.md.",
        )
    line = hide(next((x.strip() for x in text.splitlines() if x.strip()), type(error).__name__), secrets)[:_LIMIT]
    if "stage failure" in line or "Python worker" in line:
        return RetryableReadError(f"Spark lost the task: {line}", hint="Look at the executor's log and memory limit.")
    return ReadError(f"Spark could not run the task: {line}")
