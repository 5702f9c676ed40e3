"""How two table definitions are compared and their columns paired."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import ColumnDef, NotCovered, SchemaClass, SchemaDifference, TableDef
from migverify.sql.spelling import normal_default, normal_expression, normal_type, rewritten_equally
from migverify.tables.columns import column_pairs
from migverify.tables.schema import compare_tables
from migverify.tables.type_change import CHARSET_BYTES, collation_change, holds_charset
from tests.definitions import column, key, table

BREAKS, LOSES, COSMETIC = SchemaClass.BREAKS_COMPARISON, SchemaClass.MAY_LOSE_DATA, SchemaClass.COSMETIC


def _differences(source: ColumnDef, target: ColumnDef) -> list[SchemaDifference]:
    return compare_tables(table(source), table(target, endpoint="target"))


def _levels(found: list[SchemaDifference]) -> list[tuple[str, SchemaClass]]:
    return [(difference.kind, difference.level) for difference in found]


# --- types ------------------------------------------------------------------------------------------------------

SAME = [
    ("tinyint unsigned", "tinyint(1) unsigned"),
    ("int", "int(11)"),
    ("int(5) unsigned zerofill", "int(5) unsigned"),
    ("bigint", "bigint(20)"),
    ("year", "year(4)"),
    ("decimal(10,2)", "decimal(10, 2)"),
    ("tinyint(1)", "tinyint(4)"),
]


@pytest.mark.parametrize(("source", "target"), SAME)
def test_display_width_is_no_difference(source: str, target: str) -> None:
    assert _differences(column("c", source), column("c", target)) == []


TYPES = [
    ("varchar(20)", "varchar(10)", LOSES, "above 10 characters"),
    ("varchar(10)", "varchar(20)", COSMETIC, "holds every value"),
    ("bigint", "int", LOSES, "above 2147483647"),
    ("int", "bigint", COSMETIC, "holds every value"),
    ("int unsigned", "int", LOSES, "above 2147483647"),
    ("int", "int unsigned", LOSES, "below 0"),
    ("int unsigned", "bigint", COSMETIC, "holds every value"),
    ("bigint unsigned", "bigint", LOSES, "above 9223372036854775807"),
    ("datetime(6)", "datetime", LOSES, "6 digits of a second are rounded to 0"),
    ("datetime(3)", "datetime(6)", COSMETIC, "holds every value"),
    ("time(6)", "time(3)", LOSES, "rounded to 3"),
    ("decimal(10,4)", "decimal(10,2)", LOSES, "4 decimal places are rounded to 2"),
    ("decimal(10,2)", "decimal(10,4)", LOSES, "above 999999"),
    ("decimal(10,2)", "decimal(12,2)", COSMETIC, "holds every value"),
    ("decimal(4,2)", "decimal(5,3)", COSMETIC, "holds every value"),
    ("decimal(5,2)", "decimal(5,2) unsigned", LOSES, "below 0"),
    ("decimal(1,1)", "decimal(1,1) unsigned", LOSES, "below 0"),
    ("int", "decimal(10,0)", COSMETIC, "holds every value"),
    ("int", "decimal(9,0)", LOSES, "above 999999999"),
    ("decimal(5,0)", "int", COSMETIC, "holds every value"),
    ("bit(8)", "bit(4)", LOSES, "above 15"),
    ("bit(8)", "tinyint", LOSES, "above 127"),
    ("bit(8)", "tinyint unsigned", COSMETIC, "holds every value"),
    ("year", "smallint", COSMETIC, "holds every value"),
    ("double", "float", LOSES, "about 7 digits"),
    ("float", "double", COSMETIC, "every FLOAT is a DOUBLE"),
    ("double", "double(10,2)", LOSES, "rounded to double(10,2)"),
    ("double(10,2)", "double", COSMETIC, "holds every value"),
    ("double(10,3)", "double(12,2)", LOSES, "rounded to"),
    ("int", "double", LOSES, "binary fraction"),
    ("decimal(30,2)", "double", LOSES, "binary fraction"),
    ("double", "decimal(30,10)", LOSES, "exponents"),
    ("timestamp", "datetime", LOSES, "time zone"),
    ("datetime", "timestamp", LOSES, "2038"),
    ("datetime(6)", "timestamp", LOSES, "rounded"),
    ("date", "datetime", COSMETIC, "midnight"),
    ("datetime", "date", LOSES, "time of day"),
    ("char(5)", "varchar(5)", COSMETIC, "trailing spaces"),
    ("varchar(5)", "char(5)", LOSES, "trailing spaces"),
    ("binary(5)", "varbinary(5)", COSMETIC, "pad"),
    ("varbinary(5)", "binary(5)", LOSES, "zero bytes"),
    ("varchar(20)", "text", COSMETIC, "holds every value"),
    ("varchar(20000)", "text", LOSES, "above 65535 bytes"),
    ("varchar(100)", "tinytext", LOSES, "above 255 bytes"),
    ("text", "varchar(5000)", LOSES, "above 5000 characters"),
    ("text", "mediumtext", COSMETIC, "holds every value"),
    ("mediumtext", "text", LOSES, "above 65535 bytes"),
    ("blob", "varbinary(100)", LOSES, "above 100 bytes"),
    ("blob", "longblob", COSMETIC, "holds every value"),
    ("varchar(10)", "varbinary(10)", LOSES, "above 10 bytes"),
    ("varchar(10)", "varbinary(40)", LOSES, "no character set"),
    ("enum('a','bcd')", "varchar(3)", COSMETIC, "any text"),
    ("enum('a','bcd')", "varchar(2)", LOSES, "above 2 characters"),
    ("set('a','bcd')", "varchar(5)", COSMETIC, "any text"),
    ("set('a','bcd')", "varchar(4)", LOSES, "above 4 characters"),
    ("varchar(3)", "enum('a')", LOSES, "only the labels"),
    ("json", "longtext", COSMETIC, "not checked"),
    ("longtext", "json", LOSES, "valid JSON"),
]


@pytest.mark.parametrize(("source", "target", "level", "words"), TYPES)
def test_types(source: str, target: str, level: SchemaClass, words: str) -> None:
    found = [
        difference for difference in _differences(column("c", source), column("c", target)) if difference.kind == "type"
    ]
    assert [difference.level for difference in found] == [level]
    assert words in found[0].message
    assert (found[0].source, found[0].target, found[0].where) == (source, target, "c")


@pytest.mark.parametrize(
    ("source", "target"), [("json", "int"), ("geometry", "geometry"), ("date", "time"), ("int", "varchar(3)")]
)
def test_types_without_common_text_break_the_comparison(source: str, target: str) -> None:
    found = _differences(column("c", source), column("c", target))
    assert found[0].level is BREAKS
    assert "not compared" in found[0].message


INTEGERS = [
    f"{kind}{sign}" for kind in ("tinyint", "smallint", "mediumint", "int", "bigint") for sign in ("", " unsigned")
]
EXACT = st.sampled_from(INTEGERS) | st.integers(1, 65).flatmap(
    lambda p: st.tuples(st.integers(0, min(p, 30)), st.sampled_from(["", " unsigned"])).map(
        lambda rest: f"decimal({p},{rest[0]}){rest[1]}"
    )
)


@given(EXACT, EXACT)
def test_of_two_exact_number_types_each_loses_or_holds_all(one: str, other: str) -> None:
    there = [
        d.level
        for d in _differences(column("c", one), column("c", other))
        if d.kind == "type" and d.level is not BREAKS
    ]
    back = [
        d.level
        for d in _differences(column("c", other), column("c", one))
        if d.kind == "type" and d.level is not BREAKS
    ]
    if normal_type(column("c", one)) == normal_type(column("c", other)):
        assert there == back == []
    else:
        assert len(there) == len(back) == 1
        # Values of two different types cannot be the same set, but for bounds that only differ in a fraction.
        assert LOSES in there + back or "decimal" in one + other


# --- character sets and collations --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "target", "level"),
    [
        ("utf8mb4", "utf8mb3", LOSES),
        ("utf8mb4", "utf8", LOSES),
        ("utf8mb4", "latin1", LOSES),
        ("utf8mb3", "utf8mb4", COSMETIC),
        ("latin1", "utf8mb4", COSMETIC),
        ("latin1", "utf8mb3", COSMETIC),
        ("ascii", "latin1", COSMETIC),
        ("latin1", "ascii", LOSES),
        ("gbk", "utf8mb4", COSMETIC),
        ("gbk", "latin1", LOSES),
        ("gb18030", "utf8mb3", LOSES),
        ("utf8", "utf8mb3", None),
    ],
)
def test_character_sets(source: str, target: str, level: SchemaClass | None) -> None:
    sides = [column("c", "varchar(9)", charset=name, collation=f"{name}_bin") for name in (source, target)]
    found = [d for d in _differences(*sides) if d.kind == "charset"]
    assert [d.level for d in found] == ([level] if level else [])


@given(st.sampled_from(sorted(CHARSET_BYTES)), st.sampled_from(sorted(CHARSET_BYTES)))
def test_holding_is_what_python_codecs_say(source: str, target: str) -> None:
    codecs = {
        "latin1": "cp1252",
        "utf8mb4": "utf-8",
        "gbk": "gbk",
        "gb18030": "gb18030",
        "ascii": "ascii",
        "sjis": "shift_jis",
    }
    if source not in codecs or target not in codecs or not holds_charset(source, target):
        return
    for point in [*range(0x20, 0x7F), 0xE9, 0x20AC, 0x8868, 0x1F600]:
        try:
            chr(point).encode(codecs[source])
        except UnicodeEncodeError:
            continue
        chr(point).encode(codecs[target])  # must not fail


@pytest.mark.parametrize(
    ("source", "target", "otherwise", "words"),
    [
        (
            "utf8mb4_0900_ai_ci",
            "utf8mb4_bin",
            True,
            "stricter: it tells letters of different case and letters of different accent",
        ),
        ("utf8mb4_bin", "utf8mb4_general_ci", True, "looser: it takes letters of different case"),
        ("utf8mb4_0900_ai_ci", "utf8mb4_unicode_ci", True, "looser: it takes texts that differ in trailing spaces"),
        ("utf8mb4_bin", "utf8mb4_0900_bin", True, "stricter: it tells texts that differ in trailing spaces"),
        ("utf8mb4_0900_ai_ci", "utf8mb4_0900_as_ci", True, "stricter: it tells letters of different accent apart"),
        ("utf8mb4_0900_as_cs", "utf8mb4_0900_bin", False, "single characters"),
        ("utf8mb4_general_ci", "utf8mb4_unicode_ci", False, "single characters"),
        ("utf8mb3_general_ci", "utf8mb4_general_ci", False, "the same texts"),
        ("latin1_swedish_ci", "utf8mb4_general_ci", False, "single characters"),
        ("latin1_bin", "utf8mb4_bin", False, "the same texts"),
    ],
)
def test_collations(source: str, target: str, otherwise: bool, words: str) -> None:
    message, changed = collation_change(source, target)
    assert changed is otherwise
    assert words in message


def test_collation_level_and_unique_key() -> None:
    ours, theirs = (column("c", "varchar(9)", collation=c) for c in ("utf8mb4_general_ci", "utf8mb4_unicode_ci"))
    assert _levels(_differences(ours, theirs)) == [("collation", COSMETIC)]
    found = compare_tables(table(ours, key("u", "c", unique=True)), table(theirs, key("u", "c", unique=True)))
    assert _levels(found) == [("collation", LOSES)]
    assert "a unique key holds this column" in found[0].message
    strict = column("c", "varchar(9)", collation="utf8mb4_bin")
    assert _levels(_differences(ours, strict)) == [("collation", LOSES)]
    old, new = (
        column("c", "varchar(9)", collation=c, charset="utf8mb3") for c in ("utf8_general_ci", "utf8mb3_general_ci")
    )
    assert _differences(old, new) == []


# --- attributes ---------------------------------------------------------------------------------------------------

DEFAULTS = [
    ("decimal(10,2)", "1.00", "1", True),
    ("decimal(10,2)", "1.00", "1.01", False),
    ("int", "0", "-0", True),
    ("int", "10", "1", False),
    ("int", "100", "1", False),
    ("bit(5)", "b'00101'", "b'101'", True),
    ("double", "1e300", "1e+300", True),
    ("double", "0.00001", "1e-5", True),
    ("float", "1.50", "1.5", True),
    ("year", "70", "1970", True),
    ("year", "20", "2020", True),
    ("datetime", "2020-01-02", "2020-01-02 00:00:00", True),
    ("datetime(6)", "2020-01-02 03:04:05.100000", "2020-01-02 03:04:05.1", True),
    ("datetime", "2020-01-02 03:04:05", "2020-01-02 03:04:50", False),
    ("timestamp", "CURRENT_TIMESTAMP", "now()", True),
    ("timestamp(6)", "CURRENT_TIMESTAMP(6)", "CURRENT_TIMESTAMP", False),
    ("datetime", None, "NULL", True),
    ("int", None, "0", False),
    ("varchar(9)", None, "NULL", False),
    ("varchar(9)", "1.00", "1", False),
    ("varchar(9)", "", None, False),
    ("varchar(9)", "a", "A", False),
    ("varchar(9)", "?", "😀", True),
    ("varbinary(9)", "0x6100", "a\0", True),
    ("varbinary(9)", "0x61", "b", False),
]


@pytest.mark.parametrize(("kind", "source", "target", "same"), DEFAULTS)
def test_defaults(kind: str, source: str | None, target: str | None, same: bool) -> None:
    ours, theirs = column("c", kind, default=source), column("c", kind, default=target)
    assert (normal_default(ours) == normal_default(theirs)) is same
    assert _levels(_differences(ours, theirs)) == ([] if same else [("default", LOSES)])


def test_expression_defaults() -> None:
    ours = column("c", "date", default="curdate()", extra="DEFAULT_GENERATED")
    theirs = column("c", "date", default="CURRENT_DATE", extra="DEFAULT_GENERATED")
    assert _differences(ours, theirs) == []
    text = column("c", "varchar(36)", default="uuid()", extra="DEFAULT_GENERATED")
    assert _levels(_differences(text, column("c", "varchar(36)", default="uuid()"))) == [("default", LOSES)]


EXPRESSIONS = [
    ("((`a` + 1) * 2)", "(`a` + 1) * 2", True),
    ("concat(`b`,_utf8mb4\\'a\\\\\\'b\\')", "concat(`b`, _utf8mb4'a''b')", True),
    ("curdate()", "CURRENT_DATE", True),
    ("cast(`a` as char charset utf8mb4)", "cast(`a` as char)", True),
    ("(0 = `a`)", "not `a`", True),
    ("(_utf8mb4\\'2020-01-01\\' + interval 1 day)", "date_add(_utf8mb4'2020-01-01', interval 1 day)", True),
    ("(`d` - interval 1 day)", "date_add(`d`, interval 1 day)", False),
    ("regexp_like(`b`,_utf8mb4\\'x\\')", "`b` regexp _utf8mb4'x'", True),
    ("json_unquote(json_extract(`j`,_utf8mb4\\'$.a\\'))", "json_unquote(json_extract(`j`, _utf8mb4'$.a'))", True),
    ("`a` + 1", "`a` + 2", False),
    ("`a` + 1", "`b` + 1", False),
    ("concat(`a`,'x')", "concat(`a`,'X')", False),
    ("concat(`a`,'b c')", "concat(`a`,'bc')", False),
    ("lower(`a`)", "upper(`a`)", False),
]


@pytest.mark.parametrize(("source", "target", "same"), EXPRESSIONS)
def test_expressions(source: str, target: str, same: bool) -> None:
    assert (normal_expression(source) == normal_expression(target)) is same
    found = _differences(column("c", generation=source), column("c", generation=target))
    assert _levels(found) == ([] if same else [("generated", LOSES)])


def test_rewritten_conditions_are_cosmetic() -> None:
    ours, theirs = "((`a` <= 1) or (`b` <> _utf8mb4\\'x\\'))", "not (`a` > 1 and `b` = _utf8mb4'x')"
    assert rewritten_equally(ours, theirs)
    assert not rewritten_equally(ours, theirs.replace("'x'", "'y'"))
    assert _levels(_differences(column("c", generation=ours), column("c", generation=theirs))) == [
        ("generated", COSMETIC)
    ]


@given(st.text(st.sampled_from("ab'`\\()_ 0+,") | st.characters(exclude_categories=("Cs",)), max_size=40))
def test_any_text_can_be_an_expression(text: str) -> None:
    assert normal_expression(text) == normal_expression(text)
    assert rewritten_equally(text, text)


ATTRIBUTES: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, SchemaClass]]]] = [
    ({"nullable": False}, {"nullable": True}, [("nullability", COSMETIC)]),
    ({"nullable": True}, {"nullable": False}, [("nullability", LOSES)]),
    ({"extra": "auto_increment"}, {"extra": ""}, [("auto", LOSES)]),
    ({"extra": ""}, {"extra": "auto_increment"}, [("auto", COSMETIC)]),
    ({"extra": "auto_increment"}, {"extra": "auto_random(5)"}, [("auto", COSMETIC)]),
    ({"extra": "auto_random(5)"}, {"extra": "auto_random(6)"}, [("auto", COSMETIC)]),
    ({"extra": "on update CURRENT_TIMESTAMP"}, {"extra": ""}, [("on-update", LOSES)]),
    ({"extra": "DEFAULT_GENERATED on update CURRENT_TIMESTAMP"}, {"extra": "DEFAULT_GENERATED on update now()"}, []),
    ({"generation": "a"}, {"generation": ""}, [("generated", LOSES)]),
    ({"generation": "a", "stored": False}, {"generation": "a"}, [("generated", COSMETIC)]),
    ({"invisible": True}, {}, [("visibility", COSMETIC)]),
]


@pytest.mark.parametrize(("source", "target", "levels"), ATTRIBUTES)
def test_attributes(source: dict[str, Any], target: dict[str, Any], levels: list[tuple[str, SchemaClass]]) -> None:
    assert _levels(_differences(column("c", **source), column("c", **target))) == levels


LABELS = [
    ("enum('a','b')", "enum('a','b')", []),
    ("enum('a','b')", "enum('a','b','c')", [COSMETIC]),
    ("enum('a','b')", "enum('c','a','b')", [LOSES, COSMETIC]),
    ("enum('a','b')", "enum('b','a')", [LOSES]),
    ("enum('a','b')", "enum('a')", [LOSES]),
    ("enum('a','b')", "enum('b')", [LOSES]),
    ("enum('a','b')", "enum('A','b')", [LOSES, COSMETIC]),
    ("set('a','b')", "set('a')", [LOSES]),
    ("enum('a,b')", "enum('a','b')", [LOSES, COSMETIC]),
    ("enum('a\\nb')", "enum('a\\\\nb')", [COSMETIC]),
    ("enum('?')", "enum('😀')", [COSMETIC]),
]


@pytest.mark.parametrize(("source", "target", "levels"), LABELS)
def test_labels(source: str, target: str, levels: list[SchemaClass]) -> None:
    found = [d for d in _differences(column("c", source), column("c", target)) if d.kind == "members"]
    assert [d.level for d in found] == levels


# --- keys ---------------------------------------------------------------------------------------------------------

A, B = column("a"), column("b", "varchar(20)")
KEYS: list[tuple[list[Any], list[Any], list[tuple[str, SchemaClass]], str]] = [
    ([key("PRIMARY", "a")], [key("PRIMARY", "a")], [], ""),
    ([key("PRIMARY", "a")], [], [("key-missing", LOSES)], "uniqueness is not enforced"),
    (
        [key("PRIMARY", "a")],
        [key("u", "a", unique=True)],
        [("key-missing", COSMETIC), ("key-extra", LOSES)],
        "still enforced",
    ),
    (
        [key("u", "a", unique=True)],
        [key("k", "a")],
        [("key-missing", LOSES), ("key-extra", COSMETIC)],
        "became KEY (a)",
    ),
    ([key("k", "a")], [], [("key-missing", COSMETIC)], "slower"),
    ([], [key("k", "a")], [("key-extra", COSMETIC)], "only the target"),
    ([], [key("u", "a", unique=True)], [("key-extra", LOSES)], "are refused"),
    (
        [key("u", "a", "b", unique=True)],
        [key("u", "b", "a", unique=True)],
        [("key-missing", LOSES), ("key-extra", LOSES)],
        "",
    ),
    (
        [key("u", "b(5)", unique=True)],
        [key("u", "b", unique=True)],
        [("key-missing", LOSES), ("key-extra", LOSES)],
        "b(5)",
    ),
    ([key("k", "b(20)")], [key("k", "b")], [], ""),
    ([key("k", "a")], [key("fk_1", "a")], [("key-name", COSMETIC)], "another name"),
    ([key("k", "a")], [key("k", "a", visible=False)], [("key-visibility", COSMETIC)], "INVISIBLE"),
    ([key("k", "(lower(`b`))")], [key("k", "(LOWER(b))")], [], ""),
    (
        [key("k", "(lower(`b`))")],
        [key("k", "(upper(b))")],
        [("key-missing", COSMETIC), ("key-extra", COSMETIC)],
        "lower",
    ),
    ([key("j", "a"), key("k", "a")], [key("k", "a"), key("j", "a")], [], ""),
    ([key("j", "a"), key("k", "a")], [key("k", "a")], [("key-missing", COSMETIC)], "key j"),
]


@pytest.mark.parametrize(("source", "target", "levels", "words"), KEYS)
def test_keys(source: list[Any], target: list[Any], levels: list[tuple[str, SchemaClass]], words: str) -> None:
    found = compare_tables(table(A, B, *source), table(A, B, *target))
    assert sorted(_levels(found)) == sorted(levels)
    assert not words or any(words in difference.message for difference in found)


def test_keys_follow_renamed_columns() -> None:
    target = table(column("A2"), B, key("PRIMARY", "A2"))
    found = compare_tables(table(A, B, key("PRIMARY", "a")), target, {"a": "A2"})
    assert _levels(found) == [("column-name", COSMETIC)]


# --- tables -------------------------------------------------------------------------------------------------------


def test_table_options_are_cosmetic() -> None:
    source = table(A, name="d.Orders", comment="x", collation="utf8mb4_bin")
    target = table(A, name="d.orders", comment="y", collation="utf8mb4_general_ci", partitioned=True)
    found = compare_tables(source, target)
    assert {d.kind for d in found} == {"table-name", "comment", "table-collation", "partitioning"}
    assert {d.level for d in found} == {COSMETIC}
    assert compare_tables(table(A, name="a.x"), table(A, name="b.y")) == []  # routed: no difference


def test_column_order() -> None:
    found = compare_tables(table(A, B), table(B, A))
    assert _levels(found) == [("column-order", COSMETIC)]
    assert compare_tables(table(A, B), table(A, column("x"), B))[0].kind == "column-extra"


def test_extra_column_that_refuses_inserts_says_so() -> None:
    found = compare_tables(table(A), table(A, column("x", nullable=False)))
    assert "inserts made for the source fail" in found[0].message
    assert "fail" not in compare_tables(table(A), table(A, column("x")))[0].message


def test_ignored_columns_make_no_difference() -> None:
    source, target = table(column("A"), column("x")), table(column("A", "json"), column("y"))
    assert compare_tables(source, target, ignored=["a", "X", "y"]) == []


# --- pairing columns ----------------------------------------------------------------------------------------------


def _names(pairs: list[tuple[ColumnDef, ColumnDef]]) -> list[tuple[str, str]]:
    return [(ours.name, theirs.name) for ours, theirs in pairs]


def _table(*names: str) -> TableDef:
    return table(*(column(name) for name in names))


def test_exact_names_before_names_in_another_case() -> None:
    pairs, rest = column_pairs(_table("ID", "b"), _table("b", "id"))
    assert _names(pairs) == [("ID", "id"), ("b", "b")]
    assert rest == []


def test_an_unclear_case_is_not_guessed() -> None:
    pairs, rest = column_pairs(_table("Ab"), _table("aB", "AB"))
    assert pairs == []
    assert rest == [
        NotCovered("Ab", "only the source has this column"),
        NotCovered("aB", "only the target has this column"),
        NotCovered("AB", "only the target has this column"),
    ]
    pairs, _ = column_pairs(_table("Ab", "aB"), _table("AB"))
    assert pairs == []
    pairs, _ = column_pairs(_table("Ab", "AB"), _table("AB", "ab"))
    assert _names(pairs) == [("Ab", "ab"), ("AB", "AB")]


def test_renames_bind() -> None:
    pairs, rest = column_pairs(_table("a", "b"), _table("b", "a"), {"A": "B", "b": "a"})
    assert _names(pairs) == [("a", "b"), ("b", "a")]
    assert rest == []
    pairs, rest = column_pairs(_table("a"), _table("a"), {"a": "z"})
    assert pairs == []
    assert rest[0] == NotCovered("a", "renamed to z by configuration, and the target has no such column left")


def test_ignored_columns_are_listed_not_compared() -> None:
    pairs, rest = column_pairs(_table("a", "b", "c"), _table("a", "B", "d"), ignored=["B", "c", "D"])
    assert _names(pairs) == [("a", "a")]
    assert rest == [NotCovered(name, "ignored by configuration") for name in ("b", "c", "d")]


def test_generated_and_invisible_columns_take_part() -> None:
    columns = [column("g", generation="a + 1"), column("i", invisible=True)]
    pairs, rest = column_pairs(table(*columns), table(*columns))
    assert _names(pairs) == [("g", "g"), ("i", "i")]
    assert rest == []


COLUMN_NAMES = st.lists(st.text("aAbB", min_size=1, max_size=2), unique=True, max_size=6)


@given(
    COLUMN_NAMES, COLUMN_NAMES, st.dictionaries(st.text("aAbB", min_size=1, max_size=2), st.text("aAbB", min_size=1))
)
def test_every_column_is_paired_once_or_listed(source: list[str], target: list[str], renames: dict[str, str]) -> None:
    pairs, rest = column_pairs(_table(*source), _table(*target), renames)
    ours = [a.name for a, _ in pairs] + [n.what for n in rest if "only the target" not in n.reason]
    theirs = [b.name for _, b in pairs] + [n.what for n in rest if "only the target" in n.reason]
    assert sorted(ours) == sorted(source)
    assert sorted(theirs) == sorted(target)
    if not renames:
        assert set(source) & set(target) == {a.name for a, b in pairs if a.name == b.name}
    breaking = [d for d in compare_tables(_table(*source), _table(*target), renames) if d.level is BREAKS]
    assert len(breaking) == len(rest)
