"""Sessions read what is committed now, whatever a server's administrator made the default of new sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from migverify.db.session import open_session
from migverify.model import READS_NOW, Flavor, Side, Verdict
from migverify_lab.session import connect
from tests.conftest import Databases
from tests.db.verifying import verify, write_config
from tests.db.wiring import SIDES, endpoint

pytestmark = pytest.mark.db


@contextmanager
def by_default(databases: Databases, side: Side, **variables: str) -> Iterator[None]:
    """Set global variables of a server nobody else uses, and set them back."""
    run = databases.source if side is Side.SOURCE else databases.target
    before = {name: str(run(f"SELECT @@GLOBAL.{name}")[0][0]) for name in variables}
    try:
        for name, value in variables.items():
            run(f"SET GLOBAL {name}={value}")
        yield
    finally:
        for name, value in before.items():
            run(f"SET GLOBAL {name}='{value}'")


@pytest.mark.attack(
    "verification", "the source's default isolation is READ UNCOMMITTED, and a transaction that will be rolled back has"
    " made its row equal to the target's", "sessions read what is committed: MISMATCH",
)  # fmt: skip
def test_a_row_that_is_not_committed_is_not_read(own_databases: Databases, tmp_path: Path) -> None:
    both = own_databases
    both.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    both.target("UPDATE t SET v=7 WHERE id=1")
    with (
        by_default(both, Side.SOURCE, transaction_isolation="'READ-UNCOMMITTED'"),
        connect(both.pair.source, both.name) as writer, writer.cursor() as cursor,
    ):  # fmt: skip
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v=7 WHERE id=1")
        ending = verify(write_config(tmp_path, both.pair, both.name))
        cursor.execute("ROLLBACK")
    assert ending.verdict is Verdict.MISMATCH
    assert {key for _, key in ending.diffs} == {("1",)}


@pytest.mark.attack(
    "verification", "the target's sessions read the past by default", "sessions read now: MISMATCH",
)  # fmt: skip
def test_a_target_that_reads_the_past_by_default_is_read_now(own_databases: Databases, tmp_path: Path) -> None:
    both = own_databases
    both.both("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    then = both.target("BEGIN", "SELECT TIDB_CURRENT_TSO()")[0][0]
    both.target("COMMIT", "UPDATE t SET v=99 WHERE id=2")
    both.target(f"SET GLOBAL tidb_external_ts={then}")  # it can only grow, so it stays; nobody reads it by default
    with by_default(both, Side.TARGET, tidb_enable_external_ts_read="ON"):
        with connect(both.pair.target, both.name) as other, other.cursor() as cursor:
            cursor.execute("SELECT v FROM t WHERE id=2")
            assert list(cursor.fetchall()) == [(2,)], "what a client sees that pins nothing"
        ending = verify(write_config(tmp_path, both.pair, both.name))
    assert ending.verdict is Verdict.MISMATCH
    assert {key for _, key in ending.diffs} == {("2",)}


@pytest.mark.parametrize("side", SIDES)
def test_what_decides_when_a_session_reads_is_pinned(databases: Databases, side: Side) -> None:
    with closing(open_session(endpoint(databases, side), None, side=side)) as session:
        assert session.query("SELECT @@transaction_isolation") == [("REPEATABLE-READ",)]
        if session.flavor is Flavor.TIDB:
            seen = session.query("SELECT " + ", ".join(f"@@{name}" for name in READS_NOW))[0]
            assert dict(zip(READS_NOW, seen, strict=True)) == {
                "tidb_snapshot": "", "tidb_read_staleness": "0", "tidb_enable_external_ts_read": "0",
                "tidb_low_resolution_tso": "0", "tidb_read_consistency": "strict",
            }  # fmt: skip
