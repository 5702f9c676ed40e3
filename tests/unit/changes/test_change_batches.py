"""Arrow batches hold what ``changes tail`` prints, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from migverify.changes.model import Op, Statement
from migverify.changes.source import read_files
from migverify.changes.tail import Change, changes
from tests.binlog_files import STEPS, BinlogFile, build

pytest.importorskip("pyarrow")

from migverify.spark.change_batches import SCHEMA, TableFilter, batches


def rows(paths: list[str], patterns: tuple[str, ...] = (), batch_rows: int = 7) -> list[dict[str, Any]]:
    found = list(batches(read_files(paths), TableFilter(patterns), batch_rows))
    assert all(batch.schema == SCHEMA for batch in found)
    for batch in found:
        batch.validate(full=True)
    return [row for batch in found for row in batch.to_pylist(maps_as_pydicts="strict")]


def write(files: list[BinlogFile], folder: Path) -> list[str]:
    for file in files:
        (folder / file.name).write_bytes(file.data)
    return [str(folder / file.name) for file in files]


@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_the_same_as_tail(steps: list[tuple[str, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    paths = write(build(steps), tmp_path_factory.mktemp("batches"))
    expected = [one for one in changes(read_files(paths)) if isinstance(one, Change)]
    found = rows(paths)
    texts = [
        Change(Op(row["op"]), f"{row['database']}.{row['table']}", row["before"], row["after"], row["gtid"],
               row["file"], row["position"], row["time"].timestamp(), row["sql"] or "")
        for row in found
    ]  # fmt: skip
    assert texts == expected
    assert len({(row["file"], row["position"], row["ordinal"]) for row in found}) == len(found)


def test_null_is_not_no_image(tmp_path: Path) -> None:
    file = BinlogFile("binlog.000001").head()
    file.insert(1, (1, None))
    file.delete(2, (1, ""))
    (inserted, deleted) = rows(write([file], tmp_path))
    assert (inserted["before"], inserted["after"]) == (None, {"id": "1", "v": None})
    assert (deleted["before"], deleted["after"]) == ({"id": "1", "v": ""}, None)


def test_only_wanted_tables(tmp_path: Path) -> None:
    file = BinlogFile("binlog.000001").head()
    file.insert(1, (1, "a"))
    file.insert(2, (2, "b"), table="u")
    file.ddl(3, "RENAME TABLE t TO old_t, u TO v")
    file.ddl(4, "DROP DATABASE app")
    paths = write([file], tmp_path)
    assert [(row["table"], row["ordinal"]) for row in rows(paths, ("app.u",))] == [("u", 0), ("u", 0), ("*", 0)]
    assert [row["table"] for row in rows(paths, ("app.*t",))] == ["t", "t", "old_t", "*"]
    assert [row["table"] for row in rows(paths)] == ["t", "u", "t", "old_t", "u", "v", "*"]


def test_a_statement_whose_tables_are_not_known() -> None:
    statement = Statement(Op.DDL, (), "ALTER ...", "app", "binlog.000001", 4, 1)
    assert TableFilter(("app.t",)).named(statement) == [("", "")]
