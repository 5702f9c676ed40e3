"""reladiff (PyPI), a continuation of data-diff: one process a table.

Its exit code is 0 after an exception too, so it means nothing. A run counts as finished only when its log says how long
it took, which is its last line. By default it sorts the differing rows, which fails where a value is NULL on one side
(``'<' not supported between instances of 'NoneType' and 'str'``); ``--skip-sort-results`` leaves that out.
"""

from __future__ import annotations

import json

from bench.faults.adapter import Pair, ProgramAdapter, Task, merge, run_process
from bench.faults.cases import Table
from bench.faults.judge import Ending, ReportedDifferences, TableDifference

REFUSAL = "Cannot use a column of type"  # its keys are integers, UUIDs and short texts of letters and digits


class Reladiff(ProgramAdapter):
    """``reladiff`` over every column."""

    name = "reladiff"
    settings = (
        "`--json --verbose --columns %` (every column), the key given by `--key-columns`, 4 threads; without a unique "
        "key every column is the key; `--skip-sort-results`, as sorting fails at NULL"
    )
    pair = Pair.MYSQL_TIDB
    executable = "reladiff"

    def run(self, task: Task) -> ReportedDifferences:
        return merge([self._compare(task, table) for table in task.tables])

    def _compare(self, task: Task, table: Table) -> ReportedDifferences:
        keys = table.key or table.columns
        command = [self.program, task.source.url, table.name, task.target.url, table.name, "--json", "--verbose"]
        command += ["--threads=4", "--columns=%", "--skip-sort-results", *(f"--key-columns={key}" for key in keys)]
        ended = run_process(command, task, {"COLUMNS": "1000000"})  # it breaks lines at the width of the terminal
        refusal = [line for line in ended.errors.splitlines() if REFUSAL in line]
        if refusal:
            return ReportedDifferences(Ending.NOT_SUPPORTED, ended.exit_code, detail=refusal[-1])
        if "Duration:" not in ended.errors + ended.output:
            return ended.crash()
        lines = [line for line in ended.output.splitlines() if line.startswith(('["+"', '["-"'))]
        if not lines:
            return ended.report({0: None}, equal=[table.name])
        rows = [tuple(map(str, json.loads(line)[1])) for line in lines]
        named = frozenset(row[: len(keys)] for row in rows) if table.key else None
        return ended.report({0: None}, different={table.name: TableDifference(len(named or rows), named)})
