"""The same statement in several files is one; two true executions in one file are two, however coarse the clock is."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from migverify.workload.capture import CaptureInput, CaptureOptions, CaptureSummary, capture
from migverify.workload.formats.audit import Audit
from migverify.workload.formats.slow import SlowLog
from tests.unit.log_writers import Sent, write_slow

pytest.importorskip("pyarrow")


def captured(folder: Path, files: Sequence[bytes], form: Any = None) -> tuple[Counter[bytes], CaptureSummary]:
    """Capture files; returns how often each text was kept."""
    import pyarrow.parquet as pq

    inputs = []
    for number, data in enumerate(files):
        path = folder / f"slow.log.{number}"
        path.write_bytes(data)
        inputs.append(CaptureInput(path, form or SlowLog()))
    summary = capture(inputs, CaptureOptions(folder / "out", replace=True))
    return Counter(pq.read_table(folder / "out", columns=["sql"])["sql"].to_pylist()), summary


def exact(begin: int, end: int) -> list[Sent]:
    return [Sent(b"select %d" % number, session=number % 3 + 1, end=1_767_323_045_000_000 + number * 400_000)
            for number in range(begin, end)]  # fmt: skip


def coarse(begin: int, end: int, each: int = 2) -> bytes:
    """A log of MariaDB: whole seconds, and nothing tells the ``each`` executions of one second apart."""
    return b"".join(
        b"# Time: 260102  3:04:%02d\n# User@Host: app[app] @ web1 [10.0.0.9]\n"
        b"# Thread_id: 3  Schema: shop  QC_hit: No\n"
        b"# Query_time: 0.000100  Lock_time: 0.000010  Rows_sent: 1  Rows_examined: 1\n"
        b"SET timestamp=%d;\nselect %d;\n" % (second, 1_767_323_040 + second, second)
        for second in range(begin, end)
        for _ in range(each)
    )


def test_a_packed_copy_is_kept_once(tmp_path: Path) -> None:
    log = write_slow(exact(0, 40))
    found, summary = captured(tmp_path, [log, gzip.compress(log)])
    assert found == {one.sql: 1 for one in exact(0, 40)}
    assert (summary.records, summary.duplicates) == (80, 40)


def test_partly_overlapping_rotated_files_are_their_union(tmp_path: Path) -> None:
    files = [write_slow(exact(20, 50)), gzip.compress(write_slow(exact(0, 30))), write_slow(exact(45, 60))]
    found, summary = captured(tmp_path, files)
    assert found == {one.sql: 1 for one in exact(0, 60)}
    assert summary.duplicates == 15


def test_equal_statements_of_one_second_are_all_kept_where_one_file_has_them(tmp_path: Path) -> None:
    log = coarse(5, 25)
    expected = {b"select %d" % second: 2 for second in range(5, 25)}
    assert captured(tmp_path, [log])[0] == expected
    found, summary = captured(tmp_path, [log, gzip.compress(log)])
    assert (found, summary.duplicates) == (expected, 40)


def test_overlapping_files_of_whole_seconds_keep_what_the_fuller_one_has(tmp_path: Path) -> None:
    found, summary = captured(tmp_path, [coarse(5, 20), coarse(12, 30)])
    assert found == {b"select %d" % second: 2 for second in range(5, 30)}
    assert summary.duplicates == 16


def test_a_rotation_within_a_second_drops_nothing(tmp_path: Path) -> None:
    """The two executions of second 20 are one in each file: these are no copies."""
    found, summary = captured(tmp_path, [coarse(5, 20) + coarse(20, 21, 1), coarse(20, 21, 1) + coarse(21, 30)])
    assert found == {b"select %d" % second: 2 for second in range(5, 30)}
    assert summary.duplicates == 0


def test_equal_audit_events_of_one_second_are_all_kept(tmp_path: Path) -> None:
    line = b"20260102 03:04:%02d,db,app,10.0.0.9,8,%d,QUERY,shop,'select 1',0\n"
    log = b"".join(line % (second, 2 * second + nth) for second in range(5, 15) for nth in range(2))
    found, summary = captured(tmp_path, [log, gzip.compress(log)], Audit())
    assert found == {b"select 1": 20}
    assert summary.duplicates == 20
