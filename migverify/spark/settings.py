"""What migverify chooses for Spark: the master, the settings, the zip that a bare executor needs. Needs no pyspark."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from migverify import __version__
from migverify.errors import ConfigError

UNNAMED_MASTER = "local[*]"
"""The value of ``spark: master:`` where the configuration names none."""
LOCAL_ATTEMPTS = 4
"""How often a local master tries a task whose Python worker died; Spark's own default for ``local`` is once."""
PACKAGES = ("migverify", "pymysql")
"""What an executor gets: pure Python, importable from a zip. ``cryptography`` is not: docs/spark.md has the remedy."""

_WORKER_MB = 512


def named_master(option: str | None, configured: str) -> str | None:
    """Return the master that an option or the configuration names; None: this machine, or that of ``spark-submit``."""
    return option or (None if configured == UNNAMED_MASTER else configured)


def is_spark_chosen(option: str | None, configured: str) -> bool:
    """Whether Spark runs where no engine is named: a master is named, or ``spark-submit`` started this process."""
    return named_master(option, configured) is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str) -> bool:
    """Whether the master is this process's own JVM."""
    return master == "local" or master.startswith("local[")


def settings(master: str, slots: int, scratch: Path, java_options: str) -> dict[str, str]:
    """Return the Spark settings for a classic master, before the user's own.

    Under ``local`` the executor is the driver. Elsewhere ``slots`` becomes cores to ask for: one task holds one
    core of Spark's count while it waits.
    """
    chosen = {
        "spark.ui.showConsoleProgress": "false",
        # Per-job state for a UI nobody opens would grow with the number of chunks.
        "spark.ui.retainedJobs": "20",
        "spark.ui.retainedStages": "20",
        "spark.ui.retainedTasks": "100",
        "spark.ui.retainedDeadExecutors": "10",
        "spark.sql.ui.retainedExecutions": "10",
        "spark.cleaner.periodicGC.interval": "5min",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.python.worker.reuse": "true",
        # Over TCP each round trip to a Python worker meets a delayed acknowledgment of 40 ms. Since Spark 4.
        "spark.python.unix.domain.socket.enabled": "true",
        # A larger closure would go through a temporary file, and the closure holds the secrets.
        "spark.broadcast.UDFCompressionThreshold": "1g",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": java_options,
    }
    if is_local(master):
        return chosen | {
            "spark.master": f"local[{slots},{LOCAL_ATTEMPTS}]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch / "local"),
            "spark.executorEnv.PYTHONPATH": str(package_root()),
        }
    chosen |= {
        "spark.master": master,
        "spark.dynamicAllocation.enabled": "false",
        "spark.task.cpus": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if master.startswith("spark://"):
        return chosen | {"spark.cores.max": str(slots)}
    cores = min(slots, 4)
    return chosen | {
        "spark.executor.cores": str(cores),
        "spark.executor.instances": str(-(-slots // cores)),
        "spark.executor.pyspark.memory": f"{_WORKER_MB * cores}m",
    }


def as_properties(values: Mapping[str, str]) -> str:
    """Write settings in Java's properties format: every character outside plain ASCII text is escaped."""

    def escape(text: str) -> str:
        units = (chr(int(unit, 16)) for unit in text.encode("utf-16-be").hex(" ", 2).split())
        return "".join(
            u if re.match(r"[\w./,()\[\]{}+*@;'\"$&|<>?%~^-]", u, re.ASCII) else f"\\u{ord(u):04x}" for u in units
        )

    return "".join(f"{escape(key)}={escape(value)}\n" for key, value in values.items())


def build_pyfiles(directory: Path) -> Path:
    """Write ``migverify-<version>-pyfiles.zip`` for ``--py-files`` into a directory and return its path.

    The zip holds :data:`PACKAGES` and has the same bytes for the same files, so that Spark's file cache can trust the
    name.

    Raises
    ------
    ConfigError
        A package is not installed as plain files, or the directory cannot be written.
    """
    target = directory / f"migverify-{__version__}-pyfiles.zip"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for folder in map(_folder, PACKAGES):
                for path in (folder, *sorted(folder.rglob("*"))):
                    if "__pycache__" in path.parts:
                        continue
                    # A folder needs its entry: without it a package that has no __init__.py is not found in a zip.
                    name = path.relative_to(folder.parent).as_posix() + "/" * path.is_dir()
                    info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
                    info.external_attr = 0o644 << 16
                    archive.writestr(info, b"" if path.is_dir() else path.read_bytes(), zipfile.ZIP_DEFLATED)
    except OSError as error:
        raise ConfigError(
            f"cannot write {target}: {error.strerror}", hint="Name a directory that can be written."
        ) from error
    return target


def package_root() -> Path:
    """Return the directory that holds the ``migverify`` package: what a local worker needs on its path."""
    return _folder("migverify").parent


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise ConfigError(
            f"the package {package} is not installed as plain files, so it cannot be packed for Spark executors",
            hint="Install migverify with pip into a directory, not as a zip.",
        )
    return Path(spec.origin).parent
