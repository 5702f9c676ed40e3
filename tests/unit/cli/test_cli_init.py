"""``init`` without servers: guesses, notes, and the file it writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from migverify.cli import init, survey
from migverify.cli.main import run
from migverify.cli.survey import Survey, guess_routes, notes
from migverify.config import load_config, make_route
from migverify.errors import UsageError
from migverify.model import Endpoint

NAME = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0") | st.sampled_from("a1_*?`/.{}$'\"\n# :"),
    min_size=1,
    max_size=8,
)
SETTINGS = {
    "time_zone": "SYSTEM",
    "system_time_zone": "UTC",
    "lower_case_table_names": "0",
    "character_set_server": "utf8mb4",
}


def seen(name: str, tables: dict[str, list[str]], keyed: bool = True, **settings: str) -> Survey:
    rows = {(database, table): 5 for database, held in tables.items() for table in held}
    return Survey(
        endpoint=Endpoint(name, "h", 1, "u"),
        version="9.7.4",
        flavor="mysql",
        databases=tuple(sorted(tables)),
        rows=rows,
        keyed=frozenset(rows) if keyed else frozenset(),
        settings=SETTINGS | settings,
    )


def routed(source: dict[str, list[str]], target: dict[str, list[str]]) -> dict[tuple[str, str], tuple[str, str]]:
    routes = [make_route(guess.source, guess.to) for guess in guess_routes(source, target)]
    result = {}
    for database, tables in source.items():
        for table in tables:
            for candidate in routes:
                name = candidate.apply("", database, table)
                if name is not None:
                    result[(database, table)] = name
                    break
    return result


def test_equal_names_need_no_route() -> None:
    assert guess_routes({"app": ["t"], "web": ["u"]}, {"app": ["t"], "web": [], "other": ["u"]}) == []


def test_renamed_database() -> None:
    guessed = routed({"old": ["a", "b", "c"]}, {"new": ["a", "b"], "far": ["c"]})
    assert guessed[("old", "a")] == ("new", "a")
    assert guessed[("old", "c")] == ("new", "c")


def test_where_several_databases_hold_the_tables_equally_none_is_guessed() -> None:
    """A stale copy may hold equal rows: compared with it, the tables would be MATCH."""
    assert guess_routes({"old": ["a", "b"]}, {"copy": ["a", "b"], "new": ["a", "b", "c"]}) == []
    assert guess_routes({"app": ["a"]}, {"App": ["a"], "APP": ["a"]}) == []
    assert routed({"old": ["a", "b"]}, {"copy": ["a"], "new": ["a", "b"]})[("old", "a")] == ("new", "a")


def test_too_little_in_common_is_no_guess() -> None:
    assert guess_routes({"old": ["a", "b", "c"]}, {"new": ["a"]}) == []


def test_numbered_databases_and_tables() -> None:
    source = {f"shard_{n:02}": [f"orders_{m}" for m in range(3)] + ["users", "orders_archive"] for n in range(4)}
    guessed = routed(source, {"app": ["orders", "users", "orders_archive"]})
    assert guessed[("shard_03", "orders_2")] == ("app", "orders")
    assert guessed[("shard_03", "users")] == ("app", "users")
    assert guessed[("shard_03", "orders_archive")] == ("app", "orders_archive")


def test_numbered_tables_in_a_database_of_the_same_name() -> None:
    guessed = routed({"app": ["log1", "log2", "log"]}, {"app": ["log"]})
    assert guessed == {("app", "log1"): ("app", "log"), ("app", "log2"): ("app", "log")}


def test_odd_characters_in_numbered_names() -> None:
    stem = "a/b\\.*`{1}"
    source = {f"{stem}{n}": [f"{stem}_{m}" for m in (1, 2)] for n in (1, 2)}
    guessed = routed(source, {"new*`": [stem]})
    assert set(guessed.values()) == {("new*`", stem)}
    assert len(guessed) == 4


def test_a_database_of_another_source_is_not_a_home() -> None:
    assert guess_routes({"a": ["t"], "b": ["t"]}, {"b": ["t"]}) == []


def test_a_database_that_was_not_chosen_is_not_a_home_either() -> None:
    """``--database billing``: the target's `shop` is that of the source's `shop`, whatever tables it has."""
    target = {"shop": ["items"], "App": ["t"]}
    assert guess_routes({"billing": ["items"]}, target, {"billing", "shop"}) == []
    assert guess_routes({"app": ["u"]}, target, {"app", "App"}) == []
    assert [one.to for one in guess_routes({"billing": ["items"]}, target)] == ["shop.*"]


def test_a_database_of_the_source_is_not_a_home_in_another_case_either() -> None:
    """A target that folds names has the source's `Shop` as `shop`."""
    assert guess_routes({"billing": ["items"]}, {"shop": ["items"]}, {"billing", "Shop"}) == []
    assert guess_routes({"billing": ["items"], "Shop": ["items"]}, {"shop": ["items"]})[0].source == "Shop.*"


def test_a_guess_is_said_on_the_screen_and_not_only_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = {
        "source": seen("source", {"billing": ["items"], "shop": ["orders"]}),
        "target": seen("target", {"bills": ["items"], "shop": ["orders", "items"]}),
    }
    monkeypatch.setattr(survey, "survey", lambda endpoint: sides[endpoint.name])
    output = tmp_path / "m.yaml"
    urls = ["--source", "mysql://u@a", "--target", "tidb://u@b"]
    assert run(["init", *urls, "--database", "billing", "-o", str(output)]) == 0
    assert "guessed: billing.* is bills.* on the target" in capsys.readouterr().err
    assert [route.to for route in load_config(output).routes] == ["bills.*"]


def test_a_numbered_name_that_both_sides_have_is_caught_by_no_pattern_of_its_family() -> None:
    tables = ["orders_1", "orders_2", "orders_7"]
    assert routed({"app": tables}, {"app": ["orders", "orders_7"]}) == {
        ("app", "orders_1"): ("app", "orders"), ("app", "orders_2"): ("app", "orders"),
    }  # fmt: skip
    source = {f"shard_{number}": ["t", "u"] for number in (1, 2, 3)}
    assert routed(source, {"whole": ["t", "u"], "shard_3": ["t", "u"]}) == {
        (f"shard_{number}", table): ("whole", table) for number in (1, 2) for table in ("t", "u")
    }


def test_notes() -> None:
    source = seen("source", {"app": ["T", "t"]}, system_time_zone="JST")
    target = seen("target", {}, lower_case_table_names="2", time_zone="UTC")
    found = "\n".join(notes([source], target))
    assert "time_zone is SYSTEM on source and UTC on the target" in found
    assert "system_time_zone is JST" in found
    assert "lower_case_table_names is 0" in found
    assert "app.T, app.t" in found
    assert notes([seen("source", {})], seen("target", {}, system_time_zone="Etc/UTC")) == []


DATABASES = st.dictionaries(NAME, st.lists(NAME, unique=True, max_size=4), max_size=4)


@settings(max_examples=40)
@given(DATABASES, DATABASES, st.booleans())
def test_whatever_the_names_the_file_is_valid(
    tmp_path_factory: pytest.TempPathFactory, source: dict[str, list[str]], target: dict[str, list[str]], keyed: bool
) -> None:
    text = init._document(
        [("", "mysql://u@h")],
        "tidb://u@h",
        ("A", None),
        [seen("source", source, keyed, time_zone="a\nb")],
        seen("target", target),
        guess_routes(source, target),
    )
    path = tmp_path_factory.mktemp("init") / "m.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    config = load_config(path, environment={})
    for database, tables in source.items():
        for table in tables:
            assert any(pattern.matches(database, table) for pattern in config.tables.include)
    assert (config.sources[0].password_env, config.target.password_env) == ("A", None)


def test_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.yaml"
    assert run(["init", "-o", str(path)]) == 0
    assert load_config(path).sources[0].password_env == "SOURCE_PASSWORD"
    assert "a template" in capsys.readouterr().err
    path.write_text("mine")
    assert run(["init", "-o", str(path)]) == 2
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert run(["init", "-o", str(path), "--force"]) == 0
    assert path.read_text() != "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["m.yaml"]


def test_commented_keys_of_the_template_are_valid(tmp_path: Path) -> None:
    lines = [line.removeprefix("# ") if ":" in line or "- " in line else line for line in init._REST]
    path = tmp_path / "m.yaml"
    path.write_text("source: {url: mysql://u@h}\ntarget: {url: tidb://u@h}\n" + "\n".join(lines), encoding="utf-8")
    config = load_config(path)
    assert config.overrides[0].key == ("id",)
    assert config.limits.max_threads_running == 50


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--source", "mysql://u@h"], "--target is missing"),
        (["--target", "mysql://u@h"], "--source is missing"),
        (["--source", "mysql://u:hunter2@h", "--target", "tidb://u@h"], "source.url: a password does not belong"),
        (["--source", "mysql://u@h", "--target", "h:hunter2"], "target.url: the URL starts with mysql:// or tidb://"),
        (["--source", "mysql://u@h", "--source", "mysql://u@i", "--target", "tidb://u@h"], "need a name each"),
        (["--source", "a=mysql://u@h", "--source", "a=mysql://u@i", "--target", "tidb://u@h"], "need a name each"),
        (["--source", "mysql://u@h", "--target", "tidb://u@h", "--password-env", "NO_SUCH_PW"], "NO_SUCH_PW"),
        (["--source", "mysql://u@h", "--target", "tidb://u@h", "--password-env", "hunter2!"], "name of an environment"),
        (["-o", "/no/such/folder/m.yaml"], "there is no folder /no/such/folder"),
    ],
)
def test_wrong_options(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run(["init", *arguments]) == 2
    shown = capsys.readouterr()
    assert expected in shown.err
    assert "hunter2" not in shown.err + shown.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("tables", "name", "advice"), [
    ({}, "orders", "u sees no database there. If it exists, GRANT SELECT ON `orders`.* to u (docs/privileges.md)."),
    ({"orders": ["t"]}, "order", "Did you mean orders? If it exists, GRANT SELECT ON `order`.* to u"),
    ({"web": ["t"]}, "orders", "u sees: web. If it exists, GRANT"),
])  # fmt: skip
def test_a_database_that_the_user_does_not_see_may_be_there(
    tables: dict[str, list[str]], name: str, advice: str
) -> None:
    """A server lists only databases on which the user has a grant."""
    with pytest.raises(UsageError, match=f"source has no database {name} that u may see") as refused:
        init._limited(seen("source", tables), [name])
    assert str(refused.value.hint).startswith(advice)
