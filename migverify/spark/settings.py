"""The Spark settings that migverify chooses: pure values, readable without pyspark."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from migverify.spark.pyfiles import package_root

LOCAL_ATTEMPTS = 4
"""How often a local master tries a task whose Python worker died; Spark's own default for ``local`` is once."""

UNNAMED_MASTER = "local[*]"
"""The value of ``spark: master:`` where the configuration names none."""

_WORKER_MB = 512

LOG4J = """\
status = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%xEx{short}
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
"""


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
    cores = min(slots, 4)
    executors = -(-slots // cores)
    chosen |= {
        "spark.master": master,
        "spark.dynamicAllocation.enabled": "false",
        "spark.task.cpus": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:+IgnoreUnrecognizedVMOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    if master.startswith("spark://"):
        return chosen | {"spark.cores.max": str(slots)}
    return chosen | {
        "spark.executor.cores": str(cores),
        "spark.executor.instances": str(executors),
        "spark.executor.pyspark.memory": f"{_WORKER_MB * cores}m",
    }


def named_master(option: str | None, configured: str) -> str | None:
    """Return the master that an option or the configuration names; None: this machine, or that of ``spark-submit``."""
    return option or (None if configured == UNNAMED_MASTER else configured)


def is_spark_chosen(option: str | None, configured: str) -> bool:
    """Whether Spark runs where no engine is named: a master is named, or ``spark-submit`` started this process."""
    return named_master(option, configured) is not None or "PYSPARK_GATEWAY_PORT" in os.environ


def is_local(master: str) -> bool:
    """Whether the master is this process's own JVM."""
    return master == "local" or master.startswith("local[")


def as_properties(settings_: Mapping[str, str]) -> str:
    """Write settings in Java's properties format: every character outside plain ASCII text is escaped."""

    def escape(text: str) -> str:
        out = []
        for unit in text.encode("utf-16-be").hex(" ", 2).split():
            code = int(unit, 16)
            character = chr(code)
            plain = character.isascii() and (character.isalnum() or character in "._-/,[]{}()+*@;'\"$&|<>?%~^")
            out.append(character if plain else f"\\u{code:04x}")
        return "".join(out)

    return "".join(f"{escape(key)}={escape(value)}\n" for key, value in settings_.items())
