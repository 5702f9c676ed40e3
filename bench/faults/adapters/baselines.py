"""What needs no tool: a row count on both sides, and MySQL's own CHECKSUM TABLE."""

from __future__ import annotations

from bench.faults.adapter import Pair, Task
from bench.faults.cases import quote
from bench.faults.judge import Ending, ReportedDifferences, TableDifference
from bench.faults.load import connect, query


def _compare(task: Task, statement: str) -> ReportedDifferences:
    """Run a statement for each table on both sides, and compare the last column of its one row."""
    equal, different = [], {}
    with connect(task.source, task.seconds) as source, connect(task.target, task.seconds) as target:
        for table in task.tables:
            answers = {query(side, statement + quote(table.name))[0][-1] for side in (source, target)}
            if None in answers:
                continue  # neither equal nor different: CHECKSUM TABLE has no answer
            if len(answers) == 1:
                equal.append(table.name)
            else:
                different[table.name] = TableDifference()
    return ReportedDifferences(Ending.FINISHED, equal=frozenset(equal), different=different)


class RowCount:
    """The least that a migration checks."""

    name = "row-count"
    settings = "SELECT COUNT(*) on both sides"
    pair = Pair.MYSQL_TIDB

    def version(self) -> str:
        return "SQL"

    def available(self) -> str | None:
        return None

    def run(self, task: Task) -> ReportedDifferences:
        return _compare(task, "SELECT COUNT(*) FROM ")


class ChecksumTable:
    """What the server computes over the storage format of its rows; TiDB does not have it."""

    name = "checksum-table"
    settings = "CHECKSUM TABLE on both sides"
    pair = Pair.MYSQL_MYSQL

    def version(self) -> str:
        return "SQL"

    def available(self) -> str | None:
        return None

    def run(self, task: Task) -> ReportedDifferences:
        return _compare(task, "CHECKSUM TABLE ")
