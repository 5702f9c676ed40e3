"""MariaDB, for the ledger of the services and tests of binlogs and audit logs: on PATH, else from Debian's packages.

Its binlog has events, types and metadata of its own, which only a real one writes.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from migverify.errors import LabError
from migverify_lab.cache import Progress, cache_directory, file_lock, install_into
from migverify_lab.engine import Program, ServerEngine, initialize_with, user_argument
from migverify_lab.packages import Unpacking, download_packages, loader_command, unpacked

PREFIX_NAME = "mariadb-10.11"
SUITE = "bookworm"
"""The Debian release whose MariaDB is 10.11."""
OLDEST = (10, 5)
"""The first version that can describe its rows in full (``binlog_row_metadata``)."""
AUDIT = "server_audit.so"

_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_system_tables_data.sql")
_BEFORE = "CREATE DATABASE mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\nSET @skip_auth_anonymous=1;\n"


def find() -> Program | None:
    """Return the MariaDB on PATH, else the one of the cache; None where there is neither.

    Raises
    ------
    LabError
        the one found is too old or not complete.
    """
    server = shutil.which("mariadbd")
    if server is not None:
        version = subprocess.run(  # noqa: S603
            [server, "--version"], capture_output=True, text=True, check=False
        ).stdout
        found = re.search(r"Ver (\d+)\.(\d+)", version)
        if "MariaDB" not in version or found is None or (int(found[1]), int(found[2])) < OLDEST:
            raise LabError(f"{server} is not MariaDB 10.5 or newer: {version.strip()}", hint="Take it off PATH.")
        return server, "--no-defaults", f"--basedir={Path(server).resolve().parents[1]}"
    prefix = cache_directory() / PREFIX_NAME
    base = prefix / "root" / "usr"
    if not base.is_dir():
        return None
    share = _share(base)
    return (
        *loader_command(prefix, base / "sbin" / "mariadbd"), "--no-defaults", f"--lc-messages-dir={share}",
        f"--character-sets-dir={share}/charsets", f"--basedir={base}",
    )  # fmt: skip


def provide(on_progress: Progress) -> Program:
    """Return MariaDB, after downloading it into the cache where that is needed (about 35 MB).

    Raises
    ------
    LabError
        when there is no way to get MariaDB on this machine, or the download fails.
    """
    wanted = Unpacking(
        PREFIX_NAME, ("mariadb-server-core",), SUITE, "MariaDB",
        "no MariaDB server: neither apt-get and dpkg-deb nor a mariadbd on PATH",
        "Put a mariadbd of MariaDB 10.5 or newer on PATH.",
    )  # fmt: skip
    return unpacked(wanted, find, on_progress)


def audit_plugin(program: Program, on_progress: Progress) -> Path:
    """Return the folder that holds ``server_audit.so``: the server's own, else from the package ``mariadb-server``.

    Debian's ``mariadb-server-core`` has the server without its plugins.

    Raises
    ------
    LabError
        there is neither the plugin nor a way to download its package.
    """
    for place in ("lib/mysql/plugin", "lib64/mysql/plugin", "lib/mariadb/plugin"):
        if (_base(program) / place / AUDIT).is_file():
            return _base(program) / place
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


def _base(program: Program) -> Path:
    return Path(program[-1].removeprefix("--basedir="))


def _share(base: Path) -> Path:
    for name in ("mysql", "mariadb"):
        if (base / "share" / name / _SYSTEM_TABLES[0]).is_file():
            return base / "share" / name
    raise LabError(f"{base} holds no complete MariaDB: {_SYSTEM_TABLES[0]} is missing",
                   hint="Remove it from the cache, or install mariadb-server-core.")  # fmt: skip


def _initialize(program: Program, folder: Path, data: Path) -> None:
    """Make a root user without a password, reachable from this machine only."""
    share = _share(_base(program))
    sql = _BEFORE + "".join((share / name).read_text(encoding="utf-8") for name in _SYSTEM_TABLES)
    # Name resolution is off, so 127.0.0.1 is not `localhost` and needs a user of its own.
    sql += "\nFLUSH PRIVILEGES;\nCREATE USER IF NOT EXISTS 'root'@'127.0.0.1';\n"
    sql += "GRANT ALL ON *.* TO 'root'@'127.0.0.1' WITH GRANT OPTION;\n"
    command = [*program, *user_argument(), "--bootstrap", "--skip-log-bin", f"--tmpdir={folder / 'tmp'}"]
    initialize_with(command, folder, data, "--datadir", sql.encode())


def _command(program: Program, folder: Path, port: int, _status: int | None) -> list[str]:
    """Return a server with row binlog, full metadata and a ``tmp`` of its own, which it empties at its start."""
    return [
        *program, *user_argument(), ENGINE.data_argument(folder / "data"), f"--port={port}",
        "--bind-address=127.0.0.1", "--socket=mariadb.sock", "--pid-file=mariadb.pid", "--skip-name-resolve",
        "--server-id=88", "--log-bin=binlog", "--binlog-format=ROW", "--binlog-row-metadata=FULL",
        "--innodb-buffer-pool-size=64M", f"--tmpdir={folder / 'tmp'}",
    ]  # fmt: skip


ENGINE = ServerEngine("mariadb", find, provide, _command, "--datadir", _initialize)
