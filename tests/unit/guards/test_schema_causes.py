"""What ``guard schema`` shows: causes, not tables; drift first; and what may have been renamed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from migverify.config import load_config
from migverify.guards.schema_causes import cause_lines, causes_of, is_to_tidb
from migverify.guards.schema_diff import compare_snapshot
from migverify.guards.schema_model import DefinitionComparison, DefinitionDifference, SideSchema, Snapshot
from migverify.guards.scope import Scope
from migverify.model import Flavor, SchemaClass
from tests.definitions import column, key
from tests.unit.guards.test_schema_guard import CONFIG, schema, side

_CI, _BIN = "utf8mb4_0900_ai_ci", "utf8mb4_bin"


def compared(tmp_path: Path, source: SideSchema, target: SideSchema) -> list[DefinitionComparison]:
    path = tmp_path / "migverify.yaml"
    path.write_text(CONFIG)
    target = replace(target, flavor=Flavor.TIDB.value)
    return compare_snapshot(Scope(load_config(path), {}), Snapshot(100.0, (source, target)))


def schemas(tmp_path: Path, count: int) -> list[DefinitionComparison]:
    """Tables of the default collation of each server; one of them has drifted."""
    ours, theirs = [], []
    for number in range(count):
        name = f"d.t{number:03d}"
        one = column("v", "varchar(20)", collation=_CI), column("amount", "decimal(10,2)")
        other = column("v", "varchar(20)"), column("amount", "decimal(8,2)" if number == 7 else "decimal(10,2)")
        ours.append(schema("source", name, column("id"), *one, key("PRIMARY", "id")))
        theirs.append(schema("target", name, column("id"), *other, key("PRIMARY", "id")))
    return compared(tmp_path, side("source", *ours), side("target", *theirs))


def test_tables_of_one_cause_are_one_line_behind_what_has_drifted(tmp_path: Path) -> None:
    comparisons = schemas(tmp_path, 300)
    lines = list(cause_lines(causes_of(comparisons, to_tidb=True)))
    assert [line for line in lines if line.endswith(":")] == ["  drift:", "  expected between MySQL and TiDB:"]
    assert "columns.amount.type: decimal(10,2) -> decimal(8,2); d.t007" in lines[1]
    (shared,) = [line for line in lines if f"{_CI} -> {_BIN}" in line]
    assert "columns.*.collation" in shared
    assert shared.endswith("300 tables: d.t000, d.t001, d.t002 and 297 more (--all names them)")
    assert lines.index(shared) > lines.index("  expected between MySQL and TiDB:")
    assert len(lines) <= 6
    everything = list(cause_lines(causes_of(comparisons, to_tidb=True), everything=True))
    assert all(f"d.t{number:03d}" in "\n".join(everything) for number in range(300))


def test_between_servers_of_one_kind_nothing_is_expected(tmp_path: Path) -> None:
    causes = causes_of(schemas(tmp_path, 3), to_tidb=False)
    assert not any(cause.expected for cause in causes)
    mysql, tidb = side("source"), replace(side("target"), flavor="tidb")
    assert is_to_tidb([mysql], tidb)
    assert not is_to_tidb([mysql], mysql)
    assert not is_to_tidb([tidb], tidb)
    assert not is_to_tidb([mysql], None)


def test_a_collation_that_is_no_default_is_drift(tmp_path: Path) -> None:
    ours = schema("source", "d.t", column("id"), column("v", "varchar(20)", collation="utf8mb4_tr_0900_ai_ci"))
    theirs = schema("target", "d.t", column("id"), column("v", "varchar(20)"))
    (cause,) = causes_of(compared(tmp_path, side("source", ours), side("target", theirs)), to_tidb=True)
    assert not cause.expected


def test_columns_and_tables_that_may_have_been_renamed_are_suggested(tmp_path: Path) -> None:
    ours = (
        schema("source", "d.orders", column("id"), column("amount", "decimal(10,2)"), column("gone", "varchar(9)")),
        schema("source", "d.payments", column("id"), column("a"), column("b"), column("c"), column("e")),
    )
    theirs = (
        schema("target", "d.orders", column("id"), column("amount_total", "decimal(10,2)"), column("flag", "json")),
        schema("target", "d.payments_v2", column("id"), column("a"), column("b"), column("c"), column("e")),
        schema("target", "d.elsewhere", column("id"), column("x")),
    )
    found = compared(tmp_path, side("source", *ours), side("target", *theirs))
    told = {(c.table, d.path): d.message for c in found for d in c.differences}
    assert "renamed? amount_total of the target" in told["d.orders", "columns.amount"]
    assert "renamed? amount of the source" in told["d.orders", "columns.amount_total"]
    assert "renamed? d.payments_v2 of the target" in told["d.payments", "table"]
    assert "renamed? d.payments of the source" in told["d.payments_v2", "table"]
    for plain in (("d.orders", "columns.gone"), ("d.orders", "columns.flag"), ("d.elsewhere", "table")):
        assert "renamed?" not in told[plain]
    lines = "\n".join(cause_lines(causes_of(found, to_tidb=True)))
    assert lines.count("renamed?") == 4
    assert "table: only on the source; d.payments" in lines
    assert "columns.flag: only on the target (json NULL); d.orders" in lines


def test_a_default_that_is_none_is_a_value(tmp_path: Path) -> None:
    ours = schema("source", "d.t", column("id"), column("a", default="1"), column("b"))
    theirs = schema("target", "d.t", column("id"), column("b"), column("a"))
    found = compared(tmp_path, side("source", ours), side("target", theirs))
    lines = "\n".join(cause_lines(causes_of(found, to_tidb=True)))
    assert "columns.a.default: 1 -> none; d.t" in lines
    assert "column_order: none -> none; d.t" in lines


def test_a_key_of_another_name_is_said_to_be_the_same(tmp_path: Path) -> None:
    ours = schema("source", "d.t", column("id"), column("a"), key("by_a", "a"))
    theirs = schema("target", "d.t", column("id"), column("a"), key("idx_a", "a"))
    (found,) = compared(tmp_path, side("source", ours), side("target", theirs))
    (difference,) = found.differences
    assert difference.path == "keys.by_a.name"


_PATHS = ["columns.x.type", "columns.y.type", "columns.x", "options.collation", "table"]
_DIFFERENCES = st.lists(
    st.tuples(
        st.sampled_from(["d.a", "d.b", "d.c"]),
        st.builds(
            DefinitionDifference, st.sampled_from(_PATHS),
            st.sampled_from([None, "a", "b", _CI]), st.sampled_from([None, "a", _BIN]), st.sampled_from(SchemaClass),
            st.sampled_from(["m", "n; renamed? z"]), st.sampled_from(["", "ana: reason"]),
        ),
    ), max_size=12,
)  # fmt: skip


@given(_DIFFERENCES, st.booleans())
def test_no_difference_is_lost_and_allowed_ones_come_last(
    differences: list[tuple[str, DefinitionDifference]], to_tidb: bool
) -> None:
    comparisons = [DefinitionComparison(table, (one,), {}) for table, one in differences]
    causes = causes_of(comparisons, to_tidb=to_tidb)
    assert sorted(place for cause in causes for place in cause.places) == sorted((t, d.path) for t, d in differences)
    order = [(bool(cause.allowed), cause.expected) for cause in causes]
    assert order == sorted(order)
    assert all(table in "\n".join(cause_lines(causes, everything=True)) for table, _ in differences)
