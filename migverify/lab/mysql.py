"""MySQL from Debian's packages, unpacked into the cache and run with its own libc; nothing is installed.

Needs ``apt-get`` and ``dpkg-deb``, no root and no Docker. Where those are missing, a ``mysqld`` on PATH
serves.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError
from migverify.lab.cache import Progress, cache_directory, file_lock, install_into
from migverify.lab.process import tail

PREFIX_NAME = "mysql-9.7"
PACKAGES = ("mysql-server-core", "mysql-client-core")
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INSTALL_NOTE = "MySQL: one-time download of about 100 MB, under a minute on a good line"

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
class MysqlPrograms:
    """How to run the MySQL programs: ``mysqld`` is a command line to append arguments to."""

    mysqld: tuple[str, ...]


def find() -> MysqlPrograms | None:
    """Return the MySQL of the cache, or the one on PATH where no Debian package can be had; else None."""
    prefix = cache_directory() / PREFIX_NAME
    if (prefix / "root").is_dir():
        return _unpacked(prefix)
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return _from_path()
    return None


def provide(on_progress: Progress) -> MysqlPrograms:
    """Return MySQL, after downloading it into the cache where that is needed.

    Raises
    ------
    LabError
        When there is no way to get MySQL on this machine, or the download fails.
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
            raise LabError(
                "no MySQL server: neither apt-get and dpkg-deb nor a mysqld on PATH",
                hint="Start Docker, or put a mysqld of MySQL 8.0 or newer on PATH.",
            )
        started = time.monotonic()
        on_progress(INSTALL_NOTE)
        with install_into(final) as staging:
            download_packages(staging, PACKAGES, "sid", "MySQL", on_progress)
        on_progress(f"MySQL: unpacked into {final} ({time.monotonic() - started:.0f} s)")
    return _unpacked(final)


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


def _unpacked(prefix: Path) -> MysqlPrograms:
    root = prefix / "root"
    server = root / "usr" / "sbin" / "mysqld"
    return MysqlPrograms(
        (
            *loader_command(prefix, server), "--no-defaults",
            f"--basedir={root}/usr", f"--plugin-dir={root}/usr/lib/mysql/plugin",
            f"--lc-messages-dir={root}/usr/share/mysql",
            f"--character-sets-dir={root}/usr/share/mysql/charsets",
        )
    )  # fmt: skip


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


def client_command(name: str) -> tuple[str, ...] | None:
    """Return the command line of a client program such as ``mysqlbinlog``; None where there is none."""
    prefix = cache_directory() / PREFIX_NAME
    program = prefix / "root" / "usr" / "bin" / name
    if program.exists():
        return loader_command(prefix, program)
    found = shutil.which(name)
    return None if found is None else (found,)


def _from_path() -> MysqlPrograms | None:
    server = shutil.which("mysqld")
    if server is None:
        return None
    version = subprocess.run(  # noqa: S603
        [server, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Ver (\d+)\.(\d+)", version)
    if "MariaDB" in version or found is None or int(found[1]) < 8:
        raise LabError(f"{server} is not MySQL 8.0 or newer: {version.strip()}", hint="Start Docker instead.")
    return MysqlPrograms((server, "--no-defaults"))


def data_argument(data: Path) -> str:
    """Return the argument that names this server in the process list."""
    return f"--datadir={data}"


def initialize(programs: MysqlPrograms, directory: Path, data: Path) -> None:
    """Make an empty data folder with a root user without a password, reachable from this machine only.

    Raises
    ------
    LabError
        When the server refuses; the message holds the end of its log.
    """
    init = directory / "init.sql"
    # Name resolution is off, so 127.0.0.1 is not `localhost` and needs a user of its own.
    init.write_text(
        "CREATE USER 'root'@'127.0.0.1';\nGRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
        "GRANT PROXY ON ''@'' TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
    )
    log = directory / "init.log"
    with install_into(data) as staging, log.open("wb") as output:
        done = subprocess.run(  # noqa: S603 - our own command
            [*programs.mysqld, *user_argument(), data_argument(staging), "--initialize-insecure",
             f"--init-file={init}"],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False, cwd=directory,
        )  # fmt: skip
        if done.returncode != 0:
            raise LabError(
                f"mysqld --initialize-insecure ended with {done.returncode}\n{tail(log)}",
                hint=f"The whole log is {log}.",
            )


def serve_command(programs: MysqlPrograms, directory: Path, data: Path, port: int, server_id: int) -> list[str]:
    """Return the command line of a running server: row binlog with full metadata, GTID, LOAD DATA LOCAL."""
    return [
        *programs.mysqld, *user_argument(), data_argument(data), f"--port={port}", "--bind-address=127.0.0.1",
        # Relative to the data folder: the path of a socket may have 107 bytes only.
        "--socket=mysql.sock", "--pid-file=mysql.pid", "--mysqlx=OFF", "--skip-name-resolve",
        f"--tmpdir={directory / 'tmp'}", "--secure-file-priv=", f"--server-id={server_id}",
        "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--binlog-row-metadata=FULL",
        "--local-infile=ON", "--max-connections=300", "--innodb-buffer-pool-size=512M",
        "--innodb-redo-log-capacity=512M",
        # Safe when the process is killed; only a crash of the whole machine could lose a second of the lab.
        "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--binlog-expire-logs-seconds=86400",
    ]  # fmt: skip


def user_argument() -> list[str]:
    """Return what lets a server run as root where we are root."""
    return ["--user=root"] if os.geteuid() == 0 else []
