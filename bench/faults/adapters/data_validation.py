"""Google's Data Validation Tool (google-pso-data-validator). Written from its documentation; it has not been run here.

Row validation with a hash of every column. It needs a primary key, and a hash of a column is that of its text.
"""

from __future__ import annotations

import json

from bench.faults.adapter import Pair, ProgramAdapter, Task, merge, run_process
from bench.faults.cases import Table
from bench.faults.judge import Ending, ReportedDifferences, TableDifference


class DataValidation(ProgramAdapter):
    """``data-validation validate row``, one process a table."""

    name = "data-validation"
    settings = "`validate row --hash '*' --format json` over the primary key"
    pair = Pair.MYSQL_TIDB
    executable = "data-validation"

    def run(self, task: Task) -> ReportedDifferences:
        for name, side in (("source", task.source), ("target", task.target)):
            added = run_process(
                [self.program, "connections", "add", "--connection-name", name, "MySQL", "--host", side.host,
                 "--port", str(side.port), "--user", side.user, "--password", "", "--database", side.database],
                task, self._home(task),
            )  # fmt: skip
            if added.exit_code != 0:
                return added.crash()
        return merge([self._compare(task, table) for table in task.tables])

    def _home(self, task: Task) -> dict[str, str]:
        return {"PSO_DV_CONN_HOME": str(task.folder)}

    def _compare(self, task: Task, table: Table) -> ReportedDifferences:
        if not table.key:
            return ReportedDifferences(Ending.NOT_SUPPORTED, detail=f"{table.name} has no primary key")
        names = f"{task.source.database}.{table.name}={task.target.database}.{table.name}"
        command = [self.program, "validate", "row", "-sc", "source", "-tc", "target", "-tbls", names,
                   "--primary-keys", ",".join(table.key), "--hash", "*", "--format", "json"]  # fmt: skip
        ended = run_process(command, task, self._home(task))
        if ended.exit_code != 0:
            return ended.crash()
        rows = json.loads(ended.output).values()
        failed = [row for row in rows if row["validation_status"] != "success"]
        if failed:
            return ended.report({0: None}, different={table.name: TableDifference(len(failed))})
        return ended.report({0: None}, equal=[table.name] if rows else [])
