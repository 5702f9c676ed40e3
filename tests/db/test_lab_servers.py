"""The pair as tests get it."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.db


def test_the_source_writes_row_binlog_with_full_metadata_and_gtids(databases):
    names = "'log_bin', 'binlog_format', 'binlog_row_metadata', 'gtid_mode', 'local_infile'"
    rows = dict(databases.source(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))
    assert rows["log_bin"] == "ON"
    assert rows["binlog_row_metadata"] == "FULL"
    assert rows["gtid_mode"] == "ON"
    assert rows["local_infile"] == "ON"
    assert rows.get("binlog_format", "ROW") == "ROW"


def test_tidb_snapshot_reads_the_past(databases):
    databases.target("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    databases.target("BEGIN", "SELECT COUNT(*) FROM t")
    (then,) = databases.target("SELECT TIDB_CURRENT_TSO()")
    databases.target("COMMIT", "INSERT INTO t VALUES (2)", f"SET SESSION tidb_snapshot = '{then[0]}'")
    assert databases.target("SELECT COUNT(*) FROM t") == [(1,)]
    databases.target("SET SESSION tidb_snapshot = ''")
    assert databases.target("SELECT COUNT(*) FROM t") == [(2,)]
