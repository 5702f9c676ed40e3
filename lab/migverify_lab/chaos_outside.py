"""A fault around the servers: a disk that is full."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from typing import Any

from migverify.errors import LabError
from migverify_lab import mysql
from migverify_lab.bank import ACCOUNTS, DATABASE, write_probe
from migverify_lab.cache import make_directory
from migverify_lab.chaos import Settings
from migverify_lab.chaos_world import CaseWorkspace, case_fault, rows_of
from migverify_lab.engine import start_server
from migverify_lab.process import stop, tail
from migverify_lab.workspace import Proof, until

DISK = "small"
"""Name of the server on the small disk, and of its folder."""
DISK_MEGABYTES = 360


def prepare_disk(world: CaseWorkspace) -> None:
    """Start a MySQL whose data lie on a small file system of their own (tmpfs); needs the right to mount.

    Raises
    ------
    LabError
        it may not be mounted here, or the server does not start.
    """
    folder = make_directory(world.folder / DISK)
    end_disk(world)
    done = subprocess.run(  # noqa: S603
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MEGABYTES}m", "migverify-lab", str(folder)],  # noqa: S607
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"no small file system can be mounted here: {done.stderr.strip()}",
                       hint="This case needs root, or a container with CAP_SYS_ADMIN.")  # fmt: skip
    options = ("--server-id=3", "--innodb-redo-log-capacity=8M", "--innodb-buffer-pool-size=64M")
    world.add_server(DISK, start_server(mysql.ENGINE, folder, options=options).server)


def end_disk(world: CaseWorkspace) -> bool:
    """Stop that server and give its file system back; returns whether there was one."""
    for process in world.processes(DISK):
        stop(process, 20.0)
    folder = world.folder / DISK
    if not os.path.ismount(folder):
        return False
    deadline = time.monotonic() + 20
    while True:  # a server that was killed holds its files until the kernel has put it away
        done = subprocess.run(["umount", str(folder)], capture_output=True, text=True, check=False)  # noqa: S603, S607
        if not done.returncode:
            return True
        if time.monotonic() > deadline:
            raise LabError(f"{folder} cannot be unmounted: {done.stderr.strip()}", hint="Look who uses it: `fuser -m`.")
        time.sleep(0.5)


def _fill(world: CaseWorkspace, _settings: Settings) -> dict[str, Any]:
    path = world.folder / DISK / "filler"
    written = 0
    with path.open("wb", buffering=0) as filler:
        for piece in (b"\0" * (1 << 20), b"\0" * 4096):
            with suppress(OSError):
                while True:
                    written += filler.write(piece)
    return {"megabytes": written >> 20}


def _is_full(world: CaseWorkspace, _settings: Settings, since: float) -> Proof:
    """The file system has no block left, clients that write hang or are refused, and a reader is answered."""
    free = os.statvfs(world.folder / DISK).f_bavail * os.statvfs(world.folder / DISK).f_frsize
    failed = world.failures_since(since)
    codes = sorted({one.code for one in failed})
    log = tail(world.folder / DISK / "server.log", 12)
    says = "disk is full" in log.lower() or "no space left" in log.lower()
    log = "says it" if says else "is silent about it"
    read = rows_of(world, DISK, f"SELECT COUNT(*) FROM {DATABASE}.accounts")[0][0] == ACCOUNTS  # noqa: S608
    text = f"{free} bytes left; {len(failed)} attempts failed or hang, codes {codes}; the log {log}"
    return Proof(
        free < 65536 and bool(failed) and read,
        f"{text}; a reader is answered",
        {"free": free, "codes": codes, "log_says": says},
    )


def _make_room(world: CaseWorkspace, settings: Settings) -> dict[str, Any]:
    path = world.folder / DISK / "filler"
    path.unlink(missing_ok=True)
    # MySQL waits for room, and looks for it once a minute.
    seen = until(lambda: _has_room(world, settings, 0.0), float(settings["looks_within"]))
    return {"writes": seen.good, "text": seen.text}


def _has_room(world: CaseWorkspace, _settings: Settings, _since: float) -> Proof:
    free = os.statvfs(world.folder / DISK).f_bavail * os.statvfs(world.folder / DISK).f_frsize
    if not os.path.ismount(world.folder / DISK) or free < 1 << 20:
        return Proof(False, f"{free} bytes left")
    write_probe(world.server(DISK))
    return Proof(True, f"{free >> 20} MiB left, and a write is taken")


FAULTS = (
    case_fault("disk-full", "The file system of a server is filled to its last block.", _fill, _is_full, _make_room,
          _has_room, {"looks_within": "80"}),
)  # fmt: skip
