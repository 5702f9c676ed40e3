"""The process that forks Python workers, with the task code already imported.

Spark starts ``python -m migverify.spark.daemon pyspark.worker`` instead of ``pyspark.daemon`` on a local master
(``spark.python.daemon.module``). Each worker is a fork of it, so the imports are paid once and their memory is
shared. Nothing here opens a socket or a thread: those do not survive a fork.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import runpy

PRELOAD = "MIGVERIFY_PRELOAD"
"""Variable of the daemon: comma-separated modules to import before the first fork."""


def preload(names: str) -> None:
    """Import the modules; one that is missing is left to the task, which says so with its own error."""
    for name in filter(None, names.split(",")):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


if __name__ == "__main__":
    preload(os.environ.get(PRELOAD, ""))
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
