"""Quick answers on the real pair: what each of them finds, what it cannot show, and that none of them is a proof."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from migverify.errors import PlanError, UsageError
from migverify.model import Verdict
from migverify.tables.quick import Level, QuickRead
from tests.conftest import Databases
from tests.db.verifying import run_command, verify, write_config

pytestmark = pytest.mark.db

COUNTS, KEYS = QuickRead(Level.COUNTS), QuickRead(Level.KEYS)
ROWS = ", ".join(f"({n}, 'v{n}', '2020-01-01 00:00:00')" for n in range(1, 2001))
TABLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), updated_at DATETIME, KEY (updated_at))"


@pytest.fixture
def filled(databases: Databases) -> Databases:
    databases.both(TABLE, f"INSERT INTO t VALUES {ROWS}")
    return databases


@pytest.mark.parametrize(
    ("fault", "counts", "keys"),
    [
        ("", "counts are equal: 2,000 rows on each side", "keys are equal"),
        ("UPDATE t SET id = 5000 WHERE id = 7", "counts are equal", "1 row is missing on the source"),
        ("UPDATE t SET v = 'x' WHERE id = 7", "counts are equal", "keys are equal"),
        (
            "DELETE FROM t WHERE id IN (7, 1999)",
            "counts differ: 2,000 / 1,998 rows",
            "2 rows are missing on the target",
        ),
    ],
    ids=["equal", "another key", "another value", "deleted"],
)
def test_each_level_finds_what_it_reads_and_says_what_it_cannot_show(
    filled: Databases, tmp_path: Path, fault: str, counts: str, keys: str
) -> None:
    if fault:
        filled.target(fault)
    config = write_config(tmp_path, filled.pair, filled.name)
    for read, expected, unseen in (
        (COUNTS, counts, "counts cannot show rows with other values"),
        (KEYS, keys, "keys cannot show other values in the columns outside of the key (id)"),
    ):
        end = verify(config, quick=read)
        assert end.verdict is (Verdict.INCONCLUSIVE if "equal" in expected else Verdict.MISMATCH)
        assert expected in end.reasons
        assert unseen in end.reasons
