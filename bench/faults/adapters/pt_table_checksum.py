"""pt-table-checksum of Percona Toolkit, on two databases of one MySQL.

It is made for replicas: its statement runs on the source, is replicated, and computes the replica's checksums there.
TiDB takes no statements from MySQL's binlog, so between MySQL and TiDB the tool cannot be run at all. Here the target's
side is loaded into MySQL, the tool runs once for each side without looking for replicas, and the checksums that it
wrote are compared chunk by chunk, as its ``--replicate-check`` does.
"""

from __future__ import annotations

from bench.faults.adapter import Ended, Endpoint, Pair, ProgramAdapter, Task, run_process
from bench.faults.judge import ReportedDifferences, TableDifference
from bench.faults.load import connect, query

SKIPPED = {32: None, 64: None, 96: None}  # a chunk or a table was skipped: the tool says nothing of it
EXIT_CODES: dict[int, bool | None] = {0: None, **SKIPPED}
"""Of one side's run: a difference shows only between both. 1 and 255 are errors, and so is every other one."""

Checksums = dict[str, list[tuple[object, ...]]]


class PtTableChecksum(ProgramAdapter):
    """``pt-table-checksum`` for each side."""

    name = "pt-table-checksum"
    settings = "defaults (CRC32, chunks by time) without replicas; checksums of both sides compared chunk by chunk"
    pair = Pair.MYSQL_MYSQL
    executable = "pt-table-checksum"

    def run(self, task: Task) -> ReportedDifferences:
        ended, checksums = [], []
        for side in (task.source, task.target):
            ended.append(self._checksum(task, side))
            if ended[-1].exit_code not in EXIT_CODES:
                return ended[-1].crash()
            checksums.append(self._read(side, task.seconds))
        one, other = checksums
        equal = [name for name in one if one[name] == other.get(name)]
        different = {name: TableDifference() for name in one if name in other and one[name] != other[name]}
        worst = max(ended, key=lambda end: end.exit_code or 0)
        return worst.report(EXIT_CODES, equal, different, worst.last_words if worst.exit_code else "")

    def _checksum(self, task: Task, side: Endpoint) -> Ended:
        command = [self.program, f"h={side.host},P={side.port},u={side.user}", "--recursion-method=none",
                   "--no-check-binlog-format", "--no-check-replication-filters", "--quiet",
                   "--databases", side.database, "--tables", ",".join(table.name for table in task.tables),
                   "--replicate", f"{side.database}.checksums", "--create-replicate-table"]  # fmt: skip
        return run_process(command, task)

    def _read(self, side: Endpoint, seconds: float) -> Checksums:
        checksums: Checksums = {}
        with connect(side, seconds) as connection:
            for name, *chunk in query(connection, "SELECT tbl, chunk, this_cnt, this_crc FROM checksums ORDER BY 1, 2"):
                checksums.setdefault(str(name), []).append(tuple(chunk))
        return checksums
