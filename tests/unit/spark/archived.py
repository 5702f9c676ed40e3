"""A small archive of binlogs for tests of what reads one, and the changes that it holds."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

from migverify.changes.archive import archive
from migverify.changes.storage import Storage
from migverify.errors import MigverifyError
from migverify.spark.changes_output import write_range
from tests.binlog_files import SERVER, BinlogFile, FakeServer

EXPECTED = [
    ("insert", "t", None, {"id": "1", "v": "a"}, 1, "binlog.000001", 0, None),
    ("insert", "t", None, {"id": "2", "v": None}, 1, "binlog.000001", 1, None),
    ("update", "t", {"id": "1", "v": "a"}, {"id": "1", "v": "é"}, 3, "binlog.000002", 0, None),
    ("ddl", "t", None, None, 4, "binlog.000002", 0, "ALTER TABLE t ADD COLUMN w INT"),
    ("insert", "u", None, {"id": "7", "v": "other"}, 5, "binlog.000002", 0, None),
    ("insert", "t", None, {"id": "50", "v": "xa"}, 6, "binlog.000001", 0, None),
    ("delete", "t", {"id": "2", "v": None}, None, 7, "binlog.000003", 0, None),
]
"""Of ``small``. The rows of an XA transaction have the place where they were prepared, and the GTID of the commit."""


class InProcess:
    """Runs each task of ``read_changes`` at once, where a ``SparkEngine`` sends it to a worker."""

    def submit(self, task: str) -> Future[str]:
        future: Future[str] = Future()
        try:
            future.set_result(write_range(task, {}))
        except MigverifyError as error:
            future.set_exception(error)
        return future


def keep(files: list[BinlogFile], folder: Path) -> str:
    archive(Storage(str(folder)), FakeServer(files))
    return str(folder)


def small() -> list[BinlogFile]:
    """Three files; an XA transaction is prepared in the first and committed in the third."""
    one = BinlogFile("binlog.000001").head()
    one.insert(1, (1, "a"), (2, None))
    one.xa_prepare(2, b"x", (50, "xa"))
    one.rotate("binlog.000002")
    two = BinlogFile("binlog.000002").head(f"{SERVER}:1-2")
    two.update(3, (1, "a"), (1, "é"))
    two.ddl(4, "ALTER TABLE t ADD COLUMN w INT")
    two.insert(5, (7, "other"), table="u")
    two.rotate("binlog.000003")
    three = BinlogFile("binlog.000003").head(f"{SERVER}:1-5")
    three.xa_commit(6, b"x")
    three.delete(7, (2, None))
    return [one, two, three]


def changes_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What was done, in the order of the transactions."""

    def image(value: Any) -> Any:
        return None if value is None else dict(value)

    ordered = sorted(rows, key=lambda row: (int(row["gtid"].rpartition(":")[2]), row["ordinal"]))
    return [
        (row["op"], row["table"], image(row["before"]), image(row["after"]), int(row["gtid"].rpartition(":")[2]),
         row["file"], row["ordinal"], row["sql"])
        for row in ordered
    ]  # fmt: skip


def damage(path: Path) -> None:
    """Flip one bit near the end of a file."""
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
