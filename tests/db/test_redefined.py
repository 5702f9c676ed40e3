"""A table is altered, made or dropped after a run found it to differ: what a recheck and --resume do then."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from migverify.errors import CHANGED_SINCE, PlanError
from migverify.model import RunInfo, Verdict
from migverify.store.open import open_store
from migverify.tables.run_facts import READ_WHOLE
from tests.conftest import Databases
from tests.db.verifying import run_command, verify, write_config

pytestmark = pytest.mark.db

COLUMNS = "(id INT NOT NULL PRIMARY KEY, amt INT NOT NULL, note VARCHAR(20) NOT NULL)"
ROWS = ", ".join(f"({number}, {number}, 'x')" for number in range(1, 1201))


@pytest.fixture
def config(databases: Databases, tmp_path: Path) -> Path:
    """Two equal tables of 1,200 rows, in chunks of 500."""
    for table in ("changed", "wrong"):
        databases.both(f"CREATE TABLE {table} {COLUMNS}", f"INSERT INTO {table} VALUES {ROWS}", "COMMIT")
    return write_config(tmp_path, databases.pair, databases.name)


def runs(config: Path) -> list[RunInfo]:
    with closing(open_store(f"sqlite:///{config.parent / 'runs.db'}")) as store:
        return list(store.runs(10))


def rows_read(config: Path, run: str, pair: str) -> int:
    with closing(open_store(f"sqlite:///{config.parent / 'runs.db'}")) as store:
        return store.chunk_totals(run, pair)["rows_source"]


def test_a_column_that_was_added_again_needs_one_recheck(databases: Databases, config: Path) -> None:
    """It was refused, and left a run that was not over: nothing could be done with either of them."""
    changed, wrong = f"{databases.name}.changed", f"{databases.name}.wrong"
    databases.target("ALTER TABLE changed DROP COLUMN amt", "UPDATE wrong SET note = 'y' WHERE id = 1100", "COMMIT")
    first = verify(config)
    assert {name: result.verdict for name, result in first.results.items()} == {
        changed: Verdict.MISMATCH, wrong: Verdict.MISMATCH,
    }  # fmt: skip
    databases.target("ALTER TABLE changed ADD COLUMN amt INT NOT NULL DEFAULT 0 AFTER id", "UPDATE changed SET amt=id")
    databases.target("UPDATE changed SET amt = 0 WHERE id = 7", "UPDATE wrong SET note = 'x' WHERE id = 1100", "COMMIT")
    code, document, said = run_command(config, "--recheck", first.run_id)
    results = {table["pair"]: table for table in document["tables"]}
    assert (code, results[changed]["row_diffs"]["value_differs"], results[wrong]["verdict"]) == (1, 1, "MATCH"), said
    assert f"{changed}: its definition changed since run {first.run_id}: it is read whole" in said
    assert wrong not in said
    run = runs(config)[0]
    assert (run.facts[READ_WHOLE].keys(), run.finished is None) == ({changed}, False)
    assert rows_read(config, run.run_id, changed) == 1200
    databases.target("UPDATE changed SET amt = 7 WHERE id = 7", "COMMIT")
    assert verify(config, recheck="last").verdict is Verdict.MATCH


def test_a_recheck_reads_a_table_that_was_equal_and_has_another_definition_now(
    databases: Databases, config: Path
) -> None:
    databases.target("UPDATE wrong SET note = 'y' WHERE id = 7", "COMMIT")
    first = verify(config)
    databases.target("UPDATE wrong SET note = 'x' WHERE id = 7", "ALTER TABLE changed DROP COLUMN amt", "COMMIT")
    again = verify(config, recheck=first.run_id)
    assert again.results[f"{databases.name}.changed"].verdict is Verdict.MISMATCH
    assert again.results[f"{databases.name}.wrong"].verdict is Verdict.MATCH


def test_a_table_that_was_missing_and_is_there_now_needs_one_recheck(databases: Databases, config: Path) -> None:
    databases.target("DROP TABLE changed")
    first = verify(config)
    assert first.reasons == "the table is on the source only"
    databases.target(f"CREATE TABLE changed {COLUMNS}", f"INSERT INTO changed VALUES {ROWS}", "COMMIT")
    assert verify(config, recheck=first.run_id).verdict is Verdict.MATCH


def test_a_recheck_of_a_table_that_is_gone_is_refused_before_its_run_is_made(
    databases: Databases, config: Path
) -> None:
    """Its run had no table, no reason and no recheck of its own."""
    databases.target(f"CREATE TABLE extra {COLUMNS}")
    first = verify(config)
    assert first.verdict is Verdict.MISMATCH
    databases.target("DROP TABLE extra")
    with pytest.raises(PlanError, match=f"{databases.name}.extra: {CHANGED_SINCE} {first.run_id}") as refused:
        verify(config, recheck="last")
    assert "`migverify tables verify`" in refused.value.hint
    assert [run.run_id for run in runs(config)] == [first.run_id]


def test_a_run_whose_table_changed_is_not_resumed_and_the_command_that_the_refusal_names_ends_it(
    databases: Databases, config: Path
) -> None:
    def stop(progress: object) -> None:
        if getattr(progress, "chunks", 0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(config, slots=1, on_progress=stop)
    run = runs(config)[0]
    databases.target("ALTER TABLE changed DROP COLUMN amt")
    code, _, said = run_command(config, "--resume", run.run_id)
    assert code == 2
    assert f"{databases.name}.changed: {CHANGED_SINCE} {run.run_id} began" in said
    assert f"`migverify tables verify --recheck {run.run_id}`" in said
    left = runs(config)
    assert [(one.run_id, one.finished is None, one.is_resumed) for one in left] == [(run.run_id, False, False)]
    databases.target("ALTER TABLE changed ADD COLUMN amt INT NOT NULL DEFAULT 0 AFTER id", "UPDATE changed SET amt=id")
    databases.target("COMMIT")
    assert verify(config, recheck=run.run_id).verdict is Verdict.MATCH
