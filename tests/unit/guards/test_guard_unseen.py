"""Tables that a user cannot see are a reason, for guards that read what a catalog lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from migverify.config import load_config
from migverify.guards.scope import Scope
from migverify.guards.unseen import VisibleTables, unseen
from migverify.sql.grants import Grants, grants_in

ALL = "GRANT SELECT ON *.* TO `u`@`%`"
APP = "GRANT SELECT ON `app`.* TO `u`@`%`"
ONE = "GRANT SELECT ON `app`.`one` TO `u`@`%`"
NONE = "GRANT USAGE ON *.* TO `u`@`%`"


def reasons(
    folder: Path, include: str, source: tuple[Sequence[str], str], target: tuple[Sequence[str], str] | None = None
) -> list[str]:
    """Return the reasons of a scope; each side: the tables that are seen, and the user's grants."""
    path = folder / "migverify.yaml"
    path.write_text(
        "source: {url: 'mysql://u@a/'}\ntarget: {url: 'tidb://u@b/'}\n"
        f"tables: {{include: [{include}]}}\nroutes: [{{from: app.*, to: new.*}}]\n"
    )
    scope = Scope(load_config(path), {})
    seen = []
    for endpoint, side in zip(scope.endpoints, (source, target), strict=True):
        if side is not None:
            grants = Grants("u@%", (side[1],), (), (), tuple(grants_in(side[1])))
            seen.append(VisibleTables(endpoint, [(name.split(".")[0], name.split(".")[1]) for name in side[0]], grants))
    return list(unseen(scope, seen))


def test_users_that_see_all_give_no_reason(tmp_path: Path) -> None:
    assert not reasons(tmp_path, "app.*", (["app.one"], APP), (["NEW.One"], ALL))
    assert not reasons(tmp_path, "'*.*'", (["app.one"], ALL), (["new.one"], "GRANT SELECT ON `new`.* TO `u`@`%`"))
    assert not reasons(tmp_path, "'a*.*'", (["app.one"], "GRANT SELECT ON `a%`.* TO `u`@`%`"), (["new.one"], ALL))
    assert not reasons(tmp_path, "app.one", (["app.one"], ONE), (["new.one"], ALL)), "what is spelled out is enough"
    assert not reasons(tmp_path, "app.*", (["app.one"], ALL), ([], ALL)), "absent, and not hidden"


@pytest.mark.parametrize("include", ["'*.*'", "'*.one*'", "'a*.*'", "/app.*/"])
def test_databases_that_may_be_hidden_as_a_whole_are_a_reason(tmp_path: Path, include: str) -> None:
    pattern = include.strip("'")
    hidden = reasons(tmp_path, f"'{pattern}'", (["app.one"], APP), (["new.one"], ALL))
    (reason,) = hidden
    assert reason.startswith(f"source: u may not read every database that {pattern} speaks of, and tables that it")
    assert reason.endswith("are not looked at: GRANT SELECT ON *.*, or name the databases in tables.include")


@pytest.mark.parametrize("include", ["app.*", "'*.*'", "'*.one*'"])
def test_a_database_that_is_seen_in_part_is_a_reason_on_either_side(tmp_path: Path, include: str) -> None:
    hidden = reasons(tmp_path, include, (["app.one"], ONE), (["new.one"], ONE))
    assert [one.partition(" only")[0] for one in hidden if "every database" not in one] == [
        "source: u may read a part of database app", "target: u may read a part of database new",
    ]  # fmt: skip
    assert any("are not looked at: GRANT SELECT ON `app`.*" in one for one in hidden)


def test_a_database_or_table_that_no_source_shows_is_a_reason_where_it_may_be_hidden(tmp_path: Path) -> None:
    hidden = reasons(tmp_path, "app.*, other.*", (["app.one"], APP), (["new.one"], ALL))
    assert [one.partition(" only")[0] for one in hidden] == [
        "source: u may read a part of database other",
        "no table fits tables.include (other.*), or none that a user may see",
    ]  # fmt: skip
    # The target shows it: the pattern fits something, and the source is not looked at all the same.
    hidden = reasons(tmp_path, "app.*, other.*", (["app.one"], APP), (["new.one", "other.t"], ALL))
    assert [one.partition(" only")[0] for one in hidden] == ["source: u may read a part of database other"]
    hidden = reasons(tmp_path, "app.one, app.two", (["app.one"], ONE), (["new.one"], ALL))
    assert hidden[0] == "source: u may not read app.two, so it is not looked at: GRANT SELECT ON `app`.`two`"


def test_a_table_of_the_target_that_may_be_hidden_is_a_reason(tmp_path: Path) -> None:
    hidden = reasons(tmp_path, "app.one", (["app.one"], APP), ([], NONE))
    assert hidden == ["target: u may not read new.one, so it is not looked at: GRANT SELECT ON `new`.`one`"]


def test_of_an_endpoint_that_did_not_answer_nothing_is_said(tmp_path: Path) -> None:
    assert not reasons(tmp_path, "app.one, app.two", (["app.one"], APP))
