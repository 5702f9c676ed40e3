"""Debian's packages, unpacked into the cache and run with their own libc; nothing is installed.

The servers of the lab come this way where the machine has none of its own, and so do the programs that cases and
traffic need. What is on PATH goes first for the programs here.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from migverify.errors import LabError
from migverify_lab.cache import Progress, cache_directory, file_lock, install_into

__all__ = [
    "NGINX", "PROMETHEUS", "PROMTOOL", "Package", "Unpacking", "download_packages", "find", "loader_command", "provide",
    "unpacked",
]  # fmt: skip

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE = "bookworm"
Found = TypeVar("Found")

_MULTIARCH = {
    "x86_64": ("amd64", "x86_64-linux-gnu", "ld-linux-x86-64.so.2"),
    "aarch64": ("arm64", "aarch64-linux-gnu", "ld-linux-aarch64.so.1"),
}

_APT_CONF = """\
Dir::State "{apt}";
Dir::State::lists "{apt}/lists";
Dir::State::status "{apt}/status";
Dir::Cache "{apt}";
Dir::Cache::archives "{apt}/archives";
Dir::Etc::sourcelist "{apt}/sources.list";
Dir::Etc::sourceparts "-";
APT::Install-Recommends "false";
APT::Get::List-Cleanup "false";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "{user}";
Acquire::Languages "none";
"""


@dataclass(frozen=True, slots=True)
class Unpacking:
    """What to unpack: a folder of the cache, packages of a suite, a name for messages.

    ``missing`` and ``hint`` are said where there is no apt; ``note`` before a long download.
    """

    folder: str
    packages: tuple[str, ...]
    suite: str
    what: str
    missing: str
    hint: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Package:
    """A program: its name, the package that has it, where in the package, and the folder of the cache."""

    program: str
    package: str
    path: str
    folder: str


NGINX = Package("nginx", "nginx", "usr/sbin/nginx", "nginx-1.22")
PROMETHEUS = Package("prometheus", "prometheus", "usr/bin/prometheus", "prometheus")
PROMTOOL = Package("promtool", "prometheus", "usr/bin/promtool", "prometheus")


def find(one: Package) -> tuple[str, ...] | None:
    """Return the command of the program on PATH, else of the one in the cache; None where there is neither."""
    found = shutil.which(one.program)
    if found is not None:
        return (found,)
    prefix = cache_directory() / one.folder
    return loader_command(prefix, prefix / "root" / one.path) if (prefix / "root").is_dir() else None


def provide(one: Package, on_progress: Progress) -> tuple[str, ...]:
    """Return the command of a program, after downloading it into the cache where that is needed.

    Raises
    ------
    LabError
        there is no way to get it on this machine, or the download fails.
    """
    wanted = Unpacking(
        one.folder, (one.package,), SUITE, one.program,
        f"no {one.program}: neither apt-get and dpkg-deb nor a {one.program} on PATH", f"Install {one.package}.",
    )  # fmt: skip
    return unpacked(wanted, lambda: find(one), on_progress)


def unpacked(wanted: Unpacking, find_: Callable[[], Found | None], on_progress: Progress) -> Found:
    """Return what ``find_`` finds, after unpacking packages into the cache where it finds nothing.

    Raises
    ------
    LabError
        there is no apt, the download fails, or what was unpacked is not what was wanted.
    """
    found = find_()
    if found is not None:
        return found
    final = cache_directory() / wanted.folder
    with file_lock(final.with_name(f".{wanted.folder}.lock"), on_progress):
        found = find_()
        if found is not None:  # another process made it while we waited
            return found
        if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
            raise LabError(wanted.missing, hint=wanted.hint)
        started = time.monotonic()
        if wanted.note:
            on_progress(wanted.note)
        with install_into(final) as staging:
            download_packages(staging, wanted.packages, wanted.suite, wanted.what, on_progress)
        on_progress(f"{wanted.what}: unpacked into {final} ({time.monotonic() - started:.0f} s)")
    found = find_()
    if found is None:
        raise LabError(f"{final} holds no {wanted.what}", hint=f"Remove {final}; it is downloaded again.")
    return found


def download_packages(
    staging: Path, packages: Sequence[str], suite: str, what: str, on_progress: Progress, *, alone: bool = False
) -> None:
    """Download Debian packages and all they need into ``staging / "root"``, installing nothing.

    ``alone`` leaves out what they need: for files of a package that another one runs.

    Raises
    ------
    LabError
        apt-get or dpkg-deb fails; the message holds what it said.
    """
    apt, root = staging / "apt", staging / "root"
    for folder in (root, apt / "lists" / "partial", apt / "archives" / "partial"):
        folder.mkdir(parents=True)
    (apt / "status").touch()
    architecture = _multiarch()[0]
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    (apt / "sources.list").write_text(f"deb {signed}{_debian_site()} {suite} main\n")
    user = "root" if os.geteuid() == 0 else ""
    (apt / "apt.conf").write_text(_APT_CONF.format(apt=apt, architecture=architecture, user=user))
    environment = {**os.environ, "APT_CONFIG": str(apt / "apt.conf"), "LC_ALL": "C"}
    on_progress(f"{what}: reading Debian's package lists")
    _run(["apt-get", "-q", "update"], environment)
    on_progress(f"{what}: downloading {' and '.join(packages)}")
    if alone:
        _run(["apt-get", "-q", "download", *packages], environment, apt / "archives")
    else:
        _run(["apt-get", "-q", "-y", "--download-only", "install", *packages], environment)
    archives = sorted((apt / "archives").glob("*.deb"))
    if not archives:
        raise LabError("apt-get downloaded no package", hint="Run `apt-get update` and try again.")
    on_progress(f"{what}: unpacking {len(archives)} packages")
    for archive in archives:
        _run(["dpkg-deb", "-x", str(archive), str(root)], environment)
    shutil.rmtree(apt)  # 100 MB of archives that nobody reads again


def _debian_site() -> str:
    """Return the archive this machine already uses, so that mirrors and proxies keep working."""
    lines: list[str] = []
    if shutil.which("apt-get"):
        answer = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(SITE)"],  # noqa: S607
            capture_output=True,
            text=True,
            check=False,
        )
        lines += answer.stdout.splitlines()
    # Before the first `apt-get update` there are no targets; the configuration names the site all the same.
    folder = Path("/etc/apt")
    for path in [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]:
        if path.is_file():
            lines += re.findall(r"(?:mirror\+)?(?:https?|file)://?[^\s\]]+", path.read_text(errors="replace"))
    for line in lines:
        if re.search(r"/debian/?$", line):
            return line
    raise LabError(
        "this machine's apt sources name no Debian archive (a path that ends in /debian)",
        hint="Start Docker, or put a mysqld of MySQL 8.0 or newer on PATH.",
    )


def _run(command: list[str], environment: dict[str, str], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, env=environment, cwd=folder, capture_output=True, text=True, check=False, timeout=900
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"{command[0]} did not end in 900 s", hint="Check the network and try again.") from error
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
        raise LabError(
            f"{' '.join(command)} ended with {done.returncode}\n{said}",
            hint="Check the network and try again.",
        )


def _multiarch() -> tuple[str, str, str]:
    machine = platform.machine()
    if machine not in _MULTIARCH:
        raise LabError(f"no MySQL packages for {machine}", hint="Start Docker, or put a mysqld on PATH.")
    return _MULTIARCH[machine]


def loader_command(prefix: Path, program: Path) -> tuple[str, ...]:
    """Return the command line that runs an unpacked program with the libraries unpacked beside it.

    Raises
    ------
    LabError
        the program or its loader is missing.
    """
    root = prefix / "root"
    _, triplet, loader_name = _multiarch()
    loaders = sorted(root.rglob(loader_name))
    if not loaders or not program.exists():
        raise LabError(f"{prefix} holds no complete {program.name}", hint=f"Remove {prefix}; it is downloaded again.")
    libraries = ":".join(
        str(root / part) for part in (f"usr/lib/{triplet}", f"lib/{triplet}", f"usr/lib/{triplet}/mysql/private")
    )
    return str(loaders[0]), "--library-path", libraries, str(program)
