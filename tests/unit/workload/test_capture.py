"""Files become a folder of Parquet: whole or not at all, every byte accounted for."""

from __future__ import annotations

import fcntl
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import ReadError, UsageError
from migverify.workload import shares, statement_files
from migverify.workload.capture import CaptureInput, CaptureOptions, CaptureSummary, capture
from migverify.workload.model import Noise, Origin, Piece
from migverify.workload.sessions import SessionStatement
from tests.unit.capture_logs import Lines, write_lines

pq = pytest.importorskip("pyarrow.parquet")


def run(out: Path, *paths: Path, form: Any = None, **options: Any) -> CaptureSummary:
    server = options.pop("server", "")
    inputs = [CaptureInput(path, form or Lines(), server) for path in paths]
    return capture(inputs, CaptureOptions(out, **options))


TOLD: list[dict[str, Any] | str] = [
    {"command": "connect", "session": 1, "start": 1_000_000, "user": "app", "database": "pay"},
    {"sql": "SET NAMES latin1", "session": 1, "end": 2_000_000},
    "# banner",
    {
        "sql": "select 'é'",
        "session": 1,
        "end": 3_000_000,
        "duration": 500_000,
        "errno": 0,
        "rows_sent": 1,
        "user": "app",
    },
    "not a record",
    {"sql": "select nope", "session": 2, "end": 2_500_000, "errno": 1054},
]


def test_rows_and_summary(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    summary = run(tmp_path / "out", log, server="db1")
    told = json.loads((tmp_path / "out" / "_summary.json").read_text())
    assert told == json.loads(json.dumps(summary.as_json()))
    assert (told["bytes"], told["records"], told["statements"]) == (log.stat().st_size, 4, 3)
    assert (told["rejected"], told["rejects"], told["noise"]) == (1, {"not JSON": 1}, {"comment": 1})
    assert (told["sessions"], told["partial"]) == (2, {"session began before the capture": 1})
    assert (told["first"], told["last"]) == ("1970-01-01T00:00:01.000000Z", "1970-01-01T00:00:03.000000Z")
    (reject,) = [json.loads(line) for line in (tmp_path / "out" / "_rejects.jsonl").read_text().splitlines()]
    assert log.read_bytes()[reject["offset"] :][: reject["length"]] == b"not a record\n"

    rows = pq.read_table(tmp_path / "out").to_pylist()
    assert [row["sql"].decode() for row in rows] == ["SET NAMES latin1", "select 'é'", "select nope"]
    first = rows[1]
    assert (first["session"], first["position"], first["database"], first["charset"]) == ("db1/1/1", 2, "pay", "latin1")
    assert (first["duration_s"], first["rows_sent"], first["errno"], first["user"]) == (0.5, 1, 0, "app")
    assert first["start"].timestamp() == 2.5
    assert log.read_bytes()[first["source_offset"] :].startswith(b'{"sql": "select \'')
    assert (first["source_line"], first["partial"]) == (4, "")
    assert rows[2]["rows_sent"] is None
    events = pq.read_table(tmp_path / "out" / "_events").to_pylist()
    assert [row["command"] for row in events] == ["connect"]


def test_order_of_files_does_not_matter(tmp_path: Path) -> None:
    texts = [{"sql": f"select {n}", "session": n % 3, "start": n // 4} for n in range(40)]
    paths = [write_lines(tmp_path / f"{part}.log", texts[part * 10 :][:10]) for part in range(4)]
    tables = []
    for name, files in (("x", paths), ("y", paths[::-1])):
        run(tmp_path / name, *files)
        tables.append(pq.read_table(tmp_path / name))
    assert tables[0] == tables[1]
    per_session = [row["sql"] for row in tables[0].to_pylist() if row["connection"] == 1]
    assert per_session == [f"select {n}".encode() for n in range(1, 40, 3)]


def test_files_of_many_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_files, "GROUP_ROWS", 3)
    monkeypatch.setattr(statement_files, "FILE_ROWS", 6)
    log = write_lines(tmp_path / "a.log", [{"sql": str(n), "session": 1, "start": n} for n in range(25)])
    capture([CaptureInput(log, Lines())], CaptureOptions(tmp_path / "out"))
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 5
    batches = statement_files.read_columns(tmp_path / "out", ["sql", "start"])
    read = [(sql, start) for batch in batches for sql, start in zip(batch["sql"], batch["start"], strict=True)]
    assert read == [(str(n).encode(), n) for n in range(25)]


def test_nothing_to_read_still_has_columns(tmp_path: Path) -> None:
    summary = run(tmp_path / "out", write_lines(tmp_path / "a.log", ["# banner"]))
    assert summary.statements == 0
    assert pq.read_table(tmp_path / "out").num_rows == 0


class Broken(Lines):
    """Loses the bytes behind the first piece, or before it."""

    def __init__(self, skip: int) -> None:
        self.skip = skip

    def read(self, path: str) -> Iterator[Piece]:
        pieces = list(super().read(path))
        yield from pieces[self.skip :][:1]


@pytest.mark.parametrize("skip", [0, 1])
def test_lost_bytes_stop_the_capture(tmp_path: Path, skip: int) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    with pytest.raises(ReadError, match="accounts for bytes"):
        run(tmp_path / "out", log, form=Broken(skip))
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]


def test_a_growing_file_is_read_as_far_as_it_was(tmp_path: Path) -> None:
    class Ahead(Lines):
        def read(self, path: str) -> Iterator[Piece]:
            size = 0
            for piece in super().read(path):
                size += piece.origin.length
                yield piece
            yield Noise(Origin(path, size, 9, 10), "written meanwhile")

    log = write_lines(tmp_path / "a.log", TOLD)
    assert run(tmp_path / "out", log, form=Ahead()).bytes == log.stat().st_size + 10


class KilledError(Exception):
    pass


class KilledSink:
    def __init__(self, folder: Path) -> None:
        (folder / "statements-00000.parquet").parent.mkdir(exist_ok=True)
        (folder / "statements-00000.parquet").write_bytes(b"half")

    def add(self, statement: SessionStatement) -> None:  # noqa: ARG002
        raise KilledError

    def close(self) -> None:
        raise KilledError


def test_an_interrupted_capture_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    with monkeypatch.context() as patch:
        patch.setattr(shares, "StatementFiles", KilledSink)
        with pytest.raises(KilledError):
            capture([CaptureInput(log, Lines())], CaptureOptions(tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.log"]
    # kill -9 leaves its folder; the next run starts anew
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "statements-99999.parquet").write_bytes(b"half")
    run(tmp_path / "out", log)
    assert pq.read_table(tmp_path / "out").num_rows == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "out"]


def test_a_capture_is_not_overwritten_unasked(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    other = write_lines(tmp_path / "b.log", TOLD[:2])
    out = tmp_path / "out"
    out.mkdir()
    run(out, log)
    with pytest.raises(UsageError, match="holds a capture already"):
        run(out, other)
    assert pq.read_table(out).num_rows == 3
    with pytest.raises(ReadError):
        run(out, other, replace=True, form=Broken(1))
    assert pq.read_table(out).num_rows == 3
    run(out, other, replace=True)
    assert pq.read_table(out).num_rows == 1
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("x")
    for replace in (False, True):
        with pytest.raises(UsageError, match="no capture"):
            run(mine, log, replace=replace)
    with pytest.raises(UsageError, match="is a file"):
        run(log, log)


def test_two_captures_into_one_folder(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    with (tmp_path / ".out.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match="another capture"):
            run(tmp_path / "out", log)


def test_a_copy_of_a_file_is_kept_once(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    copy = tmp_path / "copy.log"
    copy.write_bytes(log.read_bytes())
    summary = run(tmp_path / "out", log, copy)
    assert (summary.statements, summary.records, summary.duplicates) == (3, 8, 4)
    assert [one.duplicates for one in summary.files] == [0, 4]
    with pytest.raises(UsageError, match="no file"):
        run(tmp_path / "none")


def test_formats_are_not_mixed(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)

    class Other(Lines):
        name = "other"

    mixed = [CaptureInput(log, Lines()), CaptureInput(write_lines(tmp_path / "b.log", TOLD[1:]), Other())]
    with pytest.raises(UsageError, match="different formats"):
        capture(mixed, CaptureOptions(tmp_path / "out"))


def test_clock_disorder_is_counted(tmp_path: Path) -> None:
    ends = [10_000_000, 9_500_000, 5_000_000, 11_000_000]
    log = write_lines(tmp_path / "a.log", [{"sql": "x", "session": 1, "end": end} for end in ends])
    (count,) = run(tmp_path / "out", log).files
    assert (count.disordered, count.disorder_s) == (1, 5.0)


def test_kill_leaves_nothing_and_the_next_run_is_whole(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "a.log", TOLD)
    out = tmp_path / "out"
    program = f"""
import os, signal
from pathlib import Path
from migverify.workload import shares
from migverify.workload.statement_files import StatementFiles
from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from tests.unit.capture_logs import Lines
class Dying(StatementFiles):
    def close(self):
        super().close()
        if self._folder.name != "_events":
            os.kill(os.getpid(), signal.SIGKILL)
shares.StatementFiles = Dying
capture([CaptureInput(Path({str(log)!r}), Lines())], CaptureOptions(Path({str(out)!r}), run_bytes=1))
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert list((tmp_path / ".out.partial").rglob("statements-00000.parquet"))
    assert not out.exists()
    run(out, log)
    assert pq.read_table(out).num_rows == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.log", "out"]
