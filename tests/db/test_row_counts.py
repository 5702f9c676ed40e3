"""How many rows differ where a key does not say which: no key, NULL keys, a key of two shards."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from migverify.cli.diff_view import list_row_diffs
from migverify.model import Verdict
from migverify.store.open import open_store
from tests.conftest import Databases
from tests.db.verifying import verify, write_config

pytestmark = pytest.mark.db

COPIES = 300


@pytest.mark.parametrize("key", ["", ", UNIQUE KEY (a)"], ids=["no key", "NULL keys"])
def test_lost_copies_of_one_row_are_as_many_row_diffs(databases: Databases, tmp_path: Path, key: str) -> None:
    column = "NULL" if key else "7"
    rows = ", ".join(f"({column}, 'same')" for _ in range(COPIES))
    databases.both(f"CREATE TABLE t (a INT, v VARCHAR(9){key})", f"INSERT INTO t VALUES {rows}")
    databases.target("DELETE FROM t LIMIT 250")
    config = write_config(tmp_path, databases.pair, databases.name)
    end = verify(config)
    result = end.results[f"{databases.name}.t"]
    assert end.verdict is Verdict.MISMATCH
    assert result.missing_on_target == 250
    assert "250 rows are missing on the target (1 distinct)" in result.reasons
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    assert sum(store.count_row_diffs(end.run_id, result.pair).values()) == 250
    lines = list(list_row_diffs(store, end.run_id, None, 5, as_json=False))
    store.close()
    assert len([line for line in lines if "missing_on_target" in line]) == 1
    assert [line for line in lines[1:] if "has no key" in line] == lines[1:], "and how to find such a row"
    assert f"(source {COPIES}, target {COPIES - 250})" in lines[0]


def test_a_key_that_two_shards_hold_is_named(databases: Databases, tmp_path: Path) -> None:
    databases.both("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "INSERT INTO t VALUES (1, 'one'), (2, 'two')")
    config = write_config(tmp_path, databases.pair, databases.name)
    document = yaml.safe_load(config.read_text())
    own = document.pop("source")
    document["sources"] = {"eu": own, "us": own}  # two names of one server: both hold every key
    config.write_text(yaml.safe_dump(document))
    end = verify(config)
    assert end.verdict is Verdict.MISMATCH
    assert "2 of these keys are held by more than one shard, the first: 1 (source.eu, source.us)" in end.reasons
    store = open_store(f"sqlite:///{tmp_path / 'runs.db'}")
    lines = list(list_row_diffs(store, end.run_id, None, 5, as_json=False))
    store.close()
    assert all("(source 2, target 1) held by source.eu, source.us" in line for line in lines)
