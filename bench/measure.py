"""How a figure is taken: wall clock, CPU of the servers, CPU and peak memory of the client.

The machine drifts, so contenders run in turn (A B C A B C ...) and are compared round by round: the ratio of two
figures of one round is worth more than either figure. CPU seconds of the server processes hardly move when something
else uses the machine; wall time does.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import psutil

SAMPLE_SECONDS = 0.05
MEGABYTE = 1e6


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of one contender. Seconds and megabytes; ``extra`` holds what only some questions have."""

    wall: float = 0.0
    source_cpu: float = 0.0
    target_cpu: float = 0.0
    client_cpu: float = 0.0
    driver_mb: float = 0.0
    worker_mb: float = 0.0
    extra: Mapping[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def server_cpu(self) -> float:
        """CPU seconds of both servers."""
        return self.source_cpu + self.target_cpu


Contender = Callable[[], Figures]


class ServerClock:
    """CPU seconds that the processes listening on two local ports have used since ``start``."""

    def __init__(self, source_port: int, target_port: int) -> None:
        self._servers = [listener(source_port), listener(target_port)]
        self._since = [0.0, 0.0]
        self._started = 0.0

    @property
    def pids(self) -> frozenset[int]:
        """The servers' processes."""
        return frozenset(server.pid for server in self._servers)

    def start(self) -> None:
        """Begin; also begins the wall clock."""
        self._since = [_cpu(server) for server in self._servers]
        self._started = time.perf_counter()

    def stop(self) -> Figures:
        """Return wall and server CPU since ``start``."""
        wall = time.perf_counter() - self._started
        source, target = (_cpu(server) - since for server, since in zip(self._servers, self._since, strict=True))
        return Figures(wall, source, target)


def listener(port: int) -> psutil.Process:
    """Return the local process that listens on a port; raises LookupError when there is none."""
    for connection in psutil.net_connections("tcp"):
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == port and connection.pid:
            return psutil.Process(connection.pid)
    raise LookupError(f"no process of this machine listens on port {port}")


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class PeakMemory:
    """Peak resident memory of the processes that ``choose`` picks, sampled; the largest single one counts."""

    def __init__(self, choose: Callable[[], Iterable[psutil.Process]]) -> None:
        self.peak_mb = 0.0
        self._choose = choose
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            for process in self._choose():
                try:
                    self.peak_mb = max(self.peak_mb, process.memory_info().rss / MEGABYTE)
                except psutil.Error:
                    continue  # it ended between two samples


def run_command(
    command: Sequence[str], clock: ServerClock, *, cwd: str | None = None, ok: frozenset[int] = frozenset({0})
) -> tuple[Figures, str]:
    """Run a whole process and return its figures and its standard output.

    Client CPU and peak memory are the operating system's own accounting of the finished process.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        clock.start()
        with subprocess.Popen(command, cwd=cwd, stdout=output, stderr=errors, stdin=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        figures = clock.stop()
        output.seek(0)
        errors.seek(0)
        text = output.read().decode("utf-8", "replace")
        if process.returncode not in ok:
            said = errors.read().decode("utf-8", "replace")[-2000:]
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {said or text[-2000:]}")
    client = usage.ru_utime + usage.ru_stime
    return replace(figures, client_cpu=client, driver_mb=usage.ru_maxrss * 1024 / MEGABYTE), text


def interleave(contenders: Mapping[str, Contender], rounds: int, *, warm: int = 1) -> dict[str, list[Figures]]:
    """Run all contenders in turn; the first ``warm`` rounds are not counted. Prints each run as it ends."""
    found: dict[str, list[Figures]] = {name: [] for name in contenders}
    for turn in range(-warm, rounds):
        for name, contender in contenders.items():
            figures = contender()
            if turn >= 0:
                found[name].append(figures)
            print(f"  {'warm' if turn < 0 else turn + 1!s:>4}  {name:<40}{_one_line(figures)}", flush=True)
    return found


def _one_line(figures: Figures) -> str:
    parts = [f"wall {figures.wall:7.2f}", f"source {figures.source_cpu:6.2f}", f"target {figures.target_cpu:6.2f}"]
    if figures.client_cpu:
        parts.append(f"client {figures.client_cpu:5.2f}")
    if figures.driver_mb:
        parts.append(f"driver {figures.driver_mb:4.0f} MB")
    if figures.worker_mb:
        parts.append(f"worker {figures.worker_mb:4.0f} MB")
    parts += [f"{name} {value:,.4g}" for name, value in figures.extra.items()]
    return "  ".join(parts) + (f"  {figures.note}" if figures.note else "")


Reading = Callable[[Figures], float]
READINGS: dict[str, Reading] = {
    "wall s": lambda f: f.wall,
    "server CPU s": lambda f: f.server_cpu,
    "source CPU s": lambda f: f.source_cpu,
    "target CPU s": lambda f: f.target_cpu,
    "client CPU s": lambda f: f.client_cpu,
    "driver MB": lambda f: f.driver_mb,
    "worker MB": lambda f: f.worker_mb,
    "client MB": lambda f: f.extra.get("client MB", 0.0),
}


def print_table(found: Mapping[str, Sequence[Figures]], against: Sequence[str], readings: Sequence[str] = ()) -> None:
    """Print min / median / max of each reading, and its ratio to each contender of ``against``, round by round."""
    for reading in readings or [name for name in READINGS if _is_used(name, found)]:
        read = READINGS[reading]
        print(f"\n{reading:<40}{'min':>9}{'median':>9}{'max':>9}" + "".join(f"   / {name}" for name in against))
        for name, runs in found.items():
            values = [read(run) for run in runs]
            line = f"{name:<40}{min(values):9.2f}{statistics.median(values):9.2f}{max(values):9.2f}"
            for other in against:
                line += f"   {ratio(runs, found[other], read):>{len(other) + 2}}"
            print(line)


def ratio(runs: Sequence[Figures], others: Sequence[Figures], read: Reading) -> str:
    """Return the median of the ratios, run by run; ``-`` where there is nothing to divide by."""
    pairs = [(read(one), read(other)) for one, other in zip(runs, others, strict=True)]
    if any(other <= 0 for _, other in pairs):
        return "-"
    return f"{statistics.median(one / other for one, other in pairs):.2f}"


def _is_used(reading: str, found: Mapping[str, Sequence[Figures]]) -> bool:
    return any(READINGS[reading](run) for runs in found.values() for run in runs)
