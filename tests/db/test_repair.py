"""Repairs on a real MySQL and a real TiDB: plant, verify, repair, verify; undo; races; kills."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from migverify.cli.main import run
from migverify.lab.session import connect
from migverify.model import ChunkResult, ChunkState, KeyRange
from migverify.store.open import open_store
from migverify.tables import repair_run
from migverify.tables.repair_files import transactions

if TYPE_CHECKING:
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
                changed += [cursor.execute(statement) for statement in batch]
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
    databases.source("INSERT INTO plain VALUES (0,'zero','{}'),(1,'eins',NULL),(2,'zwei','{\"b\":1,\"aa\":2}'),(3,'drei','1.0')")
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
