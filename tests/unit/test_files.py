"""Files that are written whole: what was planted in the folder before is neither written to nor followed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from migverify.cli import schema, watching
from migverify.cli.init import save
from migverify.errors import StoreError
from migverify.exposition import Metric, page
from migverify.files import write_whole, written_whole
from migverify.runbook.kinds import RunKind
from migverify.runbook.record.heads import HEADS, runs_begun
from migverify.runbook.record.run_store import RunStore
from tests.unit.runbook_runs import runbook, step


@pytest.mark.attack(
    "files", "links lie under the names that a writer of another account would take first",
    "the files behind them are untouched",
)  # fmt: skip
@pytest.mark.parametrize("command", ["metrics", "definitions", "configuration", "report"])
def test_a_link_under_a_foreseeable_name_is_not_written_through(tmp_path: Path, command: str) -> None:
    victim, path = tmp_path / "victim", tmp_path / "out.txt"
    victim.write_text("mine")
    for name in (f".{path.name}.{os.getpid()}", f".{path.name}.half", f"{path.name}.part", path.name):
        (tmp_path / name).symlink_to(victim)
    text = "text\n"
    if command == "metrics":
        text = page([Metric("a", "", [])])
        with watching.metrics_page(None, path) as publish:
            publish([Metric("a", "", [])])
    elif command == "definitions":
        schema._write(path, text)
    elif command == "configuration":
        save(path, text, force=True)
    else:
        write_whole(path, text.encode())
    assert victim.read_text() == "mine"
    assert not path.is_symlink()
    assert path.read_text() == text


def test_a_file_that_is_not_written_to_its_end_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(TypeError), written_whole(path) as file:
        file.write("no bytes")  # type: ignore[call-overload]
    assert [one.name for one in tmp_path.iterdir()] == ["f"]
    assert path.read_text() == "old"
    write_whole(path, b"new", 0o600)
    assert path.stat().st_mode & 0o777 == 0o600
    mask = os.umask(0o027)
    try:
        write_whole(path, b"new")
    finally:
        os.umask(mask)
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.attack(
    "runbook", "A link is put in the place of the list of runs that were begun, or of an exported journal",
    "it is refused or replaced, and the file behind it is untouched",
)  # fmt: skip
def test_the_list_of_runs_and_an_export_follow_no_link(tmp_path: Path) -> None:
    victim, runs = tmp_path / "victim", tmp_path / "runs"
    victim.write_text("mine")
    store = RunStore(runs)
    store.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r1")
    assert [head.run for head in runs_begun(runs)] == ["r1"]
    (tmp_path / f".journal.jsonl.{os.getpid()}").symlink_to(victim)
    store.export("r1", tmp_path / "journal.jsonl")
    (runs / HEADS).unlink()
    (runs / HEADS).symlink_to(victim)
    with pytest.raises(StoreError, match="symbolic link"):
        store.create(runbook(step("a")), RunKind.REHEARSAL, "alice", run="r2")
    with pytest.raises(StoreError, match="symbolic link"):
        runs_begun(runs)
    assert victim.read_text() == "mine"
