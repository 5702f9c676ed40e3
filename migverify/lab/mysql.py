"""MySQL from Debian's packages, unpacked into the cache and run with its own libc; nothing is installed.

Needs ``apt-get`` and ``dpkg-deb``, no root and no Docker. Where those are missing, a ``mysqld`` on PATH
serves.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from migverify.errors import LabError
from migverify.lab.cache import Progress, cache_directory, install_into
from migverify.lab.packages import Unpacking, loader_command, unpacked
from migverify.lab.process import tail

PREFIX_NAME = "mysql-9.7"
PACKAGES = ("mysql-server-core", "mysql-client-core")
INSTALL_NOTE = "MySQL: one-time download of about 100 MB, under a minute on a good line"


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
    wanted = Unpacking(
        PREFIX_NAME, PACKAGES, "sid", "MySQL", "no MySQL server: neither apt-get and dpkg-deb nor a mysqld on PATH",
        "Start Docker, or put a mysqld of MySQL 8.0 or newer on PATH.", INSTALL_NOTE,
    )  # fmt: skip
    return unpacked(wanted, find, on_progress)


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
