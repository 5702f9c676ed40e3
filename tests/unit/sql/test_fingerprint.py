"""The canonical form: one meaning has one, order does not count, and it agrees with the comparison."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from migverify.model import ColumnDef, IndexDef, TableDef
from migverify.sql.fingerprint import (
    digest,
    implied_keys,
    layout_fingerprint,
    normal_bound,
    table_fingerprint,
    whole_fingerprint,
)
from migverify.sql.parts import (
    CheckConstraint,
    DatabaseObject,
    ForeignKey,
    Partition,
    Partitioning,
    Parts,
    TriggerDef,
    attributes_of,
)
from migverify.sql.spelling import grouped_equally
from migverify.tables.schema import compare_tables
from tests.definitions import column, key, table

TYPES = ("int", "int(11)", "integer", "bigint unsigned", "varchar(9)", "decimal(9,2)", "datetime", "text", "json")
COLUMNS = st.builds(
    lambda kind, nullable, default, comment, invisible: column(
        "?", kind, nullable=nullable, default=default, comment=comment, invisible=invisible
    ),
    st.sampled_from(TYPES), st.booleans(), st.sampled_from([None, "1", "1.0", "x"]), st.sampled_from(["", "why"]),
    st.booleans(),
)  # fmt: skip
RULES = st.sampled_from(["RESTRICT", "NO ACTION", "CASCADE", "SET NULL"])


@st.composite
def schemas(draw: st.DrawFn) -> tuple[TableDef, Parts]:
    columns = [replace(draw(COLUMNS), name=f"c{n}") for n in range(draw(st.integers(1, 4)))]
    names = [c.name for c in columns]
    keys = [key("PRIMARY", names[0])]
    keys += [
        key(draw(st.sampled_from([f"k{n}", "fk_1", names[0]])), draw(st.sampled_from(names)),
            unique=draw(st.booleans()), comment=draw(st.sampled_from(["", "why"])))
        for n in range(draw(st.integers(0, 3)))
    ]  # fmt: skip
    keys = list({index.name: index for index in keys}.values())
    foreign = [
        ForeignKey(draw(st.sampled_from(["t_ibfk_1", "fk_1", "mine"])), (draw(st.sampled_from(names)),), ("d", "p"),
                   ("id",), draw(RULES), draw(RULES))
        for _ in range(draw(st.integers(0, 1)))
    ]  # fmt: skip
    checks = draw(st.lists(st.builds(CheckConstraint, st.sampled_from(["t_chk_1", "CONSTRAINT_1", "named"]),
        st.sampled_from(["(`c0` > 3)", "c0 > 3", "`c0` < 9"]), st.booleans()),
        max_size=2, unique_by=lambda c: c.name))  # fmt: skip
    triggers = draw(st.lists(st.builds(TriggerDef, st.just("tr"), st.just("BEFORE"), st.just("INSERT"), st.just(1),
                                       st.sampled_from(["SET NEW.a = 1", "SET  NEW.a = 1", "SET NEW.a = 2"])),
                             max_size=1))  # fmt: skip
    parts = Parts(tuple(foreign), tuple(checks), tuple(triggers), draw(PARTITIONS))
    return table(*columns, *keys, comment=draw(st.sampled_from(["", "why"])), engine="InnoDB"), parts


PARTITIONS = st.one_of(st.none(), st.builds(
    lambda method, expression, bounds: Partitioning(
        method, expression, tuple(Partition(f"p{n}", bound) for n, bound in enumerate(bounds))
    ),
    st.sampled_from(["RANGE", "LIST"]), st.sampled_from(["`c0`", "c0"]),
    st.lists(st.sampled_from(["1", "2", "MAXVALUE", "'2020-01-01'", "'2020-01-01 00:00:00'"]), max_size=2),
))  # fmt: skip


@given(schemas(), schemas())
def test_equal_definitions_have_equal_fingerprints_and_unequal_ones_do_not(
    one: tuple[TableDef, Parts], other: tuple[TableDef, Parts]
) -> None:
    differences = compare_tables(one[0], other[0], parts=(one[1], other[1]))
    assert (differences == []) == (table_fingerprint(*one) == table_fingerprint(*other)), differences


@given(schemas(), st.data())
def test_a_definition_is_equal_to_itself_in_any_order(made: tuple[TableDef, Parts], data: st.DataObject) -> None:
    definition, parts = made
    shuffled = replace(definition, indexes=tuple(data.draw(st.permutations(definition.indexes))))
    turned = replace(parts, checks=tuple(data.draw(st.permutations(parts.checks))))
    assert table_fingerprint(definition, parts) == table_fingerprint(shuffled, turned)
    assert compare_tables(definition, shuffled, parts=(parts, turned)) == []


ONE_MEANING: dict[str, tuple[Any, Any]] = {
    "display width": (column("a", "int(11)"), column("a", "int")),
    "integer": (column("a", "integer"), column("a", "int")),
    "default of a number": (column("a", "decimal(9,2)", default="1.00"), column("a", "decimal(9,2)", default="1")),
    "now": (
        column("a", "datetime", default="current_timestamp()"),
        column("a", "datetime", default="CURRENT_TIMESTAMP", extra="DEFAULT_GENERATED"),
    ),
    "utf8": (
        column("a", "varchar(9)", collation="utf8_bin"),
        column("a", "varchar(9)", collation="utf8mb3_bin"),
    ),
    "generated": (
        column("a", generation="(`b` + _utf8mb4\\'x\\')", stored=False),
        column("a", generation="`b` + 'x'", stored=False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("pair", ONE_MEANING.values(), ids=ONE_MEANING.keys())
def test_spellings_of_one_column(pair: tuple[ColumnDef, ColumnDef]) -> None:
    one, other = (table(found, key("PRIMARY", "a")) for found in pair)
    assert table_fingerprint(one, Parts()) == table_fingerprint(other, Parts())
    assert layout_fingerprint(one) == layout_fingerprint(other)


def test_a_fingerprint_is_sha256_of_canonical_json() -> None:
    text = '{"a":"é","b":1}'.encode()
    assert digest({"b": 1, "a": "é"}) == hashlib.sha256(text).hexdigest()
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1})
    assert digest([1, 2]) != digest([2, 1])


def test_names_of_tables_do_not_count_and_those_referred_to_do() -> None:
    foreign = ForeignKey("mine", ("a",), ("d", "p"), ("id",), "RESTRICT", "RESTRICT")
    here = table(column("a"), name="d.t")
    there = table(column("a"), name="new.t2")
    moved = replace(foreign, references=("new", "p"))
    assert table_fingerprint(here, Parts((foreign,)), lambda _, t: ("new", t)) == table_fingerprint(
        there, Parts((moved,))
    )
    other = replace(foreign, references=("d", "q"))
    assert table_fingerprint(here, Parts((foreign,))) != table_fingerprint(here, Parts((other,)))


def test_a_json_column_of_mariadb_is_json() -> None:
    text = table(column("j", "longtext", collation="utf8mb4_bin"))
    parts = Parts(checks=(CheckConstraint("j", "json_valid(`j`)"),))
    json = table(column("j", "json"))
    assert table_fingerprint(text, parts) == table_fingerprint(json, Parts())
    assert compare_tables(text, json, parts=(parts, Parts())) == []
    assert [d.kind for d in compare_tables(text, json, parts=(Parts(), Parts()))] == ["type"]


def keys_of(*indexes: IndexDef) -> TableDef:
    return table(column("p"), column("q"), *indexes)


@pytest.mark.parametrize(
    ("index", "implied"),
    [
        (key("p", "p"), True), (key("fk_1", "p"), True), (key("p_2", "p"), True), (key("mine", "p"), False),
        (key("p", "p", unique=True), False), (key("p", "p", "q"), False), (key("p", "p", visible=False), False),
        (key("p", "p", comment="x"), False),
    ],
)  # fmt: skip
def test_keys_that_a_server_makes_for_a_foreign_key(index: IndexDef, implied: bool) -> None:
    foreign = ForeignKey("fk_1", ("p",), ("d", "p"), ("id",), "RESTRICT", "RESTRICT")
    assert bool(implied_keys(keys_of(index), (foreign,))) == implied


def test_a_lone_foreign_key_is_found_though_its_key_is_there() -> None:
    foreign = ForeignKey("mine", ("p",), ("d", "p"), ("id",), "CASCADE", "RESTRICT")
    one = keys_of(key("mine", "p"))
    found = compare_tables(one, one, parts=(Parts((foreign,)), Parts()))
    assert {d.kind for d in found} >= {"foreign-key-missing"}


def test_the_whole_is_free_of_order_and_of_texts_of_views() -> None:
    views = [DatabaseObject("view", "d", "v", text) for text in ("select 1", "SELECT 1")]
    assert whole_fingerprint({"a": ["1", "2"], "b": ["3"]}, views[:1]) == whole_fingerprint(
        {"b": ["3"], "a": ["2", "1"]}, views[1:]
    )
    assert whole_fingerprint({"a": ["1"]}) != whole_fingerprint({"b": ["1"]})
    assert whole_fingerprint({"a": ["1"]}, views[:1]) != whole_fingerprint({"a": ["1"]})


def test_bounds_at_midnight() -> None:
    assert normal_bound("'2020-01-01 00:00:00'", "RANGE") == normal_bound("'2020-01-01'", "RANGE")
    assert normal_bound("'2020-01-01 10:00:00'", "RANGE") != normal_bound("'2020-01-01'", "RANGE")


def test_values_of_a_list_have_no_order() -> None:
    assert normal_bound("3,1,NULL", "LIST") == normal_bound("NULL,1,3", "LIST")
    assert normal_bound("(1,'a,b'),(2,'c')", "LIST COLUMNS") == normal_bound("(2,'c'),(1,'a,b')", "LIST COLUMNS")
    assert normal_bound("(1,2),(3,4)", "LIST COLUMNS") != normal_bound("(1,3),(2,4)", "LIST COLUMNS")
    assert normal_bound("1,2", "RANGE COLUMNS") != normal_bound("2,1", "RANGE COLUMNS")
    assert normal_bound("1,2", "LIST") != normal_bound("1,2,3", "LIST")


@pytest.mark.parametrize(
    ("source", "target", "same"),
    [
        ("((`a` + 1) * 2)", "(`a` + 1) * 2", True),
        ("((`a` + 1) * 2)", "`a` + 1 * 2", False),
        ("(`a` - (`b` - 1))", "`a` - `b` - 1", False),
        ("((`a` and `b`) or `c`)", "`a` and (`b` or `c`)", False),
        ("(`a` and `b` and `c`)", "`a` and (`b` and `c`)", True),
        ("(`d` + interval 1 day)", "date_add(`d`, interval 1 day)", True),
        ("if(((`a` > 1) and ((`b` = 1) or (`c` = 2))),1,0)", "if(`a` > 1 and `b` = 1 or `c` = 2, 1, 0)", False),
        (r"concat(`a`,_utf8mb4\'x\',`b`)", "concat(`a`, _utf8mb4'x', `b`)", True),
        ("((`a` DIV 2) % 3)", "`a` div 2 % 3", True),
    ],
)
def test_expressions_that_differ_by_brackets(source: str, target: str, same: bool) -> None:
    assert grouped_equally(source, target) is same


def test_attributes_of_tidb_are_read_outside_of_strings_only() -> None:
    statement = (
        "CREATE TABLE `t` (\n  `id` bigint NOT NULL /*T![auto_rand] AUTO_RANDOM(5) */ COMMENT '/*T![ttl] no */',\n"
        "  PRIMARY KEY (`id`) /*T![clustered_index] CLUSTERED */\n) COMMENT='it''s'"
        " /*T![auto_id_cache] AUTO_ID_CACHE=1 */"
        " /*T![ttl] TTL=`d` + INTERVAL 3 MONTH */ /*T![ttl] TTL_ENABLE='ON' */ /*T! SHARD_ROW_ID_BITS=4 */"
    )
    assert attributes_of(statement) == (
        ("auto_id_cache", "AUTO_ID_CACHE=1"), ("ttl", "TTL=`d` + INTERVAL 3 MONTH TTL_ENABLE='ON'"),
    )  # fmt: skip
