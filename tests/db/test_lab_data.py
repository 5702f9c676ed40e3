"""TPC-H and the museum go in unchanged, and equal on both sides."""

from __future__ import annotations

import pytest

from migverify.errors import LabError, UsageError
from migverify.sql.quoting import quote_name
from migverify_lab import museum, museum_loader, tpch

pytestmark = pytest.mark.db


def test_tpch_in_several_parts_is_equal_and_complete(databases, tmp_path):
    names = ("region", "nation", "supplier", "customer", "part", "orders", "lineitem")
    rows = tpch.load(databases.pair, databases.name, 0.001, names, 3, tmp_path, lambda _: None)
    assert rows["region"] == 5
    assert rows["orders"] == 1500
    assert set(rows) == set(names)
    assert list(tmp_path.iterdir()) == []
    for table in tpch.choose(names):
        text = ", ".join(f"CONCAT({name})" for name, _ in table.columns)
        order = ", ".join(table.key)
        statement = f"SELECT {text} FROM {quote_name(databases.name)}.{table.name} ORDER BY {order}"
        assert databases.source(statement) == databases.target(statement)


def test_tpch_again_replaces_the_tables(databases, tmp_path):
    for _ in range(2):
        rows = tpch.load(databases.pair, databases.name, 0.001, ("nation",), 0, tmp_path, lambda _: None)
        assert rows == {"nation": 25}


def test_a_row_that_does_not_go_in_as_written_is_an_error(databases, tmp_path, monkeypatch):
    nation = next(table for table in tpch.TABLES if table.name == "nation")
    narrow = tpch.TpchTable(
        "nation", (("n_nationkey", "TINYINT"), ("n_name", "CHAR(3)"), *nation.columns[2:]), nation.key, 0.1, True
    )
    monkeypatch.setattr(tpch, "TABLES", (narrow,))
    with pytest.raises(LabError, match="nation on"):
        tpch.load(databases.pair, databases.name, 0.001, (), 0, tmp_path, lambda _: None)
    assert list(tmp_path.iterdir()) == []


def test_unknown_tables_and_scales_are_refused(databases, tmp_path):
    with pytest.raises(UsageError, match="no table lineitems"):
        tpch.load(databases.pair, databases.name, 0.001, ("lineitems",), 0, tmp_path, lambda _: None)
    with pytest.raises(UsageError, match="duplicate keys"):
        tpch.load(databases.pair, databases.name, 0.001, (), 0, tmp_path, lambda _: None)
    with pytest.raises(UsageError, match="above 0"):
        tpch.load(databases.pair, databases.name, 0.0, (), 0, tmp_path, lambda _: None)


def test_the_whole_museum_hangs_on_both_sides(databases):
    rows = museum_loader.load(databases.pair, databases.name, (), True, lambda _: None)
    assert set(rows) == {table.name for table in museum.TABLES}
    for table in museum.TABLES:
        for side, run in (("source", databases.source), ("target", databases.target)):
            name = f"{quote_name(databases.name)}.{quote_name(table.name_on(side))}"
            assert run(f"SELECT COUNT(*) FROM {name}") == [(len(table.rows),)], (table.name, side)


def test_a_value_that_is_bent_is_an_error(databases):
    bent = museum.hall("bent", "too long", museum.Exhibit("v", "VARCHAR(2)", ("'abc'",)))
    with pytest.raises(LabError, match="changed a value"):
        museum_loader.hang(databases.connections[0], "source", databases.name, bent)


EXTREMES = {
    "integers": ("big", {"-9223372036854775808", "9223372036854775807", "9007199254740993"}),
    "decimals": ("d65_30", {"9" * 35 + "." + "9" * 30}),
    "datetimes": ("d6", {"0000-00-00 00:00:00.000000", "2024-02-00 12:34:56.000000", "9999-12-31 23:59:59.999999"}),
    "times": ("t6", {"-838:59:58.999999", "838:59:59.000000"}),
    "timestamps": ("t6", {"0000-00-00 00:00:00.000000", "2038-01-19 03:14:07.000000"}),
    "dates": ("y", {"0000", "1901", "2155"}),
}


@pytest.mark.parametrize("table", sorted(EXTREMES))
def test_edge_values_are_there_on_both_sides(databases, table):
    museum_loader.load(databases.pair, databases.name, (table,), False, lambda _: None)
    column, wanted = EXTREMES[table]
    for run in (databases.source, databases.target):
        held = {row[0] for row in run(f"SELECT CONCAT({column}) FROM {quote_name(databases.name)}.{table}")}
        assert wanted <= held


@pytest.mark.parametrize(("table", "column"), [("floats", "f"), ("doubles", "d")])
def test_floats_are_the_same_number_on_both_sides(databases, table, column):
    museum_loader.load(databases.pair, databases.name, (table,), False, lambda _: None)
    statement = f"SELECT CAST({column} AS DOUBLE) FROM {quote_name(databases.name)}.{table} ORDER BY id"
    source, target = databases.source(statement), databases.target(statement)
    assert source == target
    numbers = [row[0] for row in source if row[0] is not None]
    assert len(set(numbers)) >= len(numbers) - 2  # 16777217 and 9999999999999998 may share a neighbor
    assert min(abs(number) for number in numbers if number) < (1e-44 if table == "floats" else 1e-320)
