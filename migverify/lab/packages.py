"""Programs of Debian packages for the lab: the one on PATH, else one unpacked in the cache; nothing is installed."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from migverify.errors import LabError
from migverify.lab import mysql
from migverify.lab.cache import Progress, cache_directory, file_lock, install_into

__all__ = ["NGINX", "REDIS", "Package", "find", "provide"]

SUITE = "bookworm"


@dataclass(frozen=True, slots=True)
class Package:
    """A program: its name, the package that has it, where in the package, and the folder of the cache."""

    program: str
    package: str
    path: str
    folder: str


NGINX = Package("nginx", "nginx", "usr/sbin/nginx", "nginx-1.22")
REDIS = Package("redis-server", "redis-server", "usr/bin/redis-server", "redis-7.0")


def find(one: Package) -> tuple[str, ...] | None:
    """Return the command of the program on PATH, else of the one in the cache; None where there is neither."""
    found = shutil.which(one.program) or shutil.which(one.program, path="/usr/sbin:/usr/local/sbin")
    if found is not None:
        return (found,)
    prefix = cache_directory() / one.folder
    return mysql.loader_command(prefix, prefix / "root" / one.path) if (prefix / "root").is_dir() else None


def provide(one: Package, on_progress: Progress) -> tuple[str, ...]:
    """Return the command of a program, after downloading it into the cache where that is needed (a few MB).

    Raises
    ------
    LabError
        there is no way to get it on this machine, or the download fails.
    """
    found = find(one)
    if found is not None:
        return found
    final = cache_directory() / one.folder
    with file_lock(final.with_name(f".{one.folder}.lock"), on_progress):
        found = find(one)
        if found is not None:  # another process made it while we waited
            return found
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise LabError(
                f"no {one.program}: neither apt-get and dpkg-deb nor a {one.program} on PATH",
                hint=f"Install {one.package}.",
            )
        with install_into(final) as staging:
            mysql.download_packages(staging, (one.package,), SUITE, one.program, on_progress)
    return mysql.loader_command(final, final / "root" / one.path)
