"""MySQL from Debian's packages, unpacked into the cache and run with its own libc; nothing is installed.

Needs ``apt-get`` and ``dpkg-deb``, no root and no Docker. Where those are missing, a ``mysqld`` on PATH
serves.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from migverify.errors import LabError
from migverify_lab.cache import Progress, cache_directory
from migverify_lab.engine import Program, ServerEngine, initialize_with, user_argument
from migverify_lab.packages import Unpacking, loader_command, unpacked

PREFIX_NAME = "mysql-9.7"
PACKAGES = ("mysql-server-core", "mysql-client-core")
SMALL = ("--innodb-buffer-pool-size=64M", "--innodb-redo-log-capacity=16M")
"""Options of a server that holds little: one of the lab's size takes 0.6 GB of disk."""


def find() -> Program | None:
    """Return the MySQL of the cache, or the one on PATH where no Debian package can be had; else None."""
    prefix = cache_directory() / PREFIX_NAME
    if (prefix / "root").is_dir():
        root = prefix / "root"
        return (
            *loader_command(prefix, root / "usr" / "sbin" / "mysqld"), "--no-defaults",
            f"--basedir={root}/usr", f"--plugin-dir={root}/usr/lib/mysql/plugin",
            f"--lc-messages-dir={root}/usr/share/mysql",
            f"--character-sets-dir={root}/usr/share/mysql/charsets",
        )  # fmt: skip
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return _from_path()
    return None


def provide(on_progress: Progress) -> Program:
    """Return MySQL, after downloading it into the cache where that is needed.

    Raises
    ------
    LabError
        When there is no way to get MySQL on this machine, or the download fails.
    """
    wanted = Unpacking(
        PREFIX_NAME, PACKAGES, "sid", "MySQL", "no MySQL server: neither apt-get and dpkg-deb nor a mysqld on PATH",
        "Start Docker, or put a mysqld of MySQL 8.0 or newer on PATH.",
        "MySQL: one-time download of about 100 MB, under a minute on a good line",
    )  # fmt: skip
    return unpacked(wanted, find, on_progress)


def client_command(name: str) -> Program | None:
    """Return the command line of a client program such as ``mysqlbinlog``; None where there is none."""
    prefix = cache_directory() / PREFIX_NAME
    program = prefix / "root" / "usr" / "bin" / name
    if program.exists():
        return loader_command(prefix, program)
    found = shutil.which(name)
    return None if found is None else (found,)


def _from_path() -> Program | None:
    server = shutil.which("mysqld")
    if server is None:
        return None
    version = subprocess.run(  # noqa: S603
        [server, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Ver (\d+)\.(\d+)", version)
    if "MariaDB" in version or found is None or int(found[1]) < 8:
        raise LabError(f"{server} is not MySQL 8.0 or newer: {version.strip()}", hint="Start Docker instead.")
    return server, "--no-defaults"


def _initialize(program: Program, folder: Path, data: Path) -> None:
    """Make a root user without a password, reachable from this machine only."""
    init = folder / "init.sql"
    # Name resolution is off, so 127.0.0.1 is not `localhost` and needs a user of its own.
    init.write_text(
        "CREATE USER 'root'@'127.0.0.1';\nGRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
        "GRANT PROXY ON ''@'' TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
    )
    command = [*program, *user_argument(), "--initialize-insecure", f"--init-file={init}"]
    initialize_with(command, folder, data, "--datadir")


def _command(program: Program, folder: Path, port: int, _status: int | None) -> list[str]:
    """Return a server with row binlog and full metadata, GTID, LOAD DATA LOCAL."""
    return [
        *program, *user_argument(), ENGINE.data_argument(folder / "data"), f"--port={port}",
        # The socket is relative to the data folder: its path may have 107 bytes only.
        "--bind-address=127.0.0.1", "--socket=mysql.sock", "--pid-file=mysql.pid", "--mysqlx=OFF",
        "--skip-name-resolve", f"--tmpdir={folder / 'tmp'}", "--secure-file-priv=", "--server-id=1",
        "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--binlog-row-metadata=FULL",
        "--local-infile=ON", "--max-connections=300", "--innodb-buffer-pool-size=512M",
        "--innodb-redo-log-capacity=512M",
        # Safe when the process is killed; only a crash of the whole machine could lose a second of the lab.
        "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--binlog-expire-logs-seconds=86400",
    ]  # fmt: skip


ENGINE = ServerEngine("mysql", find, provide, _command, "--datadir", _initialize)
