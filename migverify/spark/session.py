"""Opens and closes a Spark session made for many small, waiting tasks.

A task waits for two databases; it needs a thread, not a core. So a local master gets as many "cores" as there
are slots, and nothing here moves rows through the JVM. Importing this module imports no pyspark.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import shutil
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

from migverify.errors import ConfigError, MigverifyError, UsageError, wheel_hint
from migverify.spark.settings import LOCAL_ATTEMPTS, as_properties, build_pyfiles, is_local, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger(__name__)

PYSPARK_FLOOR = (3, 5)
"""The oldest pyspark that migverify runs on: the Spark of EMR 7."""
JVM = "-XX:+IgnoreUnrecognizedVMOptions -Xlog:disable -Xlog:all=off -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of every JVM here. The JVM's own warnings would go to stdout, which belongs to the command's data."""
_JAVA_FLOORS = {3: 11, 4: 17}
_JAVA_HINT = "Install Java 17 or newer and put it on PATH or in JAVA_HOME, or use --engine local, which needs no Java."
_MASTER_HINT = "Check --spark-master, or use --engine local."
_END_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_ARCHIVE_SECONDS = 180.0
_LOG4J = """\
status = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%xEx{short}
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""


@dataclass(slots=True)
class _Driver:
    """The driver's JVM that this process started: Spark allows one at a time."""

    process: subprocess.Popen[bytes]
    archive: ClassArchive
    scratch: tempfile.TemporaryDirectory[str]


_lock = threading.Lock()
_driver: _Driver | None = None


def is_connect(session: SparkSession) -> bool:
    """Whether the session talks to a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


# --- sessions --------------------------------------------------------------------------------------------------------


def open_session(master: str | None, app_name: str, conf: Mapping[str, str], slots: int) -> SparkSession:
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
        return _open_classic(master, app_name, conf, slots)


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


@contextlib.contextmanager
def session_on(
    master: str | None, app_name: str, conf: Mapping[str, str], slots: int, session: SparkSession | None = None
) -> Iterator[SparkSession]:
    """Yield the session given, or one of :func:`open_session`, which is closed at the end."""
    if session is not None:
        yield session
        return
    own = open_session(master, app_name, conf, slots)
    try:
        yield own
    finally:
        close_session(own)


def _open_classic(master: str | None, app_name: str, conf: Mapping[str, str], slots: int) -> SparkSession:
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
        _start_driver(master, conf, slots)
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
            getattr(SparkContext, "_active_spark_context").stop()  # noqa: B009 - mypy knows it as None here
        _end_driver(at_once=True)
        raise
    return session


def _open_connect(url: str, app_name: str, conf: Mapping[str, str]) -> SparkSession:
    from pyspark.sql import SparkSession

    bare = url.partition(";")[0]  # ``;token=`` is a secret
    try:
        import grpc  # type: ignore[import-untyped,unused-ignore]  # noqa: F401 - pyspark's own message is a page
    except ImportError as error:
        raise ConfigError(
            f"Spark Connect ({bare}) needs the package grpcio", hint=f"{wheel_hint('connect')}."
        ) from error
    _require_answer(url)
    with _no_java_errors(f"cannot open a Spark Connect session on {bare}"):
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


def _fill(chosen: Any, master: str | None, conf: Mapping[str, str], slots: int) -> None:
    """Under spark-submit its own master and settings stay; what it leaves open is chosen here."""
    submitted_to = str(chosen.get("spark.master", master or "local"))
    for key, value in settings(submitted_to, slots, Path(tempfile.gettempdir()), "").items():
        if not key.startswith(("spark.driver.", "spark.sql.warehouse", "spark.local.dir")):
            chosen.setIfMissing(key, value)
    for key, value in conf.items():
        chosen.set(key, value)
    if is_local(submitted_to):
        chosen.setMaster(f"local[{slots},{LOCAL_ATTEMPTS}]")


# --- the driver's JVM ------------------------------------------------------------------------------------------------


def _start_driver(master: str, conf: Mapping[str, str], slots: int) -> None:
    """Start the JVM with settings in a file: arguments would show them in the process list."""
    global _driver
    from pyspark import SparkContext, __version__
    from pyspark.find_spark_home import _find_spark_home
    from pyspark.java_gateway import launch_gateway

    java = find_java(_JAVA_FLOORS.get(_version(__version__)[0], max(_JAVA_FLOORS.values())))
    home = Path(_find_spark_home())
    archive = class_archive(java, home)
    scratch = tempfile.TemporaryDirectory(prefix="migverify-spark-")
    folder = Path(scratch.name)
    try:
        (folder / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
        options = f"{JVM} {archive.option} -Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"
        chosen = settings(master, slots, folder, options) | dict(conf)
        if is_local(master):
            chosen["spark.master"] = f"local[{slots},{LOCAL_ATTEMPTS}]"
        if "spark.driver.extraJavaOptions" in conf:
            chosen["spark.driver.extraJavaOptions"] = f"{options} {conf['spark.driver.extraJavaOptions']}"
        properties = folder / "spark.properties"
        properties.touch(mode=0o600)
        # Of a setting that is there twice Java takes the last one.
        properties.write_text(_defaults(home) + as_properties(chosen), encoding="utf-8")
        with (
            (folder / "driver.log").open("wb") as log,
            _environment(_driver_environment(master, chosen, properties)),
            _no_java_errors(f"cannot start Spark's JVM for {master}", folder / "driver.log"),
        ):
            gateway = launch_gateway(None, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
            _driver = _Driver(gateway.proc, archive, scratch)
            SparkContext._ensure_initialized(gateway=gateway)
    except BaseException:
        if _driver is None:
            scratch.cleanup()
        raise


def _end_driver(at_once: bool) -> None:
    global _driver
    driver, _driver = _driver, None
    if driver is None:
        return
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    try:
        if not at_once:
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


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process for as long as its child is started."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name in variables:
            os.environ.pop(name, None)
        os.environ.update({name: before[name] for name in variables if name in before})


def find_java(floor: int = 17) -> Path:
    """Return the home of the Java that Spark would start, resolved.

    Raises
    ------
    ConfigError
        There is none, its version cannot be read, or it is older than ``floor``.
    """
    home = os.environ.get("JAVA_HOME")
    command = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if command is None or not os.access(command, os.X_OK):
        where = f"JAVA_HOME is {home}, but {command} cannot be run" if home else "there is no java on PATH"
        raise ConfigError(f"Spark needs Java: {where}", hint=_JAVA_HINT)
    found = Path(command).resolve().parent.parent
    try:  # the file of every Java since 9: reading it saves the start of a JVM
        release = (found / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        release = ""
    if "JAVA_VERSION=" not in release:
        try:
            release = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=30).stderr  # noqa: S603
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"cannot run {command}: {type(error).__name__}", hint=_JAVA_HINT) from error
    version = re.search(r'(?:JAVA_VERSION=|version )"(?:1\.)?(\d+)', release)
    if version is None:
        raise ConfigError(f"cannot read the version of {command}", hint=_JAVA_HINT)
    if int(version[1]) < floor:
        raise ConfigError(f"Spark needs Java {floor} or newer, but {command} is Java {version[1]}", hint=_JAVA_HINT)
    return found


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """The archive of the classes that Spark's driver loads (AppCDS): made once, and mapped by every driver after it.

    ``option`` is of the driver's JVM; ``path`` is where the archive belongs, None where there is none to make.
    """

    option: str = ""
    path: Path | None = None
    jcmd: Path = Path(os.devnull)

    def write(self, pid: int) -> None:
        """Have a running JVM write the classes that it loaded; without an archive the next driver tries again."""
        if self.path is None:
            return
        LOG.info("keeping an archive of Spark's classes, so that later runs start faster: %s", self.path)
        with (
            contextlib.suppress(OSError, subprocess.SubprocessError),
            tempfile.TemporaryDirectory(dir=self.path.parent) as folder,
        ):
            part = Path(folder) / self.path.name
            command = [str(self.jcmd), str(pid), "VM.cds", "dynamic_dump", str(part)]
            subprocess.run(command, capture_output=True, timeout=_ARCHIVE_SECONDS, check=True)  # noqa: S603
            part.replace(self.path)


def class_archive(java: Path, spark_home: Path) -> ClassArchive:
    """Return the archive for one Java and one Spark, in ``$XDG_CACHE_HOME/migverify`` or ``~/.cache/migverify``.

    Never raises: a home that cannot be written, a Java without ``jcmd``, or a path that Java's options cannot hold
    means no archive.
    """
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "migverify"
    try:
        jars = "\n".join(f"{p.name} {p.stat().st_size}" for p in sorted((spark_home / "jars").iterdir()))
        release = (java / "release").read_text(encoding="utf-8", errors="replace")
        key = hashlib.sha256(f"{java}\n{release}\n{spark_home}\n{jars}".encode()).hexdigest()[:16]
        path = folder / f"spark-{key}.jsa"
        if re.search(r"[\s\"'\\%]", str(path)):
            return ClassArchive()
        if path.is_file():
            return ClassArchive(f"-XX:SharedArchiveFile={path}")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ClassArchive()
    jcmd = java / "bin" / "jcmd"
    if not os.access(folder, os.W_OK) or not os.access(jcmd, os.X_OK):
        return ClassArchive()
    # Not -XX:ArchiveClassesAtExit: a JVM whose driver was killed would write for a minute before it is gone.
    return ClassArchive("-XX:+RecordDynamicDumpInfo", path, jcmd)


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


# --- refusals --------------------------------------------------------------------------------------------------------


def _require_pyspark() -> None:
    hint = f"{wheel_hint('spark')}, or use --engine local."
    try:
        import pyspark
    except ImportError as error:
        raise ConfigError("the Spark engine needs the package pyspark", hint=hint) from error
    if _version(pyspark.__version__) < PYSPARK_FLOOR:
        floor = ".".join(map(str, PYSPARK_FLOOR))
        raise ConfigError(
            f"the Spark engine needs pyspark {floor} or newer, and {pyspark.__version__} is installed", hint=hint
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
        raise ConfigError(f"{what}: {_cause(error, log)}", hint=_MASTER_HINT) from None


def _cause(error: Exception, log: Path | None) -> str:
    """Return the one line that says most: the innermost Java cause, or what the JVM wrote before it ended."""
    text = str(error)
    java = getattr(error, "java_exception", None)
    while java is not None:
        text = java.getMessage() or java.toString()
        java = java.getCause()
    if log is not None and log.is_file():
        lines = [line for line in log.read_text(errors="replace").splitlines() if line and line[0] not in " \t"]
        text = next((line for line in lines if re.search("error|exception", line, re.IGNORECASE)), text)
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
