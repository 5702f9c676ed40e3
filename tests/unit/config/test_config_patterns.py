"""Patterns, routes and conditions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from migverify.config import (
    Config,
    includes,
    load_config,
    make_route,
    parse_pattern,
    route,
    unmatched_excludes,
    unmatched_includes,
)
from migverify.config.fields import check_condition
from migverify.config.patterns import chosen_patterns, quote_part
from migverify.errors import UsageError

NAME = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12)
ODD = st.text(st.sampled_from("ab*?`/.{}\\1 $("), min_size=1, max_size=8)


def config(folder: Path, rest: str) -> Config:
    path = folder / "m.yaml"
    path.write_text("source: {url: mysql://u@h}\ntarget: {url: tidb://u@h}\n" + rest, encoding="utf-8")
    return load_config(path)


@given(NAME | ODD, NAME | ODD, NAME | ODD)
def test_a_quoted_name_means_exactly_itself(database: str, table: str, other: str) -> None:
    pattern = parse_pattern(f"{quote_part(database)}.{quote_part(table)}")
    assert pattern.matches(database, table)
    assert pattern.matches(database, other) == (other == table)
    assert pattern.matches(other, table) == (other == database)
    to = make_route("*.*", f"{quote_part(database)}.{quote_part(table)}")
    assert to.apply("", "x", "y") == (database, table)


@given(NAME, NAME, ODD, ODD)
def test_stars_carry_what_they_matched(database: str, table: str, before: str, after: str) -> None:
    plain = re.compile(r"[^*?`/.{}]+")
    if not (plain.fullmatch(before) and plain.fullmatch(after)):
        return
    renamed = make_route(f"{before}*{after}.*", "*.new_*").apply("", before + database + after, table)
    assert renamed == (database, "new_" + table)


@given(st.text(max_size=20) | st.text(st.sampled_from("ab*?`/.{}\\1()["), max_size=12))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    refusals = set()
    try:
        parse_pattern(text)
    except ValueError as error:
        refusals.add(type(error))
    assert refusals <= {ValueError}


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("app.*", [("app", "t"), ("app", "a.b")], [("apps", "t"), ("App", "t")]),
        ("a?p.t*x", [("axp", "tx"), ("a.p", "t\nx")], [("ap", "tx")]),
        ("app./t[0-9]+/", [("app", "t12")], [("app", "t12x"), ("app", "xt1")]),
        ("/app|web/./t/", [("app", "t"), ("web", "t")], [("ap", "t")]),
        (r"/app\.(a|b)/", [("app", "a")], [("app", "c"), ("xapp", "a")]),
        (r"app./a\/b/", [("app", "a/b")], [("app", "a\\/b")]),
        ("`a.b`.`c``d*`", [("a.b", "c`d*")], [("a.b", "c`d"), ("a", "b")]),
        ("a(b.[c]", [("a(b", "[c]")], [("a(b", "c")]),
    ],
)
def test_patterns(pattern: str, yes: list[tuple[str, str]], no: list[tuple[str, str]]) -> None:
    compiled = parse_pattern(pattern)
    assert [name for name in yes + no if compiled.matches(*name)] == yes


@pytest.mark.parametrize(
    "pattern", ["", ".", "a", "a.", ".a", "a.b.c", "`a.b", "``.a", "a.//", "/x/y.b", "a./(/", "//"]
)
def test_damaged_patterns(pattern: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    ("source", "to", "name", "expected"),
    [
        ("shard_*.orders_*", "app.orders", ("shard_1", "orders_9"), ("app", "orders")),
        ("old_app.*", "new_app.*", ("old_app", "t"), ("new_app", "t")),
        ("old_*.*", "*.*", ("old_x", "t"), ("x", "t")),
        ("app./(.*)_v2/", "app.{1}", ("app", "t_v2"), ("app", "t")),
        ("a?b_*.t?", "x{2}.t{1}{3}", ("a1b_22", "t3"), ("x22", "t13")),
        (r"/(\w+)\.(\w+)_(old|new)/", "{3}.{1}_{2}", ("app", "t_old"), ("old", "app_t")),
        ("a.b", "`x.*`.`{1}`", ("a", "b"), ("x.*", "{1}")),
    ],
)
def test_routes(source: str, to: str, name: tuple[str, str], expected: tuple[str, str]) -> None:
    assert make_route(source, to).apply("", *name) == expected


@pytest.mark.parametrize("to", ["a", "a.b.c", "a.?", "a./b/", "a.{0}", "a.{9}", "*.b*", "a.**"])
def test_damaged_routes(to: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        make_route("x.t*", to)


def test_first_matching_route_wins(tmp_path: Path) -> None:
    made = config(
        tmp_path,
        "routes: [{from: a.t, to: x.t}, {shard: 'eu_?', from: 'a.*', to: 'eu.*'}, {from: 'a.*', to: 'b.*'}]",
    )
    assert route(made, "eu_1", "a", "t") == ("x", "t")
    assert route(made, "eu_1", "a", "u") == ("eu", "u")
    assert route(made, "us_1", "a", "u") == ("b", "u")
    assert route(made, "", "c", "u") == ("c", "u")


def test_system_databases_need_their_name(tmp_path: Path) -> None:
    everything = config(tmp_path, "tables: {include: ['*.*', '/.*/', '/mysql/.*', 'sys.*'], exclude: ['app.tmp_?']}")
    assert includes(everything, "app", "t")
    assert includes(everything, "sys", "sys_config")
    assert not includes(everything, "mysql", "user")
    assert not includes(everything, "INFORMATION_SCHEMA", "TABLES")
    assert not includes(everything, "tidb_cdc", "x")
    assert not includes(everything, "app", "tmp_1")
    assert includes(everything, "app", "tmp_11")


def test_patterns_that_match_nothing_are_named(tmp_path: Path) -> None:
    made = config(tmp_path, "tables: {include: ['app.*', 'ap.*', 'web.t']}")
    assert [p.text for p in unmatched_includes(made, [("app", "t"), ("web", "u")])] == ["ap.*", "web.t"]


@pytest.mark.parametrize(
    "text",
    ["a = 1", " deleted = 0 ", "a = 'x;--#/*' AND `a#b` = \"--\"", "(a) or (b)", r"a = 'it\'s' and (b = 'it''s')",
     "a - -1 > 0", "a / b * c > 0", "a = '\\\\'", "`a``b;` = 1"],
)  # fmt: skip
def test_conditions(text: str) -> None:
    assert check_condition(text) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["", "  ", "a = 1 -- live rows", "a = 1 # live", "a /* x */ = 1", "a; drop table t", "a) or (b", "(a", "a = 'x",
     'a = "x', "a = `x", r"a = 'x\'", "a = `x\\` -- `", "a\0b", "a = 1 /*! or 1 */"],
)  # fmt: skip
def test_refused_conditions(text: str) -> None:
    with pytest.raises(ValueError, match="condition"):
        check_condition(text)


@pytest.mark.parametrize("text", ["nodot", "", ".", "a.", ".b", "`a", "/x", "a..b*.c"])
def test_a_text_that_is_no_pattern_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError, match="--tables") as refused:
        chosen_patterns(["a.b", text])
    assert "backticks" in refused.value.hint
    assert "a backtick in it is doubled" in refused.value.hint


@given(NAME, NAME)
@example("shop", "stock.v2.we ird`tab.le")
def test_a_name_as_it_is_printed_chooses_its_table(database: str, table: str) -> None:
    """`shop.eu`.items is printed shop.eu.items: that is what people paste."""
    printed = f"{database}.{table}"
    if set(printed) & set("*?/{}") or any(part[:1] == "`" for part in printed.split(".")):
        return
    if printed.count(".") == 1 and any(letter.isspace() or letter == "`" for letter in printed):
        return
    (pattern,) = chosen_patterns([printed])
    assert pattern.matches(database, table)
    assert not pattern.matches(database + "x", table)


def test_an_excluded_name_that_fits_no_table_is_known_and_a_wildcard_may_fit_none_today(tmp_path: Path) -> None:
    exclude = "[app.log, app.t9, 'app.tmp_*', '/app\\.x/', '*.t8', mysql.user, App.t]"
    made = config(tmp_path, f"tables: {{include: ['app.*'], exclude: {exclude}}}\n")
    names = [("app", "log"), ("app", "t")]
    assert [p.text for p in unmatched_excludes(made, names)] == ["app.t9", "App.t"]
