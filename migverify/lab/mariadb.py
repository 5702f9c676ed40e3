"""MariaDB, for tests of the change stream: the one on PATH, else Debian's packages unpacked like those of MySQL.

It is no side of the lab's pair. Its binlog has events, types and metadata of its own, which only a real one writes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from migverify.errors import LabError
from migverify.lab import mysql
from migverify.lab.cache import Progress, cache_directory, file_lock, install_into
from migverify.lab.packages import Unpacking, download_packages, loader_command, unpacked
from migverify.lab.process import ProcessId, is_alive, tail
from migverify.lab.servers import LabServer
from migverify.lab.session import connect

PREFIX_NAME = "mariadb-10.11"
PACKAGES = ("mariadb-server-core",)
SUITE = "bookworm"
"""The Debian release whose MariaDB is 10.11."""
READY_SECONDS = 60.0
OLDEST = (10, 5)
"""The first version that can describe its rows in full (``binlog_row_metadata``)."""

_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_BEFORE = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\nSET @skip_auth_anonymous=1;\n"


@dataclass(frozen=True, slots=True)
class MariadbPrograms:
    """How to run MariaDB: ``mariadbd`` is a command line to append arguments to, ``share`` its folder of SQL files."""

    mariadbd: tuple[str, ...]
    share: Path


def find() -> MariadbPrograms | None:
    """Return the MariaDB on PATH, else the one of the cache; None where there is neither.

    Raises
    ------
    LabError
        the one found is too old or not complete.
    """
    server = shutil.which("mariadbd")
    if server is not None:
        return _from_path(server)
    prefix = cache_directory() / PREFIX_NAME
    return _unpacked(prefix) if (prefix / "root").is_dir() else None


def provide(on_progress: Progress) -> MariadbPrograms:
    """Return MariaDB, after downloading it into the cache where that is needed (about 35 MB).

    Raises
    ------
    LabError
        when there is no way to get MariaDB on this machine, or the download fails.
    """
    wanted = Unpacking(
        PREFIX_NAME, PACKAGES, SUITE, "MariaDB",
        "no MariaDB server: neither apt-get and dpkg-deb nor a mariadbd on PATH",
        "Put a mariadbd of MariaDB 10.5 or newer on PATH.",
    )  # fmt: skip
    return unpacked(wanted, find, on_progress)


def audit_plugin(programs: MariadbPrograms, on_progress: Progress) -> Path:
    """Return the folder that holds ``server_audit.so``: the server's own, else from the package ``mariadb-server``.

    Debian's ``mariadb-server-core`` has the server without its plugins.

    Raises
    ------
    LabError
        there is neither the plugin nor a way to download its package.
    """
    for place in ("lib/mysql/plugin", "lib64/mysql/plugin", "lib/mariadb/plugin"):
        if (programs.share.parents[1] / place / AUDIT).is_file():
            return programs.share.parents[1] / place
    final = cache_directory() / f"{PREFIX_NAME}-plugins"
    plugins = final / "root" / "usr" / "lib" / "mysql" / "plugin"
    if (plugins / AUDIT).is_file():
        return plugins
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise LabError(
            f"this MariaDB has no {AUDIT}, and there is no apt-get to fetch it",
            hint="Install the package mariadb-server.",
        )
    with file_lock(final.with_name(f".{final.name}.lock"), on_progress):
        if not (plugins / AUDIT).is_file():
            with install_into(final) as staging:
                download_packages(staging, ("mariadb-server",), SUITE, "MariaDB's plugins", on_progress, alone=True)
    if not (plugins / AUDIT).is_file():
        raise LabError(f"the package mariadb-server has no {AUDIT}", hint=f"Remove {final} and try again.")
    return plugins


AUDIT = "server_audit.so"


def _from_path(server: str) -> MariadbPrograms:
    version = subprocess.run(  # noqa: S603
        [server, "--version"], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Ver (\d+)\.(\d+)", version)
    if "MariaDB" not in version or found is None or (int(found[1]), int(found[2])) < OLDEST:
        raise LabError(f"{server} is not MariaDB 10.5 or newer: {version.strip()}", hint="Take it off PATH.")
    prefix = Path(server).resolve().parents[1]
    return MariadbPrograms((server, "--no-defaults", f"--basedir={prefix}"), _share(prefix))


def _unpacked(prefix: Path) -> MariadbPrograms:
    root = prefix / "root"
    server = root / "usr" / "sbin" / "mariadbd"
    share = _share(root / "usr")
    command = (
        *loader_command(prefix, server), "--no-defaults", f"--basedir={root}/usr",
        f"--lc-messages-dir={share}", f"--character-sets-dir={share}/charsets",
    )  # fmt: skip
    return MariadbPrograms(command, share)


def _share(prefix: Path) -> Path:
    for name in ("mysql", "mariadb"):
        if (prefix / "share" / name / _SYSTEM_TABLES[0]).is_file():
            return prefix / "share" / name
    raise LabError(f"{prefix} holds no complete MariaDB: {_SYSTEM_TABLES[0]} is missing",
                   hint="Remove it from the cache, or install mariadb-server-core.")  # fmt: skip


def initialize(programs: MariadbPrograms, directory: Path, data: Path) -> None:
    """Make an empty data folder with a root user without a password, reachable from this machine only.

    Raises
    ------
    LabError
        when the server refuses; the message holds the end of its log.
    """
    sql = _BEFORE + "".join((programs.share / name).read_text(encoding="utf-8") for name in _SYSTEM_TABLES)
    # Name resolution is off, so 127.0.0.1 is not `localhost` and needs a user of its own.
    sql += "\nFLUSH PRIVILEGES;\nCREATE USER IF NOT EXISTS 'root'@'127.0.0.1';\n"
    sql += "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
    log = directory / "init.log"
    with install_into(data) as staging, log.open("wb") as output:
        done = subprocess.run(  # noqa: S603 - our own command
            [*programs.mariadbd, *mysql.user_argument(), mysql.data_argument(staging), "--bootstrap", "--skip-log-bin",
             _tmp_argument(data)],
            input=sql.encode(), stdout=output, stderr=output, check=False, cwd=directory,
        )  # fmt: skip
        if done.returncode != 0:
            raise LabError(f"mariadbd --bootstrap ended with {done.returncode}\n{tail(log)}",
                           hint=f"The whole log is {log}.")  # fmt: skip


def _tmp_argument(data: Path) -> str:
    """Make a folder for temporary tables: a MariaDB that starts sweeps what it has, and others' tables along."""
    folder = data.parent / "tmp"
    folder.mkdir(exist_ok=True)
    return f"--tmpdir={folder}"


def serve_command(programs: MariadbPrograms, data: Path, port: int, options: Sequence[str] = ()) -> list[str]:
    """Return the command line of a server: row binlog with full metadata. Makes its folder for temporary tables."""
    return [
        *programs.mariadbd, *mysql.user_argument(), mysql.data_argument(data), f"--port={port}",
        "--bind-address=127.0.0.1", "--socket=mariadb.sock", "--pid-file=mariadb.pid", "--skip-name-resolve",
        "--server-id=88", "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL",
        "--innodb-buffer-pool-size=64M", _tmp_argument(data), *options,
    ]  # fmt: skip


def ready(server: LabServer, process: ProcessId, log: Path) -> LabServer:
    """Wait until a server that was started answers; returns it with its version.

    Raises
    ------
    LabError
        it ended, or gave no answer in time; the message holds the end of its log.
    """
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            with connect(server, seconds=5.0) as connection, connection.cursor() as cursor:
                cursor.execute("SELECT VERSION()")
                return replace(server, version=str((cursor.fetchone() or ("",))[0]))
        except LabError as error:
            if not is_alive(process) or time.monotonic() > deadline:
                raise LabError(f"MariaDB on port {server.port} gives no answer\n{tail(log)}",
                               hint=f"The whole log is {log}.") from error  # fmt: skip
        time.sleep(0.1)
