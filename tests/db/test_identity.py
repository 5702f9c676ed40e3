"""Identities on the real pair: what makes a name mean other rows changes them, what writes rows does not."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from migverify.db.session import open_session
from migverify.model import Endpoint
from migverify.sql.identity import YOUNG_SECONDS, TableIdentity, read_identities
from tests.conftest import Databases

pytestmark = pytest.mark.db

TABLE = "Üs.er #p#x"
PARTITIONS = "PARTITION BY RANGE (id) (PARTITION `p ü` VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (100))"


@pytest.fixture(params=["source", "target"])
def side(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def settled(databases: Databases, side: str, table: str) -> TableIdentity | None:
    """Read until the last change is old enough to be told from another one in the same second."""
    server = getattr(databases.pair, side)
    with closing(open_session(Endpoint(side, server.host, server.port, server.user), None)) as session:
        for _ in range(100 * YOUNG_SECONDS):
            identity = read_identities(session, [(databases.name, table)]).get((databases.name, table))
            if identity is None or not identity.young:
                return identity
            time.sleep(0.1)
    pytest.fail(f"{table} stays young: {identity}")


@pytest.mark.parametrize(
    "change",
    [
        (f"RENAME TABLE `{TABLE}` TO old, other TO `{TABLE}`",),
        (f"DROP TABLE `{TABLE}`", f"RENAME TABLE other TO `{TABLE}`"),
        (f"TRUNCATE TABLE `{TABLE}`",),
        (f"ALTER TABLE `{TABLE}` EXCHANGE PARTITION `p ü` WITH TABLE plain",),
        (f"ALTER TABLE `{TABLE}` TRUNCATE PARTITION `p ü`",),
        (f"ALTER TABLE `{TABLE}` ADD COLUMN more INT",),
        (f"ALTER TABLE `{TABLE}` DROP COLUMN v", f"ALTER TABLE `{TABLE}` ADD COLUMN v INT"),
        (f"DROP TABLE `{TABLE}`", f"CREATE VIEW `{TABLE}` AS SELECT * FROM plain"),
    ],
    ids=["swap", "drop-rename", "truncate", "exchange", "truncate-partition", "add-column", "drop-add-column", "view"],
)
@pytest.mark.attack("tables", "a table is swapped, emptied, altered or made a view under its name",
                    "its identity in the catalog changes")  # fmt: skip
def test_whatever_gives_a_name_other_rows_changes_its_identity(
    databases: Databases, side: str, change: tuple[str, ...]
) -> None:
    run = getattr(databases, side)
    for name in (TABLE, "other"):
        run(f"CREATE TABLE `{name}` (id INT PRIMARY KEY, v INT) {PARTITIONS}")
    run("CREATE TABLE plain (id INT PRIMARY KEY, v INT)")
    before = settled(databases, side, TABLE)
    assert before is not None
    run(f"INSERT INTO `{TABLE}` VALUES (1, 1), (20, 2)", f"UPDATE `{TABLE}` SET v=3", f"ANALYZE TABLE `{TABLE}`")
    assert settled(databases, side, TABLE) == before, "rows alone do not change it"
    run(*change)
    after = settled(databases, side, TABLE)
    assert before.changes_to(after)


def test_a_table_that_is_swapped_back_is_the_same_again(databases: Databases) -> None:
    run = databases.source
    run("CREATE TABLE o (id INT PRIMARY KEY)", "CREATE TABLE o2 (id INT PRIMARY KEY)")
    before = settled(databases, "source", "o")
    assert before is not None
    run("RENAME TABLE o TO x, o2 TO o", "RENAME TABLE o TO o2, x TO y")
    assert before.changes_to(settled(databases, "source", "o")) == "the table is gone"
    run("RENAME TABLE y TO o")
    assert settled(databases, "source", "o") == before


def test_without_process_the_ids_of_innodb_are_said_to_be_unknown(databases: Databases) -> None:
    databases.source("CREATE TABLE o (id INT PRIMARY KEY)", f"CREATE USER '{databases.name}' IDENTIFIED BY ''",
                     f"GRANT SELECT ON `{databases.name}`.* TO '{databases.name}'")  # fmt: skip
    server = databases.pair.source
    try:
        with closing(open_session(Endpoint("source", server.host, server.port, databases.name), None)) as session:
            identity = read_identities(session, [(databases.name, "o")])[databases.name, "o"]
    finally:
        databases.source(f"DROP USER '{databases.name}'")
    assert "PROCESS" in identity.ids[0][1]
