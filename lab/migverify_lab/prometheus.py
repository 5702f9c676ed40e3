"""Prometheus, for tests of the monitors: the one on PATH, else Debian's package unpacked like those of MySQL.

It is no part of the lab's pair. What a monitoring shows while it is stopped or starved, only a real one tells.
"""

from __future__ import annotations

from pathlib import Path

from migverify_lab import packages
from migverify_lab.cache import Progress


def find() -> tuple[str, ...] | None:
    """Return a command line of Prometheus to append arguments to; None where there is none."""
    return packages.find(packages.PROMETHEUS)


def provide(on_progress: Progress) -> tuple[str, ...]:
    """Return Prometheus, after downloading it into the cache where that is needed (about 25 MB).

    Raises
    ------
    LabError
        when there is no way to get it on this machine, or the download fails.
    """
    return packages.provide(packages.PROMETHEUS, on_progress)


def provide_promtool(on_progress: Progress) -> tuple[str, ...]:
    """Return the command line of promtool, which the same package has.

    Raises
    ------
    LabError
        as ``provide``.
    """
    return packages.provide(packages.PROMTOOL, on_progress)


def serve_command(programs: tuple[str, ...], configuration: Path, data: Path, port: int) -> list[str]:
    """Return the command line of a running server that listens on this machine only."""
    return [
        *programs, f"--config.file={configuration}", f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
