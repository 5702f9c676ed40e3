"""A Kafka broker on this machine from Maven artifacts: for tests and rehearsals, one node, no security.

Needs Maven and Java 17; the jars (46 MB) are fetched once into the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError
from migverify_lab.cache import Progress, cache_directory, file_lock, install_into, make_directory
from migverify_lab.process import ProcessId, free_ports, listens, spawn, stop, tail, wait_for_answer

VERSION = "3.9.1"

_START_SECONDS = 60.0
_ATTEMPTS = 3
_FETCH_SECONDS = 600.0
_POM = f"""\
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>migverify</groupId><artifactId>lab-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={folder}/log
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
"""


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker; ``servers`` is what clients call ``bootstrap.servers``."""

    servers: str
    folder: Path
    process: ProcessId


def find() -> Path | None:
    """Return the folder of the jars, None when they are not in the cache."""
    final = cache_directory() / f"kafka-{VERSION}"
    return final if final.is_dir() else None


def provide(on_progress: Progress) -> Path:
    """Return the folder of the jars, after fetching them where that is needed.

    Raises
    ------
    LabError
        Maven is missing or cannot fetch them.
    """
    found = find()
    if found is not None:
        return found
    final = cache_directory() / f"kafka-{VERSION}"
    with file_lock(final.with_name(f".{final.name}.lock"), on_progress):
        found = find()
        if found is not None:  # another process made it while we waited
            return found
        maven = shutil.which("mvn")
        if maven is None:
            raise LabError("no Kafka: mvn is not on PATH", hint="Install Maven, or name a broker that runs.")
        on_progress(f"Kafka {VERSION}: fetching 46 MB of jars with Maven")
        with install_into(final) as staging:
            (staging / "pom.xml").write_text(_POM, encoding="utf-8")
            _run(
                [maven, "-B", "-q", "dependency:copy-dependencies", "-DoutputDirectory=libs", "-DincludeScope=runtime"],
                staging,
            )
    return final


@contextmanager
def broker(folder: Path, on_progress: Progress = lambda _line: None) -> Iterator[Broker]:
    """Run a broker with its data in ``folder`` for as long as the context; raises LabError when it does not start."""
    jars, java = provide(on_progress), _java()
    for attempt in range(_ATTEMPTS):  # a port may be taken between looking and listening
        home = make_directory(folder / f"try{attempt}")
        port, process = _start(jars, java, home)
        try:
            _wait(process, port, home / "kafka.log")
            break
        except LabError:
            stop(process, seconds=15.0)
            if attempt == _ATTEMPTS - 1:
                raise
    try:
        yield Broker(f"127.0.0.1:{port}", home, process)
    finally:
        stop(process, seconds=15.0)


def _start(jars: Path, java: str, home: Path) -> tuple[int, ProcessId]:
    port, controller = free_ports(2)
    properties = home / "server.properties"
    properties.write_text(_PROPERTIES.format(port=port, controller=controller, folder=home), encoding="utf-8")
    program = [java, "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/libs/*"]
    cluster = _run([*program, "kafka.tools.StorageTool", "random-uuid"], home).strip()
    _run([*program, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)], home)
    return port, spawn([*program, "kafka.Kafka", str(properties)], home / "kafka.log", home)


def _wait(process: ProcessId, port: int, log: Path) -> None:
    wait_for_answer(lambda: listens(port) or None, "Kafka", _START_SECONDS, process, lambda: tail(log))


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if found is None:
        raise LabError("no Kafka: java is not on PATH", hint="Install Java 17.")
    return found


def _run(command: list[str], folder: Path) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LabError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().splitlines()[-10:]
        raise LabError(f"{Path(command[0]).name} failed:\n" + "\n".join(said))
    return done.stdout
