"""What a tool needs to take part: an adapter of about 30 lines, and here what adapters share."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from bench.faults.cases import Table
from bench.faults.judge import Ending, ReportedDifferences, TableDifference

TAIL = 200
"""Characters of a tool's last line that results keep."""


class Pair(StrEnum):
    """The servers on which a tool is run."""

    MYSQL_TIDB = "MySQL and TiDB"
    MYSQL_MYSQL = "two databases of one MySQL"  # the target's side is loaded into MySQL, for tools that know no TiDB


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One side. The servers of the benchmark have no passwords."""

    host: str
    port: int
    user: str
    database: str

    @property
    def url(self) -> str:
        """The database as a URL."""
        return f"mysql://{self.user}@{self.host}:{self.port}/{self.database}"


@dataclass(frozen=True, slots=True)
class Task:
    """One comparison: what a user of the tool would know, and nothing of what is expected.

    ``folder`` is an empty folder for files of the tool, ``seconds`` the time it has.
    """

    source: Endpoint
    target: Endpoint
    tables: tuple[Table, ...]
    seconds: float
    folder: Path


class Adapter(Protocol):
    """One tool. ``settings`` says in one sentence how it is run, ``pair`` on which servers."""

    name: str
    settings: str
    pair: Pair

    def version(self) -> str:
        """Return the version of the tool that would run."""

    def available(self) -> str | None:
        """Return why the tool cannot be run here, or None."""

    def run(self, task: Task) -> ReportedDifferences:
        """Compare the tables of a task."""


class ProgramAdapter:
    """What adapters of programs share. A variable such as RELADIFF names the program, else it is on the path."""

    executable = ""

    def __init__(self) -> None:
        self.variable = self.executable.upper().replace("-", "_")
        self.program = os.environ.get(self.variable) or shutil.which(self.executable) or ""

    def version(self) -> str:
        """Return what the program prints for ``--version``."""
        return first_line([self.program, "--version"])

    def available(self) -> str | None:
        """Return that there is no such program, or None."""
        return None if self.program else f"no program `{self.executable}`; {self.variable} may name it"


@dataclass(frozen=True, slots=True)
class Ended:
    """A process that is over. ``exit_code`` is None where it was killed because its time was up."""

    exit_code: int | None
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The last line with an error that it wrote to standard error; else the last line there, or of its output."""
        lines = self.errors.strip().splitlines() or self.output.strip().splitlines() or [""]
        failures = [line for line in lines if "error" in line.lower()]
        return (failures or lines)[-1].strip()[:TAIL]

    def report(
        self,
        exit_codes: Mapping[int, bool | None],
        equal: Sequence[str] = (),
        different: Mapping[str, TableDifference] | None = None,
        detail: str = "",
    ) -> ReportedDifferences:
        """Return a report. ``exit_codes`` has what each documented exit code means; any other one is a crash."""
        if self.exit_code is None:
            return ReportedDifferences(Ending.TIMED_OUT, detail=self.last_words)
        if self.exit_code not in exit_codes:
            return self.crash()
        return ReportedDifferences(
            Ending.FINISHED, self.exit_code, exit_codes[self.exit_code], frozenset(equal), different or {}, detail
        )

    def crash(self) -> ReportedDifferences:
        """Return the report of a process that failed, whatever its exit code."""
        ending = Ending.TIMED_OUT if self.exit_code is None else Ending.CRASHED
        return ReportedDifferences(ending, self.exit_code, detail=f"exit code {self.exit_code}: {self.last_words}")


def run_process(command: Sequence[str], task: Task, environment: Mapping[str, str] | None = None) -> Ended:
    """Run a tool as a whole process in the task's folder; kill it with its children when its time is up."""
    with subprocess.Popen(
        command, cwd=task.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, **(environment or {})}, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            output, errors = process.communicate(timeout=task.seconds)
            exit_code: int | None = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, errors = process.communicate()
            exit_code = None
    return Ended(exit_code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def first_line(command: Sequence[str]) -> str:
    """Return the first line that a command prints, for versions."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return ((done.stdout or done.stderr).strip().splitlines() or ["not known"])[0]


def merge(reports: Sequence[ReportedDifferences]) -> ReportedDifferences:
    """Join the reports of a tool that compares one table a run; one run that failed fails the whole."""
    for report in reports:
        if report.ending is not Ending.FINISHED:
            return report
    meanings = {report.exit_differs for report in reports}
    return ReportedDifferences(
        Ending.FINISHED,
        max((report.exit_code for report in reports if report.exit_code is not None), default=None),
        True if True in meanings else False if meanings == {False} else None,
        frozenset().union(*(report.equal for report in reports)),
        {name: difference for report in reports for name, difference in report.different.items()},
        "; ".join(report.detail for report in reports if report.detail),
    )
