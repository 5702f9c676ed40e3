"""Which source tables meet which target table."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from migverify.model import SchemaClass, TableDef
from migverify.tables.pairs import FoundPair, compare_sources, find_pairs, shard_of
from tests.definitions import column, table

Name = tuple[str, str]


def _same(shard: str, database: str, name: str) -> Name:
    del shard
    return database, name


def _all(database: str, name: str) -> bool:
    del database, name
    return True


def _tables(*names: str, endpoint: str = "source") -> list[TableDef]:
    return [table(column("id"), name=name, endpoint=endpoint) for name in names]


def _found(
    source: list[str] | dict[str, list[str]],
    target: list[str],
    included: Callable[[str, str], bool] = _all,
    route: Callable[[str, str, str], Name] = _same,
) -> list[FoundPair]:
    by_endpoint = source if isinstance(source, dict) else {"source": source}
    sides = {endpoint: iter(_tables(*names, endpoint=endpoint)) for endpoint, names in by_endpoint.items()}
    return list(find_pairs(sides, iter(_tables(*target, endpoint="target")), included=included, route=route))


def _shown(pairs: list[FoundPair]) -> list[tuple[list[str], str | None]]:
    return [
        ([str(t.ref) for t in pair.sources], None if pair.target is None else str(pair.target.ref)) for pair in pairs
    ]


def test_same_names_meet_and_the_rest_is_told() -> None:
    found = _found(["d.b", "d.a", "d.only"], ["d.a", "d.b", "d.extra"])
    assert _shown(found) == [(["d.a"], "d.a"), (["d.b"], "d.b"), ([], "d.extra"), (["d.only"], None)]
    assert [pair.target is None or not pair.sources for pair in found] == [False, False, True, True]


def test_excluded_tables_are_on_neither_side() -> None:
    found = _found(["d.a", "d.log"], ["d.a", "d.log", "d.log2"], lambda _, name: not name.startswith("log"))
    assert _shown(found) == [(["d.a"], "d.a")]


def test_names_in_another_case_meet_when_it_is_clear() -> None:
    assert _shown(_found(["D.Orders"], ["d.orders"])) == [(["D.Orders"], "d.orders")]
    assert _shown(_found(["d.T", "d.t"], ["d.t"])) == [(["d.T"], None), (["d.t"], "d.t")]
    found = _found(["d.T", "d.t"], ["d.t"])
    assert "another source table's partner" in found[0].reason
    found = _found(["d.T", "d.t"], [])
    assert all("TiDB cannot hold both" in pair.reason for pair in found)
    found = _found(["d.Tt"], ["d.tt", "d.TT"])
    assert len(found) == 3
    assert all("in case alone" in pair.reason for pair in found)


def test_routes_rename_and_the_old_name_on_the_target_is_no_partner() -> None:
    def route(_: str, database: str, name: str) -> Name:
        return ("pay" if database == "shop" else database), name

    found = _found(["shop.a"], ["pay.a", "pay.stray", "shop.a", "other.x"], lambda d, _: d == "shop", route)
    # pay.stray could have come from shop.stray; shop.a cannot come from anywhere; other.x is not included.
    assert _shown(found) == [(["shop.a"], "pay.a"), ([], "pay.stray")]


def test_a_narrow_include_leaves_the_targets_other_tables_alone() -> None:
    found = _found(["shop.orders"], ["shop.orders", "shop.other"], lambda d, n: (d, n) == ("shop", "orders"))
    assert _shown(found) == [(["shop.orders"], "shop.orders")]


def _merge(shard: str, database: str, name: str) -> Name:
    del shard
    return database.partition("_")[0], name.partition("_")[0]


def test_shards_go_to_one_target() -> None:
    source = {"source.b": ["shop_1.t_1", "shop_1.t_2"], "source.a": ["shop_2.t_1"]}
    found = _found(source, ["shop.t"], route=_merge)
    assert _shown(found) == [(["shop_2.t_1", "shop_1.t_1", "shop_1.t_2"], "shop.t")]
    assert found[0].differences == ()
    assert found[0].name == ("shop", "t")


def test_the_shard_reaches_the_route() -> None:
    found = _found({"source.eu": ["d.t"], "source.us": ["d.t"]}, ["eu.t"], route=lambda shard, _, name: (shard, name))
    assert _shown(found) == [(["d.t"], "eu.t"), (["d.t"], None)]
    assert (shard_of("source"), shard_of("source.eu"), shard_of("source.a.b")) == ("", "eu", "a.b")


def test_shards_with_unlike_columns_are_told() -> None:
    one = table(column("id"), column("a"), column("e", "enum('x','y')"), name="s1.t", endpoint="source.a")
    two = table(column("ID"), column("b"), column("e", "enum('y','x')"), name="s2.t", endpoint="source.b")
    target = table(column("id"), name="s.t", endpoint="target")
    found = list(
        find_pairs({"source.a": [one], "source.b": [two]}, [target], included=_all, route=lambda *_: ("s", "t"))
    )
    assert len(found) == 1
    assert {d.where for d in found[0].differences} == {"a", "b", "e"}
    assert {d.level for d in found[0].differences} == {SchemaClass.BREAKS_COMPARISON}
    message = next(d.message for d in found[0].differences if d.where == "a")
    assert "source.a s1.t and source.b s2.t go to one target table" in message
    assert "int NULL and no such column" in message
    spared = compare_sources((one, two), lambda database, _: ["a", "E"] if database == "s1" else ["b"])
    assert list(spared) == []


NAMES = st.lists(
    st.tuples(st.sampled_from(["d", "D", "e"]), st.text("aAb", min_size=1, max_size=2)), unique=True, max_size=8
)


@given(NAMES, NAMES)
def test_no_table_is_lost_or_used_twice(source: list[Name], target: list[Name]) -> None:
    found = _found([".".join(name) for name in source], [".".join(name) for name in target])
    assert sorted(str(t.ref) for pair in found for t in pair.sources) == sorted(".".join(name) for name in source)
    assert sorted(str(pair.target.ref) for pair in found if pair.target) == sorted(".".join(name) for name in target)
    for name in set(source) & set(target):
        pair = next(p for p in found if p.sources and p.sources[0].ref == _tables(".".join(name))[0].ref)
        assert pair.target is not None
        assert (pair.target.ref.database, pair.target.ref.table) == name
