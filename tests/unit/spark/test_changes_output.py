"""Archived binlogs into Parquet and record batches: each change once after a kill at any point, and no hole."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from migverify.errors import ChangeError, ConfigError
from migverify.spark import changes_output
from migverify.spark.binlog_source import ReadRanges
from migverify.spark.changes_output import ArchiveSource, ReadResult, read_changes
from tests.binlog_files import SERVER, BinlogFile
from tests.unit.spark.archived import EXPECTED, InProcess, changes_of, damage, keep, small


def batches(path: str, **options: str) -> list[dict[str, Any]]:
    ranges = ReadRanges.of(path, **options)
    return [row for n in range(len(ranges.ranges)) for batch in ranges(n) for row in batch.to_pylist()]


def run(path: str, output: Path, **options: Any) -> ReadResult:
    return read_changes(InProcess(), ArchiveSource(path, **options), str(output))  # type: ignore[arg-type]


def written(output: Path) -> list[dict[str, Any]]:
    rows = [row for piece in sorted(output.rglob("*.parquet")) for row in pq.read_table(piece).to_pylist()]
    assert len({(row["file"], row["position"], row["ordinal"]) for row in rows}) == len(rows), "a change came twice"
    return rows


def test_a_frame_is_cut_by_table_and_place(tmp_path: Path) -> None:
    files = small()
    path = keep(files, tmp_path)
    assert changes_of(batches(path)) == EXPECTED
    assert [row["table"] for row in batches(path, tables="app.u")] == ["u"]
    assert [row["op"] for row in batches(path, since="binlog.000002", until="binlog.000003")] == [
        "update", "ddl", "insert"
    ]  # fmt: skip
    assert len(batches(path, since=f"binlog.000002:{files[1].ends[0]}")) == 4
    assert batches(path, since=f"binlog.000003:{files[2].ends[-1]}") == []
    with pytest.raises(ConfigError, match="FILE or FILE:OFFSET"):
        batches(path, since="binlog.000001:x")


def test_more_rows_than_a_batch_holds(tmp_path: Path) -> None:
    file = BinlogFile("binlog.000001").head()
    for number in range(1, 41):
        file.insert(number, *((number * 1000 + row, "x" * (row % 50)) for row in range(500)))
    keys = Counter(dict(row["after"])["id"] for row in batches(keep([file], tmp_path)))
    assert len(keys) == 20_000
    assert set(keys.values()) == {1}


def test_what_is_missing_or_damaged_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ChangeError, match="there is no archive at"):
        batches(str(tmp_path / "nothing"))
    path, output = keep(small(), tmp_path / "a"), tmp_path / "output"
    damage(tmp_path / "a" / "binlog.000002")
    with pytest.raises(ChangeError, match="fails its checksum"):
        run(path, output)
    assert not list((output / "binlog=binlog.000002").glob("*")), "a half piece must not be seen"
    (tmp_path / "a" / "manifest" / "binlog.000002.json").unlink()
    with pytest.raises(ChangeError, match="the archive is not complete"):
        run(path, output)


def grow(files: list[BinlogFile], count: int) -> None:
    """Finish the last file and add some more, one transaction each."""
    for _ in range(count):
        name = f"binlog.{len(files) + 1:06d}"
        files[-1].rotate(name)
        done = sum(len(file.ends) for file in files)
        files.append(BinlogFile(name).head(f"{SERVER}:1-{done}"))
        files[-1].insert(done + 1, (done + 1, "new"))


def test_each_run_reads_what_is_new(tmp_path: Path) -> None:
    files = small()
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(files, source)
    first = run(path, output)
    assert (first.ranges, first.changes) == (3, len(EXPECTED))
    before = {piece: piece.stat().st_mtime_ns for piece in output.rglob("*.parquet")}
    assert run(path, output).ranges == 0
    files[-1].insert(8, (8, "late"))
    grow(files, 2)
    keep(files, source)
    later = run(path, output)
    assert (later.ranges, later.changes) == (3, 3)
    assert {piece: piece.stat().st_mtime_ns for piece in before} == before
    assert changes_of(written(output))[: len(EXPECTED)] == EXPECTED
    assert len(written(output)) == len(EXPECTED) + 3


def test_a_range_that_was_begun_is_repeated_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of a killed run may end after the next run began: both must write the same range."""
    files = small()
    source, output = tmp_path / "archive", tmp_path / "output"
    path = keep(files, source)
    write, states = changes_output._write_state, []

    def killed_at_the_end(*state: Any) -> None:
        if states:
            raise KeyboardInterrupt
        states.append(write(*state))

    monkeypatch.setattr(changes_output, "_write_state", killed_at_the_end)
    with pytest.raises(KeyboardInterrupt):
        run(path, output)
    monkeypatch.undo()
    piece = next((output / "binlog=binlog.000003").iterdir())
    piece.unlink()
    files[-1].insert(8, (8, "late"))
    keep(files, source)
    again = run(path, output)
    assert (again.ranges, again.changes) == (2, 3)
    assert piece.exists()
    assert len(written(output)) == len(EXPECTED) + 1


def test_an_output_of_something_else_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "output"
    path = keep(small(), tmp_path / "archive")
    run(path, output, tables=("app.t",))
    with pytest.raises(ChangeError, match="was begun with tables"):
        run(path, output, tables=("app.u",))
    with pytest.raises(ChangeError, match="was begun with since"):
        run(path, output, tables=("app.t",), since="binlog.000002")
    piece = next((output / "binlog=binlog.000002").iterdir())
    piece.with_name(f"{12:020d}-{99:020d}.parquet").write_bytes(piece.read_bytes())
    with pytest.raises(ChangeError, match="Two jobs wrote here"):
        run(path, output, tables=("app.t",))
