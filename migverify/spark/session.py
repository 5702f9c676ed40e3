"""Opens and closes a Spark session made for many small, waiting tasks.

A task waits for two databases; it needs a thread, not a core. So a local master gets as many "cores" as there
are slots, whatever the machine has, and nothing here moves rows through the JVM.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from migverify.errors import ConfigError, MigverifyError, UsageError
from migverify.spark.java import NO_ARCHIVE, QUIET, Archive, class_archive, find_java
from migverify.spark.pyfiles import build_pyfiles
from migverify.spark.settings import LOCAL_ATTEMPTS, LOG4J, as_properties, is_local, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

PYSPARK_FLOOR = (3, 5)
"""The oldest pyspark that migverify runs on: the Spark of EMR 7."""
_JAVA_FLOORS = {3: 11, 4: 17}

_END_SECONDS = 10.0
_ANSWER_SECONDS = 10.0


@dataclass(slots=True)
class _Driver:
    """The driver's JVM that this process started: Spark allows one at a time."""

    process: subprocess.Popen[bytes]
    archive: Archive
    scratch: tempfile.TemporaryDirectory[str]


_lock = threading.Lock()
_driver: _Driver | None = None


def open_session(
    master: str | None, app_name: str, conf: Mapping[str, str], slots: int, *, archive: bool = True
) -> SparkSession:
    """Open a Spark session that runs up to ``slots`` tasks at a time.

    Parameters
    ----------
    master
        ``local`` in any form (the number in it is replaced by ``slots``), ``spark://...``, ``yarn``,
        ``k8s://...``, or ``sc://...`` for Spark Connect; None means ``local``. When ``spark-submit`` started
        this process, its master is used instead.
    conf
        Spark settings that win over the ones chosen here. Settings are visible in Spark's UI and event log:
        they never hold a secret of an endpoint.
    slots
        How many tasks wait on the databases at the same time, at least 1.
    archive
        Whether to use, and make once, the class archive that makes the JVM start fast.

    Raises
    ------
    ConfigError
        pyspark or Java is missing or too old, or the master does not answer.
    UsageError
        A Spark session is open in this process already.
    """
    if slots < 1:
        raise UsageError(f"a Spark engine needs at least 1 slot, not {slots}")
    _require_pyspark()
    if master is not None and master.startswith("sc://"):
        return _open_connect(master, app_name, conf)
    with _lock:
        return _open_classic(master, app_name, conf, slots, archive)


def close_session(session: SparkSession, *, at_once: bool = False) -> None:
    """Stop a session and wait until the JVM it started is gone; remove its temporary files.

    The first driver on a machine takes some seconds more: it writes the class archive. ``at_once`` ends the JVM
    without that, for a run that was interrupted.
    """
    with _lock:
        try:
            with _no_java_errors("stopping Spark"):
                session.stop()
        finally:
            if not is_connect(session):
                _end_driver(at_once)


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _open_classic(
    master: str | None, app_name: str, conf: Mapping[str, str], slots: int, archive: bool
) -> SparkSession:
    from pyspark import SparkConf, SparkContext, SparkFiles
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        raise UsageError(
            "a Spark session is open in this process already", hint="Give that session to SparkEngine instead."
        )
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ  # spark-submit started the JVM, then this process
    if not submitted:
        master = master or conf.get("spark.master") or "local"
        if master.startswith("spark://"):
            _require_answer(master)
        _start_driver(master, conf, slots, archive)
    try:
        with _no_java_errors(f"cannot open a Spark session on {master or 'the master of spark-submit'}"):
            SparkContext._ensure_initialized()
            chosen = SparkConf().setAppName(app_name)
            if submitted:
                _fill(chosen, master, conf, slots)
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            session = SparkSession.builder.config(conf=chosen).getOrCreate()
            session.sparkContext.setLogLevel("ERROR")
            if not is_local(str(session.sparkContext.master)):
                # The driver's file server reads the zip whenever an executor asks: it lives as long as the driver.
                folder = Path(SparkFiles.getRootDirectory()) / "migverify-pyfiles"
                before = list(sys.path)
                session.sparkContext.addPyFile(str(build_pyfiles(folder)))
                sys.path[:] = before  # the driver has its own copy; the zip is gone when the session is
    except BaseException:
        with contextlib.suppress(Exception):  # the first error is the one to show
            _stop_active()
        _end_driver(at_once=True)
        raise
    return session


def _stop_active() -> None:
    from pyspark import SparkContext

    if SparkContext._active_spark_context is not None:
        SparkContext._active_spark_context.stop()


def _fill(chosen: Any, master: str | None, conf: Mapping[str, str], slots: int) -> None:
    """Under spark-submit its own master and settings stay; what it leaves open is chosen here."""
    submitted_to = str(chosen.get("spark.master", master or "local"))
    scratch = Path(tempfile.gettempdir())
    for key, value in settings(submitted_to, slots, scratch, "").items():
        if not key.startswith(("spark.driver.", "spark.sql.warehouse", "spark.local.dir")):
            chosen.setIfMissing(key, value)
    for key, value in conf.items():
        chosen.set(key, value)
    if is_local(submitted_to):
        chosen.setMaster(f"local[{slots},{LOCAL_ATTEMPTS}]")


def _start_driver(master: str, conf: Mapping[str, str], slots: int, archive: bool) -> None:
    """Start the JVM with settings in a file: arguments would show them in the process list."""
    global _driver
    from pyspark import SparkContext, __version__
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway

    java = find_java(_JAVA_FLOORS.get(_version(__version__)[0], max(_JAVA_FLOORS.values())))
    kept = class_archive(java, Path(_find_spark_home()), __version__) if archive else NO_ARCHIVE
    scratch = tempfile.TemporaryDirectory(prefix="migverify-spark-")
    folder = Path(scratch.name)
    try:
        (folder / "log4j2.properties").write_text(LOG4J, encoding="utf-8")
        options = (
            f"{QUIET} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {kept.options} "
            f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
        )
        chosen = settings(master, slots, folder, options) | dict(conf)
        if is_local(master):
            chosen["spark.master"] = f"local[{slots},{LOCAL_ATTEMPTS}]"
        if "spark.driver.extraJavaOptions" in conf:
            chosen["spark.driver.extraJavaOptions"] = f"{options} {conf['spark.driver.extraJavaOptions']}"
        properties = folder / "spark.properties"
        properties.touch(mode=0o600)
        # Of a setting that is there twice Java takes the last one.
        properties.write_text(_defaults(Path(_find_spark_home())) + as_properties(chosen), encoding="utf-8")
        with (
            (folder / "driver.log").open("wb") as log,
            _environment(_driver_environment(master, chosen, properties)),
            _no_java_errors(f"cannot start Spark's JVM for {master}", folder / "driver.log"),
        ):
            gateway = launch_gateway(None, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            _driver = _Driver(gateway.proc, kept, scratch)
            SparkContext._ensure_initialized(gateway=gateway)
    except BaseException:
        if _driver is None:
            scratch.cleanup()
        raise


def _defaults(home: Path) -> str:
    """Return the lines of ``spark-defaults.conf``: beside a properties file Spark 3.5 does not read it."""
    file = Path(os.environ.get("SPARK_CONF_DIR") or home / "conf") / "spark-defaults.conf"
    try:
        return file.read_text(encoding="utf-8") + "\n"
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"cannot read {file}: {type(error).__name__}", hint="Name another directory in SPARK_CONF_DIR."
        ) from error


def _driver_environment(master: str, chosen: Mapping[str, str], properties: Path) -> dict[str, str]:
    """Return the variables the JVM starts with.

    The Python of local workers is always this one. Executors elsewhere may have theirs at another path, so a
    stated one is kept.
    """
    stated = chosen.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    python = sys.executable if is_local(master) or not stated else stated
    os.environ["PYSPARK_PYTHON"] = python  # pyspark reads both when the context is made
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    arguments = os.environ.get("PYSPARK_SUBMIT_ARGS", "").removesuffix("pyspark-shell")
    variables = {
        "PYSPARK_SUBMIT_ARGS": f"{arguments} --properties-file '{properties}' pyspark-shell",
        # The launcher is a JVM of its own that only prints the driver's command line.
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    }
    if is_local(master):
        variables["SPARK_LOCAL_IP"] = "127.0.0.1"  # saves looking up this host's name
    return variables


def _end_driver(at_once: bool) -> None:
    global _driver
    driver, _driver = _driver, None
    if driver is None:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        if driver.archive.making() and not at_once:
            LOG.info("keeping an archive of Spark's classes, so that later runs start faster: %s", driver.archive.path)
            driver.archive.write(driver.process.pid)
        if gateway is not None:
            with _no_java_errors("stopping Spark"):
                gateway.shutdown()
        if driver.process.stdin is not None:
            driver.process.stdin.close()  # the JVM ends when its stdin does
        driver.process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        LOG.info("Spark's JVM did not end by itself in time; it is killed")
    finally:
        SparkContext._gateway = None
        SparkContext._jvm = None
        driver.process.kill()
        driver.process.wait()
        driver.scratch.cleanup()


def _open_connect(url: str, app_name: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    try:
        import grpc  # type: ignore[import-untyped,unused-ignore]  # noqa: F401 - pyspark's own message is a page
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect ({_bare(url)}) needs the package grpcio", hint="Run pip install 'pyspark[connect]'."
        ) from error
    _require_answer(url)
    with _no_java_errors(f"cannot open a Spark Connect session on {_bare(url)}"):
        builder = SparkSession.builder.remote(url).appName(app_name)
        for key, value in conf.items():
            builder = builder.config(key, value)
        session: SparkSession = builder.create()
        try:
            with tempfile.TemporaryDirectory(prefix="migverify-pyfiles-") as folder:
                session.addArtifacts(str(build_pyfiles(Path(folder))), pyfile=True)
        except BaseException:
            session.stop()
            raise
    return session


def _bare(url: str) -> str:
    """Return a Connect URL without its parameters: ``;token=`` is a secret."""
    return url.partition(";")[0]


def _require_pyspark() -> None:
    try:
        import pyspark
    except ImportError as error:
        raise ConfigError(
            "the Spark engine needs the package pyspark",
            hint="Run pip install 'migverify[spark]', or use --engine local.",
        ) from error
    if _version(pyspark.__version__) < PYSPARK_FLOOR:
        floor = ".".join(map(str, PYSPARK_FLOOR))
        raise ConfigError(
            f"the Spark engine needs pyspark {floor} or newer, and {pyspark.__version__} is installed",
            hint="Run pip install 'migverify[spark]', or use --engine local.",
        )


def _version(text: str) -> tuple[int, int]:
    major, minor = re.findall(r"\d+", text)[:2]
    return int(major), int(minor)


@contextlib.contextmanager
def _no_java_errors(what: str, log: Path | None = None) -> Iterator[None]:
    """Turn what pyspark, py4j and gRPC raise into one ConfigError without a Java stack trace."""
    try:
        yield
    except MigverifyError:
        raise
    except Exception as error:  # noqa: BLE001 - py4j, pyspark and grpc share no base class
        raise ConfigError(
            f"{what}: {_cause(error, log)}", hint="Check --spark-master, or use --engine local."
        ) from None


def _cause(error: Exception, log: Path | None) -> str:
    """Return the one line that says most: the innermost Java cause, or what the JVM said before it ended."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    while java is not None:
        text = java.getMessage() or java.toString()
        java = java.getCause()
    if log is not None and log.is_file():
        said = [line for line in log.read_text(errors="replace").splitlines() if line and line[0] not in " \t"]
        text = next((line for line in said if re.search("error|exception", line, re.IGNORECASE)), text)
    line = next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
    return re.sub(r'^Exception in thread "[^"]*" ', "", line)[:300]


def _require_answer(master: str) -> None:
    """Try the port of a master first: Spark would ask it for a minute, Spark Connect for many, before they give up.

    ``spark://`` may list several masters; one that answers is enough.
    """
    scheme, _, rest = master.partition("://")
    default = {"spark": 7077, "sc": 15002}[scheme]
    reasons = []
    for address in re.split("[/;]", rest, maxsplit=1)[0].split(","):
        try:
            split = urlsplit(f"//{address}")
            with socket.create_connection((split.hostname or "", split.port or default), timeout=_ANSWER_SECONDS):
                return
        except (OSError, ValueError) as error:
            reasons.append(f"{address}: {error}")
    raise ConfigError(
        f"the Spark master {scheme}://... does not answer: {'; '.join(reasons)}",
        hint="Check --spark-master and that the master runs, or use --engine local.",
    )


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for as long as its child is started."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
