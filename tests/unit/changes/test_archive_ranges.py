"""Ranges of archived files, read apart from each other, are the stream read as one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.changes.archive import archive
from migverify.changes.decode import decoder
from migverify.changes.files import FileRange, file_ranges
from migverify.changes.manifest import Manifest, read_manifest
from migverify.changes.model import Begin, Item, Position, Rows, Statement
from migverify.changes.source import read_files, read_range
from migverify.changes.storage import Storage
from migverify.errors import ChangeError
from tests.binlog_files import STEPS, BinlogFile, FakeServer, build


def kept(files: list[BinlogFile], folder: Path) -> tuple[Storage, Manifest]:
    storage = Storage(str(folder))
    return storage, archive(storage, FakeServer(files))


def contents(items: list[Item]) -> list[object]:
    """What the items say, with the transaction they belong to."""
    found: list[object] = []
    gtid = ""
    for item in items:
        if isinstance(item, Begin):
            gtid = item.gtid
        elif isinstance(item, Rows):
            found.append((gtid, item.op, item.table.name, tuple(decoder(item.table).texts(item.images)), item.file))
        elif isinstance(item, Statement):
            found.append((gtid, item.sql, item.file, item.offset))
    return found


def all_of(storage: Storage, ranges: list[FileRange]) -> list[object]:
    # Each range by itself and in the wrong order, as executors do.
    parts = {wanted: contents(list(read_range(storage, wanted))) for wanted in reversed(ranges)}
    return [one for wanted in ranges for one in parts[wanted]]


@settings(max_examples=40, deadline=None)
@given(steps=STEPS, cuts=st.lists(st.integers(0, 100), max_size=3))
def test_pieces_are_the_whole(
    steps: list[tuple[str, int]], cuts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    files = build(steps)
    storage, manifest = kept(files, tmp_path_factory.mktemp("ranges"))
    paths = [f"{storage.url}/{file.name}" for file in files]
    expected = contents(list(read_files(paths)))
    assert all_of(storage, file_ranges(manifest)) == expected
    ends = sorted({Position(file.name, end) for file in files for end in file.ends}, key=lambda p: (p.file, p.offset))
    places = sorted({cut % len(ends) for cut in cuts}) if ends else []
    borders = [None, *(ends[place] for place in places), None]
    found = []
    for start, end in pairwise(borders):
        found += all_of(storage, file_ranges(manifest, start, end))
    assert found == expected


def test_a_growing_file_is_read_to_its_last_whole_transaction(tmp_path: Path) -> None:
    file = BinlogFile("binlog.000001").head()
    file.insert(1, (1, "a"))
    end = len(file.data)
    file.gtid(2)
    file.query("BEGIN")
    storage, manifest = kept([file], tmp_path)
    (wanted,) = file_ranges(manifest)
    assert wanted.end == end
    assert len(contents(list(read_range(storage, wanted)))) == 1


def test_a_commit_whose_prepare_was_never_archived_is_refused(tmp_path: Path) -> None:
    files = build([("prepare", 1), ("rotate", 0), ("insert", 0), ("commit", 1)])
    storage = Storage(str(tmp_path))
    manifest = archive(storage, FakeServer(files), since="binlog.000002")
    (wanted,) = file_ranges(manifest)
    with pytest.raises(ChangeError, match="XA PREPARE lies before"):
        list(read_range(storage, wanted))


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    files = build([("insert", 0), ("rotate", 0)] * 3)
    storage, _ = kept(files, tmp_path)
    (tmp_path / "manifest" / "binlog.000002.json").unlink()
    manifest = read_manifest(storage)
    with pytest.raises(ChangeError, match="not complete"):
        file_ranges(manifest)
    assert [one.file for one in file_ranges(manifest, Position("binlog.000003", 4))] == [
        "binlog.000003",
        "binlog.000004",
    ]


def test_a_file_shorter_than_its_entry_is_refused(tmp_path: Path) -> None:
    files = build([("insert", 0), ("insert", 0)])
    storage, manifest = kept(files, tmp_path)
    path = tmp_path / "binlog.000001"
    path.write_bytes(path.read_bytes()[: files[0].ends[0]])
    (wanted,) = file_ranges(manifest)
    with pytest.raises(ChangeError):
        list(read_range(storage, wanted))


@pytest.mark.parametrize("offset", [5, 10**9])
def test_a_place_that_is_none(tmp_path: Path, offset: int) -> None:
    storage, manifest = kept(build([("insert", 0)]), tmp_path)
    with pytest.raises(ChangeError):
        all_of(storage, file_ranges(manifest, Position("binlog.000001", offset)))


def test_an_older_copy_of_the_archive(tmp_path: Path) -> None:
    _, manifest = kept(build([("insert", 0), ("insert", 0)]), tmp_path)
    (entry,) = manifest.files
    older = Manifest((replace(entry, whole=entry.whole - 100),))
    with pytest.raises(ChangeError, match="was requested"):
        file_ranges(older, None, Position(entry.name, entry.whole))
