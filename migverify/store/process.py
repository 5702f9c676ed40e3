"""A process of this machine as others can look at it later: whether it has ended, or its number was given again."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

__all__ = ["boot_id", "has_ended", "identity"]

_FIRST_NAMESPACE = "time:[4026531834]"
"""The name of the time namespace that a machine boots with (PROC_TIME_INIT_INO of Linux)."""


def boot_id() -> str:
    """Return the name of this boot of this machine, and of the time namespace unless that is the machine's own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # A container may have a monotonic clock of its own, days ahead: its moments are compared by the wall clock.
        namespace = Path("/proc/self/ns/time")
        name = str(namespace.readlink()) if namespace.is_symlink() else _FIRST_NAMESPACE
        return boot if name == _FIRST_NAMESPACE else f"{boot} {name}"
    except OSError:
        # Without a name of the boot no two processes share a monotonic clock: durations fall back to the wall clock.
        return f"process-{os.getpid()}-{time.time_ns()}"


def identity() -> str:
    """Return pid, pid namespace and start of this process; empty where the system does not say."""
    space, started = _pid_namespace(), _started(os.getpid())
    return f"{os.getpid()} {space} {started}" if space and started else ""


def has_ended(host: str, boot: str, process: str, *, own_boot: str) -> bool:
    """Whether the process of an ``identity`` has ended for certain; False: it may live, here or on another machine."""
    if host != socket.gethostname() or boot != own_boot or not process:
        return False
    pid, space, started = process.split(" ")
    # Only its start is looked at: the namespace of another account's process cannot be read.
    return space == _pid_namespace() and _started(int(pid)) not in (started, None)


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Return when a process started, in ticks of the boot; empty: it has ended; None: not known."""
    try:
        facts = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        state, started = facts[0], facts[19]
        threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    except (OSError, IndexError):
        return None if _exists(pid) else ""  # /proc may hide processes of other accounts
    # Nothing of a zombie runs any more; its parent has not asked yet how it ended.
    return "" if state == "Z" and threads == 1 else started


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
