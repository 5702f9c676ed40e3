"""`tables verify --since RUN` on the real pair: its cost follows the changes, and it finds what a full read finds."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from migverify.errors import MigverifyError, PlanError
from migverify.model import Verdict
from migverify.runbook.actions.action import CheckOutcome, Context, ask
from migverify.runbook.actions.registry import full_registry
from migverify.runbook.model import Check
from migverify.sql.identity import YOUNG_SECONDS
from migverify_lab.servers import LabServers
from tests.conftest import Databases, fresh_databases
from tests.db.verifying import Ending, begin, execute, run_command, verify, write_config

pytestmark = pytest.mark.db

ROWS = 4000
COLUMNS = "id BIGINT PRIMARY KEY, amount DECIMAL(18,4), state VARCHAR(10), at DATETIME(6)"


def filled(databases: Databases, name: str = "pay", rows: int = ROWS) -> None:
    databases.both(f"CREATE TABLE {name} ({COLUMNS})", *inserts(name, rows))
    settled()


def inserts(name: str, rows: int) -> Iterator[str]:
    for first in range(0, rows, 1000):
        values = ",".join(f"({n},{n}.25,'new','2026-01-01 00:00:00.5')" for n in range(first, min(rows, first + 1000)))
        yield f"INSERT INTO {name} VALUES {values}"


def settled() -> None:
    """Wait until definitions are old enough: one of the last two seconds may change again without a trace."""
    time.sleep(YOUNG_SECONDS + 1.5)


def config_of(databases: Databases, folder: Path, **other: Any) -> Path:
    watch = {"settle_seconds": 0.2, "delay": 0.2, "drain_seconds": 30.0}
    return write_config(folder, databases.pair, databases.name, watch=watch, **other)


@pytest.fixture(scope="module")
def kept(pair: LabServers) -> Iterator[Databases]:
    """Databases whose table is old enough; each test fills it anew."""
    with fresh_databases(pair) as made:
        filled(made)
        yield made


@pytest.fixture
def shop(kept: Databases, tmp_path: Path) -> tuple[Databases, Path, Ending]:
    """A pair that a full run proved."""
    kept.both("DELETE FROM pay", *inserts("pay", ROWS))
    config = config_of(kept, tmp_path)
    full = verify(config)
    assert full.verdict is Verdict.MATCH, full.reasons
    return kept, config, full


def pair_of(databases: Databases, table: str = "pay") -> str:
    return f"{databases.name}.{table}"


def read_whole(config: Path, run_id: str) -> str:
    from migverify.store.open import open_store

    store = open_store(f"sqlite:///{config.parent / 'runs.db'}")
    try:
        return "; ".join(f"{k}: {v}" for k, v in store.load_run(run_id).facts.get("read whole", {}).items())
    finally:
        store.close()


def test_only_written_rows_are_read_again(shop: tuple[Databases, Path, Ending]) -> None:
    databases, config, full = shop
    databases.both(
        "UPDATE pay SET amount=amount+1 WHERE id IN (7, 1999, 3999)", "DELETE FROM pay WHERE id=8",
        "INSERT INTO pay VALUES (90000, 1, 'new', NOW(6))", "UPDATE pay SET at='2026-02-02' WHERE id=90000",
    )  # fmt: skip
    second = verify(config, since=full.run_id)
    assert second.verdict is Verdict.MATCH, second.reasons
    result = second.results[pair_of(databases)]
    assert not read_whole(config, second.run_id)
    assert (result.chunks, result.details["keys"]) == (0, 5)
    assert result.details["rests_on"]["run"] == full.run_id
    assert result.details["rests_on"]["ranges"] == full.results[pair_of(databases)].chunks >= 8
    assert any(f"on run {full.run_id}" in gap.reason for gap in result.not_covered)


def test_changes_that_were_lost_on_the_way_are_found(shop: tuple[Databases, Path, Ending]) -> None:
    databases, config, full = shop
    databases.both("UPDATE pay SET state='paid' WHERE id BETWEEN 100 AND 140")
    databases.source(
        "UPDATE pay SET amount=amount+1 WHERE id=17", "DELETE FROM pay WHERE id=18",
        "INSERT INTO pay VALUES (70000, 1, 'new', NOW(6))",
    )  # fmt: skip
    second = verify(config, since=full.run_id)
    assert second.verdict is Verdict.MISMATCH
    assert second.diffs == {(pair_of(databases), (key,)) for key in ("17", "18", "70000")}


def test_a_gate_that_rechecks_goes_on_from_a_run_that_proved_all(kept: Databases, tmp_path: Path) -> None:
    kept.both("DELETE FROM pay", *inserts("pay", 10))
    config = config_of(kept, tmp_path)
    kept.target("UPDATE pay SET amount=0 WHERE id=5")
    assert verify(config).verdict is Verdict.MISMATCH
    kept.target("UPDATE pay SET amount=5.25 WHERE id=5")

    def gate(**arguments: Any) -> CheckOutcome:
        check = Check(action="tables.verify", arguments={"recheck": "last", **arguments})
        context = Context("run-1", "step", 1, 1, 60.0, threading.Event(), config=config)
        return ask(full_registry(), check, context)

    first, again = gate(), gate()
    assert (first.state, again.state) == ("pass", "pass"), (first, again)
    assert "--recheck" in first.evidence["command"]
    assert "--since" in again.evidence["command"]
    kept.source("UPDATE pay SET amount=7 WHERE id=7")
    assert gate().state == "fail"
    kept.target("UPDATE pay SET amount=7 WHERE id=7")
    assert gate().state == "pass"
    refused = gate(recheck="20260101T000000-0a1b2c")
    assert refused.state == "inconclusive"
    assert "--recheck" in refused.evidence["command"]


def test_a_row_tampered_with_on_the_target_is_outside_and_the_result_says_so(
    shop: tuple[Databases, Path, Ending],
) -> None:
    databases, config, full = shop
    databases.target("UPDATE pay SET amount=0 WHERE id=55")
    second = verify(config, since=full.run_id)
    assert second.verdict is Verdict.MATCH
    spots = second.results[pair_of(databases)].blind_spots
    assert any(full.run_id in spot and "a change on the target that no write of the source explains" in spot
               for spot in spots)  # fmt: skip
    assert verify(config).diffs == {(pair_of(databases), ("55",))}


def test_a_proof_may_rest_on_one_that_rests_on_another(shop: tuple[Databases, Path, Ending]) -> None:
    databases, config, full = shop
    databases.both("UPDATE pay SET state='b' WHERE id=1")
    second = verify(config, since=full.run_id)
    databases.both("UPDATE pay SET state='c' WHERE id=2")
    databases.source("UPDATE pay SET state='lost' WHERE id=3")
    third = verify(config, since=second.run_id)
    assert third.verdict is Verdict.MISMATCH
    assert third.diffs == {(pair_of(databases), ("3",))}
    databases.target("UPDATE pay SET state='lost' WHERE id=3")
    fourth = verify(config, since=third.run_id)  # the pair was a MISMATCH: it is read whole
    assert fourth.verdict is Verdict.MATCH
    assert fourth.results[pair_of(databases)].chunks >= 8
    assert f"it was MISMATCH in run {third.run_id}" in read_whole(config, fourth.run_id)
    result = second.results[pair_of(databases)]
    assert len([gap for gap in result.not_covered if gap.what == "unwritten rows"]) == 1


def test_rows_of_carried_chunks_count_from_the_run_that_read_them(shop: tuple[Databases, Path, Ending]) -> None:
    """A recheck carries equal chunks over: what was written since they were read is older than the recheck."""
    databases, config, _ = shop
    databases.source("UPDATE pay SET amount=9 WHERE id=3900")
    first = verify(config)
    assert first.verdict is Verdict.MISMATCH
    databases.target("UPDATE pay SET amount=9 WHERE id=3900")
    databases.source("UPDATE pay SET state='lost' WHERE id=10")  # in a chunk that the recheck carries over
    again = verify(config, recheck=first.run_id)
    assert again.verdict is Verdict.MATCH  # as of the moment each chunk was read
    second = verify(config, since=again.run_id)
    assert second.diffs == {(pair_of(databases), ("10",))}


def test_a_changed_table_is_read_whole(databases: Databases, tmp_path: Path) -> None:
    filled(databases, rows=1200)
    filled(databases, "other", rows=1200)
    config = config_of(databases, tmp_path)
    full = verify(config)
    databases.both("ALTER TABLE pay ADD COLUMN note VARCHAR(9)", "TRUNCATE TABLE other")
    for table in ("pay", "other"):
        databases.both(f"REPLACE INTO {table} (id, amount) VALUES (1, 1)")
        databases.source(f"REPLACE INTO {table} (id, amount) VALUES (2, 2)")
        databases.target(f"REPLACE INTO {table} (id, amount) VALUES (2, 3)")
    second = verify(config, since=full.run_id)
    assert second.diffs == {(pair_of(databases, table), ("2",)) for table in ("pay", "other")}
    for table in ("pay", "other"):
        assert second.results[pair_of(databases, table)].chunks > 0
        assert pair_of(databases, table) in read_whole(config, second.run_id)


def test_a_table_of_which_much_was_written_is_read_whole(shop: tuple[Databases, Path, Ending]) -> None:
    databases, config, full = shop
    databases.both("UPDATE pay SET state='x' WHERE id < 2500")
    second = verify(config, since=full.run_id)
    assert second.verdict is Verdict.MATCH
    assert second.results[pair_of(databases)].chunks >= 8
    assert "2,500 of about" in read_whole(config, second.run_id)


def test_rows_without_a_key_and_new_tables(databases: Databases, tmp_path: Path) -> None:
    filled(databases)
    databases.both("CREATE TABLE logs (v INT)", "INSERT INTO logs VALUES (1), (1)")
    settled()
    config = config_of(databases, tmp_path)
    full = verify(config)
    databases.both("INSERT INTO logs VALUES (2)", "UPDATE pay SET state='y' WHERE id=4")
    second = verify(config, since=full.run_id)
    assert second.verdict is Verdict.MATCH, second.reasons
    assert second.results[pair_of(databases)].chunks == 0
    assert second.results[pair_of(databases, "logs")].chunks > 0
    databases.both("CREATE TABLE fresh (id INT PRIMARY KEY)", "INSERT INTO fresh VALUES (1)")
    databases.source("INSERT INTO fresh VALUES (2)")
    third = verify(config, since=second.run_id)
    assert third.diffs == {(pair_of(databases, "fresh"), ("2",))}
    assert "has no result of it" in read_whole(config, third.run_id)


def own_table(own: tuple[LabServers, Path], name: str, folder: Path) -> tuple[LabServers, Path]:
    """Make a table of two rows on servers of its own; returns them and the configuration."""
    pair, _ = own
    for server in (pair.source, pair.target):
        execute(server, f"CREATE DATABASE {name}", f"CREATE TABLE {name}.pay ({COLUMNS})",
                f"INSERT INTO {name}.pay VALUES (1, 1, 'a', NULL), (2, 2, 'b', NULL)")  # fmt: skip
    settled()
    settled()  # a TiDB that was made a moment ago says later times of creation
    return pair, write_config(folder, pair, name, watch={"settle_seconds": 0.2, "delay": 0.2})


def test_a_gap_in_the_binlog_reads_everything(own: tuple[LabServers, Path], tmp_path: Path) -> None:
    pair, config = own_table(own, "gap", tmp_path)
    full = verify(config)
    assert full.verdict is Verdict.MATCH
    execute(pair.source, "UPDATE gap.pay SET state='lost' WHERE id=2", "FLUSH BINARY LOGS")
    name = execute(pair.source, "SHOW BINARY LOGS")[-1][0]
    execute(pair.source, f"PURGE BINARY LOGS TO '{name}'")
    second = verify(config, since=full.run_id)
    assert second.diffs == {("gap.pay", ("2",))}
    assert second.results["gap.pay"].chunks > 0
    assert "all tables: the changes since run" in read_whole(config, second.run_id)


def test_transactions_without_a_gtid_and_a_binlog_begun_anew(own: tuple[LabServers, Path], tmp_path: Path) -> None:
    """What follows a set of GTIDs says nothing of transactions without one, nor of a set that began again."""
    pair, config = own_table(own, "anon", tmp_path)
    full = verify(config)
    down, up = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"), ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
    execute(pair.source, *(f"SET GLOBAL gtid_mode={mode}" for mode in down))
    execute(pair.source, "UPDATE anon.pay SET state='lost' WHERE id=2")
    execute(pair.source, *(f"SET GLOBAL gtid_mode={mode}" for mode in up))
    second = verify(config, since=full.run_id)
    assert second.diffs == {("anon.pay", ("2",))}
    execute(pair.target, "UPDATE anon.pay SET state='lost' WHERE id=2")
    third = verify(config)
    execute(pair.source, "RESET BINARY LOGS AND GTIDS", "UPDATE anon.pay SET state='gone' WHERE id=1")
    for number in range(60):
        execute(pair.source, f"REPLACE INTO anon.pay VALUES (9, {number}, 'x', NULL)")
    execute(pair.target, "REPLACE INTO anon.pay VALUES (9, 59, 'x', NULL)")
    fourth = verify(config, since=third.run_id)
    assert fourth.diffs == {("anon.pay", ("1",))}
    assert "all tables: the changes since run" in read_whole(config, fourth.run_id)


def watched(config: Path, since: str) -> tuple[int, str, str]:
    ended = subprocess.run(
        [sys.executable, "-m", "migverify", "tables", "watch", "--since", since, "--until-drained", "--json",
         "--config", str(config)], capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    return ended.returncode, ended.stdout, ended.stderr


def test_a_watch_is_no_match_where_no_gtid_set_shows_all_writes(own: tuple[LabServers, Path], tmp_path: Path) -> None:
    pair, config = own_table(own, "anonwatch", tmp_path)
    full = verify(config)
    down, up = ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF"), ("OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")
    execute(pair.source, *(f"SET GLOBAL gtid_mode={mode}" for mode in down))
    execute(pair.source, "UPDATE anonwatch.pay SET state='lost' WHERE id=2")
    execute(pair.source, *(f"SET GLOBAL gtid_mode={mode}" for mode in up))
    code, out, err = watched(config, full.run_id)
    assert code == 3, (out[-2000:], err)
    assert "anonymous transaction" in out.splitlines()[-1]  # the server sends none of them now: nothing is proved
    execute(pair.target, "UPDATE anonwatch.pay SET state='lost' WHERE id=2")
    full = verify(config)
    assert watched(config, full.run_id)[0] == 0
    execute(pair.source, "RESET BINARY LOGS AND GTIDS", "UPDATE anonwatch.pay SET state='gone' WHERE id=1",
            *["FLUSH BINARY LOGS"] * 8)  # fmt: skip
    for number in range(60):
        execute(pair.source, f"REPLACE INTO anonwatch.pay VALUES (9, {number}, 'x', NULL)")
    execute(pair.target, "REPLACE INTO anonwatch.pay VALUES (9, 59, 'x', NULL)")
    code, out, err = watched(config, full.run_id)
    assert code == 3
    assert "RESET" in err
    assert "Verify the tables again" in err


def test_some_of_the_tables(databases: Databases, tmp_path: Path) -> None:
    """A table outside of --tables that was written says nothing about those that were chosen."""
    filled(databases, rows=1200)
    filled(databases, "other", rows=1200)
    config = config_of(databases, tmp_path)
    full = verify(config)
    databases.both("UPDATE pay SET state='b' WHERE id=1")
    databases.source("UPDATE other SET state='lost' WHERE id=1")
    code, found, said = run_command(config, "--since", full.run_id, "--tables", pair_of(databases))
    assert code == 0, said
    assert [table["source"] for table in found["tables"]] == [pair_of(databases)]


def test_what_cannot_be_asked_is_refused(shop: tuple[Databases, Path, Ending], tmp_path: Path) -> None:
    databases, config, full = shop
    with pytest.raises(MigverifyError, match="holds no run"):
        verify(config, since="20200101T000000-000000")
    code, _, said = run_command(config, "--since", "last", "--recheck", "last")
    assert code == 2
    assert "exclude each other" in said
    other = tmp_path / "other"
    other.mkdir()
    narrow = config_of(databases, other, overrides=[{"table": pair_of(databases), "where": "id > 5"}])
    os.link(config.parent / "runs.db", other / "runs.db")
    with pytest.raises(PlanError, match="compared something else"):
        verify(narrow, since=full.run_id)


def test_a_repair_and_a_watch_are_no_base(shop: tuple[Databases, Path, Ending], tmp_path: Path) -> None:
    """A repair read only the rows that it wrote: a change lost before it would never be read."""
    databases, config, _ = shop
    databases.target("UPDATE pay SET amount=0 WHERE id=60")
    found = verify(config)
    databases.source("UPDATE pay SET state='lost' WHERE id=61")
    repair = [sys.executable, "-m", "migverify", "tables", "repair", found.run_id, "--config", str(config)]
    subprocess.run([*repair, "--out", str(tmp_path / "fix"), "--apply"], check=True, capture_output=True, timeout=120)
    second = verify(config, since="last")
    assert second.diffs == {(pair_of(databases), ("61",))}
    assert f"run {found.run_id}" in read_whole(config, second.run_id)
    repaired = newest(config, "repairs")
    with pytest.raises(PlanError, match="is a repair"):
        verify(config, since=repaired)
    databases.target("UPDATE pay SET state='lost' WHERE id=61")
    assert verify(config, recheck="last").verdict is Verdict.MATCH


def newest(config: Path, fact: str) -> str:
    from migverify.store.open import open_store

    store = open_store(f"sqlite:///{config.parent / 'runs.db'}")
    try:
        return next(run.run_id for run in store.runs(50) if run.facts.get(fact))
    finally:
        store.close()


def test_a_run_that_ended_is_not_read_again(shop: tuple[Databases, Path, Ending]) -> None:
    databases, config, full = shop
    databases.both("UPDATE pay SET state='b' WHERE id=1")
    second = verify(config, since=full.run_id)
    databases.source("UPDATE pay SET state='c' WHERE id=1")
    assert verify(config, resume=second.run_id).verdict is Verdict.MATCH


def test_values_of_a_statement_are_not_kept(shop: tuple[Databases, Path, Ending]) -> None:
    databases, config, full = shop
    databases.source(
        "SET binlog_format=STATEMENT", "UPDATE pay SET state='SecretX' WHERE id=3", "SET binlog_format=ROW"
    )
    second = verify(config, since=full.run_id)
    assert second.diffs == {(pair_of(databases), ("3",))}
    assert "UPDATE was logged as a statement" in read_whole(config, second.run_id)
    assert b"SecretX" not in (config.parent / "runs.db").read_bytes()
    assert not any(b"SecretX" in path.read_bytes() for path in (config.parent / ".migverify").iterdir())


@pytest.mark.parametrize("seconds", [0.05, 0.9])
def test_a_killed_run_goes_on(shop: tuple[Databases, Path, Ending], seconds: float) -> None:
    databases, config, full = shop
    databases.both("UPDATE pay SET amount=amount+2 WHERE id < 150")
    databases.source("UPDATE pay SET amount=0 WHERE id=149")
    process = begin(config, "--since", full.run_id)
    run_id = process.first_line.split()[1]  # type: ignore[attr-defined]
    time.sleep(seconds)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    databases.source("DELETE FROM pay WHERE id=148")
    ended = verify(config, resume=run_id)
    assert ended.run_id == run_id
    assert ended.verdict is Verdict.MISMATCH
    assert {("149",), ("148",)} >= {key for _, key in ended.diffs} >= {("149",)}


@pytest.mark.parametrize("seed", range(2))
def test_a_random_history_ends_as_a_full_read_would(databases: Databases, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    filled(databases, rows=1500)
    config = config_of(databases, tmp_path)
    run = verify(config)
    for _ in range(3):
        lost = rng.choice([0.0, 0.1])
        for _ in range(rng.randrange(1, 60)):
            key = rng.randrange(1600)
            statement = rng.choice([
                f"UPDATE pay SET amount={rng.randrange(10**6)}/100 WHERE id={key}", f"DELETE FROM pay WHERE id={key}",
                f"REPLACE INTO pay VALUES ({key}, {rng.random():.3f}, 'r', '2026-03-03')",
                f"UPDATE pay SET id=id+5000 WHERE id={key} AND id < 1600",
            ])  # fmt: skip
            try:
                databases.source(statement)
            except Exception as error:  # noqa: BLE001 - a moved id that exists already
                assert "Duplicate" in str(error)  # noqa: PT017
                continue
            if rng.random() >= lost:
                databases.target(statement)
        run = verify(config, since=run.run_id)
        whole = verify(config)
        assert (run.verdict, run.diffs) == (whole.verdict, whole.diffs)
