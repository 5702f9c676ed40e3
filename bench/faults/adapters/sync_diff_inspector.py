"""sync-diff-inspector of TiDB's tools. Written from its documentation and source; it has not been run here."""

from __future__ import annotations

from bench.faults.adapter import Pair, ProgramAdapter, Task, merge, run_process
from bench.faults.judge import ReportedDifferences, TableDifference

CONFIG = """\
check-thread-count = {threads}
export-fix-sql = {fix}
check-struct-only = false
[data-sources.one]
host = "{source.host}"
port = {source.port}
user = "{source.user}"
password = ""
route-rules = ["r"]
[data-sources.two]
host = "{target.host}"
port = {target.port}
user = "{target.user}"
password = ""
[routes.r]
schema-pattern = "{source_database}"
table-pattern = "{table}"
target-schema = "{database}"
target-table = "{table}"
[task]
output-dir = "{folder}/out"
source-instances = ["one"]
target-instance = "two"
target-check-tables = ["{database}.{table}"]
"""


class SyncDiffInspector(ProgramAdapter):
    """``sync_diff_inspector``, one process a table."""

    name = "sync-diff-inspector"
    settings = "defaults, 4 threads, a summary and no repair files"
    pair = Pair.MYSQL_TIDB
    executable = "sync_diff_inspector"

    def run(self, task: Task) -> ReportedDifferences:
        return merge([self._compare(task, table.name) for table in task.tables])

    def _compare(self, task: Task, table: str) -> ReportedDifferences:
        folder = task.folder / f"inspector-{len(list(task.folder.iterdir()))}"
        folder.mkdir()
        config = folder / "config.toml"
        config.write_text(CONFIG.format(
            threads=4, fix="false", source=task.source, target=task.target, folder=folder, table=table,
            source_database=task.source.database, database=task.target.database,
        ))  # fmt: skip
        ended = run_process([self.program, "--config", str(config)], task)
        summary = folder / "out" / "summary.txt"
        if not summary.exists():
            return ended.crash()
        text = summary.read_text()
        if "passed" in text or "equivalent" in text:
            return ended.report({0: False, 1: True}, equal=[table])
        return ended.report({0: False, 1: True}, different={table: TableDifference()}, detail=text[-400:])
