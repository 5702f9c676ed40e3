"""The rest of a definition: what is asked of which server, and what a server hides."""

from __future__ import annotations

import pytest

from migverify.model import Flavor
from migverify.sql.definitions import Row
from migverify.sql.grants import Grants, grants_in, hidden_parts
from migverify.sql.parts import asks_one_by_one, read_parts
from tests.definitions import column, table


class Server:
    """Answers nothing, and remembers what it was asked."""

    def __init__(self, flavor: Flavor) -> None:
        self.flavor = flavor
        self.asked: list[str] = []

    def query(self, sql: str) -> list[Row]:
        self.asked.append(sql)
        return []


@pytest.mark.parametrize(
    ("flavor", "version", "alone"),
    [
        (Flavor.MYSQL, "5.7.44-log", True), (Flavor.MYSQL, "8.0.36", False), (Flavor.MYSQL, "9.7.4-2", False),
        (Flavor.MARIADB, "10.11.19-MariaDB", True), (Flavor.TIDB, "8.0.11-TiDB-v8.5.0", False),
    ],
)  # fmt: skip
def test_which_servers_open_tables_for_it(flavor: Flavor, version: str, alone: bool) -> None:
    assert asks_one_by_one(flavor, version) == alone


def test_an_old_server_is_asked_of_one_table_at_a_time() -> None:
    server = Server(Flavor.MYSQL)
    tables = [table(column("a"), name=f"d.t{n}", partitioned=n == 1) for n in range(3)]
    read_parts(server, tables, one_by_one=True)
    asked = [sql for sql in server.asked if "information_schema.COLUMNS" not in sql]
    assert not [sql for sql in asked if " IN (" in sql]
    assert len([sql for sql in asked if "KEY_COLUMN_USAGE" in sql]) == 3
    assert len([sql for sql in asked if "TRIGGERS" in sql]) == 3
    assert [sql for sql in asked if "PARTITIONS" in sql and "'t1'" in sql]
    assert len([sql for sql in asked if "PARTITIONS" in sql]) == 1  # the others say that they have none


def test_a_new_server_is_asked_of_many_at_once() -> None:
    server = Server(Flavor.MYSQL)
    read_parts(server, [table(column("a"), name=f"d.t{n}") for n in range(1200)], one_by_one=False)
    assert len([sql for sql in server.asked if "KEY_COLUMN_USAGE" in sql]) == 3


ROUTINES, VIEWS = "procedures and functions", "texts of views"


@pytest.mark.parametrize(
    ("flavor", "grants", "hidden"),
    [
        (Flavor.MYSQL, ["GRANT USAGE ON *.* TO `u`@`%`", "GRANT SELECT ON `d`.* TO `u`@`%`"],
         {"triggers", "events", ROUTINES, VIEWS}),
        (Flavor.MARIADB, ["GRANT SELECT ON `d`.* TO `u`@`%`"], {"triggers", "events", ROUTINES, VIEWS, "foreign keys"}),
        (Flavor.MARIADB, ["GRANT SELECT, REFERENCES ON `d`.* TO `u`@`%`"], {"triggers", "events", ROUTINES, VIEWS}),
        (Flavor.MYSQL, ["GRANT ALL PRIVILEGES ON `d`.* TO `u`@`%`"], set()),
        (Flavor.MYSQL, ["GRANT SELECT, SHOW VIEW, EVENT, TRIGGER ON *.* TO `u`@`%`", "GRANT SHOW_ROUTINE ON *.* TO u"],
         set()),
        (Flavor.MYSQL, ["GRANT SELECT ON `TRIGGER`.* TO `EVENT`@`%`"], {"triggers", "events", ROUTINES, VIEWS}),
        (Flavor.MYSQL, ["GRANT TRIGGER ON *.* TO u"], {"events", ROUTINES, VIEWS}),
        (Flavor.TIDB, ["GRANT SELECT ON *.* TO u"], set()),
    ],
)  # fmt: skip
def test_what_a_user_does_not_see(flavor: Flavor, grants: list[str], hidden: set[str]) -> None:
    active = tuple(grant for line in grants for grant in grants_in(line))
    assert set(hidden_parts(flavor, Grants("u@%", tuple(grants), (), (), active))) == hidden
