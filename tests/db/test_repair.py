"""Repairs on a real MySQL and a real TiDB: plant, verify, repair, verify; undo; races; kills."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from migverify.cli.main import run
from migverify.db.session import Session, open_session
from migverify.model import ChunkResult, ChunkState, ColumnDef, Endpoint, KeyRange
from migverify.sql.catalog import read_table
from migverify.sql.checksum import SideSql
from migverify.sql.key_range import KeyColumn
from migverify.sql.repair import insert_sql, restorable, session_sql
from migverify.store.open import open_store
from migverify.tables import repair
from migverify.tables.repair_files import transactions
from migverify.tables.values import json_form
from migverify_lab import mysql
from migverify_lab.session import connect

if TYPE_CHECKING:
    from migverify_lab.servers import LabServers
    from tests.conftest import Databases

# ruff: noqa: E501  (DDL reads better unbroken)
pytestmark = pytest.mark.db

EVERYTHING = """CREATE TABLE everything (
  a INT, b VARCHAR(20) CHARACTER SET utf8mb4 COLLATE {collation}, -- the key
  i TINYINT, u BIGINT UNSIGNED, n DECIMAL(65,30), f FLOAT, d DOUBLE, bits BIT(64), day DATE, at DATETIME(6), ts TIMESTAMP(6) NULL,
  t TIME(6), y YEAR, s TEXT, l VARCHAR(50) CHARACTER SET latin1, c CHAR(10), raw VARBINARY(300), blb BLOB, e ENUM('a','b,c','d''e','2','1') , st SET('x','y z','q'),
  j JSON, g INT GENERATED ALWAYS AS (i + 1) STORED, v INT GENERATED ALWAYS AS (i + 2) VIRTUAL,
  up TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), PRIMARY KEY (a, b))"""
COLUMNS = "a,b,i,u,n,f,d,bits,day,at,ts,t,y,s,l,c,raw,blb,e,st,j,up"
RICH = (
    "({a},{b},-128,18446744073709551615,-12345678901234567890123456789012345.000000000000000000000000000001,0.1,-1039514241563211.8,b'1{bit}',"
    "'0000-00-00','2020-00-15 23:59:59.999999','2038-01-19 03:14:07.999999','-838:59:59.000000',2155,"
    "_utf8mb4 0x{text},'ÿé''','',x'00FF5C2700',x'',{label},'x,q','{{\"b\": 18446744073709551615, \"aa\": [1.5, null, \"\\\\u0000\\'\"], \"c\": -9223372036854775808}}','2001-02-03 04:05:06.789')"
)
PLAIN = "({a},{b},NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'2001-02-03 04:05:06')"


def rich(a: int, b: str, *, bit: str = "0", text: str = "27005C0AF09F9880", label: str = "'b,c'") -> str:
    return RICH.format(a=a, b=f"'{b}'", bit=bit * 63, text=text, label=label)


@pytest.fixture
def project(databases: Databases, tmp_path: Path) -> Project:
    return Project(databases, tmp_path)


class Project:
    """A configuration over one test's databases, and the commands under test."""

    def __init__(self, databases: Databases, folder: Path) -> None:
        self.databases, self.folder = databases, folder
        self.config, self.out = folder / "migverify.yaml", folder / "out"
        self.store = f"sqlite:///{folder}/runs.db"
        self.configure()

    def configure(self, more: str = "") -> None:
        pair = self.databases.pair
        self.config.write_text(
            f"source: {{url: 'mysql://root@{pair.source}', connections: 2}}\n"
            f"target: {{url: 'tidb://root@{pair.target}', connections: 2}}\n"
            f"store: '{self.store}'\ntables: {{include: ['{self.databases.name}.*']}}\nrecheck: {{delay: 0.1}}\n" + more
        )

    def verify(self) -> int:
        return run(["tables", "verify", "-c", str(self.config), "--engine", "local", "-q"])

    def repair(self, *options: str) -> int:
        return run(["tables", "repair", "last", "-c", str(self.config), "--out", str(self.out), *options])

    def verified(self) -> str:
        """Return the newest run that is no repair."""
        store = open_store(self.store)
        found = next(run.run_id for run in store.runs() if "repairs" not in store.load_run(run.run_id).facts)
        store.close()
        return found

    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.out / "manifest.json").read_text())
        return found

    def entry(self, table: str) -> dict[str, Any]:
        wanted = f"{self.databases.name}.{table}"
        found: dict[str, Any] = next(t for t in self.manifest()["tables"] if t["target"] == wanted)
        return found

    def script(self, table: str, kind: str = "repair") -> Path:
        return self.out / f"{self.databases.name}.{table}.{kind}.sql"

    def play(self, path: Path) -> list[int]:
        """Execute a script as the client would; returns the rows each statement of a transaction changed."""
        changed = []
        with connect(self.databases.pair.target, self.databases.name) as connection, connection.cursor() as cursor:
            settings, *batches = transactions(path)
            for statement in settings:
                cursor.execute(statement)
            for batch in batches:
                cursor.execute("BEGIN")
                counts = [cursor.execute(statement) for statement in batch]
                changed += counts
                cursor.execute("COMMIT")
        return changed

    def rows(self, table: str, side: str = "target") -> list[tuple[Any, ...]]:
        """Every byte of a table, generated columns included, in an order of its own."""
        query = self.databases.target if side == "target" else self.databases.source
        names = [row[0] for row in query(f"SHOW COLUMNS FROM {table}")]
        texts = ",".join(f"HEX(CAST({name} AS CHAR)),HEX({name})" for name in names)
        return sorted(query(f"SELECT {texts} FROM {table}"), key=repr)


def plant(databases: Databases) -> None:
    """Differences of all three kinds in every column of tables with unlike collations and composite keys."""
    databases.source(EVERYTHING.format(collation="utf8mb4_0900_ai_ci"))
    databases.target(EVERYTHING.format(collation="utf8mb4_bin"))
    databases.both(
        "CREATE TABLE plain (id BIGINT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(20) UNIQUE, j JSON)",
        "CREATE TABLE same (id INT PRIMARY KEY)",
        "INSERT INTO same VALUES (1),(2)",
    )
    loose = "SET SESSION sql_mode='ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO', time_zone='+00:00'"
    databases.both(loose)
    insert = f"INSERT INTO everything ({COLUMNS}) VALUES "
    databases.both(insert + ",".join([rich(1, "both"), rich(2, "both", label="'2'"), PLAIN.format(a=3, b="'null'")]))
    databases.source(insert + ",".join([rich(1, "Émoji "), rich(4, "", bit="1"), PLAIN.format(a=4, b="'x'")]))
    databases.target(insert + ",".join([rich(-5, "gone"), PLAIN.format(a=-5, b="'_'")]))
    for n, change in enumerate((
        "i=1", "u=0", "n=0.000000000000000000000000000001", "f=0.3", "d=1e300", "bits=0", "day='2020-02-31'", "at=NULL", "ts='1970-01-01 00:00:01'",
        "t='00:00:00'", "y=0", "s=''", "s=NULL", "l='a'", "c=NULL", "raw=''", "blb=NULL", "e='1'", "st=''", "j='[1]'", "up='2002-01-01'", "i=3,j=NULL,s='x'",
    )):  # fmt: skip
        databases.both(insert + rich(100 + n, "changed"))
        databases.target(f"UPDATE everything SET {change}{'' if 'up=' in change else ',up=up'} WHERE a={100 + n}")
        databases.both(insert + rich(200 + n, "changed back"))
        databases.source(f"UPDATE everything SET {change}{'' if 'up=' in change else ',up=up'} WHERE a={200 + n}")
    databases.source(
        "INSERT INTO plain VALUES (0,'zero','{}'),(1,'eins',NULL),(2,'zwei','{\"b\":1,\"aa\":2}'),(3,'drei','1.0')"
    )
    databases.target("INSERT INTO plain VALUES (1,'zwei',NULL),(2,'two','{\"b\":2}'),(3,'drei','1'),(9,'zero','[]')")


def test_repair_and_undo(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    plant(project.databases)
    before = {table: project.rows(table) for table in ("everything", "plain", "same")}
    assert project.verify() == 1
    assert project.repair() == 0
    assert {table: project.rows(table) for table in before} == before, "nothing is executed without --apply"
    assert [t["pair"].split(".")[1] for t in project.manifest()["tables"]] == ["everything", "plain"]
    entry = project.entry("everything")
    assert entry["rows"]["statements"] == {"missing_on_source": 2, "value_differs": 44, "missing_on_target": 3}
    capsys.readouterr()
    assert project.repair("--apply") == 0
    assert "everything: repaired 49, left alone 0 (changed since the run), still different 0" in capsys.readouterr().out
    assert project.verify() == 0
    assert project.rows("everything")[0] != before["everything"][0]
    for table in ("plain", "everything"):
        assert set(project.play(project.script(table, "inverse"))) == {1}
    assert {table: project.rows(table) for table in before} == before
    for table in ("plain", "everything"):
        assert set(project.play(project.script(table, "inverse"))) == {0}, "a second run finds nothing to undo"
    assert {table: project.rows(table) for table in before} == before


SIMPLE = "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), n INT)"


def simple(project: Project, rows: int = 6) -> None:
    """Rows 1..n on both sides; 1 and 2 differ, 3 and 4 are missing on the target, 5 and 6 on the source."""
    project.databases.both(SIMPLE)
    values = ",".join(f"({n},'v{n}',{n})" for n in range(1, rows + 1))
    project.databases.both(f"INSERT INTO t VALUES {values}")
    project.databases.source("DELETE FROM t WHERE id IN (5, 6)")
    project.databases.target("DELETE FROM t WHERE id IN (3, 4)", "UPDATE t SET v = 'wrong' WHERE id IN (1, 2)")


def ids(project: Project, side: str = "target") -> dict[int, str]:
    query = project.databases.target if side == "target" else project.databases.source
    return dict(query("SELECT id, v FROM t ORDER BY id"))


def test_rows_changed_since_the_run_are_left_alone(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    simple(project)
    assert project.verify() == 1
    project.databases.source(
        "UPDATE t SET v = 'newer' WHERE id = 1", "DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5,'back',1)"
    )
    project.databases.target(
        "UPDATE t SET n = 99 WHERE id = 2", "INSERT INTO t VALUES (4,'mine',4)", "UPDATE t SET n = 99 WHERE id = 6"
    )
    before = ids(project)
    capsys.readouterr()
    assert project.repair("--apply") == 1
    assert ids(project) == before
    entry = project.entry("t")
    # Row 3 is absent on both sides by now.
    assert entry["rows"]["statements"] == {}
    assert entry["rows"]["equal_now"] == 1
    assert entry["rows"]["changed_since"] == {"source": 2, "target": 3}
    assert "repaired 0, left alone 5 (changed since the run), still different 5" in capsys.readouterr().out


def test_rows_changed_after_the_script_was_written_are_left_alone(project: Project) -> None:
    simple(project)
    assert project.verify() == 1
    assert project.repair() == 0
    project.databases.target(
        "UPDATE t SET n = 99 WHERE id = 2", "INSERT INTO t VALUES (4,'mine',4)", "UPDATE t SET n = 99 WHERE id = 6"
    )
    assert sorted(project.play(project.script("t"))) == [0, 0, 0, 1, 1, 1]
    assert ids(project) == {1: "v1", 2: "wrong", 3: "v3", 4: "mine", 6: "v6"}
    assert sorted(project.play(project.script("t"))) == [0] * 6
    # The inverse knows its own work only.
    assert sorted(project.play(project.script("t", "inverse"))) == [0, 0, 0, 1, 1, 1]
    assert ids(project) == {1: "wrong", 2: "wrong", 4: "mine", 5: "v5", 6: "v6"}


def test_json_changed_after_the_script_was_written(project: Project) -> None:
    """The EXACT checksum does not see JSON, and still a change of it is not overwritten, there or back."""
    project.databases.both(
        "CREATE TABLE t (id INT PRIMARY KEY, j JSON, f FLOAT)",
        "INSERT INTO t VALUES (1,'{\"bb\":1,\"a\":18446744073709551615}',0.1),(2,'[]',1)",
    )
    project.databases.target("UPDATE t SET j = '{}'")
    assert project.verify() == 1
    assert project.repair() == 0
    project.databases.target("UPDATE t SET j = '[7]' WHERE id = 2")
    assert project.play(project.script("t")) == [1, 0]
    assert json.loads(project.databases.target("SELECT j FROM t WHERE id = 1")[0][0]) == {"bb": 1, "a": 2**64 - 1}
    project.databases.target("UPDATE t SET j = '{\"bb\":2}' WHERE id = 1")
    assert project.play(project.script("t", "inverse")) == [0, 0]


def inject_failed_chunk(project: Project) -> None:
    store = open_store(project.store)
    try:
        run_id = store.load_run("last").run_id
        failed = ChunkResult(
            f"{project.databases.name}.t", 0, 99, KeyRange(), ChunkState.FAILED, None, None, 0.0, 0.0, reason="planted"
        )
        store.add_chunks(run_id, [failed], [])
    finally:
        store.close()


def test_no_delete_where_a_read_failed(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    simple(project)
    assert project.verify() == 1
    inject_failed_chunk(project)
    capsys.readouterr()
    assert project.repair() == 3
    assert "no DELETE: 1 of 2 chunks of the table could not be read" in capsys.readouterr().out
    text = project.script("t").read_text()
    assert "DELETE FROM" not in text
    assert "-- NO DELETE: 1 of 2 chunks" in text
    assert project.entry("t")["rows"]["statements"] == {"value_differs": 2, "missing_on_target": 2}
    assert project.repair("--apply") == 1
    assert ids(project) == {n: f"v{n}" for n in range(1, 7)}


def test_killed_in_the_middle_and_run_again(project: Project) -> None:
    project.databases.both(SIMPLE)
    for start in range(1, 3001, 1000):
        project.databases.source(
            "INSERT INTO t VALUES " + ",".join(f"({n},'v',{n})" for n in range(start, start + 1000))
        )
    assert project.verify() == 1
    arguments = ["tables", "repair", "last", "-c", str(project.config), "--out", str(project.out), "--apply"]
    process = subprocess.Popen([sys.executable, "-m", "migverify", *arguments], cwd=Path(__file__).parents[2])
    found = 0
    while not found and process.poll() is None:
        found = project.databases.target("SELECT COUNT(*) FROM t")[0][0]
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    found = project.databases.target("SELECT COUNT(*) FROM t")[0][0]
    assert 0 < found < 3000
    assert found % 500 == 0, "every transaction is whole"
    store = open_store(project.store)
    killed, verified = store.runs()[:2]
    store.close()
    assert killed.finished is None
    again = ["tables", "repair", verified.run_id, "-c", str(project.config), "--out", str(project.out)]
    assert run([*again, "--apply"]) == 0
    assert project.entry("t")["rows"] == {
        "seen": 3000, "statements": {"missing_on_target": 3000 - found}, "equal_now": found, "changed_since": {}, "refused": {},
    }  # fmt: skip
    assert project.verify() == 0
    # Both inverses, the newest first, take back all of it.
    project.play(project.script("t", "inverse"))
    project.play(project.out / "earlier-1" / project.script("t", "inverse").name)
    assert project.databases.target("SELECT COUNT(*) FROM t") == [(0,)]


def test_interrupted(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    simple(project)
    assert project.verify() == 1

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(repair, "confirm", interrupt)
    assert project.repair("--apply") == 130
    store = open_store(project.store)
    info = store.load_run("last")
    store.close()
    assert (info.verdict, info.command.startswith("migverify tables repair")) == ("INCONCLUSIVE", True)
    assert "interrupted" in info.facts["reasons"][0]


def test_a_repair_can_be_repaired_and_reported(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    simple(project)
    assert project.verify() == 1
    project.databases.target("UPDATE t SET n = 99 WHERE id = 2")
    assert project.repair("--apply") == 1
    capsys.readouterr()
    assert run(["report", "last", "-c", str(project.config)]) == 1
    shown = capsys.readouterr().out
    assert "1 rows are still different" in shown
    assert "only the 6 rows that differed in run" in shown
    assert project.repair("--apply") == 0
    assert project.verify() == 0


def test_unique_values_that_move_on(project: Project) -> None:
    """Row 1 takes what row 2 gives up, row 2 what row 3 gives up: it works in one order only."""
    project.databases.both("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) UNIQUE, n INT)")
    project.databases.source("INSERT INTO t VALUES (1,'b',1),(2,'c',2),(3,'d',3)")
    project.databases.target("INSERT INTO t VALUES (1,'a',1),(2,'b',2),(3,'c',3)")
    assert project.verify() == 1
    assert project.repair("--apply") == 0
    assert ids(project) == {1: "b", 2: "c", 3: "d"}


def test_one_refused_row_holds_back_no_other(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    """A unique value is held by a row that is not compared: the target refuses what takes it, and says so."""
    project.databases.both("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) UNIQUE, n INT)")
    project.databases.source("INSERT INTO t VALUES (1,'a',1),(2,'b',2),(3,'c',3)")
    project.databases.target("INSERT INTO t VALUES (1,'b',1),(2,'x',2),(99,'a',99)")
    project.configure(f"overrides: [{{table: '{project.databases.name}.t', where: 'id < 99'}}]\n")
    assert project.verify() == 1
    capsys.readouterr()
    assert project.repair("--apply") == 1
    shown = capsys.readouterr().out
    assert (
        "repaired 1, left alone 0 (changed since the run), still different 2; the target refused 2 statements" in shown
    )
    assert "Duplicate entry" in shown
    assert "UPDATE" not in shown.split("the target refused")[1], "a statement holds values"


@pytest.mark.attack(
    "tables", "a repair of rows that exchange unique values",
    "refused by the target: no row of the ring is touched, MISMATCH, and the rest is repaired",
)  # fmt: skip
def test_rows_that_exchange_unique_values_are_left_alone(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.databases.both("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20) NOT NULL UNIQUE, n INT)")
    project.databases.source("INSERT INTO t VALUES (1,'b',1),(2,'c',2),(3,'a',3),(4,'y',4)")
    project.databases.target("INSERT INTO t VALUES (1,'a',1),(2,'b',2),(3,'c',3),(4,'x',4)")
    assert project.verify() == 1
    capsys.readouterr()
    assert project.repair("--apply") == 1
    assert ids(project) == {1: "a", 2: "b", 3: "c", 4: "y"}
    assert "repaired 1, left alone 0 (changed since the run), still different 3; the target refused 3 statements" in (
        capsys.readouterr().out
    )


def test_columns_outside_of_the_comparison(project: Project) -> None:
    """They are not written, and a deleted row comes back with them."""
    project.databases.source("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), only_source INT)")
    project.databases.target(
        "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(20), extra JSON, more FLOAT, up DATETIME DEFAULT '2001-01-01' ON UPDATE CURRENT_TIMESTAMP, g INT AS (id) VIRTUAL)"
    )
    project.databases.source("INSERT INTO t VALUES (1,'a',1),(2,'b',1)")
    project.databases.target(
        "INSERT INTO t (id,v,extra,more) VALUES (1,'x','{\"k\":[1,2]}',0.1),(3,'gone','[\"x\", 1.0]',0.3)"
    )
    before = project.rows("t")
    assert project.verify() == 1
    assert project.repair() == 0
    assert "not compared, so not written: extra, more, up" in project.script("t").read_text()
    project.databases.target("UPDATE t SET more = 0.4, up = up WHERE id = 3")
    assert project.play(project.script("t")) == [0, 1, 1], "the row to delete changed in a column that is not compared"
    project.databases.target("UPDATE t SET more = 0.3, up = up WHERE id = 3")
    assert project.play(project.script("t")) == [1, 0, 0]
    rows = project.databases.target("SELECT id, v, up FROM t ORDER BY id")
    assert [(i, v, str(up)) for i, v, up in rows] == [(1, "a", "2001-01-01 00:00:00"), (2, "b", "2001-01-01 00:00:00")]
    assert project.play(project.script("t", "inverse")) == [1, 1, 1]
    assert project.rows("t") == before


def test_no_insert_into_a_column_without_a_default(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.databases.source("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    project.databases.target("CREATE TABLE t (id INT PRIMARY KEY, must INT NOT NULL)")
    assert project.verify() == 1
    capsys.readouterr()
    assert project.repair() == 3
    assert "no INSERT: target column must is not compared" in capsys.readouterr().out


def test_a_table_without_a_key_is_refused(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.databases.both("CREATE TABLE keyless (v INT)")
    project.databases.source("INSERT INTO keyless VALUES (1),(1)")
    simple(project)
    assert project.verify() == 1
    capsys.readouterr()
    assert project.repair() == 3
    assert "keyless: not repaired: the table has no unique key" in capsys.readouterr().out
    assert project.entry("keyless")["repair"] is None
    assert project.repair("--apply") == 1
    assert "keyless: not repaired: the table has no unique key" in (told := capsys.readouterr().out)
    assert "still different 0" not in [line for line in told.splitlines() if "keyless" in line][-1]
    assert ids(project) == ids(project, "source"), "the other tables are repaired"


def test_auto_random_and_auto_increment(project: Project) -> None:
    project.databases.source(
        "CREATE TABLE t (id BIGINT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(20))", "INSERT INTO t VALUES (7,'a'),(8,'b')"
    )
    project.databases.target("CREATE TABLE t (id BIGINT AUTO_RANDOM PRIMARY KEY, v VARCHAR(20))")
    assert project.verify() == 1
    assert project.repair("--apply") == 0
    assert ids(project) == {7: "a", 8: "b"}


def test_rows_outside_of_a_condition_are_neither_deleted_nor_doubled(project: Project) -> None:
    simple(project)
    where = f"overrides: [{{table: '{project.databases.name}.t', where: {{source: 'n < 2', target: 'n < 5'}}}}]\n"
    project.configure(where)
    assert project.verify() == 1
    before = ids(project)
    project.repair("--apply")
    after = ids(project)
    assert after[2] == before[2], "the source has the row, outside of its condition"
    assert after[1] == "v1"


def test_two_shards_with_one_key(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    simple(project)
    text = project.config.read_text().splitlines(keepends=True)
    source = f"mysql://root@{project.databases.pair.source}"
    project.config.write_text(f"sources: {{a: {{url: '{source}'}}, b: {{url: '{source}'}}}}\n" + "".join(text[1:]))
    assert project.verify() == 1
    capsys.readouterr()
    assert project.repair() == 3
    assert "two shards hold this key" in capsys.readouterr().out
    assert project.entry("t")["rows"]["statements"] == {"missing_on_source": 2}


def test_refusals(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    simple(project)
    assert project.verify() == 1
    config = project.config.read_text()
    capsys.readouterr()
    project.config.write_text(
        config.replace(f"tidb://root@{project.databases.pair.target.host}:", "tidb://root@localhost:")
    )
    assert project.repair("--apply") == 3
    assert "made against another target: host was" in capsys.readouterr().err
    project.config.write_text(config.replace(str(project.databases.pair.target), str(project.databases.pair.source)))
    assert project.repair("--apply") == 2
    assert "are the same server" in capsys.readouterr().err
    project.config.write_text(config)
    project.databases.both("ALTER TABLE t ADD COLUMN more INT")
    before = ids(project)
    assert project.repair("--apply") == 1
    assert "the table or its configuration changed" in capsys.readouterr().out
    assert ids(project) == before
    project.configure(f"overrides: [{{table: '{project.databases.name}.t', ignore: [v]}}]\n")
    assert project.repair("--apply") == 2
    assert "compared something else" in capsys.readouterr().err


def test_the_source_is_never_the_target(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    name = project.databases.name
    project.databases.both("CREATE TABLE t (id INT PRIMARY KEY)")
    to_source = (
        project.config.read_text()
        .replace(str(project.databases.pair.target), str(project.databases.pair.source))
        .replace("tidb://", "mysql://")
    )
    project.config.write_text(to_source)
    assert project.verify() == 2, "a table is not compared with itself"
    project.databases.source(f"CREATE DATABASE {name}_other", f"CREATE TABLE {name}_other.t LIKE t")
    try:
        project.config.write_text(f"{to_source}routes: [{{from: '{name}.*', to: '{name}_other.*'}}]\n")
        assert project.verify() == 0, "two databases of one server are"
        assert project.repair("--apply") == 3
        assert "is the server of source" in capsys.readouterr().err
    finally:
        project.databases.source(f"DROP DATABASE {name}_other")


def mysql_client() -> list[str] | None:
    found = mysql.client_command("mysql")
    return None if found is None else [*found]


def test_the_mysql_client_runs_the_files(project: Project) -> None:
    """On a MySQL target and a TiDB source: newer clients lack the authentication of TiDB's root."""
    client = mysql_client()
    if client is None:
        pytest.skip("no mysql client in the lab's cache or on PATH")
    plant(project.databases)
    pair = project.databases.pair
    text = project.config.read_text().replace(f"mysql://root@{pair.source}", "SOURCE")
    text = text.replace(f"tidb://root@{pair.target}", f"mysql://root@{pair.source}")
    project.config.write_text(text.replace("SOURCE", f"tidb://root@{pair.target}"))
    project.databases.both("DROP TABLE plain")  # its unique values need one order, which the next test is about
    before = {table: project.rows(table, "source") for table in ("everything",)}
    assert project.verify() == 1
    assert project.repair() == 0
    command = [
        *client,
        "--no-defaults",
        "--default-character-set=utf8mb4",
        "-h",
        pair.source.host,
        "-P",
        str(pair.source.port),
        "-u",
        "root",
    ]

    def play(kind: str) -> None:
        for table in before:
            with project.script(table, kind).open() as script:
                done = subprocess.run(command, stdin=script, check=False, capture_output=True, text=True)
            assert (done.returncode, done.stderr) == (0, "")

    play("repair")
    assert project.verify() == 0
    play("repair")
    assert project.verify() == 0
    play("inverse")
    assert {table: project.rows(table, "source") for table in before} == before


def test_the_password_shows_nowhere(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    password, user, name = "S3cret'pass", f"mv_{os.getpid()}", project.databases.name
    monkeypatch.setenv("PW_FOR_REPAIR", password)
    simple(project)
    project.databases.target(
        f"DROP USER IF EXISTS {user}",
        "CREATE USER {} IDENTIFIED BY '{}'".format(user, password.replace("'", "''")),
        f"GRANT SELECT ON {name}.* TO {user}",
    )
    try:
        text = project.config.read_text().replace(
            f"tidb://root@{project.databases.pair.target}'",
            f"tidb://{user}@{project.databases.pair.target}', password_env: PW_FOR_REPAIR",
        )
        project.config.write_text(text)
        assert project.verify() == 1
        assert project.repair("--apply") == 2
        shown = capsys.readouterr()
        assert "--grants --for 'tables repair --apply'" in shown.err
        assert "SQL:" not in shown.err, "a statement holds the row's values"
        project.databases.target(f"GRANT INSERT, UPDATE, DELETE ON {name}.* TO {user}")
        runs = open_store(project.store)
        verified = runs.runs()[1].run_id
        runs.close()
        assert (
            run(
                [
                    "tables",
                    "repair",
                    verified,
                    "-c",
                    str(project.config),
                    "--out",
                    str(project.out),
                    "--apply",
                    "--json",
                ]
            )
            == 0
        )
        last = capsys.readouterr()
        assert json.loads(last.out)["applied"]["verdict"] == "MATCH"
        files = b"".join(path.read_bytes() for path in project.folder.rglob("*") if path.is_file())
        for secret in (password, password.replace("'", "''")):
            assert secret.encode() not in files
            assert secret not in shown.out + shown.err + last.out + last.err
    finally:
        project.databases.target(f"DROP USER IF EXISTS {user}")


# --- literals --------------------------------------------------------------------------------------------------

TYPES = ["tinyint", "bigint unsigned", "decimal(65,30)", "float", "double", "bit(64)", "date", "datetime(6)", "timestamp(6)", "time(6)", "year",
         "varchar(60) character set utf8mb4", "varchar(60) character set latin1", "longtext", "varbinary(60)", "longblob",
         "enum('a','b,c','d''e','2','1')", "set('x','y z','d''e')", "json"]  # fmt: skip
TEXT = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("'\"\\\0\n\r\x1a%_`;-/* 😀é "), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5,
)  # fmt: skip


def digits(whole: int, part: int) -> st.SearchStrategy[str]:
    numbers = st.decimals(min_value=-(10**whole) + 1, max_value=10**whole - 1, places=part)
    return st.tuples(st.sampled_from(["", "-"]), st.integers(0, 10**whole - 1), st.integers(0, 10**part - 1)).map(
        lambda p: f"{p[0]}{p[1]}.{p[2]:0{part}}" if p[1] or p[2] else f"0.{0:0{part}}"
    ) | numbers.map(lambda n: f"{n:.{part}f}".replace("-0." + "0" * part, "0." + "0" * part))


def moments(form: str) -> st.SearchStrategy[str]:
    """Any date that may be stored: zero, partial and invalid ones (up to the 31st) too."""
    parts = st.tuples(
        st.integers(0, 9999),
        st.integers(0, 12),
        st.integers(0, 31),
        st.integers(0, 23),
        st.integers(0, 59),
        st.integers(0, 999999),
    )
    return parts.map(lambda p: form.format(*p[:5], p[4], p[5])).filter(
        lambda text: not text.startswith("0000") or text.startswith("0000-00-00")
    )


VALUES: dict[str, st.SearchStrategy[bytes]] = {
    "tinyint": st.integers(-128, 127).map(lambda n: str(n).encode()),
    "bigint unsigned": st.integers(0, 2**64 - 1).map(lambda n: str(n).encode()),
    "decimal(65,30)": digits(35, 30).map(str.encode),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda x: repr(x).encode()),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(lambda x: repr(x).encode()),
    "bit(64)": st.integers(0, 2**64 - 1).map(lambda n: str(n).encode()),
    "date": moments("{:04}-{:02}-{:02}").map(str.encode),
    "datetime(6)": moments("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}").map(str.encode),
    "timestamp(6)": st.datetimes(datetime(1970, 1, 1, 0, 0, 1), datetime(2038, 1, 19, 3, 14, 7)).map(
        lambda d: d.strftime("%Y-%m-%d %H:%M:%S.%f").encode()
    )
    | st.just(b"0000-00-00 00:00:00.000000"),
    "time(6)": st.tuples(
        st.sampled_from(["", "-"]), st.integers(0, 837), st.integers(0, 59), st.integers(0, 59), st.integers(1, 999999)
    ).map(lambda p: "{}{:02}:{:02}:{:02}.{:06}".format(*p).encode()),
    "year": st.sampled_from([b"0", b"1901", b"2000", b"2026", b"2155"]),
    "varchar(60) character set utf8mb4": TEXT.map(str.encode),
    "varchar(60) character set latin1": st.text(
        st.characters(max_codepoint=255, exclude_categories=["Cc"]) | st.sampled_from("\0'\\€"), max_size=40
    ).map(str.encode),
    "longtext": TEXT.map(str.encode),
    "varbinary(60)": st.binary(max_size=60),
    "longblob": st.binary(max_size=300),
    "enum('a','b,c','d''e','2','1')": st.sampled_from([b"a", b"b,c", b"d'e", b"2", b"1"]),
    "set('x','y z','d''e')": st.sampled_from([b"", b"x", b"x,y z", b"y z,d'e"]),
    "json": JSON.map(lambda value: json.dumps(value).encode()),
}


@pytest.fixture(scope="module")
def sessions(pair: LabServers) -> Iterator[list[Session]]:
    """Sessions as a repair has them, on both servers, each in a database of its own."""
    opened = []
    name = f"mv_literal_{os.getpid()}"
    for server in (pair.source, pair.target):
        session = open_session(Endpoint("target", server.host, server.port, "root"), None)
        opened.append(session)
        session.execute(f"CREATE DATABASE {name}")
        session.execute(f"USE {name}")
        for statement in session_sql(session.flavor):
            session.execute(statement)
    yield opened
    for session in opened:
        session.execute(f"DROP DATABASE {name}")
        session.close()


@pytest.mark.parametrize("kind", TYPES)
def test_a_literal_writes_what_was_read(sessions: list[Session], kind: str) -> None:
    number = TYPES.index(kind)
    for session in sessions:
        session.execute(
            f"CREATE TABLE t{number} (id INT PRIMARY KEY, c {kind} {'NULL' if 'timestamp' in kind else ''})"
        )
    column = read_column(sessions[0], f"t{number}")

    @settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
    @given(st.lists(VALUES[kind], min_size=1, max_size=20))
    def check(values: list[bytes]) -> None:
        for session in sessions:
            once = write_and_read(session, f"t{number}", column, [*values, None])
            assert once.pop() is None
            assert [meaning(kind, text) for text in once] == [meaning(kind, value) for value in values]
            assert write_and_read(session, f"t{number}", column, once) == once, "canonical text is written as it is"

    check()


def meaning(kind: str, text: bytes | None) -> object:
    if text is None:
        return None
    if kind == "json":
        return json_form(text.decode())
    if kind in ("float", "double"):
        return float(text)
    return text


def read_column(session: Session, table: str) -> ColumnDef:
    database = str(session.query("SELECT DATABASE()")[0][0])
    found = read_table(session, "target", database, table)
    assert found is not None
    return found.columns[1]


def write_and_read(
    session: Session, table: str, column: ColumnDef, values: Sequence[bytes | None]
) -> list[bytes | None]:
    (own,), _ = restorable([column])
    side = SideSql(f"`{table}`", "SHA2", "", "", None, (), (KeyColumn("`id`", "`id`", "integer", False),), ())
    key = replace(column, name="id", data_type="int")
    session.execute("BEGIN")
    session.execute(f"DELETE FROM {table}")
    for n, value in enumerate(values):
        written = [(key, str(n).encode()), (column, value)]
        assert session.execute(insert_sql(side, (str(n),), written)) == 1
        assert session.execute(insert_sql(side, (str(n),), written)) == 0
    found = [row[0] for row in session.query_bytes(f"SELECT {own.target_sql} FROM {table} ORDER BY id")]
    session.execute("COMMIT")
    return found
