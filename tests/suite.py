"""How the suite is run: load beside the tests that have clocks, a limit of the whole time, failures by their cause.

A pytest plugin. None of it has a limit on the number of failures: one broken fixture ends a run no earlier than fifty
causes do, and the closing summary says which of the two it was.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

HAS_CLOCK = re.compile(r"^import time$|^from tests\.waiting import|\bclock\b", re.MULTILINE | re.IGNORECASE)
"""A module of tests in which this is found has tests that wait, sleep or read a clock."""

SHOWN = 3
"""So many tests are named under a cause; the rest is counted."""

_BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): sum(range(100_000))"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("migverify")
    group.addoption("--busy", type=int, default=0, metavar="N", help="keep N processes busy beside the tests")
    group.addoption("--end-by", type=float, default=0.0, metavar="UNIX_SECONDS", help="end the run, and fail, then")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave modules out that ``-m`` selects no test of: to load them all takes each worker 6 s, the first time 20 s."""
    expression = str(config.getoption("markexpr"))
    selected = {"clocks": True, "not clocks": False}.get(expression.split(" and ")[0])
    if selected is None or " or " in expression or not collection_path.match("test_*.py"):
        return None
    return True if _has_clock(collection_path) is not selected else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _has_clock(item.path):
            item.add_marker(pytest.mark.clocks)


_known: dict[Path, bool] = {}


def _has_clock(path: Path) -> bool:
    if path not in _known:
        _known[path] = HAS_CLOCK.search(path.read_text(encoding="utf-8")) is not None
    return _known[path]


class Load:
    """Processes that compute in vain. They end with this one, also when it is killed: each looks for its parent."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.processes: list[subprocess.Popen[bytes]] = []

    def pytest_runtest_logstart(self) -> None:
        """Start them with the first test: load beside the collection makes nothing harder, and lasts a minute."""
        if not self.processes:
            command = [sys.executable, "-c", _BUSY, str(os.getpid())]
            self.processes = [subprocess.Popen(command) for _ in range(self.count)]

    def pytest_sessionfinish(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


class Closing:
    """Ends a run at its time, and sums failures up by cause."""

    def __init__(self, end_by: float) -> None:
        self.end_by = end_by

    def pytest_runtest_logreport(self) -> None:
        if self.end_by and time.time() > self.end_by:
            # The exit code says that tests failed: those that were not run are not known to pass.
            pytest.exit(
                "the time for the whole run is over: the rest was not run", returncode=pytest.ExitCode.INTERRUPTED
            )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        failed = [*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")]
        if not failed:
            return
        causes: dict[str, list[str]] = defaultdict(list)
        for report in failed:
            causes[cause_of(report)].append(report.nodeid)
        words = "cause" if len(causes) == 1 else "causes", "failure" if len(failed) == 1 else "failures"
        terminalreporter.section(f"{len(causes)} {words[0]} of {len(failed)} {words[1]}")
        for cause, tests in sorted(causes.items(), key=lambda item: -len(item[1])):
            terminalreporter.write_line(f"{len(tests):>4} x {cause}")
            for test in tests[:SHOWN]:
                terminalreporter.write_line(f"       {test}")
            if len(tests) > SHOWN:
                terminalreporter.write_line(f"       and {len(tests) - SHOWN} more")


def cause_of(report: Any) -> str:
    """Return the first line of what was raised, without what differs from test to test: paths, numbers, names."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(crash.message if crash is not None else report.longrepr).strip() or "no message"
    line = re.sub(r"(/[\w.@+-]+)+/?", "PATH", text.splitlines()[0])
    return re.sub(r"\b(0x[0-9a-f]+|\w*\d\w*)\b", "N", line)[:160]


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # a worker of pytest-xdist: what is done once is done by its controller
        return
    if config.getoption("--busy"):
        config.pluginmanager.register(Load(config.getoption("--busy")), "load beside the tests")
    config.pluginmanager.register(Closing(config.getoption("--end-by")), "closing summary")
