"""spirit of Block. Its checksum is a phase of ``migrate``, ``move`` and ``sync``, which copy the rows themselves.

Each of them wants an empty target, and no command compares two tables that hold rows already. The expression of that
checksum is compared in docs/faults.md. It has not been run here.
"""

from __future__ import annotations

from bench.faults.adapter import Pair, ProgramAdapter, Task
from bench.faults.judge import Ending, ReportedDifferences

REASON = "its checksum belongs to its own copy of the rows (`migrate`, `move`, `sync`): no command compares two tables"


class Spirit(ProgramAdapter):
    """Present, so that a command that compares can be added where spirit gets one."""

    name = "spirit"
    settings = "none: there is no command to run"
    pair = Pair.MYSQL_MYSQL
    executable = "spirit"

    def available(self) -> str | None:
        missing = super().available()
        return missing and f"{missing}; {REASON}"

    def run(self, task: Task) -> ReportedDifferences:
        del task
        return ReportedDifferences(Ending.NOT_SUPPORTED, detail=REASON)
