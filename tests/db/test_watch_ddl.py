"""`tables watch` beside DDL on the real pair: whatever may give a name other rows, its MATCH stays true."""

from __future__ import annotations

import json
import random
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from migverify.sql.identity import YOUNG_SECONDS
from tests.conftest import Databases
from tests.db.verifying import write_config
from tests.db.watching import Watching, drained, migverify, reasons

pytestmark = pytest.mark.db

PARTITIONS = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100))"
SWAP = "RENAME TABLE o TO o_old, o2 TO o"


@pytest.fixture
def swapped(databases: Databases) -> Databases:
    """A table ``o`` that is equal on both sides; ``o2`` and the plain ``e`` hold other rows, on both sides."""
    make_tables(databases, "")
    return databases


def make_tables(databases: Databases, *ends: str) -> None:
    """Make the three tables once for each end of their names."""
    for end in ends:
        databases.both(
            *(f"CREATE TABLE {name}{end} (id INT PRIMARY KEY, v INT) {PARTITIONS}" for name in ("o", "o2")),
            f"CREATE TABLE e{end} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO o{end} VALUES {','.join(f'({n}, {n})' for n in range(0, 60, 6))}",
            f"INSERT INTO o2{end} VALUES {','.join(f'({n}, {n} + 1)' for n in range(0, 60, 6))}",
            f"INSERT INTO e{end} VALUES {','.join(f'({n}, {n} + 1)' for n in range(0, 9, 2))}",
        )
    # A table that is altered less than YOUNG_SECONDS before it is verified is compared again by every watch.
    young = (f"SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{databases.name}'"
             f" AND TIMESTAMPDIFF(SECOND, CREATE_TIME, NOW()) <= {YOUNG_SECONDS}")  # fmt: skip
    for side in (databases.source, databases.target):
        while side(young)[0][0]:
            time.sleep(0.2)


def named(statement: str, end: str) -> str:
    """Return a statement about the tables whose names end so."""
    return re.sub(r"\b(o|o2|o_old|e|elsewhere)\b", rf"\1{end}", statement)


def verified(databases: Databases, folder: Path, *tables: str, **watch: Any) -> tuple[Path, str]:
    """Return a configuration of these tables, and the run that found them equal."""
    settings = {"applied": "settle", "settle_seconds": 0.5, "delay": 0.2, **watch}
    included = {"include": [f"{databases.name}.{table}" for table in tables]}
    config = write_config(folder, databases.pair, databases.name, watch=settings, tables=included)
    code, out, err = migverify("tables", "verify", "--engine", "local", "--config", str(config), "--json")
    assert code == 0, err
    return config, json.loads(out)["run_id"]


def watched(config: Path, base: str, *options: str) -> tuple[int, dict[str, Any]]:
    code, out, err = migverify("tables", "watch", "--config", str(config), "--since", base, "--until-drained", "--json",
                               "--timeout", "60", *options)  # fmt: skip
    assert out, err
    return code, json.loads(out.splitlines()[-1])


SOURCE = {
    "swap": (SWAP,),
    "drop and rename": ("DROP TABLE o", "RENAME TABLE o2 TO o"),
    "alter rename": ("DROP TABLE o", "ALTER TABLE o2 RENAME TO o"),
    "exchange partition": ("ALTER TABLE o EXCHANGE PARTITION p0 WITH TABLE e",),
    "drop partition": ("ALTER TABLE o DROP PARTITION p0",),
    "truncate": ("TRUNCATE TABLE o",),
    "create over": ("DROP TABLE o", "CREATE TABLE o LIKE o2"),
    "hidden swap": ("SET sql_log_bin=0", SWAP, "SET sql_log_bin=1"),
    "hidden exchange": ("SET sql_log_bin=0", "ALTER TABLE o EXCHANGE PARTITION p0 WITH TABLE e", "SET sql_log_bin=1"),
}
TARGET = {
    "swap": (SWAP,),
    "drop and rename": ("DROP TABLE o", "RENAME TABLE o2 TO o"),
    "exchange partition": ("ALTER TABLE o EXCHANGE PARTITION p0 WITH TABLE e",),
    "drop partition": ("ALTER TABLE o DROP PARTITION p0",),
    "truncate": ("TRUNCATE TABLE o",),
    "column": ("ALTER TABLE o DROP COLUMN v", "ALTER TABLE o ADD COLUMN v INT"),
}


@pytest.mark.attack("watch", "RENAME, DROP, EXCHANGE PARTITION, TRUNCATE: in the binlog, hidden from it, or on TiDB",
                    "the whole table is compared again: MISMATCH")  # fmt: skip
def test_other_rows_under_the_name_are_a_mismatch(databases: Databases, tmp_path: Path) -> None:
    """Each change in tables of its own; one verification and one watch of all of them."""
    cases = [(side, name, s) for side, some in (("source", SOURCE), ("target", TARGET)) for name, s in some.items()]
    make_tables(databases, *(f"_{n}" for n in range(len(cases))))
    config, base = verified(databases, tmp_path, *(f"o_{n}" for n in range(len(cases))))
    for n, (side, _, statements) in enumerate(cases):
        getattr(databases, side)(*(named(statement, f"_{n}") for statement in statements))
    code, status = watched(config, base)
    assert (code, status["verdict"]) == (1, "MISMATCH"), reasons(status)
    tables = {table["source"].rpartition(".")[2]: table for table in status["tables"]}
    for n, case in enumerate(cases):
        table = tables[f"o_{n}"]
        assert (table["verdict"], table["diverged"] > 0) == ("MISMATCH", True), (case, table)
        assert any(finding.startswith("compared: ") for finding in table["findings"]), (case, table)


def test_equal_tables_stay_match_after_swaps_on_both_sides(swapped: Databases, tmp_path: Path) -> None:
    config, base = verified(swapped, tmp_path, "o")
    code, status = watched(config, base)
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
    assert status["covers"] == f"all rows of 1 table (run {base}, and every key written since)"
    swapped.both(SWAP)
    code, status = watched(config, base)
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
    assert status["covers"] == "all rows of 1 table (compared again by this watch)"
    swapped.source("RENAME TABLE o TO a", "RENAME TABLE a TO b", "RENAME TABLE b TO o", "UPDATE o SET v=v+1 WHERE id=6")
    swapped.target("UPDATE o SET v=v+1 WHERE id=6")
    code, status = watched(config, base)
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")


@pytest.mark.attack("watch", "a table is dropped, made a view, or loses its tablespace while it is watched",
                    "INCONCLUSIVE, tried again until it is a table")  # fmt: skip
def test_a_table_that_is_none_is_no_match(databases: Databases, tmp_path: Path) -> None:
    cases = [("DROP TABLE o",), ("DROP TABLE o", "CREATE VIEW o AS SELECT * FROM o2"),
             ("ALTER TABLE o DISCARD PARTITION p0 TABLESPACE",), ("RENAME TABLE o TO elsewhere",)]  # fmt: skip
    make_tables(databases, *(f"_{n}" for n in range(len(cases))))
    names = [f"o_{n}" for n in range(len(cases))]
    config, base = verified(databases, tmp_path, *names, "e_0")
    watching = Watching(config, "--since", base)
    watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
    for n, statements in enumerate(cases):
        databases.source(*(named(statement, f"_{n}") for statement in statements))

    def refused(status: dict[str, Any]) -> set[str]:
        return {
            t["source"].rpartition(".")[2] for t in status["tables"] if "could not be compared" in str(t["reasons"])
        }

    # A reading of e_0 may be open at the moment when the last of the others is refused: its MATCH comes back.
    expected = {**dict.fromkeys(names, "INCONCLUSIVE"), "e_0": "MATCH"}
    watching.wait_for(lambda s: refused(s) == set(names)
                      and {t["source"].rpartition(".")[2]: t["verdict"] for t in s["tables"]} == expected)  # fmt: skip
    watching.stop()


def test_a_database_made_anew_is_compared_again(swapped: Databases, tmp_path: Path) -> None:
    config, base = verified(swapped, tmp_path, "o")
    name = swapped.name
    swapped.source(f"DROP DATABASE `{name}`", f"CREATE DATABASE `{name}`", f"USE `{name}`",
                   "CREATE TABLE o (id INT PRIMARY KEY, v INT)", "INSERT INTO o VALUES (0, 0)")  # fmt: skip
    code, status = watched(config, base)
    assert (code, status["verdict"], status["tables"][0]["diverged"]) == (1, "MISMATCH", 9), reasons(status)


def test_a_table_that_comes_into_scope_is_no_match_until_it_is_gone(swapped: Databases, tmp_path: Path) -> None:
    """As gh-ost leaves it: the new rows under the name, the old table beside it, dropped later."""
    config, base = verified(swapped, tmp_path, "*")
    watching = Watching(config, "--since", base)
    watching.wait_for(lambda s: s["verdict"] == "MATCH")
    swapped.both("CREATE TABLE _o_gho LIKE o", "INSERT INTO _o_gho SELECT * FROM o",
                 "RENAME TABLE o TO _o_del, _o_gho TO o")  # fmt: skip
    left = f"{swapped.name}._o_del is in scope, and no table pair covers it"
    watching.wait_for(lambda s: left in reasons(s) and {t["verdict"] for t in s["tables"]} == {"MATCH"}
                      and s["verdict"] == "INCONCLUSIVE")  # fmt: skip
    swapped.both("DROP TABLE _o_del")
    watching.stop()
    code, status = drained(config, watching.run)
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")


def test_a_table_made_since_the_verification_is_compared_by_the_watch(swapped: Databases, tmp_path: Path) -> None:
    config, base = verified(swapped, tmp_path, "*")
    swapped.both("CREATE TABLE later (id INT PRIMARY KEY)", "INSERT INTO later VALUES (1), (2)")
    swapped.target("DELETE FROM later WHERE id=2", "INSERT INTO later VALUES (3)")
    code, status = watched(config, base)
    # Keys that the source wrote have no witness. The row that only the target has is proved where the comparison lasts.
    assert (code, status["verdict"]) in {(3, "INCONCLUSIVE"), (1, "MISMATCH")}, reasons(status)
    swapped.target("INSERT INTO later VALUES (2)")
    code, status = drained(config, status["run_id"])
    assert (code, status["verdict"]) == (1, "MISMATCH")
    swapped.target("DELETE FROM later WHERE id=3")
    code, status = drained(config, status["run_id"])
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")


def test_a_swap_on_the_target_is_seen_while_the_watch_goes_on(swapped: Databases, tmp_path: Path) -> None:
    config, base = verified(swapped, tmp_path, "o")
    watching = Watching(config, "--since", base)
    watching.wait_for(lambda s: s["verdict"] == "MATCH")
    swapped.target(SWAP)
    watching.wait_for(lambda s: s["tables"][0]["diverged"] == 10)
    swapped.target("RENAME TABLE o TO o2, o_old TO o")
    # The rows may be read, and be equal, before the new identity is: then only the last look finds the second swap.
    watching.wait_for(lambda s: s["verdict"] == "MATCH"
                      and sum(f.startswith("changed:") for f in s["tables"][0]["findings"]) >= 2)  # fmt: skip
    code, status = watching.stop()
    assert (code, status["verdict"]) == (130, "MATCH")


def test_a_row_changed_on_the_target_alone_is_found_on_a_quiet_source(swapped: Databases, tmp_path: Path) -> None:
    """With the settle time and nobody writing, no later write can be a witness."""
    config, base = verified(swapped, tmp_path, "o", sweep_rows=100_000)
    swapped.target("UPDATE o SET v=-1 WHERE id=12")
    watching = Watching(config, "--since", base)
    status = watching.wait_for(lambda s: s["tables"][0]["diverged"] == 1)
    assert status["verdict"] == "MISMATCH"
    assert not [s for s in watching.lines if s["verdict"] == "MATCH" and s["tables"][0]["doubt"]]
    watching.stop()


def test_a_recheck_after_a_watch_reads_what_the_watch_did_not_find_equal(swapped: Databases, tmp_path: Path) -> None:
    """The verification before it said MATCH of a table that was swapped since."""
    config, base = verified(swapped, tmp_path, "o", "e")
    swapped.target(SWAP)
    code, status = watched(config, base)
    assert code == 1, reasons(status)
    arguments = ("tables", "verify", "--engine", "local", "--config", str(config), "--json")
    code, out, err = migverify(*arguments, "--recheck", "last")
    assert out, err
    assert (code, [t["source"] for t in json.loads(out)["tables"]]) == (1, [f"{swapped.name}.o"]), err
    code, _, err = migverify(*arguments, "--resume", status["run_id"])
    assert (code, "is a watch" in err) == (2, True)


def test_a_watch_since_a_recheck_rests_on_the_run_before_it_too(swapped: Databases, tmp_path: Path) -> None:
    """The recheck read ``o`` alone: of ``e`` the verification before it has the proof, and what table it was."""
    config, _ = verified(swapped, tmp_path, "o", "e")
    swapped.target("UPDATE o SET v=-1 WHERE id=6", "UPDATE e SET v=-1 WHERE id=2")
    arguments = ("tables", "verify", "--engine", "local", "--config", str(config), "--json")
    assert migverify(*arguments)[0] == 1
    swapped.target("UPDATE o SET v=6 WHERE id=6", "UPDATE e SET v=3 WHERE id=2")
    code, out, err = migverify(*arguments, "--recheck", "last")
    assert (code, len(json.loads(out)["tables"])) == (0, 2), err
    swapped.target("UPDATE o SET v=-1 WHERE id=6")
    assert migverify(*arguments)[0] == 1
    swapped.target("UPDATE o SET v=6 WHERE id=6")
    code, out, err = migverify(*arguments, "--recheck", "last")
    assert (code, [t["source"] for t in json.loads(out)["tables"]]) == (0, [f"{swapped.name}.o"]), err
    code, status = watched(config, "last")
    assert (code, status["verdict"], reasons(status)) == (0, "MATCH", "")
    assert [t["findings"] for t in status["tables"]] == [[], []], "no table is new"


HISTORY = {
    "write": ("REPLACE INTO o (id, v) VALUES ({key}, {value})",),
    "delete": ("DELETE FROM o WHERE id={key}",),
    "swap": ("RENAME TABLE o TO o_x, o2 TO o", "RENAME TABLE o_x TO o2"),
    "exchange": ("ALTER TABLE o EXCHANGE PARTITION p0 WITH TABLE e",),
    "truncate partition": ("ALTER TABLE o TRUNCATE PARTITION p1",),
    "truncate": ("TRUNCATE TABLE o",),
    "column": ("ALTER TABLE o ADD COLUMN w{value} INT DEFAULT {value}",),
    "index": ("ALTER TABLE o ADD INDEX (v)",),
}


@pytest.mark.parametrize("seed", range(2))
def test_no_history_of_ddl_and_writes_ends_in_a_false_verdict(swapped: Databases, tmp_path: Path, seed: int) -> None:
    """Each step on both sides, or on one alone, before and beside the watch; the truth is taken afterwards."""
    rng = random.Random(seed)
    config, base = verified(swapped, tmp_path, "o")
    steps = [rng.choice([*HISTORY, "write", "delete"]) for _ in range(rng.randrange(1, 9))]
    alone = rng.randrange(len(steps)) if rng.random() < 0.6 else -1
    begins = rng.randrange(len(steps))
    watching = None
    for number, step in enumerate(steps):
        if number == begins:
            watching = Watching(config, "--since", base)
            watching.wait_for(lambda s: s["sources"][0]["read_seconds"] is not None)
        chosen = {"key": rng.randrange(60), "value": number}
        # A row that the target alone has is the sweep's business.
        sides = [swapped.source, swapped.target]
        if number == alone:
            sides = sides[:1] if step in ("write", "delete") else rng.sample(sides, 1)
        for run in sides:
            with suppress(pymysql.MySQLError):  # as EXCHANGE with a table of fewer columns
                run(*(sql.format(**chosen) for sql in HISTORY[step]))
    assert watching is not None
    watching.wait_for(lambda s: bool(s["sources"][0]["read"]))
    watching.stop()
    _, status = drained(config, watching.run, "--timeout", "15")
    rows = [run("SELECT * FROM o ORDER BY id") for run in (swapped.source, swapped.target)]
    assert status["verdict"] != ("MISMATCH" if rows[0] == rows[1] else "MATCH"), (steps, alone, begins, reasons(status))
    if rows[0] == rows[1] and alone < 0:
        assert status["verdict"] == "MATCH", (steps, begins, reasons(status))
