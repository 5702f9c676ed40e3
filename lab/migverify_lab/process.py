"""Server processes: started apart from us, recognized beyond doubt, stopped without harm to strangers.

A pid alone says nothing, because the kernel gives it out again. A process is ours when its pid, its start
time (field 22 of ``/proc/<pid>/stat``) and the boot id all agree, or when one of its arguments names a data
folder of this lab.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from migverify.errors import LabError

Answer = TypeVar("Answer")

STOP_SECONDS = 60.0

_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class ProcessId:
    """One process, for as long as the machine is up. ``ticks`` is its start in clock ticks after boot."""

    pid: int
    ticks: int
    boot: str


def boot_id() -> str:
    """Return what tells this boot of the machine from all others."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of a living process; None when there is none or only a zombie is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name in parentheses may hold spaces and parentheses: fields are counted after the last one.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in {"Z", "X"}:
        return None
    return ProcessId(pid, int(fields[19]), boot_id())


def is_alive(process: ProcessId) -> bool:
    """Tell whether exactly this process still runs."""
    child = _children.get(process.pid)
    if child is not None:
        child.poll()
    return identify(process.pid) == process


def find_by_argument(argument: str) -> list[ProcessId]:
    """Find our own user's processes that were started with exactly this argument."""
    wanted = os.fsencode(argument)
    return _find(lambda entry: wanted in (entry / "cmdline").read_bytes().split(b"\0"))


def find_by_environment(**variables: str) -> list[ProcessId]:
    """Find our own user's processes that were started with all these variables."""
    wanted = {os.fsencode(f"{name}={value}") for name, value in variables.items()}
    return _find(lambda entry: wanted <= set((entry / "environ").read_bytes().split(b"\0")))


def find_by_title(title: str, directory: Path) -> list[ProcessId]:
    """Find our own user's processes whose title begins with this, and whose working directory is this one.

    For children that gave themselves a title, as those of nginx: the directory alone would find the shell of somebody
    who looks around there. A program that runs through its own loader has the loader's arguments before its title.
    """
    begins, wanted = os.fsencode(title), directory.resolve()

    def is_titled(entry: Path) -> bool:
        arguments = (entry / "cmdline").read_bytes().split(b"\0")
        return any(one.startswith(begins) for one in arguments) and (entry / "cwd").readlink() == wanted

    return _find(is_titled)


def _find(holds: Callable[[Path], bool]) -> list[ProcessId]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if entry.stat().st_uid != os.geteuid() or not holds(entry):
                continue
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # ended meanwhile, or not ours
        process = identify(int(entry.name))
        if process is not None:
            found.append(process)
    return found


def spawn(command: list[str], log: Path, directory: Path) -> ProcessId:
    """Start a server in a session of its own, so that Ctrl-C and the end of our terminal do not reach it.

    Parameters
    ----------
    command
        Program and arguments.
    log
        Receives standard output and standard error, appended.
    directory
        Working directory of the server.

    Raises
    ------
    LabError
        When the program cannot be started or ends at once.
    """
    try:
        with log.open("ab") as output:
            child = subprocess.Popen(  # noqa: S603 - our own command
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                start_new_session=True,
                close_fds=True,
                env={**os.environ, "MIGVERIFY_EFFECT": "service"},  # a step that starts it is over before it ends
            )
    except OSError as error:
        raise LabError(
            f"cannot start {command[0]}: {error.strerror}", hint="Remove it from the cache; it is made again."
        ) from error
    _children[child.pid] = child
    process = identify(child.pid)
    if process is None:
        raise LabError(f"{command[0]} ended at once\n{tail(log)}", hint=f"The whole log is {log}.")
    return process


def stop(process: ProcessId, seconds: float = STOP_SECONDS) -> bool:
    """End exactly this process: SIGTERM, and SIGKILL after ``seconds``. Returns whether it was running.

    Raises
    ------
    LabError
        When it survives SIGKILL, which means it hangs in the kernel.
    """
    if not is_alive(process):
        return False
    for number, wait in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10.0)):
        if not _signal(process, number):
            return True
        # A stopped process acts on SIGTERM only when it goes on.
        _signal(process, signal.SIGCONT)
        deadline = time.monotonic() + wait
        while time.monotonic() < deadline:
            if not is_alive(process):
                return True
            time.sleep(0.05)
    raise LabError(f"process {process.pid} does not end", hint="Look at it with `ps`; it may hang on a disk.")


def _signal(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal through a pidfd, so that it cannot reach a later process of the same number."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


class PortTakenError(LabError):
    """A server ended because somebody else bound its port first."""


def wait_for_answer(
    ask: Callable[[], Answer | None], what: str, seconds: float, process: ProcessId | None = None,
    logs: Callable[[], str] = str,
) -> Answer:  # fmt: skip
    """Ask a server that is starting until it answers, and return the answer.

    Parameters
    ----------
    ask
        Returns None, or raises LabError or OSError, as long as there is no answer.
    process
        The process that has to live meanwhile; None where it is not ours.
    logs
        Returns the end of its logs, for the message.

    Raises
    ------
    PortTakenError
        The process ended because its port was taken.
    LabError
        It ended for another reason, or gave no answer in time.
    """
    deadline = time.monotonic() + seconds
    while True:
        cause: Exception | None = None
        try:
            answer = ask()
        except (LabError, OSError) as error:
            answer, cause = None, error
        if answer is not None:
            return answer
        if process is not None and not is_alive(process):
            text = logs()
            kind = PortTakenError if "address already in use" in text.lower() else LabError
            raise kind(f"{what} ended while starting\n{text}",
                       hint="If its data is damaged: `migverify lab down --purge`.") from cause  # fmt: skip
        if time.monotonic() > deadline:
            raise LabError(f"{what} gave no answer in {seconds:.0f} s\n{logs()}",
                           hint="Look at the log above; `migverify lab down` cleans up.") from cause  # fmt: skip
        time.sleep(0.05)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    """Tell whether somebody listens on a TCP port."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def free_ports(count: int) -> list[int]:
    """Return different free ports; see ``free_port``."""
    ports: list[int] = []
    while len(ports) < count:
        ports.append(free_port(frozenset(ports)))
    return ports


def free_port(avoid: frozenset[int] = frozenset()) -> int:
    """Return a TCP port of 127.0.0.1 on which nobody listens now. It is not reserved: callers retry."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port not in avoid:
            return port


def port_is_free(port: int) -> bool:
    """Tell whether nobody listens on that TCP port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def tail(path: Path, lines: int = 25) -> str:
    """Return the last lines of a log, or a note that there is none."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - 65536))
            text = log.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return f"(no log at {path})"
    return "\n".join(text.splitlines()[-lines:])
