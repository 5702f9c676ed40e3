"""One local session and one cluster for all of tests/spark, each started when a test first asks for it."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.spark.settings import package_root
from tests.spark.cluster import Cluster, standalone_cluster
from tests.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
HEAVY_OF_SPARK = ["numpy"] if importlib.metadata.version("pyspark").startswith("3.") else []
"""What Spark's own worker imports: that of 3.5 takes numpy where it is installed."""
SECRET = "pw'@:/%#\"\\ qzx"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session", autouse=True)
def _java() -> None:
    """Without Java: skipped on a laptop, failed in CI."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        if os.environ.get("MIGVERIFY_REQUIRE_DB") == "1":
            pytest.fail("tests/spark need Java 17")
        pytest.skip("tests/spark need Java 17")


class Sessions:
    """Spark has one session per process: opening one with other settings closes the one before."""

    def __init__(self) -> None:
        self._key: object = None
        self._session: SparkSession | None = None

    def get(self, master: str = "local", conf: Mapping[str, str] | None = None, slots: int = 3) -> SparkSession:
        from migverify.spark.session import open_session
        from migverify.spark.settings import is_local

        if is_local(master) and not conf:
            slots = 3  # one session for all files
        key = (master, tuple(sorted((conf or {}).items())), slots)
        if key != self._key or self._session is None:
            self.close()
            path = os.pathsep.join([str(package_root()), str(HERE)])
            chosen = {"spark.executorEnv.PYTHONPATH": path} if is_local(master) else {}
            self._session = open_session(master, "migverify-tests", chosen | dict(conf or {}), slots)
            self._key = key
        return self._session

    def close(self) -> None:
        from migverify.spark.session import close_session

        session, self._session = self._session, None
        if session is not None:
            close_session(session)


@pytest.fixture(scope="session")
def sessions() -> Iterator[Sessions]:
    opened = Sessions()
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two workers of one core; the toys are on their path, migverify is not."""
    with standalone_cluster(2, 1, 1024, {"PYTHONPATH": str(HERE)}) as running:
        yield running


@pytest.fixture
def engine_on(sessions: Sessions) -> Iterator[Callable[..., Any]]:
    """Return a maker of engines on the shared session; all are closed after the test."""
    from migverify.spark.engine import SparkEngine

    made: list[SparkEngine] = []

    def make(runner: Any, master: str = "local", slots: int = 3, secrets: Mapping[str, str] | None = None) -> Any:
        given = {"source": SECRET, "target": "other password"} if secrets is None else secrets
        made.append(SparkEngine(sessions.get(master, slots=slots), given, slots, runner, owns_session=False))
        return made[-1]

    yield make
    for engine in made:
        engine.cancel()
        engine.close()


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Return a function that waits until its argument gives something true, and returns that."""
    return lambda ready: wait_for(ready, "what the test waits for", every=0.05)
