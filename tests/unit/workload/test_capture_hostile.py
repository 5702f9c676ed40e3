"""Logs that somebody wrote to stall or crash a capture: read in linear time, and marked or rejected."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from migverify.workload.capture import CaptureInput, CaptureOptions, capture
from migverify.workload.opening import open_formats, readers

pytest.importorskip("pyarrow")

HEAD = (
    b"# Time: 2026-01-02T03:04:05.678901Z\n# User@Host: %s\n"
    b"# Query_time: 0.1  Lock_time: 0.0 Rows_sent: 1  Rows_examined: 0\nSET timestamp=1767323045;\n%s;\n"
)
USER = b"app[app] @ h []  Id: 3"
SLOW = {
    "comments before SET": (HEAD % (USER, b"/**/" * 60_000 + b"x timestamp"))[38:],
    "comments before CREATE": HEAD % (USER, b"'" + (HEAD % (USER, b"/**/" * 60_000 + b"'a'; x")) + b"'"),
    "brackets of a user": HEAD % (b"[" * 60_000 + b"] @ [" * 20_000, b"select 1"),
    "escaped quotes": HEAD % (USER, b"select '" + b"\\'" * 300_000),
    "comments that no one closes": b"".join(HEAD % (USER, b"/* %d" % number) for number in range(6_000)),
    "names of servers": b"mysqld" * 100_000 + b"\n" + b"mysqld, Version: \n" * 20_000,
    "long numbers": (HEAD % (USER, b"select 1")).replace(b"1767323045", b"9" * 6_000),
}


def reads(path: Path, name: str) -> None:
    """Read a file to its end; the worst of these took hours for a megabyte, and the time limit of the test ended it."""
    assert sum(piece.origin.length for piece in readers(3306)[name].read(str(path))) == path.stat().st_size


@pytest.mark.attack(
    "capture", "text that makes regular expressions try again and again", "is read in time that grows with its size"
)
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", SLOW)
def test_hostile_slow_logs_are_read_in_linear_time(case: str, tmp_path: Path) -> None:
    path = tmp_path / "slow.log"
    path.write_bytes(SLOW[case])
    reads(path, "slow")


@pytest.mark.attack(
    "capture", "names with half characters or bytes that are no text, in JSON", "are a counted reject, or escapes"
)
@pytest.mark.parametrize("name", ["das", "polled"])
def test_names_that_are_no_text_are_written_all_the_same(name: str, tmp_path: Path) -> None:
    events = {
        "das": b'{"type":"record","sessionId":"8","commandText":"select 1","logTime":"2026-01-02 03:04:05.678901+00",'
        b'"startTime":"2026-01-02 03:04:05.6+00","exitCode":"0","statementId":4,"command":"%s","dbUserName":"%s"}\n',
        "polled": b'{"event":4,"thread":8,"session":8,"sql":"select 1","name":"statement/%s","start":1,"end":2,'
        b'"user":"%s"}\n',
    }
    kind = b"QUERY" if name == "das" else b"sql/select"
    data = b"".join(events[name] % pair for pair in ((kind, b"app"), (kind, b"\xff"), (kind, b"\\ud800"),
                                                      (b"\\ud800", b"app"), (b"\xff", b"app")))  # fmt: skip
    path = tmp_path / "the.log"
    path.write_bytes(data)
    summary = capture([CaptureInput(path, readers(3306)[name])], CaptureOptions(tmp_path / "out"))
    assert (summary.statements, summary.rejected, summary.records) == (2, 2, 3)


@pytest.mark.attack("capture", "a connect line of a general log made of separators", "is read in linear time")
@pytest.mark.timeout(300)
def test_hostile_general_logs_are_read_in_linear_time(tmp_path: Path) -> None:
    path = tmp_path / "general.log"
    line = b"2026-01-02T03:04:05.678901Z\t    8 Connect\t" + b"@ as  on  using " * 20_000 + b"\n"
    path.write_bytes(line + b"2026-01-02T03:04:05.678901Z\t    8 Query\t" + b"/**/" * 60_000 + b"prepare\n")
    reads(path, "general")


@pytest.mark.attack("capture", "numbers and times that no server writes", "are counted rejects, never a traceback")
def test_numbers_that_no_server_writes_are_rejects(tmp_path: Path) -> None:
    lines = (
        b"9999999999999999,db-1,app,h,8,24,QUERY,shop,'select 1',0\n", b"20261301 03:04:05,h,a,h,8,24,QUERY,d,'x',0\n",
        b"1767323045678901,db-1,app,h,8,24,QUERY,shop,'select 1',99999999999\n",
        b"1767323045678901,db-1,app,h,8,0,CONNECT,shop,," + b"9" * 5_000 + b"\n",
        b"1767323045678901,db-1,app,h,8,25,QUERY,shop,'select 2',0\n",
    )  # fmt: skip
    path = tmp_path / "audit.log"
    path.write_bytes(b"".join(lines))
    summary = capture(
        [CaptureInput(path, readers(3306)["audit"])], CaptureOptions(tmp_path / "out")
    )  # fmt: skip
    assert (summary.rejected, summary.records) == (2, 3)


def test_an_empty_rotated_file_is_of_the_format_of_the_others(tmp_path: Path) -> None:
    from tests.unit.log_writers import BANNER

    paths = [tmp_path / name for name in ("a.log", "b.log", "c.log")]
    for path, data in zip(paths, (b"", HEAD % (USER, b"select 1"), BANNER), strict=True):
        path.write_bytes(data)
    assert [one.name for one in open_formats("auto", [str(path) for path in paths], 3306)] == ["slow"] * 3
    assert [one.name for one in open_formats("auto", [str(paths[0])], 3306)] == ["slow"]


@pytest.mark.attack("capture", "damaged files of every format", "every byte ends in a record, a reject or noise")
@pytest.mark.parametrize("name", readers(3306))
def test_any_bytes_are_captured(name: str, tmp_path: Path) -> None:
    from tests.soak.test_capture_fuzz import Checked, attack

    for seed in range(4):
        attack(name, random.Random(seed), tmp_path / str(seed), Checked())
