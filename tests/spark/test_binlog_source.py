"""Archived binlogs on Spark: a frame holds every change, and a damaged file fails its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from migverify.spark.binlog_source import read_archive
from tests.unit.spark.archived import EXPECTED, changes_of, damage, keep, small


def test_a_frame_of_an_archive(sessions: Any, tmp_path: Path) -> None:
    session, path = sessions.get(), keep(small(), tmp_path)
    frame = read_archive(session, path)
    assert frame.rdd.getNumPartitions() == 3
    rows = frame.collect()
    assert changes_of([row.asDict() for row in rows]) == EXPECTED
    assert {row.database for row in rows} == {"app"}
    assert {int(row.time.timestamp()) for row in rows} == {1_800_000_000}
    assert [row.table for row in read_archive(session, path, tables="app.u").collect()] == ["u"]
    damage(tmp_path / "binlog.000002")
    with pytest.raises(Exception, match="fails its checksum"):
        read_archive(session, path).collect()
