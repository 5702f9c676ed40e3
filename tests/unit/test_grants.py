"""What SHOW GRANTS says, in the words of three servers: too little never counts as enough."""

from __future__ import annotations

import pytest

from migverify.errors import ReadError
from migverify.sql.grants import Grants, check_grants


class Told:
    def __init__(self, *lines: str, others: dict[str, list[str] | Exception] | None = None) -> None:
        self.lines = lines
        self.others = others or {}

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        if sql == "SELECT CURRENT_USER()":
            return [("m@%",)]
        if sql == "SHOW GRANTS":
            return [(line,) for line in self.lines]
        told = self.others[sql]
        if isinstance(told, Exception):
            raise told
        return [(line,) for line in told]


def grants(*lines: str, others: dict[str, list[str] | Exception] | None = None) -> Grants:
    return check_grants(Told(*lines, others=others))


@pytest.mark.parametrize(
    ("line", "privilege", "database", "table", "allowed"),
    [
        ("GRANT SELECT ON *.* TO `m`@`%`", "SELECT", "app", "t", True),
        ("GRANT SELECT ON `app`.* TO `m`@`%`", "SELECT", "app", "t", True),
        ("GRANT SELECT ON `app`.* TO `m`@`%`", "SELECT", "apple", "t", False),
        ("GRANT SELECT ON `app`.* TO `m`@`%`", "SELECT", None, None, False),
        ("GRANT SELECT ON `app`.`t` TO `m`@`%`", "SELECT", "app", "t", True),
        ("GRANT SELECT ON `app`.`t` TO `m`@`%`", "SELECT", "app", "u", False),
        ("GRANT SELECT (`a`, `b`) ON `app`.`t` TO `m`@`%`", "SELECT", "app", "t", False),
        ("GRANT SELECT (`a`), INSERT ON `app`.`t` TO `m`@`%`", "INSERT", "app", "t", True),
        ("GRANT SELECT ON `pay\\_%`.* TO `m`@`%`", "SELECT", "pay_eu", "t", True),
        ("GRANT SELECT ON `pay\\_%`.* TO `m`@`%`", "SELECT", "payXeu", "t", False),
        ("GRANT SELECT ON `pay_eu`.* TO `m`@`%`", "SELECT", "payXeu", "t", True),
        ("GRANT SELECT ON `od``d`.* TO `m`@`%`", "SELECT", "od`d", "t", True),
        ("GRANT ALL PRIVILEGES ON `app`.* TO 'm'@'%'", "DELETE", "app", "t", True),
        ("GRANT ALL PRIVILEGES ON *.* TO 'm'@'%' WITH GRANT OPTION", "PROCESS", None, None, True),
        ("GRANT SELECT,INSERT ON `app`.* TO 'm'@'%'", "INSERT", "app", "t", True),
        ("GRANT BINLOG MONITOR ON *.* TO `m`@`%`", "REPLICATION CLIENT", None, None, True),
        ("GRANT EXECUTE ON PROCEDURE `app`.`t` TO `m`@`%`", "EXECUTE", "app", "t", False),
        ("GRANT USAGE ON *.* TO `m`@`%`", "SELECT", "app", "t", False),
    ],
)
def test_a_privilege_on_a_table(
    line: str, privilege: str, database: str | None, table: str | None, allowed: bool
) -> None:
    assert grants(line).allows(privilege, database, table) is allowed


def test_partial_revokes_take_from_the_global_level_only() -> None:
    told = grants("GRANT SELECT ON *.* TO `m`@`%`", "REVOKE SELECT ON `secret`.* FROM `m`@`%`")
    assert told.allows("SELECT", "app", "t")
    assert not told.allows("SELECT", "secret", "t")
    told = grants(
        "GRANT SELECT ON *.* TO `m`@`%`", "GRANT SELECT ON `secret`.`t` TO `m`@`%`",
        "REVOKE SELECT ON `secret`.* FROM `m`@`%`",
    )  # fmt: skip
    assert told.allows("SELECT", "secret", "t")
    assert not told.may_write


def test_a_role_that_is_not_active_counts_as_too_much_and_not_as_enough() -> None:
    using = "SHOW GRANTS FOR CURRENT_USER() USING `writer`@`%`"
    lines = ("GRANT USAGE ON *.* TO `m`@`%`", "GRANT `writer`@`%` TO `m`@`%`")
    told = grants(*lines, others={using: [*lines, "GRANT INSERT ON `app`.* TO `m`@`%`"]})
    assert told.writing == ("INSERT on `app`.*",)
    assert not told.allows("INSERT", "app", "t")


def test_roles_of_mariadb_are_asked_one_by_one_and_theirs_too() -> None:
    told = grants(
        "GRANT `reader` TO `m`@`%`", "GRANT USAGE ON *.* TO `m`@`%`", "SET DEFAULT ROLE `reader` FOR `m`@`%`",
        others={
            "SHOW GRANTS FOR `reader`": ["GRANT USAGE ON *.* TO `reader`", "GRANT `inner` TO `reader`"],
            "SHOW GRANTS FOR `inner`": ["GRANT DELETE ON `app`.* TO `inner`", "GRANT `reader` TO `inner`"],
        },
    )  # fmt: skip
    assert told.writing == ("DELETE on `app`.*",)


def test_a_role_that_is_not_shown_may_allow_anything() -> None:
    told = grants("GRANT `x` TO `m`@`%`", others={"SHOW GRANTS FOR `x`": ReadError("denied")})
    assert told.may_write


@pytest.mark.parametrize("line", ["GRANT PROXY ON ``@`` TO 'm'@'%'", "something new", "GRANT CONFIG ON *.* TO 'm'@'%'"])
def test_what_is_not_known_counts_as_writing(line: str) -> None:
    assert grants(line).may_write
