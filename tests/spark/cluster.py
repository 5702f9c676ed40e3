"""A small Spark cluster, or a Spark Connect server, on this machine.

The pip distribution of pyspark has no ``start-master.sh``, but it has the classes. Every process started here
carries a mark in its environment; the end of the context kills all that carry it, so that neither an executor
nor a Python worker that left its process group outlives the cluster. Linux only.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from migverify.errors import ConfigError
from migverify.spark.session import JVM, class_archive, find_java

_MARK = "MIGVERIFY_CLUSTER"
_START_SECONDS = 120.0
_END_SECONDS = 20.0
_HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Cluster:
    """Running processes of one context. ``url`` is the master for ``open_session``, ``folder`` holds the logs."""

    url: str
    folder: Path
    mark: str

    def executors(self) -> tuple[int, ...]:
        """Return the process ids of the executors that run now."""
        return tuple(pid for pid in _marked(self.mark) if "CoarseGrainedExecutorBackend" in _command(pid))

    def processes(self) -> tuple[int, ...]:
        """Return the process ids of everything that belongs to the cluster."""
        return tuple(_marked(self.mark))


@contextlib.contextmanager
def standalone_cluster(
    workers: int = 2, cores: int = 1, memory_mb: int = 1024, variables: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Run a standalone master and its workers on free ports of 127.0.0.1.

    Parameters
    ----------
    cores
        Tasks that one worker runs at a time; more than the machine has is fine, tasks mostly wait.
    memory_mb
        What one worker offers to executors, in MiB.
    variables
        Environment of the workers, and so of the executors and Python workers.

    Raises
    ------
    ConfigError
        Java or pyspark is missing, or the workers did not register in two minutes.
    """
    with _marked_folder(variables or {}) as (folder, mark, environment, options):
        port, page = _free_port(), _free_port()
        url = f"spark://{_HOST}:{port}"
        environment |= {"SPARK_DAEMON_JAVA_OPTS": options, "SPARK_DAEMON_MEMORY": "256m"}
        start = "org.apache.spark.deploy"
        _spawn(
            folder / "master.log", environment, "spark-class", f"{start}.master.Master",
            "--host", _HOST, "--port", str(port), "--webui-port", str(page),
        )  # fmt: skip
        for number in range(workers):
            _spawn(
                folder / f"worker-{number}.log", environment, "spark-class", f"{start}.worker.Worker",
                "--host", _HOST, "--webui-port", str(_free_port()), "-c", str(cores), "-m", f"{memory_mb}m",
                "-d", str(folder / f"worker-{number}"), url,
            )  # fmt: skip
        _wait("a standalone cluster", lambda: _alive_workers(page) == workers, folder)
        yield Cluster(url, folder, mark)


@contextlib.contextmanager
def connect_server(slots: int = 2, conf: Mapping[str, str] | None = None) -> Iterator[Cluster]:
    """Run a Spark Connect server on a local master, on a free port of 127.0.0.1.

    Raises
    ------
    ConfigError
        Java or pyspark is missing, or the server did not answer in two minutes.
    """
    import pyspark

    if not list((Path(pyspark.__file__).parent / "jars").glob("spark-connect_*.jar")):
        pytest.skip("pyspark 3.5 from PyPI has no Spark Connect server")
    with _marked_folder({}) as (folder, mark, environment, options):
        port = _free_port()
        chosen = {
            "spark.connect.grpc.binding.address": _HOST,
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.host": _HOST,
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": options,
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.sql.artifact.copyFromLocalToFs.allowDestLocal": "false",
            "spark.ui.enabled": "false",
        }
        chosen |= conf or {}
        settings = [part for key, value in chosen.items() for part in ("--conf", f"{key}={value}")]
        _spawn(
            folder / "connect.log", environment, "spark-submit",
            "--class", "org.apache.spark.sql.connect.service.SparkConnectServer",
            "--master", f"local[{slots},4]", *settings, "spark-internal",
        )  # fmt: skip
        _wait("a Spark Connect server", lambda: _answers(port), folder)
        yield Cluster(f"sc://{_HOST}:{port}", folder, mark)


@contextlib.contextmanager
def _marked_folder(variables: Mapping[str, str]) -> Iterator[tuple[Path, str, dict[str, str], str]]:
    from pyspark.find_spark_home import _find_spark_home

    java = find_java()
    home = Path(_find_spark_home())
    archive = class_archive(java, home)
    shared = "" if archive.path else archive.option
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="migverify-cluster-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        environment = dict(os.environ)
        environment |= {
            _MARK: mark,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_CONF_DIR": str(folder),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_NO_DAEMONIZE": "1",
        }
        environment |= variables
        try:
            yield folder, mark, environment, f"{JVM} {shared}".strip()
        finally:
            _end(mark)


def _spawn(log: Path, environment: Mapping[str, str], script: str, *arguments: str) -> None:
    command = [str(Path(environment["SPARK_HOME"]) / "bin" / script), *arguments]
    with log.open("wb") as file:
        subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )


def _end(mark: str) -> None:
    """Kill what carries the mark until nothing does: a worker may start an executor while it is killed."""
    deadline = time.monotonic() + _END_SECONDS
    while pids := _marked(mark):
        if time.monotonic() > deadline:
            raise ConfigError(f"processes of the Spark cluster do not end: {pids}", hint="Kill them by hand.")
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)


def _marked(mark: str) -> list[int]:
    wanted = f"{_MARK}={mark}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            # A process may end, or belong to another user, while it is looked at. One that ended has no environ.
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _alive_workers(page: int) -> int:
    try:
        with urllib.request.urlopen(f"http://{_HOST}:{page}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, urllib.error.URLError, ValueError, KeyError):
        return 0


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((_HOST, port), timeout=1):
        return True
    return False


def _wait(what: str, ready: Callable[[], bool], folder: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            logs = "\n".join(f"{p.name}: {p.read_text(errors='replace')[-800:]}" for p in folder.glob("*.log"))
            raise ConfigError(f"{what} did not start in {_START_SECONDS:.0f} seconds:\n{logs}")
        time.sleep(0.2)
