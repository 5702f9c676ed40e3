"""What SHOW GRANTS says, in the words of three servers: too little never counts as enough."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.config import database_patterns, load_config
from migverify.errors import ReadError
from migverify.model import Flavor, Side
from migverify.sql.grants import Grants, check_grants, like_literal, plain_name
from migverify.sql.privileges import Scopes, missing, object_text, statements, wanted_for


class GrantsServer:
    def __init__(self, *lines: str, others: dict[str, list[str] | Exception] | None = None) -> None:
        self.lines = lines
        self.others = others or {}

    def query(self, sql: str) -> list[tuple[str | None, ...]]:
        if sql == "SELECT CURRENT_USER()":
            return [("m@%",)]
        if sql == "SHOW GRANTS":
            return [(line,) for line in self.lines]
        if sql == "SELECT @@partial_revokes":
            raise ReadError("Unknown system variable 'partial_revokes' [1193]")
        answer = self.others[sql]
        if isinstance(answer, Exception):
            raise answer
        return [(line,) for line in answer]


def grants(*lines: str, others: dict[str, list[str] | Exception] | None = None) -> Grants:
    return check_grants(GrantsServer(*lines, others=others))


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
    user = grants("GRANT SELECT ON *.* TO `m`@`%`", "REVOKE SELECT ON `secret`.* FROM `m`@`%`")
    assert user.allows("SELECT", "app", "t")
    assert not user.allows("SELECT", "secret", "t")
    user = grants(
        "GRANT SELECT ON *.* TO `m`@`%`", "GRANT SELECT ON `secret`.`t` TO `m`@`%`",
        "REVOKE SELECT ON `secret`.* FROM `m`@`%`",
    )  # fmt: skip
    assert user.allows("SELECT", "secret", "t")
    assert not user.may_write


def test_a_role_that_is_not_active_counts_as_too_much_and_not_as_enough() -> None:
    using = "SHOW GRANTS FOR CURRENT_USER() USING `writer`@`%`"
    lines = ("GRANT USAGE ON *.* TO `m`@`%`", "GRANT `writer`@`%` TO `m`@`%`")
    user = grants(*lines, others={using: [*lines, "GRANT INSERT ON `app`.* TO `m`@`%`"]})
    assert user.writing == ("INSERT on `app`.*",)
    assert not user.allows("INSERT", "app", "t")


def test_roles_of_mariadb_are_asked_one_by_one_and_theirs_too() -> None:
    user = grants(
        "GRANT `reader` TO `m`@`%`", "GRANT USAGE ON *.* TO `m`@`%`", "SET DEFAULT ROLE `reader` FOR `m`@`%`",
        others={
            "SHOW GRANTS FOR `reader`": ["GRANT USAGE ON *.* TO `reader`", "GRANT `inner` TO `reader`"],
            "SHOW GRANTS FOR `inner`": ["GRANT DELETE ON `app`.* TO `inner`", "GRANT `reader` TO `inner`"],
        },
    )  # fmt: skip
    assert user.writing == ("DELETE on `app`.*",)


def test_a_role_that_is_not_shown_may_allow_anything() -> None:
    user = grants("GRANT `x` TO `m`@`%`", others={"SHOW GRANTS FOR `x`": ReadError("denied")})
    assert user.may_write


@pytest.mark.parametrize("line", ["GRANT PROXY ON ``@`` TO 'm'@'%'", "something new", "GRANT CONFIG ON *.* TO 'm'@'%'"])
def test_what_is_not_known_counts_as_writing(line: str) -> None:
    assert grants(line).may_write


# --- what is missing, and how it is granted ---------------------------------------------------------------------


NOBODY = "GRANT USAGE ON *.* TO `m`@`%`"


def lacking(*lines: str, databases: tuple[str, ...] = ("app",), only: tuple[str, ...] = ("tables plan",),
            side: Side = Side.SOURCE, flavor: Flavor = Flavor.MYSQL, version: tuple[int, ...] = (8, 4, 0),
            literal: bool = False) -> list[str]:  # fmt: skip
    held = replace(grants(*lines), literal=literal)
    needs = wanted_for(only, side, flavor, version)
    return statements(missing(needs, held, Scopes(databases)), held.account)


def test_a_user_without_rights_gets_one_statement_for_each_object() -> None:
    assert lacking(NOBODY) == ["GRANT SELECT ON `app`.* TO 'm'@'%';"]
    assert lacking(NOBODY, only=("changes tail",)) == [
        "GRANT SELECT ON `app`.* TO 'm'@'%';",
        "GRANT REPLICATION CLIENT, REPLICATION SLAVE ON *.* TO 'm'@'%';",
    ]
    assert lacking(NOBODY, only=("changes tail",), side=Side.TARGET) == []


@pytest.mark.parametrize(
    ("flavor", "version", "said"),
    [
        (Flavor.MYSQL, (5, 7, 44), "ON `mysql`.`proc`"), (Flavor.MYSQL, (8, 0, 19), ""),
        (Flavor.MYSQL, (8, 0, 20), "SHOW_ROUTINE ON *.*"), (Flavor.MARIADB, (10, 11, 2), "ON `mysql`.`proc`"),
        (Flavor.TIDB, (8, 5, 0), ""),
    ],
)  # fmt: skip
def test_routines_are_seen_by_what_the_version_has(flavor: Flavor, version: tuple[int, ...], said: str) -> None:
    shown = " ".join(lacking(NOBODY, only=("guard schema",), flavor=flavor, version=version))
    assert ("ROUTINE" in shown or "proc" in shown) == bool(said)
    assert said in shown
    assert ("TRIGGER" in shown) == (flavor is not Flavor.TIDB)


@pytest.mark.parametrize(
    ("held", "database", "literal", "enough"),
    [
        (r"GRANT SELECT ON `pay\_app`.* TO `m`@`%`", "pay_app", False, True),
        ("GRANT SELECT ON `pay_app`.* TO `m`@`%`", "pay_app", False, True),
        ("GRANT SELECT ON `pay_app`.* TO `m`@`%`", "pay_app", True, True),
        (r"GRANT SELECT ON `pay\_app`.* TO `m`@`%`", "pay_app", True, False),
        ("GRANT SELECT ON `pay%`.* TO `m`@`%`", "pay_app", True, False),
        ("GRANT SELECT ON `pay%`.* TO `m`@`%`", "pay_app", False, True),
        ("GRANT SELECT ON `pay_app`.`t` TO `m`@`%`", "pay_app", False, False),
        ("GRANT SELECT ON *.* TO `m`@`%`", "pay_app", True, True),
    ],
)  # fmt: skip
def test_names_with_wildcards(held: str, database: str, literal: bool, enough: bool) -> None:
    found = lacking(held, databases=(like_literal(database),), literal=literal)
    name = "pay_app" if literal else r"pay\_app"
    assert found == ([] if enough else [f"GRANT SELECT ON `{name}`.* TO 'm'@'%';"])


def test_a_pattern_is_held_by_the_same_pattern_or_by_all() -> None:
    assert lacking(NOBODY, databases=(r"pay\_%",)) == [r"GRANT SELECT ON `pay\_%`.* TO 'm'@'%';"]
    assert lacking(NOBODY, databases=(r"pay\_%",), literal=True) == ["GRANT SELECT ON *.* TO 'm'@'%';"]
    assert lacking(NOBODY, databases=("%",)) == ["GRANT SELECT ON *.* TO 'm'@'%';"]
    assert lacking(r"GRANT SELECT ON `pay\_%`.* TO `m`@`%`", databases=(r"pay\_%",)) == []
    assert lacking(r"GRANT SELECT ON `pay\_eu`.* TO `m`@`%`", databases=(r"pay\_%",)) != []
    assert lacking(r"GRANT SELECT ON `pay\_%`.* TO `m`@`%`", databases=("%",)) != []


def test_a_partial_revoke_is_granted_again() -> None:
    held = ("GRANT SELECT ON *.* TO `m`@`%`", "REVOKE SELECT ON `app`.* FROM `m`@`%`")
    assert lacking(*held) == ["GRANT SELECT ON `app`.* TO 'm'@'%';"]
    assert lacking(*held, databases=("other",)) == []


@pytest.mark.attack("privileges", "an account or a database whose name ends its quotes", "it stays one name")
@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1),
       st.text("ab'`\\@%_", min_size=1, max_size=8))  # fmt: skip
def test_no_name_ends_its_quotes(database: str, user: str) -> None:
    (statement,) = statements({object_text(like_literal(database), None): ("SELECT",)}, f"{user}@%")
    parts = re.fullmatch(
        r"GRANT SELECT ON (`(?:[^`]|``)+`)\.\* TO ('(?:[^'\\]|'')*'|`(?:[^`]|``)+`)@'%';", statement, re.DOTALL
    )
    assert parts is not None
    assert plain_name(parts[1][1:-1].replace("``", "`")) == plain_name(like_literal(database))
    quote = parts[2][0]
    assert parts[2][1:-1].replace(quote * 2, quote) == user


CONFIG = """\
source: {{url: "mysql://u@s"}}
target: {{url: "tidb://u@t"}}
tables: {{include: [{include}]}}
routes: [{routes}]
"""


@pytest.mark.parametrize(
    ("include", "routes", "source", "target"),
    [
        ("app.*", "", ("app",), ("app",)), ("a_b.*, a_b.t", "", (r"a\_b",), (r"a\_b",)),
        ("'`a%b`.*'", "", (r"a\%b",), (r"a\%b",)), ("'pay_*.*'", "", (r"pay\_%",), (r"pay\_%",)),
        ("'p?y.*'", "", ("p_y",), ("p_y",)), ("'*.*'", "", ("%",), ("%",)), ("'/a|b/.*'", "", ("%",), ("%",)),
        ("'/app[.].*/'", "", ("%",), ("%",)), ("app.*, '*.t'", "", ("%",), ("%",)),
        ("app.*", "{from: 'app.*', to: 'new_app.*'}", ("app",), (r"new\_app",)),
        ("app.*", "{from: 'app.old_*', to: 'arch.*'}", ("app",), ("arch", "app")),
        ("app.t", "{from: 'app.u', to: 'arch.*'}", ("app",), ("app",)),
        ("app.t", "{from: 'app.t', to: 'arch.t'}", ("app",), ("arch",)),
        ("app.*", "{from: 'other.*', to: 'arch.*'}", ("app",), ("app",)),
        ("app1.*", "{from: 'app*.*', to: 'x_*.*'}", ("app1",), (r"x\_1",)),
        ("app1.*", "{from: '/app([0-9])/.*', to: 'x{1}.*'}", ("app1",), ("x1",)),
        ("app.*", "{from: 'app./t([0-9])/', to: 'x{1}.t'}", ("app",), ("%",)),
        ("'app*.*'", "{from: 'app*.*', to: 'x*.*'}", ("app%",), ("%",)),
        ("'app*.*'", "{from: 'app*.*', to: 'one.*'}", ("app%",), ("one", "app%")),
    ],
)  # fmt: skip
def test_databases_in_scope(
    tmp_path: Path, include: str, routes: str, source: tuple[str, ...], target: tuple[str, ...]
) -> None:
    path = tmp_path / "m.yaml"
    if "old_" in routes or routes == "{from: 'app.u', to: 'arch.*'}":
        routes = routes.replace("arch.*", "arch.t")
    path.write_text(CONFIG.format(include=include, routes=routes))
    config = load_config(path)
    assert database_patterns(config, target=False) == source
    assert database_patterns(config, target=True) == target
