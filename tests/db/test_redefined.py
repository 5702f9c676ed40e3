"""A table is altered, made or dropped after a run found it to differ: what a recheck and --resume do then."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from migverify.cli.main import run
from migverify.errors import CHANGED_SINCE, PlanError
from migverify.model import RunInfo, Verdict
from migverify.report.read import read_report
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
    last = runs(config)[0]
    assert (last.facts[READ_WHOLE].keys(), last.finished is None) == ({changed}, False)
    assert rows_read(config, last.run_id, changed) == 1200
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


def test_a_recheck_reads_a_table_that_was_equal_and_is_another_one_now(databases: Databases, config: Path) -> None:
    """It is defined as it was, and was made anew: the recheck was MATCH of all tables with an empty target."""
    databases.target("UPDATE wrong SET note = 'y' WHERE id = 7", "COMMIT")
    first = verify(config)
    databases.target("UPDATE wrong SET note = 'x' WHERE id = 7", "TRUNCATE TABLE changed", "COMMIT")
    again = verify(config, recheck=first.run_id)
    assert again.results[f"{databases.name}.changed"].missing_on_target == 1200
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
    last = runs(config)[0]
    databases.target("ALTER TABLE changed DROP COLUMN amt")
    code, _, said = run_command(config, "--resume", last.run_id)
    assert code == 2
    assert f"{databases.name}.changed: {CHANGED_SINCE} {last.run_id} began" in said
    assert f"`migverify tables verify --recheck {last.run_id}`" in said
    left = runs(config)
    assert [(one.run_id, one.finished is None, one.is_resumed) for one in left] == [(last.run_id, False, False)]
    databases.target("ALTER TABLE changed ADD COLUMN amt INT NOT NULL DEFAULT 0 AFTER id", "UPDATE changed SET amt=id")
    databases.target("COMMIT")
    assert verify(config, recheck=last.run_id).verdict is Verdict.MATCH


def test_a_run_with_a_table_that_is_gone_is_not_resumed(databases: Databases, config: Path) -> None:
    """It was, and was MATCH with a table that has no result."""

    def stop(progress: object) -> None:
        if getattr(progress, "chunks", 0):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(config, slots=1, on_progress=stop)
    databases.both("DROP TABLE wrong")
    with pytest.raises(PlanError, match=f"{databases.name}.wrong: {CHANGED_SINCE}"):
        verify(config, resume="last")
    assert len(runs(config)) == 1


def test_what_a_side_lacks_is_listed_by_the_first_of_the_next_steps(
    databases: Databases, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``tables diff`` printed nothing, or rows of another table alone."""
    name = databases.name
    databases.both(f"CREATE TABLE lost {COLUMNS}")
    databases.target(
        "DROP TABLE lost", "ALTER TABLE changed DROP COLUMN amt", f"CREATE TABLE extra {COLUMNS}",
        "UPDATE wrong SET note = 'y' WHERE id = 7", "COMMIT",
    )  # fmt: skip
    store = ["--store", f"sqlite:///{config.parent / 'runs.db'}"]
    first = verify(config)
    with closing(open_store(store[1])) as opened:
        steps = [step.command for step in read_report(opened, first.run_id).next_steps]
    assert steps[0] == f"migverify tables diff {first.run_id}"
    assert run([*steps[0].split()[1:], *store]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{name}.changed  column amt: the target has no such column; it is not compared",
        f"{name}.extra  the source has no such table",
        f"{name}.lost  the target has no such table",
        f"{name}.wrong  value_differs  7  note (value)",
    ]
