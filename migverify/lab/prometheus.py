"""Prometheus, for tests of the monitors: the one on PATH, else Debian's package unpacked like those of MySQL.

It is no part of the lab's pair. What a monitoring shows while it is stopped or starved, only a real one tells.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from migverify.errors import LabError
from migverify.lab import mysql
from migverify.lab.cache import Progress, cache_directory, file_lock, install_into

PREFIX_NAME = "prometheus"
PACKAGES = ("prometheus",)
SUITE = "bookworm"


def find() -> tuple[str, ...] | None:
    """Return a command line of Prometheus to append arguments to; None where there is none."""
    program = shutil.which("prometheus")
    if program is not None:
        return (program,)
    prefix = cache_directory() / PREFIX_NAME
    return _unpacked(prefix) if (prefix / "root").is_dir() else None


def provide(on_progress: Progress) -> tuple[str, ...]:
    """Return Prometheus, after downloading it into the cache where that is needed (about 25 MB).

    Raises
    ------
    LabError
        when there is no way to get it on this machine, or the download fails.
    """
    found = find()
    if found is not None:
        return found
    final = cache_directory() / PREFIX_NAME
    with file_lock(final.with_name(f".{PREFIX_NAME}.lock"), on_progress):
        found = find()
        if found is not None:  # another process made it while we waited
            return found
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise LabError("no Prometheus: neither apt-get and dpkg-deb nor a prometheus on PATH",
                           hint="Put a prometheus on PATH.")  # fmt: skip
        with install_into(final) as staging:
            mysql.download_packages(staging, PACKAGES, SUITE, "Prometheus", on_progress)
    return _unpacked(final)


def _unpacked(prefix: Path) -> tuple[str, ...]:
    program = prefix / "root" / "usr" / "bin" / "prometheus"
    if not program.is_file():
        raise LabError(f"{prefix} holds no Prometheus", hint="Remove it from the cache.")
    return tuple(mysql.loader_command(prefix, program))


def serve_command(programs: tuple[str, ...], configuration: Path, data: Path, port: int) -> list[str]:
    """Return the command line of a running server that listens on this machine only."""
    return [
        *programs, f"--config.file={configuration}", f"--storage.tsdb.path={data}",
        f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn",
    ]  # fmt: skip
